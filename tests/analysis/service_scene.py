"""A cluster with inference, storage and links, whose rollups tests write into a real InfluxDB, as a bridge would."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from zoneinfo import ZoneInfo

import polars as pl

from analysis.detectors.study import Span, Study
from analysis.writing import Output, gathered
from cluster.model import (
    BridgeSettings,
    Cluster,
    DeclaredTransport,
    Exporter,
    ExportProtocol,
    Group,
    GroupPair,
    Interface,
    Job,
    Node,
    NodeAddress,
    PairLimit,
    Plane,
    Role,
    Site,
    StoreSettings,
    Transport,
)
from cluster.sections.network.services import WELL_KNOWN
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, batches
from store.schema import Measurement

GBIT = 1_000_000_000


def cluster_of(url: str, database: str, zone: str = "Europe/Amsterdam") -> Cluster:
    def group(name: str, role: Role, prefix: str) -> Group:
        return Group(name, name.title(), role, (ip_network(prefix),))

    return Cluster(
        name="service",
        site=Site(ZoneInfo(zone)),
        groups=(
            group("training", Role.TRAINING, "10.20.0.0/16"),
            group("storage", Role.STORAGE, "10.30.0.0/16"),
            group("inference", Role.INFERENCE, "10.50.0.0/24"),
            group("users", Role.CUSTOM, "10.70.0.0/16"),
        ),
        nodes=(
            Node("nas-1", "storage", (NodeAddress(ip_address("10.30.0.1")),), speed=100 * GBIT),
            Node("nas-2", "storage", (NodeAddress(ip_address("10.30.0.2")),)),
        ),
        exporters=(
            Exporter(
                "leaf-1", ip_address("10.0.0.1"), ExportProtocol.SFLOW,
                interfaces=(
                    Interface(1, "rail0", Plane.COMPUTE, speed=400 * GBIT),
                    Interface(49, "uplink", Plane.COMPUTE, counts=False, speed=800 * GBIT),
                ),
            ),
        ),
        allowed=(GroupPair("users", "inference"), GroupPair("training", "storage"), GroupPair("users", "*")),
        transport=(DeclaredTransport(GroupPair("training", "training"), Transport.ROCE),),
        capacity=(PairLimit(GroupPair("training", "storage"), 200 * GBIT),),
        services=WELL_KNOWN,
        store=StoreSettings(url=url, database=database, keep_raw=30 * 86_400),
        bridge=BridgeSettings(state="."),
    )  # fmt: skip


@dataclass
class Scene:
    """A store and its cluster."""

    cluster: Cluster
    store: Store

    def write(
        self,
        measurement: Measurement,
        tags: Mapping[str, str],
        moments: Iterable[int],
        retention: str,
        **fields: float | Sequence[float],
    ) -> None:
        """Write one series; a number stands for the same in every window."""  # fmt: skip
        windows = list(moments)
        columns = {
            name: value if isinstance(value, Sequence) else [value] * len(windows) for name, value in fields.items()
        }
        frame = pl.DataFrame({WINDOW: windows, **columns}).with_columns(
            pl.lit(value).alias(tag) for tag, value in ({schema.SHARD: "0"} | dict(tags)).items()
        )
        for lines, _ in batches(measurement, frame):
            self.store.write(lines, retention)

    def hear(self, moments: Iterable[int], retention: str) -> None:
        """Say that an exporter was heard."""
        self.write(schema.EXPORTER_STATUS, {schema.EXPORTER: "leaf-1"}, moments, retention, records=100)

    def rows(self, measurement: Measurement) -> list[dict[str, object]]:
        """Return the stored rows in order of time and tags, times in seconds."""
        frame = self.store.frame(f'SELECT * FROM "{measurement.kept}"."{measurement.name}"')
        if frame.is_empty():
            return []
        frame = frame.with_columns(pl.col("time") // 1000)
        tags = [tag for tag in measurement.tags if tag in frame.columns]
        return frame.sort("time", *tags).to_dicts()


def run(scene: Scene, study: Study, start: int, stop: int, step: int, *, jobs: Sequence[Job] = ()) -> None:
    """Judge a range in passes as a re-run does: everything is final."""
    output = Output(scene.store)
    for position in range(start, stop, step):
        upto = min(position + step, stop)
        judge_once(output, study, Span(position, upto, upto, upto), jobs)


def follow(
    scene: Scene, study: Study, start: int, stop: int, step: int, *, grace: int = 300, jobs: Sequence[Job] = ()
) -> None:
    """Judge a range tick by tick as a live analysis does: what is younger than the grace is judged again."""
    output = Output(scene.store)
    position = start
    for closed in range(start, stop + grace + step, step):
        final = max(position, closed - grace)
        judge_once(output, study, Span(position, final, min(closed, stop), closed + 20), jobs)
        position = final


def judge_once(output: Output, study: Study, span: Span, jobs: Sequence[Job] = ()) -> None:
    """Judge as in one pass of the analyser, and write what changed."""
    frames = gathered(study.judge(span, jobs))
    for measurement in study.measurements:
        output.update(measurement, frames.get(measurement.name), span.start, span.final)
    output.flush()


@contextmanager
def opened(server: LocalInfluxDB, database: str, zone: str = "Europe/Amsterdam") -> Iterator[Scene]:
    cluster = cluster_of(server.url, database, zone)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    yield Scene(cluster, store)
    store.close()
