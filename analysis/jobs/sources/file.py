"""Job windows from files: cluster.yaml, and JSON or CSV files of other programs. Read when they change.

A file that is broken changes nothing: the jobs of its last good version stay, and the trouble is reported until it is
mended. Whoever writes such a file should write another one and rename it; one that is seen half written is read again.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar
from zoneinfo import ZoneInfo

from analysis.jobs.job_records import read_csv, read_json
from analysis.jobs.job_source import Around, Source
from analysis.jobs.job_windows import end_of
from analysis.jobs.register import Register, key_of
from app.errors import ConfigError, Problem
from app.log import Log
from cluster.load import load_cluster
from cluster.model import Cluster, FileJobs, Job

HALF_WRITTEN = 2.0
"""Seconds for which a broken file may be one that is still being written."""

T = TypeVar("T")
Version = tuple[int, int, int]


def version_of(path: Path) -> Version | None:
    """Return what changes when a file does: time, size, inode; None where there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def text_of(path: Path) -> str:
    """Return the text of a UTF-8 file; ConfigError if there is no such text."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        value = (error.strerror or "cannot be read").lower()
    except UnicodeDecodeError as error:
        value = f"byte {error.start} is not UTF-8"
    raise ConfigError(str(path), [Problem("", value, "a file that can be read, in UTF-8")])


def in_one_line(error: ConfigError) -> str:
    """Return the first fault, and how many more there are."""
    first, *rest = error.lines()
    # The last line counts them; the first may tell of many already.
    return f"{first} (and {len(rest) - 1} more)" if len(rest) > 1 else first


@dataclass
class Watched(Generic[T]):
    """A file, and what its last good version said.

    Args:
        path: the file.
        read: reads it; ConfigError where it is broken.
        take: is given what a good version says.
    """

    path: Path
    read: Callable[[Path], T]
    take: Callable[[T], None]
    _version: Version | None = (0, 0, 0)
    _trouble: str = ""

    def refresh(self, now: float) -> str:
        """Read the file if it changed; return what is wrong with it."""
        version = version_of(self.path)
        if version == self._version:
            return self._trouble
        try:
            found = self.read(self.path)
        except ConfigError as error:
            if version is not None and now - version[0] / 1e9 < HALF_WRITTEN:
                return self._trouble
            self._trouble = in_one_line(error)
        else:
            self._trouble = ""
            self.take(found)
        self._version = version
        return self._trouble


class FileSource:
    """A JSON or CSV file, by its suffix.

    Args:
        settings: name and path.
        register: where its jobs go; what the file no longer has is forgotten.
        zone: of times without an offset.
        keep: seconds of the raw retention: no job is taken in that was over before.
    """

    def __init__(self, settings: FileJobs, register: Register, zone: ZoneInfo, keep: float) -> None:
        self.name = settings.name
        self._register, self._zone, self._keep = register, zone, keep
        self._seen = 0.0
        self._watched = Watched(Path(settings.path), self._read, self._take)

    def start(self) -> None:
        """Nothing: it is looked at when it is asked."""

    def stop(self) -> None:
        """Nothing was begun."""

    def refresh(self, now: float) -> str:
        """Read the file if it changed."""
        self._seen = now
        return self._watched.refresh(now)

    def _read(self, path: Path) -> tuple[Job, ...]:
        read = read_csv if path.suffix.lower() == ".csv" else read_json
        return read(text_of(path), str(path), self._zone)

    def _take(self, found: tuple[Job, ...]) -> None:
        jobs = {key_of(job): job for job in found}
        known = self._register.jobs(self.name)
        # Of what was over before, no window is kept that could be judged.
        taken = {key: job for key, job in jobs.items() if key in known or end_of(job) >= self._seen - self._keep}
        self._register.drop(self.name, set(known) - jobs.keys())
        self._register.put(self.name, taken, self._seen)


@dataclass
class ClusterYaml:
    """The jobs that cluster.yaml lists; they are read again when the file changes, nothing else of it is.

    Args:
        cluster: as it was read at the start.
        path: of the file; None: it is not looked at again.
        log: told when more than jobs changed.
    """

    cluster: Cluster
    path: Path | None
    log: Log
    jobs: tuple[Job, ...] = field(init=False)
    _watched: Watched[Cluster] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.jobs = self.cluster.jobs
        if self.path is not None:
            # Read once more: a stand-by may have waited for days since the cluster was read.
            self._watched = Watched(self.path, load_cluster, self._take)

    def refresh(self, now: float) -> str:
        """Read the file again if it changed."""
        return "" if self._watched is None else self._watched.refresh(now)

    def _take(self, found: Cluster) -> None:
        is_other_source = not found.job_sources and bool(found.jobs) != bool(self.cluster.jobs)
        if is_other_source or replace(found, jobs=()) != replace(self.cluster, jobs=()):
            hint = "jobs are taken over; restart the analysis for everything else"
            self.log.line("cluster_changed", file=os.fspath(self.path or ""), what=hint)
        self.jobs = found.jobs


def source(one: FileJobs, at: Around) -> Source:
    """Return the source of these settings."""
    return FileSource(one, at.register, at.zone, at.keep)
