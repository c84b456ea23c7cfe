"""What a cloud's flow logs tell beside traffic: packets that were not let through, and records that were left out."""

import numpy as np
import polars as pl

from ingest.flows.normalise import Flows, Normaliser
from ingest.read import records
from store import schema
from store.points import WINDOW

_ANSWERS = -1
"""In place of the port of a server, which did not open the conversation."""


def denied_points(flows: Flows, books: Normaliser, *, seconds: int, oldest: int | None) -> pl.DataFrame:
    """Return partial points of DENIED.

    Args:
        flows: what was not let through.
        books: names of their codes.
        seconds: of a window.
        oldest: number of the oldest window that can still change; None: all can.
    """
    book = books.addresses
    groups = pl.Series(book.groups, dtype=pl.String)
    src, dst = pl.Series(flows.src), pl.Series(flows.dst)
    window = np.maximum(flows.start // (seconds * 1000), oldest or 0) * seconds
    return (
        pl.DataFrame(
            {
                WINDOW: window,
                schema.SRC_GROUP: groups.gather(pl.Series(book.group_codes[flows.src], dtype=pl.UInt32)),
                schema.DST_GROUP: groups.gather(pl.Series(book.group_codes[flows.dst], dtype=pl.UInt32)),
                schema.SRC: book.names.gather(src),
                schema.DST: book.names.gather(dst),
                schema.SERVICE: pl.Series(books.services.names, dtype=pl.String).gather(
                    pl.Series(flows.service.astype(np.int64))
                ),
                schema.PACKETS.name: flows.packets,
                schema.FLOWS.name: flows.flows,
                schema.PORTS.name: np.where(flows.dst_opened, _ANSWERS, flows.dst_port),
            }
        )
        .group_by(WINDOW, schema.SRC_GROUP, schema.DST_GROUP, schema.SRC, schema.DST, schema.SERVICE)
        .agg(
            pl.sum(schema.PACKETS.name, schema.FLOWS.name),
            pl.col(schema.PORTS.name).filter(pl.col(schema.PORTS.name) != _ANSWERS).n_unique().cast(pl.Int64),
        )
    )


def gap_points(gaps: pl.DataFrame, *, seconds: int, oldest: int | None) -> pl.DataFrame:
    """Return partial points of LOG_GAP: where something may have gone by.

    Args:
        gaps: with GAP_SCHEMA.
        seconds: of a window.
        oldest: number of the oldest window that can still change; None: all can.
    """
    window = pl.max_horizontal(pl.col(records.START) // (seconds * 1000), pl.lit(oldest or 0)) * seconds
    return (
        gaps.filter(pl.col("reason") == records.Gap.SKIPDATA.value)
        .group_by(window.alias(WINDOW), pl.col("interface").alias(schema.INTERFACE))
        .agg(pl.len().cast(pl.Int64).alias(schema.SKIPPED.name))
    )
