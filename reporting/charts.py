"""Charts as plotly draws them: bars over time, and time lines. Times are the site's, since plotly knows no zones."""

from datetime import datetime
from html import escape
from zoneinfo import ZoneInfo

import plotly.graph_objects as go

from reporting.content import Bars, Kind, Mark, Marks
from reporting.words import plain

WIDTH = 1010
"""Pixels: as wide as the page, which is as wide as a sheet of paper."""

_BARS_HEIGHT = 260
_ROW, _FRAME = 26, 110
_AXES = {Kind.BYTES: ("bytes", "B", ".3~s"), Kind.USD: ("USD", " USD", ",.4~r")}
"""How a kind's axis is titled, what follows its numbers, and how d3 writes them."""


def figure_json(chart: Bars | Marks, zone: ZoneInfo) -> str:
    """Return a chart as JSON for ``Plotly.newPlot``, safe inside of a script element."""
    figure = _bars(chart, zone) if isinstance(chart, Bars) else _marks(chart, zone)
    figure.update_layout(
        width=WIDTH,
        margin={"l": 10, "r": 10, "t": 10, "b": 30},
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 12, "color": "#1f2430"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        showlegend=True,
    )
    # Inside of a script element nothing may look like its end.
    return str(figure.to_json()).replace("<", "\\u003c")


def is_drawn(chart: Bars | Marks) -> bool:
    """Whether there is anything to see."""
    return bool(chart.stacks if isinstance(chart, Bars) else chart.marks)


def _bars(chart: Bars, zone: ZoneInfo) -> go.Figure:
    ends = [*chart.starts[1:], chart.stop]
    figure = go.Figure()
    title, suffix, form = _AXES[chart.kind]
    for stack in chart.stacks:
        figure.add_trace(
            go.Bar(
                name=_name(stack.name),
                x=[_stamp(start, zone) for start in chart.starts],
                y=list(stack.values),
                width=[(end - start) * 1000 for start, end in zip(chart.starts, ends, strict=True)],
                offset=0,
                marker={"color": stack.colour, "line": {"width": 0}},
                hovertemplate=f"%{{y:{form}}}{suffix}",
            )
        )
    figure.update_layout(barmode="stack", height=_BARS_HEIGHT, hovermode="x unified")
    figure.update_xaxes(ticks="outside", ticklen=6, tickcolor="#dfe2e8")
    figure.update_xaxes(type="date", range=[_stamp(chart.starts[0], zone), _stamp(chart.stop, zone)])
    figure.update_yaxes(title=title, rangemode="tozero", tickformat=form, ticksuffix=suffix, automargin=True)
    return figure


def _marks(chart: Marks, zone: ZoneInfo) -> go.Figure:
    figure = go.Figure()
    for what, colour in dict.fromkeys((mark.what, mark.colour) for mark in chart.marks):
        mine = [mark for mark in chart.marks if mark.what == what]
        lasting = [mark for mark in mine if mark.stop > mark.start]
        moments = [mark for mark in mine if mark.stop == mark.start]
        if lasting:
            figure.add_trace(_lines(what, colour, lasting, zone))
        if moments:
            figure.add_trace(_dots(what, colour, moments, zone))
    names = [_name(row) for row in chart.rows]
    figure.update_layout(height=_FRAME + _ROW * len(names), barmode="overlay", bargap=0.3)
    figure.update_xaxes(type="date", range=[_stamp(chart.start, zone), _stamp(chart.stop, zone)], showgrid=True)
    # A category axis shows what it has seen: rows without a mark get theirs by the range.
    figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=names[::-1], range=[-0.6, len(names) - 0.4],
        tickmode="array", tickvals=names, automargin=True,
    )  # fmt: skip
    return figure


def _lines(what: str, colour: str, marks: list[Mark], zone: ZoneInfo) -> go.Bar:
    return go.Bar(
        name=_name(what),
        orientation="h",
        y=[_name(mark.row) for mark in marks],
        base=[_stamp(mark.start, zone) for mark in marks],
        # Lengths on a time axis are milliseconds.
        x=[(mark.stop - mark.start) * 1000 for mark in marks],
        marker={"color": colour, "line": {"width": 1, "color": colour}},
        hovertext=[f"{_name(mark.row)}: {_name(what)}" for mark in marks],
        hoverinfo="text",
    )


def _dots(what: str, colour: str, marks: list[Mark], zone: ZoneInfo) -> go.Scatter:
    return go.Scatter(
        name=_name(what),
        mode="markers",
        x=[_stamp(mark.start, zone) for mark in marks],
        y=[_name(mark.row) for mark in marks],
        marker={"color": colour, "size": 9, "symbol": "diamond" if what != "on time" else "circle"},
        hovertext=[f"{_name(mark.row)}: {_name(what)}" for mark in marks],
        hoverinfo="x+text",
    )


def _name(text: str) -> str:
    """Return a name of others: plotly reads some HTML in its texts."""
    return escape(plain(text))


def _stamp(moment: int, zone: ZoneInfo) -> str:
    return datetime.fromtimestamp(moment, zone).replace(tzinfo=None).isoformat(" ")
