"""Which exporter counts what several see, as the bridge found it; and the lines of `authority` that say the same."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from cluster.model import Cluster
from store import schema
from store.influx import Store
from store.influxql import Select, total
from store.schema import Because

_OWN_SHARE = 0.001
"""Of a group pair's bytes; what an exporter alone sees below that is cut off by clocks and caches."""

WORDS = {
    Because.ITSELF: "no better exporter sees it",
    Because.DESCRIBED: "its interfaces stand in cluster.yaml",
    Because.UNSAMPLED: "it does not sample",
    Because.FINER: "it samples less",
    Because.FIRST: "as good, and first in cluster.yaml",
    Because.SAME: "both sample the same traffic",
    Because.EARLIER: "its records came first",
    Because.MORE: "the better exporter has not half of it",
}


@dataclass(frozen=True, slots=True)
class Counting:
    """What an exporter saw of a group pair, and which exporter's records of it count."""

    src_group: str
    dst_group: str
    exporter: str
    counted_by: str
    reason: str
    bytes: int

    @property
    def is_own(self) -> bool:
        """Whether it counts itself."""
        return self.exporter == self.counted_by

    def json(self) -> dict[str, object]:
        """Return it for machines."""
        return {
            "from": self.src_group,
            "to": self.dst_group,
            schema.EXPORTER: self.exporter,
            schema.COUNTED_BY: self.counted_by,
            schema.REASON: self.reason,
            schema.COUNTING_BYTES.name: self.bytes,
        }


def stored_counting(store: Store, since: int, until: int, retention: str = schema.RAW) -> tuple[Counting, ...]:
    """Return what the bridge found between two epoch seconds, the largest first."""
    tags = (schema.SRC_GROUP, schema.DST_GROUP, schema.EXPORTER, schema.COUNTED_BY, schema.REASON)
    asked = Select(schema.COUNTING, retention).take(total(schema.COUNTING_BYTES)).by(*tags).between(since, until)
    found = (
        Counting(src_group, dst_group, exporter, counted_by, reason, int(volume))
        for _, src_group, dst_group, exporter, counted_by, reason, volume in store.rows(asked)
        if volume
    )
    return tuple(sorted(found, key=lambda one: (-one.bytes, one.src_group, one.dst_group, one.exporter)))


def suggestion(cluster: Cluster, found: Iterable[Counting]) -> list[str]:
    """Return lines for cluster.yaml, with comments: `authority` where a few exporters count all that others see.

    A pair is left out where an exporter that repeats others also sees what no other does: `authority` would drop it. Of
    what it has beside a better one (`saw_more`) the least is enough.
    """
    own: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    beside: dict[tuple[str, str], set[str]] = defaultdict(set)
    repeated: dict[tuple[str, str], dict[str, list[Counting]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        pair = one.src_group, one.dst_group
        if one.is_own:
            beside[pair] |= {one.exporter} if one.reason == Because.MORE else set()
            own[pair][one.exporter] += one.bytes
        else:
            repeated[pair][one.exporter].append(one)
    lines, kept = [], []
    for (src, dst), others in sorted(repeated.items()):
        volume = sum(own[src, dst].values())
        counting = {name for name, size in own[src, dst].items() if size > _OWN_SHARE * volume} | beside[src, dst]
        for name in sorted(others):
            lines += [f"  # {_said(one)}" for one in others[name] if name not in counting]
        mixed = sorted(counting & set(others))
        if mixed or not counting:
            kept.append(f"# {src} to {dst}: {', '.join(mixed) or 'each'} also sees what no other does: leave it so")
            lines = [line for line in lines if not line.startswith(f"  # {src} to {dst}:")]
            continue
        # In the order of cluster.yaml, as a person would write them.
        order = [exporter.name for exporter in cluster.exporters]
        names = sorted(counting, key=lambda name: (order.index(name) if name in order else len(order), name))
        lines.append(f"  - {{from: {src}, to: {dst}, exporters: [{', '.join(names)}]}}")
    return [*kept, *(["authority:", *lines] if lines else [])]


def _said(one: Counting) -> str:
    reason = WORDS[Because(one.reason)]
    return f"{one.src_group} to {one.dst_group}: {one.counted_by} counts what {one.exporter} sees too: {reason}"
