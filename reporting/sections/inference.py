"""Who asked the models: users, addresses and groups, which service, how much; and who asked though not on the list."""

from collections.abc import Iterable, Sequence

from analysis.access_cli import accessed
from app.words import amount
from cluster.model import Role
from dashboards import palette, questions
from reporting.content import Bars, Cells, Column, Fact, Kind, Section, Stack, Table, Tone, Word
from reporting.look import FIRST, LAST, Look, Row, split
from reporting.words import counted, plain
from store import schema
from store.influxql import Select, is_in, total
from store.schema import AccessBreach

_ID = "inference_access"
_BYTES, _FLOWS = schema.BYTES.name, schema.FLOWS.name
_WHO = (schema.SRC, schema.SRC_GROUP, schema.DST_GROUP, schema.SERVICE, schema.COUNTRY, schema.NETWORK)
_WHY = "why"
_UNLISTED = {
    AccessBreach.GROUP.value: "its group is not on the list",
    AccessBreach.USER.value: "its user is not on the list",
    AccessBreach.UNKNOWN_USER.value: "user unknown",
    AccessBreach.COUNTRY.value: "its country is not on the list",
    AccessBreach.SERVICE.value: "the service is not on its list",
    AccessBreach.HOURS.value: "outside its hours",
}
_NOT_ALLOWED, _OFF_WINDOW = "may not ask at all", "outside `inference.hours`"


def section(look: Look) -> Section:
    """Return the section."""
    groups = questions.role_ids(look.cluster, Role.INFERENCE)
    if not groups:
        return Section(
            _ID, "Inference access", "Not measured: cluster.yaml has no group of role inference.",
            is_measured=False,
        )  # fmt: skip
    has_users = bool(look.cluster.identity.sources or look.cluster.inference.access)
    accesses = _with_users(look, groups) if has_users else _by_address(look)
    breaches = _breaches(look)
    volume = sum(row[_BYTES] for row in accesses)
    clients = len({row[schema.SRC] for row in accesses})
    users = len({row[schema.USER] for row in accesses} - {schema.UNKNOWN_USER})
    denied = len({row[schema.SRC] for row in breaches})
    who = f"{counted(clients, 'client')}{f' and {users:,} known users' if has_users else ''}"
    told = counted(denied, "client") if denied else "nobody"
    lead = f"{who} sent {amount(volume)}; {told} asked who should not have."
    return Section(
        _ID,
        "Inference access",
        lead if accesses else "Nobody asked inference.",
        facts=(
            Fact("bytes", "Sent to inference", volume, Kind.BYTES),
            Fact("clients", "Clients", clients, Kind.COUNT),
            Fact("users", "Known users", users if has_users else None, Kind.COUNT),
            Fact("denied_clients", "Inference clients that should not ask", denied, Kind.COUNT,
                 Tone.LOOK if denied else Tone.QUIET, in_summary=True),
        ),
        attention=tuple(_attention(breaches, denied)),
        blocks=(_chart(look), _table(accesses), _breach_table(breaches), _countries(look)),
        notes=tuple(_notes(look, has_users=has_users)),
    )  # fmt: skip


def _with_users(look: Look, groups: Sequence[str]) -> list[Row]:
    period = look.period
    return accessed(look.store, period.start, period.stop, [is_in(schema.DST_GROUP, sorted(groups))]).to_dicts()


def _by_address(look: Look) -> list[Row]:
    rows = look.seen(Select(schema.INFERENCE, look.period.retention), (schema.BYTES, schema.FLOWS), _WHO)
    return [row | {schema.USER: schema.UNKNOWN_USER} for row in rows]


def _breaches(look: Look) -> list[Row]:
    """Return who asked though they should not have, each with the reason, the most bytes first."""
    retention, fields = look.period.retention, (schema.BYTES, schema.FLOWS)
    tags = (*_WHO, schema.DST)
    asked = Select(schema.INFERENCE, retention)
    pairs = questions.inference_pairs(look.cluster, may=False)
    unlisted = look.seen(
        Select(schema.ACCESS_BREACH, schema.ACCESS_BREACH.kept), fields, (*tags, schema.KIND, schema.USER)
    )
    found = [row | {_WHY: _UNLISTED.get(row[schema.KIND], row[schema.KIND])} for row in unlisted]
    others = [(_NOT_ALLOWED, look.seen(questions.asked_by(pairs, retention), fields, tags))] if pairs else []
    if look.cluster.inference.hours is not None:
        off = look.seen(asked.where(is_in(schema.OFF_WINDOW, [schema.YES])), fields, tags)
        # Breaches know the user, too, as far back as they are kept.
        told = {_ends(row) for row in unlisted if row[schema.KIND] == AccessBreach.HOURS}
        is_told = look.reaches(schema.ACCESS_BREACH.kept)
        others.append((_OFF_WINDOW, [row for row in off if not (is_told and _ends(row) in told)]))
    for why, rows in others:
        found += [row | {_WHY: why, schema.USER: schema.UNKNOWN_USER} for row in rows]
    return sorted(found, key=lambda row: (-row[_BYTES], row[_WHY], *(row[tag] for tag in tags), row[schema.USER]))


def _ends(row: Row) -> tuple[str, str]:
    return row[schema.SRC], row[schema.DST]


def _attention(breaches: Sequence[Row], denied: int) -> Iterable[Word]:
    if breaches:
        row = breaches[0]
        user = f" ({plain(row[schema.USER])})" if row[schema.USER] != schema.UNKNOWN_USER else ""
        yield Word(
            f"{counted(denied, 'client')} asked inference and should not have; the most: "
            f"{plain(row[schema.SRC])}{user}, {amount(row[_BYTES])}, {row[_WHY]}",
            Tone.LOOK,
        )


def _chart(look: Look) -> Bars:
    asked = Select(schema.INFERENCE, look.period.retention).take(total(schema.BYTES)).by(schema.SRC_GROUP)
    sums = split(look.over_time(asked), schema.SRC_GROUP, _BYTES, look.bins)
    colours, bins = palette.group_colours(look.cluster), look.bins
    stacks = (
        Stack(look.words.title(group), colours.get(group, palette.OTHER_COLOUR), tuple(values))
        for group, values in sorted(sums.items(), key=lambda item: -sum(item[1]))
    )
    title = "Bytes sent to inference, by client group"
    return Bars("over_time", title, Kind.BYTES, bins.starts, bins.stop, tuple(stacks))


def _client_columns() -> tuple[Column, ...]:
    return (
        Column(schema.USER, "User"), Column(schema.SRC, "Address or node"),
        Column(schema.SRC_GROUP, "Group", Kind.GROUP), Column(schema.COUNTRY, "Country"),
        Column(schema.NETWORK, "Network"), Column(schema.DST_GROUP, "Asked", Kind.GROUP),
        Column(schema.SERVICE, "Service"),
    )  # fmt: skip


def _volume_columns() -> tuple[Column, ...]:
    return (
        Column(_BYTES, "Sent", Kind.BYTES, bar=True), Column(_FLOWS, "Flow records", Kind.COUNT),
        Column(FIRST, "First", Kind.MOMENT), Column(LAST, "Last", Kind.MOMENT),
    )  # fmt: skip


def _client(row: Row) -> tuple[str, ...]:
    return (
        row[schema.USER], row[schema.SRC], row[schema.SRC_GROUP], row[schema.COUNTRY], row[schema.NETWORK],
        row[schema.DST_GROUP], row[schema.SERVICE],
    )  # fmt: skip


def _volume(row: Row) -> tuple[int, int, int, int]:
    return row[_BYTES], row[_FLOWS] or 0, row[FIRST], row[LAST]


def _table(accesses: Sequence[Row]) -> Table:
    rows: list[Cells] = [(*_client(row), *_volume(row)) for row in accesses]
    columns = (*_client_columns(), *_volume_columns())
    return Table("accesses", "Who asked what, by bytes sent", columns, tuple(rows), "Nobody in this period.")


def _breach_table(breaches: Sequence[Row]) -> Table:
    rows: list[Cells] = [
        (Word(row[_WHY], Tone.LOOK), *_client(row), row[schema.DST], *_volume(row)) for row in breaches
    ]
    columns = (
        Column(_WHY, "Why not"), *_client_columns(), Column(schema.DST, "Inference node"), *_volume_columns()
    )  # fmt: skip
    return Table("breaches", "Clients that should not ask", columns, tuple(rows), "Nobody in this period.")


def _countries(look: Look) -> Table:
    """Return who asked from a country that a service had not seen before."""
    source = Select(schema.UNUSUAL_COUNTRY, schema.UNUSUAL_COUNTRY.kept)
    found = look.seen(source, (schema.BYTES, schema.FLOWS), (*_WHO, schema.USER))
    rows: list[Cells] = [(*_client(row), *_volume(row)) for row in found]
    is_measured = bool(look.cluster.geography.files or found)
    empty = "None in this period." if is_measured else "Not measured: cluster.yaml has no `geography`."
    columns = (*_client_columns(), *_volume_columns())
    return Table(
        "unusual_countries", "From countries that the service had not seen before", columns, tuple(rows), empty
    )


def _notes(look: Look, *, has_users: bool) -> Iterable[str]:
    yield "Bytes are those that clients sent; answers are not in them. Nothing was blocked."
    if not has_users:
        yield "Users are not measured: cluster.yaml has no `identity`."
    if not look.cluster.inference.access:
        yield "cluster.yaml has no `inference.access`: every group that `allowed` lists may ask."
    if look.cluster.inference.hours is None:
        yield "cluster.yaml has no `inference.hours`: clients may ask at any time."
    yield from look.gone(schema.ACCESS_BREACH, "Clients that are not on the list, and unusual countries,")
