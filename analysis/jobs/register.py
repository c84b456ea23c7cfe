"""The jobs that every source has reported, in one SQLite file beside the analysis state: a restart forgets none.

The endpoint writes from threads of its own, so everything here holds one lock. Jobs keep the names of nodes that their
source gave them; `sources` compares them with the inventory.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from analysis.jobs.job_windows import end_of, start_of
from app import sqlite_file
from app.errors import UserError
from cluster.model import Cluster, Job, Outcome

FILE = "jobs.sqlite"

_WRITABLE = "set bridge.state to a folder that this user may write"
_TABLES = """
CREATE TABLE IF NOT EXISTS job (
    source TEXT NOT NULL, key TEXT NOT NULL, id TEXT NOT NULL, job_class TEXT NOT NULL, nodes TEXT NOT NULL,
    start INTEGER NOT NULL, end INTEGER, outcome TEXT NOT NULL, quiet INTEGER NOT NULL, user TEXT NOT NULL DEFAULT '',
    seen REAL NOT NULL, PRIMARY KEY (source, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memory (source TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Known:
    """A job as its source told it, and when it last did: epoch seconds."""

    job: Job
    seen: float


def key_of(job: Job) -> str:
    """Return what a run is known by, where its source has nothing better."""
    return f"{job.id}@{start_of(job):.0f}"


class Register:
    """The file, open. Use it as a context manager.

    Args:
        connection: to the file, or to a copy of it in memory.
        broken: name that an unreadable file was moved to, if there was one.

    Attributes:
        is_new: whether it knew nothing when it was opened.
    """

    def __init__(self, connection: sqlite3.Connection, *, broken: str = "") -> None:
        self.broken = broken
        self._connection = connection
        self._lock = threading.RLock()
        if "user" not in [column[1] for column in connection.execute("PRAGMA table_info(job)")]:
            # A file from before jobs had users.
            connection.execute("ALTER TABLE job ADD COLUMN user TEXT NOT NULL DEFAULT ''")
        self._changes = 0
        self._version = -1
        self._jobs: dict[str, dict[str, Known]] = {}
        self.is_new = connection.execute("SELECT 1 FROM job UNION SELECT 1 FROM memory").fetchone() is None

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the file in a folder, or make it; one that is no SQLite file is moved aside."""
        # A hook whose request was answered must find its job after a power failure too.
        connection, broken = sqlite_file.opened(folder / FILE, _TABLES, _WRITABLE, synchronous="FULL")
        return cls(connection, broken=broken)

    @classmethod
    def copy_of(cls, folder: Path) -> Self:
        """Return a copy in memory, which can be changed without a trace; an empty one where there is no file."""
        return cls(sqlite_file.copied_to_memory(folder / FILE, _TABLES, "move the file away, if it is broken"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    # -- what is known -----------------------------------------------------------------------------

    @property
    def version(self) -> tuple[int, int]:
        """Another value after each change."""
        with self._lock:
            # data_version changes when another connection commits, not for our own writes.
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0]), self._changes

    def jobs(self, source: str) -> Mapping[str, Known]:
        """Return what a source told: key -> job."""
        with self._lock:
            version = self.version[0]
            if version != self._version:
                self._version = version
                self._read()
            return dict(self._jobs.get(source, {}))

    def _read(self) -> None:
        self._jobs = {}
        query = "SELECT source, key, id, job_class, nodes, start, end, outcome, quiet, user, seen FROM job"
        for source, key, *told, seen in self._connection.execute(query):
            self._jobs.setdefault(source, {})[key] = Known(_job(source, *told), seen)

    # -- what changes ------------------------------------------------------------------------------

    def put(self, source: str, jobs: Mapping[str, Job], seen: float) -> None:
        """Note jobs, each in place of what was known under its key."""
        with self._lock:
            known = self.jobs(source)
            changed = {key: job for key, job in jobs.items() if key not in known or known[key].job != job}
            # When a job that is over was last reported matters to nobody.
            noted = changed | {key: job for key, job in jobs.items() if job.end is None}
            if not noted:
                return
            with self._connection:
                self._connection.executemany(
                    "INSERT OR REPLACE INTO job (source, key, id, job_class, nodes, start, end, outcome, quiet, user, "
                    "seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [(source, key, *_row(job), seen) for key, job in noted.items()],
                )
            self._jobs.setdefault(source, {}).update(
                {key: Known(replace(job, origin=source), seen) for key, job in noted.items()}
            )
            self._changes += bool(changed)

    def drop(self, source: str, keys: set[str]) -> None:
        """Forget jobs."""
        if not keys:
            return
        with self._lock:
            self.jobs(source)
            with self._connection:
                rows = [(source, key) for key in keys]
                self._connection.executemany("DELETE FROM job WHERE source = ? AND key = ?", rows)
            for key in keys:
                self._jobs.get(source, {}).pop(key, None)
            self._changes += 1

    def forget_before(self, moment: float) -> None:
        """Forget every job that ended before a moment, epoch seconds."""
        with self._lock:
            with self._connection:
                old = self._connection.execute("DELETE FROM job WHERE end < ?", (int(moment),)).rowcount
            if old:
                self._read()
                self._changes += 1

    def forget_all(self) -> None:
        """Forget everything: the store tells better."""
        with self._lock:
            with self._connection:
                self._connection.execute("DELETE FROM job")
                self._connection.execute("DELETE FROM memory")
            self._read()
            self._changes += 1
            self.is_new = True

    # -- what a source remembers beside its jobs ---------------------------------------------------

    def memory(self, source: str) -> object:
        """Return plain data that a source remembered; None if it never did."""
        with self._lock:
            row = self._connection.execute("SELECT value FROM memory WHERE source = ?", (source,)).fetchone()
        return None if row is None else json.loads(row[0])

    def remember(self, source: str, value: object) -> None:
        """Keep plain data, in place of what was there."""
        with self._lock, self._connection:
            row = (source, json.dumps(value))
            self._connection.execute("INSERT OR REPLACE INTO memory VALUES (?, ?)", row)


def _row(job: Job) -> tuple[object, ...]:
    end = None if job.end is None else int(job.end.timestamp())
    nodes = json.dumps(job.nodes)
    return job.id, job.job_class, nodes, int(start_of(job)), end, job.outcome.value, job.quiet, job.user


def _job(  # noqa: PLR0917 - the columns of a row
    source: str, job_id: str, job_class: str, nodes: str, start: int, end: int | None, outcome: str, quiet: int,
    user: str,
) -> Job:  # fmt: skip
    return Job(
        job_id,
        job_class,
        tuple(json.loads(nodes)),
        datetime.fromtimestamp(start, UTC),
        None if end is None else datetime.fromtimestamp(end, UTC),
        Outcome(outcome),
        quiet,
        source,
        user,
    )


def runs_of(cluster: Cluster, name: str) -> tuple[tuple[str, ...], int, int]:
    """Return a job's nodes, and its first begin and last end so far, epoch seconds: one id may run several times.

    UserError if no source and no cluster.yaml knows it: what sources told is known where `clusterflow analyze` runs.
    """
    file = Path(cluster.bridge.state) / FILE
    with Register.copy_of(file.parent) as register:
        runs = [job for job in cluster.jobs if job.id == name]
        for source in cluster.job_sources:
            runs += [known.job for known in register.jobs(source.name).values() if known.job.id == name]
    if not runs:
        if not cluster.job_sources:
            raise UserError(f"--job {name}: no such job in cluster.yaml", "it has no job_sources")
        place = f"{file}{'' if file.exists() else ', which is not there'}"
        hint = "`clusterflow analyze` fills that on its own machine: ask there; `clusterflow jobs` asks the sources"
        raise UserError(f"--job {name}: no such job in cluster.yaml or {place}", hint)
    nodes = tuple(sorted({node for run in runs for node in run.nodes}))
    return nodes, int(min(map(start_of, runs))), int(min(max(map(end_of, runs)), time.time())) + 1
