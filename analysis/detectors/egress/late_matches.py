"""Late matches: stored traffic with addresses that a feed lists only afterwards.

Two measurements know outside addresses of the past: `egress` what left, whichever side opened the conversation, and
`inference` what clients asked. Their hours tell which addresses there were; of those that new entries hold, minutes
are read. What was reported as it happened is taken off, minute by minute, so that a conversation that went on while a
feed came in use is reported in two parts, and no byte twice.

An entry counts also for what was sent before it was listed: that is what a late match is. It does not count for what
was sent after its end.

Only conversations that the rule would have reported as they happened are reported late: those that brought more than
`threat_bytes` within some `threat_window`. All that the others brought in a month, such as answers to scanners that
knock every day, is no measure of what the rule compares.

The search runs beside the live analysis. What a feed listed when the past was last searched is kept in a file of the
state folder; what was reported stands in the store, in a retention that keeps it for years. So neither a restart nor a
feed that drops an entry and takes it up again reports anything twice; without the file everything is searched again.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from analysis.beside import Beside
from app.log import Log
from app.units import format_moment
from cluster.model import Cluster
from enrichment.addresses.prefixes import address_keys
from enrichment.feeds.feed import Feed, Refused
from enrichment.feeds.feed_files import FeedFile
from enrichment.feeds.threats import END, POSITION, in_force, listings_in
from store import schema
from store.influx import Store
from store.influxql import Condition, Select, count, highest, is_in, not_in
from store.points import WINDOW, batches, columns
from store.schema import Measurement
from store.sums import binned

SHARD = "analysis"
"""Value of SHARD in late rows: no bridge rolls them up."""

_MINUTE, _HOUR, _WEEK = 60, 3_600, 7 * 86_400
_MILLI = 1000
_AT_ONCE = 50
"""Addresses of which minutes are read at once."""
_NAMED = 200
"""Conversations of a direction that have rows of their own where rules look, the largest; the rest is `other`."""

_VOLUME = (schema.BYTES, schema.PACKETS, schema.FLOWS, schema.DURATION)
_NAMES = [field.name for field in _VOLUME]
_TALK = schema.CONVERSATION
_TOLD = [schema.DIRECTION, schema.SRC, schema.DST, schema.PROTO, schema.SERVICE]
_PLACE = [schema.COUNTRY, schema.NETWORK]
_SEEN = schema.SEEN_AT.name
_ROW, _LIVE, _UNTIL = "row", "_live", "until"

Named = Sequence[tuple[str, Feed]]
"""Feeds with their names."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One direction: where its traffic is stored, and at which end the outside address stands."""

    direction: str
    measurement: Measurement
    end: str


_WAYS = (
    _Way(schema.OUTWARD, schema.EGRESS, schema.DST),
    _Way(schema.INWARD, schema.INFERENCE, schema.SRC),
)


class Past:
    """What a store holds of traffic with the outside.

    Args:
        cluster: its nodes, whose names stand for addresses in the store, and its thresholds.
        store: asked.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._store = store
        self._addresses = {node.name: [str(one.address) for one in node.addresses] for node in cluster.nodes}
        self._keep = cluster.store.keep_1m
        self._strangers = cluster.stranger_ids()
        self._least, self._window = cluster.thresholds.threat_bytes, cluster.thresholds.threat_window

    def matches(self, feeds: Named, start: int, stop: int) -> pl.DataFrame:
        """Return what was exchanged with listed addresses in whole minutes of [start, stop), and never told.

        It is only of conversations of which some window is worth an alert.

        Args:
            feeds: what is searched for.
            start: epoch seconds; minutes that are not kept any more do not count.
            stop: epoch seconds, when everything before is stored.

        Returns:
            Rows of THREAT without WINDOW and SHARD, one a conversation, direction and listing.

        Raises:
            StoreError: the store does not answer.
        """
        last = stop // _MINUTE * _MINUTE
        first = -(-max(start, stop - self._keep) // _MINUTE) * _MINUTE
        found = [self._way(way, feeds, first, last) for way in _WAYS]
        rows = pl.concat(found)
        told = self._told()
        fresh = rows.join(told, on=_TOLD, how="left", nulls_equal=True).filter(
            pl.col(_UNTIL).is_null() | (pl.col(WINDOW) > pl.col(_UNTIL))
        )
        listing = [schema.CONFIDENCE.name, schema.LISTED_SINCE.name, schema.KNOWN_SINCE.name]
        latest = pl.col(schema.FEED, schema.INDICATOR, *_PLACE, *listing).sort_by(WINDOW).last()
        return (
            self._worth_telling(fresh)
            .group_by(*_TALK, schema.DIRECTION)
            .agg(pl.sum(*_NAMES), latest, pl.max(WINDOW).alias(_SEEN))
            .with_columns(pl.lit(schema.YES).alias(schema.LATE))
            .sort(schema.BYTES.name, *_TALK, descending=[True, *([False] * len(_TALK))])
        )

    def _worth_telling(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the minutes of conversations of which a window, from a multiple of its length on, is above it."""
        talk = [*_TALK, schema.DIRECTION]
        windows = rows.group_by(*talk, pl.col(WINDOW) // self._window).agg(pl.sum(schema.BYTES.name))
        told = windows.filter(pl.col(schema.BYTES.name) > self._least).select(talk).unique()
        return rows.join(told, on=talk, how="semi", nulls_equal=True)

    def _way(self, way: _Way, feeds: Named, start: int, stop: int) -> pl.DataFrame:
        ends = self._ends(way, start, stop)
        spelled = [(end, address) for end in ends for address in self._addresses.get(end, [end])]
        keys, is_address = address_keys([address for _, address in spelled])
        names = np.array([end for end, _ in spelled], np.object_)[is_address]
        listed = listings_in(feeds, keys[is_address])
        of_ends = pl.Series(way.end, names[listed.get_column(POSITION).to_numpy()].tolist(), pl.String)
        listed = listed.drop(POSITION).with_columns(of_ends).filter(pl.col(END) > start)
        wanted = sorted(set(listed.get_column(way.end)))
        parts = [self._untold(way, wanted[at : at + _AT_ONCE], start, stop) for at in range(0, len(wanted), _AT_ONCE)]
        rows = pl.concat([_nothing(), *parts]).with_row_index(_ROW)
        holding = rows.select(_ROW, WINDOW, way.end).join(listed, on=way.end).filter(pl.col(END) > pl.col(WINDOW))
        found = rows.join(in_force(holding, [_ROW]), on=_ROW).drop(_ROW)
        return found.with_columns(pl.lit(way.direction).alias(schema.DIRECTION))

    def _ends(self, way: _Way, start: int, stop: int) -> list[str]:
        """Return the outside ends that are told apart, as they stand in the store."""
        found: set[str] = set()
        # The newest hours may not be rolled up yet.
        recent = max(stop - 2 * _HOUR, start)
        spans = [(schema.HOUR, at, min(at + _WEEK, stop)) for at in range(start // _HOUR * _HOUR, stop, _WEEK)]
        for retention, first, last in (*spans, (schema.RAW, recent, stop)):
            asked = Select(way.measurement, retention).take(count(schema.BYTES)).by(way.end).between(first, last)
            found |= {end for _, end, _ in self._store.rows(asked)}
        return sorted(found - {"", schema.OTHER})

    def _untold(self, way: _Way, ends: Sequence[str], start: int, stop: int) -> pl.DataFrame:
        """Return minutes of conversations with some ends, less what was reported live: `_nothing`'s columns."""
        where = [is_in(way.end, sorted(ends))]
        if way.direction == schema.OUTWARD:
            where.append(not_in(schema.SRC_GROUP, self._strangers))
        sent = self._minutes(way.measurement, [*_TALK, *_PLACE], start, stop, where)
        labels = pl.col(*_PLACE).sort_by(schema.BYTES.name).last()
        minutes = sent.group_by(WINDOW, *_TALK).agg(pl.sum(*_NAMES), labels)
        where += [is_in(schema.LATE, [schema.NO]), is_in(schema.DIRECTION, [way.direction])]
        live = self._minutes(schema.THREAT, _TALK, start, stop, where).group_by(WINDOW, *_TALK)
        told = live.agg(pl.sum(*_NAMES))
        left = [
            (pl.col(name) - pl.col(f"{name}{_LIVE}").fill_null(0)).clip(lower_bound=0).alias(name) for name in _NAMES
        ]
        return (
            minutes.join(told, on=[WINDOW, *_TALK], how="left", suffix=_LIVE)
            .with_columns(left)
            .filter(pl.col(schema.BYTES.name) > 0)
            .select(_nothing().columns)
        )

    def _minutes(
        self, measurement: Measurement, tags: Sequence[str], start: int, stop: int, where: list[Condition]
    ) -> pl.DataFrame:
        """Return sums by minute: the newest hour from windows, what is before it from the minutes."""
        recent = max(stop - _HOUR, start)
        parts = [
            binned(self._store, measurement, retention, _VOLUME, tags, start=a, stop=b, seconds=_MINUTE, where=where)
            for retention, a, b in ((schema.MINUTE, start, recent), (schema.RAW, recent, stop))
        ]
        return pl.concat(parts).with_columns(pl.col(field.name).fill_null(0) for field in _VOLUME)

    def _told(self) -> pl.DataFrame:
        """Return up to when each conversation was reported late before: _TOLD and _UNTIL."""
        is_late = is_in(schema.LATE, [schema.YES])
        # What was written to one only was cut short in between.
        asked = (Select(schema.THREAT, retention).where(is_late).between() for retention in (schema.RAW, schema.HOUR))
        rows = [
            (*tags, int(until))
            for one in asked
            for _, *tags, until in self._store.rows(one.take(highest(schema.SEEN_AT)).by(*_TOLD))
        ]
        columns = {**dict.fromkeys(_TOLD, pl.String), _UNTIL: pl.Int64}
        return pl.DataFrame(rows, schema=columns, orient="row").group_by(_TOLD).agg(pl.max(_UNTIL))


def digest(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `Past.matches` as rules see them: beyond the largest of each direction, one for the rest."""
    place = pl.int_range(pl.len()).over(schema.DIRECTION)
    folded = [schema.SRC, schema.DST, schema.SERVICE, schema.INDICATOR, *_PLACE]
    is_rest = place >= _NAMED
    keys = [tag for tag in schema.THREAT.tags if tag != schema.SHARD]
    dates = [schema.LISTED_SINCE.name, schema.KNOWN_SINCE.name]
    return (
        rows.with_columns(is_rest.alias(_ROW))
        .with_columns(pl.when(_ROW).then(pl.lit(schema.OTHER)).otherwise(tag).alias(tag) for tag in folded)
        .group_by(keys, maintain_order=True)
        .agg(pl.sum(*_NAMES), pl.max(schema.CONFIDENCE.name, _SEEN), pl.min(*dates))
    )


def at(rows: pl.DataFrame, moment: int) -> pl.DataFrame:
    """Return rows as points of a moment, epoch seconds: a frame for ``encode(schema.THREAT, ...)``."""
    return rows.with_columns(pl.lit(moment, pl.Int64).alias(WINDOW), pl.lit(SHARD).alias(schema.SHARD))


def _nothing() -> pl.DataFrame:
    return pl.DataFrame(schema=columns(*_TALK, *_PLACE, *_VOLUME))


def listed_anew(feed: Feed, before: Iterable[pl.DataFrame]) -> Feed:
    """Return what a feed lists that none of these (`Feed.identity`) had."""
    columns = feed.identity().columns
    earlier = pl.concat([feed.identity().clear(), *before])
    fresh = feed.identity().with_row_index(_ROW).join(earlier, on=columns, how="anti")
    return feed.part(np.sort(fresh.get_column(_ROW).cast(pl.Int64).to_numpy()))


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
        for rows, retention in ((digest(found), schema.RAW), (found, schema.HOUR)):
            for lines, _ in batches(schema.THREAT, at(rows, moment)):
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
        store: see there.
        folder: see there.
        log: see there.
        patience: see there.
    """

    def __init__(
        self, cluster: Cluster, store: Store, folder: Path, log: Log, *, patience: float = _BRIDGE_SECONDS
    ) -> None:
        self._store = store.another()
        self._search = LateSearch(cluster, self._store, folder, log, patience=patience)
        self._beside = Beside("late_search", self._search.look, log, _LOOK_SECONDS)

    def start(self) -> None:
        """Begin, where there are feeds."""
        if self._search.has_feeds:
            self._beside.start()

    def stop(self) -> None:
        """End. A question that is under way is waited for, but not for long."""
        self._beside.stop()
        self._store.close()
