"""A running job sends no training traffic at all, for longer than its class ever paused."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import cohorts, texts
from rules.rule import Comparison, Rule, RuleSet, Severity, Threshold
from store.schema import CohortState

ID = "job_stalled"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, unless flow records see no training group's collectives."""
    seen = cohorts.watched(cluster, ID)
    limit = cluster.thresholds.stalled_for
    summary = (
        f"Job {cohorts.JOB} stands still: none of its {texts.whole('nodes')} nodes has sent training traffic for "
        f"{texts.duration_of(cohorts.STATE_FOR)} (alerts after {format_duration(limit)}). It neither loads data nor "
        f"writes a checkpoint."
    )
    what_to_do = (
        "Look at the job's log and its processes: a hang (NCCL timeout), a crash, or an end that its source did not "
        "tell. If it hangs, take stack traces before anything else, then restart it from the last checkpoint."
    )
    rule = Rule(
        id=ID,
        title="Training job stands still",
        family="training",
        severity=Severity.CRITICAL,
        measures=cohorts.measures(cluster, CohortState.STALLED, rates=False),
        threshold=Threshold("stalled_for", Comparison.AT_LEAST, limit),
        annotations=texts.annotations(
            summary=summary,
            source=f"the {texts.whole('nodes')} nodes of job {cohorts.JOB}",
            destination="each other",
            protocol="all",
            size=f"none; {texts.bytes_of('missing')} expected since then",
            duration=texts.duration_of(cohorts.STATE_FOR),
            more=cohorts.cost_texts(),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("training", "rate"),
        group_by=("rule", "job"),
        is_operational=True,
    )
    return RuleSet((rule,), seen.skipped)
