"""Large transfers from sensitive groups to the outside during the site's off-hours, or the group's."""

from app.units import format_duration, format_size
from cluster.calendar import off_hours_words
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, texts
from rules.common.visibility import visible_pairs
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, is_in

ID = "off_hours_transfer"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for the groups that cluster.yaml calls sensitive."""
    groups = tuple(group for group in cluster.inside_groups() if group.sensitive)
    if not groups:
        raise NoRuleError(ID, "no group is sensitive")
    seen = visible_pairs(cluster, ID, groups, cluster.outside_ids())
    limits = cluster.thresholds
    source = conversations.source(cluster, seen)
    destination = conversations.destination(cluster, seen)
    summary = (
        f"{source} sent {texts.bytes_of('bytes')} to {destination} in off-hours ({off_hours_words(cluster)}): "
        f"more than {format_size(limits.off_hours_bytes)} within {format_duration(limits.off_hours_window)}."
    )
    what_to_do = (
        "Look for a scheduled job on the source that explains it. If there is none, treat it as the start of an "
        "exfiltration and call the owner of the data."
    )
    # Off-hours is in the data, decided for each window in the site's time zone; Grafana's mute timings know no windows.
    at_night = Select(schema.EGRESS, schema.RAW).where(seen.condition(), is_in(schema.OFF_HOURS, [schema.YES]))
    rule = Rule(
        id=ID,
        title="Transfer from a sensitive group in off-hours",
        family="security",
        severity=Severity.WARNING,
        measures=conversations.measures(cluster, at_night, limits.off_hours_window),
        threshold=Threshold("off_hours_bytes", Comparison.ABOVE, limits.off_hours_bytes),
        annotations=conversations.annotations(source, destination, summary=summary, what_to_do=what_to_do),
        panel=panel_ref("egress", "off_hours_over_time"),
    )
    return RuleSet((rule,), seen.skipped)
