"""Records lost between exporter and collector, by gaps in the export protocols' sequence numbers.

NetFlow v5 and IPFIX number flow records. IPFIX numbers its options records, too, which pmacct does not print: a gap of
one is taken for such a record, not for a loss, and a table of them, sent again and again by a clock, is told from
losses by its size and rhythm. What stays unseen there: a lone record, and a loss of as many records as regularly. What
counts though nothing was lost: tables until they have come six times, those of changing size, several of different
rhythms, those that come more often than once a minute, and those in many minutes that are read at once.

NetFlow v9 numbers datagrams: how many records a missing one held is estimated by those around it, and datagrams of
templates alone, which pmacct does not print either, are told from losses by their rhythm. What stays unseen: a loss as
regular and as rare as templates (one datagram in 16 or fewer). sFlow's numbers cover counter samples that pmacct does
not print: no figure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import islice
from typing import Any, Self

import numpy as np
import polars as pl

from ingest.count.doubled import DoubledExporters
from ingest.count.grouped import Grouped, Ints, grouped, renumbered
from ingest.flows.text_numbers import Vocabulary, Words
from ingest.read import records

_BY_RECORD = (5, 10)
_BY_DATAGRAM = (9,)
_VERSIONS = (*_BY_RECORD, *_BY_DATAGRAM)

_COLUMNS = (records.VERSION, records.DOMAIN, records.SEQ)
_VERSION_BITS = 4

_IPFIX = 10
_RESTART = 1_000_000
"""A jump this large, or back behind what was seen lately, is an exporter that started anew, not a loss."""

_SETTLE_BATCHES = 3
"""Records of one datagram may come with two purges, so a gap counts only when it is still there some batches later."""

_BATCH_MS = 2_000
"""What arrived within this time is one batch, in however many pieces it is read: of 200,000 records a second a purge
fills several, and the rest of a datagram comes only with the next purge."""

_BEATS = 5
"""Gaps of one length at one distance that make a rhythm. Where a tenth of the datagrams is lost, about one gap in
twenty has the distance of the one before: a rhythm by chance is one in some hundred thousand."""

_SILENT_BEATS = 3
"""Distances without a gap on the beat after which a rhythm is over; a loss beside a beat hides that one only."""

_TEMPLATE_DISTANCE = 16
"""Datagrams from one of templates alone to the next, at least: exporters repeat them after 20 of data by default. What
is missing more often is a loss however regular, as where one of the links that take turns is dead."""

_BURST_SLOTS = 15
"""What is missing within this time (30 s) may be one table: its messages go out one by one, others among them."""

_TABLE_SLOTS = 30
"""From one time that a table is sent to the next (60 s), at least. Losses by chance come about a minute apart, too, but
of one size and five times at one distance only once in a year or so."""

_TABLE_JITTER = 16
"""A distance may be off by one part in so many: a gap shows only with the next flow, and settles with the one after."""

_TABLE_SLACK = 2
"""Records by which a table's size may seem to change: a lone one between two flows is forgiven beforehand."""

_MOST_STREAMS = 16_384
"""Whose losses are seen; a sender chooses its domains itself, of 4 billion. The one unheard for longest goes first."""

_Source = tuple[str, int, int]


@dataclass(slots=True)
class _Rhythm:
    """Gaps that come every so many datagrams: where the last one began, length, distance, how many in a row."""

    begin: int = 0
    length: int = 0
    distance: int = 0
    beats: int = 0

    @property
    def is_of_templates(self) -> bool:
        """Whether gaps on the beat are datagrams of templates: enough of them have come, and they are rare enough."""
        return self.beats >= _BEATS and self.distance >= self.length * _TEMPLATE_DISTANCE

    def take(self, begin: int, length: int) -> int:
        """Take the next gap; return how many missing datagrams are now taken for no losses.

        A regular loss of one datagram in `_TEMPLATE_DISTANCE` or fewer looks the same and stays unseen; of a larger
        share none is forgiven.
        """
        distance = begin - self.begin
        if self.is_of_templates and distance <= _SILENT_BEATS * self.distance:
            if length != self.length or distance % self.distance:
                return 0
            self.begin = begin
            return length
        if (length, distance) != (self.length, self.distance):
            self.begin, self.length, self.distance, self.beats = begin, length, distance, 1
            return 0
        self.begin, self.beats = begin, self.beats + 1
        return length * _BEATS if self.is_of_templates else 0


@dataclass(slots=True)
class _Table:
    """Records of IPFIX that are missing in bursts of one size, at one distance: a table of options, not a loss.

    Of the burst that goes on: when it `begun`, the records missing in it (`amount`; 0 for none) and those told as lost.
    Of the rhythm: when the `last` one began, their `length` and `distance`, and how many `beats` in a row.
    Times are numbers of slots.
    """

    begun: int = 0
    amount: int = 0
    told: int = 0
    last: int = 0
    length: int = 0
    distance: int = 0
    beats: int = 0

    def take(self, slot: int, fresh: int) -> int:
        """Take how many records are newly known to be missing, also if none; return how many of all are lost.

        On the beat, what may be the table is held back until the burst is over: if it is of another size then, all of
        it was losses, and is told so late.
        """
        lost = 0
        if self.amount and not self.begun <= slot <= self.begun + _BURST_SLOTS:
            lost = self._end()
        if fresh:
            self.begun = self.begun if self.amount else slot
            self.amount += fresh
            if not self._is_on_the_beat() or self.amount > self.length + _TABLE_SLACK:
                lost += self.amount - self.told
                self.told = self.amount
        return lost

    def _is_on_the_beat(self) -> bool:
        return self.beats >= _BEATS and self._is_multiple(self.begun - self.last, _SILENT_BEATS)

    def _is_multiple(self, distance: int, most: int) -> bool:
        times = round(distance / self.distance) if self.distance else 0
        return 1 <= times <= most and abs(distance - times * self.distance) <= max(self.distance / _TABLE_JITTER, 2)

    def _end(self) -> int:
        """End the burst; return how many records of it were held back and are lost after all."""
        amount, told, distance = self.amount, self.told, self.begun - self.last
        is_table = self._is_on_the_beat() and abs(amount - self.length) <= _TABLE_SLACK
        self.amount = self.told = 0
        if is_table:
            self.last = self.begun
            return 0
        # A loss beside a table, or off the beat, does not end a rhythm that was learned.
        if self.beats < _BEATS or not 0 < distance <= (_SILENT_BEATS + 0.5) * self.distance:
            self._learn(amount, distance)
        return amount - told

    def _learn(self, amount: int, distance: int) -> None:
        if abs(amount - self.length) <= _TABLE_SLACK and self._is_multiple(distance, 1):
            self.beats += 1
        else:
            self.length, self.distance, self.beats = amount, distance if distance >= _TABLE_SLOTS else 0, 1
        self.last = self.begun


@dataclass(slots=True)
class _Batch:
    """Datagrams of a batch that were new with it, where the stream ended then, and records, those of others too."""

    numbers: list[int]
    end: int
    records: int


@dataclass(slots=True)
class _Datagrams:
    """What is known of the datagrams of a stream that numbers them: the latest batches, and gaps before `checked`."""

    checked: int
    latest: list[_Batch] = field(default_factory=list)
    rhythm: _Rhythm = field(default_factory=_Rhythm)

    def take(self, numbers: list[int], end: int, amount: int, *, goes_on: bool) -> int:
        """Take the numbers of a batch's datagrams; return how many of them are new.

        Args:
            numbers: in any order.
            end: of the stream so far.
            amount: records of the batch.
            goes_on: whether they belong to the batch before.
        """
        fresh = sorted(set(numbers).difference(*(batch.numbers for batch in self.latest)))
        if goes_on and self.latest:
            before = self.latest[-1]
            batch = _Batch(sorted([*before.numbers, *fresh]), end, before.records + amount)
            self.latest = [*self.latest[:-1], batch]
        else:
            self.latest = [*self.latest, _Batch(fresh, end, amount)][-_SETTLE_BATCHES:]
        return len(fresh)

    def records_each(self) -> float:
        """Return the records of a datagram, the mean of the latest batches: how full they are changes with the load."""
        amount = sum(batch.records for batch in self.latest)
        return amount / max(sum(len(batch.numbers) for batch in self.latest), 1)

    def on_the_beat(self) -> int:
        """Look at the gaps that have settled with the last batch; return how many datagrams of them are no losses."""
        if len(self.latest) < _SETTLE_BATCHES:
            return 0
        settled = self.latest[0].end
        numbers = np.sort(np.concatenate([np.array(batch.numbers, np.int64) for batch in self.latest]))
        numbers = numbers[(numbers >= self.checked) & (numbers < settled)]
        if not len(numbers):
            return 0
        begins = np.concatenate([[self.checked], numbers[:-1] + 1])
        gaps = np.flatnonzero(numbers > begins)
        self.checked = int(numbers[-1]) + 1
        pairs = zip(begins[gaps].tolist(), (numbers - begins)[gaps].tolist(), strict=True)
        return sum(self.rhythm.take(begin, length) for begin, length in pairs)

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        """Return what was saved as plain values."""
        latest = [_Batch(**batch) for batch in saved["latest"]]
        return cls(saved["checked"], latest, _Rhythm(**saved["rhythm"]))


@dataclass(slots=True)
class _Stream:
    """One exporter process: numbers seen since it started; those of records, or of datagrams.

    `starts` are the lowest numbers of the latest batches, `slot` the number of the time in which the last one arrived.
    `tail` is the highest number, and `tail_records` came under it so far: a purge may split a datagram's records.
    """

    first: int
    end: int
    datagrams: _Datagrams | None
    received: int = 0
    reported: int = 0
    gaps: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    slot: int | None = None
    tail: int = -1
    tail_records: int = 0
    table: _Table = field(default_factory=_Table)

    def goes_on(self, slot: int | None) -> bool:
        """Whether what arrived in this time belongs to the batch before."""
        before = self.slot
        # A purge may lie astride two times, its pieces now in the one, now in the other.
        goes_on = slot is not None and before is not None and before - 1 <= slot <= before
        self.slot = before if goes_on else slot
        return goes_on

    def anew(self, numbers: Ints, end: int) -> int:
        """Return how many of a batch's numbers, the lowest ones, are those of an exporter that started anew.

        They may be all, or the batch has the end of one process and the start of the next. What comes late is near what
        was seen lately: numbers of a new start are behind it by more than a batch is long. So the end of a process that
        lived for some five batches or fewer is not seen.

        Args:
            numbers: of the batch, ascending.
            end: of the batch.
        """
        if abs(end - self.end) > _RESTART:
            return len(numbers)
        lately = min(self.starts, default=self.first)
        behind = int(np.searchsorted(numbers, lately))
        distance = lately - int(numbers[behind - 1]) if behind else 0
        return behind if distance * _SETTLE_BATCHES > self.end - lately else 0

    def with_tail(self, numbers: Ints, sizes: Ints) -> Ints:
        """Return the sizes of a batch's datagrams, with what came before of the one that the stream ended with.

        Without it that datagram would look shorter than it is, and where one record of it came before, as if one were
        missing behind it.
        """
        sizes = np.where(numbers == self.tail, sizes + self.tail_records, sizes)
        if int(numbers[-1]) >= self.tail:
            self.tail, self.tail_records = int(numbers[-1]), int(sizes[-1])
        return sizes

    def extend(self, start: int, end: int, *, goes_on: bool) -> None:
        """Take note of where a batch starts and ends; it may start before the first one where that was out of order."""
        self.first, self.end = min(self.first, start), max(self.end, end)
        if goes_on and self.starts:
            self.starts[-1] = min(self.starts[-1], start)
        else:
            self.starts = [*self.starts, start][-_SETTLE_BATCHES:]

    def forgive(self, amount: int) -> None:
        """Take missing numbers for received ones, also where they were missed before."""
        self.received += amount
        self.gaps = [gap - amount for gap in self.gaps]

    def newly_lost(self, *, goes_on: bool) -> int:
        """Return how many numbers are newly known to be missing, after a batch."""
        before = self.gaps[:-1] if goes_on else self.gaps
        self.gaps = [*before, max(self.end - self.first - self.received, 0)][-_SETTLE_BATCHES:]
        settled = min(self.gaps) if len(self.gaps) == _SETTLE_BATCHES else 0
        fresh = max(settled - self.reported, 0)
        self.reported += fresh
        return fresh


class SequenceTracker:
    """Follows the sequence numbers of every exporter, and whose records come twice.

    Attributes:
        doubled: those exporters, where each row is one record.
    """

    def __init__(self) -> None:
        self.doubled = DoubledExporters()
        self._streams: dict[_Source, _Stream] = {}
        self._exporters = Vocabulary()

    def lost(self, frame: pl.DataFrame, exporters: Words | None = None, *, is_numbered: bool = False) -> dict[str, int]:
        """Take a record frame; return how many records are newly known to be lost, by exporter address.

        Args:
            frame: RECORD_SCHEMA.
            exporters: its column EXPORTER, where that was looked up already.
            is_numbered: whether each row is one record. Else equal ones share a row, which says how many they are; and
                losses of an exporter that counts flows itself (IE 3) stay unseen, since its rows say more.
        """
        exporters = exporters or self._exporters.words(frame.get_column(records.EXPORTER))
        if is_numbered:
            self.doubled.take(frame, exporters)
        result: dict[str, int] = {}
        arrived = frame.get_column(records.ARRIVAL).max()
        slot = arrived // _BATCH_MS if isinstance(arrived, int) else None
        for source, numbers, sizes in _datagrams(frame, exporters, is_numbered=is_numbered):
            fresh = self._advance(source, numbers, sizes, slot)
            result[source[0]] = result.get(source[0], 0) + fresh
        for source in [*islice(self._streams, max(len(self._streams) - _MOST_STREAMS, 0))]:
            del self._streams[source]
        return {exporter: amount for exporter, amount in result.items() if amount}

    def _advance(self, source: _Source, numbers: Ints, sizes: Ints, slot: int | None) -> int:
        by_datagram = source[2] in _BY_DATAGRAM
        end = int(numbers[-1]) + (1 if by_datagram else int(sizes[-1]))
        # In the order in which they were heard of last.
        stream = self._streams.pop(source, None)
        anew = len(numbers) if stream is None else stream.anew(numbers, end)
        if stream is None or anew:
            numbers, sizes = numbers[:anew], sizes[:anew]
            end = int(numbers[-1]) + (1 if by_datagram else int(sizes[-1]))
            first = int(numbers[0])
            stream = _Stream(first, first, _Datagrams(first) if by_datagram else None)
        self._streams[source] = stream
        goes_on = stream.goes_on(slot)
        before = stream.end
        if not by_datagram:
            # A record that pmacct's plugin took twice is no record more: the next number tells how many there were.
            sizes[:-1] = np.minimum(sizes[:-1], np.diff(numbers))
        amount = int(sizes.sum())
        if not by_datagram:
            sizes = stream.with_tail(numbers, sizes)
            end = int(numbers[-1] + sizes[-1])
        stream.extend(int(numbers[0]), end, goes_on=goes_on)
        if stream.datagrams is not None:
            stream.received += stream.datagrams.take(numbers.tolist(), stream.end, amount, goes_on=goes_on)
            stream.forgive(stream.datagrams.on_the_beat())
            return round(stream.newly_lost(goes_on=goes_on) * stream.datagrams.records_each())
        stream.received += amount
        if source[2] == _IPFIX:
            ends = numbers[:-1] + sizes[:-1]
            stream.received += int(numbers[0]) - before == 1
            stream.received += int(np.count_nonzero(numbers[1:] - ends == 1))
        fresh = stream.newly_lost(goes_on=goes_on)
        return stream.table.take(slot, fresh) if source[2] == _IPFIX and slot is not None else fresh

    # -- memory ------------------------------------------------------------------------------------

    def dump(self) -> list[Any]:
        """Return plain values from which `load` makes the same tracker."""
        return [[*source, _plain(stream)] for source, stream in self._streams.items()]

    def load(self, saved: list[Any]) -> None:
        """Take what `dump` gave, without streams that received more than was sent: they would hide as many losses."""
        for exporter, domain, version, values in saved:
            if values["received"] > values["end"] - values["first"]:
                continue
            datagrams = None if values["datagrams"] is None else _Datagrams.load(values["datagrams"])
            table = _Table(**values.get("table", {}))
            self._streams[exporter, domain, version] = _Stream(**{**values, "datagrams": datagrams, "table": table})


def _datagrams(frame: pl.DataFrame, exporters: Words, *, is_numbered: bool) -> Iterator[tuple[_Source, Ints, Ints]]:
    """Yield for every source the different numbers, ascending, and the records that came under each."""
    columns = [frame.get_column(name) for name in _COLUMNS]
    is_known = records.is_one_of(columns[0].to_numpy(), _VERSIONS)
    if exporters.texts.null_count():
        is_known &= exporters.texts.is_not_null().to_numpy()[exporters.codes]
    if (sequence := frame.get_column(records.SEQ)).null_count():
        is_known &= sequence.is_not_null().to_numpy()
    if not is_known.any():
        return
    known = slice(None) if is_known.all() else np.flatnonzero(is_known)
    exporter = exporters.codes[known]
    version, domain, number = (records.whole(column)[known] for column in columns)
    domain_bits = int(domain.max()).bit_length()
    source = (exporter << _VERSION_BITS | version) << domain_bits | domain
    sources, source = renumbered(source, int(source.max()) + 1)
    # A source's numbers begin behind those of the one before: as a rule they are together, and so are all.
    by_source = Grouped(sources, source, len(sources))
    first, last = by_source.least(number), by_source.largest(number)
    ends = np.cumsum(last - first + 1)
    above = first - np.append(0, ends[:-1])
    rows = grouped(number - above[source], int(ends[-1]))
    # What is no flow (see `two_way`) was a record all the same.
    size = None if is_numbered else np.maximum(records.whole(frame.get_column(records.FLOWS))[known], 1)
    sizes = rows.count() if size is None else rows.sum(size)
    begins = np.searchsorted(rows.keys, ends).tolist()
    for one, low, begin, end in zip(sources.tolist(), above.tolist(), [0, *begins[:-1]], begins, strict=True):
        name = exporters.texts[one >> domain_bits + _VERSION_BITS]
        stream = name, one & _mask(domain_bits), one >> domain_bits & _mask(_VERSION_BITS)
        yield stream, rows.keys[begin:end] + low, sizes[begin:end]


def _plain(value: object) -> Any:  # noqa: ANN401 - of whatever kind it is
    """Return what `dataclasses.asdict` does: that copies thousands of numbers one by one."""
    if isinstance(value, list):
        return value.copy() if not value or isinstance(value[0], int) else [_plain(one) for one in value]
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    return value


def _mask(bits: int) -> int:
    return (1 << bits) - 1
