"""The program of `ingest.collect.kernel.guard`, in eBPF: through a datagram of NetFlow v9 or IPFIX, field by field."""

import socket

from ingest.collect.kernel.bpf import Program

ELEMENTS = 512
"""The program looks at elements below; no longer one kills."""

_MOST_STEPS = 400
"""Sets, templates and fields of one datagram. An Ethernet frame holds no more than 370; the verifier tries each."""

_OUTGOING = 4
_UDP_HEADER = 8
_MAP_LOOKUP, _LOAD_BYTES = 1, 26

# eBPF (linux/bpf.h): r6 the packet, r7 the place in the datagram, which begins at r8, r9 steps so far. On the stack:
# what was read, the datagram's version, the end of the set of templates (0: between sets), how many fields of the
# template are left, a key of the map, the template's lengths or-ed together, whether it is one of options. Those in
# between stand where the verifier does not follow their values: it would try each step with each of them.

_READ, _VERSION, _END, _LEFT, _KEY, _LENGTHS, _OPTIONS = -8, -14, -20, -26, -32, -38, -44
_SCOPES = 6
"""Of NetFlow v9 (RFC 3954, 6.1) the elements below have a meaning of their own in templates of options."""


class _Program(Program):
    """Every jump goes forward but those to the loop's begin."""

    def load_packet(self, count: int, place: str) -> None:
        """Read so many bytes at r7 + r8 onto the stack; go to `place` if the packet ends before."""
        self.copy(1, 6)
        self.copy(2, 7)
        self.put(0x0F, 2, 8)
        self.copy(3, 10)
        self.add(3, _READ)
        self.set(4, count)
        self.call(_LOAD_BYTES)
        self.when(0, "!=", 0, place)

    def load_half(self, to: int, slot: int) -> None:
        """Read two bytes of the stack, in network order."""
        self.put(0x69, to, 10, slot)
        self.put(0xDC, to, value=16)


def program(longest: int, port: int = 0) -> bytes:
    """Return the filter: it answers 0 for what is refused, else the whole datagram.

    Args:
        longest: descriptor of the array element -> most bytes.
        port: for copies of IP packets, of which those that were sent to this port and refused pass, and no others.
    """
    p = _Program()
    p.copy(6, 1)
    p.set(7, 0)
    p.set(8, _UDP_HEADER)
    if port:
        _begin_of_udp(p, port)
    p.load_packet(2, "pass")
    p.load_half(2, _READ)
    p.put(0x6B, 10, 2, _VERSION)
    p.set(7, 20)
    p.when(2, "==", 9, "begin")
    p.set(7, 16)
    p.when(2, "!=", 10, "pass")
    p.at("begin")
    p.set(9, 0)
    p.set(1, 0)
    p.put(0x63, 10, 1, _END)
    p.put(0x6B, 10, 1, _LEFT)
    p.put(0x6B, 10, 1, _LENGTHS)
    p.put(0x6B, 10, 1, _OPTIONS)
    p.at("next")
    p.add(9, 1)
    p.when(9, ">", _MOST_STEPS, "refuse")
    p.load_packet(4, "pass")
    p.load_half(2, _READ)
    p.load_half(3, _READ + 2)
    p.put(0x69, 4, 10, _LEFT)
    p.when(4, "!=", 0, "field")
    p.put(0x61, 5, 10, _END)
    p.when(5, "!=", 0, "template")
    _between_sets(p)
    _template(p)
    _field(p, longest)
    p.at("pass")
    p.set(0, 0 if port else -1)
    p.put(0x95)
    p.at("refuse")
    p.set(0, -1 if port else 0)
    p.put(0x95)
    return p.bytes()


def _between_sets(p: _Program) -> None:
    """Take up a set by its number and its length."""
    p.when(3, "<", 4, "pass")
    p.set(1, 0)
    p.when(2, "==", 0, "templates")
    p.when(2, "==", 2, "templates")
    p.set(1, 1)
    p.when(2, "==", 1, "templates")
    p.when(2, "==", 3, "templates")
    p.put(0x0F, 7, 3)
    p.go("next")
    p.at("templates")
    p.put(0x6B, 10, 1, _OPTIONS)
    p.put(0x0F, 3, 7)
    p.put(0x63, 10, 3, _END)
    p.add(7, 4)
    p.go("next")


def _template(p: _Program) -> None:
    """Take up a template by its number and its count of fields.

    Of flows nfacctd takes numbers below 256, too, and reads on behind them: only zeros pad such a set. It takes what is
    left of a set, with the begin of the next one, for a template.
    """
    p.at("template")
    p.copy(1, 7)
    p.add(1, 4)
    p.when_registers(1, ">", 5, "rest")
    p.when(2, ">=", 256, "numbered")
    p.put(0x69, 1, 10, _OPTIONS)
    p.when(1, "!=", 0, "set_ends")
    p.put(0x4F, 2, 3)
    p.when(2, "!=", 0, "refuse")
    p.add(7, 4)
    p.go("next")
    p.at("numbered")
    p.set(1, 0)
    p.put(0x6B, 10, 1, _LENGTHS)
    p.put(0x6B, 10, 3, _LEFT)
    p.add(7, 4)
    p.put(0x69, 1, 10, _OPTIONS)
    p.when(1, "!=", 0, "options")
    p.go("counted")
    p.at("options")
    # Withdrawn, in IPFIX, it ends here.
    p.put(0x69, 1, 10, _VERSION)
    p.when(1, "==", 9, "scopes")
    p.when(3, "==", 0, "refuse")
    p.at("scopes")
    p.load_packet(2, "pass")
    p.add(7, 2)
    p.put(0x69, 1, 10, _VERSION)
    p.when(1, "!=", 9, "counted")
    # Bytes of scopes, then of options, four a field; IPFIX counts fields.
    p.load_half(2, _READ)
    p.put(0x77, 2, value=2)
    p.put(0x69, 1, 10, _LEFT)
    p.put(0x77, 1, value=2)
    p.put(0x0F, 1, 2)
    p.put(0x6B, 10, 1, _LEFT)
    p.at("counted")
    p.put(0x69, 1, 10, _LEFT)
    # Of no field, or of fields without a length: nfacctd would read its records for ever.
    p.when(1, "==", 0, "refuse")
    p.go("next")
    p.at("rest")
    p.when(2, "<", 256, "set_ends")
    p.when(3, "!=", 0, "set_ends")
    p.when_registers(5, ">", 7, "refuse")
    p.at("set_ends")
    p.copy(7, 5)
    p.set(1, 0)
    p.put(0x63, 10, 1, _END)
    p.go("next")


def _field(p: _Program, longest: int) -> None:
    """Judge a field by its element and its length; in IPFIX an enterprise may follow."""
    p.at("field")
    p.add(4, -1)
    p.put(0x6B, 10, 4, _LEFT)
    p.add(7, 4)
    p.put(0x69, 1, 10, _LENGTHS)
    p.put(0x4F, 1, 3)
    p.put(0x6B, 10, 1, _LENGTHS)
    p.when(4, "!=", 0, "more")
    p.when(1, "==", 0, "refuse")
    p.at("more")
    p.put(0x69, 1, 10, _VERSION)
    p.when(1, "==", 9, "standard")
    p.when(2, "<", 0x8000, "standard")
    p.add(7, 4)
    p.go("next")
    p.at("standard")
    p.when(2, ">=", ELEMENTS, "next")
    p.put(0x69, 1, 10, _OPTIONS)
    p.when(1, "==", 0, "of_flows")
    p.when(2, "<", _SCOPES, "next")
    p.at("of_flows")
    p.put(0x63, 10, 2, _KEY)
    p.put(0x6B, 10, 3, _READ)
    p.load_map(1, longest)
    p.copy(2, 10)
    p.add(2, _KEY)
    p.call(_MAP_LOOKUP)
    p.when(0, "==", 0, "next")
    p.put(0x61, 1, 0, 0)
    p.put(0x69, 2, 10, _READ)
    p.when_registers(2, ">", 1, "refuse")
    p.go("next")


def _begin_of_udp(p: _Program, port: int) -> None:
    """Go on with the datagram of an IP packet that arrives at the port; IPv6 without extension headers."""
    p.put(0x61, 1, 6, 4)
    p.when(1, "==", _OUTGOING, "pass")
    p.set(8, 0)
    p.load_packet(1, "pass")
    p.put(0x71, 2, 10, _READ)
    p.copy(1, 2)
    p.put(0x77, 1, value=4)
    p.set(8, 40)
    p.set(7, 6)
    p.when(1, "==", 6, "protocol")
    p.when(1, "!=", 4, "pass")
    p.put(0x57, 2, value=15)
    p.put(0x67, 2, value=2)
    # The length of the header comes from the packet: from here on the verifier takes it for anything.
    p.put(0x6B, 10, 2, _VERSION)
    p.set(8, 0)
    p.load_packet(2, "pass")
    p.load_half(1, _READ)
    p.when(1, "&", 0x1FFF, "pass")
    p.set(7, 9)
    p.put(0x69, 8, 10, _VERSION)
    p.at("protocol")
    p.put(0x7B, 10, 8, _KEY)
    p.set(8, 0)
    p.load_packet(1, "pass")
    p.put(0x71, 2, 10, _READ)
    p.when(2, "!=", socket.IPPROTO_UDP, "pass")
    p.put(0x79, 8, 10, _KEY)
    p.set(7, 2)
    p.load_packet(2, "pass")
    p.load_half(1, _READ)
    p.when(1, "!=", port, "pass")
    p.add(8, _UDP_HEADER)
    p.set(7, 0)
