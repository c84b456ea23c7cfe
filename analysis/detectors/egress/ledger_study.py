"""The ledger as the analyser runs it: from 30 days of egress to a row a pair every five minutes."""

from collections.abc import Sequence

import polars as pl

from analysis.detectors.egress import ledger
from analysis.detectors.egress.history import (
    BIN,
    BYTES,
    CODE,
    DAY,
    GROUP_TODAY,
    HOUR,
    LABELS,
    MONTH,
    PAIR_CODE,
    SUMS,
    WEEK,
    EgressHistory,
    boundary,
    next_hour,
)
from analysis.detectors.egress.ledger import TOLD, Base, LedgerPolicy
from analysis.detectors.egress.moments import Moments
from analysis.detectors.study import Points, Span
from cluster.model import EXTERNAL, Cluster, Job, Role
from store import schema
from store.points import WINDOW

_TALK = (schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE)
"""What the rule `exfil_volume` judges: a conversation, whichever side opened it."""

_LONGEST_BURST = HOUR
_LAG = 60
"""Seconds by which a window's bytes may be stored after it: the rule's range has moved on by then."""


class LedgerStudy:
    """Adds up what each source sent to each outside destination.

    Args:
        cluster: groups, thresholds, artefacts.
        history: shared with other studies of long ranges.
        policy: the numbers.
    """

    measurements = (schema.LEDGER,)

    def __init__(self, cluster: Cluster, history: EgressHistory, policy: LedgerPolicy | None = None) -> None:
        self._cluster, self._history = cluster, history
        self._policy = policy or LedgerPolicy()
        self._zone = cluster.site.time_zone
        self._volume = cluster.thresholds.exfil_volume
        self._burst = min(cluster.thresholds.exfil_window, _LONGEST_BURST) - _LAG
        judged = [
            group.id
            for group in cluster.groups_with(Role.MODEL_STORAGE)
            if cluster.transport_of(group.id, EXTERNAL).is_visible
        ]
        self._judged = pl.col(schema.SRC_GROUP).is_in(judged) & (pl.col(schema.DST_GROUP) == EXTERNAL)
        self._hours = pl.DataFrame(schema=ledger.BINS)
        self._hours_from = self._hours_until = 0
        self._base: tuple[tuple[int, ...], Base] | None = None
        self._told = pl.DataFrame(schema=SUMS)
        self._told_until = 0
        self._moments = Moments(history, self._policy.every, self._at)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of all moments from `span.start` on that have closed."""
        del jobs
        return [(schema.LEDGER, frame) for frame in self._moments.of(span)]

    def _at(self, at: int, final: int) -> pl.DataFrame:
        """Return the ledger at a moment, of which what lies before `final` will not change."""
        until = boundary(final)
        self._settle(until)
        history = self._history
        recent_told = self._bursts(history.bins(until - HOUR, at), until, at, at)
        burst = pl.concat([self._told.filter(pl.col(WINDOW) < until), recent_told])
        whole = self._whole(at, until, burst)
        heads = [
            (span, self._paired(history.head(at - span), burst, BIN))
            for span in (DAY, WEEK, MONTH)
            if next_hour(at - span) != at - span
        ]
        recent = self._paired(history.bins(until, at), burst, BIN)
        return ledger.rows(
            whole, heads, recent, self._names(until, at),
            at=at, zone=self._zone, policy=self._policy, artefacts=self._cluster.artefacts,
        )  # fmt: skip

    def _whole(self, at: int, until: int, burst: pl.DataFrame) -> Base:
        key = (next_hour(at - DAY), until, ledger.day_of(self._zone, at))
        if self._base is None or self._base[0] != key:
            first = next_hour(at - MONTH)
            if not self._hours_from <= first <= self._hours_until:
                self._hours, self._hours_until = pl.DataFrame(schema=ledger.BINS), first
            if self._hours_until < until:
                fresh = self._paired(self._history.hours(self._hours_until, until), burst, HOUR)
                self._hours = pl.concat([self._hours.filter(pl.col(WINDOW) >= first), fresh.select(*ledger.BINS)])
                self._hours_from, self._hours_until = first, until
            hours = self._hours.filter(pl.col(WINDOW) >= first, pl.col(WINDOW) < until)
            self._base = key, ledger.base(hours, at, self._zone)
        return self._base[1]

    def _paired(self, sums: pl.DataFrame, burst: pl.DataFrame, seconds: int) -> pl.DataFrame:
        """Return sums of conversations as sums of pairs, BINS."""
        pairs = self._history.conversations.select(CODE, PAIR_CODE)
        named = sums.join(pairs, on=CODE).group_by(PAIR_CODE, WINDOW).agg(pl.col(BYTES).sum())
        found = ledger.in_bins(burst.join(pairs, on=CODE), seconds)
        return named.join(found, on=[PAIR_CODE, WINDOW], how="left").with_columns(pl.col(TOLD).fill_null(0))

    def _names(self, until: int, at: int) -> pl.DataFrame:
        """Return the tags of each pair: the destination in the group that it has today, with what is known of it."""
        found = self._history.conversations.select(
            PAIR_CODE, schema.SRC, schema.SRC_GROUP, schema.DST, pl.col(GROUP_TODAY).alias(schema.DST_GROUP)
        )
        named = found.unique(PAIR_CODE).join(self._history.labels(PAIR_CODE, until, at), on=PAIR_CODE)
        # Many destinations in one are nowhere.
        is_one = pl.col(schema.DST) != schema.OTHER
        return named.with_columns(pl.when(is_one).then(pl.col(tag)).otherwise(pl.lit("")).alias(tag) for tag in LABELS)

    # -- bursts ------------------------------------------------------------------------------------

    def _settle(self, until: int) -> None:
        """Know the bursts of the last week in the whole hours before `until`: none of them can grow any more."""
        first = until - WEEK - 2 * HOUR
        start = max(first, self._told_until)
        if start < until:
            hours = self._history.hours(start - HOUR, until)
            after = self._history.bins(until, until + HOUR)
            found = self._bursts(pl.concat([hours, after]), start, until, until + HOUR)
            self._told = pl.concat([self._told.filter(pl.col(WINDOW) >= first), found])
            self._told_until = until

    def _bursts(self, sums: pl.DataFrame, start: int, stop: int, limit: int) -> pl.DataFrame:
        """Return the minutes of [start, stop) that belong to bursts, SUMS.

        Only conversations that sent enough within two neighbouring hours are looked at minute by minute.

        Args:
            sums: of [start - an hour, limit).
            start: epoch seconds.
            stop: epoch seconds.
            limit: nothing from here on counts.
        """
        nothing = pl.DataFrame(schema=SUMS)
        if self._burst < 60:
            return nothing
        talks = self._history.conversations.filter(self._judged)
        hourly = (
            sums.join(talks, on=CODE)
            .group_by(*_TALK, (pl.col(WINDOW) // HOUR * HOUR).alias(WINDOW))
            .agg(pl.col(BYTES).sum())
            .sort(*_TALK, WINDOW)
            .rolling(WINDOW, period=f"{2 * HOUR}i", group_by=list(_TALK))
            .agg(pl.col(BYTES).sum())
            .filter(pl.col(BYTES) > self._volume)
        )
        if hourly.is_empty():
            return nothing
        frames = [nothing]
        for hour in hourly.get_column(WINDOW).unique().sort():
            first, last = max(hour - HOUR, start - HOUR), min(hour + HOUR, limit)
            pairs = hourly.filter(pl.col(WINDOW) == hour).select(schema.SRC, schema.DST).rows()
            minutes = self._history.minutes(first, last, pairs).join(talks, on=CODE)
            found = ledger.told(
                minutes.group_by(*_TALK, WINDOW).agg(pl.col(BYTES).sum()), _TALK, volume=self._volume,
                seconds=self._burst,
            )  # fmt: skip
            frames.append(minutes.join(found.select(*_TALK, WINDOW), on=[*_TALK, WINDOW], how="semi").select(*SUMS))
        # Neighbouring hours find the same minutes.
        return pl.concat(frames).unique([CODE, WINDOW]).filter(pl.col(WINDOW) >= start, pl.col(WINDOW) < stop)
