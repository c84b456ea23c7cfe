from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.calendar import hours_words, local_time, moment_of, off_hours_mask, off_hours_words, off_window_mask
from cluster.model import Cluster, Group, InferenceHours, OffHours, Role, Site
from cluster.scalars import names
from cluster.scalars.kinds import Bad

ZONES = ("UTC", "Europe/Amsterdam", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/St_Johns")


def by_the_clock(site: Site, moment: int) -> bool:
    """The definition, one moment at a time, with the standard library's own conversion."""
    local = datetime.fromtimestamp(moment, UTC).astimezone(site.time_zone)
    hours, now = site.off_hours, local.time()
    after, before = now >= hours.start, now < hours.end
    off = (after or before) if hours.start > hours.end else (after and before)
    return off or (hours.weekends and local.weekday() >= 5) or local.date() in hours.holidays


def mask(site: Site, *moments: datetime) -> list[bool]:
    found = off_hours_mask(site, np.array([int(moment.timestamp()) for moment in moments], np.int64))
    return [bool(off) for off in found]


def site(zone: str, start: str = "23:00", end: str = "06:00", *, weekends: bool = False) -> Site:
    return Site(ZoneInfo(zone), OffHours(time.fromisoformat(start), time.fromisoformat(end), weekends))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "hours"),
    [
        ("2026-01-14 21:59:50", "on"),  # 22:59:50 in winter
        ("2026-01-14 22:00:00", "off"),  # 23:00:00 in winter
        ("2026-01-15 04:59:50", "off"),  # 05:59:50
        ("2026-01-15 05:00:00", "on"),  # 06:00: the end itself is on-hours
        ("2026-07-14 20:59:50", "on"),  # 22:59:50 in summer
        ("2026-07-14 21:00:00", "off"),  # 23:00 in summer
        ("2026-07-15 03:59:50", "off"),
        ("2026-07-15 04:00:00", "on"),
        # The night of 29 March 2026 has no 02:00 to 03:00: 06:00 comes an hour of UTC earlier.
        ("2026-03-29 03:59:50", "off"),
        ("2026-03-29 04:00:00", "on"),
        # The night of 25 October 2026 has 02:00 to 03:00 twice: 06:00 comes an hour of UTC later.
        ("2026-10-25 04:59:50", "off"),
        ("2026-10-25 05:00:00", "on"),
    ],
)
def test_amsterdam_around_its_nights(moment: str, hours: str) -> None:
    assert mask(site("Europe/Amsterdam"), utc(moment)) == [hours == "off"]


def test_an_hour_that_comes_twice_counts_twice() -> None:
    new_york = site("America/New_York", "01:00", "02:00")
    night = [utc("2026-11-01 04:00") + timedelta(minutes=15 * step) for step in range(20)]
    # 01:00 EDT is 05:00 UTC, 01:00 EST is 06:00 UTC, 02:00 EST is 07:00 UTC.
    assert mask(new_york, *night) == [utc("2026-11-01 05:00") <= at < utc("2026-11-01 07:00") for at in night]


def test_an_hour_that_is_skipped_never_comes() -> None:
    new_york = site("America/New_York", "02:00", "03:00")
    day = [utc("2026-03-08 00:00") + timedelta(minutes=10 * step) for step in range(144)]
    assert not any(mask(new_york, *day))


def test_lord_howe_moves_by_half_an_hour() -> None:
    island = site("Australia/Lord_Howe", "23:00", "06:00")
    # Summer time (+11) ends on 5 April 2026 at 02:00, back to 01:30 (+10:30).
    assert mask(island, utc("2026-04-04 18:59:50"), utc("2026-04-04 19:00:00")) == [True, True]
    assert mask(island, utc("2026-04-04 19:29:50"), utc("2026-04-04 19:30:00")) == [True, False]
    # It begins on 4 October 2026 at 02:00, on to 02:30.
    assert mask(island, utc("2026-10-03 18:59:50"), utc("2026-10-03 19:00:00")) == [True, False]


def test_weekends_are_whole_local_days() -> None:
    amsterdam = site("Europe/Amsterdam", weekends=True)
    friday, saturday = utc("2026-01-16 21:59:50"), utc("2026-01-17 12:00")
    sunday_end, monday = utc("2026-01-18 21:59:50"), utc("2026-01-19 12:00")
    assert mask(amsterdam, friday, saturday, sunday_end, monday) == [False, True, True, False]
    assert mask(site("Europe/Amsterdam"), saturday, sunday_end) == [False, False]


def test_a_holiday_is_a_whole_local_day() -> None:
    christmas = Site(ZoneInfo("Europe/Amsterdam"), OffHours(time(23), time(6), holidays=(date(2026, 12, 25),)))
    eve, first, last, after = map(utc, ("2026-12-24 21:59", "2026-12-24 23:00", "2026-12-25 22:59", "2026-12-26 12:00"))
    assert mask(christmas, eve, first, last, after) == [False, True, True, False]
    at_noon = np.array([int(utc("2026-12-25 12:00").timestamp())], np.int64)
    assert off_window_mask(christmas, InferenceHours(time(7), time(20), weekends=False), at_noon).tolist() == [True]
    assert off_window_mask(christmas, InferenceHours(time(7), time(20)), at_noon).tolist() == [False]


def test_hours_that_do_not_wrap() -> None:
    lunch = site("UTC", "12:00", "13:00")
    moments = [utc("2026-01-14 11:59:59"), utc("2026-01-14 12:00"), utc("2026-01-14 12:59:59"), utc("2026-01-14 13:00")]
    assert mask(lunch, *moments) == [False, True, True, False]


def test_no_windows() -> None:
    assert off_hours_mask(site("Europe/Amsterdam"), np.zeros(0, np.int64)).shape == (0,)


minutes = st.times().map(lambda moment: moment.replace(second=0, microsecond=0))
sites = st.builds(
    Site,
    st.sampled_from(ZONES).map(ZoneInfo),
    st.builds(
        OffHours,
        start=minutes,
        end=minutes,
        weekends=st.booleans(),
        holidays=st.lists(st.dates(date(2000, 1, 1), date(2037, 12, 31)), max_size=3).map(tuple),
    ),
)


@settings(deadline=None)
@given(sites, st.lists(st.integers(946_684_800, 2_145_916_800), min_size=1, max_size=40))
def test_equals_the_definition(where: Site, moments: list[int]) -> None:
    expected = [by_the_clock(where, moment) for moment in moments]
    assert off_hours_mask(where, np.array(moments, np.int64)).tolist() == expected


@pytest.mark.parametrize("zone", ZONES)
def test_equals_the_definition_on_every_quarter_of_a_year(zone: str) -> None:
    """Every transition of a year is in it."""
    where = site(zone, weekends=True)
    first = int(utc("2026-01-01 00:00").timestamp())
    moments = np.arange(first, first + 366 * 86_400, 900)
    assert off_hours_mask(where, moments).tolist() == [by_the_clock(where, moment) for moment in moments.tolist()]


# -- hours of inference, and the clock on the wall -----------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "outside"),
    [
        ("2026-01-14 05:59:50", True),  # 06:59:50 in winter
        ("2026-01-14 06:00:00", False),
        ("2026-01-14 18:59:50", False),
        ("2026-01-14 19:00:00", True),  # the end itself is outside
        ("2026-07-14 05:00:00", False),  # 07:00 in summer
        ("2026-01-17 12:00:00", True),  # a Saturday
        ("2026-01-18 22:59:50", True),
        ("2026-01-19 06:00:00", False),
    ],
)
def test_windows_outside_the_hours_of_inference(moment: str, *, outside: bool) -> None:
    hours = InferenceHours(time(7), time(20), weekends=False)
    starts = np.array([int(utc(moment).timestamp())], np.int64)
    assert off_window_mask(site("Europe/Amsterdam"), hours, starts).tolist() == [outside]
    assert off_window_mask(site("Europe/Amsterdam"), None, starts).tolist() == [False], "without hours any time is good"


def test_hours_of_inference_may_wrap_around_midnight() -> None:
    hours = InferenceHours(time(22), time(4))
    starts = np.array([int(utc(f"2026-01-17 {clock}").timestamp()) for clock in ("21:59", "22:00", "03:59", "04:00")])
    assert off_window_mask(site("UTC"), hours, starts).tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("clock", "moment"),
    [
        ("2026-01-14 12:00", "2026-01-14 11:00"),
        ("2026-07-14 12:00", "2026-07-14 10:00"),
        ("2026-03-29 02:30", "2026-03-29 01:30"),  # skipped: as the clock of winter has it
        ("2026-10-25 02:30", "2026-10-25 00:30"),  # twice: the first, in summer time
        ("2026-10-25 03:00", "2026-10-25 02:00"),
    ],
)
def test_moments_of_the_clock_on_the_wall(clock: str, moment: str) -> None:
    found = moment_of(ZoneInfo("Europe/Amsterdam"), np.array([int(utc(clock).timestamp())]))
    assert found.tolist() == [int(utc(moment).timestamp())]


@given(st.integers(1_700_000_000, 1_900_000_000), st.sampled_from(ZONES))
@settings(max_examples=300, deadline=None)
def test_a_moment_has_a_time_and_that_time_a_moment(moment: int, zone: str) -> None:
    """As the standard library says it, with fold 0."""
    local = local_time(ZoneInfo(zone), np.array([moment]))
    wall = datetime.fromtimestamp(moment, ZoneInfo(zone))
    assert local.tolist() == [int(wall.replace(tzinfo=UTC).timestamp())]
    assert moment_of(ZoneInfo(zone), local).tolist() == [int(wall.replace(fold=0).timestamp())]


# -- in words, and zones by other names ------------------------------------------------------------------


def test_hours_in_words_name_the_zone_and_the_days_of_rest() -> None:
    berlin = Site(ZoneInfo("Europe/Berlin"), OffHours(time(22), time(6), weekends=True, holidays=(date(2026, 12, 25),)))
    late = Group("late", "Late", Role.MODEL_STORAGE, (), off_hours=OffHours(time(1), time(2)))
    assert off_hours_words(Cluster("test", (), site=berlin)) == "22:00-06:00 Europe/Berlin, weekends too, holidays too"
    assert off_hours_words(Cluster("test", (late,))) == "23:00-06:00 UTC, or hours of its own"
    week = InferenceHours(time(7), time(20), weekends=False)
    assert hours_words(berlin, week) == "07:00-20:00 Europe/Berlin, not on weekends and holidays"
    assert hours_words(Site(), week) == "07:00-20:00 UTC, not on weekends"
    assert hours_words(berlin, InferenceHours(time(7), time(20))) == "07:00-20:00 Europe/Berlin", (
        "nor do holidays count"
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("EST", "did you mean America/New_York?"),  # a zone, which has no summer
        ("CEST", ""),  # EST is on the other side of the ocean
        ("JST", ""),
        ("localtime", ""),  # another one on each machine
        ("Berlin", "did you mean Europe/Berlin?"),
        ("utc", "did you mean UTC?"),
    ],
)
def test_what_is_no_zone_everywhere_is_refused(text: str, hint: str) -> None:
    with pytest.raises(Bad) as told:
        names.TIME_ZONE.parse(text)
    assert told.value.hint == hint
