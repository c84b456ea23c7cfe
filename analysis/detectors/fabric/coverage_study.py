"""Coverage as the analyser runs it: from the store's `traffic` and `interface` rows to `coverage` rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import polars as pl

from analysis.bins import Bins, Source
from analysis.detectors.fabric.coverage import LEAST_BYTES, Seen, state_of
from analysis.detectors.study import Points, Span
from cluster.model import ANY, LOCAL, Cluster, Job, Transport
from store import schema
from store.influx import Store
from store.points import columns
from store.schema import Link

EVERY = 300
"""Seconds between two verdicts."""
HOUR = 3_600
"""Seconds that each looks back, to EVERY before it: by then no late record changes the hour, and rollups are made."""

_ROCE_PORT, _UDP = 4791, 17
_TRANSPORTS = (Transport.TCP, Transport.ROCE, Transport.INFINIBAND, Transport.ROCE_SAMPLED)
"""In the order of ``schema.DECLARED_WORDS``."""


@dataclass(slots=True)
class _Pair:
    """An hour of a group pair: bytes counted once, of these RoCEv2, of all exporters together, and by plane."""

    counted: int = 0
    roce: int = 0
    all_seen: int = 0
    planes: dict[str, int] = field(default_factory=dict)

    def main_plane(self) -> str:
        """Return the plane with most of its bytes; empty if it has none."""
        return max(self.planes, key=lambda plane: (self.planes[plane], plane), default="")


class CoverageStudy:
    """Says of each group pair in use, allowed or declared what was seen of it in the last hour.

    Args:
        cluster: its groups and what it declares.
        store: read from.
    """

    measurements = (schema.COVERAGE,)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._roce = {
            service.name for service in cluster.services if _ROCE_PORT in service.ports and _UDP in service.protocols
        }
        self._listed = _listed_pairs(cluster)
        pairs = Source(
            schema.TRAFFIC, schema.MINUTE, (schema.SRC_GROUP, schema.DST_GROUP, schema.PLANE, schema.SERVICE)
        )
        self._traffic = Bins(store, pairs, (schema.BYTES, schema.SEEN_BYTES), EVERY)
        edges = Source(
            schema.INTERFACE_TRAFFIC,
            schema.MINUTE,
            (schema.EXPORTER, schema.INTERFACE, schema.PLANE),
            (schema.KIND, (Link.EDGE.value,)),
        )
        counted = (schema.IN_BYTES, schema.OUT_BYTES, schema.COUNTER_IN_BYTES, schema.COUNTER_OUT_BYTES)
        self._interfaces = Bins(store, edges, counted, EVERY)
        self._last: tuple[int, pl.DataFrame] | None = None

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the moments of the span that are final."""
        del jobs
        first = -(-span.start // EVERY) * EVERY
        last = span.final // EVERY * EVERY
        if first <= last:
            for bins in (self._traffic, self._interfaces):
                bins.ensure(first - EVERY - HOUR, last - EVERY)
        return [(schema.COVERAGE, self._at(moment)) for moment in range(first, span.final + 1, EVERY)]

    def _at(self, moment: int) -> pl.DataFrame:
        """Return the rows of a moment; the next pass may ask for the last one again."""
        if self._last is None or self._last[0] != moment:
            self._last = moment, self._rows(moment)
        return self._last[1]

    def _rows(self, moment: int) -> pl.DataFrame:
        end = moment - EVERY
        shares, seen = self._counter_shares(end), self._seen(end)
        rows = []
        for src, dst in sorted(self._listed | set(seen)):
            pair = seen.get((src, dst), _Pair())
            declared = self._cluster.transport_of(src, dst)
            uncounted = 0 if pair.counted else pair.all_seen
            share = shares.get(pair.main_plane())
            state = state_of(declared, Seen(pair.counted, pair.roce, uncounted, share))
            transport = _TRANSPORTS.index(declared)
            rows.append((moment, src, dst, pair.counted, pair.roce, uncounted, transport, share, state))
        kinds = columns(
            schema.SRC_GROUP, schema.DST_GROUP, schema.COVERED_BYTES, schema.ROCE_BYTES, schema.UNCOUNTED_BYTES,
            schema.DECLARED, schema.COUNTER_SHARE, schema.COVERAGE_STATE,
        )  # fmt: skip
        return pl.DataFrame(rows, schema=kinds, orient="row")

    def _seen(self, moment: int) -> dict[tuple[str, str], _Pair]:
        """Return what the hour held of each pair that had traffic."""
        totals = self._traffic.between(moment - HOUR, moment).sum(axis=0)
        self._traffic.forget(moment - HOUR)
        pairs: dict[tuple[str, str], _Pair] = {}
        for (src, dst, plane, service), (counted, all_seen) in zip(
            self._traffic.keys, totals.astype(np.int64).tolist(), strict=True
        ):
            # What stays on its segment is nobody's to cover.
            if (all_seen or counted) and LOCAL not in (src, dst):
                pair = pairs.setdefault((src, dst), _Pair())
                pair.counted += counted
                pair.all_seen += all_seen
                pair.roce += counted if service in self._roce else 0
                pair.planes[plane] = pair.planes.get(plane, 0) + counted
        return pairs

    def _counter_shares(self, moment: int) -> dict[str, float]:
        """Return plane -> flow bytes over counter bytes, of the edge interfaces whose counters are known."""
        totals = self._interfaces.between(moment - HOUR, moment).sum(axis=0)
        self._interfaces.forget(moment - HOUR)
        flows: dict[str, float] = {}
        counters: dict[str, float] = {}
        for (_, _, plane), (sent, received, out, into) in zip(self._interfaces.keys, totals.tolist(), strict=True):
            if out + into:
                flows[plane] = flows.get(plane, 0.0) + sent + received
                counters[plane] = counters.get(plane, 0.0) + out + into
        return {plane: flows[plane] / total for plane, total in counters.items() if total >= LEAST_BYTES}


def _listed_pairs(cluster: Cluster) -> set[tuple[str, str]]:
    """Return the pairs that `allowed` names without a wildcard, and those inside that are declared RDMA."""
    inside = [group.id for group in cluster.inside_groups()]
    rdma = {pair for pair in product(inside, inside) if not cluster.transport_of(*pair).is_visible}
    return rdma | {(pair.src, pair.dst) for pair in cluster.allowed if not {ANY, LOCAL} & {pair.src, pair.dst}}
