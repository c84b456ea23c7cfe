"""Nodes that several jobs hold: which of a job's nodes are compared, window by window."""

from datetime import UTC, datetime

import numpy as np
import pytest

from analysis.jobs.hostlist import expand
from analysis.jobs.shared_nodes import apart, sharing
from cluster.model import Job

T0 = 1_760_000_000
STARTS = T0 + np.arange(6) * 10


def job(name: str, nodes: str, start: float = 0, end: float | None = 3600) -> Job:
    begin, stop = (None if at is None else datetime.fromtimestamp(T0 + at, UTC) for at in (start, end))
    assert begin is not None
    return Job(name, "llm", tuple(expand(nodes)), begin, stop)


@pytest.mark.parametrize(
    ("others", "compared"),
    [
        pytest.param([("n[1-4]",)], "n[5-9]", id="those that it has for itself"),
        pytest.param([("n[1-7]",)], "n[1-7]", id="too few of its own"),
        pytest.param([("n[1-9]",)], "n[1-9]", id="all shared alike, as where two sources know one job"),
        pytest.param([("n[0-9]",), ("n[1-3]",)], "n[4-9]", id="beside a job that holds the whole cluster"),
        pytest.param([("n[1-5]",), ("n[3-9]",)], "n[6-9]", id="the largest part"),
    ],
)
def test_nodes_are_compared_where_the_same_jobs_hold_them(others: list[tuple[str]], compared: str) -> None:
    own = job("own", "n[1-9]")
    found = apart(own, [job(f"other-{number}", *one) for number, one in enumerate(others)], STARTS, 10)
    assert [[node for node, away in zip(own.nodes, row, strict=True) if not away] for row in found] == [
        expand(compared)
    ] * len(STARTS)


def test_they_are_compared_again_once_the_other_job_is_over() -> None:
    found = apart(job("own", "n[1-9]"), [job("debug", "n[1-2]", 15, 40)], STARTS, 10)
    assert found[:, 0].tolist() == [False, True, True, True, False, False]
    assert not found[:, 2:].any()


def test_jobs_one_after_the_other_share_nothing_nor_does_one_with_itself() -> None:
    first, second, aside = job("first", "n[1-4]", end=95), job("second", "n[3-9]", 95), job("aside", "m[1-3]")
    assert sharing([first, second, aside, job("second", "n[3-9]", 50)]) == {
        ("first", T0): [job("second", "n[3-9]", 50)],
        ("second", T0 + 50): [first],
    }
