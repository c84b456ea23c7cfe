"""Much to one outside destination within a week, on no day of which it was much."""

from app.units import format_size
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, slow, texts
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import compare

ID = "low_and_slow_7d"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for everything that model storage, storage, training and sensitive groups send outside."""
    seen = slow.watched(cluster, ID)
    limits = cluster.thresholds
    source, destination = conversations.source(cluster, seen), conversations.destination(cluster, seen)
    compared = slow.artefact(cluster, "bytes")
    about = f", about {compared}" if compared else ""
    summary = (
        f"{source} sent {texts.bytes_of('bytes')} to {destination} within 7 days{about}: more than "
        f"{format_size(limits.low_and_slow_7d)}, though on no day more than {format_size(limits.low_and_slow_24h)}."
    )
    what_to_do = (
        "Ask the owner of the source what is sent there week after week. If nobody claims it, treat it as a theft "
        "under way: block the destination, keep the machine running, and look for the same destination at other "
        "sources."
    )
    measures = slow.measures(
        seen,
        schema.SLOW_7D,
        compare(schema.SLOW_7D, ">", limits.low_and_slow_7d),
        compare(schema.PEAK_24H, "<=", limits.low_and_slow_24h),
        size=schema.BYTES_7D,
        share=schema.ARTEFACT_SHARE,
    )
    rule = Rule(
        id=ID,
        title="Much sent outside within 7 days",
        family="slow",
        severity=Severity.WARNING,
        measures=measures,
        threshold=Threshold(ID, Comparison.ABOVE, limits.low_and_slow_7d),
        annotations=texts.annotations(
            source=source,
            destination=destination,
            summary=summary,
            protocol="all",
            size=(
                f"{texts.bytes_of('bytes')} in 7d, {texts.bytes_of('day')} of it in the last 24h; "
                f"{texts.bytes_of('month')} in 30d"
            ),
            duration=f"in {texts.whole('hours')} of the last 168 hours, on {texts.whole('days')} of the last 30 days",
            more=((schema.ARTEFACT.name, compared),) if compared else (),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("ledger", "slow_7d"),
        interval=SLOW_INTERVAL_SECONDS,
    )
    return RuleSet((rule,), seen.skipped)
