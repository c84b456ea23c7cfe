"""Windows of a second from sFlow's samples, which no flow cache holds back: a training job's steps show in them."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from ingest.count.grouped import grouped
from ingest.count.tag_words import Words
from ingest.count.windows import prorate
from ingest.flows.classify import NO_PLANE
from ingest.flows.normalise import Flows, Ints
from store import schema
from store.points import WINDOW
from store.schema import Field

SECONDS = 1
"""Length of a window."""

GRACE = 60
"""Seconds for which a closed second can still be rewritten. A sample is sent as it is drawn: what comes later was held
up on its way, and goes to the oldest second kept."""

_SRC, _GROUP, _PLANE = "src", "code", "plane_code"


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
    rows = np.flatnonzero(flows.is_sflow & flows.counts)
    src = flows.src[rows]
    rows = rows[listed[src] & (group_codes[src] == group_codes[flows.dst[rows]])]
    if not len(rows):
        return pl.DataFrame()
    packets = flows.packets[rows]
    counts = flows.bytes[rows], packets, np.where(flows.marked[rows], packets, 0)
    shares = prorate(flows.start[rows], flows.end[rows], counts, window_ms=SECONDS * 1000, oldest=oldest)
    own = rows[shares.record]
    place = flows.src[own] * (NO_PLANE + 1) + flows.plane[own]
    second = shares.window * SECONDS
    begin = np.maximum(second // window * window, 0 if oldest is None else oldest)
    sums = pl.concat(
        [
            _summed(second, place, group_codes, {schema.BYTES: shares.bytes}),
            _summed(begin, place, group_codes, {schema.PACKETS: shares.packets, schema.MARKED_PACKETS: shares.flows}),
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


def _summed(windows: Ints, place: Ints, group_codes: np.ndarray, columns: Mapping[Field, Ints]) -> pl.DataFrame:
    """Sum columns by window, source and plane; `place` is source and plane as one number."""
    base, end = int(windows.min()), len(group_codes) * (NO_PLANE + 1)
    # In numpy: a query of polars takes longer than a second's samples.
    found = grouped((windows - base) * end + place, (int(windows.max()) - base + 1) * end)
    slot, place = np.divmod(found.keys, end)
    src, plane = np.divmod(place, NO_PLANE + 1)
    sums = {field.name: found.sum(column) for field, column in columns.items()}
    return pl.DataFrame({WINDOW: slot + base, _SRC: src, _GROUP: group_codes[src], _PLANE: plane, **sums})
