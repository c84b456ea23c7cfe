"""The floor: how much can leave without an alert, found by search over the detectors themselves.

A theft is written into an InfluxDB beside what usually leaves, and the studies judge it as they would judge it live.
Bisection over its bytes, or over how long it takes, ends at the largest that nobody hears of. Thieves here send evenly:
one window is as good as another then, so windows are as long as `exfil_window` allows, which makes a month cheap.

A first contact or a new network may be told of before: such warnings do not depend on volume, and count as unseen.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import polars as pl

from analysis.detectors.egress.exfiltration_study import ExfiltrationStudy, learnt, sampling_before, summed, watched
from analysis.detectors.egress.history import BIN, BYTES, CONVERSATION, DAY, HOUR, LABELS, MONTH, EgressHistory
from analysis.detectors.egress.ledger import LedgerStudy
from analysis.detectors.study import Span
from app.words import some
from cluster.calendar import off_hours_mask
from cluster.model import EXTERNAL, Cluster, Group, Retention, Role, SamplingMode
from rules.alerts.slow import low_and_slow_24h
from rules.common import slow
from rules.rule import NoRuleError
from store import schema
from store.influx import Store
from store.points import WINDOW, batches, columns
from store.sums import binned

Told = Callable[[str, float], None]
"""Called with what is being done, and the share of it that is done."""

PAST_DAYS = 28
"""Days of the past that thefts are set beside: four of each weekday."""
CAP = 100_000_000_000_000
"""Bytes a day that count as no limit: 9 Gbit/s round the clock."""
_CLOSE = 1.02
"""Searches end when the bytes, or the time, that is seen and that is not are two percent apart."""
_STRIDE = 4.0
_KEPT = 40
"""Conversations of the past that keep their names; the others of their group are one."""
_SPLIT = 12
_CLIENTS = 60
_PACKET = 1_500
_LUCK = 5
"""A sampled theft goes unseen if one of so many does."""
_PAIR = dict.fromkeys((schema.SRC_GROUP, schema.DST_GROUP), pl.String)
_EVENT = schema.EXFILTRATION.tags

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Multiples of all limits of `exfiltration` that the curve shows."""
_FALSE_IN_FORTNIGHT = 1.0


class Way(StrEnum):
    """How bytes leave."""

    SINGLE = "single"
    SPLIT = "split"
    APPROVED = "approved"
    ANSWERS = "answers"
    SAMPLED = "sampled"
    PEOPLE = "people"
    UNWATCHED = "unwatched"
    BLIND = "blind"


@dataclass(frozen=True, slots=True)
class Floor:
    """What can leave by one way.

    Attributes:
        way: which one.
        about: whose bytes, and where to.
        daily: bytes that may leave within 24 hours, once; None: no limit was found.
        sustained: bytes a day that may leave every day for 30 days; None as above.
        days: artefact -> days that it takes to carry it out.
    """

    way: Way
    about: str
    daily: float | None
    sustained: float | None
    days: dict[str, float]

    def json(self) -> dict[str, object]:
        """Return it for machines: bytes, days."""
        return {
            "way": self.way.value,
            "about": self.about,
            "bytes_in_a_day": self.daily,
            "bytes_a_day_for_30_days": self.sustained,
            "days_to_lose": self.days,
        }


@dataclass(frozen=True, slots=True)
class Setting:
    """Limits of `exfiltration`, all times a factor: what may leave, against what the past would have alerted of.

    Attributes:
        factor: of the limits of cluster.yaml.
        alerts: incidents in the past's days, in which nobody stole anything that we know of.
        days: of that past.
        sustained: bytes a day for 30 days, split over many addresses.
        is_best: whether it is the lowest with no more than one alert in a fortnight.
    """

    factor: float
    alerts: int
    days: int
    sustained: float | None
    is_best: bool = False

    def json(self) -> dict[str, object]:
        """Return it for machines."""
        return {
            "factor": self.factor,
            "false_alerts": self.alerts,
            "days": self.days,
            "bytes_a_day_for_30_days": self.sustained,
            "recommended": self.is_best,
        }


# -- the past --------------------------------------------------------------------------------------------

_HOURLY = columns(*CONVERSATION, schema.BYTES)


def stored_past(cluster: Cluster, store: Store, now: int) -> pl.DataFrame:
    """Return what left in the last four weeks by the hour: WINDOW, CONVERSATION, BYTES; no row where nothing is stored.

    Small conversations of a group with another are one, `other`.
    """
    stop = now // HOUR * HOUR
    parts = [
        binned(store, schema.EGRESS, schema.HOUR, (schema.BYTES,), CONVERSATION, start=at, stop=at + DAY, seconds=HOUR)
        for at in range(stop - PAST_DAYS * DAY, stop, DAY)
    ]
    hours = pl.concat(parts).filter(pl.col(BYTES) > 0).select(*_HOURLY)
    groups = [group.id for group in (*summed(cluster), *learnt(cluster))]
    hours = hours.filter(pl.col(schema.SRC_GROUP).is_in(groups))
    largest = hours.group_by(CONVERSATION).agg(pl.col(BYTES).sum()).sort(BYTES, *CONVERSATION, descending=True)
    named = largest.head(_KEPT).select(*CONVERSATION, pl.lit(value=True).alias("_named"))
    merged = (schema.SRC, schema.DST, schema.PROTO, schema.SERVICE, *LABELS)
    return (
        hours.join(named, on=CONVERSATION, how="left", nulls_equal=True)
        .with_columns(
            pl.when(pl.col("_named")).then(pl.col(tag)).otherwise(pl.lit("" if tag in LABELS else schema.OTHER))
            for tag in merged
        )
        .group_by(WINDOW, *CONVERSATION)
        .agg(pl.col(BYTES).sum())
        .select(*_HOURLY)
    )


def made_past(cluster: Cluster, now: int, daily: int) -> pl.DataFrame:
    """Return four weeks in which the first approved group gets about so many bytes a day, as `stored_past`.

    Three addresses fetch from 8:00 to 18:00 UTC; days differ by up to 30 %, always in the same way.
    """
    approved = cluster.groups_with(Role.APPROVED_EXTERNAL)
    groups = watched(cluster)
    if not approved or not groups:
        return pl.DataFrame(schema=_HOURLY)
    rng = np.random.default_rng(18)
    stop = now // HOUR * HOUR
    addresses = _addresses(cluster, approved[0].id, 3)
    rows = []
    for day in range(PAST_DAYS):
        load = rng.uniform(0.7, 1.3)
        for at in range(stop - (day + 1) * DAY, stop - day * DAY, HOUR):
            if 8 <= at % DAY // HOUR < 18:
                for address in addresses:
                    tags = _talk(cluster, groups[0].id, address, approved[0].id)
                    rows.append({WINDOW: at, **tags, BYTES: int(daily * load / 10 / len(addresses))})
    return pl.DataFrame(rows, schema=_HOURLY)


def _talk(cluster: Cluster, group: str, dst: str, dst_group: str, *, answers: bool = False) -> dict[str, str]:
    node = next((one.name for one in cluster.nodes if one.group == group), schema.OTHER)
    initiator = schema.BY_DESTINATION if answers else schema.BY_SOURCE
    labels = dict.fromkeys(LABELS, "")
    return dict(
        zip(CONVERSATION, (node, group, dst, dst_group, "tcp", "https", initiator, *labels.values()), strict=True)
    )


def _addresses(cluster: Cluster, group: str, count: int) -> list[str]:
    prefixes = cluster.group(group).prefixes
    if not prefixes:
        return []
    first = prefixes[0]
    return [str(first[number % first.num_addresses]) for number in range(10, 10 + count)]


# -- a theft in the store ----------------------------------------------------------------------------------


class Scene:
    """A past and thefts beside it, in a database of its own.

    Args:
        cluster: whose limits count.
        past: see `stored_past`; after its end it goes on alike.
        store: empty; anything may be written there.
        now: epoch seconds. Thefts begin after it, or after the past, at the first window that is not off-hours.

    Attributes:
        rate: of so many packets exporters see one: of a sum, what left at least counts.
    """

    def __init__(self, cluster: Cluster, past: pl.DataFrame, store: Store, now: int) -> None:
        window = math.gcd(cluster.thresholds.exfil_window, HOUR)
        settings = replace(cluster.store, keep_raw=max(cluster.store.keep_raw, 2 * DAY))
        self.cluster = replace(cluster, store=settings, bridge=replace(cluster.bridge, window=window))
        self._plain, self.past, self.store, self._step = self.cluster, past, store, window
        newest = int(past.get_column(WINDOW).max()) + HOUR if past.height else now  # type: ignore[arg-type]
        # A whole day, so that what goes on does so at the same hours of the same weekdays.
        self._now = -(-newest // DAY) * DAY
        starts = self._now + np.arange(0, 7 * DAY, window)
        dark = [off_hours_mask(cluster.site_of(name), starts) for name in ("", *cluster.own_hours())]
        bright = ~np.any(dark, axis=0)
        self.begin = int(starts[int(np.argmax(bright))]) if bright.any() else self._now
        try:
            pairs = slow.watched(cluster, low_and_slow_24h.ID).pairs
        except NoRuleError:
            pairs = ()
        self._slow_pairs = pl.DataFrame(pairs, schema=_PAIR, orient="row")
        self._taken = pl.DataFrame()
        store.ensure(tuple(Retention(one.name, one.window, 0) for one in self.cluster.retentions()))
        self._write_past()
        self._usual: dict[tuple[int, int, int], int] = {}
        self.rate = 1

    def _write_past(self) -> None:
        if self.past.is_empty():
            return
        first = self.past
        both = pl.concat([first, first.with_columns(pl.col(WINDOW) + PAST_DAYS * DAY)])
        later = both.with_columns(pl.col(WINDOW) + 2 * PAST_DAYS * DAY).filter(
            pl.col(WINDOW) < self._now + (PAST_DAYS + 12) * DAY
        )
        every = pl.concat([both, later])
        self._put(every, schema.HOUR)
        fine = self._spread(every.filter(pl.col(WINDOW) >= self._now - 2 * DAY))
        self._put(fine, schema.RAW)
        self._put(fine, schema.MINUTE)

    def _spread(self, hours: pl.DataFrame) -> pl.DataFrame:
        """Return hours as windows, in equal parts."""
        parts = HOUR // self._step
        offsets = pl.DataFrame({"_offset": np.arange(parts) * self._step})
        return hours.join(offsets, how="cross").select(
            pl.col(WINDOW) + pl.col("_offset"), *CONVERSATION, pl.col(BYTES) // parts
        )

    def _put(self, frame: pl.DataFrame, retention: str) -> None:
        for lines, _ in batches(schema.EGRESS, frame.sort(WINDOW)):
            self.store.write(lines, retention)

    def steal(
        self, talks: Sequence[dict[str, str]], volume: float, seconds: int, *, rate: int = 1, seed: int = 0
    ) -> bool:
        """Return whether bytes that leave in equal parts over conversations and time go unseen.

        Args:
            talks: CONVERSATION of each.
            volume: bytes in all.
            seconds: from the first to the last.
            rate: of every so many packets one is seen, by chance.
            seed: of that chance.
        """
        self._clean()
        windows = self.begin + np.arange(0, max(seconds, self._step), self._step)
        each = np.full((len(talks), len(windows)), volume / len(talks) / len(windows))
        if rate > 1:
            unit = rate * _PACKET
            each = np.random.default_rng(seed).poisson(each / unit) * float(unit)
        frame = pl.concat(
            pl.DataFrame({WINDOW: windows, BYTES: sent.astype(np.int64)}).select(
                WINDOW, *(pl.lit(value).alias(tag) for tag, value in tags.items()), BYTES
            )
            for tags, sent in zip(talks, each, strict=True)
        )
        self._store(frame)
        end = int(windows[-1]) + self._step
        stop = -(-end // BIN) * BIN + BIN
        return self._is_as_usual(_looks(self.begin, stop))

    def _is_as_usual(self, looks: Sequence[tuple[int, int]]) -> bool:
        """Return whether nothing alerts that would not without the theft; the first alert ends it."""
        return all(
            not count or (self.past.height and count <= self._usual_alerts(look))
            for look, count in zip(looks, self._alerts(looks), strict=True)
        )

    def _usual_alerts(self, look: tuple[int, int]) -> int:
        """Return how many alerts a look has without any theft."""
        key = (*look, self.cluster.thresholds.exfil_24h)
        if key not in self._usual:
            taken = self._taken
            self._clean()
            self._usual[key] = sum(self._alerts([look]))
            if taken.height:
                self._store(taken)
        return self._usual[key]

    def _store(self, frame: pl.DataFrame) -> None:
        self._taken = frame
        hours = (
            frame.with_columns(pl.col(WINDOW) // HOUR * HOUR)
            .group_by(WINDOW, *CONVERSATION, maintain_order=True)
            .agg(pl.col(BYTES).sum())
            .select(*_HOURLY)
        )
        for retention, rows in ((schema.RAW, frame), (schema.MINUTE, frame), (schema.HOUR, hours)):
            # As a shard of its own, so that nothing of the past is written over.
            for lines, _ in batches(schema.EGRESS, rows.with_columns(pl.lit("theft").alias(schema.SHARD)).sort(WINDOW)):
                self.store.write(lines, retention)

    def _clean(self) -> None:
        if self._taken.height:
            self._store(self._taken.with_columns(pl.lit(0, pl.Int64).alias(BYTES)))
            self._taken = pl.DataFrame()

    def _alerts(self, looks: Sequence[tuple[int, int]]) -> Iterator[int]:
        """Yield how many incidents and slow conversations the studies find from one moment to another, look by look."""
        history = EgressHistory(self.cluster, self.store)
        study, little = (
            ExfiltrationStudy(self.cluster, self.store, history, summed(self.cluster), learnt(self.cluster)),
            LedgerStudy(self.cluster, history),
        )
        limits, study.sampling = self.cluster.thresholds, self.rate
        for start, stop in looks:
            rows = pl.concat(frame for _, frame in study.judge(Span(start, stop, stop, stop), ()))
            count = rows.filter(pl.col(schema.LEAK_UNTIL.name) > 0).unique(_EVENT).height
            for _, ledger in little.judge(Span(stop - BIN, stop, stop, stop), ()):
                if ledger.height:
                    is_slow = (pl.col(schema.SLOW_24H.name) > limits.low_and_slow_24h) | (
                        pl.col(schema.SLOW_7D.name) > limits.low_and_slow_7d
                    )
                    count += (
                        ledger.join(self._slow_pairs, on=[schema.SRC_GROUP, schema.DST_GROUP], how="semi")
                        .filter(is_slow)
                        .height
                    )
            yield count

    def limit(self, factor: float) -> None:
        """Judge from now on with all limits of `exfiltration` a multiple of those of cluster.yaml."""
        names = ("exfil_volume", "exfil_off_hours", "exfil_24h", "exfil_7d", "exfil_30d", "exfil_answers")
        scaled = {name: int(getattr(self._plain.thresholds, name) * factor) for name in names}
        self.cluster = replace(self._plain, thresholds=replace(self._plain.thresholds, **scaled))

    def false_alerts(self) -> int:
        """Return how many alerts the past has by itself: judged where it is repeated, with the past before it."""
        self._clean()
        days = [(at, at + DAY) for at in range(self._now, self._now + PAST_DAYS * DAY, DAY)]
        return sum(self._alerts(days)) if self.past.height else 0


def _looks(start: int, stop: int) -> list[tuple[int, int]]:
    """Return when a theft is looked at: all of its first day, then the ends of days at which a sum is at its fullest.

    The sums of an even theft only grow, until the longest is full; what it teaches only makes it look more usual.
    """
    first = min(start + DAY + BIN, stop)
    later = [start + day * DAY + BIN for day in (*range(2, 9), 14, 21, 30)]
    return [(start, first), *((at - HOUR, at) for at in (*(at for at in later if at < stop), stop) if at > first)]


# -- the search --------------------------------------------------------------------------------------------


def largest(is_unseen: Callable[[float], bool], guess: float, most: float) -> float | None:
    """Return the largest value for which it is true, to two percent; None if it is for `most`.

    Args:
        is_unseen: true up to some value and not beyond.
        guess: where to begin; above 0. Below a ten-thousandth of it is 0.
        most: where to end.
    """
    low = high = min(guess, most)
    if is_unseen(low):
        while low < most and is_unseen(high := min(low * _STRIDE, most)):
            low = high
        if low >= most:
            return None
    else:
        while not is_unseen(low := high / _STRIDE):
            high = low
            if low < guess / 10_000:
                return 0.0
    while high / low > _CLOSE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_unseen(middle) else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class Theft:
    """What is stolen by one way: see `Floor`; `rate` of the exporter that samples it."""

    way: Way
    about: str
    talks: tuple[dict[str, str], ...]
    rate: int = 1

    def is_unseen(self, scene: Scene, volume: float, seconds: int) -> bool:
        """Return whether so many bytes in so many seconds leave without an alert."""
        tries = _LUCK if self.rate > 1 else 1
        return any(scene.steal(self.talks, volume, seconds, rate=self.rate, seed=seed) for seed in range(tries))


def floors(scene: Scene, *, rate: int, hidden: Sequence[str], told: Told) -> list[Floor]:
    """Return what can leave by each way that this cluster has.

    Args:
        scene: the past.
        rate: of the coarsest sampling exporter; 1 if none samples.
        hidden: titles of pairs of groups that no flow record shows.
        told: of progress.
    """
    cluster, scene.rate = scene.cluster, rate
    ways = list(thefts(scene, rate))
    found = []
    for place, theft in enumerate(ways):
        told(f"searching: {theft.way.value}", place / len(ways))
        found.append(_floor(scene, theft))
    if hidden:
        gone = {one.name: 0.0 for one in cluster.artefacts}
        found.append(Floor(Way.BLIND, f"no flow record shows {', '.join(hidden)}", None, None, gone))
    return found


def _floor(scene: Scene, theft: Theft) -> Floor:
    month = MONTH // DAY
    first = float(scene.cluster.thresholds.exfil_24h)
    daily = largest(lambda volume: theft.is_unseen(scene, volume, DAY), first, CAP)
    sustained = largest(lambda each: theft.is_unseen(scene, each * month, MONTH), (daily or CAP) / 8, daily or CAP)
    if sustained is None:
        # What is unseen at the most of one day is so every day.
        sustained = daily
    days = {one.name: _days(scene, theft, float(one.size), daily, sustained) for one in scene.cluster.artefacts}
    return Floor(theft.way, theft.about, daily, sustained, days)


def _days(scene: Scene, theft: Theft, size: float, daily: float | None, sustained: float | None) -> float:
    """Return the shortest time in which so many bytes go unseen, sent evenly, in days; inf if they never do."""
    if sustained is not None and size > sustained * MONTH / DAY:
        # No sum is longer than 30 days: what goes unseen for so long does for ever.
        return size / sustained if sustained else math.inf
    least, most = (HOUR / 4, DAY) if daily is None or size <= daily else (DAY, MONTH)
    low, high = float(least), float(most)
    if theft.is_unseen(scene, size, int(low)):
        return low / DAY
    while high / low > _CLOSE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if theft.is_unseen(scene, size, int(middle)) else (middle, high)
    return high / DAY


def thefts(scene: Scene, rate: int) -> Iterator[Theft]:
    """Yield a theft by each way that the cluster has; `rate` as `floors` takes it."""
    cluster = scene.cluster
    groups = sorted(watched(cluster), key=lambda one: (one.exfil_scale, one.role is Role.MODEL_STORAGE), reverse=True)
    if groups:
        one = groups[0]
        nowhere = [f"203.0.113.{number}" for number in range(20, 20 + _CLIENTS)]
        single = (_talk(cluster, one.id, nowhere[0], EXTERNAL),)
        yield Theft(Way.SINGLE, f"{one.title} to one address", single)
        split = tuple(_talk(cluster, groups[n % len(groups)].id, nowhere[n], EXTERNAL) for n in range(_SPLIT))
        yield Theft(Way.SPLIT, f"{len(groups)} group{'s' if len(groups) > 1 else ''} to {_SPLIT} addresses", split)
        if rate > 1:
            yield Theft(Way.SAMPLED, f"one packet in {rate:,} is seen; the luckiest of {_LUCK}", single, rate)
        for approved in cluster.groups_with(Role.APPROVED_EXTERNAL):
            talks = _used(scene, approved.id) or tuple(
                _talk(cluster, one.id, address, approved.id) for address in _addresses(cluster, approved.id, 1)
            )
            if talks:
                yield Theft(Way.APPROVED, f"to {approved.title}, where most goes already", talks)
        serving = next((group for group in groups if group.role is Role.INFERENCE), None)
        if serving is not None:
            clients = tuple(_talk(cluster, serving.id, address, EXTERNAL, answers=True) for address in nowhere)
            yield Theft(Way.ANSWERS, f"answers of {serving.title} to {_CLIENTS} clients", clients)
    people = [group for group in learnt(cluster) if group.role is Role.CUSTOM and group.id != EXTERNAL]
    for one, titles in _alike(scene, people):
        talks = (_talk(cluster, one.id, "203.0.113.20", EXTERNAL),)
        yield Theft(Way.PEOPLE, f"by way of {titles}, beside what they usually send", talks)
    known = {group.id for group in (*watched(cluster), *people)}
    others = [other for other in cluster.inside_groups() if other.id not in known and other.role is not Role.DRILL]
    for one, titles in _alike(scene, others):
        talks = (_talk(cluster, one.id, "203.0.113.20", EXTERNAL),)
        yield Theft(Way.UNWATCHED, f"by way of {titles}, whose bytes no sum counts", talks)


def _alike(scene: Scene, groups: Sequence[Group]) -> Iterator[tuple[Group, str]]:
    """Yield one of all groups that are judged alike, and the titles of all: a search for each would take hours.

    Who sent something in the past has a usual of its own.
    """
    sent = set(scene.past.get_column(schema.SRC_GROUP))
    found: dict[tuple[object, ...], list[Group]] = {}
    for group in groups:
        own = group.id if group.id in sent else ""
        is_visible = scene.cluster.transport_of(group.id, EXTERNAL).is_visible
        judged = own, group.role, group.sensitive, group.exfil_scale, group.off_hours, is_visible
        found.setdefault(judged, []).append(group)
    for alike in found.values():
        yield alike[0], some([group.title for group in alike], 3)


def _used(scene: Scene, approved: str) -> tuple[dict[str, str], ...]:
    """Return the conversations with an approved group that had most bytes."""
    if scene.past.is_empty():
        return ()
    sums = (
        scene.past.filter(pl.col(schema.DST_GROUP) == approved, pl.col(schema.INITIATOR) == schema.BY_SOURCE)
        .group_by(CONVERSATION)
        .agg(pl.col(BYTES).sum())
        .sort(BYTES, *CONVERSATION, descending=True)
    )
    return tuple({tag: row[tag] or "" for tag in CONVERSATION} for row in sums.head(3).iter_rows(named=True))


def curve(scene: Scene, told: Told) -> list[Setting]:
    """Return what lower and higher limits would mean: false alerts in the past, and the floor of what is split."""
    found: list[Setting] = []
    split = next((one for one in thefts(scene, 1) if one.way is Way.SPLIT), None)
    if split is None:
        return found
    for place, factor in enumerate(FACTORS):
        told(f"limits times {factor:g}", place / len(FACTORS))
        scene.limit(factor)
        alerts = scene.false_alerts()
        sustained = largest(
            lambda each: split.is_unseen(scene, each * MONTH / DAY, MONTH), scene.cluster.thresholds.exfil_30d / 30, CAP
        )
        found.append(Setting(factor, alerts, PAST_DAYS if scene.past.height else 0, sustained))
    scene.limit(1.0)
    if scene.past.is_empty():
        return found
    most = _FALSE_IN_FORTNIGHT * PAST_DAYS / 14
    best = next((one for one in found if one.alerts <= most), None)
    return [replace(one, is_best=one is best) for one in found]


# -- what is known of the site ---------------------------------------------------------------------------------


def coarsest(cluster: Cluster, store: Store | None, now: int) -> int:
    """Return the largest sampling rate: of cluster.yaml, and of what exporters said in the last day; 1 if none."""
    fixed = [one.sampling.rate or 1 for one in cluster.exporters if one.sampling.mode is SamplingMode.FIXED]
    return max([1 if store is None else sampling_before(store, now), *fixed])


def finite(value: object) -> object:
    """Return JSON with null for what never happens: JSON has no infinity."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and math.isinf(value) else value
