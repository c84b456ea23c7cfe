"""A whole cohort trains slower than its class did in earlier runs: no node stands out, all of them wait."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import cohorts, texts
from rules.rule import Comparison, Rule, RuleSet, Severity, Threshold
from store.schema import CohortState

ID = "cohort_slowdown"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, unless flow records see no training group's collectives."""
    seen = cohorts.watched(cluster, ID)
    limit = cluster.thresholds.slowdown_for
    summary = (
        f"Job {cohorts.JOB} as a whole is slow, in bytes or in steps a second: its nodes send "
        f"{texts.bit_rate_of('rate')} each ({texts.bit_rate_of('expected')} in earlier runs or in its first hour, "
        f"limit {texts.bit_rate_of('lower')}), for {texts.duration_of(cohorts.STATE_FOR)} "
        f"(alerts after {format_duration(limit)})."
    )
    what_to_do = (
        "No node stands out: look at what all share. Storage and data loading first, then the fabric (an uplink down, "
        "congestion, another large job), then clocks and power caps. If the job itself changed, give it another class."
    )
    rule = Rule(
        id=ID,
        title="Training job is slower than its class",
        family="training",
        severity=Severity.WARNING,
        measures=cohorts.measures(cluster, CohortState.SLOW, rates=True),
        threshold=Threshold("slowdown_for", Comparison.AT_LEAST, limit),
        annotations=texts.annotations(
            summary=summary,
            source=f"the {texts.whole('nodes')} nodes of job {cohorts.JOB}",
            destination="each other",
            protocol="all",
            size=f"{texts.bytes_of('missing')} fewer than expected since then",
            duration=texts.duration_of(cohorts.STATE_FOR),
            more=cohorts.cost_texts(),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("training", "rate"),
        group_by=("rule", "job"),
        is_operational=True,
    )
    return RuleSet((rule,), seen.skipped)
