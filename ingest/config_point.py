"""Changes of the configuration as points, so that boards can show them where the traffic changes."""

from collections.abc import Sequence

import polars as pl

from cluster import schema
from cluster.config_log import Record
from ingest.points import WINDOW

_LONGEST = 300


def config_points(records: Sequence[Record]) -> pl.DataFrame:
    """Return the rows of `schema.CONFIG_CHANGE` for records of the log; those that are stored already stay the same."""
    return pl.DataFrame(
        {
            WINDOW: [record.time for record in records],
            schema.PROCESS: [record.process for record in records],
            schema.CONFIG_KEYS.name: [record.total for record in records],
            schema.CONFIG_EVENT.name: [f"{record.process}: {record.summary()}"[:_LONGEST] for record in records],
        },
        schema={
            WINDOW: pl.Int64,
            schema.PROCESS: pl.String,
            schema.CONFIG_KEYS.name: pl.Int64,
            schema.CONFIG_EVENT.name: pl.String,
        },
    )
