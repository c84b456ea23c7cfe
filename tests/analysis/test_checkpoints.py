"""Checkpoints of constructed jobs against a schedule, against their own past, and against nothing."""

from dataclasses import replace

import numpy as np
import pytest
from job_series import NODES, SHARD, T0, Series, Verdict, job, verdict

from analysis.detectors.storage.checkpoints import Ledger, Usual, rhythm
from cluster.model import ALL_NODES, CheckpointMode, CheckpointPlan
from store import schema
from store.schema import CheckpointState as State

SIZE = int(8 * SHARD)
USUAL = Usual(gaps=(600.0,) * 10, sizes=(float(SIZE),) * 5, lengths=(20.0,) * 5, nodes=(8,) * 5)
SCHEDULE = CheckpointPlan(CheckpointMode.SCHEDULED, every=600, tolerance=60, size=SIZE, nodes=ALL_NODES, longest=60)
LEARN = CheckpointPlan()


def every_ten_minutes(windows: int = 400, without: tuple[int, ...] = ()) -> Series:
    """Checkpoints of two windows at 60, 120, 180, ..., but not `without`."""
    series = Series.training(windows).loading(0, 3)
    for at in range(60, windows, 60):
        if at not in without:
            series.checkpoint(at, windows=2)
    return series


def rows(found: Verdict, *fields: schema.Field) -> list[tuple[float, ...]]:
    return [(at, *(row[field.name] for field in fields)) for at, row in found.events.items()]


# -- on schedule -------------------------------------------------------------------------------------


def test_checkpoints_on_time() -> None:
    found = verdict(every_ten_minutes(), SCHEDULE)
    assert found.states() == dict.fromkeys(range(60, 400, 60), State.ON_TIME)
    assert found.overdue() == []
    assert found.events[120] | {"window": 0} == {
        "window": 0, "job": "run-9", "job_class": "llm", "seconds": 20.0, "bytes": SIZE, "nodes": 8,
        "expected_nodes": 8, "expected_bytes": SIZE, "state": State.ON_TIME, "due": T0 + 1200.0, "gap": 600.0,
    }  # fmt: skip
    assert found.events[60]["gap"] == 0
    assert found.events[60]["due"] == T0 + 600.0


def test_the_standing_between_two() -> None:
    found = verdict(every_ten_minutes(), SCHEDULE, gpus=64, usd_per_gpu_hour=30.0)
    ages = found.status[schema.CHECKPOINT_AGE.name]
    assert ages[59] == 600, "since the job began"
    assert ages[100] == 410, "since the last one began: what it holds is of that moment"
    assert ages[121] == 620, "the one that is being written saves nothing yet"
    assert ages[126] == 70, "over, after 30 s without writing"
    assert found.status[schema.USD_AT_RISK.name][100] == pytest.approx(410 / 3600 * 64 * 30)
    assert found.status[schema.LAST_BYTES.name][30] == 0
    assert found.status[schema.LAST_BYTES.name][100] == SIZE
    assert set(found.status[schema.PERIOD.name]) == {600}
    assert set(found.status[schema.IS_REGULAR.name]) == {1}


def test_a_missed_one() -> None:
    found = verdict(every_ten_minutes(without=(180,)), SCHEDULE)
    assert found.states() == {
        60: State.ON_TIME, 120: State.ON_TIME, 210: State.MISSED, 240: State.ON_TIME, 300: State.ON_TIME,
        360: State.ON_TIME,
    }  # fmt: skip
    assert found.events[210]["due"] == T0 + 1800
    assert (found.events[210]["bytes"], found.events[210]["expected_bytes"]) == (0, SIZE)
    assert found.overdue() == list(range(186, 240)), "from tolerance to the next one"
    assert found.status[schema.OVERDUE.name][200] == 2010 - 1800 - 60
    assert found.status[schema.CHECKPOINT_AGE.name][200] == 2010 - 1200


def test_two_missed_in_a_row_are_overdue_from_the_first() -> None:
    found = verdict(every_ten_minutes(without=(180, 240)), SCHEDULE)
    assert [at for at, state in found.states().items() if state == State.MISSED] == [210, 270]
    assert found.status[schema.OVERDUE.name][290] == 2910 - 1860
    assert found.states()[300] == State.ON_TIME


def test_the_first_is_due_after_computing_began() -> None:
    series = Series.training(200).loading(0, 30).paused(0, 30).checkpoint(90, windows=2)
    found = verdict(series, SCHEDULE)
    assert found.states()[90] == State.ON_TIME
    assert found.events[90]["due"] == T0 + 900


def test_the_first_never_comes() -> None:
    found = verdict(Series.training(200), SCHEDULE)
    assert found.overdue() == list(range(66, 200))
    assert found.states() == {90: State.MISSED, 150: State.MISSED}


@pytest.mark.parametrize(("at", "state"), [(66, State.ON_TIME), (67, State.LATE), (80, State.LATE)])
def test_late_is_beyond_the_tolerance(at: int, state: int) -> None:
    found = verdict(Series.training(110).checkpoint(at, windows=2), SCHEDULE)
    assert found.states() == {at: state}
    assert bool(found.overdue()) is (state == State.LATE)


def test_early_ones_are_on_time() -> None:
    series = Series.training(160).checkpoint(60, windows=2).checkpoint(90, windows=2).checkpoint(120, windows=2)
    assert set(verdict(series, SCHEDULE).states().values()) == {State.ON_TIME}


def test_short_over_long_and_nodes_missing() -> None:
    series = Series.training(340)
    series.checkpoint(60, windows=2, shard=SHARD * 0.85)
    series.checkpoint(120, windows=2, shard=SHARD * 0.95)
    series.checkpoint(180, windows=7)
    series.checkpoint(240, windows=2, nodes=slice(0, 7))
    series.checkpoint(300, windows=2, nodes=slice(0, 4))
    found = verdict(series, SCHEDULE)
    assert found.states() == {
        60: State.SHORT, 120: State.ON_TIME, 180: State.OVER_LONG, 240: State.NODES_MISSING, 300: State.NODES_MISSING,
    }  # fmt: skip
    assert rows(found, schema.EVENT_NODES, schema.EXPECTED_NODES)[-2:] == [(240, 7, 8), (300, 4, 8)]


def test_over_long_is_told_while_it_is_written() -> None:
    found = verdict(Series.training(70).checkpoint(60, windows=10), SCHEDULE)
    assert found.states() == {60: State.OVER_LONG}
    assert found.overdue() == [], "it is being written"


def test_a_declared_number_of_writers() -> None:
    plan = replace(SCHEDULE, nodes=2, size=int(2 * SHARD))
    series = Series.training(200).checkpoint(60, windows=2, nodes=slice(0, 2)).checkpoint(120, nodes=slice(0, 1))
    assert verdict(series, plan).states() == {60: State.ON_TIME, 120: State.NODES_MISSING}


# -- by their own past -------------------------------------------------------------------------------


def test_a_period_is_learnt_from_enough_gaps() -> None:
    found = verdict(every_ten_minutes(600), LEARN)
    regular = found.status[schema.IS_REGULAR.name]
    assert regular.index(1) == 540, "the ninth checkpoint makes the eighth gap"
    assert found.status[schema.PERIOD.name][-1] == 600
    assert found.status[schema.REGULARITY.name][-1] == 1
    assert set(found.states().values()) == {State.UNJUDGED}


def test_a_missed_one_by_the_period_of_earlier_runs() -> None:
    found = verdict(every_ten_minutes(300, without=(180,)), LEARN, USUAL)
    assert [at for at, state in found.states().items() if state == State.MISSED] == [210]
    assert found.overdue() == list(range(195, 240)), "150 s of tolerance: a quarter of the period"
    assert found.states()[60] == State.ON_TIME


def test_size_length_and_nodes_of_earlier_ones_are_expected() -> None:
    series = Series.training(260)
    series.checkpoint(60, windows=2, shard=SHARD * 0.8)
    series.checkpoint(120, windows=6)
    series.checkpoint(180, windows=2, nodes=slice(0, 7), shard=SHARD * 8 / 7)
    found = verdict(series, LEARN, USUAL)
    assert found.states() == {60: State.SHORT, 120: State.OVER_LONG, 180: State.NODES_MISSING}


def irregular(windows: int, seed: int) -> Series:
    rng = np.random.default_rng(seed)
    series, at = Series.training(windows), 0
    while (at := at + int(rng.integers(30, 90))) < windows - 5:
        series.checkpoint(at, windows=2)
    return series


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(4, 20))]
)
def test_irregular_ones_are_never_overdue(seed: int) -> None:
    """Half to one and a half times ten minutes, for fourteen hours: twenty of them by chance look regular to nobody."""
    found = verdict(irregular(5000, seed), LEARN)
    assert found.overdue() == []
    assert set(found.states().values()) <= {State.UNJUDGED, State.ON_TIME}


@pytest.mark.parametrize("seed", range(5))
def test_a_jitter_is_learnt_as_tolerance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series, at = Series.training(6000).logs(1e6), 0
    while (at := at + 180 + round(rng.normal(0, 4))) < 5990:
        series.checkpoint(at, windows=2)
    found = verdict(series, LEARN)
    assert found.status[schema.IS_REGULAR.name][-1] == 1
    assert found.overdue() == []


def test_after_an_exception_nobody_is_judged_by_the_rhythm() -> None:
    """Regular for hours; then one comes half an hour late, which is told of once, and another, which is not."""
    series = Series.training(2600)
    for at in (*range(60, 960, 60), 1225, *range(1285, 1800, 60), 2000, 2060):
        series.checkpoint(at, windows=2)
    found = verdict(series, LEARN)
    assert found.overdue() != []
    assert max(found.overdue()) < 1225
    assert State.MISSED in found.states().values()
    assert found.status[schema.IS_REGULAR.name][-1] == 0


def test_mode_irregular_judges_everything_but_when() -> None:
    plan = CheckpointPlan(CheckpointMode.IRREGULAR, size=SIZE)
    series = every_ten_minutes(700, without=(300,)).checkpoint(640, windows=2, shard=SHARD / 2)
    found = verdict(series, plan)
    assert set(found.states().values()) == {State.UNJUDGED, State.SHORT}
    assert found.overdue() == []
    assert set(found.status[schema.IS_REGULAR.name]) == {0}


def test_rhythm() -> None:
    ledger = Ledger(job(), 10, CheckpointPlan(tolerance=30))
    assert rhythm(ledger, (600.0,) * 7).is_judged is False
    found = rhythm(ledger, (600.0,) * 10 + (1200.0,))
    assert (found.period, found.tolerance, found.regularity, found.is_judged) == (600, 30, 1, True), "one was missed"
    found = rhythm(ledger, (600.0,) * 10 + (800.0,))
    assert found.regularity == pytest.approx(10 / 11)
    assert found.is_judged is False
    assert rhythm(replace(ledger, regularity=0.9), (600.0,) * 10 + (800.0,)).is_judged is True
    wide = rhythm(ledger, (560.0, 580.0, 590.0, 600.0, 600.0, 610.0, 620.0, 640.0))
    assert wide.tolerance == pytest.approx(5 * 1.4826 * 15)
    assert wide.is_judged is True
    wider = rhythm(ledger, (520.0, 550.0, 570.0, 600.0, 600.0, 630.0, 650.0, 680.0))
    assert wider.is_judged is False, "five spreads are more than a quarter of the period"
    assert rhythm(replace(ledger, sees_storage=False), (600.0,) * 10).is_judged is False
    assert rhythm(Ledger(job(), 10, CheckpointPlan()), (600.0,) * 10).tolerance == 150, "not the declared 5 minutes"


# -- what must not be called missed ------------------------------------------------------------------


def test_nothing_is_missed_while_nobody_could_see_it() -> None:
    found = verdict(every_ten_minutes(without=(180,)).silent(178, 190), SCHEDULE)
    assert State.MISSED not in found.states().values()
    assert found.overdue() == []
    assert found.events[240]["due"] == T0 + 1900 + 600, "the clock began anew when it could be seen again"
    assert found.states()[240] == State.ON_TIME
    assert found.status[schema.CHECKPOINT_AGE.name][200] == 2010 - 1200, "the age is of the last one seen"


def test_an_outage_long_before_it_is_due_excuses_nothing() -> None:
    found = verdict(every_ten_minutes(without=(180,)).silent(130, 150), SCHEDULE)
    assert found.states()[210] == State.MISSED
    assert found.overdue() == list(range(186, 240))


def test_what_was_only_partly_seen_is_not_judged() -> None:
    series = every_ten_minutes().silent(180, 181)
    series.written[180, :4] = 0
    assert verdict(series, SCHEDULE).states()[180] == State.UNJUDGED


def test_a_gap_with_an_outage_teaches_nothing() -> None:
    found = verdict(every_ten_minutes(without=(180,)).silent(178, 190), LEARN)
    assert set(found.carry.usual.gaps) == {600}


def standing(first: int, last: int, *starts: int) -> Verdict:
    """A job that stands from one window to another; checkpoints at the others."""
    series = Series.training(300).loading(0, 3).checkpoints(*starts).paused(first, last)
    series.read[first:last] = 0
    return verdict(series, SCHEDULE)


def test_idle_time_puts_off_what_is_due() -> None:
    """The job stands for a minute, and saves by its steps."""
    found = standing(80, 86, 60, 126, 186, 246)
    assert found.states() == dict.fromkeys((60, 126, 186, 246), State.ON_TIME)
    assert found.overdue() == []
    assert found.carry.usual.gaps == (600, 600, 600)


@pytest.mark.parametrize("next_one", [180, 195])
def test_a_stall_starts_the_clock_anew(next_one: int) -> None:
    """The job stands for ten minutes, which has its own alert; whether it saves by steps or by the clock."""
    found = standing(80, 140, 60, next_one, next_one + 60)
    assert set(found.states().values()) == {State.ON_TIME}
    assert found.overdue() == []
    assert found.carry.usual.gaps == (600,), "the gap with the stall in it says nothing"


def test_storage_that_flows_do_not_see_is_not_judged() -> None:
    found = verdict(Series.training(300), SCHEDULE, sees_storage=False)
    assert found.states() == {}
    assert found.overdue() == []
    assert set(found.status[schema.IS_REGULAR.name]) == {0}


def test_collectives_that_flows_do_not_see_do_not_matter() -> None:
    series = every_ten_minutes(without=(180,)).paused(0, 400)
    found = verdict(series, SCHEDULE, sees_compute=False)
    assert [at for at, state in found.states().items() if state == State.MISSED] == [210]
    assert found.events[60]["due"] == T0 + 600


def test_logs_between_two_change_nothing() -> None:
    quiet, noisy = every_ten_minutes(without=(180,)), every_ten_minutes(without=(180,)).logs(3e6)
    assert verdict(noisy, SCHEDULE).states() == verdict(quiet, SCHEDULE).states()


# -- live and later ----------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [2, 7, 200, 400])
def test_any_number_of_calls_gives_the_same(parts: int) -> None:
    series = every_ten_minutes(without=(180,)).silent(250, 260).logs(1e6)
    for plan, usual in ((SCHEDULE, None), (LEARN, USUAL)):
        whole, cut = verdict(series, plan, usual), verdict(series, plan, usual, parts=parts)
        assert cut.events == whole.events
        assert cut.status == whole.status
        assert cut.carry == whole.carry


def test_a_row_grows_while_it_is_written() -> None:
    series = Series.training(63).checkpoint(60, windows=8)
    found = verdict(series, SCHEDULE)
    assert rows(found, schema.EVENT_SECONDS, schema.EVENT_BYTES) == [(60, 30, series.written[60:63].sum())]
    assert found.carry.safe is None


def test_nodes_are_counted_without_those_that_only_log() -> None:
    series = every_ten_minutes(200).logs(1e6)
    series.written[60:62, 3] = 1e6
    found = verdict(series, SCHEDULE)
    assert found.events[60]["nodes"] == len(NODES) - 1
