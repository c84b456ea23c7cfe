"""Short pauses, on constructed series: charged once, beyond those of the class, and never beside a stall."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.detectors.training import cohort, stalls
from analysis.detectors.training.cohort import CohortPolicy
from analysis.detectors.training.stalls import Payer, Waiting
from store.schema import Cause, CohortState, Phase
from tests.analysis.test_cohort import KNOWN, T0, calm, job, ledger, look, rates, subject, taught, verdicts

NONE = replace(KNOWN, paused=0.0)
PAYER = Payer(job(), 10, gpus=1024, usd_per_gpu_hour=30.0)


def test_a_pause_of_10_seconds_costs_85_dollars_wherever_it_lies() -> None:
    for part in (0.0, 0.3, 0.5):
        rate = rates(200, 0.005)
        rate[100] *= part
        rate[101] *= 1 - part
        found = verdicts(look(rate), subject(NONE))
        assert set(found.state) == {CohortState.OK}
        seconds, usd = ledger(PAYER, calm(200), found)[Cause.PAUSE]
        assert seconds == pytest.approx(10, abs=0.3)
        assert usd == pytest.approx(85.3, abs=3)


def test_repeated_pauses_add_up() -> None:
    rate = rates(800, 0.01)
    rate[100:700:20] *= 0.1
    assert ledger(PAYER, calm(800), verdicts(look(rate), subject(NONE)))[Cause.PAUSE][0] == pytest.approx(270, rel=0.05)


def test_what_the_class_pauses_anyhow_is_free_and_the_excess_is_charged() -> None:
    def run(seed: int, every: int, windows: int = 2) -> np.ndarray:
        rate = rates(800, 0.01, seed)
        for at in range(30, 780, every):
            rate[at : at + windows] = 0
        return rate

    earlier = [taught(run(seed, 40)) for seed in range(4)]
    expected = cohort.learn(8, earlier, 10, CohortPolicy())
    assert expected.paused == pytest.approx(19 * 20 / 7800, rel=0.1)
    alike = verdicts(look(run(9, 40)), subject(expected)).pause_seconds.sum()
    # Of 380 seconds: what the windows beside the pauses scatter.
    assert alike < 5
    twice = ledger(PAYER, calm(800), verdicts(look(run(9, 20)), subject(expected)))[Cause.PAUSE][0]
    # Once more as many, less the one that the class's longest lets pass.
    assert twice == pytest.approx(19 * 20 - 20, rel=0.12)


def test_a_stall_is_not_charged_as_a_pause_too() -> None:
    rate = rates(200, 0.005)
    rate[60:100] = 0
    found = ledger(PAYER, calm(200), verdicts(look(rate), subject(NONE)))
    assert found[Cause.STALLED][0] == 400
    assert Cause.PAUSE not in found


@pytest.mark.parametrize("phase", [Phase.CHECKPOINT, Phase.LOAD, Phase.BLIND])
def test_what_explains_a_pause_is_none(phase: int) -> None:
    rate, phases = rates(200, 0.005), np.full(200, Phase.COMPUTE)
    rate[60:64], phases[60:64] = 0, phase
    assert Cause.PAUSE not in ledger(PAYER, calm(200), verdicts(look(rate, phases), subject(NONE)))


def test_a_low_node_is_charged_and_no_pause() -> None:
    rate, low = rates(200, 0.005), np.zeros(200, np.int64)
    rate[60:63], low[60:64] = 0, 1
    assert not verdicts(look(rate, low=low), subject(NONE)).pause_seconds.any()


def test_noise_is_no_pause_and_a_class_that_is_not_known_is_not_charged() -> None:
    assert not verdicts(look(rates(2000, 0.1)), subject(NONE)).pause_seconds.any()
    rate = rates(200, 0.005)
    rate[60:63] = 0
    assert not verdicts(look(rate)).pause_seconds.any()
    assert not verdicts(look(rate), subject(replace(NONE, runs=2))).pause_seconds.any()


def test_it_is_told_in_the_window_in_which_it_is_over() -> None:
    rate = rates(200, 0.005)
    rate[60:63] = 0
    found = verdicts(look(rate), subject(NONE))
    assert np.flatnonzero(found.pause_seconds).tolist() == [63]
    assert stalls.judge(PAYER, Waiting.first(8), calm(200), found, T0)[1]
