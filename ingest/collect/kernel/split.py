"""Several nfacctd behind one port: the kernel gives each exporter, by its address alone, to one and the same of them.

nfacctd opens its socket with SO_REUSEPORT. Left to itself, the kernel spreads datagrams by both addresses and ports: an
exporter that changes its source port would come to a daemon that does not know its templates. So the sockets get a
program that looks at the source address, and picks the socket that stands in a table for its share. Where a daemon is
dead its place is empty: its exporters' datagrams are lost until it is back, as with a single one, and nobody else gets
what may have killed it. The kernel wants CAP_BPF.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address

from ingest.collect.kernel import bpf

_REUSEPORT, _SOCKARRAY = 21, 20
_SO_ATTACH_REUSEPORT_EBPF = 52
_LOAD_BYTES_RELATIVE, _SELECT_REUSEPORT = 68, 82
_ETH_P_IPV6 = 0x86DD
_FROM_NETWORK_HEADER = 1
_MIX = 0x9E3779B1
"""2^32 over the golden ratio (Knuth, The Art of Computer Programming, 6.4): neighbouring addresses spread evenly."""
_ADDRESS, _KEY = -16, -20
_WORD = 0xFFFFFFFF


def share_of(address: IPv4Address | IPv6Address, shares: int) -> int:
    """Return which of so many daemons, from 0, an exporter's datagrams go to: what the kernel's program computes."""
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    packed, mixed = address.packed, 0
    for at in range(0, len(packed), 4):
        mixed ^= int.from_bytes(packed[at : at + 4])
    return ((mixed * _MIX & _WORD) * shares) >> 32


class Split:
    """The program, and the table of sockets: share -> socket.

    Args:
        listen: the address that the daemons listen to.
        port: their port.
        shares: how many there are.

    Raises:
        bpf.BpfError: the kernel does not take it, or we may not place the daemons' sockets.
    """

    def __init__(self, listen: str, port: int, shares: int) -> None:
        self._place = listen, port
        # Without, the program would find no socket, and nobody would get a datagram.
        bpf.check_sockets_of_children()
        self._table = bpf.new_map(_SOCKARRAY, shares)
        self._program = bpf.loaded(_program(self._table, shares), _REUSEPORT)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Have the program decide from a daemon's first datagram on; OSError if the port cannot be had.

        A socket of ours brings it into the port's group, and gets nothing itself.
        """
        family = socket.AF_INET if ip_address(self._place[0]).version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            ours.bind(self._place)
            ours.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_EBPF, self._program)
            yield

    def place(self, pid: int, share: int) -> bool:
        """Give a daemon's socket its share; return whether it has one by now.

        Raises:
            bpf.BpfError: we may not.
        """
        with bpf.sockets_of(pid, self._place[1]) as found:
            for one in found:
                self.give(one, share)
        return bool(found)

    def give(self, theirs: socket.socket, share: int) -> None:
        """Give a socket a share."""
        theirs.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_EBPF, self._program)
        bpf.update(self._table, share, theirs.fileno())


def _program(table: int, shares: int) -> bytes:
    """Return the program: `share_of` of the packet's source, and the socket that stands for it; else nobody."""
    p = bpf.Program()
    p.copy(6, 1)
    p.set(1, 0)
    p.put(0x7B, 10, 1, _ADDRESS)
    p.put(0x7B, 10, 1, _ADDRESS + 8)
    p.put(0x61, 2, 6, 20)
    p.set(7, 8)
    p.set(8, 16)
    p.when(2, "==", socket.htons(_ETH_P_IPV6), "read")
    p.set(7, 12)
    p.set(8, 4)
    p.at("read")
    p.copy(1, 6)
    p.copy(2, 7)
    p.copy(3, 10)
    p.add(3, _ADDRESS)
    p.copy(4, 8)
    p.set(5, _FROM_NETWORK_HEADER)
    p.call(_LOAD_BYTES_RELATIVE)
    p.when(0, "!=", 0, "drop")
    p.put(0x61, 1, 10, _ADDRESS)
    for word in range(4, 16, 4):
        p.put(0x61, 2, 10, _ADDRESS + word)
        p.put(0xAF, 1, 2)
    p.put(0xDC, 1, value=32)
    p.put(0x24, 1, value=_MIX - (1 << 32))
    p.put(0x27, 1, value=shares)
    p.put(0x77, 1, value=32)
    p.put(0x63, 10, 1, _KEY)
    p.copy(1, 6)
    p.load_map(2, table)
    p.copy(3, 10)
    p.add(3, _KEY)
    p.set(4, 0)
    p.call(_SELECT_REUSEPORT)
    p.when(0, "!=", 0, "drop")
    p.set(0, 1)
    p.put(0x95)
    p.at("drop")
    p.set(0, 0)
    p.put(0x95)
    return p.bytes()
