"""Measure the bridge: spool to points in InfluxDB, or in memory, beside a bare polars read in one run.

Every figure is of a process of its own, so that its memory is its own. Runs alternate, so that a machine whose speed
drifts slows both alike: quote the ratio, not the seconds. In memory the bridge runs as ``clusterflow ingest --once``
runs it, checkpoint and line protocol included, but its store keeps nothing.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import click

from bench.costs.processes import line, tell_machine, timed
from simulate.demo.stack import command
from store.local_influxdb import LocalInfluxDB

BARE_READ = """
import sys, polars as pl
rows = 0
for path in sys.argv[1:]:
    rows += pl.read_csv(path, comment_prefix="--").height if path.endswith(".csv") else pl.read_ndjson(path).height
print(rows)
"""
"""All columns, types inferred: what anybody would write first. One file at a time, as the bridge reads."""


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
            simulated(config, cluster, spool, flows=flows, rate=rate, nodes=nodes, file_format=file_format)
            _measure(cluster, spool, flows, runs, file_format)


def _measure(cluster: Path, spool: Path, flows: int, runs: int, file_format: str) -> None:
    files, size = files_of(spool)
    reads, bridges = [], []
    for run in range(runs):
        reads.append(timed([sys.executable, "-c", BARE_READ, *files]))
        line(step="polars_read", format=file_format, run=run, flows=flows, bytes=size, **reads[-1])
        own = [sys.executable, "-m", "bench.costs.one_run", str(cluster), str(spool), str(flows)]
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


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--flows", default=10_000_000, show_default=True, help="Flow records.")
@click.option("--rate", default=200_000, show_default=True, help="Flow records a second of simulated time.")
@click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
@click.option("--runs", default=3, show_default=True, help="Measured runs of each.")
@click.option("--format", "file_format", type=click.Choice(["csv", "json"]), default="csv", show_default=True)
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
def bench(  # noqa: PLR0917 - click passes everything by name
    flows: int, rate: int, nodes: int, runs: int, file_format: str, config: Path
) -> None:
    """Print one JSON line a measurement, and last the medians and the ratio."""
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name:
        folder = Path(name)
        cluster, spool = folder / "cluster.yaml", folder / "spool"
        made = simulated(config, cluster, spool, flows=flows, rate=rate, nodes=nodes, file_format=file_format)
        line(step="simulate", flows=flows, **made)
        files, size = files_of(spool)
        reads, bridges = [], []
        for run in range(runs):
            read = timed([sys.executable, "-c", BARE_READ, *files])
            line(step="polars_read", run=run, flows=flows, bytes=size, **read)
            reads.append(read)
            with LocalInfluxDB(folder / "influxdb") as server:
                whole = timed(
                    [*command("ingest", cluster, "--spool", str(spool), "--once", "--influx-url", server.url)]
                )
            shutil.rmtree(folder / "influxdb")
            line(step="bridge", run=run, flows=flows, bytes=size, flows_per_second=flows / whole["seconds"], **whole)
            bridges.append(whole)
        seconds = median(one["seconds"] for one in bridges)
        line(
            step="result",
            format=file_format,
            flows=flows,
            flows_per_second=round(flows / seconds),
            ratio_to_polars_read=round(
                median(b["seconds"] / r["seconds"] for b, r in zip(bridges, reads, strict=True)), 2
            ),
            bridge_peak_mib=max(one["peak_mib"] for one in bridges),
            cores=os.cpu_count(),
        )


def simulated(
    config: Path, cluster: Path, spool: Path, *further: str, flows: int, rate: int, nodes: int, file_format: str = "csv"
) -> dict[str, Any]:
    """Write a spool of so many flow records, and the cluster that sent them; return what that took."""
    wanted = ("--flows", str(flows), "--rate", str(rate), "--nodes", str(nodes), "--format", file_format, *further)
    return timed(command("simulate", config, *wanted, "--spool", str(spool), "--write-cluster", str(cluster)))


def files_of(spool: Path) -> tuple[list[str], int]:
    """Return the files of a spool, and their bytes."""
    found = [path for path in sorted(spool.iterdir()) if path.is_file()]
    return [str(path) for path in found], sum(path.stat().st_size for path in found)


if __name__ == "__main__":
    bench()
