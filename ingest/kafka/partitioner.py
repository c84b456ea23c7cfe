"""Rows to partitions: each address always to the same one, and the rows of each in their order."""

from collections.abc import Iterator
from zlib import crc32

import numpy as np
import numpy.typing as npt
import polars as pl

from ingest.flows.text_numbers import Texts

_MAPPED = "::ffff:"
_MOST_REMEMBERED = 200_000
"""Addresses that are remembered between batches: about 20 MB."""


class Partitions:
    """The partitions of a topic, and of the addresses seen lately.

    An address has the same partition at all times, in all processes and versions.

    Args:
        count: how many there are.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._forget()

    def _forget(self) -> None:
        self._texts = Texts()
        self._numbers: npt.NDArray[np.uint16] = np.empty(0, np.uint16)

    def of(self, column: pl.Series) -> npt.NDArray[np.uint16]:
        """Return the partition of each address (String)."""
        if len(self._texts) > _MOST_REMEMBERED:
            self._forget()
        column = column.fill_null("")
        found = self._texts.find(column)
        if found.null_count():
            fresh = column.filter(found.is_null()).unique()
            self._texts.add(fresh)
            self._numbers = np.concatenate(
                [self._numbers, np.array([self._of(text) for text in fresh.to_list()], np.uint16)]
            )
            found = self._texts.find(column)
        numbers: npt.NDArray[np.uint16] = self._numbers[found.to_numpy()]
        return numbers

    def _of(self, text: str) -> int:
        # One address, one partition, in whichever of its two spellings it was printed.
        return crc32(text.removeprefix(_MAPPED).encode()) % self._count

    def split(self, frame: pl.DataFrame, column: str) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield the partitions that rows of a frame go to, by the address in a column, each with its rows in order.

        Records go by their source, counter samples by their exporter.
        """
        numbers = self.of(frame.get_column(column))
        if not len(numbers):
            return
        # Of so few different numbers, numpy sorts more in the time than polars groups.
        order = np.argsort(numbers, kind="stable")
        ordered = frame[order]
        counts = np.bincount(numbers, minlength=self._count)
        start = 0
        for number, count in enumerate(counts.tolist()):
            if count:
                yield number, ordered.slice(start, count)
            start += count
