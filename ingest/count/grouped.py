"""Sums of rows with equal keys, where the keys are numbers.

Few different keys are counted in place. Otherwise the keys are sorted, each with its row's number in its lower bits;
with our library in C, only the different ones are. Either way each row then has a place in the result, where its values
are added one after the other: putting the values into the keys' order takes twice as long.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingest import quick

Ints = npt.NDArray[np.int64]

ODD = np.uint64(0x9E3779B97F4A7C15)
"""To multiply by: it moves each bit of a number into all higher ones."""

_KEY_BITS = 63
_FEW = 1 << 16
_COUNTED = 1 << 20


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows by key.

    Attributes:
        keys: the different ones, ascending; what is returned below is in their order.
        places: of each row, its key's place: that among `keys`, or the key itself.
        end: all places are below this.
    """

    keys: Ints
    places: Ints
    end: int

    def count(self) -> Ints:
        """Return how many rows each key has."""
        return self._of_keys(np.bincount(self.places, minlength=self.end))

    def sum(self, values: Ints) -> Ints:
        """Return the sum of each key's rows."""
        return self._fold(np.add, "add_up", values, 0)

    def least(self, values: Ints) -> Ints:
        """Return the least value of each key's rows."""
        return self._fold(np.minimum, "keep_least", values, np.iinfo(np.int64).max)

    def largest(self, values: Ints) -> Ints:
        """Return the largest value of each key's rows."""
        return self._fold(np.maximum, "keep_largest", values, np.iinfo(np.int64).min)

    def _fold(self, operation: np.ufunc, name: str, values: Ints, start: int) -> Ints:
        result = np.full(self.end, start, np.int64)
        # Numbers of any other kind would be taken one by one, which is thirty times as slow.
        values = np.ascontiguousarray(values, np.int64)
        if (library := quick.library()) is not None and len(values) == len(self.places):
            places = np.ascontiguousarray(self.places, np.int64)
            getattr(library, name)(places.ctypes.data, values.ctypes.data, len(places), result.ctypes.data)
        else:
            operation.at(result, self.places, values)
        return self._of_keys(result)

    def _of_keys(self, found: Ints) -> Ints:
        return found if self.end == len(self.keys) else found[self.keys]


def grouped(keys: Ints, end: int) -> Grouped:
    """Return rows grouped by their keys.

    Args:
        keys: none negative.
        end: all keys are below this.
    """
    if end <= max(len(keys), _FEW):
        found = np.flatnonzero(np.bincount(keys, minlength=end))
        if len(found) and found[-1] >= end:
            raise ValueError(f"a key is {found[-1]}: expected all below {end}")
        return Grouped(found, keys, end)
    if (library := quick.library()) is None:
        return _sorted(keys, end)
    keys = np.ascontiguousarray(keys, np.int64)
    numbers, different = np.empty((2, len(keys)), np.int64)
    seed = secrets.randbits(64)
    count = library.number_keys(keys.ctypes.data, len(keys), seed, numbers.ctypes.data, different.ctypes.data)
    if count < 0:
        raise MemoryError
    once = _sorted(different[:count], end)
    return Grouped(once.keys, once.places[numbers], once.end)


def _sorted(keys: Ints, end: int) -> Grouped:
    """Return rows grouped by their keys, by sorting these."""
    bits = len(keys).bit_length()
    if (end - 1).bit_length() + bits <= _KEY_BITS:
        ordered = keys << bits
        ordered |= np.arange(len(keys), dtype=np.int64)
        ordered.sort()
        order = ordered & ((1 << bits) - 1)
        ordered >>= bits
    else:
        order = np.argsort(keys)
        ordered = keys[order]
    is_new = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    different = ordered[is_new]
    places = np.empty(len(keys), np.int64)
    places[order] = is_new.cumsum() - 1
    return Grouped(different, places, len(different))


def mixed(key: npt.NDArray[np.uint64], columns: Iterable[npt.NDArray[np.integer]]) -> npt.NDArray[np.uint64]:
    """Return a number for each row: the same for those with the same key and columns, as good as never for others."""
    for column in columns:
        key = (key ^ column.astype(np.uint64)) * ODD
    return key


def renumbered(values: Ints, end: int) -> tuple[Ints, Ints]:
    """Return the different values, ascending, and for each value which of them it is.

    Args:
        values: none negative.
        end: all are below this.
    """
    if end > max(len(values), _COUNTED):
        found = grouped(values, end)
        return found.keys, found.places
    kinds = np.flatnonzero(np.bincount(values, minlength=1))
    # All of them are there, and none beyond: what is behind the end would be refused below.
    if len(kinds) == end and kinds[-1] == end - 1:
        return kinds, values
    numbers = np.zeros(end, np.int64)
    numbers[kinds] = np.arange(len(kinds))
    return kinds, numbers[values]
