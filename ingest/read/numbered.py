"""Numbers that pmacct gives to records as they arrive; they show which lines hold a record that was read twice.

pmacct's print plugin may read a record twice, once in many million (docs/architecture.md). It then shares one line with
itself, with twice its bytes and packets, like two records that are equal in everything that is printed. So its core
numbers records before the plugin sees them: no two are equal any more, and what still shares a line is one record.
"""

import numpy as np
import polars as pl

from ingest.collect.template_file import TemplateFile
from ingest.flows.text_numbers import Vocabulary, Words
from ingest.read import records
from ingest.read.readers_format import Format

_LINES, _HEAD_BYTES = 20, 1 << 14
_ENOUGH, _MANY = 1000, 100_000
"""Lines of an exporter after which a single one of several flows is no habit of the exporter's; and after which few are
none, wherever in their datagrams they stand."""

_SELDOM = 10_000
"""Lines of an exporter to one of several flows, at least, where that is no habit. pmacct reads one in millions twice;
where the machine has much else to do, one in some hundred thousand."""

_SELDOM_TOLD = 1000
"""The same with an exporter whose templates have no count of flows: from the second such line on, since what is read
now may have been sent before its templates were others."""

_REMEMBERED = 2_000_000
"""Lines of an exporter that count; then those before weigh half, since habits change with a configuration."""

_EXPORTERS = 4096
"""Whose habits are known; of further ones every line is believed."""

MAP = f"set_tag2={records.FIRST_NUMBER}++\n"
"""pmacct's ``pre_tag_map`` that numbers them; each start of a daemon begins again."""

_NO_MAC = "00:00:00:00:00:00"
SFLOW_MAP = f"set_tag2={records.FIRST_IP_NUMBER}++ src_mac={_NO_MAC} dst_mac={_NO_MAC}\n{MAP}"
"""That of sfacctd: samples that hold no frame have numbers of their own. Their bytes are IP's, a frame's are not."""


def first_number(fmt: Format, raw: bytes) -> int | None:
    """Return the number of the first of the CSV records of this format with which a text begins; None without one."""
    if records.NUMBER_COLUMN not in fmt.titles:
        return None
    place, separator = fmt.titles.index(records.NUMBER_COLUMN), fmt.separator
    # Markers and garbage may stand before the first record.
    for line in raw[:_HEAD_BYTES].split(b"\n", _LINES)[:_LINES]:
        fields = line.decode("utf-8", "replace").split(separator)
        if place < len(fields) and records.is_number(fields[place]):
            return int(fields[place])
    return None


class Habits:
    """How many lines of each exporter stood for one flow, and for several, in all that was read so far.

    What a file has had to read at once says little: while flows come, it is a second's.

    Args:
        templates: what nfacctd knows of the exporters' templates; by default nothing is.

    Attributes:
        vocabulary: knows the exporters' addresses.
    """

    def __init__(self, templates: TemplateFile | None = None) -> None:
        self._templates = templates
        self._lines: dict[str, int] = {}
        self._several: dict[str, int] = {}
        self.vocabulary = Vocabulary()

    def take(self, frame: pl.DataFrame, exporters: Words) -> pl.DataFrame:
        """Count a frame's lines; return ``lines`` and ``several`` of its exporters, with all before."""
        lines_of = np.bincount(exporters.codes).tolist()
        is_several = frame.get_column(records.FLOWS).to_numpy() > 1
        several_of = np.bincount(exporters.codes[is_several], minlength=len(lines_of)).tolist()
        rows = []
        for exporter, lines, several in zip(exporters.texts, lines_of, several_of, strict=True):
            if exporter is None or (exporter not in self._lines and len(self._lines) >= _EXPORTERS):
                continue
            lines += self._lines.get(exporter, 0)  # noqa: PLW2901 - with those before
            several += self._several.get(exporter, 0)  # noqa: PLW2901
            rows.append((exporter, lines, several))
            halves = 2 if lines > _REMEMBERED else 1
            self._lines[exporter], self._several[exporter] = lines // halves, several // halves
        columns = {records.EXPORTER: pl.String, "lines": pl.Int64, "several": pl.Int64}
        return pl.DataFrame(rows, schema=columns, orient="row")

    def without_flow_count(self, exporters: pl.Series) -> list[str]:
        """Return those of some exporters whose templates of NetFlow v9 or IPFIX are known to have no count of flows."""
        templates = self._templates
        if templates is None:
            return []
        return [exporter for exporter in exporters.drop_nulls().unique() if templates.lacks_flow_count(exporter)]


def once_each(frame: pl.DataFrame, habits: Habits, exporters: Words) -> tuple[pl.DataFrame, int]:
    """Return numbered records with those that were read twice once, and how many these were.

    NetFlow v5 and sFlow have no records of several flows: there, two are proof. In v9 and IPFIX an exporter may count
    flows itself (IE 3, deltaFlowCount), and does so as a rule. Where its templates are known to have no such count, a
    line is taken for one record from the first on. Where nobody knows, it is if lines of several flows are seldom with
    its exporter; as long as little was heard of it, the line has to be the only such one, and the last of its datagram:
    most often the plugin goes back to a record where no other had come.

    Args:
        frame: RECORD_SCHEMA, in the order in which pmacct printed it.
        habits: of what was read before; it learns of this.
        exporters: those of the frame.
    """
    known = habits.take(frame, exporters)
    is_double = frame.get_column(records.FLOWS) == 2
    if not is_double.any():
        return frame, 0
    is_one_flow = pl.col(records.VERSION).is_in([5, records.SFLOW, records.SFLOW_IP]).fill_null(value=False)
    lines, several = (
        frame.select(records.EXPORTER)
        .join(known, on=records.EXPORTER, how="left", maintain_order="left")
        .get_columns()[1:]
    )
    is_seldom = (lines >= _MANY) & (several * _SELDOM <= lines)
    is_odd_one = (several == 1) & (lines >= _ENOUGH)
    is_last = pl.struct(records.EXPORTER, records.DOMAIN, records.SEQ).is_last_distinct()
    told = habits.without_flow_count(frame.filter(is_double).get_column(records.EXPORTER))
    is_few = ((several - 1) * _SELDOM_TOLD <= lines).fill_null(value=True)
    is_told = pl.col(records.EXPORTER).is_in(told) & pl.lit(is_few)
    is_even = pl.all_horizontal(pl.col(records.BYTES, records.PACKETS) % 2 == 0)
    is_no_habit = pl.lit(is_seldom.fill_null(value=False)) | (pl.lit(is_odd_one.fill_null(value=False)) & is_last)
    is_again = frame.select(pl.lit(is_double) & is_even & (is_one_flow | is_told | is_no_habit)).to_series()
    names = (records.BYTES, records.PACKETS, records.FLOWS)
    once = frame.with_columns(
        pl.when(is_again).then(pl.col(name) // 2).otherwise(pl.col(name)).alias(name) for name in names
    )
    return once, int(is_again.sum())
