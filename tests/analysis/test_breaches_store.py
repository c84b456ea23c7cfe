"""Breaches end to end: flow records through the engine into a real InfluxDB, and out again as findings."""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network

import polars as pl
import pytest
import scene

from analysis.detectors.fabric.breaches import BreachStudy
from analysis.detectors.study import Span
from cluster.model import (
    ANY,
    Cluster,
    Exporter,
    Group,
    GroupPair,
    Interface,
    Node,
    NodeAddress,
    Plane,
    Role,
    StoreSettings,
)
from cluster.sections.network.services import with_well_known
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read import records
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW
from store.schema import Breach

T0 = 1_750_000_000
SYN = 2


def cluster_of(url: str, database: str) -> Cluster:
    def address(text: str, plane: Plane | None = None) -> NodeAddress:
        return NodeAddress(ip_address(text), plane)

    gpus = tuple(
        Node(f"gpu-{n}", "training", (address(f"10.20.0.{n}", Plane.COMPUTE), address(f"10.20.2.{n}", Plane.STORAGE)))
        for n in range(1, 21)
    )
    return Cluster(
        name="breaches",
        groups=(
            Group("training", "Training", Role.TRAINING, (ip_network("10.20.0.0/16"),)),
            Group("storage", "Storage", Role.STORAGE, (ip_network("10.30.0.0/16"),), plane=Plane.STORAGE),
            Group("control", "Control", Role.MANAGEMENT, (ip_network("10.60.0.0/24"),)),
            Group("users", "Users", Role.CUSTOM, (ip_network("10.70.0.0/16"),)),
        ),
        nodes=(
            *gpus,
            *(Node(f"nas-{n}", "storage", (address(f"10.30.0.{n}"),)) for n in range(1, 5)),
            Node("mgmt-1", "control", (address("10.60.0.1"),)),
        ),
        exporters=(Exporter("leaf", ip_address("127.0.0.1"), interfaces=(Interface(1, "rail", Plane.COMPUTE),)),),
        allowed=(
            GroupPair("training", "storage"), GroupPair("storage", "training"), GroupPair(ANY, "control"),
            GroupPair("control", ANY),
        ),
        services=with_well_known(()),
        store=StoreSettings(url=url, database=database),
    )  # fmt: skip


def flow(at: int, src: str, dst: str, port: int, volume: int, **more: int) -> list[dict[str, object]]:
    """A conversation of a second: what was sent, and an answer of 60 bytes."""
    base = {
        records.EXPORTER: "127.0.0.1", records.PROTOCOL: 6, records.SAMPLING_RATE: 1, records.FLOWS: 1,
        records.PACKETS: 3, records.START: (T0 + at) * 1000, records.END: (T0 + at + 1) * 1000,
        records.ARRIVAL: (T0 + at + 2) * 1000,
    }  # fmt: skip
    forth = {
        records.SRC: src,
        records.DST: dst,
        records.SRC_PORT: 50_000,
        records.DST_PORT: port,
        records.BYTES: volume,
    }
    back = {records.SRC: dst, records.DST: src, records.SRC_PORT: port, records.DST_PORT: 50_000, records.BYTES: 60}
    return [base | forth | more, base | back | more]


def probe(at: int, src: str, dst: str, port: int) -> dict[str, object]:
    """A SYN that nobody answers, to a port above its own: the ports alone would say that it is an answer."""
    row = flow(at, src, dst, port, 40)[0]
    return row | {records.SRC_PORT: 30_000, records.TCP_FLAGS: SYN, records.PACKETS: 1}


@pytest.fixture
def site(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[tuple[Cluster, Store]]:
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    store = Store(cluster.store)
    store.ensure(tuple(replace(one, keep=0) for one in cluster.retentions()))
    yield cluster, store
    store.close()


def ingest(cluster: Cluster, store: Store, rows: list[dict[str, object]]) -> None:
    engine = Engine(cluster, Clock.BACKFILL, Counters())
    full = [dict.fromkeys(records.RECORD_SCHEMA) | row for row in rows]
    refused = engine.take(pl.DataFrame(full, schema=records.RECORD_SCHEMA), T0)
    assert refused.is_empty()
    for measurement, points in engine.merge():
        scene.write(store, measurement, points.with_columns(pl.lit("0").alias(schema.SHARD)))


def findings(cluster: Cluster, store: Store, start: int = 0, stop: int = 60) -> list[tuple[object, ...]]:
    span = Span(T0 + start, T0 + stop, T0 + stop, T0 + stop)
    ((_, frame),) = BreachStudy(cluster, store).judge(span, ())
    return frame.select(schema.KIND, schema.SRC, schema.DST, schema.SERVICE, "bytes", "flows").rows()


def test_nothing_is_nothing(site: tuple[Cluster, Store]) -> None:
    assert findings(*site) == []


def test_each_incident_is_one_finding_of_its_kind(site: tuple[Cluster, Store]) -> None:
    rows = [
        *flow(0, "10.20.2.1", "10.30.0.1", 2049, 10**9),  # as it should be
        *flow(0, "10.20.0.1", "10.60.0.1", 53, 80),  # a question to management
        *flow(0, "10.60.0.1", "10.20.0.1", 22, 4000),  # management logs in
        *flow(1, "10.70.0.9", "10.30.0.1", 2049, 5_000_000),  # a user at the storage
        *flow(2, "10.20.0.7", "10.60.0.1", 22, 6_000),  # a training node logs in at management
        *flow(3, "10.20.0.3", "10.30.0.2", 2049, 8 * 10**9, iface_in=1),  # storage over a rail
        *flow(4, "10.20.9.9", "10.30.0.3", 2049, 70_000),  # nobody's address
        *flow(5, "203.0.113.7", "10.60.0.1", 53, 90),  # the internet asks management
        *flow(6, "10.20.0.5", "203.0.113.50", 443, 900_000),  # egress: not for here
    ]
    ingest(*site, rows)
    assert sorted(findings(*site)) == [
        (Breach.MANAGEMENT, "203.0.113.7", "mgmt-1", "dns", 150, 2),
        (Breach.MANAGEMENT, "gpu-7", "mgmt-1", "ssh", 6_060, 2),
        (Breach.SEGMENTATION, "10.70.0.9", "nas-1", "nfs", 5_000_060, 2),
        (Breach.SHADOW, "10.20.9.9", "", "", 70_060, 2),
        (Breach.WRONG_PLANE, "gpu-3", "nas-2", "nfs", 8 * 10**9 + 60, 2),
    ]


def test_a_scan_of_a_prefix_is_one_finding_and_makes_no_shadows(site: tuple[Cluster, Store]) -> None:
    rows = [probe(number // 40, "10.70.0.9", f"10.30.1.{number}", 31_000 + number) for number in range(200)]
    ingest(*site, rows)
    assert findings(*site) == [(Breach.SEGMENTATION, "10.70.0.9", "other", "other", 8_000, 200)]


def test_live_ticks_and_a_later_run_agree(site: tuple[Cluster, Store]) -> None:
    cluster, store = site
    rows = []
    for at in range(0, 1200, 20):
        rows += flow(at, "10.70.0.9", f"10.30.0.{at // 300 + 1}", 2049, 10_000 + at)
        rows += flow(at, f"10.20.0.{at // 60 + 1}", "10.30.0.1", 2049, 10**6, iface_in=1)
    ingest(cluster, store, rows)
    study = BreachStudy(cluster, store)
    frames = []
    for now in range(0, 1211, 10):
        ((_, frame),) = study.judge(Span(T0 + max(now - 310, 0), T0 + max(now - 300, 0), T0 + now, T0 + now), ())
        frames.append(frame)
    keys = [WINDOW, *schema.BREACH.tags]
    live = pl.concat(frames).unique(keys, keep="last").sort(keys)
    ((_, later),) = BreachStudy(cluster, store).judge(Span(T0, T0 + 1210, T0 + 1210, T0 + 1210), ())
    assert live.equals(later)
    assert later.height > 100
