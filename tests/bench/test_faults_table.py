"""docs/reference/faults.md has every fault of the suite, and the suite every fault of the list."""

import re
from pathlib import Path

from bench.faults import BEGIN, END, FAULTS, Result, note, read, rendered

REPOSITORY = Path(__file__).resolve().parents[2]
SUITES = tuple(REPOSITORY / "tests" / name for name in ("faults", "kafka", "containers"))
DOCUMENT = REPOSITORY / "docs/reference/faults.md"


def recorded() -> set[str]:
    """Return the faults that tests record."""
    text = "".join(path.read_text() for suite in SUITES for path in sorted(suite.glob("test_*.py")))
    return set(re.findall(r'record\(\s*"([a-z-]+)"', text))


def test_every_fault_is_staged_by_a_test() -> None:
    assert recorded() == {fault.id for fault in FAULTS}


def test_every_fault_has_a_row_in_the_document() -> None:
    table = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")][2:]
    assert rows == [fault.text for fault in FAULTS]


def test_nothing_is_doubled_and_what_is_lost_is_counted_somewhere() -> None:
    table = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    for line in [line for line in table.splitlines() if line.startswith("|")][2:]:
        _, text, trials, lost, doubled, counted, _ = (cell.strip() for cell in line.split("|"))
        assert int(trials) > 0, text
        assert doubled == "0", text
        assert lost == "0" or counted, text


def test_a_result_replaces_the_one_before_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "log" / "faults.json"
    note(path, Result("bridge-killed", 1, 7, 0))
    note(path, Result("reload", 1, 0, 0))
    note(path, Result("bridge-killed", 50, 0, 0))
    assert {name: one.trials for name, one in read(path).items()} == {"bridge-killed": 50, "reload": 1}
    document = rendered(f"a\n{BEGIN}\nold\n{END}\nb\n", read(path).values())
    assert document.startswith(f"a\n{BEGIN}\n")
    assert document.endswith(f"{END}\nb\n")
    assert "old" not in document
    assert "| bridge killed (-9) at random moments of one stream | 50 | 0 | 0 |  |" in document
