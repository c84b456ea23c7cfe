"""A client asks a service of inference from a country that the service has not seen before."""

from app.units import format_duration, format_size
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, inference_clients, texts
from rules.rule import Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Query, Select, lowest

ID = "inference_unusual_country"

_LABELS = (*conversations.LOCATED, schema.USER)
_SINCE = schema.CONTACT_FIRST.name


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for the groups that may ask, where cluster.yaml has files that know countries."""
    seen = inference_clients.watched(cluster, ID, may=True)
    if not cluster.geography.files:
        raise NoRuleError(ID, "cluster.yaml has no geography")
    limits = cluster.thresholds
    client, server = inference_clients.known_client(cluster, seen), inference_clients.server(cluster, seen)
    service = f"the service {{{{ $labels.{schema.SERVICE} }}}} of {inference_clients.server_group(cluster, seen)}"
    country = f"{{{{ $labels.{schema.COUNTRY} }}}}"
    summary = (
        f"{client} sent {texts.bytes_of('bytes')} to {server} within {format_duration(limits.inference_window)}. "
        f"Before {texts.moment_of(_SINCE)}, {service} had no client from {country} (alerts above "
        f"{format_size(limits.unusual_country_bytes)})."
    )
    what_to_do = (
        "Ask the user whether they are there. If nobody is, take the account or key for stolen: lock it, and look at "
        "what was asked: `clusterflow access` lists it. If it belongs there, let it be: after a day it is known."
    )
    asked = Select(schema.UNUSUAL_COUNTRY, schema.UNUSUAL_COUNTRY.kept).where(seen.condition())
    measures = inference_clients.judged(cluster, asked, labels=_LABELS)
    rule = Rule(
        id=ID,
        title="Inference is asked from an unusual country",
        family="security",
        severity=Severity.WARNING,
        measures=(*measures, Measure(_SINCE, _first(asked), measures[0].since, measures[0].until)),
        threshold=Threshold("unusual_country_bytes", Comparison.ABOVE, limits.unusual_country_bytes),
        annotations=conversations.annotations(
            client,
            server,
            summary=summary,
            more=((schema.COUNTRY, f"{country}, new to {service} since {texts.moment_of(_SINCE)}"),),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("inference_access", "countries"),
        # Whoever comes from there in its first hours is one message.
        group_by=("rule", schema.DST_GROUP, schema.COUNTRY),
    )
    return RuleSet((rule,), seen.skipped)


def _first(asked: Select) -> Query:
    return asked.take(lowest(schema.CONTACT_FIRST)).by(*_LABELS).per_series("Since when the service sees the country.")
