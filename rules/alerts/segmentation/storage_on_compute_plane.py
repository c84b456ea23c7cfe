"""Storage traffic that crosses the compute plane, where collectives are to have the links for themselves."""

from app.units import format_duration, format_size
from cluster.model import Cluster, Group, Plane, Role
from dashboards.registry import panel_ref
from rules.common import breaches, texts
from rules.common.visibility import visible_pairs
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Skipped, Threshold
from store import schema
from store.influxql import compare
from store.schema import Breach

ID = "storage_on_compute_plane"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, where cluster.yaml says which interfaces or addresses are on the compute plane."""
    storage = cluster.groups_with(Role.STORAGE, Role.MODEL_STORAGE)
    if not storage:
        raise NoRuleError(ID, "no group has the role storage or model_storage")
    if not _knows_compute(cluster):
        raise NoRuleError(ID, "no interface and no node address is said to be on the compute plane")
    unjudged = tuple(Skipped(ID, group.id, reason) for group in storage if (reason := _unjudged(cluster, group)))
    judged = [group for group in storage if not _unjudged(cluster, group)]
    others = [group for group in cluster.inside_groups() if group.role is not Role.MANAGEMENT]
    seen = visible_pairs(cluster, ID, others, [group.id for group in judged], *unjudged)
    limits = cluster.thresholds
    source, destination = breaches.source(cluster), breaches.destination(cluster)
    summary = (
        f"{source} exchanged {texts.bytes_of('bytes')} with {destination} over the compute plane within "
        f"{format_duration(limits.violation_window)} (alerts above {format_size(limits.storage_on_compute_bytes)}): "
        f"collectives share their links with it."
    )
    what_to_do = (
        "Look at the routes and mounts of the source: traffic for storage should leave by its storage address. All "
        "nodes at once: look at what was rolled out, or at a storage link that is down."
    )
    rule = Rule(
        id=ID,
        title="Storage traffic on the compute plane",
        family="segmentation",
        severity=Severity.WARNING,
        measures=breaches.measures(
            cluster, Breach.WRONG_PLANE, compare(schema.BYTES, ">", limits.storage_on_compute_bytes)
        ),
        threshold=Threshold("storage_on_compute_bytes", Comparison.ABOVE, limits.storage_on_compute_bytes),
        annotations=breaches.annotations(source, destination, summary=summary, what_to_do=what_to_do),
        panel=panel_ref("segmentation", "planes"),
        group_by=("rule", schema.SRC_GROUP, schema.DST_GROUP),
    )
    return RuleSet((rule,), seen.skipped)


def _knows_compute(cluster: Cluster) -> bool:
    interfaces = [interface.plane for exporter in cluster.exporters for interface in exporter.interfaces]
    addresses = [address.plane for node in cluster.nodes for address in node.addresses]
    return Plane.COMPUTE in (*interfaces, *addresses)


def _unjudged(cluster: Cluster, group: Group) -> str:
    """Return why nothing is on the wrong plane for a storage group; empty where it is judged."""
    planes = {
        address.plane or group.plane for node in cluster.nodes if node.group == group.id for address in node.addresses
    } or {group.plane}
    if planes <= {Plane.COMPUTE}:
        return "it belongs to the compute plane"
    return "nothing says to which plane it belongs" if planes <= {None, Plane.COMPUTE} else ""
