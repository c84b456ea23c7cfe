"""Who sends flow records here, and what is wrong with it: held against cluster.yaml and what pmacct can read."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from cluster.allow_list import is_heard, senders
from cluster.model import Cluster, Exporter, ExportProtocol, SamplingMode
from ingest.collect.pmacct import NFACCTD, SFACCTD
from ingest.listen.exports import Protocol, Templates, read_export
from ingest.listen.packets import Datagram
from store.schema import Unread, unread_words

_MOST_SENDERS = 1024
_MOST_AGENTS = 8
_MOST_TEMPLATES = 256
_MOST_LATEST = 64
_FALL, _FALLS = 1_000, 3
"""A count that fell so far, so often, is that of several devices in turn: no restart, nor packets out of order."""

_DAEMONS = {ExportProtocol.NETFLOW: NFACCTD, ExportProtocol.SFLOW: SFACCTD}


@dataclass(slots=True)
class Sender:
    """What one address sends to one port by one protocol.

    Attributes:
        source: where the datagrams come from.
        port: UDP port that they are sent to.
        protocol: what they are.
        datagrams: how many came.
        agents: sFlow: the addresses by which they name their sender.
        rates: sampling rates that were told.
        unread_rates: those that nfacctd does not read.
        templates: those that came.
        untemplated: sets of data whose template has not come.
        double_tagged: sFlow: sampled packets with two VLAN tags.
        doubled: datagrams with samples that came before, to the byte; hashes of the `latest` are kept.
        samples: NetFlow: records of v5, sets of data since; sFlow: sampled packets.
    """

    source: str
    port: int
    protocol: Protocol
    datagrams: int = 0
    agents: set[str] = field(default_factory=set)
    rates: set[float] = field(default_factory=set)
    unread_rates: set[float] = field(default_factory=set)
    templates: Templates = field(default_factory=dict)
    untemplated: int = 0
    samples: int = 0
    double_tagged: int = 0
    doubled: int = 0
    latest: deque[int] = field(default_factory=lambda: deque(maxlen=_MOST_LATEST))

    @property
    def kind(self) -> ExportProtocol | None:
        """Which daemon reads it; None: none does."""
        if self.protocol in (Protocol.OTHER, Protocol.UNREAD):
            return None
        return ExportProtocol.SFLOW if self.protocol is Protocol.SFLOW else ExportProtocol.NETFLOW


@dataclass(frozen=True, slots=True)
class Heard:
    """A sender as it is shown.

    Attributes:
        sender: what it sends.
        name: the exporter that it is in cluster.yaml; empty if it is none.
        rate: datagrams a second.
        is_read: whether a daemon takes it.
        wrong: what is wrong, a sentence each, with what to do.
    """

    sender: Sender
    name: str
    rate: float
    is_read: bool
    wrong: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """Return it for machines."""
        one = self.sender
        return {
            "source": one.source,
            "port": one.port,
            "protocol": one.protocol.value,
            "exporter": self.name or None,
            "agents": sorted(one.agents),
            "datagrams": one.datagrams,
            "datagrams_per_second": round(self.rate, 3),
            "templates": len(one.templates),
            "sampling_rates": sorted(one.rates),
            "read_by_pmacct": self.is_read,
            "wrong": list(self.wrong),
        }


class Senders:
    """Takes datagrams, and tells who sent them.

    Args:
        cluster: the ports, and the exporters that are expected.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ports = {daemon.port(cluster): kind for kind, daemon in _DAEMONS.items()}
        self._by_address = {str(exporter.address): exporter for exporter in cluster.exporters}
        self._senders: dict[tuple[str, int, Protocol], Sender] = {}
        self._templates: dict[tuple[str, int], Templates] = {}
        self._counts: dict[tuple[str, int, Protocol, int], int] = {}
        self._falls: Counter[tuple[str, int, Protocol]] = Counter()
        self.unnamed = 0

    def take(self, datagram: Datagram) -> None:
        """Take a datagram; of other ports than ours, only what is flow export counts."""
        mapped = getattr(datagram.source, "ipv4_mapped", None)
        source = str(mapped or datagram.source)
        # Anybody may send anything: what is remembered of one, and of all, has an end.
        templates = self._templates.get((source, datagram.port), {})
        export = read_export(datagram.payload, templates)
        if export.protocol is Protocol.OTHER and datagram.port not in self._ports:
            return
        key = source, datagram.port, export.protocol
        sender = self._senders.get(key)
        if sender is None:
            if len(self._senders) >= _MOST_SENDERS:
                self.unnamed += 1
                return
            sender = self._senders[key] = Sender(*key, templates=templates)
        if templates:
            self._templates[source, datagram.port] = sender.templates = templates
        # Those told first: what is in use comes again.
        while len(templates) > _MOST_TEMPLATES:
            del templates[next(iter(templates))]
        sender.datagrams += 1
        sender.untemplated += export.unread
        sender.samples += export.samples
        sender.double_tagged += export.double_tagged
        if export.samples:
            # They have sequence numbers: no two are alike.
            payload = hash(datagram.payload)
            sender.doubled += payload in sender.latest
            sender.latest.append(payload)
        part = export.agent or source, datagram.port, export.protocol, export.domain
        if part in self._counts or len(self._counts) < _MOST_SENDERS:
            self._falls[part[:3]] += self._counts.get(part, 0) > export.count + _FALL
            self._counts[part] = export.count
        if len(sender.agents) < _MOST_AGENTS and export.agent:
            sender.agents.add(export.agent)
        if len(sender.rates | sender.unread_rates) < _MOST_AGENTS:
            sender.rates |= export.rates
            sender.unread_rates |= export.unread_rates

    def heard(self, seconds: float) -> list[Heard]:
        """Return all senders, those that are wrong first; `seconds`: how long was listened."""
        found = [self._judged(one, seconds) for one in self._senders.values()]
        return sorted(found, key=lambda one: (not one.wrong, one.sender.source, one.sender.port))

    def silent(self) -> list[str]:
        """Return the exporters of cluster.yaml of which nothing came by their protocol."""
        names = {one.name for one in self.heard(1) if one.name}
        return [exporter.name for exporter in self._cluster.exporters if exporter.name not in names]

    def _judged(self, one: Sender, seconds: float) -> Heard:
        exporters = self._exporters(one)
        name = ", ".join(exporter.name for exporter in exporters)
        misplaced = tuple(self._wrong_place(one))
        is_read = not misplaced and not self._is_refused(one)
        wrong = *misplaced, *self._wrong_sender(one, exporters), *_wrong_content(one, exporters)
        return Heard(one, name, one.datagrams / seconds, is_read, wrong)

    def _exporters(self, one: Sender) -> list[Exporter]:
        """Return who of cluster.yaml it is: by its source, with sFlow by what it calls itself."""
        addresses = sorted(one.agents) if one.protocol is Protocol.SFLOW else [one.source]
        return [self._by_address[address] for address in addresses if address in self._by_address]

    def _sends_netflow(self, exporter: Exporter) -> bool:
        """Whether NetFlow or IPFIX came from an exporter."""
        sent = (one for one in self._senders.values() if one.kind is ExportProtocol.NETFLOW)
        return any(exporter in self._exporters(one) for one in sent)

    def _wrong_place(self, one: Sender) -> Iterator[str]:
        kind, here = one.kind, self._ports.get(one.port)
        if one.protocol is Protocol.UNREAD:
            yield "NetFlow v1, v7 or v8, which pmacct cannot read: have it send v9 or IPFIX"
        elif kind is None:
            yield f"no flow export: nothing that {_DAEMONS[here or ExportProtocol.NETFLOW].name} understands"
        elif here is not kind:
            right = _DAEMONS[kind].port(self._cluster)
            is_taken = f"UDP {one.port} is for {_spoken(here)}" if here else f"UDP {one.port} has no listener"
            yield f"wrong port: {is_taken}; send {one.protocol.value} to {right}"
        elif not is_heard(self._cluster, version := ip_address(one.source).version):
            listen = self._cluster.collector.listen
            yield f"dropped: collector.listen is {listen}, which takes no IPv{version}: write ::"

    def _is_refused(self, one: Sender) -> bool:
        allowed = senders(self._cluster, one.kind) if one.kind else ()
        return bool(allowed) and not any(ip_address(one.source) in network for network in allowed)

    def _wrong_sender(self, one: Sender, exporters: list[Exporter]) -> Iterator[str]:
        kind = one.kind
        if kind is None:
            return
        listed = [exporter for exporter in exporters if exporter.protocol is kind]
        if exporters and not listed and kind is ExportProtocol.SFLOW and self._sends_netflow(exporters[0]):
            name = exporters[0].name
            yield f"{name} sends NetFlow, too: of what both tell, its sFlow ({name}/sflow) does not count"
        elif exporters and not listed:
            yield (
                f"{exporters[0].name} is listed with protocol: {exporters[0].protocol.value}, and sends "
                f"{one.protocol.value}: change that line"
            )
        if kind is ExportProtocol.SFLOW and self._is_refused(one):
            yield f"dropped: {one.source} is not in collector.sflow_sources: add it there"
        elif kind is ExportProtocol.NETFLOW and self._is_refused(one) and not exporters:
            yield f"dropped: {one.source} is not listed: add it to exporters, with this address"
        elif self._cluster.exporters:
            yield from self._wrong_agents(one)
        for name in sorted(one.agents) or [one.source]:
            if self._falls[name, one.port, one.protocol] >= _FALLS:
                yield (
                    f"several devices send as {name}: they are one exporter here, whose losses are guesses, and what "
                    "two of them see counts twice; give each an address of its own"
                )

    def _wrong_agents(self, one: Sender) -> Iterator[str]:
        """Yield by what name of its own it is not listed."""
        strange = [agent for agent in sorted(one.agents) or [one.source] if agent not in self._by_address]
        source = self._by_address.get(one.source)
        if strange and source is not None and source.protocol is one.kind and one.source not in one.agents:
            yield f"{source.name} is listed by its source, and calls itself {strange[0]}: write that as its address"
        elif strange:
            some = ", ".join(strange)
            yield f"not listed: it counts under {some}, with guesses; add {_that(strange)} to exporters"


def _wrong_content(one: Sender, exporters: list[Exporter]) -> Iterator[str]:
    if one.untemplated and not one.samples:
        yield "no template has come yet: nothing of it can be read, unless nfacctd has kept one"
    unread = Unread(0)
    for template in one.templates.values():
        unread |= template.unread
    if unread:
        yield f"pmacct does not read {unread_words(unread)}"
    if one.double_tagged:
        yield f"{one.double_tagged} sampled packets have two VLAN tags: pmacct drops them silently"
    if one.doubled:
        yield (
            f"{one.doubled} datagrams came twice, and count twice: it sends to two addresses of this host, or the "
            "network doubles them"
        )
    is_told = any(exporter.sampling.mode is not SamplingMode.AUTO for exporter in exporters)
    samples = any(template.tells_sampling for template in one.templates.values())
    for rate in sorted(rate for rate in one.rates if rate % 1 and not is_told):
        few = f"nfacctd takes it for 1 in {int(rate)}: {1 - int(rate) / rate:.0%} of the bytes are missing"
        yield f"its rate is 1 in {rate:.4g}, and {few}; have it sample 1 packet in a whole number"
    if one.unread_rates and not one.rates and not is_told:
        yield f"pmacct does not read the rate in these fields: set exporters.*.sampling: {max(one.unread_rates):.0f}"
    elif samples and not one.rates and not is_told:
        yield "it samples, and sent no rate in this time: listen longer, or set exporters.*.sampling"


def _that(addresses: list[str]) -> str:
    return "that address" if len(addresses) == 1 else "those addresses"


def _spoken(kind: ExportProtocol) -> str:
    return "sFlow" if kind is ExportProtocol.SFLOW else "NetFlow and IPFIX"
