"""Longest prefixes against a plain check of each address, and a million of them."""

import ipaddress
import random
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrichment.addresses.prefixes import (
    NOT_FOUND,
    PrefixTable,
    address_key,
    address_keys,
    as_keys,
    prefix_key,
    prefix_text,
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Few different bits, so that prefixes nest and addresses hit them; with zero bytes at the end among them.
_V4 = st.sampled_from([0, 1, 0xC000_0200, 0xC000_0201, 0xC000_02FF, 0x0A00_0000, 0x0A00_0100, 0xFFFF_FFFF])
_V6 = st.sampled_from([0, 1, 1 << 127, 0x2001_0DB8 << 96, (0x2001_0DB8 << 96) + 256, (0x2001_0DB8 << 96) + (1 << 64)])
_MAPPED = _V4.map(lambda number: ipaddress.IPv6Address((0xFFFF << 32) + number))
_ADDRESS = st.one_of(_V4.map(ipaddress.IPv4Address), _V6.map(ipaddress.IPv6Address), _MAPPED)


@st.composite
def _prefixes(draw: st.DrawFn) -> Network:
    address = draw(_ADDRESS)
    length = draw(st.integers(0, address.max_prefixlen))
    return ipaddress.ip_network((address, length), strict=False)


def _folded(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _folded_prefix(prefix: Network) -> Network:
    if isinstance(prefix, ipaddress.IPv6Network) and prefix.prefixlen >= 96:
        mapped = prefix.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, prefix.prefixlen - 96))
    return prefix


def _table(prefixes: list[Network]) -> PrefixTable:
    parsed = [prefix_key(str(prefix)) for prefix in prefixes]
    return PrefixTable(as_keys([key for key, _ in parsed]), np.array([bits for _, bits in parsed], np.uint8))


def _keys(addresses: list[Address]) -> np.ndarray:
    keys, is_address = address_keys([str(address) for address in addresses])
    assert is_address.all()
    return keys


@given(st.lists(_prefixes(), max_size=30), st.lists(_ADDRESS, max_size=30))
def test_the_longest_prefix_is_that_of_a_plain_check(prefixes: list[Network], addresses: list[Address]) -> None:
    """Both families, nested and equal prefixes, any length: the same as one address against one prefix at a time."""
    found = _table(prefixes).longest(_keys(addresses))
    folded = [_folded_prefix(prefix) for prefix in prefixes]
    for address, index in zip(addresses, found, strict=True):
        holding = [number for number, prefix in enumerate(folded) if _folded(address) in prefix]
        longest = max(holding, key=lambda number: (folded[number].prefixlen, -number), default=NOT_FOUND)
        assert index == longest


@given(st.lists(_prefixes(), max_size=30), st.lists(_ADDRESS, max_size=30))
def test_all_prefixes_that_hold_an_address_are_found_once_each(
    prefixes: list[Network], addresses: list[Address]
) -> None:
    """Duplicates of an address or a prefix each count for themselves."""
    found = _table(prefixes).all(_keys(addresses))
    expected = {
        (position, number)
        for position, address in enumerate(addresses)
        for number, prefix in enumerate(map(_folded_prefix, prefixes))
        if _folded(address) in prefix
    }
    pairs = list(zip(*(part.tolist() for part in found), strict=True))
    assert len(pairs) == len(expected)
    assert set(pairs) == expected


@given(_prefixes())
def test_a_prefix_reads_back_as_people_write_it(prefix: Network) -> None:
    """Also where its key ends with zero bytes; a single address has no length."""
    key, bits = prefix_key(str(prefix))
    text = prefix_text(as_keys([key])[0], bits)
    assert ipaddress.ip_network(text) == _folded_prefix(prefix)
    assert ("/" in text) == (bits < 128)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "an address or a prefix"),
        ("example.net", "an address or a prefix"),
        ("192.0.2.256", "an address or a prefix"),
        ("192.0.02.1", "an address or a prefix"),
        ("192.0.2.0/33", "a prefix length from 0 to 32"),
        ("192.0.2.0/-1", "a prefix length from 0 to 32"),
        ("192.0.2.0/", "a prefix length from 0 to 32"),
        ("192.0.2.0/٢٤", "a prefix length from 0 to 32"),
        ("2001:db8::/129", "a prefix length from 0 to 128"),
        ("192.0.2.9/24", "192.0.2.0/24, without bits beyond its length"),
        ("2001:db8::1/32", "2001:db8::/32, without bits beyond its length"),
    ],
)
def test_what_is_no_prefix_says_what_was_expected(text: str, expected: str) -> None:
    """The same as `ipaddress` refuses, and why."""
    with pytest.raises(ValueError, match=r".*"):
        ipaddress.ip_network(text)
    with pytest.raises(ValueError, match=expected):
        prefix_key(text)


def test_a_text_that_is_no_address_has_no_key() -> None:
    """It is told apart from the address whose key is zero."""
    keys, is_address = address_keys(["::", "node-1", "192.0.2.0"])
    assert is_address.tolist() == [True, False, True]
    assert address_key("node-1") is None
    assert _table([ipaddress.ip_network("::/128")]).longest(keys[is_address]).tolist() == [0, NOT_FOUND]


def test_a_million_prefixes_are_ready_in_seconds() -> None:
    """Built and asked for a hundred thousand addresses, in memory of the size of the list; a sample is checked."""
    chance = np.random.default_rng(7)
    count, asked = 1_000_000, 100_000
    bits = chance.choice(np.array([16, 20, 24, 28, 32], np.uint8), count)
    raw = chance.integers(0, 1 << 32, count, np.uint64) & (0xFFFF_FFFF << (32 - bits.astype(np.uint64)) & 0xFFFF_FFFF)
    mapped = np.stack([np.zeros(count, np.uint64), (0xFFFF << 32) + raw], axis=1).astype(">u8").view("S16").ravel()
    addresses = chance.integers(0, 1 << 32, asked, np.uint64)
    keys = np.stack([np.zeros(asked, np.uint64), (0xFFFF << 32) + addresses], axis=1).astype(">u8").view("S16").ravel()

    tracemalloc.start()
    began = time.process_time()
    table = PrefixTable(mapped, bits + 96)
    found = table.longest(keys)
    spent = time.process_time() - began
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert spent < 5
    assert kept < 20 << 20
    assert most < 150 << 20
    by_length = {int(length): set(raw[bits == length].tolist()) for length in np.unique(bits)}
    for position in random.Random(7).sample(range(asked), 2_000):
        address = int(addresses[position])
        holding = [n for n, values in by_length.items() if address >> (32 - n) << (32 - n) in values]
        if found[position] == NOT_FOUND:
            assert not holding
        else:
            assert bits[found[position]] == max(holding)
            assert raw[found[position]] == address >> (32 - max(holding)) << (32 - max(holding))
