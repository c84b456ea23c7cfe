"""The wall's table of alerts: what a cell shows of any text that a rule tells is one line, and has room."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.load import load_cluster
from dashboards.provision import boards

REPOSITORY = Path(__file__).resolve().parents[2]
CASES = sorted((REPOSITORY / "tests/rules").glob("*.yaml"))
ROOM = {"source": 16, "destination": 18, "bytes_text": 9, "duration_text": 7}
"""Letters that have room in a column, with what begins and ends a text."""
LOOKBEHIND = re.compile(r"\(\?<=\^(?P<unsaid>.*)\.\{1,(?P<room>\d+)\}\)")


def told(found: object) -> Iterator[tuple[str, str]]:
    """Yield (column, text) of every firing that the rules' cases expect."""
    if isinstance(found, dict):
        for key, column in zip(("source", "destination", "bytes", "duration"), ROOM, strict=True):
            if {"source", "destination"} <= found.keys() and key in found:
                yield column, str(found[key])
        found = list(found.values())
    if isinstance(found, list):
        for one in found:
            yield from told(one)


def shown(pattern: str, html: str, text: str) -> str | None:
    """Return what a browser shows where the mapping matches. Python's lookbehind takes no pattern of variable width."""
    pattern = pattern.strip("/")
    behind = LOOKBEHIND.search(pattern)
    match = re.search(pattern.replace(behind[0], "(?P<fit>)") if behind else pattern, text)
    if match is None:
        return None
    if behind is not None:
        unsaid = re.match(behind["unsaid"], text)
        if match.start("fit") - (unsaid.end() if unsaid else 0) > int(behind["room"]):
            return None
    return re.sub("<.*?>", "", re.sub(r"\$(\d)", lambda number: match[int(number[1])], html))


@pytest.fixture(scope="module")
def mappings() -> dict[str, list[dict[str, dict[str, object]]]]:
    wall = json.loads(boards(load_cluster(REPOSITORY / "cluster.yaml"))["noc_wall"])
    (table,) = [panel for panel in wall["panels"] if "newest alerts" in panel["description"]]
    return {
        one["matcher"]["options"]: value["value"]
        for one in table["fieldConfig"]["overrides"]
        for value in one["properties"]
        if value["id"] == "mappings"
    }


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_every_text_of_a_rule_is_one_line(path: Path, mappings: dict[str, list[dict[str, dict[str, object]]]]) -> None:
    for column, text in told(yaml.safe_load(path.read_text())):
        results = (shown(one["options"]["pattern"], one["options"]["result"]["text"], text) for one in mappings[column])
        line = next((result for result in results if result is not None), "")
        assert line, text
        assert " " not in line, text
        letters = line.replace("&nbsp;", " ")
        assert len(letters) <= ROOM[column], (text, letters)
        assert len(letters.strip("→… ")) > 1, (text, letters)
