"""Generated files: written when they changed, gone when no longer generated, compared for drift, watched."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import UserError
from operations.build import LIST, Change, Drift, check, watch, write

FILES = {"grafana/a.json": "{}\n", "grafana/b/c.yaml": "x: 1\n"}
names = st.from_regex(r"[a-z]{1,4}(/[a-z]{1,4}){0,2}\.txt", fullmatch=True)


def test_a_first_build_writes_everything(tmp_path: Path) -> None:
    changed = write(FILES, tmp_path)
    assert changed == [
        Drift(LIST, Change.MISSING), Drift("grafana/a.json", Change.MISSING), Drift("grafana/b/c.yaml", Change.MISSING),
    ]  # fmt: skip
    assert (tmp_path / "grafana/b/c.yaml").read_text() == "x: 1\n"
    assert (tmp_path / "grafana/b/c.yaml").stat().st_mode & 0o777 == 0o644
    assert not list(tmp_path.rglob(".*")), "no temporary files are left"


def test_a_second_build_touches_nothing(tmp_path: Path) -> None:
    write(FILES, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert write(FILES, tmp_path) == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_drift_is_found_and_check_changes_nothing(tmp_path: Path) -> None:
    write(FILES, tmp_path)
    (tmp_path / "grafana/a.json").write_text("edited")
    (tmp_path / "grafana/b/c.yaml").unlink()
    expected = [Drift("grafana/a.json", Change.DIFFERENT), Drift("grafana/b/c.yaml", Change.MISSING)]
    assert check(FILES, tmp_path) == expected
    assert check(FILES, tmp_path) == expected
    assert [str(drift) for drift in expected] == ["grafana/a.json: different", "grafana/b/c.yaml: missing"]
    assert write(FILES, tmp_path) == expected
    assert check(FILES, tmp_path) == []


def test_stale_files_go_and_others_stay(tmp_path: Path) -> None:
    """A board that was removed from the code goes; a file that somebody put there does not."""
    write(FILES, tmp_path)
    (tmp_path / "grafana/own.json").write_text("mine")
    fewer = {"grafana/a.json": "{}\n"}
    assert Drift("grafana/b/c.yaml", Change.STALE) in check(fewer, tmp_path)
    write(fewer, tmp_path)
    assert not (tmp_path / "grafana/b/c.yaml").exists()
    assert (tmp_path / "grafana/own.json").read_text() == "mine"
    assert check(fewer, tmp_path) == []


def test_a_list_that_names_files_outside_removes_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("keep")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / LIST).write_text(f"../outside.txt\n{outside}\n")
    write(FILES, folder)
    assert outside.read_text() == "keep"


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x"])
def test_nothing_is_generated_outside(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="stay inside"):
        write({path: ""}, tmp_path)


def test_a_folder_that_cannot_be_written_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "grafana").write_text("a file where a folder belongs")
    with pytest.raises(UserError, match="File exists") as caught:
        write(FILES, tmp_path)
    assert "choose a folder" in caught.value.hint


@settings(deadline=None)
@given(st.lists(st.dictionaries(names, st.text(alphabet="abc\n", max_size=5), max_size=5), min_size=1, max_size=4))
def test_after_any_builds_the_folder_is_the_last(
    tmp_path_factory: pytest.TempPathFactory, builds: list[dict[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("out")
    for files in builds:
        write(files, folder)
    present = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    present.pop(LIST)
    assert present == builds[-1]


def test_watch_builds_again_after_a_save_and_survives_a_failure(tmp_path: Path) -> None:
    """The command runs once at the start and once after each save, in a process of its own."""
    source = tmp_path / "source.py"
    log = tmp_path / "log.txt"
    source.write_text(f"open({str(log)!r}, 'a').write('one ')\n")
    codes: list[int] = []
    stop = threading.Event()
    arguments = ([sys.executable, str(source)], lambda: [source])
    thread = threading.Thread(target=watch, args=arguments, kwargs={"stop": stop, "after": codes.append})
    thread.start()
    try:
        _until(lambda: len(codes) == 1)
        source.write_text("raise SystemExit(7)\n")
        _until(lambda: len(codes) == 2)
        source.write_text(f"open({str(log)!r}, 'a').write('two')\n")
        _until(lambda: len(codes) == 3)
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()
    assert codes == [0, 7, 0]
    assert log.read_text() == "one two"


@pytest.mark.service
def test_watch_sees_every_save_of_an_editor_that_replaces_the_file(tmp_path: Path) -> None:
    """As vim and many others do: the new text gets the name of the old file."""
    source = tmp_path / "source.py"
    source.write_text("")
    codes: list[int] = []
    stop = threading.Event()
    arguments = ([sys.executable, "-c", ""], lambda: [source])
    thread = threading.Thread(target=watch, args=arguments, kwargs={"stop": stop, "after": codes.append})
    thread.start()
    try:
        _until(lambda: len(codes) == 1)
        for builds in (2, 3, 4):
            (tmp_path / "new").write_text(str(builds))
            (tmp_path / "new").replace(source)
            _until(lambda builds=builds: len(codes) == builds)  # type: ignore[misc]
        (tmp_path / "another").write_text("of no interest")
        time.sleep(1)
        assert len(codes) == 4
    finally:
        stop.set()
        thread.join(10)


@pytest.mark.service
def test_watch_sees_a_save_during_a_run_and_files_that_are_named_later(tmp_path: Path) -> None:
    source, later = tmp_path / "source.py", tmp_path / "more" / "later.py"
    source.write_text("import time; time.sleep(2)\n")
    codes: list[int] = []
    named = [source]
    stop = threading.Event()
    arguments = ([sys.executable, str(source)], lambda: named)
    thread = threading.Thread(target=watch, args=arguments, kwargs={"stop": stop, "after": codes.append})
    thread.start()
    try:
        time.sleep(1)
        source.write_text("")
        _until(lambda: len(codes) == 2)
        later.parent.mkdir()
        later.write_text("")
        named.append(later)
        source.write_text("pass\n")
        _until(lambda: len(codes) == 4)
        later.write_text("pass\n")
        _until(lambda: len(codes) == 5)
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()


def _until(holds: object, seconds: float = 15) -> None:
    assert callable(holds)
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def test_nobody_reads_half_a_file(tmp_path: Path) -> None:
    """Grafana may look at any instant: a file is the old one or the new one, complete."""
    old, new = {"a.json": "a" * 200_000}, {"a.json": "b" * 200_000}
    write(old, tmp_path)
    seen: set[str] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add((tmp_path / "a.json").read_text())

    thread = threading.Thread(target=look)
    thread.start()
    for turn in range(30):
        write(old if turn % 2 else new, tmp_path)
    stop.set()
    thread.join(10)
    assert seen <= {old["a.json"], new["a.json"]}
    assert os.listdir(tmp_path).count("a.json") == 1  # noqa: PTH208
