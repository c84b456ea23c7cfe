"""`scripts/bench cloud`: a day of AWS VPC flow logs, read as ``clusterflow ingest --once`` does, into memory."""

import os
import re
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import click
import numpy as np
import polars as pl

from app.errors import ClusterflowError
from app.log import Log
from bench.costs.one_run import NoStore
from bench.costs.processes import line, tell_machine, timed
from cluster.load import load_cluster
from cluster.model import CloudFormat, StoreSettings
from ingest.bridge import Bridge
from ingest.cloud.files import CloudFiles, CloudReader
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.flows.normalise import Clock
from simulate.packets import vpc_logs
from store import schema

_BYTES = re.compile(f"(?:^|,){schema.BYTES.name}=(\\d+)i".encode())
_YAML = """\
cluster: bench
groups:
  training: {role: training, prefixes: [10.20.0.0/16]}
  storage: {role: storage, prefixes: [10.30.0.0/16]}
allowed: [{from: "*", to: "*"}]
cloud: {format: aws-vpc}
"""
_OBJECT_SECONDS = 300
_NODES, _SERVERS, _STRANGERS = 512, 32, 200
_TO_SERVERS, _TO_STRANGERS = 0.3, 0.2
"""Parts of the flows; the others stay among nodes."""
_BEFORE_SECONDS = 2 * 86_400


@click.command()
@click.option("--lines", default=10_000_000, show_default=True, help="Lines in all, about: both ends of each flow.")
@click.option("--hours", default=24, show_default=True, help="How long they took.")
@click.option(
    "--aggregation", default=60, show_default=True, help="Longest time of a record, seconds: AWS's 60 or 600."
)
def cloud(lines: int, hours: int, aggregation: int) -> None:
    """Read flow logs once, as ``ingest --once`` does, to points that nobody keeps; totals must be exact. One line."""
    tell_machine()
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name:
        folder = Path(name)
        written, sent = _put(folder / "logs", lines, hours, aggregation)
        (folder / "cluster.yaml").write_text(_YAML)
        # Of a process of its own, so that its memory is its own; it fails where it stores anything else.
        used = timed([sys.executable, "-m", "bench.costs.cloud_logs", str(folder), str(sent)])
        line(
            step="cloud",
            lines=written,
            hours=hours,
            aggregation=aggregation,
            bytes=sent,
            lines_per_second=round(written / used["seconds"]),
            cpu_us_a_line=round(used["cpu_seconds"] / written * 1e6, 2),
            peak_mib=used["peak_mib"],
            cores=os.cpu_count(),
        )


class _Summing(NoStore):
    """A store that keeps nothing but the newest bytes of each point of traffic."""

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__(settings)
        self.bytes: dict[bytes, int] = {}

    def write(self, lines: bytes, retention: str) -> None:
        """Take points; one that is written again replaces the one before."""
        if retention == schema.RAW and lines.startswith(f"{schema.TRAFFIC.name},".encode()):
            for text in lines.splitlines():
                series, values, moment = text.split(b" ")
                size = _BYTES.search(values)
                self.bytes[series + moment] = int(size[1]) if size else 0


def _read(folder: Path, sent: int) -> None:
    """Read the objects of a folder; ClusterflowError where their bytes are not those that were sent."""
    cluster = load_cluster(folder / "cluster.yaml")
    cloud, store = CloudFormat.AWS, _Summing(cluster.store)
    with closing(CloudFiles(folder / "logs", cloud, once=True)) as source:
        Bridge(
            cluster,
            store,
            source,
            clock=Clock.BACKFILL,
            state=folder / "bridge",
            dead_letter=DeadLetters(folder / "dead-letters.jsonl"),
            stop=threading.Event(),
            log=Log(quiet=True),
            counters=Counters(),
            cloud=CloudReader(cloud),
        ).run()
    stored = sum(store.bytes.values())
    if stored != sent:
        raise ClusterflowError(f"sent {sent:,} B, stored {stored:,} B")


def _put(folder: Path, lines: int, hours: int, aggregation: int) -> tuple[int, int]:
    """Write the objects; return their lines, and the bytes that were sent, each flow once."""
    dice = np.random.default_rng(1)
    objects = hours * 3600 // _OBJECT_SECONDS
    flows = round(lines / objects / (2 - _TO_STRANGERS))
    begin = (int(time.time()) - _BEFORE_SECONDS) // 86_400 * 86_400
    written = sent = 0
    for number in range(objects):
        told = _told(dice, flows, (begin + number * _OBJECT_SECONDS) * 1000, aggregation)
        path = vpc_logs.object_path(folder, begin + (number + 1) * _OBJECT_SECONDS)
        vpc_logs.put_text(path, vpc_logs.lines(told))
        written += told.height
        sent += int(told.filter("is_sender")["bytes"].sum())
    return written, sent


def _told(dice: np.random.Generator, flows: int, begin: int, aggregation: int) -> pl.DataFrame:
    """Return what interfaces wrote down of so many flows from a moment on (epoch ms)."""
    src, where = dice.integers(_NODES, size=flows), dice.random(flows)
    node, server, stranger = (dice.integers(most, size=flows) for most in (_NODES, _SERVERS, _STRANGERS))
    to_server, outside = where < _TO_SERVERS, where > 1 - _TO_STRANGERS
    names = {
        "node": pl.Series([f"10.20.{n // 250}.{n % 250 + 1}" for n in range(_NODES)]),
        "server": pl.Series([f"10.30.0.{n + 1}" for n in range(_SERVERS)]),
        "stranger": pl.Series([f"203.0.113.{n + 1}" for n in range(_STRANGERS)]),
    }
    start = begin + dice.integers(_OBJECT_SECONDS * 1000, size=flows)
    packets = dice.integers(1, 100_000, size=flows)
    sent = pl.DataFrame(
        {
            "src": names["node"].gather(src),
            "node": names["node"].gather(node),
            "server": names["server"].gather(server),
            "stranger": names["stranger"].gather(stranger),
            "to_server": to_server,
            "outside": outside,
            "src_port": dice.integers(32_768, 61_000, size=flows),
            "dst_port": np.where(to_server, 2049, np.where(outside, 443, 29_500)),
            "protocol": np.full(flows, 6),
            "tcp_flags": np.full(flows, 19),
            "packets": packets,
            "bytes": packets * 1460,
            "start": start,
            "end": start + dice.integers(aggregation * 1000, size=flows),
        }
    ).with_columns(
        pl.when("to_server")
        .then("server")
        .otherwise(pl.when("outside").then("stranger").otherwise("node"))
        .alias("dst")
    )
    ends = [
        sent.with_columns(pl.lit(value=True).alias("is_sender"), pl.col("src").alias("interface")),
        sent.filter(~pl.col("outside")).with_columns(
            pl.lit(value=False).alias("is_sender"), pl.col("dst").alias("interface")
        ),
    ]
    told = pl.concat(ends).with_columns("eni-" + pl.col("interface").hash().cast(pl.String).str.slice(0, 17))
    return told.sample(fraction=1.0, shuffle=True, seed=7)


if __name__ == "__main__":
    _read(Path(sys.argv[1]), int(sys.argv[2]))
