"""The load of inference as the analyser runs it: from the store's `inference` rows to `inference_load` rows."""

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from analysis.baseline import Floats
from analysis.bins import Bins, Source, binned
from analysis.detectors.inference.inference_load import (
    AROUND_MINUTES,
    LOAD_MINUTES,
    MINUTE,
    SPIKE_MINUTES,
    Expected,
    LoadPolicy,
    Verdict,
    expect,
    judge,
    loads,
    week_sample,
)
from analysis.detectors.study import Points, Span
from cluster.calendar import local_time, moment_of
from cluster.model import Cluster, Job, Role
from store import schema
from store.influx import Store
from store.points import WINDOW

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
