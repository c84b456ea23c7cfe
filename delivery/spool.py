"""Events on their way, on disk: what is in it survives us, whatever kills us.

A folder of segments, to which records are appended and forced to disk before anybody hears of them. A record is a
line: a checksum, and JSON with events and with what has changed in the notes of the source that made them: how far it
has read. Both are in one record, so that they are there together or not at all. A segment begins with all notes as they
are, so that only the last one must be read at the start. For each destination a file says what it has got; what all
have is deleted.

When the spool is full, its oldest segment goes: a destination that is away for good must not keep events from the
others. What somebody has not got of it is counted as lost for them.
"""

import fcntl
import json
import os
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from cluster.errors import UserError, of_disk
from delivery.event import Document
from delivery.patches import difference, patched

SEGMENT_BYTES = 4 << 20
_SUFFIX = ".events"
_HINT = "choose a delivery.state that this user can write"
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Batch:
    """Events for a destination, in order; `next` is the position after them."""

    events: tuple[Document, ...]
    next: int


@dataclass(slots=True)
class _Segment:
    """One file.

    Attributes:
        first: number of its first event.
        size: how many bytes of it are whole and on disk.
        head: how many of these are the notes at its beginning.
    """

    path: Path
    first: int
    size: int
    head: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """A record.

    Attributes:
        first: number of its first event.
        offset: where it is; `after`: where the one behind it is.
        record: what it holds; None where that would have to be read again.
    """

    path: Path
    first: int
    offset: int
    after: int
    record: Mapping[str, Any] | None


class Spool:
    """The spool of one process. Sources append; each destination reads in a thread of its own.

    Args:
        folder: made if missing; another process that has it is an error.
        most_bytes: what all segments may have together.
        segment_bytes: size at which a segment is closed.

    Raises:
        UserError: the folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: Path, most_bytes: int, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._most = most_bytes
        # A full spool must still have several segments, or dropping the oldest would drop everything.
        self._segment_bytes = min(segment_bytes, max(most_bytes // 4, 1))
        self._condition = threading.Condition()
        self._calls = 0
        self._notes: dict[str, Any] = {}
        self._positions: dict[str, int] = {}
        self._lost: dict[str, int] = {}
        # Where the last batch of each destination began and ended: it goes on there, or tries again, and neither a file
        # nor a large record is read again for every few events.
        self._marks: dict[str, tuple[_Place, _Place]] = {}
        self._damaged: set[tuple[Path, int]] = set()
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
        self._segments = [
            _Segment(path, int(path.stem), path.stat().st_size)
            for path in sorted(folder.glob(f"*{_SUFFIX}"))
            if path.stem.isdecimal()
        ]
        self._end = self._recover()
        self._file: int | None = None

    # -- what sources use ------------------------------------------------------------------------------

    def append(self, events: Sequence[Document], notes: Mapping[str, object]) -> None:
        """Put events and what has changed in notes on disk, together or not at all; those of other sources stay.

        Raises:
            ClusterflowError: the disk does not take it; nothing has changed.
        """
        with self._condition:
            changes = difference({source: self._notes.get(source) for source in notes}, notes)
            if not events and not changes:
                return
            record = _line({"first": self._end, "events": list(events), "changes": changes})
            try:
                self._write(record)
            except OSError as error:
                raise of_disk(self._folder, error, _HINT) from error
            self._end += len(events)
            self._notes = patched(self._notes, changes)
            self._make_room()
            self._condition.notify_all()

    def note(self, source: str) -> Any:  # noqa: ANN401 - JSON
        """Return what a source noted last; None if it never did."""
        return self._notes.get(source)

    # -- what destinations use ---------------------------------------------------------------------------

    def register(self, destinations: Sequence[str]) -> list[str]:
        """Take note of who gets events: new ones from now on; what is kept for others that are gone is dropped.

        Returns:
            Those of whom it cannot be read any more what they have: they get all that is kept once more.
        """
        unreadable: list[str] = []
        with self._condition:
            for path in self._folder.glob("*.position"):
                if path.stem not in destinations:
                    path.unlink()
            for name in destinations:
                try:
                    found = self._read_position(name)
                except (OSError, ValueError):
                    unreadable.append(name)
                    found = self._segments[0].first if self._segments else self._end
                self._positions[name] = self._end if found is None else min(found, self._end)
                self._save_position(name, self._positions[name])
            self._clear()
        return unreadable

    def read(self, name: str, most: int, seconds: float) -> Batch | None:
        """Return the next events for a destination; None if there are none within so many seconds.

        A batch without events stands for records that cannot be read.
        """
        with self._condition:
            deadline, calls = time.monotonic() + seconds, self._calls
            while self._positions[name] >= self._end:
                left = deadline - time.monotonic()
                if left <= 0 or self._calls != calls:
                    return None
                self._condition.wait(left)
            start = self._positions[name]
            segments = [(one.path, one.size) for one in self._segments]
            firsts = [one.first for one in self._segments]
            end = self._end
        events: list[Document] = []
        marks = [mark for mark in self._marks.get(name, ()) if mark.first <= start]
        following, mark = start, marks[-1] if marks else None
        began: _Place | None = None
        ended: _Place | None = None
        for index, (path, size) in enumerate(segments):
            if index + 1 < len(segments) and firsts[index + 1] <= start:
                continue
            for place in self._records(path, size, mark):
                for number, event in _numbered(place.record, start):
                    began = began or replace(place, record=None)
                    if len(events) == most:
                        self._marks[name] = began, place
                        return Batch(tuple(events), following)
                    events.append(event)
                    following = number + 1
                if following > place.first:
                    ended = _Place(path, following, place.after, place.after, None)
        if began is not None:
            self._marks[name] = began, ended or began
        # What only damaged records held is passed over.
        return Batch(tuple(events), following if events else end)

    def delivered(self, name: str, position: int) -> None:
        """Take note that a destination has everything before a position.

        Raises:
            ClusterflowError: the disk does not take it; it will get some of it again, with the same ids.
        """
        with self._condition:
            self._positions[name] = max(position, self._positions[name])
            try:
                self._save_position(name, self._positions[name])
            except OSError as error:
                raise of_disk(self._folder, error, _HINT) from error
            self._clear()

    def wake(self) -> None:
        """Have those that wait for events look whether they shall stop."""
        with self._condition:
            self._calls += 1
            self._condition.notify_all()

    # -- what is told of it ------------------------------------------------------------------------------

    def waiting(self, name: str) -> int:
        """Return how many events a destination has not got yet."""
        with self._condition:
            return self._end - self._positions[name]

    def lost(self) -> dict[str, int]:
        """Return how many events each destination lost for want of room, since the start."""
        with self._condition:
            return dict(self._lost)

    def damaged(self) -> int:
        """Return how many records were found that cannot be read, since the start."""
        return len(self._damaged)

    def size(self) -> int:
        """Return its bytes."""
        with self._condition:
            return sum(segment.size for segment in self._segments)

    def close(self) -> None:
        """Close its files and let others have the folder."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.close()

    # -- writing -----------------------------------------------------------------------------------------

    def _write(self, record: bytes) -> None:
        last = self._segments[-1] if self._segments else None
        # Where notes are many, a segment is long: else each would hold little but notes.
        if last is None or (
            last.size > last.head and last.size + len(record) > max(self._segment_bytes, 2 * last.head)
        ):
            last = self._begin()
        if self._file is None:
            self._file = os.open(last.path, os.O_WRONLY | os.O_APPEND)
        try:
            _write_all(self._file, record)
            os.fdatasync(self._file)
        except OSError:
            # Half a record would spoil the next one too.
            os.ftruncate(self._file, last.size)
            raise
        last.size += len(record)

    def _begin(self) -> _Segment:
        """Begin a segment with the notes as they are."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        path = self._folder / f"{self._end:0{_DIGITS}d}{_SUFFIX}"
        head = _line({"first": self._end, "events": [], "notes": self._notes})
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(head)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        _sync_folder(self._folder)
        segment = _Segment(path, self._end, len(head), len(head))
        # A segment of the same number held notes alone, which are in this one now.
        self._segments = [one for one in self._segments if one.path != path] + [segment]
        return segment

    def _make_room(self) -> None:
        """Drop the oldest segments while there are too many bytes; count what anybody loses by it."""
        while len(self._segments) > 1 and sum(one.size for one in self._segments) > self._most:
            gone = self._segments.pop(0)
            following = self._segments[0].first
            for name, position in self._positions.items():
                if position < following:
                    self._lost[name] = self._lost.get(name, 0) + following - max(position, gone.first)
                    self._positions[name] = following
            gone.path.unlink(missing_ok=True)

    def _clear(self) -> None:
        """Delete the segments that everybody has."""
        needed = min(self._positions.values(), default=self._end)
        while len(self._segments) > 1 and self._segments[1].first <= needed:
            self._segments.pop(0).path.unlink(missing_ok=True)

    def _save_position(self, name: str, position: int) -> None:
        path = self._folder / f"{name}.position"
        fresh = path.with_suffix(".new")
        with fresh.open("w", encoding="ascii") as file:
            file.write(f"{position}\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    # -- reading -----------------------------------------------------------------------------------------

    def _read_position(self, name: str) -> int | None:
        """Return what a destination has; None if it is new."""
        try:
            return int((self._folder / f"{name}.position").read_text(encoding="ascii"))
        except FileNotFoundError:
            return None

    def _recover(self) -> int:
        """Cut half a record off the last segment, take up the notes, and return the number of the next event."""
        if not self._segments:
            return 0
        last = self._segments[-1]
        end, whole = last.first, 0
        with last.path.open("rb") as file:
            for line in file:
                record = _record(line)
                if record is None and not line.endswith(b"\n"):
                    break
                if record is None:
                    self._damaged.add((last.path, whole))
                last.head = last.head or len(line)
                whole += len(line)
                if record is None:
                    continue
                end = int(record["first"]) + len(record["events"])
                self._notes.update(record.get("notes", {}))
                self._notes = patched(self._notes, record.get("changes", {}))
        if whole < last.size:
            os.truncate(last.path, whole)
            last.size = whole
        return end

    def _records(self, path: Path, size: int, mark: _Place | None) -> Iterator[_Place]:
        """Yield the records of a segment, from a mark on where that is in it."""
        offset = 0
        if mark is not None and mark.path == path:
            offset = mark.offset
            if mark.record is not None:
                yield mark
                offset = mark.after
        try:
            file = path.open("rb")
        except FileNotFoundError:
            # Dropped for want of room a moment ago.
            return
        with file:
            file.seek(offset)
            while offset < size and (line := file.readline()):
                record = _record(line)
                if record is None:
                    self._damaged.add((path, offset))
                else:
                    yield _Place(path, int(record["first"]), offset, offset + len(line), record)
                offset += len(line)


def _numbered(record: Mapping[str, Any] | None, start: int) -> Iterator[tuple[int, Document]]:
    """Yield the events of a record from a number on, each with its number."""
    if record is not None:
        first, events = int(record["first"]), record["events"]
        for place in range(max(start - first, 0), len(events)):
            yield first + place, events[place]


def _line(record: Mapping[str, object]) -> bytes:
    body = json.dumps(record, separators=(",", ":"), ensure_ascii=True).encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def _record(line: bytes) -> dict[str, Any] | None:
    """Return what a line holds; None if it is not whole."""
    check, _, body = line.rstrip(b"\n").partition(b" ")
    try:
        if int(check, 16) != zlib.crc32(body):
            return None
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if _is_record(found) else None


def _is_record(found: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is what `append` writes: what somebody else wrote may have its checksum, too."""
    if not isinstance(found, dict):
        return False
    first, events = found.get("first"), found.get("events")
    are_told = isinstance(events, list) and all(isinstance(event, dict) for event in events)
    are_notes = all(isinstance(found.get(name, {}), dict) for name in ("notes", "changes"))
    return type(first) is int and first >= 0 and are_told and are_notes


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
