"""The file that sfacctd appends interface counters to: sfacctd knows no other than one of a fixed name.

What it knows is a link. To begin a new file, the link is pointed elsewhere and sfacctd told to open its files again
(SIGHUP), which it does before one of the next datagrams. So files are named by their time, like those of flow records,
and the bridge may delete one that has a successor: sfacctd writes to no file but the newest.
"""

import contextlib
import os
import time
from pathlib import Path

FOLDER = "counters"
"""Folder in the spool, apart from the flow records."""

LINK = "current.json"
"""What sfacctd is told to append to. Without the link it would be an ordinary file, and be read all the same."""

PREFIX = "sfacct-counters-"
"""How names of the files begin; epoch seconds follow."""


class CounterFiles:
    """The folder, and the link in it.

    Args:
        spool: where flow records go.
    """

    def __init__(self, spool: Path) -> None:
        self.folder = spool / FOLDER

    def prepare(self) -> None:
        """Make the folder, as open to others as the spool is, and begin a new file; OSError if that cannot be done."""
        spool = self.folder.parent.stat()
        self.folder.mkdir(exist_ok=True)
        if self.folder.stat().st_uid == os.geteuid():
            # The bridge may run as another user of the spool's group.
            with contextlib.suppress(OSError):
                os.chown(self.folder, -1, spool.st_gid)
            self.folder.chmod(spool.st_mode & 0o7777)
        self.begin()

    def begin(self) -> None:
        """Point the link to a file named by this second; sfacctd makes it when it has something to write."""
        scratch = self.folder / f".{LINK}.new"
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(f"{PREFIX}{int(time.time())}.json")
        scratch.replace(self.folder / LINK)
