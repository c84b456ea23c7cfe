"""`scripts/bench live` and `soak`: from UDP to the store at given rates, with everything accounted for."""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import click

from app.errors import UserError
from app.units import parse_duration
from bench.costs.bridge_rate import simulated
from bench.costs.processes import Meter, line, tell_machine, timed
from bench.load.archived import cost
from bench.load.local_kafka import LocalKafka, has_kafka
from bench.load.packet_sender import POOL
from bench.pipelines import PARTITIONS, Load, Pairs, differences, pipeline, run_load, stored_pairs
from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import Cluster
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
@click.option("--archive", is_flag=True, help="One worker with the flow archive beside the same without, too.")
def kafka(  # noqa: PLR0917 - click passes everything by name
    flows: int, rate: int, nodes: int, workers: str, config: Path, influxd: str | None, *, archive: bool
) -> None:
    """Spool -> relay -> Kafka -> workers -> InfluxDB: flows a second of the relay and of 1, 2, 4 workers; totals."""
    if not has_kafka():
        raise UserError("no Kafka here", "it needs Java 17 and the jars of tests/kafka/pom.xml in var/tools/kafka")
    tell_machine(influxd)
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name, ExitStack() as running:
        folder = Path(name)
        broker = running.enter_context(LocalKafka(folder / "kafka", heap="1g"))
        made, truth = folder / "made.yaml", folder / "truth.json"
        simulated(config, made, folder / "spool", "--truth", str(truth), flows=flows, rate=rate, nodes=nodes)
        cluster = load_cluster(made)
        cluster = replace(cluster, kafka=replace(cluster.kafka, brokers=(broker.address,), partitions=PARTITIONS))
        _relay(cluster, folder, flows)
        sent = _sent(truth)
        for count in (int(text) for text in workers.split(",") if text):
            line(step="kafka", **_work(cluster, folder / f"workers-{count}", count, sent, influxd=influxd))
        if archive:
            used: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
            for run in range(3):
                for is_kept, results in used.items():
                    kept = replace(cluster, archive=replace(cluster.archive, enabled=is_kept))
                    place = folder / f"archive-{run}-{is_kept}"
                    results.append(_work(kept, place, 1, sent, influxd=influxd))
            line(step="archive_cost", through="Kafka worker", flows=flows, **cost(used))


def _relay(cluster: Cluster, folder: Path, flows: int) -> None:
    config = folder / "relay.yaml"
    config.write_text(dump_cluster(cluster))
    letters = ("--dead-letters", str(folder / "dead-letters.jsonl"))
    own = command("relay", config, "--spool", str(folder / "spool"), "--once", "--id", "bench", *letters)
    used = timed([*own, "--metrics-listen", "off"])
    line(step="relay", flows=flows, flows_per_second=round(flows / used["seconds"]), **used)


def _work(cluster: Cluster, folder: Path, workers: int, sent: Pairs, *, influxd: str | None) -> dict[str, Any]:
    """Let so many workers, new to the topic, read it to its end; return what it took."""
    with ExitStack() as running:
        server = running.enter_context(LocalInfluxDB(folder / "influxdb", binary=influxd))
        cluster = replace(
            cluster,
            store=replace(cluster.store, url=server.url),
            kafka=replace(cluster.kafka, group=f"bench-{folder.name}", state_topic=f"bench-state-{folder.name}"),
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
        return {
            "workers": workers,
            "partitions": PARTITIONS,
            "flows": flows,
            "exact": stored == sent,
            "differences": differences(sent, stored),
            "seconds": round(last - began, 2),
            "flows_per_second": round(flows / (last - began)),
            "first_stored_seconds": round(first - began, 2),
            "cpu_seconds": round(cpu, 2),
            "cpu_us_a_flow": round(cpu / flows * 1e6, 3),
            "peak_mib": max(one["peak_mib"] for name, one in costs.items() if name != "influxd"),
            "processes": costs,
            "other_cores": meter.other_cores(last - began),
        }


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


def rates(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """Read ``50000,100000``."""
    return numbers(text, "numbers of flow records a second, such as 50000,100000")


def worker_counts(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Read ``1,2,4``; nothing where it is not given."""
    return () if text is None else numbers(text, "numbers of workers, such as 1,2,4")


def daemon_counts(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Read ``1,2``; nothing where it is not given."""
    return () if text is None else numbers(text, "numbers of nfacctd, such as 1,2")


def numbers(text: str, expected: str) -> tuple[int, ...]:
    """Read whole numbers from 1, commas between them; BadParameter for anything else."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise click.BadParameter(f"{text}: expected {expected}")
    return found


def duration(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    """Read ``60``, ``90s`` or ``30m`` as seconds."""
    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else float(parse_duration(text))
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise click.BadParameter(f"{text}: expected seconds, or a duration such as 90s or 30m")
    return seconds


_for = click.option("--for", "seconds", callback=duration, default="60", show_default=True, help="How long each.")
_nodes = click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
_config = click.option(
    "--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True, help="The base."
)
_influxd = click.option("--influxd", help="InfluxDB 1.x to run. Default: the one on the PATH.")
_pool = click.option(
    "--pool", default=POOL, show_default=True, help="Flow records made beforehand, sent over and over."
)


@click.command()
@click.option("--rate", "rate", callback=rates, default="50000,100000,200000", show_default=True, help="Flows/s.")
@_for
@_nodes
@_config
@_influxd
@_pool
@click.option(
    "--workers",
    callback=worker_counts,
    help="1,2,4: through a Kafka broker here to so many workers, one run each, no bridge.",
)
@click.option("--daemons", callback=daemon_counts, help="1,2: with so many nfacctd at one port, one run each.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keep everything there. Default: a temporary one.")
def live(  # noqa: PLR0917 - click passes everything by name
    rate: tuple[int, ...],
    seconds: float,
    nodes: int,
    config: Path,
    influxd: str | None,
    pool: int,
    workers: tuple[int, ...],
    daemons: tuple[int, ...],
    folder: Path | None,
) -> None:
    """UDP -> nfacctd -> spool -> bridge -> InfluxDB: what is lost where, how late, at what cost. A line a rate."""
    if workers and not has_kafka():
        raise UserError("no Kafka here", "it needs Java 17 and the jars of tests/kafka/pom.xml in var/tools/kafka")
    tell_machine(influxd)
    for one, count, shares in product(rate, workers or (0,), daemons or (0,)):
        name = "-".join(str(part) for part in ("live", one, count, shares) if part)
        with (
            work_folder(folder, name) as place,
            pipeline(config, nodes, place, influxd=influxd, workers=count, daemons=shares or 1) as running,
        ):
            series: list[dict[str, Any]] = []
            found = run_load(running, Load(one, seconds, pool), series.append)
            found["refresh_seconds"] = running.cluster.collector.refresh
            step: dict[str, Any] = {"step": "live_shared", "daemons": shares} if shares else {"step": "live"}
            if count:
                step = {"step": "live_kafka", "workers": count, "partitions": PARTITIONS}
            line(**step, nodes=nodes, **found, memory_series=_series(series))


@click.command()
@click.option("--rate", default=100_000, show_default=True, help="Flows/s.")
@_for
@_nodes
@_config
@_influxd
@_pool
@click.option("--log", "log", type=click.Path(path_type=Path), help="Write the rows there, too, as text.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keep everything there. Default: a temporary one.")
def soak(  # noqa: PLR0917 - click passes everything by name
    rate: int,
    seconds: float,
    nodes: int,
    config: Path,
    influxd: str | None,
    pool: int,
    log: Path | None,
    folder: Path | None,
) -> None:
    """The same for long: memory every 10 s (own + files mapped), flat or not, and all totals at the end."""
    tell_machine(influxd)
    rows: list[str] = []

    def tell(row: dict[str, Any]) -> None:
        line(step="soak_row", **row)
        mapped = row["mapped_mib"]
        memory = " ".join(f"{name} {own:5} + {mapped[name]:3} MiB" for name, own in sorted(row["memory_mib"].items()))
        rows.append(f"{row['second']:8.1f} s  {memory}  delay {row['delay']} s  dropped {row['dropped']}")
        if log is not None:
            log.write_text("\n".join(rows) + "\n")

    with work_folder(folder, "soak") as place, pipeline(config, nodes, place, influxd=influxd) as running:
        found = run_load(running, Load(rate, seconds, pool, every=10.0), tell)
        found["refresh_seconds"] = running.cluster.collector.refresh
        line(step="soak", nodes=nodes, **found)


def _series(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return each part's memory over time, MiB."""
    names = sorted({name for row in rows for name in row["memory_mib"]})
    return {name: [row["memory_mib"].get(name, 0) for row in rows] for name in names}


@contextmanager
def work_folder(folder: Path | None, name: str) -> Iterator[Path]:
    """Hold a folder: one in the user's, which must be empty, or a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as made:
            yield Path(made).resolve()
        return
    path = folder / name
    if path.exists() and any(path.iterdir()):
        raise UserError(f"{path}: is not empty", "choose another --folder")
    path.mkdir(parents=True, exist_ok=True)
    yield path.resolve()
