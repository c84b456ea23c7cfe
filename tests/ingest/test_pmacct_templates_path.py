"""nfacctd 1.7.7 writes one byte beyond the name of its scratch copy: our path must leave room for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.load import load_cluster
from ingest.pmacct import nfacctd_config

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = load_cluster(REPOSITORY / "cluster.yaml")


@pytest.mark.parametrize("length", range(1, 40))
def test_the_scratch_copys_name_never_fills_its_block(length: int) -> None:
    spool = f"/{'s' * length}"
    cluster = replace(CLUSTER, collector=replace(CLUSTER.collector, spool=spool))
    (line,) = [line for line in nfacctd_config(cluster).splitlines() if line.startswith("nfacctd_templates_file")]
    path = line.partition(": ")[2]
    assert Path(path) == Path(spool, ".nfacctd.templates")
    # glibc hands out blocks of 24, 40, 56, ... usable bytes.
    assert (len(path) + len(".copy")) % 16 != 8
