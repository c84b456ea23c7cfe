"""From printed values to typed ones: polars expressions over columns of text, for every way in which pmacct prints them.

Each function takes the name of a String column and returns two expressions: the value, null where there is none, and
whether the text is there but says nothing we understand.
"""

from dataclasses import dataclass

import polars as pl

from ingest import records
from ingest.records import Reason

PROTOCOL_NUMBERS: dict[str, int] = {
    # pmacct's own table (pmacct-data.h); it prints other protocols as numbers.
    "ip": 0, "hopopt": 0, "icmp": 1, "igmp": 2, "ggp": 3, "ipencap": 4, "ipip": 4, "st": 5, "tcp": 6, "cbt": 7, "egp": 8,
    "igp": 9, "bbn-rcc-mon": 10, "nvp-ii": 11, "pup": 12, "argus": 13, "emcon": 14, "xnet": 15, "chaos": 16, "udp": 17,
    "mux": 18, "dcn-meas": 19, "hmp": 20, "prm": 21, "xns-idp": 22, "trunk-1": 23, "trunk-2": 24, "leaf-1": 25,
    "leaf-2": 26, "rdp": 27, "irtp": 28, "iso-tp4": 29, "netblt": 30, "mfe-nsp": 31, "merit-inp": 32, "sep": 33,
    "dccp": 33, "3pc": 34, "idpr": 35, "xtp": 36, "ddp": 37, "idpr-cmtp": 38, "tp++": 39, "il": 40, "ipv6": 41,
    "sdrp": 42, "ipv6-route": 43, "ipv6-frag": 44, "idrp": 45, "rsvp": 46, "gre": 47, "mhrp": 48, "bna": 49, "esp": 50,
    "ah": 51, "i-nlsp": 52, "swipe": 53, "narp": 54, "mobile": 55, "tlsp": 56, "skip": 57, "ipv6-icmp": 58,
    "icmp6": 58, "icmpv6": 58, "ipv6-nonxt": 59, "ipv6-opts": 60, "ospf": 89, "ospfigp": 89, "mtp": 92, "encap": 98,
    "pim": 103, "ipcomp": 108, "vrrp": 112, "l2tp": 115, "isis": 124, "sctp": 132, "fc": 133, "udplite": 136,
}  # fmt: skip
"""Protocol names that pmacct prints without ``print_num_protos``."""

_LAST_SECOND = 253_402_300_799.0  # end of the year 9999: clocks may be wrong, but a time is a time
_MISSING_TIME = r"^0000-00-00"


@dataclass(frozen=True, slots=True)
class Value:
    """A column's value and whether its text was unreadable."""

    value: pl.Expr
    is_bad: pl.Expr


def text(column: str) -> Value:
    """Return a text as it is; empty is missing."""
    value = pl.col(column)
    return Value(pl.when(value != "").then(value), pl.lit(False))


def integer(column: str, low: int, high: int) -> Value:
    """Return a whole number between `low` and `high`; empty is missing."""
    stripped = pl.col(column).str.strip_chars()
    number = stripped.cast(pl.Int64, strict=False)
    is_in_range = number.is_between(low, high)
    return Value(pl.when(is_in_range).then(number), (stripped != "") & is_in_range.fill_null(False).not_())


def protocol(column: str) -> Value:
    """Return an IP protocol number from a number or a name."""
    lower = pl.col(column).str.strip_chars().str.to_lowercase()
    number = lower.cast(pl.Int64, strict=False)
    named = lower.replace_strict(PROTOCOL_NUMBERS, default=None, return_dtype=pl.Int64)
    value = pl.coalesce(pl.when(number.is_between(0, 255)).then(number), named)
    return Value(value, (lower != "") & value.is_null())


def seconds_as_ms(seconds: pl.Expr) -> pl.Expr:
    """Return epoch seconds as milliseconds; 0 is pmacct's word for missing, and what is no time becomes null."""
    # nan compares as larger than all numbers, so it is out of range as well.
    is_time = (seconds > 0) & (seconds <= _LAST_SECOND)
    return pl.when(is_time).then((seconds * 1000).round()).cast(pl.Int64)


def time(column: str, time_zone: str) -> Value:
    """Return a time in epoch ms from epoch seconds, RFC 3339, or pmacct's date and time without a zone.

    Args:
        column: a String column.
        time_zone: zone of times that do not carry one.
    """
    stripped = pl.col(column).str.strip_chars()
    seconds = stripped.cast(pl.Float64, strict=False)
    spaced = stripped.str.replace("T", " ", literal=True).str.replace(r"[Zz]$", "+00:00")
    zoned = spaced.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%:z", strict=False, time_unit="us", time_zone="UTC")
    naive = spaced.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us")
    # Two local times are one in the hour after summer time: the earlier is as good as the later.
    placed = naive.dt.replace_time_zone(time_zone, ambiguous="earliest", non_existent="null")
    stamp = pl.coalesce(zoned.dt.timestamp("us"), placed.dt.timestamp("us")) / 1_000_000
    is_missing = (seconds == 0) | stripped.str.contains(_MISSING_TIME) | (stripped == "")
    value = seconds_as_ms(pl.coalesce(seconds, stamp))
    return Value(value, stripped.is_not_null() & is_missing.fill_null(False).not_() & value.is_null())


_RANGES: dict[str, tuple[int, int]] = {
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
    records.FLOWS: (0, records.MAX_COUNTER),
}
TIMES = (records.START, records.END, records.ARRIVAL)
TEXTS = (records.EXPORTER, records.SRC, records.DST)
COUNTERS = (records.BYTES, records.PACKETS, records.FLOWS)

REQUIRED = (records.SRC, records.DST, records.BYTES)
"""Without these a line is no flow record."""

_DEFAULTS: dict[str, int] = {
    records.SRC_PORT: 0,
    records.DST_PORT: 0,
    records.TCP_FLAGS: 0,
    records.TOS: 0,
    records.SAMPLING_RATE: 0,
    records.PACKETS: 0,
    records.FLOWS: 1,
}


def in_range(column: str) -> pl.Expr:
    """Whether every value of a numeric column is one that can stand in a record (null counts as such)."""
    low, high = _RANGES[column]
    value = pl.col(column)
    return (value.min() >= low) & (value.max() <= high)


def finish(frame: pl.DataFrame) -> pl.DataFrame:
    """Return typed columns as a record frame: defaults for what is missing, column order, sFlow told from NetFlow v5.

    Args:
        frame: any of the record columns: texts as String, numbers and times (ms) as integers.
    """
    columns = []
    present = set(frame.columns)
    for name, dtype in records.RECORD_SCHEMA.items():
        column = pl.col(name) if name in present else pl.lit(None, dtype)
        if name in _DEFAULTS:
            column = column.fill_null(_DEFAULTS[name]) if name in present else pl.lit(_DEFAULTS[name], dtype)
        elif name == records.EXPORTER and name in present:
            column = column.str.strip_prefix("::ffff:")
        elif name == records.VERSION and name in present and records.START in present:
            is_sflow = (column == 5) & pl.col(records.START).is_null()
            column = pl.when(is_sflow).then(records.SFLOW).otherwise(column)
        columns.append(column.cast(dtype).alias(name))
    return frame.select(columns)


def from_text(frame: pl.DataFrame, time_zone: str) -> tuple[pl.DataFrame, pl.Series]:
    """Return what text columns say: the record frame of all rows, and a Reason for each row that is none (else null).

    Args:
        frame: String columns named like record columns, in any number and order.
        time_zone: zone of times that do not carry one.
    """
    values: dict[str, Value] = {}
    for name in frame.columns:
        if name in TIMES:
            values[name] = time(name, time_zone)
        elif name in TEXTS:
            values[name] = text(name)
        elif name == records.PROTOCOL:
            values[name] = protocol(name)
        else:
            values[name] = integer(name, *_RANGES[name])
    reasons = []
    for name in COUNTERS:
        if name in values:
            is_number = pl.col(name).str.contains(r"^\s*[-+]?\d+\s*$")
            reasons.append(pl.when(values[name].is_bad & is_number).then(pl.lit(Reason.COUNTER_OUT_OF_RANGE.value)))
            reasons.append(pl.when(values[name].is_bad).then(pl.lit(Reason.BAD_COUNTER.value)))
    for name in REQUIRED:
        is_missing = values[name].value.is_null() if name in values else pl.lit(True)
        reasons.append(pl.when(is_missing).then(pl.lit(Reason.MISSING_FIELD.value)))
    for name, value in values.items():
        reason = {records.PROTOCOL: Reason.BAD_PROTOCOL, **dict.fromkeys(TIMES, Reason.BAD_TIME)}.get(
            name, Reason.BAD_NUMBER
        )
        if name not in COUNTERS:
            reasons.append(pl.when(value.is_bad).then(pl.lit(reason.value)))
    why = frame.select(pl.coalesce(reasons).alias("reason")).to_series()
    typed = frame.select(value.value.alias(name) for name, value in values.items())
    return finish(typed), why
