"""Flow records that we send to our own collector, in the name of an exporter whose address this machine has."""

import socket
from ipaddress import ip_address

from app.errors import ClusterflowError, UserError
from cluster.model import Address, Cluster, Exporter, ExportProtocol, Group, Role, SamplingMode
from simulate.packets.netflow import FlowFormat, NetflowEncoder, RecordColumns
from simulate.packets.udp import Target

HELP = "docs/operations.md shows the lines that cluster.yaml needs"

_RECORDS = 20
"""In one message: it fits a datagram that no network cuts."""


def own_exporter(cluster: Cluster, name: str | None = None) -> Exporter:
    """Return the exporter to speak for: the one of this name, or the first with an address of this machine.

    Raises:
        UserError: there is none.
    """
    known = [one for one in cluster.exporters if one.protocol is ExportProtocol.NETFLOW and one.counts]
    if name is not None:
        known = [one for one in known if one.name == name]
        if not known:
            raise UserError(f"--exporter {name}: expected a NetFlow exporter of cluster.yaml that counts", HELP)
    # One that need not be heard all the time is meant for this.
    for one in sorted(known, key=lambda each: each.watched):
        if _is_ours(one.address):
            return one
    names = ", ".join(f"{one.name} ({one.address})" for one in known) or "none that counts"
    raise UserError(f"exporters: {names}: none has an address of this machine", HELP)


def only_group(cluster: Cluster, role: Role) -> Group:
    """Return the group of a role; UserError where there is none, or more than one."""
    groups = cluster.groups_with(role)
    if len(groups) != 1:
        raise UserError(f"groups: {len(groups)} of role {role.value}: expected one", HELP)
    return groups[0]


def rate_of(exporter: Exporter) -> int:
    """Return by how much the bridge multiplies what an exporter says."""
    return (exporter.sampling.rate or 1) if exporter.sampling.mode is SamplingMode.FIXED else 1


def _is_ours(address: Address) -> bool:
    with socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def collector(cluster: Cluster, exporter: Exporter) -> Target:
    """Return where the collector of cluster.yaml listens, as an exporter on its own machine sees it."""
    host = cluster.collector.listen
    if ip_address(host).is_unspecified:
        # At `::` it hears both.
        host = "::1" if ":" in host and exporter.address.version == 6 else "127.0.0.1"
    return Target(host, cluster.collector.netflow_port)


def send(exporter: Exporter, records: RecordColumns, target: Target, *, domain: int, at: float) -> None:
    """Send records as IPFIX, templates first.

    Args:
        exporter: whose address they come from.
        records: what is sent.
        target: where the collector listens.
        domain: observation domain: with its own templates and sequence numbers.
        at: epoch seconds: time of the messages.

    Raises:
        ClusterflowError: this machine cannot send there.
    """
    moment = int(at * 1000)
    encoder = NetflowEncoder(FlowFormat.IPFIX, domain, int(at) * 1000)
    packed = encoder.pack(records)
    starts = range(0, len(records), _RECORDS)
    # One by one: each bears the sequence number after the one before.
    messages = [
        encoder.hello(moment),
        *(encoder.message(packed, start, min(start + _RECORDS, len(records)), moment) for start in starts),
    ]
    family = socket.AF_INET6 if exporter.address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as speaker:
        try:
            speaker.bind((str(exporter.address), 0))
            for message in messages:
                speaker.sendto(message, (target.host, target.port))
        except OSError as error:
            raise ClusterflowError(
                f"cannot send from {exporter.address} to {target.host}:{target.port}: {error.strerror}",
                "is the collector on another machine? --netflow HOST:PORT names it",
            ) from error
