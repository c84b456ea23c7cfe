"""Much to one outside destination within a day, at once or in portions that no rule over minutes sees."""

from app.units import format_size
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, slow, texts
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import compare

ID = "low_and_slow_24h"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for everything that model storage, storage, training and sensitive groups send outside."""
    seen = slow.watched(cluster, ID)
    limit = cluster.thresholds.low_and_slow_24h
    source, destination = conversations.source(cluster, seen), conversations.destination(cluster, seen)
    compared = slow.artefact(cluster, "bytes")
    about = f", about {compared}" if compared else ""
    summary = (
        f"{source} sent {texts.bytes_of('bytes')} to {destination} within 24 hours{about}: more than "
        f"{format_size(limit)}. It was sent there in {texts.whole('hours')} of the last 168 hours."
    )
    what_to_do = (
        "Ask the owner of the source what is sent there: a backup, a mirror, telemetry. If nobody claims it, look at "
        "what else the destination got from the cluster, block it, and keep the machine running."
    )
    measures = slow.measures(
        seen,
        schema.SLOW_24H,
        compare(schema.SLOW_24H, ">", limit),
        size=schema.BYTES_24H,
        share=schema.ARTEFACT_SHARE_24H,
    )
    rule = Rule(
        id=ID,
        title="Much sent outside within 24 hours",
        family="slow",
        severity=Severity.WARNING,
        measures=measures,
        threshold=Threshold(ID, Comparison.ABOVE, limit),
        annotations=texts.annotations(
            source=source,
            destination=destination,
            summary=summary,
            protocol="all",
            size=(
                f"{texts.bytes_of('bytes')} in 24h, {texts.bytes_of('hour')} of it in the last hour; "
                f"{texts.bytes_of('week')} in 7d, {texts.bytes_of('month')} in 30d"
            ),
            duration=f"in {texts.whole('hours')} of the last 168 hours, on {texts.whole('days')} of the last 30 days",
            more=((schema.ARTEFACT.name, compared),) if compared else (),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("ledger", "slow_24h"),
        interval=SLOW_INTERVAL_SECONDS,
    )
    return RuleSet((rule,), seen.skipped)
