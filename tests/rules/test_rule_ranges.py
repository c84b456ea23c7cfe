"""Ranges of rules that depend on how often a process tells something."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from cluster.load import load_cluster
from cluster.model import CloudFormat, KafkaFormat
from rules.alerts.pipeline import collector_attacked, enrichment_stale, ingest_deadman, ingest_lag, relay_silent
from rules.registry import rules_of
from rules.rule import built

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")


def test_rules_of_a_cloud_look_where_its_late_records_are() -> None:
    """Within the newest minutes nothing is stored yet; what the pipeline says of itself is never late."""
    cloud = replace(CLUSTER, cloud=replace(CLUSTER.cloud, format=CloudFormat.AWS))
    late = replace(cloud, bridge=replace(CLUSTER.bridge, lateness=CLUSTER.bridge.lateness + 1190))
    ranges = [
        {rule.id: [(one.since, one.until) for one in rule.measures] for rule in rules_of(one).rules}
        for one in (cloud, late)
    ]
    # How old the newest reading of an exporter may be follows from the lateness by itself.
    moved = {name for name in ranges[0] if ranges[0][name] != ranges[1][name]} - {"exporter_silent"}
    assert moved == {rule.id for rule in rules_of(late).rules if rule.family != "pipeline"}
    for name in moved:
        assert ranges[1][name] == [(since + 1190, until + 1190) for since, until in ranges[0][name]]
    limits = (str(rules_of(one).rule("analysis_stalled").measures[0].query.influxql) for one in (cloud, late))
    assert ['"value" <= 120' in next(limits), '"value" <= 1310' in next(limits)] == [True, True]


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


@pytest.mark.parametrize("window", [1, 10, 60])
@pytest.mark.parametrize("told", [collector_attacked, ingest_deadman, ingest_lag])
def test_a_bridge_with_a_backlog_is_heard_within_every_range(told: ModuleType, window: int) -> None:
    """It speaks every three windows, of the beginning of one: else the dead man is called, and lateness comes and goes.

    Where limits are as short as they may be, too.
    """
    shortest = replace(CLUSTER.thresholds, ingest_silent=10, ingest_lag_for=0)
    for limits in (CLUSTER.thresholds, shortest):
        cluster = replace(CLUSTER, bridge=replace(CLUSTER.bridge, window=window), thresholds=limits)
        (rule,) = built(told.build, cluster).rules
        assert all(measure.since >= 3 * window + window for measure in rule.measures)


@pytest.mark.parametrize(("brokers", "form"), [((), KafkaFormat.CLUSTERFLOW), (("broker-1:9092",), KafkaFormat.PMACCT)])
def test_without_relays_none_is_missed(brokers: tuple[str, ...], form: KafkaFormat) -> None:
    found = built(relay_silent.build, replace(CLUSTER, kafka=replace(CLUSTER.kafka, brokers=brokers, format=form)))
    assert found.rules == ()
    assert [skipped.id for skipped in found.skipped] == ["relay_silent"]
