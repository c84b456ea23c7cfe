"""Loading at the start of constructed jobs: before computing, into it, or not at all."""

import pytest
from job_series import COMPUTE, NODES, PREFETCH, T0, WINDOW_SECONDS, Series, followed, job, part, subject

from analysis.detectors.storage import dataset_load, phases
from analysis.detectors.storage.dataset_load import LoadCarry, LoadSubject
from store import schema
from store.points import WINDOW
from store.schema import Phase

EACH = 4e9
SUBJECT = LoadSubject(job(), WINDOW_SECONDS)


def quiet(windows: int) -> Series:
    """A job that computes, and reads nothing."""
    series = Series.training(windows)
    series.read[:] = 0
    return series


def loaded(series: Series, parts: int = 1) -> dict[int, tuple[float, ...]]:
    """Window of the load's row -> seconds, bytes, nodes, overlap: as the last call that touched it left it."""
    whole = series.windows()
    carry, phase_carry = LoadCarry(), phases.first_carry([], whole.storage_heard[:0], phases.PhasePolicy())
    rows: dict[int, tuple[float, ...]] = {}
    size = -(-len(whole) // parts)
    for first in range(0, len(whole), size):
        windows = part(whole, first, min(first + size, len(whole)))
        phase_carry, found = phases.follow(subject(), phase_carry, windows)
        carry, loads = dataset_load.judge(SUBJECT, carry, found, windows)
        fields = [field.name for field in schema.DATASET_LOAD.fields]
        for row in loads.frame().iter_rows(named=True):
            rows[(row[WINDOW] - T0) // WINDOW_SECONDS] = tuple(row[name] for name in fields)
    return rows


def test_before_computing() -> None:
    series = quiet(100).paused(0, 8).loading(1, 6, EACH)
    assert loaded(series) == {1: (50, 5 * 8 * EACH, 8, 0)}
    assert followed(series).phase[:9].tolist() == [Phase.IDLE, *[Phase.LOAD] * 5, *[Phase.IDLE] * 2, Phase.COMPUTE]


def test_into_computing() -> None:
    series = quiet(100).paused(0, 3).loading(0, 12, EACH)
    assert loaded(series) == {0: (120, 12 * 8 * EACH, 8, 90)}


def test_reading_ahead_afterwards_is_no_part_of_it() -> None:
    series = Series.training(400).paused(0, 3).loading(0, 3, EACH)
    ((seconds, size, nodes, overlap),) = loaded(series).values()
    assert (seconds, nodes, overlap) == (30, 8, 0)
    assert size == series.read[:3].sum()


def test_a_pause_of_half_a_minute_does_not_end_it() -> None:
    series = quiet(100).paused(0, 10).loading(0, 3, EACH).loading(6, 9, EACH)
    assert loaded(series) == {0: (90, 6 * 8 * EACH, 8, 0)}
    later = quiet(100).paused(0, 12).loading(0, 3, EACH).loading(8, 11, EACH)
    assert loaded(later) == {0: (30, 3 * 8 * EACH, 8, 0)}


def test_only_some_nodes_load() -> None:
    series = quiet(100).paused(0, 3)
    series.read[:3, :2] = EACH
    assert loaded(series) == {0: (30, 3 * 2 * EACH, 2, 0)}


def test_no_load() -> None:
    assert loaded(quiet(100)) == {}
    late = quiet(100).loading(20, 25, EACH)
    assert loaded(late) == {}, "what a job reads long after it began to compute is none"
    little = quiet(100).paused(0, 3).loading(0, 3, 1e6)
    assert loaded(little) == {}


def test_a_job_that_streams_its_data_takes_the_row_back() -> None:
    series = Series.training(500)
    series.read[:] = PREFETCH
    assert loaded(series) == {0: (0, 0, 0, 0)}
    assert set(loaded(Series.training(100)).values()) != {(0, 0, 0, 0)}, "not known yet"


def test_where_nothing_computes_the_hour_counts_from_the_start_of_the_job() -> None:
    def alone(windows: int) -> Series:
        return quiet(windows).paused(0, windows)

    assert loaded(alone(500).loading(0, 500, EACH)) == {0: (0, 0, 0, 0)}
    assert loaded(alone(500).loading(10, 350, EACH)) == {10: (3400, 340 * 8 * EACH, 8, 0)}
    assert loaded(alone(1000).loading(400, 500, EACH)) == {}, "what it reads later is no load"
    assert loaded(quiet(1000).paused(0, 400).loading(300, 355, EACH)) == {300: (550, 55 * 8 * EACH, 8, 0)}


@pytest.mark.parametrize("parts", [2, 9, 100])
def test_any_number_of_calls_gives_the_same(parts: int) -> None:
    for series in (
        quiet(100).paused(0, 8).loading(1, 6, EACH),
        Series.training(100).paused(0, 3).loading(0, 3, EACH).loading(5, 8, EACH),
        Series.training(500),
    ):
        assert loaded(series, parts) == loaded(series)


def test_the_series_computes_as_it_says() -> None:
    assert Series.training(10).sent.mean() == pytest.approx(COMPUTE, rel=0.1)
    assert Series.training(10).sent.shape == (10, len(NODES))
