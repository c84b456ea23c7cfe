"""What is read from the store: which measurements become events, from which rows, once they have settled.

A cursor a reading says until when everything was reported. From time to time the range before it is looked through once
more, for what was stored late; what was reported already is known by its id.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.log import Log
from cluster.model import Cluster, DeliverySettings, EventKind
from delivery.event import Document, Event, event_id
from store import schema
from store.influx import Store
from store.influxql import Column, Condition, Select, beside, compare, is_in, merged, newest
from store.schema import Kind, Measurement, Merge, Stage

_STEP_SECONDS = 3600
"""Longest range of one query: after a long pause there is much to catch up with."""

_SWEEP_SECONDS = 60
"""Shortest time between two looks at what was reported already."""

_BACKLOG_SECONDS = 86_400
"""How far back is looked for what a bridge, or an analysis, works off after an outage."""

_LAST_SWEEPS = 5
"""Looks before a row leaves what is looked through, at which it is reported as it stands: one may come late."""

_UNIDENTIFYING = frozenset({schema.SHARD, *schema.LABELS})
"""Tags that are no part of what a row is: they follow from its other tags, or from who wrote it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row, all shards together.

    Attributes:
        time: start of its window or bin, epoch seconds; `end` of it.
        tags: those that are not empty.
        values: field -> number or text.
    """

    time: int
    end: int
    tags: Mapping[str, str]
    values: Mapping[str, Any]
    id: str


Maker = Callable[[Row], Event | None]
"""Makes an event of a row; None where there is nothing to tell."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What becomes of one measurement.

    Attributes:
        kind: of its events.
        measurement: what is read.
        every: seconds of the bins that rows are folded into; 0: every row is reported by itself.
        make: what makes events of rows.
        where: conditions on rows.
        identity: tags that are part of what a row is, although others of their kind are not.
        lasts: seconds for which `make` may make nothing of a row yet.
        make_at_last: what makes events of rows that `make` makes nothing of until they are about to leave the range
            that is looked through once more.
    """

    kind: EventKind
    measurement: Measurement
    every: int
    make: Maker
    where: tuple[Condition, ...] = ()
    identity: tuple[str, ...] = ()
    lasts: int = 0
    make_at_last: Maker | None = None

    def query(self, start: int, stop: int) -> str:
        """Return InfluxQL for [start, stop)."""
        rows = Select(self.measurement, self.measurement.kept).where(*self.where).between(start, stop)
        rows = rows.by(*(tag for tag in self.measurement.tags if tag != schema.SHARD))
        return rows.take(*map(self._column, self.measurement.fields)).each(self.every).text()

    def _column(self, one: schema.Field) -> Column:
        if not self.every:
            return beside(one)
        return newest(one) if one.kind is Kind.STRING else merged(one)

    def identifying(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Return the tags that are part of what a row is."""
        return {tag: text for tag, text in tags.items() if tag not in _UNIDENTIFYING or tag in self.identity}


@dataclass(slots=True)
class Cursor:
    """How far a reading has been reported.

    Attributes:
        since: epoch second before which nothing is ever reported.
        until: epoch second before which everything is.
        seen: id -> time of what may be found again.
        swept_at: epoch second of the last look at what came late.
        written: epoch second up to which rows were written then; None if nothing said so.
    """

    since: int
    until: int
    seen: dict[str, int] = field(default_factory=dict)
    swept_at: float = 0.0
    written: int | None = None

    def notes(self) -> dict[str, Any]:
        """Return what must be saved together with the events."""
        return {"since": self.since, "until": self.until, "seen": self.seen, "written": self.written}


class Reader:
    """Follows one reading.

    Args:
        reading: what is read.
        cluster: named in ids, so that two clusters may deliver to one place.
        store: asked.
        noted: what `Cursor.notes` returned when it was last saved; None: begin now.
        log: for a clock that ran ahead.
    """

    def __init__(
        self, reading: Reading, cluster: Cluster, store: Store, noted: Mapping[str, Any] | None, log: Log
    ) -> None:
        self.reading, self._cluster, self._store, self._log = reading, cluster, store, log
        self._settings: DeliverySettings = cluster.delivery
        self._overlap = max(self._settings.overlap, reading.lasts)
        self._cursor: Cursor | None = None
        if noted is not None:
            since, until = int(noted["since"]), int(noted["until"])
            self._cursor = Cursor(since, until, dict(noted["seen"]), written=noted.get("written"))

    @property
    def name(self) -> str:
        """Under which its notes are kept."""
        return f"reading.{self.reading.measurement.name}"

    def poll(self, now: float) -> Iterator[tuple[list[Document], Cursor]]:
        """Yield events that are new, in order of time, each time with the cursor to save and to `adopt` with them.

        Raises:
            StoreError: the store does not answer; ask again later.
        """
        step = self.reading.every or self._cluster.bridge.window
        end = int(now - self._settings.settle) // step * step
        pause = max(_SWEEP_SECONDS, step)
        if self._cursor is None:
            self._cursor = Cursor(end, end)
        cursor = self._cursor
        if cursor.until > end + step:
            # The clock was ahead once: nothing would be reported until the present gets there.
            self._log.warning("clock_turned_back", reading=self.reading.measurement.name, seconds=cursor.until - end)
            cursor = self._cursor = Cursor(min(cursor.since, end), end, cursor.seen)
        sweeps = now - cursor.swept_at >= pause and cursor.until < end
        if sweeps:
            cursor = self._rewound(cursor, now, end, step)
        while cursor.until < end:
            stop = min(cursor.until + max(_STEP_SECONDS // step * step, step), end)
            start = max(cursor.until - self._overlap // step * step, cursor.since) if sweeps else cursor.until
            yield self._between(start, stop, cursor, now if sweeps else cursor.swept_at, _LAST_SWEEPS * pause)
            cursor, sweeps = self._cursor, False

    def adopt(self, cursor: Cursor) -> None:
        """Go on from a cursor, whose events are kept now."""
        self._cursor = cursor

    def notes(self) -> dict[str, Any] | None:
        """Return what must be saved now and then where there are no events; None before the first poll."""
        return None if self._cursor is None else self._cursor.notes()

    @property
    def reached(self) -> int:
        """Epoch second before which everything was reported; 0 before the first poll."""
        return 0 if self._cursor is None else self._cursor.until

    def behind(self, now: float) -> float:
        """Return how many seconds ago everything was reported."""
        return 0.0 if self._cursor is None else max(now - self._cursor.until, 0.0)

    def _rewound(self, cursor: Cursor, now: float, end: int, step: int) -> Cursor:
        """Return the cursor, set back to where rows were written up to at the last look if more are written now.

        After an outage a bridge works off its backlog: rows of hours ago come when nobody looks there any more.
        """
        written = self._written(cursor, now, end)
        until = cursor.until
        if cursor.written is not None and written is not None and written > cursor.written:
            back = max(cursor.written, until - _BACKLOG_SECONDS, cursor.since)
            until = min(until, back // step * step)
        return replace(cursor, until=until, written=cursor.written if written is None else written)

    def _written(self, cursor: Cursor, now: float, end: int) -> int | None:
        """Return up to when what this reads is written; None if nothing says so."""
        first = cursor.until - self._overlap if cursor.written is None else cursor.written
        exporters = Select(schema.EXPORTER_STATUS, schema.RAW).where(compare(schema.EXPORTER_BYTES, ">", 0))
        asked = exporters.take(newest(schema.EXPORTER_BYTES)).between(max(first, end - _BACKLOG_SECONDS), end)
        found = [moment for moment, _ in self._store.rows(asked)]
        if found and self.reading.measurement.origin == "analysis":
            beats = Select(schema.PIPELINE, schema.RAW).where(is_in(schema.REASON, [schema.HEARTBEAT]))
            beats = beats.where(is_in(schema.STAGE, [Stage.ANALYSIS])).take(newest(schema.VALUE))
            told = self._store.rows(beats.between(end - _BACKLOG_SECONDS, int(now)))
            found += [int(moment - lag) for moment, lag in told]
        return min(found, default=None)

    def _between(
        self, start: int, stop: int, cursor: Cursor, swept_at: float, leaving: int
    ) -> tuple[list[Document], Cursor]:
        horizon = stop - self._overlap
        # What is looked through again when more is written than is now is told of once, too.
        written = stop if cursor.written is None else cursor.written
        oldest = min(horizon, max(written, stop - _BACKLOG_SECONDS) - self._overlap)
        # That look begins with a whole bin.
        oldest -= oldest % (self.reading.every or self._cluster.bridge.window)
        seen = {one: moment for one, moment in cursor.seen.items() if moment >= oldest}
        events: list[Document] = []
        for row in sorted(self._rows(start, stop), key=lambda row: (row.time, row.id)):
            if row.id in cursor.seen:
                continue
            event = self.reading.make(row)
            if event is None and self.reading.make_at_last is not None and row.time < horizon + leaving:
                event = self.reading.make_at_last(row)
            if event is None:
                continue
            events.append(event.document())
            if row.time >= oldest:
                seen[row.id] = row.time
        return events, Cursor(cursor.since, stop, seen, swept_at, cursor.written)

    def _rows(self, start: int, stop: int) -> Iterable[Row]:
        """Return the rows of a range; those that differ in nothing that identifies them are one."""
        found: dict[str, Row] = {}
        name = self.reading.measurement.name
        length = self.reading.every or self._cluster.bridge.window
        for series in self._store.query(self.reading.query(start, stop)):
            tags = {tag: text for tag, text in series.tags.items() if text}
            for moment, *values in series.values:
                time = int(moment) // 1000
                known = {key: value for key, value in zip(series.columns[1:], values, strict=True) if value is not None}
                if not known:
                    continue
                row_id = event_id(self._cluster.name, name, self.reading.identifying(tags), time)
                row = Row(time, time + length, tags, known, row_id)
                found[row_id] = self._merged(found[row_id], row) if row_id in found else row
        return found.values()

    def _merged(self, one: Row, other: Row) -> Row:
        values = dict(one.values)
        for item in self.reading.measurement.fields:
            if item.name in other.values:
                mine, theirs = values.get(item.name), other.values[item.name]
                values[item.name] = theirs if mine is None else _merge(item.merge, mine, theirs)
        return Row(one.time, one.end, {**one.tags, **other.tags}, values, one.id)


def _merge(how: Merge, mine: Any, theirs: Any) -> Any:  # noqa: ANN401 - numbers or texts
    match how:
        case Merge.SUM:
            return mine + theirs
        case Merge.MIN:
            return min(mine, theirs)
        case Merge.MAX:
            return max(mine, theirs)
        case Merge.LAST:
            return theirs


def wanted(readings: Sequence[Reading], kinds: Iterable[EventKind]) -> list[Reading]:
    """Return the readings whose events a destination gets."""
    asked = set(kinds)
    return [reading for reading in readings if reading.kind in asked]
