"""The interface of job sources, and a source that polls another program in its own thread."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from analysis.jobs.job_windows import end_of, start_of
from analysis.jobs.register import Known, Register
from app.log import Log
from cluster.model import Cluster, Job, Outcome
from store.influx import Store

KEEP_JOBS = 86_400
"""Seconds for which a job is kept beyond the raw retention, where no window of it can be judged any more."""


GATHERING = timedelta(minutes=5)
"""In which the nodes of a job join it. With one that comes later, as a pod moves or is added, another run begins: in
the same one it would be taken for a node that sent nothing since the job began."""


class Source(Protocol):
    """One job source at work. What it tells is in the register, under its name.

    Attributes:
        name: as cluster.yaml has it.
    """

    name: str

    def start(self) -> None:
        """Begin to listen, or to ask in the background. Only a live analysis does; UserError if it cannot."""

    def refresh(self, now: float) -> str:
        """Take in what is new at `now`, epoch seconds; return why that failed in one line, empty if it did not."""

    def stop(self) -> None:
        """End what `start` began."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a source is made with, beside its settings.

    Attributes:
        cluster: of which it knows jobs.
        store: for a source that infers jobs.
        register: where jobs go.
        log: for troubles.
        told: returns the jobs that are not inferred.
        check: called between stretches of work; may raise.
    """

    cluster: Cluster
    store: Store
    register: Register
    log: Log
    told: Callable[[], tuple[Job, ...]]
    check: Callable[[], None]

    @property
    def zone(self) -> ZoneInfo:
        """The site's time zone."""
        return self.cluster.site.time_zone

    @property
    def keep(self) -> int:
        """Seconds for which raw windows are kept."""
        return self.cluster.store.keep_raw

    def asked(self, name: str, whom: "Asked", every: float) -> "AskedSource":
        """Return a source that asks `whom` every so many seconds."""
        return AskedSource(name, whom, self.register, every, self.keep + KEEP_JOBS)


class AskError(Exception):
    """No answer, or an unexpected one; the text is for the user, in one line."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer of a program.

    Attributes:
        jobs: key -> job; those that still run, and those whose end is known.
        is_whole: whether a job that runs would be among them: a missing one is over, or gone.
        patience: seconds for which a missing one is waited for: somebody else may be about to tell how it ended.
        trouble: what could not be asked, if only a part answered.
    """

    jobs: Mapping[str, Job]
    is_whole: bool = True
    patience: float = 0.0
    trouble: str = ""


class Asked(Protocol):
    """A program that can be asked what runs."""

    def ask(self, known: Mapping[str, Known], now: float) -> Listing:
        """Ask; AskError if nothing came of it.

        Args:
            known: what is in the register so far.
            now: epoch seconds.
        """

    def close(self) -> None:
        """Give up a question that is under way."""


@dataclass(slots=True)
class _Answer:
    listing: Listing | None
    trouble: str
    moment: float


@dataclass
class AskedSource:
    """A source that is asked at intervals.

    Args:
        name: of the source.
        asked: who is asked.
        register: where the answers go.
        every: seconds between two questions.
        keep: seconds for which a job is kept after its end: one that is older is not taken in.
        clock: tells the time to the thread that asks.
    """

    name: str
    asked: Asked
    register: Register
    every: float
    keep: float = math.inf
    clock: Callable[[], float] = time.time
    _trouble: str = ""
    _answer: _Answer | None = None
    _thread: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin to ask."""
        self._thread = threading.Thread(target=self._run, name=f"jobs-{self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and a question that is under way."""
        self._stopping.set()
        self.asked.close()
        if self._thread is not None:
            self._thread.join(5)

    def refresh(self, now: float) -> str:
        """Take the newest answer; ask for one, and wait for it, without a background thread."""
        if self._thread is None:
            answer: _Answer | None = self._ask(now)
        else:
            with self._lock:
                answer, self._answer = self._answer, None
        if answer is not None:
            self._trouble = answer.trouble
            if answer.listing is not None:
                self._take(answer.listing, answer.moment)
        return self._trouble

    def _run(self) -> None:
        while not self._stopping.is_set():
            answer = self._ask(self.clock())
            with self._lock:
                self._answer = answer
            self._stopping.wait(self.every)

    def _ask(self, now: float) -> _Answer:
        try:
            listing = self.asked.ask(self.register.jobs(self.name), now)
        except AskError as error:
            return _Answer(None, str(error), now)
        except Exception as error:  # noqa: BLE001 - a thread that died would leave its last jobs for ever, in silence
            return _Answer(None, f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:200]}", now)
        return _Answer(listing, listing.trouble, now)

    def _take(self, listing: Listing, moment: float) -> None:
        known = self.register.jobs(self.name)
        listed = listing.jobs
        # What is too old would be noted, and forgotten again, at every question.
        kept = {key: job for key, job in listed.items() if key in known or end_of(job) >= moment - self.keep}
        self.register.put(self.name, kept, moment)
        renamed = _renamed(known, listed)
        self.register.drop(self.name, renamed)
        if not listing.is_whole:
            return
        # Ended by silence: nobody lists it any more, and nobody said how it ended.
        over = {
            key: replace(one.job, end=datetime.fromtimestamp(max(int(one.seen), int(start_of(one.job)) + 1), UTC),
                         outcome=Outcome.UNKNOWN)
            for key, one in known.items()
            if one.job.end is None and key not in listed and key not in renamed
            and moment - one.seen > listing.patience
        }  # fmt: skip
        for key, job in over.items():
            self.register.put(self.name, {key: job}, known[key].seen)


def _renamed(known: Mapping[str, Known], listed: Mapping[str, Job]) -> set[str]:
    """Return the keys of runs that are listed under another key: a register that was rebuilt has keys of its own."""
    runs = {(job.id, job.start) for job in listed.values()}
    return {key for key, one in known.items() if key not in listed and (one.job.id, one.job.start) in runs}
