"""MMDB files: where an address is and whose network it is in, whoever made the file.

Layouts that are understood, told apart by what a record holds and not by the file's name:

- GeoLite2 and GeoIP2 City, Country, ASN, ISP, Enterprise, and DB-IP, which has the same: ``country.iso_code``,
  ``city.names.en``, ``autonomous_system_number`` and ``autonomous_system_organization``, these also below ``traits``;
- IPinfo, whose records are flat: ``country_code`` or ``country``, ``city``, ``asn`` and ``as_name`` or ``name``.

The standard reader opens a file, tells what it is and decodes records, within limits of its own. Addresses are looked
up by whole arrays here: its extension in C ends the process by a single wrong byte in the search tree, and in Python it
takes 0.1 ms for each.

The search tree is walked for whole arrays of addresses at once, a bit of all of them at a time, where it stands: a file
is in use as soon as it is in memory, however many networks it has. Nothing in it is believed: no number leads out of
the file, and no walk is longer than an address. Layout: https://maxmind.github.io/MaxMind-DB/
"""

import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import maxminddb
import numpy as np
import numpy.typing as npt
from maxminddb.const import MODE_FD
from maxminddb.decoder import Decoder

from app.errors import ClusterflowError
from app.words import one_line
from enrichment.addresses.prefixes import Keys, address_keys, is_mapped, prefix_text
from enrichment.labels import MOST_CHARACTERS
from enrichment.watched import Loaded

Ints = npt.NDArray[np.int64]

NOT_IN_TREE, DAMAGED = -1, -2
"""Instead of a record's place: the file says nothing of the address; or its tree leads nowhere."""

RECORD_BITS = (24, 28, 32)

_SEPARATOR = 16
"""Bytes between tree and data; some lie behind the last number of the tree, which is read as one of four bytes."""

_MAPPED_BITS = 96
_BLOCK = 1 << 18


class SearchTree:
    """The tree of one file.

    Args:
        content: the whole file.
        nodes: how many nodes the tree has, which stand at the beginning of the file.
        record_bits: one of RECORD_BITS, length of each of a node's two numbers.
        ip_version: 4, or 6 where IPv4 stands below ``::/96``.

    Raises:
        ValueError: it is longer than the file, or of a kind that there is not.
    """

    def __init__(self, content: bytes, nodes: int, record_bits: int, ip_version: int) -> None:
        self._nodes, self._record_bits, self._only_ipv4 = nodes, record_bits, ip_version == 4
        self._node_bytes, self._number_bytes = record_bits // 4, record_bits // 8
        self._size, self._end = self._node_bytes * nodes, len(content)
        if (
            record_bits not in RECORD_BITS
            or ip_version not in (4, 6)
            or nodes < 0
            or self._size + _SEPARATOR > self._end
        ):
            raise ValueError("no search tree")
        # Every four bytes of the tree as a number, wherever they begin.
        self._words: npt.NDArray[np.uint32] = np.ndarray((self._size + _SEPARATOR - 3,), ">u4", content, 0, (1,))
        self._first_ipv4 = np.zeros(1, np.int64)
        for _ in range(0 if self._only_ipv4 else _MAPPED_BITS):
            if self._first_ipv4[0] < nodes:
                self._first_ipv4 = self._numbers(self._first_ipv4, np.zeros(1, np.int64))

    @property
    def data(self) -> int:
        """Where the data begin, bytes from the file's beginning."""
        return self._size + _SEPARATOR

    def find(self, keys: Keys) -> Ints:
        """Return for each address where its record begins, bytes from the file's beginning; or one of the two above."""
        ends = np.full(len(keys), self._nodes, np.int64)
        bits = np.unpackbits(np.ascontiguousarray(keys).view(np.uint8).reshape(-1, 16), axis=1)
        of_ipv4 = is_mapped(keys)
        rows = np.flatnonzero(of_ipv4)
        ends[rows] = self._walked(bits[rows, _MAPPED_BITS:], int(self._first_ipv4[0]))
        if not self._only_ipv4:
            rows = np.flatnonzero(~of_ipv4)
            ends[rows] = self._walked(bits[rows], 0)
        return self._places(ends)

    def records(self) -> Ints:
        """Return where records begin that the tree leads to, each once, in order; DAMAGED first where it does so."""
        found = [np.empty(0, np.int64)]
        for start in range(0, self._nodes, _BLOCK):
            nodes = np.arange(start, min(start + _BLOCK, self._nodes), dtype=np.int64)
            for side in (0, 1):
                numbers = self._numbers(nodes, np.full(len(nodes), side, np.int64))
                found.append(np.unique(self._places(numbers[numbers > self._nodes])))
        return np.unique(np.concatenate(found))

    def _walked(self, bits: npt.NDArray[np.uint8], begin: int) -> Ints:
        """Return the numbers at which walks end that begin at a node, one for each row of bits."""
        ends = np.full(len(bits), begin, np.int64)
        rows = np.arange(len(bits) if begin < self._nodes else 0)
        for depth in range(bits.shape[1]):
            if not len(rows):
                break
            numbers = self._numbers(ends[rows], bits[rows, depth].astype(np.int64))
            ends[rows] = numbers
            rows = rows[numbers < self._nodes]
        return ends

    def _numbers(self, nodes: Ints, sides: Ints) -> Ints:
        """Return the left (0) or right (1) numbers of nodes, all of which are in the tree."""
        words: Ints = self._words[nodes * self._node_bytes + sides * self._number_bytes].astype(np.int64)
        if self._record_bits == 24:
            words >>= 8
            return words
        if self._record_bits == 32:
            return words
        # Two numbers of 28 bits share their middle byte: its upper half is the beginning of the left one.
        return np.where(sides == 0, words >> 8 | (words & 0xF0) << 20, words & 0x0FFF_FFFF)

    def _places(self, numbers: Ints) -> Ints:
        places = numbers - self._nodes + self._size
        places[(numbers < self._nodes) | (places >= self._end)] = DAMAGED
        places[numbers == self._nodes] = NOT_IN_TREE
        return places


Place = tuple[str, str, str]
"""Country, city and network of an address; empty where the file does not say."""

NOWHERE: Place = ("", "", "")

_END_BYTES = 128 << 10
_END_MARK = b"\xab\xcd\xefMaxMind.com"
"""What begins the metadata, within that many bytes of the end of the file."""

_GZIP_MARK = b"\x1f\x8b"
_LOOKED_AT = 10_000
"""Records that are looked at to learn whether the file is of a kind that we know."""

_PROBES = 4_096
"""Addresses that are looked up before a file comes in use."""

_MOST_KNOWN = 200_000
"""Places of records that are remembered: about 40 MB."""

_AS_NUMBER = re.compile(r"[Aa][Ss]([0-9]{1,10})")
_MOST_NUMBER = (1 << 32) - 1
_BITS = 128


class DamageError(ValueError):
    """What stands there is no record."""


class Mmdb:
    """One file, in memory, so that a writer cannot change it. Only one thread may ask it.

    Args:
        content: the whole file.
        tree: finds records in it.
        path: of the file, for errors.
    """

    def __init__(self, content: bytes, tree: SearchTree, path: Path) -> None:
        self._tree, self._path = tree, path
        self._records = Decoder(content, tree.data)
        self._known: dict[int, Place] = {NOT_IN_TREE: NOWHERE}
        self._doubt = ""

    def places(self, keys: Keys) -> list[Place]:
        """Return what the file says of addresses; nothing where it is damaged, which `doubt` tells from then on."""
        distinct, first, which = np.unique(self._tree.find(keys), return_index=True, return_inverse=True)
        known = self._known
        if len(known) > _MOST_KNOWN:
            known = self._known = {NOT_IN_TREE: NOWHERE}
        for record, position in zip(distinct.tolist(), first.tolist(), strict=True):
            if record not in known:
                try:
                    known[record] = self.place_at(record)
                except DamageError:
                    known[record] = NOWHERE
                    address = prefix_text(keys[position], _BITS)
                    self._doubt = self._doubt or f"{_damaged(self._path).lines()[0]}: nothing is known of {address}"
        found = [known[record] for record in distinct.tolist()]
        return [found[number] for number in which.tolist()]

    def place_at(self, record: int) -> Place:
        """Return what a record says, by what the tree says of where it is.

        Raises:
            DamageError: there is none.
        """
        if record == NOT_IN_TREE:
            return NOWHERE
        if record == DAMAGED:
            raise DamageError
        try:
            return place_of(self._records.decode(record)[0])
        except (maxminddb.InvalidDatabaseError, TypeError, ValueError) as error:
            raise DamageError from error

    def doubt(self) -> str:
        """Return the first damage that a look-up met, as one line; empty if none has."""
        return self._doubt


def load_mmdb(path: Path) -> Loaded[Mmdb]:
    """Return a file, dated by its own word; its entries are the nodes of its search tree.

    Raises:
        ClusterflowError: it is no MMDB file, only a part of one, or one of another kind.
        OSError: it cannot be read.
    """
    content = _content(path)
    try:
        metadata = maxminddb.open_database(BytesIO(content), MODE_FD).metadata()
        tree = SearchTree(content, metadata.node_count, metadata.record_size, metadata.ip_version)
        known = Mmdb(content, tree, path)
        _look_around(known, tree)
        _check_kind(path, known, tree, str(metadata.database_type))
        told = metadata.description.get("en") or metadata.database_type
        dated = float(metadata.build_epoch) if metadata.build_epoch else None
        return Loaded(known, metadata.node_count, dated, one_line(str(told)), doubt=known.doubt)
    except ClusterflowError:
        raise
    except Exception as error:
        raise _damaged(path) from error


def _content(path: Path) -> bytes:
    # In memory: a file that is cut while it is mapped ends the process that looks into it.
    content = path.read_bytes()
    if content.startswith(_GZIP_MARK):
        raise ClusterflowError(f"{path}: compressed: expected the MMDB file itself", "gunzip it")
    if content.rfind(_END_MARK, max(len(content) - _END_BYTES, 0)) < 0:
        raise ClusterflowError(
            f"{path}: no MMDB file, or only a part of one: its end is not that of one",
            "copy it beside under another name, then rename it",
        )
    return content


def _check_kind(path: Path, known: Mmdb, tree: SearchTree, kind: str) -> None:
    # All of the tree is looked at: what leads out of the file raises.
    if any(known.place_at(record) != NOWHERE for record in tree.records()[:_LOOKED_AT].tolist()):
        return
    raise ClusterflowError(
        f"{path}: an MMDB file of type {one_line(kind) or 'unknown'}: expected country, city or network of addresses",
        "GeoLite2 City, Country or ASN, those of DB-IP or IPinfo have them",
    )


def _look_around(known: Mmdb, tree: SearchTree) -> None:
    """Look addresses up, evenly over all of IPv4: what is damaged raises."""
    step = (1 << 32) // _PROBES
    spelled = [".".join(map(str, number.to_bytes(4, "big"))) for number in range(step // 2, 1 << 32, step)]
    keys, _ = address_keys(spelled)
    for record in np.unique(tree.find(keys)).tolist():
        known.place_at(record)


def _damaged(path: Path) -> ClusterflowError:
    return ClusterflowError(f"{path}: a damaged MMDB file", "fetch it again")


def place_of(record: object) -> Place:
    """Return what a record says, whoever made it; texts are short lines."""
    if not isinstance(record, Mapping):
        return NOWHERE
    return _country(record), _city(record), _network(record)


def _country(record: Mapping[str, Any]) -> str:
    country = record.get("country")
    # IPinfo has either a code there or a name.
    code = country.get("iso_code") if isinstance(country, Mapping) else _text(record.get("country_code"), country)
    good = isinstance(code, str) and len(code) == 2 and code.isascii() and code.isalpha()
    return str(code).upper() if good else ""


def _city(record: Mapping[str, Any]) -> str:
    city = record.get("city")
    if isinstance(city, Mapping):
        names = city.get("names")
        city = names.get("en") if isinstance(names, Mapping) else None
    return one_line(_text(city), MOST_CHARACTERS)


def _network(record: Mapping[str, Any]) -> str:
    traits = record.get("traits")
    for part in (record, traits) if isinstance(traits, Mapping) else (record,):
        number = part.get("autonomous_system_number")
        if number is not None:
            return _named_network(number, _text(part.get("autonomous_system_organization")))
    found = _AS_NUMBER.fullmatch(_text(record.get("asn")))
    return _named_network(int(found[1]), _text(record.get("as_name"), record.get("name"))) if found else ""


def _named_network(number: object, name: str) -> str:
    if not isinstance(number, int) or not 0 < number <= _MOST_NUMBER:
        return ""
    return one_line(f"AS{number} {name}", MOST_CHARACTERS)


def _text(*values: object) -> str:
    """Return the first value that is a text with something in it; empty if none is."""
    return next((value for value in values if isinstance(value, str) and value), "")
