"""MMDB files as GeoLite2, DB-IP and IPinfo lay them out, written by another library than the one that reads them."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from mmdb_writer import MMDBWriter, TreeWriter
from netaddr import IPSet

Rows = Iterable[tuple[str, Mapping[str, object]]]
"""Prefix and record."""

BUILT = 1_790_000_000


class _Dated(MMDBWriter):
    """A writer of files with a given date, and numbers of a given length in their trees."""

    built = BUILT
    record_bits = 24

    def _build_meta(self) -> dict[str, Any]:
        return super()._build_meta() | {"build_epoch": self.built}

    def to_db_file(self, filename: str) -> None:
        writer = _Wide(self.tree, self._build_meta(), self.int_type, self.float_type)
        writer.least = self.record_bits
        writer.write(filename)


class _Wide(TreeWriter):
    """Writes numbers of so many bits at least, as if the file were large."""

    least = 24

    def _adjust_record_size(self) -> None:
        super()._adjust_record_size()
        self.record_size = max(self.record_size, self.least)
        self.data_offset = self.record_size * 2 / 8 * self._node_counter


def write(path: Path, kind: str, rows: Rows, *, version: int = 6, built: int = BUILT, record_bits: int = 24) -> Path:
    writer = _Dated(
        ip_version=version, ipv4_compatible=version == 6, database_type=kind, languages=["en"],
        description=f"{kind} sample", int_type="u32",
    )  # fmt: skip
    writer.built, writer.record_bits = built, record_bits
    # What is written last counts: the longest.
    for prefix, record in sorted(rows, key=lambda row: ip_network(row[0]).prefixlen):
        writer.insert_network(IPSet([prefix]), dict(record))
    writer.to_db_file(str(path))
    return path


def geolite_city(country: str, city: str = "") -> dict[str, object]:
    record: dict[str, object] = {
        "continent": {"code": "EU", "names": {"en": "Europe"}},
        "country": {"geoname_id": 1, "iso_code": country, "names": {"en": f"Land {country}", "de": "Land"}},
        "registered_country": {"iso_code": "US", "names": {"en": "United States"}},
        "location": {"latitude": 52.3, "longitude": 4.9},
    }
    return record | ({"city": {"geoname_id": 2, "names": {"de": "Stadt", "en": city}}} if city else {})


def geolite_asn(number: int, name: str) -> dict[str, object]:
    return {"autonomous_system_number": number, "autonomous_system_organization": name}


def ipinfo_lite(country: str, number: int, name: str) -> dict[str, object]:
    return {
        "asn": f"AS{number}", "as_name": name, "as_domain": "example.net", "continent": "Europe",
        "continent_code": "EU", "country": f"Land {country}", "country_code": country,
    }  # fmt: skip


def ipinfo_location(country: str, city: str) -> dict[str, object]:
    return {"city": city, "region": "Region", "country": country, "lat": "52.3", "lng": "4.9", "timezone": "UTC"}


def owner(rows: Rows, address: str) -> Mapping[str, object] | None:
    """Return the record of the longest prefix around an address, by looking at every one."""
    found = ip_address(address)
    best: tuple[int, Mapping[str, object] | None] = -1, None
    for prefix, record in rows:
        network = ip_network(prefix)
        if found.version == network.version and found in network and network.prefixlen > best[0]:
            best = network.prefixlen, record
    return best[1]
