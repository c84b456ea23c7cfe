"""Small traces of training jobs with the columns of recorded ones: a 1F1B pipeline, data-parallel over replicas."""

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl

from bench.traces.trace_file import Trace, trace_of

_SENT, _REDUCED, _GATHERED, _SHARED, _DONE = 0.002, 0.06, 0.03, 0.01, 0.02


def synthetic_trace(
    *,
    replicas: int = 2,
    stages: int = 4,
    micro_batches: int = 8,
    steps: int = 12,
    forward: float = 0.05,
    scatter: float = 0.03,
    last: float = 1.0,
    seed: int = 1,
) -> Trace:
    """Return a trace.

    Args:
        replicas: data-parallel ranks.
        stages: of the pipeline.
        micro_batches: of a step.
        steps: that are recorded.
        forward: seconds of a stage's forward pass; the backward pass takes twice as long.
        scatter: of each pass, as a share of it.
        last: how many times as long the last stage takes.
        seed: of the scatter.
    """
    rng = np.random.default_rng(seed)

    def draw(way: str, stage: int) -> float:
        longer = (1 if way == "forward" else 2) * (last if stage == stages - 1 else 1.0)
        return float(forward * longer * max(rng.normal(1, scatter), 0.2))

    rows = []
    for number in range(steps):
        one = _Step((replicas, stages, micro_batches), number)
        for replica in range(replicas):
            one.passes(replica, draw)
        one.exchange()
        rows += one.rows
    frame = pl.DataFrame(rows).with_columns(
        pl.col("start_ts", "duration").cast(pl.Float32), pl.col("optype").cast(pl.Categorical)
    )
    return trace_of("synthetic", frame)


def program(stage: int, stages: int, micro_batches: int) -> Iterator[tuple[str, int]]:
    """Yield passes of a stage in the order of 1F1B: forward or backward, number of the micro-batch."""
    warm_up = min(stages - 1 - stage, micro_batches)
    yield from (("forward", number) for number in range(warm_up))
    for number in range(micro_batches - warm_up):
        yield "forward", warm_up + number
        yield "backward", number
    yield from (("backward", number) for number in range(micro_batches - warm_up, micro_batches))


class _Step:
    """One step as it is written down: times count from its begin.

    Attributes:
        rows: operations.
    """

    def __init__(self, sizes: tuple[int, int, int], step: int) -> None:
        self.replicas, self.stages, self.micro_batches = sizes
        self._step = step
        self.rows: list[dict[str, object]] = []
        self._ready = np.full((self.replicas, self.stages), _GATHERED)
        self._sent: dict[tuple[int, str, int, int], float] = {}

    def _note(self, worker: tuple[int, int], optype: str, number: int, end: float, start: float | None = None) -> None:
        replica, stage = worker
        begin = self._ready[worker] if start is None else start
        self.rows.append({
            "dp_rank": replica, "stage": stage, "rank": stage * self.replicas + replica, "step": self._step,
            "optype": optype, "start_ts": begin, "duration": end - begin, "seq_id": number, "mc": 0, "mb_id": number,
            "gmc": 0,
        })  # fmt: skip
        self._ready[worker] = end

    def passes(self, replica: int, draw: Callable[[str, int], float]) -> None:
        """Run a replica's pipeline; `draw` gives the seconds of a pass of a stage."""
        for stage in range(self.stages):
            self._note((replica, stage), "params-all-gather", 0, _GATHERED, start=0.0)
        todo = [deque(program(stage, self.stages, self.micro_batches)) for stage in range(self.stages)]
        while any(todo):
            for stage, left in enumerate(todo):
                while left and self._runs((replica, stage), *left[0], draw):
                    left.popleft()

    def _runs(self, worker: tuple[int, int], way: str, number: int, draw: Callable[[str, int], float]) -> bool:
        """Run a pass, and send what comes of it, if what it needs is there."""
        replica, stage = worker
        ahead = 1 if way == "forward" else -1
        if 0 <= stage - ahead < self.stages:
            came = self._sent.get((replica, way, stage - ahead, number))
            if came is None:
                return False
            self._note(worker, f"{way}-recv", number, max(came, float(self._ready[worker])) + _SENT)
        self._note(worker, f"{way}-compute", number, float(self._ready[worker]) + draw(way, stage))
        if 0 <= stage + ahead < self.stages:
            # Buffered: the sender goes on; the receiver takes it when it is there.
            self._sent[replica, way, stage, number] = float(self._ready[worker])
            self._note(worker, f"{way}-send", number, float(self._ready[worker]) + _SENT)
        return True

    def exchange(self) -> None:
        """Sum gradients: of the embedding between first and last stage, then of each stage between its replicas."""
        ends = (0, self.stages - 1)
        for replica in range(self.replicas if self.stages > 1 else 0):
            met = float(self._ready[replica, ends].max()) + _SHARED
            for stage in ends:
                self._note((replica, stage), "embedding-grads-all-reduce", 0, met)
        over = self._ready.max(axis=0) + _REDUCED
        for optype, until in (("grads-reduce-scatter", over), ("optimizer", np.full_like(over, over.max() + _DONE))):
            for stage in range(self.stages):
                for replica in range(self.replicas):
                    self._note((replica, stage), optype, 0, float(until[stage]))
