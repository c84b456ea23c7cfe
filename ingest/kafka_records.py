"""The messages between a relay and the workers: a few thousand flow records, or samples of interface counters, each.

A message value is, in this order:

- 4 bytes: ``cfr`` and the version of this format, 1;
- 4 bytes: length of the header, little-endian;
- the header: JSON with ``kind``, ``relay`` and ``lost`` (`Message`), padded with spaces so that what follows begins at
  a multiple of 8;
- the rows: an Arrow stream, not compressed, of the columns that are not null throughout. The producer compresses
  messages on their way; a compressed value would have to be believed before it could be measured.

A reader refuses what it cannot account for: it may have to do with a topic that somebody else writes to, too.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from io import BytesIO
from typing import Any
from zlib import crc32

import polars as pl

from cluster.errors import ClusterflowError
from ingest import counter_samples, records
from ingest.arrow_claims import ClaimError, claimed_rows
from ingest.readers_values import END_OF_TIME

MESSAGE_BYTES = 900_000
"""Size of a value that `encode` does not pass: with its envelope it fits Kafka's default ``message.max.bytes`` of 1 MiB
even where nothing of it can be compressed."""

MAX_VALUE_BYTES = 16 << 20
"""Size beyond which a value is refused unread, whatever the topic allows."""

MAX_TEXT_BYTES = 64
"""Size of an address beyond which it is none; the longest IPv6 address with a zone is shorter."""

_MAGIC = b"cfr\x01"
_PREFIX = struct.Struct("<4sI")
_ALIGNMENT = 8
_MAX_HEADER_BYTES = 1 << 18
_MAX_ROWS = 1 << 18
_MAPPED = "::ffff:"


class Kind(StrEnum):
    """What the rows of a message are."""

    RECORDS = "records"
    """Flow records, RECORD_SCHEMA."""
    COUNTERS = "counters"
    """Samples of interface counters, SAMPLE_SCHEMA."""


_SCHEMAS = {Kind.RECORDS: records.RECORD_SCHEMA, Kind.COUNTERS: counter_samples.SAMPLE_SCHEMA}

_ALWAYS = {
    Kind.RECORDS: (
        records.SRC, records.DST, records.SRC_PORT, records.DST_PORT, records.TCP_FLAGS, records.TOS,
        records.SAMPLING_RATE, records.BYTES, records.PACKETS, records.FLOWS,
    ),
    Kind.COUNTERS: (
        counter_samples.EXPORTER, counter_samples.INDEX, counter_samples.MOMENT, counter_samples.SEQ,
    ),
}  # fmt: skip
"""Columns in which readers leave no null."""

_COUNTERS = (records.BYTES, records.PACKETS, records.FLOWS)


class MessageError(ClusterflowError):
    """A message value is none of ours, or is broken; nothing of it can be used."""


_TIMES = {
    Kind.RECORDS: (records.START, records.END, records.ARRIVAL),
    Kind.COUNTERS: (counter_samples.MOMENT,),
}
_END_OF_TIME_MS = int(END_OF_TIME) * 1000
class NewerMessageError(MessageError):
    """A message of a version that comes after ours: sound, and not ours to throw away."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a value held.

    Attributes:
        kind: what the rows are.
        relay: id of the relay that sent it.
        frame: the rows, with all columns of RECORD_SCHEMA or SAMPLE_SCHEMA.
        lost: records newly known to be lost on the way to the collector, by exporter address. The relay counts them,
            because it sees the whole stream of an exporter; each loss is told in one message only.
    """

    kind: Kind
    relay: str
    frame: pl.DataFrame = field(repr=False)
    lost: dict[str, int] = field(default_factory=dict)


def partition_of(frame: pl.DataFrame, partitions: int, column: str = records.SRC) -> pl.Series:
    """Return the partition of each row (Int32): the same for an address at all times, in all processes and versions.

    Args:
        frame: rows with that column.
        partitions: how many there are.
        column: an address; records go by their source, counter samples by their exporter.
    """
    column_values = frame.get_column(column)
    distinct = column_values.unique()
    # One address, one partition, in whichever of its two spellings it was printed.
    numbers = [crc32((text or "").removeprefix(_MAPPED).encode()) % partitions for text in distinct.to_list()]
    return column_values.replace_strict(
        distinct, pl.Series("partition", numbers, pl.Int32), return_dtype=pl.Int32
    ).alias("partition")


def encode(
    frame: pl.DataFrame,
    *,
    relay: str,
    kind: Kind = Kind.RECORDS,
    lost: Mapping[str, int] | None = None,
    limit: int = MESSAGE_BYTES,
) -> list[bytes]:
    """Return rows as message values, in their order; no value for no rows.

    Args:
        frame: RECORD_SCHEMA or SAMPLE_SCHEMA, as `kind` says; no text longer than MAX_TEXT_BYTES.
        relay: id of the sender.
        kind: what the rows are.
        lost: records lost, by exporter address: told by the first value alone.
        limit: bytes that no value passes, unless a single row needs more.
    """
    if frame.is_empty():
        return []
    height = frame.height
    used = frame.select(column for column in frame.get_columns() if column.null_count() < height)
    values: list[bytes] = []
    start, rows = 0, height
    while start < height:
        head = _header(kind, relay, lost if start == 0 and lost else {})
        part = _arrow(used.slice(start, rows))
        if len(head) + len(part) > limit and rows > 1:
            # Rows are of much the same size: a little less than their share mostly fits at once.
            rows = max(1, min(rows - 1, int(0.95 * min(rows, height - start) * limit / (len(head) + len(part)))))
            continue
        values.append(head + part)
        start += rows
    return values


def _header(kind: Kind, relay: str, lost: Mapping[str, int]) -> bytes:
    text = json.dumps({"kind": kind.value, "relay": relay, "lost": dict(lost)}).encode()
    text += b" " * (-(_PREFIX.size + len(text)) % _ALIGNMENT)
    return _PREFIX.pack(_MAGIC, len(text)) + text


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
    if magic[:3] != _MAGIC[:3]:
        raise MessageError("no message of a relay")
    if magic != _MAGIC:
        refusal = NewerMessageError if magic[3] > _MAGIC[3] else MessageError
        raise refusal(
            f"a message of format version {magic[3]}, expected {_MAGIC[3]}", "run relay and workers of one version"
        )
    body = _PREFIX.size + header_bytes
    if header_bytes > _MAX_HEADER_BYTES or body > len(value):
        raise MessageError("a message with a broken header")
    kind, relay, lost = _read_header(value[_PREFIX.size : body])
    return Message(kind, relay, _read_rows(value, body, kind), lost)


def _read_header(text: bytes) -> tuple[Kind, str, dict[str, int]]:
    try:
        document: Any = json.loads(text)
        kind, relay, lost = Kind(document["kind"]), document["relay"], document["lost"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MessageError("a message with a broken header") from error
    is_sound = isinstance(relay, str) and isinstance(lost, dict) and all(map(_is_count, lost.values()))
    if not is_sound or not all(len(address) <= MAX_TEXT_BYTES for address in lost):
        raise MessageError("a message with a broken header")
    return kind, relay, lost


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= records.MAX_COUNTER


def _read_rows(value: bytes, start: int, kind: Kind) -> pl.DataFrame:
    schema = _SCHEMAS[kind]
    try:
        rows = claimed_rows(memoryview(value)[start:], max_rows=_MAX_ROWS)
        frame = pl.read_ipc_stream(BytesIO(value[start:]))
    except (ClaimError, OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise MessageError(f"a message with broken {kind}") from error
    if frame.height != rows or any(schema.get(name) != dtype for name, dtype in frame.schema.items()):
        raise MessageError(f"a message with other columns than {kind} have")
    whole = frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, dtype).alias(name) for name, dtype in schema.items()
    )
    if not _is_sound(whole, kind):
        raise MessageError(f"a message with {kind} that no reader lets through")
    return whole


def _is_sound(frame: pl.DataFrame, kind: Kind) -> bool:
    """Whether the rows keep to what readers promise: the stages behind them rely on it."""
    if any(frame.get_column(name).null_count() for name in _ALWAYS[kind]):
        return False
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String()]
    counters = _COUNTERS if kind is Kind.RECORDS else ()
    checks = [pl.col(name).str.len_bytes().max().fill_null(0) <= MAX_TEXT_BYTES for name in texts]
    checks += [pl.col(name).is_between(0, records.MAX_COUNTER).all() for name in counters]
    return bool(frame.select(pl.all_horizontal(checks)).item())
    checks += [pl.col(name).is_between(0, _END_OF_TIME_MS).all() for name in _TIMES[kind]]
