"""What a relay must not forget fits Kafka however large it grows; what does not fit ends in a line, not in a loop."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from hypothesis import given
from hypothesis import strategies as st
from relay_stage import HEADER, lines

from app.log import Log
from cluster.model import KafkaSettings
from ingest.count.sequence import SequenceTracker
from ingest.counters import Counters
from ingest.kafka import publisher
from ingest.kafka.client import TooLargeError, Trouble, newest_values, open_admin
from ingest.kafka.publisher import Sender
from ingest.read import records
from ingest.read.spool import Spool

LIMIT = 100_000
ENVELOPE = 64 << 10


@given(st.lists(st.lists(st.integers(0, 2**63), max_size=60), max_size=6), st.integers(1, 60))
def test_the_last_of_many_notes_is_read_back(versions: list[list[int]], limit: int) -> None:
    """Longer ones, shorter ones, and those of another relay beside them."""
    topic = {key: value for key, value in publisher.pieces("a1", {"is": "another's"}, limit) if value is not None}
    other = dict(topic)
    count = 0
    for numbers in versions:
        for key, value in publisher.pieces("a", {"notes": numbers}, limit, count):
            topic.pop(key, None)
            if value is not None:
                assert len(value) <= limit
                topic[key] = value
        document, count = publisher.joined("a", topic)
        assert document == {"version": publisher.VERSION, "notes": numbers}
        assert len(topic) == len(other) + count
    assert publisher.joined("a", other) == (None, 0)


def test_notes_that_lack_a_piece_are_damaged() -> None:
    pieces = publisher.pieces("a", {"notes": list(range(500))}, 100)
    topic = {key: value for key, value in pieces[:-1] if value is not None}
    with pytest.raises(ValueError, match="incomplete"):
        publisher.joined("a", topic)


def _of_many_files(folder: Path, count: int) -> dict[str, Any]:
    """Return the position behind so many kept files: that of a few, with other names, inodes and checksums."""
    folder.mkdir()
    for number in range(5):
        text = "\n".join([HEADER, *lines(number * 8, 8), ""])
        (folder / f"nfacct-{1_790_000_000 + number}.csv").write_text(text)
    with Spool(folder, once=True) as spool:
        while spool.next_chunk(24 << 20) is not None:
            pass
        entries = list(spool.position.values())
    random = np.random.default_rng(2).integers(0, 2**32, count).tolist()
    return {
        f"nfacct-{1_790_000_000 + 60 * number}.csv": {**entries[number % 5], "inode": number, "head": random[number]}
        for number in range(count)
    }


def _of_many_exporters(count: int, datagrams: int) -> list[Any]:
    """Return what is known of exporters of NetFlow v9, two records in each datagram, after three batches."""
    begins = np.random.default_rng(1).integers(10**8, 4 * 10**9, count)
    tracker = SequenceTracker()
    for batch in range(3):
        numbers = begins[:, None] + batch * datagrams + np.arange(datagrams)
        names = [f"10.9.{number // 256}.{number % 256}" for number in range(count)]
        rows = numbers.size * 2
        tracker.lost(
            pl.DataFrame({
                records.EXPORTER: np.repeat(names, datagrams * 2),
                records.VERSION: np.full(rows, 9),
                records.DOMAIN: np.zeros(rows, np.int64),
                records.SEQ: np.repeat(numbers.ravel(), 2),
                records.FLOWS: np.ones(rows, np.int64),
                records.ARRIVAL: np.full(rows, batch * 60_000),
            })
        )  # fmt: skip
    return tracker.dump()


def _sender(settings: KafkaSettings) -> Sender:
    return Sender(settings, "lab", stop=threading.Event(), log=Log(quiet=True), counters=Counters(), patience=30)


def _limit_of(settings: KafkaSettings, size: int) -> None:
    """Let the brokers take no larger messages on the relays' topic."""
    name = settings.relays_topic
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin = open_admin(settings, Trouble(settings))
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result()
    # The broker says yes before it does so.
    time.sleep(2)


def test_notes_of_any_length_are_there_after_a_restart(kafka_settings: KafkaSettings, tmp_path: Path) -> None:
    """Thousands of kept files and hundreds of exporters; then hardly any, of which no older piece is left."""
    admin = open_admin(kafka_settings, Trouble(kafka_settings))
    name = kafka_settings.relays_topic
    topic = NewTopic(name, 1, 1, config={"cleanup.policy": "compact", "max.message.bytes": str(LIMIT + ENVELOPE)})
    admin.create_topics([topic])[name].result()
    long = {"position": _of_many_files(tmp_path / "spool", 2500), "sequence": _of_many_exporters(500, 110)}
    assert len(json.dumps(long)) > 2_000_000
    for notes in (long, {"position": {}}):
        sender = _sender(kafka_settings)
        sender.open()
        assert sender.topics.note_bytes == LIMIT
        sender.add([(0, b"flows")])
        sender.commit(notes)
        sender.close()
        pieces = [key for key in newest_values(kafka_settings, name) if b"/notes/" in key]
        assert (len(pieces) > 1) == (notes is long)
        assert _sender(kafka_settings).open() == json.loads(json.dumps(notes))


def test_a_message_that_brokers_never_take_ends_the_relay(kafka_settings: KafkaSettings) -> None:
    sender = _sender(kafka_settings)
    sender.open()
    sender.commit({"at": 1})
    _limit_of(kafka_settings, 500)
    began = time.monotonic()
    with pytest.raises(TooLargeError, match="too large") as refused:
        sender.commit({"at": list(np.random.default_rng(1).integers(0, 10**9, 3000).tolist())})
    sender.close()
    assert time.monotonic() - began < 20
    assert refused.value.hint == "set max.message.bytes of our topics back to 965536 or more, and start again"
    assert "max.message.bytes" in refused.value.hint
    _limit_of(kafka_settings, 1_000_000)
    assert _sender(kafka_settings).open() == {"at": 1}
