"""Steps against earlier runs: constructed seconds with a known period, and what a cohort makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import cast

import numpy as np
import polars as pl
import pytest
from job_series import part

from analysis.detectors.rows import Rows, frame_of
from analysis.detectors.study import JobWindows, Memory
from analysis.detectors.training import cohort
from analysis.detectors.training.cohort import CohortCarry, Expectation, Look, Subject
from analysis.detectors.training.cohort_study import Pace, paces
from analysis.detectors.training.step_study import Standing, StepStudy, learn
from analysis.evidence import Reader
from cluster.model import Cluster, Exporter, ExportProtocol, Group, Job, Role, Thresholds
from store import schema
from store.points import WINDOW
from store.schema import CohortState, Phase, StepState

T0 = 1_760_000_400
NODES = tuple(f"n{number}" for number in range(8))
JOB = Job("now", "llm", NODES, datetime.fromtimestamp(T0, UTC))
CLUSTER = Cluster(
    "steps",
    (Group("training", "Training", Role.TRAINING),),
    exporters=(Exporter("leaf-1", ip_address("192.0.2.1"), ExportProtocol.SFLOW),),
    thresholds=Thresholds(slowdown_spreads=4.0, dropout_min_runs=3),
)


@dataclass
class Beat:
    """A reader whose nodes beat with a period, which may change; 0 is no beat."""

    periods: dict[int, float]
    asked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def windows(self) -> "Beat":
        return self

    def pulse(self, nodes: Sequence[str], start: int, stop: int) -> np.ndarray:
        self.asked.append((start, stop))
        period = next(one for since, one in sorted(self.periods.items(), reverse=True) if stop - T0 >= since)
        at = (np.arange((stop - start) * 20) + 0.5) / 20
        level = np.where((at / period) % 1 < 0.4, 1.0, 0.0) if period else np.full(len(at), 0.4)
        rng = np.random.default_rng(start)
        return 9e6 * rng.poisson(10 * level.reshape(-1, 20).mean(axis=1)[:, None], (stop - start, len(nodes)))

    @property
    def reader(self) -> Reader:
        return cast("Reader", self)


def windows(seconds: int, *, is_final: bool = True) -> JobWindows:
    sent = np.ones((seconds // 10, len(NODES)))
    heard = np.ones((len(sent), 1), np.bool_)
    return JobWindows(T0, 10, sent, sent, sent, sent, heard, is_final=is_final)


def run(periods: dict[int, float], earlier: Sequence[Memory] = (), seconds: int = 3600) -> tuple[pl.DataFrame, Memory]:
    study = StepStudy(CLUSTER, Beat(periods).reader)
    carry, (rows,) = study.judge(JOB, study.first(JOB, earlier, T0), windows(seconds))
    return rows.frame(), study.remember(JOB, carry)


def taught(*periods: float) -> list[Memory]:
    return [run({0: period})[1] for period in periods]


def test_without_runs_periods_are_told_and_learnt() -> None:
    rows, memory = run({0: 4.0})
    # From a minute after the start, every five minutes, 256 seconds each; as rows of the window that ended then.
    assert (rows.get_column(WINDOW) - T0 + 10).to_list() == [600 + 300 * number for number in range(11)]
    assert rows.get_column(schema.STEP_PERIOD.name).to_numpy() == pytest.approx(4.0, rel=0.005)
    assert set(rows.get_column(schema.STEP_STATE.name)) == {StepState.LEARNING}
    assert rows.get_column(schema.STEP_LIMIT.name).null_count() == rows.height
    assert np.median(cast("list[float]", memory["speeds"])) == pytest.approx(0.25, rel=0.005)


def test_expectation_is_the_median_of_runs_with_two_percent_at_least() -> None:
    known = learn(8, taught(4.0, 4.0, 9.0), 10)
    assert (1 / known.speed, known.runs) == (pytest.approx(4.0, rel=0.005), 3)
    alike = learn(8, taught(4.0, 4.0, 4.0), 10)
    assert alike.limit(4.0) == pytest.approx(4.0 / 0.92, rel=0.005)
    assert learn(16, taught(4.0), 10).runs == 0, "half as many nodes are another job"


@pytest.mark.parametrize(("period", "is_longer"), [(4.2, False), (4.6, True), (8.0, False)])
def test_a_tenth_longer_is_longer_and_twice_as_long_may_be_every_second_step(period: float, *, is_longer: bool) -> None:
    rows, memory = run({0: 4.0, 1810: period}, taught(4.0, 4.0, 4.0))
    states = dict(zip(rows.get_column(WINDOW) - T0 + 10, rows.get_column(schema.STEP_STATE.name), strict=True))
    # The look that ends at 1800 covers the old period; that of 2100 is the first over the limit, 2400 the second.
    assert {at for at, state in states.items() if state == StepState.LONGER} == (
        set(range(2400, 3601, 300)) if is_longer else set()
    )
    speeds = cast("list[float]", memory["speeds"])
    assert (min(speeds) > 0.249) is (period > 4.2), "what is over the limit, or a multiple, teaches nothing"


def test_what_is_not_final_or_not_sampled_is_not_asked_for() -> None:
    beat = Beat({0: 4.0})
    study = StepStudy(CLUSTER, beat.reader)
    _, (rows,) = study.judge(JOB, study.first(JOB, (), T0), windows(3600, is_final=False))
    assert len(rows) == 0
    netflow = replace(CLUSTER, exporters=(Exporter("leaf-1", ip_address("192.0.2.1")),))
    blind = StepStudy(netflow, beat.reader)
    blind.judge(JOB, blind.first(JOB, (), T0), windows(3600))
    assert beat.asked == []


def test_steps_that_nobody_can_tell_teach_nothing() -> None:
    rows, memory = run({0: 0.0})
    assert (rows.height, memory) == (0, {})
    assert learn(8, [memory], 10).runs == 0


def test_in_parts_as_in_one() -> None:
    study = StepStudy(CLUSTER, Beat({0: 4.0, 1800: 4.6}).reader)
    carry = study.first(JOB, taught(4.0, 4.0, 4.0), T0)
    whole = windows(3600)
    expected, (rows,) = study.judge(JOB, carry, whole)
    parts: list[Rows] = []
    going: Standing = carry
    for first in range(0, 360, 7):
        going, found = study.judge(JOB, going, part(whole, first, min(first + 7, 360)))
        parts += found
    assert going == expected
    assert frame_of(parts).equals(rows.frame())


# -- what a cohort makes of it ---------------------------------------------------------------------------


def looks(*rows: tuple[int, float, int]) -> JobWindows:
    """Windows of half an hour with looks at steps: (end, period, state); 4 s are expected."""
    columns = WINDOW, schema.STEP_PERIOD.name, schema.STEP_EXPECTED.name, schema.STEP_STATE.name
    told = [(T0 + end - 10, period, 4.0, state) for end, period, state in rows]
    return replace(windows(1800), found=(Rows.of(schema.STEP, columns, told),))


def test_a_look_counts_from_its_end_until_the_next_but_not_for_ever() -> None:
    shares, last = paces(Pace(), looks((300, 5.0, StepState.LONGER), (600, 4.0, StepState.OK)), 900)
    assert shares.tolist() == [1.0] * 30 + [0.8] * 30 + [1.0] * 120
    assert last == Pace(1.0, T0 + 600)
    shares, last = paces(Pace(0.5, T0 - 300), looks((1800, 5.0, StepState.LONGER)), 900)
    assert shares.tolist() == [0.5] * 60 + [1.0] * 120
    assert last == Pace(0.8, T0 + 1800)


def test_longer_steps_make_a_cohort_slow_whose_rate_alone_would_not() -> None:
    rate = 1e9 * np.random.default_rng(1).normal(0.93, 0.02, 180)
    pace = np.where(np.arange(180) >= 90, 0.93, 1.0)
    subject = Subject(JOB, 10, Expectation(1e9, 0.04e9, 5), spreads=4.0, min_runs=3)
    seen = Look(T0, np.full(180, Phase.COMPUTE), rate, np.zeros(180, np.int64), np.zeros(180, np.bool_))
    assert set(cohort.judge(subject, CohortCarry(), seen)[1].state) == {CohortState.OK}
    verdicts = cohort.judge(subject, CohortCarry(), replace(seen, pace=pace))[1]
    assert (verdicts.state == CohortState.SLOW).tolist() == [False] * 90 + [True] * 90
    assert verdicts.lost[-1] == pytest.approx(0.07 * 900, rel=0.2)
    waiting = replace(seen, pace=pace, low=np.ones(180, np.int64))
    assert set(cohort.judge(subject, CohortCarry(), waiting)[1].state) == {CohortState.OK}, (
        "a node is low: it is charged"
    )
