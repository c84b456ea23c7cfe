"""Labels of the address book's numbers: each distinct outside address is looked up once, however many rows it has.

A feed that changes while flows come in is loaded beside them; from then on every address is looked up again.
"""

from collections.abc import Iterable
from itertools import islice

import numpy as np
import numpy.typing as npt
import polars as pl

from enrichment.addresses.prefixes import prefix_text
from enrichment.feeds.threats import END, POSITION, START, Threats, in_force
from enrichment.labels import NOTHING, Labels, Row
from ingest.flows.classify import AddressBook
from store import schema
from store.points import WINDOW

_NOT_ASKED = -1
_BITS = 128


class LabelledAddresses:
    """What is known of the book's addresses.

    Args:
        labels: who knows it.
        addresses: numbers addresses; another thread must not use it meanwhile.
        outside: by group code, whether a group is outside; nothing is asked about others.
    """

    def __init__(self, labels: Labels, addresses: AddressBook, outside: npt.NDArray[np.bool_]) -> None:
        self._labels, self._book, self._outside = labels, addresses, outside
        self._forget()

    def _forget(self) -> None:
        self._generations = self._labels.generation, self._book.generation
        # Many addresses share a few rows of labels: a number has a code, and a code has labels.
        self._codes: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._rows: dict[Row, int] = {NOTHING: 0}
        self._table = _as_table(self._rows)

    def columns(self, numbers: pl.Series) -> list[pl.Series]:
        """Return `schema.LABELS` of these numbers, as many rows; empty texts where nothing is known."""
        if self._generations != (self._labels.generation, self._book.generation):
            self._forget()
        asked = numbers.to_numpy()
        if len(self._codes) < len(self._book):
            fresh = np.full(len(self._book) - len(self._codes), _NOT_ASKED, np.int32)
            self._codes = np.concatenate([self._codes, fresh])
        unknown = np.unique(asked[self._codes[asked] == _NOT_ASKED])
        if len(unknown):
            self._ask(unknown)
        codes = pl.Series(self._codes[asked])
        return [self._table.get_column(name).gather(codes) for name in schema.LABELS]

    def _ask(self, numbers: npt.NDArray[np.uint32]) -> None:
        is_outside = self._outside[self._book.group_codes[numbers]]
        self._codes[numbers[~is_outside]] = 0
        outside = numbers[is_outside]
        texts = self._book.names.gather(outside).to_list()
        # A node of the inventory has another name than its address.
        for place in np.flatnonzero(self._book.listed[outside]).tolist():
            texts[place] = prefix_text(self._book.keys[outside[place]], _BITS)
        found = self._labels.of(texts)
        before = len(self._rows)
        self._codes[outside] = [self._rows.setdefault(row, len(self._rows)) for row in found]
        if len(self._rows) > before:
            self._table = pl.concat([self._table, _as_table(islice(self._rows, before, None))], rechunk=True)


def _as_table(rows: Iterable[Row]) -> pl.DataFrame:
    return pl.DataFrame([*rows], schema=dict.fromkeys(schema.LABELS, pl.String), orient="row")


ROW = "row"
"""Column that tells the rows of `KnownBad.listed` apart."""

_NUMBER = "number"


class KnownBad:
    """Which of the book's addresses are listed.

    Args:
        threats: the feeds.
        addresses: numbers addresses; another thread must not use it meanwhile.
        outside: by group code, whether a group is outside.
    """

    def __init__(self, threats: Threats, addresses: AddressBook, outside: npt.NDArray[np.bool_]) -> None:
        self._threats, self._book, self._outside = threats, addresses, outside
        self._holds_for = -1, -1
        self._flags: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        self._listings = pl.DataFrame()

    def flags(self) -> npt.NDArray[np.bool_]:
        """Return for each number of the book whether a feed lists the address, at whatever time."""
        # Asked for before the feeds are: what is read meanwhile makes another one.
        current = self._threats.version, self._book.generation
        if current != self._holds_for:
            self._flags, self._listings = np.empty(0, np.bool_), pl.DataFrame()
            self._holds_for = current
        known = len(self._flags)
        if known < len(self._book):
            fresh = np.arange(known, len(self._book))
            fresh = fresh[self._outside[self._book.group_codes[fresh]]]
            found = self._threats.listings(self._book.keys[fresh])
            found = found.with_columns(pl.Series(_NUMBER, fresh[found.get_column(POSITION).to_numpy()], pl.Int64))
            self._listings = pl.concat([self._listings, found]) if self._listings.width else found
            self._flags = np.concatenate([self._flags, np.zeros(len(self._book) - known, np.bool_)])
            self._flags[found.get_column(_NUMBER).to_numpy()] = True
        return self._flags

    def listed(self, rows: pl.DataFrame, number: str, seconds: int) -> pl.DataFrame:
        """Return the rows whose address is listed at their time, with what lists it.

        Args:
            rows: WINDOW and others, of addresses that `flags` marks.
            number: column with the address.
            seconds: length of a window.
        """
        numbered = rows.with_row_index(ROW)
        holding = numbered.select(ROW, WINDOW, pl.col(number).alias(_NUMBER)).join(self._listings, on=_NUMBER)
        holding = holding.filter(pl.col(START) < pl.col(WINDOW) + seconds, pl.col(END) > pl.col(WINDOW))
        return numbered.join(in_force(holding, [ROW]), on=ROW)
