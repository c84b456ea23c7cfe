"""Beacons: conversations with unapproved addresses that begin again and again as by a clock, jitter or not.

A call is a stretch of windows with bytes after one without. Over the calls of 24 hours, four scores from 0 to 1, and
their mean, after RITA [1]:

    statistic(x) = (1 - |Bowley skew| + (median - MAD) / median) / 2
                   Bowley skew = (Q1 + Q3 - 2 Q2) / (Q3 - Q1), 0 where the quartiles are too near to each other
    timing       = statistic(seconds from call to call)
    size         = statistic(bytes of a call)
    evenness     = 1 - sd / mean of the calls of each hour, without the variance of rounding to whole calls
    duration     = max(first to last call over 24 h, longest run of hours with calls over 12 h); 0 below 6 such hours

Sleep that varies by half, evenly, has 0.875 for its timing; what people and queues do (exponential) has 0.52, but up
to 0.8 where it is so frequent that windows of ten seconds hide the short gaps. So one more is asked, which is ours:
nine tenths of the gaps are at most 1.75 times their median (even by half: 1.4; exponential: 3.3; the same at 2,000
calls a day in such windows: above 2). RITA's second form of evenness, for calls in a few blocks of a day, is left out.

Seconds are those of the stored windows, so a period below five windows is not told from a stream. Of a sampled
exporter only some calls are seen: their timing says nothing.

[1] Active Countermeasures: RITA v5, analysis/beacons.go (getTimestampScore, getHistogramScore, getDurationScore).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analysis.detectors.egress.exfiltration_study import watched
from analysis.detectors.egress.history import BYTES, DAY, HOUR
from analysis.detectors.study import Points, Span
from cluster.model import EXTERNAL, Cluster, Job
from store import schema
from store.influx import Store
from store.influxql import is_in
from store.points import WINDOW, columns
from store.sums import binned

KEY = schema.CONVERSATION
PLACES = (schema.COUNTRY, schema.NETWORK)

CALLS: dict[str, pl.DataType] = {
    **dict.fromkeys((*KEY, *PLACES), pl.String()),
    WINDOW: pl.Int64(),
    BYTES: pl.Int64(),
}
"""A call a row: when it began, and its bytes."""

_GAP, _RUN = "gap", "run"
_TIMING, _SIZE = "timing", "size"
_ROUNDING = 0.25
"""Variance that whole numbers of calls have where hours hold no whole number of periods."""
_NEAR = 2
"""Windows: quartiles of seconds that lie nearer to each other are the clock of the windows."""
_IDEAL_HOURS = 12
_LEAST_HOURS = 6


@dataclass(frozen=True, slots=True)
class BeaconPolicy:
    """The numbers of beacons.

    Attributes:
        least_calls: fewer within a day say nothing.
        least_score: what is below gets no row.
        least_period: windows; a shorter period is not judged.
        tail: 90th percentile of the gaps over their median, at most.
        named: conversations that get rows, the highest scores first.
        clocks: services whose small calls are regular by their nature.
        small: bytes of such a call.
    """

    least_calls: int = 20
    least_score: float = 0.6
    least_period: int = 5
    tail: float = 1.75
    named: int = 200
    clocks: tuple[str, ...] = ("ntp", "ptp")
    small: int = 2_000


def calls(windows: pl.DataFrame, begin: int, window: int) -> pl.DataFrame:
    """Return the calls that began at or after a moment: CALLS.

    Args:
        windows: KEY, PLACES, WINDOW, BYTES, from a window before `begin` on.
        begin: epoch seconds.
        window: seconds.
    """
    each = windows.group_by(*KEY, WINDOW).agg(pl.col(PLACES).max(), pl.col(BYTES).sum()).sort(*KEY, WINDOW)
    is_first = (pl.col(WINDOW).diff().over(KEY) > window).fill_null(value=True)
    runs = each.with_columns(is_first.cum_sum().over(KEY).alias(_RUN))
    return (
        runs.group_by(*KEY, _RUN)
        .agg(pl.col(PLACES).max(), pl.col(WINDOW).min(), pl.col(BYTES).sum())
        .filter(pl.col(WINDOW) >= begin)
        .select(*CALLS)
    )


def _statistic(values: pl.Expr, near: float) -> pl.Expr:
    low, middle, high = (values.quantile(share, "linear") for share in (0.25, 0.5, 0.75))
    is_even = (high - low < near) | (middle == low) | (middle == high)
    skew = pl.when(is_even).then(0.0).otherwise((low + high - 2 * middle) / (high - low))
    spread = (values - values.median()).abs().median()
    return (1 - skew.abs() + ((middle - spread) / middle).clip(0, 1)) / 2


def rows(found: pl.DataFrame, at: int, window: int, policy: BeaconPolicy) -> pl.DataFrame:
    """Return the beacons of the 24 hours before a moment as a frame for ``encode(schema.BEACON, ...)``.

    Args:
        found: CALLS of that time.
        at: epoch seconds.
        window: seconds.
        policy: see there.
    """
    # The smallest of a window have no names.
    named = found.filter(pl.col(schema.DST) != schema.OTHER, pl.col(schema.SRC) != schema.OTHER).sort(*KEY, WINDOW)
    callers = named.group_by(schema.DST).agg(pl.col(schema.SRC).n_unique().cast(pl.Int64).alias(_SOURCES))
    gaps = named.with_columns(pl.col(WINDOW).diff().over(KEY).alias(_GAP))
    gap, volume = pl.col(_GAP).drop_nulls().cast(pl.Float64), pl.col(BYTES).cast(pl.Float64)
    judged = gaps.group_by(KEY).agg(
        pl.col(PLACES).max(),
        pl.len().cast(pl.Int64).alias(_CALLS),
        _statistic(gap, _NEAR * window).alias(_TIMING),
        _statistic(volume, 0.0).alias(_SIZE),
        gap.median().alias(_PERIOD),
        ((gap - gap.median()).abs().median() * 2 / gap.median()).alias(_JITTER),
        (pl.col(WINDOW).max() - pl.col(WINDOW).min()).cast(pl.Float64).alias(_SECONDS),
        pl.col(BYTES).sum().alias(_VOLUME),
        volume.median().alias("call_bytes"),
        (gap.quantile(0.9, "linear") / gap.median()).alias("tail"),
    )
    is_clock = pl.col(schema.SERVICE).is_in(list(policy.clocks)) & (pl.col("call_bytes") <= policy.small)
    score = pl.mean_horizontal(_TIMING, _SIZE, "evenness", "lasting").alias(_SCORE)
    return (
        judged.filter(
            pl.col(_PERIOD) >= policy.least_period * window,
            pl.col(_CALLS) >= policy.least_calls,
            pl.col("tail") <= policy.tail,
            ~is_clock,
        )
        .join(_hours(named, at), on=list(KEY))
        .with_columns(pl.when(pl.col("hours") >= _LEAST_HOURS).then(_lasting()).otherwise(0.0).alias("lasting"))
        .with_columns(score)
        .filter(pl.col(_SCORE) >= policy.least_score)
        .join(callers, on=schema.DST)
        .sort(_SCORE, *KEY, descending=[True, *([False] * len(KEY))])
        .head(policy.named)
        .with_columns(pl.lit(at, pl.Int64).alias(WINDOW), pl.col(_TIMING).alias(_TIMING_SCORE))
        .select(WINDOW, *schema.BEACON.tags, *(field.name for field in schema.BEACON.fields))
    )


def _hours(named: pl.DataFrame, at: int) -> pl.DataFrame:
    """Return of each conversation in how many of the 24 hours it called, the longest run of them, and how even."""
    hour = ((pl.col(WINDOW) - (at - DAY)) // HOUR).alias("hour")
    counts = named.group_by(*KEY, hour).agg(pl.len().alias("count")).sort(*KEY, "hour")
    in_runs = counts.with_columns((pl.col("hour") - pl.int_range(pl.len()).over(KEY)).alias(_RUN))
    longest = in_runs.group_by(*KEY, _RUN).agg(pl.len().alias("length")).group_by(KEY).agg(pl.col("length").max())
    day = DAY // HOUR
    count = pl.col("count").cast(pl.Float64)
    mean = count.sum() / day
    # Hours without calls count as zero: they have no row.
    variance = (count.pow(2).sum() / day - mean.pow(2) - _ROUNDING).clip(0)
    evenness = (1 - variance.sqrt() / mean).clip(0, 1).alias("evenness")
    return counts.group_by(KEY).agg(evenness, pl.len().alias("hours")).join(longest, on=list(KEY))


def _lasting() -> pl.Expr:
    coverage, run = pl.col(_SECONDS) / DAY, pl.col("length") / _IDEAL_HOURS
    return pl.max_horizontal(coverage, run).clip(0, 1)


_SCORE, _TIMING_SCORE = schema.BEACON_SCORE.name, schema.TIMING_SCORE.name
_CALLS, _PERIOD, _JITTER = schema.CALLS.name, schema.CALL_PERIOD.name, schema.CALL_JITTER.name
_SECONDS, _VOLUME, _SOURCES = schema.EVENT_SECONDS.name, schema.EVENT_BYTES.name, schema.EVENT_SOURCES.name


class BeaconStudy:
    """Finds beacons, once an hour.

    Args:
        cluster: groups; whose windows are read.
        store: read from: a day of windows after a start, an hour of them an hour later on.
    """

    measurements = (schema.BEACON,)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._store, self._window = store, cluster.bridge.window
        self._groups = tuple(group.id for group in watched(cluster))
        self._policy = BeaconPolicy()
        self._hours: dict[int, pl.DataFrame] = {}
        self._made: tuple[tuple[int, int, int], pl.DataFrame] | None = None

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of all whole hours from `span.start` on that have closed."""
        del jobs
        first = -(-span.start // HOUR) * HOUR
        moments = range(first, span.closed, HOUR)
        if not self._groups or not moments:
            return []
        # What may still change is looked at once a minute.
        key = (first, span.final // HOUR, span.closed // 60 if moments[-1] > span.final else moments[-1])
        if self._made is None or self._made[0] != key:
            empty = pl.DataFrame(schema=columns(*schema.BEACON.tags, *schema.BEACON.fields))
            self._made = key, pl.concat([empty, *(self._judge(at, span.final) for at in moments)])
        return [(schema.BEACON, self._made[1])]

    def _judge(self, at: int, final: int) -> pl.DataFrame:
        frames = [self._calls(hour, final) for hour in range(at - DAY, at, HOUR)]
        for hour in [hour for hour in self._hours if hour < at - DAY - HOUR]:
            del self._hours[hour]
        return rows(pl.concat(frames), at, self._window, self._policy)

    def _calls(self, hour: int, final: int) -> pl.DataFrame:
        """Return the calls of an hour; what is final is read once."""
        if hour in self._hours:
            return self._hours[hour]
        where = [
            is_in(schema.SRC_GROUP, self._groups),
            is_in(schema.DST_GROUP, [EXTERNAL]),
            is_in(schema.INITIATOR, [schema.BY_SOURCE]),
        ]
        windows = binned(
            self._store, schema.EGRESS, schema.RAW, (schema.BYTES,), (*KEY, *PLACES),
            start=hour - self._window, stop=hour + HOUR, seconds=self._window, where=where, as_stored=True,
        ).filter(pl.col(BYTES) > 0)  # fmt: skip
        found = calls(windows.select(*KEY, *PLACES, WINDOW, BYTES), hour, self._window).select(*CALLS)
        if hour + HOUR <= final:
            self._hours[hour] = found
        return found
