"""How many bytes count in hours of which nobody has told yet what counts: for the share of all traffic.

Asked of all records of such an hour, that takes seconds. So the writer's thread keeps a tally of the hour: of each
ranked row its conversation's number, rank, times and bytes, in the order of the numbers, and the bytes that count among
them. Only conversations of which there is more since are looked up in it.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from archive import schema
from archive.manifest import Tally
from archive.once import BEST, FROM, HASH, KEY, SLACK, TO

SUFFIX = ".tally"
ROW = np.dtype([(KEY, "<u8"), (schema.RANK, "<i8"), (schema.BYTES, "<i8"), (schema.START, "<u4"), (schema.END, "<u4")])
Rows: TypeAlias = npt.NDArray[np.void]
"""Of ROW, in the order of the conversations' numbers."""

NOTHING: Rows = np.empty(0, ROW)

_AT_ONCE = 1_000_000


@cache
def probe() -> int:
    """Return the number of a conversation of our own: other versions of polars may number otherwise."""
    row = {name: kind.to_python()() for name, kind in schema.SCHEMA.items()}
    return int(pl.DataFrame([row], schema=schema.SCHEMA).select(HASH).item())


def numbered(rows: pl.LazyFrame) -> Rows:
    """Return the ranked ones of `archive.schema`'s rows."""
    asked = rows.filter(pl.col(schema.RANK) > 0).select(HASH, schema.RANK, schema.BYTES, schema.START, schema.END)
    frame = asked.collect(engine="streaming")
    found = np.empty(frame.height, ROW)
    for name in frame.columns:
        found[name] = frame[name].to_numpy()
    # An index in brackets copies such rows field by field: 16 times as slow.
    return np.take(found, frame[KEY].arg_sort().to_numpy())


def read_tally(folder: Path, tally: Tally) -> Rows:
    """Return its rows, mapped from the disk; OSError."""
    return np.memmap(folder / tally.name, ROW, "r", shape=(tally.rows,))


def is_whole(folder: Path, tally: Tally) -> bool:
    """Return whether its file is there, and numbers conversations as we do."""
    try:
        return (folder / tally.name).stat().st_size == tally.rows * ROW.itemsize and tally.probe == probe()
    except OSError:
        return False


def write_tally(runs: Sequence[Rows], path: Path) -> int:
    """Write rows so that they are there after a power failure; return the bytes that count. OSError."""
    total = 0
    with path.open("wb") as file:
        for part in _parts(runs):
            file.write(part.tobytes())
            total += _counted_bytes(part)
        file.flush()
        os.fsync(file.fileno())
    return total


def counted_with(known: Rows, counted_bytes: int, more: Rows) -> int:
    """Return the bytes that count of both together, where `counted_bytes` count of the known ones among themselves."""
    keys = more[KEY][_firsts(more[KEY])]
    begin, end = (np.searchsorted(known[KEY], keys, side=side) for side in ("left", "right"))
    lengths = end - begin
    places = np.repeat(end - np.cumsum(lengths), lengths) + np.arange(int(lengths.sum()))
    mates = np.take(known, places)
    return counted_bytes - _counted_bytes(mates) + sum(_counted_bytes(part) for part in _parts([mates, more]))


def counted_between(runs: Sequence[Rows], start: int, stop: int) -> int:
    """Return the bytes that count of rows that ended in [start, stop); the runs have all rows of their hour."""
    return sum(_counted_bytes(part, (part[schema.END] >= start) & (part[schema.END] < stop)) for part in _parts(runs))


def best_of(runs: Sequence[Rows]) -> pl.DataFrame:
    """Return KEY, BEST, FROM, TO of the conversations of which there are several ranks."""
    found = [pl.DataFrame(schema={KEY: pl.UInt64, BEST: pl.Int64, FROM: pl.Int64, TO: pl.Int64})]
    for rows in _parts(runs):
        spans = _spans(rows)
        is_shared = np.maximum.reduceat(rows[schema.RANK], spans.firsts) > spans.best
        columns = {KEY: rows[KEY][spans.firsts], BEST: spans.best, FROM: spans.begin, TO: spans.last}
        found.append(pl.DataFrame({name: column[is_shared] for name, column in columns.items()}))
    return pl.concat(found)


def _parts(runs: Sequence[Rows]) -> Iterator[Rows]:
    """Yield the rows of all runs in order, about a million at a time; a conversation is in one part."""
    count = -(-sum(len(run) for run in runs) // _AT_ONCE)
    edges = [np.uint64((number << 64) // count) for number in range(1, count)]
    cuts = [[0, *np.searchsorted(run[KEY], edges), len(run)] for run in runs]
    for part in range(count):
        rows = np.concatenate([run[cut[part] : cut[part + 1]] for run, cut in zip(runs, cuts, strict=True)])
        if len(rows):
            # Runs in order: numpy merges them.
            yield np.take(rows, np.argsort(rows[KEY], kind="stable"))


def _counted_bytes(rows: Rows, is_asked: npt.NDArray[np.bool_] | None = None) -> int:
    is_counted = _is_counted(rows) if is_asked is None else _is_counted(rows) & is_asked
    return int(rows[schema.BYTES][is_counted].sum())


def _is_counted(rows: Rows) -> npt.NDArray[np.bool_]:
    """Return which of the rows count: the rule of `counted_once`."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    spans = _spans(rows)
    lengths = np.diff(np.append(spans.firsts, len(rows)))
    best, begin, last = (np.repeat(values, lengths) for values in (spans.best, spans.begin, spans.last))
    start, end = (rows[name].astype(np.int64) for name in (schema.START, schema.END))
    counted: npt.NDArray[np.bool_] = _same(rows[schema.RANK], best) | (start < begin - SLACK) | (end > last + SLACK)
    return counted


@dataclass(frozen=True, slots=True)
class _Spans:
    """Of each conversation its first row, its best rank, and what time the records of that exporter span."""

    firsts: npt.NDArray[np.int64]
    best: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]


def _spans(rows: Rows) -> _Spans:
    key, rank = (np.ascontiguousarray(rows[name]) for name in (KEY, schema.RANK))
    start, end = (rows[name].astype(np.int64) for name in (schema.START, schema.END))
    firsts = _firsts(key)
    best = np.minimum.reduceat(rank, firsts)
    is_best = _same(rank, np.repeat(best, np.diff(np.append(firsts, len(key)))))
    begin = np.minimum.reduceat(np.where(is_best, start, np.iinfo(np.int64).max), firsts)
    last = np.maximum.reduceat(np.where(is_best, end, np.iinfo(np.int64).min), firsts)
    return _Spans(firsts, best, begin, last)


def _same(rank: npt.NDArray[np.int64], best: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which ranks are of the exporter that has the best one."""
    return np.asarray((rank - best) % schema.EXPORTERS == 0)


def _firsts(key: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return where each number is first, of numbers in order."""
    return np.flatnonzero(np.concatenate((key[:1] == key[:1], key[1:] != key[:-1])))
