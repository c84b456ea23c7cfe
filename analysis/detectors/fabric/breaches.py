"""Breaches of the segmentation: each conversation is reported once, by the most specific rule.

Ingest says what is the matter with each direction of a conversation, and one may have several faults at once. Here both
directions become one conversation with its opener as source, and one kind is chosen, in this order:

1. `management`: unexpected at a management group, or not allowed there.
2. `shadow`: the opener is an address of which no inventory knows. The machine is the finding, whatever else it does; it
   is reported by what it sends, not by each of its conversations.
3. `wrong_plane`: storage traffic on the compute plane.
4. `segmentation`: all else that `allowed` does not list, save what has rules of its own: what model storage and
   training nodes open outside (egress), and what clients open at inference nodes.

A scan is one finding, not thousands: beyond a few destinations within the look-back, all of a source's are `other`;
beyond a few sources of one group, as when a whole job writes over the wrong plane, the sources are `other`, too.

Everything here is a function of windows that the store holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analysis.detectors.study import Points, Span
from cluster.model import Cluster, Job, Role
from store import schema
from store.influx import Store
from store.points import WINDOW, columns
from store.schema import Breach, Field, Measurement, Violation
from store.sums import binned

EGRESS_ROLES = (Role.MODEL_STORAGE, Role.TRAINING, Role.DRILL)
"""What these groups open outside is reported by rules of its own: first contacts, volumes, hours, the ledger."""

_BYTES, _FLOWS, _TX, _RX = schema.BYTES.name, schema.FLOWS.name, schema.TX_BYTES.name, schema.RX_BYTES.name
_SOURCES, _DESTINATIONS = schema.EVENT_SOURCES.name, schema.EVENT_DESTINATIONS.name

VIOLATIONS = columns(
    schema.KIND, schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE,
    schema.INITIATOR, schema.BYTES, schema.FLOWS,
)  # fmt: skip
"""One direction of a conversation in a window, as ingest stored it."""

UNKNOWN = columns(schema.GROUP, schema.ADDRESS, schema.BYTES, schema.FLOWS, schema.TX_BYTES)
"""An unknown address in a window, as ingest stored it."""

_TAGS = list(schema.BREACH.tags)
_ADDRESS = "^[0-9.]+$|:"
"""What no name of a node matches."""
_TALK = [WINDOW, schema.SRC, schema.DST, schema.PROTO, schema.SERVICE]
_ORDER = {
    Violation.MANAGEMENT.value: (0, Breach.MANAGEMENT.value),
    Violation.WRONG_PLANE.value: (1, Breach.WRONG_PLANE.value),
    Violation.NOT_ALLOWED.value: (2, Breach.SEGMENTATION.value),
}
"""Kind of a violation -> its place in the order, and the kind of breach that it is."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known of a cluster, and how much is told by name.

    Attributes:
        window: seconds.
        look_back: seconds over which destinations and sources are counted; a multiple of the window.
        with_inventory: groups that have one.
        watched: groups whose conversations with the outside have rules of their own.
        outside: groups outside the cluster.
        inference: groups whose clients have rules of their own.
        destinations, services, sources, addresses: how many of each are named; more are `other`.
    """

    window: int
    look_back: int
    with_inventory: frozenset[str]
    watched: frozenset[str]
    outside: frozenset[str]
    inference: frozenset[str]
    destinations: int = 3
    services: int = 3
    sources: int = 10
    addresses: int = 5


def scope_of(cluster: Cluster) -> Scope:
    """Return what the cluster's inventory and roles say."""
    return Scope(
        window=cluster.bridge.window,
        look_back=cluster.thresholds.violation_window,
        with_inventory=frozenset(node.group for node in cluster.nodes),
        watched=frozenset(group.id for group in cluster.groups_with(*EGRESS_ROLES)),
        outside=frozenset(cluster.outside_ids()),
        inference=frozenset(group.id for group in cluster.groups_with(Role.INFERENCE)),
    )


def find(violations: pl.DataFrame, unknown: pl.DataFrame, scope: Scope, start: int) -> pl.DataFrame:
    """Return the breaches of the windows from `start` on.

    Args:
        violations: VIOLATIONS from `start` - `scope.look_back` on.
        unknown: UNKNOWN from then on.
        scope: see there.
        start: epoch seconds.

    Returns:
        A frame for ``encode(schema.BREACH, ...)``.
    """
    talks = pl.concat([judged(oriented(violations), scope), _shadows(unknown)])
    digested = _digested(talks, scope).filter(pl.col(WINDOW) >= start)
    volume = pl.col(_TX) + pl.col(_RX)
    return (
        digested.group_by(WINDOW, *_TAGS)
        .agg(pl.sum(_TX, _RX, _FLOWS), pl.max(_SOURCES, _DESTINATIONS))
        .with_columns(
            volume.alias(_BYTES),
            pl.when(volume > 0).then(float(scope.window)).otherwise(0.0).alias(schema.DURATION.name),
        )
        .select(WINDOW, *_TAGS, *(field.name for field in schema.BREACH.fields))
        .sort(WINDOW, *_TAGS)
    )


# -- conversations ---------------------------------------------------------------------------------------


def oriented(violations: pl.DataFrame) -> pl.DataFrame:
    """Return both directions as one row: SRC opened it, tx is what SRC sent, rx what it received."""
    forth = pl.col(schema.INITIATOR) != schema.BY_DESTINATION
    parties = ((schema.SRC, schema.DST), (schema.SRC_GROUP, schema.DST_GROUP))
    turned = [
        pl.when(forth).then(pl.col(one)).otherwise(pl.col(other)).alias(one)
        for pair in parties
        for one, other in (pair, pair[::-1])
    ]
    volume = pl.col(_BYTES)
    sides = [
        pl.when(forth).then(volume).otherwise(0).alias(_TX),
        pl.when(forth).then(0).otherwise(volume).alias(_RX),
    ]
    return violations.with_columns(*turned, *sides).group_by(WINDOW, *_TAGS).agg(pl.sum(_TX, _RX, _FLOWS))


def judged(talks: pl.DataFrame, scope: Scope) -> pl.DataFrame:
    """Return each conversation (rows of `oriented`) under one kind of breach, without those that others tell of."""
    src, src_group, kind = pl.col(schema.SRC), pl.col(schema.SRC_GROUP), pl.col(schema.KIND)
    is_management = kind == Violation.MANAGEMENT.value
    # Ingest gives a node its name, also one that it knows some minutes before we do.
    is_shadow = src.str.contains(_ADDRESS) & src_group.is_in(scope.with_inventory)
    dst_group = pl.col(schema.DST_GROUP)
    has_rules = (src_group.is_in(scope.watched) & dst_group.is_in(scope.outside)) | dst_group.is_in(scope.inference)
    place = kind.replace_strict({name: order for name, (order, _) in _ORDER.items()}, return_dtype=pl.Int64)
    names = {name: breach for name, (_, breach) in _ORDER.items()}
    return (
        talks.filter(kind.is_in(list(_ORDER)), is_management | ~is_shadow)
        .filter(~((kind == Violation.NOT_ALLOWED.value) & has_rules))
        .filter(place == place.min().over(_TALK))
        .with_columns(kind.replace_strict(names, return_dtype=pl.String).alias(schema.KIND))
    )


def _shadows(unknown: pl.DataFrame) -> pl.DataFrame:
    """Return the unknown addresses that sent something, in the shape of conversations without a destination."""
    nobody = [pl.lit("").alias(tag) for tag in (schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE)]
    return unknown.filter(pl.col(_TX) > 0).select(
        WINDOW,
        pl.lit(Breach.SHADOW.value).alias(schema.KIND),
        pl.col(schema.ADDRESS).alias(schema.SRC),
        pl.col(schema.GROUP).alias(schema.SRC_GROUP),
        *nobody,
        _TX,
        (pl.col(_BYTES) - pl.col(_TX)).alias(_RX),
        _FLOWS,
    ).select(WINDOW, *_TAGS, _TX, _RX, _FLOWS)  # fmt: skip


# -- digest ----------------------------------------------------------------------------------------------


def _digested(talks: pl.DataFrame, scope: Scope) -> pl.DataFrame:
    """Return conversations, those of which too many are alike without the names in which they differ; and how many."""
    source = [schema.KIND, schema.SRC, schema.SRC_GROUP]
    between = [schema.KIND, schema.SRC_GROUP, schema.DST_GROUP]
    pair = [*source, schema.DST, schema.DST_GROUP]
    back = scope.look_back
    is_rest = pl.col(schema.DST) == schema.OTHER
    counted = (
        (talks, source, [schema.DST, schema.DST_GROUP], "targets"),
        (talks, source, [schema.DST_GROUP], "target_groups"),
        (talks, source, [schema.PROTO], "protocols"),
        (talks, pair, [schema.PROTO, schema.SERVICE], "services"),
        (talks, between, [schema.SRC], "openers"),
        (talks, between, [schema.DST], "servers"),
        (talks, between, [schema.PROTO], "between_protocols"),
        # The rest beyond what ingest names is many.
        (talks.filter(is_rest), source, [schema.DST], "rests"),
        (talks.filter(pl.col(schema.SRC) == schema.OTHER), between, [schema.SRC], "rest_openers"),
    )
    for rows, keys, members, name in counted:
        found = recent(rows, keys, members, back).rename({"count": name})
        talks = talks.join(found, on=[*keys, WINDOW], how="left").with_columns(pl.col(name).fill_null(0))

    is_shadow = pl.col(schema.KIND) == Breach.SHADOW.value
    most = pl.when(is_shadow).then(scope.addresses).otherwise(scope.sources)
    is_flood = (pl.col("openers") > most) | (pl.col("rest_openers") > 0)
    is_scan = ~is_shadow & ((pl.col("targets") > scope.destinations) | (pl.col("rests") > 0))
    is_mixed = pl.col("services") > scope.services
    other, nothing = pl.lit(schema.OTHER), pl.lit(0, pl.Int64)

    def named(tag: str, condition: pl.Expr) -> pl.Expr:
        return pl.when(condition & (pl.col(tag) != "")).then(other).otherwise(pl.col(tag)).alias(tag)

    return talks.with_columns(
        named(schema.SRC, is_flood),
        named(schema.DST, is_flood | is_scan),
        named(schema.DST_GROUP, ~is_flood & is_scan & (pl.col("target_groups") > 1)),
        named(
            schema.PROTO,
            (is_flood & (pl.col("between_protocols") > 1)) | (~is_flood & is_scan & (pl.col("protocols") > 1)),
        ),
        named(schema.SERVICE, is_flood | is_scan | is_mixed),
        pl.when(is_flood).then("openers").otherwise(1).cast(pl.Int64).alias(_SOURCES),
        pl.when(is_shadow).then(nothing).when(is_flood).then("servers").when(is_scan).then("targets").otherwise(1)
        .cast(pl.Int64).alias(_DESTINATIONS),
    )  # fmt: skip


def recent(rows: pl.DataFrame, keys: Sequence[str], members: Sequence[str], look_back: int) -> pl.DataFrame:
    """Return how many distinct members each combination of keys had within the look-back that ends with a window.

    Args:
        rows: keys, members, WINDOW.
        keys: what is counted for.
        members: what is counted.
        look_back: seconds: a window counts for all windows less than this after it.

    Returns:
        The keys, WINDOW (those of `rows`, once each), ``count`` (Int64).
    """
    one = [*keys, *members]
    seen = rows.select(*one, WINDOW).unique().sort(WINDOW)
    window = pl.col(WINDOW)
    begins = seen.filter((window - window.shift(1).over(one) >= look_back).fill_null(True))
    ends = seen.filter((window.shift(-1).over(one) - window >= look_back).fill_null(True))
    changes = pl.concat([
        begins.select(*keys, WINDOW, pl.lit(1, pl.Int64).alias("count")),
        ends.select(*keys, window + look_back, pl.lit(-1, pl.Int64).alias("count")),
    ])  # fmt: skip
    levels = (
        changes.group_by(*keys, WINDOW)
        .agg(pl.sum("count"))
        .sort(WINDOW)
        .with_columns(pl.col("count").cum_sum().over(list(keys)))
    )
    asked = seen.select(*keys, WINDOW).unique().sort(WINDOW)
    return asked.join_asof(levels, on=WINDOW, by=list(keys), strategy="backward", check_sortedness=False)


class BreachStudy:
    """Tells violations, unknown addresses and unexpected management connections apart, and each of them once.

    Args:
        cluster: inventory, roles, thresholds.
        store: read from.
    """

    measurements = (schema.BREACH,)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._store = store
        self._scope = scope_of(cluster)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of all windows of the pass; destinations and sources are counted over the time before."""
        del jobs
        start = span.start - self._scope.look_back
        violations = self._read(schema.VIOLATION, (schema.BYTES, schema.FLOWS), start, span.closed)
        fields = (schema.BYTES, schema.FLOWS, schema.TX_BYTES)
        unknown = self._read(schema.UNKNOWN_NODE, fields, start, span.closed)
        found = find(
            violations.select(*VIOLATIONS),
            unknown.with_columns(pl.col(schema.TX_BYTES.name).fill_null(0)).select(*UNKNOWN),
            self._scope,
            span.start,
        )
        return [(schema.BREACH, found)]

    def _read(self, measurement: Measurement, fields: tuple[Field, ...], start: int, stop: int) -> pl.DataFrame:
        tags = [tag for tag in measurement.tags if tag != schema.SHARD]
        found = binned(
            self._store, measurement, schema.RAW, fields, tags, start=start, stop=stop, seconds=self._scope.window,
            as_stored=True,
        )  # fmt: skip
        return found.filter(pl.col(schema.BYTES.name).fill_null(0) + pl.col(schema.FLOWS.name).fill_null(0) > 0).sort(
            WINDOW, *tags
        )
