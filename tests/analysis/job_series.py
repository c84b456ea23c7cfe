"""Windows of one job, built piece by piece: what tests of phases, checkpoints and loads are made of."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from analysis.detectors.storage import checkpoints, phases
from analysis.detectors.storage.checkpoints import CheckpointCarry, Ledger, Usual
from analysis.detectors.storage.phases import PhaseCarry, PhasePolicy, Phases, Subject
from analysis.detectors.study import JobWindows
from cluster.model import CheckpointPlan, Job
from store import schema
from store.points import WINDOW

T0 = 1_760_000_000
WINDOW_SECONDS = 10
NODES = tuple(f"n{number}" for number in range(8))
COMPUTE = 1.5e10
"""Bytes that a node sends in a window at work."""
PREFETCH = 2e8
"""Bytes that a node reads in a window while it trains."""
SHARD = 4e9
"""Bytes that a node writes in a checkpoint."""


def part(windows: JobWindows, first: int, last: int) -> JobWindows:
    """Return the windows with index first up to and without last."""
    names = ("sent", "packets", "written", "read", "heard", "rates", "competing", "storage_heard")
    cut = {name: getattr(windows, name)[first:last] for name in names}
    return replace(windows, start=windows.start + first * windows.window, **cut)


def job(windows: int | None = None, job_class: str = "llm") -> Job:
    end = None if windows is None else datetime.fromtimestamp(T0 + windows * WINDOW_SECONDS, UTC)
    return Job("run-9", job_class, NODES, datetime.fromtimestamp(T0, UTC), end)


@dataclass
class Series:
    """A job's windows, [window, node]; each method changes them in place and returns the series."""

    sent: np.ndarray
    written: np.ndarray
    read: np.ndarray
    heard: np.ndarray
    storage_heard: np.ndarray

    @classmethod
    def training(cls, windows: int, seed: int = 1) -> "Series":
        """A job that computes from its first window on, with a little noise, and reads ahead."""
        rng = np.random.default_rng(seed)
        shape = windows, len(NODES)
        common = rng.normal(1.0, 0.05, (windows, 1))
        return cls(
            np.rint(COMPUTE * common * rng.normal(1.0, 0.005, shape)),
            np.zeros(shape),
            np.rint(PREFETCH * rng.uniform(0.5, 1.5, shape)),
            np.ones((windows, 2), np.bool_),
            np.ones((windows, 3), np.bool_),
        )

    def checkpoint(self, at: int, windows: int = 1, shard: float = SHARD, nodes: slice = slice(None)) -> "Series":
        """Write a shard a node from window `at` on."""
        self.written[at : at + windows, nodes] += np.rint(shard / windows)
        return self

    def checkpoints(self, *starts: int, shard: float = SHARD) -> "Series":
        for start in starts:
            self.checkpoint(start, shard=shard)
        return self

    def paused(self, first: int, last: int) -> "Series":
        """No collectives in windows first to last, last left out."""
        self.sent[first:last] = 0
        return self

    def logs(self, each: float, seed: int = 2) -> "Series":
        """Every node writes so many bytes a window, more or less."""
        rng = np.random.default_rng(seed)
        self.written += np.rint(each * rng.uniform(0.5, 1.5, self.written.shape))
        return self

    def loading(self, first: int, last: int, each: float = 4e9) -> "Series":
        self.read[first:last] += each
        return self

    def silent(self, first: int, last: int, exporter: int = 2) -> "Series":
        """An exporter of the storage plane says nothing, nor is what it saw counted."""
        self.storage_heard[first:last, exporter] = False
        return self

    def windows(self) -> JobWindows:
        return JobWindows(
            T0, WINDOW_SECONDS, self.sent, self.sent / 1500, self.written, self.read, self.heard,
            storage_heard=self.storage_heard,
        )  # fmt: skip


def subject(**changes: object) -> Subject:
    return replace(Subject(job(), WINDOW_SECONDS), **changes)  # type: ignore[arg-type]


def first(sizes: tuple[float, ...] = ()) -> PhaseCarry:
    heard = np.ones((60, 3), np.bool_)
    return phases.first_carry([(size, 20.0) for size in sizes], heard, PhasePolicy())


def followed(series: Series, one: Subject | None = None, sizes: tuple[float, ...] = ()) -> Phases:
    return phases.follow(one or subject(), first(sizes), series.windows())[1]


@dataclass(frozen=True)
class Verdict:
    """What came of a series: checkpoints by the window they began in, and the standing after each window."""

    events: dict[int, dict[str, float]]
    status: dict[str, list[float]]
    carry: CheckpointCarry

    def states(self) -> dict[int, float]:
        return {at: row[schema.CHECKPOINT_STATE.name] for at, row in self.events.items()}

    def overdue(self) -> list[int]:
        """Windows in which one was overdue."""
        return [at for at, seconds in enumerate(self.status[schema.OVERDUE.name]) if seconds > 0]


def verdict(
    series: Series,
    plan: CheckpointPlan | None = None,
    usual: Usual | None = None,
    *,
    parts: int = 1,
    **ledger: object,
) -> Verdict:
    """Judge a series as `parts` calls would, one after the other."""
    usual = usual or Usual()
    one = replace(Ledger(job(), WINDOW_SECONDS, plan or CheckpointPlan()), **ledger)  # type: ignore[arg-type]
    what = subject(job=one.job, checkpoint_bytes=one.plan.size, sees_compute=one.sees_compute)
    phase_carry, carry = first(usual.sizes), CheckpointCarry(usual)
    whole = series.windows()
    events: dict[int, dict[str, float]] = {}
    status: dict[str, list[float]] = {}
    for places in np.array_split(np.arange(len(whole)), parts):
        windows = part(whole, places[0], places[-1] + 1)
        phase_carry, found = phases.follow(what, phase_carry, windows)
        carry, rows, standing = checkpoints.judge(one, carry, found, windows)
        for row in rows.frame().iter_rows(named=True):
            events[(row[WINDOW] - T0) // WINDOW_SECONDS] = row
        for name, column in standing.columns.items():
            status.setdefault(name, []).extend(column.tolist())
    return Verdict(dict(sorted(events.items())), status, carry)
