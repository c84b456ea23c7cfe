"""The state of a partition, as records of a compacted topic.

A record is a piece of one frame: the rows of one table in one window, so that a flush writes the windows that it
touched and nothing else, however much is remembered. Its key is ``name/window/piece``; a later record with the same key
takes its place, one without a value removes it. What is no window lies at window 0. The notes are JSON, and are cut up
as well: they name each pair of groups for which something was found out.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import polars as pl

from app.errors import UserError
from ingest.count.engine import SAMPLES, Engine
from store.points import WINDOW

VERSION = 1
"""Format of the records; another version refuses to read them."""

RECORD_BYTES = 900_000
"""Size that a value does not pass: with its envelope it fits Kafka's default ``message.max.bytes`` of 1 MiB."""

Record = tuple[bytes, bytes | None]
"""Key and value."""

_DAMAGE = ValueError, TypeError, AttributeError, KeyError, OSError, RecursionError, zlib.error
"""What reading damaged notes and frames may raise, besides polars' own errors."""

_NOTES = "notes"
_Place = tuple[str, int]
_NOTES_PLACE: _Place = _NOTES, 0
_QUICKLY = 1


class StateRecords:
    """Knows what the topic has of one partition's engine, and which records bring it up to date.

    Args:
        names_each: seconds between two records of the names that were given. They change with every flush and only
            bound how many there are; those of the windows in memory are known from the windows themselves.
    """

    def __init__(self, names_each: float) -> None:
        self._names_each = names_each
        self._names_written: float | None = None
        self._touched: dict[str, set[int]] = {}
        self._gone: set[_Place] = set()
        self._beside: dict[str, pl.DataFrame] = {}
        self._pieces: dict[_Place, int] = {}
        self._offered: dict[_Place, int] = {}
        self._offered_beside: dict[str, pl.DataFrame] = {}

    def touch(self, engine: Engine) -> None:
        """Note the windows that the engine's next `merge` changes."""
        for name, table in engine.parts.items():
            if table.pending_rows:
                self._touched.setdefault(name, set()).update(table.pending_windows().to_list())

    def forget(self, evicted: Iterable[tuple[str, pl.DataFrame]]) -> None:
        """Note what `Engine.evict` let go: its records go with the next flush."""
        for name, rows in evicted:
            self._gone.update((name, window) for window in rows.get_column(WINDOW).unique().to_list())

    def records(self, engine: Engine, notes: Mapping[str, Any], now: float) -> list[Record]:
        """Return what the topic lacks; the same again and more until `committed` says that it is there.

        Args:
            engine: nothing may be pending in it.
            notes: plain values beside the engine's own.
            now: any clock that only grows, seconds.
        """
        # Records that were offered in vain may be there or not: they are counted among what has to be replaced.
        for place, pieces in self._offered.items():
            self._pieces[place] = max(pieces, self._pieces.get(place, 0))
        self._offered = dict.fromkeys(self._gone, 0)
        found = [record for place in self._gone for record in self._replaced(place, [])]
        for name, windows in self._touched.items():
            found += self._windows(name, engine.parts[name].rows_of(windows), windows)
        self._offered_beside = self._due(engine, now)
        for name, frame in self._offered_beside.items():
            found += self._replaced((name, 0), list(_pieces(frame)))
        document = {"version": VERSION, **notes, "engine": engine.notes()}
        return [*found, *self._replaced(_NOTES_PLACE, _note_pieces(document))]

    def committed(self, now: float) -> None:
        """Take note that the topic has what `records` returned last."""
        self._pieces |= self._offered
        self._pieces = {place: pieces for place, pieces in self._pieces.items() if pieces}
        self._beside |= self._offered_beside
        if any(name != SAMPLES for name in self._offered_beside):
            self._names_written = now
        self._touched, self._offered, self._offered_beside = {}, {}, {}
        self._gone = set()

    def restored(self, keys: Iterable[bytes]) -> None:
        """Take note of the keys that the topic has."""
        for key in keys:
            name, window, piece = _parts(key)
            self._pieces[name, window] = max(piece + 1, self._pieces.get((name, window), 0))

    def _windows(self, name: str, rows: pl.DataFrame, windows: set[int]) -> Iterator[Record]:
        parts = {int(str(window)): part for (window,), part in rows.partition_by([WINDOW], as_dict=True).items()}
        for window in windows:
            values = list(_pieces(parts[window])) if window in parts else []
            yield from self._replaced((name, window), values)

    def _replaced(self, place: _Place, values: list[bytes]) -> Iterator[Record]:
        """Return the records of a place, and tombstones for the pieces that it had beyond them."""
        self._offered[place] = len(values)
        for piece, value in enumerate(values):
            yield _key(*place, piece), value
        for piece in range(len(values), self._pieces.get(place, 0)):
            yield _key(*place, piece), None

    def _due(self, engine: Engine, now: float) -> dict[str, pl.DataFrame]:
        names_due = self._names_written is None or now - self._names_written >= self._names_each
        return {
            name: frame
            for name, frame in engine.frames_beside().items()
            if (name == SAMPLES or names_due) and self._beside.get(name) is not frame
        }


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the topic had of a partition.

    Attributes:
        frames: as `Engine.load` takes them.
        notes: those that `StateRecords.records` was given, and the engine's under ``engine``.
        keys: of all records.
    """

    frames: dict[str, pl.DataFrame]
    notes: dict[str, Any]
    keys: tuple[bytes, ...]


def remembered(values: Mapping[bytes, bytes], where: str) -> Remembered | None:
    """Return what the newest records of a partition say; None without any; UserError if they make no sense.

    Args:
        values: newest value of each key, without those removed.
        where: topic and partition, for whoever reads the error.
    """
    if not values:
        return None
    frames: dict[str, list[pl.DataFrame]] = {}
    keys = sorted(values, key=_parts)
    try:
        notes = _notes_of([values[key] for key in keys if _parts(key)[0] == _NOTES])
        if notes["version"] != VERSION:
            raise UserError(
                f"{where}: written by another version (format {notes['version']}, expected {VERSION})",
                "finish with that version, or set kafka.state_topic and kafka.group to new names",
            )
        for key in keys:
            name = _parts(key)[0]
            if name != _NOTES:
                frames.setdefault(name, []).append(pl.read_ipc_stream(BytesIO(values[key])))
        # A topic may hold records of before a column was kept.
        whole = {name: pl.concat(parts, how="diagonal") for name, parts in frames.items()}
        return Remembered(whole, notes, tuple(values))
    except (*_DAMAGE, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise UserError(
            f"{where}: the workers' state is damaged: {error}", "set kafka.state_topic and kafka.group to new names"
        ) from error


def _pieces(frame: pl.DataFrame) -> Iterator[bytes]:
    """Return the frame as Arrow, in as many pieces as the size of a record asks for; at least one."""
    buffer = BytesIO()
    # The producer packs many records together, which saves far more than each for itself.
    frame.write_ipc_stream(buffer, compression="uncompressed")
    if buffer.tell() <= RECORD_BYTES or frame.height <= 1:
        yield buffer.getvalue()
        return
    half = frame.height // 2
    yield from _pieces(frame.slice(0, half))
    yield from _pieces(frame.slice(half))


def _note_pieces(document: Mapping[str, Any]) -> list[bytes]:
    """Return the notes in as many pieces as the size of a record asks for.

    What fits into one stays plain, as versions before read it, and anybody who looks.
    """
    text = json.dumps(document).encode()
    if len(text) > RECORD_BYTES:
        text = zlib.compress(text, _QUICKLY)
    return [text[start : start + RECORD_BYTES] for start in range(0, len(text), RECORD_BYTES)]


def _notes_of(pieces: list[bytes]) -> Any:  # noqa: ANN401 - JSON
    text = b"".join(pieces)
    return json.loads(text if text.startswith(b"{") else zlib.decompress(text))


def _key(name: str, window: int, piece: int) -> bytes:
    return f"{name}/{window}/{piece}".encode()


def _parts(key: bytes) -> tuple[str, int, int]:
    name, window, piece = key.decode().rsplit("/", 2)
    return name, int(window), int(piece)
