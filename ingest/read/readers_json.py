"""Read the JSON lines of pmacct's print plugin.

A chunk of good records is read by `quick_records`, or parsed by polars straight into typed columns. If a value is not
of its type, all values are read as text and each row is judged by itself. If a line is no JSON, Python's parser says
which, one line at a time: what that takes grows with the text and not with how the odd lines lie in it.
"""

import json
from typing import Any

import polars as pl

from ingest.read import quick_records, records
from ingest.read.readers_format import BUCKET_KEY, JSON_KEYS, Format
from ingest.read.readers_values import (
    REQUIRED,
    TEXTS,
    TIMES,
    finish,
    from_text,
    integer,
    is_any_outside,
    line_count,
    lines_of,
    pieces,
    protocol,
    time,
)
from ingest.read.records import Parsed, Reason

_EVENT = "event_type"
_MARKERS = ("purge_init", "purge_close")
_MAX_LINE = 1 << 16
_SHORTEST = 40
"""Bytes of a line: a chunk of shorter ones holds no records, and would make a hundred times its size in columns."""

_TEXT_NAMES = {*TEXTS, *TIMES, records.PROTOCOL, records.TCP_FLAGS}
_TYPED: dict[str, pl.DataType] = {
    _EVENT: pl.String(),
    **{key: pl.String() if name in _TEXT_NAMES else pl.Int64() for key, name in JSON_KEYS.items()},
    BUCKET_KEY: pl.String(),
}
_AS_TEXT: dict[str, pl.DataType] = dict.fromkeys(_TYPED, pl.String())


def read_json(raw: bytes, fmt: Format) -> Parsed:
    """Return the records of a chunk of JSON lines, and the lines that are none.

    Args:
        raw: whole lines; the last one may lack its newline.
        fmt: only its time zone matters.
    """
    if (quick := quick_records.read_json(raw)) is not None:
        return quick
    frame = _read_clean(raw, fmt) if line_count(raw) * _SHORTEST < len(raw) else None
    return _read_slowly(raw, fmt) if frame is None else Parsed(frame)


def _read_slowly(raw: bytes, fmt: Format) -> Parsed:
    parts = [_read_any(piece, fmt) for piece in pieces(raw)]
    return Parsed(pl.concat([part.frame for part in parts]), pl.concat([part.dead for part in parts]))


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns under their record names; the print bucket stands in for a start that was not printed."""
    start = next(key for key, name in JSON_KEYS.items() if name == records.START)
    if frame.get_column(start).null_count():
        frame = frame.with_columns(pl.coalesce(start, BUCKET_KEY))
    return frame.select(pl.col(key).alias(name) for key, name in JSON_KEYS.items())


def _is_marker() -> pl.Expr:
    """Whether a row is a purge marker."""
    return pl.col(_EVENT).is_in(_MARKERS).fill_null(False)


def _read_clean(raw: bytes, fmt: Format) -> pl.DataFrame | None:
    """Return the records if every line is a good one or a marker; None if anything at all is unexpected."""
    try:
        frame = pl.read_ndjson(raw, schema=_TYPED)
    except pl.exceptions.PolarsError:
        return None
    is_marker = frame.select(_is_marker()).to_series()
    if is_marker.any():
        frame = frame.filter(~is_marker)
    # In one piece: each of the stages behind would put its columns together by itself.
    frame = _named(frame).rechunk()
    if not frame.height:
        return records.empty_records()
    values = {name: time(frame.get_column(name), fmt.time_zone) for name in TIMES}
    values[records.PROTOCOL] = protocol(frame.get_column(records.PROTOCOL))
    values[records.TCP_FLAGS] = integer(frame.get_column(records.TCP_FLAGS), 0, 65535)
    doubts = [
        *((pl.col(name) == "").any() for name in TEXTS),
        *(pl.col(name).is_null().any() for name in REQUIRED),
    ]
    if (
        any(value.is_bad.any() for value in values.values())
        or any(is_any_outside(frame.get_column(name)) for name in frame.columns if name not in _TEXT_NAMES)
        or frame.select(pl.any_horizontal(doubt.fill_null(False) for doubt in doubts)).item()
    ):
        return None
    return finish(frame.with_columns(value.value.alias(name) for name, value in values.items()))


def _read_any(raw: bytes, fmt: Format) -> Parsed:
    """Return what can be read, line by line."""
    lines = lines_of(raw).with_columns(pl.col("line").str.strip_chars()).filter(pl.col("line") != "")
    size = pl.col("line").str.len_bytes()
    has_braces = pl.col("line").str.starts_with("{") & pl.col("line").str.ends_with("}")
    # A parser goes as deep as a line nests: what is too long to be a record is not tried.
    lines = lines.with_columns(
        pl.when(size > _MAX_LINE)
        .then(pl.lit(Reason.LINE_TOO_LONG.value))
        .when(has_braces.not_())
        .then(pl.lit(Reason.NOT_A_RECORD.value))
        .alias("reason")
    )
    is_tried = pl.col("reason").is_null()
    objects = lines.filter(is_tried).get_column("line")
    values, is_object = _values(objects)
    no_object = pl.DataFrame({"line": objects.filter(~is_object)})
    is_record = values.select(_is_marker().not_()).to_series()
    every, why = from_text(_named(values), fmt.time_zone)
    judged = pl.DataFrame({"line": objects.filter(is_object), "reason": why})
    dead = (
        lines.filter(~is_tried),
        no_object.with_columns(pl.lit(Reason.NOT_A_RECORD.value).alias("reason")),
        judged.filter(is_record & why.is_not_null()),
    )
    return Parsed(every.filter(is_record & why.is_null()), pl.concat(dead))


def _values(lines: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """Return the values of the lines that are JSON objects as text, a row each, and which lines these are."""
    values = _parse(lines)
    if values is not None:
        return values, pl.repeat(True, len(lines), dtype=pl.Boolean, eager=True)
    objects = [_object(line) for line in lines]
    is_object = pl.Series([found is not None for found in objects], dtype=pl.Boolean)
    values = _parse(lines.filter(is_object))
    if values is None:
        # What only polars refuses.
        rows = [found for found in objects if found is not None]
        columns = {key: [_text(row.get(key)) for row in rows] for key in _AS_TEXT}
        values = pl.DataFrame(columns, schema=_AS_TEXT)
    return values, is_object


def _parse(lines: pl.Series) -> pl.DataFrame | None:
    """Return one row a line with all values as text; None if polars refuses a line."""
    if not len(lines):
        return pl.DataFrame(schema=_AS_TEXT)
    raw = "\n".join(lines.to_list()).encode()
    try:
        frame = pl.read_ndjson(raw, schema=_AS_TEXT)
    except pl.exceptions.PolarsError:
        return None
    return frame if frame.height == len(lines) else None


def _object(line: str) -> dict[str, Any] | None:
    """Return a line's JSON object; None if it is none. Of equal keys the first counts, as polars has it."""
    try:
        found = json.loads(line, parse_constant=_refuse, object_pairs_hook=_first_of_each)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _text(value: object) -> str | None:
    """Return a JSON value as text, as polars would have it."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)
