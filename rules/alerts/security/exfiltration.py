"""Exfiltration: more left the cluster than may, in whatever parts, by whatever way. One alert an incident."""

from analysis.detectors.egress.exfiltration_study import drilled, learnt, summed, watched
from app.units import format_duration
from cluster.model import Cluster, Role
from dashboards.registry import panel_ref
from rules.common import conversations, incidents, slow, texts
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.schema import Leak

ID = "exfiltration"

DRILL = "DRILL: "
"""Before the summary of an alert that `clusterflow drill` staged."""


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for all groups that hold weights or can read them."""
    drills = drilled(cluster)
    groups = (*summed(cluster), *learnt(cluster), *drills)
    if not watched(cluster) and not drills and not cluster.groups_with(Role.CUSTOM):
        raise NoRuleError(ID, "no group holds models or can read them, as far as flows show")
    source, destination = incidents.source(cluster, groups), incidents.destination(cluster, cluster.outside_ids())
    compared = slow.artefact(cluster, "bytes")
    about = f", about {compared}" if compared else ""
    mark = "".join(f'{{{{ if eq $labels.{schema.SRC_GROUP} "{one.id}" }}}}{DRILL}{{{{ end }}}}' for one in drills)
    summary = (
        f"{mark}{source} sent {texts.bytes_of('bytes')} to {destination}{about}: {_why(cluster)}. {incidents.LARGEST}"
    )
    what_to_do = (
        "Stop the largest conversations at the border, keep their sources running and untouched, and call security. "
        "Only then ask their owners."
    )
    rule = Rule(
        id=ID,
        title="Exfiltration: more leaves the cluster than may",
        family="security",
        severity=Severity.CRITICAL,
        measures=incidents.measures(schema.EXFILTRATION, share=schema.LEAK_SHARE),
        threshold=Threshold("exfil_24h", Comparison.ABOVE, 0),
        annotations=conversations.annotations(
            source,
            destination,
            summary=summary,
            what_to_do=what_to_do,
            protocol=incidents.PROTOCOL,
            more=((schema.ARTEFACT.name, compared),) if compared else (),
        ),
        panel=panel_ref("egress", "exfiltration"),
        group_by=("rule", schema.SRC_GROUP),
    )
    return RuleSet((rule,), ())


def _why(cluster: Cluster) -> str:
    """Return which sum was too large, in words."""
    window = format_duration(cluster.thresholds.exfil_window)
    words = {
        Leak.BULK: f"more than may leave for unapproved addresses within {window}",
        Leak.OFF_HOURS: f"more than may leave for unapproved addresses within {window} in off-hours",
        Leak.DAY: "more than may leave within 24 hours",
        Leak.WEEK: "more than may leave for unapproved addresses within 7 days",
        Leak.MONTH: "more than may leave for unapproved addresses within 30 days",
        Leak.LEARNT: "far more than it usually sends in a day to those who get it",
    }
    return texts.chosen(schema.KIND, words.items())
