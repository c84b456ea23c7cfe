"""One link between switches carries far more than its neighbours: large conversations hash onto the same path (ECMP).

A collective moves at the speed of its slowest pair. Hashing spreads many small conversations well, few large ones badly
(Al-Fares et al., Hedera, NSDI 2010): with four elephants on four links all are apart in 9 of 100 cases.
"""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.parts.uplinks import APART, BUSIEST, EMPTIEST, has_uplinks, measures, over, uplinks
from dashboards.registry import panel_ref
from rules.common import texts
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import settle_seconds

ID = "uplinks_uneven"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, for exporters of which cluster.yaml names links between switches."""
    if not has_uplinks(cluster):
        raise NoRuleError(ID, "no exporter has two interfaces with `counts: false`")
    limits = cluster.thresholds
    window = format_duration(limits.uplinks_uneven_window)
    settled = settle_seconds(cluster, schema.RAW)
    loads, since = uplinks(cluster, over(limits.uplinks_uneven_window)), limits.uplinks_uneven_window + settled
    exporter = f"{{{{ $labels.{schema.EXPORTER} }}}}"
    carried = f"{texts.share_of(BUSIEST)} of its speed, the emptiest {texts.share_of(EMPTIEST)}"
    rule = Rule(
        id=ID,
        title="Uplinks are uneven",
        family="links",
        severity=Severity.WARNING,
        measures=tuple(
            Measure(column.name, loads.take(column).per_series("Of a switch's uplinks."), since, settled + 1)
            for column in measures()
        ),
        threshold=Threshold("uplinks_uneven", Comparison.ABOVE, limits.uplinks_uneven),
        annotations=texts.annotations(
            summary=(
                f"The busiest uplink of {exporter} carries {carried}, over {window} (alerts above "
                f"{limits.uplinks_uneven:.0%} between them)."
            ),
            source=f"all that goes through uplinks of {exporter}",
            destination=f"uplinks of {exporter}",
            protocol="all",
            size=f"{texts.share_of(APART)} of a link between them",
            duration=window,
            what_to_do=(
                f"See which: Capacity & cost. Who fills it: `clusterflow flows --exporter {exporter} --interface NAME "
                "--by src,dst`. Few large pairs: more ports a connection (NCCL_IB_QPS_PER_CONNECTION), another hash or "
                "adaptive routing."
            ),
        ),
        panel=panel_ref("capacity", "uplinks"),
        group_by=("rule", schema.EXPORTER),
        missing_evaluations=2,
        interval=SLOW_INTERVAL_SECONDS,
        is_operational=True,
    )
    return RuleSet((rule,), ())
