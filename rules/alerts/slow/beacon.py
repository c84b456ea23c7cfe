"""A conversation with an unapproved address begins again and again as by a clock."""

from analysis.detectors.egress.exfiltration_study import watched
from cluster.model import EXTERNAL, Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, texts, verdicts
from rules.common.visibility import VisiblePairs, visible_pairs
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, compare, is_in
from store.schema import Field

ID = "beacon"

_FIELDS: dict[str, Field] = {
    "score": schema.BEACON_SCORE,
    "period": schema.CALL_PERIOD,
    "jitter": schema.CALL_JITTER,
    "calls": schema.CALLS,
    "bytes": schema.EVENT_BYTES,
    "duration": schema.EVENT_SECONDS,
}
_SINCE = 7_500
"""Two rows, of an hour each: one may be late."""


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for all groups that hold weights or can read them."""
    groups = watched(cluster)
    if not groups:
        raise NoRuleError(ID, "no group holds models or can read them, as far as flows show")
    seen = visible_pairs(cluster, ID, groups, (EXTERNAL,))
    limits = cluster.thresholds
    source, destination = conversations.source(cluster, seen), conversations.destination(cluster, seen)
    summary = (
        f"{source} called {destination} {texts.whole('calls')} times within 24 hours, every "
        f"{texts.duration_of('period')}, give or take {texts.share_of('jitter')}: as by a clock (score "
        f"{texts.number('score', _TWO)}, alerts from {limits.beacon_score:g}), and at most {limits.beacon_sources} "
        "sources call it."
    )
    rule = Rule(
        id=ID,
        title="Beacon: somebody calls out as by a clock",
        family="slow",
        severity=Severity.WARNING,
        measures=_measures(cluster, seen),
        threshold=Threshold("beacon_score", Comparison.AT_LEAST, limits.beacon_score),
        annotations=conversations.annotations(
            source,
            destination,
            summary=summary,
            size=f"{texts.bytes_of('bytes')} sent in 24h",
            what_to_do=(
                "Find the process on the source that calls (ss -tnp, cron, agents) and who put it there. A service "
                "that belongs there: list its address in a group of role approved_external. Nobody claims it: keep "
                "the machine as it is, block the address, call security."
            ),
        ),
        panel=panel_ref("egress", "beacons"),
        group_by=("rule", schema.SRC_GROUP),
        interval=SLOW_INTERVAL_SECONDS,
    )
    return RuleSet((rule,), seen.skipped)


_TWO = '{{ printf "%.2f" .Value }}'


def _measures(cluster: Cluster, seen: VisiblePairs) -> tuple[Measure, ...]:
    stored = (
        Select(schema.BEACON, schema.BEACON.kept)
        .where(is_in(schema.SRC_GROUP, seen.sources()), compare(schema.BEACON_SCORE, ">", 0))
        .by(*schema.BEACON.tags)
    )
    rare = compare(schema.EVENT_SOURCES, "<=", cluster.thresholds.beacon_sources)
    return verdicts.measures(stored, _FIELDS, _SINCE, "a conversation", rare)
