"""Switches mark many of a node's packets as having met congestion (ECN CE): its way is full again and again.

Where DCQCN works as it should, few packets are marked: its authors mark at most 1 % while a queue is below its upper
limit (Kmin 5 KB, Kmax 200 KB, Pmax 1 %; Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015).
Five times as many mean queues above that limit, where every packet is marked.
"""

from analysis.window_reader import sees_seconds
from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import texts
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, beside, compare, ratio, total

ID = "ecn_marks"

_MARKED, _ALL = total(schema.MARKED_PACKETS, "marked"), total(schema.PACKETS, "packets")


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, where sFlow shows packets."""
    if not sees_seconds(cluster):
        raise NoRuleError(ID, "no exporter sends sFlow: other records do not say which packets were marked")
    limits = cluster.thresholds
    window = format_duration(limits.ecn_marks_window)
    node = f"{{{{ $labels.{schema.NODE} }}}}"
    group = texts.group_title(cluster, schema.GROUP, [one.id for one in cluster.inside_groups()])

    sums = Select(schema.PULSE, schema.RAW).take(_MARKED, _ALL).by(schema.NODE, schema.GROUP)
    enough = Select(sums).where(compare(_ALL, ">=", limits.ecn_marks_packets)).by(schema.NODE, schema.GROUP)
    # InfluxDB reads all nodes again for each measure, and for each function of an outer question: one, and none.
    share = enough.take(ratio((_MARKED,), _ALL, "share", beside))
    meaning = "Of packets of a node to its own group, scaled from samples."
    rule = Rule(
        id=ID,
        title="Packets meet congestion",
        family="links",
        severity=Severity.WARNING,
        measures=(Measure("share", share.per_series(meaning), limits.ecn_marks_window),),
        threshold=Threshold("ecn_marks", Comparison.ABOVE, limits.ecn_marks),
        annotations=texts.annotations(
            summary=(
                f"Switches marked {texts.share_of('share')} of the packets from {node} to other nodes of {group} as "
                f"having met congestion, within {window} (alerts above {limits.ecn_marks:.1%})."
            ),
            source=f"{node} ({group})",
            destination=f"nodes of {group}",
            protocol="all",
            size=f"unknown: {texts.share_of('share')} of the packets are marked",
            duration=f"within {window}",
            what_to_do=(
                "One node: look at its link, its rail and who else sends to the same ports. Many nodes: look at the "
                "uplinks (Capacity & cost), at a job that started then, and at ECN thresholds that were changed."
            ),
        ),
        panel=panel_ref("training", "marks"),
        group_by=("rule", schema.GROUP),
        missing_evaluations=2,
        interval=SLOW_INTERVAL_SECONDS,
        is_operational=True,
    )
    return RuleSet((rule,), ())
