"""Every address of a simulation, numbered once: flows carry the numbers, and look up text, bytes, group and node.

The groups are found here a second time, independently of the bridge, so that the ground truth can convict it.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.model import EXTERNAL, LOCAL, Address, Cluster, Group


class Addresses:
    """A fixed, numbered set of addresses of one cluster and its surroundings.

    Attributes:
        text: number -> address (String).
        v4: number -> four bytes, zero for IPv6; uint8, shape (n, 4).
        v6: number -> sixteen bytes, zero for IPv4; uint8, shape (n, 16).
        is_v6: number -> family.
        groups: group ids that `group` indexes; the reserved ones last.
        group: number -> index of its group (int64).
        nodes: node names that `node` indexes.
        node: number -> index of its node, -1 if none (int64).
    """

    def __init__(self, cluster: Cluster, others: Iterable[Address]) -> None:
        owners = {entry.address: node.name for node in cluster.nodes for entry in node.addresses}
        # Sorted: the numbers, and with them everything drawn, depend on the set alone.
        everything = sorted({*owners, *others}, key=lambda address: (address.version, int(address)))
        self._numbers = {address: number for number, address in enumerate(everything)}
        self.text = pl.Series("address", [str(address) for address in everything], pl.String)
        self.is_v6 = np.array([address.version == 6 for address in everything], np.bool_)
        self.v4: NDArray[np.uint8] = np.zeros((len(everything), 4), np.uint8)
        self.v6: NDArray[np.uint8] = np.zeros((len(everything), 16), np.uint8)
        for number, address in enumerate(everything):
            packed = self.v4 if isinstance(address, IPv4Address) else self.v6
            packed[number] = np.frombuffer(address.packed, np.uint8)
        self.groups = (*(group.id for group in cluster.groups), EXTERNAL, LOCAL)
        self.group = np.array(
            [self.groups.index(group_of(cluster.groups, address)) for address in everything], np.int64
        )
        self.nodes = tuple(node.name for node in cluster.nodes)
        index = {name: position for position, name in enumerate(self.nodes)}
        self.node = np.array([index[owners[a]] if a in owners else -1 for a in everything], np.int64)

    def __len__(self) -> int:
        return len(self.text)

    def number(self, address: Address) -> int:
        """Return the number of an address; KeyError if it is not part of the simulation."""
        return self._numbers[address]

    def numbers(self, addresses: Iterable[Address]) -> NDArray[np.int64]:
        """Return the numbers of several addresses."""
        return np.array([self._numbers[address] for address in addresses], np.int64)


def group_of(groups: tuple[Group, ...], address: Address) -> str:
    """Return the group whose longest prefix holds the address, or the reserved group that it falls into."""
    best, length = "", -1
    for group in groups:
        for prefix in group.prefixes:
            if prefix.prefixlen > length and address in prefix:
                best, length = group.id, prefix.prefixlen
    if best:
        return best
    is_local = address.is_multicast or address.is_link_local or address.is_loopback or address.is_unspecified
    return LOCAL if is_local or str(address) == "255.255.255.255" else EXTERNAL
