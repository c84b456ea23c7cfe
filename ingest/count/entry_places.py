"""Where conversations entered the network: exporter and interface as one number, and its words.

A conversation that several interfaces saw is told with one of them, the same whatever came first: numbers are ordered
by what they stand for, not by when it was seen.
"""

import zlib

import numpy as np
import polars as pl

from ingest.flows.interfaces import MAX_INTERFACES
from ingest.flows.normalise import Ints, Normaliser

ORDER_DIGITS = 8
"""Hexadecimal digits at the begin of a text that give it the order of its number; whoever tells it leaves them out."""

_INTERFACE_BITS = (MAX_INTERFACES - 1).bit_length()


class EntryPlaces:
    """Numbers of entries.

    Args:
        books: know exporters and interfaces; both only grow.
    """

    def __init__(self, books: Normaliser) -> None:
        self._books = books
        self._texts: list[str] = []
        self._numbers: Ints = np.empty(0, np.int64)

    def of(self, interfaces: Ints) -> Ints:
        """Return the entries of interface numbers; none is 0."""
        if len(self._texts) < len(self._books.interfaces.exporters):
            self._learn()
        return self._numbers[interfaces]

    def text(self, column: str) -> pl.Expr:
        """Return ORDER_DIGITS, exporter, a blank and interface of a column of entries; null where it is 0."""
        number = pl.col(column)
        texts = pl.lit(pl.Series(self._texts or [""]))
        found = texts.gather((number & (MAX_INTERFACES - 1)).clip(0, max(len(self._texts) - 1, 0)))
        return pl.when(number > 0).then(found)

    def _learn(self) -> None:
        interfaces, exporters = self._books.interfaces, self._books.exporters.names
        known = len(self._texts)
        names = interfaces.names[known:].to_list()
        fresh = [
            f"{exporters[exporter]} {name}".strip()
            for exporter, name in zip(interfaces.exporters[known:].tolist(), names, strict=True)
        ]
        # One more than the sum, so that none is 0.
        orders = [zlib.crc32(text.encode()) + 1 for text in fresh]
        numbers = [order << _INTERFACE_BITS | number for number, order in enumerate(orders, start=known)]
        self._texts += [f"{order - 1:0{ORDER_DIGITS}x}{text}" for order, text in zip(orders, fresh, strict=True)]
        self._numbers = np.concatenate([self._numbers, np.array(numbers, np.int64)])
