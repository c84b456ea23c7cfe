"""A small cluster whose windows tests write into a real InfluxDB, as a bridge would have."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network

import numpy as np
import polars as pl

from cluster.model import (
    BridgeSettings,
    Cluster,
    Exporter,
    Group,
    Interface,
    Job,
    Node,
    NodeAddress,
    Plane,
    Role,
    StoreSettings,
    Thresholds,
)
from store import schema
from store.influx import Store
from store.points import WINDOW, encode
from store.schema import Kind, Measurement

NODES = tuple(f"gpu-{number}" for number in range(6))
RATE = 10_000_000_000
RUN = 600
"""Seconds of an earlier run."""

Change = Callable[[np.ndarray, np.ndarray], None]
"""Changes [window, node] bytes in place; the second argument is the windows' starts."""


def cluster_of(url: str, database: str, state: str = "", jobs: tuple[Job, ...] = ()) -> Cluster:
    nodes = tuple(
        Node(name, "training", (NodeAddress(ip_address(f"10.20.0.{number + 1}")),)) for number, name in enumerate(NODES)
    )
    compute = (Interface(1, "compute-rail0", Plane.COMPUTE),)
    return Cluster(
        name="scene",
        groups=(
            Group("training", "GPU Training Nodes", Role.TRAINING, (ip_network("10.20.0.0/16"),)),
            Group("approved", "Approved", Role.APPROVED_EXTERNAL, (ip_network("198.51.100.0/24"),)),
        ),
        nodes=nodes,
        exporters=(
            Exporter("leaf-1", ip_address("10.0.0.1"), interfaces=compute),
            Exporter("leaf-2", ip_address("10.0.0.2"), interfaces=compute),
            Exporter("border", ip_address("10.0.0.3")),
        ),
        jobs=jobs,
        thresholds=Thresholds(contact_learning=0),
        store=StoreSettings(url=url, database=database),
        bridge=BridgeSettings(state=state or "."),
    )


def job(name: str, start: float, end: float | None = None) -> Job:
    stop = None if end is None else datetime.fromtimestamp(end, UTC)
    return Job(name, "llm", NODES, datetime.fromtimestamp(start, UTC), stop)


def earlier_runs(start: int, count: int = 4) -> tuple[Job, ...]:
    """Runs of ten minutes with ten minutes between them, the last of which ends ten minutes before `start`."""
    begins = [start - (number + 1) * 2 * RUN for number in reversed(range(count))]
    return tuple(job(f"run-{number}", begin, begin + RUN) for number, begin in enumerate(begins))


def with_jobs(cluster: Cluster, *jobs: Job) -> Cluster:
    return replace(cluster, jobs=jobs)


def write(store: Store, measurement: Measurement, frame: pl.DataFrame, retention: str = schema.RAW) -> None:
    lines = encode(measurement, frame)
    if lines:
        store.write(lines, retention)


def write_training(
    store: Store,
    start: int,
    stop: int,
    change: Change | None = None,
    silent: dict[str, tuple[int, int]] | None = None,
    *,
    shard: str = "0",
) -> None:
    """Write what nodes sent in [start, stop), and that the leaves saw it; the same window has always the same bytes.

    A node without bytes has no row. `silent`: exporter -> the range in which it has none either.
    """
    starts = np.arange(start, stop, 10)
    sent = np.array([usual_bytes(int(window)) for window in starts])
    if change:
        change(sent, starts)
    rows = pl.DataFrame(
        {
            WINDOW: np.repeat(starts, len(NODES)),
            schema.NODE: list(NODES) * len(starts),
            schema.TX_BYTES.name: sent.ravel().astype(np.int64),
        }
    ).with_columns(
        pl.lit("training").alias(schema.GROUP),
        pl.lit("training").alias(schema.PEER_GROUP),
        pl.lit("compute").alias(schema.PLANE),
        pl.lit(shard).alias(schema.SHARD),
        (pl.col(schema.TX_BYTES.name) // 1500).alias(schema.TX_PACKETS.name),
    )
    # What nodes send elsewhere is none of the cohort's business.
    elsewhere = rows.with_columns(
        pl.lit("storage").alias(schema.PEER_GROUP), pl.lit(77, pl.Int64).alias(schema.TX_BYTES.name)
    )
    write(store, schema.NODE_TRAFFIC, pl.concat([rows.filter(pl.col(schema.TX_BYTES.name) > 0), elsewhere]))
    heard = [
        (int(window), name, shard, RATE, 1)
        for name in ("leaf-1", "leaf-2")
        for first, last in [(silent or {}).get(name, (0, 0))]
        for window in starts
        if not first <= window < last
    ]
    columns = [WINDOW, schema.EXPORTER, schema.SHARD, schema.EXPORTER_BYTES.name, schema.SAMPLING.name]
    write(store, schema.EXPORTER_STATUS, pl.DataFrame(heard, schema=columns, orient="row"))


def usual_bytes(window: int) -> np.ndarray:
    """Return what each node sends in a window when nothing is wrong."""
    rng = np.random.default_rng(window)
    return RATE * rng.normal(1.0, 0.1) * rng.normal(1.0, 0.004, len(NODES))


def write_egress(
    store: Store,
    *rows: tuple[int, str, str, int],
    retention: str = schema.RAW,
    initiator: str = schema.BY_SOURCE,
    shard: str = "0",
) -> None:
    """Write conversations (window, source, destination, bytes) with the outside: tcp/https, 4 s."""
    frame = pl.DataFrame(
        [
            (at, src, "training", dst, "external", "tcp", "https", "no", initiator, shard, sent, 4.0)
            for at, src, dst, sent in rows
        ],
        schema=[
            WINDOW,
            schema.SRC,
            schema.SRC_GROUP,
            schema.DST,
            schema.DST_GROUP,
            schema.PROTO,
            schema.SERVICE,
            schema.OFF_HOURS,
            schema.INITIATOR,
            schema.SHARD,
            schema.BYTES.name,
            schema.DURATION.name,
        ],
        orient="row",
    )
    write(store, schema.EGRESS, frame, retention)


def stored(store: Store, measurement: Measurement) -> pl.DataFrame:
    """Return all raw points of a measurement, in order."""
    frame = store.frame(f'SELECT * FROM "{measurement.kept}"."{measurement.name}"')
    if frame.is_empty():
        return frame
    tags = [tag for tag in measurement.tags if tag in frame.columns]
    floats = [one.name for one in measurement.fields if one.kind is Kind.FLOAT and one.name in frame.columns]
    # A float that is whole comes back as a whole number.
    return frame.with_columns(pl.col(floats).cast(pl.Float64)).select(sorted(frame.columns)).sort("time", *tags)


def forget_verdicts(store: Store) -> None:
    """Remove what the analysis wrote."""
    for measurement in schema.MEASUREMENTS:
        if measurement.origin != "analysis":
            continue
        store.query(f'DROP MEASUREMENT "{measurement.name}"')
