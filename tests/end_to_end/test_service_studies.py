"""Simulated hours through bridge and analysis: what is said of inference, coverage and capacity is what was sent."""

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.load import load_cluster
from store.influx import Series, Store
from store.local_influxdb import LocalInfluxDB

REPOSITORY = Path(__file__).resolve().parents[2]
LENGTH = "150m"
"""At any time of the hour, the last row of capacity has an hour and more to look back on."""
HOUR, MINUTE = 3_600, 60


@pytest.fixture(scope="module")
def store(influxdb_v1: LocalInfluxDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with some hours of the demo cluster, backfilled and analysed."""
    folder = tmp_path_factory.mktemp("services")
    (folder / "spool").mkdir()
    document: dict[str, Any] = yaml.safe_load((REPOSITORY / "cluster.yaml").read_text(encoding="utf-8"))
    document["store"] = {"url": influxdb_v1.url, "database": "services"}
    document["bridge"] |= {"state": str(folder / "state"), "metrics_listen": "off"}
    document["collector"]["spool"] = str(folder / "spool")
    document["capacity"] = [{"from": "training", "to": "storage", "limit": "1 Gbit/s"}]
    config = folder / "cluster.yaml"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")

    def run(*arguments: str) -> None:
        command = [sys.executable, "-m", "clusterflow", *arguments, "--config", str(config)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stderr

    files = str(folder / "files")
    run("simulate", "--spool", files, "--for", LENGTH)
    run("ingest", "--spool", files, "--once")
    run("analyze", "--from", LENGTH)
    store = Store(load_cluster(config).store)
    yield store
    store.close()


def one(found: list[Series]) -> dict[str, Any]:
    (series,) = found
    return dict(zip(series.columns, series.values[0], strict=True))


@pytest.mark.long_form
def test_the_load_of_inference_is_what_clients_sent(store: Store) -> None:
    verdict = one(store.query('SELECT * FROM "raw"."inference_load" ORDER BY time DESC LIMIT 1'))
    end = verdict["time"] // 1000
    asked = one(store.query(f'SELECT sum("bytes") FROM "raw"."inference" WHERE time >= {end - 300}s AND time < {end}s'))
    assert verdict["bytes"] == asked["sum"] > 1_000_000
    assert (verdict["state"], verdict["weeks"]) == (0, 0), "a morning is no week"


def test_models_that_inference_pulls_are_no_requests(store: Store) -> None:
    """It opens these itself; they are a thousand times what clients send."""
    pulled = one(store.query('SELECT sum("bytes") FROM "1m"."traffic" WHERE "src_group" = \'model_storage\''))
    asked = one(store.query('SELECT sum("bytes") FROM "1m"."inference"'))
    assert 0 < asked["sum"] * 100 < pulled["sum"]


def test_coverage_has_the_bytes_of_the_hour(store: Store) -> None:
    newest = one(store.query('SELECT last("state") FROM "raw"."coverage"'))["time"] // 1000
    where = f"time >= {newest - HOUR - 300}s AND time < {newest - 300}s"
    sent = {
        (series.tags["src_group"], series.tags["dst_group"]): series.values[0][1]
        for series in store.query(
            f'SELECT sum("bytes") FROM "1m"."traffic" WHERE {where} GROUP BY "src_group", "dst_group"'
        )
    }
    rows = store.query(f'SELECT * FROM "raw"."coverage" WHERE time = {newest}s')[0]
    found = {}
    for values in rows.values:
        row = dict(zip(rows.columns, values, strict=True))
        found[row["src_group"], row["dst_group"]] = row
    seen = {pair: total for pair, total in sent.items() if total and "local" not in pair}
    assert {pair: row["bytes"] for pair, row in found.items() if row["bytes"]} == seen
    assert found["training", "training"]["state"] == 1
    assert all(row["declared"] == 0 for row in found.values())


def test_capacity_is_that_of_the_minutes(store: Store) -> None:
    rows = store.query('SELECT * FROM "1h"."capacity" WHERE "subject" = \'training -> storage\' ORDER BY time DESC')
    row = one(rows)
    hour = row["time"] // 1000 - 600
    assert hour % HOUR == 0
    minutes = store.query(
        'SELECT sum("bytes") FROM "1m"."traffic" WHERE "src_group" = \'training\' AND "dst_group" = \'storage\' '
        f"AND time >= {hour - 24 * HOUR}s AND time < {hour}s GROUP BY time(60s) fill(none)"
    )[0]
    heard = store.query(
        'SELECT sum("records") FROM "1m"."exporter" '
        f"WHERE time >= {hour - 24 * HOUR}s AND time < {hour}s GROUP BY time(60s) fill(none)"
    )[0]
    by_minute = dict(minutes.values)
    loads = sorted(by_minute.get(moment, 0) * 8 / MINUTE for moment, records in heard.values if records)
    assert row["p95"] == pytest.approx(loads[math.ceil(0.95 * len(loads)) - 1])
    assert row["peak"] == pytest.approx(loads[-1])
    assert row["utilisation"] == pytest.approx(row["p95"] / 1e9)
    listed = store.query('SHOW TAG VALUES FROM "capacity" WITH KEY = "kind"')
    assert {kind for series in listed for _, kind in series.values} == {"pair", "edge", "core", "endpoint"}
