"""Where chunks of printed records come from: what each source of them does, and standard input or a pipe as one."""

import os
import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from ingest.read.readers_format import Format, Kind, format_after, sniff

Position = dict[str, dict[str, Any]]
"""JSON-able: file name -> inode, device, offset of the first unread byte, and what it takes to read on there."""

MAX_LINE = 1 << 20
"""Bytes beyond which a line cannot be a record: its beginning goes to the dead letters, the rest is skipped."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines of one file.

    Attributes:
        raw: whole lines; only the last line of a finished file may lack its newline.
        fmt: how to read them.
        source: the file's name.
        position: what was read once this chunk is; a copy, so it may be kept.
    """

    raw: bytes = field(repr=False)
    fmt: Format
    source: str
    position: Position = field(repr=False)

    @property
    def header(self) -> str:
        """The CSV header in force where the chunk begins."""
        return self.fmt.header


class Source(Protocol):
    """Where chunks come from; `place` tells people, and the next start, which one it is."""

    is_resumable: bool
    place: str
    counts: dict[str, int]

    @property
    def is_finished(self) -> bool:
        """Whether there will never be another chunk."""

    @property
    def position(self) -> Position:
        """What was read so far."""

    def next_chunk(self, limit_bytes: int) -> Chunk | None:
        """Return the next lines, about `limit_bytes` at most; None if there are none now."""

    def resume(self, position: Position) -> None:
        """Go on from a position instead of from the beginning."""

    def release(self, position: Position) -> None:
        """Say that the position is safe: files behind it may go."""

    def backlog_bytes(self) -> int:
        """Return how much waits to be read."""

    def close(self) -> None:
        """Give up files and locks."""


class StreamSource:
    """Lines from standard input or a pipe. What was read cannot be read again, so positions are empty.

    Args:
        stream: a binary stream with a file descriptor.
        time_zone: zone of times printed without one.
    """

    is_resumable = False

    def __init__(self, stream: IO[bytes], *, time_zone: str = "UTC") -> None:
        self.counts: dict[str, int] = {}
        self.place = "stdin"
        self.position: Position = {}
        self.is_finished = False
        self._descriptor = stream.fileno()
        self._default = Format(Kind.CSV, "", time_zone)
        self._fmt: Format | None = None
        self._rest = b""
        self._is_end = False

    def next_chunk(self, limit_bytes: int) -> Chunk | None:
        """Return the lines that are there; None if there are none now. Does not wait."""
        parts = [self._rest]
        size = len(self._rest)
        for part in self._available(limit_bytes - size):
            parts.append(part)
            size += len(part)
        data = b"".join(parts)
        cut = len(data) if self._is_end or len(data) > MAX_LINE + limit_bytes else data.rfind(b"\n") + 1
        self._rest = data[cut:]
        self.is_finished = self._is_end and not self._rest
        if not cut:
            return None
        raw = data[:cut]
        fmt = self._fmt or sniff(raw, self._default)
        self._fmt = format_after(raw, fmt)
        return Chunk(raw, fmt, self.place, {})

    def _available(self, limit: int) -> Iterator[bytes]:
        """Yield what can be read now without waiting."""
        wanted = max(limit, 1 << 16)
        while wanted > 0 and not self._is_end and select.select([self._descriptor], [], [], 0)[0]:
            part = os.read(self._descriptor, min(wanted, 1 << 20))
            self._is_end = not part
            wanted -= len(part)
            yield part

    def resume(self, position: Mapping[str, Mapping[str, Any]]) -> None:
        """Do nothing: a stream cannot go back."""

    def release(self, position: Mapping[str, Mapping[str, Any]]) -> None:
        """Do nothing: there are no files."""

    def backlog_bytes(self) -> int:
        """Return the bytes of the unfinished line."""
        return len(self._rest)

    def close(self) -> None:
        """Do nothing: the caller closes the stream."""
