"""Records that count both directions, as Cisco's ASA exports them: one record becomes one of each direction.

With ``tmp_asa_bi_flow`` nfacctd prints the initiator's bytes (IE 231) as bytes and the responder's (IE 232) as packets:
how many packets there were, nobody tells.
"""

from collections.abc import Set as AbstractSet

import polars as pl

from ingest.read import records

_TEMPLATED = (9, 10)
_SWAPPED = {
    records.SRC: records.DST,
    records.SRC_PORT: records.DST_PORT,
    records.IFACE_IN: records.IFACE_OUT,
}


def with_replies(frame: pl.DataFrame, exporters: AbstractSet[str]) -> pl.DataFrame:
    """Return records, and behind them those of the way back of exporters that count both ways in one.

    Args:
        frame: RECORD_SCHEMA.
        exporters: who does so.
    """
    if not exporters or frame.is_empty():
        return frame
    is_theirs = pl.col(records.EXPORTER).is_in(list(exporters)) & pl.col(records.VERSION).is_in(_TEMPLATED)
    is_theirs = is_theirs.fill_null(value=False)
    replied = frame.filter(is_theirs & (pl.col(records.PACKETS) > 0))
    back = {one: pl.col(other) for one, other in (_SWAPPED | {b: a for a, b in _SWAPPED.items()}).items()}
    replies = replied.with_columns(
        **back,
        **{records.BYTES: pl.col(records.PACKETS), records.PACKETS: pl.lit(0, pl.Int64)},
        # The exporter numbered one record; whose flags they are is not told.
        **{records.SEQ: pl.lit(None, pl.Int64), records.TCP_FLAGS: pl.lit(0, pl.Int32)},
    )
    # Also a connection that begins or is refused makes a record without bytes: no flow of which they are missing.
    is_nothing = is_theirs & (pl.col(records.BYTES) == 0)
    forth = frame.with_columns(
        pl.when(is_theirs).then(0).otherwise(pl.col(records.PACKETS)).alias(records.PACKETS),
        pl.when(is_nothing).then(0).otherwise(pl.col(records.FLOWS)).alias(records.FLOWS),
    )
    return pl.concat([forth, replies])
