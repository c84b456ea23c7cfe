"""A real Kafka broker, one a test process, and topics of its own for every test."""

import os
import uuid
from collections.abc import Iterator

import pytest

from bench.load.local_kafka import LocalKafka, has_kafka
from cluster.model import KafkaSettings


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A running broker without TLS. A test that stops it starts it again."""
    if not has_kafka():
        if os.environ.get("CI"):
            pytest.fail("no Kafka broker: CI tests the way through Kafka (scripts/test brings it)")
        pytest.skip("no Kafka broker: run scripts/test once, or set CLUSTERFLOW_KAFKA; it needs Java")
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def kafka_settings(kafka: LocalKafka) -> KafkaSettings:
    """Settings with topics and a group that no other test uses; nothing is made yet."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    return KafkaSettings(brokers=(kafka.address,), topic=name, state_topic=f"{name}-state", group=name, partitions=4)
