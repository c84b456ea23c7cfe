"""A whole pipeline under load, on this machine: sender, nfacctd, bridge (or relay, broker, workers), InfluxDB."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from app.errors import ClusterflowError, StoreError
from bench.costs.processes import Meter
from bench.load.local_kafka import LocalKafka
from bench.load.packet_sender import speaking_netflow
from bench.load.probe import GROUP, Probe, percentiles, with_probe
from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.collect.kernel.sockets import udp_sockets
from ingest.collect.pmacct import NFACCTD
from simulate.demo.stack import Part, command
from simulate.traffic.bulk_load import large_cluster
from store import schema
from store.influx import LacksDatabaseError, Store
from store.influxql import Select, is_in, newest, total
from store.local_influxdb import LocalInfluxDB, free_port

PARTITIONS = 8
"""Of the topic of flows."""

_READY_SECONDS = 60.0
_PATIENCE = 60.0
"""Seconds without a byte more in the store after which nothing more is expected."""
_POLL_SECONDS = 1.0
_SHOWN = 5
"""Group pairs whose totals differ that are named."""
_ASSIGNED = re.compile(rb"event=partition_assigned partition=(\d+)")
_PURGED = re.compile(rb"Purging cache - END \(PID: \d+, QN: (\d+)/(\d+)")

Pairs = dict[tuple[str, str], tuple[int, int, int]]
"""(source group, destination group) -> bytes, packets, flow records."""


@dataclass(slots=True)
class Pipeline:
    """The parts of a running pipeline.

    Attributes:
        cluster: as written to `config`.
        meter: of nfacctd, influxd, and the bridge, or relay, kafka and each worker; the sender joins them.
    """

    folder: Path
    config: Path
    cluster: Cluster
    store: Store
    meter: Meter = field(default_factory=lambda: Meter({}))

    @property
    def port(self) -> int:
        """UDP port of nfacctd."""
        return self.cluster.collector.netflow_port

    def dropped(self) -> int:
        """Return the datagrams that the kernel dropped at nfacctd's socket."""
        return sum(one.dropped for one in udp_sockets(self.port))

    def printed(self) -> int:
        """Return the records that nfacctd has printed, by its own log."""
        return sum(printed_records(log.read_bytes()) for log in (self.folder / "run").glob(f"{NFACCTD.name}*.log"))

    def stored(self) -> Pairs:
        """Return what the store holds of each group pair, without the probe's."""
        return stored_pairs(self.store)

    def reading(self, stage: schema.Stage, reason: str) -> float | None:
        """Return the newest total of the pipeline's own counters, of all its shards."""
        counter = is_in(schema.STAGE, [stage.value]), is_in(schema.REASON, [reason])
        asked = Select(schema.PIPELINE, schema.RAW).take(newest(schema.TOTAL)).where(*counter).by(schema.SHARD)
        found = [float(reading) for _, _, reading in self.store.rows(asked.between())]
        return sum(found) if found else None


def stored_pairs(store: Store) -> Pairs:
    """Return what a store holds of each group pair, without the probe's; nothing where nothing is stored yet."""
    sums = Select(schema.TRAFFIC, schema.RAW).take(*map(total, (schema.BYTES, schema.PACKETS, schema.FLOWS)))
    found: Pairs = {}
    try:
        answer = [*store.rows(sums.by(schema.SRC_GROUP, schema.DST_GROUP).between())]
    except LacksDatabaseError:
        return {}
    for _, src, dst, *values in answer:
        size, packets, flows = (int(value or 0) for value in values)
        # Rows of flows that only a second exporter saw hold no bytes.
        if flows and src != GROUP:
            found[src, dst] = size, packets, flows
    return found


def differences(sent: Pairs, stored: Pairs) -> list[list[object]]:
    """Return the first group pairs whose totals are not what was sent: names, sent, stored."""
    wrong = sorted(key for key in {*sent, *stored} if sent.get(key) != stored.get(key))
    return [[*key, sent.get(key), stored.get(key)] for key in wrong[:_SHOWN]]


def printed_records(log: bytes) -> int:
    """Return the records that nfacctd's log says it printed."""
    return sum(int(match[1]) for match in _PURGED.finditer(log))


def bench_cluster(base: Cluster, nodes: int, folder: Path, store_url: str) -> Cluster:
    """Return the cluster of so many training nodes, with ports and folders of its own."""
    cluster = with_probe(speaking_netflow(large_cluster(base, nodes)))
    return replace(
        cluster,
        store=replace(cluster.store, url=store_url, database="bench"),
        collector=replace(
            cluster.collector,
            listen="127.0.0.1",
            netflow_port=free_port(),
            sflow_port=free_port(),
            spool=str(folder / "spool"),
        ),
        bridge=replace(cluster.bridge, state=str(folder / "state"), metrics_listen=None),
    )


@contextmanager
def pipeline(
    base: Path, nodes: int, folder: Path, *, influxd: str | None = None, workers: int = 0, daemons: int = 1
) -> Iterator[Pipeline]:
    """Start everything but the sender; stop it in order.

    Args:
        base: the cluster that is made larger.
        nodes: its training nodes.
        folder: for everything.
        influxd: the program; by default the one on the PATH.
        workers: so many share what a relay brings to a broker; 0: the bridge reads the spool itself.
        daemons: so many nfacctd share the port.
    """
    with ExitStack() as running:
        influxdb = running.enter_context(LocalInfluxDB(folder / "influxdb", binary=influxd))
        cluster = bench_cluster(load_cluster(base), nodes, folder, influxdb.url)
        cluster = replace(cluster, collector=replace(cluster.collector, netflow_daemons=daemons))
        pids = {"influxd": influxdb.pid}
        if workers:
            broker = running.enter_context(LocalKafka(folder / "kafka", heap="1g"))
            cluster = replace(cluster, kafka=replace(cluster.kafka, brokers=(broker.address,), partitions=PARTITIONS))
            pids["kafka"] = broker.pid
        config = folder / "cluster.yaml"
        config.write_text(dump_cluster(cluster))
        cluster = load_cluster(config)
        store = Store(cluster.store)
        running.callback(store.close)
        parts = {"nfacctd": _part(folder, "collect", command("collect", config, "--run-dir", str(folder / "run")))}
        parts |= _readers(config, folder, workers)
        for part in parts.values():
            running.callback(part.stop)
            part.start()
        parts["nfacctd"].wait_until(lambda: bool(udp_sockets(cluster.collector.netflow_port)), _READY_SECONDS)
        _wait_for_readers([part for name, part in parts.items() if name != "nfacctd"], workers)
        found = Pipeline(folder, config, cluster, store)
        pids |= {name: part.process.pid for name, part in parts.items() if part.process is not None}
        found.meter.parts |= {name: pid for name, pid in pids.items() if pid is not None}
        yield found


def _part(folder: Path, name: str, arguments: list[str]) -> Part:
    return Part(name, arguments, folder / f"{name}.log")


def _readers(config: Path, folder: Path, workers: int) -> dict[str, Part]:
    """Return what reads the spool, by the names of the meter."""
    if not workers:
        return {"bridge": _part(folder, "ingest", command("ingest", config))}
    letters = ("--dead-letters", str(folder / "dead-letters.jsonl"))
    own = command("relay", config, "--id", "bench", "--metrics-listen", "off", *letters)
    relay = {"relay": _part(folder, "relay", own)}
    names = [f"worker-{number}" for number in range(1, workers + 1)]
    return relay | {name: _part(folder, name, command("ingest", config, "--kafka")) for name in names}


def _wait_for_readers(readers: Sequence[Part], workers: int) -> None:
    """Wait until each has begun, and workers have shared all partitions."""
    for part in readers:
        part.wait_until(partial(_has_begun, part), _READY_SECONDS)
    if workers:
        readers[-1].wait_until(lambda: _is_shared(readers[-workers:]), _READY_SECONDS)


def _has_begun(part: Part) -> bool:
    return b"event=start " in _said(part)


def _is_shared(workers: Sequence[Part]) -> bool:
    """Whether every partition is somebody's, and everybody has one, so far as they have said."""
    owned = [set(_ASSIGNED.findall(_said(part))) for part in workers]
    return all(owned) and len(set[bytes]().union(*owned)) == PARTITIONS


def _said(part: Part) -> bytes:
    return part.log.read_bytes() if part.log.exists() else b""


@contextmanager
def sender(config: Path, port: int, rate: int, seconds: float, pool: int) -> Iterator["Sender"]:
    """Start a sender that has its datagrams ready; end it if it is still there."""
    arguments = ["--config", str(config), "--rate", str(rate), "--for", str(seconds), "--pool", str(pool)]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.load.packet_sender", *arguments, "--port", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        found = Sender(process)
        found.pool = found.listen()
        yield found
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


class Sender:
    """A process of `bench.load.packet_sender`.

    Attributes:
        pool: what it says of its datagrams.
        result: what it says that it sent, once it is done.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._thread = threading.Thread(target=self._wait, name="sender", daemon=True)
        self.pool: dict[str, Any] = {}
        self.result: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_sending(self) -> bool:
        """Whether it is not done."""
        return self._thread.is_alive()

    def go(self) -> None:
        """Let it send."""
        if self._process.stdin is None:
            raise ValueError("the sender has no standard input")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._thread.start()

    def _wait(self) -> None:
        self.result = self.listen()

    def listen(self) -> dict[str, Any]:
        """Return its next line; ClusterflowError if there is none."""
        text = self._process.stdout.readline() if self._process.stdout else ""
        if not text:
            raise ClusterflowError("the sender ended too early", "its last words are above")
        found: dict[str, Any] = json.loads(text)
        return found

    def pairs(self) -> Pairs:
        """Return what it sent, by group pair."""
        return {(src, dst): (size, packets, flows) for src, dst, size, packets, flows in self.result["pairs"]}


def settle(running: Pipeline, sent: Pairs, look: Callable[[], object]) -> tuple[Pairs, float]:
    """Wait until everything sent is stored, or nothing more comes; returns what is stored, and how long it took."""
    began = grown = time.monotonic()
    stored: Pairs = {}
    while True:
        look()
        try:
            found = running.stored()
        except StoreError:
            found = stored
        now = time.monotonic()
        if found != stored:
            stored, grown = found, now
        if stored == sent or now - grown > _PATIENCE:
            return stored, grown - began
        time.sleep(_POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: records a second, seconds, and how often memory is read."""

    rate: int
    seconds: float
    pool: int
    every: float = 1.0


def run_load(running: Pipeline, load: Load, tell: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    """Send a load through a pipeline and account for it.

    Args:
        running: the pipeline, idle.
        load: what to send.
        tell: called with a row every `load.every` seconds.
    """
    with sender(running.config, running.port, load.rate, load.seconds, load.pool) as sending:
        probe = Probe(running.store, running.port)
        meter = running.meter
        meter.parts["sender"] = sending.pid
        dropped_before, printed_before = running.dropped(), running.printed()
        meter.start()
        began = time.monotonic()
        probe.start()
        sending.go()
        try:
            while sending.is_sending:
                time.sleep(load.every)
                tell(_row(running, began, probe))
            seconds = time.monotonic() - began
            costs, others = meter.document(seconds), meter.other_cores(seconds)
            thirds = meter.thirds()
            probe.silence()
            del meter.parts["sender"]
            stored, drained = settle(running, sending.pairs(), meter.sample)
            # What was put off while records came is part of their cost.
            whole = meter.document(seconds)
            for name, one in costs.items():
                one["cpu_us_a_flow"] = round(whole[name]["cpu_seconds"] / sending.result["records"] * 1e6, 3)
        finally:
            probe.stop()
    return _account(running, load, sending, stored) | {
        "lost_kernel_datagrams": running.dropped() - dropped_before,
        "printed": running.printed() - printed_before - probe.sent,
        "drain_seconds": round(drained, 1),
        "delay": percentiles(probe.delays()),
        "probes": probe.sent,
        "probes_not_found": probe.waiting,
        "processes": costs,
        "other_cores": others,
        "writers_counted": running.meter.counts_forgotten,
        "memory_thirds": thirds,
    }


def _row(running: Pipeline, began: float, probe: Probe) -> dict[str, Any]:
    used = running.meter.sample()
    return {
        "second": round(time.monotonic() - began, 1),
        "memory_mib": {name: (one.memory - one.mapped) >> 20 for name, one in used.items()},
        "mapped_mib": {name: one.mapped >> 20 for name, one in used.items()},
        "delay": round(probe.delays()[-1], 1) if probe.delays() else None,
        "dropped": running.dropped(),
    }


def _account(running: Pipeline, load: Load, sending: Sender, stored: Pairs) -> dict[str, Any]:
    sent, result = sending.pairs(), sending.result
    return {
        "rate": load.rate,
        "seconds": result["seconds"],
        "sent": result["records"],
        "sent_datagrams": result["datagrams"],
        "achieved_rate": round(result["records"] / result["seconds"]),
        "sent_bytes": result["bytes"],
        "sent_flows": sum(flows for _, _, flows in sent.values()),
        "stored_flows": sum(flows for _, _, flows in stored.values()),
        "stored_bytes": sum(size for size, _, _ in stored.values()),
        "pairs": len(sent),
        "exact": sent == stored,
        "differences": differences(sent, stored),
        "read": running.reading(schema.Stage.READ, "records"),
        "merged": running.reading(schema.Stage.NORMALISE, "merged_records"),
    }
