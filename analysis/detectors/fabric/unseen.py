"""Bytes that interface counters saw and flow records did not: export stopped, or was stopped, while traffic went on.

Counters count whole frames, both ways of what is told only once, and what is never exported, so flows never reach all
of them. What share they usually reach is learnt for each interface: the upper quartile of the last day's hours, which a
silence of up to 18 hours does not lower. In bins of five minutes,

    expected = share * counter bytes        missing = expected - flow bytes, over the newest bins in a row in which an
                                            exporter's flows are less than half of what is expected

Only interfaces whose counters come (sFlow), of which flows are usually half, and whose last day has six busy hours.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import polars as pl

from analysis.baseline import Floats
from analysis.bins import Bins, Source
from analysis.detectors.study import Points, Span
from cluster.model import Cluster, Job
from store import schema
from store.influx import Store
from store.points import columns

LEAST_HOUR = 10_000_000
"""Counter bytes of an hour below which its share says nothing."""
MIN_HOURS = 6
_LEAST_SHARE = 0.5
_QUIET = 0.5
"""Flows below this part of what is expected are missing, and not noise of sampling."""


def usual_share(flows: Floats, counters: Floats) -> Floats:
    """Return [interface] which share of counter bytes flows reach; 0 where that is not known or too little.

    Args:
        flows: [hour, interface] bytes of earlier whole hours.
        counters: the same, as the interfaces count.
    """
    is_busy = counters >= LEAST_HOUR
    shares = np.where(is_busy, flows / np.maximum(counters, 1), np.nan)
    found = np.zeros(flows.shape[1])
    for place in np.flatnonzero(is_busy.sum(axis=0) >= MIN_HOURS):
        found[place] = min(float(np.nanquantile(shares[:, place], 0.75)), 1.0)
    return np.where(found >= _LEAST_SHARE, found, 0.0)


def missing(flows: Floats, counters: Floats, share: Floats) -> tuple[float, int]:
    """Return the bytes that are missing of one exporter, and in how many of the newest bins.

    Args:
        flows: [bin, interface] bytes, the newest bin last.
        counters: the same, as the interfaces count.
        share: [interface], as usual.
    """
    is_known = share > 0
    expected = (counters * share).sum(axis=1)
    seen = flows[:, is_known].sum(axis=1)
    is_short = (seen < _QUIET * expected) & (expected > 0)
    length = int(np.argmin(np.append(is_short[::-1], [False])))
    if not length:
        return 0.0, 0
    return float((expected - seen)[-length:].sum()), length


EVERY = 300
"""Seconds between two verdicts, and of a bin."""
HOUR, DAY = 3_600, 86_400
"""Each looks back an hour, and a day for what is usual."""

_TAGS = (schema.EXPORTER, schema.INTERFACE)
_FIELDS = (schema.IN_BYTES, schema.OUT_BYTES, schema.COUNTER_IN_BYTES, schema.COUNTER_OUT_BYTES)
_ROWS = columns(*schema.UNSEEN.tags, *schema.UNSEEN.fields)


class UnseenStudy:
    """Finds exporters whose counters go on while their flows do not.

    Args:
        cluster: its threshold.
        store: read from.
    """

    measurements = (schema.UNSEEN,)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._limit = cluster.thresholds.unseen_bytes
        of_minutes, of_hours = (Source(schema.INTERFACE_TRAFFIC, one, _TAGS) for one in (schema.MINUTE, schema.HOUR))
        self._bins = Bins(store, of_minutes, _FIELDS, EVERY)
        self._hours = Bins(store, of_hours, _FIELDS, HOUR)
        # The next pass may ask for the last one again.
        self._at = lru_cache(maxsize=1)(self._rows)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the moments of the span that are final."""
        del jobs
        first = -(-span.start // EVERY) * EVERY
        frames = [self._at(moment) for moment in range(first, span.final + 1, EVERY)]
        return [(schema.UNSEEN, pl.concat([pl.DataFrame(schema=_ROWS), *frames]))]

    def _rows(self, moment: int) -> pl.DataFrame:
        # Minutes are rolled up five minutes after their end, hours an hour.
        end = moment - EVERY
        whole = (moment - HOUR) // HOUR * HOUR
        recent, past = self._bins.between(end - HOUR, end), self._hours.between(whole - DAY, whole)
        self._bins.forget(end - HOUR)
        self._hours.forget(whole - DAY)
        places = {key: place for place, key in enumerate(self._hours.keys)}
        known = [(place, places[key]) for place, key in enumerate(self._bins.keys) if key in places]
        if not known:
            return pl.DataFrame(schema=_ROWS)
        here, there = (np.array(one) for one in zip(*known, strict=True))
        names = np.array([self._bins.keys[place][0] for place in here])
        flows, counters = recent[:, here, :2].sum(axis=2), recent[:, here, 2:].sum(axis=2)
        share = usual_share(past[:, there, :2].sum(axis=2), past[:, there, 2:].sum(axis=2))
        rows = []
        for exporter in np.unique(names):
            own = names == exporter
            lost, bins = missing(flows[:, own], counters[:, own], share[own])
            if lost > self._limit:
                seen = flows[-bins:, own].sum()
                rows.append((moment, str(exporter), round(lost), round(seen), float(bins * EVERY)))
        return pl.DataFrame(rows, schema=_ROWS, orient="row")
