"""What a node of a job class normally sends: learnt from its earlier good runs, robust against their accidents.

The quantity is the ratio of a node's bytes to the median of its cohort, smoothed as `analysis.dropout` judges it:
what is learnt and what is compared are the same thing. Over the last K good runs of the class

    centre = median of the pooled ratios
    within = 1.4826 * median(|ratio - centre|)            the MAD, scaled to a standard deviation of a normal [1]
    between = standard deviation of the runs' own medians  0 for a single run
    spread = max(sqrt(within^2 + between^2), sampling noise, 2 % of the centre)
    limit  = centre - k * spread

Median and MAD bear almost half of all ratios being wrong [1, 2], so one bad run does not move them; the sum of both
variances is that of a random-effects model (within runs and between them). The sampling noise of a byte count from
n sampled packets is about 1/sqrt(n) of it [3]. The last floor stands for what short steps do in long windows, and
keeps a network without any variance from firing on nothing.

Windows that were judged low teach nothing, so a node that stays low for many runs stays low. A node that loses a little
from run to run, less than its spread each time, is learnt: its own drift widens the variance between runs.

[1] P. J. Rousseeuw, C. Croux: Alternatives to the Median Absolute Deviation. JASA 88 (1993), 1273-1283.
[2] F. R. Hampel: The Influence Curve and its Role in Robust Estimation. JASA 69 (1974), 383-393.
[3] P. Phaal, S. Panchen: Packet Sampling Basics (sflow.org, 2003): error at 95 % <= 196 % * sqrt(1/n), so 1/sqrt(n) is
    one standard deviation.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MAD_TO_SIGMA = 1.4826
"""1 / quantile(3/4) of the standard normal: makes the MAD of normal data estimate its standard deviation [1]."""

MIN_RELATIVE_SPREAD = 0.02
"""Smallest spread, as a share of the centre.

2 % is what is left of 2-5 s steps in 10 s windows after smoothing; raise it where windows are shorter than a few steps.
"""

QUANTILES = 129
"""Ratios that stand for one node in one run: evenly spaced quantiles, so that long runs do not outvote short ones."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What is kept of a run when its windows are gone.

    Attributes:
        nodes: names, in the order of the arrays.
        quantiles: [node, QUANTILES] evenly spaced quantiles of its ratios; NaN for a node with too few good windows.
        noise: [node] relative sampling noise (one standard deviation) of a smoothed value.
        level: bytes per window of the cohort's median node at work.
        flaw: why the run teaches nothing; empty for a good run.
    """

    job: str
    job_class: str
    start: float
    end: float
    nodes: tuple[str, ...]
    quantiles: Floats
    noise: Floats
    level: float
    flaw: str = ""

    @property
    def is_good(self) -> bool:
        """Whether baselines may learn from it."""
        return not self.flaw

    def arrays(self) -> bytes:
        """Return the arrays as bytes."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, quantiles=self.quantiles, noise=self.noise)
        return buffer.getvalue()


def arrays_from(data: bytes) -> tuple[Floats, Floats]:
    """Return `quantiles` and `noise` from what `RunSummary.arrays` gave."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return arrays["quantiles"], arrays["noise"]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What each node of a job is expected to send; arrays are [node], NaN where no run is known.

    Attributes:
        centre, spread: ratios to the cohort's median.
        runs: good earlier runs that the node took part in.
        level: bytes per window of the cohort's median node in those runs; 0 if there are none.
    """

    centre: Floats
    spread: Floats
    runs: npt.NDArray[np.int64]
    level: float


def quantiles_of(ratios: Floats, min_windows: int) -> Floats:
    """Return [node, QUANTILES] from [window, node] ratios; NaN for a node with fewer than `min_windows` ratios."""
    result = np.full((ratios.shape[1], QUANTILES), np.nan)
    steps = np.linspace(0.0, 1.0, QUANTILES)
    for node in range(ratios.shape[1]):
        known = ratios[:, node][~np.isnan(ratios[:, node])]
        if len(known) >= min_windows:
            result[node] = np.quantile(known, steps)
    return result


def learn(nodes: Sequence[str], runs: Sequence[RunSummary], max_runs: int) -> Baseline:
    """Return the baseline of a cohort from earlier good runs.

    Args:
        nodes: names of the cohort's nodes.
        runs: summaries of its class, in any order; bad ones teach nothing.
        max_runs: how many runs each node learns from, the newest first.
    """
    good = sorted((run for run in runs if run.is_good), key=lambda run: (run.end, run.start, run.job), reverse=True)
    centre, spread = np.full(len(nodes), np.nan), np.full(len(nodes), np.nan)
    counts = np.zeros(len(nodes), np.int64)
    places = [{name: place for place, name in enumerate(run.nodes)} for run in good]
    for index, name in enumerate(nodes):
        rows = []
        noise = []
        for run, place in zip(good, places, strict=True):
            at = place.get(name)
            if at is not None and not np.isnan(run.quantiles[at, 0]):
                rows.append(run.quantiles[at])
                noise.append(run.noise[at])
            if len(rows) == max_runs:
                break
        counts[index] = len(rows)
        if rows:
            centre[index], spread[index] = centre_and_spread(np.array(rows), np.array(noise))
    levels = [run.level for run in good[:max_runs]]
    return Baseline(centre, spread, counts, float(np.median(levels)) if levels else 0.0)


def centre_and_spread(ratios: Floats, noise: Floats) -> tuple[float, float]:
    """Return centre and spread of one node by the formulas above.

    Args:
        ratios: [run, sample], the same number of samples of every run.
        noise: [run] relative sampling noise of each run; NaN where unknown.
    """
    centre = float(np.median(ratios))
    within = MAD_TO_SIGMA * float(np.median(np.abs(ratios - centre)))
    medians = np.median(ratios, axis=1)
    between = float(np.std(medians, ddof=1)) if len(medians) > 1 else 0.0
    known = noise[~np.isnan(noise)]
    relative = max(MIN_RELATIVE_SPREAD, float(np.median(known)) if len(known) else 0.0)
    return centre, max(float(np.hypot(within, between)), relative * centre)
