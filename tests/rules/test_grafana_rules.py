"""With a real Grafana (GRAFANA_HOME): rules arrive field by field, fire, and notify with the words of our evaluator."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from cluster.load import load_cluster
from cluster.model import Cluster, NotificationTarget, Secret
from cluster.units import parse_duration
from dashboards.build import write
from ingest.local_influxdb import LocalInfluxDB, free_port
from ingest.store import Store
from rules.encode import rule_entry
from rules.evaluate import Alert, Evaluator
from rules.generated import artefacts
from rules.model import Rule
from rules.registry import rules_of

GRAFANA_HOME = os.environ.get("GRAFANA_HOME", "")
pytestmark = pytest.mark.skipif(not GRAFANA_HOME, reason="set GRAFANA_HOME to the folder of a Grafana 12")

CASES = load_cluster(Path(__file__).parent / "cluster.yaml")
RULES = rules_of(CASES).rules
PASSWORD = "live-test"
WINDOW = 10
FIRING = {"exfil_volume", "first_external_contact", "node_dropout"}
"""Rules that the data below makes fire."""


@dataclass
class Inbox:
    """A webhook receiver that keeps what Grafana posts."""

    server: ThreadingHTTPServer
    bodies: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/"

    def alerts(self) -> dict[str, dict[str, Any]]:
        """Return the alerts posted so far, the last of each rule."""
        return {alert["labels"]["rule"]: alert for body in list(self.bodies) for alert in body["alerts"]}


@dataclass
class Live:
    url: str
    log: Path
    inbox: Inbox
    store: Store

    def get(self, path: str) -> Any:
        response = requests.get(self.url + path, auth=("admin", PASSWORD), timeout=20)
        response.raise_for_status()
        return response.json()


@pytest.fixture(scope="module")
def inbox() -> Iterator[Inbox]:
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Inbox(server, bodies)
    server.shutdown()


CONVERSATION = "proto=tcp,service=https"


def _exfil(dst: str, at: int) -> str:
    return (
        f"egress,src=model-store-1,src_group=model_storage,dst={dst},dst_group=external,{CONVERSATION},"
        f"off_hours=no,initiator=src,shard=0 bytes=10000000000i,duration=10 {at}"
    )


def _fill(store: Store, now: int) -> None:
    """Write a cluster with three incidents: past ones for good, states also for the minutes to come."""
    lines = [_exfil("203.0.113.9", at) for at in range(now - 100, now - 40, WINDOW)]
    lines.append(
        f"contact,src=gpu-07,src_group=training,dst=203.0.113.50,dst_group=external,{CONVERSATION} "
        f"bytes=48200i,duration=3.5,new=1i {now - 60}"
    )
    for at in range(now - 100, now + 600, WINDOW):
        lines.append(f"pipeline,stage=bridge,reason=heartbeat,shard=0 value={at} {at}")
        lines += [f"exporter,exporter={one.name},shard=0 age=3 {at}" for one in CASES.exporters]
        lines.append(
            "baseline,node=gpu-04,group=training,job=llm-42,job_class=llm observed=0.5,expected=1,lower=0.9,state=2i,"
            f"low_for=130,sent_bytes=4500000000i,missing_bytes=58500000000i {at}"
        )
        lines.append(
            f"baseline,node=gpu-03,group=training,job=llm-42,job_class=llm observed=1,expected=1,lower=0.9,state=1i,"
            f"low_for=0,sent_bytes=9000000000i,missing_bytes=0i {at}"
        )
    store.write("\n".join(lines).encode(), "raw")


@pytest.fixture(scope="module")
def live(influxdb_v1: LocalInfluxDB, inbox: Inbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("grafana-rules")
    webhook = NotificationTarget("noc", "webhook", secrets=(("url", Secret(env="TEST_WEBHOOK")),))
    store_settings = replace(CASES.store, url=influxdb_v1.url, database="grafana_rules")
    cluster: Cluster = replace(CASES, store=store_settings, notify=(webhook,))
    store = Store(store_settings)
    store.ensure(cluster.retentions())
    _fill(store, int(time.time()) // WINDOW * WINDOW)
    provisioned = folder / "grafana"
    write(artefacts(cluster, str(provisioned)), folder)
    port = free_port()
    settings = {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_DATA": str(folder / "data"),
        "GF_PATHS_LOGS": str(folder / "logs"),
        "GF_PATHS_PLUGINS": str(folder / "plugins"),
        "GF_PATHS_PROVISIONING": str(provisioned),
        "GF_SECURITY_ADMIN_PASSWORD": PASSWORD,
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",
        "TEST_WEBHOOK": inbox.url,
    }
    log = folder / "grafana.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(Path(GRAFANA_HOME) / "bin" / "grafana"), "server", "--homepath", GRAFANA_HOME],
            env=os.environ | settings,
            stdout=output,
            stderr=output,
        )
    try:
        _wait(f"http://127.0.0.1:{port}/api/health", process, log)
        yield Live(f"http://127.0.0.1:{port}", log, inbox, store)
    finally:
        process.terminate()
        process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if requests.get(url, timeout=2).ok:
                return
        except requests.RequestException:
            pass
        time.sleep(0.5)
    pytest.fail(f"Grafana did not start: {log.read_text(errors='replace')[-2000:]}")


def _plain(key: str) -> str:
    """Grafana spells some keys in two ways between file and API."""
    return key.replace("_", "").lower()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_field_of_a_rule_arrived(live: Live, rule: Rule) -> None:
    """A misspelt key is ignored in silence: only reading back shows it."""
    found = {_plain(key): value for key, value in live.get(f"/api/v1/provisioning/alert-rules/{rule.id}").items()}
    wanted = rule_entry(CASES, rule)
    for key in ("uid", "title", "condition", "noDataState", "execErrState", "isPaused", "labels", "annotations"):
        assert found[_plain(key)] == wanted[key], key
    for key, seconds in (("for", rule.pending_for), ("keepFiringFor", rule.keep_firing_for)):
        assert parse_duration(found[_plain(key)]) == seconds, key
    assert found["missingseriesevalstoresolve"] == rule.missing_evaluations
    assert found["rulegroup"] == rule.family
    assert len(found["data"]) == len(wanted["data"])
    for theirs, ours in zip(found["data"], wanted["data"], strict=True):
        assert theirs["refId"] == ours["refId"]
        assert theirs["datasourceUid"] == ours["datasourceUid"]
        assert theirs["relativeTimeRange"] == ours.get("relativeTimeRange", {"from": 0, "to": 0})
        assert {key: theirs["model"].get(key) for key in ours["model"]} == ours["model"]


def test_what_fires_is_notified_in_the_evaluators_words(live: Live) -> None:
    """State by state, label by label and word by word, as our own evaluation of the same store."""
    deadline = time.monotonic() + 150
    while not set(live.inbox.alerts()) >= FIRING and time.monotonic() < deadline:
        time.sleep(1)
    sent = live.inbox.alerts()
    assert set(sent) == FIRING
    evaluator = Evaluator(live.store, RULES)
    evaluator.tick(int(time.time()) // WINDOW * WINDOW)
    ours: dict[str, Alert] = {alert.rule: alert for alert in evaluator.alerts()}
    assert set(ours) == FIRING
    for rule in RULES:
        if rule.id in FIRING:
            assert sent[rule.id]["status"] == "firing"
            assert sent[rule.id]["labels"] == dict(ours[rule.id].labels)
            theirs = sent[rule.id]["annotations"]
            assert {name: theirs.get(name) for name in ours[rule.id].annotations} == ours[rule.id].annotations
            assert theirs["runbook_url"].endswith(f"#{rule.id}")
            assert rule.panel.dashboard_uid in sent[rule.id]["dashboardURL"]
            assert f"viewPanel={rule.panel.panel_id}" in sent[rule.id]["panelURL"].replace("panel-", "")


def test_the_message_has_the_five_facts(live: Live) -> None:
    """Of a second notification: the first after a start may go out with Grafana's default template."""
    now = int(time.time()) // WINDOW * WINDOW
    second = [_exfil("203.0.113.10", at) for at in range(now - 100, now - 40, WINDOW)]
    live.store.write("\n".join(second).encode(), "raw")
    deadline = time.monotonic() + 180
    found = ""
    while "destination: 203.0.113.10 " not in found and time.monotonic() < deadline:
        time.sleep(1)
        found = "\n".join(body.get("message", "") for body in list(live.inbox.bodies))
    for fact in (
        "source: model-store-1 (Model Storage)",
        "destination: 203.0.113.10 (Unknown External)",
        "protocol: tcp (https)",
        "bytes: 60GB",
        "duration: 1m 0s",
        "runbook: ",
        "panel: ",
    ):
        assert fact in found


def test_nothing_was_warned_about(live: Live) -> None:
    lines = live.log.read_text(errors="replace").splitlines()
    loud = [line for line in lines if "provision" in line and ("level=warn" in line or "level=error" in line)]
    assert not loud, "\n".join(loud)
