"""Job windows: who knows them, which run at a time, and the points that boards draw them from."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from cluster import schema
from cluster.model import Cluster, Job
from ingest.points import WINDOW

START = "start"
STOP = "stop"
"""Values of the event field."""

_COLUMNS: dict[str, pl.DataType] = {
    WINDOW: pl.Int64(),
    schema.JOB: pl.String(),
    schema.JOB_CLASS: pl.String(),
    schema.ACTIVE.name: pl.Int64(),
    schema.JOB_NODES.name: pl.Int64(),
    schema.JOB_EVENT.name: pl.String(),
}


class JobSource(Protocol):
    """Something that knows job windows."""

    def jobs(self) -> tuple[Job, ...]:
        """Return every job window it knows now: past, running and planned; `end` is None where it is not known."""


@dataclass(frozen=True, slots=True)
class ClusterFileJobs:
    """The job windows that cluster.yaml lists."""

    cluster: Cluster

    def jobs(self) -> tuple[Job, ...]:
        """Return them in the order of the file."""
        return self.cluster.jobs


def start_of(job: Job) -> float:
    """Return when the job starts, epoch seconds."""
    return job.start.timestamp()


def end_of(job: Job) -> float:
    """Return when the job ends, epoch seconds; infinity while nobody knows."""
    return math.inf if job.end is None else job.end.timestamp()


def active_at(jobs: Iterable[Job], moment: float) -> tuple[Job, ...]:
    """Return the jobs that run at a moment, epoch seconds; the end itself is no longer part of a job."""
    return tuple(job for job in jobs if start_of(job) <= moment < end_of(job))


def overlapping(jobs: Iterable[Job], start: float, stop: float) -> tuple[Job, ...]:
    """Return the jobs of which some part lies in [start, stop)."""
    return tuple(job for job in jobs if start_of(job) < stop and end_of(job) > start)


def status_points(jobs: Iterable[Job], start: int, stop: int, window: int) -> pl.DataFrame:
    """Return the job rows of [start, stop): one a window while a job runs, and its events at their exact second.

    Args:
        jobs: all jobs; those outside the range give nothing.
        start: epoch seconds.
        stop: epoch seconds.
        window: seconds of a base window.

    Returns:
        A frame for ``encode(schema.JOB_STATUS, ...)``.
    """
    rows: list[tuple[int, str, str, int, int, str | None]] = []
    for job in jobs:
        points: dict[int, tuple[int, str | None]] = dict.fromkeys(_windows(job, start, stop, window), (1, None))
        for moment, active, event in ((start_of(job), 1, START), (end_of(job), 0, STOP)):
            if start <= moment < stop:
                points[int(moment)] = (active, event)
        rows += [(at, job.id, job.job_class, active, len(job.nodes), event) for at, (active, event) in points.items()]
    return pl.DataFrame(rows, schema=_COLUMNS, orient="row")


def _windows(job: Job, start: int, stop: int, window: int) -> Iterator[int]:
    """Yield the starts of the windows of [start, stop) that begin while the job runs."""
    first = math.ceil(max(start_of(job), start) / window) * window
    yield from range(first, math.ceil(min(end_of(job), stop)), window)
