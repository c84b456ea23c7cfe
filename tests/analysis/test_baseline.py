"""Baselines of constructed runs with known answers."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.baseline import (
    MAD_TO_SIGMA,
    MIN_RELATIVE_SPREAD,
    QUANTILES,
    RunSummary,
    centre_and_spread,
    centres_and_spreads,
    learn,
    quantiles_of,
)

NO_NOISE = np.array([np.nan])


def run(values: list[np.ndarray], *, flaw: str = "", level: float = 100.0) -> RunSummary:
    nodes = tuple(f"n{number}" for number in range(len(values)))
    quantiles = quantiles_of(np.array(values).T, min_windows=3)
    return RunSummary(nodes, quantiles, np.full(len(values), np.nan), level, flaw)


def test_scaled_mad_of_normal_data_is_its_standard_deviation() -> None:
    sample = np.random.default_rng(1).normal(1.0, 0.1, (1, 200_000))
    centre, spread = centre_and_spread(sample, NO_NOISE)
    assert centre == pytest.approx(1.0, abs=0.001)
    assert spread == pytest.approx(0.1, rel=0.01)


def test_spread_of_a_worked_example() -> None:
    # Pooled: 0.8 0.9 1.0 1.1 1.2 1.2 1.3 1.4 1.5 1.6; median 1.2; deviations' median 0.2; run medians 1.0 and 1.4.
    runs = np.array([[0.8, 0.9, 1.0, 1.1, 1.2], [1.2, 1.3, 1.4, 1.5, 1.6]])
    centre, spread = centre_and_spread(runs, NO_NOISE)
    assert centre == pytest.approx(1.2)
    assert spread == pytest.approx(math.hypot(MAD_TO_SIGMA * 0.2, np.std([1.0, 1.4], ddof=1)))


def test_a_third_of_wild_ratios_hardly_moves_the_baseline() -> None:
    rng = np.random.default_rng(2)
    clean = rng.normal(1.0, 0.03, (5, 300))
    dirty = clean.copy()
    dirty[:, :90] = 0.1
    centre, spread = centre_and_spread(dirty, NO_NOISE)
    assert centre == pytest.approx(1.0, abs=0.03)
    assert spread < 0.1
    assert np.std(dirty) > 0.4


def test_zero_variance_still_has_a_spread() -> None:
    centre, spread = centre_and_spread(np.full((3, 50), 0.6), NO_NOISE)
    assert (centre, spread) == pytest.approx((0.6, MIN_RELATIVE_SPREAD * 0.6))


def test_sampling_noise_is_a_floor() -> None:
    assert centre_and_spread(np.ones((2, 20)), np.array([0.05, 0.07]))[1] == pytest.approx(0.06)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 10.0), min_size=4, max_size=40), st.floats(0.01, 100.0))
def test_baseline_scales_with_the_ratios(values: list[float], factor: float) -> None:
    centre, spread = centre_and_spread(np.array([values]), NO_NOISE)
    scaled = centre_and_spread(np.array([values]) * factor, NO_NOISE)
    assert scaled == pytest.approx((centre * factor, spread * factor), rel=1e-9)


def test_the_newest_good_runs_count_and_bad_ones_do_not() -> None:
    steady = [np.full(20, value) for value in (1.0, 1.0)]
    runs = [
        run(steady),
        run([np.full(20, 9.0), np.full(20, 9.0)], flaw="ended early"),
        run(steady),
        run([np.full(20, 5.0), np.full(20, 5.0)]),
    ]
    baseline = learn(("n1", "n0", "stranger"), runs, max_runs=2)
    assert baseline.runs.tolist() == [2, 2, 0]
    assert baseline.centre[:2] == pytest.approx([1.0, 1.0])
    assert np.isnan(baseline.centre[2])
    assert baseline.level == 100.0


def test_a_node_that_missed_a_run_learns_from_an_older_one() -> None:
    short = np.array([1.0, 1.0, *[np.nan] * 18])
    runs = [run([short]), run([np.full(20, 0.7)])]
    baseline = learn(("n0",), runs, max_runs=1)
    assert (baseline.runs[0], baseline.centre[0]) == (1, pytest.approx(0.7))


def test_quantiles_keep_the_shape_of_a_run() -> None:
    sample = np.random.default_rng(3).gamma(4.0, 0.25, 5000)
    kept = quantiles_of(sample[:, None], 3)[0]
    assert kept.shape == (QUANTILES,)
    assert np.median(kept) == pytest.approx(np.median(sample))
    assert np.quantile(kept, 0.25) == pytest.approx(np.quantile(sample, 0.25), rel=0.01)


def test_a_summary_survives_storage() -> None:
    one = run([np.linspace(0, 1, 30), np.full(20, np.nan).repeat(2)[:30]], flaw="too short")
    again = RunSummary.read(json.loads(json.dumps(one.memory())))
    np.testing.assert_allclose(again.quantiles, one.quantiles, rtol=1e-6)
    np.testing.assert_array_equal(again.noise, one.noise)
    assert (again.nodes, again.level, again.flaw) == (one.nodes, one.level, "too short")


def falling(runs: int, lost: float, noise: float = 0.002) -> np.ndarray:
    """Runs, the newest first, each of which lost a share of the one before."""
    rng = np.random.default_rng(7)
    return np.array([(1 - lost) ** number * rng.normal(1, noise, 50) for number in reversed(range(runs))])


def test_a_decay_of_one_percent_a_run_is_not_learnt() -> None:
    runs = falling(10, 0.01)
    centre, spread = centre_and_spread(runs, np.full(10, np.nan))
    assert centre == pytest.approx(1.0, abs=0.005)
    assert spread == pytest.approx(0.02, abs=0.002)
    assert np.median(runs[0]) < centre - 4 * spread


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        (falling(10, -0.01), "it rises"),
        (falling(5, 0.01), "too few runs"),
        (falling(10, 0.001), "too little"),
        (np.array([(0.9 if number % 2 else 1.0) + np.zeros(50) for number in range(10)]), "it only scatters"),
    ],
)
def test_what_is_no_decay(runs: np.ndarray, why: str) -> None:
    centre, _ = centre_and_spread(runs, np.full(len(runs), np.nan))
    assert centre == pytest.approx(np.median(runs)), why


def test_scattered_runs_are_hardly_ever_taken_for_a_decay() -> None:
    rng = np.random.default_rng(11)
    values = np.repeat(rng.normal(1.0, 0.03, (8, 20_000))[:, :, None], 3, axis=2)
    centre, _ = centres_and_spreads(values, np.full((8, 20_000), np.nan))
    assert (np.abs(centre - np.median(values, axis=(0, 2))) > 1e-9).mean() < 0.003


def test_nodes_that_missed_different_runs_are_learnt_each_by_its_own() -> None:
    rng = np.random.default_rng(5)
    runs = [run([rng.normal(1 + 0.1 * node, 0.02, 40) for node in range(4)]) for _ in range(5)]
    runs[1].quantiles[2] = np.nan
    runs[3].quantiles[0] = np.nan
    together = learn(tuple(f"n{node}" for node in range(4)), runs, max_runs=4)
    for node in range(4):
        alone = learn((f"n{node}",), runs, max_runs=4)
        assert (together.centre[node], together.spread[node]) == (alone.centre[0], alone.spread[0])
        assert together.runs[node] == 4


def test_a_run_in_which_a_node_died_unjudged_teaches_nothing_about_it() -> None:
    """While a class is learnt nobody judges: 70 % of the third run is missing here, of one node."""
    rng = np.random.default_rng(5)
    good = [rng.normal(1.0, 0.01, 100) for _ in range(8)]
    dead = np.where(np.arange(100) < 30, good[0], 0.0)
    runs = [run([good[0], dead]), run([good[1], good[2]]), run([good[3], good[4]]), run([good[5], good[6]])]
    baseline = learn(("n0", "n1"), runs, 10)
    assert baseline.runs.tolist() == [4, 3]
    assert baseline.spread == pytest.approx([0.02, 0.02], rel=0.01)
    # Among two runs nobody knows which is right.
    assert learn(("n0", "n1"), runs[:2], 10).spread[1] > 0.5
