"""Traces of training jobs as flow records: times follow dependencies, bytes the model, and the truth says so."""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from app.errors import UserError
from bench.traces.faults import Fault, FaultKind
from bench.traces.layout import Model
from bench.traces.play import DATA, ENDS, PIPELINE, Played, play
from bench.traces.records import netflow, sflow
from bench.traces.replay import Replay
from bench.traces.trace_file import Trace, read_trace
from tests.bench.synthetic_trace import synthetic_trace

TRACES = Path(os.environ.get("CLUSTERFLOW_TRACES") or Path(__file__).parents[3] / "shared" / "traces")
"""Recorded jobs: no part of the repository."""
RECORDED = sorted(TRACES.glob("trace-*.parquet"))
SECONDS = 120.0


@pytest.fixture(scope="module", name="trace")
def trace_of_twelve() -> Trace:
    """Return a job of 3 replicas and 4 stages."""
    return synthetic_trace(replicas=3, stages=4)


def played(trace: Trace, *faults: Fault, seed: int = 1) -> Played:
    return play(trace, SECONDS, seed, faults)


@pytest.mark.parametrize("sizes", [(2, 2, 4), (4, 1, 4), (1, 4, 6), (3, 4, 2)])
def test_a_replay_without_faults_is_the_trace(sizes: tuple[int, int, int]) -> None:
    replicas, stages, micro_batches = sizes
    trace = synthetic_trace(replicas=replicas, stages=stages, micro_batches=micro_batches)
    times = Replay(trace).times(np.arange(trace.steps))
    assert times.length == pytest.approx(trace.end.max(axis=0), rel=0.02)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_jobs_replay_as_they_were(path: Path) -> None:
    trace = read_trace(path)
    times = Replay(trace).times(np.arange(trace.steps))
    assert times.length == pytest.approx(trace.end.max(axis=0), rel=0.002)


def test_who_depends_on_a_slow_worker_waits_and_the_others_do_not(trace: Trace) -> None:
    replay, steps = Replay(trace), np.arange(trace.steps)
    is_slow = (trace.ops["dp_rank"] == 0).to_numpy() & (trace.ops["stage"] == 1).to_numpy() & replay.computes
    extra = np.where(is_slow[:, None], trace.end - trace.start, 0.0)
    before, after = replay.times(steps), replay.times(steps, extra)
    assert (after.length > 1.2 * before.length).all()
    for number, transfer in enumerate(replay.transfers):
        later = after.begin[number] - before.begin[number]
        if transfer.optype in {"forward-send", "backward-send"} and trace.ops["dp_rank"][transfer.ops[0]] != 0:
            assert later == pytest.approx(0)
        elif transfer.optype == "grads-reduce-scatter":
            # It is the last of its stage that counts: of other stages some end a little before it.
            assert (later >= -1e-9).all()


def test_bytes_are_those_of_the_model(trace: Trace) -> None:
    one, model = played(trace), Model()
    whole = one.steps.filter(pl.col("end") < SECONDS)
    moved = one.transfers.filter(pl.col("end") < whole["end"].max()).group_by("src", "dst").agg(pl.sum("bytes"))
    sent = {(src, dst): volume / whole.height for src, dst, volume in moved.iter_rows()}
    # host-003 is replica 0 of stage 1; host-006 of stage 2; host-004 the next of the ring.
    assert sent[3, 6] == pytest.approx(8 * 2 * model.tokens * model.hidden, rel=1e-3)
    weights = 12 * model.hidden**2 * model.layers / 4
    assert sent[3, 4] == pytest.approx(2 * 2 * weights * 2 / 3, rel=1e-3)


def test_roles_and_pairs_are_told(trace: Trace) -> None:
    one = played(trace)
    kinds = {(a, b): kinds for a, b, kinds in one.pairs.iter_rows()}
    assert kinds["host-000", "host-001"] == [DATA]
    assert kinds["host-000", "host-003"] == [PIPELINE]
    assert kinds["host-000", "host-009"] == [ENDS]
    assert one.roles.row(5) == ("host-005", 1, 2)


def test_samples_add_up_and_lie_within_what_they_sample(trace: Trace) -> None:
    one = played(trace)
    drawn = sflow(one, 4096, seed=3)
    assert drawn["bytes"].sum() == pytest.approx(one.transfers["bytes"].sum(), rel=0.01)
    assert drawn["time"].is_sorted()
    first = one.transfers.filter(pl.col("src") == 3, pl.col("dst") == 6, pl.col("src_rail") == 0).sort("start")
    times = drawn.filter(pl.col("src") == "host-003", pl.col("dst") == "host-006", pl.col("src_rail") == 0)["time"]
    place = np.searchsorted(first["start"].to_numpy(), times.to_numpy(), side="right") - 1
    assert (times.to_numpy() <= first["end"].to_numpy()[place] + 0.006).all()


@pytest.mark.parametrize("timeout", [60.0, 10.0])
def test_flow_records_lose_no_byte_and_keep_the_timeout(trace: Trace, timeout: float) -> None:
    one = played(trace)
    records = netflow(one, timeout)
    assert records["bytes"].sum() == one.transfers["bytes"].sum()
    longest = (one.transfers["end"] - one.transfers["start"]).to_numpy().max()
    assert ((records["end"] - records["start"]) <= timeout + longest + 0.002).all()


def test_faults_show_where_they_lie(trace: Trace) -> None:
    clean = played(trace)
    slow = played(trace, Fault(FaultKind.SLOW, 60, worker=4, share=1.0))
    # The first stage of its replica is the last to compute: the gradients of the last micro-batch end there.
    assert slow.steps.filter(pl.col("begin") >= 60)["last"].mode().to_list() == ["host-001"]
    assert slow.steps.height < clean.steps.height
    assert slow.steps.filter(pl.col("end") < 55).equals(clean.steps.filter(pl.col("end") < 55))
    dead = played(trace, Fault(FaultKind.DEAD_RAIL, 60, worker=4, rail=2)).transfers
    on_it = ((pl.col("src") == 4) & (pl.col("src_rail") == 2)) | ((pl.col("dst") == 4) & (pl.col("dst_rail") == 2))
    assert dead.filter(on_it, pl.col("start") < 60).height
    assert not dead.filter(on_it, pl.col("start") > 65).height
    half = played(trace, Fault(FaultKind.HALF_LINK, worker=4, rail=2)).transfers.with_columns(
        took=pl.col("end") - pl.col("start")
    )
    took = half.filter(pl.col("src") == 3, pl.col("dst") == 4).group_by("src_rail").agg(pl.col("took").median())
    by_rail = dict(took.iter_rows())
    assert by_rail[2] == pytest.approx(2 * by_rail[1])


def test_a_pause_and_a_hang_are_silent(trace: Trace) -> None:
    paused = played(trace, Fault(FaultKind.PAUSE, 60, seconds=10))
    assert (paused.steps["end"] - paused.steps["begin"]).to_numpy().max() > 10
    hung = played(trace, Fault(FaultKind.HANG, 60, worker=4))
    assert hung.transfers["end"].to_numpy().max() < 65
    assert hung.steps["end"].max() == SECONDS


def test_errors_are_one_line(tmp_path: Path, trace: Trace) -> None:
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"none")
    with pytest.raises(UserError, match=r"bad\.parquet: cannot be read"):
        read_trace(bad)
    pl.DataFrame({"rank": [1]}).write_parquet(bad)
    with pytest.raises(UserError, match="no column dp_rank"):
        read_trace(bad)
    with pytest.raises(UserError, match="a rate of 0"):
        sflow(played(trace), 0, 1)
