"""The phase of a job in each window: loading, computing, checkpoint, idle or blind.

Levels are the job's own. Nothing here knows what a gigabyte means to a site:

    at work   the cohort's upper quartile sends at least a quarter of what is usual (90 % quantile of the last hour)
    burst     all nodes together write at least 3 times the quiet level (25 % quantile of the last two hours), and a
              fiftieth of the usual checkpoint's rate: logs and metrics are none. Pauses of up to 30 s do not end it
    reading   all nodes together read at least 3 times what they usually do while at work (median of an hour of that):
              fetching data ahead is none

A burst counts as a checkpoint once it holds a tenth of the largest of the last ten (a fiftieth of the declared size).
Before any is known, the quiet level is the median, and one counts when it is over: if it was large, and fell back to
less than a third.

Where compute and storage say different things, a checkpoint goes before computing, and computing before loading: a job
that computes while it writes is one that writes a checkpoint. So a pause of the collectives that a checkpoint explains
is never idle, and never a stall.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analysis.baseline import Flags, Floats, Ints
from analysis.detectors.study import JobWindows
from analysis.jobs.job_windows import end_of
from cluster.model import Job
from store.schema import Phase


@dataclass(frozen=True, slots=True)
class PhasePolicy:
    """The numbers of the phases. Rates are bytes a second.

    Attributes:
        work_level: share of the usual level at which the cohort is at work ...
        work_floor: ... and what a node must at least send.
        work_memory, work_quantile: the usual level is this quantile of so many seconds ...
        class_level: ... and at least this share of what earlier runs had.
        quiet_factor, quiet_memory, quiet_quantile: a burst writes so many times this quantile of so many seconds ...
        unknown_quantile: ... this one while no checkpoint is known ...
        write_floor: ... and at least this, all nodes together ...
        write_share: ... and at least this share of the rate at which a checkpoint is usually written.
        gap: seconds of quiet that end a burst or a load.
        part: share of the largest of the last checkpoints that makes a burst one ...
        declared_part: ... and of the declared size; the smaller of both counts.
        least: bytes that make a burst one before any is known, if it falls back to `fall` of its mean.
        known: how many checkpoints are remembered.
        whole, least_known: share of the usual size from which one was seen whole, once so many are known.
        read_factor, read_memory: reading is so many times the median of so many seconds at work ...
        read_floor: ... and at least this, each node.
        taking_part: share of the busiest node's bytes from which a node took part.
        duty: an exporter's silence means something if it was heard in this share of the windows so far ...
        least_heard: ... and in at least so many.
        longest_silence: windows of one silence that count against that, at most.
        listening: windows that count at all: what was long ago is forgotten.
    """

    work_level: float = 0.25
    work_floor: float = 1e6
    work_memory: int = 3600
    work_quantile: float = 0.9
    class_level: float = 0.5
    quiet_factor: float = 3.0
    quiet_memory: int = 7200
    quiet_quantile: float = 0.25
    write_floor: float = 1e6
    unknown_quantile: float = 0.5
    write_share: float = 0.02
    gap: int = 30
    part: float = 0.1
    declared_part: float = 0.02
    least: float = 256e6
    fall: float = 1 / 3
    known: int = 10
    whole: float = 0.9
    least_known: int = 3
    read_factor: float = 3.0
    read_memory: int = 3600
    read_floor: float = 1e6
    taking_part: float = 0.02
    duty: float = 0.8
    least_heard: int = 12
    longest_silence: int = 30
    listening: int = 360


@dataclass(frozen=True, slots=True)
class Subject:
    """A job, and what its phases are judged by.

    Attributes:
        window: seconds.
        sees_compute: whether its collectives cross devices that export flows.
        level: bytes per window of its busy nodes in earlier runs; 0 if there are none.
        checkpoint_bytes: declared size; None if unknown.
    """

    job: Job
    window: int
    sees_compute: bool = True
    level: float = 0.0
    checkpoint_bytes: int | None = None
    policy: PhasePolicy = field(default_factory=PhasePolicy)


@dataclass(slots=True)
class Burst:
    """Writing to storage that stands out.

    Attributes:
        start, end: of its first, and end of its last loud window, epoch seconds.
        size: bytes of all nodes from start to end.
        nodes: [node] the same.
        after, after_nodes: bytes since.
        is_clear: whether every exporter was heard in it and around it.
        silent: [exporter] which were not in any of its loud windows.
        is_checkpoint: whether it counts as one.
    """

    start: int
    end: int
    size: float
    nodes: Floats
    after: float
    after_nodes: Floats
    is_clear: bool
    silent: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    is_checkpoint: bool = False

    def copy(self) -> "Burst":
        """Return a burst that can go its own way."""
        return replace(self, nodes=self.nodes.copy(), after_nodes=self.after_nodes.copy())

    def taking_part(self, share: float) -> int:
        """Return how many nodes wrote at least this share of what the busiest one did."""
        return took_part(self.nodes, share)


def took_part(nodes: Floats, share: float) -> int:
    """Return how many of the [node] bytes are at least this share of the largest."""
    largest = float(nodes.max(initial=0.0))
    return int((nodes >= share * largest).sum()) if largest > 0 else 0


@dataclass(frozen=True, slots=True)
class Turn:
    """Something that a burst came to in a window: it became a checkpoint, or it ended as one.

    Attributes:
        index: of the window.
        burst: as it was at the end of the window.
        is_over: whether nothing more can come to it.
    """

    index: int
    burst: Burst
    is_over: bool


@dataclass(slots=True)
class PhaseCarry:
    """What a window hands to the next one.

    Attributes:
        levels, writes: of the last windows that were seen, as the policy's memories say.
        reads: the same, of windows at work.
        burst: the one that is under way.
        sizes, rates: bytes, and bytes a second, of the last checkpoints, earlier runs' included, the newest last.
        worked: whether the cohort was at work in any window.
        heard, listened: [exporter of the storage plane] windows in which it was heard, of how many; the older the less.
        silence: [exporter] windows since.
        needless: [exporter] whether a whole checkpoint was seen while it was silent: it sees others' traffic.
    """

    levels: Floats
    writes: Floats
    reads: Floats
    heard: Floats
    listened: Floats
    silence: Ints
    needless: Flags
    sizes: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    burst: Burst | None = None
    worked: bool = False

    def copy(self) -> "PhaseCarry":
        """Return a carry that can go its own way."""
        return replace(
            self,
            sizes=list(self.sizes),
            rates=list(self.rates),
            burst=None if self.burst is None else self.burst.copy(),
        )


def first_carry(known: Sequence[tuple[float, float]], storage_heard: Flags, policy: PhasePolicy) -> PhaseCarry:
    """Return the carry before a job's first window.

    Args:
        policy: see there.
        known: bytes and seconds of checkpoints of earlier runs, the newest last.
        storage_heard: [window, exporter] whether the storage plane's exporters were heard before the job.
    """
    exporters = storage_heard.shape[1]
    nothing = np.zeros(exporters)
    silence, needless = np.zeros(exporters, np.int64), np.zeros(exporters, np.bool_)
    carry = PhaseCarry(np.zeros(0), np.zeros(0), np.zeros(0), nothing, nothing, silence, needless)
    carry.sizes = [size for size, _ in known[-policy.known :]]
    carry.rates = [size / seconds for size, seconds in known[-policy.known :]]
    for heard in storage_heard:
        _listen(carry, heard, policy)
    return carry


@dataclass(frozen=True, slots=True)
class Phases:
    """What was found; arrays are [window].

    Attributes:
        phase: values of ``schema.Phase``.
        at_work, reading: whether the cohort is at work, whether it reads data.
        under_way: whether a burst is, checkpoint or not, at the end of the window.
        unseen: whether an exporter of the storage plane is silent, so that a burst may have been missed.
        turns: in the order of their windows.
        open: the burst under way after the last window.
    """

    phase: Ints
    at_work: Flags
    reading: Flags
    under_way: Flags
    unseen: Flags
    turns: tuple[Turn, ...]
    open: Burst | None


def follow(subject: Subject, carry: PhaseCarry, windows: JobWindows) -> tuple[PhaseCarry, Phases]:
    """Follow a job through consecutive windows; `carry` itself stays as it is."""
    carry = carry.copy()
    count = len(windows)
    blind = np.logical_not(windows.heard.any(axis=1)) if windows.heard.shape[1] else np.zeros(count, np.bool_)
    at_work = _at_work(subject, carry, windows, ~blind)
    bursts = _Bursts(subject, carry, windows)
    in_checkpoint, unseen = bursts.in_checkpoint, bursts.unseen
    reading = _reading(subject, carry, windows, at_work & ~unseen if subject.sees_compute else ~unseen)
    worked = carry.worked | np.logical_or.accumulate(at_work)
    carry.worked = bool(worked[-1]) if count else carry.worked
    # What is neither seen computing nor loading is idle only if it could be seen.
    unknown = unseen | (not subject.sees_compute) & ~worked
    phase = np.select(
        [in_checkpoint, blind, at_work, reading, unknown],
        [Phase.CHECKPOINT, Phase.BLIND, Phase.COMPUTE, Phase.LOAD, Phase.BLIND],
        Phase.IDLE,
    ).astype(np.int64)
    return carry, Phases(phase, at_work, reading, bursts.under_way, unseen, tuple(bursts.turns), carry.burst)


# -- who could see it ------------------------------------------------------------------------------


def _silent(carry: PhaseCarry, windows: JobWindows, policy: PhasePolicy) -> Flags:
    """Return [window, exporter of the storage plane] whether one is silent that otherwise is not."""
    result = np.zeros(windows.storage_heard.shape, np.bool_)
    for index, heard in enumerate(windows.storage_heard):
        result[index] = _listen(carry, heard, policy) & ~heard
    return result


def _listen(carry: PhaseCarry, heard: Flags, policy: PhasePolicy) -> Flags:
    """Count a window; return which exporters are heard so often that their silence means something."""
    known = heard | (carry.heard > 0)
    # Silence counts when it is over: an outage is no habit.
    past = np.where(heard, np.minimum(carry.silence, policy.longest_silence), 0)
    listened = carry.listened + past + heard
    fading = np.minimum(1.0, policy.listening / np.maximum(listened, 1.0))
    carry.listened, carry.heard = listened * fading, (carry.heard + heard) * fading
    carry.silence = np.where(heard | ~known, 0, carry.silence + 1)
    often = carry.heard >= np.maximum(policy.duty * carry.listened, policy.least_heard)
    steady: Flags = known & often
    return steady


# -- computing -------------------------------------------------------------------------------------


def _at_work(subject: Subject, carry: PhaseCarry, windows: JobWindows, seen: Flags) -> Flags:
    policy, size = subject.policy, windows.sent.shape[1]
    place = 3 * (size - 1) // 4
    upper = np.partition(windows.sent, place, axis=1)[:, place] if size else np.zeros(len(windows))
    usual, carry.levels = _trailing(
        carry.levels, upper, seen, policy.work_memory // windows.window, _quantile(policy.work_quantile)
    )
    level = policy.work_level * np.maximum(usual, policy.class_level * subject.level)
    at_work: Flags = seen & (upper >= np.maximum(level, policy.work_floor * windows.window))
    return at_work


def _reading(subject: Subject, carry: PhaseCarry, windows: JobWindows, usual: Flags) -> Flags:
    """Return in which windows the job reads much more than in the `usual` ones."""
    policy, reads = subject.policy, windows.read.sum(axis=1)
    level, carry.reads = _trailing(carry.reads, reads, usual, policy.read_memory // windows.window, _quantile(0.5))
    floor = policy.read_floor * windows.window * windows.read.shape[1]
    reading: Flags = reads >= np.maximum(policy.read_factor * level, floor)
    return reading


def usual_level(carry: PhaseCarry, policy: PhasePolicy) -> float:
    """Return the bytes per window of the busy nodes at work; 0 if they never were."""
    if not carry.worked:
        return 0.0
    return float(np.quantile(carry.levels, policy.work_quantile, method="lower")) if len(carry.levels) else 0.0


# -- writing ---------------------------------------------------------------------------------------


class _Bursts:
    """Goes through the windows' writing, one after the other.

    Attributes:
        in_checkpoint: [window] whether it is part of a checkpoint.
        under_way: [window] whether a burst is at its end.
        unseen: [window] see `Phases`.
        turns: what came of the bursts.
    """

    def __init__(self, subject: Subject, carry: PhaseCarry, windows: JobWindows) -> None:
        self._subject, self._policy, self._carry, self._windows = subject, subject.policy, carry, windows
        self._silent = _silent(carry, windows, subject.policy)
        count = len(windows)
        self._seen = np.concatenate([carry.writes, np.zeros(count)])
        self._count = len(carry.writes)
        self._length = subject.policy.quiet_memory // windows.window
        self.in_checkpoint, self.under_way, self.unseen = (np.zeros(count, np.bool_) for _ in range(3))
        self.turns: list[Turn] = []
        self._floor = self._least()
        for index, total in enumerate(windows.written.sum(axis=1).tolist()):
            self._step(index, total)
        carry.writes = self._seen[max(self._count - self._length, 0) : self._count].copy()

    def _step(self, index: int, total: float) -> None:
        carry, policy, window = self._carry, self._policy, self._windows.window
        start, written = self._windows.start + index * window, self._windows.written[index]
        heard, silent = self._windows.storage_heard[index], self._silent[index] & ~carry.needless
        is_unseen = bool(silent.any()) or (len(heard) > 0 and not heard.any())
        if not is_unseen:
            self._seen[self._count] = total
            self._count += 1
        is_loud = total >= max(policy.quiet_factor * self._quiet(), self._floor)
        self.unseen[index] = is_unseen
        burst = carry.burst
        if is_loud:
            burst = carry.burst = _longer(burst, start, window, total, written)
            burst.silent = burst.silent & silent if len(burst.silent) else silent
        elif burst is not None:
            burst.after += total
            burst.after_nodes = burst.after_nodes + written
        if burst is None:
            return
        burst.is_clear = burst.is_clear and not is_unseen
        if is_loud and not burst.is_checkpoint and self._is_large(burst):
            burst.is_checkpoint = True
            self.turns.append(Turn(index, burst.copy(), is_over=False))
        self.in_checkpoint[index] = is_loud and burst.is_checkpoint
        if start + window - burst.end > policy.gap or start + window >= end_of(self._subject.job):
            if self._ends_as_checkpoint(burst, start + window):
                self.turns.append(Turn(index, burst.copy(), is_over=True))
                self._remember(burst)
            carry.burst = None
        self.under_way[index] = carry.burst is not None

    def _quiet(self) -> float:
        recent = self._seen[max(self._count - self._length, 0) : self._count]
        if not len(recent):
            return 0.0
        share = self._policy.quiet_quantile if self._carry.sizes else self._policy.unknown_quantile
        place = int(share * (len(recent) - 1))
        return float(np.partition(recent, place)[place])

    def _least(self) -> float:
        """Return the bytes that all nodes together must at least write in a window of a burst."""
        policy = self._policy
        usual = float(np.median(self._carry.rates)) if self._carry.rates else 0.0
        return self._windows.window * max(policy.write_floor, policy.write_share * usual)

    def _is_large(self, burst: Burst) -> bool:
        """Whether a burst is as large as a checkpoint; never while it is unknown how large they are."""
        policy, declared = self._policy, self._subject.checkpoint_bytes
        limits = [policy.part * max(self._carry.sizes)] if self._carry.sizes else []
        limits += [policy.declared_part * declared] if declared else []
        return bool(limits) and burst.size >= min(limits)

    def _ends_as_checkpoint(self, burst: Burst, now: int) -> bool:
        if burst.is_checkpoint or self._carry.sizes or self._subject.checkpoint_bytes:
            return burst.is_checkpoint
        policy = self._policy
        before = burst.size / (burst.end - burst.start)
        after = burst.after / (now - burst.end) if now > burst.end else 0.0
        burst.is_checkpoint = burst.size >= policy.least and after <= policy.fall * before
        return burst.is_checkpoint

    def _remember(self, burst: Burst) -> None:
        carry, policy = self._carry, self._policy
        if burst.is_clear:
            # One that dwarfs the others shows that they were none.
            kept = [place for place, size in enumerate(carry.sizes) if size >= policy.part * burst.size]
            carry.sizes = [*(carry.sizes[place] for place in kept), burst.size][-policy.known :]
            rate = burst.size / (burst.end - burst.start)
            carry.rates = [*(carry.rates[place] for place in kept), rate][-policy.known :]
            self._floor = self._least()
        elif len(carry.sizes) >= policy.least_known and burst.size >= policy.whole * float(np.median(carry.sizes)):
            # Whoever was silent all the while is not needed to see a whole one.
            carry.needless = carry.needless | burst.silent


def _longer(burst: Burst | None, start: int, window: int, total: float, nodes: Floats) -> Burst:
    if burst is None:
        return Burst(start, start + window, total, nodes.copy(), 0.0, np.zeros(len(nodes)), is_clear=True)
    burst.end = start + window
    burst.size += burst.after + total
    burst.nodes = burst.nodes + burst.after_nodes + nodes
    burst.after, burst.after_nodes = 0.0, np.zeros(len(nodes))
    return burst


# -- levels over trailing windows ------------------------------------------------------------------

_ROWS = 512
"""Windows whose trailing values are laid out at once: a few MB."""

Reduce = Callable[[Floats], Floats]


def _quantile(share: float) -> Reduce:
    def reduce(rows: Floats) -> Floats:
        place = int(share * (rows.shape[1] - 1))
        return np.asarray(np.partition(rows, place, axis=1)[:, place], np.float64)

    return reduce


def _trailing(history: Floats, values: Floats, seen: Flags, length: int, reduce: Reduce) -> tuple[Floats, Floats]:
    """Return for each window `reduce` of the last values that were seen, its own included, and the new history.

    Args:
        history: the last values seen before, at most `length`.
        values: [window].
        seen: which of them count; a window that was not seen has the level before.
        length: how many values a level is taken of.
        reduce: [row, value] -> [row].
    """
    series = np.concatenate([history, values[seen]])
    upto = len(history) + np.cumsum(seen)
    result = np.zeros(len(values))
    for count in np.unique(upto[upto < length]):
        if count:
            result[upto == count] = reduce(series[None, :count])[0]
    whole = np.flatnonzero(upto >= length)
    for first in range(0, len(whole), _ROWS):
        places = whole[first : first + _ROWS]
        rows = np.lib.stride_tricks.sliding_window_view(series, length)[upto[places] - length]
        result[places] = reduce(rows)
    return result, series[-length:].copy()
