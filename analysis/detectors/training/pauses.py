"""Short pauses of a run, which are no stall: what they take beyond what its class pauses anyhow.

A window at work misses `1 - rate / level` of its seconds; the level is the median of the last windows at work. A pause
is a row of windows that are idle or miss more than half, or 8 s of two, with what the windows beside it miss. Its
seconds count when it is over, unless it became a stall: that charges all of it.

    excess = seconds paused - (longest pause of the class + its share of pauses x seconds at work)

So a single pause costs what it is longer than usual, and repeated ones add up. Windows are 10 s: a pause is seen from
5 s on if it lies in one window, from 8 s on wherever it lies. An exporter's active timeout smears pauses that are
shorter than itself over the record: with 60 s, where a flow goes on before and after, they are no gap at all.

What a run waits for its checkpoints, and for storage while it reads in its midst, is counted in the same way, each for
itself (``cohort``): a window is one of them, by its phase.
"""

from dataclasses import dataclass

import numpy as np

_HALF, _TOGETHER = 0.5, 0.8
"""Shares of a window: one that misses more is part of a pause, and so are two beside each other."""


@dataclass(frozen=True, slots=True)
class Usual:
    """What earlier good runs paused.

    Attributes:
        longest: seconds; the median over the runs.
        share: of the seconds at work; the median over the runs; NaN where it is not known.
    """

    longest: float = 0.0
    share: float = np.nan


@dataclass(slots=True)
class PauseCarry:
    """What a window hands to the next one; all in seconds.

    Attributes:
        at_work: judged so far, pauses included.
        total: of pauses that are over.
        longest: of those, the longest.
        now: of the one that goes on.
        before: what the last window missed, that may be the begin of one.
        told: charged so far.
    """

    at_work: float = 0.0
    total: float = 0.0
    longest: float = 0.0
    now: float = 0.0
    before: float = 0.0
    told: float = 0.0

    @property
    def share(self) -> float:
        """Share of the seconds at work."""
        return self.total / self.at_work if self.at_work else 0.0

    def interrupt(self) -> None:
        """Forget the pause that goes on: something else explains or charges it."""
        self.now = self.before = 0.0

    def add(self, usual: Usual, window: int, missing: float, *, is_idle: bool) -> float:
        """Take one window; return the seconds to charge.

        Args:
            usual: of the class.
            window: seconds.
            missing: share of its level that the window misses, 0 to 1.
            is_idle: whether nobody is at work.
        """
        seconds = missing * window
        self.at_work += window
        if is_idle or missing > _HALF or self.before + seconds > _TOGETHER * window:
            self.now += self.before + seconds
            self.before = 0.0
            return 0.0
        if not self.now:
            self.before = seconds
            return 0.0
        self.total += self.now + seconds
        self.longest = max(self.longest, self.now + seconds)
        self.now = self.before = 0.0
        # NaN compares as False: of a class whose pauses are not known, none is charged.
        untold = self.total - usual.longest - usual.share * self.at_work - self.told
        if not untold > 0:
            return 0.0
        self.told += untold
        return untold
