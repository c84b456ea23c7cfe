"""A watched file: the last good version stays in use, whatever stands there now."""

import os
from pathlib import Path

from cluster.errors import UserError
from enrichment.watched import Loaded, WatchedFile


def load_numbers(path: Path) -> Loaded[tuple[int, ...]]:
    lines = path.read_text(encoding="ascii").splitlines()
    if not lines:
        raise UserError(f"{path}: no number", "put one in")
    return Loaded(tuple(int(line) for line in lines), len(lines), origin="a test")


def watched(tmp_path: Path) -> WatchedFile[tuple[int, ...]]:
    return WatchedFile(tmp_path / "numbers", load_numbers, name="numbers", kind="test")


def put(path: Path, text: str, changed: int) -> None:
    path.write_text(text, encoding="ascii")
    os.utime(path, (changed, changed))


def test_a_file_is_read_when_it_changes_and_only_then(tmp_path: Path) -> None:
    file = watched(tmp_path)
    assert file.value is None
    put(file.path, "1\n2\n", 1000)
    assert file.refresh()
    assert not file.refresh()
    assert file.value == (1, 2)
    reading = file.reading()
    assert (reading.entries, reading.dated, reading.origin, reading.error) == (2, 1000.0, "a test", "")
    assert reading.age(1060.0) == 60.0
    assert reading.age(900.0) == 0.0
    put(file.path, "3\n4\n", 2000)
    assert file.refresh()
    assert file.value == (3, 4)


def test_a_broken_file_leaves_the_last_good_version_in_use_and_says_why(tmp_path: Path) -> None:
    file = watched(tmp_path)
    put(file.path, "1\n", 1000)
    assert file.refresh()
    for changed, text, why in ((2000, "one\n", "invalid literal"), (3000, "", "no number")):
        put(file.path, text, changed)
        assert not file.refresh()
        reading = file.reading()
        assert file.value == (1,)
        assert reading.in_use
        assert reading.dated == 1000.0
        assert str(file.path) in reading.error
        assert why in reading.error
    put(file.path, "5\n", 4000)
    assert file.refresh()
    assert file.value == (5,)
    assert file.reading().error == ""


def test_a_file_that_is_gone_is_told_and_taken_up_when_it_comes_back(tmp_path: Path) -> None:
    file = watched(tmp_path)
    assert not file.refresh()
    assert file.reading().error == f"{file.path}: No such file or directory"
    assert not file.reading().in_use
    put(file.path, "1\n", 1000)
    assert file.refresh()
    file.path.unlink()
    assert not file.refresh()
    assert file.value == (1,)
    assert "No such file" in file.reading().error
    put(file.path, "1\n", 1000)
    assert file.refresh()
    assert file.reading().error == ""


def test_a_file_written_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "numbers"

    def load(path: Path) -> Loaded[tuple[int, ...]]:
        loaded = load_numbers(path)
        if len(loaded.value) == 1:
            path.write_text("1\n2\n", encoding="ascii")
        return loaded

    file = WatchedFile(path, load, name="numbers", kind="test")
    path.write_text("1\n", encoding="ascii")
    assert not file.refresh()
    assert file.value is None
    assert file.refresh()
    assert file.value == (1, 2)
