"""Sums over bins of time as arrays: asked of the store each time, or kept where they do not change any more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.baseline import Floats
from store.influx import ROWS, Store
from store.influxql import Select, beside, is_in, merged
from store.schema import HOUR, MINUTE, Field, Measurement, Merge

_MILLI = 1000
_WINDOWS = {MINUTE: 60, HOUR: 3_600}

KNOWN_HOURS = 18
"""Hours in which an exporter was heard that make a day count: one without a collector is no quiet day."""

Keys = tuple[str, ...]
"""Values of the source's tags."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is asked.

    Attributes:
        tags: a table for each combination of their values.
        only: a tag and the values that it may have; None: any.
    """

    measurement: Measurement
    retention: str
    tags: tuple[str, ...] = ()
    only: tuple[str, tuple[str, ...]] | None = None

    def of(self, retention: str) -> "Source":
        """Return the same, asked of another retention."""
        return replace(self, retention=retention)


@dataclass(frozen=True, slots=True)
class Binned:
    """An answer: [key, bin, field] of what each combination of tag values holds, 0 where there is nothing."""

    keys: list[Keys]
    values: Floats


def binned(store: Store, source: Source, fields: Sequence[Field], start: int, stop: int, *, seconds: int) -> Binned:
    """Return fields added up over bins, or their largest value where the schema says so.

    InfluxDB takes five times as long to add points up as to hand them out: where bins are as long as windows it does
    the latter.

    Args:
        store: asked.
        source: what is asked of it.
        fields: numbers whose values add up, or of which the largest counts.
        start: of the first bin, epoch seconds, a multiple of `seconds`.
        stop: end of the last one.
        seconds: length of a bin, a multiple of the retention's windows.
    """
    bins = max((stop - start) // seconds, 0)
    if not bins or (source.only is not None and not source.only[1]):
        return Binned([], np.zeros((0, bins, len(fields))))
    asked = Select(source.measurement, source.retention).by(*source.tags).between(start, stop)
    if source.only is not None:
        asked = asked.where(is_in(*source.only))
    is_raw = seconds == _WINDOWS.get(source.retention)
    columns = map(beside if is_raw else merged, fields)
    found = store.numbers(asked.take(*columns).each(0 if is_raw else seconds))
    # Without tags there is one series, or none.
    keys: list[Keys] = [()] * found.tags.height
    if source.tags:
        keys = list(found.tags.select(source.tags).iter_rows())
    key = np.repeat(np.arange(len(keys)), found.tags.get_column(ROWS).to_numpy())
    place = ((found.values[:, 0] / _MILLI - start) // seconds).astype(np.int64)
    fits = (place >= 0) & (place < bins)
    cell, numbers = key[fits] * bins + place[fits], np.nan_to_num(found.values[fits, 1:])
    values = np.zeros((len(keys) * bins, len(fields)))
    for column, field in enumerate(fields):
        if field.merge is Merge.MAX:
            np.maximum.at(values[:, column], cell, numbers[:, column])
        else:
            values[:, column] = np.bincount(cell, numbers[:, column], minlength=len(values))
    return Binned(keys, values.reshape(len(keys), bins, len(fields)))


class Bins:
    """Bins that do not change any more: each is asked of the store once, and kept while it is of use.

    Args:
        store: asked.
        source: what is asked of it.
        fields: what is summed up.
        seconds: length of a bin.
        most: bins that are asked for at once.
        reduce: what is kept: [..., field] -> [..., kept]; by default all of it.
    """

    def __init__(
        self,
        store: Store,
        source: Source,
        fields: Sequence[Field],
        seconds: int,
        *,
        most: int = 360,
        reduce: Callable[[Floats], Floats] | None = None,
    ) -> None:
        self.seconds = seconds
        self._store, self._source, self._fields, self._most = store, source, tuple(fields), most
        self._reduce = reduce or (lambda table: table)
        self._width = self._reduce(np.zeros((1, len(self._fields)))).shape[-1]
        self._places: dict[Keys, int] = {}
        self._bins: dict[int, Floats] = {}

    @property
    def keys(self) -> list[Keys]:
        """Return the tag values of everything that any bin held, in the order of `between`'s second axis."""
        return list(self._places)

    def ensure(self, start: int, stop: int) -> None:
        """Have the bins of [start, stop), all of which must be final."""
        missing = [moment for moment in range(start, stop, self.seconds) if moment not in self._bins]
        while missing:
            count = 1
            while count < min(len(missing), self._most) and missing[count] == missing[0] + count * self.seconds:
                count += 1
            self._ask(missing[0], count)
            missing = missing[count:]

    def _ask(self, start: int, count: int) -> None:
        stop = start + count * self.seconds
        found = binned(self._store, self._source, self._fields, start, stop, seconds=self.seconds)
        for key in found.keys:
            self._places.setdefault(key, len(self._places))
        whole = np.zeros((count, len(self._places), self._width))
        whole[:, [self._places[key] for key in found.keys]] = self._reduce(found.values).swapaxes(0, 1)
        for place in range(count):
            self._bins[start + place * self.seconds] = whole[place].copy()

    def between(self, start: int, stop: int) -> Floats:
        """Return [bin, key, kept] of [start, stop); 0 where there was nothing."""
        self.ensure(start, stop)
        moments = range(start, stop, self.seconds)
        result = np.zeros((len(moments), len(self._places), self._width))
        for place, moment in enumerate(moments):
            kept = self._bins[moment]
            result[place, : len(kept)] = kept
        return result

    def forget(self, before: int) -> None:
        """Let go of the bins that begin before a moment."""
        for moment in [moment for moment in self._bins if moment < before]:
            del self._bins[moment]
