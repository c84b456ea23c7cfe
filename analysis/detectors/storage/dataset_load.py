"""Loading of the data set at the start of a job: how long, how much, by how many nodes, and whether into computing.

A load begins with the first window in which the job reads from storage, at the latest a minute after it began to
compute, and ends when the nodes together read less than a fifth of the load's busiest window for more than 30 s. A
job that still reads as much an hour after it began to compute streams its data: that is no load. Where nothing is seen
computing (a single node, collectives by RDMA), the hour counts from the job's start.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from analysis.baseline import Floats
from analysis.detectors.rows import Rows, tags_of
from analysis.detectors.storage.phases import Phases, took_part
from analysis.detectors.study import JobWindows
from analysis.jobs.job_windows import start_of
from cluster.model import Job
from store import schema
from store.points import columns


@dataclass(frozen=True, slots=True)
class LoadPolicy:
    """The numbers of the verdict.

    Attributes:
        level: share of its busiest window below which a load pauses.
        gap: seconds of pause that end it.
        floor: bytes a second that a node must read.
        begin: seconds after computing began from which on reading is no load any more.
        longest: seconds after computing began, or after the job did while nothing computes, from which on a load is
            streaming, and reading no load any more.
        taking_part: share of the busiest node's bytes from which a node took part.
    """

    level: float = 0.2
    gap: int = 30
    floor: float = 1e6
    begin: int = 60
    longest: int = 3600
    taking_part: float = 0.02


@dataclass(frozen=True, slots=True)
class Load:
    """A load so far: bytes and [node] bytes from `start` to `end`, and those of the pause since."""

    start: int
    end: int
    busiest: float
    size: float
    nodes: Floats
    after: float
    after_nodes: Floats


@dataclass(frozen=True, slots=True)
class LoadCarry:
    """What a window hands to the next one. `computing`: when that began, epoch seconds; None before."""

    load: Load | None = None
    computing: int | None = None
    is_over: bool = False
    is_streaming: bool = False


@dataclass(frozen=True, slots=True)
class LoadSubject:
    """The job whose load is looked for; `window` in seconds."""

    job: Job
    window: int
    policy: LoadPolicy = field(default_factory=LoadPolicy)


def judge(subject: LoadSubject, carry: LoadCarry, phases: Phases, windows: JobWindows) -> tuple[LoadCarry, Rows]:
    """Follow the load through consecutive windows.

    Returns:
        The carry after them, and rows of schema.DATASET_LOAD: the load's if these windows touch it.
    """
    if carry.is_over:
        return carry, _rows(subject, carry, is_touched=False)
    for index in range(len(windows)):
        start = windows.start + index * windows.window
        if carry.computing is None and phases.at_work[index]:
            carry = replace(carry, computing=start)
        carry = _step(subject, carry, start, windows.read[index])
        if carry.is_over:
            break
    return carry, _rows(subject, carry, is_touched=len(windows) > 0)


def _step(subject: LoadSubject, carry: LoadCarry, start: int, read: Floats) -> LoadCarry:
    policy, window, load = subject.policy, subject.window, carry.load
    end, total = start + window, float(read.sum())
    computing_for = 0 if carry.computing is None else end - carry.computing
    is_late = end - (start_of(subject.job) if carry.computing is None else carry.computing) > policy.longest
    is_loud = total >= max(policy.floor * window * len(read), policy.level * load.busiest if load else 0.0)
    if load is None:
        if computing_for > policy.begin or is_late:
            return replace(carry, is_over=True)
        nothing = np.zeros(len(read))
        return replace(carry, load=Load(start, end, total, total, read, 0.0, nothing)) if is_loud else carry
    if not is_loud:
        load = replace(load, after=load.after + total, after_nodes=load.after_nodes + read)
        return replace(carry, load=load, is_over=end - load.end > policy.gap)
    load = Load(
        start=load.start,
        end=end,
        busiest=max(load.busiest, total),
        size=load.size + load.after + total,
        nodes=load.nodes + load.after_nodes + read,
        after=0.0,
        after_nodes=np.zeros(len(read)),
    )
    return replace(carry, load=load, is_over=is_late, is_streaming=is_late)


def _rows(subject: LoadSubject, carry: LoadCarry, *, is_touched: bool) -> Rows:
    rows = []
    if is_touched and carry.load is not None:
        load = carry.load
        overlap = 0 if carry.computing is None else max(load.end - carry.computing, 0)
        nodes = took_part(load.nodes, subject.policy.taking_part)
        is_load = not carry.is_streaming
        rows.append(
            (load.start, *((load.end - load.start, round(load.size), nodes, overlap) if is_load else (0, 0, 0, 0)))
        )
    return Rows.of(schema.DATASET_LOAD, _COLUMNS, rows, tags_of(subject.job))


_COLUMNS = columns(schema.EVENT_SECONDS, schema.EVENT_BYTES, schema.EVENT_NODES, schema.OVERLAP)
