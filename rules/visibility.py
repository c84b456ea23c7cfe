"""Which group pairs a rule can look at: flow records do not see InfiniBand, NVLink and most RDMA."""

from collections.abc import Iterable
from dataclasses import dataclass

from cluster import schema
from cluster.model import EXTERNAL, Cluster, Group, Transport
from dashboards.queries import Condition, all_of, any_of, is_in
from rules.model import Skipped


@dataclass(frozen=True, slots=True)
class VisiblePairs:
    """Group pairs of a rule that travel over IP, source and destination ids, and what was left out."""

    pairs: tuple[tuple[str, str], ...]
    skipped: tuple[Skipped, ...]

    def condition(self) -> Condition:
        """Return the WHERE term on source and destination group that lets exactly these pairs pass."""
        by_destinations: dict[tuple[str, ...], list[str]] = {}
        for src in dict.fromkeys(src for src, _ in self.pairs):
            destinations = tuple(dst for source, dst in self.pairs if source == src)
            by_destinations.setdefault(destinations, []).append(src)
        terms = [
            all_of(is_in(schema.SRC_GROUP, sources), is_in(schema.DST_GROUP, destinations))
            for destinations, sources in by_destinations.items()
        ]
        return terms[0] if len(terms) == 1 else any_of(*terms)

    def sources(self) -> tuple[str, ...]:
        """Return the ids of the source groups that are left."""
        return tuple(dict.fromkeys(src for src, _ in self.pairs))

    def destinations(self) -> tuple[str, ...]:
        """Return the ids of the destination groups that are left."""
        return tuple(dict.fromkeys(dst for _, dst in self.pairs))


def outside_groups(cluster: Cluster) -> tuple[str, ...]:
    """Return ids of everything outside the cluster: unknown, then approved."""
    return (EXTERNAL, *(group.id for group in cluster.groups if group.is_outside))


def visible_pairs(
    cluster: Cluster, rule_id: str, sources: Iterable[Group], destinations: Iterable[str]
) -> VisiblePairs:
    """Return the pairs of a rule that flow records can see."""
    targets = tuple(destinations)
    pairs: list[tuple[str, str]] = []
    skipped: list[Skipped] = []
    for source in sources:
        for destination in targets:
            transport = cluster.transport_of(source.id, destination)
            if transport is Transport.TCP:
                pairs.append((source.id, destination))
            else:
                skipped.append(
                    Skipped(
                        rule_id,
                        f"{source.id} -> {destination}",
                        f"declared as {transport.value}, which flow records do not see",
                    )
                )
    return VisiblePairs(tuple(pairs), tuple(skipped))
