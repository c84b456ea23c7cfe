"""The state of the lists in use, as points."""

from collections.abc import Iterable

import polars as pl

from cluster.model import ListSettings
from enrichment.list_states import reading_rows
from enrichment.watched import FileReading
from store import schema
from store.points import WINDOW
from store.schema import Kind

_TYPES = {Kind.INT: pl.Int64, Kind.FLOAT: pl.Float64, Kind.STRING: pl.String}
_COLUMNS = {
    WINDOW: pl.Int64,
    schema.NAME: pl.String,
    schema.KIND: pl.String,
    **{field.name: _TYPES[field.kind] for field in schema.ENRICHMENT.fields},
}


def list_points(readings: Iterable[FileReading], settings: ListSettings, now: float, window: int) -> pl.DataFrame:
    """Return the rows of ENRICHMENT, without the shard.

    Args:
        readings: of all files.
        settings: when they are too old.
        now: epoch seconds.
        window: of the rows, epoch seconds.
    """
    rows = [{WINDOW: window, **row} for row in reading_rows(readings, settings, now)]
    return pl.DataFrame(rows, schema=_COLUMNS)
