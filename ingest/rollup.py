"""The 1m and 1h retentions, recomputed from the points that the store has.

A rollup of a range can be made again at any time and gives the same points, so it is made again whenever a window below
it changed: late bytes reach every retention.
"""

from collections.abc import Iterator
from itertools import pairwise

import polars as pl

from cluster.model import Retention
from cluster.schema import MEASUREMENTS, Measurement
from ingest.points import WINDOW
from ingest.store import Store
from ingest.writer import Writer

_WINDOWS_PER_QUERY = 60
"""Target windows asked for at once: an hour of minutes, some days of hours."""


class Rollup:
    """Which ranges changed, and how to recompute them.

    Args:
        store: read from.
        writer: written to.
        retentions: finest first; each is computed from the one before it.
    """

    def __init__(self, store: Store, writer: Writer, retentions: tuple[Retention, ...]) -> None:
        self._store = store
        self._writer = writer
        self._steps = [(source, target) for source, target in pairwise(retentions) if source.window < target.window]
        self._dirty: dict[str, set[int]] = {target.name: set() for _, target in self._steps}

    def touch(self, windows: pl.Series) -> None:
        """Note base windows (epoch seconds) whose points changed."""
        for _, target in self._steps:
            starts = (windows // target.window * target.window).unique().to_list()
            self._dirty[target.name].update(starts)

    def dump(self) -> dict[str, list[int]]:
        """Return the dirty windows for the checkpoint."""
        return {name: sorted(windows) for name, windows in self._dirty.items()}

    def load(self, dirty: dict[str, list[int]]) -> None:
        """Take the dirty windows of a checkpoint."""
        for name, windows in dirty.items():
            if name in self._dirty:
                self._dirty[name].update(windows)

    def run(self) -> int:
        """Recompute every dirty window of every retention; returns the points written."""
        written = 0
        for source, target in self._steps:
            dirty = self._dirty[target.name]
            for first, last in _ranges(sorted(dirty), target.window):
                for measurement in MEASUREMENTS:
                    if measurement.rollup:
                        frame = self._folded(measurement, source, target, first, last)
                        written += self._writer.write(measurement, frame, target.name)
            dirty.clear()
        return written

    def _folded(
        self, measurement: Measurement, source: Retention, target: Retention, first: int, last: int
    ) -> pl.DataFrame:
        fields = ", ".join(f'{f.merge.value}("{f.name}") AS "{f.name}"' for f in measurement.fields)
        frame = self._store.frame(
            f'SELECT {fields} FROM "{source.name}"."{measurement.name}" '  # noqa: S608 - names are the schema's
            f"WHERE time >= {first}s AND time < {last}s GROUP BY time({target.window}s), * fill(none)"
        )
        if frame.is_empty():
            return pl.DataFrame(schema={WINDOW: pl.Int64})
        return frame.rename({"time": WINDOW}).with_columns(pl.col(WINDOW) // 1000)


def _ranges(starts: list[int], window: int) -> Iterator[tuple[int, int]]:
    """Yield [first, last) ranges that cover the windows with these starts, each of a bounded length."""
    position = 0
    while position < len(starts):
        first = starts[position]
        end = first + window
        position += 1
        while position < len(starts) and starts[position] == end and end - first < _WINDOWS_PER_QUERY * window:
            end += window
            position += 1
        yield first, end


def horizon(now: float, grace: int) -> pl.Series:
    """Return the base windows to recompute after a start: what may have changed without being rolled up."""
    last = int(now) // 60 * 60
    return pl.Series(WINDOW, range(last - (grace // 60 + 10) * 60, last + 60, 60), pl.Int64)
