"""An outside destination that cluster.yaml does not list, and that nodes call again and again."""

from cluster.model import EXTERNAL, Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, texts, verdicts
from rules.common.visibility import VisiblePairs, visible_pairs
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, any_of, compare, is_in
from store.schema import Field

ID = "recurring_dependency"

_FIELDS: dict[str, Field] = {
    "days": schema.ACTIVE_DAYS,
    "hours": schema.ACTIVE_HOURS,
    "bytes": schema.BYTES_30D,
    "callers": schema.EVENT_SOURCES,
}
_SINCE = 900


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for all groups inside the cluster."""
    groups = cluster.inside_groups()
    if not groups:
        raise NoRuleError(ID, "no group is inside the cluster")
    seen = visible_pairs(cluster, ID, groups, (EXTERNAL,))
    limits = cluster.thresholds
    callers = f"{texts.many('callers', 'node')} of {texts.group_title(cluster, schema.SRC_GROUP, seen.sources())}"
    destination = conversations.destination(cluster, seen, texts.APPLICATION + texts.PLACE)
    summary = (
        f"{callers} called {destination} on {texts.whole('days')} of the last 30 days, in {texts.whole('hours')} of "
        f"the last 168 hours: a dependency that cluster.yaml does not list (alerts from {limits.recurrence_days} days "
        f"or {limits.recurrence_hours} hours)."
    )
    what_to_do = (
        "Find out what calls it: a model hub, a licence server, telemetry, a forgotten script. If it belongs there, "
        "list its prefix in a group of role approved_external and give it an owner; else take it out."
    )
    rule = Rule(
        id=ID,
        title="Unlisted outside destination comes back",
        family="slow",
        severity=Severity.WARNING,
        measures=_measures(cluster, seen),
        # Either number suffices, so the query decides; whatever passes it has at least a day.
        threshold=Threshold("recurrence_days", Comparison.AT_LEAST, 1),
        annotations=conversations.annotations(
            callers,
            destination,
            summary=summary,
            size=f"{texts.bytes_of('bytes')} sent in 30d",
            duration=f"{texts.many('days', 'day')}, {texts.many('hours', 'hour')} of the last 168",
            what_to_do=what_to_do,
        ),
        panel=panel_ref("ledger", "recurrences"),
        group_by=("rule",),
        interval=SLOW_INTERVAL_SECONDS,
    )
    return RuleSet((rule,), seen.skipped)


def _measures(cluster: Cluster, seen: VisiblePairs) -> tuple[Measure, ...]:
    limits = cluster.thresholds
    stored = (
        Select(schema.RECURRENCE, schema.RECURRENCE.kept)
        .where(is_in(schema.SRC_GROUP, seen.sources()))
        .by(*schema.RECURRENCE.tags)
    )
    often = any_of(
        compare(schema.ACTIVE_DAYS, ">=", limits.recurrence_days),
        compare(schema.ACTIVE_HOURS, ">=", limits.recurrence_hours),
    )
    return verdicts.measures(stored, _FIELDS, _SINCE, "a destination", often)
