"""Read what sfacctd prints of sFlow's interface counters (``sfacctd_counter_file``): JSON, a line each sample."""

import json

import polars as pl

from ingest.read.readers_values import lines_of, time
from ingest.read.records import DEAD_SCHEMA, Parsed, Reason

EXPORTER = "exporter"
INDEX = "index"
MOMENT = "moment"
SEQ = "seq"
SPEED = "if_speed"
IN_OCTETS = "in_octets"
OUT_OCTETS = "out_octets"
IN_ERRORS = "errors_in"
OUT_ERRORS = "errors_out"
IN_DISCARDS = "discards_in"
OUT_DISCARDS = "discards_out"

SAMPLE_SCHEMA: dict[str, pl.DataType] = {
    EXPORTER: pl.String(),  # the agent's address
    INDEX: pl.Int64(),  # ifIndex
    MOMENT: pl.Int64(),  # arrival, epoch ms
    SEQ: pl.Int64(),  # number of the sample, of this interface
    SPEED: pl.Int64(),  # bits per second, as the agent says; null if it does not
    # Running totals since the interface came up; null where the agent does not count.
    IN_OCTETS: pl.Int64(),
    OUT_OCTETS: pl.Int64(),
    IN_ERRORS: pl.Int64(),
    OUT_ERRORS: pl.Int64(),
    IN_DISCARDS: pl.Int64(),
    OUT_DISCARDS: pl.Int64(),
}
"""Columns of a frame of counter samples."""

COUNTERS_64 = (IN_OCTETS, OUT_OCTETS)
COUNTERS_32 = (IN_ERRORS, OUT_ERRORS, IN_DISCARDS, OUT_DISCARDS)

_KEYS = {
    "peer_ip_src": EXPORTER,
    "ifIndex": INDEX,
    "timestamp": MOMENT,
    "sflow_cnt_seq": SEQ,
    "ifSpeed": SPEED,
    "ifInOctets": IN_OCTETS,
    "ifOutOctets": OUT_OCTETS,
    "ifInErrors": IN_ERRORS,
    "ifOutErrors": OUT_ERRORS,
    "ifInDiscards": IN_DISCARDS,
    "ifOutDiscards": OUT_DISCARDS,
}
_TYPE, _GENERIC = "sf_cnt_type", "sflow_cnt_generic"
_MOMENT_KEY = "timestamp"
_TEXTS = ("peer_ip_src", _MOMENT_KEY)
_PARSED: dict[str, pl.DataType] = {
    _TYPE: pl.String(),
    **{key: pl.String() if key in _TEXTS else pl.Int64() for key in _KEYS},
}
_NOT_COUNTED_32 = (1 << 32) - 1
"""sFlow v5: a counter that the agent does not have is all ones. sfacctd prints the 64-bit ones as -1."""

_MAX_LINE = 1 << 16
"""A parser goes as deep as a line nests: what is too long to be a sample is not tried."""


def read_counter_samples(raw: bytes, time_zone: str = "UTC") -> Parsed:
    """Return the generic interface samples in the text (SAMPLE_SCHEMA), and the lines that make no sense.

    Other counters that an agent sends (Ethernet's, VLANs', a host's) and the lines that begin an agent's log are no
    samples, and no dead letters either.

    Args:
        raw: whole lines.
        time_zone: zone of times printed without one.
    """
    try:
        found = pl.read_ndjson(raw, schema=_PARSED) if raw.strip() else pl.DataFrame(schema=_PARSED)
    except pl.exceptions.PolarsError:
        return _read_each(raw, time_zone)
    samples, is_whole = _samples(found.filter(pl.col(_TYPE) == _GENERIC), time_zone)
    return Parsed(samples) if is_whole.all() else _read_each(raw, time_zone)


def _samples(generic: pl.DataFrame, time_zone: str) -> tuple[pl.DataFrame, pl.Series]:
    """Return parsed lines as samples, null where nothing is counted, and which of them have all that a sample needs."""
    named = generic.rename(_KEYS).with_columns(
        time(generic.get_column(_MOMENT_KEY), time_zone).value.alias(MOMENT),
        pl.when(pl.col(SPEED) > 0).then(pl.col(SPEED)).alias(SPEED),
        *(pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name) for name in COUNTERS_64),
        *(
            pl.when((pl.col(name) >= 0) & (pl.col(name) < _NOT_COUNTED_32)).then(pl.col(name)).alias(name)
            for name in COUNTERS_32
        ),
    )
    needed = (pl.col(name).is_not_null() for name in (EXPORTER, INDEX, MOMENT, SEQ))
    return named.select(*SAMPLE_SCHEMA), named.select(pl.all_horizontal(needed).alias("whole")).to_series()


def _read_each(raw: bytes, time_zone: str) -> Parsed:
    """Return what can be read, line by line."""
    rows: list[dict[str, str | int | None]] = []
    texts: list[str] = []
    dead: list[tuple[str, str]] = []
    for line in lines_of(raw).get_column("line").to_list():
        document = _object(line)
        if document is None:
            dead.append((line, Reason.NOT_A_RECORD.value))
        elif document.get(_TYPE) == _GENERIC:
            rows.append({key: _value(document.get(key), dtype) for key, dtype in _PARSED.items()})
            texts.append(line)
    samples, is_whole = _samples(pl.DataFrame(rows, schema=_PARSED), time_zone)
    parts = pl.Series("line", texts, pl.String).filter(~is_whole).to_list()
    dead += [(line, Reason.MISSING_FIELD.value) for line in parts]
    return Parsed(samples.filter(is_whole), pl.DataFrame(dead, schema=DEAD_SCHEMA, orient="row"))


def _object(line: str) -> dict[str, object] | None:
    """Return the JSON object in a line; None if it holds none. Blank lines were left out before."""
    if len(line) > _MAX_LINE:
        return None
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _value(value: object, dtype: pl.DataType) -> str | int | None:
    """Return a value of the type that it should have; None where it has another."""
    if dtype == pl.String():
        return value if isinstance(value, str) else None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return value
    return None
