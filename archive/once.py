"""Of what several exporters saw, the best one's records count, as in the bridge; here by conversation and hour.

The writer tells it for an hour that is over (`File.decided`), the reader for what is newer or came late.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from archive import schema
from archive.manifest import HOUR

SLACK = 10
"""Seconds by which the clocks of two exporters may differ."""

_AT_ONCE = 1_000_000
_KEY, _BEST, _FROM, _TO = "_key", "_best", "_from", "_to"
_CONVERSATION = [schema.SRC, schema.DST, schema.SRC_PORT, schema.DST_PORT, schema.PROTOCOL]
# 64 bits in place of the texts: half of the time and of the memory. Of an hour of 4 million conversations, two have
# the same in one of two million hours.
_HASH = pl.sum_horizontal(
    *(pl.col(name).hash(seed) for seed, name in enumerate(_CONVERSATION)), (pl.col(schema.END) // HOUR).hash(9)
).alias(_KEY)


def counted_once(rows: pl.LazyFrame, among: pl.LazyFrame | None = None) -> pl.LazyFrame:
    """Return the rows, `counted` told anew for those that several exporters may have; their order may change.

    A record counts if it is of the best exporter that saw the conversation in its hour, or if that one saw nothing of
    the conversation at the record's begin or at its end.

    Args:
        rows: of `archive.schema`.
        among: what they are compared with, themselves included; without, themselves.
    """
    asked = rows.filter(pl.col(schema.RANK) > 0).with_columns(_HASH)
    is_seen = (pl.col(schema.START) >= pl.col(_FROM) - SLACK) & (pl.col(schema.END) <= pl.col(_TO) + SLACK)
    # Of an hour, only what is compared with these rows: the rest is a multiple of them.
    mates = asked
    if among is not None:
        mates = among.filter(pl.col(schema.RANK) > 0).with_columns(_HASH)
        mates = mates.join(asked.select(_KEY).unique(), on=_KEY, how="semi")
    told = asked.join(_best(mates), on=_KEY).with_columns(
        ((pl.col(schema.RANK) == pl.col(_BEST)) | ~is_seen).alias(schema.COUNTED)
    )
    return pl.concat([rows.filter(pl.col(schema.RANK) == 0), told.select(list(schema.SCHEMA))])


def _best(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the smallest rank of each conversation and hour, and what time its records span."""
    seen = rows.group_by(_KEY, pl.col(schema.RANK).alias(_BEST)).agg(
        pl.min(schema.START).alias(_FROM), pl.max(schema.END).alias(_TO)
    )
    return seen.join(seen.group_by(_KEY).agg(pl.min(_BEST)), on=[_KEY, _BEST])


def counted_sums(rows: pl.LazyFrame, count: int, start: int, stop: int) -> pl.DataFrame:
    """Return the bytes that count by exporter, of rows that ended in [start, stop): those of `counted_once`.

    Numbers alone are read, once, and sorted in place of grouped: a third of the time. Whole hours are asked so.

    Args:
        rows: of whole hours.
        count: about how many: a million at a time are sorted.
        start: epoch seconds.
        stop: epoch seconds.
    """
    is_inside = pl.col(schema.END).is_between(start, stop, closed="left")
    by_exporter = pl.col(schema.BYTES).filter(pl.col(schema.COUNTED)).sum()
    told = rows.filter(pl.col(schema.RANK) == 0, is_inside).group_by(schema.EXPORTER).agg(by_exporter)
    times = (pl.col(name).cast(pl.UInt32) for name in (schema.START, schema.END))
    numbers = rows.filter(pl.col(schema.RANK) > 0).select(
        _HASH, schema.RANK, *times, schema.BYTES, pl.col(schema.EXPORTER).cast(pl.Categorical)
    )
    sums, read = pl.collect_all([told, numbers], engine="streaming")
    found, parts = [sums], -(-count // _AT_ONCE)
    for part in range(parts):
        mine = read.filter(pl.col(_KEY) % parts == part).sort(_KEY)
        counted = mine.with_columns(pl.Series(schema.COUNTED, _is_counted(mine))).filter(is_inside)
        found.append(counted.group_by(pl.col(schema.EXPORTER).cast(pl.String)).agg(by_exporter))
    return pl.concat(found).group_by(schema.EXPORTER).agg(pl.sum(schema.BYTES))


def _is_counted(rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which of the rows count, which are sorted by their conversation."""
    key, rank = (rows[name].to_numpy() for name in (_KEY, schema.RANK))
    start, end = (rows[name].to_numpy().astype(np.int64) for name in (schema.START, schema.END))
    if not len(key):
        return np.zeros(0, np.bool_)
    firsts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    lengths = np.diff(np.append(firsts, len(key)))

    def of_conversation(least: np.ufunc, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.repeat(least.reduceat(values, firsts), lengths)

    is_best = rank == of_conversation(np.minimum, rank)
    begin = of_conversation(np.minimum, np.where(is_best, start, np.iinfo(np.int64).max))
    last = of_conversation(np.maximum, np.where(is_best, end, np.iinfo(np.int64).min))
    counted: npt.NDArray[np.bool_] = is_best | (start < begin - SLACK) | (end > last + SLACK)
    return counted
