"""Measure the analysis: a day of a large cluster judged again from the store, and live rounds at its end.

The windows are written straight into a private InfluxDB, as a bridge would have. Each figure is of a process of its
own, so that its memory is its own. Run by scripts/bench analyze.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import click
import numpy as np
import polars as pl

from analysis.analyser import Analyser
from analysis.jobs.job_windows import ClusterFileJobs, active_at
from analysis.standings import FOLDER
from analysis.state import State
from app.log import Log
from bench.costs.processes import line, processor_seconds, tell_machine, timed
from bench.live_rates import numbers
from bench.load.fill import fill, series
from cluster.load import load_cluster
from cluster.model import Cluster, ExportProtocol, Job, Retention, Role
from simulate.demo.stack import command
from simulate.traffic.bulk_load import large_cluster
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, batches
from store.schema import Measurement

_CLUSTER = """\
cluster: bench
groups:
  training: {{title: GPU Training Nodes, role: training, prefixes: [10.0.0.0/8]}}
  storage: {{title: Storage, role: storage, prefixes: [172.16.0.0/16]}}
nodes:
{nodes}
exporters:
  leaf-1: {{address: 192.0.2.1, interfaces: {{1: {{name: rail, plane: compute}}}}}}
  leaf-2: {{address: 192.0.2.2, interfaces: {{1: {{name: rail, plane: compute}}}}}}
jobs:
{jobs}
store: {{url: "{url}", database: bench}}
bridge: {{state: "{state}"}}
"""
_RATE = 10_000_000_000
"""Bytes that a node sends in a window."""
_RUN, _PAUSE = 900, 600
"""Seconds of an earlier run, and after it."""
_RUNS = 4
_WRITERS = 2
_OTHERS = {
    schema.RAIL_TRAFFIC, schema.STORAGE_IO, schema.PULSE, schema.EGRESS, schema.THREAT, schema.VIOLATION, schema.DENIED,
    schema.UNKNOWN_NODE, schema.INFERENCE, schema.INFERENCE_UNNAMED, schema.MANAGED, schema.INTERFACE_TRAFFIC,
}  # fmt: skip
"""What a bridge writes beside the job's own windows."""

Write = Callable[[Store, Cluster, int, int], int]
"""Writes the windows between two epoch seconds; returns how many points."""

_CHECKPOINT_EVERY, _CHECKPOINT_SECONDS = 1800, 60


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--nodes", "sizes", default="1024", show_default=True, help="Training nodes; several: one after the other."
)
@click.option("--hours", default=24.0, show_default=True, help="Length of the running job.")
@click.option("--ticks", default=10, show_default=True, help="Live rounds.")
@click.option(
    "--jobs", default=1, show_default=True, help="Jobs at once that share the nodes; many: live rounds alone."
)
@click.option("--whole", is_flag=True, help="Live rounds alone, with work for every study.")
def bench(sizes: str, hours: float, ticks: int, jobs: int, *, whole: bool) -> None:
    """Print one JSON line a measurement: filling the store, judging it again; a start, live rounds, another start."""
    tell_machine()
    for nodes in numbers(sizes, "numbers of nodes, such as 256,1024,4096"):
        if whole:
            _whole(nodes, hours, ticks)
        else:
            _measure(nodes, hours, ticks, jobs)


def _measure(nodes: int, hours: float, ticks: int, jobs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name:
        folder = Path(name)
        with LocalInfluxDB(folder / "influxdb") as server:
            # Pairs are kept in minutes.
            now = int(time.time()) // 60 * 60
            config = folder / "cluster.yaml"
            begin = now - round(hours * 3600)
            config.write_text(_cluster(server.url, str(folder / "state"), nodes, begin, jobs))
            cluster = load_cluster(config)
            store = Store(cluster.store)
            store.ensure(cluster.retentions())
            first = begin - _RUNS * (_RUN + _PAUSE)

            def write(start: int) -> int:
                with closing(store.another()) as own:
                    return _fill(own, cluster, start, min(start + 600, now))

            began = time.monotonic()
            with ThreadPoolExecutor(_WRITERS) as threads:
                points = sum(threads.map(write, range(first, now, 600)))
            line(step="fill", nodes=nodes, hours=hours, points=points, seconds=round(time.monotonic() - began, 1))
            span = ("--from", str(first), "--to", str(now))
            if jobs > 1:
                line(step="tick_many", nodes=nodes, jobs=jobs, **_live(server, cluster, now, ticks, _fill))
                return
            used = processor_seconds(server.pid or 0)
            again = timed([*command("analyze", config), *span])
            busy = round(processor_seconds(server.pid or 0) - used, 1)
            line(step="rerun", nodes=nodes, hours=hours, cores=os.cpu_count(), **again, store_cpu_seconds=busy)
            line(step="tick", nodes=nodes, **_live(server, cluster, now, ticks, _fill))


def _whole(nodes: int, hours: float, ticks: int) -> None:
    """Measure live rounds beside sFlow's seconds, rails, the outside, clients, sessions and violations.

    The job's windows are as `bench` has them; of the rest each series has a point a window whose values mean nothing.
    """
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name, LocalInfluxDB(Path(name, "db")) as server:
        now = int(time.time()) // 10 * 10
        begin = now - round(hours * 3600)
        cluster = _whole_cluster(nodes, server.url, Path(name, "state"), begin)
        store = Store(cluster.store)
        store.ensure(cluster.retentions())
        others = {one: rows for one, rows in series(cluster).items() if one in _OTHERS}
        pulse, rails = ({one: others.pop(one)} for one in (schema.PULSE, schema.RAIL_TRAFFIC))

        def write(store: Store, cluster: Cluster, start: int, stop: int) -> int:
            filled = (
                (Retention(schema.RAW, 10, 0), others), (Retention(schema.RAW, 1, 0), pulse),
                (Retention(schema.MINUTE, 60, 0), rails),
            )  # fmt: skip
            written = sum(count for every, rows in filled for _, count in fill(store, every, rows, start, stop))
            return written + _fill(store, cluster, start, stop)

        for start in range(begin - _RUNS * (_RUN + _PAUSE), begin, 600):
            _fill(store, cluster, start, min(start + 600, begin))
        for start in range(begin, now, 600):
            write(store, cluster, start, min(start + 600, now))
        line(step="tick_whole", nodes=nodes, hours=hours, **_live(server, cluster, now, ticks, write))


def _whole_cluster(nodes: int, url: str, state: Path, begin: int) -> Cluster:
    """Return the demo's cluster with so many nodes on leaves that speak sFlow, and the jobs of `_cluster`."""
    base = large_cluster(load_cluster(Path("cluster.yaml")), nodes)
    names = tuple(_trained(base))
    starts = [begin - (_RUNS - run) * (_RUN + _PAUSE) for run in range(_RUNS)]
    runs = [Job(f"run-{at}", "llm", names, _moment(at), _moment(at + _RUN)) for at in starts]
    leaves = tuple(
        replace(one, protocol=ExportProtocol.SFLOW) if one.name.startswith("leaf") else one for one in base.exporters
    )
    return replace(
        base, jobs=(*runs, Job("long", "llm", names, _moment(begin))), exporters=leaves,
        store=replace(base.store, url=url, database="bench"), bridge=replace(base.bridge, state=str(state)),
    )  # fmt: skip


def _trained(cluster: Cluster) -> list[str]:
    training = {group.id for group in cluster.groups_with(Role.TRAINING)}
    return [node.name for node in cluster.nodes if node.group in training]


def _clocks(server: LocalInfluxDB) -> tuple[float, float, float]:
    """Return seconds: by the clock, of this process' processor time, of the server's."""
    return time.monotonic(), time.process_time(), processor_seconds(server.pid or 0)


def _live(server: LocalInfluxDB, cluster: Cluster, now: int, ticks: int, write: Write) -> dict[str, float]:
    """Start as a process would, judge a new window each round, end, and start again: seconds."""
    store, folder, log = Store(cluster.store), Path(cluster.bridge.state), Log(quiet=True)
    with State.open(folder) as state:

        def started(at: float) -> tuple[Analyser, float]:
            began = time.monotonic()
            analyser = Analyser(cluster, store, state, ClusterFileJobs(cluster), log=log, folder=folder)
            analyser.tick(at)
            return analyser, round(time.monotonic() - began, 2)

        analyser, start = started(now)
        rounds = []
        for tick in range(ticks):
            write(store, cluster, now + 10 * tick, now + 10 * tick + 10)
            before = _clocks(server)
            analyser.tick(now + 10 * tick + 13)
            rounds.append([after - since for since, after in zip(before, _clocks(server), strict=True)])
        began = time.monotonic()
        analyser.rest()
        end = round(time.monotonic() - began, 2)
        kept = sum(path.stat().st_size for path in (folder / FOLDER).iterdir())
        restart = started(now + 10 * ticks + 13)[1]
    seconds, own, stores = (np.array(rounds).T).tolist()
    return {
        "median": round(median(seconds), 3), "slowest": round(max(seconds), 3), "rounds": ticks,
        "cpu_seconds": round(median(own), 3), "store_cpu_seconds": round(median(stores), 3),
        "start_seconds": start, "end_seconds": end, "restart_seconds": restart, "kept_bytes": kept,
    }  # fmt: skip


def _cluster(url: str, state: str, nodes: int, begin: int, jobs: int) -> str:
    """Return cluster.yaml: jobs that began at `begin` and still run, and the earlier runs of their class."""
    lines = [_node(number) for number in range(1, nodes + 1)]
    starts = [begin - (_RUNS - run) * (_RUN + _PAUSE) for run in range(_RUNS)]
    told = []
    for part in np.array_split(np.arange(1, nodes + 1), jobs):
        job = f'class: llm, nodes: ["gpu-[{part[0]:04}-{part[-1]:04}]"]'
        told += [
            f'  - {{id: run-{run}-{part[0]}, {job}, start: "{_at(start)}", end: "{_at(start + _RUN)}"}}'
            for run, start in enumerate(starts)
        ]
        told.append(f'  - {{id: long-{part[0]}, {job}, start: "{_at(begin)}"}}')
    return _CLUSTER.format(url=url, state=state, nodes="\n".join(lines), jobs="\n".join(told))


def _node(number: int) -> str:
    return f'  gpu-{number:04}: {{group: training, addresses: ["10.0.{number // 256}.{number % 256}"]}}'


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _at(moment: int) -> str:
    return _moment(moment).isoformat(" ")


def _fill(store: Store, cluster: Cluster, start: int, stop: int) -> int:
    """Write the windows of [start, stop); return how many points."""
    written = 0
    for measurement, frame in _windows(cluster, start, stop):
        for lines, count in batches(measurement, frame):
            store.write(lines, measurement.kept)
            written += count
    return written


def _windows(cluster: Cluster, start: int, stop: int) -> Iterator[tuple[Measurement, pl.DataFrame]]:
    """Yield what a bridge writes: nodes to training and to storage, a ring of pairs, the groups' totals, exporters."""
    names = _trained(cluster)
    starts = np.array([at for at in range(start, stop, 10) if _is_running(cluster, at)], np.int64)
    if not len(starts):
        return
    rng = np.random.default_rng(start)
    shape = len(starts), len(names)
    own = 1 + 0.01 * np.random.default_rng(1).standard_normal(len(names))
    sent = _RATE * own * (1 + 0.05 * rng.standard_normal((len(starts), 1))) * (1 + 0.01 * rng.standard_normal(shape))
    is_checkpoint = (starts % _CHECKPOINT_EVERY < _CHECKPOINT_SECONDS)[:, None]
    for peer, out, back in (
        ("training", np.where(is_checkpoint, 0.02 * sent, sent), sent),
        ("storage", np.where(is_checkpoint, 0.3 * sent, 0.001 * sent), np.full(shape, 0.01 * _RATE)),
    ):
        yield (
            schema.NODE_TRAFFIC,
            pl.DataFrame(
                {
                    WINDOW: np.repeat(starts, len(names)),
                    schema.NODE: names * len(starts),
                    schema.TX_BYTES.name: out.ravel().astype(np.int64),
                    schema.RX_BYTES.name: back.ravel().astype(np.int64),
                    schema.TX_PACKETS.name: out.ravel().astype(np.int64) // 8000,
                    schema.RX_PACKETS.name: back.ravel().astype(np.int64) // 8000,
                    schema.FLOWS.name: np.full(out.size, 16),
                }
            ).with_columns(
                pl.lit("training").alias(schema.GROUP),
                pl.lit(peer).alias(schema.PEER_GROUP),
                pl.lit("compute" if peer == "training" else "storage").alias(schema.PLANE),
                pl.lit("0").alias(schema.SHARD),
            ),
        )
        for src, dst, total in (("training", peer, out.sum(axis=1)), (peer, "training", back.sum(axis=1))):
            row = {WINDOW: starts, schema.BYTES.name: total.astype(np.int64)}
            tags = {schema.SRC_GROUP: src, schema.DST_GROUP: dst, schema.PROTO: "tcp", schema.SHARD: "0"}
            yield schema.TRAFFIC, pl.DataFrame(row).with_columns(pl.lit(v).alias(k) for k, v in tags.items())
    # Pairs are kept in minutes.
    minutes, places = np.unique(starts // 60 * 60, return_inverse=True)
    totals = np.zeros((len(minutes), len(names)))
    np.add.at(totals, places, sent)
    ring = {
        WINDOW: np.repeat(minutes, len(names)),
        schema.SRC: names * len(minutes),
        schema.DST: (names[1:] + names[:1]) * len(minutes),
        schema.BYTES.name: totals.ravel().astype(np.int64),
    }
    tags = {schema.PLANE: "compute", schema.SHARD: "0"}
    yield schema.PAIR, pl.DataFrame(ring).with_columns(pl.lit(v).alias(k) for k, v in tags.items())
    for exporter in cluster.exporters:
        row = {
            WINDOW: starts,
            schema.EXPORTER_BYTES.name: (sent.sum(axis=1) / 2).astype(np.int64),
            schema.SAMPLING.name: np.ones(len(starts), np.int64),
        }
        tags = {schema.EXPORTER: exporter.name, schema.SHARD: "0"}
        yield schema.EXPORTER_STATUS, pl.DataFrame(row).with_columns(pl.lit(v).alias(k) for k, v in tags.items())


def _is_running(cluster: Cluster, moment: int) -> bool:
    return bool(active_at(cluster.jobs, moment))


if __name__ == "__main__":
    bench()
