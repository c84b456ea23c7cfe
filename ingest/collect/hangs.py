"""Whether a daemon computes for ever: a record without a length is one that nfacctd 1.7.7 never gets past.

It then asks the kernel for nothing any more, while datagrams wait for it. A daemon that only has too much to do asks
for every single datagram, which is time of the kernel's.
"""

from pathlib import Path

SECONDS = 15.0
"""How long it must have been so."""

_BUSY, _SYSTEM = 0.3, 0.02
"""Least share of that time on a processor, most share of this in the kernel."""
_TICKS = 100


class HangWatch:
    """Watches one process after the other; ask it every second."""

    def __init__(self) -> None:
        self._pid = 0
        self._since = 0.0
        self._before = (0, 0)

    def is_hung(self, pid: int, now: float, *, waits: bool) -> bool:
        """Return whether a process hangs.

        Args:
            pid: of the process that reads datagrams.
            now: monotonic seconds.
            waits: whether datagrams wait for it.
        """
        ticks = _ticks(pid)
        if ticks is None or not waits or pid != self._pid:
            self._pid, self._since, self._before = (pid if waits else 0), now, ticks or (0, 0)
            return False
        if now - self._since < SECONDS:
            return False
        user, system = (after - before for after, before in zip(ticks, self._before, strict=True))
        is_busy = user + system > _BUSY * _TICKS * (now - self._since)
        self._since, self._before = now, ticks
        return is_busy and system < _SYSTEM * (user + system)


def _ticks(pid: int) -> tuple[int, int] | None:
    """Return the clock ticks that a process spent for itself, and in the kernel; None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]), int(fields[12])
