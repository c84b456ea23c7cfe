"""The section `kafka`: Kafka between collectors and workers."""

from enum import StrEnum

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, check_pair, key, record
from cluster.scalars.kinds import FLAG, SECRET, Choice, ListOf, Secret, Table, Whole


class KafkaFormat(StrEnum):
    """What a Kafka topic carries: messages of `clusterflow relay`, or those of pmacct's own Kafka plugin."""

    CLUSTERFLOW = "clusterflow"
    PMACCT = "pmacct"


class SaslMechanism(StrEnum):
    """How a user's password is proven to a Kafka broker. PLAIN shows it to the broker."""

    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    PLAIN = "PLAIN"


# fmt: off
@record
class KafkaSettings:
    """Kafka between collectors and workers, for more flows than one bridge can take (docs/scale-out.md)."""

    brokers: tuple[str, ...] = key(ListOf(names.BROKER), "Brokers to ask first; they name the others.", default=(),
        absent="none: not used", example="[kafka-1.example.org:9093, kafka-2.example.org:9093]")
    topic: str = key(names.TOPIC,
        "The topic of flow records. What relays must not forget is in another one, with `-relays` behind this name.",
        default="clusterflow-flows")
    format: KafkaFormat = key(Choice(tuple(KafkaFormat)),
        "What it carries: messages of `clusterflow relay`, or JSON of pmacct's own Kafka plugin.",
        default=KafkaFormat.CLUSTERFLOW)
    group: str = key(names.CONSUMER_GROUP, "Consumer group of the workers: they share the partitions among them.",
        default="clusterflow")
    state_topic: str = key(names.TOPIC, "The compacted topic in which workers keep what they must not forget.",
        default="clusterflow-state")
    partitions: int = key(Whole(1, 10_000),
        "Partitions of the topics that are made: as many workers can share the work. Existing topics keep theirs.",
        default=8)
    replication: int | None = key(Whole(1, 100), "Copies of the topics that are made.", default=None,
        absent="3, or as many as there are brokers")
    session_timeout: int = key(names.seconds(6, 1800),
        "Time without a sign of life after which a worker's partitions go to others. Brokers have limits of their "
        "own for it.", default=45)
    tls: bool = key(FLAG, "Whether connections are encrypted.", default=False)
    ca_file: str | None = key(names.PATH, "Certificates to trust, PEM.", default=None, absent="those of the system")
    certificate_file: str | None = key(names.PATH, "Our own certificate, PEM, where brokers ask for one.", default=None,
        absent="none")
    key_file: str | None = key(names.PATH, "Its private key, PEM.", default=None, absent="none")
    verify_tls: bool = key(FLAG, "Whether the brokers' certificates and names are checked.", default=True)
    username: str | None = key(names.LINE, "User, where brokers ask for one (SASL).", default=None, absent="none")
    password: Secret | None = key(SECRET, "Its password.", default=None, absent="none",
        example="{file: /run/secrets/kafka}")
    mechanism: SaslMechanism = key(Choice(tuple(SaslMechanism)),
        "How the password is proven. PLAIN shows it to the brokers.", default=SaslMechanism.SCRAM_SHA_512)

    @property
    def relays_topic(self) -> str:
        """Where relays keep what they must not forget.

        It is named after the flows, not after the workers' state: who begins that anew must not have spools sent again.
        """
        return f"{self.topic}-relays"


KAFKA = Section.of(KafkaSettings, "kafka")
# fmt: on


def build_kafka(table: Table | None, faults: Faults) -> KafkaSettings:
    """Return the settings, and record what does not fit together."""
    given = table or {}
    check_pair("kafka", given, "username", "password", faults)
    check_pair("kafka", given, "certificate_file", "key_file", faults)
    kafka: KafkaSettings = KAFKA.build(table)
    for key_of_tls in ("ca_file", "certificate_file"):
        if getattr(kafka, key_of_tls) is not None and not kafka.tls:
            faults.add("kafka.tls", "false", f"true, as {key_of_tls} is given")
            break
    if kafka.state_topic in (kafka.topic, kafka.relays_topic):
        faults.add("kafka.state_topic", kafka.state_topic, f"another topic than {kafka.topic} and {kafka.relays_topic}")
    return kafka
