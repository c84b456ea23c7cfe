"""Parts shared by text formats: which part of an event goes where, and characters that must be escaped."""

import ipaddress
from collections.abc import Iterator, Sequence

from delivery.event import Document, at

Mapped = Sequence[tuple[str, str]]
"""Name in the format, and dotted path in the event."""


def values_of(document: Document, mapped: Mapped) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each part that the event has."""
    for name, path in mapped:
        text = written(at(document, path))
        if text:
            yield name, text


def written(value: object) -> str:
    """Return a value as text: lists with commas between their items, whole numbers without decimals."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list):
        return ",".join(written(item) for item in value)
    return str(value)


def version_of(address: str) -> int:
    """Return 4 or 6; 0 for what is no address."""
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0
