"""Periods of steps: constructed series with a known answer, and an error that is neither too small nor mere caution."""

import numpy as np
import pytest

from analysis.baseline import Floats
from analysis.detectors.training.steps import LEAST_SAMPLES, SHORTEST, step_of

SECONDS = 256
FINE = 50
"""Parts of a second in which the true course is known."""


def bursts(period: float, *, exchanging: float = 0.4, start: float = 0.3, seconds: int = SECONDS) -> Floats:
    """Bytes in windows of a second of a job that sends during a part of each step, 1 on average."""
    at = (np.arange(seconds * FINE) + 0.5) / FINE
    sends = (at / period + start) % 1 < exchanging
    return np.asarray(sends.reshape(seconds, FINE).mean(axis=1) / exchanging, np.float64)


def sampled(series: Floats, packets: float, seed: int) -> Floats:
    """What sFlow makes of it: so many samples a second on average, each worth the same."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.poisson(series * packets) / packets, np.float64)


@pytest.mark.parametrize("period", [2.5, 3.0, 3.5, 4.7, 5.0, 7.3, 12.1, 20.0, 31.7])
@pytest.mark.parametrize("exchanging", [0.3, 0.6])
def test_the_period_is_found_whether_or_not_it_is_whole_seconds(period: float, exchanging: float) -> None:
    step = step_of(bursts(period, exchanging=exchanging) * 1e9)
    assert step is not None
    assert step.period == pytest.approx(period, rel=2e-3)


@pytest.mark.parametrize("period", [3.5, 5.0, 12.1])
def test_the_stated_error_holds_the_truth_nineteen_times_of_twenty(period: float) -> None:
    steps = [step_of(sampled(bursts(period, start=seed / 40), 30, seed)) for seed in range(40)]
    found = [step for step in steps if step is not None]
    assert len(found) == 40
    assert sum(abs(step.period - period) <= step.error for step in found) >= 34
    # And is no more than a few times what the periods really scatter by.
    scatter = float(np.std([step.period for step in found]))
    assert np.median([step.error for step in found]) < 8 * scatter


def test_coarser_sampling_makes_a_larger_error() -> None:
    errors = []
    for packets in (300, 30, 3):
        step = step_of(sampled(bursts(5.0), packets, 7))
        assert step is not None
        assert step.period == pytest.approx(5.0, abs=3 * step.error)
        errors.append(step.error)
    assert errors == sorted(errors)
    assert errors[2] > 4 * errors[0]


def test_noise_has_no_period() -> None:
    found = [step_of(sampled(np.ones(SECONDS), 30, seed)) for seed in range(200)]
    assert sum(step is not None for step in found) <= 1


def test_neither_has_what_wanders_rises_or_stands_still() -> None:
    rng = np.random.default_rng(3)
    wandering = [step_of(np.cumsum(rng.normal(size=SECONDS)) + 100) for _ in range(100)]
    assert sum(step is not None for step in wandering) <= 2
    assert step_of(np.linspace(0, 1e9, SECONDS)) is None
    assert step_of(np.full(SECONDS, 1e9)) is None
    assert step_of(np.zeros(SECONDS)) is None


def test_too_short_a_series_says_nothing() -> None:
    assert step_of(bursts(5.0, seconds=LEAST_SAMPLES - 1)) is None
    # Fewer than six steps.
    assert step_of(bursts(50.0)) is None


@pytest.mark.parametrize("period", [0.9, 1.0, 1.1, 1.95, SHORTEST - 0.05])
def test_steps_too_short_for_windows_of_a_second_are_not_made_up(period: float) -> None:
    assert step_of(sampled(bursts(period), 300, 1)) is None


def test_a_checkpoint_in_the_middle_does_not_hide_the_steps() -> None:
    series = bursts(5.0)
    series[100:130] *= 0.5
    step = step_of(series)
    assert step is not None
    assert step.period == pytest.approx(5.0, abs=0.02)
