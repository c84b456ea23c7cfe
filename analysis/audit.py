"""The audit of a period: breaches of the segmentation, unused permits, and what could not be seen.

Rules report what happens now, above their limits, and each conversation once. The audit counts everything that is
stored of the period, down to the byte and whichever rule reported it: one conversation may stand under several
headings. It reads rollups, so that periods of months are a matter of seconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from analysis.access_cli import accessed
from analysis.detectors.fabric.breaches import oriented
from analysis.detectors.inference.access import policy_of
from app.errors import UserError
from cluster.model import ANY, EXTERNAL, Cluster, GroupPair, Retention, Transport
from store import schema
from store.influx import Store
from store.influxql import Condition, Select, compare, earliest, finest, is_in, newest, total
from store.points import WINDOW
from store.schema import Field, Measurement, Violation
from store.sums import binned

FIRST, LAST = "first", "last"
"""Columns: start of the first and of the last window in which something was seen, epoch seconds."""

USED, UNUSED, INVISIBLE = "used", "unused", "not visible"
"""What became of a permit."""

_LONGEST = 6 * 3_600, 40 * 86_400
"""Longest periods that are read from `raw` and from `1m`."""

_ROLLUP_LAG = 180
"""Age at which a window surely is rolled up: rollups run every minute."""

_GAP_BINS = 10_000
"""Bins in which silence is looked for, at most."""

_TX, _RX, _BYTES, _FLOWS = schema.TX_BYTES.name, schema.RX_BYTES.name, schema.BYTES.name, schema.FLOWS.name


@dataclass(frozen=True, slots=True)
class Period:
    """What is audited: whole windows of one retention, epoch seconds, the end exclusive."""

    start: int
    stop: int
    retention: str
    window: int


@dataclass(frozen=True, slots=True)
class Permit:
    """A pair of groups that may talk.

    Attributes:
        src, dst: group ids.
        entry: the entry of `allowed` that permits it, as written.
        state: USED, UNUSED or INVISIBLE.
        transport: as declared.
    """

    src: str
    dst: str
    entry: GroupPair
    bytes: int
    state: str
    transport: Transport


@dataclass(frozen=True, slots=True)
class Silence:
    """An exporter of which nothing came for a while.

    Attributes:
        seconds: altogether, of stretches longer than the alert's limit.
        stretches: how many.
        longest: seconds.
        never: whether nothing came in the whole period.
    """

    exporter: str
    seconds: int
    stretches: int
    longest: int
    never: bool


@dataclass(frozen=True, slots=True)
class Audit:
    """Everything that was found.

    Attributes:
        violations, wrong_plane, management: a row a conversation: SRC opened it, tx is what it sent, rx what it got,
            FIRST and LAST when; the largest first.
        clients: all that asked inference though their group may not, rows as `clusterflow access` has them; nothing
            where it has nothing.
        shadows: a row an unknown address that sent: GROUP, ADDRESS, bytes, tx, flows, FIRST, LAST.
        only_called: unknown addresses that sent nothing: somebody called them.
        permits: every pair of groups that `allowed` lists.
        silences: exporters with silence in the period.
        resolution: seconds: shorter silences do not show.
        blind: seconds of the period for which nothing at all is stored.
        records, lost: flow records received, and lost on their way as far as sequence numbers tell.
    """

    period: Period
    violations: pl.DataFrame
    wrong_plane: pl.DataFrame
    management: pl.DataFrame
    clients: pl.DataFrame
    shadows: pl.DataFrame
    only_called: int
    permits: tuple[Permit, ...]
    silences: tuple[Silence, ...]
    resolution: int
    blind: int
    records: int
    lost: int

    def unused(self) -> tuple[Permit, ...]:
        """Return the permits without a byte."""
        return tuple(permit for permit in self.permits if permit.state == UNUSED)


def period_of(cluster: Cluster, start: float, stop: float, now: float) -> Period:
    """Return the whole windows of a range, in the finest retention that has all of them and answers soon.

    Raises:
        UserError: the range is empty, or begins before everything that is kept.
    """
    retention = finest(cluster, start, stop, now, _LONGEST)
    if retention is None:
        days = cluster.store.keep_1h / 86_400
        raise UserError("the period begins before anything that is kept", f"the store keeps {days:g} days")
    return _whole(retention, start, stop, now)


def _whole(retention: Retention, start: float, stop: float, now: float) -> Period:
    window = retention.window
    first = -(-int(start) // window) * window
    last = int(min(stop, now - _ROLLUP_LAG)) // window * window
    if last <= first:
        raise UserError(
            "the period holds no whole window", f"it is audited in windows of {window} s that ended 3 minutes ago"
        )
    return Period(first, last, retention.name, window)


def audit(cluster: Cluster, store: Store, period: Period) -> Audit:
    """Return what the store says of a period.

    Raises:
        StoreError: the store is away.
    """
    talks = {kind: _talks(store, period, kind) for kind in Violation}
    addresses = _unknown(store, period)
    resolution = max(period.window, 60, -(-(period.stop - period.start) // _GAP_BINS // 60) * 60)
    heard = binned(
        store, schema.EXPORTER_STATUS, period.retention, (schema.EXPORTER_RECORDS, schema.SEQ_LOST), (schema.EXPORTER,),
        start=period.start // resolution * resolution, stop=period.stop, seconds=resolution,
    ).filter(pl.col(schema.EXPORTER_RECORDS.name).fill_null(0) > 0)  # fmt: skip
    return Audit(
        period=period,
        violations=talks[Violation.NOT_ALLOWED],
        wrong_plane=talks[Violation.WRONG_PLANE],
        management=talks[Violation.MANAGEMENT],
        clients=_clients(cluster, store, period),
        shadows=addresses.filter(pl.col(_TX) > 0),
        only_called=addresses.filter(pl.col(_TX) == 0).height,
        permits=_permits(cluster, store, period),
        silences=_silences(cluster, heard, period, resolution),
        resolution=resolution,
        blind=_blind(heard, period, resolution),
        records=int(heard.get_column(schema.EXPORTER_RECORDS.name).sum()),
        lost=int(heard.get_column(schema.SEQ_LOST.name).sum()),
    )


# -- what should not be ----------------------------------------------------------------------------------


def _talks(store: Store, period: Period, kind: Violation) -> pl.DataFrame:
    """Return the violations of a kind, both directions of a conversation in one row."""
    of_kind = is_in(schema.KIND, [kind.value])
    found = _seen(store, period, schema.VIOLATION, (schema.BYTES, schema.FLOWS), of_kind)
    tags = [tag for tag in schema.VIOLATION.tags if tag in found.columns]
    talk = [schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE]
    # One window holds the whole period: directions are turned as the analysis turns them.
    turned = [
        oriented(found.select(*tags, _BYTES, _FLOWS, pl.col(one).alias(WINDOW), pl.lit(kind.value).alias(schema.KIND)))
        for one in (FIRST, LAST)
    ]
    by = pl.concat(turned).group_by(talk)
    spans = by.agg(pl.col(WINDOW).min().alias(FIRST), pl.col(WINDOW).max().alias(LAST))
    sums = turned[0].group_by(talk).agg(pl.sum(_TX, _RX, _FLOWS))
    return (
        sums.join(spans, on=talk)
        .with_columns((pl.col(_TX) + pl.col(_RX)).alias(_BYTES))
        .select(*talk, _BYTES, _TX, _RX, _FLOWS, FIRST, LAST)
        .sort(_BYTES, *talk, descending=[True, *([False] * len(talk))])
    )


def _clients(cluster: Cluster, store: Store, period: Period) -> pl.DataFrame:
    denied = sorted(policy_of(cluster, ()).denied)
    pairs = pl.DataFrame(denied, schema=dict.fromkeys((schema.SRC_GROUP, schema.DST_GROUP), pl.String), orient="row")
    where = is_in(schema.DST_GROUP, pairs.get_column(schema.DST_GROUP).unique())
    found = accessed(store, period.start, period.stop, [where])
    return found.join(pairs, on=pairs.columns, how="semi").filter(pl.col(schema.SRC_GROUP) != pl.col(schema.DST_GROUP))


def _unknown(store: Store, period: Period) -> pl.DataFrame:
    fields = (schema.BYTES, schema.FLOWS, schema.TX_BYTES)
    found = _seen(store, period, schema.UNKNOWN_NODE, fields)
    return found.with_columns(pl.col(_TX).fill_null(0))


def _seen(
    store: Store, period: Period, measurement: Measurement, fields: Sequence[Field], *where: Condition
) -> pl.DataFrame:
    """Return sums over the period of each combination of tags, largest first, and when it was first and last seen.

    Args:
        store: asked.
        period: read.
        measurement: grouped by its tags, but those of the condition and the shard.
        fields: summed; the first is above 0 in every row.
        where: a condition on KIND.
    """
    left_out = {schema.SHARD, *([schema.KIND] if where else [])}
    tags = [tag for tag in measurement.tags if tag not in left_out]
    asked = Select(measurement, period.retention).where(*where).by(*tags).between(period.start, period.stop)
    there = asked.where(compare(fields[0], ">", 0))
    parts = [
        _frame(store, asked.take(*map(total, fields)), fields),
        _moments(store, there.take(earliest(fields[0])), FIRST),
        _moments(store, there.take(newest(fields[0])), LAST),
    ]
    found = parts[0].join(parts[1], on=tags, how="inner").join(parts[2], on=tags, how="inner")
    return found.sort(fields[0].name, *tags, descending=[True, *([False] * len(tags))])


def _frame(store: Store, asked: Select, fields: Sequence[Field]) -> pl.DataFrame:
    wide = 1 + len(asked.tags)
    rows = [
        (*row[1:wide], *(None if value is None else int(value) for value in row[wide:])) for row in store.rows(asked)
    ]
    columns = {**dict.fromkeys(asked.tags, pl.String), **dict.fromkeys((field.name for field in fields), pl.Int64)}
    return pl.DataFrame(rows, schema=columns, orient="row")


def _moments(store: Store, asked: Select, name: str) -> pl.DataFrame:
    rows = [(*tags, moment) for moment, *tags, _ in store.rows(asked)]
    return pl.DataFrame(rows, schema={**dict.fromkeys(asked.tags, pl.String), name: pl.Int64}, orient="row")


# -- permits ---------------------------------------------------------------------------------------------


def _permits(cluster: Cluster, store: Store, period: Period) -> tuple[Permit, ...]:
    sums = Select(schema.TRAFFIC, period.retention).take(total(schema.BYTES)).by(schema.SRC_GROUP, schema.DST_GROUP)
    found = store.rows(sums.between(period.start, period.stop))
    volume = {(src, dst): int(sent or 0) for _, src, dst, sent in found}
    return tuple(
        Permit(src, dst, entry, volume.get((src, dst), 0), _state(volume.get((src, dst), 0), transport), transport)
        for src, dst, entry in permitted(cluster)
        for transport in (cluster.transport_of(src, dst),)
    )


def _state(volume: int, transport: Transport) -> str:
    if volume:
        return USED
    return UNUSED if transport.is_visible else INVISIBLE


def permitted(cluster: Cluster) -> Iterable[tuple[str, str, GroupPair]]:
    """Yield each pair of different groups that `allowed` lists, and the first entry that does."""
    ids = [*(group.id for group in cluster.groups), EXTERNAL]
    for src in ids:
        for dst in ids:
            covering = (pair for pair in cluster.allowed if pair.src in (src, ANY) and pair.dst in (dst, ANY))
            entry = next(covering, None)
            if src != dst and entry is not None:
                yield src, dst, entry


# -- what could not be seen ------------------------------------------------------------------------------


def _silences(cluster: Cluster, heard: pl.DataFrame, period: Period, resolution: int) -> tuple[Silence, ...]:
    limit = max(cluster.thresholds.exporter_silent, resolution)
    found = []
    for exporter in cluster.exporters:
        windows = heard.filter(pl.col(schema.EXPORTER) == exporter.name).get_column(WINDOW).sort().to_list()
        gaps = [gap for gap in _gaps(windows, period, resolution) if gap > limit]
        if gaps:
            found.append(Silence(exporter.name, sum(gaps), len(gaps), max(gaps), never=not windows))
    return tuple(sorted(found, key=lambda silence: (-silence.seconds, silence.exporter)))


def _gaps(windows: Sequence[int], period: Period, resolution: int) -> list[int]:
    """Return the lengths of the stretches of a period without any of these bins."""
    edges = [period.start, *(edge for window in windows for edge in (window, window + resolution)), period.stop]
    return [later - earlier for earlier, later in list(pairwise(edges))[::2] if later > earlier]


def _blind(heard: pl.DataFrame, period: Period, resolution: int) -> int:
    return sum(_gaps(heard.get_column(WINDOW).unique().sort().to_list(), period, resolution))
