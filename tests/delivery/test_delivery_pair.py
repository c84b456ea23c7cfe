"""Two `clusterflow deliver`: another machine goes on where one ended, with all that was on its way."""

import base64
import json
import os
import secrets
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from receivers import Hec, event, listening, numbers, until

from app.log import Log
from cluster.load import load_cluster
from cluster.model import Retention, StoreApi, StoreSettings
from delivery.event import at
from delivery.outbox import Outbox
from delivery.queue import Spool
from store import schema
from store.influx import Store
from store.lease import Lease
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, encode

pytestmark = pytest.mark.service

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["siem", "file"]


@pytest.fixture(params=[("influxdb_v1", StoreApi.V1), ("influxdb_v2", StoreApi.V2)], ids=["v1", "v2"])
def store(request: pytest.FixtureRequest, fresh_database: str) -> Iterator[Store]:
    fixture, api = request.param
    server: LocalInfluxDB = request.getfixturevalue(fixture)
    settings = StoreSettings(url=server.url, database=fresh_database, api=api, lease=True)
    with closing(Store(settings)) as found:
        found.ensure((Retention(schema.RAW, 10, 7 * 86_400),))
        yield found


@contextmanager
def leading(store: Store, folder: Path) -> Iterator[tuple[Spool, Lease]]:
    """The spool of a machine, for as long as it leads."""
    with Lease(store.settings, "deliver", folder, Log(quiet=True), threading.Event()) as lease:
        assert lease.wait()
        spool = Spool(folder, 100_000_000)
        spool.share(Outbox(store, lease), NAMES)
        spool.register(NAMES)
        yield spool, lease
        spool.close()


def waiting(spool: Spool, name: str) -> list[int]:
    batch = spool.read(name, 1000, 0)
    return [] if batch is None else numbers(batch.events)


def test_another_spool_goes_on_with_events_notes_and_positions(store: Store, tmp_path: Path) -> None:
    long = secrets.token_hex(200_000)
    with leading(store, tmp_path / "a") as (spool, first):
        spool.append([event(number) for number in range(5)], {"reading": {"until": 7}})
        spool.append([event(5)], {"reading": {"until": 8}, "alerts": long})
        spool.append([], {"alerts": [long]})
        spool.delivered("siem", 4)
    with leading(store, tmp_path / "b") as (spool, _):
        assert (waiting(spool, "siem"), waiting(spool, "file")) == ([4, 5], list(range(6)))
        assert (spool.note("reading"), spool.note("alerts")) == ({"until": 8}, [long])
        spool.append([event(6)], {"reading": {"until": 9}})
        spool.delivered("siem", 7)
        # What the one before had sent, and nobody acknowledged to it, arrives now.
        late = Outbox(store, first)
        late.append(6, [json.dumps(event(99)), json.dumps(event(98))], {"reading": '{"until": 1}'})
        late.close()
    # The first again, whose file is behind.
    with leading(store, tmp_path / "a") as (spool, _):
        assert (waiting(spool, "siem"), waiting(spool, "file")) == ([], list(range(7)))
        assert spool.note("reading") == {"until": 9}
        spool.append([event(7)], {})
        assert waiting(spool, "siem") == [7]


def test_what_waits_for_a_receiver_that_was_away_for_a_day_is_taken_over_soon(store: Store, tmp_path: Path) -> None:
    """Some events every ten seconds: many entries, whose number must not count squared."""
    entries, each, now = 8640, 40, int(time.time())
    names = [WINDOW, *schema.OUTBOX.tags, *(one.name for one in schema.OUTBOX.fields)]
    text = base64.b64encode(zlib.compress(json.dumps([json.dumps(event(0))] * each).encode())).decode()
    rows = [
        (now - entries + at, "a", "events", "0", 1, at, at * each, (at + 1) * each, 1, text) for at in range(entries)
    ]
    note = base64.b64encode(zlib.compress(b"1")).decode()
    rows += [(now, "a", kind, "0", 1, entries, 0, 0, 1, note) for kind in ("note.reading", "position.siem")]
    for part in range(0, len(rows), 1000):
        frame = pl.DataFrame(rows[part : part + 1000], names, orient="row")
        store.write(encode(schema.OUTBOX, frame), schema.OUTBOX.kept)
    with Lease(store.settings, "deliver", tmp_path, Log(quiet=True), threading.Event()) as lease:
        outbox = Outbox(store, lease)
        began = time.process_time()
        copy = outbox.read(["siem"])
        took = time.process_time() - began
        outbox.close()
    assert copy is not None
    assert (len(copy.events), copy.end) == (entries * each, entries * each)
    assert took < 8


def test_the_first_copy_is_what_the_spool_had_before(store: Store, tmp_path: Path) -> None:
    with closing(Spool(tmp_path / "a", 100_000_000)) as alone:
        alone.register(NAMES)
        alone.append([event(number) for number in range(1200)], {"reading": 1})
        alone.delivered("file", 1000)
    with leading(store, tmp_path / "a") as (spool, _):
        assert len(waiting(spool, "siem")) == 1000
    with leading(store, tmp_path / "b") as (spool, _):
        assert spool.waiting("siem") == 1200
        assert waiting(spool, "file") == list(range(1000, 1200))
        assert spool.note("reading") == 1


@pytest.fixture
def machines() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Processes by name, ended with the test."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    yield started
    for one in started.values():
        one.kill()
        one.wait()


def test_a_killed_deliver_is_followed_and_one_that_is_stopped_too(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str, machines: dict[str, subprocess.Popen[bytes]]
) -> None:
    """Nothing is lost. Nothing comes twice but the batch whose acknowledgement the killed one could not note."""
    hec = Hec("s3cret")
    log = tmp_path / "log"

    def start(name: str, document: dict[str, Any]) -> None:
        own = document["delivery"] | {"state": str(tmp_path / name)}
        config = tmp_path / f"{name}.yaml"
        config.write_text(yaml.safe_dump(document | {"delivery": own}))
        command = [sys.executable, "-m", "clusterflow", "deliver", "--config", str(config)]
        with log.open("ab") as output:
            machines[name] = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"HEC": "s3cret"}, stderr=output)

    with listening(hec) as receiver:
        document = {
            "cluster": "lab",
            "groups": {"a": {"role": "training", "prefixes": ["10.20.0.0/16"]}},
            "bridge": {"window": "1s", "grace": "10s"},
            "store": {"url": influxdb_v1.url, "database": fresh_database, "lease": True},
            "delivery": {
                "alerts": "off", "metrics_listen": "off", "every": "1s", "settle": "0s", "overlap": "5m",
                "destinations": {
                    "siem": {"type": "splunk", "url": receiver.url, "token": {"env": "HEC"}, "events": ["contact"]},
                },
            },
        }  # fmt: skip

        written = 0

        def write() -> None:
            nonlocal written
            rows = [
                {WINDOW: int(time.time()) + 1, schema.SRC: f"gpu-{written + one:04d}", schema.DST: "203.0.113.9",
                 schema.CONTACT_NEW.name: 1, schema.BYTES.name: 1}
                for one in range(20)
            ]  # fmt: skip
            store.write(encode(schema.CONTACT, pl.DataFrame(rows)), schema.CONTACT.kept)
            written += 20

        def arrived() -> bool:
            return len({one["id"] for one in hec.events}) == written

        start("a", document)
        store = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
        store.ensure(load_cluster(tmp_path / "a.yaml").retentions())
        until(lambda: "event=started" in log.read_text())
        start("b", document)
        until(lambda: "event=standing_by" in log.read_text())
        time.sleep(2)
        write()
        until(arrived)
        # A clean end: nothing at all comes twice.
        machines["a"].terminate()
        write()
        assert machines["a"].wait(30) == 0
        until(arrived, 15)
        assert len(hec.events) == written
        start("a", document)
        until(lambda: log.read_text().count("event=standing_by") == 2)
        # In the middle of what arrives.
        receiver.faults = [(503, {})] * 2
        write()
        until(lambda: not receiver.faults)
        machines["b"].kill()
        died = time.monotonic()
        write()
        until(arrived, 40)
        assert time.monotonic() - died < 30
    assert len(hec.events) <= written + 20
    assert {at(one, "source.name") for one in hec.events} == {f"gpu-{number:04d}" for number in range(written)}
    assert "unexpected" not in log.read_text()
