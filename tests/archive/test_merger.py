"""The process that merges harms nobody when it ends, and ends with whom it works for."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.log import Log
from archive import merger as of_merger
from archive import writer
from archive.manifest import FRESH, HOUR, SORTED, File, Tally
from archive.merger import Merger
from archive.merging import Job, merged, written
from archive.query import Filter, ask
from archive.writer import Archive
from cluster.model import ArchiveSettings
from tests.archive.test_archive import ALL, T0, rows, saved
from tests.waiting import is_alive, wait_for


@pytest.fixture
def merger() -> Iterator[Merger]:
    made = Merger()
    yield made
    made.close()


def two_files(folder: Path) -> tuple[File, ...]:
    (folder / FRESH).mkdir()
    return tuple(written(rows(n), folder, f"{FRESH}/{n}.parquet", T0, 0, is_final=False) for n in (1, 2))


def never_done(folder: Path) -> Job:
    """A job that waits for a file for good."""
    os.mkfifo(folder / "pipe")
    return Job((((File("pipe", T0, 1, 1, T0, T0, 1, 0, 0),), ("made",)),))


def process_of(merger: Merger) -> int:
    wait_for(lambda: merger._process)
    process = merger._process
    assert process is not None
    return process.pid


def test_a_job_is_done_beside(tmp_path: Path, merger: Merger) -> None:
    made = merger.submit(tmp_path, Job(((two_files(tmp_path), ("both.parquet",)),), level=1)).result()
    assert isinstance(made, list)
    assert [(file.name, file.rows, file.counted_bytes, file.level) for file in made] == [("both.parquet", 2, 3, 1)]
    assert process_of(merger) != os.getpid()


def test_what_cannot_be_merged_is_told_and_the_next_job_is_done(tmp_path: Path, merger: Merger) -> None:
    files = two_files(tmp_path)
    (tmp_path / files[1].name).write_bytes(b"PAR1 and no more")
    with pytest.raises(OSError, match="parquet"):
        merger.submit(tmp_path, Job(((files, ("both.parquet",)),))).result()
    process = process_of(merger)
    assert merger.submit(tmp_path, Job(((files[:1], ("one.parquet",)),))).result()
    assert process_of(merger) == process


def test_one_that_is_killed_is_started_again(tmp_path: Path, merger: Merger) -> None:
    job = Job(((two_files(tmp_path), ("both.parquet",)),))
    assert merger.submit(tmp_path, job).result()
    process = process_of(merger)
    os.kill(process, signal.SIGKILL)
    wait_for(lambda: not is_alive(process))
    with pytest.raises(OSError, match="the process that merges ended with -9"):
        merger.submit(tmp_path, job).result()
    assert merger.submit(tmp_path, job).result()
    assert process_of(merger) != process


def test_who_stops_waits_for_no_job(tmp_path: Path) -> None:
    merger = Merger()
    waiting: list[Future[Any]] = [merger.submit(tmp_path, never_done(tmp_path))]
    waiting += [merger.submit(tmp_path, Job(()))]
    process = process_of(merger)
    merger.close()
    assert not is_alive(process)
    assert isinstance(waiting[0].exception(), OSError)
    assert waiting[1].cancelled()


def test_it_does_not_end_with_the_signals_that_stop_a_service_but_with_who_started_it(tmp_path: Path) -> None:
    never_done(tmp_path)
    code = (
        "import sys, time; from pathlib import Path; from archive.manifest import File; "
        "from archive.merger import Merger; from archive.merging import Job; merger = Merger(); "
        f"merger.submit(Path(sys.argv[1]), Job((((File('pipe', {T0}, 1, 1, {T0}, {T0}, 1, 0, 0),), ('made',)),)))\n"
        "while merger._process is None: time.sleep(0.01)\n"
        "print(merger._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        # It reads the pipe: what it does with signals is settled.
        wait_for(lambda: opened(tmp_path / "pipe"))
        os.kill(process, signal.SIGTERM)
        os.kill(process, signal.SIGINT)
        time.sleep(0.2)
        assert is_alive(process)
        parent.kill()
    wait_for(lambda: not is_alive(process))


def opened(pipe: Path) -> bool:
    """Whether somebody reads it."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_an_idle_one_goes(tmp_path: Path, merger: Merger, monkeypatch: pytest.MonkeyPatch) -> None:
    assert merger.submit(tmp_path, Job(((two_files(tmp_path), ("both.parquet",)),))).result()
    process = process_of(merger)
    merger.rest()
    time.sleep(0.2)
    assert is_alive(process)
    monkeypatch.setattr(of_merger, "_IDLE_SECONDS", 0.0)
    merger.rest()
    wait_for(lambda: not is_alive(process))


def test_an_archive_is_whole_though_its_merges_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_MERGED", 2)
    monkeypatch.setattr(writer, "_AGAIN_SECONDS", 0)
    archive = Archive(tmp_path / "0", ArchiveSettings(), Log(quiet=True))
    archive.load(None)
    for number in range(1, 9):
        archive.take(rows(number))
        saved(archive)
        if number < 8 and archive._merger._process is not None:
            archive._merger._process.kill()
    archive.tidy(T0)
    archive.close()
    found = ask(tmp_path, ALL, ("src",), most=20)
    assert (found.bytes, found.all_bytes) == (36, 36)
    assert len([*(tmp_path / "0" / FRESH).iterdir()]) < 8


def test_a_file_that_cannot_be_read_keeps_no_other_hour_from_being_merged(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "0", ArchiveSettings(), Log(quiet=True))
    archive.load(None)
    for hour in range(3):
        archive.take(rows(1 + hour, hour=hour))
        saved(archive)
    (first, *_) = sorted((tmp_path / "0" / FRESH).iterdir())
    first.write_bytes(first.read_bytes()[:-8] + bytes(8))
    # It ends, though one hour is left as it is.
    archive.tidy(T0 + 10 * HOUR)
    archive.close()
    assert [*(tmp_path / "0" / FRESH).iterdir()] == [first]
    assert len([*(tmp_path / "0" / SORTED).iterdir()]) == 2


@pytest.mark.parametrize("is_stopping", [True, False])
def test_nobody_waits_for_a_child_that_stands_still(tmp_path: Path, merger: Merger, *, is_stopping: bool) -> None:
    """A worker that gives a partition up, and a disk that needs room."""
    archive = Archive(tmp_path / "0", ArchiveSettings(), Log(quiet=True), merger=merger)
    archive.load(None)
    archive.take(rows(1))
    archive.take(rows(2, hour=3))
    saved(archive)
    assert archive.is_merging
    process = process_of(merger)
    os.kill(process, signal.SIGSTOP)
    if is_stopping:
        archive.close()
    else:
        archive.configure(ArchiveSettings(size=1))
        saved(archive)
        assert ask(tmp_path, Filter(0, T0 + 9 * HOUR)).bytes == 2
    wait_for(lambda: not is_alive(process))


def test_what_is_no_answer_of_ours_is_trouble_of_the_merge_alone(
    tmp_path: Path, merger: Merger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a child that runs other code: it was installed anew meanwhile."""
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho INFO x\nexec cat >/dev/null\n")
    other.chmod(0o755)
    job = Job(((two_files(tmp_path), ("both.parquet",)),))
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(sys, "executable", str(other))
        with pytest.raises(OSError, match="the process that merges ended with -9"):
            merger.submit(tmp_path, job).result()
    assert merger.submit(tmp_path, job).result()


def test_after_the_end_nothing_is_begun(tmp_path: Path) -> None:
    merger = Merger()
    merger.close()
    with pytest.raises(OSError, match="has been stopped"):
        merger.submit(tmp_path, Job(())).result()


def test_a_tally_of_other_numbers_is_not_added_to(tmp_path: Path) -> None:
    files = two_files(tmp_path)
    made = merged(tmp_path, Job((((files[:1]), ("one.tally",)),), is_tally=True))
    assert isinstance(made, Tally)
    with pytest.raises(OSError, match="another version of polars"):
        merged(tmp_path, Job(((files[1:], ("two.tally",)),), is_tally=True, known=replace(made, probe=made.probe + 1)))
