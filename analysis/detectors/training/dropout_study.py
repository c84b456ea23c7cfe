"""Node dropout as the analyser runs it: each node of a job against what earlier good runs of the class taught."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from analysis.baseline import Baseline, RunSummary, learn
from analysis.detectors.study import JobWindows, Memory, Points
from analysis.detectors.training import dropout
from analysis.detectors.training.dropout import TOLD, Carry, Cohort, DropoutPolicy
from analysis.evidence import Reader
from analysis.jobs.job_windows import gpus_in, gpus_of
from cluster.model import Cluster, Job
from store import schema
from store.points import WINDOW

_LOW_COLUMNS = (WINDOW, *schema.LOW_NODE.tags, *(field.name for field in schema.LOW_NODE.fields))
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
        policy: the numbers that are no thresholds.
    """

    name = "dropout"
    measurements = (schema.BASELINE, schema.LOW_NODE, schema.DROPOUT_DIGEST)

    def __init__(self, cluster: Cluster, reader: Reader, policy: DropoutPolicy | None = None) -> None:
        self._thresholds, self._window, self._gpus = cluster.thresholds, cluster.bridge.window, gpus_of(cluster)
        self._group_of = {node.name: node.group for node in cluster.nodes}
        self._reader, self._policy = reader, policy or DropoutPolicy()

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
        baseline = learn(job.nodes, [RunSummary.read(memory) for memory in earlier], self._thresholds.dropout_max_runs)
        return Standing(gpus_in(job, self._gpus), cohort, baseline, dropout.first_carry(cohort, np.any(heard, axis=0)))

    def judge(self, job: Job, carry: Standing, windows: JobWindows) -> tuple[Standing, Points]:
        """Judge consecutive windows."""
        del job
        after, points, digests = dropout.judge(carry.cohort, carry.baseline, carry.carry, windows)
        gpus = pl.lit(carry.gpus).alias(schema.JOB_GPUS.name)
        size = pl.lit(carry.cohort.size).alias(schema.JOB_NODES.name)
        # Its last row says that a node is no longer low: the newest one of each holds.
        low = points.filter(TOLD).with_columns(gpus, size).select(_LOW_COLUMNS)
        digests = digests.with_columns(gpus)
        found = [(schema.BASELINE, points.drop(TOLD)), (schema.LOW_NODE, low), (schema.DROPOUT_DIGEST, digests)]
        return replace(carry, carry=after), found

    def retold(self, job: Job, carry: Standing) -> Standing:
        """Return the standing of a job whose end became known."""
        return replace(carry, cohort=replace(carry.cohort, job=job))

    def remember(self, job: Job, carry: Standing) -> Memory:
        """Return the run's summary."""
        del job
        return dropout.summarise(carry.cohort, carry.carry).memory()
