"""Unseen bytes as the analyser runs them: from the store's `interface` rows to a row while some are missing."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis.bins import Bins, Source
from analysis.detectors.fabric import unseen
from analysis.detectors.study import Points, Span
from cluster.model import Cluster, Job
from store import schema
from store.influx import Store
from store.points import columns

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
        self._last: tuple[int, pl.DataFrame] | None = None

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the moments of the span that are final."""
        del jobs
        first = -(-span.start // EVERY) * EVERY
        frames = [self._at(moment) for moment in range(first, span.final + 1, EVERY)]
        return [(schema.UNSEEN, pl.concat([pl.DataFrame(schema=_ROWS), *frames]))]

    def _at(self, moment: int) -> pl.DataFrame:
        """Return the rows of a moment; the next pass may ask for the last one again."""
        if self._last is None or self._last[0] != moment:
            self._last = moment, self._rows(moment)
        return self._last[1]

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
        share = unseen.usual_share(past[:, there, :2].sum(axis=2), past[:, there, 2:].sum(axis=2))
        rows = []
        for exporter in np.unique(names):
            own = names == exporter
            lost, bins = unseen.missing(flows[:, own], counters[:, own], share[own])
            if lost > self._limit:
                seen = flows[-bins:, own].sum()
                rows.append((moment, str(exporter), round(lost), round(seen), float(bins * EVERY)))
        return pl.DataFrame(rows, schema=_ROWS, orient="row")
