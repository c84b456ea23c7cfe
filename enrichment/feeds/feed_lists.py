"""Threat feeds as text: an address or prefix a line, or CSV whose columns cluster.yaml names."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.errors import UserError
from cluster.model import FeedColumns
from enrichment.feeds.feed import Entries, moment

_COMMENTS = ("#", ";")
_SEPARATORS = (",", ";", "\t", "|")

_UNREADABLE = "is it a web page, or something else that is no CSV? Fetch it again"


def place(number: int) -> str:
    """Return where a line stands."""
    return f"line {number}"


def read_list(text: str, entries: Entries) -> None:
    """Read a line at a time: the first word counts, what follows ``#`` or ``;`` is a comment."""
    for number, line in enumerate(text.splitlines(), start=1):
        for sign in _COMMENTS:
            line = line.partition(sign)[0]  # noqa: PLW2901 - a line less its comment
        words = line.split(maxsplit=1)
        if words:
            entries.add(number, words[0])


def read_csv(text: str, entries: Entries, columns: FeedColumns, path: Path) -> None:
    """Read rows below a header, which may itself be a comment, as some feeds have it.

    Raises:
        UserError: no line has the columns that cluster.yaml names, or one is none of CSV.
    """
    lines = text.splitlines()
    wanted = [name for name in (columns.address, columns.confidence, columns.start, columns.end) if name]
    found = _header(lines, wanted, path)
    if found is None:
        raise UserError(f"{path}: no header with the columns {', '.join(wanted)}", "`columns` of the feed names them")
    after, separator, header = found
    places = {name: header.index(name) for name in wanted}
    for number, cells in _rows(lines, after, separator, path):

        def cell(name: str, cells: Sequence[str] = cells) -> str:
            return cells[places[name]].strip() if name and places[name] < len(cells) else ""

        address = cell(columns.address)
        try:
            start, end = cell(columns.start), cell(columns.end)
            times = {key: moment(value) for key, value in (("start", start), ("end", end)) if value}
            level = cell(columns.confidence)
            confidence = _confidence(level) if level else None
        except ValueError as error:
            entries.skip(number, ",".join(cells), str(error))
            continue
        entries.add(number, address, confidence=confidence, **times)


def _header(lines: Sequence[str], wanted: Sequence[str], path: Path) -> tuple[int, str, list[str]] | None:
    """Return the number of the header's line, what separates its cells, and the cells."""
    for number, line in enumerate(lines, start=1):
        for separator in _SEPARATORS:
            # A comment's sign and quotes stand before the first name: # "first_seen","ip"
            cells = _split(line.lstrip("#; \ufeff"), separator, path, number)
            if set(wanted) <= set(cells):
                return number, separator, cells
    return None


def _rows(lines: Sequence[str], after: int, separator: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines[after:], start=after + 1):
        if line.strip() and not line.startswith("#"):
            yield number, _split(line, separator, path, number)


def _split(line: str, separator: str, path: Path, number: int) -> list[str]:
    """Return the cells of one line. An unclosed quote ends with the line."""
    try:
        cells = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error as error:
        raise UserError(f"{path}:{number}: no line of CSV: {error}", _UNREADABLE) from None
    return [cell.strip() for cell in cells]


def _confidence(text: str) -> int:
    try:
        found = round(float(text.removesuffix("%")))
    except (ValueError, OverflowError):
        found = -1
    if not 0 <= found <= 100:
        raise ValueError("expected a confidence from 0 to 100")
    return found
