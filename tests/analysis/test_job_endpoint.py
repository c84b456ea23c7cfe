"""The endpoint that hooks post to, over a real socket; and the hooks themselves."""

import http.client
import json
import os
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from analysis.jobs.register import Register
from analysis.jobs.sources.http import MOST_BYTES, HttpSource, _Handler
from app.errors import ClusterflowError, UserError
from app.log import Log
from cluster.model import HttpJobs, Secret

REPOSITORY = Path(__file__).resolve().parents[2]
HOOKS = REPOSITORY / "provisioning/hooks"
TOKEN = "correct-horse-battery"
NOW = 1_772_352_000.0
"""2026-03-01T08:00:00Z"""


def source_of(settings: HttpJobs, register: Register, clock: Callable[[], float] = lambda: NOW) -> HttpSource:
    return HttpSource(settings, register, ZoneInfo("Europe/Amsterdam"), Log(), keep=7 * 86_400, clock=clock)


@dataclass
class Endpoint:
    """One that listens; `now` is the time that its clock tells."""

    folder: Path
    settings: HttpJobs
    now: float = NOW
    source: HttpSource = field(init=False)
    register: Register = field(init=False)

    def start(self) -> None:
        self.register = Register.open(self.folder)
        self.source = source_of(self.settings, self.register, lambda: self.now)
        self.source.start()

    def stop(self) -> None:
        self.source.stop()
        self.register.__exit__()

    def ask(
        self, method: str, path: str, body: object = None, *, token: str | None = TOKEN, **headers: str
    ) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.source.port, timeout=5)
        bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request(method, path, data, {**bearer, **headers})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer

    def job(self) -> dict[str, Any]:
        (job,) = self.ask("GET", "/jobs")[1]["jobs"]
        assert isinstance(job, dict)
        return job


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    settings = HttpJobs("http", Secret(file=str(tmp_path / "token")), "127.0.0.1:0", longest=86_400)
    one = Endpoint(tmp_path / "state", settings)
    one.start()
    yield one
    one.stop()


def test_a_job_from_start_to_stop(endpoint: Endpoint) -> None:
    start = {"id": "4711", "class": "llama-70b", "nodes": "gpu-[01-03]"}
    status, answer = endpoint.ask("POST", "/jobs/start", start)
    assert status == 201
    assert answer["job"] == endpoint.job() == {
        "id": "4711",
        "class": "llama-70b",
        "nodes": ["gpu-01", "gpu-02", "gpu-03"],
        "start": "2026-03-01T08:00:00Z",
        "end": None,
        "outcome": "unknown",
    }  # fmt: skip
    endpoint.now += 3600
    status, answer = endpoint.ask("POST", "/jobs/stop", {"id": "4711", "outcome": "failed"})
    assert (status, answer["job"]["end"], answer["job"]["outcome"]) == (200, "2026-03-01T09:00:00Z", "failed")


def test_saying_it_twice_changes_nothing(endpoint: Endpoint) -> None:
    start = {"id": "a", "nodes": ["n1"], "start": NOW - 60}
    assert endpoint.ask("POST", "/jobs/start", start)[0] == 201
    first = endpoint.job()
    endpoint.now += 30
    assert endpoint.ask("POST", "/jobs/start", start)[0] == 200
    assert endpoint.ask("POST", "/jobs/start", {"id": "a", "nodes": ["n1"]})[0] == 200
    assert endpoint.job() == first
    stop = {"id": "a", "outcome": "completed"}
    assert endpoint.ask("POST", "/jobs/stop", stop)[0] == 200
    ended = endpoint.job()
    endpoint.now += 30
    assert endpoint.ask("POST", "/jobs/stop", {**stop, "outcome": "failed"})[0] == 200
    assert endpoint.ask("POST", "/jobs/start", start)[0] == 200, "a start that was on its way for long"
    assert endpoint.job() == ended


def test_an_outcome_may_come_later(endpoint: Endpoint) -> None:
    endpoint.ask("POST", "/jobs/start", {"id": "a", "nodes": ["n1"], "start": NOW - 60})
    endpoint.ask("POST", "/jobs/stop", {"id": "a"})
    assert endpoint.ask("POST", "/jobs/stop", {"id": "a", "outcome": "cancelled"})[1]["job"]["outcome"] == "cancelled"


def test_each_node_may_tell_of_itself(endpoint: Endpoint) -> None:
    """A job of 64 nodes whose hooks all run at once."""
    threads = [
        threading.Thread(target=endpoint.ask, args=("POST", "/jobs/start", {"id": "a", "nodes": [f"n{number}"]}))
        for number in range(64)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(endpoint.job()["nodes"]) == sorted(f"n{number}" for number in range(64))


def test_the_same_id_again_is_another_run(endpoint: Endpoint) -> None:
    for hour in range(2):
        endpoint.now = NOW + 3600 * hour
        assert endpoint.ask("POST", "/jobs/start", {"id": "a", "nodes": ["n1"]})[0] == 201
        endpoint.now += 600
        endpoint.ask("POST", "/jobs/stop", {"id": "a", "outcome": "cancelled" if hour == 0 else "completed"})
    jobs = endpoint.ask("GET", "/jobs")[1]["jobs"]
    assert [(job["start"], job["outcome"]) for job in jobs] == [
        ("2026-03-01T09:00:00Z", "completed"),
        ("2026-03-01T08:00:00Z", "cancelled"),
    ]


def test_a_job_that_fails_in_its_first_second_has_ended(endpoint: Endpoint) -> None:
    endpoint.ask("POST", "/jobs/start", {"id": "a", "nodes": ["n1"]})
    assert endpoint.ask("POST", "/jobs/stop", {"id": "a", "outcome": "failed"})[0] == 200
    assert endpoint.job()["end"] == "2026-03-01T08:00:01Z"


def test_a_restart_keeps_jobs(endpoint: Endpoint) -> None:
    endpoint.ask("POST", "/jobs/start", {"id": "a", "nodes": ["n1"]})
    before = endpoint.job()
    endpoint.stop()
    endpoint.start()
    assert endpoint.job() == before


def test_a_job_that_nobody_stops_ends_after_the_longest_time(endpoint: Endpoint) -> None:
    endpoint.ask("POST", "/jobs/start", {"id": "a", "nodes": ["n1"]})
    endpoint.source.refresh(NOW + 86_399)
    assert endpoint.job()["end"] is None
    endpoint.source.refresh(NOW + 86_400)
    assert endpoint.job()["end"] == "2026-03-02T08:00:00Z"


def test_times_are_the_sites(endpoint: Endpoint) -> None:
    endpoint.ask("POST", "/jobs/start", {"id": "a", "nodes": ["n1"], "start": "2026-03-01 08:30"})
    assert endpoint.job()["start"] == "2026-03-01T07:30:00Z"


@pytest.mark.parametrize("token", [None, "wrong", TOKEN[:-1], f"{TOKEN}x", "", "täken"])
def test_without_the_token_nothing_is_told(endpoint: Endpoint, token: str | None) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode().decode("latin-1")}
    for method, path in (("GET", "/jobs"), ("POST", "/jobs/start"), ("GET", "/nothing")):
        status, answer = endpoint.ask(method, path, {"id": "a", "nodes": "n"}, token=None, **headers)
        assert (status, answer["error"]) == (401, "expected the header Authorization: Bearer TOKEN")
    assert endpoint.ask("GET", "/jobs")[1] == {"jobs": []}


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("/jobs/start", b"{", 400, "expected JSON: Expecting"),
        ("/jobs/start", b"\xff", 400, "expected JSON: not UTF-8"),
        ("/jobs/start", b"[" * 100_000, 400, "expected JSON: not UTF-8, or nested too deeply"),
        ("/jobs/start", [], 400, "expected a mapping with the keys id, class, nodes, start"),
        ("/jobs/start", {"id": "a"}, 400, "nodes: missing: expected names of nodes"),
        ("/jobs/start", {"id": "a b", "nodes": "n"}, 400, "id: a b: expected a job id of letters"),
        ("/jobs/start", {"id": "a", "nodes": "n[1-"}, 400, "nodes: n[1-: expected brackets that match"),
        ("/jobs/start", {"id": "a", "nodes": "n", "begin": 1}, 400, "begin: unknown key"),
        ("/jobs/start", {"id": "a", "nodes": "n", "start": "soon"}, 400, "start: soon: expected a time"),
        ("/jobs/start", {"id": "a", "nodes": "n", "start": NOW + 900}, 400, "start: 2026-03-01T08:15:00Z: expected"),
        ("/jobs/stop", {"id": "a"}, 404, "id: a: expected a job that runs (it was never started)"),
        ("/jobs/stop", {"id": "a", "outcome": "fine"}, 400, "outcome: fine: expected completed, failed"),
        ("/jobs/pause", {"id": "a"}, 404, "/jobs/pause: expected /jobs, /jobs/start or /jobs/stop"),
        ("/jobs", {"id": "a"}, 405, "POST: expected GET"),
        ("/jobs/start", b" " * (MOST_BYTES + 1), 413, "expected at most 1,048,576 bytes"),
    ],
)
def test_what_is_refused(endpoint: Endpoint, path: str, body: object, status: int, error: str) -> None:
    found, answer = endpoint.ask("POST", path, body)
    assert found == status
    assert answer["error"].startswith(error)
    assert endpoint.ask("GET", "/jobs") == (200, {"jobs": []})


def test_a_body_without_its_length_is_refused(endpoint: Endpoint) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.source.port, timeout=5)
    connection.putrequest("POST", "/jobs/start")
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.endheaders()
    assert connection.getresponse().status == 411


def test_a_short_token_is_the_users_to_mend_and_a_taken_port_may_pass(endpoint: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("hi")
    with pytest.raises(UserError, match="the token has 2 characters"):
        source_of(HttpJobs("http", Secret(file=str(tmp_path / "short"))), endpoint.register).start()
    again = HttpJobs("http", endpoint.settings.token, f"127.0.0.1:{endpoint.source.port}")
    with pytest.raises(ClusterflowError, match="cannot listen there") as caught:
        source_of(again, endpoint.register).start()
    assert caught.value.exit_code == 1
    with pytest.raises(UserError, match="NOT_THERE is not set"):
        source_of(HttpJobs("http", Secret(env="NOT_THERE")), endpoint.register).start()


def test_a_token_of_the_environment_may_end_with_a_newline(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERFLOW_JOBS_TOKEN", f"{TOKEN}\n")
    endpoint.source.stop()
    settings = HttpJobs("http", Secret(env="CLUSTERFLOW_JOBS_TOKEN"), "127.0.0.1:0")
    endpoint.source = source_of(settings, endpoint.register)
    endpoint.source.start()
    assert endpoint.ask("GET", "/jobs")[0] == 200


def test_a_late_word_about_an_earlier_run_adds_nothing_to_the_one_under_way(endpoint: Endpoint) -> None:
    first = {"id": "a", "nodes": ["n1"], "start": NOW - 3600}
    endpoint.ask("POST", "/jobs/start", first)
    endpoint.ask("POST", "/jobs/stop", {"id": "a", "end": NOW - 1800})
    endpoint.ask("POST", "/jobs/start", {"id": "a", "nodes": ["n2"], "start": NOW - 600})
    status, answer = endpoint.ask("POST", "/jobs/start", first)
    assert (status, answer["job"]["nodes"], answer["job"]["end"]) == (200, ["n1"], "2026-03-01T07:30:00Z")
    early = {"id": "a", "nodes": ["n3"], "start": NOW - 605}
    assert endpoint.ask("POST", "/jobs/start", early)[1]["job"]["nodes"] == ["n2", "n3"], "a clock that is behind"
    jobs = endpoint.ask("GET", "/jobs")[1]["jobs"]
    assert [(job["nodes"], job["end"]) for job in jobs] == [(["n2", "n3"], None), (["n1"], "2026-03-01T07:30:00Z")]


def test_with_a_node_that_joins_late_another_run_begins(endpoint: Endpoint) -> None:
    """In the run before it would be a node that sent nothing for as long as the job ran."""
    for nodes, start in (["n1"], NOW - 3600), (["n2"], NOW - 3400), (["n3"], NOW - 600), (["n3"], NOW - 600):
        endpoint.ask("POST", "/jobs/start", {"id": "a", "nodes": nodes, "start": start})
    endpoint.ask("POST", "/jobs/stop", {"id": "a", "end": NOW})
    jobs = endpoint.ask("GET", "/jobs")[1]["jobs"]
    assert [(job["nodes"], job["start"], job["end"]) for job in jobs] == [
        (["n1", "n2", "n3"], "2026-03-01T07:50:00Z", "2026-03-01T08:00:00Z"),
        (["n1", "n2"], "2026-03-01T07:00:00Z", "2026-03-01T07:50:00Z"),
    ]


def test_a_start_before_what_the_store_keeps_is_refused(endpoint: Endpoint) -> None:
    """Its windows would be gone through from 1973 on. A hook that tries again for a job that is known may."""
    old = {"id": "a", "nodes": ["n1"], "start": 100_000_000}
    status, answer = endpoint.ask("POST", "/jobs/start", old)
    assert (status, answer["error"]) == (
        400,
        "start: 1973-03-03T09:46:40Z: expected a time within the last 7d, which the store keeps (store.retention.raw)",
    )
    known = {"id": "b", "nodes": ["n1"], "start": NOW}
    assert endpoint.ask("POST", "/jobs/start", known)[0] == 201
    endpoint.now += 8 * 86_400
    assert endpoint.ask("POST", "/jobs/start", known)[0] == 200


def test_what_fails_for_a_reason_of_our_own_is_answered_and_told(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hook must learn that its word is not on disk, and somebody has to free some."""

    def put(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(endpoint.register, "put", put)
        for number in range(3):
            status, answer = endpoint.ask("POST", "/jobs/start", {"id": f"a{number}", "nodes": ["n1"]})
            assert (status, answer["error"]) == (500, "not done: see the log")
    assert endpoint.ask("POST", "/jobs/start", {"id": "a", "nodes": ["n1"]})[0] == 201
    told = [line for line in capsys.readouterr().err.splitlines() if "job_request_failed" in line]
    assert len(told) == 1
    assert 'source=http why="OperationalError: database or disk is full"' in told[0]


def test_a_length_of_thousands_of_digits_is_too_large(endpoint: Endpoint) -> None:
    length = {"Content-Length": "9" * 5000}
    assert endpoint.ask("POST", "/jobs/start", b"{}", **length)[0] == 413


def test_whoever_is_refused_can_send_the_rest_and_read_why(endpoint: Endpoint) -> None:
    """Closed in the middle of a body, the connection would be reset, and the answer lost."""
    with socket.create_connection(("127.0.0.1", endpoint.source.port), timeout=5) as connection:
        head = f"POST /jobs/start HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {2 * MOST_BYTES}\r\n\r\n"
        connection.sendall(head.encode() + b" " * MOST_BYTES)
        time.sleep(0.3)
        connection.sendall(b" " * (MOST_BYTES - 1))
        connection.sendall(b" ")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_an_error_outside_of_a_request_is_told_but_for_clients_that_went_away(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails_with(error: Exception) -> None:
        def fail(*_: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(_Handler, "_send", fail)
            with pytest.raises(http.client.RemoteDisconnected):
                endpoint.ask("GET", "/jobs")

    fails_with(ConnectionResetError("gone"))
    fails_with(ValueError("no such header"))
    told = [line for line in capsys.readouterr().err.splitlines() if "job_request_failed" in line]
    assert len(told) == 1
    assert 'why="ValueError: no such header"' in told[0]


# -- hooks -------------------------------------------------------------------------------------------


def run_hook(endpoint: Endpoint, name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a hook as slurmctld or the kubelet do: with nothing in the environment but what they give."""
    environment = {
        "CLUSTERFLOW_JOBS_URL": f"http://127.0.0.1:{endpoint.source.port}",
        "CLUSTERFLOW_JOBS_TOKEN_FILE": str(endpoint.settings.token.file),
        **variables,
    }
    command = ["/bin/bash", str(HOOKS / name), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


SLURM = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": 'llama "70b"', "SLURM_JOB_NODELIST": "gpu-[01-02]"}


@pytest.mark.parametrize(
    ("code", "outcome"), [("0:0", "completed"), ("1:0", "failed"), ("0:15", "cancelled"), ("0:9", "failed")]
)
def test_slurms_prolog_and_epilog(endpoint: Endpoint, code: str, outcome: str) -> None:
    assert run_hook(endpoint, "slurm-prolog.sh", **SLURM, SLURM_JOB_START_TIME=str(int(NOW) - 20)).returncode == 0
    job = endpoint.job()
    assert (job["id"], job["class"], job["nodes"]) == ("4711", "llama__70b_", ["gpu-01", "gpu-02"])
    assert job["start"] == "2026-03-01T07:59:40Z"
    assert run_hook(endpoint, "slurm-epilog.sh", **SLURM, SLURM_JOB_EXIT_CODE2=code).returncode == 0
    assert endpoint.job()["outcome"] == outcome


def test_a_task_of_a_slurm_array(endpoint: Endpoint) -> None:
    task = {"SLURM_ARRAY_JOB_ID": "4700", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_START_TIME": str(int(NOW))}
    run_hook(endpoint, "slurm-prolog.sh", **SLURM, **task)
    assert endpoint.job()["id"] == "4700_3"


@pytest.mark.parametrize("hook", ["slurm-prolog.sh", "slurm-epilog.sh"])
def test_no_job_fails_because_nobody_listens(endpoint: Endpoint, hook: str) -> None:
    """A prolog that fails makes Slurm requeue the job."""
    gone = {"CLUSTERFLOW_JOBS_URL": "http://127.0.0.1:9", "CLUSTERFLOW_JOBS_TIMEOUT": "1"}
    assert run_hook(endpoint, hook, **SLURM, **gone).returncode == 0
    assert run_hook(endpoint, hook, **SLURM, CLUSTERFLOW_JOBS_TOKEN_FILE="/nothing").returncode == 0
    assert run_hook(endpoint, hook).returncode == 0


@pytest.mark.parametrize(("command", "outcome", "code"), [("exit 0", "completed", 0), ("exit 7", "failed", 7)])
def test_a_command_in_a_pod(endpoint: Endpoint, command: str, outcome: str, code: int) -> None:
    pod = {"CLUSTERFLOW_JOB": "llama-x7k", "CLUSTERFLOW_JOB_CLASS": "llama", "PATH": os.environ["PATH"]}
    for index in ("1", "0"):
        where = {"NODE_NAME": f"gpu-{index}", "JOB_COMPLETION_INDEX": index}
        finished = run_hook(endpoint, "kubernetes-run.sh", "sh", "-c", command, **pod, **where)
        assert finished.returncode == code
    job = endpoint.job()
    assert (job["id"], job["class"], sorted(job["nodes"])) == ("llama-x7k", "llama", ["gpu-0", "gpu-1"])
    assert job["outcome"] == outcome
