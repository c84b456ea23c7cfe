"""Spool files that are cut, garbled, copied, renamed, in the wrong order, or no files of records at all."""

import gzip
import os
import random
import shutil
import time
from pathlib import Path

import pytest
from staged import Staged, finish, record_files, stage, start
from trouble import Bridge, account, await_account, await_that, feed, filled

from bench.faults import Record
from simulate.truth.reckoning import Reckoning
from store.local_influxdb import LocalInfluxDB

QUICK = {"flush": "0.2s"}


def once_arguments(folder: Path, shard: str) -> tuple[str, ...]:
    # What makes no sense goes beside the files, not to where the tests run.
    dead = str(folder.with_name(f"{folder.name}-dead-letters.jsonl"))
    return "--spool", str(folder), "--once", "--shard", shard, "--dead-letters", dead


def read_once(staged: Staged, folder: Path, shard: str) -> None:
    finish(start("ingest", staged, *once_arguments(folder, shard)), staged, "ingest")


def said(staged: Staged) -> str:
    return staged.config.with_name("ingest.log").read_text(errors="replace")


def lost_of(result: Reckoning) -> int:
    return result.sent_bytes - result.stored_bytes


def await_read(bridge: Bridge) -> None:
    """Wait until all that is in the spool has been read and written."""
    size = sum(file.stat().st_size for file in record_files(bridge.staged.spool))
    await_that(lambda: bridge.metrics().get(("read", "bytes"), 0) >= size, "all is read")
    time.sleep(0.6)


def without_lines(text: bytes, first: int, last: int) -> bytes:
    """Return a text without the lines that have a byte in [first, last)."""
    kept, position = [], 0
    for line in text.splitlines(keepends=True):
        if position + len(line) <= first or position >= last:
            kept.append(line)
        position += len(line)
    return b"".join(kept)


def test_a_file_cut_off_costs_what_is_gone_and_says_so(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    """With `--once`, and live, where the rest of a half line may still come."""
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    victim = files[2]
    text = victim.read_bytes()
    # In the last column, where what is left is a number like any other.
    cut = text.rfind(b"\n", 0, len(text) * 2 // 3) - 1
    victim.write_bytes(text[:cut])
    shutil.copytree(tmp_path / "files", tmp_path / "expected")
    (tmp_path / "expected" / victim.name).write_bytes(text[: text.rfind(b"\n", 0, cut) + 1])
    read_once(staged, tmp_path / "expected", "expected")
    expected = account(staged, truth, "expected")
    assert lost_of(expected) > 0
    read_once(staged, tmp_path / "files", "once")
    assert said(staged).count("reason=truncated") == 1
    assert f"source={victim.name} reason=truncated" in said(staged)
    assert "dead_letters=1" in said(staged)
    assert account(staged, truth, "once").differences == expected.differences
    with Bridge(staged, "--keep-files") as bridge:
        for _ in feed(staged, files):
            pass
        await_that(lambda: bridge.metrics().get(("read", "bytes"), 0) > 0, "it reads")
        await_read_but(bridge, victim.name, text[:cut])
        assert bridge.stop() == 0
    result = account(staged, truth)
    # Counters lie in the spool alone.
    counters = "interfaces "
    assert [str(gap) for gap in result.differences if not gap.what.startswith(counters)] == [
        str(gap) for gap in expected.differences if not gap.what.startswith(counters)
    ]
    record(
        "file-cut-before",
        result,
        trials=2,
        stated=lost_of(expected),
        counted="what was cut off was never here: the line that is left half is a dead letter, reason `truncated`",
    )


def await_read_but(bridge: Bridge, name: str, text: bytes) -> None:
    """Wait until all is read but the half line at the end of a file, for whose rest the bridge waits."""
    half = len(text) - text.rfind(b"\n") - 1
    files = record_files(bridge.staged.spool)
    assert name in {file.name for file in files}
    size = sum(file.stat().st_size for file in files) - half
    await_that(lambda: bridge.metrics()["read", "bytes"] >= size, "all whole lines are read")
    time.sleep(0.6)


def test_a_file_cut_off_after_it_was_read_counts_once(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    with Bridge(staged, "--keep-files") as bridge:
        for _ in feed(staged, files[:3], 0.05):
            pass
        await_read(bridge)
        for left, file in zip((50_000, 3000, 20_000), record_files(staged.spool), strict=True):
            os.truncate(file, min(left, file.stat().st_size - 10))
        await_that(lambda: bridge.said().count("event=spool_cut") == 1, "the cut is told")
        bridge.kill()
        bridge.await_start()
        for _ in feed(staged, files[3:]):
            pass
        result = await_account(staged, truth)
        assert bridge.stop() == 0
    record("file-cut-after", result, trials=3)


def test_garbled_bytes_cost_their_lines_only(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth = staged.fill(tmp_path / "files")
    shutil.copytree(tmp_path / "files", tmp_path / "expected")
    rng = random.Random(11)
    count = 700
    garbage = [bytes(count), bytes(rng.choice(b"\x00\xff\xfe;:#\x80\"'{[") for _ in range(count))]
    for victim, noise in zip(record_files(tmp_path / "files")[1:], garbage, strict=False):
        text = victim.read_bytes()
        middle = len(text) // 2
        victim.write_bytes(text[:middle] + noise + text[middle + count :])
        # A line that begins right behind the noise has lost the end of the one before it, and is part of that.
        (tmp_path / "expected" / victim.name).write_bytes(without_lines(text, middle, middle + count + 1))
    read_once(staged, tmp_path / "expected", "expected")
    read_once(staged, tmp_path / "files", "test")
    expected, result = account(staged, truth, "expected"), account(staged, truth, "test")
    assert result.differences == expected.differences
    assert "event=dead_letters" in said(staged)
    record(
        "file-garbled",
        result,
        trials=len(garbage),
        stated=lost_of(expected),
        counted="the lines hit, as dead letters with reason and source",
    )


@pytest.mark.long_form
def test_a_copy_counts_once(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record) -> None:
    """A whole copy, an older one of a file that grew since, a compressed one, and one that is being made."""
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    spool = staged.spool
    texts = [file.read_bytes() for file in files]
    half = len(texts[1]) // 2
    with Bridge(staged, "--keep-files") as bridge:
        files[0].rename(spool / files[0].name)
        (spool / "copy-of-0.csv").write_bytes(texts[0])
        (spool / files[1].name).write_bytes(texts[1][:half])
        await_read_once(bridge, len(texts[0]) + half)
        # As `cp` makes it: piece by piece, while the original grows.
        with (spool / "backup-1.csv").open("ab", buffering=0) as copy:
            for start_at in range(0, half, half // 5 + 1):
                copy.write(texts[1][start_at : min(start_at + half // 5 + 1, half)])
                time.sleep(0.3)
        bridge.kill()
        bridge.await_start()
        with (spool / files[1].name).open("ab") as original:
            original.write(texts[1][half:])
        (spool / "packed-2.csv.gz").write_bytes(gzip.compress(texts[2]))
        files[2].rename(spool / files[2].name)
        for _ in feed(staged, files[3:]):
            pass
        await_account(staged, truth)
        # Given that it is even: does it stay so?
        time.sleep(1.5)
        result = account(staged, truth)
        assert "event=spool_copied" in bridge.said()
        assert bridge.stop() == 0
    assert [str(gap) for gap in result.differences] == []
    # Once, files come in the order of their times, copies among them.
    again = tmp_path / "again"
    again.mkdir()
    for file in record_files(spool):
        shutil.copy(file, again / file.name)
    shutil.copytree(spool / "counters", again / "counters")
    read_once(staged, again, "again")
    assert [str(gap) for gap in account(staged, truth, "again").differences] == []
    record("file-copied", result, trials=4)


def await_read_once(bridge: Bridge, size: int) -> None:
    await_that(lambda: bridge.metrics().get(("read", "bytes"), 0) >= size - 400, "it is read")
    time.sleep(0.6)


@pytest.mark.long_form
def test_files_renamed_while_they_are_read_count_once(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    rng = random.Random(5)
    renamed = 0
    with Bridge(staged, "--keep-files") as bridge:
        for count in feed(staged, files, 0.15):
            there = record_files(staged.spool)
            one = rng.choice(there)
            one.rename(staged.spool / f"was-{count}-{one.name}")
            renamed += 1
            if count == 3:
                bridge.kill()
                one = record_files(staged.spool)[0]
                one.rename(staged.spool / f"meanwhile-{one.name}")
                bridge.await_start()
        result = await_account(staged, truth)
        time.sleep(1)
        result = account(staged, truth)
        assert bridge.stop() == 0
    record("file-renamed", result, trials=renamed)


@pytest.mark.parametrize("is_live", [False, True])
def test_files_in_the_wrong_order_and_from_the_future(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record, *, is_live: bool
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    random.Random(3).shuffle(files)
    names = ["flows-20991231-2359.csv", "flows-4102444800.csv", "flows-19700101-0000.csv"]
    names += [f"flows-{number}.csv" for number in range(len(files))]
    folder = tmp_path / "odd"
    folder.mkdir()
    for name, file in zip(names, files, strict=False):
        file.rename(folder / name)
        os.utime(folder / name, (4_000_000_000, 4_000_000_000))
    if is_live:
        with Bridge(staged) as bridge:
            for _ in feed(staged, record_files(folder)):
                pass
            result = await_account(staged, truth)
            assert bridge.stop() == 0
    else:
        shutil.copytree(staged.spool / "counters", folder / "counters")
        read_once(staged, folder, staged.cluster.bridge.shard)
        result = account(staged, truth)
    record("file-disordered", result, trials=2 * len(files))


@pytest.mark.parametrize("is_live", [False, True])
def test_what_is_no_file_of_records_is_in_nobodys_way(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record, *, is_live: bool
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    folder = staged.spool if is_live else tmp_path / "files"
    whole = files[-1].read_bytes()
    (folder / "a-folder.csv").mkdir()
    os.mkfifo(folder / "a-pipe.csv")
    (folder / "dangling.csv").symlink_to(folder / "nowhere")
    (folder / "empty.csv").write_bytes(b"")
    (folder / "empty.csv.gz").write_bytes(b"")
    (folder / "no-archive.csv.gz").write_bytes(b"this is no archive\n" * 30)
    (folder / "nul.csv").write_bytes(bytes(5000))
    (folder / "blank.json").write_bytes(b"\n\n\n")
    (folder / os.fsdecode(b"no-utf8-\xff\xfe.csv")).write_bytes(b"\xff\xfe,\x00,rubbish\n" * 3)
    (folder / files[-1].with_suffix(".csv.gz").name).write_bytes(gzip.compress(whole)[:-200])
    files[-1].unlink()
    if is_live:
        with Bridge(staged) as bridge:
            for _ in feed(staged, files[:-1]):
                pass
            await_that(lambda: "event=spool_unreadable" in bridge.said(), "broken archives are told")
            await_that(lambda: bridge.metrics().get(("read", "dead_letters"), 0) >= 3, "rubbish is told")
            # Mended, they are read to their end.
            (folder / files[-1].with_suffix(".csv.gz").name).write_bytes(gzip.compress(whole))
            result = await_account(staged, truth)
            assert bridge.stop() == 0
    else:
        shutil.copytree(staged.spool / "counters", folder / "counters")
        process = start("ingest", staged, *once_arguments(folder, "0"))
        assert process.wait(60) == 1
        archives = f"{files[-1].with_suffix('.csv.gz').name}, no-archive.csv.gz"
        assert f"not read to the end: {archives} (mend or replace" in said(staged)
        (folder / "no-archive.csv.gz").unlink()
        (folder / files[-1].with_suffix(".csv.gz").name).write_bytes(gzip.compress(whole))
        read_once(staged, folder, staged.cluster.bridge.shard)
        result = account(staged, truth)
    record("file-odd", result, trials=10)
