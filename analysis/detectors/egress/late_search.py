"""The search for late matches, beside the live analysis: when a feed lists something new, the past is searched.

What a feed listed when the past was last searched is kept in a file of the state folder. What was reported stands in
the store, in a retention that keeps it for years. So neither a restart nor a feed that drops an entry and takes it up
again reports anything twice; without the file everything is searched again, and only what was never reported is.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from analysis.detectors.egress import late_matches
from analysis.detectors.egress.late_matches import Past, listed_anew
from app.errors import StoreError
from app.log import Log
from app.units import format_moment
from cluster.model import Cluster
from enrichment.feeds.feed import Feed, Refused
from enrichment.feeds.feed_files import FeedFile
from store import schema
from store.influx import Store
from store.points import batches

_LOOK_SECONDS = 5.0

_BRIDGE_SECONDS = 120.0
"""Seconds that bridges get to take up a feed after we have seen it: from then on they report it as it happens."""

_SETTLED_SECONDS = 30
"""Beyond the bridge's lateness and flush: when all measurements of a window are surely written."""

_FILE = "searched-{}.arrow"


class LateSearch:
    """Searches the past for what feeds newly list.

    Args:
        cluster: its feeds.
        store: searched, and written to; used by one thread at a time.
        folder: `bridge.state`.
        log: for what was found.
        patience: seconds that bridges get to take up a changed feed.
        clock: the time of day, epoch seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        folder: Path,
        log: Log,
        *,
        patience: float = _BRIDGE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._folder, self._log = store, folder, log
        self._patience, self._clock = patience, clock
        self._past = Past(cluster, store)
        self._look_back = cluster.thresholds.threat_look_back
        self._settled = cluster.bridge.lateness + cluster.bridge.flush + cluster.bridge.window + _SETTLED_SECONDS
        refused = Refused(cluster)
        self._files = [FeedFile(feed, refused) for feed in cluster.threat_feeds] if self._look_back else []
        self._forget_others()
        self._changed: dict[str, float] = {}
        self._due: dict[str, tuple[float, Feed]] = {}

    @property
    def has_feeds(self) -> bool:
        """Whether there is anything to search for."""
        return bool(self._files)

    def look(self) -> int:
        """Read feeds that have changed, and search for what is new in them when it is time; return rows written.

        Raises:
            StoreError: the store does not answer; the next look does it all.
            OSError: what was searched for cannot be noted; it is searched for again.
        """
        now = self._clock()
        for file in self._files:
            if file.refresh():
                self._changed[file.name] = now
            if file.name not in self._due:
                self._wait_for(file)
        due = {name: feed for name, (at, feed) in self._due.items() if at <= now}
        return self._search(due, now) if due else 0

    def _wait_for(self, file: FeedFile) -> None:
        """Let the newest version of a feed be searched for when bridges have it.

        It is that version, whatever comes meanwhile, or one that is replaced every minute would never be searched for.
        """
        changed = self._changed.pop(file.name, None)
        if changed is not None and file.value is not None:
            self._due[file.name] = changed + self._patience, file.value

    def _search(self, feeds: dict[str, Feed], now: float) -> int:
        fresh = [(name, listed_anew(feed, self._searched(name))) for name, feed in feeds.items()]
        fresh = [(name, feed) for name, feed in fresh if len(feed)]
        written = 0
        if fresh:
            stop = int(now - self._settled)
            found = self._past.matches(fresh, stop - self._look_back, stop)
            written = self._write(found, int(now))
            self._tell(fresh, found, stop)
        for name, feed in feeds.items():
            self._note(name, feed)
            del self._due[name]
        return written

    def _write(self, found: pl.DataFrame, moment: int) -> int:
        # The retention that keeps it last: what it has is never told again.
        for rows, retention in ((late_matches.digest(found), schema.RAW), (found, schema.HOUR)):
            for lines, _ in batches(schema.THREAT, late_matches.at(rows, moment)):
                self._store.write(lines, retention)
        return found.height

    def _tell(self, fresh: list[tuple[str, Feed]], found: pl.DataFrame, stop: int) -> None:
        self._log.line(
            "late_search",
            feeds=", ".join(name for name, _ in fresh),
            new_entries=sum(len(feed) for _, feed in fresh),
            since=format_moment(stop - self._look_back),
            late_matches=found.height,
        )

    # -- what was searched for -----------------------------------------------------------------------

    def _forget_others(self) -> None:
        """Forget feeds that are none of ours: one that is put back is searched for whole, with what came meanwhile."""
        kept = {_FILE.format(file.name) for file in self._files}
        for path in self._folder.glob(_FILE.format("*")):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def _searched(self, name: str) -> list[pl.DataFrame]:
        """Return what a feed listed when it was last searched for; nothing where that is not known."""
        path = self._folder / _FILE.format(name)
        try:
            return [pl.read_ipc(path.read_bytes())]
        except FileNotFoundError:
            return []
        except (OSError, pl.exceptions.PolarsError) as error:
            why = " ".join(str(error).split())[:200]
            self._log.warning("late_search_restarted", feed=name, why=f"{path}: {why}")
            return []

    def _note(self, name: str, feed: Feed) -> None:
        path = self._folder / _FILE.format(name)
        beside = path.with_suffix(".new")
        self._folder.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            feed.identity().unique().write_ipc(file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)


class LateSearching:
    """A search that goes on beside the analysis, in a thread and with a connection of its own.

    Args:
        cluster: see `LateSearch`.
        folder: see there.
        log: see there.
        patience: see there.
    """

    def __init__(self, cluster: Cluster, folder: Path, log: Log, *, patience: float = _BRIDGE_SECONDS) -> None:
        self._store = Store(cluster.store)
        self._log = log
        self._search = LateSearch(cluster, self._store, folder, log, patience=patience)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, where there are feeds."""
        if self._search.has_feeds:
            self._thread = threading.Thread(target=self._run, name="late-search", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End. A question that is under way is waited for, but not for long."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_LOOK_SECONDS)
        self._store.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._search.look()
            except StoreError as error:
                self._log.sparse("late_search_delayed", why=" ".join(error.lines()))
            except OSError as error:
                self._log.sparse("late_search_delayed", why=str(error), hint="make room in bridge.state; tried again")
            except Exception as error:  # noqa: BLE001 - the analysis goes on, whatever becomes of the search
                why = " ".join(f"{type(error).__name__}: {error}".split())
                self._log.sparse("late_search_failed", why=why, hint="tried again; please report it")
            self._stopping.wait(_LOOK_SECONDS)
