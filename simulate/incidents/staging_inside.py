"""Staging what should not be inside: forbidden conversations, shadow nodes, intruders, incast, odd clients."""

from dataclasses import replace

from analysis.detectors.inference.access import EVERY
from app.errors import UserError
from cluster.model import Plane, Role
from simulate.incidents import expect
from simulate.incidents.alert_evidence import Piece
from simulate.incidents.incident import Expected, Incident, IncidentKind, Placement, Seen, Transfer, of_transfers
from simulate.incidents.stage import Stage
from simulate.traffic import routine
from store import schema

Labels = tuple[tuple[str, str], ...]

_NFS, _SSH, _INFERENCE, _NCCL = 2049, 22, 8443, 29500

_MINUTE = 60
_SYN = 60
"""Bytes of a packet that asks whether anybody is there."""

_HOME = "NL"
"""Where the clients of inference are that ask it every day."""
_CARRIER = (64_501, "Example Carrier")
"""Whose addresses they have."""


def forbidden_transfer(
    stage: Stage, start: int, end: int, *, factor: float = 20.0, node: str = "", to: str = ""
) -> Incident:
    """An inference node reads from training storage, `factor` times the bytes that a stray conversation may have."""
    source = stage.chosen(node, 0, Role.INFERENCE)
    target = stage.chosen(to, 0, Role.STORAGE)
    limit = stage.cluster.thresholds.violation_bytes
    volume = int(limit * factor)
    talk = Transfer(stage.address(source), stage.address(target), start, end, volume, port=_NFS)
    alerts: tuple[Expected, ...] = ()
    if not stage.cluster.is_allowed(source.group, target.group):
        alerts = _violation(stage, "segmentation_violation", _ends(source.name, target.name), talk, limit)
    return of_transfers(IncidentKind.FORBIDDEN_TRANSFER, source.name, target.name, (talk,), alerts)


def storage_bleed(stage: Stage, start: int, end: int, *, factor: float = 3.0, node: str = "", to: str = "") -> Incident:
    """A training node writes to storage over a compute rail, `factor` times the bytes that may go there."""
    source = stage.chosen(node, 0.6, Role.TRAINING)
    target = stage.chosen(to, 0, Role.STORAGE)
    limit = stage.cluster.thresholds.storage_on_compute_bytes
    volume = int(limit * factor)
    address = stage.address(source, Plane.COMPUTE)
    talk = Transfer(address, stage.address(target), start, end, volume, port=_NFS, packet=9000)
    alerts = _violation(stage, "storage_on_compute_plane", _ends(source.name, target.name), talk, limit)
    return of_transfers(IncidentKind.STORAGE_BLEED, source.name, target.name, (talk,), alerts)


def shadow_node(
    stage: Stage, start: int, end: int, *, factor: float = 1000.0, address: str = "", to: str = ""
) -> Incident:
    """An address of the training network that no inventory knows writes to storage."""
    source = address or _unlisted(stage)
    target = stage.chosen(to, 0, Role.STORAGE)
    limit = stage.cluster.thresholds.shadow_node_bytes
    volume = int(limit * factor)
    talk = Transfer(source, stage.address(target), start, end, volume, port=_NFS)
    about = expect.labels(**{schema.SRC: source, schema.DST: target.name, schema.ADDRESS: source})
    alerts = _violation(stage, "shadow_node", about, talk, limit)
    return of_transfers(IncidentKind.SHADOW_NODE, source, target.name, (talk,), alerts)


def management_intruder(
    stage: Stage, start: int, end: int, *, factor: float = 100.0, node: str = "", to: str = "", port: int = _SSH
) -> Incident:
    """An inference node logs in to a management node."""
    source = stage.chosen(node, 0, Role.INFERENCE)
    target = stage.chosen(to, 0, Role.MANAGEMENT)
    limit = stage.cluster.thresholds.management_bytes
    volume = int(limit * factor)
    talk = Transfer(stage.address(source), stage.address(target), start, end, volume, port=port, reply=volume)
    alerts: tuple[Expected, ...] = ()
    if _is_unexpected(stage, source.group, port):
        alerts = _violation(stage, "unexpected_management_connection", _ends(source.name, target.name), talk, limit)
    return of_transfers(IncidentKind.MANAGEMENT_INTRUDER, source.name, target.name, (talk,), alerts)


def refused_scan(
    stage: Stage, start: int, end: int, *, targets: int = 12, every: int = 2, position: float = 0.4, node: str = ""
) -> Incident:
    """A training node calls SSH of others, by turns; where a cloud logs flows, its security group refuses."""
    source = stage.chosen(node, position, Role.TRAINING)
    others = [one for one in stage.nodes(Role.TRAINING) if one is not source][:targets]
    if len(others) < targets:
        raise UserError(f"{targets} targets", f"at most {len(others)}: there are no more training nodes")
    talks = tuple(
        Transfer(
            stage.address(source), stage.address(others[number % targets]), at, at + 1, _SYN, _SSH, reply=0, packet=_SYN
        )
        for number, at in enumerate(range(start, max(end, start + 1), every))
    )
    alerts = expect.refused_alerts(stage, source.name, talks)
    return of_transfers(IncidentKind.REFUSED_SCAN, source.name, "", talks, alerts)


def management_session(
    stage: Stage,
    start: int,
    end: int,
    *,
    factor: float = 20.0,
    node: str = "",
    to: str = "",
    port: int = _SSH,
    proto: int = 6,
    seen: Seen = Seen.BOTH,
    every: int = 0,
) -> Incident:
    """A training node opens a management service of a storage node: it may, and never did."""
    source = stage.chosen(node, 0, Role.TRAINING)
    target = stage.chosen(to, 0, Role.STORAGE)
    client, server = stage.address(source, Plane.MANAGEMENT), stage.address(target, Plane.MANAGEMENT)
    volume = int(stage.cluster.thresholds.first_session_bytes * factor)
    answer = volume * 3 // 4 if seen is Seen.BOTH else 0
    begins = [(at, min(at + _MINUTE, end)) for at in range(start, end, every)] if every else [(start, end)]
    talks = tuple(
        Transfer(server, client, *span, volume, port=port, proto=proto, reply=0, packet=600, answers=True)
        if seen is Seen.BACK
        else Transfer(client, server, *span, volume - answer, port=port, proto=proto, reply=answer, packet=600)
        for span in begins
    )
    alerts = expect.session_alerts(stage, source, target, talks)
    return of_transfers(IncidentKind.MANAGEMENT_SESSION, source.name, target.name, talks, alerts)


def _ends(src: str, dst: str) -> Labels:
    return expect.labels(**{schema.SRC: src, schema.DST: dst})


def _violation(stage: Stage, rule: str, about: Labels, talk: Transfer, limit: float) -> tuple[Expected, ...]:
    """Return what a rule about the segmentation owes for a conversation, both its directions together."""
    window = stage.cluster.thresholds.violation_window
    pieces = [Piece(talk.start, talk.end, talk.volume + (talk.reply or 0))]
    return expect.volume_alert(stage, rule, about, pieces, window=window, limit=limit)


def _is_unexpected(stage: Stage, group: str, port: int) -> bool:
    settings = stage.cluster.management
    services = {service.name for service in stage.cluster.services if port in service.ports}
    return group not in settings.sources and not services & set(settings.services)


def _unlisted(stage: Stage) -> str:
    """Return an address of a training network that no node has."""
    taken = {entry.address for node in stage.cluster.nodes for entry in node.addresses}
    for group in stage.cluster.groups_with(Role.TRAINING):
        for prefix in group.prefixes:
            found = prefix[min(prefix.num_addresses - 2, 60_000)]
            if found not in taken and stage.group_of(str(found)) == group.id:
                return str(found)
    raise UserError("shadow_node: no address of a training group is free", "name one with `address`")


def incast(
    stage: Stage, start: int, end: int, *, volume: int = 10_000_000_000, sources: int = 12, to: str = ""
) -> Incident:
    """So many training nodes write `volume` bytes each to one storage node at the same time."""
    nodes = stage.nodes(Role.TRAINING)[:sources]
    if len(nodes) < sources:
        raise UserError(f"incast: {sources} sources", f"at most {len(nodes)}, as many as there are training nodes")
    target = stage.chosen(to, 0.5, Role.STORAGE)
    transfers = tuple(
        Transfer(stage.address(node, Plane.STORAGE), stage.address(target), start, end, volume, port=_NFS, packet=9000)
        for node in nodes
    )
    alerts = expect.incast_alerts(stage, target.name, transfers)
    return of_transfers(IncidentKind.INCAST, "", target.name, transfers, alerts)


def disturbance(
    stage: Stage, start: int, end: int, *, volume: int = 120_000_000_000, node: str = "", to: str = ""
) -> Incident:
    """A training node sends `volume` bytes to another over the compute rails, whoever's it is."""
    source, target = stage.chosen(node, 0.99, Role.TRAINING), stage.chosen(to, 0, Role.TRAINING)
    src, dst = (stage.address(one, Plane.COMPUTE) for one in (source, target))
    talk = Transfer(src, dst, start, end, volume, port=_NCCL, packet=9000)
    alerts = expect.disturbance_alerts(stage, source.name, target.name, talk)
    # Whose nodes are disturbed, the alert says by the job.
    job = next((dict(one.labels)[schema.JOB] for one in alerts), "")
    return of_transfers(IncidentKind.DISTURBANCE, source.name, target.name, (talk,), alerts, job=job)


def storage_rush(stage: Stage, start: int, end: int, *, volume: int = 60_000_000_000) -> Incident:
    """All inference nodes read from model storage at once: a model is rolled out. No alert, but who keeps it busy."""
    servers, stores = stage.nodes(Role.INFERENCE), stage.nodes(Role.MODEL_STORAGE)
    talks = tuple(
        Transfer(
            stage.address(stores[place % len(stores)]), stage.address(server), start, end, volume, port=_NFS,
            packet=9000, answers=True,
        )
        for place, server in enumerate(servers)
    )  # fmt: skip
    return of_transfers(IncidentKind.STORAGE_RUSH, "", "", talks, ())


# -- inference -------------------------------------------------------------------------------------


def inference_spike(stage: Stage, start: int, end: int, *, factor: float = 3.0) -> Incident:
    """The clients of inference send `factor` times what they send at that time of the week."""
    servers = [int(number) for number in stage.cast.inference]
    clients = [int(number) for number in stage.cast.users]
    if not servers or not clients:
        raise UserError("inference_spike: nobody asks anything", "it needs inference nodes and users")
    text = stage.cast.addresses.text
    expected = routine.expected_load(stage.cast, start) * routine.LOAD_SECONDS
    transfers = []
    every = routine.LOAD_SECONDS // 5
    for at in range(start, end, every):
        extra = routine.expected_load(stage.cast, at) * every * (factor - 1)
        for position, server in enumerate(servers):
            client = clients[position % len(clients)]
            share = int(extra / len(servers))
            until = min(at + every, end)
            transfers.append(Transfer(text[client], text[server], at, until, share, port=_INFERENCE, reply=10 * share))
    limits = stage.cluster.thresholds
    alerts: tuple[Expected, ...] = ()
    weeks = 0 if stage.history is None else (start - stage.history.start) // (7 * 86_400)
    upper = limits.inference_spike_spreads * max(
        0.1 * expected, limits.inference_spike_bytes / limits.inference_spike_spreads
    )
    if weeks >= limits.inference_min_weeks:
        group = stage.cluster.groups_with(Role.INFERENCE)[0].id
        found = expect.volume_alert(
            stage,
            "inference_spike",
            expect.labels(**{schema.GROUP: group}),
            [Piece(one.start, one.end, one.volume) for one in transfers],
            window=routine.LOAD_SECONDS,
            limit=upper,
        )
        # What everybody asks anyway varies: from the spike's begin on it may already be above its limit.
        alerts = tuple(
            replace(
                one,
                due=one.due + limits.inference_spike_for,
                earliest=expect.early(stage, start + limits.inference_spike_for),
            )
            for one in found
        )
    return of_transfers(IncidentKind.INFERENCE_SPIKE, "", "", tuple(transfers), alerts)


def inference_intruder(
    stage: Stage, start: int, end: int, *, factor: float = 20.0, node: str = "", to: str = ""
) -> Incident:
    """A storage node asks inference, which it may not reach."""
    source = stage.chosen(node, 0, Role.STORAGE)
    target = stage.chosen(to, 0, Role.INFERENCE)
    limit = stage.cluster.thresholds.inference_unauthorised_bytes
    volume = int(limit * factor)
    talk = Transfer(
        stage.address(source), stage.address(target), start, end, volume, port=_INFERENCE, reply=10 * volume
    )
    alerts: tuple[Expected, ...] = ()
    if not _may_ask(stage, source.group, target.group):
        alerts = _asking(stage, "inference_unauthorised_source", _ends(source.name, target.name), talk, limit)
    return of_transfers(IncidentKind.INFERENCE_INTRUDER, source.name, target.name, (talk,), alerts)


def _client(stage: Stage, incident: str) -> str:
    """Return the address of a client that may ask inference."""
    if not len(stage.cast.users):
        raise UserError(f"{incident}: no clients", "add a group of role custom that may talk to inference")
    return str(stage.cast.addresses.text[int(stage.cast.users[0])])


def _asking(stage: Stage, rule: str, about: Labels, talk: Transfer, limit: float) -> tuple[Expected, ...]:
    """Return what a rule about clients of inference owes for what one of them sends."""
    window = stage.cluster.thresholds.inference_window
    pieces = [Piece(talk.start, talk.end, talk.volume)]
    return expect.volume_alert(stage, rule, about, pieces, window=window, limit=limit)


def _may_ask(stage: Stage, source: str, target: str) -> bool:
    named = stage.cluster.inference.sources
    return stage.cluster.is_allowed(source, target) and (not named or source in named)


def inference_off_window(stage: Stage, start: int, end: int, *, factor: float = 5.0, to: str = "") -> Incident:
    """A client that may ask inference does so outside `inference.hours`."""
    target = stage.chosen(to, 0, Role.INFERENCE)
    source = _client(stage, "inference_off_window")
    limit = stage.cluster.thresholds.inference_off_window_bytes
    volume = int(limit * factor)
    talk = Transfer(source, stage.address(target), start, end, volume, port=_INFERENCE, reply=10 * volume)
    alerts = expect.off_window_alert(stage, source, target.name, [Piece(start, end, volume)])
    return of_transfers(IncidentKind.INFERENCE_OFF_WINDOW, source, target.name, (talk,), alerts)


def inference_unlisted(
    stage: Stage, start: int, end: int, *, factor: float = 20.0, client: str = "", to: str = "", port: int = _SSH
) -> Incident:
    """A client that may ask inference calls a service there that `inference.access` does not list for it."""
    target = stage.chosen(to, 0, Role.INFERENCE)
    usual = _client(stage, "inference_unlisted")
    source = client or usual
    limit = stage.cluster.thresholds.inference_access_bytes
    volume = int(limit * factor)
    talk = Transfer(source, stage.address(target), start, end, volume, port=port, reply=10 * volume)
    alerts: tuple[Expected, ...] = ()
    if not _is_listed(stage, stage.group_of(source), target.group, port):
        alerts = _asking(stage, "inference_access_denied", _ends(source, target.name), talk, limit)
    return of_transfers(IncidentKind.INFERENCE_UNLISTED, source, target.name, (talk,), alerts)


def unusual_country(
    stage: Stage,
    start: int,
    end: int,
    *,
    factor: float = 20.0,
    country: str = "BR",
    to: str = "",
    port: int = _INFERENCE,
) -> Incident:
    """A client from another country than all clients before asks a service of inference."""
    target = stage.chosen(to, 0, Role.INFERENCE)
    source = stage.stranger()
    limits = stage.cluster.thresholds
    volume = int(limits.unusual_country_bytes * factor)
    talk = Transfer(source, stage.address(target), start, end, volume, port=port, reply=10 * volume)
    text = stage.cast.addresses.text
    placements = [Placement(source, country, *_CARRIER)]
    placements += [Placement(str(text[int(client)]), _HOME, *_CARRIER) for client in stage.cast.clients]
    alerts: tuple[Expected, ...] = ()
    # A service that nobody has asked before learns.
    if country != _HOME and port == _INFERENCE and not _learns_countries(stage, start):
        # What is sent after the clock has shown five more minutes counts from zero.
        shown = min(end, start // EVERY * EVERY + EVERY)
        alerts = expect.volume_alert(
            stage,
            "inference_unusual_country",
            expect.labels(**{schema.SRC: source, schema.DST: target.name, schema.COUNTRY: country}),
            [Piece(start, shown, volume * (shown - start) / (end - start))],
            window=limits.inference_window,
            limit=limits.unusual_country_bytes,
        )
    return of_transfers(
        IncidentKind.UNUSUAL_COUNTRY, source, target.name, (talk,), alerts, placements=tuple(placements)
    )


def client_crowd(stage: Stage, start: int, end: int, *, count: int = 5_000, volume: int = 30_000_000) -> Incident:
    """So many clients that may ask inference all do so at once. No alert: among them others are harder to see."""
    servers = [stage.address(server) for server in stage.nodes(Role.INFERENCE)]
    groups = [stage.group_of(str(stage.cast.addresses.text[int(user)])) for user in stage.cast.users[:1]]
    prefixes = [prefix for group in stage.cluster.groups if group.id in groups for prefix in group.prefixes]
    widest = max(prefixes, key=lambda prefix: prefix.num_addresses, default=None)
    if widest is None or widest.num_addresses < 2 * count:
        raise UserError(f"client_crowd: no {count} clients", "widen a group of role custom that may talk to inference")
    # Those that ask every day are the first of the prefix.
    clients = [str(widest[widest.num_addresses // 2 + number]) for number in range(count)]
    talks = tuple(
        Transfer(client, servers[place % len(servers)], start, end, volume, port=_INFERENCE, reply=volume)
        for place, client in enumerate(clients)
    )
    return of_transfers(IncidentKind.CLIENT_CROWD, "", "", talks, ())


def _learns_countries(stage: Stage, moment: int) -> bool:
    """Whether countries are learnt at a moment: routine clients ask from the first minutes of a scenario on."""
    history = stage.history
    learning = stage.cluster.thresholds.country_learning
    return history is None or moment < history.start + learning + EVERY or stage.is_learning(moment)


def _is_listed(stage: Stage, source: str, target: str, port: int) -> bool:
    """Return whether the list names a conversation of which nobody knows user and country, or there is no list."""
    services = {service.name for service in stage.cluster.services if port in service.ports}
    entries = stage.cluster.inference.access
    return not entries or any(
        not entry.users
        and not entry.countries
        and source in (entry.sources or (source,))
        and target in (entry.destinations or (target,))
        and (not entry.services or services & set(entry.services))
        for entry in entries
    )
