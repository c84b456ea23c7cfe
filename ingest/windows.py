"""Pro-rating: which share of a record's bytes falls into which window, exactly.

Bytes are taken as evenly spread over [start, end). What has passed by a moment t is
``floor(bytes * (t - start) / (end - start))``; a window's share is the difference between its two edges, so the shares
always add up to the record.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

MAX_SPAN_MS = 86_400_000
"""A record that claims to be longer than a day has a broken start: it counts as a point at its end.

It also keeps the products below exact: counters stay under 2^50 and the remainder times a day under 2^63.
"""


@dataclass(frozen=True, slots=True)
class Shares:
    """Pieces of records: equally long arrays.

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
    first_window = np.maximum(first_window, limit)
    # The end is exclusive: a record that ends on an edge has nothing in the window that begins there.
    last_window = np.maximum((np.maximum(end - 1, start)) // window_ms, first_window)
    pieces = last_window - first_window + 1
    clamped = np.zeros(len(start), np.int64)
    if clamps:
        edge = np.clip(limit * window_ms, start, end)
        before_limit = np.where(start < end, _passed(volume, edge - start, end - start), volume)
        clamped = np.where(start < limit * window_ms, before_limit, 0)
    if bool((pieces == 1).all()):
        record = np.arange(len(start), dtype=np.int64)
        return Shares(record, first_window, volume, packets, flows, start, end, clamped)

    record = np.repeat(np.arange(len(start), dtype=np.int64), pieces)
    starts = np.cumsum(pieces) - pieces
    step = np.arange(len(record), dtype=np.int64) - starts[record]
    window = first_window[record] + step
    begin, stop = start[record], end[record]
    is_first = step == 0
    upper = np.minimum((window + 1) * window_ms, stop)
    lower = np.where(is_first, begin, window * window_ms)
    span = stop - begin
    is_last = window == last_window[record]

    def share(total: Ints) -> Ints:
        whole = total[record]
        passed = np.where(is_last, whole, _passed(whole, upper - begin, span))
        before = np.empty_like(passed)
        before[0] = 0
        before[1:] = passed[:-1]
        return np.where(is_first, passed, passed - before)

    return Shares(
        record=record,
        window=window,
        bytes=share(volume),
        packets=share(packets),
        flows=np.where(is_first, flows[record], 0),
        first=lower,
        last=np.where(is_last, stop, upper),
        clamped=np.where(is_first, clamped[record], 0),
    )


def _passed(total: Ints, elapsed: Ints, span: Ints) -> Ints:
    """Return ``floor(total * elapsed / span)`` without leaving 64 bits; everything where the span is zero."""
    length = np.maximum(span, 1)
    quotient, remainder = np.divmod(total, length)
    return np.where(span == 0, total, quotient * elapsed + remainder * elapsed // length)
