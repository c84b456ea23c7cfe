"""Which group pairs a rule can look at: flow records do not see InfiniBand, NVLink and most RDMA."""

from collections.abc import Iterable
from dataclasses import dataclass

from cluster.model import Cluster, Group
from dashboards.questions import is_any_pair
from rules.rule import NoRuleError, Skipped
from store.influxql import Condition


@dataclass(frozen=True, slots=True)
class VisiblePairs:
    """Group pairs of a rule that travel over IP, source and destination ids, and what was left out."""

    pairs: tuple[tuple[str, str], ...]
    skipped: tuple[Skipped, ...]

    def condition(self) -> Condition:
        """Return the WHERE term on source and destination group that lets exactly these pairs pass."""
        return is_any_pair(self.pairs)

    def sources(self) -> tuple[str, ...]:
        """Return the ids of the source groups that are left."""
        return tuple(dict.fromkeys(src for src, _ in self.pairs))

    def destinations(self) -> tuple[str, ...]:
        """Return the ids of the destination groups that are left."""
        return tuple(dict.fromkeys(dst for _, dst in self.pairs))


def visible_pairs(
    cluster: Cluster, rule_id: str, sources: Iterable[Group], destinations: Iterable[str], *skipped: Skipped
) -> VisiblePairs:
    """Return the pairs of a rule that flow records can see; NoRuleError if there are none."""
    targets = tuple(destinations)
    return visible_of(
        cluster, rule_id, ((source.id, destination) for source in sources for destination in targets), *skipped
    )


def visible_of(cluster: Cluster, rule_id: str, pairs: Iterable[tuple[str, str]], *skipped: Skipped) -> VisiblePairs:
    """Return those of the pairs that flow records can see; NoRuleError if there are none.

    What is skipped for other reasons stands first among what is skipped.
    """
    seen: list[tuple[str, str]] = []
    unseen: list[Skipped] = []
    for source, destination in pairs:
        transport = cluster.transport_of(source, destination)
        if transport.is_visible:
            seen.append((source, destination))
        else:
            reason = f"declared as {transport.value}, which flow records do not see"
            unseen.append(Skipped(rule_id, f"{source} -> {destination}", reason))
    if not seen:
        raise NoRuleError(rule_id, *skipped, *unseen)
    return VisiblePairs(tuple(seen), (*skipped, *unseen))
