"""Names of outside addresses, many at a time, as the store's directory last had them."""

from collections.abc import Iterable, Mapping

from reporting.look import Look
from store import schema
from store.influxql import Select, is_in, newest

_AT_ONCE = 100


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
