"""Pro-rating: which share of a record's bytes falls into which window, exactly.

Bytes are taken as evenly spread over [start, end). What has passed by a moment t is
``floor(bytes * (t - start) / (end - start))``; a window's share is the difference between its two edges, so the shares
always add up to the record.
"""

import ctypes
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ingest import quick

Ints = npt.NDArray[np.int64]

_LARGEST = np.iinfo(np.int64).max
_EXACT = 1 << 52

MAX_SPAN_MS = 86_400_000
"""A record that claims to be longer than a day has a broken start: it counts as a point at its end.

It also keeps the products below exact: counters stay under 2^50 and the remainder times a day under 2^63.
"""


@dataclass(frozen=True, slots=True)
class Shares:
    """Pieces of records: equally long arrays. The first pieces of all records stand first, in the records' order.

    Attributes:
        record: index of the record.
        window: number of the window, its start divided by the window's length.
        bytes, packets, flows: the piece's share; `flows` stays with the first piece.
        first, last: epoch ms at which the piece begins and ends.
        clamped: bytes of the piece that belong before the oldest window.
    """

    record: Ints
    window: Ints
    bytes: Ints
    packets: Ints
    flows: Ints
    first: Ints
    last: Ints
    clamped: Ints

    def of(self, records: npt.NDArray[np.bool_]) -> "Shares":
        """Return the pieces of some records, renumbered from 0."""
        is_of = records[self.record]
        columns = {one.name: getattr(self, one.name)[is_of] for one in fields(self)}
        return Shares(**columns | {"record": (np.cumsum(records) - 1)[columns["record"]]})


def prorate(
    start: Ints, end: Ints, counts: tuple[Ints, Ints, Ints], *, window_ms: int, oldest: int | None = None
) -> Shares:
    """Cut records at window edges.

    Args:
        start: epoch ms.
        end: epoch ms, not before `start` and at most MAX_SPAN_MS after it. Equal: everything at that moment.
        counts: bytes, packets and flow records, none negative.
        window_ms: length of a window.
        oldest: number of the oldest window kept; what belongs before it is added to it. None: no limit.
    """
    volume, packets, flows = counts
    first_window = start // window_ms
    limit = -1 if oldest is None else oldest
    clamps = bool((first_window < limit).any())
    clamped = np.zeros(len(start), np.int64)
    if clamps:
        first_window = np.maximum(first_window, limit)
        edge = np.clip(limit * window_ms, start, end)
        before_limit = np.where(start < end, _passed(volume, edge - start, end - start), volume)
        clamped = np.where(start < limit * window_ms, before_limit, 0)
    # The end is exclusive: a record that ends on an edge has nothing in the window that begins there.
    edges = np.maximum(end - 1, start) // window_ms - first_window
    split = np.flatnonzero(edges > 0)
    record = np.arange(len(start), dtype=np.int64)
    if not len(split):
        return Shares(record, first_window, volume, packets, flows, start, end, clamped)

    edges = edges[split]
    if (library := quick.library()) is not None:
        return _cut(library, split, edges, window_ms, (start, end, first_window, *counts, clamped))
    # One row an edge within a record: the piece that begins there.
    stop = np.cumsum(edges)
    own = np.repeat(split, edges)
    window = first_window[own] + np.arange(1, len(own) + 1) - np.repeat(stop - edges, edges)
    edge = window * window_ms
    ends = _Ends(split, stop - edges, stop - 1)
    elapsed, span = edge - start[own], (end - start)[own]

    def share(total: Ints) -> Ints:
        passed = _quotient(total[own], elapsed, span)
        upper = ends.upper(passed, total)
        upper[len(total) :] -= passed
        return upper

    nothing = np.zeros(len(own), np.int64)
    return Shares(
        record=np.concatenate([record, own]),
        window=np.concatenate([first_window, window]),
        bytes=share(volume),
        packets=share(packets),
        flows=np.concatenate([flows, nothing]),
        first=np.concatenate([start, edge]),
        last=ends.upper(edge, end),
        clamped=np.concatenate([clamped, nothing]),
    )


def _cut(library: ctypes.CDLL, split: Ints, edges: Ints, window_ms: int, columns: tuple[Ints, ...]) -> Shares:
    """Return the pieces of records, given which of these have edges in them, and how many each.

    The columns are their starts, ends, first windows, bytes, packets, flow records and clamped bytes.
    """
    rows = len(columns[0])
    pieces = np.zeros((8, rows + int(edges.sum())), np.int64)
    record, first, last, window, volume, packets, flows, clamped = pieces
    for piece, column in zip(pieces, (np.arange(rows), *columns), strict=True):
        piece[:rows] = column
    lists = (split, edges), (record, window, first, last, volume, packets)
    before, behind = ([column.ctypes.data for column in some] for some in lists)
    library.cut(*before, len(split), rows, window_ms, *behind)
    return Shares(record, window, volume, packets, flows, first, last, clamped)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Records with edges in them, and which of the edges is the first and the last of each."""

    split: Ints
    first: Ints
    last: Ints

    def upper(self, at_edges: Ints, at_end: Ints) -> Ints:
        """Return a value at the end of each piece, given those at the edges, and those at the end of each record."""
        upper = np.concatenate([at_end, at_edges])
        upper[self.split] = at_edges[self.first]
        following = upper[len(at_end) :]
        following[:-1] = at_edges[1:]
        following[self.last] = at_end[self.split]
        return upper


def _passed(total: Ints, elapsed: Ints, span: Ints) -> Ints:
    """Return ``floor(total * elapsed / span)``; everything where the span is zero."""
    return np.where(span == 0, total, _quotient(total, elapsed, np.maximum(span, 1)))


def _quotient(total: Ints, elapsed: Ints, span: Ints) -> Ints:
    """Return ``floor(total * elapsed / span)`` without leaving 64 bits."""
    largest = int(total.max(initial=0)) * int(elapsed.max(initial=0))
    if largest <= _EXACT:
        # Exact in floats, too: a quotient that is no whole number is further from one than they are apart.
        return (total * elapsed / span).astype(np.int64)
    if largest <= _LARGEST:
        return np.asarray(total * elapsed // span, np.int64)
    quotient, remainder = np.divmod(total, span)
    return np.asarray(quotient * elapsed + remainder * elapsed // span, np.int64)
