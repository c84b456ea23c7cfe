"""A connection to or from a management group that `management` of cluster.yaml does not expect."""

from app.units import format_duration, format_size
from cluster.model import EXTERNAL, Cluster, Role
from dashboards.registry import panel_ref
from rules.common import breaches, texts
from rules.common.visibility import visible_of
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import compare
from store.schema import Breach

ID = "unexpected_management_connection"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for all pairs of a management group and another that flow records can see."""
    managing = [group.id for group in cluster.groups_with(Role.MANAGEMENT)]
    if not managing:
        raise NoRuleError(ID, "no group has the role management")
    others = [*(group.id for group in cluster.groups if group.id not in managing), EXTERNAL]
    seen = visible_of(cluster, ID, [(other, one) for one in managing for other in others])
    limits = cluster.thresholds
    source, destination = breaches.source(cluster), breaches.destination(cluster)
    summary = (
        f"{source} opened {breaches.PROTOCOL} to {destination}: {texts.bytes_of('bytes')} within "
        f"{format_duration(limits.violation_window)} that `management` does not expect (alerts above "
        f"{format_size(limits.management_bytes)})."
    )
    # Sign-ins come minutes after the flows, so the alert cannot wait for them.
    who = " (the board *Management plane* names the user, once sign-ins are read)" if cluster.identity.sources else ""
    what_to_do = (
        f"Ask who works on the source right now{who}. If nobody does, cut it off: whoever holds management holds the "
        "cluster. Then look at log-ins of the destination since then. A service that belongs there is listed under "
        "`management.services`, an administrators' network under `management.sources`."
    )
    rule = Rule(
        id=ID,
        title="Unexpected connection at the management plane",
        family="segmentation",
        severity=Severity.CRITICAL,
        measures=breaches.measures(cluster, Breach.MANAGEMENT, compare(schema.BYTES, ">", limits.management_bytes)),
        threshold=Threshold("management_bytes", Comparison.ABOVE, limits.management_bytes),
        annotations=breaches.annotations(source, destination, summary=summary, what_to_do=what_to_do),
        panel=panel_ref("management", "unexpected"),
    )
    return RuleSet((rule,), seen.skipped)
