"""Times of logs, and names of users: what exports write, and what becomes of it."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrichment.identity.log_times import Clock
from enrichment.identity.signin_sources import LONGEST, Names

NOW = datetime(2026, 7, 7, 12, tzinfo=UTC).timestamp()
CLOCK = Clock(ZoneInfo("Europe/Amsterdam"), NOW)
KEY = b"sixteen bytes or more"


@pytest.mark.parametrize(
    ("line", "moment", "rest"),
    [
        ("2026-07-07T08:15:02.123456Z vpn asa: x", "2026-07-07T08:15:02Z", " vpn asa: x"),
        ("<166>2018-06-27T12:17:46Z asa : x", "2018-06-27T12:17:46Z", " asa : x"),
        ("<165>1 2026-07-07T08:15:02+0700 vpn x", "2026-07-07T01:15:02Z", " vpn x"),
        ("2026-07-07 08:15:02 alice", "2026-07-07T06:15:02Z", " alice"),
        ("2026-07-07 08:15:02 us=12 alice", "2026-07-07T06:15:02Z", " alice"),
        ("Tue Jul  7 08:15:02 2026 alice", "2026-07-07T06:15:02Z", " alice"),
        ("Fri Nov  4 19:40:44 2022 us=821834 alice", "2022-11-04T18:40:44Z", " alice"),
        ("Jul  7 08:15:02 gw openvpn[1]: x", "2026-07-07T06:15:02Z", " gw openvpn[1]: x"),
        ("Jul 07 2026 08:15:02: %ASA", "2026-07-07T06:15:02Z", ": %ASA"),
        ("Mar 21 2014 23:03:49 UTC: %ASA", "2014-03-21T23:03:49Z", ": %ASA"),
        ("Dec 31 23:59:58 gw x", "2025-12-31T22:59:58Z", " gw x"),
        ("Jul  8 08:15:02 gw x", "2026-07-08T06:15:02Z", " gw x"),
    ],
)
def test_the_time_at_the_head_of_a_line(line: str, moment: str, rest: str) -> None:
    assert CLOCK.head(line) == (int(datetime.fromisoformat(moment).timestamp()), rest)


@pytest.mark.parametrize(
    ("line", "now", "moment"),
    [
        ("Jan  1 00:30:00 UTC: %ASA", "2026-12-31T19:31:00-05:00", "2027-01-01T00:30:00Z"),
        ("Jan  1 00:00:02 gw x", "2026-12-31T23:59:59-05:00", "2027-01-01T05:00:02Z"),
        ("Dec 31 23:59:58 gw x", "2027-01-01T00:00:01-05:00", "2027-01-01T04:59:58Z"),
        ("Feb 29 12:00:00 gw x", "2028-02-29T12:01:00-05:00", "2028-02-29T17:00:00Z"),
    ],
)
def test_a_line_without_a_year_is_of_the_nearest_one(line: str, now: str, moment: str) -> None:
    clock = Clock(ZoneInfo("America/New_York"), datetime.fromisoformat(now).timestamp())
    assert clock.head(line)[0] == int(datetime.fromisoformat(moment).timestamp())


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-07-07T08:15:02.1234567Z", "2026-07-07T08:15:02Z"),
        ("2026-07-07T08:15:02", "2026-07-07T06:15:02Z"),
        ("1783412102", "2026-07-07T08:15:02Z"),
        ("1783412102.5", "2026-07-07T08:15:02Z"),
        ("1783412102123", "2026-07-07T08:15:02Z"),
        ("/Date(1783412102123)/", "2026-07-07T08:15:02Z"),
        ("Jul  7 2026 08:15:02 UTC", "2026-07-07T08:15:02Z"),
        ("Jul  7 2026 08:15:02 CEST", "2026-07-07T06:15:02Z"),
        ("Thu Jun 18 08:12:15 2015", "2015-06-18T06:12:15Z"),
    ],
)
def test_a_time_that_stands_for_itself(text: str, moment: str) -> None:
    assert CLOCK.moment(text) == int(datetime.fromisoformat(moment).timestamp())


@given(st.text(max_size=60))
def test_what_is_no_time_is_a_value_error_and_nothing_else(text: str) -> None:
    for read in (CLOCK.head, CLOCK.moment):
        try:
            read(text)
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Alice", "alice"),
        ("EXAMPLE\\Alice", "alice"),
        ("LOCAL\\EXAMPLE\\alice", "alice"),
        ("alice@example.org", "alice"),
        ("alice@other.org", "alice@other.org"),
        ("OTHER\\alice", "other/alice"),
        ("  ", ""),
        ("al\x1b[31mice\n\u202e", "al?[31mice??"),
    ],
)
def test_one_person_has_one_name(text: str, name: str) -> None:
    assert Names(["EXAMPLE", "example.org"]).of(text) == name


@given(st.text(max_size=400))
def test_names_are_bounded_and_printable_and_stay_apart(text: str) -> None:
    name = Names().of(text)
    assert len(name) <= LONGEST
    assert name.isprintable()
    assert Names().of(text + "x" * 400) != Names().of(text + "x" * 399 + "y")


@given(st.text(max_size=40))
def test_a_pseudonym_is_stable_and_hides_the_name(text: str) -> None:
    names = Names(["example.org"], KEY)
    pseudonym = names.of(text)
    assert pseudonym == Names(["example.org"], KEY).of(text)
    assert not pseudonym or (pseudonym.startswith("u-") and len(pseudonym) == 18)
    if pseudonym:
        assert pseudonym != Names(["example.org"], KEY + b"!").of(text)


def test_the_same_person_has_the_same_pseudonym_from_every_source() -> None:
    names = Names(["EXAMPLE", "example.org"], KEY)
    assert names.of("EXAMPLE\\Alice") == names.of("alice@example.org") == names.listed("alice")
    assert names.listed(names.of("alice")) == names.of("alice")
    assert names.of(names.of("alice")) != names.of("alice"), "an export cannot claim somebody's pseudonym"


def test_a_key_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="a key of 5 bytes: expected at least 16"):
        Names(key=b"short")
