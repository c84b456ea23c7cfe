"""The file that a daemon's print plugin appends flow records to, and how it gives way to the next one.

pmacct can rotate files by itself, by times in their name; then it works that name out again for every record it prints,
a sixth of what printing one costs. So it is told one name that never changes, and that name is a link. To begin a new
file, the link is pointed elsewhere: each purge opens it anew.

A purge writes the header where it finds no file. One that looks before the link moves, and opens after it, writes none.
So the next file has its header, that which pmacct gave the file before, when the link comes to it.
"""

import contextlib
import time
from pathlib import Path

from ingest.readers_format import is_header

_HEAD_BYTES = 1 << 14
_MODE = 0o640
"""As ``files_umask`` has it for those that pmacct makes."""


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

    def begin(self) -> None:
        """Point the link to a file that is not there yet; the daemon makes it, with a header of its own. OSError."""
        self._point_to(self._fresh())

    def rotate(self) -> None:
        """Have what is printed from now on go to a new file, unless the one before holds no records. OSError."""
        header = self._header()
        if not header or self._link.stat().st_size <= len(header):
            return
        fresh = self._fresh()
        scratch = self._spool / f".{fresh.name}.new"
        scratch.write_bytes(header)
        scratch.chmod(_MODE)
        scratch.replace(fresh)
        self._point_to(fresh)

    def _fresh(self) -> Path:
        # Later than every one before, whatever the clock says: readers go by it.
        self._named = max(int(time.time()), self._named + 1)
        while (
            path := self._spool / time.strftime(f"{self._prefix}%Y%m%d-%H%M%S.csv", time.gmtime(self._named))
        ).exists():
            self._named += 1
        return path

    def _header(self) -> bytes:
        """Return the first header of the newest file, with its newline; empty if there is none."""
        with contextlib.suppress(FileNotFoundError), self._link.open("rb") as stream:
            for line in stream.read(_HEAD_BYTES).splitlines(keepends=True):
                if line.endswith(b"\n") and is_header(line):
                    return line
        return b""

    def _point_to(self, path: Path) -> None:
        scratch = self._spool / f"{self._link.name}.new"
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(path.name)
        scratch.replace(self._link)
