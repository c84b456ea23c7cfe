"""Read Google Cloud's VPC flow logs: log entries as JSON, a line each, as Cloud Logging writes them to a bucket.

What the fields mean: "VPC Flow Logs records" in Google's documentation of VPC. Google samples, and scales bytes and
packets itself.
"""

import json

import polars as pl

from ingest.cloud.ends import INTERFACE, IS_SENDER, Ends
from ingest.read import records
from ingest.read.readers_values import from_text, lines_of, pieces
from ingest.read.records import Parsed, Reason

_CONNECTION = {
    "src_ip": records.SRC,
    "dest_ip": records.DST,
    "src_port": records.SRC_PORT,
    "dest_port": records.DST_PORT,
    "protocol": records.PROTOCOL,
}
_PAYLOAD = {
    "bytes_sent": records.BYTES,
    "packets_sent": records.PACKETS,
    "start_time": records.START,
    "end_time": records.END,
}
_REPORTER = "reporter"
_SENDER = "SRC"
"""REPORTER of the sender's machine or gateway begins so; that of the receiver's with DEST."""


def _texts(names: list[str]) -> pl.Struct:
    return pl.Struct(dict.fromkeys(names, pl.String()))


_ENTRY = {
    "jsonPayload": pl.Struct(
        {
            "connection": _texts([*_CONNECTION]),
            **dict.fromkeys((*_PAYLOAD, _REPORTER), pl.String()),
            "src_instance": _texts(["vm_name"]),
            "dest_instance": _texts(["vm_name"]),
        }
    )
}
"""Of an entry, what matters here."""


def read_google(raw: bytes, ends: Ends, skipped: frozenset[str] = frozenset()) -> Parsed:
    """Return the records of whole lines.

    Args:
        raw: log entries, a line each.
        ends: names the exporter of each end.
        skipped: names of machines whose own records do not count.
    """
    parts = [_read(piece, ends, skipped) for piece in pieces(raw)]
    return Parsed(pl.concat([part.frame for part in parts]), pl.concat([part.dead for part in parts]))


def _read(raw: bytes, ends: Ends, skipped: frozenset[str]) -> Parsed:
    lines = lines_of(raw)
    entries, is_entry = _entries(lines.get_column("line"))
    dead = lines.filter(~is_entry).with_columns(pl.lit(Reason.NOT_A_RECORD.value).alias("reason"))
    lines = lines.filter(is_entry)
    payload = pl.col("jsonPayload").struct
    connection = payload.field("connection").struct
    is_sender = payload.field(_REPORTER).str.starts_with(_SENDER)
    machine = pl.when(is_sender).then(payload.field("src_instance")).otherwise(payload.field("dest_instance"))
    beside = entries.select(is_sender.alias(IS_SENDER), machine.struct.field("vm_name").alias(INTERFACE))
    typed, why = from_text(
        entries.select(
            *(connection.field(name).alias(column) for name, column in _CONNECTION.items()),
            *(payload.field(name).alias(column) for name, column in _PAYLOAD.items()),
        ),
        "UTC",
    )
    why = why.set(why.is_null() & typed.get_column(records.START).is_null(), Reason.BAD_TIME.value)
    why = why.set(why.is_null() & beside.get_column(IS_SENDER).is_null(), Reason.MISSING_FIELD.value)
    dead = pl.concat([dead, lines.with_columns(why.alias("reason")).filter(why.is_not_null())])
    found = typed.drop(records.EXPORTER).hstack(beside).filter(why.is_null())
    if skipped:
        found = found.filter(~pl.col(INTERFACE).is_in(list(skipped)).fill_null(value=False))
    return Parsed(ends.name(found).select(list(records.RECORD_SCHEMA)), dead)


def _entries(lines: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """Return the entries of the lines that are JSON objects, and which lines these are."""
    entries = _parsed(lines.to_list())
    if entries is not None:
        return entries, pl.repeat(True, len(lines), dtype=pl.Boolean, eager=True)
    is_entry = pl.Series([_is_object(line) for line in lines], dtype=pl.Boolean)
    entries = _parsed(lines.filter(is_entry).to_list())
    if entries is None:
        # One by one, where only polars finds fault with some.
        is_entry = pl.Series([_parsed([line]) is not None for line in lines], dtype=pl.Boolean)
        entries = _parsed(lines.filter(is_entry).to_list())
    return pl.DataFrame(schema=_ENTRY) if entries is None else entries, is_entry


def _parsed(lines: list[str]) -> pl.DataFrame | None:
    if not lines:
        return pl.DataFrame(schema=_ENTRY)
    try:
        frame = pl.read_ndjson("\n".join(lines).encode(), schema=_ENTRY)
    except pl.exceptions.PolarsError:
        return None
    return frame if frame.height == len(lines) else None


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
