"""Frames to InfluxDB line protocol, a column at a time."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import polars as pl

from store.schema import Field, Kind, Measurement

WINDOW = "window"
"""Column of every frame of points: start of the window, epoch seconds (Int64)."""

_SPECIAL = r"[,= \\\r\n]"
_BATCH_ROWS = 20_000
_BATCH_BYTES = 8_000_000

_BODY = "its fields"
_Part: TypeAlias = tuple[str, pl.Expr, bool]
"""Of a line: a text, what stands in its braces, and whether it is in every row; where that is null, it is left out."""

_KINDS: dict[Kind, pl.DataType] = {Kind.INT: pl.Int64(), Kind.FLOAT: pl.Float64(), Kind.STRING: pl.String()}


def columns(*names: str | Field) -> dict[str, pl.DataType]:
    """Return the columns of a frame of points: WINDOW, tags as texts, fields by their kinds, in this order."""
    found: dict[str, pl.DataType] = {WINDOW: pl.Int64()}
    for one in names:
        found |= {one: pl.String()} if isinstance(one, str) else {one.name: _KINDS[one.kind]}
    return found


def encode(measurement: Measurement, frame: pl.DataFrame) -> bytes:
    """Return the frame's rows as line protocol with times in seconds.

    Args:
        measurement: names and kinds of tags and fields.
        frame: WINDOW, the measurement's tags (String; null or empty: left out) and any of its fields (null, NaN or
            infinite: left out). A row without a single field gives no line.
    """
    fields = [field for field in measurement.fields if field.name in frame.columns]
    if frame.is_empty() or not fields:
        return b""
    # polars 2.1 panics where it formats texts of a column of which one chunk is empty.
    frame = frame.rechunk()
    tags = [name for name in measurement.tags if name in frame.columns]
    # All at once: a query of its own for each takes longer than the work itself.
    found = frame.select(
        *(pl.col(name).cast(pl.String).unique().str.contains(_SPECIAL).any() for name in tags),
        *((pl.col(name).cast(pl.String) == "").any().alias(f"{name} is absent") for name in tags),
    )
    is_whole = {name: not frame.get_column(name).null_count() for name in frame.columns}
    parts: list[_Part] = []
    for name in tags:
        is_there = is_whole[name] and not found.item(0, f"{name} is absent")
        parts.append((f",{name}={{}}", _tag(name, has_special=found.item(0, name), is_there=is_there), is_there))
    rows = frame.lazy()
    if is_whole[fields[0].name] and fields[0].kind is Kind.INT:
        for field in fields:
            text, value = _field(field)
            is_there = is_whole[field.name] and field.kind is not Kind.FLOAT
            parts.append((f"{' ' if field is fields[0] else ','}{text}", value, is_there))
    else:
        body = pl.concat_str((pl.format(*_field(field)) for field in fields), separator=",", ignore_nulls=True)
        rows = rows.with_columns(body.alias(_BODY)).filter(pl.col(_BODY) != "")
        parts.append((" {}", pl.col(_BODY), True))
    parts.append((" {}", pl.col(WINDOW), True))
    return bytes(rows.select(_line(_escaped(measurement.name), parts).str.join("\n").cast(pl.Binary)).collect().item())


def batches(measurement: Measurement, frame: pl.DataFrame) -> Iterator[tuple[bytes, int]]:
    """Yield the frame as bodies of a size that InfluxDB likes, each with its number of points."""
    # Rows of a measurement with texts may be kilobytes.
    rows = max(_BATCH_BYTES * frame.height // max(int(frame.estimated_size()), 1), 1)
    for part in frame.iter_slices(min(rows, _BATCH_ROWS)):
        lines = encode(measurement, part)
        if lines:
            yield lines, part.height


def _line(text: str, parts: Iterable[_Part]) -> pl.Expr:
    """Return a text and parts one after the other. What is in every row is put together at once: in half the time."""
    found: list[pl.Expr] = []
    values: list[pl.Expr] = []
    for more, value, is_there in parts:
        if is_there:
            text, values = text + more, [*values, value]
        else:
            found += [pl.format(text, *values), pl.format(more, value)]
            text, values = "", []
    return pl.concat_str(*found, pl.format(text, *values), ignore_nulls=True)


def _tag(name: str, *, has_special: bool, is_there: bool) -> pl.Expr:
    column = pl.col(name).cast(pl.String)
    if has_special:
        # A backslash cannot be escaped in a tag, and at its end it would swallow the separator.
        column = column.str.replace_all("\\", "/", literal=True).str.replace_all(r"[\r\n]", " ")
        column = column.str.replace_all(r"([,= ])", r"\${1}")
    return column if is_there else pl.when(column != "").then(column)


def _field(field: Field) -> tuple[str, pl.Expr]:
    """Return a field's text, and what stands in its braces: null where it is left out."""
    column = pl.col(field.name)
    if field.kind is Kind.INT:
        return f"{field.name}={{}}i", column.cast(pl.Int64)
    if field.kind is Kind.FLOAT:
        number = column.cast(pl.Float64)
        return f"{field.name}={{}}", pl.when(number.is_finite()).then(number)
    text = column.cast(pl.String).str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True)
    return f'{field.name}="{{}}"', text


def _escaped(name: str) -> str:
    return name.replace(",", "\\,").replace(" ", "\\ ")
