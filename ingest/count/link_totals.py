"""What each exporter sent, and what went through its interfaces: by flow records, and by their own counters.

Flow records of all exporters, duplicates included, need one pass over the pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cluster.model import Plane
from ingest.count.counter_deltas import START
from ingest.count.grouped import Grouped, grouped
from ingest.count.windows import Shares, prorate
from ingest.flows.classify import PLANES
from ingest.flows.normalise import Flags, Flows, Ints, Normaliser
from ingest.read import counter_samples as samples
from store import schema
from store.points import WINDOW
from store.schema import Field

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


@dataclass(frozen=True, slots=True)
class LinkSums:
    """What went through interfaces by window and interface number; the numbers hold as long as the books.

    Attributes:
        entered: by the interface where records say that flows entered; with EXPORTER_STATUS's sums.
        left: by the one where they left; with EXPORTER_BYTES alone.
    """

    entered: pl.DataFrame
    left: pl.DataFrame


def link_sums(flows: Flows, shares: Shares, *, closed: int, seconds: int, books: Normaliser) -> LinkSums:
    """Return the sums of a batch.

    Args:
        flows: the batch.
        shares: its pieces.
        closed: windows below this number had been closed before the batch.
        seconds: length of a window.
        books: where the batch's numbers have their names.
    """
    count = len(flows)
    again = shares.record[count:]
    base = int(shares.window.min())
    slots = int(shares.window.max()) - base + 1
    shift = (len(books.interfaces.exporters) - 1).bit_length()

    def by(interface: Ints) -> Grouped:
        keys = np.concatenate([interface, interface[again]]) if len(again) else interface
        return grouped((shares.window - base << shift) | keys, slots << shift)

    def summed(rows: Grouped, columns: dict[Field, Ints | None]) -> pl.DataFrame:
        nothing = np.zeros(len(rows.keys), np.int64)
        place = {WINDOW: ((rows.keys >> shift) + base) * seconds, _LINK: rows.keys & ((1 << shift) - 1)}
        sums = {field.name: nothing if column is None else rows.sum(column) for field, column in columns.items()}
        return pl.DataFrame({**place, **sums})

    def records(marks: Flags | Ints) -> Ints:
        # Counted where the record begins.
        whole = np.zeros(len(shares.window), np.int64)
        whole[:count] = marks
        return whole

    suppressed = ~flows.counts
    suppressed = np.concatenate([suppressed, suppressed[again]]) if len(again) else suppressed
    is_late = shares.window < closed
    columns = {
        # Equal records of one datagram share a line of pmacct's; of sFlow so do samples, and the line counts.
        schema.EXPORTER_RECORDS: records(np.where(flows.is_sflow, 1, flows.flows)),
        schema.EXPORTER_BYTES: shares.bytes,
        schema.EXPORTER_SUPPRESSED: shares.bytes * suppressed,
        schema.UNKNOWN_RATE: records(flows.unknown_rate) if flows.unknown_rate.any() else None,
        schema.ZERO_COUNTERS: records(flows.zero) if flows.zero.any() else None,
        schema.SKEWED: records(flows.skewed) if flows.skewed.any() else None,
        schema.LATE_BYTES: np.where(is_late, shares.bytes, 0) if is_late.any() else None,
        schema.CLAMPED_BYTES: shares.clamped if shares.clamped.any() else None,
    }
    left: dict[Field, Ints | None] = {schema.EXPORTER_BYTES: shares.bytes}
    return LinkSums(summed(by(flows.entered), columns), summed(by(flows.left), left))


def link_points(parts: Sequence[LinkSums], books: Normaliser) -> dict[str, pl.DataFrame]:
    """Return the partial points of EXPORTER_STATUS and INTERFACE_TRAFFIC, by measurement name."""
    entered, left = pl.concat([part.entered for part in parts]), pl.concat([part.left for part in parts])
    return {
        schema.EXPORTER_STATUS.name: _exporters(entered, books),
        schema.INTERFACE_TRAFFIC.name: _interfaces(entered, left, books),
    }


def _exporters(entered: pl.DataFrame, books: Normaliser) -> pl.DataFrame:
    number = pl.Series(schema.EXPORTER, books.interfaces.exporters[entered.get_column(_LINK).to_numpy()])
    whole = entered.drop(_LINK).with_columns(number).group_by(schema.EXPORTER, WINDOW).agg(pl.all().sum())
    names = pl.Series("names", books.exporters.names, pl.String)
    return whole.with_columns(names.gather(whole.get_column(schema.EXPORTER)).alias(schema.EXPORTER))


def _interfaces(entered: pl.DataFrame, left: pl.DataFrame, books: Normaliser) -> pl.DataFrame:
    """Return both sides of every interface, without those that are none."""
    own, other = schema.IN_BYTES.name, schema.OUT_BYTES.name
    nothing, volume = pl.lit(0, pl.Int64), pl.col(schema.EXPORTER_BYTES.name)
    sides = [
        entered.select(WINDOW, _LINK, volume.alias(own), nothing.alias(other)),
        left.select(WINDOW, _LINK, nothing.alias(own), volume.alias(other)),
    ]
    return named_links(pl.concat(sides).group_by(WINDOW, _LINK).agg(pl.all().sum()), books)


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
