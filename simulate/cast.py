"""Who plays in a simulation: which addresses of a cluster do what, and the outside world around it."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from cluster.errors import UserError
from cluster.model import EXTERNAL, Address, Cluster, Group, Node, NodeAddress, Plane, Role
from simulate.addresses import Addresses, group_of
from simulate.flows import Ints

_CLIENTS = 40
"""Addresses of clients, inside a group of users and in the internet, each."""

_PARTNERS = 3
"""Approved destinations in use, of each address family."""

# Documentation and benchmark ranges (RFC 5737, 2544, 3849): nobody's addresses.
_INTERNET = ("203.0.113.0/24", "192.0.2.0/24", "198.18.0.0/15")
_INTERNET_V6 = "2001:db8:bad::/48"

ALL_ROUTERS = ip_address("224.0.0.5")
MDNS = ip_address("224.0.0.251")


@dataclass(frozen=True, slots=True)
class Rail:
    """One network among the training nodes: the address that each node has on it; nodes without one are absent."""

    number: int
    members: dict[str, int]


class Cast:
    """The addresses of a cluster by what they do, as numbers of `addresses`.

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
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._roles = {group.id: group.role for group in cluster.groups}
        outside = cluster.groups_with(Role.APPROVED_EXTERNAL)
        partners = [a for group in outside for a in _hosts(cluster, group, _PARTNERS, 10)]
        users = [
            a
            for group in cluster.groups_with(Role.CUSTOM)
            if any(cluster.is_allowed(group.id, inference.id) for inference in cluster.groups_with(Role.INFERENCE))
            for a in _hosts(cluster, group, _CLIENTS, 10)
        ]
        internet = _internet(cluster)
        if len(internet) < 2 * _CLIENTS:
            raise UserError(
                "groups: they hold all documentation addresses, and nobody is left to play the internet",
                f"leave a part of {', '.join(_INTERNET)} free",
            )
        clients, self.stranger_addresses = internet[:_CLIENTS], internet[_CLIENTS:]
        self.addresses = Addresses(cluster, [*partners, *users, *internet, ALL_ROUTERS, MDNS])
        number = self.addresses.numbers
        self.rails = tuple(self._rails())
        self.training = {
            node.name: self.addresses.number(_preferred(node, Plane.STORAGE).address)
            for node in self._nodes(Role.TRAINING)
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
            node.name: number([a.address for a in node.addresses if a.address.version == 4] or _all(node))
            for node in self._nodes(Role.MODEL_STORAGE)
        }
        self.users = number(a for a in users if a.version == 4)
        self.clients = number(a for a in clients if a.version == 4)
        self.partners = number(a for a in partners if a.version == 4)
        self.partners_v6 = number(a for a in partners if a.version == 6)
        self.strangers = number(a for a in self.stranger_addresses if a.version == 4)
        self.local = number([ALL_ROUTERS, MDNS])

    def _nodes(self, role: Role) -> list[Node]:
        return [node for node in self.cluster.nodes if self._roles[node.group] is role and node.addresses]

    def _servers(self, role: Role) -> tuple[Ints, Ints]:
        """Return the first IPv4 and the first IPv6 address of every node of a role."""
        found: tuple[list[Address], list[Address]] = ([], [])
        for node in self._nodes(role):
            for family, addresses in zip((4, 6), found, strict=True):
                addresses.extend([a for a in _all(node) if a.version == family][:1])
        return self.addresses.numbers(found[0]), self.addresses.numbers(found[1])

    def _rails(self) -> Iterator[Rail]:
        rails: dict[int, dict[str, int]] = {}
        for node in self._nodes(Role.TRAINING):
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


def _all(node: Node) -> list[Address]:
    return [entry.address for entry in node.addresses]


def _preferred(node: Node, plane: Plane) -> NodeAddress:
    return next((entry for entry in node.addresses if entry.plane is plane), node.addresses[0])


def _hosts(cluster: Cluster, group: Group, count: int, first: int) -> list[Address]:
    """Return up to `count` addresses of a group in each of its prefixes that really belong to it."""
    found = []
    for prefix in group.prefixes:
        offset = min(first, prefix.num_addresses // 2)
        candidates = (prefix[offset + i] for i in range(min(count, prefix.num_addresses - offset)))
        found += [address for address in candidates if group_of(cluster, address) == group.id]
    return found


def _internet(cluster: Cluster) -> list[Address]:
    """Return addresses outside of everything, always the same ones for the same groups."""
    found: list[Address] = []
    for text in (*_INTERNET, _INTERNET_V6):
        network = ip_network(text)
        usable = (network[i] for i in range(1, 101))
        found += [address for address in usable if group_of(cluster, address) == EXTERNAL]
    return found
