"""A played job from spool to answer: `clusterflow jobs show`, and what the analyser stores for the board."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import trace_scene
from click.testing import CliRunner

from analysis.detectors.roles import role_watch
from analysis.detectors.roles.role_watch import RoleLook
from analysis.jobs.jobs_cli import jobs
from bench.traces.faults import Fault, FaultKind
from bench.traces.layout import Model
from bench.traces.play import Played, play
from bench.traces.records import netflow, sflow
from cluster.model import Job
from store import schema
from store.influx import Store
from store.influxql import Select, newest, total
from store.local_influxdb import LocalInfluxDB
from tests.bench.synthetic_trace import synthetic_trace

T0 = time.time() // 10 * 10 - 600
SECONDS = 60
SMALL = Model(hidden=4096, layers=16)
HOSTS = tuple(f"host-{number:03d}" for number in range(12))
JOB = Job("pretrain", "llm", HOSTS, datetime.fromtimestamp(T0 - 100, UTC))


def played(*faults: Fault, seconds: float = SECONDS) -> Played:
    trace = synthetic_trace(replicas=3, stages=4)
    return play(trace, seconds, 5, faults, SMALL, begin=T0)


def ask(state: Path, *arguments: str) -> dict[str, Any]:
    """Return the answer in JSON; as a table it must say something, too."""
    begin = JOB.start.isoformat()
    (state / "jobs.csv").write_text(f"id,class,nodes,start\npretrain,llm,host-[000-011],{begin}\n")
    asked = ["show", *arguments, "--to", datetime.fromtimestamp(T0 + SECONDS, UTC).isoformat(),
             "-c", str(state / "cluster.yaml")]  # fmt: skip
    table = CliRunner().invoke(jobs, asked, catch_exceptions=False)
    assert table.exit_code == 0, table.output
    found = json.loads(CliRunner().invoke(jobs, [*asked, "--json"], catch_exceptions=False).stdout)
    assert isinstance(found, dict)
    return found | {"table": table.output}


def test_a_job_is_told_from_the_spool_to_the_answer(tmp_path: Path) -> None:
    one = played(Fault(FaultKind.DEAD_RAIL, worker=4, rail=2))
    trace_scene.kept(sflow(one, trace_scene.RATE, 6), tmp_path)
    found = ask(tmp_path, "pretrain")
    (job,) = found["jobs"]
    stages = {role["node"]: role["pipeline_stage"] for role in job["roles"]}
    assert stages == dict(one.roles.select("host", "stage").iter_rows())
    truth = one.pairs.filter(pl.col("kinds").list.contains("pipeline")).height
    onward = [one for one in job["pairs"] if one["kind"] == "pipeline" and one["src_stage"] < one["dst_stage"]]
    assert sum(one["role_pairs"] for one in onward) == truth
    whole = one.steps.filter(pl.col("end") < one.end)
    assert job["steps"]["median"] == pytest.approx((whole["end"] - whole["begin"]).median(), rel=0.01)
    first = job["verdicts"][0]
    assert (first["blame"], first["culprits"], first["culprit_rail"]) == ("dead rail", "host-004", 2)
    assert "host-004" in found["table"]


def test_a_job_is_told_from_all_of_its_samples_however_many_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = sflow(played(seconds=30), trace_scene.RATE, 6)
    trace_scene.kept(samples, tmp_path)
    own = samples.filter(pl.col("src").is_in(HOSTS[:4]), pl.col("dst").is_in(HOSTS[:4])).height
    monkeypatch.setattr(role_watch, "_MOST", own)
    (tmp_path / "jobs.csv").write_text(f"id,class,nodes,start\nsmall,llm,host-[000-003],{JOB.start.isoformat()}\n")
    asked = ["show", "small", "--to", datetime.fromtimestamp(T0 + 30, UTC).isoformat(), "--json"]
    found = CliRunner().invoke(jobs, [*asked, "-c", str(tmp_path / "cluster.yaml")], catch_exceptions=False)
    (job,) = json.loads(found.stdout)["jobs"]
    assert 0 < own == job["samples"] < samples.height / 2


def test_traffic_of_no_known_job_is_told_too(tmp_path: Path) -> None:
    trace_scene.kept(sflow(played(seconds=30), trace_scene.RATE, 6), tmp_path)
    (tmp_path / "jobs.csv").write_text("id,nodes,start\n")
    found = CliRunner().invoke(
        jobs, ["show", "--to", datetime.fromtimestamp(T0 + 30, UTC).isoformat(), "--json", "-c",
               str(tmp_path / "cluster.yaml")], catch_exceptions=False
    )  # fmt: skip
    (job,) = json.loads(found.stdout)["jobs"]
    assert (job["job"], len(job["nodes"]), job["verdicts"]) == ("", 12, [])


def test_records_tell_members_and_dead_rails_and_say_what_they_cannot(tmp_path: Path) -> None:
    records = netflow(played(Fault(FaultKind.DEAD_RAIL, worker=4, rail=2)), 10)
    trace_scene.kept(records, tmp_path)
    (job,) = ask(tmp_path)["jobs"]
    assert (job["source"], job["steps"], job["roles"], job["silent"]) == ("netflow", None, [], [])
    (verdict,) = job["verdicts"]
    assert (verdict["blame"], verdict["culprits"], verdict["culprit_rail"]) == ("dead rail", "host-004", 2)
    assert "cannot be known" in job["unknown"]


def test_nothing_kept_is_said(tmp_path: Path) -> None:
    trace_scene.kept(sflow(played(seconds=20), trace_scene.RATE, 6), tmp_path)
    (job,) = ask(tmp_path, "pretrain", "--from", datetime.fromtimestamp(T0 + 40, UTC).isoformat())["jobs"]
    assert (job["source"], job["samples"]) == ("none", 0)
    unknown = CliRunner().invoke(jobs, ["show", "other", "-c", str(tmp_path / "cluster.yaml")])
    assert "no source knows it" in str(unknown.exception)


@pytest.mark.service
def test_what_the_board_reads_is_stored_once_in_five_minutes(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    one = played(Fault(FaultKind.SLOW, worker=4, share=1.0))
    cluster = trace_scene.kept(sflow(one, trace_scene.RATE, 6), tmp_path, url=influxdb_v1.url, database=fresh_database)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    roles = RoleLook(cluster, store)
    roles.jobs = [JOB]
    assert roles.look(T0 + SECONDS) == 1
    assert roles.look(T0 + SECONDS + 200) == 0
    rows = store.rows(Select(schema.JOB_ROLE, schema.RAW).take(newest(schema.ROLE_STAGE)).by(schema.NODE).between())
    assert {node: int(stage) for _, node, stage in rows} == {f"host-{n:03d}": n // 3 for n in range(12)}
    pairs = Select(schema.JOB_PAIR, schema.RAW).take(newest(schema.ROLE_PAIRS)).by(schema.SRC_STAGE, schema.DST_STAGE)
    exchange = {(src, dst): int(count) for _, src, dst, count in store.rows(pairs.between())}
    assert len(exchange) == 16
    assert (exchange["0", "0"], exchange["0", "1"], exchange["0", "2"]) == (3, 3, 0)
    told = newest(schema.BLAME), newest(schema.CULPRITS)
    (verdict,) = store.rows(Select(schema.JOB_VERDICT, schema.RAW).take(*told).by(schema.PLACE).between())
    assert verdict[1:] == ("1", "node", "host-004")
    asked = Select(schema.JOB_STEPS, schema.RAW).take(total(schema.STEPS)).by(schema.JOB)
    ((_, _, steps),) = store.rows(asked.between())
    ended = one.steps.filter(pl.col("end") < one.end).height
    assert ended - 2 <= steps <= ended
    # A clock that was ahead for a moment ends no looking.
    assert [roles.look(T0 + SECONDS + seconds) for seconds in (18_000, 1)] == [0, 1]
    store.close()
