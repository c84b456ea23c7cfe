"""Roles from traffic alone, on jobs of many sizes: who belongs together, what pairs do, which stage a node is in."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.detectors.roles.pair_roles import PairKind, Roles, roles_of
from analysis.detectors.roles.peers import Blame, Verdict, judge
from analysis.detectors.roles.step_times import Steps, steps_of
from analysis.detectors.roles.told import tell
from analysis.detectors.roles.traffic import Traffic, members, traffic_of
from bench.traces.faults import Fault, FaultKind
from bench.traces.layout import Model
from bench.traces.play import Played, play
from bench.traces.records import sflow
from bench.traces.trace_file import Trace, read_trace
from store import schema
from tests.bench.synthetic_trace import synthetic_trace

TRACES = Path(os.environ.get("CLUSTERFLOW_TRACES") or Path(__file__).parents[3] / "shared" / "traces")
RATE = 32768
SIZES = [(2, 2, 4), (4, 4, 8), (3, 6, 6), (6, 2, 12), (8, 1, 4), (2, 4, 2)]
"""Replicas, stages, micro-batches."""


def recorded(path: Path) -> Callable[[], Trace]:
    """Return how to read a recorded job."""
    return lambda: read_trace(path)


def made(replicas: int, stages: int, micro_batches: int) -> Callable[[], Trace]:
    """Return how to make a job."""
    return lambda: synthetic_trace(replicas=replicas, stages=stages, micro_batches=micro_batches)


JOBS = [pytest.param(made(*SIZES[0]), id="small")]
JOBS += [pytest.param(made(*sizes), id="-".join(map(str, sizes)), marks=pytest.mark.thorough) for sizes in SIZES[1:]]
JOBS += [
    pytest.param(recorded(path), id=path.stem, marks=pytest.mark.thorough)
    for path in sorted(TRACES.glob("trace-*.parquet"))
]


def seen(trace: Trace, seconds: float = 120, rate: int = RATE) -> tuple[Played, Traffic]:
    """Play a job and sample it."""
    played = play(trace, seconds, 5)
    return played, traffic_of(sflow(played, rate, 6))


def told(traffic: Traffic) -> tuple[Steps, Roles]:
    """Return what is told of a job that has steps."""
    steps = steps_of(traffic)
    assert steps is not None
    return steps, roles_of(traffic, steps)


@pytest.mark.parametrize("job", JOBS)
def test_members_pairs_stages_and_steps_are_told(job: Callable[[], Trace]) -> None:
    played, traffic = seen(job())
    assert len(set(members(traffic))) == 1
    steps, roles = told(traffic)
    named = zip(roles.pairs.low, roles.pairs.high, roles.pairs.kind, strict=True)
    kinds = {(traffic.nodes[low], traffic.nodes[high]): kind for low, high, kind in named}
    truth = {(a, b): "pipeline" if "pipeline" in does else does[0] for a, b, does in played.pairs.iter_rows()}
    assert kinds == truth
    assert roles.stage.tolist() == played.roles["stage"].to_list()
    assert roles.sure == 1
    # The first step began before the first burst ended, and the last was cut off.
    whole = played.steps.filter(pl.col("end") < played.end)
    lengths = (whole["end"] - whole["begin"]).to_numpy()[1:]
    assert len(steps.length) >= len(lengths) - 1
    assert np.median(steps.length) == pytest.approx(np.median(lengths), rel=0.005)


def test_groups_and_chains_are_those_of_the_job() -> None:
    _, traffic = seen(synthetic_trace(replicas=4, stages=3))
    _, roles = told(traffic)
    assert roles.shape == "ring"
    assert roles.group.tolist() == [0] * 4 + [4] * 4 + [8] * 4
    assert roles.chain.tolist() == [0, 1, 2, 3] * 3


def test_two_jobs_side_by_side_stay_apart() -> None:
    _, one = seen(synthetic_trace(replicas=2, stages=2))
    _, other = seen(synthetic_trace(replicas=4, stages=2, forward=0.07))
    frames = [
        pl.DataFrame({
            "time": traffic.time, "bytes": traffic.sent,
            **{side: [f"{name}-{traffic.nodes[place]}" for place in places]
               for side, places in (("src", traffic.src), ("dst", traffic.dst))},
        })
        for name, traffic in (("a", one), ("b", other))
    ]  # fmt: skip
    # Somebody asks both of them for their metrics.
    asked = pl.DataFrame({
        "time": np.arange(0, 120, 1.0), "bytes": np.full(120, 1500.0), "src": ["a-host-000", "b-host-000"] * 60,
        "dst": ["monitor"] * 120,
    })  # fmt: skip
    both = traffic_of(pl.concat([*frames, asked.select(frames[0].columns)]))
    labels = members(both)
    found = {tuple(both.nodes[node] for node in np.flatnonzero(labels == one)) for one in set(labels.tolist())}
    assert {len(one) for one in found} == {1, 4, 8}


def test_what_has_no_bursts_has_no_steps() -> None:
    rng = np.random.default_rng(1)
    steady = pl.DataFrame({
        "time": np.sort(rng.random(5000) * 100), "src": ["a", "b"] * 2500, "dst": ["b", "a"] * 2500,
        "bytes": np.full(5000, 1e6),
    })  # fmt: skip
    assert steps_of(traffic_of(steady)) is None
    assert steps_of(traffic_of(steady.clear())) is None


def test_datagrams_of_samples_are_no_steps() -> None:
    """A switch that samples little sends what it has five times a second; each datagram looks like a burst."""
    rng = np.random.default_rng(2)
    time = np.repeat(np.arange(600) * 0.2, rng.integers(1, 9, 600)) + 1e-3
    ends = pl.Series(rng.integers(0, 2, len(time)))
    steady = pl.DataFrame({"time": time, "bytes": np.full(len(time), 1e6)}).with_columns(
        pl.when(ends == 0).then(pl.lit("a")).otherwise(pl.lit("b")).alias("src"),
        pl.when(ends == 0).then(pl.lit("b")).otherwise(pl.lit("a")).alias("dst"),
    )
    assert steps_of(traffic_of(steady)) is None


@pytest.mark.parametrize("nodes", [2, 3, 4, 9])
def test_a_ring_that_sends_all_through_its_steps_is_data_parallel(nodes: int) -> None:
    """No pipeline is a circle. Two nodes are one both ways: that may be either."""
    rng = np.random.default_rng(1)
    time = np.sort(np.concatenate([step * 2.5 + rng.random(60) * 1.5 for step in range(240)]))
    src = rng.integers(0, nodes, len(time))
    ring = pl.DataFrame({
        "time": time, "src": [f"n{node}" for node in src], "dst": [f"n{(node + 1) % nodes}" for node in src],
        "bytes": np.full(len(time), 1e6),
    })  # fmt: skip
    told = tell(traffic_of(ring), 600.0)
    assert told.roles is not None
    assert told.matrix()[schema.ROLE_BYTES.name].sum() == len(time) * 1e6
    if nodes > 2:
        assert set(told.roles.pairs.kind) == {PairKind.DATA}
        assert set(told.roles.stage) == {0}
        assert told.roles.shape == "ring"


def test_stages_that_are_unknown_are_stored() -> None:
    """A circle of small messages, beside a pair that exchanges as a step ends: its begin is unknown."""
    rng = np.random.default_rng(1)
    circle = np.sort(np.concatenate([step * 2.5 + rng.random(60) * 1.5 for step in range(240)]))
    pair = np.arange(240) * 2.5 + 1.49
    src = [*rng.integers(0, 4, len(circle)), *([4] * len(pair))]
    traffic = pl.DataFrame({
        "time": np.concatenate([circle, pair]), "src": [f"n{node}" for node in src],
        "dst": [f"n{(node + 1) % 4 if node < 4 else 5}" for node in src], "bytes": np.full(len(src), 1e6),
    }).sort("time")  # fmt: skip
    told = tell(traffic_of(traffic), 600.0)
    assert told.roles is not None
    assert set(told.roles.stage) == {-1}
    assert told.matrix()[schema.ROLE_BYTES.name].sum() == len(src) * 1e6


def test_a_node_is_judged_by_its_peers_and_a_long_stage_is_nobodys_fault() -> None:
    trace = synthetic_trace(replicas=3, stages=4, last=1.6)
    assert [one.blame for one in verdicts(trace)] == [Blame.STAGE]
    for worker in (1, 4):
        first, *_ = verdicts(trace, Fault(FaultKind.SLOW, worker=worker, share=1.0))
        assert (first.blame, first.nodes) == (Blame.NODE, (f"host-{worker:03d}",))


def test_rails_links_and_silence_are_named() -> None:
    trace = synthetic_trace(replicas=3, stages=4)
    assert not verdicts(trace)
    dead, *_ = verdicts(trace, Fault(FaultKind.DEAD_RAIL, worker=4, rail=2))
    assert (dead.blame, dead.nodes, dead.rail) == (Blame.RAIL, ("host-004",), 2)
    half, *_ = verdicts(trace, Fault(FaultKind.HALF_LINK, worker=4, rail=2))
    assert (half.blame, half.rail, "host-004" in half.nodes) == (Blame.LINK, 2, True)
    for kind in (FaultKind.PAUSE, FaultKind.HANG):
        assert verdicts(trace, Fault(kind, 60, worker=4))[0].blame is Blame.JOB


def verdicts(trace: Trace, *faults: Fault) -> list[Verdict]:
    """Return what is said of a job, from two minutes at 1:4096."""
    played = play(trace, 120, 5, faults, model=Model(hidden=4096, layers=32))
    traffic = traffic_of(sflow(played, 4096, 6))
    return judge(traffic, *told(traffic), played.end)
