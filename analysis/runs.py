"""Jobs on their way through their windows: one carry a job and study, and what finished runs teach the next ones."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from analysis.ahead import Ahead, Look, changed_from
from analysis.detectors.rows import Rows, frame_of
from analysis.detectors.study import FLAW, JobStudy, JobWindows, Memory, Points, Span
from analysis.jobs.job_windows import end_of, overlapping, start_of
from analysis.jobs.shared_nodes import Run, apart, others_of, run_of, sharing
from analysis.standings import Standings
from analysis.state import MOST_RUNS, State, fingerprint
from analysis.window_reader import WindowReader, Windows
from app.log import Log
from app.units import format_moment
from cluster.model import Job
from store.points import WINDOW

_TAIL = 60
"""Seconds before its end in which a job may be judged otherwise."""

_AT_ONCE, _PIECE = 100_000, 300
"""Windows of nodes that are judged at a time, whole stretches of so many seconds: each is a row until it is thinned."""

_KEEP_EVERY, _KEPT_AT_ONCE = 900, 16 << 20
"""Seconds of windows after which a job is kept on disk again, and bytes from which the others wait for the next round:
a day of 4,096 nodes is 140 MB."""


@dataclass(slots=True)
class _Running:
    """A job: `carries` are the states before window `at`, by study.

    Attributes:
        first: the first window that it is judged in: that in which it starts, or the oldest that the store holds.
        is_taught: whether all earlier runs that count were known when its first carries were made.
        has_traffic: whether any window so far held bytes of its nodes.
        ahead: what was judged for now after them.
        kept: the window before which it was last kept on disk.
    """

    job: Job
    first: int
    at: int
    carries: dict[str, Any] = field(default_factory=dict)
    is_taught: bool = False
    has_traffic: bool = False
    ahead: Ahead | None = None
    kept: int = 0

    @property
    def is_over(self) -> bool:
        """Whether all its windows are judged for good."""
        return end_of(self.job) <= self.at


@dataclass(frozen=True, slots=True)
class Judged:
    """What a pass found.

    Attributes:
        points: rows of windows that were judged, or judged again.
        stands: by job, the moment before which all rows of an earlier pass stand; of jobs not there, none do.
    """

    points: Points
    stands: Mapping[str, int]


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
        standings: keep running jobs; None: nothing of them outlives this process.
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
        standings: Standings | None = None,
    ) -> None:
        self._studies, self._reader, self._state, self._log = studies, reader, state, log
        self._names = tuple(study.name for study in studies)
        self._window, self._horizon, self._stretch, self._check = window, horizon, stretch, check
        self._thin, self._standings = thin, standings
        self._running: dict[Run, _Running] = {}
        self._jobs: Sequence[Job] = ()
        self._others: dict[Run, list[Job]] = {}
        self._windows: Windows | None = None
        self._following: Windows | None = None
        self._looked_at: set[str] = set()

    def look_again(self) -> None:
        """Judge all windows in the next pass that are not final: others may have written them, or nobody."""
        for running in self._running.values():
            running.ahead = None

    def keep(self, final: int, *, all_jobs: bool = False) -> None:
        """Keep on disk how jobs stand, so that the next process need not judge them from their start.

        Args:
            final: the moment up to which the state is saved: of jobs that are further on, the file stays as it is.
            all_jobs: whether to keep all of them; else some of those that were kept long ago, the oldest first.
        """
        if self._standings is None:
            return
        least, size = 0 if all_jobs else _KEEP_EVERY, 0
        for running in sorted(self._running.values(), key=lambda one: one.kept):
            if running.first < running.at <= final and running.at - running.kept > least:
                size += self._standings.keep(running.job, replace(running, ahead=None, kept=running.at))
                running.kept = running.at
                if size >= _KEPT_AT_ONCE and not all_jobs:
                    break

    def judge(self, jobs: Sequence[Job], span: Span, following: int, raw_from: int) -> Judged:
        """Judge every job's windows in the span: for good up to `span.final`, for now up to `span.closed`.

        Args:
            jobs: every job that is known.
            span: what the pass covers.
            following: end of the next pass's windows; `span.closed` if there is none yet.
            raw_from: the oldest window that the store still holds.
        """
        found: dict[str, list[Rows]] = defaultdict(list)
        stands: dict[str, int] = {}
        self._turn(jobs, span, following)
        # In the order of time: a run that ends in this pass may teach one that begins in it.
        judged = [job for job in sorted(overlapping(jobs, span.start, span.closed), key=start_of) if job.nodes]
        self._jobs, self._others = jobs, sharing(judged)
        names = Counter(job.id for job in judged)
        for job in judged:
            running = self._at(job, span.start, jobs, raw_from)
            if names[job.id] > 1:
                # A job that was started again: whose of the two a row is, it does not tell.
                running.ahead = None
            rows, before = self._judge(running, span)
            if before is not None:
                stands[job.id] = before
            for one in rows:
                found[one.measurement.name].append(one)
        self._finish(jobs, set(judged), raw_from)
        return Judged([(parts[0].measurement, frame_of(parts)) for parts in found.values()], stands)

    def _turn(self, jobs: Sequence[Job], span: Span, following: int) -> None:
        """Begin to read what the pass needs, unless it was begun already, and what the next one does."""

        def begin(start: int, stop: int, settled: int | None = None) -> Windows | None:
            is_any = any(job.nodes for job in overlapping(jobs, start, stop))
            return self._reader.begin(start, stop, settled=settled) if is_any else None

        begun, self._following = self._following, None
        is_it = begun is not None and (begun.start, begun.stop) == (span.start, span.closed)
        self._windows = begun if is_it else begin(span.start, span.closed, span.final)
        if following > span.closed:
            self._following = begin(span.closed, following)

    # -- one job -----------------------------------------------------------------------------------

    def _judge(self, running: _Running, span: Span) -> tuple[list[Rows], int | None]:
        """Judge from where the job is; return also the moment before which what was found earlier stands, if any."""
        job, end = running.job, end_of(running.job)
        stop = span.closed if end >= span.closed else self._ceil(end)
        settled = min(max(span.final, running.at), stop)
        windows = self._read(job, running.at, stop)
        ahead, running.ahead = running.ahead, None
        if ahead is None or ahead.seen.start != running.at:
            rows, stands = self._advance(running, windows, settled), None
            ahead, changed = Ahead(self._seen(windows, job, settled, stop), []), settled
        else:
            seen = self._seen(windows, job, running.at, stop)
            changed = changed_from(ahead.seen, seen)
            ahead.forget(changed)
            rows, stands = self._settle(running, ahead, windows, settled)
            ahead.seen = seen.between(settled, stop)
        rows += self._look_ahead(running, ahead, changed)
        # While an analysis catches up, nothing lies ahead.
        running.ahead = ahead if ahead.looks else None
        return rows, stands

    def _settle(self, running: _Running, ahead: Ahead, windows: Windows, settled: int) -> tuple[list[Rows], int]:
        """Judge up to `settled` for good; return also the moment before which what was found earlier stands."""
        begin = running.at
        rows = self._advance(running, windows, settled)
        if self._is_closer(begin, settled):
            ahead.looks.clear()
        ahead.looks = [look for look in ahead.looks if look.stop > settled]
        # Rows that stand may hold what went on after these windows.
        return ([], ahead.looks[-1].stop) if ahead.looks else (rows, begin)

    def _look_ahead(self, running: _Running, ahead: Ahead, changed: int) -> list[Rows]:
        """Judge for now what follows the looks that stand."""
        seen, rows = ahead.seen, []
        start, stop = ahead.looks[-1].stop if ahead.looks else seen.start, seen.start + len(seen) * self._window
        carries = ahead.looks[-1].carries if ahead.looks else running.carries
        # Where it changed now, it will change in the next round, a window on.
        for first, last in itertools.pairwise(sorted({start, min(max(changed, start), stop), stop})):
            oldest, is_open = first, False
            for part in (seen.between(*piece) for piece in self._pieces(running.job, first, last)):
                carries, found = self._look(running.job, carries, replace(part, is_final=False))
                kept = self._thinned(found)
                is_open = is_open or any(one.is_open for one in found)
                oldest = min([oldest, *(int(one[WINDOW].min()) for one in kept)])
                rows += kept
            ahead.add(Look(first, last, carries, oldest, is_open))
        return rows

    def _is_closer(self, start: int, stop: int) -> bool:
        """Whether a study judges some of the windows [start, stop) otherwise once they are final."""
        return any(start // study.closer < stop // study.closer for study in self._studies if study.closer)

    def _advance(self, running: _Running, windows: Windows, end: int) -> list[Rows]:
        """Judge the windows from where the job is to `end` for good."""
        rows: list[Rows] = []
        for first, last in self._pieces(running.job, running.at, end):
            part = self._seen(windows, running.job, first, last)
            running.carries, found = self._look(running.job, running.carries, part)
            running.at = last
            running.has_traffic = running.has_traffic or part.has_traffic
            rows += self._thinned(found)
        return rows

    def _pieces(self, job: Job, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield begin and end of the windows [start, stop), of a large job in pieces."""
        if start < stop:
            length = max(_AT_ONCE // max(len(job.nodes), 1) * self._window // _PIECE, 1) * _PIECE
            cuts = range(start // length * length + length, stop, length)
            yield from itertools.pairwise([start, *cuts, stop])

    def _thinned(self, found: Sequence[Rows]) -> list[Rows]:
        return [rows for rows in map(self._thin, found) if len(rows)]

    def _look(self, job: Job, before: Mapping[str, Any], windows: JobWindows) -> tuple[dict[str, Any], list[Rows]]:
        """Return the carries after windows, and what is found in them; each study sees what those before it found."""
        carries: dict[str, Any] = {}
        rows: list[Rows] = []
        seen = replace(windows, found=rows)
        for study in self._studies:
            carries[study.name], more = study.judge(job, before[study.name], seen)
            rows += more
        return carries, rows

    def _at(self, job: Job, window: int, jobs: Sequence[Job], raw_from: int) -> _Running:
        """Return a job with its state before a window, from its first window on."""
        key = run_of(job)
        running = self._running.get(key) or self._found(job, raw_from)
        first = max(self._floor(start_of(job)), min(raw_from, window))
        if running is not None and running.job != job and _is_judged_alike(running.job, job, running.at):
            running.job = job
            running.carries = {
                study.name: study.retold(job, running.carries[study.name])
                for study in self._studies
                if study.name in running.carries
            }
            running.ahead = None
        if running is None or running.job != job or running.at > max(window, first):
            running = _Running(job, first, first)
        self._running[key] = running
        self._teach(running, jobs, raw_from)
        self._replay(running, max(window, first))
        return running

    def _found(self, job: Job, raw_from: int) -> _Running | None:
        """Return a job as an earlier process kept it, unless the store has lost what came since."""
        found = None if self._standings is None else self._standings.find(job)
        if not isinstance(found, _Running) or found.carries.keys() != set(self._names) or found.at < raw_from:
            return None
        return found

    def _replay(self, running: _Running, upto: int) -> None:
        """Go through windows that were judged already, to know what they hand on."""
        job, first = running.job, running.at
        starts = range(running.at, upto, self._stretch)
        if starts:
            self._others[run_of(job)] = others_of(job, self._jobs)
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

    def _seen(self, windows: Windows, job: Job, start: int, stop: int) -> JobWindows:
        """Return a job's windows [start, stop), without what nodes send that belong to others as well."""
        seen, others = windows.of(job, start, stop), overlapping(self._others.get(run_of(job), ()), start, stop)
        if not others:
            return seen
        shared = apart(job, others, seen.starts, seen.window)
        return replace(seen, sent=np.where(shared, 0.0, seen.sent), apart=shared)

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
        over = [self._running.pop(key) for key in [key for key, one in self._running.items() if one.is_over]]
        for running in over:
            self._save(running)
        if over:
            self._state.forget_runs(raw_from, {job.job_class for job in jobs})
            if self._standings is not None:
                self._standings.forget((running.job for running in over), raw_from)
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
        running.ahead = None

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
            key = run_of(run)
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
    """Whether all that changed is whose it is, or how and when it ends, so late that windows before `at` stay."""
    same = replace(before, end=now.end, outcome=now.outcome, quiet=now.quiet, user=now.user)
    return same == now and min(end_of(before), end_of(now)) >= at + _TAIL
