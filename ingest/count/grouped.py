"""Sums of rows with equal keys, where the keys are numbers.

Few different keys are counted in place. Otherwise the keys are sorted, each with its row's number in its lower bits:
numpy sorts plain numbers many times faster than a hash table takes them in.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_KEY_BITS = 63
_FEW = 1 << 16


class Grouped(Protocol):
    """Rows by key. `keys` are the different ones, ascending; what it returns is in their order."""

    keys: Ints

    def sum(self, values: Ints) -> Ints:
        """Return the sum of each key's rows."""

    def least(self, values: Ints) -> Ints:
        """Return the least value of each key's rows."""

    def largest(self, values: Ints) -> Ints:
        """Return the largest value of each key's rows."""

    def extremes(self, values: Ints) -> tuple[Ints, Ints]:
        """Return both."""


def grouped(keys: Ints, end: int) -> Grouped:
    """Return rows grouped by their keys.

    Args:
        keys: none negative.
        end: all keys are below this.
    """
    return _InPlace(keys, end) if end <= max(len(keys), _FEW) else _Sorted(keys, end)


class _InPlace:
    def __init__(self, keys: Ints, end: int) -> None:
        self._rows = keys
        self._end = end
        self.keys = np.flatnonzero(np.bincount(keys, minlength=end))

    def sum(self, values: Ints) -> Ints:
        return self._fold(np.add, values, 0)

    def least(self, values: Ints) -> Ints:
        return self._fold(np.minimum, values, np.iinfo(np.int64).max)

    def largest(self, values: Ints) -> Ints:
        return self._fold(np.maximum, values, np.iinfo(np.int64).min)

    def extremes(self, values: Ints) -> tuple[Ints, Ints]:
        return self.least(values), self.largest(values)

    def _fold(self, operation: np.ufunc, values: Ints, start: int) -> Ints:
        result = np.full(self._end, start, np.int64)
        operation.at(result, self._rows, values)
        return result[self.keys]


class _Sorted:
    def __init__(self, keys: Ints, end: int) -> None:
        places = len(keys).bit_length()
        if (end - 1).bit_length() + places <= _KEY_BITS:
            packed = keys << places
            packed |= np.arange(len(keys), dtype=np.int64)
            packed.sort()
            self._order = packed & ((1 << places) - 1)
            packed >>= places
        else:
            self._order = np.argsort(keys)
            packed = keys[self._order]
        is_new = np.ones(len(packed), np.bool_)
        np.not_equal(packed[1:], packed[:-1], out=is_new[1:])
        self._starts = np.flatnonzero(is_new)
        self._stops = np.append(self._starts, len(packed))[1:] - 1
        self.keys = packed[self._starts]

    def sum(self, values: Ints) -> Ints:
        # Differences of a running sum, which is quicker than a sum each; also where it runs over 64 bits.
        return np.asarray(np.diff(self._sorted(values).cumsum()[self._stops], prepend=0), np.int64)

    def least(self, values: Ints) -> Ints:
        return np.minimum.reduceat(self._sorted(values), self._starts)

    def largest(self, values: Ints) -> Ints:
        return np.maximum.reduceat(self._sorted(values), self._starts)

    def extremes(self, values: Ints) -> tuple[Ints, Ints]:
        ordered = self._sorted(values)
        return np.minimum.reduceat(ordered, self._starts), np.maximum.reduceat(ordered, self._starts)

    def _sorted(self, values: Ints) -> Ints:
        return np.asarray(values.take(self._order), np.int64)
