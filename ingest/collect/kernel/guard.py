"""A filter in front of nfacctd, in the kernel: datagrams whose templates would overflow its stack never reach it.

pmacct 1.7.7 copies some fields into a variable of the field's type, at the length that the template gives (pmacct
#934). `LONGEST` lists these elements, each with the size of its type, which no exporter may exceed (RFC 7011, 6.2):
what is longer is refused. Of Debian's build eight kill by one datagram (4, 21, 22, 152, 153, 158, 159, 323); others
overwrite what the next one needs (9, then any). tests/faults/malformed.py tries them all. Refused is, too, what makes
nfacctd read records for ever, a template whose length is 0 in 16 bits, and what crashes it as a template, one with more
elements of enterprises, or above 383, than it has room for. All else passes.

The program walks through the sets of a NetFlow v9 or IPFIX datagram as nfacctd does, errors included, field by field,
and stands on nfacctd's own socket. No datagram is copied for that, and no address changes. The kernel wants CAP_BPF for
it, and CAP_NET_RAW to tell who sent what was refused; without them nfacctd runs as it is.

It knows no records: of one with a field of varying length, a long form (RFC 7011, 7) that makes its length 0 in 16 bits
still hangs nfacctd.
"""

import contextlib
import os
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Address

from cluster.model import Cluster
from ingest.collect.kernel import bpf
from ingest.collect.kernel.guard_program import ELEMENTS, program
from ingest.collect.trouble_file import REFUSED, UNLISTED, Troubles
from ingest.listen.exports import read_export
from ingest.listen.packets import parse

LONGEST: Mapping[int, int] = {
    **dict.fromkeys((4, 5, 9, 13, 29, 30), 1),  # protocol, type of service, prefix lengths
    **dict.fromkeys((6, 7, 11, 58, 59), 2),  # TCP flags, ports, VLANs
    **dict.fromkeys(range(70, 80), 3),  # MPLS labels
    **dict.fromkeys((8, 12, 21, 22, 158, 159, 234, 235), 4),  # IPv4 addresses, times, VRFs
    **dict.fromkeys((56, 57, 80, 81), 6),  # MAC addresses
    **dict.fromkeys((90, 152, 153, 160, 323), 8),  # route distinguisher, times
    **dict.fromkeys((27, 28), 16),  # IPv6 addresses
}
"""Element -> bytes of its type (IANA's registry)."""

_ANY = 0xFFFF
_ARRAY, _SOCKET_FILTER = 2, 1
_SO_ATTACH_BPF = 50
_ETH_P_ALL = 3
_SOL_PACKET, _STATISTICS = 263, 6


@dataclass(frozen=True, slots=True)
class Refusal:
    """A datagram that was refused: who sent it, and the first element that is too long, with the length it has.

    Both are 0 where none is.
    """

    source: IPv4Address | IPv6Address
    element: int
    size: int


class Guard:
    """The filter, loaded; what it is attached to keeps it.

    Args:
        port: where nfacctd listens.

    Raises:
        BpfError: the kernel does not take it.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._copies: socket.socket | None = None
        self._filter = loaded_filter()
        with contextlib.suppress(OSError, bpf.BpfError):
            self._copies = _copies_of_refused(bpf.loaded(program(_longest(), port), _SOCKET_FILTER))

    @property
    def names_senders(self) -> bool:
        """Whether `refusals` can tell who sent what was refused: it takes CAP_NET_RAW."""
        return self._copies is not None

    def protect(self, pid: int) -> bool:
        """Put the filter on a process's sockets of the port; return whether there is any.

        Raises:
            BpfError: we may not.
        """
        with bpf.sockets_of(pid, self._port) as found:
            for one in found:
                one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_BPF, self._filter)
        return bool(found)

    def refusals(self) -> list[Refusal]:
        """Return what was refused since the last call, as far as the kernel's queue for us holds it."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while self._copies is not None:
                datagram = parse(self._copies.recv(1 << 16))
                if datagram is not None:
                    found.append(Refusal(datagram.source, *_why(datagram.payload)))
        return found

    def missed(self) -> int:
        """Return how many more were refused since the last call, whose senders nobody can tell: a flood of them."""
        if self._copies is None:
            return 0
        _, missed = struct.unpack("II", self._copies.getsockopt(_SOL_PACKET, _STATISTICS, 8))
        return int(missed)

    def close(self) -> None:
        """Want no more copies of what is refused."""
        if self._copies is not None:
            self._copies.close()


@cache
def _longest() -> int:
    """Return the descriptor of the array element -> most bytes; for as long as we run."""
    table = bpf.new_map(_ARRAY, ELEMENTS)
    for element in range(ELEMENTS):
        bpf.update(table, element, LONGEST.get(element, _ANY))
    return table


@cache
def loaded_filter() -> int:
    """Return the descriptor of the filter for sockets of any port. The kernel tries it out for half a second."""
    return bpf.loaded(program(_longest()), _SOCKET_FILTER)


def _why(payload: bytes) -> tuple[int, int]:
    for template in read_export(payload, {}).templates:
        for one in template.fields:
            if not one.enterprise and one.size > LONGEST.get(one.element, _ANY):
                return one.element, one.size
    return 0, 0


def _copies_of_refused(program: int) -> socket.socket:
    copies = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.htons(_ETH_P_ALL))
    copies.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_BPF, program)
    os.close(program)
    # What came before the filter was there.
    with contextlib.suppress(BlockingIOError):
        while True:
            copies.recv(1)
    return copies


class Teller:
    """Tells what a guard refused.

    Args:
        cluster: names its exporters.
        troubles: where it is noted.
        log: called as ``log(event, **values)``.
    """

    def __init__(self, cluster: Cluster, troubles: Troubles, log: Callable[..., None]) -> None:
        self._names = {exporter.address: exporter.name for exporter in cluster.exporters}
        self._troubles, self._log = troubles, log

    def tell(self, guard: Guard) -> Counter[IPv4Address | IPv6Address]:
        """Tell of what was refused since the last call; return how many datagrams that were, by their sender.

        Those of a flood, whose senders nobody can tell, stand with the one of most.
        """
        found = Counter(guard.refusals())
        for refusal, count in found.items():
            name = self._names.get(refusal.source, UNLISTED)
            self._troubles.add(REFUSED, name, count)
            self._log(
                "datagrams_refused",
                level="error",
                source=refusal.source,
                exporter=name,
                count=count,
                why=f"a template has element {refusal.element} with {refusal.size} bytes: it would kill nfacctd"
                if refusal.element
                else "nfacctd would read records of a template for ever, or crash at it",
            )
        told = Counter[IPv4Address | IPv6Address]()
        for refusal, count in found.items():
            told[refusal.source] += count
        if missed := guard.missed():
            told[max(told, key=lambda source: told[source], default=IPv4Address(0))] += missed
        return told
