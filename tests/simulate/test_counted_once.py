"""A simulated cluster without described interfaces, or on one fabric, against what the simulator knows."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl

from cluster.advice import advice
from cluster.load import load_cluster, parse_cluster
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
    truth = played(cluster, tmp_path, 60)
    # The spine counts as well: of three that see what crosses the fabric one has to be enough.
    plain = replace(cluster, exporters=tuple(replace(one, interfaces=(), counts=True) for one in cluster.exporters))
    expected = {
        (pair["src_group"], pair["dst_group"]): pair["bytes"]
        for pair in truth.document()["group_pairs"]
        if not {pair["src_group"], pair["dst_group"]} & SAMPLED
    }
    rows = points(plain, tmp_path, schema.TRAFFIC).group_by(schema.SRC_GROUP, schema.DST_GROUP)
    found = {(src, dst): size for src, dst, size in rows.agg(pl.sum(schema.BYTES.name)).rows()}
    assert len(expected) >= 3
    assert {pair: found[pair] for pair in expected} == expected
    assert truth.document()["totals"]["seen_bytes"] > 1.3 * sum(expected.values())


def test_a_converged_fabric_with_the_line_that_check_prints_has_no_violation(tmp_path: Path) -> None:
    """Nodes have rails and management ports, and read and write storage by the rails."""
    text = (REPOSITORY / "cluster.yaml").read_text()
    storage = r""" *- \{address: "10.20.2.\{1..16\}", plane: storage\}\n| *3: \{name: storage, plane.*200 Gbit/s\}\n"""
    text = re.sub(r"(name: (?:model-)?storage), plane: storage", r"\1, plane: compute", re.sub(storage, "", text))
    written = text
    lines = [line for line in advice(parse_cluster(text)) if "wrong_plane" in line]
    for group, said in (re.findall(r"^groups\.(\w+)\..*Write (.*) there$", line)[0] for line in lines):
        written, count = re.subn(rf"(  {group}:\n(?:    .*\n)*?    )plane: .*", rf"\1{said}", written)
        assert count == 1
    assert len(lines) == 2
    mended = parse_cluster(written)
    assert not any("wrong_plane" in line for line in advice(mended))
    played(mended, tmp_path, 20)
    before, after = (points(one, tmp_path, schema.VIOLATION) for one in (parse_cluster(text), mended))
    assert before.get_column(schema.KIND).unique().to_list() == ["wrong_plane"]
    assert after.is_empty()


def played(cluster: Cluster, spool: Path, seconds: int) -> GroundTruth:
    cast = Cast(cluster)
    live = Phase(START, START + seconds, 10, 10)
    run = Run("live", tuple(cast.training), START, START + seconds, 30)
    workload = Workload(cluster, Scenario(3, live, runs=(run,)))
    truth = GroundTruth(workload)
    with SpoolWriter(workload, spool, truth, file_format=SpoolFormat.CSV, file_records=10_000) as writer:
        for batch in workload.batches(live):
            writer.write(batch)
    return truth


def points(cluster: Cluster, spool: Path, measurement: schema.Measurement) -> pl.DataFrame:
    engine = Engine(cluster, Clock.BACKFILL, Counters())
    for path in sorted(spool.glob("*.csv")):
        parsed: Parsed = read_chunk(path.read_bytes(), Format(Kind.CSV))
        engine.take(parsed.frame, START, is_numbered=parsed.is_numbered)
        engine.merge()
    return engine.tables[measurement.name].all_points()
