"""Sources: rows of a real store, each told of once, late ones too; alerts of our evaluator and of Grafana."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import requests

from app.log import Log
from cluster.load import load_cluster, parse_cluster
from cluster.model import (
    AlertsFrom,
    Cluster,
    DeliverySettings,
    EventKind,
    EventSeverity,
    FileDestination,
    NodeAddress,
    Secret,
    StoreSettings,
)
from delivery.alert_events import AlertBook, Report, report_of
from delivery.cli import _deliver
from delivery.deliver import SHARD, Delivery
from delivery.event import Document, at, epoch, iso
from delivery.grafana_hook import MOST_BYTES, GrafanaHook
from delivery.known_addresses import Directory, SignedIn
from delivery.parties import Parties
from delivery.transports.history_transport import changes
from operations.sightings import Sightings
from operations.status.status import status_of
from rules.evaluate.evaluator import Alert
from rules.evaluate.states import State as Evaluated
from rules.grafana.example_alert import example_of
from rules.grafana.message import Notification
from rules.registry import rules_of
from rules.runbook import address
from store import schema, schema_version
from store.influx import Store
from store.lease import Lease
from store.local_influxdb import LocalInfluxDB, free_port
from store.points import WINDOW, encode
from store.schema import CheckpointState, Kind, Measurement, Stage
from store.schema_version import Migration, NewerStoreError

SITE = """
cluster: lab
groups:
  models: {role: model_storage, prefixes: [10.30.0.0/16], title: Model Storage}
  training: {role: training, prefixes: [10.20.0.0/16]}
nodes:
  db-export-3: {group: models, addresses: [10.30.0.3]}
thresholds: {exfil_volume: 1 GB}
"""
TALK = {
    schema.SRC: "db-export-3", schema.SRC_GROUP: "models", schema.DST: "203.0.113.9", schema.DST_GROUP: "external",
    schema.PROTO: "tcp", schema.SERVICE: "https",
}  # fmt: skip
ALL = (EventKind.ALERT, EventKind.CONTACT, EventKind.VIOLATION, EventKind.THREAT, EventKind.JOB)


class Interrupted(Store):
    """A store whose machine can be away: then its connections are refused."""

    is_away = False
    asked = 0

    def _request(self, method: str, path: str, **arguments: Any) -> requests.Response:
        self.asked += 1
        if self.is_away:
            # Nobody listens on port 1.
            with closing(Store(replace(self.settings, url="http://127.0.0.1:1"))) as nowhere:
                return nowhere._request(method, path, **arguments)
        return super()._request(method, path, **arguments)


class Scene:
    """A store, and a delivery to a file; its clock is the test's."""

    def __init__(self, folder: Path, store: Store, cluster: Cluster) -> None:
        self.out = folder / "events.ndjson"
        self.store, self.cluster = store, cluster
        self.start()

    def start(self) -> None:
        """Start a delivery, as after a restart."""
        self.delivery = Delivery(self.cluster, self.store, log=Log(quiet=True), pauses=(0.05, 0.1))
        self.delivery.start()

    def write(self, measurement: Measurement, moment: int, tags: dict[str, str], **fields: object) -> None:
        """Store a row; its time is that of its window."""
        frame = pl.DataFrame([{WINDOW: moment - moment % 10, **tags, **fields}])
        self.store.write(encode(measurement, frame), measurement.kept)

    def tick(self, now: float) -> list[Document]:
        """Let the delivery look, and return all that has come out so far."""
        self.delivery.tick(now)
        while self.delivery.is_behind:
            self.delivery.tick(now)
        # Not the history: its store may be away.
        assert self.delivery.drain(60, ["out"]) == []
        return self.events()

    def events(self) -> list[Document]:
        if not self.out.exists():
            return []
        return [json.loads(line) for line in self.out.read_text().splitlines()]


def _scene(folder: Path, server: LocalInfluxDB, database: str, kinds: tuple[EventKind, ...], **more: object) -> Scene:
    out = FileDestination(name="out", path=str(folder / "events.ndjson"), events=kinds)
    settings = DeliverySettings(destinations=(out,), state=str(folder / "state"), metrics_listen=None)
    small = parse_cluster(SITE)
    cluster = replace(
        small,
        store=StoreSettings(url=server.url, database=database),
        delivery=replace(settings, **more),  # type: ignore[arg-type]
    )
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    return Scene(folder, store, cluster)


@pytest.fixture
def scene(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    kinds = (*ALL, EventKind.CONVERSATION)
    found = _scene(tmp_path, influxdb_v1, fresh_database, kinds, alerts=AlertsFrom.OFF)
    yield found
    found.delivery.stop(time.time())


def test_rows_are_told_of_once_with_all_that_is_known(scene: Scene) -> None:
    now = int(time.time()) // 300 * 300
    scene.tick(now - 600)
    labels = {schema.COUNTRY: "NL", schema.NETWORK: "AS64500 ExampleHost", schema.FEED: "blocklist"}
    contact = {schema.BYTES.name: 5000, schema.DURATION.name: 12.0, schema.CONTACT_FIRST.name: now - 300.0}
    scene.write(schema.CONTACT, now - 300, TALK | labels, **contact, **{schema.CONTACT_NEW.name: 1})
    scene.write(schema.CONTACT, now - 300, TALK | {schema.DST: "10.99.0.1"}, **contact, **{schema.CONTACT_NEW.name: 0})
    for shard, window, size in (("0", 0, 100), ("0", 10, 200), ("1", 0, 1000)):
        tags = {schema.KIND: "not_allowed", schema.SHARD: shard, schema.INITIATOR: "src"}
        scene.write(
            schema.VIOLATION, now - 300 + window, TALK | tags, **{schema.BYTES.name: size, schema.FLOWS.name: 1}
        )
    threat = {schema.DIRECTION: schema.OUTWARD, schema.LATE: schema.NO, schema.INDICATOR: "203.0.113.0/24"}
    values = {schema.BYTES.name: 41_000_000_000, schema.CONFIDENCE.name: 90, schema.LISTED_SINCE.name: now - 86_400}
    scene.write(schema.THREAT, now - 300, TALK | labels | threat, **values)
    known = {schema.KNOWN_NAME.name: "drop.example.net", schema.COUNTRY: "NL", schema.NETWORK: "AS64500 ExampleHost"}
    scene.write(schema.ADDRESS_NAME, now - 300, {schema.ADDRESS: "203.0.113.9"}, **known)
    events = {at(one, "kind"): one for one in scene.tick(now)}
    assert sorted(events) == ["contact", "threat", "violation"]
    assert at(events["violation"], "traffic.bytes") == 1300
    assert at(events["violation"], "traffic.flows") == 3
    # Its row has no labels: the directory does.
    assert at(events["violation"], "destination.country") == "NL"
    listed = events["threat"]
    assert at(listed, "destination.name") == "drop.example.net"
    assert at(listed, "destination.organisation") == "ExampleHost"
    assert at(listed, "destination.asn") == 64500
    assert at(listed, "source.address") == "10.30.0.3"
    assert at(listed, "threat.feeds") == ["blocklist"]
    assert at(listed, "summary") == (
        "db-export-3 (Model Storage) → drop.example.net (AS64500 ExampleHost, NL), 41 GB, TCP/https, "
        "listed by blocklist"
    )
    before = len(scene.events())
    # Nothing new: nothing told again, not after a restart either.
    assert len(scene.tick(now + 60)) == before
    scene.delivery.stop(now + 61)
    scene.start()
    assert len(scene.tick(now + 120)) == before


def test_events_say_the_address_the_port_and_where_it_entered(scene: Scene) -> None:
    now = int(time.time()) // 300 * 300
    scene.tick(now - 600)
    talk = TALK | {schema.SERVICE: schema.OTHER}
    seen = {
        schema.SRC_ADDRESS.name: "10.30.0.3", schema.DST_ADDRESS.name: "203.0.113.9", schema.PORT.name: 4444,
        schema.PORT_MAX.name: 4450, schema.OPENED_BY.name: "src", schema.ENTERED.name: "border-1 et-0/0/1",
        schema.BYTES.name: 100, schema.FLOWS.name: 1,
    }  # fmt: skip
    scene.write(schema.EGRESS, now - 300, talk | {schema.SHARD: "0"}, **seen)
    contact = {schema.BYTES.name: 5000, schema.DURATION.name: 12.0, schema.CONTACT_FIRST.name: now - 300.0}
    scene.write(schema.CONTACT, now - 300, talk, **contact, **{schema.CONTACT_NEW.name: 1})
    # The answer of a server inside: the port is its own.
    answer = {schema.KIND: "not_allowed", schema.INITIATOR: "dst", schema.SHARD: "0"}
    port = {schema.PORT.name: 22, schema.PORT_MAX.name: 22, schema.OPENED_BY.name: "dst"}
    scene.write(schema.VIOLATION, now - 300, talk | answer, **seen | port)
    events = {at(one, "kind"): one for one in scene.tick(now + 60)}
    assert sorted(events) == ["contact", "conversation", "violation"]
    for kind in ("contact", "conversation"):
        assert at(events[kind], "source.address") == "10.30.0.3"
        assert at(events[kind], "destination.port") == 4444
        assert at(events[kind], "destination.port_max") == 4450
        assert (at(events[kind], "traffic.exporter"), at(events[kind], "traffic.interface")) == ("border-1", "et-0/0/1")
    assert at(events["violation"], "source.port") == 22
    assert at(events["violation"], "source.port_max") is None
    assert at(events["violation"], "destination.port") is None


def test_an_alert_says_what_its_conversation_says(scene: Scene) -> None:
    now = int(time.time()) // 60 * 60
    seen = {
        schema.SRC_ADDRESS.name: "10.30.7.3", schema.DST_ADDRESS.name: "203.0.113.9", schema.PORT.name: 4444,
        schema.PORT_MAX.name: 4444, schema.OPENED_BY.name: "src", schema.BYTES.name: 100,
    }  # fmt: skip
    rails = replace(scene.cluster.nodes[0], addresses=(*scene.cluster.nodes[0].addresses, *_second_address()))
    cluster = replace(scene.cluster, nodes=(rails,))
    talk = TALK | {schema.SERVICE: schema.OTHER}
    scene.write(schema.EGRESS, now - 120, talk | {schema.SHARD: "0"}, **seen)
    # Another conversation of the same node is none of its business.
    scene.write(schema.EGRESS, now - 110, TALK | {schema.SHARD: "0"}, **seen | {schema.PORT.name: 443})
    labels = {**talk, "rule": "exfil_volume"}
    report = Report("exfil_volume", "Exfiltration", float(now), EventSeverity.CRITICAL, labels=labels)
    book = AlertBook(cluster, rules_of(cluster), Parties(cluster), None, Sightings(scene.store))
    (begin,) = book.take([report])
    assert at(begin, "source.name") == "db-export-3"
    assert at(begin, "source.address") == "10.30.7.3"
    assert at(begin, "destination.port") == 4444
    (row,) = changes([begin]).rows(named=True)
    assert (row["src_address"], row["dst_address"], row["port"]) == ("10.30.7.3", "203.0.113.9", 4444)


def _second_address() -> tuple[NodeAddress, ...]:
    return (NodeAddress(ip_address("10.30.7.3")),)


def test_what_was_taken_back_is_not_told_of(scene: Scene) -> None:
    now = int(time.time()) // 60 * 60
    scene.tick(now - 1200)
    nothing: dict[str, object] = {one.name: 0.0 if one.kind is Kind.FLOAT else 0 for one in schema.CHECKPOINT.fields}
    whole = {schema.EVENT_SECONDS.name: 30.0, schema.EVENT_BYTES.name: 1_000_000}
    for job, values in (("kept", whole), ("back", {})):
        tags = {schema.JOB: job, schema.JOB_CLASS: "llm"}
        scene.write(schema.CHECKPOINT, now - 600, tags, **nothing | values)
    assert [at(one, "job.id") for one in scene.tick(now)] == ["kept"]


def test_a_checkpoint_is_told_of_when_it_is_over(scene: Scene) -> None:
    now = int(time.time()) // 60 * 60
    scene.tick(now - 2400)
    tags = {schema.JOB: "llama", schema.JOB_CLASS: "llm"}
    age = schema.CHECKPOINT_AGE.name

    def write(seconds: float, state: CheckpointState) -> None:
        values = {schema.EVENT_SECONDS.name: seconds, schema.EVENT_BYTES.name: int(seconds) * 1000}
        scene.write(schema.CHECKPOINT, now - 1800, tags, **values, **{schema.CHECKPOINT_STATE.name: int(state)})

    write(30.0, CheckpointState.ON_TIME)
    scene.write(schema.CHECKPOINT_STATUS, now - 1770, tags, **{age: 5000.0})
    assert scene.tick(now - 1700) == []
    # It lasts for longer than anything else is looked for.
    write(1200.0, CheckpointState.OVER_LONG)
    scene.write(schema.CHECKPOINT_STATUS, now - 590, tags, **{age: 6180.0})
    assert scene.tick(now - 500) == []
    write(1300.0, CheckpointState.SHORT)
    scene.write(schema.CHECKPOINT_STATUS, now - 480, tags, **{age: 1330.0})
    (told,) = scene.tick(now - 300)
    assert (at(told, "job.verdict"), at(told, "traffic.bytes")) == ("short", 1_300_000)
    assert len(scene.tick(now)) == 1


def test_a_checkpoint_that_never_ends_is_told_of_as_it_stands(scene: Scene) -> None:
    now = int(time.time()) // 60 * 60
    began = now - 7500
    scene.tick(began - 600)
    tags = {schema.JOB: "llama", schema.JOB_CLASS: "llm"}
    values = {schema.EVENT_SECONDS.name: 6000.0, schema.EVENT_BYTES.name: 6_000_000}
    over_long = int(CheckpointState.OVER_LONG)
    scene.write(schema.CHECKPOINT, began, tags, **values, **{schema.CHECKPOINT_STATE.name: over_long})
    scene.write(schema.CHECKPOINT_STATUS, now - 10, tags, **{schema.CHECKPOINT_AGE.name: 9000.0})
    assert scene.tick(began + 6000) == []
    assert scene.tick(began + 6600) == []
    for moment in range(began + 6720, began + 7500, 120):
        scene.tick(moment)
    (told,) = scene.events()
    assert (at(told, "job.verdict"), at(told, "traffic.bytes")) == (schema.CHECKPOINT_WORDS[over_long], 6_000_000)
    assert len(scene.tick(now + 60)) == 1


def test_a_clock_that_was_ahead_once_does_not_silence_what_comes(scene: Scene) -> None:
    now = int(time.time()) // 60 * 60
    scene.tick(now - 1200)
    scene.tick(now + 86_400)
    scene.tick(now)
    tags = {schema.KIND: "not_allowed", schema.SHARD: "0"}
    scene.write(schema.VIOLATION, now, TALK | tags, **{schema.BYTES.name: 1, schema.FLOWS.name: 1})
    assert len(scene.tick(now + 600)) == 1


def test_a_host_that_boots_with_its_clock_behind_tells_nothing_again(scene: Scene) -> None:
    """Five hours of findings, until NTP sets it."""
    scene.tick(time.time() + 18_000)
    scene.delivery.stop(time.time())
    stopping, log = threading.Event(), Log(quiet=True)
    delivery = Delivery(scene.cluster, scene.store, log=log)
    reached = delivery.reached
    lease = Lease(scene.cluster.store, "deliver", Path(scene.cluster.delivery.state), log, stopping)
    threading.Timer(2, stopping.set).start()
    _deliver(scene.cluster, delivery, lease, log)
    assert time.time() + 17_000 < reached == delivery.reached
    scene.start()


def test_what_is_stored_late_is_found(scene: Scene) -> None:
    now = int(time.time()) // 60 * 60
    scene.tick(now - 1200)
    tags = {schema.KIND: "not_allowed", schema.SHARD: "0"}
    scene.write(schema.VIOLATION, now - 600, TALK | tags, **{schema.BYTES.name: 1, schema.FLOWS.name: 1})
    assert len(scene.tick(now)) == 1
    # Another conversation of the same minute, and one of before; and one that is older than we look back.
    for moment, name in ((now - 600, "gpu-1"), (now - 660, "gpu-2"), (now - 1190, "gpu-3")):
        row = TALK | tags | {schema.SRC: name}
        scene.write(schema.VIOLATION, moment, row, **{schema.BYTES.name: 1, schema.FLOWS.name: 1})
    told = scene.tick(now + 120)
    assert [at(one, "source.name") for one in told] == ["db-export-3", "gpu-2", "gpu-1"]
    assert len({one["id"] for one in told}) == 3


def test_what_goes_on_is_told_of_once(scene: Scene) -> None:
    """Minutes leave what is looked through again, while exporters are heard until shortly before a minute's end."""
    began = int(time.time()) // 60 * 60 - 3600
    tags, size = TALK | {schema.KIND: "not_allowed", schema.SHARD: "0"}, {schema.BYTES.name: 1, schema.FLOWS.name: 1}
    scene.tick(began)
    for minute in range(began, began + 1200, 60):
        scene.write(schema.VIOLATION, minute, tags, **size)
        scene.write(schema.EXPORTER_STATUS, minute + 50, {schema.EXPORTER: "leaf-1"}, **{schema.EXPORTER_BYTES.name: 1})
        if (minute - began) % 120:
            told = scene.tick(minute + 125)
    assert len({one["id"] for one in told}) == len(told) == 20


def test_what_is_worked_off_after_an_outage_is_told_of_once(scene: Scene) -> None:
    """A bridge writes windows of hours ago then, and an analysis judges them later still."""
    now = int(time.time()) // 300 * 300
    began = now - 7200

    def write(first: int, last: int) -> None:
        for moment in range(first, last, 600):
            scene.write(schema.EXPORTER_STATUS, moment, {schema.EXPORTER: "leaf-1"}, **{schema.EXPORTER_BYTES.name: 1})

    def judge(moment: int, lag: int) -> None:
        tags = {schema.STAGE: Stage.ANALYSIS.value, schema.REASON: schema.HEARTBEAT, schema.SHARD: "0"}
        scene.write(schema.PIPELINE, moment, tags, **{schema.VALUE.name: float(lag)})

    def violate(moment: int, name: str) -> None:
        tags = TALK | {schema.KIND: "not_allowed", schema.SHARD: "0", schema.SRC: name}
        scene.write(schema.VIOLATION, moment, tags, **{schema.BYTES.name: 1, schema.FLOWS.name: 1})

    write(began - 1200, began)
    judge(began - 30, 30)
    scene.tick(began - 600)
    scene.tick(began)
    # The store was away: the bridge has written nothing since.
    assert scene.tick(now - 600) == []
    violate(began + 1200, "gpu-1")
    write(began, began + 3000)
    assert [at(one, "source.name") for one in scene.tick(now - 480)] == ["gpu-1"]
    violate(began + 3600, "gpu-2")
    write(began + 3000, now - 480)
    assert [at(one, "source.name") for one in scene.tick(now - 360)] == ["gpu-1", "gpu-2"]
    # The analysis judges last.
    contact = {schema.BYTES.name: 1, schema.CONTACT_FIRST.name: float(began), schema.CONTACT_NEW.name: 1}
    scene.write(schema.CONTACT, began + 2400, TALK, **contact)
    judge(now - 300, 30)
    told = [at(one, "kind") for one in scene.tick(now - 240)]
    assert told == ["violation", "violation", "contact"]
    scene.delivery.stop(now - 200)
    scene.start()
    assert len(scene.tick(now)) == 3


@contextmanager
def leading(scene: Scene, folder: Path) -> Iterator[None]:
    """The delivery of one of two machines, until that dies: without an end in order."""
    settings = replace(scene.cluster.store, lease=True)
    scene.cluster = replace(scene.cluster, store=settings, delivery=replace(scene.cluster.delivery, state=str(folder)))
    with Lease(settings, "deliver", folder, Log(quiet=True), threading.Event()) as lease:
        assert lease.wait()
        scene.delivery = Delivery(scene.cluster, scene.store, log=Log(quiet=True), pauses=(0.05, 0.1), lease=lease)
        scene.delivery.start()
        yield
        for sender in scene.delivery.senders:
            sender.stop(10)
        scene.delivery._spool.close()


def test_an_alert_is_told_of_once_whichever_machine_delivers(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    scene = _scene(tmp_path, influxdb_v1, fresh_database, (EventKind.ALERT,))
    now = int(time.time()) // 10 * 10
    scene.delivery.stop(now)

    def told(moment: int) -> list[tuple[str, str]]:
        events = [one for one in scene.tick(moment) if one["action"] == "exfil_volume"]
        return [(str(one["state"]), str(one["incident"])) for one in events]

    tags = {schema.OFF_HOURS: schema.NO, schema.INITIATOR: "src", schema.SHARD: "0"}
    row = {schema.BYTES.name: 2_000_000_000, schema.PACKETS.name: 1, schema.FLOWS.name: 1, schema.DURATION.name: 10.0}
    scene.write(schema.EGRESS, now - 20, TALK | tags, **row)
    with leading(scene, tmp_path / "a"):
        (begin,) = told(now)
        assert begin[0] == "firing"
    with leading(scene, tmp_path / "b"):
        assert told(now + 10) == [begin]
        later = now + 1200
        scene.delivery._ticked_at = later - 10
        scene.delivery._evaluator = None
        end = ("resolved", begin[1])
        assert told(later) == [begin, end]
    with leading(scene, tmp_path / "a"):
        assert told(later + 10) == [begin, end]


def test_an_alert_is_told_of_when_it_begins_and_when_it_ends(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    scene = _scene(tmp_path, influxdb_v1, fresh_database, (EventKind.ALERT,))
    now = int(time.time()) // 10 * 10
    tags = {schema.OFF_HOURS: schema.NO, schema.INITIATOR: "src", schema.SHARD: "0"}
    row = {schema.BYTES.name: 2_000_000_000, schema.PACKETS.name: 1, schema.FLOWS.name: 1, schema.DURATION.name: 10.0}
    scene.write(schema.EGRESS, now - 20, TALK | tags, **row)
    told = [one for one in scene.tick(now) if one["action"] == "exfil_volume"]
    assert [one["state"] for one in told] == ["firing"]
    (begin,) = told
    assert at(begin, "severity") == "warning"
    assert at(begin, "traffic.bytes") == 2_000_000_000
    assert at(begin, "source.group_title") == "Model Storage"
    assert at(begin, "traffic.direction") == "outbound"
    assert at(begin, "runbook") == address(scene.cluster, "exfil_volume")
    board, began = at(begin, "board"), round(epoch(at(begin, "time")))
    assert board.endswith(f"/d/cf-egress?viewPanel=1&from={began - 1800}000&to=now")
    # A restart does not tell it again: it knows what fires.
    scene.delivery.stop(now + 1)
    scene.start()
    assert [one for one in scene.tick(now + 10) if one["action"] == "exfil_volume"] == told
    later = now + 1200
    scene.delivery._ticked_at = later - 10
    scene.delivery._evaluator = None
    end = [one for one in scene.tick(later) if one["action"] == "exfil_volume"][-1]
    assert end["state"] == "resolved"
    assert end["board"] == board.replace("=now", f"={round(epoch(end['end'])) + 1800}000")
    assert end["incident"] == begin["incident"]
    assert end["id"] != begin["id"]
    scene.delivery.stop(later)


def _told(scene: Scene, now: int) -> list[tuple[str, str, str]]:
    """Let the delivery look; return rule, state and time of the events so far, of what the scene makes fire."""
    made = ("exfil_volume", "ingest_deadman")
    return [
        (one["action"], one["state"], one.get("end", one["time"])) for one in scene.tick(now) if one["action"] in made
    ]


def _beat(scene: Scene, since: int, until: int) -> None:
    """Write heartbeats of the bridge."""
    tags = {schema.STAGE: schema.Stage.BRIDGE.value, schema.REASON: schema.HEARTBEAT, schema.SHARD: "0"}
    for moment in range(since, until, 10):
        scene.write(schema.PIPELINE, moment, tags, **{schema.VALUE.name: 1.0})


def test_a_first_start_does_not_tell_that_what_has_yet_to_start_has_stopped(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    """On a new machine all parts start within a minute or two; what has not come by then is told."""
    scene = _scene(tmp_path, influxdb_v1, fresh_database, (EventKind.ALERT,))
    now = int(time.time()) // 10 * 10
    assert scene.tick(now) == []
    _beat(scene, now + 10, now + 120)
    assert scene.tick(now + 110) == []
    assert {one["action"] for one in scene.tick(now + 120)} == {"analysis_stalled"}
    scene.delivery.stop(time.time())


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
def test_while_the_store_is_away_what_fires_is_left_alone(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str, *, restarts: bool
) -> None:
    scene = _scene(tmp_path, influxdb_v1, fresh_database, (EventKind.ALERT,))
    scene.delivery.stop(time.time())
    scene.store = store = Interrupted(scene.cluster.store)
    scene.start()
    now = int(time.time()) // 10 * 10
    tags = {schema.OFF_HOURS: schema.NO, schema.INITIATOR: "src", schema.SHARD: "0"}
    row = {schema.BYTES.name: 2_000_000_000, schema.PACKETS.name: 1, schema.FLOWS.name: 1, schema.DURATION.name: 10.0}
    scene.write(schema.EGRESS, now - 20, TALK | tags, **row)
    _beat(scene, now - 600, now)
    begun = [("exfil_volume", "firing", iso(now - 20))]
    assert _told(scene, now) == begun
    store.is_away = True
    if restarts:
        scene.delivery.stop(now + 1)
        scene.start()
    # All rules fail together, and one tells of it.
    begun += [("ingest_deadman", "firing", iso(now + 10))]
    assert _told(scene, now + 10) == begun
    before = store.asked
    assert _told(scene, now + 120) == begun
    # It is asked about one tick, not about those that were missed too.
    assert store.asked - before < 20
    store.is_away = False
    _beat(scene, now, now + 1200)
    begun += [("ingest_deadman", "resolved", iso(now + 130))]
    assert _told(scene, now + 130) == begun
    # The ticks that were missed are made up for.
    action, state, ended = _told(scene, now + 1200)[-1]
    assert (action, state) == ("exfil_volume", "resolved")
    assert ended < iso(now + 1200)
    scene.delivery.stop(time.time())


def test_a_store_that_is_upgraded_meanwhile_is_neither_read_nor_written_to(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    scene = _scene(tmp_path, influxdb_v1, fresh_database, (EventKind.CONTACT,), alerts=AlertsFrom.OFF)
    now = int(time.time()) // 10 * 10
    fields = {schema.CONTACT_NEW.name: 1, schema.BYTES.name: 5000}
    scene.tick(now - 600)
    scene.write(schema.CONTACT, now - 300, TALK, **fields)
    assert len(scene.tick(now)) == 1
    _upgrade(scene)
    scene.write(schema.CONTACT, now, TALK | {schema.DST: "203.0.113.10"}, **fields)
    before = _told_of_ourselves(scene)
    with pytest.raises(NewerStoreError, match="its schema has version 2, by clusterflow"):
        scene.tick(now + 60)
    scene.delivery.stop(now + 60)
    assert len(scene.events()) == 1
    assert _told_of_ourselves(scene) == before > 0


def test_a_store_that_comes_back_as_another_is_looked_at_first(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    scene = _scene(tmp_path, influxdb_v1, fresh_database, (EventKind.CONTACT,), alerts=AlertsFrom.OFF)
    scene.delivery.stop(time.time())
    scene.store = store = Interrupted(scene.cluster.store)
    scene.start()
    now = int(time.time()) // 10 * 10
    scene.tick(now)
    store.is_away = True
    scene.tick(now + 10)
    store.is_away = False
    _upgrade(scene)
    # A second later, when it would not be due otherwise.
    with pytest.raises(NewerStoreError):
        scene.tick(now + 11)
    scene.delivery.stop(now + 12)


def _upgrade(scene: Scene) -> None:
    """Leave the store as a bridge of tomorrow does."""
    steps = (*schema_version.MIGRATIONS, Migration("of tomorrow", lambda _: None))
    schema_version.prepare(scene.store, scene.cluster.retentions(), may_migrate=True, migrations=steps)


def _told_of_ourselves(scene: Scene) -> int:
    """Return how many points say how the delivery is."""
    found = scene.store.query(f'SELECT count("value") FROM "raw"."pipeline" WHERE "shard" = \'{SHARD}\'')
    return sum(int(row[1]) for series in found for row in series.values)


def test_a_stop_does_not_wait_for_ticks_that_were_missed(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    scene = _scene(tmp_path, influxdb_v1, fresh_database, (EventKind.ALERT,))
    now = int(time.time()) // 10 * 10
    scene.tick(now)
    scene.delivery._stopping.set()
    scene.delivery.tick(now + 600)
    assert scene.delivery._ticked_at == now + 10
    scene.delivery.stop(time.time())


@pytest.fixture
def slow(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    """A scene whose every tick seems to take 12 s, and whose rule fires after five minutes."""
    found = _scene(tmp_path, influxdb_v1, fresh_database, (EventKind.ALERT,))
    found.delivery.stop(time.time())
    found.store = Interrupted(found.cluster.store)
    found.start()
    waiting = (replace(one, pending_for=300) for one in found.delivery._rule_set.rules if one.id == "exfil_volume")
    found.delivery._rule_set = replace(found.delivery._rule_set, rules=tuple(waiting))
    found.delivery._ticks._clock = iter(range(0, 1_000_000, 12)).__next__
    yield found
    found.delivery.stop(time.time())


def _send(scene: Scene, moment: int) -> None:
    tags = {schema.OFF_HOURS: schema.NO, schema.INITIATOR: "src", schema.SHARD: "0"}
    row = {schema.BYTES.name: 2_000_000_000, schema.PACKETS.name: 1, schema.FLOWS.name: 1, schema.DURATION.name: 10.0}
    scene.write(schema.EGRESS, moment, TALK | tags, **row)


def test_a_slow_store_is_asked_about_the_present(slow: Scene) -> None:
    """What waits to fire comes to fire, though ticks are left out."""
    now = int(time.time()) // 10 * 10 - 1000
    slow.tick(now)
    _send(slow, now)
    before, told = slow.store.asked, []
    for moment in range(now + 30, now + 420, 30):
        slow.delivery.tick(moment)
        assert slow.delivery._ticked_at == moment
        told.append(len(slow.tick(moment)))
    # Once a tick by the rules, and not for each that was missed.
    assert slow.store.asked - before < 100
    assert told == [0] * 10 + [1] * 3


def test_after_an_outage_a_slow_store_fires_for_nothing_that_waited(slow: Scene) -> None:
    now = int(time.time()) // 10 * 10 - 2000
    slow.tick(now)
    _send(slow, now)
    slow.tick(now + 30)
    slow.store.is_away = True
    slow.tick(now + 60)
    slow.store.is_away = False
    # By chance it is over the limit again; nobody can say that it was all the time.
    _send(slow, now + 1000)
    told = [len(slow.tick(moment)) for moment in range(now + 1030, now + 1430, 30)]
    assert told == [0] * 10 + [1] * 4


def test_the_rest_has_its_turn_while_ticks_are_made_up_for(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    scene = _scene(tmp_path, influxdb_v1, fresh_database, (EventKind.ALERT,))
    now = int(time.time()) // 10 * 10
    scene.tick(now - 200)
    scene.delivery._ticks._clock = iter(range(0, 1_000_000, 2)).__next__
    scene.delivery.tick(now - 20)
    assert scene.delivery.is_behind
    assert now - 200 < (scene.delivery._ticked_at or 0) < now - 100
    before = _told_of_ourselves(scene)
    # A second later it goes on, and so does all else that is due.
    while scene.delivery.is_behind:
        scene.delivery.tick(now)
    assert scene.delivery._ticked_at == now
    assert _told_of_ourselves(scene) > before
    scene.delivery.stop(time.time())


def test_a_rule_that_cannot_be_evaluated_ends_none_of_its_alerts() -> None:
    cluster = parse_cluster(SITE)
    book = AlertBook(cluster, rules_of(cluster), Parties(cluster), None)
    one, other = (
        Report(rule=rule, title=rule, began=1000, severity=EventSeverity.WARNING, labels=TALK)
        for rule in ("exfil_volume", "first_external_contact")
    )
    assert len(book.take_all([one, other], 1000)) == 2
    assert [event["action"] for event in book.take_all([], 1010, blind={"exfil_volume"})] == ["first_external_contact"]
    # It waits again, as if it were new.
    assert book.take_all([], 1020, pending=[one]) == []
    assert book.take_all([one], 1030) == []
    (end,) = book.take_all([], 1040)
    assert end["end"] == iso(1040)


def test_an_alert_ends_with_the_most_that_it_told() -> None:
    """A theft of 65 GB leaves the rule's window piece by piece while its alert still fires."""
    cluster = parse_cluster(SITE)
    book = AlertBook(cluster, rules_of(cluster), Parties(cluster), None)

    def told(size: float, seconds: float) -> Report:
        values = {schema.BYTES.name: size, schema.DURATION.name: seconds}
        said = {"summary": f"{size:.0f} B in {seconds:.0f} s"}
        return Report("exfil_volume", "x", 1000, EventSeverity.WARNING, labels=TALK, values=values, annotations=said)

    book.take_all([told(50, 20)], 1000)
    for size, seconds in ((65, 30), (22, 10), (0, 0)):
        book.take_all([told(size, seconds)], 1010)
    (end,) = book.take_all([], 1040)
    assert (end["summary"], at(end, "traffic.bytes"), at(end, "traffic.duration")) == ("Resolved: 65 B in 30 s", 65, 30)


def test_an_alert_ends_with_what_it_said_while_its_condition_held() -> None:
    """An exporter that is heard again has been silent for 5 s for a minute more."""
    cluster = parse_cluster(SITE)
    book = AlertBook(cluster, rules_of(cluster), Parties(cluster), None)
    labels = {"alertname": "x", schema.EXPORTER: "leaf-1"}
    for state, age in ((Evaluated.ALERTING, 2400.0), (Evaluated.RECOVERING, 5.0)):
        said = {"summary": f"silent for {age:.0f} s"}
        alert = Alert("exporter_silent", "x", "warning", labels, state, "", 1000, 1000, {"age": age}, said)
        book.take_all([report_of(alert)], 3400)
    (end,) = book.take_all([], 3460)
    assert (end["summary"], end["values"]) == ("Resolved: silent for 2400 s", {"age": 2400.0})


@pytest.mark.parametrize(("label", "user"), [("alice", "alice"), ("-", None)])
def test_an_alert_names_the_user_of_its_label(label: str, user: str | None) -> None:
    cluster = parse_cluster(SITE)

    class Later:
        def user(self, address: str, moment: float) -> str:
            return f"who had {address} at {moment}"

    book = AlertBook(cluster, rules_of(cluster), Parties(cluster, None, Later()), None)
    labels = TALK | {schema.SRC: "10.20.0.5", schema.USER: label}
    (told,) = book.take([Report(rule="x", title="x", began=1000, severity=EventSeverity.WARNING, labels=labels)])
    assert at(told, "source.user") == user


def test_missing_data_is_one_outage_from_the_first_rule_to_the_last() -> None:
    """As Grafana tells it: each rule by itself, some of them twice."""
    cluster = parse_cluster(SITE)
    noted: dict[str, Any] = {}

    def take(*told: tuple[str, float, float | None]) -> list[tuple[str, str]]:
        nonlocal noted
        book = AlertBook(cluster, rules_of(cluster), Parties(cluster), noted)
        events = book.take(
            Report("", "DatasourceError", began, EventSeverity.WARNING, ended, {"alertname": "x", "rulename": rule})
            for rule, began, ended in told
        )
        noted = json.loads(json.dumps(book.notes()))
        return [(event["state"], event["incident"]) for event in events]

    ((state, incident),) = take(("a", 1000, None), ("b", 1000, None), ("c", 1010, None))
    assert state == "firing"
    assert take(("a", 1000, None), ("a", 1000, 1100)) == []
    assert take(("b", 1000, 1110), ("a", 1000, 1100), ("c", 1010, None)) == []
    assert take(("c", 1010, 1120)) == [("resolved", incident)]
    # What comes again tells nothing anew.
    assert take(("a", 1000, 1100), ("b", 1000, 1110), ("c", 1010, 1120), ("c", 1010, None)) == []
    ((state, another),) = take(("c", 2000, None))
    assert (state, another != incident) == ("firing", True)


def test_an_end_that_grafana_never_told_of_is_the_begin_of_the_next_incident() -> None:
    """A silence, or a rule that is deleted while it fires, keeps the end to itself."""
    cluster = parse_cluster(SITE)
    book = AlertBook(cluster, rules_of(cluster), Parties(cluster), None)
    day = 86_400

    def take(began: int, ended: int | None = None, size: float = 1.0) -> list[tuple[str, str, str | None]]:
        values = {schema.BYTES.name: size}
        report = Report("exfil_volume", "x", began, EventSeverity.WARNING, ended, labels=TALK, values=values)
        return [(one["state"], one["time"], one.get("end")) for one in book.take([report])]

    first, second, third = (iso(one * day) for one in (1, 2, 3))
    assert take(day) == [("firing", first, None)]
    assert take(2 * day, size=5e12) == [("resolved", first, second), ("firing", second, None)]
    # What was told of the one before is over, whenever it comes.
    assert take(day) == take(day, day + 60) == take(2 * day) == []
    assert at(book.firing(0)[0], "traffic.bytes") == 5_000_000_000_000
    assert take(2 * day, 2 * day + 60) == [("resolved", second, iso(2 * day + 60))]
    # Of the next one the begin was hidden, too.
    assert take(3 * day) == [("firing", third, None)]
    assert [state for state, *_ in take(4 * day, 4 * day + 60)] == ["resolved", "firing", "resolved"]
    assert book.open == 0


def test_a_begin_that_is_renewed_makes_no_new_incident() -> None:
    """As where an alert went from Recovering back to Alerting; our own evaluator says it of every such alert."""
    cluster = parse_cluster(SITE)
    book = AlertBook(cluster, rules_of(cluster), Parties(cluster), None)

    def told(began: int, ended: int | None = None) -> list[Report]:
        return [Report("exfil_volume", "x", began, EventSeverity.WARNING, ended, labels=TALK)]

    (begin,) = book.take(told(1000))
    assert book.take(told(1060)) == book.take(told(1010)) == []
    (end,) = book.take(told(1060, 1200))
    assert (end["incident"], end["end"]) == (begin["incident"], iso(1200))
    # Grafana repeats itself.
    assert book.take(told(1060, 1200)) == book.take(told(1060)) == book.take(told(1000, 1200)) == []
    assert len(book.take_all(told(2000), 2000)) == 1
    assert book.take_all(told(90_000), 90_000) == []
    assert len(book.take_all([], 90_010)) == 1


def test_missing_data_whose_end_was_never_told_is_another_outage() -> None:
    cluster = parse_cluster(SITE)
    book = AlertBook(cluster, rules_of(cluster), Parties(cluster), None)

    def take(*told: tuple[str, float, float | None]) -> list[str]:
        return [
            event["state"]
            for event in book.take(
                Report("", "DatasourceError", began, EventSeverity.WARNING, ended, {"alertname": "x", "rulename": rule})
                for rule, began, ended in told
            )
        ]

    assert take(("a", 1000, None)) == ["firing"]
    # Others join in, whenever that is, and the last to have its data again ends it.
    assert take(("b", 9000, None), ("a", 1000, None), ("a", 1000, 9500)) == []
    assert take(("b", 9000, None)) == []
    assert take(("b", 90_000, None)) == ["resolved", "firing"]
    assert take(("b", 9000, 9900), ("b", 90_000, None)) == []
    assert take(("b", 90_000, 90_100)) == ["resolved"]


def test_the_user_of_an_address_is_read_from_the_exports(tmp_path: Path) -> None:
    """Each at the time of the event."""
    began = int(time.time()) - 20_000
    (tmp_path / "vpn.csv").write_text(
        f"address,user,time\n10.20.0.5,alice,{iso(began)}\n10.20.0.5,bob,{iso(began + 600)}\n"
    )
    text = """
identity:
  hold: 1h
  sources: [{format: csv, path: vpn.csv, columns: {address: address, user: user, time: time}}]
"""
    cluster = parse_cluster(SITE + text, folder=tmp_path)
    users = SignedIn(cluster)
    assert [users.user("10.20.0.5", began + after) for after in (-1, 60, 660, 7200)] == ["", "alice", "bob", ""]
    assert users.user("10.20.0.6", began) == ""
    # Of a minute in which the address passed on, nobody can say whose it was.
    parties = Parties(cluster, None, users)
    starts = (began - 30, began + 60, began + 570, began + 630)
    found = [parties.party("10.20.0.5", "training", start, until=start + 60).user for start in starts]
    assert found == ["alice", "alice", "", "bob"]


def test_the_directory_leaves_a_store_alone_that_does_not_answer() -> None:
    store = Interrupted(StoreSettings())
    store.is_away = True
    directory = Directory(store)
    for last in range(20):
        assert directory.about(f"203.0.113.{last}") == {}
    assert store.asked == 1


def _notification(status: str, began: int, ended: int | None = None) -> dict[str, object]:
    zero = "0001-01-01T00:00:00Z"
    return {
        "receiver": "clusterflow",
        "status": status,
        "alerts": [
            {
                "status": status,
                "labels": {"alertname": "Model storage sends much", "grafana_folder": "clusterflow", **TALK}
                | {"rule": "exfil_volume", "severity": "critical"},
                "annotations": {"summary": "much", "bytes": "41 GB", "what_to_do": "look"},
                "startsAt": datetime.fromtimestamp(began, UTC).isoformat(),
                "endsAt": zero if ended is None else datetime.fromtimestamp(ended, UTC).isoformat(),
                "values": {"B": 41e9, "E": 720.0, "C": 1},
                "fingerprint": "x",
            }
        ],
    }


def test_grafana_posts_alerts(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", "a-token-of-ours")
    settings = {"alerts": AlertsFrom.GRAFANA, "token": Secret(env="TEST_TOKEN"), "listen": f"127.0.0.1:{free_port()}"}
    scene = _scene(tmp_path, influxdb_v1, fresh_database, (EventKind.ALERT,), **settings)
    assert scene.delivery.hook is not None
    url = f"http://127.0.0.1:{scene.delivery.hook.port}/grafana"
    bearer = {"Authorization": "Bearer a-token-of-ours"}
    began = int(time.time())

    def post(body: object, **more: object) -> int:
        given = {"headers": bearer, "timeout": 30, "json": body} | more
        return requests.post(url, **given).status_code  # type: ignore[arg-type]  # noqa: S113 - it is among them

    firing = _notification("firing", began)
    assert post(firing) == 200
    # Grafana repeats itself, with other alerts of the group, and every four hours.
    assert post(firing, headers={}, auth=("grafana", "a-token-of-ours")) == 200
    assert post(firing, headers={"Authorization": "Bearer another"}) == 401
    assert post(firing, headers={}) == 401
    assert post(firing, headers={}, auth=("grafana", "another")) == 401
    for header in ("Bearer töken-of-ours", "Basic tökens", "tö ken", "Bearer \xff"):
        assert post(firing, headers={"Authorization": header.encode("latin-1")}) == 401, header
        assert post(firing, headers={"Authorization": header.encode()}) == 401, header
    assert post(firing, headers={}, auth=("grafana", "töken-of-ours")) == 401
    assert post({"alerts": [{"status": "burning"}]}) == 400
    assert post(None, json=None, data=b"{") == 400
    assert post(None, json=None, data=b"x" * (MOST_BYTES + 1)) == 413
    assert post(_notification("resolved", began, began + 60)) == 200
    assert post(_notification("resolved", began, began + 60)) == 200
    assert scene.delivery.drain(60) == []
    told = scene.events()
    assert [one["state"] for one in told] == ["firing", "resolved"]
    assert at(told[0], "traffic.bytes") == 41_000_000_000
    assert at(told[0], "traffic.duration") == 720
    assert at(told[0], "facts.what_to_do") == "look"
    assert at(told[0], "labels").keys() == TALK.keys()
    scene.delivery.stop(time.time())


def test_grafana_posts_all_full_links_of_a_large_cluster_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """One rule, one body; Grafana gives up what is refused."""
    cluster = load_cluster(Path(__file__).parents[2] / "cluster.yaml")
    rule, now, taken = rules_of(cluster).rule("link_full"), int(time.time()), list[Report]()
    one = example_of(cluster, rule, now).told
    links = [
        {schema.EXPORTER: f"leaf-{leaf}", schema.INTERFACE: f"et-{port}"} for leaf in range(64) for port in range(32)
    ]
    alerts = [replace(one, labels={**one.labels, **link}) for link in links]
    body = Notification(alerts, ["rule"], "clusterflow-history", "https://grafana.example.org", now).webhook_body()
    hook = GrafanaHook(f"127.0.0.1:{free_port()}", "a-token-of-ours", {rule.id: rule}, taken.extend, Log())
    hook.start()
    url, bearer = f"http://127.0.0.1:{hook.port}/grafana", {"Authorization": "Bearer a-token-of-ours"}
    assert requests.post(url, body.encode(), headers=bearer, timeout=30).status_code == 200
    assert len({report.key() for report in taken}) == len(links)
    assert "alerts_refused" not in capsys.readouterr().err
    assert requests.post(url, b"x" * (MOST_BYTES + 1), headers=bearer, timeout=30).status_code == 413
    hook.stop()
    assert "event=alerts_refused" in capsys.readouterr().err


def test_status_knows_the_destinations(scene: Scene) -> None:
    now = time.time()
    scene.tick(now)
    status = status_of(scene.cluster, scene.store, int(now) + 1)
    assert status.error == ""
    told = {one.reason: one.number for one in status.counters if one.stage == Stage.DELIVER}
    assert {"out.sent", "out.refused", "out.lost", "out.retries", schema.HEARTBEAT} <= set(told)
    assert (told["out.waiting"], told["out.failing_seconds"]) == (0, 0)
