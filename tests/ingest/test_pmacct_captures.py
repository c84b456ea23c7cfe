"""Packets of real exporters through real daemons: the totals that other decoders published.

The captures are no part of the repository. They are looked for in CLUSTERFLOW_CAPTURES, or in ../shared/captures.
"""

import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cluster.model import Cluster, CollectorSettings
from ingest.collect.supervise import Collector
from ingest.collect.template_file import TemplateFile
from ingest.read.readers import read_chunk
from ingest.read.records import RECORD_SCHEMA
from ingest.read.spool import Spool

REPOSITORY = Path(__file__).resolve().parents[2]
CAPTURES = Path(os.environ.get("CLUSTERFLOW_CAPTURES") or REPOSITORY.parent / "shared" / "captures")

HAS_CAPTURES = (CAPTURES / "goldens.json").exists()

pytestmark = [
    pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed"),
    pytest.mark.skipif(not HAS_CAPTURES, reason="no captures: set CLUSTERFLOW_CAPTURES"),
]

# nfacctd 1.7.7 cannot read an options template of this capture, and loses the rest of that datagram.
KNOWN_LOSS = {"telegraf:ipfix_example": (27, 110_656)}

# Its template has IE 3, deltaFlowCount.
COUNTS_FLOWS = "telegraf:issue_14370"


def cases() -> dict[str, dict[str, Any]]:
    path = CAPTURES / "goldens.json"
    found: dict[str, dict[str, Any]] = json.loads(path.read_text())["cases"] if path.exists() else {}
    return found


def _port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def replay(port: int, source: str, files: list[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((source, 0))
        for name in files:
            sender.sendto((CAPTURES / name).read_bytes(), ("127.0.0.1", port))
            time.sleep(0.005)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


@pytest.fixture(scope="module")
def records(folder: Path) -> pl.DataFrame:
    """Records of all cases. A NetFlow case's exporter is 127.0.1.N, N being its place among the cases."""
    cluster = Cluster("captures", (), collector=CollectorSettings("127.0.0.1", _port(), _port(), refresh=1))
    with Collector(cluster, folder / "run", spool=folder / "spool"):
        for number, case in enumerate(cases().values(), 1):
            is_sflow = case["protocol"] == "sflow"
            port = cluster.collector.sflow_port if is_sflow else cluster.collector.netflow_port
            replay(port, f"127.0.1.{number}", case["files"])
    frames = [pl.DataFrame(schema=RECORD_SCHEMA)]
    with Spool(folder / "spool", once=True) as spool:
        while (chunk := spool.next_chunk(1 << 24)) is not None:
            parsed = read_chunk(chunk.raw, chunk.fmt)
            assert parsed.dead.rows() == []
            frames.append(parsed.frame)
    return pl.concat(frames)


@pytest.mark.parametrize("name", [name for name, case in cases().items() if case["protocol"] != "sflow"])
def test_totals_of_netflow_and_ipfix(name: str, records: pl.DataFrame) -> None:
    number = list(cases()).index(name) + 1
    case = cases()[name]
    frame = records.filter(pl.col("exporter") == f"127.0.1.{number}")
    if name in KNOWN_LOSS:
        assert (frame["flows"].sum(), frame["bytes"].sum()) == KNOWN_LOSS[name]
        return
    assert frame["flows"].sum() == case["flows"]
    assert frame["bytes"].sum() == case["bytes"]
    assert frame["packets"].sum() == case["packets"]


def test_the_file_of_templates_tells_who_counts_flows(folder: Path, records: pl.DataFrame) -> None:
    """One of the captures has IE 3 in its templates."""
    templates = TemplateFile(folder / "spool")
    with_templates = records.filter(pl.col("version").is_in([9, 10]))["exporter"].unique()
    counting = {exporter for exporter in with_templates if not templates.lacks_flow_count(exporter)}
    assert counting == {f"127.0.1.{list(cases()).index(COUNTS_FLOWS) + 1}"}
    assert len(with_templates) > 5


def test_totals_of_sflow(records: pl.DataFrame) -> None:
    """All cases at once: sFlow names the agent, not the sender, so they cannot be told apart."""
    sflow = [case for case in cases().values() if case["protocol"] == "sflow"]
    frame = records.filter(pl.col("exporter").str.starts_with("127.0.1.").not_())
    assert frame["bytes"].sum() == sum(case["bytes"] for case in sflow)
    assert frame["packets"].sum() == sum(case["packets"] for case in sflow)
    assert frame["start"].null_count() == frame.height
