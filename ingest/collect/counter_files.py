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
        self._named = 0

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
        # Later than every one before, whatever the clock says: the bridge may delete those with a successor.
        there = (path.stem.removeprefix(PREFIX) for path in self.folder.glob(f"{PREFIX}*.json"))
        last = max((int(moment) for moment in there if moment.isdecimal()), default=0)
        self._named = max(int(time.time()), last + 1, self._named)
        scratch = self.folder / f".{LINK}.new"
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(f"{PREFIX}{self._named}.json")
        scratch.replace(self.folder / LINK)
