"""TLS and SASL to a real broker: what is right works, what is wrong is one line, and no secret is in it."""

import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from relay_stage import SpoolStage, frame_of, in_order, lines

from app.errors import UserError
from app.log import Log
from bench.load.local_kafka import LocalKafka
from cluster.model import KafkaSettings, SaslMechanism, Secret
from ingest.counters import Counters
from ingest.kafka.client import KafkaUnavailableError, Trouble, ensure_topics, open_admin
from ingest.kafka.publisher import Sender

PASSWORD = "open-sesame"


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def _authority(folder: Path, name: str) -> Path:
    _openssl(
        folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem",
        "-days", "2", "-subj", f"/CN={name}",
    )  # fmt: skip
    return folder / f"{name}.pem"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, another one, and a broker's certificate for 127.0.0.1 by the first."""
    folder = tmp_path_factory.mktemp("certificates")
    _authority(folder, "ca")
    _authority(folder, "stranger")
    _openssl(
        folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", "broker.key", "-out", "broker.csr",
        "-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1",
    )  # fmt: skip
    _openssl(
        folder, "x509", "-req", "-in", "broker.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "2", "-copy_extensions", "copy", "-out", "broker.crt",
    )  # fmt: skip
    _openssl(folder, "pkcs8", "-topk8", "-nocrypt", "-in", "broker.key", "-out", "broker.pk8")
    (folder / "broker.pem").write_text((folder / "broker.pk8").read_text() + (folder / "broker.crt").read_text())
    return folder


@pytest.fixture(scope="module")
def guarded(kafka: LocalKafka, certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker that wants TLS and a password."""
    del kafka  # which skips where there is no Java
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in ("clusterflow", "relay"))
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    properties = {
        "listener.name.clients.ssl.keystore.type": "PEM",
        "listener.name.clients.ssl.keystore.location": str(certificates / "broker.pem"),
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The broker itself comes through listeners without a password.
        "super.users": "User:clusterflow;User:ANONYMOUS",
    }
    with LocalKafka(tmp_path_factory.mktemp("guarded"), security="SASL_SSL", properties=properties) as broker:
        yield broker


@pytest.fixture
def settings(guarded: LocalKafka, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    monkeypatch.setenv("WRONG_PASSWORD", "let-me-in")
    return KafkaSettings(
        brokers=(guarded.address,),
        tls=True,
        ca_file=str(certificates / "ca.pem"),
        username="clusterflow",
        password=Secret(env="KAFKA_PASSWORD"),
        mechanism=SaslMechanism.PLAIN,
    )


def test_a_relay_sends_through_a_verified_connection(settings: KafkaSettings, tmp_path: Path) -> None:
    stage = SpoolStage(tmp_path, settings)
    stage.configure(
        tls=True,
        ca_file=settings.ca_file,
        username="clusterflow",
        password={"env": "KAFKA_PASSWORD"},
        mechanism="PLAIN",
    )
    stage.write(lines(0, 100))
    with stage:
        relay = stage.start("--once", *stage.dead)
        assert relay.ends() == 0, relay.said()
    assert stage.records().equals(in_order(frame_of(lines(0, 100))))
    assert PASSWORD not in relay.said()


def _grant(settings: KafkaSettings, *rights: tuple[ResourceType, str, ResourcePatternType, AclOperation]) -> None:
    """Let the user `relay` do this and no more; it returns when the broker knows."""
    admin = open_admin(settings, Trouble(settings))
    wanted = {
        AclBinding(kind, name, pattern, "User:relay", "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, operation in rights
    }
    for done in admin.create_acls(list(wanted)).values():
        done.result()
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:relay", None, AclOperation.ANY, AclPermissionType.ANY
    )  # fmt: skip
    deadline = time.monotonic() + 10
    while len(admin.describe_acls(everything).result()) < len(wanted):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_relay_needs_no_more_rights_than_the_docs_say(settings: KafkaSettings) -> None:
    """It begins, and it begins again, without a right to any group."""
    mine = replace(settings, topic="rights", state_topic="rights-state")
    ensure_topics(mine)
    topics = (mine.topic, mine.state_topic, mine.relays_topic)
    _grant(
        settings,
        *((ResourceType.TOPIC, name, ResourcePatternType.LITERAL, operation)
          for name in topics for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)),
        (ResourceType.TOPIC, mine.topic, ResourcePatternType.LITERAL, AclOperation.WRITE),
        (ResourceType.TOPIC, mine.relays_topic, ResourcePatternType.LITERAL, AclOperation.WRITE),
        (ResourceType.TOPIC, mine.relays_topic, ResourcePatternType.LITERAL, AclOperation.READ),
        *((ResourceType.TRANSACTIONAL_ID, "clusterflow-relay-", ResourcePatternType.PREFIXED, operation)
          for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)),
    )  # fmt: skip
    for number in range(3):
        sender = Sender(
            replace(mine, username="relay"), "lab", stop=threading.Event(), log=Log(quiet=True), counters=Counters(),
            patience=20,
        )  # fmt: skip
        assert sender.open() == ({"at": number - 1} if number else None)
        sender.add([(0, b"flows")])
        sender.commit({"at": number})
        sender.close()


def test_a_broker_of_another_authority_is_refused(settings: KafkaSettings, certificates: Path, tmp_path: Path) -> None:
    stage = SpoolStage(tmp_path, settings)
    stage.configure(
        tls=True, ca_file=str(certificates / "stranger.pem"), username="clusterflow",
        password={"env": "KAFKA_PASSWORD"}, mechanism="PLAIN",
    )  # fmt: skip
    stage.write(lines(0, 100))
    with stage:
        relay = stage.start()
        assert relay.ends() == 2
    (line,) = relay.said().splitlines()
    assert line.startswith(f"Kafka at {settings.brokers[0]}: TLS: ")
    assert "certificate verify failed" in line
    assert "kafka.ca_file" in line
    assert PASSWORD not in line


def test_a_broker_under_another_name_is_refused(settings: KafkaSettings) -> None:
    """The certificate is for 127.0.0.1, not for localhost."""
    named = replace(settings, brokers=(settings.brokers[0].replace("127.0.0.1", "localhost"),))
    with pytest.raises(UserError, match="certificate verify failed"):
        ensure_topics(named)
    assert ensure_topics(replace(named, verify_tls=False)).partitions == settings.partitions


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"password": Secret(env="WRONG_PASSWORD")}, "refuses user clusterflow"),
        ({"mechanism": SaslMechanism.SCRAM_SHA_512}, "refuses user clusterflow"),
        ({"ca_file": "/nowhere/ca.pem"}, "kafka.ca_file: /nowhere/ca.pem: No such file or directory"),
        ({"password": Secret(env="NOT_SET")}, "environment variable NOT_SET is not set"),
    ],
)
def test_what_is_wrong_is_said(settings: KafkaSettings, change: dict[str, object], expected: str) -> None:
    with pytest.raises(UserError, match=expected) as caught:
        ensure_topics(replace(settings, **change))  # type: ignore[arg-type]
    (line,) = caught.value.lines()
    assert "let-me-in" not in line
    assert PASSWORD not in line


def test_a_connection_without_tls_is_none(settings: KafkaSettings) -> None:
    with pytest.raises(KafkaUnavailableError) as caught:
        ensure_topics(replace(settings, tls=False, ca_file=None, username=None, password=None))
    assert "kafka.tls" in caught.value.hint
