"""What a worker remembers of a partition: records that bring a compacted topic up to date, and what they say again."""

import json
import time
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest
from confluent_kafka import Producer
from polars.testing import assert_frame_equal
from topic_stage import REPOSITORY

from app.errors import UserError
from app.log import Log
from cluster.load import load_cluster
from ingest.count.engine import Engine, ExporterReading
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.kafka import partition_state
from ingest.kafka.client import TooLargeError, explain
from ingest.kafka.commit import Committer
from ingest.kafka.lease import Lease, LeaseError
from ingest.kafka.partition_state import StateRecords, remembered
from ingest.read import records
from ingest.readings import exporter_readings
from store import schema

CLUSTER = load_cluster(REPOSITORY / "cluster.yaml")
BEGIN = 1_790_000_000


class Topic:
    """A compacted topic, as somebody who reads all of it sees it; and one engine that is remembered there."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.engine = Engine(CLUSTER, Clock.LIVE, Counters())
        self.records = StateRecords(names_each=100)
        self.written = 0

    def offered(self, notes: dict[str, Any] | None = None, now: float = 0) -> list[partition_state.Record]:
        self.records.touch(self.engine)
        self.engine.merge()
        return self.records.records(self.engine, notes or {}, now)

    def flush(self, now: float = 0) -> list[bytes]:
        """Write what is offered; return the keys."""
        offered = self.offered(now=now)
        for key, value in offered:
            self.values.pop(key, None)
            if value is not None:
                assert len(value) <= partition_state.RECORD_BYTES
                self.values[key] = value
        self.records.committed(now)
        self.records.forget(self.engine.evict())
        return [key for key, _ in offered]

    def again(self) -> Engine:
        """Return the engine that a successor has."""
        found = remembered(self.values, "topic[0]")
        assert found is not None
        engine = Engine(CLUSTER, Clock.LIVE, Counters())
        engine.load(found.frames, found.notes["engine"])
        return engine

    def check(self) -> None:
        again = self.again()
        for name, table in self.engine.tables.items():
            keys = table.keys
            assert_frame_equal(again.tables[name].state.sort(keys), table.state.sort(keys))
        assert again.newest == self.engine.newest


def flows(second: int, count: int = 1, first: int = 0) -> pl.DataFrame:
    """Flows of a moment from a model store to so many hosts outside."""
    moment = (BEGIN + second) * 1000
    rows = {
        records.SRC: ["10.40.0.11"] * count,
        records.DST: [f"203.0.{number >> 8 & 255}.{number & 255}" for number in range(first, first + count)],
        records.EXPORTER: [str(CLUSTER.exporters[0].address)] * count,
        records.START: [moment] * count,
        records.END: [moment] * count,
        records.ARRIVAL: [moment] * count,
        **dict.fromkeys((records.BYTES, records.PACKETS, records.FLOWS, records.SAMPLING_RATE), [1] * count),
        records.PROTOCOL: [6] * count,
        records.DST_PORT: [443] * count,
    }
    frame = pl.DataFrame(rows)
    defaults = dict.fromkeys((records.SRC_PORT, records.TCP_FLAGS, records.TOS), 0)
    return frame.select(
        (pl.col(name) if name in rows else pl.lit(defaults.get(name))).cast(dtype).alias(name)
        for name, dtype in records.RECORD_SCHEMA.items()
    )


def windows(keys: list[bytes]) -> set[int]:
    return {int(key.split(b"/")[1]) - BEGIN for key in keys if not key.startswith((b"notes", b"series", b"newest"))}


def test_a_flush_writes_the_windows_it_touched_and_no_others() -> None:
    topic = Topic()
    for second in range(0, 200, 10):
        topic.engine.take(flows(second), BEGIN + second)
        assert windows(topic.flush(now=second)) == {second}
        topic.check()


def test_what_memory_lets_go_is_removed_with_the_next_flush() -> None:
    topic = Topic()
    for second in (0, 10, 20, 400):
        topic.engine.take(flows(second), BEGIN + second)
        topic.flush()
    assert windows(list(topic.values)) == {0, 10, 20, 400}
    topic.engine.take(flows(410), BEGIN + 410)
    topic.flush()
    assert windows(list(topic.values)) == {400, 410}
    topic.check()


def test_a_window_of_many_rows_is_cut_into_pieces_and_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_state, "RECORD_BYTES", 20_000)
    topic = Topic()
    topic.engine.take(flows(0, 3000), BEGIN)
    assert sum(key.startswith(f"egress/{BEGIN}/".encode()) for key in topic.flush()) > 3
    topic.check()
    # Fewer rows than before, as where conversations fold into `other`.
    table = topic.engine.tables["egress"]
    table.state = table.state.head(1)
    topic.engine.take(flows(0), BEGIN)
    topic.flush()
    topic.check()


def decide(engine: Engine, count: int) -> None:
    """Have it found out who counts for so many pairs of groups and exporters."""
    engine._once.decisions = {
        (f"training-rack-{n % 40}", f"storage-rack-{n // 40 % 40}", f"leaf-{n // 1600}"): [(BEGIN, f"spine-{n % 4}")]
        for n in range(count)
    }


def in_memory() -> Producer:
    """A producer whose broker is librdkafka's own; its limits of size are the client's, which come first."""
    return Producer(
        {"bootstrap.servers": "none", "test.mock.num.brokers": 1, "transactional.id": "worker", "log_level": 0}
    )


def test_notes_of_many_decisions_are_cut_into_pieces_and_leave_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    topic.engine.take(flows(0), BEGIN)
    decide(topic.engine, 20_000)
    monkeypatch.setattr(partition_state, "RECORD_BYTES", 50_000)
    assert sum(key.startswith(b"notes/") for key in topic.flush()) > 1
    assert topic.again()._once.decisions == topic.engine._once.decisions
    # Whoever takes over cleans up as well.
    topic.records = StateRecords(names_each=100)
    topic.records.restored([*topic.values])
    decide(topic.engine, 1)
    topic.flush()
    assert [key for key in topic.values if key.startswith(b"notes/")] == [b"notes/0/0"]
    # Plain, as an earlier version has it.
    assert json.loads(topic.values[b"notes/0/0"])["version"] == partition_state.VERSION
    assert topic.again()._once.decisions == topic.engine._once.decisions


def test_notes_that_lack_a_piece_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_state, "RECORD_BYTES", 50_000)
    topic = Topic()
    decide(topic.engine, 20_000)
    topic.flush()
    del topic.values[b"notes/0/1"]
    with pytest.raises(UserError, match="damaged"):
        topic.again()


def committer(log: Log) -> Committer:
    return Committer(
        in_memory, state_topic="state", topic="flows", explain=lambda error: explain(error, CLUSTER.kafka), log=log
    )


def test_notes_of_20_000_decisions_are_taken_by_a_producer() -> None:
    topic = Topic()
    decide(topic.engine, 20_000)
    producer = in_memory()
    producer.init_transactions(10)
    producer.begin_transaction()
    for key, value in topic.offered():
        producer.produce("state", value, key)
    producer.abort_transaction(10)


def test_a_record_that_is_too_large_is_told_and_not_offered_for_ever() -> None:
    with pytest.raises(TooLargeError):
        committer(Log(quiet=True)).commit({0: [(b"key", bytes(1_100_000))]}, {0: 1}, Mock())


def test_what_was_offered_in_vain_is_offered_again_with_what_came_since() -> None:
    topic = Topic()
    topic.engine.take(flows(0), BEGIN)
    topic.offered()
    topic.engine.take(flows(10), BEGIN + 10)
    assert windows(topic.flush()) == {0, 10}
    topic.check()


def test_a_successor_removes_what_its_predecessor_wrote() -> None:
    topic = Topic()
    topic.engine.take(flows(0), BEGIN)
    topic.flush()
    topic.engine, before = topic.again(), topic.values
    topic.records = StateRecords(names_each=100)
    topic.records.restored(before)
    for second in (400, 410):
        topic.engine.take(flows(second), BEGIN + second)
        topic.flush()
    assert windows(list(topic.values)) == {400, 410}
    topic.check()


def test_names_are_written_now_and_then_and_known_from_the_windows_in_between() -> None:
    topic = Topic()
    topic.engine.take(flows(0, 5), BEGIN)
    assert any(key.startswith(b"series-egress/") for key in topic.flush(now=0))
    topic.engine.take(flows(10, 5, first=5), BEGIN + 10)
    assert not any(key.startswith(b"series-egress/") for key in topic.flush(now=50))
    again = topic.again().tables["egress"]
    again.recount_names()
    order = again.series.columns
    assert_frame_equal(again.series.sort(order), topic.engine.tables["egress"].series.sort(order))
    assert again.series.height == 10
    topic.engine.take(flows(20), BEGIN + 20)
    assert any(key.startswith(b"series-egress/") for key in topic.flush(now=100))


@pytest.mark.parametrize("broken", [b"{}", b'{"version": 99}', b"\xff"])
def test_what_is_no_state_of_ours_is_refused_with_a_hint(broken: bytes) -> None:
    with pytest.raises(UserError, match=r"topic\[0\]") as refused:
        remembered({b"notes/0/0": broken}, "topic[0]")
    assert "kafka.state_topic" in refused.value.hint


def test_rows_without_notes_are_refused() -> None:
    topic = Topic()
    topic.engine.take(flows(0), BEGIN)
    topic.flush()
    del topic.values[b"notes/0/0"]
    with pytest.raises(UserError, match="damaged"):
        topic.again()


def test_a_partition_without_records_has_no_state() -> None:
    assert remembered({}, "topic[0]") is None


def test_a_lease_that_ran_out_stays_over_for_its_term() -> None:
    lease = Lease(0.2)
    term = lease.term
    lease.check(term)
    time.sleep(0.25)
    with pytest.raises(LeaseError):
        lease.check(term)
    # Whoever was stopped looks for news before the one that writes goes on.
    lease.renew()
    with pytest.raises(LeaseError):
        lease.check(term)
    lease.check(lease.term)


def test_an_exporter_that_only_others_hear_is_as_old_as_they_say() -> None:
    heard = {"leaf-1": ExporterReading(last_seen=100.0)}
    elsewhere = {"leaf-1": 60.0, "leaf-2": 95.0, "border-1": 10.0}
    rows = exporter_readings(CLUSTER, heard, window=90, started=20.0, drained=110.0, elsewhere=elsewhere)
    ages = dict(rows.select(schema.EXPORTER, schema.AGE.name).iter_rows())
    assert (ages["leaf-1"], ages["leaf-2"], ages["border-1"]) == (10, 15, 90)
    # What others heard is theirs to store.
    assert rows.drop_nulls(schema.LAST_SEEN.name).get_column(schema.EXPORTER).to_list() == ["leaf-1"]
