"""Jobs on their way through their windows, with a store that counts what is asked of it."""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from analysis import runs
from analysis import state as memory
from analysis.detectors.rows import Rows
from analysis.detectors.study import FLAW, JobWindows, Memory, Span
from analysis.jobs.job_windows import start_of
from analysis.kept import Kept
from analysis.runs import JobRuns
from analysis.standings import FOLDER, Standings
from analysis.state import MOST_RUNS, State
from analysis.window_reader import WindowReader
from app.errors import StoreError
from app.log import Log
from cluster.model import Cluster, Group, Job, Node, Outcome, Role, Thresholds
from store.points import WINDOW as POINT
from store.schema import JOB_STATUS, Measurement

DAY = 86_400
NOW = 1_760_000_400
WINDOW, STRETCH, HORIZON = 10, 3600, 330
NODES = ("n0", "n1")


@dataclass
class Windows:
    """Windows in which both nodes send; those before `oldest` are empty."""

    start: int
    stop: int
    oldest: int

    def of(self, job: Job, start: int, stop: int) -> JobWindows:
        starts = np.arange(start, stop, WINDOW)
        sent = np.repeat((starts >= self.oldest)[:, None] * 1e9, len(job.nodes), axis=1)
        return JobWindows(start, WINDOW, sent, sent, sent, sent, sent[:, :1] > 0)


@dataclass
class Reader:
    """Counts the ranges that it was asked for beside the pass's own."""

    oldest: int = 0
    most: int = 1000
    is_away: bool = False
    replayed: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, start: int, stop: int, nodes: Sequence[str] | None = None, **_: object) -> Windows:
        if nodes is not None:
            self.replayed.append((start, stop))
            assert len(self.replayed) <= self.most, "asks without end"
        if self.is_away:
            raise StoreError("away")
        return Windows(start, stop, self.oldest)


@dataclass
class Counting:
    """A study whose carry is the windows so far; keeps what it was begun with."""

    begun: dict[str, tuple[int, list[Memory]]] = field(default_factory=dict)
    flaw: str = ""

    name = "counting"
    closer = 0
    measurements: tuple[Measurement, ...] = ()

    def first(self, job: Job, earlier: Sequence[Memory], begin: int) -> int:
        self.begun[job.id] = begin, list(earlier)
        return 0

    def judge(self, job: Job, carry: int, windows: JobWindows) -> tuple[int, list[Rows]]:
        del job
        return carry + len(windows), []

    def retold(self, job: Job, carry: int) -> int:
        del job
        return carry

    def remember(self, job: Job, carry: int) -> Memory:
        return {"job": job.id, "windows": carry, FLAW: self.flaw}


@dataclass
class Bench:
    """A process of its own: studies, and what its store was asked; the state may be that of another."""

    state: State
    reader: Reader = field(default_factory=Reader)
    study: Counting = field(default_factory=Counting)
    standings: Standings | None = None

    def __post_init__(self) -> None:
        self.runs = JobRuns(
            (self.study,), cast("WindowReader", self.reader), self.state, Log(quiet=True),
            window=WINDOW, horizon=HORIZON, stretch=STRETCH, check=lambda: None, standings=self.standings,
        )  # fmt: skip

    def judge(self, jobs: Sequence[Job], start: int = NOW, *, raw_from: int = NOW - 7 * DAY) -> None:
        """A live pass over ten minutes."""
        self.runs.judge(jobs, Span(start, start + 300, start + 600, start + 610), start + 600, raw_from)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with State.copy_of(tmp_path / "none") as found:
        yield found


def job(name: str, start: float, end: float | None = None, **told: object) -> Job:
    stop = None if end is None else datetime.fromtimestamp(end, UTC)
    told = {"job_class": "eval", "nodes": NODES, **told}
    return Job(id=name, start=datetime.fromtimestamp(start, UTC), end=stop, **told)  # type: ignore[arg-type]


def evals(count: int, upto: int = NOW - 600, *, every: int = 1800) -> list[Job]:
    """Runs of five minutes, the newest last; it ended at `upto`."""
    starts = [upto - (count - 1 - number) * every - 300 for number in range(count)]
    return [job(f"run-{number}", start, start + 300) for number, start in enumerate(starts)]


# -- what runs teach -----------------------------------------------------------------------------------


def test_of_many_runs_the_newest_are_replayed_once(state: State) -> None:
    bench, earlier = Bench(state), evals(250)
    one, two = job("one", NOW), job("two", NOW + 60)
    bench.judge([*earlier, one])
    assert len(bench.reader.replayed) == MOST_RUNS
    taught = [told["job"] for told in bench.study.begun["one"][1]]
    assert taught == [run.id for run in reversed(earlier[-MOST_RUNS:])]
    bench.judge([*earlier, one, two])
    assert len(bench.reader.replayed) == MOST_RUNS, "the second of the class finds them remembered"
    again = Bench(state)
    again.judge([*earlier, one, two])
    assert again.reader.replayed == [], "so does the next process"


def test_a_run_learns_from_those_before_it(state: State) -> None:
    bench, earlier = Bench(state), evals(5)
    bench.judge([*earlier, job("one", NOW)])
    assert [len(bench.study.begun[run.id][1]) for run in earlier] == [0, 1, 2, 3, 4]


def test_an_array_of_tasks_at_once_is_replayed_once(state: State) -> None:
    """None of them was over before another began, and all were before the new one did."""
    bench = Bench(state)
    tasks = [job(f"4700_{number}", NOW - 4000, NOW - 3000 + number) for number in range(250)]
    bench.judge([*tasks, job("one", NOW)])
    assert len(bench.reader.replayed) == MOST_RUNS
    assert {len(bench.study.begun[task.id][1]) for task in tasks[-MOST_RUNS:]} == {0}


def test_what_is_forgotten_for_room_is_not_replayed_again(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST_MEMORIES", 10)
    bench, earlier = Bench(state, Reader(most=100)), evals(40)
    for number in range(5):
        bench.judge([*earlier, job(f"one-{number}", NOW + number * 900, NOW + number * 900 + 300)], NOW + number * 900)
    assert len(state.remembered("eval")) == 10
    assert len(bench.reader.replayed) == 40


def test_a_failed_run_is_not_replayed_and_one_that_turns_out_to_have_failed_is_unlearnt(state: State) -> None:
    bench = Bench(state)
    good, bad = evals(2)
    bench.judge([good, job("bad", NOW - 900, NOW - 600, outcome=Outcome.FAILED), job("one", NOW)])
    assert len(bench.reader.replayed) == 1
    bench.judge([good, bad, job("two", NOW)])
    assert len(bench.study.begun["two"][1]) == 2
    cancelled = job(bad.id, bad.start.timestamp(), NOW - 600, outcome=Outcome.CANCELLED)
    bench.judge([good, cancelled, job("three", NOW)])
    assert [told["job"] for told in bench.study.begun["three"][1]] == [good.id]


def test_a_run_without_traffic_is_asked_again_by_the_next_process_only(state: State) -> None:
    bench, jobs = Bench(state, Reader(oldest=NOW)), [*evals(3), job("one", NOW), job("two", NOW + 10)]
    bench.judge(jobs)
    assert len(bench.reader.replayed) == 3
    backfilled = Bench(state)
    backfilled.judge(jobs)
    assert len(backfilled.study.begun["one"][1]) == 3


def test_what_the_store_did_not_answer_is_asked_again(state: State) -> None:
    bench, jobs = Bench(state), [*evals(3), job("one", NOW)]
    bench.reader.is_away = True
    with pytest.raises(StoreError):
        bench.judge(jobs)
    bench.reader.is_away = False
    bench.judge(jobs)
    assert len(bench.study.begun["one"][1]) == 3


# -- how running jobs stand, on disk ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Strange:
    """A state that the analysis does not have."""

    at: int = 0


def site(**told: Any) -> Cluster:
    nodes = [Node(name, "training", (), gpus=8) for name in (*NODES, "n2")]
    return replace(Cluster("site", (Group("training", "Training", Role.TRAINING),), nodes=tuple(nodes)), **told)


def rested(state: State, folder: Path, cluster: Cluster, *jobs: Job) -> Bench:
    """A process that ended after a pass over ten minutes."""
    bench = Bench(state, standings=Standings(folder, cluster, Log(quiet=True)))
    bench.judge(jobs)
    bench.runs.keep(NOW + 300, all_jobs=True)
    return bench


def replayed(
    state: State, folder: Path, cluster: Cluster, *jobs: Job, start: int = NOW + 300, raw_from: int = NOW - 7 * DAY
) -> list[tuple[int, int]]:
    """What another one reads again when it judges from `start` on."""
    bench = Bench(state, standings=Standings(folder, cluster, Log(quiet=True)))
    bench.judge(jobs, start, raw_from=raw_from)
    assert (
        bench.runs._running[jobs[0].id, start_of(jobs[0])].carries["counting"] == (start + 300 - NOW + 6000) // WINDOW
    )
    return bench.reader.replayed


WHOLE = [(at, min(at + STRETCH, NOW + 300)) for at in range(NOW - 6000, NOW + 300, STRETCH)]


def test_a_job_goes_on_where_it_was(state: State, tmp_path: Path) -> None:
    long = job("long", NOW - 6000)
    rested(state, tmp_path, site(), long)
    assert replayed(state, tmp_path, site(), long) == []
    assert replayed(state, tmp_path, site(), long, start=NOW + 900) == [(NOW + 300, NOW + 900)], "what came since"


def test_a_job_that_is_further_on_than_the_position_is_judged_anew(state: State, tmp_path: Path) -> None:
    long = job("long", NOW - 6000)
    rested(state, tmp_path, site(), long)
    assert replayed(state, tmp_path, site(), long, start=NOW + 200)[-1] == (NOW - 6000 + STRETCH, NOW + 200)


@pytest.mark.parametrize(
    ("told", "is_anew"),
    [
        ({"end": datetime.fromtimestamp(NOW + 3600, UTC)}, False),
        ({"end": datetime.fromtimestamp(NOW + 310, UTC)}, True),
        ({"nodes": (*NODES, "n2")}, True),
    ],
)
def test_a_job_of_which_another_thing_became_known(
    state: State, tmp_path: Path, told: dict[str, Any], *, is_anew: bool
) -> None:
    long = job("long", NOW - 6000)
    rested(state, tmp_path, site(), long)
    bench = Bench(state, standings=Standings(tmp_path, site(), Log(quiet=True)))
    bench.judge([replace(long, **told)], NOW + 300)
    assert bench.reader.replayed == (WHOLE if is_anew else [])


@pytest.mark.parametrize(
    ("changed", "is_anew"),
    [
        ({"thresholds": Thresholds(dropout_spreads=5.0)}, True),
        ({"nodes": tuple(Node(name, "training", (), gpus=4) for name in NODES)}, True),
        ({"nodes": tuple(Node(name, "training", (), gpus=8) for name in (*NODES, "n9"))}, False),
        ({"name": "other"}, False),
    ],
)
def test_other_settings_judge_a_job_anew_other_nodes_do_not(
    state: State, tmp_path: Path, changed: dict[str, Any], *, is_anew: bool
) -> None:
    long = job("long", NOW - 6000)
    rested(state, tmp_path, site(), long)
    assert replayed(state, tmp_path, site(**changed), long) == (WHOLE if is_anew else [])


def test_what_the_store_has_lost_meanwhile_is_not_taken_for_silence(state: State, tmp_path: Path) -> None:
    long = job("long", NOW - 6000)
    rested(state, tmp_path, site(), long)
    bench = Bench(state, standings=Standings(tmp_path, site(), Log(quiet=True)))
    bench.judge([long], NOW + 3600, raw_from=NOW + 1800)
    assert bench.reader.replayed == [(NOW + 1800, NOW + 3600)]


class Trap:
    """What would run code when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("trapped",)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def trapped(path: Path) -> None:
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n" + pickle.dumps(Trap()))


@pytest.mark.parametrize("spoil", [cut, trapped, Path.unlink, lambda path: path.write_bytes(b"")])
def test_what_is_lost_or_damaged_is_judged_anew(
    state: State, tmp_path: Path, spoil: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    long = job("long", NOW - 6000)
    rested(state, tmp_path, site(), long)
    (path,) = (tmp_path / FOLDER).iterdir()
    spoil(path)
    assert replayed(state, tmp_path, site(), long) == WHOLE
    assert not Path("trapped").exists()


def test_states_that_this_version_does_not_have_are_no_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standings, long = Standings(tmp_path, site(), Log(quiet=True)), job("long", NOW)
    standings.keep(long, Strange())
    assert standings.find(long) is None, "no class of ours"
    standings.keep(long, Kept(3))
    assert standings.find(long) == Kept(3)
    monkeypatch.setattr(Kept, "__dataclass_fields__", {"width": Kept.__dataclass_fields__["width"]})
    assert standings.find(long) is None, "it has other fields by now"


def test_states_of_another_version_are_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = job("long", NOW)
    Standings(tmp_path, site(), Log(quiet=True)).keep(long, Kept(3))
    assert Standings(tmp_path, site(), Log(quiet=True)).find(long) == Kept(3)
    monkeypatch.setattr("analysis.standings.own_version", lambda: "9.9")
    assert Standings(tmp_path, site(), Log(quiet=True)).find(long) is None


def test_a_job_that_is_over_leaves_nothing(state: State, tmp_path: Path) -> None:
    brief = job("brief", NOW - 1200, NOW + 400)
    bench = rested(state, tmp_path, site(), brief)
    assert len(list((tmp_path / FOLDER).iterdir())) == 1
    bench.judge([brief], NOW + 300)
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_full_disk_stops_nothing(state: State, tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("no folder")
    brief = job("brief", NOW - 1200, NOW + 400)
    bench = rested(state, tmp_path, site(), job("long", NOW - 6000), brief)
    bench.judge([brief], NOW + 300)
    assert replayed(state, tmp_path, site(), job("long", NOW - 6000)) == WHOLE


def test_many_jobs_are_kept_some_at_a_time(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_KEPT_AT_ONCE", 1)
    bench = Bench(state, standings=Standings(tmp_path, site(), Log(quiet=True)))
    jobs = [job(f"long-{number}", NOW - 6000) for number in range(3)]
    bench.judge(jobs)
    for count in (1, 2, 3, 3):
        bench.runs.keep(NOW + 300)
        assert len(list((tmp_path / FOLDER).iterdir())) == count


# -- a job whose beginning is gone ---------------------------------------------------------------------


def test_a_job_of_years_is_replayed_from_the_oldest_window_on(state: State) -> None:
    bench, raw_from = Bench(state), NOW - 7 * DAY
    bench.judge([job("service", NOW - 1000 * DAY)], raw_from=raw_from)
    assert bench.reader.replayed[0][0] == raw_from
    assert bench.reader.replayed[-1][1] == NOW
    assert len(bench.reader.replayed) == 7 * 24
    assert bench.study.begun["service"][0] == raw_from


def test_a_job_begins_where_it_does_while_the_store_holds_it(state: State) -> None:
    bench = Bench(state)
    bench.judge([job("a", NOW - 7203)], raw_from=NOW - 7 * DAY)
    assert (bench.study.begun["a"][0], bench.reader.replayed[0][0]) == (NOW - 7210, NOW - 7210)
    again = Bench(state)
    again.judge([job("a", NOW - 7203)], raw_from=NOW + 100)
    assert again.study.begun["a"][0] == NOW, "what is judged is read, however old"


def test_the_oldest_window_may_move_on_while_a_job_runs(state: State) -> None:
    bench, jobs = Bench(state), [job("a", NOW - 30 * DAY)]
    for number in range(5):
        bench.judge(jobs, NOW + number * 300, raw_from=NOW - 7 * DAY + number * 300)
    assert len(bench.reader.replayed) == 7 * 24
    assert bench.study.begun["a"][0] == NOW - 7 * DAY


def test_a_long_replay_is_told(state: State, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(state)
    bench.runs._log = Log()
    bench.judge([job("a", NOW - 1800)])
    assert capsys.readouterr().err == ""
    bench.judge([job("b", NOW - 5 * 3600)])
    assert "event=replay job=b" in capsys.readouterr().err


# -- what is forgotten ---------------------------------------------------------------------------------


def remembered(state: State, job_class: str = "eval") -> int:
    return len(state.memories("counting", job_class, NOW * 2, 10**6))


def keep(state: State, *runs: Job, flaw: str = "") -> None:
    for run in runs:
        state.remember(run, {"counting": {"job": run.id, FLAW: flaw}})


def test_runs_within_the_raw_retention_all_stay(state: State) -> None:
    keep(state, *evals(300))
    state.forget_runs(NOW - 7 * DAY, {"eval"})
    assert remembered(state) == 300


def test_of_those_before_it_the_newest_good_ones_stay(state: State) -> None:
    keep(state, *evals(300))
    keep(state, job("bad", NOW - 900, NOW - 650), flaw="too short")
    state.forget_runs(NOW, {"eval"})
    newest = state.memories("counting", "eval", NOW, 1000)
    assert [told["job"] for told in newest] == [f"run-{number}" for number in range(299, 99, -1)]
    assert len(state.remembered("eval")) == 200


def test_a_class_that_is_not_used_any_more_is_forgotten(state: State) -> None:
    keep(state, *(job(name, NOW - 100 * DAY, NOW - 100 * DAY + 60, job_class=name) for name in ("once", "running")))
    keep(state, job("quarterly", NOW - 89 * DAY, NOW - 89 * DAY + 60, job_class="quarterly"))
    state.forget_runs(NOW, {"running"})
    assert [remembered(state, name) for name in ("once", "running", "quarterly")] == [0, 1, 1]


def test_there_are_never_more_than_fit(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST_MEMORIES", 30)
    keep(state, *(job(f"run-{number}", NOW - number, NOW - number + 1, job_class=str(number)) for number in range(50)))
    state.forget_runs(NOW - DAY, set())
    assert [remembered(state, str(number)) for number in (0, 29, 30, 49)] == [1, 1, 0, 0]


def test_many_small_runs_do_not_displace_few_others(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST_MEMORIES", 30)
    keep(state, *(job(f"night-{day}", NOW - day * DAY, NOW - day * DAY + 60, job_class="llm") for day in range(1, 8)))
    keep(state, *evals(100))
    state.forget_runs(NOW - 10 * DAY, set())
    assert (remembered(state, "llm"), remembered(state)) == (7, 23)
    assert state.memories("counting", "eval", NOW, 1)[0]["job"] == "run-99"


@pytest.mark.parametrize("runs", [1, 2])
def test_names_that_are_used_once_or_twice_displace_no_class_that_judges(
    state: State, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    """A job that returns after three weeks, beside hundreds that each have a name of their own."""
    monkeypatch.setattr(memory, "_MOST_MEMORIES", 30)
    keep(state, *(job(f"old-{day}", NOW - day * DAY, NOW - day * DAY + 60, job_class="llm") for day in range(21, 28)))
    keep(state, *(replace(run, job_class=f"class-{number // runs}") for number, run in enumerate(evals(100))))
    state.forget_runs(NOW - 30 * DAY, set())
    assert (remembered(state, "llm"), remembered(state, f"class-{99 // runs}")) == (7, runs)


def test_the_analysis_forgets_when_a_run_is_over(state: State) -> None:
    keep(state, job("once", NOW - 100 * DAY, NOW - 100 * DAY + 60, job_class="once"))
    bench = Bench(state)
    bench.judge([job("a", NOW, NOW + 100)])
    assert (remembered(state, "once"), remembered(state)) == (0, 1)


class Compared(Job):
    """A job that counts how often it is compared with another."""

    __slots__ = ()
    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return Job.__eq__(self, other)

    __hash__ = Job.__hash__


def test_runs_are_not_looked_for_among_all_jobs_of_a_week(state: State) -> None:
    """A cluster with many evaluations has tens of thousands: each round took seconds."""
    told = [*evals(300), *(job(f"long-{number}", NOW - 30) for number in range(10))]
    jobs = tuple(Compared(one.id, f"class-{one.id}", one.nodes, one.start, one.end, one.outcome) for one in told)
    bench = Bench(state)
    bench.judge(jobs)
    Compared.count = 0
    bench.judge(jobs, NOW + 300)
    assert Compared.count < 100


# -- what is not final yet -------------------------------------------------------------------------------


@dataclass
class Looking(Counting):
    """A study that notes what it is asked to judge, and whether that is for good."""

    looks: list[tuple[int, int, bool]] = field(default_factory=list)
    closer: int = 0
    is_open: bool = False

    def judge(self, job: Job, carry: int, windows: JobWindows) -> tuple[int, list[Rows]]:
        begin = windows.start - NOW
        self.looks.append((begin, begin + len(windows) * WINDOW, windows.is_final))
        found = Rows(JOB_STATUS, {POINT: windows.starts}, {"job": job.id}, self.is_open)
        return carry + len(windows), [found]


def round_by_round(state: State, study: Looking, *, anew: bool = False) -> list[tuple[int, int, bool]]:
    """Three rounds, of which the second and the third close a window more; return the looks of these two."""
    bench = Bench(state, study=study)
    for number in range(3):
        if number == 1:
            study.looks.clear()
        if anew:
            bench.runs.look_again()
        start = NOW + max(number - 1, 0) * WINDOW
        bench.runs.judge([job("a", NOW)], Span(start, NOW + number * WINDOW, start + 300, start + 310), 0, NOW - DAY)
    return study.looks


def test_only_what_is_new_is_judged_again(state: State) -> None:
    assert round_by_round(state, Looking()) == [(0, 10, True), (10, 20, True), (300, 310, False)]


@pytest.mark.parametrize("why", [{"is_open": True}, {"closer": 20}])
def test_what_may_change_by_itself_is_judged_again(state: State, why: dict[str, int]) -> None:
    """Who else was at work is stored later; steps are looked at once their seconds are final."""
    looks = round_by_round(state, Looking(**why))  # type: ignore[arg-type]
    assert (20, 310, False) in looks or {(20, 300, False), (300, 310, False)} <= set(looks)


@dataclass
class Noting(Counting):
    """A study that notes, by job, in which windows a node is held by others, and whether its bytes count there."""

    told: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)

    def judge(self, job: Job, carry: int, windows: JobWindows) -> tuple[int, list[Rows]]:
        apart = [row.any() for row in windows.apart] or [False] * len(windows)
        assert [not row.all() for row in windows.sent] == apart
        self.told.setdefault(job.id, []).extend(zip((windows.starts - NOW).tolist(), apart, strict=True))
        return super().judge(job, carry, windows)


def test_a_job_knows_who_else_held_its_nodes(state: State) -> None:
    """In windows that it goes through again at a start as well as in those of the pass."""
    study = Noting()
    bench, nodes = Bench(state, study=study), (*NODES, "n2", "n3")
    debug = [replace(job(f"debug-{at}", NOW + at, NOW + at + 60), job_class="debug") for at in (-600, 120)]
    bench.judge([replace(job("long", NOW - 1200), nodes=nodes[1:]), *debug])
    held = [at for at, is_apart in study.told["long"] if is_apart]
    assert held == [*range(-600, -540, 10), *range(120, 180, 10)]


def test_after_a_failure_all_is_judged_again(state: State) -> None:
    assert (20, 310, False) in round_by_round(state, Looking(), anew=True)
