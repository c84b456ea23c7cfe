"""Sums over time bins, of any measurement and retention, as one frame: what studies of long ranges read."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import polars as pl

from cluster.model import Retention
from store.influx import ROWS, Store
from store.influxql import Condition, Select, total
from store.points import WINDOW
from store.schema import RAW, Field, Kind, Measurement

_MILLI = 1000


def binned(
    store: Store,
    measurement: Measurement,
    retention: str,
    fields: Sequence[Field],
    tags: Sequence[str],
    *,
    start: int,
    stop: int,
    seconds: int,
    where: Iterable[Condition] = (),
) -> pl.DataFrame:
    """Return the sums of fields in bins of [start, stop), a row a bin and combination of tags.

    Args:
        store: asked.
        measurement: what is summed.
        retention: where it is read; its windows divide `seconds`.
        fields: numbers; null where a bin has none.
        tags: a point without one of them has it empty.
        start: epoch seconds, a multiple of `seconds`.
        stop: epoch seconds; the last bin may be cut off by it.
        seconds: length of a bin.
        where: further conditions.

    Returns:
        WINDOW (epoch seconds), the tags (String), the fields (Int64 or Float64); bins without points are not there.
        Whole numbers are exact up to 2^53.
    """
    if stop <= start:
        return pl.DataFrame(schema=_names(tags, fields))
    asked = Select(measurement, retention).take(*map(total, fields)).where(*where).by(*tags)
    found = store.numbers(asked.each(seconds).between(start, stop))
    table = pl.from_numpy(found.values, schema=list(found.columns))
    return pl.concat([_repeated(found.tags, tags), table], how="horizontal").select(
        (pl.col("time").cast(pl.Int64) // _MILLI).alias(WINDOW),
        *tags,
        *(pl.col(name).fill_nan(None).cast(kind) for name, kind in _kinds(fields).items()),
    )


class KeptBins:
    """Sums of raw bins that nothing can change any more: what an earlier call has read is not read again.

    Args:
        store, measurement, fields, tags, seconds, where: see `binned`.
    """

    def __init__(
        self, store: Store, measurement: Measurement, fields: Sequence[Field], tags: Sequence[str], *,
        seconds: int, where: Iterable[Condition] = (),
    ) -> None:  # fmt: skip
        self._asked = (store, measurement, RAW, fields, tags)
        self._seconds, self._where = seconds, tuple(where)
        self._known = (0, 0, pl.DataFrame(schema=_names(tags, fields)))

    def read(self, start: int, stop: int) -> pl.DataFrame:
        """Return the bins of [start, stop), as `binned`."""
        begin, end, known = self._known
        if not begin <= start <= end:
            end, known = start, known.clear()
        fresh = binned(*self._asked, start=end, stop=stop, seconds=self._seconds, where=self._where)
        known = pl.concat([known.filter(pl.col(WINDOW) >= start), fresh])
        self._known = start, max(end, stop), known
        return known


def first_seen(
    store: Store, retentions: Iterable[Retention], there: Select, by: int | None = None
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the first moment, epoch seconds, of each series in each retention, and the values of its tags.

    Args:
        store: asked.
        retentions: looked through.
        there: of any retention, with the earliest value of a field taken.
        by: epoch second at which windows must be over.
    """
    for retention in retentions:
        # A rolled-up window that is not over yet may hold what comes after the moment.
        stop = None if by is None else by - retention.window + 1
        for moment, *tags, _ in store.rows(replace(there, retention=retention.name).between(stop=stop)):
            yield moment, tuple(tags)


def _kinds(fields: Sequence[Field]) -> dict[str, type[pl.DataType]]:
    return {field.name: pl.Int64 if field.kind is Kind.INT else pl.Float64 for field in fields}


def _names(tags: Sequence[str], fields: Sequence[Field]) -> dict[str, type[pl.DataType]]:
    return {WINDOW: pl.Int64, **dict.fromkeys(tags, pl.String), **_kinds(fields)}


def _repeated(series: pl.DataFrame, tags: Sequence[str]) -> pl.DataFrame:
    """Return the tags of each row."""
    return series.select(pl.col(tag).repeat_by(ROWS).explode() for tag in tags)
