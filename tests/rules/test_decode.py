"""Rules that come back from the file as they went into it."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from app.errors import UserError
from cluster.load import load_cluster
from rules.grafana.decode import rules_from_text
from rules.grafana.encode import rule_entry, rules_text
from rules.registry import rules_of
from rules.rule import Rule

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")
RULES = rules_of(CLUSTER)


@pytest.fixture(scope="module")
def read() -> dict[str, Rule]:
    """The rules as they came back, by their ids. Each test process imports this file, one runs it."""
    return {rule.id: rule for rule in rules_from_text(rules_text(CLUSTER, RULES), "rules.yaml")}


@pytest.mark.parametrize("rule", RULES.rules, ids=lambda rule: rule.id)
def test_a_rule_that_was_read_is_written_alike(rule: Rule, read: dict[str, Rule]) -> None:
    """Grafana's form has no names of measures and no groupings of notifications; the rest is all there."""
    assert rule_entry(CLUSTER, read[rule.id]) == rule_entry(CLUSTER, rule)
    assert (read[rule.id].interval, read[rule.id].family) == (rule.interval, rule.family)


def test_what_people_call_a_rule_is_no_variable_of_grafanas() -> None:
    """It takes $5 of a title, a group's name or a label for the environment's variable 5, which there is none of."""
    own = replace(RULES.rules[0], title="Costs more than $500", family="own $rules", labels=(("team", "a$b"),))
    text = rules_text(CLUSTER, replace(RULES, rules=(own,)))
    (group,) = yaml.safe_load(text)["groups"]
    (entry,) = group["rules"]
    assert (entry["title"], group["name"], entry["labels"]["team"]) == ("Costs more than $$500", "own $$rules", "a$$b")
    (read,) = rules_from_text(text, "rules.yaml")
    assert (read.title, read.family, read.labels) == (own.title, own.family, own.labels)


def test_the_committed_file_is_read() -> None:
    path = REPOSITORY / "provisioning/grafana/alerting/rules.yaml"
    assert len(rules_from_text(path.read_text(encoding="utf-8"), str(path))) > 5


@pytest.mark.parametrize("text", ["", "a: 1", "groups: 3", "groups: [{name: a}]", "{", "groups: [{rules: [{}]}]"])
def test_another_file_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match=r"mine\.yaml: not rules as `clusterflow build` writes them"):
        rules_from_text(text, "mine.yaml")


def test_a_condition_that_is_none_of_ours_is_refused() -> None:
    text = rules_text(CLUSTER, replace(RULES, rules=RULES.rules[:1])).replace("expression: B", "expression: E")
    with pytest.raises(UserError, match="the condition is no threshold of the first query"):
        rules_from_text(text, "mine.yaml")
