"""One partition in a worker's hands: what it takes, what it refuses, and what it says of the exporters."""

import itertools
import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import polars as pl
import pytest
from test_kafka_state import CLUSTER, flows

from app.errors import UserError
from app.log import Log
from cluster.model import KafkaFormat
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.flows.enriching import Enrichment
from ingest.flows.normalise import Clock, Normaliser
from ingest.kafka.flow_messages import encode
from ingest.kafka.partition import PartitionWork, Surroundings
from ingest.kafka.partition_state import Remembered, remembered
from ingest.writer import Writer
from store import schema
from store.influx import Store

EXPORTER = CLUSTER.exporters[0].name
RELAYED = encode(flows(0), relay="test")[0]
NEWER = b"cfr\x04" + RELAYED[4:]
PMACCT = json.dumps(
    {
        "ip_src": "10.40.0.11", "ip_dst": "203.0.113.5", "port_src": 1, "port_dst": 443, "ip_proto": "tcp", "tos": 0,
        "tcp_flags": "2", "peer_ip_src": str(CLUSTER.exporters[0].address), "packets": 2, "bytes": 3000, "flows": 1,
        "timestamp_start": "2026-09-21 14:13:20.0", "timestamp_end": "2026-09-21 14:13:21.0",
    }
).encode()  # fmt: skip


def surroundings(folder: Path, *, form: KafkaFormat = KafkaFormat.CLUSTERFLOW, **more: Any) -> Surroundings:
    cluster = replace(CLUSTER, kafka=replace(CLUSTER.kafka, format=form))
    store, log = Store(cluster.store), Log(quiet=True)
    writer = Writer(store, cluster.retentions(), shard="0", counters=Counters(), stop=Event(), log=log)
    made = Surroundings(
        cluster=cluster,
        store=store,
        writer=writer,
        normaliser=Normaliser(cluster, Clock.LIVE),
        enrichment=Enrichment(cluster, log),
        dead_letter=DeadLetters(folder / "dead.jsonl"),
        log=log,
        started=time.time(),
        time_zone="UTC",
        takeover_seconds=50,
    )
    return replace(made, **more)


def took(work: PartitionWork, values: Iterable[bytes]) -> PartitionWork:
    offsets = itertools.count(work.position or 0)
    for offset, value in zip(offsets, values, strict=False):
        work.put(offset, value)
    work.take(time.time())
    return work


def state_of(work: PartitionWork) -> Remembered:
    """Return what a successor finds."""
    work.gather(time.time())
    values = {key: value for key, value in work.records() if value is not None}
    work.committed()
    found = remembered(values, "topic[0]")
    assert found is not None
    return found


def ages(work: PartitionWork, now: float) -> dict[str, float]:
    (readings,) = [points for measurement, points in work.report(now, {}, 5) if measurement is schema.EXPORTER_STATUS]
    return dict(readings.select(schema.EXPORTER, schema.AGE.name).iter_rows())


def buried(folder: Path) -> int:
    letters = folder / "dead.jsonl"
    return len(letters.read_text().splitlines()) if letters.exists() else 0


# -- what it takes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "values", "said"),
    [
        (KafkaFormat.CLUSTERFLOW, [PMACCT, PMACCT], "messages of format pmacct, expected clusterflow"),
        (KafkaFormat.PMACCT, [RELAYED, RELAYED], "messages of format clusterflow, expected pmacct"),
        (KafkaFormat.CLUSTERFLOW, [RELAYED, NEWER], "offset 1: a message of format version 4, expected 3"),
    ],
)
def test_a_topic_for_others_is_not_buried(form: KafkaFormat, values: list[bytes], said: str, tmp_path: Path) -> None:
    work = PartitionWork(surroundings(tmp_path, form=form), 1, 0, None)
    with pytest.raises(UserError, match=r"\[0\]: ") as refused:
        took(work, values)
    assert said in refused.value.message
    assert work.position is None
    assert not buried(tmp_path)


@pytest.mark.parametrize(
    ("form", "values"),
    [
        (KafkaFormat.CLUSTERFLOW, [b"garbage"]),
        (KafkaFormat.CLUSTERFLOW, [b"{}"]),
        (KafkaFormat.CLUSTERFLOW, [RELAYED, PMACCT]),
        (KafkaFormat.PMACCT, [b'{"bytes": "many"}']),
        (KafkaFormat.PMACCT, [PMACCT, b"garbage"]),
    ],
)
def test_a_garbage_message_is_a_dead_letter(form: KafkaFormat, values: list[bytes], tmp_path: Path) -> None:
    work = took(PartitionWork(surroundings(tmp_path, form=form), 1, 0, None), values)
    assert work.position == len(values)
    assert buried(tmp_path) == 1


def test_messages_for_others_are_garbage_once_the_topic_is_known_to_be_ours(tmp_path: Path) -> None:
    work = took(PartitionWork(surroundings(tmp_path), 1, 0, None), [RELAYED])
    assert took(work, [PMACCT]).position == 2
    assert buried(tmp_path) == 1


# -- what it takes over ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "number", "said"),
    [("other", "", "the workers' state is that of topic"), (CLUSTER.kafka.topic, "new", "was recreated")],
)
def test_the_state_of_another_topic_is_refused(topic: str, number: str, said: str, tmp_path: Path) -> None:
    before = state_of(took(PartitionWork(surroundings(tmp_path, topic_id="old"), 1, 0, None), [RELAYED]))
    around = surroundings(tmp_path, topic_id=number)
    around = replace(around, cluster=replace(CLUSTER, kafka=replace(CLUSTER.kafka, topic=topic)))
    with pytest.raises(UserError, match=said) as refused:
        PartitionWork(around, 1, 0, before)
    assert "kafka.state_topic" in refused.value.hint


@pytest.mark.parametrize("number", ["", "old"])
def test_a_state_of_this_topic_is_taken_over(number: str, tmp_path: Path) -> None:
    before = state_of(took(PartitionWork(surroundings(tmp_path, topic_id=number), 1, 0, None), [RELAYED]))
    assert PartitionWork(surroundings(tmp_path, topic_id="old"), 1, 0, before).position == 1


def test_what_was_taken_over_is_written_once_more_whatever_the_wall_clock_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = state_of(took(PartitionWork(surroundings(tmp_path), 1, 0, None), [RELAYED]))
    work = PartitionWork(surroundings(tmp_path, takeover_seconds=2.0), 1, 0, before)
    state_of(work)
    assert not work.is_due
    monkeypatch.setattr(time, "time", lambda clock=time.time: clock() - 7200)
    time.sleep(2.05)
    assert work.is_due
    assert work.gather(time.time())


# -- who is silent -----------------------------------------------------------------------------------


def test_an_exporter_stays_silent_when_another_worker_begins(tmp_path: Path) -> None:
    now = time.time()
    around = surroundings(tmp_path, started=now - 5000)
    before = state_of(took(PartitionWork(around, 1, 0, None), [RELAYED]))
    work = PartitionWork(surroundings(tmp_path, started=now), 1, 0, before)
    work.at_end = True
    found = ages(work, now)
    assert found.pop(EXPORTER) == pytest.approx(5000, abs=10)
    assert found
    assert all(age == pytest.approx(5000, abs=10) for age in found.values())


def test_nobody_waits_for_an_exporter_that_was_renamed(tmp_path: Path) -> None:
    work = took(PartitionWork(surroundings(tmp_path), 1, 0, None), [RELAYED])
    first, *others = CLUSTER.exporters
    known = replace(CLUSTER, exporters=(replace(first, name="renamed"), *others))
    around = surroundings(tmp_path, cluster=known, normaliser=Normaliser(known, Clock.LIVE))
    before = state_of(work)
    work.renewed(around)()
    for one in (work, PartitionWork(around, 1, 0, before)):
        assert set(ages(one, time.time())) == {exporter.name for exporter in known.exporters}


@pytest.mark.parametrize("step", [-7200, 7200])
def test_a_clock_that_was_set_makes_nobody_silent(step: int, tmp_path: Path) -> None:
    now = time.time()
    fresh = flows(0).with_columns(pl.lit(int(now * 1000)).alias(name) for name in ("start", "end", "arrival"))
    work = took(PartitionWork(surroundings(tmp_path), 1, 0, None), encode(fresh, relay="test"))
    work.clock_stepped(now + step)
    work.at_end = True
    assert all(age < 30 for age in ages(work, now + step + 20).values())


def test_a_partition_that_was_read_to_its_end_has_no_backlog(tmp_path: Path) -> None:
    work = took(PartitionWork(surroundings(tmp_path), 1, 0, None), [RELAYED])
    for at_end, expected in ((False, 5 * len(RELAYED)), (True, 0)):
        work.at_end = at_end
        # What is left are marks of transactions.
        work.report(time.time(), {}, 5)
        assert dict(work.counters.readings())[schema.Stage.READ.value, schema.BACKLOG_BYTES] == expected
