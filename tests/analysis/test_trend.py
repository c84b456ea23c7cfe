"""Theil and Sen's slope on series with known answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.detectors.fabric.capacity import theil_sen


def of(*values: float, x: list[float] | None = None) -> tuple[float, float]:
    trend = theil_sen(np.array(x or range(len(values)), float), np.array([values], float).T)
    return float(trend.slope[0]), float(trend.lower[0])


def test_a_line_has_its_slope_and_no_doubt() -> None:
    assert of(1, 3, 5, 7, 9, 11, 13) == (2, 2)


def test_days_that_are_missing_do_not_bend_it() -> None:
    assert of(0, 10, 60, 80, 90, 100, 140, x=[0, 1, 6, 8, 9, 10, 14]) == (10, 10)


def test_odd_days_do_not_move_it() -> None:
    """Two of ten days are wild; least squares would give -25 a day."""
    values = [10.0, 11, 12, 500, 14, 15, 16, 17, 18, -300]
    assert of(*values)[0] == 1


def test_the_definitions_of_slope_and_confidence() -> None:
    """Of eight days there are 28 slopes: the median is between the 14th and 15th."""
    x, y = [1.0, 2, 3, 4, 5, 6, 7, 8], [10.0, 15, 14, 20, 18, 25, 22, 30]
    slopes = sorted((y[j] - y[i]) / (x[j] - x[i]) for i in range(8) for j in range(i + 1, 8))
    slope, lower = of(*y, x=x)
    assert slope == pytest.approx((slopes[13] + slopes[14]) / 2)
    # N = 28, C = 1.96 * sqrt(8 * 7 * 21 / 18) = 15.8: number (28 - 15.8) / 2 = 6.08, the sixth.
    assert lower == pytest.approx(slopes[5])


def test_noise_around_a_level_rises_seldom() -> None:
    """The confidence is two-sided 95 %: of 400 series without a trend about 2.5 % seem to rise."""
    rng = np.random.default_rng(7)
    trend = theil_sen(np.arange(30.0), rng.normal(100, 5, (30, 400)))
    assert 0 < np.mean(trend.lower > 0) < 0.05
    rising = theil_sen(np.arange(30.0), rng.normal(100, 5, (30, 400)) + np.arange(30.0)[:, None])
    assert np.mean(rising.lower > 0) > 0.95
    assert np.median(rising.slope) == pytest.approx(1.0, abs=0.05)


def test_two_days_say_nothing_surely() -> None:
    assert of(1, 2) == (1, -np.inf)


def test_no_series_no_slope() -> None:
    assert len(theil_sen(np.arange(9.0), np.zeros((9, 0))).slope) == 0


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=12), st.floats(-1e3, 1e3), st.floats(-1e6, 1e6))
@settings(max_examples=100, deadline=None)
def test_a_line_on_top_adds_its_slope(values: list[float], slope: float, level: float) -> None:
    x = np.arange(len(values), dtype=float)
    y = np.array([values]).T
    plain, tilted = theil_sen(x, y), theil_sen(x, y + level + slope * x[:, None])
    assert tilted.slope[0] == pytest.approx(plain.slope[0] + slope, rel=1e-6, abs=1e-3)
