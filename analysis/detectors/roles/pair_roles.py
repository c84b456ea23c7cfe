"""Which pairs of a job's nodes are neighbours in the pipeline, which exchange gradients; and so each node's stage.

A pipeline sends the same small messages again and again, all along the step; gradients go once, at its end (LLMPrism,
arXiv 2505.00342, section 4.2, which tells the two by how sizes repeat; samples have no sizes, so they are told by
*when* they come). The graph tells the rest: pipelines are paths; what joins the two ends of one shares the embedding;
all else at a step's end is data-parallel, and its components are stages. Activations go first, gradients come back:
whose bytes are earlier says which end is the first stage.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analysis.baseline import Flags, Floats, Ints
from analysis.detectors.roles.step_times import Steps
from analysis.detectors.roles.traffic import Traffic, components

_LEAST_SHARE = 0.001
"""Share of what the less busy of the two moves, from which a pair has a role ..."""

_LEAST_SAMPLES = 20
"""... if there are so many samples of it."""

_OUTSIDE = 0.1
"""Share of a pipeline pair's bytes that flows outside of bursts, at least ..."""

_SCATTER = 0.08
"""... and their scatter within a step, as a share of it: evenly spread bytes have 0.29, one burst nearly 0."""

_TAIL, _LATE = 0.1, 0.01
"""A burst's tail: this share of its length, and seconds until agents have sent their samples."""

_BOTH = 0.5
"""A pipeline pair that moves this share of what a data-parallel pair does within bursts is both."""

UNKNOWN = -1


class PairKind(StrEnum):
    """What a pair does."""

    PIPELINE = "pipeline"
    DATA = "data"
    ENDS = "ends"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs with a role: equally long arrays.

    Attributes:
        low, high: nodes.
        kind: values of PairKind.
        sent: bytes both ways.
        forward: of a pipeline pair, whether activations go from `low` to `high`.
    """

    low: Ints
    high: Ints
    kind: "np.ndarray[tuple[int], np.dtype[np.str_]]"
    sent: Floats
    forward: Flags


@dataclass(frozen=True, slots=True)
class Roles:
    """What each node of a job is.

    Attributes:
        pairs: who exchanges what with whom.
        stage: [node], from 0; -1 where it is unknown.
        chain: [node] the number of its pipeline: that of its first node.
        group: [node] the number of its data-parallel group.
        shape: ring, pair or tree: of the data-parallel groups.
        sure: share of the nodes whose stage, pipeline and group agree with those of the others.
    """

    pairs: Pairs
    stage: Ints
    chain: Ints
    group: Ints
    shape: str
    sure: float


def roles_of(traffic: Traffic, steps: Steps) -> Roles:
    """Return the roles of the nodes of one job."""
    count = len(traffic.nodes)
    pairs = _pairs(traffic, steps)
    is_pipeline = np.isin(pairs.kind, (PairKind.PIPELINE, PairKind.BOTH))
    is_data = np.isin(pairs.kind, (PairKind.DATA, PairKind.BOTH))
    chain = components(count, pairs.low[is_pipeline], pairs.high[is_pipeline])
    group = components(count, pairs.low[is_data], pairs.high[is_data])
    stage = _stages(count, pairs, is_pipeline, chain)
    _settle(stage, chain, group)
    return Roles(pairs, stage, chain, group, _shape(group, pairs, is_data), _agreement(stage, chain, group))


def _pairs(traffic: Traffic, steps: Steps) -> Pairs:
    count = len(traffic.nodes)
    names, place = np.unique(traffic.pair, return_inverse=True)
    number = steps.of(traffic.time)
    inside = number >= 0
    at = np.where(inside, (traffic.time - steps.begin[number]) / steps.length[number], 0.0)
    # A burst's last bytes come after its end, by which it is counted.
    tail = steps.begin + _TAIL * (steps.end - steps.burst) + _LATE
    in_burst = inside & ((traffic.time >= steps.burst[number]) | (traffic.time < tail[number]))
    outside = inside & ~in_burst
    sent = np.bincount(place, traffic.sent * inside, len(names))
    burst = np.bincount(place, traffic.sent * in_burst, len(names))
    low, high = names // count, names % count
    moved = np.bincount(low, sent, count) + np.bincount(high, sent, count)
    samples = np.bincount(place[inside], minlength=len(names))
    kept = (sent >= _LEAST_SHARE * np.minimum(moved[low], moved[high])) & (samples >= _LEAST_SAMPLES)
    scatter = _scatter(place[outside], number[outside], at[outside], len(names))
    piped = ((sent - burst) >= _OUTSIDE * sent) & (scatter >= _SCATTER)
    forward = _forward(place[outside], traffic.src[outside] == low[place[outside]], at[outside], len(names))
    names, low, high, sent, burst, piped, forward = (
        one[kept] for one in (names, low, high, sent, burst, piped, forward)
    )
    chain = components(count, low[piped], high[piped])
    if piped.all() and not _has_path(count, low, high, chain):
        # Pipelines are paths: these exchange gradients all along their steps.
        piped, chain = ~piped, np.arange(count)
    data = ~piped & (chain[low] != chain[high])
    usual = float(np.median(burst[data])) if data.any() else np.inf
    kind = np.select(
        [piped & (burst >= _BOTH * usual), piped, data], [PairKind.BOTH, PairKind.PIPELINE, PairKind.DATA],
        PairKind.ENDS,
    )  # fmt: skip
    return Pairs(low, high, kind.astype(np.str_), sent, forward)


def _has_path(count: int, low: Ints, high: Ints, chain: Ints) -> bool:
    """Return whether pairs join some nodes one after the other: not in a circle, and without branches."""
    degree = np.bincount(low, minlength=count) + np.bincount(high, minlength=count)
    ends = np.bincount(chain, degree == 1, count)
    edges, nodes = np.bincount(chain[low], minlength=count), np.bincount(chain, minlength=count)
    return bool(np.any((ends == 2) & (edges == nodes - 1)))


def _scatter(place: Ints, step: Ints, at: Floats, count: int) -> Floats:
    """Return [pair] the standard deviation within a step of when its samples come."""
    key = place * (int(step.max(initial=0)) + 1) + step
    keys, where = np.unique(key, return_inverse=True)
    number = np.bincount(where)
    mean = np.bincount(where, at) / number
    squares = np.bincount(place, (at - mean[where]) ** 2, count)
    free = np.bincount(keys // (int(step.max(initial=0)) + 1), number - 1, count)
    return np.sqrt(np.divide(squares, free, out=np.zeros(count), where=free > 0))


def _forward(place: Ints, from_low: Flags, at: Floats, count: int) -> Flags:
    """Return [pair] whether what its lower node sends comes earlier in the step."""
    means = [
        np.bincount(place[one], at[one], count) / np.maximum(np.bincount(place[one], minlength=count), 1)
        for one in (from_low, ~from_low)
    ]
    return np.asarray(means[0] < means[1])


def _stages(count: int, pairs: Pairs, piped: Flags, chain: Ints) -> Ints:
    """Return [node] its place in its pipeline; unknown where that is no path."""
    near: dict[int, list[tuple[int, int]]] = {}
    for low, high, forward in zip(pairs.low[piped], pairs.high[piped], pairs.forward[piped], strict=True):
        near.setdefault(int(low), []).append((int(high), 1 if forward else -1))
        near.setdefault(int(high), []).append((int(low), -1 if forward else 1))
    stage = np.full(count, UNKNOWN if near else 0)
    for one in np.unique(chain):
        nodes = [int(node) for node in np.flatnonzero(chain == one)]
        ends = [node for node in nodes if len(near.get(node, ())) == 1]
        if len(nodes) < 2 or len(ends) != 2 or sum(len(near[node]) for node in nodes) != 2 * (len(nodes) - 1):
            continue
        path, votes = [ends[0]], 0
        while len(path) < len(nodes):
            step = next((other, way) for other, way in near[path[-1]] if other not in path[-2:])
            path.append(step[0])
            votes += step[1]
        for number, node in enumerate(path if votes >= 0 else path[::-1]):
            stage[node] = number
    return stage


def _settle(stage: Ints, chain: Ints, group: Ints) -> None:
    """Turn pipelines round that disagree with their groups, and give nodes without a stage that of their group."""
    usual = np.full(len(stage), UNKNOWN)
    for _ in range(2):
        for one in np.unique(group):
            known = stage[(group == one) & (stage >= 0)]
            usual[group == one] = np.bincount(known).argmax() if len(known) else UNKNOWN
        for one in np.unique(chain):
            inside = (chain == one) & (stage >= 0)
            turned = stage[inside].max(initial=0) - stage[inside]
            if np.sum(turned == usual[inside]) > np.sum(stage[inside] == usual[inside]):
                stage[inside] = turned
    stage[stage < 0] = usual[stage < 0]


def _shape(group: Ints, pairs: Pairs, is_data: Flags) -> str:
    """Return what most data-parallel groups look like."""
    sizes = np.bincount(group)[group]
    nodes = int((sizes > 1).sum())
    if not nodes:
        return "none"
    degree = np.bincount(pairs.low[is_data], minlength=len(group)) + np.bincount(
        pairs.high[is_data], minlength=len(group)
    )
    if np.median(sizes[sizes > 1]) <= 2:
        return "pair"
    return "ring" if np.mean(degree[sizes > 1] == 2) >= 0.9 else "tree"


def _agreement(stage: Ints, chain: Ints, group: Ints) -> float:
    """Return the share of nodes whose pipeline is as long as most, and whose group has one stage, as large as most."""
    length, size = np.bincount(chain)[chain], np.bincount(group)[group]
    usual = [np.bincount(one).argmax() for one in (length, size)]
    one_stage = np.array([len(np.unique(stage[group == one])) == 1 for one in group])
    return float(np.mean((length == usual[0]) & (size == usual[1]) & one_stage & (stage >= 0)))
