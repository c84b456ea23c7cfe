"""MMDB files of made-up places, for benches and demos: they are written here, without packages for development.

The layout is MaxMind's (https://maxmind.github.io/MaxMind-DB/): a binary tree over the bits of an address, whose leaves
are records in a data section; IPv4 stands below ::/96.
"""

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_network
from pathlib import Path

import numpy as np

from cluster.model import Network

Value = str | int | Mapping[str, "Value"]
"""What a record may hold; whole numbers of 32 bits."""

_COUNTRIES = ("NL", "DE", "FR", "US", "GB", "JP", "BR", "IN", "ZA", "AU")
_FIRST_NUMBER = 64_512
_ORGANISATIONS = 2_000
_CITIES = 5_000

_BITS = 128
_NOTHING = -1
_SEPARATOR = bytes(16)
_METADATA = b"\xab\xcd\xefMaxMind.com"
_TEXT, _UINT16, _UINT32, _MAP, _UINT64, _ARRAY = 2, 5, 6, 7, 9, 11
_FIRST_EXTENDED = 8
_LONG, _LONGEST = 29, 284
"""From the first on, a size has a byte of its own; beyond the second it would need more."""


def write_mmdb(path: Path, kind: str, rows: Iterable[tuple[str, Mapping[str, Value]]], *, built: int) -> None:
    """Write a file.

    Args:
        path: of the file.
        kind: its type, as its metadata names it.
        rows: prefix and record; of those that hold an address, the longest counts.
        built: when it says that it was built, epoch seconds.
    """
    nodes: list[list[int]] = [[_NOTHING, _NOTHING]]
    data = bytearray()
    places: dict[bytes, int] = {}
    # What is inserted last counts.
    for network, record in sorted(((ip_network(text), record) for text, record in rows), key=lambda row: _bits(row[0])):
        packed = _packed(record)
        if packed not in places:
            places[packed] = len(data)
            data += packed
        _insert(nodes, int(network.network_address), _bits(network), places[packed])
    count = len(nodes)
    branches = np.array(nodes, np.int64)
    nowhere, records = branches == _NOTHING, branches < _NOTHING
    branches[records] = _NOTHING - 1 - branches[records] + count + len(_SEPARATOR)
    branches[nowhere] = count
    about = {
        "binary_format_major_version": _Number(_UINT16, 2),
        "binary_format_minor_version": _Number(_UINT16, 0),
        "build_epoch": _Number(_UINT64, built),
        "database_type": kind,
        "description": {"en": kind},
        "ip_version": _Number(_UINT16, 6),
        "languages": ["en"],
        "node_count": _Number(_UINT32, count),
        "record_size": _Number(_UINT16, 32),
    }
    path.write_bytes(branches.astype(">u4").tobytes() + _SEPARATOR + bytes(data) + _METADATA + _packed(about))


def write_places(path: Path, networks: int, seed: int = 7) -> list[int]:
    """Write a file in the layout of GeoLite2, with city and network in one; return the first address of each, a /24."""
    draw = random.Random(seed)  # noqa: S311 - made-up data
    places = sorted({(1 << 24) + (draw.randrange(200 << 16) << 8) for _ in range(networks)})

    def rows() -> Iterable[tuple[str, Mapping[str, Value]]]:
        for first in places:
            number, city = draw.randrange(_ORGANISATIONS), draw.randrange(_CITIES)
            yield (
                f"{IPv4Address(first)}/24",
                located(
                    _COUNTRIES[city % len(_COUNTRIES)],
                    f"Town {city}",
                    _FIRST_NUMBER + number,
                    f"Example Organisation {number}",
                ),
            )

    write_mmdb(path, "Made-up-City-ASN", rows(), built=int(time.time()))
    return places


def located(country: str, city: str, number: int, organisation: str) -> Mapping[str, Value]:
    """Return a record as GeoLite2 has it, with city and autonomous system in one."""
    return {
        "country": {"iso_code": country},
        "city": {"names": {"en": city}},
        "autonomous_system_number": number,
        "autonomous_system_organization": organisation,
    }


@dataclass(frozen=True, slots=True)
class _Number:
    """A whole number of a certain type, as the metadata need them."""

    kind: int
    number: int


def _bits(network: Network) -> int:
    """Return the length of a prefix in the tree of 128 bits."""
    return _BITS - network.max_prefixlen + network.prefixlen


def _insert(nodes: list[list[int]], first: int, bits: int, place: int) -> None:
    """Put a record where a prefix of `bits` leads; each branch is a node, `_NOTHING`, or less than that a record."""
    node = 0
    for depth in range(bits - 1):
        side = first >> (_BITS - 1 - depth) & 1
        if nodes[node][side] < 0:
            # What held the whole of it holds both halves.
            nodes.append([nodes[node][side]] * 2)
            nodes[node][side] = len(nodes) - 1
        node = nodes[node][side]
    nodes[node][first >> (_BITS - bits) & 1] = _NOTHING - 1 - place


def _packed(value: object) -> bytes:
    match value:
        case str():
            data = value.encode()
            return _head(_TEXT, len(data)) + data
        case int():
            return _packed(_Number(_UINT32, value))
        case _Number():
            data = value.number.to_bytes((value.number.bit_length() + 7) // 8, "big")
            return _head(value.kind, len(data)) + data
        case Mapping():
            pairs = b"".join(_packed(key) + _packed(item) for key, item in value.items())
            return _head(_MAP, len(value)) + pairs
        case list():
            return _head(_ARRAY, len(value)) + b"".join(map(_packed, value))
    raise ValueError(f"{value!r}: expected a text, a whole number, or a mapping of such")


def _head(kind: int, size: int) -> bytes:
    """Return what stands before each value: its type and its size."""
    if size > _LONGEST:
        raise ValueError(f"{size}: a text or mapping of at most {_LONGEST}")
    extended = kind >= _FIRST_EXTENDED
    control = (0 if extended else kind << 5) | min(size, _LONG)
    more = bytes([kind - _FIRST_EXTENDED + 1] if extended else [])
    return bytes([control]) + more + (bytes([size - _LONG]) if size >= _LONG else b"")
