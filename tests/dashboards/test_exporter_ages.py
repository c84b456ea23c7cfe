"""Several shards speak of one exporter: whoever heard it last is right."""

import time
from pathlib import Path

import pytest

from cluster.load import load_cluster
from cluster.model import StoreSettings
from dashboards import questions
from rules.evaluate.evaluator import Evaluator
from rules.evaluate.states import State
from rules.registry import rules_of
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.schema import RAW


@pytest.mark.parametrize("ages", [(3, 900), (900, 3)])
def test_an_exporter_that_one_partition_hears_is_not_silent(
    influxdb_v1: LocalInfluxDB, fresh_database: str, ages: tuple[int, int]
) -> None:
    cluster = load_cluster(Path("cluster.yaml"))
    store = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
    store.ensure(cluster.retentions())
    now = int(time.time()) // 10 * 10
    lines = [
        f"exporter,exporter={exporter.name},shard=k{partition} age={age} {moment}"
        for exporter in cluster.exporters
        for partition, age in enumerate((900, 900) if exporter.name == "leaf-2" else ages)
        for moment in range(now - 200, now, 10)
    ]
    store.write("\n".join(lines).encode(), RAW)
    text = questions.exporter_ages_now().per_series().influxql
    text = text.replace("$timeFilter", f"time >= {now - 120}s AND time <= {now}s")
    found = {series.tags["exporter"]: series.values[0][1] for series in store.query(text)}
    assert found == {exporter.name: 900 if exporter.name == "leaf-2" else 3 for exporter in cluster.exporters}
    evaluator = Evaluator(store, [rules_of(cluster).rule("exporter_silent")], datasource="x")
    for _ in evaluator.run(now - 60, now):
        pass
    assert [alert.labels["exporter"] for alert in evaluator.alerts() if alert.state is State.ALERTING] == ["leaf-2"]
