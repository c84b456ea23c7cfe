"""Numbers that pmacct gives to records as they arrive; they show which lines hold a record that was read twice.

pmacct's print plugin may read a record twice, once in many million (decision 0009). It then stands in one line with
itself, with twice its bytes and packets, like two records that are equal in everything that is printed. So its core
numbers records before the plugin sees them: no two are equal any more, and what still shares a line is one record.
"""

import polars as pl

from ingest import records
from ingest.readers_format import Format

FIRST = 10**12
"""Number of the first record. Nobody's own tags are so large: smaller ones are not ours, and show nothing."""

_DIGITS = 20
"""Of the largest number of 64 bits."""

_OFTEN = 0.01
"""An exporter of which one line in a hundred stands for several flows says so itself (IE 3, deltaFlowCount)."""

MAP = f"set_tag2={FIRST}++\n"
"""pmacct's ``pre_tag_map`` that numbers them; each start of a daemon begins anew."""


def is_numbered(fmt: Format, record: str) -> bool:
    """Whether CSV records of this format, of which one is given, are numbered."""
    if records.NUMBER_COLUMN not in fmt.titles:
        return False
    fields = record.split(fmt.separator)
    place = fmt.titles.index(records.NUMBER_COLUMN)
    number = fields[place] if place < len(fields) else ""
    return number.isdecimal() and len(number) <= _DIGITS and int(number) >= FIRST


def once_each(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return numbered records with those that were read twice once, and how many these were.

    NetFlow v5 and sFlow have no records of several flows. In v9 and IPFIX an exporter may send such records, and then
    it does so as a rule; where it does, a line of two flows is left as it is.

    Args:
        frame: RECORD_SCHEMA.
    """
    is_double = frame.get_column(records.FLOWS) == 2
    if not is_double.any():
        return frame, 0
    is_one_flow = pl.col(records.VERSION).is_in([5, records.SFLOW]).fill_null(False)
    is_rare = (pl.col(records.FLOWS) > 1).mean().over(records.EXPORTER) < _OFTEN
    counters = pl.col(records.BYTES, records.PACKETS)
    is_even = pl.all_horizontal(counters % 2 == 0)
    is_again = frame.select(pl.lit(is_double) & is_even & (is_one_flow | is_rare)).to_series()
    names = (records.BYTES, records.PACKETS, records.FLOWS)
    once = frame.with_columns(
        pl.when(is_again).then(pl.col(name) // 2).otherwise(pl.col(name)).alias(name) for name in names
    )
    return once, int(is_again.sum())
