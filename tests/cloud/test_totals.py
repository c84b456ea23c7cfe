"""What clouds write down of a simulated cluster, both ends of it, is stored once: exact totals by pair of groups."""

import threading
from dataclasses import replace
from functools import cache
from pathlib import Path

import polars as pl
import provider
import pytest

from app.log import Log
from cluster.model import CloudFormat, Cluster
from ingest.bridge import Bridge
from ingest.cloud.files import CloudFiles, CloudReader
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.flows.classify import AddressBook
from ingest.flows.normalise import Clock
from simulate.incidents.stage import Stage
from simulate.incidents.staging_inside import refused_scan
from simulate.packets import vpc_logs
from simulate.packets.udp import Clock as SimulatedClock
from simulate.scenarios.scenario import Phase, Profile, Run, Scenario
from simulate.traffic.cast import Cast
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.reckoning import reckon
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

DARK = frozenset({"10.1.0.3", "10.20.0.2"})


@cache
def sent() -> provider.Sent:
    return provider.sent(300)


def known(server: LocalInfluxDB, database: str, cloud: CloudFormat) -> Cluster:
    """The demo's cluster as in a cloud: without switches."""
    base = sent().cluster
    return replace(
        base,
        exporters=(),
        authority=(),
        store=replace(base.store, url=server.url, database=database),
        cloud=replace(base.cloud, format=cloud),
        bridge=replace(base.bridge, lateness=1200, flush=0.2, metrics_listen=None),
    )


def pairs_of_groups(cluster: Cluster, flows: pl.DataFrame) -> dict[tuple[str, str], int]:
    """Bytes of flows by source group and destination group."""
    book = AddressBook(cluster)
    codes = book.number(flows["src"], flows["dst"])
    groups = pl.Series(book.groups, dtype=pl.String)
    sums = (
        flows.select(
            *(
                groups.gather(pl.Series(book.group_codes[code.to_numpy()].astype("int64"))).alias(name)
                for name, code in zip(("src", "dst"), codes, strict=True)
            ),
            "bytes",
        )
        .group_by("src", "dst")
        .agg(pl.sum("bytes"))
    )
    return {(src, dst): size for src, dst, size in sums.rows()}


def stored(cluster: Cluster) -> dict[tuple[str, str], int]:
    """Bytes in the store by the same."""
    answer = Store(cluster.store).query(
        f'SELECT sum("bytes") FROM "{schema.RAW}"."{schema.TRAFFIC.name}" GROUP BY "src_group", "dst_group"'
    )
    return {(one.tags["src_group"], one.tags["dst_group"]): int(one.values[0][1]) for one in answer}


def put(kind: str, folder: Path, ends: pl.DataFrame) -> None:
    if kind == "google":
        provider.put_google(folder, ends)
    elif kind == "azure":
        provider.put_azure(folder, ends)
    else:
        fields = provider.DEFAULT if kind == "aws-default" else vpc_logs.FIELDS
        provider.put_aws(folder, ends, fields=fields, is_parquet=kind == "aws-parquet")


def bridge_of(cluster: Cluster, files: CloudFiles, folder: Path, clock: Clock, stop: threading.Event) -> Bridge:
    assert cluster.cloud.format
    return Bridge(
        cluster,
        Store(cluster.store),
        files,
        clock=clock,
        state=folder / "state",
        dead_letter=DeadLetters(folder / "dead.jsonl"),
        stop=stop,
        log=Log(quiet=True),
        counters=Counters(),
        cloud=CloudReader(cluster.cloud.format),
    )


CLOUDS = {
    "aws": (CloudFormat.AWS, 60),
    "aws-default": (CloudFormat.AWS, 600),
    "aws-parquet": (CloudFormat.AWS, 600),
    "google": (CloudFormat.GOOGLE, 60),
    "azure": (CloudFormat.AZURE, 300),
}
"""What is written, and by intervals of how many seconds."""


@pytest.mark.parametrize(
    ("kind", "clock"),
    [*((kind, Clock.BACKFILL) for kind in CLOUDS), ("aws-default", Clock.LIVE), ("google", Clock.LIVE)],
)
def test_each_byte_counts_once(
    kind: str, clock: Clock, influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    """Interfaces of one end write nothing, of most both do, each by intervals of its own."""
    cloud, interval = CLOUDS[kind]
    cluster = known(influxdb_v1, fresh_database, cloud)
    flows = sent().flows.filter(~pl.col("src").is_in(list(DARK)) | ~pl.col("dst").is_in(list(DARK)))
    flows = flows.filter(pl.any_horizontal(pl.col("src", "dst").str.starts_with("10.")))
    logs = tmp_path / "logs"
    put(kind, logs, provider.ends_of(flows, interval=interval, dark=DARK))
    stop = threading.Event()
    files = CloudFiles(logs, cloud, once=True)
    try:
        summary = bridge_of(cluster, files, tmp_path, clock, stop).run()
    finally:
        files.close()
    assert summary.dead_letters == 0
    assert summary.records > 5_000
    assert stored(cluster) == pairs_of_groups(cluster, flows)


def test_what_the_demo_s_cloud_logs_is_stored_to_the_byte(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    """All of it: groups, nodes, rails, storage, what both ends logged, and what was refused."""
    cluster = known(influxdb_v1, fresh_database, CloudFormat.AWS)
    played = vpc_logs.in_a_vpc(cluster)
    live = Phase(provider.START, provider.START + 150, 10, 10)
    cast = Cast(cluster)
    run = Run("live", tuple(cast.training), live.start, live.end, 30)
    stage = Stage(cluster, cast, Profile(), (run,), None, 3)
    scan = refused_scan(stage, live.start + 20, live.start + 80)
    workload = Workload(played, Scenario(3, live, runs=(run,), incidents=(scan,)))
    truth = GroundTruth(workload)
    logs = tmp_path / "logs"
    writer = vpc_logs.VpcLogs(workload, logs, truth)
    writer.run(workload.batches(live), SimulatedClock(live.start, 0), threading.Event())
    files = CloudFiles(logs, CloudFormat.AWS, once=True)
    try:
        summary = bridge_of(cluster, files, tmp_path, Clock.LIVE, threading.Event()).run()
    finally:
        files.close()
    document = truth.document()
    assert document["totals"]["refused_flows"] == 30
    assert document["totals"]["suppressed_bytes"] > 0.9 * document["totals"]["bytes"]
    # An object a minute, and what is left at the end.
    assert len([*logs.rglob("*.log.gz")]) == 3
    assert (summary.records, summary.dead_letters) == (document["totals"]["records"], 0)
    assert reckon(Store(cluster.store), document, None).differences == ()


def test_what_was_refused_or_left_out_is_stored_and_no_traffic(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    cluster = known(influxdb_v1, fresh_database, CloudFormat.AWS)
    logs = tmp_path / "logs"
    logs.mkdir()
    begin = provider.START
    (logs / "a.log").write_text(
        f"2 1 eni-1 10.20.0.1 10.60.0.11 40000 22 6 3 180 {begin} {begin + 50} REJECT OK\n"
        f"2 1 eni-1 10.20.0.1 10.60.0.11 40001 22 6 4 240 {begin} {begin + 50} REJECT OK\n"
        f"2 1 eni-1 - - - - - - - {begin} {begin + 59} - NODATA\n"
        f"2 1 eni-2 - - - - - - - {begin} {begin + 59} - SKIPDATA\n"
        f"2 1 eni-1 10.20.0.1 10.30.0.1 700 2049 6 4 240 {begin} {begin + 50} ACCEPT OK\n"
    )
    files = CloudFiles(logs, CloudFormat.AWS, once=True)
    try:
        summary = bridge_of(cluster, files, tmp_path, Clock.BACKFILL, threading.Event()).run()
    finally:
        files.close()
    assert (summary.records, summary.dead_letters) == (1, 0)
    assert stored(cluster) == {("training", "storage"): 240}
    store = Store(cluster.store)
    (denied,) = store.query(
        f'SELECT sum("packets"), sum("flows") FROM "{schema.RAW}"."{schema.DENIED.name}" '
        'GROUP BY "src", "dst", "src_group", "dst_group"'
    )
    assert denied.tags == {"src": "gpu-01", "dst": "mgmt-1", "src_group": "training", "dst_group": "management"}
    assert denied.values[0][1:] == [7, 2]
    (gap,) = store.query(f'SELECT sum("skipped") FROM "{schema.RAW}"."{schema.LOG_GAP.name}" GROUP BY "interface"')
    assert (gap.tags, gap.values[0][1]) == ({"interface": "eni-2"}, 1)
