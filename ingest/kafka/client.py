"""Kafka as the settings say: configurations of clients, the topics, and errors that a person can act on.

Nothing here prints what librdkafka is configured with: its password would be among it.
"""

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, NewTopic, OffsetSpec, ResourceType

from app.errors import ClusterflowError, UserError
from cluster.model import KafkaSettings
from ingest.kafka.flow_messages import MESSAGE_BYTES
from store.influx import read_secret

Config = dict[str, Any]
"""librdkafka's settings."""

REQUEST_SECONDS = 10.0
"""How long one question to a broker may take."""

TRANSACTION_SECONDS = 60
"""Age at which brokers end the transaction of a producer that is gone for good: readers wait for it that long."""

REFUSED_SECONDS = 180.0
"""How long brokers may refuse a worker that they have taken before: one that has just started may not know users and
rights yet. Within it the group does not miss a member that does nothing but wait."""

_SILENT = logging.getLogger("clusterflow.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

_MOST_REPLICAS = 3
_ENVELOPE_BYTES = 64 << 10
_STATE_CONFIG = {
    "cleanup.policy": "compact",
    # Only closed segments are compacted: small ones, soon, so that whoever reads all of it has little to read.
    "segment.bytes": str(32 << 20),
    "segment.ms": str(6 * 3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
_POLL_SECONDS = 0.2
_FENCED = "brokers are currently fenced"
"""Words of Kafka's: no broker has sent the controller a heartbeat within its session's time."""

_ANSWER_SECONDS = 0.5

_ACCESS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_GROUP = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
_IDENTITY = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - that is how the library names its own errors
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
_TLS = frozenset({KafkaError._SSL})  # noqa: SLF001
_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)

_SIZE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_MOVING = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})


class KafkaUnavailableError(ClusterflowError):
    """No broker answers now; the same may work later."""


class RefusedError(UserError):
    """Brokers refuse who we are or what we ask for, or show no certificate that we trust."""


class TooLargeError(UserError):
    """Brokers refuse a message for its size: they will do so for ever."""


class Trouble:
    """What a client last complained of in the background. librdkafka goes on trying, whatever it is."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._errors: dict[int, KafkaError] = {}

    def note(self, error: KafkaError) -> None:
        """Take a complaint: librdkafka's ``error_cb``."""
        with self._lock:
            self._errors[error.code()] = error

    def clear(self) -> None:
        """Forget: a broker has answered."""
        with self._lock:
            self._errors.clear()

    def explain(self, error: KafkaError) -> ClusterflowError:
        """Return what is wrong for a person: a complaint that says why, rather than that nothing came."""
        with self._lock:
            known = [*self._errors.values(), error]
        for codes in (_IDENTITY, _TLS, _ACCESS, _SIZE):
            for candidate in known:
                if candidate.code() in codes:
                    return explain(candidate, self._settings)
        if error.code() > 0:
            # A broker has answered: that others are away is not what is wrong.
            return explain(error, self._settings)
        # "All brokers down" comes last, and says least.
        telling = [e for e in known if e.code() != KafkaError._ALL_BROKERS_DOWN]  # noqa: SLF001
        return explain(telling[0] if telling else error, self._settings)


def explain(error: KafkaError, settings: KafkaSettings) -> ClusterflowError:
    """Return an error of librdkafka as one line, with what to do."""
    code, where = error.code(), f"Kafka at {', '.join(settings.brokers)}"
    text = "".join(sign if sign.isprintable() else " " for sign in str(error.str() or error.name()))[:300]
    if code in _IDENTITY:
        user = f"user {settings.username}" if settings.username else "a client without a name"
        hint = "check kafka.username, kafka.password and kafka.mechanism"
        return RefusedError(f"{where} refuses {user}: {text}", hint)
    if code in _TLS:
        return RefusedError(f"{where}: TLS: {text}", "check kafka.ca_file and the names in the brokers' certificates")
    if code in _ACCESS:
        return RefusedError(f"{where}: not allowed: {text}", "docs/scale-out.md lists the rights that each part needs")
    if code in _MISSING:
        return UserError(f"{where}: {text}", "check kafka.topic and kafka.state_topic")
    if code in _SIZE:
        hint = f"set max.message.bytes of our topics back to {MESSAGE_BYTES + _ENVELOPE_BYTES} or more, and start again"
        return TooLargeError(f"{where}: {text}", hint)
    return _explain_other(code, where, text)


def _explain_other(code: int, where: str, text: str) -> ClusterflowError:
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        # Those that are missing may only be starting.
        hint = "kafka.replication is more than the brokers that are up"
        return KafkaUnavailableError(f"{where}: {text}", hint)
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        hint = "set kafka.session_timeout to the brokers' transaction.max.timeout.ms (15 min by default) or less"
        return UserError(f"{where}: {text}", hint)
    if code == KafkaError._INVALID_ARG:  # noqa: SLF001
        return UserError(f"kafka: {text}", "check the section kafka of cluster.yaml")
    return KafkaUnavailableError(f"{where}: {text}", "check kafka.brokers and kafka.tls, and that the brokers run")


# -- configurations ----------------------------------------------------------------------------------


def client_config(settings: KafkaSettings, trouble: Trouble) -> Config:
    """Return what every client needs; UserError where a file or a secret is missing."""
    if not settings.brokers:
        raise UserError("kafka.brokers: none: expected at least one broker", "list them in cluster.yaml")
    config: Config = {
        "bootstrap.servers": ",".join(settings.brokers),
        "client.id": "clusterflow",
        "security.protocol": ("SASL_" if settings.username else "") + ("SSL" if settings.tls else "PLAINTEXT"),
        "error_cb": trouble.note,
        # Complaints come through error_cb; its own log on stderr would tell them twice, and in another form.
        "logger": _SILENT,
        "reconnect.backoff.max.ms": 2000,
        "socket.keepalive.enable": True,
    }
    if settings.tls:
        config["enable.ssl.certificate.verification"] = settings.verify_tls
        config["ssl.endpoint.identification.algorithm"] = "https" if settings.verify_tls else "none"
        for key, name in (
            ("ca_file", "ssl.ca.location"),
            ("certificate_file", "ssl.certificate.location"),
            ("key_file", "ssl.key.location"),
        ):
            path = getattr(settings, key)
            if path is not None:
                _check_readable(key, Path(path))
                config[name] = path
    if settings.username:
        config["sasl.mechanism"] = settings.mechanism.value
        config["sasl.username"] = settings.username
        config["sasl.password"] = read_secret(settings.password)
    return config


def _check_readable(key: str, path: Path) -> None:
    try:
        with path.open("rb"):
            return
    except OSError as error:
        raise UserError(f"kafka.{key}: {path}: {error.strerror}", "make it readable for this user") from error


def open_admin(settings: KafkaSettings, trouble: Trouble) -> AdminClient:
    """Return a client that asks for and makes topics; UserError where the settings do not do."""
    try:
        return AdminClient(client_config(settings, trouble))
    except KafkaException as error:
        raise explain(error.args[0], settings) from error


def open_producer(settings: KafkaSettings, trouble: Trouble, **more: object) -> Producer:
    """Return a producer; ``more`` are settings of librdkafka, with ``_`` for ``.``."""
    try:
        return Producer(client_config(settings, trouble) | _named(more))
    except KafkaException as error:
        raise explain(error.args[0], settings) from error


def open_consumer(settings: KafkaSettings, trouble: Trouble, **more: object) -> Consumer:
    """Return a consumer that sees committed transactions only and commits nothing by itself.

    ``more`` are settings of librdkafka, with ``_`` for ``.``, such as ``group_id``.
    """
    config = client_config(settings, trouble) | {
        "group.id": settings.group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
    }
    try:
        return Consumer(config | _named(more))
    except KafkaException as error:
        raise explain(error.args[0], settings) from error


def _named(more: Mapping[str, object]) -> Config:
    return {name.replace("_", "."): value for name, value in more.items()}


# -- topics ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics, as they are.

    Attributes:
        flows: flow records.
        state: what workers must not forget: as many partitions as `flows`.
        relays: what relays must not forget: one partition.
        partitions: of `flows`.
        message_bytes: size of a value that fits `flows`.
        note_bytes: size of a value that fits `relays`.
    """

    flows: str
    state: str
    relays: str
    partitions: int
    message_bytes: int
    note_bytes: int


def ensure_topics(settings: KafkaSettings) -> Topics:
    """Make the topics that are missing; return them.

    Raises:
        KafkaUnavailableError: no broker answers.
        UserError: the brokers refuse us, or a topic is not as it must be.
    """
    trouble = Trouble(settings)
    admin = open_admin(settings, trouble)
    flows, state, relays = settings.topic, settings.state_topic, settings.relays_topic
    found, brokers = _partitions(admin, settings, trouble)
    partitions = found.get(flows) or settings.partitions
    _check_partitions(settings, found.get(state, partitions), partitions)
    wanted = topics_to_make(settings, partitions, brokers)
    missing = [topic for topic in wanted if topic.topic not in found]
    if missing:
        _make(admin, missing, settings, trouble)
        found, _ = _partitions(admin, settings, trouble, {topic.topic for topic in missing})
        # Somebody else may have made one of them meanwhile, otherwise than we would have.
        _check_partitions(settings, found[state], found[flows])
    configs = {name: _config_of(admin, name, trouble) for name in (flows, state, relays)}
    for name in (state, relays):
        policy = configs[name].get("cleanup.policy", "compact")
        if policy != "compact":
            raise UserError(
                f"Kafka topic {name} has cleanup.policy={policy}: what must not be forgotten would be deleted with age",
                f"set it to compact: kafka-configs.sh --alter --topic {name} --add-config cleanup.policy=compact",
            )
    return Topics(flows, state, relays, found[flows], _value_bytes(configs[flows]), _value_bytes(configs[relays]))


def _check_partitions(settings: KafkaSettings, state: int, flows: int) -> None:
    if state != flows:
        raise UserError(
            f"Kafka topic {settings.state_topic} has {state} partitions, {settings.topic} has {flows}: "
            "a partition's state follows it",
            f"name another kafka.state_topic, or give {settings.state_topic} as many",
        )


def topics_to_make(settings: KafkaSettings, partitions: int, brokers: int) -> list[NewTopic]:
    """Return our topics as they are made where they are missing.

    Args:
        settings: their names, and how many copies.
        partitions: of the flows topic.
        brokers: how many are there now.
    """
    # Of a cluster that is starting, not all brokers are there yet; those that are listed will be.
    replication = settings.replication or min(_MOST_REPLICAS, max(brokers, len(settings.brokers)))
    # With two copies, one broker that is away would stop everything.
    copied = {"min.insync.replicas": "2"} if replication >= _MOST_REPLICAS else {}
    return [
        NewTopic(settings.topic, partitions, replication, config=copied),
        NewTopic(settings.state_topic, partitions, replication, config=copied | _STATE_CONFIG),
        NewTopic(settings.relays_topic, 1, replication, config=copied | _STATE_CONFIG),
    ]


def _value_bytes(config: Mapping[str, str]) -> int:
    """Return the size of a value that a topic with this configuration takes."""
    largest = int(config.get("max.message.bytes", MESSAGE_BYTES + _ENVELOPE_BYTES))
    return min(MESSAGE_BYTES, max(largest - _ENVELOPE_BYTES, 1024))


def topic_id(settings: KafkaSettings, topic: str) -> str:
    """Return what a topic has of its own as long as it lives; empty where brokers do not say it.

    Raises:
        KafkaUnavailableError: no broker answers.
        UserError: the brokers refuse us, or there is no such topic.
    """
    trouble = Trouble(settings)
    admin = open_admin(settings, trouble)
    asked = admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SECONDS)
    try:
        number = asked[topic].result().topic_id
    except KafkaException as error:
        raise _explained(admin, error, trouble) from error
    is_known = number.get_most_significant_bits() or number.get_least_significant_bits()
    return str(number) if is_known else ""


def _partitions(
    admin: AdminClient, settings: KafkaSettings, trouble: Trouble, wanted: set[str] | None = None
) -> tuple[dict[str, int], int]:
    """Return the topics with their numbers of partitions, and how many brokers there are.

    Topics just made may show a moment later: it waits for those that are `wanted`.
    """
    deadline = time.monotonic() + REQUEST_SECONDS
    while True:
        answer = _metadata(admin, trouble)
        found = {name: len(topic.partitions) for name, topic in answer.topics.items() if topic.partitions}
        if not wanted or wanted <= set(found) or time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    absent = sorted((wanted or set()) - set(found))
    if absent:
        raise KafkaUnavailableError(f"Kafka at {', '.join(settings.brokers)}: no topic {', '.join(absent)} yet")
    return found, len(answer.brokers)


def _metadata(admin: AdminClient, trouble: Trouble) -> ClusterMetadata:
    """Return what the brokers say of themselves. Who is refused is reported at once, not when time is up."""
    deadline = time.monotonic() + REQUEST_SECONDS / 2
    while True:
        try:
            return admin.list_topics(timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            explained = _explained(admin, error, trouble)
            if time.monotonic() > deadline or not isinstance(explained, KafkaUnavailableError):
                raise explained from error


def _make(admin: AdminClient, topics: list[NewTopic], settings: KafkaSettings, trouble: Trouble) -> None:
    """Make topics. Brokers that start, or were too busy for a heartbeat, are fenced; they are waited for a while."""
    deadline = time.monotonic() + REQUEST_SECONDS
    while topics:
        # Who has heard of no broker waits for a controller in vain until its time is up.
        while not _metadata(admin, trouble).brokers and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        answers = admin.create_topics(topics, request_timeout=REQUEST_SECONDS)
        fenced = []
        for topic in topics:
            try:
                answers[topic.topic].result()
            except KafkaException as error:
                # The code is that of too few brokers, whom no waiting makes more.
                if _FENCED in (error.args[0].str() or "") and time.monotonic() < deadline:
                    fenced.append(topic)
                else:
                    _explain_unmade(admin, topic.topic, error, settings, trouble)
        topics = fenced


def _explain_unmade(
    admin: AdminClient, name: str, error: KafkaException, settings: KafkaSettings, trouble: Trouble
) -> None:
    """Raise why a topic was not made, unless it is there: another relay or worker may have been quicker."""
    cause: KafkaError = error.args[0]
    if cause.code() in _ACCESS:
        raise UserError(
            f"Kafka at {', '.join(settings.brokers)}: no topic {name}, and we may not make it: {cause.str()}",
            "make it, or grant the right to (docs/scale-out.md)",
        ) from error
    if cause.code() != KafkaError.TOPIC_ALREADY_EXISTS:
        raise _explained(admin, error, trouble) from error


def _config_of(admin: AdminClient, topic: str, trouble: Trouble) -> dict[str, str]:
    """Return a topic's settings; nothing where we may not see them."""
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)], request_timeout=REQUEST_SECONDS)
    (answer,) = asked.values()
    try:
        return {name: str(entry.value) for name, entry in answer.result().items()}
    except KafkaException as error:
        if error.args[0].code() in _ACCESS:
            return {}
        raise _explained(admin, error, trouble) from error


def _explained(client: AdminClient | Consumer, error: KafkaException, trouble: Trouble) -> ClusterflowError:
    # What the client complained of in the background is handed out by poll alone.
    for _ in range(20):
        client.poll(0)
    return trouble.explain(error.args[0])


# -- compacted topics --------------------------------------------------------------------------------


def _end(admin: AdminClient, place: TopicPartition, trouble: Trouble) -> int:
    """Return where a partition ends as writers see it: what is not committed yet may be about what we ask for."""
    deadline = time.monotonic() + REQUEST_SECONDS
    while True:
        asked: Future[Any] = admin.list_offsets(
            {place: OffsetSpec.latest()},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=REQUEST_SECONDS,
        )[place]
        try:
            return int(asked.result().offset)
        except KafkaException as error:
            # Of a topic that has just been made, not every broker knows.
            if error.args[0].code() not in _MISSING | _MOVING or time.monotonic() > deadline:
                raise _explained(admin, error, trouble) from error
            time.sleep(_POLL_SECONDS)


def newest_values(
    settings: KafkaSettings, topic: str, partition: int = 0, *, stop: threading.Event | None = None
) -> dict[bytes, bytes]:
    """Return the newest committed value of each key in a partition of a compacted topic, deleted keys left out.

    It waits for transactions of others that are open now, which brokers end after TRANSACTION_SECONDS at the latest.

    Raises:
        KafkaUnavailableError: no broker answers, or `stop` was set.
        UserError: the brokers refuse us.
    """
    trouble = Trouble(settings)
    end = _end(open_admin(settings, trouble), TopicPartition(topic, partition), trouble)
    consumer = open_consumer(settings, trouble, enable_partition_eof=True, fetch_wait_max_ms=50)
    values: dict[bytes, bytes] = {}
    deadline = time.monotonic() + 2 * TRANSACTION_SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        position = 0
        while position < end:
            if time.monotonic() > deadline or (stop is not None and stop.is_set()):
                raise KafkaUnavailableError(f"Kafka topic {topic} could not be read to its end")
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            complaint = message.error()
            if complaint is not None and complaint.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                # A client has to name a group; who joins none needs no right to it.
                if complaint.fatal() or complaint.code() in (_ACCESS | _MISSING) - _GROUP:
                    raise explain(complaint, settings)
                continue
            offset = message.offset() or 0
            position = offset if complaint is not None else offset + 1
            key, value = message.key(), message.value()
            if complaint is None and key is not None:
                values.pop(key, None)
                if value is not None:
                    values[key] = value
    finally:
        consumer.close()
    return values
