"""Sums over time bins, of any measurement and retention, as one frame: what studies of long ranges read."""

from collections.abc import Iterable, Sequence

import polars as pl

from cluster.schema import Field, Kind, Measurement
from ingest.points import WINDOW
from ingest.store import ROWS, Store

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
    where: Iterable[str] = (),
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
        where: further conditions, in InfluxQL.

    Returns:
        WINDOW (epoch seconds), the tags (String), the fields (Int64 or Float64); bins without points are not there.
        Whole numbers are exact up to 2^53.
    """
    if stop <= start:
        return pl.DataFrame(schema={WINDOW: pl.Int64, **dict.fromkeys(tags, pl.String), **_kinds(fields)})
    columns = ", ".join(f'sum("{field.name}")' for field in fields)
    conditions = " AND ".join([*where, f"time >= {start}s", f"time < {stop}s"])
    names = ", ".join(f'"{tag}"' for tag in tags)
    text = (
        f'SELECT {columns} FROM "{retention}"."{measurement.name}" '  # noqa: S608 - the schema's names
        f"WHERE {conditions} GROUP BY time({seconds}s), {names} fill(none)"
    )
    found = store.numbers(text, tuple(tags), tuple(field.name for field in fields))
    table = pl.from_numpy(found.values, schema=list(found.columns))
    return pl.concat([_repeated(found.tags, tags), table], how="horizontal").select(
        (pl.col("time").cast(pl.Int64) // _MILLI).alias(WINDOW),
        *tags,
        *(pl.col(name).fill_nan(None).cast(kind) for name, kind in _kinds(fields).items()),
    )


def _kinds(fields: Sequence[Field]) -> dict[str, type[pl.DataType]]:
    return {field.name: pl.Int64 if field.kind is Kind.INT else pl.Float64 for field in fields}


def _repeated(series: pl.DataFrame, tags: Sequence[str]) -> pl.DataFrame:
    """Return the tags of each row."""
    return series.select(pl.col(tag).repeat_by(ROWS).explode() for tag in tags)


def text_of(value: str) -> str:
    """Return a value as InfluxQL writes it."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def any_of(tag: str, values: Iterable[str]) -> str:
    """Return the condition that a tag has one of these values, at least one, in InfluxQL."""
    terms = " OR ".join(f'"{tag}" = {text_of(value)}' for value in sorted(values))
    return f"({terms})"
