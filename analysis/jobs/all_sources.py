"""All job sources of a cluster as one.

cluster.yaml's own `jobs` come first, then `job_sources` in their order. Where two report the same run (the same id at
the same time), the later one wins; what it does not know, an end or an outcome, is taken from the other. Inferred jobs
give way to all others: nodes of a job that somebody knows are not looked at.

Nodes are compared with the inventory. ``gpu-01`` and ``gpu-01.cluster.example`` are the same node; what is not in the
inventory at all is counted, told once, and left out: nobody could say whether it is silent or not there.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import polars as pl

from analysis.evidence import Reader
from analysis.jobs.hostlist import expand
from analysis.jobs.job_source import KEEP_JOBS, Around, Source
from analysis.jobs.job_windows import STOP, active_at, end_of, start_of
from analysis.jobs.register import Register, key_of
from analysis.jobs.sources.file import ClusterYaml
from analysis.jobs.sources.inferred import InferredSource
from app.log import Log
from app.words import some
from cluster.model import (
    LISTED,
    Cluster,
    InferredJobs,
    Job,
    JobSource,
    Outcome,
)
from store import schema
from store.influx import Store
from store.influxql import Select, any_of, beside, says
from store.points import columns
from store.schema import JobReading, Stage

_SAME_RUN = 60


@dataclass(frozen=True, slots=True)
class SourceState:
    """How a source is.

    Attributes:
        trouble: why its last question failed, in one line; empty if it did not.
        since: when the trouble began, epoch seconds.
        known, running: how many of its jobs there are, and how many run now.
        strangers: nodes that it names and the inventory does not know.
    """

    name: str
    kind: str
    trouble: str
    since: float | None
    known: int
    running: int
    strangers: tuple[str, ...]


class JobSources:
    """What every source knows, merged. A `JobSource`.

    Args:
        cluster: its sources and its inventory.
        store: for the source that infers jobs, and to rebuild a lost register.
        register: what was reported before; changed.
        log: for troubles.
        path: of cluster.yaml, to read its jobs again when it changes.
        check: called between stretches of work; may raise.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        register: Register,
        log: Log,
        *,
        path: Path | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.cluster = cluster
        self._store, self._register, self._log = store, register, log
        self._yaml = ClusterYaml(cluster, path, log)
        settings = list(cluster.job_sources)
        if not settings and not cluster.jobs:
            settings = [InferredJobs()]
        self._kinds: dict[str, str] = {LISTED: LISTED} | {one.name: one.kind for one in settings}
        self._schedulers = {one.name for one in settings if one.is_scheduler}
        around = Around(cluster, store, register, log, self._told, check)
        self._sources = [_source(one, around) for one in settings]
        self._inferred = next((one for one in self._sources if isinstance(one, InferredSource)), None)
        self._names = _Names(node.name for node in cluster.nodes)
        self._troubles: dict[str, tuple[str, float]] = {}
        self._told_strangers: set[str] = set()
        self._strangers: dict[str, set[str]] = {}
        self._merged: tuple[Job, ...] = ()
        self._version: object = None
        if register.broken:
            log.error("register_broken", what="jobs.sqlite cannot be read", moved_to=register.broken)

    # -- a life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to listen and to ask in the background; UserError if a source cannot."""
        for source in self._sources:
            source.start()

    def stop(self) -> None:
        """End what `start` began."""
        for source in self._sources:
            source.stop()

    def refresh(self, now: float) -> None:
        """Take in what is new; what fails is reported once, and leaves the last known jobs as they are."""
        self._note(LISTED, self._yaml.refresh(now), now)
        for source in self._sources:
            self._note(source.name, source.refresh(now), now)
        self._register.forget_before(now - self.cluster.store.keep_raw - KEEP_JOBS)

    def _note(self, name: str, trouble: str, now: float) -> None:
        before = self._troubles.get(name)
        if trouble and before is None:
            self._log.warning("job_source_failed", source=name, why=trouble)
        elif trouble and before is not None and before[0] != trouble:
            self._log.sparse("job_source_failed", source=name, why=trouble)
        elif not trouble and before is not None:
            self._log.line("job_source_recovered", source=name, away=round(now - before[1]))
        if trouble:
            self._troubles[name] = trouble, before[1] if before else now
        else:
            self._troubles.pop(name, None)

    # -- jobs --------------------------------------------------------------------------------------

    def settle(self, oldest: int, final: int) -> None:
        """Infer jobs from the windows of [oldest, final), where that is asked for."""
        if self._inferred is not None:
            self._inferred.settle(oldest, final)

    def turn_back(self, moment: int) -> None:
        """Infer jobs from the windows from a moment on once more."""
        if self._inferred is not None:
            self._inferred.turn_back(moment)

    def jobs(self) -> tuple[Job, ...]:
        """Return every job that any source knows, by start; the same tuple until something changes."""
        version = (self._register.version, self._yaml.jobs)
        if version != self._version:
            self._merged = merged([*self._of_others(), *self._of(self._inferred)])
            self._version = version
        return self._merged

    def _told(self) -> tuple[Job, ...]:
        return merged(self._of_others())

    def _of_others(self) -> list[list[Job]]:
        told = [source for source in self._sources if source is not self._inferred]
        # Nodes that came with the jobs are taken up with a restart.
        return [self._known(LISTED, self._yaml.jobs), *(jobs for source in told for jobs in self._of(source))]

    def _of(self, source: Source | None) -> list[list[Job]]:
        """Return the jobs of a source, with nodes of the inventory only."""
        if source is None:
            return []
        return [self._known(source.name, (known.job for known in self._register.jobs(source.name).values()))]

    def _known(self, source: str, jobs: Iterable[Job]) -> list[Job]:
        found, strangers = [], set()
        is_scheduler = source in self._schedulers
        for job in jobs:
            nodes, unknown = self._names.split(job.nodes)
            strangers |= set(unknown)
            # A scheduler knows many jobs that have nothing to do with the nodes that are watched here.
            if nodes or not is_scheduler:
                found.append(replace(job, nodes=nodes, origin=source))
        self._strangers[source] = strangers
        fresh = sorted(strangers - self._told_strangers)
        if fresh:
            self._told_strangers |= strangers
            self._log.warning("nodes_unlisted", source=source, nodes=some(fresh), what="not in the inventory")
        return found

    # -- how they are ------------------------------------------------------------------------------

    def states(self, now: float) -> list[SourceState]:
        """Return how each source is, in the order of the file."""
        jobs = self.jobs()
        counts: dict[str, list[Job]] = {}
        for job in jobs:
            counts.setdefault(job.origin, []).append(job)
        found = []
        for name, kind in self._kinds.items():
            trouble, since = self._troubles.get(name, ("", None))
            own = counts.get(name, [])
            running = len(active_at(own, now))
            strangers = tuple(sorted(self._strangers.get(name, ())))
            if name != LISTED or own or trouble:
                found.append(SourceState(name, kind, trouble, since, len(own), running, strangers))
        return found

    def readings(self, now: float) -> pl.DataFrame:
        """Return the rows of a tick for ``encode(schema.PIPELINE, ...)``."""
        rows = [
            (int(now), Stage.JOBS.value, f"{state.name}.{reading.value}", self.cluster.bridge.shard, float(value))
            for state in self.states(now)
            for reading, value in (
                (JobReading.FAILING, 0.0 if state.since is None else max(now - state.since, 1.0)),
                (JobReading.KNOWN, state.known),
                (JobReading.RUNNING, state.running),
                (JobReading.STRANGERS, len(state.strangers)),
            )
        ]
        kinds = columns(schema.STAGE, schema.REASON, schema.SHARD, schema.VALUE)
        return pl.DataFrame(rows, schema=kinds, orient="row")

    # -- a lost register ---------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Fill a register that knows nothing with the jobs that an earlier analysis wrote; StoreError if it is away."""
        if not self._register.is_new:
            return
        stored = stored_jobs(self._store)
        # What an earlier analysis took for running did run until then.
        judged = Reader(self._store, self.cluster).last_heartbeat() or 0
        # From here on nothing asks the store, which may be away: it would not be asked again.
        self._register.is_new = False
        found = 0
        origins = {source.name for source in self._sources}
        for job in stored:
            if job.origin in origins:
                seen = max(judged, start_of(job))
                self._register.put(job.origin, {_rebuilt_key(job, self._kinds[job.origin]): job}, seen)
                found += 1
        if self._inferred is not None:
            self._inferred.resume()
        if found:
            self._log.line("jobs_rebuilt", what="jobs.sqlite was lost; rebuilt from the store", jobs=found)


def _rebuilt_key(job: Job, kind: str) -> str:
    return job.id if kind == InferredJobs.kind else key_of(job)


def _source(one: JobSource, around: Around) -> Source:
    """Return the source of a type of `job_sources`: the module of that name makes it."""
    made: Source = import_module(f"analysis.jobs.sources.{one.kind}").source(one, around)
    return made


class _Names:
    """The inventory's nodes by every name that stands for them.

    Args:
        nodes: their names.
    """

    def __init__(self, nodes: Iterable[str]) -> None:
        self._exact = set(nodes)
        self._short: dict[str, str | None] = {}
        for name in sorted(self._exact):
            short = name.partition(".")[0]
            # Two nodes with one short name: it stands for neither.
            self._short[short] = None if short in self._short else name

    def split(self, names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
        """Return the nodes of the inventory that are meant, each once, and the names that mean none."""
        known: dict[str, None] = {}
        unknown = []
        for name in names:
            found = name if name in self._exact else self._short.get(name.partition(".")[0])
            if found is None:
                unknown.append(name)
            else:
                known[found] = None
        return tuple(known), unknown


def merged(sources: Sequence[Sequence[Job]]) -> tuple[Job, ...]:
    """Return the jobs of several sources by start, each run once; a later source wins over an earlier one."""
    by_id: dict[str, list[tuple[int, Job]]] = {}
    for rank, jobs in enumerate(sources):
        for job in jobs:
            by_id.setdefault(job.id, []).append((rank, job))
    found: list[Job] = []
    for told in by_id.values():
        found += _runs(told) if len(told) > 1 else [told[0][1]]
    return tuple(sorted(found, key=lambda job: (job.start, job.id)))


def _runs(told: list[tuple[int, Job]]) -> list[Job]:
    """Return the runs of one id."""
    runs: list[Job] = []
    for _, job in sorted(told, key=lambda item: (-item[0], item[1].start)):
        place = next((place for place, run in enumerate(runs) if _is_same(run, job)), None)
        if place is None:
            runs.append(job)
        else:
            runs[place] = _filled(runs[place], job)
    runs.sort(key=lambda job: job.start)
    for place, (run, following) in enumerate(itertools.pairwise(runs)):
        if end_of(run) > start_of(following):  # nobody reported its end; an id runs once at a time
            runs[place] = replace(run, end=following.start)
    return [run for run in runs if end_of(run) > start_of(run)]


def _is_same(run: Job, other: Job) -> bool:
    near = abs(start_of(run) - start_of(other)) <= _SAME_RUN
    overlap = min(end_of(run), end_of(other)) - max(start_of(run), start_of(other))
    if run.origin == other.origin:
        return run.start == other.start
    return near or overlap > _SAME_RUN


def _filled(run: Job, other: Job) -> Job:
    if run.origin == other.origin:
        # Known by two keys for a while: the one that was heard of for longer.
        return max(run, other, key=end_of)
    if run.end is None and other.end is not None and other.end > run.start:
        return replace(run, end=other.end, outcome=other.outcome)
    if run.outcome is Outcome.UNKNOWN:
        return replace(run, outcome=other.outcome)
    return run


def stored_jobs(store: Store) -> list[Job]:
    """Return the jobs of which an analysis has written the names of their nodes: at their start, and each day."""
    fields = (schema.JOB_EVENT, schema.JOB_OUTCOME, schema.JOB_ORIGIN, schema.JOB_NODE_NAMES, schema.JOB_QUIET,
              schema.ACTIVE, schema.JOB_SINCE)  # fmt: skip
    told_of = any_of(says(schema.JOB_EVENT, STOP), says(schema.JOB_NODE_NAMES, "", "!="))
    rows = Select(schema.JOB_STATUS, schema.RAW).take(*map(beside, fields)).where(told_of)
    runs: dict[tuple[str, str, datetime], Job] = {}
    for series in store.query(rows.by(schema.JOB, schema.JOB_CLASS).between().text()):
        name, job_class, run = series.tags[schema.JOB], series.tags[schema.JOB_CLASS], None
        for row in series.values:
            moment, told, outcome, origin, names, quiet, is_active, since = row
            at = datetime.fromtimestamp(moment / 1000, UTC)
            # Rows that were taken back have names, too.
            if names and is_active:
                begin = at if since is None else datetime.fromtimestamp(since, UTC)
                run = name, job_class, begin
                runs.setdefault(run, Job(*run[:2], tuple(expand(names)), begin, origin=origin or LISTED))
            elif run is not None and told == STOP:
                runs[run] = replace(runs[run], end=at, outcome=Outcome(outcome or Outcome.UNKNOWN), quiet=quiet or 0)
                run = None
    return [*runs.values()]
