"""An exporter samples, and nobody knows by which rate: its bytes count as they stand, a thousandth of the truth."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import texts
from rules.common.exporter_shares import ALL, PART, share_measures
from rules.rule import Comparison, Rule, RuleSet, Severity, Threshold
from store import schema

ID = "rate_unknown"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it, for every exporter that shows that it samples."""
    limits = cluster.thresholds
    window = format_duration(limits.flow_loss_window)
    exporter = f"{{{{ $labels.{schema.EXPORTER} }}}}"
    rule = Rule(
        id=ID,
        title="Sampling rate unknown",
        family="pipeline",
        severity=Severity.WARNING,
        measures=share_measures(cluster, schema.UNKNOWN_RATE),
        threshold=Threshold("rate_unknown", Comparison.ABOVE, limits.rate_unknown),
        annotations=texts.annotations(
            summary=(
                f"Exporter {exporter} samples, and {texts.share_of('share')} of its flow records within {window} came "
                f"without a rate (alerts above {limits.rate_unknown:.2%}): they count 1:1, far too low."
            ),
            source=exporter,
            destination="the flow collector",
            protocol="NetFlow v9 or IPFIX",
            size=f"unknown: {texts.whole(PART)} of {texts.whole(ALL)} records are not scaled",
            duration=f"within {window}",
            what_to_do=(
                f"Set the rate in cluster.yaml (exporters, sampling) and send ingest a SIGHUP; or have {exporter} "
                "export its sampler's options data every minute. What is stored already stays too low."
            ),
        ),
        panel=panel_ref("pipeline", "exporters"),
        group_by=("rule",),
        is_operational=True,
    )
    return RuleSet((rule,), ())
