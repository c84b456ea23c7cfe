"""From printed values to typed ones, for every way in which pmacct prints them. A column at a time, never a row."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from ingest.read import records
from ingest.read.records import Reason

PROTOCOL_NUMBERS: dict[str, int] = {
    "icmp": 1, "igmp": 2, "ggp": 3, "ipencap": 4, "tcp": 6, "egp": 8, "igp": 9, "udp": 17, "mux": 18, "ipv6": 41,
    "ipv6-route": 43, "ipv6-frag": 44, "rsvp": 46, "gre": 47, "esp": 50, "ah": 51, "mobile": 55, "tlsp": 56,
    "ipv6-icmp": 58, "ipv6-nonxt": 59, "ipv6-opts": 60, "iso-ip": 80, "vines": 83, "eigrp": 88, "ospf": 89, "larp": 91,
    "ax.25": 93, "ipip": 94, "encap": 98, "pnni": 102, "pim": 103, "ipcomp": 108, "ipx-in-ip": 111, "vrrp": 112,
    "l2tp": 115, "isis": 124, "sctp": 132, "fc": 133,
}  # fmt: skip
"""Every protocol name that nfacctd 1.7.7 prints without ``print_num_protos``, in lower case; the rest are numbers."""

END_OF_TIME = 253_402_300_800.0
"""Epoch seconds of the year 10000: clocks may be wrong, but a time is a time."""


_PIECE_BYTES = 1 << 20
_NEWLINE = ord("\n")


def line_count(raw: bytes) -> int:
    """Return the number of lines; the last one may lack its newline."""
    text = np.frombuffer(raw, np.uint8)
    # In blocks that stay in the processor's cache: `bytes.count` takes ten times as long.
    blocks = (text[start : start + _PIECE_BYTES] for start in range(0, len(text), _PIECE_BYTES))
    return sum(int(np.count_nonzero(block == _NEWLINE)) for block in blocks) + (not raw.endswith(b"\n"))


def pieces(raw: bytes) -> Iterator[bytes]:
    """Cut a chunk at line ends: read as text, a chunk of tiny lines takes a hundred times its own size."""
    start = 0
    while len(raw) - start > _PIECE_BYTES:
        cut = raw.find(b"\n", start + _PIECE_BYTES) + 1 or len(raw)
        yield raw[start:cut]
        start = cut
    yield raw[start:]


def lines_of(raw: bytes) -> pl.DataFrame:
    """Return the lines that are not blank, without line ends, what is not UTF-8 escaped, in a column `line`."""
    # The parser of CSV is the quickest way to lines, given a separator that does not occur.
    text = raw.replace(b"\x01", b"\\x01").decode("utf-8", "backslashreplace").encode()
    if not text.strip(b"\r\n"):
        return pl.DataFrame(schema={"line": pl.String()})
    lines = pl.read_csv(text, has_header=False, separator="\x01", quote_char=None, schema={"line": pl.String()})
    return lines.with_columns(pl.col("line").str.strip_chars_end("\r")).filter(pl.col("line") != "")


@dataclass(frozen=True, slots=True)
class Value:
    """A column's values, null where there is none, and whether the text is there but says nothing we understand."""

    value: pl.Series
    is_bad: pl.Series


def _unread(texts: pl.Series, is_missing: pl.Series) -> pl.Series:
    """Whether a text says something, where it gave no value."""
    is_text = is_missing & texts.is_not_null()
    # Few are looked at once more, as a rule none.
    return is_text & (texts.str.strip_chars() != "") if is_text.any() else is_text


def _between(number: pl.Series, low: int, high: int) -> pl.Series:
    """Return numbers without those beyond these bounds."""
    is_outside = number.is_between(low, high).not_()
    return number.set(is_outside, None) if is_outside.any() else number


def text(texts: pl.Series) -> Value:
    """Return texts as they are; empty is missing."""
    value = texts.set(texts == "", None)
    return Value(value, pl.repeat(False, len(texts), dtype=pl.Boolean, eager=True))


def integer(texts: pl.Series, low: int, high: int) -> Value:
    """Return whole numbers between `low` and `high`; empty is missing."""
    number = texts.cast(pl.Int64, strict=False)
    if number.null_count() > texts.null_count():
        number = texts.str.strip_chars().cast(pl.Int64, strict=False)
    number = _between(number, low, high)
    return Value(number, _unread(texts, number.is_null()))


def protocol(texts: pl.Series) -> Value:
    """Return IP protocol numbers from numbers or names."""
    number = texts.cast(pl.Int64, strict=False)
    if number.null_count() > texts.null_count():
        words = texts.str.strip_chars().str.to_lowercase()
        named = words.replace_strict(PROTOCOL_NUMBERS, default=None, return_dtype=pl.Int64)
        number = pl.select(pl.coalesce(words.cast(pl.Int64, strict=False), named)).to_series()
    number = _between(number, 0, 255)
    return Value(number, _unread(texts, number.is_null()))


def seconds_as_ms(seconds: pl.Series) -> pl.Series:
    """Return epoch seconds as milliseconds; 0 is pmacct's word for missing, and what is no time becomes null."""
    # In numpy, which takes a third of the time. What is null is nan there, and nan is in no range.
    values = seconds.to_numpy()
    is_time = (values > 0) & (values < END_OF_TIME)
    if is_time.all():
        return pl.Series(seconds.name, np.rint(values * 1000).astype(np.int64))
    milliseconds = np.rint(np.where(is_time, values, 0) * 1000).astype(np.int64)
    return pl.Series(seconds.name, milliseconds).set(pl.Series(~is_time), None)


def time(texts: pl.Series, time_zone: str) -> Value:
    """Return times in epoch ms from epoch seconds, RFC 3339, or pmacct's date and time without a zone.

    Args:
        texts: a String column.
        time_zone: zone of times that do not carry one.
    """
    seconds = texts.cast(pl.Float64, strict=False)
    if seconds.null_count() > texts.null_count():
        seconds = _dates_in_seconds(texts.str.strip_chars(), time_zone)
    value = seconds_as_ms(seconds)
    return Value(value, _unread(texts, value.is_null() & (seconds != 0).fill_null(True)))


def _dates_in_seconds(texts: pl.Series, time_zone: str) -> pl.Series:
    """Return epoch seconds of numbers and dates; 0 for pmacct's date of zeros."""
    found = [texts.cast(pl.Float64, strict=False)]
    found.append(pl.select(pl.when(texts.str.starts_with("0000-00-00")).then(0.0)).to_series())
    naive = texts.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us")
    # Two local times are one in the hour after summer time: the earlier is as good as the later.
    placed = naive.dt.replace_time_zone(time_zone, ambiguous="earliest", non_existent="null")
    found.append(placed.dt.timestamp("us") / 1_000_000)
    seconds = pl.select(pl.coalesce(found)).to_series()
    if seconds.null_count() > texts.null_count():
        spaced = texts.str.replace("T", " ", literal=True).str.replace(r"[Zz]$", "+00:00")
        zoned = spaced.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%:z", strict=False, time_unit="us", time_zone="UTC")
        seconds = pl.select(pl.coalesce(seconds, zoned.dt.timestamp("us") / 1_000_000)).to_series()
    return seconds


RANGES: dict[str, tuple[int, int]] = {
    records.IFACE_IN: (0, 2**32 - 1),
    records.IFACE_OUT: (0, 2**32 - 1),
    records.SRC_PORT: (0, 65535),
    records.DST_PORT: (0, 65535),
    records.PROTOCOL: (0, 255),
    records.TCP_FLAGS: (0, 65535),
    records.TOS: (0, 255),
    records.SAMPLING_RATE: (0, 2**32 - 1),
    records.SEQ: (0, 2**32 - 1),
    records.VERSION: (0, 32767),
    records.DOMAIN: (0, 2**32 - 1),
    records.BYTES: (0, records.MAX_COUNTER),
    records.PACKETS: (0, records.MAX_COUNTER),
    records.FLOWS: (0, records.MAX_FLOWS),
    records.NUMBER: (0, 2**63 - 1),
}
TIMES = (records.START, records.END, records.ARRIVAL)
TEXTS = (records.EXPORTER, records.SRC, records.DST)
COUNTERS = (records.BYTES, records.PACKETS, records.FLOWS)

REQUIRED = (records.SRC, records.DST, records.BYTES)
"""Without these a line is no flow record."""

_REASONS = {records.PROTOCOL: Reason.BAD_PROTOCOL, **dict.fromkeys(TIMES, Reason.BAD_TIME)}

MAPPED = "::ffff:"

DEFAULTS: dict[str, int] = {
    records.SRC_PORT: 0,
    records.DST_PORT: 0,
    records.TCP_FLAGS: 0,
    records.TOS: 0,
    records.SAMPLING_RATE: 0,
    records.PACKETS: 0,
    records.FLOWS: 1,
}


def is_outside(name: str) -> pl.Expr:
    """Whether a typed value is one that cannot stand in a record; null if there is none.

    Times are epoch seconds here.
    """
    value = pl.col(name)
    if name in TIMES:
        return (value >= 0).not_() | (value >= END_OF_TIME)
    low, high = RANGES[name]
    return (value < low) | (value > high)


def is_any_outside(column: pl.Series) -> bool:
    """Whether a typed column holds a value that `is_outside`; only its ends are compared, which is quicker."""
    values = (column.fill_null(0) if column.null_count() else column).to_numpy()
    if column.name in TIMES:
        # Of a column with nan both ends are nan, which is in no range.
        return not (values.min(initial=0) >= 0 and values.max(initial=0) < END_OF_TIME)
    # What is negative is large without its sign, and no range begins below 0.
    return int(values.view(f"u{values.itemsize}").max(initial=0)) > RANGES[column.name][1]


def finish(frame: pl.DataFrame) -> pl.DataFrame:
    """Return typed columns as a record frame: defaults for what is missing, column order, sFlow told from NetFlow v5.

    Args:
        frame: any of the record columns: texts as String, numbers as integers, times as integer ms or float seconds.
    """
    columns = []
    present = frame.schema
    for name, dtype in records.RECORD_SCHEMA.items():
        column = pl.col(name) if name in present else pl.lit(None, dtype)
        if name in DEFAULTS:
            column = column.fill_null(DEFAULTS[name]) if name in present else pl.lit(DEFAULTS[name], dtype)
        elif name == records.EXPORTER and name in present and _has_mapped(frame):
            column = column.str.strip_prefix(MAPPED)
        elif name == records.VERSION and name in present and records.START in present:
            start = pl.col(records.START)
            sflow = pl.lit(records.SFLOW)
            if records.NUMBER in present:
                is_ip = pl.col(records.NUMBER) >= records.FIRST_IP_NUMBER
                sflow = pl.when(is_ip).then(records.SFLOW_IP).otherwise(sflow)
            column = pl.when((column == 5) & (start.is_null() | (start == 0))).then(sflow).otherwise(column)
        elif present.get(name) == pl.Float64():
            column = pl.lit(seconds_as_ms(frame.get_column(name)))
        columns.append(column.cast(dtype).alias(name))
    return frame.select(columns)


def _has_mapped(frame: pl.DataFrame) -> bool:
    """Whether there are IPv4-mapped exporters: to look is quicker than to copy the others."""
    return bool(frame.get_column(records.EXPORTER).str.starts_with(MAPPED).any())


def from_text(frame: pl.DataFrame, time_zone: str) -> tuple[pl.DataFrame, pl.Series]:
    """Return what texts say: the record frame of all rows, and a Reason for each row that is none (else null).

    Args:
        frame: String columns named like record columns, in any number and order.
        time_zone: zone of times that do not carry one.
    """
    values = {name: _value(frame.get_column(name), time_zone) for name in frame.columns}
    reasons = []
    for name in COUNTERS:
        if name in values:
            is_bad = values[name].is_bad
            is_number = frame.get_column(name).str.contains(r"^\s*[-+]?\d+\s*$")
            reasons.append(pl.when(is_bad & is_number).then(pl.lit(Reason.COUNTER_OUT_OF_RANGE.value)))
            reasons.append(pl.when(is_bad).then(pl.lit(Reason.BAD_COUNTER.value)))
    for name in REQUIRED:
        is_missing = pl.lit(values[name].value.is_null()) if name in values else pl.lit(True)
        reasons.append(pl.when(is_missing).then(pl.lit(Reason.MISSING_FIELD.value)))
    for name, value in values.items():
        # A tag of a site's own may be anything.
        if name not in (*COUNTERS, records.NUMBER):
            reasons.append(pl.when(value.is_bad).then(pl.lit(_REASONS.get(name, Reason.BAD_NUMBER).value)))
    why = frame.select(pl.coalesce(reasons).alias("reason")).to_series()
    typed = pl.DataFrame({name: value.value for name, value in values.items()})
    return finish(typed), why


def _value(texts: pl.Series, time_zone: str) -> Value:
    """Return what the texts of a record column say."""
    if texts.name in TIMES:
        return time(texts, time_zone)
    if texts.name in TEXTS:
        return text(texts)
    if texts.name == records.PROTOCOL:
        return protocol(texts)
    return integer(texts, *RANGES[texts.name])
