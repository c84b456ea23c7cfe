"""The size that an Arrow stream claims, checked before memory is allocated for it.

A reader of Arrow allocates what a buffer claims to hold, and a claim of an exabyte ends the process. Only the few
fields that tell are read here; everything else is left to the reader, which checks it against the bytes.
Layout: https://arrow.apache.org/docs/format/Columnar.html, Message.fbs; and the tables of FlatBuffers.
"""

import struct
from collections.abc import Iterator

_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _RECORD_BATCH = 1, 3
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
_ROWS, _NODES, _BUFFERS, _COMPRESSION = 0, 1, 2, 3
_VTABLE_FIELDS = 4
_PAIR = struct.Struct("<qq")


class ClaimError(ValueError):
    """The bytes are no stream of plain record batches."""


def claimed_rows(stream: memoryview, *, max_rows: int, max_metadata: int = 1 << 16) -> int:
    """Return how many rows a stream says it has, once all that it claims fits into its own bytes.

    Args:
        stream: a schema and uncompressed record batches in Arrow's stream format.
        max_rows: rows that it may have.
        max_metadata: bytes that the description of one of its messages may take.

    Raises:
        ClaimError: it is cut off, compressed, has dictionaries, or claims more than it may.
    """
    position = rows = 0
    try:
        while position < len(stream):
            mark, size = struct.unpack_from("<Ii", stream, position)
            position += 8
            if mark != _CONTINUATION or not 0 <= size <= max_metadata:
                raise ClaimError("no Arrow message")
            if size == 0:
                break
            kind, body, more = _message(stream[position : position + size])
            if kind not in {_SCHEMA, _RECORD_BATCH}:
                raise ClaimError(f"Arrow message of kind {kind}")
            rows += more
            if rows > max_rows or not 0 <= body <= len(stream) - position - size:
                raise ClaimError(f"claims {rows} rows in {body} bytes")
            position += size + body
    except struct.error as error:
        raise ClaimError("cut off") from error
    return rows


def _message(metadata: memoryview) -> tuple[int, int, int]:
    """Return a message's kind, the bytes of its body, and its rows."""
    (root,) = struct.unpack_from("<I", metadata)
    kind_at = _field(metadata, root, _HEADER_TYPE)
    header_at = _field(metadata, root, _HEADER)
    body_at = _field(metadata, root, _BODY_LENGTH)
    kind = metadata[kind_at] if 0 < kind_at < len(metadata) else 0
    (body,) = struct.unpack_from("<q", metadata, body_at) if body_at else (0,)
    if kind != _RECORD_BATCH:
        return kind, body, 0
    if not header_at:
        raise ClaimError("a record batch without a header")
    table = header_at + struct.unpack_from("<I", metadata, header_at)[0]
    if _field(metadata, table, _COMPRESSION):
        raise ClaimError("compressed buffers")
    rows_at = _field(metadata, table, _ROWS)
    (rows,) = struct.unpack_from("<q", metadata, rows_at) if rows_at else (0,)
    if rows < 0:
        raise ClaimError(f"claims {rows} rows")
    for length, nulls in _pairs(metadata, table, _NODES):
        if length != rows or not 0 <= nulls <= rows:
            raise ClaimError(f"claims {nulls} nulls of {length} values in {rows} rows")
    for offset, length in _pairs(metadata, table, _BUFFERS):
        if not 0 <= offset <= offset + length <= body:
            raise ClaimError(f"claims a buffer of {length} bytes in {body}")
    return kind, body, rows


def _pairs(metadata: memoryview, table: int, index: int) -> Iterator[tuple[int, int]]:
    """Yield the elements of a vector of two numbers each: nodes (length, nulls), buffers (offset, length)."""
    place = _field(metadata, table, index)
    if not place:
        return
    start = place + struct.unpack_from("<I", metadata, place)[0]
    (count,) = struct.unpack_from("<I", metadata, start)
    if count > len(metadata) // _PAIR.size:
        raise ClaimError("a vector longer than the message")
    for number in range(count):
        yield _PAIR.unpack_from(metadata, start + 4 + number * _PAIR.size)


def _field(metadata: memoryview, table: int, index: int) -> int:
    """Return where a field of a table is; 0 if the table does not have it."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if vtable < 0:
        raise ClaimError("a table outside the message")
    (size,) = struct.unpack_from("<H", metadata, vtable)
    entry = _VTABLE_FIELDS + 2 * index
    if entry + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, vtable + entry)
    return table + int(offset) if offset else 0
