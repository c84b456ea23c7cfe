"""Read Azure's virtual network flow logs, and network security group flow logs of version 2.

What the fields mean: "Virtual network flow logs" and "Flow logging for network security groups" in Azure's
documentation of Network Watcher. A file is one JSON object that grows: PT1H.json has an hour of one interface. `lines`
makes it lines, `read_azure` reads these.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from ingest.cloud.ends import INTERFACE, IS_SENDER, Ends
from ingest.read import records
from ingest.read.readers_values import from_text, lines_of, pieces
from ingest.read.records import Parsed, Reason

_TIME, _DIRECTION, _STATE, _SINCE = "time", "way", "state", "since"
_SENT_PACKETS, _SENT_BYTES = "packets_there", "bytes_there"
_BACK_PACKETS, _BACK_BYTES = "packets_back", "bytes_back"
_FIELDS = (
    INTERFACE, _SINCE, _TIME, records.SRC, records.DST, records.SRC_PORT, records.DST_PORT, records.PROTOCOL,
    _DIRECTION, _STATE, _SENT_PACKETS, _SENT_BYTES, _BACK_PACKETS, _BACK_BYTES,
)  # fmt: skip
_OUT, _BEGIN, _CONTINUING, _DENIED = "O", "B", "C", "D"
_SHORTEST = 8
"""Fields of a tuple up to its state."""
_INTERVAL_MS = 300_000
"""Between two reports of a flow that goes on."""
_PROTOCOLS = {"T": "6", "U": "17"}
_LONGEST_TIME = 18
"""Digits; more would not fit into 64 bits."""
_MOST_SHOWN = 4096


@dataclass(frozen=True, slots=True)
class _Odd:
    """The beginning of JSON that stands where something else belongs."""

    text: str


def lines(content: bytes) -> list[bytes]:
    """Return the flows of a file as lines of CSV, in its order: those of a longer version of it begin with the same.

    Raises:
        ValueError: it is not JSON, or not such a log.
    """
    try:
        found = json.loads(content)
        rows = found.get("records") if isinstance(found, dict) else None
        if not isinstance(rows, list):
            raise ValueError("no list of `records`")  # noqa: TRY004 - as of what is no JSON
        told: dict[tuple[str, ...], int] = {}
        return [_line(mac, fields, told) for record in rows for mac, fields in _tuples(record)]
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _tuples(record: object) -> Iterator[tuple[str, list[str]]]:
    """Yield interface and fields of each flow tuple of a record, those of security group logs in today's order.

    What is of another shape is one field: as a line of so few it becomes a dead letter, and the rest counts.
    """
    mac = _mac(record, "macAddress")
    body = (record.get("flowRecords") or record.get("properties") or {}) if isinstance(record, dict) else record
    for flow in _listed(body, "flows"):
        is_today = isinstance(flow, dict) and "flowGroups" in flow
        for group in _listed(flow, "flowGroups" if is_today else "flows"):
            for text in _listed(group, "flowTuples"):
                fields = [text.text] if isinstance(text, _Odd) else str(text).split(",")
                yield _mac(group, "mac") or mac, fields if is_today else _as_today(fields)


def _listed(holder: object, name: str) -> list[object]:
    """Return what an object lists under a name; what is of another shape is one odd thing, here and further down."""
    if isinstance(holder, _Odd):
        return [holder]
    if not isinstance(holder, dict):
        return [_odd(holder)]
    found = holder.get(name) or []
    return found if isinstance(found, list) else [_odd(found)]


def _odd(found: object) -> _Odd:
    return _Odd(json.dumps(found)[:_MOST_SHOWN])


def _mac(holder: object, name: str) -> str:
    return str(holder.get(name) or "") if isinstance(holder, dict) else ""


def _as_today(fields: list[str]) -> list[str]:
    """Return a tuple of a security group's log in the order of virtual networks' logs: ms, state D where denied."""
    if len(fields) < _SHORTEST:
        return fields
    seconds, src, dst, src_port, dst_port, protocol, direction, decision = fields[:8]
    # Version 1 has no state and no counters.
    state, *counters = fields[8:] or [_BEGIN]
    state = _DENIED if decision == _DENIED else state
    protocol = _PROTOCOLS.get(protocol, protocol)
    return [f"{seconds}000", src, dst, src_port, dst_port, protocol, direction, state, "", *counters]


def _line(mac: str, fields: list[str], told: dict[tuple[str, ...], int]) -> bytes:
    """Return a line; `told` holds when each flow was told of last, in ms."""
    if len(fields) < _SHORTEST or not fields[0].isdecimal() or len(fields[0]) > _LONGEST_TIME:
        return _encoded([mac, *fields])
    time, key = int(fields[0]), (mac, *fields[1:7])
    # What is told goes back to when it was last told, or as far as reports of a flow that goes on are apart.
    usual = _INTERVAL_MS if fields[7] == _CONTINUING else 0
    since = max(told.get(key, time - usual), time - _INTERVAL_MS)
    told[key] = time
    counters = [*fields[9:13], "", "", "", ""][:4]
    return _encoded([mac, str(since), *fields[:8], *(counter or "0" for counter in counters)])


def _encoded(fields: list[str]) -> bytes:
    # JSON may hold halves of characters, which no UTF-8 has: they must not cost the whole file.
    return ",".join(fields).encode(errors="replace")


def read_azure(raw: bytes, ends: Ends, skipped: frozenset[str] = frozenset()) -> Parsed:
    """Return the records of what `lines` made: one for each way of each flow.

    Args:
        raw: whole lines.
        ends: names the exporter of each end.
        skipped: MAC addresses of interfaces whose records do not count.
    """
    parts = [_read(piece, ends, skipped) for piece in pieces(raw)]
    return Parsed(
        pl.concat([part.frame for part in parts]),
        pl.concat([part.dead for part in parts]),
        denied=pl.concat([part.denied for part in parts]),
    )


def _read(raw: bytes, ends: Ends, skipped: frozenset[str]) -> Parsed:
    whole = lines_of(raw)
    fields = pl.col("line").str.split(",")
    has_shape = fields.list.len() == len(_FIELDS)
    wrong = whole.filter(~has_shape).with_columns(pl.lit(Reason.WRONG_FIELD_COUNT.value).alias("reason"))
    whole = whole.filter(has_shape)
    texts = whole.select(fields.list.get(place).alias(name) for place, name in enumerate(_FIELDS))
    if skipped:
        is_kept = ~texts.get_column(INTERFACE).is_in(list(skipped))
        whole, texts = whole.filter(is_kept), texts.filter(is_kept)
    is_out = pl.col(_DIRECTION) == _OUT
    there, why = _way(texts, (_SENT_BYTES, _SENT_PACKETS), is_back=False)
    back, why_back = _way(texts, (_BACK_BYTES, _BACK_PACKETS), is_back=True)
    reasons = why.zip_with(why.is_not_null(), why_back)
    letters = whole.with_columns(reasons.alias("reason")).filter(reasons.is_not_null())
    is_good = reasons.is_null()
    is_denied = texts.get_column(_STATE) == _DENIED
    # The beginning of a flow is told without numbers: it is no traffic.
    is_flow = is_good & ~is_denied & (texts.get_column(_STATE) != _BEGIN)
    senders = texts.select(INTERFACE, is_out.alias(IS_SENDER))
    receivers = texts.select(INTERFACE, (~is_out).alias(IS_SENDER))
    both = pl.concat(
        [
            there.hstack(senders).filter(is_flow),
            back.hstack(receivers).filter(is_flow & (back.get_column(records.PACKETS) > 0)),
        ]
    )
    named = ends.name(both.drop(records.EXPORTER)).select(list(records.RECORD_SCHEMA))
    return Parsed(named, pl.concat([wrong, letters]), denied=there.filter(is_good & is_denied))


def _way(texts: pl.DataFrame, counters: tuple[str, str], *, is_back: bool) -> tuple[pl.DataFrame, pl.Series]:
    """Return one way of flows as records, and why a row is none."""
    here = (records.SRC, records.DST, records.SRC_PORT, records.DST_PORT)
    there = (records.DST, records.SRC, records.DST_PORT, records.SRC_PORT) if is_back else here
    in_seconds = {
        column: (pl.col(name).cast(pl.Float64, strict=False) / 1000).cast(pl.String)
        for column, name in ((records.START, _SINCE), (records.END, _TIME))
    }
    return from_text(
        texts.select(
            *(pl.col(one).alias(name) for one, name in zip(there, here, strict=True)),
            records.PROTOCOL,
            pl.col(counters[0]).alias(records.BYTES),
            pl.col(counters[1]).alias(records.PACKETS),
            *(value.fill_null("?").alias(column) for column, value in in_seconds.items()),
        ),
        "UTC",
    )
