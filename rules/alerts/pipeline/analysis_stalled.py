"""Nobody judges any more: the analysis is gone, or far behind, and all that follows from its verdicts is blind."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import texts
from rules.rule import Comparison, Measure, NoDataPolicy, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, compare, count, is_in, logged_late

ID = "analysis_stalled"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it."""
    silent = cluster.thresholds.analysis_silent
    # A heartbeat says how many seconds behind the verdicts are: one that is far behind is no sign of health.
    beats = (
        Select(schema.PIPELINE, schema.RAW)
        .take(count(schema.VALUE))
        .where(
            is_in(schema.STAGE, [schema.Stage.ANALYSIS]),
            is_in(schema.REASON, [schema.HEARTBEAT]),
            # It says how old what it judged last is; a cloud's flow logs are late anyway.
            compare(schema.VALUE, "<=", silent + logged_late(cluster)),
        )
        .per_series("Rounds of the analysis that were up to date: its heartbeat.")
    )
    words = format_duration(silent)
    what_to_do = (
        "Run `clusterflow status`, then look at the process `clusterflow analyze` and its log. It is slow for some "
        "minutes after a restart, while it goes through the running jobs again. Verdicts are made up for, none is lost."
    )
    rule = Rule(
        id=ID,
        title="Analysis is not running",
        family="pipeline",
        severity=Severity.CRITICAL,
        measures=(Measure("beats", beats, since=silent),),
        threshold=Threshold("analysis_silent", Comparison.BELOW, 1),
        # No values here: where this fires there are none.
        annotations=texts.annotations(
            summary=f"The analysis has judged nothing for {words}: nodes, jobs, checkpoints and first contacts are not "
            "watched, and their alerts stay quiet.",
            source="the analysis (clusterflow analyze)",
            destination="InfluxDB",
            protocol="line protocol",
            size="none",
            duration=f"at least {words}",
            what_to_do=what_to_do,
        ),
        panel=panel_ref("pipeline", "readings"),
        group_by=("rule",),
        no_data=NoDataPolicy.ALERTING,
        keep_firing_for=0,
        # The alert that began without any data has no series; the first heartbeat ends it.
        missing_evaluations=1,
    )
    return RuleSet((rule,), ())
