"""Somebody sends datagrams that would kill nfacctd, or one of the collector's daemons died."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from ingest.collect.trouble_file import LATELY
from rules.common import texts
from rules.common.freshness import reading_seconds
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, highest, is_in

ID = "collector_attacked"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it, for each sender and each daemon."""
    # A reading tells of the quarter of an hour before it.
    counts = (
        Select(schema.PIPELINE, schema.RAW)
        .take(highest(schema.VALUE))
        .where(is_in(schema.STAGE, [schema.Stage.COLLECT.value]))
        .by(schema.REASON)
        .per_series("Datagrams refused, or deaths, within the last quarter of an hour.")
    )
    what = f"{{{{ $labels.{schema.REASON} }}}}"
    within = format_duration(LATELY)
    summary = (
        f"The flow collector: {what}, {texts.many('times', 'time')} within {within}. A datagram that kills "
        "nfacctd blinds all of monitoring while it is sent."
    )
    what_to_do = (
        "refused NAME: its address sent templates that overflow nfacctd's stack; find out whether it is the "
        "device, or somebody who forges its address, and drop it at the switch. died: the collector's log names "
        "the signal."
    )
    rule = Rule(
        id=ID,
        title="The flow collector is attacked, or dies",
        family="pipeline",
        severity=Severity.CRITICAL,
        measures=(Measure("times", counts, reading_seconds(cluster)),),
        threshold=Threshold("collector_attacks", Comparison.ABOVE, cluster.thresholds.collector_attacks),
        annotations=texts.annotations(
            summary=summary,
            source=what,
            destination="the flow collector",
            protocol="NetFlow v9 or IPFIX",
            size=f"{texts.whole('times')} datagrams or deaths",
            duration=f"within {within}",
            what_to_do=what_to_do,
        ),
        panel=panel_ref("pipeline", "readings"),
        group_by=("rule",),
    )
    return RuleSet((rule,), ())
