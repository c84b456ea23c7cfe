"""An address in a group's prefix that no inventory knows, and that sends."""

from app.units import format_duration, format_size
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import breaches, texts
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Skipped, Threshold
from store import schema
from store.influxql import any_of, compare
from store.schema import Breach

ID = "shadow_node"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for the groups whose nodes the inventory lists."""
    listed = {node.group for node in cluster.nodes}
    skipped = tuple(
        Skipped(ID, group.id, "the inventory lists none of its nodes")
        for group in cluster.inside_groups()
        if group.id not in listed
    )
    if not listed:
        raise NoRuleError(ID, "the inventory lists no node")
    limits = cluster.thresholds
    source = breaches.source(cluster)
    summary = (
        f"{source}: no inventory knows it, and it sent {texts.bytes_of('sent')} within "
        f"{format_duration(limits.violation_window)} (alerts above {format_size(limits.shadow_node_bytes)}, or from "
        f"{limits.violation_flows} flow records)."
    )
    what_to_do = (
        "Find the machine: ARP and MAC tables of the switches, DHCP leases. If it is a new node, add it to the "
        "inventory; if nobody knows it, take its port down and keep the machine for the investigation."
    )
    enough = any_of(
        compare(schema.TX_BYTES, ">", limits.shadow_node_bytes), compare(schema.FLOWS, ">=", limits.violation_flows)
    )
    rule = Rule(
        id=ID,
        title="Machine that no inventory knows",
        family="segmentation",
        severity=Severity.WARNING,
        measures=breaches.measures(cluster, Breach.SHADOW, enough, first="sent", labels=breaches.MACHINE),
        # The query decides; whatever passes it has sent something.
        threshold=Threshold("shadow_node_bytes", Comparison.ABOVE, 0),
        annotations=texts.annotations(
            summary=summary,
            source=source,
            destination="all its peers: none are kept for addresses that no inventory knows",
            protocol="all",
            size=breaches.SIZE,
            duration=texts.duration_of("duration"),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("segmentation", "shadows"),
        group_by=("rule", schema.SRC_GROUP),
    )
    return RuleSet((rule,), skipped)
