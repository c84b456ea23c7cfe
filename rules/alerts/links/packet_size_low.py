"""A node's packets to the other nodes of its job are smaller than theirs: it, or its port, has another MTU.

One step of RDMA's MTU halves them (4,096 to 2,048); 1,500 among 4,200 or 9,000 is a third or a sixth. Of ten million
packets a switch that samples 1:32768 takes 305: with acknowledgements among them their mean is known to some 6 %.
"""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import cohorts, texts, verdicts
from rules.common.freshness import final_seconds
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select

ID = "packet_size_low"

_FIELDS = {"smaller": schema.SMALLER_BY, "size": schema.MEAN_SIZE, "usual": schema.USUAL_SIZE}


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, unless flow records see no training group's collectives."""
    seen = cohorts.watched(cluster, ID)
    limits = cluster.thresholds
    node = f"{{{{ $labels.{schema.NODE} }}}}"
    window = format_duration(limits.packet_size_window)
    stored = Select(schema.PACKET_SIZE_LOW, schema.RAW).by(*schema.PACKET_SIZE_LOW.tags)
    since = final_seconds(cluster)
    rule = Rule(
        id=ID,
        title="Packets of a node are small",
        family="links",
        severity=Severity.WARNING,
        measures=verdicts.measures(stored, _FIELDS, since, "a node"),
        threshold=Threshold("packet_size_low", Comparison.ABOVE, limits.packet_size_low),
        annotations=texts.annotations(
            summary=(
                f"{node} sent {texts.whole('size')} bytes a packet to training nodes within {window}, the median node "
                f"of job {cohorts.JOB} {texts.whole('usual')} (alerts when they are more than "
                f"{limits.packet_size_low:.0%} smaller): its MTU differs."
            ),
            source=node,
            destination=f"other nodes of job {cohorts.JOB}",
            protocol="all",
            size=f"{texts.whole('size')} bytes a packet instead of {texts.whole('usual')}",
            duration=window,
            more=((texts.JOB, f"{cohorts.JOB} (class {{{{ $labels.{schema.JOB_CLASS} }}}})"),),
            what_to_do=(
                "Compare the MTU of the node's interfaces with its peers' (ip link, ibv_devinfo: active_mtu) and with "
                "its port on the leaf. Packets of that size cost the node processor time and rate, all ranks wait."
            ),
        ),
        panel=panel_ref("training", "packet_sizes"),
        group_by=("rule", schema.JOB),
        missing_evaluations=2,
        interval=SLOW_INTERVAL_SECONDS,
        is_operational=True,
    )
    return RuleSet((rule,), seen.skipped)
