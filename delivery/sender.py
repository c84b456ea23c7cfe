"""One destination's thread: from the spool to the receiver, in order, at least once, however long it takes."""

import random
import threading
import time
from collections.abc import Callable, Sequence

import polars as pl

from app.errors import ClusterflowError
from app.log import Log
from cluster.model import Destination
from delivery.event import Document, at, line
from delivery.queue import Batch, Spool
from delivery.transports.destination import AwayError, Refusal, RefusedBatchError, Transport
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from store.schema import Stage

SENT, REFUSED, RETRIES, LOST, WAITING, FAILING = "sent", "refused", "retries", "lost", "waiting", "failing_seconds"
"""What follows a destination's name, after a dot, in the names of its counters and readings."""

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_MOST_PATIENCE = 3600.0
"""What a receiver asks for with Retry-After is heeded up to here."""

_IDLE_SECONDS = 1.0
MOST_REFUSED = 1 << 20
"""Characters of a refused event that are kept: so many that it stays JSON, to be sent again by hand."""


class Sender(threading.Thread):
    """Delivers what the spool has for one destination until it is stopped.

    Args:
        destination: its events, severities and rate.
        transport: how they get there.
        spool: where they are.
        counters: for everything that becomes of them.
        dead: keeps what the receiver refuses for good.
        log: for trouble, and its end.
        pauses: the first and the longest pause between two tries, in seconds.
        may_send: asked before each try; False: another process may deliver now.
    """

    def __init__(
        self,
        destination: Destination,
        transport: Transport,
        spool: Spool,
        *,
        counters: Counters,
        dead: DeadLetters,
        log: Log,
        pauses: tuple[float, float] = (_FIRST_PAUSE, _LONGEST_PAUSE),
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(name=f"deliver-{destination.name}", daemon=True)
        self.destination = destination
        self._transport, self._spool = transport, spool
        self.counters = counters
        self._dead, self._log = dead, log
        self._may_send = may_send
        self._stopping = threading.Event()
        self._sending, self._noting = _Trouble(pauses), _Trouble(pauses)
        # What it has got is noted up to here, or is to be: None where nothing is left to note.
        self._unnoted: int | None = None
        self._note_at = 0.0
        self._trying_since: float | None = None
        self._pace = _Pace(destination.rate)
        self._paid = 0
        # Events of the batch that failed: it goes out again as it was, whatever has come since.
        self._failed = 0
        for reason in (SENT, REFUSED, RETRIES, LOST):
            self._count(reason, 0)

    def run(self) -> None:
        """Deliver until stopped."""
        try:
            while not self._stopping.is_set():
                try:
                    most = min(self._transport.most, self._failed or self._transport.most)
                    batch = self._spool.read(self.destination.name, most, _IDLE_SECONDS)
                    if batch is not None:
                        self._deliver(batch)
                    if time.monotonic() >= self._note_at:
                        self._note_position()
                except Exception as error:  # noqa: BLE001 - a thread that ends would deliver nothing, and say nothing
                    why = f"{type(error).__name__}: {error}"
                    self._stopping.wait(self._note_failure(AwayError(f"a defect: {why}", "please report it")))
            self._note_position()
        finally:
            self._transport.close()

    def stop(self, seconds: float) -> None:
        """End it: what is under way may take so long."""
        self._stopping.set()
        self._spool.wake()
        self.join(seconds)

    def failing_seconds(self) -> float:
        """Return for how long nothing has got through, or what did could not be noted; 0 while all is well."""
        return max(self.away_seconds(), self.unnoted_seconds())

    def away_seconds(self) -> float:
        """Return for how long nothing has got through; 0 while it does."""
        # A try without an end fails, too, though nothing says so.
        since = self._trying_since
        trying = 0.0 if since is None else time.monotonic() - since
        return max(self._sending.seconds(), trying if trying > _LONGEST_PAUSE else 0.0)

    def unnoted_seconds(self) -> float:
        """Return for how long it could not be noted what has got through: a restart would send it again."""
        return self._noting.seconds()

    # -- one batch ---------------------------------------------------------------------------------------

    def _deliver(self, batch: Batch) -> None:
        """Deliver a batch and pass it, or wait before it is read, and tried, again.

        By then the receiver may want fewer events at once, and the spool may have had no room for the oldest.
        """
        wanted = [event for event in batch.events if self._wants(event)]
        if wanted:
            # Once: what goes out again was waited for.
            if batch.next > self._paid and not self._pace.wait(len(wanted), self._stopping):
                return
            self._paid = max(self._paid, batch.next)
            if not self._may_send():
                self._stopping.wait(_IDLE_SECONDS)
                return
            try:
                refused = self._try(wanted)
            except AwayError as error:
                self._failed = len(batch.events)
                self._stopping.wait(self._note_failure(error))
                return
            self._failed = 0
            self._note_success()
            self._bury(refused)
            self._count(SENT, len(wanted) - len(refused))
        self._spool.passed(self.destination.name, batch.next)
        self._unnoted = batch.next

    def _note_position(self) -> None:
        """Note what has got through. Where that fails it goes on all the same, and is noted later."""
        if self._unnoted is None:
            return
        try:
            self._spool.delivered(self.destination.name, self._unnoted)
        except ClusterflowError as error:
            # At worst a restart sends what has got through since once more.
            self._note_at = time.monotonic() + self._noting.fails()
            self._log.sparse(f"position_not_saved.{self.destination.name}", why=" ".join(error.lines()))
            return
        self._unnoted = None
        if after := self._noting.ends():
            self._log.line("position_saved", destination=self.destination.name, after=after)

    def _wants(self, event: Document) -> bool:
        severities = self.destination.severities
        is_wanted = at(event, "kind") in self.destination.events
        return is_wanted and (not severities or at(event, "severity") in severities)

    def _try(self, events: Sequence[Document]) -> list[Refusal]:
        self._trying_since = time.monotonic()
        try:
            return self._send(events)
        finally:
            self._trying_since = None

    def _send(self, events: Sequence[Document]) -> list[Refusal]:
        """Send a batch, in ever smaller parts where the receiver does not say which event it dislikes."""
        try:
            return self._transport.send(events)
        except RefusedBatchError as error:
            if len(events) == 1:
                return [Refusal(events[0], error.message)]
            half = len(events) // 2
            return [*self._send(events[:half]), *self._send(events[half:])]

    def _note_failure(self, error: AwayError) -> float:
        """Log a failure; return how long to wait: longer each time, with jitter."""
        if not self._sending.seconds():
            self._log.warning("delivery_failing", destination=self.destination.name, why=" ".join(error.lines()))
        else:
            self._log.sparse(
                f"delivery_fails.{self.destination.name}",
                why=" ".join(error.lines()),
                waiting=self._spool.waiting(self.destination.name),
            )
        self._count(RETRIES, 1)
        return max(self._sending.fails(), min(error.retry_after, _MOST_PATIENCE))

    def _note_success(self) -> None:
        if after := self._sending.ends():
            self._log.line("delivery_recovered", destination=self.destination.name, after=after)

    def _bury(self, refused: Sequence[Refusal]) -> None:
        """Keep what the receiver will never take, and report it."""
        if not refused:
            return
        # A receiver's words are many; what is counted by its reason has one.
        letters = pl.DataFrame(
            [(line({"reason": one.reason, "event": one.event}), REFUSED) for one in refused],
            schema=["line", "reason"],
            orient="row",
        )
        self._dead.add(self.destination.name, letters)
        self._count(REFUSED, len(refused))
        self._log.sparse(
            f"events_refused.{self.destination.name}", count=len(refused), why=refused[0].reason, see=self._dead.path
        )

    def _count(self, reason: str, number: int) -> None:
        self.counters.add(Stage.DELIVER, f"{self.destination.name}.{reason}", number)


class _Trouble:
    """Since when something fails, and how long to wait before it is tried again: longer each time, with jitter."""

    def __init__(self, pauses: tuple[float, float]) -> None:
        self._first, self._longest = pauses
        self._since: float | None = None
        self._failures = 0

    def fails(self) -> float:
        """Take note of a failure; return how long to wait."""
        if self._since is None:
            self._since = time.monotonic()
        pause = min(self._first * 2**self._failures, self._longest)
        self._failures = min(self._failures + 1, 16)
        return float(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    def ends(self) -> float:
        """Take note that it works; return for how long it did not."""
        after = self.seconds()
        self._since, self._failures = None, 0
        return after

    def seconds(self) -> float:
        """Return for how long it has failed; 0 while it works."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since


class _Pace:
    """So many events a second, over a few seconds."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._free_at = 0.0

    def wait(self, count: int, stopping: threading.Event) -> bool:
        """Wait until so many more may go; False if we are stopped meanwhile."""
        now = time.monotonic()
        pause = self._free_at - now
        if pause > 0 and stopping.wait(pause):
            return False
        self._free_at = max(self._free_at, now) + count / self._rate
        return True
