"""Nodes that several jobs hold at once: what such a node sends, flow records give to none of them.

A job list may hold a job for longer than it ran, and jobs may run side by side on a node. So nodes of a job are
compared only where the same other jobs hold them: those that it has for itself, if they are a third of the job and
three at least, else the largest part alike. The others are `apart`.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from analysis.jobs.job_windows import end_of, overlapping, start_of
from cluster.model import Job

_LEAST = 3
Run = tuple[str, float]
"""A job's id, and its start."""


def run_of(job: Job) -> Run:
    """Return what names one run."""
    return job.id, start_of(job)


def sharing(jobs: Iterable[Job]) -> dict[Run, list[Job]]:
    """Return the jobs that share nodes with others at a time, each with those others."""
    holders: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        for node in job.nodes:
            holders[node].append(job)
    # Jobs that share a node share many, as a rule.
    met = {tuple(map(id, held)): held for held in holders.values() if len(held) > 1}
    found: dict[Run, dict[Run, Job]] = defaultdict(dict)
    for held in met.values():
        for job, one in itertools.permutations(held, 2):
            if job.id != one.id and overlapping([one], start_of(job), end_of(job)):
                found[run_of(job)][run_of(one)] = one
    return {run: [*others.values()] for run, others in found.items()}


def others_of(job: Job, jobs: Iterable[Job]) -> list[Job]:
    """Return the other jobs that hold some of a job's nodes while it does."""
    nodes = set(job.nodes)
    return [
        one
        for one in overlapping(jobs, start_of(job), end_of(job))
        if one.id != job.id and not nodes.isdisjoint(one.nodes)
    ]


def apart(job: Job, others: Sequence[Job], starts: npt.NDArray[np.int64], window: int) -> npt.NDArray[np.bool_]:
    """Return [window, node] whether a node of a job is held by others than those it is compared with."""
    result = np.zeros((len(starts), len(job.nodes)), np.bool_)
    runs = np.array([(start_of(one) < starts + window) & (end_of(one) > starts) for one in others])
    places = {node: place for place, node in enumerate(job.nodes)}
    holds = np.zeros((len(others), len(job.nodes)), np.bool_)
    for row, one in zip(holds, others, strict=True):
        row[[places[node] for node in one.nodes if node in places]] = True
    for now in np.unique(runs, axis=1).T:
        held = holds[now]
        own = ~held.any(axis=0)
        if own.sum() < max(_LEAST, own.size / 3):
            parts = [node.tobytes() for node in held.T]
            largest, _ = Counter(parts).most_common(1)[0]
            own = np.array([part == largest for part in parts])
        result[(runs == now[:, None]).all(axis=0)] = ~own
    return result
