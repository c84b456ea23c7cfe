"""Windows of a second from sFlow's samples, which no flow cache holds back: a training job's steps show in them."""

import numpy as np
import polars as pl

from ingest.count.tag_words import Words
from ingest.count.windows import prorate
from ingest.flows.normalise import Flows
from store import schema
from store.points import WINDOW

SECONDS = 1
"""Length of a window."""

GRACE = 60
"""Seconds for which a closed second can still be rewritten. A sample is sent as it is drawn: what comes later was held
up on its way, and goes to the oldest second kept."""

_SRC, _GROUP, _PLANE, _PACKETS, _MARKED = "src", "code", "plane_code", "packets", "marked"


def pulse_points(
    flows: Flows, group_codes: np.ndarray, listed: np.ndarray, words: Words, *, oldest: int | None, window: int
) -> pl.DataFrame:
    """Return the partial points of PULSE: bytes of each second; packets, not asked by the second, of each window.

    Args:
        flows: the batch.
        group_codes: address number -> group code.
        listed: address number -> whether the inventory knows the address.
        words: the batch's words.
        oldest: the oldest second kept; None keeps all.
        window: seconds of a window.
    """
    if not flows.is_sflow.any():
        return pl.DataFrame()
    rows = np.flatnonzero(flows.is_sflow & flows.counts)
    src = flows.src[rows]
    rows = rows[listed[src] & (group_codes[src] == group_codes[flows.dst[rows]])]
    packets = flows.packets[rows]
    counts = flows.bytes[rows], packets, np.where(flows.marked[rows], packets, 0)
    shares = prorate(flows.start[rows], flows.end[rows], counts, window_ms=SECONDS * 1000, oldest=oldest)
    own = rows[shares.record]
    pieces = pl.DataFrame(
        {
            WINDOW: shares.window * SECONDS,
            _SRC: flows.src[own],
            _GROUP: group_codes[flows.src[own]],
            _PLANE: flows.plane[own],
            schema.BYTES.name: shares.bytes,
            schema.PACKETS.name: shares.packets,
            schema.MARKED_PACKETS.name: shares.flows,
        }
    )
    begin = (pl.col(WINDOW) // window * window).clip(lower_bound=oldest)
    counted = pieces.drop(schema.BYTES.name).with_columns(begin)
    sums = pl.concat(
        [
            part.group_by(WINDOW, _SRC, _GROUP, _PLANE).agg(pl.all().sum())
            for part in (pieces.drop(schema.PACKETS.name, schema.MARKED_PACKETS.name), counted)
        ],
        how="diagonal",
    )
    return sums.select(
        WINDOW,
        words.name(_SRC, schema.NODE),
        words.group(_GROUP, schema.GROUP),
        words.plane(_PLANE),
        schema.BYTES.name,
        schema.PACKETS.name,
        schema.MARKED_PACKETS.name,
    )
