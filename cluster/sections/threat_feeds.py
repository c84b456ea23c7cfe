"""The section `threat_feeds`: lists of addresses that are known to be bad."""

from enum import StrEnum
from pathlib import Path

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import Choice, Placed, Table, Whole


class FeedFormat(StrEnum):
    """What a threat feed's file is: a prefix a line, CSV, a STIX 2.1 bundle or a MISP export."""

    LIST = "list"
    CSV = "csv"
    STIX = "stix"
    MISP = "misp"


# fmt: off
@record
class FeedColumns:
    """Columns of a CSV feed, by its header.

    The header may be a comment; commas, semicolons, tabs or | part the cells.
    """

    address: str = key(names.LINE, "Column with the address or prefix.", example="ip")
    confidence: str = key(names.LINE, "Column with a number from 0 to 100.", default="",
        absent="`confidence` of the feed", example="score")
    start: str = key(names.LINE, "Column with the time from which an entry holds.", default="", name="valid_from",
        absent="it always has", example="first_seen")
    end: str = key(names.LINE, "Column with the time from which it holds no more.", default="", name="valid_until",
        absent="it does not end", example="expires")


FEED_COLUMNS = Section.of(FeedColumns, "columns")


@record
class ThreatFeed:
    """A list of addresses that are known to be bad (docs/enrichment.md); a file alone stands for its `file`."""

    name: str
    file: str = key(names.FILE, "The file; it is read again when it changes.", example="feeds/botnets.txt")
    format: FeedFormat = key(Choice(tuple(FeedFormat)),
        "`list`: an address or prefix a line; `csv`; `stix`: a STIX 2.1 bundle, JSON; `misp`: an export of events or "
        "attributes, JSON.", default=FeedFormat.LIST)
    columns: FeedColumns = key(FEED_COLUMNS, "Where a CSV file has what.", default=FeedColumns(""),
        absent="none; `csv` needs them")
    confidence: int = key(Whole(0, 100), "Confidence in entries that tell none themselves.", default=50)
    least_confidence: int = key(Whole(0, 100), "Entries below it are left out.", default=0)


THREAT_FEED = Section.of(ThreatFeed, "threat feed", short="file")
# fmt: on


def build_threat_feeds(tables: dict[str, Placed[Table]], folder: Path, faults: Faults) -> tuple[ThreatFeed, ...]:
    """Return the feeds in the order of the file, and record what does not fit their format.

    Args:
        tables: what the file says.
        folder: what relative paths are relative to.
        faults: added to.
    """
    found = []
    for name, placed in tables.items():
        table = placed.value
        columns: Table | None = table.get("columns")
        is_csv = table.get("format") is FeedFormat.CSV
        if is_csv and columns is None:
            faults.add(f"{placed.path}.columns", "missing", "the columns of the CSV file", "at least `address`")
        elif columns is not None and "format" in table and not is_csv:
            faults.add(f"{placed.path}.columns", "given", f"none, as the format is {table['format']}")
        found.append(THREAT_FEED.build(table, folder, name=name))
    return tuple(feed for feed in found if feed is not None)
