"""The analysis of one cluster: from the store's windows to verdicts in the store, live or over the past.

Every pass covers [position, ...). What lies before the bridge's grace is final: the verdicts' state moves on over
it and is saved. What is younger can still be rewritten by late records, so it is judged again at every tick, a job's
windows from the first that changed on, and only rows that changed are written. So a live analysis ends with the same
points as one that runs over the same range later, and a crash at any moment costs nothing but a repetition.

Nothing here looks at a clock: callers say what time it is.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from analysis.detectors.studies import Studies, studies_of
from analysis.detectors.study import Span
from analysis.evidence import Reader, heartbeat, with_events
from analysis.jobs.job_windows import JobSource, LateRows, gpus_of, status_points
from analysis.runs import JobRuns
from analysis.standings import Standings
from analysis.state import State
from analysis.writing import Output, gathered
from app.errors import ClusterflowError, UserError
from app.log import Log
from app.units import format_moment
from app.words import some
from cluster.model import Cluster, Job
from ingest.flows.enriching import list_points
from store import schema
from store.influx import Store
from store.schema import Measurement

_LISTED_SECONDS = 30
"""How often it is told how the exports of sign-ins are."""


_SPARE = 3.0
"""Seconds, beyond the bridge's lateness and flush, that a window gets until it counts as closed."""
_PATIENCE = 3600
"""Seconds that a window waits for a bridge that is behind, before it is final without its data."""
_STRETCH = 3600
"""Seconds of windows that are read at once."""


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
        if points:
            self.written[measurement.name] = self.written.get(measurement.name, 0) + points


class Analyser:
    """Judges windows and writes what it finds.

    Args:
        cluster: what is analysed.
        store: read from and written to.
        state: what is remembered; changed.
        jobs: who knows the job windows.
        log: for progress.
        is_stopping: asked between stretches of work; True ends it with AnalysisStoppedError.
        folder: in which it keeps where running jobs stand, to go on from there; None: nowhere.
        patience: seconds for which a clock that is behind what was judged may be set yet, as after a boot.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        state: State,
        jobs: JobSource,
        *,
        log: Log,
        is_stopping: Callable[[], bool] = lambda: False,
        folder: Path | None = None,
        patience: float = 0.0,
    ) -> None:
        self._patience, self._behind_since = patience, math.inf
        self._standings = None if folder is None else Standings(folder, cluster, log)
        self._cluster, self._store, self._state, self._jobs, self._log = cluster, store, state, jobs, log
        self._reader = Reader(store, cluster)
        self._window = cluster.bridge.window
        self._is_stopping = is_stopping
        for before, name in state.follow_groups(cluster).items():
            log.line("group_renamed", before=before, now=name, what="what was known of it stays known")
        if nodes := state.follow_nodes(cluster):
            told = some([f"{before} -> {name}" for before, name in nodes.items()])
            log.line("nodes_renamed", nodes=told, what="what was known of them stays known")
        self._output = Output(store, log)
        self._gpus = gpus_of(cluster)
        self._studies, self._runs, self._late_rows = self._begun()
        self._written = (schema.JOB_STATUS, *self._studies.measurements())
        of_clients = self._studies.of_clients
        self._of_clients = {one.name for study in of_clients.studies for one in study.measurements}
        self._of_jobs = {one.name for study in self._studies.of_jobs for one in study.measurements}
        self._delay = self._ceil(of_clients.delay)
        self._due: int | None = None
        self._listed = 0
        self._has_ticked, self._refused = False, 0
        self._settled: int | None = None
        self._final: int | None = None
        self._raw_from = 0

    def _begun(self) -> tuple[Studies, JobRuns, LateRows]:
        """Return those that remember what they saw, before they saw anything."""
        bridge = self._cluster.bridge
        studies = studies_of(self._cluster, self._reader, self._state, self._log)
        runs = JobRuns(
            studies.of_jobs,
            self._reader.windows,
            self._state,
            self._log,
            window=self._window,
            horizon=bridge.grace + 2 * self.settle_seconds + 2 * self._window,
            stretch=self._floor(_STRETCH),
            check=self._check,
            thin=self._output.thinned,
            standings=self._standings,
        )
        return studies, runs, LateRows(self._window, self._gpus)

    # -- times -------------------------------------------------------------------------------------

    @property
    def settle_seconds(self) -> float:
        """Age of a window's end at which the window counts as closed."""
        bridge = self._cluster.bridge
        return bridge.lateness + bridge.flush + _SPARE

    def closed_until(self, now: float) -> int:
        """Return the end of the newest closed window."""
        return self._floor(now - self.settle_seconds)

    def _floor(self, moment: float) -> int:
        return math.floor(moment / self._window) * self._window

    def _ceil(self, moment: float) -> int:
        return math.ceil(moment / self._window) * self._window

    def _final_until(self, closed: int) -> tuple[int, int | None]:
        """Return up to where no late record can change a window any more, and the end of the newest window if any."""
        grace = self._ceil(self._cluster.bridge.grace)
        earliest = closed - grace - self._floor(_PATIENCE)
        newest = self._reader.newest_window(earliest, closed)
        if newest is None:
            return earliest, None
        # A bridge that works off a backlog has not written these windows yet, and its grace counts from where it is.
        return max(earliest, min(closed, newest + self._window) - grace), newest + self._window

    def _oldest(self, closed: int) -> int:
        """Return the oldest window that the raw retention still holds, with a margin for what expires meanwhile."""
        return self._ceil(closed - self._cluster.store.keep_raw + _STRETCH)

    # -- live --------------------------------------------------------------------------------------

    def tick(self, now: float) -> Round:
        """Judge what closed since the last tick, and judge again what may have changed.

        Raises:
            StoreError: nothing is lost; the next tick does it all.
            AnalysisStoppedError: see `is_stopping`.
        """
        started = time.monotonic()
        result = Round()
        if not self._has_ticked:
            # What a tick that failed had begun to write is stored before this one asks what is.
            with suppress(ClusterflowError):
                self._output.flush()
        closed = self.closed_until(now)
        self._due = None
        final, heard = self._final_until(closed)
        self._raw_from = self._oldest(closed)
        position = self._state.position
        if position is None or position <= closed + self._window:
            self._behind_since = math.inf
        else:
            self._behind_since = min(self._behind_since, now)
            if now - self._behind_since < self._patience:
                self._log.sparse("clock_behind", what="judged later than now: waiting for the clock to be set")
                result.judged = position
                return result
            self._turn_back(now, final, position)
            position = None
        # Windows that were shorter may have ended in the middle of one.
        position = self._begin(now, final) if position is None else self._floor(position)
        if heard is not None:
            self._state.hear(heard)
        if position < self._raw_from:
            until = format_moment(self._raw_from)
            self._log.warning(
                "range_skipped", why="older than the raw retention", since=format_moment(position), until=until
            )
            position = self._raw_from
        final = max(final, position)
        late = self._late_rows.before(self._jobs.jobs(), self._raw_from, position)
        result.count(schema.JOB_STATUS, self._output.write(schema.JOB_STATUS, late))
        step = self._floor(_STRETCH)
        behind = range(position, final - step, step)
        spans = [Span(start, start + step, start + step, start + step) for start in behind]
        last = spans[-1].final if spans else position
        spans.append(Span(last, final, closed, self._floor(now) + self._window))
        recall, self._has_ticked = not self._has_ticked, False
        self._passes(result, spans, recall=recall)
        self._has_ticked = True
        self._final = final
        self._runs.keep(final)
        self._late_rows.note(self._jobs.jobs())
        result.judged = closed
        lag = {schema.HEARTBEAT: now - closed, "tick_seconds": time.monotonic() - started}
        refused = self._output.refused
        lag[schema.POINTS_REFUSED] = refused - self._refused
        self._output.write(schema.PIPELINE, heartbeat(int(now), self._cluster.bridge.shard, lag))
        self._list_sign_ins(now)
        self._output.flush()
        self._refused = refused
        return result

    def rest(self) -> None:
        """Keep on disk how all jobs stand: nothing more will be judged here."""
        if self._final is not None:
            self._runs.keep(self._final, all_jobs=True)

    def _turn_back(self, now: float, final: int, position: int) -> None:
        """Forget a position that a clock which was ahead left: nothing would be judged until time gets there.

        What is remembered is of windows that had not come yet: it is rebuilt, as after another analysis led.
        """
        heard = self._state.heard
        sure = final if heard is None else min(heard - self._ceil(self._cluster.bridge.grace), final)
        told = {"position": format_moment(position), "seconds": position - self.closed_until(now)}
        self._log.warning(
            "clock_turned_back", what="the clock was ahead; judging goes on from where it was right", **told
        )
        self._take_back(self._floor(now) + self._window, position)
        self._jobs.turn_back(sure)
        self._state.forget_all()
        if self._standings is not None:
            self._standings.forget_all()
        if heard is not None:
            self._state.hear(heard)
        self._studies, self._runs, self._late_rows = self._begun()
        self._has_ticked = False

    def _take_back(self, start: int, position: int) -> None:
        """Take back what is written of windows from `start` on: nobody looks at quiet ones again when they come."""
        step = self._floor(_STRETCH)
        # It reached from the oldest raw window of that clock to its newest one, or a stretch on where it was ended.
        first = max(start, self._floor(position - self._cluster.store.keep_raw))
        ahead = self._cluster.bridge.grace + _PATIENCE + self.settle_seconds + step
        for begin in range(first, self._ceil(position + ahead) + 2 * self._window, step):
            self._check()
            self._output.recall(self._written, begin, begin + step)
            for measurement in self._written:
                self._output.update(measurement, None, begin, begin + step)
            self._output.flush()

    def _begin(self, now: float, final: int) -> int:
        """Learn from history at the first start, or after the state was lost; return the position."""
        last = self._reader.last_heartbeat(math.floor(now) + 1)
        heard = self._state.heard
        if last is not None and heard is not None:
            # For as long as a clock was ahead, heartbeats told of windows that were not there.
            last = min(last, heard)
        earliest = self._reader.earliest_egress()
        began = now if earliest is None else earliest
        learning_end = self._ceil(began + self._cluster.thresholds.contact_learning)
        if last is None:
            # Whoever starts us looks at the cluster from now on: nobody is to be woken for its past.
            learning_end = max(learning_end, self._ceil(now))
            position = final - self._floor(_STRETCH)
        else:
            position = self._led_until(last, final)
        position = max(position, self._raw_from)
        seeds = with_events(self._reader.contacts_before(position), self._reader.events_before(position))
        self._state.begin(position, learning_end, seeds)
        told = {
            "contacts": seeds.height,
            "since": format_moment(earliest, "nothing is stored"),
            "until": format_moment(position),
            "learning_until": format_moment(learning_end),
        }
        if last is None:
            self._log.line("contacts_learned", **told)
            self._jobs.settle(self._raw_from, position)
            history = status_points(self._jobs.jobs(), self._raw_from, position, self._window, self._gpus)
            self._output.write(schema.JOB_STATUS, history)
        elif self._state.is_behind:
            self._log.line("state_rebuilt", what="from the store; decisions here stay", **told)
        else:
            self._log.warning("state_lost", what="rebuilt from the store; acknowledgements are gone", **told)
        if learning_end > now + self._window:
            why = "too little history to call anything new"
            self._log.line("contacts_learning", why=why, until=format_moment(learning_end))
        return position

    def _led_until(self, last: int, final: int) -> int:
        """Return up to where verdicts are final of an analysis whose last heartbeat was of a moment."""
        return min(self._floor(last) - self._ceil(self._cluster.bridge.grace), final)

    def follow(self, now: float, jobs: Sequence[Job]) -> None:
        """Keep up with where jobs stand, while another analysis leads: what it judged for good is judged, not written.

        Raises:
            StoreError: nothing is lost; the next call does it all.
            AnalysisStoppedError: see `is_stopping`.
        """
        closed = self.closed_until(now)
        final, _ = self._final_until(closed)
        last = self._reader.last_heartbeat(math.floor(now) + 1)
        if last is None:
            return
        # Whoever leads next begins where this one was: jobs that are further on would be judged anew.
        final, oldest = self._led_until(last, final), self._oldest(closed)
        begin, step = max(self._final or final - self._window, oldest), self._floor(_STRETCH)
        for start in range(begin, final, step):
            stop = min(start + step, final)
            self._runs.judge(jobs, Span(start, stop, stop, stop), stop, oldest)
            self._final = stop
            self._runs.keep(stop)

    def _list_sign_ins(self, now: float) -> None:
        """Report the state of the files that say who had which address, as bridges do of theirs."""
        readings = self._studies.of_clients.readings()
        if readings and int(now) // _LISTED_SECONDS != self._listed:
            self._listed = int(now) // _LISTED_SECONDS
            points = list_points(readings, self._cluster.enrichment, now, int(now))
            shard = pl.lit(self._cluster.bridge.shard).alias(schema.SHARD)
            self._output.write(schema.ENRICHMENT, points.with_columns(shard))

    # -- the past ----------------------------------------------------------------------------------

    def past(self, start: float, stop: float, now: float) -> tuple[int, int]:
        """Return begin and end of the closed windows of a past range; the store is not asked.

        Raises:
            UserError: there are none, or some that the raw retention no longer has.
        """
        closed = self.closed_until(now)
        first, last = self._floor(start), min(self._ceil(stop), closed)
        if last <= first:
            raise UserError("the range holds no closed window", f"the newest one ends at {format_moment(closed)}")
        if first < closed - self._cluster.store.keep_raw:
            days = self._cluster.store.keep_raw / 86_400
            raise UserError("the range begins before the raw retention", f"it keeps {days:g} days")
        return first, last

    def rerun(self, start: float, stop: float, now: float) -> Round:
        """Judge the closed windows of a past range once more, and write all their points.

        The state should be a copy: contacts first seen in the range or later are found again.

        Raises:
            UserError: see `past`.
            StoreError: the store is away.
        """
        closed = self.closed_until(now)
        first, last = self.past(start, stop, now)
        self._raw_from = self._oldest(closed)
        self._due = self._floor(closed - self._delay)
        if self._state.position is None:
            earliest = self._reader.earliest_egress()
            learning_end = max(
                first, first if earliest is None else earliest + self._cluster.thresholds.contact_learning
            )
            self._state.begin(first, learning_end, self._reader.contacts_before(first))
        result = Round()
        step = self._floor(_STRETCH)
        ends = [min(start + step, last) for start in range(first, last, step)]
        spans = [Span(start, end, end, end) for start, end in zip(range(first, last, step), ends, strict=True)]
        # A checkpoint that began before the end may have gone on after it: judged up to there it would be cut short.
        ahead = min(last + step, closed)
        spans[-1] = replace(spans[-1], closed=ahead, now=ahead)
        self._passes(result, spans, recall=True, until=last)
        result.judged = last
        return result

    # -- one pass ----------------------------------------------------------------------------------

    def _passes(self, result: Round, spans: Sequence[Span], *, recall: bool, until: int | None = None) -> None:
        """Judge spans, one after the other.

        Args:
            result: counts what is written.
            spans: what is judged.
            recall: whether another process, or an earlier run, may have written there.
            until: rows from here on are not written; None: all are.
        """
        self._settled, self._output.until = None, until
        if recall:
            self._runs.look_again()
        for span, following in zip(spans, [*(span.closed for span in spans[1:]), 0], strict=True):
            if recall:
                self._recall(span, until)
            self._pass(result, span, following)
        self._settle()

    def _behind(self, span: Span) -> Span | None:
        """Return what studies of clients judge while others judge a span; None: nothing.

        Live, they are `delay` behind, as exports of sign-ins are. The past they judge where it lies, but for what is
        not due yet.
        """
        if self._due is None:
            return span.behind(self._delay, self._raw_from)
        return span.until(self._due) if span.start < self._due else None

    def _recall(self, span: Span, until: int | None) -> None:
        """Take note of a span that another analysis has written."""
        behind = self._behind(span)
        for part, is_of_clients in ((span, False), (behind, True)):
            if part is not None:
                measurements = [one for one in self._written if (one.name in self._of_clients) is is_of_clients]
                self._output.recall(measurements, part.start, part.now if until is None else min(part.now, until))

    def _settle(self) -> None:
        """Wait for what the last pass wrote, and move the state on over it."""
        self._output.flush()
        if self._settled is not None:
            self._state.advance(self._settled)
            self._settled = None

    def _pass(self, result: Round, span: Span, following: int) -> None:
        """Judge a span and move the state on to what is final; `following`: end of the next span."""
        self._check()
        self._jobs.settle(self._raw_from, span.final)
        jobs = self._jobs.jobs()
        points = [(schema.JOB_STATUS, status_points(jobs, span.start, span.now, self._window, self._gpus))]
        of_jobs = self._runs.judge(jobs, span, following, self._raw_from)
        points += of_jobs.points
        behind = self._behind(span)
        judged = [(study, span) for study in self._studies.of_cluster]
        if behind is not None:
            judged += [(study, behind) for study in self._studies.of_clients.studies]
        for study, part in judged:
            self._check()
            points += study.judge(part, jobs)
        frames = gathered(points)
        del points
        self._settle()
        for measurement in self._written:
            own = behind if measurement.name in self._of_clients else span
            if own is None:
                continue
            stands = of_jobs.stands if measurement.name in self._of_jobs else {}
            found = frames.pop(measurement.name, None)
            written = self._output.update(measurement, found, own.start, own.final, stands)
            result.count(measurement, written)
        self._settled = span.final

    def _check(self) -> None:
        if self._is_stopping():
            raise AnalysisStoppedError("stopped")
