"""Exporters as records name them: numbers, ages, and what they lost on the way."""

import json
import random
from collections.abc import Iterable, Sequence

import polars as pl
import pytest
from test_engine import T0, cluster, frame, one

from ingest.count import sequence
from ingest.count.engine import Engine
from ingest.count.sequence import SequenceTracker
from ingest.counters import Counters
from ingest.flows.exporters import UNKNOWN_LIMIT, UNLISTED, ExporterBook
from ingest.flows.normalise import Clock
from ingest.read import records
from store import schema


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


def test_two_equal_records_in_one_line_are_two_received() -> None:
    """Those of one datagram share a line of what nfacctd prints; none of them was lost on the way."""
    engine = Engine(cluster(), Clock.LIVE, Counters())
    engine.take(pl.concat([one(flows=2), one()]), T0 / 1000 + 1)
    engine.merge()
    assert engine.tables["exporter"].all_points()[schema.EXPORTER_RECORDS.name].sum() == 3


def test_streams_are_told_apart_by_exporter_domain_and_protocol_however_large_their_numbers() -> None:
    """Each loses another number of records; the largest domains and numbers of 32 bits are among them."""
    sources = [
        (exporter, domain, version)
        for exporter in ("127.0.0.1", "2001:db8::1")
        for domain in (None, 7, 2**32 - 1)
        for version in (5, 10)
    ]
    tracker, found = SequenceTracker(), dict.fromkeys(("127.0.0.1", "2001:db8::1"), 0)
    expected = dict(found)
    top = 2**32 - 1000
    for batch in range(6):
        rows: list[dict[str, object]] = []
        for place, (exporter, domain, version) in enumerate(sources):
            lost = 10 + place
            expected[exporter] += lost if batch == 1 else 0
            start = top + batch * 100
            parts = ((start, 20), (start + 20 + lost, 80 - lost)) if batch == 1 else ((start, 20), (start + 20, 80))
            key = {records.EXPORTER: exporter, records.DOMAIN: domain, records.VERSION: version}
            rows += [{**key, records.SEQ: seq, records.FLOWS: size} for seq, size in parts]
        # What has no number, no exporter or another protocol is nobody's.
        rows += [{records.EXPORTER: "127.0.0.1", records.VERSION: records.SFLOW, records.SEQ: 5, records.FLOWS: 1}]
        rows += [{records.EXPORTER: None, records.VERSION: 10, records.SEQ: 5, records.FLOWS: 1}]
        random.Random(batch).shuffle(rows)
        for exporter, lost in tracker.lost(frame(rows)).items():
            found[exporter] += lost
    assert found == expected


def test_records_without_bytes_are_counted_though_they_have_packets() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    # IOS XR; and an sFlow record whose frame was all headers, which is fine.
    engine.take(pl.concat([one(bytes=0, packets=9), one(exporter="127.0.0.4", bytes=18)]), T0 / 1000)
    (_, points), *_ = [(m, p) for m, p in engine.merge() if m is schema.EXPORTER_STATUS]
    counted = dict(points.select(schema.EXPORTER, schema.ZERO_COUNTERS.name).iter_rows())
    assert counted == {"leaf": 1, "sflow": 0}


@pytest.mark.parametrize(("version", "stored"), [(records.SFLOW, 1500), (10, 1518)])
def test_frames_of_an_agent_that_nobody_listed_count_as_ip(version: int, stored: int) -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    engine.take(one(exporter="192.0.2.77", version=version, bytes=1518, packets=1), T0 / 1000)
    points = next(frame for measurement, frame in engine.merge() if measurement is schema.TRAFFIC)
    assert points.get_column("bytes").to_list() == [stored]


def datagrams(version: int, *starts: tuple[int, int], exporter: str | None = "127.0.0.1") -> pl.DataFrame:
    """One row a datagram: its sequence number, and how many records it held."""
    rows: list[dict[str, object]] = [
        {records.EXPORTER: exporter, records.VERSION: version, records.SEQ: seq, records.FLOWS: size, records.DOMAIN: 0}
        for seq, size in starts
    ]
    return frame(rows)


def test_a_sender_of_ever_new_domains_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is heard of stays, and so do its losses."""
    monkeypatch.setattr(sequence, "_MOST_STREAMS", 10)
    tracker, total = SequenceTracker(), 0
    for batch in range(6):
        rows = datagrams(10, *((batch * 60 + 20 * place, 20) for place in range(3) if (batch, place) != (2, 1)))
        flood = [
            {records.EXPORTER: "127.0.0.9", records.DOMAIN: 100 * batch + one, records.VERSION: 10, records.SEQ: 5,
             records.FLOWS: 1}
            for one in range(8)
        ]  # fmt: skip
        tracker.lost(pl.DataFrame(flood, schema=records.RECORD_SCHEMA))
        total += sum(tracker.lost(rows).values())
        assert len(tracker.dump()) <= 10
    assert total == 20


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


def test_a_record_that_is_no_flow_is_none_that_was_lost() -> None:
    tracker = SequenceTracker()
    for batch in range(6):
        rows = datagrams(10, *((batch * 20, size) for size in (0, 1) for _ in range(10)))
        assert tracker.lost(rows) == {}


@pytest.mark.parametrize(("is_numbered", "lost"), [(True, 20), (False, 0)])
def test_an_exporter_that_counts_flows_itself_hides_no_loss_where_records_are_numbered(
    lost: int, *, is_numbered: bool
) -> None:
    tracker = SequenceTracker()
    total = 0
    for batch in range(6):
        # A row a record, each of seven flows (IE 3); the second datagram of the third batch did not come.
        starts = [batch * 60 + 20 * place for place in range(3) if (batch, place) != (2, 1)]
        rows = datagrams(10, *((start, 7) for start in starts for _ in range(20)))
        total += sum(tracker.lost(rows, is_numbered=is_numbered).values())
    assert total == lost


def test_a_lost_ipfix_datagram_is_still_a_loss() -> None:
    tracker = SequenceTracker()
    total = 0
    for batch in range(6):
        start = batch * 60 + (20 if batch > 1 else 0)
        total += sum(tracker.lost(datagrams(10, (start, 20), (start + 20, 20), (start + 40, 20))).values())
    assert total == 20


@pytest.mark.parametrize("version", [5, 10])
@pytest.mark.parametrize("before", [1, 10, 19])
def test_a_datagram_that_two_purges_share_hides_no_loss(version: int, before: int) -> None:
    """With one record in the first purge, the rest looks like a datagram behind which one record is missing."""
    tracker, total = SequenceTracker(), 0
    shared: list[tuple[int, int]] = []
    for batch in range(9):
        start = batch * 60 + (40 if batch > 1 else 0)
        rows = [*shared, (start, 20), (start + 20, 20), (start + 40, before)]
        shared = [(start + 40, 20 - before)]
        total += sum(tracker.lost(datagrams(version, *rows)).values())
        if batch == 4:
            saved, tracker = tracker.dump(), SequenceTracker()
            tracker.load(saved)
    assert total == 40


@pytest.mark.parametrize("version", [5, 10])
def test_a_record_that_comes_twice_hides_no_loss(version: int) -> None:
    tracker, total = SequenceTracker(), 0
    for batch in range(6):
        start = batch * 60 + (20 if batch > 1 else 0)
        rows = ((start, 21), (start + 20, 20), (start + 40, 20))
        total += sum(tracker.lost(datagrams(version, *rows)).values())
    assert total == 20


TABLE_SECONDS = 600
FULL = 30


def quiet(
    hours: float,
    *,
    tables: Sequence[tuple[int, int]] = ((0, 200),),
    lost: Iterable[int] = (),
    drawn: random.Random | None = None,
    version: int = 10,
    first: int = 0,
) -> list[pl.DataFrame]:
    """A quiet exporter: a datagram of three records a second, in batches of 20 seconds, and tables of options records.

    Args:
        hours: of it.
        tables: when each is sent for the first time, in seconds, and how many records it has; again every ten minutes.
        lost: the seconds whose datagrams do not arrive; they hold 30 records.
        drawn: a table's records go out within some seconds, flows among them, where this is given.
        version: of the protocol.
        first: sequence number.
    """
    number, gone, due = first, set(lost), dict[int, int]()
    rows, arrivals = [], []
    for now in range(round(hours * 3600)):
        for begin, size in tables:
            if now >= begin and (now - begin) % TABLE_SECONDS == 0:
                left = size
                for after in range(8 if drawn else 0):
                    part = min(drawn.randrange(5, 30), left) if drawn else 0
                    due[now + after] = due.get(now + after, 0) + part
                    left -= part
                due[now] = due.get(now, 0) + left
        number += due.pop(now, 0)
        size = FULL if now in gone else 3
        if now not in gone:
            rows.append((number, size))
            arrivals.append(T0 + now // 20 * 20_000 + 900)
        number += size
    whole = datagrams(version, *rows).with_columns(pl.Series(records.ARRIVAL, arrivals, pl.Int64))
    return whole.partition_by(records.ARRIVAL, maintain_order=True)


def by_hour(batches: Iterable[pl.DataFrame]) -> list[int]:
    """Return what is told as lost in each hour; between any two batches the tracker is saved and loaded at times."""
    tracker, found = SequenceTracker(), dict[int, int]()
    for place, batch in enumerate(batches):
        arrived = batch.get_column(records.ARRIVAL).max()
        assert isinstance(arrived, int)
        hour = (arrived - T0) // 3_600_000
        found[hour] = found.get(hour, 0) + sum(tracker.lost(batch).values())
        if place % 97 == 0:
            saved, tracker = json.loads(json.dumps(tracker.dump())), SequenceTracker()
            tracker.load(saved)
    return list(found.values())


@pytest.mark.parametrize(("size", "seed"), [(2, None), (200, None), (1500, None), (1500, 4)])
def test_a_table_of_options_that_a_clock_sends_is_known_after_an_hour(size: int, seed: int | None) -> None:
    drawn = None if seed is None else random.Random(seed)
    first, *after = by_hour(quiet(3, tables=((300, size),), drawn=drawn))
    assert 6 * (size - 2) <= first <= 6 * size
    assert after == [0, 0]


def test_two_tables_that_are_sent_together_are_one() -> None:
    assert by_hour(quiet(2, tables=((300, 200), (306, 40))))[1:] == [0]


def test_version_5_has_no_options_records() -> None:
    assert by_hour(quiet(2, version=5))[1:] == [1200]


def test_losses_between_tables_and_beside_them_are_told() -> None:
    """Beside one, as of the same moment, the table counts as well: it cannot be told which is which."""
    between, beside = (7_500, 8_200, 8_201, 9_000), (10_203,)
    hours = by_hour(quiet(4, tables=((300, 200),), lost=(*between, *beside)))
    assert hours[1:] == [0, FULL * (len(between) + len(beside)) + 200, 0]


@pytest.mark.parametrize("every", [31, 120])
def test_losses_by_chance_among_tables_are_told(every: int) -> None:
    drawn = random.Random(every)
    lost = {second for second in range(3700, 3 * 3600 - 100) if drawn.random() < 1 / every}
    hours = by_hour(quiet(3, lost=lost))
    tables = 200 * 6 * 2
    assert FULL * len(lost) <= sum(hours[1:]) <= FULL * len(lost) + tables


@pytest.mark.parametrize("every", [60, 300])
def test_losses_by_chance_alone_make_no_rhythm(every: int) -> None:
    """All of one size, about as often as tables may come."""
    drawn = random.Random(every)
    lost = {second for second in range(10, 3 * 3600 - 100) if drawn.random() < 1 / every}
    assert sum(by_hour(quiet(3, tables=(), lost=lost))) == FULL * len(lost)


@pytest.mark.parametrize("every", [2, 20, 50])
def test_regular_losses_more_often_than_once_a_minute_are_told(every: int) -> None:
    lost = range(10, 3600 - 100, every)
    assert sum(by_hour(quiet(1, tables=(), lost=lost))) == FULL * len(lost)


def one_after_another(before: list[pl.DataFrame], after: list[pl.DataFrame], hours: int) -> list[pl.DataFrame]:
    """Return two streams as one, the second one so many hours later; each ends with a datagram of three records."""
    number = before[-1].get_column(records.SEQ)[-1] + 3
    later = (pl.col(records.ARRIVAL) + hours * 3_600_000, pl.col(records.SEQ) + number)
    return [*before, *(batch.with_columns(later) for batch in after)]


@pytest.mark.thorough
def test_a_table_that_grows_is_learned_anew() -> None:
    batches = one_after_another(quiet(2, tables=((300, 200),)), quiet(4, tables=((300, 260),)), 2)
    hours = by_hour(batches)
    assert hours[1] == 0
    assert hours[2] == 6 * 260
    assert hours[4:] == [0, 0]


@pytest.mark.thorough
def test_a_table_that_is_sent_no_more_hides_only_losses_of_its_size_on_its_beat() -> None:
    sent = quiet(2, tables=((300, FULL),))
    on, off = range(300, 7000, 600), range(450, 7100, 600)
    hours = by_hour(one_after_another(sent, quiet(2, tables=(), lost=[*on, *off]), 2))
    assert hours[1:] == [0, FULL * 6, FULL * 6]
    # Two datagrams at once are not of that size; nor is anything hidden when the beat has been silent for long.
    twice = [second + after for second in on for after in (0, 1)]
    assert by_hour(one_after_another(sent, quiet(1, tables=(), lost=[n for n in twice if n < 3600]), 2))[2] > 300
    late = [second for second in on if second > 2000 and second < 3600]
    assert by_hour(one_after_another(sent, quiet(1, tables=(), lost=late), 2))[2] == FULL * len(late)


def test_losses_of_nobody_are_nobodys() -> None:
    tracker = SequenceTracker()
    for batch in range(6):
        assert tracker.lost(datagrams(10, (batch * 100, 20), exporter=None)) == {}


# NetFlow v9 numbers datagrams -----------------------------------------------------------------------


def v9(numbers: Iterable[int], size: int = 20) -> pl.DataFrame:
    return datagrams(9, *((number, size) for number in numbers))


def lost_of(tracker: SequenceTracker, batches: Iterable[pl.DataFrame]) -> int:
    return sum(sum(tracker.lost(batch).values()) for batch in batches)


def settled(numbers: Sequence[int], size: int = 100) -> list[pl.DataFrame]:
    """Cut a stream into batches, and let two more come, with which the last gaps settle."""
    batches = [v9(numbers[begin : begin + size]) for begin in range(0, len(numbers), size)]
    return [*batches, *(v9([numbers[-1] + after]) for after in (1, 2))]


def arrived(share: float, end: int = 2000) -> list[int]:
    """Return the datagrams that arrive where a share is lost by chance; the first and the last one do."""
    drawn = random.Random(9)
    return [number for number in range(end) if drawn.random() >= share or number in (0, end - 1)]


def test_lost_datagrams_of_v9_are_told_in_records() -> None:
    numbers = arrived(0.1)
    assert 1750 < len(numbers) < 1850
    assert lost_of(SequenceTracker(), settled(numbers)) == 20 * (2000 - len(numbers))


def test_a_lost_datagram_of_v9_was_as_full_as_those_around_it() -> None:
    tracker, numbers = SequenceTracker(), arrived(0.1, 500)
    by_day = [v9(numbers[begin : begin + 50], 30) for begin in range(0, len(numbers), 50)]
    by_night = [v9(range(begin, begin + 50), 2) for begin in range(500, 1000, 50)]
    # Of the last two batches of the day, the means have nights in them.
    assert 27 * (500 - len(numbers)) < lost_of(tracker, [*by_day, *by_night]) <= 30 * (500 - len(numbers))


def test_records_of_one_datagram_that_come_with_two_purges_are_no_loss() -> None:
    tracker = SequenceTracker()
    batches = []
    for begin in range(0, 1000, 100):
        # A chunk ends in the middle of a purge, whose records stand there in any order.
        numbers = list(range(begin, begin + 100))
        random.Random(begin).shuffle(numbers)
        batches += [v9(numbers[:60], 12), v9(numbers[40:], 8)]
    assert lost_of(tracker, batches) == 0


@pytest.mark.parametrize(("every", "length"), [(16, 1), (20, 1), (21, 1), (40, 2), (120, 1)])
def test_datagrams_of_templates_alone_are_no_losses(every: int, length: int) -> None:
    """pmacct does not print them: a gap every so many datagrams, for as long as the exporter lives."""
    numbers = [number for number in range(3000) if number % every >= length]
    assert lost_of(SequenceTracker(), settled(numbers, 900)) == 0


@pytest.mark.parametrize(("every", "length"), [(2, 1), (10, 1), (15, 1), (21, 2), (40, 3)])
def test_what_is_missing_more_often_than_templates_is_a_loss_however_regular(every: int, length: int) -> None:
    """As where one of two links that take turns is dead."""
    numbers = [number for number in range(6000) if number % every >= length]
    missing = numbers[-1] + 1 - numbers[0] - len(numbers)
    assert missing > 6000 * (length / every - 0.001)
    assert lost_of(SequenceTracker(), settled(numbers)) == 20 * missing


@pytest.mark.parametrize(("every", "remainder"), [(2, 0), (2, 1), (10, 0), (10, 5)])
def test_regular_losses_among_templates_are_told(every: int, remainder: int) -> None:
    sent = [number for number in range(1, 8000) if number % 20]
    # Templates have shown their rhythm when the link dies.
    arrive = [number for number in sent if number < 2000 or number % every != remainder]
    found = lost_of(SequenceTracker(), settled(arrive))
    # Where templates go the way of what is lost, they are gaps of the same length and may pass for losses.
    assert 20 * (len(sent) - len(arrive) - 1) <= found <= 20 * (arrive[-1] + 1 - 2000 - (len(arrive) - 1900))


def test_losses_among_templates_are_told() -> None:
    tracker = SequenceTracker()
    sent = [number for number in range(1, 4000) if number % 20]
    batches = [[number for number in sent if begin <= number < begin + 400] for begin in range(0, 4000, 400)]
    # One that is alone, three in a row with a template among them, and one in the place before a template.
    lost = {1005, 2019, 2021, 2022, 3019}
    found = lost_of(tracker, [v9(number for number in batch if number not in lost) for batch in batches])
    # A template whose neighbours are lost passes for one of them.
    assert 20 * len(lost) <= found <= 20 * (len(lost) + 2)


def test_what_has_lost_its_rhythm_is_a_loss_again() -> None:
    """The exporter sends templates among its records now, and the network loses some."""
    tracker = SequenceTracker()
    assert lost_of(tracker, [v9(n for n in range(begin, begin + 400) if n % 20) for begin in (0, 400, 800)]) == 0
    numbers = [number + 1200 for number in arrived(0.1)]
    found = lost_of(tracker, settled(numbers))
    gone = 2000 - len(numbers)
    assert 20 * (gone - 3) <= found <= 20 * gone


def test_a_restart_loses_no_count_of_losses() -> None:
    """Saved and loaded between any two batches, the tracker tells what it would have told."""
    batches = settled([number for number in arrived(0.02) if number % 20])
    options = [datagrams(10, (begin, 20), (begin + 20, 20), (begin + 41, 20)) for begin in range(0, 1220, 61)]
    whole, broken = SequenceTracker(), SequenceTracker()
    told = []
    for batch in [pl.concat(pair) for pair in zip(batches, options, strict=False)]:
        saved = json.loads(json.dumps(broken.dump()))
        broken = SequenceTracker()
        broken.load(saved)
        told.append(broken.lost(batch))
        assert told[-1] == whole.lost(batch)
    assert sum(sum(each.values()) for each in told) > 0


def test_the_engine_keeps_what_it_knows_of_numbers() -> None:
    engine, after = (Engine(cluster(), Clock.LIVE, Counters()) for _ in range(2))
    numbers, seconds = (1, 2, 4, 5, 6), (0, 0, 0, 2, 4)
    rows = [
        one(arrival=T0 + 1000 * after, version=9, seq=number, domain=0)
        for number, after in zip(numbers, seconds, strict=True)
    ]
    engine.take(pl.concat(rows[:3]), T0 / 1000)
    engine.take(rows[3], T0 / 1000)
    engine.merge()
    frames, notes = engine.dump()
    after.load(frames, json.loads(json.dumps(notes)))
    after.take(rows[4], T0 / 1000)
    (points,) = (points for measurement, points in after.merge() if measurement is schema.EXPORTER_STATUS)
    assert points.get_column(schema.SEQ_LOST.name).sum() == 1


@pytest.mark.parametrize("version", [5, 9, 10])
@pytest.mark.parametrize("pieces", [1, 9])
def test_a_purge_read_in_pieces_is_one_batch(version: int, pieces: int) -> None:
    """Many records a second: the rest of a datagram comes with the next purge, however many pieces the purge fills."""
    tracker, found = SequenceTracker(), 0
    step = 1 if version == 9 else 20
    for purge in range(9):
        numbers = list(range(purge * 900, purge * 900 + 900))
        gone = range(1_801, 1_811)
        # Some datagrams of the fifth purge come with the sixth.
        late = range(4 * 900 + 100, 4 * 900 + 140)
        numbers = [number for number in numbers if number not in gone and number not in late]
        numbers += late if purge == 5 else ()
        for piece in range(pieces):
            first, last = len(numbers) * piece // pieces, len(numbers) * (piece + 1) // pieces
            rows = datagrams(version, *((number * step, 20) for number in numbers[first:last]))
            arrival = pl.lit(T0 + 2000 * purge + piece, pl.Int64).alias(records.ARRIVAL)
            found += sum(tracker.lost(rows.with_columns(arrival)).values())
    assert found == 10 * 20


def test_an_arrival_ahead_of_all_others_stops_no_counting() -> None:
    """The collector's clock was set back, or a single record is wrong."""
    tracker, found = SequenceTracker(), 0
    lost = (5_000, 11_111, 17_003, 29_001, 36_002)
    for batch in range(200):
        numbers = [number for number in range(batch * 200, batch * 200 + 200) if number not in lost]
        arrival = T0 + 2_000 * batch + (3_600_000 if batch == 0 else 0)
        rows = v9(numbers).with_columns(pl.lit(arrival, pl.Int64).alias(records.ARRIVAL))
        found += sum(tracker.lost(rows).values())
    assert found == len(lost) * 20
    assert len(json.dumps(tracker.dump())) < 20_000


# Exporters that start anew --------------------------------------------------------------------------


def lives(version: int, share: float, *ends: int) -> tuple[list[list[tuple[int, int]]], int]:
    """Return the datagrams that arrive, (number, size), of each of an exporter's processes, and the records lost."""
    size = 20
    step = 1 if version == 9 else size
    found = [arrived(share, end) for end in ends]
    lost = sum(size * (end - len(numbers)) for end, numbers in zip(ends, found, strict=True))
    return [[(number * step, size) for number in numbers] for numbers in found], lost


@pytest.mark.parametrize("version", [5, 9, 10])
@pytest.mark.parametrize("ends", [(3000, 2000, 1000), (1000, 2000, 3000), (600, 600, 600, 600)])
def test_an_exporter_that_starts_anew_again_and_again_hides_no_loss(version: int, ends: tuple[int, ...]) -> None:
    tracker = SequenceTracker()
    processes, lost = lives(version, 0.2, *ends)
    batches = [
        datagrams(version, *part)
        for sent in processes
        # The last ones come alone, so that the gaps before them settle.
        for part in (*(sent[begin : begin + 50] for begin in range(0, len(sent) - 3, 50)), sent[-3:], sent[-1:], [])
    ]
    assert lost > 10_000
    assert lost_of(tracker, batches) == pytest.approx(lost, rel=0.03)


@pytest.mark.parametrize("version", [5, 9, 10])
def test_a_batch_may_hold_the_end_of_a_process_and_the_start_of_the_next(version: int) -> None:
    tracker = SequenceTracker()
    processes, lost = lives(version, 0.2, 3000, 3000, 3000)
    stream = [datagram for sent in processes for datagram in sent]
    batches = [datagrams(version, *stream[begin : begin + 70]) for begin in range(0, len(stream), 70)]
    assert all(len(sent) % 70 for sent in processes)
    # What had not settled when a process ended is not told: three batches of it, some fifty losses.
    assert 0.88 * lost < lost_of(tracker, batches) <= lost


@pytest.mark.parametrize("version", [5, 9, 10])
@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 2, 1, 3), (2, 3, 1, 0), (3, 2, 1, 0)])
def test_batches_out_of_order_are_no_new_start(version: int, order: tuple[int, ...]) -> None:
    (sent,), _ = lives(version, 0.1, 4000)
    parts = [sent[begin : begin + 50] for begin in range(0, len(sent), 50)]
    turns = [parts[begin : begin + 4] for begin in range(0, len(parts) - 4, 4)]
    tracker = SequenceTracker()
    lost_of(tracker, [datagrams(version, *turn[place]) for turn in turns for place in order])
    ((*_, stream),) = tracker.dump()
    assert (stream["first"], stream["end"]) == (0, turns[-1][-1][-1][0] + (1 if version == 9 else 20))


@pytest.mark.parametrize(("share", "again"), [(0.1, 0), (0, 10)])
def test_datagrams_that_come_late_or_twice_are_neither_lost_nor_a_new_start(share: float, again: int) -> None:
    numbers = arrived(share, 4000)
    batches = []
    for begin in range(0, len(numbers), 200):
        first, second, third, last = (numbers[begin + after : begin + after + 50] for after in (0, 50, 100, 150))
        in_time = [number for number in first if number % 7]
        late = [number for number in first if number % 7 == 0]
        batches += [v9(in_time), v9([*late, *second]), v9([*first[:again], *third]), v9(last)]
    assert lost_of(SequenceTracker(), [*batches, v9([4000]), v9([4001])]) == 20 * (4000 - len(numbers))


def test_a_first_batch_out_of_order_is_no_loss() -> None:
    batches = [v9([7, 8, 10]), v9([6, 9, 11]), *(v9([number]) for number in range(12, 20))]
    assert lost_of(SequenceTracker(), batches) == 0


def test_what_would_hide_losses_is_not_loaded() -> None:
    """A stream that has received more than was sent."""
    tracker, after = SequenceTracker(), SequenceTracker()
    assert lost_of(tracker, settled(range(1000))) == 0
    saved = json.loads(json.dumps(tracker.dump()))
    saved[0][3]["received"] += 5000
    after.load(saved)
    numbers = [number + 1002 for number in arrived(0.1)]
    assert lost_of(after, settled(numbers)) == 20 * (2000 - len(numbers))
