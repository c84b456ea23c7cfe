"""Phases of constructed jobs: what is a checkpoint or a load, and what is only noise in the same place."""

import time

import numpy as np
import pytest
from job_series import NODES, SHARD, T0, WINDOW_SECONDS, Series, first, followed, job, part, subject

from analysis.detectors.storage import phases
from analysis.detectors.study import JobWindows
from store.schema import Phase

IDLE, LOAD, COMPUTE, CHECKPOINT, BLIND = Phase.IDLE, Phase.LOAD, Phase.COMPUTE, Phase.CHECKPOINT, Phase.BLIND
KNOWN = (8 * SHARD,) * 3
"""Sizes of earlier checkpoints of eight shards."""


def runs(values: np.ndarray) -> list[tuple[int, int]]:
    """(Phase, windows) one after the other."""
    edges = np.flatnonzero(np.diff(values)) + 1
    return [(int(part[0]), len(part)) for part in np.split(values, edges)]


def test_a_job_that_trains_computes() -> None:
    assert runs(followed(Series.training(400)).phase) == [(COMPUTE, 400)]


def test_a_checkpoint_that_stops_the_collectives_is_no_pause() -> None:
    series = Series.training(100).checkpoint(50, windows=4).paused(50, 54)
    assert runs(followed(series, sizes=KNOWN).phase) == [(COMPUTE, 50), (CHECKPOINT, 4), (COMPUTE, 46)]


def test_an_asynchronous_checkpoint_is_one_while_the_job_computes() -> None:
    found = followed(Series.training(200).checkpoint(50, windows=60), sizes=KNOWN)
    assert runs(found.phase) == [(COMPUTE, 55), (CHECKPOINT, 55), (COMPUTE, 90)], "known once it holds a tenth"
    assert found.at_work.all()
    assert [(turn.index, turn.is_over) for turn in found.turns] == [(55, False), (113, True)]


def test_pauses_and_nothing_else_are_idle() -> None:
    assert runs(followed(Series.training(100).paused(40, 60)).phase) == [(COMPUTE, 40), (IDLE, 20), (COMPUTE, 40)]


def test_a_pause_in_which_data_is_still_read_ahead_is_idle() -> None:
    series = Series.training(200).loading(0, 3).paused(0, 3).paused(100, 120)
    assert runs(followed(series).phase) == [(LOAD, 3), (COMPUTE, 97), (IDLE, 20), (COMPUTE, 80)]


def test_loading_again_after_a_crash_is_loading() -> None:
    series = Series.training(200).loading(0, 3).paused(0, 3).paused(100, 120).loading(110, 118)
    assert runs(followed(series).phase)[2:5] == [(IDLE, 10), (LOAD, 8), (IDLE, 2)]


@pytest.mark.parametrize("each", [1e6, 1e7, 1e8])
def test_logs_are_no_checkpoint(each: float) -> None:
    found = followed(Series.training(800).logs(each), sizes=KNOWN)
    assert runs(found.phase) == [(COMPUTE, 800)]
    assert not found.turns


def test_logs_that_begin_late_are_no_checkpoint_though_none_is_known() -> None:
    series = Series.training(800)
    series.written[200:] += 2e7
    found = followed(series)
    assert runs(found.phase) == [(COMPUTE, 800)]
    assert not found.turns


def test_a_log_that_is_flushed_every_minute_is_no_checkpoint_where_their_size_is_known() -> None:
    series = Series.training(800)
    series.written[5::6, 0] += 5e8
    assert not followed(series, sizes=KNOWN).turns
    assert not followed(series, subject(checkpoint_bytes=1_000_000_000_000)).turns


def test_the_first_checkpoint_ever_is_known_when_it_is_over() -> None:
    found = followed(Series.training(100).checkpoint(50, windows=2))
    assert CHECKPOINT not in found.phase
    assert [(turn.index, turn.is_over, turn.burst.size) for turn in found.turns] == [(55, True, 8 * SHARD)]


def test_bytes_and_nodes_are_those_of_its_windows() -> None:
    series = Series.training(100).logs(3e5).checkpoint(50, windows=3)
    (_, end) = followed(series, sizes=KNOWN).turns
    assert (end.burst.start, end.burst.end) == (T0 + 500, T0 + 530)
    assert end.burst.size == series.written[50:53].sum()
    assert end.burst.nodes.tolist() == series.written[50:53].sum(axis=0).tolist()
    assert end.burst.taking_part(0.02) == len(NODES)


@pytest.mark.parametrize("pause", [1, 2, 3])
def test_a_short_pause_does_not_cut_it_in_two(pause: int) -> None:
    series = Series.training(100).checkpoint(50, windows=2).checkpoint(52 + pause, windows=2)
    (_, end) = followed(series, sizes=KNOWN).turns
    assert end.burst.end - end.burst.start == (4 + pause) * WINDOW_SECONDS
    assert end.burst.size == series.written.sum()


def test_a_longer_pause_does() -> None:
    series = Series.training(100).checkpoint(50, windows=2).checkpoint(56, windows=2)
    assert [turn.burst.size for turn in followed(series, sizes=KNOWN).turns if turn.is_over] == [8 * SHARD] * 2


def test_only_some_nodes_write() -> None:
    series = Series.training(100).logs(1e5).checkpoint(50, windows=2, nodes=slice(0, 3))
    (_, end) = followed(series, sizes=KNOWN).turns
    assert end.burst.taking_part(0.02) == 3


def test_a_checkpoint_that_the_job_ends_in_is_over_then() -> None:
    series = Series.training(100).checkpoint(98, windows=2)
    found = followed(series, subject(job=job(100)), sizes=KNOWN)
    assert [turn.index for turn in found.turns if turn.is_over] == [99]


def test_writing_all_the_time_ends_as_a_burst() -> None:
    series = Series.training(2000)
    series.written[500:] += 4e8
    found = followed(series, sizes=KNOWN)
    assert found.phase[-1] == COMPUTE
    assert found.open is None


def test_blind_where_no_exporter_of_the_compute_plane_is_heard() -> None:
    series = Series.training(100).paused(40, 60)
    series.heard[40:60] = False
    assert runs(followed(series).phase) == [(COMPUTE, 40), (BLIND, 20), (COMPUTE, 40)]


def test_a_pause_is_blind_where_the_storage_plane_cannot_be_seen() -> None:
    """It may be a checkpoint: nobody can tell."""
    series = Series.training(100).paused(40, 60).silent(40, 50)
    found = followed(series)
    assert runs(found.phase) == [(COMPUTE, 40), (BLIND, 10), (IDLE, 10), (COMPUTE, 40)]
    assert np.flatnonzero(found.unseen).tolist() == list(range(40, 50))


def test_an_exporter_that_is_seldom_heard_blinds_nobody() -> None:
    series = Series.training(400)
    series.storage_heard[:, 2] = False
    series.storage_heard[::30, 2] = True
    one = phases.first_carry([], np.zeros((0, 3), np.bool_), phases.PhasePolicy())
    found = phases.follow(subject(), one, series.windows())[1]
    assert not found.unseen.any()


def test_an_exporter_that_falls_quiet_for_good_reason_is_believed_in_time() -> None:
    """Nothing is read ahead any more: from then on it hears checkpoints only, and after a few that is its habit."""
    series = Series.training(2000)
    series.storage_heard[600:, 2] = False
    series.storage_heard[600::60, 2] = True
    silent = np.flatnonzero(followed(series).unseen)
    assert silent.min() == 601
    assert silent.max() < 600 + 5 * 60


def test_an_outage_is_no_habit() -> None:
    """Two hours of silence; when it happens again, the exporter still counts as one that is always heard."""
    series = Series.training(2000).silent(300, 1020).silent(1500, 1510)
    found = followed(series)
    assert np.flatnonzero(found.unseen).tolist() == [*range(300, 1020), *range(1500, 1510)]


def test_an_exporter_that_sees_only_others_excuses_but_once() -> None:
    """It falls silent for good, and the next checkpoint is whole all the same."""
    series = Series.training(400).checkpoints(60, 120, 180, 240, 300, 360).silent(200, 400)
    found = followed(series, sizes=KNOWN)
    assert np.flatnonzero(found.unseen).tolist() == list(range(200, 245)), "until the one at 240 is over"
    assert [turn.burst.is_clear for turn in found.turns if turn.is_over] == [True, True, True, False, True, True]


def test_an_exporter_that_sees_half_of_the_job_stays_needed() -> None:
    series = Series.training(400).checkpoints(60, 120, 180, 240, 300, 360).silent(200, 400)
    series.written[200:, :4] = 0
    found = followed(series, sizes=KNOWN)
    assert found.unseen[200:].all()


def test_invisible_collectives_are_not_idle() -> None:
    series = Series.training(100).paused(0, 100).checkpoint(50, windows=2)
    found = followed(series, subject(sees_compute=False), sizes=KNOWN)
    assert runs(found.phase) == [(BLIND, 50), (CHECKPOINT, 2), (BLIND, 48)]


def test_keepalives_are_no_work() -> None:
    series = Series.training(60).paused(0, 30)
    series.sent[:30], series.read[:30] = 5e4, 0
    assert runs(followed(series).phase) == [(IDLE, 30), (COMPUTE, 30)]


def test_slow_is_not_idle() -> None:
    series = Series.training(100)
    series.sent[50:] *= 0.4
    assert runs(followed(series).phase) == [(COMPUTE, 100)]


@pytest.mark.parametrize("cut", [1, 7, 51, 53, 55])
def test_windows_in_two_calls_give_what_one_call_gives(cut: int) -> None:
    series = Series.training(100).logs(1e6).checkpoint(50, windows=4).paused(50, 54).silent(80, 85).loading(0, 3)
    windows = series.windows()
    carry, whole = phases.follow(subject(), first(KNOWN), windows)
    middle, one = phases.follow(subject(), first(KNOWN), part(windows, 0, cut))
    last, two = phases.follow(subject(), middle, part(windows, cut, 100))
    assert np.concatenate([one.phase, two.phase]).tolist() == whole.phase.tolist()
    assert np.concatenate([one.unseen, two.unseen]).tolist() == whole.unseen.tolist()
    assert last.sizes == carry.sizes
    assert last.writes.tolist() == carry.writes.tolist()
    assert [turn.burst.size for turn in (*one.turns, *two.turns)] == [turn.burst.size for turn in whole.turns]


def test_a_thousand_nodes_over_a_day_take_little_time() -> None:
    rng = np.random.default_rng(3)
    sent = rng.uniform(1e10, 2e10, (360, 1024))
    started = time.perf_counter()
    carry = phases.first_carry([], np.zeros((0, 2), np.bool_), phases.PhasePolicy())
    for hour in range(24):
        windows = JobWindows(
            T0 + hour * 3600, 10, sent, sent, sent / 1000, sent / 100, np.ones((360, 2), np.bool_),
            storage_heard=np.ones((360, 2), np.bool_),
        )  # fmt: skip
        carry, _ = phases.follow(subject(), carry, windows)
    assert time.perf_counter() - started < 10
