"""Threat feeds, from cluster.yaml."""

from pathlib import Path

from cluster.document import Faults
from cluster.kinds import Placed, Table
from cluster.model import FeedColumns, FeedFormat, ThreatFeed


def build_threat_feeds(tables: dict[str, Placed[Table]], folder: Path, faults: Faults) -> tuple[ThreatFeed, ...]:
    """Return the feeds in the order of the file, and record what does not fit their format.

    Args:
        tables: what the file says.
        folder: what relative paths are relative to.
        faults: added to.
    """
    found = []
    for name, placed in tables.items():
        table = dict(placed.value)
        columns: Table | None = table.pop("columns", None)
        is_csv = table.get("format") is FeedFormat.CSV
        if is_csv and columns is None:
            faults.add(f"{placed.path}.columns", "missing", "the columns of the CSV file", "at least `address`")
        elif columns is not None and "format" in table and not is_csv:
            faults.add(f"{placed.path}.columns", "given", f"none, as the format is {table['format']}")
        if "file" in table:
            table["file"] = str(folder / table["file"])
            found.append(ThreatFeed(name, **table, columns=_columns(columns or {})))
    return tuple(found)


def _columns(table: Table) -> FeedColumns:
    named = {"address": "address", "confidence": "confidence", "start": "valid_from", "end": "valid_until"}
    return FeedColumns(**{attribute: table.get(key) or "" for attribute, key in named.items()})
