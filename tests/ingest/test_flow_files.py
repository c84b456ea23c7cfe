"""The link that pmacct appends to, and the files it leads to one after the other."""

import errno
import time
from pathlib import Path

import pytest

from ingest.collect.flow_files import FlowFiles, link_of
from ingest.read.records import PRINTED_COLUMNS

HEADER = b"SRC_IP,DST_IP,PACKETS,BYTES\n"
START, RECORD = b"--START (7)--\n", b"10.0.0.1,10.0.0.2,1,100\n"


def begun(spool: Path) -> tuple[FlowFiles, Path]:
    """Files that have begun, and their link."""
    files = FlowFiles(spool, "nfacct-")
    files.begin()
    return files, link_of(spool, "nfacct-")


def test_a_new_beginning_is_a_name_without_a_file(tmp_path: Path) -> None:
    """So the daemon makes it, and writes the header that its version has."""
    _, link = begun(tmp_path)
    assert link.is_symlink()
    assert not link.exists()
    assert not list(tmp_path.glob("*.csv"))


def test_the_next_file_has_the_header_of_the_one_before(tmp_path: Path) -> None:
    files, link = begun(tmp_path)
    link.write_bytes(START + HEADER + RECORD)
    first = link.resolve()
    files.rotate()
    assert link.resolve() > first
    assert link.read_bytes() == HEADER
    assert first.read_bytes() == START + HEADER + RECORD
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")]


@pytest.mark.parametrize("text", [b"", HEADER])
def test_a_file_without_records_stays(tmp_path: Path, text: bytes) -> None:
    """A quiet night leaves no empty files behind."""
    files, link = begun(tmp_path)
    link.write_bytes(text)
    before = link.resolve()
    files.rotate()
    assert link.resolve() == before


def test_nothing_printed_yet_is_nothing_to_rotate(tmp_path: Path) -> None:
    files, _ = begun(tmp_path)
    files.rotate()
    assert not list(tmp_path.glob("*.csv"))


def test_names_rise_when_the_clock_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers take the file with the latest name for the one that may still grow."""
    files = FlowFiles(tmp_path, "nfacct-")
    link = link_of(tmp_path, "nfacct-")
    names = []
    for now in (1_790_000_000.0, 1_790_000_000.5, 1_789_990_000.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        files.begin()
        link.write_bytes(HEADER)
        names.append(link.resolve().name)
    assert names == [f"nfacct-20260921-1413{second}.csv" for second in (20, 21, 22)]


def test_no_file_of_another_process_is_taken_for_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_790_000_000.0)
    (tmp_path / "nfacct-20260921-141320.csv").write_bytes(HEADER + RECORD)
    FlowFiles(tmp_path, "nfacct-").begin()
    assert link_of(tmp_path, "nfacct-").readlink() == Path("nfacct-20260921-141321.csv")


def test_a_file_that_lost_its_header_is_left_behind(tmp_path: Path) -> None:
    """The disk was full when pmacct made it: all that follows has none, and it would never end."""
    files, link = begun(tmp_path)
    link.write_bytes(RECORD)
    first = link.resolve()
    files.rotate()
    assert link.resolve() > first
    assert link.read_bytes() == (",".join(PRINTED_COLUMNS) + "\n").encode()
    link.write_bytes(HEADER + RECORD)
    files.rotate()
    link.write_bytes(RECORD)
    files.rotate()
    assert link.read_bytes() == HEADER, "the last one that pmacct wrote"


def test_a_file_in_the_place_of_the_link_is_kept(tmp_path: Path) -> None:
    files = FlowFiles(tmp_path, "nfacct-")
    link_of(tmp_path, "nfacct-").write_bytes(HEADER + RECORD)
    files.begin()
    (kept,) = tmp_path.glob("nfacct-*.csv")
    assert kept.read_bytes() == HEADER + RECORD
    assert link_of(tmp_path, "nfacct-").is_symlink()
    assert not link_of(tmp_path, "nfacct-").exists()


def test_a_disk_without_room_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, link = begun(tmp_path)
    link.write_bytes(HEADER + RECORD)
    before = sorted(tmp_path.iterdir())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for step in ("write_bytes", "symlink_to"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, step, full)
            with pytest.raises(OSError, match="No space"):
                files.rotate()
        assert sorted(tmp_path.iterdir()) == before
    files.rotate()
    assert link.read_bytes() == HEADER


def test_after_a_restart_names_go_on_behind_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was set back meanwhile: a file of the future would pass for the newest, and the live one be deleted."""
    monkeypatch.setattr(time, "time", lambda: 1_790_000_000.0)
    (tmp_path / "nfacct-20260921-151320.csv").write_bytes(HEADER + RECORD)
    (tmp_path / ".nfacct-20260921-151321.csv.new").write_bytes(b"SRC")
    (tmp_path / "nfacct-partner.csv").write_bytes(HEADER + RECORD)
    FlowFiles(tmp_path, "nfacct-").begin()
    assert link_of(tmp_path, "nfacct-").readlink() == Path("nfacct-20260921-151321.csv")
    assert not list(tmp_path.glob("*.new"))
    assert not list(tmp_path.glob(".*csv.new"))
