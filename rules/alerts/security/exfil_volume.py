"""Volume from model storage to addresses that nobody approved: bulk exfiltration."""

from app.units import format_duration, format_size
from cluster.model import EXTERNAL, Cluster, Role
from dashboards.registry import panel_ref
from rules.common import conversations, texts
from rules.common.visibility import visible_pairs
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select

ID = "exfil_volume"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for the groups of role model_storage."""
    groups = cluster.groups_with(Role.MODEL_STORAGE)
    if not groups:
        raise NoRuleError(ID, "no group has the role model_storage")
    seen = visible_pairs(cluster, ID, groups, (EXTERNAL,))
    limits = cluster.thresholds
    source = conversations.source(cluster, seen)
    destination = conversations.destination(cluster, seen, texts.PLACE + texts.LISTED)
    summary = (
        f"{source} sent {texts.bytes_of('bytes')} to {destination} within {format_duration(limits.exfil_window)}: "
        f"more than {format_size(limits.exfil_volume)} to an address that nobody approved."
    )
    what_to_do = (
        "Find out who runs the transfer on the source. If nobody claims it, block the destination at the border and "
        "keep the machine running for the investigation."
    )
    leaving = Select(schema.EGRESS, schema.RAW).where(seen.condition())
    rule = Rule(
        id=ID,
        title="Model storage sends much to an unapproved address",
        family="security",
        severity=Severity.WARNING,
        measures=conversations.measures(cluster, leaving, limits.exfil_window, labels=conversations.LISTED),
        threshold=Threshold("exfil_volume", Comparison.ABOVE, limits.exfil_volume),
        annotations=conversations.annotations(source, destination, summary=summary, what_to_do=what_to_do),
        panel=panel_ref("egress", "unknown_volume"),
    )
    return RuleSet((rule,), seen.skipped)
