"""Read what pmacct's print plugin wrote: chunks of text in, record frames and dead letters out. Nothing here raises."""

from ingest.readers_csv import read_csv
from ingest.readers_format import OWN, Format, Kind, format_after, sniff
from ingest.readers_json import read_json
from ingest.records import Parsed

__all__ = ["OWN", "Format", "Kind", "Parsed", "format_after", "read_chunk", "sniff"]


def read_chunk(raw: bytes, fmt: Format = OWN) -> Parsed:
    """Return the records of a chunk, and every line that is neither record nor marker, header or blank.

    Args:
        raw: whole lines of one file; only the last line of a file may lack its newline.
        fmt: the format in force where the chunk begins (`sniff` at a file's start, `format_after` from there on).
    """
    return read_json(raw, fmt) if fmt.kind is Kind.JSON else read_csv(raw, fmt)
