"""What ``clusterflow status`` makes of what several bridges, or partitions of a topic, write; and of silence."""

import time

import pytest

from cluster.load import parse_cluster
from operations.status.status import _of_all, status_of
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB


def test_amounts_add_up_and_of_moments_the_latest_counts() -> None:
    said = {
        ("bridge", schema.HEARTBEAT, "k0"): 1_790_000_000.0,
        ("bridge", schema.HEARTBEAT, "k1"): 1_790_000_008.0,
        ("bridge", schema.LAG_SECONDS, "k0"): 3.0,
        ("bridge", schema.LAG_SECONDS, "k1"): 40.0,
        ("read", "records", "k0"): 5.0,
        ("read", "records", "k1"): 7.0,
    }
    assert dict(_of_all(said)) == {
        ("bridge", schema.HEARTBEAT): 1_790_000_008.0,
        ("bridge", schema.LAG_SECONDS): 40.0,
        ("read", "records"): 12.0,
    }


@pytest.mark.service
def test_an_exporter_that_may_be_silent_is_not_told_as_such(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    cluster = parse_cluster(
        "cluster: lab\ngroups: {a: {role: training, prefixes: [10.0.0.0/8]}}\n"
        "exporters: {leaf: {address: 192.0.2.1}, canary: {address: 127.0.0.1, watched: false}}\n"
        f"store: {{url: '{influxdb_v1.url}', database: {fresh_database}}}\n"
    )
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    found = status_of(cluster, store, int(time.time()))
    store.close()
    assert {one.name: one.silent for one in found.exporters} == {"leaf": True, "canary": False}
