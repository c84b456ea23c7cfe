"""Records that pmacct read twice count once; what only looks like them counts as it stands."""

from pathlib import Path

import pytest

from ingest.collect import template_file
from ingest.collect.template_file import TemplateFile
from ingest.read.numbered import Habits
from ingest.read.readers import Format, Kind, read_chunk, sniff
from ingest.read.records import FIRST_NUMBER as FIRST
from ingest.read.records import PRINTED_COLUMNS, SPOOL_COLUMNS, Parsed
from tests.ingest.test_template_file import FLOWS, OCTETS, template

TIMES = "1666345513.807000,1666345513.907000,1666345514.500000"


ENOUGH = 1000


def line(
    number: int, *, version: int = 10, flows: int = 1, size: int = 1500, packets: int = 3, leaf: int = 11, seq: int = 7
) -> str:
    ends = f"127.0.0.{leaf},1,2,10.20.0.1,10.30.0.1,40000,2049,24,6,0,1"
    return f"{number},{ends},{TIMES},{seq},{version},3,{packets},{flows},{size}"


def read(lines: list[str], titles: tuple[str, ...] = PRINTED_COLUMNS) -> Parsed:
    return read_chunk(("\n".join(lines) + "\n").encode(), Format(Kind.CSV, ",".join(titles)))


def singles(count: int, leaf: int = 11) -> list[str]:
    return [line(FIRST + i, leaf=leaf) for i in range(count)]


@pytest.mark.parametrize("version", [5, 9, 10])
def test_a_record_that_was_read_twice_counts_once(version: int) -> None:
    parsed = read([*singles(ENOUGH), line(FIRST + ENOUGH, version=version, flows=2, size=3000, packets=6)])
    assert parsed.repeated == 1
    assert parsed.frame.height == ENOUGH + 1
    assert parsed.frame.row(-1, named=True)["bytes"] == 1500
    assert parsed.frame.select("bytes", "packets", "flows").sum().row(0) == (
        (ENOUGH + 1) * 1500,
        (ENOUGH + 1) * 3,
        ENOUGH + 1,
    )


def test_in_version_5_a_single_line_is_proof() -> None:
    """Its records have no count of flows."""
    parsed = read([line(FIRST, version=5, flows=2, size=3000, packets=6)])
    assert parsed.repeated == 1
    assert parsed.frame.row(0, named=True)["packets"] == 3


@pytest.mark.parametrize(
    ("size", "packets", "flows"), [(3001, 6, 2), (3000, 7, 2), (4500, 9, 3)], ids=["odd bytes", "odd packets", "three"]
)
def test_what_is_not_twice_the_same_stays(size: int, packets: int, flows: int) -> None:
    parsed = read([*singles(ENOUGH), line(FIRST + ENOUGH, flows=flows, size=size, packets=packets)])
    assert parsed.repeated == 0
    assert parsed.frame.row(-1, named=True)["bytes"] == size


def test_exporters_that_count_flows_are_believed() -> None:
    """IE 3, deltaFlowCount: one exporter's habit says nothing of another."""
    habit = [line(FIRST + i, flows=2, size=3000, packets=6, leaf=12) for i in range(2)]
    more = [line(FIRST + 2 + i, leaf=12) for i in range(ENOUGH)]
    parsed = read([*more, *habit, *singles(ENOUGH), line(FIRST + 3 * ENOUGH, flows=2, size=3000, packets=6)])
    assert parsed.repeated == 1
    assert parsed.frame.get_column("bytes").sum() == ENOUGH * 1500 + 2 * 3000 + (ENOUGH + 1) * 1500


def test_few_records_of_an_exporter_show_no_habit() -> None:
    parsed = read([*singles(ENOUGH - 2), line(FIRST + ENOUGH, flows=2, size=3000, packets=6)])
    assert parsed.repeated == 0
    assert parsed.frame.get_column("flows").sum() == ENOUGH


def pieces(lines: list[str], size: int, habits: Habits) -> list[Parsed]:
    """Read lines as a bridge does while they come: a few at a time."""
    fmt = Format(Kind.CSV, ",".join(PRINTED_COLUMNS))
    parts = (lines[start : start + size] for start in range(0, len(lines), size))
    return [read_chunk(("\n".join(part) + "\n").encode(), fmt, habits) for part in parts]


def test_what_was_read_before_counts_where_little_is_read_at_once() -> None:
    habits = Habits()
    pieces(singles(ENOUGH), 100, habits)
    (parsed,) = pieces([line(FIRST + ENOUGH, flows=2, size=3000, packets=6)], 100, habits)
    assert parsed.repeated == 1
    # The second one so soon: perhaps it counts flows itself.
    (parsed,) = pieces([line(FIRST + ENOUGH + 1, flows=2, size=3000, packets=6)], 100, habits)
    assert parsed.repeated == 0


def test_with_an_exporter_that_was_long_heard_a_few_lines_are_no_habit_wherever_they_stand() -> None:
    twice = line(FIRST + 1, flows=2, size=3000, packets=6)
    habits = Habits()
    pieces(singles(200_000), 100_000, habits)
    found = [pieces([*singles(5), twice, *singles(5)], 11, habits)[0].repeated for _ in range(25)]
    assert found == [1] * 20 + [0] * 5, "from then on they are too many"


def test_a_habit_is_remembered() -> None:
    habits = Habits()
    every = [line(FIRST + i, flows=1 + (i % 500 == 0), size=3000, packets=6) for i in range(110_000)]
    assert sum(part.repeated for part in pieces(every[1000:], 1000, habits)) == 0
    other = [line(FIRST + i, leaf=12) for i in range(ENOUGH)]
    (parsed,) = pieces([*other, line(FIRST, flows=2, size=3000, packets=6, leaf=12, seq=9)], 2000, habits)
    assert parsed.repeated == 1, "one exporter's habit says nothing of another"


def test_in_the_midst_of_a_datagram_nothing_is_read_twice() -> None:
    """The plugin goes back only where no other record had come."""
    twice = line(FIRST + ENOUGH, flows=2, size=3000, packets=6)
    assert read([*singles(ENOUGH), twice, line(FIRST + ENOUGH + 1)]).repeated == 0
    assert read([*singles(ENOUGH), twice, line(FIRST + ENOUGH + 1, seq=8)]).repeated == 1


def test_where_templates_have_no_count_of_flows_the_first_one_is_known_wherever_it_stands(tmp_path: Path) -> None:
    lines = [template("127.0.0.11", OCTETS), template("127.0.0.12", OCTETS, FLOWS)]
    (tmp_path / template_file.NAME).write_text("".join(f"{text}\n" for text in lines))
    habits = Habits(TemplateFile(tmp_path))
    twice = [line(FIRST, leaf=leaf, flows=2, size=3000, packets=6) for leaf in (11, 12, 13)]
    (parsed,) = pieces([*twice, *singles(3)], 100, habits)
    assert parsed.frame.get_column("flows").to_list() == [1, 2, 2, 1, 1, 1], "of the third one nothing is known"
    assert parsed.repeated == 1
    # So many: what is read now was sent under templates that have changed since.
    (parsed,) = pieces([line(FIRST + 1, flows=2, size=3000, packets=6)], 100, habits)
    assert parsed.repeated == 0
    pieces(singles(2 * ENOUGH), ENOUGH, habits)
    (parsed,) = pieces([line(FIRST + 2, flows=2, size=3000, packets=6)], 100, habits)
    assert parsed.repeated == 1


@pytest.mark.parametrize("number", ["7", "", "x", "9" * 5000])
def test_tags_of_somebody_elses_show_nothing(number: str) -> None:
    text = line(0, version=5, flows=2, size=3000, packets=6).removeprefix("0")
    parsed = read([number + text])
    assert parsed.repeated == 0
    assert parsed.frame.get_column("flows").to_list() == [2]


def test_files_without_numbers_are_read_as_before() -> None:
    text = line(FIRST, version=5, flows=2, size=3000, packets=6).partition(",")[2]
    parsed = read([text], SPOOL_COLUMNS)
    assert parsed.repeated == 0
    assert parsed.frame.get_column("flows").to_list() == [2]


def test_a_file_without_its_header_is_known_by_its_numbers() -> None:
    text = ("\n".join(singles(3)) + "\n").encode()
    assert sniff(text).titles == PRINTED_COLUMNS
    assert read_chunk(text, sniff(text)).frame.height == 3
    plain = [one.partition(",")[2] for one in singles(3)]
    garbled = ("\n".join([f"7,{plain[0]}", *plain]) + "\n").encode()
    assert sniff(garbled).titles == SPOOL_COLUMNS
    assert read_chunk(garbled, sniff(garbled)).frame.height == 3


def test_a_broken_line_does_not_hide_the_numbers_of_others() -> None:
    lines = ["--START (7)--", "garbage", *singles(ENOUGH), line(FIRST + ENOUGH, flows=2, size=3000, packets=6)]
    parsed = read(lines)
    assert parsed.repeated == 1
    assert parsed.dead.height == 1
