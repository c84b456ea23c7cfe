"""What files say of addresses, put together, bounded and remembered until a file changes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from enrichment.labels import NOTHING, Labels
from enrichment.watched import Loaded, WatchedFile
from store import schema


class Table:
    """A provider by a text file: a line an address, `address label`. Counts what it was asked."""

    def __init__(self, path: Path, column: str) -> None:
        self.columns = (column,)
        self.files = (WatchedFile(path, _load, name=path.name, kind="table"),)
        self.asked: list[str] = []

    def refresh(self) -> bool:
        return self.files[0].refresh()

    def label(self, addresses: Sequence[str]) -> Mapping[str, Sequence[str]]:
        self.asked += addresses
        table = self.files[0].value or {}
        return {self.columns[0]: [table.get(address, "") for address in addresses]}


def _load(path: Path) -> Loaded[dict[str, str]]:
    table = dict(line.split(" ", 1) for line in path.read_text().splitlines())
    return Loaded(table, len(table))


def row(**known: str) -> tuple[str, ...]:
    return tuple(known.get(name, "") for name in schema.LABELS)


def test_the_first_that_knows_a_thing_counts_and_columns_are_put_together(tmp_path: Path) -> None:
    for name, text in (("a", "192.0.2.1 NL"), ("b", "192.0.2.1 DE\n192.0.2.2 FR"), ("c", "192.0.2.2 AS1 One")):
        (tmp_path / name).write_text(text)
    labels = Labels([
        Table(tmp_path / "a", schema.COUNTRY), Table(tmp_path / "b", schema.COUNTRY),
        Table(tmp_path / "c", schema.NETWORK),
    ])  # fmt: skip
    assert labels.refresh()
    assert labels.of(["192.0.2.1", "192.0.2.2", "192.0.2.3"]) == [
        row(country="NL"), row(country="FR", network="AS1 One"), NOTHING,
    ]  # fmt: skip


def test_an_address_is_asked_once_until_a_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("192.0.2.1 NL")
    table = Table(path, schema.COUNTRY)
    labels = Labels([table])
    labels.refresh()
    assert labels.of(["192.0.2.1"]) == labels.of(["192.0.2.1"]) == [row(country="NL")]
    assert labels.of(["192.0.2.9", "192.0.2.1"])[1] == row(country="NL")
    assert table.asked == ["192.0.2.1", "192.0.2.9"]
    generation = labels.generation
    path.write_text("192.0.2.1 Belgium")
    assert labels.of(["192.0.2.1"]) == [row(country="NL")]
    assert labels.refresh()
    assert not labels.refresh()
    assert labels.generation == generation + 1
    assert labels.of(["192.0.2.1"]) == [row(country="Belgium")]


def test_an_answer_by_a_file_that_is_replaced_meanwhile_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("192.0.2.1 NL")
    labels = Labels([table := Table(path, schema.COUNTRY)])
    labels.refresh()
    answer = table.label

    def slow(addresses: Sequence[str]) -> Mapping[str, Sequence[str]]:
        old = answer(addresses)
        path.write_text("192.0.2.1 Belgium")
        labels.refresh()
        return old

    table.label = slow  # type: ignore[method-assign]
    assert labels.of(["192.0.2.1"]) == [row(country="NL")]
    table.label = answer  # type: ignore[method-assign]
    assert labels.of(["192.0.2.1"]) == [row(country="Belgium")]


def test_every_provider_is_refreshed_whichever_changed(tmp_path: Path) -> None:
    tables = []
    for name in "ab":
        (tmp_path / name).write_text("192.0.2.1 x")
        tables.append(Table(tmp_path / name, schema.CITY))
    assert Labels(tables).refresh()
    assert [table.files[0].value for table in tables] == [{"192.0.2.1": "x"}] * 2


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enrichment.labels._CACHE_LIMIT", 10)
    (tmp_path / "a").write_text("192.0.2.1 NL")
    labels = Labels([table := Table(tmp_path / "a", schema.COUNTRY)])
    labels.refresh()
    for number in range(100):
        labels.of([f"192.0.2.{number}"])
        assert len(labels._known) <= 10
    assert labels.of(["192.0.2.99"]) == [NOTHING]
    assert len(table.asked) == 100
