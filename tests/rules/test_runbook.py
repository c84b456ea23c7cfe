"""The runbook as a board: a panel for every rule, links that lead to panels, and an address of the site's own."""

import json
import re
from dataclasses import replace
from pathlib import Path

from cluster.load import load_cluster
from cluster.model import GrafanaSettings
from rules import runbook
from rules.registry import IDS, MODULES, rules_of
from rules.rule import RuleSet

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")
RULE_SET = rules_of(CLUSTER)
BOARD = json.loads(runbook.board(CLUSTER, RULE_SET))
TEXTS = {panel["id"]: panel["options"]["content"] for panel in BOARD["panels"]}


def test_every_rule_has_a_panel_of_its_own() -> None:
    numbers = {rule.id: runbook.panel_id(rule.id) for rule in RULE_SET.rules}
    assert len(set(numbers.values())) == len(IDS)
    for rule in RULE_SET.rules:
        assert f"**{rule.title}** · {rule.severity.value}" in TEXTS[numbers[rule.id]]


def test_ids_of_panels_stay_what_sent_alerts_name() -> None:
    assert (runbook.panel_id("exfil_volume"), runbook.panel_id("node_dropout")) == (747010, 713183)


def test_links_lead_to_panels_of_the_board() -> None:
    found = [link for text in TEXTS.values() for link in re.findall(r"\]\(([^)]+)\)", text)]
    inside = [link for link in found if link.startswith("./cf-runbook?viewPanel=")]
    assert len(inside) > 10
    assert all(int(link.rpartition("=")[2]) in TEXTS for link in inside)
    assert all("://" in link for link in found if link not in inside), "a relative link leads nowhere in Grafana"


def test_panels_do_not_overlap() -> None:
    row = 0
    for place in (panel["gridPos"] for panel in BOARD["panels"]):
        assert (place["y"], place["x"], place["w"]) == (row, 0, 24)
        row += place["h"]


def test_a_rule_of_the_sites_own_says_what_to_do() -> None:
    rule = replace(RULE_SET.rules[0], id="backup_size", annotations=(("what_to_do", "Ask who added what."),))
    panels = json.loads(runbook.board(CLUSTER, RuleSet((rule,), ())))["panels"]
    (text,) = (panel["options"]["content"] for panel in panels if panel["id"] == runbook.panel_id("backup_size"))
    assert "**Do:** Ask who added what." in text


def test_a_runbook_of_the_sites_own_comes_first() -> None:
    own = replace(
        CLUSTER, grafana=GrafanaSettings(url="https://g.example.org/", runbook_url="https://wiki.example.org/r")
    )
    assert runbook.address(own, "exfil_volume") == "https://wiki.example.org/r#exfil_volume"
    ours = replace(own, grafana=replace(own.grafana, runbook_url=None))
    assert runbook.address(ours, "exfil_volume") == "https://g.example.org/d/cf-runbook?viewPanel=747010"


def test_a_rule_lies_in_the_folder_of_its_family() -> None:
    folders = {rule_id: module.__name__.split(".")[2] for rule_id, module in MODULES.items()}
    assert {rule.id: rule.family for rule in RULE_SET.rules} == {rule.id: folders[rule.id] for rule in RULE_SET.rules}
