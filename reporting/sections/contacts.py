"""Who talked to an outside address for the first time ever, and whether it is approved."""

from collections.abc import Iterable, Sequence
from typing import Any

from app.words import amount
from reporting.content import Cells, Column, Fact, Kind, Section, Table, Tone, Word
from reporting.look import Look, Row
from reporting.outside import PLACE, SENT, STANDING, is_approved, looked_up, place, standing, unknowns
from reporting.words import counted, plain
from store import schema
from store.influxql import Select, compare, highest, lowest, total

_BYTES, _SEEN = schema.BYTES.name, schema.CONTACT_FIRST.name
_SERVICES = "services"


def section(look: Look) -> Section:
    """Return the section."""
    contacts = _contacts(look)
    others = [row for row in contacts if not is_approved(look, row)]
    lead = (
        f"{counted(len(contacts), 'first contact')}, {len(others):,} of them with destinations that nobody approved."
        if contacts
        else "Nobody talked to a new outside address."
    )
    return Section(
        "contacts",
        "First contacts",
        lead,
        facts=(
            Fact("contacts", "First contacts", len(contacts), Kind.COUNT),
            Fact("not_approved", "First contacts with unapproved destinations", len(others), Kind.COUNT,
                 Tone.LOOK if others else Tone.QUIET, in_summary=True),
        ),
        attention=tuple(_attention(others)),
        blocks=(_table(look, contacts, looked_up(look, (row[schema.DST] for row in contacts))), _networks(look)),
        notes=(
            "Bytes are those of the first five minutes. What was reached while clusterflow was learning is not new.",
            "Of a scan, destinations beyond the first few share a row with other. Acknowledged contacts are left out.",
            *look.gone(schema.CONTACT, "First contacts"),
            *unknowns(look.cluster),
        ),
    )  # fmt: skip


def _contacts(look: Look) -> list[Row]:
    """Return a row for each source and destination, the newest first."""
    asked = (
        Select(schema.CONTACT, schema.CONTACT.kept)
        .take(lowest(schema.CONTACT_FIRST), total(schema.BYTES))
        .where(compare(schema.CONTACT_NEW, "=", 1))
        .by(*schema.CONVERSATION, *schema.LABELS)
    )
    found: dict[tuple[str, str], Row] = {}
    for row in sorted(look.rows(asked), key=lambda row: -(row[_BYTES] or 0)):
        one = found.setdefault((row[schema.SRC], row[schema.DST]), row | {_BYTES: 0, _SERVICES: []})
        one[_BYTES] += row[_BYTES] or 0
        one[_SEEN] = min(one[_SEEN], row[_SEEN])
        one[_SERVICES].append(f"{row[schema.PROTO]}/{row[schema.SERVICE]}")
    return sorted(found.values(), key=lambda row: (-row[_SEEN], row[schema.SRC], row[schema.DST]))


def _attention(others: Sequence[Row]) -> Iterable[Word]:
    if others:
        row = max(others, key=lambda row: row[_BYTES])
        yield Word(
            f"{counted(len(others), 'first contact')} with destinations that nobody approved; the largest: "
            f"{plain(row[schema.SRC])} → {plain(row[schema.DST])}, {amount(row[_BYTES])}",
            Tone.LOOK,
        )


def _table(look: Look, contacts: Sequence[Row], known: dict[str, Any]) -> Table:
    rows = (
        (
            row[_SEEN], row[schema.SRC], row[schema.SRC_GROUP], row[schema.DST], *place(row, known),
            row[schema.DST_GROUP], standing(look, row),
            ", ".join(dict.fromkeys(row[_SERVICES])), row[_BYTES],
        )
        for row in contacts
    )  # fmt: skip
    columns = (
        Column(_SEEN, "First seen", Kind.MOMENT), Column(schema.SRC, "Source"),
        Column(schema.SRC_GROUP, "Group", Kind.GROUP), Column(schema.DST, "Destination"), *PLACE,
        Column(schema.DST_GROUP, "Its group", Kind.GROUP), STANDING,
        Column(_SERVICES, "Services"), SENT,
    )  # fmt: skip
    return Table("contacts", "First contacts, newest first", columns, tuple(rows), "None in this period.")


def _networks(look: Look) -> Table:
    """Return the networks to which a group sent for the first time."""
    fields = schema.EVENT_SOURCES.name, schema.EVENT_DESTINATIONS.name
    asked = (
        Select(schema.NEW_NETWORK, schema.NEW_NETWORK.kept)
        .take(lowest(schema.CONTACT_FIRST), total(schema.BYTES))
        .take(highest(schema.EVENT_SOURCES), highest(schema.EVENT_DESTINATIONS))
        .by(schema.SRC_GROUP, schema.NETWORK)
    )
    found = sorted(look.rows(asked), key=lambda row: (-row[_SEEN], row[schema.SRC_GROUP], row[schema.NETWORK]))
    rows: list[Cells] = [
        (row[_SEEN], row[schema.SRC_GROUP], row[schema.NETWORK], *(row[name] for name in fields), row[_BYTES])
        for row in found
    ]
    columns = (
        Column(_SEEN, "First seen", Kind.MOMENT), Column(schema.SRC_GROUP, "Group", Kind.GROUP),
        Column(schema.NETWORK, "Network"), Column(fields[0], "Sources", Kind.COUNT),
        Column(fields[1], "Destinations", Kind.COUNT), SENT,
    )  # fmt: skip
    is_measured = bool(look.cluster.geography.files or found)
    empty = "None in this period." if is_measured else "Not measured: cluster.yaml has no `geography`."
    return Table("networks", "Networks that a group sent to for the first time", columns, tuple(rows), empty)
