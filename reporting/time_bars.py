"""Stacked bars over time as SVG: no script, the page's colours, what a bar stands for when it is pointed at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from zoneinfo import ZoneInfo

from reporting.incident.line_chart import HEIGHT, WIDTH, Frame, nice

STYLE = """
svg.line rect.bar:hover { stroke: var(--ink); stroke-width: 1; }
ul.legend { list-style: none; padding: 0; margin: .2rem 0; display: flex; flex-wrap: wrap; gap: .15rem 1rem;
  font-size: 12.5px; }
ul.legend i { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px; margin-right: .35rem; }
ul.legend li { overflow-wrap: anywhere; }
"""


@dataclass(frozen=True, slots=True)
class Series:
    """What a colour stands for, with a value for each bar."""

    name: str
    colour: str
    values: Sequence[float]


def time_bars(
    starts: Sequence[int],
    width: int,
    series: Sequence[Series],
    *,
    period: tuple[int, int],
    written: Callable[[float], str],
    zone: ZoneInfo,
) -> str:
    """Return the chart with its legend.

    Args:
        starts: of the bars, epoch seconds.
        width: seconds of a bar.
        series: from the bottom up.
        period: epoch seconds of the chart's ends; the first and the last bar are cut there.
        written: a value for people.
        zone: of the times.
    """
    totals = [sum(one.values[place] for one in series) for place in range(len(starts))]
    frame = Frame(period[0], period[1], nice(max([*totals, 1.0]) * 1.05))
    parts = [f'<svg class="line" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="over time">']
    parts += frame.axes(written, zone)
    for place, start in enumerate(starts):
        left, right = (frame.across(min(max(at, period[0]), period[1])) for at in (start, start + width))
        clock = f"{datetime.fromtimestamp(max(start, period[0]), zone):%Y-%m-%d %H:%M:%S}"
        below = 0.0
        for one in series:
            value = one.values[place]
            if value <= 0:
                continue
            top, bottom = frame.up(below + value), frame.up(below)
            below += value
            parts.append(
                f'<rect class="bar" x="{left}" y="{top}" width="{max(right - left - 0.6, 0.6):.1f}" '
                f'height="{max(bottom - top, 0.3):.1f}" fill="{one.colour}"><title>{clock} {escape(one.name)}: '
                f"{escape(written(value))}</title></rect>"
            )
    parts.append("</svg>")
    legend = "".join(f'<li><i style="background:{one.colour}"></i>{escape(one.name)}</li>' for one in series)
    return "".join(parts) + f'<ul class="legend">{legend}</ul>'
