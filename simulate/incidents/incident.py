"""What can be staged: incidents that alert rules must find, and near misses on which they must stay quiet."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class IncidentKind(StrEnum):
    """What can be staged; each has a function of its own in a module ``simulate.staging_*``."""

    BULK_EXFIL = "bulk_exfil"
    DRIP_EXFIL = "drip_exfil"
    FIRST_CONTACT = "first_contact"
    OFF_HOURS_TRANSFER = "off_hours_transfer"
    APPROVED_TRANSFER = "approved_transfer"
    PORT_SCAN = "port_scan"
    MODEL_HUB = "model_hub"
    KNOWN_BAD = "known_bad"
    NEW_NETWORK = "new_network"
    THEFT = "theft"
    HIDDEN_CHANNEL = "hidden_channel"
    OUTSIDE_PULL = "outside_pull"
    STEADY_CONNECTION = "steady_connection"
    BEACON = "beacon"

    FORBIDDEN_TRANSFER = "forbidden_transfer"
    STORAGE_BLEED = "storage_bleed"
    SHADOW_NODE = "shadow_node"
    MANAGEMENT_INTRUDER = "management_intruder"
    MANAGEMENT_SESSION = "management_session"
    REFUSED_SCAN = "refused_scan"
    INCAST = "incast"
    DISTURBANCE = "disturbance"
    STORAGE_RUSH = "storage_rush"
    INFERENCE_SPIKE = "inference_spike"
    INFERENCE_INTRUDER = "inference_intruder"
    INFERENCE_OFF_WINDOW = "inference_off_window"
    INFERENCE_UNLISTED = "inference_unlisted"
    UNUSUAL_COUNTRY = "unusual_country"
    CLIENT_CROWD = "client_crowd"

    NODE_DROPOUT = "node_dropout"
    RACK_DOWN = "rack_down"
    DEAD_RAIL = "dead_rail"
    WRONG_MTU = "wrong_mtu"
    HELD_SILENT = "held_silent"
    COHORT_SLOWDOWN = "cohort_slowdown"
    JOB_STALLED = "job_stalled"
    RANKS_MOVED = "ranks_moved"
    CHECKPOINT_MISSED = "checkpoint_missed"
    CHECKPOINT_LATE = "checkpoint_late"
    CHECKPOINT_SHORT = "checkpoint_short"

    EXPORTER_SILENT = "exporter_silent"
    EXPORT_OFF = "export_off"
    EXPORTER_SKEWED = "exporter_skewed"
    EXPORTER_DUPLICATES = "exporter_duplicates"
    CONGESTED_LINK = "congested_link"
    FLOW_LOSS = "flow_loss"
    TEMPLATE_LOSS = "template_loss"

    INGEST_STOPPED = "ingest_stopped"
    INGEST_BEHIND = "ingest_behind"
    ANALYSIS_STOPPED = "analysis_stopped"
    LIST_BROKEN = "list_broken"
    RELAY_SILENT = "relay_silent"


EGRESS = frozenset(
    {
        IncidentKind.BULK_EXFIL,
        IncidentKind.DRIP_EXFIL,
        IncidentKind.FIRST_CONTACT,
        IncidentKind.OFF_HOURS_TRANSFER,
        IncidentKind.APPROVED_TRANSFER,
        IncidentKind.MODEL_HUB,
        IncidentKind.KNOWN_BAD,
    }
)
"""Transfers from one node to one address outside: the store has the pair's bytes under both names."""

LOSSES = frozenset({IncidentKind.FLOW_LOSS, IncidentKind.TEMPLATE_LOSS})
"""What an exporter sends in the meantime reaches nobody, though it is counted in its sequence numbers."""

CHECKPOINTS = frozenset({IncidentKind.CHECKPOINT_MISSED, IncidentKind.CHECKPOINT_LATE, IncidentKind.CHECKPOINT_SHORT})


class Listed(StrEnum):
    """What a threat feed lists where traffic with a known bad address is staged."""

    ADDRESS = "address"
    EXPIRED = "expired"
    NEIGHBOUR = "neighbour"


class Seen(StrEnum):
    """Which directions of a conversation exporters see."""

    BOTH = "both"
    FORTH = "forth"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Listing:
    """An entry of the threat feed: it holds `indicator` from `start` to `end`, epoch seconds."""

    indicator: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an address outside is, and whose: country (ISO code), number and name of the autonomous system."""

    address: str
    country: str
    number: int
    organisation: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """One conversation that is part of an incident.

    Attributes:
        src: address that sends `volume` IP bytes.
        dst: address that receives them and listens on `port`, unless `answers`.
        start, end: epoch seconds, end exclusive.
        volume: as planned.
        port, proto: of the server, and the protocol number.
        reply: IP bytes back; None means bare acknowledgements of TCP, and nothing for other protocols.
        packet: bytes of a full packet.
        answers: `src` is the server: it sends because `dst` asked.
    """

    src: str
    dst: str
    start: int
    end: int
    volume: int
    port: int = 443
    proto: int = 6
    reply: int | None = None
    packet: int = 1500
    answers: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """An alert that must fire, or that may.

    Attributes:
        rule: id of the rule.
        labels: (name, value): what its labels must say, as far as the rule has labels of these names.
        due: epoch second at which the evidence is complete, by the cluster's thresholds.
        until: epoch second after which an alert that begins has another cause.
        must: False where it may as well stay quiet.
        earliest: epoch second before which too little of the evidence is there; 0: from the incident's begin on.
        most: how many alerts it may be, each from its begin to its end.
    """

    rule: str
    labels: tuple[tuple[str, str], ...]
    due: int
    until: int
    must: bool = True
    earliest: int = 0
    most: int = 1


@dataclass(frozen=True, slots=True)
class Incident:
    """Something staged: an incident that rules must find, or a near miss on which they must stay quiet.

    Attributes:
        id: name within the scenario.
        start, end: epoch seconds, end exclusive.
        src, src_address: node that sends.
        dst: address that receives; for a dropout the group that gets less.
        proto, port: of the conversation.
        volume: IP bytes, as planned (transfers).
        share: what is left of the ordinary bytes (jobs), or of the records (losses).
        job: id of the run it happens to.
        nodes: nodes of the run that it happens to; empty: all of them. Of moved ranks: all, in the new order.
        exporter: whose records it concerns; `onto`: which exporter repeats them.
        rail: number of the rail that is dead.
        packet: bytes of a full packet of a node with another MTU.
        interface: ifIndex of the congested interface; `load`: what it carries beside the flows, as a share of its
            speed; `discards`: packets a second; `marks`: share of the packets of `src` that are marked.
        seconds: by how much a clock is off, or a checkpoint late.
        transfers: the traffic that it adds.
        listings: what a threat feed lists because of it.
        placements: what a file of places says because of it.
        alerts: what must or may fire.
    """

    id: str
    kind: IncidentKind
    start: int
    end: int
    src: str = ""
    src_address: str = ""
    dst: str = ""
    proto: int = 6
    port: int = 443
    volume: int = 0
    share: float = 1.0
    job: str = ""
    nodes: tuple[str, ...] = ()
    exporter: str = ""
    onto: str = ""
    rail: int = 0
    packet: int = 0
    interface: int = 0
    load: float = 0.0
    discards: int = 0
    marks: float = 0.0
    seconds: int = 0
    transfers: tuple[Transfer, ...] = field(default=(), repr=False)
    listings: tuple[Listing, ...] = ()
    placements: tuple[Placement, ...] = ()
    alerts: tuple[Expected, ...] = ()

    @property
    def expected(self) -> tuple[str, ...]:
        """Ids of the alert rules that must fire; none for a near miss."""
        return tuple(dict.fromkeys(alert.rule for alert in self.alerts if alert.must))

    @property
    def is_near_miss(self) -> bool:
        """Whether no rule must fire."""
        return not self.expected


def of_transfers(
    kind: IncidentKind,
    src: str,
    dst: str,
    transfers: tuple[Transfer, ...],
    alerts: Iterable[Expected],
    **more: Any,  # noqa: ANN401
) -> Incident:
    """Return an incident that is some transfers: as the first one says, unless `more` does."""
    name = src or dst
    incident = Incident(
        id=f"{kind.value}-{name}" if name else kind.value,
        kind=kind,
        start=min(one.start for one in transfers),
        end=max(one.end for one in transfers),
        src=src,
        src_address=transfers[0].src if src else "",
        dst=dst,
        proto=transfers[0].proto,
        port=transfers[0].port,
        volume=sum(one.volume for one in transfers),
        transfers=transfers,
        alerts=tuple(alerts),
    )
    return replace(incident, **more)
