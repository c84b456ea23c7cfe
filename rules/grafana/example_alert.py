"""A realistic alert of any rule, without stored data: what `clusterflow notify` shows and sends."""

from dataclasses import dataclass

from cluster.model import EXTERNAL, Cluster, Role
from rules import runbook
from rules.evaluate.evaluator import annotator
from rules.evaluate.states import Outcome, Sample, labels_of
from rules.grafana.message import Told
from rules.rule import Comparison, NoDataPolicy, Rule, labels_of_grafana
from store import schema
from store.influxql import Unit

LASTED = 1080
"""Seconds from the beginning of the example to its end."""

_BEYOND = 1.2
"""How far the first number lies on the wrong side of its limit."""

_OUTSIDE = "203.0.113.9"
_BY_NAME = {"observed": 0.31, "expected": 1.0, "lower": 0.82, "usual": 0.06, "share": 0.42, "state": 2.0, "nodes": 16.0,
            "gpus": 128.0, "low": 5.0, "sources": 12.0, "trouble": 2.0}  # fmt: skip
# Where the name or the unit alone would make a number that cannot be.
_BY_RULE = {
    ("inference_spike", "expected"): 24e9,
    ("inference_spike", "upper"): 38e9,
    ("cohort_slowdown", "expected"): 52e9,
    ("cohort_slowdown", "lower"): 47e9,
    ("rail_low", "expected"): 220e9,
    ("packet_size_low", "size"): 1389.0,
    ("packet_size_low", "usual"): 4154.0,
    ("link_full", schema.SPEED.name): 400e9,
    ("ingest_lag", "backlog"): 3.5e9,
}
_BY_UNIT = {
    Unit.BYTES: 61_400_000_000.0,
    Unit.SECONDS: 612.0,
    Unit.RATIO: 0.42,
    Unit.USD: 384.0,
    Unit.BITS_PER_SECOND: 41_200_000_000.0,
    Unit.MOMENT: 1_767_225_600.0,
}
_COUNT = 14.0
_LABELS = {
    schema.PROTO: "tcp",
    schema.SERVICE: "https",
    schema.JOB: "llama-70b-0412",
    schema.NETWORK: "AS64500 Example",
    schema.COUNTRY: "NL",
    schema.NAME: "botnets",
    schema.KIND: "threat feed",
    schema.RELAY: "collector-1",
    schema.SHARD: "0",
    schema.REASON: "refused leaf-1",
    schema.STAGE: schema.Stage.WRITE.value,
    schema.INTERFACE: "uplink-1",
    schema.RAIL: "1",
    schema.WORST: "gpu-04 / gpu-05 / gpu-06",
    schema.FROM_JOB: "vision-7",
    schema.USER: "alice",
    schema.INDICATOR: "203.0.113.0/24",
    schema.DIRECTION: schema.OUTWARD,
}
_OF_PARTIES = {schema.SRC: schema.SRC_GROUP, schema.DST: schema.DST_GROUP, schema.NODE: schema.GROUP}
"""Labels that name a machine -> the labels of their groups."""


@dataclass(frozen=True, slots=True)
class Example:
    """An alert of a rule as it could come."""

    rule: Rule
    told: Told


def example_of(cluster: Cluster, rule: Rule, now: int, *, ended: bool = False) -> Example:
    """Return an alert of a rule that began `LASTED` seconds ago, with names of the cluster and numbers that fit it."""
    labels = {tag: _label(cluster, rule, tag) for tag in rule.measures[0].query.tags}
    sent = {name: text for name, text in labels.items() if text}
    values = {} if rule.no_data is NoDataPolicy.ALERTING else _values(rule)
    sample = Sample(Outcome.ALERTING, labels_of(labels), values)
    told = Told(
        labels={**labels_of_grafana(rule.title), **sent, **rule.all_labels()},
        annotations={**annotator(rule)(sample), "runbook_url": runbook.address(cluster, rule.id)},
        began=now - LASTED,
        ended=now if ended else None,
        dashboard_uid=rule.panel.dashboard_uid,
        panel_id=rule.panel.panel_id,
        values=values,
    )
    return Example(rule, told)


def _values(rule: Rule) -> dict[str, float]:
    found = {
        rule.reduced(position): _BY_RULE.get((rule.id, measure.name))
        or _BY_NAME.get(measure.name, _BY_UNIT.get(measure.query.unit, _COUNT))
        for position, measure in enumerate(rule.measures)
    }
    limit = rule.threshold
    # What is compared with a state, or decided by the query, needs no more than its own number.
    if limit.value > 0 and rule.measures[0].name not in _BY_NAME:
        low = limit.comparison in (Comparison.BELOW, Comparison.AT_MOST)
        found[rule.reduced(0)] = limit.value / _BEYOND if low else limit.value * _BEYOND
    return found


def _label(cluster: Cluster, rule: Rule, tag: str) -> str:
    if tag in _OF_PARTIES:
        return _party(cluster, _group(cluster, rule, _OF_PARTIES[tag]))
    if tag in _OF_PARTIES.values():
        return _group(cluster, rule, tag)
    if tag == schema.EXPORTER:
        return next((exporter.name for exporter in cluster.exporters), "leaf-1")
    if tag == schema.JOB_CLASS:
        return next((one.name for one in cluster.job_classes), "pretrain")
    tags = rule.measures[0].query.tags
    otherwise = _LABELS.get(tag, "")
    if tag == schema.FEED and schema.INDICATOR in tags:
        otherwise = _LABELS[schema.NAME]
    if tag == schema.KIND and schema.LARGEST in tags:
        otherwise = schema.Leak.BULK.value
    if tag == schema.LARGEST:
        otherwise = f"{_party(cluster, _group(cluster, rule, schema.SRC_GROUP))} -> {_OUTSIDE} 48 GB"
    return _asked(rule, tag) or otherwise


def _group(cluster: Cluster, rule: Rule, tag: str) -> str:
    """Return the first group that the rule's query names for a tag."""
    named, of_job = _asked(rule, tag), schema.JOB in rule.measures[0].query.tags
    if named or (tag == schema.DST_GROUP and not of_job):
        return named or EXTERNAL
    # What a thief wants, where the rule looks at every group.
    role = Role.TRAINING if of_job or tag == schema.GROUP else Role.MODEL_STORAGE
    return next((one.id for one in cluster.groups if one.role is role), cluster.groups[0].id)


def _asked(rule: Rule, tag: str) -> str:
    """Return the first value of a tag that the rule's query names; empty if it names none."""
    asked = rule.measures[0].query.select
    values = (pair for one in asked.levels() for term in one.conditions for pair in term.values) if asked else ()
    return next((value for name, value in values if name == tag and value), "")


def _party(cluster: Cluster, group: str) -> str:
    if group == EXTERNAL or cluster.group(group).is_outside:
        return _OUTSIDE
    return next((node.name for node in cluster.nodes if node.group == group), f"{group}-1")
