"""Recurring dependencies: unlisted destinations that a group of the cluster calls again and again.

A destination counts where our side opened the conversation and cluster.yaml puts its address in no group, neither now
nor when it was called. What comes back is reported by destination, group, protocol and service, whichever nodes call
it: a dependency is the fleet's.

Everything here is a function of sums that the store holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import polars as pl

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
    WEEK,
    EgressHistory,
    boundary,
    next_hour,
)
from analysis.detectors.egress.ledger import day_of, days_of
from analysis.detectors.egress.moments import Moments
from analysis.detectors.study import Points, Span
from cluster.model import EXTERNAL, Cluster, Job
from store import schema
from store.points import WINDOW

CALLS: dict[str, pl.DataType] = {
    CALL_CODE: pl.UInt32(),
    CALLER_CODE: pl.UInt32(),
    WINDOW: pl.Int64(),
    BYTES: pl.Int64(),
}
"""Columns of what rows are made of: bins of an hour or less, one a call and source."""

_HOURS, _DAYS = schema.ACTIVE_HOURS.name, schema.ACTIVE_DAYS.name
_VOLUME, _SOURCES, _FIRST = schema.BYTES_30D.name, schema.EVENT_SOURCES.name, schema.FIRST_HOUR.name
_NAMES = list(schema.RECURRENCE.tags)
_DATE, _LAST_DAY = "date", "last_day"


@dataclass(frozen=True, slots=True)
class RecurrencePolicy:
    """The numbers of recurrence.

    Attributes:
        every: seconds between two rows; a multiple of five minutes that divides an hour.
        named: destinations that get rows, those of the most days first.
        days, hours: a destination that was called less often gets no row.
    """

    every: int = 300
    named: int = 500
    days: int = 2
    hours: int = 24


@dataclass(frozen=True, slots=True)
class Base:
    """What whole hours add to the rows at a moment: the same for all moments between two full hours.

    Attributes:
        sums: CALL_CODE, active hours and days, the last active day, bytes, sources, the first hour.
        callers: CALL_CODE and CALLER_CODE of each conversation in them.
        today: number of the day in which the moment lies, site time.
    """

    sums: pl.DataFrame
    callers: pl.DataFrame
    today: int


def base(hours: pl.DataFrame, at: int, zone: ZoneInfo) -> Base:
    """Return what whole hours (CALLS) of the last 30 days add to the rows at `at`, epoch seconds."""
    today = day_of(zone, at)
    dated = hours.join(days_of(hours, zone, _DATE), on=WINDOW)
    is_recent_day = pl.col(_DATE) > today - MONTH // DAY
    is_recent_hour = pl.col(WINDOW) >= next_hour(at - WEEK)
    sums = dated.group_by(CALL_CODE).agg(
        pl.col(WINDOW).filter(is_recent_hour).n_unique().cast(pl.Int64).alias(_HOURS),
        pl.col(_DATE).filter(is_recent_day).n_unique().cast(pl.Int64).alias(_DAYS),
        pl.col(_DATE).max().alias(_LAST_DAY),
        pl.col(BYTES).sum().alias(_VOLUME),
        pl.col(CALLER_CODE).n_unique().cast(pl.Int64).alias(_SOURCES),
        pl.col(WINDOW).min().alias(_FIRST),
    )
    return Base(sums, hours.select(CALL_CODE, CALLER_CODE).unique(), today)


def rows(
    whole: Base, recent: pl.DataFrame, names: pl.DataFrame, *, at: int, zone: ZoneInfo, policy: RecurrencePolicy
) -> pl.DataFrame:
    """Return what comes back, as it is known at a moment.

    Args:
        whole: of the whole hours.
        recent: CALLS from the last whole hour on.
        names: CALL_CODE -> the tags of a row.
        at: epoch seconds; what came later does not count.
        zone: in which days are counted.
        policy: see there.

    Returns:
        A frame for ``encode(schema.RECURRENCE, ...)``.
    """
    recent = recent.filter(pl.col(WINDOW) < at)
    dated = recent.join(days_of(recent, zone, _DATE), on=WINDOW).join(
        whole.sums.select(CALL_CODE, _LAST_DAY), on=CALL_CODE, how="left"
    )
    is_new_day = pl.col(_DATE) > pl.col(_LAST_DAY).fill_null(0)
    added = dated.group_by(CALL_CODE).agg(
        (pl.col(WINDOW) // HOUR).n_unique().cast(pl.Int64).alias(_HOURS),
        pl.col(_DATE).filter(is_new_day).n_unique().cast(pl.Int64).alias(_DAYS),
        pl.col(BYTES).sum().alias(_VOLUME),
        (pl.col(WINDOW) // HOUR * HOUR).min().alias(_FIRST),
    )
    callers = (
        recent.select(CALL_CODE, CALLER_CODE)
        .unique()
        .join(whole.callers, on=[CALL_CODE, CALLER_CODE], how="anti")
        .group_by(CALL_CODE)
        .agg(pl.len().cast(pl.Int64).alias(_SOURCES))
    )
    sums = (
        pl.concat([whole.sums, added, callers], how="diagonal_relaxed")
        .group_by(CALL_CODE)
        .agg(*(pl.col(name).sum() for name in (_HOURS, _DAYS, _VOLUME, _SOURCES)), pl.col(_FIRST).min())
        .filter((pl.col(_DAYS) >= policy.days) | (pl.col(_HOURS) >= policy.hours))
        .join(names, on=CALL_CODE)
    )
    order = [_DAYS, _HOURS, _VOLUME, *_NAMES]
    return (
        sums.sort(order, descending=[True, True, True, *([False] * len(_NAMES))])
        .head(policy.named)
        .with_columns(pl.lit(at, pl.Int64).alias(WINDOW), pl.col(_FIRST).cast(pl.Float64))
        .select(WINDOW, *schema.RECURRENCE.tags, *(field.name for field in schema.RECURRENCE.fields))
        .sort(_NAMES)
    )


class RecurrenceStudy:
    """Counts on how many days and in how many hours unlisted destinations were called.

    Args:
        cluster: its time zone.
        history: shared with other studies of long ranges.
    """

    measurements = (schema.RECURRENCE,)

    def __init__(self, cluster: Cluster, history: EgressHistory) -> None:
        self._history = history
        self._policy = RecurrencePolicy()
        self._zone = cluster.site.time_zone
        self._strangers = cluster.stranger_ids()
        self._moments = Moments(history, self._policy.every, self._at)
        self._hours = pl.DataFrame(schema=CALLS)
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
            self._base = key, base(self._whole(next_hour(at - MONTH), until), at, self._zone)
        recent = self._calls(self._history.bins(until, at), 1)
        calls = self._history.conversations.select(CALL_CODE, *CALL).unique(CALL_CODE)
        names = calls.join(self._history.labels(CALL_CODE, until, at), on=CALL_CODE)
        return rows(self._base[1], recent, names, at=at, zone=self._zone, policy=self._policy)

    def _whole(self, first: int, until: int) -> pl.DataFrame:
        """Return the calls of whole hours, of which most were here an hour ago."""
        if not self._hours_from <= first <= self._hours_until:
            self._hours, self._hours_until = pl.DataFrame(schema=CALLS), first
        if self._hours_until < until:
            known = max(min(self._hours_until, self._history.read_from), first)
            fresh = self._calls(self._history.hours(known, until), HOUR)
            kept = self._hours.filter(pl.col(WINDOW) >= first, pl.col(WINDOW) < known)
            self._hours = pl.concat([kept, fresh.select(*CALLS)])
            self._hours_from, self._hours_until = first, until
        return self._hours.filter(pl.col(WINDOW) >= first, pl.col(WINDOW) < until)

    def _calls(self, sums: pl.DataFrame, seconds: int) -> pl.DataFrame:
        """Return the sums of unlisted destinations that our side called, CALLS."""
        called = self._history.conversations.filter(
            pl.col(schema.INITIATOR) == schema.BY_SOURCE,
            pl.col(GROUP_TODAY) == EXTERNAL,
            # What was listed when it was called counts no more than what is listed now.
            pl.col(schema.DST_GROUP) == EXTERNAL,
            ~pl.col(schema.SRC_GROUP).is_in(self._strangers),
            pl.col(schema.DST) != schema.OTHER,
        )
        return (
            sums.join(called.select(CODE, CALL_CODE, CALLER_CODE), on=CODE)
            .group_by(CALL_CODE, CALLER_CODE, (pl.col(WINDOW) // seconds * seconds).alias(WINDOW))
            .agg(pl.col(BYTES).sum())
        )
