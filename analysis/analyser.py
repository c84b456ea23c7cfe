"""The analysis of one cluster: from the store's windows to verdicts in the store, live or over the past.

Every pass covers [position, ...). What lies before the bridge's grace is final: the verdicts' state moves on over
it and is saved. What is younger can still be rewritten by late records, so it is judged again at every tick from
the saved state on, and only rows that changed are written. So a live analysis ends with the same points as one that
runs over the same range later, and a crash at any moment costs nothing but a repetition.

Nothing here looks at a clock: callers say what time it is.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from analysis import contacts, dropout
from analysis.baseline import Baseline, RunSummary, learn
from analysis.contacts import ContactPolicy
from analysis.dropout import Carry, Cohort, DropoutPolicy, Evidence
from analysis.evidence import Reader, heartbeat, with_events
from analysis.jobs import JobSource, end_of, overlapping, start_of, status_points
from analysis.state import State
from cluster import schema
from cluster.errors import ClusterflowError, UserError
from cluster.model import Cluster, Job
from cluster.schema import Measurement
from ingest.logs import Log
from ingest.points import WINDOW, batches
from ingest.store import Store


@dataclass(frozen=True, slots=True)
class AnalysisSettings:
    """The numbers of the process itself.

    Attributes:
        spare: seconds, beyond the bridge's lateness and flush, that a window gets until it counts as closed.
        patience: seconds that a window waits for a bridge that is behind, before it is final without its data.
        stretch: seconds of windows that are read at once.
        cells: windows x nodes that are read at once.
    """

    spare: float = 3.0
    patience: int = 3600
    stretch: int = 3600
    cells: int = 400_000
    dropout: DropoutPolicy = field(default_factory=DropoutPolicy)
    contacts: ContactPolicy = field(default_factory=ContactPolicy)


class AnalysisStoppedError(ClusterflowError):
    """The analysis was asked to stop; what it had finished is saved."""


@dataclass(slots=True)
class Round:
    """What a tick or a re-run did.

    Attributes:
        judged: end of the newest closed window that was judged, epoch seconds.
        written: points, by measurement.
    """

    judged: int = 0
    written: dict[str, int] = field(default_factory=dict)

    def count(self, measurement: Measurement, points: int) -> None:
        """Add to `written`."""
        self.written[measurement.name] = self.written.get(measurement.name, 0) + points


@dataclass(slots=True)
class _Running:
    """A job on its way through the windows: `carry` is the state before window `at`."""

    cohort: Cohort
    carry: Carry
    at: int
    baseline: Baseline | None = None

    @property
    def is_over(self) -> bool:
        """Whether all its windows are judged for good."""
        return end_of(self.cohort.job) <= self.at


class Analyser:
    """Judges windows and writes what it finds.

    Args:
        cluster: what is analysed.
        store: read from and written to.
        state: what is remembered; changed.
        jobs: who knows the job windows.
        log: where progress is told.
        settings: see there.
        is_stopping: asked between stretches of work; True ends it with AnalysisStoppedError.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        state: State,
        jobs: JobSource,
        *,
        log: Log,
        settings: AnalysisSettings | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.settings = settings or AnalysisSettings()
        self._cluster, self._store, self._state, self._jobs, self._log = cluster, store, state, jobs, log
        self._reader = Reader(store, cluster)
        self._window = cluster.bridge.window
        self._group_of = {node.name: node.group for node in cluster.nodes}
        self._is_stopping = is_stopping
        self._running: dict[tuple[str, float], _Running] = {}
        self._without_traffic: set[tuple[str, float]] = set()
        self._written: dict[str, pl.DataFrame] = {}
        self._raw_from = 0

    # -- times -------------------------------------------------------------------------------------

    @property
    def settle_seconds(self) -> float:
        """Age of a window's end at which the window counts as closed."""
        bridge = self._cluster.bridge
        return bridge.lateness + bridge.flush + self.settings.spare

    def closed_until(self, now: float) -> int:
        """Return the end of the newest closed window."""
        return self._floor(now - self.settle_seconds)

    def _floor(self, moment: float) -> int:
        return math.floor(moment / self._window) * self._window

    def _ceil(self, moment: float) -> int:
        return math.ceil(moment / self._window) * self._window

    def _final_until(self, closed: int) -> int:
        """Return up to where no late record can change a window any more."""
        grace = self._ceil(self._cluster.bridge.grace)
        earliest = closed - grace - self._floor(self.settings.patience)
        newest = self._reader.newest_window(earliest, closed)
        if newest is None:
            return earliest
        # A bridge that works off a backlog has not written these windows yet, and its grace counts from where it is.
        return max(earliest, min(closed, newest + self._window) - grace)

    def _oldest(self, closed: int) -> int:
        """Return the oldest window that the raw retention still holds, with a margin for what expires meanwhile."""
        return self._ceil(closed - self._cluster.store.keep_raw + self.settings.stretch)

    # -- live --------------------------------------------------------------------------------------

    def tick(self, now: float) -> Round:
        """Judge what closed since the last tick, and judge again what may have changed.

        Raises:
            StoreError: nothing is lost; the next tick does it all.
            AnalysisStoppedError: see `is_stopping`.
        """
        started = time.monotonic()
        result = Round()
        closed = self.closed_until(now)
        final = self._final_until(closed)
        self._raw_from = self._oldest(closed)
        position = self._state.position
        if position is None:
            position = self._begin(now, final)
        if position < self._raw_from:
            self._log.line("skipped", why="older than the raw retention", start=position, stop=self._raw_from)
            position = self._raw_from
        final = max(final, position)
        while final - position > self.settings.stretch:
            upto = position + self._floor(self.settings.stretch)
            self._pass(result, position, upto, upto, upto)
            position = upto
        self._pass(result, position, final, closed, self._floor(now) + self._window)
        result.judged = closed
        lag = {schema.HEARTBEAT: now - closed, "tick_seconds": time.monotonic() - started}
        self._write(result, schema.PIPELINE, heartbeat(int(now), self._cluster.bridge.shard, lag))
        return result

    def _begin(self, now: float, final: int) -> int:
        """Learn from history at the first start, or after the state was lost; return the position."""
        last = self._reader.last_heartbeat()
        earliest = self._reader.earliest_egress()
        began = now if earliest is None else earliest
        learning_end = self._ceil(began + self.settings.contacts.learning)
        if last is None:
            # Whoever starts us looks at the cluster from now on: nobody is to be woken for its past.
            learning_end = max(learning_end, self._ceil(now))
            position = final - self._floor(self.settings.stretch)
        else:
            position = min(self._floor(last) - self._ceil(self._cluster.bridge.grace), final)
        position = max(position, self._raw_from)
        seeds = with_events(self._reader.contacts_before(position), self._reader.events_before(position))
        self._state.begin(position, learning_end, seeds)
        told = {"contacts": seeds.height, "start": earliest, "stop": position, "learning_until": learning_end}
        if last is None:
            self._log.line("contacts_learned", **told)
            history = status_points(self._jobs.jobs(), self._raw_from, position, self._window)
            self._write(Round(), schema.JOB_STATUS, history)
        else:
            self._log.line("state_lost", what="rebuilt from the store; acknowledgements are gone", **told)
        if learning_end > now + self._window:
            self._log.line("contacts_learning", why="too little history to call anything new", until=learning_end)
        return position

    # -- the past ----------------------------------------------------------------------------------

    def rerun(self, start: float, stop: float, now: float) -> Round:
        """Judge the closed windows of a past range once more, and write all their points.

        The state should be a copy: contacts first seen in the range or later are found again.

        Raises:
            UserError: the range holds no closed window, or windows that the raw retention no longer has.
            StoreError: the store is away.
        """
        closed = self.closed_until(now)
        first, last = self._floor(start), min(self._ceil(stop), closed)
        if last <= first:
            raise UserError("the range holds no closed window", f"the newest closed window ends at {closed}")
        self._raw_from = self._oldest(closed)
        if first < closed - self._cluster.store.keep_raw:
            days = self._cluster.store.keep_raw / 86_400
            raise UserError("the range begins before the raw retention", f"it keeps {days:g} days")
        if self._state.position is None:
            earliest = self._reader.earliest_egress()
            learning_end = max(first, first if earliest is None else earliest + self.settings.contacts.learning)
            self._state.begin(first, learning_end, self._reader.contacts_before(first))
        result = Round()
        for position in range(first, last, self._floor(self.settings.stretch)):
            upto = min(position + self._floor(self.settings.stretch), last)
            self._pass(result, position, upto, upto, upto)
        result.judged = last
        return result

    # -- one pass ----------------------------------------------------------------------------------

    def _pass(self, result: Round, start: int, final: int, closed: int, now: int) -> None:
        """Judge [start, closed), and contacts of [start, now); move the state on to `final`."""
        self._check()
        jobs = self._jobs.jobs()
        self._update(result, schema.JOB_STATUS, status_points(jobs, start, now, self._window), final)
        frames = []
        # In the order of time: a run that ends in this pass may teach one that begins in it.
        for job in sorted(overlapping(jobs, start, closed), key=start_of):
            running = self._at(job, start, jobs)
            if running is not None:
                frames += self._judge(running, final, closed, jobs)
        self._finish(jobs)
        if frames:
            self._update(result, schema.BASELINE, pl.concat(frames), final)
        known = self._state.contacts().filter(pl.col(contacts.FIRST_SEEN) < start)
        found = contacts.find(
            self._reader.egress(start - self._ceil(self.settings.contacts.episode), now),
            known,
            self._state.decisions(),
            start=start,
            learning_end=self._state.learning_end,
            window=self._window,
            policy=self.settings.contacts,
        )
        self._tell_contacts(found.contacts, start)
        points = found.points
        if (before := self._written.get(schema.CONTACT.name)) is not None:
            in_range = before.filter(pl.col(WINDOW) >= start)
            points = pl.concat([points, contacts.retracted(in_range, points).select(points.columns)])
        self._update(result, schema.CONTACT, points, final)
        self._state.commit(start, final, found.contacts)

    def _check(self) -> None:
        if self._is_stopping():
            raise AnalysisStoppedError("stopped")

    # -- jobs --------------------------------------------------------------------------------------

    def _judge(self, running: _Running, final: int, closed: int, jobs: tuple[Job, ...]) -> list[pl.DataFrame]:
        """Judge a job's windows from where it is: over the final ones for good, over the others for now."""
        end = end_of(running.cohort.job)
        stop = closed if end >= closed else self._ceil(end)
        settled = min(max(final, running.at), stop)
        baseline = self._baseline(running, jobs)
        evidence = self._evidence(running.cohort, running.at, stop)
        whole = (settled - running.at) // self._window
        running.carry, first = dropout.judge(
            running.cohort, baseline, running.carry, evidence.part(0, whole, self._window)
        )
        running.at = settled
        _, second = dropout.judge(
            running.cohort, baseline, running.carry, evidence.part(whole, len(evidence.sent), self._window)
        )
        return [first, second]

    def _evidence(self, cohort: Cohort, start: int, stop: int) -> Evidence:
        sent, packets = self._reader.traffic(start, stop).of(cohort.job.nodes)
        heard, rate = self._reader.exporter_bytes(start, stop)
        return Evidence(start, sent, packets, heard > 0, rate)

    def _at(self, job: Job, window: int, jobs: tuple[Job, ...]) -> _Running | None:
        """Return a job with the state before a window, from its first window on; None for a job without nodes."""
        if not job.nodes:
            return None
        key = job.id, start_of(job)
        running = self._running.get(key)
        if running is None or running.cohort.job != job or running.at > max(window, running.cohort.first_window):
            running = self._running[key] = self._fresh(job)
        self._replay(running, max(window, running.cohort.first_window), jobs)
        return running

    def _fresh(self, job: Job) -> _Running:
        cohort = Cohort(
            job=job,
            groups=tuple(self._group_of.get(node, "") for node in job.nodes),
            window=self._window,
            spreads=self._cluster.thresholds.dropout_spreads,
            min_runs=self._cluster.thresholds.dropout_min_runs,
            policy=self.settings.dropout,
        )
        first = cohort.first_window
        heard, _ = self._reader.exporter_bytes(first - self._ceil(3600), first)
        return _Running(cohort, dropout.first_carry(cohort, np.any(heard > 0, axis=0)), first)

    def _replay(self, running: _Running, upto: int, jobs: tuple[Job, ...]) -> None:
        """Go through windows that were judged already, to know what they hand on."""
        cohort = running.cohort
        step = max(self.settings.cells // cohort.size, 1) * self._window
        while running.at < upto:
            self._check()
            stop = min(running.at + step, upto)
            evidence = self._evidence(cohort, running.at, stop)
            running.carry, _ = dropout.judge(cohort, self._baseline(running, jobs), running.carry, evidence)
            running.at = stop

    def _finish(self, jobs: tuple[Job, ...]) -> None:
        """Remember the runs that are over, and forget those that the job source no longer knows."""
        for key, running in list(self._running.items()):
            if running.is_over:
                self._save_run(dropout.summarise(running.cohort, running.carry))
                del self._running[key]
            elif running.cohort.job not in jobs:
                del self._running[key]

    def _save_run(self, run: RunSummary) -> None:
        self._state.save_run(run)
        self._log.line("run", job=run.job, job_class=run.job_class, nodes=len(run.nodes), flaw=run.flaw or "none")

    # -- baselines ---------------------------------------------------------------------------------

    def _horizon(self) -> float:
        """Seconds after its end from which a run counts: it is final then, live as well as later."""
        return self._cluster.bridge.grace + 2 * self.settle_seconds + 2 * self._window

    def _baseline(self, running: _Running, jobs: tuple[Job, ...]) -> Baseline:
        """Return what a job is judged by: the runs of its class that were over before it began."""
        if running.baseline is None:
            job = running.cohort.job
            before = start_of(job) - self._horizon()
            complete = self._learn_runs(job, before, jobs)
            runs = self._state.runs(job.job_class, before)
            baseline = learn(job.nodes, runs, self._cluster.thresholds.dropout_max_runs)
            if not complete:
                return baseline
            running.baseline = baseline
        return running.baseline

    def _learn_runs(self, job: Job, before: float, jobs: tuple[Job, ...]) -> bool:
        """Go through earlier runs that nobody remembers, oldest first; False if one of them is still under way."""
        complete = True
        earlier = [one for one in jobs if one.job_class == job.job_class and end_of(one) <= before and one.nodes]
        earlier = [one for one in earlier if start_of(one) >= self._raw_from]
        for run in sorted(earlier, key=lambda one: (end_of(one), start_of(one), one.id)):
            key = run.id, start_of(run)
            under_way = self._running.get(key)
            if under_way is not None and not under_way.is_over:
                complete = False
            elif under_way is not None:
                self._save_run(dropout.summarise(under_way.cohort, self._running.pop(key).carry))
            elif key not in self._without_traffic and not self._state.has_run(run):
                self._learn_run(run, jobs)
        return complete

    def _learn_run(self, job: Job, jobs: tuple[Job, ...]) -> None:
        running = self._fresh(job)
        self._replay(running, self._ceil(end_of(job)), jobs)
        summary = dropout.summarise(running.cohort, running.carry)
        if running.carry.judged:
            self._save_run(summary)
        else:
            # Perhaps its records are still to be backfilled: asked again by the next process.
            self._without_traffic.add((job.id, start_of(job)))

    # -- writing -----------------------------------------------------------------------------------

    def _update(self, result: Round, measurement: Measurement, points: pl.DataFrame, final: int) -> None:
        """Write the points that differ from those written before; remember those that may still change."""
        before = self._written.get(measurement.name)
        changed = points
        if before is not None and before.height and points.height:
            changed = points.join(before, on=points.columns, how="anti", nulls_equal=True)
        self._write(result, measurement, changed)
        self._written[measurement.name] = points.filter(pl.col(WINDOW) >= final)

    def _write(self, result: Round, measurement: Measurement, points: pl.DataFrame) -> None:
        for lines, count in batches(measurement, points):
            self._store.write(lines, schema.RAW)
            result.count(measurement, count)

    def _tell_contacts(self, found: pl.DataFrame, start: int) -> None:
        """Log the new contacts that the last pass had not found."""
        told = self._state.contacts().filter(pl.col(contacts.FIRST_SEEN) >= start).select(contacts.PAIR)
        fresh = found.filter(pl.col(contacts.NEW) == 1, pl.col(contacts.DIGEST) == 0)
        for row in fresh.join(told, on=contacts.PAIR, how="anti").iter_rows(named=True):
            self._log.line(
                "new_contact",
                src=row[schema.SRC],
                dst=row[schema.DST],
                service=f"{row[schema.PROTO]}/{row[schema.SERVICE]}",
                first_seen=row[contacts.FIRST_SEEN],
            )
