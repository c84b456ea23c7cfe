"""Events to a real broker: in order, while it is away too; repeats have equal ids."""

import json
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from app.log import Log
from bench.load.local_kafka import LocalKafka
from cluster.model import EventKind, KafkaDestination, KafkaSettings
from delivery.event import Document, Event, event_id
from delivery.queue import Spool
from delivery.sender import Sender
from delivery.transports.kafka_transport import Kafka
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters


def _event(number: int) -> Document:
    moment = 1_772_352_000.0 + number
    return Event(event_id(number), EventKind.CONTACT, "first_contact", "First contact", "lab", moment).document()


def _received(broker: str, topic: str) -> list[tuple[bytes, dict[str, bytes], Document]]:
    """Return key, headers and event of all that is in a topic of one partition."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "test", "isolation.level": "read_committed"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        ends = time.monotonic() + 60
        while len(found) < end and time.monotonic() < ends:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                key, value, headers = message.key(), message.value(), message.headers()
                assert key is not None
                assert value is not None
                found.append((key, dict(headers or []), json.loads(value)))
        return found
    finally:
        consumer.close()


def test_events_arrive_in_order_while_the_broker_goes_away(
    kafka: LocalKafka, kafka_settings: KafkaSettings, tmp_path: Path
) -> None:
    topic = f"{kafka_settings.topic}-events"
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    spool = Spool(tmp_path / "spool", 10_000_000)
    spool.register(["stream"])
    destination = KafkaDestination(name="stream", topic=topic)
    sender = Sender(
        destination,
        Kafka(destination, kafka_settings),
        spool,
        counters=Counters(),
        dead=DeadLetters(tmp_path / "refused.jsonl"),
        log=Log(quiet=True),
        pauses=(0.05, 0.2),
    )
    sender.start()
    try:
        spool.append([_event(number) for number in range(50)], {})
        _until_delivered(spool)
        kafka.kill()
        spool.append([_event(number) for number in range(50, 100)], {})
        time.sleep(1)
        assert spool.waiting("stream") == 50
        kafka.start()
        _until_delivered(spool)
    finally:
        sender.stop(30)
        spool.close()
    received = _received(kafka.address, topic)
    ids = list(dict.fromkeys(one["id"] for _, _, one in received))
    assert ids == [event_id(number) for number in range(100)]
    key, headers, event = received[0]
    assert (key, headers["id"], headers["schema"]) == (b"contact", event["id"].encode(), b"clusterflow.event/1")


def _until_delivered(spool: Spool) -> None:
    ends = time.monotonic() + 90
    while spool.waiting("stream") and time.monotonic() < ends:
        time.sleep(0.05)
    assert spool.waiting("stream") == 0
