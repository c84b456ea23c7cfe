"""Threat feeds as STIX 2.1 bundles: indicators whose patterns name addresses."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.errors import UserError
from enrichment.feeds.feed import Entries, moment

_ADDRESSES = frozenset(
    {"ipv4-addr:value", "ipv6-addr:value", "network-traffic:dst_ref.value", "network-traffic:src_ref.value"}
)
"""Object paths that hold an address."""

_TOKEN = re.compile(
    r"'(?P<text>(?:[^'\\]|\\.)*)'|(?P<word>[A-Za-z0-9_:.\-*]+(?:\[[^\]]*\])?)|(?P<sign>[\[\]()=,!<>]+?)|\s+"
)
_NARROWING = frozenset({"AND", "NOT", "FOLLOWEDBY", "WITHIN", "REPEATS", "START", "STOP"})
"""What makes a pattern hold for less than its addresses say: taken as if it were not there, it would match too much."""


def place(number: int) -> str:
    """Return where an object stands in its bundle."""
    return f"objects[{number}]"


def read_stix(document: object, entries: Entries, path: Path) -> None:
    """Read the indicators of a bundle; of several versions of one, the newest counts.

    Raises:
        UserError: it is no bundle, or none of its indicators names an address.
    """
    objects = document.get("objects") if isinstance(document, dict) and document.get("type") == "bundle" else None
    if not isinstance(objects, list):
        raise UserError(f"{path}: not a STIX bundle", 'it begins with {"type": "bundle", ... "objects": [')
    newest: dict[str, int] = {}
    for number, thing in enumerate(objects):
        if not isinstance(thing, dict) or thing.get("type") != "indicator":
            continue
        identity = str(thing.get("id", number))
        earlier = newest.get(identity)
        if earlier is None or _modified(thing) >= _modified(objects[earlier]):
            newest[identity] = number
    named = sum([_read(number, objects[number], entries) for number in newest.values()])
    if newest and not named:
        raise UserError(f"{path}: {len(newest):,} indicators, and none of them names an address")


def _read(number: int, indicator: Mapping[str, Any], entries: Entries) -> bool:
    """Take the addresses of an indicator; return whether it names any."""
    pattern = str(indicator.get("pattern", ""))
    # STIX 2.0 has no other type of pattern.
    if indicator.get("pattern_type", "stix") != "stix" or not any(path in pattern for path in _ADDRESSES):
        return False
    if indicator.get("revoked") is True:
        entries.leave_out()
        return True
    try:
        start, end = (
            _moment(indicator, key, none) for key, none in (("valid_from", -math.inf), ("valid_until", math.inf))
        )
        level = _confidence(indicator)
        addresses = list(pattern_addresses(pattern))
    except ValueError as error:
        entries.skip(number, pattern, str(error))
        return True
    for address in addresses:
        entries.add(number, address, confidence=level, start=start, end=end)
    return True


def _modified(indicator: Mapping[str, Any]) -> float:
    try:
        return moment(str(indicator.get("modified")))
    except ValueError:
        return -math.inf


def _moment(indicator: Mapping[str, Any], key: str, none: float) -> float:
    given = indicator.get(key)
    try:
        return none if given is None else moment(str(given))
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _confidence(indicator: Mapping[str, Any]) -> int | None:
    level = indicator.get("confidence")
    if level is not None and (isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= 100):
        raise ValueError("expected a confidence from 0 to 100")
    return level


def pattern_addresses(pattern: str) -> Iterator[str]:
    """Yield the addresses and prefixes any of which makes a pattern hold; what else it names beside them is passed.

    Raises:
        ValueError: it holds for less than these addresses, or cannot be read.
    """
    tokens = list(_tokens(pattern))
    words = {text.upper() for kind, text in tokens if kind == "word"}
    narrowing = sorted(words & _NARROWING)
    if narrowing:
        raise ValueError(f"{narrowing[0]} is not supported: expected comparisons joined by OR")
    position = 0
    while position < len(tokens):
        kind, text = tokens[position]
        position += 1
        if kind != "word" or text not in _ADDRESSES:
            continue
        operator, values, position = _comparison(tokens, position)
        if operator not in {"=", "==", "ISSUBSET", "IN"} or not values:
            raise ValueError(f"expected =, IN or ISSUBSET and an address after {text}")
        yield from values


def _comparison(tokens: Sequence[tuple[str, str]], position: int) -> tuple[str, list[str], int]:
    """Return the operator, the values and where the comparison ends."""
    operator = ""
    while position < len(tokens) and tokens[position] not in {("sign", "("), ("sign", ")"), ("sign", "]")}:
        kind, text = tokens[position]
        if kind == "text":
            return operator, [text], position + 1
        operator += text.upper()
        position += 1
    values = []
    if operator == "IN" and position < len(tokens) and tokens[position] == ("sign", "("):
        position += 1
        while position < len(tokens) and tokens[position] != ("sign", ")"):
            kind, text = tokens[position]
            values += [text] if kind == "text" else []
            position += 1
    return operator, values, position


def _tokens(pattern: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        if match is None:
            raise ValueError(f"cannot be read at character {position + 1}")
        position = match.end()
        if match.lastgroup is not None:
            yield match.lastgroup, re.sub(r"\\(.)", r"\1", match[match.lastgroup])
