"""A line over time with its limit, as SVG: it needs no script, prints, and follows the page's colours."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import groupby
from math import floor, log10
from zoneinfo import ZoneInfo

WIDTH, HEIGHT = 1010, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 16, 22, 30
_X_TICKS, _Y_TICKS = 8, 4
_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)

STYLE = """
svg.line { width: 100%; height: auto; font: 11px system-ui, sans-serif; }
svg.line .grid { stroke: var(--line); } svg.line text { fill: var(--dim); }
svg.line .value { fill: none; stroke: var(--quiet); stroke-width: 2; stroke-linejoin: round; }
svg.line .under { fill: var(--quiet); opacity: .18; }
svg.line .limit { stroke: var(--act); stroke-width: 1.5; stroke-dasharray: 6 4; }
svg.line text.limit-text { fill: var(--act); stroke: none; font-weight: 600; }
svg.line .mark { stroke: var(--ink); stroke-dasharray: 2 3; } svg.line text.mark-text { fill: var(--ink); }
"""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a moment and a value are: epoch seconds from `start` to `stop`, values from 0 to `top`."""

    start: int
    stop: int
    top: float

    def across(self, moment: float) -> float:
        """Return the place of a moment."""
        return round(_LEFT + (moment - self.start) / max(self.stop - self.start, 1) * (WIDTH - _LEFT - _RIGHT), 1)

    def up(self, value: float) -> float:
        """Return the place of a value."""
        return round(HEIGHT - _BOTTOM - value / self.top * (HEIGHT - _TOP - _BOTTOM), 1)

    def axes(self, written: Callable[[float], str], zone: ZoneInfo) -> Iterator[str]:
        """Yield lines and texts of both axes."""
        for step in range(_Y_TICKS + 1):
            value = self.top * step / _Y_TICKS
            at = self.up(value)
            yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'
            yield f'<text x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{escape(written(value))}</text>'
        form = "%H:%M" if self.stop - self.start < 2 * 86_400 else "%d %b %H:%M"
        for moment in _moments(self.start, self.stop, zone):
            text = datetime.fromtimestamp(moment, zone).strftime(form)
            yield f'<text x="{self.across(moment)}" y="{HEIGHT - 10}" text-anchor="middle">{text}</text>'


def line_chart(
    points: Sequence[tuple[int, float | None]],
    *,
    limit: float,
    limit_text: str,
    marks: Sequence[tuple[int, str]],
    written: Callable[[float], str],
    zone: ZoneInfo,
) -> str:
    """Return the chart.

    Args:
        points: (epoch second, value) in order of time, at least two; None is a gap.
        limit: drawn across.
        limit_text: stands at it.
        marks: (epoch second, word) drawn upright.
        written: a value for people.
        zone: of the times.
    """
    start, stop = points[0][0], points[-1][0]
    frame = Frame(start, stop, nice(max(limit, *(value or 0.0 for _, value in points)) * 1.12))
    across, up = frame.across, frame.up
    parts = [f'<svg class="line" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(limit_text)}">']
    parts += frame.axes(written, zone)
    for is_there, run in groupby(points, key=lambda one: one[1] is not None):
        some = [(across(moment), up(value or 0.0)) for moment, value in run]
        if is_there:
            line = " ".join(f"{x},{y}" for x, y in some)
            base = up(0)
            parts.append(f'<polygon class="under" points="{some[0][0]},{base} {line} {some[-1][0]},{base}"/>')
            parts.append(f'<polyline class="value" points="{line}"/>')
    parts.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{up(limit)}" y2="{up(limit)}"/>')
    parts.append(f'<text class="limit-text" x="{_LEFT + 6}" y="{up(limit) - 6}">{escape(limit_text)}</text>')
    for moment, word in marks:
        if start <= moment <= stop:
            x = across(moment)
            is_right = x > WIDTH - 120
            parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{HEIGHT - _BOTTOM}"/>')
            side = f'x="{x - 5}" text-anchor="end"' if is_right else f'x="{x + 5}"'
            parts.append(f'<text class="mark-text" {side} y="{_TOP - 8}">{escape(word)}</text>')
    parts.append("</svg>")
    return "".join(parts)


def _moments(start: int, stop: int, zone: ZoneInfo) -> Iterator[int]:
    """Yield round moments by the site's clock."""
    step = next((one for one in _STEPS if (stop - start) / one <= _X_TICKS), _STEPS[-1])
    offset = int((datetime.fromtimestamp(start, zone).utcoffset() or datetime.resolution * 0).total_seconds())
    first = -(-(start + offset) // step) * step - offset
    yield from range(first, stop + 1, step)


def nice(value: float) -> float:
    """Return a round number that is at least as large."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(factor * power for factor in (1, 2, 4, 6, 8, 10) if factor * power >= value)
