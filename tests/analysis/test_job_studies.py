"""Studies of jobs without a store: what they begin with, and what they ask for."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import cast

import numpy as np
import polars as pl
import pytest

from analysis.baseline import QUANTILES, RunSummary
from analysis.detectors.rows import Rows
from analysis.detectors.storage.storage_study import StorageStudy
from analysis.detectors.study import JobWindows, Span
from analysis.detectors.training.cohort_study import CohortStudy
from analysis.detectors.training.dropout_study import DropoutStudy
from analysis.detectors.training.pattern_study import PatternStudy
from analysis.detectors.training.straggler_study import StragglerStudy
from analysis.evidence import Reader
from analysis.jobs.job_windows import gpus_in, gpus_of
from cluster.model import Cluster, Cost, Exporter, ExportProtocol, Group, Job, Node, Plane, Role
from store import schema
from store.influx import ROWS, Numbers, Store
from store.influxql import Select
from store.points import WINDOW
from store.schema import NodeState, Phase

T0 = 1_760_000_400
SFLOW = Exporter("leaf-1", ip_address("192.0.2.1"), ExportProtocol.SFLOW)
NETFLOW = Exporter("leaf-1", ip_address("192.0.2.1"))
CLUSTER = Cluster(
    "studies",
    (Group("training", "Training", Role.TRAINING),),
    nodes=(Node("a", "training", (), gpus=4), Node("head", "training", (), gpus=0), Node("b", "training", (), gpus=4)),
    exporters=(SFLOW,),
    cost=Cost(gpus_per_node=8),
)
JOB = Job("one", "llm", ("a", "head", "b"), datetime.fromtimestamp(T0, UTC))


@dataclass
class Asked:
    """A reader, and a store, that know nothing and note what they are asked."""

    heard: list[tuple[int, int]] = field(default_factory=list)
    seconds: list[tuple[int, int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def windows(self) -> "Asked":
        return self

    def compute_heard(self, start: int, stop: int) -> np.ndarray:
        self.heard.append((start, stop))
        return np.zeros((0, 1), np.bool_)

    storage_heard = compute_heard

    def pulse(self, nodes: Sequence[str], start: int, stop: int) -> np.ndarray:
        self.seconds.append((start, stop))
        return np.zeros((stop - start, len(nodes)))

    def numbers(self, asked: Select) -> Numbers:
        self.texts.append(asked.text())
        shape = {**dict.fromkeys(asked.tags, pl.String), ROWS: pl.Int64}
        columns = "time", *(column.name for column in asked.columns)
        return Numbers(pl.DataFrame(schema=shape), columns, np.zeros((0, len(columns))))

    @property
    def reader(self) -> Reader:
        return cast("Reader", self)


def windows(count: int, start: int = T0, **changes: object) -> JobWindows:
    """Windows at work, as the studies of nodes and of storage would have found them."""
    sent = np.full((count, len(JOB.nodes)), 1e10)
    times = start + np.arange(count) * 10
    nodes = Rows(
        schema.BASELINE,
        {
            schema.STATE.name: np.full(sent.size, int(NodeState.OK)),
            schema.EXPECTED.name: np.ones(sent.size),
            schema.LOWER.name: np.full(sent.size, 0.9),
            schema.LOW_FOR.name: np.zeros(sent.size),
        },
    )
    phases = Rows(schema.PHASE, {WINDOW: times, schema.PHASE_STATE.name: np.full(count, int(Phase.COMPUTE))})
    whole = JobWindows(start, 10, sent, sent / 1500, sent * 0, sent * 0, np.ones((count, 1), np.bool_))
    looks = WINDOW, schema.STEP_PERIOD.name, schema.STEP_EXPECTED.name, schema.STEP_STATE.name
    return replace(whole, found=(nodes, phases, Rows.of(schema.STEP, looks, ())), **changes)  # type: ignore[arg-type]


# -- GPUs ----------------------------------------------------------------------------------------------


def test_a_node_that_says_it_has_no_gpus_has_none() -> None:
    assert gpus_in(JOB, gpus_of(CLUSTER)) == 8
    assert gpus_in(replace(JOB, nodes=("head", "gone")), gpus_of(CLUSTER)) == 0


def test_every_study_counts_the_same_gpus() -> None:
    asked = Asked()
    dropout, storage, cohort = (
        DropoutStudy(CLUSTER, asked.reader),
        StorageStudy(CLUSTER, asked.reader),
        CohortStudy(CLUSTER, cast("Store", asked)),
    )
    standing = dropout.first(JOB, [], T0)
    assert standing.gpus == 8
    assert storage.first(JOB, [], T0).ledger.gpus == 8
    assert cohort.first(JOB, [], T0).payer.gpus == 8


# -- a job whose beginning the store has lost ----------------------------------------------------------


def test_exporters_are_asked_for_the_hour_before_the_first_window() -> None:
    asked, begin = Asked(), T0 + 30 * 86_400
    DropoutStudy(CLUSTER, asked.reader).first(JOB, [], begin)
    StorageStudy(CLUSTER, asked.reader).first(JOB, [], begin)
    assert asked.heard == [(begin - 3600, begin)] * 2


@pytest.mark.parametrize(("begin", "is_gone"), [(T0, False), (T0 + 30 * 86_400, True)])
def test_start_and_load_of_a_job_whose_beginning_is_gone_are_over(begin: int, *, is_gone: bool) -> None:
    asked = Asked()
    storage = StorageStudy(CLUSTER, asked.reader).first(JOB, [], begin)
    assert storage.load.is_over is is_gone
    study = CohortStudy(CLUSTER, cast("Store", asked))
    carry, _ = study.judge(JOB, study.first(JOB, [], begin), windows(10, begin))
    assert carry.carry.first_work == 0, "it takes no month to start up"


# -- a job whose computing nobody sees -----------------------------------------------------------------

ALONE = replace(JOB, nodes=("a",))
ON_CPUS = replace(CLUSTER, groups=(Group("training", "Simulations", Role.CUSTOM),))


@pytest.mark.parametrize("read", [0.0, 5e8])
@pytest.mark.parametrize(("cluster", "job"), [(CLUSTER, ALONE), (ON_CPUS, JOB)], ids=["one node", "no training nodes"])
def test_a_job_that_is_not_seen_computing_is_neither_idle_nor_loading_for_hours(
    cluster: Cluster, job: Job, read: float
) -> None:
    """It sends nothing to training nodes; while it works it reads nothing, or its data all the time."""
    study = StorageStudy(cluster, Asked().reader)
    nothing, heard = np.zeros((360, len(job.nodes))), np.ones((360, 1), np.bool_)
    seen = JobWindows(T0, 10, nothing, nothing, nothing, nothing + read, heard, storage_heard=heard)
    _, found = study.judge(job, study.first(job, [], T0), seen)
    phases = {rows.measurement.name: rows for rows in found}[schema.PHASE.name][schema.PHASE_STATE.name]
    assert set(phases[1:]) == {Phase.BLIND}
    assert not CohortStudy(cluster, cast("Store", Asked())).first(job, [], T0).subject.sees_compute


# -- single seconds ------------------------------------------------------------------------------------


def looks(exporter: Exporter, *, is_final: bool) -> list[tuple[int, int]]:
    asked = Asked()
    study = StragglerStudy(replace(CLUSTER, exporters=(exporter,)), asked.reader)
    study.judge(JOB, study.first(JOB, [], T0), windows(180, is_final=is_final))
    return asked.seconds


def test_seconds_are_looked_at_once_they_are_final() -> None:
    assert looks(SFLOW, is_final=True) == [(end - 60, end) for end in (T0 + 900, T0 + 1800)]
    assert looks(SFLOW, is_final=False) == []
    assert looks(NETFLOW, is_final=True) == []


@pytest.mark.parametrize(("exporter", "asks"), [(SFLOW, True), (NETFLOW, False)])
def test_pulses_are_asked_for_only_where_somebody_samples(exporter: Exporter, *, asks: bool) -> None:
    asked = Asked()
    study = PatternStudy(replace(CLUSTER, exporters=(exporter,)), cast("Store", asked))
    points = study.judge(Span(T0, T0 + 600, T0 + 600, T0 + 610), [JOB])
    assert points[0][1].height == 10
    assert any(f'"{schema.PULSE.name}"' in text for text in asked.texts) is asks
    assert any(Plane.STORAGE.value in text for text in asked.texts) is asks


# -- jobs that were inferred from traffic ----------------------------------------------------------------


def test_an_inferred_job_is_held_against_no_other() -> None:
    """Its class is a number of nodes, and its end is where its traffic ends."""
    study = CohortStudy(CLUSTER, cast("Store", Asked()))
    earlier = [{"nodes": 3, "rates": [1e9] * 129, "pause": 20.0, "start_up": 0.0}] * 5
    told, inferred = (study.first(replace(JOB, origin=origin), earlier, T0) for origin in ("slurm", "inferred"))
    assert (told.subject.expected.runs, told.subject.is_told) == (5, True)
    assert (inferred.subject.expected.runs, inferred.subject.is_told) == (0, False)


def test_a_node_learns_from_its_own_runs_however_many_others_the_class_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a class of a thousand small jobs all were read, by each that began."""
    grid = np.linspace(0.9, 1.1, QUANTILES)

    def run(*names: str) -> dict[str, object]:
        return RunSummary(names, np.tile(grid, (len(names), 1)), np.full(len(names), np.nan), 1e9).memory()

    others, own = [run(f"x{number}") for number in range(50)], [run(*JOB.nodes) for _ in range(3)]
    read, whole = RunSummary.read, []
    monkeypatch.setattr(RunSummary, "read", lambda memory: whole.append(memory) or read(memory))
    baseline = DropoutStudy(CLUSTER, Asked().reader).first(JOB, [*others, *own], T0).baseline
    assert baseline.runs.tolist() == [3, 3, 3]
    assert baseline.level == 1e9
    assert len(whole) == CLUSTER.thresholds.dropout_max_runs + 3
