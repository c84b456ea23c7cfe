"""What a question to the flow archive takes over from an alert of the history."""

import json
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from app.errors import UserError
from archive.query import Filter
from cluster.load import parse_cluster
from cluster.model import Cluster
from operations.questions.flow_questions import completed
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, encode

pytestmark = pytest.mark.service

CLUSTER = """\
cluster: lab
groups: {{training: {{role: training, prefixes: [10.20.0.0/16]}}}}
nodes: {{"gpu-{{1..4}}": {{group: training, addresses: ["10.20.0.{{1..4}}"]}}}}
exporters: {{border-1: {{address: 10.0.0.1}}}}
jobs: [{{id: "4711", nodes: ["gpu-{{2..3}}"], start: 2026-03-01 08:00}}]
store: {{url: "{url}", database: {database}}}
bridge: {{state: {state}}}
"""
BEGAN = int(time.time()) // 10 * 10 - 3600


@pytest.fixture
def cluster(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Cluster:
    found = parse_cluster(CLUSTER.format(url=influxdb_v1.url, database=fresh_database, state=tmp_path))
    store = Store(found.store)
    store.ensure(found.retentions())
    store.close()
    return found


def asked(cluster: Cluster, source: str, **labels: str) -> Filter:
    """Return what an alert with this source, which ended after a minute, makes of a question without anything."""
    row: dict[str, Any] = {
        WINDOW: BEGAN, schema.RULE: "a_rule", schema.SEVERITY: "warning", schema.SRC: source, schema.ALERT_KEY: "k",
        schema.CHANGE: schema.Change.FIRED.value, schema.INCIDENT.name: "3fa94c1e00000000",
        schema.ENDED.name: BEGAN + 60, schema.ALERT_LABELS.name: json.dumps(labels),
    }  # fmt: skip
    store = Store(cluster.store)
    store.write(encode(schema.ALERT, pl.DataFrame([row])), schema.ALERT.kept)
    store.close()
    return completed(cluster, Filter(0, 0), start=None, stop=None, around="3fa94c1e")


@pytest.mark.parametrize(
    ("source", "labels", "taken"),
    [
        ("gpu-1", {"src": "gpu-1"}, {"node": ("gpu-1",)}),
        ("203.0.113.9", {"src": "203.0.113.9"}, {"address": ("203.0.113.9",)}),
        ("training", {"src_group": "training"}, {"group": ("training",)}),
        ("border-1", {"exporter": "border-1"}, {"exporter": ("border-1",)}),
        ("4711", {"job": "4711"}, {"node": ("gpu-2", "gpu-3")}),
    ],
)
def test_it_asks_for_the_alerts_source_half_an_hour_around_it(
    cluster: Cluster, source: str, labels: dict[str, str], taken: dict[str, Any]
) -> None:
    assert asked(cluster, source, **labels) == Filter(BEGAN - 1800, BEGAN + 1860, **taken)


def test_an_alert_about_a_list_has_no_source_that_sends(cluster: Cluster) -> None:
    with pytest.raises(UserError, match="asn, which sends nothing"):
        asked(cluster, "asn", name="asn")
