"""The program of `ingest.collect.kernel.guard`, in eBPF: it reads a datagram of NetFlow v9 or IPFIX as nfacctd.

nfacctd 1.7.7 (`process_v9_packet`, `insert_template`, `insert_opt_template`) tells the layout of a template from its
set's number, whatever the datagram's version. Where a field begins behind its set it gives up the datagram; where one
begins before, it reads on behind the set, and behind the datagram. Any number is a template's. Behind a template of
options it goes on at a place of its own (`_BEYOND`).
"""

import socket

from ingest.collect.kernel.bpf import Program

ELEMENTS = 384
"""nfacctd has a table of elements below, those above and an enterprise's are in another."""

_MOST_STEPS = 400
"""Sets, templates and fields of one datagram. An Ethernet frame holds no more than 370; the verifier tries each."""

_MOST_FIELDS = 256
_MOST_OTHERS = 32
"""The table of other elements has room for so many of each remainder of their number by 8; one more is a crash."""
_BUFFER = 9_992
"""nfacctd reads 10,000 bytes of a datagram."""
_LONGEST_RECORD = 0x7FFF
"""nfacctd adds up lengths in 16 bits: beyond them one of flows may be none. No datagram holds half of that."""
_VRF = 235
"""Of options, nfacctd copies no other field at the template's length."""

_OUTGOING = 4
_UDP_HEADER = 8
_MAP_LOOKUP, _LOAD_BYTES = 1, 26
_OPTIONS, _IPFIX = 1, 2
"""Bits of the numbers of sets of templates, 0 to 3."""

# eBPF (linux/bpf.h): r6 the packet, r7 the place in the datagram, which begins at r8, r9 steps so far. On the stack:
# what was read, the number of the set of templates, its end (0: between sets), how many fields of the template are
# left, a key of the map, the template's number, its length, of which nfacctd knows 16 bits (a field of flows of varying
# length counts 1), how far beyond its end nfacctd takes up the next one, how many other elements of each remainder.
# Those of 2 and 4 bytes stand where the verifier does not follow their values: it would try each step with each.

_READ, _KIND, _END, _LEFT, _KEY, _NUMBER, _LENGTH, _BEYOND, _OTHERS = -8, -14, -20, -26, -32, -38, -44, -52, -64


class _Program(Program):
    """Every jump goes forward but those to the loop's begin, and to the end of a template."""

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
    p.set(7, 20)
    p.when(2, "==", 9, "begin")
    p.set(7, 16)
    p.when(2, "!=", 10, "pass")
    p.at("begin")
    p.set(9, 0)
    p.set(1, 0)
    p.put(0x63, 10, 1, _END)
    p.put(0x6B, 10, 1, _LEFT)
    p.at("next")
    p.add(9, 1)
    p.when(9, ">", _MOST_STEPS, "refuse")
    p.put(0x61, 5, 10, _END)
    p.put(0x69, 4, 10, _LEFT)
    p.when(4, "!=", 0, "field")
    p.when(5, "!=", 0, "template")
    _between_sets(p)
    _template(p)
    _options(p)
    _template_ends(p)
    _cut_off(p)
    _field(p)
    _other(p)
    _listed(p, longest)
    p.at("pass")
    p.set(0, 0 if port else -1)
    p.put(0x95)
    p.at("refuse")
    p.set(0, -1 if port else 0)
    p.put(0x95)
    return p.bytes()


def _between_sets(p: _Program) -> None:
    """Take up a set by its number and its length."""
    p.load_packet(4, "pass")
    p.load_half(2, _READ)
    p.load_half(3, _READ + 2)
    p.when(3, "<", 4, "pass")
    p.put(0x0F, 3, 7)
    p.when(2, "<=", _OPTIONS | _IPFIX, "templates")
    p.copy(7, 3)
    p.go("next")
    p.at("templates")
    # It ends behind the datagram: nfacctd does not read it.
    p.put(0x61, 1, 6, 0)
    p.put(0x1F, 1, 8)
    p.when_registers(3, ">", 1, "pass")
    p.when(3, ">", _BUFFER, "refuse")
    p.put(0x6B, 10, 2, _KIND)
    p.put(0x63, 10, 3, _END)
    p.add(7, 4)
    p.go("next")


def _template(p: _Program) -> None:
    """Take up a template by its number and its count of fields; r5 is the set's end."""
    p.at("template")
    p.when_registers(7, ">=", 5, "set_ends")
    p.load_packet(4, "cut")
    p.load_half(2, _READ)
    p.load_half(3, _READ + 2)
    p.add(7, 4)
    p.put(0x6B, 10, 2, _NUMBER)
    p.put(0x6B, 10, 3, _LEFT)
    # 0, of which the verifier does not know: else it would try each step with it, and without.
    p.copy(1, 3)
    p.put(0x1F, 1, 3)
    p.put(0x63, 10, 1, _LENGTH)
    p.put(0x63, 10, 1, _BEYOND)
    p.put(0x7B, 10, 1, _OTHERS)
    p.put(0x69, 1, 10, _KIND)
    p.when(1, "&", _OPTIONS, "options")
    # With more fields than nfacctd takes, the first ones stay.
    p.when(3, "<=", _MOST_FIELDS, "counted")
    p.put(0x61, 5, 10, _END)
    p.put(0x1F, 5, 7)
    p.when(5, ">=", _MOST_FIELDS * 4, "too_long")
    p.go("counted")


def _options(p: _Program) -> None:
    """Take up the other count of a template of options; r3 becomes that of its fields."""
    p.at("options")
    p.load_packet(2, "counts_cut")
    p.add(7, 2)
    p.load_half(2, _READ)
    p.put(0x69, 3, 10, _LEFT)
    p.put(0x69, 1, 10, _KIND)
    p.when(1, "&", _IPFIX, "scopes")
    # Bytes of scopes, then of options, four a field. nfacctd goes on as if these were counts of fields.
    p.copy(1, 2)
    p.put(0x0F, 1, 3)
    p.put(0x77, 2, value=2)
    p.put(0x77, 3, value=2)
    p.put(0x0F, 3, 2)
    p.put(0x6B, 10, 3, _LEFT)
    p.copy(2, 1)
    p.put(0x1F, 2, 3)
    p.at("scopes")
    # IPFIX counts fields, scopes among them; nfacctd goes on as if they were not.
    p.put(0x67, 2, value=2)
    p.put(0x63, 10, 2, _BEYOND)


def _template_ends(p: _Program) -> None:
    """Judge a template's length, and go on where nfacctd does."""
    p.at("counted")
    p.when(3, "!=", 0, "next")
    p.at("template_ends")
    p.put(0x69, 2, 10, _NUMBER)
    p.when(2, "<", 256, "harmless")
    # Without a length nfacctd would read its records for ever.
    p.put(0x61, 1, 10, _LENGTH)
    p.when(1, "&", 0xFFFF, "harmless")
    p.go("refuse")
    p.at("harmless")
    p.put(0x61, 1, 10, _BEYOND)
    p.put(0x0F, 7, 1)
    # nfacctd counts in 16 bits how far it is: it may take itself to be in the set again, and read anything.
    p.copy(1, 7)
    p.put(0x77, 1, value=16)
    p.when(1, "==", 0, "next")
    p.put(0x61, 5, 10, _END)
    p.copy(1, 7)
    p.put(0x1F, 1, 5)
    p.put(0x57, 1, value=0xFFFF)
    p.put(0x0F, 1, 5)
    p.when(1, ">", 0xFFFF, "refuse")
    p.go("next")
    p.at("set_ends")
    p.copy(7, 5)
    p.set(1, 0)
    p.put(0x63, 10, 1, _END)
    p.go("next")


def _cut_off(p: _Program) -> None:
    """Judge a template that is cut off by the datagram's end: nfacctd goes on in what an earlier one left there.

    No records have a number below 256. It gives up a template of which more is to come.
    """
    p.at("cut")
    p.put(0x69, 1, 10, _KIND)
    p.when(1, "==", _OPTIONS | _IPFIX, "refuse")
    p.load_packet(1, "pass")
    p.put(0x71, 2, 10, _READ)
    p.when(2, "==", 0, "pass")
    p.go("refuse")
    p.at("counts_cut")
    p.put(0x69, 3, 10, _LEFT)
    p.when(3, ">=", 4, "pass")
    p.go("refuse")
    p.at("field_cut")
    p.put(0x61, 1, 10, _OTHERS)
    p.put(0x61, 2, 10, _OTHERS + 4)
    p.put(0x4F, 1, 2)
    p.when(1, "&", _MOST_OTHERS * 0x01010101, "refuse")
    p.put(0x69, 4, 10, _LEFT)
    p.when(4, "!=", 1, "pass")
    p.at("too_long")
    p.put(0x69, 2, 10, _NUMBER)
    p.when(2, "<", 256, "pass")
    p.go("refuse")


def _field(p: _Program) -> None:
    """Take up a field, as r2 and r3, and add up its length; then r4 is how many there were, r5 the set's number."""
    p.at("field")
    p.when_registers(7, ">=", 5, "pass")
    p.load_packet(4, "field_cut")
    p.load_half(2, _READ)
    p.load_half(3, _READ + 2)
    p.add(7, 4)
    p.put(0x69, 4, 10, _LEFT)
    p.copy(1, 4)
    p.add(1, -1)
    p.put(0x6B, 10, 1, _LEFT)
    p.put(0x69, 5, 10, _KIND)
    p.copy(1, 3)
    p.when(5, "&", _OPTIONS, "option_length")
    p.when(3, "!=", 0xFFFF, "fixed")
    p.set(1, 1)
    p.at("fixed")
    p.put(0x61, 0, 10, _LENGTH)
    p.put(0x0F, 0, 1)
    p.when(0, ">", _LONGEST_RECORD, "refuse")
    p.go("added")
    p.at("option_length")
    p.put(0x61, 0, 10, _LENGTH)
    p.put(0x0F, 0, 1)
    p.at("added")
    p.put(0x63, 10, 0, _LENGTH)
    p.when(2, "<", ELEMENTS, "listed")


def _other(p: _Program) -> None:
    """Count an element for which nfacctd's table has no place of its own; in IPFIX its enterprise may follow."""
    p.when(5, "&", _IPFIX, "enterprise")
    p.go("other")
    p.at("enterprise")
    p.when(2, "<", 0x8000, "other")
    p.put(0x57, 2, value=0x7FFF)
    p.add(7, 4)
    p.at("other")
    p.when(5, "&", _OPTIONS, "other_option")
    p.go("room")
    p.at("other_option")
    p.when(4, "<", _MOST_FIELDS, "room")
    # nfacctd gives it up here; what it knew of that number before keeps the length of the fields so far.
    p.put(0x1F, 0, 1)
    p.when(0, "&", 0xFFFF, "pass")
    p.go("too_long")
    p.at("room")
    p.put(0x57, 2, value=7)
    p.put(0x67, 2, value=3)
    p.set(1, 1)
    p.put(0x6F, 1, 2)
    p.put(0x79, 3, 10, _OTHERS)
    p.put(0x0F, 3, 1)
    p.put(0x7B, 10, 3, _OTHERS)
    p.put(0x7F, 3, 2)
    p.put(0x57, 3, value=0xFF)
    p.when(3, ">", _MOST_OTHERS, "refuse")
    p.go("judged")


def _listed(p: _Program, longest: int) -> None:
    """Judge a field by its element and its length."""
    p.at("listed")
    p.when(5, "&", _OPTIONS, "option")
    p.at("copied")
    p.put(0x63, 10, 2, _KEY)
    p.put(0x6B, 10, 3, _READ)
    p.load_map(1, longest)
    p.copy(2, 10)
    p.add(2, _KEY)
    p.call(_MAP_LOOKUP)
    p.when(0, "==", 0, "judged")
    p.put(0x61, 1, 0, 0)
    p.put(0x69, 2, 10, _READ)
    p.when_registers(2, ">", 1, "refuse")
    p.go("judged")
    p.at("option")
    p.when(2, "==", _VRF, "copied")
    p.at("judged")
    p.put(0x69, 4, 10, _LEFT)
    p.when(4, "==", 0, "template_ends")
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
    p.put(0x6B, 10, 2, _KIND)
    p.set(8, 0)
    p.load_packet(2, "pass")
    p.load_half(1, _READ)
    p.when(1, "&", 0x1FFF, "pass")
    p.set(7, 9)
    p.put(0x69, 8, 10, _KIND)
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
