"""store/influxql.py is the only home of InfluxQL: a query by hand quotes by itself, unchecked against the schema."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = (
    "app", "cluster", "store", "ingest", "enrichment", "analysis", "dashboards", "rules", "operations", "delivery",
    "reporting", "simulate", "bench",
)  # fmt: skip
HOME = "store/influxql.py"
EXCUSED = {
    "bench/peer.py": "counts what Telegraf wrote, which the schema does not know",
    "rules/grafana/read_query.py": "reads the queries of a rules file that another version wrote",
    "store/catalogue.py": "a page that shows what a query looks like",
}
INFLUXQL = re.compile(
    r'SELECT |GROUP BY |\$timeFilter|\bfill\(|\btime [<>]|=~ /|" (?:>|<|=|!=|>=|<=) |'
    r'\b(?:sum|first|last|min|max|mean|median|count|spread|top|bottom)\("'
)


def _modules() -> Iterator[str]:
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            # Queries of SQLite are no business of the store.
            if "import sqlite3" not in source:
                yield str(path.relative_to(REPOSITORY))


def _by_hand(source: str) -> list[int]:
    """Return the lines with a string that holds InfluxQL, docstrings aside."""
    tree = ast.parse(source)
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in docs)
    return [node.lineno for node in strings if isinstance(node.value, str) and INFLUXQL.search(node.value)]


@pytest.mark.parametrize(
    "line",
    [
        'f\'SELECT last("{name}") FROM "raw"."x"\'',
        "f'sum(\"{name}\")'",
        'f"time >= {start}s"',
        "f'\"{tag}\" = {value}'",
    ],
)
def test_a_query_by_hand_is_found(line: str) -> None:
    assert _by_hand(f'"""SELECT in words."""\nasked = {line}\n') == [2]


def test_every_excuse_is_needed() -> None:
    assert all(_by_hand((REPOSITORY / module).read_text(encoding="utf-8")) for module in EXCUSED)


@pytest.mark.parametrize("module", [one for one in _modules() if one != HOME and one not in EXCUSED])
def test_no_module_writes_a_query_by_hand(module: str) -> None:
    lines = _by_hand((REPOSITORY / module).read_text(encoding="utf-8"))
    assert not lines, f"{module}: lines {lines}: build it with store.influxql.Select"
