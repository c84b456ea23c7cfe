"""Jobs as JSON and CSV, and files of them that are watched."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.jobs.job_records import read_csv, read_json
from analysis.jobs.register import FILE, Register, key_of
from analysis.jobs.sources.file import ClusterYaml, FileSource, in_one_line
from app.errors import ConfigError
from app.log import Log
from cluster.load import load_cluster
from cluster.model import FileJobs, Job, Outcome

KEEP = 7 * 86_400
ZONE = ZoneInfo("Europe/Amsterdam")
T0 = 1_772_352_000
SKIPPED = "expected a time that exists in Europe/Amsterdam (the clocks go forward over it)"
NO_TIME = "expected a time such as 2026-03-01T08:00:00Z, 2026-03-01 08:00 (the site's time zone) or 1772352000"


def shown(jobs: tuple[Job, ...]) -> list[tuple[object, ...]]:
    return [
        (
            job.id,
            job.job_class,
            job.nodes,
            job.start.timestamp() - T0,
            None if job.end is None else job.end.timestamp() - T0,
            job.outcome.value,
        )
        for job in jobs
    ]


EXPECTED = [
    ("4711", "4711", ("gpu-01", "gpu-02"), 0, None, "unknown"),
    ("b", "llm", ("a", "b"), 60, 3660, "failed"),
]


def test_json() -> None:
    text = """{"jobs": [
        {"id": 4711, "nodes": "gpu-[01-02]", "start": "2026-03-01 09:00", "end": null},
        {"id": "b", "class": "llm", "nodes": ["a", "b", "a"], "start": 1772352060.7, "end": "2026-03-01T09:01:00Z",
         "outcome": "failed"}
    ]}"""
    assert shown(read_json(text, "jobs.json", ZONE)) == EXPECTED
    assert shown(read_json(json.dumps(json.loads(text)["jobs"]), "jobs.json", ZONE)) == EXPECTED
    assert read_json("[]", "jobs.json", ZONE) == ()


@pytest.mark.thorough
def test_a_long_history_of_runs_on_the_same_nodes() -> None:
    """More than a million names in all, but a thousand nodes: a file that keeps what was long ago."""
    runs = [
        {"id": f"run-{n}", "nodes": "gpu-[1-4096]", "start": T0 + n * 60, "end": T0 + n * 60 + 30} for n in range(300)
    ]
    found = read_json(json.dumps(runs), "jobs.json", ZONE)
    assert len(found) == 300
    assert {len(job.nodes) for job in found} == {4096}
    assert len({id(job.nodes) for job in found}) == 1


def test_csv() -> None:
    text = """# exported nightly
id,nodes,start,end,outcome,class

4711,"gpu-[01-02]",2026-03-01 09:00,,,
b,a b,1772352060,2026-03-01T09:01:00Z,failed,llm
"""
    assert shown(read_csv(text, "jobs.csv", ZONE)) == EXPECTED
    assert read_csv("id,nodes,start\n", "jobs.csv", ZONE) == ()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ["jobs.json:1: column 1: expected JSON (expecting value)"]),
        ('{"jobs": [}', ["jobs.json:1: column 11: expected JSON (expecting value)"]),
        ("[" * 100_000, ["jobs.json: nested too deeply: expected a list of jobs"]),
        ('{"job": []}', ['jobs.json: a mapping: expected a list of jobs, or {"jobs": [...]}']),
        ('{"jobs": {}}', ['jobs.json: jobs: a mapping: expected a list of jobs, or {"jobs": [...]}']),
        (
            '[{"id": "a", "node": "n", "start": "2026-03-29 02:30", "nodes": "n"}]',
            [
                "jobs.json: [0].node: unknown key: expected a key of docs/jobs.md (did you mean nodes?)",
                f"jobs.json: [0].start: 2026-03-29 02:30: {SKIPPED}",
                "jobs.json: 2 problems",
            ],
        ),
        (
            '[{"id": "a", "nodes": "n", "start": 1772352000}, {"id": "a", "nodes": "n", "start": 1772352060}]',
            ["jobs.json: [1].id: a: expected runs of one id that do not overlap ([0] has the same id at that time)"],
        ),
        (
            '[{"id": "a", "nodes": "n", "start": 1772352000, "outcome": "failed"}]',
            ["jobs.json: [0].outcome: failed: expected no outcome without an end (say when it ended)"],
        ),
    ],
)
def test_json_with_faults(text: str, lines: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_json(text, "jobs.json", ZONE)
    assert caught.value.lines() == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "id,nodes,begin\n",
            [
                "jobs.csv:1: begin: unknown column: expected the columns id, class, nodes, start, end, outcome, user",
                "jobs.csv:1: start: no such column: expected the columns id, nodes, start",
                "jobs.csv: 2 problems",
            ],
        ),
        (
            "id,nodes,start\na,n\n\nb,n,soon\n",
            [
                "jobs.csv:2: jobs[0]: 2 values: expected 3, as the header has",
                f"jobs.csv:4: jobs[1].start: soon: {NO_TIME}",
                "jobs.csv: 2 problems",
            ],
        ),
        (
            "id;nodes;start\na;n;2026-03-01 08:00\nb;n",
            ["jobs.csv:3: a row that ends too early: expected CSV (is the file cut off? Copy it once more)"],
        ),
    ],
)
def test_csv_with_faults(text: str, lines: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_csv(text, "jobs.csv", ZONE)
    assert caught.value.lines() == lines


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("2026-03-01 08:00")
RECORDS = st.dictionaries(
    st.sampled_from(["id", "class", "nodes", "start", "end", "outcome", "x"]),
    VALUES | st.lists(VALUES, max_size=3) | st.dictionaries(st.text(max_size=3), VALUES, max_size=2),
    max_size=7,
)


@settings(deadline=None)
@given(st.lists(RECORDS, max_size=3) | st.text(max_size=60))
def test_whatever_stands_there_is_jobs_or_faults(data: object) -> None:
    for read, text in ((read_json, json.dumps(data)), (read_json, str(data)), (read_csv, str(data))):
        try:
            jobs = read(text, "jobs", ZONE)
        except ConfigError as error:
            assert all(line.isprintable() for line in error.lines())  # noqa: PT017 - what it says matters
        else:
            assert all(job.end is None or job.end > job.start for job in jobs)


# -- a watched file ----------------------------------------------------------------------------------


@pytest.fixture
def register(tmp_path: Path) -> Iterator[Register]:
    with Register.open(tmp_path / "state") as one:
        yield one


def write(path: Path, text: str, moment: float) -> None:
    """Write as a good citizen does: whole, under another name, then renamed."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.utime(fresh, (moment, moment))
    fresh.rename(path)


def record(job_id: str, **more: object) -> dict[str, object]:
    return {"id": job_id, "nodes": ["n1"], "start": T0, **more}


def ids(register: Register, name: str = "planned") -> list[str]:
    return sorted(one.job.id for one in register.jobs(name).values())


def test_a_file_is_read_again_when_it_changes(register: Register, tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    source = FileSource(FileJobs("planned", str(path)), register, ZONE, KEEP)
    assert source.refresh(T0) == f"{path}: no such file or directory: expected a file that can be read, in UTF-8"
    write(path, json.dumps([record("a"), record("b")]), T0)
    assert source.refresh(T0 + 5) == ""
    assert ids(register) == ["a", "b"]
    version = register.version
    source.refresh(T0 + 10)
    assert register.version == version
    write(path, json.dumps([record("b", end=T0 + 60, outcome="failed")]), T0 + 11)
    source.refresh(T0 + 15)
    assert ids(register) == ["b"], "what the file no longer has is forgotten"
    assert [one.job.outcome for one in register.jobs("planned").values()] == [Outcome.FAILED]


def test_a_broken_file_keeps_the_last_good_version(register: Register, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    source = FileSource(FileJobs("planned", str(path)), register, ZONE, KEEP)
    write(path, "id,nodes,start\na,n1,1772352000\n", T0)
    source.refresh(T0 + 5)
    write(path, "id,nodes,start\na,n1,never\nb,n1\n", T0 + 10)
    trouble = source.refresh(T0 + 20)
    assert trouble == f"{path}:2: jobs[0].start: never: {NO_TIME} (and 1 more)"
    assert source.refresh(T0 + 25) == trouble, "it is told until it is mended"
    assert ids(register) == ["a"]
    write(path, "id,nodes,start\nc,n1,1772352000\n", T0 + 30)
    assert source.refresh(T0 + 35) == ""
    assert ids(register) == ["c"]


def test_a_file_that_is_being_written_is_given_a_moment(register: Register, tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    source = FileSource(FileJobs("planned", str(path)), register, ZONE, KEEP)
    write(path, json.dumps([record("a")]), T0)
    source.refresh(T0 + 5)
    write(path, '[{"id": "a", "no', T0 + 10)
    assert source.refresh(T0 + 11) == ""
    assert source.refresh(T0 + 13) != ""


def test_after_a_restart_a_broken_file_has_the_jobs_that_were_known(register: Register, tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    settings_ = FileJobs("planned", str(path))
    write(path, json.dumps([record("a")]), T0)
    FileSource(settings_, register, ZONE, KEEP).refresh(T0 + 5)
    write(path, "{", T0 + 10)
    assert FileSource(settings_, register, ZONE, KEEP).refresh(T0 + 60) != ""
    assert ids(register) == ["a"]


def test_a_job_that_was_over_before_what_the_store_keeps_is_left_out(register: Register, tmp_path: Path) -> None:
    """One that still runs is judged from there on, also where nobody told of it in time."""
    path = tmp_path / "jobs.json"
    source = FileSource(FileJobs("planned", str(path)), register, ZONE, KEEP)
    write(path, json.dumps([record("a"), record("long", start=T0 - 2 * KEEP)]), T0)
    assert (source.refresh(T0 + 5), ids(register)) == ("", ["a", "long"])
    over = record("over", start=T0 - 2 * KEEP, end=T0 - KEEP - 60)
    write(path, json.dumps([record("a"), over]), T0 + 11)
    assert (source.refresh(T0 + 15), ids(register)) == ("", ["a"])


def test_a_job_that_was_told_in_time_may_run_for_longer_than_the_store_keeps(
    register: Register, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.json"
    write(path, json.dumps([record("a")]), T0)
    FileSource(FileJobs("planned", str(path)), register, ZONE, KEEP).refresh(T0 + 5)
    assert FileSource(FileJobs("planned", str(path)), register, ZONE, KEEP).refresh(T0 + 2 * KEEP) == ""
    assert ids(register) == ["a"]


CLUSTER = """\
cluster: lab
groups: {{training: {{role: training, prefixes: [10.20.0.0/16]}}}}
nodes: {{"gpu-{{1..4}}": {{group: training, addresses: ["10.20.0.{{1..4}}"]}}}}
jobs: [{jobs}]
"""


def test_jobs_of_cluster_yaml_are_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yaml"
    job = '{id: a, nodes: ["gpu-*"], start: 2026-03-01 08:00}'
    write(path, CLUSTER.format(jobs=job.replace("a", "b", 1)), T0)
    known = load_cluster(path)
    write(path, CLUSTER.format(jobs=job.replace("a", "c", 1)), T0 + 1)
    listed = ClusterYaml(known, path, Log())
    assert (listed.refresh(T0 + 5), [one.id for one in listed.jobs]) == ("", ["c"]), "also of before it began"
    write(path, CLUSTER.format(jobs=job), T0 + 10)
    assert listed.refresh(T0 + 15) == ""
    assert [one.id for one in listed.jobs] == ["a"]
    assert capsys.readouterr().err == ""
    write(path, CLUSTER.format(jobs=job.replace("gpu-*", "cpu-*")), T0 + 20)
    assert "jobs[0].nodes[0]: cpu-*: expected a node of the inventory" in listed.refresh(T0 + 25)
    assert [one.id for one in listed.jobs] == ["a"]
    write(path, CLUSTER.format(jobs=job).replace("lab", "renamed"), T0 + 30)
    assert listed.refresh(T0 + 35) == ""
    assert "restart the analysis for everything else" in capsys.readouterr().err


def test_that_jobs_are_inferred_from_a_restart_on_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yaml"
    write(path, CLUSTER.format(jobs='{id: a, nodes: ["gpu-*"], start: 2026-03-01 08:00}'), T0)
    listed = ClusterYaml(load_cluster(path), path, Log())
    write(path, CLUSTER.format(jobs=""), T0 + 10)
    assert (listed.refresh(T0 + 15), listed.jobs) == ("", ())
    assert "restart the analysis for everything else" in capsys.readouterr().err


# -- the register ------------------------------------------------------------------------------------


def test_a_register_that_cannot_be_read_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, but long enough to have a header of its own" * 40)
    with Register.open(tmp_path) as one:
        assert (one.broken, one.is_new) == (f"{FILE}.broken-1", True)


def test_a_copy_of_a_register_leaves_no_trace(tmp_path: Path) -> None:
    (job,) = read_json(json.dumps([record("a")]), "x", ZONE)
    with Register.open(tmp_path) as one:
        one.put("s", {key_of(job): job}, T0)
        with Register.copy_of(tmp_path) as copy:
            assert list(copy.jobs("s").values()) == list(one.jobs("s").values())
            copy.drop("s", {key_of(job)})
        assert len(one.jobs("s")) == 1
    with Register.copy_of(tmp_path / "nothing") as empty:
        assert empty.is_new


def test_another_process_sees_what_was_noted(tmp_path: Path) -> None:
    (job,) = read_json(json.dumps([record("a")]), "x", ZONE)
    with Register.open(tmp_path) as one, Register.open(tmp_path) as other:
        before = other.version
        one.put("s", {"k": job}, T0)
        assert other.version != before
        assert [known.job for known in other.jobs("s").values()] == [job]


def test_old_jobs_are_forgotten(register: Register) -> None:
    jobs = read_json(json.dumps([record("a", end=T0 + 10), record("b", end=T0 + 99), record("c")]), "x", ZONE)
    register.put("s", {key_of(job): job for job in jobs}, T0)
    register.forget_before(T0 + 50)
    assert ids(register, "s") == ["b", "c"]


def test_many_old_jobs_are_forgotten_at_once(register: Register) -> None:
    """One by one, each would wait for the disk."""
    jobs = read_json(json.dumps([record(f"a{number}", end=T0 + 10) for number in range(100)]), "x", ZONE)
    register.put("s", {key_of(job): job for job in jobs}, T0)
    commits: list[str] = []
    register._connection.set_trace_callback(lambda text: commits.append(text) if text == "COMMIT" else None)
    version = register.version
    register.forget_before(T0 + 50)
    assert (ids(register, "s"), len(commits)) == ([], 1)
    assert register.version != version


def test_what_is_over_and_unchanged_is_not_written_again(register: Register) -> None:
    jobs = read_json(json.dumps([record("a", end=T0 + 10), record("b")]), "x", ZONE)
    told = {key_of(job): job for job in jobs}
    register.put("s", told, T0 + 20)
    register.put("s", told, T0 + 50)
    assert {one.job.id: one.seen for one in register.jobs("s").values()} == {"a": T0 + 20, "b": T0 + 50}


def test_many_faults_of_a_kind_are_one_line_for_the_log() -> None:
    rows = "".join(f"run-{number},n,soon\n" for number in range(280))
    with pytest.raises(ConfigError) as caught:
        read_csv(f"id,nodes,start\n{rows}", "jobs.csv", ZONE)
    assert in_one_line(caught.value).endswith("; 279 more like it: line 3, line 4, line 5, …")
