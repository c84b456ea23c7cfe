"""Numbers that pmacct gives to records as they arrive; they show which lines hold a record that was read twice.

pmacct's print plugin may read a record twice, once in many million (decision 0009). It then stands in one line with
itself, with twice its bytes and packets, like two records that are equal in everything that is printed. So its core
numbers records before the plugin sees them: no two are equal any more, and what still shares a line is one record.
"""

import polars as pl

from ingest import records
from ingest.readers_format import Format

_LINES, _HEAD_BYTES = 20, 1 << 14
_ENOUGH = 1000
"""Lines of an exporter of which but one stands for two flows, before that one is no habit of the exporter's."""

MAP = f"set_tag2={records.FIRST_NUMBER}++\n"
"""pmacct's ``pre_tag_map`` that numbers them; each start of a daemon begins anew."""


def is_numbered(fmt: Format, raw: bytes) -> bool:
    """Whether CSV records of this format, with which a text begins, are numbered."""
    if records.NUMBER_COLUMN not in fmt.titles:
        return False
    place, separator = fmt.titles.index(records.NUMBER_COLUMN), fmt.separator
    # Markers and garbage may stand before the first record.
    for line in raw[:_HEAD_BYTES].split(b"\n", _LINES)[:_LINES]:
        fields = line.decode("utf-8", "replace").split(separator)
        if place < len(fields) and records.is_number(fields[place]):
            return True
    return False


def once_each(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return numbered records with those that were read twice once, and how many these were.

    NetFlow v5 and sFlow have no records of several flows: there, two are proof. In v9 and IPFIX an exporter may count
    flows itself (IE 3, deltaFlowCount), and does so as a rule. There, a line is taken for one record if it is the only
    one of several flows among many of its exporter, and the last of its datagram: the plugin goes back to a record only
    where no other had come.

    Args:
        frame: RECORD_SCHEMA, in the order in which pmacct printed it.
    """
    is_double = frame.get_column(records.FLOWS) == 2
    if not is_double.any():
        return frame, 0
    is_one_flow = pl.col(records.VERSION).is_in([5, records.SFLOW]).fill_null(value=False)
    several = (pl.col(records.FLOWS) > 1).sum().over(records.EXPORTER)
    is_odd_one = (several == 1) & (pl.len().over(records.EXPORTER) >= _ENOUGH)
    is_last = pl.struct(records.EXPORTER, records.DOMAIN, records.SEQ).is_last_distinct()
    is_even = pl.all_horizontal(pl.col(records.BYTES, records.PACKETS) % 2 == 0)
    is_again = frame.select(pl.lit(is_double) & is_even & (is_one_flow | (is_odd_one & is_last))).to_series()
    names = (records.BYTES, records.PACKETS, records.FLOWS)
    once = frame.with_columns(
        pl.when(is_again).then(pl.col(name) // 2).otherwise(pl.col(name)).alias(name) for name in names
    )
    return once, int(is_again.sum())
