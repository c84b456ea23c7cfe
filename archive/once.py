"""Of what several exporters saw, the best one's records count, as in the bridge; here by conversation and hour.

The writer tells it for an hour that is over (`File.decided`), the reader for what is newer or came late.
"""

import polars as pl

from archive import schema
from archive.manifest import HOUR

SLACK = 10
"""Seconds by which the clocks of two exporters may differ."""

KEY, BEST, FROM, TO = "_key", "_best", "_from", "_to"
# By their texts: rows in memory may have Enums of their own.
_CONVERSATION = (
    *(pl.col(name).cast(pl.String) for name in (schema.SRC, schema.DST)),
    *(pl.col(name) for name in (schema.SRC_PORT, schema.DST_PORT)),
    pl.col(schema.PROTOCOL).cast(pl.String),
)
# 64 bits in place of the texts: half of the time and of the memory. Of an hour of 4 million conversations, two have
# the same in one of two million hours.
HASH = pl.sum_horizontal(
    *(column.hash(seed) for seed, column in enumerate(_CONVERSATION)), (pl.col(schema.END) // HOUR).hash(9)
).alias(KEY)
_IS_COUNTED = (
    ((pl.col(schema.RANK) - pl.col(BEST)) % schema.EXPORTERS == 0)
    | (pl.col(schema.START) < pl.col(FROM) - SLACK)
    | (pl.col(schema.END) > pl.col(TO) + SLACK)
)
# Where nobody else saw a conversation, there is no best.
_TOLD = (
    pl.when(pl.col(schema.RANK) == 0).then(schema.COUNTED).otherwise(_IS_COUNTED.fill_null(True)).alias(schema.COUNTED)
)


def counted_once(rows: pl.LazyFrame, among: pl.LazyFrame | None = None) -> pl.LazyFrame:
    """Return the rows, `counted` told anew for those that several exporters may have; their order may change.

    A record counts if it is of the best exporter that saw the conversation in its hour, or if that one saw nothing of
    the conversation at the record's begin or at its end.

    Args:
        rows: of `archive.schema`.
        among: what they are compared with, themselves included; without, themselves.
    """
    asked = rows.filter(pl.col(schema.RANK) > 0).with_columns(HASH)
    # Of an hour, only what is compared with these rows: the rest is a multiple of them.
    mates = asked
    if among is not None:
        mates = among.filter(pl.col(schema.RANK) > 0).with_columns(HASH)
        mates = mates.join(asked.select(KEY).unique(), on=KEY, how="semi")
    told = asked.join(_best(mates), on=KEY).with_columns(_IS_COUNTED.alias(schema.COUNTED))
    return pl.concat([rows.filter(pl.col(schema.RANK) == 0), told.select(list(schema.SCHEMA))])


def counted_by(rows: pl.LazyFrame, best: pl.DataFrame) -> pl.LazyFrame:
    """Return the same as `counted_once` of rows, given of which conversations several exporters have records.

    Args:
        rows: of `archive.schema`.
        best: KEY, BEST, FROM, TO of each such conversation.
    """
    told = rows.with_columns(HASH).join(best.lazy(), on=KEY, how="left").with_columns(_TOLD)
    return told.select(list(schema.SCHEMA))


def with_counted(rows: pl.DataFrame, best: pl.DataFrame) -> pl.DataFrame:
    """Return the same of rows in memory, in their order: most of their columns take no part."""
    asked = rows.lazy().select(HASH, schema.RANK, schema.START, schema.END, schema.COUNTED)
    told = asked.join(best.lazy(), on=KEY, how="left", maintain_order="left").select(_TOLD)
    return rows.with_columns(told.collect(engine="streaming").to_series())


def _best(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the smallest rank of each conversation and hour, and what time the records of its exporter span."""
    seen = rows.group_by(KEY, pl.col(schema.RANK) % schema.EXPORTERS).agg(
        pl.min(schema.RANK).alias(BEST), pl.min(schema.START).alias(FROM), pl.max(schema.END).alias(TO)
    )
    return seen.select(KEY, BEST, FROM, TO).join(seen.group_by(KEY).agg(pl.min(BEST)), on=[KEY, BEST])
