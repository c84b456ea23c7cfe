"""A trace, looped over a time, with faults: what crosses which rail when, and the truth about it.

Sampled steps follow each other in a random order, each as often as the others, with the variation that they really
have. A step begins when all workers have ended the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from bench.traces.faults import Fault, FaultKind
from bench.traces.layout import RAILS, Lanes, Model, host_name, lanes_of
from bench.traces.replay import Replay, Times, Transfer
from bench.traces.trace_file import EMBEDDING, GATHER, REDUCE, Floats, Ints, Trace

DATA, PIPELINE, ENDS = "data", "pipeline", "ends"
"""Kinds of pairs: of one stage; neighbours in the pipeline; first and last stage, which share the embedding."""

_KINDS = {REDUCE: DATA, GATHER: DATA, EMBEDDING: ENDS}
_NEVER = 1e9


@dataclass(frozen=True, slots=True)
class Played:
    """What was played.

    Attributes:
        transfers: a row a rail: start, end (epoch seconds), src, dst (hosts), src_rail, dst_rail, bytes.
        steps: a row a step: begin, end (epoch seconds), last (the host that ended last before the gradients were
            exchanged), trace_step (position).
        pairs: a row a pair of hosts: a, b, kinds.
        roles: a row a host: host, stage, dp_rank.
        begin, end: epoch seconds.
    """

    transfers: pl.DataFrame
    steps: pl.DataFrame
    pairs: pl.DataFrame
    roles: pl.DataFrame
    begin: float
    end: float


def play(  # noqa: PLR0917 - what to play, for how long
    trace: Trace,
    seconds: float,
    seed: int,
    faults: Sequence[Fault] = (),
    model: Model | None = None,
    begin: float = 0.0,
) -> Played:
    """Play a trace for some seconds."""
    replay, rng = Replay(trace), np.random.default_rng(seed)
    lanes = lanes_of(trace, replay.transfers, model or Model())
    usual = float(trace.end.max(axis=0).min())
    rounds = int(seconds / usual / trace.steps) + 2
    order = np.concatenate([rng.permutation(trace.steps) for _ in range(rounds)])
    starts, times = _timed(trace, replay, faults, order)
    count = int(np.searchsorted(starts, seconds))
    lasted = Times(times.begin[:, :count], times.end[:, :count], times.op_end[:, :count], times.length[:count])
    moved = _moved(lanes, lasted, starts[:count], faults, replay.transfers)
    moved = moved.filter(pl.col("start") < seconds).with_columns(pl.col("start", "end") + begin)
    ends = np.minimum(starts[:count] + lasted.length, seconds)
    steps = pl.DataFrame(
        {
            "begin": starts[:count] + begin,
            "end": ends + begin,
            "last": _last(trace, replay, lasted),
            "trace_step": order[:count],
        }
    )
    return Played(moved, steps, _pairs(lanes, replay), _roles(trace), begin, begin + seconds)


def _timed(trace: Trace, replay: Replay, faults: Sequence[Fault], order: Ints) -> tuple[Floats, Times]:
    """Return [step] begins, and the replay. Which steps a fault meets depends on how long those before it took."""
    worker, first = trace.worker_of_op(), _computes_first(trace, replay)
    lasted = trace.end - trace.start
    met = [np.zeros(len(order), np.bool_) for _ in faults]
    # Each fault that begins moves only what comes after: as many rounds as there are faults settle all.
    for _ in range(2 * len(faults) + 1):
        extra = np.zeros((trace.ops.height, len(order)))
        slower = np.ones((len(replay.transfers), len(order)))
        for fault, steps in zip(faults, met, strict=True):
            _lay(fault, steps, extra, slower, worker, first, replay, lasted[:, order])
        times = replay.times(order, extra, slower)
        starts = np.concatenate([[0.0], np.cumsum(times.length)[:-1]])
        again = [_meets(fault, starts, times.length) for fault in faults]
        if all(np.array_equal(one, other) for one, other in zip(met, again, strict=True)):
            break
        met = again
    return starts, times


def _meets(fault: Fault, starts: Floats, length: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if fault.kind in {FaultKind.PAUSE, FaultKind.HANG}:
        result = np.zeros(len(starts), np.bool_)
        result[min(int(np.searchsorted(starts, fault.begin)), len(starts) - 1)] = True
        return result
    return np.asarray((starts >= fault.begin) & (starts < fault.end) & (length > 0))


def _lay(  # noqa: PLR0917 - the arrays that a fault changes
    fault: Fault,
    steps: np.ndarray[tuple[int], np.dtype[np.bool_]],
    extra: Floats,
    slower: Floats,
    worker: Ints,
    first: Ints,
    replay: Replay,
    lasted: Floats,
) -> None:
    at = np.flatnonzero(steps)
    computes = np.flatnonzero((worker == fault.worker) & replay.computes)
    if fault.kind is FaultKind.SLOW:
        extra[np.ix_(computes, at)] += fault.share * lasted[np.ix_(computes, at)]
    elif fault.kind is FaultKind.HANG:
        # In the middle of what it computes.
        extra[computes[len(computes) // 2], at] += _NEVER
    elif fault.kind is FaultKind.PAUSE:
        # The first passes of the first stage: all others wait for them.
        extra[np.ix_(first, at)] += fault.seconds
    else:
        # A transfer takes until its slowest rail is done; the bytes of a dead one take the others.
        times = 2.0 if fault.kind is FaultKind.HALF_LINK else RAILS / (RAILS - 1)
        for number, transfer in enumerate(replay.transfers):
            if fault.worker in worker[list(transfer.ops)]:
                slower[number, at] *= times


def _computes_first(trace: Trace, replay: Replay) -> Ints:
    """Return the operations with which the first stage begins to compute."""
    stage = trace.ops.get_column("stage").to_numpy()
    computes = np.flatnonzero(replay.computes & (stage == stage.min()))
    return np.asarray(computes[np.unique(trace.worker_of_op()[computes], return_index=True)[1]], np.int64)


def _moved(
    lanes: Lanes, times: Times, starts: Floats, faults: Sequence[Fault], transfers: tuple[Transfer, ...]
) -> pl.DataFrame:
    """Return the transfers of all steps, a row a rail."""
    count, steps = len(lanes.transfer), len(starts)
    begin = (times.begin[lanes.transfer] + starts).ravel()
    length = (times.end - times.begin)[lanes.transfer].ravel()
    src, dst, rail = (np.repeat(one, steps) for one in (lanes.src, lanes.dst, lanes.rail))
    src_rail, dst_rail = rail.copy(), rail.copy()
    at = np.tile(starts, count)
    every = np.array([one.optype in _KINDS for one in transfers])[lanes.transfer]
    in_ring = np.repeat(every, steps)
    for fault in faults:
        host = fault.worker
        on = (at >= fault.begin) & (at < fault.end)
        if fault.kind is FaultKind.HALF_LINK:
            # The rails beside it are done in half of that time. In a ring, one slow link slows all links of its rail.
            is_its = ((lanes.src == host) | (lanes.dst == host)) & (lanes.rail == fault.rail)
            touched = np.isin(lanes.transfer, lanes.transfer[is_its])
            near = np.repeat(touched, steps) & on
            hit = near & (rail == fault.rail) & (in_ring | (src == host) | (dst == host))
            length = np.where(near & ~hit, length / 2, length)
        elif fault.kind is FaultKind.DEAD_RAIL:
            for ends, rails in ((src, src_rail), (dst, dst_rail)):
                dead = on & (ends == host) & (rails == fault.rail)
                # One after the other of the host's other rails.
                others = np.delete(np.arange(RAILS), fault.rail)
                rails[dead] = others[np.arange(int(dead.sum())) % len(others)]
    return pl.DataFrame({
        "start": begin, "end": begin + np.maximum(length, 1e-6), "src": src.astype(np.int32),
        "dst": dst.astype(np.int32), "src_rail": src_rail.astype(np.int8), "dst_rail": dst_rail.astype(np.int8),
        "bytes": np.repeat(lanes.sent, steps).astype(np.int64),
    })  # fmt: skip


def _last(trace: Trace, replay: Replay, times: Times) -> list[str]:
    """Return [step] the host whose computing ended last."""
    worker = trace.worker_of_op()
    ended = np.where(replay.computes[:, None], times.op_end, -np.inf)
    return [host_name(int(worker[one])) for one in ended.argmax(axis=0)]


def _pairs(lanes: Lanes, replay: Replay) -> pl.DataFrame:
    kinds = np.array([_KINDS.get(one.optype, PIPELINE) for one in replay.transfers])[lanes.transfer]
    ends = {"a": np.minimum(lanes.src, lanes.dst), "b": np.maximum(lanes.src, lanes.dst)}
    frame = pl.DataFrame(ends | {"kinds": kinds})
    return (
        frame.group_by("a", "b")
        .agg(pl.col("kinds").unique().sort())
        .sort("a", "b")
        .with_columns(pl.col("a", "b").map_elements(host_name, pl.String))
    )


def _roles(trace: Trace) -> pl.DataFrame:
    workers = trace.workers
    names = pl.Series("host", map(host_name, range(workers.height)), pl.String)
    return workers.select(names, "stage", "dp_rank")
