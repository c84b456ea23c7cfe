"""Every rule against its cases, on InfluxDB 1.6: it fires with these words, and stays quiet on near misses."""

from pathlib import Path
from typing import Any

import pytest
from rule_cases import BASE, Case, all_cases, files

from cluster.load import load_cluster
from cluster.model import Retention, StoreSettings
from ingest.local_influxdb import LocalInfluxDB
from ingest.store import Store
from rules import texts
from rules.evaluate import Alert, Evaluator
from rules.model import Rule
from rules.registry import IDS, rules_of

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")
RULES = rules_of(CLUSTER)
FOREVER = 0
"""Retention in seconds: the cases' points are of a fixed day."""

CASES = all_cases()


def _store(server: LocalInfluxDB, database: str, case: Case) -> Store:
    store = Store(StoreSettings(url=server.url, database=database))
    names = [] if case.content.get("fault") == "no retention" else ["raw"]
    store.ensure(tuple(Retention(name, 10, FOREVER) for name in names))
    if lines := case.lines():
        store.write(lines, "raw")
    return store


def _common(rule: Rule) -> dict[str, str]:
    return {"alertname": rule.title, "grafana_folder": "clusterflow", "rule": rule.id, "severity": rule.severity.value}


def _told(rule: Rule, alert: Alert, expected: dict[str, Any]) -> dict[str, Any]:
    """Return of an alert what the case speaks of, in the case's own form."""
    after_base = {
        name: None if value is None else value - BASE
        for name, value in (("active_at", alert.active_at), ("fired_at", alert.fired_at))
    }
    own = {name: value for name, value in alert.labels.items() if _common(rule).get(name) != value}
    told: dict[str, Any] = {
        "state": alert.state.value,
        "labels": own,
        "reason": alert.reason,
        "active_at": after_base["active_at"],
    }
    if alert.fired_at is not None:
        told["fired_at"] = after_base["fired_at"]
    if "values" in expected:
        told["values"] = {name: pytest.approx(value) for name, value in alert.values.items()}
    for name in ("annotations", "extra_annotations"):
        if name in expected:
            told[name] = {text: alert.annotations.get(text) for text in expected[name]}
    if "error" in expected:
        assert expected["error"] in alert.error
        assert expected["error"] in alert.annotations["Error"]
        told["error"] = expected["error"]
    return told


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.name}")
def test_case(case: Case, influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    rule = RULES.rule(case.rule)
    evaluator = Evaluator(_store(influxdb_v1, fresh_database, case), [rule])
    expected = {entry["at"]: entry["alerts"] for entry in case.content["expect"]}
    start = case.content.get("start", min(0, *expected))
    for now, _ in evaluator.run(BASE + start, BASE + max(expected)):
        if now - BASE not in expected:
            continue
        wanted = [{"reason": "", **alert} for alert in expected.pop(now - BASE)]
        alerts = evaluator.alerts()
        assert [_told(rule, alert, want) for alert, want in zip(alerts, wanted, strict=False)] == wanted
        assert len(alerts) == len(wanted), f"at {now - BASE}: {alerts}"
    assert not expected, f"never evaluated at {list(expected)}"


def test_every_rule_has_its_cases() -> None:
    """Each fires, nearly fires, has no data, and meets a broken store."""
    assert {path.stem for path in files()} == set(IDS)
    for rule_id in IDS:
        names = [case.name for case in CASES if case.rule == rule_id]
        for kind in ("near miss", "no data", "query error"):
            assert any(name.startswith(kind) for name in names), f"{rule_id}: no case of kind {kind!r}"


@pytest.mark.parametrize("rule", RULES.rules, ids=lambda rule: rule.id)
def test_a_case_gives_every_fact_of_the_rule(rule: Rule) -> None:
    """All texts of a firing alert stand in the case file, word by word, but the advice."""
    given: set[str] = set()
    for case in CASES:
        if case.rule == rule.id:
            for entry in case.content["expect"]:
                for alert in entry["alerts"]:
                    given |= set(alert.get("annotations", {}))
    assert given >= {name for name, _ in rule.annotations} - {texts.WHAT_TO_DO}
