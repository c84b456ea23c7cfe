"""Causes of lost time: what is charged under which, nothing twice; and who explains it from outside (real store)."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
import service_scene as scenes
from service_scene import Scene

from analysis.detectors.rows import frame_of
from analysis.detectors.study import JobWindows
from analysis.detectors.training import cohort, stalls
from analysis.detectors.training.causes import OuterCauses
from analysis.detectors.training.cohort import CohortCarry, CohortPolicy, Expectation, Look, Verdicts
from analysis.detectors.training.pauses import Usual
from analysis.detectors.training.stalls import Outer, Payer, Waiting
from cluster.model import Job
from store import schema
from store.local_influxdb import LocalInfluxDB
from store.schema import Cause, Phase
from tests.analysis.test_cohort import KNOWN, T0, calm, job, ledger, look, quiet, rates, subject, verdicts

PAYER = Payer(job(), 10, gpus=1024, usd_per_gpu_hour=30.0)
NONE = replace(KNOWN, paused=0.0, saving=Usual(0.0, 0.0), reading=Usual(0.0, 0.0))
GB = 1_000_000_000


def waiting(phase: int, *spans: tuple[int, int], windows: int = 400) -> Look:
    """A run that waits in a phase in some spans of windows."""
    rate, phases = rates(windows, 0.005), np.full(windows, Phase.COMPUTE)
    for begin, end in spans:
        rate[begin:end], phases[begin:end] = 0.0, phase
    return look(rate, phases)


@pytest.mark.parametrize(("phase", "cause"), [(Phase.CHECKPOINT, Cause.CHECKPOINT), (Phase.LOAD, Cause.STORAGE)])
def test_waits_beyond_those_of_the_class_are_charged(phase: int, cause: Cause) -> None:
    usual = [(at, at + 2) for at in range(40, 400, 40)]
    run = subject(Expectation(), 400)
    memory = cohort.remembered(run, cohort.judge(run, CohortCarry(), waiting(phase, *usual))[0])
    expected = cohort.learn(8, [memory] * 4, 10, CohortPolicy())
    assert ledger(PAYER, calm(400), verdicts(waiting(phase, *usual), subject(expected))) == {}
    # One takes two minutes longer than any before.
    longer = [*usual[:-1], (360, 374)]
    found = ledger(PAYER, calm(400), verdicts(waiting(phase, *longer), subject(expected)))
    assert set(found) == {cause}
    assert found[cause][0] == pytest.approx(120 - 20, abs=12)


def test_loading_is_charged_beyond_the_slowest_start_of_the_class() -> None:
    rate, phases = rates(100, 0.005), np.full(100, Phase.COMPUTE)
    rate[:40], phases[:40] = 0.0, Phase.LOAD
    found = ledger(PAYER, calm(100), verdicts(look(rate, phases), subject(replace(NONE, start_up=150.0))))
    assert found == {Cause.LOADING: pytest.approx((250.0, 250 * 1024 * 30 / 3600))}
    for known in (replace(NONE, start_up=350.0), replace(NONE, start_up=150.0, runs=1)):
        assert ledger(PAYER, calm(100), verdicts(look(rate, phases), subject(known))) == {}


def test_an_outer_cause_takes_over_the_loss_and_changes_no_sum() -> None:
    lost = replace(
        quiet(6),
        slow_seconds=np.array([0, 4.0, 4.0, 0, 0, 0]),
        stalled_seconds=np.array([0, 0, 0, 70.0, 10.0, 0]),
        pause_seconds=np.array([0, 0, 1.0, 0, 0, 6.0]),
        reading_seconds=np.array([0, 0, 0, 0, 0, 3.0]),
    )

    def judged(outer: dict[int, Outer]) -> pl.DataFrame:
        asked: list[int] = []

        def explain(windows: np.ndarray) -> dict[int, Outer]:
            asked.extend(windows.tolist())
            return outer

        found = stalls.judge(PAYER, Waiting.first(8), calm(6), lost, T0, explain=explain)[1]
        assert asked == [1, 2, 3, 4, 5]
        return frame_of(found)

    plain, explained = (
        judged(outer)
        for outer in ({}, {2: Outer(Cause.DISTURBED, "gpu-16"), 3: Outer(Cause.STORAGE, "users")})
    )  # fmt: skip
    total = pl.col(schema.USD.name).sum()
    assert explained.select(total).item() == pytest.approx(plain.select(total).item())
    by = explained.filter(pl.col(schema.STALL_BY.name) != "").select(
        schema.CAUSE, schema.LOST_SECONDS.name, schema.STALL_BY.name
    )
    assert sorted(by.rows()) == [("disturbed", 5.0, "gpu-16"), ("storage", 70.0, "users")]


def test_no_second_is_charged_twice_whatever_happens() -> None:
    """Random phases and rates: all causes together never cost more than passed."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        spans = random.integers(1, 40, 60)
        phases = np.repeat(random.choice([Phase.IDLE, Phase.LOAD, Phase.COMPUTE, Phase.CHECKPOINT], 60,
                                         p=[0.1, 0.1, 0.6, 0.2]), spans)  # fmt: skip
        rate = rates(len(phases), 0.01, seed) * np.repeat(random.choice([0.05, 0.6, 1.0], 60, p=[0.2, 0.2, 0.6]), spans)
        found: Verdicts = verdicts(look(rate, phases), subject(replace(NONE, start_up=30.0)))
        sums = ledger(PAYER, calm(len(phases)), found)
        assert 0 < sum(seconds for seconds, _ in sums.values()) <= 10 * len(phases), sums


def test_a_run_that_loses_nothing_costs_next_to_nothing() -> None:
    """A cluster has thousands of small jobs, each judged in every round: frames without rows took a quarter of it."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    nodes, nothing, first = calm(36), quiet(36), Waiting.first(8)
    sys.setprofile(count)
    try:
        found = stalls.judge(PAYER, first, nodes, nothing, T0)[1]
    finally:
        sys.setprofile(None)
    assert found == []
    assert calls < 1000


# -- from outside --------------------------------------------------------------------------------------

NOW = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 6 * 3600
NODES = ("gpu-01", "gpu-02")
RUN = Job("big", "llm", NODES, datetime.fromtimestamp(NOW, UTC) - timedelta(hours=2))


@pytest.fixture
def scene(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    with scenes.opened(influxdb_v1, fresh_database) as found:
        yield found


def outer(scene: Scene, *lost: int, run: Job = RUN) -> dict[int, Outer]:
    empty = np.zeros((30, 2))
    windows = JobWindows(NOW, 10, empty, empty, empty, empty, np.ones((30, 1), np.bool_))
    return dict(OuterCauses(scene.cluster, scene.store).of(run, windows, np.array(lost)))


def use_storage(scene: Scene, group: str, start: int, stop: int, volume: int) -> None:
    moments = range(NOW + start, NOW + stop, 10)
    tags = {schema.SRC_GROUP: "storage", schema.DST_GROUP: group, schema.PROTO: "tcp", schema.SERVICE: "other"}
    scene.write(schema.TRAFFIC, tags, moments, schema.RAW, bytes=volume, packets=1, flows=1, seen_bytes=volume)


def own(scene: Scene, start: int, stop: int, volume: int) -> None:
    tags = {schema.NODE: "gpu-01", schema.GROUP: "training", schema.PEER_GROUP: "storage", schema.PLANE: "storage"}
    moments = range(NOW + start, NOW + stop, 10)
    scene.write(schema.NODE_TRAFFIC, tags, moments, schema.RAW, rx_bytes=volume, tx_bytes=0, flows=1)
    use_storage(scene, "training", start, stop, volume)


def test_a_node_of_others_that_sends_to_the_job(scene: Scene) -> None:
    for src, dst, volume in (("gpu-16", "gpu-01", 20), ("gpu-15", "gpu-02", 1), ("gpu-02", "gpu-01", 50)):
        tags = {schema.SRC: src, schema.DST: dst, schema.PLANE: "compute"}
        scene.write(schema.PAIR, tags, range(NOW, NOW + 60, 10), schema.PAIR.kept, bytes=volume * GB)
    assert outer(scene, 0, 1, 5, 29) == dict.fromkeys((5, 29), Outer(Cause.DISTURBED, "gpu-16, gpu-15"))


@pytest.mark.parametrize(("began", "is_disturbed"), [(60, False), (-60, False), (-120, True)])
def test_what_was_sent_to_the_job_before_on_its_nodes_disturbs_nobody(
    scene: Scene, began: int, *, is_disturbed: bool
) -> None:
    """A larger job ran on these nodes, and records of its last minute come late."""
    tags = {schema.SRC: "gpu-16", schema.DST: "gpu-01", schema.PLANE: "compute"}
    scene.write(schema.PAIR, tags, range(NOW, NOW + 60, 10), schema.PAIR.kept, bytes=900 * GB)
    found = outer(scene, 5, 25, run=replace(RUN, start=datetime.fromtimestamp(NOW + began, UTC)))
    assert bool(found) is is_disturbed


def test_others_keep_storage_busy(scene: Scene) -> None:
    use_storage(scene, "inference", -3600, 0, GB)
    use_storage(scene, "inference", 0, 120, 20 * GB)
    # Who does not use storage does not wait for it.
    assert outer(scene, 3, 8) == {}
    own(scene, -600, -540, GB)
    assert outer(scene, 0, 3, 8, 20) == dict.fromkeys((3, 8), Outer(Cause.STORAGE, "inference"))


@pytest.mark.parametrize(("before", "now"), [(8, 20), (1, 9)])
def test_storage_that_is_always_busy_or_not_very_explains_nothing(scene: Scene, before: int, now: int) -> None:
    use_storage(scene, "inference", -3600, 0, before * GB)
    use_storage(scene, "inference", 0, 120, now * GB)
    own(scene, -600, -540, GB)
    assert outer(scene, 8) == {}


def test_what_the_job_itself_moves_keeps_it_from_nothing(scene: Scene) -> None:
    own(scene, -3600, -3540, GB)
    own(scene, 0, 120, 50 * GB)
    assert outer(scene, 8) == {}
