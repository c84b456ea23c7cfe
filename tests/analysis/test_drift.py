"""Losses by little that last, on constructed series with known answers."""

import numpy as np
import pytest

from analysis.detectors.training import cohort, drift, stalls
from analysis.detectors.training.cohort import CohortCarry, CohortPolicy, Look, Verdicts
from analysis.detectors.training.drift import DriftCarry, Reference, Sum
from analysis.detectors.training.stalls import Payer, Waiting
from store import schema
from store.schema import CohortState
from tests.analysis.test_cohort import KNOWN, RATE, T0, calm, job, look, rates, subject, taught, verdicts

HOUR = 360


def slow_hour(seed: int, noise: float, share: float = 0.9) -> np.ndarray:
    """Two hours as ever, one slower, one as ever."""
    rate = rates(4 * HOUR, noise, seed)
    rate[2 * HOUR : 3 * HOUR] *= share
    return rate


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.06])
@pytest.mark.parametrize("seed", range(3))
def test_ten_percent_for_an_hour_is_told_within_20_minutes_and_costs_3000_dollars(noise: float, seed: int) -> None:
    found = verdicts(look(slow_hour(seed, noise)))
    assert set(found.state[: 2 * HOUR]) == {CohortState.OK}
    first = int(np.flatnonzero(found.state == CohortState.SLOW)[0])
    assert (first + 1 - 2 * HOUR) * 10 <= 1200
    # It is over ten minutes after it was.
    assert set(found.state[3 * HOUR + 60 :]) == {CohortState.OK}
    payer = Payer(job(), 10, gpus=1024, usd_per_gpu_hour=30.0)
    ledger = stalls.judge(payer, Waiting.first(8), calm(4 * HOUR), found, T0)[1]
    charged = sum(rows[schema.USD.name].sum() for rows in ledger)
    assert charged == pytest.approx(3072, rel=0.1)


@pytest.mark.thorough
def test_a_month_of_clean_jobs_is_quiet() -> None:
    """30 days in runs of a day; minutes are like those beside them (AR(1), 0.5), and runs differ by 1 %."""
    chance = np.random.default_rng(7)
    earlier: list[dict[str, object]] = []
    alarms = 0
    for _ in range(30):
        noise = chance.normal(0, 0.03, 24 * HOUR)
        for at in range(1, len(noise)):
            noise[at] += 0.5 * noise[at - 1]
        rate = RATE * chance.normal(1, 0.01) * (1 + noise)
        one = subject(cohort.learn(8, earlier, 10, CohortPolicy()), windows=len(rate))
        carry, found = cohort.judge(one, CohortCarry(), look(rate))
        alarms += int(found.changed[found.state == CohortState.SLOW].sum())
        earlier.insert(0, dict(cohort.remembered(one, carry)))
    assert alarms <= 1


def test_a_run_that_is_slower_from_its_start_is_compared_with_its_class() -> None:
    earlier = [taught(rates(600, 0.03, seed) * share) for seed, share in enumerate((0.99, 1, 1.01, 1, 0.995, 1.005))]
    expected = cohort.learn(8, earlier, 10, CohortPolicy())
    slower, alike = rates(HOUR, 0.03, 20) * 0.88, rates(HOUR, 0.03, 20) * 0.985
    assert CohortState.SLOW in set(verdicts(look(slower), subject(expected)).state)
    assert set(verdicts(look(alike), subject(expected)).state) == {CohortState.OK}
    # Five runs say too little of what the next may be.
    assert cohort.learn(8, earlier[:5], 10, CohortPolicy()).lasting is None


def test_the_limit_shown_is_that_of_the_reference() -> None:
    found = verdicts(look(slow_hour(1, 0.02)))
    slow = found.state == CohortState.SLOW
    assert np.all(found.expected[slow] == pytest.approx(RATE, rel=0.02))
    assert np.all(found.rate[slow][40:-60] < found.lower[slow][40:-60])
    assert set(found.expected[~slow]) == {KNOWN.rate}


def test_the_run_length_without_a_fault_is_what_was_wanted() -> None:
    """Simulated with a small limit, for which it is short: within a fifth of Siegmund's formula."""
    limit = drift.limit_of(200, 0.5)
    chance, lengths = np.random.default_rng(3), []
    for _ in range(400):
        value, length = 0.0, 0
        while value <= limit:
            value, length = max(value + chance.normal() - 0.5, 0.0), length + 1
        lengths.append(length)
    assert np.mean(lengths) == pytest.approx(200, rel=0.2)
    assert drift.limit_of(1e6, 1.0) == pytest.approx(6.09, abs=0.05)


def test_one_bad_minute_proves_nothing() -> None:
    one, reference = Sum(), Reference(100.0, 2.0, 2.0)
    one.add(reference, [1.0] * 6)
    assert not one.is_slow
    for _ in range(3):
        one.add(reference, [1.0] * 6)
    assert one.is_slow
    assert len(one.since) == 24


def test_pieces_give_the_same_as_one_stretch() -> None:
    rate = slow_hour(2, 0.05)
    whole = verdicts(look(rate))
    carry, parts = CohortCarry(), []
    for at in range(0, len(rate), 7):
        seen = look(rate[at : at + 7])
        before = carry.copy()
        piece = Look(T0 + at * 10, seen.phase, seen.rate, seen.low, seen.blind)
        carry, found = cohort.judge(subject(), carry, piece)
        cohort.judge(subject(), before, piece)
        parts.append(found)
    for name in Verdicts.__slots__:
        np.testing.assert_array_equal(np.concatenate([getattr(one, name) for one in parts]), getattr(whole, name))


def test_its_own_minutes_are_learnt_unless_they_are_slower() -> None:
    carry = DriftCarry()
    steady = rates(2 * HOUR, 0.02, 4)
    for rate in steady:
        drift.follow(carry, float(rate), None)
    assert len(carry.learnt) == 60
    assert np.median(carry.learnt) == pytest.approx(RATE, rel=0.01)
