"""The archive of a Kafka partition: what its last transaction says is in it, on whichever disks, and nothing else."""

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
from test_archive import ALL, T0, rows, sizes

from app.log import Log
from archive import writer
from archive.manifest import MANIFEST, pending_lists, write_manifest
from archive.partition import Claim, Marks, PartitionArchive, tidy_idle
from archive.query import ask
from cluster.model import ArchiveSettings

SETTINGS = ArchiveSettings(keep=10**9)
QUIET = Log(quiet=True)


def opened(root: Path, marks: Marks | None = None, shard: str = "k3", partitions: int = 0) -> PartitionArchive:
    return PartitionArchive(Claim.of_shard(root, shard), SETTINGS, QUIET, marks=marks or {}, partitions=partitions)


def committed(archive: PartitionArchive, *numbers: int) -> Marks:
    archive.take(rows(*numbers))
    marks = archive.seal(T0)
    archive.commit()
    return {**marks}


def killed_in_between(archive: PartitionArchive, *numbers: int) -> Marks:
    """It has sealed; whether its transaction was committed, whoever asks decides."""
    archive.take(rows(*numbers))
    marks = {place: [*mark] for place, mark in archive.seal(T0).items()}
    archive.close()
    return marks


@pytest.mark.parametrize("fate", ["committed", "refused"])
def test_killed_between_transaction_and_list_the_marks_decide(fate: str, tmp_path: Path) -> None:
    archive = opened(tmp_path)
    before = committed(archive, 1, 2)
    after = killed_in_between(archive, 3, 4)
    again = opened(tmp_path, after if fate == "committed" else before)
    assert sizes(tmp_path) == ([1, 2, 3, 4] if fate == "committed" else [1, 2])
    if fate == "refused":
        committed(again, 3, 4)
    committed(again, 5)
    again.close()
    assert sizes(tmp_path) == [1, 2, 3, 4, 5]
    assert not ask(tmp_path, ALL).gaps


@pytest.mark.parametrize("holds", [0, 1, 2, 3])
@pytest.mark.parametrize("is_listed", [True, False])
def test_of_several_transactions_without_an_answer_the_marks_tell_the_last_that_holds(
    tmp_path: Path, holds: int, *, is_listed: bool
) -> None:
    """Each is in the log or not; where it is, nobody reads its rows again."""
    archive = opened(tmp_path)
    told = [{place: [*mark] for place, mark in committed(archive, 1).items()}]
    for number in (2, 3, 4):
        archive.take(rows(number))
        told.append({place: [*mark] for place, mark in archive.seal(T0).items()})
    archive.close()
    if not is_listed:
        # The disk had no room for it.
        (tmp_path / "k3" / f"manifest.pending-{told[3][archive._id][0]}.json").unlink()
    again = opened(tmp_path, told[holds])
    missing = holds == 3 and not is_listed
    assert sizes(tmp_path) == [1, 2, 3, 4][: holds + 1 - missing]
    assert len(ask(tmp_path, ALL).gaps) == missing
    assert not pending_lists(tmp_path / "k3")
    committed(again, 5)
    again.close()
    assert sizes(tmp_path) == [*[1, 2, 3, 4][: holds + 1 - missing], 5]


def test_a_commit_after_some_without_an_answer_leaves_one_list(tmp_path: Path) -> None:
    archive = opened(tmp_path)
    for number in (1, 2):
        archive.take(rows(number))
        archive.seal(T0)
    marks = committed(archive, 3)
    archive.close()
    assert not pending_lists(tmp_path / "k3")
    opened(tmp_path, marks).close()
    assert sizes(tmp_path) == [1, 2, 3]


def test_a_list_that_an_earlier_version_left_is_taken(tmp_path: Path) -> None:
    archive = opened(tmp_path)
    committed(archive, 1)
    marks = killed_in_between(archive, 2)
    (pending,) = pending_lists(tmp_path / "k3")
    pending.rename(pending.with_name("manifest.pending.json"))
    opened(tmp_path, marks).close()
    assert sizes(tmp_path) == [1, 2]
    assert not pending_lists(tmp_path / "k3")


def test_a_list_that_was_forgotten_takes_no_newer_ones_place(tmp_path: Path) -> None:
    """An earlier version does not know that there are several, and leaves them."""
    archive = opened(tmp_path)
    archive.take(rows(1))
    archive.seal(T0)
    (pending,) = pending_lists(tmp_path / "k3")
    old = pending.read_bytes()
    marks = committed(archive, 2)
    archive.close()
    pending.write_bytes(old)
    opened(tmp_path, marks).close()
    assert sizes(tmp_path) == [1, 2]
    assert not pending_lists(tmp_path / "k3")


def test_a_partition_that_moves_among_three_disks_is_asked_together(tmp_path: Path) -> None:
    marks: Marks = {}
    for turn, host in enumerate(["a", "b", "a", "c", "b"]):
        archive = opened(tmp_path / host, marks)
        marks = committed(archive, 10 * turn, 10 * turn + 1)
        archive.close()
    assert len(marks) == 3
    assert sizes(tmp_path) == [n + m for n in range(0, 50, 10) for m in (0, 1)]


def test_what_two_exporters_saw_counts_once_though_the_partition_moved_in_between(tmp_path: Path) -> None:
    seen = {"src_port": 1, "start": T0, "end": T0 + 50}
    for host, rank in (("a", 1), ("b", 2)):
        archive = opened(tmp_path / host)
        archive.take(rows(7, exporter=f"leaf-{host}", rank=rank, counted=True, **seen))
        archive.seal(T0)
        archive.commit()
        archive.close()
    found = ask(tmp_path, ALL)
    assert (found.bytes, found.suppressed_bytes) == (7, 7)


def test_a_second_process_on_the_machine_has_a_folder_of_its_own(tmp_path: Path) -> None:
    thrown_out, successor = opened(tmp_path), opened(tmp_path)
    committed(successor, 1)
    # It does not know yet; its transaction is refused.
    thrown_out.take(rows(1))
    thrown_out.seal(T0)
    thrown_out.close()
    committed(successor, 2)
    successor.close()
    assert sizes(tmp_path) == [1, 2]
    assert {path.name for path in tmp_path.iterdir()} == {"k3", "k3.1"}


def test_a_list_that_could_not_be_written_before_a_crash_is_told_with_its_rows(tmp_path: Path) -> None:
    archive = opened(tmp_path)
    committed(archive, 1)
    marks = killed_in_between(archive, 2, 3, 4)
    (pending,) = pending_lists(tmp_path / "k3")
    pending.unlink()
    opened(tmp_path, marks).close()
    assert sizes(tmp_path) == [1]
    assert ask(tmp_path, ALL).gaps == (
        "not written, or lost since: 3 rows (the list of the last files was not written)",
    )


@pytest.mark.parametrize("when", ["commit", "open", "both"])
def test_a_list_that_the_disk_has_no_room_for_costs_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Killed right after it: the list beside the old one is there, and a rename needs no room."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    archive = opened(tmp_path)
    committed(archive, 1, 2)
    archive.take(rows(3, 4))
    marks = {**archive.seal(T0)}
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(writer, "write_manifest", full)
        if when != "open":
            archive.commit()
        archive.close()
        if when != "commit":
            opened(tmp_path, marks).close()
    again = opened(tmp_path, marks)
    assert again.take_counts() == {}
    assert sizes(tmp_path) == [1, 2, 3, 4]
    again.close()


def test_a_list_that_was_not_put_in_its_place_is_not_lost_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = opened(tmp_path)
    committed(archive, 1, 2)
    archive.take(rows(3, 4))
    marks = {place: [*mark] for place, mark in archive.seal(T0).items()}
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(writer, "write_manifest", Mock(side_effect=PermissionError))
        meanwhile.setattr(Path, "replace", Mock(side_effect=PermissionError))
        archive.commit()
    # Killed before the transaction that this one is for.
    killed_in_between(archive, 5)
    again = opened(tmp_path, marks)
    assert sizes(tmp_path) == [1, 2, 3, 4]
    again.close()


def test_an_idle_folder_is_settled_sorted_and_kept_to_its_limits(tmp_path: Path) -> None:
    archive = opened(tmp_path)
    committed(archive, 1)
    marks = killed_in_between(archive, 2)
    busy = opened(tmp_path, shard="k4")
    asked: list[int] = []

    def told(partition: int) -> Marks | None:
        asked.append(partition)
        return marks if len(asked) > 1 else None

    (pending,) = pending_lists(tmp_path / "k3")
    tidy_idle(tmp_path, SETTINGS, QUIET, told, T0 + 9000)
    assert pending.exists(), "brokers were away: nothing is decided"
    os.utime(pending, (T0 + 100, T0 + 100))
    assert "start a worker there" in " ".join(ask(tmp_path, ALL).gaps)
    tidy_idle(tmp_path, SETTINGS, QUIET, told, T0 + 9000)
    assert not pending.exists()
    assert sizes(tmp_path) == [1, 2]
    assert [*(tmp_path / "k3").glob("sorted/*.parquet")]
    assert not [*(tmp_path / "k3").glob("fresh/*.parquet")]
    tidy_idle(tmp_path, replace(SETTINGS, keep=3600), QUIET, told, T0 + 10 * 3600)
    assert sizes(tmp_path) == []
    assert asked == [3, 3], "only where there are two lists, and nobody holds the folder"
    busy.close()


def test_an_idle_folder_that_cannot_be_tidied_leaves_the_others_their_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shard in ("k3", "k4"):
        archive = opened(tmp_path, shard=shard)
        committed(archive, 1)
        archive.close()
    tidy = PartitionArchive.tidy

    def fails(self: PartitionArchive, now: float) -> None:
        if self._folder.name == "k3":
            raise pl.exceptions.ComputeError("broken file")
        tidy(self, now)

    monkeypatch.setattr(PartitionArchive, "tidy", fails)
    tidy_idle(tmp_path, SETTINGS, QUIET, lambda _: None, T0 + 9000)
    assert not [*tmp_path.glob("k3/sorted/*.parquet")]
    assert [*tmp_path.glob("k4/sorted/*.parquet")]
    Claim.of(tmp_path / "k3").close()


def test_partitions_that_have_nothing_are_told(tmp_path: Path) -> None:
    for number in (0, 2):
        archive = opened(tmp_path, shard=f"k{number}", partitions=4)
        committed(archive, 1)
        archive.close()
    assert ask(tmp_path, ALL).gaps == ("nothing of Kafka partitions 1, 3: are the folders of all workers here?",)


@pytest.mark.parametrize("broken", ["{", "[]", ""])
def test_a_pending_list_that_is_cut_off_is_none(broken: str, tmp_path: Path) -> None:
    archive = opened(tmp_path)
    before = committed(archive, 1)
    killed_in_between(archive, 2)
    (pending,) = pending_lists(tmp_path / "k3")
    pending.write_text(broken)
    opened(tmp_path, before).close()
    assert sizes(tmp_path) == [1]


def test_a_broken_list_for_readers_changes_nothing(tmp_path: Path) -> None:
    archive = opened(tmp_path)
    marks = committed(archive, 1)
    archive.close()
    (tmp_path / "k3" / MANIFEST).write_text("{")
    again = opened(tmp_path, marks)
    assert again.seal(time.time()) == marks
    again.close()
    assert [*(tmp_path / "k3").glob("fresh/*.parquet")]


def test_lists_of_before_rows_were_counted_are_read(tmp_path: Path) -> None:
    archive = opened(tmp_path)
    committed(archive, 1)
    archive.close()
    notes = archive._archive._manifest.notes()
    del notes["taken"], notes["partitions"]
    write_manifest(tmp_path / "k3", notes)
    assert sizes(tmp_path) == [1]
