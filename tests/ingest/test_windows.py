"""Pro-rating conserves every byte and puts it where an exact fraction says."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.count.windows import MAX_SPAN_MS, Shares, prorate

pytestmark = pytest.mark.usefixtures("by_both")

COUNTER = st.integers(0, 1 << 50)
RECORD = st.tuples(st.integers(0, 4_000_000_000_000), st.integers(0, 500_000), COUNTER, COUNTER)


def cut(records: list[tuple[int, int, int, int]], window_ms: int = 10_000, oldest: int | None = None) -> Shares:
    start, span, volume, packets = (np.array(column, np.int64) for column in zip(*records, strict=True))
    return prorate(start, start + span, (volume, packets, np.ones_like(start)), window_ms=window_ms, oldest=oldest)


@given(st.lists(RECORD, min_size=1, max_size=20), st.sampled_from([1_000, 10_000, 60_000]))
def test_totals_are_conserved_per_record(records: list[tuple[int, int, int, int]], window_ms: int) -> None:
    shares = cut(records, window_ms)
    for index, (_, _, volume, packets) in enumerate(records):
        own = shares.record == index
        assert shares.bytes[own].sum() == volume
        assert shares.packets[own].sum() == packets
        assert shares.flows[own].sum() == 1
        assert len(set(shares.window[own])) == own.sum()
    assert (shares.bytes >= 0).all()


@given(RECORD)
def test_each_share_is_within_one_byte_of_the_exact_fraction(record: tuple[int, int, int, int]) -> None:
    start, span, volume, _ = record
    shares = cut([record])
    for window, got in zip(shares.window, shares.bytes, strict=True):
        if span == 0:
            assert got == volume
            continue
        low, high = max(start, int(window) * 10_000), min(start + span, (int(window) + 1) * 10_000)
        assert abs(Fraction(volume * (high - low), span) - int(got)) < 1


@given(st.lists(RECORD, min_size=1, max_size=10), st.sampled_from([1_000, 10_000, 60_000]))
def test_by_the_end_of_each_window_the_floor_of_the_fraction_has_passed(
    records: list[tuple[int, int, int, int]], window_ms: int
) -> None:
    shares = cut(records, window_ms)
    for index, (start, span, *totals) in enumerate(records):
        own = np.flatnonzero(shares.record == index)
        own = own[np.argsort(shares.window[own])]
        ends = np.minimum((shares.window[own] + 1) * window_ms, start + span).tolist()
        for share, total in zip((shares.bytes[own], shares.packets[own]), totals, strict=True):
            expected = [total if end == start + span else total * (end - start) // span for end in ends]
            assert np.cumsum(share).tolist() == expected


@given(st.lists(RECORD, min_size=1, max_size=10), st.integers(0, 400_000_000))
def test_what_is_older_than_the_oldest_window_is_added_to_it(
    records: list[tuple[int, int, int, int]], oldest: int
) -> None:
    free, clamped = cut(records), cut(records, oldest=oldest)
    assert clamped.bytes.sum() == free.bytes.sum()
    assert clamped.window.min() >= oldest
    assert clamped.clamped.sum() == free.bytes[free.window < oldest].sum()


def test_a_record_that_ends_on_an_edge_has_nothing_in_the_next_window() -> None:
    shares = cut([(10_000, 10_000, 7, 1)])
    assert shares.window.tolist() == [1]


def test_a_point_on_an_edge_belongs_to_the_window_that_begins_there() -> None:
    assert cut([(20_000, 0, 7, 1)]).window.tolist() == [2]


def test_the_longest_record_with_the_largest_counter_stays_exact() -> None:
    shares = cut([(3, MAX_SPAN_MS, 1 << 50, 1 << 50)])
    assert shares.bytes.sum() == 1 << 50
    assert len(shares.window) == 8641


def test_pieces_touch_each_other() -> None:
    shares = cut([(9_999, 20_002, 100, 10)])
    assert shares.first.tolist() == [9_999, 10_000, 20_000, 30_000]
    assert shares.last.tolist() == [10_000, 20_000, 30_000, 30_001]
