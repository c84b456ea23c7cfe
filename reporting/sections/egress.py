"""What left the cluster: how much, where to, and whether it was approved; and who talked to known bad addresses."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from app.words import amount
from dashboards import palette, questions
from reporting.content import Bars, Cells, Column, Fact, Kind, Section, Stack, Table, Tone, Word
from reporting.look import FIRST, LAST, TIME, Look, Row, split
from reporting.outside import PLACE, SENT, STANDING, is_approved, looked_up, place, standing, unknowns
from reporting.words import counted, percent, plain
from store import schema
from store.influxql import Select, highest, is_in, lowest, total

_BYTES, _FLOWS = schema.BYTES.name, schema.FLOWS.name
_DESTINATIONS = schema.EVENT_DESTINATIONS.name
_GROUPS = (schema.SRC_GROUP, schema.DST_GROUP)
_DESTINATION = (schema.SRC_GROUP, schema.DST, schema.DST_GROUP)


def section(look: Look) -> Section:
    """Return the section."""
    sent = questions.sent_outside(look.cluster, look.period.retention)
    over_time = look.over_time(sent.by(*_GROUPS))
    destinations = _destinations(look)
    threats = _threats(look)
    listed = _conversations(threats)
    volume = sum(row[_BYTES] for row in destinations)
    other = sum(row[_BYTES] for row in destinations if not is_approved(look, row))
    off_hours = sum(
        row[_BYTES] or 0 for row in look.rows(questions.sent_off_hours(look.cluster, look.period.retention))
    )
    known = looked_up(look, [*map(_outside, threats), *(row[schema.DST] for row in destinations)])
    share = other / volume if volume else 0.0
    unapproved = Fact(
        "not_approved_bytes", "To destinations that nobody approved", other, Kind.BYTES,
        Tone.LOOK if other else Tone.QUIET, in_summary=True,
    )  # fmt: skip
    return Section(
        "egress",
        "Egress",
        f"{amount(volume)} left the cluster, {percent(share)} of it to "
        "destinations that nobody approved." if volume else "Nothing left the cluster.",
        facts=(
            Fact("bytes", "Left the cluster", volume, Kind.BYTES),
            unapproved,
            Fact("not_approved_share", "Their share", share, Kind.SHARE),
            Fact("off_hours_bytes", "Of sensitive groups in off-hours", off_hours, Kind.BYTES),
            Fact("threats", "Conversations with listed bad addresses", listed, Kind.COUNT,
                 Tone.ACT if threats else Tone.QUIET, in_summary=bool(look.cluster.threat_feeds or threats)),
        ),
        attention=tuple(_attention(look, destinations, threats)),
        blocks=(
            _chart(look, over_time),
            _by_day(look, over_time),
            _by_groups(look, destinations, volume),
            _by_destination(look, destinations, known),
            _by_country(look, destinations),
            _threat_table(look, threats, known),
        ),
        notes=(
            "Answers to clients outside are in it. Approved: groups of role approved_external, and pairs of `allowed`.",
            "Beyond the largest of a window, destinations are summed up as other.",
            *unknowns(look.cluster),
        ),
    )  # fmt: skip


def _destinations(look: Look) -> list[Row]:
    """Return what each group sent to each destination, the most first; labels are those of most of the bytes."""
    sent = questions.sent_outside(look.cluster, look.period.retention).take(total(schema.FLOWS))
    rows = look.rows(sent.by(*_DESTINATION, *schema.LABELS))
    found: dict[tuple[str, ...], Row] = {}
    for row in sorted(rows, key=lambda row: -(row[_BYTES] or 0)):
        key = tuple(row[tag] for tag in _DESTINATION)
        one = found.setdefault(key, row | {_BYTES: 0, _FLOWS: 0})
        one[_BYTES] += row[_BYTES] or 0
        one[_FLOWS] += row[_FLOWS] or 0
    return sorted(found.values(), key=lambda row: (-row[_BYTES], *(row[tag] for tag in _DESTINATION)))


def _threats(look: Look) -> list[Row]:
    tags = (*schema.CONVERSATION, schema.DIRECTION, schema.LATE, schema.FEED, schema.INDICATOR, schema.COUNTRY,
            schema.NETWORK)  # fmt: skip
    # What a feed lists only afterwards is written beside the rollups, to raw points and hours, not to minutes.
    afterwards = schema.RAW if look.reaches(schema.RAW) else schema.HOUR
    names = schema.CONFIDENCE.name, schema.LISTED_SINCE.name
    found = []
    for late, retention in ((schema.NO, look.period.retention), (schema.YES, afterwards)):
        source = Select(schema.THREAT, retention).where(is_in(schema.LATE, [late]))
        facts = {
            tuple(row[tag] for tag in tags): row
            for row in look.rows(source.take(highest(schema.CONFIDENCE), lowest(schema.LISTED_SINCE)).by(*tags))
        }
        for row in look.seen(source, (schema.BYTES,), tags):
            mine = facts[tuple(row[tag] for tag in tags)]
            found.append(row | {name: mine[name] for name in names})
    return sorted(found, key=lambda row: (-row[_BYTES], *(row[tag] for tag in tags)))


def _conversations(threats: Sequence[Row]) -> int:
    """Return how many conversations rows are of: each has a row a direction, and one for each of its labels."""
    return len(
        {(frozenset((row[schema.SRC], row[schema.DST])), row[schema.PROTO], row[schema.SERVICE]) for row in threats}
    )


def _attention(look: Look, destinations: Sequence[Row], threats: Sequence[Row]) -> Iterable[Word]:
    if threats:
        row = threats[0]
        yield Word(
            f"{counted(_conversations(threats), 'conversation')} with addresses that a threat feed lists; the largest: "
            f"{plain(row[schema.SRC])} → {plain(row[schema.DST])}, {amount(row[_BYTES])}, listed "
            f"by {plain(row[schema.FEED])}",
            Tone.ACT,
        )
    watched = set(questions.watched_ids(look.cluster))
    from_watched = [row for row in destinations if row[schema.SRC_GROUP] in watched and not is_approved(look, row)]
    volume = sum(row[_BYTES] for row in from_watched)
    if volume:
        row = from_watched[0]
        yield Word(
            f"{amount(volume)} of groups whose data is sensitive went to destinations that nobody approved; the most: "
            f"{look.words.title(row[schema.SRC_GROUP])} → {plain(row[schema.DST])}, {amount(row[_BYTES])}",
            Tone.LOOK,
        )


def _chart(look: Look, rows: Sequence[Row]) -> Bars:
    sums, colours, bins = (
        split(rows, schema.DST_GROUP, _BYTES, look.bins),
        palette.group_colours(look.cluster),
        look.bins,
    )
    stacks = (
        Stack(look.words.title(group), colours.get(group, palette.OTHER_COLOUR), tuple(values))
        for group, values in sorted(sums.items(), key=lambda item: -sum(item[1]))
    )
    return Bars("over_time", "Bytes that left, by destination group", Kind.BYTES, bins.starts, bins.stop, tuple(stacks))


def _by_day(look: Look, rows: Sequence[Row]) -> Table:
    values = ((row[TIME], str(is_approved(look, row)), row[_BYTES] or 0) for row in rows)
    sums = look.days.folded(values)
    nothing = [0.0] * len(look.days.starts)
    found = []
    for start, yes, no in zip(look.days.starts, sums.get("True", nothing), sums.get("False", nothing), strict=True):
        found.append((start, yes + no, yes, no, no / (yes + no) if yes + no else None))
    columns = (
        Column("day", "Day from", Kind.MOMENT), Column(_BYTES, "Bytes", Kind.BYTES, bar=True),
        Column("approved_bytes", "To approved", Kind.BYTES), Column("not_approved_bytes", "To others", Kind.BYTES),
        Column("not_approved_share", "Share of others", Kind.SHARE),
    )  # fmt: skip
    return Table("by_day", "By day", columns, tuple(found) if rows else (), "Nothing left in this period.")


def _by_groups(look: Look, destinations: Sequence[Row], volume: int) -> Table:
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in destinations:
        one = sums[row[schema.SRC_GROUP], row[schema.DST_GROUP]]
        one[:] = [one[0] + row[_BYTES], one[1] + 1]
    rows = (
        (
            src,
            dst,
            standing(look, dict(zip(_GROUPS, (src, dst), strict=True))),
            size,
            size / volume if volume else 0.0,
            number,
        )
        for (src, dst), (size, number) in sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    )
    columns = (
        Column(schema.SRC_GROUP, "From group", Kind.GROUP), Column(schema.DST_GROUP, "To group", Kind.GROUP),
        STANDING, SENT,
        Column("share", "Share", Kind.SHARE), Column(_DESTINATIONS, "Destinations", Kind.COUNT),
    )  # fmt: skip
    return Table("by_groups", "By group", columns, tuple(rows), "Nothing left in this period.")


def _by_destination(look: Look, destinations: Sequence[Row], known: dict[str, Any]) -> Table:
    rows = (
        (row[schema.SRC_GROUP], row[schema.DST], *place(row, known), row[schema.DST_GROUP],
         standing(look, row), row[_BYTES], row[_FLOWS])
        for row in destinations
    )  # fmt: skip
    columns = (
        Column(schema.SRC_GROUP, "From group", Kind.GROUP), Column(schema.DST, "Destination"), *PLACE,
        Column(schema.DST_GROUP, "Its group", Kind.GROUP), STANDING, SENT, Column(_FLOWS, "Flow records", Kind.COUNT),
    )  # fmt: skip
    return Table("by_destination", "By destination", columns, tuple(rows), "Nothing left in this period.")


def _by_country(look: Look, destinations: Sequence[Row]) -> Table:
    sums: dict[str, int] = defaultdict(int)
    # Several groups may have sent to one destination.
    reached: dict[str, set[str]] = defaultdict(set)
    for row in destinations:
        sums[row[schema.COUNTRY]] += row[_BYTES]
        reached[row[schema.COUNTRY]].add(row[schema.DST])
    rows: list[Cells] = [
        (country or "not known", size, len(reached[country]))
        for country, size in sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    ]
    is_known = bool(look.cluster.geography.files) or any(sums.keys() - {"", schema.OTHER})
    columns = Column(schema.COUNTRY, "Country"), SENT, Column(_DESTINATIONS, "Destinations", Kind.COUNT)
    empty = "Nothing left in this period." if is_known else "Not measured: cluster.yaml has no `geography`."
    return Table("by_country", "By country", columns, tuple(rows) if is_known else (), empty)


def _outside(row: Row) -> str:
    """Return the outside end of a conversation with a listed address."""
    return str(row[schema.DST if row[schema.DIRECTION] == schema.OUTWARD else schema.SRC])


def _direction(row: Row) -> str:
    way = "outward" if row[schema.DIRECTION] == schema.OUTWARD else "inward"
    return f"{way}, found late" if row[schema.LATE] == schema.YES else way


def _threat_table(look: Look, threats: Sequence[Row], known: dict[str, Any]) -> Table:
    rows = (
        (
            row[schema.SRC], row[schema.SRC_GROUP], row[schema.DST],
            known.get(_outside(row), {}).get(schema.KNOWN_NAME.name, ""),
            f"{row[schema.PROTO]}/{row[schema.SERVICE]}",
            _direction(row), Word(row[schema.FEED], Tone.ACT),
            row[schema.INDICATOR], row[schema.COUNTRY], row[schema.NETWORK], row[schema.CONFIDENCE.name],
            row[schema.LISTED_SINCE.name], row[_BYTES], row[FIRST],
            row[LAST],
        )
        for row in threats
    )  # fmt: skip
    columns = (
        Column(schema.SRC, "Source"), Column(schema.SRC_GROUP, "Group", Kind.GROUP), Column(schema.DST, "Destination"),
        Column(schema.KNOWN_NAME.name, "Name"),
        Column(schema.SERVICE, "Service"),
        Column(schema.DIRECTION, "Direction"), Column(schema.FEED, "Feeds"), Column(schema.INDICATOR, "Listed as"),
        Column(schema.COUNTRY, "Country"), Column(schema.NETWORK, "Network"),
        Column(schema.CONFIDENCE.name, "Confidence, %", Kind.COUNT),
        Column(schema.LISTED_SINCE.name, "Listed since", Kind.MOMENT), SENT,
        Column(FIRST, "First seen", Kind.MOMENT), Column(LAST, "Last seen", Kind.MOMENT),
    )  # fmt: skip
    is_measured = bool(look.cluster.threat_feeds) or bool(threats)
    empty = "None in this period." if is_measured else "Not measured: cluster.yaml has no `threat_feeds`."
    return Table("threats", "Conversations with addresses that a threat feed lists", columns, tuple(rows), empty)
