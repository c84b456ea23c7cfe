"""Job sources of cluster.yaml: what each type becomes."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cluster.advice import advice
from cluster.load import load_cluster, parse_cluster
from cluster.model import (
    ClassFrom,
    FileJobs,
    HttpJobs,
    InferredJobs,
    Job,
    KubernetesJobs,
    Outcome,
    Secret,
    SlurmJobs,
    Workload,
)
from cluster.sections.job_sources import is_loopback

HERE = Path(__file__).parent
START = datetime(2026, 3, 1, tzinfo=UTC)


def test_every_key_of_every_type() -> None:
    assert load_cluster(HERE / "rich.yaml").job_sources == (
        FileJobs("planned", str(HERE / "planned.csv")),
        HttpJobs("http", Secret(env="JOBS_TOKEN"), "127.0.0.1:9206", 2 * 86_400),
        SlurmJobs(
            "slurm",
            ("ssh", "login", "/opt/slurm/bin/sacct"),
            (),
            every=60,
            timeout=45,
            partitions=("gpu", "gpu-long"),
            class_from=ClassFrom.COMMENT,
            time_limit_is=Outcome.COMPLETED,
        ),
        SlurmJobs("files", files=(str(HERE / "sacct.json"), str(HERE / "squeue.json"))),
        KubernetesJobs(
            "kubernetes",
            ("training",),
            (Workload.PYTORCHJOB,),
            "team=llm",
            "example.org/model",
            str(HERE / "kube.yaml"),
            "prod",
            every=10,
            timeout=5,
        ),
        InferredJobs(least_nodes=4, least_rate=1_000_000_000, confirm=120, idle=900),
    )


def test_defaults_of_every_type() -> None:
    cluster = parse_cluster(
        """
        cluster: lab
        groups: {training: {role: training, prefixes: [10.20.0.0/16]}}
        job_sources:
          - {type: http, token: {file: token}}
          - {type: slurm}
          - {type: kubernetes}
          - {type: inferred}
        """
    )
    assert cluster.job_sources == (
        HttpJobs("http", Secret(file="token")),
        SlurmJobs("slurm"),
        KubernetesJobs("kubernetes"),
        InferredJobs(),
    )


def test_an_outcome_may_be_listed() -> None:
    assert load_cluster(HERE / "rich.yaml").jobs[-1].outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("outcome", "good"),
    [(Outcome.COMPLETED, True), (Outcome.UNKNOWN, True), (Outcome.FAILED, False), (Outcome.CANCELLED, False)],
)
def test_what_failed_or_was_cancelled_teaches_nothing(outcome: Outcome, good: bool) -> None:  # noqa: FBT001 - a column
    assert Job("a", "a", (), START, START, outcome).is_good is good


def test_who_tells_of_a_job_is_no_part_of_it() -> None:
    assert Job("a", "a", (), START, origin="slurm") == Job("a", "a", (), START, origin="http")


@pytest.mark.parametrize(
    ("listen", "expected"),
    [("127.0.0.1:9106", True), ("[::1]:9106", True), ("localhost:9106", True), ("0.0.0.0:9106", False)],
)
def test_loopback(listen: str, expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_loopback(listen) is expected


def test_listening_to_others_is_worth_a_warning() -> None:
    text = """
    cluster: lab
    groups: {training: {role: training, prefixes: [10.20.0.0/16]}}
    job_sources: [{type: http, token: {env: TOKEN}, listen: "10.60.0.5:9106"}]
    """
    told = [line for line in advice(parse_cluster(text)) if line.startswith("job_sources")]
    assert told == ["job_sources: http listens on 10.60.0.5:9106 without TLS: its token can be read on the way"]
