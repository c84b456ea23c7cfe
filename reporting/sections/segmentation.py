"""What broke the cluster's segmentation, and unused permits."""

from collections import defaultdict
from collections.abc import Iterable

import polars as pl

from analysis.audit import FIRST, LAST, Audit
from app.words import amount
from dashboards import palette
from reporting.content import Bars, Cells, Column, Fact, Kind, Section, Stack, Table, Tone, Word
from reporting.look import Look, split
from reporting.words import counted, plain
from store import schema
from store.influxql import Select, total
from store.schema import Breach, Violation

_WORDS = {
    Breach.SEGMENTATION: "not allowed",
    Breach.WRONG_PLANE: "storage on the compute plane",
    Breach.MANAGEMENT: "unexpected at management",
    Breach.SHADOW: "shadow node",
}
_STORED = {
    Violation.NOT_ALLOWED: (Breach.SEGMENTATION, palette.LOOK),
    Violation.WRONG_PLANE: (Breach.WRONG_PLANE, palette.QUIET),
    Violation.MANAGEMENT: (Breach.MANAGEMENT, palette.BLIND),
}
"""What ingest calls a violation -> what it is reported as, and the colour of its bars."""

_BYTES, _TX, _RX, _FLOWS = schema.BYTES.name, schema.TX_BYTES.name, schema.RX_BYTES.name, schema.FLOWS.name


def section(look: Look) -> Section:
    """Return the section."""
    found = look.audit
    kinds = {Breach.SEGMENTATION: found.violations, Breach.WRONG_PLANE: found.wrong_plane,
             Breach.MANAGEMENT: found.management}  # fmt: skip
    # One that is neither allowed nor expected at management stands under both kinds.
    number = pl.concat([frame.select(schema.CONVERSATION) for frame in kinds.values()]).n_unique()
    unused = len(found.unused())
    lead = (
        f"{counted(number, 'conversation')} that should not be, and {counted(found.shadows.height, 'shadow node')}."
        if number or found.shadows.height
        else "Nothing broke the segmentation."
    )
    return Section(
        "segmentation",
        "Segmentation",
        lead,
        facts=(
            Fact("conversations", "Conversations that break the segmentation", number, Kind.COUNT,
                 Tone.LOOK if number else Tone.QUIET, in_summary=True),
            Fact("shadow_nodes", "Shadow nodes", found.shadows.height, Kind.COUNT,
                 Tone.LOOK if found.shadows.height else Tone.QUIET),
            Fact("unused_permits", "Permits that nobody used", unused, Kind.COUNT),
        ),
        attention=tuple(_attention(kinds, found)),
        blocks=(
            _over_time(look),
            _pairs(kinds, found),
            _conversations(kinds),
            _shadows(found),
            _unused(found),
        ),
        notes=(
            "Everything stored is counted, alert or none; one conversation may be of several kinds.",
            "Nothing was blocked. Beyond the largest of a window, conversations are summed up as other.",
            *_unjudged(look),
        ),
    )  # fmt: skip


def _attention(kinds: dict[Breach, pl.DataFrame], found: Audit) -> Iterable[Word]:
    for kind, frame in kinds.items():
        if frame.height:
            row = frame.row(0, named=True)
            size = amount(int(frame.get_column(_BYTES).sum()))
            yield Word(
                f"{_WORDS[kind].capitalize()}: {counted(frame.height, 'conversation')}, {size}; the largest: "
                f"{plain(row[schema.SRC])} → {plain(row[schema.DST])}, {amount(row[_BYTES])}",
                Tone.LOOK,
            )
    if found.shadows.height:
        row = found.shadows.row(0, named=True)
        yield Word(
            f"{counted(found.shadows.height, 'address', 'addresses')} that no inventory knows sent something; most: "
            f"{plain(row[schema.ADDRESS])}, {amount(row[_TX])}",
            Tone.LOOK,
        )


def _over_time(look: Look) -> Bars:
    rows = look.over_time(Select(schema.VIOLATION, look.period.retention).take(total(schema.BYTES)).by(schema.KIND))
    sums = split(rows, schema.KIND, _BYTES, look.bins)
    stacks = (
        Stack(_WORDS[breach], colour, tuple(sums[kind.value]))
        for kind, (breach, colour) in _STORED.items()
        if kind.value in sums
    )
    bins = look.bins
    return Bars(
        "over_time",
        "Bytes that should not be, by kind (one may be of several kinds)",
        Kind.BYTES,
        bins.starts,
        bins.stop,
        tuple(stacks),
    )


def _pairs(kinds: dict[Breach, pl.DataFrame], found: Audit) -> Table:
    """Return what there was by kind and pair of groups, the most bytes first."""
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 2**63, 0])
    talks = [
        (_WORDS[kind], row[schema.SRC_GROUP], row[schema.DST_GROUP], row)
        for kind, frame in kinds.items()
        for row in frame.iter_rows(named=True)
    ]
    shadows = [(_WORDS[Breach.SHADOW], row[schema.GROUP], "", row) for row in found.shadows.iter_rows(named=True)]
    for *key, row in [*talks, *shadows]:
        one = sums[key[0], key[1], key[2]]
        one[:] = [one[0] + 1, one[1] + row[_BYTES], min(one[2], row[FIRST]), max(one[3], row[LAST])]
    rows: list[Cells] = [
        (kind, src, dst, *numbers)
        for (kind, src, dst), numbers in sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    ]
    columns = (
        Column(schema.KIND, "What"), Column(schema.SRC_GROUP, "From group", Kind.GROUP),
        Column(schema.DST_GROUP, "To group", Kind.GROUP),
        Column("conversations", "Conversations", Kind.COUNT), Column(_BYTES, "Bytes, both ways", Kind.BYTES, bar=True),
        Column(FIRST, "First seen", Kind.MOMENT), Column(LAST, "Last seen", Kind.MOMENT),
    )  # fmt: skip
    return Table("by_groups", "By kind and groups", columns, tuple(rows), "None in this period.")


def _conversations(kinds: dict[Breach, pl.DataFrame]) -> Table:
    rows: list[Cells] = [
        (
            _WORDS[kind], row[schema.SRC], row[schema.SRC_GROUP], row[schema.DST],
            row[schema.DST_GROUP], f"{row[schema.PROTO]}/{row[schema.SERVICE]}", row[_TX], row[_RX],
            row[_FLOWS], row[FIRST], row[LAST],
        )
        for kind, frame in kinds.items()
        for row in frame.iter_rows(named=True)
    ]  # fmt: skip
    rows.sort(key=lambda row: -(int(str(row[6])) + int(str(row[7]))))
    columns = (
        Column(schema.KIND, "What"), Column(schema.SRC, "Source"), Column(schema.SRC_GROUP, "Group", Kind.GROUP),
        Column(schema.DST, "Destination"), Column(schema.DST_GROUP, "Group", Kind.GROUP),
        Column(schema.SERVICE, "Service"),
        Column(_TX, "Sent", Kind.BYTES, bar=True), Column(_RX, "Received", Kind.BYTES),
        Column(_FLOWS, "Flow records", Kind.COUNT), Column(FIRST, "First seen", Kind.MOMENT),
        Column(LAST, "Last seen", Kind.MOMENT),
    )  # fmt: skip
    return Table("conversations", "Conversations, by who opened them", columns, tuple(rows), "None in this period.")


def _shadows(found: Audit) -> Table:
    rows = (
        (row[schema.ADDRESS], row[schema.GROUP], row[_TX], row[_BYTES] - row[_TX], row[_FLOWS], row[FIRST],
         row[LAST])
        for row in found.shadows.iter_rows(named=True)
    )  # fmt: skip
    columns = (
        Column(schema.ADDRESS, "Address"), Column(schema.GROUP, "Group", Kind.GROUP),
        Column(_TX, "Sent", Kind.BYTES, bar=True),
        Column(_RX, "Received", Kind.BYTES), Column(_FLOWS, "Flow records", Kind.COUNT),
        Column(FIRST, "First seen", Kind.MOMENT), Column(LAST, "Last seen", Kind.MOMENT),
    )  # fmt: skip
    title = "Shadow nodes: addresses that sent and that no inventory knows"
    return Table("shadow_nodes", title, columns, tuple(rows), "None in this period.")


def _unused(found: Audit) -> Table:
    rows = ((permit.src, permit.dst, f"{permit.entry.src} -> {permit.entry.dst}") for permit in found.unused())
    columns = (
        Column(schema.SRC_GROUP, "From", Kind.GROUP),
        Column(schema.DST_GROUP, "To", Kind.GROUP),
        Column("entry", "Entry of `allowed`"),
    )
    empty = "Every permit was used." if found.permits else "cluster.yaml has no `allowed`."
    return Table("unused_permits", "Permits without a byte", columns, tuple(rows), empty)


def _unjudged(look: Look) -> Iterable[str]:
    listed = {node.group for node in look.cluster.nodes}
    groups = [look.words.title(group.id) for group in look.cluster.inside_groups() if group.id not in listed]
    if groups:
        yield f"Shadow nodes are not looked for in groups of which the inventory lists no node: {', '.join(groups)}."
