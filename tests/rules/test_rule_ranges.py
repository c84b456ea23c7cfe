"""Ranges of rules that depend on how often a process tells something."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.load import load_cluster
from rules import enrichment_stale

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")


@pytest.mark.parametrize("window", [1, 10, 60])
def test_a_bridge_with_a_backlog_has_told_of_its_lists_within_the_range(window: int) -> None:
    """It tells of them every three windows then; a range without a reading would end the alert, or never begin it."""
    cluster = replace(CLUSTER, bridge=replace(CLUSTER.bridge, window=window))
    (rule,) = enrichment_stale.build(cluster).rules
    assert all(measure.since >= 3 * window for measure in rule.measures)
    trouble = rule.measures[0]
    enough = int(trouble.query.influxql.partition('"readings" >= ')[2].split(")")[0].split()[0])
    assert 1 <= enough <= trouble.since // (3 * window)
