"""A folder of a cloud's flow logs, as copied from its object store: folders in folders, a file an object.

Objects are whole when they are there and do not change, but for Azure's, which grow for an hour. A position names each
file with how far it was read: bytes of text after decompression, or rows of a file that is no text.

The folder may be on a mount that goes away. What was read of a file that is not there stays known, for some days where
it was removed, so that it goes on where it was if it is back.
"""

import gzip
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path, PurePath
from typing import Any

import polars as pl

from app.errors import ClusterflowError, UserError
from cluster.model import CloudFormat
from ingest.cloud import aws, azure
from ingest.cloud.ends import Ends
from ingest.cloud.google import read_google
from ingest.read.readers_format import Format
from ingest.read.records import EXPORTER, Parsed
from ingest.read.source import Chunk, Position
from ingest.read.spool import locked
from ingest.read.spool_file import RETRY_SECONDS, Stamp, is_passing, stamp_of

_ENDINGS = {
    CloudFormat.AWS: (".log", ".txt", ".gz", ".parquet"),
    CloudFormat.GOOGLE: (".json", ".jsonl", ".ndjson", ".gz"),
    CloudFormat.AZURE: (".json", ".gz"),
}
_SCAN_SECONDS = 5.0
_SETTLE_SECONDS = 10.0
"""A file that was written to more recently may still be being copied."""
_HEAD = 4096
"""First bytes of a file, as they are on disk, by which it is told from another one of its name."""
_DAY = 86_400.0
_KNOWN_SECONDS = 7 * _DAY
_MOST_GONE = 10_000
"""Removed files that are still known after a day: each is in every checkpoint."""
_HINT = "set cloud.folder"
_BYTES_A_ROW = 100
_BROKEN = (OSError, EOFError, ValueError, zlib.error, pl.exceptions.PolarsError)

_MOMENTS = (
    re.compile(r"_(\d{8}T\d{4})Z_"),
    re.compile(r"(\d{4})/(\d\d)/(\d\d)/(\d\d):(\d\d)"),
    re.compile(r"y=(\d{4})/m=(\d\d)/d=(\d\d)/h=(\d\d)(?:/m=(\d\d))?"),
    re.compile(r"(\d{4})/(\d\d)/(\d\d)/"),
)
"""Where paths of AWS, Google and Azure, or any provider's day, hold the time of what is in a file."""

Notice = Callable[[str, str], None]


def patterns(cloud: CloudFormat) -> list[str]:
    """Return how names of files end that are read."""
    return [f"*{ending}" for ending in _ENDINGS[cloud]]


def moment_of(name: str) -> str:
    """Return the time in a file's path as digits; empty if there is none."""
    found = next(filter(None, (one.search(name) for one in _MOMENTS)), None)
    return "".join(part or "00" for part in found.groups()).replace("T", "") if found else ""


@dataclass(slots=True)
class _File:
    """A file, how far it was read, and what is left of it in memory.

    `head` is the checksum of its first `head_bytes` bytes. `is_here` is whether the last look at the folder saw it, and
    `gone` since when it is removed, in epoch seconds. `broken` is the stamp with which its content could not be read;
    `retry` is when to try again after an error of the system, by the monotonic clock.
    """

    name: str
    size: int = 0
    modified: float = 0.0
    offset: int = 0
    is_done: bool = False
    head: int = 0
    head_bytes: int = 0
    gone: float = 0.0
    is_here: bool = False
    stamp: Stamp = (0, 0.0, 0.0)
    broken: Stamp | None = None
    retry: float = 0.0
    rest: "_Rest | None" = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "modified": self.modified,
            "offset": self.offset,
            "done": self.is_done,
            "head": self.head,
            "head_bytes": self.head_bytes,
            "gone": self.gone,
        }


@dataclass(slots=True)
class _Rest:
    """What of a file is not read yet: its header, and what gives the next lines and how far that goes."""

    header: str
    take: Callable[[int], tuple[bytes, int]]
    close: Callable[[], None] = lambda: None


class CloudFiles:
    """The files of a folder and of all folders in it, oldest first. `close` it.

    Args:
        folder: where they are.
        cloud: whose logs they are.
        once: read what is there and be finished; otherwise look for more for ever.
        notice: told what happened to which file, where that is no ordinary thing.

    Raises:
        UserError: the folder is missing, or another bridge reads it.
    """

    is_resumable = True

    def __init__(
        self, folder: Path, cloud: CloudFormat, *, once: bool, notice: Notice = lambda _reason, _name: None
    ) -> None:
        self.folder = folder
        self.place = str(folder.resolve())
        self.counts: dict[str, int] = {}
        self.position: Position = {}
        self._cloud = cloud
        self._once = once
        self._notice = notice
        self._files: dict[str, _File] = {}
        self._scanned = 0.0
        self._is_empty = False
        self._lock = locked(folder, _HINT)

    @property
    def is_finished(self) -> bool:
        """Whether there will never be another chunk."""
        return self._once and self._scanned > 0 and not any(self._unread())

    def next_chunk(self, limit_bytes: int) -> Chunk | None:
        """Return the next lines of a file, about `limit_bytes` at most; None if there are none now."""
        if not self._scanned or (not self._once and time.monotonic() - self._scanned > _SCAN_SECONDS):
            self._scan()
        parts: list[bytes] = []
        names: list[str] = []
        header, size = "", 0
        for file in self._unread():
            try:
                rest = file.rest = file.rest or self._open(file)
                # An object may be small: those with the same fields are read together.
                if parts and (rest.header != header or size >= limit_bytes // 2):
                    break
                raw = self._take(file, rest, limit_bytes)
            except _BROKEN as error:
                self._count("unreadable", f"{file.name} ({error})")
                _close(file)
                if is_passing(error) and not self._once:
                    file.retry = time.monotonic() + RETRY_SECONDS
                else:
                    file.broken = file.stamp
                continue
            if raw:
                parts += [raw] if raw.endswith(b"\n") else [raw, b"\n"]
                names.append(file.name)
                header, size = rest.header, size + len(raw)
        if not parts:
            return None
        source = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        return Chunk(b"".join(parts), Format(header=header), source, dict(self.position))

    def _unread(self) -> Iterator[_File]:
        """Yield the files to read, oldest first: those of one account, region or interface are not all before others'.

        Where paths hold no time they go by name.
        """
        now = time.monotonic()
        unread = (
            file
            for file in self._files.values()
            if file.is_here and not file.is_done and file.broken != file.stamp and now >= file.retry
        )
        return iter(sorted(unread, key=lambda file: (moment_of(file.name), file.name)))

    def _take(self, file: _File, rest: _Rest, limit: int) -> bytes:
        """Return the next lines of a file; none at its end."""
        raw, file.offset = rest.take(limit)
        if not raw:
            file.is_done = True
            _close(file)
        self.position[file.name] = file.to_json()
        return raw

    def _open(self, file: _File) -> _Rest:
        path = self.folder / file.name
        head = _head_of(path)
        file.head, file.head_bytes = zlib.crc32(head), len(head)
        if self._cloud is CloudFormat.AZURE:
            with _text(path) as stream:
                return _rest_of_lines(azure.lines(stream.read()), file.offset)
        if path.suffix == ".parquet":
            return _rest_of_parquet(path, file.offset)
        return _rest_of_text(_text(path), file.offset, has_header=self._cloud is CloudFormat.AWS)

    # -- what is there -----------------------------------------------------------------------------

    def _scan(self) -> None:
        self._scanned = time.monotonic()
        found, unseen = self._listing()
        now = time.time()
        is_empty = not found and not unseen and bool(self._files)
        if is_empty and not self._is_empty:
            self._count("folder_empty", str(self.folder))
        self._is_empty = is_empty
        self._miss(found, unseen, now)
        for name, stat in found.items():
            file = self._files.get(name) or _File(name)
            is_changed = (file.size, file.modified) != (stat.st_size, stat.st_mtime)
            is_settled = self._once or abs(now - stat.st_mtime) > _SETTLE_SECONDS
            if is_changed and not file.is_here and not is_settled:
                continue
            try:
                if is_changed:
                    self._change(file, stat)
            except OSError:
                # Whether it is the same cannot be told now: the next look asks again.
                continue
            file.is_here, file.gone, file.stamp = True, 0.0, stamp_of(stat)
            self._files[name] = file
        self.position = {name: self._files[name].to_json() for name in self.position if name in self._files}

    def _miss(self, found: Mapping[str, os.stat_result], unseen: set[str], now: float) -> None:
        """Take note of the files that are not there, and forget those that were removed long ago."""
        for name in self._files.keys() - found.keys():
            file = self._files[name]
            _close(file)
            file.is_here = False
            # Of a folder that is empty, or cannot be listed, nobody knows: a mount may be away.
            if not found or file.gone or not unseen.isdisjoint({name, *map(str, PurePath(name).parents)}):
                continue
            file.gone = now
            if not file.is_done:
                self._count("vanished", name)
            if not file.offset and not file.is_done:
                del self._files[name]
        gone = sorted((file for file in self._files.values() if file.gone), key=lambda file: file.gone)
        for left, file in zip(range(len(gone), 0, -1), gone, strict=True):
            age = now - file.gone
            if found and (age > _KNOWN_SECONDS or (age > _DAY and left > _MOST_GONE)):
                del self._files[file.name]

    def _change(self, file: _File, stat: os.stat_result) -> None:
        """Read on in a file that has grown; leave one that is another now, as what was read of it counts.

        One that was away may be a new one of the same name: that is read from its start.
        """
        is_same = self._begins_alike(file)
        if not is_same and not file.is_here:
            self._count("replaced", file.name)
            file.offset, file.is_done = 0, False
        # Compressed text grows where copying it paused; what was read of it is counted in bytes of the text.
        is_text = not file.name.endswith((".gz", ".parquet"))
        is_growing = self._cloud is CloudFormat.AZURE or is_text or (is_same and file.name.endswith(".gz"))
        if not file.offset or (stat.st_size >= file.size if is_growing else is_same and stat.st_size == file.size):
            file.is_done = file.is_done and stat.st_size == file.size
        else:
            file.is_done = True
            self._count("changed", file.name)
        file.size, file.modified = stat.st_size, stat.st_mtime
        _close(file)

    def _begins_alike(self, file: _File) -> bool:
        """Whether a file begins with what was read of it; OSError if that cannot be told now."""
        # Azure's close what they hold with brackets, which go further down as they grow; their paths name the hour.
        if not file.offset or self._cloud is CloudFormat.AZURE:
            return True
        return zlib.crc32(_head_of(self.folder / file.name, file.head_bytes)) == file.head

    def _listing(self) -> tuple[dict[str, os.stat_result], set[str]]:
        """Return the files that may be logs, by their path inside the folder, and what paths could not be looked at.

        Copies under way have other names.
        """
        found: dict[str, os.stat_result] = {}
        unseen: set[str] = set()

        def fail(error: OSError | UserError, reason: str = "folder_unreadable") -> None:
            path = (error.filename if isinstance(error, OSError) else None) or str(self.folder)
            why = error.strerror if isinstance(error, OSError) else error.message
            if self._once:
                raise ClusterflowError(f"{path}: {why}") from error
            unseen.add(os.path.relpath(path, self.folder))
            self._count(reason, f"{path} ({why})")

        try:
            self._keep_lock()
        except (OSError, UserError) as error:
            fail(error)
            return found, unseen
        for folder, folders, names in os.walk(self.folder, onerror=fail):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in names:
                if not name.startswith(".") and name.endswith(_ENDINGS[self._cloud]):
                    path = Path(folder, name)
                    try:
                        found[str(path.relative_to(self.folder))] = path.stat()
                    except FileNotFoundError:
                        # Removed just now, or a link to nowhere.
                        continue
                    except OSError as error:
                        fail(error, "unreadable")
        return found, unseen

    def _keep_lock(self) -> None:
        """Lock the folder that has taken the place of the locked one, such as a mount that is back."""
        here = self.folder.stat()
        with suppress(OSError):
            # Of a mount that is gone for good the system knows nothing.
            if os.path.samestat(here, os.fstat(self._lock)):
                return
        lock = locked(self.folder, _HINT)
        with suppress(OSError):
            os.close(self._lock)
        self._lock = lock

    def _count(self, reason: str, name: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self._notice(reason, name)

    # -- positions ---------------------------------------------------------------------------------

    def resume(self, position: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from a position that `position` or a chunk gave."""
        for file in self._files.values():
            _close(file)
        self._files = {
            name: _File(
                name,
                entry["size"],
                entry["modified"],
                entry["offset"],
                entry["done"],
                # Positions of before these were kept have none.
                entry.get("head", 0),
                entry.get("head_bytes", 0),
                entry.get("gone", 0.0),
                is_here=not entry.get("gone"),
            )
            for name, entry in position.items()
        }
        self.position = {name: dict(entry) for name, entry in position.items()}
        self._scan()

    def release(self, position: Mapping[str, Mapping[str, Any]]) -> None:
        """Do nothing: the files are somebody else's."""

    def unreadable(self) -> list[str]:
        """Return the names of files that could not be read to their end, such as broken archives."""
        return sorted(file.name for file in self._files.values() if file.broken == file.stamp)

    def backlog_bytes(self) -> int:
        """Return the bytes of files that wait to be read, by the last look at the folder."""
        if not self._scanned:
            self._scan()
        return sum(file.size for file in self._unread())

    def close(self) -> None:
        """Close files and let another bridge have the folder."""
        for file in self._files.values():
            _close(file)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class CloudReader:
    """Makes records of chunks.

    Args:
        cloud: whose logs they are.
        skipped: interfaces whose records do not count.
    """

    def __init__(self, cloud: CloudFormat, skipped: tuple[str, ...] = ()) -> None:
        self.ends = Ends(cloud)
        self._cloud, self._skipped = cloud, frozenset(skipped)

    def read(self, chunk: Chunk) -> Parsed:
        """Return the records of a chunk, and every line that is none."""
        parsed = self._parsed(chunk)
        return replace(parsed, denied=parsed.denied.with_columns(pl.lit(self._cloud.value).alias(EXPORTER)))

    def _parsed(self, chunk: Chunk) -> Parsed:
        if self._cloud is CloudFormat.AWS:
            return aws.read_aws(chunk.raw, chunk.fmt.header, self.ends, self._skipped)
        read = read_google if self._cloud is CloudFormat.GOOGLE else azure.read_azure
        return read(chunk.raw, self.ends, self._skipped)


def _head_of(path: Path, count: int = _HEAD) -> bytes:
    with path.open("rb") as stream:
        return stream.read(count)


def _text(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _rest_of_text(stream: gzip.GzipFile | BufferedReader, offset: int, *, has_header: bool) -> _Rest:
    """Return what follows an offset of a text; its first line is the header, if it names fields."""
    first = stream.readline() if has_header else b""
    begin = len(first) if aws.is_header(first) else 0
    header = " ".join(first.decode("utf-8", "replace").split()) if begin else ""
    if missing := begin and aws.missing_fields(header):
        stream.close()
        raise ValueError(f"its format has no {', '.join(missing)}")
    stream.seek(max(offset, begin))
    at = max(offset, begin)

    def take(limit: int) -> tuple[bytes, int]:
        nonlocal at
        # A last line without its end is whole: objects are.
        raw = stream.read(limit)
        raw += stream.readline() if raw and not raw.endswith(b"\n") else b""
        at += len(raw)
        return raw, at

    return _Rest(header, take, stream.close)


def _rest_of_lines(lines: list[bytes], offset: int) -> _Rest:
    """Return lines from one on, whose numbers are offsets."""
    at = offset

    def take(limit: int) -> tuple[bytes, int]:
        nonlocal at
        some = lines[at : at + max(limit // _BYTES_A_ROW, 1)]
        at += len(some)
        return b"".join(line + b"\n" for line in some), at

    return _Rest("", take)


def _rest_of_parquet(path: Path, offset: int) -> _Rest:
    """Return the rows of AWS's Parquet as lines of its text: its columns have the fields' names, with _ for -."""
    rows = pl.scan_parquet(path)
    names = rows.collect_schema().names()
    header = " ".join(name.replace("_", "-") for name in names)
    if missing := aws.missing_fields(header):
        raise ValueError(f"its format has no {', '.join(missing)}")
    at = offset

    def take(limit: int) -> tuple[bytes, int]:
        nonlocal at
        some = rows.slice(at, max(limit // _BYTES_A_ROW, 1)).collect()
        at += some.height
        text = some.write_csv(include_header=False, separator=" ", null_value="-", quote_style="never")
        return text.encode(), at

    return _Rest(header, take)


def _close(file: _File) -> None:
    if file.rest is not None:
        file.rest.close()
        file.rest = None
