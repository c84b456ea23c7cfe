"""Odd ways out: which conversations with unapproved addresses have a shape that no ordinary use has.

    tunnel      protocols that carry others (GRE, ESP, IP in IP ...), VXLAN and QUIC
    covert      ICMP, DNS and NTP: a few bytes are their business, volume is not
    no_service  TCP, UDP and SCTP to a port that no service has
    pull        the outside opened the connection and reads; not from inference, which answers anybody
    steady      one conversation, open at a constant rate for half a day

A conversation has one of the first four at most, in this order; it may be steady besides. Who opened is told from
ports (see `ServiceBook`): that is why these are warnings, while the volume itself is judged by `exfiltration`.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from analysis.detectors.egress import exfiltration
from analysis.detectors.egress.exfiltration import TALK, Apart, Grid, Horizon, Incident, State
from analysis.detectors.egress.exfiltration_study import watched
from analysis.detectors.egress.history import BIN, BYTES, CODE, DAY, GROUP_TODAY, HOUR, EgressHistory, boundary
from analysis.detectors.study import Points, Span
from cluster.model import EXTERNAL, Cluster, Job, Role, Service
from store import schema
from store.influx import Store
from store.influxql import Select, everything, is_in
from store.points import WINDOW
from store.schema import Shape
from store.sums import binned

_TCP, _UDP = 6, 17
_WITH_PORTS = ("tcp", "udp", "sctp")
_ICMP = ("icmp", "ipv6-icmp")
_NEIGHBOURS = ("igmp", "ospf", "eigrp", "pim", "vrrp", "rsvp", "unknown", schema.OTHER)
"""What routers say to each other, and records that name no protocol: no tunnels."""
_TUNNEL_PORTS = frozenset({443, 4789})
_SMALL_PORTS = frozenset({53, 123})

STEADY_HOURS = 12
_OPEN = 0.9
"""Share of each hour in which a steady connection sends."""
_EVEN = 0.1
"""Largest relative deviation of its hours: a constant rate, and not somebody's day."""

KEY = (schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE, schema.INITIATOR)


def shape_of(services: Sequence[Service], serving: Sequence[str]) -> pl.Expr:
    """Return the shape of conversations with unapproved addresses by their tags; null where there is none.

    Args:
        services: of the cluster.
        serving: ids of the groups that answer anybody.
    """
    proto, service = pl.col(schema.PROTO), pl.col(schema.SERVICE)

    def named(ports: frozenset[int], protocol: int) -> pl.Expr:
        return service.is_in([one.name for one in services if protocol in one.protocols and ports & {*one.ports}])

    is_other = ~proto.is_in([*_WITH_PORTS, *_ICMP, *_NEIGHBOURS])
    is_pull = (pl.col(schema.INITIATOR) == schema.BY_DESTINATION) & ~pl.col(schema.SRC_GROUP).is_in(list(serving))
    small = (named(_SMALL_PORTS, _UDP) & (proto == "udp")) | (named(_SMALL_PORTS, _TCP) & (proto == "tcp"))
    is_answer = pl.col(schema.INITIATOR) == schema.BY_DESTINATION
    return (
        pl.when(is_other | ((proto == "udp") & named(_TUNNEL_PORTS, _UDP) & ~is_answer))
        .then(pl.lit(Shape.TUNNEL.value))
        .when(proto.is_in(_ICMP) | small)
        .then(pl.lit(Shape.COVERT.value))
        .when(proto.is_in(_WITH_PORTS) & (service == schema.OTHER) & ~is_answer)
        .then(pl.lit(Shape.NO_SERVICE.value))
        .when(is_pull & proto.is_in(_WITH_PORTS))
        .then(pl.lit(Shape.PULL.value))
    )


def steady(hours: pl.DataFrame, until: int) -> pl.DataFrame:
    """Return the hours of the conversations that were steady for the last `STEADY_HOURS` whole hours.

    Args:
        hours: WINDOW, KEY, bytes, duration: whole hours, labels summed up.
        until: end of the last of them, epoch seconds.
    """
    recent = hours.filter(pl.col(WINDOW) >= until - STEADY_HOURS * HOUR, pl.col(WINDOW) < until)
    judged = recent.group_by(KEY).agg(
        (pl.col(schema.DURATION.name) >= _OPEN * HOUR).sum().alias("open"),
        (pl.col(BYTES).std() / pl.col(BYTES).mean()).alias("spread"),
    )
    kept = judged.filter(pl.col("open") == STEADY_HOURS, pl.col("spread") <= _EVEN, pl.col(schema.DST) != schema.OTHER)
    return recent.join(kept.select(KEY), on=KEY, how="semi")


_TALKS = {**dict.fromkeys(TALK, pl.String()), schema.KIND: pl.String(), WINDOW: pl.Int64(), BYTES: pl.Int64()}


class ShapeStudy:
    """Finds odd ways out.

    Args:
        cluster: groups, services, thresholds, artefacts.
        store: read from.
        history: shared with other studies of long ranges; its bins of five minutes are what sums are made of.
    """

    measurements = (schema.SHAPE,)

    def __init__(self, cluster: Cluster, store: Store, history: EgressHistory) -> None:
        self._cluster, self._store, self._history = cluster, store, history
        groups = watched(cluster)
        self._groups = tuple(group.id for group in groups)
        self._serving = [group.id for group in groups if group.role is Role.INFERENCE]
        limits = cluster.thresholds
        steady = STEADY_HOURS * HOUR
        self._horizons = (
            Horizon(Shape.TUNNEL, HOUR, limits.channel_bytes),
            Horizon(Shape.COVERT, HOUR, limits.channel_small_bytes),
            Horizon(Shape.NO_SERVICE, HOUR, limits.channel_bytes),
            Horizon(Shape.PULL, HOUR, limits.pull_bytes),
            Horizon(Shape.STEADY, steady, limits.steady_bytes),
        )
        self._known: tuple[int, Mapping[Shape, State]] | None = None
        self._made: tuple[tuple[int, int], int, pl.DataFrame] | None = None
        self._hours = pl.DataFrame()
        self._hours_of = (0, 0)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of all full five minutes from `span.start` on that have closed."""
        del jobs
        if not self._groups:
            return []
        key = (span.closed // BIN, -(-span.final // BIN))
        # Nothing new has closed that is judged.
        if self._made is None or self._made[0] != key or span.start < self._made[1]:
            self._made = key, span.start, self._pass(span)
        return [(schema.SHAPE, self._made[2].filter(pl.col(WINDOW) >= span.start))]

    def _pass(self, span: Span) -> pl.DataFrame:
        self._history.load(span)
        first, mark = (-(-moment // BIN) * BIN for moment in (span.start, span.final))
        bins_from, upto = first - HOUR - BIN, span.closed // BIN * BIN
        talks = self._talks(bins_from, upto)
        hours = self._steady_hours(span)
        states = self._states_at(first, talks, bins_from)
        found: list[tuple[int, Incident]] = []
        saved = {}
        grids = {
            one.kind: Grid(self._of(talks, one.kind), self._groups, start=bins_from, stop=upto, step=BIN)
            for one in self._horizons
        }
        for at in range(first, span.closed, BIN):
            if at == mark:
                saved = {kind: state.copy() for kind, state in states.items()}
            for horizon in self._horizons:
                kind = Shape(horizon.kind)
                state = states[kind]
                _grow(state, self._groups, grids[kind], at)
                if kind is Shape.STEADY:
                    self._judge_steady(state, horizon, hours, at)
                else:
                    self._judge_sum(state, horizon, grids[kind], self._of(talks, kind), at)
                found += [(at, one) for one in state.open.values()]
        if mark >= span.closed:
            saved = {kind: state.copy() for kind, state in states.items()}
        self._known = mark, saved
        return exfiltration.rows(found, self._cluster.artefacts)

    def _judge_sum(self, state: State, horizon: Horizon, grid: Grid, talks: pl.DataFrame, at: int) -> None:
        begin = max(at - horizon.seconds, state.reported)
        sent = grid.between(begin, at)
        if sent.sum() > horizon.limit:
            within = talks.filter(pl.col(WINDOW) >= begin, pl.col(WINDOW) < at)
            group = self._groups[exfiltration.leader(sent, sent)]
            untold = exfiltration.untold(state, self._groups, sent)
            exfiltration.report(state, at, horizon, talks=within, sent=float(sent.sum()), untold=untold, group=group)
        apart = Apart(self._groups, grid, talks, lambda _, sent: sent > horizon.limit)
        exfiltration.judge_apart(state, at, horizon, at - horizon.seconds, apart)

    def _judge_steady(self, state: State, horizon: Horizon, hours: pl.DataFrame, at: int) -> None:
        """Judge the whole hours before a moment, once an hour."""
        until = boundary(at)
        if until == boundary(at - BIN) or hours.is_empty():
            return
        found = steady(hours, until)
        by_group = found.group_by(schema.SRC_GROUP).agg(pl.col(BYTES).sum()).sort(BYTES, schema.SRC_GROUP)
        sent = float(found.get_column(BYTES).sum())
        if sent > horizon.limit:
            talks = found.with_columns(pl.lit("").alias(name) for name in (schema.COUNTRY, schema.NETWORK))
            group = str(by_group[-1, schema.SRC_GROUP])
            newest = found.filter(pl.col(WINDOW) == until - HOUR).get_column(BYTES).sum()
            exfiltration.report(
                state, at, horizon, talks=talks.select(*TALK, WINDOW, BYTES), sent=sent, untold=float(newest),
                group=group,
            )  # fmt: skip

    # -- reading -----------------------------------------------------------------------------------

    def _talks(self, start: int, stop: int) -> pl.DataFrame:
        """Return the bins of conversations that have a shape: _TALKS."""
        of_shape = (
            self._history.conversations.filter(
                pl.col(schema.SRC_GROUP).is_in(self._groups), pl.col(GROUP_TODAY) == EXTERNAL
            )
            .with_columns(shape_of(self._cluster.services, self._serving).alias(schema.KIND))
            .filter(pl.col(schema.KIND).is_not_null())
        )
        bins = self._history.bins(start, stop)
        return bins.join(of_shape, on=CODE).select(*_TALKS)

    @staticmethod
    def _of(talks: pl.DataFrame, kind: object) -> pl.DataFrame:
        return talks.filter(pl.col(schema.KIND) == str(kind))

    def _steady_hours(self, span: Span) -> pl.DataFrame:
        """Return the whole hours that steady connections are looked for in: read once an hour."""
        start, stop = boundary(span.start) - (STEADY_HOURS + 1) * HOUR, boundary(span.closed)
        if self._hours_of != (start, stop):
            where = [is_in(schema.SRC_GROUP, self._groups), is_in(schema.DST_GROUP, [EXTERNAL])]
            self._hours = binned(
                self._store, schema.EGRESS, schema.HOUR, (schema.BYTES, schema.DURATION), KEY,
                start=start, stop=stop, seconds=HOUR, where=where,
            ).filter(pl.col(BYTES) > 0)  # fmt: skip
            self._hours_of = start, stop
        return self._hours

    def _states_at(self, first: int, talks: pl.DataFrame, bins_from: int) -> dict[Shape, State]:
        """Return the states before a moment: of the last pass, else from the rows that an earlier process wrote."""
        kinds = [Shape(one.kind) for one in self._horizons]
        if self._known is not None and self._known[0] == first:
            return {kind: self._known[1][kind].copy() for kind in kinds}
        asked = Select(schema.SHAPE, schema.SHAPE.kept).take(everything()).between(first - 2 * DAY, first)
        stored = self._store.frame(asked.text())
        if stored.is_empty():
            return {kind: State() for kind in kinds}
        missing = [tag for tag in schema.SHAPE.tags if tag not in stored.columns]
        named = stored.with_columns((pl.col("time") // 1000).alias(WINDOW), *(pl.lit("").alias(tag) for tag in missing))
        found = {}
        for kind in kinds:
            state, seen = exfiltration.state_of(named.filter(pl.col(schema.KIND) == kind.value), first)
            grid = Grid(self._of(talks, kind), self._groups, start=bins_from, stop=first, step=BIN)
            for group, one in state.open.items():
                if group in self._groups:
                    more = grid.between(seen[group], first - BIN)[self._groups.index(group)]
                    state.open[group] = one.grown(first - BIN, more)
            found[kind] = state
        return found


def _grow(state: State, groups: Sequence[str], grid: Grid, at: int) -> None:
    """Add the last bytes to the incidents that are open, and close those that are over."""
    state.close(at)
    if state.open:
        sent = grid.between(at - BIN, at)
        for group, one in state.open.items():
            if group in groups:
                state.open[group] = one.grown(at, float(sent[groups.index(group)]))
