"""Maintenance mutes what it names, at its time, and never what is about security; Grafana's routes agree with us."""

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
import yaml

from cluster.advice import advice
from cluster.load import parse_cluster
from cluster.model import WEEK, EventSeverity, NotificationTarget
from dashboards.filled_queries import expand
from dashboards.lint import faults
from dashboards.provision import boards
from delivery.alert_events import AlertBook, Report
from delivery.parties import Parties
from delivery.transports.history_transport import changes
from rules.grafana.encode import MUTE_TIMES, POLICIES, artefacts
from rules.maintenance import muted_by
from rules.registry import rules_of
from store import schema, schema_version
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import encode
from store.schema import Change

SITE = """
cluster: lab
site:
  time_zone: Europe/Amsterdam
  maintenance:
  - {from: "2026-12-01 22:00", to: "2026-12-03 04:00", nodes: ["gpu-[1-2]"], exporters: [leaf-1], why: rack 3 power}
  - {from: "23:00", to: "01:30", weekdays: [sunday, wednesday], groups: [training], why: kernel updates}
  - {from: "2026-12-02T11:00:00Z", to: "2026-12-02T12:00:00Z", why: site power test}
  - {from: "2026-10-25T02:30:00+02:00", to: "2026-10-25T02:20:00+01:00", why: while the clock goes back}
groups:
  training: {role: training, prefixes: [10.20.0.0/16]}
  storage: {role: storage, prefixes: [10.30.0.0/16]}
  model_storage: {role: model_storage, prefixes: [10.40.0.0/24]}
nodes:
  "gpu-{1..4}": {group: training, addresses: ["10.20.0.{1..4}"]}
  "ost-{1..2}": {group: storage, addresses: ["10.30.0.{1..2}"]}
exporters: {leaf-1: {address: 10.20.0.250}, leaf-10: {address: 10.20.0.251}}
allowed: [{from: training, to: storage}, {from: training, to: model_storage}]
"""
CLUSTER = replace(parse_cluster(SITE), notify=(NotificationTarget("noc", "webhook"),))
RULES = rules_of(CLUSTER)
ZONE = ZoneInfo("Europe/Amsterdam")
NIGHT, NOON = datetime(2026, 12, 2, 0, 30, tzinfo=ZONE), datetime(2026, 12, 2, 12, 30, tzinfo=ZONE)
NODE_1 = {"node": "gpu-1", "group": "training", "job": "j"}
NODE_3 = {"node": "gpu-3", "group": "training", "job": "j"}


@pytest.mark.parametrize(
    ("rule", "labels", "moment", "why"),
    [
        ("node_dropout", NODE_1, NIGHT, "rack 3 power"),
        ("node_dropout", NODE_3, NIGHT, ""),
        ("node_dropout", NODE_3, NOON, "site power test"),
        ("node_dropout", NODE_3, datetime(2026, 12, 3, 1, 29, tzinfo=ZONE), "kernel updates"),
        ("node_dropout", NODE_3, datetime(2026, 12, 3, 1, 30, tzinfo=ZONE), ""),
        ("job_stalled", {"job": "j"}, datetime(2026, 12, 6, 23, 0, tzinfo=ZONE), "kernel updates"),
        ("job_stalled", {"job": "j"}, NIGHT, ""),
        ("rail_low", {"node": "gpu-3", "job": "j"}, datetime(2026, 12, 6, 23, 0, tzinfo=ZONE), "kernel updates"),
        ("exporter_silent", {"exporter": "leaf-1"}, NIGHT, "rack 3 power"),
        ("exporter_silent", {"exporter": "leaf-10"}, NIGHT, ""),
        ("exporter_silent", {"exporter": "leaf-1", "alertname": "DatasourceError"}, NIGHT, ""),
    ],
)
def test_what_is_muted_when(rule: str, labels: dict[str, str], moment: datetime, why: str) -> None:
    assert muted_by(CLUSTER, RULES.rule(rule), labels, moment.timestamp()) == why


def test_nodes_of_a_group_and_nodes_as_destination() -> None:
    """A node without its group, the node that many write to, a window with only some training groups."""
    other = "tuning: {role: training, prefixes: [10.21.0.0/16]}"
    two = SITE.replace("groups:\n", f"groups:\n  {other}\n")
    cluster = parse_cluster(two.replace('nodes: ["gpu-[1-2]"]', "nodes: [gpu-1, ost-1]"))
    sunday = datetime(2026, 12, 6, 23, 0, tzinfo=ZONE).timestamp()
    rail_low, incast = RULES.rule("rail_low"), RULES.rule("incast")
    assert muted_by(cluster, rail_low, {"node": "gpu-3", "job": "j"}, sunday) == "kernel updates"
    assert not muted_by(cluster, rail_low, {"node": "tune-3", "job": "j"}, sunday)
    assert muted_by(cluster, incast, {"dst": "ost-1", "dst_group": "storage"}, NIGHT.timestamp()) == "rack 3 power"
    assert not muted_by(cluster, incast, {"dst": "ost-2", "dst_group": "storage"}, NIGHT.timestamp())


def test_security_and_our_own_blindness_are_never_muted() -> None:
    """While the whole site is in maintenance: a thief would love the window."""
    muted = {rule.id for rule in RULES.rules if muted_by(CLUSTER, rule, {"src_group": "training"}, NOON.timestamp())}
    assert muted == {
        "node_dropout", "dropout_digest", "cohort_slowdown", "job_stalled", "held_silent", "checkpoint_missed",
        "incast", "rail_low", "packet_size_low", "link_full", "exporter_silent", "flow_loss", "rate_unknown",
        "clock_skewed",
    }  # fmt: skip
    assert {rule.family for rule in RULES.rules if rule.id in muted} == {"training", "links", "pipeline"}


def _muting(files: dict[str, str], labels: dict[str, str]) -> list[dict[str, Any]]:
    """Walk the target's children as Alertmanager does: the first that matches takes the alert, with its own timings."""
    (target,) = yaml.safe_load(files[POLICIES])["policies"][0]["routes"]
    timings = {one["name"]: one["time_intervals"] for one in yaml.safe_load(files[MUTE_TIMES])["muteTimes"]}
    for route in target["routes"]:
        if all(re.fullmatch(pattern, labels.get(name, "")) for name, _, pattern in route["object_matchers"]):
            return [interval for name in route.get("mute_time_intervals", []) for interval in timings[name]]
    return []


def _contains(interval: dict[str, Any], moment: datetime) -> bool:
    local = moment.astimezone(ZoneInfo(interval["location"]))
    calendar = {
        "weekdays": WEEK[local.weekday()].value,
        "days_of_month": str(local.day),
        "months": str(local.month),
        "years": str(local.year),
    }
    (times,) = interval["times"]
    return times["start_time"] <= f"{local:%H:%M}" < times["end_time"] and all(
        value in interval.get(name, [value]) for name, value in calendar.items()
    )


@pytest.mark.parametrize("begin", ["2026-10-24", "2026-11-30"])
def test_grafana_mutes_the_same_alerts_at_the_same_minutes(begin: str) -> None:
    files = artefacts(CLUSTER, RULES)
    subjects = [
        ("node_dropout", NODE_1), ("node_dropout", NODE_3), ("job_stalled", {"job": "j"}), ("exfil_volume", NODE_1),
        ("incast", {"dst": "s", "dst_group": "storage", "src_group": "training"}),
        ("incast", {"dst": "gpu-2", "dst_group": "training", "src_group": "training"}),
        ("exporter_silent", {"exporter": "leaf-1"}), ("exporter_silent", {"exporter": "leaf-10"}),
        ("rail_low", {"node": "gpu-1", "job": "j"}), ("rail_low", {"node": "gpu-3", "job": "j"}),
        ("ingest_deadman", {}), ("flow_loss", {"exporter": "elsewhere"}),
    ]  # fmt: skip
    first = int(datetime.fromisoformat(begin).replace(tzinfo=ZONE).timestamp())
    seen = set()
    for rule, labels in subjects:
        intervals = _muting(files, {"rule": rule, **labels})
        for moment in range(first, first + 8 * 86_400, 1_800):
            ours = bool(muted_by(CLUSTER, RULES.rule(rule), labels, moment))
            at = datetime.fromtimestamp(moment, ZONE)
            assert any(_contains(interval, at) for interval in intervals) == ours, (rule, labels, at)
            seen.add((rule, ours))
    muted = {rule for rule, ours in seen if ours}
    assert muted == {"node_dropout", "job_stalled", "exporter_silent", "incast", "flow_loss", "rail_low"}
    fault = {"rule": "node_dropout", **NODE_1, "alertname": "DatasourceError"}
    assert not _muting(files, fault)


def test_the_history_says_why_nobody_was_notified() -> None:
    book = AlertBook(CLUSTER, RULES, Parties(CLUSTER), None)
    began, why = NIGHT.timestamp(), "rack 3 power"
    dropout = Report("node_dropout", "Dropped out", began, EventSeverity.CRITICAL, labels=NODE_1)
    theft = Report("exfil_volume", "Much sent", began, EventSeverity.WARNING, labels={"src": "gpu-1"})
    begun = book.take([dropout, theft])
    assert [event.get("maintenance") for event in begun] == [why, None]
    # An hour after the window it ends: what was said of its begin stays.
    rows = changes([*begun, *book.take([replace(dropout, ended=began + 90_000)])])
    told = rows.filter(pl.col(schema.RULE) == "node_dropout")[schema.MAINTENANCE.name].to_list()
    assert told == [why, why]
    assert rows.filter(pl.col(schema.RULE) == "exfil_volume")[schema.MAINTENANCE.name].to_list() == [None]


def test_what_fires_on_when_its_window_is_over_is_muted_no_more() -> None:
    """The row keeps why nobody was notified at its begin; the wall counts it again."""
    book = AlertBook(CLUSTER, RULES, Parties(CLUSTER), None)
    dropout = Report("node_dropout", "Dropped out", NIGHT.timestamp(), EventSeverity.CRITICAL, labels=NODE_1)
    theft = Report("exfil_volume", "Much sent", NIGHT.timestamp(), EventSeverity.WARNING, labels={"src": "gpu-1"})
    book.take([dropout, theft])
    over = datetime(2026, 12, 3, 4, 0, tzinfo=ZONE).timestamp()
    for moment, why, muted in ((over - 1, "rack 3 power", 1), (over, None, 0)):
        rows = changes(book.firing(moment)).sort(schema.RULE, descending=True)
        assert rows[schema.MAINTENANCE.name].to_list() == [why, None]
        assert rows[schema.MUTED.name].to_list() == [muted, 0]
    # Its end was told to everybody: what its row says of that stays.
    end = book.take([replace(dropout, ended=over + 600)])
    ended = changes(end).filter(pl.col(schema.CHANGE) == Change.FIRED)
    assert (ended[schema.MUTED.name].to_list(), ended[schema.MAINTENANCE.name].to_list()) == ([None], ["rack 3 power"])


@pytest.mark.service
def test_the_wall_counts_what_is_muted_apart(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """By the tile's own query, from a store."""
    settings = replace(CLUSTER.store, url=influxdb_v1.url, database=fresh_database)
    began = float(int(time.time()) - 60)
    moments = (datetime.fromtimestamp(began + seconds, UTC) for seconds in (-60, 3600))
    window = replace(CLUSTER.site.maintenance[0], start=next(moments), end=next(moments))
    cluster = replace(CLUSTER, store=settings, site=replace(CLUSTER.site, maintenance=(window,)))
    book = AlertBook(cluster, RULES, Parties(cluster), None)
    reports = [
        Report("node_dropout", "Dropped out", began, EventSeverity.CRITICAL, labels=labels)
        for labels in (NODE_1, NODE_3)
    ]
    store = Store(settings)
    schema_version.prepare(store, cluster.retentions(), may_migrate=True)
    store.write(encode(schema.ALERT, changes(book.take(reports))), schema.ALERT.kept)
    wall = json.loads(boards(cluster)["noc_wall"])
    assert not list(faults(wall))
    texts = [one["query"] for panel in wall["panels"] for one in panel.get("targets", ())]
    of_a_day = partial(expand, start=int(began) - 86_400, end=int(began) + 60, minimum="", variables={})
    asked = next(one for one in texts if 'count("began")' in one and "critical" in one)
    (found,) = store.query(of_a_day(asked))
    assert found.values[0][1] == 1
    rows = next(one for one in texts if schema.BYTES_TEXT.name in one and "critical" in one)
    (shown,) = store.query(of_a_day(rows))
    assert sorted(row[shown.columns.index(schema.MUTED.name)] for row in shown.values) == [0, 1]


def test_without_windows_grafana_gets_none() -> None:
    files = artefacts(replace(CLUSTER, site=replace(CLUSTER.site, maintenance=())), RULES)
    assert MUTE_TIMES not in files
    assert "mute" not in files[POLICIES]


def test_a_window_of_weeks_is_asked_about() -> None:
    long = parse_cluster(SITE.replace("2026-12-03 04:00", "2026-12-31 04:00"))
    assert "site.maintenance[0]: lasts 29 days: alerts that it mutes notify nobody for so long" in advice(long)
