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

UNLISTED = "unlisted"
"""In `egress` alone, the source group of addresses that stand in no group but must be taken for machines of ours."""

PRIVATE_PREFIXES: tuple[Network, ...] = tuple(
    ip_network(prefix)
    for prefix in (
        "10.0.0.0/8",  # RFC 1918, as the next two
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",  # behind a carrier's translation, RFC 6598
        "fc00::/7",  # unique local, RFC 4193
    )
)
"""Nobody outside sends from these: no route leads back there."""

NOBODYS_PREFIXES = tuple(map(IPv4Network, ("198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")))
"""TEST-NET-2 and -3, and the network for benchmarks: nobody is there. Drills go to the first that is in no group."""

RESERVED_GROUPS = {EXTERNAL: "Unknown External", LOCAL: "Multicast & Link-local"}
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
