"""Ranges of rules that depend on how often a process tells something."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.load import load_cluster
from cluster.model import KafkaFormat
from rules.alerts import enrichment_stale, relay_silent
from rules.rule import built

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")


@pytest.mark.parametrize("window", [1, 10, 60])
def test_a_bridge_with_a_backlog_has_told_of_its_lists_within_the_range(window: int) -> None:
    """It tells of them every three windows then; a range without a reading would end the alert, or never begin it."""
    cluster = replace(CLUSTER, bridge=replace(CLUSTER.bridge, window=window))
    (rule,) = built(enrichment_stale.build, cluster).rules
    assert all(measure.since >= 3 * window for measure in rule.measures)
    trouble = rule.measures[0]
    enough = int(trouble.query.influxql.partition('"readings" >= ')[2].split(")")[0].split()[0])
    assert 1 <= enough <= trouble.since // (3 * window)


@pytest.mark.parametrize("window", [1, 10, 60])
def test_a_worker_with_a_backlog_has_told_of_its_relays_often_enough(window: int) -> None:
    """Else a relay that died would be told only once nothing waits any more."""
    cluster = replace(CLUSTER, bridge=replace(CLUSTER.bridge, window=window))
    (rule,) = built(relay_silent.build, cluster).rules
    age, backlog = rule.measures
    enough = int(age.query.influxql.partition('"readings" >= ')[2].split()[0])
    assert 3 <= enough <= age.since // (3 * window)
    assert backlog.since == age.since


@pytest.mark.parametrize(("brokers", "form"), [((), KafkaFormat.CLUSTERFLOW), (("broker-1:9092",), KafkaFormat.PMACCT)])
def test_without_relays_none_is_missed(brokers: tuple[str, ...], form: KafkaFormat) -> None:
    found = built(relay_silent.build, replace(CLUSTER, kafka=replace(CLUSTER.kafka, brokers=brokers, format=form)))
    assert found.rules == ()
    assert [skipped.id for skipped in found.skipped] == ["relay_silent"]
