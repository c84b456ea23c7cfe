"""Texts, addresses and interfaces keep the number that they were given, whatever else comes with them."""

from pathlib import Path

import numpy as np
import polars as pl

from cluster.load import load_cluster
from ingest.flows.classify import AddressBook
from ingest.flows.interfaces import UNKNOWN_LIMIT, InterfaceBook
from ingest.flows.text_numbers import Texts

CLUSTER = load_cluster(Path(__file__).parents[2] / "cluster.yaml")


def test_texts_are_found_under_the_numbers_that_they_were_given() -> None:
    texts = Texts()
    assert texts.find(pl.Series(["a", None])).to_list() == [None, None]
    texts.add(pl.Series(["b", "a longer text than fits a view"]))
    texts.add(pl.Series(["", "ünïcode"]))
    column = pl.Series(["ünïcode", None, "b", "c", "", "a longer text than fits a view", "b"])
    assert texts.find(column).to_list() == [3, None, 0, None, 2, 1, 0]
    assert len(texts) == 4


def test_addresses_keep_their_number_and_what_is_none_has_none() -> None:
    random = np.random.default_rng(3)
    node = CLUSTER.nodes[0]
    listed = str(node.addresses[0].address)
    # What is printed, and the name that it gets.
    names: dict[str | None, str | None] = {
        listed: node.name,
        f"::ffff:{listed}": node.name,
        "203.0.113.9": "203.0.113.9",
        "::ffff:203.0.113.9": "203.0.113.9",
        "2001:DB8:0::1": "2001:db8::1",
        "": None,
        "10.1.2": None,
        "999.1.1.1": None,
        None: None,
        **{f"198.18.{i // 256}.{i % 256}": f"198.18.{i // 256}.{i % 256}" for i in range(500)},
    }
    texts = list(names)
    book = AddressBook(CLUSTER)
    given: dict[str | None, int | None] = {}
    for size in (1, 40, 40, 300, 1000):
        columns = [[texts[i] for i in random.integers(0, len(texts), size)] for _ in range(2)]
        numbered = book.number(*(pl.Series("address", column, pl.String) for column in columns))
        for column, numbers in zip(columns, numbered, strict=True):
            assert numbers.dtype == pl.UInt32
            for text, number in zip(column, numbers.to_list(), strict=True):
                assert given.setdefault(text, number) == number
                assert (None if number is None else book.names[number]) == names[text]
                assert number is None or bool(book.listed[number]) == (names[text] == node.name)


def test_every_interface_has_one_number_of_its_own_exporter() -> None:
    random = np.random.default_rng(7)
    book = InterfaceBook(CLUSTER)
    exporters = len(CLUSTER.exporters) + 2
    # Small indexes, those of devices that number by slot and port, and the largest there are.
    indexes = np.array([0, 1, 2, 3, 1023, 1024, 436_207_616, 2**32 - 1], np.int64)
    given: dict[tuple[int, int], int] = {}
    for _ in range(5):
        by, index = random.integers(0, exporters, 300), random.choice(indexes, 300)
        numbers = book.number(by, index).tolist()
        for exporter, own, number in zip(by.tolist(), index.tolist(), numbers, strict=True):
            assert given.setdefault((exporter, own), number) == number
    assert len(set(given.values())) == len(given)
    for (exporter, index), number in given.items():
        listed = CLUSTER.exporters[exporter].interfaces if exporter < len(CLUSTER.exporters) else ()
        names = {interface.index: interface.name for interface in listed}
        assert book.exporters[number] == exporter
        assert book.names[number] == ("" if index == 0 else names.get(index, str(index)))


def test_interfaces_beyond_the_limit_share_a_number() -> None:
    book = InterfaceBook(CLUSTER)
    exporter = len(CLUSTER.exporters)
    indexes = np.arange(1, UNKNOWN_LIMIT + 100)
    for _ in range(2):
        numbers = book.number(np.full(len(indexes), exporter), indexes)
        assert len(set(numbers.tolist())) == UNKNOWN_LIMIT + 1
        assert len(set(numbers[UNKNOWN_LIMIT:].tolist())) == 1
