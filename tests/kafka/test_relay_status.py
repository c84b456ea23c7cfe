"""What a relay says of itself, and what a worker makes of that; brokers have no part in it."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from relay_stage import HEADER, lines
from test_kafka_partition import EXPORTER, RELAYED, ages, buried, state_of, surroundings, took

from app.log import Log
from ingest.collect.template_file import TemplateFile
from ingest.collect.trouble_file import LATELY, Troubles
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.kafka.client import Topics
from ingest.kafka.flow_messages import Kind, Message, decode, encode, envelope
from ingest.kafka.partition import PartitionWork
from ingest.kafka.partitioner import Partitions
from ingest.kafka.publisher import Sender
from ingest.kafka.relay import Relay
from ingest.kafka.relay_status import MOST_RELAYS, REMEMBERED_SECONDS, is_told, status_of, told
from ingest.read.records import Reason
from ingest.read.spool import Spool
from store import schema
from store.schema import Stage, Unread

DAY = REMEMBERED_SECONDS
PARTITIONS = 4


def said(
    relay: str,
    at: float,
    *,
    backlog: int = 0,
    records: int = 0,
    dead: int = 0,
    drained: float | None = None,
    told: dict[str, int] | None = None,
) -> bytes:
    """Return the message in which a relay says how it is; its spool is read, if nothing else is said."""
    counters = Counters()
    counters.add(Stage.READ, "records", records)
    counters.add(Stage.READ, "dead_letters", dead)
    read = at if drained is None else drained
    status = status_of(counters, backlog=backlog, drained=read, now=at)
    (value,) = encode(status, relay=relay, kind=Kind.STATUS, told=told)
    return value


def relays(work: PartitionWork, now: float) -> dict[str, dict[str, Any]]:
    """Return what a worker reports of the relays."""
    (readings,) = [points for measurement, points in work.report(now, {}, 0) if measurement is schema.RELAY_STATUS]
    return {str(row[schema.RELAY]): row for row in readings.iter_rows(named=True)}


def relay_ages(work: PartitionWork, now: float) -> dict[str, float]:
    return {relay: row[schema.RELAY_AGE.name] for relay, row in relays(work, now).items()}


def befell(work: PartitionWork, now: float) -> dict[str, float]:
    """Return what a worker reports of the collectors."""
    (rows,) = [points for measurement, points in work.report(now, {}, 0) if measurement is schema.PIPELINE]
    found = rows.filter(pl.col(schema.STAGE) == Stage.COLLECT.value)
    return dict(found.select(schema.REASON, schema.VALUE.name).iter_rows())


def unread(work: PartitionWork, now: float) -> dict[str, int]:
    """Return what a worker reports of exporters whose records pmacct does not read."""
    (rows,) = [points for measurement, points in work.report(now, {}, 0) if measurement is schema.EXPORTER_STATUS]
    return dict(rows.drop_nulls(schema.UNREAD.name).select(schema.EXPORTER, schema.UNREAD.name).iter_rows())


@pytest.fixture
def work(tmp_path: Path) -> PartitionWork:
    """A partition in the hands of a worker that began a while ago."""
    return PartitionWork(surroundings(tmp_path, started=time.time() - 5000), 1, 0, None)


# -- a worker ----------------------------------------------------------------------------------------


def test_what_befell_the_collectors_is_reported_until_it_is_over(work: PartitionWork) -> None:
    now = time.time()
    work.put(0, said("rack-7", now, told={"refused leaf-1": 5, "unreadable 192.0.2.7": int(Unread.TAGGED)}))
    work.put(1, said("rack-8", now, told={"refused leaf-1": 2, "died nfacctd": 1}))
    work.take(now)
    assert befell(work, now) == {"refused leaf-1": 7, "died nfacctd": 1}
    assert unread(work, now) == {"192.0.2.7": int(Unread.TAGGED)}
    work.put(2, said("rack-7", now + 60))
    work.take(now + 60)
    assert befell(work, now + 60) == {"refused leaf-1": 2, "died nfacctd": 1}
    assert unread(work, now + 60) == {}
    assert befell(work, now + LATELY + 1) == {"refused leaf-1": 0, "died nfacctd": 0}, "its relay is gone"


def test_dead_letters_of_relays_are_counted_with_the_others(work: PartitionWork) -> None:
    now = time.time()
    took(work, [said("rack-7", now, dead=15), said("rack-8", now, dead=2), said("rack-7", now + 10, dead=18)])
    before = state_of(work)
    work = took(PartitionWork(work._around, 1, 0, before), [said("rack-7", now + 20, dead=20)])
    # Started again, it counts from 0.
    took(work, [said("rack-7", now + 30), said("rack-7", now + 40, dead=1), b"garbage"])
    found = {reason: work.counters.total(Stage.READ, reason) for reason in ("dead_letters", *Reason)}
    assert {reason: count for reason, count in found.items() if count} == {
        "dead_letters": 24, Reason.AT_A_RELAY: 23, Reason.NOT_A_RECORD: 1,
    }  # fmt: skip


def test_a_relay_that_says_nothing_more_grows_old_and_others_do_not(work: PartitionWork) -> None:
    now = time.time()
    took(work, [said("rack-7", now - 300, backlog=7, records=40), said("rack-8", now - 2)])
    work.at_end = True
    found = relays(work, now)
    assert relay_ages(work, now) == {"rack-7": pytest.approx(300, abs=1), "rack-8": pytest.approx(2, abs=1)}
    row = found["rack-7"]
    assert row[schema.SHARD] == work.shard
    assert row[schema.RELAY_LAST_SEEN.name] == pytest.approx(now - 300, abs=0.01)
    assert (row[schema.RELAY_BACKLOG.name], row[schema.RELAY_RECORDS.name]) == (7, 40)
    took(work, [said("rack-7", now)])
    assert relay_ages(work, now)["rack-7"] < 1


def test_nobody_is_silent_because_a_worker_has_a_backlog(work: PartitionWork) -> None:
    """An hour waits in the topic: a relay of which the newest words are not read yet may be well."""
    now = time.time()
    took(work, [said("rack-7", now - 3600), said("rack-8", now - 3590)])
    assert relay_ages(work, now) == {"rack-7": pytest.approx(10, abs=1), "rack-8": pytest.approx(0, abs=1)}


def test_what_others_bring_tells_who_is_silent_though_the_topic_never_ends(work: PartitionWork) -> None:
    now = time.time()
    took(work, [said("rack-7", now - 300), _flow_at(now - 3)])
    assert relay_ages(work, now) == {"rack-7": pytest.approx(297, abs=1)}


def _flow_at(moment: float) -> bytes:
    times = [pl.lit(int(moment * 1000)).alias(name) for name in ("start", "end", "arrival")]
    return encode(decode(RELAYED).frame.with_columns(times), relay="rack-8")[0]


def test_a_successor_knows_who_is_silent(work: PartitionWork, tmp_path: Path) -> None:
    now = time.time()
    before = state_of(took(work, [said("rack-7", now - 300, backlog=7)]))
    successor = PartitionWork(surroundings(tmp_path, started=now), 1, 0, before)
    successor.at_end = True
    assert relay_ages(successor, now) == {"rack-7": pytest.approx(300, abs=1)}
    assert relays(successor, now)["rack-7"][schema.RELAY_BACKLOG.name] == 7


def test_a_state_of_before_relays_spoke_is_taken_over(work: PartitionWork, tmp_path: Path) -> None:
    before = state_of(took(work, [RELAYED]))
    del before.notes["relays"]
    assert relays(PartitionWork(surroundings(tmp_path), 1, 0, before), time.time()) == {}


def test_after_a_day_a_relay_is_forgotten(work: PartitionWork) -> None:
    now = time.time()
    # It names a time of long ago: it is known as long as others, or names without end could come one after the other.
    took(work, [said("rack-7", now - DAY)])
    work.at_end = True
    assert relay_ages(work, now) == {"rack-7": pytest.approx(5000, abs=10)}, "it counts from when it could be heard"
    assert relay_ages(work, now + DAY - 60)["rack-7"] > DAY - 60
    assert relay_ages(work, now + DAY + 60) == {"rack-7": 0}, "an alert ends"
    assert relay_ages(work, now + DAY + 900) == {}
    assert state_of(work).notes["relays"] == {}


@pytest.mark.parametrize("step", [-7200, 7200])
def test_a_clock_that_was_set_makes_no_relay_silent(work: PartitionWork, step: int) -> None:
    now = time.time()
    took(work, [said("rack-7", now)])
    work.clock_stepped(now + step)
    work.at_end = True
    assert relay_ages(work, now + step + 20)["rack-7"] < 30


def test_a_relay_whose_clock_is_ahead_is_missed_in_time(work: PartitionWork) -> None:
    now = time.time()
    took(work, [said("rack-7", now + 7200)])
    work.at_end = True
    assert relay_ages(work, now + 300)["rack-7"] == pytest.approx(300, abs=2)


def test_so_many_relays_are_known_and_no_more(work: PartitionWork) -> None:
    now = time.time()
    took(work, [said(f"relay-{number}", now) for number in range(MOST_RELAYS + 5)])
    took(work, [said("relay-3", now, backlog=9)])
    found = relays(work, now)
    assert len(found) == MOST_RELAYS
    assert work.counters.total(Stage.READ, "relays_ignored") == 5
    assert found["relay-3"][schema.RELAY_BACKLOG.name] == 9


def test_a_status_under_a_name_that_is_none_is_a_dead_letter(work: PartitionWork, tmp_path: Path) -> None:
    value = said("rack-7", time.time())
    value = envelope("a,b=c", Kind.STATUS) + value[len(envelope("rack-7", Kind.STATUS)) :]
    took(work, [RELAYED, value])
    assert buried(tmp_path) == 1
    assert relays(work, time.time()) == {}


def test_that_a_relay_is_there_hides_no_silent_exporter_and_makes_nothing_late(work: PartitionWork) -> None:
    """Its messages take a topic's end away for a moment: what is known at the end is known then, too."""
    now = time.time()
    took(work, [_flow_at(now - 900)])
    work._lag = 2.0
    took(work, [said("rack-7", now)])
    assert not work.at_end
    assert ages(work, now)[EXPORTER] == pytest.approx(900, abs=2)
    readings = dict(work.counters.readings())
    assert readings[Stage.BRIDGE.value, schema.LAG_SECONDS] == pytest.approx(2, abs=1)
    # The estimate goes by messages that hold flows.
    assert readings[Stage.READ.value, schema.BACKLOG_BYTES] == pytest.approx(5 * len(RELAYED), rel=0.01)


def test_while_a_relay_works_off_a_backlog_no_exporter_is_silent(work: PartitionWork) -> None:
    """Brokers were away for ten minutes: what its exporters sent since waits in its spool."""
    now = time.time()
    took(work, [_flow_at(now - 600), said("rack-7", now, drained=now - 620)])
    assert ages(work, now)[EXPORTER] == 0
    work.at_end = True
    assert ages(work, now)[EXPORTER] == 0
    # Dead, it holds up nobody's silence for long.
    assert ages(work, now + 300)[EXPORTER] == pytest.approx(900, abs=2)


def test_only_flows_are_late(work: PartitionWork) -> None:
    now = time.time()
    took(work, [_flow_at(now - 2)])
    work._engine._newest = int((now - 600) * 1000)
    took(work, [b"nothing that anybody knows"])
    work.at_end = True
    work.report(now, {}, 0)
    assert dict(work.counters.readings())[Stage.BRIDGE.value, schema.LAG_SECONDS] == pytest.approx(2, abs=1)


# -- a relay -----------------------------------------------------------------------------------------


@dataclass
class _Brokers:
    """In the place of a `Sender`: takes messages and notes; while `are_away` is set nothing is committed."""

    messages: list[tuple[int, Message]] = field(default_factory=list)
    commits: list[Any] = field(default_factory=list)
    are_away: threading.Event = field(default_factory=threading.Event)
    topics: Topics = field(default_factory=lambda: Topics("flows", "state", "relays", PARTITIONS, 900_000, 900_000))

    def open(self, accept: object) -> None:
        """Nothing was committed before."""

    def add(self, messages: Iterable[tuple[int, bytes]]) -> None:
        self.messages += [(partition, decode(value)) for partition, value in messages]

    def commit(self, notes: Any) -> None:
        while self.are_away.is_set():
            time.sleep(0.01)
        self.commits.append(notes)

    def close(self) -> None:
        """There is nothing to let go of."""

    def statuses(self) -> list[dict[str, Any]]:
        return [one.frame.row(0, named=True) for _, one in self.messages if one.kind is Kind.STATUS]

    def until(self, statuses: int) -> None:
        deadline = time.monotonic() + 20
        while len(self.statuses()) < statuses:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@dataclass
class _Running:
    """A relay in a thread of this process."""

    folder: Path
    seconds: float | None = 0.05
    once: bool = False
    brokers: _Brokers = field(default_factory=_Brokers)
    stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> _Brokers:
        self.relay = Relay(
            "rack-7",
            Spool(self.folder, once=self.once),
            cast("Sender", self.brokers),
            dead_letter=DeadLetters(self.folder / "dead.jsonl"),
            stop=self.stop,
            log=Log(quiet=True),
            counters=Counters(),
            status_seconds=self.seconds,
        )
        self.thread = threading.Thread(target=self.relay.run)
        self.thread.start()
        return self.brokers

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(20)
        assert not self.thread.is_alive()


def test_what_befell_the_collector_lies_in_its_status(tmp_path: Path) -> None:
    Troubles(tmp_path, time.time).add("refused", "leaf-1", 5)
    with _Running(tmp_path) as brokers:
        brokers.until(1)
    assert brokers.messages[0][1].told == {"refused leaf-1": 5}


def test_no_two_threads_look_at_the_same_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: dict[TemplateFile, set[str]] = {}
    look = TemplateFile._look

    def noted(self: TemplateFile) -> None:
        looked.setdefault(self, set()).add(threading.current_thread().name)
        look(self)

    monkeypatch.setattr(TemplateFile, "_look", noted)
    (tmp_path / "nfacct-1790000000.csv").write_text("\n".join([HEADER, *lines(0, 250), ""]))
    with _Running(tmp_path, once=True) as brokers:
        brokers.until(1)
    assert len(looked) > 1
    assert all(len(threads) == 1 for threads in looked.values()), looked


def test_an_idle_relay_says_that_it_is_there_and_moves_nothing(tmp_path: Path) -> None:
    before = time.time()
    with _Running(tmp_path) as brokers:
        brokers.until(4)
    (mine,) = Partitions(PARTITIONS).of(pl.Series(["rack-7"]))
    assert {(partition, one.relay, one.kind) for partition, one in brokers.messages} == {(mine, "rack-7", Kind.STATUS)}
    assert len(brokers.commits) == len(brokers.messages), "each in a transaction of its own"
    assert all(notes == brokers.commits[0] for notes in brokers.commits)
    told = [status["moment"] / 1000 for status in brokers.statuses()]
    assert told == sorted(told)
    assert before <= told[0] <= told[-1] <= time.time()


def test_it_tells_what_it_has_counted_and_what_waits(tmp_path: Path) -> None:
    with _Running(tmp_path) as brokers:
        brokers.until(2)
        text = "\n".join([HEADER, *lines(0, 250), "nonsense", ""])
        (tmp_path / "nfacct-1790000000.csv").write_text(text)
        deadline = time.monotonic() + 20
        while brokers.statuses()[-1][schema.RELAY_RECORDS.name] < 250:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        brokers.until(len(brokers.statuses()) + 1)
    last = brokers.statuses()[-1]
    assert last[schema.RELAY_BYTES.name] == len(text)
    assert (last[schema.RELAY_DEAD_LETTERS.name], last[schema.RELAY_BACKLOG.name]) == (1, 0)


def test_while_brokers_are_away_one_status_waits_and_no_second_one(tmp_path: Path) -> None:
    with _Running(tmp_path) as brokers:
        brokers.until(1)
        brokers.are_away.set()
        time.sleep(0.6)
        waiting = len(brokers.messages) - len(brokers.commits)
        brokers.are_away.clear()
        assert waiting <= 1
        brokers.until(len(brokers.statuses()) + 1)


def test_who_reads_to_an_end_says_nothing_of_itself(tmp_path: Path) -> None:
    with _Running(tmp_path, seconds=None, once=True) as brokers:
        time.sleep(0.3)
    assert brokers.messages == []
    assert brokers.commits == []


def test_a_relay_tells_whose_records_come_twice(tmp_path: Path) -> None:
    found = told(TemplateFile(tmp_path), tmp_path, time.time(), {"192.0.2.7"})
    assert found == {"unreadable 192.0.2.7": int(Unread.TWICE)}
    assert is_told(found)
