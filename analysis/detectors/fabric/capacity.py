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
from dataclasses import dataclass

import numpy as np

from analysis.baseline import Floats
from analysis.detectors.fabric.trend import Trend, theil_sen

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
