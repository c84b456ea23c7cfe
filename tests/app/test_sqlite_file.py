"""What SQLite's errors mean for who has to act."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from analysis.cli import _tell_unsaved
from app import sqlite_file
from app.application import UNEXPECTED, Application
from app.errors import FOREIGN, ClusterflowError, UserError
from app.log import Log

WRITE = "INSERT INTO one VALUES (zeroblob(100000))"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def full(path: Path, _: ExitStack) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA max_page_count = 2")
    return connection


def locked(path: Path, stack: ExitStack) -> sqlite3.Connection:
    holder = stack.enter_context(closing(sqlite3.connect(path)))
    holder.execute("BEGIN EXCLUSIVE")
    return sqlite3.connect(path, timeout=0)


def read_only(path: Path, _: ExitStack) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


@pytest.mark.parametrize(("trouble", "what"), [(full, "make room"), (locked, "other program"), (read_only, "writable")])
def test_what_is_wrong_with_a_file_is_told_with_what_to_do(
    trouble: Callable[[Path, ExitStack], sqlite3.Connection],
    what: str,
    tmp_path: Path,
    stack: ExitStack,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with closing(sqlite3.connect(tmp_path / "file")) as file:
        file.execute("CREATE TABLE one (text)")
    connection = stack.enter_context(closing(trouble(tmp_path / "file", stack)))
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute(WRITE)
    _tell_unsaved(caught.value, Log())
    assert what in capsys.readouterr().err
    app = Application()
    app.command("write")(lambda: connection.execute(WRITE))
    with pytest.raises(SystemExit, match="1"):
        app.main(["write"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"a file of the state: {caught.value} (")
    assert what in line


def test_a_fault_of_ours_is_none_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    app = Application()
    app.command("ask")(lambda: sqlite3.connect(":memory:").execute("SELECT no"))
    with pytest.raises(SystemExit, match=str(UNEXPECTED)):
        app.main(["ask"])
    assert "unexpected error" in capsys.readouterr().err


def test_a_file_that_is_locked_at_the_start_is_tried_again(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 would keep systemd from it for good."""
    monkeypatch.setattr(sqlite_file, "_BUSY_SECONDS", 0)
    locked(tmp_path / "file", stack).close()
    with pytest.raises(ClusterflowError, match="locked") as caught:
        sqlite_file.opened(tmp_path / "file", "", "choose a folder")
    assert (caught.value.exit_code, "other program" in caught.value.hint) == (1, True)


def test_who_only_reads_is_not_told_to_move_a_sound_file_away(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "_BUSY_SECONDS", 0)
    with closing(sqlite3.connect(tmp_path / "file")) as file:
        file.execute("CREATE TABLE one (text)")
    with pytest.raises(sqlite3.OperationalError) as refused:
        stack.enter_context(closing(read_only(tmp_path / "file", stack))).execute(WRITE)
    assert sqlite_file.reader_remedy(refused.value) == FOREIGN
    stack.enter_context(closing(locked(tmp_path / "file", stack)))
    with pytest.raises(UserError, match="locked") as caught:
        sqlite_file.copied_to_memory(tmp_path / "file", "", "move the file away, if it is broken")
    assert "other program" in caught.value.hint
