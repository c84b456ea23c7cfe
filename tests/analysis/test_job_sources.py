"""All sources together: who wins, which nodes count, what a restart and a loss keep, what is told of troubles."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
import scene
from polars.testing import assert_frame_equal

from analysis.analyser import Analyser
from analysis.jobs.all_sources import JobSources, merged, stored_jobs
from analysis.jobs.job_windows import status_points
from analysis.jobs.register import FILE, Register, key_of
from analysis.state import State
from app.log import Log
from cluster.load import load_cluster
from cluster.model import (
    Cluster,
    FileJobs,
    HttpJobs,
    InferredJobs,
    Job,
    JobSource,
    Outcome,
    Secret,
    Site,
    SlurmJobs,
)
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW

T0 = 1_772_352_000


def job(
    name: str, start: float, end: float | None = None, outcome: Outcome = Outcome.UNKNOWN, origin: str = "a"
) -> Job:
    stop = None if end is None else datetime.fromtimestamp(T0 + end, UTC)
    return Job(name, name, ("gpu-0",), datetime.fromtimestamp(T0 + start, UTC), stop, outcome, origin=origin)


def shown(jobs: tuple[Job, ...]) -> list[tuple[str, float, float | None, str, str]]:
    return [
        (
            one.id,
            one.start.timestamp() - T0,
            None if one.end is None else one.end.timestamp() - T0,
            one.outcome.value,
            one.origin,
        )
        for one in jobs
    ]


DONE, FAILED = Outcome.COMPLETED, Outcome.FAILED


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([[job("x", 9)], [job("y", 5, origin="b")]], [("y", 5, None, "unknown", "b"), ("x", 9, None, "unknown", "a")]),
        ([[job("x", 0)], [job("x", 2, origin="b")]], [("x", 2, None, "unknown", "b")]),
        ([[job("x", 0, 90, FAILED)], [job("x", 2, origin="b")]], [("x", 2, 90, "failed", "b")]),
        ([[job("x", 0, 90, FAILED)], [job("x", 2, 95, origin="b")]], [("x", 2, 95, "failed", "b")]),
        ([[job("x", 0, 90, FAILED)], [job("x", 2, 95, DONE, "b")]], [("x", 2, 95, "completed", "b")]),
        (
            [[job("x", 0, 90, FAILED)], [job("x", 200, origin="b")]],
            [("x", 0, 90, "failed", "a"), ("x", 200, None, "unknown", "b")],
        ),
        (
            [[job("x", 0), job("x", 500)], [job("x", 3, 400, DONE, "b")]],
            [("x", 3, 400, "completed", "b"), ("x", 500, None, "unknown", "a")],
        ),
        ([[job("x", 0), job("x", 100)]], [("x", 0, 100, "unknown", "a"), ("x", 100, None, "unknown", "a")]),
        ([[job("x", 0), job("x", 0, 1)]], [("x", 0, None, "unknown", "a")]),
        ([[job("x", 0, 1), job("x", 0, 90, DONE)]], [("x", 0, 90, "completed", "a")]),
    ],
    ids=[
        "by start",
        "the later source wins",
        "its missing end is filled in",
        "its missing outcome is",
        "it wins wholly",
        "another run is another run",
        "each run for itself",
        "an id runs once at a time",
        "one start is one run",
        "of which the longer is true",
    ],
)
def test_merging(sources: list[list[Job]], expected: list[tuple[str, float, float | None, str, str]]) -> None:
    assert shown(merged(sources)) == expected


# -- sources of a cluster ----------------------------------------------------------------------------


@dataclass
class Shop:
    """A cluster's sources, opened and closed as processes do; nothing listens and no store is asked."""

    cluster: Cluster
    folder: Path

    def sources(self, register: Register) -> JobSources:
        return JobSources(self.cluster, Store(self.cluster.store), register, Log())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    planned = FileJobs("planned", str(tmp_path / "jobs.json"))
    hooks = HttpJobs("hooks", Secret(env="TOKEN"))
    cluster = replace(
        scene.cluster_of("http://127.0.0.1:9", "none"),
        job_sources=(planned, hooks),
        site=Site(ZoneInfo("UTC")),
    )
    return Shop(cluster, tmp_path)


def plan(shop: Shop, *records: dict[str, object]) -> None:
    path = shop.folder / "jobs.json"
    path.write_text(json.dumps([{"id": "a", "nodes": ["gpu-0"], "start": T0} | record for record in records]))
    os.utime(path, (T0, T0))


def test_nodes_are_those_of_the_inventory(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    plan(shop, {"nodes": ["gpu-1.cluster.example", "gpu-0", "cpu-[1-3]", "gpu-0.cluster.example"]})
    with Register.open(shop.folder) as register:
        sources = shop.sources(register)
        for _ in range(3):
            sources.refresh(T0 + 60)
            (one,) = sources.jobs()
        state = next(state for state in sources.states(T0 + 60) if state.name == "planned")
        assert (one.nodes, state.strangers) == (("gpu-1", "gpu-0"), ("cpu-1", "cpu-2", "cpu-3"))
        readings = sources.readings(T0 + 60)
        by_reason = dict(readings.select(schema.REASON, schema.VALUE.name).iter_rows())
        assert by_reason["planned.unknown_nodes"] == 3
    told = capsys.readouterr().err
    assert told.count("nodes_unlisted") == 1
    assert 'event=nodes_unlisted source=planned nodes="cpu-1 and 2 more" what="not in the inventory"' in told


def test_nodes_that_came_with_their_jobs_wait_for_a_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yaml"
    text = """\
cluster: lab
groups: {{training: {{role: training, prefixes: [10.20.0.0/16]}}}}
nodes: {{"gpu-{{1..{last}}}": {{group: training, addresses: ["10.20.0.{{1..{last}}}"]}}}}
jobs: [{{id: a, nodes: ["gpu-*"], start: 2026-03-01 08:00}}]
"""
    path.write_text(text.format(last=2))
    cluster = load_cluster(path)
    path.write_text(text.format(last=3))
    with Register.open(tmp_path) as register:
        sources = JobSources(cluster, Store(cluster.store), register, Log(), path=path)
        sources.refresh(T0)
        assert [one.nodes for one in sources.jobs()] == [("gpu-1", "gpu-2")]
    assert "source=cluster.yaml nodes=gpu-3" in capsys.readouterr().err


def test_jobs_are_the_same_tuple_until_something_changes(shop: Shop) -> None:
    plan(shop, {})
    with Register.open(shop.folder) as register:
        sources = shop.sources(register)
        sources.refresh(T0 + 60)
        first = sources.jobs()
        sources.refresh(T0 + 65)
        assert sources.jobs() is first
        plan(shop, {}, {"id": "b"})
        sources.refresh(T0 + 70)
        assert [one.id for one in sources.jobs()] == ["a", "b"]


def test_jobs_that_are_planned_or_have_an_end_to_come_count_as_what_they_are(shop: Shop) -> None:
    plan(shop, {"start": T0 - 60, "end": T0 + 60}, {"id": "b", "start": T0 + 600})
    with Register.open(shop.folder) as register:
        sources = shop.sources(register)
        sources.refresh(T0)
        running = {second: sources.states(T0 + second)[0].running for second in (0, 60, 600)}
    assert running == {0: 1, 60: 0, 600: 1}


def test_a_trouble_is_told_once_and_shown_until_it_is_over(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    plan(shop, {})
    with Register.open(shop.folder) as register:
        sources = shop.sources(register)
        sources.refresh(T0 + 60)
        (shop.folder / "jobs.json").write_text("{")
        os.utime(shop.folder / "jobs.json", (T0 + 61, T0 + 61))
        for second in range(100, 200, 10):
            sources.refresh(T0 + second)
        values = dict(sources.readings(T0 + 200).select(schema.REASON, schema.VALUE.name).iter_rows())
        assert (values["planned.failing_seconds"], values["planned.known"], values["planned.running"]) == (100, 1, 1)
        assert values["hooks.failing_seconds"] == 0
        assert [one.id for one in sources.jobs()] == ["a"]
        plan(shop, {}, {"id": "b"})
        sources.refresh(T0 + 210)
    told = capsys.readouterr().err
    assert told.count("event=job_source_failed") == 1
    assert "jobs.json:1: column 2: expected JSON" in told
    assert "event=job_source_recovered source=planned away=110" in told


def test_a_file_that_is_away_after_a_restart_leaves_its_jobs(shop: Shop) -> None:
    plan(shop, {})
    with Register.open(shop.folder) as register:
        shop.sources(register).refresh(T0 + 60)
    (shop.folder / "jobs.json").unlink()
    with Register.open(shop.folder) as register:
        sources = shop.sources(register)
        sources.refresh(T0 + 600)
        assert [one.id for one in sources.jobs()] == ["a"]
        assert [state.trouble.endswith("UTF-8") for state in sources.states(T0)] == [True, False]


@pytest.mark.parametrize(
    ("settings", "listed", "kinds"),
    [
        ((), False, ["inferred"]),
        ((), True, ["cluster.yaml"]),
        ((InferredJobs(),), True, ["cluster.yaml", "inferred"]),
        ((HttpJobs("hooks", Secret(env="TOKEN")),), False, ["http"]),
    ],
)
def test_jobs_are_inferred_where_nobody_else_tells_of_any(
    tmp_path: Path, settings: tuple[JobSource, ...], *, listed: bool, kinds: list[str]
) -> None:
    cluster = scene.cluster_of("http://127.0.0.1:9", "none", jobs=(scene.job("a", T0),) if listed else ())
    with Register.open(tmp_path) as register:
        sources = JobSources(replace(cluster, job_sources=settings), Store(cluster.store), register, Log())
        assert [state.kind for state in sources.states(T0)] == kinds


# -- with a store ------------------------------------------------------------------------------------


@dataclass
class Lab:
    """A cluster that lists no job, and its store."""

    cluster: Cluster
    store: Store
    folder: Path
    start: int

    def analyser(self, state: State, register: Register) -> Analyser:
        jobs = JobSources(self.cluster, self.store, register, Log(quiet=True))
        jobs.rebuild()
        return Analyser(self.cluster, self.store, state, jobs, log=Log(quiet=True))

    def tick(self, *moments: float) -> None:
        with State.open(self.folder) as state, Register.open(self.folder) as register:
            analyser = self.analyser(state, register)
            for moment in moments:
                analyser.tick(moment)

    def rerun(self, start: float, stop: float, folder: Path) -> None:
        with State.copy_of(folder) as state, Register.copy_of(folder) as register:
            self.analyser(state, register).rerun(start, stop, stop + 1000)

    def jobs(self) -> list[Job]:
        with Register.copy_of(self.folder) as register:
            found = [known.job for known in register.jobs("inferred").values()]
        return sorted(found, key=lambda one: one.start)

    def events(self) -> list[tuple[str, int, str]]:
        frame = scene.stored(self.store, schema.JOB_STATUS)
        if frame.is_empty():
            return []
        frame = frame.filter(pl.col(schema.JOB_EVENT.name) != "")
        return [
            (row[schema.JOB], row["time"] // 1000 - self.start, row[schema.JOB_EVENT.name])
            for row in frame.iter_rows(named=True)
        ]

    def write_ring(self, start: int, stop: int) -> None:
        """Write who sent how much to whom, and the same by node."""
        scene.write_training(self.store, start, stop)
        starts = np.arange(start, stop, 10)
        size = len(scene.NODES)
        rows = pl.DataFrame(
            {
                WINDOW: np.repeat(starts, size),
                schema.SRC: list(scene.NODES) * len(starts),
                schema.DST: [*scene.NODES[1:], scene.NODES[0]] * len(starts),
            }
        ).with_columns(
            pl.lit("compute").alias(schema.PLANE),
            pl.lit("0").alias(schema.SHARD),
            pl.lit(scene.RATE).alias(schema.BYTES.name),
        )
        scene.write(self.store, schema.PAIR, rows, schema.PAIR.kept)

    def write_silence(self, start: int, stop: int) -> None:
        """Write that exporters were heard, and that nobody sent anything."""
        scene.write_training(self.store, start, stop, lambda sent, _: sent.__imul__(0))


@pytest.fixture
def lab(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Iterator[Lab]:
    now = int(datetime.now(UTC).timestamp()) // 60 * 60
    cluster = scene.cluster_of(influxdb_v1.url, fresh_database, str(tmp_path / "state"))
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    yield Lab(cluster, store, tmp_path / "state", now - 7200)
    store.close()


GRACE = 300


@pytest.mark.long_form
def test_a_job_is_inferred_live_and_again_over_the_same_range(lab: Lab) -> None:
    """Live, tick by tick with restarts, and over the whole range at once: the same jobs, the same points."""
    lab.write_silence(lab.start - 600, lab.start)
    lab.write_ring(lab.start, lab.start + 1200)
    lab.write_silence(lab.start + 1200, lab.start + 2400)
    moments = range(lab.start - 300, lab.start + 2400, 60)
    lab.tick(*moments[:20])
    lab.tick(*moments[20:25])
    lab.tick(*moments[25:])
    (found,) = lab.jobs()
    began, ended = found.start.timestamp() - lab.start, found.end.timestamp() - lab.start if found.end else None
    assert (began, ended, found.quiet) == (180, 1200 + 600 + 60, 660)
    assert (found.nodes, found.job_class) == (scene.NODES, "inferred-6")
    assert found.id == f"inferred-{found.start:%Y%m%dT%H%M}-gpu-0"
    assert lab.events() == [(found.id, 180, "start"), (found.id, 1860, "stop")]
    live = {one.name: scene.stored(lab.store, one) for one in (schema.JOB_STATUS, schema.BASELINE)}
    assert live[schema.BASELINE.name].height > 0
    scene.forget_verdicts(lab.store)
    lab.rerun(lab.start - 500, lab.start + 2200, lab.folder / "nothing")
    for measurement in (schema.JOB_STATUS, schema.BASELINE):
        again = scene.stored(lab.store, measurement)
        assert again.height > 20
        before = live[measurement.name].filter(pl.col("time") < (lab.start + 2000) * 1000)
        keys = ["time", *measurement.tags]
        taken_back = before.join(again, on=keys, how="anti")
        # While its end was not known yet, windows behind it were judged for now.
        assert (taken_back.get_column("time") >= (lab.start + 1860) * 1000).all()
        numbers = [one.name for one in measurement.fields if one.kind is not schema.Kind.STRING]
        numbers = [name for name in numbers if name in taken_back.columns]
        assert not taken_back.select(pl.any_horizontal(pl.col(name) > 0 for name in numbers).any()).item()
        kept = before.join(again.select(keys), on=keys, how="semi")
        assert_frame_equal(again, kept.select(again.columns), check_exact=True)


def test_a_clock_that_was_ahead_ends_no_inferred_job(lab: Lab) -> None:
    """Hours of silence that were none ended it, and no minute would be looked at until they are over."""
    lab.write_silence(lab.start - 600, lab.start)
    lab.write_ring(lab.start, lab.start + 900)
    lab.tick(lab.start - 100, lab.start + 300, lab.start + 900)
    (before,) = lab.jobs()
    lab.tick(lab.start + 900 + 3 * 3600)
    assert lab.jobs()[0].end is not None
    lab.write_ring(lab.start + 900, lab.start + 1500)
    lab.write_silence(lab.start + 1500, lab.start + 2700)
    lab.tick(lab.start + 960)
    assert [(one.id, one.end) for one in lab.jobs()] == [(before.id, None)]
    lab.tick(*range(lab.start + 1020, lab.start + 2700, 300))
    (after,) = lab.jobs()
    assert (after.id, after.start, after.nodes) == (before.id, before.start, before.nodes)
    assert after.end is not None
    assert after.end.timestamp() > lab.start + 1500


@pytest.mark.long_form
def test_a_lost_register_is_made_anew_from_the_store(lab: Lab) -> None:
    """A job that runs is the same one afterwards, though its begin may have left the raw windows."""
    lab.write_silence(lab.start - 600, lab.start)
    lab.write_ring(lab.start, lab.start + 1200)
    lab.tick(lab.start - 100, *range(lab.start + 300, lab.start + 1200, 60))
    before = lab.jobs()
    assert [one.end for one in before] == [None]
    for path in lab.folder.glob(f"{FILE}*"):
        path.unlink()
    lab.store.query(f'DELETE FROM "{schema.PAIR.name}" WHERE time < {lab.start + 600}s')
    lab.write_silence(lab.start + 1200, lab.start + 2400)
    lab.tick(*range(lab.start + 1260, lab.start + 2400, 60))
    (after,) = lab.jobs()
    assert (after.id, after.start, after.nodes) == (before[0].id, before[0].start, before[0].nodes)
    assert after.end is not None


def test_a_job_of_weeks_is_known_from_the_store_without_its_start(lab: Lab) -> None:
    jobs = [scene.job(name, lab.start - 20 * 86_400) for name in ("weeks", "taken-back")]
    rows = status_points(jobs, lab.start - 2 * 86_400, lab.start, 10)
    is_there = pl.col(schema.JOB) == "weeks"
    scene.write(lab.store, schema.JOB_STATUS, rows.with_columns(is_there.cast(pl.Int64).alias(schema.ACTIVE.name)))
    (found,) = stored_jobs(lab.store)
    assert (found.id, found.nodes, found.start, found.end) == ("weeks", jobs[0].nodes, jobs[0].start, None)


def test_a_job_of_a_register_made_anew_ran_until_the_analysis_fell_silent(lab: Lab) -> None:
    """Nobody lists it any more: it ended while nobody looked, not a second after its start."""
    settings = SlurmJobs("slurm", files=(str(lab.folder.parent / "squeue.json"),))
    lab.cluster = replace(lab.cluster, job_sources=(settings,))
    begun = Job("7", "x", scene.NODES, datetime.fromtimestamp(lab.start, UTC))
    lab.write_ring(lab.start - 600, lab.start + 1200)
    with Register.open(lab.folder) as register:
        register.put("slurm", {key_of(begun): begun}, lab.start + 1200)
    lab.tick(lab.start - 100, lab.start + 1200)
    for path in lab.folder.glob(f"{FILE}*"):
        path.unlink()
    now = lab.start + 1800
    queue = Path(settings.files[0])
    queue.write_text('{"jobs": []}')
    os.utime(queue, (now, now))
    with Register.open(lab.folder) as register:
        sources = JobSources(lab.cluster, lab.store, register, Log(quiet=True))
        sources.rebuild()
        sources.refresh(now)
        (found,) = sources.jobs()
    assert found.end is not None
    assert lab.start + 1100 <= found.end.timestamp() <= lab.start + 1200


def test_a_job_that_is_told_late_has_its_rows(lab: Lab) -> None:
    """Slurm was away for twenty minutes: the job, when it is told at last, is drawn from its start on."""
    plan_file = lab.folder.parent / "jobs.json"
    lab.cluster = replace(lab.cluster, job_sources=(FileJobs("planned", str(plan_file)),))
    lab.write_ring(lab.start, lab.start + 1500)

    def told(*records: dict[str, object]) -> None:
        plan_file.write_text(json.dumps([{"id": "x", "nodes": ["gpu-[0-5]"], "start": lab.start} | r for r in records]))
        os.utime(plan_file, (lab.start, lab.start))

    told()
    with State.open(lab.folder) as state, Register.open(lab.folder) as register:
        jobs = JobSources(lab.cluster, lab.store, register, Log(quiet=True))
        analyser = Analyser(lab.cluster, lab.store, state, jobs, log=Log(quiet=True))

        def tick(now: float) -> None:
            jobs.refresh(now)
            analyser.tick(now)

        tick(lab.start + 1200)
        assert lab.events() == []
        told({})
        tick(lab.start + 1205)
        rows = scene.stored(lab.store, schema.JOB_STATUS)
        assert rows.height == 121
        assert rows.get_column(schema.ACTIVE.name).unique().to_list() == [1]
        told({"end": lab.start + 300, "outcome": "failed"})
        tick(lab.start + 1210)
    rows = scene.stored(lab.store, schema.JOB_STATUS)
    active = rows.filter(pl.col(schema.ACTIVE.name) == 1)
    assert active.get_column("time").max() == (lab.start + 290) * 1000, "the rest is taken back"
    assert lab.events() == [("x", 0, "start"), ("x", 300, "stop")]
    outcomes = rows.get_column(schema.JOB_OUTCOME.name).drop_nulls()
    assert [text for text in outcomes if text] == ["failed"]


def test_gpus_and_origin_are_written(lab: Lab) -> None:
    nodes = tuple(replace(node, gpus=8) for node in lab.cluster.nodes)
    lab.cluster = replace(lab.cluster, nodes=nodes, jobs=(scene.job("x", lab.start),))
    lab.write_ring(lab.start, lab.start + 300)
    lab.tick(lab.start + 300)
    row = scene.stored(lab.store, schema.JOB_STATUS).row(0, named=True)
    assert (row[schema.JOB_GPUS.name], row[schema.JOB_ORIGIN.name]) == (48, "cluster.yaml")
    assert row[schema.JOB_NODE_NAMES.name] == "gpu-[0-5]"


def test_keys_of_runs() -> None:
    assert key_of(job("x", 5)) == f"x@{T0 + 5}"
