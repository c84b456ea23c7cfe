"""Whose datagrams pmacct's daemons take, in the words of their allow files.

As pmacct 1.7.7 reads such a file (`load_allow_file` and `str_to_addr_mask` in its source; tried on its daemons):

- It has an address or a prefix a line. Those beyond the 2,048th are left out, and their senders dropped, in silence.
- Of an IPv6 prefix only whole bytes are heeded, and the last one begun is taken for whole: fd00:60::/60 is read as
  fd00:60::/64. So a prefix between is written as all those of the next whole byte.
- A source that is IPv4 in the clothing of IPv6 is compared as IPv4: it must not stand here in that clothing, which
  cluster.yaml refuses anyhow.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_address, ip_network

from app.errors import UserError
from cluster.model import Cluster, ExportProtocol, Network
from cluster.scalars.names import show_source

MOST_LINES = 2048
"""MAX_MAP_ENTRIES of pmacct."""

_BYTE = 8


def senders(cluster: Cluster, protocol: ExportProtocol) -> tuple[Network, ...]:
    """Return whose datagrams a daemon takes; none: everybody's.

    NetFlow's exporters are known by the source of their datagrams. An sFlow exporter is known by what its datagrams say
    of themselves, and their source is often another address of the switch: it has to be told.
    """
    if protocol is ExportProtocol.SFLOW:
        return cluster.collector.sflow_sources
    return tuple(ip_network(exporter.address) for exporter in cluster.exporters if exporter.protocol is protocol)


def is_heard(cluster: Cluster, version: int) -> bool:
    """Whether the daemons listen to datagrams of an IP version: at ``::`` to both."""
    listen = ip_address(cluster.collector.listen)
    return listen.version == version or (listen.version == 6 and listen.is_unspecified)


def allow_lines(networks: Iterable[Network]) -> list[str]:
    """Return the lines of an allow file that takes what comes from these, and from nobody else.

    They keep their order, unless that would be too many: then neighbours share a line, as far as there are any.
    """
    given = tuple(networks)
    lines = _written(given)
    return lines if len(lines) <= MOST_LINES else _written(_collapsed(given))


def overlong(cluster: Cluster) -> Iterator[UserError]:
    """Yield what is wrong with allow files of which pmacct would not read the end."""
    for protocol, daemon, place, hint in (
        (ExportProtocol.NETFLOW, "nfacctd", "exporters", "give each of several collectors those that send to it"),
        (ExportProtocol.SFLOW, "sfacctd", "collector.sflow_sources", "name prefixes instead of addresses"),
    ):
        count = len(allow_lines(senders(cluster, protocol)))
        if count > MOST_LINES:
            yield UserError(
                f"{place}: {count:,} lines in {daemon}'s allow file: expected at most {MOST_LINES:,}, or it drops the "
                "other senders in silence",
                hint,
            )


def _written(networks: Iterable[Network]) -> list[str]:
    whole = (part for network in networks for part in _of_whole_bytes(network))
    return list(dict.fromkeys(show_source(network) for network in whole))


def _of_whole_bytes(network: Network) -> Iterator[Network]:
    """Yield the network, or what it consists of, such that pmacct reads it for what it is."""
    if isinstance(network, IPv6Network) and network.prefixlen % _BYTE:
        yield from network.subnets(new_prefix=-(-network.prefixlen // _BYTE) * _BYTE)
    else:
        yield network


def _collapsed(networks: Iterable[Network]) -> list[Network]:
    given = tuple(networks)
    return [
        *collapse_addresses(network for network in given if isinstance(network, IPv4Network)),
        *collapse_addresses(network for network in given if isinstance(network, IPv6Network)),
    ]
