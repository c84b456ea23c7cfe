"""What flow records see of each group pair, against the transport that cluster.yaml declares.

The state of a pair follows from an hour's bytes:

- declared tcp: nothing seen; not as declared, where most of it is RoCEv2 (UDP/4791); else as declared.
- declared roce: as declared where RoCEv2 was seen; not as declared where other traffic of 1 GB or more was seen and no
  RoCEv2, as when a collective library falls back to sockets; else invisible.
- declared roce-sampled: not as declared in the same case; nothing seen where there was nothing; else as declared.
- declared infiniband: not as declared where 1 GB or more was seen over IP; else invisible.

What is seen can still be a part of what there is. A pair is partly seen where all its bytes come from exporters whose
flows do not count, or where the flow records of the plane that it uses add up to less than half of what the
interfaces' own counters say (sFlow): records are lost, sampled at another rate than believed, or not exported for some
traffic. Counters know neither groups nor protocols, so this is said of a plane's pairs all together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

import numpy as np
import polars as pl

from analysis.bins import Bins, Source
from analysis.detectors.study import Points, Span
from cluster.model import ANY, LOCAL, Cluster, Job, Transport
from store import schema
from store.influx import Store
from store.points import columns
from store.schema import CoverageState, Link

LEAST_BYTES = 1_000_000_000
"""Bytes an hour below which traffic of an invisible transport is its set-up, and below which counters say nothing."""

LEAST_SHARE = 0.5
"""Share of the counters' bytes that flow records must reach: the headers that only counters count (small packets), the
error of sampling and the edges of the hour stay well above it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What an hour held of a pair: bytes counted once, of these RoCEv2, and bytes that only uncounted exporters saw.

    Attributes:
        share: flow bytes over counter bytes on its main plane; None without counters.
    """

    bytes: int
    roce: int
    uncounted: int
    share: float | None = None


def state_of(declared: Transport, seen: Seen) -> int:
    """Return one of the values of CoverageState."""
    others = seen.bytes - seen.roce
    match declared:
        case Transport.TCP:
            state = CoverageState.UNDECLARED if seen.roce > others else CoverageState.SEEN
        case Transport.ROCE if seen.roce:
            state = CoverageState.SEEN
        case Transport.ROCE_SAMPLED:
            fell_back = not seen.roce and others >= LEAST_BYTES
            state = CoverageState.UNDECLARED if fell_back else CoverageState.SEEN
        case Transport.ROCE:
            return CoverageState.UNDECLARED if others >= LEAST_BYTES else CoverageState.INVISIBLE
        case Transport.INFINIBAND:
            return CoverageState.UNDECLARED if seen.bytes >= LEAST_BYTES else CoverageState.INVISIBLE
    if not seen.bytes:
        return CoverageState.PARTIAL if seen.uncounted else CoverageState.IDLE
    if state == CoverageState.SEEN and seen.share is not None and seen.share < LEAST_SHARE:
        return CoverageState.PARTIAL
    return state


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
        # The next pass may ask for the last one again.
        self._at = lru_cache(maxsize=1)(self._rows)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the moments of the span that are final."""
        del jobs
        first = -(-span.start // EVERY) * EVERY
        last = span.final // EVERY * EVERY
        if first <= last:
            for bins in (self._traffic, self._interfaces):
                bins.ensure(first - EVERY - HOUR, last - EVERY)
        return [(schema.COVERAGE, self._at(moment)) for moment in range(first, span.final + 1, EVERY)]

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
