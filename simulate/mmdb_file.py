"""An MMDB file of made-up places, as large as wanted and always the same: for benches and demos."""

import random
from ipaddress import IPv4Address
from pathlib import Path

from cluster.errors import UserError

_COUNTRIES = ("NL", "DE", "FR", "US", "GB", "JP", "BR", "IN", "ZA", "AU")
_FIRST_NUMBER = 64_512
_ORGANISATIONS = 2_000
_CITIES = 5_000


def write_places(path: Path, networks: int, seed: int = 7) -> list[int]:
    """Write a file in the layout of GeoLite2, with city and network in one; return the first address of each, a /24.

    Raises:
        UserError: the packages for development are not installed.
    """
    try:
        from mmdb_writer import MMDBWriter  # noqa: PLC0415 - a package for development
        from netaddr import IPSet  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as error:
        raise UserError("mmdb-writer is not installed", "pip install -r requirements-dev.lock") from error
    draw = random.Random(seed)  # noqa: S311 - made-up data
    writer = MMDBWriter(6, "Made-up-City-ASN", ["en"], "made-up places", ipv4_compatible=True, int_type="u32")
    places = {(1 << 24) + (draw.randrange(200 << 16) << 8) for _ in range(networks)}
    for first in sorted(places):
        number, city = draw.randrange(_ORGANISATIONS), draw.randrange(_CITIES)
        record = {
            "country": {"iso_code": _COUNTRIES[city % len(_COUNTRIES)], "names": {"en": "Somewhere"}},
            "city": {"names": {"en": f"Town {city}"}},
            "autonomous_system_number": _FIRST_NUMBER + number,
            "autonomous_system_organization": f"Example Organisation {number}",
        }
        writer.insert_network(IPSet([f"{IPv4Address(first)}/24"]), record)
    writer.to_db_file(str(path))
    return sorted(places)
