"""The shape of a cohort's collectives, from who sent how much to whom in a minute.

A link counts where it carries a fair part of what its sender sends; acknowledgements do not. Then:

- all to all: nodes spread their bytes over half of the cohort or more (by the inverse of sum p^2, p being the part of a
  node's bytes that goes to each other node: 1 for one neighbour, k for k equal ones);
- ring: nearly all nodes send to one neighbour or two and receive from as many, and the links close: several rings side
  by side, one in each direction, one on each rail are rings too, and so are two nodes;
- tree: what goes up comes down: nearly all links are used in both directions, and there are no more of them than two
  spanning trees have;
- mixed: anything else, such as a ring for large messages and a tree for small ones.
"""

from dataclasses import dataclass

import numpy as np

from analysis.baseline import Floats, Ints
from analysis.detectors.roles.traffic import components
from store.schema import Pattern

_FAIR = 0.02
"""Part of the sender's bytes, or of the median sender's if that is more, from which a link counts."""

_CLEAR, _GONE = 0.1, 0.01
"""A neighbour has come, or gone, where one minute has so much of the node's bytes on a link and the other so little."""

_NEARLY_ALL = 0.9
_DENSE = 0.5
_EVEN = 0.25
"""Part of an even share of the sender's bytes from which a link of an all-to-all counts."""

_ACKNOWLEDGES = 0.05
"""A link that carries less than this part of what comes back on it only acknowledges: 64 bytes for two packets."""
_FEW = 4
"""Cohorts of fewer nodes have no all-to-all that is not a ring as well."""

_TREES = 2
"""NCCL sums over two trees at once, so that every node is a leaf in one of them."""

_LEAST_SENDING = 0.5
"""Part of the cohort that must send before there is a pattern at all."""


@dataclass(frozen=True, slots=True)
class Links:
    """Who sent to whom in a cohort: equally long arrays of positions in the cohort, and bytes.

    Attributes:
        nodes: size of the cohort.
        rest: [node] bytes to nodes of the cohort that nobody named, because there were too many.
    """

    nodes: int
    src: Ints
    dst: Ints
    sent: Floats
    rest: Floats

    def totals(self) -> Floats:
        """Return [node] bytes sent."""
        return np.asarray(np.bincount(self.src, self.sent, self.nodes) + self.rest, np.float64)

    def are_silent(self) -> bool:
        """Whether so few nodes send that there is no pattern."""
        return bool((self.totals() > 0).mean() < _LEAST_SENDING)


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed between two minutes.

    Attributes:
        nodes: nodes that send to other neighbours; those silent in either minute are not counted.
        src, dst: [pair] who began or stopped to send to whom, the most bytes first.
        before, now: [pair] bytes in either minute.
    """

    nodes: int
    src: Ints
    dst: Ints
    before: Floats
    now: Floats


@dataclass(frozen=True, slots=True)
class Shape:
    """What a minute's links look like: the pattern (see `schema.Pattern`), and the median number of neighbours."""

    pattern: int
    neighbours: float


def shape_of(links: Links) -> Shape:
    """Return the shape of a cohort's links."""
    totals = links.totals()
    sending = totals > 0
    if links.nodes < 2 or links.are_silent():
        return Shape(Pattern.NONE, 0.0)
    # What is not named goes to others of the same kind: so many more of them.
    named = np.maximum(1 - np.divide(links.rest, totals, out=np.zeros(links.nodes), where=sending), 1 / links.nodes)
    shares = links.sent / np.maximum(totals[links.src], 1.0)
    squares = np.bincount(links.src, shares**2, links.nodes)
    spread = named[sending] / np.maximum(squares[sending], 1e-12)
    is_dense = links.nodes >= _FEW and float(np.median(spread)) >= _DENSE * (links.nodes - 1)
    src, dst = _counting(links, totals, _EVEN / (links.nodes - 1) if is_dense else _FAIR)
    outgoing = np.bincount(src, minlength=links.nodes) / named
    neighbours = min(float(np.median(outgoing[sending])), links.nodes - 1.0)
    return Shape(Pattern.ALL_TO_ALL if is_dense else _sparse(links.nodes, src, dst), neighbours)


def _counting(links: Links, totals: Floats, fair: float) -> tuple[Ints, Ints]:
    """Return sources and destinations of the links that count."""
    typical = float(np.median(totals[totals > 0]))
    keys = links.src * links.nodes + links.dst
    order = np.argsort(keys)
    back = links.dst * links.nodes + links.src
    place = np.minimum(np.searchsorted(keys[order], back), len(keys) - 1)
    returned = np.where(keys[order][place] == back, links.sent[order][place], 0.0)
    counts = (links.sent >= fair * np.maximum(totals, typical)[links.src]) & (links.sent >= _ACKNOWLEDGES * returned)
    return links.src[counts], links.dst[counts]


def _sparse(nodes: int, src: Ints, dst: Ints) -> int:
    """Return the pattern of few links."""
    outgoing, incoming = (np.bincount(ends, minlength=nodes) for ends in (src, dst))
    takes_part = (outgoing > 0) | (incoming > 0)
    pairs = np.unique(np.minimum(src, dst) * nodes + np.maximum(src, dst))
    low, high = pairs // nodes, pairs % nodes
    part = components(nodes, low, high)
    size, links = np.bincount(part[takes_part], minlength=nodes), np.bincount(part[low], minlength=nodes)
    closes = (links >= size) | (size == 2)
    in_ring = (outgoing <= 2) & (incoming <= 2) & closes[part]
    if in_ring[takes_part].mean() >= _NEARLY_ALL:
        return Pattern.RING
    is_two_way = np.isin(dst * nodes + src, src * nodes + dst).mean() >= _NEARLY_ALL
    return Pattern.TREE if is_two_way and len(pairs) <= _TREES * (takes_part.sum() - 1) else Pattern.MIXED


def changes(before: Links, now: Links) -> Changes:
    """Return which pairs are new and which are gone, of nodes that send in both minutes; the largest first."""
    keys = [links.src * links.nodes + links.dst for links in (before, now)]
    every = np.union1d(*keys)
    src, dst = every // now.nodes, every % now.nodes
    sent = np.zeros((2, len(every)))
    for row, links, key in zip(sent, (before, now), keys, strict=True):
        row[np.searchsorted(every, key)] = links.sent
    totals = np.stack([before.totals(), now.totals()])[:, src]
    was, is_now = sent / np.maximum(totals, 1.0)
    moved = ((was >= _CLEAR) & (is_now < _GONE)) | ((is_now >= _CLEAR) & (was < _GONE))
    found = np.flatnonzero(moved & (totals > 0).all(axis=0))
    # Pairs of a ring are alike: by exact bytes, each minute would name others of them.
    about = np.floor(np.log2(sent[:, found].max(axis=0)))
    found = found[np.argsort(-about, kind="stable")]
    return Changes(len(np.unique(src[found])), src[found], dst[found], *sent[:, found])


def rail_imbalance(sent: Floats) -> float | None:
    """Return how much the largest rail carries above the mean of a node's rails, of the node where that is worst.

    Args:
        sent: [node, rail] bytes; NaN where a node has no such rail. Nodes that send next to nothing are left out.

    Returns:
        0 where all rails carry the same, 1 where one of two carries everything; None where there is nothing to compare.
    """
    if sent.ndim != 2:
        return None
    sent = sent[(~np.isnan(sent)).sum(axis=1) > 1]
    means = np.nanmean(sent, axis=1) if len(sent) else np.zeros(0)
    if not means.any():
        return None
    counted = means >= _CLEAR * float(np.median(means[means > 0]))
    return float((np.nanmax(sent[counted], axis=1) / means[counted]).max() - 1)
