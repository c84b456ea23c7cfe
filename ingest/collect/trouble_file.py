"""What befell the daemons lately, as the collector notes it for the bridge: a small file in the spool.

Who sent datagrams that would have killed nfacctd, and which daemon died. A store is not the collector's business.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME, GUARDS = ".collector.state", ".guard.state"
"""Beside the files of flows, and named as none of them: the collector's, and that of `clusterflow guard`, as root."""

TAGS, GUARDS_TAGS = ".collector.tags.state", ".guard.tags.state"
"""The same, of what sfacctd does not read: that endangers no daemon."""

REFUSED, DIED = "refused", "died"
UNLISTED = "unlisted"
"""Stands for all senders that cluster.yaml does not name: anybody can forge as many as there are addresses."""

LATELY = 900
"""Seconds for which it is told."""

_VERSION = 1
_VOLLEY = 10
"""Seconds within which the same counts as one event."""
_MOST = 200
"""Events that the file holds; the oldest go first."""


class Troubles:
    """The writing side.

    Args:
        folder: the spool.
        clock: epoch seconds.
        name: of the file.
    """

    def __init__(self, folder: Path, clock: Callable[[], float], name: str = NAME) -> None:
        self._path = folder / name
        self._clock = clock
        self._events = [(at, what, who, count) for at, what, who, count in _read(self._path) if at > clock() - LATELY]

    def add(self, what: str, who: str, count: int) -> None:
        """Note it at once. A disk that is full costs the note, not the daemon."""
        at, last = round(self._clock()), self._events[-1] if self._events else None
        # What comes in volleys is one event: the file holds a bounded number of them.
        if last and (what, who) == last[1:3] and 0 <= at - last[0] < _VOLLEY:
            self._events[-1] = (last[0], what, who, last[3] + count)
        else:
            self._events = [*self._events, (at, what, who, count)][-_MOST:]
        fresh = self._path.with_name(f"{self._path.name}.new")
        with suppress(OSError):
            fresh.write_text(json.dumps({"version": _VERSION, "events": self._events}), encoding="utf-8")
            fresh.replace(self._path)


def lately(folder: Path, now: float, names: Sequence[str] = (NAME, GUARDS)) -> Mapping[str, int]:
    """Return how often what befell whom within `LATELY` seconds before now: "refused leaf-1" -> datagrams.

    Args:
        folder: the spool; where it holds no such file, nothing did.
        now: epoch seconds.
        names: of the files.
    """
    found: dict[str, int] = {}
    for at, what, who, count in (event for name in names for event in _read(folder / name)):
        if now - LATELY < at <= now + LATELY:
            found[f"{what} {who}"] = found.get(f"{what} {who}", 0) + count
    return found


def _read(path: Path) -> list[tuple[float, str, str, int]]:
    with suppress(OSError, ValueError, KeyError, TypeError):
        document: dict[str, Any] = json.loads(path.read_bytes())
        if document["version"] == _VERSION:
            return [(float(at), str(what), str(who), int(count)) for at, what, who, count in document["events"]]
    return []
