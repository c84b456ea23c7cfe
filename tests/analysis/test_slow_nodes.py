"""Slow nodes from passes that are given: long sequences, missed messages and peers that differ are nobody's fault."""

import numpy as np
import numpy.typing as npt
import pytest

from analysis.detectors.roles.slow_nodes import slow_nodes
from analysis.detectors.roles.stage_times import StageTimes

Floats = npt.NDArray[np.float64]
STEPS = 24


def passes(chains: int, *, sequences: float = 0.0, stages: int = 3, seed: int = 1) -> Floats:
    """Return [pipeline, stage, step] seconds; the last stage is long; micro-batches differ by `sequences`."""
    rng = np.random.default_rng(seed)
    usual = np.array([0.15] * (stages - 1) + [0.5])[:, None]
    of_batch = np.exp(sequences * rng.standard_normal((chains, 1, STEPS)))
    return np.asarray(usual * of_batch * np.exp(0.02 * rng.standard_normal((chains, stages, STEPS))), np.float64)


def named(first: Floats, last: Floats | None = None) -> list[tuple[int, int]]:
    """Return pipeline and stage of the slow nodes."""
    nodes = np.arange(first.shape[0] * first.shape[1]).reshape(first.shape[:2])
    times = StageTimes(nodes, first, np.full(first.shape, np.nan) if last is None else last)
    return [(one.chain, one.stage) for one in slow_nodes(times)]


@pytest.mark.parametrize("chains", [2, 16])
def test_a_slow_node_is_named_and_no_other(chains: int) -> None:
    first, last = passes(chains), passes(chains, seed=2)
    assert not named(first.copy(), last.copy())
    for share in (1.1, 1.3, 2.0):
        slow = [one.copy() for one in (first, last)]
        for one in slow:
            one[1, 1] *= share
        assert named(*slow) == [(1, 1)]


def test_long_sequences_are_those_of_the_pipeline() -> None:
    first = passes(16, sequences=0.2, stages=2)
    assert not named(first.copy())
    first[3, 1] *= 1.15
    assert named(first) == [(3, 1)]


def test_steps_with_a_missed_message_are_left_out() -> None:
    rng = np.random.default_rng(3)
    first, last = passes(16), passes(16, seed=2)
    for one in (first, last):
        # A message of three is never sampled: passes look like none, or many times as long.
        missed = rng.random(one.shape) < 0.55
        longer = rng.choice([0.0, 2.0, 3.0, 4.0], p=[0.4, 0.3, 0.2, 0.1], size=int(missed.sum()))
        one[missed] *= longer + 0.05 * rng.random(len(longer))
    assert not named(first.copy(), last.copy())
    for one in (first, last):
        one[5, 1] *= 2
    assert named(first, last) == [(5, 1)]


def test_the_first_forward_pass_holds_more_than_computing() -> None:
    first = passes(16, stages=2)
    first[0, 0] *= 1.1
    assert not named(first.copy())
    first[0, 0] *= 1.1
    assert named(first) == [(0, 0)]
