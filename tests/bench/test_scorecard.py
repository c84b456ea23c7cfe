"""The scorecard's file comes back as it was written, and what is worse is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.scorecard import (
    FIGURES,
    REDUCED,
    SEEDS,
    Cell,
    Row,
    current,
    markdown,
    merged,
    read,
    stale,
    text_of,
    worse,
    written,
)
from simulate.scenarios.script import library

RIGHT = Row(
    "leak", 101, 1.0, {"exfil_volume": Cell(2, 2, 0, (10, 30)), "shadow_node": Cell(1, 1, 0, (20,))}, text="abc"
)
QUIET = Row("calm", 101, 7.0, text="def")
ROWS = read(Path(__file__).parents[2] / FIGURES)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scorecard.json"
    assert read(path) == []
    path.write_text(written([RIGHT, QUIET]))
    assert read(path) == [QUIET, RIGHT]
    assert len(path.read_text().splitlines()) == 4, "a line a trial, so that a change shows in a diff"


def test_fresh_trials_take_the_place_of_old_ones() -> None:
    fresh = Row("leak", 101, 1.0, {})
    other = Row("leak", 102, 1.0, {})
    assert merged([RIGHT, QUIET], [other, fresh]) == [QUIET, fresh, other]


def test_the_table() -> None:
    wrong = Row("leak", 102, 1.0, {"exfil_volume": Cell(1, 0), "ingest_lag": Cell(0, 0, 3)}, differences=1)
    text = markdown([QUIET, RIGHT, wrong], {"leak": "It leaks"})
    assert "3 of 4 \nalerts" not in text
    assert "9 simulated days: 3 of 4 alerts found (75.0%), 3 false (2.33 a simulated week)." in text
    lines = text.splitlines()
    assert "| leak | It leaks | 2 | 4 | **3** | 20 s | **3** |" in lines
    assert "| calm |  | 1 | 0 | 0 |  | 0 |" in lines
    assert "| `exfil_volume` | 3 | **2** | 20 s | 0 | leak |" in lines
    assert "| leak | 101 | `exfil_volume` 2/2; `shadow_node` 1/1 |" in lines
    assert "| leak | 102 | `exfil_volume` **0**/1; `ingest_lag` 0/0, **3 false**; **1 totals differ** |" in lines
    assert "| calm | 101 | nothing fired |" in lines


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        (Cell(2, 2, 0, (10, 30)), []),
        (Cell(2, 2, 0, (40, 60)), []),
        (Cell(2, 2, 0, (60, 60)), ["leak, seed 101: exfil_volume: found after 60 s, after 20 s before"]),
        (Cell(2, 1, 0, (10,)), ["leak, seed 101: exfil_volume: 1 of 2 alerts missed, 0 before"]),
        (Cell(2, 2, 1, (10, 30)), ["leak, seed 101: exfil_volume: 1 false alerts, 0 before"]),
        (Cell(1, 1, 0, (10,)), ["leak, seed 101: exfil_volume: 1 alerts due, 2 before"]),
        (Cell(), ["leak, seed 101: exfil_volume: 0 alerts due, 2 before"]),
    ],
)
def test_what_is_worse(cell: Cell, lines: list[str]) -> None:
    now = replace(RIGHT, cells={**RIGHT.cells, "exfil_volume": cell})
    assert worse([RIGHT], [now]) == lines


def test_a_new_trial_must_be_right() -> None:
    assert worse([], [RIGHT]) == []
    assert worse([], [Row("leak", 1, 1.0, {"a": Cell(1, 0), "b": Cell(0, 0, 1)}, differences=2)]) == [
        "leak, seed 1: 2 totals differ from what was sent",
        "leak, seed 1: a: 1 of 1 alerts missed, 0 before",
        "leak, seed 1: b: 1 false alerts, 0 before",
    ]


def test_a_known_miss_is_not_worse() -> None:
    known = Row("leak", 1, 1.0, {"a": Cell(1, 0)}, differences=1, text="abc")
    assert worse([known], [known]) == []


def test_what_is_owed_no_more_is_worse_unless_the_scenario_changed() -> None:
    """Else every miss could be mended by owing nothing."""
    gone = replace(RIGHT, cells={})
    assert worse([RIGHT], [gone]) == [
        "leak, seed 101: exfil_volume: 0 alerts due, 2 before",
        "leak, seed 101: shadow_node: 0 alerts due, 1 before",
    ]
    assert worse([RIGHT], [replace(gone, text="another")]) == []


def test_a_changed_scenario_must_be_right_like_a_new_one() -> None:
    known = Row("leak", 1, 1.0, {"a": Cell(1, 0)}, text="abc")
    lines = ["leak, seed 1: a: 1 of 1 alerts missed, 0 before"]
    assert worse([known], [replace(known, text="another")]) == lines
    assert worse([replace(known, text="")], [replace(known, text="")]) == lines


def test_rows_without_a_hash_or_with_another_are_stale() -> None:
    texts = {"leak": "abc", "calm": "new"}
    wanted = [("leak", 101), ("leak", 102), ("calm", 101)]
    assert stale([RIGHT, QUIET], texts, wanted) == [("leak", 102), ("calm", 101)]
    assert stale([replace(RIGHT, text="")], texts, wanted) == wanted


def test_the_hash_is_of_the_text_and_goes_through_the_file(tmp_path: Path) -> None:
    scenario = tmp_path / "leak.yaml"
    scenario.write_text("title: a\n")
    before = text_of(scenario)
    assert text_of(scenario) == before
    scenario.write_text("title: b\n")
    assert text_of(scenario) != before
    path = tmp_path / "scorecard.json"
    path.write_text(written([RIGHT]).replace('"text": "abc", ', ""))
    assert read(path) == [replace(RIGHT, text="")]


def test_rows_of_scenarios_that_are_gone_are_dropped() -> None:
    assert current([RIGHT, QUIET], {"calm"}) == [QUIET]


def test_ci_runs_scenarios_of_the_library() -> None:
    assert set(REDUCED) <= {path.stem for path in library()}


def test_the_committed_figures_are_of_every_scenario_as_it_is() -> None:
    """On the first seed at least."""
    texts = {path.stem: text_of(path) for path in library()}
    assert stale(ROWS, texts, [(name, SEEDS[0]) for name in texts]) == [], "run: scripts/score --missing"
    assert not any(row.differences for row in ROWS)
