"""How full things are, and when they will be: p95 and peak of a day's minutes, the trend of a month's days.

The load of a minute is the mean bit/s in it, of the busier direction where there are two (links are full duplex). Of
the minutes of the last 24 hours in which any exporter was heard, quiet ones counted as 0,

    p95  = the smallest load that 95 % of the minutes do not exceed (nearest rank)
    peak = the largest

Each of the last 30 days (UTC) has the p95 of its hours' mean loads, which the store keeps for years; `trend` is the
Theil-Sen slope of these (`trend`) where at least a week of them is known. Hours level out what minutes show,
so the trend of the hours stands for that of the minutes. What grows reaches its limit at

    full_at = now + (limit - p95) / trend

where the trend surely rises (lower end of its confidence above 0), and that within two years: further away, a straight
line through a month says nothing. What is over its limit already is full now.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl

from analysis.baseline import Floats
from analysis.bins import KNOWN_HOURS, Bins, Keys, Source
from analysis.detectors.study import Points, Span
from cluster.model import LOCAL, Cluster, Job, Role
from store import schema
from store.influx import Store
from store.points import WINDOW
from store.schema import Capacity, Field, Link

_NORMAL_975 = 1.959964
"""Quantile of the standard normal that 2.5 % lie above."""

_CELLS = 2_000_000
"""Slopes that are held in memory at once."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Slopes per unit of x, and the lower ends of their confidence intervals; arrays are [series]."""

    slope: Floats
    lower: Floats


def theil_sen(x: Floats, y: Floats) -> Trend:
    """Return the slope of each series.

    Args:
        x: [n] different moments, n >= 2.
        y: [n, series] values.
    """
    n = len(x)
    first, second = np.triu_indices(n, 1)
    step = max(_CELLS // len(first), 1)
    place = math.floor((len(first) - _NORMAL_975 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)) / 2) - 1
    slopes, lowers = [], []
    for begin in range(0, y.shape[1], step):
        part = y[:, begin : begin + step]
        found = np.sort((part[second] - part[first]) / (x[second] - x[first])[:, None], axis=0)
        slopes.append(np.median(found, axis=0))
        # Too few days for any confidence: the interval has no lower end.
        lowers.append(found[place] if place >= 0 else np.full(part.shape[1], -np.inf))
    return Trend(np.concatenate([np.zeros(0), *slopes]), np.concatenate([np.zeros(0), *lowers]))


DAY = 86_400
QUANTILE = 0.95
TREND_DAYS = 30
LEAST_DAYS = 7
"""Known days without which there is no trend: a week has its own shape."""
LEAST_MINUTES = 60
"""Heard minutes of the last 24 hours without which nothing is said."""
HORIZON = 730 * DAY


@dataclass(frozen=True, slots=True)
class Fullness:
    """How full some things are; arrays are [thing], bit/s, NaN where there is nothing to say.

    Attributes:
        trend: bit/s a day.
        full_at: epoch seconds.
    """

    p95: Floats
    peak: Floats
    utilisation: Floats
    trend: Floats
    full_at: Floats


def nearest_rank(values: Floats) -> Floats:
    """Return the 95th percentile of each column of [n, thing] by nearest rank, n >= 1."""
    place = math.ceil(QUANTILE * len(values)) - 1
    ranked: Floats = np.partition(values, place, axis=0)[place]
    return ranked


def fullness(now: float, minutes: Floats, days: Floats, day_numbers: Floats, limits: Floats) -> Fullness:
    """Return how full things are at a moment.

    Args:
        now: epoch seconds.
        minutes: [minute, thing] loads of the heard minutes of the last 24 hours.
        days: [day, thing] p95 of the hours of the known days.
        day_numbers: [day] when they were, in days.
        limits: [thing] bit/s; NaN if unknown.
    """
    count = minutes.shape[1]
    nothing = np.full(count, np.nan)
    if len(minutes) < LEAST_MINUTES:
        return Fullness(nothing, nothing, nothing, nothing, nothing)
    p95, peak = nearest_rank(minutes), minutes.max(axis=0)
    trend = theil_sen(day_numbers, days) if len(days) >= LEAST_DAYS else Trend(nothing, nothing)
    with np.errstate(invalid="ignore", divide="ignore"):
        days_left = np.where(trend.lower > 0, (limits - p95) / trend.slope, np.nan)
        days_left = np.where(p95 >= limits, 0.0, days_left)
        full_at = now + days_left * DAY
        full_at = np.where(full_at <= now + HORIZON, full_at, np.nan)
        return Fullness(p95, peak, p95 / limits, trend.slope, full_at)


HOUR = 3_600
PAST_THE_HOUR = 600
"""Rows lie so many seconds past the hour that they end at, or twice as many and so on: by then they are written, so
that the last hour always has one."""

_MINUTE = 60
_ROLLED = 2 * _MINUTE
"""Seconds after which rollups of what is final are made."""
_PASS = 2 * _MINUTE
"""Seconds that a pass may take, and be late."""
_DAY_HOURS = 24
_BITS = 8


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of thing: what is read of it, and what a row calls it.

    Attributes:
        name: keys -> kind and subject.
        limit: keys -> bit/s from cluster.yaml; NaN if unknown.
        reduce: fields -> bytes, and a speed where the rows say one.
    """

    source: Source
    fields: tuple[Field, ...]
    reduce: Callable[[Floats], Floats]
    name: Callable[[Keys], tuple[str, str]]
    limit: Callable[[Keys], float]


class _Loads:
    """Minutes and days of one kind."""

    def __init__(self, store: Store, kind: _Kind) -> None:
        self.kind = kind
        minutes, hours = kind.source, kind.source.of(schema.HOUR)
        self.minutes = Bins(store, minutes, kind.fields, _MINUTE, reduce=kind.reduce, most=60)
        self.hours = Bins(store, hours, kind.fields, HOUR, reduce=kind.reduce, most=48)
        self.days: dict[int, dict[Keys, float]] = {}


class CapacityStudy:
    """Says once an hour how full group pairs, interfaces and storage nodes are, and when they will be.

    Args:
        cluster: its speeds and limits.
        store: read from.
    """

    measurements = (schema.CAPACITY, schema.LOADED)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        written = cluster.bridge.lateness + cluster.bridge.grace + _ROLLED + _PASS
        self.offset = PAST_THE_HOUR * -(-written // PAST_THE_HOUR)
        self._kinds = tuple(_Loads(store, kind) for kind in (_pairs(cluster), _interfaces(cluster), _nodes(cluster)))
        status = Source(schema.EXPORTER_STATUS, schema.MINUTE)
        self._heard = Bins(store, status, (schema.EXPORTER_RECORDS,), _MINUTE)
        self._heard_hours = Bins(store, status.of(schema.HOUR), (schema.EXPORTER_RECORDS,), HOUR)
        # The next pass may ask for the last one again.
        self._at = lru_cache(maxsize=1)(self._rows)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the hours of the span that are final."""
        del jobs
        first = -(-(span.start - self.offset) // HOUR) * HOUR
        last = (span.final - _ROLLED) // HOUR * HOUR
        hours = [self._at(hour) for hour in range(first, last + 1, HOUR)]
        points = [(schema.CAPACITY, rows) for rows in hours] + [(schema.LOADED, _loaded(rows)) for rows in hours]
        # What the next hour will need is read as it becomes final, not all at once.
        final = (span.final - _ROLLED) // PAST_THE_HOUR * PAST_THE_HOUR
        for loads in self._kinds:
            loads.minutes.ensure(final - PAST_THE_HOUR, final)
        return points

    def _rows(self, hour: int) -> pl.DataFrame:
        heard = _is_heard(self._heard.between(hour - DAY, hour))
        self._heard.forget(hour - DAY)
        days = self._known_days(hour)
        return pl.concat([self._of_kind(loads, hour, heard, days) for loads in self._kinds])

    def _known_days(self, hour: int) -> list[int]:
        """Return the starts of the whole days of which enough hours were heard, oldest first."""
        today = hour // DAY * DAY
        first = today - TREND_DAYS * DAY
        heard = _is_heard(self._heard_hours.between(first, today)).reshape(TREND_DAYS, _DAY_HOURS)
        self._heard_hours.forget(first)
        enough = heard.sum(axis=1) >= KNOWN_HOURS
        return [first + place * DAY for place in np.flatnonzero(enough).tolist()]

    def _of_kind(self, loads: _Loads, hour: int, heard: Floats, days: Sequence[int]) -> pl.DataFrame:
        kept = loads.minutes.between(hour - DAY, hour)
        loads.minutes.forget(hour - DAY)
        keys = loads.minutes.keys
        minutes = kept[heard > 0, :, 0] * _BITS / _MINUTE
        # The speed that an interface tells of itself, where cluster.yaml has none; 0 for what tells none.
        told = kept[:, :, 1].max(axis=0, initial=0.0) if kept.shape[2] > 1 else np.zeros(len(keys))
        limits = np.array([loads.kind.limit(key) for key in keys])
        limits = np.where(np.isnan(limits) & (told > 0), told, limits)
        by_day = self._days(loads, days)
        daily = np.array([[day.get(key, 0.0) for key in keys] for day in by_day]).reshape(len(days), len(keys))
        found = fullness(hour, minutes, daily, np.array(days, np.float64) / DAY, limits)
        names = [loads.kind.name(key) for key in keys]
        frame = pl.DataFrame(
            {
                WINDOW: pl.Series([hour + self.offset] * len(keys), dtype=pl.Int64),
                schema.KIND: pl.Series([kind for kind, _ in names], dtype=pl.String),
                schema.SUBJECT: pl.Series([subject for _, subject in names], dtype=pl.String),
                schema.P95.name: found.p95,
                schema.PEAK.name: found.peak,
                schema.LIMIT_BPS.name: limits,
                schema.UTILISATION.name: found.utilisation,
                schema.TREND.name: found.trend,
                schema.FULL_AT.name: found.full_at,
            },
            strict=False,
        )
        numbers = [column for column, kind in frame.schema.items() if kind == pl.Float64]
        counted = pl.Series([LOCAL not in key for key in keys], dtype=pl.Boolean)
        return frame.with_columns(pl.col(numbers).fill_nan(None)).filter(counted & (pl.col(schema.PEAK.name) > 0))

    def _days(self, loads: _Loads, days: Sequence[int]) -> Iterable[dict[Keys, float]]:
        """Return keys -> p95 of the heard hours, of each day; worked out once a day."""
        for gone in [day for day in loads.days if day not in days]:
            del loads.days[gone]
        missing = [day for day in days if day not in loads.days]
        if missing:
            loads.hours.ensure(missing[0], missing[-1] + DAY)
        for day in missing:
            heard = _is_heard(self._heard_hours.between(day, day + DAY)) > 0
            hours = loads.hours.between(day, day + DAY)[heard, :, 0] * _BITS / HOUR
            ranked = nearest_rank(hours).tolist()
            loads.days[day] = {key: value for key, value in zip(loads.hours.keys, ranked, strict=True) if value}
        loads.hours.forget(days[-1] + DAY if days else 0)
        return [loads.days[day] for day in days]


def _loaded(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the points of LOADED, of those of CAPACITY."""
    return rows.filter(pl.col(schema.UTILISATION.name) >= schema.TENTH).select(
        WINDOW, *schema.LOADED.tags, schema.UTILISATION.name
    )


def _is_heard(records: Floats) -> Floats:
    """Return [bin] 1 where any exporter was heard, from [bin, key, 1] records."""
    heard: Floats = np.where(records.sum(axis=(1, 2)) > 0, 1.0, 0.0)
    return heard


# -- the kinds -----------------------------------------------------------------------------------------


def _as_it_is(table: Floats) -> Floats:
    return table


def _busier(table: Floats) -> Floats:
    """Return the larger of two directions."""
    larger: Floats = table.max(axis=-1, keepdims=True)
    return larger


def _interface_load(table: Floats) -> Floats:
    """Return the busier direction's bytes, by the counters where there are any, and the speed."""
    flows, counters, speed = table[..., :2], table[..., 2:4], table[..., 4]
    busier = np.where(counters.sum(axis=-1) > 0, counters.max(axis=-1), flows.max(axis=-1))
    return np.stack([busier, speed], axis=-1)


def _pairs(cluster: Cluster) -> _Kind:
    limits = {(limit.pair.src, limit.pair.dst): float(limit.limit) for limit in cluster.capacity}
    return _Kind(
        Source(schema.TRAFFIC, schema.MINUTE, (schema.SRC_GROUP, schema.DST_GROUP)),
        (schema.BYTES,),
        _as_it_is,
        lambda key: (Capacity.PAIR.value, f"{key[0]} -> {key[1]}"),
        lambda key: limits.get((key[0], key[1]), np.nan),
    )


def _interfaces(cluster: Cluster) -> _Kind:
    speeds = {
        (exporter.name, interface.name): float(interface.speed)
        for exporter in cluster.exporters
        for interface in exporter.interfaces
        if interface.speed
    }
    kinds = {Link.EDGE.value: Capacity.EDGE.value, Link.CORE.value: Capacity.CORE.value}
    return _Kind(
        Source(schema.INTERFACE_TRAFFIC, schema.MINUTE, (schema.EXPORTER, schema.INTERFACE, schema.KIND)),
        (
            schema.IN_BYTES, schema.OUT_BYTES, schema.COUNTER_IN_BYTES, schema.COUNTER_OUT_BYTES, schema.SPEED,
        ),
        _interface_load,
        lambda key: (kinds.get(key[2], Capacity.EDGE.value), f"{key[0]} {key[1]}"),
        lambda key: speeds.get((key[0], key[1]), np.nan),
    )  # fmt: skip


def _nodes(cluster: Cluster) -> _Kind:
    storage = tuple(group.id for group in cluster.groups_with(Role.STORAGE, Role.MODEL_STORAGE))
    speeds = {node.name: float(node.speed) for node in cluster.nodes if node.speed}
    return _Kind(
        Source(schema.NODE_TRAFFIC, schema.MINUTE, (schema.NODE,), (schema.GROUP, storage)),
        (schema.TX_BYTES, schema.RX_BYTES),
        _busier,
        lambda key: (Capacity.ENDPOINT.value, key[0]),
        lambda key: speeds.get(key[0], np.nan),
    )
