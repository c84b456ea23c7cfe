"""First contacts as tables: egress rows in, contacts and points out."""

import polars as pl
import pytest

from analysis.detectors.egress.contacts import (
    CONTACT_COLUMNS,
    DECISION_COLUMNS,
    DIGEST,
    EGRESS_COLUMNS,
    FIRST_SEEN,
    NEW,
    ContactPolicy,
    Found,
    find,
)
from store import schema
from store.points import WINDOW, encode

T0 = 1_760_000_000
NOBODY = pl.DataFrame(schema=CONTACT_COLUMNS)
NOTHING_DECIDED = pl.DataFrame(schema=DECISION_COLUMNS)


def egress(*rows: tuple[int, str, str, int]) -> pl.DataFrame:
    """Rows of (seconds after T0, source, destination, bytes); tcp/https, 4 s each."""
    nowhere = [""] * len(schema.LABELS)
    full = [
        (T0 + at, src, "training", dst, "external", "tcp", "https", *nowhere, sent, 4.0) for at, src, dst, sent in rows
    ]
    return pl.DataFrame(full, schema=EGRESS_COLUMNS, orient="row")


def known(*rows: tuple[str, str, int]) -> pl.DataFrame:
    full = [(src, dst, "training", "external", "", "", T0 + seen, 0, 0) for src, dst, seen in rows]
    return pl.DataFrame(full, schema=CONTACT_COLUMNS, orient="row")


def decided(src: str, dst: str, *, acked: int | None = None, forgotten: int | None = None) -> pl.DataFrame:
    row = (src, dst, None if acked is None else T0 + acked, None if forgotten is None else T0 + forgotten)
    return pl.DataFrame([row], schema=DECISION_COLUMNS, orient="row")


def look(
    frame: pl.DataFrame,
    before: pl.DataFrame = NOBODY,
    decisions: pl.DataFrame = NOTHING_DECIDED,
    *,
    start: int = 0,
    learning_end: int = 0,
    policy: ContactPolicy | None = None,
) -> Found:
    return find(
        frame,
        before,
        decisions,
        start=T0 + start,
        learning_end=T0 + learning_end,
        window=10,
        policy=policy or ContactPolicy(),
    )


def summary(points: pl.DataFrame) -> list[tuple[int, str, str, int, int]]:
    rows = points.select(pl.col(WINDOW) - T0, schema.SRC, schema.DST, schema.BYTES.name, NEW).rows()
    return sorted(rows)


def test_a_pair_never_seen_is_new_with_a_row_a_window() -> None:
    found = look(egress((0, "a", "x", 5), (10, "a", "x", 7), (40, "a", "x", 9)))
    assert summary(found.points) == [(0, "a", "x", 5, 1), (10, "a", "x", 7, 1), (40, "a", "x", 9, 1)]
    assert set(found.points.get_column(FIRST_SEEN)) == {T0}
    assert found.contacts.select(schema.SRC, schema.DST, FIRST_SEEN, NEW).rows() == [("a", "x", T0, 1)]


def test_a_known_pair_gives_nothing() -> None:
    found = look(egress((0, "a", "x", 5)), known(("a", "x", -9000)))
    assert found.points.is_empty()
    assert found.contacts.is_empty()


def test_the_same_destination_is_new_for_another_source() -> None:
    found = look(egress((0, "a", "x", 5), (0, "b", "x", 6)), known(("a", "x", -9000)))
    assert summary(found.points) == [(0, "b", "x", 6, 1)]


def test_what_is_first_seen_while_learning_is_not_new() -> None:
    found = look(egress((0, "a", "x", 5), (50, "a", "y", 5)), learning_end=50)
    assert summary(found.points) == [(0, "a", "x", 5, 0), (50, "a", "y", 5, 1)]


def test_rows_end_after_five_minutes() -> None:
    found = look(egress(*((at, "a", "x", 1) for at in range(0, 600, 10))))
    assert summary(found.points)[-1][0] == 290
    assert len(summary(found.points)) == 30


def test_rows_go_on_from_pass_to_pass() -> None:
    rows = [(at, "a", "x", 1) for at in range(0, 400, 10)]
    first = look(egress(*(row for row in rows if row[0] < 100)))
    later = look(egress(*rows), first.contacts, start=100)
    whole = look(egress(*rows))
    assert later.contacts.is_empty()
    assert summary(first.points) + summary(later.points) == summary(whole.points)


def test_services_of_one_pair_have_rows_of_their_own_and_the_largest_names_the_contact() -> None:
    frame = egress((0, "a", "x", 5), (0, "a", "x", 50)).with_columns(pl.Series(schema.SERVICE, ["dns", "ssh"]))
    found = look(frame)
    assert sorted(found.points.get_column(schema.SERVICE)) == ["dns", "ssh"]
    assert found.contacts.get_column(schema.SERVICE).to_list() == ["ssh"]


def test_a_row_is_written_as_the_schema_says() -> None:
    line = encode(schema.CONTACT, look(egress((0, "a", "2001:db8::1", 5))).points).decode()
    tags = "src=a,src_group=training,dst=2001:db8::1,dst_group=external,proto=tcp,service=https"
    assert line == f"contact,{tags} bytes=5i,duration=4.0,new=1i,first_seen={T0}.0 {T0}"


def test_a_scan_is_one_digest_row() -> None:
    policy = ContactPolicy(storm_limit=3)
    found = look(egress(*((0, "a", f"x{number:03}", 1000 - number) for number in range(200))), policy=policy)
    assert summary(found.points) == [(0, "a", "other", sum(range(801, 1001)), 1)]
    assert found.contacts.height == 200
    assert found.contacts.get_column(DIGEST).sum() == 200


def test_a_digest_has_one_row_whatever_was_asked() -> None:
    frame = egress(*((0, "a", f"x{number}", 40) for number in range(30)))
    asked = frame.with_columns(pl.Series(schema.SERVICE, ["ssh", "https", "other"] * 10))
    assert look(asked).points.select(schema.DST, schema.SERVICE, "bytes").rows() == [("other", "other", 1200)]


def test_what_carried_more_than_a_probe_keeps_its_name_in_a_storm() -> None:
    """The largest first, as many as get names."""
    policy = ContactPolicy(storm_limit=2, probe_bytes=500)
    sizes = [(0, "a", "small", 40), (0, "a", "big", 900), (0, "a", "bigger", 5000), (0, "a", "third", 800)]
    assert summary(look(egress(*sizes), policy=policy).points) == [
        (0, "a", "big", 900, 1), (0, "a", "bigger", 5000, 1), (0, "a", "other", 840, 1)
    ]  # fmt: skip


def test_a_few_destinations_at_once_keep_their_names() -> None:
    policy = ContactPolicy(storm_limit=3)
    found = look(egress((0, "a", "x", 1), (0, "a", "y", 2), (0, "a", "z", 3)), policy=policy)
    assert [row[2] for row in summary(found.points)] == ["x", "y", "z"]


def test_a_scan_of_ports_is_one_row() -> None:
    """Five known services and one unknown, at one destination."""
    services = ["ssh", "https", "dns", "rdp", "vnc", "other"]
    frame = egress(*((0, "a", "x", 40) for _ in services)).with_columns(pl.Series(schema.SERVICE, services))
    found = look(frame)
    assert found.points.select(schema.DST, schema.SERVICE, "bytes").rows() == [("x", "other", 240)]


def test_a_scan_goes_on_in_the_digest_in_later_passes_and_other_sources_keep_their_names() -> None:
    policy = ContactPolicy(storm_limit=2)
    first = look(egress((0, "a", "x1", 9), (0, "a", "x2", 8)), policy=policy)
    frame = egress((10, "a", "x3", 7), (20, "a", "x4", 6), (20, "b", "x4", 5))
    later = look(frame, first.contacts, start=10, policy=policy)
    assert summary(later.points) == [(10, "a", "other", 7, 1), (20, "a", "other", 6, 1), (20, "b", "x4", 5, 1)]


def test_after_ten_quiet_minutes_a_destination_has_its_name_again() -> None:
    policy = ContactPolicy(storm_limit=1)
    found = look(egress((0, "a", "x", 9), (590, "a", "y", 8), (1180, "a", "z", 7), (1780, "a", "q", 7)), policy=policy)
    assert [row[2] for row in summary(found.points)] == ["x", "other", "other", "q"]


def test_a_scan_that_goes_on_stays_one_event() -> None:
    """Two destinations a minute for an hour: three names, then `other` to the end."""
    policy = ContactPolicy(storm_limit=3, episode=10)
    found = look(egress(*((at * 30, "a", f"x{at:03}", 40) for at in range(120))), policy=policy)
    names = [row[2] for row in summary(found.points)]
    assert names == ["x000", "x001", "x002", *["other"] * 117]


def test_other_of_the_bridge_is_new_once() -> None:
    assert summary(look(egress((0, "a", schema.OTHER, 5))).points) == [(0, "a", "other", 5, 1)]
    assert look(egress((0, "a", schema.OTHER, 5)), known(("a", schema.OTHER, -9000))).points.is_empty()


def test_an_acknowledged_contact_is_not_new_from_then_on() -> None:
    frame = egress((0, "a", "x", 5), (10, "a", "x", 5), (20, "a", "x", 5))
    found = look(frame, decisions=decided("a", "x", acked=14))
    assert [row[4] for row in summary(found.points)] == [1, 0, 0]


def test_a_forgotten_pair_is_new_again_but_not_by_what_was_under_way() -> None:
    frame = egress((0, "a", "x", 5), (50, "a", "x", 6))
    found = look(frame, known(("a", "x", -9000)), decided("a", "x", forgotten=15))
    assert summary(found.points) == [(50, "a", "x", 6, 1)]
    again = look(egress((60, "a", "x", 7)), found.contacts, decided("a", "x", forgotten=15), start=60)
    assert again.contacts.is_empty()


@pytest.mark.parametrize("cut", [10, 50, 120])
def test_passes_find_the_same_as_one(cut: int) -> None:
    policy = ContactPolicy(storm_limit=2)
    rows = [(at, src, f"{dst}{at // 30}", at + 1) for at in range(0, 200, 10) for src in "ab" for dst in "xy"]
    whole = look(egress(*rows), policy=policy)
    first = look(egress(*(row for row in rows if row[0] < cut)), policy=policy)
    second = look(egress(*rows), first.contacts, start=cut, policy=policy)
    assert summary(first.points) + summary(second.points) == summary(whole.points)
    assert pl.concat([first.contacts, second.contacts]).equals(whole.contacts)


def test_a_contact_says_where_its_destination_is_and_a_digest_does_not() -> None:
    """A label that changes meanwhile begins another row; the bytes stay what they are."""
    frame = egress((0, "a", "x", 5), (10, "a", "x", 7), (20, "a", "x", 9)).with_columns(
        pl.Series(schema.COUNTRY, ["NL", "NL", "BE"]), pl.Series(schema.NETWORK, ["AS1 One", "AS1 One", ""])
    )
    points = look(frame).points
    assert points.select(schema.COUNTRY, schema.NETWORK, "bytes", NEW).rows() == [
        ("NL", "AS1 One", 5, 1), ("NL", "AS1 One", 7, 1), ("BE", "", 9, 1)
    ]  # fmt: skip
    scan = egress(*((0, "a", f"x{number}", 40) for number in range(30)))
    digest = look(scan.with_columns(pl.Series(schema.COUNTRY, ["NL", "BE", ""] * 10))).points
    assert digest.select(schema.DST, *schema.LABELS, "bytes").rows() == [("other", *["other"] * 5, 1200)]
