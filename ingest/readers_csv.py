"""Read the CSV of pmacct's print plugin.

A chunk that holds nothing but good records is parsed by polars straight into typed columns. Anything unexpected in it
sends it down the tolerant path, which reads all fields as text and judges each row by itself.
"""

from dataclasses import replace
from functools import lru_cache

import polars as pl

from ingest import records
from ingest.readers_format import Format, header_text, headers_in, is_header, is_marker
from ingest.readers_values import (
    COUNTERS,
    REQUIRED,
    TEXTS,
    TIMES,
    finish,
    from_text,
    in_range,
    protocol,
    seconds_as_ms,
    time,
)
from ingest.records import Parsed, Reason

_MARKER_PREFIX = "--"
_MARKER = r"^--(?:START|END) \(\d+\)--$"


def read_csv(raw: bytes, fmt: Format) -> Parsed:
    """Return the records of a chunk of CSV, and the lines that are none.

    Args:
        raw: whole lines; the last one may lack its newline. Headers may stand anywhere, and hold from there on.
        fmt: the format in force before the chunk.
    """
    body, fmt = _after_preamble(raw, fmt)
    frame = _read_clean(body, fmt)
    if frame is not None:
        return Parsed(frame)
    parts = []
    position = 0
    for start, end in [*headers_in(body), (len(body), len(body))]:
        parts.append(_read_segment(body[position:start], fmt))
        if end > start:
            fmt = replace(fmt, header=header_text(body[start:end]))
        position = end
    return Parsed(pl.concat([part.frame for part in parts]), pl.concat([part.dead for part in parts]))


def _after_preamble(raw: bytes, fmt: Format) -> tuple[bytes, Format]:
    """Return the text after the markers and headers that it begins with, and the format that they leave in force."""
    position = 0
    while position < len(raw):
        newline = raw.find(b"\n", position)
        end = len(raw) if newline < 0 else newline + 1
        line = raw[position:end]
        if is_header(line):
            fmt = replace(fmt, header=header_text(line))
        elif not is_marker(line):
            break
        position = end
    return raw[position:] if position else raw, fmt


def _read_segment(raw: bytes, fmt: Format) -> Parsed:
    """Return the records of text under one header."""
    frame = _read_clean(raw, fmt)
    return _read_any(raw, fmt) if frame is None else Parsed(frame)


# -- the fast path -------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _layout(fmt: Format) -> tuple[str, ...]:
    """Return a distinct name for every CSV column: the record column where it fills one."""
    return tuple(name or f"_{i}" for i, name in enumerate(fmt.columns))


def _read_clean(raw: bytes, fmt: Format) -> pl.DataFrame | None:
    """Return the records if every line is a good one or a marker; None if anything at all is unexpected."""
    if not raw:
        return records.empty_records()
    names = _layout(fmt)
    if not set(REQUIRED) <= set(names) or len(fmt.separator) != 1:
        return None
    schema = _clean_schema(names, _first_record(raw).split(fmt.separator))
    wanted = [i for i, name in enumerate(names) if not name.startswith("_")]
    try:
        frame = pl.read_csv(
            raw,
            has_header=False,
            separator=fmt.separator,
            quote_char=None,
            comment_prefix=_MARKER_PREFIX,
            schema=schema,
            columns=wanted if len(wanted) < len(names) else None,
        )
    except pl.exceptions.PolarsError:
        return None
    # Rows and markers must add up to lines: polars says nothing of a comment or a blank line that it skips.
    lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
    if frame.height + _markers(raw, lines - frame.height) != lines:
        return None
    if frame.height and not _is_clean(frame):
        return None
    converted = []
    for name in frame.columns:
        if schema[name] == pl.String() and name in TIMES:
            converted.append((name, time(name, fmt.time_zone)))
        elif schema[name] == pl.String() and name == records.PROTOCOL:
            converted.append((name, protocol(name)))
    if converted:
        if frame.select(pl.any_horizontal(value.is_bad.any() for _, value in converted)).item():
            return None
        frame = frame.with_columns(value.value.alias(name) for name, value in converted)
    frame = frame.with_columns(
        seconds_as_ms(pl.col(name)).alias(name) for name in TIMES if schema.get(name) == pl.Float64()
    )
    return finish(frame)


def _first_record(raw: bytes) -> str:
    """Return the first line that is no marker."""
    position = 0
    while True:
        newline = raw.find(b"\n", position)
        line = raw[position : newline if newline >= 0 else len(raw)]
        if newline < 0 or not line.startswith(_MARKER_PREFIX.encode()):
            return line.rstrip(b"\r").decode("utf-8", "replace")
        position = newline + 1


def _clean_schema(names: tuple[str, ...], sample: list[str]) -> dict[str, pl.DataType]:
    """Return the types to parse into; the sample record tells numbers from words for times and protocol."""
    schema: dict[str, pl.DataType] = {}
    for i, name in enumerate(names):
        value = sample[i] if i < len(sample) else ""
        if name in TEXTS or name.startswith("_"):
            schema[name] = pl.String()
        elif name in TIMES:
            schema[name] = pl.Float64() if value.replace(".", "", 1).isdecimal() else pl.String()
        elif name == records.PROTOCOL and not value.isdecimal():
            schema[name] = pl.String()
        else:
            # Ports and protocol straight into their small types: the parser refuses what does not fit.
            schema[name] = records.RECORD_SCHEMA[name]
    return schema


def _markers(raw: bytes, expected: int) -> int:
    """Return how many markers the text holds, by their parentheses, which no good record has; -1 if there are others.

    Args:
        raw: the text.
        expected: stop counting beyond this many.
    """
    count = 0
    position = raw.find(b"(")
    while position >= 0 and count <= expected:
        start = raw.rfind(b"\n", 0, position) + 1
        newline = raw.find(b"\n", position)
        end = len(raw) if newline < 0 else newline
        if not is_marker(raw[start:end]):
            return -1
        count += 1
        position = raw.find(b"(", end)
    return count


def _is_clean(frame: pl.DataFrame) -> bool:
    """Whether no value is missing or out of range."""
    if sum(frame.null_count().row(0)):
        return False
    checks = []
    for name, dtype in frame.schema.items():
        if dtype.is_integer():
            checks.append(in_range(name))
        elif dtype == pl.Float64():
            # Missing times are zeros here; nan is larger than every number.
            checks.append((pl.col(name).min() >= 0) & (pl.col(name).max() < 253_402_300_800.0))
    return bool(frame.select(pl.all_horizontal(checks)).item())


# -- the tolerant path ---------------------------------------------------------------------------------


def _read_any(raw: bytes, fmt: Format) -> Parsed:
    """Return what can be read of text under one header, row by row."""
    text = raw.decode("utf-8", "backslashreplace")
    lines = (
        pl.select(pl.lit(text, pl.String()).str.split("\n").explode().alias("line"))
        .with_columns(pl.col("line").str.strip_chars_end("\r"))
        .filter((pl.col("line") != "") & pl.col("line").str.contains(_MARKER).not_())
    )
    names = _layout(fmt)
    separator = fmt.separator
    has_shape = pl.col("line").str.count_matches(separator, literal=True) == len(names) - 1
    odd = lines.filter(has_shape.not_())
    shaped = lines.filter(has_shape)
    wrong = Reason.WRONG_FIELD_COUNT if fmt.header else Reason.NO_HEADER
    dead = [odd.with_columns(pl.lit(wrong.value).alias("reason"))]
    frame = records.empty_records()
    if shaped.height:
        fields = shaped.select(
            pl.col("line").str.split_exact(separator, len(names) - 1).struct.rename_fields(list(names)).alias("fields")
        ).unnest("fields")
        wanted = fields.select(name for name in names if not name.startswith("_"))
        every, why = from_text(wanted, fmt.time_zone)
        is_good = why.is_null()
        frame = every.filter(is_good)
        dead.append(shaped.with_columns(why.alias("reason")).filter(~is_good))
    return Parsed(frame, pl.concat(dead))
