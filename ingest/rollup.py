"""The 1m and 1h retentions, recomputed from the points that the store has.

A rollup of a range can be made again at any time and gives the same points, so it is made again whenever a window below
it changed: late bytes reach every retention.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import polars as pl

from cluster.model import Retention
from ingest.count.engine import BEFORE_MINUTES
from ingest.writer import Writer
from store import schema
from store.influx import PartialAnswerError, Store
from store.influxql import Select, is_in, merged
from store.points import WINDOW
from store.schema import MEASUREMENTS, Measurement

_FIRST_SPAN, _SHORTEST_SPAN, _LONGEST_SPAN = 60, 5, 1440
_AT_ONCE = 2
_FEW_ROWS, _MANY_ROWS = 20_000, 80_000
"""Target windows asked for at once follow the size of the answers: every series costs a query something, and every row
memory."""

_ROLLED = [one for one in MEASUREMENTS if (one.rollup or one in BEFORE_MINUTES) and one is not schema.NODE_TOTAL]
"""NODE_TOTAL is made of NODE_TRAFFIC."""


class Rollup:
    """Which ranges changed, and how to recompute them.

    Args:
        store: read from.
        writer: written to.
        retentions: finest first; each is computed from the one before it.
        shard: the bridge's own; others roll up theirs.

    Attributes:
        minutes_from: before this epoch second what is kept in minutes is made of raw points, too (`Engine`).
    """

    def __init__(self, store: Store, writer: Writer, retentions: tuple[Retention, ...], shard: str) -> None:
        self._store = store
        self._writer = writer
        self._shard = shard.replace("\\", "\\\\").replace("'", "\\'")
        # Also of windows that are as long as the target's: boards ask minutes of every cluster.
        self._steps = [(source, target) for source, target in pairwise(retentions) if source.window <= target.window]
        self._dirty: dict[str, set[int]] = {target.name: set() for _, target in self._steps}
        self.minutes_from = 0

    def touch(self, windows: pl.Series) -> None:
        """Note base windows (epoch seconds) whose points changed."""
        for _, target in self._steps:
            starts = (windows // target.window * target.window).unique().to_list()
            self._dirty[target.name].update(starts)

    def dump(self) -> dict[str, list[int]]:
        """Return the dirty windows for the checkpoint."""
        return {name: sorted(windows) for name, windows in self._dirty.items()}

    @property
    def oldest(self) -> float:
        """Start of the first window that is to be recomputed, epoch seconds; infinite if there is none."""
        return min((min(windows) for windows in self._dirty.values() if windows), default=math.inf)

    def load(self, dirty: dict[str, list[int]], minutes_from: int = 0) -> None:
        """Take the dirty windows of a checkpoint, and since when it has minutes."""
        self.minutes_from = minutes_from
        for name, windows in dirty.items():
            if name in self._dirty:
                self._dirty[name].update(windows)

    def run(self) -> int:
        """Recompute every dirty window of every retention; returns the points written.

        Raises:
            StoreError: not all were; none is forgotten of the retention at which it ended, or of a coarser one.
        """
        written = 0
        # Two at once: while the store works on one, the other one's answer is read or its points are written.
        with ThreadPoolExecutor(_AT_ONCE, "rollup") as threads:
            for source, target in self._steps:
                dirty = self._dirty[target.name]
                fold = partial(self._fold_all, source=source, target=target, starts=sorted(dirty))
                written += sum(threads.map(fold, _ROLLED))
                dirty.clear()
        return written

    def _fold_all(self, measurement: Measurement, *, source: Retention, target: Retention, starts: list[int]) -> int:
        """Recompute the windows with these starts; returns the points written."""
        if target.name not in measurement.retentions:
            return 0
        if source.name not in measurement.retentions:
            starts = [start for start in starts if start < self.minutes_from]
        span, longest, step = _FIRST_SPAN, _LONGEST_SPAN, 1
        position = written = 0
        while position < len(starts):
            last = _last_of_run(starts, position, target.window, span, step)
            windows = (starts[last] - starts[position]) // target.window + 1
            try:
                answer = self._folded(measurement, source, target, starts[position], windows)
            except PartialAnswerError:
                # Of one window there is no shorter part: it stays to be done, and `run` ends.
                if windows == 1:
                    raise
                span = longest = windows // 2
                continue
            frame = answer.filter(pl.col(WINDOW).is_in(starts[position : last + 1]))
            # Windows that did not change are asked for together with those beside them, as long as they are empty.
            step = min(step * 2, longest) if frame.height == answer.height else 1
            written += self._writer.write(measurement, frame, target.name)
            if measurement is schema.NODE_TRAFFIC and frame.height:
                written += self._writer.write(schema.NODE_TOTAL, _totals(frame), target.name)
            position = last + 1
            if answer.height < _FEW_ROWS:
                span = min(span * 2, longest)
            elif answer.height > _MANY_ROWS:
                span = max(span // 2, _SHORTEST_SPAN)
        return written

    def _folded(
        self, measurement: Measurement, source: Retention, target: Retention, first: int, windows: int
    ) -> pl.DataFrame:
        # Another bridge rolls up its own partials: what we read of them may be older than what it has written.
        mine = is_in(schema.SHARD, [self._shard])
        sums = Select(measurement, source.name).take(*map(merged, measurement.fields)).by(*measurement.tags)
        query = sums.where(mine).each(target.window).between(first, first + windows * target.window).text()
        # A store that is away is no reason to end: it is waited for here as for a write.
        frame = self._writer.patiently(lambda: self._store.frame(query))
        if frame.is_empty():
            return pl.DataFrame(schema={WINDOW: pl.Int64})
        return frame.rename({"time": WINDOW}).with_columns(pl.col(WINDOW) // 1000)


def _totals(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the points of NODE_TOTAL, of those of NODE_TRAFFIC."""
    sums = (pl.col(field.name).sum() for field in schema.NODE_TOTAL.fields)
    return frame.group_by(WINDOW, *schema.NODE_TOTAL.tags).agg(sums)


def _last_of_run(starts: list[int], position: int, window: int, span: int, step: int) -> int:
    """Return the place of the last start of a run: no step is longer than so many windows, nor the run than `span`."""
    last = position
    while (
        last + 1 < len(starts)
        and starts[last + 1] <= starts[last] + step * window
        and starts[last + 1] < starts[position] + span * window
    ):
        last += 1
    return last


def horizon(now: float, grace: int) -> pl.Series:
    """Return the base windows to recompute after a start: what may have changed without being rolled up."""
    last = int(now) // 60 * 60
    return pl.Series(WINDOW, range(last - (grace // 60 + 10) * 60, last + 60, 60), pl.Int64)
