from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import units


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("50 GB", 50_000_000_000),
        ("50GB", 50_000_000_000),
        ("1.5 GiB", 1_610_612_736),
        ("0.5 kB", 500),
        ("1 KB", 1000),
        ("7 B", 7),
        ("0 B", 0),
        ("2 PiB", 2 * 2**50),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["50", "50 Gb", "50 gb", "GB", "-1 GB", "1e3 B", "1.5 B", "1 GB ", "15m", "1  GB", "\u0661 GB"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15m", 900),
        ("7d", 604_800),
        ("730d", 63_072_000),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("2w", 1_209_600),
        ("500ms", Fraction(1, 2)),
        ("1.5s", Fraction(3, 2)),
        ("0s", 0),
    ],
)
def test_durations(text: str, seconds: Fraction) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["15", "15 m", "m", "-15m", "15M", "15 min", "1y", "", "15m,"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("400 Gbit/s", 400 * 10**9), ("2.5 Gbit/s", 25 * 10**8), ("9600 bit/s", 9600)]
)
def test_rates(text: str, rate: int) -> None:
    assert units.parse_rate(text) == rate


@pytest.mark.parametrize("text", ["400", "400 GB", "400 Gbps", "400 Gbit", "0.5 bit/s"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        units.parse_rate(text)


@pytest.mark.parametrize(
    ("size", "text"), [(50 * 10**9, "50 GB"), (2**30, "1 GiB"), (1_500, "1500 B"), (0, "0 B"), (10**15, "1 PB")]
)
def test_sizes_written(size: int, text: str) -> None:
    assert units.format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (900, "15m"),
        (86_400, "1d"),
        (730 * 86_400, "730d"),
        (3_600, "1h"),
        (61, "61s"),
        (0, "0s"),
        (2.0, "2s"),
        (0.5, "0.5s"),
    ],
)
def test_durations_written(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


@settings(deadline=None)
@given(st.integers(0, 10**17))
def test_sizes_and_rates_come_back(number: int) -> None:
    assert units.parse_size(units.format_size(number)) == number
    assert units.parse_rate(units.format_rate(number)) == number
    assert units.parse_duration(units.format_duration(number // 10**6)) == number // 10**6


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1_772_366_400, "2026-03-01T12:00:00Z"), (1_772_366_400.9, "2026-03-01T12:00:00Z"), (None, "unknown")],
)
def test_moments_written(seconds: float | None, text: str) -> None:
    assert units.format_moment(seconds) == text
