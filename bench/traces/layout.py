"""Where the workers of a trace stand, and how many bytes each operation moves: the trace says neither.

**Hosts.** Each worker, by rank, is a host: host-000, host-001, ... The trace leaves tensor parallelism out, so that a
worker stands for the 8 GPUs of a host. Its bytes spread evenly over the host's rails.

**Bytes**, of a dense transformer in 16 bits, Megatron-LM's way (arXiv 2104.04473, 2205.05198):

    send between stages     2 x tokens x hidden
    weights of a layer      12 x hidden^2
    reduce-scatter, gather  2 x weights of the stage x (d - 1) / d      of each of d workers, to the next in the ring
    embedding               2 x vocabulary x hidden                     each way, between first and last stage
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench.traces.replay import Transfer
from bench.traces.trace_file import EMBEDDING, GATHER, REDUCE, Floats, Ints, Trace

RAILS = 8
"""Of each host."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained: by default 64 billion weights in 80 layers, micro-batches of 8,192 tokens."""

    hidden: int = 8192
    layers: int = 80
    tokens: int = 8192
    vocabulary: int = 128_000

    ELEMENT: ClassVar[int] = 2
    """Bytes."""

    def sent(self, optype: str, members: int, stages: int) -> float:
        """Return the bytes that a worker sends in an operation of so many members."""
        if optype in {REDUCE, GATHER}:
            weights = 12 * self.hidden**2 * self.layers / stages
            return self.ELEMENT * weights * (members - 1) / members
        if optype == EMBEDDING:
            return self.ELEMENT * self.vocabulary * self.hidden * 2 * (members - 1) / members
        return float(self.ELEMENT * self.tokens * self.hidden)


def host_name(number: int) -> str:
    """Return the name of a host of a played trace."""
    return f"host-{number:03d}"


@dataclass(frozen=True, slots=True)
class Lanes:
    """Who sends how much to whom in one step, a row a rail: equally long arrays.

    Attributes:
        transfer: position in the replay's transfers.
        src, dst: workers.
        rail: of both.
        sent: bytes.
    """

    transfer: Ints
    src: Ints
    dst: Ints
    rail: Ints
    sent: Floats


def lanes_of(trace: Trace, transfers: tuple[Transfer, ...], model: Model) -> Lanes:
    """Return what crosses the network between hosts in a step."""
    worker = trace.worker_of_op().tolist()
    place = [*trace.workers.select("stage", "dp_rank").iter_rows()]
    rows: list[tuple[int, int, int, float]] = []
    for number, transfer in enumerate(transfers):
        members = [worker[op] for op in transfer.ops]
        volume = model.sent(transfer.optype, len(members), trace.stages)
        if transfer.optype in {REDUCE, GATHER, EMBEDDING}:
            members.sort(key=lambda one: place[one])
            rows += [(number, one, members[(i + 1) % len(members)], volume) for i, one in enumerate(members)]
        else:
            rows.append((number, members[0], members[1], volume))
    columns = np.array(rows, np.float64).reshape(-1, 4)
    columns = columns[columns[:, 1] != columns[:, 2]]
    transfer_of, src, dst = (np.repeat(columns[:, i].astype(np.int64), RAILS) for i in range(3))
    rail = np.tile(np.arange(RAILS), len(columns))
    return Lanes(transfer_of, src, dst, rail, np.repeat(columns[:, 3], RAILS) / RAILS)
