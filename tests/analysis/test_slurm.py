"""Slurm: documents in the shapes of 21.08 to 24.x, and the commands that print them.

The documents are written by hand after the writers of each release (src/plugins/openapi/dbv0.0.37 and v0.0.37,
data_parser/v0.0.39 to v0.0.41), with the keys that count here and some that do not.
"""

import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.jobs.job_source import AskedSource, AskError
from analysis.jobs.register import Register
from analysis.jobs.sources.slurm import PATIENCE, SlurmCommands, SlurmFiles, as_word, number, records_of
from cluster.model import ClassFrom, Job, Outcome, SlurmJobs

T0 = 1_772_352_000
NO_VAL = 4_294_967_294
SETTINGS = SlurmJobs("slurm")


def some_number(value: int | None) -> dict[str, Any]:
    """What UINT32_NO_VAL is from 23.02 on."""
    return {"set": value is not None, "infinite": False, "number": value or 0}


def sacct_2108(job_id: int, state: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    """21.08: plain numbers, and `eligible` where the start should be."""
    return {
        "account": "research",
        "comment": {"administrator": None, "job": "llama-70b", "system": None},
        "allocation_nodes": 2,
        "array": {"job_id": 0, "limits": {"max": {"running": {"tasks": 0}}}, "task": None, "task_id": NO_VAL},
        "het": {"job_id": 0, "job_offset": NO_VAL},
        "job_id": job_id,
        "name": "train",
        "nodes": "gpu-[01-02]",
        "partition": "gpu",
        "state": {"current": state, "reason": "None"},
        "steps": [],
        "time": {
            "elapsed": max(end or T0 + 5000, start) - start,
            "eligible": start - 900,
            "end": end,
            "start": start - 900,
            "suspended": 0,
        },
        "wckey": {"wckey": "w1", "flags": []},
        **more,
    }


def sacct_2405(job_id: int, states: list[str], start: int, end: int, **more: Any) -> dict[str, Any]:
    """23.11 and later: states are a list, what may be missing is an object."""
    base = sacct_2108(job_id, "", start, end)
    return base | {
        "array": {"job_id": 0, "limits": {"max": {"running": {"tasks": 0}}}, "task_id": some_number(None), "task": ""},
        "het": {"job_id": 0, "job_offset": some_number(None)},
        "state": {"current": states, "reason": "None"},
        "time": base["time"] | {"start": start, "limit": some_number(1440), "planned": some_number(900)},
        **more,
    }


def squeue_2108(job_id: int, state: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {
        "array_job_id": 0,
        "array_task_id": None,
        "comment": "llama-70b",
        "end_time": end,
        "het_job_id": 0,
        "het_job_offset": 0,
        "job_id": job_id,
        "job_resources": {"nodes": "gpu-[01-02]", "allocated_hosts": 2},
        "job_state": state,
        "name": "train",
        "nodes": "gpu-[01-02]",
        "partition": "gpu",
        "start_time": start,
        **more,
    }


def squeue_2405(job_id: int, states: list[str], start: int, end: int, **more: Any) -> dict[str, Any]:
    return squeue_2108(job_id, "", start, end) | {
        "array_job_id": some_number(0),
        "array_task_id": some_number(None),
        "end_time": some_number(end),
        "het_job_id": some_number(0),
        "het_job_offset": some_number(None),
        "job_state": states,
        "start_time": some_number(start),
        **more,
    }


def meta(major: int | str) -> dict[str, Any]:
    key = "Slurm" if major == 21 else "slurm"
    return {"plugin": {"type": "openapi/dbv0.0.37"}, key: {"version": {"major": major, "micro": 8, "minor": 8}}}


def document(*jobs: dict[str, Any], major: int | str = "24") -> dict[str, Any]:
    return {"meta": meta(major), "errors": [], "warnings": [], "jobs": list(jobs)}


def found(*jobs: dict[str, Any], settings: SlurmJobs = SETTINGS, major: int | str = "24") -> list[Job]:
    return [record.job for record in records_of(document(*jobs, major=major), settings, T0 + 5000)]


def times(job: Job) -> tuple[float, float | None]:
    return job.start.timestamp() - T0, None if job.end is None else job.end.timestamp() - T0


@pytest.mark.parametrize(
    ("job", "major"),
    [
        (sacct_2108(4711, "COMPLETED", T0, T0 + 600), 21),
        (sacct_2108(4711, "COMPLETED", T0 + 900, T0 + 600) | {"time": {"start": T0, "end": T0 + 600}}, 22),
        (sacct_2405(4711, ["COMPLETED"], T0, T0 + 600), "24"),
        (squeue_2108(4711, "COMPLETED", T0, T0 + 600), 21),
        (squeue_2405(4711, ["COMPLETED"], T0, T0 + 600), "24"),
        (squeue_2405(4711, ["COMPLETING", "COMPLETED"], T0, T0 + 600), "24"),
    ],
    ids=["sacct 21.08", "sacct 22.05", "sacct 24.05", "squeue 21.08", "squeue 24.05", "completing"],
)
def test_a_finished_job_of_every_release(job: dict[str, Any], major: int | str) -> None:
    (one,) = found(job, major=major)
    assert (one.id, one.job_class, one.nodes) == ("4711", "train", ("gpu-01", "gpu-02"))
    assert (times(one), one.outcome) == ((0, 600), Outcome.COMPLETED)


@pytest.mark.parametrize(
    "job",
    [
        sacct_2405(4711, ["RUNNING"], T0, 0),
        squeue_2108(4711, "RUNNING", T0, T0 + 86_400),
        squeue_2405(4711, ["RUNNING"], T0, T0 + 86_400),
        squeue_2405(4711, ["SUSPENDED"], T0, T0 + 86_400),
        squeue_2405(4711, ["RUNNING", "CONFIGURING"], T0, T0 + 86_400),
        squeue_2108(4711, "COMPLETING", T0, T0 + 4000),
    ],
)
def test_a_job_that_runs_has_no_end_whatever_is_expected(job: dict[str, Any]) -> None:
    (one,) = found(job)
    assert (times(one), one.outcome) == ((0, None), Outcome.UNKNOWN)


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        (["COMPLETED"], Outcome.COMPLETED),
        (["FAILED"], Outcome.FAILED),
        (["NODE_FAIL"], Outcome.FAILED),
        (["OUT_OF_MEMORY"], Outcome.FAILED),
        (["BOOT_FAIL"], Outcome.FAILED),
        (["TIMEOUT"], Outcome.FAILED),
        (["DEADLINE"], Outcome.FAILED),
        (["CANCELLED"], Outcome.CANCELLED),
        (["PREEMPTED"], Outcome.CANCELLED),
        (["PENDING", "REQUEUED"], Outcome.CANCELLED),
        (["FAILED", "REQUEUED"], Outcome.FAILED),
    ],
)
def test_how_jobs_end(states: list[str], outcome: Outcome) -> None:
    (one,) = found(sacct_2405(1, states, T0, T0 + 60))
    assert one.outcome is outcome
    (old,) = found(sacct_2108(1, states[-1], T0, T0 + 60), major=21)
    assert old.outcome in {outcome, Outcome.CANCELLED}


def test_where_runs_are_chained_a_time_limit_may_be_taken_for_success() -> None:
    settings = replace(SETTINGS, time_limit_is=Outcome.COMPLETED)
    assert found(sacct_2405(1, ["TIMEOUT"], T0, T0 + 60), settings=settings)[0].outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    "job",
    [
        squeue_2405(1, ["PENDING"], T0 + 900, T0 + 9000),
        squeue_2405(1, ["PENDING", "REQUEUED"], T0, T0 + 600),
        sacct_2405(1, ["PENDING"], 0, 0),
        sacct_2405(1, ["CANCELLED"], 0, T0 + 60, nodes="None assigned"),
        sacct_2405(1, ["CANCELLED"], T0, T0),
        sacct_2405(1, ["COMPLETED"], T0, T0 + 60, nodes="gpu-[01"),
        {"job_id": None, "state": None, "time": 3},
        {},
    ],
)
def test_what_has_not_begun_is_no_job_window(job: dict[str, Any]) -> None:
    assert found(job) == []


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (sacct_2405(12, ["RUNNING"], T0, 0, array={"job_id": 10, "task_id": some_number(2)}), "10_2"),
        (sacct_2405(12, ["RUNNING"], T0, 0, het={"job_id": 12, "job_offset": some_number(1)}), "12:1"),
        (squeue_2108(12, "RUNNING", T0, 0, array_job_id=10, array_task_id=2), "10_2"),
        (squeue_2405(12, ["RUNNING"], T0, 0, array_job_id=some_number(10), array_task_id=some_number(0)), "10_0"),
    ],
)
def test_ids_are_as_slurm_shows_them(job: dict[str, Any], expected: str) -> None:
    assert found(job)[0].id == expected


@pytest.mark.parametrize(
    ("class_from", "expected"),
    [
        (ClassFrom.NAME, "train"),
        (ClassFrom.ACCOUNT, "research"),
        (ClassFrom.PARTITION, "gpu"),
        (ClassFrom.COMMENT, "llama-70b"),
        (ClassFrom.WCKEY, "w1"),
    ],
)
def test_what_a_class_is_taken_from(class_from: ClassFrom, expected: str) -> None:
    settings = replace(SETTINGS, class_from=class_from)
    assert found(sacct_2405(1, ["RUNNING"], T0, 0), settings=settings)[0].job_class == expected


def test_a_name_without_a_latin_letter_is_a_class_all_the_same() -> None:
    """Or no run of it would ever have an earlier one, and no node of it be judged."""
    names = ("训练", "训练", "\ud800")
    first, again, other = (found(sacct_2405(1, ["RUNNING"], T0, 0, name=name))[0].job_class for name in names)
    assert first == again != other


@pytest.mark.parametrize(
    "names", [("训练-llama", "测试-llama"), ("größe", "grüße"), ("a" * 63 + "-7b", "a" * 63 + "-70b")]
)
def test_names_that_differ_in_what_a_class_cannot_hold_are_two_classes(names: tuple[str, str]) -> None:
    one, other = (found(sacct_2405(1, ["RUNNING"], T0, 0, name=name))[0].job_class for name in names)
    assert one != other
    assert max(len(one), len(other)) <= 63


def test_runs_on_the_same_nodes_share_one_list() -> None:
    """A week of 50,000 runs took a third of a gigabyte."""
    one, other = found(*(sacct_2405(number, ["RUNNING"], T0, 0) for number in (1, 2)))
    assert one.nodes is other.nodes


def test_partitions() -> None:
    jobs = sacct_2405(1, ["RUNNING"], T0, 0), sacct_2405(2, ["RUNNING"], T0, 0, partition="cpu")
    assert [job.id for job in found(*jobs, settings=replace(SETTINGS, partitions=("gpu",)))] == ["1"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(5, 5), (0, 0), ("24", 24), (NO_VAL, None), (2**64 - 2, None), (None, None), (True, None), (-1, None),
     (some_number(7), 7), (some_number(None), None), ({"set": True, "infinite": True, "number": 0}, None)],
)  # fmt: skip
def test_numbers_of_every_release(value: object, expected: int | None) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [("train llama (70b)", "train_llama_70b_"), ("..x", "x"), ("", ""), ("ü", ""), ("a" * 80, "a" * 63)],
)
def test_free_text_as_a_word(text: str, word: str) -> None:
    assert as_word(text) == word


# -- commands ----------------------------------------------------------------------------------------


class Slurm:
    """Commands on the PATH that print what a test says, and note how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("sacct", "squeue"):
            script = folder / name
            script.write_text(
                "#!/bin/sh\n"
                f'echo "$@" >> {folder}/{name}.calls\n'
                f"[ -e {folder}/{name}.slow ] && exec sleep 60\n"
                f"[ -e {folder}/{name}.fails ] && {{ cat {folder}/{name}.fails >&2; exit 1; }}\n"
                f"cat {folder}/{name}.json\n"
            )
            script.chmod(script.stat().st_mode | stat.S_IXUSR)
            self.prints(name)

    def prints(self, name: str, *jobs: dict[str, Any]) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps(document(*jobs)))

    def fails(self, name: str, why: str) -> None:
        (self.folder / f"{name}.fails").write_text(why)

    def works(self, name: str) -> None:
        (self.folder / f"{name}.fails").unlink(missing_ok=True)

    def calls(self, name: str) -> list[str]:
        path = self.folder / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return Slurm(tmp_path)


@pytest.fixture
def register(tmp_path: Path) -> Iterator[Register]:
    with Register.open(tmp_path / "state") as one:
        yield one


def source(register: Register, **settings: Any) -> AskedSource:
    given = replace(SETTINGS, **settings)
    asked = SlurmFiles(given) if given.files else SlurmCommands(given)
    return AskedSource("slurm", asked, register, given.every)


def known(register: Register) -> list[tuple[str, float, float | None, str]]:
    jobs = sorted((one.job for one in register.jobs("slurm").values()), key=lambda job: (job.start, job.id))
    return [(job.id, *times(job), job.outcome.value) for job in jobs]


def test_a_run_from_the_queue_to_the_accounts(slurm: Slurm, register: Register) -> None:
    one = source(register)
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    assert one.refresh(T0 + 60) == ""
    assert known(register) == [("7", 0, None, "unknown")]
    slurm.prints("squeue")
    slurm.prints("sacct", sacct_2405(7, ["NODE_FAIL"], T0, T0 + 100))
    assert one.refresh(T0 + 120) == ""
    assert known(register) == [("7", 0, 100, "failed")]
    assert slurm.calls("squeue")[0] == "--json --states=all"
    assert slurm.calls("sacct")[0] == "--json --allusers --duplicates --starttime=now-604800seconds"
    assert slurm.calls("sacct")[1] == "--json --allusers --duplicates --starttime=now-660seconds"


def test_the_accounts_are_asked_only_when_they_have_news(slurm: Slurm, register: Register) -> None:
    one = source(register)
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    for tick in range(10):
        one.refresh(T0 + 60 + 30 * tick)
    assert (len(slurm.calls("squeue")), len(slurm.calls("sacct"))) == (10, 1)


def test_after_a_clock_that_was_ahead_the_accounts_are_asked_for_what_was(slurm: Slurm, register: Register) -> None:
    one = source(register)
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    for moment in (T0 + 18_000, T0 + 60):
        one.refresh(moment)
    assert slurm.calls("sacct")[1] == "--json --allusers --duplicates --starttime=now-18540seconds"


def test_a_requeued_job_is_two_runs(slurm: Slurm, register: Register) -> None:
    one = source(register)
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    one.refresh(T0 + 30)
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0 + 110, T0 + 86_400))
    slurm.prints(
        "sacct",
        sacct_2405(7, ["PENDING", "REQUEUED"], T0, T0 + 50),
        sacct_2405(7, ["RUNNING"], T0 + 110, 0),
    )
    one.refresh(T0 + 660)
    assert known(register) == [("7", 0, 50, "cancelled"), ("7", 110, None, "unknown")]


def test_a_resized_job_is_two_runs(slurm: Slurm, register: Register) -> None:
    """Each with its nodes: those that it gave back are not waited for, nor did it never have them."""
    one = source(register)
    queued = squeue_2405(7, ["RUNNING"], T0, T0 + 86_400, nodes="gpu-[01-04]", resize_time=some_number(0))
    slurm.prints("squeue", queued)
    one.refresh(T0 + 30)
    slurm.prints("squeue", queued | {"nodes": "gpu-[01-02]", "resize_time": some_number(T0 + 400)})
    before = sacct_2405(7, ["PENDING", "RESIZING"], T0, T0 + 400, nodes="gpu-[01-04]")
    slurm.prints("sacct", before, sacct_2405(7, ["RUNNING"], T0 + 400, 0))
    for now in (T0 + 420, T0 + 660, T0 + 690):
        one.refresh(now)
    assert known(register) == [("7", 0, 400, "unknown"), ("7", 400, None, "unknown")]
    slurm.prints("squeue")
    slurm.prints("sacct", before, sacct_2405(7, ["COMPLETED"], T0 + 400, T0 + 700))
    one.refresh(T0 + 720)
    assert known(register) == [("7", 0, 400, "unknown"), ("7", 400, 700, "completed")]
    assert {len(told.job.nodes) for told in register.jobs("slurm").values()} == {2, 4}


def test_a_job_that_nobody_lists_ends_when_it_was_last_seen(slurm: Slurm, register: Register) -> None:
    """The accounting is asked, but does not know of it."""
    one = source(register)
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    one.refresh(T0 + 60)
    slurm.prints("squeue")
    one.refresh(T0 + 90)
    assert known(register) == [("7", 0, None, "unknown")], "the accounting may be slow"
    one.refresh(T0 + 61 + PATIENCE)
    assert known(register) == [("7", 0, 60, "unknown")]


@pytest.mark.parametrize("is_file", [False, True])
def test_without_accounting_an_end_is_known_before_it_is_taken_for_a_stall(
    slurm: Slurm, register: Register, *, is_file: bool
) -> None:
    """Nobody else would tell of it: all that is waited for is another look at the queue."""
    queue = slurm.folder / "squeue.json"
    one = source(register, sacct=(), files=(str(queue),) if is_file else ())
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    os.utime(queue, (T0 + 60, T0 + 60))
    one.refresh(T0 + 60)
    slurm.prints("squeue")
    os.utime(queue, (T0 + 80, T0 + 80))
    one.refresh(T0 + 90)
    assert known(register) == [("7", 0, None, "unknown")], "one answer may be wrong"
    one.refresh(T0 + 121)
    assert known(register) == [("7", 0, 60, "unknown")]


def test_files_with_accounts_are_waited_for(slurm: Slurm, register: Register) -> None:
    queue, accounts = slurm.folder / "squeue.json", slurm.folder / "sacct.json"
    one = source(register, files=(str(queue), str(accounts)))

    def look(now: float) -> None:
        for path in (queue, accounts):
            os.utime(path, (now, now))
        one.refresh(now)

    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    slurm.prints("sacct", sacct_2405(6, ["FAILED"], T0 - 500, T0 - 100))
    look(T0 + 60)
    slurm.prints("squeue")
    look(T0 + 50 + PATIENCE)
    assert known(register)[1] == ("7", 0, None, "unknown")
    look(T0 + 61 + PATIENCE)
    assert known(register)[1] == ("7", 0, 60, "unknown")


def test_times_that_no_clock_shows_are_none(slurm: Slurm, register: Register) -> None:
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], 10**12, 0), squeue_2405(8, ["RUNNING"], T0, 10**12))
    assert source(register).refresh(T0 + 60) == ""
    assert [one[0] for one in known(register)] == ["8"]
    longest = sacct_2108(9, "COMPLETED", T0, T0 + 60) | {"time": {"elapsed": 10**12, "end": T0 + 60}}
    assert found(longest, major=21) == []
    assert number("9" * 5000) is None


def test_an_error_that_nobody_expected_is_told_and_ends_no_thread(
    slurm: Slurm, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    one = source(register, sacct=(), every=0.01)
    ask = one.asked.ask
    monkeypatch.setattr(one.asked, "ask", lambda *_: ask(None))
    one.start()

    def is_so(trouble: str) -> bool:
        deadline = time.monotonic() + 10
        while not (is_it := one.refresh(T0 + 60).startswith(trouble)) and time.monotonic() < deadline:
            time.sleep(0.01)
        return is_it

    assert is_so("unexpected TypeError: ")
    monkeypatch.setattr(one.asked, "ask", ask)
    deadline = time.monotonic() + 10
    while not known(register) and time.monotonic() < deadline:
        one.refresh(T0 + 60)
        time.sleep(0.01)
    one.stop()
    assert known(register) == [("7", 0, None, "unknown")]


def test_what_is_too_old_is_not_noted_again_and_again(slurm: Slurm, register: Register) -> None:
    """Slurm lists it for a week; the register forgot it."""
    one = replace(source(register), keep=500)
    slurm.prints("sacct", sacct_2405(7, ["COMPLETED"], T0, T0 + 60))
    one.refresh(T0 + 600)
    assert known(register) == []
    slurm.prints("squeue", squeue_2405(8, ["RUNNING"], T0 + 600, T0 + 86_400))
    one.refresh(T0 + 630)
    slurm.prints("squeue")
    slurm.prints("sacct", sacct_2405(8, ["COMPLETED"], T0 + 600, T0 + 700))
    one.refresh(T0 + 9_000)
    assert known(register) == [("8", 600, 700, "completed")], "the end of one that is known is taken in"


def test_what_the_accounts_take_for_running_and_the_queue_does_not_know_is_no_job(
    slurm: Slurm, register: Register
) -> None:
    slurm.prints("sacct", sacct_2405(3, ["RUNNING"], T0 - 9_000, 0))
    source(register).refresh(T0)
    assert known(register) == []
    source(register, squeue=()).refresh(T0)
    assert known(register) == [("3", -9_000, None, "unknown")], "without the queue the accounts count"


def test_slurm_away_leaves_what_was_known(slurm: Slurm, register: Register) -> None:
    one = source(register)
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    one.refresh(T0 + 60)
    for name in ("sacct", "squeue"):
        slurm.fails(name, f"{name}: error: Unable to contact slurm controller\n")
    why = one.refresh(T0 + 9_000)
    assert why.startswith("squeue: ended with 1: squeue: error: Unable to contact slurm controller; sacct: ended")
    assert known(register) == [("7", 0, None, "unknown")]
    for name in ("sacct", "squeue"):
        slurm.works(name)
    assert one.refresh(T0 + 9_030) == ""


def test_the_accounts_away_is_told_and_the_queue_still_counts(slurm: Slurm, register: Register) -> None:
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    slurm.fails("sacct", "sacct: error: slurmdbd: Connection refused")
    assert "Connection refused" in source(register).refresh(T0 + 60)
    assert known(register) == [("7", 0, None, "unknown")]


@pytest.mark.parametrize("is_too_much", [False, True])
def test_accounts_that_were_away_at_first_are_asked_for_a_whole_week(
    slurm: Slurm, register: Register, *, is_too_much: bool
) -> None:
    """As after a boot at which the database came last. Where a week is too much, what is less stays good enough."""
    one = source(register)
    slurm.fails("sacct", "sacct: error: slurmdbd: Connection refused")
    for tick in range(6):
        one.refresh(T0 + 30 * tick)
    slurm.works("sacct")
    slurm.prints("sacct", sacct_2405(6, ["FAILED"], T0 - 90_000, T0 - 80_000))
    assert one.refresh(T0 + 180) == ""
    if is_too_much:
        slurm.fails("sacct", "sacct: error: Query result exceeds size limit")
    assert bool(one.refresh(T0 + 210)) is is_too_much
    slurm.works("sacct")
    for tick in range(30):
        assert one.refresh(T0 + 240 + 30 * tick) == ""
    starts = [call.rpartition("now-")[2].removesuffix("seconds") for call in slurm.calls("sacct")]
    assert starts == ["604800", "151200", "37800", "9450", "2362", "600", "600", "604800", "1200"]


@pytest.mark.parametrize(
    ("printed", "why"),
    [("slurm is down", "printed no JSON: 'slurm is down'"), ("[]", "no list of jobs in it"), ("", "printed no JSON")],
)
def test_answers_that_are_none(slurm: Slurm, register: Register, printed: str, why: str) -> None:
    (slurm.folder / "squeue.json").write_text(printed)
    assert why in source(register, sacct=()).refresh(T0)


def test_a_command_that_is_not_there(register: Register) -> None:
    assert (
        source(register, sacct=("/no/sacct",), squeue=()).refresh(T0)
        == "sacct: cannot be run: no such file or directory"
    )


@pytest.mark.service
def test_a_command_that_hangs_is_given_up(slurm: Slurm, register: Register) -> None:
    (slurm.folder / "squeue.slow").touch()
    began = time.monotonic()
    assert source(register, sacct=(), timeout=1).refresh(T0) == "squeue: no answer within 1s"
    assert time.monotonic() - began < 10


def test_a_live_source_asks_in_the_background_and_stops_at_once(slurm: Slurm, register: Register) -> None:
    slurm.prints("squeue", squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))
    one = source(register, sacct=(), every=5)
    one.start()
    deadline = time.monotonic() + 10
    while not known(register) and time.monotonic() < deadline:
        one.refresh(time.time())
        time.sleep(0.05)
    assert known(register) == [("7", 0, None, "unknown")]
    (slurm.folder / "squeue.slow").touch()
    began = time.monotonic()
    one.stop()
    assert time.monotonic() - began < 5
    assert not any(thread.name == "jobs-slurm" for thread in threading.enumerate())


def test_files_that_somebody_else_has_written(register: Register, tmp_path: Path) -> None:
    queue, accounts = tmp_path / "squeue.json", tmp_path / "sacct.json"
    one = source(register, files=(str(queue), str(accounts)))
    assert one.refresh(T0) == f"{queue}: no such file; {accounts}: no such file"
    queue.write_text(json.dumps(document(squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))))
    accounts.write_text(json.dumps(document(sacct_2405(6, ["FAILED"], T0 - 500, T0 - 100))))
    for path in (queue, accounts):
        os.utime(path, (T0 + 10, T0 + 10))
    assert one.refresh(T0 + 20) == ""
    assert known(register) == [("6", -500, -100, "failed"), ("7", 0, None, "unknown")]
    assert "squeue.json: not written since 2026-03-01T08:00:10Z" in one.refresh(T0 + 4000)


@pytest.mark.parametrize("from_files", [False, True], ids=["commands", "files"])
def test_nodes_that_cannot_be_read_are_told(slurm: Slurm, register: Register, from_files: bool) -> None:  # noqa: FBT001
    """The job was left out without a word; the others count, and what is no longer listed is over all the same."""
    slurm.prints("squeue", *(squeue_2405(number, ["RUNNING"], T0, 0, nodes=nodes) for number, nodes in
                             ((6, "gpu-1"), (7, "gpu-[a-c]"), (8, "gpu-[d-e]"), (9, "gpu-[a-c]"))))  # fmt: skip
    files = (str(slurm.folder / "squeue.json"),) if from_files else ()
    os.utime(slurm.folder / "squeue.json", (T0, T0))
    told = source(register, files=files, sacct=()).refresh(T0)
    assert told.removeprefix(f"{slurm.folder}/").replace(".json", "") == (
        "squeue: job 7 is left out: nodes gpu-[a-c]: expected numbers in brackets, as in gpu-[01-16,20] (and 1 more)"
    )
    assert known(register) == [("6", 0, None, "unknown")]


def test_a_document_of_something_else() -> None:
    with pytest.raises(AskError, match="expected the output of"):
        list(records_of({"nodes": []}, SETTINGS, T0))


def test_a_file_without_jobs_is_still_of_its_kind(tmp_path: Path) -> None:
    """Just after midnight the accounts are empty: a job that left the queue is waited for all the same."""
    queue, accounts = tmp_path / "squeue.json", tmp_path / "sacct.json"
    queue.write_text(json.dumps(document(squeue_2405(7, ["RUNNING"], T0, T0 + 86_400))))
    accounts.write_text(json.dumps(document(sacct_2405(6, ["COMPLETED"], T0 - 200, T0 - 100))))
    both = SlurmFiles(replace(SETTINGS, files=(str(queue), str(accounts))))
    alone = SlurmFiles(replace(SETTINGS, files=(str(queue),)))
    assert both.ask({}, T0).patience == PATIENCE
    assert (short := alone.ask({}, T0).patience) < PATIENCE
    for path in (queue, accounts):
        path.write_text(json.dumps(document()))
    assert (both.ask({}, T0).patience, alone.ask({}, T0).patience) == (PATIENCE, short)
