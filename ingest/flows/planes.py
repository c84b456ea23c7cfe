"""Which network a flow crossed, and whether it belonged there."""

import numpy as np
import numpy.typing as npt

from cluster.model import Cluster, Plane, Role
from cluster.sections.network.services import ROCE_PORT, UDP
from ingest.flows.classify import NO_PLANE, PLANES, AddressBook

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

_COMPUTE, _UNKNOWN = PLANES.index(Plane.COMPUTE), PLANES.index(Plane.UNKNOWN)


class PlaneBook:
    """Judges planes by interface, inventory and group.

    Args:
        cluster: roles of its groups.
        addresses: planes of addresses and of their groups.
    """

    def __init__(self, cluster: Cluster, addresses: AddressBook) -> None:
        self._book = addresses
        known = {group.id: group for group in cluster.groups}
        groups = [known.get(name) for name in addresses.groups]
        storage = (Role.STORAGE, Role.MODEL_STORAGE)
        self._is_storage = np.array([group is not None and group.role in storage for group in groups])
        self._is_inside = np.array([group is not None and not group.is_outside for group in groups])

    def resolve(self, of_interface: Codes, addresses: tuple[Ints, Ints], protocol: Ints, dst_port: Ints) -> Codes:
        """Return the plane of each record: the interface's, else a node address's, else a group's.

        Args:
            of_interface: plane code of the interface that it entered by, or NO_PLANE.
            addresses: numbers of source and destination.
            protocol: IP protocol numbers.
            dst_port: destination ports.
        """
        rows = np.flatnonzero(of_interface == NO_PLANE)
        if not len(rows):
            return of_interface
        src, dst = (numbers[rows] for numbers in addresses)
        book = self._book
        found = book.node_planes[src]
        for fallback in (book.node_planes[dst], book.group_planes[src], book.group_planes[dst]):
            found = np.where(found == NO_PLANE, fallback, found)
        # RoCEv2 has no place but a lossless fabric: where nothing better is known, that is the compute plane's.
        is_roce = (protocol[rows] == UDP) & (dst_port[rows] == ROCE_PORT)
        found = np.where(found == NO_PLANE, np.where(is_roce, _COMPUTE, _UNKNOWN), found)
        plane = of_interface.copy()
        plane[rows] = found
        return plane

    def is_wrong(self, of_interface: Codes, addresses: tuple[Ints, Ints], groups: tuple[Codes, Codes]) -> Flags:
        """Return which records are storage traffic on the compute plane.

        The interface says where a record was seen; where it says nothing, the inventory's planes of both addresses do.
        A group's plane is no evidence of where its traffic went, only of where it belongs: storage that belongs to the
        compute plane, or to none that is known, is on no wrong one.

        Args:
            of_interface: plane code of the interface that it entered by, or NO_PLANE.
            addresses: numbers of source and destination.
            groups: their group codes.
        """
        wrong = np.zeros(len(of_interface), np.bool_)
        is_storage = tuple(self._is_storage[group] for group in groups)
        may_be = (is_storage[0] | is_storage[1]) & ((of_interface == _COMPUTE) | (of_interface == NO_PLANE))
        rows = np.flatnonzero(may_be)
        rows = rows[self._is_inside[groups[0][rows]] & self._is_inside[groups[1][rows]]]
        if not len(rows):
            return wrong
        seen = of_interface[rows]
        on_compute = seen == _COMPUTE
        belongs_elsewhere = np.zeros(len(rows), np.bool_)
        for numbers, is_own in zip(addresses, is_storage, strict=True):
            of_node = self._book.node_planes[numbers[rows]]
            home = np.where(of_node == NO_PLANE, self._book.group_planes[numbers[rows]], of_node)
            on_compute |= (seen == NO_PLANE) & (of_node == _COMPUTE)
            belongs_elsewhere |= is_own[rows] & (home != NO_PLANE) & (home != _COMPUTE)
        wrong[rows] = on_compute & belongs_elsewhere
        return wrong
