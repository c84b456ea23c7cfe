"""Many nodes write to one storage endpoint at once, or to a few, while its peers idle: queues overflow, all wait."""

from app.units import format_duration, format_size
from cluster.model import Cluster, Role
from dashboards.registry import panel_ref
from rules.common import texts, verdicts
from rules.common.freshness import fresh_seconds
from rules.common.visibility import VisiblePairs, visible_pairs
from rules.rule import Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Skipped, Threshold
from store import schema
from store.influxql import Select, compare

ID = "incast"

_LABELS = (schema.DST, schema.DST_GROUP, schema.SRC_GROUP)


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, where storage has endpoints that can be compared."""
    storage = cluster.groups_with(Role.STORAGE, Role.MODEL_STORAGE)
    if not storage:
        raise NoRuleError(ID, "no group has the role storage or model_storage")
    listed = [node.group for node in cluster.nodes]
    judged = [group.id for group in storage if listed.count(group.id) > 1]
    alone = tuple(
        Skipped(
            ID, group.id, "fewer than two of its endpoints are in the inventory: there are no peers that could idle"
        )
        for group in storage
        if group.id not in judged
    )
    writers = [group for group in cluster.inside_groups() if group not in storage]
    seen = visible_pairs(cluster, ID, writers, judged, *alone)
    limits = cluster.thresholds
    endpoint = f"{{{{ $labels.{schema.DST} }}}} ({texts.group_title(cluster, schema.DST_GROUP, seen.destinations())})"
    writer = texts.group_title(cluster, schema.SRC_GROUP, seen.sources())
    summary = (
        f"{texts.whole('sources')} nodes of {writer} write to {endpoint} at once: {texts.bytes_of('bytes')} in "
        f"{texts.duration_of('seconds')} (alerts above {format_size(limits.incast_bytes)} and from "
        f"{format_duration(limits.incast_for)} on). It gets {texts.share_of('share')} of what they write there; "
        f"{texts.share_of('usual')} is usual."
    )
    what_to_do = (
        "Find out why all write there: a mount or a striping that names one endpoint, peers that are down or out of "
        "the pool, a job that collects on one file. Look at drops and pauses on the endpoint's port meanwhile."
    )
    rule = Rule(
        id=ID,
        title="Incast into storage",
        family="training",
        severity=Severity.WARNING,
        measures=_measures(cluster, seen),
        threshold=Threshold("incast_bytes", Comparison.ABOVE, limits.incast_bytes),
        annotations=texts.annotations(
            summary=summary,
            source=f"{texts.whole('sources')} nodes of {writer}",
            destination=endpoint,
            protocol="all",
            size=texts.bytes_of("bytes"),
            duration=texts.duration_of("seconds"),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("training", "incast"),
        group_by=("rule", schema.DST_GROUP),
        is_operational=True,
    )
    return RuleSet((rule,), seen.skipped)


def _measures(cluster: Cluster, seen: VisiblePairs) -> tuple[Measure, ...]:
    fields = {
        "bytes": schema.EVENT_BYTES,
        "sources": schema.EVENT_SOURCES,
        "seconds": schema.EVENT_SECONDS,
        "share": schema.TOP_SHARE,
        "usual": schema.TYPICAL_SHARE,
    }
    lasts = compare(schema.EVENT_SECONDS, ">=", cluster.thresholds.incast_for)
    stored = Select(schema.BURST, schema.RAW).where(lasts, seen.condition()).by(*_LABELS)
    return verdicts.measures(stored, fields, fresh_seconds(cluster), "bursts that last")
