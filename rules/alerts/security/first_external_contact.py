"""The first contact ever of model storage or a training node with an outside address."""

from analysis.detectors.egress.contacts import ContactPolicy
from app.units import format_duration
from cluster.model import Cluster, FirstContact, Role
from dashboards.registry import panel_ref
from rules.common import conversations, texts
from rules.common.visibility import visible_pairs
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, compare

ID = "first_external_contact"

SHOWN_SECONDS = 600
"""How long the alert stays: a first contact is one moment, and the night shift should still find it on the wall."""


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for the groups of roles model_storage and training."""
    groups = cluster.groups_with(Role.MODEL_STORAGE, Role.TRAINING)
    if not groups:
        raise NoRuleError(ID, "no group has the role model_storage or training")
    skipped = {group.id for group in cluster.groups if group.first_contact is FirstContact.SKIP}
    seen = visible_pairs(cluster, ID, groups, (one for one in cluster.outside_ids() if one not in skipped))
    source = conversations.source(cluster, seen)
    destination = conversations.destination(cluster, seen, texts.PLACE + texts.LISTED)
    summary = (
        f"{source} talked to {destination} for the first time ever: {texts.bytes_of('bytes')} "
        f"over {conversations.PROTOCOL} in the first {format_duration(ContactPolicy().episode)}."
    )
    what_to_do = (
        "Ask the owner of the source whether the destination is expected. If it is, let it be: it will not be new "
        "again. If not, look at what else the source sends."
    )
    new = Select(schema.CONTACT, schema.RAW).where(seen.condition(), compare(schema.CONTACT_NEW, "=", 1))
    rule = Rule(
        id=ID,
        title="First contact with an outside address",
        family="security",
        severity=Severity.WARNING,
        measures=conversations.measures(cluster, new, SHOWN_SECONDS, labels=conversations.LISTED),
        threshold=Threshold("first_contact_bytes", Comparison.ABOVE, cluster.thresholds.first_contact_bytes),
        annotations=conversations.annotations(source, destination, summary=summary, what_to_do=what_to_do),
        panel=panel_ref("egress", "contacts"),
    )
    return RuleSet((rule,), seen.skipped)
