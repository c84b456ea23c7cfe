"""From a hook's word to rows in the store, through the commands; and `clusterflow jobs`."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import scene
from click.testing import CliRunner

from analysis.jobs.jobs_cli import jobs
from cluster.load import load_cluster
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB, free_port
from tests.waiting import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
TOKEN = "correct-horse-battery"
CONFIG = """\
cluster: scene
groups:
  training: {{role: training, prefixes: [10.20.0.0/16]}}
nodes:
  "gpu-{{0..5}}": {{group: training, gpus: 8, addresses: ["10.20.0.{{1..6}}"]}}
exporters:
  leaf-1: {{address: 10.0.0.1, interfaces: {{1: {{name: rail, plane: compute}}}}}}
job_sources:
  - {{type: file, name: planned, path: jobs.csv}}
  - {{type: http, name: hooks, listen: "127.0.0.1:{port}", token: {{env: JOBS_TOKEN}}}}
store: {{url: "{url}", database: {database}}}
bridge: {{state: {state}}}
"""


@dataclass
class Stage:
    """A cluster.yaml, its store, and the endpoint's port."""

    config: Path
    store: Store
    port: int

    def post(self, path: str, **body: object) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=5) as response:
            answer = json.load(response)
        assert isinstance(answer, dict)
        return answer

    def rows(self) -> list[dict[str, Any]]:
        return scene.stored(self.store, schema.JOB_STATUS).to_dicts()

    def jobs(self, *arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(jobs, ["-c", str(self.config), *arguments])
        return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def stage(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Iterator[Stage]:
    port = free_port()
    config = tmp_path / "cluster.yaml"
    config.write_text(CONFIG.format(port=port, url=influxdb_v1.url, database=fresh_database, state=tmp_path / "state"))
    (tmp_path / "jobs.csv").write_text("id,class,nodes,start,end,outcome\n")
    cluster = load_cluster(config)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    yield Stage(config, store, port)
    store.close()


@pytest.fixture
def analysis(stage: Stage) -> Iterator[Stage]:
    """The stage, with a live analysis."""
    command = [sys.executable, "-m", "clusterflow", "analyze", "-c", str(stage.config), "--every", "1s"]
    environment = os.environ | {"JOBS_TOKEN": TOKEN}
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "event=tick" in line:
            break
    yield stage
    process.terminate()
    assert process.wait(15) == 0, process.stderr.read()


def test_a_hooks_word_becomes_rows_and_its_outcome_an_event(analysis: Stage) -> None:
    began = int(time.time()) - 30
    analysis.post("/jobs/start", id="4711", **{"class": "llama-70b"}, nodes="gpu-[0-3],cpu-1", start=began)
    wait_for(lambda: any(row.get(schema.JOB_EVENT.name) == "start" for row in analysis.rows()))
    (start,) = [row for row in analysis.rows() if row.get(schema.JOB_EVENT.name) == "start"]
    assert (start["time"] // 1000, start[schema.JOB], start[schema.JOB_CLASS]) == (began, "4711", "llama-70b")
    assert (start[schema.ACTIVE.name], start[schema.JOB_NODES.name], start[schema.JOB_GPUS.name]) == (1, 4, 32)
    assert (start[schema.JOB_ORIGIN.name], start[schema.JOB_NODE_NAMES.name]) == ("hooks", "gpu-[0-3]")
    code, text, _ = analysis.jobs()
    assert code == 0
    assert "4711" in text
    assert "running" in text
    assert "hooks: 1 known, 1 running; nodes that the inventory does not know, left out: cpu-1" in text
    ended = analysis.post("/jobs/stop", id="4711", outcome="cancelled")["job"]["end"]
    wait_for(lambda: any(row.get(schema.JOB_EVENT.name) == "stop" for row in analysis.rows()))
    (stop,) = [row for row in analysis.rows() if row.get(schema.JOB_EVENT.name) == "stop"]
    assert (stop[schema.ACTIVE.name], stop[schema.JOB_OUTCOME.name]) == (0, "cancelled")
    code, text, _ = analysis.jobs("--json")
    (job,) = json.loads(text)["jobs"]
    assert (job["end"], job["outcome"], job["origin"], job["gpus"]) == (ended, "cancelled", "hooks", 32)
    readings = analysis.store.query(
        f'SELECT last("{schema.VALUE.name}") FROM "raw"."{schema.PIPELINE.name}" '
        f'WHERE "{schema.STAGE}" = \'jobs\' GROUP BY "{schema.REASON}"'
    )
    found = {series.tags[schema.REASON]: series.values[0][1] for series in readings}
    assert found["hooks.unknown_nodes"] == 1
    assert found["planned.failing_seconds"] == 0


def test_a_broken_file_is_shown_with_what_was_known(stage: Stage) -> None:
    path = stage.config.parent / "jobs.csv"
    now = int(time.time())
    path.write_text(f"id,nodes,start\nplan-a,gpu-[0-1],{now + 3600}\nold,gpu-1,{now - 5 * 86_400}\n")
    code, text, errors = stage.jobs()
    assert (code, errors) == (0, "")
    assert "planned" in text
    assert "plan-a" in text
    path.write_text("id,nodes\n")
    os.utime(path, (1_772_352_000, 1_772_352_000))
    code, text, errors = stage.jobs()
    assert code == 1
    assert errors == (
        f"planned: {path}:1: start: no such column: expected the columns id, nodes, start "
        "(its last known jobs are shown)\n"
    )


def test_a_store_that_is_away_is_told_where_it_alone_may_know_jobs(stage: Stage) -> None:
    text = stage.config.read_text()
    stage.config.write_text(text.replace(stage.store.url, f"http://127.0.0.1:{free_port()}"))
    code, _, errors = stage.jobs()
    assert code == 0
    assert "does not answer" in errors
    assert "jobs that only the store knows are not shown" in errors


def test_jobs_of_long_ago_are_shown_on_request(stage: Stage) -> None:
    (stage.config.parent / "jobs.csv").write_text(
        "id,nodes,start,end,outcome\n"
        f"old,gpu-1,{int(time.time()) - 4 * 86_400},{int(time.time()) - 3 * 86_400},failed\n"
    )
    code, text, _ = stage.jobs()
    assert code == 0
    assert "no job runs, and none ended in the last day" in text
    assert "1 that ended before are left out: --all shows them" in text
    assert "old" in stage.jobs("--all")[1]


def test_analyze_says_at_once_what_a_source_lacks(stage: Stage) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JOBS_TOKEN"}
    command = [sys.executable, "-m", "clusterflow", "analyze", "-c", str(stage.config)]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "environment variable JOBS_TOKEN is not set" in done.stderr
