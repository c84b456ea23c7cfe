"""Topics: made as workers and relays need them, refused where they are not."""

import time
from concurrent.futures import Future
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from app.errors import UserError
from cluster.model import KafkaSettings
from ingest.kafka.client import (
    KafkaUnavailableError,
    Trouble,
    ensure_topics,
    newest_values,
    open_admin,
    open_producer,
    topics_to_make,
)


def _config(admin: AdminClient, topic: str) -> dict[str, str]:
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in answer.result().items()}


def _make(settings: KafkaSettings, name: str, partitions: int, **config: str) -> None:
    admin = open_admin(settings, Trouble(settings))
    topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([topic])[name].result()
    deadline = time.monotonic() + 10
    while name not in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_missing_topics_are_made(kafka_settings: KafkaSettings) -> None:
    topics = ensure_topics(kafka_settings)
    assert (topics.partitions, topics.message_bytes) == (4, 900_000)
    admin = open_admin(kafka_settings, Trouble(kafka_settings))
    made = admin.list_topics(timeout=10).topics
    names = (topics.flows, topics.state, topics.relays)
    assert [len(made[name].partitions) for name in names] == [4, 4, 1]
    assert [_config(admin, name)["cleanup.policy"] for name in names] == ["delete", "compact", "compact"]
    assert _config(admin, topics.state)["segment.bytes"] == str(32 << 20)
    assert ensure_topics(replace(kafka_settings, partitions=16)) == topics


def test_state_follows_the_partitions_of_a_topic_that_is_there(kafka_settings: KafkaSettings) -> None:
    _make(kafka_settings, kafka_settings.topic, 6)
    assert ensure_topics(kafka_settings).partitions == 6
    with pytest.raises(UserError, match="a partition's state follows it"):
        ensure_topics(replace(kafka_settings, topic=f"{kafka_settings.topic}-other"))


def test_state_that_would_be_deleted_with_age_is_refused(kafka_settings: KafkaSettings) -> None:
    _make(kafka_settings, kafka_settings.state_topic, kafka_settings.partitions)
    with pytest.raises(UserError, match=r"cleanup\.policy=delete"):
        ensure_topics(kafka_settings)


def test_messages_fit_what_a_topic_takes(kafka_settings: KafkaSettings) -> None:
    _make(kafka_settings, kafka_settings.topic, 2, max_message_bytes="300000")
    assert ensure_topics(kafka_settings).message_bytes == 300_000 - 65_536


@pytest.mark.parametrize(("brokers", "copies", "in_sync"), [(1, 1, None), (2, 2, None), (3, 3, "2"), (9, 3, "2")])
def test_what_is_acknowledged_has_a_second_copy(brokers: int, copies: int, in_sync: str | None) -> None:
    """Kafka's default takes one broker's word: of three copies two could be missing when that one dies."""
    topics = topics_to_make(KafkaSettings(brokers=("127.0.0.1:1",)), 8, brokers)
    assert len(topics) == 3
    assert [topic.replication_factor for topic in topics] == [copies] * 3
    assert [topic.config.get("min.insync.replicas") for topic in topics] == [in_sync] * 3


def test_more_copies_than_brokers(kafka_settings: KafkaSettings) -> None:
    """Whoever follows a stream waits for them: the others may only be starting."""
    with pytest.raises(KafkaUnavailableError) as caught:
        ensure_topics(replace(kafka_settings, replication=3))
    assert caught.value.hint == "kafka.replication is more than the brokers that are up"


def test_copies_are_those_of_the_brokers_that_are_listed(kafka_settings: KafkaSettings) -> None:
    """Of three brokers that start, the first must not be given all there will ever be."""
    with pytest.raises(KafkaUnavailableError, match="The target replication factor of 2 cannot be reached"):
        ensure_topics(replace(kafka_settings, brokers=(*kafka_settings.brokers, "127.0.0.1:1")))


class _Fenced(AdminClient):  # type: ignore[misc]
    """A client whose brokers say once that they are fenced: a heartbeat was late, as on a busy machine."""

    is_fenced = True

    def create_topics(self, *args: object, **more: object) -> dict[str, Future[None]]:
        if not self.is_fenced:
            answers: dict[str, Future[None]] = super().create_topics(*args, **more)
            return answers
        self.is_fenced = False
        (topics,) = args
        futures = {topic.topic: Future[None]() for topic in topics}  # type: ignore[attr-defined]
        text = "Unable to replicate the partition 2 time(s): All brokers are currently fenced."
        for future in futures.values():
            future.set_exception(KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, text)))
        return futures


def test_brokers_that_are_fenced_for_a_moment_are_waited_for(
    kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their error has the code of too few brokers, whom no waiting makes more."""
    monkeypatch.setattr("ingest.kafka.client.AdminClient", _Fenced)
    assert ensure_topics(kafka_settings).partitions == 4
    with pytest.raises(KafkaUnavailableError, match="The target replication factor of 2 cannot be reached"):
        ensure_topics(replace(kafka_settings, topic=f"{kafka_settings.topic}-copied", replication=2))


def test_nobody_there() -> None:
    with pytest.raises(KafkaUnavailableError, match="Connection refused"):
        ensure_topics(KafkaSettings(brokers=("127.0.0.1:1",)))
    with pytest.raises(UserError, match=r"kafka\.brokers: none"):
        ensure_topics(KafkaSettings())


def test_the_newest_committed_value_of_each_key(kafka_settings: KafkaSettings) -> None:
    """What was aborted does not count, nor what was deleted; what is open now is waited for."""
    topic = ensure_topics(kafka_settings).relays
    assert newest_values(kafka_settings, topic) == {}
    producer = open_producer(kafka_settings, Trouble(kafka_settings), transactional_id=topic)
    producer.init_transactions(10)
    for key, value, is_kept in (
        ("a", b"1", True),
        ("b", b"2", True),
        ("a", b"3", True),
        ("a", b"4", False),
        ("c", b"5", True),
        ("c", None, True),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, key, partition=0)
        if is_kept:
            producer.commit_transaction(10)
        else:
            producer.flush(10)
            producer.abort_transaction(10)
    assert newest_values(kafka_settings, topic) == {b"a": b"3", b"b": b"2"}
