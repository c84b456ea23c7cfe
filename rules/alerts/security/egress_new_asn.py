"""A group of the cluster sends to an autonomous system to which it never sent before."""

from analysis.detectors.egress import networks
from app.units import format_duration, format_size
from cluster.model import EXTERNAL, Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, texts
from rules.common.visibility import visible_pairs
from rules.rule import Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, highest, total

ID = "egress_new_asn"

SHOWN_SECONDS = 1_800
"""How long the alert stays at least: twice as long as a new network gets rows."""

_LABELS = schema.NEW_NETWORK.tags


def build(cluster: Cluster) -> RuleSet:
    """Return the rule where files may know networks, for all groups whose networks are judged."""
    if not cluster.geography.files:
        raise NoRuleError(ID, "cluster.yaml has no geography")
    groups = networks.sources(cluster)
    if not groups:
        raise NoRuleError(ID, "no group is inside the cluster, people's machines aside")
    seen = visible_pairs(cluster, ID, groups, (EXTERNAL,))
    limits = cluster.thresholds
    source = conversations.source(cluster, seen)
    destination = conversations.destination(cluster, seen, texts.APPLICATION + texts.PLACE + texts.LISTED)
    group = texts.group_title(cluster, schema.SRC_GROUP, seen.sources())
    limit = f"{format_size(limits.new_network_bytes)} within {format_duration(limits.new_network_window)}"
    summary = (
        f"{source} sent to {destination} over {conversations.PROTOCOL}. {group} never sent more than {limit} to "
        f"{{{{ $labels.{schema.NETWORK} }}}} before; now it is {texts.bytes_of('bytes')}, from "
        f"{texts.many('sources', 'source')} to {texts.many('destinations', 'destination')}."
    )
    what_to_do = (
        "Ask the owner of the source what it does there: a new mirror, another provider, a move to other addresses. It "
        "will not be new again. If nobody knows, look at what else the source sends, and block the network."
    )
    rule = Rule(
        id=ID,
        title="A group sends to a network that is new to it",
        family="security",
        severity=Severity.WARNING,
        measures=_measures(Select(schema.NEW_NETWORK, schema.NEW_NETWORK.kept).where(seen.condition())),
        threshold=Threshold("new_network_bytes", Comparison.ABOVE, limits.new_network_bytes),
        annotations=conversations.annotations(source, destination, summary=summary, what_to_do=what_to_do),
        panel=panel_ref("egress", "new_networks"),
        group_by=("rule", schema.SRC_GROUP),
    )
    return RuleSet((rule,), seen.skipped)


def _measures(found: Select) -> tuple[Measure, ...]:
    columns = {
        "bytes": total(schema.BYTES),
        "duration": total(schema.DURATION),
        # They grow from row to row.
        "sources": highest(schema.EVENT_SOURCES),
        "destinations": highest(schema.EVENT_DESTINATIONS),
    }
    each = found.by(*_LABELS)
    return tuple(
        Measure(name, each.take(column).per_series(f"{name} of a new network.".capitalize()), SHOWN_SECONDS)
        for name, column in columns.items()
    )
