"""Who disturbs whom, on a real InfluxDB: idle nodes, other jobs, groups on the compute plane; and who does not."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import service_scene as scenes
from service_scene import Scene

from analysis.detectors.training.disturbance import DisturbanceStudy
from cluster.model import Job, Node
from store import schema
from store.local_influxdb import LocalInfluxDB

NOW = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 6 * 3600
NODES = tuple(f"gpu-{number:02}" for number in range(1, 17))
GB = 1_000_000_000


def job(name: str, nodes: tuple[str, ...], start: int = -3600, lasting: int = 7200, origin: str = "slurm") -> Job:
    begin = datetime.fromtimestamp(NOW + start, UTC)
    return Job(name, name, nodes, begin, begin + timedelta(seconds=lasting), origin=origin)


JOBS = (job("big", NODES[:8]), job("small", NODES[8:12]))


@pytest.fixture
def scene(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    with scenes.opened(influxdb_v1, fresh_database) as found:
        nodes = tuple(Node(name, "training", ()) for name in NODES)
        yield Scene(replace(found.cluster, nodes=nodes), found.store)


def send(scene: Scene, src: str, dst: str, span: tuple[int, int], volume: int) -> None:
    """So many bytes a window of 10 s."""
    start, stop = span
    tags = {schema.SRC: src, schema.DST: dst, schema.PLANE: "compute"}
    scene.write(schema.PAIR, tags, range(NOW + start, NOW + stop, 10), schema.PAIR.kept, bytes=volume)


def receive(scene: Scene, group: str, plane: str, volume: int) -> None:
    tags = {schema.NODE: "gpu-03", schema.GROUP: "training", schema.PEER_GROUP: group, schema.PLANE: plane}
    moments = range(NOW, NOW + 120, 10)
    scene.write(schema.NODE_TRAFFIC, tags, moments, schema.RAW, rx_bytes=volume, tx_bytes=0, flows=1)


def judged(scene: Scene, *jobs: Job) -> list[tuple[object, ...]]:
    """Return (seconds after NOW, kind, source, its job, destination, job, GB, sources) of each row."""
    scenes.run(scene, DisturbanceStudy(scene.cluster, scene.store), NOW, NOW + 1200, 300, jobs=jobs or JOBS)
    names = (schema.KIND, schema.SRC, schema.FROM_JOB, schema.DST, schema.JOB)
    return [
        (int(str(row["time"])) - NOW, *(row[name] for name in names), int(str(row["bytes"])) / GB, row["sources"])
        for row in scene.rows(schema.DISTURBANCE)
    ]


def test_an_idle_node_and_a_node_of_another_job(scene: Scene) -> None:
    send(scene, "gpu-16", "gpu-03", (0, 60), 10 * GB)
    send(scene, "gpu-09", "gpu-05", (300, 360), 20 * GB)
    rows = judged(scene)
    assert [row for row in rows if row[0] in (60, 360)] == [
        (60, "unallocated", "gpu-16", "-", "gpu-03", "big", 60, 1),
        (360, "other_job", "gpu-09", "small", "gpu-05", "big", 120, 1),
    ]
    # As long as its minute lies in the five before; none after that.
    assert [row[0] for row in rows if row[1] == "unallocated"] == [60, 120, 180, 240, 300]


def test_many_sources_are_not_named(scene: Scene) -> None:
    for number in range(3):
        send(scene, NODES[13 + number], NODES[number], (0, 60), 10 * GB)
    assert judged(scene)[0] == (60, "unallocated", "other", "-", "other", "big", 180, 3)


def test_who_shares_a_job_disturbs_nobody(scene: Scene) -> None:
    send(scene, "gpu-01", "gpu-02", (0, 600), 10 * GB)
    # Nodes of a run that ended a minute ago, and of the one that follows it there.
    send(scene, "gpu-13", "gpu-14", (0, 120), 10 * GB)
    before, after = job("big", NODES[12:], -3600, 3630), job("next", NODES[13:], 60, 600)
    assert judged(scene, *JOBS[1:], before, after) == []


def test_nobody_is_disturbed_outside_a_run_or_where_nobody_tells_of_jobs(scene: Scene) -> None:
    send(scene, "gpu-16", "gpu-03", (0, 120), 10 * GB)
    send(scene, "gpu-16", "gpu-15", (0, 120), 10 * GB)
    late, inferred = job("big", NODES[:8], 300), job("inferred-1", NODES[:8], origin="inferred")
    assert judged(scene, late) == []
    assert judged(scene, inferred) == []


def test_a_group_on_the_compute_plane_and_not_on_its_own(scene: Scene) -> None:
    receive(scene, "users", "compute", 10 * GB)
    receive(scene, "users", "frontend", 10 * GB)
    # Storage there, and groups that may not talk to training nodes, are told by other rules.
    receive(scene, "storage", "compute", 10 * GB)
    receive(scene, "inference", "compute", 10 * GB)
    (first, *_) = judged(scene)
    assert first == (60, "group", "other", "-", "gpu-03", "big", 60, 1)
    assert {row["src_group"] for row in scene.rows(schema.DISTURBANCE)} == {"users"}


def test_live_as_in_a_re_run(scene: Scene) -> None:
    send(scene, "gpu-16", "gpu-03", (0, 400), 3 * GB)
    send(scene, "gpu-09", "gpu-03", (100, 500), 2 * GB)
    scenes.follow(scene, DisturbanceStudy(scene.cluster, scene.store), NOW, NOW + 1200, 10, jobs=JOBS)
    live = scene.rows(schema.DISTURBANCE)
    scene.store.query(f'DROP MEASUREMENT "{schema.DISTURBANCE.name}"')
    judged(scene)
    assert scene.rows(schema.DISTURBANCE) == live
    assert len(live) > 20
