"""Staging what leaves the cluster: bulk and drip exfiltration, first contacts, nights, scans, model hubs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network

from app.errors import UserError
from cluster.model import Role
from simulate.incidents.expect import egress_alerts, network_alerts, scan_alerts, threat_alerts
from simulate.incidents.incident import Incident, IncidentKind, Listed, Listing, Placement, Transfer, of_transfers
from simulate.incidents.stage import Stage

_HTTPS = 443
_PIECE_SECONDS = 10
_PROBE = 60
"""Bytes of a packet that asks whether anybody is there."""
_HUB_REQUEST = 200_000
_FIRST_NETWORK = 64_512
"""The first of the numbers for private use."""

DAY = 86_400

_EACH = 20
"""Strangers that a theft has to itself."""

LISTED_BEFORE = 7 * DAY
"""How long before it is talked to a feed lists an address."""


def bulk_exfil(stage: Stage, start: int, end: int, *, factor: float = 1.3, node: str = "", to: str = "") -> Incident:
    """Model storage sends `factor` times the exfiltration threshold to an unknown address, in one go."""
    volume = int(stage.cluster.thresholds.exfil_volume * factor)
    source = stage.chosen(node, 0, Role.MODEL_STORAGE)
    return _transfer(
        stage, IncidentKind.BULK_EXFIL, (start, end), node=source.name, target=to or stage.stranger(), volume=volume
    )


def first_contact(
    stage: Stage, start: int, end: int, *, volume: int = 4_000_000, node: str = "", to: str = ""
) -> Incident:
    """A training node sends little to an address that nobody has met."""
    source = stage.chosen(node, 0.2, Role.TRAINING)
    return _transfer(
        stage, IncidentKind.FIRST_CONTACT, (start, end), node=source.name, target=to or stage.stranger(), volume=volume
    )


def known_bad(
    stage: Stage,
    start: int,
    end: int,
    *,
    listed: Listed = Listed.ADDRESS,
    volume: int = 4_000_000,
    node: str = "",
    to: str = "",
) -> Incident:
    """Model storage sends to an address on a threat feed, or to one that was on it, or to the neighbour of one."""
    source = stage.chosen(node, 0, Role.MODEL_STORAGE)
    incident = _transfer(
        stage, IncidentKind.KNOWN_BAD, (start, end), node=source.name, target=to or stage.stranger(), volume=volume
    )
    if listed is Listed.ADDRESS:
        return on_feed(stage, incident)
    if listed is Listed.EXPIRED:
        return replace(incident, listings=(Listing(incident.dst, start - LISTED_BEFORE, start - DAY),))
    address = ip_address(incident.dst)
    # The other half of the prefix of twice the length.
    bits = 24 if address.version == 4 else 64
    beside = type(address)(int(address) ^ 1 << address.max_prefixlen - bits)
    prefix = str(ip_network((beside, bits), strict=False))
    return replace(incident, listings=(Listing(prefix, start - LISTED_BEFORE, end + DAY),))


def on_feed(stage: Stage, incident: Incident) -> Incident:
    """Return a transfer whose destination a threat feed lists since days, with what is owed for that."""
    listing = Listing(incident.dst, incident.start - LISTED_BEFORE, incident.end + DAY)
    told = threat_alerts(stage, incident.src, incident.transfers)
    return replace(incident, listings=(listing,), alerts=(*incident.alerts, *told))


def new_network(
    stage: Stage, start: int, end: int, *, volume: int = 50_000_000, every: int = 0, node: str = ""
) -> Incident:
    """A node sends to a network that nobody else talks to, each time to another address there."""
    source = stage.chosen(node, 0, Role.MODEL_STORAGE)
    begins = list(range(start, end, every)) if every else [start]
    # The first as in other kinds, the others from the far end: they stay strangers to everybody else.
    targets = [stage.stranger(-number - stage.number if number else None) for number in range(len(begins))]
    transfers = tuple(
        Transfer(_speaks(stage, source.name, target), target, at, min(at + _PIECE_SECONDS, end), volume)
        for at, target in zip(begins, targets, strict=True)
    )
    incident = _egress(stage, IncidentKind.NEW_NETWORK, transfers, (start, end), node=source.name, target=targets[0])
    number = _FIRST_NETWORK + stage.number
    # Here it is known whose network it is.
    others = (alert for alert in incident.alerts if alert.rule != "egress_new_asn")
    return replace(
        incident,
        placements=tuple(Placement(target, "NL", number, f"Example Network {stage.number}") for target in targets),
        alerts=(*others, *network_alerts(stage, source.name, transfers)),
    )


def off_hours_transfer(
    stage: Stage, start: int, end: int, *, factor: float = 2.0, node: str = "", to: str = ""
) -> Incident:
    """Model storage sends `factor` times the off-hours threshold to a partner that it has met in the history."""
    # A near miss comes from another node and goes to another partner than the incident beside it.
    is_near_miss = factor < 1
    sources = stage.nodes(Role.MODEL_STORAGE)
    source = stage.node(node) if node else sources[0 if is_near_miss else 1 % len(sources)]
    partner = to or stage.partner(-1 if is_near_miss else 0)
    volume = int(stage.cluster.thresholds.off_hours_bytes * factor)
    return _transfer(
        stage, IncidentKind.OFF_HOURS_TRANSFER, (start, end), node=source.name, target=partner, volume=volume
    )


def approved_transfer(
    stage: Stage, start: int, end: int, *, factor: float = 0.7, node: str = "", to: str = ""
) -> Incident:
    """Model storage sends `factor` times the exfiltration threshold to a partner, which may have it by day."""
    source = stage.chosen(node, 0, Role.MODEL_STORAGE)
    volume = int(stage.cluster.thresholds.exfil_volume * factor)
    partner = to or stage.partner()
    return _transfer(
        stage, IncidentKind.APPROVED_TRANSFER, (start, end), node=source.name, target=partner, volume=volume
    )


def drip_exfil(
    stage: Stage, start: int, end: int, *, volume: int = 60_000_000_000, every: int = 900, node: str = "", to: str = ""
) -> Incident:
    """A node sends `volume` bytes in all to one address, a little every `every` seconds."""
    source = stage.chosen(node, 0, Role.MODEL_STORAGE)
    target = to or stage.stranger()
    src, moments = _speaks(stage, source.name, target), range(start, end, every)
    if not moments:
        raise UserError("drip_exfil: no time to send anything", "let it last longer than `every`")
    transfers = tuple(
        Transfer(src, target, at, min(at + _PIECE_SECONDS, end), volume // len(moments)) for at in moments
    )
    return _egress(stage, IncidentKind.DRIP_EXFIL, transfers, (start, end), node=source.name, target=target)


def theft(
    stage: Stage,
    start: int,
    end: int,
    *,
    volume: int = 140_000_000_000,
    role: Role = Role.MODEL_STORAGE,
    sources: int = 1,
    destinations: int = 1,
    every: int = 300,
) -> Incident:
    """A model leaves in parts: by turns of some nodes of a role, to some addresses, at an even rate."""
    nodes = stage.nodes(role)[:sources]
    own = [str(one) for one in stage.cast.stranger_addresses][_EACH * stage.number :]
    if len(own) < destinations:
        raise UserError(f"{destinations} destinations", f"at most {len(own)}: there are no more to play with")
    targets = own[:destinations]
    moments = range(start, end, every)
    talks: dict[str, list[Transfer]] = {}
    for number, at in enumerate(moments):
        node, target = nodes[number % len(nodes)], targets[number % len(targets)]
        talks.setdefault(node.name, []).append(
            Transfer(
                _speaks(stage, node.name, target), target, at, min(at + every, end), volume // len(moments),
                port=_HTTPS,
            )
        )  # fmt: skip
    alerts = [alert for name, sent in talks.items() for alert in egress_alerts(stage, name, sent)]
    transfers = tuple(sorted((one for sent in talks.values() for one in sent), key=lambda one: one.start))
    kind, name = IncidentKind.THEFT, f"{IncidentKind.THEFT.value}-{role.value}"
    return of_transfers(kind, nodes[0].name, targets[0], transfers, alerts, id=name, end=end, volume=volume)


def port_scan(stage: Stage, start: int, end: int, *, targets: int = 150, node: str = "") -> Incident:
    """A training node knocks at many addresses outside, one packet each, and nobody answers."""
    source = stage.chosen(node, 0.5, Role.TRAINING)
    strangers = stage.strangers(targets)
    span = max(end - start, 1)
    src = _speaks(stage, source.name, strangers[0])
    transfers = tuple(
        Transfer(src, target, at, at + 1, _PROBE, port=22 + number % 3 * 200, reply=0, packet=_PROBE)
        for number, target in enumerate(strangers)
        for at in [start + span * number // len(strangers)]
    )
    alerts = scan_alerts(stage, source.name, transfers, start, end)
    return of_transfers(IncidentKind.PORT_SCAN, source.name, "", transfers, alerts, end=end, port=_HTTPS)


def model_hub(
    stage: Stage, start: int, end: int, *, every: int = DAY, volume: int = 2_000_000_000, node: str = "", to: str = ""
) -> Incident:
    """An inference node fetches a model from an address that no group lists, at the same time again and again."""
    source = stage.chosen(node, 0, Role.INFERENCE)
    target = to or stage.stranger()
    src = _speaks(stage, source.name, target)
    transfers = tuple(
        Transfer(src, target, at, at + _PIECE_SECONDS, _HUB_REQUEST, reply=volume)
        for at in _rhythm(stage, start, end, every)
    )
    return _egress(stage, IncidentKind.MODEL_HUB, transfers, (start, end), node=source.name, target=target)


def _rhythm(stage: Stage, start: int, end: int, every: int) -> list[int]:
    """Return the moments from start on; whole days keep the hour on the wall when daylight saving changes."""
    if every % DAY:
        return list(range(start, end, every))
    zone = stage.cluster.site.time_zone
    moment = datetime.fromtimestamp(start, UTC).astimezone(zone)
    found = []
    while int(moment.timestamp()) < end:
        found.append(int(moment.timestamp()))
        moment += timedelta(seconds=every)
    return found


def _speaks(stage: Stage, node: str, target: str) -> str:
    """Return the node's address of the target's family; its first one if it has none."""
    family = 6 if ":" in target else 4
    entries = stage.node(node).addresses
    own = [entry.address for entry in entries if entry.address.version == family]
    return str(own[0]) if own else str(entries[0].address)


def _transfer(
    stage: Stage, kind: IncidentKind, span: tuple[int, int], *, node: str, target: str, volume: int
) -> Incident:
    talk = Transfer(_speaks(stage, node, target), target, *span, volume, port=_HTTPS)
    return _egress(stage, kind, (talk,), span, node=node, target=target)


def _egress(
    stage: Stage, kind: IncidentKind, transfers: tuple[Transfer, ...], span: tuple[int, int], *, node: str, target: str
) -> Incident:
    start, end = span
    alerts = egress_alerts(stage, node, transfers)
    return of_transfers(kind, node, target, transfers, alerts, start=start, end=end)
