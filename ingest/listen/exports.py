"""What a datagram says of itself: which export protocol, whose, templates, sampling rates. Counters are not read.

pmacct decodes flow records; here is read what tells why it does not. Layouts: Cisco's NetFlow v5, RFC 3954 (v9),
RFC 7011 (IPFIX), sflow.org (v5).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address

from ingest.collect.template_file import SAMPLING, unread_of_flows
from store.schema import Unread

_SETS_AT = {9: 20, 10: 16}
_TEMPLATES, _OPTIONS = {9: 0, 10: 2}, {9: 1, 10: 3}
_FIRST_DATA = 256
_VARIABLE, _LONG = 0xFFFF, 0xFF
_ENTERPRISE = 0x8000
_V5_HEADER, _V5_RECORD, _V5_RATE = 24, 48, 0x3FFF
_OTHER_NETFLOW = (1, 7, 8)
_MOST_SETS, _MOST_FIELDS, _MOST_SAMPLES = 64, 512, 64

_RAW_HEADER = b"\0\0\0\1"
_VLAN = (b"\x81\x00", b"\x88\xa8")
_INTERVALS, _SAMPLER, _SELECTOR = (34, 50), 48, 302
_PACKET_INTERVAL, _PACKET_SPACE, _SIZE, _POPULATION = 305, 306, 309, 310


class Protocol(StrEnum):
    """What an exporter speaks, as people say it."""

    V5 = "NetFlow v5"
    V9 = "NetFlow v9"
    IPFIX = "IPFIX"
    SFLOW = "sFlow v5"
    UNREAD = "NetFlow that pmacct cannot read"
    OTHER = "no flow export"


@dataclass(frozen=True, slots=True)
class TemplateField:
    """A field of a template: enterprise (0: IANA's), element, bytes (65535: they vary)."""

    enterprise: int
    element: int
    size: int


@dataclass(frozen=True, slots=True)
class Template:
    """A template of flows, or of options."""

    number: int
    is_options: bool
    fields: tuple[TemplateField, ...]

    @property
    def tells_sampling(self) -> bool:
        """Whether it has a field about sampling."""
        return any(one.enterprise == 0 and one.element in SAMPLING for one in self.fields)

    @property
    def is_rate_read(self) -> bool:
        """Whether nfacctd reads a sampling rate from it, by the sizes of its fields."""
        size = {one.element: one.size for one in self.fields if one.enterprise == 0}
        if not self.is_options:
            return not (_SAMPLER in size or size.get(_SELECTOR) == 8) and any(
                size.get(one) in (2, 4) for one in _INTERVALS
            )
        is_looked_at = _SAMPLER in size or 4 in (size.get(_INTERVALS[0]), size.get(_PACKET_INTERVAL))
        is_known = any(size.get(one) in (1, 2, 4) for one in _INTERVALS)
        return is_looked_at and (is_known or size.get(_PACKET_INTERVAL) == size.get(_PACKET_SPACE) == 4)

    @property
    def unread(self) -> Unread:
        """What of it nfacctd does not read."""
        if not self.is_options:
            known = [(one.element, one.size) for one in self.fields if one.enterprise == 0]
            return unread_of_flows(known, {(one.enterprise, one.element) for one in self.fields if one.enterprise > 0})
        varies = False
        for one in self.fields:
            if varies and one.enterprise == 0 and one.element in SAMPLING:
                return Unread.RATES
            varies = varies or one.size == _VARIABLE
        return Unread(0)


Templates = dict[tuple[int, int], Template]
"""Those known of one sender, by observation domain (source id) and number."""


@dataclass(slots=True)
class Export:
    """What a datagram says.

    Attributes:
        protocol: what it is.
        agent: sFlow: its own address for the sender.
        domain: which part of the sender: engine, source id, observation domain, sub-agent.
        count: what grows from one of a domain to the next: milliseconds that it runs, with IPFIX records sent.
        rates: sampling rates that it tells: 1 packet in so many.
        unread_rates: those that nfacctd does not read.
        templates: those that it brings.
        unread: sets of data without a template that is known.
        samples: sFlow: samples of packets; NetFlow v5: records.
        counters: sFlow: samples of interface counters.
        double_tagged: sFlow: sampled packets with two VLAN tags, which sfacctd does not read.
    """

    protocol: Protocol
    agent: str = ""
    domain: int = 0
    count: int = 0
    rates: set[float] = field(default_factory=set)
    unread_rates: set[float] = field(default_factory=set)
    templates: list[Template] = field(default_factory=list)
    unread: int = 0
    samples: int = 0
    counters: int = 0
    double_tagged: int = 0


def read_export(payload: bytes, known: Templates) -> Export:
    """Return what a datagram says; of one that is cut short, what can be read of it.

    Args:
        payload: of the UDP datagram.
        known: the sender's templates; those of this datagram are added.
    """
    if len(payload) < 16:
        return Export(Protocol.OTHER)
    version, second = struct.unpack_from("!HH", payload)
    export = Export(Protocol.OTHER)
    if version == 0 and second == 5:
        export = _sflow(payload)
    elif version == 5 and len(payload) == _V5_HEADER + second * _V5_RECORD:
        rate = int.from_bytes(payload[22:24], "big") & _V5_RATE
        export = Export(Protocol.V5, rates={rate} if rate else set(), samples=second)
        export.count, export.domain = _word(payload, 4), payload[21]
    elif version == 10 and second == len(payload):
        export = _with_sets(Export(Protocol.IPFIX), payload, version, known)
    elif version == 9 and len(payload) >= _SETS_AT[9] + 4 and _begins_set(payload):
        export = _with_sets(Export(Protocol.V9), payload, version, known)
    elif version in _OTHER_NETFLOW and 0 < second <= 64 and len(payload) >= 24 + second * 28:
        export = Export(Protocol.UNREAD)
    return export


def _word(payload: bytes, begin: int) -> int:
    return int.from_bytes(payload[begin : begin + 4], "big")


def _begins_set(payload: bytes) -> bool:
    number, size = struct.unpack_from("!HH", payload, _SETS_AT[9])
    return bool((number in (0, 1) or number >= _FIRST_DATA) and 4 <= size <= len(payload) - _SETS_AT[9])


# -- NetFlow v9 and IPFIX ------------------------------------------------------------------------------


def _with_sets(export: Export, payload: bytes, version: int, known: Templates) -> Export:
    domain = export.domain = _word(payload, _SETS_AT[version] - 4)
    export.count = _word(payload, 4 if version == 9 else 8)
    for number, body in _sets(payload, _SETS_AT[version]):
        if number in (_TEMPLATES[version], _OPTIONS[version]):
            for template in _templates(body, version, is_options=number == _OPTIONS[version]):
                export.templates.append(template)
                known[domain, template.number] = template
        elif number >= _FIRST_DATA:
            template_of = known.get((domain, number))
            if template_of is None:
                export.unread += 1
            else:
                export.samples += not template_of.is_options
                rates = export.rates if template_of.is_rate_read else export.unread_rates
                rates |= _rates(template_of, body)
    return export


def _sets(payload: bytes, begin: int) -> Iterator[tuple[int, bytes]]:
    for _ in range(_MOST_SETS):
        if begin + 4 > len(payload):
            return
        number, size = struct.unpack_from("!HH", payload, begin)
        if size < 4:
            return
        yield number, payload[begin + 4 : begin + size]
        begin += size


def _templates(body: bytes, version: int, *, is_options: bool) -> Iterator[Template]:
    begin = 0
    while begin + 4 <= len(body):
        number, count = struct.unpack_from("!HH", body, begin)
        begin += 4
        if number < _FIRST_DATA:
            return
        scopes = 0
        if is_options:
            if begin + 2 > len(body):
                return
            (last,) = struct.unpack_from("!H", body, begin)
            begin += 2
            # v9 tells the bytes of both parts, IPFIX the number of all fields and of those that are scopes.
            scopes, count = (count // 4, (count + last) // 4) if version == 9 else (last, count)
        fields = []
        for i in range(min(count, _MOST_FIELDS)):
            if begin + 4 > len(body):
                return
            element, size = struct.unpack_from("!HH", body, begin)
            begin += 4
            enterprise = 0
            if version == 10 and element & _ENTERPRISE:
                if begin + 4 > len(body):
                    return
                (enterprise,) = struct.unpack_from("!I", body, begin)
                element, begin = element & ~_ENTERPRISE, begin + 4
            # Scopes of v9 are numbered by themselves: 1 is the system there, not the octets.
            fields.append(TemplateField(-1 if version == 9 and i < scopes else enterprise, element, size))
        yield Template(number, is_options, tuple(fields))


def _rates(template: Template, body: bytes) -> set[float]:
    """Return the sampling rates in the records of a set: all of options, the first of flows."""
    found: set[float] = set()
    if not template.tells_sampling:
        return found
    begin = 0
    while begin < len(body):
        values: dict[int, int] = {}
        start = begin
        for one in template.fields:
            value, begin = _value(body, begin, one.size)
            if value is None:
                return found
            if one.enterprise == 0 and one.element in SAMPLING:
                values[one.element] = int.from_bytes(value, "big")
        found |= {rate for rate in _rate(values) if rate > 0}
        if begin == start or not template.is_options:
            break
    return found


def _value(body: bytes, begin: int, size: int) -> tuple[bytes | None, int]:
    """Return a field's bytes, None where the set ends before, and where the next one begins."""
    if size == _VARIABLE:
        size, begin = int.from_bytes(body[begin : begin + 1], "big"), begin + 1
        if size == _LONG:
            size, begin = int.from_bytes(body[begin : begin + 2], "big"), begin + 2
    end = begin + size
    return (body[begin:end] if end <= len(body) else None), end


def _rate(values: dict[int, int]) -> Iterator[float]:
    yield from (values[element] for element in _INTERVALS if element in values)
    if interval := values.get(_PACKET_INTERVAL):
        yield _ratio(interval + values[_PACKET_SPACE], interval) if _PACKET_SPACE in values else interval
    if size := values.get(_SIZE):
        yield _ratio(values.get(_POPULATION, 0), size)


def _ratio(all_of_them: int, some: int) -> float:
    """Return 1 packet in how many is taken: a fraction where that is no whole number."""
    return all_of_them / some if all_of_them % some else all_of_them // some


# -- sFlow -----------------------------------------------------------------------------------------------


def _sflow(payload: bytes) -> Export:
    (family,) = struct.unpack_from("!I", payload, 4)
    length = {1: 4, 2: 16}.get(family)
    if length is None or len(payload) < 24 + length:
        return Export(Protocol.OTHER)
    agent = ip_address(payload[8 : 8 + length])
    export = Export(Protocol.SFLOW, agent=str(getattr(agent, "ipv4_mapped", None) or agent))
    export.domain, _, export.count, count = struct.unpack_from("!4I", payload, 8 + length)
    begin = 24 + length
    for _ in range(min(count, _MOST_SAMPLES)):
        if begin + 24 > len(payload):
            break
        kind, size = struct.unpack_from("!II", payload, begin)
        # Plain and expanded: the latter has two words for its source.
        if kind in (1, 3):
            export.samples += 1
            export.rates.add(struct.unpack_from("!I", payload, begin + (16 if kind == 1 else 20))[0])
            # Behind the sample's own words the first record; of a raw header (1), the frame behind four words.
            record = begin + (40 if kind == 1 else 52)
            if payload[record : record + 4] == _RAW_HEADER:
                types = payload[record + 36 : record + 38], payload[record + 40 : record + 42]
                export.double_tagged += all(one in _VLAN for one in types)
        elif kind in (2, 4):
            export.counters += 1
        begin += 8 + size
    return export
