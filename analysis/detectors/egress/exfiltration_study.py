"""Exfiltration as the analyser runs it: from egress and its history to a row an incident."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.baseline import Flags, Floats
from analysis.bins import KNOWN_HOURS, Bins, Source
from analysis.detectors.egress import exfiltration
from analysis.detectors.egress.exfiltration import MIN_DAYS, MOST_DAYS, TALK, Apart, Grid, Horizon, Incident, State
from analysis.detectors.egress.history import (
    BIN,
    BYTES,
    CODE,
    CONVERSATION,
    DAY,
    GROUP_TODAY,
    HOUR,
    MONTH,
    EgressHistory,
    boundary,
    next_hour,
)
from analysis.detectors.study import Points, Span
from cluster.calendar import SATURDAY, THURSDAY, local_time, off_hours_mask
from cluster.model import EXTERNAL, UNLISTED, Cluster, Group, Job, Role
from store import schema
from store.influx import Store
from store.influxql import Select, everything, highest, is_in
from store.points import WINDOW
from store.schema import Leak
from store.sums import binned

ROLES = (Role.MODEL_STORAGE, Role.STORAGE, Role.TRAINING, Role.INFERENCE, Role.MANAGEMENT, Role.CANARY)
"""Groups that hold weights, or can read them; and the canary's, from which nothing goes outside."""

_PACKET = 1_500
"""Bytes of the largest packets that leave: the fewer were sampled, the wider the error."""
_SURE = 1.645
"""Standard errors below an estimate under which the truth lies once in twenty times."""
_DOUBT = 3.0
"""An estimate of so many times a limit is too much whatever the samples: one device that is told to see 1 packet in two
billion would else silence all sums. No real rate (1 in 16 million) reaches it by day."""

_LEAST_STEP = 10
"""Short sums are judged at every window, but not more often than that, in seconds."""
_REFRESH = 60
"""Long sums that may still change are read again at most so often, in seconds of the cluster's time."""
_SPARE = 2 * BIN
"""Seconds of short bins that are read before the longest short sum: rows come every five minutes."""
_SMALL = 0.02
"""A destination with less than this share of `exfil_24h` in a day is not looked at by itself."""
_COUNTED, _LEARNT = 0, 1
"""What long sums are made of: what counts as it is, and what does beyond the usual."""


def watched(cluster: Cluster) -> tuple[Group, ...]:
    """Return the groups whose bytes count, as far as flows show: those that hold or read weights, sensitive ones."""
    return tuple(
        group
        for group in cluster.inside_groups()
        if (group.role in ROLES or group.sensitive) and cluster.transport_of(group.id, EXTERNAL).is_visible
    )


def summed(cluster: Cluster) -> tuple[Group, ...]:
    """Return the groups whose bytes count, and what stands for sources in none: who forges his address is in it."""
    return (*watched(cluster), Group(UNLISTED, cluster.title(UNLISTED), Role.CUSTOM))


def learnt(cluster: Cluster) -> tuple[Group, ...]:
    """Return the groups that may send outside what they usually do.

    People's machines and the like, role custom; and what is outside itself, as far as its traffic passes here.
    """
    known = {group.id for group in watched(cluster)}
    return tuple(
        group
        for group in (
            *cluster.groups_with(Role.CUSTOM, Role.APPROVED_EXTERNAL),
            Group(EXTERNAL, cluster.title(EXTERNAL), Role.CUSTOM),
        )
        if group.id not in known and cluster.transport_of(group.id, EXTERNAL).is_visible
    )


def drilled(cluster: Cluster) -> tuple[Group, ...]:
    """Return the groups in whose name drills are sent."""
    return cluster.groups_with(Role.DRILL)


class ExfiltrationStudy:
    """Finds incidents.

    Args:
        cluster: thresholds, artefacts.
        store: read from.
        history: shared with other studies of long ranges.
        groups: whose bytes are summed up.
        people: of whose bytes only those count that are beyond the usual of a day.

    Attributes:
        sampling: of how many packets one is seen; None: what exporters said.
    """

    measurements = (schema.EXFILTRATION,)

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        history: EgressHistory,
        groups: Sequence[Group],
        people: Sequence[Group] = (),
    ) -> None:
        self.cluster, self._store, self.history = cluster, store, history
        self._summed = tuple(group.id for group in groups)
        self.people = [group.id for group in people]
        self.groups = (*self._summed, *self.people)
        self.scale = np.array([group.exfil_scale for group in (*groups, *people)])
        self.serving = [group.id for group in groups if group.role is Role.INFERENCE]
        limits = cluster.thresholds
        self._fast, self.slow = exfiltration.fast(limits), exfiltration.slow(limits)
        window = cluster.bridge.window
        self._step = window * -(-_LEAST_STEP // window)
        self._is_window = self._step == window
        self._bins = pl.DataFrame()
        self._bins_from = self._settled = 0
        self._judged: tuple[tuple[int, int], int, _Slow] | None = None
        self._known: tuple[int, State] | None = None
        self._told: dict[str, dict[str, str]] = {}
        self._made: tuple[tuple[int, ...], int, pl.DataFrame] | None = None
        self.usual: dict[tuple[object, ...], exfiltration.Usual] = {}
        status = Source(schema.EXPORTER_STATUS, schema.HOUR)
        self._heard = Bins(store, status, (schema.EXPORTER_RECORDS,), HOUR)
        self.sampling: int | None = None
        self._rates: dict[int, int] = {}

    def surely(self, sent: float, at: int) -> float:
        """Return `at_least` by the largest rate of all exporters in the 24 hours before the whole hour that has closed.

        Which of them saw the bytes is not asked.
        """
        until = boundary(at)
        if until not in self._rates:
            self._rates = {until: self.sampling or sampling_before(self._store, until)}
        return at_least(sent, self._rates[until])

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of all moments from `span.start` on that have closed."""
        del jobs
        if not self.groups:
            return []
        key = (span.closed // self._step, -(-span.final // self._step))
        # Nothing new has closed that is judged.
        if self._made is None or self._made[0] != key or span.start < self._made[1]:
            self._made = key, span.start, self._pass(span)
        return [(schema.EXFILTRATION, self._made[2].filter(pl.col(WINDOW) >= span.start))]

    # -- a pass ------------------------------------------------------------------------------------

    def _pass(self, span: Span) -> pl.DataFrame:
        step = self._step
        first, mark = (-(-moment // step) * step for moment in (span.start, span.final))
        look_back = max(horizon.seconds for horizon in self._fast) + _SPARE
        bins_from = (first - look_back) // step * step
        bins = self._load_bins(bins_from, span)
        grid = self.grid(bins, bins_from, span.closed, step)
        windows = bins.get_column(WINDOW).to_numpy()
        is_dark = off_hours_mask(self.cluster.site, windows)
        for name in self.cluster.own_hours():
            own = (bins.get_column(schema.SRC_GROUP) == name).to_numpy()
            is_dark[own] = off_hours_mask(self.cluster.site_of(name), windows[own])
        dark = bins.filter(pl.Series(is_dark))
        night = self.grid(dark, bins_from, span.closed, step)
        judged = self._long_sums(span)
        state = self._state_at(first, grid, is_live=span.final < span.closed)
        final = state.copy()
        found: list[tuple[int, Incident]] = []
        for at in range(first, span.closed, step):
            if at == mark:
                final = state.copy()
            self._grow(state, grid, at)
            changed = self._judge_fast(state, at, (grid, night), (bins, dark))
            if at % BIN == 0:
                judged.judge(state, at)
                changed = [*state.open.values()]
            found += [(at, one) for one in changed]
        # A pass over the past ends where its final windows do.
        self._known = mark, state.copy() if mark >= span.closed else final
        kept = {group: one.tags for group, one in self._known[1].open.items()}
        self._told = {group: one.tags for group, one in state.open.items() if one.tags != kept.get(group)}
        return exfiltration.rows(found, self.cluster.artefacts)

    def _long_sums(self, span: Span) -> "_Slow":
        key = (span.closed // _REFRESH, -(-span.final // _REFRESH))
        if self._judged is None or self._judged[0] != key or span.start < self._judged[1]:
            self.history.load(span)
            self._judged = key, span.start, _Slow(self, span)
        return self._judged[2]

    def _state_at(self, first: int, grid: Grid, *, is_live: bool) -> State:
        """Return the state before a moment: of the last pass, else from the rows that an earlier process wrote."""
        if self._known is not None and self._known[0] == first:
            return replace(self._known[1].copy(), told=self._told)
        asked = Select(schema.EXFILTRATION, schema.EXFILTRATION.kept).take(everything())
        # Of the windows that are judged again, only names matter; a run over the past finds its own.
        stored = self._store.frame(asked.between(first - MONTH - DAY, None if is_live else first).text())
        if stored.is_empty():
            return State()
        missing = [tag for tag in schema.EXFILTRATION.tags if tag not in stored.columns]
        named = stored.with_columns((pl.col("time") // 1000).alias(WINDOW), *(pl.lit("").alias(tag) for tag in missing))
        # Of a group that cluster.yaml no longer has, what it reported stays reported.
        every = (*summed(self.cluster), *learnt(self.cluster), *drilled(self.cluster))
        others = {group.id for group in every}.difference(self.groups)
        state, seen = exfiltration.state_of(named.filter(~pl.col(schema.SRC_GROUP).is_in(list(others))), first)
        for group in set(state.open).intersection(self.groups):
            for moment in range(seen[group] + self._step, first, self._step):
                state.open[group] = self._grown(state.open[group], grid, moment)
        return state

    def _grow(self, state: State, grid: Grid, at: int) -> None:
        """Add the last bytes to the incidents that are open, and close those that are over."""
        state.close(at)
        for group, one in state.open.items():
            if group in self.groups:
                state.open[group] = self._grown(one, grid, at)

    def _grown(self, one: Incident, grid: Grid, at: int) -> Incident:
        return one.grown(at, float(grid.between(at - self._step, at)[self.groups.index(one.group)]))

    def _judge_fast(
        self, state: State, at: int, grids: tuple[Grid, Grid], sums: tuple[pl.DataFrame, pl.DataFrame]
    ) -> list[Incident]:
        """Return the incidents that change at a moment, as a short sum is too large."""
        is_told = False
        for horizon, grid, talks in zip(self._fast, grids, sums, strict=True):
            is_told = is_told or self._judge_together(state, at, horizon, grid, talks)
            apart = Apart(self.groups, grid, talks, partial(self._is_beyond, horizon, at))
            is_told |= exfiltration.judge_apart(state, at, horizon, at - horizon.seconds, apart)
        return [*state.open.values()] if is_told else []

    def _judge_together(self, state: State, at: int, horizon: Horizon, grid: Grid, talks: pl.DataFrame) -> bool:
        begin = max(at - horizon.seconds, state.reported)
        sent = grid.between(begin, at)
        if self.surely((sent / self.scale).sum(), at) <= horizon.limit:
            return False
        of_sum = talks.filter(pl.col(WINDOW) >= begin, pl.col(WINDOW) < at)
        group = self.groups[exfiltration.leader(sent, grid.between(max(begin, at - HOUR), at))]
        untold = exfiltration.untold(state, self.groups, sent)
        exfiltration.report(state, at, horizon, talks=of_sum, sent=float(sent.sum()), untold=untold, group=group)
        return True

    def _is_beyond(self, horizon: Horizon, at: int, place: int, sent: float) -> bool:
        return self.surely(float(sent / self.scale[place]), at) > horizon.limit

    # -- reading -----------------------------------------------------------------------------------

    def _load_bins(self, start: int, span: Span) -> pl.DataFrame:
        """Return TALK, WINDOW, BYTES: short bins of what counts, from a moment on; what is final is read once."""
        if self._bins.is_empty() or not self._bins_from <= start <= self._settled:
            self._bins, self._settled = self._read(start, start), start
        settled = max(min(span.final, span.closed) // self._step * self._step, self._settled)
        kept = self._bins.filter(pl.col(WINDOW) >= start)
        self._bins = pl.concat([kept, self._read(self._settled, settled)])
        self._bins_from, self._settled = start, settled
        return pl.concat([self._bins, self._read(settled, span.closed // self._step * self._step)])

    def _read(self, start: int, stop: int) -> pl.DataFrame:
        where = [is_in(schema.SRC_GROUP, self._summed), is_in(schema.DST_GROUP, [EXTERNAL])]
        found = binned(
            self._store, schema.EGRESS, schema.RAW, (schema.BYTES,), (*TALK, schema.INITIATOR),
            start=start, stop=stop, seconds=self._step, where=where, as_stored=self._is_window,
        )  # fmt: skip
        is_answer = pl.col(schema.SRC_GROUP).is_in(self.serving) & (pl.col(schema.INITIATOR) != schema.BY_SOURCE)
        return found.filter(~is_answer, pl.col(BYTES) > 0).select(*TALK, WINDOW, BYTES)

    def grid(self, frame: pl.DataFrame, start: int, stop: int, step: int) -> Grid:
        """Return the bytes of the watched groups (WINDOW, SRC_GROUP, BYTES) in bins of `step` seconds."""
        return Grid(frame, self.groups, start=start, stop=stop, step=step)

    # -- what is usual -----------------------------------------------------------------------------

    def dark_days(self, until: int, days: int) -> Flags:
        """Return [day], from the newest on, of which days before the last 24 hours too little was heard.

        A day without a collector is no day on which nothing was sent: it would lower the mean, and widen the limit.
        """
        start = until - (days + 1) * DAY
        heard = self._heard.between(start, until - DAY).sum(axis=(1, 2)) > 0
        self._heard.forget(start)
        is_dark = heard.reshape(days, 24).sum(axis=1)[::-1] < KNOWN_HOURS
        return np.asarray(is_dark & heard.any(), np.bool_)

    def usual_of(
        self,
        hours: pl.DataFrame,
        scopes: pl.DataFrame,
        keys: tuple[str, ...],
        *,
        until: int,
        first: int,
        reports: Iterable[tuple[str, int]],
        dark: Flags,
    ) -> exfiltration.Usual:
        """Return what is usual for some scopes, in their order.

        Args:
            hours: keys, WINDOW, BYTES: whole hours.
            scopes: the keys of each.
            keys: what tells scopes apart, the group of the source among it.
            until: where the whole hours end.
            first: where what the store holds begins.
            reports: groups, and the hours in which a sum of theirs was too large: the days around teach nothing.
            dark: `dark_days`, which teach nothing either.
        """
        days = days_of_past(until, first)
        length = 24 * (days + 2)
        start = until - length * HOUR
        sums = np.zeros((scopes.height, length))
        placed = hours.filter(pl.col(WINDOW) >= start).join(scopes.with_row_index("_place"), on=list(keys))
        bins = (placed.get_column(WINDOW).to_numpy() - start) // HOUR
        np.add.at(sums, (placed.get_column("_place").to_numpy(), bins), placed.get_column(BYTES).to_numpy())
        ends = until - np.arange(1, days + 1, dtype=np.int64) * DAY
        skipped = _skipped(ends, reports, scopes.get_column(schema.SRC_GROUP).to_list()) | dark
        zone = self.cluster.site.time_zone
        weekends = (local_time(zone, np.append(ends, until) - DAY // 2) // DAY + THURSDAY) % 7 >= SATURDAY
        return exfiltration.usual(
            sums, days=days, is_weekend=weekends[:-1], skipped=skipped, now=bool(weekends[-1]),
            spreads=self.cluster.thresholds.exfil_spreads,
        )  # fmt: skip


def at_least(sent: float, rate: int) -> float:
    """Return how many bytes left at least (19 times in 20), of so many as samples of 1 packet in `rate` say.

    Of a sum S of samples, 1 packet in N, the variance is (N - 1) * (size of a packet) * S.
    """
    return max(sent - _SURE * math.sqrt((rate - 1) * _PACKET * sent), sent / _DOUBT)


def days_of_past(until: int, first: int) -> int:
    """Return how many whole days before the last 24 hours are looked at, where the store's past begins at `first`."""
    return max(min((until - first) // DAY - 2, MOST_DAYS), 0)


def _skipped(ends: npt.NDArray[np.int64], reports: Iterable[tuple[str, int]], groups: Sequence[str]) -> Flags:
    """Return [group, day] which days that end at some moments teach nothing.

    A report has the name of one group, and others may have had a part in it: no group learns from the days around it.
    Where that leaves too few days, a group leaves out the days of its own reports only: others must not blind it.
    """
    near: dict[str, Flags] = {}
    for group, at in reports:
        near[group] = near.get(group, False) | ((ends > at - DAY) & (ends - 2 * DAY <= at))
    none = np.zeros(len(ends), np.bool_)
    every = np.logical_or.reduce([none, *near.values()])
    is_enough = (~every).sum() >= MIN_DAYS
    skipped = np.zeros((len(groups), len(ends)), np.bool_)
    for place, group in enumerate(groups):
        skipped[place] = every if is_enough else near.get(group, none)
    return skipped


def sampling_before(store: Store, until: int) -> int:
    """Return of how many packets the exporter that samples most saw one, in the day before a moment; 1 if all."""
    asked = Select(schema.EXPORTER_STATUS, schema.MINUTE).take(highest(schema.SAMPLING)).between(until - DAY, until)
    return max((int(rate or 1) for _, rate in store.rows(asked)), default=1)


class _Slow:
    """The long sums of one pass."""

    def __init__(self, study: ExfiltrationStudy, span: Span) -> None:
        self._study, self._span, self._history = study, span, study.history
        names = self._history.conversations
        is_ours = pl.col(schema.SRC_GROUP).is_in(study.groups)
        answers = pl.col(schema.SRC_GROUP).is_in(study.serving) & (pl.col(schema.INITIATOR) != schema.BY_SOURCE)
        is_open = (pl.col(GROUP_TODAY) == EXTERNAL) & ~answers & ~pl.col(schema.SRC_GROUP).is_in(study.people)
        ours = names.filter(is_ours).select(CODE, *CONVERSATION, GROUP_TODAY)
        # What was approved when it was sent is none: a partner that moves to other addresses would be a theft.
        self._counted = ours.filter(is_open, pl.col(schema.DST_GROUP) == EXTERNAL)
        # Answers to whoever asks are one destination; an approved group is another; so is all that people talk to.
        self._learnt = ours.filter(~is_open)
        until, stop = boundary(span.final), span.closed // BIN * BIN
        first = boundary(span.start) - MONTH
        hours = self._history.hours(first, until)
        self._first = int(hours.get_column(WINDOW).min() or until)  # type: ignore[arg-type]
        self._hours = hours
        # Of a later run over the past, moments lie before the newest whole hour.
        self._bins_from = boundary(span.start)
        bins = self._history.bins(self._bins_from, stop)
        # Sums by group of either kind: most questions are answered by these alone. What is learnt is asked for a day
        # only, which begins within the last two.
        self._groups = [names.select(CODE, schema.SRC_GROUP) for names in (self._counted, self._learnt)]
        self._cuts: dict[tuple[int, int], Floats] = {}
        begins = first // HOUR * HOUR, self._bins_from // HOUR * HOUR - 2 * DAY
        self._grids = [
            (
                study.grid(hours.filter(pl.col(WINDOW) >= begin).join(groups, on=CODE), begin, until, HOUR),
                study.grid(bins.join(groups, on=CODE), self._bins_from, stop, BIN),
            )
            for groups, begin in zip(self._groups, begins, strict=True)
        ]

    def judge(self, state: State, at: int) -> None:
        """Open or prolong an incident where a long sum is too large at a moment.

        All groups are judged together here: who drips beside an open incident is in that.
        """
        until = boundary(min(at, self._span.final))
        for horizon in self._study.slow:
            begin = (at - horizon.seconds) // HOUR * HOUR
            if self._judge_together(state, at, horizon, begin, until):
                return

    def _judge_together(self, state: State, at: int, horizon: Horizon, begin: int, until: int) -> bool:
        study = self._study
        sent = self._unreported(state, (begin, at), until, at)
        lately = self._unreported(state, (at - HOUR, at), until, at)
        beyond, learnt = np.zeros(len(sent)), None
        if horizon.kind is Leak.DAY:
            beyond, learnt = self._beyond(state, begin, until, at, sent)
        if study.surely(((sent + beyond) / study.scale).sum(), at) <= horizon.limit:
            return False
        # What is beyond the usual is by the day: that it goes on is not asked.
        group = study.groups[exfiltration.leader(sent + beyond, lately + beyond)]
        talks, since = self._talks(state, begin, until, at)
        if learnt is not None and learnt.height:
            since = exfiltration.first_of(since, learnt)
            talks = learnt if beyond.sum() > sent.sum() else pl.concat([learnt, talks])
        kind = Leak.LEARNT if beyond.sum() > sent.sum() else horizon.kind
        named = Horizon(kind, horizon.seconds, horizon.limit)
        # What is beyond the usual is in no incident: these go on with what unapproved addresses get.
        untold = exfiltration.untold(state, study.groups, sent) + float(beyond.sum())
        for name in set(state.open).intersection(study.groups):
            before = self._unreported(state, (begin, state.open[name].since), until, at)
            untold += float(before[study.groups.index(name)])
        exfiltration.report(
            state, at, named, talks=talks, sent=float((sent + beyond).sum()), untold=untold, group=group,
            since=since,
        )  # fmt: skip
        return True

    def _unreported(self, state: State, span: tuple[int, int], until: int, at: int) -> Floats:
        """Return [group] bytes of what counts that left in a span and that no incident has told of."""
        sent = np.zeros(len(self._study.groups))
        for moments in state.unreported(*span):
            first, last = (self._sent(_COUNTED, moment, until, at) for moment in moments)
            sent += first - last
        return sent

    def _sent(self, kind: int, begin: int, until: int, at: int) -> Floats:
        """Return [group] bytes of what counts, or of what is learnt."""
        hours, bins = self._grids[kind]
        whole = hours.between(begin, until) + bins.between(max(begin, until), at)
        return whole + self._cut(kind, begin) if self._is_cut(begin, until) else whole

    def _cut(self, kind: int, begin: int) -> Floats:
        """Return [group] bytes of the hour in which a sum begins, where that is no whole one."""
        if (kind, begin) not in self._cuts:
            hour = begin // HOUR * HOUR
            head = self._history.head(begin).join(self._groups[kind], on=CODE)
            self._cuts[kind, begin] = self._study.grid(head, hour, hour + HOUR, BIN).between(hour, hour + HOUR)
        return self._cuts[kind, begin]

    @staticmethod
    def _is_cut(begin: int, until: int) -> bool:
        """Whether a sum begins within an hour of which bins are no longer here."""
        return begin % HOUR != 0 and begin < until

    def _sums(self, begin: int, until: int, at: int) -> pl.DataFrame:
        hours = self._hours.filter(pl.col(WINDOW) >= begin, pl.col(WINDOW) < until)
        head = [self._history.head(begin)] if self._is_cut(begin, until) else []
        return pl.concat([*head, hours, self._history.bins(max(begin, until), at)])

    def _talks(self, state: State, begin: int, until: int, at: int) -> tuple[pl.DataFrame, int]:
        """Return who talked, without hours that are reported in part; and when the first unreported bytes left."""
        begin = state.unreported(begin, at)[0][0]
        found = self._sums(begin, until, at).join(self._counted, on=CODE).select(*TALK, WINDOW, BYTES)
        start, end = pl.col(WINDOW), pl.col(WINDOW) + pl.when(pl.col(WINDOW) < until).then(HOUR).otherwise(BIN)
        is_told = pl.any_horizontal(False, *((start >= first) & (end <= last) for first, last in state.spans))
        in_part = pl.any_horizontal(False, *((end > first) & (start < last) for first, last in state.spans))
        return found.filter(~in_part), exfiltration.first_of(at, found.filter(~is_told))

    def _beyond(
        self, state: State, begin: int, until: int, at: int, sent: Floats
    ) -> tuple[Floats, pl.DataFrame | None]:
        """Return [group] bytes beyond what is usual for approved destinations, answers, people; and who talked.

        They come on top of `sent`, [group] bytes that count anyway.
        """
        study = self._study
        nothing = np.zeros(len(study.groups))
        limits = study.cluster.thresholds
        # What comes once a day comes a little earlier than the day before, or by an hour where the clock is put
        # forward: two of them in one sum would be a theft.
        begin = max(begin, next_hour(at - DAY) + HOUR, -(-state.reported // BIN) * BIN)
        # Less than may leave at all is not looked at closer: it is too little even if nothing of it is usual.
        most = sent + self._sent(_LEARNT, begin, until, at)
        if (most / study.scale).sum() <= limits.exfil_24h:
            return nothing, None
        named = self._sums(begin, until, at).join(self._learnt, on=CODE)
        keys = (schema.SRC_GROUP, GROUP_TODAY)
        wide = named.group_by(keys).agg(pl.col(BYTES).sum()).sort(keys)
        wide = self._judged(wide, keys, state, until)
        single = (*keys, schema.DST)
        is_answer = pl.col(GROUP_TODAY) == EXTERNAL
        least = pl.when(is_answer).then(limits.exfil_answers).otherwise(limits.exfil_24h * _SMALL)
        # People find new addresses every day: what is unusual of them is how much.
        are_people = pl.col(schema.SRC_GROUP).is_in(study.people)
        each = (
            named.filter(~are_people)
            .group_by(single)
            .agg(pl.col(BYTES).sum())
            .filter(pl.col(BYTES) > least)
            .sort(single)
        )
        each = self._judged(each, single, state, until)
        if not any(frame.get_column("beyond").sum() for frame in (wide, each)):
            return nothing, None
        joined = wide.join(
            each.group_by(keys).agg(pl.col("beyond").sum().alias("each")), on=keys, how="left"
        ).with_columns(pl.col("each").fill_null(0.0))
        # Addresses of one approved group take turns: their group as a whole must have got more than usual.
        room = pl.when(is_answer).then(pl.col("each")).otherwise(pl.min_horizontal("each", "room"))
        beyond = joined.with_columns(pl.max_horizontal("beyond", room).alias("beyond"))
        result = nothing.copy()
        for group, volume in beyond.group_by(schema.SRC_GROUP).agg(pl.col("beyond").sum()).iter_rows():
            result[study.groups.index(group)] = volume
        suspects, by = beyond.filter(pl.col("beyond") > 0).select(keys), list(keys)
        alone = each.filter(pl.col("beyond") > 0).join(suspects, on=keys, how="semi")
        if 2 * alone.get_column("beyond").sum() > result.sum():
            # A few addresses explain it: the others got what they always get.
            suspects, by = alone.select(single), list(single)
        return result, named.join(suspects, on=by, how="semi").select(*TALK, WINDOW, BYTES)

    def _judged(self, sums: pl.DataFrame, keys: tuple[str, ...], state: State, until: int) -> pl.DataFrame:
        """Return sums of 24 hours with `room`, the bytes above the mean, and `beyond`: these where past the limit."""
        scopes = sums.select(keys)
        key = (keys, until, state.reports, *scopes.rows())
        usual = self._study.usual.get(key)
        if usual is None:
            names = self._learnt.join(scopes, on=list(keys), how="semi").select(CODE, *keys)
            hours = self._hours.filter(pl.col(WINDOW) < until).join(names, on=CODE)
            dark = self._study.dark_days(until, days_of_past(until, self._first))
            usual = self._study.usual_of(
                hours, scopes, keys, until=until, first=self._first, reports=state.reports, dark=dark
            )
            if len(self._study.usual) > 2 * HOUR // BIN:
                self._study.usual.clear()
            self._study.usual[key] = usual
        volume = sums.get_column(BYTES).to_numpy().astype(np.float64)
        above = np.maximum(volume - usual.mean, 0.0)
        # Where nothing is usual yet only one client that gets too much in answers is reported.
        is_client = (sums.get_column(GROUP_TODAY) == EXTERNAL).to_numpy() & (schema.DST in keys)
        beyond = np.where(usual.is_known, np.where(volume > usual.limit, above, 0.0), np.where(is_client, volume, 0.0))
        return sums.with_columns(pl.Series("beyond", beyond, pl.Float64), pl.Series("room", above, pl.Float64))
