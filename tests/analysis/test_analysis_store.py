"""The analysis on a real InfluxDB: live, interrupted, and once more over the past."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scene
from polars.testing import assert_frame_equal

from analysis import cli
from analysis.analyser import Analyser
from analysis.jobs.all_sources import stored_jobs
from analysis.jobs.job_windows import ClusterFileJobs
from analysis.runs import JobRuns, _Running
from analysis.standings import FOLDER
from analysis.state import FILE, State
from app.errors import UserError
from app.log import Log
from cluster.model import Cluster, Job, Outcome, Thresholds
from store import schema
from store.influx import Store
from store.lease import Lease
from store.local_influxdb import LocalInfluxDB
from store.schema import Cause, Measurement, NodeState, Stage

SETTLE = 15
MEASUREMENTS = {measurement.name: measurement for measurement in schema.MEASUREMENTS}


@dataclass
class Site:
    """A cluster with its store and its state folder; `start` is when the running job began."""

    cluster: Cluster
    store: Store
    folder: Path
    start: int

    def analyser(self, state: State, folder: Path | None = None) -> Analyser:
        jobs = ClusterFileJobs(self.cluster)
        return Analyser(self.cluster, self.store, state, jobs, log=Log(), folder=folder or self.folder)

    def tick(self, now: float) -> None:
        """Tick as a process that begins and ends with it."""
        with State.open(self.folder) as state:
            self.analyser(state).tick(now)

    def rerun(self, start: float, stop: float, folder: Path | None = None) -> None:
        with State.copy_of(folder or self.folder) as state:
            self.analyser(state).rerun(start, stop, stop + 1000)

    def states(self, node: str) -> dict[int, int]:
        """Window (seconds after the job's start) -> state, in the jobs that are not history."""
        frame = scene.stored(self.store, schema.BASELINE).filter(
            pl.col(schema.NODE) == node, ~pl.col(schema.JOB).str.starts_with("run-")
        )
        return {row["time"] // 1000 - self.start: row[schema.STATE.name] for row in frame.iter_rows(named=True)}

    def low(self, measurement: schema.Measurement) -> list[dict[str, object]]:
        """What a measurement says of nodes that are low, down or blind, in the order of time and nodes."""
        fields = [field.name for field in schema.LOW_NODE.fields if field in schema.BASELINE.fields]
        rows = scene.stored(self.store, measurement).filter(pl.col(schema.STATE.name) >= NodeState.LOW)
        return rows.select("time", schema.NODE, *fields).sort("time", schema.NODE).to_dicts()

    def contacts(self) -> list[tuple[int, str, str, int, int]]:
        """(Window after the job's start, source, destination, bytes, new)."""
        frame = scene.stored(self.store, schema.CONTACT)
        return [
            (row["time"] // 1000 - self.start, row["src"], row["dst"], row["bytes"], row["new"])
            for row in frame.iter_rows(named=True)
        ]


@pytest.fixture(params=[0])
def site(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Site]:
    """Four earlier runs in the store, and a fifth that began half an hour ago, of which nothing is stored yet.

    The parameter: seconds after a full minute at which it began.
    """
    start = int(time.time()) // 60 * 60 - 1800 + request.param
    runs = scene.earlier_runs(start)
    jobs = (*runs, scene.job("now", start))
    cluster = scene.cluster_of(influxdb_v1.url, fresh_database, str(tmp_path / "state"), jobs)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    for run in runs:
        begin = int(run.start.timestamp())
        scene.write_training(store, begin, begin + scene.RUN)
    scene.write_egress(store, (start - 4 * 3600, "gpu-0", "203.0.113.1", 50))
    yield Site(cluster, store, tmp_path / "state", start)
    store.close()


def drop(node: int, after: int, share: float) -> scene.Change:
    def change(sent: np.ndarray, starts: np.ndarray) -> None:
        sent[starts >= after, node] *= share

    return change


# -- verdicts from the store -------------------------------------------------------------------------


def test_a_node_that_falls_to_80_percent_is_low_in_the_second_window(site: Site) -> None:
    fall = site.start + 200
    scene.write_training(site.store, site.start, site.start + 400, drop(3, fall, 0.8))
    site.tick(site.start + 400)
    assert {at: state for at, state in site.states("gpu-3").items() if state != NodeState.OK} == dict.fromkeys(
        range(210, 380, 10), NodeState.LOW
    )
    assert set(site.states("gpu-2").values()) == {NodeState.OK}
    assert site.low(schema.LOW_NODE) == site.low(schema.BASELINE)
    assert {row[schema.NODE] for row in site.low(schema.LOW_NODE)} == {"gpu-3"}
    row = scene.stored(site.store, schema.BASELINE).filter(pl.col(schema.NODE) == "gpu-3").row(-1, named=True)
    assert row[schema.LOW_FOR.name] == 180
    assert row[schema.RUNS.name] == 4
    assert row[schema.OBSERVED.name] == pytest.approx(0.8, abs=0.01)
    assert row[schema.EXPECTED.name] == pytest.approx(1.0, abs=0.01)
    assert row[schema.LOWER.name] == pytest.approx(0.92, abs=0.01)
    # Load differs by the window: a fifth of what the node would have sent in just these.
    usual = sum(scene.usual_bytes(window)[3] for window in range(fall, fall + 180, 10))
    assert row[schema.MISSING_BYTES.name] == pytest.approx(0.2 * usual, rel=0.05)
    assert (row[schema.GROUP], row[schema.JOB], row[schema.JOB_CLASS]) == ("training", "now", "llm")


def test_a_row_of_its_own_says_that_a_node_is_low_no_longer(site: Site) -> None:
    def dip(sent: np.ndarray, starts: np.ndarray) -> None:
        sent[(starts >= site.start + 200) & (starts < site.start + 300), 3] *= 0.8

    scene.write_training(site.store, site.start, site.start + 500, dip)
    site.tick(site.start + 500)
    rows = scene.stored(site.store, schema.LOW_NODE).sort("time")
    *low, after = rows.get_column(schema.STATE.name).to_list()
    assert set(low) == {NodeState.LOW}
    assert after == NodeState.OK
    assert set(rows.get_column(schema.JOB_NODES.name)) == {6}


def test_the_verdict_is_there_before_a_minute_is_over(site: Site) -> None:
    fall = site.start + 200
    scene.write_training(site.store, site.start, fall + 40, drop(3, fall, 0.8))
    site.tick(fall + 20 + SETTLE)
    frame = scene.stored(site.store, schema.BASELINE).filter(pl.col(schema.NODE) == "gpu-3")
    assert frame.row(-1, named=True)[schema.LOW_FOR.name] >= site.cluster.thresholds.dropout_for


def test_a_node_without_points_has_rows_of_zero_and_is_down(site: Site) -> None:
    scene.write_training(site.store, site.start, site.start + 300, drop(0, site.start + 200, 0.0))
    site.tick(site.start + 300)
    assert site.states("gpu-0")[200] == NodeState.DOWN
    frame = scene.stored(site.store, schema.BASELINE).filter(pl.col(schema.NODE) == "gpu-0")
    assert frame.get_column(schema.SENT_BYTES.name).to_list()[-5:] == [0] * 5


def test_a_bridge_that_stops_makes_nodes_blind_not_down(site: Site) -> None:
    scene.write_training(site.store, site.start, site.start + 200)
    site.tick(site.start + 400)
    assert {state for at, state in site.states("gpu-0").items() if at >= 200} == {NodeState.BLIND}
    assert site.low(schema.LOW_NODE) == site.low(schema.BASELINE) != []
    # It comes back and works off what waited in the spool: the windows are judged after all.
    scene.write_training(site.store, site.start + 200, site.start + 420)
    site.tick(site.start + 430)
    assert set(site.states("gpu-0").values()) == {NodeState.OK}
    assert site.low(schema.LOW_NODE) == []


def test_nodes_behind_a_silent_exporter_are_blind(site: Site) -> None:
    at = site.start + 200

    def half_gone(sent: np.ndarray, starts: np.ndarray) -> None:
        sent[starts >= at, :2] = 0

    scene.write_training(site.store, site.start, at + 200, half_gone, silent={"leaf-1": (at, at + 200)})
    site.tick(at + 200)
    assert {state for window, state in site.states("gpu-0").items() if window >= 200} == {NodeState.BLIND}
    assert set(site.states("gpu-5").values()) == {NodeState.OK}


def test_partial_totals_of_two_bridges_add_up(site: Site) -> None:
    def half(sent: np.ndarray, starts: np.ndarray) -> None:
        sent[starts >= site.start + 100] *= 0.5

    scene.write_training(site.store, site.start, site.start + 300, half)
    scene.write_training(site.store, site.start + 100, site.start + 300, lambda sent, _: sent.__imul__(0.5), shard="b")
    site.tick(site.start + 300)
    frame = scene.stored(site.store, schema.BASELINE)
    sent = frame.filter(pl.col("time") >= (site.start + 110) * 1000).get_column(schema.SENT_BYTES.name)
    assert sent.min() > 0.6 * scene.RATE


def test_fewer_runs_than_needed_is_learning(site: Site) -> None:
    few = replace(site, cluster=scene.with_jobs(site.cluster, *site.cluster.jobs[2:]))
    scene.write_training(few.store, few.start, few.start + 300, drop(0, few.start + 100, 0.0))
    few.tick(few.start + 300)
    assert set(few.states("gpu-0").values()) == {NodeState.LEARNING}


def test_jobs_have_rows_and_events(site: Site) -> None:
    site.tick(site.start + 100)
    frame = scene.stored(site.store, schema.JOB_STATUS)
    events = frame.filter(pl.col(schema.JOB_EVENT.name).is_not_null())
    assert events.filter(pl.col(schema.JOB) == "now").get_column("time").to_list() == [site.start * 1000]
    assert events.filter(pl.col(schema.JOB) == "run-3").get_column(schema.JOB_EVENT.name).to_list() == ["start", "stop"]
    newest = frame.filter(pl.col(schema.JOB) == "now").row(-1, named=True)
    assert (newest["time"] // 1000, newest[schema.ACTIVE.name]) == (site.start + 100, 1)


def test_every_tick_leaves_a_heartbeat(site: Site) -> None:
    scene.write_training(site.store, site.start, site.start + 100)
    site.tick(site.start + 107)
    beat = site.store.query(
        f"SELECT last(value) FROM raw.pipeline WHERE stage = '{Stage.ANALYSIS}' AND reason = '{schema.HEARTBEAT}'"
    )[0]
    assert beat.values == [[(site.start + 107) * 1000, 17.0]]


# -- a clock that is wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [2 * 3600, pytest.param(86_400, marks=pytest.mark.long_form)])
@pytest.mark.parametrize("how", ["whole", "restarted"])
def test_a_clock_that_was_ahead_once_does_not_blind_what_comes(
    site: Site, ahead: int, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start = site.start
    scene.write_training(site.store, start, start + 200)
    with State.open(site.folder) as state:
        analyser = site.analyser(state)

        def tick(now: int) -> None:
            if how == "restarted":
                site.tick(now)
            else:
                analyser.tick(now)

        tick(start + 220)
        # Hours and days go by for it.
        tick(start + 225 + ahead)
        assert state.position is not None
        assert state.position > start + 1800
        scene.write_training(site.store, start + 200, start + 1200, drop(3, start + 300, 0.0))
        capsys.readouterr()
        tick(start + 700)
        told = capsys.readouterr().err
        assert told.count("event=clock_turned_back") == 1
        assert "level=warning" in told
        assert state.position <= start + 700
        tick(start + 1215)
    assert "clock_turned_back" not in capsys.readouterr().err
    assert {state for at, state in site.states("gpu-3").items() if 310 <= at < 1200} == {NodeState.DOWN}
    # What it said of times that had not come is taken back: nobody would look at it again.
    for measurement in (schema.BASELINE, schema.LOW_NODE):
        assert all(int(str(row["time"])) < (start + 1200) * 1000 for row in site.low(measurement))
    jobs = scene.stored(site.store, schema.JOB_STATUS).filter(pl.col(schema.ACTIVE.name) > 0)
    assert int(jobs.get_column("time").max()) < (start + 1230) * 1000  # type: ignore[arg-type]


@pytest.mark.long_form
def test_a_clock_that_was_ahead_for_long_leaves_no_gap(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Its last heartbeats are of the past when it is right again, and said that all was judged."""
    start, ahead = site.start, 5000
    scene.write_training(site.store, start, start + 100)
    site.tick(start + 120)
    for now in range(start + 200, start + 7000, 1000):
        site.tick(now + ahead)
    scene.write_training(site.store, start + 100, start + 7100, drop(3, start + 300, 0.0))
    site.tick(start + 7120)
    assert "event=clock_turned_back" in capsys.readouterr().err
    states = site.states("gpu-3")
    assert {states.get(at) for at in range(310, 7100, 10)} == {NodeState.DOWN}


def test_a_host_that_boots_with_its_clock_behind_forgets_nothing(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """NTP sets it a moment later. What stays behind was ahead before."""
    start, behind = site.start, site.start - 3 * 3600
    scene.write_training(site.store, start, start + 300, drop(3, start + 100, 0.0))
    site.tick(start + 220)
    before = site.low(schema.BASELINE)
    with State.open(site.folder) as state:
        analyser = Analyser(
            site.cluster, site.store, state, ClusterFileJobs(site.cluster), log=Log(), folder=site.folder, patience=60
        )
        for moment in (behind, behind + 59, start + 221, behind, behind + 30):
            analyser.tick(moment)
            assert before == site.low(schema.BASELINE)[: len(before)]
            assert state.position is not None
            assert state.position > behind
        assert "clock_turned_back" not in capsys.readouterr().err
        analyser.tick(behind + 60)
        assert "clock_turned_back" in capsys.readouterr().err


def test_time_passes_where_nothing_is_stored(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster that rests is no clock that is wrong."""
    for now in (0, 5, 4 * 3600, 4 * 3600 + 5):
        site.tick(site.start + now)
    with State.open(site.folder) as state:
        assert state.position is not None
        assert state.position > site.start + 3 * 3600 - 300 - 2 * SETTLE
    assert "clock_turned_back" not in capsys.readouterr().err


# -- the same, live and later ------------------------------------------------------------------------


def test_longer_windows_go_on_where_shorter_ones_ended(site: Site) -> None:
    """A position in the middle of a window would read rows from before its first one."""
    end = site.start + 910
    scene.write_training(site.store, site.start, end)
    site.tick(end + SETTLE)
    site.cluster = replace(site.cluster, bridge=replace(site.cluster.bridge, window=60))
    site.tick(end + 60 + SETTLE)
    with State.open(site.folder) as state:
        assert state.position == site.start + 660


def play(site: Site, *, how: str) -> None:
    """Play twelve minutes: windows appear late and grow, with a dropout, a silent exporter, contacts and a scan.

    Interrupted: the process is restarted on the way, and again later with its state lost. Handed over: another machine
    that has stood by takes over on the way, and the first one again later, with a state that is behind.
    """
    start, end = site.start, site.start + 720
    folders = [site.folder, site.folder.with_name("of-another")]
    state, other = map(State.open, folders)
    analyser, follower = site.analyser(state), site.analyser(other, folders[1])

    def story(sent: np.ndarray, starts: np.ndarray) -> None:
        sent[(starts >= start + 150) & (starts < start + 260), 1] *= 0.7
        sent[(starts >= start + 300) & (starts < start + 340)] *= 0.02
        sent[(starts >= start + 380) & (starts < start + 470)] = 0
        sent[starts >= start + 480, 4] = 0
        sent[(starts >= start + 600) & (starts < start + 660), :3] = 0

    silent = {"leaf-1": (start + 600, start + 660)}
    for now in range(start, end, 10):
        show(site, now, story, silent)
        if how != "whole" and now in (start + 200, start + 400):
            analyser.rest()
            if how == "handed over":
                follower.rest()
                folders.reverse()
                state, other = other, state
                state.forget_all()
                follower = site.analyser(other, folders[1])
            else:
                state.__exit__()
                if now == start + 400:
                    (site.folder / FILE).unlink()
                state = State.open(site.folder)
            analyser = site.analyser(state, folders[0])
        if now % 20 == 0:
            analyser.tick(now + 3)
        if how == "handed over" and now % 60 == 40:
            follower.follow(now + 5, stored_jobs(site.store))
    # Verdicts that wait until nothing can change follow the bridge's grace behind the newest window.
    scene.write_training(site.store, end - 130, end + 400, story, silent)
    for now in range(end, end + 450, 50):
        analyser.tick(now + 3)
    state.__exit__()
    other.__exit__()


def show(site: Site, now: int, story: scene.Change, silent: dict[str, tuple[int, int]]) -> None:
    """Write what a bridge would write about now."""

    def early(sent: np.ndarray, starts: np.ndarray) -> None:
        story(sent, starts)
        sent[:, 2] *= 0.75

    # The first write of a window lacks a quarter of one node; two minutes later the rest has come.
    scene.write_training(site.store, now - 10, now, early, silent)
    scene.write_training(site.store, now - 130, now - 110, story, silent)
    scene.write_egress(site.store, (now, "gpu-0", "203.0.113.1", 40))
    if (now - site.start) % 50 == 20:
        scene.write_egress(site.store, (now, "gpu-1", f"203.0.113.{now % 7 + 2}", 100))
    if now == site.start + 300:
        scene.write_egress(site.store, *((now, "gpu-2", f"198.18.0.{number}", number) for number in range(1, 60)))


@pytest.mark.parametrize(
    ("site", "how"),
    [pytest.param(0, "whole", marks=pytest.mark.long_form), (30, "interrupted"), (30, "handed over")],
    indirect=["site"],
)
def test_live_ticks_and_a_later_run_agree(
    site: Site, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.write_training(site.store, site.start - 20, site.start)
    begins = replays_of("now", monkeypatch)
    play(site, how=how)
    # The longest is what the leader judged for good since the follower looked last.
    assert max((stop - start for start, stop in begins), default=0) <= 60
    # As a job of thousands of nodes is judged: in pieces.
    monkeypatch.setattr("analysis.runs._AT_ONCE", 1)
    first, last = site.start - 100, site.start + 720
    live = {m.name: scene.stored(site.store, m) for m in schema.MEASUREMENTS if m.origin == "analysis"}
    live = {name: frame for name, frame in live.items() if frame.height}
    states = set(live["baseline"].filter(pl.col(schema.JOB) == "now").get_column(schema.STATE.name))
    assert states == {NodeState.OK, NodeState.LOW, NodeState.DOWN, NodeState.BLIND}
    assert live["contact"].get_column("new").sum() > 5
    assert live["stall"].filter(pl.col(schema.CAUSE) == Cause.STALLED).get_column(schema.LOST_SECONDS.name).sum() == 90
    site.rerun(first, last)
    for name, before in live.items():
        assert_frame_equal(before, scene.stored(site.store, MEASUREMENTS[name]), check_exact=True)
    for folder in (site.folder, tmp_path / "none"):
        scene.forget_verdicts(site.store)
        site.rerun(first, last, folder)
        for name, frame in live.items():
            measurement = MEASUREMENTS[name]
            before = frame.filter((pl.col("time") // 1000).is_between(first, last, closed="left"))
            after = scene.stored(site.store, measurement)
            if after.is_empty():
                assert_says_nothing(measurement, before)
                continue
            # Fields that only rows outside the range have.
            before = before[[column.name for column in before if column.null_count() < before.height]]
            keys = ["time", *(tag for tag in measurement.tags if tag in before.columns)]
            # A label that is not known is no tag at all.
            kept = before.join(after.select(keys), on=keys, how="semi", nulls_equal=True).sort(keys)
            assert_frame_equal(kept, after.select(before.columns).sort(keys), check_exact=True)
            gone = before.join(after.select(keys), on=keys, how="anti", nulls_equal=True)
            assert_says_nothing(measurement, gone)


def replays_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the list to which the windows are added that a job is taken through once more."""
    found: list[tuple[int, int]] = []
    replay = JobRuns._replay

    def noted(runs: JobRuns, running: _Running, upto: int) -> None:
        if running.job.id == name and running.at < upto:
            found.append((running.at, upto))
        replay(runs, running, upto)

    monkeypatch.setattr(JobRuns, "_replay", noted)
    return found


def test_a_stand_by_keeps_where_jobs_stand_until_it_leads(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_FOLLOW_JOBS_SECONDS", 0.2)
    now = time.time()
    scene.write_training(site.store, site.start, int(now) // 10 * 10)
    site.tick(now)
    settings, stopping = replace(site.cluster.store, lease=True), threading.Event()
    folder = site.folder.with_name("of-another")
    first, second = (Lease(settings, "analyze", one, Log(quiet=True), stopping) for one in (site.folder, folder))
    waited: list[bool] = []
    with State.open(folder) as state, ExitStack() as later:
        with first:
            assert first.wait(20)
            later.enter_context(second)
            following = partial(site.analyser, state, folder)
            thread = threading.Thread(target=lambda: waited.append(cli._waited(second, site.store, Log(), following)))
            thread.start()
            eventually(lambda: len(list((folder / FOLDER).glob("*"))) == 1, "it follows")
            assert thread.is_alive()
        thread.join(20)
        assert waited == [True]
        assert second.leads()
        begins = replays_of("now", monkeypatch)
        state.forget_all()
        site.analyser(state, folder).tick(now + 5)
        assert max((stop - start for start, stop in begins), default=0) <= 60


def eventually(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def assert_says_nothing(measurement: Measurement, rows: pl.DataFrame) -> None:
    """What a live analysis wrote while windows were filling, and set right when they were full."""
    if measurement is schema.BASELINE:
        assert set(rows.get_column(schema.STATE.name)) <= {NodeState.OK, NodeState.LEARNING}
    else:
        for field in measurement.fields:
            nothing = [f"{field.gone}", f"{float(field.gone)}", ""]
            assert field.name not in rows.columns or rows[field.name].cast(pl.String).is_in(nothing).all(), field.name


def test_a_tick_writes_only_what_changed(site: Site) -> None:
    scene.write_training(site.store, site.start, site.start + 300)
    with State.open(site.folder) as state:
        analyser = site.analyser(state)
        assert analyser.tick(site.start + 300).written[schema.BASELINE.name] > 100
        assert schema.BASELINE.name not in analyser.tick(site.start + 301).written
        scene.write_training(site.store, site.start + 280, site.start + 300, drop(5, 0, 0.5))
        # The rewritten window was judged for all nodes of the cohort.
        assert analyser.tick(site.start + 305).written[schema.BASELINE.name] <= 2 * len(scene.NODES)


def test_a_rerun_leaves_the_memory_of_the_live_analysis_alone(site: Site) -> None:
    scene.write_training(site.store, site.start, site.start + 300)
    site.tick(site.start + 300)
    before = (site.folder / FILE).read_bytes()
    site.rerun(site.start - 7200, site.start + 250)
    assert (site.folder / FILE).read_bytes() == before


def test_a_range_that_raw_no_longer_holds_is_refused(site: Site) -> None:
    with pytest.raises(UserError, match="raw retention"):
        site.rerun(site.start - 8 * 86_400, site.start)
    with pytest.raises(UserError, match="no closed window"):
        site.rerun(site.start + 5000, site.start + 1000)


def test_runs_are_remembered_when_raw_has_lost_them(site: Site) -> None:
    scene.write_training(site.store, site.start, site.start + 100)
    site.tick(site.start + 100)
    site.store.query(f'DELETE FROM "node" WHERE time < {site.start}s')
    scene.write_training(site.store, site.start + 100, site.start + 300, drop(0, site.start + 200, 0.0))
    site.tick(site.start + 300)
    assert site.states("gpu-0")[210] == NodeState.DOWN


def test_a_finished_run_teaches_the_next(site: Site) -> None:
    first, second = scene.job("a", site.start, site.start + 400), scene.job("b", site.start + 1000)
    runs = site.cluster.jobs[1:3]
    two = replace(site, cluster=scene.with_jobs(site.cluster, *runs, first, second))
    scene.write_training(two.store, two.start, two.start + 400)
    scene.write_training(two.store, two.start + 1000, two.start + 1200, drop(0, two.start + 1100, 0.0))
    with State.open(two.folder) as state:
        analyser = two.analyser(state)
        for now in range(two.start, two.start + 1200, 60):
            analyser.tick(now)
        analyser.tick(two.start + 1200)
    states = two.states("gpu-0")
    assert {state for at, state in states.items() if at < 400} == {NodeState.LEARNING}
    assert states[1110] == NodeState.DOWN


def test_a_failed_run_teaches_nothing(site: Site) -> None:
    *earlier, now = site.cluster.jobs
    failed = [replace(run, outcome=Outcome.FAILED) for run in earlier[:2]]
    cancelled = replace(earlier[2], outcome=Outcome.CANCELLED)
    some = replace(site, cluster=scene.with_jobs(site.cluster, *failed, cancelled, earlier[3], now))
    scene.write_training(some.store, some.start, some.start + 200)
    some.tick(some.start + 200)
    newest = scene.stored(some.store, schema.BASELINE).filter(pl.col(schema.JOB) == "now").row(-1, named=True)
    assert (newest[schema.RUNS.name], newest[schema.STATE.name]) == (1, NodeState.LEARNING)


@dataclass
class Told:
    """A job source that learns of things."""

    told: tuple[Job, ...]

    def jobs(self) -> tuple[Job, ...]:
        return self.told

    def settle(self, oldest: int, final: int) -> None:
        del oldest, final

    def turn_back(self, moment: int) -> None:
        del moment


@pytest.mark.parametrize("late", [0, pytest.param(200, marks=pytest.mark.long_form)])
def test_a_job_whose_end_becomes_known_is_judged_as_if_it_always_had_been(site: Site, late: int) -> None:
    *earlier, running = site.cluster.jobs
    end = site.start + 600
    ended = replace(running, end=datetime.fromtimestamp(end, UTC), outcome=Outcome.COMPLETED)
    source = Told(site.cluster.jobs)
    scene.write_training(site.store, site.start, end - 20)
    scene.write_training(site.store, end, end + 700, lambda sent, _: sent.__imul__(0))
    with State.open(site.folder) as state:
        analyser = Analyser(site.cluster, site.store, state, source, log=Log(quiet=True))
        for now in range(site.start + 20, end + 700, 40):
            if now >= end + late:
                source.told = (*earlier, ended)
            analyser.tick(now)
    live = scene.stored(site.store, schema.BASELINE)
    whole = replace(site, cluster=scene.with_jobs(site.cluster, *earlier, ended))
    scene.forget_verdicts(site.store)
    whole.rerun(site.start - 60, end + 600)
    again = scene.stored(site.store, schema.BASELINE)
    keys = ["time", schema.NODE, schema.JOB]
    in_job = (pl.col(schema.JOB) == "now") & (pl.col("time") < end * 1000)
    live = live.filter(in_job).join(again.select(keys), on=keys, how="semi").sort(keys)
    assert_frame_equal(live, again.filter(in_job).select(live.columns).sort(keys), check_exact=True)


# -- contacts ----------------------------------------------------------------------------------------


def test_history_is_learnt_at_the_first_start_and_the_rest_is_new_at_once(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.write_training(site.store, site.start, site.start + 100)
    scene.write_egress(site.store, (site.start - 86_400 * 20, "gpu-1", "203.0.113.7", 5), retention=schema.HOUR)
    scene.write_egress(site.store, (site.start + 90, "gpu-0", "203.0.113.5", 5))
    site.tick(site.start + 100)
    told = capsys.readouterr().err
    assert "event=contacts_learned contacts=2" in told
    at = site.start + 110
    rows = [(at, "gpu-0", "203.0.113.1"), (at, "gpu-1", "203.0.113.7"), (at, "gpu-1", "203.0.113.8")]
    scene.write_egress(site.store, *((*row, 70) for row in [*rows, (at, "gpu-0", "203.0.113.5")]))
    scene.write_egress(site.store, (at, "gpu-0", "203.0.113.99", 70), initiator=schema.BY_DESTINATION)
    site.tick(at + 4)  # the window is still open
    assert [row[1:] for row in site.contacts() if row[4]] == [("gpu-1", "203.0.113.8", 70, 1)]
    assert "event=new_contact src=gpu-1 dst=203.0.113.8 service=tcp/https" in capsys.readouterr().err


def test_without_a_day_of_history_nothing_is_new(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site = replace(site, cluster=replace(site.cluster, thresholds=Thresholds()))
    scene.write_training(site.store, site.start, site.start + 100)
    site.tick(site.start + 100)
    assert "event=contacts_learning" in capsys.readouterr().err
    scene.write_egress(site.store, (site.start + 110, "gpu-1", "203.0.113.8", 70))
    site.tick(site.start + 115)
    assert [row[4] for row in site.contacts()] == [0]


def test_a_lost_state_is_told_and_wakes_nobody_but_for_what_is_new(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.write_training(site.store, site.start, site.start + 400)
    site.tick(site.start + 100)
    scene.write_egress(site.store, (site.start + 110, "gpu-1", "203.0.113.8", 70))
    site.tick(site.start + 120)
    (site.folder / FILE).write_bytes(b"no database at all" * 100)
    # While nothing was running a contact was made.
    scene.write_egress(site.store, (site.start + 200, "gpu-2", "203.0.113.9", 30))
    capsys.readouterr()
    site.tick(site.start + 300)
    assert "event=state_lost" in capsys.readouterr().err
    assert [path.name for path in site.folder.glob("*broken*")] == [f"{FILE}.broken-1"]
    new = [row[:3] for row in site.contacts() if row[4]]
    assert new == [(110, "gpu-1", "203.0.113.8"), (200, "gpu-2", "203.0.113.9")]


def test_acknowledge_and_forget_work_while_the_analysis_runs(site: Site) -> None:
    scene.write_training(site.store, site.start, site.start + 100)
    with State.open(site.folder) as state:
        analyser = site.analyser(state)
        analyser.tick(site.start + 100)
        pair = "gpu-1", "203.0.113.8"
        scene.write_egress(site.store, *((site.start + at, *pair, 7) for at in (110, 120, 130)))
        analyser.tick(site.start + 135)
        with State.open(site.folder) as other:
            assert other.acknowledge(*pair, site.start + 125)
            assert not other.acknowledge("gpu-1", "203.0.113.77", site.start)
        analyser.tick(site.start + 136)
        assert [row[4] for row in site.contacts()] == [1, 0, 0]
        with State.open(site.folder) as other:
            assert other.forget(*pair, site.start + 140)
        scene.write_egress(site.store, (site.start + 150, *pair, 9))
        analyser.tick(site.start + 155)
        assert site.contacts()[-1] == (150, *pair, 9, 1)
