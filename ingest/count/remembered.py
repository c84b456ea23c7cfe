"""Records that another exporter may have as well, as they came: chunks that never change, and beside them who counts.

A checkpoint writes each chunk once, and again only what is said of its records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from app.heap import set_apart
from ingest.flows.classify import AddressBook
from store import schema

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Columns = dict[str, np.ndarray]
"""Equally long arrays by name."""

CONVERSATION, QUALITY, SRC, DST, PROTOCOL, SERVICE = "conversation", "quality", "src", "dst", "protocol", "service"
MARKS, SRC_PORT, DST_PORT, START, SPAN = "marks", "src_port", "dst_port", "start", "span"
BYTES, PACKETS, FLOWS = "bytes", "packets", "flows"
BY, WHY, WAITS = "by", "why", "waits"

_KEY = (schema.EXPORTER, SRC, DST, SRC_PORT, DST_PORT, PROTOCOL, SERVICE, MARKS, QUALITY)
KEPT = (*_KEY, START, SPAN, BYTES, PACKETS, FLOWS)
"""What a checkpoint has of a record, beside BASE: START is epoch ms after it, SPAN the ms from there to the end."""
BASE = "base"

_FEWEST, _MOST = 14, 23
_MANY, _TAG = np.uint32(0xFFFF), np.uint64(0xFFFF0000)
_TAG_SHIFT = np.uint64(10)
_ODD = [np.uint64(one) for one in (1, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)]
"""Of each table: which bits of a conversation's number say where it goes."""


class Owners:
    """Which exporter saw each conversation, so that those that only one saw need not be compared.

    A place has one conversation, known by 16 bits of its number. Another one that falls there goes to the next table;
    behind the last one it is taken for shared, as are two of the same bits: that costs a comparison, and changes
    nothing. Nothing leaves its place, so a conversation is found where it was put.
    """

    def __init__(self) -> None:
        self._bits = 0
        self.clear(0)

    def clear(self, rows: int) -> None:
        """Forget everything; make room for so many records."""
        before, self._bits = self._bits, int(np.clip((4 * rows).bit_length(), _FEWEST, _MOST))
        if before == self._bits:
            for table in self._tables:
                table.fill(0)
            return
        self._tables: list[npt.NDArray[np.uint32]] = []
        self._tables += [np.zeros(1 << self._bits - 2 * level, np.uint32) for level in range(len(_ODD))]

    def has_room(self, rows: int) -> bool:
        """Whether so many records seldom meet by chance."""
        return self._bits == _MOST or rows << 1 <= 1 << self._bits

    def claim(self, conversation: npt.NDArray[np.uint64], exporter: npt.NDArray[np.uint16]) -> Flags:
        """Take note of who saw what; return of which of these another exporter may have seen the conversation."""
        shared = np.zeros(len(conversation), np.bool_)
        left: Ints | None = None
        for level, table in enumerate(self._tables):
            place = self._place(conversation, level)
            own = ((conversation >> _TAG_SHIFT) & _TAG).astype(np.uint32)
            own |= exporter
            own += np.uint32(1)
            found = table[place]
            free = found == 0
            if free.any():
                table[place[free]] = own[free]
                found = table[place]
            differ = np.flatnonzero(found != own)
            if not len(differ):
                return shared
            is_same = (found[differ] ^ own[differ]) <= _MANY
            same, others = differ[is_same], differ[~is_same]
            if len(same):
                table[place[same]] = own[same] | _MANY
                # Those too that were the first in this batch.
                many = np.flatnonzero(table[place] == own | _MANY)
                shared[many if left is None else left[many]] = True
            left = others if left is None else left[others]
            conversation, exporter = conversation[others], exporter[others]
        shared[left] = True
        return shared

    def marked(self, parts: Sequence[npt.NDArray[np.uint64]]) -> Flags:
        """Return by place of the first table whether any of these conversations falls there."""
        marks = np.zeros(1 << self._bits, np.bool_)
        for part in parts:
            marks[self._place(part)] = True
        return marks

    def among(self, marks: Flags, conversation: npt.NDArray[np.uint64]) -> Ints:
        """Return which of these conversations fall into marked places."""
        return np.flatnonzero(marks[self._place(conversation)])

    def _place(self, conversation: npt.NDArray[np.uint64], level: int = 0) -> Ints:
        bits = conversation * _ODD[level] if level else conversation
        return (bits >> np.uint64(64 - self._bits + 2 * level)).view(np.int64)


@dataclass(slots=True)
class Chunk:
    """Records that were taken together.

    Attributes:
        number: no other chunk's, and larger than those of earlier ones.
        base: epoch ms from which START counts.
        columns: CONVERSATION and those of KEPT, in as few bytes as will do; SRC and DST index `texts`.
        texts: addresses.
        groups: of each text, its group's code.
        numbers: of each text, its number in the address book of this generation.
        by, why: exporter that counts instead of the record's own, -1 if it counts itself, and the reason's place.
        waits: which records nobody has counted yet; None: all are counted.
        newest: epoch ms at which the last one begins.
        span: epoch ms at which the first one begins and the last one ends.
    """

    number: int
    base: int
    columns: Columns
    texts: pl.Series
    groups: npt.NDArray[np.uint8]
    numbers: Ints
    generation: int
    by: npt.NDArray[np.int16]
    why: npt.NDArray[np.uint8]
    waits: Flags | None
    newest: int
    span: tuple[int, int]
    _said: pl.DataFrame | None = None

    def __len__(self) -> int:
        return len(self.by)

    def say(self, rows: Ints, by: Ints, why: Ints) -> None:
        """Take who counts some of the records."""
        self.by[rows], self.why[rows], self._said = by, why, None

    def starts(self, rows: Ints | slice) -> Ints:
        """Return when some records begin, epoch ms."""
        return self.columns[START][rows].astype(np.int64) + self.base

    def without(self, first: int) -> "Chunk":
        """Return it without its first records."""
        columns = {name: column[first:] for name, column in self.columns.items()}
        waits = None if self.waits is None else self.waits[first:]
        beside = (self.texts, self.groups, self.numbers, self.generation)
        return Chunk(
            self.number, self.base, columns, *beside, self.by[first:], self.why[first:], waits, self.newest, self.span
        )

    def rows(self, exporters: Sequence[str], services: Sequence[str]) -> pl.DataFrame:
        """Return the records as they are kept."""
        addresses = _as_words(self.texts)
        words = {SRC: addresses, DST: addresses}
        words |= {schema.EXPORTER: _as_words(exporters), SERVICE: _as_words(services)}
        # A dictionary and its numbers: four bytes an address.
        return pl.DataFrame({name: self.columns[name] for name in KEPT}).with_columns(
            pl.lit(self.base, pl.Int64).alias(BASE),
            *(texts.gather(self.columns[name]).alias(name) for name, texts in words.items()),
        )

    def said(self, exporters: Sequence[str]) -> pl.DataFrame:
        """Return who counts each record, the same object as long as it is the same."""
        if self._said is None:
            names = _as_words([*exporters, ""])
            self._said = pl.DataFrame({BY: names.gather(np.where(self.by < 0, len(exporters), self.by)), WHY: self.why})
        return self._said

    @property
    def is_plain(self) -> bool:
        """Whether every record counts by itself."""
        return not self.why.any()


def chunk_of(
    number: int,
    base: int,
    parts: Sequence[Columns],
    book: AddressBook,
    said: tuple[npt.NDArray[np.int16], npt.NDArray[np.uint8]] | None = None,
) -> Chunk:
    """Return a chunk of records whose SRC and DST are numbers of the address book, and that may have WAITS."""
    is_used = np.zeros(len(book), np.bool_)
    for part in parts:
        is_used[part[SRC]] = is_used[part[DST]] = True
    numbers = np.flatnonzero(is_used)
    place = np.zeros(len(book), np.min_scalar_type(len(numbers)))
    place[numbers] = np.arange(len(numbers))
    rows = sum(len(part[START]) for part in parts)
    by, why = said or (np.full(rows, -1, np.int16), np.zeros(rows, np.uint8))
    whole = {name: [part[name] for part in parts] for name in parts[0] if name != WAITS} | {BY: [by], WHY: [why]}
    columns = set_apart(whole | {name: [place[part] for part in whole[name]] for name in (SRC, DST)})
    by, why = columns.pop(BY), columns.pop(WHY)
    waits = np.concatenate([part[WAITS] for part in parts]) if WAITS in parts[0] else None
    start, end = columns[START], np.add(columns[START], columns[SPAN], dtype=np.int64)
    return Chunk(
        number, base, columns, book.texts.gather(numbers), book.group_codes[numbers], numbers, book.generation, by, why,
        waits if waits is not None and waits.any() else None,
        int(start.max()) + base, (int(start.min()) + base, int(end.max()) + base),
    )  # fmt: skip


def small(column: np.ndarray) -> np.ndarray:
    """Return whole numbers in as few bytes as will do."""
    if column.dtype.itemsize == 1:
        return column
    # Its highest bit is that of the largest; negative as soon as one is.
    bits = int(np.bitwise_or.reduce(column))
    return column.astype(np.min_scalar_type(bits), copy=False) if bits >= 0 else column


def _as_words(texts: pl.Series | Sequence[str]) -> pl.Series:
    texts = pl.Series(texts, dtype=pl.String)
    return texts.cast(pl.Enum(texts.unique(maintain_order=True)))
