"""Writes verdicts: only what differs from what was written before, and zeros over what turned out not to be."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.detectors.rows import QUIET, Rows
from analysis.detectors.study import Points
from app.log import Log
from store import schema
from store.influx import PartialWriteError, Store
from store.influxql import Select, compare, everything
from store.points import WINDOW, batches, columns
from store.schema import Kind, Measurement, NodeState

_TELLING = {
    schema.BASELINE.name: (compare(schema.STATE, ">=", NodeState.LOW),),
    schema.JOB_NODE.name: (compare(schema.RANK, "<", 0),),
}
"""Which stored rows of measurements with a row a node are looked at once more: those that claim something."""


class Output:
    """What was written of the windows that may still change.

    Args:
        store: written to.
        log: told of points that it refuses.

    Attributes:
        until: rows from here on, epoch seconds, are not written; None: all are.
        refused: points that the store refused for good.
    """

    def __init__(self, store: Store, log: Log | None = None) -> None:
        self._store, self._log = store, log or Log(quiet=True)
        self.until: int | None = None
        self.refused = 0
        # A connection of its own: what is written goes out while the next windows are judged.
        self._writer, self._thread = store.another(), ThreadPoolExecutor(1, thread_name_prefix="writing")
        self._under_way: list[Future[None]] = []
        self._pending: dict[str, pl.DataFrame] = {}
        self._windows: dict[str, tuple[pl.DataFrame | None, dict[str, npt.NDArray[np.int64]]]] = {}

    def recall(self, measurements: Iterable[Measurement], start: int, stop: int) -> None:
        """Take note of what an earlier process, or an earlier run over the past, wrote of them in [start, stop)."""
        for measurement in measurements:
            self._pending.pop(measurement.name, None)
            asked = Select(measurement, measurement.kept).take(everything()).where(*_TELLING.get(measurement.name, ()))
            stored = self._store.frame(asked.between(start, stop).text())
            if stored.height:
                self._pending[measurement.name] = _as_points(measurement, stored)

    def thinned(self, rows: Rows) -> Rows:
        """Return a job's rows without most of those that `update` would not write: nearly all, of large jobs."""
        if QUIET not in rows.columns:
            return rows
        told = ~rows[QUIET]
        written = self._windows_of(rows.measurement).get(str(rows.same[schema.JOB]))
        return rows.where(told if written is None else told | np.isin(rows[WINDOW], written))

    def _windows_of(self, measurement: Measurement) -> dict[str, npt.NDArray[np.int64]]:
        """Return, by job, the windows of which rows were written before."""
        before = self._pending.get(measurement.name)
        known, windows = self._windows.get(measurement.name, (None, {}))
        if before is not known:
            of_job = [] if before is None else before.group_by(schema.JOB).agg(pl.col(WINDOW).unique()).iter_rows()
            windows = {job: np.array(found) for job, found in of_job}
            self._windows[measurement.name] = before, windows
        return windows

    def _due(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame if self.until is None or frame.is_empty() else frame.filter(pl.col(WINDOW) < self.until)

    def update(
        self,
        measurement: Measurement,
        points: pl.DataFrame | None,
        start: int,
        final: int,
        stands: Mapping[str, int] | None = None,
    ) -> int:
        """Bring the windows from `start` on to what `points` says; return how many points that took.

        Args:
            measurement: what the points are of.
            points: its rows from `start` on; None: there are none.
            start: what was written of windows before it stays.
            final: windows before it will not change any more.
            stands: by job, the moment before which what was written stays, too, but for rows that `points` has.
        """
        before = self._pending.pop(measurement.name, None)
        standing = None
        if before is not None:
            before = before.filter(pl.col(WINDOW) >= start)
        if points is not None:
            points = _without_quiet(measurement, before, self._due(points))
        if before is not None:
            does_stand = _does_stand(stands or {})
            standing = before.filter(does_stand)
            gone = retracted(measurement, before.filter(~does_stand), points)
            points = gone if points is None else pl.concat([points, gone], how="diagonal_relaxed")
        if points is None:
            return 0
        changed = points
        if before is not None and before.height and points.height:
            shared = [name for name in points.columns if name in before.columns]
            changed = points.join(before, on=shared, how="anti", nulls_equal=True)
        written = self.write(measurement, changed)
        if standing is not None and standing.height:
            keys = [WINDOW, *(tag for tag in measurement.tags if tag in points.columns)]
            points = pl.concat([standing.join(points, on=keys, how="anti"), points], how="diagonal_relaxed")
        open_rows = points.filter(pl.col(WINDOW) >= final)
        if open_rows.height:
            self._pending[measurement.name] = open_rows
        return written

    def write(self, measurement: Measurement, points: pl.DataFrame) -> int:
        """Begin to write points as they are; return how many."""
        if points.height:
            self._under_way.append(self._thread.submit(self._send, measurement, points))
        return points.height

    def flush(self) -> None:
        """Wait until all is written.

        Raises:
            StoreError: something was not; what was written must be recalled before it is brought up to date again.
        """
        under_way, self._under_way = self._under_way, []
        try:
            for one in under_way:
                one.result()
        finally:
            # What would be stored after it was recalled, nobody would take back.
            for one in under_way:
                one.cancel()
            wait(under_way)

    def _send(self, measurement: Measurement, points: pl.DataFrame) -> None:
        for lines, _ in batches(measurement, points):
            try:
                self._writer.write(lines, measurement.kept)
            except PartialWriteError as error:
                # As in the bridge: the rest is stored, and no later verdict may wait for what never will be.
                # What is older than its retention, as with a range that is judged again, is gone by configuration.
                self.refused += 0 if error.too_old else error.dropped
                self._log.sparse("points_refused", dropped=error.dropped, why=error.message)


def _as_points(measurement: Measurement, stored: pl.DataFrame) -> pl.DataFrame:
    """Return stored rows in the form in which studies give them."""
    kinds = columns(*measurement.fields, *measurement.tags)
    labels = [tag for tag in measurement.tags if tag in schema.LABELS]
    # A label that is not known is not stored: its column is empty, or not there at all.
    stored = stored.with_columns(pl.lit("").alias(tag) for tag in labels if tag not in stored.columns)
    return stored.select(
        (pl.col("time") // 1000).cast(pl.Int64).alias(WINDOW),
        *(pl.col(name).cast(kind) for name, kind in kinds.items() if name in stored.columns),
    ).with_columns(pl.col(labels).fill_null(""))


def _does_stand(stands: Mapping[str, int]) -> pl.Expr:
    """Return whether a row lies before the moment up to which its job's rows stand."""
    if not stands:
        return pl.lit(value=False)
    until = pl.col(schema.JOB).replace_strict(stands, default=None, return_dtype=pl.Int64)
    return (pl.col(WINDOW) < until).fill_null(value=False)


def _without_quiet(measurement: Measurement, before: pl.DataFrame | None, points: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that say something, and those that replace what was written before."""
    if QUIET not in points.columns:
        return points
    told, quiet = points.filter(~pl.col(QUIET)).drop(QUIET), points.filter(QUIET).drop(QUIET)
    if before is None or before.is_empty():
        return told
    keys = [WINDOW, *(tag for tag in measurement.tags if tag in points.columns)]
    return pl.concat([told, quiet.join(before.select(keys), on=keys, how="semi")])


def gathered(points: Points) -> dict[str, pl.DataFrame]:
    """Return one frame a measurement, by name; of several rows at one time with the same tags the last.

    An event that went on from windows judged for good to windows judged for now comes twice: only its longer form is
    to be written.
    """
    frames: dict[str, list[pl.DataFrame]] = {}
    keys: dict[str, tuple[str, ...]] = {}
    for measurement, frame in points:
        if frame.height:
            frames.setdefault(measurement.name, []).append(frame)
            keys[measurement.name] = (WINDOW, *measurement.tags)
    whole = {name: pl.concat(parts, how="diagonal_relaxed") for name, parts in frames.items()}
    return {name: _last_of_each(frame, keys[name]) for name, frame in whole.items()}


def _last_of_each(frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    return frame.unique([key for key in keys if key in frame.columns], keep="last", maintain_order=True)


def retracted(measurement: Measurement, before: pl.DataFrame, now: pl.DataFrame | None) -> pl.DataFrame:
    """Return rows that take back those of `before` that `now` no longer has: every number its `gone`, every text empty.

    InfluxDB cannot take a point back by writing; what was written while a window was filling has to be overwritten.
    """
    keys = [WINDOW, *(tag for tag in measurement.tags if tag in before.columns)]
    gone = before if now is None or now.is_empty() else before.join(now.select(keys), on=keys, how="anti")
    fields = [field for field in measurement.fields if field.name in before.columns]
    return gone.with_columns(
        pl.lit("" if field.kind is Kind.STRING else field.gone).cast(before.schema[field.name]).alias(field.name)
        for field in fields
    )
