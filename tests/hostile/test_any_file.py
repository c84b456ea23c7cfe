"""Whatever stands in a file that clusterflow reads, the answer is its content or one clear line; no other error."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import documents, garbled

from analysis.jobs.job_source import AskError
from analysis.jobs.sources.slurm import records_of
from app.errors import ClusterflowError
from cluster.document import Parser
from cluster.load import parse_cluster
from cluster.model import SlurmJobs
from ingest.checkpoint import Checkpoint
from ingest.kafka.flow_messages import MessageError, decode, encode
from ingest.read.counter_samples import SAMPLE_SCHEMA, read_counter_samples
from ingest.read.records import RECORD_SCHEMA
from rules.evaluate.cases import load_cases
from rules.evaluate.truth import read_truth
from rules.grafana.decode import rules_from_text
from simulate.scenarios.script import library, load_script

REPOSITORY = Path(__file__).resolve().parents[2]
CASES = sorted((REPOSITORY / "tests/rules").glob("*.yaml"))
RULES = REPOSITORY / "provisioning/grafana/alerting/rules.yaml"

MANY = bool(os.environ.get("CLUSTERFLOW_FUZZ"))
NO_DEADLINE = settings(
    deadline=None,
    max_examples=40 if MANY else 15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def tells(read: Callable[[], object]) -> None:
    """Read; what is wrong with it is told in printable lines, and is nothing else than the user's error."""
    lines = ["read"]
    try:
        read()
    except ClusterflowError as error:
        lines = error.lines()
    assert lines
    for line in lines:
        assert line.isprintable(), line
        assert len(line) < 2_000, line


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").write_bytes((REPOSITORY / "cluster.yaml").read_bytes())
    return tmp_path / "file.yaml"


SCENARIOS = {path.stem: path for path in library()}
SOME_SCENARIOS = ["bulk-exfil", "drip-exfil-day", "job-stalled", "pipeline-outage", "shadow-node"]


@NO_DEADLINE
@given(st.data())
@pytest.mark.parametrize("name", SOME_SCENARIOS)
def test_scenarios(file: Path, name: str, data: st.DataObject) -> None:
    good = yaml.safe_load(SCENARIOS[name].read_text(encoding="utf-8"))
    file.write_text(yaml.safe_dump(data.draw(documents(good))), encoding="utf-8")
    tells(lambda: load_script(file))


@NO_DEADLINE
@given(st.data())
@pytest.mark.parametrize("name", ["exfil_volume", "node_dropout", "job_stalled"])
def test_rule_cases(file: Path, name: str, data: st.DataObject) -> None:
    good = yaml.safe_load((REPOSITORY / f"tests/rules/{name}.yaml").read_text(encoding="utf-8"))
    file.write_text(yaml.safe_dump(data.draw(documents(good))), encoding="utf-8")
    tells(lambda: load_cases(file, file.with_name("cluster.yaml")))


@NO_DEADLINE
@given(st.data())
@pytest.mark.parametrize("path", [SCENARIOS["bulk-exfil"], CASES[0], REPOSITORY / "cluster.yaml"], ids=str)
def test_garbled_yaml(file: Path, path: Path, data: st.DataObject) -> None:
    file.write_bytes(data.draw(garbled(path.read_bytes())))
    tells(lambda: load_script(file))
    tells(lambda: load_cases(file, file.with_name("cluster.yaml")))
    tells(lambda: parse_cluster(file.read_text(encoding="utf-8", errors="replace")))


GENERATED = yaml.load(RULES.read_text(encoding="utf-8"), Parser)  # noqa: S506 - a safe loader
ONE_RULE = {**GENERATED, "groups": [{**GENERATED["groups"][0], "rules": GENERATED["groups"][0]["rules"][:1]}]}


@NO_DEADLINE
@given(documents(ONE_RULE))
def test_generated_rules(document: object) -> None:
    tells(lambda: rules_from_text(yaml.safe_dump(document), "rules.yaml"))


TRUTH = {
    "incidents": [
        {
            "id": "leak-1",
            "kind": "bulk_exfil",
            "start": "2026-03-02T10:00:00Z",
            "end": "2026-03-02T10:05:00Z",
            "alerts": [{"rule": "exfil_volume", "due": "2026-03-02T10:03:00Z", "labels": {"src": "vault-1"}}],
        }
    ]
}


@NO_DEADLINE
@given(documents(TRUTH))
def test_truth(file: Path, document: object) -> None:
    file.write_text(json.dumps(document), encoding="utf-8")
    tells(lambda: read_truth(file))


QUEUE = {
    "meta": {"slurm": {"version": {"major": "24", "minor": "05"}}},
    "jobs": [
        {
            "job_id": 17, "job_state": ["RUNNING"], "partition": "gpu", "name": "pretrain", "account": "llm",
            "nodes": "gpu-[01-04]", "start_time": {"set": True, "infinite": False, "number": 1_790_000_000},
            "end_time": {"set": True, "infinite": False, "number": 1_790_086_400}, "restart_cnt": 0,
            "array_job_id": {"set": True, "number": 0}, "array_task_id": {"set": False, "number": 0},
        },
    ],
}  # fmt: skip
ACCOUNTS = {
    "jobs": [
        {
            "job_id": 18, "state": {"current": ["COMPLETED"]}, "partition": "gpu", "name": "pretrain", "account": "llm",
            "nodes": "gpu-[01-04,07]", "time": {"start": 1_790_000_000, "end": 1_790_003_600, "elapsed": 3600},
            "array": {"job_id": 0, "task_id": {"set": False, "number": 0}}, "restart_cnt": 1,
        },
    ],
}  # fmt: skip


@NO_DEADLINE
@given(st.data())
@pytest.mark.parametrize("good", [QUEUE, ACCOUNTS], ids=["squeue", "sacct"])
def test_slurm(good: object, data: st.DataObject) -> None:
    document = data.draw(documents(good))
    records, said = [], ""
    try:
        records = list(records_of(document, SlurmJobs("slurm"), 1_790_010_000.0))
    except AskError as error:
        said = str(error)
    assert said.isprintable()
    assert all(record.job.nodes for record in records)


SAMPLE = (
    b'{"peer_ip_src": "10.0.0.1", "sf_cnt_type": "sflow_cnt_generic", "ifIndex": 3, "timestamp": "2026-01-02 03:04:05",'
    b' "sflow_cnt_seq": 7, "ifSpeed": 100000000000, "ifInOctets": 5, "ifOutOctets": 6, "ifInErrors": 0}\n'
)


@NO_DEADLINE
@given(garbled(SAMPLE * 3))
def test_counter_samples(raw: bytes) -> None:
    parsed = read_counter_samples(raw)
    assert dict(parsed.frame.schema) == SAMPLE_SCHEMA


FLOWS = pl.DataFrame(
    [
        dict.fromkeys(RECORD_SCHEMA)
        | {"exporter": "10.0.0.1", "src": "10.1.0.1", "dst": "10.2.0.1", "src_port": 1, "dst_port": 2, "tcp_flags": 0}
        | {"tos": 0, "sampling_rate": 1, "bytes": 1500, "packets": 1, "flows": 1, "arrival": 1_790_000_000_000}
    ]
    * 5,
    schema=RECORD_SCHEMA,
)
(VALUE,) = encode(FLOWS, relay="a", lost={"10.0.0.1": 3})


@settings(NO_DEADLINE, max_examples=300 if MANY else 100)
@given(garbled(VALUE))
def test_messages(value: bytes) -> None:
    frames: list[pl.DataFrame] = []

    def read() -> None:
        # Nothing else than a MessageError: a worker counts it and goes on.
        with suppress(MessageError):
            frames.append(decode(value).frame)

    tells(read)
    assert all(set(frame.columns) in ({*RECORD_SCHEMA}, {*SAMPLE_SCHEMA}) for frame in frames)


def test_checkpoints_of_before_there_were_checksums(tmp_path: Path) -> None:
    frame = pl.DataFrame({"window": [10, 20]})
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save({"traffic": frame}, {"window": 10, "position": {}})
    checkpoint.close()
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest.pop("sums").keys() == {"traffic-1.arrow"}
    del manifest["check"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    again = Checkpoint(tmp_path)
    found = again.load()
    again.close()
    assert found is not None
    assert found[0]["traffic"].equals(frame)
    assert found[1] == {"window": 10, "position": {}}


@NO_DEADLINE
@given(st.data())
def test_checkpoints(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A checkpoint that a disk has damaged: the whole, or one line that says what to do."""
    folder = tmp_path_factory.mktemp("state")
    checkpoint = Checkpoint(folder)
    frame = pl.DataFrame({"window": [10, 20, 30], "bytes": [1, 2, 3]})
    checkpoint.save({"traffic": frame}, {"window": 10, "position": {}})
    checkpoint.close()
    damaged = data.draw(st.sampled_from(sorted(path.name for path in folder.iterdir() if path.name != "lock")))
    path = folder / damaged
    path.write_bytes(data.draw(garbled(path.read_bytes())))
    again = Checkpoint(folder)
    loaded: list[tuple[dict[str, pl.DataFrame], dict[str, Any]] | None] = []
    try:
        tells(lambda: loaded.append(again.load()))
    finally:
        again.close()
    for found in loaded:
        assert found is not None
        assert found[0]["traffic"].equals(frame)
        assert found[1] == {"window": 10, "position": {}}
