"""Addresses to names, groups and planes: each distinct address once, by longest prefix match.

IPv4 and IPv6 share one ordered space of 16-byte keys (IPv4 as IPv4-mapped), cut by the prefixes' edges into intervals
that belong to one group each; a look-up is a binary search over the edges.
"""

import socket
from collections.abc import Callable, Iterable
from weakref import WeakMethod

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.model import EXTERNAL, LOCAL, LOCAL_PREFIXES, Address, Cluster, Network, Plane
from enrichment.addresses.prefixes import KEY, address_key, as_keys
from ingest.flows.text_numbers import Texts

_MAPPED = b"\x00" * 10 + b"\xff\xff"

_CACHE_LIMIT = 200_000
"""Addresses beyond the inventory that are remembered between batches: about 20 MB."""

PLANES = tuple(Plane)
NO_PLANE = len(PLANES)
"""Plane code of an address whose plane is not told."""
NO_RAIL = -1


class AddressBook:
    """Numbers addresses and knows for each number the name, the group and the plane.

    The numbers hold until `number` is called when there are too many: that forgets all of them, and tells so before.

    Attributes:
        keys: number -> the address as a key of ``enrichment.addresses.prefixes`` (S16).
        generation: another one since numbers were forgotten.
        groups: group ids; codes index it. The users' groups first, then external and local.
        texts: number -> the address in its one spelling (String).
        names: number -> node name, or the address itself (String).
        group_codes: number -> code (uint8).
        node_planes: number -> code of the plane that the inventory gives to the address, or NO_PLANE (uint8).
        group_planes: number -> code of its group's plane, or NO_PLANE (uint8).
        rails: number -> the rail that the inventory gives to the address, or NO_RAIL (int32).
        listed: number -> whether the inventory knows the address.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.groups: tuple[str, ...] = (*(group.id for group in cluster.groups), EXTERNAL, LOCAL)
        self._edges, self._owners = _intervals(cluster)
        planes = [NO_PLANE if group.plane is None else PLANES.index(group.plane) for group in cluster.groups]
        self._group_planes = np.array([*planes, NO_PLANE, NO_PLANE], np.uint8)
        self._inventory: dict[bytes, tuple[str, int, int]] = {}
        for node in cluster.nodes:
            for entry in node.addresses:
                plane = NO_PLANE if entry.plane is None else PLANES.index(entry.plane)
                rail = NO_RAIL if entry.rail is None else entry.rail
                self._inventory[_key(entry.address)] = (node.name, plane, rail)
        self._users: list[WeakMethod[Callable[[], None]]] = []
        self.generation = 0
        self._reset()

    def before_reset(self, user: Callable[[], None]) -> None:
        """Have a bound method called before numbers are forgotten, as long as its object lives."""
        self._users = [one for one in self._users if one() is not None]
        self._users.append(WeakMethod(user))

    def _reset(self) -> None:
        self._texts = Texts()
        self.keys: npt.NDArray[np.bytes_] = np.empty(0, KEY)
        self.texts = pl.Series("address", [], pl.String)
        self.names = pl.Series("name", [], pl.String)
        self.group_codes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.node_planes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.group_planes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.rails: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self.listed: npt.NDArray[np.bool_] = np.empty(0, np.bool_)

    def __len__(self) -> int:
        return len(self.names)

    def number(self, *columns: pl.Series) -> list[pl.Series]:
        """Return each column of addresses (String) as numbers (UInt32); null where the text is no address.

        Addresses seen for the first time are resolved and remembered.
        """
        if len(self) > _CACHE_LIMIT + len(self._inventory):
            for user in self._users:
                if (settle := user()) is not None:
                    settle()
            self._reset()
            self.generation += 1
        numbered = [self._texts.find(column) for column in columns]
        missing = [
            (numbers, column.filter(numbers.is_null()))
            for column, numbers in zip(columns, numbered, strict=True)
            if numbers.null_count()
        ]
        if missing:
            fresh = pl.concat([texts.alias("text") for _, texts in missing]).unique().drop_nulls()
            if self._add(fresh):
                for numbers, texts in missing:
                    numbers.scatter(numbers.is_null().arg_true(), self._texts.find(texts))
        return numbered

    def _add(self, texts: pl.Series) -> bool:
        """Resolve new texts; False if none of them is an address."""
        keys, good = [], []
        for text in texts.sort().to_list():
            key = address_key(text)
            if key is not None:
                keys.append(key)
                good.append(text)
        if not keys:
            return False
        packed = as_keys(keys)
        codes = self._owners[np.searchsorted(self._edges, packed, side="right") - 1]
        spelled = [_text(key, text) for key, text in zip(keys, good, strict=True)]
        names = [*spelled]
        planes = np.full(len(keys), NO_PLANE, np.uint8)
        rails = np.full(len(keys), NO_RAIL, np.int32)
        listed = np.zeros(len(keys), np.bool_)
        for position, key in enumerate(keys):
            entry = self._inventory.get(key)
            if entry is not None:
                names[position], planes[position], rails[position] = entry
                listed[position] = True
        self.keys = np.concatenate([self.keys, packed])
        self.texts = self.texts.append(pl.Series("address", spelled, pl.String)).rechunk()
        self.names = self.names.append(pl.Series("name", names, pl.String)).rechunk()
        self.group_codes = np.concatenate([self.group_codes, codes])
        self.node_planes = np.concatenate([self.node_planes, planes])
        self.group_planes = np.concatenate([self.group_planes, self._group_planes[codes]])
        self.rails = np.concatenate([self.rails, rails])
        self.listed = np.concatenate([self.listed, listed])
        self._texts.add(pl.Series("text", good, pl.String))
        return True


def _text(key: bytes, text: str) -> str:
    """Return one spelling for each address: what was printed may be IPv4-mapped or not shortened."""
    if key.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, key[12:])
    return socket.inet_ntop(socket.AF_INET6, key) if ":" in text else text


def _key(address: Address) -> bytes:
    return address.packed if address.version == 6 else _MAPPED + address.packed


def _intervals(cluster: Cluster) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.uint8]]:
    """Cut the address space at every prefix edge; each piece belongs to the longest prefix around it.

    Returns:
        Lower edges in order (S16, the first is ``::``), and the group code of each piece.
    """
    external, local = len(cluster.groups), len(cluster.groups) + 1
    owned: list[tuple[Network, int]] = [(network, local) for network in LOCAL_PREFIXES]
    # A user's prefix equal to a reserved one wins: it stands later in the list and ties go to the later.
    owned += [(network, code) for code, group in enumerate(cluster.groups) for network in group.prefixes]
    spans = [(*_span(network), code) for network, code in owned]
    edges = sorted({0, *(low for _, low, _, _ in spans), *(high for _, _, high, _ in spans if high < 1 << 128)})
    owners = np.full(len(edges), external, np.uint8)
    position = {edge: index for index, edge in enumerate(edges)}
    for _, low, high, code in sorted(spans, key=lambda span: span[0]):  # longest last, so that it stays
        owners[position[low] : position.get(high, len(edges))] = code
    return np.array([edge.to_bytes(16, "big") for edge in edges], KEY), owners


def _span(network: Network) -> tuple[int, int, int]:
    """Return its length in bits, its first key, and the first one after it."""
    bits = network.prefixlen + (96 if network.version == 4 else 0)
    first = int.from_bytes(_key(network.network_address), "big")
    return bits, first, first + (1 << (128 - bits))


class Prefixes:
    """Networks of which none lies within another.

    Args:
        networks: of either family.
    """

    def __init__(self, networks: Iterable[Network]) -> None:
        edges = sorted(edge for network in networks for edge in _span(network)[1:] if edge < 1 << 128)
        self._edges = np.array([edge.to_bytes(16, "big") for edge in edges], KEY)

    def hold(self, keys: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bool_]:
        """Return which addresses, as `AddressBook.keys` has them, are in one of them."""
        # Only what follows an odd number of edges is.
        return np.asarray(np.searchsorted(self._edges, keys, side="right") % 2 == 1, np.bool_)
