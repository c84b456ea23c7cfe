"""The ledger: what each source has sent to each outside destination within an hour, a day, a week and a month.

Low and slow: what no alert over minutes sees shows in these sums. So that one burst is not told twice, bytes that the
rule `exfil_volume` has reported are known apart: minutes that lie in a stretch as long as `exfil_window`, in which one
conversation sent more than `exfil_volume`. What is taken off was reported for sure; what is left may have been told
too, where a burst was judged by windows that are not whole minutes.

Everything here is a function of sums that the store holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from analysis.detectors.egress.history import (
    BIN,
    BYTES,
    CODE,
    DAY,
    GROUP_TODAY,
    HOUR,
    LABELS,
    MONTH,
    PAIR_CODE,
    SUMS,
    WEEK,
    EgressHistory,
    boundary,
    next_hour,
)
from analysis.detectors.egress.moments import Moments
from analysis.detectors.study import Points, Span
from cluster.calendar import local_time
from cluster.model import EXTERNAL, Artefact, Cluster, Job, Role
from store import schema
from store.points import WINDOW

TOLD = "told"
"""Column of sums: of the bytes, those that `exfil_volume` has reported."""

_HORIZONS = {schema.BYTES_24H.name: DAY, schema.BYTES_7D.name: WEEK, schema.BYTES_30D.name: MONTH}
_SLOW = {schema.SLOW_24H.name: DAY, schema.SLOW_7D.name: WEEK}
_SUMS = (schema.BYTES_1H.name, *_HORIZONS, *_SLOW)
_HOURS, _DAYS, _PEAK = schema.ACTIVE_HOURS.name, schema.ACTIVE_DAYS.name, schema.PEAK_24H.name
_LAST_DAY, _DATE = "last_day", "date"
_NAMES = list(schema.LEDGER.tags)

BINS: dict[str, pl.DataType] = {
    PAIR_CODE: pl.UInt32(),
    WINDOW: pl.Int64(),
    BYTES: pl.Int64(),
    TOLD: pl.Int64(),
}
"""Columns of what rows are made of: bins of an hour or of five minutes, one a pair."""


@dataclass(frozen=True, slots=True)
class LedgerPolicy:
    """The numbers of the ledger.

    Attributes:
        every: seconds between two rows; a multiple of five minutes that divides an hour.
        named: pairs of a source group that get rows of their own, the largest in 30 days first.
    """

    every: int = 300
    named: int = 1_000


@dataclass(frozen=True, slots=True)
class Base:
    """What whole hours add to the rows at a moment: the same for all moments between two full hours.

    Attributes:
        sums: PAIR_CODE, one column a horizon, active hours and days, the last active day, the largest day.
        today: number of the day in which the moment lies, site time.
    """

    sums: pl.DataFrame
    today: int


def day_of(zone: ZoneInfo, moment: int) -> int:
    """Return the number of the day, by the clock on the wall, in which a moment lies."""
    return int(local_time(zone, np.array([moment]))[0]) // DAY


def days_of(sums: pl.DataFrame, zone: ZoneInfo, name: str) -> pl.DataFrame:
    """Return each WINDOW of a frame with the number of the day in which it begins, in a column of that name."""
    starts = sums.get_column(WINDOW).unique()
    return pl.DataFrame({WINDOW: starts, name: local_time(zone, starts.to_numpy()) // DAY})


def base(hours: pl.DataFrame, at: int, zone: ZoneInfo) -> Base:
    """Return what whole hours add to the rows at `at`.

    Args:
        hours: BINS of an hour, whole hours from `at` - 30 days on.
        at: epoch seconds.
        zone: in which days are counted.
    """
    today = day_of(zone, at)
    hours = hours.filter(pl.col(WINDOW) >= at - MONTH)
    dated = hours.join(days_of(hours, zone, _DATE), on=WINDOW)
    window, slow = pl.col(WINDOW), pl.col(BYTES) - pl.col(TOLD)
    is_recent_day = pl.col(_DATE) > today - MONTH // DAY
    sums = dated.group_by(PAIR_CODE).agg(
        *(pl.col(BYTES).filter(window >= at - span).sum().alias(name) for name, span in _HORIZONS.items()),
        *(slow.filter(window >= at - span).sum().alias(name) for name, span in _SLOW.items()),
        (window >= next_hour(at - WEEK)).sum().cast(pl.Int64).alias(_HOURS),
        pl.col(_DATE).filter(is_recent_day).n_unique().cast(pl.Int64).alias(_DAYS),
        pl.col(_DATE).max().alias(_LAST_DAY),
    )
    return Base(sums.join(_peaks(hours.filter(window >= at - WEEK)), on=PAIR_CODE, how="left"), today)


def _peaks(hours: pl.DataFrame) -> pl.DataFrame:
    """Return the largest sum of 24 consecutive hours of each pair, bursts aside."""
    days = (
        hours.select(PAIR_CODE, WINDOW, slow=pl.col(BYTES) - pl.col(TOLD))
        .sort(PAIR_CODE, WINDOW)
        .rolling(WINDOW, period=f"{DAY}i", group_by=PAIR_CODE)
        .agg(pl.col("slow").sum())
    )
    return days.group_by(PAIR_CODE).agg(pl.col("slow").max().alias(_PEAK))


def rows(
    whole: Base,
    heads: Sequence[tuple[int, pl.DataFrame]],
    recent: pl.DataFrame,
    names: pl.DataFrame,
    *,
    at: int,
    zone: ZoneInfo,
    policy: LedgerPolicy,
    artefacts: Sequence[Artefact],
) -> pl.DataFrame:
    """Return the ledger at a moment: everything sent before it.

    Args:
        whole: of the whole hours.
        heads: horizon in seconds -> BINS of five minutes from `at` - horizon to the first whole hour.
        recent: BINS of five minutes from the last whole hour to `at`.
        names: PAIR_CODE -> the tags of a row.
        at: epoch seconds, a multiple of five minutes.
        zone: in which days are counted.
        policy: see there.
        artefacts: in order of size.

    Returns:
        A frame for ``encode(schema.LEDGER, ...)``.
    """
    parts = [whole.sums.select(PAIR_CODE, *_SUMS[1:], _HOURS, _DAYS, _PEAK), _recent(whole, recent, at, zone)]
    for span, head in heads:
        named = [name for name, length in _HORIZONS.items() if length == span]
        slow = [name for name, length in _SLOW.items() if length == span]
        parts.append(
            head.select(
                PAIR_CODE,
                *(pl.col(BYTES).alias(name) for name in named),
                *((pl.col(BYTES) - pl.col(TOLD)).alias(name) for name in slow),
            )
        )
    sums = (
        pl.concat(parts, how="diagonal_relaxed")
        .group_by(PAIR_CODE)
        .agg(*(pl.col(name).sum() for name in (*_SUMS, _HOURS, _DAYS)), pl.col(_PEAK).max())
        .filter(pl.col(schema.BYTES_30D.name) > 0)
        .join(names, on=PAIR_CODE)
        .drop(PAIR_CODE)
        .with_columns(pl.max_horizontal(_PEAK, schema.SLOW_24H.name).fill_null(0))
    )
    named_rows = _fold(sums, policy.named)
    return (
        named_rows.with_columns(pl.lit(at, pl.Int64).alias(WINDOW), *_compared(artefacts))
        .select(WINDOW, *schema.LEDGER.tags, *(field.name for field in schema.LEDGER.fields))
        .sort(*_NAMES)
    )


def _recent(whole: Base, recent: pl.DataFrame, at: int, zone: ZoneInfo) -> pl.DataFrame:
    """Return what the bins after the last whole hour add; their hours are in no whole one, their days may be."""
    recent = recent.filter(pl.col(WINDOW) < at)
    dated = recent.join(days_of(recent, zone, _DATE), on=WINDOW).join(
        whole.sums.select(PAIR_CODE, _LAST_DAY), on=PAIR_CODE, how="left"
    )
    slow = pl.col(BYTES) - pl.col(TOLD)
    is_new_day = (pl.col(_DATE) > pl.col(_LAST_DAY).fill_null(0)) & (pl.col(_DATE) > whole.today - MONTH // DAY)
    return dated.group_by(PAIR_CODE).agg(
        pl.col(BYTES).filter(pl.col(WINDOW) >= at - HOUR).sum().alias(schema.BYTES_1H.name),
        *(pl.col(BYTES).sum().alias(name) for name in _HORIZONS),
        *(slow.sum().alias(name) for name in _SLOW),
        (pl.col(WINDOW) // HOUR).n_unique().cast(pl.Int64).alias(_HOURS),
        pl.col(_DATE).filter(is_new_day).n_unique().cast(pl.Int64).alias(_DAYS),
    )


def _fold(sums: pl.DataFrame, named: int) -> pl.DataFrame:
    """Sum what lies beyond the largest pairs of each source group under `other`; sources keep their names."""
    size = schema.BYTES_30D.name
    place = sums.select(pl.struct(-pl.col(size), *_NAMES).rank("ordinal").over(schema.SRC_GROUP)).to_series()
    has_name = place <= named
    if has_name.all():
        return sums
    rest = sums.filter(~has_name).with_columns(
        pl.lit(schema.OTHER).alias(schema.DST), *(pl.lit("").alias(tag) for tag in (schema.COUNTRY, schema.NETWORK))
    )
    # Hours and days of several destinations overlap in a way that these sums do not know: the longest is a lower limit.
    return (
        pl.concat([sums.filter(has_name), rest])
        .group_by(_NAMES)
        .agg(*(pl.col(name).sum() for name in _SUMS), pl.max(_HOURS, _DAYS, _PEAK))
        .with_columns(pl.max_horizontal(_PEAK, schema.SLOW_24H.name))
    )


# -- artefacts -----------------------------------------------------------------------------------------


def borders(artefacts: Sequence[Artefact]) -> list[int]:
    """Return the volumes at which the nearest artefact becomes the next: geometric means of neighbours' sizes."""
    return [isqrt(small.size * large.size) for small, large in pairwise(artefacts)]


def _compared(artefacts: Sequence[Artefact]) -> list[pl.Expr]:
    if not artefacts:
        nothing = pl.lit(0.0)
        return [
            pl.lit("").alias(schema.ARTEFACT.name),
            nothing.alias(schema.ARTEFACT_SHARE.name),
            nothing.alias(schema.ARTEFACT_SHARE_24H.name),
        ]
    week, day = pl.col(schema.BYTES_7D.name), pl.col(schema.BYTES_24H.name)
    names = pl.Series([artefact.name for artefact in artefacts])
    return [
        pl.lit(names).gather(_nearest(artefacts, week)).alias(schema.ARTEFACT.name),
        _share(artefacts, week).alias(schema.ARTEFACT_SHARE.name),
        _share(artefacts, day).alias(schema.ARTEFACT_SHARE_24H.name),
    ]


def _nearest(artefacts: Sequence[Artefact], volume: pl.Expr) -> pl.Expr:
    """Return the position of the artefact whose size is nearest to a volume, by ratio."""
    steps = [(volume > border).cast(pl.UInt32) for border in borders(artefacts)]
    # With one artefact there are no steps: a literal would be one row, and not one a pair.
    return sum(steps, start=(volume < 0).cast(pl.UInt32))


def _share(artefacts: Sequence[Artefact], volume: pl.Expr) -> pl.Expr:
    sizes = pl.Series([float(artefact.size) for artefact in artefacts])
    return volume / pl.lit(sizes).gather(_nearest(artefacts, volume))


# -- bursts --------------------------------------------------------------------------------------------


def told(minutes: pl.DataFrame, keys: Sequence[str], *, volume: int, seconds: int) -> pl.DataFrame:
    """Return the minutes that lie in a stretch in which a conversation sent more than `volume`.

    Args:
        minutes: the keys, WINDOW (multiples of a minute), BYTES: one row a conversation and minute.
        keys: what tells conversations apart.
        volume: bytes.
        seconds: length of a stretch; parts of a minute do not count.

    Returns:
        These rows of `minutes`.
    """
    length = seconds // 60 * 60
    if length <= 0 or minutes.is_empty():
        return minutes.clear()
    ordered = minutes.sort(*keys, WINDOW)
    # A stretch over the volume may as well end with a minute that has bytes: those after it add nothing.
    sums = ordered.rolling(WINDOW, period=f"{length}i", group_by=list(keys)).agg(pl.col(BYTES).sum().alias("sum"))
    ends = sums.filter(pl.col("sum") > volume).select(*keys, pl.col(WINDOW).alias("end"))
    if ends.is_empty():
        return minutes.clear()
    # The first such stretch that does not end before the minute is the one that decides.
    return (
        ordered.sort(WINDOW)
        .join_asof(
            ends.sort("end"), left_on=WINDOW, right_on="end", by=list(keys), strategy="forward", check_sortedness=False
        )
        .filter(pl.col("end") - pl.col(WINDOW) < length)
        .select(minutes.columns)
    )


def in_bins(minutes: pl.DataFrame, seconds: int = BIN) -> pl.DataFrame:
    """Return minutes of conversations as told bytes of pairs and bins: PAIR_CODE, WINDOW, TOLD."""
    return (
        minutes.with_columns(pl.col(WINDOW) // seconds * seconds)
        .group_by(PAIR_CODE, WINDOW)
        .agg(pl.col(BYTES).sum().alias(TOLD))
    )


_TALK = schema.CONVERSATION
"""What the rule `exfil_volume` judges: a conversation, whichever side opened it."""

_LONGEST_BURST = HOUR
_LAG = 60
"""Seconds by which a window's bytes may be stored after it: the rule's range has moved on by then."""


class LedgerStudy:
    """Adds up what each source sent to each outside destination.

    Args:
        cluster: groups, thresholds, artefacts.
        history: shared with other studies of long ranges.
        policy: the numbers.
    """

    measurements = (schema.LEDGER,)

    def __init__(self, cluster: Cluster, history: EgressHistory, policy: LedgerPolicy | None = None) -> None:
        self._cluster, self._history = cluster, history
        self._policy = policy or LedgerPolicy()
        self._zone = cluster.site.time_zone
        self._volume = cluster.thresholds.exfil_volume
        self._burst = min(cluster.thresholds.exfil_window, _LONGEST_BURST) - _LAG
        judged = [
            group.id
            for group in cluster.groups_with(Role.MODEL_STORAGE)
            if cluster.transport_of(group.id, EXTERNAL).is_visible
        ]
        self._judged = pl.col(schema.SRC_GROUP).is_in(judged) & (pl.col(schema.DST_GROUP) == EXTERNAL)
        self._hours = pl.DataFrame(schema=BINS)
        self._hours_from = self._hours_until = 0
        self._base: tuple[tuple[int, ...], Base] | None = None
        self._told = pl.DataFrame(schema=SUMS)
        self._told_until = 0
        self._moments = Moments(history, self._policy.every, self._at)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of all moments from `span.start` on that have closed."""
        del jobs
        return [(schema.LEDGER, frame) for frame in self._moments.of(span)]

    def _at(self, at: int, final: int) -> pl.DataFrame:
        """Return the ledger at a moment, of which what lies before `final` will not change."""
        until = boundary(final)
        self._settle(until)
        history = self._history
        recent_told = self._bursts(history.bins(until - HOUR, at), until, at, at)
        burst = pl.concat([self._told.filter(pl.col(WINDOW) < until), recent_told])
        whole = self._whole(at, until, burst)
        heads = [
            (span, self._paired(history.head(at - span), burst, BIN))
            for span in (DAY, WEEK, MONTH)
            if next_hour(at - span) != at - span
        ]
        recent = self._paired(history.bins(until, at), burst, BIN)
        return rows(
            whole, heads, recent, self._names(until, at),
            at=at, zone=self._zone, policy=self._policy, artefacts=self._cluster.artefacts,
        )  # fmt: skip

    def _whole(self, at: int, until: int, burst: pl.DataFrame) -> Base:
        key = (next_hour(at - DAY), until, day_of(self._zone, at))
        if self._base is None or self._base[0] != key:
            first = next_hour(at - MONTH)
            if not self._hours_from <= first <= self._hours_until:
                self._hours, self._hours_until = pl.DataFrame(schema=BINS), first
            if self._hours_until < until:
                known = max(min(self._hours_until, self._history.read_from), first)
                fresh = self._paired(self._history.hours(known, until), burst, HOUR)
                kept = self._hours.filter(pl.col(WINDOW) >= first, pl.col(WINDOW) < known)
                self._hours = pl.concat([kept, fresh.select(*BINS)])
                self._hours_from, self._hours_until = first, until
            hours = self._hours.filter(pl.col(WINDOW) >= first, pl.col(WINDOW) < until)
            self._base = key, base(hours, at, self._zone)
        return self._base[1]

    def _paired(self, sums: pl.DataFrame, burst: pl.DataFrame, seconds: int) -> pl.DataFrame:
        """Return sums of conversations as sums of pairs, BINS."""
        pairs = self._history.conversations.select(CODE, PAIR_CODE)
        named = sums.join(pairs, on=CODE).group_by(PAIR_CODE, WINDOW).agg(pl.col(BYTES).sum())
        found = in_bins(burst.join(pairs, on=CODE), seconds)
        return named.join(found, on=[PAIR_CODE, WINDOW], how="left").with_columns(pl.col(TOLD).fill_null(0))

    def _names(self, until: int, at: int) -> pl.DataFrame:
        """Return the tags of each pair: the destination in the group that it has today, with what is known of it."""
        found = self._history.conversations.select(
            PAIR_CODE, schema.SRC, schema.SRC_GROUP, schema.DST, pl.col(GROUP_TODAY).alias(schema.DST_GROUP)
        )
        named = found.unique(PAIR_CODE).join(self._history.labels(PAIR_CODE, until, at), on=PAIR_CODE)
        # Many destinations in one are nowhere.
        is_one = pl.col(schema.DST) != schema.OTHER
        return named.with_columns(pl.when(is_one).then(pl.col(tag)).otherwise(pl.lit("")).alias(tag) for tag in LABELS)

    # -- bursts ------------------------------------------------------------------------------------

    def _settle(self, until: int) -> None:
        """Know the bursts of the last week in the whole hours before `until`: none of them can grow any more."""
        first = until - WEEK - 2 * HOUR
        start = max(first, self._told_until)
        if start < until:
            hours = self._history.hours(start - HOUR, until)
            after = self._history.bins(until, until + HOUR)
            found = self._bursts(pl.concat([hours, after]), start, until, until + HOUR)
            self._told = pl.concat([self._told.filter(pl.col(WINDOW) >= first), found])
            self._told_until = until

    def _bursts(self, sums: pl.DataFrame, start: int, stop: int, limit: int) -> pl.DataFrame:
        """Return the minutes of [start, stop) that belong to bursts, SUMS.

        Only conversations that sent enough within two neighbouring hours are looked at minute by minute.

        Args:
            sums: of [start - an hour, limit).
            start: epoch seconds.
            stop: epoch seconds.
            limit: nothing from here on counts.
        """
        nothing = pl.DataFrame(schema=SUMS)
        if self._burst < 60:
            return nothing
        talks = self._history.conversations.filter(self._judged)
        hourly = (
            sums.join(talks, on=CODE)
            .group_by(*_TALK, (pl.col(WINDOW) // HOUR * HOUR).alias(WINDOW))
            .agg(pl.col(BYTES).sum())
            .sort(*_TALK, WINDOW)
            .rolling(WINDOW, period=f"{2 * HOUR}i", group_by=list(_TALK))
            .agg(pl.col(BYTES).sum())
            .filter(pl.col(BYTES) > self._volume)
        )
        if hourly.is_empty():
            return nothing
        frames = [nothing]
        for hour in hourly.get_column(WINDOW).unique().sort():
            first, last = max(hour - HOUR, start - HOUR), min(hour + HOUR, limit)
            pairs = hourly.filter(pl.col(WINDOW) == hour).select(schema.SRC, schema.DST).rows()
            minutes = self._history.minutes(first, last, pairs).join(talks, on=CODE)
            found = told(
                minutes.group_by(*_TALK, WINDOW).agg(pl.col(BYTES).sum()), _TALK, volume=self._volume,
                seconds=self._burst,
            )  # fmt: skip
            frames.append(minutes.join(found.select(*_TALK, WINDOW), on=[*_TALK, WINDOW], how="semi").select(*SUMS))
        # Neighbouring hours find the same minutes.
        return pl.concat(frames).unique([CODE, WINDOW]).filter(pl.col(WINDOW) >= start, pl.col(WINDOW) < stop)
