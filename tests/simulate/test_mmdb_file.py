"""Our writer of MMDB files, read by MaxMind's library: what it says is what a plain look at every prefix says."""

import random
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

import maxminddb
import pytest
from mmdb_samples import owner

from simulate.mmdb_file import located, write_mmdb, write_places

BUILT = 1_790_000_000


def test_the_longest_prefix_counts(tmp_path: Path) -> None:
    draw = random.Random(5)
    prefixes = {"203.0.113.0/24", "203.0.113.64/26", "203.0.113.65/32", "198.18.0.0/15", "2001:db8:a::/48", "8000::/1"}
    prefixes |= {f"203.0.113.{draw.randrange(256)}/32" for _ in range(30)}
    prefixes |= {str(ip_network((draw.randrange(1 << 32), bits), strict=False)) for bits in range(3, 33)}
    prefixes |= {str(ip_network((0x20010DB8000A << 80, bits), strict=False)) for bits in range(40, 129, 8)}
    rows = [
        (prefix, located("NL", f"Town {number % 7} {'x' * 40}", number, f"Organisation {number}"))
        for number, prefix in enumerate(sorted(prefixes))
    ]
    path = tmp_path / "places.mmdb"
    write_mmdb(path, "sample", rows, built=BUILT)
    asked = [str(IPv4Address(draw.randrange(1 << 32))) for _ in range(300)]
    asked += [f"203.0.113.{last}" for last in range(256)]
    asked += [str(IPv6Address((0x20010DB8000A << 80) | draw.randrange(1 << draw.randrange(1, 80)))) for _ in range(100)]
    with maxminddb.open_database(path) as reader:
        for address in asked:
            assert reader.get(address) == owner(rows, address), address
        assert (reader.metadata().build_epoch, reader.metadata().database_type) == (BUILT, "sample")


def test_a_text_that_is_too_long_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most 284"):
        write_mmdb(tmp_path / "places.mmdb", "sample", [("203.0.113.0/24", {"city": "x" * 285})], built=BUILT)


def test_made_up_places_are_always_the_same(tmp_path: Path) -> None:
    first = write_places(tmp_path / "a.mmdb", 50)
    assert write_places(tmp_path / "b.mmdb", 50) == first
    with maxminddb.open_database(tmp_path / "a.mmdb") as one, maxminddb.open_database(tmp_path / "b.mmdb") as other:
        found = [one.get(str(IPv4Address(address + 7))) for address in first]
        assert found == [other.get(str(IPv4Address(address))) for address in first]
        assert None not in found
