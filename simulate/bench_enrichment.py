"""`scripts/bench enrichment`: spool to points in memory with enrichment on, beside the same without it, run by run."""

import os
import random
import sys
import tempfile
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from statistics import median

import click

from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import Geography
from ingest.records import SPOOL_COLUMNS
from simulate.bench import line, timed
from simulate.bench_machine import tell_machine
from simulate.mmdb_file import write_places
from simulate.stack import command

_OUTSIDE_EVERY = 10
"""One record in so many goes to an address outside, drawn anew from all of them."""


@click.command()
@click.option("--flows", default=2_000_000, show_default=True, help="Flow records.")
@click.option("--rate", default=200_000, show_default=True, help="Flow records a second of simulated time.")
@click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
@click.option("--networks", default=50_000, show_default=True, help="Networks in the MMDB file.")
@click.option("--addresses", default=20_000, show_default=True, help="Distinct addresses outside.")
@click.option("--runs", default=3, show_default=True, help="Measured runs of each.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
def enrichment(  # noqa: PLR0917 - click passes everything by name
    flows: int, rate: int, nodes: int, networks: int, addresses: int, runs: int, config: Path
) -> None:
    """Flow records a second with enrichment over those without, in one run; a line a run, and the median."""
    tell_machine()
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name:
        folder = Path(name)
        plain, known, spool = folder / "cluster.yaml", folder / "enriched.yaml", folder / "spool"
        wanted = ("--flows", str(flows), "--rate", str(rate), "--nodes", str(nodes))
        timed(
            [
                *command("simulate", config, *wanted, "--spool", str(spool)),
                *("--format", "csv", "--write-cluster", str(plain)),
            ]
        )
        places = write_places(folder / "places.mmdb", networks)
        _send_outside(spool, places, addresses)
        located = Geography((("places", str(folder / "places.mmdb")),))
        known.write_text(dump_cluster(replace(load_cluster(plain), geography=located)))
        _measure(plain, known, spool, flows, runs)


def _send_outside(spool: Path, places: list[int], addresses: int) -> None:
    """Give some records a destination outside."""
    draw = random.Random(11)  # noqa: S311 - made-up data
    ends = [str(IPv4Address(first + draw.randrange(256))) for first in draw.choices(places, k=addresses)]
    column = SPOOL_COLUMNS.index("DST_IP")
    for path in sorted(spool.iterdir()):
        lines = path.read_text().splitlines()
        for number in range(1, len(lines), _OUTSIDE_EVERY):
            values = lines[number].split(",")
            # Beside records there are markers, which are shorter, and the names of the columns.
            if len(values) == len(SPOOL_COLUMNS) and values != [*SPOOL_COLUMNS]:
                values[column] = draw.choice(ends)
                lines[number] = ",".join(values)
        path.write_text("\n".join(lines) + "\n")


def _measure(plain: Path, known: Path, spool: Path, flows: int, runs: int) -> None:
    ratios, of_processor, rates = [], [], []
    for run in range(runs):
        without, enriched = (
            timed([sys.executable, "-m", "simulate.bench_memory", str(cluster), str(spool), str(flows)])
            for cluster in (plain, known)
        )
        ratios.append(without["seconds"] / enriched["seconds"])
        of_processor.append(without["cpu_seconds"] / enriched["cpu_seconds"])
        rates.append(flows / enriched["seconds"])
        line(step="enrichment_run", run=run, flows=flows, off=without, on=enriched, ratio=round(ratios[-1], 3))
    line(
        step="enrichment",
        flows=flows,
        runs=runs,
        flows_per_second=round(median(rates)),
        ratio_on_to_off=round(median(ratios), 3),
        # Other work on the machine changes this one less.
        ratio_of_processor_time=round(median(of_processor), 3),
        cores=os.cpu_count(),
    )
