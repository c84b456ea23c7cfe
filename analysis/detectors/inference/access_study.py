"""Access as the analyser runs it: from ingest's conversations and the exports of sign-ins to `access` rows."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from analysis.detectors.fabric.breaches import oriented
from analysis.detectors.inference import access
from analysis.detectors.inference.access import EVERY
from analysis.detectors.inference.asked import VOLUME, Asked
from analysis.detectors.study import Points, Span
from cluster.model import Cluster, Job
from store import schema
from store.influxql import is_in
from store.points import WINDOW
from store.schema import Violation


class AccessStudy:
    """Says who asked inference and management, and who of them is not on the list.

    Args:
        cluster: groups, `inference.access`.
        asked: what clients asked, and who they were.
    """

    measurements = (schema.ACCESS, schema.ACCESS_BREACH)

    def __init__(self, cluster: Cluster, asked: Asked) -> None:
        self._cluster, self._asked = cluster, asked
        spelled = tuple(
            replace(entry, users=tuple(asked.identity.names.listed(user) for user in entry.users))
            for entry in cluster.inference.access
        )
        self._policy = access.policy_of(cluster, spelled)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return what was asked in the five minutes before each, and what is not on the list, window by window."""
        del jobs
        first = Asked.begin(span) + EVERY
        asked = self._asked.of(span)
        managed = self._asked.with_users(self._managed(first - EVERY, span.closed))
        found = access.accesses(pl.concat([asked, managed]), first, span.closed // EVERY * EVERY)
        points = [(schema.ACCESS, found)]
        if self._policy.entries:
            denied = access.breaches(asked, self._policy, self._cluster, span.start)
            points.append((schema.ACCESS_BREACH, denied))
        return points

    def _managed(self, start: int, stop: int) -> pl.DataFrame:
        """Return unexpected connections with management groups, both directions of each together."""
        where = [is_in(schema.KIND, [Violation.MANAGEMENT.value])]
        found = oriented(self._asked.read(schema.VIOLATION, VOLUME, start, stop, where))
        return found.select(
            WINDOW,
            schema.SRC,
            schema.SRC_GROUP,
            schema.DST,
            schema.DST_GROUP,
            schema.PROTO,
            schema.SERVICE,
            *(pl.lit("").alias(tag) for tag in (schema.OFF_WINDOW, schema.COUNTRY, schema.NETWORK)),
            (pl.col(schema.TX_BYTES.name) + pl.col(schema.RX_BYTES.name)).alias(schema.BYTES.name),
            schema.FLOWS.name,
            pl.lit(0.0).alias(schema.DURATION.name),
        )
