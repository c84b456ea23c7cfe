"""How many nfacctd a site needs, where cluster.yaml leaves it to `collect`.

nfacctd's plugin process fills its core first; then its queue runs over, and records are lost. So a daemon's load is the
share of a minute in which its busiest process ran, or waited for a core. The peak of each day is kept in the spool.
nfacctd itself seldom says that its queue ran over: of the fourth time within 65,536 of its buffers, and a queue of ours
holds half a million (`rg_err_count` in its plugins).
"""

import json
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cluster.model import Cluster
from cluster.sections.collector import MOST_DAEMONS
from ingest.collect.pmacct import NFACCTD

NAME = ".nfacctd.load"
"""In the spool, named as no file of flows."""

FULL = 0.7
"""Share of a core that a daemon may take in its busiest minute: the rest is for bursts within the minute."""

_SATURATED = 0.9
_DAYS = 7
_DAY_SECONDS = 86_400
_TICKS = os.sysconf("SC_CLK_TCK")


class DaemonLoad:
    """What the nfacctd of a collector take, now and in the days before.

    Args:
        folder: the spool.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._before: Mapping[int, Mapping[int, float]] = {}
        self._since = 0.0
        self.is_full = False
        """Whether one of them had more to do, all through the last minute, than a process can."""
        self.now = 0.0
        """Cores that all daemons took in the last minute measured: the sum of their busiest processes."""

    def measure(self, members: Mapping[int, Mapping[int, float]], at: float) -> None:
        """Take a measurement and compare it with the one before; call it once a minute.

        Args:
            members: for each daemon, its processes with the seconds that each ran or waited for a core
                (`busy_seconds`). A process that is not in both measurements does not count: those that print live for
                a second.
            at: monotonic seconds.
        """
        if self._before and at > self._since:
            seconds = at - self._since
            loads = [
                max((busy - before[pid] for pid, busy in now.items() if pid in before), default=0.0) / seconds
                for daemon, now in members.items()
                if (before := self._before.get(daemon)) is not None
            ]
            self.now, self.is_full = sum(loads), max(loads, default=0.0) >= _SATURATED
            self._keep()
        self._before, self._since = members, at

    def _keep(self) -> None:
        peaks, today = self._peaks(), _today()
        if self.now > peaks.get(today, 0.0):
            peaks[today] = round(self.now, 3)
            fresh = self._path.with_name(f"{self._path.name}.new")
            # A disk that is full costs the note, not the daemons.
            with suppress(OSError):
                fresh.write_text(json.dumps(peaks), encoding="utf-8")
                fresh.replace(self._path)

    def _peaks(self) -> dict[int, float]:
        """Return the peak of each of the last days, by its number."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return {int(day): float(peak) for day, peak in found.items() if _today() - int(day) < _DAYS}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def daemons(self, cluster: Cluster) -> int:
        """Return how many nfacctd the busiest minute of the last 7 days needs: at most one a core and an exporter."""
        needed = math.ceil(max(self._peaks().values(), default=0.0) / FULL)
        exporters = len(NFACCTD.exporters(cluster)) if cluster.exporters else needed
        return max(1, min(needed, MOST_DAEMONS, len(os.sched_getaffinity(0)), exporters))


def busy_seconds(pid: int, ticks: int) -> float:
    """Return for how long a process ran, or waited for a core; where the kernel does not tell, what its ticks say."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
        return (int(ran) + int(waited)) / 1e9
    except (OSError, ValueError):
        return ticks / _TICKS


def _today() -> int:
    return int(time.time()) // _DAY_SECONDS
