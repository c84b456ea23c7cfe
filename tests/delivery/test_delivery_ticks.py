"""Which tick is evaluated next, over hours of a clock that only moves when something takes time."""

import pytest

from app.log import Log
from delivery.ticks import Tick, Ticks

REMEMBERED = 420
BEGIN = 1_700_000_000


class Machine:
    """Evaluates what it is told to, at a cost, and does something else in between.

    Args:
        cost: seconds that a tick takes.
        rest: seconds that all else takes, each time.
    """

    def __init__(self, cost: float, rest: float = 1.0) -> None:
        self.now = float(BEGIN)
        self.cost, self.rest = cost, rest
        self.ticks = Ticks(Log(), lambda: self.now)
        self.done: list[Tick] = []
        self.late: list[float] = []
        self.longest_turn = 0.0

    @property
    def end(self) -> int:
        return int(self.now) - int(self.now) % 10

    def run(self, seconds: float) -> None:
        """Take turns for so long, as `Delivery.tick` does."""
        until, due = self.now + seconds, 0.0
        while self.now < until:
            if self.now >= due or self.ticks.is_behind:
                due, began = self.end + 10, self.now
                for tick in self.ticks.until(self.end):
                    self.now += self.cost
                    self.done.append(tick)
                    self.late.append(self.now - tick.moment)
                self.longest_turn = max(self.longest_turn, self.now - began)
            self.now += self.rest

    def moments(self) -> list[int]:
        return [tick.moment for tick in self.done]


def _started(cost: float, rest: float = 1.0, before: int | None = BEGIN - 2000) -> Machine:
    machine = Machine(cost, rest)
    machine.ticks.begin(before, machine.end, REMEMBERED)
    return machine


def test_what_was_missed_is_made_up_for_tick_by_tick(capsys: pytest.CaptureFixture[str]) -> None:
    machine = _started(0.5)
    machine.run(300)
    first, last = BEGIN - 900 - REMEMBERED, machine.moments()[-1]
    assert machine.moments() == list(range(first - first % 10, last + 10, 10))
    assert next(tick.moment for tick in machine.done if tick.is_told) == BEGIN - 900
    assert not any(tick.is_new for tick in machine.done)
    assert machine.late[-1] < 10
    # Nothing else waits for all of it.
    assert machine.longest_turn < 6
    # The process slept, and was not ended.
    before = len(machine.done)
    machine.now += 600
    machine.run(100)
    assert machine.moments()[before:] == list(range(last + 10, machine.moments()[-1] + 10, 10))
    # Nobody knows what became of what waited for so long.
    before = len(machine.done)
    machine.now += 7200
    machine.run(300)
    assert [tick.is_new for tick in machine.done[before:]] == [True] + [False] * (len(machine.done) - before - 1)
    assert machine.moments()[before:] == list(range(machine.moments()[before], machine.moments()[-1] + 10, 10))
    assert machine.late[before] > 880
    assert "ticks_left_out" not in capsys.readouterr().err


def test_a_first_start_has_missed_nothing() -> None:
    machine = _started(0.5, before=None)
    machine.run(60)
    assert next(tick.moment for tick in machine.done if tick.is_told) == BEGIN


@pytest.mark.parametrize(("cost", "rest"), [(12.0, 1.0), (25.0, 3.0), (70.0, 1.0), (8.0, 6.0), (4.0, 30.0)])
def test_a_slow_store_makes_alerts_late_by_little(cost: float, rest: float, capsys: pytest.CaptureFixture[str]) -> None:
    machine = _started(0.2, rest, before=None)
    machine.run(300)
    machine.cost, before = cost, len(machine.done)
    machine.run(7200)
    slow, late = machine.done[before:], machine.late[before:]
    assert max(late) < 2 * (cost + rest) + 70
    # What waits must come to fire.
    assert not any(tick.is_new for tick in slow)
    # No rule is left out because it is never due at the tick that is evaluated.
    reach = [(tick.since, tick.moment) for tick in slow]
    assert all(since == before for (since, _), (_, before) in zip(reach[1:], reach, strict=False))
    told = capsys.readouterr().err
    assert "ticks_left_out" in told
    # When it is quick again, so are they.
    machine.cost, machine.rest, before = 0.2, 1.0, len(machine.done)
    machine.run(300)
    assert max(machine.late[before + 10 :]) < 12


@pytest.mark.parametrize("cost", [12.0, 70.0])
def test_after_an_outage_a_slow_store_is_asked_about_the_present(cost: float) -> None:
    machine = _started(cost)
    machine.run(3 * cost)
    (warm, present), late = machine.done[:2], machine.late[1]
    assert not warm.is_told
    # What it knows is of long ago: what waits begins to wait anew, and every rule is due.
    assert (present.is_told, present.is_new, present.since) == (True, True, 0)
    assert late < cost + 10
    # Also where it is slow only once all was remembered.
    machine = _started(0.1)
    while not any(tick.is_told for tick in machine.done):
        machine.run(1)
    machine.cost, before = cost, len(machine.done)
    machine.run(4 * cost)
    assert [tick.is_new for tick in machine.done[before:]][:3] == [False, True, False]


def test_a_clock_that_was_set_back_is_the_present() -> None:
    machine = _started(0.1, before=None)
    machine.run(60)
    assert list(machine.ticks.until(BEGIN - 3600)) == [Tick(BEGIN - 3600, BEGIN - 3601)]
    assert list(machine.ticks.until(BEGIN - 3590)) == [Tick(BEGIN - 3590, BEGIN - 3600)]


def test_what_could_not_be_kept_is_evaluated_again() -> None:
    """The spool's disk was full: that took time, but not the store's."""
    machine = _started(0.1, before=None)
    machine.run(100)
    last = machine.moments()[-1]
    for _ in range(60):
        machine.now += 10
        turn = machine.ticks.until(machine.end)
        assert next(turn).moment == last + 10
        turn.close()
    machine.run(60)
    assert machine.moments() == list(range(machine.moments()[0], machine.moments()[-1] + 10, 10))
