"""How long each stage of each pipeline computes, from the waves at both ends of a step.

At the begin of a step the first micro-batch runs through an idle pipeline: between what a stage receives first and what
it sends first lies its forward pass. At its end the last gradients run back alone: there lies its backward pass. In
between stages wait for each other, and what one takes longer is hidden. The last stage's first gradients come after
both of its passes. Of the first stage only the forward pass is seen.
"""

from dataclasses import dataclass

import numpy as np

from analysis.baseline import Floats, Ints
from analysis.detectors.roles.pair_roles import PairKind, Roles
from analysis.detectors.roles.step_times import BIN, Steps
from analysis.detectors.roles.traffic import Traffic

_SHARED = 8.0
"""A bin with this many times the bytes of the median one holds more than passes: all share the embedding at once."""


@dataclass(frozen=True, slots=True)
class StageTimes:
    """What was seen of the pipelines.

    Attributes:
        nodes: [pipeline, stage] nodes.
        first: [pipeline, stage, step] seconds that the first micro-batch takes: the forward pass, of the last stage
            both passes. NaN where samples do not show it.
        last: the backward pass of the last micro-batch; NaN of the first stage and of the last.
    """

    nodes: Ints
    first: Floats
    last: Floats

    @property
    def took(self) -> Floats:
        """Return [pipeline, stage, step] seconds of both passes; of the first stage of the forward pass."""
        took = self.first.copy()
        took[:, 1:-1] += self.last[:, 1:-1]
        return took


def stage_times(traffic: Traffic, steps: Steps, roles: Roles) -> StageTimes | None:
    """Return the times of a job's stages; None where it has no pipelines, or they are not told apart."""
    depth = int(roles.stage.max(initial=0)) + 1
    chains, of_node = np.unique(roles.chain, return_inverse=True)
    if depth < 2 or (roles.stage < 0).any() or len(roles.stage) != len(chains) * depth:
        return None
    nodes = np.zeros((len(chains), depth), np.int64)
    nodes[of_node, roles.stage] = np.arange(len(roles.stage))
    piped = np.isin(roles.pairs.kind, (PairKind.PIPELINE, PairKind.BOTH))
    names = (roles.pairs.low * len(traffic.nodes) + roles.pairs.high)[piped]
    step = steps.of(traffic.time)
    kept = np.isin(traffic.pair, names) & (step >= 0)
    if depth == 2:
        # First and last stage are neighbours.
        kept[kept] = traffic.time[kept] < _shared(traffic.where(kept), steps)[step[kept]]
    at, step = traffic.time[kept] - steps.begin[step[kept]], step[kept]
    src, dst = traffic.src[kept], traffic.dst[kept]
    is_back = (roles.stage[dst] < roles.stage[src]).astype(np.int64)
    shape = (len(chains), depth, 2, len(steps.length))
    key = np.ravel_multi_index((of_node[src], roles.stage[src], is_back, step), shape)
    # Rows are in the order of time: the first of each key, and the last.
    first, last = np.full(shape, np.nan), np.full(shape, np.nan)
    first.ravel()[key[::-1]] = at[::-1]
    last.ravel()[key] = at
    there, back, gone = first[:, :, 0], first[:, :, 1], last[:, :, 1]
    begins, ends = there.copy(), np.full(there.shape, np.nan)
    begins[:, 1:-1] -= there[:, :-2]
    begins[:, -1] = back[:, -1] - there[:, -2]
    ends[:, 1:-1] = gone[:, 1:-1] - gone[:, 2:]
    return StageTimes(nodes, *(np.where(one > 0, one, np.nan) for one in (begins, ends)))


def _shared(traffic: Traffic, steps: Steps) -> Floats:
    """Return [step] when all neighbours begin to share the embedding's gradients; else its burst's begin."""
    bins = ((traffic.time - steps.begin[0]) / BIN).astype(np.int64)
    series = np.bincount(bins, traffic.sent)
    heavy = np.flatnonzero(series >= _SHARED * float(np.median(series[series > 0])))
    begins = steps.begin[0] + heavy * BIN
    step = steps.of(begins)
    late = (step >= 0) & (begins > (steps.begin + steps.length / 2)[step])
    result = steps.burst.copy()
    np.minimum.at(result, step[late], begins[late])
    return result
