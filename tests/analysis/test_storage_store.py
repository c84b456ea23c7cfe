"""Checkpoints and phases on a real InfluxDB: live, with late records, and once more over the past."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scene
from polars.testing import assert_frame_equal

from analysis.analyser import Analyser
from analysis.jobs.job_windows import ClusterFileJobs
from analysis.state import State
from app.log import Log
from cluster.model import (
    ALL_NODES,
    CheckpointMode,
    CheckpointPlan,
    Cluster,
    DeclaredTransport,
    Exporter,
    Group,
    GroupPair,
    Interface,
    Job,
    JobClass,
    Plane,
    Role,
    Transport,
)
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW
from store.schema import CheckpointState, Measurement, Phase

SETTLE = 15
SHARD = 4_000_000_000
SIZE = SHARD * len(scene.NODES)
PLAN = CheckpointPlan(CheckpointMode.SCHEDULED, every=300, tolerance=30, size=SIZE, nodes=ALL_NODES)
LOGS = 77 * len(scene.NODES)
"""What the scene's nodes write to storage in every window."""
OURS = (schema.PHASE, schema.CHECKPOINT, schema.CHECKPOINT_STATUS, schema.DATASET_LOAD)


@dataclass
class Site:
    """A job that began half an hour ago, of which nothing is stored yet."""

    cluster: Cluster
    store: Store
    folder: Path
    start: int

    def analyser(self, state: State) -> Analyser:
        return Analyser(self.cluster, self.store, state, ClusterFileJobs(self.cluster), log=Log())

    def play(self, first: int, last: int, step: int = 10) -> None:
        with State.open(self.folder) as state:
            analyser = self.analyser(state)
            for at in range(first, last, step):
                analyser.tick(self.start + at + SETTLE)

    def rerun(self, first: int, last: int) -> None:
        with State.copy_of(self.folder) as state:
            self.analyser(state).rerun(self.start + first, self.start + last, self.start + 2000)

    def train(self, first: int, last: int) -> None:
        scene.write_training(self.store, self.start + first, self.start + last)

    def transfer(
        self, first: int, last: int, *, tx: int = 0, rx: int = 0, nodes: tuple[str, ...] = scene.NODES
    ) -> None:
        """Each node writes `tx` and reads `rx` bytes a window."""
        starts = range(self.start + first, self.start + last, 10)
        rows = [(at, node, tx, rx) for at in starts for node in nodes]
        columns = [WINDOW, schema.NODE, schema.TX_BYTES.name, schema.RX_BYTES.name]
        tags = {schema.GROUP: "training", schema.PEER_GROUP: "storage", schema.PLANE: "storage", schema.SHARD: "0"}
        frame = pl.DataFrame(rows, schema=columns, orient="row")
        scene.write(
            self.store, schema.NODE_TRAFFIC, frame.with_columns(pl.lit(text).alias(tag) for tag, text in tags.items())
        )

    def rows(self, measurement: Measurement) -> list[dict[str, object]]:
        """The points, with seconds after the job's start as time."""
        frame = scene.stored(self.store, measurement)
        return [row | {"time": row["time"] // 1000 - self.start} for row in frame.iter_rows(named=True)]

    def checkpoints(self) -> list[tuple[object, ...]]:
        """Those that were not taken back."""
        rows = self.rows(schema.CHECKPOINT)
        keys = ("time", "seconds", "bytes", "nodes", "state")
        return [tuple(row[key] for key in keys) for row in rows if row["bytes"] or row["due"]]

    def phases(self) -> dict[object, object]:
        return {row["time"]: row["phase"] for row in self.rows(schema.PHASE)}


def storage_cluster(url: str, database: str, state: str, jobs: tuple[Job, ...]) -> Cluster:
    cluster = scene.cluster_of(url, database, state, jobs)
    exporters = tuple(
        replace(one, interfaces=(*one.interfaces, Interface(2, "storage", Plane.STORAGE)))
        for one in cluster.exporters[:2]
    )
    return replace(
        cluster,
        groups=(*cluster.groups, Group("storage", "Storage", Role.STORAGE, (ip_network("10.30.0.0/16"),))),
        nodes=tuple(replace(node, gpus=8) for node in cluster.nodes),
        exporters=(*exporters, Exporter("border", ip_address("10.0.0.3"))),
        job_classes=(JobClass("llm", checkpoint=PLAN),),
    )


@pytest.fixture
def site(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Iterator[Site]:
    start = int(time.time()) // 10 * 10 - 1800
    jobs = (scene.job("now", start), scene.job("other", start - 5000, start - 4000))
    cluster = storage_cluster(influxdb_v1.url, fresh_database, str(tmp_path / "state"), jobs)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    yield Site(cluster, store, tmp_path / "state", start)
    store.close()


@pytest.mark.long_form
def test_live_and_later_agree(site: Site) -> None:
    site.train(0, 1600)
    site.transfer(0, 30, rx=8 * 10**9)
    for at in (300, 600, 1250):
        site.transfer(at, at + 20, tx=SHARD // 2)
    site.play(20, 1500)
    expected = [
        (300, 20, SIZE + 2 * LOGS, 6, CheckpointState.ON_TIME),
        (600, 20, SIZE + 2 * LOGS, 6, CheckpointState.ON_TIME),
        (1050, 0, 0, 0, CheckpointState.MISSED),
        (1250, 20, SIZE + 2 * LOGS, 6, CheckpointState.LATE),
    ]
    assert site.checkpoints() == expected
    overdue = {row["time"]: row["overdue"] for row in site.rows(schema.CHECKPOINT_STATUS)}
    assert {at for at, seconds in overdue.items() if seconds} == set(range(930, 1250, 10))
    assert [at for at, phase in site.phases().items() if phase == Phase.CHECKPOINT] == [300, 310, 600, 610, 1250, 1260]
    (load,) = site.rows(schema.DATASET_LOAD)
    assert [load[name] for name in ("time", "seconds", "bytes", "nodes", "overlap")] == [0, 30, 144 * 10**9, 6, 30]
    live = {measurement.name: scene.stored(site.store, measurement) for measurement in OURS}
    for first, last in ((0, 1490), (310, 1490), (200, 310), (590, 610), (0, 600), (1200, 1260)):
        site.rerun(first, last)
        for measurement in OURS:
            assert_frame_equal(scene.stored(site.store, measurement), live[measurement.name], check_exact=True)
    assert site.checkpoints() == expected


def test_money_at_risk_counts_from_the_last_complete_one(site: Site) -> None:
    site.train(0, 700)
    site.transfer(300, 310, tx=SHARD)
    site.play(500, 700, 100)
    row = site.rows(schema.CHECKPOINT_STATUS)[-1]
    assert (row["time"], row["age"], row["gpus"], row["last_bytes"]) == (590, 300, 48, SIZE + LOGS)
    assert row["usd_at_risk"] == pytest.approx(48 * 300 / 3600 * 30)
    assert (row["period"], row["regular"]) == (300, 1)


@pytest.mark.long_form
def test_records_that_come_late_take_missed_back(site: Site) -> None:
    site.train(0, 900)
    site.play(20, 500)
    assert site.checkpoints() == [(450, 0, 0, 0, CheckpointState.MISSED)]
    site.transfer(400, 420, tx=SHARD // 2)
    site.play(500, 520)
    assert site.checkpoints() == [(400, 20, SIZE + 2 * LOGS, 6, CheckpointState.LATE)]
    assert all(row["overdue"] == 0 for row in site.rows(schema.CHECKPOINT_STATUS) if row["time"] > 400)


def test_an_exporter_that_falls_silent_excuses(site: Site) -> None:
    heard = np.arange(-3600, 0, 10)
    scene.write_training(site.store, site.start + int(heard[0]), site.start)
    scene.write_training(
        site.store, site.start, site.start + 900, silent={"leaf-2": (site.start + 290, site.start + 400)}
    )
    site.play(800, 880, 40)
    assert site.checkpoints() == [], "the clock began anew at 400"
    row = site.rows(schema.CHECKPOINT_STATUS)[-1]
    assert row["time"] == 830
    assert row["overdue"] == 840 - 400 - 300 - 30


def test_an_earlier_run_teaches_the_next(site: Site) -> None:
    cluster = replace(site.cluster, job_classes=(), jobs=(scene.job("one", site.start, site.start + 600),
                                                          scene.job("two", site.start + 1200)))  # fmt: skip
    learning = Site(cluster, site.store, site.folder, site.start)
    learning.train(0, 1900)
    for at in (100, 200, 300, 400):
        learning.transfer(at, at + 10, tx=SHARD)
    learning.transfer(1400, 1410, tx=SHARD * 7 // 10)
    learning.play(500, 2000, 50)
    assert [row["state"] for row in learning.rows(schema.CHECKPOINT)][-1] == CheckpointState.SHORT
    assert learning.rows(schema.CHECKPOINT)[-1]["expected_bytes"] == SIZE + LOGS


def hidden(site: Site, a: str, b: str) -> Site:
    declared = (DeclaredTransport(GroupPair(a, b), Transport.INFINIBAND),)
    return Site(replace(site.cluster, transport=declared), site.store, site.folder, site.start)


def test_nothing_is_missed_where_storage_is_not_seen(site: Site) -> None:
    rdma = hidden(site, "training", "storage")
    rdma.train(0, 900)
    rdma.play(100, 880, 60)
    assert rdma.checkpoints() == []
    assert {row["regular"] for row in rdma.rows(schema.CHECKPOINT_STATUS)} == {0}


def test_a_job_whose_collectives_are_not_seen_is_not_called_idle(site: Site) -> None:
    rdma = hidden(site, "training", "training")
    scene.write_training(site.store, site.start, site.start + 900, lambda sent, _: sent.fill(0))
    rdma.transfer(300, 320, tx=SHARD // 2)
    rdma.play(100, 880, 60)
    assert set(rdma.phases().values()) == {Phase.BLIND, Phase.CHECKPOINT}
    assert rdma.checkpoints()[0] == (300, 20, SIZE + 2 * LOGS, 6, CheckpointState.ON_TIME)
    assert rdma.checkpoints()[1][-1] == CheckpointState.MISSED
