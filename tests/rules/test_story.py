"""The story that is played to a real Grafana holds what it is there for; this needs no Grafana."""

from dataclasses import replace
from pathlib import Path

import pytest
import story

from cluster.load import load_cluster
from cluster.model import Retention
from rules.evaluate.cases import BEGINS
from rules.evaluate.evaluator import Evaluator
from rules.registry import IDS, rules_of
from rules.rule import Rule
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")


@pytest.fixture(scope="module")
def played(influxdb_v1: LocalInfluxDB) -> Store:
    store = Store(replace(CLUSTER.store, url=influxdb_v1.url, database="story"))
    store.ensure(tuple(Retention(one.name, one.window, 0) for one in CLUSTER.retentions()))
    story.fill(store, BEGINS)
    return store


def test_every_rule_is_due_before_it_ends() -> None:
    """With two evaluations to spare, in which Grafana is looked at."""
    late = {rule: at for rule, at in story.due().items() if not 0 <= at <= story.SECONDS - 20}
    assert not late
    assert set(story.due()) == set(IDS)


@pytest.mark.parametrize("rule", rules_of(CLUSTER).rules, ids=lambda rule: rule.id)
def test_a_rule_fires_when_it_is_due(played: Store, rule: Rule) -> None:
    """The points of one rule's case keep no other rule from firing."""
    at = BEGINS + story.due()[rule.id]
    evaluator = Evaluator(played, [rule])
    for _ in evaluator.run(at - rule.remembered(), at):
        pass
    assert [alert for alert in evaluator.alerts() if alert.is_firing and alert.fired_at == at]
