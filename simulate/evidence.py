"""When the evidence for an alert is complete: planned bytes held against a threshold over a sliding window."""

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
    """A time in which a sum lies above its limit: it first does at `first`, and last at `last` (epoch seconds)."""

    first: int
    last: int


def crossing(
    pieces: Iterable[Piece],
    *,
    window: int,
    limit: float,
    step: int = 10,
    counts: Callable[[Ints], NDArray[np.bool_]] | None = None,
) -> Crossing | None:
    """Return when the bytes of the last `window` seconds exceed a limit; None if they never do.

    Args:
        pieces: what is sent.
        window: seconds, a multiple of `step`.
        limit: in bytes.
        step: seconds of a base window.
        counts: which base windows count, from their starts (epoch seconds); all by default.
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
    above = np.flatnonzero(sliding > limit)
    if not len(above):
        return None
    # sliding[i] holds the bytes up to the end of base window i.
    return Crossing(int(above[0] + first + 1) * step, int(above[-1] + first + 1) * step)
