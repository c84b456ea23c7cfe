"""`scripts/bench enrichment`: spool to points in memory with all that is known of addresses, beside the same without.

Reading the lists is told apart: a bridge that follows a stream reads them once, and again in a thread of its own.
Users are not among them: they are looked up by the analysis, not on the way of a flow.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from statistics import median
from typing import Any

import click

from bench.costs.bridge_rate import simulated
from bench.costs.processes import line, tell_machine
from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import ApplicationFile, ApplicationFormat, Applications, Geography, HostNaming, NamesFile, ThreatFeed
from ingest.read.records import PRINTED_COLUMNS
from simulate.mmdb_file import write_places

_OUTSIDE_EVERY = 10
"""One record in so many goes to an address outside, drawn afresh from all of them."""
_NAMED_EVERY, _LISTED_EVERY = 4, 100
"""One address outside in so many stands in the hosts file; and in the threat feed."""
_APPLICATION_EVERY = 10
"""One network in so many belongs to an application."""
_FEED_ENTRIES = 100_000

OFF, ALL = "off", "all"


@click.command()
@click.option("--flows", default=2_000_000, show_default=True, help="Flow records.")
@click.option("--rate", default=200_000, show_default=True, help="Flow records a second of simulated time.")
@click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
@click.option("--networks", default=50_000, show_default=True, help="Networks in each of the two MMDB files.")
@click.option("--addresses", default=20_000, show_default=True, help="Distinct addresses outside.")
@click.option("--runs", default=3, show_default=True, help="Measured runs of each.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
def enrichment(  # noqa: PLR0917 - click passes everything by name
    flows: int, rate: int, nodes: int, networks: int, addresses: int, runs: int, config: Path
) -> None:
    """Flow records a second with enrichment over those without, in one run: each part of it alone, and all together."""
    tell_machine()
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name:
        folder = Path(name)
        plain, spool = folder / "cluster.yaml", folder / "spool"
        simulated(config, plain, spool, flows=flows, rate=rate, nodes=nodes)
        places = write_places(folder / "places.mmdb", networks)
        more = write_places(folder / "more.mmdb", networks, seed=8)
        outside = _send_outside(spool, sorted({*places, *more}), addresses)
        parts = _lists(folder, places, outside)
        parts[ALL] = {name: one for sections in parts.values() for name, one in sections.items()}
        configs = {OFF: plain, **{part: folder / f"{part}.yaml" for part in parts}}
        for part, sections in parts.items():
            configs[part].write_text(dump_cluster(replace(load_cluster(plain), **sections)))
        _measure(configs, spool, flows, runs)


def _send_outside(spool: Path, places: list[int], addresses: int) -> list[str]:
    """Give some records a destination outside; return these."""
    draw = random.Random(11)  # noqa: S311 - made-up data
    ends = [str(IPv4Address(first + draw.randrange(256))) for first in draw.choices(places, k=addresses)]
    column = PRINTED_COLUMNS.index("DST_IP")
    for path in sorted(spool.iterdir()):
        lines = path.read_text().splitlines()
        for number in range(1, len(lines), _OUTSIDE_EVERY):
            values = lines[number].split(",")
            # Beside records there are markers, which are shorter, and the names of the columns.
            if len(values) == len(PRINTED_COLUMNS) and values != [*PRINTED_COLUMNS]:
                values[column] = draw.choice(ends)
                lines[number] = ",".join(values)
        path.write_text("\n".join(lines) + "\n")
    return ends


def _lists(folder: Path, places: list[int], outside: list[str]) -> dict[str, dict[str, Any]]:
    """Write a file of each kind; return by part what cluster.yaml says of them, by section."""
    draw = random.Random(12)  # noqa: S311 - made-up data
    hosts, ranges, feed = folder / "hosts", folder / "ranges.txt", folder / "feed.txt"
    hosts.write_text("".join(f"{end} host-{n}.example.net\n" for n, end in enumerate(outside[::_NAMED_EVERY])))
    ranges.write_text("".join(f"{IPv4Address(first)}/24\n" for first in places[::_APPLICATION_EVERY]))
    others = (f"{IPv4Address((1 << 24) + draw.randrange(200 << 24))}" for _ in range(_FEED_ENTRIES))
    feed.write_text("\n".join([*outside[::_LISTED_EVERY], *others]) + "\n")
    files = ("places", str(folder / "places.mmdb")), ("more", str(folder / "more.mmdb"))
    own = ApplicationFile("ranges", str(ranges), ApplicationFormat.PREFIXES, "cloud storage")
    return {
        "geography": {"geography": Geography(files)},
        "names": {"names": HostNaming((NamesFile("hosts", str(hosts)),))},
        "applications": {"applications": Applications(builtin=True, files=(own,))},
        "threat_feeds": {"threat_feeds": (ThreatFeed("feed", str(feed)),)},
    }


def _measure(configs: Mapping[str, Path], spool: Path, flows: int, runs: int) -> None:
    found: dict[str, list[dict[str, float]]] = {part: [] for part in configs}
    for run in range(runs):
        for part, config in configs.items():
            found[part].append(measured(config, spool, flows))
            line(step="enrichment_run", part=part, run=run, flows=flows, **found[part][-1])
    for part in configs:
        if part != OFF:
            one = {"step": "enrichment_part", "part": part} if part != ALL else {"step": "enrichment"}
            line(**one, flows=flows, runs=runs, **_beside(found[part], found[OFF], flows), cores=os.cpu_count())


def _beside(enriched: list[dict[str, float]], plain: list[dict[str, float]], flows: int) -> dict[str, float]:
    def ratio(name: str) -> float:
        return round(median(off[name] / on[name] for on, off in zip(enriched, plain, strict=True)), 3)

    read = [on["reading_cpu_seconds"] for on in enriched]
    return {
        "flows_per_second": round(flows / median(on["seconds"] for on in enriched)),
        "ratio_on_to_off": ratio("seconds"),
        # Other work on the machine changes this one less.
        "ratio_of_processor_time": ratio("cpu_seconds"),
        "reading_cpu_seconds": round(median(read) - median(off["reading_cpu_seconds"] for off in plain), 2),
        "peak_mib": max(on["peak_mib"] for on in enriched),
    }


def measured(config: Path, spool: Path, flows: int) -> dict[str, float]:
    """Run a bridge in a process of its own."""
    own = [sys.executable, "-m", "bench.costs.one_run", str(config), str(spool), str(flows)]
    done = subprocess.run(own, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(done.stderr[-500:])
    found: dict[str, float] = json.loads(done.stdout)
    return found
