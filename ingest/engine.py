"""The bridge without its surroundings: record frames in, changed points out; its memory can be saved and loaded."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from cluster import schema
from cluster.model import Cluster
from cluster.schema import Measurement, Stage
from ingest import records
from ingest.aggregate import Aggregator, Watermark
from ingest.counters import Counters
from ingest.normalise import Clock, Flows, Normaliser
from ingest.points import WINDOW
from ingest.sequence import SequenceTracker
from ingest.tables import WindowTable

_TABLES = (
    schema.TRAFFIC,
    schema.NODE_TRAFFIC,
    schema.PAIR,
    schema.EGRESS,
    schema.VIOLATION,
    schema.UNKNOWN_NODE,
    schema.EXPORTER_STATUS,
)
"""Measurements that are made of window totals."""

_SERIES = "series-"


@dataclass(slots=True)
class ExporterReading:
    """What the newest records of an exporter said. Epoch seconds; seconds; 1 in `sampling` packets."""

    last_seen: float
    lag: float
    skew: float
    sampling: int


class Engine:
    """Everything between the reader and the writer.

    Args:
        cluster: names, windows, bounds.
        clock: live or backfill; a backfill keeps every window that comes back to it.
        counters: what was refused, late, skewed.
    """

    def __init__(self, cluster: Cluster, clock: Clock, counters: Counters) -> None:
        self._settings = cluster.bridge
        self._window_ms = cluster.bridge.window * 1000
        self._clock = clock
        self._counters = counters
        self._normaliser = Normaliser(cluster, clock)
        self._aggregator = Aggregator(cluster, self._normaliser)
        self._sequence = SequenceTracker()
        self._newest: int | None = None
        self.evicted_before = 0
        listed = [node.name for node in cluster.nodes]
        self.exporters: dict[str, ExporterReading] = {}
        self.tables = {
            measurement.name: WindowTable(
                measurement,
                listed=listed,
                named=cluster.bridge.named_per_window,
                budget=cluster.bridge.series_budget,
                keep=cluster.store.keep_raw,
            )
            for measurement in _TABLES
        }

    @property
    def newest(self) -> float | None:
        """End of the newest flow so far, epoch seconds."""
        return None if self._newest is None else self._newest / 1000

    @property
    def pending_rows(self) -> int:
        """Partial points that wait for `merge`."""
        return sum(table.pending_rows for table in self.tables.values())

    def take(self, frame: pl.DataFrame, now: float) -> pl.DataFrame:
        """Take a record frame; return the records refused, with a ``reason`` column.

        Args:
            frame: RECORD_SCHEMA.
            now: wall clock, epoch seconds.
        """
        flows, refused = self._normaliser.normalise(frame, int(now * 1000))
        self._counters.add(Stage.NORMALISE, "records", len(flows))
        if len(flows):
            partials = self._aggregator.aggregate(flows, self._watermark())
            for name, partial in partials.items():
                self.tables[name].add(partial)
            self._newest = max(self._newest or 0, int(flows.end.max()))
            self._note_losses(frame)
            self._note_exporters(flows, frame, now)
            self._count(flows)
        return refused

    def _watermark(self) -> Watermark:
        """Return where the stream stands before this batch; a batch alone never makes its own records late."""
        if self._clock is Clock.BACKFILL or self._newest is None:
            return Watermark(0, None)
        closed_ms = self._newest - self._settings.lateness * 1000
        return Watermark(closed_ms // self._window_ms, (closed_ms - self._settings.grace * 1000) // self._window_ms)

    def _count(self, flows: Flows) -> None:
        for field, flags in (
            (schema.UNKNOWN_RATE, flows.unknown_rate),
            (schema.ZERO_COUNTERS, flows.zero),
            (schema.SKEWED, flows.skewed),
        ):
            self._counters.add(Stage.NORMALISE, field.name, int(flags.sum()))
        self._counters.add(Stage.NORMALISE, schema.EXPORTER_SUPPRESSED.name, int(flows.bytes[~flows.counts].sum()))
        self._counters.add(Stage.NORMALISE, schema.EXPORTER_BYTES.name, int(flows.bytes.sum()))

    def _note_losses(self, frame: pl.DataFrame) -> None:
        lost = self._sequence.lost(frame)
        if not lost or self._newest is None:
            return
        window = self._newest // self._window_ms * self._settings.window
        numbers = self._normaliser.exporters.number(pl.Series("exporter", list(lost), pl.String))
        rows = pl.DataFrame(
            {
                WINDOW: [window] * len(lost),
                schema.EXPORTER: [self._normaliser.exporters.names[number] for number in numbers],
                schema.SEQ_LOST.name: list(lost.values()),
            }
        )
        self.tables[schema.EXPORTER_STATUS.name].add(rows)
        self._counters.add(Stage.COLLECT, schema.SEQ_LOST.name, sum(lost.values()))

    def _note_exporters(self, flows: Flows, frame: pl.DataFrame, now: float) -> None:
        if self._clock is Clock.BACKFILL:
            return
        book = self._normaliser.exporters
        newest = frame.group_by(records.EXPORTER).agg(pl.max(records.ARRIVAL))
        arrivals: dict[str, float] = {}
        for number, arrival in zip(book.number(newest[records.EXPORTER]), newest[records.ARRIVAL], strict=True):
            # Without arrival times the reading itself is the arrival.
            seen = now if arrival is None else arrival / 1000
            arrivals[book.names[number]] = max(seen, arrivals.get(book.names[number], 0.0))
        for number in np.unique(flows.exporter):
            own = flows.exporter == number
            lag = flows.lag[own]
            name = book.names[number]
            before = self.exporters.get(name)
            self.exporters[name] = ExporterReading(
                # Two collectors' files are read in turns: an older one must not take back what a newer one said.
                last_seen=max(arrivals[name], before.last_seen if before else 0.0),
                lag=float(lag.mean()) / 1000,
                skew=float(np.abs(lag).max()) / 1000,
                sampling=int(flows.rate[own].max()),
            )

    # -- windows -----------------------------------------------------------------------------------

    def merge(self) -> list[tuple[Measurement, pl.DataFrame]]:
        """Fold everything pending into the windows; return the points that changed."""
        changed = [(table.measurement, table.merge()) for table in self.tables.values() if table.pending_rows]
        over = sum(table.over_budget for table in self.tables.values())
        for table in self.tables.values():
            table.over_budget = 0
        self._counters.add(Stage.WINDOWS, "over_series_budget", over)
        return changed

    def all_points(self) -> list[tuple[Measurement, pl.DataFrame]]:
        """Return every point in memory, for the time after a restart."""
        return [(table.measurement, table.all_points()) for table in self.tables.values()]

    def evict(self) -> list[tuple[str, pl.DataFrame]]:
        """Forget the windows beyond the grace; return their rows by table."""
        if self._newest is None:
            return []
        oldest_ms = self._newest - (self._settings.lateness + self._settings.grace) * 1000
        before = oldest_ms // self._window_ms * self._settings.window
        self.evicted_before = max(self.evicted_before, before)
        evicted = [(name, table.evict(before)) for name, table in self.tables.items()]
        return [(name, rows) for name, rows in evicted if rows.height]

    @property
    def state_rows(self) -> int:
        """Rows in memory."""
        return sum(table.state.height for table in self.tables.values())

    # -- memory ------------------------------------------------------------------------------------

    def dump(self) -> tuple[dict[str, pl.DataFrame], dict[str, Any]]:
        """Return frames and notes from which `load` makes the same engine; nothing may be pending."""
        frames = {name: table.state for name, table in self.tables.items()}
        frames |= {f"{_SERIES}{name}": table.series for name, table in self.tables.items() if table.measurement.bound}
        notes = {
            "window": self._settings.window,
            "shard": self._settings.shard,
            "newest": self._newest,
            "evicted_before": self.evicted_before,
            "exporters": {
                name: [reading.last_seen, reading.lag, reading.skew, reading.sampling]
                for name, reading in self.exporters.items()
            },
        }
        return frames, notes

    def load(self, frames: dict[str, pl.DataFrame], notes: dict[str, Any]) -> None:
        """Take what `dump` gave."""
        for name, table in self.tables.items():
            if name in frames:
                table.state = frames[name].select(table.state.columns)
            if f"{_SERIES}{name}" in frames:
                table.series = frames[f"{_SERIES}{name}"]
        self._newest = notes["newest"]
        self.evicted_before = notes["evicted_before"]
        self.exporters = {name: ExporterReading(*reading) for name, reading in notes["exporters"].items()}
