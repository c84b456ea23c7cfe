"""A change of the configuration as a point, so that boards can show it where the traffic changes."""

import polars as pl

from cluster import schema
from cluster.config_log import Record
from ingest.points import WINDOW

_LONGEST = 300


def config_point(record: Record) -> pl.DataFrame:
    """Return the row of `schema.CONFIG_CHANGE` for a record of the log."""
    row = {
        WINDOW: [record.time],
        schema.PROCESS: [record.process],
        schema.CONFIG_KEYS.name: [record.total],
        schema.CONFIG_EVENT.name: [f"{record.process}: {record.summary()}"[:_LONGEST]],
    }
    return pl.DataFrame(row)
