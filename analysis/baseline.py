"""What a node, or a cohort, of a job class normally sends: learnt from earlier good runs, robust against accidents.

The quantity of a node is the ratio of its bytes to the median of its cohort, smoothed as `dropout` judges it;
that of a cohort is its rate, smoothed as `cohort` does: what is learnt and what is compared are the same
thing. Over the last K good runs of the class

    centre = median of the pooled values
    within = 1.4826 * median(|value - centre|)            the MAD, scaled to a standard deviation of a normal [1]
    between = standard deviation of the runs' own medians  0 for a single run
    spread = max(sqrt(within^2 + between^2), sampling noise, 2 % of the centre)
    least = second lowest of the runs' lowest values, sampling noise taken off
    limit  = centre - k * spread, and where that is lower: 5 % of the centre, if `least` is above it

Median and MAD bear almost half of all values being wrong [1, 2], so one bad run does not move them; the sum of both
variances is that of a random-effects model (within runs and between them). The sampling noise of a byte count from
n sampled packets is about 1/sqrt(n) of it [3]. The last floor stands for what short steps do in long windows, and
keeps a network without any variance from firing on nothing.

From a spread of centre / k on, centre - k * spread is no limit: nobody sends less than nothing. Three runs, one of them
at 55 %, are enough for that. A MAD between the runs is no way out: of three normal ones with a standard deviation of
10 %, a fourth is below a limit of k = 4 in 9 % of cases, not in 3 %. So there a node is judged by how little its runs
ever held: one that never fell to next to nothing has stopped when it does. One run in which it did is an accident, two
are its role. Who sends so few sampled packets that a window may well have none has no such limit either.

Before a class is known nobody judges, and a node that died in a run would widen its own variance for the next ten: a
standard deviation of runs bears no outlier. So of three runs or more, one in which the node's median is less than half
of what it is in its median run teaches nothing about the node.

Windows that were judged low teach nothing, and neither does a run in which most of them were, so what stays low for
many runs stays low. What loses a little from run to run, less than its spread each time, would be learnt, and widen the
variance on top. So a fall that goes on is taken out first: if the line through the runs' medians (slope: median of the
slopes of all pairs of runs [4, 5]) falls over at least six runs by more than 4 % and by more than four times the
scatter around it, and nine of ten pairs fall [6], every run is raised by what it lost since the oldest one.

[1] P. J. Rousseeuw, C. Croux: Alternatives to the Median Absolute Deviation. JASA 88 (1993), 1273-1283.
[2] F. R. Hampel: The Influence Curve and its Role in Robust Estimation. JASA 69 (1974), 383-393.
[3] P. Phaal, S. Panchen: Packet Sampling Basics (sflow.org, 2003): error at 95 % <= 196 % * sqrt(1/n), so 1/sqrt(n) is
    one standard deviation.
[4] H. Theil: A rank-invariant method of linear and polynomial regression analysis. Proc. KNAW 53 (1950).
[5] P. K. Sen: Estimates of the Regression Coefficient Based on Kendall's Tau. JASA 63 (1968), 1379-1389.
[6] H. B. Mann: Nonparametric Tests Against Trend. Econometrica 13 (1945), 245-259.
"""

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAD_TO_SIGMA = 1.4826
"""1 / quantile(3/4) of the standard normal: makes the MAD of normal data estimate its standard deviation [1]."""

MIN_RELATIVE_SPREAD = 0.02
"""Smallest spread, as a share of the centre.

2 % is what is left of 2-5 s steps in 10 s windows after smoothing; raise it where windows are shorter than a few steps.
"""

DECAY_RUNS, DECAY_SHARE, DECAY_SCATTER, DECAY_PAIRS = 6, 0.04, 4.0, 0.9
"""A decay: least runs, share that is lost, how many times its scatter, and share of the pairs of runs that fall."""

BROKEN_RUNS, BROKEN_SHARE = 3, 0.5
"""Least runs among which one can be told to be broken, and the share of the median run below which it is."""

ALIKE = 0.8
"""A job as a whole is compared with runs that had at least this share of its nodes, and at most its inverse."""

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

    nodes: tuple[str, ...]
    quantiles: Floats
    noise: Floats
    level: float
    flaw: str = ""

    @property
    def is_good(self) -> bool:
        """Whether baselines may learn from it."""
        return not self.flaw

    def memory(self) -> dict[str, Any]:
        """Return it as plain data."""
        buffer = io.BytesIO()
        # Ratios are kept as single precision anyway; a thousand nodes make this the largest thing in the state.
        np.savez_compressed(buffer, quantiles=self.quantiles.astype(np.float32), noise=self.noise)
        arrays = base64.b64encode(buffer.getvalue()).decode()
        return {"flaw": self.flaw, "nodes": self.nodes, "level": self.level, "arrays": arrays}

    @classmethod
    def read(cls, memory: Any) -> Self:  # noqa: ANN401 - plain data
        """Return what `memory` gave."""
        with np.load(io.BytesIO(base64.b64decode(memory["arrays"])), allow_pickle=False) as arrays:
            quantiles, noise = arrays["quantiles"].astype(np.float64), arrays["noise"]
        return cls(tuple(memory["nodes"]), quantiles, noise, memory["level"], memory["flaw"])


@dataclass(frozen=True, slots=True)
class Baseline:
    """What each node of a job is expected to send; arrays are [node], NaN where no run is known.

    Attributes:
        centre, spread: ratios to the cohort's median.
        least: the lowest ratio that a run of the node held, sampling noise taken off; of its runs the second lowest.
        runs: good earlier runs that the node took part in.
        level: bytes per window of the cohort's median node in those runs; 0 if there are none.
    """

    centre: Floats
    spread: Floats
    least: Floats
    runs: npt.NDArray[np.int64]
    level: float


def of_like_size(memories: Iterable[Any], nodes: int, share: float = ALIKE) -> list[Any]:
    """Return the memories (with the key "nodes") of runs with about so many nodes: `share` of them to its inverse."""
    return [one for one in memories if share * nodes <= one["nodes"] <= nodes / share]


def quantiles_of(ratios: Floats, min_windows: int) -> Floats:
    """Return [node, QUANTILES] from [window, node] ratios; NaN for a node with fewer than `min_windows` ratios."""
    result = np.full((ratios.shape[1], QUANTILES), np.nan)
    steps = np.linspace(0.0, 1.0, QUANTILES)
    counts = (~np.isnan(ratios)).sum(axis=0)
    ordered = np.sort(ratios, axis=0)  # NaN last
    for count in np.unique(counts[counts >= max(min_windows, 1)]):
        alike = counts == count
        result[alike] = np.quantile(ordered[:count, alike], steps, axis=0).T
    return result


def learn(nodes: Sequence[str], runs: Sequence[RunSummary], max_runs: int) -> Baseline:
    """Return the baseline of a cohort from earlier good runs.

    Args:
        nodes: names of the cohort's nodes.
        runs: summaries of its class, newest first; bad ones teach nothing.
        max_runs: how many runs each node learns from.
    """
    good = [run for run in runs if run.is_good]
    known = np.full((0, len(nodes), QUANTILES), np.nan)
    noise = np.full((0, len(nodes)), np.nan)
    counts = np.zeros(len(nodes), np.int64)
    for run in good:
        if (counts >= max_runs).all():
            break
        places = {name: place for place, name in enumerate(run.nodes)}
        at = np.array([places.get(name, -1) for name in nodes], np.int64)
        taught = (at >= 0) & (counts < max_runs)
        taught[taught] = ~np.isnan(run.quantiles[at[taught], 0])
        counts += taught
        known = np.concatenate([known, np.where(taught[:, None], run.quantiles[at], np.nan)[None]])
        noise = np.concatenate([noise, np.where(taught, run.noise[at], np.nan)[None]])
    broken = _broken(known)
    known[broken], noise[broken] = np.nan, np.nan
    counts -= broken.sum(axis=0)
    centre, spread, least = np.full((3, len(nodes)), np.nan)
    # Nodes that learn from the same runs, most often all of them, are done at once.
    patterns, which = np.unique(~np.isnan(known[:, :, 0]), axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        alike = which.reshape(-1) == number
        if pattern.any():
            own = np.ix_(pattern, alike)
            ratios, relative = known[own], noise[own]
            centre[alike], spread[alike] = centres_and_spreads(ratios, relative)
            lowest = np.sort(ratios[:, :, 0] - centre[alike] * np.nan_to_num(relative), axis=0)
            # A lone accident of few runs must not stand for the node.
            least[alike] = lowest[min(1, len(lowest) - 1)]
    levels = [run.level for run in good[:max_runs]]
    return Baseline(centre, spread, least, counts, float(np.median(levels)) if levels else 0.0)


def _broken(known: Floats) -> npt.NDArray[np.bool_]:
    """Return [run, node] whether the node had dropped out, by its other runs; `known`: [run, node, QUANTILES]."""
    # Evenly spaced quantiles: the middle one is the median.
    medians = known[:, :, QUANTILES // 2]
    result = np.zeros(medians.shape, np.bool_)
    enough = (~np.isnan(medians)).sum(axis=0) >= BROKEN_RUNS
    # NaN compares as False.
    result[:, enough] = medians[:, enough] < BROKEN_SHARE * np.nanmedian(medians[:, enough], axis=0)
    return result


def centres_and_spreads(values: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Return centres and spreads, [node], by the formulas above.

    Args:
        values: [run, node, sample], the newest run first.
        noise: [run, node] relative sampling noise; NaN where unknown.
    """
    medians = np.median(values, axis=2)
    values = values + _lost(medians)[:, :, None]
    centre = np.median(values, axis=(0, 2))
    within = MAD_TO_SIGMA * np.median(np.abs(values - centre[:, None]), axis=(0, 2))
    raised = np.median(values, axis=2)
    between = np.std(raised, axis=0, ddof=1) if len(raised) > 1 else np.zeros(len(centre))
    is_known = ~np.isnan(noise).all(axis=0)
    relative = np.full(len(centre), MIN_RELATIVE_SPREAD)
    relative[is_known] = np.maximum(relative[is_known], np.nanmedian(noise[:, is_known], axis=0))
    return centre, np.maximum(np.hypot(within, between), relative * centre)


def centre_and_spread(values: Floats, noise: Floats) -> tuple[float, float]:
    """Return the same of a single node: `values` are [run, sample], `noise` [run]."""
    centre, spread = centres_and_spreads(values[:, None, :], noise[:, None])
    return float(centre[0]), float(spread[0])


def _lost(medians: Floats) -> Floats:
    """Return [run, node] what each run, the newest first, lost since the oldest one by a decay that goes on."""
    runs = len(medians)
    if runs < DECAY_RUNS:
        return np.zeros_like(medians)
    older, newer = np.triu_indices(runs, 1)[::-1]
    slopes = (medians[newer] - medians[older]) / (older - newer)[:, None]
    slope = np.median(slopes, axis=0)
    since = np.arange(runs)[::-1, None]
    scatter = np.std(medians - slope * since, axis=0, ddof=1)
    fall = -slope * (runs - 1)
    is_decay = (fall > DECAY_SHARE * np.median(medians, axis=0)) & (fall > DECAY_SCATTER * scatter)
    is_decay &= (slopes < 0).mean(axis=0) >= DECAY_PAIRS
    return np.where(is_decay, -slope * since, 0.0)
