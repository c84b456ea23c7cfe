"""What we send is what the real nfacctd and sfacctd decode, to the byte; and spool files are what they would print."""

import shutil
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.collect.supervise import Collector
from ingest.read import records
from simulate.incidents.stage import Stage
from simulate.incidents.staging_egress import bulk_exfil, first_contact
from simulate.incidents.staging_pipeline import template_loss
from simulate.packets.netflow import FlowFormat
from simulate.packets.spool_files import SpoolWriter
from simulate.packets.udp import Clock, Target, UdpEmitter
from simulate.recording import RecordFrames
from simulate.scenarios.scenario import ExportStyle, Phase, Profile, Run, Scenario
from simulate.traffic.cast import Cast
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth

REPOSITORY = Path(__file__).parents[2]
START = 1_795_248_000
SECONDS = 30

needs_pmacct = pytest.mark.skipif(
    not (shutil.which("nfacctd") and shutil.which("sfacctd")), reason="pmacct is not installed: apt-get install pmacct"
)

STYLES = {
    "v9 counts, IPFIX sampled 1:100, v5 duplicates": (),
    "IPFIX counts, v9 sampled 1:7, v5 sampled": (
        ("leaf-1", ExportStyle(FlowFormat.IPFIX)),
        ("storage-1", ExportStyle(FlowFormat.IPFIX, 3)),
        ("border-1", ExportStyle(FlowFormat.V9, 7)),
        ("spine-1", ExportStyle(FlowFormat.V5, 50)),
        ("mgmt-sw", ExportStyle(FlowFormat.SFLOW, 16)),
    ),
    "v5 counts where everything is IPv4": (("leaf-1", ExportStyle(FlowFormat.V5)),),
}


def udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def printed(folder: Path) -> pl.DataFrame:
    """Read CSV as pmacct prints it, without our readers."""
    frames = [pl.DataFrame(schema=dict.fromkeys(records.PRINTED_COLUMNS, pl.String))]
    for path in sorted(folder.glob("*.csv")):
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("--")]
        for line in lines:
            if line.startswith("TAG2"):
                assert line == ",".join(records.PRINTED_COLUMNS)
        rows = [line.split(",") for line in lines if not line.startswith("TAG2")]
        frames.append(pl.DataFrame(rows, schema=frames[0].schema, orient="row"))
    texts = ("PEER_SRC_IP", "SRC_IP", "DST_IP")
    times = [name for name in records.SPOOL_COLUMNS if name.startswith("TIMESTAMP")]
    return pl.concat(frames).with_columns(
        pl.exclude(*texts, *times).cast(pl.Int64), pl.col(times).cast(pl.Float64).round(3)
    )


def wait_for(folder: Path, flows: int) -> None:
    """Wait until the daemons have printed so many records; a busy machine may take seconds to start them."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        lines = [line for path in folder.glob("*.csv") for line in path.read_text().splitlines()]
        # The last line may be half written.
        counts = [
            line.split(",")[-2] for line in lines if "START" not in line and ",127." in line and line.count(",") > 1
        ]
        if sum(int(count) for count in counts if count.isdecimal()) >= flows:
            return
        time.sleep(0.2)


def demo_cluster(folder: Path) -> Cluster:
    cluster = load_cluster(REPOSITORY / "cluster.yaml")
    collector = replace(
        cluster.collector, netflow_port=udp_port(), sflow_port=udp_port(), spool=str(folder / "spool"), refresh=1
    )
    return replace(cluster, collector=collector)


def stage_of(cluster: Cluster) -> Stage:
    cast = Cast(cluster)
    run = Run("live", tuple(cast.training), START, START + SECONDS, 20)
    return Stage(cluster, cast, Profile(), (run,), None, 5)


def scenario_of(cluster: Cluster, styles: tuple[tuple[str, ExportStyle], ...]) -> Scenario:
    live = Phase(START, START + SECONDS, 10, 10)
    stage = stage_of(cluster)
    incidents = (bulk_exfil(stage, START + 5, START + 25), first_contact(stage, START + 3, START + 6))
    return Scenario(5, live, runs=stage.runs, incidents=incidents, styles=styles)


def send(workload: Workload, truth: GroundTruth) -> None:
    collector = workload.cluster.collector
    with UdpEmitter(
        workload,
        truth,
        netflow=Target("127.0.0.1", collector.netflow_port),
        sflow=Target("127.0.0.1", collector.sflow_port),
        max_datagrams=5000,
    ) as emitter:
        emitter.run(workload.batches(workload.scenario.live), Clock(START, 0), threading.Event())


@needs_pmacct
@pytest.mark.parametrize("styles", STYLES.values(), ids=STYLES.keys())
def test_pmacct_decodes_what_was_sent(styles: tuple[tuple[str, ExportStyle], ...], tmp_path: Path) -> None:
    """Records, packets, bytes and sampling rate of every exporter; every field of every record."""
    cluster = demo_cluster(tmp_path)
    workload = Workload(cluster, scenario_of(cluster, styles))
    truth = GroundTruth(workload)
    with Collector(cluster, tmp_path / "run"):
        send(workload, truth)
        wait_for(Path(cluster.collector.spool), truth.records)
    decoded = printed(Path(cluster.collector.spool))

    overhead = {str(e.address): e.frame_overhead for e in cluster.exporters}
    by_exporter: dict[str, dict[str, Any]] = {
        str(row["PEER_SRC_IP"]): row
        for row in decoded.group_by("PEER_SRC_IP")
        .agg(
            pl.sum("FLOWS", "PACKETS", "BYTES"),
            pl.col("SAMPLING_RATE").unique().alias("rates"),
            pl.col("SRC_IP").str.contains(":").sum().alias("v6"),
        )
        .to_dicts()
    }
    for entry in truth.document()["exporters"]:
        seen = by_exporter[entry["address"]]
        assert seen["FLOWS"] == entry["records"]
        assert seen["rates"] == [entry["sampling"]]
        assert seen["PACKETS"] * entry["sampling"] == entry["packets"]
        exported = seen["BYTES"] - overhead[entry["address"]] * seen["PACKETS"]
        assert exported * entry["sampling"] == entry["bytes"]
    assert by_exporter["127.0.0.14"]["v6"] > 0

    # The same simulation as files: the same records in every field, but for the moment of arrival.
    with SpoolWriter(workload, tmp_path / "files", GroundTruth(workload)) as writer:
        for batch in workload.batches(workload.scenario.live):
            writer.write(batch)
    written = printed(tmp_path / "files")
    keys = [name for name in records.SPOOL_COLUMNS if name not in ("TIMESTAMP_ARRIVAL", "PACKETS", "BYTES", "FLOWS")]
    # nfacctd works out the times of v5 in whole seconds, with an error of one.
    is_v5 = (pl.col("EXPORT_PROTO_VERSION") == 5) & (pl.col("TIMESTAMP_START") > 0)
    times = [pl.when(is_v5).then(0).otherwise(name).alias(name) for name in ("TIMESTAMP_START", "TIMESTAMP_END")]
    sums = [
        frame.with_columns(times).group_by(keys).agg(pl.sum("PACKETS", "BYTES", "FLOWS")).sort(keys)
        for frame in (decoded, written)
    ]
    assert sums[0].equals(sums[1])
    for name in ("TIMESTAMP_START", "TIMESTAMP_END"):
        spread = [frame.filter(is_v5)[name].sum() / max(frame.filter(is_v5).height, 1) for frame in (decoded, written)]
        assert abs(spread[0] - spread[1]) <= 1


@needs_pmacct
def test_stopped_early_truth_is_what_arrived(tmp_path: Path) -> None:
    """After a stop in the middle of a batch, the truth holds what pmacct received and nothing else."""
    cluster = demo_cluster(tmp_path)
    workload = Workload(cluster, scenario_of(cluster, ()))
    truth = GroundTruth(workload)
    stop = threading.Event()
    whole = sum(batch.frame.height for batch in workload.batches(workload.scenario.live))
    collector = cluster.collector
    with (
        Collector(cluster, tmp_path / "run"),
        UdpEmitter(
            workload,
            truth,
            netflow=Target("127.0.0.1", collector.netflow_port),
            sflow=Target("127.0.0.1", collector.sflow_port),
        ) as emitter,
    ):
        threading.Timer(0.8, stop.set).start()
        # Thirty seconds in two: the stop falls into the second slice.
        emitter.run(workload.batches(workload.scenario.live), Clock(START, 15), stop)
        wait_for(Path(collector.spool), truth.records)
    decoded = printed(Path(collector.spool))
    assert 0 < truth.records < whole
    assert int(decoded["FLOWS"].sum()) == truth.records
    document = truth.document()
    assert sum(entry["records"] for entry in document["exporters"]) == truth.records
    assert not document["complete"]


@needs_pmacct
@pytest.mark.parametrize("flow_format", [FlowFormat.V9, FlowFormat.IPFIX])
def test_without_its_templates_nfacctd_reads_nothing_of_an_exporter(flow_format: FlowFormat, tmp_path: Path) -> None:
    """It starts anew with other template numbers that get lost: what it sends is dropped until they are sent again."""
    cluster = demo_cluster(tmp_path)
    start, end = START + 8, START + 18
    incident = template_loss(stage_of(cluster), start, end, exporter="leaf-1")
    play = scenario_of(cluster, (("leaf-1", ExportStyle(flow_format)),))
    workload = Workload(cluster, replace(play, incidents=(incident,)))
    truth = GroundTruth(workload)
    with Collector(cluster, tmp_path / "run"):
        send(workload, truth)
        wait_for(Path(cluster.collector.spool), truth.records)
        # What nobody can read would have come by now.
        time.sleep(2)
    decoded = printed(Path(cluster.collector.spool))
    records_of = {row["address"]: row["records"] for row in truth.document()["exporters"]}
    sums = decoded.group_by("PEER_SRC_IP").agg(pl.sum("FLOWS"))
    assert dict(sums.iter_rows()) == {address: count for address, count in records_of.items() if count}
    # An exporter that stays says when it sent: nothing of the gap, much before and after it.
    whole = sum(
        batch.frame.filter(pl.col("exporter") == 0).height
        for batch in Workload(cluster, replace(play, incidents=())).batches(workload.scenario.live)
    )
    leaf = decoded.filter(pl.col("PEER_SRC_IP") == "127.0.0.11")
    assert 0 < leaf["FLOWS"].sum() < 0.8 * whole
    ends = leaf["TIMESTAMP_END"]
    assert not ((ends > start) & (ends < end - 1)).any()
    assert (ends <= start).any()
    assert (ends >= end).any()
    # The gap in the sequence numbers is what the bridge's loss counter goes by.
    frames = RecordFrames(workload)
    made = pl.concat([frames.named(*frames.arrived(batch)) for batch in workload.batches(workload.scenario.live)])
    assert made.filter(pl.col("exporter") == "127.0.0.11").height == leaf["FLOWS"].sum()
