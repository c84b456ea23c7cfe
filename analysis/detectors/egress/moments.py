"""Rows at fixed moments, such as every five minutes, made again only while what they are made of may change."""

from collections.abc import Callable

import polars as pl

from analysis.detectors.egress.history import BIN, EgressHistory
from analysis.detectors.study import Span

_REFRESH = 60
"""Rows that may still change are made again at most so often, in seconds of the cluster's time."""


class Moments:
    """Makes the rows of every moment of a pass.

    Args:
        history: loaded before rows are made.
        every: seconds between moments.
        make: moment, and up to where what it is made of is final -> its rows.
    """

    def __init__(self, history: EgressHistory, every: int, make: Callable[[int, int], pl.DataFrame]) -> None:
        self._history, self._every, self._make = history, every, make
        self._made: tuple[tuple[int, ...], list[pl.DataFrame]] | None = None

    def of(self, span: Span) -> list[pl.DataFrame]:
        """Return the rows of each moment from `span.start` on that has closed."""
        moments = range(-(-span.start // self._every) * self._every, span.closed, self._every)
        if not moments:
            return []
        # The last time that a moment comes by, `final` has passed it since the time before.
        key = (moments.start, len(moments), span.final // BIN, span.closed // _REFRESH)
        if self._made is None or self._made[0] != key:
            self._history.load(span)
            self._made = key, [self._make(at, min(at, span.final)) for at in moments]
        return self._made[1]
