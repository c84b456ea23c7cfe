"""Windows that may still change: judged again only where they did, with the same rows as if all were."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
import pytest

from analysis.ahead import Ahead, Look, changed_from
from analysis.detectors.storage.storage_study import StorageStudy
from analysis.detectors.study import JobStudy, JobWindows, Span
from analysis.detectors.training.cohort_study import CohortStudy
from analysis.detectors.training.dropout_study import DropoutStudy
from analysis.detectors.training.held import HeldStudy
from analysis.detectors.training.step_study import StepStudy
from analysis.detectors.training.straggler_study import StragglerStudy
from analysis.runs import JobRuns
from analysis.standings import Standings
from analysis.state import State
from analysis.window_reader import WindowReader
from analysis.writing import Output, gathered
from app.log import Log
from cluster.model import Cluster, Exporter, ExportProtocol, Group, Job, Node, Role
from store.influx import Store
from tests.analysis.test_job_studies import Asked

NOW = 1_760_000_400
OPEN, ROUNDS, FIRST = 330, 45, NOW - 4 * 1800
SFLOW = Exporter("leaf-1", ip_address("192.0.2.1"), ExportProtocol.SFLOW)
SIZES = (1, 4)
GROUPS = (Group("training", "Training", Role.TRAINING), Group("storage", "Storage", Role.STORAGE))


def look(start: int, stop: int, oldest: int | None = None, *, is_open: bool = False) -> Look:
    return Look(start, stop, {"at": stop}, start if oldest is None else oldest, is_open)


def seen(*sent: float, start: int = 0) -> JobWindows:
    each = np.array(sent)[:, None]
    return JobWindows(start, 10, each, each, each, each, each > 0)


# -- what is kept ------------------------------------------------------------------------------------


def test_a_window_that_changed_is_found() -> None:
    before = seen(1, 2, 3, 4)
    assert changed_from(before, seen(1, 2, 3, 4, 5)) == 40
    assert changed_from(before, seen(2, 3, 4, 5, start=10)) == 40
    assert changed_from(before, seen(2, 9, 4, 5, start=10)) == 20
    assert changed_from(before, seen(1, 2)) == 20
    assert changed_from(before, seen()) == 0
    other = replace(before, heard=np.ones((4, 2), np.bool_))
    assert changed_from(before, other) == 0, "an exporter more"


def test_what_rests_on_a_changed_window_is_forgotten() -> None:
    ahead = Ahead(seen(1), [look(0, 100), look(100, 200)])
    ahead.forget(200)
    assert [one.stop for one in ahead.looks] == [100, 200]
    ahead.forget(150)
    assert [one.stop for one in ahead.looks] == [100]
    ahead.forget(90)
    assert ahead.looks == []


def test_a_row_that_lies_further_back_takes_what_it_lies_in_with_it() -> None:
    ahead = Ahead(seen(1), [look(0, 100), look(100, 200, oldest=70)])
    ahead.forget(150)
    assert ahead.looks == []


def test_what_may_change_by_itself_is_never_kept() -> None:
    ahead = Ahead(seen(1), [look(0, 100), look(100, 200, is_open=True)])
    ahead.forget(200)
    assert [one.stop for one in ahead.looks] == [100]


def test_two_looks_are_kept() -> None:
    ahead = Ahead(seen(1), [look(0, 100), look(100, 200, oldest=-10)])
    ahead.add(look(200, 210))
    assert [(one.start, one.stop, one.oldest, one.carries) for one in ahead.looks] == [
        (0, 200, -10, {"at": 200}),
        (200, 210, 200, {"at": 210}),
    ]


# -- with every study ----------------------------------------------------------------------------------


@dataclass
class Stored:
    """A store: what is said of each series and moment in the end, and how many lines that took."""

    points: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    lines: int = 0

    def another(self) -> "Stored":
        return self

    def write(self, lines: bytes, retention: str) -> None:
        del retention
        for line in lines.decode().splitlines():
            head, body, at = line.rsplit(" ", 2)
            self.points.setdefault((head, at), {}).update(pair.split("=", 1) for pair in body.split(","))
            self.lines += 1


@dataclass
class Played:
    """Windows of jobs that save, fail and stop; in each round some of the last minutes' bytes come late."""

    chance: float
    round: int = 0
    replayed: int = 0

    def begin(self, start: int, stop: int, nodes: Sequence[str] | None = None, **_: object) -> "Played":
        self.replayed += 0 if nodes is None else (stop - start) // 10
        self.start, self.stop = start, stop
        return self

    def of(self, job: Job, start: int, stop: int) -> JobWindows:
        starts, size = np.arange(start, stop, 10), len(job.nodes)
        rng = np.random.default_rng(size)
        common, own = rng.normal(1, 0.03, (1000, 1)), rng.normal(1, 0.004, (1000, size))
        places = (starts - FIRST) // 10
        sent, written = 1e10 * (common * own)[places], np.zeros((len(starts), size))
        is_saving = places % 60 < 2
        written[is_saving], sent[is_saving] = 2e9, 2e9
        if job.id.endswith("now"):
            since = (starts - NOW) // 10
            sent[(since >= 0) & (since < 8), size // 2] *= 0.3
            sent[(since >= 20) & (since < 28)] = 0
            # [round, window] what is left of a window's bytes after what came, or did not, in that round.
            shares = self._late(size)
            for place, late in enumerate(places - (NOW - OPEN - FIRST) // 10):
                came = np.flatnonzero(shares[: self.round + 1, late]) if 0 <= late < shares.shape[1] else ()
                for part in (sent, written) if len(came) else ():
                    part[place] *= shares[came[-1], late]
        heard = np.ones((len(starts), 1), np.bool_)
        heard[(starts >= NOW + 400) & (starts < NOW + 430)] = False
        return JobWindows(
            start, 10, np.rint(sent), np.rint(sent / 1500), np.rint(written), np.full(written.shape, 1e8), heard,
            rates=np.ones(len(starts)), competing=np.full(len(starts), 5e9), storage_heard=heard,
        )  # fmt: skip

    def _late(self, size: int) -> np.ndarray:
        rng = np.random.default_rng([size, 7])
        windows = OPEN // 10 + ROUNDS
        shares = np.where(rng.random((ROUNDS, windows)) < self.chance, rng.uniform(0.2, 1.5, (ROUNDS, windows)), 0.0)
        young = np.arange(windows) - np.arange(ROUNDS)[:, None]
        return np.where((young >= 0) & (young < OPEN // 10), shares, 0.0)


def moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def jobs() -> list[Job]:
    found, first = [], 0
    for size in SIZES:
        nodes = tuple(f"n{first + number}" for number in range(size))
        first += size
        found += [
            Job(f"{size}-{run}", f"of-{size}", nodes, moment(FIRST + run * 900), moment(FIRST + run * 900 + 450))
            for run in range(3)
        ]
        end = moment(NOW + 350) if size == 1 else None
        found.append(Job(f"{size}-now", f"of-{size}", nodes, moment(NOW - 1800), end))
    return found


@cache
def played(chance: float, *, anew: bool = False, restarts: tuple[int, ...] = ()) -> tuple[Stored, Played]:
    """Play rounds of ten seconds.

    Args:
        chance: of late bytes, each window and round.
        anew: judge all windows that may still change in each round.
        restarts: rounds before which the process ends, and another one goes on.
    """
    nodes = tuple(Node(f"n{number}", "training", (), gpus=8) for number in range(sum(SIZES)))
    cluster, asked, stored = Cluster("ahead", GROUPS, nodes=nodes, exporters=(SFLOW,)), Asked(), Stored()
    studies = (
        DropoutStudy(cluster, asked.reader), StorageStudy(cluster, asked.reader), StepStudy(cluster, asked.reader),
        CohortStudy(cluster, cast("Store", asked)), HeldStudy(cluster), StragglerStudy(cluster, asked.reader),
    )  # fmt: skip
    of_jobs = cast("Sequence[JobStudy[object]]", studies)
    output, windows = Output(cast("Store", stored)), Played(chance)
    with TemporaryDirectory() as folder, State.copy_of(Path(folder, "none")) as state:

        def begun() -> JobRuns:
            return JobRuns(
                of_jobs, cast("WindowReader", windows), state, Log(quiet=True), window=10, horizon=330, stretch=3600,
                check=lambda: None, thin=output.thinned, standings=Standings(Path(folder), cluster, Log(quiet=True)),
            )  # fmt: skip

        runs, position = begun(), NOW - OPEN - 30
        for windows.round in range(ROUNDS):
            if windows.round in restarts:
                runs.keep(position, all_jobs=True)
                runs = begun()
            closed = NOW + windows.round * 10
            if anew:
                runs.look_again()
            found = runs.judge(jobs(), Span(position, closed - OPEN, closed, closed + 10), 0, FIRST)
            frames = gathered(found.points)
            for study in studies:
                for one in study.measurements:
                    output.update(one, frames.get(one.name), position, closed - OPEN, found.stands)
            output.flush()
            position = closed - OPEN
    return stored, windows


def texts_and_numbers(said: dict[str, str]) -> tuple[dict[str, str], dict[str, float]]:
    texts = {name: text for name, text in said.items() if text.startswith('"')}
    return texts, {name: float(text.removesuffix("i")) for name, text in said.items() if name not in texts}


@pytest.mark.thorough
@pytest.mark.parametrize("chance", [0.0, 0.1])
def test_the_rows_are_as_if_all_windows_were_judged_in_each_round(chance: float) -> None:
    whole, ahead = played(chance, anew=True)[0], played(chance)[0]
    kinds = {head.partition(",")[0] for head, _ in whole.points}
    assert kinds >= {"baseline", "low_node", "phase", "checkpoint", "cohort", "stall", "dataset_load", "job_node"}
    assert_same(ahead, whole)


@pytest.mark.thorough
def test_a_process_goes_on_where_another_one_ended() -> None:
    (whole, first), (parts, second) = played(0.1), played(0.1, restarts=(1, 5, 20, 44))
    assert_same(parts, whole)
    assert second.replayed == first.replayed, "but for what the first process replayed"


def assert_same(parts: Stored, whole: Stored) -> None:
    assert parts.points.keys() == whole.points.keys()
    for key, said in whole.points.items():
        (texts, numbers), (same, near) = texts_and_numbers(parts.points[key]), texts_and_numbers(said)
        assert texts == same, key
        # Sums over windows one by one differ in their last bits from those over many.
        assert numbers == pytest.approx(near, rel=1e-9, abs=1e-9), key
