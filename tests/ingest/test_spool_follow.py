"""A folder of files that grow, rotate, are renamed, replaced and cut: every line once."""

import errno
import gzip
import itertools
import json
import os
import shutil
import time
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import UserError
from ingest.read import spool as spool_module
from ingest.read.source import MAX_LINE, Chunk, Position, StreamSource
from ingest.read.spool import Spool

HEADER = "SRC_IP,DST_IP,PACKETS,BYTES"


def drain(spool: Spool | StreamSource, limit: int = 1 << 20) -> list[Chunk]:
    chunks = []
    while (chunk := spool.next_chunk(limit)) is not None:
        chunks.append(chunk)
    return chunks


def lines(chunks: list[Chunk]) -> list[str]:
    return [line for chunk in chunks for line in chunk.raw.decode().splitlines()]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def make_old(path: Path, seconds: float = 3600) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_gives_whole_lines_of_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "nfacct-20261121-0842.csv"
    path.write_text(f"{HEADER}\na\nb")
    with Spool(tmp_path) as spool:
        assert [chunk.raw for chunk in drain(spool)] == [f"{HEADER}\na\n".encode()]
        append(path, "b\nc\n")
        chunks = drain(spool)
        assert [chunk.raw for chunk in chunks] == [b"bb\nc\n"]
        assert chunks[0].header == HEADER
        assert chunks[0].source == path.name
        assert spool.next_chunk(1000) is None
        assert not spool.is_finished
        assert spool.counts == {}


def test_once_gives_the_unterminated_last_line_too(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\nb")
    with Spool(tmp_path, once=True) as spool:
        assert lines(drain(spool)) == ["a", "b"]
        assert spool.is_finished


def test_limit_cuts_at_lines(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("aaaa\nbbbb\ncccc\n")
    with Spool(tmp_path) as spool:
        assert [chunk.raw for chunk in drain(spool, 11)] == [b"aaaa\nbbbb\n", b"cccc\n"]


def test_positions_resume_after_every_chunk(tmp_path: Path) -> None:
    """A position survives JSON, and knows the header of a file that is read from its middle."""
    (tmp_path / "nfacct-1.csv").write_text(f"{HEADER}\n1\n2\n3\n")
    (tmp_path / "sfacct-1.csv").write_text(f"{HEADER}\n4\n5\n")
    with Spool(tmp_path) as spool:
        chunks = drain(spool, 30)
    every = lines(chunks)
    for i, chunk in enumerate(chunks):
        with Spool(tmp_path) as spool:
            spool.resume(json.loads(json.dumps(chunk.position)))
            rest = drain(spool, 30)
        assert sorted(lines(rest)) == sorted(every[len(lines(chunks[: i + 1])) :])
        assert all(later.header == HEADER or later.raw.startswith(HEADER.encode()) for later in rest)


def test_a_file_replaced_under_its_name_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("one\ntwo\n")
    with Spool(tmp_path) as spool:
        drain(spool)
        path.unlink()
        path.write_text("ONE\ntwo\nthree\n")
        assert lines(drain(spool)) == ["ONE", "two", "three"]
        assert spool.counts == {"replaced": 1}


def test_a_file_overwritten_in_place_is_read_from_its_start(tmp_path: Path) -> None:
    """The print plugin without append does so at every purge; the new text may be longer than what was read."""
    path = tmp_path / "x.csv"
    path.write_text("one\ntwo\n")
    with Spool(tmp_path) as spool:
        drain(spool)
        path.write_text("uno\ndue\ntre\n")
        assert lines(drain(spool)) == ["uno", "due", "tre"]
        assert spool.counts == {"replaced": 1}
        path.write_text("x\n")
        assert lines(drain(spool)) == ["x"]
        assert spool.counts == {"replaced": 1, "truncated": 1}


def test_a_renamed_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("one\n")
    with Spool(tmp_path) as spool:
        drain(spool)
        path.rename(tmp_path / "x-1.csv")
        append(tmp_path / "x-1.csv", "two\n")
        path.write_text("three\n")
        assert sorted(lines(drain(spool))) == ["three", "two"]
        position = spool.position
        (tmp_path / "x-1.csv").rename(tmp_path / "x-2.csv")
    with Spool(tmp_path) as spool:
        spool.resume(position)
        assert drain(spool) == []


def test_links_to_a_file_are_not_read_again(tmp_path: Path) -> None:
    """`print_latest_file` makes such links."""
    (tmp_path / "x-2.csv").write_text("one\n")
    (tmp_path / "latest.csv").symlink_to("x-2.csv")
    os.link(tmp_path / "x-2.csv", tmp_path / "y.csv")
    with Spool(tmp_path, once=True) as spool:
        assert lines(drain(spool)) == ["one"]


def test_a_vanished_file_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("one\n")
    with Spool(tmp_path) as spool:
        drain(spool)
        path.unlink()
        assert drain(spool) == []
        assert spool.counts == {"vanished": 1}


def test_once_reads_in_the_order_of_time_whatever_the_prefix(tmp_path: Path) -> None:
    for name in ("sfacct-20261121-0842", "nfacct-20261121-0843", "nfacct-20261121-0841"):
        (tmp_path / f"{name}.csv").write_text(f"{name}\n")
    with Spool(tmp_path, once=True) as spool:
        assert [line[-4:] for line in lines(drain(spool))] == ["0841", "0842", "0843"]


def test_without_a_time_in_their_names_files_come_by_age(tmp_path: Path) -> None:
    for name, age in (("a", 10), ("b", 30), ("c", 20)):
        (tmp_path / f"{name}.csv").write_text(f"{name}\n")
        make_old(tmp_path / f"{name}.csv", age)
    with Spool(tmp_path, once=True) as spool:
        assert lines(drain(spool)) == ["b", "c", "a"]


def test_writers_take_turns_while_following(tmp_path: Path) -> None:
    """Of the same time, neither holds up the other."""
    for name in ("nfacct-1.csv", "sfacct-1.csv"):
        (tmp_path / name).write_text(f"{name[0]}\n" * 50)
        os.utime(tmp_path / name, (1_790_000_000,) * 2)
    with Spool(tmp_path) as spool:
        first = [drain_one.source[0] for drain_one in drain(spool, 20)][:6]
    assert first in (["n", "s"] * 3, ["s", "n"] * 3)


@pytest.mark.parametrize(("length", "limit"), [(60, 2000), (3600, 50_000)])
def test_a_writer_with_little_to_read_does_not_run_ahead_of_the_other_one_s_backlog(
    length: int, limit: int, tmp_path: Path
) -> None:
    """Else records of the other one come later than windows are kept, and all go to the oldest."""
    begin, end = 1_790_000_000, 1_790_007_200
    counts = {"nfacct": 600, "sfacct": 60}
    for start in range(begin, end, length):
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(start))
        for writer, count in counts.items():
            path = tmp_path / f"{writer}-{stamp}.csv"
            each = 60 / count
            path.write_text("".join(f"{writer} {start + int(i * each)}\n" for i in range(length * count // 60)))
            os.utime(path, (start + length,) * 2)
    with Spool(tmp_path) as spool:
        read = [line.split() for line in lines(drain(spool, limit))]
    moments = [int(moment) for _, moment in read]
    assert len(moments) == (end - begin) // 60 * sum(counts.values())
    newest = itertools.accumulate(moments, max)
    assert max(ahead - moment for ahead, moment in zip(newest, moments, strict=True)) < 250
    for writer in counts:
        own = [moment for name, moment in read if name == writer]
        assert own == sorted(own)


def test_reads_compressed_files(tmp_path: Path) -> None:
    text = "".join(f"{i}\n" for i in range(5000)) + "end"
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text.encode()))
    with Spool(tmp_path) as spool:
        chunks = drain(spool, 4000)
        assert spool.backlog_bytes() == 0
    assert lines(chunks) == text.splitlines()
    with Spool(tmp_path) as spool:
        spool.resume(chunks[2].position)
        assert lines(drain(spool, 4000)) == lines(chunks[3:])
        assert spool.next_chunk(100) is None


@pytest.mark.parametrize("once", [True, False])
def test_a_compressed_file_is_read_as_quickly_as_another(tmp_path: Path, *, once: bool) -> None:
    """Its size says nothing of how much it holds: chunks as small as it is would be hundreds."""
    with gzip.open(tmp_path / "nfacct-1.csv.gz", "wt") as file:
        file.write(f"{HEADER}\n" + "a\n" * 100_000)
    with Spool(tmp_path, once=once) as spool:
        assert len(drain(spool)) == 1


def test_a_compressed_file_that_is_cut_gives_what_it_holds_and_is_counted(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f"line {i} {i * i}\n" for i in range(200_000)).encode())
    (tmp_path / "x.csv.gz").write_bytes(whole[: len(whole) // 2])
    with Spool(tmp_path, once=True) as spool:
        got = lines(drain(spool, 10_000))
        assert got[:2] == ["line 0 0", "line 1 1"]
        assert spool.counts == {"unreadable": 1}
        assert spool.is_finished


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_an_error_that_passes_costs_nothing(
    tmp_path: Path, name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"{i}\n" for i in range(5000)).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    with Spool(tmp_path) as spool:
        first = lines([spool.next_chunk(1000) or pytest.fail("nothing to read")])
        with monkeypatch.context() as patch:
            _fail_to_read(patch, number)
            assert (drain(spool), drain(spool)) == ([], [])
            assert spool.counts == {"unreadable": 1}, "there is a pause"
        assert drain(spool) == []
        spool._files[name].retry = time.monotonic()
        assert [*first, *lines(drain(spool))] == text.decode().splitlines()


def _fail_to_read(patch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    patch.setattr(Spool, "_read_at", fail)


def test_a_copy_waits_for_an_original_whose_error_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy would count, and then the original as well."""
    monkeypatch.setattr(spool_module, "_SCAN_SECONDS", -1.0)
    (tmp_path / "nfacct-1.csv").write_text(TIMED)
    with Spool(tmp_path) as spool:
        got = lines([spool.next_chunk(2000) or pytest.fail("nothing to read")])
        with monkeypatch.context() as patch:
            _fail_to_read(patch, errno.EIO)
            assert drain(spool) == []
        (tmp_path / "copy.csv").write_text(TIMED)
        assert drain(spool) == []
        spool._files["nfacct-1.csv"].retry = time.monotonic()
        assert [*got, *lines(drain(spool))] == TIMED.splitlines()
        assert spool.counts == {"unreadable": 1, "copied": 1}


def test_once_an_error_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.csv").write_text("a\n")
    _fail_to_read(monkeypatch, errno.EIO)
    with Spool(tmp_path, once=True) as spool:
        assert drain(spool) == []
        assert spool.is_finished
        assert spool.unreadable() == ["x.csv"]


@pytest.mark.parametrize("keeps_date", [False, True])
def test_a_broken_file_mended_at_the_same_size_is_read(tmp_path: Path, *, keeps_date: bool) -> None:
    whole = gzip.compress(b"a\nb\n")
    path = tmp_path / "x.csv.gz"
    path.write_bytes(bytes(len(whole)))
    make_old(path)
    before = path.stat()
    with Spool(tmp_path) as spool:
        assert (drain(spool), drain(spool)) == ([], [])
        assert spool.counts == {"unreadable": 1}
        path.write_bytes(whole)
        if keeps_date:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert lines(drain(spool)) == ["a", "b"]


def test_a_line_without_end_is_cut_short_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"one\n" + b"z" * (3 * MAX_LINE) + b"\ntwo\n")
    with Spool(tmp_path) as spool:
        got = lines(drain(spool, 1000))
        assert got[0] == "one"
        assert set(got[1]) == {"z"}
        assert len(got[1]) < 5000
        assert got[2:] == ["two"]
        assert spool.counts == {"line_too_long": 1}


def test_release_keeps_what_may_still_grow(tmp_path: Path) -> None:
    old, new = tmp_path / "nfacct-20261121-0841.csv", tmp_path / "nfacct-20261121-0842.csv"
    old.write_text("1\n")
    new.write_text("2\n")
    with Spool(tmp_path, deletes=True) as spool:
        drain(spool)
        spool.release(spool.position)
        assert old.exists(), "its writer may still be at work"
        make_old(old)
        make_old(new)
        stale = spool.position
        append(old, "3\n")
        make_old(old)
        spool.release(stale)
        assert old.exists(), "the position does not cover it"
        assert lines(drain(spool)) == ["3"]
        spool.release(spool.position)
        assert not old.exists()
        assert new.exists(), "the newest file of a writer is in use"
        assert list(spool.position) == [new.name]
        assert drain(spool) == []
        assert spool.counts == {}


def test_a_released_file_is_no_loss_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1\n")
    with Spool(tmp_path, once=True, deletes=True) as spool:
        drain(spool)
        position = spool.position
        spool.release(position)
    told = list[tuple[str, str]]()
    with Spool(tmp_path, notice=lambda *said: told.append(said)) as spool:
        spool.resume(position)
        assert drain(spool) == []
        assert (spool.counts, told) == ({}, [])


def test_a_new_file_on_an_old_inode_is_read(tmp_path: Path) -> None:
    """File systems give the inode of a deleted file to the next one."""
    path = tmp_path / "nfacct-1.csv"
    path.write_text("--START (1)--\nold\n")
    with Spool(tmp_path) as spool:
        drain(spool)
        position: Position = spool.position
    path.rename(tmp_path / "nfacct-2.csv")
    (tmp_path / "nfacct-2.csv").write_text("--START (2)--\nnew, and longer than the old\n")
    with Spool(tmp_path) as spool:
        spool.resume(position)
        assert lines(drain(spool)) == ["--START (2)--", "new, and longer than the old"]


@pytest.mark.parametrize("comes_back", ["itself", "as a copy"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_file_that_was_away_goes_on_where_it_was(tmp_path: Path, comes_back: str, *, restarts: bool) -> None:
    path, away = tmp_path / "x.csv", tmp_path / "elsewhere"
    path.write_text("1\n2\n")
    with Spool(tmp_path) as spool:
        assert lines(drain(spool)) == ["1", "2"]
        path.rename(away)
        assert drain(spool) == []
        assert spool.counts == {"vanished": 1}
        position = json.loads(json.dumps(spool.position))
        if not restarts:
            _come_back(away, path, comes_back)
            assert lines(drain(spool)) == ["3"]
    if restarts:
        with Spool(tmp_path) as spool:
            spool.resume(position)
            assert drain(spool) == []
            _come_back(away, path, comes_back)
            assert lines(drain(spool)) == ["3"]


def _come_back(away: Path, path: Path, how: str) -> None:
    append(away, "3\n")
    if how == "itself":
        away.rename(path)
    else:
        shutil.copy(away, path)


def test_an_answer_that_the_disk_owes_is_no_sign_that_a_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1\n")
    with Spool(tmp_path) as spool:
        assert lines(drain(spool)) == ["1"]
        with monkeypatch.context() as meanwhile:
            entry = Mock(is_symlink=lambda: False, stat=Mock(side_effect=OSError(errno.ESTALE, "stale")))
            entry.name = path.name
            listing = MagicMock()
            listing.__enter__.return_value = [entry]
            meanwhile.setattr(os, "scandir", lambda _: listing)
            assert drain(spool) == []
        append(path, "2\n")
        assert lines(drain(spool)) == ["2"]
        assert spool.counts == {}


def test_a_spool_that_was_moved_to_another_disk_is_not_read_again(tmp_path: Path) -> None:
    """Device numbers change when a machine starts again; inodes, when a volume is copied."""
    (tmp_path / "x.csv").write_text("one\ntwo\n")
    with Spool(tmp_path) as spool:
        drain(spool)
        position = {
            name: {**entry, "device": entry["device"] + 1, "inode": entry["inode"] + 1}
            for name, entry in spool.position.items()
        }
    append(tmp_path / "x.csv", "three\n")
    with Spool(tmp_path) as spool:
        spool.resume(position)
        assert lines(drain(spool)) == ["three"]
        assert spool.counts == {}


def test_the_tail_of_a_closed_file_is_given_out(tmp_path: Path) -> None:
    """A daemon that was killed leaves half a line: a dead letter, not a file that stays for ever."""
    old, new = tmp_path / "nfacct-1.csv", tmp_path / "nfacct-2.csv"
    old.write_text("1\nhal")
    new.write_text("2\n")
    with Spool(tmp_path, deletes=True) as spool:
        assert lines(drain(spool)) == ["1", "2"]
        make_old(old)
        assert lines(drain(spool)) == ["hal"]
        spool.release(spool.position)
        assert not old.exists()


def test_two_bridges_cannot_read_one_spool(tmp_path: Path) -> None:
    with Spool(tmp_path), pytest.raises(UserError, match="another bridge reads it"):
        Spool(tmp_path)
    Spool(tmp_path).close()


def test_a_missing_folder_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        Spool(tmp_path / "none")


def test_backlog_is_what_was_not_read(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("12345\n12345\n")
    with Spool(tmp_path) as spool:
        spool.next_chunk(8)
        assert spool.backlog_bytes() == 6
        drain(spool)
        assert spool.backlog_bytes() == 0


def test_a_folder_that_takes_long_to_look_at_is_looked_at_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "_LONG_SCAN", 0.0)
    monkeypatch.setattr(spool_module, "_SCANS_APART", 1e9)
    for number in range(3):
        (tmp_path / f"nfacct-{number}.csv").write_text(f"{number}\nhalf {number}")
    with Spool(tmp_path) as spool:
        assert lines(drain(spool)) == ["0", "1", "2"]
        (tmp_path / "nfacct-3.csv").write_text("new\n")
        assert drain(spool) == []
        monkeypatch.setattr(spool, "_pause", 0.0)
        assert lines(drain(spool)) == ["new"]
    # What is read once ends where nothing is left, which takes a last look.
    with Spool(tmp_path, once=True) as spool:
        assert lines(drain(spool)) == ["0", "half 0", "1", "half 1", "2", "half 2", "new"]
        assert spool.is_finished


def test_reads_a_stream_without_waiting() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as reader, open(write_end, "wb", buffering=0) as writer:  # noqa: PTH123 - descriptors
        source = StreamSource(reader)
        assert source.next_chunk(1000) is None
        writer.write(f"{HEADER}\na\nb".encode())
        assert lines(drain(source)) == [HEADER, "a"]
        writer.write(b"b\nc")
        chunks = drain(source)
        assert lines(chunks) == ["bb"]
        assert chunks[0].header == HEADER
        writer.close()
        assert lines(drain(source)) == ["c"]
        assert source.is_finished
        assert not source.is_resumable


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["nfacct-1", "nfacct-2", "sfacct-1"]), st.integers(0, 40)), max_size=12),
    st.integers(5, 60),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_every_line_once_however_it_is_written_read_and_restarted(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, int]], limit: int, restarts: list[bool]
) -> None:
    """Writers append pieces that end anywhere; the reader takes chunks of any size and restarts at any time."""
    folder = tmp_path_factory.mktemp("spool")
    wanted = {name: "".join(f"{name} {i}\n" for i in range(40)) for name in ("nfacct-1", "nfacct-2", "sfacct-1")}
    written = dict.fromkeys(wanted, 0)
    got: dict[str, str] = dict.fromkeys(wanted, "")
    spool = Spool(folder, once=False)
    position: Position = {}
    for (name, count), restart in zip(writes, restarts, strict=False):
        append(folder / f"{name}.csv", wanted[name][written[name] : written[name] + count])
        written[name] = min(len(wanted[name]), written[name] + count)
        if restart:
            spool.close()
            spool = Spool(folder)
            spool.resume(position)
        while (chunk := spool.next_chunk(limit)) is not None:
            assert chunk.raw.endswith(b"\n")
            got[chunk.source.removesuffix(".csv")] += chunk.raw.decode()
            position = chunk.position
    spool.close()
    for name, text in wanted.items():
        assert got[name] == text[: text.rfind("\n", 0, written[name]) + 1]


RECORDS = "".join(f"10.0.0.{i},10.0.0.1,{1_790_000_000 + i}.5,{i},{i * 100}\n" for i in range(1, 200))
TIMED = f"SRC_IP,DST_IP,TIMESTAMP_ARRIVAL,PACKETS,BYTES\n{RECORDS}"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("left", [len(TIMED) - 30, 5000, 2000, 300, 97])
def test_a_file_cut_after_it_was_read_is_not_read_again(tmp_path: Path, left: int, *, restarts: bool) -> None:
    path = tmp_path / "nfacct-1.csv"
    path.write_text(TIMED)
    spool = Spool(tmp_path)
    drain(spool)
    position = json.loads(json.dumps(spool.position))
    if restarts:
        spool.close()
    os.truncate(path, left)
    if restarts:
        spool = Spool(tmp_path)
        spool.resume(position)
    with spool:
        assert lines(drain(spool)) == []
        assert spool.counts == {"cut": 1}
        append(path, "new\n")
        assert lines(drain(spool)) == ["new"]


def test_a_file_emptied_and_written_anew_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nfacct-1.csv"
    path.write_text(TIMED)
    with Spool(tmp_path) as spool:
        drain(spool)
        other = TIMED.replace("10.0.0.", "10.9.0.").splitlines(keepends=True)[:20]
        path.write_text("".join(other))
        assert lines(drain(spool)) == "".join(other).splitlines()
        assert spool.counts == {"truncated": 1}


def test_what_a_copy_repeats_is_not_given_out_again(tmp_path: Path) -> None:
    whole = TIMED + "".join(f"10.1.0.{i},10.0.0.1,{1_790_000_900 + i}.5,{i},{i * 100}\n" for i in range(50))
    (tmp_path / "nfacct-1.csv").write_text(TIMED)
    with Spool(tmp_path) as spool:
        drain(spool, 2000)
        (tmp_path / "a-copy.csv").write_text(TIMED[: len(TIMED) // 2])
        assert lines(drain(spool)) == []
        # The copy goes on, and holds more than the file that was read.
        (tmp_path / "a-copy.csv").write_text(whole)
        (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(TIMED.encode()))
        assert lines(drain(spool)) == whole[len(TIMED) :].splitlines()
        append(tmp_path / "nfacct-1.csv", "10.2.0.1,10.0.0.1,1790001999.5,1,100\n")
        assert lines(drain(spool)) == ["10.2.0.1,10.0.0.1,1790001999.5,1,100"]
        assert spool.counts == {"copied": 2}


def test_a_copy_goes_on_where_its_original_ends_in_half_a_line(tmp_path: Path) -> None:
    more = "".join(f"10.1.0.{i},10.0.0.1,{1_790_000_900 + i}.5,{i},{i * 100}\n" for i in range(5))
    original, copy, third = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv"
    original.write_text(TIMED + more[:20])
    with Spool(tmp_path) as spool:
        drain(spool)
        copy.write_text(TIMED + more)
        # Its writer may be about to end the line.
        assert lines(drain(spool)) == []
        make_old(original)
        assert lines(drain(spool)) == more.splitlines()
        third.write_text(TIMED + more)
        # The other way round now: whatever the copy gave out is known.
        append(original, more[20:])
        assert lines(drain(spool)) == []
        append(original, "10.2.0.1,10.0.0.1,1790001999.5,1,100\n")
        assert lines(drain(spool)) == ["10.2.0.1,10.0.0.1,1790001999.5,1,100"]
        position = spool.position
    with Spool(tmp_path) as spool:
        spool.resume(position)
        append(copy, "10.3.0.1,10.0.0.1,1790002999.5,1,100\n")
        assert lines(drain(spool)) == ["10.3.0.1,10.0.0.1,1790002999.5,1,100"]


def test_files_that_only_begin_alike_are_no_copies(tmp_path: Path) -> None:
    """Header and marker say nothing; records without a time may be the same twice."""
    header = f"--START (1)--\n{TIMED.splitlines()[0]}\n"
    for number in (1, 2):
        (tmp_path / f"nfacct-{number}.csv").write_text(f"{header}10.0.0.{number},10.0.0.1,179000000{number}.5,1,100\n")
        (tmp_path / f"plain-{number}.csv").write_text(f"{HEADER}\n10.0.0.1,10.0.0.2,1,100\n")
    with Spool(tmp_path) as spool:
        got = lines(drain(spool))
        assert sum("179000000" in line for line in got) == 2
        assert got.count("10.0.0.1,10.0.0.2,1,100") == 2
        assert spool.counts == {}
