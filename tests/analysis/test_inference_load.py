"""The load of inference against earlier weeks, on series with known answers."""

import numpy as np
import pytest

from analysis.detectors.inference.inference_load import (
    AROUND_MINUTES,
    LOAD_MINUTES,
    Expected,
    LoadPolicy,
    expect,
    judge,
    loads,
    week_sample,
)
from store.schema import LoadState

POLICY = LoadPolicy(spreads=6.0, least=0.0, min_weeks=2)
SAMPLE = LOAD_MINUTES + 2 * AROUND_MINUTES


def test_a_load_is_five_minutes() -> None:
    assert loads(np.array([1.0, 2, 4, 8, 16, 32])).tolist() == [31, 62]
    assert len(loads(np.ones(SAMPLE))) == 61, "of the half hour before to the half hour after"


def test_a_week_with_a_minute_unheard_leaves_out_the_loads_that_hold_it() -> None:
    minutes, heard = np.ones(SAMPLE), np.ones(SAMPLE)
    minutes[20] = heard[20] = 0
    sample = week_sample(minutes, heard, POLICY)
    assert sample is not None
    assert (len(sample), set(sample.tolist())) == (56, {5.0})


def test_a_week_of_which_too_little_was_heard_is_not_known() -> None:
    heard = np.ones(SAMPLE)
    heard[20:23] = 0
    assert week_sample(np.ones(SAMPLE), heard, POLICY) is None


def test_a_quiet_hour_is_known_to_be_quiet() -> None:
    sample = week_sample(np.zeros(SAMPLE), np.ones(SAMPLE), POLICY)
    assert sample is not None
    assert sample.sum() == 0


def test_the_formulas() -> None:
    """Levels 100, 110, 130: expected 110. Deviations 4, 4, 4: within 1.4826 * 4; between 1.4826 * median(10, 0, 20)."""
    weeks = [np.array([level - 4, level - 4, level, level + 4, level + 4]) for level in (100.0, 110.0, 130.0)]
    found = expect(weeks, POLICY)
    assert found.centre == 110
    assert found.spread == pytest.approx(1.4826 * np.hypot(4, 10))
    assert found.weeks == 3


def test_a_service_without_variance_has_a_tenth() -> None:
    assert expect([np.full(61, 200.0)] * 4, POLICY).spread == 20


def test_the_least_bytes_are_a_floor_of_the_limit() -> None:
    """20 MB above what is expected, however quiet the service is."""
    policy = LoadPolicy(spreads=4.0, least=20e6, min_weeks=2)
    past = expect([np.full(61, 1000.0)] * 3, policy)
    (verdict,) = judge(np.array([0.0]), [past], policy)
    assert verdict.upper == 1000 + 20e6


def test_one_odd_week_does_not_move_it() -> None:
    weeks = [np.full(61, 100.0)] * 4 + [np.full(61, 5000.0)]
    assert expect(weeks, POLICY) == Expected(100, 10, 5)


def test_no_week_is_no_number() -> None:
    found = expect([], POLICY)
    assert (np.isnan(found.centre), found.weeks) == (True, 0)


def test_verdicts_and_how_long() -> None:
    """Expected 100, spread 10: above 160 is a spike; 160 itself is not."""
    past = Expected(100, 10, 2)
    found = judge(np.array([100.0, 160, 161, 400, 300, 160, 500]), [past] * 7, POLICY)
    ok, spike = LoadState.OK, LoadState.SPIKE
    assert [verdict.state for verdict in found] == [ok, ok, spike, spike, spike, ok, spike]
    assert [verdict.spike_for for verdict in found] == [0, 0, 0, 60, 120, 0, 0]
    assert found[3].score == 30
    assert found[3].upper == 160


def test_less_than_expected_is_no_spike() -> None:
    (verdict,) = judge(np.array([0.0]), [Expected(100, 10, 6)], POLICY)
    assert (verdict.state, verdict.score) == (LoadState.OK, -10)


def test_with_too_few_weeks_it_learns() -> None:
    (verdict,) = judge(np.array([1e12]), [Expected(100, 10, 1)], POLICY)
    assert (verdict.state, verdict.weeks, verdict.spike_for) == (LoadState.LEARNING, 1, 0)
    assert np.isnan([verdict.expected, verdict.upper, verdict.score]).all()


def test_half_an_hour_is_the_longest_it_remembers() -> None:
    found = judge(np.full(40, 1e9), [Expected(100, 10, 2)] * 40, POLICY)
    assert found[-1].spike_for == 1800


def test_daily_noise_of_weeks_seldom_spikes() -> None:
    """Requests come as they like (gamma with 5 % spread) around a level that differs by 10 % from week to week."""
    rng = np.random.default_rng(3)
    spikes = 0
    for _ in range(200):
        weeks = [rng.normal(1, 0.1) * loads(rng.gamma(400, 1e6 / 400, SAMPLE)) for _ in range(6)]
        now = rng.normal(1, 0.1) * loads(rng.gamma(400, 1e6 / 400, SAMPLE))
        past = expect(weeks, POLICY)
        spikes += sum(verdict.state == LoadState.SPIKE for verdict in judge(now, [past] * len(now), POLICY))
    assert spikes == 0
