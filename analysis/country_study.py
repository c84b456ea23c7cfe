"""Unusual countries as the analyser runs them: from conversations to `unusual_country` rows, and their memory."""

from collections.abc import Sequence

import polars as pl

from analysis import access, countries
from analysis.asked import Asked
from analysis.countries import FIRST_SEEN, NEW, CountryPolicy
from analysis.state import State
from analysis.study import Points, Span
from cluster import schema
from cluster.model import Cluster, Job
from cluster.units import format_moment
from ingest.logs import Log
from ingest.store import Store

_MILLI = 1000
_PLACE = (schema.DST_GROUP, schema.SERVICE, schema.COUNTRY)


class CountryStudy:
    """Finds countries that a service of inference has not seen before.

    Args:
        cluster: groups, thresholds.
        store: holds the history from before the first pass.
        state: remembers every country that a service has seen.
        asked: what clients asked, and who they were.
        log: where new countries are told.
    """

    measurements = (schema.UNUSUAL_COUNTRY,)

    def __init__(self, cluster: Cluster, store: Store, state: State, asked: Asked, log: Log) -> None:
        limits = cluster.thresholds
        self._cluster, self._store, self._state, self._asked, self._log = cluster, store, state, asked, log
        self._policy = CountryPolicy(limits.unusual_country_bytes, limits.country_learning)
        denied = sorted(access.policy_of(cluster, ()).denied)
        self._denied = pl.DataFrame(
            denied, schema={schema.SRC_GROUP: pl.String, schema.DST_GROUP: pl.String}, orient="row"
        )

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the windows of the pass whose clients come from a country that is new to the service."""
        del jobs
        if not self._state.knows_countries:
            self._state.begin_countries(span.start, self._before(span.start))
        seen = self._state.countries()
        # Who may not ask at all is told by others, and nobody's custom.
        asked = self._asked.of(span).join(self._denied, on=[schema.SRC_GROUP, schema.DST_GROUP], how="anti")
        found = countries.find(
            asked.filter(pl.col(schema.SRC_GROUP) != pl.col(schema.DST_GROUP)),
            seen.filter(pl.col(FIRST_SEEN) < span.start),
            start=span.start,
            learning_end=self._state.learning_end,
            policy=self._policy,
        )
        told = seen.filter(pl.col(FIRST_SEEN) >= span.start)
        self._tell(found.countries, told)
        if not found.countries.equals(told):
            # From the same start on they are found again, so that a crash before the position moves costs nothing.
            self._state.save_countries(span.start, found.countries)
        return [(schema.UNUSUAL_COUNTRY, found.points)]

    def _before(self, moment: int) -> pl.DataFrame:
        """Return what any retention has seen of each service by then: a single window that held enough."""
        tags = (schema.SRC_GROUP, *_PLACE)
        names = ", ".join(f'"{tag}"' for tag in tags)
        rows = []
        for retention in self._cluster.retentions():
            # A rolled-up window that is not over yet may hold what comes after the moment.
            text = (
                f'SELECT first("{schema.BYTES.name}") FROM "{retention.name}"."{schema.INFERENCE.name}" '  # noqa: S608
                f'WHERE "{schema.BYTES.name}" > {self._policy.least} AND time <= {moment - retention.window}s '
                f"GROUP BY {names}"
            )
            rows += [
                (
                    series.tags[schema.DST_GROUP],
                    series.tags[schema.SERVICE],
                    series.tags[schema.COUNTRY],
                    int(series.values[0][0]) // _MILLI,
                )
                for series in self._store.query(text)
                if series.tags[schema.SRC_GROUP] != series.tags[schema.DST_GROUP]
                and self._cluster.may_ask_inference(series.tags[schema.SRC_GROUP], series.tags[schema.DST_GROUP])
            ]
        return countries.seeds(rows)

    def _tell(self, found: pl.DataFrame, told: pl.DataFrame) -> None:
        fresh = found.filter(pl.col(NEW) == 1).join(told, on=list(_PLACE), how="anti")
        for row in fresh.iter_rows(named=True):
            self._log.line(
                "new_country",
                country=row[schema.COUNTRY],
                group=row[schema.DST_GROUP],
                service=row[schema.SERVICE],
                first_seen=format_moment(row[FIRST_SEEN]),
            )
