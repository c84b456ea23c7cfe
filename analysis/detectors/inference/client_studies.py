"""Unusual countries, and the studies of who asks inference: they share what clients asked, and wait for sign-ins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analysis.detectors.fabric.breaches import oriented
from analysis.detectors.inference import access, countries
from analysis.detectors.inference.access import EVERY
from analysis.detectors.inference.asked import VOLUME, Asked, delay_of
from analysis.detectors.inference.countries import FIRST_SEEN, NEW, CountryPolicy
from analysis.detectors.management.session_study import SessionStudy
from analysis.detectors.study import Points, Span, Study
from analysis.state import State
from app.log import Log
from app.units import format_moment
from cluster.model import Cluster, Job, Role
from enrichment.watched import FileReading
from store import schema
from store.influx import Store
from store.influxql import Select, compare, earliest, is_in
from store.packed import UNNAMED
from store.points import WINDOW
from store.schema import Violation
from store.sums import first_seen


class AccessStudy:
    """Says who asked inference and management, and who of them is not on the list.

    Args:
        cluster: groups, `inference.access`.
        asked: what clients asked, and who they were.
    """

    measurements = (schema.ACCESS, schema.ACCESS_UNNAMED, schema.ACCESS_BREACH)

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
        found, unnamed = access.accesses(pl.concat([asked, managed]), first, span.closed // EVERY * EVERY)
        points = [(schema.ACCESS, found), (schema.ACCESS_UNNAMED, unnamed)]
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
            pl.lit(value=False).alias(UNNAMED),
        )


_PLACE = (schema.DST_GROUP, schema.SERVICE, schema.COUNTRY)


class CountryStudy:
    """Finds countries that a service of inference has not seen before.

    Args:
        cluster: groups, thresholds.
        store: holds the history from before the first pass.
        state: remembers every country that a service has seen.
        asked: what clients asked, and who they were.
        log: for new countries.
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
        if self._state.countries.begun is None:
            self._state.countries.begin(span.start, self._before(span.start))
        seen = self._state.countries.rows()
        # Who may not ask at all is reported by others, not learnt here.
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
            self._state.countries.save(span.start, found.countries)
        return [(schema.UNUSUAL_COUNTRY, found.points)]

    def _before(self, moment: int) -> pl.DataFrame:
        """Return what any retention has seen of each service by then: a single window that held enough."""
        there = Select(schema.INFERENCE, schema.RAW).take(earliest(schema.BYTES)).by(schema.SRC_GROUP, *_PLACE)
        enough = there.where(compare(schema.BYTES, ">", self._policy.least))
        found = first_seen(self._store, self._cluster.retentions(), enough, moment)
        rows = [
            (dst, service, country, first)
            for first, (src, dst, service, country) in found
            if src != dst and self._cluster.may_ask_inference(src, dst)
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


@dataclass(frozen=True, slots=True)
class ClientStudies:
    """What judges clients.

    Attributes:
        studies: run after all others, in this order.
        delay: seconds by which they are behind the others.
        readings: returns the state of each source of sign-ins.
    """

    studies: tuple[Study, ...] = ()
    delay: int = 0
    readings: Callable[[], list[FileReading]] = list


def client_studies(cluster: Cluster, store: Store, state: State, log: Log) -> ClientStudies:
    """Return those that cluster.yaml asks for: by sign-ins, by a list of who may ask, by files that know countries."""
    knows_users = bool(cluster.identity.sources or cluster.inference.access)
    knows_countries = bool(cluster.geography.files and cluster.groups_with(Role.INFERENCE))
    asked = Asked(cluster, store, log)
    studies: list[Study] = [SessionStudy(cluster, asked)]
    if knows_users:
        studies.append(AccessStudy(cluster, asked))
    if knows_countries:
        studies.append(CountryStudy(cluster, store, state, asked, log))
    return ClientStudies(tuple(studies), delay_of(cluster), asked.readings)
