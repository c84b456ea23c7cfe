"""Programs in the kernel: eBPF written by hand, and the system calls that load it and give it to sockets of others."""

import ctypes
import errno
import os
import platform
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from ingest.collect.kernel.sockets import descriptors, udp_sockets

_CALLS = {"x86_64": 321, "aarch64": 280}
"""Number of bpf(2); those of pidfd_open and pidfd_getfd are the same everywhere."""
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438

_MAP_CREATE, _MAP_UPDATE, _PROG_LOAD, _PROG_TEST_RUN = 0, 2, 5, 10
_JUMPS = {"==": 0x10, ">": 0x20, ">=": 0x30, "!=": 0x50, "<": 0xA0, "<=": 0xB0, "&": 0x40}


_GONE = errno.ESRCH, errno.EBADF
"""The process, or its socket, went while we looked."""


class BpfError(Exception):
    """The kernel does not take a program, a map, or a process's socket; the text says why."""


class Program:
    """Instructions of eBPF (linux/bpf.h) with names for places; loops are for who builds on it."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int | str, int]] = []
        self._places: dict[str, int] = {}

    def at(self, place: str) -> None:
        """Name the next instruction."""
        self._places[place] = len(self._code)

    def put(self, code: int, to: int = 0, of: int = 0, jump: int | str = 0, value: int = 0) -> None:
        """Add an instruction."""
        self._code.append((code, to, of, jump, value))

    def set(self, to: int, value: int) -> None:
        """Give a register a value."""
        self.put(0xB7, to, value=value)

    def copy(self, to: int, of: int) -> None:
        """Give a register the value of another."""
        self.put(0xBF, to, of)

    def add(self, to: int, value: int) -> None:
        """Add to a register."""
        self.put(0x07, to, value=value)

    def when(self, register: int, sign: str, value: int, place: str) -> None:
        """Go to a place where a register compares so with a value."""
        self.put(0x05 | _JUMPS[sign], register, jump=place, value=value)

    def when_registers(self, register: int, sign: str, other: int, place: str) -> None:
        """Go to a place where a register compares so with another."""
        self.put(0x0D | _JUMPS[sign], register, other, place)

    def go(self, place: str) -> None:
        """Go to a place."""
        self.put(0x05, jump=place)

    def call(self, helper: int) -> None:
        """Call a function of the kernel's with r1 to r5."""
        self.put(0x85, value=helper)

    def load_map(self, to: int, descriptor: int) -> None:
        """Give a register a map."""
        self.put(0x18, to, 1, 0, descriptor)
        self.put(0)

    def bytes(self) -> bytes:
        """Return the code."""
        out = b""
        for index, (code, to, of, jump, value) in enumerate(self._code):
            offset = self._places[jump] - index - 1 if isinstance(jump, str) else jump
            out += struct.pack("<BBhi", code, to | of << 4, offset, value)
        return out


def loaded(instructions: bytes, kind: int) -> int:
    """Return the descriptor of a program of a kind (``BPF_PROG_TYPE_*``); BpfError if the kernel does not take it."""
    code, told, licence = (
        ctypes.create_string_buffer(text, len(text)) for text in (instructions, bytes(4096), b"MIT\0")
    )
    count = len(instructions) // 8
    address = ctypes.addressof
    try:
        return _bpf(_PROG_LOAD, struct.pack("<IIQQIIQI", kind, count, address(code), address(licence), 0, 0, 0, 0))
    except BpfError as error:
        raise BpfError(f"{error} {told.value.decode(errors='replace')}".strip()) from error


def new_map(kind: int, entries: int) -> int:
    """Return the descriptor of a map (``BPF_MAP_TYPE_*``) of 4-byte values by 4-byte keys; BpfError."""
    return _bpf(_MAP_CREATE, struct.pack("<IIII", kind, 4, 4, entries))


def update(table: int, key: int, value: int) -> None:
    """Set an entry of a map; BpfError."""
    one, other = (ctypes.create_string_buffer(struct.pack("<I", number), 4) for number in (key, value))
    _bpf(_MAP_UPDATE, struct.pack("<IIQQQ", table, 0, ctypes.addressof(one), ctypes.addressof(other), 0))


def timed(program: int, packet: bytes, rounds: int) -> int:
    """Run a program of sockets over a packet, from its UDP header on; return the kernel's nanoseconds a round."""
    # The kernel takes an Ethernet header off first.
    data = ctypes.create_string_buffer(bytes(12) + b"\x08\x00" + packet)
    size = len(packet) + 14
    given = struct.pack("<IIIIQQII", program, 0, size, 0, ctypes.addressof(data), 0, rounds, 0)
    answer = ctypes.create_string_buffer(given, 144)
    _bpf_in(_PROG_TEST_RUN, answer)
    return int(struct.unpack_from("<IIIIQQII", answer.raw)[-1])


@contextmanager
def sockets_of(pid: int, port: int) -> Iterator[list[socket.socket]]:
    """Hold copies of a process's UDP sockets of a port, of one that ends none; BpfError if we may not."""
    found: list[socket.socket] = []
    try:
        for number in descriptors(pid, {one.inode for one in udp_sockets(port)}):
            process = _call(_PIDFD_OPEN, pid, 0)
            try:
                found.append(socket.socket(fileno=_call(_PIDFD_GETFD, process, number, 0)))
            finally:
                os.close(process)
    except OSError as error:
        if error.errno not in _GONE:
            raise BpfError(f"pidfd_getfd: {error.strerror}") from error
    try:
        yield found
    finally:
        for one in found:
            one.close()


def check_sockets_of_children() -> None:
    """BpfError if we may not have the sockets of processes that we start: a container or a unit may keep us from it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        with subprocess.Popen(["sleep", "60"], pass_fds=[one.fileno()]) as child:
            try:
                with sockets_of(child.pid, one.getsockname()[1]) as found:
                    if not found:
                        raise BpfError("the sockets of a process that we started cannot be seen")
            finally:
                child.kill()


def _bpf(command: int, attributes: bytes) -> int:
    return _bpf_in(command, ctypes.create_string_buffer(attributes, 144))


def _bpf_in(command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
    """As `_bpf`, for commands that answer in their attributes."""
    number = _CALLS.get(platform.machine())
    if number is None:
        raise BpfError(f"no bpf(2) known on {platform.machine()}")
    try:
        return _call(number, command, ctypes.byref(attributes), 144)
    except OSError as error:
        hint = " (it takes CAP_BPF)" if error.errno == errno.EPERM else ""
        raise BpfError(f"bpf: {error.strerror}{hint}") from error


def _call(number: int, *arguments: object) -> int:
    answer: int = _LIBC.syscall(number, *arguments)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


_LIBC = ctypes.CDLL(None, use_errno=True)
