"""Who holds a job up: each node against those of its own role, in the same steps.

A node is compared with nodes of its stage in other pipelines (`slow_nodes`), a rail with the node's other rails and its
peers' same rail, a ring's rail with the ring's other rails, a stage with the other stages. So a long last stage is an
imbalance of the job, and no node's fault.

What is compared are medians over steps; what counts as odd is measured by how much steps scatter and how much peers
differ among each other (medians and MAD).

What this cannot know: which node of a ring has the slow link, for a ring is as slow as its slowest link, everywhere;
a slow worker of a job with one pipeline, which has no peers.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analysis.baseline import Floats, Ints
from analysis.detectors.roles.pair_roles import PairKind, Roles
from analysis.detectors.roles.slow_nodes import slow_nodes
from analysis.detectors.roles.stage_times import StageTimes, stage_times
from analysis.detectors.roles.step_times import Steps
from analysis.detectors.roles.traffic import Traffic

_IMBALANCE = 1.2
"""A stage that computes this many times what the others do is an imbalance."""

_DEAD, _ALIVE = 0.1, 0.5
"""A rail is dead with less than this share of what the node's median rail moves, where peers move that much on it."""

_SLOW_RAIL = 1.5
"""A rail on which a group's exchange takes this many times as long as on its median rail."""

_SHORT = 0.005
"""Seconds of the bins in which the length of an exchange is measured."""

_SILENT_STEPS, _SILENT = 2.0, 5.0
"""A pause is longer than a step, and than so many seconds; what lasts for so many steps, and still does, is a hang."""


class Blame(StrEnum):
    """What a verdict names."""

    NODE = "node"
    RAIL = "dead rail"
    LINK = "link"
    JOB = "whole job"
    STAGE = "imbalance of the stages"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One finding.

    Attributes:
        blame: what is at fault.
        nodes: names: the node, or those among which it is; empty of a whole job or a stage.
        rail: number; None where it is no rail's.
        share: how much longer or less, 0 to 1 and beyond.
        sure: 0 to 1.
        evidence: a sentence with the figures.
    """

    blame: Blame
    nodes: tuple[str, ...]
    rail: int | None
    share: float
    sure: float
    evidence: str


def judge(traffic: Traffic, steps: Steps, roles: Roles, end: float) -> list[Verdict]:
    """Return what holds a job up, what is surest first.

    Args:
        traffic: of one job.
        steps: its steps.
        roles: of its nodes.
        end: of what was looked at, epoch seconds.
    """
    found = [
        *_silences(traffic, steps, end), *dead_rails(traffic, roles.stage), *_slow_rails(traffic, steps, roles),
    ]  # fmt: skip
    if (times := stage_times(traffic, steps, roles)) is not None:
        found += [*_slow_nodes(traffic, times), *_imbalances(times)]
    return sorted(found, key=lambda one: -one.sure)


def _silences(traffic: Traffic, steps: Steps, end: float) -> Iterator[Verdict]:
    """Yield pauses and hangs of the whole job."""
    gaps = np.diff(np.append(traffic.time, end))
    for place in np.flatnonzero(gaps > max(_SILENT, steps.usual)):
        gap = float(gaps[place])
        if place < len(gaps) - 1:
            evidence = f"nothing for {gap:.1f} s, longer than a step of {steps.usual:.1f} s"
            yield Verdict(Blame.JOB, (), None, gap, 0.999, evidence)
        elif gap > max(_SILENT, _SILENT_STEPS * steps.usual):
            yield Verdict(Blame.JOB, (), None, gap, 0.999, f"nothing for the last {gap:.1f} s")


def dead_rails(traffic: Traffic, stage: Ints) -> Iterator[Verdict]:
    """Yield rails that move next to nothing, beside those of nodes of the same stage: it takes sums alone."""
    rails = int(traffic.rail.max(initial=0)) + 1
    if rails < 2:
        return
    count = len(traffic.nodes)
    sent = np.bincount(traffic.src * rails + traffic.rail, traffic.sent, count * rails).reshape(count, rails)
    share = sent / np.maximum(np.median(sent, axis=1, keepdims=True), 1.0)
    for node, rail in np.argwhere(share < _DEAD):
        peers = (stage == stage[node]) & (np.arange(count) != node)
        if peers.any() and np.median(share[peers, rail]) >= _ALIVE:
            evidence = f"{share[node, rail]:.0%} of its median rail's bytes; peers {np.median(share[peers, rail]):.0%}"
            yield Verdict(Blame.RAIL, (traffic.nodes[node],), int(rail), 1 - float(share[node, rail]), 0.99, evidence)


def _slow_rails(traffic: Traffic, steps: Steps, roles: Roles) -> Iterator[Verdict]:
    """Yield the rails of groups whose exchange takes longer than on the group's other rails."""
    rails = int(traffic.rail.max(initial=0)) + 1
    is_data = np.isin(roles.pairs.kind, (PairKind.DATA, PairKind.BOTH))
    names = (roles.pairs.low * len(traffic.nodes) + roles.pairs.high)[is_data]
    if rails < 2 or not len(names):
        return
    kept = np.isin(traffic.pair, names) & (steps.of(traffic.time) >= 0)
    lane = roles.group[traffic.src[kept]] * rails + traffic.rail[kept]
    length = _lengths(lane, traffic.time[kept], steps.of(traffic.time[kept]), len(traffic.nodes) * rails)
    table = length.reshape(-1, rails)
    for group in np.unique(roles.group[roles.pairs.low[is_data]]):
        usual = float(np.median(table[group]))
        for rail in np.flatnonzero(table[group] >= _SLOW_RAIL * usual) if usual > 0 else ():
            nodes = tuple(traffic.nodes[node] for node in np.flatnonzero(roles.group == group))
            ratio = float(table[group, rail] / usual)
            evidence = f"its exchange takes {ratio:.1f} times as long as on the median rail of stage "
            evidence += f"{roles.stage[roles.group == group][0]}"
            yield Verdict(Blame.LINK, nodes, int(rail), ratio - 1, 0.95, evidence)


def _lengths(lane: np.ndarray[tuple[int], np.dtype[np.int64]], time: Floats, step: np.ndarray[tuple[int],
             np.dtype[np.int64]], lanes: int) -> Floats:  # fmt: skip
    """Return [lane] the effective number of bins that an exchange takes, however few samples show it.

    The inverse of the chance that two samples of a step lie in the same bin (Simpson's index, its unbiased form).
    """
    bins = (time / _SHORT).astype(np.int64)
    result = np.zeros(lanes)
    pairs = []
    for key in (bins, step):
        span = int(key.max()) - int(key.min()) + 1
        keys, counts = np.unique(lane * span + key - key.min(), return_counts=True)
        pairs.append(np.bincount(keys // span, counts * (counts - 1.0), lanes))
    np.divide(pairs[1], pairs[0], out=result, where=pairs[0] > 0)
    return result


def _slow_nodes(traffic: Traffic, times: StageTimes) -> Iterator[Verdict]:
    for slow in slow_nodes(times):
        sure = float(1 - 2 ** (-slow.spreads / 2))
        evidence = f"it computes {slow.share:+.0%} beside peers of stage {slow.stage}, {slow.spreads:.1f} spreads"
        yield Verdict(
            Blame.NODE, (traffic.nodes[times.nodes[slow.chain, slow.stage]],), None, slow.share, sure, evidence
        )


def _imbalances(times: StageTimes) -> Iterator[Verdict]:
    """Yield the stage that computes longer than the others, in all pipelines."""
    with warnings.catch_warnings():
        # Stages of which no step is seen: their medians are NaN.
        warnings.simplefilter("ignore", RuntimeWarning)
        usual = np.nanmedian(times.took, axis=(0, 2))
    # A backward pass takes about twice as long as a forward pass.
    usual[0] *= 3
    for stage in range(len(usual)):
        others = np.delete(usual, stage)
        # Where there is an inner stage, the first one is only estimated.
        ratio = float(usual[stage] / np.nanmedian(others[1:] if len(others) > 2 and stage else others))
        if stage and np.isfinite(ratio) and ratio >= _IMBALANCE:
            evidence = f"stage {stage} of {len(usual)} computes {ratio:.2f} times as long as others, in all pipelines"
            yield Verdict(Blame.STAGE, (), None, ratio - 1, 0.5, evidence)
