"""Patterns of collectives on a real InfluxDB: simulated packets sampled by sFlow, NetFlow, constructed days."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import service_scene as scenes
from service_scene import Scene

from analysis.detectors.fabric.rails import RailStudy
from analysis.detectors.training import pattern_study
from analysis.detectors.training.pattern_study import LOOKED_AT, SELDOM, PatternStudy, looked_at_every
from cluster.load import load_cluster
from cluster.model import Cluster, Exporter, ExportProtocol, Interface, Job, Node, NodeAddress, Plane
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read.readers import read_chunk, sniff
from simulate.packets.netflow import FlowFormat
from simulate.packets.spool_files import SpoolWriter
from simulate.scenarios.scenario import Algorithm, ExportStyle, Phase, Profile, Run, Scenario
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, encode
from store.schema import Pattern

REPOSITORY = Path(__file__).parents[2]
NOW = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 6 * 3600
NODES = tuple(f"gpu-{number:02}" for number in range(8))


@pytest.fixture
def scene(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    with scenes.opened(influxdb_v1, fresh_database) as found:
        nodes = tuple(
            Node(
                name,
                "training",
                tuple(NodeAddress(ip_address(f"10.20.{rail}.{number}"), Plane.COMPUTE, rail) for rail in (0, 1)),
            )
            for number, name in enumerate(NODES, 1)
        )
        yield Scene(replace(found.cluster, nodes=nodes), found.store)


def job(start: int, stop: int | None = None, nodes: tuple[str, ...] = NODES) -> Job:
    end = None if stop is None else datetime.fromtimestamp(stop, UTC)
    return Job("llm-7", "llm", nodes, datetime.fromtimestamp(start, UTC), end)


def put(store: Store, measurement: schema.Measurement, frame: pl.DataFrame) -> None:
    lines = encode(measurement, frame.with_columns(pl.lit("0").alias(schema.SHARD)))
    if lines:
        store.write(lines, measurement.kept)


def ring(scene: Scene, start: int, stop: int, order: Iterable[int] = range(8), sent: int = 10**9) -> None:
    """Write a ring's windows, both rails alike."""
    members = [NODES[place] for place in order]
    windows = pl.DataFrame({WINDOW: range(start, stop, 10)})
    links = pl.DataFrame({schema.SRC: members, schema.DST: [*members[1:], members[0]]})
    acks = links.rename({schema.SRC: schema.DST, schema.DST: schema.SRC}).select(schema.SRC, schema.DST)
    plane = pl.lit("compute").alias(schema.PLANE)
    for part, volume in ((links, sent), (acks, sent // 300)):
        rows = windows.join(part, how="cross").with_columns(plane, pl.lit(volume).alias(schema.BYTES.name))
        put(scene.store, schema.PAIR, rows)
    rails = windows.join(pl.DataFrame({schema.NODE: members}), how="cross").with_columns(
        pl.lit("training").alias(schema.GROUP), pl.lit(sent // 2).alias(schema.TX_BYTES.name)
    )
    for rail in "01":
        put(scene.store, schema.RAIL_TRAFFIC, rails.with_columns(pl.lit(rail).alias(schema.RAIL)))


def beat(scene: Scene, start: int, stop: int, period: float, *, seed: int = 1) -> None:
    """Write pulses of a job with this period, from `start` on, sampled as sFlow does."""
    at = (np.arange((stop - start) * 50) + 0.5) / 50
    level = ((at / period) % 1 < 0.4).reshape(-1, 50).mean(axis=1)
    drawn = np.random.default_rng(seed).poisson(level[:, None] * 10, (stop - start, len(NODES)))
    frame = pl.DataFrame(
        {
            WINDOW: np.repeat(np.arange(start, stop), len(NODES)),
            schema.NODE: list(NODES) * (stop - start),
            schema.BYTES.name: (drawn * 9000 * 1000).ravel(),
        }
    ).with_columns(pl.lit("training").alias(schema.GROUP), pl.lit("compute").alias(schema.PLANE))
    for part in frame.filter(pl.col(schema.BYTES.name) > 0).iter_slices(50_000):
        put(scene.store, schema.PULSE, part)


def rows(scene: Scene) -> dict[int, dict[str, object]]:
    return {int(str(row["time"])) - NOW: row for row in scene.rows(schema.PATTERN)}


def pairs(scene: Scene) -> set[tuple[object, ...]]:
    """Return (seconds after NOW, kind, source, destination) of changed pairs."""
    tags = (schema.KIND, schema.SRC, schema.DST)
    return {(int(str(row["time"])) - NOW, *(row[tag] for tag in tags)) for row in scene.rows(schema.CHANGED_PAIR)}


# -- simulated -----------------------------------------------------------------------------------------


def played(cluster: Cluster, algorithm: Algorithm, seconds: int) -> Workload:
    profile = Profile(algorithm=algorithm, dataset=0, prefetch=0)
    run = Run("llm-7", tuple(node.name for node in cluster.nodes if node.group == "training"), NOW, NOW + seconds, 0)
    styles = tuple(
        (one.name, ExportStyle(FlowFormat.SFLOW, 20_000))
        for one in cluster.exporters
        if one.protocol is ExportProtocol.SFLOW
    )
    # Pieces of a second: what a switch samples knows no active timeout.
    timeout = 1 if any(name.startswith("leaf") for name, _ in styles) else 10
    phase = Phase(NOW, NOW + seconds, timeout, 10)
    return Workload(cluster, Scenario(3, phase, runs=(run,), styles=styles, profile=profile))


def ingest(workload: Workload, store: Store, folder: Path) -> None:
    """Bring simulated records into the store as the bridge does."""
    with SpoolWriter(workload, folder, GroundTruth(workload)) as writer:
        for batch in workload.batches(workload.scenario.live):
            writer.write(batch)
    engine = Engine(workload.cluster, Clock.BACKFILL, Counters())
    for path in sorted(folder.glob("*.csv")):
        raw = path.read_bytes()
        assert engine.take(read_chunk(raw, sniff(raw)).frame, NOW).is_empty()
    for measurement, points in engine.merge():
        for part in points.with_columns(pl.lit("0").alias(schema.SHARD)).iter_slices(20_000):
            store.write(encode(measurement, part), measurement.kept)


def by_sflow(cluster: Cluster) -> Cluster:
    """The demo cluster with leaves that speak sFlow."""
    leaves = tuple(
        Exporter(
            one.name, one.address, ExportProtocol.SFLOW, frame_overhead=18,
            interfaces=tuple(Interface(i.index, i.name, i.plane, i.counts, i.speed) for i in one.interfaces),
        )
        if one.name.startswith("leaf")
        else one
        for one in cluster.exporters
    )  # fmt: skip
    return replace(cluster, exporters=leaves)


@pytest.mark.parametrize(
    ("algorithm", "pattern"),
    [(Algorithm.RING, Pattern.RING), (Algorithm.TREE, Pattern.TREE), (Algorithm.MIXED, Pattern.MIXED)],
)
def test_what_switches_sample_of_a_job_tells_its_pattern_and_its_steps(
    scene: Scene, tmp_path: Path, algorithm: Algorithm, pattern: int
) -> None:
    cluster = by_sflow(load_cluster(REPOSITORY / "cluster.yaml"))
    workload = played(cluster, algorithm, 300)
    ingest(workload, scene.store, tmp_path)
    running = job(NOW, NOW + 300, workload.scenario.runs[0].nodes)
    scenes.run(scene, PatternStudy(cluster, scene.store), NOW, NOW + 600, 600, jobs=[running])
    found = rows(scene)
    assert sorted(found) == [60, 120, 180, 240, 300]
    assert {row[schema.PATTERN_STATE.name] for row in found.values()} == {pattern}
    last = found[300]
    period, error = (float(str(last[field.name])) for field in (schema.STEP_PERIOD, schema.STEP_ERROR))
    assert error < 0.01
    assert period == pytest.approx(workload.scenario.profile.step, abs=3 * error)
    assert float(str(last[schema.IMBALANCE.name])) < 0.3
    scenes.run(scene, RailStudy(cluster, scene.store), NOW, NOW + 600, 600, jobs=[running])
    assert scene.rows(schema.RAIL_LOW) == []


def test_netflow_tells_the_pattern_and_nothing_of_the_steps(scene: Scene, tmp_path: Path) -> None:
    cluster = load_cluster(REPOSITORY / "cluster.yaml")
    workload = played(cluster, Algorithm.RING, 120)
    ingest(workload, scene.store, tmp_path)
    running = job(NOW, NOW + 120, workload.scenario.runs[0].nodes)
    scenes.run(scene, PatternStudy(cluster, scene.store), NOW, NOW + 600, 600, jobs=[running])
    found = rows(scene)
    assert {row[schema.PATTERN_STATE.name] for row in found.values()} == {Pattern.RING}
    for row in found.values():
        assert schema.STEP_PERIOD.name not in row
        assert schema.STEP_ERROR.name not in row


# -- constructed ---------------------------------------------------------------------------------------


def test_neighbours_that_changed_are_counted_against_ten_minutes_ago(scene: Scene) -> None:
    ring(scene, NOW, NOW + 900)
    ring(scene, NOW + 900, NOW + 1800, [0, 1, 2, 5, 4, 3, 6, 7])
    scenes.run(scene, PatternStudy(scene.cluster, scene.store), NOW, NOW + 1860, 600, jobs=[job(NOW, NOW + 1800)])
    found = rows(scene)
    assert sorted(found) == list(range(60, 1801, 60))
    # Before that there is nothing to compare with.
    assert [moment for moment, row in found.items() if row[schema.CHANGED.name] is None] == list(range(60, 660, 60))
    counts = {moment: row[schema.CHANGED.name] for moment, row in found.items() if moment > 600}
    assert [moment for moment, count in counts.items() if count] == list(range(960, 1560, 60))
    assert {count for count in counts.values() if count} == {4}
    assert pairs(scene) == {
        (moment, kind, NODES[src], NODES[dst])
        for moment in range(960, 1560, 60)
        for kind, both in (("gone", [(2, 3), (3, 4), (4, 5), (5, 6)]), ("new", [(2, 5), (5, 4), (4, 3), (3, 6)]))
        for src, dst in both
    }
    # A minute of a ring has six windows of a gigabyte; what is left of a pair that turned round acknowledges.
    told = [[row[one.name] for one in (schema.PAIR_BEFORE, schema.PAIR_NOW)] for row in scene.rows(schema.CHANGED_PAIR)]
    assert {max(map(int, both)) for both in told} == {6 * 10**9}
    assert {min(map(int, both)) for both in told} == {0, 6 * (10**9 // 300)}


@pytest.mark.parametrize("pause", [300, 1800])
def test_a_job_that_comes_back_with_other_neighbours_is_told_for_ten_minutes(scene: Scene, pause: int) -> None:
    back = NOW + 900 + pause
    ring(scene, NOW, NOW + 900)
    ring(scene, back, back + 1200, [0, 1, 2, 5, 4, 3, 6, 7])
    scenes.run(scene, PatternStudy(scene.cluster, scene.store), NOW, back + 1260, 600, jobs=[job(NOW, back + 1200)])
    told = {moment + NOW - back for moment, *_ in pairs(scene)}
    assert told == set(range(60, 660, 60))
    assert {count for moment, row in rows(scene).items() if moment + NOW - back > 600
            for count in [row[schema.CHANGED.name]]} == {0}  # fmt: skip


def test_a_job_that_comes_back_as_it_was_has_no_changed_pairs(scene: Scene) -> None:
    ring(scene, NOW, NOW + 900)
    ring(scene, NOW + 2400, NOW + 3600)
    scenes.run(scene, PatternStudy(scene.cluster, scene.store), NOW, NOW + 3660, 600, jobs=[job(NOW, NOW + 3600)])
    assert pairs(scene) == set()


def test_another_run_of_a_job_is_compared_with_itself(scene: Scene) -> None:
    ring(scene, NOW, NOW + 900)
    ring(scene, NOW + 960, NOW + 2400, [0, 1, 2, 5, 4, 3, 6, 7])
    runs = [job(NOW, NOW + 900), job(NOW + 960, NOW + 2400)]
    scenes.run(scene, PatternStudy(scene.cluster, scene.store), NOW, NOW + 2460, 600, jobs=runs)
    assert pairs(scene) == set()


def test_a_dead_rail_shows(scene: Scene) -> None:
    ring(scene, NOW, NOW + 120)
    dead = pl.DataFrame({WINDOW: range(NOW + 60, NOW + 120, 10)}).with_columns(
        pl.lit(NODES[3]).alias(schema.NODE), pl.lit("training").alias(schema.GROUP), pl.lit("0").alias(schema.RAIL),
        pl.lit(0).alias(schema.TX_BYTES.name),
    )  # fmt: skip
    put(scene.store, schema.RAIL_TRAFFIC, dead)
    # A node of another job has a rail more.
    more = NodeAddress(ip_address("10.21.0.1"), Plane.COMPUTE, 2)
    cluster = replace(scene.cluster, nodes=(*scene.cluster.nodes, Node("h200-1", "training", (more,))))
    scenes.run(scene, PatternStudy(cluster, scene.store), NOW, NOW + 120, 120, jobs=[job(NOW, NOW + 120)])
    assert [row[schema.IMBALANCE.name] for row in rows(scene).values()] == [0, 1]


def carry(scene: Scene, rails: dict[tuple[str, str], int], start: int = 0, stop: int = 600) -> None:
    """Overwrite what rails send in each window."""
    for (node, rail), sent in rails.items():
        tags = {schema.NODE: node, schema.GROUP: "training", schema.RAIL: rail}
        scene.write(
            schema.RAIL_TRAFFIC, tags, range(NOW + start, NOW + stop, 10), schema.RAIL_TRAFFIC.kept, tx_bytes=sent
        )


def low_rails(scene: Scene) -> list[tuple[object, ...]]:
    """Return (seconds after NOW, node, rail, missing share) of what is told of ten minutes."""
    study = RailStudy(scene.cluster, scene.store)
    scenes.run(scene, study, NOW, NOW + 900, 300, jobs=[job(NOW, NOW + 900)])
    names = (schema.NODE, schema.RAIL, schema.RAIL_MISSING.name)
    return [(int(str(row["time"])) - NOW, *(row[name] for name in names)) for row in scene.rows(schema.RAIL_LOW)]


def test_a_dead_rail_has_a_name(scene: Scene) -> None:
    """Its bytes take the other rail; a second node's is dead for a while only."""
    ring(scene, NOW, NOW + 600, sent=10**10)
    carry(scene, {(NODES[3], "1"): 0, (NODES[3], "0"): 10**10})
    carry(scene, {(NODES[5], "0"): 0}, 0, 120)
    told = low_rails(scene)
    # Shown from half of the threshold on: 0.4 of the first five minutes is, 0.2 of those that follow is not.
    assert [row for row in told if row[1] == NODES[5]] == [(300, NODES[5], "0", pytest.approx(0.4))]
    dead = [row for row in told if row[1] == NODES[3]]
    assert {row[1:] for row in dead} == {(NODES[3], "1", 1.0)}
    assert [row[0] for row in dead][:6] == [300, 360, 420, 480, 540, 600]


@pytest.mark.parametrize(
    "rails",
    [
        {(node, rail): 10**9 for node in NODES for rail in "01"},
        {(NODES[3], "0"): 10**9, (NODES[3], "1"): 10**9},
        {(node, "1"): 10**9 for node in NODES},
        {(NODES[3], "0"): 5 * 10**10},
    ],
    ids=["all rails of all nodes are low", "a slow node", "a rail that all use little", "storage beside the job"],
)
def test_no_rail_is_at_fault(scene: Scene, rails: dict[tuple[str, str], int]) -> None:
    ring(scene, NOW, NOW + 600, sent=10**10)
    carry(scene, rails)
    assert low_rails(scene) == []


def test_a_rail_that_nobody_sees_is_not_low(scene: Scene) -> None:
    ring(scene, NOW, NOW + 600, sent=10**10)
    carry(scene, {(node, "1"): 0 for node in NODES[:3]}, 120, 600)
    scene.hear(range(NOW - 600, NOW + 120, 10), schema.RAW)
    scene.write(
        schema.EXPORTER_STATUS, {schema.EXPORTER: "leaf-1"}, range(NOW - 600, NOW + 120, 10), schema.RAW, bytes=1
    )
    assert low_rails(scene) == []


@pytest.mark.parametrize(("lost", "is_seen"), [(0, True), (1, True), (200, False)])
def test_a_rail_whose_records_are_lost_is_not_low(scene: Scene, lost: int, *, is_seen: bool) -> None:
    ring(scene, NOW, NOW + 600, sent=10**10)
    carry(scene, {(NODES[3], "1"): 0})
    leaf = {schema.EXPORTER: "leaf-1"}
    scene.write(schema.EXPORTER_STATUS, leaf, range(NOW, NOW + 600, 10), schema.RAW, records=1800, bytes=1)
    scene.write(schema.EXPORTER_STATUS, leaf, range(NOW + 30, NOW + 600, 60), schema.RAW, seq_lost=lost)
    assert bool(low_rails(scene)) is is_seen


def test_low_rails_live_as_in_a_re_run(scene: Scene) -> None:
    ring(scene, NOW, NOW + 600, sent=10**10)
    carry(scene, {(NODES[3], "1"): 0}, 100, 400)
    scenes.follow(scene, RailStudy(scene.cluster, scene.store), NOW, NOW + 900, 10, jobs=[job(NOW, NOW + 900)])
    live = scene.rows(schema.RAIL_LOW)
    scene.store.query(f'DROP MEASUREMENT "{schema.RAIL_LOW.name}"')
    assert len(low_rails(scene)) == len(live) > 5
    assert scene.rows(schema.RAIL_LOW) == live


def test_steps_that_get_longer_drift(scene: Scene) -> None:
    ring(scene, NOW, NOW + 5400)
    beat(scene, NOW, NOW + 3900, 5.0)
    beat(scene, NOW + 3900, NOW + 5400, 5.5, seed=2)
    scenes.run(scene, PatternStudy(scene.cluster, scene.store), NOW, NOW + 5400, 3600, jobs=[job(NOW)])
    found = rows(scene)
    assert found[600][schema.STEP_DRIFT.name] is None
    assert float(str(found[3900][schema.STEP_DRIFT.name])) == pytest.approx(0, abs=1e-3)
    drift = float(str(found[5400][schema.STEP_DRIFT.name]))
    assert drift == pytest.approx(0.1, abs=1e-3)
    assert float(str(found[5400][schema.STEP_PERIOD.name])) == pytest.approx(5.5, abs=0.005)


@pytest.mark.parametrize("many", [8, 0])
def test_live_as_in_a_re_run(scene: Scene, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """Of many jobs a minute is read once, live; a re-run of hours asks for each job's own."""
    monkeypatch.setattr(pattern_study, "_MANY", many)
    ring(scene, NOW, NOW + 900)
    ring(scene, NOW + 900, NOW + 1500, [0, 2, 1, 3, 4, 5, 6, 7])
    beat(scene, NOW, NOW + 1500, 3.3)
    jobs = [job(NOW + 7, NOW + 1401)]
    scenes.follow(scene, PatternStudy(scene.cluster, scene.store), NOW - 60, NOW + 1500, 10, jobs=jobs)
    written = (schema.PATTERN, schema.CHANGED_PAIR)
    live = [scene.rows(one) for one in written]
    assert [len(one) for one in live] == [22, 48]
    for one in written:
        scene.store.query(f'DROP MEASUREMENT "{one.name}"')
    scenes.run(scene, PatternStudy(scene.cluster, scene.store), NOW - 60, NOW + 1500, 700, jobs=jobs)
    assert [scene.rows(one) for one in written] == live


def test_a_job_whose_nodes_are_silent_has_no_pattern(scene: Scene) -> None:
    scenes.run(scene, PatternStudy(scene.cluster, scene.store), NOW, NOW + 120, 60, jobs=[job(NOW)])
    assert [row[schema.PATTERN_STATE.name] for row in rows(scene).values()] == [Pattern.NONE, Pattern.NONE]


def test_large_jobs_are_looked_at_less_often(scene: Scene) -> None:
    assert [looked_at_every(nodes) for nodes in (2, 64, 65, 256, 257, 4096)] == [
        60, 60, LOOKED_AT[1][1], LOOKED_AT[1][1], SELDOM, SELDOM,
    ]  # fmt: skip
    many = tuple(f"gpu-{number:03}" for number in range(65))
    running = [job(NOW, None, many)]
    scenes.run(scene, PatternStudy(scene.cluster, scene.store), NOW, NOW + 900, 600, jobs=running)
    assert sorted(rows(scene)) == [300, 600, 900]


def test_a_job_of_one_node_has_no_collectives(scene: Scene) -> None:
    scenes.run(scene, PatternStudy(scene.cluster, scene.store), NOW, NOW + 300, 60, jobs=[job(NOW, None, NODES[:1])])
    assert rows(scene) == {}
