"""One file of a spool: how far it was read, what its name and its first bytes say of it."""

import gzip
import os
import re
import time
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest.read.readers_format import OWN, Format, Kind, is_header, is_marker

HEAD = 4096
"""Bytes of a file's beginning that are remembered."""
_MARK_BYTES = 400
_GLANCE_BYTES = 1 << 14
_NAME_TIME = re.compile(r"(?<!\d)(\d{8})[-_T]?(\d{4}(?:\d{2})?)?(?!\d)")
_NAME_EPOCH = re.compile(r"(?<!\d)(\d{10})(?!\d)")

RETRY_SECONDS = 10.0
"""Until what could not be read for an error of the system is tried again."""

Stamp = tuple[int, float, float]
"""Size, time of the last change, and of the last change of the inode: a file that is mended has another one."""

Mark = tuple[int, int]
"""A number of bytes from a file's start, up to a line's end, and their checksum."""


@dataclass(slots=True)
class SpoolFile:
    """A file and how far it was read.

    `head` is the checksum of its first `head_bytes` bytes, all of them read, and `first` these bytes themselves, unless
    they were read by an earlier process; `marks` are checksums of some beginnings of it. `changed` is when it was last
    seen to change, by the monotonic clock. `copy_of` names the file that it repeats up to here. `again` is where the
    block began that is being read, if it may repeat the one before it. `broken` is the stamp with which its content
    could not be read; `retry` is when to try again after an error of the system, by the monotonic clock.
    """

    name: str
    inode: int
    device: int
    offset: int = 0
    fmt: Format | None = None
    head: int = 0
    head_bytes: int = 0
    first: bytes = b""
    marks: tuple[Mark, ...] = ()
    copy_of: str = ""
    is_compared: bool = False
    changed: float = 0.0
    is_skipping: bool = False
    again: int = 0
    is_done: bool = False
    size: int = 0
    modified: float = 0.0
    order: float = 0.0
    stamp: Stamp = (0, 0.0, 0.0)
    broken: Stamp | None = None
    retry: float = 0.0
    is_from_position: bool = False
    stream: "Gzip | None" = None

    @property
    def is_gzip(self) -> bool:
        """Whether offsets count bytes after decompression."""
        return self.name.endswith(".gz")

    def unread(self) -> int:
        """Bytes to read, as far as the last look told; compressed ones for a compressed file."""
        if self.is_gzip:
            return 0 if self.is_done else self.size
        return max(0, self.size - self.offset)

    def to_json(self) -> dict[str, Any]:
        """Return what a position says of it."""
        fmt = self.fmt or OWN
        return {
            "inode": self.inode,
            "device": self.device,
            "offset": self.offset,
            "kind": fmt.kind.value if self.fmt else None,
            "header": fmt.header if self.fmt else None,
            "head": self.head,
            "head_bytes": self.head_bytes,
            "skipping": self.is_skipping,
            "again": self.again,
            "done": self.is_done,
            "copy_of": self.copy_of,
            "marks": self.marks,
        }

    def is_readable(self) -> bool:
        """Whether there is something to read that is worth a try."""
        return self.unread() > 0 and self.broken != self.stamp and time.monotonic() >= self.retry

    def reached(self) -> int:
        """Return the epoch second up to which it is read, as if its lines were spread evenly over its time."""
        share = min(self.offset / self.size, 1.0) if self.size else 0.0
        return int(self.order + max(self.modified - self.order, 0.0) * share)

    def close(self) -> None:
        """Give up what is open of it."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None


class Gzip:
    """A compressed file, read forwards. `carry` is what was read beyond the last whole line."""

    def __init__(self, path: Path, offset: int) -> None:
        self._file = gzip.open(path, "rb")  # noqa: SIM115 - closed by whoever follows the file
        self._file.seek(offset)
        self.carry = b""

    def read(self, count: int) -> tuple[bytes, bool]:
        """Return bytes after the carry, and whether that is all there is; OSError, EOFError or zlib.error if broken."""
        data = self.carry + self._file.read(max(0, count - len(self.carry)))
        return data, len(data) < count

    def close(self) -> None:
        """Close it."""
        self._file.close()


def to_line_end(descriptor: int, offset: int, count: int) -> int:
    """Return how many of so many bytes whole lines take, if these end in the last of them: the rest need not be read.

    To cut it off afterwards would be to copy all the others.
    """
    if count <= _GLANCE_BYTES:
        return count
    end = os.pread(descriptor, _GLANCE_BYTES, offset + count - _GLANCE_BYTES)
    cut = end.rfind(b"\n") + 1
    return count - len(end) + cut if cut and len(end) == _GLANCE_BYTES else count


def stamp_of(stat: os.stat_result) -> Stamp:
    """Return by what a file that could not be read is seen to have changed."""
    return stat.st_size, stat.st_mtime, stat.st_ctime


def is_passing(error: Exception) -> bool:
    """Whether a file may be read later as it is: the system failed, such as a disk or a mount, not the content."""
    return isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile)


def has_times(head: bytes, fmt: Format) -> bool:
    """Whether records tell their times: only then are equal bytes the same records."""
    if fmt.kind is Kind.JSON:
        return b'"timestamp' in head or b'"stamp_' in head
    return any("STAMP" in title for title in fmt.titles)


def has_record(text: bytes) -> bool:
    """Whether whole lines of a text are more than headers and markers."""
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    return any(line.strip() and not is_header(line) and not is_marker(line) for line in lines)


def marks_in(head: bytes) -> tuple[Mark, ...]:
    """Return marks at ends of lines: after the first record, then some hundred bytes apart."""
    marks: list[Mark] = []
    end = 0
    while (newline := head.find(b"\n", end)) >= 0:
        line, end = head[end:newline], newline + 1
        is_next = end - marks[-1][0] >= _MARK_BYTES if marks else has_record(line + b"\n")
        if is_next:
            marks.append((end, zlib.crc32(head[:end])))
    return tuple(marks)


def writer_of(name: str) -> str:
    """Return what the names of one writer's files have in common: all before the first digit."""
    return re.split(r"\d", name, maxsplit=1)[0]


def time_of(name: str, modified: float) -> float:
    """Return the epoch seconds that a file's name tells, or its last change; zones do not matter for the order."""
    epoch = _NAME_EPOCH.search(name)
    if epoch:
        return float(epoch[1])
    stamp = _NAME_TIME.search(name)
    if stamp:
        digits = (stamp[1] + (stamp[2] or "")).ljust(14, "0")
        try:
            return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
        except ValueError:
            pass
    return modified
