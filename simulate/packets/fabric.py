"""Where traffic is seen: which exporters report a piece of a talk, by which interface, and what sampling leaves of it.

The model: every exporter reports what *enters* it. A host's own switch counts; the switch of the other end sees the
flow enter by its uplink, and a spine sees it in between: both report it again, and must not be counted.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from app.errors import UserError
from cluster.model import ANY, LOCAL, Cluster, Exporter, ExportProtocol, Interface, Node, Plane, Role
from simulate.incidents.incident import LOSSES, Incident, IncidentKind
from simulate.packets import sflow
from simulate.packets.flows import FLOW_SCHEMA, NO_INCIDENT, TCP, Ints, column
from simulate.packets.netflow import V5_COUNTER_LIMIT, FlowFormat
from simulate.packets.polls import CARRIED_SCHEMA
from simulate.scenarios.scenario import Scenario, default_styles
from simulate.traffic.cast import Cast

_MAX_DELAY = 400
"""Milliseconds that a record waits in the exporter, at most."""

_SYN, _PSH_ACK, _ALL_FLAGS = 2, 24, 27
_PROBE = 60
"""Bytes, at most, of a TCP packet that is a flow by itself, and asks whether anybody is there."""
_NONE = -1


@dataclass(frozen=True, slots=True)
class Port:
    """Where an address is attached: exporter number and ifIndex."""

    exporter: int
    interface: int


@dataclass(frozen=True, slots=True)
class Loss:
    """A time in which an exporter's datagrams are lost. Epoch ms, end exclusive.

    Attributes:
        exporter: its number.
        share: the part of its datagrams that is lost.
        lacks_templates: they arrive, but nobody can read them.
    """

    exporter: int
    start: int
    end: int
    share: float
    lacks_templates: bool


class Fabric:
    """Turns pieces of talks into exported flow records.

    Args:
        cluster: its exporters, interfaces and authority.
        cast: who stands where.
        scenario: export styles, and exporters that are silent, wrong about the time or heard twice.

    Attributes:
        styles: exporter number -> style.
        losses: what is sent and does not arrive, see `simulate.packets.wire`.
    """

    def __init__(self, cluster: Cluster, cast: Cast, scenario: Scenario) -> None:
        if not any(exporter.counts for exporter in cluster.exporters):
            raise UserError("exporters: none whose flows count", "the simulator plays the exporters of cluster.yaml")
        self._cluster = cluster
        self._groups = cast.addresses.group
        self._is_v6 = cast.addresses.is_v6
        styles = default_styles(cluster) | dict(scenario.styles)
        self.styles = tuple(styles[exporter.name] for exporter in cluster.exporters)
        self._rates = np.array([style.rate for style in self.styles], np.int64)
        ports = _Cabling(cluster, cast).ports()
        self._exporter = np.array([port.exporter for port in ports], np.int64)
        self._interface = np.array([port.interface for port in ports], np.int64)
        self._uplink = np.array([_uplink(exporter) for exporter in cluster.exporters], np.int64)
        self._spines = np.array([i for i, e in enumerate(cluster.exporters) if _is_spine(e)], np.int64)
        self._authority = _authority(cluster, cast.addresses.groups)
        self._is_local = self._groups == cast.addresses.groups.index(LOCAL)

        def of(*kinds: IncidentKind) -> list[Incident]:
            return [incident for incident in scenario.incidents if incident.kind in kinds]

        self._silences = [(self._number(i.exporter), *_span(i)) for i in of(IncidentKind.EXPORTER_SILENT)]
        off = of(IncidentKind.EXPORT_OFF)
        self._muted = [*self._silences, *((self._number(i.exporter), *_span(i)) for i in off)]
        self._skews = [(self._number(i.exporter), *_span(i), i.seconds) for i in of(IncidentKind.EXPORTER_SKEWED)]
        self._mirrors = [
            (self._number(i.exporter), self._number(i.onto), *_span(i)) for i in of(IncidentKind.EXPORTER_DUPLICATES)
        ]
        self.losses = tuple(
            Loss(self._number(i.exporter), *_span(i), 1 - i.share, i.kind is IncidentKind.TEMPLATE_LOSS)
            for i in of(*LOSSES)
        )

    def _number(self, name: str) -> int:
        return next(i for i, exporter in enumerate(self._cluster.exporters) if exporter.name == name)

    def export(self, pieces: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
        """Return the flow records (FLOW_SCHEMA, unsorted) that all exporters make of the pieces."""
        return self._report(self._seen(pieces), rng) if pieces.height else pl.DataFrame(schema=FLOW_SCHEMA)

    @property
    def agents(self) -> list[int]:
        """Numbers of the exporters that speak sFlow."""
        return [i for i, style in enumerate(self.styles) if style.flow_format is FlowFormat.SFLOW]

    def is_silent(self, exporter: int, at: int) -> bool:
        """Whether an incident keeps an exporter (number) from sending at a moment (epoch ms)."""
        return any(number == exporter and start <= at < end for number, start, end in self._silences)

    def carried(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Return what the pieces put through interfaces of sFlow agents (CARRIED_SCHEMA), before sampling."""
        agents = self.agents
        if not agents or not pieces.height:
            return pl.DataFrame(schema=CARRIED_SCHEMA)
        ends = (self._exporter[column(pieces, name)] for name in ("src", "dst"))
        passes = np.any([np.isin(end, agents) for end in ends], axis=0)
        # An agent may also stand between, but only spines do, and those speak NetFlow.
        near = pieces.filter(pl.Series(passes))
        if not near.height:
            return pl.DataFrame(schema=CARRIED_SCHEMA)
        octets = pl.col("bytes") + sflow.FRAME_OVERHEAD * pl.col("packets")
        seen = self._seen(near).filter(pl.col("exporter").is_in(agents))
        return seen.with_columns(octets.alias("octets")).select(*CARRIED_SCHEMA)

    def _seen(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Return the pieces once for each exporter that they pass, as the packets were, before sampling."""
        src, dst = column(pieces, "src"), column(pieces, "dst")
        # What is addressed to a segment does not leave it.
        near, far = self._exporter[src], np.where(self._is_local[dst], self._exporter[src], self._exporter[dst])
        crosses = near != far
        out_iface = np.where(crosses, np.maximum(self._uplink[near], 0), self._interface[dst])
        copies = [(np.arange(len(src)), near, self._interface[src], out_iface, np.ones(len(src), np.bool_))]
        again = np.flatnonzero(crosses & (self._uplink[far] >= 0))
        copies.append((again, far[again], self._uplink[far][again], self._interface[dst][again], _no(again)))
        if len(self._spines):
            between = np.flatnonzero(crosses & (self._uplink[near] >= 0) & (self._uplink[far] >= 0))
            spine = self._spines[(src[between] + dst[between]) % len(self._spines)]
            copies.append((between, spine, near[between] + 1, far[between] + 1, _no(between)))
        for seen, onto, start, end in self._mirrors:
            # The pieces that the one counts, a second time as traffic of the other's uplinks.
            of_both = column(pieces, "start") < end, column(pieces, "end") > start
            twice = np.flatnonzero((near == seen) & of_both[0] & of_both[1])
            copies.append((twice, np.full(len(twice), onto), near[twice] + 1, far[twice] + 1, _no(twice)))
        rows, exporter, entered, left, counted = (np.concatenate(part) for part in zip(*copies, strict=True))
        return pieces[rows].with_columns(
            exporter=pl.Series(exporter),
            in_iface=pl.Series(entered),
            out_iface=pl.Series(left),
            rate=pl.Series(self._rates[exporter]),
            counted=pl.Series(counted & self._counts(exporter, src[rows], dst[rows])),
            tcp_flags=pl.Series(_flags(pieces[rows], self._rates[exporter])),
        )

    def _counts(self, exporter: Ints, src: Ints, dst: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.asarray(self._authority[exporter, self._groups[src], self._groups[dst]], np.bool_)

    def _report(self, frame: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
        exporter = column(frame, "exporter")
        formats = np.array([list(FlowFormat).index(style.flow_format) for style in self.styles])[exporter]
        is_sflow = formats == list(FlowFormat).index(FlowFormat.SFLOW)
        is_v5 = formats == list(FlowFormat).index(FlowFormat.V5)
        seen = ~(is_v5 & self._is_v6[column(frame, "src")])
        records = _sampled(frame.filter(pl.Series(seen & ~is_sflow)), rng)
        records = _split_for_v5(records, self._v5_exporters())
        delay = rng.integers(0, _MAX_DELAY, records.height)
        records = records.with_columns(export=pl.col("end") + pl.Series(delay), end=pl.col("end") - 1)
        samples = _packet_samples(frame.filter(pl.Series(is_sflow)), rng)
        found = pl.concat([records.select(list(FLOW_SCHEMA)), samples.select(list(FLOW_SCHEMA))])
        for number, start, end in self._muted:
            silent = (pl.col("exporter") == number) & (pl.col("export") >= start) & (pl.col("export") < end)
            found = found.filter(~silent)
        for number, start, end, seconds in self._skews:
            wrong = (pl.col("exporter") == number) & (pl.col("export") >= start) & (pl.col("export") < end)
            moved = (pl.when(wrong).then(pl.col(name) + seconds * 1000).otherwise(name) for name in ("start", "end"))
            found = found.with_columns(moved)
        return found

    def _v5_exporters(self) -> list[int]:
        return [i for i, style in enumerate(self.styles) if style.flow_format is FlowFormat.V5]


def _span(incident: Incident) -> tuple[int, int]:
    """Return its begin and end in epoch ms."""
    return incident.start * 1000, incident.end * 1000


def _flags(pieces: pl.DataFrame, rate: Ints) -> Ints:
    """Return the TCP flags of flow records: of all packets together; sampled packets are from the middle of a flow."""
    is_tcp = column(pieces, "proto") == TCP
    is_probe = (column(pieces, "packets") == 1) & (column(pieces, "bytes") <= _PROBE)
    flags = np.where(is_probe, _SYN, np.where(rate > 1, _PSH_ACK, _ALL_FLAGS))
    return np.where(is_tcp, flags, 0)


def _no(rows: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.zeros(len(rows), np.bool_)


def _on_compute(exporter: Exporter) -> bool:
    return any(interface.plane is Plane.COMPUTE and interface.counts for interface in exporter.interfaces)


def _is_spine(exporter: Exporter) -> bool:
    return not exporter.counts and exporter.protocol is ExportProtocol.NETFLOW


def _uplink(exporter: Exporter) -> int:
    """Return the ifIndex by which traffic of other switches enters, -1 if the exporter has no such interface."""
    return next((interface.index for interface in exporter.interfaces if not interface.counts), _NONE)


def _authority(cluster: Cluster, groups: tuple[str, ...]) -> np.ndarray[tuple[int, int, int], np.dtype[np.bool_]]:
    """Return [exporter, source group, destination group] -> whether its flows count."""
    table = np.ones((len(cluster.exporters), len(groups), len(groups)), np.bool_)
    for number, exporter in enumerate(cluster.exporters):
        for row, src in enumerate(groups):
            for position, dst in enumerate(groups):
                first = next(
                    (a for a in cluster.authority if a.pair.src in (src, ANY) and a.pair.dst in (dst, ANY)), None
                )
                listed = first is None or exporter.name in first.exporters
                table[number, row, position] = exporter.counts and listed
    return table


def _sampled(frame: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Divide counters by the sampling rate. A flow of which no packet is drawn is not reported, unless it is staged."""
    rate, packets, size = column(frame, "rate"), column(frame, "packets"), column(frame, "bytes")
    if not (rate > 1).any():
        return frame
    drawn = np.floor(packets / rate + rng.random(len(rate))).astype(np.int64)
    drawn = np.where(column(frame, "incident") != NO_INCIDENT, np.maximum(drawn, 1), drawn)
    sampled = np.where(rate > 1, drawn, packets)
    # The packets of a flow are alike, so bytes follow the packets drawn.
    whole, rest = np.divmod(size, packets)
    volume = np.where(rate > 1, whole * sampled + rest * sampled // packets, size)
    return frame.with_columns(packets=pl.Series(sampled), bytes=pl.Series(volume)).filter(pl.col("packets") > 0)


def _split_for_v5(frame: pl.DataFrame, exporters: list[int]) -> pl.DataFrame:
    """End records of v5 exporters before their 32-bit counters would wrap, by cutting them in time."""
    is_large = pl.col("exporter").is_in(exporters) & (pl.col("bytes") > V5_COUNTER_LIMIT)
    large = frame.filter(is_large)
    if not large.height:
        return frame
    size, packets = column(large, "bytes"), column(large, "packets")
    parts = -(-size // V5_COUNTER_LIMIT) + 1
    row = np.repeat(np.arange(large.height), parts)
    number = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
    start, end = column(large, "start")[row], column(large, "end")[row]

    def share(total: Ints, base: Ints | int = 0) -> tuple[Ints, Ints]:
        return base + total * number // parts[row], base + total * (number + 1) // parts[row]

    (first, last), (size_from, size_to) = share(end - start, start), share(size[row])
    packets_from, packets_to = share(packets[row])
    split = large[row].with_columns(
        start=pl.Series(first),
        end=pl.Series(last),
        bytes=pl.Series(size_to - size_from),
        packets=pl.Series(packets_to - packets_from),
    )
    return pl.concat([frame.filter(~is_large), split])


def _packet_samples(frame: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Return the packets that sFlow agents draw: a record each, with the frame's length, sent when it is drawn."""
    packets, rate = column(frame, "packets"), np.maximum(column(frame, "rate"), 1)
    drawn = rng.poisson(packets / rate)
    row = np.repeat(np.arange(frame.height), drawn)
    start, end = column(frame, "start")[row], column(frame, "end")[row]
    at = start + (rng.random(len(row)) * (end - start)).astype(np.int64)
    mean = column(frame, "bytes")[row] // np.maximum(packets[row], 1)
    length = np.maximum(mean + sflow.FRAME_OVERHEAD, sflow.MIN_FRAME)
    is_tcp = column(frame, "proto")[row] == TCP
    return frame[row].with_columns(
        start=pl.Series(at),
        end=pl.Series(at),
        export=pl.Series(at),
        bytes=pl.Series(length),
        packets=pl.lit(1, pl.Int64),
        tcp_flags=pl.Series(np.where(is_tcp & (column(frame, "tcp_flags")[row] != _SYN), _PSH_ACK, is_tcp * _SYN)),
    )


class _Cabling:
    """Plugs every address into an exporter's interface, by plane, role and the interfaces' names."""

    def __init__(self, cluster: Cluster, cast: Cast) -> None:
        self._cluster = cluster
        self._cast = cast
        self._addresses = cast.addresses
        self._members: dict[str, list[str]] = {}
        for node in cluster.nodes:
            self._members.setdefault(node.group, []).append(node.name)
        self._position = {name: i for members in self._members.values() for i, name in enumerate(members)}
        self._leaves = [i for i, e in enumerate(cluster.exporters) if e.counts and _on_compute(e)]
        self._default = next(i for i, exporter in enumerate(cluster.exporters) if exporter.counts)
        self._edge = self._internet()

    def ports(self) -> list[Port]:
        """Return for every address number where it is attached."""
        outside = [self._of_group(group) for group in self._group_of_each()]
        for number, address in enumerate(self._cast.routers):
            outside[self._addresses.number(address)] = Port(number, 0)
        for node in self._cluster.nodes:
            for entry in node.addresses:
                outside[self._addresses.number(entry.address)] = self._port(node, entry.plane)
        return outside

    def _group_of_each(self) -> list[str]:
        return [self._addresses.groups[code] for code in self._addresses.group]

    def _of_group(self, group_id: str) -> Port:
        """Return where an address is attached that no inventory knows."""
        if group_id == LOCAL:
            return Port(self._default, 0)
        neighbour = next((node for node in self._cluster.nodes if node.group == group_id and node.addresses), None)
        return self._edge if neighbour is None else self._port(neighbour, neighbour.addresses[0].plane)

    def _internet(self) -> Port:
        """Return the interface by which the outside world enters: one whose name says so, else any frontend one."""
        for wanted in ("internet", "external", "wan", "transit", "border"):
            for number, exporter in enumerate(self._cluster.exporters):
                for interface in exporter.interfaces:
                    if wanted in interface.name and interface.counts and exporter.counts:
                        return Port(number, interface.index)
        candidates = self._candidates(Plane.FRONTEND)
        return candidates[-1][0] if candidates else Port(self._default, 0)

    def _candidates(self, plane: Plane) -> list[tuple[Port, Exporter, Interface]]:
        return [
            (Port(number, interface.index), exporter, interface)
            for number, exporter in enumerate(self._cluster.exporters)
            if exporter.counts
            for interface in exporter.interfaces
            if interface.plane is plane and interface.counts
        ]

    def _port(self, node: Node, plane: Plane | None) -> Port:
        group = self._cluster.group(node.group)
        plane = plane or group.plane or Plane.FRONTEND
        candidates = self._candidates(plane)
        if plane is Plane.MANAGEMENT:
            # Where a management switch speaks sFlow, it is the one that sees management ports.
            candidates = [c for c in candidates if c[1].protocol is ExportProtocol.SFLOW] or candidates
        elif group.role is Role.TRAINING:
            candidates = [c for c in candidates if c[0].exporter in self._leaves] or candidates
        else:
            # A switch of their own rather than a leaf; there, the interface with the group's name.
            candidates = [c for c in candidates if c[0].exporter not in self._leaves] or candidates
            candidates = [c for c in candidates if c[2].name.replace("-", "_") == group.id] or candidates
        if plane is not Plane.MANAGEMENT:
            candidates = [c for c in candidates if c[1].protocol is ExportProtocol.NETFLOW] or candidates
        if not candidates:
            return Port(self._default, 0)
        # Neighbours share a switch: the first nodes of a group are on its first leaf, and so on.
        exporters = sorted({c[0].exporter for c in candidates})
        exporter = exporters[self._position[node.name] * len(exporters) // len(self._members[group.id])]
        return next(c[0] for c in candidates if c[0].exporter == exporter)
