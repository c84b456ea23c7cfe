"""Is the cohort of a job as a whole slower than its class, stalled, or over: one verdict a window.

    rate     = bytes a second of the cohort's median node; nodes that are low, down or blind are left out
    observed = median of the rates of the last 6 windows at work: a window that a checkpoint cut short moves it little
    below    = observed lies below the middle of expectation and limit
    slow     = below, and observed < limit; since the first of the windows in a row whose own rate was below
               or: steps are longer than in earlier runs, where sFlow resolves them (``step_study``)
               or: by little but for long, against its class or its own first hour (``drift``); since that began
    stalled  = nothing for longer than earlier good runs ever paused (half as long again), or than a minute

Expectation and limit come from earlier good runs of the class by the formulas of `analysis.baseline`, from runs with
about as many nodes: what a node sends in a second depends on how many it works with. The least spread is 4 %: a
cohort has no other cohort beside it to be compared with in the same window.

Slowness is judged while the job computes (`phases`). While it loads data or writes a checkpoint, the verdict
before is held and its clock stands still; a pause that such a phase explains is no stall. The start of a job is no
stall either, unless it takes twice as long as it ever did. A job that never computed is no stalled one, unless its
class is known to.

It is never the verdict on a node: while nodes are low or down, a cohort does not become slow, for waiting for them is
what they are charged with. A cohort that was slow before stays so. And where all stop, no node is singled out.

What flow data cannot tell: a job that hangs from one that ended without its job source saying so. Both are stalled,
until the source reports the end; both hold their GPUs. A job whose collectives cross no device that exports flows is
blind.

A job that was inferred from traffic ends where its traffic does: it is never stalled. Nor is it slow, for its class is
but a number of nodes, and knows no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from analysis.baseline import ALIKE, QUANTILES, Flags, Floats, Ints, centre_and_spread, of_like_size, quantiles_of
from analysis.detectors.study import FLAW, Memory
from analysis.detectors.training import drift
from analysis.detectors.training.drift import Drift, DriftCarry, Reference
from analysis.detectors.training.pauses import PauseCarry, Usual
from analysis.jobs.job_windows import end_of, start_of
from analysis.kept import Kept
from cluster.model import Job
from store.schema import CohortState, Phase


@dataclass(frozen=True, slots=True)
class CohortPolicy:
    """The numbers of the verdict; those that sites differ in are thresholds of cluster.yaml.

    Attributes:
        smooth: windows at work whose median is judged.
        warm_up, tail: seconds left out at the start and at the end of a job.
        least_spread: as a share of the expectation.
        alike: earlier runs count if they had at least this share of the nodes, and at most its inverse.
        crawl: share of the usual rate from which a cohort is slow rather than stalled.
        pause: seconds without anything that are no stall, in any class ...
        pause_factor: ... nor is this times the longest pause of earlier runs (their median) ...
        learning_pause: ... nor are so many seconds while the class is learnt.
        start_up: seconds that a job may take until it first computes ...
        start_factor: ... or this times the longest that earlier runs took.
        late_start: seconds beyond the longest that earlier runs took from which loading is charged.
        min_windows: windows at work that make a run worth learning from.
        max_windows: windows of a run that are kept to learn from; of longer runs every second, fourth, ... is.
        early_end, early_share: a run that was idle for the last so many seconds, and this share of it, failed.
    """

    smooth: int = 6
    warm_up: int = 60
    tail: int = 30
    least_spread: float = 0.04
    alike: float = ALIKE
    crawl: float = 0.05
    pause: int = 60
    pause_factor: float = 1.5
    learning_pause: int = 300
    start_up: int = 900
    start_factor: float = 2.0
    late_start: int = 60
    min_windows: int = 30
    max_windows: int = 8640
    early_end: int = 300
    early_share: float = 0.2


@dataclass(frozen=True, slots=True)
class Expectation:
    """What earlier good runs of a class taught.

    Attributes:
        rate, spread: bytes a second; NaN if there are no runs.
        runs: how many there were.
        pause: longest pause, seconds; the median over the runs.
        start_up: longest time until a run first computed, seconds.
        lasting: what a loss that lasts is judged by; None of too few runs.
        paused: share of the time at work in short pauses; the median over the runs, NaN if none tells.
        saving, reading: what they waited for checkpoints, and for storage after they first computed.
    """

    rate: float = np.nan
    spread: float = np.nan
    runs: int = 0
    pause: float = 0.0
    start_up: float = 0.0
    lasting: Reference | None = None
    paused: float = np.nan
    saving: Usual = field(default_factory=Usual)
    reading: Usual = field(default_factory=Usual)


def learn(nodes: int, earlier: Sequence[Memory], max_runs: int, policy: CohortPolicy) -> Expectation:
    """Return what to expect of a cohort of so many nodes; `earlier`: memories of good runs, newest first."""
    alike = of_like_size(earlier, nodes, policy.alike)[:max_runs]
    if not alike:
        return Expectation()
    rates = np.array([one["rates"] for one in alike])
    centre, spread = centre_and_spread(rates, np.full(len(alike), np.nan))
    return Expectation(
        rate=centre,
        spread=max(spread, policy.least_spread * centre),
        runs=len(alike),
        pause=float(np.median([one["pause"] for one in alike])),
        start_up=max(one["start_up"] for one in alike),
        lasting=drift.of_class(centre, rates),
        # Runs that earlier versions remembered do not tell.
        paused=float(np.median(told)) if (told := [one["paused"] for one in alike if "paused" in one]) else np.nan,
        saving=_usual(alike, "saving"),
        reading=_usual(alike, "reading"),
    )


def _usual(alike: Sequence[Memory], name: str) -> Usual:
    """Return what earlier runs waited in a phase: their longest wait, and share of the time; not known of old runs."""
    told: list[Any] = [one[name] for one in alike if name in one]
    return Usual(*np.median(np.array(told, np.float64), axis=0).tolist()) if told else Usual()


@dataclass(frozen=True, slots=True)
class Subject:
    """A job, and what its cohort is judged by.

    Attributes:
        window: seconds.
        spreads: k of the limit.
        min_runs: good earlier runs below which slowness is only learnt.
        sees_compute: whether its collectives cross devices that export flows.
        is_told: whether somebody tells when it ends; else silence is its end, and no stall.
    """

    job: Job
    window: int
    expected: Expectation
    spreads: float
    min_runs: int
    sees_compute: bool = True
    is_told: bool = True
    policy: CohortPolicy = field(default_factory=CohortPolicy)

    @property
    def is_ready(self) -> bool:
        """Whether slowness can be judged: not where the median node of earlier runs sent nothing."""
        return self.expected.runs >= self.min_runs and self.expected.rate > 0

    @property
    def lower(self) -> float:
        """The limit, bytes a second; NaN if there are no runs."""
        return max(self.expected.rate - self.spreads * self.expected.spread, 0.0)

    @property
    def longest_pause(self) -> float:
        """Seconds without anything that are no stall."""
        learning = 0 if self.is_ready else self.policy.learning_pause
        return max(self.policy.pause, self.policy.pause_factor * self.expected.pause, learning)

    @property
    def longest_start(self) -> float:
        """Seconds that it may take until it first computes."""
        return max(self.policy.start_up, self.policy.start_factor * self.expected.start_up)


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a cohort; arrays are [window].

    Attributes:
        start: of the first window, epoch seconds.
        phase: values of ``schema.Phase``.
        rate: bytes a second of the median node.
        low: nodes that are low or down.
        blind: whether most nodes are.
        pace: steps a second as a share of what is expected; 1 where they are not longer than usual, or not resolved.
    """

    start: int
    phase: Ints
    rate: Floats
    low: Ints
    blind: Flags
    pace: Floats | None = None


@dataclass(slots=True)
class CohortCarry:
    """What a window hands to the next one.

    Attributes:
        trail: rates of the last windows at work.
        rate: what was last shown.
        state: value of CohortState; LEARNING is shown in place of OK where it is not judged.
        shown: what the window before showed; -1 before the first.
        below, lacking, lost: seconds, missing bytes of a node, and lost seconds since the rates are below.
        pause: seconds of the pause that goes on.
        told: lost seconds that earlier windows of the verdict told already.
        longest: seconds of the longest pause that ended.
        first_work: seconds from the start of the job to its first window at work; -1 before.
        resuming: whether the window before was not at work.
        rates: what the run has taught so far.
        stride, number: every how many-th window is kept there, and how many there were.
        drift: sums of what is slower by little.
        pauses: short ones.
        saving, reading: waits for checkpoints, and for storage after it first computed.
        loading: seconds of loading beyond the slowest start of the class that are not charged yet.
        expected, lower: bytes a second, of the reference that it is slower than by little; NaN while it is not.
    """

    trail: list[float] = field(default_factory=list)
    rate: float = 0.0
    state: int = CohortState.OK
    shown: int = -1
    below: float = 0.0
    lacking: float = 0.0
    lost: float = 0.0
    pause: float = 0.0
    told: float = 0.0
    longest: float = 0.0
    first_work: float = -1.0
    resuming: bool = True
    rates: Kept = field(default_factory=lambda: Kept(1))
    stride: int = 1
    number: int = 0
    drift: DriftCarry = field(default_factory=DriftCarry)
    pauses: PauseCarry = field(default_factory=PauseCarry)
    saving: PauseCarry = field(default_factory=PauseCarry)
    reading: PauseCarry = field(default_factory=PauseCarry)
    loading: float = 0.0
    expected: float = np.nan
    lower: float = np.nan

    def copy(self) -> "CohortCarry":
        """Return a carry that can go its own way."""
        waits = {name: replace(getattr(self, name)) for name in ("pauses", "saving", "reading")}
        own = {"trail": list(self.trail), "rates": self.rates.copy(), "drift": self.drift.copy(), **waits}
        return replace(self, **own)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Arrays are [window].

    Attributes:
        rate: what is compared, bytes a second; held while nothing is judged.
        state: values of ``schema.CohortState``.
        state_for: seconds that it has been slow or stalled.
        lacking: bytes that a node did not send since then.
        slow_seconds, stalled_seconds: time that the window lost; the first window of a verdict holds what was lost
            since it began.
        lost: seconds lost since the verdict began.
        changed: whether the window before showed another state.
        expected, lower: what the rate is compared with, and its limit, bytes a second; NaN if there are no runs.
        pause_seconds: of short pauses beyond those of the class, told when each is over.
        saving_seconds, reading_seconds: the same of checkpoints, and of waits for storage while it reads.
        loading_seconds: of loading before it first computes, beyond the slowest start of the class.
    """

    rate: Floats
    state: Ints
    state_for: Floats
    lacking: Floats
    slow_seconds: Floats
    stalled_seconds: Floats
    lost: Floats
    changed: Flags
    expected: Floats
    lower: Floats
    pause_seconds: Floats
    saving_seconds: Floats
    reading_seconds: Floats
    loading_seconds: Floats


def judge(subject: Subject, carry: CohortCarry, look: Look) -> tuple[CohortCarry, Verdicts]:
    """Judge consecutive windows; `carry` itself stays as it is."""
    judging = _Judging(subject, carry.copy())
    count = len(look.phase)
    columns = np.zeros((count, len(Verdicts.__slots__) - 1))
    pace = [1.0] * count if look.pace is None else look.pace.tolist()
    seen = zip(look.phase.tolist(), look.rate.tolist(), look.low.tolist(), look.blind.tolist(), pace, strict=True)
    for index, (phase, rate, low, blind, share) in enumerate(seen):
        columns[index] = judging.step(look.start + index * subject.window, phase, rate, low, blind=blind, pace=share)
    rate, state, state_for, lacking, slow, stalled, lost, *more = columns.T
    before = np.concatenate([[carry.shown], state[:-1]])
    changed = (before >= 0) & (state != before)
    judging.carry.shown = int(state[-1]) if count else carry.shown
    states = state.astype(np.int64)
    return judging.carry, Verdicts(rate, states, state_for, lacking, slow, stalled, lost, changed, *more)


Row = tuple[float, ...]
"""The columns of Verdicts but `changed`, of one window."""


class _Judging:
    """Takes one window after the other."""

    def __init__(self, subject: Subject, carry: CohortCarry) -> None:
        self.subject, self.policy, self.carry = subject, subject.policy, carry
        self._of_class = subject.expected.rate, subject.lower
        expected, is_ready = subject.expected, subject.is_ready
        self._usual = Usual(expected.pause, expected.paused if is_ready else np.nan)
        self._saving, self._reading = (one if is_ready else Usual() for one in (expected.saving, expected.reading))
        self._waits = (0.0, 0.0, 0.0, 0.0)

    def step(self, window: int, phase: int, rate: float, low: int, *, blind: bool, pace: float) -> Row:
        """Judge one window."""
        carry, subject = self.carry, self.subject
        end = window + subject.window
        self._waits = (0.0, 0.0, 0.0, 0.0)
        if end >= end_of(subject.job):
            self._work_or_wait(end, phase)
            return self._row(CohortState.ENDED)
        if blind or not subject.sees_compute or phase == Phase.BLIND:
            # It is unknown what happens: clocks stand still.
            carry.resuming = True
            self._interrupt()
            return self._row(CohortState.BLIND)
        if phase == Phase.IDLE and self._crawls(rate):
            phase = Phase.COMPUTE
        self._work_or_wait(end, phase)
        if phase == Phase.COMPUTE:
            self._compute(window, rate, low, pace)
        else:
            carry.resuming = True
            if phase == Phase.IDLE:
                self._idle(end, rate)
        self._pause(window, phase, rate, low)
        if carry.state == CohortState.SLOW:
            untold = max(carry.lost - carry.told, 0.0)
            carry.told += untold
            return self._row(carry.state, carry.below, carry.lacking, slow=untold, lost=carry.told)
        if carry.state == CohortState.STALLED:
            untold, carry.told = carry.pause - carry.told, carry.pause
            expected = subject.expected.rate
            lacking = carry.pause * (0.0 if np.isnan(expected) else expected)
            return self._row(carry.state, carry.pause, lacking, stalled=untold, lost=carry.pause)
        return self._row(carry.state)

    def _pause(self, window: int, phase: int, rate: float, low: int) -> None:
        """Keep account of short waits; what is slow, stalled or waits for a node is charged as that."""
        carry, policy, job, length = self.carry, self.policy, self.subject.job, self.subject.window
        if not low:
            self._waits = (0.0, 0.0, 0.0, self._load(window + length, phase))
        is_steady = start_of(job) + policy.warm_up <= window
        is_steady &= window + length <= end_of(job) - policy.tail
        is_charged = carry.state == CohortState.STALLED or (carry.state == CohortState.SLOW and phase == Phase.COMPUTE)
        # Of a cohort most of whose nodes send nothing in most windows, nothing can be missing.
        usual = float(median(carry.trail)) if len(carry.trail) >= policy.smooth else 0.0
        if low or not is_steady or is_charged or not usual:
            self._interrupt()
            return
        missing = min(max(1 - rate / usual, 0.0), 1.0)

        def add(waits: PauseCarry, usual: Usual, *, counts: bool) -> float:
            return waits.add(usual, length, missing if counts else 0.0, is_idle=counts and phase == Phase.IDLE)

        if phase in {Phase.IDLE, Phase.COMPUTE}:
            paused = add(carry.pauses, self._usual, counts=True)
        else:
            carry.pauses.interrupt()
            paused = 0.0
        saved = add(carry.saving, self._saving, counts=phase == Phase.CHECKPOINT)
        read = add(carry.reading, self._reading, counts=phase == Phase.LOAD)
        self._waits = (paused, saved, read, self._waits[-1])

    def _interrupt(self) -> None:
        for waits in (self.carry.pauses, self.carry.saving, self.carry.reading):
            waits.interrupt()

    def _load(self, end: int, phase: int) -> float:
        """Return what to charge of loading before the job first computes."""
        carry, subject = self.carry, self.subject
        beyond = end - start_of(subject.job) - subject.expected.start_up
        if not subject.is_ready or carry.first_work >= 0 or phase != Phase.LOAD or beyond <= 0:
            return 0.0
        carry.loading += min(beyond, subject.window)
        if beyond < self.policy.late_start:
            return 0.0
        untold, carry.loading = carry.loading, 0.0
        return untold

    def _crawls(self, rate: float) -> bool:
        """Whether a cohort that is not at work still sends something: it is slow, not stalled."""
        trail = self.carry.trail
        usual = self.subject.expected.rate if self.subject.is_ready else float(median(trail)) if trail else np.inf
        return rate > 0 and rate >= self.policy.crawl * usual

    def _row(
        self,
        state: int,
        state_for: float = 0.0,
        lacking: float = 0.0,
        *,
        slow: float = 0.0,
        stalled: float = 0.0,
        lost: float = 0.0,
    ) -> Row:
        is_learning = state == CohortState.OK and not self.subject.is_ready
        shown = CohortState.LEARNING if is_learning else state
        by_little = state == CohortState.SLOW and not np.isnan(self.carry.expected)
        reference = (self.carry.expected, self.carry.lower) if by_little else self._of_class
        return self.carry.rate, shown, state_for, lacking, slow, stalled, lost, *reference, *self._waits

    def _work_or_wait(self, end: int, phase: int) -> None:
        """Keep the clocks of pauses."""
        carry, job = self.carry, self.subject.job
        if phase == Phase.COMPUTE and carry.first_work < 0:
            carry.first_work = max(end - self.subject.window - start_of(job), 0.0)
        if phase == Phase.IDLE:
            # Before it first computed it may take its time; the last seconds before its end are no pause.
            is_start = carry.first_work < 0 and end - start_of(job) <= self.subject.longest_start
            # Many a job never talks between its nodes: only of a class that does is it known to be late.
            is_start |= carry.first_work < 0 and not self.subject.is_ready
            if not is_start and end <= end_of(job) - self.policy.tail:
                carry.pause += self.subject.window
        else:
            carry.longest = max(carry.longest, carry.pause)
            carry.pause = 0.0
            if carry.state == CohortState.STALLED:
                carry.state, carry.told = CohortState.OK, 0.0

    def _compute(self, window: int, rate: float, low: int, pace: float) -> None:
        carry, policy, subject = self.carry, self.policy, self.subject
        was_resuming, carry.resuming = carry.resuming, False
        is_steady = start_of(subject.job) + policy.warm_up <= window
        is_steady &= window + subject.window <= end_of(subject.job) - policy.tail
        # The window in which it goes on after a pause is only partly filled.
        if was_resuming or not is_steady:
            carry.rate = carry.rate or rate
            return
        carry.trail = [*carry.trail, rate][-policy.smooth :]
        observed = carry.rate = float(median(carry.trail))
        if len(carry.trail) < policy.smooth:
            return
        expected, lower = subject.expected.rate, subject.lower
        # NaN, where nothing is expected, compares as False.
        below = subject.is_ready and (observed < (expected + lower) / 2 or pace < 1)
        lasting = None
        if low and carry.state != CohortState.SLOW:
            below = False
        elif subject.is_ready:
            lasting = drift.follow(carry.drift, rate, subject.expected.lasting)
        is_slow = below and (observed < lower or pace < 1)
        if below and (is_slow or lasting is None):
            # The median follows after half of its windows: those that were below already count as well.
            fresh = [rate] if carry.below else self._below_already((expected + lower) / 2)
            carry.below += len(fresh) * subject.window
            carry.lacking += sum(max(expected - one, 0.0) for one in fresh) * subject.window
            carry.lost += sum(min(max(1 - one / expected, 1 - pace, 0.0), 1.0) for one in fresh) * subject.window
            if is_slow:
                carry.drift.forget_windows()
        elif lasting is not None:
            self._lasts(rate, lasting)
        else:
            carry.below = carry.lacking = carry.lost = carry.told = 0.0
            self._learn(observed, low)
        shown = None if is_slow or lasting is None else lasting.reference
        carry.expected, carry.lower = (shown.level, shown.level - shown.let_pass) if shown else (np.nan, np.nan)
        carry.state = CohortState.SLOW if is_slow or lasting is not None else CohortState.OK

    def _lasts(self, rate: float, lasting: Drift) -> None:
        """Charge what is lost by little: single windows scatter by more, so faster ones count against slower ones."""
        carry, window = self.carry, self.subject.window
        fresh: Sequence[float] = (rate,)
        if lasting.since and carry.state != CohortState.SLOW:
            fresh = lasting.since
            carry.below = carry.lacking = carry.lost = carry.told = 0.0
        level = lasting.reference.level
        carry.below += len(fresh) * window
        carry.lacking = max(carry.lacking + sum(level - one for one in fresh) * window, 0.0)
        carry.lost += sum(1 - one / level for one in fresh) * window

    def _below_already(self, middle: float) -> list[float]:
        """Return the last rates in a row that lie below; at least the newest."""
        trail = self.carry.trail
        above = [place for place, rate in enumerate(trail) if rate >= middle]
        return trail[above[-1] + 1 :] if above and above[-1] + 1 < len(trail) else trail[-1:] if above else trail

    def _idle(self, end: int, rate: float) -> None:
        carry = self.carry
        if not self.subject.is_told:
            return
        if carry.pause > self.subject.longest_pause and end <= end_of(self.subject.job) - self.policy.tail:
            if carry.state != CohortState.STALLED:
                carry.below = carry.lacking = carry.lost = carry.told = 0.0
            carry.state, carry.rate = CohortState.STALLED, rate

    def _learn(self, observed: float, low: int) -> None:
        carry = self.carry
        if low:
            return
        if carry.number % carry.stride == 0:
            carry.rates.append(observed)
        carry.number += 1
        if len(carry.rates) > self.policy.max_windows:
            carry.stride *= 2
            carry.rates = carry.rates.chosen(np.arange(len(carry.rates)) % 2 == 0)


def remembered(subject: Subject, carry: CohortCarry) -> Memory:
    """Return what a finished run teaches; `carry` is that after its last window."""
    rates = quantiles_of(carry.rates.array(), 1)[0] if len(carry.rates) else np.zeros(QUANTILES)
    return {
        FLAW: _flaw(subject, carry),
        "nodes": len(subject.job.nodes),
        "rates": [round(float(rate)) for rate in rates],
        "pause": carry.longest,
        "paused": carry.pauses.share,
        "saving": [carry.saving.longest, carry.saving.share],
        "reading": [carry.reading.longest, carry.reading.share],
        "start_up": max(carry.first_work, 0.0),
    }


def _flaw(subject: Subject, carry: CohortCarry) -> str:
    policy, job = subject.policy, subject.job
    if len(carry.rates) * carry.stride < policy.min_windows:
        return "too short"
    if carry.pause - job.quiet > max(policy.early_end, policy.early_share * (end_of(job) - start_of(job))):
        return "ended early"
    return ""
