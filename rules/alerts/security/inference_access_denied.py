"""A client that may ask inference otherwise is not on the list `inference.access`: by its user, country or service."""

from app.units import format_duration, format_size
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, inference_clients, texts
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.schema import AccessBreach

ID = "inference_access_denied"

KINDS = tuple(kind for kind in AccessBreach if kind is not AccessBreach.HOURS)
"""What this rule tells of; hours have a rule of their own."""


def build(cluster: Cluster) -> RuleSet:
    """Return the rule where cluster.yaml has a list."""
    seen = inference_clients.watched(cluster, ID, may=True)
    if not cluster.inference.access:
        raise NoRuleError(ID, "cluster.yaml has no inference.access")
    limits = cluster.thresholds
    client, server = inference_clients.known_client(cluster, seen), inference_clients.server(cluster, seen)
    by = f"`inference.access` does not list it by its {{{{ $labels.{schema.KIND} }}}}"
    nobody = "nobody had signed in at its address, and `inference.access` asks for a user whom it lists"
    is_nobody = f'{{{{ if eq $labels.{schema.KIND} "{AccessBreach.UNKNOWN_USER}" }}}}'
    summary = (
        f"{client} sent {texts.bytes_of('bytes')} to {server} within {format_duration(limits.inference_window)}, but "
        f"{is_nobody}{nobody}{{{{ else }}}}{by}{{{{ end }}}} (alerts above "
        f"{format_size(limits.inference_access_bytes)})."
    )
    what_to_do = (
        "Ask the user, or whoever has the address; where nobody had signed in, see first whether the export of "
        "sign-ins is late or broken (`clusterflow lists`). If they belong there, add them to `inference.access`; if "
        "not, block them in front of the inference nodes, and look at what they asked for (`clusterflow access`)."
    )
    rule = Rule(
        id=ID,
        title="Inference is asked by a client that is not listed",
        family="security",
        severity=Severity.WARNING,
        measures=inference_clients.unlisted(cluster, seen, KINDS),
        threshold=Threshold("inference_access_bytes", Comparison.ABOVE, limits.inference_access_bytes),
        annotations=conversations.annotations(client, server, summary=summary, what_to_do=what_to_do),
        panel=panel_ref("inference_access", "denied"),
        group_by=("rule", schema.SRC_GROUP, schema.DST_GROUP),
    )
    return RuleSet((rule,), seen.skipped)
