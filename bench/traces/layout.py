"""Where the workers of a trace stand, and how many bytes each operation moves: the trace says neither.

**Hosts.** `workers_per_host` consecutive workers, by rank, are one host: host-000, host-001, ... The default is one:
the trace leaves tensor parallelism out, so that a worker stands for the 8 GPUs of a host. The host's `rails` are shared
out among its workers: with one, its bytes spread evenly over all rails; with 8, each has a rail of its own. What stays
in a host is not seen.

**Bytes**, of a dense transformer in 16 bits, Megatron-LM's way (arXiv 2104.04473, 2205.05198):

    send between stages     2 x tokens x hidden
    weights of a layer      12 x hidden^2
    reduce-scatter, gather  2 x weights of the stage x (d - 1) / d      of each of d workers, to the next in the ring
    embedding               2 x vocabulary x hidden                     each way, between first and last stage
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from app.errors import UserError
from bench.traces.replay import Transfer
from bench.traces.trace_file import EMBEDDING, GATHER, REDUCE, Floats, Ints, Trace


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


@dataclass(frozen=True, slots=True)
class Layout:
    """Which worker stands where.

    Attributes:
        hosts: number of hosts.
        rails: of each host.
        host: [worker] number.
        first_rail, worker_rails: [worker] the first of its rails, and how many.
        dp_rank, stage: [worker].
    """

    hosts: int
    rails: int
    host: Ints
    first_rail: Ints
    worker_rails: int
    dp_rank: Ints
    stage: Ints


def host_name(number: int) -> str:
    """Return the name of a host of a played trace."""
    return f"host-{number:03d}"


def layout_of(trace: Trace, workers_per_host: int = 1, rails: int = 8) -> Layout:
    """Place the workers of a trace; UserError where rails do not share out."""
    if workers_per_host < 1 or rails < 1 or (rails % workers_per_host and workers_per_host % rails):
        raise UserError(
            f"{workers_per_host} workers a host on {rails} rails: they do not share out", "such as 1 or 8 on 8 rails"
        )
    workers = trace.workers
    number = np.arange(workers.height)
    host, place = number // workers_per_host, number % workers_per_host
    each = max(rails // workers_per_host, 1)
    dp_rank, stage = (workers.get_column(name).to_numpy() for name in ("dp_rank", "stage"))
    return Layout(int(host.max()) + 1, rails, host, place * each % rails, each, dp_rank, stage)


@dataclass(frozen=True, slots=True)
class Lanes:
    """Who sends how much to whom in one step, a row a rail: equally long arrays.

    Attributes:
        transfer: position in the replay's transfers.
        src, dst: workers.
        rail: of the sender's host, and of the receiver's.
        sent: bytes.
    """

    transfer: Ints
    src: Ints
    dst: Ints
    rail: Ints
    sent: Floats


def lanes_of(trace: Trace, transfers: tuple[Transfer, ...], layout: Layout, model: Model) -> Lanes:
    """Return what crosses the network between hosts in a step."""
    ranks = trace.workers.get_column("rank").to_list()
    of_rank = {rank: number for number, rank in enumerate(ranks)}
    worker = [of_rank[rank] for rank in trace.ops.get_column("rank").to_list()]
    rows: list[tuple[int, int, int, float]] = []
    for number, transfer in enumerate(transfers):
        members = [worker[op] for op in transfer.ops]
        volume = model.sent(transfer.optype, len(members), trace.stages)
        if transfer.optype in {REDUCE, GATHER, EMBEDDING}:
            members.sort(key=lambda one: (layout.stage[one], layout.dp_rank[one]))
            rows += [(number, one, members[(i + 1) % len(members)], volume) for i, one in enumerate(members)]
        else:
            rows.append((number, members[0], members[1], volume))
    columns = np.array(rows, np.float64).reshape(-1, 4)
    columns = columns[layout.host[columns[:, 1].astype(np.int64)] != layout.host[columns[:, 2].astype(np.int64)]]
    each = layout.worker_rails
    transfer_of, src, dst = (np.repeat(columns[:, i].astype(np.int64), each) for i in range(3))
    rail = layout.first_rail[src] + np.tile(np.arange(each), len(columns))
    return Lanes(transfer_of, src, dst, rail, np.repeat(columns[:, 3], each) / each)
