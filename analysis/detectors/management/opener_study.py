"""New openers as the analyser runs them: from `managed` windows in the store to `new_session` rows and their memory."""

from collections.abc import Sequence

import polars as pl

from analysis.detectors.egress.networks import FIRST_SEEN, NEW, NetworkPolicy, find
from analysis.detectors.management.openers import KEY, KNOWN, NAMES, STORM, names_of, rows, young
from analysis.detectors.study import Points, Span
from analysis.state import State
from app.log import Log
from app.units import format_moment
from cluster.model import Cluster, Job
from store import schema
from store.influx import Store
from store.influxql import Select, compare, earliest
from store.points import WINDOW
from store.sums import binned, first_seen

_TAGS = [tag for tag in schema.MANAGED.tags if tag != schema.SHARD]
_PLACE = [schema.SRC_GROUP, schema.DST_GROUP, schema.SERVICE]


class OpenerStudy:
    """Finds sources that open a management service of a group for the first time.

    Args:
        cluster: what is expected, limits, windows.
        store: read from.
        state: remembers every opener.
        log: for new ones.
    """

    measurements = (schema.NEW_SESSION,)

    def __init__(self, cluster: Cluster, store: Store, state: State, log: Log) -> None:
        self._cluster, self._store, self._state, self._log = cluster, store, state, log
        self._window = cluster.bridge.window
        limits = cluster.thresholds
        self._policy = NetworkPolicy(limits.first_session_bytes, limits.violation_window)
        self._told = pl.DataFrame(schema=NAMES)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of closed windows: the largest target of one that fills may be another in the end."""
        del jobs
        learning_end = self._learning_end(span)
        if learning_end is None:
            return []
        sums = self._used(span.start, span.closed)
        seen = self._state.openers.known(sums, span.start - self._policy.episode - STORM)
        known = seen.filter(pl.col(FIRST_SEEN) < span.start)
        # What was before matters only to who is not known yet.
        if sums.join(known, on=KEY, how="anti").height:
            sums = self._used(span.start - self._policy.window + self._window, span.closed)
        sums = sums.group_by(WINDOW, *KEY).agg(pl.sum(schema.BYTES.name))
        found = find(sums, known, start=span.start, learning_end=learning_end, policy=self._policy, pair=KEY)
        self._tell(found, seen)
        # From the same start on they are found again, so that a crash before the position moves costs nothing.
        self._state.openers.save(span.start, found)
        fresh = young(pl.concat([known, found]), span.start, self._policy)
        if fresh.is_empty():
            return []
        used = self._used(min(fresh[FIRST_SEEN]) - self._policy.window, span.closed)
        told = rows(used, fresh, start=span.start, window=self._window, policy=self._policy, told=self._told)
        self._told = names_of(told, self._told, fresh)
        return [(schema.NEW_SESSION, told)]

    def _used(self, start: int, stop: int) -> pl.DataFrame:
        """Return the uses of management services that are judged, whose source has a name."""
        found = binned(
            self._store, schema.MANAGED, schema.RAW, (schema.BYTES,), _TAGS,
            start=start // self._window * self._window, stop=stop, seconds=self._window, as_stored=True,
        ).filter(pl.col(schema.BYTES.name) > 0, pl.col(schema.SRC) != schema.OTHER)  # fmt: skip
        places = found.select(_PLACE).unique()
        judged = [self._is_judged(*row) for row in places.iter_rows()]
        return found.join(places.filter(pl.Series(judged, dtype=pl.Boolean)), on=_PLACE, how="semi")

    def _is_judged(self, src: str, dst: str, service: str) -> bool:
        """Whether no other rule tells of it, and it is not everybody's anyhow, as web pages of management are."""
        cluster, settings = self._cluster, self._cluster.management
        is_allowed = (
            cluster.is_allowed(src, dst) and cluster.is_allowed(dst, src) and cluster.may_open(src, dst, service)
        )
        return is_allowed and (service in settings.sessions or service not in settings.services)

    def _learning_end(self, span: Span) -> int | None:
        """Return until when nothing is new; None as long as the store knows no management session."""
        if (known := self._state.openers.begun) is not None:
            return known
        there = Select(schema.MANAGED, schema.RAW).take(earliest(schema.BYTES)).where(compare(schema.BYTES, ">", 0))
        retentions = self._cluster.retentions()
        begun = min((moment for moment, _ in first_seen(self._store, retentions, there)), default=None)
        if begun is None or begun >= span.closed:
            return None
        ends = max(self._state.learning_end, begun + self._cluster.thresholds.session_learning)
        each = there.by(*_PLACE, schema.SRC)
        # Of what came after the learning period, refused attempts make nothing known.
        enough = each.where(compare(schema.BYTES, ">", self._policy.volume))
        before = (
            *((first, tags) for first, tags in first_seen(self._store, retentions, each, span.start) if first < ends),
            *first_seen(self._store, retentions, enough, span.start),
        )
        seeds = [(src, dst, service, first, 0) for first, (group, dst, service, src) in before
                 if self._is_judged(group, dst, service)]  # fmt: skip
        frame = pl.DataFrame(seeds, schema=KNOWN, orient="row")
        self._state.openers.begin(ends, frame.group_by(KEY).agg(pl.min(FIRST_SEEN), pl.first(NEW)))
        return ends

    def _tell(self, found: pl.DataFrame, told: pl.DataFrame) -> None:
        fresh = found.filter(pl.col(NEW) == 1).join(told, on=list(KNOWN), how="anti")
        for row in fresh.iter_rows(named=True):
            self._log.line(
                "opener_found",
                src=row[schema.SRC],
                group=row[schema.DST_GROUP],
                service=row[schema.SERVICE],
                since=format_moment(row[FIRST_SEEN]),
            )
