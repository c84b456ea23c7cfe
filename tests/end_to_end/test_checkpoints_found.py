"""Simulated flow records through the bridge and the analysis: the checkpoints found are those that were written."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from staged import Staged, finish, stage, start

from cluster.load import load_cluster
from simulate.demo.plan import JOB_CLASS
from simulate.incidents.incident import Incident, IncidentKind
from simulate.packets.spool_files import SpoolWriter
from simulate.scenarios.scenario import Background, Profile, Run, Scenario
from simulate.scenarios.scenario import Phase as Stretch
from simulate.traffic.planned_checkpoints import Save, saves_of
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.schema import CheckpointState, Phase

SECONDS = 3600
EVERY = 400
FIRST = 303
"""When the first checkpoint begins: on no boundary of a window."""
WRITING = 24
SHARD = 4_000_000_000
PLAN = {"every": "400s", "tolerance": "30s", "longest": "1m", "bytes": "64 GB", "nodes": "all"}


def staged_hour(tmp_path: Path, url: str, database: str) -> tuple[Staged, Run]:
    """An hour of one job that ends ten minutes ago; its third checkpoint is missed, and more go wrong."""
    staged = stage(tmp_path, url, database, begins_in=-SECONDS - 600)
    begin = staged.scenario.live.start
    (job,) = staged.cluster.jobs
    document = yaml.safe_load(staged.config.read_text())
    document["job_classes"] = {JOB_CLASS: {"checkpoint": PLAN}}
    document["jobs"][0]["end"] = str(datetime.fromtimestamp(begin + SECONDS, UTC))
    staged.config.write_text(yaml.safe_dump(document))
    cluster = load_cluster(staged.config)
    times = tuple(range(begin + FIRST, begin + SECONDS, EVERY))
    run = Run(job.id, job.nodes, begin, begin + SECONDS, checkpoints=times)

    def change(kind: IncidentKind, number: int, **more: Any) -> Incident:
        return Incident(f"{kind.value}-{number}", kind, times[number], times[number] + 1, job=job.id, **more)

    incidents = (
        change(IncidentKind.CHECKPOINT_MISSED, 2),
        change(IncidentKind.CHECKPOINT_LATE, 4, seconds=75),
        change(IncidentKind.CHECKPOINT_SHORT, 5, share=0.6),
        change(IncidentKind.CHECKPOINT_SHORT, 6, nodes=job.nodes[:3]),
    )
    profile = Profile(job_class=JOB_CLASS, checkpoint=SHARD, checkpoint_seconds=WRITING)
    live = Stretch(begin, begin + SECONDS, timeout=60, slice=600)
    scenario = Scenario(1, live, None, profile, (run,), incidents, background=Background.NONE)
    return Staged(staged.config, cluster, scenario, Workload(cluster, scenario)), run


def sent_to_storage(store: Store, begin: float, end: float) -> int:
    """Bytes that training nodes sent to storage in these windows, straight from the store."""
    peers = " OR ".join(f"\"peer_group\" = '{group}'" for group in ("storage", "model_storage"))
    query = (
        f'SELECT sum("tx_bytes") FROM "raw"."node" WHERE "group" = \'training\' AND ({peers}) '
        f"AND time >= {int(begin)}s AND time < {int(end)}s"
    )
    found = store.query(query)
    return int(found[0].values[0][1]) if found else 0


def rows(store: Store, measurement: schema.Measurement) -> list[dict[str, Any]]:
    frame = store.frame(f'SELECT * FROM "{measurement.kept}"."{measurement.name}"')
    return [row | {"time": row["time"] // 1000} for row in frame.sort("time").iter_rows(named=True)]


@pytest.fixture(scope="module")
def hour(
    influxdb_v1: LocalInfluxDB, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Staged, Run, tuple[Save, ...], Store]:
    """The hour, in the store and judged."""
    staged, run = staged_hour(tmp_path_factory.mktemp("hour"), influxdb_v1.url, "checkpoints_end_to_end")
    folder = staged.config.parent / "files"
    with SpoolWriter(staged.workload, folder, GroundTruth(staged.workload)) as writer:
        for batch in staged.workload.batches(staged.scenario.live):
            writer.write(batch)
    finish(start("ingest", staged, "--spool", str(folder), "--once"), staged, "ingest")
    moments = [datetime.fromtimestamp(at, UTC).isoformat() for at in (run.start, run.end)]
    finish(start("analyze", staged, "--from", moments[0], "--to", moments[1]), staged, "analyze")
    return staged, run, saves_of(run, staged.scenario.profile, staged.scenario.incidents), Store(staged.cluster.store)


def test_every_checkpoint_is_found_where_it_was_written(hour: tuple[Staged, Run, tuple[Save, ...], Store]) -> None:
    _, _, saves, store = hour
    found = [row for row in rows(store, schema.CHECKPOINT) if row["state"] != CheckpointState.MISSED]
    assert len(saves) == len(found) == 8
    for save, row in zip(saves, found, strict=True):
        assert row["time"] == save.begin // 10 * 10
        end = row["time"] + row["seconds"]
        assert end - 10 < save.end <= end
        assert row["bytes"] == sent_to_storage(store, row["time"], end), "to the byte"
        assert row["bytes"] == pytest.approx(save.volume * len(save.nodes), rel=0.02)
        assert row["nodes"] == len(save.nodes)


def test_verdicts_are_those_that_were_staged(hour: tuple[Staged, Run, tuple[Save, ...], Store]) -> None:
    _, run, _, store = hour
    states = {row["time"] - run.start: row["state"] for row in rows(store, schema.CHECKPOINT)}
    assert states == {
        300: CheckpointState.ON_TIME,
        700: CheckpointState.ON_TIME,
        # Due at 1100, a period after the window in which the one before began; given up half a period later.
        1300: CheckpointState.MISSED,
        1500: CheckpointState.ON_TIME,
        1970: CheckpointState.LATE,
        2300: CheckpointState.SHORT,
        2700: CheckpointState.NODES_MISSING,
        3100: CheckpointState.ON_TIME,
        3500: CheckpointState.ON_TIME,
    }
    overdue = [row["time"] - run.start for row in rows(store, schema.CHECKPOINT_STATUS) if row["overdue"] > 0]
    assert overdue == [*range(1130, 1500, 10), *range(1930, 1970, 10)]


def test_phases_and_the_load(hour: tuple[Staged, Run, tuple[Save, ...], Store]) -> None:
    _, run, saves, store = hour
    phases = {row["time"] - run.start: row["phase"] for row in rows(store, schema.PHASE)}
    assert len(phases) == SECONDS // 10
    writing = {at for at, phase in phases.items() if phase == Phase.CHECKPOINT}
    assert writing == {
        at for save in saves for at in range(save.begin // 10 * 10 - run.start, save.end - run.start, 10)
    }
    assert {phase for at, phase in phases.items() if at not in writing} == {Phase.COMPUTE}
    (load,) = rows(store, schema.DATASET_LOAD)
    profile = Profile()
    assert (load["time"], load["seconds"], load["nodes"]) == (run.start, profile.dataset_seconds, len(run.nodes))
    assert load["overlap"] == profile.dataset_seconds, "the simulated job computes from its first second on"
    assert load["bytes"] == pytest.approx(profile.dataset * len(run.nodes), rel=0.05)
