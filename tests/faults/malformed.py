"""Datagrams with templates whose fields are longer than their type: each element of IANA's registry, long ones."""

import struct
from collections.abc import Iterator
from enum import Enum

ELEMENTS = range(1, 512)
SIZES = (300, 1300)
KILLERS = (4, 21, 22, 152, 153, 323)
"""Elements of v9 of which one kills."""
_MOMENT, _UPTIME, _DOMAIN = 1_790_000_000, 10_000_000, 7
_BASE = ((8, 4), (12, 4), (1, 4), (2, 4))
"""Addresses, bytes and packets: zeros, so that what nfacctd reads of such a record is no traffic."""


class Form(Enum):
    """How the template gives the length."""

    V9 = 9
    IPFIX = 10
    IPFIX_VARIABLE = 11


def malformed(form: Form, element: int, size: int, sequence: int) -> bytes:
    """Return a datagram: a template with one element of this size, and a record of it."""
    fields = ((element, size), *(one for one in _BASE if one[0] != element))
    is_variable = form is Form.IPFIX_VARIABLE
    specs = b"".join(
        struct.pack("!HH", number, 65535 if is_variable and number == element else length) for number, length in fields
    )
    lead = b"\xff" + struct.pack("!H", size) if is_variable else b""
    data = b"".join(lead + b"A" * size if number == element else bytes(length) for number, length in fields)
    number = 300 + element
    sets = struct.pack("!HHHH", 0 if form is Form.V9 else 2, 8 + len(specs), number, len(fields)) + specs
    sets += struct.pack("!HH", number, 4 + len(data)) + data
    if form is Form.V9:
        return struct.pack("!HHIIII", 9, 2, _UPTIME, _MOMENT, sequence, _DOMAIN) + sets
    return struct.pack("!HHIII", 10, 16 + len(sets), _MOMENT, sequence, _DOMAIN) + sets


def everything() -> Iterator[tuple[int, bytes]]:
    """Yield every element in every size and form, and its datagram."""
    sequence = 0
    for size in SIZES:
        for form in Form:
            for element in ELEMENTS:
                sequence += 1
                yield element, malformed(form, element, size, sequence)


def killers() -> list[bytes]:
    """Return one datagram of each element that kills."""
    return [malformed(Form.V9, element, SIZES[0], number) for number, element in enumerate(KILLERS, start=1)]
