"""Hours of inference: judged by ingest where they hold for all, by the analysis where a list may say otherwise."""

from dataclasses import replace
from datetime import time
from pathlib import Path

import pytest

from cluster.load import load_cluster
from cluster.model import (
    AccessEntry,
    Cluster,
    Geography,
    IdentitySettings,
    Inference,
    InferenceHours,
    SignInFormat,
    SignInSource,
)
from rules.alerts.security import inference_access_denied, inference_off_window, inference_unusual_country
from rules.rule import RuleSet, built

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")
HOURS = CLUSTER.inference.hours
NIGHT = InferenceHours(time(22), time(6))


def of_hours(inference: Inference) -> RuleSet:
    cluster: Cluster = replace(CLUSTER, inference=inference)
    return built(inference_off_window.build, cluster)


def test_without_a_list_ingest_says_what_lies_outside() -> None:
    (rule,) = of_hours(Inference(HOURS)).rules
    assert '"raw"."inference"' in rule.measures[0].query.influxql
    assert "\"off_window\" = 'yes'" in rule.measures[0].query.influxql
    summary = dict(rule.annotations)["summary"]
    assert "outside the hours of inference (07:00-20:00 Europe/Amsterdam, not on weekends): more than 1 MB." in summary


@pytest.mark.parametrize(
    "inference", [Inference(HOURS, (), (AccessEntry(),)), Inference(None, (), (AccessEntry(hours=NIGHT),))]
)
def test_with_a_list_the_analysis_does(inference: Inference) -> None:
    (rule,) = of_hours(inference).rules
    assert '"raw"."access_breach"' in rule.measures[0].query.influxql
    assert "\"kind\" = 'hours'" in rule.measures[0].query.influxql


@pytest.mark.parametrize("inference", [Inference(), Inference(None, (), (AccessEntry(users=("alice",)),))])
def test_where_nobody_has_hours_there_is_no_such_rule(inference: Inference) -> None:
    found = of_hours(inference)
    assert found.rules == ()
    assert [skipped.reason for skipped in found.skipped] == ["cluster.yaml has no inference.hours"]


def test_without_files_that_know_countries_none_is_unusual() -> None:
    found = built(inference_unusual_country.build, replace(CLUSTER, geography=Geography()))
    assert found.rules == ()
    assert [skipped.reason for skipped in found.skipped] == ["cluster.yaml has no geography"]


def test_without_a_list_nobody_is_denied() -> None:
    found = built(inference_access_denied.build, replace(CLUSTER, inference=Inference(HOURS)))
    assert found.rules == ()
    assert [skipped.reason for skipped in found.skipped] == ["cluster.yaml has no inference.access"]


@pytest.mark.parametrize(("delay", "sources", "later"), [(600, 1, 600), (600, 0, 0), (0, 1, 0)])
def test_rules_about_users_look_where_the_analysis_has_judged(delay: int, sources: int, later: int) -> None:
    """It waits for exports of sign-ins, where there are any; the window is as long as ever."""
    source = SignInSource("gateway", SignInFormat.OKTA_JSON, "okta.jsonl")
    cluster = replace(CLUSTER, identity=IdentitySettings((source,) * sources, delay=delay))
    for module in (inference_access_denied, inference_off_window, inference_unusual_country):
        (rule,) = built(module.build, cluster).rules
        ranges = {(measure.since, measure.until) for measure in rule.measures}
        assert ranges == {(cluster.thresholds.inference_window + later, later)}
