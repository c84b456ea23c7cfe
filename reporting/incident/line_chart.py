"""A line over time with its limit: as SVG for pages, where it follows their colours, as PNG for notifications."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import groupby
from math import floor, log10
from textwrap import shorten, wrap
from zoneinfo import ZoneInfo

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 1010, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 16, 22, 30
_X_TICKS, _Y_TICKS = 8, 4
_NEAR_RIGHT = 120
_LONE = 8
_HEAD, _FINE = 80, 2
_INK, _DIM, _LINE, _VALUE, _UNDER, _LIMIT = "#1f2430", "#5a6272", "#dfe2e8", "#5b8bd0", "#dfe9f7", "#b3261e"
_PLAIN = str.maketrans({"→": "to", "\N{MULTIPLICATION SIGN}": "x"})
"""What Pillow's own font lacks of what our texts have."""
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

    def levels(self) -> Iterator[tuple[float, float]]:
        """Yield round values and their places."""
        return ((value, self.up(value)) for value in (self.top * step / _Y_TICKS for step in range(_Y_TICKS + 1)))

    def clocks(self, zone: ZoneInfo) -> Iterator[tuple[float, str]]:
        """Yield places and texts of round moments."""
        form = "%H:%M" if self.stop - self.start < 2 * 86_400 else "%d %b %H:%M"
        for moment in _moments(self.start, self.stop, zone):
            yield self.across(moment), datetime.fromtimestamp(moment, zone).strftime(form)

    def axes(self, written: Callable[[float], str], zone: ZoneInfo) -> Iterator[str]:
        """Yield lines and texts of both axes as SVG."""
        for value, at in self.levels():
            yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'
            yield f'<text x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{escape(written(value))}</text>'
        for at, text in self.clocks(zone):
            yield f'<text x="{at}" y="{HEIGHT - 10}" text-anchor="middle">{text}</text>'


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn.

    Attributes:
        points: (epoch second, value) in order of time, at least two; None is a gap.
        limit: drawn across.
        limit_text: stands at it; without any there is no limit.
        marks: (epoch second, word) drawn upright.
        written: a value for people.
        zone: of the times.
    """

    points: Sequence[tuple[int, float | None]]
    limit: float
    limit_text: str
    marks: Sequence[tuple[int, str]]
    written: Callable[[float], str]
    zone: ZoneInfo

    def frame(self) -> Frame:
        """Return where moments and values are: the limit is always in sight."""
        top = nice(max(self.limit, *(value or 0.0 for _, value in self.points)) * 1.12)
        return Frame(self.points[0][0], self.points[-1][0], top)

    def runs(self) -> Iterator[list[tuple[float, float]]]:
        """Yield the places of values that follow each other without a gap."""
        frame = self.frame()
        for is_there, run in groupby(self.points, key=lambda one: one[1] is not None):
            some = [(frame.across(moment), frame.up(value or 0.0)) for moment, value in run]
            if is_there:
                # A lone value would be no line.
                yield some if some[1:] else [(some[0][0] - _LONE, some[0][1]), *some]

    def marked(self) -> Iterator[tuple[float, str]]:
        """Yield place and word of the marks in sight."""
        frame = self.frame()
        return ((frame.across(at), word) for at, word in self.marks if frame.start <= at <= frame.stop)


def line_chart(chart: Chart) -> str:
    """Return the chart as SVG."""
    frame = chart.frame()
    base, limit = frame.up(0), frame.up(chart.limit)
    parts = [f'<svg class="line" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.limit_text)}">']
    parts += frame.axes(chart.written, chart.zone)
    for some in chart.runs():
        line = " ".join(f"{x},{y}" for x, y in some)
        parts.append(f'<polygon class="under" points="{some[0][0]},{base} {line} {some[-1][0]},{base}"/>')
        parts.append(f'<polyline class="value" points="{line}"/>')
    if chart.limit_text:
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{limit}" y2="{limit}"/>')
        parts.append(f'<text class="limit-text" x="{_LEFT + 6}" y="{limit - 6}">{escape(chart.limit_text)}</text>')
    for x, word in chart.marked():
        parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{HEIGHT - _BOTTOM}"/>')
        side = f'x="{x - 5}" text-anchor="end"' if x > WIDTH - _NEAR_RIGHT else f'x="{x + 5}"'
        parts.append(f'<text class="mark-text" {side} y="{_TOP - 8}">{escape(word)}</text>')
    parts.append("</svg>")
    return "".join(parts)


def line_picture(charts: Sequence[tuple[Chart, str, str]]) -> bytes:
    """Return charts below each other as a PNG, each 1010 by 360 pixels, with its title and two lines of text."""
    picture = Image.new("RGB", (WIDTH, (HEIGHT + _HEAD) * len(charts)), "white")
    for place, (chart, title, text) in enumerate(charts):
        picture.paste(_picture(chart, title, text), (0, (HEIGHT + _HEAD) * place))
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def _picture(chart: Chart, title: str, text: str) -> Image.Image:
    # Pillow draws without smoothing: larger, then made smaller.
    picture = Image.new("RGB", (WIDTH * _FINE, (HEIGHT + _HEAD) * _FINE), "white")
    pen = ImageDraw.Draw(picture)
    small, large = (_font(size * _FINE) for size in (13, 18))
    frame, right, bottom = chart.frame(), WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def line(places: Sequence[tuple[float, float]], colour: str, width: float) -> None:
        pen.line([_fine(place) for place in places], colour, round(width * _FINE), "curve")

    def write(place: tuple[float, float], words: str, colour: str, anchor: str) -> None:
        pen.text(_fine(place), words, colour, small, anchor)

    pen.text(_fine((14, 12 - _HEAD)), shorten(title.translate(_PLAIN), 95, placeholder=" ..."), _INK, large)
    for row, words in enumerate(wrap(text.translate(_PLAIN), 135, max_lines=2, placeholder=" ...")):
        write((14, 38 + 18 * row - _HEAD), words, _DIM, "la")
    for value, at in frame.levels():
        line([(_LEFT, at), (right, at)], _LINE, 1)
        write((_LEFT - 6, at), chart.written(value), _DIM, "rm")
    for at, clock in frame.clocks(chart.zone):
        write((at, HEIGHT - 10), clock, _DIM, "mb")
    for some in chart.runs():
        pen.polygon([_fine(place) for place in ((some[0][0], bottom), *some, (some[-1][0], bottom))], _UNDER)
        line(some, _VALUE, 2)
    limit = frame.up(chart.limit)
    for dash in range(_LEFT, right, 10) if chart.limit_text else ():
        line([(dash, limit), (min(dash + 6, right), limit)], _LIMIT, 1.5)
    write((_LEFT + 6, limit - 5), chart.limit_text, _LIMIT, "lb")
    for x, word in chart.marked():
        line([(x, _TOP - 8), (x, bottom)], _INK, 1)
        is_right = x > WIDTH - _NEAR_RIGHT
        write((x - 5 if is_right else x + 5, _TOP - 6), word, _INK, "rm" if is_right else "lm")
    return picture.resize((WIDTH, HEIGHT + _HEAD), Image.Resampling.LANCZOS)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return a font of the system, which knows most scripts, else that of Pillow, which knows European ones."""
    with suppress(OSError):
        return ImageFont.truetype("DejaVuSans.ttf", size)
    return ImageFont.load_default(size)


def _fine(place: tuple[float, float]) -> tuple[float, float]:
    return place[0] * _FINE, (place[1] + _HEAD) * _FINE


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
