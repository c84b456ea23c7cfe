"""Feeds as text: what is taken, what is skipped and told, what is refused."""

import math
import os
from pathlib import Path

import pytest
from feed_scene import DATED, listed, read, refused

from app.errors import UserError
from cluster.model import FeedColumns, FeedFormat, ThreatFeed
from enrichment.feeds.feed_files import read_feed

COLUMNS = FeedColumns("ip", "score", "first", "until")


def test_a_list_has_a_prefix_a_line(tmp_path: Path) -> None:
    """Comments of either sign, blank lines, Windows' ends of lines, a mark of UTF-8, ports and words behind."""
    text = (
        "\ufeff# botnets\r\n203.0.113.9\r\n\r\n  198.51.100.0/24 ; SBL1\n2001:db8:66::/48 # a /48\n"
        "203.0.113.10:8080\n203.0.113.11 12 reports\n::ffff:203.0.113.12\n[2001:db8:67::9]:443\n"
    )
    loaded = read(tmp_path / "list.txt", text)
    assert listed(loaded.value) == {
        "203.0.113.9": 50,
        "198.51.100.0/24": 50,
        "2001:db8:66::/48": 50,
        "203.0.113.10": 50,
        "203.0.113.11": 50,
        "203.0.113.12": 50,
        "2001:db8:67::9": 50,
    }
    assert (loaded.entries, loaded.skipped, loaded.note) == (7, 0, "")


def test_a_file_that_is_larger_than_any_feed_is_refused_unread(tmp_path: Path) -> None:
    """The bridge ended for want of memory, and each start read it again."""
    path = tmp_path / "list.txt"
    path.touch()
    os.truncate(path, 1 << 31)
    with pytest.raises(UserError, match="larger than 512 MiB"):
        read_feed(path, ThreatFeed("bad", str(path)), refused())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("0.0.0.0/0", "expected a prefix of /8 or longer"),
        ("::/0", "expected a prefix of /16 or longer"),
        ("128.0.0.0/1", "expected a prefix of /8 or longer"),
        ("2000::/3", "expected a prefix of /16 or longer"),
        ("10.1.2.3", "expected addresses outside; 10.0.0.0/8 is not of the Internet"),
        ("127.0.0.1", "expected addresses outside; 127.0.0.0/8 is not of the Internet"),
        ("fd00::1", "expected addresses outside; fc00::/7 is not of the Internet"),
        ("198.18.7.0/24", "expected addresses outside; 198.18.0.0/16 is the cluster's own"),
        ("198.16.0.0/14", "expected addresses outside; 198.18.0.0/16 is the cluster's own"),
        ("2001:db8::/32", "expected addresses outside; 2001:db8:1::/48 is the cluster's own"),
        ("[2001:db8:66::]/48", "expected an address or a prefix"),
        ("203.0.113.9/24", "expected 203.0.113.0/24, without bits beyond its length"),
        ("<html>", "expected an address or a prefix"),
    ],
)
def test_an_entry_that_would_match_the_wrong_machines_is_told_with_its_line(
    line: str, why: str, tmp_path: Path
) -> None:
    """It is skipped and counted, the others stay; alone in a file, the file is refused."""
    path = tmp_path / "list.txt"
    loaded = read(path, f"203.0.113.9\n# here\n{line}\n{line}\n")
    assert listed(loaded.value) == {"203.0.113.9": 50}
    assert loaded.skipped == 2
    assert loaded.note == f"{path}: line 3: '{line}': {why}"
    with pytest.raises(UserError) as refused:
        read(path, f"{line}\n")
    assert refused.value.lines() == [f"{path}: line 1: '{line}': {why} (none of its 1 entries can be used)"]


def test_an_approved_partner_may_be_listed(tmp_path: Path) -> None:
    """That somebody may be talked to is no reason not to know that he is bad."""
    assert listed(read(tmp_path / "list.txt", "192.0.2.7\n").value) == {"192.0.2.7": 50}


def test_a_list_may_be_empty_but_not_its_file(tmp_path: Path) -> None:
    """Feeds have quiet days, which their comments tell; a file without a byte is one that somebody failed to write."""
    assert read(tmp_path / "list.txt", "# nothing today\n").entries == 0
    with pytest.raises(UserError, match="an empty file"):
        read(tmp_path / "list.txt", "\n")


def test_an_undated_entry_is_listed_since_it_was_first_seen(tmp_path: Path) -> None:
    """It holds always; it is listed since the version that first had it, and anew where it was away."""
    path = tmp_path / "list.txt"
    first = read(path, "203.0.113.1\n").value
    second = read(path, "203.0.113.2\n203.0.113.1\n", before=first, dated=DATED + 60).value
    third = read(path, "203.0.113.2\n203.0.113.3\n", before=second, dated=DATED + 120).value
    assert second.listed.tolist() == [DATED + 60, DATED]
    assert third.listed.tolist() == [DATED + 60, DATED + 120]
    assert third.known.tolist() == third.listed.tolist()
    assert third.start.tolist() == [-math.inf, -math.inf]


def test_csv_has_the_columns_that_are_named(tmp_path: Path) -> None:
    """Its header may be a comment, quotes and other columns are no matter, empty cells are as if nothing were said."""
    text = (
        "# exported\n"
        '# "first","note","ip","score","until"\n'
        '"2026-05-01 10:00:00","a, b","203.0.113.9:443","90","2026-06-01T00:00:00Z"\n'
        "1777629600,,203.0.113.10,,\n"
        "2026-05-01T12:00:00+02:00,,203.0.113.11,12.4%,\n"
    )
    feed = read(tmp_path / "bad.csv", text, FeedFormat.CSV, columns=COLUMNS).value
    assert listed(feed) == {"203.0.113.9": 90, "203.0.113.10": 50, "203.0.113.11": 12}
    assert feed.start.tolist() == [1_777_629_600.0] * 3
    assert feed.listed.tolist() == feed.start.tolist()
    assert feed.known.tolist() == [DATED] * 3
    assert feed.end.tolist() == [1_780_272_000.0, math.inf, math.inf]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_cells_may_be_parted_otherwise(separator: str, tmp_path: Path) -> None:
    text = separator.join(("name", "ip")) + "\n" + separator.join(("x", "203.0.113.9")) + "\n"
    loaded = read(tmp_path / "bad.csv", text, FeedFormat.CSV, columns=FeedColumns("ip"))
    assert listed(loaded.value) == {"203.0.113.9": 50}


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("203.0.113.9,101,,", "'203.0.113.9,101,,': expected a confidence from 0 to 100"),
        ("203.0.113.9,high,,", "'203.0.113.9,high,,': expected a confidence from 0 to 100"),
        ("203.0.113.9,,soon,", "'203.0.113.9,,soon,': expected a time such as 2026-05-01T12:00:00Z"),
        ("203.0.113.9,,1777629600000,", "'203.0.113.9,,1777629600000,': expected a time in seconds since 1970"),
        ("203.0.113.9,,2026-05-02,2026-05-01", "'203.0.113.9': expected an end of its validity after its beginning"),
        ("203.0.113.9,,2026-05-02,2026-05-02", "'203.0.113.9': expected an end of its validity after its beginning"),
        (",,,", "'': expected an address or a prefix"),
        ('"203.0.113.9', "'203.0.113.9\"': expected an address or a prefix"),
    ],
)
def test_a_row_with_a_fault_is_skipped_and_told(row: str, fault: str, tmp_path: Path) -> None:
    """The rows around it stay."""
    path = tmp_path / "bad.csv"
    text = f"ip,score,first,until\n203.0.113.1,,,\n{row}\n203.0.113.2,,,\n"
    if row.startswith('"'):
        text = text.replace(row, '"203.0.113.9""')
    loaded = read(path, text, FeedFormat.CSV, columns=COLUMNS)
    assert list(listed(loaded.value)) == ["203.0.113.1", "203.0.113.2"]
    assert loaded.skipped == 1
    assert loaded.note.startswith(f"{path}: line 3: {fault}")


def test_equal_entries_are_one_with_the_highest_confidence(tmp_path: Path) -> None:
    """Another length or another time makes another entry."""
    text = (
        "ip,score,first,until\n203.0.113.9,40,,\n203.0.113.8,50,,\n203.0.113.9,90,,\n203.0.113.9/32,60,,\n"
        "203.0.113.9,70,2026-05-01,\n203.0.113.8/31,10,,\n203.0.113.9,80,2026-05-01,\n"
    )
    loaded = read(tmp_path / "bad.csv", text, FeedFormat.CSV, columns=COLUMNS)
    feed = loaded.value
    found = [(feed.indicator(one), int(feed.confidence[one])) for one in range(len(feed))]
    assert found == [("203.0.113.9", 90), ("203.0.113.8", 50), ("203.0.113.9", 80), ("203.0.113.8/31", 10)]
    assert feed.start.tolist() == [-math.inf, -math.inf, 1_777_593_600.0, -math.inf]
    assert (loaded.entries, loaded.skipped) == (4, 0)


def test_csv_without_the_named_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    with pytest.raises(UserError) as refused:
        read(path, "address,score\n203.0.113.9,1\n", FeedFormat.CSV, columns=COLUMNS)
    assert refused.value.lines() == [
        f"{path}: no header with the columns ip, score, first, until (`columns` of the feed names them)"
    ]


@pytest.mark.parametrize("head", ["", "ip,score,first,until\n"], ids=["in place of the header", "below it"])
def test_a_page_in_one_line_in_place_of_csv_is_refused(head: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    with pytest.raises(UserError) as refused:
        read(path, f"{head}<html>{'x' * 140_000}</html>\n", FeedFormat.CSV, columns=COLUMNS)
    assert refused.value.message == f"{path}:{2 if head else 1}: no line of CSV: field larger than field limit (131072)"
    assert "web page" in refused.value.hint


def test_entries_of_little_confidence_are_left_out(tmp_path: Path) -> None:
    """They are no faults: a file of nothing else is an empty list."""
    text = "ip,score\n203.0.113.1,80\n203.0.113.2,79\n"
    columns = FeedColumns("ip", "score")
    loaded = read(tmp_path / "bad.csv", text, FeedFormat.CSV, columns=columns, least_confidence=80)
    assert (list(listed(loaded.value)), loaded.skipped) == (["203.0.113.1"], 0)
    assert read(tmp_path / "bad.csv", text, FeedFormat.CSV, columns=columns, least_confidence=81).entries == 0


def test_a_name_that_steers_terminals_is_told_in_print(tmp_path: Path) -> None:
    """Whoever wrote the feed does not write to the operator's screen; nor a line of any length."""
    note = read(tmp_path / "list.txt", "203.0.113.9\n\x1b[2Jx\u202e" + "y" * 500 + "\n").note
    assert note.isprintable()
    assert len(note) < 300
