"""What every job source is to `sources`, and one that asks another program now and then, in a thread of its own."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from analysis.job_sources.register import Known, Register
from analysis.jobs import start_of
from cluster.model import Job, Outcome


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


class AskError(Exception):
    """Nobody answered, or not what was expected; the text is for the user, in one line."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What somebody who was asked said.

    Attributes:
        jobs: key -> job; those that still run, and those whose end is known.
        is_whole: whether a job that runs would be among them: a missing one is over, or gone.
        trouble: what could not be asked, if only a part answered.
    """

    jobs: Mapping[str, Job]
    is_whole: bool = True
    trouble: str = ""


class Asked(Protocol):
    """Somebody who can be asked what runs."""

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
        patience: seconds that a job which nobody lists any more is waited for.
        gone: how such a job ended.
        clock: tells the time to the thread that asks.
    """

    name: str
    asked: Asked
    register: Register
    every: float
    patience: float = 0.0
    gone: Outcome = Outcome.UNKNOWN
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
        """Take the newest answer; ask for one, and wait for it, where nobody asks in the background."""
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
        return _Answer(listing, listing.trouble, now)

    def _take(self, listing: Listing, moment: float) -> None:
        known = self.register.jobs(self.name)
        jobs = dict(listing.jobs)
        self.register.put(self.name, jobs, moment)
        if not listing.is_whole:
            return
        # Ended by silence: nobody lists it any more, and nobody said how it ended.
        over = {
            key: replace(one.job, end=datetime.fromtimestamp(max(int(one.seen), int(start_of(one.job)) + 1), UTC),
                         outcome=self.gone)
            for key, one in known.items()
            if one.job.end is None and key not in jobs and moment - one.seen > self.patience
        }  # fmt: skip
        for key, job in over.items():
            self.register.put(self.name, {key: job}, known[key].seen)
