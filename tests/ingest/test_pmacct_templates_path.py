"""nfacctd's file of templates: whether there is one, and a path at which 1.7.7 does not die of it."""

import shutil
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from cluster.load import load_cluster
from cluster.model import Cluster, Exporter, ExportProtocol
from ingest.collect.pmacct import collector_files
from ingest.collect.supervise import Collector
from tests.ingest.test_pmacct_daemons import a_cluster

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = load_cluster(REPOSITORY / "cluster.yaml")


def nfacctd_config(cluster: Cluster) -> str:
    return collector_files(cluster, Path("/etc/pm"))["nfacctd.conf"]


@pytest.mark.parametrize("length", range(1, 40))
def test_the_scratch_copys_name_never_fills_its_block(length: int) -> None:
    """1.7.7 writes one byte beyond it."""
    spool = f"/{'s' * length}"
    cluster = replace(CLUSTER, collector=replace(CLUSTER.collector, spool=spool))
    (line,) = [line for line in nfacctd_config(cluster).splitlines() if line.startswith("nfacctd_templates_file")]
    path = line.partition(": ")[2]
    assert Path(path) == Path(spool, ".nfacctd.templates")
    # glibc hands out blocks of 24, 40, 56, ... usable bytes.
    assert (len(path) + len(".copy")) % 16 != 8


def exporters(count: int, protocol: ExportProtocol = ExportProtocol.NETFLOW) -> tuple[Exporter, ...]:
    return tuple(Exporter(f"{protocol}-{i}", ip_address("127.1.0.1") + i, protocol) for i in range(count))


@pytest.mark.parametrize(
    ("count", "asked", "kept"),
    [(0, None, True), (100, None, True), (101, None, False), (101, True, True), (1, False, False)],
)
@pytest.mark.parametrize("is_fast", [False, True])
def test_templates_of_many_exporters_are_kept_only_if_asked_for_or_with_our_library(
    count: int,
    asked: bool | None,  # noqa: FBT001 - a table's columns
    kept: bool,  # noqa: FBT001
    is_fast: bool,  # noqa: FBT001
) -> None:
    """By itself nfacctd writes the whole file at each template that comes, in the process that reads its socket."""
    cluster = replace(CLUSTER, exporters=(*exporters(count), *exporters(50 * bool(count), ExportProtocol.SFLOW)))
    cluster = replace(cluster, collector=replace(cluster.collector, keep_templates=asked))
    config = collector_files(cluster, Path("/etc/pm"), is_fast=is_fast)["nfacctd.conf"]
    assert ("nfacctd_templates_file" in config) is (kept or (is_fast and asked is None))


@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
@pytest.mark.parametrize("keeps", [True, False])
def test_templates_of_another_time_are_not_left_where_none_are_kept(keeps: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    cluster = a_cluster(*exporters(1))
    cluster = replace(cluster, collector=replace(cluster.collector, keep_templates=keeps))
    spool = tmp_path / "spool"
    spool.mkdir()
    file = spool / ".nfacctd.templates"
    file.touch()
    with Collector(cluster, tmp_path / "run", spool=spool):
        assert file.exists() is keeps
