"""Events on their way, in an SQLite file: what is in it survives us, whatever kills us.

Events are there together with what the source that made them noted: how far it has read. Each destination has a
position: the number of the next event that it gets. What all have got is deleted.

When the spool is full, its oldest events go: a destination that is away for good must not keep events from the others.
What somebody has not got of them is counted as lost for them.
"""

import fcntl
import json
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app import sqlite_file
from app.errors import ClusterflowError, UserError, of_disk
from delivery.event import Document
from delivery.outbox import Copy, Outbox

FILE = "events.sqlite"
_HINT = "choose a delivery.state that this user can write"
_TABLES = """
CREATE TABLE IF NOT EXISTS event (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS note (source TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (destination TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
"""
_SIZE = """
SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""
_RENEWED_SECONDS = 3600
"""How often notes and positions that do not change are copied again: the copy is not kept for ever."""

_SEEDED = 500
_PARTS = 64
"""A full spool drops so small a part of its events at once."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events for a destination, in order; `next` is the position after them."""

    events: tuple[Document, ...]
    next: int


class Spool:
    """The spool of one process. Sources append; each destination reads in a thread of its own.

    Args:
        folder: made if missing; another process that has it is an error.
        most_bytes: what the file may hold.

    Attributes:
        broken: name that an unreadable file was moved to; empty if there was none.

    Raises:
        UserError: the folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._path, self._most = folder / FILE, most_bytes
        self._condition = threading.Condition()
        self._calls = 0
        self._positions: dict[str, int] = {}
        self._lost: dict[str, int] = {}
        self._damaged: set[int] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._lock = (folder / "lock").open("a")
        except OSError as error:
            raise of_disk(folder, error, _HINT) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise UserError(f"{folder}: another `clusterflow deliver` uses it", "stop it first") from error
        self._file, self.broken = sqlite_file.opened(self._path, _TABLES, _HINT)
        # Where no event is left, those that got the last one know its number.
        found = self._file.execute(
            "SELECT max(ifnull((SELECT max(number) + 1 FROM event), 0), ifnull((SELECT max(next) FROM position), 0))"
        )
        self._end: int = found.fetchone()[0]
        self._notes: dict[str, str] = dict(self._file.execute("SELECT source, text FROM note"))
        self._outbox: Outbox | None = None
        self._renewed_at = 0.0

    def share(self, outbox: Outbox, destinations: Collection[str]) -> None:
        """Take what the copy in the store has, and keep it up from now on; where it has nothing it becomes this one's.

        Raises:
            StoreError: it cannot be read, or not be written.
        """
        copy = outbox.read(destinations)
        if copy is None:
            rows = self._file.execute("SELECT number, text FROM event ORDER BY number").fetchall()
            for at in range(0, len(rows), _SEEDED):
                outbox.append(rows[at][0], [text for _, text in rows[at : at + _SEEDED]], {})
            known = dict(self._file.execute("SELECT destination, next FROM position"))
            outbox.append(self._end, [], self._notes or {"": "null"}, known)
        else:
            self._adopt(copy)
        self._outbox = outbox

    def _adopt(self, copy: Copy) -> None:
        with self._condition, self._writing() as file:
            for table in ("event", "note", "position"):
                file.execute(f"DELETE FROM {table}")  # noqa: S608 - our names
            file.executemany("INSERT INTO event VALUES (?, ?)", copy.events.items())
            file.executemany("INSERT INTO note VALUES (?, ?)", copy.notes.items())
            file.executemany("INSERT INTO position VALUES (?, ?)", copy.positions.items())
            self._end, self._notes = copy.end, dict(copy.notes)

    # -- what sources use ------------------------------------------------------------------------------

    def append(self, events: Sequence[Document], notes: Mapping[str, object]) -> None:
        """Put events and what has changed in notes on disk, together or not at all; those of other sources stay.

        Raises:
            ClusterflowError: the disk, or the copy, does not take it; nothing has changed.
        """
        texts = {source: json.dumps(note) for source, note in notes.items()}
        rows = [json.dumps(event) for event in events]
        with self._condition:
            changed = {source: text for source, text in texts.items() if self._notes.get(source) != text}
            if not rows and not changed:
                return
            if self._outbox is not None:
                if time.monotonic() > self._renewed_at:
                    self._outbox.append(self._end, rows, self._notes | changed, self._positions)
                    self._renewed_at = time.monotonic() + _RENEWED_SECONDS
                else:
                    self._outbox.append(self._end, rows, changed)
            with self._writing() as file:
                file.executemany("INSERT INTO event VALUES (?, ?)", enumerate(rows, self._end))
                file.executemany("INSERT OR REPLACE INTO note VALUES (?, ?)", changed.items())
                first = self._make_room(self._end)
            self._end += len(rows)
            self._notes |= changed
            for name, position in self._positions.items():
                if position < first:
                    self._lost[name] = self._lost.get(name, 0) + first - position
                    self._positions[name] = first
            self._condition.notify_all()

    def note(self, source: str) -> Any:  # noqa: ANN401 - JSON
        """Return what a source noted last; None if it never did."""
        return json.loads(self._notes.get(source, "null"))

    # -- what destinations use ---------------------------------------------------------------------------

    def register(self, destinations: Sequence[str]) -> None:
        """Take note of who gets events: new ones from now on; what is kept for others that are gone is dropped."""
        with self._condition, self._writing() as file:
            known = dict(file.execute("SELECT destination, next FROM position"))
            self._positions = {name: known.get(name, self._end) for name in destinations}
            file.execute("DELETE FROM position")
            file.executemany("INSERT INTO position VALUES (?, ?)", self._positions.items())
            self._clear()

    def read(self, name: str, most: int, seconds: float) -> Batch | None:
        """Return the next events for a destination; None if there are none within so many seconds.

        A batch without events stands for events that cannot be read.
        """
        with self._condition:
            deadline, calls = time.monotonic() + seconds, self._calls
            while self._positions[name] >= self._end:
                left = deadline - time.monotonic()
                if left <= 0 or self._calls != calls:
                    return None
                self._condition.wait(left)
            # As bytes: what is damaged may be no text.
            rows = self._file.execute(
                "SELECT number, CAST(text AS BLOB) FROM event WHERE number >= ? ORDER BY number LIMIT ?",
                (self._positions[name], most),
            ).fetchall()
            following = rows[-1][0] + 1 if rows else self._end
        events = []
        for number, text in rows:
            event = _event(text)
            if event is None:
                self._damaged.add(number)
            else:
                events.append(event)
        return Batch(tuple(events), following)

    def passed(self, name: str, position: int) -> None:
        """Go on behind what a destination has: it does not get that again for as long as we live."""
        with self._condition:
            self._positions[name] = max(position, self._positions[name])

    def delivered(self, name: str, position: int) -> None:
        """Take note that a destination has everything before a position.

        Raises:
            ClusterflowError: the disk, or the copy, does not take it; after a restart it gets some of it again, with
                the same ids.
        """
        # First: whoever refuses the note must not have the same events go out again and again.
        self.passed(name, position)
        with self._condition, self._writing() as file:
            # All of them: what the others have passed is deleted here, too.
            moved = [(following, one) for one, following in self._positions.items()]
            file.executemany("UPDATE position SET next = ? WHERE destination = ?", moved)
            self._clear()
        if self._outbox is not None:
            self._outbox.delivered(name, position)

    def wake(self) -> None:
        """Have those that wait for events look whether they shall stop."""
        with self._condition:
            self._calls += 1
            self._condition.notify_all()

    # -- what it is told ------------------------------------------------------------------------------

    def waiting(self, name: str) -> int:
        """Return how many events a destination has not got yet."""
        with self._condition:
            return self._end - self._positions[name]

    def lost(self) -> dict[str, int]:
        """Return how many events each destination lost for want of room, since the start."""
        with self._condition:
            return dict(self._lost)

    def damaged(self) -> int:
        """Return how many events, and files, were found that cannot be read, since the start."""
        return len(self._damaged) + bool(self.broken)

    def size(self) -> int:
        """Return the bytes of what is in it; the file keeps the size that it once had."""
        with self._condition:
            (size,) = self._file.execute(_SIZE).fetchone()
        return int(size)

    def close(self) -> None:
        """Close the file and let others have the folder."""
        with self._condition:
            self._file.close()
        if self._outbox is not None:
            self._outbox.close()
        self._lock.close()

    # -- writing -----------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the file for one transaction: on disk after it, or taken back and a ClusterflowError."""
        try:
            with self._file:
                yield self._file
        except sqlite3.Error as error:
            raise ClusterflowError(f"{self._path}: {error}", sqlite_file.remedy(error)) from error

    def _make_room(self, newest: int) -> int:
        """Drop the oldest events while there is too much, but none from `newest` on; return the first that is left."""
        (first,) = self._file.execute("SELECT min(number) FROM event").fetchone()
        if first is None:
            return 0
        while first < newest and self.size() > self._most:
            first = min(first + 1 + (newest - first) // _PARTS, newest)
            self._file.execute("DELETE FROM event WHERE number < ?", (first,))
            self._file.execute("UPDATE position SET next = max(next, ?)", (first,))
        return int(first)

    def _clear(self) -> None:
        """Delete the events that everybody has."""
        needed = min(self._positions.values(), default=self._end)
        self._file.execute("DELETE FROM event WHERE number < ?", (needed,))


def _event(text: bytes) -> Document | None:
    """Return an event; None if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
