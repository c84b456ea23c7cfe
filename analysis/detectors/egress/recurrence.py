"""Recurring dependencies: unlisted destinations that a group of the cluster calls again and again.

A destination counts where our side opened the conversation and cluster.yaml puts its address in no group. What comes
back is reported by destination, group, protocol and service, whichever nodes call it: a dependency is the fleet's.

Everything here is a function of sums that the store holds.
"""

from dataclasses import dataclass
from zoneinfo import ZoneInfo

import polars as pl

from analysis.detectors.egress.history import BYTES, CALL_CODE, CALLER_CODE, DAY, HOUR, MONTH, WEEK, next_hour
from analysis.detectors.egress.ledger import day_of, days_of
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
