"""Threat feeds as MISP exports: the address attributes of events that are meant for detection."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.errors import UserError
from enrichment.feeds.feed import Entries, moment

_TYPES = frozenset({"ip-dst", "ip-src", "ip-dst|port", "ip-src|port", "domain|ip"})

_LEVELS = {
    "completely-confident": 100,
    "usually-confident": 75,
    "fairly-confident": 50,
    "rarely-confident": 25,
    "unconfident": 0,
}
"""MISP's taxonomy ``misp:confidence-level``, and the numbers that it gives to its words."""

_LEVEL_TAG = 'misp:confidence-level="'


def place(number: int) -> str:
    """Return where an attribute stands, counted through the whole export."""
    return f"attribute {number}"


def read_misp(document: object, entries: Entries, path: Path) -> None:
    """Read an export: an event, a list of them, or what the API answers to a search for events or attributes.

    Raises:
        UserError: it is none of these.
    """
    events = _events(document)
    if events is None:
        raise UserError(f"{path}: not a MISP export", 'expected {"Event": ...}, a list of those, or {"response": ...}')
    number = 0
    for event in events:
        level = _level(event)
        for attribute, is_deleted in _attributes(event):
            number += 1
            _read(number, attribute, entries, is_deleted=is_deleted, level=level)


def _events(document: object) -> list[Mapping[str, Any]] | None:
    """Return the events, or whatever holds attributes in their place."""
    if isinstance(document, dict) and "response" in document:
        document = document["response"]
    listed = document if isinstance(document, list) else [document]
    events = [one.get("Event", one) if isinstance(one, dict) else None for one in listed]
    good: list[Mapping[str, Any]] = [
        one for one in events if isinstance(one, dict) and ("Attribute" in one or "Object" in one)
    ]
    return good if len(good) == len(events) else None


def _attributes(event: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield the attributes of an event and of its objects, each with whether it is deleted."""
    holders = [(event, False), *((one, one.get("deleted") is True) for one in _mappings(event, "Object"))]
    for holder, is_deleted in holders:
        for attribute in _mappings(holder, "Attribute"):
            yield attribute, is_deleted or attribute.get("deleted") is True


def _mappings(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = holder.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _read(number: int, attribute: Mapping[str, Any], entries: Entries, *, is_deleted: bool, level: int | None) -> None:
    kind = attribute.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        return
    if is_deleted or attribute.get("to_ids") is not True:
        entries.leave_out()
        return
    parts = str(attribute.get("value", "")).split("|")
    text = parts[-1 if kind == "domain|ip" else 0]
    # When it was seen first, else when somebody listed it. That it was seen last at a time does not end it.
    given = attribute.get("first_seen") or attribute.get("timestamp")
    try:
        start = moment(str(given)) if given else -math.inf
    except ValueError as error:
        entries.skip(number, text, str(error))
        return
    own = _level(attribute)
    entries.add(number, text, confidence=level if own is None else own, start=start)


def _level(tagged: Mapping[str, Any]) -> int | None:
    """Return the confidence that tags give, if any does."""
    for tag in _mappings(tagged, "Tag"):
        name = str(tag.get("name", ""))
        if name.startswith(_LEVEL_TAG):
            return _LEVELS.get(name[len(_LEVEL_TAG) :].rstrip('"'))
    return None
