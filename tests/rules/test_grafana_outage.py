"""With a real Grafana (GRAFANA_HOME): an InfluxDB that is away is one message and one all-clear, and no other."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import live_grafana
import pytest
from live_grafana import Inbox

from app.errors import StoreError
from cluster.load import load_cluster
from cluster.model import NotificationTarget, Retention, Secret
from operations.build import write
from operations.generated import artefacts
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

pytestmark = live_grafana.needs_grafana

CASES = load_cluster(Path(__file__).parent / "cluster.yaml")
AWAY_SECONDS = 70
HEARTBEATS = "\n".join(
    (
        "pipeline,stage=bridge,reason=heartbeat,shard=0 value=1",
        "pipeline,stage=analysis,reason=heartbeat,shard=0 value=1",
        *(f"exporter,exporter={one.name},shard=0 age=1" for one in CASES.exporters),
    )
)
THEFT = (
    "egress,src=model-store-1,src_group=model_storage,dst=203.0.113.9,dst_group=external,proto=tcp,service=https,"
    "off_hours=no,initiator=src,shard=0 bytes=60000000000i,duration=10"
)


@contextmanager
def _beating(store: Store) -> Iterator[None]:
    """Write what a bridge and an analysis write of themselves, whenever the store takes it."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(3):
            with suppress(StoreError):
                store.write(HEARTBEATS.encode(), "raw")

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _told(inbox: Inbox, rule: str) -> list[str]:
    """Return the states in which a rule's alerts were told, without repetitions."""
    found: list[str] = []
    for body in list(inbox.bodies):
        for alert in body["alerts"]:
            if alert["labels"]["rule"] == rule and found[-1:] != [alert["status"]]:
                found.append(alert["status"])
    return found


def _wait_for(inbox: Inbox, rule: str, states: list[str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while _told(inbox, rule) != states and time.monotonic() < deadline:
        time.sleep(1)
    assert _told(inbox, rule) == states


@pytest.mark.timeout(900)
@pytest.mark.long_form
def test_an_outage_of_the_store_is_one_message_and_one_all_clear(tmp_path: Path) -> None:
    influxdb = LocalInfluxDB(tmp_path / "influxdb")
    target = NotificationTarget("noc", "webhook", secrets=(("url", Secret(env="TEST_WEBHOOK")),))
    settings = replace(CASES.store, url=influxdb.url, database="outage")
    cluster = replace(CASES, store=settings, notify=(target,))
    provisioned = tmp_path / "grafana"
    write(artefacts(cluster, str(provisioned)), tmp_path)
    store = Store(settings)
    with influxdb, live_grafana.webhook() as inbox:
        store.ensure(tuple(Retention(one.name, one.window, 0) for one in cluster.retentions()))
        store.write(f"{HEARTBEATS}\n{THEFT}".encode(), "raw")
        with _beating(store), live_grafana.running(tmp_path, provisioned, TEST_WEBHOOK=inbox.url):
            _wait_for(inbox, "exfil_volume", ["firing"], 120)
            influxdb.stop()
            _wait_for(inbox, "ingest_deadman", ["firing"], 90)
            time.sleep(AWAY_SECONDS)
            influxdb.start()
            # Messages to people are five minutes apart.
            _wait_for(inbox, "ingest_deadman", ["firing", "resolved"], 400)
    assert _told(inbox, "exfil_volume") == ["firing"]
    assert {alert["labels"]["rule"] for body in inbox.bodies for alert in body["alerts"]} == {
        "exfil_volume", "ingest_deadman",
    }  # fmt: skip
