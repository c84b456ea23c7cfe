"""Sums over time bins, of any measurement and retention, as one frame: what studies of long ranges read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from cluster.model import Retention
from store.influx import ROWS, Numbers, Store
from store.influxql import Condition, Select, beside, identifier, total
from store.points import WINDOW, columns
from store.schema import BYTES, Field, Measurement

_MILLI = 1000
_SERIES = "series"


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
    as_stored: bool = False,
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
        as_stored: few points fall into a bin: they are added up here, see `windows`.

    Returns:
        WINDOW (epoch seconds), the tags (String), the fields (Int64 or Float64); bins without points are not there.
        Whole numbers are exact up to 2^53.
    """
    if stop <= start:
        return pl.DataFrame(schema=columns(*tags, *fields))
    asked = Select(measurement, retention).take(*map(total, fields)).where(*where).by(*tags)
    asked = asked.between(start, stop)
    found = windows(store, asked, seconds) if as_stored else _frame(store.numbers(asked.each(seconds)), tags)
    return found.select(pl.col(name).cast(kind) for name, kind in columns(*tags, *fields).items())


def windows(store: Store, asked: Select, seconds: int = 1) -> pl.DataFrame:
    """Return sums and largest values of each window: WINDOW, the tags and columns asked for, as they come.

    Windows that begin in the same `seconds` are one.

    InfluxDB takes five times as long to add up points as to hand them out, and most series have one a window.
    """
    plain = tuple(replace(beside(one), expression=identifier(one.reads[0])) for one in asked.columns)
    found = store.numbers(replace(asked, columns=plain))
    frame = _frame(found, asked.tags)
    key = [_SERIES, WINDOW]
    series = np.repeat(np.arange(found.tags.height), found.tags.get_column(ROWS).to_numpy())
    frame = frame.with_columns(pl.Series(_SERIES, series), pl.col(WINDOW) // seconds * seconds)
    if frame.select(pl.struct(key).is_duplicated().any()).item():
        # Of several shards, or of tags that were not asked for.
        added = (
            pl.col(one.name).max() if one.function == "max" else
            pl.when(pl.col(one.name).count() > 0).then(pl.col(one.name).sum()) for one in asked.columns
        )  # fmt: skip
        frame = frame.group_by(*key, *asked.tags, maintain_order=True).agg(*added)
    return frame.drop(_SERIES)


def sent_in(found: pl.DataFrame, kinds: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the rows that hold bytes, with these columns; 0 where a number is unknown."""
    sent = found.filter(pl.col(BYTES.name) != 0)
    return sent.select(
        (pl.col(name) if kind == pl.String else pl.col(name).fill_null(0)).cast(kind) for name, kind in kinds.items()
    )


def _frame(found: Numbers, tags: Sequence[str]) -> pl.DataFrame:
    table = pl.from_numpy(found.values, schema=list(found.columns), orient="row").fill_nan(None)
    moment = (pl.col("time").cast(pl.Int64) // _MILLI).alias(WINDOW)
    return pl.concat([_repeated(found.tags, tags), table], how="horizontal").select(moment, *tags, *found.columns[1:])


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
    for frame in first_seen_frames(store, retentions, there, by):
        for moment, *tags in frame.iter_rows():
            yield moment, tuple(tags)


def first_seen_frames(
    store: Store, retentions: Iterable[Retention], there: Select, by: int | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the same, a frame a retention: WINDOW, the tags. There may be millions of series."""
    for retention in retentions:
        # A rolled-up window that is not over yet may hold what comes after the moment.
        stop = None if by is None else by - retention.window + 1
        found = store.numbers(replace(there, retention=retention.name).between(stop=stop))
        yield _frame(found, there.tags).select(WINDOW, *there.tags)


def _repeated(series: pl.DataFrame, tags: Sequence[str]) -> pl.DataFrame:
    """Return the tags of each row."""
    return series.select(pl.col(tag).repeat_by(ROWS).explode() for tag in tags)
