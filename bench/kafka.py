"""`scripts/bench kafka`: a spool through the relay into a topic, and from there by several workers into InfluxDB."""

import json
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from app.errors import UserError
from bench.bridge_rate import line, timed
from bench.machine import tell_machine
from bench.pipelines import PARTITIONS, Pairs, differences, stored_pairs
from bench.processes import Meter
from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.kafka.local_kafka import LocalKafka, has_kafka
from simulate.demo.stack import Part, command
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

_PATIENCE = 60.0
"""Seconds without anything new in the store after which nothing more is expected."""
_POLL_SECONDS = 0.5


@click.command()
@click.option("--flows", default=10_000_000, show_default=True, help="Flow records.")
@click.option("--rate", default=200_000, show_default=True, help="Flow records a second of simulated time.")
@click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
@click.option("--workers", default="1,2,4", show_default=True, help="Workers that share the topic, one run each.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
@click.option("--influxd", help="InfluxDB 1.x to run. Default: the one on the PATH.")
def kafka(  # noqa: PLR0917 - click passes everything by name
    flows: int, rate: int, nodes: int, workers: str, config: Path, influxd: str | None
) -> None:
    """Spool -> relay -> Kafka -> workers -> InfluxDB: flows a second of the relay and of 1, 2, 4 workers; totals."""
    if not has_kafka():
        raise UserError("no Kafka here", "it needs Java 17 and the jars of tests/kafka/pom.xml in var/tools/kafka")
    tell_machine(influxd)
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name, ExitStack() as running:
        folder = Path(name)
        broker = running.enter_context(LocalKafka(folder / "kafka", heap="1g"))
        made, truth = folder / "made.yaml", folder / "truth.json"
        timed(
            [
                *command("simulate", config, "--flows", str(flows), "--rate", str(rate), "--nodes", str(nodes)),
                *("--spool", str(folder / "spool"), "--write-cluster", str(made), "--truth", str(truth)),
            ]
        )
        cluster = load_cluster(made)
        cluster = replace(cluster, kafka=replace(cluster.kafka, brokers=(broker.address,), partitions=PARTITIONS))
        _relay(cluster, folder, flows)
        sent = _sent(truth)
        for count in (int(text) for text in workers.split(",")):
            _work(cluster, folder / f"workers-{count}", count, sent, influxd=influxd)


def _relay(cluster: Cluster, folder: Path, flows: int) -> None:
    config = folder / "relay.yaml"
    config.write_text(dump_cluster(cluster))
    letters = ("--dead-letters", str(folder / "dead-letters.jsonl"))
    own = command("relay", config, "--spool", str(folder / "spool"), "--once", "--id", "bench", *letters)
    used = timed([*own, "--metrics-listen", "off"])
    line(step="relay", flows=flows, flows_per_second=round(flows / used["seconds"]), **used)


def _work(cluster: Cluster, folder: Path, workers: int, sent: Pairs, *, influxd: str | None) -> None:
    """Let so many workers, new to the topic, read it to its end."""
    with ExitStack() as running:
        server = running.enter_context(LocalInfluxDB(folder / "influxdb", binary=influxd))
        cluster = replace(
            cluster,
            store=replace(cluster.store, url=server.url),
            kafka=replace(cluster.kafka, group=f"bench-{workers}", state_topic=f"bench-state-{workers}"),
            bridge=replace(cluster.bridge, metrics_listen=None, state=str(folder / "state")),
        )
        config = folder / "cluster.yaml"
        config.write_text(dump_cluster(cluster))
        store = Store(cluster.store)
        running.callback(store.close)
        parts = [
            Part(f"worker-{n}", command("ingest", config, "--kafka"), folder / f"worker-{n}.log")
            for n in range(workers)
        ]
        began = time.monotonic()
        for part in parts:
            running.callback(part.stop)
            part.start()
        meter = Meter({part.name: part.process.pid for part in parts if part.process is not None})
        meter.parts["influxd"] = server.pid or 0
        meter.start()
        stored, first, last = _follow(store, meter, sent)
        costs = meter.document(last - began)
        flows = _records(folder.parent / "truth.json")
        cpu = sum(one["cpu_seconds"] for name, one in costs.items() if name != "influxd")
        line(
            step="kafka",
            workers=workers,
            partitions=PARTITIONS,
            flows=flows,
            exact=stored == sent,
            differences=differences(sent, stored),
            seconds=round(last - began, 2),
            flows_per_second=round(flows / (last - began)),
            first_stored_seconds=round(first - began, 2),
            cpu_us_a_flow=round(cpu / flows * 1e6, 3),
            processes=costs,
            other_cores=meter.other_cores(last - began),
        )


def _follow(store: Store, meter: Meter, sent: Pairs) -> tuple[Pairs, float, float]:
    """Wait for everything; returns what is stored, and the moments of the first and the last points."""
    stored: Pairs = {}
    first = last = time.monotonic()
    while stored != sent and time.monotonic() - last < _PATIENCE:
        time.sleep(_POLL_SECONDS)
        meter.sample()
        found = stored_pairs(store)
        if found != stored:
            last = time.monotonic()
            first = first if stored else last
            stored = found
    return stored, first, last


def _records(truth: Path) -> int:
    return int(json.loads(truth.read_text())["totals"]["records"])


def _sent(truth: Path) -> Pairs:
    document: dict[str, Any] = json.loads(truth.read_text())
    return {
        (row["src_group"], row["dst_group"]): (row["bytes"], row["packets"], row["flows"])
        for row in document["group_pairs"]
    }
