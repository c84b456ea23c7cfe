"""Exporters as records name them: numbers, ages, and what they lost on the way."""

import polars as pl
import pytest
from test_engine import T0, cluster, frame, one

from cluster import schema
from ingest import records
from ingest.counters import Counters
from ingest.engine import Engine
from ingest.exporters import UNKNOWN_LIMIT, UNLISTED, ExporterBook
from ingest.normalise import Clock
from ingest.sequence import SequenceTracker


def names(book: ExporterBook, *texts: str | None) -> list[str]:
    return [book.names[number] for number in book.number(pl.Series("exporter", texts, pl.String))]


def test_an_exporter_that_is_no_address_or_not_named_is_unlisted() -> None:
    book = ExporterBook(cluster(), ["training"])
    texts = ("127.0.0.1", None, "x" * 100_000, "", "192.0.2.1")
    assert names(book, *texts) == ["leaf", UNLISTED, UNLISTED, UNLISTED, "192.0.2.1"]
    assert names(book, None) == [UNLISTED]


def test_two_spellings_of_an_address_are_one_exporter() -> None:
    book = ExporterBook(cluster(), ["training"])
    texts = ("::ffff:127.0.0.2", "2001:db8:0::1", "2001:db8::1")
    assert names(book, *texts) == ["spine", "2001:db8::1", "2001:db8::1"]


def test_a_flood_of_exporters_takes_no_memory() -> None:
    book = ExporterBook(cluster(), ["training"])
    flood = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(2000)]
    assert names(book, *flood).count(UNLISTED) == 2000 - UNKNOWN_LIMIT
    assert len(book.names) == len(cluster().exporters) + UNKNOWN_LIMIT + 1
    assert len(vars(book)["_texts"]) <= len(cluster().exporters) + UNKNOWN_LIMIT


def test_each_exporter_is_as_old_as_its_own_newest_record() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    rows = [
        one(arrival=T0),
        one(exporter="127.0.0.2", arrival=T0 + 90_000),
        one(exporter="127.0.0.3", arrival=T0 + 30_000),
        one(exporter="127.0.0.3", arrival=T0 + 40_000),
    ]
    engine.take(pl.concat(rows), T0 / 1000 + 100)
    seen = {name: reading.last_seen - T0 / 1000 for name, reading in engine.exporters.items()}
    assert seen == {"leaf": 0, "spine": 90, "sampled": 40}
    # Another collector's older file comes after.
    engine.take(one(exporter="127.0.0.2", arrival=T0 + 10_000), T0 / 1000 + 101)
    assert engine.exporters["spine"].last_seen == T0 / 1000 + 90


def test_records_without_bytes_are_counted_though_they_have_packets() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    # IOS XR; and an sFlow record whose frame was all headers, which is fine.
    engine.take(pl.concat([one(bytes=0, packets=9), one(exporter="127.0.0.4", bytes=18)]), T0 / 1000)
    (_, points), *_ = [(m, p) for m, p in engine.merge() if m is schema.EXPORTER_STATUS]
    counted = dict(points.select(schema.EXPORTER, schema.ZERO_COUNTERS.name).iter_rows())
    assert counted == {"leaf": 1, "sflow": 0}


def datagrams(version: int, *starts: tuple[int, int], exporter: str | None = "127.0.0.1") -> pl.DataFrame:
    """One row a datagram: its sequence number, and how many records it held."""
    rows: list[dict[str, object]] = [
        {records.EXPORTER: exporter, records.VERSION: version, records.SEQ: seq, records.FLOWS: size, records.DOMAIN: 0}
        for seq, size in starts
    ]
    return frame(rows)


@pytest.mark.parametrize(("version", "lost"), [(10, 0), (5, 6)])
def test_options_records_of_ipfix_are_no_losses(version: int, lost: int) -> None:
    tracker = SequenceTracker()
    total = 0
    # Before every third datagram of 20 records comes an options record that pmacct does not print.
    for batch in range(6):
        start = batch * 61
        total += sum(tracker.lost(datagrams(version, (start, 20), (start + 20, 20), (start + 41, 20))).values())
    for batch in range(3):
        total += sum(tracker.lost(datagrams(version, (366 + batch, 1))).values())
    assert total == lost


def test_a_lost_ipfix_datagram_is_still_a_loss() -> None:
    tracker = SequenceTracker()
    total = 0
    for batch in range(6):
        start = batch * 60 + (20 if batch > 1 else 0)
        total += sum(tracker.lost(datagrams(10, (start, 20), (start + 20, 20), (start + 40, 20))).values())
    assert total == 20


def test_losses_of_nobody_are_nobodys() -> None:
    tracker = SequenceTracker()
    for batch in range(6):
        assert tracker.lost(datagrams(10, (batch * 100, 20), exporter=None)) == {}
