"""What the stored conversations say more of an alert or an event: addresses, the server's port, where it entered.

Alerts and verdicts name nodes and services. The rows of the conversations that they are about have the rest as fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store import schema
from store.influx import Store
from store.influxql import Select, is_in, merged

_TAGS = (schema.SRC, schema.DST, schema.PROTO, schema.SERVICE)
_MEASUREMENTS = (schema.EGRESS, schema.INFERENCE, schema.VIOLATION, schema.THREAT)
_ADDRESSES = {schema.SRC: schema.SRC_ADDRESS, schema.DST: schema.DST_ADDRESS}
_BEFORE = ((schema.RAW, 3600), (schema.MINUTE, 86_400))
"""Where is looked, and how far back from the begin: most are about the last minutes, some about a day."""
_AFTER = 60


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is known of one conversation; empty or None where nothing is.

    Attributes:
        port: of the server, the lowest if there are several; `port_max` the highest.
        source_opened: whether the source opened it: else the port is the source's.
        exporter, interface: where it entered.
    """

    src_address: str = ""
    dst_address: str = ""
    port: int | None = None
    port_max: int | None = None
    source_opened: bool = True
    exporter: str = ""
    interface: str = ""


def sighting_of(values: Mapping[str, Any]) -> Sighting:
    """Return what the fields of a row say."""
    exporter, _, interface = str(values.get(schema.ENTERED.name) or "").partition(" ")
    low, high = values.get(schema.PORT.name), values.get(schema.PORT_MAX.name)
    return Sighting(
        src_address=values.get(schema.SRC_ADDRESS.name) or "",
        dst_address=values.get(schema.DST_ADDRESS.name) or "",
        port=None if low is None else int(low),
        port_max=None if high is None else int(high),
        source_opened=values.get(schema.OPENED_BY.name) != schema.BY_DESTINATION,
        exporter=exporter,
        interface=interface,
    )


class Sightings:
    """Looks conversations up.

    Args:
        store: asked.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, tags: Mapping[str, str], moment: float) -> Sighting:
        """Return what is known of the conversation with these tags before a moment, epoch seconds.

        Raises:
            StoreError: the store is away.
        """
        known = {tag: tags[tag] for tag in _TAGS if tags.get(tag) and tags[tag] != schema.OTHER}
        # Without one of its ends nothing says which conversation it is.
        if schema.SRC not in known and schema.DST not in known:
            return Sighting()
        # A service may be `other`, and be so in the rows as well.
        known |= {schema.SERVICE: tags[schema.SERVICE]} if tags.get(schema.SERVICE) else {}
        for retention, seconds in _BEFORE:
            for measurement in _MEASUREMENTS:
                found = self._asked(measurement, retention, known, int(moment) - seconds, int(moment) + _AFTER)
                if found is not None:
                    return sighting_of(_at_known_ends(found, known))
        return Sighting()

    def _asked(
        self, measurement: schema.Measurement, retention: str, tags: Mapping[str, str], start: int, stop: int
    ) -> dict[str, Any] | None:
        rows = Select(measurement, retention).where(*(is_in(tag, [text]) for tag, text in tags.items()))
        asked = rows.take(*map(merged, schema.DETAILS)).between(start, stop)
        names = [field.name for field in schema.DETAILS]
        for _, *values in self._store.rows(asked):
            found = dict(zip(names, values, strict=True))
            if any(value is not None for value in values):
                return found
        return None


def _at_known_ends(found: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """Return what holds for all conversations found: of an end that is not known no address, of several no port."""
    gone = {field.name for tag, field in _ADDRESSES.items() if tag not in known}
    if gone:
        gone |= {schema.PORT.name, schema.PORT_MAX.name}
    return {name: value for name, value in found.items() if name not in gone}
