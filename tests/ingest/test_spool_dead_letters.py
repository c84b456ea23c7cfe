"""The file of dead letters: every letter once, bounded in every direction."""

import json
from pathlib import Path

import polars as pl

from ingest.dead_letter import MAX_LINE_CHARACTERS, DeadLetters
from ingest.read.readers import OWN, read_chunk
from ingest.read.records import DEAD_SCHEMA, Reason, empty_dead


def letters(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def dead(*rows: tuple[str, Reason]) -> pl.DataFrame:
    return pl.DataFrame([(line, reason.value) for line, reason in rows], schema=DEAD_SCHEMA, orient="row")


def test_keeps_source_reason_and_line(tmp_path: Path) -> None:
    path = tmp_path / "state" / "dead.jsonl"
    box = DeadLetters(path)
    box.add("nfacct-1.csv", dead(('odd "line"\t\x00 ü', Reason.NOT_A_RECORD), ("b", Reason.BAD_TIME)))
    box.add("nfacct-2.csv", empty_dead())
    box.add("nfacct-2.csv", dead(("c", Reason.BAD_TIME)))
    found = letters(path)
    assert [(letter["source"], letter["reason"], letter["line"]) for letter in found] == [
        ("nfacct-1.csv", "not_a_record", 'odd "line"\t\x00 ü'),
        ("nfacct-1.csv", "bad_time", "b"),
        ("nfacct-2.csv", "bad_time", "c"),
    ]
    assert all(letter["time"].endswith("+00:00") for letter in found)
    assert box.counts == {"not_a_record": 1, "bad_time": 2}


def test_long_lines_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    DeadLetters(path).add("x", dead(("z" * 1_000_000, Reason.LINE_TOO_LONG)))
    assert letters(path)[0]["line"] == "z" * MAX_LINE_CHARACTERS


def test_a_full_file_makes_room_and_counts_go_on(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    box = DeadLetters(path, max_bytes=5000)
    for i in range(1000):
        box.add("x", dead((f"line {i}", Reason.BAD_COUNTER)))
    old = tmp_path / "dead.jsonl.1"
    assert path.stat().st_size <= 5000
    assert old.stat().st_size <= 5000
    assert sorted(tmp_path.iterdir()) == [path, old]
    numbers = [int(letter["line"].split()[1]) for letter in letters(old) + letters(path)]
    assert numbers == list(range(numbers[0], 1000))
    assert box.counts == {"bad_counter": 1000}


def test_a_flood_in_one_chunk_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    box = DeadLetters(path, max_bytes=5000)
    box.add("x", dead(*[(f"line {i}", Reason.BAD_COUNTER) for i in range(1000)]))
    assert path.stat().st_size <= 5000
    assert letters(path)[-1]["line"] == "line 999"
    assert box.counts == {"bad_counter": 1000}


def test_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    for line in ("a", "b"):
        DeadLetters(path).add("x", dead((line, Reason.BAD_TIME)))
    assert [letter["line"] for letter in letters(path)] == ["a", "b"]


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    box = DeadLetters(tmp_path / "file" / "dead.jsonl")
    box.add("x", dead(("a", Reason.BAD_TIME)))
    assert box.counts == {"bad_time": 1}


def test_records_that_turn_out_bad_are_kept_as_json(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    times = "1666345513.8,1666345513.9,1666345514.5"
    frame = read_chunk(f"127.0.0.1,1,2,10.0.0.x,10.0.0.1,1,2,0,6,0,1,{times},7,9,3,10,1,15000\n".encode(), OWN).frame
    DeadLetters(path).add_records("nfacct-1.csv", frame, Reason.BAD_ADDRESS)
    letter = letters(path)[0]
    assert letter["reason"] == "bad_address"
    assert json.loads(letter["line"])["src"] == "10.0.0.x"
