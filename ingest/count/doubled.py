"""Exporters whose records come twice, and so count twice.

A switch sends to two addresses of the collector, a network doubles datagrams, or a device exports each packet as it
enters and as it leaves. Then nearly every conversation of a moment has two records with the same bytes; with sFlow,
whose samples are often alike, two in datagrams of one number.
"""

import polars as pl

from ingest.read import records

_ROWS = 2_048
"""Of a batch, some so many are looked at."""
_MOMENT_MS = 2_000
_ENOUGH = 64
_REMEMBERED = 256
"""Conversations, the latest of each exporter."""
_SHARE = 0.75
"""Samples of large flows without a cache come by chance: of one or three as often as of two. No more than 0.36 are."""
_MOST = 4_096
_AT, _NUMBER, _COUNT, _TWICE = "at", "number", "count", "twice"
_KEY = (records.SRC, records.DST, records.SRC_PORT, records.DST_PORT, records.PROTOCOL, records.BYTES, records.PACKETS)


class DoubledExporters:
    """Follows whose records come twice."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}

    def take(self, frame: pl.DataFrame) -> None:
        """Take records (RECORD_SCHEMA), each of them in a row of its own."""
        some = _some(frame)
        each = some.group_by(records.EXPORTER, _AT, _NUMBER, *_KEY).agg(pl.len().alias(_COUNT))
        # One of four: a flow that is large, or one of two that came twice.
        telling = each.filter((pl.col(_COUNT) == 2) | (pl.col(_COUNT) % 2 == 1))
        found = telling.group_by(records.EXPORTER).agg((pl.col(_COUNT) == 2).sum().alias(_TWICE), pl.len())
        for exporter, *fresh in found.iter_rows():
            if exporter is None or (exporter not in self._seen and len(self._seen) >= _MOST):
                continue
            twice, count = map(sum, zip(self._seen.get(exporter, (0.0, 0.0)), fresh, strict=True))
            fit = min(1.0, _REMEMBERED / count)
            self._seen[exporter] = twice * fit, count * fit

    def told(self) -> set[str]:
        """Return the addresses of those whose records come twice."""
        return {one for one, (twice, count) in self._seen.items() if count >= _ENOUGH and twice >= _SHARE * count}


def _some(frame: pl.DataFrame) -> pl.DataFrame:
    """Return all records of some conversations, with when they came, and sFlow's with their datagram's number."""
    wanted = frame.height // _ROWS + 1
    if wanted > 1:
        ports = (records.whole(frame.get_column(name)) for name in (records.SRC_PORT, records.DST_PORT))
        mixed = sum(ports, records.whole(frame.get_column(records.BYTES))) * 2_654_435_761
        frame = frame.filter(pl.Series((mixed >> 16) % wanted == 0))
    is_sflow = pl.col(records.VERSION).is_in((records.SFLOW, records.SFLOW_IP))
    return frame.select(
        records.EXPORTER,
        *_KEY,
        (pl.col(records.ARRIVAL) // _MOMENT_MS).alias(_AT),
        pl.when(is_sflow).then(pl.col(records.SEQ) + pl.col(records.DOMAIN) * (1 << 32)).alias(_NUMBER),
    )
