"""A minute of the demo cluster on a topic, workers that share it, and the truth to compare the store with."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import polars as pl
import yaml
from confluent_kafka import Producer, TopicPartition
from relay_stage import Command

from app.log import Log
from archive.query import Answer, Filter, ask
from cluster.load import load_cluster
from cluster.model import Cluster, KafkaSettings
from cluster.reload import Reload
from ingest.collect.counter_files import FOLDER
from ingest.dead_letter import DeadLetters
from ingest.kafka.client import Trouble, ensure_topics, open_consumer, open_producer
from ingest.kafka.flow_messages import Kind, encode
from ingest.kafka.partitioner import Partitions
from ingest.kafka.worker import KafkaWorker
from ingest.read import counter_samples
from ingest.read.counter_samples import read_counter_samples
from ingest.read.readers import read_chunk
from ingest.read.readers_format import OWN
from simulate.demo.plan import Places, demo_cluster, demo_scenario, live_start
from simulate.packets.spool_files import SpoolWriter
from simulate.packets.udp import Clock, Target, UdpEmitter
from simulate.scenarios.scenario import Phase, Scenario
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.reckoning import Reckoning, reckon
from store import schema
from store.influx import Store
from store.local_influxdb import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
SESSION = "6s"


@dataclass
class TopicStage:
    """A cluster of its own for one test, whose flow records wait to be sent to its topic.

    Attributes:
        config: its cluster.yaml.
        cluster: the same, loaded.
        scenario: what is played.
        workload: the traffic.
        messages: partition and value of every message, in the order of the records.
        truth: what the store has to hold once all are sent.
    """

    config: Path
    cluster: Cluster
    scenario: Scenario
    workload: Workload
    messages: list[tuple[int, bytes]]
    truth: dict[str, Any]
    workers: list["Worker"] = field(default_factory=list)

    def send(self, messages: list[tuple[int, bytes]]) -> None:
        """Put messages on the topic, and wait until they are there."""
        producer: Producer = open_producer(
            self.cluster.kafka, Trouble(self.cluster.kafka), enable_idempotence=True, compression_type="zstd"
        )
        refused: list[object] = []
        for partition, value in messages:
            producer.produce(
                self.cluster.kafka.topic,
                value,
                partition=partition,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
        assert producer.flush(60) == 0
        assert not refused

    def emit(self, port: int) -> None:
        """Send the minute as packets to a collector, in some seconds."""
        target, nobody = Target("127.0.0.1", port), Target("127.0.0.1", 9)
        with UdpEmitter(self.workload, GroundTruth(self.workload), netflow=target, sflow=nobody) as udp:
            udp.run(self.workload.batches(self.scenario.live), Clock(self.scenario.start, 12), threading.Event())

    def told_by_pmacct(self) -> list[dict[str, Any]]:
        """Return the JSON objects that are on the topic, the slow way."""
        kafka = self.cluster.kafka
        consumer = open_consumer(kafka, Trouble(kafka), group_id="reader", enable_partition_eof=True)
        consumer.assign([TopicPartition(kafka.topic, partition, 0) for partition in range(kafka.partitions)])
        found: list[dict[str, Any]] = []
        ends = 0
        while ends < kafka.partitions:
            message = consumer.poll(1)
            if message is not None and message.error() is not None:
                ends += 1
            elif message is not None:
                found += [json.loads(line) for line in message.value().splitlines()]
        consumer.close()
        return found

    def seen_bytes(self) -> int:
        """Return the bytes that the store has, duplicates included."""
        query = f'SELECT sum("{schema.SEEN_BYTES.name}") FROM "{schema.RAW}"."{schema.TRAFFIC.name}"'
        series = Store(self.cluster.store).query(query)
        return int(series[0].values[0][1] or 0) if series else 0

    def parts(self, count: int) -> Iterator[list[tuple[int, bytes]]]:
        """Return all messages in so many runs of much the same size."""
        edges = [len(self.messages) * part // count for part in range(count + 1)]
        for start, stop in pairwise(edges):
            yield self.messages[start:stop]

    def start(self, *arguments: str, host: int = 0) -> "Worker":
        """Start a worker; each host has a disk of its own."""
        config = self.config.with_name(f"host-{host}.yaml")
        archive = {"folder": str(self.config.with_name("hosts") / f"host-{host}")}
        config.write_text(yaml.safe_dump({**yaml.safe_load(self.config.read_text()), "archive": archive}))
        log = self.config.with_name(f"worker-{len(self.workers)}.log")
        worker = Worker(config, log, arguments)
        self.workers.append(worker)
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()

    def reckoning(self, seconds: float = 60) -> Reckoning:
        """Return the comparison as soon as it is even, or as it stands after a while."""
        store = Store(self.cluster.store)
        deadline = time.monotonic() + seconds
        while True:
            result = reckon(store, self.truth, None)
            if not result.differences or time.monotonic() > deadline:
                return result
            time.sleep(0.3)

    def check(self, seconds: float = 60) -> None:
        """Fail unless every total is the simulator's, also after the workers have written whatever they still would."""
        result = self.reckoning(seconds)
        assert result.checked > 50
        assert result.sent_bytes > 10**9
        assert not result.differences, "\n".join([*map(str, result.differences[:9]), self.said()])

    def archived(self) -> Answer:
        """Return what the archives of all hosts hold, asked together."""
        begin = int(self.scenario.start)
        return ask(self.config.with_name("hosts"), Filter(begin - 3600, begin + 3600), ["exporter"])

    def settle(self, hosts: int = 2) -> None:
        """Have a worker open the folders of each host: what a killed one wrote last is undecided until then."""
        for host in range(hosts):
            worker = self.start(host=host)
            for partition in range(self.cluster.kafka.partitions):
                worker.until(f"event=partition_assigned partition={partition} ")
            worker.stop()

    def check_archived(self) -> None:
        """Fail unless the archives have what was sent, each record once."""
        found, result = self.archived(), self.reckoning(0)
        assert not found.gaps
        more = found.bytes - result.sent_bytes
        assert more == 0, f"{more} bytes more than were sent\n{self.said()}"
        more += found.suppressed_bytes + result.sent_bytes - self.seen_bytes()
        assert more == 0, f"{more} bytes more than were seen\n{self.said()}"

    def shards(self) -> dict[str, int]:
        """Return flow records by the shard that counted them."""
        records = schema.EXPORTER_RECORDS.name
        query = f'SELECT sum("{records}") FROM "{schema.RAW}"."{schema.EXPORTER_STATUS.name}" GROUP BY "{schema.SHARD}"'
        series = Store(self.cluster.store).query(query)
        return {one.tags[schema.SHARD]: int(one.values[0][1] or 0) for one in series}

    def until_shards(self, count: int) -> None:
        """Wait until so many shards have counted something."""
        deadline = time.monotonic() + 20
        while len(self.shards()) < count:
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def said(self) -> str:
        """Return what all workers logged."""
        return "\n".join(f"-- {worker.log.name}\n{worker.said()}" for worker in self.workers)


class Worker(Command):
    """One process of ``clusterflow ingest --kafka``."""

    def __init__(self, config: Path, log: Path, arguments: tuple[str, ...]) -> None:
        super().__init__(log, "ingest", "--kafka", "--config", str(config), *arguments)

    def assigned(self) -> set[int]:
        """Return the partitions that it ever had."""
        lines = [line for line in self.said().splitlines() if "event=partition_assigned" in line]
        return {int(line.split("partition=")[1].split()[0]) for line in lines}

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        """End it in order, once it is ready for that."""
        self.until("event=start")
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(40) == 0, self.said()


class Member:
    """A worker in a thread of this process: some things a test can only bring about from within."""

    def __init__(self, staged: TopicStage, reload: Reload | None = None) -> None:
        self._stop = threading.Event()
        self.worker = KafkaWorker(
            staged.cluster,
            Store(staged.cluster.store),
            dead_letter=DeadLetters(staged.config.with_name("dead-letters.jsonl")),
            stop=self._stop,
            log=Log(),
            reload=reload,
        )
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    @property
    def shards(self) -> set[str]:
        """Shards of the partitions that it has."""
        return set(self.worker.counters()) - {""}

    def stop(self) -> None:
        """End it in order."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Line(BaseHTTPRequestHandler):
    server: "Gate"
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.is_shut.is_set() and self.path.startswith("/write?") and f"rp={schema.RAW}" in self.path:
            status, headers, answer = 503, [], b""
        else:
            there = HTTPConnection(self.server.target, timeout=20)
            there.request(self.command, self.path, body, dict(self.headers))
            response = there.getresponse()
            status, headers, answer = response.status, response.getheaders(), response.read()
            there.close()
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_HEAD = _pass_on  # noqa: N815 - http.server looks for these names

    def log_message(self, *_: object) -> None:
        """Stay silent."""


class Gate(ThreadingHTTPServer):
    """InfluxDB behind a door: it answers questions, but takes no windows while `is_shut` is set."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        self.target = urlsplit(url).netloc
        self.is_shut = threading.Event()
        super().__init__(("127.0.0.1", 0), _Line)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Stay silent: whoever is stopped leaves in the middle of a request."""


def stage(
    tmp_path: Path,
    store_url: str,
    database: str,
    kafka: KafkaSettings,
    *,
    rows: int = 60,
    begins_in: int = -300,
    bridge: Mapping[str, str] | None = None,
) -> TopicStage:
    """Return a staged minute, nothing of it sent yet; its topics are made.

    Args:
        tmp_path: for its files.
        store_url, database: where points go.
        kafka: brokers and names.
        rows: flow records of a message.
        begins_in: when the minute begins, seconds from now.
        bridge: more of section ``bridge``.
    """
    places = Places(store_url, free_port(), free_port(), free_port(), tmp_path / "spool", tmp_path / "state")
    start = live_start(datetime.fromtimestamp(time.time() + begins_in, UTC))
    text = demo_cluster(load_cluster(REPOSITORY / "cluster.yaml"), start=start, places=places, history_days=0)
    document = yaml.safe_load(text)
    document["store"] |= {"database": database}
    document["bridge"] |= {"metrics_listen": "off", "flush": "0.3s"} | dict(bridge or {})
    document["kafka"] = {
        "brokers": list(kafka.brokers), "topic": kafka.topic, "state_topic": kafka.state_topic, "group": kafka.group,
        "partitions": kafka.partitions, "format": kafka.format.value, "session_timeout": SESSION,
    }  # fmt: skip
    config = tmp_path / "cluster.yaml"
    config.write_text(yaml.safe_dump(document))
    cluster = load_cluster(config)
    ensure_topics(cluster.kafka)
    Store(cluster.store).ensure(cluster.retentions())
    scenario = demo_scenario(cluster, start=start, seconds=60, history_days=0)
    assert isinstance(scenario.live, Phase)
    workload = Workload(cluster, scenario)
    truth = GroundTruth(workload)
    with SpoolWriter(workload, tmp_path / "files", truth, file_records=800) as writer:
        for batch in workload.batches(scenario.live):
            writer.write(batch)
    return TopicStage(
        config, cluster, scenario, workload, _messages(tmp_path / "files", kafka.partitions, rows), truth.document()
    )


def _messages(folder: Path, partitions: int, rows: int) -> list[tuple[int, bytes]]:
    """Return what a relay would have made of the files."""
    found: list[tuple[int, bytes]] = []
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        frame = read_chunk(file.read_bytes(), OWN).frame
        for start in range(0, frame.height, rows * partitions):
            found += _encoded(frame.slice(start, rows * partitions), Kind.RECORDS, partitions, "src")
    for file in sorted((folder / FOLDER).iterdir()):
        samples = read_counter_samples(file.read_bytes()).frame
        found += _encoded(samples, Kind.COUNTERS, partitions, counter_samples.EXPORTER)
    return found


def _encoded(frame: pl.DataFrame, kind: Kind, partitions: int, column: str) -> Iterator[tuple[int, bytes]]:
    for partition, part in Partitions(partitions).split(frame, column):
        for value in encode(part, relay="test", kind=kind):
            yield partition, value
