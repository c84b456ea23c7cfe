"""The log of configuration changes: a line for each start or reload that saw another configuration than the last one.

The bridge and the analysis keep it; collector, relay and workers of a Kafka group do not.

Beside the log lies what each process saw last; neither holds a secret, since a `Cluster` holds none.
"""

import fcntl
import getpass
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from cluster.changes import Change, plain_changes
from cluster.dump import plain_cluster
from cluster.errors import ClusterflowError
from cluster.model import Cluster
from cluster.sources import files_of

LOG = "config-log.jsonl"
SEEN = "config-seen-{}.json"
_MOST_UNTOLD = 20
_MOST = 1_000
"""Changes that a record repeats: a new inventory of thousands of nodes is told by their number."""

FIRST = "first start"
"""What a record says of a process that has seen no configuration before."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the log.

    Attributes:
        time: epoch seconds.
        user: who runs the process; and, after a slash, who asked for it by sudo.
        process: ``ingest``, the bridge, or ``analyze``.
        version: of clusterflow.
        file: path of cluster.yaml.
        sha256: of cluster.yaml and of each file that it names, by path relative to its folder.
        total: how many keys changed; 0 where only comments or the form did.
        changes: of these at most 1,000.
        note: why there is nothing to compare with; empty where there is.
    """

    time: int
    user: str
    process: str
    version: str
    file: str
    sha256: dict[str, str]
    total: int
    changes: tuple[Change, ...]
    note: str = ""

    def summary(self) -> str:
        """Return what changed, in a few words."""
        if self.note:
            return self.note
        if not self.total:
            return "comments or form only"
        named = ", ".join(change.path for change in self.changes[:3])
        return named if self.total <= 3 else f"{named} and {self.total - 3} more"


def note_configuration(folder: Path, process: str, cluster: Cluster, file: Path) -> Record | None:
    """Add a line to the log in a state folder if this process last saw another configuration, and return it.

    Args:
        folder: made if missing.
        process: whose last configuration to compare with.
        cluster: as it is in force from now on.
        file: where it was loaded from.

    Raises:
        ClusterflowError: the folder cannot be written.
    """
    sha256 = {os.path.relpath(path, file.parent): _sha256(path) for path in files_of(file)}
    seen = {"cluster": plain_cluster(cluster), "sha256": sha256}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Held until the log and what was seen agree: services start at the same moment.
        with _opened(folder / LOG) as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            before = _read(folder / SEEN.format(process))
            if before == seen:
                return None
            record = _record(process, file, before, seen)
            _append(log.fileno(), json.dumps(asdict(record)) + "\n")
            _replace(folder / SEEN.format(process), json.dumps(seen))
    except OSError as error:
        raise ClusterflowError(
            f"{folder}: the log of configuration changes cannot be written: {error.strerror}",
            "make the folder writable for this user, or set bridge.state",
        ) from error
    return record


def newest(folder: Path, process: str) -> list[Record]:
    """Return the last records of a process, oldest first: what a start has to store.

    More than the last one, since a process may have ended before the store was there. To store one again changes
    nothing.
    """
    return [record for record in read_log(folder) if record.process == process][-_MOST_UNTOLD:]


def read_log(folder: Path) -> list[Record]:
    """Return all records of a state folder, oldest first; a line that a crash cut short is left out."""
    try:
        lines = (folder / LOG).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ClusterflowError(f"{folder / LOG}: {error.strerror}") from error
    return [record for line in lines for record in _parsed(line)]


def _record(process: str, file: Path, before: dict[str, Any] | None, seen: dict[str, Any]) -> Record:
    found: list[Change] = []
    if before is not None:
        found = plain_changes(before["cluster"], seen["cluster"])
        old, new = ({name: sha for name, sha in one["sha256"].items() if name != file.name} for one in (before, seen))
        found += plain_changes({"files": old}, {"files": new})
    return Record(
        int(time.time()),
        _user(),
        process,
        _version(),
        str(file),
        seen["sha256"],
        len(found),
        tuple(found[:_MOST]),
        FIRST if before is None else "",
    )


def _parsed(line: str) -> list[Record]:
    try:
        data = json.loads(line)
        return [Record(**data | {"changes": tuple(Change(**change) for change in data["changes"])})]
    except (ValueError, TypeError, KeyError):
        return []


def _read(path: Path) -> dict[str, Any] | None:
    """Return what was seen last; None where nothing was, or a file that is no such thing."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(data, dict) or data.keys() != {"cluster", "sha256"}:
        return None
    return data if all(isinstance(part, dict) for part in data.values()) else None


def _opened(path: Path) -> IO[bytes]:
    # For the group too, so that a person of it can read it; nobody else.
    return os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640), "rb", buffering=0)


def _append(log: int, line: str) -> None:
    """Add a line to a file that is open and locked: all of it, or nothing and the OSError."""
    size = os.fstat(log).st_size
    # What a crash cut short must not swallow this line too.
    is_cut = size and os.pread(log, 1, size - 1) != b"\n"
    data = (b"\n" if is_cut else b"") + line.encode()
    try:
        while data:
            data = data[os.write(log, data) :]
        os.fsync(log)
    except OSError:
        os.ftruncate(log, size)
        raise


def _replace(path: Path, text: str) -> None:
    scratch = path.with_suffix(".new")
    scratch.unlink(missing_ok=True)
    # Readable for whom the log is.
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    scratch.replace(path)


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"


def _user() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container's user may have no name.
        user = f"uid {os.getuid()}"
    asked = os.environ.get("SUDO_USER", "")
    return f"{user}/{asked}" if asked else user


def _version() -> str:
    try:
        return version("clusterflow")
    except PackageNotFoundError:
        return "unknown"
