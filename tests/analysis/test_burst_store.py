"""Incast on a real InfluxDB: an ordinary checkpoint, a burst into one endpoint, live as re-run."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address

import polars as pl
import pytest
import service_scene as scenes
from service_scene import Scene

from analysis.detectors.storage.incast import BurstStudy
from analysis.detectors.study import Span
from analysis.writing import Output
from cluster.model import Cluster, Node, NodeAddress, Thresholds
from store import schema
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, encode

NOW = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 6 * 3600
ENDPOINTS = tuple(f"nas-{number}" for number in range(1, 5))
WRITERS = tuple(f"gpu-{number:02}" for number in range(1, 17))
GB = 1_000_000_000


@pytest.fixture
def scene(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    with scenes.opened(influxdb_v1, fresh_database) as found:
        nodes = tuple(
            Node(name, "storage", (NodeAddress(ip_address(f"10.30.0.{number}")),))
            for number, name in enumerate(ENDPOINTS, 1)
        )
        yield Scene(replace(found.cluster, nodes=nodes, thresholds=Thresholds()), found.store)


def write(scene: Scene, start: int, stop: int, sent: Mapping[str, Mapping[str, int]]) -> None:
    """Write what goes from each source to each endpoint in each window of a range, as the bridge stores it."""
    rows = [
        {schema.ENDPOINT: endpoint, schema.NODE: node, schema.WRITE_BYTES.name: volume, schema.READ_BYTES.name: 0}
        for node, parts in sent.items()
        for endpoint, volume in parts.items()
    ]
    windows = pl.DataFrame({WINDOW: range(start, stop, 10)})
    io = windows.join(pl.DataFrame(rows), how="cross").with_columns(
        pl.lit("storage").alias(schema.ENDPOINT_GROUP), pl.lit("training").alias(schema.GROUP)
    )
    received = io.group_by(WINDOW, schema.ENDPOINT).agg(pl.sum(schema.WRITE_BYTES.name).alias(schema.RX_BYTES.name))
    nodes = received.rename({schema.ENDPOINT: schema.NODE}).with_columns(
        pl.lit("storage").alias(schema.GROUP),
        pl.lit("training").alias(schema.PEER_GROUP),
        pl.lit("storage").alias(schema.PLANE),
    )
    for measurement, frame in ((schema.STORAGE_IO, io), (schema.NODE_TRAFFIC, nodes)):
        lines = encode(measurement, frame.with_columns(pl.lit("0").alias(schema.SHARD)))
        scene.store.write(lines, schema.RAW)


def evenly(volume: int) -> dict[str, dict[str, int]]:
    """Each node writes so much to the endpoint that it always writes to."""
    return {node: {ENDPOINTS[place % len(ENDPOINTS)]: volume} for place, node in enumerate(WRITERS)}


def into_one(volume: int, writers: int = 12) -> dict[str, dict[str, int]]:
    return {node: {"nas-3": volume} for node in WRITERS[:writers]}


def found(scene: Scene) -> list[tuple[object, ...]]:
    """Return (seconds after NOW, endpoint, sources, seconds, bytes in GB) of each row."""
    names = ("time", schema.DST, schema.EVENT_SOURCES.name, schema.EVENT_SECONDS.name, schema.EVENT_BYTES.name)
    rows = [[row[name] for name in names] for row in scene.rows(schema.BURST)]
    return [(int(str(row[0])) - NOW, *row[1:4], int(str(row[4])) / GB) for row in rows]


def test_a_checkpoint_is_no_incast(scene: Scene) -> None:
    write(scene, NOW - 1800, NOW - 1740, evenly(2 * GB))
    write(scene, NOW, NOW + 60, evenly(20 * GB))
    scenes.run(scene, BurstStudy(scene.cluster, scene.store), NOW - 1800, NOW + 120, 600)
    assert found(scene) == []


def test_many_nodes_into_one_endpoint_while_its_peers_idle(scene: Scene) -> None:
    write(scene, NOW - 1800, NOW - 1740, evenly(2 * GB))
    write(scene, NOW, NOW + 40, into_one(GB))
    scenes.run(scene, BurstStudy(scene.cluster, scene.store), NOW - 1800, NOW + 120, 600)
    assert found(scene) == [
        (0, "nas-3", 12, 10, 12), (10, "nas-3", 12, 20, 24), (20, "nas-3", 12, 30, 36), (30, "nas-3", 12, 40, 48),
    ]  # fmt: skip
    (row, *_) = scene.rows(schema.BURST)
    assert row[schema.TOP_SHARE.name] == 1
    assert row[schema.TYPICAL_SHARE.name] == pytest.approx(0.25)
    assert (row[schema.DST_GROUP], row[schema.SRC_GROUP]) == ("storage", "training")


def test_so_many_nodes_and_no_fewer(scene: Scene) -> None:
    # Others that read from it acknowledge what they get: they do not take part.
    write(scene, NOW, NOW + 40, into_one(2 * GB, 7) | {node: {"nas-3": 1000} for node in WRITERS[8:]})
    study = BurstStudy(scene.cluster, scene.store)
    scenes.run(scene, study, NOW - 60, NOW + 120, 600)
    assert found(scene) == []
    fewer = replace(scene.cluster, thresholds=Thresholds(incast_sources=7))
    scenes.run(scene, BurstStudy(fewer, scene.store), NOW - 60, NOW + 120, 600)
    assert {row[2] for row in found(scene)} == {7}


def test_what_is_usual_for_an_endpoint_is_none(scene: Scene) -> None:
    """The first endpoint takes in all there is, hour after hour."""
    for start in range(NOW - 4800, NOW, 600):
        write(scene, start, start + 60, into_one(GB))
    write(scene, NOW, NOW + 40, into_one(2 * GB))
    scenes.run(scene, BurstStudy(scene.cluster, scene.store), NOW - 60, NOW + 120, 600)
    assert found(scene) == []


def test_a_burst_that_goes_on_is_told_while_it_does(scene: Scene) -> None:
    """It does not become usual by itself within its first minutes."""
    write(scene, NOW - 1800, NOW - 1740, evenly(2 * GB))
    write(scene, NOW, NOW + 560, into_one(GB))
    scenes.run(scene, BurstStudy(scene.cluster, scene.store), NOW - 60, NOW + 600, 600)
    rows = found(scene)
    assert [row[0] for row in rows] == list(range(0, 560, 10))
    assert rows[-1][3] == 560


def test_live_as_in_a_re_run(scene: Scene) -> None:
    write(scene, NOW - 1800, NOW - 1740, evenly(2 * GB))
    write(scene, NOW - 300, NOW - 240, evenly(2 * GB))
    write(scene, NOW, NOW + 700, into_one(GB))
    write(scene, NOW + 900, NOW + 930, evenly(GB) | into_one(5 * GB, 9))
    scenes.follow(scene, BurstStudy(scene.cluster, scene.store), NOW - 600, NOW + 1200, 10)
    live = scene.rows(schema.BURST)
    assert len(live) > 60
    scene.store.query(f'DROP MEASUREMENT "{schema.BURST.name}"')
    scenes.run(scene, BurstStudy(scene.cluster, scene.store), NOW - 600, NOW + 1200, 600)
    assert scene.rows(schema.BURST) == live


def test_late_bytes_of_its_peers_take_it_back(scene: Scene) -> None:
    """What looked like a burst into one endpoint was a checkpoint whose other records came late."""
    study, output = BurstStudy(scene.cluster, scene.store), Output(scene.store)
    write(scene, NOW, NOW + 30, into_one(GB))
    scenes.judge_once(output, study, Span(NOW - 60, NOW - 60, NOW + 60, NOW + 70))
    assert len(found(scene)) == 3
    write(scene, NOW, NOW + 30, {node: dict.fromkeys(ENDPOINTS, GB) for node in WRITERS})
    scenes.judge_once(output, study, Span(NOW - 60, NOW, NOW + 60, NOW + 70))
    assert {row[4] for row in found(scene)} == {0}


def test_a_cluster_without_peers_to_compare_has_no_rows(scene: Scene) -> None:
    write(scene, NOW, NOW + 30, into_one(GB))
    alone: Cluster = replace(scene.cluster, nodes=scene.cluster.nodes[2:3])
    scenes.run(scene, BurstStudy(alone, scene.store), NOW - 60, NOW + 60, 600)
    assert found(scene) == []
