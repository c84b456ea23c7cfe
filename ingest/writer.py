"""Points into the store: retries with backoff and jitter; refusals are counted and block nothing."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import TypeVar

import polars as pl

from app.errors import ClusterflowError, StoreError
from app.log import Log
from cluster.model import Retention
from ingest.counters import Counters
from store import schema, schema_version
from store.influx import LacksDatabaseError, PartialWriteError, Store, StoreUnavailableError
from store.influxql import Select, highest, is_in
from store.points import WINDOW, batches
from store.schema import Measurement, Stage

_FIRST_WAIT, _LONGEST_WAIT = 0.25, 10.0
_LONGEST_WISH = 300.0
"""Seconds for which a server that asks to be left alone is left alone at most."""

_LAST_SECONDS = 10.0
"""Seconds for which a store that is slow is given what was begun, after we were asked to stop."""

_GLANCE = 0.2

_DAY = 86_400
_EDGE_SECONDS = 600.0
"""What is younger than the raw retention by less is too old once it is stored and rolled up."""
_CATCHES_UP_SECONDS = 3600.0
"""How long after the last point from before the raw retention this one stays longer."""

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
        log: for trouble.
        finishes: write what was begun also when `stop` is set, for some seconds, as long as the store takes it.
        permit: asked before each attempt; raises what ends the writing where it is no longer ours to write.

    Attributes:
        answered: when the store last did what it was asked to, by the monotonic clock.
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
        permit: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._retentions = retentions
        self._shard = pl.lit(shard).alias(schema.SHARD)
        self._counters = counters
        self._stop = stop
        self._log = log
        self._finishes = finishes
        self._permit = permit
        self._patience_ends: float | None = None
        self._may_lengthen, self._is_longer, self._set_back = True, False, 0.0
        self.answered = time.monotonic()
        # Known from the start: where no new series are taken, one that begins with the first refusal would be refused.
        counters.add(Stage.WRITE, schema.POINTS_REFUSED, 0)

    def write(self, measurement: Measurement, frame: pl.DataFrame, retention: str) -> int:
        """Write a frame's points into a retention; wait as long as the store is away. Returns how many were sent.

        Raises:
            StoppedError: the stop event was set while waiting, or before everything was sent where that is not wanted.
        """
        if schema.SHARD in measurement.tags and schema.SHARD not in frame.columns:
            frame = frame.with_columns(self._shard)
        oldest = self._oldest(frame) if retention == self._retentions[0].name else None
        sent = 0
        for lines, count in batches(measurement, frame):
            if self._stop.is_set() and not self._finishes:
                raise StoppedError("stopped before everything was written")
            self._end_if_late()
            self._insist(lines, count, retention, oldest)
            sent += count
        return sent

    def prepare(self, oldest: float | None = None) -> None:
        """Make the retentions, migrate an older schema; wait as long as the store is away.

        Args:
            oldest: start of the first window that may be written or rolled up, epoch seconds; the raw retention
                reaches back to it until an hour after nothing so old came any more.

        Raises:
            UserError: the store was written by a newer clusterflow.
            StoreError: it does not let us change its retentions.
        """
        if oldest is not None and self._is_beyond(oldest) and self._may_lengthen:
            raw, *others = self._retentions
            # Whole days, and one more: not changed again for each hour that is read.
            days = int((time.time() - oldest) / _DAY) + 2
            try:
                self._arrange((replace(raw, keep=days * _DAY, at_least=True), *others))
            except StoreError as error:
                self._may_lengthen = False
                why = " ".join(error.lines())
                self._log.error("retention_too_short", retention=raw.name, days=days, why=why)
            else:
                why = "older records waited; set back an hour after the last of them"
                self._log.sparse("retention_lengthened", retention=raw.name, days=days, why=why)
                self._is_longer, self._set_back = True, time.monotonic() + _CATCHES_UP_SECONDS
                return
        self._is_longer, self._set_back = self._is_awaited(), time.monotonic() + _CATCHES_UP_SECONDS
        self._arrange((replace(self._retentions[0], at_least=self._is_longer), *self._retentions[1:]))

    def _arrange(self, retentions: tuple[Retention, ...]) -> None:
        def tell(step: str) -> None:
            self._log.line("migrating", what=step)

        self.patiently(lambda: schema_version.prepare(self._store, retentions, may_migrate=True, tell=tell))

    def _is_awaited(self) -> bool:
        """Whether a bridge, perhaps another one, lately worked at what is older than the raw retention."""
        now = int(time.time())
        is_lag = is_in(schema.STAGE, [Stage.BRIDGE.value]), is_in(schema.REASON, [schema.LAG_SECONDS])
        asked = Select(schema.PIPELINE, schema.RAW).take(highest(schema.VALUE)).where(*is_lag)
        asked = asked.between(now - int(_CATCHES_UP_SECONDS), now + 1)
        try:
            return any(self._is_beyond(now - lag) for _, lag in self.patiently(lambda: [*self._store.rows(asked)]))
        except LacksDatabaseError:
            return False

    def _is_beyond(self, moment: float) -> bool:
        """Whether the raw retention, as it is configured, hardly reaches back to a moment, or not at all."""
        keep = self._retentions[0].keep
        return bool(keep) and moment < time.time() - keep + _EDGE_SECONDS

    def _oldest(self, frame: pl.DataFrame) -> float | None:
        """Return the first window of points, of those that the raw retention may not take; set it back once all are."""
        first = frame.get_column(WINDOW).min() if frame.height else None
        oldest = float(str(first)) if first is not None and self._is_beyond(float(str(first))) else None
        if self._is_longer:
            if oldest is not None:
                self._set_back = time.monotonic() + _CATCHES_UP_SECONDS
            elif time.monotonic() > self._set_back:
                self.prepare()
        return oldest

    def _insist(self, lines: bytes, count: int, retention: str, oldest: float | None) -> None:
        try:
            self._send(lines, retention, oldest)
        except PartialWriteError as error:
            reason = schema.POINTS_TOO_OLD if error.too_old else schema.POINTS_REFUSED
            self._counters.add(Stage.WRITE, reason, error.dropped)
            self._log.sparse("points_refused", dropped=error.dropped, why=error.message)
            self.answered = time.monotonic()
            count = max(count - error.dropped, 0)
        self._counters.add(Stage.WRITE, "points", count)
        self._counters.add(Stage.WRITE, "bytes", len(lines))

    def _send(self, lines: bytes, retention: str, oldest: float | None) -> None:
        try:
            self.patiently(lambda: self._store.write(lines, retention))
        except LacksDatabaseError:
            # Somebody dropped the database under us.
            self.prepare(oldest)
        except PartialWriteError as error:
            if not error.too_old or oldest is None or not self._may_lengthen:
                raise
            # It waited for longer than raw points are kept, or another bridge set the retention back: without it the
            # points would be in minutes and hours neither.
            self.prepare(oldest)
        else:
            return
        self.patiently(lambda: self._store.write(lines, retention))

    def patiently(self, attempt: Callable[[], _T]) -> _T:
        """Return what an attempt at the store gives; try again as long as the store is away.

        Raises:
            StoppedError: the stop event was set while waiting.
        """
        seconds = _FIRST_WAIT
        began = time.monotonic()
        while True:
            self._permit()
            try:
                answer = self._in_time(attempt)
            except StoreUnavailableError as error:
                pause = max(seconds, min(error.retry_after, _LONGEST_WISH))
                self._counters.add(Stage.WRITE, "retries")
                self._log.sparse("store_unavailable", why=" ".join(error.lines()), retry_seconds=pause)
                # Jitter, so that several bridges do not come back in step; never sooner than the server asked for.
                spread = random.uniform(1.0, 1.2) if error.retry_after else random.uniform(0.5, 1.5)  # noqa: S311 - no secret
                if self._stop.wait(pause * spread):
                    raise self._given_up("away") from error
                seconds = min(seconds * 2, _LONGEST_WAIT)
            else:
                self.answered = time.monotonic()
                if seconds > _FIRST_WAIT:
                    self._log.line("store_recovered", away_seconds=self.answered - began)
                return answer

    def _in_time(self, attempt: Callable[[], _T]) -> _T:
        """Return what an attempt gives. A store that hangs does not delay a stop."""
        future: Future[_T] = Future()

        def run() -> None:
            try:
                future.set_result(attempt())
            except BaseException as error:  # noqa: BLE001 - whoever waits gets it
                future.set_exception(error)

        # A daemon: what hangs in it must not keep the process.
        threading.Thread(target=run, name="store", daemon=True).start()
        while not wait([future], timeout=_GLANCE).done:
            self._end_if_late()
        return future.result()

    def _end_if_late(self) -> None:
        if not self._stop.is_set():
            return
        now = time.monotonic()
        if self._patience_ends is None:
            self._patience_ends = now + _LAST_SECONDS
        if now > self._patience_ends:
            raise self._given_up("slow")

    def _given_up(self, how: str) -> StoppedError:
        safe = "; the checkpoint has everything" if self._finishes else ""
        return StoppedError(f"stopped while the store was {how}{safe}")
