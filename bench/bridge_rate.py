"""Measure the bridge: spool to points in InfluxDB, beside a bare polars read of the same bytes in the same run.

Every figure is of a process of its own, so that its memory is its own. Runs alternate, so that a machine whose speed
drifts slows both alike: quote the ratio, not the seconds. Run by scripts/bench.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import click

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
        made = timed(
            [
                *command("simulate", config, "--flows", str(flows), "--rate", str(rate), "--nodes", str(nodes)),
                *("--spool", str(spool), "--format", file_format, "--write-cluster", str(cluster)),
                *("--truth", str(folder / "truth.json")),
            ]
        )
        line(step="simulate", flows=flows, **made)
        files = [str(path) for path in sorted(spool.iterdir())]
        size = sum(Path(path).stat().st_size for path in files)
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


def timed(arguments: list[str]) -> dict[str, Any]:
    """Run a command; return wall and CPU seconds and the peak memory of its process."""
    began = time.monotonic()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise click.ClickException(f"{' '.join(arguments[:4])}: {said.decode(errors='replace')[-500:]}")
    return _usage(time.monotonic() - began, usage)


def _usage(seconds: float, usage: resource.struct_rusage) -> dict[str, Any]:
    return {
        "seconds": round(seconds, 3),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        "peak_mib": round(usage.ru_maxrss / 1024),
    }


def line(**values: object) -> None:
    """Print one measurement."""
    click.echo(json.dumps(values))


if __name__ == "__main__":
    bench()
