"""The site's days and hours, also where the clock jumps."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from analysis.audit import Period
from reporting.content import Kind, Word
from reporting.spans import asked_seconds, bins_of, days_of
from reporting.words import Wording, plain

AMSTERDAM = ZoneInfo("Europe/Amsterdam")
HOUR = 3600


def second(text: str, zone: ZoneInfo = AMSTERDAM) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())


@pytest.mark.parametrize(("month", "hours"), [("2025-03-3", 23), ("2025-10-2", 25)])
def test_a_day_of_the_clocks_change_is_as_long_as_it_is(month: str, hours: int) -> None:
    first, last = {
        "2025-03-3": ("2025-03-29T12:00", "2025-03-31T06:00"),
        "2025-10-2": ("2025-10-25T12:00", "2025-10-27T06:00"),
    }[month]
    days = days_of(Period(second(first), second(last), "1m", 60), AMSTERDAM)
    assert [end - start for start, end in zip(days.starts, [*days.starts[1:], days.stop], strict=True)] == [
        12 * HOUR, hours * HOUR, 6 * HOUR,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("length", "number"), [(6 * HOUR, 73), (7 * 24 * HOUR, 169), (30 * 24 * HOUR, 31)], ids=["hours", "week", "month"]
)
def test_bins_hold_every_moment_once(length: int, number: int) -> None:
    """A period that begins amid a bin has one more."""
    period = Period(second("2025-06-09T00:00:00") + 120, second("2025-06-09T00:00:00") + 120 + length, "1m", 60)
    bins = bins_of(period, AMSTERDAM)
    assert len(bins.starts) == number
    step = asked_seconds(period, AMSTERDAM)
    asked = range(period.start // step * step, period.stop, step)
    folded = bins.folded((moment, "x", 1) for moment in asked)
    assert sum(folded["x"]) == len(asked)
    assert folded["x"][0] >= 1


def test_no_bin_is_shorter_than_what_is_kept() -> None:
    """Four hours of a year ago: of each hour one number is left."""
    start = second("2024-06-09T10:00")
    assert bins_of(Period(start, start + 4 * HOUR, "1h", HOUR), AMSTERDAM).starts == tuple(
        start + hour * HOUR for hour in range(4)
    )


def test_days_of_half_hour_zones_are_whole() -> None:
    zone = ZoneInfo("Asia/Kolkata")
    period = Period(second("2025-06-09", zone), second("2025-06-12", zone), "1m", 60)
    step = asked_seconds(period, zone)
    assert all(start % step == 0 for start in days_of(period, zone).starts)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (41_200_000_000, Kind.BYTES, "41.2 GB"),
        (0.9996, Kind.SHARE, "99.96%"),
        (1.0, Kind.SHARE, "100.0%"),
        (1_234.5, Kind.USD, "1,234 USD"),
        (0.5, Kind.USD, "0.50 USD"),
        (4_000, Kind.SECONDS, "1h 6m"),
        (None, Kind.COUNT, ""),
        (12_345, Kind.COUNT, "12,345"),
        ("gone", Kind.GROUP, "gone"),
        (Word("late"), Kind.TEXT, "late"),
    ],
)
def test_values_for_people(value: float | str | Word | None, kind: Kind, text: str) -> None:
    assert Wording(AMSTERDAM, {}).shown(value, kind) == text


def test_a_very_long_name_is_cut() -> None:
    assert plain("x" * 161) == "x" * 160 + "…"
