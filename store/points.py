"""Frames to InfluxDB line protocol, a column at a time."""

from collections.abc import Iterator

import polars as pl

from store.schema import Field, Kind, Measurement

WINDOW = "window"
"""Column of every frame of points: start of the window, epoch seconds (Int64)."""

_SPECIAL = r"[,= \\\r\n]"
_BATCH_ROWS = 20_000
_BATCH_BYTES = 8_000_000


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
    special = frame.select(pl.col(name).cast(pl.String).unique().str.contains(_SPECIAL).any() for name in tags)
    heads = [_tag(name, has_special=special.item(0, name)) for name in tags]
    lines = (
        frame.lazy()
        .select(
            pl.concat_str(pl.lit(_escaped(measurement.name)), *heads, ignore_nulls=True).alias("head"),
            pl.concat_str(*map(_field, fields), separator=",", ignore_nulls=True).alias("body"),
            pl.col(WINDOW).cast(pl.String).alias("tail"),
        )
        .filter(pl.col("body") != "")
        .select(pl.concat_str("head", "body", "tail", separator=" ").str.join("\n"))
        .collect()
        .item()
    )
    return str(lines).encode()


def batches(measurement: Measurement, frame: pl.DataFrame) -> Iterator[tuple[bytes, int]]:
    """Yield the frame as bodies of a size that InfluxDB likes, each with its number of points."""
    # Rows of a measurement with texts may be kilobytes.
    rows = max(_BATCH_BYTES * frame.height // max(int(frame.estimated_size()), 1), 1)
    for part in frame.iter_slices(min(rows, _BATCH_ROWS)):
        lines = encode(measurement, part)
        if lines:
            yield lines, part.height


def _tag(name: str, *, has_special: bool) -> pl.Expr:
    column = pl.col(name).cast(pl.String)
    if has_special:
        # A backslash cannot be escaped in a tag, and at its end it would swallow the separator.
        column = column.str.replace_all("\\", "/", literal=True).str.replace_all(r"[\r\n]", " ")
        column = column.str.replace_all(r"([,= ])", r"\${1}")
    return pl.when(column != "").then(pl.format(f",{name}={{}}", column))


def _field(field: Field) -> pl.Expr:
    column = pl.col(field.name)
    if field.kind is Kind.INT:
        return pl.format(f"{field.name}={{}}i", column.cast(pl.Int64))
    if field.kind is Kind.FLOAT:
        number = column.cast(pl.Float64)
        return pl.when(number.is_finite()).then(pl.format(f"{field.name}={{}}", number))
    text = column.cast(pl.String).str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True)
    return pl.format(f'{field.name}="{{}}"', text)


def _escaped(name: str) -> str:
    return name.replace(",", "\\,").replace(" ", "\\ ")
