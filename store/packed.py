"""Rows that make no series: many as one text in a field, written over as other points are.

Of those who ask inference only some have names; the rest is `other` in their measurements and a row each here. That
stands in the store, not in files of the bridge: there partial totals of several bridges, backups and retentions meet
already, and a window that is written again is one row, not two.
"""

import base64
import zlib
from collections.abc import Iterable

import polars as pl

from store import schema
from store.influx import Store
from store.influxql import Condition, Select, everything
from store.points import WINDOW, columns
from store.schema import Measurement

ASKED = columns(
    schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE, schema.OFF_WINDOW,
    schema.COUNTRY, schema.NETWORK, schema.BYTES, schema.FLOWS, schema.DURATION,
)  # fmt: skip
"""Conversations that a source opened: a row a window and conversation."""

UNNAMED = "unnamed"
"""Column (Boolean): a row's client has no name, and may only get a series where it is one of few."""

_PART = pl.col(schema.SRC).str.extract("([0-9a-f])$").fill_null("x").alias(schema.PART)
_PARTS = pl.DataFrame({schema.PART: [*"0123456789abcdefx"]})
_MOST = 1_500
"""Rows of a text: InfluxDB takes 64 KB. The smallest beyond them are one, `other`."""


def packed(rows: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Return the points that hold rows.

    Args:
        rows: WINDOW, SRC and other texts and numbers; the first number is the size.
        places: WINDOW and the tags of points that are written, part and shard apart; without rows they are empty.
    """
    keys, numbers = places.columns, [name for name, kind in rows.schema.items() if kind.is_numeric() and name != WINDOW]
    texts = [name for name in rows.columns if name not in {*keys, *numbers}]
    rows = rows.with_columns(_PART)
    size = pl.struct(-pl.col(numbers[0]), *texts).rank("ordinal").over(*keys, schema.PART)
    if rows.height > _MOST:
        rows = rows.with_columns(
            pl.when(size > _MOST).then(pl.lit(schema.OTHER)).otherwise(pl.col(tag)).alias(tag) for tag in texts
        )
    sums = rows.group_by(*keys, schema.PART, *texts).agg(pl.col(numbers).sum()).sort(*keys, *texts)
    parts = sums.partition_by(*keys, schema.PART, as_dict=True)
    found = pl.DataFrame(
        [(*key, _text(part.drop(schema.PART))) for key, part in parts.items()],
        schema={**places.schema, schema.PART: pl.String, schema.PACKED.name: pl.String},
        orient="row",
    )
    everywhere = places.unique(maintain_order=True).join(_PARTS, how="cross")
    points = everywhere.join(found, on=[*keys, schema.PART], how="left", maintain_order="left")
    return points.with_columns(pl.col(schema.PACKED.name).fill_null(""))


def unpacked(
    store: Store,
    measurement: Measurement,
    kinds: dict[str, pl.DataType],
    *,
    start: int,
    stop: int,
    where: Iterable[Condition] = (),
) -> pl.DataFrame:
    """Return the rows of the points in [start, stop), epoch seconds.

    Args:
        store: asked.
        measurement: it was packed as.
        kinds: columns of the rows.
        start: of the points.
        stop: likewise.
        where: conditions on the tags of the rows: what each may be.
    """
    points = store.frame(Select(measurement, measurement.kept).take(everything()).between(start, stop).text())
    bodies: dict[str, list[str]] = {}
    for text in points.get_column(schema.PACKED.name).to_list() if points.height else []:
        if text:
            head, _, body = zlib.decompress(base64.b64decode(text)).decode().partition("\n")
            bodies.setdefault(head, []).append(body)
    frames = [pl.read_csv(f"{head}\n{''.join(body)}".encode(), schema_overrides=kinds) for head, body in bodies.items()]
    rows = pl.concat([pl.DataFrame(schema=kinds), *frames], how="diagonal").select(*kinds)
    rows = rows.with_columns(pl.col(pl.String).fill_null(""))
    for condition in where:
        wanted = pl.DataFrame(condition.values, schema=["tag", "value"], orient="row")
        for (tag,), values in wanted.group_by("tag"):
            rows = rows.filter(pl.col(str(tag)).is_in(values.get_column("value").implode()))
    return rows


def told_apart(rows: pl.DataFrame, rest: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return named rows and, in place of their ``other`` where `rest` has it, the rows of `rest`, marked UNNAMED."""
    is_rest = pl.col(schema.SRC) == schema.OTHER
    unknown = rows.filter(is_rest).join(rest.select(keys).unique(), on=keys, how="anti")
    named = pl.concat([rows.filter(~is_rest), unknown]).with_columns(pl.lit(value=False).alias(UNNAMED))
    return pl.concat([named, rest.select(rows.columns).with_columns(pl.lit(value=True).alias(UNNAMED))])


def _text(rows: pl.DataFrame) -> str:
    return base64.b64encode(zlib.compress(rows.write_csv().encode())).decode()
