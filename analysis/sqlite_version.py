"""Which format an SQLite file of ours has: marked where it is made, refused where a newer clusterflow made it."""

import sqlite3
from pathlib import Path

from cluster.errors import UserError

VERSION = 1
"""Format of our SQLite files; one without a mark has the first."""


def settle_version(connection: sqlite3.Connection, path: Path) -> None:
    """Mark a file that bears no mark; UserError if it is of a newer format."""
    found = version_of(connection)
    if found > VERSION:
        raise UserError(
            f"{path}: written by a newer clusterflow (format {found}, this one knows {VERSION})",
            "install that version again, or restore a backup of before; nothing was changed",
        )
    if found != VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")


def version_of(connection: sqlite3.Connection) -> int:
    """Return the mark; 0 where there is none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
