"""Where running jobs stand, on disk: a start, or a changed cluster.yaml, goes on from there.

Else the analysis judges each job from its start again, to know what its windows hand on: minutes for a day of a large
job, half an hour for hundreds of small ones, in which nobody watches.

A file a job: its states before a window that no late record can change. All of it can be had from the store, so a
file that is missing or damaged, of another version or other settings, or of states that this clusterflow does not have,
makes the start longer and nothing else.
"""

import hashlib
import os
import pickle
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from analysis.jobs.job_windows import gpus_of, start_of
from app.errors import remedy
from app.log import Log
from app.version import own_version
from cluster.model import Cluster, Job

FOLDER = "standings"

_OURS = ("analysis.", "cluster.", "store.")
_OTHERS = {
    "datetime": {"date", "datetime", "timedelta", "timezone"},
    "zoneinfo": {"ZoneInfo._unpickle"},
    "numpy": {"dtype", "ndarray", "float32", "float64"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
}


class _OtherStatesError(Exception):
    """The file is of states that this clusterflow does not have."""


class Standings:
    """The files of one cluster.

    Args:
        state: folder in which the analysis keeps what it knows.
        cluster: whose settings jobs are judged by.
        log: for what cannot be read or written.
    """

    def __init__(self, state: Path, cluster: Cluster, log: Log) -> None:
        self._folder, self._cluster, self._log = state / FOLDER, cluster, log
        self._nodes, self._gpus = {node.name: node.group for node in cluster.nodes}, gpus_of(cluster)
        settings = (
            cluster.thresholds, cluster.groups, cluster.exporters, cluster.transport, cluster.job_classes, cluster.cost,
            cluster.bridge.window, cluster.bridge.grace, own_version(),
        )  # fmt: skip
        self._settings = repr(settings)

    def find(self, job: Job) -> object:
        """Return what was kept of a job, as it was given to `keep`; None where that is of no use any more."""
        path = self._path(job)
        try:
            with path.open("rb") as file:
                return _Unpickler(file).load() if file.readline() == self._head(job) else None
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 - what is damaged makes pickle raise errors of many kinds
            why = f"{type(error).__name__}: {error}"
            self._log.warning("standing_unread", job=job.id, why=why, what="judged from its start again")
            return None

    def keep(self, job: Job, standing: object) -> int:
        """Keep what a job's windows hand on, in place of what was kept of it; return bytes, 0 if that failed."""
        path = self._path(job)
        fresh = path.with_suffix(".new")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(self._head(job))
                _Pickler(file).dump(standing)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            fresh.replace(path)
        except OSError as error:
            hint = remedy(error, "until then a restart takes longer")
            self._log.sparse("standing_not_kept", job=job.id, why=f"bridge.state: {error}", hint=hint)
            return 0
        return size

    def forget(self, over: Iterable[Job], oldest: float) -> None:
        """Forget jobs that are over, and those that nobody knows any more: last kept before `oldest`, epoch seconds."""
        for job in over:
            _remove(self._path(job))
        for path in self._folder.glob("*"):
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    _remove(path)

    def forget_all(self) -> None:
        """Forget all jobs."""
        for path in self._folder.glob("*"):
            _remove(path)

    def _path(self, job: Job) -> Path:
        return self._folder / hashlib.sha256(f"{job.id} {start_of(job)}".encode()).hexdigest()[:32]

    def _head(self, job: Job) -> bytes:
        """Return the first line of a file: what changes with the version, and the settings that a job is judged by.

        How and when the job itself is told otherwise, whoever finds it looks at.
        """
        nodes = [(self._nodes.get(name), self._gpus.get(name)) for name in job.nodes]
        told = repr((self._settings, self._cluster.is_inferred(job), nodes))
        return hashlib.sha256(told.encode()).hexdigest().encode() + b"\n"


def _remove(path: Path) -> None:
    """Delete a file. One that stays costs room: of another job, or of one that is over, nobody reads it."""
    with suppress(OSError):
        path.unlink()


class _Pickler(pickle.Pickler):
    """Names the fields of each of our states: one that has others by now is not taken for it.

    Members of our enums are made of their values: Python 3.11.0 to 3.11.3, Debian 12's too, would call `getattr`.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, protocol=5)

    def reducer_override(self, value: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        if is_dataclass(value) and not isinstance(value, type):
            return _made, (type(value), {field.name: getattr(value, field.name) for field in fields(value)})
        if isinstance(value, Enum):
            return type(value), (value.value,)
        return NotImplemented  # type: ignore[no-any-return] # as pickle does it


class _Unpickler(pickle.Unpickler):
    """Makes numbers, texts, arrays and our states, and calls nothing else: whoever wrote the file must not run code."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == (__name__, _made.__name__):
            return _made
        is_ours = module.startswith(_OURS) and name.isidentifier()
        if is_ours or name in _OTHERS.get(module, ()):
            found = super().find_class(module, name)
            if not is_ours or (isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum))):
                return found
        raise _OtherStatesError(f"no state of ours: {module}.{name}")


def _made(kind: type, values: Mapping[str, object]) -> object:
    if values.keys() != {field.name for field in fields(kind)}:
        raise _OtherStatesError(f"other fields of {kind.__name__}")
    return kind(**values)
