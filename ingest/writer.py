"""Points into the store, whatever it takes: retries with backoff and jitter; refusals counted, never in the way."""

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import polars as pl

from cluster import schema
from cluster.errors import ClusterflowError, StoreError
from cluster.model import Retention
from cluster.schema import Measurement, Stage
from ingest.counters import Counters
from ingest.logs import Log
from ingest.points import batches
from ingest.store import PartialWriteError, Store, StoreUnavailableError

_FIRST_WAIT, _LONGEST_WAIT = 0.25, 10.0

_T = TypeVar("_T")


class StoppedError(ClusterflowError):
    """The bridge was asked to stop while the store was away. Nothing is lost: the checkpoint has it all."""


class Writer:
    """Writes frames of points.

    Args:
        store: where to.
        retentions: made again if the store has forgotten them.
        shard: value of the shard tag.
        counters: points written, refused, retries.
        stop: ends waiting for a store that is away.
        log: where trouble is told.
        finishes: write what was begun also when `stop` is set, as long as the store takes it.
    """

    def __init__(
        self,
        store: Store,
        retentions: tuple[Retention, ...],
        *,
        shard: str,
        counters: Counters,
        stop: threading.Event,
        log: Log,
        finishes: bool = True,
    ) -> None:
        self._store = store
        self._retentions = retentions
        self._shard = pl.lit(shard).alias(schema.SHARD)
        self._counters = counters
        self._stop = stop
        self._log = log
        self._finishes = finishes

    def write(self, measurement: Measurement, frame: pl.DataFrame, retention: str) -> int:
        """Write a frame's points into a retention; wait as long as the store is away. Returns how many were sent.

        Raises:
            StoppedError: the stop event was set while waiting, or before everything was sent where that is not wanted.
        """
        if schema.SHARD in measurement.tags and schema.SHARD not in frame.columns:
            frame = frame.with_columns(self._shard)
        sent = 0
        for lines, count in batches(measurement, frame):
            if self._stop.is_set() and not self._finishes:
                raise StoppedError("stopped before everything was written")
            self._insist(lines, count, retention)
            sent += count
        return sent

    def prepare(self) -> None:
        """Make the retentions; wait as long as the store is away."""
        self.patiently(lambda: self._store.ensure(self._retentions))

    def _insist(self, lines: bytes, count: int, retention: str) -> None:
        try:
            self.patiently(lambda: self._store.write(lines, retention))
        except PartialWriteError as error:
            self._counters.add(Stage.WRITE, "points_refused", error.dropped)
            self._log.sparse("points_refused", dropped=error.dropped, why=error.message)
            count -= error.dropped
        except StoreError as error:
            if "not found" not in error.message:
                raise
            # Somebody dropped the database under us.
            self.prepare()
            self.patiently(lambda: self._store.write(lines, retention))
        self._counters.add(Stage.WRITE, "points", count)
        self._counters.add(Stage.WRITE, "bytes", len(lines))

    def patiently(self, attempt: Callable[[], _T]) -> _T:
        """Return what an attempt at the store gives; try again as long as the store is away.

        Raises:
            StoppedError: the stop event was set while waiting.
        """
        wait = _FIRST_WAIT
        began = time.monotonic()
        while True:
            try:
                answer = attempt()
            except StoreUnavailableError as error:
                self._counters.add(Stage.WRITE, "retries")
                self._log.sparse("store_away", why=error.message, retry_seconds=wait)
                # Jitter, so that several bridges do not come back in step.
                if self._stop.wait(wait * random.uniform(0.5, 1.5)):  # noqa: S311 - not a secret
                    safe = "; the checkpoint has everything" if self._finishes else ""
                    raise StoppedError(f"stopped while the store was away{safe}") from error
                wait = min(wait * 2, _LONGEST_WAIT)
            else:
                if wait > _FIRST_WAIT:
                    self._log.line("store_back", away_seconds=time.monotonic() - began)
                return answer
