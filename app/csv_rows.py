"""Rows of CSV that other programs wrote: whatever separates their cells, and whether all of the last one is there."""

import csv
import io
from collections.abc import Iterator

SEPARATORS = ",;\t"
"""A semicolon is what spreadsheets write where the comma is the decimal point."""
IS_CUT = "is the file cut off? Copy it once more"
_WRONG = {f"'{one}' expected after '\"'": "a cell that goes on after its closing quote" for one in SEPARATORS}
"""Python's words -> ours."""


class CsvError(ValueError):
    """Text that is no CSV.

    Attributes:
        line: where.
        wrong: what is wrong there.
        hint: what to do; may be empty.
    """

    def __init__(self, line: int, wrong: str, hint: str = "") -> None:
        super().__init__(wrong)
        self.line, self.wrong, self.hint = line, wrong, hint


def separator_of(header: str) -> str:
    """Return what separates the cells of a header."""
    return max(SEPARATORS, key=header.count)


def csv_rows(text: str, *, comments: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield line and stripped cells of each row that is not blank; the first one is the header.

    Args:
        text: all of a file.
        comments: whether rows that begin with ``#`` are none.

    Raises:
        CsvError: a quote does not end, or the text ends within a row: after the last one is no line end, and it is
            shorter than each before it.
    """
    lines = io.StringIO(text.removeprefix("\ufeff"), newline=None)
    header = next((line for line in lines if not _is_none([line.strip()], comments=comments)), "")
    lines.seek(0)
    reader = csv.reader(lines, delimiter=separator_of(header), strict=True, skipinitialspace=True)
    widths: set[int] = set()
    held: tuple[int, list[str]] | None = None
    fault: CsvError | None = None
    line = 1
    try:
        for raw in reader:
            begun, line = line, reader.line_num + 1
            cells = [cell.strip() for cell in raw]
            if _is_none(cells, comments=comments):
                continue
            if held is not None:
                yield held
                widths.add(len(held[1]))
            held = begun, cells
    except csv.Error as error:
        said = str(error)
        is_open = "end of data" in said
        fault = (
            CsvError(line, "a quote that does not end", IS_CUT) if is_open else CsvError(line, _WRONG.get(said, said))
        )
    if held is not None:
        if not fault and widths and len(held[1]) < min(widths) and not text.endswith(("\n", "\r")):
            fault = CsvError(held[0], "a row that ends too early", IS_CUT)
        else:
            yield held
    if fault:
        raise fault


def _is_none(cells: list[str], *, comments: bool) -> bool:
    return not any(cells) or (comments and cells[0].startswith("#"))
