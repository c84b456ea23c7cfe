"""`scripts/bench memory`: spool to points in memory, beside a bare polars read of the same files in the same run.

The bridge runs as ``clusterflow ingest --once`` runs it, checkpoint and line protocol included, but its store keeps
nothing: what InfluxDB costs is in the bench without a subcommand.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import click
import polars as pl

from app.log import Log
from bench.bridge_rate import BARE_READ, line, timed
from bench.machine import tell_machine
from cluster.load import load_cluster
from cluster.model import Retention
from ingest.bridge import Bridge
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.flows.normalise import Clock
from ingest.read.spool import Spool
from simulate.demo.stack import command
from store.influx import Series, Store


class NoStore(Store):
    """A store that takes everything and has nothing; `lines` counts the bytes of line protocol."""

    lines = 0

    def ensure(self, retentions: tuple[Retention, ...]) -> None:
        """Make nothing."""

    def write(self, lines: bytes, retention: str) -> None:  # noqa: ARG002 - a store's
        """Count and forget."""
        self.lines += len(lines)

    def execute(self, influxql: str) -> None:
        """Do nothing."""

    def query(self, influxql: str) -> list[Series]:  # noqa: ARG002 - a store's
        """Know nothing: the database is new."""
        return []

    def frame(self, influxql: str) -> pl.DataFrame:  # noqa: ARG002 - a store's
        """Know nothing: there is no rollup."""
        return pl.DataFrame()


@contextmanager
def in_memory(config: Path, spool: Path) -> Iterator[Bridge]:
    """Make a bridge from a spool that is read once to points that nobody keeps; its lists are read by then."""
    cluster = load_cluster(config)
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name, Spool(spool, once=True) as source:
        yield Bridge(
            cluster,
            NoStore(cluster.store),
            source,
            clock=Clock.BACKFILL,
            state=Path(name) / "bridge",
            dead_letter=DeadLetters(Path(name) / "dead-letters.jsonl"),
            stop=threading.Event(),
            log=Log(quiet=True),
            counters=Counters(),
        )


@click.command()
@click.option("--flows", default=10_000_000, show_default=True, help="Flow records.")
@click.option("--rate", default=200_000, show_default=True, help="Flow records a second of simulated time.")
@click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
@click.option("--runs", default=3, show_default=True, help="Measured runs of each.")
@click.option("--format", "formats", type=click.Choice(["csv", "json"]), multiple=True, help="Default: both.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
def memory(  # noqa: PLR0917 - click passes everything by name
    flows: int, rate: int, nodes: int, runs: int, formats: tuple[str, ...], config: Path
) -> None:
    """Spool -> points in memory, beside a bare polars read. A line a run, and the medians of each format."""
    tell_machine()
    for file_format in formats or ("csv", "json"):
        with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name:
            cluster, spool = Path(name) / "cluster.yaml", Path(name) / "spool"
            wanted = ("--flows", str(flows), "--rate", str(rate), "--nodes", str(nodes))
            timed(
                [
                    *command("simulate", config, *wanted, "--spool", str(spool)),
                    *("--format", file_format, "--write-cluster", str(cluster)),
                ]
            )
            _measure(cluster, spool, flows, runs, file_format)


def _measure(cluster: Path, spool: Path, flows: int, runs: int, file_format: str) -> None:
    files = [str(path) for path in sorted(spool.iterdir()) if path.is_file()]
    size = sum(Path(path).stat().st_size for path in files)
    reads, bridges = [], []
    for run in range(runs):
        reads.append(timed([sys.executable, "-c", BARE_READ, *files]))
        line(step="polars_read", format=file_format, run=run, flows=flows, bytes=size, **reads[-1])
        own = [sys.executable, "-m", "bench.memory", str(cluster), str(spool), str(flows)]
        bridges.append(timed(own))
        line(step="memory_run", format=file_format, run=run, flows=flows, bytes=size, **bridges[-1])
    ratios = [one["seconds"] / read["seconds"] for one, read in zip(bridges, reads, strict=True)]
    seconds = median(one["seconds"] for one in bridges)
    line(
        step="memory",
        format=file_format,
        flows=flows,
        runs=runs,
        bytes_a_record=round(size / flows),
        flows_per_second=round(flows / seconds),
        ratio_to_polars_read=round(median(ratios), 2),
        cpu_us_a_flow=round(median(one["cpu_seconds"] for one in bridges) / flows * 1e6, 3),
        peak_mib=max(one["peak_mib"] for one in bridges),
        cores=os.cpu_count(),
    )


if __name__ == "__main__":
    wanted = int(sys.argv[3])
    with in_memory(Path(sys.argv[1]), Path(sys.argv[2])) as own:
        found = own.run().records
    if found != wanted:
        raise SystemExit(f"{found} records read, expected {wanted}")
