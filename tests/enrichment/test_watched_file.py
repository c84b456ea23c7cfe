"""A watched file: the last good version stays in use, whatever stands there now."""

import csv
import os
from pathlib import Path

import pytest
import yaml

from app.errors import UserError
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


def test_a_file_that_changes_during_every_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    is_written = [True]

    def load(path: Path) -> Loaded[tuple[int, ...]]:
        loaded = load_numbers(path)
        if is_written[0]:
            put(path, "1\n" * (len(loaded.value) + 1), 1000)
        return loaded

    file = WatchedFile(path, load, name="numbers", kind="test")
    put(path, "1\n", 1000)
    assert not file.refresh()
    assert file.reading().error == "", "once, it is somebody who writes it now"
    for _ in range(2):
        assert not file.refresh()
        reading = file.reading()
        assert reading.error.startswith(f"{path}: changes each time while it is read")
        assert (reading.broken, reading.in_use) == (True, False)
    is_written[0] = False
    assert file.refresh()
    assert (file.value, file.reading().error) == ((1, 1, 1, 1), "")


@pytest.mark.parametrize(
    ("text", "load", "told"),
    [
        ("x" * 200_000, lambda text: next(csv.reader([text])), "Error: field larger than field limit (131072)"),
        ("!!bool maybe", yaml.safe_load, "KeyError: 'maybe'"),
        ('!!int "_"', yaml.safe_load, "IndexError: string index out of range"),
        ("!!timestamp x", yaml.safe_load, "AttributeError: "),
    ],
    ids=["csv", "bool", "int", "timestamp"],
)
def test_whatever_a_parser_raises_the_last_good_version_stays(
    tmp_path: Path, text: str, load: object, told: str
) -> None:
    assert callable(load)
    path = tmp_path / "list"

    def loaded(path: Path) -> Loaded[object]:
        return Loaded(load(path.read_text("utf-8")), 1)

    file = WatchedFile(path, loaded, name="list", kind="test")
    put(path, "a", 1000)
    assert file.refresh()
    good = file.value
    put(path, text, 2000)
    assert not file.refresh()
    reading = file.reading()
    assert file.value == good
    assert (reading.in_use, reading.broken) == (True, True)
    assert reading.error.startswith(f"{path}: cannot be read: {told}")
    assert "\n" not in reading.error
    assert len(reading.error) < 600
    put(path, "b", 3000)
    assert file.refresh()
    assert file.reading().error == ""


def test_a_pipe_or_a_folder_is_told_and_not_opened(tmp_path: Path) -> None:
    file = watched(tmp_path)
    put(file.path, "1\n", 1000)
    assert file.refresh()
    for make in (os.mkfifo, os.mkdir):
        file.path.rename(tmp_path / make.__name__)
        make(file.path)
        assert not file.refresh()
        assert file.reading().error == f"{file.path}: expected a file"
        assert (file.value, file.reading().broken) == ((1,), True)
