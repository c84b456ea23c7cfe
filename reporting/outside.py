"""What the sections about the outside share: who is approved, what is known of an address, and what is not."""

from collections.abc import Iterable, Mapping

from cluster.model import Cluster, HostNaming
from dashboards import questions
from reporting.content import Column, Kind, Tone, Value, Word
from reporting.look import Look, Row
from store import schema
from store.influxql import Select, is_in, newest

PLACE = (
    Column(schema.KNOWN_NAME.name, "Name"), Column(schema.COUNTRY, "Country"), Column(schema.NETWORK, "Network"),
    Column(schema.APPLICATION, "Application"), Column(schema.FEED, "Feeds"),
)  # fmt: skip
"""Columns of what is known of an outside address."""

STANDING = Column("standing", "Approved")
SENT = Column(schema.BYTES.name, "Bytes", Kind.BYTES, bar=True)

_NAMED = 200
"""Addresses whose names are looked up, at most; tables show fewer."""

_AT_ONCE = 100


def is_approved(look: Look, row: Row) -> bool:
    """Return whether traffic to an outside group is approved: as a partner, or as a pair of `allowed`."""
    src, dst = row[schema.SRC_GROUP], row[schema.DST_GROUP]
    return dst in questions.approved_ids(look.cluster) or look.cluster.is_allowed(src, dst)


def standing(look: Look, row: Row) -> Word:
    """Return the same in a word."""
    return Word("yes") if is_approved(look, row) else Word("no", Tone.LOOK)


def known_of(look: Look, addresses: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """Return what the directory says of addresses, by the names of its fields; nothing of those that it lacks."""
    measurement = schema.ADDRESS_NAME
    asked = Select(measurement, measurement.kept).take(*map(newest, measurement.fields)).by(schema.ADDRESS)
    wanted = sorted(set(addresses) - {"", schema.OTHER})
    found: dict[str, Mapping[str, str]] = {}
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        # An address has a row when it was first seen, and when what is known of it changed.
        for row in look.rows(asked.where(is_in(schema.ADDRESS, some)), since=0):
            found[row[schema.ADDRESS]] = {one.name: row[one.name] or "" for one in measurement.fields}
    return found


def looked_up(look: Look, addresses: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """Return what the directory says of the first addresses."""
    return known_of(look, list(dict.fromkeys(addresses))[:_NAMED])


def place(row: Row, known: Mapping[str, Mapping[str, str]]) -> tuple[Value, ...]:
    """Return the cells of PLACE of a destination: what the row says, else what the directory does.

    Args:
        row: of a measurement that has labels of the outside end.
        known: the directory.
    """
    directory = known.get(row[schema.DST], {})
    name = directory.get(schema.KNOWN_NAME.name, "")
    labels = (schema.COUNTRY, schema.NETWORK, schema.APPLICATION, schema.FEED)
    return (name, *(row.get(label) or directory.get(label, "") for label in labels))


def unknowns(cluster: Cluster) -> tuple[str, ...]:
    """Return notes about what cluster.yaml names no files for."""
    missing = {
        "names": cluster.names == HostNaming(),
        "countries and networks": not cluster.geography.files,
        "threat feeds": not cluster.threat_feeds,
    }
    words = [what for what, is_missing in missing.items() if is_missing]
    if not words:
        return ()
    keys = {"names": "names", "countries and networks": "geography", "threat feeds": "threat_feeds"}
    listed = ", ".join(f"`{keys[word]}`" for word in words)
    return (f"Not known, as cluster.yaml has no {listed}: {', '.join(words)} of outside addresses.",)
