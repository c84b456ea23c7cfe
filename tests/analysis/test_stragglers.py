"""Ranking of stragglers on constructed series: deficits that are known, starts that are late by known seconds."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.detectors.training import stragglers
from analysis.detectors.training.stragglers import Field, Ranking, StragglerCarry, lateness, step_shifts
from store.schema import NodeState, Phase

NODES = 8
RATE = 1e10
CENTRE = np.ones(NODES)
SPREAD = np.full(NODES, 0.02)


def field(sent: np.ndarray, phase: np.ndarray | None = None, state: np.ndarray | None = None) -> Field:
    windows = len(sent)
    return Field(
        10,
        sent,
        np.full(sent.shape, NodeState.OK) if state is None else state,
        np.full(windows, Phase.COMPUTE) if phase is None else phase,
        np.ones(windows, np.bool_),
    )


def bytes_of(windows: int, noise: float = 0.01) -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.rint(RATE * rng.normal(1, 0.05, (windows, 1)) * rng.normal(1, noise, (windows, NODES)))


def ranking(seen: Field, centre: np.ndarray = CENTRE) -> Ranking:
    carry = stragglers.follow(StragglerCarry.first(NODES), seen)
    return stragglers.rank(carry, centre, SPREAD)


def test_a_node_that_lacks_one_percent_for_hours_is_first() -> None:
    sent = bytes_of(2000)
    sent[:, 5] *= 0.99
    sent[1000:, 2] *= 0.99
    found = ranking(field(sent))
    assert found.rank[[5, 2]].tolist() == [1, 2]
    assert sorted(found.rank) == list(range(1, NODES + 1))
    assert found.deficit[[5, 2, 0]] == pytest.approx([0.01, 0.005, 0.0], abs=0.002)
    assert found.deficit_bytes[5] == pytest.approx(0.01 * 2000 * RATE, rel=0.2)
    assert found.score[5] == pytest.approx(0.5, abs=0.1)


def test_a_node_is_measured_by_its_own_past() -> None:
    sent = bytes_of(500)
    sent[:, 5] *= 0.6
    centre = np.where(np.arange(NODES) == 5, 0.6, 1.0)
    assert ranking(field(sent), centre).deficit == pytest.approx(np.zeros(NODES), abs=0.004)
    unknown = np.full(NODES, np.nan)
    found = ranking(field(sent), unknown)
    assert (found.rank[5], found.deficit[5]) == (1, pytest.approx(0.4, abs=0.01))
    assert np.isnan(found.score).all()


def test_only_windows_at_work_that_are_steady_and_seen_count() -> None:
    sent = bytes_of(300)
    sent[100:110, 3] = 0
    sent[200:220, 4] = 0
    sent[250:260, 5] = 0
    phase, state = np.full(300, Phase.COMPUTE), np.full(sent.shape, NodeState.OK)
    phase[100:110] = Phase.CHECKPOINT
    state[200:220, 4] = NodeState.BLIND
    seen = field(sent, phase, state)
    steady = np.ones(300, np.bool_)
    steady[250:260] = False
    assert ranking(replace(seen, steady=steady)).deficit == pytest.approx(np.zeros(NODES), abs=0.003)


def test_low_time_is_added_up() -> None:
    state = np.full((100, NODES), NodeState.OK)
    state[10:20, 1] = NodeState.LOW
    state[20:25, 1] = NodeState.DOWN
    assert ranking(field(bytes_of(100), state=state)).low_seconds.tolist() == [0, 150, *[0] * 6]


def test_before_anything_was_seen_nothing_is_known() -> None:
    phase = np.full(20, Phase.IDLE)
    found = ranking(field(np.zeros((20, NODES)), phase))
    assert np.isnan(found.deficit).all()
    assert np.isnan(found.onset_lag).all()


@pytest.mark.parametrize("late", [1.0, 4.0, 12.0])
def test_a_node_that_starts_late_after_pauses_has_that_lag(late: float) -> None:
    sent, phase = bytes_of(400, noise=0.002), np.full(400, Phase.COMPUTE)
    for at in (100, 200, 300):
        phase[at : at + 5] = Phase.CHECKPOINT
        sent[at : at + 5] = 0
        sent[at + 5] *= 0.6  # the cohort goes on 4 s into the window
        # One node goes on later still.
        first, second = min(late, 6.0), max(late - 6.0, 0.0)
        sent[at + 5, 6] -= sent[at + 5, 6] / 6 * first
        sent[at + 6, 6] -= sent[at + 6, 6] / 10 * second
    found = ranking(field(sent, phase))
    assert found.onset_lag[6] == pytest.approx(late, abs=0.4, rel=0.08)
    assert np.delete(found.onset_lag, 6) == pytest.approx(np.zeros(NODES - 1), abs=0.5)


def test_a_start_that_stops_again_tells_nothing() -> None:
    sent, phase = bytes_of(60), np.full(60, Phase.COMPUTE)
    phase[10:15] = phase[18:25] = Phase.CHECKPOINT
    phase[27:] = Phase.IDLE
    assert np.isnan(ranking(field(sent, phase)).onset_lag).all()


def test_lateness_of_a_worked_example() -> None:
    start = np.array([[60.0, 60.0, 20.0], [100.0, 100.0, 100.0]])
    assert lateness(start, np.full(3, 100.0), 10.0).tolist() == [0, 0, 4]
    assert np.isnan(lateness(start, np.array([100.0, 100.0, 0.0]), 10.0)).tolist() == [False, False, True]


def steps(shifts: np.ndarray, seconds: int = 60, period: float = 7.0) -> np.ndarray:
    """[second, node] bytes of bursts of two seconds, each node's moved by its shift."""
    fine = np.arange(seconds * 20) / 20
    burst = ((fine[:, None] - shifts) % period < 2.0).astype(float)
    return 1e9 * burst.reshape(seconds, 20, len(shifts)).mean(axis=1)


def test_steps_that_are_seen_by_the_second_show_who_is_late() -> None:
    shifts = np.array([0, 0, 0, 0, 0.5, 1.5, -1.0, 0])
    found = step_shifts(steps(shifts))
    assert found == pytest.approx(shifts, abs=0.3)
    carry = stragglers.follow(StragglerCarry.first(NODES), field(bytes_of(50)))
    carry = stragglers.look_closer(stragglers.look_closer(carry, steps(shifts)), steps(shifts))
    assert stragglers.rank(carry, CENTRE, SPREAD).onset_lag == pytest.approx(found)


def test_seconds_that_are_not_alike_tell_nothing() -> None:
    rng = np.random.default_rng(5)
    seconds = steps(np.zeros(NODES))
    seconds[:, 3] = rng.uniform(0, 1e9, 60)
    seconds[:, 4] = 0
    found = step_shifts(seconds)
    assert np.isnan(found[[3, 4]]).all()
    assert np.isnan(step_shifts(np.zeros((60, NODES)))).all()
    assert np.isnan(step_shifts(seconds[:10])).all()


@pytest.mark.parametrize("pieces", [[1] * 120, [7] * 18, [50, 1, 69]])
def test_pieces_give_the_same_as_one_stretch(pieces: list[int]) -> None:
    sent, phase, state = bytes_of(120), np.full(120, Phase.COMPUTE), np.full((120, NODES), NodeState.OK)
    phase[30:34] = phase[60:62] = Phase.CHECKPOINT
    phase[80:83] = Phase.BLIND
    sent[34, 2] = np.rint(0.3 * sent[34, 2])
    state[70:75, 1] = NodeState.LOW
    seen = field(sent, phase, state)
    whole = stragglers.follow(StragglerCarry.first(NODES), seen)
    carry, at = StragglerCarry.first(NODES), 0
    for piece in pieces:
        part = slice(at, at + piece)
        carry = stragglers.follow(carry, Field(10, sent[part], state[part], phase[part], seen.steady[part]))
        at += piece
    one, other = (stragglers.rank(each, CENTRE, SPREAD) for each in (whole, carry))
    for name in Ranking.__slots__:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
