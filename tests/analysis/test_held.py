"""Held but silent, on constructed windows: who is held, since when, what it costs; and who is not."""

from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_network

import numpy as np
import polars as pl
import pytest

from analysis.detectors.rows import Rows, frame_of
from analysis.detectors.study import JobWindows
from analysis.detectors.training.held import HeldCarry, HeldStudy
from cluster.model import Cluster, DeclaredTransport, Group, GroupPair, Job, Node, Role, Transport
from store import schema
from store.schema import NodeState

T0 = 1_800_000_000 // 60 * 60
NODES = tuple(f"gpu-{number}" for number in range(1, 5))
CLUSTER = Cluster(
    name="held",
    groups=(Group("training", "Training", Role.TRAINING, (ip_network("10.20.0.0/16"),)),),
    nodes=tuple(Node(name, "training", (), gpus=8) for name in NODES),
    transport=(DeclaredTransport(GroupPair("training", "training"), Transport.TCP),),
)
JOB = Job("big", "llm", NODES, datetime.fromtimestamp(T0, UTC), user="ada", origin="slurm")
HOUR = 360
"""Windows."""


def windows(sent: np.ndarray, blind: np.ndarray | None = None, start: int = T0) -> JobWindows:
    nothing = np.zeros_like(sent)
    states = np.full(sent.shape, NodeState.OK) if blind is None else np.where(blind, NodeState.BLIND, NodeState.OK)
    found = (Rows(schema.BASELINE, {schema.STATE.name: states.ravel()}),)
    return JobWindows(start, 10, sent, nothing, nothing, nothing, np.ones((len(sent), 1), np.bool_), found=found)


def judged(
    seen: JobWindows, job: Job = JOB, cluster: Cluster = CLUSTER, *earlier: dict[str, object]
) -> tuple[HeldCarry, pl.DataFrame]:
    study = HeldStudy(cluster)
    carry, rows = study.judge(job, study.first(job, earlier, T0), seen)
    return carry, frame_of(rows) if rows else pl.DataFrame()


def working(count: int = HOUR) -> np.ndarray:
    return np.full((count, len(NODES)), 1e9)


def test_a_job_that_never_began_costs_from_its_start() -> None:
    rows = judged(windows(np.zeros((HOUR, 4))))[1]
    assert rows.height == 30, "a row a minute after half an hour"
    first, last = rows.row(0, named=True), rows.row(-1, named=True)
    assert (first["user"], first["silent_nodes"], first["never_sent"], first["node_names"]) == (
        "ada",
        4,
        4,
        "gpu-[1-4]",
    )
    assert first["silent_for"] == 1860
    assert rows["held_gpu_hours"].sum() == pytest.approx(32)
    assert rows["usd"].sum() == pytest.approx(32 * 30) == last["usd_so_far"]


def test_one_that_stops_among_others_costs_itself() -> None:
    sent = working(2 * HOUR)
    sent[HOUR:, 2] = 0
    rows = judged(windows(sent))[1]
    assert rows["window"][0] == T0 + 3600 + 1850
    assert set(rows.select("silent_nodes", "never_sent", "node_names").rows()) == {(1, 0, "gpu-3")}
    assert rows["held_gpu_hours"].sum() == pytest.approx(8)


@pytest.mark.parametrize(("each", "is_held"), [(99_000, True), (100_000, False)])
def test_what_goes_on_while_a_node_hangs_is_silence(each: int, *, is_held: bool) -> None:
    """Bytes a window: a mount is renewed, neighbours ask whether it is there."""
    sent = working(2 * HOUR)
    sent[HOUR:, 2] = each
    rows = judged(windows(sent))[1]
    assert rows.is_empty() is not is_held
    assert set(rows["node_names"]) == ({"gpu-3"} if is_held else set())


def test_in_pieces_as_at_once() -> None:
    sent = working(2 * HOUR)
    sent[:200, 1] = sent[300:, 2] = 0
    study = HeldStudy(CLUSTER)
    carry, parts = study.first(JOB, [], T0), []
    for begin in range(0, 2 * HOUR, 7):
        carry, rows = study.judge(JOB, carry, windows(sent[begin : begin + 7], start=T0 + begin * 10))
        parts += rows
    assert frame_of(parts).equals(judged(windows(sent))[1])


@pytest.mark.parametrize(
    "sent",
    [
        np.vstack([np.zeros((179, 4)), working()]),  # a slow start
        np.vstack([working(), np.zeros((179, 4)), working()]),  # a long pause
    ],
)
def test_silence_within_the_limit_is_none(sent: np.ndarray) -> None:
    assert judged(windows(sent))[1].is_empty()


def test_a_class_that_starts_slowly_or_pauses_long_is_known_after_a_run() -> None:
    slow = np.vstack([np.zeros((300, 4)), working()])
    pausing = np.vstack([working(), np.zeros((300, 4)), working()])
    for sent in (slow, pausing):
        carry, rows = judged(windows(sent))
        assert not rows.is_empty()
        memory = dict(HeldStudy(CLUSTER).remember(JOB, carry))
        assert judged(windows(sent), JOB, CLUSTER, memory)[1].is_empty()


def hung(hours: int) -> np.ndarray:
    """Return a run in which a node is silent for so long, and goes on."""
    sent = np.vstack([working(60), working(hours * HOUR), working(60)])
    sent[60 : 60 + hours * HOUR, 2] = 0
    return sent


@pytest.mark.parametrize("clean", [1, 5])
def test_a_hang_does_not_hide_the_next_longer_one(clean: int) -> None:
    memories: list[dict[str, object]] = []
    for hours in (*[0] * clean, 3, 5, 9):
        carry, rows = judged(windows(hung(hours)), JOB, CLUSTER, *memories)
        assert rows.is_empty() == (hours == 0), f"{hours} h"
        memories.insert(0, dict(HeldStudy(CLUSTER).remember(JOB, carry)))


def test_a_hang_in_the_first_run_is_forgotten_after_the_next() -> None:
    hang, clean = {"slowest": 9000.0, "gap": 18_000.0}, {"slowest": 0.0, "gap": 0.0}
    limits = [
        (carry.longest_start, carry.longest_gap)
        for memories in ([hang], [clean, hang], [hang, clean, hang], [{}, clean, clean])
        for carry in [HeldStudy(CLUSTER).first(JOB, memories, T0)]
    ]
    assert limits == [(18_000, 36_000), (1800, 1800), (18_000, 36_000), (1800, 1800)]


def test_who_cannot_be_judged_is_not() -> None:
    nothing = windows(np.zeros((HOUR, 4)))
    single = replace(JOB, nodes=NODES[:1])
    assert judged(windows(np.zeros((HOUR, 1))), single)[1].is_empty(), "one node talks to nobody"
    assert judged(nothing, replace(JOB, origin="inferred"))[1].is_empty(), "inferred jobs end where they are silent"
    others = replace(CLUSTER, groups=(replace(CLUSTER.groups[0], role=Role.CUSTOM),))
    assert judged(nothing, JOB, others)[1].is_empty(), "what such nodes send each other is not counted"
    unseen = replace(CLUSTER, transport=(DeclaredTransport(GroupPair("training", "training"), Transport.INFINIBAND),))
    assert judged(nothing, JOB, unseen)[1].is_empty()
    assert judged(windows(np.zeros((HOUR, 4)), np.ones((HOUR, 4), np.bool_)))[1].is_empty(), "blind is not silent"
