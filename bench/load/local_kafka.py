"""A private Kafka broker on the loopback interface: for the tests, for benchmarks and for trying things out.

It is one process, broker and controller at once (KRaft), with a folder and ports of its own. Its jars are no Python
package: scripts/lib.sh puts them in var/tools/kafka.
"""

import os
import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from app.errors import ClusterflowError
from app.local_process import LocalProcess, end_of
from store.local_influxdb import free_port

_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INTERNAL",
    # One broker cannot keep copies.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # A group of workers starts at once instead of waiting for more members.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # What a killed process left open ends soon after its timeout.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "auto.create.topics.enable": "false",
    # After a kill it is its own successor, and need not wait long for itself.
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "500",
    # What a compacted topic has lost shows within a test.
    "log.cleaner.backoff.ms": "500",
}

_LOGGING = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d %p %c{1}: %m%n
"""

_START_SECONDS = 60.0


def kafka_jars() -> Path | None:
    """Return the folder of Kafka's jars, CLUSTERFLOW_KAFKA or var/tools/kafka; None if there are none."""
    folder = Path(os.environ.get("CLUSTERFLOW_KAFKA") or Path(__file__).parents[2] / "var" / "tools" / "kafka")
    return folder if any(folder.glob("kafka_*.jar")) else None


def has_kafka() -> bool:
    """Return whether a broker can be run here."""
    return kafka_jars() is not None and shutil.which("java") is not None


class LocalKafka(LocalProcess):
    """A Kafka broker; use it as a context manager, or `start` and `stop` it. It keeps its ports for life.

    Args:
        folder: where its data, log and configuration live; made if missing.
        port: TCP port of clients, or 0 for a free one.
        security: protocol of the clients' listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        properties: more of Kafka's own settings, such as those of TLS.
        heap: memory of the Java process.
    """

    stop_seconds = 20.0

    def __init__(
        self,
        folder: Path,
        *,
        security: str = "PLAINTEXT",
        properties: Mapping[str, str] | None = None,
        heap: str = "384m",
    ) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self.port = free_port()
        self._internal_port, self._controller_port = free_port(), free_port()
        self._security = security
        self._more = dict(properties or {})
        self._heap = heap

    @property
    def address(self) -> str:
        """Where clients find it, as host:port."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the broker and wait until it answers; ClusterflowError with the end of its log if it does not."""
        if kafka_jars() is None:
            raise ClusterflowError("Kafka's jars are not there", "scripts/test brings them to var/tools/kafka")
        if shutil.which("java") is None:
            raise ClusterflowError("Java is not installed", "apt-get install default-jre-headless")
        self._configure()
        log = self.folder / "kafka.log"
        if not (self.folder / "data" / "meta.properties").exists():
            cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            # In one word: an id may begin with a hyphen.
            tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", self._config]
            with log.open("ab") as output:
                subprocess.run(self._java(*tool), stdout=output, stderr=output, check=False)
        self._launch(self._java("kafka.Kafka", self._config), log)
        if not self._answers():
            self.kill()
            raise ClusterflowError(f"Kafka did not start on port {self.port}: {end_of(log)}", f"see {log}")

    @property
    def _config(self) -> str:
        return str(self.folder / "server.properties")

    def _configure(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        clients, internal = f"CLIENTS://{self.address}", f"INTERNAL://127.0.0.1:{self._internal_port}"
        own = {
            "log.dirs": str(self.folder / "data"),
            "listeners": f"{clients},{internal},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"{clients},{internal}",
            "listener.security.protocol.map": f"CLIENTS:{self._security},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
        }
        lines = [f"{key}={value}\n" for key, value in (_PROPERTIES | own | self._more).items()]
        (self.folder / "server.properties").write_text("".join(lines))
        (self.folder / "log4j.properties").write_text(_LOGGING)

    def _java(self, *arguments: str) -> list[str]:
        return [
            "java",
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            # Quick to start rather than quick for hours.
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-Djava.awt.headless=true",
            f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}",
            "-cp",
            f"{kafka_jars()}/*",
            *arguments,
        ]

    def _answers(self) -> bool:
        """Wait until the broker serves; False if it ended or takes too long."""
        admin = AdminClient(
            {"bootstrap.servers": f"127.0.0.1:{self._internal_port}", "log_level": 0, "reconnect.backoff.max.ms": 200}
        )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            try:
                if admin.list_topics(timeout=0.5).brokers:
                    return True
            except KafkaException:
                time.sleep(0.05)
        return False
