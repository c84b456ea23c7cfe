"""Conversations with addresses that threat feeds list: each distinct outside address is looked up once.

A feed that changes while flows come in is loaded beside them; from then on every address is looked up again.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from enrichment.feeds.threats import END, POSITION, START, Threats, in_force
from ingest.flows.classify import AddressBook
from store.points import WINDOW

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
