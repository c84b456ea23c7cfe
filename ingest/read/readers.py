"""Read what pmacct's print plugin wrote: chunks of text in, record frames and dead letters out. Nothing here raises."""

from dataclasses import replace

import polars as pl

from ingest.read.numbered import Habits
from ingest.read.readers_csv import read_csv
from ingest.read.readers_format import OWN, Format, Kind, format_after, is_header, is_marker, sniff
from ingest.read.readers_json import read_json
from ingest.read.records import DEAD_SCHEMA, EXPORTER, Parsed, Reason

__all__ = ["OWN", "Format", "Kind", "Parsed", "format_after", "read_chunk", "sniff"]


def read_chunk(raw: bytes, fmt: Format = OWN, habits: Habits | None = None) -> Parsed:
    """Return the records of a chunk, and every line that is neither record nor marker, header or blank.

    Args:
        raw: whole lines of one file; only the last line of a file may lack its newline.
        fmt: the format in force where the chunk begins (`sniff` at a file's start, `format_after` from there on).
        habits: of exporters, by what was read before; it learns of this. By default nothing was.
    """
    habits = Habits() if habits is None else habits
    if fmt.kind is Kind.JSON:
        parsed = read_json(raw, fmt)
        exporters = parsed.exporters or habits.vocabulary.words(parsed.frame.get_column(EXPORTER))
        return replace(parsed, exporters=exporters)
    whole, cut_off = _whole_lines(raw)
    parsed = read_csv(whole, fmt, habits)
    if not cut_off:
        return parsed
    letter = pl.DataFrame(
        {"line": [cut_off.decode("utf-8", "backslashreplace")], "reason": [Reason.TRUNCATED.value]}, schema=DEAD_SCHEMA
    )
    return replace(parsed, dead=pl.concat([parsed.dead, letter]))


def _whole_lines(raw: bytes) -> tuple[bytes, bytes]:
    """Return the CSV lines that are whole, and a last record without its newline.

    pmacct ends every line. One that does not end was cut, and where the cut is in the last column, the counter that is
    left is a number like any other: counting it would be wrong without a trace.
    """
    cut = raw.rfind(b"\n") + 1
    rest = raw[cut:].strip()
    if not rest or is_header(rest) or is_marker(rest):
        return raw, b""
    return raw[:cut], rest
