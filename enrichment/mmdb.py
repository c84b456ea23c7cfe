"""MMDB files: where an address is and whose network it is in, whoever made the file.

Layouts that are understood, told apart by what a record holds and not by the file's name:

- GeoLite2 and GeoIP2 City, Country, ASN, ISP, Enterprise, and DB-IP, which has the same: ``country.iso_code``,
  ``city.names.en``, ``autonomous_system_number`` and ``autonomous_system_organization``, these also below ``traits``;
- IPinfo, whose records are flat: ``country_code`` or ``country``, ``city``, ``asn`` and ``as_name`` or ``name``.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import maxminddb
from maxminddb.const import MODE_MMAP

from cluster.errors import ClusterflowError
from enrichment.labels import one_line
from enrichment.watched import Loaded

Place = tuple[str, str, str]
"""Country, city and network of an address; empty where the file does not say."""

NOWHERE: Place = ("", "", "")

_END_BYTES = 128 << 10
_END_MARK = b"\xab\xcd\xefMaxMind.com"
"""What begins the metadata, within that many bytes of the end of the file."""

_GZIP_MARK = b"\x1f\x8b"
_LOOKED_AT = 10_000
"""Prefixes that are looked at, in their order, to learn whether the file is of a kind that we know."""

_PROBES = 4_096
"""Addresses that are looked up before a file comes in use."""

_AS_NUMBER = re.compile(r"[Aa][Ss]([0-9]{1,10})")
_MOST_NUMBER = (1 << 32) - 1
_IPV4 = 4


class Mmdb:
    """One file, in memory: whoever writes into the file does not write into this.

    Args:
        reader: of the copy.
        path: of the file, for errors.
    """

    def __init__(self, reader: maxminddb.Reader, path: Path) -> None:
        self._reader, self._path = reader, path
        self._only_ipv4 = reader.metadata().ip_version == _IPV4
        self._doubt = ""

    def place(self, address: str) -> Place:
        """Return what the file says of an address; nothing where it is damaged, which `doubt` tells from then on."""
        if self._only_ipv4 and ":" in address:
            return NOWHERE
        try:
            return place_of(self._reader.get(address))
        except Exception:  # noqa: BLE001 - a damage that nobody has met before may raise anything
            self._doubt = self._doubt or f"{_damaged(self._path).lines()[0]}: nothing is known of {address}"
            return NOWHERE

    def doubt(self) -> str:
        """Return the first damage that a look-up met, as one line; empty if none has."""
        return self._doubt


def load_mmdb(path: Path) -> Loaded[Mmdb]:
    """Return a file, dated by its own word; its entries are the nodes of its search tree.

    Raises:
        ClusterflowError: it is no MMDB file, only a part of one, or one of another kind.
        OSError: it cannot be read.
    """
    reader = _opened(path)
    try:
        metadata = reader.metadata()
        _check_kind(path, reader, str(metadata.database_type))
        _look_around(reader)
        told = metadata.description.get("en") or metadata.database_type
        dated = float(metadata.build_epoch) if metadata.build_epoch else None
        known = Mmdb(reader, path)
        return Loaded(known, metadata.node_count, dated, one_line(str(told)), doubt=known.doubt)
    except ClusterflowError:
        raise
    except Exception as error:
        raise _damaged(path) from error


def _opened(path: Path) -> maxminddb.Reader:
    with path.open("rb") as source:
        if source.read(len(_GZIP_MARK)) == _GZIP_MARK:
            raise ClusterflowError(f"{path}: compressed: expected the MMDB file itself", "gunzip it")
        source.seek(max(source.seek(0, os.SEEK_END) - _END_BYTES, 0))
        if _END_MARK not in source.read():
            raise ClusterflowError(
                f"{path}: no MMDB file, or only a part of one: its end is not that of one",
                "copy it beside under another name, then rename it",
            )
        source.seek(0)
        # A copy that nobody else has: a file that is cut while it is mapped ends the process that looks into it.
        copy = os.memfd_create("mmdb", os.MFD_CLOEXEC)
        try:
            with open(copy, "wb", closefd=False) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            # In Python: the library's extension in C ends the process by a single wrong byte in the search tree.
            return maxminddb.open_database(f"/proc/self/fd/{copy}", MODE_MMAP)
        except OSError:
            raise
        except Exception as error:
            raise _damaged(path) from error
        finally:
            os.close(copy)


def _check_kind(path: Path, reader: maxminddb.Reader, kind: str) -> None:
    if any(place_of(record) != NOWHERE for record in _records(reader)):
        return
    raise ClusterflowError(
        f"{path}: an MMDB file of type {one_line(kind) or 'unknown'}: expected country, city or network of addresses",
        "GeoLite2 City, Country or ASN, those of DB-IP or IPinfo have them",
    )


def _records(reader: maxminddb.Reader) -> Iterator[object]:
    """Yield the records of the first prefixes; each is one look-up, so that no damage leads in circles."""
    spell, bits = (IPv4Address, 32) if reader.metadata().ip_version == _IPV4 else (IPv6Address, 128)
    number = 0
    for _ in range(_LOOKED_AT):
        if number >> bits:
            return
        record, length = reader.get_with_prefix_len(spell(number))
        yield record
        number += 1 << (bits - length)


def _look_around(reader: maxminddb.Reader) -> None:
    """Look addresses up, evenly over all of IPv4: what is damaged raises."""
    step = (1 << 32) // _PROBES
    for number in range(step // 2, 1 << 32, step):
        reader.get(".".join(map(str, number.to_bytes(4, "big"))))


def _damaged(path: Path) -> ClusterflowError:
    return ClusterflowError(f"{path}: a damaged MMDB file", "fetch it again")


def place_of(record: object) -> Place:
    """Return what a record says, whoever made it; texts are short lines."""
    if not isinstance(record, Mapping):
        return NOWHERE
    return _country(record), _city(record), _network(record)


def _country(record: Mapping[str, Any]) -> str:
    country = record.get("country")
    code = country.get("iso_code") if isinstance(country, Mapping) else record.get("country_code") or country
    # IPinfo has either a code there or a name.
    good = isinstance(code, str) and len(code) == 2 and code.isascii() and code.isalpha()
    return str(code).upper() if good else ""


def _city(record: Mapping[str, Any]) -> str:
    city = record.get("city")
    if isinstance(city, Mapping):
        names = city.get("names")
        city = names.get("en") if isinstance(names, Mapping) else None
    return one_line(city) if isinstance(city, str) else ""


def _network(record: Mapping[str, Any]) -> str:
    traits = record.get("traits")
    for part in (record, traits) if isinstance(traits, Mapping) else (record,):
        number = part.get("autonomous_system_number")
        if number is not None:
            return _named_network(number, part.get("autonomous_system_organization"))
    found = _AS_NUMBER.fullmatch(number) if isinstance(number := record.get("asn"), str) else None
    return _named_network(int(found[1]), record.get("as_name") or record.get("name")) if found else ""


def _named_network(number: object, name: object) -> str:
    if not isinstance(number, int) or not 0 < number <= _MOST_NUMBER:
        return ""
    return one_line(f"AS{number} {one_line(name) if isinstance(name, str) else ''}")
