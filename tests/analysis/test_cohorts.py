"""Which cohorts run a job: minute by minute, on made-up traffic."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from analysis.jobs.traffic_cohorts import MARGIN, Cohorts, Ended, Memory, Minute, components
from app.errors import StoreError
from cluster.model import InferredJobs

GBIT_MINUTE = 1e9 / 8 * 60
RATE = 10 * GBIT_MINUTE
NODES = tuple(f"n{number:02}" for number in range(64))
SETTINGS = InferredJobs()
Traffic = dict[tuple[int, int], float]


def ring(*nodes: int, rate: float = RATE) -> Traffic:
    """Each sends to the next, the last to the first."""
    return dict.fromkeys(zip(nodes, (*nodes[1:], nodes[0]), strict=True), rate)


def pipeline(*groups: tuple[int, ...], rate: float = RATE, between: float = 0.05) -> Traffic:
    """Rings of their own (data parallel), of which each node hands a little to the next ring (pipeline stages)."""
    traffic: Traffic = {}
    for group in groups:
        traffic |= ring(*group, rate=rate)
    for first, second in itertools.pairwise(groups):
        traffic |= dict.fromkeys(zip(first, second, strict=True), between * rate)
    return traffic


@dataclass
class Fabric:
    """Time goes on as `run` is called; what began and ended is noted in minutes."""

    settings: InferredJobs = SETTINGS
    cohorts: Cohorts = field(init=False)
    now: int = 0
    begun: list[tuple[float, int, str]] = field(default_factory=list)
    ended: list[tuple[float, int, int]] = field(default_factory=list)
    history: list[Traffic] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cohorts = Cohorts(self.settings, NODES, ["leaf-1", "leaf-2"], Memory())

    def run(
        self,
        minutes: int,
        traffic: Traffic | None = None,
        *,
        heard: tuple[str, ...] = ("leaf-1", "leaf-2", "border"),
        taken: tuple[str, ...] = (),
    ) -> None:
        for _ in range(minutes):
            self.history.append(traffic or {})
            self.now += 60
            sent = np.zeros(len(NODES))
            for (src, _), volume in self.history[-1].items():
                sent[src] += volume
            begun, ended = self.cohorts.step(Minute(self.now, sent, heard, taken, self._pairs))
            self.begun += [(one.start / 60, len(one.members), one.members[0]) for one in begun]
            self.ended += [self._told(one) for one in ended]

    def restart(self) -> None:
        """Go on as another process would."""
        memory = Memory.of(self.cohorts.memory.plain())
        self.cohorts = Cohorts(self.settings, NODES, ["leaf-1", "leaf-2"], memory)

    def _told(self, one: Ended) -> tuple[float, int, int]:
        return one.end / 60, len(one.cohort.members), one.quiet // 60

    def _pairs(self, seconds: int) -> Traffic:
        total: Traffic = {}
        for traffic in self.history[-seconds // 60 :]:
            for pair, volume in traffic.items():
                total[pair] = total.get(pair, 0.0) + volume
        return total


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def without(traffic: Traffic, *nodes: int, left: float = 0.0) -> Traffic:
    """What is left if nodes send only a share of what they did."""
    return {(a, b): volume * (left if a in nodes else 1) for (a, b), volume in traffic.items()}


def test_a_job_starts_when_it_is_certain_and_ends_when_it_was_idle_for_long_enough(fabric: Fabric) -> None:
    fabric.run(5)
    fabric.run(20, ring(*range(16)))
    assert fabric.begun == [(8, 16, "n00")]
    fabric.run(20)
    assert fabric.ended == [(25 + 10 + MARGIN // 60, 16, 11)]


def test_two_jobs_beside_each_other(fabric: Fabric) -> None:
    """Jobs do not talk to each other; a little chatter between them joins nothing."""
    traffic = ring(*range(8)) | ring(*range(8, 32), rate=RATE / 5) | {(3, 20): RATE / 1000, (20, 3): RATE / 1000}
    fabric.run(10, traffic)
    assert fabric.begun == [(3, 8, "n00"), (3, 24, "n08")]


def test_pipeline_stages_are_one_job(fabric: Fabric) -> None:
    fabric.run(10, pipeline(tuple(range(8)), tuple(range(8, 16)), tuple(range(16, 24))))
    assert fabric.begun == [(3, 24, "n00")]


@pytest.mark.parametrize("left", [0.0, 0.01, 0.2])
def test_a_node_that_drops_out_neither_ends_nor_splits_the_job(fabric: Fabric, left: float) -> None:
    """Two silent nodes cut a ring into two pieces: it stays one job, with all its nodes."""
    fabric.run(10, ring(*range(16)))
    fabric.run(200, without(ring(*range(16)), 3, 11, left=left))
    assert (fabric.begun, fabric.ended) == ([(3, 16, "n00")], [])
    assert len(fabric.cohorts.memory.running[0].members) == 16


def test_checkpoints_and_loading_do_not_end_it(fabric: Fabric) -> None:
    for _ in range(6):
        fabric.run(30, ring(*range(16)))
        fabric.run(9)
    assert (len(fabric.begun), fabric.ended) == (1, [])


def test_a_longer_pause_makes_two_jobs_of_it(fabric: Fabric) -> None:
    fabric.run(30, ring(*range(16)))
    fabric.run(12)
    fabric.run(30, ring(*range(16)))
    assert ([start for start, _, _ in fabric.begun], fabric.ended) == ([3, 45], [(41, 16, 11)])


def test_a_cohort_in_which_most_are_silent_is_not_at_work(fabric: Fabric) -> None:
    fabric.run(10, ring(*range(16)))
    fabric.run(15, ring(0, 1, 2, 3))
    assert fabric.ended == [(21, 16, 11)]


def test_another_cohort_on_half_of_the_nodes_is_another_job(fabric: Fabric) -> None:
    fabric.run(10, ring(*range(16)))
    fabric.run(20, ring(*range(8)))
    assert fabric.ended == [(21, 16, 0)]
    assert fabric.begun[1:] == [(23, 8, "n00")]


def test_a_quarter_of_the_nodes_may_be_gone_for_good(fabric: Fabric) -> None:
    fabric.run(10, ring(*range(16)))
    fabric.run(60, ring(*range(12)))
    assert (len(fabric.begun), fabric.ended) == (1, [])


def test_new_nodes_that_work_with_those_of_a_job_replace_it(fabric: Fabric) -> None:
    fabric.run(10, ring(*range(16)))
    fabric.run(10, ring(*range(8, 32)))
    assert fabric.ended == [(14, 16, 0)]
    assert fabric.begun[1:] == [(14, 24, "n08")]


def test_one_more_node_does_not(fabric: Fabric) -> None:
    fabric.run(10, ring(*range(16)))
    fabric.run(30, ring(*range(17)))
    assert (len(fabric.begun), fabric.ended) == (1, [])


def test_nodes_that_join_one_by_one_are_waited_for(fabric: Fabric) -> None:
    for count in range(4, 9):
        fabric.run(1, ring(*range(count)))
    fabric.run(10, ring(*range(8)))
    assert fabric.begun == [(7, 8, "n00")]


def test_but_not_for_ever(fabric: Fabric) -> None:
    for count in range(4, 40):
        fabric.run(1, ring(*range(count)))
    assert fabric.begun[0][0] == 10


@pytest.mark.parametrize(
    ("traffic", "why"),
    [
        (ring(0, 1), "two nodes that copy files"),
        (ring(*range(16), rate=0.05 * GBIT_MINUTE), "chatter"),
        ({(0, number): RATE for number in range(1, 8)}, "one that sends to all: nobody else is active"),
    ],
)
def test_what_is_no_cohort(fabric: Fabric, traffic: Traffic, why: str) -> None:
    fabric.run(30, traffic)
    assert fabric.begun == [], why


def test_a_small_talker_is_no_part_of_it(fabric: Fabric) -> None:
    """A node that copies something to one of the job's is active, but far below its median."""
    fabric.run(10, ring(*range(8)) | {(20, 3): 0.5 * GBIT_MINUTE})
    assert fabric.begun == [(3, 8, "n00")]


def test_bursts_of_less_than_the_time_it_takes_are_no_job(fabric: Fabric) -> None:
    for _ in range(10):
        fabric.run(2, ring(*range(8)))
        fabric.run(2)
    assert fabric.begun == []


def test_nodes_of_jobs_that_somebody_tells_of_are_left_alone(fabric: Fabric) -> None:
    fabric.run(10, ring(*range(8)) | ring(*range(8, 16)), taken=NODES[:8])
    assert fabric.begun == [(3, 8, "n08")]


def test_a_job_that_somebody_tells_of_later_takes_over(fabric: Fabric) -> None:
    fabric.run(10, ring(*range(8)))
    fabric.run(5, ring(*range(8)), taken=NODES[:8])
    assert fabric.ended == [(12, 8, 0)]
    assert len(fabric.begun) == 1


def test_a_silent_exporter_ends_no_job(fabric: Fabric) -> None:
    """Behind it half of the nodes vanish; they come back after twenty minutes."""
    fabric.run(10, ring(*range(16)))
    fabric.run(20, without(ring(*range(16)), *range(8)), heard=("leaf-2", "border"))
    fabric.run(5, heard=())
    fabric.run(10, ring(*range(16)))
    assert (len(fabric.begun), fabric.ended) == (1, [])


def test_an_idle_fabric_is_no_silent_exporter(fabric: Fabric) -> None:
    fabric.run(10, ring(*range(16)))
    fabric.run(15, heard=("border",))
    assert fabric.ended == [(21, 16, 11)]


def test_an_exporter_that_was_taken_away_holds_up_an_end_for_half_an_hour_only(fabric: Fabric) -> None:
    fabric.run(10, ring(*range(16)))
    fabric.run(60, heard=("leaf-1", "border"))
    assert fabric.ended == [(10 + 31 + 1, 16, 32)]


def test_an_exporter_that_is_heard_while_the_nodes_are_not_is_no_excuse(fabric: Fabric) -> None:
    """An idle fabric whose leaves have something to tell now and then."""
    fabric.run(10, ring(*range(16)))
    fabric.run(4, heard=("leaf-1", "border"))
    fabric.run(1, heard=("leaf-2", "border"))
    fabric.run(20, heard=("leaf-1", "border"))
    assert fabric.ended == [(21, 16, 11)]


def test_a_minute_in_which_the_store_failed_is_looked_at_again(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job ends in the very minute in which another one is looked for."""

    def fails(_seconds: int) -> Traffic:
        raise StoreError("away")

    fabric.run(10, ring(*range(8)))
    fabric.run(7)
    fabric.run(2, ring(*range(20, 24)))
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(fabric, "_pairs", fails)
            with pytest.raises(StoreError):
                fabric.run(1, ring(*range(20, 24)))
        fabric.now -= 60
        fabric.history.pop()
    assert fabric.ended == []
    fabric.run(1, ring(*range(20, 24)))
    assert (fabric.ended, fabric.begun[1:]) == ([(21, 8, 11)], [(20, 4, "n20")])


@pytest.mark.parametrize("every", [1, 3, 7])
def test_a_restart_at_any_time_changes_nothing(every: int) -> None:
    def story(fabric: Fabric, pause: Callable[[], None]) -> None:
        for minutes, traffic in (
            (4, ring(*range(8))),
            (20, ring(*range(8)) | ring(*range(20, 30))),
            (15, without(ring(*range(8)), 2)),
            (9, {}),
            (9, ring(*range(4, 24))),
            (30, ring(*range(12))),
        ):
            for _ in range(minutes):
                fabric.run(1, traffic)
                if fabric.now // 60 % every == 0:
                    pause()

    whole, parts = Fabric(), Fabric()
    story(whole, lambda: None)
    story(parts, parts.restart)
    assert (parts.begun, parts.ended) == (whole.begun, whole.ended)
    assert len(whole.begun) > 2


def test_components_by_relative_strength() -> None:
    among = np.ones(8, np.bool_)
    traffic = {(0, 1): 100.0, (1, 2): 3.0, (2, 3): 100.0, (4, 5): 100.0, (5, 6): 1.9, (6, 7): 100.0, (3, 3): 50.0}
    assert components(traffic, among) == [[0, 1, 2, 3], [4, 5], [6, 7]]
    among[2] = False
    assert components(traffic, among) == [[0, 1], [4, 5], [6, 7]]
