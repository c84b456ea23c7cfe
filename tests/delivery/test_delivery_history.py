"""The history of alerts in a real store: each change once, whatever restarts, and however often it is told."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any

import polars as pl
import pytest
import requests

from app.errors import UserError
from app.log import Log
from cluster.load import parse_cluster
from cluster.model import AlertsFrom, DeliverySettings, Secret, StoreSettings
from delivery.deliver import Delivery
from operations.alert_history import MOST, find_alert, mark, stored_alerts
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB, free_port
from store.points import WINDOW, encode

SITE = """
cluster: lab
groups:
  models: {role: model_storage, prefixes: [10.30.0.0/16], title: Model Storage}
nodes:
  db-export-3: {group: models, addresses: [10.30.0.3]}
thresholds: {exfil_volume: 1 GB}
"""
TALK = {
    schema.SRC: "db-export-3", schema.SRC_GROUP: "models", schema.DST: "203.0.113.9", schema.DST_GROUP: "external",
    schema.PROTO: "tcp", schema.SERVICE: "https",
}  # fmt: skip
RULE = "exfil_volume"


class AwayStore(Store):
    """A store that can be away: then its connections are refused."""

    is_away = False

    def _request(self, method: str, path: str, **arguments: Any) -> requests.Response:
        if self.is_away:
            # Nobody listens on port 1.
            with closing(AwayStore(replace(self.settings, url="http://127.0.0.1:1"))) as nowhere:
                return nowhere._request(method, path, **arguments)
        return super()._request(method, path, **arguments)


class Scene:
    """A delivery without any destination but the history; its clock is the test's."""

    def __init__(self, folder: Path, settings: StoreSettings, **more: Any) -> None:
        delivery = DeliverySettings(state=str(folder / "state"), metrics_listen=None, **more)
        self.cluster = replace(parse_cluster(SITE), store=settings, delivery=delivery)
        self.store = AwayStore(self.cluster.store)
        self.store.ensure(self.cluster.retentions())
        self.start()

    def start(self) -> None:
        self.delivery = Delivery(self.cluster, self.store, log=Log(quiet=True), pauses=(0.05, 0.1))
        self.delivery.start()

    def restart(self) -> None:
        self.delivery.stop(time.time())
        self.start()

    def send(self, moment: int, size: int) -> None:
        """Store bytes that the rule counts."""
        tags = {schema.OFF_HOURS: schema.NO, schema.INITIATOR: schema.BY_SOURCE, schema.SHARD: "0"}
        row = {schema.BYTES.name: size, schema.PACKETS.name: 1, schema.FLOWS.name: 1, schema.DURATION.name: 10.0}
        frame = pl.DataFrame([{WINDOW: moment, **TALK, **tags, **row}])
        self.store.write(encode(schema.EGRESS, frame), schema.EGRESS.kept)

    def tick(self, now: int) -> None:
        self.delivery.tick(now)
        while self.delivery.is_behind:
            self.delivery.tick(now)
        assert self.delivery.drain(60) == []

    def later(self, now: int) -> None:
        """Tick after a long time in which nothing happened."""
        self.delivery._ticked_at, self.delivery._evaluator = now - 10, None
        self.tick(now)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the rule in the history, in the order of time."""
        found = self.store.query(
            f'SELECT * FROM "{schema.ALERT.kept}"."{schema.ALERT.name}" WHERE "{schema.RULE}" = \'{RULE}\''
        )
        return [dict(zip(one.columns, row, strict=True)) for one in found for row in one.values]


@pytest.fixture
def settings(influxdb_v1: LocalInfluxDB, fresh_database: str) -> StoreSettings:
    return StoreSettings(url=influxdb_v1.url, database=fresh_database)


@pytest.fixture
def scene(tmp_path: Path, settings: StoreSettings) -> Iterator[Scene]:
    found = Scene(tmp_path, settings)
    yield found
    found.delivery.stop(time.time())


def test_each_change_is_one_row_through_restarts(scene: Scene) -> None:
    now = int(time.time()) // 10 * 10
    scene.send(now - 20, 2_000_000_000)
    scene.tick(now)
    scene.restart()
    scene.tick(now + 10)
    # It goes on: the row says what is known now.
    scene.send(now, 3_000_000_000)
    scene.tick(now + 20)
    (row,) = scene.rows()
    assert (row[schema.CHANGE], row[schema.ALERT_STATE.name]) == ("fired", "firing")
    assert (row[schema.SEVERITY], row[schema.SRC]) == ("warning", "db-export-3")
    assert row[schema.ALERT_SOURCE.name] == "db-export-3 (Model Storage)"
    assert row[schema.ALERT_DESTINATION.name].startswith("203.0.113.9")
    assert (row[schema.ALERT_BYTES.name], row[schema.BYTES_TEXT.name]) == (5_000_000_000, "5GB")
    assert row[schema.ALERT_PROTOCOL.name] == "tcp (https)"
    assert "/d/cf-runbook?viewPanel=" in row[schema.RUNBOOK.name]
    assert row[schema.WHAT_TO_DO.name]
    assert (row["time"] // 1000, row[schema.BEGAN.name]) == (now - 20, now - 20)
    scene.later(now + 1200)
    scene.restart()
    scene.later(now + 1210)
    fired, resolved = scene.rows()
    assert (fired[schema.CHANGE], resolved[schema.CHANGE]) == ("fired", "resolved")
    assert fired[schema.ALERT_STATE.name] == resolved[schema.ALERT_STATE.name] == "resolved"
    assert fired[schema.ENDED.name] == resolved[schema.ENDED.name] == resolved["time"] // 1000
    assert fired[schema.FIRED_SECONDS.name] == resolved[schema.ENDED.name] - (now - 20)
    # What was said last, while it fired.
    assert resolved[schema.ALERT_BYTES.name] == fired[schema.ALERT_BYTES.name] == 5_000_000_000
    # The same rule and labels fire once more: another alert.
    scene.send(now + 2400, 2_000_000_000)
    scene.later(now + 2420)
    assert [row[schema.CHANGE] for row in scene.rows()] == ["fired", "resolved", "fired"]
    assert len({row[schema.INCIDENT.name] for row in scene.rows()}) == 2


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_alert_keeps_its_id_where_the_spool_is_lost(scene: Scene, tmp_path: Path, *, goes_on: bool) -> None:
    """Or restored from before it began; evaluated again, it began 15 minutes ago at most."""
    began = int(time.time()) // 10 * 10 - 3600
    scene.send(began - 20, 2_000_000_000)
    scene.tick(began)
    if goes_on:
        for minutes in range(10, 70, 10):
            scene.send(began + 60 * minutes, 2_000_000_000)
    (before,) = scene.rows()
    scene.delivery.stop(time.time())
    rmtree(tmp_path / "state")
    scene.start()
    scene.tick(began + 3600)
    row = scene.rows()[0]
    assert (row[schema.INCIDENT.name], row["time"]) == (before[schema.INCIDENT.name], before["time"])
    states = [one[schema.ALERT_STATE.name] for one in scene.rows()]
    assert states == (["firing"] if goes_on else ["resolved", "resolved"])


def test_changes_wait_for_a_store_that_is_away(tmp_path: Path, settings: StoreSettings) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-ours")
    listen = f"127.0.0.1:{free_port()}"
    scene = Scene(tmp_path, settings, alerts=AlertsFrom.GRAFANA, token=Secret(file=str(token)), listen=listen)
    began = int(time.time()) - 100

    def post(status: str, size: float, **more: int) -> int:
        moments = {name: datetime.fromtimestamp(at, UTC).isoformat() for name, at in more.items()}
        alert = {
            "status": status,
            "labels": {"alertname": "Much", "rule": RULE, "severity": "critical", **TALK},
            "annotations": {"summary": "much", "source": "db-export-3 (Model\nStorage)", "bytes": f"{size:g}B"},
            "values": {"B": size, "C": 1},
            **moments,
        }
        bearer = {"Authorization": "Bearer a-token-of-ours"}
        return requests.post(
            f"http://{listen}/grafana", headers=bearer, json={"alerts": [alert]}, timeout=30
        ).status_code

    scene.store.is_away = True
    assert post("firing", 1e9, startsAt=began) == 200
    scene.restart()
    assert post("firing", 1e9, startsAt=began) == 200
    assert post("resolved", 0.0, startsAt=began, endsAt=began + 60) == 200
    assert post("resolved", 0.0, startsAt=began, endsAt=began + 60) == 200
    scene.restart()
    scene.store.is_away = False
    assert scene.delivery.drain(60) == []
    fired, resolved = scene.rows()
    assert (fired["time"] // 1000, resolved["time"] // 1000) == (began, began + 60)
    assert fired[schema.ALERT_STATE.name] == "resolved"
    # The numbers of the end are those of what is over.
    assert resolved[schema.ALERT_BYTES.name] == 1_000_000_000
    assert resolved[schema.ALERT_SOURCE.name] == "db-export-3 (Model Storage)"
    scene.delivery.stop(time.time())


def test_marks_stay_whatever_is_told_afterwards(scene: Scene) -> None:
    now = int(time.time()) // 10 * 10
    scene.send(now - 20, 2_000_000_000)
    scene.tick(now)
    alert = next(one for one in stored_alerts(scene.store, now - 600, now) if one.rule == RULE)
    assert find_alert(scene.store, alert.id[:8], now) == alert
    mark(scene.store, alert, acknowledged=now + 70)
    mark(scene.store, alert, is_false=True, why='a "planned"\nmove')
    scene.send(now, 3_000_000_000)
    scene.tick(now + 10)
    scene.later(now + 1200)
    marked = find_alert(scene.store, alert.id, now)
    assert (marked.is_false, marked.why, marked.acknowledged) == (True, 'a "planned" move', now + 70)
    assert marked.state == "resolved"
    fired, _ = scene.rows()
    assert fired[schema.ACKNOWLEDGE_SECONDS.name] == now + 70 - alert.began
    assert json.dumps(marked.json())


def test_an_alert_is_found_by_its_id_however_many_came_after(scene: Scene) -> None:
    """A ticket names it for two years; a large cluster has thousands of alerts in a bad week."""
    now, number = int(time.time()), MOST + 1
    tags = {schema.RULE: RULE, schema.SEVERITY: "warning", schema.SRC: "db-export-3", schema.ALERT_KEY: "0"}
    ids = pl.Series([f"{one:08x}" for one in range(number)])
    rows = pl.DataFrame({WINDOW: range(now - number, now), schema.INCIDENT.name: ids}).with_columns(
        *(pl.lit(text).alias(name) for name, text in {**tags, schema.CHANGE: schema.Change.FIRED}.items())
    )
    scene.store.write(encode(schema.ALERT, rows), schema.ALERT.kept)
    assert find_alert(scene.store, ids[0], now).began == now - number
    with pytest.raises(UserError, match=r"000027: 17 alerts begin so"):
        find_alert(scene.store, "000027", now)


@pytest.mark.parametrize(("prefix", "words"), [("", "expected 4 to 32"), ("x' or", "expected 4"), ("dead", "no alert")])
def test_an_id_that_is_none_is_said(scene: Scene, prefix: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        find_alert(scene.store, prefix, int(time.time()))
