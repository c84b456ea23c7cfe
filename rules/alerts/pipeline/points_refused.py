"""InfluxDB refuses points for good: what was in them is on no board, and raises no alert."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import texts
from rules.common.freshness import reading_seconds
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, aggregate, is_in, total

ID = "points_refused"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it, for each bridge and the analysis."""
    # It grows between two readings.
    since = max(cluster.thresholds.flow_loss_window, 2 * reading_seconds(cluster))
    within = format_duration(since)
    each = Select(schema.PIPELINE, schema.RAW).where(is_in(schema.REASON, [schema.POINTS_REFUSED]))
    by = schema.STAGE, schema.SHARD
    # A bridge counts them over restarts; the analysis says how many there were since its last round.
    columns = aggregate("spread", schema.TOTAL, "points"), total(schema.VALUE, "points")
    points = Select(tuple(each.take(one).by(*by) for one in columns)).take(total(columns[0])).by(*by)
    writer = f"stage {{{{ $labels.{schema.STAGE} }}}}, shard {{{{ $labels.{schema.SHARD} }}}}"
    rule = Rule(
        id=ID,
        title="InfluxDB refuses points",
        family="pipeline",
        severity=Severity.WARNING,
        measures=(Measure("points", points.per_series("Points that InfluxDB refused for good."), since),),
        threshold=Threshold("points_refused", Comparison.ABOVE, cluster.thresholds.points_refused),
        annotations=texts.annotations(
            summary=f"InfluxDB refused {texts.many('points', 'point')} within {within} ({writer}): what was in them "
            "is on no board, and no rule sees it.",
            source=writer,
            destination="InfluxDB",
            protocol="line protocol",
            size=f"unknown: {texts.many('points', 'point')}",
            duration=f"within {within}",
            what_to_do="`event=points_refused` in the log of `clusterflow ingest` (write) or `clusterflow analyze` "
            "(analysis) has InfluxDB's words: a limit of series is raised in influxdb.conf, a field of another type "
            "was written by another program. Restarted within its grace, the bridge writes the newest windows again.",
        ),
        panel=panel_ref("pipeline", "store_writes"),
        group_by=("rule",),
    )
    return RuleSet((rule,), ())
