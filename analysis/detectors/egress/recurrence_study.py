"""Recurring dependencies as the analyser runs them: from 30 days of egress to a row a destination that came back."""

from collections.abc import Sequence

import polars as pl

from analysis.detectors.egress import recurrence
from analysis.detectors.egress.history import (
    BYTES,
    CALL,
    CALL_CODE,
    CALLER_CODE,
    CODE,
    DAY,
    GROUP_TODAY,
    HOUR,
    MONTH,
    EgressHistory,
    boundary,
    next_hour,
)
from analysis.detectors.egress.ledger import day_of
from analysis.detectors.egress.moments import Moments
from analysis.detectors.egress.recurrence import Base, RecurrencePolicy
from analysis.detectors.study import Points, Span
from cluster.model import EXTERNAL, Cluster, Job
from store import schema
from store.points import WINDOW


class RecurrenceStudy:
    """Counts on how many days and in how many hours unlisted destinations were called.

    Args:
        cluster: its time zone.
        history: shared with other studies of long ranges.
        policy: the numbers.
    """

    measurements = (schema.RECURRENCE,)

    def __init__(self, cluster: Cluster, history: EgressHistory, policy: RecurrencePolicy | None = None) -> None:
        self._history = history
        self._policy = policy or RecurrencePolicy()
        self._zone = cluster.site.time_zone
        self._moments = Moments(history, self._policy.every, self._at)
        self._hours = pl.DataFrame(schema=recurrence.CALLS)
        self._hours_from = self._hours_until = 0
        self._base: tuple[tuple[int, ...], Base] | None = None

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of all moments from `span.start` on that have closed."""
        del jobs
        return [(schema.RECURRENCE, frame) for frame in self._moments.of(span)]

    def _at(self, at: int, final: int) -> pl.DataFrame:
        until = boundary(final)
        key = (next_hour(at - DAY), until, day_of(self._zone, at))
        if self._base is None or self._base[0] != key:
            self._base = key, recurrence.base(self._whole(next_hour(at - MONTH), until), at, self._zone)
        recent = self._calls(self._history.bins(until, at), 1)
        calls = self._history.conversations.select(CALL_CODE, *CALL).unique(CALL_CODE)
        names = calls.join(self._history.labels(CALL_CODE, until, at), on=CALL_CODE)
        return recurrence.rows(self._base[1], recent, names, at=at, zone=self._zone, policy=self._policy)

    def _whole(self, first: int, until: int) -> pl.DataFrame:
        """Return the calls of whole hours, of which most were here an hour ago."""
        if not self._hours_from <= first <= self._hours_until:
            self._hours, self._hours_until = pl.DataFrame(schema=recurrence.CALLS), first
        if self._hours_until < until:
            fresh = self._calls(self._history.hours(self._hours_until, until), HOUR)
            self._hours = pl.concat([self._hours.filter(pl.col(WINDOW) >= first), fresh.select(*recurrence.CALLS)])
            self._hours_from, self._hours_until = first, until
        return self._hours.filter(pl.col(WINDOW) >= first, pl.col(WINDOW) < until)

    def _calls(self, sums: pl.DataFrame, seconds: int) -> pl.DataFrame:
        """Return the sums of unlisted destinations that our side called, CALLS."""
        called = self._history.conversations.filter(
            pl.col(schema.INITIATOR) == schema.BY_SOURCE,
            pl.col(GROUP_TODAY) == EXTERNAL,
            pl.col(schema.DST) != schema.OTHER,
        )
        return (
            sums.join(called.select(CODE, CALL_CODE, CALLER_CODE), on=CODE)
            .group_by(CALL_CODE, CALLER_CODE, (pl.col(WINDOW) // seconds * seconds).alias(WINDOW))
            .agg(pl.col(BYTES).sum())
        )
