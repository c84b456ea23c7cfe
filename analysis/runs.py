"""Jobs on their way through their windows: one carry a job and study, and what finished runs teach the next ones."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.detectors.rows import Rows, frame_of
from analysis.detectors.study import FLAW, JobStudy, JobWindows, Memory, Points, Span
from analysis.jobs.job_windows import end_of, overlapping, start_of
from analysis.state import MOST_RUNS, State, fingerprint
from analysis.window_reader import WindowReader, Windows
from app.log import Log
from app.units import format_moment
from cluster.model import Job

_TAIL = 60
"""Seconds before its end in which a job may be judged otherwise."""

_AT_ONCE, _PIECE = 100_000, 300
"""Windows of nodes that are judged at a time, whole stretches of so many seconds: each is a row until it is thinned."""


@dataclass(slots=True)
class _Running:
    """A job: `carries` are the states before window `at`, by study.

    Attributes:
        first: the first window that it is judged in: that in which it starts, or the oldest that the store holds.
        is_taught: whether all earlier runs that count were known when its first carries were made.
        has_traffic: whether any window so far held bytes of its nodes.
    """

    job: Job
    first: int
    at: int
    carries: dict[str, Any] = field(default_factory=dict)
    is_taught: bool = False
    has_traffic: bool = False

    @property
    def is_over(self) -> bool:
        """Whether all its windows are judged for good."""
        return end_of(self.job) <= self.at


class JobRuns:
    """Takes every job study through the windows of every job.

    Args:
        studies: in the order in which they run.
        reader: of the store.
        state: remembers finished runs.
        log: for finished runs.
        window: seconds.
        horizon: seconds after its end from which a run teaches: it is final then, live as well as later.
        stretch: seconds of windows that are read at once.
        check: called between stretches of work; may raise.
        thin: takes from rows what will not be written.
    """

    def __init__(
        self,
        studies: Sequence[JobStudy[Any]],
        reader: WindowReader,
        state: State,
        log: Log,
        *,
        window: int,
        horizon: float,
        stretch: int,
        check: Callable[[], None],
        thin: Callable[[Rows], Rows] = lambda rows: rows,
    ) -> None:
        self._studies, self._reader, self._state, self._log = studies, reader, state, log
        self._names = tuple(study.name for study in studies)
        self._window, self._horizon, self._stretch, self._check = window, horizon, stretch, check
        self._thin = thin
        self._running: dict[tuple[str, float], _Running] = {}
        self._windows: Windows | None = None
        self._ahead: Windows | None = None
        self._looked_at: set[str] = set()

    def judge(self, jobs: Sequence[Job], span: Span, following: int, raw_from: int) -> Points:
        """Judge every job's windows in the span: for good up to `span.final`, for now up to `span.closed`.

        Args:
            jobs: every job that is known.
            span: what the pass covers.
            following: end of the next pass's windows; `span.closed` if there is none yet.
            raw_from: the oldest window that the store still holds.
        """
        found: dict[str, list[Rows]] = defaultdict(list)
        self._turn(jobs, span, following)
        # In the order of time: a run that ends in this pass may teach one that begins in it.
        judged = [job for job in sorted(overlapping(jobs, span.start, span.closed), key=start_of) if job.nodes]
        for job in judged:
            running = self._at(job, span.start, jobs, raw_from)
            for rows in self._judge(running, span):
                found[rows.measurement.name].append(rows)
        self._finish(jobs, set(judged), raw_from)
        return [(parts[0].measurement, frame_of(parts)) for parts in found.values()]

    def _turn(self, jobs: Sequence[Job], span: Span, following: int) -> None:
        """Begin to read what the pass needs, unless it was begun already, and what the next one does."""

        def begin(start: int, stop: int) -> Windows | None:
            return self._reader.begin(start, stop) if any(job.nodes for job in overlapping(jobs, start, stop)) else None

        ahead, self._ahead = self._ahead, None
        is_it = ahead is not None and (ahead.start, ahead.stop) == (span.start, span.closed)
        self._windows = ahead if is_it else begin(span.start, span.closed)
        if following > span.closed:
            self._ahead = begin(span.closed, following)

    # -- one job -----------------------------------------------------------------------------------

    def _judge(self, running: _Running, span: Span) -> list[Rows]:
        """Judge from where the job is."""
        end = end_of(running.job)
        stop = span.closed if end >= span.closed else self._ceil(end)
        settled = min(max(span.final, running.at), stop)
        windows = self._read(running.job, running.at, stop)
        rows = self._advance(running, windows, settled)
        carries = running.carries
        for part in self._parts(running.job, windows, settled, stop):
            carries, found = self._look(running.job, carries, replace(part, is_final=False))
            rows += self._thinned(found)
        return rows

    def _advance(self, running: _Running, windows: Windows, end: int) -> list[Rows]:
        """Judge the windows from where the job is to `end` for good."""
        rows: list[Rows] = []
        for part in self._parts(running.job, windows, running.at, end):
            if len(part):
                running.carries, found = self._look(running.job, running.carries, part)
                running.at += len(part) * self._window
                running.has_traffic = running.has_traffic or part.has_traffic
                rows += self._thinned(found)
        return rows

    def _thinned(self, found: Sequence[Rows]) -> list[Rows]:
        return [rows for rows in map(self._thin, found) if len(rows)]

    def _parts(self, job: Job, windows: Windows, start: int, stop: int) -> Iterator[JobWindows]:
        """Yield a job's windows [start, stop), of a large one in pieces."""
        length = max(_AT_ONCE // max(len(job.nodes), 1) * self._window // _PIECE, 1) * _PIECE
        cuts = range(start // length * length + length, stop, length) if stop - start > length else ()
        for first, last in itertools.pairwise([start, *cuts, stop]):
            yield windows.of(job, first, last)

    def _look(self, job: Job, before: Mapping[str, Any], windows: JobWindows) -> tuple[dict[str, Any], list[Rows]]:
        """Return the carries after windows, and what is found in them; each study sees what those before it found."""
        carries: dict[str, Any] = {}
        rows: list[Rows] = []
        for study in self._studies:
            seen = replace(windows, found=tuple(rows))
            carries[study.name], more = study.judge(job, before[study.name], seen)
            rows += more
        return carries, rows

    def _at(self, job: Job, window: int, jobs: Sequence[Job], raw_from: int) -> _Running:
        """Return a job with its state before a window, from its first window on."""
        key = job.id, start_of(job)
        running = self._running.get(key)
        first = max(self._floor(start_of(job)), min(raw_from, window))
        if running is not None and running.job != job and _is_judged_alike(running.job, job, running.at):
            running.job = job
            running.carries = {
                study.name: study.retold(job, running.carries[study.name])
                for study in self._studies
                if study.name in running.carries
            }
        if running is None or running.job != job or running.at > max(window, first):
            running = self._running[key] = _Running(job, first, first)
        self._teach(running, jobs, raw_from)
        self._replay(running, max(window, first))
        return running

    def _replay(self, running: _Running, upto: int) -> None:
        """Go through windows that were judged already, to know what they hand on."""
        job, first = running.job, running.at
        starts = range(running.at, upto, self._stretch)
        ahead = self._reader.begin(running.at, min(running.at + self._stretch, upto), job.nodes) if starts else None
        for start in starts:
            self._check()
            if start > first:
                # Days of a large job take minutes, in which nothing is judged and no heartbeat written.
                self._log.sparse("replay", level="info", job=job.id, at=format_moment(start), until=format_moment(upto))
            windows, stop = ahead, min(start + self._stretch, upto)
            ahead = self._reader.begin(stop, min(stop + self._stretch, upto), job.nodes) if stop < upto else None
            if windows is not None:
                self._advance(running, windows, stop)

    def _read(self, job: Job, start: int, stop: int) -> Windows:
        """Return windows that hold a job's: those of the pass, as a rule."""
        windows = self._windows
        if windows is None or start < windows.start or windows.stop < stop:
            windows = self._reader.begin(start, stop, job.nodes)
        return windows

    def _finish(self, jobs: Sequence[Job], judged: Collection[Job], raw_from: int) -> None:
        """Remember the runs that are over, and forget those that the job source no longer knows.

        What goes on was judged: all jobs of a week are too many to look for each run among them.
        """
        over = [key for key, running in self._running.items() if running.is_over]
        for key in over:
            self._save(self._running.pop(key))
        if over:
            self._state.forget_runs(raw_from, {job.job_class for job in jobs})
        for key in [key for key, running in self._running.items() if running.job not in judged]:
            del self._running[key]

    # -- what runs teach ---------------------------------------------------------------------------

    def _teach(self, running: _Running, jobs: Sequence[Job], raw_from: int) -> None:
        """Make a job's first carries, from the runs of its class that were over before it began."""
        if running.is_taught or running.at > running.first:
            return
        before = start_of(running.job) - self._horizon
        running.is_taught = self._learn_runs(running.job, before, jobs, raw_from)
        self._begin(running)

    def _begin(self, running: _Running) -> None:
        """Make a job's first carries from what is remembered."""
        job = running.job
        for study in self._studies:
            earlier = self._state.memories(study.name, job.job_class, start_of(job) - self._horizon, MOST_RUNS)
            running.carries[study.name] = study.first(job, earlier, running.first)

    def _learn_runs(self, job: Job, before: float, jobs: Sequence[Job], raw_from: int) -> bool:
        """Go through earlier runs that are not remembered; False if one of them is still under way.

        The newest that may teach something, oldest first: each learns from what is remembered when it is its turn.
        """
        complete = True
        remembered = self._state.remembered(job.job_class)
        earlier = [one for one in jobs if one.job_class == job.job_class and end_of(one) <= before and one.nodes]
        earlier = [one for one in earlier if start_of(one) >= raw_from]
        good = sorted((one for one in earlier if one.is_good), key=lambda one: (end_of(one), start_of(one), one.id))
        self._state.unlearn((one for one in earlier if not one.is_good), self._names)
        for run in good[-MOST_RUNS:]:
            key = run.id, start_of(run)
            under_way = self._running.get(key)
            if under_way is not None and not under_way.is_over:
                complete = False
            elif under_way is not None:
                self._save(self._running.pop(key))
            elif any((name, fingerprint(run)) not in remembered for name in self._names):
                self._learn_run(run)
        return complete

    def _learn_run(self, job: Job) -> None:
        """Replay a run that is over; one that turns out to have no traffic is asked again by the next process.

        Its records may still be backfilled. No process looks twice, whatever became of what it learnt.
        """
        told = fingerprint(job)
        if told in self._looked_at:
            return
        first = self._floor(start_of(job))
        running = _Running(job, first, first)
        self._begin(running)
        self._replay(running, self._ceil(end_of(job)))
        self._looked_at.add(told)
        if running.has_traffic:
            self._save(running)

    def _save(self, running: _Running) -> None:
        job = running.job
        self._remember(job, {study.name: study.remember(job, running.carries[study.name]) for study in self._studies})

    def _remember(self, job: Job, taught: Mapping[str, Memory]) -> None:
        # What failed, or was cancelled, is no measure for others.
        spoilt = {} if job.is_good else {FLAW: job.outcome.value}
        memories: dict[str, Memory] = {name: {**memory, **spoilt} for name, memory in taught.items()}
        self._state.remember(job, memories)
        flaws = {str(memory[FLAW]) for memory in memories.values() if memory.get(FLAW)}
        told = ", ".join(sorted(flaws)) or "none"
        self._log.line("run_finished", job=job.id, job_class=job.job_class, nodes=len(job.nodes), flaw=told)

    def _floor(self, moment: float) -> int:
        return math.floor(moment / self._window) * self._window

    def _ceil(self, moment: float) -> int:
        return math.ceil(moment / self._window) * self._window


def _is_judged_alike(before: Job, now: Job, at: int) -> bool:
    """Whether all that changed is how and when the job ends, so late that the windows before `at` stay as they are."""
    same = replace(before, end=now.end, outcome=now.outcome, quiet=now.quiet)
    return same == now and min(end_of(before), end_of(now)) >= at + _TAIL
