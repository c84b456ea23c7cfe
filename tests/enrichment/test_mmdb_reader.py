"""MMDB files for whole arrays of addresses, beside the standard reader in Python, one address after the other."""

import ipaddress
import random
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import maxminddb
import mmdb_samples as samples
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maxminddb.const import MODE_MEMORY
from mmdb_writer import METADATA_MAGIC, Encoder

from app.errors import ClusterflowError
from enrichment.addresses.mmdb import NOWHERE, Mmdb, Place, load_mmdb, place_of
from enrichment.addresses.prefixes import address_keys

# Few different bits, so that prefixes nest and addresses hit them.
_V4 = st.sampled_from([0xC000_0200, 0xC000_02FF, 0x0A00_0000, 0x0A00_0100, 0x8000_0000, 0xFFFF_FFFF])
_V6 = st.sampled_from([1 << 127, 0x2001_0DB8 << 96, (0x2001_0DB8 << 96) + 256, (0x2001_0DB8 << 96) + (1 << 64)])
_ADDRESS = st.one_of(_V4.map(ipaddress.IPv4Address), _V6.map(ipaddress.IPv6Address))

_NUMBERS = st.one_of(st.integers(0, (1 << 32) - 1), st.booleans())
_TEXTS = st.sampled_from(["", "NL", "de", "NLD", "Köln", "AS64500", "as7 x", "x" * 300, "ExampleHost\n"])
_ANYTHING = st.recursive(
    st.one_of(_NUMBERS, _TEXTS, st.floats(allow_nan=False), st.binary(max_size=40)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["en", "iso_code", "names", "x"]), inner)
    ),
    max_leaves=6,
)
_NAMES = ["country", "country_code", "city", "autonomous_system_number", "autonomous_system_organization", "traits"]
_RECORDS = st.one_of(
    st.builds(samples.geolite_city, st.sampled_from(["NL", "DE"]), _TEXTS),
    st.builds(samples.geolite_asn, _NUMBERS, _TEXTS),
    st.builds(
        lambda inner: {"traits": inner, "location": {"x": [1.5, "y"]}}, st.builds(samples.geolite_asn, _NUMBERS, _TEXTS)
    ),
    st.builds(samples.ipinfo_lite, st.sampled_from(["NL", "DE"]), st.integers(0, 1 << 33), _TEXTS),
    st.dictionaries(st.sampled_from([*_NAMES, "asn", "as_name", "name", "location"]), _ANYTHING),
)


@st.composite
def _rows(draw: st.DrawFn) -> dict[str, object]:
    rows = {}
    for address in draw(st.lists(_ADDRESS, min_size=1, max_size=6)):
        length = draw(st.integers(4, address.max_prefixlen))
        rows[str(ipaddress.ip_network((address, length), strict=False))] = draw(_RECORDS)
    return rows


def _asked(known: Mmdb, addresses: list[str]) -> list[Place]:
    keys, is_address = address_keys(addresses)
    assert is_address.all()
    return known.places(keys)


def _beside(path: Path, addresses: list[str]) -> list[Place | None]:
    """Return what the standard reader says of each; None where it raises."""
    found: list[Place | None] = []
    with maxminddb.open_database(path, MODE_MEMORY) as reader:
        for address in addresses:
            try:
                found.append(place_of(reader.get(address)))
            except (maxminddb.InvalidDatabaseError, ValueError, TypeError):
                found.append(None)
    return found


def _around(rows: Mapping[str, object]) -> list[str]:
    """Return the ends of each prefix, and the addresses just outside."""
    found = set()
    for text in rows:
        network = ipaddress.ip_network(text)
        for number in (int(network[0]) - 1, int(network[0]), int(network[-1]), int(network[-1]) + 1):
            if 0 <= number < 1 << network.max_prefixlen:
                found.add(str(type(network[0])(number)))
    return sorted(found)


@settings(max_examples=60, deadline=None)
@given(rows=_rows(), record_bits=st.sampled_from([24, 28, 32]), data=st.data())
def test_every_address_is_where_the_standard_reader_has_it(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, object], record_bits: int, data: st.DataObject
) -> None:
    """Prefixes within each other, both families, all lengths of numbers, records of any shape."""
    path = tmp_path_factory.mktemp("same") / "x.mmdb"
    # One record of a known kind, so that the file comes in use.
    rows = {"203.0.113.0/24": samples.geolite_city("NL", "Amsterdam"), **rows}
    samples.write(path, "sample", rows.items(), record_bits=record_bits)  # type: ignore[arg-type]
    more = data.draw(st.lists(st.integers(0, (1 << 32) - 1), max_size=10))
    addresses = sorted({*_around(rows), *(str(ipaddress.IPv4Address(number)) for number in more)})
    known = load_mmdb(path).value
    assert _asked(known, addresses) == _beside(path, addresses)
    assert known.doubt() == ""


def test_what_the_standard_reader_says_of_a_damaged_file_is_said_or_nothing(tmp_path: Path) -> None:
    rows = {f"198.51.{n}.0/24": samples.geolite_city("NL" if n % 2 else "DE", f"Town {n % 7}") for n in range(30)}
    rows |= {f"203.0.{n}.0/25": samples.geolite_asn(64500 + n, f"Net {n}") for n in range(30)}
    path = samples.write(tmp_path / "c.mmdb", "GeoLite2-City", rows.items())
    whole, addresses = path.read_bytes(), _around(rows)
    draw = random.Random(5)
    same = 0
    for _ in range(60):
        content = bytearray(whole)
        content[draw.randrange(len(content))] ^= draw.randint(1, 255)
        path.write_bytes(content)
        try:
            known = load_mmdb(path).value
        except ClusterflowError:
            continue
        for ours, theirs in zip(_asked(known, addresses), _beside(path, addresses), strict=True):
            same += ours == theirs
            assert ours in (theirs, NOWHERE) or theirs is None
    assert same > 30 * len(addresses)


def test_a_million_networks_are_ready_in_seconds(tmp_path: Path) -> None:
    """A whole tree of 20 levels, ready, and asked for 5,000 addresses."""
    levels, towns = 20, 4_000
    encoder = Encoder(cache=False)
    texts = [encoder.encode(samples.geolite_city("NL", f"Town {number}")) for number in range(towns)]
    begins = np.cumsum([0, *map(len, texts)])
    nodes = (1 << levels) - 1
    # Nodes by level, each of which leads to the two that follow; the last ones to records.
    numbers = np.arange(1, 2 * nodes + 1, dtype=np.int64)
    leaves = numbers[nodes - 1 :] - nodes
    numbers[nodes - 1 :] = nodes + 16 + begins[leaves % towns]
    metadata = encoder.encode_meta({
        "node_count": nodes, "record_size": 32, "ip_version": 4, "database_type": "Made-up-City", "languages": ["en"],
        "binary_format_major_version": 2, "binary_format_minor_version": 0, "build_epoch": samples.BUILT,
        "description": {"en": "a million"},
    })  # fmt: skip
    path = tmp_path / "m.mmdb"
    path.write_bytes(numbers.astype(">u4").tobytes() + bytes(16) + b"".join(texts) + METADATA_MAGIC + metadata)
    size = path.stat().st_size

    tracemalloc.start()
    began = time.process_time()
    known = load_mmdb(path).value
    ready = time.process_time() - began
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    asked = random.Random(7).sample(range(1 << 32), 5_000)
    keys, _ = address_keys([str(ipaddress.IPv4Address(number)) for number in asked])
    began = time.process_time()
    found = known.places(keys)
    spent = time.process_time() - began

    assert found == [("NL", f"Town {(number >> 32 - levels) % towns}", "") for number in asked]
    assert ready < 5
    assert spent < 2
    assert most < size + (64 << 20)
