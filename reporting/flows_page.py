"""A question about conversations and its answer as an HTML page: no script, nothing loaded, its address is its link."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import polars as pl

from app.words import amount, lasting
from archive import schema
from archive.query import Answer, Filter, Grouping
from cluster.model import Cluster
from dashboards.palette import OTHER_COLOUR, group_colours
from reporting.incident.incident_page import DARK
from reporting.incident.line_chart import STYLE as CHART_STYLE
from reporting.page import document
from reporting.time_bars import STYLE as BARS_STYLE
from reporting.time_bars import Series, time_bars
from reporting.words import Wording, counted, percent, plain

FORMATS = ("csv", "json", "parquet")
MOST_SAVED = 500_000
"""Rows of a file to save."""

_BIN, _SPLIT = "_bin", "_split"
_WIDTHS = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 604_800)
_MOST_BARS = 96
_MOST_SERIES = 7
_MOST_GROUPS = 24
_COLOURS = ("#7ea6e0", "#44bb99", "#eedd88", "#ffaabb", "#99ddff", "#bbcc33", "#ccbbee")
_NUMBERS = (schema.BYTES, schema.PACKETS, schema.FLOWS)
_TIMES = (schema.START, schema.END)

# Which word of the question a click on a column's value says.
_ASKS = {
    schema.SRC: "src", schema.SRC_NODE: "src", schema.SRC_GROUP: "src",
    schema.DST: "dst", schema.DST_NODE: "dst", schema.DST_GROUP: "dst",
    schema.SRC_PORT: "port", schema.DST_PORT: "port", schema.PROTOCOL: "proto", schema.EXPORTER: "exporter",
    schema.IN_INTERFACE: "interface", schema.OUT_INTERFACE: "interface",
}  # fmt: skip
_HINTS = {
    "src": "address, prefix, node or group", "dst": "the same, other end", "node": "on either side",
    "address": "on either side", "prefix": "10.20.0.0/16", "port": "of either side", "proto": "tcp",
    "group": "on either side", "exporter": "", "interface": "in or out", "job": "its nodes, while it ran",
    "around": "id of an alert", "from": "15m, or 2026-03-01T14:00", "to": "now",
}  # fmt: skip
_BY = (
    "src_node,dst_node,dst_port,protocol", "src,dst,src_port,dst_port,protocol", "src_group,dst_group",
    "dst_port,protocol", "exporter,in_interface,out_interface", "records",
)  # fmt: skip
_PERIODS = ("15m", "1h", "6h", "24h", "7d")

_OWN = """
form { display: grid; grid-template-columns: repeat(auto-fill, minmax(160px, 1fr));
  gap: .45rem .7rem; margin: 1rem 0 .4rem; }
form label { font-size: 12px; color: var(--dim); display: block; } form .wide { grid-column: span 2; }
input, select, button { font: inherit; font-size: 13px; width: 100%; padding: .25rem .4rem; color: var(--ink);
  background: var(--paper); border: 1px solid var(--line); border-radius: 4px; }
button { cursor: pointer; background: #2f5d9f; border-color: #2f5d9f; color: #fff; align-self: end; }
p.trouble { border-left: 4px solid var(--act); padding: .4rem .7rem; overflow-wrap: anywhere; }
p.sum { font-size: 1.1rem; margin: 1rem 0 .2rem; } nav.small { margin: .2rem 0 .6rem; }
td a { color: inherit; text-decoration-color: var(--line); } td a:hover { color: var(--link); }
table.matrix { width: auto; } table.matrix td, table.matrix th { border: 1px solid var(--line); }
table.matrix td { background: color-mix(in srgb, var(--quiet) var(--share), transparent); }
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as somebody wrote it, and as it was understood.

    Attributes:
        texts: what stands in the form, by the words of ``clusterflow flows``.
        question: with its period.
        by: columns; none: records.
        zone: of the site.
    """

    texts: Mapping[str, str]
    question: Filter
    by: tuple[str, ...]
    zone: ZoneInfo

    @property
    def width(self) -> int:
        """Return the seconds of a bar."""
        length = self.question.stop - self.question.start
        return next((one for one in _WIDTHS if length / one <= _MOST_BARS), -(-length // _MOST_BARS))

    @property
    def split(self) -> str:
        """Return the column that tells the colours of the bars apart."""
        return next((name for name in self.by if name not in _TIMES), schema.DST_GROUP)

    def further(self) -> Grouping:
        """Return what the chart and the matrix need besides the table."""
        at = (pl.col(schema.END) // self.width).alias(_BIN)
        return at, pl.col(self.split).cast(pl.String).alias(_SPLIT), schema.SRC_GROUP, schema.DST_GROUP

    def link(self, **changes: str) -> str:
        """Return the address of this question at the times that it was asked of, or of another one."""
        times = {
            name: datetime.fromtimestamp(moment, self.zone).isoformat()
            for name, moment in (("from", self.question.start), ("to", self.question.stop))
        }
        texts = {**self.texts, **times, **changes}
        return f"?{urlencode({name: text for name, text in texts.items() if text})}"


def html(cluster: Cluster, texts: Mapping[str, str], trouble: str = "", *parts: str) -> str:
    """Return the whole document.

    Args:
        cluster: whose archive it is.
        texts: what stands in the form.
        trouble: what is wrong with it, a line.
        parts: of the answer.
    """
    told = f'<p class="trouble"><b>{escape(trouble)}</b></p>' if trouble else ""
    body = (
        f'<p class="note">{escape(cluster.name)}</p><h1>Who talked to whom</h1>'
        f"{''.join(_form(cluster, texts))}{told}{''.join(parts)}"
    )
    return document(f"Conversations · {cluster.name}", body, DARK, CHART_STYLE, BARS_STYLE, _OWN)


def answered(cluster: Cluster, asked: Asked, answer: Answer, gaps: Sequence[str]) -> Iterator[str]:
    """Yield the parts of an answer, which has what `Asked.further` asked for."""
    words = Wording.of(cluster)
    start, stop = asked.question.start, asked.question.stop
    share = f"{percent(answer.share)} of all traffic ({amount(answer.all_bytes)})"
    period = f"{words.moment(start)} to {words.moment(stop)} ({lasting(stop - start)}), times in {words.zone.key}"
    yield (
        f'<p class="sum"><b>{escape(amount(answer.bytes))}</b> ({answer.bytes:,} bytes), {escape(share)}, '
        f"{counted(answer.packets, 'packet')}, {counted(answer.flows, 'flow')}</p>"
        f'<p class="note">{escape(period)}. A record counts whole, where it ended.</p>'
    )
    left = f"{answer.suppressed_bytes:,} bytes are left out: another exporter counts them."
    notes = [*([left] if answer.suppressed_bytes else []), *(f"Lacks: {gap}" for gap in gaps)]
    if notes:
        yield f'<ul class="notes">{"".join(f"<li>{escape(plain(note))}</li>" for note in notes)}</ul>'
    saved = "".join(f'<a href="{escape(asked.link(format=one))}">{one.upper()}</a>' for one in FORMATS)
    periods = "".join(f'<a href="{escape(asked.link(**{"from": one, "to": ""}))}">{one}</a>' for one in _PERIODS)
    link = f'<a href="{escape(asked.link())}">Link to this answer</a>'
    yield f'<nav class="small">{link} Save: {saved} Last: {periods}</nav>'
    if answer.also is None or answer.also.is_empty():
        yield "<p>No traffic like that in this time.</p>"
        return
    yield from _chart(cluster, asked, answer.also, words)
    yield from _table(asked, answer, words)
    yield from _matrix(asked, answer.also, words)
    yield (
        '<p class="note">Bytes are IP bytes, scaled by sampling, each counted once; kB, MB, GB are decimal. RDMA that '
        "stays in the fabric, NVLink and what was said are in no flow record.</p>"
    )


# -- the question --------------------------------------------------------------------------------------


def _form(cluster: Cluster, texts: Mapping[str, str]) -> Iterator[str]:
    yield '<form method="get">'
    for word, hint in _HINTS.items():
        lists = f' list="{word}s"' if word in ("group", "exporter") else ""
        yield (
            f'<label>{word}<input name="{word}" value="{escape(texts.get(word, ""))}" placeholder="{escape(hint)}"'
            f'{lists} autocomplete="off" spellcheck="false"></label>'
        )
    yield f'<label class="wide">by<input name="by" value="{escape(texts.get("by", _BY[0]))}" list="bys"></label>'
    chosen = texts.get("order", schema.BYTES)
    known = dict.fromkeys((*_NUMBERS, *_TIMES, chosen))
    options = (f"<option{' selected' if one == chosen else ''}>{escape(one)}</option>" for one in known)
    yield f'<label>order<select name="order">{"".join(options)}</select></label>'
    yield f'<label>top<input name="top" value="{escape(texts.get("top", "20"))}" inputmode="numeric"></label>'
    yield '<label>&nbsp;<button type="submit">Ask</button></label></form>'
    for name, values in (
        ("bys", _BY), ("groups", group_colours(cluster)), ("exporters", [one.name for one in cluster.exporters])
    ):  # fmt: skip
        yield f'<datalist id="{name}">{"".join(f"<option>{escape(one)}</option>" for one in values)}</datalist>'


# -- the answer ----------------------------------------------------------------------------------------


def _chart(cluster: Cluster, asked: Asked, frame: pl.DataFrame, words: Wording) -> Iterator[str]:
    width, split = asked.width, asked.split
    largest = frame.group_by(_SPLIT).agg(pl.sum(schema.BYTES)).sort(schema.BYTES, _SPLIT, descending=[True, False])
    names: list[str] = largest[_SPLIT].to_list()
    shown = names if len(names) <= _MOST_SERIES else names[: _MOST_SERIES - 1]
    first, last = asked.question.start // width, (asked.question.stop - 1) // width
    # A service may be called `other`.
    values: dict[str | None, list[float]] = {name: [0.0] * (last - first + 1) for name in (*shown, None)}
    for at, name, size in frame.group_by(_BIN, _SPLIT).agg(pl.sum(schema.BYTES)).iter_rows():
        values[name if name in values else None][at - first] += size
    colours = group_colours(cluster) if split.endswith("_group") else {}
    series = [
        Series(plain(words.title(name) if colours else name), colours.get(name, colour), values[name])
        for name, colour in zip(shown, _COLOURS, strict=False)
    ]
    if len(names) > len(shown):
        series.append(Series(f"{len(names) - len(shown):,} others", OTHER_COLOUR, values[None]))
    chart = time_bars(
        [at * width for at in range(first, last + 1)],
        width,
        series,
        period=(asked.question.start, asked.question.stop),
        written=amount,
        zone=words.zone,
    )
    yield f"<figure><figcaption>Bytes in {lasting(width)}, by {escape(split)}</figcaption>{chart}</figure>"


def _table(asked: Asked, answer: Answer, words: Wording) -> Iterator[str]:
    frame = answer.frame
    largest = max(frame[schema.BYTES].max() or 0, 1)
    heads = "".join(f"<th{_side(name)}>{escape(name)}</th>" for name in frame.columns)
    title = (
        f"{frame.height:,} of {counted(answer.rows, 'row')}"
        if frame.height < answer.rows
        else counted(answer.rows, "row")
    )
    yield f"<h3>{title}</h3>"
    yield f'<div class="table"><table><thead><tr>{heads}</tr></thead><tbody>'
    for row in frame.iter_rows(named=True):
        yield f"<tr>{''.join(_cell(asked, name, value, largest, words) for name, value in row.items())}</tr>"
    yield "</tbody></table></div>"


def _side(name: str) -> str:
    return ' class="number"' if name in _NUMBERS else ""


def _cell(asked: Asked, name: str, value: Any, largest: Any, words: Wording) -> str:  # noqa: ANN401 - of any column
    if name == schema.BYTES:
        return f'<td class="number bar" style="--share:{100 * value / largest:.1f}%">{value:,}</td>'
    if name in _NUMBERS:
        return f'<td class="number">{value:,}</td>'
    if name in _TIMES:
        return f'<td class="moment"><span>{escape(words.moment(value))}</span></td>'
    text = escape(plain(str(value)))
    word = _ASKS.get(name)
    if word is None or value in ("", None):
        return f"<td>{text}</td>"
    return f'<td><a href="{escape(asked.link(**{word: str(value)}))}" title="only this">{text}</a></td>'


def _matrix(asked: Asked, frame: pl.DataFrame, words: Wording) -> Iterator[str]:
    sums: dict[str, int] = {}
    summed = frame.group_by(schema.SRC_GROUP, schema.DST_GROUP).agg(pl.sum(schema.BYTES))
    pairs = {(src, dst): size for src, dst, size in summed.iter_rows()}
    for (src, dst), size in pairs.items():
        sums[src] = sums.get(src, 0) + size
        sums[dst] = sums.get(dst, 0) + size
    groups = sorted(sums, key=lambda group: (-sums[group], group))[:_MOST_GROUPS]
    rows = [group for group in groups if any(src == group for src, _ in pairs)]
    columns = [group for group in groups if any(dst == group for _, dst in pairs)]
    largest = max(pairs.values(), default=0) or 1
    yield '<h3>Groups: from the left to the top</h3><div class="table"><table class="matrix"><thead><tr><th></th>'
    yield "".join(f"<th>{escape(plain(words.title(group)))}</th>" for group in columns)
    yield "</tr></thead><tbody>"
    for src in rows:
        cells = (_pair(asked, src, dst, pairs.get((src, dst)), largest) for dst in columns)
        yield f"<tr><th>{escape(plain(words.title(src)))}</th>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _pair(asked: Asked, src: str, dst: str, size: int | None, largest: int) -> str:
    if size is None:
        return "<td></td>"
    link = escape(asked.link(src=src, dst=dst))
    style = f"--share:{80 * size / largest:.0f}%"
    return f'<td class="number" style="{style}"><a href="{link}">{escape(amount(size))}</a></td>'
