"""The kernel's table of UDP sockets."""

import contextlib
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
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


def inodes_of(pid: int) -> frozenset[int]:
    """Return all sockets that a process has open; none of one that we may not look at."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                kind, _, number = str(entry.readlink()).partition(":")
                if kind == "socket":
                    found.add(int(number.strip("[]")))
    return frozenset(found)


def owners(inodes: AbstractSet[int]) -> Iterator[int]:
    """Yield the processes that have any of these sockets open, as far as we may see."""
    if inodes:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and any(True for _ in descriptors(int(entry.name), inodes)):
                yield int(entry.name)


def descriptors(pid: int, inodes: AbstractSet[int]) -> Iterator[int]:
    """Yield the numbers under which a process has these sockets open; none of one that we may not look at."""
    names = {f"socket:[{inode}]" for inode in inodes}
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(entry.readlink()) in names:
                    yield int(entry.name)
