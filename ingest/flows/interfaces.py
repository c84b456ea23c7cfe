"""Exporters' interfaces by number: their names, planes, speeds, and whether flows that enter there count."""

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.model import Cluster, Interface
from ingest.flows.classify import NO_PLANE, PLANES
from store.schema import INTERFACE, OTHER

UNKNOWN_LIMIT = 256
"""Interfaces of one exporter beyond cluster.yaml that get a number of their own; further ones share OTHER."""

MAX_INTERFACES = 1 << 20
"""Numbers stay below this, so that two of them and a window fit 64 bits."""

_NO_INDEX = 0
_SFLOW_INTERNAL = 0x3FFF_FFFF
"""sFlow v5: the device itself, or not known. Larger values say why a packet was dropped, or out of how many it went."""

_EXPORTER = 1 << 32
"""ifIndexes have 32 bits."""

_NONE = -1

_SMALL = 1024
"""ifIndexes below this are looked up the quicker way."""

Ints = npt.NDArray[np.int64]


class InterfaceBook:
    """Numbers interfaces; arrays are indexed by those numbers. Every number belongs to one exporter.

    Attributes:
        names: interface number -> tag value; empty where a record names no interface (String).
        exporters: interface number -> exporter number (int64).
        planes: interface number -> plane code (uint8).
        counts: interface number -> whether flows that enter there count (bool).
        is_core: interface number -> whether it stands between switches, or on an exporter that sees only what others
            count (bool).
        speeds: interface number -> bits per second by cluster.yaml; 0 if it does not say (int64).
    """

    def __init__(self, cluster: Cluster) -> None:
        # Exporter numbers are positions in cluster.yaml; whoever comes later counts.
        self._exporter_counts = [exporter.counts for exporter in cluster.exporters]
        self._keys: dict[int, int] = {}
        self._learned: dict[int, int] = {}
        self._rest: dict[int, int] = {}
        self._rows: list[tuple[str, int, int, bool, bool, int]] = []
        for number, exporter in enumerate(cluster.exporters):
            for interface in exporter.interfaces:
                self._keys[number * _EXPORTER + interface.index] = self._add(number, interface.name, interface)
        self._freeze()

    def _add(self, exporter: int, name: str, interface: Interface | None = None) -> int:
        plane = NO_PLANE if interface is None or interface.plane is None else PLANES.index(interface.plane)
        counts = interface is None or interface.counts
        exporter_counts = exporter >= len(self._exporter_counts) or self._exporter_counts[exporter]
        speed = (interface.speed if interface else None) or 0
        self._rows.append((name, exporter, plane, counts, not (counts and exporter_counts), speed))
        return len(self._rows) - 1

    def _freeze(self) -> None:
        names, exporters, planes, counts, is_core, speeds = zip(*self._rows, strict=True) if self._rows else ((),) * 6
        self.names = pl.Series(INTERFACE, names, pl.String)
        self.exporters = np.array(exporters, np.int64)
        self.planes = np.array(planes, np.uint8)
        self.counts = np.array(counts, np.bool_)
        self.is_core = np.array(is_core, np.bool_)
        self.speeds = np.array(speeds, np.int64)
        self._known = pl.Series("key", list(self._keys), pl.Int64)
        self._numbers = pl.Series("number", list(self._keys.values()), pl.Int64)
        # Most devices count their interfaces from 1: those are looked up in a table, a row an exporter.
        by, index = np.divmod(np.array(list(self._keys), np.int64), _EXPORTER)
        small = index < _SMALL
        self._table = np.full((int(by.max(initial=-1)) + 1, _SMALL), _NONE, np.int64)
        self._table[by[small], index[small]] = self._numbers.to_numpy()[small]

    def number(self, exporters: Ints, indexes: Ints, is_sflow: npt.NDArray[np.bool_] | None = None) -> Ints:
        """Return the interface numbers of records.

        Args:
            exporters: exporter numbers.
            indexes: ifIndexes; 0 or less for none.
            is_sflow: which records are sFlow's, whose ifIndexes have bits of their own.
        """
        found = self._find_small(exporters, indexes)
        if found is not None:
            return found
        indexes = np.maximum(indexes, _NO_INDEX)
        if is_sflow is not None and is_sflow.any():
            indexes = np.where(is_sflow & (indexes >= _SFLOW_INTERNAL), _NO_INDEX, indexes)
        indexes = indexes & (_EXPORTER - 1)
        found = self._find(exporters, indexes)
        missing = found == _NONE
        if missing.any():
            for key in np.unique(exporters[missing] * _EXPORTER + indexes[missing]).tolist():
                self._learn(key)
            self._freeze()
            found[missing] = self._find(exporters[missing], indexes[missing])
            beyond = found == _NONE
            if beyond.any():
                found[beyond] = [self._rest[exporter] for exporter in exporters[beyond].tolist()]
        return found

    def _find_small(self, exporters: Ints, indexes: Ints) -> Ints | None:
        """Return interface numbers where every index has one in the table, which is so of most batches."""
        if (
            not len(exporters)
            or exporters.max() >= len(self._table)
            or not 0 <= indexes.min() <= indexes.max() < _SMALL
        ):
            return None
        found = self._table.reshape(-1)[exporters * _SMALL + indexes]
        return found if found.min() != _NONE else None

    def _find(self, exporters: Ints, indexes: Ints) -> Ints:
        """Return interface numbers, _NONE where there is none yet."""
        if not len(exporters) or exporters.max() >= len(self._table):
            return self._find_any(exporters, indexes)
        is_small = indexes < _SMALL
        found = self._table.reshape(-1)[exporters * _SMALL + np.where(is_small, indexes, 0)]
        if not is_small.all():
            found[~is_small] = self._find_any(exporters[~is_small], indexes[~is_small])
        return found

    def _find_any(self, exporters: Ints, indexes: Ints) -> Ints:
        if not len(self._known):
            return np.full(len(exporters), _NONE, np.int64)
        keys = pl.Series("key", exporters * _EXPORTER + indexes)
        found = keys.replace_strict(self._known, self._numbers, default=_NONE, return_dtype=pl.Int64)
        return np.array(found.to_numpy())

    def _learn(self, key: int) -> None:
        """Give an interface that cluster.yaml does not list a number, while there is room."""
        exporter, index = divmod(key, _EXPORTER)
        if index == _NO_INDEX:
            self._keys[key] = self._add(exporter, "")
            return
        learned = self._learned.get(exporter, 0)
        if learned < UNKNOWN_LIMIT and len(self._rows) < MAX_INTERFACES // 2:
            self._learned[exporter] = learned + 1
            self._keys[key] = self._add(exporter, str(index))
        elif exporter not in self._rest:
            self._rest[exporter] = self._add(exporter, OTHER)
