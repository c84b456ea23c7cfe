"""Write rules, contact points, policies and templates as Grafana's file provisioning reads them.

The shape is what Grafana 12.3 was seen to load, evaluate and notify. A misspelt key is ignored in silence there, so
the Grafana test reads every rule back. What Grafana expands: ``$VAR``, ``$__env{VAR}`` and ``$__file{path}`` in contact
point settings, titles, names of groups and labels (``pkg/services/provisioning/values``), ``${VAR}`` in annotations of
newer versions; queries and notification templates are taken as they stand.
"""

import re
from importlib.resources import files
from typing import Any

import yaml

from app.errors import UserError
from cluster.model import Cluster, NotificationTarget, Role
from dashboards.provision import PREFIX as GRAFANA
from dashboards.provision import reference
from dashboards.registry import FOLDER, RUNBOOK_FILE
from rules import runbook
from rules.evaluate.evaluator import ERROR_ALERT, NO_DATA_ALERT
from rules.grafana import history_contact, mute_times, notices
from rules.rule import CONDITION, Rule, RuleSet
from store import schema
from store.influxql import Query

PREFIX = f"{GRAFANA}/alerting"
"""Folder of the files below the provisioning folder."""

RULES = f"{PREFIX}/rules.yaml"
CONTACT_POINTS = f"{PREFIX}/contact-points.yaml"
POLICIES = f"{PREFIX}/policies.yaml"
TEMPLATES = f"{PREFIX}/templates.yaml"
MUTE_TIMES = f"{PREFIX}/mute-times.yaml"
RUNBOOK = f"{GRAFANA}/dashboards/{RUNBOOK_FILE}"

DEFAULT_CONTACT = "clusterflow-nobody"
"""Contact point of alerts that no target of cluster.yaml takes: they stay on the boards and are sent to nobody."""

_POLICIES_NOTE = (
    "Grafana replaces its whole policy tree by this one: leave the file out where others keep a tree there."
)
_NOBODY = "nobody@example.invalid"
"""Grafana demands an address. Under .invalid no mail can ever be delivered."""

_ORGANISATION = 1
_EXPRESSIONS = "__expr__"
_MAX_DATA_POINTS = 43_200
_UID_LENGTH = 40


_BY_SOURCE = ("rule", "src")
# Ten seconds: long enough to send the nodes of one broken job together, short enough to be told within a minute.
_TIMING = {"group_wait": "10s", "group_interval": "1m", "repeat_interval": "4h"}
# To people: what comes and goes within five minutes of a message is not told again. The first message never waits.
_PATIENCE = "5m"


def artefacts(cluster: Cluster, rule_set: RuleSet) -> dict[str, str]:
    """Return the alerting files, path below the provisioning folder -> text; the same text for the same cluster."""
    timings = mute_times.mute_times(cluster, _ORGANISATION)
    return {
        RULES: rules_text(cluster, rule_set),
        CONTACT_POINTS: _document(cluster, {"contactPoints": contact_points(cluster)}),
        POLICIES: _document(cluster, {"policies": [policies(cluster, rule_set)]}, [_POLICIES_NOTE]),
        RUNBOOK: runbook.board(cluster, rule_set),
        TEMPLATES: _document(cluster, {"templates": notices.templates(_ORGANISATION, cluster.site.time_zone.key)}),
        **({MUTE_TIMES: _document(cluster, {"muteTimes": timings})} if timings else {}),
    }


# Rules --------------------------------------------------------------------------------------------


def rules_text(cluster: Cluster, rule_set: RuleSet) -> str:
    """Return the rules' file; what is skipped stands in its head as a comment."""
    families: dict[str, list[Rule]] = {}
    for rule in rule_set.rules:
        families.setdefault(rule.family, []).append(rule)
    groups = []
    for family, rules in families.items():
        interval = rules[0].interval
        if odd := next((rule for rule in rules if rule.interval != interval), None):
            raise UserError(
                f"rule {odd.id} has an interval of {odd.interval} s, rule {rules[0].id} of the same family, {family}, "
                f"of {interval} s: expected one interval a family",
                "a rule of one's own may have a family of its own",
            )
        groups.append(
            {
                "orgId": _ORGANISATION,
                "name": literal(family),
                "folder": FOLDER,
                "interval": f"{interval}s",
                "rules": [rule_entry(cluster, rule) for rule in rules],
            }
        )
    tombstones = [{"orgId": _ORGANISATION, "uid": uid} for uid in tombstone_uids(rule_set)]
    content: dict[str, Any] = {"deleteRules": tombstones} if tombstones else {}
    notes = [f"Not generated: {line}" for line in rule_set.skipped_lines()]
    return _document(cluster, {**content, "groups": groups}, notes)


def removed_uids() -> tuple[str, ...]:
    """Return the uids of rules that were shipped once."""
    content = yaml.safe_load(files("rules.grafana").joinpath("removed.yaml").read_text(encoding="utf-8"))
    return tuple(content["removed"])


def tombstone_uids(rule_set: RuleSet) -> tuple[str, ...]:
    """Return the uids to delete: rules that are gone for good, and those that this cluster does not get."""
    return tuple(dict.fromkeys((*removed_uids(), *rule_set.missing_ids())))


def literal(text: str) -> str:
    """Return a text in which Grafana expands nothing."""
    return text.replace("$", "$$")


def rule_entry(cluster: Cluster, rule: Rule) -> dict[str, Any]:
    """Return one rule in Grafana's form."""
    queries = [_query(cluster, rule, position) for position in range(len(rule.measures))]
    reductions = [_reduction(rule, position) for position in range(len(rule.measures))]
    return {
        "uid": rule.id,
        "title": literal(rule.title),
        "condition": CONDITION,
        "for": f"{rule.pending_for}s",
        "keepFiringFor": f"{rule.keep_firing_for}s",
        "missing_series_evals_to_resolve": rule.missing_evaluations,
        "noDataState": rule.no_data.value,
        "execErrState": rule.on_error.value,
        "isPaused": False,
        "labels": {name: literal(text) for name, text in rule.all_labels().items()},
        "annotations": {
            "__dashboardUid__": rule.panel.dashboard_uid,
            "__panelId__": str(rule.panel.panel_id),
            "runbook_url": runbook.address(cluster, rule.id),
            **({"incident_url": pages} if (pages := cluster.delivery.incident_pages()) else {}),
            **{name: rule.template(text) for name, text in rule.annotations},
        },
        "data": [*queries, *reductions, _condition(rule)],
    }


def _query(cluster: Cluster, rule: Rule, position: int) -> dict[str, Any]:
    measure = rule.measures[position]
    letter = rule.asked(position)
    query: Query = measure.query
    return {
        "refId": letter,
        "relativeTimeRange": {"from": measure.since, "to": measure.until},
        "datasourceUid": cluster.grafana.datasource_uid,
        "model": {
            "refId": letter,
            "rawQuery": True,
            "resultFormat": query.shape.value,
            "query": query.influxql,
            "intervalMs": query.interval_ms,
            "maxDataPoints": _MAX_DATA_POINTS,
        },
    }


def _reduction(rule: Rule, position: int) -> dict[str, Any]:
    letter = rule.reduced(position)
    return {
        "refId": letter,
        "datasourceUid": _EXPRESSIONS,
        "model": {
            "refId": letter,
            "type": "reduce",
            "expression": rule.asked(position),
            "reducer": rule.measures[position].reducer.value,
            "settings": {"mode": "dropNN"},
        },
    }


def _condition(rule: Rule) -> dict[str, Any]:
    threshold = rule.threshold
    return {
        "refId": CONDITION,
        "datasourceUid": _EXPRESSIONS,
        "model": {
            "refId": CONDITION,
            "type": "threshold",
            "expression": rule.reduced(0),
            "conditions": [{"evaluator": {"type": threshold.comparison.value, "params": [threshold.value]}}],
        },
    }


# Contact points and policies ----------------------------------------------------------------------


def contact_points(cluster: Cluster) -> list[dict[str, Any]]:
    """Return a contact point for each target of cluster.yaml, and the one for alerts that nobody takes."""
    points = [
        {
            "orgId": _ORGANISATION,
            "name": target.name,
            "receivers": [{"uid": receiver_uid(target), "type": target.kind, "settings": settings(target)}],
        }
        for target in cluster.notify
    ]
    if history := history_contact.receivers(cluster):
        points.append({"orgId": _ORGANISATION, "name": history_contact.NAME, "receivers": history})
    if _catch_all(cluster) is None:
        nobody = {
            "uid": DEFAULT_CONTACT,
            "type": "email",
            "settings": {"addresses": _NOBODY, **notices.texts_of("email")},
        }
        points.append({"orgId": _ORGANISATION, "name": DEFAULT_CONTACT, "receivers": [nobody]})
    return points


def receiver_uid(target: NotificationTarget) -> str:
    """Return Grafana's uid of a target: letters, digits, - and _, 40 at most."""
    return f"cf-{re.sub(r'[^A-Za-z0-9_-]', '-', target.name)}"[:_UID_LENGTH]


def settings(target: NotificationTarget) -> dict[str, Any]:
    """Return a receiver's settings: our texts, then what cluster.yaml says, secrets by reference only."""
    plain = {name: literal(value) for name, value in target.settings}
    secret = {name: reference(where) for name, where in target.secrets}
    return {**notices.texts_of(target.kind), **plain, **secret}


def _catch_all(cluster: Cluster) -> str | None:
    return next((target.name for target in cluster.notify if not _matchers(cluster, target)), None)


def _matchers(cluster: Cluster, target: NotificationTarget) -> list[list[str]]:
    """Return which alerts a target gets; all if there are none."""
    severities = [["severity", "=~", "|".join(target.severities)]] if target.severities else []
    drills = [] if target.drills else [[schema.SRC_GROUP, "!=", group.id] for group in cluster.groups_with(Role.DRILL)]
    return [*severities, *drills]


def policies(cluster: Cluster, rule_set: RuleSet) -> dict[str, Any]:
    """Return the tree of notification policies: a route a target, by severity; below it one a way of grouping."""
    children = _grouping_routes(cluster, rule_set)
    routes = [
        {
            "receiver": target.name,
            **({"object_matchers": matchers} if (matchers := _matchers(cluster, target)) else {}),
            "group_by": list(_BY_SOURCE),
            "group_interval": _PATIENCE,
            # The next target gets the alert too.
            "continue": True,
            "routes": [{"receiver": target.name, **child} for child in children],
        }
        for target in cluster.notify
    ]
    routes = [*history_contact.routes(cluster), *routes]
    root = _catch_all(cluster) or DEFAULT_CONTACT
    return {"orgId": _ORGANISATION, "receiver": root, "group_by": list(_BY_SOURCE), **_TIMING, "routes": routes}


def _grouping_routes(cluster: Cluster, rule_set: RuleSet) -> list[dict[str, Any]]:
    """Return the routes for what maintenance mutes, and for what is not grouped by rule and source."""
    groupings: dict[tuple[str, ...], list[str]] = {}
    for rule in rule_set.rules:
        groupings.setdefault(rule.group_by, []).append(rule.id)
    # Faults of the data source first: when InfluxDB is away, all rules fail together, and one message tells it.
    faults = {"object_matchers": [["alertname", "=~", f"{ERROR_ALERT}|{NO_DATA_ALERT}"]], "group_by": ["alertname"]}
    return [
        faults,
        *mute_times.routes(cluster, rule_set.rules),
        *(
            {"object_matchers": [["rule", "=~", "|".join(ids)]], "group_by": list(labels)}
            for labels, ids in groupings.items()
            if labels != _BY_SOURCE
        ),
    ]


# Text ---------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Block style with indented lists, long lines kept whole, several lines as literal blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Write equal lists twice: provisioning files are read by people."""
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)


def _document(cluster: Cluster, content: dict[str, Any], notes: list[str] | None = None) -> str:
    head = [
        f"Generated by `clusterflow build` for the cluster {cluster.name}: change cluster.yaml or rules/, not this."
    ]
    comment = "".join(f"# {line}\n" for line in [*head, *(notes or [])])
    body = yaml.dump({"apiVersion": 1, **content}, Dumper=_Dumper, sort_keys=False, width=100_000, allow_unicode=True)
    return comment + body
