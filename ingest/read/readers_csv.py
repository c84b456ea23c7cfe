"""Read the CSV of pmacct's print plugin.

A chunk that holds nothing but good records is read by `quick_records`, or parsed by polars straight into typed columns.
Anything unexpected in it sends it down the tolerant path, which reads all fields as text and judges each row by itself.
"""

from dataclasses import replace
from functools import lru_cache

import polars as pl

from ingest.read import quick_records, records
from ingest.read.numbered import Habits, first_number, once_each
from ingest.read.readers_format import Format, header_text, headers_in, is_header, is_marker
from ingest.read.readers_values import (
    REQUIRED,
    TEXTS,
    TIMES,
    finish,
    from_text,
    is_any_outside,
    is_outside,
    line_count,
    lines_of,
    pieces,
    protocol,
    time,
)
from ingest.read.records import Parsed, Reason

_MAX_RUNS = 100
"""Changes of the header in a chunk beyond which the order of its records is given up."""
_MARKER = r"^--(?:START|END) \(\d+\)--$"


def read_csv(raw: bytes, fmt: Format, habits: Habits | None = None) -> Parsed:
    """Return the records of a chunk of CSV, and the lines that are none.

    Args:
        raw: whole lines; the last one may lack its newline. Headers may stand anywhere, and hold from there on.
        fmt: the format in force before the chunk.
        habits: of what was read before this; by default nothing was.
    """
    habits = Habits() if habits is None else habits
    preamble, begin = _after_preamble(raw, fmt)
    text = raw[begin:]
    parsed = quick_records.read_csv(text, _layout(preamble), preamble.separator)
    if parsed is None and (frame := _read_clean(text, preamble)) is not None:
        parsed = Parsed(frame)
    if parsed is not None:
        return _once_each(parsed, text, preamble, habits)
    return _joined(
        [_once_each(_read_segment(text, under), text, under, habits) for under, text in _by_header(raw, fmt)]
    )


def _joined(parts: list[Parsed]) -> Parsed:
    return Parsed(
        pl.concat([part.frame for part in parts]),
        pl.concat([part.dead for part in parts]),
        sum(part.repeated for part in parts),
        all(part.is_numbered for part in parts if part.frame.height),
        next((part.first_number for part in parts if part.first_number is not None), None),
    )


def _once_each(parsed: Parsed, raw: bytes, fmt: Format, habits: Habits) -> Parsed:
    """Return what was read of a text with the records once each that pmacct had read twice, if it tells."""
    exporters = parsed.exporters or habits.vocabulary.words(parsed.frame.get_column(records.EXPORTER))
    number = None if parsed.frame.is_empty() else first_number(fmt, raw)
    if number is None:
        return replace(parsed, exporters=exporters)
    frame, repeated = once_each(parsed.frame, habits, exporters)
    return replace(parsed, frame=frame, repeated=repeated, is_numbered=True, first_number=number, exporters=exporters)


def _by_header(raw: bytes, fmt: Format) -> list[tuple[Format, bytes]]:
    """Return what stands under each header in force, in order.

    In a garbled file a header may stand before each record: the same one again is none, and where they alternate
    without end, what stands under each is put together.
    """
    runs: list[tuple[str, list[bytes]]] = [(fmt.header, [])]
    position = 0
    for start, end in [*headers_in(raw), (len(raw), len(raw))]:
        runs[-1][1].append(raw[position:start])
        if end > start and (header := header_text(raw[start:end])) != runs[-1][0]:
            runs.append((header, []))
        position = end
    if len(runs) > _MAX_RUNS:
        together: dict[str, list[bytes]] = {}
        for header, texts in runs:
            together.setdefault(header, []).extend(texts)
        runs = list(together.items())
    return [(replace(fmt, header=header), b"".join(texts)) for header, texts in runs]


def _after_preamble(raw: bytes, fmt: Format) -> tuple[Format, int]:
    """Return what holds after the markers and headers at the front: the format, and where the records begin."""
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
    return fmt, position


def _read_segment(raw: bytes, fmt: Format) -> Parsed:
    """Return the records of text under one header."""
    frame = _read_clean(raw, fmt)
    if frame is not None:
        return Parsed(frame)
    parts = [_read_any(piece, fmt) for piece in pieces(raw)]
    return _joined(parts)


# -- the fast path -------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _layout(fmt: Format) -> tuple[str, ...]:
    """Return a distinct name for every CSV column: the record column where it fills one."""
    return tuple(name or f"_{i}" for i, name in enumerate(fmt.columns))


def _read_clean(raw: bytes, fmt: Format) -> pl.DataFrame | None:
    """Return the records if every line is a good one or a marker; None if anything at all is unexpected."""
    text = _without_markers(raw)
    if not text:
        return None if text is None else records.empty_records()
    frame = _parse(text, fmt, text[: text.find(b"\n") + 1 or len(text)].rstrip(b"\r\n").decode("utf-8", "replace"))
    # Each line must be a row: polars says nothing of what it skips.
    if frame is None or frame.height != line_count(text) or sum(frame.null_count().row(0)):
        return None
    # In one piece, while others compute: each of the stages behind would put its columns together by itself.
    frame, is_bad = _from_words(frame.rechunk(), fmt.time_zone)
    numbers = [name for name, dtype in frame.schema.items() if dtype != pl.String() and name not in is_bad]
    is_odd = any(is_any_outside(frame.get_column(name)) for name in numbers)
    return None if is_odd or any(bad.any() for bad in is_bad.values()) else finish(frame)


def _parse(raw: bytes, fmt: Format, sample: str, *, ignore_errors: bool = False) -> pl.DataFrame | None:
    """Return the wanted columns, times and protocol as numbers or words as in the sample record.

    Args:
        raw: the text.
        fmt: its format.
        sample: one of its records.
        ignore_errors: whether an unreadable value is null; otherwise the answer is None.
    """
    names = _layout(fmt)
    if not set(REQUIRED) <= set(names) or len(fmt.separator) != 1:
        return None
    try:
        return pl.read_csv(
            raw,
            has_header=False,
            separator=fmt.separator,
            quote_char=None,
            schema=_clean_schema(names, sample.split(fmt.separator)),
            columns=_wanted(names),
            ignore_errors=ignore_errors,
        )
    except pl.exceptions.PolarsError:
        return None


def _wanted(names: tuple[str, ...]) -> list[int]:
    """Return the positions of the columns that fill record columns."""
    return [i for i, name in enumerate(names) if not name.startswith("_")]


def _from_words(frame: pl.DataFrame, time_zone: str) -> tuple[pl.DataFrame, dict[str, pl.Series]]:
    """Return the frame with dates and protocol names as numbers, and for each such column what was unreadable."""
    values = {}
    for name, dtype in frame.schema.items():
        if dtype == pl.String() and name in TIMES:
            values[name] = time(frame.get_column(name), time_zone)
        elif dtype == pl.String() and name == records.PROTOCOL:
            values[name] = protocol(frame.get_column(name))
    typed = frame.with_columns(value.value.alias(name) for name, value in values.items())
    return typed, {name: value.is_bad for name, value in values.items()}


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
            schema[name] = records.RECORD_SCHEMA.get(name, pl.Int64())
    return schema


def _without_markers(raw: bytes) -> bytes | None:
    """Return the text without its markers; None if parentheses, which no good record has, stand elsewhere too.

    A parser that has to look for lines to leave out takes a quarter more time.
    """
    parts, begin = [], 0
    position = raw.find(b"(")
    while position >= 0:
        start = raw.rfind(b"\n", 0, position) + 1
        end = raw.find(b"\n", position) + 1 or len(raw)
        if not is_marker(raw[start:end]):
            return None
        parts.append(memoryview(raw)[begin:start])
        begin = end
        position = raw.find(b"(", end)
    return b"".join([*parts, memoryview(raw)[begin:]]) if parts else raw


# -- the tolerant path ---------------------------------------------------------------------------------


def _read_any(raw: bytes, fmt: Format) -> Parsed:
    """Return what can be read of text under one header, row by row."""
    names = _layout(fmt)
    separator = fmt.separator
    lines = lines_of(raw).filter(pl.col("line").str.contains(_MARKER).not_())
    has_shape = pl.col("line").str.count_matches(separator, literal=True) == len(names) - 1
    odd = lines.filter(has_shape.not_())
    shaped = lines.filter(has_shape)
    wrong = Reason.WRONG_FIELD_COUNT if fmt.header else Reason.NO_HEADER
    dead = [odd.with_columns(pl.lit(wrong.value).alias("reason"))]
    if not shaped.height:
        return Parsed(dead=dead[0])
    typed, is_doubtful = _typed(shaped.get_column("line"), fmt)
    doubtful = shaped.filter(is_doubtful)
    fields = doubtful.select(
        pl.col("line").str.split_exact(separator, len(names) - 1).struct.rename_fields(list(names)).alias("fields")
    ).unnest("fields")
    judged, why = from_text(fields.select(names[i] for i in _wanted(names)), fmt.time_zone)
    dead.append(doubtful.with_columns(why.alias("reason")).filter(why.is_not_null()))
    place = pl.int_range(pl.len()).alias("place")
    places = pl.select(pl.arg_where(is_doubtful)).to_series()
    frame = (
        pl.concat(
            [
                typed.with_columns(place).filter(~is_doubtful),
                judged.with_columns(places.cast(pl.Int64).alias("place")).filter(why.is_null()),
            ]
        )
        .sort("place")
        .drop("place")
    )
    return Parsed(frame, pl.concat(dead))


def _typed(lines: pl.Series, fmt: Format) -> tuple[pl.DataFrame, pl.Series]:
    """Return the record frame of lines with the right number of fields, and which of its rows need a second look."""
    raw = lines.str.join("\n").item().encode()
    frame = _parse(raw, fmt, lines[0], ignore_errors=True)
    if frame is None or frame.height != len(lines):
        nothing = records.empty_records().clear(len(lines))
        return nothing, pl.repeat(True, len(lines), dtype=pl.Boolean, eager=True)
    doubts = [pl.col(name).is_null() for name in frame.columns]
    frame, is_bad = _from_words(frame, fmt.time_zone)
    doubts += [pl.lit(bad) for bad in is_bad.values()]
    doubts += [is_outside(name) for name, dtype in frame.schema.items() if dtype != pl.String() and name not in is_bad]
    is_doubtful = frame.select(pl.any_horizontal(doubts).fill_null(True).alias("doubt")).to_series()
    return finish(frame), is_doubtful
