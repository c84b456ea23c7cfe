"""How long a worker may believe that its partitions are still its own.

Brokers give the partitions of a member that they have not heard for the session timeout to others. A process that was
stopped for minutes and goes on does not know that yet: what it was about to write would stand over its successor's
newer totals. So each batch of points is written only while somebody has looked for news of the group within the session
timeout, and never again once that was not so in between.

What is left is a request that was on its way when the process was stopped, or that InfluxDB left lying: a successor
therefore writes what it took over once more, when such a request must have come to its end.
"""

import time

from app.errors import ClusterflowError


class LeaseError(ClusterflowError):
    """The partitions may belong to another worker by now."""


class Lease:
    """Renewed by the thread that polls, checked by the one that writes.

    Args:
        seconds: the session timeout.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._renewed = _now()
        self._broken = 0

    def renew(self) -> None:
        """Note that the group has just been asked for news."""
        now = _now()
        if now - self._renewed >= self._seconds:
            self._broken += 1
        self._renewed = now

    def end(self) -> None:
        """End the term: what is being written for it is not written on."""
        self._broken += 1

    @property
    def term(self) -> int:
        """A number that changes whenever the lease ran out."""
        return self._broken

    def check(self, term: int) -> None:
        """Do nothing while the lease of this term holds.

        Raises:
            LeaseError: it ran out.
        """
        if term != self._broken or _now() - self._renewed >= self._seconds:
            raise LeaseError(f"the group was not asked for news for {self._seconds:.0f} s")


def _now() -> float:
    # Goes on while the machine sleeps.
    return time.clock_gettime(time.CLOCK_BOOTTIME)
