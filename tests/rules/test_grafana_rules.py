"""With a real Grafana (GRAFANA_HOME): rules arrive field by field, fire, and notify with the words of our evaluator."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import live_grafana
import pytest
import story
from live_grafana import Grafana, Inbox, Mailbox

from app.units import parse_duration
from cluster.load import load_cluster
from cluster.model import Maintenance, NotificationTarget, Retention, Secret
from dashboards.registry import FOLDER as FOLDER_TITLE
from dashboards.registry import RUNBOOK
from operations.build import write
from operations.generated import artefacts
from rules import runbook
from rules.evaluate.evaluator import Alert, Evaluator
from rules.grafana.decode import rules_from_text
from rules.grafana.encode import RULES as RULES_FILE
from rules.grafana.encode import rule_entry
from rules.registry import rules_of
from rules.rule import Rule
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

pytestmark = live_grafana.needs_grafana

FOLDER = Path(__file__).parent
CASES = load_cluster(FOLDER / "cluster.yaml")
RULES = rules_of(CASES).rules
WINDOW = 10
LEAD = 60
"""Seconds until the staged data begins: Grafana is up by then."""
CONVERSATION = "proto=tcp,service=https,off_hours=no,initiator=src,shard=0"


PLANNED = Maintenance(datetime(2099, 1, 1, 22, tzinfo=UTC), datetime(2099, 1, 2, 4, tzinfo=UTC), "rack 3 power")


@dataclass
class Live:
    grafana: Grafana
    inbox: Inbox
    mailbox: Mailbox
    store: Store
    rules: tuple[Rule, ...]
    """Those of the provisioned file, read back: the very text that Grafana evaluates."""
    begins: int


def _exfil(src: str, dst: str, at: int) -> str:
    return (
        f"egress,src={src},src_group=model_storage,dst={dst},dst_group=external,{CONVERSATION} "
        f"bytes=10000000000i,duration=10 {at}"
    )


@pytest.fixture(scope="module")
def live(influxdb_v1: LocalInfluxDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("grafana-rules")
    targets = (
        NotificationTarget("noc", "webhook", secrets=(("url", Secret(env="TEST_WEBHOOK")),)),
        NotificationTarget("mail", "email", settings=(("addresses", "noc@example.org"),)),
    )
    store_settings = replace(CASES.store, url=influxdb_v1.url, database="grafana_rules")
    cluster = replace(CASES, store=store_settings, notify=targets, site=replace(CASES.site, maintenance=(PLANNED,)))
    store = Store(store_settings)
    store.ensure(tuple(Retention(one.name, one.window, 0) for one in cluster.retentions()))
    begins = (int(time.time()) + LEAD) // 60 * 60 + 60
    story.fill(store, begins)
    provisioned = folder / "grafana"
    write(artefacts(cluster, str(provisioned)), folder)
    rules = rules_from_text((folder / RULES_FILE).read_text(encoding="utf-8"), RULES_FILE)
    with live_grafana.webhook() as inbox, live_grafana.mail_server() as mailbox:
        settings = {"TEST_WEBHOOK": inbox.url, **live_grafana.mail_settings(mailbox)}
        with live_grafana.running(folder, provisioned, **settings) as grafana:
            yield Live(grafana, inbox, mailbox, store, rules, begins)


def _plain(key: str) -> str:
    """Grafana spells some keys in two ways between file and API."""
    return key.replace("_", "").lower()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_field_of_a_rule_arrived(live: Live, rule: Rule) -> None:
    """A misspelt key is ignored in silence: only reading back shows it."""
    answer = live.grafana.get(f"/api/v1/provisioning/alert-rules/{rule.id}")
    found = {_plain(key): value for key, value in answer.items()}
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


@pytest.mark.timeout(600)
def test_state_by_state_as_our_evaluator(live: Live) -> None:
    """The same provisioned file over the same points: states, reasons, times and rendered texts at every evaluation."""
    seen = live_grafana.watched(live.grafana, live.begins + story.SECONDS)
    evaluator = Evaluator(live.store, live.rules)
    lines = [line for rule in live.rules for line in live_grafana.differences(seen, evaluator, rule)]
    assert not lines, "\n".join(lines[:40])
    due = story.due()
    fired = {
        one.rule
        for one in seen
        # What reports silence also fires before the story begins; some fire for one evaluation, and recover.
        if one.tick >= live.begins + due[one.rule]
        and any(shown.state.startswith(("Alerting", "Recovering")) for shown in one.shown.values())
    }
    assert fired == set(due)


@pytest.mark.timeout(600)
def test_what_fires_is_notified_in_the_evaluators_words(live: Live) -> None:
    """Label by label and word by word, as our own evaluation of the same store at the time of the notification."""
    deadline = time.monotonic() + 150
    while "exfil_volume" not in live.inbox.alerts() and time.monotonic() < deadline:
        time.sleep(1)
    now = int(time.time()) // WINDOW * WINDOW
    evaluator = Evaluator(live.store, live.rules)
    for _ in evaluator.run(now - 60, now):
        pass
    ours: dict[str, Alert] = {alert.rule: alert for alert in evaluator.alerts() if alert.is_firing}
    sent = live.inbox.alerts()
    rule = next(rule for rule in RULES if rule.id == "exfil_volume")
    assert sent[rule.id]["status"] == "firing"
    # Grafana leaves out what is empty: country, network and feed of an address of which nothing is known.
    assert sent[rule.id]["labels"] == {name: text for name, text in ours[rule.id].labels.items() if text}
    theirs = sent[rule.id]["annotations"]
    assert {name: theirs.get(name) for name in ours[rule.id].annotations} == ours[rule.id].annotations
    assert theirs["runbook_url"] == runbook.address(CASES, rule.id)
    assert rule.panel.dashboard_uid in sent[rule.id]["dashboardURL"]
    assert f"viewPanel={rule.panel.panel_id}" in sent[rule.id]["panelURL"].replace("panel-", "")


@pytest.mark.timeout(600)
def test_webhook_and_mail_have_the_five_facts(live: Live) -> None:
    """Of a second notification: the first after a start may go out with Grafana's default template."""
    now = int(time.time()) // WINDOW * WINDOW
    # Of another source, which makes a message of its own.
    second = [_exfil("model-store-2", "203.0.113.10", at) for at in range(now - 100, now - 40, WINDOW)]
    live.store.write("\n".join(second).encode(), "raw")
    wanted = "model-store-2 (Model Storage) → 203.0.113.10 (Unknown External) · 60GB · tcp (https) · 1m 0s · since "
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if wanted in live.inbox.messages() and wanted in live.mailbox.texts():
            break
        time.sleep(1)
    assert wanted in live.inbox.messages()
    assert wanted in live.mailbox.texts()
    (body,) = (body for body in live.inbox.bodies if wanted in body["message"])
    limit = "more than 50 GB to an address that nobody approved."
    assert body["title"].startswith("WARNING: Model storage sends much to an unapproved address: model-store-2 -> ")
    said = body["message"].split("\n")
    began = int(datetime.fromisoformat(body["alerts"][0]["startsAt"]).timestamp())
    assert said[0] == wanted + datetime.fromtimestamp(began, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    assert said[1].endswith(limit)
    assert said[3].startswith("Do: Find out who runs the transfer on the source.")
    start = CASES.grafana.url
    panel = f"{start}/d/cf-egress?from={(began - 1800) * 1000}&orgId=1&to=now&viewPanel=1"
    silence = (
        f"{start}/alerting/silence/new?alertmanager=grafana&matcher=dst%3D203.0.113.10&matcher=dst_group%3Dexternal"
        "&matcher=rule%3Dexfil_volume&matcher=src%3Dmodel-store-2&matcher=src_group%3Dmodel_storage"
    )
    assert said[5:] == [
        f"Panel: {panel}",
        f"Runbook: {runbook.address(CASES, 'exfil_volume')}",
        f"Silence: {silence}",
        "",
    ]


def test_maintenance_arrives(live: Live) -> None:
    (timing,) = live.grafana.get("/api/v1/provisioning/mute-timings")
    assert [interval["days_of_month"] for interval in timing["time_intervals"]] == [["1"], ["2"]]
    for target in live.grafana.get("/api/v1/provisioning/policies")["routes"]:
        assert {"clusterflow-maintenance-1"} == {
            name for route in target.get("routes", []) for name in route.get("mute_time_intervals", [])
        }


def test_the_runbook_is_there(live: Live) -> None:
    board = live.grafana.get(f"/api/dashboards/uid/{RUNBOOK.uid}")["dashboard"]
    assert {panel["id"] for panel in board["panels"]} >= {runbook.panel_id(rule.id) for rule in RULES}


def test_boards_and_rules_share_one_folder(live: Live) -> None:
    (folder,) = (one for one in live.grafana.get("/api/folders") if one["title"] == FOLDER_TITLE)
    found = live.grafana.get("/api/search?type=dash-db")
    assert {entry["folderUid"] for entry in found} == {folder["uid"]}


def test_nothing_was_warned_about(live: Live) -> None:
    loud = live.grafana.complaints()
    assert not loud, "\n".join(loud)
