"""The status of a relay: what it reports on the flows topic, and what a worker keeps of it.

Workers see a topic with nothing new on it, whether a relay is dead or its exporters are quiet. So every relay says
about once a window that it is there, what waits in its spools, and what it has counted since it was started.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import polars as pl

from cluster.scalars import names
from cluster.scalars.kinds import Bad
from ingest.collect.template_file import TemplateFile
from ingest.collect.trouble_file import DIED, LATELY, REFUSED, lately
from ingest.counters import Counters
from ingest.readings import unread_of
from store import schema
from store.points import columns
from store.schema import Stage, Unread

MOMENT, DRAINED = "moment", "drained"

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
    DRAINED: pl.Int64(),  # up to when its spools were read, having nothing more at that time, epoch ms; 0 if never
    **{name: pl.Int64() for name in NUMBERS},
}
"""Columns of a status: a frame of one row."""

MOST_RELAYS = 256
"""Relays of which a partition knows: ids come from a topic that others may write to."""

REMEMBERED_SECONDS = 86_400
"""A relay of which nothing was read for so long is forgotten: nobody has taken it up again, it is gone."""

_FAREWELL_SECONDS = 600
"""For so long its readings then say that nobody waits for it: without them an alert would never end."""

_LIVE_SECONDS = 120
"""A relay that spoke so lately tells how far the spools are read; of one that is dead nobody waits for that."""

_UNREAD = "unreadable"
_TOLD = "told"
_MOST_TOLD = 1024
"""Names that a relay may tell of: each that a collector refuses may become a series."""

_LAST_SEEN, _TAKEN = schema.RELAY_LAST_SEEN.name, "taken"
_COLUMNS = columns(schema.RELAY, schema.RELAY_LAST_SEEN, schema.RELAY_AGE) | dict.fromkeys(NUMBERS, pl.Int64())


def status_of(counters: Counters, *, backlog: int, drained: float, now: float) -> pl.DataFrame:
    """Return what a relay says of itself (STATUS_SCHEMA).

    The transaction that carries it counts as committed: whoever reads it, knows that it was.

    Args:
        counters: its own.
        backlog: bytes that wait in its spools.
        drained: up to when they were read, having nothing more at that time, epoch seconds; 0 if never.
        now: wall clock, epoch seconds.
    """
    totals = (
        int(counters.total(stage, reason)) + (field is schema.RELAY_TRANSACTIONS) for field, stage, reason in _TOTALS
    )
    row = round(now * 1000), round(drained * 1000), backlog, *totals
    return pl.DataFrame([row], schema=STATUS_SCHEMA, orient="row")


def told(templates: TemplateFile, spool: Path, now: float, doubled: Collection[str] = ()) -> dict[str, int]:
    """Return what befell the collector lately ("refused leaf-1"), and what it does not read ("unreadable 10.0.0.1").

    Args:
        templates: of nfacctd.
        spool: the collector's.
        now: epoch seconds.
        doubled: addresses whose records come twice.
    """
    unread = unread_of(templates, spool, now, doubled)
    found = {**lately(spool, now), **{f"{_UNREAD} {address}": int(bits) for address, bits in unread.items() if bits}}
    return dict(list(found.items())[:_MOST_TOLD])


def is_told(value: object) -> bool:
    """Whether this is what `told` returns: it comes from a topic that others may write to."""
    if not isinstance(value, dict) or len(value) > _MOST_TOLD:
        return False
    for what, count in value.items():
        kind, _, name = what.partition(" ")
        try:
            if kind == _UNREAD:
                ip_address(name)
            else:
                names.NAME.parse(name)
        except (Bad, ValueError):
            return False
        is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 31
        if kind not in (REFUSED, DIED, _UNREAD) or not is_count:
            return False
    return True


@dataclass(slots=True)
class _Status:
    """What a relay said last: when, up to when it had read, when we took it (epoch seconds), the NUMBERS, `told`."""

    last_seen: float
    drained: float
    taken: float
    numbers: tuple[int | None, ...]
    told: dict[str, int]


class RelayBook:
    """The newest status of each relay that speaks in a partition."""

    def __init__(self) -> None:
        self._statuses: dict[str, _Status] = {}

    @property
    def newest(self) -> float:
        """When the newest status of any relay was said, epoch seconds; 0 without one."""
        return max((status.last_seen for status in self._statuses.values()), default=0.0)

    def drained(self, reference: float) -> float | None:
        """Return up to when the spools of all relays are read that live then, epoch seconds; None without any."""
        live = [one.drained for one in self._statuses.values() if reference - one.last_seen <= _LIVE_SECONDS]
        return min(live, default=None)

    def befell(self, now: float) -> Mapping[str, int]:
        """Return what befell the collectors lately, as `lately` does of one."""
        found = Counter[str]()
        for status in self._statuses.values():
            if now - status.taken <= LATELY:
                found.update({what: n for what, n in status.told.items() if not what.startswith(f"{_UNREAD} ")})
        return found

    def unread(self) -> Mapping[str, Unread]:
        """Return what the collectors do not read of what each address sends."""
        found: dict[str, Unread] = {}
        for status in self._statuses.values():
            for what, bits in status.told.items():
                kind, _, address = what.partition(" ")
                if kind == _UNREAD:
                    found[address] = found.get(address, Unread(0)) | Unread(bits)
        return found

    def fresh_dead_letters(self, relay: str, status: pl.DataFrame) -> int:
        """Return how many a relay has counted since it last spoke; one that was started again counts from 0."""
        place = NUMBERS.index(schema.RELAY_DEAD_LETTERS.name)
        known, before = int(status[NUMBERS[place]][0]), self._statuses.get(relay)
        told = (before.numbers[place] or 0) if before is not None else 0
        return known - told if known >= told else known

    def take(self, relay: str, status: pl.DataFrame, now: float, told: Mapping[str, int] | None = None) -> bool:
        """Note what a relay said; False, and nothing is, of a new one where too many are known.

        Args:
            relay: its id.
            status: STATUS_SCHEMA.
            now: wall clock, epoch seconds.
            told: what its collector has to say.
        """
        if relay not in self._statuses and len(self._statuses) >= MOST_RELAYS:
            return False
        moment, drained, *numbers = status.select(MOMENT, DRAINED, *NUMBERS).row(0)
        # Of a clock that is ahead, its silence would be noticed later by as much.
        said, read = min(moment / 1000, now), min(drained / 1000, now)
        self._statuses[relay] = _Status(said, read, now, tuple(numbers), dict(told or {}))
        return True

    def readings(self, window: int, *, heard: float, started: float) -> pl.DataFrame:
        """Return the rows of RELAY_STATUS, and forget who was silent for too long.

        Args:
            window: of the rows, epoch seconds.
            heard: up to when the partition is read, epoch seconds: silence since then is ours.
            started: since when relays could have been heard, epoch seconds.
        """
        # By when it was read here, not by what it says: whoever names relays of long ago would have new ones forgotten
        # and make room for more, each of them a series.
        self._statuses = {
            relay: status
            for relay, status in self._statuses.items()
            if window - status.taken <= REMEMBERED_SECONDS + _FAREWELL_SECONDS
        }
        rows = []
        for relay, status in sorted(self._statuses.items()):
            is_gone = window - status.taken > REMEMBERED_SECONDS
            age = 0.0 if is_gone else max(heard - max(status.last_seen, started), 0.0)
            rows.append((window, relay, status.last_seen, age, *status.numbers))
        return pl.DataFrame(rows, schema=_COLUMNS, orient="row")

    def clock_stepped(self, now: float) -> None:
        """Forget moments that lie in the future by a clock that was set; `now` is by the new one."""
        for status in self._statuses.values():
            status.last_seen, status.drained = min(status.last_seen, now), min(status.drained, now)
            status.taken = now

    def dump(self) -> dict[str, Any]:
        """Return what a successor has to know, as plain values."""
        return {
            relay: {
                _LAST_SEEN: status.last_seen,
                DRAINED: status.drained,
                _TAKEN: status.taken,
                **dict(zip(NUMBERS, status.numbers, strict=True)),
                _TOLD: status.told,
            }
            for relay, status in self._statuses.items()
        }

    def load(self, notes: Mapping[str, Any]) -> None:
        """Take what `dump` returned, of a version that counts other things perhaps."""
        self._statuses = {
            relay: _Status(
                status[_LAST_SEEN],
                status[DRAINED],
                status[_TAKEN],
                tuple(status.get(name) for name in NUMBERS),
                status.get(_TOLD, {}),
            )
            for relay, status in notes.items()
        }
