"""Job windows: who knows them, which run at a time, and the points that boards draw them from."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import polars as pl

from analysis.jobs.hostlist import compress
from cluster.model import Cluster, Job, Role
from store import schema
from store.points import WINDOW, columns

START = "start"
STOP = "stop"
"""Values of the event field."""

_LONGEST_TEXT = 60_000
_DAY = 86_400

_COLUMNS: dict[str, pl.DataType] = columns(
    schema.JOB, schema.JOB_CLASS, schema.ACTIVE, schema.JOB_NODES, schema.JOB_GPUS, schema.JOB_ORIGIN,
    schema.JOB_EVENT, schema.JOB_NODE_NAMES, schema.JOB_OUTCOME, schema.JOB_QUIET, schema.JOB_SINCE, schema.JOB_UNTIL,
)  # fmt: skip


class JobSource(Protocol):
    """Something that knows job windows."""

    def jobs(self) -> tuple[Job, ...]:
        """Return every job window it knows now: past, running and planned; `end` is None where it is not known.

        The same tuple again means that nothing changed. A job's nodes are nodes of the inventory.
        """

    def settle(self, oldest: int, final: int) -> None:
        """Take note that no window before `final` will change any more; called before each pass, in order of time.

        What is inferred from traffic is inferred from these windows only, so that it stays as it is.

        Args:
            oldest: epoch seconds; the store holds no window before it.
            final: epoch seconds.
        """

    def turn_back(self, moment: int) -> None:
        """Take note that windows from a moment on were settled too early: the clock was ahead."""


@dataclass(frozen=True, slots=True)
class ClusterFileJobs:
    """The job windows that cluster.yaml lists."""

    cluster: Cluster

    def jobs(self) -> tuple[Job, ...]:
        """Return them in the order of the file."""
        return self.cluster.jobs

    def settle(self, oldest: int, final: int) -> None:
        """Do nothing: the file does not depend on the traffic."""

    def turn_back(self, moment: int) -> None:
        """Do nothing: the file does not depend on the clock."""


def start_of(job: Job) -> float:
    """Return when the job starts, epoch seconds."""
    return job.start.timestamp()


def end_of(job: Job) -> float:
    """Return when the job ends, epoch seconds; infinity while unknown."""
    return math.inf if job.end is None else job.end.timestamp()


def active_at(jobs: Iterable[Job], moment: float) -> tuple[Job, ...]:
    """Return the jobs that run at a moment, epoch seconds; the end itself is no longer part of a job."""
    return tuple(job for job in jobs if start_of(job) <= moment < end_of(job))


def overlapping(jobs: Iterable[Job], start: float, stop: float) -> tuple[Job, ...]:
    """Return the jobs of which some part lies in [start, stop)."""
    return tuple(job for job in jobs if start_of(job) < stop and end_of(job) > start)


def gpus_of(cluster: Cluster) -> dict[str, int]:
    """Return node -> its GPUs."""
    return {node.name: node.gpus for node in cluster.nodes}


def gpus_in(job: Job, gpus: Mapping[str, int]) -> int:
    """Return the GPUs of a job's nodes; `gpus`: node -> its GPUs."""
    return sum(gpus.get(node, 0) for node in job.nodes)


def computes_in_sight(cluster: Cluster, job: Job, groups: Mapping[str, str]) -> bool:
    """Return whether flow records can show what a job's nodes send each other.

    What a single node computes stays inside of it; of nodes that are no training nodes it is not counted.

    Args:
        cluster: its roles and transports.
        job: whose nodes.
        groups: node -> its group.
    """
    training = {group.id for group in cluster.groups_with(Role.TRAINING)}
    own = [groups[name] for name in job.nodes if name in groups]
    is_visible = all(cluster.transport_of(group, group).is_visible for group in set(own))
    return is_visible and sum(group in training for group in own) > 1


def status_points(
    jobs: Iterable[Job],
    start: int,
    stop: int,
    window: int,
    gpus: Mapping[str, int] = MappingProxyType({}),
    *,
    only_events: bool = False,
) -> pl.DataFrame:
    """Return the job rows of [start, stop): one a window while a job runs, and its events at their exact second.

    Args:
        jobs: all jobs; those outside the range give nothing.
        start: epoch seconds.
        stop: epoch seconds.
        window: seconds of a base window.
        gpus: node -> its GPUs; without it it is unknown how many a job has.
        only_events: whether to leave out the rows of windows.

    Returns:
        A frame for ``encode(schema.JOB_STATUS, ...)``.
    """
    rows: list[tuple[object, ...]] = []
    for job in overlapping(jobs, start, stop):
        owned = gpus_in(job, gpus) if gpus else None
        about = (len(job.nodes), owned, job.origin)
        begin, end = start_of(job), end_of(job)
        events = {moment for moment in (begin, end) if start <= moment < stop}
        # Nodes are named each day: of a job that runs for weeks the row of its start is gone.
        rows += [
            (at, job.id, job.job_class, 1, *about, None, _names(job) if at % _DAY < window else None, None, None, begin,
             min(at + window, end))
            for at in (() if only_events else _windows(job, start, stop, window))
            if at not in events
        ]  # fmt: skip
        if begin in events:
            span = begin, min(begin + window, end)
            rows.append((int(begin), job.id, job.job_class, 1, *about, START, _names(job), None, None, *span))
        if end in events:
            said = STOP, None, job.outcome.value, job.quiet or None
            rows.append((int(end), job.id, job.job_class, 0, *about, *said, begin, end))
    return pl.DataFrame(rows, schema=_COLUMNS, orient="row")


def _names(job: Job) -> str | None:
    """Return the job's nodes in short, unless that is longer than InfluxDB takes (64 KiB)."""
    text = compress(job.nodes)
    return text if len(text) < _LONGEST_TEXT else None


def _windows(job: Job, start: int, stop: int, window: int) -> Iterator[int]:
    """Yield the starts of the windows of [start, stop) that begin while the job runs."""
    first = math.ceil(max(start_of(job), start) / window) * window
    yield from range(first, math.ceil(min(end_of(job), stop)), window)


class LateRows:
    """What a job source tells of windows that were written already: a job that it learnt of late, or a changed end.

    Args:
        window: seconds of a base window.
        gpus: node -> its GPUs.
    """

    def __init__(self, window: int, gpus: Mapping[str, int]) -> None:
        self._window, self._gpus = window, gpus
        self._told: tuple[Job, ...] | None = None

    def note(self, jobs: Sequence[Job]) -> None:
        """Take these jobs for told: their rows were written otherwise."""
        self._told = jobs if isinstance(jobs, tuple) else tuple(jobs)

    def before(self, jobs: Sequence[Job], oldest: int, start: int) -> pl.DataFrame:
        """Return the job rows of [oldest, start) that differ from what was told the last time.

        Rows of a job that turned out to have ended earlier, or not to have been, become inactive and lose their text.
        The first call of a process takes every job for known, but writes their events once more: they may have changed
        while nobody looked.
        """
        told = self._told
        if told is jobs:
            return pl.DataFrame(schema=_COLUMNS)
        self.note(jobs)
        if told is None:
            return status_points(jobs, oldest, start, self._window, self._gpus, only_events=True)
        changed = sorted(set(told) - set(jobs), key=start_of)
        fresh = status_points(sorted(set(jobs) - set(told), key=start_of), oldest, start, self._window, self._gpus)
        stale = status_points(changed, oldest, start, self._window, self._gpus)
        if stale.is_empty():
            return fresh
        # No others have rows in their place; those of all jobs of a week would be millions, each time that one ends.
        names = {(job.id, job.job_class) for job in changed}
        alike = [job for job in jobs if (job.id, job.job_class) in names]
        kept = status_points(alike, oldest, start, self._window, self._gpus)
        place = [WINDOW, schema.JOB, schema.JOB_CLASS]
        gone = stale.join(kept.select(place), on=place, how="anti").with_columns(
            pl.lit(0, pl.Int64).alias(schema.ACTIVE.name),
            pl.lit(0, pl.Int64).alias(schema.JOB_NODES.name),
            pl.lit(0, pl.Int64).alias(schema.JOB_GPUS.name),
            pl.when(pl.col(schema.JOB_EVENT.name).is_not_null()).then(pl.lit("")).alias(schema.JOB_EVENT.name),
            pl.when(pl.col(schema.JOB_OUTCOME.name).is_not_null()).then(pl.lit("")).alias(schema.JOB_OUTCOME.name),
        )
        return pl.concat([fresh, gone.select(fresh.columns)])
