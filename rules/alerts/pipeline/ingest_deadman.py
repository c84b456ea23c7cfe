"""Nothing is being stored any more: the one rule that must fire when everything else has gone quiet."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import texts
from rules.common.freshness import reading_seconds
from rules.rule import Comparison, ErrorPolicy, Measure, NoDataPolicy, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, count, is_in

ID = "ingest_deadman"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it."""
    silent = max(cluster.thresholds.ingest_silent, reading_seconds(cluster))
    # Traffic or not, a bridge that follows a spool has a heartbeat. Analysis alone is no sign of its life, nor is a
    # backfill, which writes other readings of itself at the present time, too.
    beats = (
        Select(schema.PIPELINE, schema.RAW)
        .take(count(schema.VALUE))
        .where(is_in(schema.STAGE, [schema.Stage.BRIDGE]), is_in(schema.REASON, [schema.HEARTBEAT]))
        # Of all bridges together: by shard, one that dies would have no series any more, and Grafana takes a series
        # that is gone for one that has got well.
        .per_series("Heartbeats of the bridge.")
    )
    words = format_duration(silent)
    what_to_do = (
        "Run `clusterflow status`, then look at the bridge and at InfluxDB (disk full, process gone). Flow records "
        "wait in the spool meanwhile; nothing is lost as long as it has room."
    )
    rule = Rule(
        id=ID,
        title="Flow data has stopped",
        family="pipeline",
        severity=Severity.CRITICAL,
        measures=(Measure("beats", beats, since=silent),),
        threshold=Threshold("ingest_silent", Comparison.BELOW, 1),
        # No values here: where this fires there are none.
        annotations=texts.annotations(
            summary=f"The bridge has stored nothing for {words}: every board and every other alert is blind.",
            source="the bridge (clusterflow ingest)",
            destination="InfluxDB",
            protocol="line protocol",
            size="none",
            duration=f"at least {words}",
            what_to_do=what_to_do,
        ),
        panel=panel_ref("pipeline", "data_age"),
        group_by=("rule",),
        no_data=NoDataPolicy.ALERTING,
        # A store that refuses to answer is as good as one that stays empty.
        on_error=ErrorPolicy.ALERTING,
        keep_firing_for=0,
        # The alert that began without any data has no series; the first heartbeat ends it.
        missing_evaluations=1,
    )
    return RuleSet((rule,), ())
