"""`scripts/bench archive`: a day of records in the flow archive, how long questions take, and what it costs the bridge.

The writer is the bridge's, with its checkpoints and the process that merges. Half of the rows are of a second exporter
that saw the same packets: cluster.yaml says which counts, or with `--untold` the archive has to tell. Each question is
asked in a process of its own: cold with the files out of the page cache, then warm.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import polars as pl

from app.errors import ClusterflowError
from app.log import Log
from archive import schema
from archive.manifest import HOUR
from archive.writer import Archive
from bench.costs.bridge_rate import simulated
from bench.costs.processes import line, tell_machine, timed
from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import ArchiveSettings
from simulate.demo.stack import command
from store.local_influxdb import LocalInfluxDB

_BEGIN = 1_790_000_000 // HOUR * HOUR
_HOURS = 24
_BATCH = 400_000
_OUTSIDE, _TO_OUTSIDE = 20_000, 0.1
"""Addresses outside, and the share of conversations that go there."""
_LEAVES = 32
_WORSE = 1 << 20
_PORTS = np.array([443, 2049, 6789, 8000, 29_500, 4420])
_FLAGS = np.array([24, 26, 27])


@dataclass(frozen=True, slots=True)
class _Question:
    filter: dict[str, list[str]]
    by: str = "src_node,dst_node,dst_port,protocol"
    start: int = 0
    stop: int = _HOURS * HOUR
    is_whole: bool = True


_QUESTIONS = {
    "one address, 24 h": _Question({"address": ["10.1.1.7"]}),
    "one address as the source, 24 h": _Question({"src": ["10.1.1.7"]}),
    "one address outside, 24 h": _Question({"address": ["203.0.40.40"]}),
    "one prefix, 24 h": _Question({"prefix": ["203.0.40.0/28"]}),
    "one address, 13:10 to 13:30": _Question(
        {"address": ["10.1.1.7"]}, start=13 * HOUR + 600, stop=13 * HOUR + 1800, is_whole=False
    ),
    "who to whom by group, 24 h": _Question({}, by="src_group,dst_group"),
}

_ASKED = """
import json, sys, time
from pathlib import Path
from archive.query import Filter, ask
folder, start, stop, what, by = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
seconds, cpu = [], []
for _ in range(3):
    began, used = time.perf_counter(), time.process_time()
    answer = ask(folder, Filter(start, stop, **json.loads(what)), by.split(","), most=20)
    seconds.append(round(time.perf_counter() - began, 3))
    cpu.append(round(time.process_time() - used, 3))
found = {"bytes": answer.bytes, "all_bytes": answer.all_bytes, "flows": answer.flows}
print(json.dumps({"cold_seconds": seconds[0], "warm_seconds": min(seconds[1:]), "warm_cpu_seconds": min(cpu[1:]),
    **found, "peak_mib": int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) >> 10}))
"""


class _Day:
    """Makes rows: conversations inside and to the outside, each seen by a leaf and by a spine."""

    def __init__(self, nodes: int, *, untold: bool) -> None:
        self._untold = untold
        self._rng = np.random.default_rng(1)
        self._nodes = nodes
        self._addresses = np.array([f"10.1.{n // 250}.{n % 250 + 1}" for n in range(nodes)])
        self._names = np.array([f"gpu-{n:04}" for n in range(nodes)])
        self._outside = np.array([f"203.0.{n // 256}.{n % 256}" for n in range(_OUTSIDE)])
        self._leaves = np.array([f"leaf-{n:02}" for n in range(_LEAVES)])
        self._interfaces = np.array([f"Ethernet{n}" for n in range(64)])

    def rows(self, count: int, start: int, stop: int) -> tuple[pl.DataFrame, int]:
        """Return rows that ended in [start, stop), and the bytes of those that count."""
        rng, nodes, pairs = self._rng, self._nodes, count // 2
        src = rng.integers(0, nodes, pairs)
        dst = (src + rng.integers(1, nodes, pairs)) % nodes
        leaves = rng.random(pairs) < _TO_OUTSIDE
        far = self._outside[(_OUTSIDE * rng.random(pairs) ** 3).astype(np.int64)]
        size = (rng.pareto(1.2, pairs) * 2000).astype(np.int64) + 64
        end = rng.integers(start, stop, pairs)
        groups = [np.where(side < nodes // 8, "storage", "training") for side in (src, dst)]
        best = pl.DataFrame(
            {
                schema.START: end - rng.integers(0, 60, pairs),
                schema.END: end,
                schema.EXPORTER: self._leaves[src % _LEAVES],
                schema.IN_INTERFACE: self._interfaces[src // _LEAVES % 64],
                schema.OUT_INTERFACE: self._interfaces[dst // _LEAVES % 64],
                schema.SRC: self._addresses[src],
                schema.DST: np.where(leaves, far, self._addresses[dst]),
                schema.SRC_PORT: rng.integers(32_768, 61_000, pairs),
                schema.DST_PORT: rng.choice(_PORTS, pairs),
                schema.SRC_NODE: self._names[src],
                schema.DST_NODE: np.where(leaves, far, self._names[dst]),
                schema.SRC_GROUP: groups[0],
                schema.DST_GROUP: np.where(leaves, "external", groups[1]),
                schema.PROTOCOL: "tcp",
                schema.TCP_FLAGS: rng.choice(_FLAGS, pairs),
                schema.SERVICE: "other",
                schema.BYTES: size,
                schema.PACKETS: size // 900 + 1,
                schema.FLOWS: 1,
                schema.RATE: 1,
                schema.COUNTED: True,
                schema.RANK: 1 + src % _LEAVES if self._untold else np.zeros(pairs, np.int64),
            },
            schema_overrides=schema.SCHEMA,
        )
        worse = best.with_columns(
            pl.lit("spine-01").alias(schema.EXPORTER),
            pl.lit(_WORSE if self._untold else 0, pl.Int64).alias(schema.RANK),
            pl.lit(self._untold).alias(schema.COUNTED),
        )
        return pl.concat([best, worse]).select(list(schema.SCHEMA)), int(size.sum())


def _written(folder: Path, records: int, nodes: int, *, untold: bool) -> int:
    """Write a day as a bridge does, until nothing is left to merge; return the bytes of what counts."""
    archive = Archive(folder / "0", ArchiveSettings(size=1 << 40), Log(quiet=True))
    archive.load(None)
    day, truth = _Day(nodes, untold=untold), 0
    batches = max(records // _HOURS // _BATCH, 1)
    for batch in range(_HOURS * batches):
        start = _BEGIN + batch * HOUR // batches
        rows, counted = day.rows(records // _HOURS // batches, start, start + HOUR // batches)
        truth += counted
        archive.take(rows)
        archive.seal(_BEGIN)
        archive.commit()
    while archive.is_merging:
        archive.seal(_BEGIN)
        archive.commit()
        time.sleep(0.05)
    archive.close()
    return truth


@click.command("archive-cost")
@click.option("--flows", default=2_000_000, show_default=True, help="Flow records.")
@click.option("--runs", default=3, show_default=True, help="Measured runs of each.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
def archive_cost(flows: int, runs: int, config: Path) -> None:
    """Files to points in InfluxDB: the bridge with the flow archive beside the same without, in one run."""
    tell_machine()
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name:
        folder, made = Path(name), Path(name) / "made.yaml"
        spool = folder / "spool"
        simulated(config, made, spool, "--truth", str(folder / "truth.json"), flows=flows, rate=200_000, nodes=1024)
        used: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for run in range(runs):
            for is_kept, results in used.items():
                state = folder / f"state-{run}-{is_kept}"
                cluster = load_cluster(made)
                cluster = replace(cluster, archive=ArchiveSettings(enabled=is_kept, folder=str(state / "archive")))
                (folder / "cluster.yaml").write_text(dump_cluster(cluster))
                with LocalInfluxDB(folder / f"influxdb-{state.name}") as server:
                    read = ("--spool", str(spool), "--once", "--state", str(state))
                    results.append(
                        timed([*command("ingest", folder / "cluster.yaml"), *read, "--influx-url", server.url])
                    )
        line(step="archive_cost", through="bridge", flows=flows, **cost(used))


def cost(used: dict[bool, list[dict[str, Any]]]) -> dict[str, float]:
    """Return what is left of the speed with the archive, by the medians of runs with it (True) and without."""
    cpu, seconds = ({on: median(one[name] for one in runs) for on, runs in used.items()}
                    for name in ("cpu_seconds", "seconds"))  # fmt: skip
    return {
        "ratio_of_processor_time": round(cpu[False] / cpu[True], 2),
        "ratio_on_to_off": round(seconds[False] / seconds[True], 2),
        "peak_mib": max(one["peak_mib"] for one in used[True]),
    }


@click.command()
@click.option("--records", default=100_000_000, show_default=True, help="Rows of the day.")
@click.option("--nodes", default=1024, show_default=True, help="Nodes that send.")
@click.option("--untold", is_flag=True, help="cluster.yaml does not say which of two exporters counts.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder to write to, or to ask again.")
def archive(records: int, nodes: int, keep: Path | None, *, untold: bool) -> None:
    """Write a day to the flow archive, and ask it."""
    tell_machine()
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name:
        folder = keep or Path(name)
        told = folder / "truth.json"
        if not told.exists():
            began, cpu = time.perf_counter(), sum(os.times()[:4])
            truth = _written(folder, records, nodes, untold=untold)
            files = list(folder.rglob("*.parquet"))
            size = sum(path.stat().st_size for path in files)
            written = {
                "records": records, "untold": untold, "nodes": nodes, "bytes": truth, "files": len(files),
                "bytes_a_record": round(size / records, 2), "seconds": round(time.perf_counter() - began, 1),
                "cpu_us_a_record": round((sum(os.times()[:4]) - cpu) / records * 1e6, 2),
            }  # fmt: skip
            told.write_text(json.dumps(written))
        written = json.loads(told.read_text())
        line(step="archive", **written)
        for question, what in _QUESTIONS.items():
            line(
                step="archive_question",
                records=written["records"],
                untold=written["untold"],
                question=question,
                **_asked(folder, written["bytes"], what),
            )


def _asked(folder: Path, truth: int, what: _Question) -> dict[str, object]:
    for path in folder.rglob("*.parquet"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start, stop = (str(_BEGIN + moment) for moment in (what.start, what.stop))
    command = [sys.executable, "-c", _ASKED, str(folder), start, stop, json.dumps(what.filter), what.by]
    found: dict[str, object] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    if what.is_whole and found["all_bytes"] != truth:
        raise ClusterflowError(f"all traffic: {found['all_bytes']:,} bytes, expected {truth:,}")
    return found
