"""Job windows and the points that show them."""

import tracemalloc
from datetime import UTC, datetime

import polars as pl

from analysis.jobs.job_windows import LateRows, active_at, overlapping, status_points
from cluster.model import Job
from store import schema
from store.points import WINDOW, encode

T0 = 1_760_000_000


def job(start: float, end: float | None, name: str = "a") -> Job:
    stop = None if end is None else datetime.fromtimestamp(end, UTC)
    return Job(name, "llm", ("n1", "n2"), datetime.fromtimestamp(start, UTC), stop)


def test_a_job_runs_from_its_start_up_to_but_not_at_its_end() -> None:
    one = job(T0, T0 + 100)
    assert active_at([one], T0) == (one,)
    assert active_at([one], T0 + 99.9) == (one,)
    assert active_at([one], T0 + 100) == ()
    assert active_at([one], T0 - 1) == ()


def test_a_job_without_end_overlaps_everything_after_its_start() -> None:
    one = job(T0, None)
    assert overlapping([one], T0 + 10**9, T0 + 10**9 + 10) == (one,)
    assert overlapping([one], T0 - 100, T0) == ()


def test_rows_per_window_and_events_at_their_exact_second() -> None:
    points = status_points([job(T0 + 3, T0 + 35)], T0, T0 + 100, 10)
    rows = points.sort(WINDOW).select(WINDOW, schema.ACTIVE.name, schema.JOB_EVENT.name).rows()
    assert rows == [
        (T0 + 3, 1, "start"),
        (T0 + 10, 1, None),
        (T0 + 20, 1, None),
        (T0 + 30, 1, None),
        (T0 + 35, 0, "stop"),
    ]
    lines = encode(schema.JOB_STATUS, points).decode().splitlines()
    about = 'nodes=2i,event="start",origin="cluster.yaml",node_names="n[1-2]"'
    assert f"job,job=a,job_class=llm active=1i,{about},job_since={T0 + 3}.0,job_until={T0 + 13}.0 {T0 + 3}" in lines
    # Boards link to the job's own time: from any row its begin, from its last one its end.
    spans = points.sort(WINDOW).select(schema.JOB_SINCE.name, schema.JOB_UNTIL.name).rows()
    assert spans == [(T0 + 3.0, T0 + until) for until in (13, 20, 30, 35, 35)]


def test_neighbouring_ranges_hold_each_point_once() -> None:
    one = job(T0 + 3, T0 + 60)
    whole = status_points([one], T0, T0 + 100, 10).sort(WINDOW)
    first, second = status_points([one], T0, T0 + 40, 10), status_points([one], T0 + 40, T0 + 100, 10)
    assert whole.equals(first.vstack(second).sort(WINDOW))


def test_the_end_of_one_job_takes_no_more_room_than_that_job() -> None:
    """Twenty jobs run for a day; one of them ends. Rows of all of them would be 170,000."""
    jobs = tuple(job(T0 + number, None, f"j{number}") for number in range(20))
    late, stop = LateRows(10, {}), T0 + 86_400
    tracemalloc.start()
    events = late.before(jobs, T0, stop)
    ended = (job(T0, T0 + 86_000, "j0"), *jobs[1:])
    rows = late.before(ended, T0, stop).sort(WINDOW)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert events.select(schema.JOB, WINDOW).rows() == [(f"j{number}", T0 + number) for number in range(20)]
    assert set(rows[schema.JOB]) == {"j0"}
    changed = rows.filter(pl.col(WINDOW) >= T0 + 86_000).select(WINDOW, schema.ACTIVE.name, schema.JOB_EVENT.name)
    assert changed.rows()[:2] == [(T0 + 86_000, 0, "stop"), (T0 + 86_010, 0, None)]
    assert changed.height == 40
    assert most < 20e6
