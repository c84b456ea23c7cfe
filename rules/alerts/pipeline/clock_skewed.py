"""An exporter's clock stays off: its flows are stored at the time of their arrival."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import texts
from rules.common.exporter_shares import ALL, PART, share_measures
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, highest

ID = "clock_skewed"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it, for every exporter that sends."""
    limits = cluster.thresholds
    window = format_duration(limits.flow_loss_window)
    exporter = f"{{{{ $labels.{schema.EXPORTER} }}}}"
    skew = Select(schema.EXPORTER_STATUS, schema.RAW).take(highest(schema.SKEW)).by(schema.EXPORTER)
    rule = Rule(
        id=ID,
        title="An exporter's clock is off",
        family="pipeline",
        severity=Severity.WARNING,
        measures=(
            *share_measures(cluster, schema.SKEWED),
            Measure("skew", skew.per_series("Largest distance from arrival."), limits.flow_loss_window),
        ),
        threshold=Threshold("clock_skewed", Comparison.ABOVE, limits.clock_skewed),
        annotations=texts.annotations(
            summary=(
                f"The clock of exporter {exporter} is off by up to {texts.duration_of('skew')}: "
                f"{texts.share_of('share')} of its flow records within {window} are stored at their arrival instead "
                f"(alerts above {limits.clock_skewed:.0%})."
            ),
            source=exporter,
            destination="the flow collector",
            protocol="flow export",
            size=f"right in total; {texts.whole(PART)} of {texts.whole(ALL)} records have another time than they say",
            duration=f"within {window}",
            what_to_do=(
                f"Check NTP on {exporter}, and the clock of the collector's host. A device that restarted may send "
                "times of 1970 until it has the time."
            ),
        ),
        panel=panel_ref("pipeline", "exporters"),
        group_by=("rule",),
        is_operational=True,
    )
    return RuleSet((rule,), ())
