"""Staging odd ways out: tunnels and the like, outsiders who fetch, steady connections, beacons."""

import numpy as np

from analysis.detectors.egress.history import BIN
from analysis.detectors.egress.shapes import STEADY_HOURS
from cluster.model import EXTERNAL, Cluster, Role
from simulate.incidents import expect
from simulate.incidents.alert_evidence import Piece, crossing
from simulate.incidents.incident import Expected, Incident, IncidentKind, Transfer, of_transfers
from simulate.incidents.stage import Stage
from store import schema

_HOUR = 3_600
_GRE, _TCP, _UDP, _SSH = 47, 6, 17, 22
_QUIC = 443
_REQUEST = 200_000
_BEACON = 77
"""Stream of random numbers."""
_SMALL = frozenset({1, 58})
_SMALL_PORTS = frozenset({(_TCP, 53), (_UDP, 53), (_UDP, 123)})
_HELD = 26 * _HOUR
"""A steady connection is one incident while it goes on, and for a day after."""


def hidden_channel(
    stage: Stage,
    start: int,
    end: int,
    *,
    proto: int = _GRE,
    port: int = 0,
    volume: int = 1_500_000_000,
    role: Role = Role.INFERENCE,
    node: str = "",
    to: str = "",
) -> Incident:
    """A node sends through a tunnel, or by another protocol or port that ordinarily carries little."""
    source = stage.chosen(node, 0, role)
    target = to or stage.stranger()
    talk = Transfer(stage.address(source), target, start, end, volume, port=port, proto=proto, reply=0)
    limit = _channel_limit(stage.cluster, proto, port)
    alerts: tuple[Expected, ...] = ()
    if limit and stage.group_of(target) == EXTERNAL:
        alerts = _sum_alert(stage, "hidden_channel", source.group, Piece(start, end, volume), limit)
    owed = expect.egress_alerts(stage, source.name, (talk,))
    return _incident(IncidentKind.HIDDEN_CHANNEL, source.name, target, talk, (*owed, *alerts))


def outside_pull(
    stage: Stage, start: int, end: int, *, volume: int = 3_000_000_000, port: int = _SSH, node: str = "", to: str = ""
) -> Incident:
    """An outsider connects to model storage and fetches."""
    cluster, limits = stage.cluster, stage.cluster.thresholds
    source = stage.chosen(node, 0, Role.MODEL_STORAGE)
    outsider = to or stage.stranger()
    talk = Transfer(outsider, stage.address(source), start, end, _REQUEST, port=port, reply=volume)
    group = stage.group_of(outsider)
    alerts: tuple[Expected, ...] = ()
    if group == EXTERNAL:
        alerts += _sum_alert(stage, "outside_pull", source.group, Piece(start, end, volume), limits.pull_bytes)
    if not cluster.is_allowed(group, source.group):
        about = expect.labels(**{schema.SRC: outsider, schema.DST: source.name})
        pieces = [Piece(start, end, volume + _REQUEST)]
        alerts += expect.volume_alert(
            stage, "segmentation_violation", about, pieces, window=limits.violation_window,
            limit=limits.violation_bytes,
        )  # fmt: skip
    return _incident(IncidentKind.OUTSIDE_PULL, source.name, outsider, talk, alerts)


def steady_connection(
    stage: Stage,
    start: int,
    end: int,
    *,
    volume: int = 3_000_000_000,
    role: Role = Role.INFERENCE,
    node: str = "",
    to: str = "",
) -> Incident:
    """A node holds a connection to an address outside and sends at a constant rate."""
    source = stage.chosen(node, 0, role)
    target = to or stage.stranger()
    talk = Transfer(stage.address(source), target, start, end, volume, port=_SSH)
    first = -(-start // _HOUR) * _HOUR
    whole = first + STEADY_HOURS * _HOUR
    alerts: tuple[Expected, ...] = ()
    sent = volume / (end - start) * STEADY_HOURS * _HOUR
    is_long = whole <= end and sent > stage.cluster.thresholds.steady_bytes
    if is_long and stage.group_of(target) == EXTERNAL:
        # Hours are whole an hour after their end.
        due = whole + _HOUR + BIN
        about = expect.labels(**{schema.SRC_GROUP: source.group})
        alerts = (
            Expected("steady_connection", about, due, end + _HELD, earliest=expect.early(stage, due, spare=_HOUR)),
        )
    owed = expect.egress_alerts(stage, source.name, (talk,))
    return _incident(IncidentKind.STEADY_CONNECTION, source.name, target, talk, (*owed, *alerts))


def beacon(
    stage: Stage,
    start: int,
    end: int,
    *,
    every: int = 300,
    jitter: float = 0.0,
    volume: int = 4_000,
    sources: int = 1,
    port: int = _QUIC,
    proto: int = _TCP,
    role: Role = Role.INFERENCE,
    node: str = "",
    to: str = "",
) -> Incident:
    """Nodes call an address outside again and again, at a period that varies by a part of itself."""
    nodes = [stage.node(node)] if node else stage.nodes(role)[:sources]
    target = to or stage.stranger()
    rng = np.random.default_rng([stage.seed, stage.number, _BEACON])
    talks: dict[str, list[Transfer]] = {}
    for one in nodes:
        sleeps = every * (1 + jitter * rng.uniform(-1, 1, 2 * (end - start) // every + 2))
        moments = start + np.cumsum(sleeps).astype(int)
        address = stage.address(one)
        talks[one.name] = [
            Transfer(address, target, int(at), int(at) + 1, volume, port=port, proto=proto)
            for at in moments[moments < end]
        ]
    alerts = [alert for name, sent in talks.items() for alert in expect.egress_alerts(stage, name, sent)]
    if len(nodes) > stage.cluster.thresholds.beacon_sources:
        alerts = [alert for alert in alerts if alert.rule != "beacon"]
    first = nodes[0].name
    transfers = tuple(sorted((one for sent in talks.values() for one in sent), key=lambda one: one.start))
    address = talks[first][0].src
    return of_transfers(
        IncidentKind.BEACON, first, target, transfers, alerts, start=start, end=end, src_address=address
    )


def _channel_limit(cluster: Cluster, proto: int, port: int) -> int:
    """Return how much may leave in an hour by a protocol and port; 0: as much as by any other."""
    limits = cluster.thresholds
    if proto in _SMALL or (proto, port) in _SMALL_PORTS:
        return limits.channel_small_bytes
    if proto == _UDP and port == _QUIC:
        return limits.channel_bytes
    known = any(port in one.ports and proto in one.protocols for one in cluster.services)
    return 0 if proto in (_TCP, _UDP) and known else limits.channel_bytes


def _sum_alert(stage: Stage, rule: str, group: str, piece: Piece, limit: int) -> tuple[Expected, ...]:
    seen = crossing([piece], window=_HOUR, limit=limit, step=BIN, close=expect.CLOSE)
    if seen is None:
        return ()
    about = expect.labels(**{schema.SRC_GROUP: group})
    earliest = expect.early(stage, seen.earliest, step=BIN)
    return (Expected(rule, about, seen.first, seen.last + _HOUR + expect.GRACE, earliest=earliest),)


def _incident(kind: IncidentKind, node: str, outside: str, talk: Transfer, alerts: tuple[Expected, ...]) -> Incident:
    address, volume = talk.dst if talk.src == outside else talk.src, max(talk.volume, talk.reply or 0)
    return of_transfers(kind, node, outside, (talk,), alerts, src_address=address, volume=volume)
