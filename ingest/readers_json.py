"""Read the JSON lines of pmacct's print plugin.

A chunk of good records is parsed by polars straight into typed columns. If a value is not of its type, all values are
read as text and each row is judged by itself. If a line is no JSON, the lines
are halved until the odd ones stand alone.
"""

import json

import polars as pl

from ingest import records
from ingest.readers_format import BUCKET_KEY, JSON_KEYS, Format
from ingest.readers_values import (
    REQUIRED,
    TEXTS,
    TIMES,
    finish,
    from_text,
    integer,
    is_any_outside,
    lines_of,
    protocol,
    time,
)
from ingest.records import Parsed, Reason

_EVENT = "event_type"
_MARKERS = ("purge_init", "purge_close")
_ALONE = 64
_MAX_LINE = 1 << 16

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
    frame = _read_clean(raw, fmt)
    return _read_any(raw, fmt) if frame is None else Parsed(frame)


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns under their record names; the print bucket stands in for a start that was not printed."""
    start = next(key for key, name in JSON_KEYS.items() if name == records.START)
    return frame.with_columns(pl.coalesce(start, BUCKET_KEY)).select(
        pl.col(key).alias(name) for key, name in JSON_KEYS.items()
    )


def _is_marker() -> pl.Expr:
    """Whether a row is a purge marker."""
    return pl.col(_EVENT).is_in(_MARKERS).fill_null(False)


def _read_clean(raw: bytes, fmt: Format) -> pl.DataFrame | None:
    """Return the records if every line is a good one or a marker; None if anything at all is unexpected."""
    try:
        frame = pl.read_ndjson(raw, schema=_TYPED)
    except pl.exceptions.PolarsError:
        return None
    frame = _named(frame.filter(_is_marker().not_()))
    if not frame.height:
        return records.empty_records()
    values = {name: time(frame.get_column(name), fmt.time_zone) for name in TIMES}
    values[records.PROTOCOL] = protocol(frame.get_column(records.PROTOCOL))
    values[records.TCP_FLAGS] = integer(frame.get_column(records.TCP_FLAGS), 0, 65535)
    doubts = [
        *((pl.col(name) == "").any() for name in TEXTS),
        *(pl.col(name).is_null().any() for name in REQUIRED),
        *(is_any_outside(name) for name in frame.columns if name not in _TEXT_NAMES),
    ]
    if (
        any(value.is_bad.any() for value in values.values())
        or frame.select(pl.any_horizontal(doubt.fill_null(False) for doubt in doubts)).item()
    ):
        return None
    return finish(frame.with_columns(value.value.alias(name) for name, value in values.items()))


def _read_any(raw: bytes, fmt: Format) -> Parsed:
    """Return what can be read, line by line."""
    lines = lines_of(raw).with_columns(pl.col("line").str.strip_chars()).filter(pl.col("line") != "")
    size = pl.col("line").str.len_bytes()
    is_object = pl.col("line").str.starts_with("{") & pl.col("line").str.ends_with("}")
    # A parser goes as deep as a line nests: what is too long to be a record is not tried.
    lines = lines.with_columns(
        pl.when(size > _MAX_LINE)
        .then(pl.lit(Reason.LINE_TOO_LONG.value))
        .when(is_object.not_())
        .then(pl.lit(Reason.NOT_A_RECORD.value))
        .alias("reason")
    )
    dead = [lines.filter(pl.col("reason").is_not_null())]
    frames = [records.empty_records()]
    for block, values in _parse_halving(lines.filter(pl.col("reason").is_null()).get_column("line")):
        if values is None:
            dead.append(pl.DataFrame({"line": block}).with_columns(pl.lit(Reason.NOT_A_RECORD.value).alias("reason")))
            continue
        is_record = values.select(_is_marker().not_()).to_series()
        every, why = from_text(_named(values), fmt.time_zone)
        frames.append(every.filter(is_record & why.is_null()))
        judged = pl.DataFrame({"line": block, "reason": why})
        dead.append(judged.filter(is_record & why.is_not_null()))
    return Parsed(pl.concat(frames), pl.concat(dead))


def _parse_halving(lines: pl.Series) -> list[tuple[pl.Series, pl.DataFrame | None]]:
    """Return blocks of lines, in order, each with its values as text, or with None if its lines are no JSON objects."""
    if not len(lines):
        return []
    values = _parse(lines)
    if values is not None:
        return [(lines, values)]
    if len(lines) == 1:
        return [(lines, None)]
    if len(lines) <= _ALONE:
        # Python's parser says at once which lines are at fault; what only polars refuses is halved further.
        is_good = pl.Series([_is_object(line) for line in lines], dtype=pl.Boolean)
        if not is_good.all():
            return [*_parse_halving(lines.filter(is_good)), (lines.filter(~is_good), None)]
    half = len(lines) // 2
    return [*_parse_halving(lines[:half]), *_parse_halving(lines[half:])]


def _parse(lines: pl.Series) -> pl.DataFrame | None:
    """Return one row a line with all values as text; None if polars refuses a line."""
    raw = "\n".join(lines.to_list()).encode()
    try:
        frame = pl.read_ndjson(raw, schema=_AS_TEXT)
    except pl.exceptions.PolarsError:
        return None
    return frame if frame.height == len(lines) else None


def _is_object(line: str) -> bool:
    """Whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
