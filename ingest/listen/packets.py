"""UDP datagrams that reach this host, from copies of its packets: nothing is taken away from anybody."""

import contextlib
import ctypes
import errno
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Event
from typing import Self

from app.errors import ClusterflowError, UserError

_ETH_P_ALL = 3
_SOL_PACKET, _STATISTICS = 263, 6
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33
_BUFFER = 32 << 20
_MOST_BYTES = 1 << 16
_WAIT_SECONDS = 0.2
_REMEMBERED = 64

_UDP, _UDP_HEADER = 17, 8
_EXTENSIONS, _FRAGMENT = (0, 43, 60), 44
"""IPv6: headers that may stand before UDP's: hop-by-hop, routing, destination; and that of a fragment."""

_LD_WORD, _LD_BYTE, _SHIFT_RIGHT, _IF_EQUAL, _RETURN = 0x20, 0x30, 0x74, 0x15, 0x06
_PACKET_TYPE, _OUTGOING = 0xFFFFF004, 4
_ACCEPT, _DROP = 14, 15
# Classic BPF (linux/filter.h) for "cooked" packets, which begin with the IP header: opcode, where to go on if the
# comparison holds and if not, operand. What arrives and is UDP, or IPv6 with another header before it.
_FILTER = (
    (_LD_WORD, 1, 1, _PACKET_TYPE),
    (_IF_EQUAL, _DROP, 2, _OUTGOING),
    (_LD_BYTE, 3, 3, 0),
    (_SHIFT_RIGHT, 4, 4, 4),
    (_IF_EQUAL, 5, 7, 4),
    (_LD_BYTE, 6, 6, 9),
    (_IF_EQUAL, _ACCEPT, _DROP, _UDP),
    (_IF_EQUAL, 8, _DROP, 6),
    (_LD_BYTE, 9, 9, 6),
    (_IF_EQUAL, _ACCEPT, 10, _UDP),
    (_IF_EQUAL, _ACCEPT, 11, _FRAGMENT),
    (_IF_EQUAL, _ACCEPT, 12, 60),
    (_IF_EQUAL, _ACCEPT, 13, 43),
    (_IF_EQUAL, _ACCEPT, _DROP, 0),
    (_RETURN, 0, 0, _MOST_BYTES),
    (_RETURN, 0, 0, 0),
)


@dataclass(frozen=True, slots=True)
class Datagram:
    """A UDP datagram that arrived; of one in fragments, what the first of them holds."""

    source: IPv4Address | IPv6Address
    target: IPv4Address | IPv6Address
    port: int
    payload: bytes


class Copies:
    """Copies of the packets that arrive, from now on; use it as a context manager.

    Args:
        interface: whose packets; by default those of all interfaces.

    Raises:
        ClusterflowError: the kernel gives us none.
        UserError: there is no such interface.
    """

    def __init__(self, interface: str | None = None) -> None:
        self._seen: dict[bytes, str] = {}
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
        except PermissionError as error:
            raise ClusterflowError(
                "the kernel gives no copies of packets: expected root, or CAP_NET_RAW",
                "sudo clusterflow listen; a container needs --cap-add NET_RAW and the host's network",
            ) from error
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _filter())
            self._enlarge()
            if interface is not None:
                self._socket.bind((interface, _ETH_P_ALL))
            self._drain()
        except OSError as error:
            self._socket.close()
            if error.errno != errno.ENODEV:
                raise ClusterflowError(f"listen: {error.strerror}") from error
            known = ", ".join(name for _, name in socket.if_nameindex())
            raise UserError(f"--interface: {interface}: expected one of {known}") from error

    def _enlarge(self) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)

    def _drain(self) -> None:
        """Throw away what came before the filter was there."""
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def datagrams(self, seconds: float, stop: Event) -> Iterator[Datagram]:
        """Yield what arrives until the time is over, or `stop` is set."""
        deadline = time.monotonic() + seconds
        while not stop.is_set() and (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(min(left, _WAIT_SECONDS))
            try:
                packet, address = self._socket.recvfrom(_MOST_BYTES)
            except TimeoutError:
                continue
            if self._is_again(packet, address[0]):
                continue
            datagram = parse(packet)
            if datagram is not None:
                yield datagram

    def dropped(self) -> int:
        """Return how many copies we were too slow for, since the last call."""
        _, drops = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8))
        return int(drops)

    def _is_again(self, packet: bytes, interface: str) -> bool:
        """Whether another interface gave the same packet just before: one of a bridge or bond, and then that itself."""
        before = self._seen.pop(packet, interface)
        self._seen[packet] = interface
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return before != interface


def parse(packet: bytes) -> Datagram | None:
    """Return the UDP datagram that an IP packet begins; None if it begins none."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20:
        begin, fragment = (packet[0] & 15) * 4, int.from_bytes(packet[6:8], "big")
        if packet[9] != _UDP or fragment & 0x1FFF:
            return None
        addresses = packet[12:16], packet[16:20]
    elif version == 6 and len(packet) >= 40:
        begin = _behind_extensions(packet)
        addresses = packet[8:24], packet[24:40]
    else:
        return None
    if not begin or len(packet) < begin + _UDP_HEADER:
        return None
    _, port, length, _ = struct.unpack_from("!HHHH", packet, begin)
    source, target = (ip_address(address) for address in addresses)
    return Datagram(source, target, port, packet[begin + _UDP_HEADER : begin + length])


def _behind_extensions(packet: bytes) -> int:
    """Return where the UDP header of an IPv6 packet begins; 0 if it has none."""
    kind, begin = packet[6], 40
    while kind != _UDP:
        if kind not in (*_EXTENSIONS, _FRAGMENT) or len(packet) < begin + 8:
            return 0
        if kind == _FRAGMENT and int.from_bytes(packet[begin + 2 : begin + 4], "big") >> 3:
            return 0
        size = 8 if kind == _FRAGMENT else (packet[begin + 1] + 1) * 8
        kind, begin = packet[begin], begin + size
    return begin


def _filter() -> bytes:
    """Return the argument of SO_ATTACH_FILTER; the kernel copies the program at once."""
    steps = b"".join(
        struct.pack("HBBI", code, *((there - i - 1 if code == _IF_EQUAL else 0) for there in (yes, no)), operand)
        for i, (code, yes, no, operand) in enumerate(_FILTER)
    )
    _KEPT[:] = [ctypes.create_string_buffer(steps, len(steps))]
    return struct.pack("HP", len(_FILTER), ctypes.addressof(_KEPT[0]))


_KEPT: list["ctypes.Array[ctypes.c_char]"] = []
"""The program stays in memory until the kernel has it."""
