"""Beacons as the analyser runs them: from egress to a row an hour and conversation that calls as by a clock."""

from collections.abc import Sequence

import polars as pl

from analysis.detectors.egress import beacons
from analysis.detectors.egress.beacons import CALLS, KEY, PLACES, BeaconPolicy
from analysis.detectors.egress.exfiltration_study import watched
from analysis.detectors.egress.history import BYTES, DAY, HOUR
from analysis.detectors.study import Points, Span
from cluster.model import EXTERNAL, Cluster, Job
from store import schema
from store.influx import Store
from store.influxql import is_in
from store.points import WINDOW, columns
from store.sums import binned


class BeaconStudy:
    """Finds beacons, once an hour.

    Args:
        cluster: groups; whose windows are read.
        store: read from: a day of windows after a start, an hour of them an hour later on.
        policy: the numbers.
    """

    measurements = (schema.BEACON,)

    def __init__(self, cluster: Cluster, store: Store, policy: BeaconPolicy | None = None) -> None:
        self._store, self._window = store, cluster.bridge.window
        self._groups = tuple(group.id for group in watched(cluster))
        self._policy = policy or BeaconPolicy()
        self._hours: dict[int, pl.DataFrame] = {}
        self._made: tuple[tuple[int, int, int], pl.DataFrame] | None = None

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of all whole hours from `span.start` on that have closed."""
        del jobs
        first = -(-span.start // HOUR) * HOUR
        moments = range(first, span.closed, HOUR)
        if not self._groups or not moments:
            return []
        # What may still change is looked at once a minute.
        key = (first, span.final // HOUR, span.closed // 60 if moments[-1] > span.final else moments[-1])
        if self._made is None or self._made[0] != key:
            empty = pl.DataFrame(schema=columns(*schema.BEACON.tags, *schema.BEACON.fields))
            self._made = key, pl.concat([empty, *(self._judge(at, span.final) for at in moments)])
        return [(schema.BEACON, self._made[1])]

    def _judge(self, at: int, final: int) -> pl.DataFrame:
        frames = [self._calls(hour, final) for hour in range(at - DAY, at, HOUR)]
        for hour in [hour for hour in self._hours if hour < at - DAY - HOUR]:
            del self._hours[hour]
        return beacons.rows(pl.concat(frames), at, self._window, self._policy)

    def _calls(self, hour: int, final: int) -> pl.DataFrame:
        """Return the calls of an hour; what is final is read once."""
        if hour in self._hours:
            return self._hours[hour]
        where = [
            is_in(schema.SRC_GROUP, self._groups),
            is_in(schema.DST_GROUP, [EXTERNAL]),
            is_in(schema.INITIATOR, [schema.BY_SOURCE]),
        ]
        windows = binned(
            self._store, schema.EGRESS, schema.RAW, (schema.BYTES,), (*KEY, *PLACES),
            start=hour - self._window, stop=hour + HOUR, seconds=self._window, where=where,
        ).filter(pl.col(BYTES) > 0)  # fmt: skip
        found = beacons.calls(windows.select(*KEY, *PLACES, WINDOW, BYTES), hour, self._window).select(*CALLS)
        if hour + HOUR <= final:
            self._hours[hour] = found
        return found
