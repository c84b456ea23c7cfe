"""Exfiltration: sums over all that leaves the cluster, so that no split over addresses, machines or hours stays below.

A sum over more is never less: what one conversation, one source, one destination, one group or one network abroad sends
is in the sum of all watched groups to all unapproved addresses. So that sum alone is judged, over
`exfil_window`, 24 hours, 7 days and 30 days; a group that may send more counts less (`exfil_scale`). Who sent it, and
how it was split, is the evidence of the incident, and not another judgement.

What an approved destination usually gets, and what inference usually answers, is learnt: a day may reach

    mean + k * sd * sqrt(1 + 1/n)      the limit of one more value of a normal, from n days [1]; k is `exfil_spreads`

The past is the 24 hours that ended at this hour of earlier days, or the hour before or after if that is more; working
days and weekends apart where there are enough of both. The days around every report are left out: one theft among 28
days would lift the limit above itself, and the same again would be usual. If a sum is beyond its limit, what is above
the mean counts as sent to unapproved addresses.

The same is learnt of all that a group of role custom sends outside: people's machines are in no sum. A day of theirs
beyond its limit counts.

Bytes are reported once: what was in a sum that was too large is in no later one. What left before that sum began stays
in the longer ones: a burst that everybody knows must not wipe out what dripped for weeks. Until its hold is over, the
group's next one prolongs the incident and is no second alert.

Who takes part is in the incident of the group that sent most. A group that sends beyond a short limit all by itself
while another's incident is open has an incident of its own: what was counted there of its bytes moves over.

[1] Hahn, Meeker, Escobar: Statistical Intervals, 2nd ed. 2017, section 4.8 (prediction interval).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from analysis.baseline import Flags, Floats
from analysis.detectors.egress.history import BIN, BYTES, DAY, HOUR, MONTH, WEEK
from analysis.detectors.egress.ledger import borders
from app.words import amount
from cluster.model import Artefact, Thresholds
from store import schema
from store.points import WINDOW, columns
from store.schema import Leak, Shape

FAST_HOLD, SLOW_HOLD = HOUR, DAY + HOUR
"""Seconds for which an incident stays open after a sum was too large: a steady drip fills the next sum within a day."""

_SLOW = (Leak.DAY, Leak.WEEK, Leak.MONTH, Leak.LEARNT, Shape.STEADY)

_MOST = 0.8
"""Share of the bytes from which on one source, destination or service gives the incident its name."""
_ACTIVE = 0.01
"""Share of a sum that a group must have sent within the last hour to give the incident its name."""
_NAMED = 3
_EXACT = 16
"""Spans of reported bytes, the newest, that are kept out of long sums to the bin: each asks for an hour's bins."""
_LONGEST = 240

MIN_DAYS = 7
"""Days of the past that it takes to know what is usual."""
MOST_DAYS = 28

TALK = (
    schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE, schema.COUNTRY,
    schema.NETWORK,
)  # fmt: skip
"""What an incident says of its conversations."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """One of the sums: `limit` bytes within `seconds`."""

    kind: Leak | Shape
    seconds: int
    limit: int

    @property
    def hold(self) -> int:
        """Seconds for which an incident stays open after this sum was too large."""
        return SLOW_HOLD if self.kind in _SLOW else FAST_HOLD


def fast(limits: Thresholds) -> tuple[Horizon, Horizon]:
    """Return the sums that are judged every minute: at any time, and in off-hours."""
    return (
        Horizon(Leak.BULK, limits.exfil_window, limits.exfil_volume),
        Horizon(Leak.OFF_HOURS, limits.exfil_window, limits.exfil_off_hours),
    )


def slow(limits: Thresholds) -> tuple[Horizon, ...]:
    """Return the sums that are judged every five minutes, the shortest first."""
    return (
        Horizon(Leak.DAY, DAY, limits.exfil_24h),
        Horizon(Leak.WEEK, WEEK, limits.exfil_7d),
        Horizon(Leak.MONTH, MONTH, limits.exfil_30d),
    )


class Grid:
    """Bytes of each group in bins of equal length, ready to be summed up.

    Args:
        frame: WINDOW, SRC_GROUP, BYTES.
        groups: rows of the sums, in this order.
        start, stop: epoch seconds, multiples of `step`.
        step: seconds of a bin.
    """

    def __init__(self, frame: pl.DataFrame, groups: Sequence[str], *, start: int, stop: int, step: int) -> None:
        self._start, self._step = start, step
        length = max((stop - start) // step, 0)
        sums = np.zeros((len(groups), length + 1))
        inside = frame.filter(pl.col(WINDOW) >= start, pl.col(WINDOW) < start + length * step)
        places = {group: place for place, group in enumerate(groups)}
        rows = np.array([places[group] for group in inside.get_column(schema.SRC_GROUP)], np.int64)
        bins = (inside.get_column(WINDOW).to_numpy() - start) // step + 1
        np.add.at(sums, (rows, bins), inside.get_column(BYTES).to_numpy())
        self._sums = np.cumsum(sums, axis=1)

    def between(self, start: int, stop: int) -> Floats:
        """Return [group] the bytes of the bins that begin in [start, stop)."""
        last = self._sums.shape[1] - 1
        a, b = (min(max(-(-(at - self._start) // self._step), 0), last) for at in (start, stop))
        return np.asarray(self._sums[:, max(a, b)] - self._sums[:, a], np.float64)


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident, as it is at a moment. Times are epoch seconds.

    Attributes:
        tags: of its rows, KIND and TALK and LARGEST.
        sent: bytes.
        sources, destinations, others: that took part when it opened; `others` are pairs beside the largest.
        since, last: when the first, and the last, of these bytes left.
        reported: when a sum was last too large.
        until: when it ends unless another is.
    """

    tags: dict[str, str]
    sent: float
    sources: int
    destinations: int
    others: int
    since: int
    last: int
    reported: int
    until: int

    @property
    def group(self) -> str:
        """The group that sent most."""
        return self.tags[schema.SRC_GROUP]

    def again(self, at: int, hold: int, untold: float, since: int) -> "Incident":
        """Return it after another sum was too large, with what that sum has and no incident had yet."""
        since = min(self.since, since)
        return replace(self.grown(at, untold), since=since, reported=at, until=max(self.until, at + hold))

    def grown(self, at: int, sent: float) -> "Incident":
        """Return it with the bytes that left until a moment."""
        return replace(self, sent=self.sent + sent, last=at) if sent else self


@dataclass(slots=True)
class State:
    """What is carried from moment to moment.

    Attributes:
        reported: when a sum was last too large: the sums of minutes begin there.
        spans: from when until when all bytes are reported, the earliest first; no two touch.
        ended: by group, the end of its last incident: until then all that it sent is in that.
        open: incidents by the group that sent most.
        reports: group and whole hour of every report that what is usual may still reach.
        told: tags of incidents, by group, that were opened when the same windows were last judged.
    """

    reported: int = 0
    open: dict[str, Incident] = field(default_factory=dict)
    reports: frozenset[tuple[str, int]] = frozenset()
    told: Mapping[str, dict[str, str]] = field(default_factory=dict)
    spans: tuple[tuple[int, int], ...] = ()
    ended: dict[str, int] = field(default_factory=dict)

    def copy(self) -> "State":
        """Return one that changes by itself."""
        return State(self.reported, dict(self.open), self.reports, spans=self.spans, ended=dict(self.ended))

    def cover(self, *spans: tuple[int, int]) -> None:
        """Note from when until when all bytes are reported."""
        merged: list[tuple[int, int]] = []
        for begin, end in sorted((*self.spans, *spans)):
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        self.spans = tuple(span for span in merged if span[1] >= merged[-1][1] - MONTH - DAY)

    def unreported(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the stretches of [begin, end) of which nothing is reported, in bins; long ago, in hours."""
        found = []
        for number, (first, last) in enumerate(self.spans, start=_EXACT - len(self.spans)):
            step = BIN if number >= 0 else HOUR
            until = min(first // step * step, end)
            if begin < until:
                found.append((begin, until))
            begin = max(begin, -(-last // step) * step)
        return [*found, (begin, max(begin, end))]

    def note(self, *reports: tuple[str, int]) -> None:
        """Note when a sum of a group was too large, and forget what no look at the past reaches any more."""
        hours = {(group, at // HOUR * HOUR) for group, at in reports}
        newest = max(hour for _, hour in hours)
        kept = self.reports | hours
        self.reports = frozenset((group, hour) for group, hour in kept if hour >= newest - MONTH - DAY)

    def close(self, at: int) -> None:
        """Forget the incidents that are over."""
        self.ended |= {group: one.until for group, one in self.open.items() if at >= one.until}
        self.open = {group: one for group, one in self.open.items() if at < one.until}


def leader(sent: Floats, lately: Floats) -> int:
    """Return which group sent most of a sum, of those that still send: what was sent long ago may be another matter.

    Args:
        sent: [group] bytes of the sum.
        lately: [group] bytes of its last hour.
    """
    is_active = lately >= _ACTIVE * sent.sum()
    return int(np.argmax(np.where(is_active, sent, 0.0) if is_active.any() else sent))


def untold(state: State, groups: Sequence[str], sent: Floats) -> float:
    """Return the bytes of groups ([group]) without an open incident: those of the others are in theirs already."""
    return float(sum(volume for group, volume in zip(groups, sent, strict=True) if group not in state.open))


def report(
    state: State,
    at: int,
    horizon: Horizon,
    *,
    talks: pl.DataFrame,
    sent: float,
    untold: float,
    group: str,
    since: int | None = None,
) -> Incident:
    """Open an incident of a group, or prolong the one that it has; from its begin to `at` all is reported.

    Args:
        state: changed.
        at: epoch seconds.
        horizon: whose sum is too large.
        talks: TALK, WINDOW, BYTES: what was sent, as far as it is not reported yet.
        sent: bytes of the sum.
        untold: those of them that no open incident has.
        group: the one that gives it its name.
        since: when the first bytes of the sum left; None: the first of `talks`.
    """
    before = state.open.get(group)
    since = first_of(at, talks) if since is None else since
    if before:
        incident = before.again(at, horizon.hold, untold, since)
    else:
        if state.open:
            # What groups with an incident send is in theirs: neither their names nor their bytes are this one's.
            talks, sent = talks.filter(~pl.col(schema.SRC_GROUP).is_in(list(state.open))), untold
        incident = _opened(at, horizon, talks, sent, group=group, since=since)
        # Late bytes make it begin earlier, with other names: as another alert it would be told twice.
        incident = replace(incident, tags=state.told.get(group, incident.tags))
    state.open[group] = incident
    state.reported = at
    state.cover((incident.since, at))
    state.note((group, at))
    return incident


@dataclass(frozen=True, slots=True)
class Apart:
    """What sums of single groups are made of.

    Attributes:
        groups: all.
        grid: what they sent.
        talks: who talked: TALK, WINDOW, BYTES.
        is_beyond: whether a group, by its place, may not send so many bytes.
    """

    groups: Sequence[str]
    grid: Grid
    talks: pl.DataFrame
    is_beyond: Callable[[int, float], bool]


def judge_apart(state: State, at: int, horizon: Horizon, begin: int, sums: Apart) -> bool:
    """Open, or prolong, incidents of groups that send too much by themselves beside another's; return whether any does.

    Args:
        state: changed.
        at: epoch seconds.
        horizon: whose limit is meant.
        begin: of its sum, epoch seconds.
        sums: of the groups.
    """
    is_too_much = False
    for place, group in enumerate(sums.groups):
        own = state.open.get(group)
        others = [one for name, one in state.open.items() if name != group]
        if not others:
            continue
        # What a group sent before its own last incident was over is in that.
        first = own.reported if own else max(state.ended.get(group, 0), min(one.since for one in others))
        first = max(begin, first)
        sent = float(sums.grid.between(first, at)[place])
        if not sums.is_beyond(place, sent):
            continue
        fresh = sums.grid.between(max(first, state.reported), at)
        is_its = (pl.col(WINDOW) >= first) & (pl.col(WINDOW) < at) & (pl.col(schema.SRC_GROUP) == group)
        # All is reported now: what other groups sent is the largest incident's, which had what this one sent so far.
        host = max(state.open.values(), key=lambda one: one.sent)
        mine, counted = (0.0, 0.0) if own else (sent, sent - float(fresh[place]))
        fresh[place] = 0.0
        joined = max(host.sent - counted, 0.0) + untold(state, sums.groups, fresh)
        state.open[host.group] = replace(host, sent=joined)
        report(state, at, horizon, talks=sums.talks.filter(is_its), sent=mine, untold=mine, group=group)
        is_too_much = True
    return is_too_much


def first_of(at: int, *talks: pl.DataFrame) -> int:
    """Return when the first bytes of conversations left; `at` where there are none."""
    begins = [frame.get_column(WINDOW).min() for frame in talks]
    return min((int(begin) for begin in begins if begin is not None), default=at)  # type: ignore[arg-type]


def _opened(at: int, horizon: Horizon, talks: pl.DataFrame, sent: float, *, group: str, since: int) -> Incident:
    pairs = (
        talks.group_by(schema.SRC, schema.DST)
        .agg(pl.col(BYTES).sum())
        .sort(BYTES, schema.SRC, schema.DST, descending=[True, False, False])
    )
    largest = "; ".join(f"{src} -> {dst} {amount(volume)}" for src, dst, volume in pairs.head(_NAMED).iter_rows())
    tags = {tag: _main(talks, tag) for tag in TALK}
    # What has no name is empty; of ends and protocols, many are `other`.
    for tag in (schema.SRC, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE):
        tags[tag] = tags[tag] or schema.OTHER
    if talks.filter(pl.col(schema.SRC) == tags[schema.SRC], pl.col(schema.SRC_GROUP) == group).is_empty():
        # Of another group, which ceased to send before this one began: it is among the largest.
        tags[schema.SRC] = schema.OTHER
    largest = largest[:_LONGEST] or schema.OTHER
    tags |= {schema.KIND: horizon.kind.value, schema.SRC_GROUP: group, schema.LARGEST: largest}
    return Incident(
        tags,
        sent,
        talks.get_column(schema.SRC).n_unique(),
        talks.get_column(schema.DST).n_unique(),
        max(pairs.height - _NAMED, 0),
        since,
        at,
        at,
        at + horizon.hold,
    )


def _main(talks: pl.DataFrame, tag: str) -> str:
    """Return the value that most of the bytes have; empty where none has."""
    by_value = talks.group_by(tag).agg(pl.col(BYTES).sum()).sort(BYTES, descending=True)
    if by_value.is_empty() or by_value[0, BYTES] < _MOST * float(by_value.get_column(BYTES).sum()):
        return ""
    return str(by_value[0, tag])


def rows(moments: Sequence[tuple[int, Incident]], artefacts: Sequence[Artefact]) -> pl.DataFrame:
    """Return incidents at moments as a frame for ``encode(schema.EXFILTRATION, ...)``."""
    limits = borders(artefacts)
    found = []
    for at, one in moments:
        nearest = artefacts[sum(one.sent > limit for limit in limits)] if artefacts else None
        values = {
            schema.EVENT_BYTES.name: round(one.sent),
            schema.EVENT_SECONDS.name: float(one.last - one.since),
            schema.EVENT_SOURCES.name: one.sources,
            schema.EVENT_DESTINATIONS.name: one.destinations,
            schema.OTHER_TALKS.name: one.others,
            schema.ARTEFACT_NAME.name: nearest.name if nearest else "",
            schema.LEAK_SHARE.name: one.sent / nearest.size if nearest else 0.0,
            schema.LEAK_SINCE.name: float(one.since),
            schema.LEAK_REPORTED.name: one.reported,
            schema.LEAK_UNTIL.name: one.until,
        }
        found.append({WINDOW: at} | one.tags | values)
    return pl.DataFrame(found, schema=_ROWS)


_ROWS = columns(*schema.EXFILTRATION.tags, *schema.EXFILTRATION.fields)


def state_of(stored: pl.DataFrame, at: int) -> tuple[State, dict[str, int]]:
    """Return the state before a moment from the rows that were written until then, and when each open incident's was.

    Args:
        stored: WINDOW and the columns of EXFILTRATION; rows that were taken back have 0 as `until`. Those from the
            moment on are what was told of windows that are judged again.
        at: epoch seconds.
    """
    until, reported = schema.LEAK_UNTIL.name, schema.LEAK_REPORTED.name
    every = stored.filter(pl.col(until) > 0).sort(WINDOW)
    kept = every.filter(pl.col(WINDOW) < at)
    state, seen = State(), dict[str, int]()
    if kept.height:
        state.note(*kept.select(schema.SRC_GROUP, reported).unique().iter_rows())
        begun = kept.select(pl.col(schema.LEAK_SINCE.name).cast(pl.Int64), reported).unique()
        state.cover(*begun.iter_rows())
    for row in kept.iter_rows(named=True):
        state.reported = max(state.reported, row[reported])
        tags = _tags(row)
        seen[tags[schema.SRC_GROUP]] = row[WINDOW]
        state.open[tags[schema.SRC_GROUP]] = Incident(
            tags,
            float(row[schema.EVENT_BYTES.name]),
            row[schema.EVENT_SOURCES.name],
            row[schema.EVENT_DESTINATIONS.name],
            row[schema.OTHER_TALKS.name],
            int(row[schema.LEAK_SINCE.name]),
            int(row[schema.LEAK_SINCE.name] + row[schema.EVENT_SECONDS.name]),
            row[reported],
            row[until],
        )
    state.close(at)
    later = [_tags(row) for row in every.filter(pl.col(WINDOW) >= at).iter_rows(named=True)]
    before = [one.tags for one in state.open.values()]
    state.told = {tags[schema.SRC_GROUP]: tags for tags in later if tags not in before}
    return state, seen


def _tags(row: Mapping[str, str | None]) -> dict[str, str]:
    return {tag: row[tag] or "" for tag in schema.EXFILTRATION.tags}


# -- what is usual ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usual:
    """What days of the past say of a sum of 24 hours; arrays are [scope].

    Attributes:
        mean, limit: bytes.
        is_known: whether enough days of the past say so.
    """

    mean: Floats
    limit: Floats
    is_known: Flags


def usual(hours: Floats, *, days: int, is_weekend: Flags, skipped: Flags, now: bool, spreads: float) -> Usual:
    """Return what is usual for each scope.

    Args:
        hours: [scope, hour] bytes of whole hours, the last one newest; at least 24 * (days + 2) of them.
        days: of the past that are whole, without the last 24 hours.
        is_weekend: [day] whether it is one, from the newest on.
        skipped: [scope, day] whether it teaches nothing. Where so many days are that fewer than MIN_DAYS are left of a
            long past, the quietest of them do: who has an incident every day is still watched.
        now: whether it is a weekend now.
        spreads: k.
    """
    days = min(days, MOST_DAYS)
    if days < MIN_DAYS:
        return Usual(np.zeros(len(hours)), np.zeros(len(hours)), is_known=np.zeros(len(hours), np.bool_))
    sums = np.cumsum(np.concatenate([np.zeros((len(hours), 1)), hours], axis=1), axis=1)
    rolling = sums[:, 24:] - sums[:, :-24]
    last = rolling.shape[1] - 1
    # An hour around it, because a clock that changes moves everything by one.
    ends = last - 24 * np.arange(1, days + 1)[:, None] + np.array([-1, 0, 1])
    peaks = rolling[:, ends].max(axis=2)
    taken = _taught(peaks, ~skipped[:, :days], is_weekend[:days] == now)
    count = taken.sum(axis=1)
    is_known = count >= MIN_DAYS
    mean = (peaks * taken).sum(axis=1) / np.maximum(count, 1)
    squares = ((peaks - mean[:, None]) ** 2 * taken).sum(axis=1)
    limit = mean + spreads * np.sqrt(squares / np.maximum(count - 1, 1) * (1 + 1 / np.maximum(count, 1)))
    return Usual(np.where(is_known, mean, 0.0), np.where(is_known, limit, 0.0), is_known)


def _taught(peaks: Floats, clean: Flags, is_same: Flags) -> Flags:
    """Return [scope, day] from which days it is learnt what is usual.

    Args:
        peaks: [scope, day] bytes.
        clean: [scope, day] whether no report is near.
        is_same: [day] whether it is a working day, or a weekend, as today.
    """
    alike = clean & is_same
    taken = np.where((alike.sum(axis=1) >= MIN_DAYS)[:, None], alike, clean)
    if peaks.shape[1] >= 2 * MIN_DAYS:
        places = np.argsort(np.argsort(np.where(taken, -1.0, peaks), axis=1, kind="stable"), axis=1)
        taken = taken | (places < MIN_DAYS)
    return taken
