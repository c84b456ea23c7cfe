"""The load of inference nodes against their own past: is it more than at this time of the week in earlier weeks?

The load at a minute is the bytes that clients sent to the group in the five minutes before it. For each of the last six
weeks, the loads of the half hour before and after the same time of the week are that week's sample, by the clock on
the site's wall: clients keep their hours when daylight saving changes. Of the weeks that the store knows

    level    = median of a week's sample
    expected = median of the levels
    within   = median over the weeks of 1.4826 * median(|load - level|)
    between  = 1.4826 * median(|level - expected|)
    spread   = max(sqrt(within^2 + between^2), 10 % of expected, inference_spike_bytes / k)
    limit    = expected + k * spread

Medians and median absolute deviations (see `analysis.baseline`) keep one odd week, such as one with a spike or a
holiday, from moving the limit. The floors keep a service without any variance, or one that sleeps, from firing on
nothing. Requests are what counts, not replies: what clients send does not depend on how much inference answers.

With fewer weeks than `inference_min_weeks` the group is learning: days of one week differ so much (a Sunday from a
Monday) that yesterday at this hour says too little to wake somebody for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.baseline import MAD_TO_SIGMA, Floats
from store.schema import LoadState

MINUTE = 60
LOAD_MINUTES = 5
"""Minutes whose bytes make one load: shorter ones are noise of single requests, longer ones tell late."""
AROUND_MINUTES = 30
"""A week's sample reaches so far to both sides."""
SPIKE_MINUTES = 30
"""How far back the begin of a spike is looked for."""

RELATIVE_SPREAD = 0.1
"""Smallest spread, as a share of what is expected: services grow and shrink by this much from week to week."""


@dataclass(frozen=True, slots=True)
class LoadPolicy:
    """The numbers.

    Attributes:
        spreads: k.
        least: bytes of `inference_spike_bytes`.
        min_weeks: earlier weeks without which nothing is judged.
        max_weeks: earlier weeks that are looked at.
        known: share of a sample's loads without which its week is not known.
    """

    spreads: float
    least: float
    min_weeks: int
    max_weeks: int = 6
    known: float = 0.9


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected at one minute: bytes, and of how many weeks it is known."""

    centre: float
    spread: float
    weeks: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of one minute; numbers that learning does not know are NaN."""

    state: int
    expected: float
    upper: float
    score: float
    weeks: int
    spike_for: float


def loads(minutes: Floats) -> Floats:
    """Return the load after each run of LOAD_MINUTES minutes: [n - LOAD_MINUTES + 1] from [n] bytes."""
    return np.convolve(minutes, np.ones(LOAD_MINUTES), "valid")


def week_sample(minutes: Floats, heard: Floats, policy: LoadPolicy) -> Floats | None:
    """Return the loads of one week's hour; None where too little of it is known.

    Args:
        minutes: [LOAD_MINUTES + 2 * AROUND_MINUTES] bytes.
        heard: the same of records from any exporter: a minute without any is not known to be quiet.
        policy: see there.
    """
    known = loads((heard > 0).astype(np.float64)) > LOAD_MINUTES - 0.5
    if known.mean() < policy.known:
        return None
    return loads(minutes)[known]


def expect(samples: Sequence[Floats], policy: LoadPolicy) -> Expected:
    """Return what the known weeks' samples say, by the formulas above; NaN without any."""
    if not samples:
        return Expected(np.nan, np.nan, 0)
    levels = np.array([np.median(sample) for sample in samples])
    centre = float(np.median(levels))
    deviations = [np.median(np.abs(sample - level)) for sample, level in zip(samples, levels, strict=True)]
    within = MAD_TO_SIGMA * float(np.median(deviations))
    between = MAD_TO_SIGMA * float(np.median(np.abs(levels - centre)))
    spread = max(float(np.hypot(within, between)), RELATIVE_SPREAD * centre, policy.least / policy.spreads, 1.0)
    return Expected(centre, spread, len(samples))


def judge(load: Floats, expected: Sequence[Expected], policy: LoadPolicy) -> list[Verdict]:
    """Return a verdict for each of consecutive minutes; the first ones only serve to know how long a spike has been."""
    verdicts = []
    began: int | None = None
    for minute, (value, past) in enumerate(zip(load.tolist(), expected, strict=True)):
        if past.weeks < policy.min_weeks:
            began = None
            verdicts.append(Verdict(LoadState.LEARNING, np.nan, np.nan, np.nan, past.weeks, 0.0))
            continue
        score = (value - past.centre) / past.spread
        is_spike = score > policy.spreads
        began = (minute if began is None else began) if is_spike else None
        lasted = 0 if began is None else min(minute - began, SPIKE_MINUTES) * MINUTE
        upper = past.centre + policy.spreads * past.spread
        state = LoadState.SPIKE if is_spike else LoadState.OK
        verdicts.append(Verdict(state, past.centre, upper, score, past.weeks, float(lasted)))
    return verdicts
