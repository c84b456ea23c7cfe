"""What flow records cannot see of this cluster, in words that panels repeat beside the numbers it concerns."""

from itertools import combinations_with_replacement

from cluster.model import Cluster, Role, Transport
from dashboards.palette import group_titles

_NAMES = {Transport.ROCE: "RoCE", Transport.INFINIBAND: "InfiniBand"}

_GENERAL = "NVLink, InfiniBand and most RDMA never appear in flow records."


def hidden_pairs(cluster: Cluster) -> list[tuple[str, str, str]]:
    """Return the group pairs declared to talk by RDMA: two titles and the transport's name."""
    titles = group_titles(cluster)
    ids = [group.id for group in cluster.groups]
    return [
        (titles[a], titles[b], _NAMES[cluster.transport_of(a, b)])
        for a, b in combinations_with_replacement(ids, 2)
        if cluster.transport_of(a, b) in _NAMES
    ]


def note(cluster: Cluster) -> str:
    """Return the sentence about what traffic panels miss, naming the pairs declared invisible."""
    hidden = hidden_pairs(cluster)
    if not hidden:
        return _GENERAL
    named = ", ".join(f"{a} and {b} ({name})" for a, b, name in hidden[:3])
    more = f" and {len(hidden) - 3} more pairs" if len(hidden) > 3 else ""
    return f"Not seen, because declared RDMA: {named}{more}."


def training_note(cluster: Cluster) -> str:
    """Return the sentence that every panel about training nodes carries."""
    groups = cluster.groups_with(Role.TRAINING)
    hidden = {_NAMES[kind] for group in groups if (kind := cluster.transport_of(group.id, group.id)) in _NAMES}
    if hidden:
        names = " and ".join(sorted(hidden))
        return f"Collectives here are declared {names}: flow records do not see them, and a silent node may be busy."
    return f"{_GENERAL[:-1]}: only collectives over TCP or UDP count."


def explanation(cluster: Cluster) -> str:
    """Return the note of the boards, in Markdown: what is seen, what is not, and which pairs are declared hidden."""
    where = "an interface with flow logs" if cluster.cloud.format else "a device of `exporters`"
    lines = [
        f"**Seen:** TCP and UDP over IP that crosses {where}.",
        "**Not seen:** NVLink, InfiniBand, most RoCE, and traffic inside one host.",
    ]
    lines.append(
        "In a synchronous collective all nodes send the same by construction: a low sender has dropped out, hangs or "
        "lost step. A slow step slows all of them alike."
    )
    hidden = hidden_pairs(cluster)
    if hidden:
        lines.append("⚠ **Declared invisible** (`transport` in cluster.yaml), so no rule judges these pairs:")
        lines.append("\n".join(f"- {a} ↔ {b}: {name}" for a, b, name in hidden))
    else:
        lines.append("No pair is declared RoCE or InfiniBand in cluster.yaml (`transport`).")
    return "\n\n".join(lines)
