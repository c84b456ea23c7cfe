"""The canary through the real pipeline: it comes back in time, and leaves nothing behind but its own bytes."""

import json
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from staged import Staged, stage, start

from cluster.load import load_cluster
from ingest.collect.kernel.sockets import udp_sockets
from simulate.canary_cli import canary
from store.influx import Store
from store.local_influxdb import LocalInfluxDB


def _with_canary(staged: Staged) -> None:
    document = yaml.safe_load(staged.config.read_text())
    document["groups"]["canary"] = {"role": "canary", "prefixes": ["192.0.2.248/30"]}
    document["nodes"]["canary"] = {"group": "canary", "addresses": ["192.0.2.249", "192.0.2.250"]}
    document["exporters"]["canary"] = {"address": "127.0.0.1", "watched": False}
    staged.config.write_text(yaml.safe_dump(document))


def _stop(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(30)


def test_it_comes_back(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database)
    _with_canary(staged)
    cluster = load_cluster(staged.config)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    running = [start("collect", staged), start("ingest", staged)]
    try:
        deadline = time.monotonic() + 60
        while not udp_sockets(cluster.collector.netflow_port) and time.monotonic() < deadline:
            time.sleep(0.1)
        # What comes in the first moments of nfacctd lies there until something else comes.
        time.sleep(5)
        result = CliRunner().invoke(canary, ["-c", str(staged.config), "--json", "--within", "90s"])
        found = json.loads(result.stdout)
        assert (result.exit_code, found["trouble"]) == (0, ""), found
        assert 0 < found["queryable_seconds"] < found["alert_seconds"] <= 90
        again = CliRunner().invoke(canary, ["-c", str(staged.config), "--within", "90s"])
        assert again.exit_code == 0, again.output
        assert again.stdout.startswith("canary: stored after ")
    finally:
        _stop(*running)
    (traffic,) = store.query('SELECT sum("bytes") FROM "raw"."traffic" GROUP BY "src_group", "dst_group"')
    assert traffic.tags == {"src_group": "canary", "dst_group": "canary"}
    for measurement in ("egress", "violation", "unknown_node", "pair", "inference", "storage_io"):
        assert store.query(f'SELECT * FROM "raw"."{measurement}"') == [], measurement
    (lost,) = store.query('SELECT sum("seq_lost") FROM "raw"."exporter"') or [None]
    assert lost is None or not lost.values[0][1]


@pytest.mark.parametrize("within", ["3s"])
def test_without_a_collector_it_does_not(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, within: str
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database)
    _with_canary(staged)
    Store(load_cluster(staged.config).store).ensure(load_cluster(staged.config).retentions())
    result = CliRunner().invoke(canary, ["-c", str(staged.config), "--within", within])
    assert result.exit_code == 1
    assert "it is not in InfluxDB after 3 s" in result.stdout
