"""Odd ways out on a real InfluxDB: each is one incident by its own name; what looks like it and is ordinary is none."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network

import egress_scene as month
import numpy as np
import polars as pl
import pytest
import scene
from egress_scene import DAY, HOUR, NOW, TALK

from analysis.detectors.egress.history import EgressHistory
from analysis.detectors.egress.shapes import ShapeStudy
from analysis.detectors.study import Span
from cluster.model import Cluster, Group, Retention, Role
from cluster.sections.network.services import WELL_KNOWN
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW
from store.schema import Shape

DURATION = schema.DURATION.name
COLUMNS = (WINDOW, *TALK, "bytes", DURATION)
MANY = tuple(f"203.0.113.{number}" for number in range(20, 60))


def cluster_of(influxdb: LocalInfluxDB, database: str) -> Cluster:
    plain = month.cluster_of(influxdb.url, database)
    inference = Group("inference", "Inference", Role.INFERENCE, (ip_network("10.50.0.0/24"),))
    return replace(plain, groups=(*plain.groups, inference), services=WELL_KNOWN)


def talk(src: str, dst: str, proto: str = "tcp", service: str = "https", *, answers: bool = False) -> dict[str, str]:
    group = {"store": "models", "infer": "inference"}.get(src.partition("-")[0], "training")
    outside = "partner" if dst.startswith("198.51.100.") else "external"
    initiator = schema.BY_DESTINATION if answers else schema.BY_SOURCE
    return dict(zip(TALK, (src, group, dst, outside, proto, service, schema.NO, initiator), strict=True))


def sent(pairs: Sequence[dict[str, str]], volume: float, seconds: int, *, open_for: float = 60.0) -> pl.DataFrame:
    """Return minutes from NOW on: equal parts over pairs and time; `open_for` of each minute the connection sends."""
    windows = NOW + np.arange(0, seconds, 60)
    each = int(volume / len(pairs) / len(windows))
    frames = []
    for tags in pairs:
        frame = pl.DataFrame({WINDOW: windows.astype(np.int64)}).with_columns(
            pl.lit(each, pl.Int64).alias("bytes"), pl.lit(open_for).alias(DURATION)
        )
        frames.append(frame.with_columns(pl.lit(value).alias(name) for name, value in tags.items()).select(*COLUMNS))
    return pl.concat(frames)


def put(cluster: Cluster, truth: pl.DataFrame) -> Store:
    """Store minutes in all three retentions, as rollups would hold them."""
    store = Store(cluster.store)
    store.ensure(tuple(Retention(one.name, one.window, 0) for one in cluster.retentions()))
    hours = (
        truth.with_columns(pl.col(WINDOW) // HOUR * HOUR)
        .group_by(WINDOW, *TALK)
        .agg(pl.col("bytes").sum(), pl.col(DURATION).sum())
    )
    for retention, frame in ((schema.RAW, truth), (schema.MINUTE, truth), (schema.HOUR, hours)):
        scene.write(store, schema.EGRESS, frame.select(*COLUMNS).sort(WINDOW), retention)
    return store


def study_of(cluster: Cluster, store: Store) -> ShapeStudy:
    return ShapeStudy(cluster, store, EgressHistory(cluster, store))


def judged(study: ShapeStudy, start: int, stop: int, step: int = 4 * HOUR) -> pl.DataFrame:
    """Return the rows of a run over the past."""
    frames = []
    for at in range(start, stop, step):
        end = min(at + step, stop)
        frames += [frame for _, frame in study.judge(Span(at, end, end, end), ())]
    return pl.concat(frames)


@dataclass(frozen=True)
class Way:
    """One way out: what it is called, who is named, how much is gone when it is told at most (bytes)."""

    pairs: tuple[dict[str, str], ...]
    kind: Shape
    name: tuple[str, str]
    gone: float
    volume: float = 12e9
    seconds: int = 6 * HOUR


WAYS = {
    "gre": Way((talk("store-1", MANY[0], "gre", "other"),), Shape.TUNNEL, ("store-1", MANY[0]), 1.3e9),
    "esp": Way((talk("gpu-1", MANY[0], "esp", "other"),), Shape.TUNNEL, ("gpu-1", MANY[0]), 1.3e9),
    "an unusual protocol": Way((talk("gpu-1", MANY[0], "97", "other"),), Shape.TUNNEL, ("gpu-1", MANY[0]), 1.3e9),
    "quic": Way((talk("infer-1", MANY[0], "udp", "quic"),), Shape.TUNNEL, ("infer-1", MANY[0]), 1.3e9),
    "ipip, ipv6 inside, many ends": Way(
        tuple(talk(f"gpu-{n % 4}", dst, ("ipip", "ipv6")[n % 2], "other") for n, dst in enumerate(MANY)),
        Shape.TUNNEL, ("other", "other"), 1.3e9,
    ),
    "dns": Way((talk("store-1", MANY[0], "udp", "dns"),), Shape.COVERT, ("store-1", MANY[0]), 0.4e9),
    "ntp": Way((talk("store-1", MANY[0], "udp", "ntp"),), Shape.COVERT, ("store-1", MANY[0]), 0.4e9),
    "icmp": Way((talk("store-1", MANY[0], "icmp", "other"),), Shape.COVERT, ("store-1", MANY[0]), 0.4e9),
    "a port without a service": Way(
        (talk("gpu-2", MANY[0], "tcp", "other"),), Shape.NO_SERVICE, ("gpu-2", MANY[0]), 1.3e9
    ),
    "an outsider fetches": Way(
        (talk("store-1", MANY[0], answers=True),), Shape.PULL, ("store-1", MANY[0]), 2.4e9, volume=20e9
    ),
    "many outsiders fetch": Way(
        tuple(talk("store-1", dst, answers=True) for dst in MANY), Shape.PULL, ("store-1", "other"), 2.4e9, volume=20e9
    ),
    "open for a day": Way(
        (talk("store-1", MANY[0], "tcp", "ssh"),), Shape.STEADY, ("store-1", MANY[0]), 4e9, volume=5e9, seconds=DAY
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_an_odd_way_out_is_one_incident(influxdb_v1: LocalInfluxDB, fresh_database: str, name: str) -> None:
    way = WAYS[name]
    cluster = cluster_of(influxdb_v1, fresh_database)
    truth = sent(way.pairs, way.volume, way.seconds)
    store = put(cluster, truth)
    found = judged(study_of(cluster, store), NOW - HOUR, NOW + DAY + 4 * HOUR)
    store.close()
    begins = found.unique(list(schema.SHAPE.tags), keep="first", maintain_order=True)
    assert begins.get_column(schema.KIND).to_list() == [way.kind.value]
    first = begins.row(0, named=True)
    assert (first[schema.SRC], first[schema.DST]) == way.name
    gone = truth.filter(pl.col(WINDOW) < first[WINDOW]).get_column("bytes").sum()
    assert 0 < gone <= way.gone
    # In the end it has every byte, but those of hours that are not whole yet.
    least = 0.85 if way.kind is Shape.STEADY else 0.999
    assert least * way.volume <= found[-1, schema.EVENT_BYTES.name] <= 1.001 * way.volume
    # It is open for long after its last byte, and lasted no longer for that.
    late = 2 * HOUR if way.kind is Shape.STEADY else 0
    assert found[-1, schema.EVENT_SECONDS.name] <= way.seconds + late


def test_a_second_groups_way_out_beneath_an_open_incident_has_its_own_source(
    influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    """Two tunnels at once, of two groups: each has its own names, and its own bytes once."""
    cluster = cluster_of(influxdb_v1, fresh_database)
    volumes = {"store-1": 50e9, "gpu-2": 10e9}
    pairs = (talk(src, dst, "gre", "other") for src, dst in zip(volumes, MANY, strict=False))
    store = put(cluster, pl.concat([sent((pair,), volumes[pair[schema.SRC]], 3 * HOUR) for pair in pairs]))
    found = judged(study_of(cluster, store), NOW - HOUR, NOW + 6 * HOUR)
    store.close()
    assert found.select(schema.SRC, schema.DST).unique(maintain_order=True).rows() == [
        *zip(volumes, MANY, strict=False)
    ]
    for src, volume in volumes.items():
        told = found.filter(pl.col(schema.SRC) == src)[-1, schema.EVENT_BYTES.name]
        assert told == pytest.approx(volume, rel=0.01)


NEAR_MISSES = {
    "an approved VPN": sent((talk("store-1", "198.51.100.7", "esp", "other"),), 40e9, DAY),
    "a tunnel that carries keepalives": sent((talk("gpu-1", MANY[0], "gre", "other"),), 0.2e9, DAY),
    "a resolver that asks for everybody": sent((talk("gpu-1", MANY[0], "udp", "dns"),), 15e6 * 24, DAY, open_for=9.0),
    "time of 2,000 nodes": sent((talk("gpu-1", MANY[0], "udp", "ntp"),), 240e6, DAY, open_for=30.0),
    "a health check that pings": sent((talk("gpu-1", MANY[0], "icmp", "other"),), 10e6, DAY, open_for=1.0),
    "answers of inference": sent((talk("infer-1", MANY[0], answers=True),), 30e9, 6 * HOUR),
    "downloads: what acknowledges them leaves": sent((talk("gpu-1", MANY[0], "udp", "quic"),), 0.8e9 * 6, 6 * HOUR),
    "an outsider who fetches little": sent((talk("store-1", MANY[0], answers=True),), 1.8e9 * 6, 6 * HOUR),
    "a partner who fetches": sent((talk("store-1", "198.51.100.7", answers=True),), 40e9, 6 * HOUR),
    "routers at the border": sent((talk("gpu-1", MANY[0], "ospf", "other"),), 9e9, 6 * HOUR),
    "telemetry each minute": sent((talk("gpu-1", MANY[0]),), 6e9, DAY, open_for=2.0),
    "a connection that is open and idle": sent((talk("gpu-1", MANY[0], "tcp", "ssh"),), 0.1e9, DAY),
    "a transfer of eleven hours": sent((talk("gpu-1", MANY[0]),), 9e9, 11 * HOUR),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_ordinary_is_none(influxdb_v1: LocalInfluxDB, fresh_database: str, name: str) -> None:
    cluster = cluster_of(influxdb_v1, fresh_database)
    store = put(cluster, NEAR_MISSES[name])
    found = judged(study_of(cluster, store), NOW - HOUR, NOW + DAY + 4 * HOUR)
    store.close()
    assert found.is_empty(), found.select(WINDOW, schema.KIND, schema.SRC, schema.EVENT_BYTES.name)


def test_a_rate_that_follows_somebodys_day_is_not_steady(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    cluster = cluster_of(influxdb_v1, fresh_database)
    even = sent((talk("gpu-1", MANY[0]),), 9e9, DAY)
    hour = (pl.col(WINDOW) // HOUR % 24).cast(pl.Float64)
    waves = even.with_columns((pl.col("bytes") * (1 + 0.8 * (hour / 24 * 2 * np.pi).sin())).cast(pl.Int64))
    store = put(cluster, waves)
    assert judged(study_of(cluster, store), NOW - HOUR, NOW + DAY + 4 * HOUR).is_empty()
    store.close()


def test_live_ticks_with_a_restart_and_a_later_run_agree(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """What a process wrote is all that the next one knows of open incidents and of what is reported."""
    cluster = cluster_of(influxdb_v1, fresh_database)
    gre = sent((talk("store-1", MANY[0], "gre", "other"),), 12e9, 6 * HOUR)
    pull = sent((talk("gpu-1", MANY[3], answers=True),), 30e9, 6 * HOUR)
    store = put(cluster, pl.concat([gre, pull]))
    middle, stop = NOW + 3 * HOUR - 600, NOW + 4 * HOUR
    later = judged(study_of(cluster, store), NOW - HOUR, stop)
    scene.write(store, schema.SHAPE, later.filter(pl.col(WINDOW) < middle), schema.SHAPE.kept)
    wanted = later.filter(pl.col(WINDOW) >= middle).sort(WINDOW, schema.KIND)
    assert judged(study_of(cluster, store), middle, stop).sort(WINDOW, schema.KIND).equals(wanted)
    live, frames = study_of(cluster, store), []
    for now in range(middle + 300, stop + 600, 40):
        span = Span(max(now - 340, middle), max(now - 300, middle), now, now + 20)
        frames += [frame for _, frame in live.judge(span, ())]
    seen = pl.concat(frames).unique([WINDOW, *schema.SHAPE.tags], keep="last").sort(WINDOW, schema.KIND)
    assert seen.filter(pl.col(WINDOW) < stop).equals(wanted)
    assert wanted.get_column(schema.KIND).n_unique() == 2
    store.close()
