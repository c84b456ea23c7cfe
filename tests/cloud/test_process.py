"""`clusterflow ingest` on a cloud's flow logs: killed at any moment, and asked for what cannot be."""

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import polars as pl
import provider
import pytest
from test_totals import pairs_of_groups, stored

from app.errors import StoreError
from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.cloud.files import moment_of
from store.local_influxdb import LocalInfluxDB

YAML = """\
cluster: cloud
groups:
  training: {role: training, prefixes: [10.20.0.0/16], nested_in: inside}
  inside: {role: custom, prefixes: [10.0.0.0/8]}
allowed: [{from: "*", to: "*"}]
"""


def _config(folder: Path, more: str) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(YAML + more)
    return path


def test_killed_at_any_moment_each_byte_counts_once(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    flows = provider.sent(180).flows
    flows = flows.filter(pl.any_horizontal(pl.col("src", "dst").str.starts_with("10.")))
    logs = tmp_path / "logs"
    told = provider.ends_of(flows, interval=60)
    half = int(told["end"].median())  # type: ignore[arg-type]
    config = _config(
        tmp_path,
        f"store: {{url: '{influxdb_v1.url}', database: {fresh_database}}}\n"
        f"cloud: {{format: aws-vpc, folder: {logs}}}\n"
        f"bridge: {{state: {tmp_path / 'state'}, flush: 1s}}\n"
        "archive: {enabled: false}\n",
    )
    cluster = load_cluster(config)
    expected = pairs_of_groups(cluster, flows)
    dice = random.Random(5)
    for part in (told.filter(told["end"] < half), told.filter(told["end"] >= half)):
        for path in provider.put_aws(logs, part, fields=provider.DEFAULT, is_parquet=part["end"][0] >= half):
            os.utime(path, (time.time() - 60,) * 2)
        for _ in range(3):
            with _following(config) as process:
                # Beyond its start-up, which takes about two seconds.
                time.sleep(dice.uniform(2.0, 5.0))
                process.kill()
    with _following(config) as process:
        try:
            deadline = time.monotonic() + 60
            while _stored(cluster) != expected and time.monotonic() < deadline:
                time.sleep(0.5)
        finally:
            process.kill()
    assert stored(cluster) == expected


def _stored(cluster: Cluster) -> dict[tuple[str, str], int]:
    """On a slow machine none of the killed ones may have made the database."""
    with suppress(StoreError):
        return stored(cluster)
    return {}


def _following(config: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "clusterflow", "ingest", "-c", str(config), "--metrics-listen", "off"]
    return subprocess.Popen(command, cwd=provider.REPOSITORY, stderr=subprocess.DEVNULL)


def _ingest(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "clusterflow", "ingest", "-c", str(config), *arguments]
    return subprocess.run(command, cwd=config.parent, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.service
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "aws-vpc"), "--format aws-vpc: cluster.yaml does not say so"),
        (("--format", "aws-vpc", "--spool", "-"), "--spool -: aws-vpc logs are read from a folder"),
        (("--format", "aws-vpc", "--once", "--spool", "nowhere"), "spool nowhere: No such file or directory"),
        (("--format", "aws"), "'aws' is not one of"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    result = _ingest(_config(tmp_path, ""), *arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.service
def test_the_format_in_cluster_yaml_is_one_of_three(tmp_path: Path) -> None:
    result = _ingest(_config(tmp_path, "cloud: {format: aws}\n"))
    assert result.returncode == 2
    assert "aws-vpc" in result.stderr


def test_lateness_is_the_clouds_unless_it_is_said(tmp_path: Path) -> None:
    assert load_cluster(_config(tmp_path, "")).bridge.lateness == 10
    assert load_cluster(_config(tmp_path, "cloud: {format: google-vpc}\n")).bridge.lateness == 1200
    said = _config(tmp_path, "cloud: {format: google-vpc}\nbridge: {lateness: 5m}\n")
    assert load_cluster(said).bridge.lateness == 300


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("AWSLogs/1/vpcflowlogs/eu-central-1/2026/11/24/1_vpcflowlogs_eu-central-1_fl-1_20261124T0905Z_ab.log.gz",
         "202611240905"),
        ("compute.googleapis.com/vpc_flows/2026/11/24/09:00:00_09:59:59_S0.json", "202611240900"),
        ("resourceId=/X/y=2026/m=11/d=24/h=09/m=00/macAddress=00/PT1H.json", "202611240900"),
        ("some/2026/11/24/file.json", "20261124"),
        ("file.json", ""),
    ],
)  # fmt: skip
def test_files_go_by_the_time_in_their_paths(name: str, moment: str) -> None:
    assert moment_of(name) == moment
