"""What each exporter sent, and what went through its interfaces: by flow records, and by their own counters.

Flow records of all exporters, duplicates included, need one pass over the pieces.
"""

import numpy as np
import polars as pl

from cluster import schema
from cluster.model import Plane
from ingest import counter_samples as samples
from ingest.classify import PLANES
from ingest.counter_deltas import START
from ingest.interfaces import MAX_INTERFACES
from ingest.normalise import Flows, Normaliser
from ingest.points import WINDOW
from ingest.windows import Shares, prorate

# Two interface numbers and a window, counted from the batch's first one, are one number.
_BITS = MAX_INTERFACES.bit_length() - 1
_MASK = MAX_INTERFACES - 1

_LINK, _SPEED = "link", "said_speed"

_COUNTERS = (
    (samples.IN_OCTETS, samples.OUT_OCTETS),
    (samples.IN_ERRORS, samples.OUT_ERRORS),
    (samples.IN_DISCARDS, samples.OUT_DISCARDS),
)
_FIELDS = {
    samples.IN_OCTETS: schema.COUNTER_IN_BYTES,
    samples.OUT_OCTETS: schema.COUNTER_OUT_BYTES,
    samples.IN_ERRORS: schema.IN_ERRORS,
    samples.OUT_ERRORS: schema.OUT_ERRORS,
    samples.IN_DISCARDS: schema.IN_DISCARDS,
    samples.OUT_DISCARDS: schema.OUT_DISCARDS,
}


def link_points(
    flows: Flows, shares: Shares, *, closed: int, seconds: int, books: Normaliser
) -> dict[str, pl.DataFrame]:
    """Return the partial points of EXPORTER_STATUS and INTERFACE_TRAFFIC, by measurement name.

    Args:
        flows: the batch.
        shares: its pieces.
        closed: windows below this number had been closed before the batch.
        seconds: length of a window.
        books: where the batch's numbers have their names.
    """
    record = shares.record
    is_first = np.ones(len(record), np.bool_)
    is_first[1:] = record[1:] != record[:-1]
    base = int(shares.window.min())
    links = (flows.entered << _BITS) | flows.left
    pieces = pl.DataFrame(
        {
            _LINK: links[record] | ((shares.window - base) << 2 * _BITS),
            schema.EXPORTER_RECORDS.name: is_first.astype(np.int64),
            schema.EXPORTER_BYTES.name: shares.bytes,
            schema.EXPORTER_SUPPRESSED.name: np.where(flows.counts[record], 0, shares.bytes),
            schema.UNKNOWN_RATE.name: (is_first & flows.unknown_rate[record]).astype(np.int64),
            schema.ZERO_COUNTERS.name: (is_first & flows.zero[record]).astype(np.int64),
            schema.SKEWED.name: (is_first & flows.skewed[record]).astype(np.int64),
            schema.LATE_BYTES.name: np.where(shares.window < closed, shares.bytes, 0),
            schema.CLAMPED_BYTES.name: shares.clamped,
        }
    )
    sums = pieces.group_by(_LINK).agg(pl.exclude(_LINK).sum())
    packed = sums.get_column(_LINK).to_numpy()
    window = pl.Series(WINDOW, ((packed >> 2 * _BITS) + base) * seconds)
    entered, left = (packed >> _BITS) & _MASK, packed & _MASK
    return {
        schema.EXPORTER_STATUS.name: _exporters(sums.drop(_LINK), window, entered, books),
        schema.INTERFACE_TRAFFIC.name: _interfaces(
            sums.get_column(schema.EXPORTER_BYTES.name), window, (entered, left), books
        ),
    }


def _exporters(sums: pl.DataFrame, window: pl.Series, entered: np.ndarray, books: Normaliser) -> pl.DataFrame:
    number = pl.Series(schema.EXPORTER, books.interfaces.exporters[entered])
    whole = sums.with_columns(window, number).group_by(schema.EXPORTER, WINDOW).agg(pl.all().sum())
    names = pl.Series("names", books.exporters.names, pl.String)
    return whole.with_columns(names.gather(whole.get_column(schema.EXPORTER)).alias(schema.EXPORTER))


def _interfaces(
    volume: pl.Series, window: pl.Series, links: tuple[np.ndarray, np.ndarray], books: Normaliser
) -> pl.DataFrame:
    """Return both sides of every link, without those that name no interface."""
    sides = []
    for numbers, own, other in zip(
        links, (schema.IN_BYTES, schema.OUT_BYTES), (schema.OUT_BYTES, schema.IN_BYTES), strict=True
    ):
        nothing = pl.lit(0, pl.Int64).alias(other.name)
        sides.append(pl.select(window, pl.Series(_LINK, numbers), volume.alias(own.name), nothing))
    both = pl.concat([side.select(WINDOW, _LINK, schema.IN_BYTES.name, schema.OUT_BYTES.name) for side in sides])
    return named_links(both.group_by(WINDOW, _LINK).agg(pl.all().sum()), books)


def named_links(rows: pl.DataFrame, books: Normaliser) -> pl.DataFrame:
    """Return rows of interface numbers (column ``link``) with INTERFACE_TRAFFIC's tags and the speed that is known."""
    book = books.interfaces
    number = rows.get_column(_LINK).to_numpy()
    exporters = pl.Series("exporter", books.exporters.names, pl.String)
    # NO_PLANE is the code behind the last plane's.
    planes = pl.Series("plane", [*(plane.value for plane in PLANES), Plane.UNKNOWN.value], pl.String)
    speed = book.speeds[number]
    return (
        rows.drop(_LINK)
        .with_columns(
            exporters.gather(book.exporters[number]).alias(schema.EXPORTER),
            book.names.gather(number).alias(schema.INTERFACE),
            planes.gather(book.planes[number]).alias(schema.PLANE),
            pl.Series(schema.KIND, np.where(book.is_core[number], schema.Link.CORE.value, schema.Link.EDGE.value)),
            pl.Series(schema.SPEED.name, speed).set(pl.Series(speed == 0), None),
        )
        .filter(pl.col(schema.INTERFACE) != "")
    )


def counter_points(deltas: pl.DataFrame, *, oldest: int | None, seconds: int, books: Normaliser) -> pl.DataFrame:
    """Return partial points of INTERFACE_TRAFFIC from what interfaces' own counters grew by, spread over that time.

    Args:
        deltas: the frame of `Deltas`.
        oldest: number of the oldest window kept; None keeps all.
        seconds: length of a window.
        books: numbers of exporters and interfaces.
    """
    if deltas.is_empty():
        return pl.DataFrame()
    link = books.interfaces.number(
        books.exporters.number(deltas.get_column(samples.EXPORTER)), deltas.get_column(samples.INDEX).to_numpy()
    )
    start, end = (deltas.get_column(name).to_numpy() for name in (START, samples.MOMENT))
    columns: dict[str, pl.Series] = {}
    for first, second in _COUNTERS:
        one, other = (deltas.get_column(name).fill_null(0).to_numpy() for name in (first, second))
        shares = prorate(start, end, (one, other, np.zeros_like(one)), window_ms=seconds * 1000, oldest=oldest)
        columns[WINDOW] = pl.Series(WINDOW, shares.window * seconds)
        columns[_LINK] = pl.Series(_LINK, link[shares.record])
        columns[_SPEED] = deltas.get_column(samples.SPEED).gather(shares.record)
        for name, share in ((first, shares.bytes), (second, shares.packets)):
            is_unknown = deltas.get_column(name).is_null().gather(shares.record)
            columns[name] = pl.Series(share).set(is_unknown, None)
    pieces = pl.DataFrame(columns)
    sums = pieces.group_by(WINDOW, _LINK).agg(
        pl.max(_SPEED), *(pl.when(pl.col(name).count() > 0).then(pl.sum(name)).alias(name) for name in _FIELDS)
    )
    named = named_links(sums.rename({name: field.name for name, field in _FIELDS.items()}), books)
    return named.with_columns(pl.coalesce(schema.SPEED.name, _SPEED).alias(schema.SPEED.name)).drop(_SPEED)
