"""What each exporter is known to do: sampling, planes of its interfaces, and whose flows it counts."""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.model import ANY, Cluster, Exporter, SamplingMode
from ingest.classify import NO_PLANE, PLANES

AUTO_RATE = 0
"""Rate code of an exporter whose records tell their sampling rate themselves."""

UNKNOWN_LIMIT = 256
"""Exporters beyond cluster.yaml that get a name of their own; further ones share `unlisted`."""

UNLISTED = "unlisted"

_Ints = TypeVar("_Ints", int, npt.NDArray[np.int64])


class ExporterBook:
    """Numbers exporters and their interfaces; arrays are indexed by those numbers.

    Attributes:
        names: exporter number -> name for the `exporter` tag.
        rates: exporter number -> factor, or AUTO_RATE (int64).
        overheads: exporter number -> bytes a packet to subtract (int64).
        interface_planes: interface number -> plane code (uint8).
        interface_counts: interface number -> whether flows that enter there count (bool).
        authority: [exporter, source group, destination group] -> whether its flows count (bool).
    """

    def __init__(self, cluster: Cluster, groups: Sequence[str]) -> None:
        self._cluster = cluster
        self._groups = tuple(groups)
        self.names: list[str] = []
        self.configured = tuple(exporter.name for exporter in cluster.exporters)
        self._texts: dict[str, int] = {}
        self._by_address = {str(exporter.address): exporter for exporter in cluster.exporters}
        self._rates: list[int] = []
        self._overheads: list[int] = []
        self._authority: list[npt.NDArray[np.bool_]] = []
        # Interface 0 stands for every interface that cluster.yaml does not list.
        self._interface_keys: list[int] = []
        self._planes: list[int] = [NO_PLANE]
        self._counts: list[bool] = [True]
        for exporter in cluster.exporters:
            self._add(str(exporter.address), exporter)
        self._freeze()

    def _add(self, text: str, exporter: Exporter | None) -> None:
        number = len(self.names)
        if exporter is None:
            self.names.append(text)
            self._rates.append(AUTO_RATE)
            self._overheads.append(0)
        else:
            self.names.append(exporter.name)
            mode, rate = exporter.sampling.mode, exporter.sampling.rate
            self._rates.append({SamplingMode.AUTO: AUTO_RATE, SamplingMode.RENORMALISED: 1}.get(mode, rate or 1))
            self._overheads.append(exporter.frame_overhead)
            for interface in exporter.interfaces:
                self._interface_keys.append(_interface_key(number, interface.index))
                self._planes.append(NO_PLANE if interface.plane is None else PLANES.index(interface.plane))
                self._counts.append(interface.counts)
        self._authority.append(self._authority_of(exporter))
        if text != UNLISTED:
            self._texts[text] = number

    def _freeze(self) -> None:
        self.rates = np.array(self._rates or [AUTO_RATE], np.int64)
        self.overheads = np.array(self._overheads or [0], np.int64)
        self.interface_planes = np.array(self._planes, np.uint8)
        self.interface_counts = np.array(self._counts, np.bool_)
        size = len(self._groups)
        self.authority = np.array(self._authority or [np.ones((size, size), np.bool_)])

    def _authority_of(self, exporter: Exporter | None) -> npt.NDArray[np.bool_]:
        """Return for each group pair whether this exporter's flows count: the first entry that fits says so."""
        size = len(self._groups)
        if exporter is not None and not exporter.counts:
            return np.zeros((size, size), np.bool_)
        result = np.ones((size, size), np.bool_)
        for entry in reversed(self._cluster.authority):
            rows = [i for i, group in enumerate(self._groups) if entry.pair.src in (group, ANY)]
            columns = [i for i, group in enumerate(self._groups) if entry.pair.dst in (group, ANY)]
            result[np.ix_(rows, columns)] = exporter is not None and exporter.name in entry.exporters
        return result

    def number(self, column: pl.Series) -> npt.NDArray[np.int64]:
        """Return the exporters of records (String, null if not printed) as numbers."""
        for text in column.unique().to_list():
            if text not in self._texts:
                self._learn(text)
        known = pl.Series("known", list(self._texts), pl.String)
        numbers = pl.Series("number", list(self._texts.values()), pl.Int64)
        rest = self.names.index(UNLISTED) if UNLISTED in self.names else None
        return column.replace_strict(known, numbers, default=rest, return_dtype=pl.Int64).to_numpy()

    def _learn(self, text: str | None) -> None:
        """Give an exporter a number; what is not remembered here is `unlisted`, whatever its text."""
        spelling = _one_spelling(text)
        listed = self._by_address.get(spelling or "")
        if text is not None and listed is not None:
            self._texts[text] = self.names.index(listed.name)
        elif text is not None and spelling in self._texts:
            self._texts[text] = self._texts[spelling]
        elif spelling is not None and len(self.names) < len(self.configured) + UNKNOWN_LIMIT:
            self._add(spelling, None)
            self._texts[text or spelling] = self._texts[spelling]
            self._freeze()
        elif UNLISTED not in self.names:
            self._add(UNLISTED, None)
            self._freeze()

    def interfaces(self, exporters: npt.NDArray[np.int64], indexes: pl.Series) -> npt.NDArray[np.int64]:
        """Return interface numbers of records from their exporter numbers and ifIndexes (Int64, null: none)."""
        if not self._interface_keys:
            return np.zeros(len(exporters), np.int64)
        keys = pl.Series("key", _interface_key(exporters, indexes.fill_null(0).to_numpy()))
        known = pl.Series("known", self._interface_keys, pl.Int64)
        numbers = pl.Series("number", range(1, len(self._interface_keys) + 1), pl.Int64)
        return keys.replace_strict(known, numbers, default=0, return_dtype=pl.Int64).to_numpy()


def _interface_key(exporter: _Ints, index: _Ints) -> _Ints:
    """Pack both into one number; ifIndexes have 32 bits."""
    return exporter * (1 << 32) + index


def _one_spelling(text: str | None) -> str | None:
    """Return an address as cluster.yaml would spell it; None if the text is none."""
    try:
        address = ip_address(text or "")
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
