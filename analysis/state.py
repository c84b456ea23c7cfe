"""What the analysis remembers between two runs of its process: position, contacts, networks, what runs taught.

One SQLite file beside the bridge's checkpoint. All of it but the decisions can be rebuilt from the store, as far
back as the store reaches; the decisions are in the audit log too. Contacts may be millions: they stay in the file, and
are asked for by pair.
"""

import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Self

import polars as pl

from analysis.detectors.egress.contacts import (
    CONTACT_COLUMNS,
    DECISION_COLUMNS,
    FIRST_SEEN,
    KNOWN_COLUMNS,
    LAST_SEEN,
    PAIR,
)
from analysis.detectors.egress.networks import KNOWN
from analysis.detectors.inference.countries import COUNTRY_COLUMNS
from analysis.detectors.management.openers import KNOWN as OPENERS
from analysis.detectors.study import FLAW, Memory
from analysis.jobs.job_windows import end_of, start_of
from app import sqlite_file
from app.errors import UserError, of_disk
from cluster.model import Cluster, Job
from store import schema

FILE = "analysis.sqlite"
LOCK = "analysis.lock"
AUDIT = "contacts-audit.jsonl"

MOST_RUNS = 50
"""Earlier good runs of a class that a study is handed."""

_KEPT_RUNS = 4 * MOST_RUNS
"""Good runs of a class that are kept from before the raw retention: jobs that began long ago look past the newest.
Later runs all stay: a look at the past must find those that counted then."""

_IDLE_SECONDS = 90 * 86_400
"""A class without a run for so long before the raw retention is forgotten: a quarterly run still finds the last one,
names that were used once do not stay for ever."""

_MOST_MEMORIES = 10_000
"""Memories in all. A run has one a study, together 2 kB a node at most: 2,000 runs of 64 nodes are 90 MB and less. What
goes first is what is farthest from the newest of its class, so that thousands of small jobs do not displace ten large
ones."""

_FEW_RUNS = 3
"""A class with fewer runs judges nobody. Where each job has a name of its own there are thousands of them: they go
before what a study is handed of other classes."""

_WRITABLE = "set bridge.state to a folder that this user may write"
_ROWS_AT_ONCE = 50_000
_POSITION, _HEARD = "position", "heard"
_LEARNING_END, _SEEN_FROM = "learning_end", "contacts_seen_from"

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contact (
    src TEXT NOT NULL, dst TEXT NOT NULL, src_group TEXT NOT NULL, dst_group TEXT NOT NULL, proto TEXT NOT NULL,
    service TEXT NOT NULL, first_seen INTEGER NOT NULL, new INTEGER NOT NULL, digest INTEGER NOT NULL,
    last_seen INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (src, dst)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS contact_by_time ON contact (first_seen);
CREATE TABLE IF NOT EXISTS decision (
    src TEXT NOT NULL, dst TEXT NOT NULL, acked_at INTEGER, forgotten_at INTEGER, PRIMARY KEY (src, dst)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS country (
    dst_group TEXT NOT NULL, service TEXT NOT NULL, country TEXT NOT NULL, first_seen INTEGER NOT NULL,
    new INTEGER NOT NULL, PRIMARY KEY (dst_group, service, country)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS network (
    src_group TEXT NOT NULL, network TEXT NOT NULL, first_seen INTEGER NOT NULL, new INTEGER NOT NULL,
    PRIMARY KEY (src_group, network)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS opener (
    src TEXT NOT NULL, dst_group TEXT NOT NULL, service TEXT NOT NULL, first_seen INTEGER NOT NULL,
    new INTEGER NOT NULL, PRIMARY KEY (src, dst_group, service)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS group_members (name TEXT PRIMARY KEY, members TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS node_address (address TEXT PRIMARY KEY, node TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memory (
    study TEXT NOT NULL, job TEXT NOT NULL, job_class TEXT NOT NULL, start REAL NOT NULL, end REAL NOT NULL,
    fingerprint TEXT NOT NULL, flaw TEXT NOT NULL, memory TEXT NOT NULL, PRIMARY KEY (study, job, start)
);
CREATE INDEX IF NOT EXISTS memory_by_time ON memory (study, job_class, end);
"""
_FORGET_UNSEEN = """
DELETE FROM contact WHERE (src, dst) IN (SELECT src, dst FROM contact WHERE last_seen < ? LIMIT ?)
"""
_OF_GROUPS = (("network", schema.SRC_GROUP), ("opener", schema.DST_GROUP), ("country", schema.DST_GROUP))
"""Tables that know something of groups, and the column with their names."""
_OF_NODES = ("contact", "decision", "opener")
"""Tables that know something of nodes, by `src`."""

_ADDED = (("contact", "last_seen", "INTEGER NOT NULL DEFAULT 0"),)

_FORGET_DISPLACED = """
DELETE FROM memory WHERE (study, job, start) IN (
    SELECT study, job, start FROM (
        SELECT study, job, start, row_number() OVER (
            PARTITION BY study, job_class ORDER BY end DESC, start DESC, job DESC
        ) AS place FROM memory WHERE end < ?
    ) WHERE place > ?
)
"""
_FORGET_FARTHEST = """
DELETE FROM memory WHERE (study, job, start) IN (
    SELECT study, job, start FROM (
        SELECT study, job, start, end, count(*) OVER (PARTITION BY study, job_class, flaw = '') AS runs,
        row_number() OVER (
            PARTITION BY study, job_class, flaw = '' ORDER BY end DESC, start DESC, job DESC
        ) AS place FROM memory
    ) ORDER BY CASE WHEN runs < ? THEN ? ELSE place END DESC, end, start, job, study LIMIT ?
)
"""


class Learnt:
    """One table of the file: what is known of a kind, since when, and whether it was new then.

    Args:
        connection: to the file.
        table: its name.
        columns: of its frames, as in the table; all but the last two tell rows apart.
        mark: under which the moment of `begin` is noted.
    """

    def __init__(self, connection: sqlite3.Connection, table: str, columns: dict[str, pl.DataType], mark: str) -> None:
        self._connection, self._table, self._columns, self._mark = connection, table, columns, mark

    @property
    def begun(self) -> int | None:
        """The moment that `begin` noted, epoch seconds; None before."""
        return _meta(self._connection, self._mark)

    def begin(self, moment: int, rows: pl.DataFrame) -> None:
        """Start with the rows that history holds, and note a moment."""
        with self._connection:
            _set_meta(self._connection, self._mark, moment)
            self._insert(rows)

    def rows(self) -> pl.DataFrame:
        """Return all that is known, in order."""
        return _read(self._connection, self._table, self._columns).sort(list(self._columns)[:-2])

    def known(self, asked: pl.DataFrame, since: int) -> pl.DataFrame:
        """Return what is known of what is asked for, and all that became known from a moment on, in order."""
        keys = list(self._columns)[:-2]
        found = _known(self._connection, self._table, self._columns, asked.select(keys), since)
        return found.sort(keys)

    def save(self, start: int, rows: pl.DataFrame) -> None:
        """Save the rows found from `start` on, in place of those found there before."""
        with self._connection:
            self._connection.execute(f"DELETE FROM {self._table} WHERE first_seen >= ?", (start,))  # noqa: S608 - our name
            self._insert(rows)

    def _insert(self, rows: pl.DataFrame) -> None:
        places = ", ".join("?" * len(self._columns))
        insert = f"INSERT OR REPLACE INTO {self._table} VALUES ({places})"  # noqa: S608 - our name
        self._connection.executemany(insert, rows.select(*self._columns).iter_rows())


class State:
    """The file, open. Use it as a context manager.

    Args:
        connection: to the file, or to a copy of it in memory.
        broken: name that an unreadable file was moved to, if there was one.

    Attributes:
        is_behind: whether it was forgotten because the store tells better.
        networks: that groups send to, since when learning is over.
        openers: who opens which management service of which group, since when learning is over.
        countries: that services have seen, since when they are looked at.
    """

    def __init__(self, connection: sqlite3.Connection, *, broken: str = "") -> None:
        self.broken, self.is_behind = broken, False
        self._connection = connection
        self.networks = Learnt(connection, "network", KNOWN, "networks_learning_end")
        self.openers = Learnt(connection, "opener", OPENERS, "openers_learning_end")
        self.countries = Learnt(connection, "country", COUNTRY_COLUMNS, "countries_from")
        self._version = -1
        self._decisions = pl.DataFrame(schema=DECISION_COLUMNS)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the file in a folder, or make it; one that is no SQLite file is moved aside."""
        connection, broken = sqlite_file.opened(folder / FILE, _TABLES, _WRITABLE, added=_ADDED, synchronous="NORMAL")
        return cls(connection, broken=broken)

    @classmethod
    def copy_of(cls, folder: Path) -> Self:
        """Return a copy in memory, which can be changed without a trace; an empty one where there is no file."""
        hint = "move the file away: it is rebuilt from the store"
        return cls(sqlite_file.copied_to_memory(folder / FILE, _TABLES, hint, added=_ADDED))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    # -- groups ------------------------------------------------------------------------------------

    def follow_groups(self, cluster: Cluster) -> dict[str, str]:
        """Take over what is known of groups that were renamed; return their names: before -> now.

        A group is known again by its prefixes, or by its nodes where it has none. Rows in the store keep the old name,
        so a state that is rebuilt from the store later does not know it.
        """
        now = _members(cluster)
        before = dict(self._connection.execute("SELECT name, members FROM group_members"))
        by_members = {members: name for name, members in now.items() if name not in before}
        renamed = {
            name: by_members[members] for name, members in before.items() if name not in now and members in by_members
        }
        if now != before:
            with self._connection:
                for table, column in _OF_GROUPS:
                    change = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {column} = ?"  # noqa: S608 - our names
                    self._connection.executemany(change, [(name, old) for old, name in renamed.items()])
                self._connection.execute("DELETE FROM group_members")
                self._connection.executemany("INSERT INTO group_members VALUES (?, ?)", now.items())
        return renamed

    def follow_nodes(self, cluster: Cluster) -> dict[str, str]:
        """Take over what is known of nodes that were renamed, or were no nodes yet; return the names: before -> now.

        A node is known again by its addresses, so one that replaces another at its address goes on as that one.
        """
        now = {str(one.address): node.name for node in cluster.nodes for one in node.addresses}
        before = dict(self._connection.execute("SELECT address, node FROM node_address"))
        names, known = set(now.values()), set(before.values())
        heirs: dict[str, set[str]] = {}
        for address, name in before.items():
            if name not in names and address in now:
                heirs.setdefault(name, set()).add(now[address])
        renamed = {name: heir for name, (heir, *others) in heirs.items() if not others and heir not in known}
        if now != before:
            fresh = {address: name for address, name in now.items() if address not in before}
            with self._connection:
                for table in _OF_NODES:
                    columns = [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")]
                    taken = ", ".join("?" if column == schema.SRC else column for column in columns)
                    # Windows that are judged again have the old name: it stays known.
                    copy = f"INSERT OR IGNORE INTO {table} SELECT {taken} FROM {table} WHERE src = ?"  # noqa: S608 - our names
                    self._connection.executemany(copy, [(name, old) for old, name in {**fresh, **renamed}.items()])
                if renamed:
                    self._rename_in_memories(renamed)
                self._connection.execute("DELETE FROM node_address")
                self._connection.executemany("INSERT INTO node_address VALUES (?, ?)", now.items())
        return renamed

    def _rename_in_memories(self, renamed: Mapping[str, str]) -> None:
        rows = self._connection.execute("SELECT memory, study, job, start FROM memory WHERE flaw = ''").fetchall()
        for text, *key in rows:
            told = json.loads(text)
            if isinstance(nodes := told.get("nodes"), list) and not renamed.keys().isdisjoint(nodes):
                told["nodes"] = [renamed.get(node, node) for node in nodes]
                change = "UPDATE memory SET memory = ? WHERE study = ? AND job = ? AND start = ?"
                self._connection.execute(change, (json.dumps(told), *key))

    # -- position ----------------------------------------------------------------------------------

    @property
    def position(self) -> int | None:
        """Start of the first window that may still be judged again, epoch seconds; None before the first run."""
        return _meta(self._connection, _POSITION)

    @property
    def heard(self) -> int | None:
        """End of the newest stored window that was judged, epoch seconds; None where none was, or nobody noted it."""
        return _meta(self._connection, _HEARD)

    @property
    def learning_end(self) -> int:
        """Contacts first seen before this, epoch seconds, are not new."""
        return _meta(self._connection, _LEARNING_END) or 0

    def begin(self, position: int, learning_end: int, contacts: pl.DataFrame) -> None:
        """Start with the contacts that history holds (CONTACT_COLUMNS)."""
        with self._connection:
            _set_meta(self._connection, _POSITION, position)
            _set_meta(self._connection, _LEARNING_END, learning_end)
            self._insert(contacts, was_seen=False)

    def forget_all(self) -> None:
        """Forget what the store tells better: all but what people decided, and what finished runs taught."""
        with self._connection:
            for table in ("meta", "contact", "country", "network", "opener"):
                self._connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our names
        self.is_behind = True

    def advance(self, position: int) -> None:
        """Save the position."""
        with self._connection:
            _set_meta(self._connection, _POSITION, position)

    def hear(self, moment: int) -> None:
        """Save up to where windows are stored."""
        with self._connection:
            _set_meta(self._connection, _HEARD, moment)

    def save_contacts(self, start: int, contacts: pl.DataFrame, seen: pl.DataFrame) -> None:
        """Save the contacts found from `start` on, in place of those found there before; only what changed is written.

        Args:
            start: epoch seconds.
            contacts: CONTACT_COLUMNS.
            seen: pairs known before, and when they were last seen, where that is to be noted.
        """
        before = _since(self._connection, "contact", CONTACT_COLUMNS, start)
        gone = before.join(contacts, on=PAIR, how="anti").select(PAIR)
        with self._connection:
            self._connection.executemany("DELETE FROM contact WHERE src = ? AND dst = ?", gone.iter_rows())
            self._insert(contacts.join(before, on=list(CONTACT_COLUMNS), how="anti"))
            noted = seen.select(LAST_SEEN, *PAIR).iter_rows()
            self._connection.executemany("UPDATE contact SET last_seen = ? WHERE src = ? AND dst = ?", noted)

    def _insert(self, contacts: pl.DataFrame, *, was_seen: bool = True) -> None:
        seen = pl.col(FIRST_SEEN) if was_seen else pl.lit(0)
        rows = contacts.select(*CONTACT_COLUMNS, seen.alias(LAST_SEEN)).iter_rows()
        names, places = ", ".join(KNOWN_COLUMNS), ", ".join("?" * len(KNOWN_COLUMNS))
        insert = f"INSERT OR REPLACE INTO contact ({names}) VALUES ({places})"  # noqa: S608 - our names
        self._connection.executemany(insert, _for(rows))

    def forget_contacts(self, now: int, oldest: int, most: int) -> int:
        """Forget pairs that were not seen from `oldest` on, so many at most; return how many were forgotten.

        Those of which nobody noted when they were seen, as what was learnt from history, count as seen at the first
        call.
        """
        begun = _meta(self._connection, _SEEN_FROM)
        with self._connection:
            if begun is None:
                _set_meta(self._connection, _SEEN_FROM, now)
            if begun is None or begun >= oldest:
                return 0
            return self._connection.execute(_FORGET_UNSEEN, (oldest, most)).rowcount

    # -- contacts and what people decided ----------------------------------------------------------

    def contacts(self, since: int | None = None) -> pl.DataFrame:
        """Return the contacts first seen from a moment on, or all, CONTACT_COLUMNS."""
        if since is None:
            return _read(self._connection, "contact", CONTACT_COLUMNS)
        return _since(self._connection, "contact", CONTACT_COLUMNS, since)

    def known_contacts(self, pairs: pl.DataFrame, since: int) -> pl.DataFrame:
        """Return what is known of some pairs, and all contacts first seen from a moment on, KNOWN_COLUMNS."""
        return _known(self._connection, "contact", KNOWN_COLUMNS, pairs.select(PAIR), since)

    def decisions(self) -> pl.DataFrame:
        """Return all decisions, DECISION_COLUMNS; read again only if another process changed the file."""
        # data_version changes when another connection commits, not for our own writes.
        version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        if version != self._version:
            self._version = version
            self._decisions = _read(self._connection, "decision", DECISION_COLUMNS)
        return self._decisions

    def acknowledge(self, src: str, dst: str, moment: int) -> bool:
        """Take a contact for known from `moment` on; False if it was never seen."""
        return self._decide(src, dst, "acked_at", moment)

    def forget(self, src: str, dst: str, moment: int) -> bool:
        """Take a contact for never seen, as far as windows from `moment` on go; False if it never was."""
        found = self._decide(src, dst, "forgotten_at", moment)
        with self._connection:
            self._connection.execute("DELETE FROM contact WHERE src = ? AND dst = ?", (src, dst))
            self._connection.execute("UPDATE decision SET acked_at = NULL WHERE src = ? AND dst = ?", (src, dst))
        self._version = -1
        return found

    def _decide(self, src: str, dst: str, column: str, moment: int) -> bool:
        with self._connection:
            found = self._connection.execute("SELECT 1 FROM contact WHERE src = ? AND dst = ?", (src, dst)).fetchone()
            if found is None:
                return False
            self._connection.execute("INSERT OR IGNORE INTO decision VALUES (?, ?, NULL, NULL)", (src, dst))
            change = f"UPDATE decision SET {column} = ? WHERE src = ? AND dst = ?"  # noqa: S608 - a name of ours
            self._connection.execute(change, (moment, src, dst))
        self._version = -1
        return True

    # -- what runs taught --------------------------------------------------------------------------

    def remembered(self, job_class: str) -> set[tuple[str, str]]:
        """Return which study remembers which run of a class: names and fingerprints."""
        rows = self._connection.execute("SELECT study, fingerprint FROM memory WHERE job_class = ?", (job_class,))
        return set(rows)

    def remember(self, job: Job, memories: Mapping[str, Memory]) -> None:
        """Keep what a finished run taught each study, in place of what was known of the same job at that time."""
        start, end = start_of(job), end_of(job)
        with self._connection:
            overlap = "DELETE FROM memory WHERE job = ? AND start < ? AND end > ? AND study = ?"
            for study, memory in memories.items():
                self._connection.execute(overlap, (job.id, end, start, study))
                flaw = str(memory.get(FLAW, ""))
                row = (study, job.id, job.job_class, start, end, fingerprint(job), flaw)
                # What is handed to nobody need not be kept; that the run was looked at must be.
                text = json.dumps({FLAW: flaw} if flaw else memory)
                self._connection.execute("INSERT OR REPLACE INTO memory VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, text))

    def unlearn(self, jobs: Iterable[Job], studies: Iterable[str]) -> None:
        """Forget what runs taught that turned out to be no measure for others."""
        names = tuple(studies)
        keys = [(study, job.id, start_of(job)) for job in jobs for study in names]
        with self._connection:
            self._connection.executemany("DELETE FROM memory WHERE study = ? AND job = ? AND start = ?", keys)

    def forget_runs(self, oldest: float, in_use: Collection[str]) -> None:
        """Forget what no job can need any more.

        Args:
            oldest: epoch seconds; no run that began before is ever looked at again.
            in_use: classes of the jobs that are known.
        """
        with self._connection:
            self._connection.execute("DELETE FROM memory WHERE end < ? AND flaw <> ''", (oldest,))
            self._connection.execute(_FORGET_DISPLACED, (oldest, _KEPT_RUNS))
            idle = self._connection.execute(
                "SELECT job_class FROM memory GROUP BY job_class HAVING max(end) < ?", (oldest - _IDLE_SECONDS,)
            ).fetchall()
            gone = [(name,) for (name,) in idle if name not in in_use]
            self._connection.executemany("DELETE FROM memory WHERE job_class = ?", gone)
            (count,) = self._connection.execute("SELECT count(*) FROM memory").fetchone()
            if count > _MOST_MEMORIES:
                self._connection.execute(_FORGET_FARTHEST, (_FEW_RUNS, MOST_RUNS, count - _MOST_MEMORIES))

    def memories(self, study: str, job_class: str, before: float, most: int) -> list[Memory]:
        """Return what good runs of a class that ended at or before a moment taught a study, newest first."""
        rows = self._connection.execute(
            "SELECT memory FROM memory WHERE study = ? AND job_class = ? AND end <= ? AND flaw = '' "
            "ORDER BY end DESC, start DESC, job DESC LIMIT ?",
            (study, job_class, before, most),
        )
        return [json.loads(row[0]) for row in rows]


def _members(cluster: Cluster) -> dict[str, str]:
    """Return for each group that has any what tells whether it is the same one under another name."""
    nodes: dict[str, list[str]] = {}
    for node in cluster.nodes:
        nodes.setdefault(node.group, []).append(node.name)
    told = {one.id: sorted(map(str, one.prefixes)) or sorted(nodes.get(one.id, ())) for one in cluster.groups}
    return {name: hashlib.sha256(json.dumps(members).encode()).hexdigest() for name, members in told.items() if members}


def _meta(connection: sqlite3.Connection, key: str) -> int | None:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else int(row[0])


def _set_meta(connection: sqlite3.Connection, key: str, value: int) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def _read(connection: sqlite3.Connection, table: str, columns: dict[str, pl.DataType]) -> pl.DataFrame:
    return _frame(connection.execute(f"SELECT {', '.join(columns)} FROM {table}"), columns)  # noqa: S608 - our names


def _since(connection: sqlite3.Connection, table: str, columns: dict[str, pl.DataType], moment: int) -> pl.DataFrame:
    asked = f"SELECT {', '.join(columns)} FROM {table} WHERE first_seen >= ?"  # noqa: S608 - our names
    return _frame(connection.execute(asked, (moment,)), columns)


def _known(
    connection: sqlite3.Connection, table: str, columns: dict[str, pl.DataType], asked: pl.DataFrame, since: int
) -> pl.DataFrame:
    """Return the rows of what is asked for, and all first seen from a moment on.

    One by one from the file: there may be millions of rows, of which a round meets some thousand.
    """
    keys = asked.columns
    one = " AND ".join(f"{key} = ?" for key in keys)
    query = f"SELECT {', '.join(columns)} FROM {table} WHERE {one} AND first_seen < ?"  # noqa: S608 - our names
    rows = (
        row
        for values in asked.unique().iter_rows()
        if (row := connection.execute(query, (*values, since)).fetchone()) is not None
    )
    return pl.concat([_frame(rows, columns), _since(connection, table, columns, since)])


def _frame(rows: Iterator[tuple[object, ...]], columns: dict[str, pl.DataType]) -> pl.DataFrame:
    """Return rows as a frame; as objects they take five times the room, so not all of them at once."""
    frames = [pl.DataFrame(schema=columns)]
    while part := list(islice(rows, _ROWS_AT_ONCE)):
        frames.append(pl.DataFrame(part, schema=columns, orient="row"))
    return pl.concat(frames)


def fingerprint(job: Job) -> str:
    """Return what changes when the job source tells something else about a run."""
    told = json.dumps([job.id, job.job_class, job.nodes, start_of(job), end_of(job), job.outcome, job.quiet])
    return hashlib.sha256(told.encode()).hexdigest()


def _for(rows: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """Take null for empty in text columns, which SQLite is told to refuse."""
    for row in rows:
        yield tuple("" if value is None else value for value in row)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; UserError if another analysis holds it, or the folder cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise of_disk(folder, error, _WRITABLE) from error
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            who = file.read().strip() or "unknown"
            raise UserError(
                f"another analysis works on {folder} (process {who})",
                "stop it, or give this one its own bridge.state",
            ) from error
        # Who holds it is for people alone: a full disk is told by what needs it.
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"{os.getpid()}\n".encode())
        yield
