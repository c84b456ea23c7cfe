"""Clients send an inference group much more than at this time of the week in earlier weeks."""

from app.units import format_duration
from cluster.model import Cluster, Role
from dashboards.registry import panel_ref
from rules.common import texts, verdicts
from rules.common.freshness import fresh_seconds
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, compare, is_in
from store.schema import LoadState

ID = "inference_spike"

_FIELDS = (schema.SPIKE_FOR, schema.LOAD_BYTES, schema.LOAD_EXPECTED, schema.LOAD_UPPER, schema.WEEKS)
_SINCE, _LOAD, _EXPECTED, _UPPER, _WEEKS = (field.name for field in _FIELDS)
"""The measures, named as they are stored."""

_MINUTE = 60
_LENGTH = "5m"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for the inference groups."""
    groups = tuple(group.id for group in cluster.groups_with(Role.INFERENCE))
    if not groups:
        raise NoRuleError(ID, "no group has the role inference")
    limits = cluster.thresholds
    title = texts.group_title(cluster, schema.GROUP, groups)
    summary = (
        f"Clients sent {texts.bytes_of(_LOAD)} to {title} in {_LENGTH}, against {texts.bytes_of(_EXPECTED)} at this "
        f"time of the week: above the limit of {texts.bytes_of(_UPPER)} for {texts.duration_of(_SINCE)} (alerts "
        f"after {format_duration(limits.inference_spike_for)})."
    )
    what_to_do = (
        "Look on the Inference board which client group grew, and which clients. A launch or a retry loop of one "
        "client is likelier than an attack; slow it down before the nodes do."
    )
    # Rows come once a minute, so the newest may be a minute older than other verdicts.
    since = fresh_seconds(cluster) + _MINUTE
    stored = Select(schema.INFERENCE_LOAD, schema.RAW).where(is_in(schema.GROUP, groups)).by(schema.GROUP)
    # Groups that are ok, or learn, give no series.
    is_spike = compare(schema.LOAD_STATE, "=", LoadState.SPIKE)
    rule = Rule(
        id=ID,
        title="Inference load is far above its usual",
        family="security",
        severity=Severity.WARNING,
        measures=verdicts.measures(
            stored, {field.name: field for field in _FIELDS}, since, "groups with a spike", is_spike
        ),
        threshold=Threshold("inference_spike_for", Comparison.AT_LEAST, limits.inference_spike_for),
        annotations=texts.annotations(
            summary=summary,
            source="all its clients together",
            destination=title,
            protocol="all services",
            size=f"{texts.bytes_of(_LOAD)} in {_LENGTH}, {texts.bytes_of(_EXPECTED)} expected",
            duration=texts.duration_of(_SINCE),
            more=((_UPPER, texts.bytes_of(_UPPER)), (_WEEKS, texts.whole(_WEEKS))),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("inference", "load"),
        group_by=("rule", schema.GROUP),
    )
    return RuleSet((rule,), ())
