"""Small losses that last: is a run slower than its class, or than its own beginning, by little but for long.

A one-sided cumulative sum (CUSUM) [1] over minutes at work, each the median of six windows:

    x = (level - minute) / sd
    S = max(0, S + min(x - k, 2))          k = 1: what is a standard deviation slower or less is let pass;
                                           2: a single bad minute proves nothing
    slow since S last left 0, once S > h   [1]: the estimate of when it began
    over once S is 0 again                 some six minutes after it was

h follows from the wanted in-control run length of A = 1,000,000 minutes (two years of one job) by Siegmund's
approximation [2], A = (exp(2 k b) - 2 k b - 1) / (2 k^2) with b = h + 1.166, and not from any percentage: a steady job
is told of a fall by a twentieth, a noisy one of a larger fall, or later.

Two references, each with a sum of its own:

    own     level: median of its first hour at work, from twenty minutes on. Only minutes that S has let pass count [3].
            sd: the MAD of these minutes, or that of means of five where minutes are alike those beside them.
    class   level: the centre of earlier runs; k is more by the half width of the interval that holds the next run
            with a probability of 99.9 % [4], from their number and scatter. Six runs at least.
            sd: what their minutes scatter around the run's own median.

No sd is less than what steps leave in windows (`baseline.MIN_RELATIVE_SPREAD`).

[1] E. S. Page: Continuous Inspection Schemes. Biometrika 41 (1954), 100-115.
[2] D. Siegmund: Sequential Analysis (Springer, 1985), chapter II.
[3] D. M. Hawkins: Self-starting CUSUM Charts for Location and Scale. The Statistician 36 (1987), 299-315.
[4] G. J. Hahn, W. Q. Meeker, L. A. Escobar: Statistical Intervals, 2nd ed. (Wiley, 2017), 4.8: t s sqrt(1 + 1 / n).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from analysis.baseline import DECAY_RUNS, MAD_TO_SIGMA, MIN_RELATIVE_SPREAD, Floats

RUN_LENGTH = 1_000_000
"""Minutes between two false alarms of one steady job."""

ALLOWANCE = 1.0
"""k, standard deviations."""

MINUTE = 6
"""Windows at work of which one value is made."""

_MOST = 2.0
_FIRST, _LEARNT = 20, 60
"""Minutes from which its own beginning is a reference, and of which it is made at most."""

_TOGETHER = 5
_T_999 = {5: 6.87, 6: 5.96, 7: 5.41, 8: 5.04, 9: 4.78, 10: 4.59, 12: 4.32, 15: 4.07, 20: 3.85, 30: 3.65, 60: 3.46}
"""Degrees of freedom -> quantile 0.9995 of Student's t."""


def limit_of(run_length: float, allowance: float) -> float:
    """Return h, standard deviations, of a CUSUM with this in-control run length, by Siegmund's approximation [2]."""
    low, high = 0.0, 100.0
    for _ in range(100):
        b = (low + high) / 2
        length = (math.exp(2 * allowance * b) - 2 * allowance * b - 1) / (2 * allowance**2)
        low, high = (b, high) if length < run_length else (low, b)
    return max(low - 1.166, 0.0)


LIMIT = limit_of(RUN_LENGTH, ALLOWANCE)


@dataclass(frozen=True, slots=True)
class Reference:
    """What a run is compared with.

    Attributes:
        level: bytes a second.
        deviation: of one minute, bytes a second.
        let_pass: bytes a second below the level that are no loss: k, and for a class the scatter of its runs.
    """

    level: float
    deviation: float
    let_pass: float


def of_class(centre: float, rates: Floats) -> Reference | None:
    """Return what earlier runs teach, [run, quantile] rates of minutes; None of too few runs."""
    runs = len(rates)
    if runs < DECAY_RUNS:
        return None
    medians = np.median(rates, axis=1)
    within = MAD_TO_SIGMA * float(np.median(np.abs(rates - medians[:, None])))
    deviation = max(within, MIN_RELATIVE_SPREAD * centre)
    quantile = _T_999[max(freedom for freedom in _T_999 if freedom <= runs - 1)]
    apart = quantile * float(np.std(medians, ddof=1)) * math.sqrt(1 + 1 / runs)
    return Reference(centre, deviation, ALLOWANCE * deviation + apart)


def of_itself(minutes: Sequence[float]) -> Reference | None:
    """Return what its own minutes teach; None of too few."""
    if len(minutes) < _FIRST:
        return None
    values = np.array(minutes)
    level = float(np.median(values))
    together = values[: len(values) // _TOGETHER * _TOGETHER].reshape(-1, _TOGETHER).mean(axis=1)
    apart = (float(np.median(np.abs(values - level))), float(np.median(np.abs(together - np.median(together)))))
    deviation = MAD_TO_SIGMA * max(apart[0], apart[1] * math.sqrt(_TOGETHER))
    deviation = max(deviation, MIN_RELATIVE_SPREAD * level)
    return Reference(level, deviation, ALLOWANCE * deviation)


@dataclass(slots=True)
class Sum:
    """One cumulative sum.

    Attributes:
        value: S.
        is_slow: whether it passed the limit since it was last 0.
        since: rates of the windows at work since it last left 0; none once it is told.
    """

    value: float = 0.0
    is_slow: bool = False
    since: list[float] = field(default_factory=list)

    def add(self, reference: Reference, minute: Sequence[float]) -> None:
        """Take the windows of one minute."""
        below = (reference.level - float(median(minute))) / reference.deviation
        value = self.value + min(below - reference.let_pass / reference.deviation, _MOST)
        # What is slow for hours must not need hours to be over.
        self.value = min(max(value, 0.0), LIMIT)
        was_slow, self.is_slow = self.is_slow, value > LIMIT or (self.is_slow and value > 0)
        if was_slow or self.value <= 0:
            self.since = []
        else:
            self.since = [*self.since, *minute]


@dataclass(slots=True)
class DriftCarry:
    """What a window hands to the next one.

    Attributes:
        minute: rates of the windows at work of the minute that is not full yet.
        learnt, waiting: its own first minutes, and those that the sums have not let pass yet.
        itself: what they teach; None of too few.
        own, of_class: the sums.
    """

    minute: list[float] = field(default_factory=list)
    learnt: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    itself: Reference | None = None
    own: Sum = field(default_factory=Sum)
    of_class: Sum = field(default_factory=Sum)

    def copy(self) -> "DriftCarry":
        """Return a carry that can go its own way."""
        return DriftCarry(
            list(self.minute),
            list(self.learnt),
            list(self.waiting),
            self.itself,
            replace(self.own, since=list(self.own.since)),
            replace(self.of_class, since=list(self.of_class.since)),
        )

    def forget_windows(self) -> None:
        """Let go of the windows until now: another verdict has charged them."""
        self.own.since, self.of_class.since = [], []


@dataclass(frozen=True, slots=True)
class Drift:
    """A run that is slower than its reference.

    Attributes:
        reference: the one with the higher level, of those that it is slower than.
        since: rates of the windows at work since it began, if that was found in this window; empty later on.
    """

    reference: Reference
    since: tuple[float, ...]


def follow(carry: DriftCarry, rate: float, of_the_class: Reference | None) -> Drift | None:
    """Take one window at work, whose rate enters the carry; return the loss that goes on, if there is one."""
    carry.minute.append(rate)
    sums = ((carry.own, carry.itself), (carry.of_class, of_the_class))
    was_slow = carry.own.is_slow or carry.of_class.is_slow
    if len(carry.minute) == MINUTE:
        minute, carry.minute = carry.minute, []
        for one, reference in sums:
            if reference is not None:
                one.add(reference, minute)
        _learn(carry, float(median(minute)))
    slow = [(reference, one.since) for one, reference in sums if reference is not None and one.is_slow]
    if not slow:
        return None
    reference, since = max(slow, key=lambda pair: pair[0].level)
    return Drift(reference, () if was_slow else tuple(since))


def _learn(carry: DriftCarry, minute: float) -> None:
    if len(carry.learnt) >= _LEARNT:
        return
    carry.waiting.append(minute)
    if carry.own.value <= 0 and carry.of_class.value <= 0:
        carry.learnt, carry.waiting = [*carry.learnt, *carry.waiting][:_LEARNT], []
        carry.itself = of_itself(carry.learnt)
