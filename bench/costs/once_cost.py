"""`scripts/bench once`: what it costs to find out which packets several exporters saw.

Spool to points in memory: where cluster.yaml says nothing of it, beside the same where `authority` has all count, and
where each exporter's interfaces are described. The same number of records once more with each conversation at one
exporter only, and with each at three.
"""

import os
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path
from statistics import median

import click

from bench.costs.enrichment_cost import measured
from bench.costs.processes import line, tell_machine, timed
from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import ANY, Authority, GroupPair
from ingest.read.records import PRINTED_COLUMNS
from simulate.demo.stack import command

_VIEWS = {"apart": 1, "threefold": 3}
"""At how many exporters each conversation is."""


@click.command()
@click.option("--flows", default=2_000_000, show_default=True, help="Flow records.")
@click.option("--rate", default=200_000, show_default=True, help="Flow records a second of simulated time.")
@click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
@click.option("--runs", default=3, show_default=True, help="Measured runs of each.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
def once(flows: int, rate: int, nodes: int, runs: int, config: Path) -> None:
    """Processor time where it must be found what several exporters saw, over that where cluster.yaml says it."""
    tell_machine()
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as folder:
        described, spool = Path(folder) / "described.yaml", Path(folder) / "spool"
        wanted = ("--flows", str(flows), "--rate", str(rate), "--nodes", str(nodes))
        timed([*command("simulate", config, *wanted, "--spool", str(spool)), "--write-cluster", str(described)])
        cluster = load_cluster(described)
        bare = replace(cluster, exporters=tuple(replace(one, interfaces=()) for one in cluster.exporters))
        all_count = Authority(GroupPair(ANY, ANY), tuple(one.name for one in bare.exporters))
        configs = {"described": described, "authority": Path(folder) / "told.yaml"}
        configs["found"] = Path(folder) / "found.yaml"
        configs["authority"].write_text(dump_cluster(replace(bare, authority=(all_count,))))
        configs["found"].write_text(dump_cluster(bare))
        addresses = [str(one.address) for one in bare.exporters]
        spools = {"": spool} | {name: _seen_at(spool, Path(folder) / name, addresses, n) for name, n in _VIEWS.items()}
        ratios: dict[str, list[float]] = {}
        for _ in range(runs):
            for view, files in spools.items():
                records = flows // _VIEWS.get(view, 1) * _VIEWS.get(view, 1)
                used = {
                    part: measured(one, files, records)["cpu_seconds"]
                    for part, one in configs.items()
                    if not view or part != "described"
                }
                for part in used.keys() - {"found"}:
                    ratios.setdefault(f"times_{view or part}", []).append(used["found"] / used[part])
        times = {name: round(median(found), 2) for name, found in sorted(ratios.items())}
        line(step="once", flows=flows, runs=runs, exporters=len(addresses), **times, cores=os.cpu_count())


def _seen_at(spool: Path, folder: Path, exporters: list[str], views: int) -> Path:
    """Write as many records with each conversation at so many exporters; return their folder."""
    folder.mkdir()
    five = [PRINTED_COLUMNS.index(name) for name in ("SRC_IP", "DST_IP", "SRC_PORT", "DST_PORT", "PROTOCOL")]
    exporter, number, sequence = (PRINTED_COLUMNS.index(one) for one in ("PEER_SRC_IP", "TAG2", "EXPORT_PROTO_SEQNO"))
    read = written = 0
    for path in sorted(spool.iterdir()):
        lines = []
        for text in path.read_text().splitlines():
            values = text.split(",")
            if len(values) != len(PRINTED_COLUMNS) or values == [*PRINTED_COLUMNS]:
                lines.append(text)
                continue
            read += 1
            first = zlib.crc32(",".join(values[place] for place in five).encode())
            for view in range(views if read % views == 0 else 0):
                written += 1
                values[exporter] = exporters[(first + view) % len(exporters)]
                values[number], values[sequence] = str(10**12 + written), "0"
                lines.append(",".join(values))
        (folder / path.name).write_text("\n".join(lines) + "\n")
    return folder
