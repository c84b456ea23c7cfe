"""The scheduler says that a job runs, and nodes of it have neither sent nor read for long: GPUs held for nothing."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import cohorts, texts, verdicts
from rules.common.freshness import fresh_node_seconds
from rules.rule import Comparison, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select

ID = "held_silent"

_FIELDS = {
    "seconds": schema.HELD_FOR,
    "held": schema.HELD_NODES,
    "never": schema.HELD_NEVER,
    "nodes": schema.JOB_NODES,
    "usd": schema.HELD_SO_FAR,
}


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, unless flow records see no training group's collectives."""
    seen = cohorts.watched(cluster, ID)
    limit = cluster.thresholds.held_silent_for
    user = f"{{{{ $labels.{schema.USER} }}}}"
    summary = (
        f"{texts.whole('held')} of {texts.whole('nodes')} nodes of job {cohorts.JOB} (user {user}) are held but "
        f"silent, for {texts.duration_of('seconds')} (alerts after {format_duration(limit)}); "
        f"{texts.whole('never')} of them never sent anything."
    )
    stored = Select(schema.HELD, schema.HELD.kept).by(*schema.HELD.tags)
    # A row a minute.
    since = fresh_node_seconds(cluster) + 60
    rule = Rule(
        id=ID,
        title="Nodes held but silent",
        family="training",
        severity=Severity.WARNING,
        measures=verdicts.measures(stored, _FIELDS, since, "a job"),
        threshold=Threshold("held_silent_for", Comparison.AT_LEAST, limit),
        annotations=texts.annotations(
            summary=summary,
            source=f"{texts.many('held', 'node')} of job {cohorts.JOB}",
            destination="nobody",
            protocol="all",
            size="none",
            duration=texts.duration_of("seconds"),
            more=(
                (texts.JOB, f"{cohorts.JOB} (class {{{{ $labels.{schema.JOB_CLASS} }}}})"),
                (texts.COST, f"{texts.whole('usd')} USD so far"),
            ),
            what_to_do=(
                f"Ask {user} whether the job is alive: a process that never started, a rank that waits for its peers, "
                "a shell that holds an allocation. Cancel it, or tell the class that it works in silence."
            ),
        ),
        panel=panel_ref("capacity", "held"),
        group_by=("rule", schema.JOB),
        is_operational=True,
    )
    return RuleSet((rule,), seen.skipped)
