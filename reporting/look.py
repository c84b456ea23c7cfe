"""Queries of a report, up to the end of its period, as rows."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from analysis.audit import Audit, Period, audit
from app.units import format_duration
from cluster.model import Cluster
from reporting.spans import Bins, asked_seconds, bins_of, days_of
from reporting.words import Wording
from store.influx import Store
from store.influxql import Select, compare, earliest, newest, total
from store.schema import Field, Measurement

Row: TypeAlias = "dict[str, Any]"
"""Tags and columns of one row of an answer, and TIME; a tag that a point lacks is empty."""

TIME = "time"
"""Epoch seconds of a row: of the point that a selector chose, or of its bin."""

FIRST, LAST = "first", "last"
"""Columns of `Look.seen`: start of the first and of the last window in which something was seen, epoch seconds."""

_EDGE = 3600
"""Seconds by which a period may begin before what is kept: expired points go by the day."""


class Look:
    """One cluster's store over one period.

    Args:
        cluster: what it is about.
        store: asked.
        period: whole windows of the retention that has all of them.
        now: epoch seconds.
    """

    def __init__(self, cluster: Cluster, store: Store, period: Period, now: int) -> None:
        self.cluster, self.store, self.period, self.now = cluster, store, period, now
        self.words, self.zone = Wording.of(cluster), cluster.site.time_zone
        self.bins, self.days = bins_of(period, self.zone), days_of(period, self.zone)

    @cached_property
    def audit(self) -> Audit:
        """The period's audit, which several sections take from."""
        return audit(self.cluster, self.store, self.period)

    # -- asking --------------------------------------------------------------------------------------

    def rows(self, select: Select, *, since: int | None = None, until: int | None = None) -> list[Row]:
        """Return the rows of an answer over the period.

        Args:
            select: what is asked, with its columns.
            since: another begin, epoch seconds.
            until: another end, exclusive.
        """
        start = self.period.start if since is None else since
        stop = self.period.stop if until is None else until
        names = TIME, *select.tags, *(column.name for column in select.columns)
        return [dict(zip(names, row, strict=True)) for row in self.store.rows(select.between(start, stop))]

    def over_time(self, select: Select) -> list[Row]:
        """Return the same in bins that `bins` and `days` can be made of."""
        return self.rows(select.each(asked_seconds(self.period, self.zone)))

    def seen(self, source: Select, fields: Sequence[Field], tags: Sequence[str]) -> list[Row]:
        """Return sums of fields for each combination of tags, FIRST and LAST, those with most of the first on top.

        Args:
            source: a measurement, with conditions.
            fields: summed; rows in which the first is 0 all the time are left out.
            tags: what is told apart.
        """
        first = fields[0]
        there = source.where(compare(first, ">", 0)).by(*tags)
        ends: dict[tuple[str, ...], dict[str, int]] = {}
        for name, selector in ((FIRST, earliest), (LAST, newest)):
            # A selector alone keeps the time of the point that it chose.
            for row in self.rows(there.take(selector(first))):
                ends.setdefault(tuple(row[tag] for tag in tags), {})[name] = row[TIME]
        sums = self.rows(source.take(*map(total, fields)).by(*tags))
        found = [row | ends[key] for row in sums if (key := tuple(row[tag] for tag in tags)) in ends]
        return sorted(found, key=lambda row: (-(row[first.name] or 0), *(row[tag] for tag in tags)))

    # -- how far back --------------------------------------------------------------------------------

    def reaches(self, retention: str) -> bool:
        """Whether a retention holds all of the period."""
        return self.period.start >= self.now - self._keep(retention) - _EDGE

    def known_since(self, retention: str) -> int:
        """Return from when on a retention has the period, epoch seconds: its end where it has nothing of it."""
        if self.reaches(retention):
            return self.period.start
        return min(self.now - self._keep(retention), self.period.stop)

    def gone(self, measurement: Measurement, what: str) -> tuple[str, ...]:
        """Return a note where a measurement's points of the begin of the period are gone; `what` they are, in words."""
        if self.reaches(measurement.kept):
            return ()
        keep = self._keep(measurement.kept)
        since = self.words.moment(self.now - keep)
        return (f"{what} are kept for {format_duration(keep)}: of the time before {since} nothing is known here.",)

    def _keep(self, retention: str) -> int:
        return next(one.keep for one in self.cluster.retentions() if one.name == retention)


def split(rows: Iterable[Row], tag: str, column: str, bins: Bins) -> dict[str, list[float]]:
    """Return for each value of a tag the sums of a column in bins."""
    return bins.folded((row[TIME], row[tag], row[column] or 0) for row in rows)
