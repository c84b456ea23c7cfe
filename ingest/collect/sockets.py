"""The kernel's table of UDP sockets."""

from dataclasses import dataclass
from pathlib import Path

_SOCKET_TABLES = (Path("/proc/net/udp"), Path("/proc/net/udp6"))


@dataclass(frozen=True, slots=True)
class UdpSocket:
    """A row of the kernel's table of UDP sockets. `waiting` is in bytes, `dropped` in datagrams."""

    port: int
    inode: int
    waiting: int
    dropped: int


def udp_sockets(port: int) -> list[UdpSocket]:
    """Return all UDP sockets that are bound to a port, IPv4 and IPv6."""
    found = []
    for table in _SOCKET_TABLES:
        try:
            rows = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if int(fields[1].rpartition(":")[2], 16) == port:
                waiting = int(fields[4].rpartition(":")[2], 16)
                found.append(UdpSocket(port, int(fields[9]), waiting, int(fields[12])))
    return found
