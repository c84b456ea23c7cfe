"""When each operation of a step runs, if some take longer: the step is replayed by its dependencies.

As in the what-if analysis of the paper (arXiv 2505.05713): a worker does one thing after the other; what it sends
begins once sender and receiver are there, a collective once all of its group are. Where a trace has sends that end
before their receivers begin, senders do not wait. From the trace come the time that computing takes, the time of each
transfer once all are there, and the short gaps between operations. So a worker that computes longer makes those wait
that depend on it, and no others.

All steps are replayed at once: [step] vectors go through one loop over the operations.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from app.errors import UserError
from bench.traces.trace_file import COMPUTES, EMBEDDING, GATHER, REDUCE, SENDS, Floats, Ints, Trace

_TOGETHER = 1e-6
"""Seconds: a batch of sends and receives begins in one instant."""

_BUFFERED = 0.01
"""Share of sends that end before their receiver begins, from which sends are buffered."""

_BARRIER_SHARE, _BARRIER_SPREAD = 0.25, 1e-3
"""Workers of a stage that begin an operation this much closer together than they ended the one before have met at a
barrier that the trace does not name."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What crosses the network together.

    Attributes:
        optype: of the sender.
        ops: positions in the trace, of all that take part; of a send: sender, receiver.
    """

    optype: str
    ops: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """A replay. Seconds since the step's begin.

    Attributes:
        begin, end: [transfer, step] of what crosses the network.
        op_end: [operation, step].
        length: [step].
    """

    begin: Floats
    end: Floats
    op_end: Floats
    length: Floats


class Replay:
    """The dependencies of a trace.

    Attributes:
        transfers: what crosses the network in each step.
        computes: [operation] whether it computes.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.transfers = tuple(_transfers(trace))
        self._is_buffered = _buffers(trace, self.transfers)
        self.computes = trace.ops.get_column("optype").is_in(COMPUTES).to_numpy()
        self._events = _events(trace)
        self._of_op = np.empty(trace.ops.height, np.int64)
        for number, ops in enumerate(self._events):
            self._of_op[list(ops)] = number
        ranks = trace.ops.get_column("rank").to_numpy()
        self._before = np.full(len(self._events), -1)
        for number, (one, other) in enumerate(pairwise(self._events), 1):
            if ranks[one[0]] == ranks[other[0]]:
                self._before[number] = number - 1
        self._waits_for = [self._starters(one) for one in self.transfers]
        self._took = np.array([self._time_of(one) for one in self._waits_for])
        self._took = self._took.reshape(-1, trace.steps)
        self._barriers, self._gap = self._gaps()
        self._order = self._sorted()

    def _starters(self, transfer: Transfer) -> list[int]:
        """Return the operations that must have begun for a transfer to begin."""
        is_send = transfer.optype in SENDS and self._is_buffered
        return [transfer.ops[0]] if is_send else [*transfer.ops]

    def _time_of(self, starters: list[int]) -> Floats:
        """Return [step] seconds that a transfer takes once all are there."""
        begin, end = self._trace.start[starters].max(axis=0), self._trace.end[starters].min(axis=0)
        return np.asarray(np.maximum(end - begin, 1e-6), np.float64)

    def _gaps(self) -> tuple[dict[int, Ints], Floats]:
        """Return for each event at a barrier the events before it that it waits for, and [event, step] seconds."""
        starts = np.array([self._trace.start[list(ops)].min(axis=0) for ops in self._events])
        ends = np.array([self._trace.end[list(ops)].max(axis=0) for ops in self._events])
        before = np.where((self._before >= 0)[:, None], ends[self._before], 0.0)
        gap = np.maximum(starts - before, 0.0)
        barriers: dict[int, Ints] = {}
        ops = self._trace.ops
        groups: dict[tuple[object, ...], list[int]] = {}
        for number, event in enumerate(self._events):
            row = ops.row(event[0], named=True)
            if self._before[number] >= 0 and row["optype"] not in {*COMPUTES, *SENDS, *SENDS.values()}:
                groups.setdefault((row["stage"], row["optype"], row["seq_id"], row["mc"]), []).append(number)
        for members in groups.values():
            apart, met = np.ptp(before[members], axis=0), np.ptp(starts[members], axis=0)
            if np.median(apart) > _BARRIER_SPREAD and np.median(met) < _BARRIER_SHARE * np.median(apart):
                last = before[members].max(axis=0)
                for member in members:
                    barriers[member] = self._before[members]
                    gap[member] = np.maximum(starts[member] - last, 0.0)
        return barriers, gap

    def _sorted(self) -> list[tuple[int, bool]]:
        """Return events in an order in which all that one waits for comes before it: its begin, then its end."""
        events = len(self._events)
        needs = [0] * (2 * events)
        feeds: list[list[int]] = [[] for _ in range(2 * events)]

        def link(cause: int, effect: int) -> None:
            feeds[cause].append(effect)
            needs[effect] += 1

        for number in range(events):
            link(number, events + number)
            before = self._barriers.get(number, self._before[number : number + 1])
            for one in before[before >= 0]:
                link(events + int(one), number)
        for starters, transfer in zip(self._waits_for, self.transfers, strict=True):
            for one in {int(self._of_op[op]) for op in starters}:
                for other in {int(self._of_op[op]) for op in transfer.ops} - {one}:
                    link(one, events + other)
        order = _topological(needs, feeds)
        if len(order) < 2 * events:
            raise UserError(
                f"{self._trace.name}: operations wait for each other in a circle", "are sends and receives complete?"
            )
        return [(one % events, one >= events) for one in order]

    def times(self, steps: Ints, extra: Floats | None = None, slower: Floats | None = None) -> Times:
        """Replay sampled steps.

        Args:
            steps: positions of sampled steps, as often as they are to run.
            extra: [operation, step] seconds that an operation takes longer.
            slower: [transfer, step] how many times as long a transfer takes.
        """
        trace, count = self._trace, len(steps)
        begin, end = np.zeros((len(self._events), count)), np.zeros((len(self._events), count))
        took = self._took[:, steps] * (1.0 if slower is None else slower)
        mine: list[list[int]] = [[] for _ in self._events]
        for number, transfer in enumerate(self.transfers):
            for op in transfer.ops:
                mine[self._of_op[op]].append(number)
        met = [np.unique(self._of_op[starters]) for starters in self._waits_for]
        lasted = (trace.end - trace.start)[:, steps] + (0.0 if extra is None else extra)
        gap = self._gap[:, steps]
        for number, is_end in self._order:
            if not is_end:
                before = self._barriers.get(number, self._before[number : number + 1])
                before = before[before >= 0]
                begin[number] = (end[before].max(axis=0) if len(before) else 0.0) + gap[number]
            elif mine[number]:
                done = [begin[met[one]].max(axis=0) + took[one] for one in mine[number]]
                end[number] = np.maximum(np.max(done, axis=0), begin[number])
            else:
                end[number] = begin[number] + lasted[list(self._events[number])].max(axis=0)
        first = np.array([begin[events].max(axis=0) for events in met]).reshape(-1, count)
        return Times(first, first + took, end[self._of_op], end.max(axis=0))


def _topological(needs: list[int], feeds: list[list[int]]) -> list[int]:
    """Return what can be ordered, causes before effects; `needs`: causes of each, `feeds`: its effects."""
    left, ready, order = list(needs), deque(one for one, count in enumerate(needs) if not count), list[int]()
    while ready:
        order.append(one := ready.popleft())
        for effect in feeds[one]:
            left[effect] -= 1
            if not left[effect]:
                ready.append(effect)
    return order


def _events(trace: Trace) -> list[tuple[int, ...]]:
    """Return the operations of each worker, one after the other; sends and receives of one batch together."""
    ranks = trace.ops.get_column("rank").to_numpy()
    is_batch = trace.ops.get_column("optype").is_in([*SENDS, *SENDS.values()]).to_numpy()
    events: list[tuple[int, ...]] = []
    for op, rank in enumerate(ranks):
        last = events[-1] if events else None
        if last and is_batch[op] and is_batch[last[0]] and ranks[last[0]] == rank:
            # In most steps: one in which a batch began raggedly is still the same program.
            apart = np.abs(trace.start[op] - trace.start[last[0]])
            if np.median(apart) < _TOGETHER:
                events[-1] = (*last, op)
                continue
        events.append((op,))
    return events


def _buffers(trace: Trace, transfers: tuple[Transfer, ...]) -> bool:
    """Whether senders do not wait for their receivers."""
    sends = np.array([one.ops for one in transfers if one.optype in SENDS], np.int64).reshape(-1, 2)
    early = trace.end[sends[:, 0]] < trace.start[sends[:, 1]] - _TOGETHER
    return bool(early.size and early.mean() > _BUFFERED)


def _transfers(trace: Trace) -> list[Transfer]:
    ops = trace.ops.with_row_index("op").rows(named=True)
    found: dict[tuple[object, ...], int] = {}
    groups: dict[tuple[object, ...], list[int]] = {}
    for one in ops:
        found[one["dp_rank"], one["stage"], one["optype"], one["seq_id"], one["mc"]] = one["op"]
        if one["optype"] in {REDUCE, GATHER}:
            groups.setdefault((one["optype"], one["stage"], one["seq_id"], one["mc"]), []).append(one["op"])
        elif one["optype"] == EMBEDDING:
            groups.setdefault((EMBEDDING, one["dp_rank"], one["seq_id"], one["mc"]), []).append(one["op"])
    result = [Transfer(str(key[0]), tuple(members)) for key, members in groups.items() if len(members) > 1]
    for one in ops:
        if (receives := SENDS.get(one["optype"])) is not None:
            # Modulo: with several chunks a worker, the last stage feeds the first one.
            stage = (one["stage"] + (1 if one["optype"] == "forward-send" else -1)) % trace.stages
            other = found.get((one["dp_rank"], stage, receives, one["seq_id"], one["mc"]))
            if other is not None:
                result.append(Transfer(one["optype"], (one["op"], other)))
    return result
