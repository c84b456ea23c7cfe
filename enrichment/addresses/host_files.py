"""Files that name addresses: /etc/hosts and its like, and exports of an inventory as CSV or JSON."""

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from app.csv_rows import CsvError, csv_rows
from app.errors import UserError
from app.words import one_line
from cluster.model import NamesFile, NamesFormat
from enrichment.watched import Loaded

_MOST_BYTES = 512 << 20
_MOST_LABEL, _MOST_NAME = 63, 253
"""RFC 1035."""
_HOST_NAME = re.compile(rf"[A-Za-z0-9_](?:[A-Za-z0-9_-]{{0,{_MOST_LABEL - 2}}}[A-Za-z0-9_])?")

Names = Mapping[str, str]
"""Address in the spelling of `ipaddress` -> name."""


def host_name(text: str) -> str:
    """Return a name in lower case and without the last dot; empty where it is not a host name.

    Letters, digits, - and _ in labels of 63, 253 characters in all, and no number at the end, where a name could pass
    for an address.
    """
    if len(text) > _MOST_NAME + 1:
        return ""
    name = text.removesuffix(".")
    labels = name.split(".")
    if not name.isascii() or len(name) > _MOST_NAME or not all(map(_HOST_NAME.fullmatch, labels)):
        return ""
    return "" if labels[-1].isdecimal() else name.lower()


def spelled(text: str) -> str:
    """Return an address as `ipaddress` spells it, IPv4-mapped as IPv4, without prefix length or zone; ValueError."""
    address = ipaddress.ip_address(text.partition("/")[0].strip().partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def as_stored(text: str) -> str:
    """Return a node's name as it is, and an address, however somebody writes it, as the store does."""
    try:
        return text if "/" in text else spelled(text)
    except ValueError:
        return text


def load_names(file: NamesFile, path: Path) -> Loaded[Names]:
    """Return the names that a file gives; of an address that stands there twice the first.

    Raises:
        ClusterflowError, OSError, ValueError: it is not such a file, or names nothing.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise UserError(f"{path}: larger than {_MOST_BYTES >> 20} MiB", "name the addresses that you want names of")
    text = path.read_text(encoding="utf-8-sig")
    if not text.strip():
        raise UserError(f"{path}: an empty file", "a file without names has at least a comment or a header")
    match file.format:
        case NamesFormat.HOSTS:
            pairs = _of_hosts(text)
        case NamesFormat.CSV:
            pairs = _of_csv(text, file, path)
        case NamesFormat.JSON:
            pairs = _of_json(text, file, path)
    try:
        return _gathered(pairs, path)
    except RecursionError as error:
        raise UserError(f"{path}: {error}") from None


def _gathered(pairs: "Pairs", path: Path) -> Loaded[Names]:
    found: dict[str, str] = {}
    skipped, note = 0, ""
    for place, address, name in pairs:
        good = host_name(name)
        try:
            key = spelled(address)
        except ValueError:
            good = ""
        if good:
            found.setdefault(key, good)
        else:
            skipped += 1
            note = note or f"{path}: {place}: {address[:60]!r} {name[:60]!r}: expected an address and a host name"
    if not found and skipped:
        raise UserError(note)
    return Loaded(found, len(found), skipped=skipped, note=note)


Pairs = Iterator[tuple[str, str, str]]
"""Place in the file, address, name."""


def _of_hosts(text: str) -> Pairs:
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words:
            yield f"line {number}", words[0], words[1] if len(words) > 1 else ""


def _of_csv(text: str, file: NamesFile, path: Path) -> Pairs:
    rows = csv_rows(text)
    try:
        address, name = _places(next(rows, (1, []))[1], file, path)
        for line, row in rows:
            # NetBox has addresses without a name.
            if len(row) > max(address, name) and row[name]:
                yield f"line {line}", row[address], row[name]
    except CsvError as fault:
        raise UserError(f"{path}: line {fault.line}: {fault.wrong}", fault.hint) from None


def _places(header: list[str], file: NamesFile, path: Path) -> tuple[int, int]:
    """Return which cell has the address, and which the name."""
    wanted = file.address_column, file.name_column
    missing = [column for column in wanted if column not in header]
    if missing:
        there = one_line(", ".join(islice(header, 12)))
        raise UserError(
            f"{path}: no column {', '.join(missing)}; there are {there}",
            f"names.files.{file.name}: set address_column and name_column",
        )
    return header.index(file.address_column), header.index(file.name_column)


def _of_json(text: str, file: NamesFile, path: Path) -> Pairs:
    document: Any = json.loads(text)
    if isinstance(document, dict):
        document = document.get("results")
    if not isinstance(document, list) or not all(isinstance(one, dict) for one in document):
        raise UserError(f"{path}: expected a list of objects, or an object with such a list in `results`")
    if document and not any(file.address_column in one for one in document):
        hint = f"names.files.{file.name}: set address_column and name_column"
        raise UserError(f"{path}: no object has the key {file.address_column}", hint)
    for number, one in enumerate(document, start=1):
        name = one.get(file.name_column)
        if isinstance(name, str) and name.strip():
            yield f"entry {number}", str(one.get(file.address_column)), name.strip()
