"""The format of a spool file: JSON or CSV, and the columns of a CSV.

pmacct prints a CSV file's header once, when it makes the file, so whoever reads on from an offset must still know it.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from ingest.read import records

_CSV_TITLES = {
    records.NUMBER_COLUMN: records.NUMBER,
    "PEER_SRC_IP": records.EXPORTER,
    "IN_IFACE": records.IFACE_IN,
    "OUT_IFACE": records.IFACE_OUT,
    "SRC_IP": records.SRC,
    "DST_IP": records.DST,
    "SRC_PORT": records.SRC_PORT,
    "DST_PORT": records.DST_PORT,
    "PROTOCOL": records.PROTOCOL,
    "TCP_FLAGS": records.TCP_FLAGS,
    "TOS": records.TOS,
    "SAMPLING_RATE": records.SAMPLING_RATE,
    "TIMESTAMP_START": records.START,
    "TIMESTAMP_END": records.END,
    "TIMESTAMP_ARRIVAL": records.ARRIVAL,
    "EXPORT_PROTO_SEQNO": records.SEQ,
    "EXPORT_PROTO_VERSION": records.VERSION,
    "EXPORT_PROTO_SYSID": records.DOMAIN,
    "PACKETS": records.PACKETS,
    "FLOWS": records.FLOWS,
    "BYTES": records.BYTES,
}
JSON_KEYS = {
    "peer_ip_src": records.EXPORTER,
    "iface_in": records.IFACE_IN,
    "iface_out": records.IFACE_OUT,
    "ip_src": records.SRC,
    "ip_dst": records.DST,
    "port_src": records.SRC_PORT,
    "port_dst": records.DST_PORT,
    "ip_proto": records.PROTOCOL,
    "tcp_flags": records.TCP_FLAGS,
    "tos": records.TOS,
    "sampling_rate": records.SAMPLING_RATE,
    "timestamp_start": records.START,
    "timestamp_end": records.END,
    "timestamp_arrival": records.ARRIVAL,
    "export_proto_seqno": records.SEQ,
    "export_proto_version": records.VERSION,
    "export_proto_sysid": records.DOMAIN,
    "packets": records.PACKETS,
    "flows": records.FLOWS,
    "bytes": records.BYTES,
}
"""Keys of pmacct's JSON and the record columns that they fill."""

BUCKET_KEY = "stamp_inserted"
"""Start of the bucket under ``print_history``, which only JSON has: stands in for a start that is not printed."""

_COUNTER_TITLE = b"PACKETS"
_SNIFF_BYTES = 1 << 16
_SNIFF_LINES = 20
_REQUIRED_TITLES = {"PACKETS", "BYTES"}
_TITLE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MARKER = re.compile(rb"--(?:START|END) \(\d+\)--")


class Kind(StrEnum):
    """What the print plugin was told to print (``print_output``)."""

    CSV = "csv"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Format:
    """How the lines of a file are to be read.

    Attributes:
        kind: CSV or JSON.
        header: the CSV header line in force, without its line end; empty if none was seen.
        time_zone: IANA zone of timestamps printed without one (pmacct without ``timestamps_utc`` prints local time).
    """

    kind: Kind = Kind.CSV
    header: str = ""
    time_zone: str = "UTC"

    @property
    def separator(self) -> str:
        """The character between CSV fields."""
        match = _TITLE.match(self.header)
        return self.header[match.end() : match.end() + 1] if match else ","

    @property
    def titles(self) -> tuple[str, ...]:
        """The CSV columns in the order of the file; those of our own configuration, unnumbered, where none was seen."""
        return tuple(self.header.split(self.separator)) if self.header else records.SPOOL_COLUMNS

    @property
    def columns(self) -> tuple[str, ...]:
        """The record column that each CSV column fills; empty for an unused one."""
        titles = self.titles
        # A title that stands there twice fills its column once: polars wants distinct names.
        first = {title: position for position, title in reversed(list(enumerate(titles)))}
        return tuple(_CSV_TITLES.get(title, "") if first[title] == i else "" for i, title in enumerate(titles))


OWN = Format(Kind.CSV, ",".join(records.SPOOL_COLUMNS))
"""What our own configuration makes nfacctd and sfacctd print, without the numbers of records."""

_NUMBERED = ",".join(records.PRINTED_COLUMNS)


def is_header(line: bytes) -> bool:
    """Whether a line is the header of a pmacct CSV file: it names both counters."""
    if _COUNTER_TITLE not in line:
        return False
    text = line.strip().decode("utf-8", "replace")
    first = _TITLE.match(text)
    return first is not None and set(text.split(text[first.end() : first.end() + 1] or None)) >= _REQUIRED_TITLES


def header_text(line: bytes) -> str:
    """Return a header line as `Format.header` holds it."""
    return line.strip().decode("utf-8", "replace")


def is_marker(line: bytes) -> bool:
    """Whether a line is a purge marker of the CSV output."""
    return _MARKER.fullmatch(line.rstrip(b"\r\n")) is not None


def headers_in(raw: bytes) -> list[tuple[int, int]]:
    """Return start and end (after its newline) of every header line in the text."""
    found: list[tuple[int, int]] = []
    # To look for one letter is ten times as quick as to look for a word, and no record of ours has a capital K.
    first = raw.find(b"K")
    if first < 0:
        return found
    last = raw.rfind(b"K") + len(_COUNTER_TITLE)
    position = raw.find(_COUNTER_TITLE, max(first - len(_COUNTER_TITLE), 0), last)
    while position >= 0:
        start = raw.rfind(b"\n", 0, position) + 1
        newline = raw.find(b"\n", position)
        end = len(raw) if newline < 0 else newline + 1
        if is_header(raw[start:end]):
            found.append((start, end))
        position = raw.find(_COUNTER_TITLE, end, last)
    return found


def sniff(raw: bytes, default: Format = OWN) -> Format:
    """Return the format of a file that begins with this text; without a header if none stands in its first lines.

    Args:
        raw: the first lines of the file.
        default: supplies the time zone, and the kind where the text does not say.
    """
    braces = others = plain = numbered = 0
    for line in raw[:_SNIFF_BYTES].splitlines()[:_SNIFF_LINES]:
        stripped = line.strip()
        if is_header(stripped):
            return replace(default, kind=Kind.CSV, header=header_text(stripped))
        # Garbage speaks for neither: a record of CSV has commas.
        is_object = stripped.startswith(b"{")
        braces += is_object
        others += not is_object and b"," in stripped
        fields = stripped.count(b",") + 1
        plain += fields == len(records.SPOOL_COLUMNS)
        numbered += fields == len(records.PRINTED_COLUMNS) and records.is_number(_first(stripped))
    kind = Kind.JSON if braces and braces >= others else Kind.CSV if others else default.kind
    is_numbered = kind is Kind.CSV and numbered > plain
    return replace(default, kind=kind, header=_NUMBERED if is_numbered else "")


def _first(line: bytes) -> str:
    return line.partition(b",")[0].decode("utf-8", "replace")


def format_after(raw: bytes, fmt: Format) -> Format:
    """Return the format that holds after this text: another one if a header stands in it."""
    found = [] if fmt.kind is Kind.JSON else headers_in(raw)
    return replace(fmt, header=header_text(raw[slice(*found[-1])])) if found else fmt
