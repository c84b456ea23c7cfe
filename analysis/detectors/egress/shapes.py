"""Odd ways out: which conversations with unapproved addresses have a shape that no ordinary use has.

    tunnel      protocols that carry others (GRE, ESP, IP in IP ...), VXLAN and QUIC
    covert      ICMP and DNS: a few bytes are their business, volume is not
    no_service  TCP, UDP and SCTP to a port that no service has
    pull        the outside opened the connection and reads; not from inference, which answers anybody
    steady      one conversation, open at a constant rate for half a day

A conversation has one of the first four at most, in this order; it may be steady besides. Who opened is told from
ports (see `ServiceBook`): that is why these are warnings, while the volume itself is judged by `exfiltration`.
"""

from collections.abc import Sequence

import polars as pl

from analysis.detectors.egress.history import BYTES, HOUR
from cluster.model import Service
from store import schema
from store.points import WINDOW
from store.schema import Shape

_TCP, _UDP = 6, 17
_WITH_PORTS = ("tcp", "udp", "sctp")
_ICMP = ("icmp", "ipv6-icmp")
_NEIGHBOURS = ("igmp", "ospf", "eigrp", "pim", "vrrp", "rsvp", "unknown", schema.OTHER)
"""What routers say to each other, and records that name no protocol: no tunnels."""
_TUNNEL_PORTS = frozenset({443, 4789})
_NAME_PORTS = frozenset({53})

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
    names = (named(_NAME_PORTS, _UDP) & (proto == "udp")) | (named(_NAME_PORTS, _TCP) & (proto == "tcp"))
    is_answer = pl.col(schema.INITIATOR) == schema.BY_DESTINATION
    return (
        pl.when(is_other | ((proto == "udp") & named(_TUNNEL_PORTS, _UDP) & ~is_answer))
        .then(pl.lit(Shape.TUNNEL.value))
        .when(proto.is_in(_ICMP) | names)
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
