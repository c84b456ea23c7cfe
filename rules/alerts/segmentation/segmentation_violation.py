"""Conversations between groups that `allowed` does not list."""

from app.units import format_duration, format_size
from cluster.model import EXTERNAL, Cluster
from dashboards.registry import panel_ref
from rules.common import breaches, texts
from rules.common.visibility import visible_of
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import any_of, compare
from store.schema import Breach

ID = "segmentation_violation"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for all pairs of groups that may not talk and that flow records can see."""
    ids = [*(group.id for group in cluster.groups), EXTERNAL]
    forbidden = [(src, dst) for src in ids for dst in ids if not cluster.is_allowed(src, dst)]
    if not forbidden:
        raise NoRuleError(ID, "`allowed` lets every group talk to every group")
    seen = visible_of(cluster, ID, forbidden)
    limits = cluster.thresholds
    source, destination = breaches.source(cluster), breaches.destination(cluster)
    summary = (
        f"{source} talked to {destination} over {breaches.PROTOCOL}, which `allowed` does not list: "
        f"{texts.bytes_of('bytes')} in {texts.many('flows', 'flow record')} within "
        f"{format_duration(limits.violation_window)} (alerts above {format_size(limits.violation_bytes)}, or from "
        f"{limits.violation_flows} records)."
    )
    what_to_do = (
        "Ask the owner of the source what it wants there. If it belongs there, list the pair under `allowed`; if many "
        "destinations were tried, treat the source as compromised and take it off the network."
    )
    # A copy has many bytes in few records, a scan few bytes in many: either is enough, and stray packets have neither.
    enough = any_of(
        compare(schema.BYTES, ">", limits.violation_bytes), compare(schema.FLOWS, ">=", limits.violation_flows)
    )
    rule = Rule(
        id=ID,
        title="Groups talk that may not",
        family="segmentation",
        severity=Severity.WARNING,
        measures=breaches.measures(cluster, Breach.SEGMENTATION, enough),
        # The query decides; whatever passes it has a byte.
        threshold=Threshold("violation_bytes", Comparison.ABOVE, 0),
        annotations=breaches.annotations(source, destination, summary=summary, what_to_do=what_to_do),
        panel=panel_ref("segmentation", "breaches"),
    )
    return RuleSet((rule,), seen.skipped)
