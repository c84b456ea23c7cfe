"""Which tick the rules are evaluated at next: those that were missed one by one, or the present one.

After an outage or a restart all that were missed are made up for: what began and ended meanwhile is told of, and what
waits, or keeps firing, is known. But a store that is slower than the clock would have every alert late by all that it
is behind, for good. Then the present goes first, and what was missed is left out, as Grafana does it.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.log import Log
from rules.rule import INTERVAL_SECONDS

_CATCH_UP_SECONDS = 900
"""How far back rules are evaluated after a pause, for alerts that began and ended meanwhile."""

_TURN_SECONDS = 5.0
"""After so long the rest has its turn: heartbeats, findings, a stop."""

_SHARE, _LEAST_SECONDS = 0.25, 30.0
"""Of the time that was missed: making up for it may take so long in all."""

_LONGEST_GAP_SECONDS = 120
"""Over a longer gap nobody can say that what waited, waited all the time."""

_STARTING_SECONDS = 120
"""After the very first start: what has no data yet may be starting, too, and has not stopped."""

_NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick that is to be evaluated.

    Attributes:
        moment: its epoch second.
        since: rules that were due after it, and are not yet evaluated, are due now.
        is_told: whether alerts are told of; else an evaluator only remembers what fires.
        is_new: whether it takes a new evaluator: what is known is of too long ago.
    """

    moment: int
    since: int
    is_told: bool = True
    is_new: bool = False


class Ticks:
    """Says what is evaluated next.

    Args:
        log: told what is left out.
        clock: monotonic seconds.

    Attributes:
        is_behind: whether ticks were left for the next turn.
        told_from: the first tick of which alerts are told.
        starting_until: epoch second up to which all may be starting for the first time; 0 after a restart.
    """

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self.told_from = self._last = 0
        self._took = 0.0
        # When making up for what was missed has taken too long; never while nothing is missed.
        self._ends = _NEVER
        self.is_behind = False
        self.starting_until = 0

    def begin(self, before: int | None, end: int, remembered: int) -> None:
        """Begin with an evaluator that knows nothing.

        Args:
            before: the last tick whose alerts were told of, if there was one.
            end: the present tick.
            remembered: seconds for which an evaluation can matter to a later one.
        """
        missed = end if before is None else max(before + INTERVAL_SECONDS, end - _CATCH_UP_SECONDS)
        self.told_from = min(missed, end)
        if before is None:
            self.starting_until = end + _STARTING_SECONDS
        first = self.told_from - remembered
        self._last = first - first % INTERVAL_SECONDS - INTERVAL_SECONDS
        self._took, self.is_behind = 0.0, False

    def until(self, end: int) -> Iterator[Tick]:
        """Yield ticks up to the present one, or for as long as a turn may last. What is evaluated asks for the next."""
        if not self.is_behind:
            self._ends = _NEVER
        self.is_behind = False
        began = self._clock()
        while True:
            tick, started = self._next(end), self._clock()
            yield tick
            self._last, self._took = tick.moment, self._clock() - started
            if tick.moment == end:
                return
            if self._clock() - began > _TURN_SECONDS:
                self.is_behind = True
                return

    def _next(self, end: int) -> Tick:
        moment = self._last + INTERVAL_SECONDS
        is_told, is_new = moment >= self.told_from, False
        if is_told:
            # One that slept for long goes on as a new one would, of which as much is asked.
            is_new = self._ends == _NEVER and moment < end - _CATCH_UP_SECONDS
            # A clock that was set back has the present come before the last.
            moment = min(end - _CATCH_UP_SECONDS if is_new else moment, end)
            self.told_from = min(self.told_from, moment)
        if moment == end:
            self._ends = _NEVER
        elif self._ends == _NEVER:
            self._ends = self._clock() + max(_SHARE * (end - moment), _LEAST_SECONDS)
        if moment < end and (self._took > INTERVAL_SECONDS or self._clock() > self._ends):
            self._log.sparse(
                "ticks_left_out",
                seconds=end - moment,
                a_tick_takes=self._took,
                why="evaluating the rules takes longer than their interval: alerts of now come first",
            )
            # A gap no longer than what the store takes anyway must not have what waits begin again each time.
            is_new = not is_told or end - self._last > max(_LONGEST_GAP_SECONDS, 2 * self._took)
            moment = self.told_from = end
            is_told = True
        return Tick(moment, 0 if is_new else min(self._last, moment - 1), is_told, is_new)
