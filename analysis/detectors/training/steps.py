"""The period of a training job's steps, from what its nodes send second by second.

In synchronous training all nodes compute, then all exchange: bytes a second rise and fall with the step. The lag at
which the series' autocorrelation has its first high peak says about how long a step is; a least-squares fit of that
period and its harmonics says how long exactly, and how sure that is.

The error: for A cos(w t + phi) in white noise of variance s^2, N samples a second apart, no unbiased estimate of w has
a variance below 24 s^2 / (A^2 N (N^2 - 1)), and least squares reaches it (Rife and Boorstyn 1974, for complex tones;
Kay, Fundamentals of Statistical Signal Processing I, example 3.14, for real ones). Harmonics h with amplitudes A_h add
up to A^2 = sum h^2 A_h^2. s^2 is measured: whatever the fit leaves over, of which packet sampling is the largest part.

What this cannot see: steps of less than SHORTEST (Nyquist's limit, and a little). Mirrored at half a cycle a second
they would show as a longer period; a window of a second averages them away as they get shorter, so what swings too
little is left out. Steps between one and two seconds can still be mistaken for longer ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.baseline import Floats

SHORTEST = 2.2
"""Seconds: a period below twice the length of a window cannot be reported, and one right above it not well."""

SERIES = 256
"""Seconds from which a step's period is reported."""

MOST_NODES = 64
"""Nodes whose seconds are added up: in synchronous training all beat alike, so that some tell as much as all."""

LEAST_SAMPLES = 64
"""Seconds without which nothing is said."""

_PERIODS = 6
"""Periods that a series must hold."""

_LEAST_SWING = 0.25
"""Amplitude of the fundamental, as a share of the mean, below which the period may be a mirrored one."""

_SURE = 4.0
"""Standard deviations of white noise that a peak must reach: noise alone does once in 500 series of 256 s."""

_PROMINENCE = 0.2
"""How far a peak must stand above the valley before it: a series that merely wanders has none."""

_AS_HIGH = 0.6
"""A peak that is at least so high, as a share of the highest, is the period rather than a multiple of it."""

_CONFIDENCE = 1.96
"""Standard deviations of half a 95 % interval."""

_PAD = 8
"""How many times finer the spectrum is laid out than the series resolves."""

_MOST_HARMONICS = 6
_GRID, _ROUNDS = 21, 3


@dataclass(frozen=True, slots=True)
class Step:
    """A period in seconds, and half the width of its 95 % confidence interval."""

    period: float
    error: float


def sample_of(nodes: Sequence[str]) -> tuple[str, ...]:
    """Return those of a job's nodes whose seconds are looked at, evenly from all of them."""
    count = min(len(nodes), MOST_NODES)
    return tuple(nodes[number * len(nodes) // count] for number in range(count))


def step_of(sent: Floats) -> Step | None:
    """Return the period of a series of bytes a second; None where it has none that can be told from noise."""
    count = len(sent)
    if count < LEAST_SAMPLES or not sent.any():
        return None
    series = _without_trend(sent)
    # Of a constant, rounding is left over.
    if float(np.mean(series**2)) <= (1e-9 * float(np.mean(sent))) ** 2:
        return None
    lag = _first_peak(_autocorrelation(series))
    if lag is None:
        return None
    frequency = _refined(series, lag)
    squares, rest = _fit(series, frequency)
    swings = np.sqrt(squares[0]) >= _LEAST_SWING * float(np.mean(sent))
    if 1 / frequency < SHORTEST or not swings:
        return None
    information = float((np.arange(len(squares)) + 1.0) ** 2 @ squares)
    variance = 24 * rest / (information * count * (count**2 - 1))
    return Step(1 / frequency, _CONFIDENCE * float(np.sqrt(variance)) / frequency**2 / (2 * np.pi))


def _without_trend(sent: Floats) -> Floats:
    at = np.arange(len(sent)) - (len(sent) - 1) / 2
    slope = float(at @ sent) / float(at @ at)
    return np.asarray(sent - sent.mean() - slope * at, np.float64)


def _autocorrelation(series: Floats) -> Floats:
    """Return the correlation of a series with itself at each lag up to a quarter of its length, unbiased."""
    count, lags = len(series), len(series) // _PERIODS
    power = np.abs(np.fft.rfft(series, 2 * count)) ** 2
    products = np.fft.irfft(power)[: lags + 2]
    means = products / (count - np.arange(lags + 2))
    return np.asarray(means / means[0], np.float64)


def _first_peak(correlation: Floats) -> int | None:
    """Return the lag of the first high peak; None if there is none above noise."""
    count = (len(correlation) - 2) * _PERIODS
    lags = np.arange(2, len(correlation) - 1)
    here = correlation[lags]
    is_peak = (here >= correlation[lags - 1]) & (here > correlation[lags + 1])
    valley = np.minimum.accumulate(correlation)[lags]
    is_sure = (here >= _SURE / np.sqrt(count - lags)) & (here - valley >= _PROMINENCE)
    found = lags[is_peak & is_sure]
    if not len(found):
        return None
    high = correlation[found] >= _AS_HIGH * correlation[found].max()
    return int(found[high][0])


def _refined(series: Floats, lag: int) -> float:
    """Return the frequency that explains most of the series: near that of a lag, or of a whole part of it.

    A period such as 2.5 s has its first high peak at a lag of 5 s. Beyond half a cycle a second everything is mirrored.
    """
    power = np.abs(np.fft.rfft(series, _PAD * len(series))) ** 2
    spacing = 1 / (_PAD * len(series))
    best, most = 0.0, -1.0
    for parts in range(1, int(lag / 2) + 1):
        centre, width = parts / lag, (parts + 1) / 2 / lag**2
        low, high = (int(edge / spacing) for edge in (max(centre - width, spacing), min(centre + width, 0.5)))
        place = low + int(np.argmax(power[low : high + 1]))
        if power[place] > most:
            best, most = place * spacing, float(power[place])
    grid = np.linspace(best - spacing, best + spacing, _GRID)
    best = float(grid[np.argmax(_harmonic_power(series, grid))])
    # Harmonics leak into each other: the last digits are those of the exact fit, by parabolas through three of them.
    width = 4 * spacing / _GRID
    for _ in range(_ROUNDS):
        left, here, right = (_fit(series, best + shift)[1] for shift in (-width, 0.0, width))
        bend = left - 2 * here + right
        shift = 0.5 * width * (left - right) / bend if bend > 0 else np.sign(left - right) * width
        best += float(np.clip(shift, -width, width))
        width /= 3
    return min(best, 1 - best)


def _harmonics(frequency: float) -> int:
    """Return how many harmonics are of use: below half a cycle a second, and not so high that they are mere noise."""
    return min(max(int(0.5 / frequency), 1), _MOST_HARMONICS)


def _harmonic_power(series: Floats, frequencies: Floats) -> Floats:
    """Return for each of some nearly equal frequencies the power in it and in its harmonics."""
    harmonics = _harmonics(float(frequencies.max()))
    at = np.arange(len(series))
    angles = -2j * np.pi * frequencies[:, None, None] * np.arange(1, harmonics + 1)[:, None] * at
    return np.asarray((np.abs(np.exp(angles) @ series) ** 2).sum(axis=1), np.float64)


def _fit(series: Floats, frequency: float) -> tuple[Floats, float]:
    """Return the squared amplitudes of the harmonics, less what noise adds to them, and the variance left over."""
    harmonics = _harmonics(frequency)
    phase = 2 * np.pi * np.outer(np.arange(len(series)), frequency * np.arange(1, harmonics + 1))
    design = np.hstack([np.cos(phase), np.sin(phase)])
    # Columns of sines and cosines are all but orthogonal: the normal equations are as good as any, and quick.
    weights = np.linalg.solve(design.T @ design + 1e-9 * np.eye(2 * harmonics), design.T @ series)
    left = series - design @ weights
    rest = float(left @ left) / max(len(series) - 2 * harmonics - 3, 1)
    squares = weights[:harmonics] ** 2 + weights[harmonics:] ** 2
    return np.maximum(squares - 4 * rest / len(series), 0.0), rest
