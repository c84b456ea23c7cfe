"""`clusterflow deliver`, killed again and again: everything arrives, in order, repeats with equal ids only."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from receivers import RESET_AFTER, Hec, event, listening, until

from cluster.load import load_cluster
from cluster.model import StoreSettings
from delivery.event import at
from delivery.queue import Spool
from store import schema, schema_version
from store.influx import Store
from store.local_influxdb import LocalInfluxDB, free_port
from store.points import WINDOW, encode
from store.schema_version import Migration

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_is_lost_by_kills(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    store = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
    hec = Hec("s3cret")
    with listening(hec) as receiver:
        document = {
            "cluster": "lab",
            "groups": {"a": {"role": "training", "prefixes": ["10.20.0.0/16"]}},
            "bridge": {"window": "1s", "grace": "10s"},
            "store": {"url": influxdb_v1.url, "database": fresh_database},
            "delivery": {
                "alerts": "off", "metrics_listen": "off", "state": str(tmp_path / "state"), "every": "1s",
                "settle": "0s", "destinations": {
                    "siem": {"type": "splunk", "url": receiver.url, "token": {"env": "HEC"}, "events": ["contact"]},
                },
            },
        }  # fmt: skip
        config = tmp_path / "cluster.yaml"
        config.write_text(yaml.safe_dump(document))
        store.ensure(load_cluster(config).retentions())
        command = [sys.executable, "-m", "clusterflow", "deliver", "--config", str(config)]
        written, log = 0, tmp_path / "log"

        def start() -> subprocess.Popen[bytes]:
            with log.open("ab") as output:
                return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"HEC": "s3cret"}, stderr=output)

        def write() -> None:
            nonlocal written
            # A moment ahead, so that it is not late.
            now = int(time.time()) + 1
            rows = [
                {WINDOW: now, schema.SRC: f"gpu-{written + one:04d}", schema.DST: "203.0.113.9",
                 schema.CONTACT_NEW.name: 1, schema.BYTES.name: 1}
                for one in range(20)
            ]  # fmt: skip
            store.write(encode(schema.CONTACT, pl.DataFrame(rows)), schema.CONTACT.kept)
            written += 20

        process = start()
        until(lambda: noted(tmp_path / "state/spool/events.sqlite"))
        for _ in range(3):
            write()
            before = len(hec.events)
            receiver.faults = [RESET_AFTER]
            until(lambda before=before: len(hec.events) > before)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
            process.wait()
            process = start()
        write()
        until(lambda: len({one["id"] for one in hec.events}) == written)
        process.terminate()
        assert process.wait(30) == 0
    names = [at(one, "source.name") for one in hec.events]
    assert sorted(set(names)) == [f"gpu-{number:04d}" for number in range(written)]
    by_id = {one["id"]: at(one, "source.name") for one in hec.events}
    assert len(by_id) == written
    assert "unexpected" not in log.read_text()
    left = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert len(left) > 2
    assert not [path for path in [log, *left] if b"s3cret" in path.read_bytes()]


def noted(spool: Path) -> bool:
    """Whether a source has noted how far it has read."""
    try:
        with closing(sqlite3.connect(f"file:{spool}?mode=ro", uri=True)) as file:
            return file.execute("SELECT count(*) FROM note").fetchone() != (0,)
    except sqlite3.OperationalError:
        return False


def test_it_ends_when_its_store_is_upgraded(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """As at its start: what a newer clusterflow stores might be read wrongly. What waits stays in the spool."""
    config = tmp_path / "cluster.yaml"
    delivery = {
        "alerts": "off", "metrics_listen": "off", "state": str(tmp_path / "state"), "every": "1s",
        "destinations": {"out": {"type": "file", "path": str(tmp_path / "out")}},
    }  # fmt: skip
    document = {
        "cluster": "lab",
        "groups": {"a": {"role": "training", "prefixes": ["10.20.0.0/16"]}},
        "store": {"url": influxdb_v1.url, "database": fresh_database},
        "delivery": delivery,
    }
    config.write_text(yaml.safe_dump(document))
    cluster = load_cluster(config)
    store = Store(cluster.store)
    schema_version.prepare(store, cluster.retentions(), may_migrate=True)
    log = tmp_path / "log"
    command = [sys.executable, "-m", "clusterflow", "deliver", "--config", str(config)]
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, stderr=output)
    try:
        until(lambda: "event=started" in log.read_text())
        steps = (*schema_version.MIGRATIONS, Migration("of tomorrow", lambda _: None))
        schema_version.prepare(store, cluster.retentions(), may_migrate=True, migrations=steps)
        assert process.wait(60) == 2
    finally:
        process.kill()
        process.wait()
    *_, line = log.read_text().splitlines()
    assert f"InfluxDB at {store.url}, database {fresh_database}: its schema has version 2, by clusterflow" in line
    assert "Traceback" not in log.read_text()
    assert noted(tmp_path / "state/spool/events.sqlite")


def run_once(folder: Path, destinations: dict[str, Any]) -> list[str]:
    """The command, of a site whose store is away."""
    document = {
        "cluster": "lab",
        "groups": {"a": {"role": "training", "prefixes": ["10.20.0.0/16"]}},
        "store": {"url": f"http://127.0.0.1:{free_port()}"},
        "delivery": {"alerts": "off", "state": str(folder / "state"), "destinations": destinations},
    }
    config = folder / "cluster.yaml"
    config.write_text(yaml.safe_dump(document))
    return [sys.executable, "-m", "clusterflow", "deliver", "--once", "--config", str(config)]


@pytest.mark.service
def test_a_run_that_could_not_ask_the_store_does_not_end_well(tmp_path: Path) -> None:
    command = run_once(tmp_path, {"out": {"type": "file", "path": str(tmp_path / "out")}})
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "not everything was read or noted: InfluxDB at http" in done.stderr.splitlines()[-1]


@pytest.mark.service
def test_a_run_that_drains_ends_when_it_is_stopped(tmp_path: Path) -> None:
    """Its receiver is away, and it would try for a minute; what waits stays in the spool."""
    splunk = {"type": "splunk", "url": f"http://127.0.0.1:{free_port()}", "token": {"env": "HEC"}}
    command = run_once(tmp_path, {"siem": splunk})
    spool = Spool(tmp_path / "state/spool", 10_000_000)
    spool.register(["siem"])
    spool.append([event(1)], {})
    spool.close()
    log = tmp_path / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"HEC": "s3cret"}, stderr=output)
    try:
        until(lambda: "event=delivery_failing" in log.read_text())
        process.terminate()
        assert process.wait(20) == 1
    finally:
        process.kill()
        process.wait()
    assert "siem: not everything was taken before it was stopped" in log.read_text()
    spool = Spool(tmp_path / "state/spool", 10_000_000)
    spool.register(["siem"])
    assert spool.waiting("siem") == 1
    spool.close()
