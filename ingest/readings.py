"""What a process that brings flows into the store says of itself, and of the exporters that it heard."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from cluster import schema
from cluster.model import Cluster
from ingest.engine import ExporterReading
from ingest.points import WINDOW

_PAGE = 4096

_COLUMNS = {
    WINDOW: pl.Int64,
    schema.EXPORTER: pl.String,
    schema.AGE.name: pl.Float64,
    schema.LAST_SEEN.name: pl.Float64,
    schema.LAG.name: pl.Float64,
    schema.SKEW.name: pl.Float64,
    schema.SAMPLING.name: pl.Int64,
}


def exporter_readings(
    cluster: Cluster,
    exporters: Mapping[str, ExporterReading],
    *,
    window: int,
    started: float,
    drained: float,
    elsewhere: Mapping[str, float] | None = None,
) -> pl.DataFrame:
    """Return the readings of every exporter that is configured or was heard, as rows of EXPORTER_STATUS.

    Args:
        cluster: names the exporters that should be heard.
        exporters: those that were.
        window: of the rows, epoch seconds.
        started: since when they could have been heard, epoch seconds.
        drained: up to when the source is known to be read, having nothing more at that time; 0 if never.
        elsewhere: when others heard an exporter, epoch seconds.
    """
    elsewhere = elsewhere or {}
    # We know as much as the newest record, or the last look that found none: while a backlog waits, as after an
    # outage of the store, an exporter's silence is ours.
    heard = max(drained, *(reading.last_seen for reading in exporters.values()), 0.0)
    rows = []
    for name in sorted({*(exporter.name for exporter in cluster.exporters), *exporters}):
        reading = exporters.get(name)
        # Before our own start we could not have heard it.
        last_seen = max(started, reading.last_seen if reading else 0.0, elsewhere.get(name, 0.0))
        rows.append(
            (window, name, max(heard - last_seen, 0.0))
            + ((reading.last_seen, reading.lag, reading.skew, reading.sampling) if reading else (None,) * 4)
        )
    return pl.DataFrame(rows, schema=_COLUMNS, orient="row")


def resident_bytes() -> int:
    """Return the memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
