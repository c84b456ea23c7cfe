"""Kubernetes: the official client against a small server that answers the API's paths with documented objects."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from analysis.jobs.job_source import AskedSource
from analysis.jobs.register import Register, key_of
from analysis.jobs.sources.kubernetes import KubernetesApi
from cluster.model import Job, KubernetesJobs, Workload

T0 = 1_772_352_000
"""2026-03-01T08:00:00Z"""
JOBS = "/apis/batch/v1/jobs"
PYTORCHJOBS = "/apis/kubeflow.org/v1/pytorchjobs"
PODS = "/api/v1/pods"


class Api:
    """An API server: `lists` are its objects by path, `refusals` a status by path."""

    def __init__(self) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {JOBS: [], PODS: []}
        self.refusals: dict[str, int] = {}
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                api.asked.append(self.path)
                api.tokens.add(self.headers.get("Authorization"))
                status = api.refusals.get(parts.path, 200 if parts.path in api.lists else 404)
                body = api.page(parts.path, parse_qs(parts.query)) if status == 200 else {"kind": "Status"}
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def page(self, path: str, query: dict[str, list[str]]) -> dict[str, Any]:
        """A list's page of two, and where the next one begins; pods by the label that is asked for."""
        items = self.lists[path]
        (selector,) = query.get("labelSelector", [""])
        if selector and "=" in selector:
            key, _, value = selector.partition("=")
            items = [one for one in items if one["metadata"].get("labels", {}).get(key) == value]
        elif selector:
            items = [one for one in items if selector in one["metadata"].get("labels", {})]
        begin = int(query.get("continue", ["0"])[0])
        rest = {"continue": str(begin + 2)} if begin + 2 < len(items) else {}
        return {"kind": "List", "apiVersion": "v1", "metadata": rest, "items": items[begin : begin + 2]}


def at(seconds: int) -> str:
    return f"2026-03-01T{8 + seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def job(name: str, *, condition: str = "", done: int = 0, **meta: Any) -> dict[str, Any]:
    """A batch/v1 Job as the API shows it."""
    conditions = [{"type": condition, "status": "True", "lastTransitionTime": at(done)}] if condition else []
    completion = {"completionTime": at(done)} if condition == "Complete" else {}
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "creationTimestamp": at(0), **meta},
        "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed"},
        "status": {"startTime": at(1), "active": 2, "conditions": conditions, **completion},
    }


def pytorchjob(name: str, *conditions: str, done: int = 0) -> dict[str, Any]:
    """A kubeflow.org/v1 PyTorchJob; the last of its conditions is the one that is true."""
    states = [
        {"type": one, "status": "True" if one == conditions[-1] else "False", "lastTransitionTime": at(done)}
        for one in conditions
    ]
    completion = {"completionTime": at(done)} if conditions[-1] == "Succeeded" else {}
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}},
        "status": {"startTime": at(1), "conditions": states, **completion},
    }


def pod(owner: str, node: str | None, start: int, phase: str = "Running", label: str = "job-name") -> dict[str, Any]:
    spec = {} if node is None else {"nodeName": node}
    started = {} if node is None else {"startTime": at(start)}
    return {
        "metadata": {
            "name": f"{owner}-{node}",
            "namespace": "ml",
            "labels": {label: owner},
            "ownerReferences": [{"kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}],
        },
        "spec": spec,
        "status": {"phase": phase, **started},
    }


@pytest.fixture
def api() -> Iterator[Api]:
    one = Api()
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture
def register(tmp_path: Path) -> Iterator[Register]:
    with Register.open(tmp_path / "state") as one:
        yield one


@pytest.fixture
def settings(api: Api, tmp_path: Path) -> KubernetesJobs:
    """A kubeconfig with two contexts, of which the one that is asked for bears a token."""
    path = tmp_path / "kubeconfig"
    address = f"http://127.0.0.1:{api.server.server_address[1]}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "elsewhere",
        "clusters": [
            {"name": "here", "cluster": {"server": address}},
            {"name": "elsewhere", "cluster": {"server": "http://127.0.0.1:9"}},
        ],
        "users": [{"name": "monitor", "user": {"token": "t0ken"}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "here", "user": "monitor"}},
            {"name": "elsewhere", "context": {"cluster": "elsewhere", "user": "monitor"}},
        ],
    }
    path.write_text(yaml.safe_dump(config))
    return KubernetesJobs("kubernetes", kubeconfig=str(path), context="here", timeout=5)


def refresh(settings: KubernetesJobs, register: Register, now: float = T0 + 7200) -> str:
    return AskedSource("kubernetes", KubernetesApi(settings), register, 30).refresh(now)


def known(register: Register) -> list[Job]:
    found = [one.job for one in register.jobs("kubernetes").values()]
    return sorted(found, key=lambda one: (one.start, one.id))


def told(register: Register) -> list[tuple[str, tuple[str, ...], float, float | None, str]]:
    return [
        (
            one.id,
            one.nodes,
            one.start.timestamp() - T0,
            None if one.end is None else one.end.timestamp() - T0,
            one.outcome.value,
        )
        for one in known(register)
    ]


def test_jobs_with_their_nodes_and_ends(api: Api, settings: KubernetesJobs, register: Register) -> None:
    api.lists[JOBS] = [
        job("running"),
        job("done", condition="Complete", done=3600),
        job("broken", condition="Failed", done=1800),
        job("waiting"),
        job("suspended", condition="Suspended", done=10),
    ]
    api.lists[PODS] = [
        pod("running", "gpu-02", 90),
        pod("running", "gpu-01", 60),
        pod("done", "gpu-03", 100, "Succeeded"),
        pod("done", "gpu-04", 101, "Succeeded"),
        pod("broken", "gpu-05", 102, "Failed"),
        pod("waiting", None, 0, "Pending"),
        pod("waiting", "gpu-06", 0, "Pending"),
    ]
    assert refresh(settings, register) == ""
    assert told(register) == [
        ("ml.running", ("gpu-01", "gpu-02"), 60, None, "unknown"),
        ("ml.done", ("gpu-03", "gpu-04"), 100, 3600, "completed"),
        ("ml.broken", ("gpu-05",), 102, 1800, "failed"),
    ]
    assert api.tokens == {"Bearer t0ken"}


def test_pytorchjobs(api: Api, settings: KubernetesJobs, register: Register) -> None:
    label = "training.kubeflow.org/job-name"
    api.lists[PYTORCHJOBS] = [
        pytorchjob("llama", "Created", "Running"),
        pytorchjob("bert", "Created", "Running", "Succeeded", done=900),
        pytorchjob("resnet", "Created", "Running", "Restarting", "Failed", done=901),
    ]
    api.lists[PODS] = [
        pod("llama", "gpu-01", 60, label=label),
        pod("bert", "gpu-02", 61, "Succeeded", label=label),
        pod("resnet", "gpu-03", 62, "Failed", label=label),
    ]
    assert refresh(settings, register) == ""
    assert told(register) == [
        ("ml.llama", ("gpu-01",), 60, None, "unknown"),
        ("ml.bert", ("gpu-02",), 61, 900, "completed"),
        ("ml.resnet", ("gpu-03",), 62, 901, "failed"),
    ]


def test_a_cluster_without_kubeflow_has_jobs_all_the_same(
    api: Api, settings: KubernetesJobs, register: Register
) -> None:
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-01", 60)]
    assert refresh(settings, register) == ""
    assert [one.id for one in known(register)] == ["ml.a"]


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"labels": {"clusterflow/job-class": "llama-70b"}}, "llama-70b"),
        ({"ownerReferences": [{"kind": "CronJob", "name": "nightly", "uid": "u"}]}, "nightly"),
        ({"generateName": "sweep-"}, "sweep"),
        ({}, "sweep-x7k2p"),
    ],
)
def test_classes(api: Api, settings: KubernetesJobs, register: Register, meta: dict[str, Any], expected: str) -> None:
    api.lists[JOBS], api.lists[PODS] = [job("sweep-x7k2p", **meta)], [pod("sweep-x7k2p", "gpu-01", 60)]
    refresh(settings, register)
    assert known(register)[0].job_class == expected


def test_long_names_that_differ_at_their_end_are_two_jobs(
    api: Api, settings: KubernetesJobs, register: Register
) -> None:
    """Under one id the second would end the first."""
    long = "llama-70b-pretrain-on-the-web-of-2026-in-eight-stages-number"
    api.lists[JOBS] = [job(f"{long}-{end}") for end in "ab"]
    api.lists[PODS] = [pod(f"{long}-{end}", "gpu-01", 60) for end in "ab"]
    refresh(settings, register)
    first, second = (one.id for one in known(register))
    assert first != second
    assert len(first) == 63
    assert first.startswith(f"ml.{long[:40]}")


def test_the_jobs_of_a_job_set_are_one(api: Api, settings: KubernetesJobs, register: Register) -> None:
    """JobSet makes a Job for each of its replicas, here on two racks."""
    owner = {"ownerReferences": [{"kind": "JobSet", "name": "llama", "uid": "uid-set"}]}
    api.lists[JOBS] = [job("llama-rack-0", **owner), job("llama-rack-1", **owner)]
    api.lists[PODS] = [pod("llama-rack-0", "gpu-01", 61), pod("llama-rack-1", "gpu-02", 60)]
    refresh(settings, register)
    assert told(register) == [("ml.llama", ("gpu-01", "gpu-02"), 60, None, "unknown")]
    api.lists[JOBS] = [job("llama-rack-0", condition="Complete", done=600, **owner), job("llama-rack-1", **owner)]
    refresh(settings, register)
    assert known(register)[0].end is None
    api.lists[JOBS][1] = job("llama-rack-1", condition="Failed", done=700, **owner)
    refresh(settings, register)
    assert told(register) == [("ml.llama", ("gpu-01", "gpu-02"), 60, 700, "failed")]


def test_a_job_keeps_its_start_and_nodes_when_its_pods_are_gone(
    api: Api, settings: KubernetesJobs, register: Register
) -> None:
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-01", 60), pod("a", "gpu-02", 61)]
    refresh(settings, register)
    api.lists[PODS] = [pod("a", "gpu-01", 60, "Failed"), pod("a", "gpu-03", 300), pod("a", "gpu-02", 61)]
    refresh(settings, register)
    assert told(register) == [("ml.a", ("gpu-02", "gpu-03"), 60, None, "unknown")], "a pod was replaced"
    api.lists[JOBS], api.lists[PODS] = [job("a", condition="Complete", done=900)], []
    refresh(settings, register)
    assert told(register) == [("ml.a", ("gpu-02", "gpu-03"), 60, 900, "completed")]


def leaving(one: dict[str, Any]) -> dict[str, Any]:
    return one | {"metadata": one["metadata"] | {"deletionTimestamp": at(900)}}


@pytest.mark.parametrize(
    ("second", "joins"),
    [
        ([pod("a", "gpu-01", 60), pod("a", "gpu-03", 900)], 900),
        ([pod("a", "gpu-01", 60), pod("a", "gpu-02", 61), pod("a", "gpu-03", 600)], 870),
    ],
    ids=["moved", "scaled up, its image pulled for long"],
)
def test_with_a_node_that_joins_another_run_begins(
    api: Api, settings: KubernetesJobs, register: Register, second: list[dict[str, Any]], joins: int
) -> None:
    """In the run before it would be a node that sent nothing for as long as the job ran."""
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-01", 60), pod("a", "gpu-02", 61)]
    refresh(settings, register, T0 + 870)
    api.lists[PODS] = second
    nodes = tuple(one["spec"]["nodeName"] for one in second)
    runs = [("ml.a", ("gpu-01", "gpu-02"), 60, joins, "unknown"), ("ml.a", nodes, joins, None, "unknown")]
    for now in (T0 + 930, T0 + 960):
        refresh(settings, register, now)
        assert told(register) == runs
    api.lists[JOBS] = [job("a", condition="Complete", done=1800)]
    refresh(settings, register)
    assert told(register) == [runs[0], (*runs[1][:3], 1800, "completed")]


def test_a_pod_that_is_being_deleted_works_no_more(api: Api, settings: KubernetesJobs, register: Register) -> None:
    """That of a lost node stays so until somebody removes the node; the job goes on without it."""
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-01", 60), leaving(pod("a", "gpu-02", 61))]
    refresh(settings, register)
    assert told(register) == [("ml.a", ("gpu-01",), 60, None, "unknown")]


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_a_job_that_is_over_keeps_nodes_whose_pods_are_cleaned_up(
    api: Api, settings: KubernetesJobs, register: Register, condition: str
) -> None:
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-01", 60), pod("a", "gpu-02", 61)]
    refresh(settings, register)
    api.lists[JOBS], api.lists[PODS] = [job("a", condition=condition, done=900)], [pod("a", "gpu-01", 60, "Succeeded")]
    refresh(settings, register)
    assert [one.nodes for one in known(register)] == [("gpu-01", "gpu-02")]


@pytest.mark.parametrize("fetched", [200, 3000])
def test_nodes_that_fetched_the_data_do_not_train(
    api: Api, settings: KubernetesJobs, register: Register, fetched: int
) -> None:
    """A TrainJob's JobSet begins the trainer when its initializers are complete."""
    owner: dict[str, Any] = {"ownerReferences": [{"kind": "JobSet", "name": "a", "uid": "uid-set"}]}
    fetch, train = job("a-fetch", condition="Complete", done=fetched, **owner), job("a-node", **owner)
    api.lists[JOBS], api.lists[PODS] = [job("a-fetch", **owner)], [pod("a-fetch", "gpu-01", 60)]
    refresh(settings, register, T0 + fetched)
    api.lists[JOBS] = [fetch, train]
    api.lists[PODS] = [
        pod("a-fetch", "gpu-01", 60, "Succeeded"),
        pod("a-node", "gpu-02", fetched + 5),
        pod("a-node", "gpu-03", fetched + 6),
    ]
    for _ in range(2):
        refresh(settings, register, T0 + fetched + 30)
        begun = 60 if fetched == 200 else fetched + 5
        assert told(register)[-1] == ("ml.a", ("gpu-02", "gpu-03"), begun, None, "unknown")


def test_a_job_that_is_suspended_ends_and_is_another_run_when_it_goes_on(
    api: Api, settings: KubernetesJobs, register: Register
) -> None:
    """Kueue preempts so: the pods are deleted, others get the nodes, and the Job stays."""
    first, second = ("ml.a", ("gpu-01",), 60, 600, "cancelled"), ("ml.a", ("gpu-02",), 900, None, "unknown")
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-01", 60)]
    refresh(settings, register)
    api.lists[JOBS], api.lists[PODS] = [job("a", condition="Suspended", done=600)], []
    for _ in range(2):
        refresh(settings, register)
        assert told(register) == [first]
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-02", 0, "Pending")]
    del api.lists[PODS][0]["status"]["startTime"]
    refresh(settings, register)
    assert told(register) == [first], "no pod of it runs yet"
    api.lists[PODS] = [pod("a", "gpu-02", 900)]
    for _ in range(2):
        refresh(settings, register)
        assert told(register) == [first, second]
    api.lists[JOBS], api.lists[PODS] = [job("a", condition="Suspended", done=1200)], []
    refresh(settings, register)
    assert told(register) == [first, (*second[:3], 1200, "cancelled")]
    api.lists[JOBS], api.lists[PODS] = [job("a", condition="Complete", done=1800)], [pod("a", "gpu-01", 1500)]
    refresh(settings, register)
    assert told(register)[2:] == [("ml.a", ("gpu-01",), 1500, 1800, "completed")]


def test_a_job_that_is_deleted_ends_when_it_was_last_seen(
    api: Api, settings: KubernetesJobs, register: Register
) -> None:
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-01", 60)]
    one = AskedSource("kubernetes", KubernetesApi(settings), register, 30)
    one.refresh(T0 + 600)
    api.lists[JOBS], api.lists[PODS] = [], []
    one.refresh(T0 + 630)
    assert told(register) == [("ml.a", ("gpu-01",), 60, 600, "unknown")]


@pytest.mark.parametrize("first_pod", [60, 300], ids=["its first pod runs", "its first pod was replaced"])
def test_a_register_that_was_made_anew_goes_on_with_the_job(
    api: Api, settings: KubernetesJobs, register: Register, first_pod: int
) -> None:
    """The store does not know the uid: there the job is known by its name and start."""
    begun = Job("ml.a", "a", ("gpu-01",), datetime.fromtimestamp(T0 + 60, UTC))
    register.put("kubernetes", {key_of(begun): begun}, T0 + 7000)
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-01", first_pod)]
    refresh(settings, register)
    assert told(register) == [("ml.a", ("gpu-01",), 60, None, "unknown")]
    assert list(register.jobs("kubernetes")) == ["uid-a"]


def test_another_job_of_the_same_name_is_another_run(api: Api, settings: KubernetesJobs, register: Register) -> None:
    begun = Job("ml.a", "a", ("gpu-01",), datetime.fromtimestamp(T0 - 600, UTC))
    register.put("kubernetes", {key_of(begun): begun}, T0 - 60)
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-01", 60)]
    refresh(settings, register)
    assert told(register) == [
        ("ml.a", ("gpu-01",), -600, -60, "unknown"),
        ("ml.a", ("gpu-01",), 60, None, "unknown"),
    ]


def test_namespaces_selectors_and_pages(api: Api, settings: KubernetesJobs, register: Register) -> None:
    label = {"labels": {"team": "llm"}}
    api.lists = {
        "/apis/batch/v1/namespaces/ml/jobs": [job(f"a{number}", **label) for number in range(5)] + [job("other")],
        "/api/v1/namespaces/ml/pods": [pod(f"a{number}", f"gpu-{number}", 60) for number in range(5)],
    }
    chosen = replace(settings, namespaces=("ml",), selector="team=llm", workloads=(Workload.JOB,))
    assert refresh(chosen, register) == ""
    assert [one.id for one in known(register)] == [f"ml.a{number}" for number in range(5)]
    assert not any("pytorchjobs" in path for path in api.asked)


def test_an_api_server_that_refuses_or_is_away_leaves_what_was_known(
    api: Api, settings: KubernetesJobs, register: Register
) -> None:
    api.lists[JOBS], api.lists[PODS] = [job("a")], [pod("a", "gpu-01", 60)]
    one = AskedSource("kubernetes", KubernetesApi(settings), register, 30)
    assert one.refresh(T0 + 600) == ""
    api.refusals[PODS] = 403
    assert one.refresh(T0 + 630) == "pods: the API server answers 403 Forbidden: allow the service account to list pods"
    api.refusals = {JOBS: 500}
    assert one.refresh(T0 + 660).startswith("jobs: the API server answers 500")
    elsewhere = replace(settings, context="elsewhere")
    assert refresh(elsewhere, register).startswith("jobs: no answer:")
    assert refresh(replace(settings, context="nowhere"), register).startswith("no kubeconfig:")
    assert told(register) == [("ml.a", ("gpu-01",), 60, None, "unknown")]
    api.refusals = {}
    assert one.refresh(T0 + 690) == ""
