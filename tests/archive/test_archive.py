"""The archive holds what the checkpoint says: nothing twice, nothing that was not acknowledged."""

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from app.errors import UserError
from app.log import Log
from archive import layout, manifest, schema, tally, writer
from archive.manifest import FRESH, HOUR, SORTED, read_manifest
from archive.query import Filter, ask
from archive.writer import Archive
from cluster.model import ArchiveSettings
from ingest.checkpoint import Checkpoint
from ingest.flows.archive_rows import coded
from operations.backup.backup_cli import backup, restore

T0 = 1_790_000_000 // HOUR * HOUR
ALL = Filter(T0 - 1000 * HOUR, T0 + 1000 * HOUR)


def rows(*numbers: int, hour: int = 0, **given: Any) -> pl.DataFrame:
    """A row for each number, of so many bytes, from a source of its own."""
    row = {
        "exporter": "leaf", "in_interface": "in", "out_interface": "out", "dst": "203.0.113.5", "src_port": 40_000,
        "dst_port": 443, "dst_node": "203.0.113.5", "src_group": "training", "dst_group": "external", "protocol": "tcp",
        "tcp_flags": 24, "service": "https", "packets": 1, "flows": 1, "rate": 1, "counted": True, "rank": 0,
    } | given  # fmt: skip
    found = [
        {"start": T0 + hour * HOUR, "end": T0 + hour * HOUR + n % HOUR, "src": f"10.1.{n // 250}.{n % 250}",
         "src_node": f"gpu-{n}", "bytes": n} | row
        for n in numbers
    ]  # fmt: skip
    return pl.DataFrame(found, schema=schema.SCHEMA)


def an_archive(folder: Path, notes: dict[str, Any] | None = None, **settings: Any) -> Archive:
    made = Archive(folder / "0", replace(ArchiveSettings(), **settings), Log(quiet=True))
    made.load(notes)
    return made


def saved(archive: Archive, now: float = 0) -> dict[str, Any]:
    notes = archive.seal(now)
    archive.commit()
    return notes


def settle(archive: Archive) -> dict[str, Any]:
    """Checkpoints until nothing is left to merge."""
    for _ in range(100):
        notes = saved(archive)
        if archive._merging is None:
            return notes
        assert archive._merging[1].exception() is None
    raise AssertionError("it merges without end")


def sizes(folder: Path, question: Filter = ALL) -> list[int]:
    return sorted(ask(folder, question).frame["bytes"].to_list())


@pytest.mark.parametrize("addresses", [3, 90])
def test_rows_of_words_are_texts_to_who_reads_them(tmp_path: Path, addresses: int) -> None:
    plain = pl.concat([rows(*range(1, addresses + 1)), rows(*range(1, addresses + 1), dst="", exporter="spine")] * 20)
    given = [plain.head(addresses), plain[addresses : 2 * addresses], plain[2 * addresses :]]
    archive = an_archive(tmp_path)
    for of_words in ([True, True, False], [True, True, True], [False, False, False]):
        for part, is_coded in zip(given, of_words, strict=True):
            archive.take(part.with_columns(codes_of(part)) if is_coded else part)
        saved(archive)
    files = sorted((tmp_path / "0" / FRESH).iterdir())
    assert len(files) == 3
    for file in files:
        assert pl.read_parquet(file).equals(plain)
    assert pl.read_parquet(files).equals(pl.concat([plain] * 3))
    has_words = b"ARROW:schema" not in files[1].read_bytes()
    assert has_words == (addresses > 3), "not worth while for a few rows"
    spine = int(plain.filter(exporter="spine")["bytes"].sum())
    assert ask(tmp_path, replace(ALL, exporter=("spine",))).bytes == 3 * spine


def codes_of(frame: pl.DataFrame) -> Iterator[pl.Series]:
    """The texts of a frame as the bridge has them: codes of words, of which some are not used."""
    for text in frame.select(pl.col(pl.String)):
        words = pl.concat([pl.Series(["unused", ""]), text.unique()])
        places = {word: place for place, word in enumerate(words)}
        yield next(coded(np.array([places[word] for word in text]), words)).alias(text.name)


def test_what_the_checkpoint_does_not_name_is_read_again_and_stands_there_once(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    archive.take(rows(1, 2))
    notes = saved(archive)
    archive.take(rows(3))
    archive.seal(0)  # killed before the checkpoint
    archive.close()
    assert sizes(tmp_path) == [1, 2]
    archive = an_archive(tmp_path, notes)
    archive.take(rows(3))
    saved(archive)
    assert sizes(tmp_path) == [1, 2, 3]
    assert len([*tmp_path.rglob("*.parquet")]) == 2


def test_killed_after_the_checkpoint_readers_learn_of_it_at_the_next_start(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    archive.take(rows(1))
    notes = archive.seal(0)
    archive.close()  # killed after the checkpoint, before readers were told
    an_archive(tmp_path, notes)
    assert sizes(tmp_path) == [1]


def test_small_files_become_one_and_an_hour_that_is_over_is_sorted(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    for number in range(1, 21):
        archive.take(rows(number))
        saved(archive)
    settle(archive)
    manifest = read_manifest(tmp_path / "0")
    assert manifest is not None
    assert len(manifest.files) == 5
    archive.take(rows(100, hour=2))
    settle(archive)
    assert sizes(tmp_path) == [*range(1, 21), 100]
    assert [path.parent.name for path in tmp_path.rglob("*.parquet")].count(SORTED) == 1
    archive.close()


def test_after_a_clock_that_was_ahead_an_hour_is_not_over_before_its_time(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    archive.take(rows(1, hour=5))
    saved(archive, T0 + 5 * HOUR + 60)
    archive.take(rows(2))
    saved(archive, T0 + 60)
    assert archive._merging is None


@pytest.mark.parametrize("told", [False, True])
def test_killed_while_files_are_merged_every_row_is_there_once(tmp_path: Path, *, told: bool) -> None:
    archive = an_archive(tmp_path)
    number = 0
    while archive._merging is None:
        number += 1
        archive.take(rows(number))
        notes = saved(archive)
    archive._merging[1].result()
    after = archive.seal(0)
    archive.close()  # killed before or after the checkpoint that adopts the merged file
    archive = an_archive(tmp_path, after if told else notes)
    assert sizes(tmp_path) == [*range(1, number + 1)]
    named = {file["name"] for file in archive._manifest.notes()["files"]}
    assert {f"{path.parent.name}/{path.name}" for path in tmp_path.rglob("*.parquet")} == named


def test_the_oldest_hour_goes_first_by_age_and_by_size_and_the_answer_says_so(tmp_path: Path) -> None:
    archive = an_archive(tmp_path, keep=3 * HOUR)
    for hour in range(6):
        archive.take(rows(hour + 1, hour=hour))
    saved(archive, now=T0 + 6 * HOUR)
    assert sizes(tmp_path) == [4, 5, 6]
    assert archive.take_counts() == {"rows": 6, "deleted_hours": 3, "deleted_rows": 3}
    archive.configure(replace(ArchiveSettings(), size=archive.size - 1))
    saved(archive)
    assert sizes(tmp_path) == [5, 6]
    assert any("deleted to make room: 4 rows" in gap for gap in ask(tmp_path, ALL).gaps)
    assert not any("deleted" in gap for gap in ask(tmp_path, replace(ALL, start=T0 + 5 * HOUR)).gaps)


@contextmanager
def no_room() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_costs_rows_which_are_told_and_counted_and_later_ones_are_kept(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    archive.take(rows(1))
    notes = saved(archive)
    archive.take(rows(*range(2, 3000)))
    with no_room():
        archive.seal(0)
    assert archive.take_counts() == {"rows": 1, "lost_rows": 2998}
    archive.take(rows(3))
    notes = saved(archive)
    assert sizes(tmp_path) == [1, 3]
    assert any("not written, or lost since: 2,998 rows" in gap for gap in ask(tmp_path, ALL).gaps)
    assert len([*(tmp_path / "0" / FRESH).iterdir()]) == len(notes["files"]) == 2


@pytest.mark.parametrize("size", [None, 0, 100])
def test_a_file_that_is_gone_or_cut_off_is_told(tmp_path: Path, size: int | None) -> None:
    archive = an_archive(tmp_path)
    archive.take(rows(1, 2))
    saved(archive)
    archive.take(rows(3))
    notes = saved(archive)
    broken = tmp_path / "0" / notes["files"][0]["name"]
    broken.unlink() if size is None else os.truncate(broken, size)
    answer = ask(tmp_path, ALL)
    assert (answer.bytes, answer.all_bytes) == (3, 3)
    assert any("2 rows are missing" in gap for gap in answer.gaps)
    archive = an_archive(tmp_path, notes)
    assert archive.take_counts() == {"lost_rows": 2}
    assert sizes(tmp_path) == [3]
    assert any("lost since: 2 rows" in gap for gap in ask(tmp_path, ALL).gaps)


def test_a_backfill_that_is_run_again_writes_the_same_rows(tmp_path: Path) -> None:
    for _ in range(2):
        archive = Archive(tmp_path / "once-a", ArchiveSettings(), Log(quiet=True))
        archive.load(None, is_backfill=True)
        archive.take(rows(1, 2))
        saved(archive)
        archive.close()
    assert sizes(tmp_path) == [1, 2]


def test_questions(tmp_path: Path) -> None:
    for shard, numbers in (("a", (1, 2)), ("b", (4,))):
        archive = Archive(tmp_path / shard, ArchiveSettings(), Log(quiet=True))
        archive.load(None)
        archive.take(rows(*numbers))
        archive.take(rows(8, src_node="vault", src_group="vault", dst_port=4444, dst="2001:db8::5", in_interface="up"))
        archive.take(rows(16, counted=False, exporter="spine"))
        saved(archive)
    found = {
        Filter(T0, T0 + HOUR): 7 + 16,
        Filter(T0, T0 + 2): 1,
        Filter(T0, T0 + HOUR, address=("10.1.0.2",)): 2,
        Filter(T0, T0 + HOUR, address=("::ffff:10.1.0.2",)): 2,
        Filter(T0, T0 + HOUR, prefix=("10.1.0.0/29",)): 7,
        Filter(T0, T0 + HOUR, prefix=("2001:db8::/32",)): 16,
        Filter(T0, T0 + HOUR, prefix=("192.0.2.0/24",)): 0,
        Filter(T0, T0 + HOUR, node=("vault", "gpu-4")): 20,
        Filter(T0, T0 + HOUR, node=("gpu-4",), address=("203.0.113.5",)): 4,
        Filter(T0, T0 + HOUR, group=("vault",), dst=("203.0.113.0/24",)): 0,
        Filter(T0, T0 + HOUR, src=("vault", "10.1.0.1")): 17,
        Filter(T0, T0 + HOUR, dst=("2001:db8::/32", "gpu-1")): 16,
        Filter(T0, T0 + HOUR, dst=("2001:DB8:0:0::5%eth0",)): 16,
        Filter(T0, T0 + HOUR, port=(4444,)): 16,
        Filter(T0, T0 + HOUR, interface=("up",)): 16,
        Filter(T0, T0 + HOUR, exporter=("spine",)): 0,
        Filter(T0, T0 + HOUR, protocol=("udp",)): 0,
    }
    for question, expected in found.items():
        answer = ask(tmp_path, question)
        assert answer.bytes == answer.frame["bytes"].sum() == expected, question
    assert ask(tmp_path, replace(ALL, exporter=("spine",))).suppressed_bytes == 32
    by = ask(tmp_path, ALL, ["dst_port", "protocol"], most=1)
    assert by.frame.select("dst_port", "bytes", "flows").rows() == [(4444, 16, 2)]
    assert (by.bytes, by.all_bytes, by.flows, by.share) == (23, 23, 5, 1.0)
    with pytest.raises(UserError, match="--by colour"):
        ask(tmp_path, ALL, ["colour"])
    with pytest.raises(UserError, match="expected an address"):
        ask(tmp_path, replace(ALL, address=("nowhere",)))
    with pytest.raises(UserError, match="expected an address"):
        ask(tmp_path, replace(ALL, dst=("[2001:db8::5]:443",)))
    with pytest.raises(UserError, match="no flow archive"):
        ask(tmp_path / "elsewhere", ALL)


def test_of_what_several_exporters_saw_the_best_one_counts(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    archive.take(rows(10, rank=5, exporter="fine"))
    archive.take(rows(10, rank=7, exporter="coarse"))
    archive.take(rows(20, rank=7, exporter="coarse"))
    saved(archive)
    answer = ask(tmp_path, ALL, ["exporter"])
    assert dict(answer.frame.select("exporter", "bytes").rows()) == {"coarse": 20, "fine": 10}
    assert (answer.all_bytes, answer.suppressed_bytes) == (30, 10)
    # Whoever asks about one exporter is told what it counts, not what it saw.
    assert ask(tmp_path, replace(ALL, exporter=("coarse",))).bytes == 20


def several_saw(seed: int, count: int) -> pl.DataFrame:
    """Records of conversations that some of three exporters saw, in two hours; one of them by two sampling rates."""
    rng = np.random.default_rng(seed)
    end = T0 + rng.integers(0, 2 * HOUR, count)
    which = rng.integers(0, 4, count)
    ranks = [0, 5, 9, 5 + schema.EXPORTERS]
    return rows(*range(1, count + 1)).with_columns(
        src=pl.Series([f"10.1.0.{n}" for n in rng.integers(0, 40, count)]), end=pl.Series(end),
        start=pl.Series(end - rng.integers(0, 900, count)), rank=pl.Series(np.array(ranks)[which]),
        exporter=pl.Series(np.array(["told", "fine", "coarse", "fine"])[which]),
    )  # fmt: skip


def counted_by_hand(frame: pl.DataFrame, start: int, stop: int) -> int:
    """The rule, a row at a time."""
    total = 0
    found = frame.to_dicts()
    for row in found:
        mates = [
            one for one in found if one["rank"] > 0 and one["src"] == row["src"]
            and one["end"] // HOUR == row["end"] // HOUR
        ]  # fmt: skip
        best = min((one["rank"] for one in mates), default=0)
        spans = [one for one in mates if one["rank"] % schema.EXPORTERS == best % schema.EXPORTERS]
        yields = (
            row["rank"] % schema.EXPORTERS != best % schema.EXPORTERS
            and row["start"] >= min(one["start"] for one in spans) - 10
            and row["end"] <= max(one["end"] for one in spans) + 10
        )
        if start <= row["end"] < stop and not (row["rank"] and yields):
            total += row["bytes"]
    return total


def test_large_hours_are_added_up_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "_AT_ONCE", 70)
    archive = an_archive(tmp_path)
    frame = several_saw(4, 500)
    archive.take(frame)
    saved(archive)
    for start, stop in ((T0, T0 + 2 * HOUR), (T0 + 500, T0 + 4000), (T0 + 3 * HOUR, T0 + 4 * HOUR)):
        expected = counted_by_hand(frame, start, stop)
        answer = ask(tmp_path, Filter(start, stop))
        assert (answer.bytes, answer.all_bytes) == (expected, expected)


@pytest.mark.service
def test_a_tally_of_the_hour_that_is_not_over_changes_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "_AT_ONCE", 70)
    monkeypatch.setattr(writer, "_TALLIED", 20)
    monkeypatch.setattr(writer, "_LATE_SECONDS", 3 * HOUR)
    archive = an_archive(tmp_path)
    frame = several_saw(5, 160)
    frame = frame.with_columns(counted=pl.Series(frame["rank"] > 0) | (pl.col("bytes") % 3 > 0))
    periods = [(T0, T0 + HOUR), (T0 + 700, T0 + HOUR + 900), (T0 - HOUR, T0 + 3 * HOUR)]
    seen = frame.clear()

    def is_right() -> None:
        for start, stop in periods:
            expected = counted_by_hand(seen.filter(pl.col("counted")), start, stop)
            answer = ask(tmp_path, Filter(start, stop))
            assert (answer.bytes, answer.all_bytes) == (expected, expected)

    kept = []
    for number, part in enumerate(frame.iter_slices(10)):
        archive.take(part)
        seen = seen.vstack(part)
        # Now and then the thread is not done in time.
        notes = settle(archive) if number % 3 else saved(archive)
        kept.append({one["hour"]: one["rows"] for one in notes["tallies"]})
        if number in (5, 10):
            is_right()
    assert len({len(one) for one in kept}) > 1, "none, of both"
    assert any(file["ranked"] and not file["tallied"] for file in notes["files"]), "some are newer than the tally"
    archive.close()
    archive = an_archive(tmp_path, notes)
    assert saved(archive)["tallies"] == notes["tallies"]
    is_right()
    first, _ = [tmp_path / "0" / one["name"] for one in notes["tallies"]]
    os.truncate(first, 100)
    is_right()
    archive.close()
    archive = an_archive(tmp_path, notes)
    assert len(saved(archive)["tallies"]) == 1
    is_right()
    seen = seen.vstack(late := rows(1, hour=9))
    archive.take(late)
    assert settle(archive)["tallies"] == []
    is_right()
    assert not [*tmp_path.rglob(f"*{tally.SUFFIX}")]


def test_a_busy_hour_is_put_in_order_while_each_checkpoint_brings_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_TALLIED", 20)
    monkeypatch.setattr(writer, "_MANY", 120)
    monkeypatch.setattr(writer, "_MOST_ROWS", 60)
    monkeypatch.setattr(writer, "_MEANWHILE", 40)
    archive = an_archive(tmp_path)
    frame = several_saw(7, 500).with_columns(end=pl.col("end").clip(T0, T0 + HOUR - 1)).with_columns(start="end")
    made, waiting = [], []
    for part in frame.iter_slices(20):
        archive.take(part.with_columns(codes_of(part)))
        notes = saved(archive)
        if archive._merging is not None:
            archive._merging[1].result()
        made.append(sum(file["rows"] for file in notes["files"] if file["name"].startswith(SORTED)))
        waiting.append(sum(file["rows"] for file in notes["files"] if file["name"].startswith(FRESH)))
    assert made[-1] > 200
    assert max(waiting) < 320, "it keeps up"
    (known,) = notes["tallies"]
    assert known["rows"] == sum(file["ranked"] for file in notes["files"] if file["tallied"]) > 0
    answer = ask(tmp_path, Filter(T0, T0 + HOUR))
    assert answer.bytes == answer.all_bytes == counted_by_hand(frame, T0, T0 + HOUR)
    archive.take(rows(1, hour=9))
    files = [file for file in settle(archive)["files"] if file["hour"] == T0]
    assert all(file["decided"] and file["name"].startswith(SORTED) for file in files)
    assert ask(tmp_path, Filter(T0, T0 + HOUR)).bytes == counted_by_hand(frame, T0, T0 + HOUR)


def test_small_files_of_an_earlier_version_without_types_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(tmp_path)
    frame = several_saw(7, 400)
    with monkeypatch.context() as earlier:
        earlier.setattr(layout, "_FEW_WORDS", 1 << 40)
        archive.take(frame.head(200).with_columns(codes_of(frame.head(200))))
        saved(archive)
    archive.take(frame.tail(200).with_columns(codes_of(frame.tail(200))))
    saved(archive)
    kept = [b"ARROW_schema" in file.read_bytes() for file in sorted((tmp_path / "0" / FRESH).glob("*.parquet"))]
    assert kept[0] is False
    archive.take(rows(1, hour=9))
    assert all(file["name"].startswith(SORTED) for file in settle(archive)["files"] if file["hour"] < T0 + 5 * HOUR)
    assert ask(tmp_path, Filter(T0, T0 + 2 * HOUR)).bytes == counted_by_hand(frame, T0, T0 + 2 * HOUR)


def test_words_are_kept_of_small_files_for_the_sort_unless_they_are_most_of_it(tmp_path: Path) -> None:
    numbers = range(1, 20_000)
    many, few = rows(*numbers), rows(*numbers, src="10.1.0.1", src_node="gpu-1")
    for frame, is_kept in ((few, True), (many, False)):
        words = [pl.col(name).cast(pl.Enum(frame[name].unique())) for name in ("src", "dst", "exporter")]
        for is_final in (False, True):
            layout.write(frame.with_columns(words), tmp_path / "file", is_final=is_final)
            assert (b"ARROW_schema" in (tmp_path / "file").read_bytes()) == (is_kept and not is_final)
            back = layout.merged([tmp_path / "file"])
            assert (back.schema["src"] != pl.String) == (is_kept and not is_final)
            assert back.cast(pl.String).equals(frame.cast(pl.String))
            assert pl.read_parquet(tmp_path / "file").equals(frame)


def test_more_rows_than_can_be_compared_are_left_for_readers_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (manifest, writer):
        monkeypatch.setattr(module, "MOST_TOLD", 50)
    archive = an_archive(tmp_path)
    frame = several_saw(4, 300)
    archive.take(frame)
    archive.take(rows(1, hour=9))
    notes = settle(archive)
    files = notes["files"]
    assert [file["decided"] for file in files if file["ranked"]] == [0, 0]
    whole = manifest.Manifest.of(notes).whole_files(T0 + 9 * HOUR)
    assert len(whole) == 2, "they may go to a bucket"
    assert all(file["name"].startswith(SORTED) for file in files if file["ranked"])
    assert ask(tmp_path, Filter(T0, T0 + 2 * HOUR)).bytes == counted_by_hand(frame, T0, T0 + 2 * HOUR)


def test_who_counts_is_told_once_when_an_hour_is_over_and_again_for_what_comes_late(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    frame = several_saw(1, 300)
    periods = [(T0, T0 + HOUR), (T0 + 700, T0 + HOUR + 900), (T0 - HOUR, T0 + 3 * HOUR)]

    def is_right() -> None:
        for start, stop in periods:
            expected = counted_by_hand(frame, start, stop)
            answer = ask(tmp_path, Filter(start, stop))
            assert (answer.bytes, answer.all_bytes) == (expected, expected)
            inside = frame.filter(pl.col("end").is_between(start, stop, closed="left"))
            assert answer.suppressed_bytes == inside["bytes"].sum() - expected
            assert answer.heard == set(inside["exporter"])

    for part in frame.iter_slices(60):
        archive.take(part)
        saved(archive)
        archive._merging = None  # as if the thread were busy: the hour has several files
    frame = frame.vstack(several_saw(2, 40))
    archive.take(several_saw(2, 40))
    saved(archive)
    is_right()
    late = rows(1, hour=9)
    frame = frame.vstack(late)
    archive.take(late)
    notes = settle(archive)
    is_right()
    told = [file for file in notes["files"] if file["ranked"]]
    assert told
    assert all(file["decided"] == sum(one["ranked"] for one in told if one["hour"] == file["hour"]) for file in told)
    sorted_files = pl.read_parquet(tmp_path / "0" / SORTED, hive_partitioning=False)
    assert sorted_files.filter("counted")["bytes"].sum() == counted_by_hand(frame, T0, T0 + 2 * HOUR)
    names = {file["name"] for file in told}
    better = several_saw(3, 50).with_columns(rank=pl.lit(2, pl.Int64))
    frame = frame.vstack(better)
    archive.take(better)
    notes = settle(archive)
    is_right()
    assert names < {file["name"] for file in notes["files"]}, "late rows have hours written again and again"
    archive.close()
    an_archive(tmp_path, notes)
    is_right()


def test_a_disk_that_is_not_mounted_at_one_start_costs_what_comes_meanwhile_and_no_more(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    archive.take(rows(1, 2))
    saved(archive)
    archive.take(rows(3))
    notes = saved(archive)
    archive.close()
    (tmp_path / "0").rename(tmp_path / "away")
    archive = an_archive(tmp_path, notes)
    archive.take(rows(4))
    assert saved(archive) == notes
    assert archive.take_counts() == {"lost_rows": 1}
    archive.close()
    shutil.rmtree(tmp_path / "0")
    (tmp_path / "away").rename(tmp_path / "0")
    archive = an_archive(tmp_path, notes)
    archive.take(rows(5))
    saved(archive)
    assert sizes(tmp_path) == [1, 2, 3, 5]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_restore_of_the_checkpoint_costs_the_archive_nothing(tmp_path: Path, *, is_elsewhere: bool) -> None:
    config, state, folder = tmp_path / "cluster.yaml", tmp_path / "state", tmp_path / "archive"
    group = "a: {role: training, prefixes: [10.0.0.0/8]}"
    states = f"bridge: {{state: {state}}}\ndelivery: {{state: {tmp_path / 'delivery'}}}\n"
    config.write_text(f"cluster: lab\ngroups: {{{group}}}\n{states}")
    arguments = [str(tmp_path / "site.tar.gz"), "--config", str(config)]

    archive = an_archive(folder)
    archive.take(rows(1))
    checkpoint = Checkpoint(state / "bridge")
    checkpoint.save({}, {"archive": saved(archive), "samples": 0})
    checkpoint.close()
    assert CliRunner().invoke(backup, arguments).exception is None
    archive.take(rows(2))
    saved(archive)
    archive.close()
    if is_elsewhere:
        shutil.rmtree(folder)
    assert CliRunner().invoke(restore, [*arguments, "--force"]).exception is None
    checkpoint = Checkpoint(state / "bridge")
    loaded = checkpoint.load()
    checkpoint.close()
    assert loaded is not None
    archive = an_archive(folder, loaded[1].get("archive"))
    archive.take(rows(3))
    saved(archive)
    archive.close()
    assert sizes(folder) == ([3] if is_elsewhere else [1, 2, 3])


@pytest.mark.parametrize("where", ["checkpoint", "manifest"])
def test_another_versions_archive_is_left_alone(tmp_path: Path, where: str) -> None:
    archive = an_archive(tmp_path)
    archive.take(rows(1, 2))
    notes = saved(archive)
    archive.close()
    manifest = tmp_path / "0/manifest.json"
    if where == "manifest":
        manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 99'))
    else:
        notes["version"] = 99
    before = manifest.read_bytes()
    archive = an_archive(tmp_path, notes)
    archive.take(rows(3))
    assert saved(archive) == notes
    assert archive.take_counts() == {"lost_rows": 1}
    assert manifest.read_bytes() == before
    assert len([*tmp_path.rglob("*.parquet")]) == 1


def test_a_large_hour_is_in_order_over_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two exporters saw some conversations; each file has a part of the sources, and nothing is lost."""
    monkeypatch.setattr("archive.writer._MOST_ROWS", 100)
    monkeypatch.setattr("archive.writer._MOST_TOGETHER", 800)
    archive = an_archive(tmp_path)
    for begin in range(1, 401, 100):
        archive.take(rows(*range(begin, begin + 100), rank=1))
        saved(archive)
    archive.take(rows(*range(1, 401, 2), rank=2, exporter="spine"))
    archive.take(rows(1, hour=2))
    files = [file for file in settle(archive)["files"] if file["hour"] == T0]
    archive.close()
    assert [file["name"].split("/")[0] for file in files] == [SORTED] * 6
    assert [file["rows"] for file in files] == [100] * 6
    ends = [pl.read_parquet(tmp_path / "0" / file["name"])["src"] for file in files]
    # There is one destination.
    assert all(one.max() <= other.min() for one, other in pairwise(ends))
    assert sizes(tmp_path, replace(ALL, stop=T0 + HOUR)) == [*range(1, 401)]


def test_other_tools_read_it_as_the_docs_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries of docs/operations.md; those of pandas and of ClickHouse (chdb) where they are installed."""
    duckdb = pytest.importorskip("duckdb")
    archive = an_archive(tmp_path / "archive")
    archive.take(rows(7, dst_port=4444))
    archive.take(rows(7, exporter="spine", counted=False))
    archive.take(rows(7, dst="198.51.100.9"))
    archive.take(rows(1, hour=2))
    settle(archive)
    archive.close()
    monkeypatch.chdir(tmp_path)
    docs = (Path(__file__).parents[2] / "docs/operations.md").read_text().replace("10.20.0.7", "10.1.0.7")
    asked = {line.partition(".")[0]: line for line in docs.splitlines() if "archive/" in line and "sorted" in line}
    assert sorted(duckdb.sql(asked["duckdb"].split('"')[1]).fetchall(), reverse=True) == [
        ("203.0.113.5", 7),
        ("198.51.100.9", 7),
    ]
    assert eval(asked["polars"], {"polars": pl, "pl": pl}).rows(named=True)[0]["bytes"] == 7  # noqa: S307 - our docs
    if find_spec("pandas"):
        assert len(eval(asked["pandas"], {"pandas": import_module("pandas")})) == 2  # noqa: S307
    if find_spec("chdb"):
        (sql,) = (line.partition(" -- ")[0] for line in docs.splitlines() if "file('archive/" in line)
        assert '"203.0.113.5",7' in str(import_module("chdb").query(sql, "CSV"))
