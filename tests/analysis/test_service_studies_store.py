"""Inference load, coverage and capacity on a real InfluxDB: known answers, daylight saving, live as re-run."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import service_scene as scenes
from service_scene import GBIT, Scene

from analysis.detectors.fabric.capacity import CapacityStudy
from analysis.detectors.fabric.coverage import CoverageStudy
from analysis.detectors.inference.inference_load import InferenceStudy
from analysis.detectors.study import Span
from analysis.writing import Output
from store import schema
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW
from store.schema import Capacity, CoverageState, LoadState

NOW = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 6 * 3600
"""A whole hour some hours ago: points of a fixed day would be older than the retentions."""

WEEK, DAY, HOUR, MINUTE = 7 * 86_400, 86_400, 3_600, 60
CLIENT = {
    schema.SRC: "10.70.0.9", schema.SRC_GROUP: "users", schema.DST: "10.50.0.11", schema.DST_GROUP: "inference",
    schema.PROTO: "tcp", schema.SERVICE: "https", schema.OFF_WINDOW: schema.NO,
}  # fmt: skip


@pytest.fixture
def scene(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    with scenes.opened(influxdb_v1, fresh_database) as found:
        yield found


# -- load of inference ---------------------------------------------------------------------------------


def ask(scene: Scene, start: int, stop: int, a_minute: float, retention: str, *, client: str = "10.70.0.9") -> None:
    """Write requests of so many bytes a minute, and that the exporter was heard."""
    step = 10 if retention == schema.RAW else MINUTE
    tags = CLIENT | {schema.SRC: client}
    scene.write(schema.INFERENCE, tags, range(start, stop, step), retention, bytes=int(a_minute * step / MINUTE))
    scene.hear(range(start, stop, step), retention)


def earlier_weeks(scene: Scene, moment: int, count: int, a_minute: float, around: int = 3 * HOUR) -> None:
    """The same time of earlier weeks, by the clock on the site's wall."""
    zone = scene.cluster.site.time_zone
    wall = datetime.fromtimestamp(moment, zone).replace(tzinfo=None)
    for week in range(1, count + 1):
        then = int((wall - timedelta(weeks=week)).replace(tzinfo=zone).timestamp())
        ask(scene, then - around, then + around, a_minute, schema.MINUTE)


def verdicts(scene: Scene) -> dict[int, dict[str, Any]]:
    return {int(str(row["time"])) - NOW: row for row in scene.rows(schema.INFERENCE_LOAD)}


def test_a_spike_against_the_same_hours_of_earlier_weeks(scene: Scene) -> None:
    """12 MB a minute in three earlier weeks: 60 MB expected, 6 MB the floor of the spread, 96 MB the limit."""
    earlier_weeks(scene, NOW, 3, 12e6)
    ask(scene, NOW - HOUR, NOW + 600, 12e6, schema.RAW)
    ask(scene, NOW + 600, NOW + 1200, 48e6, schema.RAW, client="10.70.0.66")
    ask(scene, NOW + 600, NOW + 1200, 12e6, schema.RAW)
    scenes.run(scene, InferenceStudy(scene.cluster, scene.store), NOW, NOW + 1200, 1200)
    found = verdicts(scene)
    assert list(found) == list(range(0, 1201, 60))
    before = found[600]
    assert (before["bytes"], before["expected"], before["upper"], before["weeks"]) == (60_000_000, 60e6, 96e6, 3)
    assert {row["state"] for at, row in found.items() if at <= 600} == {LoadState.OK}
    assert [found[at]["bytes"] for at in (660, 720, 780)] == [108_000_000, 156_000_000, 204_000_000]
    assert {row["state"] for at, row in found.items() if at > 600} == {LoadState.SPIKE}
    assert [found[at]["spike_for"] for at in (600, 660, 720, 1200)] == [0, 0, 60, 540]
    assert found[900]["score"] == pytest.approx((300 - 60) / 6)


def test_a_busy_hour_that_every_week_has_is_quiet(scene: Scene) -> None:
    earlier_weeks(scene, NOW, 2, 500e6)
    ask(scene, NOW - 600, NOW + 600, 500e6, schema.RAW)
    scenes.run(scene, InferenceStudy(scene.cluster, scene.store), NOW, NOW + 600, 600)
    assert {row["state"] for row in verdicts(scene).values()} == {LoadState.OK}


def test_one_week_is_learning(scene: Scene) -> None:
    earlier_weeks(scene, NOW, 1, 10e6)
    ask(scene, NOW - 600, NOW + 600, 900e6, schema.RAW)
    scenes.run(scene, InferenceStudy(scene.cluster, scene.store), NOW, NOW + 600, 600)
    rows = verdicts(scene).values()
    assert {(row["state"], row["weeks"]) for row in rows} == {(LoadState.LEARNING, 1)}
    assert all("upper" not in row for row in rows), "no number that nobody knows"


def test_weeks_in_which_nothing_was_heard_do_not_count(scene: Scene) -> None:
    """A week of an outage is not a week of silence; a week of silence is one."""
    earlier_weeks(scene, NOW, 1, 10e6)
    scene.hear(range(NOW - 2 * WEEK - HOUR, NOW - 2 * WEEK + HOUR, MINUTE), schema.MINUTE)
    ask(scene, NOW - 600, NOW + 60, 10e6, schema.RAW)
    # Without daylight saving between: else these weeks lie an hour apart.
    utc = replace(scene.cluster, site=replace(scene.cluster.site, time_zone=ZoneInfo("UTC")))
    scenes.run(scene, InferenceStudy(utc, scene.store), NOW, NOW + 60, 60)
    assert {row["weeks"] for row in verdicts(scene).values()} == {2}
    assert verdicts(scene)[0]["expected"] == 25e6, "the median of 50 MB and nothing"


def test_weeks_follow_the_clock_on_the_wall(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Wherever daylight saving changed within six weeks, clients still come at their hour; UTC weeks would miss it."""
    changes = {"Europe/Amsterdam": "2026-10-25", "America/New_York": "2026-11-01"}
    for zone, day in changes.items():
        monday = datetime.fromisoformat(f"{day} 09:00").replace(tzinfo=ZoneInfo(zone)).timestamp() + DAY
        with scenes.opened(influxdb_v1, f"{fresh_database}_{day[5:7]}", zone) as scene:
            everlasting = replace(scene.cluster.store, keep_raw=9_000 * DAY, keep_1m=9_000 * DAY)
            scene.store.ensure(replace(scene.cluster, store=everlasting).retentions())
            start = int(monday)
            for week in (1, 2):
                # On the wall 09:00; an hour more of UTC lies in between than between two weeks of winter.
                then = start - week * WEEK - HOUR
                ask(scene, then, then + HOUR, 60e6, schema.MINUTE)
                scene.hear(range(then - 3 * HOUR, then + 3 * HOUR, MINUTE), schema.MINUTE)
            ask(scene, start, start + 30 * MINUTE, 60e6, schema.RAW)
            scenes.run(scene, InferenceStudy(scene.cluster, scene.store), start + 1740, start + 1800, 60)
            last = scene.rows(schema.INFERENCE_LOAD)[-1]
            assert (last["bytes"], last["expected"]) == (300_000_000, 300e6), zone


def test_live_as_in_a_re_run(scene: Scene) -> None:
    earlier_weeks(scene, NOW, 3, 10e6)
    rng = np.random.default_rng(1)
    moments = range(NOW - HOUR, NOW + HOUR, 10)
    sent = rng.gamma(3, 1e6, len(moments)).astype(int)
    sent[450:500] *= 20
    scene.write(schema.INFERENCE, CLIENT, moments, schema.RAW, bytes=sent.tolist())
    scene.hear(moments, schema.RAW)
    scenes.follow(scene, InferenceStudy(scene.cluster, scene.store), NOW, NOW + HOUR, 50)
    live = scene.rows(schema.INFERENCE_LOAD)
    assert {row["state"] for row in live} == {LoadState.OK, LoadState.SPIKE}
    scene.store.query(f'DROP MEASUREMENT "{schema.INFERENCE_LOAD.name}"')
    scenes.run(scene, InferenceStudy(scene.cluster, scene.store), NOW, NOW + HOUR, HOUR)
    assert scene.rows(schema.INFERENCE_LOAD) == live


def test_late_requests_change_the_verdict(scene: Scene) -> None:
    """They are seen when the next minute closes, or before the minute that they belong to becomes final."""
    earlier_weeks(scene, NOW, 3, 10e6)
    ask(scene, NOW - 600, NOW + 300, 10e6, schema.RAW)
    study, output = InferenceStudy(scene.cluster, scene.store), Output(scene.store)
    scenes.judge_once(output, study, Span(NOW, NOW, NOW + 310, NOW + 320))
    assert verdicts(scene)[300]["state"] == LoadState.OK
    ask(scene, NOW + 200, NOW + 300, 900e6, schema.RAW, client="10.70.0.66")
    scenes.judge_once(output, study, Span(NOW, NOW + 50, NOW + 350, NOW + 360))
    assert verdicts(scene)[300]["state"] == LoadState.OK, "the store was not asked again"
    scenes.judge_once(output, study, Span(NOW + 50, NOW + 60, NOW + 350, NOW + 360))
    assert verdicts(scene)[300]["state"] == LoadState.SPIKE


def test_a_cluster_without_inference_has_no_rows(scene: Scene) -> None:
    bare = replace(scene.cluster, groups=scene.cluster.groups[:2])
    scenes.run(scene, InferenceStudy(bare, scene.store), NOW, NOW + 600, 600)
    assert scene.rows(schema.INFERENCE_LOAD) == []


# -- coverage ------------------------------------------------------------------------------------------


def talk(scene: Scene, pair: tuple[str, str], a_minute: int, *, service: str = "other", counted: bool = True) -> None:
    """Write an hour of traffic of a group pair, which ends five minutes before NOW."""
    tags = {
        schema.SRC_GROUP: pair[0], schema.DST_GROUP: pair[1], schema.PROTO: "udp", schema.SERVICE: service,
        schema.PLANE: "compute" if pair == ("training", "training") else "storage",
    }  # fmt: skip
    moments = range(NOW - HOUR - 300, NOW - 300, MINUTE)
    counts = a_minute if counted else 0
    scene.write(schema.TRAFFIC, tags, moments, schema.MINUTE, bytes=counts, seen_bytes=a_minute)


def covered(scene: Scene) -> dict[tuple[str, str], dict[str, Any]]:
    scenes.run(scene, CoverageStudy(scene.cluster, scene.store), NOW, NOW + 60, 60)
    return {(str(row["src_group"]), str(row["dst_group"])): row for row in scene.rows(schema.COVERAGE)}


def test_pairs_that_are_seen_declared_and_allowed(scene: Scene) -> None:
    talk(scene, ("training", "training"), 40_000_000, service="rocev2")
    talk(scene, ("training", "training"), 10_000_000, service="ssh")
    talk(scene, ("storage", "users"), 7_000_000)
    talk(scene, ("users", "storage"), 7_000_000, counted=False)
    talk(scene, ("users", "local"), 7_000_000)
    found = covered(scene)
    states = {pair: row["state"] for pair, row in found.items()}
    assert states == {
        ("training", "training"): CoverageState.SEEN,
        ("storage", "users"): CoverageState.SEEN,
        ("users", "storage"): CoverageState.PARTIAL,
        ("users", "inference"): CoverageState.IDLE,  # allowed, and silent
        ("training", "storage"): CoverageState.IDLE,
    }
    collective = found["training", "training"]
    assert (collective["bytes"], collective["roce_bytes"], collective["declared"]) == (3_000_000_000, 2_400_000_000, 1)
    assert found["users", "storage"]["uncounted_bytes"] == 420_000_000


def test_roce_that_nobody_sees_is_invisible_and_sockets_are_not_as_declared(scene: Scene) -> None:
    assert covered(scene)["training", "training"]["state"] == CoverageState.INVISIBLE
    talk(scene, ("training", "training"), 40_000_000)
    assert covered(scene)["training", "training"]["state"] == CoverageState.UNDECLARED


def test_flows_against_the_counters_of_the_plane(scene: Scene) -> None:
    """Two ports of which flows show 30 and 50 of 100 GB each: 0.4, partly seen. Core links and others do not matter."""
    talk(scene, ("training", "storage"), 500_000_000)
    moments = range(NOW - HOUR - 300, NOW - 300, MINUTE)
    for name, flows, counters, kind in (
        ("port-1", 500_000_000, 1_600_000_000, "edge"), ("port-2", 780_000_000, 1_600_000_000, "edge"),
        ("uncounted", 900_000_000_000, 0, "edge"), ("up", 1, 900_000_000_000, "core"),
    ):  # fmt: skip
        tags = {schema.EXPORTER: "leaf-1", schema.INTERFACE: name, schema.PLANE: "storage", schema.KIND: kind}
        scene.write(
            schema.INTERFACE_TRAFFIC, tags, moments, schema.MINUTE, in_bytes=flows, out_bytes=0,
            counter_in_bytes=counters // 2, counter_out_bytes=counters // 2,
        )  # fmt: skip
    row = covered(scene)["training", "storage"]
    assert row["counter_share"] == pytest.approx(0.4)
    assert row["state"] == CoverageState.PARTIAL


def test_coverage_live_as_in_a_re_run(scene: Scene) -> None:
    talk(scene, ("training", "storage"), 500_000_000)
    scenes.follow(scene, CoverageStudy(scene.cluster, scene.store), NOW - HOUR, NOW + HOUR, 50)
    live = scene.rows(schema.COVERAGE)
    assert {int(str(row["time"])) - NOW for row in live} == set(range(-HOUR, HOUR + 1, 300))
    scene.store.query(f'DROP MEASUREMENT "{schema.COVERAGE.name}"')
    scenes.run(scene, CoverageStudy(scene.cluster, scene.store), NOW - HOUR, NOW + HOUR, HOUR)
    assert scene.rows(schema.COVERAGE) == live


# -- capacity ------------------------------------------------------------------------------------------


def bytes_at(rate: float, seconds: int) -> int:
    return int(rate / 8 * seconds)


def load_history(scene: Scene) -> None:
    """30 days of hours, and 26 hours of minutes that end at NOW: training to storage grows by 2 Gbit/s a day."""
    today = NOW // DAY * DAY
    hours = range(today - 30 * DAY, today, HOUR)
    pair = {
        schema.SRC_GROUP: "training", schema.DST_GROUP: "storage", schema.PROTO: "tcp", schema.SERVICE: "nfs",
        schema.PLANE: "storage",
    }  # fmt: skip
    growing = [bytes_at((20 + 2 * ((hour - hours[0]) // DAY)) * GBIT, HOUR) for hour in hours]
    scene.write(schema.TRAFFIC, pair, hours, schema.HOUR, bytes=growing)
    scene.hear(hours, schema.HOUR)
    minutes = range(NOW - 26 * HOUR, NOW, MINUTE)
    scene.hear(minutes, schema.MINUTE)
    # 80 Gbit/s, and for 60 minutes of the last day 150 Gbit/s: less than 5 % of it.
    busy = [bytes_at((150 if NOW - 2 * HOUR <= minute < NOW - HOUR else 80) * GBIT, MINUTE) for minute in minutes]
    scene.write(schema.TRAFFIC, pair, minutes, schema.MINUTE, bytes=busy)
    # The same pair by another service adds to it.
    scene.write(schema.TRAFFIC, pair | {schema.SERVICE: "s3"}, minutes, schema.MINUTE, bytes=bytes_at(GBIT, MINUTE))
    for node, sent, received in (("nas-1", 10, 40), ("nas-2", 7, 3)):
        for peer in ("training", "storage"):
            tags = {schema.NODE: node, schema.GROUP: "storage", schema.PEER_GROUP: peer, schema.PLANE: "storage"}
            scene.write(
                schema.NODE_TRAFFIC, tags, minutes, schema.MINUTE, tx_bytes=bytes_at(sent * GBIT / 2, MINUTE),
                rx_bytes=bytes_at(received * GBIT / 2, MINUTE),
            )  # fmt: skip
    for name, kind, flows, counters, speed in (
        ("rail0", "edge", 200, 300, 400), ("uplink", "core", 400, 0, 800), ("17", "edge", 5, 5, 25),
        ("18", "edge", 5, 0, 0),
    ):  # fmt: skip
        tags = {schema.EXPORTER: "leaf-1", schema.INTERFACE: name, schema.PLANE: "compute", schema.KIND: kind}
        scene.write(
            schema.INTERFACE_TRAFFIC, tags, minutes, schema.MINUTE,
            in_bytes=bytes_at(flows * GBIT, MINUTE), out_bytes=bytes_at(flows * GBIT / 2, MINUTE),
            counter_in_bytes=bytes_at(counters * GBIT / 2, MINUTE), counter_out_bytes=bytes_at(counters * GBIT, MINUTE),
            speed=speed * GBIT,
        )  # fmt: skip
    # Another bridge's partial says the same speed: speeds are not added up.
    tags = {schema.EXPORTER: "leaf-1", schema.INTERFACE: "17", schema.PLANE: "compute", schema.KIND: "edge"}
    scene.write(
        schema.INTERFACE_TRAFFIC, tags | {schema.SHARD: "b"}, minutes, schema.MINUTE, in_bytes=0, speed=25 * GBIT
    )


def test_capacity_of_pairs_links_and_endpoints(scene: Scene) -> None:
    load_history(scene)
    study = CapacityStudy(scene.cluster, scene.store)
    scenes.run(scene, study, NOW + 600, NOW + 610, 10)
    found = {(row["kind"], row["subject"]): row for row in scene.rows(schema.CAPACITY)}
    assert {int(str(row["time"])) for row in found.values()} == {NOW + 600}
    pair = found[Capacity.PAIR, "training -> storage"]
    assert (pair["p95"], pair["peak"], pair["limit"]) == (81e9, 151e9, 200e9)
    assert pair["utilisation"] == pytest.approx(0.405)
    assert pair["trend"] == pytest.approx(2e9)
    assert pair["full_at"] == pytest.approx(NOW + (200 - 81) / 2 * DAY)
    loads = {subject: (kind, row["p95"], row["limit"]) for (kind, subject), row in found.items()}
    assert loads == {
        "training -> storage": (Capacity.PAIR, 81e9, 200e9),
        "nas-1": (Capacity.ENDPOINT, 40e9, 100e9),  # the busier direction, both peers together
        "nas-2": (Capacity.ENDPOINT, 7e9, None),
        "leaf-1 rail0": (Capacity.EDGE, 300e9, 400e9),  # its counters rather than its flows
        "leaf-1 uplink": (Capacity.CORE, 400e9, 800e9),  # it has no counters
        "leaf-1 17": (Capacity.EDGE, 5e9, 25e9),  # the speed that the interface tells
        "leaf-1 18": (Capacity.EDGE, 5e9, None),
    }
    # All whose speed is known are more than a tenth full.
    assert {row["subject"]: row["utilisation"] for row in scene.rows(schema.LOADED)} == {
        subject: row["utilisation"] for (_, subject), row in found.items() if row["limit"]
    }
    # Of the others no hour is stored: 30 days of nothing do not rise.
    assert found[Capacity.ENDPOINT, "nas-1"]["trend"] == 0
    assert found[Capacity.ENDPOINT, "nas-1"]["full_at"] is None


def test_the_row_of_an_hour_is_there_when_its_time_comes(scene: Scene) -> None:
    """Else the last hour of a board has none from then on until it is."""
    load_history(scene)
    bridge = scene.cluster.bridge
    now = NOW + 600
    closed = now - bridge.lateness - 60
    span = Span(closed - bridge.grace - HOUR, closed - bridge.grace, closed, now)
    points = CapacityStudy(scene.cluster, scene.store).judge(span, ())
    for measurement in (schema.CAPACITY, schema.LOADED):
        assert now in {moment for one, rows in points if one is measurement for moment in rows.get_column(WINDOW)}


def test_minutes_in_which_nothing_was_heard_are_not_quiet(scene: Scene) -> None:
    """Two hours with 80 Gbit/s, and nothing heard for the rest of the day: p95 is not zero."""
    minutes = range(NOW - 2 * HOUR, NOW, MINUTE)
    tags = {schema.SRC_GROUP: "users", schema.DST_GROUP: "inference", schema.PROTO: "tcp", schema.SERVICE: "https"}
    scene.write(schema.TRAFFIC, tags, minutes, schema.MINUTE, bytes=bytes_at(80 * GBIT, MINUTE))
    scene.hear(minutes, schema.MINUTE)
    scenes.run(scene, CapacityStudy(scene.cluster, scene.store), NOW + 600, NOW + 610, 10)
    (row,) = scene.rows(schema.CAPACITY)
    assert scene.rows(schema.LOADED) == []
    assert (row["p95"], row.get("trend")) == (80e9, None)


def test_days_of_which_too_little_was_heard_do_not_bend_the_trend(scene: Scene) -> None:
    load_history(scene)
    today = NOW // DAY * DAY
    tags = {schema.SRC_GROUP: "training", schema.DST_GROUP: "storage", schema.PROTO: "tcp", schema.SERVICE: "nfs",
            schema.PLANE: "storage"}  # fmt: skip
    # Ten days of which the bridge was away for half a day, and what is there of them is small.
    for day in range(today - 12 * DAY, today - 2 * DAY, DAY):
        lost = range(day, day + 12 * HOUR, HOUR)
        scene.write(schema.EXPORTER_STATUS, {schema.EXPORTER: "leaf-1"}, lost, schema.HOUR, records=0)
        scene.write(schema.TRAFFIC, tags, range(day, day + DAY, HOUR), schema.HOUR, bytes=bytes_at(GBIT, HOUR))
    scenes.run(scene, CapacityStudy(scene.cluster, scene.store), NOW + 600, NOW + 610, 10)
    pair = next(row for row in scene.rows(schema.CAPACITY) if row["subject"] == "training -> storage")
    assert pair["trend"] == pytest.approx(2e9)


def test_capacity_live_as_in_a_re_run(scene: Scene) -> None:
    load_history(scene)
    start, stop = NOW - HOUR, NOW + HOUR
    scenes.follow(scene, CapacityStudy(scene.cluster, scene.store), start, stop, 300)
    live = scene.rows(schema.CAPACITY)
    assert {int(str(row["time"])) - NOW for row in live} == {-HOUR + 600, 600}
    scene.store.query(f'DROP MEASUREMENT "{schema.CAPACITY.name}"')
    scenes.run(scene, CapacityStudy(scene.cluster, scene.store), start, stop, HOUR)
    assert scene.rows(schema.CAPACITY) == live
