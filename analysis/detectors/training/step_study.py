"""Steps against those of earlier runs of the class, as the analyser runs it: where sFlow resolves a job's steps.

    period   = of the 256 seconds before, every five minutes (``analysis.detectors.training.steps``)
    speed    = 1 / period, steps a second: like a rate, it falls where a job gets slow
    expected = 1 / centre of the speeds of the class's last good runs with about as many nodes (``analysis.baseline``)
    limit    = 1 / (centre - k * spread); k is `slowdown_spreads`, the spread at least 2 % of the centre
    longer   = period - error > limit, twice in a row

In synchronous training a job's rate is what a step moves over the period of a step: both tell the same slowness, the
period more finely. A period that is nearly a multiple of the expected one is not judged: autocorrelation may have
missed every second step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.baseline import centre_and_spread, of_like_size, quantiles_of
from analysis.detectors.rows import Rows, tags_of
from analysis.detectors.study import JobWindows, Memory
from analysis.detectors.training.steps import SERIES, Step, sample_of, step_of
from analysis.evidence import Reader
from analysis.jobs.job_windows import end_of, start_of
from analysis.window_reader import sees_seconds
from cluster.model import Cluster, Job
from store import schema
from store.points import columns
from store.schema import StepState

EVERY = 300
"""Seconds between two looks."""

WARM_UP, TAIL = 60, 30
"""Seconds left out at the start and at the end of a job."""

MIN_LOOKS = 3
"""Looks that resolved a period, without which a run teaches nothing."""

_MULTIPLE = 1.8
"""From this many times the expected period on, it may be a multiple."""

_COLUMNS = columns(
    schema.STEP_PERIOD, schema.STEP_ERROR, schema.STEP_EXPECTED, schema.STEP_LIMIT, schema.RUNS, schema.STEP_STATE
)


@dataclass(frozen=True, slots=True)
class StepExpectation:
    """What earlier good runs taught: steps a second, NaN if there are no runs."""

    speed: float = np.nan
    spread: float = np.nan
    runs: int = 0

    def limit(self, spreads: float) -> float:
        """Return the longest ordinary period, seconds; infinite if speeds scatter so much that any would be."""
        slowest = self.speed - spreads * self.spread
        return 1 / slowest if slowest > 0 else np.inf


@dataclass(frozen=True, slots=True)
class Standing:
    """A job between two windows.

    Attributes:
        nodes: whose seconds are looked at.
        speeds: what the run has taught so far, steps a second.
        over: looks in a row over the limit.
    """

    nodes: tuple[str, ...]
    expected: StepExpectation
    speeds: tuple[float, ...] = ()
    over: int = 0


def learn(nodes: int, earlier: Sequence[Memory], max_runs: int) -> StepExpectation:
    """Return what to expect of a job of so many nodes; `earlier`: memories of good runs, newest first."""
    alike = of_like_size([one for one in earlier if one.get("speeds")], nodes)[:max_runs]
    if not alike:
        return StepExpectation()
    centre, spread = centre_and_spread(np.array([one["speeds"] for one in alike]), np.full(len(alike), np.nan))
    return StepExpectation(centre, spread, len(alike))


class StepStudy:
    """Times a job's steps; runs before the study of cohorts, which is told where they are longer.

    Args:
        cluster: its thresholds and exporters.
        reader: of the store.
    """

    name = "steps"
    measurements = (schema.STEP,)

    def __init__(self, cluster: Cluster, reader: Reader) -> None:
        self._cluster, self._thresholds, self._window = cluster, cluster.thresholds, cluster.bridge.window
        self._reader, self.closer = reader, EVERY if sees_seconds(cluster) else 0

    def first(self, job: Job, earlier: Sequence[Memory], begin: int) -> Standing:
        """Return the standing before a job's first window."""
        del begin
        # Of an inferred job it is unknown which model it trains.
        known = () if self._cluster.is_inferred(job) else earlier
        return Standing(sample_of(job.nodes), learn(len(job.nodes), known, self._thresholds.dropout_max_runs))

    def judge(self, job: Job, carry: Standing, windows: JobWindows) -> tuple[Standing, list[Rows]]:
        """Look at the seconds of consecutive windows, once nothing can change in them."""
        rows = []
        if self.closer and windows.is_final:
            ends = windows.start + (np.arange(len(windows)) + 1) * self._window
            for end in ends[ends % EVERY == 0].tolist():
                if start_of(job) + WARM_UP + SERIES <= end <= end_of(job) - TAIL:
                    seconds = self._reader.windows.pulse(carry.nodes, end - SERIES, end).sum(axis=1)
                    if (step := step_of(seconds)) is not None:
                        carry, row = self._look(carry, end - self._window, step)
                        rows.append(row)
        return carry, [Rows.of(schema.STEP, _COLUMNS, rows, tags_of(job))]

    def _look(self, carry: Standing, window: int, step: Step) -> tuple[Standing, tuple[object, ...]]:
        expected = carry.expected
        usual, limit = 1 / expected.speed, expected.limit(self._thresholds.slowdown_spreads)
        is_ready = expected.runs >= self._thresholds.dropout_min_runs
        # NaN, where nothing is expected, compares as False.
        is_over = limit < step.period - step.error and step.period < _MULTIPLE * usual
        over = carry.over + 1 if is_ready and is_over else 0
        state = StepState.LEARNING if not is_ready else StepState.LONGER if over > 1 else StepState.OK
        # What is over the limit is not learnt, or a slow decay would be; nor is what may be a multiple.
        is_odd = over or (expected.runs and step.period >= _MULTIPLE * usual)
        speeds = carry.speeds if is_odd else (*carry.speeds, 1 / step.period)
        known = (usual, limit if np.isfinite(limit) else np.nan) if expected.runs else (np.nan, np.nan)
        row = (window, step.period, step.error, *known, expected.runs, int(state))
        return replace(carry, speeds=speeds, over=over), row

    def retold(self, job: Job, carry: Standing) -> Standing:
        """Return the standing as it is: it does not know when the job ends."""
        del job
        return carry

    def remember(self, job: Job, carry: Standing) -> Memory:
        """Return the run's speeds; nothing of a run whose steps were not resolved."""
        if len(carry.speeds) < MIN_LOOKS:
            return {}
        speeds = quantiles_of(np.array(carry.speeds).reshape(-1, 1), 1)[0]
        return {"nodes": len(job.nodes), "speeds": [round(float(one), 6) for one in speeds]}
