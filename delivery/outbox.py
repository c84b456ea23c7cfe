"""The spool's copy in the store: another machine goes on from it where this one ends (`store.lease`).

All that the spool keeps is written there, too: events with their numbers and what sources noted before they count, how
far destinations are once they have got there. A row has the term of who led, and a number in it. What an earlier leader
wrote at an event's number that a later one gave again was never acknowledged, so nobody got it: the later one counts.
"""

import base64
import json
import math
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from store import schema
from store.influx import Store, StoreUnavailableError
from store.influxql import Select, beside, compare, is_in, newest, not_in
from store.lease import BEAT_SECONDS, Lease
from store.points import WINDOW, encode

_EVENTS, _NOTE, _POSITION = "events", "note.", "position."
_LONGEST = 60_000
"""InfluxDB 1.x takes no text of 64 KiB."""

_AGAIN_SECONDS = 0.2
_AHEAD_SECONDS = math.ceil(2 * BEAT_SECONDS)
_MOST_PARTS = 100
"""Of a second, about: each is a series."""


@dataclass(slots=True)
class Copy:
    """What a spool holds: events by number, the next number, texts of notes, positions of destinations."""

    end: int = 0
    events: dict[int, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, order=True, slots=True)
class _Entry:
    term: int
    number: int
    first: int
    text: str


class Outbox:
    """The copy, for the one that leads.

    Args:
        store: where it is; its connections are not used.
        lease: who leads.
    """

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store, self._lease = store.another(), lease
        self._lock = threading.Lock()
        self._number = self._part = 0
        # Behind all that an earlier process of this name wrote, whatever has become of its clock.
        self._at = lease.at + _AHEAD_SECONDS

    def close(self) -> None:
        """Close its connections."""
        self._store.close()

    def append(
        self, first: int, events: Sequence[str], notes: Mapping[str, str], positions: Mapping[str, int] | None = None
    ) -> None:
        """Keep events from a number on together with notes, and positions; StoreError: none is known to be kept."""
        told = {f"{_NOTE}{source}": (first, text) for source, text in notes.items()}
        told |= {f"{_POSITION}{name}": (position, "") for name, position in (positions or {}).items()}
        self._write(told | ({_EVENTS: (first, json.dumps(events))} if events else {}), first + len(events))

    def delivered(self, name: str, position: int) -> None:
        """Note how far a destination is, however long it takes; StoreError where the lease is lost meanwhile."""
        while True:
            try:
                self._write({f"{_POSITION}{name}": (position, "")}, position)
            except StoreUnavailableError:
                if not self._lease.leads():
                    raise
                time.sleep(_AGAIN_SECONDS)
            else:
                return

    def read(self, destinations: Collection[str]) -> Copy | None:
        """Return what is kept, of the events those that one of these has not got; None if nothing ever was."""
        asked = Select(schema.OUTBOX, schema.OUTBOX.kept).between()
        is_event = [_EVENTS]
        latest = asked.take(*map(newest, schema.OUTBOX.fields)).by(*schema.OUTBOX.tags)
        found = Copy()
        for kind, entries in self._entries(latest.where(not_in(schema.OUTBOX_KIND, is_event))).items():
            found.end = max([found.end, *(entry.first for entry in entries)])
            if kind.startswith(_NOTE):
                found.notes[kind.removeprefix(_NOTE)] = entries[-1].text
            elif kind.removeprefix(_POSITION) in destinations:
                found.positions[kind.removeprefix(_POSITION)] = max(entry.first for entry in entries)
        if not found.notes:
            return None
        least = min(found.positions.values(), default=found.end)
        waiting = asked.take(*map(beside, schema.OUTBOX.fields)).by(*schema.OUTBOX.tags)
        waiting = waiting.where(is_in(schema.OUTBOX_KIND, is_event), compare(schema.OUTBOX_NEXT, ">", least))
        following = 0
        for entry in self._entries(waiting).get(_EVENTS, []):
            if entry.first < following:
                found.events = {number: text for number, text in found.events.items() if number < entry.first}
            events = json.loads(entry.text)
            found.events |= enumerate(events, entry.first)
            following = entry.first + len(events)
        found.end = max(found.end, following)
        return found

    def _entries(self, asked: Select) -> dict[str, list[_Entry]]:
        """Return what can be read of each kind, oldest first."""
        parts: dict[tuple[str, int, int, int, int], dict[int, str]] = defaultdict(dict)
        for _, _, kind, part, term, number, first, _, count, text in self._store.rows(asked):
            self._number = max(self._number, int(number))
            parts[kind, int(term), int(number), int(first), int(count)][int(part)] = text
        found: dict[str, list[_Entry]] = defaultdict(list)
        for (kind, term, number, first, count), texts in parts.items():
            # Of what is replaced, parts may be left.
            if len(texts) == count:
                found[kind].append(_Entry(term, number, first, _unpacked(texts[part] for part in sorted(texts))))
        return {kind: sorted(entries) for kind, entries in found.items()}

    def _write(self, entries: Mapping[str, tuple[int, str]], following: int) -> None:
        with self._lock:
            now = int(time.time())
            if now > self._at or self._part >= _MOST_PARTS:
                self._at, self._part = max(now, self._at + 1), 0
            self._number += 1
            rows = []
            for kind, (first, text) in entries.items():
                packed = base64.b64encode(zlib.compress(text.encode())).decode()
                slices = [packed[at : at + _LONGEST] for at in range(0, len(packed), _LONGEST)]
                for one in slices:
                    tags = (self._lease.name, kind, str(self._part))
                    values = (self._lease.term, self._number, first, following, len(slices), one)
                    rows.append((self._at, *tags, *values))
                    self._part += 1
            names = [WINDOW, *schema.OUTBOX.tags, *(one.name for one in schema.OUTBOX.fields)]
            self._store.write(encode(schema.OUTBOX, pl.DataFrame(rows, names, orient="row")), schema.OUTBOX.kept)


def _unpacked(parts: Iterable[str]) -> str:
    return zlib.decompress(base64.b64decode("".join(parts))).decode()
