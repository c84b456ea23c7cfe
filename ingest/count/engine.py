"""The bridge without its surroundings: record frames in, changed points out; its memory can be saved and loaded."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl

from cluster.model import Cluster, Role
from enrichment.labels import Labels
from ingest.checkpoint import Frames, Later, made
from ingest.count import pulse
from ingest.count.aggregate import Aggregator, Partials, Watermark
from ingest.count.counter_deltas import CounterDeltas
from ingest.count.denied import denied_points, gap_points
from ingest.count.grouped import grouped
from ingest.count.link_totals import counter_points
from ingest.count.once import NAME as NEWEST_RECORDS
from ingest.count.once import Once
from ingest.count.sequence import SequenceTracker
from ingest.count.tables import WindowTable
from ingest.counters import Counters
from ingest.flows.archive_rows import archive_rows, sample_rows
from ingest.flows.normalise import Clock, Flows, Normaliser
from ingest.flows.text_numbers import Vocabulary, Words
from ingest.read import records
from ingest.read.counter_samples import EXPORTER, MOMENT
from store import schema
from store.packed import ASKED, packed
from store.points import WINDOW
from store.schema import Measurement, Stage

_TABLES = (
    schema.TRAFFIC,
    schema.NODE_TRAFFIC,
    schema.PAIR,
    schema.RAIL_TRAFFIC,
    schema.STORAGE_IO,
    schema.EGRESS,
    schema.THREAT,
    schema.VIOLATION,
    schema.UNKNOWN_NODE,
    schema.INFERENCE,
    schema.MANAGED,
    schema.PULSE,
    schema.INTERFACE_TRAFFIC,
    schema.EXPORTER_STATUS,
    schema.COUNTING,
    schema.DENIED,
    schema.LOG_GAP,
)
"""Measurements that are made of window totals."""

_MINUTE = 60
BEFORE_MINUTES = {one: replace(one, kept=schema.RAW) for one in _TABLES if one.kept == schema.MINUTE}
"""What these were before they were kept in minutes: points of such a checkpoint still go to the raw retention."""

_BY_RECORDS = (schema.IN_BYTES, schema.OUT_BYTES, schema.SPEED)
_BY_COUNTERS = (
    schema.COUNTER_IN_BYTES,
    schema.COUNTER_OUT_BYTES,
    schema.IN_ERRORS,
    schema.OUT_ERRORS,
    schema.IN_DISCARDS,
    schema.OUT_DISCARDS,
    schema.SPEED,
)
"""Fields of INTERFACE_TRAFFIC by what fills them; the store puts them together."""

_FILLED = {
    schema.INTERFACE_TRAFFIC: _BY_RECORDS,
    schema.PULSE: (schema.PULSE_BYTES, schema.PACKETS, schema.MARKED_PACKETS),
}
"""Fields that a measurement's own table fills, where these are not all."""

_COUNTERS = "interface-counters"
"""Table of the fields that interface counters fill."""

SAMPLES = "newest-samples"
"""Frame of `Engine.dump`: the newest sample of each interface."""

_SERIES, _KNOWN = "series-", "known-"

Part = WindowTable | Once
"""What is kept by window."""


@dataclass(slots=True)
class ExporterReading:
    """What the newest records of an exporter said. Epoch seconds; seconds; 1 in `sampling` packets.

    Of one that sent counter samples only, no more is known than that it is there.
    """

    last_seen: float
    lag: float | None = None
    skew: float | None = None
    sampling: int | None = None


class Engine:
    """Everything between the reader and the writer.

    Attributes:
        exporters: what the newest records of each said.
        unknown_rates: records since the start whose exporter samples by a rate that nobody told.
        minutes_from: epoch second from which on what is kept in minutes is; points of before go to the raw retention.

    Args:
        cluster: names, windows, bounds.
        clock: live or backfill; a backfill keeps every window that comes back to it.
        counters: what was refused, late, skewed.
        normaliser: of the same cluster and clock, where several engines of a thread share one; by default one of its
            own.
        labels: what is known of outside addresses, where anybody says; somebody else has files read anew.
        archived: takes the rows of the flow archive.
        sampled: takes packet samples between training nodes, one by one.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        counters: Counters,
        normaliser: Normaliser | None = None,
        *,
        labels: Labels | None = None,
        archived: Callable[[pl.DataFrame], None] | None = None,
        sampled: Callable[[pl.DataFrame], None] | None = None,
    ) -> None:
        self._settings = cluster.bridge
        # Name, address, and a digest of all settings: these, and the order, decide which of several exporters counts.
        self._listed = [[one.name, str(one.address), crc32(repr(one).encode())] for one in cluster.exporters]
        self._window_ms = cluster.bridge.window * 1000
        self._clock = clock
        self._archived, self._sampled = archived, sampled
        self._counters = counters
        self._normaliser = normaliser or Normaliser(cluster, clock)
        training = [group.id for group in cluster.groups_with(Role.TRAINING)]
        self._is_training = np.isin(self._normaliser.addresses.groups, training)
        # Losses are found and sums made beside what comes next: numpy leaves the interpreter to others meanwhile.
        self._beside = ThreadPoolExecutor(1, "sums")
        self._aggregator = Aggregator(cluster, self._normaliser, labels, beside=self._beside)
        # Of several engines that share the book, each holds numbers of its own.
        self._normaliser.addresses.before_reset(self._settle_sums)
        self._sequence = SequenceTracker()
        self._losing: Future[dict[str, int]] | None = None
        self._vocabulary = Vocabulary()
        self._newest: int | None = None
        self._newest_sample: int | None = None
        listed = [node.name for node in cluster.nodes]
        self.exporters: dict[str, ExporterReading] = {}
        self.unknown_rates: Counter[str] = Counter()
        self.minutes_from = 0
        self._tables = {
            measurement.name: WindowTable(
                measurement,
                listed=listed,
                named=cluster.bridge.named_per_window,
                budget=cluster.bridge.series_budget,
                keep=cluster.store.keep_raw,
                fields=_FILLED.get(measurement),
                foreign=cluster.stranger_ids() if measurement is schema.EGRESS else (),
                seconds=_MINUTE if measurement in BEFORE_MINUTES else 1,
                optional=measurement is schema.PULSE,
            )
            for measurement in _TABLES
        }
        self._tables[_COUNTERS] = WindowTable(schema.INTERFACE_TRAFFIC, fields=_BY_COUNTERS, optional=True)
        self._once = Once(cluster, self._normaliser, is_final=clock is Clock.LIVE)
        self._deltas = CounterDeltas(cluster)
        self._newest_counters: int | None = None
        self._let_go = 0

    @property
    def newest(self) -> float | None:
        """End of the newest flow so far, epoch seconds."""
        return None if self._newest is None else self._newest / 1000

    @property
    def doubled(self) -> set[str]:
        """Return the addresses of exporters whose records come twice."""
        self._note_losses()
        return self._sequence.doubled.told()

    @property
    def pending_rows(self) -> int:
        """Partial points, and conversations of which they will be made, that wait for `merge`."""
        return self._aggregator.pending_rows + sum(part.pending_rows for part in self._parts.values())

    def take(
        self,
        frame: pl.DataFrame,
        now: float,
        lost: Mapping[str, int] | None = None,
        *,
        is_numbered: bool = False,
        exporters: Words | None = None,
        ends: tuple[Words, Words] | None = None,
    ) -> pl.DataFrame:
        """Take a record frame; return the records refused, with a ``reason`` column.

        Args:
            frame: RECORD_SCHEMA.
            now: wall clock, epoch seconds.
            lost: records lost before these, by exporter address, where somebody else follows the sequence numbers;
                None: they are followed here.
            is_numbered: whether each row is one record.
            exporters: the frame's column EXPORTER, where that was looked up already.
            ends: its columns SRC and DST likewise. Further rows behind these are looked up with all others.
        """
        if exporters is None or len(exporters.codes) != frame.height:
            exporters, ends = self._vocabulary.words(frame.get_column(records.EXPORTER)), None
        exporters = self._normaliser.exporters.by_protocol(exporters, records.whole(frame.get_column(records.VERSION)))
        flows, refused = self._normaliser.normalise(frame, int(now * 1000), exporters, ends)
        self._counters.add(Stage.NORMALISE, "records", len(flows))
        if len(flows):
            # Unnumbered, samples of sFlow share lines as a matter of course; records of NetFlow and IPFIX only where
            # they are equal, or stand for several flows by themselves.
            if merged := int(np.maximum(flows.flows[~flows.is_sflow] - 1, 0).sum()):
                self._counters.add(Stage.NORMALISE, "merged_records", merged)
            if not self._aggregator.has_room(flows):
                generation = self._normaliser.addresses.generation
                self._settle()
                if self._normaliser.addresses.generation != generation:
                    flows, refused = self._normaliser.normalise(frame, int(now * 1000), exporters, ends)
            self._note_losses()
            found = partial(self._sequence.lost, frame, exporters, is_numbered=is_numbered)
            self._losing = self._beside.submit(found if lost is None else partial(dict, lost))
            wanted = self._once.wanted(flows)
            if self._archived is not None:
                self._archived(archive_rows(flows, wanted, self._normaliser, self._settings.window))
            if self._sampled is not None and flows.is_sflow.any():
                self._sampled(sample_rows(flows, self._normaliser, self._is_training))
            watermark = self._watermark()
            shares = self._aggregator.shares(flows, watermark)
            held = None
            if wanted is not None:
                held = self._once.take(flows, shares, wanted, watermark.oldest)
            self._aggregator.take(flows, shares, watermark, held)
            self._newest = max(self._newest or 0, int(flows.end.max()))
            if flows.is_sflow.any():
                self._newest_sample = max(self._newest_sample or 0, int(flows.end[flows.is_sflow].max()))
            self._note_exporters(flows, frame, exporters, now)
            self._count(flows)
        return refused

    def take_denied(self, frame: pl.DataFrame, now: float) -> None:
        """Take records (RECORD_SCHEMA) of what was not let through: they are counted, and are no traffic."""
        if frame.is_empty():
            return
        flows, refused = self._normaliser.normalise(frame, int(now * 1000))
        self._counters.add(Stage.READ, "denied_records", frame.height)
        self._counters.add(Stage.NORMALISE, "denied_without_address", refused.height)
        points = denied_points(flows, self._normaliser, seconds=self._settings.window, oldest=self._watermark().oldest)
        self._add({schema.DENIED.name: points})

    def take_gaps(self, gaps: pl.DataFrame) -> None:
        """Take what a cloud's logs say to have no records of (GAP_SCHEMA)."""
        if gaps.is_empty():
            return
        for reason, count in gaps.group_by("reason").len().iter_rows():
            self._counters.add(Stage.READ, reason, count)
        points = gap_points(gaps, seconds=self._settings.window, oldest=self._watermark().oldest)
        self._add({schema.LOG_GAP.name: points})

    def take_counters(self, samples: pl.DataFrame, now: float = math.inf) -> None:
        """Take samples of interface counters (SAMPLE_SCHEMA), at this epoch second by the wall clock."""
        known = self._deltas.known(samples)
        self._counters.add(Stage.NORMALISE, "counter_samples", known.height)
        self._counters.add(Stage.NORMALISE, "counters_unknown_agent", samples.height - known.height)
        if known.is_empty():
            return
        deltas = self._deltas.take(known)
        self._counters.add_all(Stage.NORMALISE, deltas.counts)
        is_live = self._clock is Clock.LIVE and self._newest_counters is not None
        kept = max(self._oldest(self._newest_counters), self._tables[_COUNTERS].evicted_before)
        oldest = kept // self._settings.window if is_live else None
        points = counter_points(deltas.frame, oldest=oldest, seconds=self._settings.window, books=self._normaliser)
        if points.height:
            self._tables[_COUNTERS].add(points)
        self._newest_counters = max(self._newest_counters or 0, int(known.get_column(MOMENT).to_numpy().max()))
        if self._clock is Clock.LIVE:
            self._note_samples(known, now)

    def _note_samples(self, samples: pl.DataFrame, now: float) -> None:
        """A switch through which nothing goes is not silent: its counter samples say so."""
        book = self._normaliser.exporters
        arrivals = samples.group_by(EXPORTER).agg(pl.max(MOMENT))
        for number, moment in zip(book.number(arrivals[EXPORTER]), arrivals[MOMENT], strict=True):
            reading = self.exporters.setdefault(book.names[number], ExporterReading(0.0))
            reading.last_seen = max(reading.last_seen, min(moment / 1000, now))

    def _watermark(self) -> Watermark:
        """Return where the stream stands before this batch; a batch alone never makes its own records late."""
        if self._clock is Clock.BACKFILL or self._newest is None:
            return Watermark(0, None, None)
        closed = (self._newest - self._settings.lateness * 1000) // self._window_ms
        # A window that was let go is not begun anew, also where the grace has been made longer since: its point in the
        # store would be overwritten with what came late.
        kept = max(self._oldest(self._newest), self._tables[schema.TRAFFIC.name].evicted_before)
        oldest_second = max(self._oldest_second(), self._tables[schema.PULSE.name].evicted_before)
        return Watermark(closed, kept // self._settings.window, oldest_second // pulse.SECONDS)

    def _oldest(self, newest: int | None) -> int:
        """Return when the oldest window in grace begins, epoch seconds."""
        kept_ms = (newest or 0) - (self._settings.lateness + self._settings.grace) * 1000
        return kept_ms // self._window_ms * self._settings.window

    def _oldest_second(self) -> int:
        """Return the same for windows of a second.

        They follow sFlow's own clock, that of the collector: a NetFlow exporter whose clock is ahead ages none of them.
        """
        kept_ms = (self._newest_sample or 0) - (self._settings.lateness + pulse.GRACE) * 1000
        # Packets are in the first second of their window.
        return kept_ms // self._window_ms * self._settings.window

    def turn_back(self, now: float) -> bool:
        """Have windows follow `now`, epoch seconds, where all that take records lie behind it: a clock was ahead.

        False where they do not, or where windows of that time were let go already: these would be begun anew, and their
        points in the store overwritten, when that time comes.
        """
        newest = self._newest, self._newest_sample, self._newest_counters
        if self._clock is Clock.BACKFILL or max(map(self._oldest, newest)) <= now or self._let_go > now:
            return False
        self._newest, self._newest_sample, self._newest_counters = (
            None if one is None else min(one, int(now * 1000)) for one in newest
        )
        for part in self._parts.values():
            part.evicted_before = min(part.evicted_before, self._let_go)
        return True

    def _count(self, flows: Flows) -> None:
        for field, flags in (
            (schema.UNKNOWN_RATE, flows.unknown_rate),
            (schema.ZERO_COUNTERS, flows.zero),
            (schema.SKEWED, flows.skewed),
        ):
            self._counters.add(Stage.NORMALISE, field.name, int(flags.sum()))
        if flows.unknown_rate.any():
            numbers, counts = np.unique(flows.exporter[flows.unknown_rate], return_counts=True)
            names = self._normaliser.exporters.names
            self.unknown_rates.update({names[number]: int(n) for number, n in zip(numbers, counts, strict=True)})
        self._counters.add(
            Stage.NORMALISE, schema.EXPORTER_SUPPRESSED.name, int(np.where(flows.counts, 0, flows.bytes).sum())
        )
        self._counters.add(Stage.NORMALISE, schema.EXPORTER_BYTES.name, int(flows.bytes.sum()))

    def _note_losses(self) -> None:
        """Take note of the losses before the last batch, which are found beside what comes next."""
        losing, self._losing = self._losing, None
        lost = losing.result() if losing is not None else {}
        if not lost or self._newest is None:
            return
        window = self._newest // self._window_ms * self._settings.window
        numbers = self._normaliser.exporters.number(pl.Series("exporter", list(lost), pl.String))
        rows = pl.DataFrame(
            {
                WINDOW: [window] * len(lost),
                schema.EXPORTER: [self._normaliser.exporters.names[number] for number in numbers],
                schema.SEQ_LOST.name: list(lost.values()),
            }
        )
        self._tables[schema.EXPORTER_STATUS.name].add(rows)
        self._counters.add(Stage.COLLECT, schema.SEQ_LOST.name, sum(lost.values()))

    def _note_exporters(self, flows: Flows, frame: pl.DataFrame, exporters: Words, now: float) -> None:
        if self._clock is Clock.BACKFILL:
            return
        book = self._normaliser.exporters
        newest = grouped(exporters.codes, len(exporters.texts)).largest(
            records.whole(frame.get_column(records.ARRIVAL), -1)
        )
        arrivals: dict[str, float] = {}
        for number, arrival in zip(book.number(exporters.texts), newest.tolist(), strict=True):
            # Without arrival times the reading itself is the arrival. By a collector's clock that is ahead all whom it
            # does not hear would seem silent.
            seen = now if arrival < 0 else min(arrival / 1000, now)
            arrivals[book.names[number]] = max(seen, arrivals.get(book.names[number], 0.0))
        rows = grouped(flows.exporter, len(book.names))
        most = (rows.largest(np.abs(flows.lag)), rows.largest(flows.rate))
        for number, lag, count, skew, rate in zip(
            *(column.tolist() for column in (rows.keys, rows.sum(flows.lag), rows.count(), *most)), strict=True
        ):
            name = book.names[number]
            before = self.exporters.get(name)
            self.exporters[name] = ExporterReading(
                # Two collectors' files are read in turns: an older one must not take back what a newer one said.
                last_seen=max(arrivals[name], before.last_seen if before else 0.0),
                lag=lag / count / 1000,
                skew=skew / 1000,
                sampling=rate,
            )

    # -- windows -----------------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[str, WindowTable]:
        """The windows by table; everything taken so far waits in them for `merge`, if it is not merged yet."""
        self._settle()
        return self._tables

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return everything that is kept by window: the tables, and the records that may still turn out repeated."""
        self._settle()
        return self._parts

    @property
    def _parts(self) -> dict[str, Part]:
        return {**self._tables, NEWEST_RECORDS: self._once}

    def _settle(self) -> None:
        """Make partial points of all conversations taken, those included of which it is asked whose records count."""
        self._note_losses()
        is_live = self._clock is Clock.LIVE
        kept = self._tables[schema.TRAFFIC.name].evicted_before // self._settings.window
        settled = self._once.settle(kept if is_live else None, self._aggregator.add)
        if settled is not None:
            self._counters.add(Stage.NORMALISE, schema.EXPORTER_SUPPRESSED.name, settled.suppressed_bytes)
            self._add({schema.COUNTING.name: settled.counting, schema.EXPORTER_STATUS.name: settled.suppressed})
        self._settle_sums()

    def _settle_sums(self) -> None:
        self._add(self._aggregator.points())

    def _add(self, partials: Partials) -> None:
        for name, points in partials.items():
            if points.height:
                self._tables[name].add(points)

    def merge(self) -> list[tuple[Measurement, pl.DataFrame]]:
        """Fold everything pending into the windows; return the points that changed."""
        self._settle()
        self._once.merge()
        asked = self._tables[schema.INFERENCE.name].pending_windows()
        changed = [
            part for table in self._tables.values() if table.pending_rows for part in _as_stored(table, table.merge())
        ]
        changed += [*self._unnamed(asked), *_discarding(changed)]
        for table in self._tables.values():
            self._counters.add(Stage.WINDOWS, "over_series_budget", table.over_budget)
            self._counters.add(Stage.WINDOWS, "capped_totals", table.capped)
            table.over_budget = table.capped = 0
        return changed

    def all_points(self) -> list[tuple[Measurement, pl.DataFrame]]:
        """Return every point in memory, for the time after a restart."""
        points = [part for table in self._tables.values() for part in _as_stored(table, table.all_points())]
        return [*points, *self._unnamed(), *_discarding(points)]

    def _unnamed(self, windows: Collection[int] | None = None) -> list[tuple[Measurement, pl.DataFrame]]:
        rows, places = self._tables[schema.INFERENCE.name].unnamed(windows)
        points = packed(rows.select(*ASKED), places)
        return [(schema.INFERENCE_UNNAMED, points)] if points.height else []

    def evict(self, held: Mapping[str, AbstractSet[int]] | None = None) -> list[tuple[str, pl.DataFrame]]:
        """Forget the windows beyond the grace, but those held by their table's name; return their rows by table."""
        before = dict.fromkeys(self._parts, self._oldest(self._newest))
        before |= {schema.PULSE.name: self._oldest_second(), _COUNTERS: self._oldest(self._newest_counters)}
        held = held or {}
        evicted = [(name, part.evict(before[name], held.get(name, ()))) for name, part in self._parts.items()]
        for name, rows in evicted:
            # Not of PULSE: its seconds go so soon that a clock which was ahead for a minute could not be followed back.
            if rows.height and name not in (schema.PULSE.name, NEWEST_RECORDS):
                length = max(self._settings.window, self._tables[name].seconds)
                self._let_go = max(self._let_go, int(str(rows[WINDOW].max())) + length)
        self._counters.add(Stage.WINDOWS, "forgotten_comparing", self._once.forgotten)
        self._once.forgotten = 0
        return [(name, rows) for name, rows in evicted if rows.height]

    @property
    def state_rows(self) -> int:
        """Rows in memory."""
        return sum(table.state.height for table in self._tables.values()) + len(self._once)

    # -- memory ------------------------------------------------------------------------------------

    def dump(self) -> tuple[Frames, dict[str, Any]]:
        """Return frames and notes from which `load` makes the same engine; nothing may be pending."""
        self._note_losses()
        frames = {name: table.state for name, table in self._tables.items()} | self.frames_beside()
        return frames | self._once.frames(), self.notes()

    def frames_beside(self) -> dict[str, pl.DataFrame]:
        """Return what `dump` has beside the tables' windows: names that were given, and the newest counter samples."""
        frames = {f"{_SERIES}{name}": table.series for name, table in self._tables.items() if table.measurement.bound}
        frames |= {f"{_KNOWN}{name}": table.known for name, table in self._tables.items() if table.known.height}
        return frames | {SAMPLES: self._deltas.newest}

    def notes(self) -> dict[str, Any]:
        """Return what `dump` has beside frames, as plain values."""
        self._note_losses()
        return {
            "window": self._settings.window,
            "shard": self._settings.shard,
            "newest": self._newest,
            "newest_sample": self._newest_sample,
            "newest_counters": self._newest_counters,
            "evicted_before": {name: part.evicted_before for name, part in self._parts.items()},
            "exporters": {
                name: [reading.last_seen, reading.lag, reading.skew, reading.sampling]
                for name, reading in self.exporters.items()
            },
            "sequence": self._sequence.dump(),
            "once": self._once.notes(),
            "minutes_from": self.minutes_from,
            "listed": self._listed,
        }

    def load(self, saved: Mapping[str, pl.DataFrame | Later], notes: dict[str, Any]) -> None:
        """Take what `dump` gave, or what became of it in a checkpoint; exporters may have other names and ranks now."""
        # Checkpoints of before these were kept have none.
        before = notes.get("listed")
        names = self._normaliser.exporters.named_now({name: address for name, address, _ in before or ()})
        frames = {name: made(frame) for name, frame in saved.items()}
        for name, part in self._parts.items():
            part.evicted_before = notes["evicted_before"].get(name, 0)
        self._let_go = self._tables[schema.TRAFFIC.name].evicted_before
        self._once.restore(frames, names, are_others=before not in (None, self._listed))
        for name, table in self._tables.items():
            if name in frames:
                table.restore(frames[name])
            if f"{_SERIES}{name}" in frames:
                table.series = frames[f"{_SERIES}{name}"]
            table.known = frames.get(f"{_KNOWN}{name}", table.known)
        self._deltas.newest = frames[SAMPLES]
        self._newest, self._newest_sample = notes["newest"], notes["newest_sample"]
        # A checkpoint of an older version has no minutes: they begin with the next one.
        next_minute = ((self._newest or 0) // 1000 // _MINUTE + 1) * _MINUTE
        self.minutes_from = notes.get("minutes_from", next_minute)
        for table in self._tables.values():
            table.long_from = self.minutes_from
        self._newest_counters = notes["newest_counters"]
        # Of two that are one now the newer one counts: when each was heard comes first.
        readings = sorted(notes["exporters"].items(), key=lambda item: item[1][0])
        book = self._normaliser.exporters
        listed = {name: new for name, new in names.items() if book.lists(new)}
        kept = {new: reading for name, reading in readings if book.still_is(new := listed.get(name, name))}
        self.exporters = {name: ExporterReading(*reading) for name, reading in kept.items()}
        # Checkpoints of before these were kept have none.
        self._once.load_notes(notes.get("once", {}), names)
        self._sequence.load(notes.get("sequence", []))


def _as_stored(table: WindowTable, points: pl.DataFrame) -> list[tuple[Measurement, pl.DataFrame]]:
    """Return a table's points as they are stored, those apart that are of before its windows were minutes."""
    measurement = table.measurement
    if measurement is schema.PULSE:
        sent, is_new = pl.col(schema.PULSE_BYTES.name), pl.col(WINDOW) >= table.long_from
        kib = pl.when(is_new).then((sent + schema.KIB // 2) // schema.KIB).alias(schema.PULSE_KIB.name)
        before = [pl.when(~is_new).then(sent)] if table.long_from else []
        kept = points.select(pl.exclude(schema.PULSE_BYTES.name), kib, *before)
        return [(measurement, kept)]
    if not table.long_from or measurement not in BEFORE_MINUTES:
        return [(measurement, points)]
    is_new = pl.col(WINDOW) >= table.long_from
    return [(measurement, points.filter(is_new)), (BEFORE_MINUTES[measurement], points.filter(~is_new))]


def _discarding(points: list[tuple[Measurement, pl.DataFrame]]) -> list[tuple[Measurement, pl.DataFrame]]:
    """Return the points of DISCARDING, of those of interfaces."""
    names = [field.name for field in schema.DISCARDING.fields]
    counted = [frame for measurement, frame in points if measurement is schema.INTERFACE_TRAFFIC and names[0] in frame]
    some = [frame.filter(pl.sum_horizontal(names) > 0) for frame in counted]
    return [(schema.DISCARDING, one.drop(set(one.columns) - {WINDOW, *schema.DISCARDING.tags, *names})) for one in some]
