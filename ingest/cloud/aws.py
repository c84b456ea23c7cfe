"""Read AWS VPC flow logs: lines with spaces between fields, in the default format or any other, of versions 2 to 8.

What the fields mean: "Flow log records" in the Amazon VPC user guide.
"""

import polars as pl

from ingest.cloud.ends import INTERFACE, IS_SENDER, Ends
from ingest.read import records
from ingest.read.readers_values import REQUIRED, finish, from_text, is_any_outside, lines_of, pieces
from ingest.read.records import Gap, Parsed, Reason

DEFAULT_FIELDS = (
    "version", "account-id", "interface-id", "srcaddr", "dstaddr", "srcport", "dstport", "protocol", "packets",
    "bytes", "start", "end", "action", "log-status",
)  # fmt: skip
"""The default format; also that of files without a first line of names."""

_NUMBERS = {
    "srcport": records.SRC_PORT,
    "dstport": records.DST_PORT,
    "protocol": records.PROTOCOL,
    "packets": records.PACKETS,
    "bytes": records.BYTES,
    "start": records.START,
    "end": records.END,
    "tcp-flags": records.TCP_FLAGS,
}
_ADDRESSES = {"srcaddr": records.SRC, "dstaddr": records.DST, "pkt-srcaddr": "packet_src", "pkt-dstaddr": "packet_dst"}
"""Of the interface that a packet goes through, and of who really sent it and gets it: they differ at NAT gateways."""
_WORDS = {"interface-id": INTERFACE, "action": "action", "log-status": "status", "flow-direction": "way"}
_ALL = {**_NUMBERS, **_ADDRESSES, **_WORDS}
_NOTHING = "-"
_MS = 1000
_NEEDED = ("interface-id", "bytes", "start", "end")


def is_header(line: bytes) -> bool:
    """Whether a line names fields."""
    words = line.decode("utf-8", "replace").split()
    return "interface-id" in words or {"srcaddr", "dstaddr"} <= set(words)


def missing_fields(header: str) -> list[str]:
    """Return the fields without which a log's format tells too little."""
    names = set(header.split())
    missing = [name for name in _NEEDED if name not in names]
    return missing + [side for side in ("srcaddr", "dstaddr") if not names & {side, f"pkt-{side}"}]


def read_aws(raw: bytes, header: str, ends: Ends, skipped: frozenset[str] = frozenset()) -> Parsed:
    """Return the records of whole lines.

    Args:
        raw: lines, without the one that names fields.
        header: names of the fields, with spaces between them; empty for the default format.
        ends: tells which end of a conversation an interface is.
        skipped: interfaces whose records do not count.
    """
    names = tuple(header.split()) or DEFAULT_FIELDS
    if not raw.strip():
        return Parsed()
    frame = _typed(raw, names)
    dead = records.empty_dead()
    if frame is None:
        parts = [_from_lines(piece, names) for piece in pieces(raw)]
        frame = pl.concat([part for part, _ in parts])
        dead = pl.concat([letters for _, letters in parts])
    return _sorted_out(frame, dead, ends, skipped)


def _typed(raw: bytes, names: tuple[str, ...]) -> pl.DataFrame | None:
    """Return the columns of lines of which each is as it should be; None if one is not."""
    wanted = [place for place, name in enumerate(names) if name in _ALL and name not in names[:place]]
    kinds = {f"{place} {name}": pl.Int64 if name in _NUMBERS else pl.String for place, name in enumerate(names)}
    try:
        frame = pl.read_csv(
            raw, has_header=False, separator=" ", quote_char=None, schema=kinds, columns=wanted, null_values=_NOTHING
        )
    except pl.exceptions.PolarsError:
        return None
    frame = frame.rename({f"{place} {names[place]}": _ALL[names[place]] for place in wanted})
    lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
    # Of a line that was cut off polars makes one whose last fields are empty.
    if frame.height != lines or raw.count(b" ") != lines * (len(names) - 1):
        return None
    frame = _whole(frame)
    good = frame.filter(_is_record())
    in_ms = good.with_columns(pl.col(records.START, records.END) / 1.0)
    checked = [name for name in _NUMBERS.values() if name in good.columns]
    is_odd = any(is_any_outside(in_ms.get_column(name)) for name in checked)
    is_odd |= any(good.get_column(name).null_count() for name in (*REQUIRED, records.START))
    return None if is_odd and good.height else frame


def _from_lines(raw: bytes, names: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the columns of the lines that are as they should be, and the others as dead letters."""
    lines = lines_of(raw).with_columns(pl.col("line").str.strip_chars())
    fields = pl.col("line").str.split(" ")
    has_shape = fields.list.len() == len(names)
    wrong = lines.filter(~has_shape).with_columns(pl.lit(Reason.WRONG_FIELD_COUNT.value).alias("reason"))
    shaped = lines.filter(has_shape)
    texts = shaped.select(
        fields.list.get(place).replace(_NOTHING, None).alias(_ALL[name])
        for place, name in enumerate(names)
        if name in _ALL and name not in names[:place]
    )
    texts = _whole(texts)
    is_record = texts.select(_is_record()).to_series()
    has_numbers = [name for name in (*_NUMBERS.values(), records.SRC, records.DST) if name in texts.columns]
    typed, why = from_text(texts.select(has_numbers), "UTC")
    why = why.set(~is_record, None)
    no_time = is_record & typed.get_column(records.START).is_null() & why.is_null()
    why = why.set(no_time, Reason.BAD_TIME.value)
    letters = pl.DataFrame({"line": shaped.get_column("line"), "reason": why}).filter(why.is_not_null())
    others = [name for name in texts.columns if name not in has_numbers]
    columns = typed.select(has_numbers).with_columns(pl.col(records.START, records.END) // _MS)
    numbers = [name for name in has_numbers if name in _NUMBERS.values()]
    columns = columns.with_columns(pl.col(numbers).cast(pl.Int64))
    frame = columns.hstack(texts.select(others)).select(texts.columns).filter(why.is_null())
    return frame, pl.concat([wrong, letters])


def _whole(frame: pl.DataFrame) -> pl.DataFrame:
    """Return all columns in one order, the addresses those of who really talked."""
    missing = [name for name in _ALL.values() if name not in frame.columns]
    kinds = {_ALL[name]: frame.schema.get(records.BYTES, pl.Int64()) for name in _NUMBERS}
    frame = frame.with_columns(pl.lit(None, kinds.get(name, pl.String())).alias(name) for name in missing)
    return frame.with_columns(
        pl.coalesce("packet_src", records.SRC).alias(records.SRC),
        pl.coalesce("packet_dst", records.DST).alias(records.DST),
    ).select(*_NUMBERS.values(), records.SRC, records.DST, *_WORDS.values())


def _is_record() -> pl.Expr:
    return ~pl.col("status").is_in([gap.value.upper() for gap in Gap]).fill_null(value=False)


def _sorted_out(frame: pl.DataFrame, dead: pl.DataFrame, ends: Ends, skipped: frozenset[str]) -> Parsed:
    """Return traffic, what was not let through, and what was not recorded."""
    if skipped:
        frame = frame.filter(~pl.col(INTERFACE).is_in(list(skipped)).fill_null(value=False))
    gaps = frame.filter(~_is_record()).select(
        pl.col(INTERFACE).fill_null(""),
        (pl.col(records.START) * _MS).alias(records.START),
        pl.col("status").str.to_lowercase().alias("reason"),
    )
    frame = frame.filter(_is_record())
    found = frame.select(
        records.SRC,
        records.DST,
        *_NUMBERS.values(),
        INTERFACE,
        pl.when(pl.col("way").is_not_null()).then(pl.col("way") == "egress").alias(IS_SENDER),
        "action",
    ).with_columns(pl.col(records.START, records.END) * _MS)
    is_denied = (pl.col("action") == "REJECT").fill_null(value=False)
    denied = finish(found.filter(is_denied).drop(INTERFACE, IS_SENDER, "action"))
    return Parsed(
        finish(ends.name(found.filter(~is_denied).drop("action"))),
        dead,
        denied=denied,
        gaps=gaps.with_columns(pl.col(name).cast(kind) for name, kind in records.GAP_SCHEMA.items()),
    )
