"""The alerting files: the shape that a real Grafana was seen to accept, and what must never be in them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.document import Parser
from cluster.load import load_cluster
from cluster.model import (
    AlertsFrom,
    Cluster,
    DeclaredTransport,
    DeliverySettings,
    GroupPair,
    NotificationTarget,
    Secret,
    Thresholds,
    Transport,
)
from dashboards import provision
from dashboards.registry import BOARDS, FOLDER
from rules import runbook
from rules.common import texts
from rules.grafana import encode, history_contact, notices
from rules.grafana.encode import (
    CONTACT_POINTS,
    DEFAULT_CONTACT,
    POLICIES,
    RULES,
    TEMPLATES,
    contact_points,
    policies,
    rule_entry,
    tombstone_uids,
)
from rules.registry import IDS, rules_of
from rules.rule import Rule, RuleSet, Skipped

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")
REPOSITORY = Path(__file__).resolve().parents[2]
RUNBOOK = REPOSITORY / "docs/runbook.md"
WEBHOOK = NotificationTarget("noc", "webhook", secrets=(("url", Secret(env="NOC_URL")),))
PAGER = NotificationTarget(
    "on call", "pagerduty", secrets=(("integrationKey", Secret(file="/run/secrets/pager")),), severities=("critical",)
)

# Keys that the verified file has (Grafana 12.3.0, loaded without a warning, evaluated, notified).
RULE_KEYS = {
    "uid", "title", "condition", "for", "keepFiringFor", "missing_series_evals_to_resolve", "noDataState",
    "execErrState", "isPaused", "labels", "annotations", "data",
}  # fmt: skip


def _loaded(cluster: Cluster, path: str) -> dict[str, Any]:
    content = yaml.load(artefacts(cluster)[path], Parser)  # noqa: S506 - a safe loader
    assert isinstance(content, dict)
    assert content["apiVersion"] == 1
    return content


def artefacts(cluster: Cluster) -> dict[str, str]:
    return encode.artefacts(cluster, rules_of(cluster))


def _entries(cluster: Cluster = CLUSTER) -> dict[str, dict[str, Any]]:
    return {rule["uid"]: rule for group in _loaded(cluster, RULES)["groups"] for rule in group["rules"]}


def test_same_cluster_same_text() -> None:
    assert artefacts(CLUSTER) == artefacts(load_cluster(Path(__file__).parent / "cluster.yaml"))


def test_every_rule_is_there_under_its_id() -> None:
    assert tuple(_entries()) == IDS


@pytest.mark.parametrize("rule", rules_of(CLUSTER).rules, ids=lambda rule: rule.id)
def test_shape_of_a_rule(rule: Rule) -> None:
    entry = rule_entry(CLUSTER, rule)
    assert set(entry) == RULE_KEYS
    assert entry["condition"] == "C"
    assert len(entry["uid"]) <= 40
    queries = [item for item in entry["data"] if item["datasourceUid"] != "__expr__"]
    expressions = {item["refId"]: item["model"] for item in entry["data"] if item["datasourceUid"] == "__expr__"}
    assert len({item["refId"] for item in entry["data"]}) == len(entry["data"])
    for item in queries:
        assert set(item) == {"refId", "relativeTimeRange", "datasourceUid", "model"}
        assert item["datasourceUid"] == CLUSTER.grafana.datasource_uid
        assert item["model"]["rawQuery"] is True
        assert item["model"]["resultFormat"] == "time_series"
        assert item["model"]["refId"] == item["refId"]
        assert "$timeFilter" in item["model"]["query"]
        assert "${" not in item["model"]["query"], "dashboard variables are not expanded in rules"
        assert item["relativeTimeRange"]["from"] > item["relativeTimeRange"]["to"] >= 0
    reduced = {model["expression"] for model in expressions.values() if model["type"] == "reduce"}
    assert reduced == {item["refId"] for item in queries}
    condition = expressions["C"]
    assert condition["type"] == "threshold"
    assert condition["conditions"][0]["evaluator"] == {
        "type": rule.threshold.comparison.value,
        "params": [rule.threshold.value],
    }
    assert expressions[condition["expression"]]["expression"] == queries[0]["refId"]


@pytest.mark.parametrize("rule", rules_of(CLUSTER).rules, ids=lambda rule: rule.id)
def test_texts_and_links_of_a_rule(rule: Rule) -> None:
    entry = rule_entry(CLUSTER, rule)
    annotations = entry["annotations"]
    assert set(texts.REQUIRED) <= set(annotations)
    assert all(annotations.values())
    panels = {(board.uid, str(number)) for board in BOARDS.values() for number in range(1, len(board.panels) + 1)}
    assert (annotations["__dashboardUid__"], annotations["__panelId__"]) in panels
    assert annotations["runbook_url"] == f"{CLUSTER.grafana.url}/d/cf-runbook?viewPanel={runbook.panel_id(rule.id)}"
    assert entry["labels"] == {"rule": rule.id, "severity": rule.severity.value}
    # Newer Grafanas expand ${VAR} in annotations, and all expand $VAR in labels and titles.
    assert not any("${" in text for text in annotations.values())
    assert not any("$" in text for text in (entry["uid"], entry["title"], *entry["labels"].values()))


def test_first_measure_is_compared_with_the_named_threshold() -> None:
    """The numbers of cluster.yaml reach Grafana."""
    limits = Thresholds(exfil_volume=7, exfil_window=60, off_hours_bytes=8, dropout_for=90, exporter_silent=44)
    entries = _entries(replace(CLUSTER, thresholds=limits))
    params = {uid: entry["data"][-1]["model"]["conditions"][0]["evaluator"]["params"] for uid, entry in entries.items()}
    assert params["exfil_volume"] == [7]
    assert params["off_hours_transfer"] == [8]
    assert params["node_dropout"] == [90]
    assert params["exporter_silent"] == [44]
    assert entries["exfil_volume"]["data"][0]["relativeTimeRange"] == {"from": 60, "to": 0}


@pytest.mark.thorough
def test_rules_of_one_group_share_their_interval() -> None:
    for group in _loaded(CLUSTER, RULES)["groups"]:
        assert group["folder"] == FOLDER == provision.FOLDER
        (seconds,) = {rules_of(CLUSTER).rule(rule["uid"]).interval for rule in group["rules"]}
        assert group["interval"] == f"{seconds}s"
        # Grafana's smallest; and nothing waits longer than a minute.
        assert seconds in (10, 60)


def test_no_rule_depends_on_what_grafana_13_changed() -> None:
    """Grafana 12 and 13 differ in whether `for` delays NoData and Error."""
    assert all(rule.pending_for == 0 for rule in rules_of(CLUSTER).rules)


# What cannot be seen ------------------------------------------------------------------------------


def _declared(*pairs: tuple[str, str, Transport]) -> Cluster:
    transport = tuple(DeclaredTransport(GroupPair(src, dst), kind) for src, dst, kind in pairs)
    return replace(CLUSTER, transport=transport)


def test_invisible_collectives_give_no_dropout_rule() -> None:
    cluster = _declared(("training", "training", Transport.INFINIBAND))
    rule_set = rules_of(cluster)
    gone = {
        "node_dropout",
        "dropout_digest",
        "cohort_slowdown",
        "job_stalled",
        "held_silent",
        "rail_low",
        "packet_size_low",
    }
    assert not gone & {rule.id for rule in rule_set.rules}
    newly = set(rule_set.skipped) - set(rules_of(CLUSTER).skipped)
    assert {entry.id for entry in newly} == gone
    (skipped,) = (entry for entry in newly if entry.id == "node_dropout")
    assert str(skipped) == ("node_dropout: training -> training: declared as infiniband, which flow records do not see")
    text = artefacts(cluster)[RULES]
    assert f"# Not generated: {skipped}\n" in text
    assert {"orgId": 1, "uid": "node_dropout"} in _loaded(cluster, RULES)["deleteRules"]


def test_what_is_left_out_for_one_reason_is_one_line() -> None:
    """Of 200 groups, build told of 80 lines, one a group without nodes: nobody reads the others among them."""
    left_out = tuple(Skipped("shadow_node", f"g{number}", "no nodes") for number in range(7))
    lines = RuleSet((), (*left_out, Skipped("incast", "g1", "no nodes"))).skipped_lines()
    assert lines == ["shadow_node: g0, g1, g2, g3, g4 and 2 more: no nodes", "incast: g1: no nodes"]


def test_first_sessions_are_asked_for_without_a_list_of_pairs() -> None:
    """Of 200 groups each of five queries had 126 kB, and took InfluxDB a second and more to read."""
    assert all(len(one.query.influxql) < 200 for one in rules_of(CLUSTER).rule("first_management_session").measures)


def test_roce_that_sflow_samples_is_judged_like_tcp() -> None:
    assert rules_of(_declared(("training", "training", Transport.ROCE_SAMPLED))) == rules_of(CLUSTER)


def test_an_invisible_pair_leaves_the_rest_of_a_rule() -> None:
    rule_set = rules_of(_declared(("model_storage", "partner", Transport.ROCE)))
    query = rule_set.rule("off_hours_transfer").measures[0].query.influxql
    assert "'external'" in query
    assert "'partner'" not in query
    # Training still talks to both.
    contacts = rule_set.rule("first_external_contact").measures[0].query.influxql
    assert "(\"src_group\" = 'training') AND ((\"dst_group\" = 'external' OR \"dst_group\" = 'partner'))" in contacts
    fewer = set(rule_set.skipped) - set(rules_of(CLUSTER).skipped)
    assert {skipped.id for skipped in fewer} >= {
        "off_hours_transfer", "first_external_contact", "low_and_slow_24h", "low_and_slow_7d", "segmentation_violation",
        "threat_match",
    }  # fmt: skip
    assert rule_set.missing_ids() == ()


def test_a_cluster_without_the_groups_says_so() -> None:
    bare = replace(CLUSTER, groups=(CLUSTER.group("storage"),), nodes=(), exporters=())
    rule_set = rules_of(bare)
    assert {rule.family for rule in rule_set.rules} == {"pipeline", "slow", "segmentation", "security"}
    assert set(rule_set.missing_ids()) == set(IDS) - {rule.id for rule in rule_set.rules}
    assert [entry["uid"] for entry in _loaded(bare, RULES)["deleteRules"]] == list(tombstone_uids(rule_set))


# Contact points, policies, templates --------------------------------------------------------------


def test_without_targets_alerts_go_to_nobody_but_all_is_valid() -> None:
    (point,) = contact_points(CLUSTER)
    assert point["name"] == DEFAULT_CONTACT
    assert point["receivers"][0]["settings"]["addresses"].endswith(".invalid")
    tree = policies(CLUSTER, rules_of(CLUSTER))
    assert tree["receiver"] == DEFAULT_CONTACT
    assert tree["routes"] == []


def test_secrets_are_references() -> None:
    cluster = replace(CLUSTER, notify=(WEBHOOK, PAGER))
    content = _loaded(cluster, CONTACT_POINTS)["contactPoints"]
    settings = {point["name"]: point["receivers"][0]["settings"] for point in content}
    assert settings["noc"]["url"] == "$__env{NOC_URL}"
    assert settings["on call"]["integrationKey"] == "$__file{/run/secrets/pager}"
    assert {point["receivers"][0]["uid"] for point in content} == {"cf-noc", "cf-on-call"}


def test_grafana_tells_the_history_of_every_alert_where_it_evaluates() -> None:
    hook = DeliverySettings(
        alerts=AlertsFrom.GRAFANA, token=Secret(file="/run/secrets/deliver"), url="http://deliver:9107/"
    )
    cluster = replace(CLUSTER, notify=(PAGER,), delivery=hook)
    points = {point["name"]: point["receivers"][0] for point in contact_points(cluster)}
    settings = points[history_contact.NAME]["settings"]
    assert settings["url"] == "http://deliver:9107/grafana"
    assert settings["authorization_credentials"] == "$__file{/run/secrets/deliver}"
    tree = policies(cluster, rules_of(cluster))
    exfil = {"alertname": "x", "rule": "exfil_volume", "severity": "critical", "src": "a"}
    assert _route(tree, exfil) == [(history_contact.NAME, ["rule"]), ("on call", ["rule", "src"])]
    # Our own evaluator needs nobody to tell it, and twice would be two histories.
    assert history_contact.receivers(CLUSTER) == []
    assert history_contact.routes(CLUSTER) == []


def test_plain_settings_win_and_are_not_expanded() -> None:
    target = replace(WEBHOOK, settings=(("title", "costs $5"), ("httpMethod", "PUT")))
    (point,) = contact_points(replace(CLUSTER, notify=(target,)))
    settings = point["receivers"][0]["settings"]
    assert settings["title"] == "costs $$5"
    assert settings["httpMethod"] == "PUT"
    assert settings["message"] == notices.MESSAGE


@pytest.mark.parametrize("kind", ["webhook", "email", "slack", "pagerduty", "teams", "opsgenie", "telegram"])
def test_every_receiver_type_gets_our_words(kind: str) -> None:
    said = str(notices.texts_of(kind))
    assert notices.TITLE in said or notices.MESSAGE in said


def _route(tree: dict[str, Any], labels: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Return receiver and grouping of every route that takes the labels, as Alertmanager walks the tree."""

    def takes(node: dict[str, Any]) -> bool:
        for name, operator, value in node.get("object_matchers", []):
            assert operator == "=~"
            if labels.get(name) not in value.split("|"):
                return False
        return True

    def walk(node: dict[str, Any], receiver: str, grouping: list[str]) -> list[tuple[str, list[str]]]:
        receiver, grouping = node.get("receiver", receiver), node.get("group_by", grouping)
        found: list[tuple[str, list[str]]] = []
        for child in node.get("routes", []):
            if takes(child):
                found += walk(child, receiver, grouping)
                if not child.get("continue"):
                    break
        return found or [(receiver, grouping)]

    return walk(tree, "", [])


def test_routes() -> None:
    """By severity to each target that wants it; grouped by rule and source, dropouts by job."""
    cluster = replace(CLUSTER, notify=(WEBHOOK, PAGER))
    tree = _loaded(cluster, POLICIES)["policies"][0]
    exfil = {"alertname": "x", "rule": "exfil_volume", "severity": "critical", "src": "a"}
    dropout = {"alertname": "x", "rule": "node_dropout", "severity": "critical", "job": "j"}
    contact = {"alertname": "x", "rule": "first_external_contact", "severity": "warning"}
    broken = {"alertname": "DatasourceError", "rule": "exfil_volume", "severity": "critical"}
    assert _route(tree, exfil) == [("noc", ["rule", "src"]), ("on call", ["rule", "src"])]
    assert _route(tree, dropout) == [("noc", ["rule", "job"]), ("on call", ["rule", "job"])]
    assert _route(tree, contact) == [("noc", ["rule", "src"])]
    assert _route(tree, broken) == [("noc", ["alertname"]), ("on call", ["alertname"])]
    assert tree["receiver"] == "noc"


def test_a_conversation_with_a_known_bad_address_is_one_message() -> None:
    """Both directions are alerts of their own; and of who is scanned each answers."""
    tree = policies(replace(CLUSTER, notify=(PAGER,)), rules_of(CLUSTER))
    common = {"alertname": "x", "rule": "threat_match", "severity": "critical", "indicator": "203.0.113.0/24"}
    ends = (("gpu-1", "203.0.113.9"), ("203.0.113.9", "gpu-1"), ("gpu-2", "203.0.113.9"))
    groups = set()
    for src, dst in ends:
        labels = common | {"src": src, "dst": dst}
        ((_, grouping),) = _route(tree, labels)
        groups.add(tuple(labels[name] for name in grouping))
    assert groups == {("threat_match", "203.0.113.0/24")}


def test_what_no_target_takes_goes_to_nobody() -> None:
    cluster = replace(CLUSTER, notify=(PAGER,))
    tree = policies(cluster, rules_of(cluster))
    contact = {"alertname": "x", "rule": "first_external_contact", "severity": "warning"}
    assert _route(tree, contact) == [(DEFAULT_CONTACT, ["rule", "src"])]
    assert DEFAULT_CONTACT in {point["name"] for point in contact_points(cluster)}


def test_the_message_names_every_fact() -> None:
    (template,) = _loaded(CLUSTER, TEMPLATES)["templates"]
    # The summary of a rule about a node names it.
    for name in (*texts.REQUIRED, texts.JOB, texts.COST, "runbook_url"):
        assert f".Annotations.{name} " in template["template"], name
    assert ".PanelURL" in template["template"]


# Runbook ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", rules_of(CLUSTER).rules, ids=lambda rule: rule.id)
def test_a_section_answers_the_six_questions(rule: Rule) -> None:
    section = RUNBOOK.read_text(encoding="utf-8").split(f"\n## {rule.id}\n")[1].split("\n## ")[0]
    parts = ("It means", "How sure", "Check, in this order", "When it is wrong", "Silence", "Threshold")
    places = [section.find(f"**{part}:**") for part in parts]
    assert -1 not in places, [part for part, place in zip(parts, places, strict=True) if place < 0]
    assert places == sorted(places), "in this order"
    assert rule.title in section
    assert f"· {rule.severity.value}" in section
    assert f"`{rule.threshold.name}`" in section
    assert f"`rule={rule.id}`" in section
