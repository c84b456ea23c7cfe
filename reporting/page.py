"""A report as one HTML file that loads nothing from anywhere: it opens from a mail, on any machine, and prints.

What comes from the network is text and never markup: every value is escaped, and the page's own policy lets no script
run but the two that it names by their hashes.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from hashlib import sha256
from html import escape
from zoneinfo import ZoneInfo

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from analysis.audit import Period
from app.words import lasting
from reporting.content import Bars, Column, Fact, Kind, Mark, Marks, Report, Section, Table, Tone, Value, Word
from reporting.words import Wording, counted, plain

WIDTH = 1010
"""Pixels: as wide as the page, which is as wide as a sheet of paper."""

_HALF_A_DAY = 43_200
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
    is_daily = any(end - start > _HALF_A_DAY for start, end in zip(chart.starts, ends, strict=True))
    # A day begins at midnight, however long it is.
    clock = zone if is_daily else _clock(chart.starts[0], chart.stop, zone)
    figure = go.Figure()
    title, suffix, form = _AXES[chart.kind]
    for stack in chart.stacks:
        figure.add_trace(
            go.Bar(
                name=_name(stack.name),
                x=[_stamp(start, clock) for start in chart.starts],
                y=list(stack.values),
                width=[
                    (_local(end, clock) - _local(start, clock)) / timedelta(milliseconds=1)
                    for start, end in zip(chart.starts, ends, strict=True)
                ],
                offset=0,
                marker={"color": stack.colour, "line": {"width": 0}},
                hovertemplate=f"%{{y:{form}}}{suffix}",
            )
        )
    figure.update_layout(barmode="stack", height=_BARS_HEIGHT, hovermode="x unified")
    figure.update_xaxes(ticks="outside", ticklen=6, tickcolor="#dfe2e8")
    figure.update_xaxes(type="date", range=[_stamp(chart.starts[0], clock), _stamp(chart.stop, clock)])
    _tell_clock(figure, clock)
    figure.update_yaxes(title=title, rangemode="tozero", tickformat=form, ticksuffix=suffix, automargin=True)
    return figure


def _marks(chart: Marks, zone: ZoneInfo) -> go.Figure:
    clock = _clock(chart.start, chart.stop, zone)
    figure = go.Figure()
    for what, colour in dict.fromkeys((mark.what, mark.colour) for mark in chart.marks):
        mine = [mark for mark in chart.marks if mark.what == what]
        lasting = [mark for mark in mine if mark.stop > mark.start]
        moments = [mark for mark in mine if mark.stop == mark.start]
        if lasting:
            figure.add_trace(_lines(what, colour, lasting, clock))
        if moments:
            figure.add_trace(_dots(what, colour, moments, clock))
    names = [_name(row) for row in chart.rows]
    figure.update_layout(height=_FRAME + _ROW * len(names), barmode="overlay", bargap=0.3)
    figure.update_xaxes(type="date", range=[_stamp(chart.start, clock), _stamp(chart.stop, clock)], showgrid=True)
    _tell_clock(figure, clock)
    # A category axis shows what it has seen: rows without a mark get theirs by the range.
    figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=names[::-1], range=[-0.6, len(names) - 0.4],
        tickmode="array", tickvals=names, automargin=True,
    )  # fmt: skip
    return figure


def _lines(what: str, colour: str, marks: list[Mark], clock: tzinfo) -> go.Bar:
    return go.Bar(
        name=_name(what),
        orientation="h",
        y=[_name(mark.row) for mark in marks],
        base=[_stamp(mark.start, clock) for mark in marks],
        # Lengths on a time axis are milliseconds.
        x=[(mark.stop - mark.start) * 1000 for mark in marks],
        marker={"color": colour, "line": {"width": 1, "color": colour}},
        hovertext=[f"{_name(mark.row)}: {_name(what)}" for mark in marks],
        hoverinfo="text",
    )


def _dots(what: str, colour: str, marks: list[Mark], clock: tzinfo) -> go.Scatter:
    return go.Scatter(
        name=_name(what),
        mode="markers",
        x=[_stamp(mark.start, clock) for mark in marks],
        y=[_name(mark.row) for mark in marks],
        marker={"color": colour, "size": 9, "symbol": "diamond" if what != "on time" else "circle"},
        hovertext=[f"{_name(mark.row)}: {_name(what)}" for mark in marks],
        hoverinfo="x+text",
    )


def _name(text: str) -> str:
    """Return a name of others: plotly reads some HTML in its texts."""
    return escape(plain(text))


def _clock(start: int, stop: int, zone: ZoneInfo) -> tzinfo:
    """Return the clock of an axis: where the site's jumps it goes on as it began, else an hour would be there twice."""
    first, last = (datetime.fromtimestamp(moment, zone).utcoffset() or timedelta() for moment in (start, stop))
    return zone if first == last else timezone(first)


def _tell_clock(figure: go.Figure, clock: tzinfo) -> None:
    if isinstance(clock, timezone):
        figure.update_xaxes(title=f"{clock} throughout: the site's clock changes meanwhile", automargin=True)


def _local(moment: int, clock: tzinfo) -> datetime:
    return datetime.fromtimestamp(moment, clock).replace(tzinfo=None)


def _stamp(moment: int, clock: tzinfo) -> str:
    return _local(moment, clock).isoformat(" ")


_MOST_ROWS = 50
"""Rows of a table that the page shows; JSON has all."""

_UNKNOWN = "not known"
_LONG = 24
"""Characters of a word that may be broken."""
_NUMBERS = frozenset(Kind) - {Kind.TEXT, Kind.GROUP, Kind.MOMENT}

STYLE = """
:root { --ink: #1f2430; --dim: #5a6272; --line: #dfe2e8; --quiet: #7ea6e0; --bar: #dce8f8;
  --link: #2f5d9f; --look: #b45f06; --act: #b3261e; }
* { box-sizing: border-box; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.6rem auto 4rem; max-width: 1040px; padding: 0 15px;
  color: var(--ink); }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.2rem; margin: 2.6rem 0 .3rem; border-top: 2px solid var(--line);
  padding-top: 1rem; } h3 { font-size: .95rem; margin: 1.4rem 0 .3rem; }
p { margin: .3rem 0; } .note, ul.notes { color: var(--dim); font-size: 12.5px; } ul.notes { padding-left: 1.1rem; }
nav { margin: .8rem 0 1.2rem; font-size: 13px; } nav a { margin-right: 1rem; } a { color: var(--link); }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: .6rem; margin: 1rem 0; }
.tile { border: 1px solid var(--line); border-left: 4px solid var(--quiet); border-radius: 4px; padding: .5rem .7rem; }
.tile b { display: block; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--dim); font-size: 12.5px; }
.tile.look { border-left-color: #ff9830; } .tile.act { border-left-color: var(--act); }
ul.attention { padding-left: 1.2rem; margin: .3rem 0; overflow-wrap: anywhere; }
ul.attention li { margin: .25rem 0; } ul.attention li::marker { color: #ff9830; }
ul.attention li.act::marker { color: var(--act); }
.look { color: var(--look); font-weight: 600; } .act { color: var(--act); font-weight: 600; }
li.look, li.act, .tile.look, .tile.act { color: inherit; font-weight: inherit; }
table { border-collapse: collapse; width: 100%; font-size: 12.5px; margin: .2rem 0 .4rem; }
th, td { text-align: left; padding: .22rem .4rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--dim); vertical-align: bottom; }
td.long { overflow-wrap: anywhere; min-width: 8rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number, td.moment span { white-space: nowrap; font-variant-numeric: tabular-nums; }
.table { overflow-x: auto; }
td.bar { background: linear-gradient(to left, var(--bar) var(--share), transparent var(--share)); }
dl { display: flex; flex-wrap: wrap; gap: .2rem 1.6rem; margin: .5rem 0; font-size: 13px; }
dl div { display: flex; gap: .4rem; } dt { color: var(--dim); } dd { margin: 0; font-weight: 600; }
figure { margin: .8rem 0; overflow-x: auto; } figcaption { font-weight: 600; font-size: .95rem; }
@page { size: A4 landscape; margin: 9mm; }
@media print {
  body { margin: 0 auto; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .table, figure { overflow: visible; } nav { display: none; }
  figure, tr, .tile, li { break-inside: avoid; } h2, h3, figcaption { break-after: avoid; }
}
"""

_DRAW = """
for (const place of document.querySelectorAll("[data-chart]")) {
  const chart = JSON.parse(document.getElementById(place.dataset.chart).textContent);
  Plotly.newPlot(place, chart.data, chart.layout, {displayModeBar: false});
}
"""


def html(report: Report, words: Wording) -> str:
    """Return the whole document."""
    blocks = [block for section in report.sections for block in section.blocks]
    has_charts = any(not isinstance(block, Table) and is_drawn(block) for block in blocks)
    scripts = [get_plotlyjs(), _DRAW] if has_charts else []
    body = "".join(
        [*_head(report, words), *(part for section in report.sections for part in section_parts(section, words))]
    )
    return document(f"clusterflow report: {report.cluster}", body, scripts=scripts)


def document(title: str, body: str, *styles: str, scripts: Sequence[str] = ()) -> str:
    """Return a whole document, whose own policy is that nothing is loaded, and no script runs but these.

    Args:
        title: as text.
        body: as HTML.
        styles: besides what all pages share.
        scripts: that it ends with.
    """
    hashes = [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts]
    allowed = " ".join(hashes) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {allowed}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{STYLE}{''.join(styles)}</style></head>"
        f"<body>{body}{''.join(f'<script>{script}</script>' for script in scripts)}</body></html>\n"
    )


# -- the head ------------------------------------------------------------------------------------------


def _head(report: Report, words: Wording) -> Iterator[str]:
    yield f"<h1>{escape(report.cluster)}</h1>"
    yield f'<p class="note">{escape(_about(report.period, report, words))}</p>'
    links = map(_link, report.sections)
    yield f"<nav>{''.join(links)}</nav>"
    if report.is_empty:
        yield (
            '<p class="look">The store holds no flow record of this period: what stands below is silence, not health. '
            "Was the bridge running, and is this the right store?</p>"
        )
    tiles = (_tile(fact, words) for _, fact in report.facts())
    yield f'<div class="tiles">{"".join(tiles)}</div>'
    yield "<h3>What needs attention</h3>"
    lines = [
        f'<li class="{word.tone}">{escape(word.text)} ({_link(section)})</li>' for section, word in report.attention()
    ]
    yield f'<ul class="attention">{"".join(lines)}</ul>' if lines else "<p>Nothing.</p>"


def _link(section: Section) -> str:
    return f'<a href="#{escape(section.id)}">{escape(section.title)}</a>'


def _about(period: Period, report: Report, words: Wording) -> str:
    length = lasting(period.stop - period.start)
    return (
        f"{words.moment(period.start)} to {words.moment(period.stop)} ({length}), times in {report.zone.key}. Read in "
        f"windows of {lasting(period.window)}. Made {words.moment(report.made_at)} by clusterflow report. Bytes are IP "
        "bytes, scaled by sampling; kB, MB, GB are decimal."
    )


def _tile(fact: Fact, words: Wording) -> str:
    shown = words.shown(fact.value, fact.kind) or _UNKNOWN
    return f'<div class="tile {fact.tone}"><b>{escape(shown)}</b><span>{escape(fact.title)}</span></div>'


# -- sections ------------------------------------------------------------------------------------------


def section_parts(section: Section, words: Wording) -> Iterator[str]:
    """Yield the parts of a section."""
    yield f'<section id="{escape(section.id)}"><h2>{escape(section.title)}</h2><p>{escape(section.lead)}</p>'
    if section.facts:
        facts = (
            f"<div><dt>{escape(fact.title)}</dt><dd{_toned(fact.tone)}>"
            f"{escape(words.shown(fact.value, fact.kind) or _UNKNOWN)}</dd></div>"
            for fact in section.facts
        )
        yield f"<dl>{''.join(facts)}</dl>"
    for block in section.blocks:
        if isinstance(block, Table):
            yield _table(block, words)
        elif is_drawn(block):
            yield _chart(section, block, words)
    if section.notes:
        yield f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in section.notes)}</ul>'
    yield "</section>"


def _toned(tone: Tone) -> str:
    return "" if tone is Tone.QUIET else f' class="{tone}"'


def _chart(section: Section, chart: Bars | Marks, words: Wording) -> str:
    place = escape(f"{section.id}-{chart.key}")
    return (
        f'<figure><figcaption>{escape(chart.title)}</figcaption><div data-chart="{place}"></div>'
        f'<script type="application/json" id="{place}">{figure_json(chart, words.zone)}</script>'
        '<noscript><p class="note">The plot needs JavaScript; the tables have its facts.</p></noscript></figure>'
    )


def _table(table: Table, words: Wording) -> str:
    title = f"<h3>{escape(table.title)}</h3>"
    if not table.rows:
        return f'{title}<p class="note">{escape(table.empty)}</p>'
    # A column in which nothing is known takes room from the others.
    used = [place for place in range(len(table.columns)) if any(row[place] not in ("", None) for row in table.rows)]
    heads = "".join(f"<th{_sided(table.columns[place])}>{escape(table.columns[place].title)}</th>" for place in used)
    shown = table.rows[:_MOST_ROWS]
    largest = {place: max((_number(row[place]) for row in shown), default=0.0) for place in used}
    body = "".join(
        f"<tr>{''.join(_cell(row[place], table.columns[place], largest[place], words) for place in used)}</tr>"
        for row in shown
    )
    more = len(table.rows) - len(shown)
    note = f'<p class="note">and {counted(more, "more row")}: clusterflow report --json has all</p>' if more else ""
    return f'{title}<div class="table"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{note}'


def _sided(column: Column) -> str:
    return ' class="number"' if column.kind in _NUMBERS else ""


def _cell(value: Value, column: Column, largest: float, words: Wording) -> str:
    shown = words.shown(value, column.kind)
    text = escape(shown)
    classes = ["number"] if column.kind in _NUMBERS else []
    if isinstance(value, Word):
        text = f'<a href="{escape(value.url)}">{text}</a>' if value.url else f'<span class="{value.tone}">{text}</span>'
    elif column.kind is Kind.MOMENT:
        # Breaks between day and hour, never within.
        text = " ".join(f"<span>{part}</span>" for part in text.split(" "))
        classes.append("moment")
    if max(map(len, shown.split()), default=0) > _LONG:
        classes.append("long")
    style = ""
    if column.bar and largest > 0:
        classes.append("bar")
        style = f' style="--share:{100 * _number(value) / largest:.1f}%"'
    return f"<td{_classes(classes)}{style}>{text}</td>"


def _classes(names: list[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
