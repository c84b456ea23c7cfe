"""Every rule against its cases, on InfluxDB 1.6: it fires with these words, and stays quiet on near misses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.load import load_cluster
from rules.common import texts
from rules.evaluate.case_runs import run_case
from rules.evaluate.cases import Case, find_files, load_cases, missing_kinds
from rules.registry import IDS, rules_of
from rules.rule import Rule
from simulate.scenarios.case_scenarios import Scenarios
from store.local_influxdb import LocalInfluxDB

FOLDER = Path(__file__).parent
FILES = find_files([FOLDER])
CASES = [case for file in FILES for case in load_cases(file, FOLDER / "cluster.yaml")]
RULES = rules_of(load_cluster(FOLDER / "cluster.yaml"))


@pytest.fixture(scope="module")
def scenarios(influxdb_v1: LocalInfluxDB) -> Iterator[Scenarios]:
    with Scenarios(influxdb_v1.url) as played:
        yield played


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.name}")
def test_case(case: Case, influxdb_v1: LocalInfluxDB, scenarios: Scenarios) -> None:
    outcome = run_case(case, influxdb_v1.url, scenarios.stage)
    assert outcome.is_right, "\n".join([str(case), *outcome.differences])


def test_a_scenario_is_among_the_cases() -> None:
    """What is played through bridge and analysis is as much a case as points are."""
    assert any(case.scenario for case in CASES)


def test_every_rule_has_its_cases() -> None:
    """Each fires, nearly fires, has no data, and meets a broken store; its file has its name."""
    assert {path.stem for path in FILES} == set(IDS)
    assert all(case.file.stem == case.rule for case in CASES)
    assert not missing_kinds(CASES)


@pytest.mark.parametrize("rule", RULES.rules, ids=lambda rule: rule.id)
def test_a_case_gives_every_fact_of_the_rule(rule: Rule) -> None:
    """All texts of a firing alert stand in the case file, word by word, but the advice."""
    given = {
        name
        for case in CASES
        if case.rule == rule.id
        for moment in case.moments
        for alert in moment.alerts
        for name, _ in alert.annotations
    }
    assert given >= {name for name, _ in rule.annotations} - {texts.WHAT_TO_DO}
