"""Flows as rows of the flow archive, and how good an exporter's record is where several may have the same packets."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from archive import samples, schema
from ingest.count.grouped import renumbered
from ingest.flows.exporters import ExporterBook
from ingest.flows.normalise import Flags, Flows, Ints, Normaliser

DESCRIBED, GUESSED = 0, 3
"""Quality, the smaller the better: of described exporters, of records of unknown rate; else twice the sampling rate.

Of described ones that sample, one less than of others.
"""
CLOUD = 1
"""Quality of a cloud's flow logs that are not sampled: times are those of its intervals, up to a minute off."""
_SCALED = 2 * 1000 + 1
"""Quality of an exporter that scales its counters itself: the rate is not known, 1 in 1000 is usual."""
_FEW = 8
"""Rows a word, at least, of a column that is written as words and their places."""


def qualities(flows: Flows, exporters: ExporterBook) -> Ints:
    """Return the quality of each flow's exporter."""
    quality = np.where(flows.unknown_rate, GUESSED, 2 * flows.rate)
    for is_so, value in (
        (exporters.is_cloud, CLOUD),
        (exporters.is_scaled, _SCALED),
    ):
        if is_so.any():
            quality = np.where(is_so[flows.exporter], value, quality)
    if exporters.is_described.any():
        described = np.where(quality > GUESSED + 1, quality - 1, np.where(quality > GUESSED, quality, DESCRIBED))
        quality = np.where(exporters.is_described[flows.exporter], described, quality)
    return quality


def archive_rows(flows: Flows, held: Flags | None, books: Normaliser, window: int) -> pl.DataFrame:
    """Return the rows of the archive, texts as Enums; packets sampled by sFlow are added up by conversation and window.

    Args:
        flows: a batch.
        held: which of them count only if no better exporter saw them.
        books: names of their codes.
        window: seconds.
    """
    rank = np.zeros(len(flows), np.int64)
    if held is not None:
        rank = np.where(
            held, 1 + qualities(flows, books.exporters) * schema.EXPORTERS + books.exporters.order[flows.exporter], 0
        )
    frame = pl.DataFrame(
        {
            schema.START: flows.start // 1000,
            schema.END: flows.end // 1000,
            schema.EXPORTER: flows.exporter,
            schema.IN_INTERFACE: flows.entered,
            schema.OUT_INTERFACE: flows.left,
            schema.SRC: flows.src,
            schema.DST: flows.dst,
            schema.SRC_PORT: flows.src_port.astype(np.uint16),
            schema.DST_PORT: flows.dst_port.astype(np.uint16),
            schema.PROTOCOL: flows.protocol,
            schema.TCP_FLAGS: flows.tcp_flags.astype(np.uint16),
            schema.SERVICE: flows.service.astype(np.int64),
            schema.BYTES: flows.bytes,
            schema.PACKETS: flows.packets,
            schema.FLOWS: flows.flows,
            schema.RATE: flows.rate,
            schema.COUNTED: flows.counts,
            schema.RANK: rank,
        }
    )
    if flows.is_sflow.any():
        frame = _folded(frame, flows.is_sflow, window)
    book = books.addresses
    # Of each code, the columns that it fills, and their texts.
    groups = pl.Series(book.groups, dtype=pl.String)[book.group_codes]
    texts: dict[str, dict[str, pl.Series]] = {
        schema.EXPORTER: {schema.EXPORTER: pl.Series(books.exporters.names, dtype=pl.String)},
        schema.IN_INTERFACE: {schema.IN_INTERFACE: books.interfaces.names},
        schema.OUT_INTERFACE: {schema.OUT_INTERFACE: books.interfaces.names},
        schema.SRC: {schema.SRC: book.texts, schema.SRC_NODE: book.names, schema.SRC_GROUP: groups},
        schema.DST: {schema.DST: book.texts, schema.DST_NODE: book.names, schema.DST_GROUP: groups},
        schema.PROTOCOL: {schema.PROTOCOL: pl.Series(books.protocols, dtype=pl.String)},
        schema.SERVICE: {schema.SERVICE: pl.Series(books.services.names, dtype=pl.String)},
    }
    named = [
        column.alias(name)
        for code, filled in texts.items()
        for name, column in zip(filled, coded(frame[code].to_numpy(), *filled.values()), strict=True)
    ]
    return frame.with_columns(named).select(list(schema.SCHEMA))


def sample_rows(flows: Flows, books: Normaliser, training: Flags) -> pl.DataFrame:
    """Return the packet samples between training nodes, `archive.samples.SCHEMA`; `training`: [group code]."""
    book = books.addresses
    is_inside = training[book.group_codes[flows.src]] & training[book.group_codes[flows.dst]]
    kept = np.flatnonzero(flows.is_sflow & flows.counts & is_inside)
    src, dst = flows.src[kept], flows.dst[kept]
    names = pl.Series(books.exporters.names, dtype=pl.String)
    values = {
        samples.TIME: flows.end[kept],
        samples.EXPORTER: names.gather(flows.exporter[kept]),
        samples.SRC: book.names.gather(src),
        samples.DST: book.names.gather(dst),
        samples.SRC_RAIL: book.rails[src],
        samples.DST_RAIL: book.rails[dst],
        samples.BYTES: flows.bytes[kept],
    }
    return pl.DataFrame(values).cast(samples.SCHEMA)  # type: ignore[arg-type]


def _folded(frame: pl.DataFrame, is_sflow: Flags, window: int) -> pl.DataFrame:
    """Add up samples of the same window: a conversation has many."""
    summed = (schema.START, schema.END, schema.BYTES, schema.PACKETS, schema.FLOWS)
    keys = [name for name in frame.columns if name not in summed]
    sums = (
        frame.filter(pl.Series(is_sflow))
        .group_by(*keys, pl.col(schema.END) // window)
        .agg(
            pl.min(schema.START),
            pl.max(schema.END).alias("last"),
            *(pl.sum(name) for name in (schema.BYTES, schema.PACKETS, schema.FLOWS)),
        )
        .with_columns(pl.col("last").alias(schema.END))
    )
    return pl.concat([frame.filter(pl.Series(~is_sflow)), sums.select(frame.columns)])


def coded(codes: Ints, *texts: pl.Series) -> Iterator[pl.Series]:
    """Yield of each series of texts the column of those at `codes`: an Enum of the words that it has.

    Parquet's dictionaries are made of these, and nothing is done with the text of each row. Of nearly as many words as
    rows, it is String.
    """
    if len(texts[0]) * _FEW > len(codes):
        used, codes = renumbered(codes, len(texts[0]))
        texts = tuple(text[used] for text in texts)
    places = pl.Series(codes.astype(np.uint32))
    # Indexed: `gather` runs a query each time.
    for text in texts:
        few = len(text) * _FEW <= len(codes)
        yield (text.cast(pl.Enum(text if text.n_unique() == len(text) else text.unique())) if few else text)[places]
