"""A spool that fills like a collector's, relays that follow it, and what they brought to the topic."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl
import yaml
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from cluster.load import load_cluster
from cluster.model import KafkaSettings
from ingest.kafka.client import Trouble, ensure_topics, open_consumer
from ingest.kafka.flow_messages import Kind, Message, decode
from ingest.read.readers import read_chunk
from ingest.read.readers_format import OWN
from ingest.read.records import SPOOL_COLUMNS

REPOSITORY = Path(__file__).resolve().parents[2]
HEADER = ",".join(SPOOL_COLUMNS)
LONG_AGO = 3600
EXPORTERS = ("10.60.0.101", "10.60.0.102")


def lines(first: int, count: int, *, version: int = 5) -> list[str]:
    """Return flow records as nfacctd prints them; each is another one, and the numbers of each exporter have no gap."""
    now = 1_790_000_000
    return [
        f"{EXPORTERS[i % 2]},1,2,10.20.{i % 7}.{i % 61},10.30.0.{i % 13},{1024 + i % 60_000},443,27,6,0,1,"
        f"{now + i // 1000}.000000,{now + i // 1000 + 1}.500000,{now + i // 1000 + 2}.000000,{i // 2},{version},0,"
        f"{1 + i % 9},1,{1000 + i}"
        for i in range(first, first + count)
    ]


def frame_of(text_lines: list[str]) -> pl.DataFrame:
    """Return the records of lines, as the reader has them."""
    return read_chunk("\n".join([HEADER, *text_lines, ""]).encode(), OWN).frame


@dataclass
class SpoolStage:
    """A spool, a cluster.yaml that names it, and the relays of one test."""

    folder: Path
    kafka: KafkaSettings
    relays: list["RelayProcess"] = field(default_factory=list)
    files: int = 0

    def __post_init__(self) -> None:
        self.spool.mkdir(parents=True, exist_ok=True)
        self.configure()

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    @property
    def config(self) -> Path:
        return self.folder / "cluster.yaml"

    @property
    def dead_letters(self) -> Path:
        return self.folder / "dead.jsonl"

    @property
    def dead(self) -> tuple[str, str]:
        """The option with which dead letters do not go to the folder that the tests run in."""
        return "--dead-letters", str(self.dead_letters)

    def configure(self, **kafka: Any) -> None:
        """Write cluster.yaml."""
        document = {
            "cluster": "lab",
            "groups": {"training": {"role": "training", "prefixes": ["10.20.0.0/16"]}},
            "collector": {"spool": str(self.spool)},
            "bridge": {"state": str(self.folder / "state"), "metrics_listen": "off"},
            "kafka": {
                "brokers": list(self.kafka.brokers),
                "topic": self.kafka.topic,
                "state_topic": self.kafka.state_topic,
                "partitions": self.kafka.partitions,
                **kafka,
            },
        }
        self.config.write_text(yaml.safe_dump(document))
        self.kafka = load_cluster(self.config).kafka

    def write(self, text_lines: list[str]) -> Path:
        """Add a file that its writer has left long ago: it may be deleted once it is relayed and has a successor."""
        path = self.spool / f"nfacct-{1_790_000_000 + self.files}.csv"
        scratch = path.with_suffix(".new")
        scratch.write_text("\n".join([HEADER, *text_lines, ""]))
        moment = time.time() - LONG_AGO + self.files / 1000
        os.utime(scratch, (moment, moment))
        scratch.rename(path)
        self.files += 1
        return path

    def start(self, *arguments: str) -> "RelayProcess":
        relay = RelayProcess(self.config, len(self.relays), arguments)
        self.relays.append(relay)
        return relay

    def messages(self) -> list[tuple[int, Message]]:
        """Return what is committed on the topic, with its partitions."""
        trouble = Trouble(self.kafka)
        topics = ensure_topics(self.kafka)
        consumer = open_consumer(self.kafka, trouble, enable_partition_eof=True, fetch_wait_max_ms=50)
        consumer.assign([TopicPartition(topics.flows, number, 0) for number in range(topics.partitions)])
        found: list[tuple[int, Message]] = []
        ended: set[int | None] = set()
        deadline = time.monotonic() + 60
        while len(ended) < topics.partitions:
            assert time.monotonic() < deadline, "a transaction is still open"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                ended.add(message.partition())
            else:
                found.append((message.partition() or 0, decode(message.value())))
        consumer.close()
        return found

    def records(self) -> pl.DataFrame:
        """Return the records on the topic, in order."""
        frames = [message.frame for _, message in self.messages() if message.kind is Kind.RECORDS]
        return in_order(pl.concat(frames)) if frames else frame_of([])

    def until(self, count: int, seconds: float = 40) -> None:
        """Wait until so many records are committed."""
        deadline = time.monotonic() + seconds
        while (height := self.records().height) < count:
            assert time.monotonic() < deadline, f"{height} of {count}\n{self.said()}"
            time.sleep(0.2)

    def said(self) -> str:
        return "\n".join(f"-- relay {relay.number}\n{relay.said()}" for relay in self.relays)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for relay in self.relays:
            relay.kill()


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows in an order of their own: equal frames are equal multisets."""
    return frame.sort(pl.all())


class Command:
    """One process of a command of ours; its log has a file of its own."""

    def __init__(self, log: Path, *words: str, **environment: str) -> None:
        self.log = log
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "clusterflow", *words],
                cwd=REPOSITORY,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def said(self) -> str:
        return self.log.read_text()

    def until(self, text: str, seconds: float = 30) -> Self:
        """Wait until it says something."""
        deadline = time.monotonic() + seconds
        while text not in self.said():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class RelayProcess(Command):
    """One process of ``clusterflow relay``."""

    def __init__(self, config: Path, number: int, arguments: tuple[str, ...]) -> None:
        self.number = number
        log = config.with_name(f"relay-{number}.log")
        super().__init__(log, "relay", "--id", "lab", *arguments, CLUSTERFLOW_CONFIG=str(config))

    def ends(self, seconds: float = 30) -> int:
        """Wait until it ends; return how."""
        return self.process.wait(seconds)

    def stop(self) -> float:
        """End it in order; return how long that took, in seconds."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0, self.said()
        return time.monotonic() - began


class Deaf:
    """A producer whose first commit gets through, though its answer does not."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def commit_transaction(self, timeout: float) -> None:
        self._producer.commit_transaction(timeout)
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


class Feeder:
    """Fills a spool in the background, a file every so often; use it as a context manager, or wait for its `end`.

    Args:
        stage: whose spool.
        parts: the lines of each file.
        seconds: from one file to the next.
    """

    def __init__(self, stage: SpoolStage, parts: list[list[str]], seconds: float) -> None:
        self._stage = stage
        self._parts = parts
        self._seconds = seconds
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        for part in self._parts:
            self._stage.write(part)
            time.sleep(self._seconds)

    def start(self) -> Self:
        self._thread.start()
        return self

    def end(self) -> None:
        """Wait until everything is in the spool."""
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()


def moments(seed: int, count: int, longest: float) -> Iterator[float]:
    """Yield random waits: the same for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        yield chance.uniform(0, longest)
