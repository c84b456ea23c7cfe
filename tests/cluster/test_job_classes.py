"""What `job_classes` says of checkpoints and gradients, and what holds where it says nothing."""

from pathlib import Path

import pytest

from cluster.load import load_cluster, parse_cluster
from cluster.model import ALL_NODES, CheckpointMode, CheckpointPlan, Cluster, JobClass

SMALL = "cluster: lab\ngroups: {a: {role: custom}}\n"


@pytest.fixture(scope="module")
def rich() -> Cluster:
    return load_cluster(Path(__file__).parent / "rich.yaml")


def test_every_key(rich: Cluster) -> None:
    plan = CheckpointPlan(CheckpointMode.SCHEDULED, 1200, 90, 180, 980_000_000_000, ALL_NODES, 0.8)
    assert rich.job_class("llm") == JobClass("llm", 70_000_000_000, 4.0, plan)
    assert rich.job_class("vision").checkpoint == CheckpointPlan(CheckpointMode.IRREGULAR, size=21_000_000_000, nodes=1)


def test_a_class_that_is_not_listed_is_learnt(rich: Cluster) -> None:
    assert rich.job_class("small") == JobClass("small")
    assert rich.job_class("unheard-of") == JobClass("unheard-of")
    assert JobClass("x").checkpoint.mode is CheckpointMode.LEARN


def test_gradients_of_a_step(rich: Cluster) -> None:
    assert rich.job_class("llm").step_bytes == 280_000_000_000
    assert rich.job_class("small").step_bytes is None


@pytest.mark.parametrize(
    ("written", "parameters"),
    [("70B", 70 * 10**9), ("70e9", 70 * 10**9), ("1.5T", 15 * 10**11), ("125 M", 125 * 10**6), ("7000", 7000)],
)
def test_numbers_of_parameters(written: str, parameters: int) -> None:
    text = f"{SMALL}job_classes: {{a: {{parameters: {written}}}}}\n"
    assert parse_cluster(text).job_class("a").parameters == parameters


@pytest.mark.parametrize(("every", "tolerance"), [("1h", 300), ("10m", 150), ("1m", 15)])
def test_tolerance_by_default(every: str, tolerance: int) -> None:
    plan = parse_cluster(f"{SMALL}job_classes: {{a: {{checkpoint: {{every: {every}}}}}}}\n").job_class("a").checkpoint
    assert (plan.mode, plan.tolerance) == (CheckpointMode.SCHEDULED, tolerance)
