"""An exporter's interface counters go on, and its flow records do not: traffic that nobody counts."""

from app.units import format_size
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import texts, verdicts
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, compare
from store.schema import Field

ID = "unseen_bytes"

_SINCE = 900
"""Three rows: one may be late."""
_MEASURES: dict[str, Field] = {
    "bytes": schema.UNSEEN_BYTES,
    "seen": schema.UNSEEN_FLOWS,
    "duration": schema.EVENT_SECONDS,
}


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for all exporters whose counters come."""
    limit = cluster.thresholds.unseen_bytes
    exporter = f"{{{{ $labels.{schema.EXPORTER} }}}}"
    summary = (
        f"Exporter {exporter} carried {texts.bytes_of('bytes')} more within {texts.duration_of('duration')}, by its "
        f"interfaces' own counters, than its flow records tell ({texts.bytes_of('seen')}; alerts from "
        f"{format_size(limit)}): nobody counts what goes through it."
    )
    stored = Select(schema.UNSEEN, schema.UNSEEN.kept).where(compare(schema.UNSEEN_BYTES, ">", 0)).by(schema.EXPORTER)
    rule = Rule(
        id=ID,
        title="Traffic without flow records",
        family="slow",
        severity=Severity.WARNING,
        measures=verdicts.measures(stored, _MEASURES, _SINCE, "an exporter"),
        threshold=Threshold("unseen_bytes", Comparison.ABOVE, limit),
        annotations=texts.annotations(
            summary=summary,
            source=exporter,
            destination="not known: only interfaces counted it",
            protocol="any",
            size=texts.bytes_of("bytes"),
            duration=texts.duration_of("duration"),
            what_to_do=(
                "See who changed the device's flow export (configuration, log-ins, sampling rate), and turn it on "
                "again. Until then its interfaces' counters and its neighbours' flows are all there is."
            ),
        ),
        panel=panel_ref("coverage", "unseen"),
        group_by=("rule",),
        interval=SLOW_INTERVAL_SECONDS,
    )
    return RuleSet((rule,), ())
