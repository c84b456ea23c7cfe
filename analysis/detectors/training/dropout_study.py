"""Node dropout as the analyser runs it: each node of a job against what earlier good runs of the class taught."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from analysis.baseline import Baseline, RunSummary, learn
from analysis.detectors.rows import Rows
from analysis.detectors.study import JobWindows, Memory
from analysis.detectors.training import dropout
from analysis.detectors.training.dropout import Carry, Cohort, DropoutPolicy
from analysis.evidence import Reader
from analysis.jobs.job_windows import gpus_in, gpus_of
from cluster.model import Cluster, Job
from store import schema
from store.points import WINDOW

_OF_LOW = {WINDOW, *schema.LOW_NODE.tags, *(field.name for field in schema.LOW_NODE.fields)}
_HEARD_BEFORE = 3600
"""Seconds before a job in which an exporter must have been heard for its silence to mean something."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A job between two windows: its GPUs, what it is judged by, and what the windows so far hand on."""

    gpus: int
    cohort: Cohort
    baseline: Baseline
    carry: Carry


class DropoutStudy:
    """Judges each node of a job.

    Args:
        cluster: its thresholds and groups.
        reader: of the store.
    """

    name = "dropout"
    measurements = (schema.BASELINE, schema.LOW_NODE, schema.DROPOUT_DIGEST)
    closer = 0

    def __init__(self, cluster: Cluster, reader: Reader) -> None:
        self._thresholds, self._window, self._gpus = cluster.thresholds, cluster.bridge.window, gpus_of(cluster)
        self._group_of = {node.name: node.group for node in cluster.nodes}
        self._reader, self._policy = reader, DropoutPolicy()

    def first(self, job: Job, earlier: Sequence[Memory], begin: int) -> Standing:
        """Return the standing before a job's first window."""
        cohort = Cohort(
            job=job,
            groups=tuple(self._group_of.get(node, "") for node in job.nodes),
            window=self._window,
            spreads=self._thresholds.dropout_spreads,
            min_runs=self._thresholds.dropout_min_runs,
            digest=self._thresholds.dropout_digest,
            policy=self._policy,
        )
        hour = math.ceil(_HEARD_BEFORE / self._window) * self._window
        heard = self._reader.compute_heard(begin - hour, begin)
        most, nodes = self._thresholds.dropout_max_runs, set(job.nodes)
        # Reading one takes as long as judging a minute. Of others than its nodes' runs only the level counts.
        read = [
            RunSummary.read(one)
            for place, one in enumerate(earlier)
            if place < most or not nodes.isdisjoint(cast("list[str]", one["nodes"]))
        ]
        baseline = learn(job.nodes, read, most)
        return Standing(gpus_in(job, self._gpus), cohort, baseline, dropout.first_carry(cohort, np.any(heard, axis=0)))

    def judge(self, job: Job, carry: Standing, windows: JobWindows) -> tuple[Standing, list[Rows]]:
        """Judge consecutive windows."""
        del job
        before = carry.carry
        if not windows.is_final:
            # What is judged for now teaches nothing: it would be held twice.
            before = replace(before, ratios=before.ratios.empty(), refs=before.refs.empty())
        after, found = dropout.judge(carry.cohort, carry.baseline, before, windows)
        gpus = {schema.JOB_GPUS.name: carry.gpus}
        # Its last row says that a node is no longer low: the newest one of each holds.
        told = found.nodes.where(found.told)
        low = {name: column for name, column in told.columns.items() if name in _OF_LOW}
        return replace(carry, carry=after), [
            found.nodes,
            Rows(schema.LOW_NODE, low, {**told.same, **gpus, schema.JOB_NODES.name: carry.cohort.size}),
            replace(found.digests, same={**found.digests.same, **gpus}),
        ]

    def retold(self, job: Job, carry: Standing) -> Standing:
        """Return the standing of a job whose end became known."""
        return replace(carry, cohort=replace(carry.cohort, job=job))

    def remember(self, job: Job, carry: Standing) -> Memory:
        """Return the run's summary."""
        del job
        return dropout.summarise(carry.cohort, carry.carry).memory()
