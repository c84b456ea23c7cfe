"""CSV of other programs: what separates its cells, and files that end too early."""

import pytest

from app.csv_rows import CsvError, csv_rows

ROWS = [(1, ["name", "group", "address"]), (2, ["a", "x, y", "10.0.0.1"]), (3, ["b", "z", "10.0.0.2"])]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_cells_are_found_whatever_separates_them(separator: str, end: str, mark: str) -> None:
    lines = ["name,group,address", 'a,"x| y",10.0.0.1', "b,z,10.0.0.2"]
    text = mark + "".join(line.replace(",", separator).replace("|", ",") + end for line in lines)
    assert [*csv_rows(text)] == ROWS
    assert [*csv_rows(text.removesuffix(end))] == ROWS, "a last line end is not needed"


def test_a_header_behind_comments_says_what_separates() -> None:
    text = "# a, b, c, d\n\n  # of, ours\nname;group\n# not me\nn1;a\n"
    assert [*csv_rows(text, comments=True)] == [(4, ["name", "group"]), (6, ["n1", "a"])]
    assert [*csv_rows("name,of\n#1,a\n")] == [(1, ["name", "of"]), (2, ["#1", "a"])]


def test_a_row_is_at_its_first_line() -> None:
    assert [*csv_rows('a,b\n"one\ntwo",c\nd,e\n')] == [(1, ["a", "b"]), (2, ["one\ntwo", "c"]), (4, ["d", "e"])]


@pytest.mark.parametrize(
    ("text", "line", "wrong"),
    [
        ("a,b,c\n1,2,3\n4,5", 3, "a row that ends too early"),
        ('a,b,c\n1,2,3\n4,"5', 3, "a quote that does not end"),
        ('a,b,c\n1,2,3\n4,"5\n6,7,8\n9,10,11\n', 3, "a quote that does not end"),
        ('a,b,c\n"1"2,2,3\n', 2, "a cell that goes on after its closing quote"),
    ],
)
def test_text_that_is_cut_off_is_told_at_its_row(text: str, line: int, wrong: str) -> None:
    found = []
    with pytest.raises(CsvError) as caught:
        found.extend(csv_rows(text))
    assert len(found) == line - 1, "what is before it is whole"
    assert (caught.value.line, caught.value.wrong) == (line, wrong)


def test_rows_may_leave_out_their_last_cells() -> None:
    assert len([*csv_rows("a,b,c\n1,2\n3,4")]) == 3
    assert len([*csv_rows("a,b,c\n1,2,3\n3,4\n")]) == 3, "with its line end it is whole"
    assert [*csv_rows("")] == []
