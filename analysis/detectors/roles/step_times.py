"""Steps of a job, from packet samples: each ends with a burst, in which all exchange gradients and weights.

Data-parallel traffic ends a step (LLMPrism, arXiv 2505.00342, section 4.3): for a short time all send as fast as they
can. A step is counted from the end of one burst to the end of the next, so its length is that of the step, and its
begin is where the weights have arrived.

What this cannot see: steps shorter than a few bins of 0.1 s, or than a few of the times in which a switch fills a
datagram with samples, which all have its time (sFlow 5 allows a second); and those of a job whose gradients flow all
along the backward passes: it has no bursts. Flow records of 60 s or 10 s hold no times within: they have no steps.
"""

from dataclasses import dataclass

import numpy as np

from analysis.baseline import Floats, Ints
from analysis.detectors.roles.traffic import Traffic

BIN = 0.1
"""Seconds."""

_TOP = 0.01
"""Share of the bins that are sure to be bursts ..."""

_BURSTY = 4.0
"""... if they hold this many times what the median bin does."""

_FAINT = 1e-4
"""What is less than this share of the busiest bins is silence."""

_LONG = 0.4
"""A gap of less than this share of the usual one lies within a burst."""

_EDGE = 0.02
"""Share of a burst's bytes on each side that may be others'."""

_LEAST_STEPS = 3

_LEAST_TIMES = 4.0
"""A step is at least this many times as long as what passes between two moments of samples."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps, [step]; the burst lies at the end of each.

    Attributes:
        begin, end: epoch seconds.
        burst: when its burst begins.
    """

    begin: Floats
    end: Floats
    burst: Floats

    @property
    def length(self) -> Floats:
        """Return [step] seconds."""
        return self.end - self.begin

    @property
    def usual(self) -> float:
        """Return the median length."""
        return float(np.median(self.length))

    @property
    def exchange(self) -> float:
        """Return the share of a step that the exchange at its end takes: the median."""
        return float(np.median((self.end - self.burst) / self.length))

    def of(self, time: Floats) -> Ints:
        """Return the step that each moment lies in; -1 outside of all."""
        found = np.searchsorted(self.end, time)
        return np.where((time < self.begin[0]) | (found >= len(self.end)), -1, found)


def steps_of(traffic: Traffic) -> Steps | None:
    """Return a job's steps; None where its traffic has no bursts that repeat."""
    if not len(traffic.time):
        return None
    start = traffic.time[0]
    series = np.bincount(((traffic.time - start) / BIN).astype(np.int64), traffic.sent)
    top = float(np.sort(series)[-max(int(_TOP * len(series)), 3) :].mean())
    # A job without a pipeline is silent between its bursts.
    middle = max(float(np.median(series)), _FAINT * top)
    if top < _BURSTY * middle:
        return None
    heavy = np.flatnonzero(series >= np.sqrt(top * middle))
    gaps = np.diff(heavy)
    quiet = np.sort(gaps[gaps > 1])
    if not len(quiet):
        return None
    # Half of all quiet time lies in gaps that are at least so long.
    usual = quiet[np.searchsorted(np.cumsum(quiet), quiet.sum() / 2)]
    cut = np.flatnonzero(gaps > max(_LONG * usual, 1))
    first, last = heavy[np.concatenate([[0], cut + 1])], heavy[np.concatenate([cut, [len(heavy) - 1]])]
    begins, ends = _edges(traffic, start + (first - 1) * BIN, start + (last + 2) * BIN)
    if len(ends) <= _LEAST_STEPS or np.median(np.diff(ends)) < _LEAST_TIMES * _apart(traffic.time):
        return None
    return Steps(ends[:-1], ends[1:], begins[1:])


def _apart(time: Floats) -> float:
    """Return the seconds between the moment of a sample and the one before it: the median of all samples."""
    moments, count = np.unique(time, return_counts=True)
    return float(np.median(np.repeat(np.diff(moments), count[1:]))) if len(moments) > 1 else 0.0


def _edges(traffic: Traffic, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return when the bytes between pairs of moments begin and end to flow."""
    total = np.concatenate([[0.0], np.cumsum(traffic.sent)])
    left, right = np.searchsorted(traffic.time, low), np.searchsorted(traffic.time, high)
    volume = total[right] - total[left]
    found = (np.searchsorted(total, total[left] + share * volume, side="right") - 1 for share in (_EDGE, 1 - _EDGE))
    first, last = (traffic.time[np.clip(one, 0, len(traffic.time) - 1)] for one in found)
    return first, last
