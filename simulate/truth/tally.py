"""Parts of the ground truth: bytes of rails, storage endpoints and interfaces, found independently of the bridge."""

from collections import Counter
from typing import Any

import numpy as np
import polars as pl

from cluster.model import Cluster, Role
from simulate.packets.addresses import Addresses
from simulate.packets.flows import Ints
from simulate.packets.polls import InterfaceCounters, Poll
from store.schema import OTHER

_SENT, _RECEIVED = 0, 1


class Tally:
    """Adds up bytes as `GroundTruth` does.

    Args:
        cluster: who stands where.
        addresses: what the flows' numbers mean.
    """

    def __init__(self, cluster: Cluster, addresses: Addresses) -> None:
        self._cluster = cluster
        by_text = {
            str(entry.address): (node.name, entry.rail)
            for node in cluster.nodes
            for entry in node.addresses
            if entry.rail is not None
        }
        self._rails = [by_text.get(text) for text in addresses.text.to_list()]
        storage = {group.id for group in cluster.groups_with(Role.STORAGE, Role.MODEL_STORAGE)}
        listed = {node.group for node in cluster.nodes}
        self._endpoints: list[tuple[str, str] | None] = []
        for text, group, node in zip(addresses.text.to_list(), addresses.group, addresses.node, strict=True):
            owner = addresses.groups[group]
            name = addresses.nodes[node] if node >= 0 else OTHER if owner in listed else text
            self._endpoints.append((name, owner) if owner in storage else None)
        # Address number -> bytes sent, bytes received, each flow once.
        self._bytes = np.zeros((len(addresses), 2), np.int64)
        self._interfaces: tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]] = (Counter(), Counter())
        # Exporter, ifIndex -> the first and the newest poll.
        self._polled: dict[tuple[int, int], tuple[InterfaceCounters, InterfaceCounters]] = {}

    def add_counted(self, src: Ints, dst: Ints, volume: Ints) -> None:
        """Add bytes between addresses, each flow once."""
        np.add.at(self._bytes[:, _SENT], src, volume)
        np.add.at(self._bytes[:, _RECEIVED], dst, volume)

    def add_seen(self, frame: pl.DataFrame) -> None:
        """Add scaled flow records of all exporters, duplicates included."""
        for column, total in zip(("in_iface", "out_iface"), self._interfaces, strict=True):
            sums = frame.group_by("exporter", column).agg(pl.sum("bytes"))
            for exporter, index, volume in sums.iter_rows():
                if index:
                    total[exporter, index] += volume

    def add_poll(self, poll: Poll) -> None:
        """Take the counters that an agent sent: what grew since the first ones is known to whoever hears them."""
        for one in poll.interfaces:
            key = poll.exporter, one.index
            self._polled[key] = self._polled.get(key, (one, one))[0], one

    def document(self) -> dict[str, Any]:
        """Return everything as plain data."""
        rails: Counter[tuple[str, int, int]] = Counter()
        endpoints: Counter[tuple[str, str, int]] = Counter()
        for number, (rail, endpoint) in enumerate(zip(self._rails, self._endpoints, strict=True)):
            for direction in (_SENT, _RECEIVED):
                volume = int(self._bytes[number, direction])
                if rail is not None:
                    rails[*rail, direction] += volume
                if endpoint is not None:
                    endpoints[*endpoint, direction] += volume
        return {
            "rails": [
                {
                    "node": node,
                    "rail": rail,
                    "tx_bytes": rails[node, rail, _SENT],
                    "rx_bytes": rails[node, rail, _RECEIVED],
                }
                for node, rail in sorted({key[:2] for key in rails})
            ],
            # What an endpoint sends is read from it.
            "storage": [
                {
                    "endpoint": name,
                    "group": group,
                    "read_bytes": endpoints[name, group, _SENT],
                    "write_bytes": endpoints[name, group, _RECEIVED],
                }
                for name, group in sorted({key[:2] for key in endpoints})
            ],
            "interfaces": self._listed_interfaces(),
        }

    def _listed_interfaces(self) -> list[dict[str, Any]]:
        entered, left = self._interfaces
        found = []
        for number, index in sorted({*entered, *left, *self._polled}):
            exporter = self._cluster.exporters[number]
            names = {interface.index: interface.name for interface in exporter.interfaces}
            found.append(
                {
                    "exporter": exporter.name,
                    "interface": names.get(index, str(index)),
                    "in_bytes": entered[number, index],
                    "out_bytes": left[number, index],
                    **self._grown(number, index),
                }
            )
        return found

    def _grown(self, exporter: int, index: int) -> dict[str, int]:
        if (exporter, index) not in self._polled:
            return {"counter_in_bytes": 0, "counter_out_bytes": 0}
        first, newest = self._polled[exporter, index]
        return {
            "counter_in_bytes": newest.in_octets - first.in_octets,
            "counter_out_bytes": newest.out_octets - first.out_octets,
        }
