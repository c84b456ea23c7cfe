"""What each exporter is known to do: sampling, protocol, and whose flows it counts."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.model import ANY, CloudFormat, Cluster, Exporter, ExportProtocol, GroupPair, SamplingMode
from ingest.flows.text_numbers import Texts, Words
from ingest.read import records

AUTO_RATE = 0
"""Rate code of an exporter whose records tell their sampling rate themselves."""

UNKNOWN_LIMIT = 256
"""Exporters beyond cluster.yaml that get a name of their own; further ones share `unlisted`."""

UNLISTED = "unlisted"

_SFLOW_OF = "/sflow"
"""Behind the name of an exporter of NetFlow or IPFIX: the sFlow that it sends besides."""

_CLOUD_EXPORTERS = {name for cloud in CloudFormat for name in (cloud.value, records.other_end(cloud.value))}


class ExporterBook:
    """Numbers exporters, those of cluster.yaml first; arrays are indexed by those numbers.

    Attributes:
        names: exporter number -> name for the `exporter` tag.
        rates: exporter number -> factor, or AUTO_RATE (int64).
        overheads: exporter number -> bytes a packet to subtract (int64).
        is_sflow: exporter number -> whether cluster.yaml says that it sends sFlow (bool).
        authority: [exporter, source group, destination group] -> whether its flows count (bool).
        is_told: [source group, destination group] -> whether `authority` of cluster.yaml says who counts (bool).
        is_described: exporter number -> whether cluster.yaml lists its interfaces (bool).
        is_cloud: exporter number -> whether its records are a cloud's flow logs: their times are up to a minute off.
        is_scaled: exporter number -> whether it scales its counters itself, by a rate that it does not send (bool).
        order: exporter number -> its place among all: cluster.yaml's order, then by name (int64).
    """

    def __init__(self, cluster: Cluster, groups: Sequence[str]) -> None:
        self._cluster = cluster
        self._groups = tuple(groups)
        self.names: list[str] = []
        self.configured = tuple(exporter.name for exporter in cluster.exporters)
        self._texts: dict[str, int] = {}
        self._places = Texts()
        self._by_address = {str(exporter.address): exporter for exporter in cluster.exporters}
        self._second = {one.name + _SFLOW_OF for one in cluster.exporters if one.protocol is ExportProtocol.NETFLOW}
        self._rates: list[int] = []
        self._overheads: list[int] = []
        self._is_sflow: list[bool] = []
        self._authority: list[npt.NDArray[np.bool_]] = []
        self._is_scaled: list[bool] = []
        self._is_cloud: list[bool] = []
        self._is_described: list[bool] = []
        self.is_told = np.zeros((len(self._groups), len(self._groups)), np.bool_)
        for entry in cluster.authority:
            self.is_told |= self._fits(entry.pair)
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
        self._is_sflow.append(exporter is not None and exporter.protocol is ExportProtocol.SFLOW)
        # Google samples, and scales what it writes down.
        is_scaled = exporter is not None and exporter.sampling.mode is SamplingMode.RENORMALISED
        self._is_scaled.append(is_scaled or text.startswith(CloudFormat.GOOGLE.value))
        self._is_cloud.append(text in _CLOUD_EXPORTERS)
        self._is_described.append(exporter is not None and bool(exporter.interfaces))
        self._authority.append(self._authority_of(exporter))
        if text != UNLISTED:
            self._texts[text] = number

    def _freeze(self) -> None:
        self.rates = np.array(self._rates or [AUTO_RATE], np.int64)
        self.overheads = np.array(self._overheads or [0], np.int64)
        self.is_sflow = np.array(self._is_sflow or [False], np.bool_)
        self.is_scaled = np.array(self._is_scaled or [False], np.bool_)
        self.is_cloud = np.array(self._is_cloud or [False], np.bool_)
        self.is_described = np.array(self._is_described or [False], np.bool_)
        listed = len(self.configured)
        behind = sorted(range(listed, len(self.names)), key=self.names.__getitem__)
        self.order = np.zeros(max(len(self.names), 1), np.int64)
        self.order[[*range(listed), *behind]] = np.arange(len(self.names))
        size = len(self._groups)
        self.authority = np.array(self._authority or [np.ones((size, size), np.bool_)])

    def _fits(self, pair: GroupPair) -> npt.NDArray[np.bool_]:
        """Return for each group pair whether a pair of `authority` means it."""
        src = np.array([pair.src in (group, ANY) for group in self._groups])
        dst = np.array([pair.dst in (group, ANY) for group in self._groups])
        return np.asarray(src[:, None] & dst, np.bool_)

    def _authority_of(self, exporter: Exporter | None) -> npt.NDArray[np.bool_]:
        """Return for each group pair whether this exporter's flows count: the first entry that fits says so."""
        size = len(self._groups)
        if exporter is not None and not exporter.counts:
            return np.zeros((size, size), np.bool_)
        result = np.ones((size, size), np.bool_)
        for entry in reversed(self._cluster.authority):
            result[self._fits(entry.pair)] = exporter is not None and exporter.name in entry.exporters
        return result

    def number(self, column: pl.Series) -> npt.NDArray[np.int64]:
        """Return the exporters of records (String, null if not printed) as numbers."""
        places = self._places.find(column)
        if places.null_count():
            for text in column.filter(places.is_null()).unique().to_list():
                if text not in self._texts:
                    self._learn(text)
            self._places.add(pl.Series("text", list(self._texts)[len(self._places) :], pl.String))
            places = self._places.find(column)
        rest = self.names.index(UNLISTED) if UNLISTED in self.names else 0
        numbers = np.array([*self._texts.values(), rest], np.int64)
        return np.asarray(numbers[records.whole(places, len(self._places))], np.int64)

    def by_protocol(self, exporters: Words, version: npt.NDArray[np.int64]) -> Words:
        """Return the exporters of records; sFlow of those that are listed for NetFlow has a name of its own.

        A switch that sends both tells of the same packets twice: as two exporters would, of which one counts.

        Args:
            exporters: as printed.
            version: the records' column VERSION.
        """
        is_sflow = records.is_sflow(version)
        if not self._second or not is_sflow.any():
            return exporters
        texts = exporters.texts
        number = self.number(texts)
        is_second = (number < len(self.configured)) & ~self.is_sflow[number]
        theirs = is_sflow & is_second[exporters.codes]
        if not theirs.any():
            return exporters
        own = pl.Series(self.names, dtype=pl.String).gather(number) + _SFLOW_OF
        codes = np.where(theirs, exporters.codes + len(texts), exporters.codes)
        return Words(pl.concat([texts, own]), codes).of(np.ones(len(codes), np.bool_))

    def named_now(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return what exporters are called by what they were called; one that is not listed is called by its address.

        Args:
            before: the address of each that was listed, by its name.
        """
        names = {address: exporter.name for address, exporter in self._by_address.items()}
        now = {name: names.get(address, address) for name, address in before.items()}
        return names | now | {old + _SFLOW_OF: self._sflow_of(name) for old, name in now.items()}

    def _sflow_of(self, name: str) -> str:
        """Return what the sFlow of an exporter is called."""
        return name + _SFLOW_OF if name + _SFLOW_OF in self._second else name

    def lists(self, name: str) -> bool:
        """Whether it is the name of an exporter of cluster.yaml, or of its sFlow."""
        return name in self.configured or name in self._second

    def still_is(self, name: str) -> bool:
        """Whether an exporter that once had this name has it still: in cluster.yaml, or for want of another one."""
        if self.lists(name) or name == UNLISTED:
            return True
        return name not in self._by_address and name not in _CLOUD_EXPORTERS and _one_spelling(name) is not None

    def has_authority(
        self, exporter: npt.NDArray[np.int64], src_group: npt.NDArray[np.uint8], dst_group: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.bool_]:
        """Return whether flows of these exporters between these groups count."""
        size = len(self._groups)
        return np.asarray(self.authority.reshape(-1)[(exporter * size + src_group) * size + dst_group], np.bool_)

    @property
    def may_repeat(self) -> bool:
        """Whether the same packets may count at two exporters: one of several has no description of its interfaces."""
        listed = self._cluster.exporters
        counting = [exporter for exporter in listed if exporter.counts]
        learned = len(self.names) - len(listed)
        if not listed:
            return True
        return len(counting) + learned > 1 and (learned > 0 or not all(one.interfaces for one in counting))

    def _learn(self, text: str | None) -> None:
        """Give an exporter a number; what is not remembered here is `unlisted`, whatever its text."""
        spelling = text if text in self._second else _one_spelling(text)
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


def _one_spelling(text: str | None) -> str | None:
    """Return an address as cluster.yaml would spell it, or a cloud's name; None if the text is neither."""
    if text in _CLOUD_EXPORTERS:
        return text
    try:
        address = ip_address(text or "")
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
