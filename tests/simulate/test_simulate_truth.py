"""The ground truth is the sum of what was emitted, by rules written down here a second time."""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import polars as pl
import pytest

from cluster.load import load_cluster
from cluster.model import Cluster, Exporter
from ingest.read.readers import read_chunk
from ingest.read.records import Parsed
from simulate.incidents.stage import Stage
from simulate.incidents.staging_egress import bulk_exfil
from simulate.incidents.staging_jobs import node_dropout
from simulate.incidents.staging_pipeline import exporter_silent
from simulate.packets.spool_files import SpoolFormat, SpoolWriter
from simulate.scenarios.scenario import Phase, Profile, Run, Scenario
from simulate.traffic.bulk_load import large_cluster, load_batches, load_scenario
from simulate.traffic.cast import Cast
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth

REPOSITORY = Path(__file__).parents[2]
START = 1_795_248_000


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return load_cluster(REPOSITORY / "cluster.yaml")


@pytest.fixture(scope="module")
def workload(cluster: Cluster) -> Workload:
    cast = Cast(cluster)
    live = Phase(START, START + 60, 10, 10)
    run = Run("live", tuple(cast.training), START, START + 60, 30)
    stage = Stage(cluster, cast, Profile(), (run,), None, 3)
    incidents = (
        bulk_exfil(stage, START + 5, START + 25),
        node_dropout(stage, START + 30, START + 60, share=0.5),
        exporter_silent(stage, START + 20, START + 40, exporter="storage-1"),
    )
    return Workload(cluster, Scenario(3, live, runs=(run,), incidents=incidents))


def write(workload: Workload, folder: Path, file_format: SpoolFormat, file_records: int = 1000) -> GroundTruth:
    truth = GroundTruth(workload)
    with SpoolWriter(workload, folder, truth, file_format=file_format, file_records=file_records) as writer:
        for batch in workload.batches(workload.scenario.live):
            writer.write(batch)
    return truth


def rows(folder: Path) -> Iterator[dict[str, str]]:
    for path in sorted(folder.glob("*.csv")):
        with path.open() as text:
            yield from csv.DictReader(line for line in text if not line.startswith("--"))


def group_of(cluster: Cluster, text: str) -> str:
    address = ip_address(text)
    found = [(p.prefixlen, g.id) for g in cluster.groups for p in g.prefixes if address in p]
    return max(found)[1] if found else "local" if address.is_multicast else "external"


def test_totals_are_sums_of_the_files(cluster: Cluster, workload: Workload, tmp_path: Path) -> None:
    """Group pairs, nodes, conversations and exporters, from the text of the files alone."""
    truth = write(workload, tmp_path, SpoolFormat.CSV)
    exporters = {str(e.address): e for e in cluster.exporters}
    names = {str(a.address): node.name for node in cluster.nodes for a in node.addresses}
    pairs: Counter[tuple[str, str, str]] = Counter()
    nodes: Counter[tuple[str, str]] = Counter()
    talks: Counter[tuple[str, str, int, int]] = Counter()
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows(tmp_path):
        exporter = exporters[row["PEER_SRC_IP"]]
        rate = int(row["SAMPLING_RATE"])
        packets = int(row["PACKETS"]) * rate
        size = int(row["BYTES"]) * rate - exporter.frame_overhead * packets
        uplinks = {i.index for i in exporter.interfaces if not i.counts}
        counted = exporter.counts and int(row["IN_IFACE"]) not in uplinks
        seen[exporter.name, "records"] += 1
        seen[exporter.name, "bytes"] += size
        seen[exporter.name, "packets"] += packets
        seen[exporter.name, "suppressed_bytes"] += 0 if counted else size
        if not counted:
            continue
        src, dst = row["SRC_IP"], row["DST_IP"]
        for name, value in (("bytes", size), ("packets", packets), ("flows", 1)):
            pairs[group_of(cluster, src), group_of(cluster, dst), name] += value
        nodes[names.get(src, ""), "tx_bytes"] += size
        nodes[names.get(dst, ""), "rx_bytes"] += size
        talks[src, dst, int(row["PROTOCOL"]), min(int(row["SRC_PORT"]), int(row["DST_PORT"]))] += size
    document = truth.document()
    assert {
        (p["src_group"], p["dst_group"], name): p[name]
        for p in document["group_pairs"]
        for name in ("bytes", "packets", "flows")
    } == dict(pairs)
    for node in document["nodes"]:
        assert node["tx_bytes"] == nodes[node["node"], "tx_bytes"]
        assert node["rx_bytes"] == nodes[node["node"], "rx_bytes"]
    assert {(c["src"], c["dst"], c["proto"], c["port"]): c["bytes"] for c in document["conversations"]} == dict(talks)
    for exporter in document["exporters"]:
        for name in ("records", "bytes", "packets", "suppressed_bytes"):
            assert exporter[name] == seen[exporter["exporter"], name]
    assert document["totals"]["seen_bytes"] > document["totals"]["bytes"]
    assert document["totals"]["suppressed_bytes"] == document["totals"]["seen_bytes"] - document["totals"]["bytes"]


def scaled(cluster: Cluster, row: dict[str, str]) -> tuple[Exporter, int, bool]:
    """Return who reported a row, its bytes, and whether they count."""
    exporter = next(e for e in cluster.exporters if str(e.address) == row["PEER_SRC_IP"])
    rate, packets = int(row["SAMPLING_RATE"]), int(row["PACKETS"])
    uplinks = {i.index for i in exporter.interfaces if not i.counts}
    counted = exporter.counts and int(row["IN_IFACE"]) not in uplinks
    return exporter, (int(row["BYTES"]) - exporter.frame_overhead * packets) * rate, counted


def test_rails_endpoints_and_interfaces_are_sums_of_the_files(
    cluster: Cluster, workload: Workload, tmp_path: Path
) -> None:
    document = write(workload, tmp_path, SpoolFormat.CSV).document()
    names = {str(a.address): node.name for node in cluster.nodes for a in node.addresses}
    rails = {
        str(a.address): (node.name, a.rail) for node in cluster.nodes for a in node.addresses if a.rail is not None
    }
    parts: Counter[tuple[object, ...]] = Counter()
    for row in rows(tmp_path):
        exporter, size, counted = scaled(cluster, row)
        ports = {str(i.index): i.name for i in exporter.interfaces}
        for side, column in (("in_bytes", "IN_IFACE"), ("out_bytes", "OUT_IFACE")):
            parts[exporter.name, ports.get(row[column], row[column]), side] += size
        ends = ((row["SRC_IP"], "tx_bytes", "read_bytes"), (row["DST_IP"], "rx_bytes", "write_bytes"))
        for end, rail_side, storage_side in ends if counted else ():
            if end in rails:
                parts[*rails[end], rail_side] += size
            if group_of(cluster, end) in {"storage", "model_storage"}:
                parts[names[end], storage_side] += size
    for section, tags, sides in (
        ("rails", ("node", "rail"), ("tx_bytes", "rx_bytes")),
        ("storage", ("endpoint",), ("read_bytes", "write_bytes")),
        ("interfaces", ("exporter", "interface"), ("in_bytes", "out_bytes")),
    ):
        assert len(document[section]) > 5
        for part in document[section]:
            for side in sides:
                assert part[side] == parts.pop((*(part[tag] for tag in tags), side), 0)
    assert not {key: value for key, value in parts.items() if value and key[1] != "0"}


def test_long_lists_keep_their_totals(workload: Workload, tmp_path: Path) -> None:
    """Conversations beyond the limit are added up, and the file is whole JSON."""
    truth = write(workload, tmp_path, SpoolFormat.CSV)
    full, short = truth.document(), truth.document(10)
    assert len(short["conversations"]) == 10
    assert short["conversations"] == full["conversations"][:10]
    listed = sum(c["bytes"] for c in short["conversations"])
    assert listed + short["other_conversations"]["bytes"] == full["totals"]["bytes"]
    truth.write(tmp_path / "out" / "truth.json")
    assert json.loads((tmp_path / "out" / "truth.json").read_text())["totals"] == full["totals"]


def test_our_readers_take_both_formats(workload: Workload, tmp_path: Path) -> None:
    """CSV and JSON hold the same records, without a dead letter."""
    parsed: dict[SpoolFormat, Parsed] = {}
    for file_format in SpoolFormat:
        folder = tmp_path / file_format.value
        truth = write(workload, folder, file_format, file_records=10**9)
        (path,) = folder.glob(f"*.{file_format.value}")
        raw = path.read_bytes()
        if file_format is SpoolFormat.CSV:
            fmt = _csv_format(raw)
            raw = raw.split(b"\n", 2)[2]
        else:
            fmt = _json_format(raw)
        parsed[file_format] = read_chunk(raw, fmt)
        assert parsed[file_format].dead.height == 0
        assert parsed[file_format].frame.height == truth.records
    assert parsed[SpoolFormat.CSV].frame.equals(parsed[SpoolFormat.JSON].frame)
    frame = parsed[SpoolFormat.CSV].frame
    assert frame.filter(pl.col("start").is_null())["exporter"].unique().to_list() == ["127.0.0.16"]


def _csv_format(raw: bytes):  # noqa: ANN202
    from ingest.read.readers_format import sniff  # noqa: PLC0415

    return sniff(raw)


_json_format = _csv_format


def test_incident_bytes_are_what_was_sent(workload: Workload, tmp_path: Path) -> None:
    """A staged transfer is reported as emitted: what the sampled exporter lets one see of it."""
    truth = write(workload, tmp_path, SpoolFormat.CSV).document()
    exfil, dropout, silent = truth["incidents"]
    key = (exfil["src_address"], exfil["dst"])
    sent = sum(c["bytes"] for c in truth["conversations"] if (c["src"], c["dst"]) == key)
    assert exfil["sent"]["bytes"] == sent
    assert sent == pytest.approx(exfil["volume"], rel=0.001)
    assert exfil["start"] <= exfil["sent"]["first"] <= exfil["sent"]["last"] <= exfil["end"]
    assert dropout["sent"] is None
    assert silent["exporter"] == "storage-1"
    times = [float(r["TIMESTAMP_ARRIVAL"]) for r in rows(tmp_path) if r["PEER_SRC_IP"] == "127.0.0.14"]
    assert times
    assert not any(START + 20 <= at < START + 40 for at in times)


@pytest.mark.thorough
def test_load_is_exact_and_large(cluster: Cluster, tmp_path: Path) -> None:
    """A load has exactly as many records as asked for, of a cluster of the size asked for, and a truth."""
    large = large_cluster(cluster, 200)
    work = Workload(large, load_scenario(START, 60, seed=4))
    truth = GroundTruth(work)
    with SpoolWriter(work, tmp_path, truth) as writer:
        for batch in load_batches(work, 250_001, 60):
            writer.write(batch)
    assert truth.records == 250_001
    assert sum(1 for _ in rows(tmp_path)) == 250_001
    document = truth.document()
    active = [n for n in document["nodes"] if n["tx_bytes"]]
    assert len(active) == len(large.nodes)
    assert all(e["records"] for e in document["exporters"])
