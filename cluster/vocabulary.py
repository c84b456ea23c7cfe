"""What sections of cluster.yaml share: addresses, reserved groups, planes."""

from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

EXTERNAL = "external"
"""The group of every routable address that no group's prefix holds."""

LOCAL = "local"
"""The group of addresses that never leave their segment: multicast, broadcast, link-local, loopback, unspecified."""

LOCAL_PREFIXES: tuple[Network, ...] = tuple(
    ip_network(prefix)
    for prefix in (
        "0.0.0.0/8",  # this network, RFC 1122
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local
        "224.0.0.0/4",  # multicast
        "255.255.255.255/32",  # limited broadcast
        "::/128",  # unspecified
        "::1/128",  # loopback
        "fe80::/10",  # link-local
        "ff00::/8",  # multicast
    )
)
"""What the group LOCAL holds."""

RESERVED_GROUPS = {
    EXTERNAL: "Unknown External",
    LOCAL: "Multicast & Link-local",
}
"""Group ids that users cannot define, with their titles."""

ANY = "*"
"""Stands for every group in `allowed`, `transport` and `authority`."""


class Plane(StrEnum):
    """The network that a flow crossed."""

    COMPUTE = "compute"
    STORAGE = "storage"
    MANAGEMENT = "management"
    FRONTEND = "frontend"
    UNKNOWN = "unknown"
