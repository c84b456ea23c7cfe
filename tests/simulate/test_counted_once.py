"""A simulated cluster without described interfaces, against what the simulator knows of every flow."""

from dataclasses import replace
from pathlib import Path

import polars as pl

from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read.readers import read_chunk
from ingest.read.readers_format import Format, Kind
from ingest.read.records import Parsed
from simulate.packets.spool_files import SpoolFormat, SpoolWriter
from simulate.scenarios.scenario import Phase, Run, Scenario
from simulate.traffic.cast import Cast
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from store import schema

REPOSITORY = Path(__file__).parents[2]
START = 1_795_248_000
SAMPLED = {"management", "users", "inference", "external", "approved_external"}
"""Groups that the border router and the management switch see, who sample: there the simulator counts samples."""


def test_leaves_and_spines_without_a_description_count_as_the_described_ones(tmp_path: Path) -> None:
    cluster = load_cluster(REPOSITORY / "cluster.yaml")
    cast = Cast(cluster)
    live = Phase(START, START + 60, 10, 10)
    run = Run("live", tuple(cast.training), START, START + 60, 30)
    workload = Workload(cluster, Scenario(3, live, runs=(run,)))
    truth = GroundTruth(workload)
    with SpoolWriter(workload, tmp_path, truth, file_format=SpoolFormat.CSV, file_records=10_000) as writer:
        for batch in workload.batches(live):
            writer.write(batch)
    # The spine counts as well: of three that see what crosses the fabric one has to be enough.
    plain = replace(cluster, exporters=tuple(replace(one, interfaces=(), counts=True) for one in cluster.exporters))
    expected = {
        (pair["src_group"], pair["dst_group"]): pair["bytes"]
        for pair in truth.document()["group_pairs"]
        if not {pair["src_group"], pair["dst_group"]} & SAMPLED
    }
    found = counted(plain, tmp_path)
    assert len(expected) >= 3
    assert {pair: found[pair] for pair in expected} == expected
    assert truth.document()["totals"]["seen_bytes"] > 1.3 * sum(expected.values())


def counted(cluster: Cluster, spool: Path) -> dict[tuple[str, str], int]:
    engine = Engine(cluster, Clock.BACKFILL, Counters())
    for path in sorted(spool.glob("*.csv")):
        parsed: Parsed = read_chunk(path.read_bytes(), Format(Kind.CSV))
        engine.take(parsed.frame, START, is_numbered=parsed.is_numbered)
        engine.merge()
    rows = engine.tables[schema.TRAFFIC.name].all_points().group_by(schema.SRC_GROUP, schema.DST_GROUP)
    return {(src, dst): size for src, dst, size in rows.agg(pl.sum(schema.BYTES.name)).rows()}
