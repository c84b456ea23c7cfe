"""The verdict on whole cohorts, and what waiting costs, as the analyser runs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from analysis.baseline import Floats
from analysis.detectors.rows import Rows, tags_of
from analysis.detectors.study import JobWindows, Memory
from analysis.detectors.training import cohort, stalls
from analysis.detectors.training.causes import OuterCauses
from analysis.detectors.training.cohort import CohortCarry, CohortPolicy, Look, Subject, Verdicts
from analysis.detectors.training.stalls import Outer, Payer, Waiting
from analysis.detectors.training.step_study import EVERY
from analysis.jobs.job_windows import computes_in_sight, gpus_in, gpus_of, start_of
from cluster.model import Cluster, Job
from store import schema
from store.influx import Store
from store.points import WINDOW
from store.schema import NodeState, StepState

_SPARE = 60
"""Seconds by which the next look at steps may be later than it is due."""

_SENDS = 0.05
"""Share of the median node's bytes from which a node counts as sending."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What a look at a job's steps said.

    Attributes:
        share: steps a second as a share of what is expected, where they are longer; else 1.
        told: when, epoch seconds.
    """

    share: float = 1.0
    told: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """A job between two windows."""

    subject: Subject
    payer: Payer
    carry: CohortCarry
    waiting: Waiting
    pace: Pace = Pace()


class CohortStudy:
    """Judges the cohort of a job as a whole; runs after the studies of nodes, of storage and of steps.

    Args:
        cluster: its thresholds, transports, job classes and costs.
        store: asked who else was at work where a job lost time.
    """

    name = "cohort"
    measurements = (schema.COHORT, schema.STALL)
    closer = 0

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster, self._window = cluster, cluster.bridge.window
        self._outer = OuterCauses(cluster, store)
        self._groups, self._gpus = {node.name: node.group for node in cluster.nodes}, gpus_of(cluster)
        self._policy = CohortPolicy()
        # A look is made when nothing can change any more: live, the newest windows are a grace ahead of the last one.
        self._held = EVERY + cluster.bridge.grace + _SPARE

    def first(self, job: Job, earlier: Sequence[Memory], begin: int) -> Standing:
        """Return the standing before a job's first window."""
        thresholds, cost = self._cluster.thresholds, self._cluster.cost
        is_told = not self._cluster.is_inferred(job)
        subject = Subject(
            job=job,
            window=self._window,
            expected=cohort.learn(
                len(job.nodes), earlier if is_told else (), thresholds.dropout_max_runs, self._policy
            ),
            spreads=thresholds.slowdown_spreads,
            min_runs=thresholds.dropout_min_runs,
            sees_compute=computes_in_sight(self._cluster, job, self._groups),
            is_told=is_told,
            policy=self._policy,
        )
        payer = Payer(job, self._window, gpus_in(job, self._gpus), cost.usd_per_gpu_hour)
        # It is unknown how long it took until a job computed whose beginning the store has lost.
        carry = CohortCarry(first_work=0.0) if begin > start_of(job) else CohortCarry()
        return Standing(subject, payer, carry, Waiting.first(len(job.nodes)))

    def judge(self, job: Job, carry: Standing, windows: JobWindows) -> tuple[Standing, list[Rows]]:
        """Judge consecutive windows."""
        size = len(job.nodes)
        nodes = windows.of(schema.BASELINE)
        states = nodes[schema.STATE.name].reshape(-1, size)
        low = ((states == NodeState.LOW) | (states == NodeState.DOWN)).sum(axis=1)
        rate = _medians(windows.sent, states) / self._window
        phase = windows.of(schema.PHASE)[schema.PHASE_STATE.name]
        shares, pace = paces(carry.pace, windows, self._held)
        look = Look(windows.start, phase, rate, low, (states == NodeState.BLIND).mean(axis=1) > 0.5, shares)
        # What is judged for now teaches nothing: it would be held twice.
        before = carry.carry if windows.is_final else replace(carry.carry, rates=carry.carry.rates.empty())
        after, verdicts = cohort.judge(carry.subject, before, look)

        def explain(lost: npt.NDArray[np.int64]) -> Mapping[int, Outer]:
            return self._outer.of(job, windows, lost)

        waiting, ledger = stalls.judge(carry.payer, carry.waiting, nodes, verdicts, windows.start, explain=explain)
        sending = (windows.sent > _SENDS * rate[:, None] * self._window).sum(axis=1)
        rows = self._rows(carry, windows.starts, verdicts, sending, low)
        return replace(carry, carry=after, waiting=waiting, pace=pace), [rows, *ledger]

    def _rows(
        self, standing: Standing, starts: npt.NDArray[np.int64], verdicts: Verdicts, sending: Floats, low: Floats
    ) -> Rows:
        subject, payer = standing.subject, standing.payer
        expected, size = subject.expected, len(subject.job.nodes)
        rate = verdicts.rate
        columns = {
            WINDOW: starts,
            schema.COHORT_RATE.name: rate,
            schema.COHORT_STATE.name: verdicts.state,
            schema.STATE_FOR.name: verdicts.state_for,
            schema.SENDING.name: sending,
            schema.LOW_NODES.name: low,
            schema.MISSING_BYTES.name: np.rint(verdicts.lacking * size),
            schema.LOST_SECONDS.name: verdicts.lost,
            schema.USD.name: payer.usd(verdicts.lost),
            schema.COHORT_EVENT.name: np.array(
                [
                    schema.COHORT_STATE_WORDS[state] if changed else ""
                    for state, changed in zip(verdicts.state.tolist(), verdicts.changed.tolist(), strict=True)
                ],
                object,
            ),
        }
        same = tags_of(subject.job) | {
            schema.RUNS.name: expected.runs,
            schema.JOB_NODES.name: size,
            schema.JOB_GPUS.name: payer.gpus,
        }
        if expected.runs:
            columns[schema.EXPECTED_RATE.name] = verdicts.expected
            columns[schema.LOWER_RATE.name] = verdicts.lower
            columns[schema.SCORE.name] = (expected.rate - rate) / expected.spread
        step = self._cluster.job_class(subject.job.job_class).step_bytes
        if step is not None and size > 1:
            # A ring all-reduce sends the gradients of a step 2 (n - 1) / n times: reduced to parts, gathered again.
            sent = 2 * (size - 1) / size * step
            same[schema.STEP_BYTES.name] = round(sent)
            columns[schema.STEP_SECONDS.name] = np.divide(sent, rate, out=np.zeros(len(rate)), where=rate > 0)
        return Rows(schema.COHORT, columns, same)

    def retold(self, job: Job, carry: Standing) -> Standing:
        """Return the standing of a job whose end became known."""
        return replace(carry, subject=replace(carry.subject, job=job), payer=replace(carry.payer, job=job))

    def remember(self, job: Job, carry: Standing) -> Memory:
        """Return the run's rates and pauses."""
        del job
        return cohort.remembered(carry.subject, carry.carry)


def paces(before: Pace, windows: JobWindows, held: int) -> tuple[Floats, Pace]:
    """Return [window] the share of the look before, and the last look; 1 where that is `held` seconds ago."""
    result, last = np.ones(len(windows)), before
    starts, steps = windows.starts, windows.of(schema.STEP)
    columns = (WINDOW, schema.STEP_PERIOD.name, schema.STEP_EXPECTED.name, schema.STEP_STATE.name)
    looks = [before]
    for window, period, expected, state in zip(*(steps[name].tolist() for name in columns), strict=True):
        share = expected / period if state == StepState.LONGER else 1.0
        looks.append(Pace(share, window + windows.window))
    for last in looks:
        result[starts >= last.told] = last.share
        result[starts >= last.told + held] = 1.0
    return result, last


def _medians(sent: Floats, states: Floats) -> Floats:
    """Return [window] bytes of the median node of those that are ok, or of all if none is."""
    left_out = states >= NodeState.LOW
    if not left_out.any():
        return np.median(sent, axis=1)
    some = ~left_out.all(axis=1)
    result = np.median(sent, axis=1)
    kept = np.where(left_out[some], np.nan, sent[some])
    result[some] = np.nanmedian(kept, axis=1)
    return result
