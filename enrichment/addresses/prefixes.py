"""Prefixes of IPv4 and IPv6, found by the longest that holds an address: whole arrays of addresses at once.

An address is a key of 16 bytes, IPv4 as IPv4-mapped IPv6. The families stay apart all the same: ``::/0`` holds no IPv4
address, while ``::ffff:192.0.2.0/120`` is another spelling of ``192.0.2.0/24``.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np
import numpy.typing as npt

KEY = "S16"
"""Type of an array of keys. An element that Python takes out of it has lost the zero bytes at its end."""

Keys = npt.NDArray[np.bytes_]
Bits = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Halves = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]

NOT_FOUND = -1

_MAPPED = b"\x00" * 10 + b"\xff\xff"
_MAPPED_BITS = 96
_ALL = 0xFFFF_FFFF_FFFF_FFFF
_NAT64, _MAPPED_LOW = np.uint64(0x0064_FF9B << 32), np.uint64(0xFFFF << 32)


def address_key(text: str) -> bytes | None:
    """Return the key of an address; None if the text is no address."""
    try:
        if ":" in text:
            return socket.inet_pton(socket.AF_INET6, text)
        return _MAPPED + socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError):
        return None


def address_keys(texts: Sequence[str]) -> tuple[Keys, npt.NDArray[np.bool_]]:
    """Return keys of addresses, and which of the texts are addresses; the keys of the others are zero."""
    found = [address_key(text) for text in texts]
    is_address = np.fromiter((key is not None for key in found), np.bool_, len(found))
    return as_keys([key or bytes(16) for key in found]), is_address


def prefix_key(text: str) -> tuple[bytes, int]:
    """Return the key and the bits (of 128) of a prefix or a single address.

    Raises:
        ValueError: it is neither, or has bits set beyond its length; the message says what was expected.
    """
    head, slash, tail = text.partition("/")
    key = address_key(head)
    if key is None:
        raise ValueError("expected an address or a prefix")
    if not slash:
        return key, 128
    most = 128 if ":" in head else 32
    if not (tail.isascii() and tail.isdecimal() and len(tail) <= 3 and int(tail) <= most):
        raise ValueError(f"expected a prefix length from 0 to {most}")
    bits = int(tail) + 128 - most
    number = int.from_bytes(key, "big")
    network = number >> (128 - bits) << (128 - bits)
    if network != number:
        raise ValueError(f"expected {prefix_text(network.to_bytes(16, 'big'), bits)}, without bits beyond its length")
    return key, bits


def prefix_text(key: bytes, bits: int) -> str:
    """Return a prefix as people write it; one of a single address as the address."""
    whole = key.ljust(16, b"\x00")
    if whole.startswith(_MAPPED) and bits >= _MAPPED_BITS:
        address: IPv4Address | IPv6Address = IPv4Address(whole[12:])
        bits -= _MAPPED_BITS
    else:
        address = IPv6Address(whole)
    return str(address) if bits == address.max_prefixlen else f"{address}/{bits}"


def as_keys(keys: Sequence[bytes]) -> Keys:
    """Return an array of keys of 16 bytes each."""
    return np.frombuffer(b"".join(keys), KEY)


def is_mapped(keys: Keys) -> npt.NDArray[np.bool_]:
    """Return which addresses are IPv4."""
    return _holds_mapped(*_halves(keys))


def as_listed(keys: Keys) -> Keys:
    """Return the keys under which lists have addresses: in ``64:ff9b::/96`` (NAT64, RFC 6052) that of IPv4."""
    high, low = _halves(keys)
    behind = (high == _NAT64) & (low >> np.uint64(32) == 0)
    if not behind.any():
        return keys
    both = np.stack([np.where(behind, np.uint64(0), high), np.where(behind, low | _MAPPED_LOW, low)], axis=1)
    return both.astype(">u8").view(KEY).ravel()


@dataclass(frozen=True, slots=True)
class _Block:
    """Prefixes of one family and length.

    Attributes:
        is_mapped: whether they are IPv4.
        bits: of 128.
        values: what addresses in it have in common, in order.
        first: where the block begins in the table's order.
    """

    is_mapped: bool
    bits: int
    values: npt.NDArray[Any]
    first: int


class PrefixTable:
    """A list of prefixes, the same one any number of times.

    Args:
        keys: first address of each, host bits zero.
        bits: length of each, of 128.
    """

    def __init__(self, keys: Keys, bits: Bits) -> None:
        high, low = _halves(keys)
        is_mapped = _holds_mapped(high, low) & (bits >= _MAPPED_BITS)
        # Lengths and families are few: as one number, the sort has a column less.
        kind = bits.astype(np.uint16) * 2 + is_mapped
        order = np.lexsort((low, high, kind))
        kind = kind[order]
        self._order = order.astype(np.int32)
        starts = np.flatnonzero(np.diff(kind, prepend=np.uint16(0xFFFF)))
        stops = np.append(starts, len(kind))[1:]
        blocks = []
        for start, stop in zip(starts, stops, strict=True):
            rows = order[start:stop]
            mapped, length = bool(kind[start] & 1), int(kind[start] >> 1)
            values = _common((high[rows], low[rows]), is_mapped=mapped, bits=length)
            blocks.append(_Block(mapped, length, values, int(start)))
        self._blocks = sorted(blocks, key=lambda block: -block.bits)

    def __len__(self) -> int:
        return len(self._order)

    def longest(self, keys: Keys) -> Ints:
        """Return for each address which prefix is the longest that holds it, the first of equal ones; or NOT_FOUND."""
        found = np.full(len(keys), NOT_FOUND, np.int64)
        for block, rows, first, _ in self._held(keys, only_longest=True):
            found[rows] = self._order[block.first + first]
        return found

    def all(self, keys: Keys) -> tuple[Ints, Ints]:
        """Return every pair of an address and a prefix that holds it, as positions in `keys` and in the table."""
        addresses, prefixes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for block, rows, first, stop in self._held(keys, only_longest=False):
            counts = stop - first
            before = np.cumsum(counts) - counts
            offsets = np.arange(int(counts.sum())) - np.repeat(before, counts)
            addresses.append(np.repeat(rows, counts))
            prefixes.append(self._order[block.first + np.repeat(first, counts) + offsets].astype(np.int64))
        return np.concatenate(addresses), np.concatenate(prefixes)

    def _held(self, keys: Keys, *, only_longest: bool) -> list[tuple[_Block, Ints, Ints, Ints]]:
        """Return by block, the longest prefixes first: which addresses it holds, and its first and last equal value."""
        high, low = _halves(keys)
        is_mapped = _holds_mapped(high, low)
        waiting = {True: np.flatnonzero(is_mapped), False: np.flatnonzero(~is_mapped)}
        held = []
        for block in self._blocks:
            rows = waiting[block.is_mapped]
            if not len(rows):
                continue
            wanted = _common((high[rows], low[rows]), is_mapped=block.is_mapped, bits=block.bits)
            first = np.searchsorted(block.values, wanted)
            is_held = block.values[np.minimum(first, len(block.values) - 1)] == wanted
            if not is_held.any():
                continue
            stop = np.searchsorted(block.values, wanted[is_held], side="right")
            held.append((block, rows[is_held], first[is_held], stop))
            if only_longest:
                waiting[block.is_mapped] = rows[~is_held]
        return held


def _halves(keys: Keys) -> Halves:
    """Return the upper and the lower 64 bits of keys."""
    both = np.ascontiguousarray(keys).view(">u8").reshape(-1, 2)
    return both[:, 0].astype(np.uint64), both[:, 1].astype(np.uint64)


def _holds_mapped(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    mapped: npt.NDArray[np.bool_] = (high == 0) & (low >> np.uint64(32) == 0xFFFF)
    return mapped


def _common(halves: Halves, *, is_mapped: bool, bits: int) -> npt.NDArray[Any]:
    """Return the leading bits of addresses as values in the same order, as narrow as family and length allow."""
    high, low = halves
    if is_mapped:
        return (low & np.uint64(_ALL << (128 - bits) & 0xFFFF_FFFF)).astype(np.uint32)
    if bits <= 64:
        return high & np.uint64(_ALL << (64 - bits) & _ALL)
    both = np.stack([high, low & np.uint64(_ALL << (128 - bits) & _ALL)], axis=1)
    return both.astype(">u8").view(KEY).ravel()
