"""Held but silent: the scheduler says that a job runs, and nodes of it do nothing that the network sees.

    silent = neither sent to training nodes or storage, nor read from storage, 10 kB a second in all
    held   = silent for longer than `held_silent_for`, and
             since the start:   than twice the slowest start of the median earlier run of the class
             since it sent:     than twice the longest silence of the median earlier run

A run teaches also what was told of it: a class that starts slowly, or pauses long, is known after its first run. The
median bears almost half of the runs being hangs; a maximum would let each hang double the limit for the next. Of an
even number of runs the lower one of the middle two counts: one that hung and one that did not teach no hang.

A window in which a node is blind (its exporter is silent) leaves its clock as it is. A job of one node, one without
training nodes, and one whose collectives no exporter sees, may well work in silence: they are not judged, nor are jobs
that were inferred from traffic. What the GPUs of held nodes cost is counted from when they fell silent; it is no part
of the ledger of stalls, in which a job that waits for such a node has its own loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median_low

import numpy as np
import numpy.typing as npt

from analysis.baseline import Floats
from analysis.detectors.rows import Rows
from analysis.detectors.study import JobWindows, Memory
from analysis.jobs.hostlist import compress
from analysis.jobs.job_windows import computes_in_sight, gpus_of
from cluster.model import Cluster, Job
from store import schema
from store.points import columns
from store.schema import UNKNOWN_USER, NodeState

_MINUTE, _HOUR = 60, 3600
_LEAST = 10_000
"""Bytes a second from which a node works: while it hangs, leases of mounts and probes of its neighbours go on."""
_TIMES = 2.0
"""The longest silence of the median earlier run times this is nothing unusual."""
_MOST_NAMES = 1_000
"""Characters of the names that a row holds."""

_COLUMNS = columns(*schema.HELD.tags, *schema.HELD.fields)


@dataclass(frozen=True, slots=True)
class HeldCarry:
    """A job between two windows; arrays are [node].

    Attributes:
        longest_start, longest_gap: seconds that nodes may be silent, at the start and later.
        silent: seconds for which each has been; those of the ones that have worked count from then.
        told: of these, what rows before have charged.
        has_worked: whether it ever was not silent.
        slowest, gap: the longest silences of this run that ended, at the start and later, seconds.
    """

    longest_start: float
    longest_gap: float
    silent: Floats
    told: Floats
    has_worked: npt.NDArray[np.bool_]
    slowest: float = 0.0
    gap: float = 0.0


class HeldStudy:
    """Finds nodes that are held but silent; runs after the study of dropouts, which knows who is blind.

    Args:
        cluster: its threshold, transports and costs.
    """

    name = "held"
    measurements = (schema.HELD,)
    closer = 0

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._gpus = cluster, gpus_of(cluster)
        self._groups = {node.name: node.group for node in cluster.nodes}

    def first(self, job: Job, earlier: Sequence[Memory], begin: int) -> HeldCarry:
        """Return the carry before a job's first window."""
        del begin
        limit = float(self._cluster.thresholds.held_silent_for)
        known: tuple[list[float], ...] = tuple(
            [float(str(one[name])) for one in earlier if name in one] for name in ("slowest", "gap")
        )
        start, gap = (max(limit, _TIMES * median_low(found or [0.0])) for found in known)
        nothing = np.zeros(len(job.nodes))
        return HeldCarry(start, gap, nothing, nothing, np.zeros(len(job.nodes), np.bool_))

    def judge(self, job: Job, carry: HeldCarry, windows: JobWindows) -> tuple[HeldCarry, list[Rows]]:
        """Judge consecutive windows."""
        if self._cluster.is_inferred(job) or not computes_in_sight(self._cluster, job, self._groups):
            return carry, []
        works = windows.sent + windows.written + windows.read >= _LEAST * windows.window
        states = windows.of(schema.BASELINE)[schema.STATE.name].reshape(works.shape)
        gpus = np.array([self._gpus.get(node, 0) for node in job.nodes], np.float64)
        rows: list[tuple[object, ...]] = []
        for index, (active, blind) in enumerate(zip(works, states == NodeState.BLIND, strict=True)):
            carry = _step(carry, active, blind & ~active, windows.window)
            end = windows.start + (index + 1) * windows.window
            held = carry.silent > np.where(carry.has_worked, carry.longest_gap, carry.longest_start)
            if end % _MINUTE or not held.any():
                continue
            untold = np.where(held, carry.silent - carry.told, 0.0)
            carry = replace(carry, told=np.where(held, carry.silent, carry.told))
            hours, price = float((untold * gpus).sum()) / _HOUR, self._cluster.cost.usd_per_gpu_hour
            so_far = float((carry.silent * gpus)[held].sum()) / _HOUR * price
            names = compress([node for node, one in zip(job.nodes, held, strict=True) if one])
            rows.append(
                (
                    end - windows.window, job.user or UNKNOWN_USER, job.id, job.job_class, int(held.sum()),
                    int((held & ~carry.has_worked).sum()), len(job.nodes), float(carry.silent[held].max()), hours,
                    hours * price, so_far, names[:_MOST_NAMES],
                )
            )  # fmt: skip
        return carry, [Rows.of(schema.HELD, _COLUMNS, rows)]

    def retold(self, job: Job, carry: HeldCarry) -> HeldCarry:
        """Return the carry as it is: silence does not depend on when the job ends."""
        del job
        return carry

    def remember(self, job: Job, carry: HeldCarry) -> Memory:
        """Return the run's longest silences that ended."""
        del job
        return {"slowest": carry.slowest, "gap": carry.gap}


def _step(carry: HeldCarry, active: npt.NDArray[np.bool_], blind: npt.NDArray[np.bool_], window: int) -> HeldCarry:
    """Take one window."""
    starts, goes_on = active & ~carry.has_worked, active & carry.has_worked
    return replace(
        carry,
        silent=np.where(active, 0.0, carry.silent + np.where(blind, 0, window)),
        told=np.where(active, 0.0, carry.told),
        has_worked=carry.has_worked | active,
        slowest=max(carry.slowest, float(carry.silent[starts].max(initial=0.0))),
        gap=max(carry.gap, float(carry.silent[goes_on].max(initial=0.0))),
    )
