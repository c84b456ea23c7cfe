"""Lines that stored traffic suggests: `allowed`, and approved prefixes that nobody used."""

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from cluster.load import load_cluster, parse_cluster
from operations.cli import suggest
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

TEXT = """
cluster: lab
groups:
  training: {role: training, prefixes: [10.1.0.0/16]}
  storage: {role: storage, prefixes: [10.2.0.0/16]}
  inference: {role: inference, prefixes: [10.3.0.0/16]}
  partner: {role: approved_external, prefixes: [198.51.100.0/25, 198.51.100.128/25, "2001:db8:1::/48"]}
  cloud: {role: approved_external, prefixes: [203.0.113.0/24], first_contact: skip}
"""
ALLOWED = "allowed:\n  - {from: training, to: storage}\n"


@pytest.fixture
def path(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"{TEXT}store: {{url: {influxdb_v1.url!r}, database: {fresh_database}}}\n{ALLOWED}")
    cluster = load_cluster(path)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    now = int(time.time())

    def row(measurement: schema.Measurement, ago: int, fields: str, **tags: str) -> str:
        return ",".join([measurement.name, *(f"{k}={v}" for k, v in tags.items())]) + f" {fields} {now - ago}"

    def traffic(ago: int, size: int, src: str, dst: str, service: str, shard: str = "0") -> str:  # noqa: PLR0917
        tags = {"src_group": src, "dst_group": dst, "proto": "tcp", "service": service, "shard": shard}
        return row(schema.TRAFFIC, ago, f"bytes={size}i", **tags)

    def egress(group: str, dst: str, size: int) -> str:
        return row(schema.EGRESS, 90_000, f"bytes={size}i", src="gpu-1", dst_group=group, dst=dst, shard="0")

    lines = [
        traffic(90_000, 1000, "training", "storage", "checkpoint"),
        traffic(90_000, 3_000_000, "storage", "training", "checkpoint"),
        traffic(50_000, 1_000_000, "storage", "training", "other", "1"),
        traffic(90_000, 9_000_000, "training", "partner", "https"),
        traffic(90_000, 5_000, "external", "inference", "https"),
        traffic(90_000, 5_000, "training", "training", "collective"),
        row(
            schema.VIOLATION, 50_000, "port=4444i,port_max=4450i", kind="not_allowed", src_group="storage",
            dst_group="training", src="nas-1", dst="gpu-1", proto="tcp", service="other", shard="1",
        ),
        egress("partner", "198.51.100.7", 600),
        egress("partner", "2001:db8:1::7", 300),
        egress("partner", "other", 100),
    ]  # fmt: skip
    store.write("\n".join(lines).encode(), schema.MINUTE)
    return path


def test_allowed_lacks_what_talked(path: Path) -> None:
    said = CliRunner().invoke(suggest, ["allowed", "-c", str(path)]).output
    pairs = [line.partition("#")[0].strip() for line in said.splitlines()[2:]]
    assert pairs == [
        "",
        "- {from: storage, to: training}",
        "- {from: external, to: inference}",
    ]
    outside, inside, _ = said.splitlines()[2:]
    assert outside.endswith("with the outside; is it meant?")
    assert "4 MB; tcp checkpoint, tcp ports 4444 to 4450; last 20" in inside
    pasted = parse_cluster(TEXT + ALLOWED + "\n".join(said.splitlines()[2:]))
    assert pasted.is_allowed("storage", "training")
    assert pasted.is_allowed("external", "inference")
    assert not pasted.is_allowed("training", "partner")
    assert (
        "no pair of groups talked" in CliRunner().invoke(suggest, ["allowed", "-c", str(path), "--from", "1h"]).output
    )


def test_prefixes_that_nobody_used_and_how_sure_that_is(path: Path) -> None:
    assert CliRunner().invoke(suggest, ["prefixes", "-c", str(path)]).output.splitlines() == [
        "# partner: 2 of 3 prefixes used; 10% of its bytes went to addresses that were not named",
        "#   never: 198.51.100.128/25",
        "# cloud: 0 of 1 prefixes used",
        "#   never: 203.0.113.0/24",
    ]
