"""Whose sFlow samples have two VLAN tags: sfacctd drops these silently, so copies of the datagrams are looked at.

A look takes a few datagrams out of a short queue, so that it costs the same at any rate; what does not fit is not
copied. The kernel wants CAP_NET_RAW for it.
"""

import ctypes
import socket
import struct
from contextlib import suppress

from cluster.model import Cluster
from ingest.collect.trouble_file import Troubles
from ingest.listen.exports import Protocol, read_export
from ingest.listen.packets import parse

TAGGED = "tagged"
"""What befell, in the file of troubles; the exporter's agent address stands beside it."""

_MOST_LOOKED_AT = 200
"""Datagrams a look: some 5 ms."""
_QUEUE_BYTES = 1 << 18
_AGAIN_SECONDS = 60
"""After which it is noted again."""

_ETH_P_ALL = 3
_SO_ATTACH_FILTER = 26
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _LOAD_HALF_BEHIND, _HEADER = 0x20, 0x28, 0x30, 0x48, 0xB1
_SHIFT_RIGHT, _IF_EQUAL, _IF_BITS, _RETURN = 0x74, 0x15, 0x45, 0x06
_PACKET_TYPE, _OUTGOING = 0xFFFFF004, 4
_UDP, _FRAGMENT_OFFSET = 17, 0x1FFF


class VlanWatch:
    """Notes which exporters of cluster.yaml send such samples, as long as they do.

    Args:
        cluster: its sFlow port and exporters; what others call themselves anybody can make up.
        troubles: where it is noted.

    Raises:
        OSError: the kernel gives us no copies.
    """

    def __init__(self, cluster: Cluster, troubles: Troubles) -> None:
        self._listed = {str(exporter.address) for exporter in cluster.exporters}
        self._troubles = troubles
        self._noted: dict[str, float] = {}
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_PACKET, kind, socket.htons(_ETH_P_ALL))
        try:
            steps = _filter(cluster.collector.sflow_port)
            code = ctypes.create_string_buffer(steps, len(steps))
            # A sock_fprog; the kernel copies the program at once.
            program = struct.pack("HP", len(steps) // 8, ctypes.addressof(code))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE_BYTES)
            # What came before the filter was there.
            with suppress(BlockingIOError):
                while True:
                    self._socket.recv(1)
        except OSError:
            self._socket.close()
            raise

    def look(self, now: float) -> None:
        """Look at what waits; `now`: seconds of any clock that does not jump."""
        for _ in range(_MOST_LOOKED_AT):
            try:
                packet = self._socket.recv(1 << 16)
            except OSError:
                # None waits, or the interface went away.
                return
            datagram = parse(packet)
            if datagram is None:
                continue
            with suppress(struct.error):
                export = read_export(datagram.payload, {})
                if export.protocol is Protocol.SFLOW and export.double_tagged and export.agent in self._listed:
                    self._note(export.agent, now)

    def _note(self, agent: str, now: float) -> None:
        if now - self._noted.get(agent, -_AGAIN_SECONDS) >= _AGAIN_SECONDS:
            self._noted[agent] = now
            self._troubles.add(TAGGED, agent, 1)

    def close(self) -> None:
        """Want no more copies."""
        self._socket.close()


def _filter(port: int) -> bytes:
    """Return a program of classic BPF (linux/filter.h) for packets that begin with IP: UDP that arrives at a port."""
    end, drop = 17, 18
    # Opcode, where to go on if the comparison holds and if not, operand.
    program = (
        (_LOAD_WORD, 0, 0, _PACKET_TYPE),
        (_IF_EQUAL, drop, 2, _OUTGOING),
        (_LOAD_BYTE, 0, 0, 0),
        (_SHIFT_RIGHT, 0, 0, 4),
        (_IF_EQUAL, 5, 12, 4),
        (_LOAD_BYTE, 0, 0, 9),
        (_IF_EQUAL, 7, drop, _UDP),
        (_LOAD_HALF, 0, 0, 6),
        (_IF_BITS, drop, 9, _FRAGMENT_OFFSET),
        (_HEADER, 0, 0, 0),
        (_LOAD_HALF_BEHIND, 0, 0, 2),
        (_IF_EQUAL, end, drop, port),
        (_IF_EQUAL, 13, drop, 6),
        (_LOAD_BYTE, 0, 0, 6),
        (_IF_EQUAL, 15, drop, _UDP),
        (_LOAD_HALF, 0, 0, 42),
        (_IF_EQUAL, end, drop, port),
        (_RETURN, 0, 0, 1 << 16),
        (_RETURN, 0, 0, 0),
    )
    jumps = (_IF_EQUAL, _IF_BITS)
    return b"".join(
        struct.pack("HBBI", code, *((there - i - 1 if code in jumps else 0) for there in (yes, no)), operand)
        for i, (code, yes, no, operand) in enumerate(program)
    )
