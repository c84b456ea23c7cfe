"""Exporters whose records come twice, and so count twice.

A switch sends to two addresses of the collector, a network doubles datagrams, or a device exports each packet as it
enters and as it leaves. Then nearly every conversation of a moment has two records with the same bytes; with sFlow,
whose samples are often alike, two in datagrams of one number.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from ingest.count.grouped import Ints, mixed
from ingest.flows.text_numbers import Words
from ingest.read import records

_ROWS = 2_048
"""Of a batch, about so many are looked at, or half as many."""
_MOMENT_MS = 2_000
_ENOUGH = 64
_REMEMBERED = 256
"""Conversations, the latest of each exporter."""
_SHARE = 0.75
"""Samples of large flows without a cache come by chance: of one or three as often as of two. No more than 0.36 are."""
_MOST = 4_096
_NUMBERS = (records.SRC_PORT, records.DST_PORT, records.PROTOCOL, records.BYTES, records.PACKETS)


class DoubledExporters:
    """Follows whose records come twice."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}

    def take(self, frame: pl.DataFrame, exporters: Words) -> None:
        """Take records (RECORD_SCHEMA), each of them in a row of its own, and who sent them."""
        rows = _some(frame)
        alike = _alike(frame, exporters, rows)
        _, first, count = np.unique(alike, return_index=True, return_counts=True)
        # One of four: a flow that is large, or one of two that came twice.
        telling = (count == 2) | (count % 2 == 1)
        exporter = exporters.codes[rows[first[telling]]]
        every, twice = (np.bincount(exporter, one, len(exporters.texts)) for one in (None, count[telling] == 2))
        row_of = np.zeros(len(every), np.int64)
        row_of[exporter] = rows[first[telling]]
        for number in np.flatnonzero(every).tolist():
            name = frame.get_column(records.EXPORTER)[int(row_of[number])]
            if name is None or (name not in self._seen and len(self._seen) >= _MOST):
                continue
            both, known = self._seen.get(name, (0.0, 0.0))
            both, known = both + float(twice[number]), known + float(every[number])
            fit = min(1.0, _REMEMBERED / known)
            self._seen[name] = both * fit, known * fit

    def told(self) -> set[str]:
        """Return the addresses of those whose records come twice."""
        return {one for one, (twice, count) in self._seen.items() if count >= _ENOUGH and twice >= _SHARE * count}


def _some(frame: pl.DataFrame) -> Ints:
    """Return which records to look at: all of some conversations."""
    ports = (records.whole(frame.get_column(name)) for name in (records.SRC_PORT, records.DST_PORT))
    mixed = sum(ports, records.whole(frame.get_column(records.BYTES))) * 2_654_435_761
    # One in a power of two: to divide by any other number takes six times as long.
    return np.flatnonzero((mixed >> 16) & ((1 << (frame.height // _ROWS).bit_length()) - 1) == 0)


def _alike(frame: pl.DataFrame, exporters: Words, rows: Ints) -> npt.NDArray[np.uint64]:
    """Return a number for each record: the same for those of one moment that are alike, sFlow's of one datagram."""
    arrived, version, sequence, domain, *numbers = (
        records.whole(frame.get_column(name), -1)[rows]
        for name in (records.ARRIVAL, records.VERSION, records.SEQ, records.DOMAIN, *_NUMBERS)
    )
    numbers += [exporters.codes[rows], arrived // _MOMENT_MS]
    numbers.append(np.where(records.is_sflow(version), sequence + (domain << 32), -1))
    ends = (frame.get_column(name).gather(rows).hash().to_numpy() for name in (records.SRC, records.DST))
    return mixed(next(ends), (*ends, *numbers))
