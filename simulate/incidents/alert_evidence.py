"""When the evidence for an alert is complete: planned bytes compared with a threshold over a sliding window."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes sent evenly over [start, end), epoch seconds."""

    start: int
    end: int
    volume: float


@dataclass(frozen=True, slots=True)
class Crossing:
    """A time in which a sum lies above its limit, at least now and then.

    Attributes:
        first, last: when it first does, and when last (epoch seconds).
        times: how often it rises above the limit.
        earliest: when it first comes close to the limit.
    """

    first: int
    last: int
    times: int
    earliest: int


def crossing(
    pieces: Iterable[Piece],
    *,
    window: int,
    limit: float,
    step: int = 10,
    counts: Callable[[Ints], NDArray[np.bool_]] | None = None,
    close: float = 1.0,
) -> Crossing | None:
    """Return when the bytes of the last `window` seconds exceed a limit; None if they never do.

    Args:
        pieces: what is sent.
        window: seconds, a multiple of `step`.
        limit: in bytes.
        step: seconds of a base window.
        counts: which base windows count, from their starts (epoch seconds); all by default.
        close: the share of the limit that is close to it.
    """
    found = list(pieces)
    if not found:
        return None
    first = min(piece.start for piece in found) // step
    last = -(-max(piece.end for piece in found) // step)
    sums = np.zeros(last - first)
    edges = (np.arange(last - first + 1) + first) * step
    for piece in found:
        span = max(piece.end - piece.start, 1)
        a, b = piece.start // step - first, -(-max(piece.end, piece.start + 1) // step) - first
        part = np.clip(edges[a : b + 1], piece.start, piece.start + span)
        sums[a:b] += np.diff(part) * piece.volume / span
    if counts is not None:
        sums *= counts(edges[:-1])
    length = window // step
    total = np.concatenate([np.zeros(length), np.cumsum(sums), np.full(length, sums.sum())])
    sliding = total[length:] - total[:-length]
    is_above = sliding > limit
    above = np.flatnonzero(is_above)
    if not len(above):
        return None
    # sliding[i] holds the bytes up to the end of base window i.
    begin, end, near = (
        int(place + first + 1) * step for place in (above[0], above[-1], np.argmax(sliding > close * limit))
    )
    return Crossing(begin, end, int((np.diff(is_above.astype(np.int8), prepend=0) > 0).sum()), near)
