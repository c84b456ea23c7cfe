"""The bridge is behind: what boards and alerts call now is minutes ago."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import texts
from rules.common.freshness import SELDOM, reading_seconds
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Query, Select, compare, count, is_in, lowest

ID = "ingest_lag"

_COUNTED = count(schema.VALUE, "readings")


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it, for each bridge."""
    limits = cluster.thresholds
    bridge = f"bridge {{{{ $labels.{schema.SHARD} }}}}"
    summary = (
        f"The newest flow that {bridge} has stored is {texts.duration_of('lag')} old (alerts above "
        f"{format_duration(limits.ingest_lag)} for {format_duration(limits.ingest_lag_for)}): boards are late "
        "by as much, and what is later than a rule looks back raises no alert."
    )
    what_to_do = (
        "Does the backlog grow? Then the bridge or InfluxDB is too slow: look at processor, disk and the bridge's log. "
        "Without a backlog the exporters are late or silent: look at their lag and age on the Pipeline board."
    )
    # It must have been late all the time: of a bridge that just came back a single reading is known.
    since = max(limits.ingest_lag_for, reading_seconds(cluster))
    readings = max(limits.ingest_lag_for // (SELDOM * cluster.bridge.window), 1)
    rule = Rule(
        id=ID,
        title="Flow data is late",
        family="pipeline",
        severity=Severity.WARNING,
        measures=(
            Measure("lag", _least(schema.Stage.BRIDGE, schema.LAG_SECONDS, readings), since),
            Measure("backlog", _least(schema.Stage.READ, schema.BACKLOG_BYTES, readings), since),
        ),
        threshold=Threshold("ingest_lag", Comparison.ABOVE, limits.ingest_lag),
        annotations=texts.annotations(
            summary=summary,
            source=bridge,
            destination="InfluxDB",
            protocol="line protocol",
            size=f"{texts.bytes_of('backlog')} wait in the spool",
            duration=texts.duration_of("lag"),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("pipeline", "readings"),
        group_by=("rule",),
    )
    return RuleSet((rule,), ())


def _least(stage: schema.Stage, reason: str, readings: int) -> Query:
    """Return the smallest reading of each bridge in the range; none of one with fewer readings in it than these."""
    every = (
        Select(schema.PIPELINE, schema.RAW)
        .take(lowest(schema.VALUE), _COUNTED)
        .where(is_in(schema.STAGE, [stage.value]), is_in(schema.REASON, [reason]))
        .by(schema.SHARD)
    )
    enough = compare(_COUNTED, ">=", readings)
    return (
        Select(every).take(lowest(schema.VALUE)).where(enough).by(schema.SHARD).per_series("A reading of the bridge.")
    )
