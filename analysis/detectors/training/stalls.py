"""The stall ledger: time that a job lost, window by window, by cause, and what its GPUs cost meanwhile.

    stalled      the whole pause: its seconds
    pause        seconds of shorter pauses, beyond what the class pauses anyhow (``pauses``)
    slow         seconds x (1 - rate / expected)
    dropout      seconds x (1 - observed / expected) of the worst node that is low; seconds, while one is down
    checkpoint   seconds that it waits for checkpoints, beyond what the class does
    loading      seconds of loading until it first computes, beyond the slowest start of the class
    storage      the same as of checkpoints, while it reads in its midst; and what is stalled, pause or slow while
                 others keep storage busy
    disturbed    what is stalled, pause or slow while nodes of others send to its nodes (``causes``)

Each second is under one cause: an outer one takes over what it explains, whole, and nothing is charged twice.

All GPUs of a job are charged alike: its steps are synchronous, so that nobody computes on while one waits. So is the
loss by a node: a step is as long as its slowest node makes it, and a node that sends 60 % of what it should has done
60 % of the steps. That is an upper bound where others can run ahead of it. If the cohort is slow at the same time, the
node is charged for what it takes from the slow rate only: lost seconds never add up to more than passed.

    USD = GPUs x seconds / 3600 x USD per GPU-hour

1,024 GPUs at 30 USD an hour that wait for a minute cost 512 USD. A verdict begins some windows after what it judges:
the row of its first window holds all that was lost until then, so that sums over any range that holds the whole
incident are right.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.baseline import Floats
from analysis.detectors.rows import Rows, tags_of
from analysis.detectors.training.cohort import Verdicts
from cluster.model import Job
from store import schema
from store.points import WINDOW
from store.schema import Cause, NodeState

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Payer:
    """A job, its GPUs, and what they cost.

    Attributes:
        window: seconds.
    """

    job: Job
    window: int
    gpus: int
    usd_per_gpu_hour: float

    def usd(self, seconds: Floats) -> Floats:
        """Return what the GPUs cost in so many seconds."""
        return self.gpus * self.usd_per_gpu_hour * seconds / _HOUR


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a window hands to the next one: [node] seconds for which each was low or down."""

    low_for: Floats

    @classmethod
    def first(cls, nodes: int) -> "Waiting":
        """Return the carry before a job's first window."""
        return cls(np.zeros(nodes))


@dataclass(frozen=True, slots=True)
class Outer:
    """What explains a window's loss from outside the job, and who does it: the group or the nodes."""

    cause: Cause
    by: str


EXPLAINED = (Cause.STALLED, Cause.PAUSE, Cause.SLOW)
"""What an outer cause takes over: a node that drops out has reasons of its own."""


def judge(
    payer: Payer,
    carry: Waiting,
    nodes: Rows,
    verdicts: Verdicts,
    start: int,
    *,
    explain: Callable[[npt.NDArray[np.int64]], Mapping[int, Outer]] = lambda _: {},
) -> tuple[Waiting, list[Rows]]:
    """Return the carry after the windows, and their rows of schema.STALL.

    Args:
        payer: see there.
        carry: before the first window.
        nodes: rows of schema.BASELINE, all nodes of a window after the other.
        verdicts: on the cohort.
        start: of the first window, epoch seconds.
        explain: gives the outer causes of windows, by their numbers, where there are any; asked of those that lost.
    """
    size = len(carry.low_for)
    low_for = nodes[schema.LOW_FOR.name].reshape(-1, size)
    lost_to_nodes = np.zeros(len(low_for))
    if low_for.any():
        before = np.vstack([carry.low_for, low_for[:-1]])
        passed = np.maximum(low_for - before, 0.0)
        lost_to_nodes = (passed * _missing_share(nodes, size)).max(axis=1)
    slow = verdicts.slow_seconds
    left = 1 - np.clip(slow / payer.window, 0.0, 1.0)
    lost = {
        Cause.DROPOUT: np.where(verdicts.stalled_seconds > 0, 0.0, lost_to_nodes * left),
        Cause.SLOW: slow.copy(),
        Cause.STALLED: verdicts.stalled_seconds.copy(),
        Cause.PAUSE: verdicts.pause_seconds.copy(),
        Cause.CHECKPOINT: verdicts.saving_seconds,
        Cause.LOADING: verdicts.loading_seconds,
        Cause.STORAGE: verdicts.reading_seconds.copy(),
        Cause.DISTURBED: np.zeros(len(low_for)),
    }
    by = [""] * len(low_for)
    own = sum((lost[cause] for cause in EXPLAINED), np.zeros(len(low_for)))
    for index, outer in (explain(np.flatnonzero(own > 0)) if own.any() else {}).items():
        lost[outer.cause][index] += own[index]
        by[index] = outer.by
        for cause in EXPLAINED:
            lost[cause][index] = 0.0
    after = Waiting(low_for[-1].copy()) if len(low_for) else carry
    charged = [(cause, seconds) for cause, seconds in lost.items() if (seconds > 0).any()]
    return after, [_rows(payer, cause, start, seconds, by) for cause, seconds in charged]


def _missing_share(nodes: Rows, size: int) -> Floats:
    """Return [window, node] the share of its expected bytes that a low node does not send: 1 for one that is down."""
    observed, expected = (np.nan_to_num(nodes[one.name], nan=1.0) for one in (schema.OBSERVED, schema.EXPECTED))
    share = np.clip(1 - observed / np.maximum(expected, 1e-9), 0.0, 1.0)
    share = np.where(nodes[schema.STATE.name] == NodeState.DOWN, 1.0, share)
    return np.asarray(share.reshape(-1, size), np.float64)


def _rows(payer: Payer, cause: Cause, start: int, seconds: Floats, by: Sequence[str]) -> Rows:
    at = np.flatnonzero(seconds > 0)
    outer = cause in {Cause.STORAGE, Cause.DISTURBED}
    return Rows(
        schema.STALL,
        {
            WINDOW: start + at * payer.window,
            schema.LOST_SECONDS.name: seconds[at],
            schema.USD.name: payer.usd(seconds[at]),
            schema.STALL_BY.name: np.array([by[index] if outer else "" for index in at.tolist()], object),
        },
        {**tags_of(payer.job), schema.CAUSE: cause.value, schema.STALL_GPUS.name: payer.gpus},
        # What explains a loss from outside may be stored later than the windows that lost.
        is_open=True,
    )
