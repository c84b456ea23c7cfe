"""Which node computes longer than its peers on the same micro-batches.

Stages of one pipeline compute the same micro-batches, so long sequences make all of them long: a pass is compared with
those of the pipeline's other stages on that micro-batch, where these foretell it, and the ratio with that of the same
stage in other pipelines. So neither a long stage nor long sequences are a node's fault.

A step in which a message was not sampled shows a pass twice as long, or none: such steps are left out.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.baseline import Floats, Ints
from analysis.detectors.roles.stage_times import StageTimes

ODD = 4.0
"""Spreads beyond which a node is odd beside its peers: of 1,000 nodes in 1,000 looks, few are by chance."""

LEAST_SPREAD = 0.01
"""The spread at least, as a share of the pass: samples come with the delay of agents, which differs."""

_TOLD = 0.06
"""The excess, as a share of the pass, that is told at least: nodes of one kind differ by some percent ..."""

_TOLD_FIRST = 0.15
"""... and of the first stage only a forward pass is seen, in which a host also fetches data and writes logs."""

_MISSED = float(np.log(2) / 2)
"""Half way, as a ratio, to the pass that looks twice as long because a message was not sampled."""

_LEAST_SEEN = 4
"""Steps that show a pass."""

_SCALE, _MEDIAN = 1.4826, 1.2533
"""Of a MAD to a standard deviation; of the error of a mean to that of a median."""


@dataclass(frozen=True, slots=True)
class Slow:
    """A node that computes longer.

    Attributes:
        chain, stage: where it is.
        share: how much longer.
        spreads: how odd that is.
    """

    chain: int
    stage: int
    share: float
    spreads: float


def slow_nodes(times: StageTimes) -> Iterator[Slow]:
    """Yield nodes that are slow, the oddest first: of each next one, what those before do to others is left out."""
    passes = _passes(times)
    least = np.full(times.nodes.shape[1], np.log1p(_TOLD))
    least[0] = np.log1p(_TOLD_FIRST)
    for _ in range(times.nodes.size // 2):
        excess, spreads = _beside_peers(passes)
        odd = np.where((excess >= least) & (spreads >= ODD), spreads, 0.0)
        chain, stage = (int(one) for one in np.unravel_index(odd.argmax(), odd.shape))
        if not odd[chain, stage]:
            return
        yield Slow(chain, stage, float(np.expm1(excess[chain, stage])), float(odd[chain, stage]))
        for one in passes:
            one[chain, stage] = np.nan


def excess_of(times: StageTimes) -> Floats:
    """Return [pipeline, stage] how much longer each node computes than its peers, as a logarithm; 0 where unknown."""
    return _beside_peers(_passes(times))[0]


def _passes(times: StageTimes) -> list[Floats]:
    with warnings.catch_warnings():
        # What no sample shows is NaN, and left out of medians.
        warnings.simplefilter("ignore", RuntimeWarning)
        first, last = (_seen(one) for one in (times.first, times.last))
    # The first stage's pass counts from the step's begin: where that was told too late in many steps, it is not known.
    lane = np.log(times.first[:, 0])
    kept = np.isfinite(first[:, 0]).sum(axis=-1)
    late = (lane < np.nanmin(first[:, 0], axis=-1, keepdims=True, initial=np.inf)).sum(axis=-1)
    first[late >= kept / 2, 0] = np.nan
    return [first, last]


def _seen(took: Floats) -> Floats:
    """Return the logarithms of passes, without those in which a message was missed: [pipeline, stage, step]."""
    result = np.log(np.where(took > 0, took, np.nan))
    for stage in range(result.shape[1]):
        modes = np.array([_mode(lane) for lane in result[:, stage]])
        for lane, own, usual in zip(result[:, stage], modes, _others(modes), strict=True):
            # A slow node never takes the usual time; one whose messages were missed does in other steps.
            there, here = (int((np.abs(lane - one) <= _MISSED).sum()) for one in (usual, own))
            centre = own if here - there > 2 * np.sqrt(here + there) else usual
            lane[~(np.abs(lane - centre) <= _MISSED)] = np.nan
    return result


def _mode(values: Floats) -> float:
    """Return where values are most; of two such places the lower one, for missed messages make passes longer."""
    ordered = np.sort(values[np.isfinite(values)])
    if not len(ordered):
        return np.nan
    until = np.searchsorted(ordered, ordered + _MISSED, side="right")
    near = until - np.arange(len(ordered))
    first = int((near >= near.max() / 2).argmax())
    # The fullest window of those that overlap it.
    place = first + int(near[first : until[first]].argmax())
    return float(np.median(ordered[place : until[place]]))


def _beside_peers(passes: list[Floats]) -> tuple[Floats, Floats]:
    """Return of each node how much longer it computes, as a logarithm, and how many spreads that is."""
    shape = passes[0].shape[:2]
    total, weight = np.zeros(shape), np.zeros(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for one in passes:
            centre, error = _centred(one)
            beside = centre - _others(centre)
            spread = np.maximum(error, LEAST_SPREAD)
            if shape[0] < 4:
                spread = np.hypot(spread, _others(error))
            else:
                differ = _SCALE * np.nanmedian(np.abs(centre - np.nanmedian(centre, axis=0)), axis=0)
                spread = np.maximum(spread, differ)
            known = np.isfinite(beside) & np.isfinite(spread)
            total[known] += (beside / spread**2)[known]
            weight[known] += (1 / spread**2)[known]
    excess = np.divide(total, weight, out=np.zeros(shape), where=weight > 0)
    return excess, excess * np.sqrt(weight)


def _others(values: Floats) -> Floats:
    """Return [pipeline, ...] the median of the other pipelines."""
    return np.stack([np.nanmedian(np.delete(values, at, axis=0), axis=0) for at in range(len(values))])


def _centred(passes: Floats) -> tuple[Floats, Floats]:
    """Return [pipeline, stage] the middle of passes over steps, and its error."""
    centre, error = _middle(passes)
    usual = np.nanmedian(passes, axis=(0, 2))[:, None]
    for stage in np.flatnonzero(np.isfinite(usual[:, 0])):
        others = np.nanmedian(np.delete(passes - usual, stage, axis=1), axis=1)
        middle, apart = _middle((passes[:, stage] - others)[:, None])
        # Where sequences are equally long, other stages tell nothing but their own scatter.
        if np.nanmedian(apart) < np.nanmedian(error[:, stage]):
            centre[:, stage], error[:, stage] = middle[:, 0], apart[:, 0]
    return centre, error


def _middle(values: Floats) -> tuple[Floats, Floats]:
    """Return the median of the last axis and its error; NaN where too few are seen."""
    seen: Ints = np.isfinite(values).sum(axis=-1)
    middle = np.nanmedian(values, axis=-1)
    error = _MEDIAN * np.nanstd(values, axis=-1) / np.sqrt(np.maximum(seen - 1, 1))
    return np.where(seen >= _LEAST_SEEN, middle, np.nan), np.where(seen >= _LEAST_SEEN, error, np.nan)
