"""How a relay is: what it says of itself on the flows topic, and what a worker keeps of that.

Workers see a topic with nothing new on it, whether a relay is dead or its exporters are quiet. So every relay says
about once a window that it is there, what waits in its spools, and what it has counted since it was started.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from cluster import schema
from cluster.schema import Stage
from ingest.counters import Counters
from ingest.points import WINDOW

MOMENT = "moment"

_TOTALS = (
    (schema.RELAY_RECORDS, Stage.READ, "records"),
    (schema.RELAY_BYTES, Stage.READ, "bytes"),
    (schema.RELAY_DEAD_LETTERS, Stage.READ, "dead_letters"),
    (schema.RELAY_REPEATED, Stage.READ, "repeated_records"),
    (schema.RELAY_TRANSACTIONS, Stage.WRITE, "transactions"),
    (schema.RELAY_RETRIED, Stage.WRITE, "transactions_retried"),
)
"""Fields, and the counters of a relay that they are."""

NUMBERS = (schema.RELAY_BACKLOG.name, *(field.name for field, _, _ in _TOTALS))
"""Columns of a status that count something."""

STATUS_SCHEMA: dict[str, pl.DataType] = {
    MOMENT: pl.Int64(),  # when it was said, by the relay's clock, epoch ms
    **{name: pl.Int64() for name in NUMBERS},
}
"""Columns of a status: a frame of one row."""

MOST_RELAYS = 256
"""Relays of which a partition knows: ids come from a topic that somebody else may write to."""

REMEMBERED_SECONDS = 86_400
"""A relay that was silent for so long is forgotten: nobody has taken it up again, it is gone."""

_LAST_SEEN = schema.RELAY_LAST_SEEN.name
_COLUMNS = {
    WINDOW: pl.Int64,
    schema.RELAY: pl.String,
    _LAST_SEEN: pl.Float64,
    schema.RELAY_AGE.name: pl.Float64,
    **dict.fromkeys(NUMBERS, pl.Int64),
}


def status_of(counters: Counters, *, backlog: int, now: float) -> pl.DataFrame:
    """Return what a relay says of itself (STATUS_SCHEMA).

    Args:
        counters: its own.
        backlog: bytes that wait in its spools.
        now: wall clock, epoch seconds.
    """
    totals = (int(counters.total(stage, reason)) for _, stage, reason in _TOTALS)
    return pl.DataFrame([(round(now * 1000), backlog, *totals)], schema=STATUS_SCHEMA, orient="row")


@dataclass(slots=True)
class _Status:
    """What a relay said last: when, epoch seconds, and the NUMBERS."""

    last_seen: float
    numbers: tuple[int | None, ...]


class RelayBook:
    """The newest status of each relay that speaks in a partition."""

    def __init__(self) -> None:
        self._statuses: dict[str, _Status] = {}

    @property
    def newest(self) -> float:
        """When the newest status of any relay was said, epoch seconds; 0 without one."""
        return max((status.last_seen for status in self._statuses.values()), default=0.0)

    def take(self, relay: str, status: pl.DataFrame, now: float) -> bool:
        """Note what a relay said; False, and nothing is, of a new one where too many are known.

        Args:
            relay: its id.
            status: STATUS_SCHEMA.
            now: wall clock, epoch seconds.
        """
        if relay not in self._statuses and len(self._statuses) >= MOST_RELAYS:
            return False
        moment, *numbers = status.select(MOMENT, *NUMBERS).row(0)
        # Of a clock that is ahead, its silence would be noticed later by as much.
        self._statuses[relay] = _Status(min(moment / 1000, now), tuple(numbers))
        return True

    def readings(self, window: int, *, heard: float, started: float) -> pl.DataFrame:
        """Return the rows of RELAY_STATUS, and forget who was silent for too long.

        Args:
            window: of the rows, epoch seconds.
            heard: up to when the partition is read, epoch seconds: silence since then is ours.
            started: since when relays could have been heard, epoch seconds.
        """
        self._statuses = {
            relay: status for relay, status in self._statuses.items() if heard - status.last_seen <= REMEMBERED_SECONDS
        }
        rows = [
            (window, relay, status.last_seen, max(heard - max(status.last_seen, started), 0.0), *status.numbers)
            for relay, status in sorted(self._statuses.items())
        ]
        return pl.DataFrame(rows, schema=_COLUMNS, orient="row")

    def clock_stepped(self, now: float) -> None:
        """Forget moments that lie in the future by a clock that was set; `now` is by the new one."""
        for status in self._statuses.values():
            status.last_seen = min(status.last_seen, now)

    def dump(self) -> dict[str, Any]:
        """Return what a successor has to know, as plain values."""
        return {
            relay: {_LAST_SEEN: status.last_seen, **dict(zip(NUMBERS, status.numbers, strict=True))}
            for relay, status in self._statuses.items()
        }

    def load(self, notes: Mapping[str, Any]) -> None:
        """Take what `dump` returned, of a version that counts other things perhaps."""
        self._statuses = {
            relay: _Status(status[_LAST_SEEN], tuple(status.get(name) for name in NUMBERS))
            for relay, status in notes.items()
        }
