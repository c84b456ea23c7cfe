"""Our SQLite files: a damaged one is moved aside, a newer one refused, and others may write while one is copied."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from app.errors import FOREIGN, MAKE_ROOM, MAKE_WRITABLE, ClusterflowError, UserError, of_disk

VERSION = 2
"""Format of our SQLite files: it goes up with each change that older programs cannot write to, such as a column."""

FIRST = 1
"""The oldest format that is read; a file without a mark has it."""

LOGS = ("-wal", "-shm")
"""How the files end that SQLite keeps beside one that is in use."""

Column = tuple[str, str, str]
"""Of a table: its name, that of the column, and how it is declared."""

_BUSY_SECONDS = 10.0
_LOCKED = "end the other program that has it locked, such as a sqlite3 shell"
_PASSING = {
    sqlite3.SQLITE_FULL: MAKE_ROOM,
    # Also where there is no room for the files beside it.
    sqlite3.SQLITE_IOERR: f"{MAKE_ROOM}; if there is room, dmesg says whether it fails",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
}
_REMEDIES = _PASSING | dict.fromkeys(
    (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM), MAKE_WRITABLE
)


def remedy(error: sqlite3.Error) -> str:
    """Return what to do where a file cannot be read or written for now; empty where that is not what is wrong."""
    return _REMEDIES.get(_code(error), "")


def reader_remedy(error: sqlite3.Error) -> str:
    """Return the same for who only reads; SQLite writes beside a file even then."""
    return FOREIGN if remedy(error) == MAKE_WRITABLE else remedy(error)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def opened(
    path: Path, tables: str, hint: str, *, added: Iterable[Column] = (), synchronous: str = "FULL"
) -> tuple[sqlite3.Connection, str]:
    """Open a file, or make it; one that SQLite cannot read is moved aside.

    Args:
        path: of the file; its folder is made if missing.
        tables: statements that make what is not there yet.
        hint: what to do where the file cannot be used.
        added: columns that tables of older files lack.
        synchronous: FULL where what was committed must be there after a power failure.

    Returns:
        The connection, for one thread at a time, and the name that a broken file was moved to; empty if none was.

    Raises:
        UserError: the file cannot be used, or a newer clusterflow wrote it.
        ClusterflowError: its disk is full, or fails, or another program has it locked: that passes, and whoever starts
            us is to try again.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _connected(path, tables, added, synchronous), ""
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            aside = _move_aside(path)
            return _connected(path, tables, added, synchronous), aside.name
    except OSError as error:
        raise of_disk(f"state {path}", error, hint) from error
    except sqlite3.OperationalError as error:
        if _code(error) in _PASSING:
            raise ClusterflowError(f"state {path}: {error}", f"{remedy(error)}, and start again") from error
        raise UserError(f"state {path}: {error}", hint) from error


def copied_to_memory(path: Path, tables: str, hint: str, *, added: Iterable[Column] = ()) -> sqlite3.Connection:
    """Return a copy of a file, which can be changed without a trace; an empty one where there is no file.

    Raises:
        UserError: the file cannot be read, or a newer clusterflow wrote it.
    """
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        if path.exists():
            copy(path, memory)
    except OSError as error:
        raise of_disk(f"state {path}", error, FOREIGN) from error
    except sqlite3.Error as error:
        raise UserError(f"state {path}: {error}", reader_remedy(error) or hint) from error
    _settle_version(memory, path)
    _make(memory, tables, added)
    return memory


def copy(path: Path, target: sqlite3.Connection) -> None:
    """Copy a file, others may write to it meanwhile; sqlite3.Error if it cannot be read."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as source:
        source.execute(
            "PRAGMA schema_version"
        ).fetchone()  # Fails where the file is locked: backup() would try for ever.
        source.backup(target)


def _connected(path: Path, tables: str, added: Iterable[Column], synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        _settle_version(connection, path)
        _make(connection, tables, added)
        # Damage that opening does not see would break in the middle of something, at every start. It looks through all
        # pages: a second for some hundred megabytes.
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(str(verdict))
    except (sqlite3.Error, UserError):
        connection.close()
        raise
    return connection


def _make(connection: sqlite3.Connection, tables: str, added: Iterable[Column]) -> None:
    connection.executescript(tables)
    for table, name, kind in added:
        if all(column[1] != name for column in connection.execute(f"PRAGMA table_info({table})")):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")


def _settle_version(connection: sqlite3.Connection, path: Path) -> None:
    """Mark a file that bears no mark; UserError if it is of a newer format."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > VERSION:
        raise UserError(
            f"{path}: written by a newer clusterflow (format {found}, this one knows {VERSION})",
            "install that version again, or restore a backup of before; nothing was changed",
        )
    if found != VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _move_aside(path: Path) -> Path:
    """Rename a file that SQLite cannot read, and return its new name; nothing is ever overwritten."""
    number = 1
    while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    path.rename(aside)
    for suffix in LOGS:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return aside
