"""The frame that readers hand out: one row a flow record, as pmacct printed it, with types and units fixed.

Counters are as printed: not yet multiplied by the sampling rate, not yet pro-rated over windows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl

from ingest.flows.text_numbers import Words

EXPORTER = "exporter"
IFACE_IN = "iface_in"
IFACE_OUT = "iface_out"
SRC = "src"
DST = "dst"
SRC_PORT = "src_port"
DST_PORT = "dst_port"
PROTOCOL = "protocol"
TCP_FLAGS = "tcp_flags"
TOS = "tos"
SAMPLING_RATE = "sampling_rate"
START = "start"
END = "end"
ARRIVAL = "arrival"
SEQ = "seq"
VERSION = "version"
DOMAIN = "domain"
BYTES = "bytes"
PACKETS = "packets"
FLOWS = "flows"

RECORD_SCHEMA: dict[str, pl.DataType] = {
    EXPORTER: pl.String(),  # peer_ip_src, IPv4-mapped IPv6 folded; null if not printed
    IFACE_IN: pl.Int64(),  # SNMP ifIndex; 0 = pmacct had none; null if not printed
    IFACE_OUT: pl.Int64(),
    SRC: pl.String(),  # as printed: whether it is an address is for the classifier to say, once a distinct value
    DST: pl.String(),
    SRC_PORT: pl.Int32(),  # 0 where not printed
    DST_PORT: pl.Int32(),
    PROTOCOL: pl.Int16(),  # IANA number; null if not printed
    TCP_FLAGS: pl.Int32(),  # 0 where not printed
    TOS: pl.Int16(),  # 0 where not printed
    SAMPLING_RATE: pl.Int64(),  # 0 = none told, -1 = sampled by an unknown rate, 1 = nothing to do, N = multiply
    START: pl.Int64(),  # epoch ms UTC; null = missing
    END: pl.Int64(),
    ARRIVAL: pl.Int64(),
    SEQ: pl.Int64(),  # sequence number of the export datagram; null if not printed
    VERSION: pl.Int16(),  # 5, 9, 10, SFLOW or SFLOW_IP; null if not printed
    DOMAIN: pl.Int64(),  # NetFlow engine or source id, IPFIX observation domain, sFlow sub-agent
    BYTES: pl.Int64(),
    PACKETS: pl.Int64(),
    FLOWS: pl.Int64(),  # 1 where not printed
}
"""Columns of the record frame, in this order."""

OTHER_END = "-other-end"


def other_end(cloud: str) -> str:
    """Return what the exporter is called that stands for the far ends of what a cloud's exporter has."""
    return f"{cloud}{OTHER_END}"


SFLOW = 105
"""VERSION of sFlow records. pmacct prints 5 for NetFlow v5 and sFlow v5 alike; only sFlow lacks a start time."""

SFLOW_IP = 106
"""VERSION of sFlow records that count bytes of IP and not of frames (sampled_ipv4, sampled_ipv6): see `numbered`."""

MAX_COUNTER = 1 << 50
"""A record with more bytes or packets than this (1 PiB) is a broken counter, not a flow."""

MAX_FLOWS = (1 << 32) - 1
"""A record that claims to be more flow records than this is broken."""

MAX_BATCH = 1 << 56
"""Records read together with more bytes than this hold broken counters, though each may be possible by itself: some
hundred thousand records would have moved 72 PB. Those above SUSPECT_COUNTER are refused then. Whoever can forge an
exporter's packets could otherwise let sums of 64 bits run over, and hide real traffic behind negative totals."""

SUSPECT_COUNTER = 1 << 40
"""In such a batch, a record with more bytes or packets than this is refused: 1.1 TB in one flow record."""

MAX_TOTAL = 1 << 53
"""No total of a window passes this: 9 PB, in 10 s 900 TB/s. It is written instead, and counted. A thousand of them can
still be added in 64 bits, and each is exact where it becomes a float."""

SPOOL_COLUMNS: tuple[str, ...] = (
    "PEER_SRC_IP", "IN_IFACE", "OUT_IFACE", "SRC_IP", "DST_IP", "SRC_PORT", "DST_PORT", "TCP_FLAGS", "PROTOCOL", "TOS",
    "SAMPLING_RATE", "TIMESTAMP_START", "TIMESTAMP_END", "TIMESTAMP_ARRIVAL", "EXPORT_PROTO_SEQNO",
    "EXPORT_PROTO_VERSION", "EXPORT_PROTO_SYSID", "PACKETS", "FLOWS", "BYTES",
)  # fmt: skip
"""Columns of the CSV that nfacctd and sfacctd print under our configuration; the order is pmacct's own.

Times are epoch seconds with six decimals (``0.000000`` = missing), protocol and flags are decimal numbers.
"""

NUMBER_COLUMN = "TAG2"
"""What stands before them: a number that no other record of the daemon has, see `numbered`."""

FIRST_NUMBER = 10**12
"""Number of the first record. Smaller ones are tags of a site's own, not ours."""

FIRST_IP_NUMBER = 10**18
"""Number of sfacctd's first record without a frame."""

NUMBER = "number"
"""Column of those numbers while records are read; no column of RECORD_SCHEMA."""

_NUMBER_DIGITS = 20
"""Of the largest number of 64 bits."""

PRINTED_COLUMNS = (NUMBER_COLUMN, *SPOOL_COLUMNS)
"""The header, then. Files of another version or configuration lack the number."""

START_MARKER = "--START"
END_MARKER = "--END"
"""Lines that bracket a purge in CSV: ``--START (pid)--`` and ``--END (pid)--``."""


class Reason(StrEnum):
    """Why a line became a dead letter; the value is the tag in the store."""

    NOT_A_RECORD = "not_a_record"
    WRONG_FIELD_COUNT = "wrong_field_count"
    NO_HEADER = "no_header"
    MISSING_FIELD = "missing_field"
    BAD_COUNTER = "bad_counter"
    COUNTER_OUT_OF_RANGE = "counter_out_of_range"
    BAD_TIME = "bad_time"
    BAD_PROTOCOL = "bad_protocol"
    BAD_NUMBER = "bad_number"
    BAD_ADDRESS = "bad_address"
    LINE_TOO_LONG = "line_too_long"
    TRUNCATED = "truncated"
    AT_A_RELAY = "at_a_relay"
    """With Kafka: a relay has it, and knows why."""


DEAD_SCHEMA: dict[str, pl.DataType] = {"line": pl.String(), "reason": pl.String()}
"""Columns of a frame of dead letters: the line as it came (bad UTF-8 escaped) and a `Reason`."""


GAP_SCHEMA: dict[str, pl.DataType] = {"interface": pl.String(), START: pl.Int64(), "reason": pl.String()}
"""Columns of a frame of gaps: a cloud's interface, epoch ms, and why there are no records: a `Gap`."""


class Gap(StrEnum):
    """Why a cloud's interface has no records of an interval."""

    NODATA = "nodata"
    """Nothing went by."""
    SKIPDATA = "skipdata"
    """Something may have gone by: the provider could not record it."""


def is_number(field: str) -> bool:
    """Whether a field of a printed line holds one of our numbers."""
    return field.isdecimal() and len(field) <= _NUMBER_DIGITS and int(field) >= FIRST_NUMBER


def whole(column: pl.Series, missing: int = 0) -> npt.NDArray[np.int64]:
    """Return a column of whole numbers with something in place of what is missing."""
    # polars makes a query of nearly every operation on a column, which takes longer than the work itself.
    if column.null_count():
        column = column.cast(pl.Int64).zip_with(column.is_not_null(), pl.Series([missing]))
    return column.to_numpy().astype(np.int64, copy=False)


def is_one_of(numbers: npt.NDArray[np.integer], wanted: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Return which numbers are some: of few, `np.isin` takes several times as long."""
    found = np.zeros(len(numbers), np.bool_)
    for one in wanted:
        found |= numbers == one
    return found


def is_sflow(version: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which records are sFlow's, by their column VERSION."""
    return is_one_of(version, (SFLOW, SFLOW_IP))


def empty_records() -> pl.DataFrame:
    """Return a record frame without rows."""
    return pl.DataFrame(schema=RECORD_SCHEMA)


def empty_gaps() -> pl.DataFrame:
    """Return a frame of gaps without rows."""
    return pl.DataFrame(schema=GAP_SCHEMA)


def empty_dead() -> pl.DataFrame:
    """Return a frame of dead letters without rows."""
    return pl.DataFrame(schema=DEAD_SCHEMA)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a chunk of text held.

    Attributes:
        frame: the good records, with RECORD_SCHEMA, in the order of the text.
        dead: every line that is neither a record nor a marker, header or blank, with DEAD_SCHEMA.
        repeated: records that pmacct had read twice; they are in the frame once.
        is_numbered: whether each row is one record, whatever number of flows it stands for.
        first_number: the daemon's own number of the first record; None where records have none.
        exporters: the frame's column EXPORTER as numbers, where it was looked up already.
        ends: its columns SRC and DST likewise, with the same texts.
        denied: cloud logs: records of packets that were not let through, with RECORD_SCHEMA.
        gaps: cloud logs: what has no records, with GAP_SCHEMA.
    """

    frame: pl.DataFrame = field(default_factory=empty_records)
    dead: pl.DataFrame = field(default_factory=empty_dead)
    repeated: int = 0
    is_numbered: bool = False
    first_number: int | None = None
    exporters: Words | None = None
    ends: tuple[Words, Words] | None = None
    denied: pl.DataFrame = field(default_factory=empty_records)
    gaps: pl.DataFrame = field(default_factory=empty_gaps)

    @property
    def counts(self) -> dict[str, int]:
        """Dead letters by reason."""
        return dict(self.dead.group_by("reason").len().iter_rows()) if self.dead.height else {}
