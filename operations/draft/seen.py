"""What an hour of flow records says, added up: conversations, and exporters."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cluster.model import CloudFormat
from ingest.cloud.files import CloudFiles, CloudReader
from ingest.read import records
from ingest.read.readers import read_chunk
from ingest.read.records import Parsed
from ingest.read.spool import Spool

_CHUNK_BYTES = 16 << 20
_LEAST_ROWS = 10_000
"""Rows of a part that wait at least before they are added up."""
_PARTS = 32
"""Conversations are added up in so many parts, by addresses: adding takes some times the room of what is added."""
_TEXT = pl.Categorical()

ONE, OTHER, ONE_PORT, OTHER_PORT, PROTOCOL = "one", "other", "one_port", "other_port", "protocol"
SENT, BACK, RECORDS = "sent", "back", "records"
EXPORTER, RATE, VERSION, INTERFACE = "exporter", "rate", "version", "interface"
_KEY = [ONE, OTHER, ONE_PORT, OTHER_PORT, PROTOCOL]
_PART = "part"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen.

    Attributes:
        conversations: one, other (addresses as categories, `one` the smaller text), one_port, other_port, protocol
            (number), sent (bytes from one to other, by the exporter that saw most), back (bytes the other way),
            records.
        exporters: exporter (address), version, rate (the largest told; 0: none), records, interface (those by which
            something came in, a list).
        seconds: from the first record's arrival to the last's; of logs, from the first begin to the last end.
        dead: lines that are no records.
    """

    conversations: pl.DataFrame
    exporters: pl.DataFrame
    seconds: int
    dead: int


def look(folder: Path, cloud: CloudFormat | None) -> Seen:
    """Return what the files of a folder say; they stay as they are.

    Raises:
        UserError: the folder is missing, or a bridge reads it.
    """
    sums: list[list[pl.DataFrame]] = [[] for _ in range(_PARTS)]
    by_exporter: list[pl.DataFrame] = []
    first, last, dead = None, None, 0
    for parsed in _parsed(folder, cloud):
        dead += parsed.dead.height
        frame = parsed.frame
        if frame.is_empty():
            continue
        # By the collector's clock: an exporter's wrong one would make an hour thirty years. Logs have no arrival.
        began, ended = (pl.coalesce(records.ARRIVAL, one) for one in (records.START, records.END))
        times = frame.select(began.min().alias("begin"), ended.max().alias("end"), began.max().alias("late")).row(0)
        begin, end = times[0], max((moment for moment in times[1:] if moment is not None), default=None)
        first = begin if first is None or (begin is not None and begin < first) else first
        last = end if last is None or (end is not None and end > last) else last
        for part, found in _sums(frame).partition_by(_PART, as_dict=True, include_key=False).items():
            waiting = sums[part[0]]
            waiting.append(found)
            if sum(one.height for one in waiting[1:]) > max(_LEAST_ROWS, waiting[0].height // 2):
                waiting[:] = [_added(waiting)]
        by_exporter.append(
            frame.select(
                pl.col(records.EXPORTER).fill_null("").alias(EXPORTER),
                pl.col(records.VERSION).fill_null(0).alias(VERSION),
                pl.col(records.SAMPLING_RATE).fill_null(0).alias(RATE),
                pl.col(records.IFACE_IN).fill_null(0).alias(INTERFACE),
            )
            .group_by(EXPORTER, VERSION, INTERFACE)
            .agg(pl.max(RATE), pl.len().cast(pl.Int64).alias(RECORDS))
        )
    if not by_exporter:
        return Seen(pl.DataFrame(), pl.DataFrame(), 0, dead)
    # Of several exporters on the way each saw the same: the one that saw most is taken.
    parts = [_added(part).group_by(_KEY).agg(pl.max(SENT, BACK), pl.sum(RECORDS)) for part in _taken(sums)]
    conversations = pl.concat(parts) if parts else pl.DataFrame()
    exporters = (
        pl.concat(by_exporter)
        .group_by(EXPORTER)
        .agg(
            pl.max(VERSION),
            pl.max(RATE),
            pl.sum(RECORDS),
            pl.col(INTERFACE).filter(pl.col(INTERFACE) > 0).unique().sort(),
        )
        .sort(EXPORTER)
    )
    seconds = 0 if first is None or last is None else int((last - first) / 1000)
    return Seen(conversations, exporters, seconds, dead)


def _parsed(folder: Path, cloud: CloudFormat | None) -> Iterator[Parsed]:
    if cloud is not None:
        reader = CloudReader(cloud)
        files = CloudFiles(folder, cloud, once=True)
        try:
            while (chunk := files.next_chunk(_CHUNK_BYTES)) is not None:
                yield reader.read(chunk)
        finally:
            files.close()
        return
    with Spool(folder, once=True) as spool:
        while (chunk := spool.next_chunk(_CHUNK_BYTES)) is not None:
            yield read_chunk(chunk.raw, chunk.fmt)


def _sums(frame: pl.DataFrame) -> pl.DataFrame:
    """Return conversations of both directions by exporter; bytes scaled by the rate told."""
    src, dst = pl.col(records.SRC), pl.col(records.DST)
    is_one = (src < dst) | ((src == dst) & (pl.col(records.SRC_PORT) <= pl.col(records.DST_PORT)))
    scaled = pl.col(records.BYTES) * pl.max_horizontal(pl.col(records.SAMPLING_RATE).fill_null(1), 1)
    return (
        frame.filter(src.is_not_null() & dst.is_not_null())
        .select(
            # Numbers in place of texts: there may be millions of conversations between some thousand addresses.
            pl.when(is_one).then(src).otherwise(dst).cast(_TEXT).alias(ONE),
            pl.when(is_one).then(dst).otherwise(src).cast(_TEXT).alias(OTHER),
            pl.when(is_one).then(records.SRC_PORT).otherwise(records.DST_PORT).cast(pl.Int32).alias(ONE_PORT),
            pl.when(is_one).then(records.DST_PORT).otherwise(records.SRC_PORT).cast(pl.Int32).alias(OTHER_PORT),
            pl.col(records.PROTOCOL).fill_null(0).cast(pl.Int16).alias(PROTOCOL),
            pl.col(records.EXPORTER).fill_null("").cast(_TEXT).alias(EXPORTER),
            pl.when(is_one).then(scaled).otherwise(0).alias(SENT),
            pl.when(is_one).then(0).otherwise(scaled).alias(BACK),
            pl.lit(1, pl.Int64).alias(RECORDS),
        )
        .group_by(*_KEY, EXPORTER)
        .agg(pl.sum(SENT, BACK, RECORDS))
        .with_columns(((pl.col(ONE).to_physical() + pl.col(OTHER).to_physical()) % _PARTS).alias(_PART))
    )


def _taken(sums: list[list[pl.DataFrame]]) -> Iterator[list[pl.DataFrame]]:
    """Yield the parts that hold anything, and let go of each."""
    while sums:
        if waiting := sums.pop():
            yield waiting


def _added(parts: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).group_by(*_KEY, EXPORTER).agg(pl.sum(SENT, BACK, RECORDS))
