"""Another cluster.yaml for a process that runs: SIGHUP asks for it, a file with faults changes nothing.

A file with prefixes that was replaced asks for it, too: whoever fetches a provider's list need not know of us; and so
does another answer of an inventory source.
What changed is logged key by key. Secrets cannot show: a `Cluster` holds where they are, never what they are.
"""

import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from types import FrameType

from app.errors import ClusterflowError
from app.log import Log
from app.signals import SignalEvent
from cluster.document import child
from cluster.dump import plain_cluster
from cluster.load import load_cluster
from cluster.model import ArchiveSettings, Cluster
from cluster.sources import watched_of

_LONGEST = 200
"""Longest value that a change repeats, in characters."""


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs.

    Attributes:
        path: YAML path such as ``thresholds.exfil_volume``; of a list the path of the list.
        old, new: the values as JSON, defaults included; None where there is none.
    """

    path: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        """Return the change on one line."""
        if self.old is None:
            return f"{self.path}: added {self.new}"
        if self.new is None:
            return f"{self.path}: removed {self.old}"
        return f"{self.path}: {self.old} -> {self.new}"


def changes(old: Cluster, new: Cluster) -> list[Change]:
    """Return what differs, in the order of the documentation; nodes of an inventory count like those of the file."""
    return plain_changes(plain_cluster(old), plain_cluster(new))


def plain_changes(old: object, new: object) -> list[Change]:
    """Return what differs between two answers of `plain_cluster`."""
    return list(_differences("", old, new))


def _differences(path: str, old: object, new: object) -> Iterator[Change]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            where = child(path, str(key))
            if key not in new:
                yield Change(where, _shown(old[key]), None)
            elif key not in old:
                yield Change(where, None, _shown(new[key]))
            else:
                yield from _differences(where, old[key], new[key])
    elif isinstance(old, list) and isinstance(new, list):
        gone, come = _without(old, new), _without(new, old)
        yield from (Change(path, _shown(item), None) for item in gone)
        yield from (Change(path, None, _shown(item)) for item in come)
        if not gone and not come:
            # Only the order: it decides where the first match wins.
            yield Change(path, _shown(old), _shown(new))
    else:
        yield Change(path, _shown(old), _shown(new))


def _without(items: list[object], others: list[object]) -> list[object]:
    """Return the items that the others do not hold, each as often as it is missing there."""
    left = Counter(map(_key, others))
    missing = []
    for item in items:
        key = _key(item)
        if left[key]:
            left[key] -= 1
        else:
            missing.append(item)
    return missing


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_LOOK_EVERY = 30
"""Seconds between two looks whether a file with prefixes was replaced, or a source gave another answer, to a bridge."""

_FIXED_ARCHIVE = ("enabled", "folder", *(one.name for one in fields(ArchiveSettings) if one.name.startswith("bucket")))

_MOST_NAMED = 20
"""Changes that the log line of a reload names; a new inventory may bring thousands."""


class Reload:
    """What a process that runs asks, now and then, for another configuration.

    Args:
        path: cluster.yaml.
        override: puts what the command line says in place of what the file says.
        log: told of what is taken up and what is refused.
        clock: tells seconds.
        beside: called with the configuration in force at each occasion: it asks inventory sources.
        look_every: seconds between two looks whether files that others write have changed.
    """

    def __init__(
        self,
        path: Path,
        override: Callable[[Cluster], Cluster],
        log: Log,
        clock: Callable[[], float] = time.monotonic,
        *,
        beside: Callable[[Cluster], None] = lambda _: None,
        look_every: float = _LOOK_EVERY,
    ) -> None:
        self._beside, self._look_every = beside, look_every
        self._path, self._override, self._log = path, override, log
        self._asked = SignalEvent()
        self._clock = clock
        self._looked = clock()
        self._seen = self._watched()

    def on_signal(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Have the file read at the next occasion: a signal handler."""
        self._asked.set()

    def asked(self, current: Cluster) -> Cluster | None:
        """Return the configuration to take up; None if nobody asked, or if the old one stays in force."""
        self._beside(current)
        if not self._asked.is_set() and not self._files_changed():
            return None
        self._asked.clear()
        own, self._seen = _states([self._path]), self._watched()
        fresh: Cluster | None = None
        with self.refusing():
            fresh = self._override(load_cluster(self._path))
        fixed = _changed(current, fresh) if fresh is not None else []
        if fresh is None or fixed:
            # Its faults hide files: once it is mended it is read again, with all that came meanwhile.
            self._seen |= own
        if fixed:
            self.refuse(f"{', '.join(fixed)} cannot change while it runs", hint="restart it")
            return None
        return fresh

    def _files_changed(self) -> bool:
        if self._clock() - self._looked < self._look_every:
            return False
        self._looked = self._clock()
        return _states(self._seen) != self._seen

    def _watched(self) -> dict[Path, tuple[int, int, int] | None]:
        with suppress(ClusterflowError):
            return _states(watched_of(self._path))
        return {}

    def refuse(self, why: str, **more: object) -> None:
        """Tell why the old configuration stays in force."""
        self._log.warning("configuration_refused", file=self._path, why=why, in_force="the one before", **more)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Have whatever goes wrong inside refuse another configuration in one line, and do no more harm."""
        try:
            yield
        except ClusterflowError as error:
            self.refuse("; ".join(error.lines()))
        except Exception as error:  # noqa: BLE001 - the stream goes on by what it has, whatever a new file does to us
            why = " ".join(f"{type(error).__name__}: {error}".split())
            self.refuse(why, hint="a defect: please report it")

    def taken_up(self, old: Cluster, new: Cluster) -> None:
        """Log which keys changed, with their values."""
        found = changes(old, new)
        more = [f"and {len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []
        what = "; ".join([*map(str, found[:_MOST_NAMED]), *more])
        self._log.line("configuration", what=what or "nothing changed")


def _states(paths: Iterable[Path]) -> dict[Path, tuple[int, int, int] | None]:
    found: dict[Path, tuple[int, int, int] | None] = {}
    for path in paths:
        found[path] = None
        with suppress(OSError):
            state = path.stat()
            found[path] = state.st_mtime_ns, state.st_size, state.st_ino
    return found


def _changed(old: Cluster, new: Cluster) -> list[str]:
    """Return the settings that differ and that a running bridge is built on."""
    found = [
        f"bridge.{name}"
        for name in ("window", "shard", "state", "metrics_listen", "metrics_token")
        if getattr(old.bridge, name) != getattr(new.bridge, name)
    ]
    found += ["collector.spool"] if old.collector.spool != new.collector.spool else []
    # Limits may change, but no hour may be let go for a bucket that nobody copies to.
    found += [f"archive.{name}" for name in _FIXED_ARCHIVE if getattr(old.archive, name) != getattr(new.archive, name)]
    return found + [name for name in ("store", "cloud") if getattr(old, name) != getattr(new, name)]


def ignore_hangups(log: Log, stop: threading.Event, command: str, cost: str) -> None:
    """Answer SIGHUP, which would end the process at once, with a line; or stop in order where a terminal is gone.

    Args:
        log: where to.
        stop: set to end in order.
        command: what runs.
        cost: what a restart costs.
    """

    def tell(_number: int, _frame: FrameType | None) -> None:
        log.warning("reload_refused", hint=f"restart `clusterflow {command}` to take up another cluster.yaml; {cost}")

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, (lambda *_: stop.set()) if sys.stdin.isatty() else tell)
