"""The file that a daemon's print plugin appends flow records to, and how it gives way to the next one.

pmacct can rotate files by itself, by times in their name; then it works that name out again for every record it prints,
a sixth of what printing one costs. So it is given one name that never changes, and that name is a link. To begin a new
file, the link is pointed elsewhere: each purge opens it again.

A purge writes the header where it finds no file. One that looks before the link moves, and opens after it, writes
none. So the next file has its header, that which pmacct gave a file before, when the link comes to it. Where the disk
was full, a file can be without one, too: it is left behind like any other.
"""

import contextlib
import fcntl
import os
import time
from datetime import UTC, datetime
from pathlib import Path

from app.errors import ClusterflowError, UserError
from ingest.read import records
from ingest.read.readers_format import is_header

_HEAD_BYTES = 1 << 14
_MODE = 0o640
"""As ``files_umask`` has it for those that pmacct makes."""

_STAMP = "%Y%m%d-%H%M%S"
_OWN = (",".join(records.PRINTED_COLUMNS) + "\n").encode()
_NEW = ".new"
_LOCK = ".collect.lock"
_CLAIM_SECONDS, _CLAIM_PAUSE = 10.0, 0.2
"""How long the daemons of a collector that was killed may take to print what they have, and end."""


def claim(spool: Path) -> int:
    """Return a lock on a spool that one collector alone has, until it is closed: two would write into one file.

    Daemons that inherit it hold it as well, as long as they live: those of a collector that was killed may still print.

    Raises:
        OSError: the spool cannot be written.
        ClusterflowError: another one has it.
        UserError: its file system has no locks.
    """
    # Not on the folder itself: that one is the bridge's.
    lock = os.open(spool / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    deadline = time.monotonic() + _CLAIM_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                os.close(lock)
                # Not the user's to mend, perhaps: what a collector left that was killed ends in time.
                raise ClusterflowError(
                    f"spool {spool}: another `clusterflow collect` writes to it, or daemons that one has left",
                    f"stop that one, or give each its own collector.spool; fuser {spool / _LOCK} names them",
                ) from error
            time.sleep(_CLAIM_PAUSE)
        except OSError as error:
            os.close(lock)
            raise UserError(
                f"spool {spool}: cannot be locked: {error.strerror}", "set collector.spool to a folder on a local disk"
            ) from error
        else:
            return lock


def link_of(spool: Path, prefix: str) -> Path:
    """Return what a daemon whose files begin with `prefix` is told to append to; no pattern of the spool matches it."""
    return spool / f".{prefix}current"


class FlowFiles:
    """The files of one daemon, and the link to the newest.

    Args:
        spool: where they are.
        prefix: how their names begin; the UTC time follows, to the second.
    """

    def __init__(self, spool: Path, prefix: str) -> None:
        self._spool = spool
        self._prefix = prefix
        self._link = link_of(spool, prefix)
        self._named = 0
        self._header = _OWN

    def begin(self) -> None:
        """Point the link to a file that is not there yet; the daemon makes it, with a header of its own. OSError."""
        for left in self._spool.glob(f".{self._prefix}*{_NEW}"):
            left.unlink(missing_ok=True)
        self._named = max([self._named, *self._moments()])
        self._point_to(self._fresh())

    def rotate(self) -> None:
        """Have what is printed from now on go to a new file, unless the one before holds no records. OSError."""
        head, size = self._head()
        header = next(
            (line for line in head.splitlines(keepends=True) if line.endswith(b"\n") and is_header(line)), b""
        )
        if header:
            self._header = header
        if size <= len(header):
            return
        fresh = self._fresh()
        scratch = self._spool / f".{fresh.name}{_NEW}"
        try:
            scratch.write_bytes(self._header)
            scratch.chmod(_MODE)
            scratch.replace(fresh)
            # A purge may have opened the file before and not written yet: readers count its age from now.
            os.utime(self._link)
            self._point_to(fresh)
        except OSError:
            # Where the disk is full, half a header may be there.
            for path in (scratch, fresh):
                path.unlink(missing_ok=True)
            raise

    def _fresh(self) -> Path:
        # Later than every one before, whatever the clock says: readers go by it.
        self._named = max(int(time.time()), self._named + 1)
        while (path := self._spool / time.strftime(f"{self._prefix}{_STAMP}.csv", time.gmtime(self._named))).exists():
            self._named += 1
        return path

    def _moments(self) -> list[int]:
        """Return the times in the names of the files that are there, epoch seconds."""
        found = []
        for path in self._spool.glob(f"{self._prefix}*.csv"):
            with contextlib.suppress(ValueError):
                moment = datetime.strptime(path.stem.removeprefix(self._prefix), _STAMP).replace(tzinfo=UTC)
                found.append(int(moment.timestamp()))
        return found

    def _head(self) -> tuple[bytes, int]:
        """Return how the newest file begins, and its size; nothing if it is not there yet."""
        with contextlib.suppress(FileNotFoundError), self._link.open("rb") as stream:
            return stream.read(_HEAD_BYTES), os.fstat(stream.fileno()).st_size
        return b"", 0

    def _point_to(self, path: Path) -> None:
        if self._link.is_file() and not self._link.is_symlink():
            # Somebody took the link away, and pmacct has made a file in its place.
            self._link.rename(self._fresh())
        scratch = self._spool / f"{self._link.name}{_NEW}"
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(path.name)
        scratch.replace(self._link)
