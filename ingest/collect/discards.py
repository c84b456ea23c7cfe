"""Datagrams that nfacctd and sfacctd discard, from their log.

They say so at level INFO, among other lines: a datagram was thrown away, or what was left of one. What comes before its
template they throw away too, and say so at level DEBUG alone, which is off.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Self

# All that pmacct 1.7.7 writes by notify_malf_packet() and SF_notify_malf_packet(), and nothing else.
_DISCARD = re.compile(
    r"(?:\S+ )?INFO \( .*?/core \): "
    r"((?:discarding|aborting malformed|(?:(?:insert|refresh)_(?:opt_)?template(?:\(\))?: )?unable to read) .*?)"
    r": [ns]facctd=\S+ agent=(\S+):\d+"
)

_REPEAT_SECONDS = 600.0
"""From one report of a daemon to the next: an exporter may send such datagrams for ever."""

_KINDS = 64
"""Agents and reasons whose first datagram is reported at once: sFlow agents name themselves, a flood can bring any."""


@dataclass(frozen=True, slots=True)
class Discard:
    """An agent's datagrams of which something was thrown away, for one reason."""

    agent: str
    reason: str
    count: int

    @classmethod
    def read(cls, line: str) -> Self | None:
        """Return what a line of pmacct's log tells; None if it is of something else."""
        # Most lines are of something else, and there may be thousands a second of either.
        match = _DISCARD.match(line) if " agent=" in line else None
        return None if match is None else cls(match[2], match[1], 1)


@dataclass(slots=True)
class Discards:
    """What one daemon has thrown away so far: how often, and which of it is to be reported."""

    count: int = 0
    _known: set[tuple[str, str]] = field(default_factory=set)
    _untold: Counter[tuple[str, str]] = field(default_factory=Counter)
    _told: float = 0.0

    def take(self, one: Discard) -> None:
        """Count one."""
        self.count += one.count
        kind = one.agent, one.reason
        if kind in self._untold or len(self._untold) < _KINDS:
            self._untold[kind] += one.count

    def due(self, now: float) -> list[Discard]:
        """Return what to report now: new agents and reasons, else once in a while the most frequent one.

        Args:
            now: in seconds, monotonic.
        """
        kinds = [kind for kind in self._untold if kind not in self._known][: _KINDS - len(self._known)]
        self._known.update(kinds)
        if kinds:
            self._told = now
            return [Discard(*kind, self._untold.pop(kind)) for kind in kinds]
        if not self._untold or now - self._told < _REPEAT_SECONDS:
            return []
        self._told = now
        ((kind, count),) = self._untold.most_common(1)
        self._untold.clear()
        return [Discard(*kind, count)]
