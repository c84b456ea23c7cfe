"""Packets that a switch marked as having met congestion (ECN, RFC 3168), while an incident fills a link."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from simulate.incidents.incident import Incident
from simulate.packets.addresses import Addresses
from simulate.packets.flows import Ints, column

_CONGESTION_EXPERIENCED = 3


class Marks:
    """Draws which packets of a node are marked.

    Args:
        addresses: of the simulation.
        incidents: of the scenario; some mark packets of a node.
    """

    def __init__(self, addresses: Addresses, incidents: Iterable[Incident]) -> None:
        self._marks = [
            (np.flatnonzero(addresses.node == addresses.nodes.index(one.src)), one) for one in incidents if one.marks
        ]

    def tos(self, frame: pl.DataFrame) -> Ints:
        """Return the TOS of each record (FLOW_SCHEMA): congestion experienced in a part of a node's packets."""
        tos = np.zeros(frame.height, np.int64)
        for nodes, one in self._marks:
            start = column(frame, "start")
            here = np.isin(column(frame, "src"), nodes) & (start >= one.start * 1000) & (start < one.end * 1000)
            drawn = np.random.default_rng([one.start, int(start[0]) if len(start) else 0]).random(frame.height)
            tos[here & (drawn < one.marks)] = _CONGESTION_EXPERIENCED
        return tos
