"""What the bridge found about exporters that see the same traffic, from a real InfluxDB to lines for cluster.yaml."""

import time
from io import StringIO
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from cluster.load import load_cluster, parse_cluster
from operations.cli import suggest
from operations.status.counting import Counting, stored_counting, suggestion
from operations.status.status import status_of
from operations.status.status_view import show
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

TEXT = """
cluster: lab
groups:
  training: {role: training, prefixes: [10.1.0.0/16]}
  storage: {role: storage, prefixes: [10.2.0.0/16]}
exporters:
  leaf-1: {address: 10.1.0.250, protocol: sflow}
  border-1: {address: 10.1.0.251}
  border-2: {address: 10.1.0.252}
"""
CLUSTER = parse_cluster(TEXT, "cluster.yaml")


def seen(  # noqa: PLR0917 - a table of rows
    exporter: str, by: str, reason: str, size: int, src: str = "training", dst: str = "storage"
) -> Counting:
    return Counting(src, dst, exporter, by, reason, size)


FOUND = [
    seen("border-1", "border-1", "itself", 16_384_000),
    seen("border-2", "border-1", "listed_first", 16_384_000),
    seen("leaf-1", "border-1", "unsampled", 16_100_000),
    # What a cache cut off, a thousandth of a thousandth, is no traffic of its own.
    seen("leaf-1", "leaf-1", "itself", 1_000),
    # The leaf has half of the other direction for itself.
    seen("border-1", "border-1", "itself", 500, "storage", "training"),
    seen("leaf-1", "border-1", "unsampled", 500, "storage", "training"),
    seen("leaf-1", "leaf-1", "itself", 500, "storage", "training"),
    # A little, but past the better one: authority would hide more of it.
    seen("border-1", "border-1", "itself", 2_000_000, "storage", "storage"),
    seen("border-2", "border-1", "listed_first", 2_000_000, "storage", "storage"),
    seen("border-2", "border-2", "saw_more", 900, "storage", "storage"),
]
LINES = [
    "# storage to storage: border-2 also sees what no other does: leave it so",
    "# storage to training: leaf-1 also sees what no other does: leave it so",
    "authority:",
    "  # training to storage: border-1 counts what border-2 sees too: as good, and first in cluster.yaml",
    "  # training to storage: border-1 counts what leaf-1 sees too: it does not sample",
    "  - {from: training, to: storage, exporters: [border-1]}",
]


def test_the_lines_say_what_was_found_and_load() -> None:
    lines = suggestion(CLUSTER, FOUND)
    assert lines == LINES
    loaded = parse_cluster(TEXT + "\n".join(lines), "cluster.yaml")
    assert [(one.pair.src, one.pair.dst, one.exporters) for one in loaded.authority] == [
        ("training", "storage", ("border-1",))
    ]


def test_they_come_from_what_is_stored(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"{TEXT}store: {{url: {influxdb_v1.url!r}, database: {fresh_database}}}\n", encoding="utf-8")
    cluster = load_cluster(path)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    now = int(time.time())
    lines = [
        f"{schema.COUNTING.name},src_group={one.src_group},dst_group={one.dst_group},exporter={one.exporter},"
        f"counted_by={one.counted_by},reason={one.reason},shard={shard} bytes={one.bytes // 2}i {now - 60}"
        for one in FOUND
        for shard in "01"
    ]
    store.write("\n".join(lines).encode(), schema.RAW)
    assert sorted(map(str, stored_counting(store, now - 3600, now))) == sorted(map(str, FOUND))
    assert stored_counting(store, now - 30, now) == ()
    said = CliRunner().invoke(suggest, ["-c", str(path)])
    assert said.output.splitlines() == LINES
    shown = StringIO()
    show(status_of(cluster, store, now), Console(file=shown, width=200), str)
    line = "counted once: 16.1 MB from training to storage, seen by leaf-1 too: border-1 counts, it does not sample"
    assert line in shown.getvalue()
    assert "seen by border-2 too: border-2 counts, the better exporter has not half of it" in shown.getvalue()
