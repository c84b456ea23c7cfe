"""The site's days and hours, also where the clock jumps."""

import json
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from analysis.audit import Period
from cluster.load import parse_cluster
from reporting.content import Bars, Kind, Mark, Marks, Stack, Word
from reporting.page import figure_json
from reporting.spans import Bins, asked_seconds, bins_of, days_of
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


def drawn(chart: Bars | Marks) -> tuple[list[tuple[datetime, datetime]], str]:
    """Return from when to when the bars of a chart go, and how its axis of time is titled."""
    figure = json.loads(figure_json(chart, AMSTERDAM))
    (trace,) = figure["data"]
    begins = [datetime.fromisoformat(text) for text in trace.get("base", trace["x"])]
    lengths = trace["width"] if isinstance(chart, Bars) else trace["x"]
    ends = [begin + timedelta(milliseconds=length) for begin, length in zip(begins, lengths, strict=True)]
    return list(zip(begins, ends, strict=True)), figure["layout"]["xaxis"].get("title", {}).get("text", "")


def bars_of(bins: Bins) -> Bars:
    stack = Stack("all", "#123456", tuple(1.0 for _ in bins.starts))
    return Bars("x", "X", Kind.BYTES, bins.starts, bins.stop, (stack,))


@pytest.mark.parametrize("night", ["2025-03-30", "2025-10-26"])
@pytest.mark.parametrize("is_daily", [False, True])
def test_bars_of_a_night_in_which_the_clock_changes_stand_side_by_side(night: str, *, is_daily: bool) -> None:
    period = Period(second(f"{night}T00:00") - 24 * HOUR, second(f"{night}T12:00"), "1m", 60)
    bars, title = drawn(bars_of((days_of if is_daily else bins_of)(period, AMSTERDAM)))
    assert [end for _, end in bars[:-1]] == [begin for begin, _ in bars[1:]]
    assert [begin.hour for begin, _ in bars].count(0) == 2
    offset = "UTC+01:00" if night.startswith("2025-03") else "UTC+02:00"
    assert title == ("" if is_daily else f"{offset} throughout: the site's clock changes meanwhile")


def test_bars_of_other_nights_follow_the_sites_clock() -> None:
    period = Period(second("2025-10-27T00:00"), second("2025-10-27T06:00"), "1m", 60)
    bars, title = drawn(bars_of(bins_of(period, AMSTERDAM)))
    assert [bars[0][0].isoformat(), bars[-1][1].isoformat()] == ["2025-10-27T00:00:00", "2025-10-27T06:00:00"]
    assert not title


def test_what_lasted_through_the_change_of_the_clock_is_drawn_as_long_as_it_was() -> None:
    start = second("2025-10-26T00:00")
    marks = (Mark("a", start, start + 3 * HOUR, "silent", "#123456"),
             Mark("a", start + 3 * HOUR, start + 4 * HOUR, "silent", "#123456"))  # fmt: skip
    found, title = drawn(Marks("x", "X", ("a",), marks, start, start + 12 * HOUR))
    assert found[0][1] == found[1][0]
    assert title.startswith("UTC+02:00")


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


@pytest.mark.parametrize(
    ("place", "first", "last"),
    [
        ("Asia/Kolkata", "2025-06-09", "2025-06-12"),
        ("Australia/Lord_Howe", "2025-04-04", "2025-04-11"),
    ],
)
def test_days_of_half_hour_zones_are_whole(place: str, first: str, last: str) -> None:
    zone = ZoneInfo(place)
    period = Period(second(first, zone), second(last, zone), "1m", 60)
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


def test_groups_have_their_titles_and_so_has_whoever_is_in_none() -> None:
    words = Wording.of(parse_cluster("cluster: lab\ngroups: {gpus: {title: GPU Farm, role: training}}\n"))
    assert [words.title(group) for group in ("gpus", "unlisted")] == ["GPU Farm", "Unlisted Addresses"]


def test_a_very_long_name_is_cut() -> None:
    assert plain("x" * 161) == "x" * 160 + "…"
