"""A client asks inference nodes outside the hours at which clients are expected."""

from app.units import format_duration, format_size
from cluster.calendar import hours_words
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, inference_clients, texts
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import is_in
from store.schema import AccessBreach

ID = "inference_off_window"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for the groups that may ask, where cluster.yaml says at what hours, for all or for some."""
    seen = inference_clients.watched(cluster, ID, may=True)
    if not inference_clients.has_hours(cluster):
        raise NoRuleError(ID, "cluster.yaml has no inference.hours")
    limits = cluster.thresholds
    server = inference_clients.server(cluster, seen)
    if cluster.inference.access:
        # Hours may differ from entry to entry: the analysis has judged each conversation by those of its own.
        client, hours = inference_clients.known_client(cluster, seen), "those of its entries in `inference.access`"
        measures = inference_clients.unlisted(cluster, seen, [AccessBreach.HOURS])
    else:
        client, hours = inference_clients.client(cluster, seen), hours_words(cluster.site, cluster.inference.hours)
        # Decided for each window in the site's time zone, and stored; Grafana's mute timings know no windows.
        measures = inference_clients.measures(cluster, seen, is_in(schema.OFF_WINDOW, [schema.YES]))
    summary = (
        f"{client} sent {texts.bytes_of('bytes')} to {server} within {format_duration(limits.inference_window)} "
        f"outside the hours of inference ({hours}): more than {format_size(limits.inference_off_window_bytes)}."
    )
    what_to_do = (
        "Look for a scheduled job or a new user of the client. If it may come at this time, widen `inference.hours`; "
        "if nobody claims it, look at what it asks and how often."
    )
    rule = Rule(
        id=ID,
        title="Inference is asked outside its hours",
        family="security",
        severity=Severity.WARNING,
        measures=measures,
        threshold=Threshold("inference_off_window_bytes", Comparison.ABOVE, limits.inference_off_window_bytes),
        annotations=conversations.annotations(client, server, summary=summary, what_to_do=what_to_do),
        panel=panel_ref("inference", "off_window"),
        group_by=("rule", schema.SRC_GROUP, schema.DST_GROUP),
    )
    return RuleSet((rule,), seen.skipped)
