"""Both ends of a conversation write it down: which of the two an interface is.

Where a log says so (AWS: `flow-direction`, Google: `reporter`, Azure: the tuple's direction), the sender's records are
of the exporter that has the provider's name, and the receiver's of its other end. AWS's default format does not say so:
of each pair of addresses, the interface that is read first stands for one end, and all others for the other. Which end
counts a conversation is then found as for any two exporters that see the same traffic (`ingest.count.once`): what only
one of them has is never lost, and what both have counts once.
"""

import polars as pl

from cluster.model import CloudFormat
from ingest.read import records

INTERFACE = "interface"
IS_SENDER = "is_sender"
"""Columns that readers hand over beside those of records: the interface's id, and null where the log does not tell."""

_LOW, _HIGH, _FIRST = "low", "high", "first"
_PAIR = [_LOW, _HIGH]
_SCHEMA = {_LOW: pl.UInt64, _HIGH: pl.UInt64, _FIRST: pl.UInt64}
_MOST_PAIRS = 4_000_000
"""Remembered: about 100 MB. Beyond them the oldest go; such a pair may count twice around that moment."""


class Ends:
    """Remembers which interface was first to tell of each pair of addresses.

    Attributes:
        pairs: hashes of the smaller and the larger address, and of that interface; a new frame with each change.
    """

    def __init__(self, cloud: CloudFormat) -> None:
        self._names = cloud.value, records.other_end(cloud.value)
        self.pairs = pl.DataFrame(schema=_SCHEMA)

    def name(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return records with the exporter of each, given the columns INTERFACE and IS_SENDER."""
        one, other = self._names
        is_sender = frame.get_column(IS_SENDER)
        if is_sender.null_count():
            is_sender = is_sender.fill_null(self._is_first(frame))
        named = frame.with_columns(
            pl.when(is_sender).then(pl.lit(one)).otherwise(pl.lit(other)).alias(records.EXPORTER)
        )
        return named.drop(INTERFACE, IS_SENDER)

    def _is_first(self, frame: pl.DataFrame) -> pl.Series:
        """Return whether each record's interface is the first that told of its addresses."""
        src, dst = (frame.get_column(name).hash() for name in (records.SRC, records.DST))
        rows = pl.DataFrame({_LOW: src, _HIGH: dst, INTERFACE: frame.get_column(INTERFACE).hash()}).with_columns(
            pl.min_horizontal(_PAIR).alias(_LOW), pl.max_horizontal(_PAIR).alias(_HIGH)
        )
        # The smallest, not that of the first line: the order of lines in a file is nobody's promise.
        seen = rows.group_by(_PAIR).agg(pl.min(INTERFACE).alias(_FIRST))
        fresh = seen.join(self.pairs, on=_PAIR, how="anti")
        if fresh.height:
            self.pairs = pl.concat([self.pairs, fresh.select(list(_SCHEMA))]).tail(_MOST_PAIRS)
        found = rows.join(self.pairs, on=_PAIR, how="left", maintain_order="left")
        return (found.get_column(_FIRST) == found.get_column(INTERFACE)).fill_null(value=False)
