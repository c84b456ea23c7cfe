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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.baseline import MAD_TO_SIGMA, Floats
from analysis.bins import Bins, Source, binned
from analysis.detectors.study import Points, Span
from cluster.calendar import local_time, moment_of
from cluster.model import Cluster, Job, Role
from store import schema
from store.influx import Store
from store.points import WINDOW
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


_WEEK = 7 * 86_400


class InferenceStudy:
    """Judges the load of each inference group once a minute.

    Args:
        cluster: whose groups, thresholds and time zone count.
        store: read from.
    """

    measurements = (schema.INFERENCE_LOAD,)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        limits = cluster.thresholds
        self._zone = cluster.site.time_zone
        self._groups = tuple(group.id for group in cluster.groups_with(Role.INFERENCE))
        self._policy = LoadPolicy(
            limits.inference_spike_spreads, float(limits.inference_spike_bytes), limits.inference_min_weeks
        )
        self._store = store
        self._now = Source(schema.INFERENCE, schema.RAW, (schema.DST_GROUP,), (schema.DST_GROUP, self._groups))
        self._recent = Bins(store, self._now, (schema.BYTES,), MINUTE)
        self._last: tuple[tuple[int, int], int, pl.DataFrame] | None = None
        past = self._now.of(schema.MINUTE)
        status = Source(schema.EXPORTER_STATUS, schema.MINUTE)
        # Earlier weeks lie apart from each other: a store of bins each, which moves on with the time.
        self._weeks = tuple(
            (Bins(store, past, (schema.BYTES,), MINUTE), Bins(store, status, (schema.EXPORTER_RECORDS,), MINUTE))
            for _ in range(self._policy.max_weeks)
        )
        self._expected: dict[int, dict[str, Expected]] = {}

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the minutes of the span: each judges what ended at it.

        The store is asked when a minute closes, and once more when one becomes final, so that no late record is
        missed: with tens of thousands of clients a question takes its time.
        """
        del jobs
        first = -(-span.start // MINUTE) * MINUTE
        last = span.closed // MINUTE * MINUTE
        if not self._groups or last < first:
            return []
        moment = last, span.final // MINUTE
        if self._last is None or self._last[0] != moment or self._last[1] > first:
            self._last = moment, first, self._rows(first, last, span.final // MINUTE * MINUTE)
        return [(schema.INFERENCE_LOAD, self._last[2].filter(pl.col(WINDOW) >= first))]

    def _rows(self, first: int, last: int, final: int) -> pl.DataFrame:
        minutes = range(first - SPIKE_MINUTES * MINUTE, last + MINUTE, MINUTE)
        sent = self._sent(minutes[0] - LOAD_MINUTES * MINUTE, last, final)
        expected = self._baselines(minutes)
        frames = []
        for group in self._groups:
            load = loads(sent[group])
            verdicts = judge(load, [expected[minute][group] for minute in minutes], self._policy)
            frames.append(_frame(group, minutes[SPIKE_MINUTES:], load[SPIKE_MINUTES:], verdicts[SPIKE_MINUTES:]))
        return pl.concat(frames)

    def _sent(self, start: int, stop: int, final: int) -> dict[str, Floats]:
        """Return [minute] bytes that clients sent to each group; minutes before `final` are not asked again."""
        settled = min(max(final, start), stop)
        known = self._recent.between(start, settled)
        self._recent.forget(start)
        fresh = binned(self._store, self._now, (schema.BYTES,), settled, stop, seconds=MINUTE)
        result = {group: np.zeros((stop - start) // MINUTE) for group in self._groups}
        for place, (group,) in enumerate(self._recent.keys):
            result[group][: len(known)] = known[:, place, 0]
        for place, (group,) in enumerate(fresh.keys):
            result[group][len(known) :] = fresh.values[place, :, 0]
        return result

    # -- earlier weeks -----------------------------------------------------------------------------

    def _baselines(self, minutes: range) -> dict[int, dict[str, Expected]]:
        """Return for each minute what is expected of each group; earlier weeks do not change, so each is asked once."""
        missing = [minute for minute in minutes if minute not in self._expected]
        if missing:
            local = local_time(self._zone, np.array(missing, np.int64))
            samples: list[dict[str, list[Floats]]] = [{group: [] for group in self._groups} for _ in missing]
            for number, (sent, heard) in enumerate(self._weeks, 1):
                anchors = moment_of(self._zone, local - number * _WEEK)
                self._add_week(sent, heard, anchors.tolist(), samples)
            for minute, found in zip(missing, samples, strict=True):
                self._expected[minute] = {group: expect(weeks, self._policy) for group, weeks in found.items()}
        for minute in [minute for minute in self._expected if minute < minutes[0]]:
            del self._expected[minute]
        return self._expected

    def _add_week(
        self, sent: Bins, heard: Bins, anchors: Sequence[int], samples: Sequence[dict[str, list[Floats]]]
    ) -> None:
        """Add an earlier week's sample around each moment, where the week is known."""
        before, after = (AROUND_MINUTES + LOAD_MINUTES) * MINUTE, AROUND_MINUTES * MINUTE
        first = min(anchors) - before
        table = sent.between(first, max(anchors) + after)
        records = heard.between(first, max(anchors) + after).sum(axis=(1, 2))
        places = {key[0]: place for place, key in enumerate(sent.keys)}
        nothing = np.zeros(len(table))
        for anchor, weeks in zip(anchors, samples, strict=True):
            part = slice((anchor - before - first) // MINUTE, (anchor + after - first) // MINUTE)
            for group, found in weeks.items():
                minutes = table[:, places[group], 0] if group in places else nothing
                sample = week_sample(minutes[part], records[part], self._policy)
                if sample is not None:
                    found.append(sample)
        for bins in (sent, heard):
            bins.forget(first)


def _frame(group: str, minutes: range, load: Floats, verdicts: Sequence[Verdict]) -> pl.DataFrame:
    def column(values: Iterable[float]) -> pl.Series:
        return pl.Series(values, dtype=pl.Float64).fill_nan(None)

    return pl.DataFrame(
        {
            WINDOW: pl.Series(minutes, dtype=pl.Int64),
            schema.GROUP: pl.Series([group] * len(minutes), dtype=pl.String),
            schema.LOAD_BYTES.name: load.astype(np.int64),
            schema.LOAD_EXPECTED.name: column(verdict.expected for verdict in verdicts),
            schema.LOAD_UPPER.name: column(verdict.upper for verdict in verdicts),
            schema.SCORE.name: column(verdict.score for verdict in verdicts),
            schema.WEEKS.name: pl.Series([verdict.weeks for verdict in verdicts], dtype=pl.Int64),
            schema.SPIKE_FOR.name: column(verdict.spike_for for verdict in verdicts),
            schema.LOAD_STATE.name: pl.Series([verdict.state for verdict in verdicts], dtype=pl.Int64),
        }
    )
