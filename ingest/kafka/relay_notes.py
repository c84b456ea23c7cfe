"""The state of a relay, as records of a compacted topic: compressed, in pieces that brokers accept.

Positions grow with the files in a spool, and what is known of NetFlow v9's numbers with the datagrams of some seconds:
together they pass any limit of one message. The key of a piece is ``ID/notes/NUMBER``. All pieces are written each
time, in one transaction; those that a longer note has left behind are removed by records without a value.
"""

import json
import zlib
from collections.abc import Mapping
from itertools import count, takewhile
from typing import Any

VERSION = 2
"""Format of the notes; another version refuses to read them."""

_QUICKLY = 1

Piece = tuple[bytes, bytes | None]
"""Key and value."""


def pieces(relay: str, document: Mapping[str, Any], limit: int, before: int = 0) -> list[Piece]:
    """Return a document of plain values as records.

    Args:
        relay: whose it is.
        document: what `joined` returns.
        limit: bytes that no value passes.
        before: how many pieces the topic has now.
    """
    text = zlib.compress(json.dumps({"version": VERSION, **document}).encode(), _QUICKLY)
    values: list[bytes | None] = [text[start : start + limit] for start in range(0, len(text), limit)]
    values += [None] * (before - len(values))
    return [(_key(relay, number), value) for number, value in enumerate(values)]


def joined(relay: str, values: Mapping[bytes, bytes]) -> tuple[dict[str, Any] | None, int]:
    """Return the document and how many pieces it has; None and 0 if there is none. ValueError if it is damaged.

    Args:
        relay: whose it is.
        values: newest value of each key of the topic, without those removed.
    """
    found = [values[key] for key in takewhile(values.__contains__, (_key(relay, number) for number in count()))]
    if not found:
        return None, 0
    try:
        document = json.loads(zlib.decompress(b"".join(found)))
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not isinstance(document, dict):
        raise ValueError("no notes")  # noqa: TRY004 - the value is wrong, whatever its type
    return document, len(found)


def _key(relay: str, number: int) -> bytes:
    return f"{relay}/notes/{number}".encode()
