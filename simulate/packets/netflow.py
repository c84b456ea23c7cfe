"""NetFlow v5, NetFlow v9 and IPFIX messages from columns of flow records.

Layouts: Cisco's NetFlow v5 and v9 (RFC 3954) and IPFIX (RFC 7011); field numbers are those of the IANA IPFIX registry,
which v9 shares. One message a datagram, records of one address family a message, as exporters do.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cluster.model import Address

Column = NDArray[np.generic]

MAX_MESSAGE = 1400
"""Bytes of a datagram's payload: fits every MTU in use, with tunnels around it."""

V5_COUNTER_LIMIT = 2**32 - 1
"""Largest value of a v5 counter; a v5 exporter ends a flow record before it would wrap."""


class FlowFormat(StrEnum):
    """What an exporter speaks."""

    V5 = "v5"
    V9 = "v9"
    IPFIX = "ipfix"
    SFLOW = "sflow"


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Flow records of one exporter and one address family; all columns have one length.

    Attributes:
        src, dst: addresses, uint8 of shape (n, 4) or (n, 16).
        src_port, dst_port, proto, tcp_flags, tos: as in the packets.
        in_iface, out_iface: SNMP ifIndex.
        octets, packets: counters as exported, that is before any scaling.
        start, end: first and last packet, epoch milliseconds.
    """

    src: NDArray[np.uint8]
    dst: NDArray[np.uint8]
    src_port: Column
    dst_port: Column
    proto: Column
    tcp_flags: Column
    tos: Column
    in_iface: Column
    out_iface: Column
    octets: Column
    packets: Column
    start: Column
    end: Column

    @classmethod
    def alike(
        cls, pairs: Sequence[tuple[Address, Address]], moment: int, *, octets: int, packets: int, src_port: int,
        dst_port: int, proto: int,
    ) -> Self:  # fmt: skip
        """Return a record for each pair of addresses, all else alike, of one moment (epoch milliseconds)."""

        def column(value: int) -> Column:
            return np.full(len(pairs), value, np.int64)

        src, dst = (np.array([[*one.packed] for one in side], np.uint8) for side in zip(*pairs, strict=True))
        nothing, at = column(0), column(moment)
        return cls(
            src, dst, column(src_port), column(dst_port), column(proto), tcp_flags=nothing, tos=nothing,
            in_iface=nothing, out_iface=nothing, octets=column(octets), packets=column(packets), start=at, end=at,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.src)

    @property
    def is_v6(self) -> bool:
        """Whether the addresses are IPv6."""
        return bool(self.src.shape[1] == 16)


@dataclass(frozen=True, slots=True)
class Packed:
    """Records in wire format, to be cut into messages; `data` is one-dimensional, an item a record."""

    data: NDArray[np.void]
    is_v6: bool


TEMPLATE_EVERY = 64
"""Templates precede the data again after so many messages; in v9 with the options record."""

IPFIX_OPTIONS_EVERY = 4096
"""The same for IPFIX's options record. It advances the sequence number, and a collector that does not print options
sees that as the loss of a record; exporters send it seldom, too."""

_TEMPLATES = 3
"""Templates in a preamble."""

_PLAIN_COLUMNS = (
    "src", "dst", "src_port", "dst_port", "proto", "tcp_flags", "tos", "in_iface", "out_iface", "octets", "packets",
)  # fmt: skip

_V5_HEADER = struct.Struct("!HHIIIIBBH")
_V5_RECORD = np.dtype(
    [
        ("src", "u1", 4), ("dst", "u1", 4), ("next_hop", ">u4"), ("in_iface", ">u2"), ("out_iface", ">u2"),
        ("packets", ">u4"), ("octets", ">u4"), ("start", ">u4"), ("end", ">u4"), ("src_port", ">u2"),
        ("dst_port", ">u2"), ("pad1", "u1"), ("tcp_flags", "u1"), ("proto", "u1"), ("tos", "u1"), ("src_as", ">u2"),
        ("dst_as", ">u2"), ("src_mask", "u1"), ("dst_mask", "u1"), ("pad2", ">u2"),
    ]
)  # fmt: skip
_V5_DETERMINISTIC = 1 << 14

_V9_HEADER = struct.Struct("!HHIIII")
_IPFIX_HEADER = struct.Struct("!HHIII")
_SET_HEADER = struct.Struct("!HH")

# (information element, column of RecordColumns, bytes)
_COMMON_FIELDS = (
    (7, "src_port", 2),
    (11, "dst_port", 2),
    (4, "proto", 1),
    (6, "tcp_flags", 1),
    (5, "tos", 1),
    (48, "sampler", 1),
    (10, "in_iface", 4),
    (14, "out_iface", 4),
    (1, "octets", 8),
    (2, "packets", 8),
    (152, "start", 8),
    (153, "end", 8),
)
_V4_FIELDS = ((8, "src", 4), (12, "dst", 4), *_COMMON_FIELDS)
_V6_FIELDS = ((27, "src", 16), (28, "dst", 16), *_COMMON_FIELDS)
_V4_TEMPLATE, _V6_TEMPLATE, _SAMPLER_TEMPLATE = 0, 1, 2
"""Template ids, counted from the first ..."""
_FIRST_TEMPLATE, _TEMPLATE_STEP = 256, 16
"""... which is another one after each start."""
_SAMPLER_ID = 1
_DETERMINISTIC = 1
"""samplingAlgorithm / flowSamplerMode: every Nth packet."""


def _dtype(fields: tuple[tuple[int, str, int], ...]) -> np.dtype[np.void]:
    columns: list[tuple[str, str] | tuple[str, str, int]] = []
    for _, name, size in fields:
        columns.append((name, "u1", size) if name in ("src", "dst") else (name, f">u{size}"))
    return np.dtype(columns)


_V4_RECORD = _dtype(_V4_FIELDS)
_V6_RECORD = _dtype(_V6_FIELDS)


def _template(template: int, fields: tuple[tuple[int, str, int], ...]) -> bytes:
    pairs = b"".join(struct.pack("!HH", element, size) for element, _, size in fields)
    return struct.pack("!HH", template, len(fields)) + pairs


def _set(set_id: int, content: bytes) -> bytes:
    padding = -len(content) % 4
    return _SET_HEADER.pack(set_id, len(content) + padding + _SET_HEADER.size) + content + bytes(padding)


def _preamble(flow_format: FlowFormat, source: int, rate: int, first: int = _FIRST_TEMPLATE) -> tuple[bytes, bytes]:
    """Return the templates, and the options record that tells the sampling rate; `first`: id of the first template."""
    templates = _template(first + _V4_TEMPLATE, _V4_FIELDS) + _template(first + _V6_TEMPLATE, _V6_FIELDS)
    options = struct.pack("!HHHHHH", 48, 1, 49, 1, 50, 4)  # sampler id, its mode, its interval
    record = _set(first + _SAMPLER_TEMPLATE, struct.pack("!IBBI", source, _SAMPLER_ID, _DETERMINISTIC, rate))
    if flow_format is FlowFormat.V9:
        scope = struct.pack("!HH", 1, 4)  # the system; lengths are in bytes
        sampler = struct.pack("!HHH", first + _SAMPLER_TEMPLATE, len(scope), len(options)) + scope + options
        return _set(0, templates) + _set(1, sampler), record
    scope = struct.pack("!HH", 149, 4)  # the observation domain; counts are in fields
    sampler = struct.pack("!HHH", first + _SAMPLER_TEMPLATE, 4, 1) + scope + options
    return _set(2, templates) + _set(3, sampler), record


def capacity(flow_format: FlowFormat, *, is_v6: bool) -> int:
    """Return how many NetFlow or IPFIX records fit a message, templates included."""
    if flow_format is FlowFormat.V5:
        return (MAX_MESSAGE - _V5_HEADER.size) // _V5_RECORD.itemsize
    header = max(_V9_HEADER.size, _IPFIX_HEADER.size) + _SET_HEADER.size + 3
    room = MAX_MESSAGE - header - sum(map(len, _preamble(flow_format, 0, 1)))
    return room // (_V6_RECORD if is_v6 else _V4_RECORD).itemsize


class NetflowEncoder:
    """One exporter's stream of messages: its templates, its sequence number, its clock.

    Args:
        flow_format: V5, V9 or IPFIX.
        source: observation domain (IPFIX), source id (v9), engine id (v5, low 8 bits).
        boot: epoch milliseconds, on a whole second, at which the exporter's uptime began (v5 and v9).
        rate: packets per sampled packet that it announces: in the header (v5) or by an options record (v9, IPFIX).
        gaps: (start, end) in epoch milliseconds: it restarts at `start`, as exporters do with other template ids,
            and the templates reach nobody before `end`.
    """

    def __init__(
        self, flow_format: FlowFormat, source: int, boot: int, rate: int = 1, gaps: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self.flow_format = flow_format
        self._gaps = gaps
        self._first = _FIRST_TEMPLATE
        self._owes = False
        self._source = source
        self._boot = boot
        self._rate = rate
        self._sequence = 0
        self._messages = 0
        self._templates, self._options = _preamble(flow_format, source, rate)

    def pack(self, records: RecordColumns) -> Packed:
        """Return the records in wire format; v5 takes IPv4 only, with counters up to V5_COUNTER_LIMIT."""
        if self.flow_format is FlowFormat.V5:
            packed = np.zeros(len(records), _V5_RECORD)
            for name in ("start", "end"):
                packed[name] = (getattr(records, name) - self._boot) & 0xFFFFFFFF
        else:
            packed = np.empty(len(records), _V6_RECORD if records.is_v6 else _V4_RECORD)
            packed["start"], packed["end"] = records.start, records.end
            packed["sampler"] = _SAMPLER_ID
        for name in _PLAIN_COLUMNS:
            packed[name] = getattr(records, name)
        return Packed(packed, records.is_v6)

    def message(self, packed: Packed, first: int, last: int, now: int) -> bytes:
        """Return records `first` to `last` (exclusive) as the next message, exported at `now` (epoch milliseconds)."""
        count = last - first
        content = packed.data[first:last].tobytes()
        seconds, milliseconds = divmod(now, 1000)
        uptime = (now - self._boot) & 0xFFFFFFFF
        if self.flow_format is FlowFormat.V5:
            sampling = _V5_DETERMINISTIC | self._rate
            header = _V5_HEADER.pack(
                5, count, uptime, seconds, milliseconds * 1_000_000, self._sequence, 0, self._source & 0xFF, sampling
            )
            self._advance(count)  # v5 counts flow records
            return header + content
        lead, options = self._announcement(now)
        content = lead + options + _set(self._first + (_V6_TEMPLATE if packed.is_v6 else _V4_TEMPLATE), content)
        return self._framed(content, now, _TEMPLATES if lead else 0, count + (1 if options else 0))

    def _announcement(self, now: int) -> tuple[bytes, bytes]:
        """Return the templates and options that go with the next message; empty where it has none."""
        first = _FIRST_TEMPLATE + _TEMPLATE_STEP * sum(start <= now for start, _ in self._gaps)
        if first != self._first:
            self._first = first
            self._templates, self._options = _preamble(self.flow_format, self._source, self._rate, first)
            self._owes = True
        if any(start <= now < end for start, end in self._gaps):
            return b"", b""
        every = IPFIX_OPTIONS_EVERY if self.flow_format is FlowFormat.IPFIX else TEMPLATE_EVERY
        lead = self._templates if self._owes or self._messages % TEMPLATE_EVERY == 0 else b""
        options = self._options if self._owes or self._messages % every == 0 else b""
        self._owes = False
        return lead, options

    def hello(self, now: int) -> bytes:
        """Return the first message of the stream: templates and options. v5 has none, and an empty answer."""
        if self.flow_format is FlowFormat.V5:
            return b""
        return self._framed(self._templates + self._options, now, _TEMPLATES, 1)

    def _framed(self, content: bytes, now: int, templates: int, records: int) -> bytes:
        self._messages += 1
        seconds, uptime = now // 1000, (now - self._boot) & 0xFFFFFFFF
        if self.flow_format is FlowFormat.V9:
            header = _V9_HEADER.pack(9, templates + records, uptime, seconds, self._sequence, self._source)
            self._advance(1)  # v9 counts messages
        else:
            header = _IPFIX_HEADER.pack(10, _IPFIX_HEADER.size + len(content), seconds, self._sequence, self._source)
            self._advance(records)  # IPFIX counts data records, and the options record is one
        return header + content

    def _advance(self, count: int) -> None:
        self._sequence = (self._sequence + count) & 0xFFFFFFFF
