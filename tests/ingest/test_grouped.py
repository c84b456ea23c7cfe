"""Sums of rows with equal keys are those of a plain loop: for few keys, for many, and for the largest there are."""

from collections import defaultdict
from dataclasses import fields

import numpy as np
import pytest

from ingest.count.conversations import PROTOCOLS, Conversations, folded
from ingest.count.grouped import grouped, renumbered

pytestmark = pytest.mark.usefixtures("by_both")


@pytest.mark.parametrize(
    ("rows", "end"),
    [(0, 10), (1, 1), (1, 1 << 62), (5_000, 7), (5_000, 90_000), (100_000, 80_000), (5_000, 1 << 40), (5_000, 1 << 60)],
)
def test_sums_are_those_of_a_loop(rows: int, end: int) -> None:
    random = np.random.default_rng(rows + end % 1_000_003)
    # A part of the range again and again, so that there is something to add up.
    keys = random.choice(random.integers(0, end, max(rows // 3, 1)), rows)
    keys[:1] = end - 1
    values = random.integers(-(1 << 50), 1 << 50, rows)
    expected = defaultdict(list)
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        expected[key].append(value)

    result = grouped(keys, end)
    assert result.keys.tolist() == sorted(expected)
    assert result.sum(values).tolist() == [sum(expected[key]) for key in sorted(expected)]
    assert result.least(values).tolist() == [min(expected[key]) for key in sorted(expected)]
    assert result.largest(values).tolist() == [max(expected[key]) for key in sorted(expected)]


_VALUES = ("bytes", "packets", "flows", "first", "last", "low_port", "high_port", "place")


def test_sums_beyond_what_a_float_holds_are_exact() -> None:
    values = np.array([1 << 60, 1, 1 << 60, 1], np.int64)
    for end in (2, 1 << 40):
        assert grouped(np.array([0, 0, 1, 0], np.int64), end).sum(values).tolist() == [(1 << 60) + 2, 1 << 60]


def test_a_value_beyond_the_end_is_told() -> None:
    with pytest.raises(IndexError):
        renumbered(np.array([0, 2], np.int64), 2)


@pytest.mark.parametrize("drawn", [0, 1, 1 << 40, (1 << 64) - 1])
def test_keys_in_a_row_are_found_at_once(drawn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is drawn: a multiplication by it could put all of these side by side, where this took minutes."""
    monkeypatch.setattr("secrets.randbits", lambda _: drawn)
    keys = np.repeat(np.arange(1 << 17, dtype=np.int64), 2) << 20
    found = grouped(keys, 1 << 40)
    assert (found.keys == keys[::2]).all()
    assert (found.count() == 2).all()


def test_a_key_beyond_the_end_is_told() -> None:
    with pytest.raises(ValueError, match="a key is 9: expected all below 7"):
        grouped(np.array([3, 9], np.int64), 7)


@pytest.mark.parametrize(
    ("addresses", "windows"),
    [(5, 2), (3_000, 3), ((1 << 24) - 1, 1), ((1 << 24) - 1, 100_000_000)],
    ids=["few", "usual", "many-addresses", "many-of-all"],
)
def test_conversations_of_batches_fold_into_those_of_a_loop(addresses: int, windows: int) -> None:
    random = np.random.default_rng(addresses + windows)
    parts = [_random(random, count, addresses, windows) for count in (400, 1, 900)]
    expected: dict[tuple[int, ...], list[int]] = {}
    for part in parts:
        rows = zip(*(getattr(part, one.name).tolist() for one in fields(Conversations)), strict=True)
        for src, dst, kind, marks, window, *counts, first, last, low, high, place in rows:
            sums = expected.setdefault((src, dst, kind, marks, window), [0, 0, 0, first, last, low, high, place])
            sums[:3] = [old + new for old, new in zip(sums, counts, strict=False)]
            sums[3:6] = [min(sums[3], first), max(sums[4], last), min(sums[5], low)]
            sums[6:] = [max(sums[6], high), max(sums[7], place)]

    whole = folded(parts)
    got = list(zip(*(getattr(whole, one.name).tolist() for one in fields(Conversations)), strict=True))
    assert len(got) == len(expected)
    assert {row[:5]: list(row[5:]) for row in got} == expected


@pytest.mark.parametrize("windows", [1_000, 1 << 25, 1 << 40])
def test_so_many_kinds_pairs_and_windows_that_no_key_holds_them(windows: int) -> None:
    """Clocks that are wrong by millennia among many addresses and services."""
    random = np.random.default_rng(windows % 1_000_003)
    count, top = 260_000, (1 << 24) - 1
    part = Conversations(
        src=np.concatenate([[top], random.integers(0, top, count - 1)]),
        dst=np.concatenate([[top], random.integers(0, top, count - 1)]),
        kind=random.integers(0, PROTOCOLS * 4_096, count),
        marks=random.integers(0, 64, count),
        window=random.choice([0, windows // 3, windows], count),
        **{name: random.integers(0, 100, count) for name in _VALUES},
    )
    names = ("src", "dst", "kind", "marks", "window")
    expected = set(zip(*(getattr(part, name).tolist() for name in names), strict=True))
    whole = folded([part, part])
    assert set(zip(*(getattr(whole, name).tolist() for name in names), strict=True)) == expected
    assert len(whole) == len(expected)
    assert int(whole.bytes.sum()) == 2 * int(part.bytes.sum())


def _random(random: np.random.Generator, count: int, addresses: int, windows: int) -> Conversations:
    """Return rows of which some have the same key, in the same batch or in another."""
    few = np.unique([0, addresses // 2, addresses])
    first = random.integers(0, 1 << 41, count)
    return Conversations(
        src=random.choice(few, count),
        dst=random.choice(few, count),
        kind=random.choice([6, 17, PROTOCOLS * 9 + 6, PROTOCOLS * 20 - 1], count),
        marks=random.choice([0, 1, 0b10110, 0b111111], count),
        window=random.choice([178_000_000, 178_000_000 + windows], count),
        bytes=random.integers(0, 1 << 50, count),
        packets=random.integers(0, 1 << 50, count),
        flows=random.integers(0, 5, count),
        first=first,
        last=first + random.integers(0, 10_000, count),
        low_port=(ports := random.integers(0, 1 << 16, count)),
        high_port=ports,
        place=random.integers(0, 1 << 52, count),
    )
