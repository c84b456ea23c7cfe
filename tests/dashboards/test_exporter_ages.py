"""Several shards speak of one exporter: whoever heard it last is right."""

import time
from pathlib import Path

import pytest
from board_store import expand, load

from cluster.load import load_cluster
from dashboards import questions
from dashboards.provision import boards
from rules.evaluate.evaluator import Evaluator
from rules.evaluate.states import State
from rules.registry import rules_of
from store.influx import Store
from store.schema import MINUTE, RAW

CLUSTER = load_cluster(Path("cluster.yaml"))


@pytest.mark.parametrize("ages", [(3, 900), (900, 3)])
def test_an_exporter_that_one_partition_hears_is_not_silent(store: Store, ages: tuple[int, int]) -> None:
    now = int(time.time()) // 10 * 10
    lines = [
        f"exporter,exporter={exporter.name},shard=k{partition} age={age} {moment}"
        for exporter in CLUSTER.exporters
        for partition, age in enumerate((900, 900) if exporter.name == "leaf-2" else ages)
        for moment in range(now - 200, now, 10)
    ]
    store.write("\n".join(lines).encode(), RAW)
    text = questions.exporter_ages_now().per_series().influxql
    text = text.replace("$timeFilter", f"time >= {now - 120}s AND time <= {now}s")
    found = {series.tags["exporter"]: series.values[0][1] for series in store.query(text)}
    assert found == {exporter.name: 900 if exporter.name == "leaf-2" else 3 for exporter in CLUSTER.exporters}
    evaluator = Evaluator(store, [rules_of(CLUSTER).rule("exporter_silent")], datasource="x")
    for _ in evaluator.run(now - 60, now):
        pass
    assert [alert.labels["exporter"] for alert in evaluator.alerts() if alert.state is State.ALERTING] == ["leaf-2"]


def test_an_exporter_that_was_never_heard_has_a_row(store: Store) -> None:
    now = int(time.time()) // 10 * 10
    lines = [
        f"exporter,exporter={name},shard={shard} age={age}{heard} {now - 60}"
        for name, shard, age, heard in (
            ("leaf-1", "k0", 3, f",last_seen={now - 63},sampling=100"),
            ("leaf-1", "k1", 1, ""),
            ("leaf-2", "k0", 900, ""),
        )
    ]
    store.write("\n".join(lines).encode(), RAW)
    (panel,) = (one for one in load(boards(CLUSTER)["pipeline"])["panels"] if one["title"].startswith("Exporters in"))
    text = expand(panel["targets"][0]["query"], start=now - 600, end=now, minimum="", variables={})
    found = {series.tags["exporter"]: series.values[0][2:] for series in store.query(text)}
    assert found == {"leaf-1": [3, 100], "leaf-2": [900, None]}


@pytest.mark.parametrize("hours", [3, 24, 7 * 24])
def test_a_silence_of_minutes_shows_over_hours_and_over_a_week(store: Store, hours: int) -> None:
    """leaf-1 was silent for eight minutes; leaf-2 too for one of two partitions, which the other one heard."""
    now = int(time.time()) // 60 * 60
    begin = now - 7200
    for retention, window in ((RAW, 10), (MINUTE, 60)):
        moments = range(begin - 600, begin + 1200, window)
        ages = {moment: moment - begin if begin <= moment < begin + 480 else 3 for moment in moments}
        store.write(
            "\n".join(
                f"exporter,exporter={exporter},shard={shard} age={age if shard == 'k0' else 3} {moment}"
                for moment, age in ages.items()
                for exporter, shard in (("leaf-1", "k0"), ("leaf-2", "k0"), ("leaf-2", "k1"))
            ).encode(),
            retention,
        )
    (panel,) = (one for one in load(boards(CLUSTER)["pipeline"])["panels"] if one["title"].startswith("Age of each"))
    (target,) = panel["targets"]
    text = expand(target["query"], start=now - hours * 3600, end=now, minimum=panel["interval"], variables={})
    most = {
        series.tags["exporter"]: max(value for _, value in series.values if value is not None)
        for series in store.query(text)
    }
    assert 400 < most["leaf-1"] < 480
    assert most["leaf-2"] == 3


def test_a_bridge_that_was_stopped_does_not_keep_an_exporter_young(store: Store) -> None:
    """Bridge a heard leaf-1 until it was stopped an hour ago, bridge b until ten minutes ago."""
    now = int(time.time()) // 10 * 10
    said = [("a", now - 3600, 3, 1000), ("b", now - 3600, 9, 1000), ("b", now - 10, 600, 4000)]
    lines = [
        f"exporter,exporter=leaf-1,shard={shard} age={age},last_seen={at - age},sampling={rate}i {at}"
        for shard, at, age, rate in said
    ]
    store.write("\n".join(lines).encode(), RAW)
    (panel,) = (one for one in load(boards(CLUSTER)["pipeline"])["panels"] if one["title"] == "Exporters in this range")
    text = expand(panel["targets"][0]["query"], start=now - 3 * 3600, end=now, minimum="", variables={})
    (series,) = store.query(text)
    shown = dict(zip(series.columns, series.values[0], strict=True))
    assert (shown["age"], shown["sampling"]) == (600, 4000)
