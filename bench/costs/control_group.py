"""CPU time of processes and of all that they start, counted by the kernel.

nfacctd's writers live for a moment and nobody waits for them: their time is in no figure of their parents'.
"""

import atexit
import contextlib
import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from app.errors import UserError

_KINDS = (("/sys/fs/cgroup/cpuacct", "cpuacct.usage"), ("/sys/fs/cgroup", "cpu.stat"))
"""Control groups of both versions: folder, file that counts."""
_numbers = itertools.count()


class ControlGroup:
    """A control group of its own, which goes when this process ends.

    Attributes:
        takes: file that takes processes and names those that are in it.

    Raises:
        UserError: none is mounted, or this is not root.
    """

    def __init__(self) -> None:
        found = next((one for one in _KINDS if (Path(one[0]) / one[1]).exists()), None)
        if found is None:
            raise UserError("no control groups that count CPU time are mounted", "mount cgroup2 on /sys/fs/cgroup")
        folder = Path(found[0]) / f"clusterflow-bench-{os.getpid()}-{next(_numbers)}"
        try:
            folder.mkdir()
        except OSError as error:
            raise UserError(f"{folder}: {error.strerror}", "run it as root") from error
        self._folder, self._counts, self.takes = folder, folder / found[1], folder / "cgroup.procs"
        atexit.register(self.close)

    def take(self, pids: Iterable[int]) -> None:
        """Have it count processes from now on; those that are gone are passed over."""
        for pid in pids:
            with contextlib.suppress(OSError):
                self.takes.write_text(f"{pid}\n")

    @property
    def seconds(self) -> float:
        """CPU seconds so far of what is or was in it."""
        name, _, micros = (text := self._counts.read_text()).partition("\n")[0].partition(" ")
        return int(micros) / 1e6 if name == "usage_usec" else int(text) / 1e9

    def close(self) -> None:
        """Remove it; one that has processes stays."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()
