"""The messages between a relay and the workers: flow records, samples of interface counters, the relay's status.

A message holds some thousand rows of one kind. Its value is, in this order:

- 4 bytes: ``cfr`` and the version of this format, 3;
- 4 bytes: length of the header, little-endian;
- the header: JSON with ``kind``, ``relay``, ``lost`` and perhaps ``told`` (`Message`), padded with spaces so that what
  follows begins at a multiple of 8;
- the rows: an Arrow stream, not compressed, of the columns that are not null throughout, whole numbers as the
  narrowest unsigned ones that all rows fit in. The producer compresses messages on their way; a compressed value would
  have to be believed before it could be measured.

A reader refuses what it cannot account for: it may have to do with a topic that somebody else writes to, too.

A reader of Arrow allocates what a buffer claims to hold, and a claim of an exabyte ends the process: so claims are
checked first, of the few fields that tell; the rest is left to the reader, which checks it against the bytes. Layout:
https://arrow.apache.org/docs/format/Columnar.html, Message.fbs; and the tables of FlatBuffers.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from io import BytesIO
from typing import Any

import polars as pl

from app.errors import ClusterflowError
from cluster.scalars import names
from cluster.scalars.kinds import Bad
from ingest.kafka import relay_status
from ingest.read import counter_samples, records
from ingest.read.readers_values import END_OF_TIME

_CONTINUATION = 0xFFFFFFFF
_MAX_METADATA = 1 << 16
"""Bytes that the description of a message may take."""
_SCHEMA, _RECORD_BATCH = 1, 3
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
_ROWS, _NODES, _BUFFERS, _COMPRESSION = 0, 1, 2, 3
_VTABLE_FIELDS = 4
_PAIR = struct.Struct("<qq")


class ClaimError(ValueError):
    """The bytes are no stream of plain record batches."""


def claimed_rows(stream: memoryview, *, max_rows: int) -> int:
    """Return how many rows a stream says it has, once all that it claims fits into its own bytes.

    Args:
        stream: a schema and uncompressed record batches in Arrow's stream format.
        max_rows: rows that it may have.

    Raises:
        ClaimError: it is cut off, compressed, has dictionaries, or claims more than it may.
    """
    position = rows = 0
    try:
        while position < len(stream):
            mark, size = struct.unpack_from("<Ii", stream, position)
            position += 8
            if mark != _CONTINUATION or not 0 <= size <= _MAX_METADATA:
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


MESSAGE_BYTES = 900_000
"""Size of a value that `encode` does not pass: with its envelope it fits Kafka's default ``message.max.bytes`` of 1 MiB
even where nothing of it can be compressed."""

MAX_VALUE_BYTES = 16 << 20
"""Size beyond which a value is refused unread, whatever the topic allows."""

MAX_TEXT_BYTES = 64
"""Size of an address beyond which it is none; the longest IPv6 address with a zone is shorter."""

_MARK, _VERSION = b"cfr", 3
_PREFIX = struct.Struct("<4sI")
_ALIGNMENT = 8
_MAX_HEADER_BYTES = 1 << 18
_MAX_ROWS = 1 << 18
_FILLED = 0.97
"""Part of a message's size that rows are planned for: they are of much the same size."""
_INLINE_TEXT, _VIEW = 12, 16
"""Bytes up to which Arrow has a text in its view, and those of a view."""
_NARROW: tuple[tuple[pl.DataType, int], ...] = ((pl.UInt8(), 1), (pl.UInt16(), 2), (pl.UInt32(), 4))
"""Unsigned numbers and their bytes."""
_BYTES: dict[pl.DataType, int] = {**dict(_NARROW), pl.Int16(): 2, pl.Int32(): 4, pl.Int64(): 8}


class Kind(StrEnum):
    """What the rows of a message are."""

    RECORDS = "records"
    """Flow records, RECORD_SCHEMA."""
    COUNTERS = "counters"
    """Samples of interface counters, SAMPLE_SCHEMA."""
    STATUS = "status"
    """How the relay is, STATUS_SCHEMA: a single row."""


_SCHEMAS = {
    Kind.RECORDS: records.RECORD_SCHEMA,
    Kind.COUNTERS: counter_samples.SAMPLE_SCHEMA,
    Kind.STATUS: relay_status.STATUS_SCHEMA,
}

_ALWAYS = {
    Kind.RECORDS: (
        records.SRC, records.DST, records.SRC_PORT, records.DST_PORT, records.TCP_FLAGS, records.TOS,
        records.SAMPLING_RATE, records.BYTES, records.PACKETS, records.FLOWS,
    ),
    Kind.COUNTERS: (
        counter_samples.EXPORTER, counter_samples.INDEX, counter_samples.MOMENT, counter_samples.SEQ,
    ),
    Kind.STATUS: tuple(relay_status.STATUS_SCHEMA),
}  # fmt: skip
"""Columns in which readers leave no null."""

_COUNTERS = {
    Kind.RECORDS: (records.BYTES, records.PACKETS, records.FLOWS),
    Kind.COUNTERS: (),
    Kind.STATUS: relay_status.NUMBERS,
}
_MOST = {Kind.RECORDS: records.MAX_COUNTER, Kind.COUNTERS: 0, Kind.STATUS: 1 << 62}
"""Those of a relay are running totals: a petabyte is a year's."""

_TIMES = {
    Kind.RECORDS: (records.START, records.END, records.ARRIVAL),
    Kind.COUNTERS: (counter_samples.MOMENT,),
    Kind.STATUS: (relay_status.MOMENT, relay_status.DRAINED),
}
_END_OF_TIME_MS = int(END_OF_TIME) * 1000


class MessageError(ClusterflowError):
    """A message value is none of ours, or is broken; nothing of it can be used."""


class OtherVersionError(MessageError):
    """A message of another version: sound, and not ours to throw away."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a value held.

    Attributes:
        kind: what the rows are.
        relay: id of the relay that sent it.
        frame: the rows, with all columns of RECORD_SCHEMA, SAMPLE_SCHEMA or STATUS_SCHEMA.
        lost: records newly known to be lost on the way to the collector, by exporter address. The relay counts them,
            because it sees the whole stream of an exporter; each loss is reported in one message only.
        told: with a status, what its collector has to say (`relay_status.told`).
    """

    kind: Kind
    relay: str
    frame: pl.DataFrame = field(repr=False)
    lost: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)


def encode(
    frame: pl.DataFrame,
    *,
    relay: str,
    kind: Kind = Kind.RECORDS,
    lost: Mapping[str, int] | None = None,
    told: Mapping[str, int] | None = None,
    limit: int = MESSAGE_BYTES,
) -> list[bytes]:
    """Return rows as message values, in their order; no value for no rows.

    Args:
        frame: RECORD_SCHEMA, SAMPLE_SCHEMA or STATUS_SCHEMA, as `kind` says; no text longer than MAX_TEXT_BYTES.
        relay: id of the sender.
        kind: what the rows are.
        lost: records lost, by exporter address: told by the first value alone.
        told: what the collector has to say, by the first value alone.
        limit: bytes that no value passes, unless a single row needs more.
    """
    head = envelope(relay, kind, lost, told)
    plain = envelope(relay, kind)
    found = bodies(compact(frame), limit - len(head))
    return [(plain if number else head) + body for number, body in enumerate(found)]


def bodies(frame: pl.DataFrame, limit: int) -> list[bytes]:
    """Return rows as what follows the envelopes of message values, in their order; nothing for no rows.

    Args:
        frame: what `compact` returns, or rows of it.
        limit: bytes that none passes, unless a single row needs more.
    """
    if frame.is_empty():
        return []
    height = frame.height
    used = frame.select(column for column in frame.get_columns() if column.null_count() < height)
    found: list[bytes] = []
    start, size = 0, _row_bytes(used)
    rows = height
    while start < height:
        rows = max(1, min(int(_FILLED * limit / size), rows, height - start))
        body = _arrow(used.slice(start, rows))
        size = len(body) / rows
        if len(body) > limit and rows > 1:
            rows -= 1
            continue
        found.append(body)
        start += rows
        rows = height
    return found


def compact(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows as messages have them: whole numbers as short as their values allow, in one piece of memory.

    Args:
        frame: RECORD_SCHEMA, SAMPLE_SCHEMA or STATUS_SCHEMA; no text longer than MAX_TEXT_BYTES.
    """
    if frame.is_empty():
        return frame
    names = [name for name, dtype in frame.schema.items() if dtype.is_integer()]
    least, most = frame.select(pl.col(names).min()).row(0), frame.select(pl.col(names).max()).row(0)
    casts = []
    for name, low, high in zip(names, least, most, strict=True):
        if low is None:
            continue
        full = _BYTES[frame.schema[name]]
        fitting = (dtype for dtype, size in _NARROW if size < full and 0 <= low <= high < 1 << 8 * size)
        if (dtype := next(fitting, None)) is not None:
            casts.append(pl.col(name).cast(dtype))
    return frame.with_columns(casts).rechunk()


def _row_bytes(frame: pl.DataFrame) -> float:
    """Return about how many bytes Arrow needs for a row."""
    size = 0.0
    for column in frame.get_columns():
        if column.dtype == pl.String():
            long = column.str.len_bytes()
            size += _VIEW + int(long.filter(long > _INLINE_TEXT).sum()) / frame.height
        else:
            size += _BYTES[column.dtype]
        size += bool(column.null_count()) / 8
    return size


def envelope(
    relay: str, kind: Kind = Kind.RECORDS, lost: Mapping[str, int] | None = None, told: Mapping[str, int] | None = None
) -> bytes:
    """Return what stands before the rows of a message; arguments as those of `encode`."""
    news = {"told": dict(told)} if told else {}
    text = json.dumps({"kind": kind.value, "relay": relay, "lost": dict(lost or {}), **news}).encode()
    text += b" " * (-(_PREFIX.size + len(text)) % _ALIGNMENT)
    return _PREFIX.pack(_MARK + bytes([_VERSION]), len(text)) + text


def _arrow(frame: pl.DataFrame) -> bytes:
    buffer = BytesIO()
    frame.write_ipc_stream(buffer, compression="uncompressed")
    return buffer.getvalue()


def decode(value: bytes | None) -> Message:
    """Return what a message value holds; MessageError, and nothing else, if it is not one of ours or broken."""
    if value is None:
        raise MessageError("a message without a value")
    if len(value) > MAX_VALUE_BYTES:
        raise MessageError(f"a message of {len(value)} bytes, more than {MAX_VALUE_BYTES}")
    if len(value) < _PREFIX.size:
        raise MessageError("no message of a relay: too short")
    magic, header_bytes = _PREFIX.unpack_from(value)
    if magic[:3] != _MARK:
        raise MessageError("no message of a relay")
    if magic[3] != _VERSION:
        raise OtherVersionError(
            f"a message of format version {magic[3]}, expected {_VERSION}", "run relay and workers of one version"
        )
    body = _PREFIX.size + header_bytes
    if header_bytes > _MAX_HEADER_BYTES or body > len(value):
        raise MessageError("a message with a broken header")
    kind, relay, lost, told = _read_header(value[_PREFIX.size : body])
    frame = _read_rows(value, body, kind)
    if kind is Kind.STATUS:
        _check_status(relay, frame)
    return Message(kind, relay, frame, lost, told)


def _read_header(text: bytes) -> tuple[Kind, str, dict[str, int], dict[str, int]]:
    try:
        document: Any = json.loads(text)
        kind, relay, lost = Kind(document["kind"]), document["relay"], document["lost"]
        told = document.get("told", {})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MessageError("a message with a broken header") from error
    is_sound = isinstance(relay, str) and isinstance(lost, dict) and all(map(_is_count, lost.values()))
    if not is_sound or not all(len(address) <= MAX_TEXT_BYTES for address in lost):
        raise MessageError("a message with a broken header")
    if told and (kind is not Kind.STATUS or not relay_status.is_told(told)):
        raise MessageError("a message whose relay tells what none does")
    return kind, relay, lost, told


def _check_status(relay: str, frame: pl.DataFrame) -> None:
    """Refuse what would become a series of the store under a name that is none, or more than one row of one."""
    try:
        names.NAME.parse(relay)
    except (Bad, ValueError) as error:
        raise MessageError("a message with a status of a relay whose id is none") from error
    if frame.height != 1:
        raise MessageError(f"a message with a status of {frame.height} rows")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= records.MAX_COUNTER


def _read_rows(value: bytes, start: int, kind: Kind) -> pl.DataFrame:
    schema = _SCHEMAS[kind]
    try:
        rows = claimed_rows(memoryview(value)[start:], max_rows=_MAX_ROWS)
        frame = pl.read_ipc_stream(BytesIO(value[start:]))
    except (ClaimError, OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise MessageError(f"a message with broken {kind}") from error
    if frame.height != rows or not all(_fits(dtype, schema.get(name)) for name, dtype in frame.schema.items()):
        raise MessageError(f"a message with other columns than {kind} have")
    whole = frame.select(
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )
    if not _is_sound(whole, kind):
        raise MessageError(f"a message with {kind} that no reader lets through")
    return whole


def _fits(given: pl.DataType, wanted: pl.DataType | None) -> bool:
    """Whether a column is of the type that it must have, or of a shorter one."""
    is_shorter = any(given == one for one, _ in _NARROW) and wanted in _BYTES and _BYTES[given] < _BYTES[wanted]
    return given == wanted or is_shorter


def _is_sound(frame: pl.DataFrame, kind: Kind) -> bool:
    """Whether the rows keep to what readers promise: the stages behind them rely on it."""
    if any(frame.get_column(name).null_count() for name in _ALWAYS[kind]):
        return False
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String()]
    checks = [pl.col(name).str.len_bytes().max().fill_null(0) <= MAX_TEXT_BYTES for name in texts]
    checks += [pl.col(name).is_between(0, _MOST[kind]).all() for name in _COUNTERS[kind]]
    checks += [pl.col(name).is_between(0, _END_OF_TIME_MS).all() for name in _TIMES[kind]]
    return bool(frame.select(pl.all_horizontal(checks)).item())
