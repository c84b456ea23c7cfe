"""Breaches of the segmentation as the analyser runs them: from ingest's violations to one row a finding and window."""

from collections.abc import Sequence

import polars as pl

from analysis.detectors.fabric import breaches
from analysis.detectors.study import Points, Span
from cluster.model import Cluster, Job
from store import schema
from store.influx import Store
from store.points import WINDOW
from store.schema import Field, Measurement
from store.sums import binned


class BreachStudy:
    """Tells violations, unknown addresses and unexpected management connections apart, and each of them once.

    Args:
        cluster: inventory, roles, thresholds.
        store: read from.
    """

    measurements = (schema.BREACH,)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._store = store
        self._scope = breaches.scope_of(cluster)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of all windows of the pass; destinations and sources are counted over the time before."""
        del jobs
        start = span.start - self._scope.look_back
        violations = self._read(schema.VIOLATION, (schema.BYTES, schema.FLOWS), start, span.closed)
        fields = (schema.BYTES, schema.FLOWS, schema.TX_BYTES)
        unknown = self._read(schema.UNKNOWN_NODE, fields, start, span.closed)
        found = breaches.find(
            violations.select(*breaches.VIOLATIONS),
            unknown.with_columns(pl.col(schema.TX_BYTES.name).fill_null(0)).select(*breaches.UNKNOWN),
            self._scope,
            span.start,
        )
        return [(schema.BREACH, found)]

    def _read(self, measurement: Measurement, fields: tuple[Field, ...], start: int, stop: int) -> pl.DataFrame:
        tags = [tag for tag in measurement.tags if tag != schema.SHARD]
        found = binned(
            self._store, measurement, schema.RAW, fields, tags, start=start, stop=stop, seconds=self._scope.window
        )
        return found.filter(pl.col(schema.BYTES.name).fill_null(0) + pl.col(schema.FLOWS.name).fill_null(0) > 0).sort(
            WINDOW, *tags
        )
