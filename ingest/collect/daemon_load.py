"""How many nfacctd a site needs, where cluster.yaml leaves it to `collect`.

nfacctd's plugin process fills its core first; then its queue runs over, and records are lost. So a daemon's load is the
share of a core that its busiest process took over a minute. The peak of each day is kept in the spool.
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
        self._before: Mapping[int, Mapping[int, int]] = {}
        self._since = 0.0
        self.now = 0.0
        """Cores that all daemons took in the last minute measured: the sum of their busiest processes."""

    def measure(self, members: Mapping[int, Mapping[int, int]], at: float) -> None:
        """Take a measurement and compare it with the one before; call it once a minute.

        Args:
            members: for each daemon, its processes and the clock ticks that each has used. A process that is not in
                both measurements does not count: those that print live for a second.
            at: monotonic seconds.
        """
        if self._before and at > self._since:
            seconds = at - self._since
            self.now = sum(
                max((used - before[pid] for pid, used in now.items() if pid in before), default=0)
                for daemon, now in members.items()
                if (before := self._before.get(daemon)) is not None
            ) / (_TICKS * seconds)
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


def _today() -> int:
    return int(time.time()) // _DAY_SECONDS
