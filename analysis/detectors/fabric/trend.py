"""The slope of a series of days, robust against odd days: Theil and Sen's, with Sen's confidence.

    slope = median of all (y_j - y_i) / (x_j - x_i), i < j                                            [1, 2]

The slope counts as a rise only where its two-sided 95 % confidence interval lies above zero: of the N = n (n - 1) / 2
ordered slopes its lower end is number (N - C) / 2, rounded down, with
C = 1.96 * sqrt(n (n - 1) (2 n + 5) / 18), the spread of Kendall's statistic without ties             [2, 3].

[1] H. Theil: A rank-invariant method of linear and polynomial regression analysis. Proc. KNAW 53 (1950), 386-392,
    521-525, 1397-1412.
[2] P. K. Sen: Estimates of the Regression Coefficient Based on Kendall's Tau. JASA 63 (1968), 1379-1389.
[3] R. O. Gilbert: Statistical Methods for Environmental Pollution Monitoring (1987), chapter 16.5.
"""

import math
from dataclasses import dataclass

import numpy as np

from analysis.baseline import Floats

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
