"""The verdict on whole cohorts, on constructed series, and what it costs."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from analysis.detectors.rows import Rows
from analysis.detectors.training import cohort, stalls
from analysis.detectors.training.cohort import CohortCarry, CohortPolicy, Expectation, Look, Subject, Verdicts
from analysis.detectors.training.stalls import Payer, Waiting
from analysis.kept import Kept
from cluster.model import Job
from store import schema
from store.points import WINDOW
from store.schema import Cause, CohortState, NodeState, Phase

T0 = 1_760_000_000
NODES = tuple(f"n{number}" for number in range(8))
RATE = 1e9
OK, SLOW, STALLED, BLIND = CohortState.OK, CohortState.SLOW, CohortState.STALLED, CohortState.BLIND
LEARNING, ENDED = CohortState.LEARNING, CohortState.ENDED
KNOWN = Expectation(rate=RATE, spread=0.04 * RATE, runs=5)
NOBODY_LOW = np.zeros(0, np.int64)


def job(windows: int | None = None, nodes: tuple[str, ...] = NODES) -> Job:
    end = None if windows is None else datetime.fromtimestamp(T0 + windows * 10, UTC)
    return Job("now", "llm", nodes, datetime.fromtimestamp(T0, UTC), end)


def subject(expected: Expectation = KNOWN, windows: int | None = None) -> Subject:
    return Subject(job(windows), 10, expected, spreads=4.0, min_runs=3)


def rates(windows: int, noise: float = 0.05, seed: int = 1) -> np.ndarray:
    return RATE * np.random.default_rng(seed).normal(1, noise, windows)


def look(
    rate: np.ndarray,
    phase: np.ndarray | None = None,
    low: np.ndarray = NOBODY_LOW,
    blind: np.ndarray | None = None,
) -> Look:
    phases = np.where(rate > 0.25 * RATE, Phase.COMPUTE, Phase.IDLE) if phase is None else phase
    lows = low if len(low) else np.zeros(len(rate), np.int64)
    return Look(T0, phases, rate, lows, np.zeros(len(rate), np.bool_) if blind is None else blind)


def verdicts(seen: Look, one: Subject | None = None) -> Verdicts:
    return cohort.judge(one or subject(), CohortCarry(), seen)[1]


def taught(rate: np.ndarray, windows: int | None = None) -> dict[str, object]:
    one = subject(Expectation(), windows or len(rate))
    return dict(cohort.remembered(one, cohort.judge(one, CohortCarry(), look(rate))[0]))


def test_an_ordinary_run_is_quiet() -> None:
    found = verdicts(look(rates(500)))
    assert set(found.state) == {OK}
    assert found.slow_seconds.sum() == found.stalled_seconds.sum() == 0


def test_a_cohort_that_falls_to_70_percent_is_slow_within_a_minute() -> None:
    rate = rates(120)
    rate[60:] *= 0.7
    found = verdicts(look(rate))
    assert set(found.state[:62]) == {OK}
    assert set(found.state[66:]) == {SLOW}
    assert found.state_for[-1] == pytest.approx(600, abs=20)
    # 30 % of ten minutes, whenever it was told.
    assert found.slow_seconds.sum() == pytest.approx(0.3 * 600, rel=0.1)
    assert found.lost[-1] == pytest.approx(found.slow_seconds.sum())


def test_a_cohort_a_little_slower_is_quiet() -> None:
    rate = rates(300)
    rate[100:] *= 0.98
    assert set(verdicts(look(rate)).state) == {OK}


def test_slowness_ends_and_begins_anew_without_being_told_twice() -> None:
    rate = rates(300, noise=0.01)
    rate[60:120] *= 0.7
    rate[180:240] *= 0.7
    found = verdicts(look(rate))
    assert set(found.state[130:180]) == {OK}
    assert found.slow_seconds.sum() == pytest.approx(2 * 0.3 * 600, rel=0.15)
    hovering = rates(300, noise=0.01)
    hovering[60:] *= np.where(np.arange(240) // 12 % 2, 0.88, 0.82)
    found = verdicts(look(hovering))
    assert {OK, SLOW} <= set(found.state[80:])
    assert found.slow_seconds.sum() <= 0.16 * 2400


@pytest.mark.parametrize(("runs", "state"), [(0, LEARNING), (2, LEARNING), (3, SLOW)])
def test_too_few_runs_is_learning(runs: int, state: int) -> None:
    rate = rates(100)
    rate[50:] *= 0.5
    expected = replace(KNOWN, runs=runs) if runs else Expectation()
    assert verdicts(look(rate), subject(expected)).state[-1] == state


def test_a_stop_is_stalled_after_a_minute_and_counts_from_its_begin() -> None:
    rate = rates(100)
    rate[50:] = 0
    found = verdicts(look(rate))
    assert found.state[49:58].tolist() == [OK] * 7 + [STALLED] * 2
    assert np.flatnonzero(found.changed).tolist() == [56]
    assert found.state_for[56] == 70
    assert found.state_for[-1] == 500
    assert found.stalled_seconds[56] == 70
    assert found.stalled_seconds.sum() == 500
    assert found.slow_seconds.sum() == 0


def test_a_crawl_is_slow_not_stalled() -> None:
    rate = rates(100)
    rate[50:] *= 0.1
    assert set(verdicts(look(rate)).state[56:]) == {SLOW}


@pytest.mark.parametrize("runs", [0, 3])
def test_a_cohort_whose_median_node_sends_nothing_is_judged_all_the_same(runs: int) -> None:
    """Records are few, or a few nodes do all the talking: the analysis ended, and again at each start."""
    rate, phases = np.zeros(200), np.full(200, Phase.COMPUTE)
    phases[100:] = Phase.IDLE
    seen = look(rate, phases)
    before = subject(Expectation(), 200)
    memory = dict(cohort.remembered(before, cohort.judge(before, CohortCarry(), seen)[0]))
    now = subject(cohort.learn(len(NODES), [memory] * runs, 10, CohortPolicy()))
    for pace in (None, np.full(200, 0.5)):
        found = verdicts(replace(seen, pace=pace), now)
        assert set(found.state[:100]) == {LEARNING}
        assert found.state[-1] == STALLED
        assert found.pause_seconds.sum() == found.slow_seconds.sum() == 0


@pytest.mark.parametrize("phase", [Phase.CHECKPOINT, Phase.LOAD])
def test_checkpoints_and_loading_are_neither_slow_nor_stalled(phase: int) -> None:
    rate = rates(200)
    rate[60:120] *= 0.01
    phases = np.full(200, Phase.COMPUTE)
    phases[60:120] = phase
    found = verdicts(look(rate, phases))
    assert set(found.state) == {OK}
    assert found.stalled_seconds.sum() == 0


def test_a_slow_cohort_stays_slow_through_a_checkpoint_while_its_clock_stands_still() -> None:
    rate = rates(200, noise=0.01)
    rate[60:] *= 0.6
    phases = np.full(200, Phase.COMPUTE)
    phases[100:120] = Phase.CHECKPOINT
    found = verdicts(look(rate, phases))
    assert set(found.state[70:]) == {SLOW}
    assert set(found.state_for[99:121]) == {found.state_for[99]}
    assert found.slow_seconds[100:120].sum() == 0


def test_windows_cut_short_by_checkpoints_do_not_make_a_cohort_slow() -> None:
    rate, phases = rates(600, noise=0.02), np.full(600, Phase.COMPUTE)
    for at in range(20, 600, 30):
        rate[at - 1] *= 0.4
        rate[at : at + 3] = 0
        phases[at : at + 3] = Phase.CHECKPOINT
    assert set(verdicts(look(rate, phases)).state) == {OK}


def test_pauses_that_earlier_runs_had_are_none() -> None:
    rate = rates(200)
    rate[60:80] = 0
    assert STALLED in set(verdicts(look(rate)).state)
    assert set(verdicts(look(rate), subject(replace(KNOWN, pause=150.0))).state) == {OK}


def test_while_a_class_is_learnt_only_long_pauses_are_stalls() -> None:
    rate = rates(200)
    rate[60:80] = 0
    rate[100:] = 0
    found = verdicts(look(rate), subject(Expectation()))
    assert set(found.state[:130]) == {LEARNING}
    assert found.state[-1] == STALLED


def test_a_job_may_take_its_time_to_start() -> None:
    rate = rates(200)
    rate[:85] = 0
    assert set(verdicts(look(rate)).state) == {OK}
    rate[:150] = 0
    found = verdicts(look(rate))
    assert found.state[97:99].tolist() == [STALLED] * 2
    assert found.stalled_seconds.sum() == pytest.approx(1500 - 900, abs=10)
    assert set(verdicts(look(rate), subject(replace(KNOWN, start_up=800.0))).state) == {OK}


def test_a_job_that_never_computes_is_stalled_only_if_its_class_is_known_to() -> None:
    assert STALLED in set(verdicts(look(np.zeros(300))).state)
    assert set(verdicts(look(np.zeros(300)), subject(Expectation())).state) == {LEARNING}


def test_blind_is_never_stalled_and_stops_the_clocks() -> None:
    rate, blind = rates(200), np.zeros(200, np.bool_)
    rate[60:] = 0
    blind[64:150] = True
    found = verdicts(look(rate, blind=blind))
    assert set(found.state[64:150]) == {BLIND}
    assert found.stalled_seconds.sum() == 10 * (200 - 60 - 86)
    assert set(verdicts(look(rate), replace(subject(), sees_compute=False)).state) == {BLIND}


def test_the_last_window_has_ended_and_the_last_seconds_are_no_stall() -> None:
    rate = rates(100)
    rate[92:] = 0
    found = verdicts(look(rate), subject(windows=100))
    assert found.state[-1] == ENDED
    assert set(found.state[:-1]) == {OK}


def test_a_cohort_that_waits_for_a_low_node_is_not_slow() -> None:
    rate, low = rates(120), np.zeros(120, np.int64)
    rate[60:] *= 0.6
    low[60:] = 1
    assert set(verdicts(look(rate, low=low)).state) == {OK}
    # One that was slow before stays slow.
    low[:90] = 0
    assert set(verdicts(look(rate, low=low)).state[70:]) == {SLOW}


@pytest.mark.parametrize("pieces", [[1] * 200, [7] * 29, [50, 1, 149]])
def test_pieces_give_the_same_as_one_stretch(pieces: list[int]) -> None:
    rate, low, blind = rates(200), np.zeros(200, np.int64), np.zeros(200, np.bool_)
    rate[40:80] *= 0.7
    rate[100:130] = 0
    blind[110:115] = True
    low[150:160] = 2
    seen = look(rate, low=low, blind=blind)
    carry, whole = cohort.judge(subject(), CohortCarry(), seen)
    other, at, parts = CohortCarry(), 0, []
    for piece in pieces:
        part = slice(at, at + piece)
        start = T0 + at * 10
        stretch = Look(start, seen.phase[part], seen.rate[part], seen.low[part], seen.blind[part])
        before = other.copy()
        other, found = cohort.judge(subject(), other, stretch)
        cohort.judge(subject(), before, stretch)
        parts.append(found)
        at += piece
    for name in Verdicts.__slots__:
        np.testing.assert_array_equal(np.concatenate([getattr(one, name) for one in parts]), getattr(whole, name))
    np.testing.assert_array_equal(other.rates.array(), carry.rates.array())
    assert replace(other, rates=Kept(1)) == replace(carry, rates=Kept(1))


# -- learning ----------------------------------------------------------------------------------------


def test_runs_teach_rate_spread_and_pause() -> None:
    earlier = []
    for seed in range(5):
        rate = rates(300, seed=seed)
        rate[100:108] = 0
        earlier.append(taught(rate))
    expected = cohort.learn(8, earlier, 10, CohortPolicy())
    assert (expected.runs, expected.pause, expected.start_up) == (5, 80, 0)
    assert expected.rate == pytest.approx(RATE, rel=0.02)
    assert expected.spread == pytest.approx(0.04 * RATE, rel=0.2)


def test_incidents_are_not_learnt() -> None:
    slow = rates(300)
    slow[100:] *= 0.6
    carry, _ = cohort.judge(subject(windows=300), CohortCarry(), look(slow))
    memory = cohort.remembered(subject(windows=300), carry)
    assert min(memory["rates"]) > 0.85 * RATE  # type: ignore[call-overload]
    earlier = [taught(rates(300, seed=seed)) for seed in range(5)]
    assert cohort.learn(8, [memory, *earlier], 10, CohortPolicy()).rate == pytest.approx(RATE, rel=0.03)


def test_a_decay_of_one_percent_a_run_is_not_learnt_away() -> None:
    earlier = [taught(rates(300, seed=seed)) for seed in range(5)]
    states = []
    for run in range(50):
        rate = rates(300, seed=run + 10) * 0.99**run
        one = subject(cohort.learn(8, earlier, 10, CohortPolicy()), windows=300)
        carry, found = cohort.judge(one, CohortCarry(), look(rate))
        states.append(SLOW in set(found.state))
        memory = cohort.remembered(one, carry)
        if not memory["flaw"]:
            earlier.insert(0, dict(memory))
    assert not any(states[:8])
    assert all(states[30:])


@pytest.mark.parametrize(
    ("rate", "flaw"),
    [
        (rates(20), "too short"),
        (np.concatenate([rates(100), np.zeros(100)]), "ended early"),
        (rates(200), ""),
    ],
)
def test_runs_that_teach_nothing(rate: np.ndarray, flaw: str) -> None:
    assert taught(rate)["flaw"] == flaw


def test_only_runs_with_about_as_many_nodes_count() -> None:
    memory = taught(rates(200))
    assert cohort.learn(9, [memory], 10, CohortPolicy()).runs == 1
    assert cohort.learn(16, [memory], 10, CohortPolicy()).runs == 0


# -- what it costs -----------------------------------------------------------------------------------


def quiet(windows: int) -> Verdicts:
    nothing = np.zeros(windows)
    return Verdicts(nothing, np.full(windows, OK), *[nothing] * 5, np.zeros(windows, np.bool_), *[nothing] * 6)


def rows_of(state: np.ndarray, observed: np.ndarray, low_for: np.ndarray) -> Rows:
    """Rows of schema.BASELINE; arrays are [window, node]."""
    return Rows(
        schema.BASELINE,
        {
            schema.STATE.name: state.ravel(),
            schema.OBSERVED.name: observed.ravel(),
            schema.EXPECTED.name: np.ones(state.size),
            schema.LOW_FOR.name: low_for.ravel(),
        },
    )


def ledger(payer: Payer, nodes: Rows, found: Verdicts) -> dict[str, tuple[float, float]]:
    """Cause -> seconds and USD."""
    lost = stalls.judge(payer, Waiting.first(len(payer.job.nodes)), nodes, found, T0)[1]
    return {
        str(rows.same[schema.CAUSE]): (rows[schema.LOST_SECONDS.name].sum(), rows[schema.USD.name].sum())
        for rows in lost
    }


def calm(windows: int) -> Rows:
    shape = windows, len(NODES)
    return rows_of(np.full(shape, NodeState.OK), np.ones(shape), np.zeros(shape))


def test_1024_gpus_that_stall_for_a_minute_cost_512_dollars() -> None:
    payer = Payer(job(), 10, gpus=1024, usd_per_gpu_hour=30.0)
    stalled = replace(quiet(6), stalled_seconds=np.full(6, 10.0))
    assert ledger(payer, calm(6), stalled) == {Cause.STALLED: pytest.approx((60.0, 512.0))}


def test_nothing_lost_is_no_row() -> None:
    assert ledger(Payer(job(), 10, 64, 30.0), calm(6), quiet(6)) == {}


def test_a_node_down_costs_all_and_a_low_one_its_share() -> None:
    payer = Payer(job(), 10, gpus=64, usd_per_gpu_hour=30.0)
    shape = 20, len(NODES)
    state, observed, low_for = np.full(shape, NodeState.OK), np.ones(shape), np.zeros(shape)
    # Low from window 5 on, told from its second window on; down from window 15 on.
    state[6:, 3], observed[6:, 3], low_for[6:, 3] = NodeState.LOW, 0.75, np.arange(20, 160, 10)
    state[15:, 4], observed[15:, 4], low_for[15:, 4] = NodeState.DOWN, 0.3, np.arange(10, 60, 10)
    seconds, usd = ledger(payer, rows_of(state, observed, low_for), quiet(20))[Cause.DROPOUT]
    assert seconds == pytest.approx(0.25 * 100 + 50)
    assert usd == pytest.approx(64 * 30 * seconds / 3600)


def test_a_low_node_whose_clock_stands_still_costs_nothing() -> None:
    shape = 10, len(NODES)
    state, observed, low_for = np.full(shape, NodeState.OK), np.ones(shape), np.zeros(shape)
    state[:, 3], observed[:, 3], low_for[:, 3] = NodeState.LOW, 0.5, 100.0
    payer = Payer(job(), 10, 64, 30.0)
    carry = Waiting(low_for[0])
    assert stalls.judge(payer, carry, rows_of(state, observed, low_for), quiet(10), T0)[1] == []


def test_lost_seconds_never_add_up_to_more_than_passed() -> None:
    shape = 10, len(NODES)
    state, observed, low_for = np.full(shape, NodeState.OK), np.ones(shape), np.zeros(shape)
    state[:, 3], observed[:, 3], low_for[:, 3] = NodeState.DOWN, 0.0, np.arange(10, 110, 10)
    slow = replace(quiet(10), slow_seconds=np.full(10, 4.0))
    found = ledger(Payer(job(), 10, 64, 30.0), rows_of(state, observed, low_for), slow)
    assert found[Cause.SLOW][0] + found[Cause.DROPOUT][0] == pytest.approx(100)


def test_rows_name_job_cause_and_window() -> None:
    found = replace(quiet(3), stalled_seconds=np.array([0.0, 70.0, 10.0]))
    (rows,) = stalls.judge(Payer(job(), 10, 64, 30.0), Waiting.first(8), calm(3), found, T0)[1]
    frame = rows.frame()
    assert frame.get_column(WINDOW).to_list() == [T0 + 10, T0 + 20]
    assert set(frame.get_column(schema.CAUSE)) == {Cause.STALLED.value}
    assert set(frame.get_column(schema.STALL_GPUS.name)) == {64}


def test_a_job_that_nobody_tells_of_ends_where_its_traffic_does() -> None:
    seen = look(np.concatenate([rates(60), np.zeros(120)]))
    assert STALLED in verdicts(seen).state
    silent = verdicts(seen, replace(subject(), is_told=False))
    assert STALLED not in silent.state
    assert silent.lost[-1] == 0
