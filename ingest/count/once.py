"""Which of several exporters counts a conversation, where cluster.yaml does not say.

A conversation is what has the same addresses, ports and protocol in one direction. Of the exporters that saw one, the
best counts it: one that does not sample, or samples less, one whose interfaces cluster.yaml describes, then the first
in cluster.yaml. A record of another one counts as well unless the better exporter saw the conversation both where
the record begins and where it ends, and has half of its bytes: so what only one sees is not lost. That is asked again
whenever records come, as long as the record's windows can be rewritten: which exporter reports first makes no
difference to the totals. Two whose interfaces are described are not compared: each packet counts where it enters.

Samples need one thing more: that one exporter drew a small conversation and the other did not says nothing about who
sees it. So by pair of groups it is found out whether conversations large enough to be in both exporters' samples are in
both; from a moment on that lies ahead, the small ones are the better exporter's as well.

All records of a conversation are in one Kafka partition (records go by their source), so nothing is shared by workers.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import polars.selectors as cs

from cluster.model import Cluster
from ingest.checkpoint import Frames, Later
from ingest.count import remembered
from ingest.count.conversations import PROTOCOLS, VAGUE, Conversations, counted, marks_of, opens
from ingest.count.grouped import ODD, grouped, mixed, renumbered
from ingest.count.remembered import Chunk, Columns, Owners, chunk_of
from ingest.count.sightings import NOBODY, PLACE_BITS, SLACK_MS, Seen, is_loose, sightings
from ingest.count.windows import Shares, prorate
from ingest.flows.archive_rows import DESCRIBED as _DESCRIBED
from ingest.flows.archive_rows import GUESSED as _GUESSED
from ingest.flows.archive_rows import qualities
from ingest.flows.normalise import Flags, Flows, Ints, Normaliser
from store import schema
from store.points import WINDOW
from store.schema import Because

__all__ = ["NAME", "SLACK_MS", "Once", "Settled"]

NAME = "newest-records"
"""Table of a checkpoint."""
_SAID = "newest-verdicts"

_MOST_ROWS = 4_000_000
"""Records remembered: about 0.3 GB. With more, the oldest are forgotten before their grace ends."""
_REBUILT_EACH = 1 << 16
"""Records let go of before which it does not pay to forget who saw them."""

_CHUNK_ROWS = 500_000
"""Records of a chunk, about: while one is made or written, memory holds it twice."""

_AT_ONCE = 250_000
"""Records that are compared at once, about."""

_HEAVY = 8
"""Samples in a record that make it next to certain that another exporter with that rate has one of the conversation."""
_LARGE = 24
"""Samples of a conversation of which another exporter with that rate has a quarter, but once in 300,000 times."""
_LEAST_RECORDS, _LEAST_CONVERSATIONS = 20, 10
"""Of heavy ones: fewer prove nothing."""
_SAME_SHARE = 0.95
_SILENT_MS = 120_000
"""An exporter of which a group pair has had no record for so long does not count for others."""
_EARLIER_MS = 10 * 86_400_000
"""How much earlier than the first batch of a chunk later ones may begin without taking more bytes."""
_FEW_SAMPLES = 0.25
"""Share of a batch below which its samples take little room one by one."""
_HAS_PORTS = np.isin(np.arange(PROTOCOLS), (6, 17, 132))
_COMPARED = (
    remembered.CONVERSATION, schema.EXPORTER, remembered.QUALITY, remembered.SPAN, remembered.MARKS,
    remembered.BYTES, remembered.PACKETS,
)  # fmt: skip
_LAST_PLACE = (1 << PLACE_BITS) - 1

_REASONS = list(Because)
_CODE = {reason: code for code, reason in enumerate(_REASONS)}
_ITSELF = _CODE[Because.ITSELF]

_END = "end"


@dataclass(frozen=True, slots=True)
class Settled:
    """What is to be added to the totals; sums may be negative where a record no longer counts, or counts again.

    Attributes:
        suppressed: partial points of EXPORTER_STATUS.
        counting: partial points of COUNTING.
        suppressed_bytes: what is suppressed, in sum.
    """

    suppressed: pl.DataFrame
    counting: pl.DataFrame
    suppressed_bytes: int


@dataclass(frozen=True, slots=True)
class _Records:
    """Some records of several chunks.

    Attributes:
        columns: what tells whether they count; the rest stays in the chunks, of which `column` puts it together.
        groups: codes of the source's group and the destination's.
        by, why, waits: as in a chunk.
        parts: the chunk, which of its records these are, and where they stand here.
    """

    columns: Columns
    groups: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
    by: Ints
    why: Ints
    waits: Flags
    parts: list[tuple[Chunk, Ints, slice]]

    @property
    def start(self) -> Ints:
        return self.columns[remembered.START]

    @property
    def end(self) -> Ints:
        return np.asarray(self.start + self.columns[remembered.SPAN], np.int64)

    def column(self, name: str) -> npt.NDArray[np.integer]:
        """Return a column of the chunks."""
        return np.concatenate([chunk.columns[name][rows] for chunk, rows, _ in self.parts])


class Once:
    """The records of the last minutes that another exporter may have seen as well.

    What no other exporter has seen so far counts at once, on the way of all other records. The rest waits for `settle`.

    Args:
        cluster: its windows.
        books: names of the codes in flows.
        is_final: whether windows that left memory stay as they are; a backfill may come back to them.

    Attributes:
        evicted_before: records that begin before this second are no longer here.
        forgotten: records dropped before their time since the caller last set it to 0: there was no room for them.
        decisions: by source group, destination group and sampling exporter: from which second on who counts what only
            that exporter drew; empty for itself.
    """

    def __init__(self, cluster: Cluster, books: Normaliser, *, is_final: bool) -> None:
        self._seconds = cluster.bridge.window
        # What is final still shows who saw the conversation.
        self._keep = cluster.bridge.lateness + cluster.bridge.grace
        self._books = books
        self._is_final = is_final
        self._waiting: list[Columns] = []
        self._counted: list[Ints] = []
        self._changed: set[int] = set()
        self._chunks: deque[Chunk] = deque()
        self._next = 0
        self._owners = Owners()
        self._let_go = 0
        self._base = 0
        # Those of the book, and those that are no longer in cluster.yaml.
        self._names: list[str] = []
        self._own = np.empty(0, np.uint16)
        self._hashes: tuple[int, npt.NDArray[np.uint64]] = -1, np.empty((2, 0), np.uint64)
        self.evicted_before = 0
        self.forgotten = 0
        self.decisions: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
        self._span = self._keep // self._seconds * self._seconds
        self._judged_to = 0
        # Up to when records were judged by another cluster.yaml, epoch ms; 0: all of them are final.
        self._anew_to = 0
        books.addresses.before_reset(self._seal)

    # -- in ----------------------------------------------------------------------------------------

    def wanted(self, flows: Flows) -> Flags | None:
        """Return which records count only if no better exporter saw them; None if none of these has to be asked."""
        book = self._books.exporters
        if not book.may_repeat:
            return None
        wanted = flows.counts
        if book.is_told.any():
            groups = self._books.addresses.group_codes
            wanted = wanted & ~book.is_told[groups[flows.src], groups[flows.dst]]
        return wanted if wanted.any() else None

    def take(self, flows: Flows, shares: Shares, wanted: Flags, oldest: int | None) -> Flags:
        """Take the records of a batch that are wanted; return which of them count only when `settle` says so.

        Args:
            flows: the batch.
            shares: its pieces.
            wanted: what `wanted` returned.
            oldest: number of the oldest window kept.
        """
        exporter = self._own_numbers()[flows.exporter]
        conversation = self._conversations(flows.src, flows.dst, (flows.src_port, flows.dst_port), flows.protocol)
        rows = slice(None) if wanted.all() else np.flatnonzero(wanted)
        self._make_room(len(flows))
        held = np.zeros(len(flows), np.bool_)
        held[rows] = self._owners.claim(conversation[rows], exporter[rows])
        if self.decisions:
            judged = {exporter for (_, _, exporter), said in self.decisions.items() if any(by for _, by in said)}
            held |= wanted & np.array([name in judged for name in self._names])[exporter]
        if not self._waiting:
            self._base = int(flows.start.min()) - _EARLIER_MS
        whole: Columns = {
            remembered.CONVERSATION: conversation,
            schema.EXPORTER: exporter,
            remembered.SRC: flows.src,
            remembered.DST: flows.dst,
            remembered.SRC_PORT: flows.src_port,
            remembered.DST_PORT: flows.dst_port,
            remembered.PROTOCOL: flows.protocol,
            remembered.SERVICE: flows.service,
            remembered.MARKS: marks_of(flows, flows.counts) | flows.vague * VAGUE,
            remembered.QUALITY: qualities(flows, self._books.exporters),
            remembered.START: flows.start - self._base,
            remembered.SPAN: flows.end - flows.start,
            remembered.BYTES: flows.bytes,
            remembered.PACKETS: flows.packets,
            remembered.FLOWS: flows.flows,
            remembered.WAITS: held,
        }
        columns = {name: remembered.small(column) for name, column in whole.items()}
        window_ms = self._seconds * 1000
        late = wanted & (flows.start < (oldest or 0) * window_ms)
        sampled = wanted & ~late & flows.is_sflow
        if sampled.sum() < _FEW_SAMPLES * len(flows):
            sampled = np.zeros_like(sampled)
        if late.any():
            self._waiting.append(_clamped(_some(columns, late), shares.of(late), self._base, window_ms))
        if sampled.any():
            self._waiting.append(_folded(_some(columns, sampled), self._base % window_ms, window_ms))
        self._waiting.append(_some(columns, wanted & ~late & ~sampled))
        if sum(len(one[remembered.WAITS]) for one in self._waiting) >= _CHUNK_ROWS:
            self._seal()
        if (alone := wanted & ~held).any():
            volume = shares.bytes if alone.all() else shares.bytes * alone[shares.record]
            codes = self._books.addresses.group_codes
            self._count(shares, volume, (codes[flows.src], codes[flows.dst], exporter))
        return held

    def _own_numbers(self) -> npt.NDArray[np.uint16]:
        """Return the book's exporters as numbered here."""
        names = self._books.exporters.names
        if len(self._own) < len(names):
            self._names += [name for name in names if name not in self._names]
            self._own = np.array([self._names.index(name) for name in names], np.uint16)
        return self._own

    def _conversations(self, src: Ints, dst: Ints, ports: tuple[Ints, Ints], protocol: Ints) -> npt.NDArray[np.uint64]:
        """Return a number for each conversation, the same in every process: 64 bits of addresses, ports, protocol."""
        book = self._books.addresses
        generation, hashes = self._hashes
        if generation != book.generation:
            hashes = hashes[:, :0]
        if hashes.shape[1] < len(book):
            hashes = np.concatenate([hashes, _hashes(book.keys[hashes.shape[1] :])], axis=1)
        self._hashes = book.generation, hashes
        rest = (ports[0] << 16 | ports[1]) * _HAS_PORTS[protocol] << 9 | protocol
        numbers = rest.view(np.uint64) * ODD
        numbers += hashes[0][src]
        numbers += hashes[1][dst]
        return numbers

    def _make_room(self, rows: int) -> None:
        if not self._owners.has_room(expected := len(self) + rows):
            self._recall(2 * expected)

    def _recall(self, rows: int) -> None:
        """Note who saw what is remembered, and forget who saw anything else."""
        self._owners.clear(rows)
        for columns in (*(chunk.columns for chunk in self._chunks), *self._waiting):
            self._owners.claim(columns[remembered.CONVERSATION], columns[schema.EXPORTER])
        self._let_go = 0

    def _seal(self) -> None:
        """Make a chunk of what was taken, before the address book forgets its numbers."""
        if self._waiting:
            self._add(chunk_of(self._next, self._base, self._waiting, self._books.addresses))
            self._waiting.clear()

    def _add(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)
        self._changed.add(chunk.number)
        self._next = max(self._next, chunk.number + 1)

    # -- as a table of windows -----------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(map(len, self._chunks)) + sum(len(one[remembered.WAITS]) for one in self._waiting)

    @property
    def pending_rows(self) -> int:
        """Records that wait for `settle`, and chunks that changed since `merge` was called."""
        waits = [chunk.waits for chunk in self._chunks if chunk.waits is not None]
        waits += [one[remembered.WAITS] for one in self._waiting]
        return sum(int(one.sum()) for one in waits) + len(self._changed)

    def pending_windows(self) -> pl.Series:
        """Return the chunks that changed."""
        return pl.Series(WINDOW, sorted(self._changed), pl.Int64)

    def merge(self) -> None:
        """Take note that somebody has the state."""
        self._changed.clear()

    def frames(self) -> Frames:
        """Return the state by name; a frame that did not change is the same object, or of the same, as last time."""
        frames: Frames = {}
        for chunk in self._chunks:
            rows = partial(chunk.rows, self._names, self._books.services.names)
            frames[f"{NAME}-{chunk.number}"] = Later(chunk.columns, rows)
            if not chunk.is_plain:
                frames[f"{_SAID}-{chunk.number}"] = chunk.said(self._names)
        return frames

    def rows_of(self, numbers: Collection[int]) -> pl.DataFrame:
        """Return the state of some chunks as one frame, their numbers as WINDOW."""
        parts = [
            pl.concat([chunk.rows(self._names, self._books.services.names), chunk.said(self._names)], how="horizontal")
            .cast({pl.Enum: pl.String, cs.integer(): pl.Int64})
            .with_columns(pl.lit(chunk.number, pl.Int64).alias(WINDOW))
            for chunk in self._chunks
            if chunk.number in numbers
        ]
        return pl.concat(parts) if parts else pl.DataFrame(schema={WINDOW: pl.Int64})

    def restore(
        self, frames: Mapping[str, pl.DataFrame], names: Mapping[str, str], *, are_others: bool = False
    ) -> None:
        """Take the state of before a restart, as `frames` or `rows_of` gave it.

        Args:
            frames: the state.
            names: other names that exporters have now.
            are_others: whether cluster.yaml says other things of exporters now: another one may be the best.
        """
        found: dict[int, pl.DataFrame] = {}
        # What was kept before records were kept like this stays as it was counted.
        if NAME in frames and remembered.BASE in frames[NAME].columns:
            parts = frames[NAME].partition_by(WINDOW, as_dict=True)
            found = {int(str(number)): part for (number,), part in parts.items()}
        for name, rows in frames.items():
            if name.startswith(f"{NAME}-"):
                number = int(name.removeprefix(f"{NAME}-"))
                said = frames.get(f"{_SAID}-{number}")
                found[number] = rows if said is None else pl.concat([rows, said], how="horizontal")
        self._own_numbers()
        for number in sorted(found):
            # Under two names one exporter would take its own records for another's.
            exporters = [name for name in (schema.EXPORTER, remembered.BY) if name in found[number].columns]
            rows = found[number].cast({pl.Enum: pl.String}).with_columns(pl.col(exporters).replace(names))
            self._add(self._restored(number, rows))
        self._changed.clear()
        if are_others and self._chunks:
            self._anew_to = max(chunk.newest for chunk in self._chunks)
        self._recall(2 * len(self))

    def _restored(self, number: int, rows: pl.DataFrame) -> Chunk:
        said = [] if remembered.BY not in rows.columns else [name for name in rows[remembered.BY].unique() if name]
        known = {*self._names}
        self._names += [name for name in sorted({*rows[schema.EXPORTER].unique(), *said}) if name not in known]
        exporters = {name: code for code, name in enumerate(self._names)}
        services = {name: code for code, name in enumerate(self._books.services.names)}
        texts = rows[remembered.SRC], rows[remembered.DST]
        ends = [end.to_numpy().astype(np.int64) for end in self._books.addresses.number(*texts)]
        columns = {name: rows[name].to_numpy() for name in remembered.KEPT if rows.schema[name] != pl.String}
        columns |= {remembered.SRC: ends[0], remembered.DST: ends[1]}
        for name, codes in ((schema.EXPORTER, exporters), (remembered.SERVICE, services)):
            other = codes.get(schema.OTHER, 0)
            columns[name] = rows[name].replace_strict(codes, default=other, return_dtype=pl.UInt16).to_numpy()
        ports, protocol = ((columns[remembered.SRC_PORT], columns[remembered.DST_PORT]), columns[remembered.PROTOCOL])
        whole = [column.astype(np.int64) for column in (*ports, protocol)]
        columns[remembered.CONVERSATION] = self._conversations(ends[0], ends[1], (whole[0], whole[1]), whole[2])
        verdicts = None
        if remembered.BY in rows.columns:
            by = rows[remembered.BY].replace_strict({"": NOBODY, **exporters}, return_dtype=pl.Int16)
            verdicts = by.to_numpy().copy(), rows[remembered.WHY].cast(pl.UInt8).to_numpy().copy()
        return chunk_of(number, int(rows[remembered.BASE][0]), [columns], self._books.addresses, verdicts)

    def put_back(self, rows: pl.DataFrame) -> None:
        """Do nothing: what was evicted is final."""

    def evict(self, before: int, _held: Collection[int] = ()) -> pl.DataFrame:
        """Forget what is too old to tell anything, given when the oldest window in grace begins.

        Returns:
            The numbers of the chunks that went, as WINDOW.
        """
        self._seal()
        self._decide(before)
        if before * 1000 > self._anew_to:
            self._anew_to = 0
        before -= self._keep
        self.evicted_before = max(self.evicted_before, before)
        rows = len(self)
        # What waits for `settle` counts nowhere yet.
        kept = deque(chunk for chunk in self._chunks if chunk.newest >= before * 1000 or chunk.waits is not None)
        excess = sum(map(len, kept)) - _MOST_ROWS
        while excess > 0 and kept[0].waits is None:
            chunk = kept.popleft()
            went = chunk.starts(slice(excess))
            self.forgotten += len(went)
            # What begins before that may lack its match: it yields to what counted.
            newest = int(went.max()) // (self._seconds * 1000) * self._seconds
            self.evicted_before = max(self.evicted_before, newest + self._seconds)
            if len(chunk) > excess:
                kept.appendleft(chunk.without(excess))
                self._changed.add(chunk.number)
            excess -= len(chunk)
        gone = {chunk.number for chunk in self._chunks} - {chunk.number for chunk in kept}
        self._changed -= gone
        self._chunks = kept
        self._let_go += rows - len(self)
        if self._let_go >= max(_REBUILT_EACH, len(self)):
            self._recall(2 * len(self))
        # A backfill would put aside all its records for those few that come later than two graces.
        return pl.DataFrame({WINDOW: sorted(gone) if self._is_final else []}, schema={WINDOW: pl.Int64})

    # -- verdicts ----------------------------------------------------------------------------------

    def settle(self, oldest: int | None, take: Callable[[Conversations], None]) -> Settled | None:
        """Return what the records taken change; None without any.

        Args:
            oldest: number of the oldest window in memory; None: all are.
            take: takes rows as of batches, part by part: with the next one the address book may forget their numbers.
        """
        self._seal()
        waiting = [(chunk, chunk.waits) for chunk in self._chunks if chunk.waits is not None]
        if waiting:
            self._compare(waiting, oldest, take)
        if not self._counted:
            return None
        counting = self._counting()
        suppressed = (
            counting.filter(pl.col(schema.COUNTED_BY) != pl.col(schema.EXPORTER))
            .group_by(WINDOW, schema.EXPORTER)
            .agg(pl.sum(schema.COUNTING_BYTES.name).alias(schema.EXPORTER_SUPPRESSED.name))
        )
        whole = int(suppressed.get_column(schema.EXPORTER_SUPPRESSED.name).sum())
        return Settled(suppressed, counting, whole)

    def _compare(
        self, waiting: list[tuple[Chunk, Flags]], oldest: int | None, take: Callable[[Conversations], None]
    ) -> None:
        """Say of all records that those waiting may change whether they count; hand on what that changes."""
        marks = self._owners.marked([chunk.columns[remembered.CONVERSATION][waits] for chunk, waits in waiting])
        found = [
            (chunk, self._owners.among(marks, chunk.columns[remembered.CONVERSATION]))
            for chunk in self._around(waiting)
        ]
        final = self._final(oldest) * 1000
        for part in _apart(found):
            take(self._compared(self._picked(part), final))
        for chunk, _ in waiting:
            chunk.waits = None

    def _compared(self, records: _Records, final: int) -> Conversations:
        """Say of records whether they count; return what that changes."""
        by, why = self._told(records, *self._judged(records, final), final)
        moved = ~records.waits & ((by != records.by) | (why != records.why))
        fresh = records.waits | moved
        for chunk, rows, part in records.parts:
            if fresh[part].any():
                chunk.say(rows, by[part], why[part])
                self._changed.add(chunk.number)
        before, after = np.flatnonzero(moved), np.flatnonzero(fresh)
        changes = np.concatenate([before, after])
        signs = np.concatenate([np.full(len(before), -1), np.ones(len(after), np.int64)])
        by, why = (np.concatenate([old[before], new[after]]) for old, new in ((records.by, by), (records.why, why)))
        return self._sums(records, changes, signs, (by, why))

    def _picked(self, wanted: list[tuple[Chunk, Ints]]) -> _Records:
        """Return some records of each chunk."""
        parts: list[tuple[Chunk, Ints, slice]] = []
        taken = 0
        for chunk, rows in wanted:
            if len(rows):
                parts.append((chunk, rows, slice(taken, taken + len(rows))))
                taken += len(rows)
        columns = {name: np.concatenate([chunk.columns[name][rows] for chunk, rows, _ in parts]) for name in _COMPARED}
        columns |= {name: column.astype(np.int64) for name, column in columns.items() if name in remembered.KEPT}
        groups = [
            np.concatenate([chunk.groups[chunk.columns[name][rows]] for chunk, rows, _ in parts])
            for name in (remembered.SRC, remembered.DST)
        ]
        columns[remembered.START] = np.concatenate([chunk.starts(rows) for chunk, rows, _ in parts])
        waits = (
            chunk.waits[rows] if chunk.waits is not None else np.zeros(len(rows), np.bool_) for chunk, rows, _ in parts
        )
        return _Records(
            columns,
            (groups[0], groups[1]),
            np.concatenate([chunk.by[rows] for chunk, rows, _ in parts]).astype(np.int64),
            np.concatenate([chunk.why[rows] for chunk, rows, _ in parts]).astype(np.int64),
            np.concatenate([*waits]),
            parts,
        )

    def _ends(self, records: _Records, changes: Ints) -> list[Ints]:
        """Return the numbers that the address book has for the sources and the destinations of some records."""
        book, names = self._books.addresses, (remembered.SRC, remembered.DST)
        if all(chunk.generation == book.generation for chunk, _, _ in records.parts):
            parts = (
                np.concatenate([chunk.numbers[chunk.columns[name][rows]] for chunk, rows, _ in records.parts])
                for name in names
            )
            return [part[changes] for part in parts]
        texts = (
            pl.concat([chunk.texts.gather(chunk.columns[name][rows]) for chunk, rows, _ in records.parts])[changes]
            for name in names
        )
        return [column.to_numpy().astype(np.int64) for column in book.number(*texts)]

    def _judged(self, records: _Records, final: int) -> tuple[Ints, Ints]:
        """Return who counts the records, and why, as far as that is not final."""
        by, why = records.by.copy(), records.why.copy()
        exporter = records.columns[schema.EXPORTER]
        # An exporter that is no longer in cluster.yaml comes last.
        places = np.full(len(self._names), _LAST_PLACE)
        places[self._own] = self._books.exporters.order[: len(self._own)]
        kept, may_change = self._near(records)
        is_described = np.zeros(len(self._names), np.bool_)
        is_described[self._own] = self._books.exporters.is_described[: len(self._own)]
        names = (remembered.CONVERSATION, remembered.QUALITY, remembered.BYTES, remembered.PACKETS, remembered.MARKS)
        conversation, quality, size, packets, marks = (records.columns[name][kept] for name in names)
        seen = sightings(
            Seen(
                conversation=conversation,
                place=places[exporter[kept]],
                quality=quality,
                start=records.start[kept],
                end=records.end[kept],
                bytes=size,
                packets=packets,
                is_described=is_described[exporter[kept]],
                is_vague=marks & VAGUE > 0,
            )
        )
        at = kept[seen.rows]
        is_final, waits = self._windows(records)[at] < final, records.waits[at]
        counts = records.by[at] == NOBODY
        is_asked = (~is_final | waits) & may_change[at]
        # They share what the better one has with those asked before, as far as all that these touch is here.
        together = np.flatnonzero(is_asked | (records.start[at] >= int(records.start[may_change].min())))
        # What is final and does not count is no reason for another record not to count.
        other, is_more = (found[is_asked[together]] for found in seen.best(together, ~is_final | counts))
        asked = np.flatnonzero(is_asked)
        late = is_final[asked]
        if late.any():
            # What comes so late that nothing can be taken back yields to what counted before.
            earlier, _ = seen.best(asked[late], ~waits & counts, any_view=True)
            better = other[late]
            other[late] = np.where(
                better == NOBODY, earlier, np.where(earlier == NOBODY, better, np.minimum(better, earlier))
            )
        rows, is_other = at[asked], other != NOBODY
        own, best = seen.quality[seen.view[asked]], seen.quality[other]
        by[rows] = np.where(is_other, exporter[kept[seen.sample[other]]], NOBODY)
        reasons = [
            (~is_other & is_more, Because.MORE),
            (~is_other, Because.ITSELF),
            (late, Because.EARLIER),
            ((best == _DESCRIBED) & (own != _DESCRIBED), Because.DESCRIBED),
            ((best > _GUESSED) & (best + 1 == own) & seen.is_described[other], Because.DESCRIBED),
            ((best <= _GUESSED) & (own > _GUESSED), Because.UNSAMPLED),
            (best < own, Because.FINER),
        ]
        why[rows] = np.select([one for one, _ in reasons], [_CODE[one] for _, one in reasons], _CODE[Because.FIRST])
        return by, why

    def _around(self, waiting: list[tuple[Chunk, Flags]]) -> list[Chunk]:
        """Return the chunks that may have what `_near` keeps; all of them where there are samples."""
        chunks = [*self._chunks]
        if self._anew_to or any(is_loose(chunk.columns[remembered.QUALITY]).any() for chunk in chunks):
            return chunks
        since = min(int(chunk.starts(np.flatnonzero(waits)).min()) for chunk, waits in waiting) - SLACK_MS
        first = min(chunk.span[0] for chunk in chunks if chunk.span[1] >= since) - SLACK_MS
        return [chunk for chunk in chunks if chunk.span[1] >= first]

    def _near(self, records: _Records) -> tuple[Ints, Flags]:
        """Return which records have to be looked at for those that wait, and for each whether it may change.

        What ended before they begin is theirs no more. Samples are: from the first to the last they are one stretch.
        """
        conversation = records.columns[remembered.CONVERSATION]
        loose = is_loose(records.columns[remembered.QUALITY])
        may_change = records.end >= int(records.start[records.waits].min()) - SLACK_MS
        if self._anew_to:
            may_change[:] = True
        kept = records.end >= int(records.start[may_change].min()) - SLACK_MS
        if loose.any():
            whole = self._owners.among(self._owners.marked([conversation[loose]]), conversation)
            may_change[whole] = kept[whole] = True
        return np.flatnonzero(kept), may_change

    def _windows(self, records: _Records) -> Ints:
        """Return when the window of each record begins, epoch ms."""
        window_ms = self._seconds * 1000
        return np.asarray(records.start // window_ms * window_ms, np.int64)

    def _told(self, records: _Records, by: Ints, why: Ints, final: int) -> tuple[Ints, Ints]:
        """Return the same with what `decisions` say of those that no other exporter has."""
        if not self.decisions:
            return by, why
        quality = records.columns[remembered.QUALITY]
        is_open = (by == NOBODY) & (why != _CODE[Because.MORE]) & (quality > _GUESSED)
        is_open &= (self._windows(records) >= final) | records.waits
        rows = np.flatnonzero(is_open)
        groups, names = self._words(self._books.addresses.groups), self._words(self._names)
        alone = pl.DataFrame(
            {
                "row": rows,
                schema.SRC_GROUP: groups.gather(records.groups[0][rows]),
                schema.DST_GROUP: groups.gather(records.groups[1][rows]),
                schema.EXPORTER: names.gather(records.columns[schema.EXPORTER][rows]),
                remembered.START: records.start[rows],
            }
        )
        places = [schema.SRC_GROUP, schema.DST_GROUP, schema.EXPORTER]
        entries = [(*place, since * 1000, other) for place, said in self.decisions.items() for since, other in said]
        told = pl.DataFrame(entries, schema=[*places, "since", "other"], orient="row").sort("since")
        start = remembered.START
        alone = alone.sort(start).join_asof(told, left_on=start, right_on="since", by=places, check_sortedness=False)
        alone = alone.filter(pl.col("other").fill_null("") != "")
        if alone.is_empty():
            return by, why
        # While the better one is silent the other counts what it sees.
        others = [self._names.index(name) for name in alone.get_column("other").unique() if name in self._names]
        parts = [(chunk, np.isin(chunk.columns[schema.EXPORTER], others)) for chunk in self._chunks]
        heard = self._frame(parts).select(
            schema.SRC_GROUP, schema.DST_GROUP, pl.col(schema.EXPORTER).alias("other"), pl.col(_END).alias("heard")
        )
        alone = alone.join_asof(
            heard.sort("heard").with_columns((pl.col("heard") - _SILENT_MS).alias("from")).sort("from"),
            left_on=start,
            right_on="from",
            by=[schema.SRC_GROUP, schema.DST_GROUP, "other"],
            check_sortedness=False,
        ).filter(pl.col("heard") >= pl.col(start) - _SILENT_MS)
        told_rows = alone.get_column("row").to_numpy()
        counts = np.array([self._names.index(name) for name in alone.get_column("other")])
        is_small = ~self._is_missed(records, told_rows, counts)
        by[told_rows[is_small]] = counts[is_small]
        why[told_rows[is_small]] = _CODE[Because.SAME]
        return by, why

    def _is_missed(self, records: _Records, rows: Ints, others: Ints) -> Flags:
        """Return which records are of conversations that are too large to be missing in the other one's samples."""
        columns = records.columns
        _, number = np.unique(columns[remembered.CONVERSATION], return_inverse=True)
        views, view = np.unique(number * len(self._names) + columns[schema.EXPORTER], return_inverse=True)
        size = np.bincount(view, columns[remembered.BYTES])
        samples = np.bincount(view, columns[remembered.PACKETS] * 2 / np.maximum(columns[remembered.QUALITY], 1))
        asked = number[rows] * len(self._names) + others
        place = np.minimum(np.searchsorted(views, asked), len(views) - 1)
        has = np.where(views[place] == asked, size[place], 0)
        own = view[rows]
        return np.asarray((samples[own] >= _LARGE) & (has < size[own] / 4), np.bool_)

    def _frame(self, parts: list[tuple[Chunk, Flags]]) -> pl.DataFrame:
        """Return some records of each chunk with their names and who counts them."""
        picked = [(chunk, np.flatnonzero(wanted)) for chunk, wanted in parts]
        groups, names = self._words(self._books.addresses.groups), self._words([*self._names, ""])

        def column(name: str) -> Ints:
            return np.concatenate([chunk.columns[name][rows] for chunk, rows in picked])

        def group(name: str) -> pl.Series:
            return groups.gather(np.concatenate([chunk.groups[chunk.columns[name][rows]] for chunk, rows in picked]))

        by = np.concatenate([chunk.by[rows] for chunk, rows in picked])
        return pl.DataFrame(
            {
                remembered.CONVERSATION: column(remembered.CONVERSATION),
                schema.SRC_GROUP: group(remembered.SRC),
                schema.DST_GROUP: group(remembered.DST),
                schema.EXPORTER: names.gather(column(schema.EXPORTER)),
                remembered.BY: names.gather(np.where(by < 0, len(self._names), by)),
                remembered.WHY: np.concatenate([chunk.why[rows] for chunk, rows in picked]),
                _END: np.concatenate(
                    [chunk.starts(rows) + chunk.columns[remembered.SPAN][rows] for chunk, rows in picked]
                ),
            }
        )

    @staticmethod
    def _words(texts: Collection[str]) -> pl.Series:
        return pl.Series([*texts], dtype=pl.String)

    def _decide(self, final: int) -> None:
        """Judge the stretches of time that are final now, whichever exporters sampled the same traffic in them."""
        end = final // self._span * self._span
        begin = max(self._judged_to, end - self._span)
        if begin < end and self._judged_to:
            self._judge(begin)
            self._drop_decisions(final - self._keep)
        self._judged_to = end

    def _judge(self, begin: int) -> None:
        own = [_CODE[one] for one in (Because.UNSAMPLED, Because.DESCRIBED, Because.EARLIER)]
        window_ms = self._seconds * 1000
        parts: list[tuple[Chunk, Flags]] = []
        for chunk in self._chunks:
            quality, packets = (
                chunk.columns[name].astype(np.int64) for name in (remembered.QUALITY, remembered.PACKETS)
            )
            window = chunk.starts(slice(None)) // window_ms * self._seconds
            is_heavy = (quality > _GUESSED) & (packets * 2 >= quality * _HEAVY)
            is_heavy &= (window >= begin) & (window < begin + self._span) & ~np.isin(chunk.why, own)
            if is_heavy.any():
                parts.append((chunk, is_heavy))
        if not parts:
            return
        is_shared = pl.col(remembered.WHY).is_in([_CODE[Because.FINER], _CODE[Because.FIRST]])
        by = pl.col(remembered.BY).filter(is_shared)
        each = (
            self._frame(parts)
            .group_by(schema.SRC_GROUP, schema.DST_GROUP, schema.EXPORTER)
            .agg(
                pl.len().alias("records"),
                pl.col(remembered.CONVERSATION).n_unique().alias("conversations"),
                by.mode().sort().first().fill_null("").alias("other"),
                by.unique_counts().max().fill_null(0).alias("shared"),
            )
            .filter((pl.col("records") >= _LEAST_RECORDS) & (pl.col("conversations") >= _LEAST_CONVERSATIONS))
        )
        for src, dst, exporter, count, _, other, shared in each.rows():
            by_name = other if shared >= _SAME_SHARE * count else ""
            said = self.decisions.get((src, dst, exporter), [])
            if by_name != (said[-1][1] if said else ""):
                # Ahead of every record so far: none of those was counted by it.
                self.decisions[src, dst, exporter] = [*said[-2:], (begin + 3 * self._span, by_name)]

    def _drop_decisions(self, before: int) -> None:
        """Let go of what others have taken the place of for all records that begin at this second or later."""
        for place, said in [*self.decisions.items()]:
            past = sum(since <= before for since, _ in said)
            kept = said[max(past - 1, 0) :]
            # That an exporter counts for itself is so without a word.
            if past and not kept[0][1]:
                kept = kept[1:]
            self.decisions[place] = kept
            if not kept:
                del self.decisions[place]

    def notes(self) -> dict[str, Any]:
        """Return what is remembered beside `state`, as plain values."""
        return {
            "judged_to": self._judged_to,
            "decisions": [[*place, *entry] for place, said in self.decisions.items() for entry in said],
        }

    def load_notes(self, notes: Mapping[str, Any], names: Mapping[str, str]) -> None:
        """Take what `notes` gave; nothing of a checkpoint of before there were any. `names` as for `restore`."""
        self._judged_to = notes.get("judged_to", 0)
        self.decisions = {}
        for src, dst, exporter, since, by in notes.get("decisions", []):
            place = src, dst, names.get(exporter, exporter)
            self.decisions.setdefault(place, []).append((since, names.get(by, by)))

    def _final(self, oldest: int | None) -> int:
        """Return before which second nothing is taken back."""
        if not self._is_final or oldest is None:
            return -(1 << 50)
        return max(oldest * self._seconds, self.evicted_before)

    # -- sums --------------------------------------------------------------------------------------

    def _sums(self, records: _Records, changes: Ints, signs: Ints, said: tuple[Ints, Ints]) -> Conversations:
        """Return what changes: some records with a sign each, and who counts each of them, and why."""
        # Only now, and column by column: what changes is a part of what was looked at.
        rest = [name for name in remembered.KEPT if name not in {remembered.START, remembered.SRC, remembered.DST}]
        columns = {name: records.column(name)[changes].astype(np.int64) for name in rest}
        columns[remembered.START] = records.start[changes]
        columns[remembered.SRC], columns[remembered.DST] = self._ends(records, changes)
        counts = (columns[remembered.BYTES], columns[remembered.PACKETS], columns[remembered.FLOWS])
        start = columns[remembered.START]
        shares = prorate(start, start + columns[remembered.SPAN], counts, window_ms=self._seconds * 1000)
        record, sign = shares.record, signs[shares.record]
        volume = shares.bytes * sign
        src_group, dst_group = (codes[changes].astype(np.int64) for codes in records.groups)
        self._count(shares, volume, (src_group, dst_group, columns[schema.EXPORTER]), said)
        kind = columns[remembered.SERVICE] * PROTOCOLS + columns[remembered.PROTOCOL]
        marks = counted(columns[remembered.MARKS], said[0] == NOBODY)
        ports = columns[remembered.SRC_PORT], columns[remembered.DST_PORT]
        port = np.where(opens(columns[remembered.MARKS]), *ports)[record]
        return Conversations(
            src=columns[remembered.SRC][record],
            dst=columns[remembered.DST][record],
            kind=kind[record],
            marks=marks[record],
            window=shares.window,
            bytes=volume,
            packets=shares.packets * sign,
            flows=shares.flows * sign,
            first=shares.first,
            last=shares.last,
            low_port=port,
            high_port=port,
            # Which of several exporters counted may change: only where one alone counts it is told.
            place=np.zeros(len(port), np.int64),
        )

    def _count(
        self,
        shares: Shares,
        volume: Ints,
        places: tuple[npt.NDArray[np.integer], ...],
        said: tuple[Ints, Ints] | None = None,
    ) -> None:
        """Take what COUNTING has of pieces of records.

        Args:
            shares: pieces of records.
            volume: of each piece, with its sign.
            places: codes of the records' source group and destination group, and their exporter.
            said: who counts instead (NOBODY: itself), and the reason's code; None: all count by themselves.
        """
        sizes = [len(self._books.addresses.groups)] * 2 + [len(self._names)]
        if said is not None:
            by, why = said
            places = (*places, np.where(by == NOBODY, places[2], by), why)
            sizes += [len(self._names), len(_REASONS)]
        kind = places[0].astype(np.int64)
        for place, size in zip(places[1:], sizes[1:], strict=True):
            kind = kind * size + place
        kinds, kind = renumbered(kind, math.prod(sizes))
        again = shares.record[len(kind) :]
        base = int(shares.window.min())
        slots = int(shares.window.max()) - base + 1
        keys = (shares.window - base) * len(kinds)
        keys += np.concatenate([kind, kind[again]]) if len(again) else kind
        rows = grouped(keys, slots * len(kinds))
        found = [*np.unravel_index(kinds[rows.keys % len(kinds)], sizes)]
        if said is None:
            found += [found[2], np.full(len(rows.keys), _ITSELF)]
        self._counted.append(np.array([rows.keys // len(kinds) + base, *found, rows.sum(volume)]))

    def _counting(self) -> pl.DataFrame:
        """Return the partial points of COUNTING of what was taken."""
        window, *codes, volume = np.concatenate(self._counted, axis=1)
        self._counted.clear()
        groups, names = self._words(self._books.addresses.groups), self._words(self._names)
        words = (groups, groups, names, names, self._words([one.value for one in _REASONS]))
        tags = (schema.SRC_GROUP, schema.DST_GROUP, schema.EXPORTER, schema.COUNTED_BY, schema.REASON)
        columns = {tag: texts.gather(code) for tag, texts, code in zip(tags, words, codes, strict=True)}
        frame = pl.DataFrame({WINDOW: window * self._seconds, **columns, schema.COUNTING_BYTES.name: volume})
        return frame.filter(pl.col(schema.COUNTING_BYTES.name) != 0)


def _apart(found: list[tuple[Chunk, Ints]]) -> Iterator[list[tuple[Chunk, Ints]]]:
    """Yield records in parts of about `_AT_ONCE`, each with all that a conversation has: comparing takes memory."""
    bits = (sum(len(rows) for _, rows in found) // _AT_ONCE).bit_length()
    # By the highest bits, as in `Owners`: what shares a place there shares a part, so in each part some record waits.
    parts = [
        (chunk.columns[remembered.CONVERSATION][rows] >> np.uint64(64 - bits)).astype(np.uint8) if bits else None
        for chunk, rows in found
    ]
    for number in range(1 << bits):
        picked = [
            (chunk, rows if part is None else rows[part == number])
            for (chunk, rows), part in zip(found, parts, strict=True)
        ]
        if any(len(rows) for _, rows in picked):
            yield picked


def _some(columns: Columns, wanted: Flags) -> Columns:
    rows = np.flatnonzero(wanted)
    return columns if len(rows) == len(wanted) else {name: column[rows] for name, column in columns.items()}


def _clamped(columns: Columns, shares: Shares, base: int, window_ms: int) -> Columns:
    """Move records that lie before the oldest window into it: one becomes one for each of its windows."""
    begin = np.maximum(shares.first, shares.window * window_ms)
    columns = columns | {remembered.MARKS: columns[remembered.MARKS] | np.uint8(VAGUE)}
    return {name: column[shares.record] for name, column in columns.items()} | {
        remembered.START: begin - base,
        remembered.SPAN: remembered.small(np.maximum(shares.last - begin, 0)),
        remembered.BYTES: remembered.small(shares.bytes),
        remembered.PACKETS: remembered.small(shares.packets),
        remembered.FLOWS: remembered.small(shares.flows),
    }


def _folded(columns: Columns, offset: int, window_ms: int) -> Columns:
    """Fold samples, of which a conversation has many in a window; START counts from `offset` after one's begin."""
    start = columns[remembered.START].astype(np.int64)
    end = start + columns[remembered.SPAN]
    key = columns[remembered.CONVERSATION]
    beside = (columns[name] for name in (schema.EXPORTER, remembered.QUALITY, remembered.MARKS))
    key = mixed(key, ((start + offset) // window_ms, *beside))
    kinds = grouped((key >> np.uint64(2)).view(np.int64), 1 << 62)
    first = kinds.least(np.arange(len(start)))
    begin = kinds.least(start)
    return (
        {name: column[first] for name, column in columns.items()}
        | {
            name: remembered.small(kinds.sum(columns[name].astype(np.int64)))
            for name in (remembered.BYTES, remembered.PACKETS, remembered.FLOWS)
        }
        | {remembered.START: begin, remembered.SPAN: remembered.small(kinds.largest(end) - begin)}
    )


def _hashes(keys: npt.NDArray[np.bytes_]) -> npt.NDArray[np.uint64]:
    """Return two numbers for each address, as a source and as a destination: [end, address]."""
    halves = np.ascontiguousarray(keys).view("<u8").reshape(-1, 2)
    mixed = np.array([[1], [2]], np.uint64)
    for half in (halves[:, 0], halves[:, 1]):
        # The finaliser of splitmix64, so that no bit of an address stays where it was.
        mixed = (mixed ^ half) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed)
