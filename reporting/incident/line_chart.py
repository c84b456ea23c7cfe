"""A line over time with its limit, as SVG: it needs no script, prints, and follows the page's colours."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from html import escape
from itertools import groupby
from math import floor, log10
from zoneinfo import ZoneInfo

_WIDTH, _HEIGHT = 1010, 280
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
    top = _nice(max(limit, *(value or 0.0 for _, value in points)) * 1.12)

    def across(moment: float) -> float:
        return round(_LEFT + (moment - start) / max(stop - start, 1) * (_WIDTH - _LEFT - _RIGHT), 1)

    def up(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM), 1)

    parts = [f'<svg class="line" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(limit_text)}">']
    for step in range(_Y_TICKS + 1):
        value = top * step / _Y_TICKS
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(value)}" y2="{up(value)}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{up(value) + 4}" text-anchor="end">{escape(written(value))}</text>')
    for moment in _moments(start, stop, zone):
        text = datetime.fromtimestamp(moment, zone).strftime("%H:%M" if stop - start < 2 * 86_400 else "%d %b %H:%M")
        parts.append(f'<text x="{across(moment)}" y="{_HEIGHT - 10}" text-anchor="middle">{text}</text>')
    for is_there, run in groupby(points, key=lambda one: one[1] is not None):
        some = [(across(moment), up(value or 0.0)) for moment, value in run]
        if is_there:
            line = " ".join(f"{x},{y}" for x, y in some)
            base = up(0)
            parts.append(f'<polygon class="under" points="{some[0][0]},{base} {line} {some[-1][0]},{base}"/>')
            parts.append(f'<polyline class="value" points="{line}"/>')
    parts.append(f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(limit)}" y2="{up(limit)}"/>')
    parts.append(f'<text class="limit-text" x="{_LEFT + 6}" y="{up(limit) - 6}">{escape(limit_text)}</text>')
    for moment, word in marks:
        if start <= moment <= stop:
            x = across(moment)
            is_right = x > _WIDTH - 120
            parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{_HEIGHT - _BOTTOM}"/>')
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


def _nice(value: float) -> float:
    """Return a round number that is at least as large."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(factor * power for factor in (1, 2, 4, 6, 8, 10) if factor * power >= value)
