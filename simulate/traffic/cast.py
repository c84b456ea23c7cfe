"""The parties of a simulation: which addresses of a cluster do what, and the outside world around it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network

import numpy as np
import polars as pl

from app.errors import UserError
from cluster.model import EXTERNAL, Address, Cluster, Group, Network, Node, NodeAddress, Plane, Role
from simulate.packets.addresses import Addresses, group_of
from simulate.packets.flows import Ints

_CLIENTS = 40
"""Addresses of clients, inside a group of users and in the internet, each."""

_FIRST = 10
"""Place in its prefix of the first of them."""

_PARTNERS = 3
"""Approved destinations in use, of each address family."""

# Documentation and benchmark ranges (RFC 5737, 2544, 3849): nobody's addresses.
_INTERNET = ("203.0.113.0/24", "192.0.2.0/24", "198.18.0.0/15")
_INTERNET_V6 = "2001:db8:bad::/48"


@dataclass(frozen=True, slots=True)
class Segment:
    """Addresses that never leave their segment: of the routers on it, of all OSPF routers, of multicast DNS."""

    routers: Network
    all_routers: Address
    mdns: Address


_SEGMENTS = {
    4: Segment(ip_network("169.254.0.0/16"), ip_address("224.0.0.5"), ip_address("224.0.0.251")),
    6: Segment(ip_network("fe80::/64"), ip_address("ff02::5"), ip_address("ff02::fb")),
}
"""By address family."""


@dataclass(frozen=True, slots=True)
class Rail:
    """One network among the training nodes: the address that each node has on it; nodes without one are absent."""

    number: int
    members: dict[str, int]


class Cast:
    """The addresses of a cluster by what they do, as numbers of `addresses`.

    Where a cluster has no IPv4 at all, its IPv6 addresses do everything.

    Args:
        cluster: whose groups and nodes.
        others: more addresses that take part: those of incidents.

    Attributes:
        addresses: all of them.
        rails: networks on which the training nodes exchange gradients.
        training: training node -> the address with which it reads and writes storage.
        control: addresses on the management plane, of all nodes but the managers.
        storage, storage_v6, models, models_v6, inference, managers: servers by role.
        model_nodes: model storage node -> its IPv4 addresses, else all.
        users: clients inside groups without a special role that may talk to inference.
        clients: clients in the internet.
        partners, partners_v6: approved destinations outside.
        strangers: outside addresses with which nobody talks, unless an incident says so.
        routers: a link-local address for each exporter, by its number.
        all_routers, mdns: multicast addresses.
    """

    def __init__(self, cluster: Cluster, others: Iterable[Address] = ()) -> None:
        self.cluster = cluster
        has_v4 = any(entry.address.version == 4 for node in cluster.nodes for entry in node.addresses)
        self._family = 4 if has_v4 or not cluster.nodes else 6
        self._roles = {group.id: group.role for group in cluster.groups}
        outside = cluster.groups_with(Role.APPROVED_EXTERNAL)
        partners = [a for group in outside for a in _hosts(cluster, group, _PARTNERS)]
        users = [
            a
            for group in cluster.groups_with(Role.CUSTOM)
            if any(cluster.is_allowed(group.id, inference.id) for inference in cluster.groups_with(Role.INFERENCE))
            for a in _hosts(cluster, group, _CLIENTS)
        ]
        internet = [address for address in _internet(cluster.groups) if address.version == self._family]
        if len(internet) < 2 * _CLIENTS:
            raise UserError(
                "groups: they hold all documentation addresses, and nobody is left to play the internet",
                f"leave a part of {', '.join(_INTERNET)} free",
            )
        clients, self.stranger_addresses = internet[:_CLIENTS], internet[_CLIENTS:]
        segment = _SEGMENTS[self._family]
        self.routers = tuple(segment.routers[number + 1] for number in range(len(cluster.exporters)))
        local = (segment.all_routers, segment.mdns, *self.routers)
        self.addresses = Addresses(cluster, [*partners, *users, *internet, *local, *others])
        number = self.addresses.numbers
        self.rails = tuple(self._rails())
        self.training = {
            node.name: self.addresses.number(_preferred(node, Plane.STORAGE).address)
            for node in nodes_with(cluster, Role.TRAINING)
        }
        self.control = number(
            entry.address
            for node in cluster.nodes
            if self._roles[node.group] is not Role.MANAGEMENT
            for entry in node.addresses
            if entry.plane is Plane.MANAGEMENT
        )
        self.storage, self.storage_v6 = self._servers(Role.STORAGE)
        self.models, self.models_v6 = self._servers(Role.MODEL_STORAGE)
        self.inference, _ = self._servers(Role.INFERENCE)
        self.managers, _ = self._servers(Role.MANAGEMENT)
        self.model_nodes = {
            node.name: number([a for a in _all(node) if a.version == 4] or _all(node))
            for node in nodes_with(self.cluster, Role.MODEL_STORAGE)
        }
        self.users = number(a for a in users if a.version == self._family)
        self.clients = number(a for a in clients if a.version == self._family)
        self.partners = number(a for a in partners if a.version == self._family)
        self.partners_v6 = number(a for a in partners if a.version == 6)
        self.strangers = number(a for a in self.stranger_addresses if a.version == self._family)
        self.all_routers, self.mdns = number([segment.all_routers, segment.mdns])

    def storage_for(self, own: Ints) -> Ints:
        """Return a storage server for each address, by turns: of its own family where there are any of that."""
        places = np.arange(len(own))
        servers = self.storage[places % len(self.storage)]
        if not len(self.storage_v6):
            return servers
        return np.where(self.addresses.is_v6[own], self.storage_v6[places % len(self.storage_v6)], servers)

    def possible(self, talks: pl.DataFrame) -> pl.DataFrame:
        """Return the talks between addresses of one family."""
        is_v6 = self.addresses.is_v6
        return talks.filter(pl.Series(is_v6[talks["src"].to_numpy()] == is_v6[talks["dst"].to_numpy()]))

    def _servers(self, role: Role) -> tuple[Ints, Ints]:
        """Return the first address and the first IPv6 address of every node of a role."""
        found: tuple[list[Address], list[Address]] = ([], [])
        for node in nodes_with(self.cluster, role):
            for family, addresses in zip((self._family, 6), found, strict=True):
                addresses.extend([a for a in _all(node) if a.version == family][:1])
        return self.addresses.numbers(found[0]), self.addresses.numbers(found[1])

    def _rails(self) -> Iterator[Rail]:
        rails: dict[int, dict[str, int]] = {}
        for node in nodes_with(self.cluster, Role.TRAINING):
            compute = [e for e in node.addresses if e.plane is Plane.COMPUTE] or [node.addresses[0]]
            for position, entry in enumerate(compute):
                rail = position if entry.rail is None else entry.rail
                rails.setdefault(rail, {})[node.name] = self.addresses.number(entry.address)
        for rail in sorted(rails):
            yield Rail(rail, rails[rail])

    def allowed(self, src: Ints, dst: Ints) -> bool:
        """Whether both sets have members, and the cluster's policy lets the first of them talk."""
        if not len(src) or not len(dst):
            return False
        names = self.addresses.groups
        src_group, dst_group = names[self.addresses.group[src[0]]], names[self.addresses.group[dst[0]]]
        return self.cluster.is_allowed(src_group, dst_group)


def nodes_with(cluster: Cluster, role: Role) -> list[Node]:
    """Return the nodes of the groups of a role that have an address, in the order of cluster.yaml."""
    return [node for node in cluster.nodes_with(role) if node.addresses]


def _all(node: Node) -> list[Address]:
    return [entry.address for entry in node.addresses]


def _preferred(node: Node, plane: Plane) -> NodeAddress:
    return next((entry for entry in node.addresses if entry.plane is plane), node.addresses[0])


def _hosts(cluster: Cluster, group: Group, count: int) -> list[Address]:
    """Return up to `count` addresses of a group in each of its prefixes that really belong to it."""
    found = []
    for prefix in group.prefixes:
        offset = min(_FIRST, prefix.num_addresses // 2)
        candidates = (prefix[offset + i] for i in range(min(count, prefix.num_addresses - offset)))
        found += [address for address in candidates if group_of(cluster.groups, address) == group.id]
    return found


@lru_cache(maxsize=8)
def _internet(groups: tuple[Group, ...]) -> list[Address]:
    """Return addresses outside of everything, always the same ones for the same groups."""
    found: list[Address] = []
    for text in (*_INTERNET, _INTERNET_V6):
        network = ip_network(text)
        usable = (network[i] for i in range(1, 101 if network.version == 4 else 401))
        found += [address for address in usable if group_of(groups, address) == EXTERNAL]
    return found
