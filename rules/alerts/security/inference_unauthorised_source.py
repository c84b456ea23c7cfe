"""A client reaches an inference node although cluster.yaml does not let its group."""

from app.units import format_duration, format_size
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, inference_clients, texts
from rules.rule import Comparison, Rule, RuleSet, Severity, Threshold
from store import schema

ID = "inference_unauthorised_source"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for every group that may not reach inference."""
    seen = inference_clients.watched(cluster, ID, may=False)
    limits = cluster.thresholds
    client, server = inference_clients.client(cluster, seen), inference_clients.server(cluster, seen)
    let = "`allowed` and `inference.sources` do" if cluster.inference.sources else "`allowed` does"
    summary = (
        f"{client} sent {texts.bytes_of('bytes')} to {server} within {format_duration(limits.inference_window)}, "
        f"though {let} not let it (alerts above {format_size(limits.inference_unauthorised_bytes)})."
    )
    what_to_do = (
        "Find out whose client it is. If it belongs there, list its group in cluster.yaml; if nobody knows it, block "
        "it in front of the inference nodes and look at what it asked for."
    )
    rule = Rule(
        id=ID,
        title="Inference is asked by a client that may not",
        family="security",
        severity=Severity.WARNING,
        measures=inference_clients.measures(cluster, seen),
        threshold=Threshold("inference_unauthorised_bytes", Comparison.ABOVE, limits.inference_unauthorised_bytes),
        annotations=conversations.annotations(client, server, summary=summary, what_to_do=what_to_do),
        panel=panel_ref("inference", "unauthorised"),
        # A scan of all nodes, or a fleet of clients, is one message.
        group_by=("rule", schema.SRC_GROUP, schema.DST_GROUP),
    )
    return RuleSet((rule,), seen.skipped)
