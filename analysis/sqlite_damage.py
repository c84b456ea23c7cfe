"""Damage of an SQLite file that opening it does not see: it would break in the middle of something, at every start."""

import sqlite3


def refuse_damaged(connection: sqlite3.Connection) -> None:
    """Look through all pages of a file, which takes a second for some hundred megabytes.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(str(verdict))
