"""`scripts/bench once`: what it costs to find out which packets several exporters saw.

Spool to points in memory: where cluster.yaml says nothing of it, beside the same where `authority` has all count, and
where each exporter's interfaces are described.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

import click

from bench.enrichment_cost import measured
from bench.processes import line, tell_machine, timed
from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import ANY, Authority, GroupPair
from simulate.demo.stack import command


@click.command()
@click.option("--flows", default=2_000_000, show_default=True, help="Flow records.")
@click.option("--rate", default=200_000, show_default=True, help="Flow records a second of simulated time.")
@click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
@click.option("--runs", default=3, show_default=True, help="Measured runs of each.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
def once(flows: int, rate: int, nodes: int, runs: int, config: Path) -> None:
    """Processor time where it must be found what several exporters saw, over that where cluster.yaml says it."""
    tell_machine()
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name:
        described, spool = Path(name) / "described.yaml", Path(name) / "spool"
        wanted = ("--flows", str(flows), "--rate", str(rate), "--nodes", str(nodes))
        timed([*command("simulate", config, *wanted, "--spool", str(spool)), "--write-cluster", str(described)])
        cluster = load_cluster(described)
        bare = replace(cluster, exporters=tuple(replace(one, interfaces=()) for one in cluster.exporters))
        all_count = Authority(GroupPair(ANY, ANY), tuple(one.name for one in bare.exporters))
        configs = {"described": described, "authority": Path(name) / "told.yaml", "found": Path(name) / "found.yaml"}
        configs["authority"].write_text(dump_cluster(replace(bare, authority=(all_count,))))
        configs["found"].write_text(dump_cluster(bare))
        used: dict[str, list[float]] = {part: [] for part in configs}
        for _ in range(runs):
            for part, one in configs.items():
                used[part].append(measured(one, spool, flows)["cpu_seconds"])
        ratios = {
            f"times_{part}": round(median(on / off for on, off in zip(used["found"], used[part], strict=True)), 2)
            for part in ("described", "authority")
        }
        line(step="once", flows=flows, runs=runs, exporters=len(bare.exporters), **ratios, cores=os.cpu_count())
