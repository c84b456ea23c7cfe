"""Faults as lines: of many of a kind the first, how many, and where."""

from app.errors import ConfigError, Problem


def _rows(count: int, value: str = "{}", hint: str = "") -> list[Problem]:
    return [
        Problem("group", value.format(line), "a group", hint, file="nodes.csv", line=line)
        for line in range(2, count + 2)
    ]


def _lines(*problems: Problem) -> list[str]:
    return ConfigError("cluster.yaml", [*problems]).lines()


def test_a_handful_is_told_each() -> None:
    lines = _lines(*_rows(10, "trainin"))
    assert lines == [*(f"nodes.csv:{line}: group: trainin: expected a group" for line in range(2, 12)), lines[-1]]
    assert lines[-1] == "cluster.yaml: 10 problems"


def test_one_fault_on_each_of_many_lines_is_one_line() -> None:
    first, count = _lines(*_rows(280, "trainin", "did you mean training?"))
    fault = "nodes.csv:2: group: trainin: expected a group (did you mean training?)"
    assert first == f"{fault}; 279 more like it: line 3, line 4, line 5, …"
    assert count == "cluster.yaml: 280 problems"


def test_of_many_that_differ_the_first_three_are_told() -> None:
    *shown, count = _lines(*_rows(12))
    assert [line.split(": ")[2] for line in shown] == ["2", "3", "4"]
    assert shown[-1].endswith("; 9 more like it: line 5, line 6, line 7, …")
    assert count == "cluster.yaml: 12 problems"
    # However often the first one comes, the second shows.
    mixed = [
        *_rows(20, "trainin"),
        *(Problem("group", "stroage", "a group", file="nodes.csv", line=30 + n) for n in range(5)),
    ]
    assert [line.split(": ")[2] for line in _lines(*mixed)[:-1]] == ["trainin", "stroage"]


def test_other_faults_keep_their_place_between_them() -> None:
    other = Problem("address", "x", "an address", file="nodes.csv", line=3)
    lines = _lines(*_rows(11, "trainin"), other)
    assert [line.split(": ")[1] for line in lines[:-1]] == ["group", "address"]


def test_faults_without_a_line_are_named_by_their_path() -> None:
    jobs = [Problem(f"jobs[{n}].start", "soon", "a time") for n in range(11)]
    first, others = _lines(*jobs)[0].split("; ")
    assert first == "cluster.yaml: jobs[0].start: soon: expected a time"
    assert others == "10 more like it: jobs[1].start, jobs[2].start, jobs[3].start, …"
