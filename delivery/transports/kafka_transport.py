"""A Kafka topic as a destination: an idempotent producer, one partition for each kind of event so that order stays."""

import time
from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from app.errors import ClusterflowError
from cluster.model import KafkaDestination, KafkaSettings
from delivery.event import SCHEMA, Document, line
from delivery.transports.destination import AwayError, Refusal, building
from ingest.kafka.client import Trouble, open_producer

_MOST_EVENTS = 500
_MESSAGE_SECONDS = 15
"""How long librdkafka itself tries a message."""

_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION})


def kafka_settings(destination: KafkaDestination, own: KafkaSettings) -> KafkaSettings:
    """Return how to reach the brokers: the destination's own, or those of the section `kafka`."""
    if not destination.brokers:
        return own
    return KafkaSettings(
        brokers=destination.brokers,
        tls=destination.tls,
        ca_file=destination.ca_file,
        certificate_file=destination.certificate_file,
        key_file=destination.key_file,
        verify_tls=destination.verify_tls,
        username=destination.username,
        password=destination.password,
        mechanism=destination.mechanism,
    )


class Kafka:
    """One topic. The key of a message is its event's kind, the value the event, the header `id` its id.

    Raises:
        UserError: the settings cannot be used.
    """

    most = _MOST_EVENTS

    def __init__(self, destination: KafkaDestination, own: KafkaSettings) -> None:
        self._settings = kafka_settings(destination, own)
        self._topic = destination.topic
        self._shown = f"Kafka topic {destination.topic} at {', '.join(self._settings.brokers)}"
        self._trouble = Trouble(self._settings)
        self._producer: Producer | None = self._open()

    def _open(self) -> Producer:
        return open_producer(
            self._settings,
            self._trouble,
            enable_idempotence=True,
            acks="all",
            compression_type="lz4",
            linger_ms=5,
            message_timeout_ms=_MESSAGE_SECONDS * 1000,
        )

    def send(self, events: Sequence[Document]) -> list[Refusal]:
        """Deliver a batch; done when all brokers that must have it do."""
        if self._producer is None:
            try:
                self._producer = self._open()
            except ClusterflowError as error:
                raise AwayError(error.message, error.hint) from error
        with building():
            written = [
                (event, line(event).encode(), str(event["kind"]).encode(), {"id": event["id"], "schema": SCHEMA})
                for event in events
            ]
        producer, answers = self._producer, _Answers()
        for event, value, key, headers in written:
            try:
                producer.produce(self._topic, value, key=key, headers=headers, on_delivery=partial(answers.take, event))
            except KafkaException as error:
                answers.take(event, error.args[0])
            except BufferError:
                break
        ends = time.monotonic() + _MESSAGE_SECONDS + 5
        while answers.count() < len(events) and not answers.failed and time.monotonic() < ends:
            producer.poll(0.1)
        if answers.failed or answers.count() < len(events):
            # What is on its way may still arrive, but nothing waits here to overtake what goes out again.
            producer.purge()
            producer.poll(0)
            self._producer = None
            raise self._away(answers)
        self._trouble.clear()
        return answers.refused

    def _away(self, answers: "_Answers") -> AwayError:
        if not answers.failed:
            return AwayError(f"{self._shown}: no answer")
        complaint = self._trouble.explain(answers.failed[0])
        return AwayError(f"{self._shown}: {complaint.message}", complaint.hint)

    def close(self) -> None:
        """Close the connections."""
        self._producer = None


class _Answers:
    """What became of the messages of a batch."""

    def __init__(self) -> None:
        self.arrived = 0
        self.refused: list[Refusal] = []
        self.failed: list[KafkaError] = []

    def take(self, event: Document, error: KafkaError | None, message: Message | None = None) -> None:
        """Note what became of one."""
        del message
        if error is None:
            self.arrived += 1
        elif error.code() in _TOO_LARGE:
            self.refused.append(Refusal(event, error.str()))
        else:
            self.failed.append(error)

    def count(self) -> int:
        """Return how many are done, one way or the other."""
        return self.arrived + len(self.refused) + len(self.failed)
