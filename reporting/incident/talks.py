"""Conversations of the source around an alert, as far as the store tells them apart."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from cluster.model import EXTERNAL
from reporting.content import Cells, Column, Kind, Section, Table, Tone, Word
from reporting.look import FIRST, LAST, Look, Row
from reporting.words import counted
from store import schema
from store.influxql import Condition, Select, compare, earliest, is_in, lowest, merged, newest, total
from store.schema import Measurement

_MOST = 40
_HOUR = 3600
_TAGS = schema.CONVERSATION
# Of a conversation that stands in several, the first one's bytes count, and the last one says what it is.
_TOLD_APART = (schema.EGRESS, schema.INFERENCE, schema.THREAT, schema.VIOLATION)

_OF_TALK = (
    Column("protocol", "Protocol"), Column("port", "Port"), Column("bytes", "Bytes", Kind.BYTES, bar=True),
    Column("exactly", "In bytes", Kind.COUNT), Column("first", "First", Kind.MOMENT),
    Column("last", "Last", Kind.MOMENT), Column(schema.ENTERED.name, "Entered at"),
)  # fmt: skip
_COLUMNS = (
    Column("way", ""), Column("peer", "With"), Column("address", "Address"), Column("group", "Group", Kind.GROUP),
    *_OF_TALK, Column("what", "What"),
)  # fmt: skip

_NOTE = (
    "Told apart are conversations with the outside and with inference, those that are not allowed, and listed ones. "
    "Allowed conversations inside the cluster are stored as sums by group, below."
)


def talks(look: Look, node: str, destination: str) -> Iterator[Section]:
    """Yield the section; none where the alert has no source.

    Args:
        look: at the time around the alert.
        node: source as tags name it.
        destination: the same of the other end, which is marked.
    """
    if not node:
        return
    rows = [*_rows(look, node)]
    rows.sort(key=lambda row: (-(row[schema.BYTES.name] or 0), row[schema.SRC], row[schema.DST]))
    cells = tuple(_cells(look, row, node, destination) for row in rows[:_MOST])
    lead = (
        f"{counted(len(rows), 'conversation')} of {node} between {look.words.moment(look.period.start)} and "
        f"{look.words.moment(look.period.stop)}, the largest first."
    )
    left = f"{counted(len(rows) - _MOST, 'smaller one')} left out." if len(rows) > _MOST else ""
    yield Section(
        "talks",
        f"Conversations of {node}",
        lead,
        blocks=(Table("talks", "Told apart", _COLUMNS, cells, "None is told apart in this time."),),
        notes=(
            *((left,) if left else ()),
            _NOTE,
        ),
    )


def _rows(look: Look, node: str) -> Iterable[Row]:
    known: dict[tuple[str, ...], Row] = {}
    for measurement in _TOLD_APART:
        for end in (schema.SRC, schema.DST):
            for row in _seen(look, measurement, is_in(end, [node])):
                known.setdefault(tuple(row[tag] for tag in _TAGS), row)["measurement"] = measurement.name
    return known.values()


def outward(look: Look) -> Section:
    """Return whatever left the cluster: an alert about what many sent together has the name of the largest, or none."""
    rows = [row for row in _seen(look, schema.EGRESS) if row[schema.SRC_GROUP] != EXTERNAL]
    cells: tuple[Cells, ...] = tuple(
        (
            Word(row[schema.SRC], url=_link(look, row[schema.SRC], row[schema.DST])), row[schema.SRC_GROUP],
            row[schema.DST], row[schema.DST_GROUP], _protocol(row), _port(row), row[schema.BYTES.name],
            row[schema.BYTES.name], row[FIRST], row[LAST], row.get(schema.ENTERED.name) or "",
        )
        for row in rows[:_MOST]
    )  # fmt: skip
    columns = (
        Column("source", "From"), Column("source_group", "Group", Kind.GROUP), Column("destination", "To"),
        Column("destination_group", "Group", Kind.GROUP), *_OF_TALK,
    )  # fmt: skip
    left = (f"{counted(len(rows) - _MOST, 'smaller one')} left out.",) if len(rows) > _MOST else ()
    return Section(
        "outward", "All that left the cluster",
        f"{counted(len(rows), 'conversation')} of all machines with the outside in the same time, the largest first.",
        blocks=(Table("outward", "With the outside", columns, cells, "Nothing left it in this time."),), notes=left,
    )  # fmt: skip


def _seen(look: Look, measurement: Measurement, *where: Condition) -> list[Row]:
    source = Select(measurement, look.period.retention).where(*where)
    # A conversation that breaks several rules stands there once for each: one of them is enough.
    kinds = (schema.KIND,) if schema.KIND in measurement.tags else ()
    found = look.seen(source, (schema.BYTES, schema.FLOWS), (*_TAGS, *kinds))
    details = {
        tuple(row[tag] for tag in (*_TAGS, *kinds)): row
        for row in look.rows(source.by(*_TAGS, *kinds).take(*map(merged, schema.DETAILS)))
    }
    return [row | details.get(tuple(row[tag] for tag in (*_TAGS, *kinds)), {}) | _times(row) for row in found]


def _times(row: Row) -> dict[str, Any]:
    return {FIRST: row[FIRST], LAST: row[LAST]}


def _cells(look: Look, row: Row, node: str, destination: str) -> Cells:
    sends = row[schema.SRC] == node
    peer, group = (schema.DST, schema.DST_GROUP) if sends else (schema.SRC, schema.SRC_GROUP)
    address = row.get((schema.DST_ADDRESS if sends else schema.SRC_ADDRESS).name) or ""
    is_it = bool(destination) and row[peer] == destination
    what = "this alert" if is_it else {schema.VIOLATION.name: "not allowed"}.get(row["measurement"], "")
    there = address or row[peer]
    other = Word(row[peer], url=_link(look, node, there) if sends else _link(look, there, node))
    tone = Tone.ACT if is_it else Tone.LOOK if what else Tone.QUIET
    return (
        "→" if sends else "←", other, "" if address == row[peer] else address, row[group],
        _protocol(row), _port(row), row[schema.BYTES.name], row[schema.BYTES.name],
        row[FIRST], row[LAST], row.get(schema.ENTERED.name) or "", Word(what, tone) if what else "",
    )  # fmt: skip


def _protocol(row: Row) -> str:
    return f"{row[schema.PROTO].upper()}/{row[schema.SERVICE]}"


def _port(row: Row) -> str:
    low, high = row.get(schema.PORT.name), row.get(schema.PORT_MAX.name)
    return "" if low is None else f"{low}" if low == high else f"{low} to {high}"


def _link(look: Look, src: str, dst: str) -> str:
    """Return the address of the question about a conversation in the flow archive; empty without any."""
    pages = look.cluster.delivery.flow_pages()
    if not pages or schema.OTHER in (src, dst):
        return ""
    return f"{pages}?{urlencode({'src': src, 'dst': dst, 'from': look.period.start, 'to': look.period.stop})}"


def totals(look: Look, node: str) -> Iterator[Section]:
    """Yield what the node sent and received by group, allowed traffic inside included."""
    if not node:
        return
    sums = Select(schema.NODE_TRAFFIC, look.period.retention).where(is_in(schema.NODE, [node])).by(schema.PEER_GROUP)
    rows = look.rows(sums.take(total(schema.TX_BYTES), total(schema.RX_BYTES)))
    cells: list[Cells] = [
        (row[schema.PEER_GROUP], row[schema.TX_BYTES.name], row[schema.RX_BYTES.name])
        for row in sorted(rows, key=lambda row: -((row[schema.TX_BYTES.name] or 0) + (row[schema.RX_BYTES.name] or 0)))
    ]
    if not cells:
        return
    columns = (
        Column("group", "With group", Kind.GROUP), Column("sent", "Sent", Kind.BYTES, bar=True),
        Column("received", "Received", Kind.BYTES, bar=True),
    )  # fmt: skip
    yield Section(
        "totals", f"All traffic of {node}", "By the group at the other end, in the same time.",
        blocks=(Table("totals", "By group", columns, tuple(cells), ""),),
    )  # fmt: skip


def contacts(look: Look, node: str, destination: str) -> Iterator[Section]:
    """Yield the first contacts of the source in this time, and since when it knows the destination."""
    if not node:
        return
    asked = Select(schema.CONTACT, schema.RAW).where(is_in(schema.SRC, [node]), compare(schema.CONTACT_NEW, "=", 1))
    tags = (schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE)
    rows = look.rows(asked.by(*tags).take(lowest(schema.CONTACT_FIRST), newest(schema.BYTES)))
    cells: Sequence[Cells] = [
        (row[schema.DST], row[schema.DST_GROUP], f"{row[schema.PROTO].upper()}/{row[schema.SERVICE]}",
         row[schema.CONTACT_FIRST.name])
        for row in sorted(rows, key=lambda row: row[schema.CONTACT_FIRST.name] or 0)[:_MOST]
    ]  # fmt: skip
    columns = (
        Column("destination", "Destination"), Column("group", "Group", Kind.GROUP), Column("protocol", "Protocol"),
        Column("first", "First seen", Kind.MOMENT),
    )  # fmt: skip
    since = _known_since(look, node, destination)
    gone = look.gone(schema.CONTACT, "First contacts")
    if since is None and gone and not rows:
        lead = f"Whom {node} called for the first time is not known any more."
    elif since is None:
        lead = f"{counted(len(rows), 'destination')} that {node} had not called before."
    else:
        lead = f"{node} has sent to {destination} since {look.words.moment(since)}, as far as is kept."
    yield Section(
        "contacts", "First contacts", lead,
        blocks=(
            Table("contacts", "New in this time", columns, tuple(cells), "Not known any more." if gone else "None."),
        ),
        notes=gone,
    )  # fmt: skip


def _known_since(look: Look, node: str, destination: str) -> int | None:
    if not destination:
        return None
    both = (is_in(schema.SRC, [node]), is_in(schema.DST, [destination]), compare(schema.BYTES, ">", 0))
    found: int | None = None
    # Windows of the coarser retentions reach further back, and begin before what they hold.
    for retention in reversed(look.cluster.retentions()):
        asked = Select(schema.EGRESS, retention.name).where(*both).take(earliest(schema.BYTES))
        for moment, _ in look.store.rows(asked.between(stop=look.period.stop)):
            if found is None or moment < found + _HOUR:
                found = moment
    return found
