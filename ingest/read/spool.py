"""Follow a folder of files that pmacct writes: whole, growing or rotated, and know at every moment what was read.

A position names each file by its inode and by a checksum of its first bytes, so that a file is recognised after it was
renamed, and a new one under an old name or a reused inode is not mistaken for the old. A copy under another name is
recognised as long as the file that was read is there; what both hold is read once.
"""

import errno
import fcntl
import fnmatch
import gzip
import heapq
import os
import re
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Self

from app.errors import ClusterflowError, UserError
from ingest.read.printed_again import block_before, end_of_block, step_back, without_known
from ingest.read.readers_format import Format, Kind, format_after, sniff
from ingest.read.source import MAX_LINE, Chunk, Position
from ingest.read.spool_file import (
    HEAD,
    RETRY_SECONDS,
    Gzip,
    Mark,
    SpoolFile,
    has_record,
    has_times,
    is_passing,
    marks_in,
    stamp_of,
    time_of,
    to_line_end,
    writer_of,
)

PATTERNS = ("*.csv", "*.json", "*.csv.gz", "*.json.gz")
"""Files that a spool holds unless the user says otherwise."""

_BLOCK = 1 << 20
_STRIDE_SECONDS, _LEAST_BYTES = 60.0, 1 << 12
"""About how much of a file's time is read at once, so that several writers stay together; but so many bytes."""
_SETTLE_SECONDS = 60.0
"""A file that has a successor, and that nobody wrote to for so long, counts as closed by its writer."""
_STEP_SECONDS = 5.0
"""A wall clock that moved so far against the monotonic one was set."""

_SCAN_SECONDS = 0.2
_LONG_SCAN, _SCANS_APART = 0.01, 9.0
"""To look at thousands of files takes so many seconds of processor time; the next look waits so many times as long."""

_GONE_SECONDS, _MOST_GONE = 3600.0, 200
"""How long a file is known that is not there any more, and how many: what comes back goes on where it was."""

Notice = Callable[[str, str], None]
"""Called with a reason that `counts` has, and the name of a file."""


class Spool:
    """A folder of spool files. Use it as a context manager, or `close` it.

    Args:
        folder: where the files are.
        patterns: shell patterns of their names.
        once: read what is there and be finished, unterminated last lines included; otherwise follow for ever.
        deletes: whether `release` deletes files.
        time_zone: zone of times printed without one.
        notice: told what happened to which file, where that is no ordinary thing.

    Raises:
        UserError: the folder is missing, or another bridge reads it.
    """

    is_resumable = True

    def __init__(
        self,
        folder: Path,
        patterns: tuple[str, ...] = PATTERNS,
        *,
        once: bool = False,
        deletes: bool = False,
        time_zone: str = "UTC",
        notice: Notice = lambda _reason, _name: None,
    ) -> None:
        self.folder = folder
        self.place = str(folder.resolve())
        self.notice = notice
        self.once = once
        self.deletes = deletes
        self.time_zone = time_zone
        self.counts: dict[str, int] = {}
        self._default = Format(Kind.CSV, "", time_zone)
        self._matches = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)).match
        self._files: dict[str, SpoolFile] = {}
        self._gone: list[tuple[float, SpoolFile]] = []
        self._waiting: dict[str, deque[SpoolFile]] = {}
        self._begun: dict[Mark, list[SpoolFile]] = {}
        self._position: Position = {}
        self._last_scan = self._pause = 0.0
        self._last_stream = ""
        self._clock_ahead = time.time() - time.monotonic()
        self._lock = locked(folder, "set collector.spool")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close files and let another bridge have the folder."""
        for file in self._files.values():
            file.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- what is there -----------------------------------------------------------------------------

    def _count(self, reason: str, name: str, count: int = 1) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + count
        self.notice(reason, name)

    def _scan(self) -> None:
        """Look at the folder: new, grown, renamed, replaced and vanished files."""
        self._last_scan, began = time.monotonic(), time.thread_time()
        try:
            self._check_folder()
            seen, unseen = self._listing()
            known = self._recognised(seen) | {name: self._files[name] for name in unseen}
        except OSError as error:
            if self.once:
                raise ClusterflowError(f"spool {self.folder}: {os.strerror(error.errno or 0)}") from error
            # What is known of its files stays known: they may all be there again in a moment.
            self._count("folder_unreadable", "")
            return
        self._forget(known, seen)
        for file in known.values():
            file.is_from_position = False
        self._files = known
        self._waiting, self._begun = {}, {}
        for file in known.values():
            self._know(file)
        waiting = [file for file in known.values() if file.unread()]
        for file in sorted(waiting, key=lambda file: (file.order, file.name)):
            self._waiting.setdefault("" if self.once else writer_of(file.name), deque()).append(file)
        there = [file for file in known.values() if file.offset or file.is_done]
        self._position = {file.name: file.to_json() for file in [*(one for _, one in self._gone), *there]}
        took = time.thread_time() - began
        self._pause = took * _SCANS_APART if took > _LONG_SCAN else 0.0

    def _forget(self, known: Mapping[str, SpoolFile], seen: Mapping[str, os.stat_result]) -> None:
        """Note which files are not there any more; those of long ago are forgotten."""
        kept, now = {id(file) for file in known.values()}, time.monotonic()
        gone = [(since, file) for since, file in self._gone if id(file) not in kept and now - since < _GONE_SECONDS]
        for name, file in self._files.items():
            if id(file) not in kept:
                file.close()
                gone += [(now, file)] if file.offset or file.is_done else []
                # One that was released after the position was saved is no news.
                if name not in seen and not file.is_from_position:
                    self._count("vanished", name)
        self._gone = gone[-_MOST_GONE:]

    def _recognised(self, seen: Mapping[str, os.stat_result]) -> dict[str, SpoolFile]:
        """Return what is known of each file that is there, or begin to know it."""
        gone = [file for _, file in self._gone]
        by_inode = {(file.device, file.inode): file for file in [*gone, *self._files.values()]}
        by_name = {file.name: file for file in gone} | self._files
        names = {(stat.st_dev, stat.st_ino) for stat in seen.values()}
        known: dict[str, SpoolFile] = {}
        for name, stat in seen.items():
            file = by_inode.get((stat.st_dev, stat.st_ino))
            if file is not None and (file.name == name or self._is_same(file, name)):
                if file.name != name:
                    self.counts["renamed"] = self.counts.get("renamed", 0) + 1
                    file.name = name
            elif self._is_moved(by_name.get(name), stat):
                file = by_name[name]
                file.device, file.inode = stat.st_dev, stat.st_ino
            else:
                if name in self._files and (self._files[name].device, self._files[name].inode) not in names:
                    self._count("replaced", name)
                file = SpoolFile(name, stat.st_ino, stat.st_dev)
            self._update(file, stat)
            known[name] = file
        return known

    def _check_folder(self) -> None:
        """See that the folder is the one that is locked; a new one in its place would be read without a lock."""
        here, locked = self.folder.stat(), os.fstat(self._lock)
        if (here.st_dev, here.st_ino) != (locked.st_dev, locked.st_ino):
            raise ClusterflowError(
                f"spool {self.folder}: another folder has taken its place", "start the bridge again to read that one"
            )

    def _is_moved(self, file: SpoolFile | None, stat: os.stat_result) -> bool:
        """Whether the file was on another disk when the position was saved, or before it was away.

        Device numbers change when a machine starts again, and both numbers when a volume is copied.
        """
        if file is None or (self._files.get(file.name) is file and not file.is_from_position):
            return False
        return (file.is_gzip or stat.st_size >= file.offset) and self._is_same(file, file.name)

    def _listing(self) -> tuple[dict[str, os.stat_result], set[str]]:
        """Return the regular files that match, each once however many names it has; and known ones of no answer."""
        found: dict[str, os.stat_result] = {}
        unseen: set[str] = set()
        inodes: set[tuple[int, int]] = set()
        with os.scandir(self.folder) as entries:
            # Real names before links such as print_latest_file, and known names before new ones.
            ordered = sorted(entries, key=lambda entry: (entry.is_symlink(), entry.name not in self._files, entry.name))
        for entry in ordered:
            if not self._matches(entry.name):
                continue
            try:
                stat = entry.stat()
                is_file = entry.is_file()
            except OSError as error:
                # It went while we looked, or is a link to nothing; any other trouble says nothing of a file.
                if error.errno != errno.ENOENT and entry.name in self._files:
                    unseen.add(entry.name)
                continue
            if is_file and (stat.st_dev, stat.st_ino) not in inodes:
                inodes.add((stat.st_dev, stat.st_ino))
                found[entry.name] = stat
        return found, unseen

    def _update(self, file: SpoolFile, stat: os.stat_result) -> None:
        """Take note of a file's size; begin again where its content is not what was read."""
        is_changed = stat.st_mtime != file.modified or stat.st_size != file.size
        if is_changed:
            file.changed = time.monotonic()
        file.size, file.modified, file.stamp = stat.st_size, stat.st_mtime, stamp_of(stat)
        file.order = file.order or time_of(file.name, stat.st_mtime)
        is_shorter = not file.is_gzip and stat.st_size < file.offset
        if not file.offset or not is_changed:
            return
        if is_shorter and self._is_cut(file):
            self._count("cut", file.name)
            file.offset, file.is_skipping = stat.st_size, False
            if stat.st_size < file.head_bytes:
                self._learn_head(file, stat.st_size)
        elif is_shorter or not self._is_same(file, file.name):
            self._count("truncated" if is_shorter else "replaced", file.name)
            file.close()
            file.offset = file.head = file.head_bytes = 0
            file.first, file.marks, file.copy_of, file.is_compared = b"", (), "", False
            file.fmt, file.is_skipping, file.is_done, file.again = None, False, False, 0

    def _is_cut(self, file: SpoolFile) -> bool:
        """Whether a file that has become shorter is the same as before but for its end: all that is left was read."""
        if file.size >= file.head_bytes:
            return self._is_same(file, file.name)
        known = [mark for mark in file.marks if mark[0] <= file.size]
        if not known:
            # No record is left of it.
            return False
        size, checksum = known[-1]
        try:
            with self._open(file.name) as stream:
                return zlib.crc32(stream.read(size)) == checksum
        except OSError:
            return False

    def _learn_head(self, file: SpoolFile, size: int) -> None:
        """Take note of how a file begins, of which so many bytes were read."""
        with self._open(file.name) as stream:
            file.first = stream.read(min(size, HEAD))
        file.head, file.head_bytes, file.marks = zlib.crc32(file.first), len(file.first), marks_in(file.first)
        self._know(file)

    def _know(self, file: SpoolFile) -> None:
        """Have a file found by its first record: to compare a new one with all others would take ever longer."""
        if file.marks:
            self._begun.setdefault(file.marks[0], []).append(file)

    def _is_same(self, file: SpoolFile, name: str) -> bool:
        """Whether the file under this name begins with what was read of `file`."""
        try:
            with self._open(name) as stream:
                return zlib.crc32(stream.read(file.head_bytes)) == file.head
        except (OSError, EOFError, zlib.error):
            # Not readable now is no proof of another content: to begin again would count all of it twice.
            return True

    def _open(self, name: str) -> IO[bytes] | gzip.GzipFile:
        path = self.folder / name
        return gzip.open(path, "rb") if name.endswith(".gz") else path.open("rb")

    def _has_successor(self, file: SpoolFile) -> bool:
        """Whether the same writer has begun a later file."""
        mine = writer_of(file.name)
        return any(
            writer_of(other.name) == mine and (other.order, other.name) > (file.order, file.name)
            for other in self._files.values()
        )

    def _is_closed(self, file: SpoolFile) -> bool:
        """Whether nothing more is to be expected in the file."""
        if self.once or file.is_gzip:
            return True
        return self._is_quiet(file, file.modified) and self._has_successor(file)

    def _is_quiet(self, file: SpoolFile, modified: float) -> bool:
        """Whether a file was not written to for _SETTLE_SECONDS."""
        age = time.time() - modified
        if age < 0 or abs(time.time() - time.monotonic() - self._clock_ahead) > _STEP_SECONDS:
            # Somebody has set the clock: what it says of the file's age may be an hour off.
            return time.monotonic() - file.changed > _SETTLE_SECONDS
        return age > _SETTLE_SECONDS

    # -- reading -----------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether everything was read, if only once is wanted."""
        return self.once and next(self._candidates(), None) is None

    @property
    def position(self) -> Position:
        """What was read so far."""
        return dict(self._position)

    def next_chunk(self, limit_bytes: int) -> Chunk | None:
        """Return the next lines of the folder; None if there are none now.

        Files of one writer come in the order of their times. Following, the writer is first whose next lines are the
        oldest: one that has little to read must not run hours ahead of another one's backlog. Once, the oldest file of
        all is first.

        Args:
            limit_bytes: about how much at most; a single line may be longer.
        """
        is_fresh = False
        if time.monotonic() - self._last_scan > max(_SCAN_SECONDS, self._pause):
            self._scan()
            is_fresh = True
        while True:
            for file in self._candidates():
                while raw := self._read(file, self._stride(file, limit_bytes)):
                    if fresh := self._once(file, raw):
                        return self._chunk(file, fresh)
            if is_fresh or (not self.once and time.monotonic() - self._last_scan < self._pause):
                return None
            self._scan()
            is_fresh = True

    def _candidates(self) -> Iterator[SpoolFile]:
        """Yield the files that may have lines, the one whose turn it is first."""
        if not self._last_scan:
            self._scan()
        if not self.once:
            lines = (self._line(writer, files) for writer, files in self._waiting.items())
            yield from (file for _, file in heapq.merge(*lines, key=itemgetter(0)))
            return
        while files := self._waiting.get(""):
            if files[0].is_readable():
                yield files[0]
            # Whoever asks for another one got nothing from this one; the next look at the folder lists it again.
            files.popleft()

    def _line(self, writer: str, files: deque[SpoolFile]) -> Iterator[tuple[tuple[int, bool, str], SpoolFile]]:
        """Yield a writer's files that may have lines, in their order, with their turns: none before an earlier file's.

        Of writers that are equally far, those after the last one served come first.
        """
        while files and not files[0].is_readable():
            files.popleft()
        reached = 0
        for file in filter(SpoolFile.is_readable, files):
            reached = max(file.reached(), reached)
            yield (reached, writer <= self._last_stream, writer), file

    def _stride(self, file: SpoolFile, limit: int) -> int:
        """Return how much of a file to read at once, in bytes: less than `limit` while other writers wait as well."""
        if self.once or len(self._waiting) < 2:
            return limit
        length = max(file.modified - file.order, _STRIDE_SECONDS)
        return min(limit, max(int(file.size * _STRIDE_SECONDS / length), _LEAST_BYTES))

    def _chunk(self, file: SpoolFile, raw: bytes) -> Chunk:
        """Return bytes that were read as a chunk, and take note of the format from here on."""
        self._last_stream = writer_of(file.name)
        # Without a header, each chunk says again what its lines are: of the first one, nothing may have been left.
        fmt = file.fmt if file.fmt and (file.fmt.header or file.fmt.kind is Kind.JSON) else sniff(raw, self._default)
        file.fmt = format_after(raw, fmt)
        self._position[file.name] = file.to_json()
        return Chunk(raw, fmt, file.name, self.position)

    def _read(self, file: SpoolFile, limit: int) -> bytes:
        """Return whole lines and move on behind them; empty if there are none yet."""
        while True:
            try:
                if self._skip_copied(file):
                    return b""
                data, is_end = self._read_at(file, limit)
            except (OSError, EOFError, zlib.error) as error:
                self._set_aside(file, error)
                return b""
            cut = data.rfind(b"\n") + 1
            if file.is_skipping:
                cut = data.find(b"\n") + 1
                file.is_skipping = not cut
                self._advance(file, data, cut or len(data))
                if is_end and not data[cut:]:
                    file.is_done = file.is_done or file.is_gzip
                    return b""
                continue
            if is_end and cut < len(data) and self._is_closed(file):
                cut = len(data)
            if cut:
                self._advance(file, data, cut)
                return data[:cut]
            if is_end:
                file.is_done = file.is_gzip
                return b""
            if len(data) >= MAX_LINE:
                self._count("line_too_long", file.name)
                file.is_skipping = True
                self._advance(file, data, len(data))
                return data[:HEAD] + b"\n"
            limit = max(limit * 2, MAX_LINE)

    def _set_aside(self, file: SpoolFile, error: Exception) -> None:
        """Leave a file that cannot be read now: for some seconds, or until it changes if its content is broken."""
        self._count("unreadable", file.name)
        file.close()
        if is_passing(error) and not self.once:
            file.retry = time.monotonic() + RETRY_SECONDS
        else:
            file.broken = file.stamp

    def _once(self, file: SpoolFile, raw: bytes) -> bytes:
        """Return lines that were read just now without those that the block before theirs has as well."""
        kept, position, count, begin = [], 0, 0, file.offset - len(raw)
        try:
            while position < len(raw):
                if not file.again:
                    step = step_back(raw, position, partial(self._text_before, file, begin))
                    if step < 0:
                        break
                    kept.append(raw[position:step])
                    position, file.again = step, begin + step
                with self._open(file.name) as stream:
                    known = block_before(stream, file.again)
                end = end_of_block(raw, position + (begin + position == file.again))
                lines, again = without_known(raw[position : len(raw) if end < 0 else end], known)
                kept.append(lines)
                count += again or 0
                position = len(raw) if end < 0 else end
                if end >= 0 or again == 0:
                    file.again = 0
        except (OSError, EOFError, zlib.error):
            # What is before cannot be had: what is here counts.
            file.again = 0
        if kept:
            self._position[file.name] = file.to_json()
        if count:
            self._count("printed_again", file.name, count)
        return b"".join([*kept, raw[position:]]) if kept else raw

    def _text_before(self, file: SpoolFile, offset: int, count: int) -> bytes:
        """Return so many bytes before an offset, or all there are."""
        begin = max(offset - count, 0)
        with self._open(file.name) as stream:
            stream.seek(begin)
            return stream.read(offset - begin)

    def _read_at(self, file: SpoolFile, count: int) -> tuple[bytes, bool]:
        """Return up to `count` unread bytes, and whether the file ends there for now."""
        if file.is_gzip:
            if file.stream is None:
                file.stream = Gzip(self.folder / file.name, file.offset)
            data, is_end = file.stream.read(count)
            file.stream.carry = data
            return data, is_end
        with (self.folder / file.name).open("rb", buffering=0) as stream:
            # What was opened must be what was looked at: the name may stand for another file by now.
            if os.fstat(stream.fileno()).st_ino != file.inode:
                return b"", True
            count = to_line_end(stream.fileno(), file.offset, count)
            data = os.pread(stream.fileno(), count, file.offset)
        return data, len(data) < count

    def _advance(self, file: SpoolFile, data: bytes, count: int) -> None:
        """Move on by `count` bytes of `data`."""
        if file.head_bytes < HEAD:
            more = data[: min(count, HEAD - file.head_bytes)]
            file.head = zlib.crc32(more, file.head)
            if len(file.first) == file.head_bytes:
                file.first += more
                file.marks = marks_in(file.first)
                self._know(file)
            file.head_bytes += len(more)
        file.offset += count
        if file.stream is not None:
            file.stream.carry = data[count:]
        self._position[file.name] = file.to_json()

    # -- copies ------------------------------------------------------------------------------------

    def _skip_copied(self, file: SpoolFile) -> bool:
        """Move on over what a file repeats of another one that gave it out already.

        Returns whether there is nothing to read for now: it is all repeated, or the other one has to give it out first.
        """
        if not file.is_compared:
            file.is_compared = True
            file.copy_of = self._original_of(file)
        if not file.copy_of:
            return False
        other = self._files.get(file.copy_of)
        if other is None or other.broken == other.stamp:
            file.copy_of = ""
            return False
        if time.monotonic() < other.retry:
            # It will be read on: what the copy gave out meanwhile would count twice.
            return True
        common, is_end = self._common(file, other)
        known = min(common, other.offset)
        if known < common and not is_end and self._is_left_behind(other):
            self._swap(file, other)
            self._move_to(file, known, other)
            return False
        if known < common or is_end:
            self._move_to(file, known, other)
            file.is_done = file.is_gzip and known == common
            return True
        file.copy_of = ""
        self._move_to(file, self._line_start(file, known), other)
        return False

    def _is_left_behind(self, other: SpoolFile) -> bool:
        """Whether half a line is all that a file has left, and it was not written to for long."""
        if other.is_gzip or not self._is_quiet(other, other.modified):
            return False
        with self._open(other.name) as stream:
            stream.seek(other.offset)
            rest = stream.read(MAX_LINE)
        return len(rest) < MAX_LINE and b"\n" not in rest

    def _swap(self, copy: SpoolFile, original: SpoolFile) -> None:
        """Have the copy read instead of its original: what that may yet get is compared with the copy."""
        copy.copy_of = ""
        for file in self._files.values():
            if file is original or (file is not copy and file.copy_of == original.name):
                file.copy_of, file.is_compared = copy.name, True
                self._position[file.name] = file.to_json()

    def _original_of(self, file: SpoolFile) -> str:
        """Return the name of a file that was read, or begun, and that begins with the same records; empty if none."""
        with self._open(file.name) as stream:
            head = stream.read(HEAD)
        fmt = sniff(head, self._default)
        marks = marks_in(head)
        if not marks or not has_times(head, fmt):
            return ""
        for other in self._begun.get(marks[0], ()):
            if other is file or self._files.get(other.name) is not other:
                continue
            if not other.offset or other.copy_of or other.broken == other.stamp:
                continue
            size = min(len(head), other.head_bytes)
            is_alike = other.first[:size] == head[:size] if other.first else zlib.crc32(head[:size]) == other.head
            if is_alike and has_record(head[:size]):
                self._count("copied", file.name)
                return other.name
        return ""

    def _common(self, file: SpoolFile, other: SpoolFile) -> tuple[int, bool]:
        """Return up to where two files are alike, from what was read of the first on; and whether that is its end."""
        position = file.offset
        with self._open(file.name) as one, self._open(other.name) as two:
            one.seek(position)
            two.seek(position)
            while True:
                left, right = one.read(_BLOCK), two.read(_BLOCK)
                if left != right or not left:
                    alike = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
                    alike = min(len(left), len(right)) if alike is None else alike
                    return position + alike, alike == len(left)
                position += len(left)

    def _line_start(self, file: SpoolFile, position: int) -> int:
        """Return where the line begins that a position is in, but nothing that was read already."""
        start = max(file.offset, position - MAX_LINE)
        with self._open(file.name) as stream:
            stream.seek(start)
            text = stream.read(position - start)
        return start + text.rfind(b"\n") + 1

    def _move_to(self, file: SpoolFile, offset: int, other: SpoolFile) -> None:
        """Take as read what another file gave out."""
        if offset > file.offset:
            file.close()
            file.offset, file.fmt = offset, other.fmt
            file.again = other.again if other.again < offset else 0
            self._learn_head(file, offset)
            self._position[file.name] = file.to_json()

    # -- positions ---------------------------------------------------------------------------------

    def resume(self, position: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from a position that `position` or a chunk gave; files it does not name are read from their start."""
        for file in self._files.values():
            file.close()
        self._files, self._gone = {}, []
        for name, entry in position.items():
            fmt = None
            if entry.get("kind"):
                fmt = Format(Kind(entry["kind"]), str(entry.get("header") or ""), self._default.time_zone)
            self._files[name] = SpoolFile(
                name,
                int(entry["inode"]),
                int(entry["device"]),
                offset=int(entry["offset"]),
                fmt=fmt,
                head=int(entry["head"]),
                head_bytes=int(entry["head_bytes"]),
                is_skipping=bool(entry.get("skipping")),
                again=int(entry.get("again", 0)),
                is_done=bool(entry.get("done")),
                copy_of=str(entry.get("copy_of", "")),
                marks=tuple((int(size), int(checksum)) for size, checksum in entry.get("marks", ())),
                is_compared=True,
                is_from_position=True,
            )
        self._scan()

    def release(self, position: Mapping[str, Mapping[str, Any]]) -> None:
        """Delete the files that lie wholly behind a position and that their writer has left.

        Args:
            position: one that a checkpoint holds.
        """
        if not self.deletes:
            return
        for name, entry in position.items():
            file = self._files.get(name)
            if file is None or file.inode != entry["inode"] or not self._is_released(file, int(entry["offset"])):
                continue
            try:
                (self.folder / name).unlink()
            except OSError:
                self._count("not_released", name)
                continue
            file.close()
            del self._files[name]
            del self._position[name]

    def _is_released(self, file: SpoolFile, offset: int) -> bool:
        """Whether a file was read to its end at this offset and will not grow."""
        try:
            stat = (self.folder / file.name).stat()
        except OSError:
            return False
        is_read = file.is_done and offset == file.offset if file.is_gzip else stat.st_size == offset
        if self.once:
            return is_read
        return is_read and self._has_successor(file) and self._is_quiet(file, stat.st_mtime)

    def unreadable(self) -> list[str]:
        """Return the names of files that could not be read to their end, such as broken archives."""
        return sorted(file.name for file in self._files.values() if file.broken == file.stamp)

    def backlog_bytes(self) -> int:
        """Return the bytes that wait to be read, by the last look at the folder."""
        if not self._last_scan:
            self._scan()
        return sum(file.unread() for file in self._files.values())


def locked(folder: Path, hint: str) -> int:
    """Return a descriptor of a folder that nobody else reads while it is open.

    Raises:
        UserError: the folder is missing, or another bridge reads it.
    """
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"spool {folder}: {error.strerror}", f"create it, or {hint}") from error
    try:
        # On the folder itself: it leaves nothing behind, and needs no right to write.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise UserError(
            f"spool {folder}: another bridge reads it", "stop that one, or give each bridge its own spool"
        ) from error
    return lock
