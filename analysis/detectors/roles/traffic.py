"""Traffic between nodes as arrays, and which nodes belong together.

Nodes of one job exchange much, and all the time: connected components of heavy, repeated traffic are jobs (LLMPrism,
arXiv 2505.00342, section 4.1).
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.baseline import Flags, Floats, Ints

_HEAVY = 0.001
"""Share of what the busier of the two moves, from which a pair is heavy: a pipeline beside its gradients is 1 %."""

_SLICES, _REPEATED = 10, 0.5
"""Traffic is repeated if it is there in half of ten slices of the period."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Samples or records: equally long arrays, in the order of time.

    Attributes:
        nodes: names; `src` and `dst` are positions in it.
        time: epoch seconds.
        rail: of the sender; 0 where none is known.
        sent: bytes.
    """

    nodes: tuple[str, ...]
    time: Floats
    src: Ints
    dst: Ints
    rail: Ints
    sent: Floats

    @property
    def pair(self) -> Ints:
        """Return the unordered pair of each row, as a number: of a, b with a < b it is a x nodes + b."""
        return np.minimum(self.src, self.dst) * len(self.nodes) + np.maximum(self.src, self.dst)

    def where(self, chosen: Flags) -> "Traffic":
        """Return some rows."""
        time, sent = self.time[chosen], self.sent[chosen]
        return Traffic(self.nodes, time, self.src[chosen], self.dst[chosen], self.rail[chosen], sent)


def traffic_of(frame: pl.DataFrame) -> Traffic:
    """Return the traffic of a frame with time (epoch seconds), src, dst (names), bytes and, if known, src_rail."""
    frame = frame.with_columns(pl.col("src", "dst").cast(pl.Categorical)).filter(pl.col("src") != pl.col("dst"))
    frame = frame.sort("time")
    names = pl.concat([frame.get_column(side).unique().cast(pl.String) for side in ("src", "dst")]).unique().sort()
    src, dst = (_places(frame.get_column(side), names) for side in ("src", "dst"))
    rail = frame.get_column("src_rail").to_numpy() if "src_rail" in frame.columns else np.zeros(frame.height)
    sent = frame.get_column("bytes").to_numpy().astype(np.float64)
    time = frame.get_column("time").cast(pl.Float64).to_numpy()
    return Traffic(tuple(names.to_list()), time, src, dst, rail.astype(np.int64), sent)


def _places(column: pl.Series, names: pl.Series) -> Ints:
    """Return the place of each row's name among the names."""
    codes = column.to_physical().to_numpy()
    known = column.unique()
    table = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    table[known.to_physical().to_numpy()] = names.search_sorted(known.cast(pl.String)).to_numpy()
    return np.asarray(table[codes], np.int64)


def members(traffic: Traffic) -> Ints:
    """Return [node] the number of its job: that of its first node; a node without heavy traffic is alone."""
    count = len(traffic.nodes)
    if not len(traffic.time):
        return np.arange(count)
    pairs, place = np.unique(traffic.pair, return_inverse=True)
    low, high = pairs // count, pairs % count
    volume = np.bincount(place, traffic.sent)
    moved = np.bincount(traffic.src, traffic.sent, count) + np.bincount(traffic.dst, traffic.sent, count)
    first, last = traffic.time[0], traffic.time[-1]
    slices = np.minimum((traffic.time - first) / max(last - first, 1e-9) * _SLICES, _SLICES - 1).astype(np.int64)
    seen = np.unique(place * _SLICES + slices)
    repeated = np.bincount(seen // _SLICES, minlength=len(pairs)) >= _REPEATED * _SLICES
    heavy = repeated & (volume >= _HEAVY * np.maximum(moved[low], moved[high]))
    return components(count, low[heavy], high[heavy])


def components(count: int, one: Ints, other: Ints) -> Ints:
    """Return [node] the smallest node that links lead to, over however many steps."""
    part = np.arange(count)
    while True:
        before = part.copy()
        least = np.minimum(part[one], part[other])
        np.minimum.at(part, one, least)
        np.minimum.at(part, other, least)
        part = part[part]
        if np.array_equal(part, before):
            return part
