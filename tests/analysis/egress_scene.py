"""A month of egress in a real InfluxDB, as a bridge would have left it: base windows of a week, rollups of all."""

import threading
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import scene

from app.log import Log
from cluster.model import (
    Artefact,
    BridgeSettings,
    Cluster,
    Group,
    Node,
    NodeAddress,
    Retention,
    Role,
    Site,
    StoreSettings,
)
from ingest.counters import Counters
from ingest.rollup import Rollup
from ingest.writer import Writer
from store import schema
from store.influx import Store
from store.points import WINDOW

NOW = 1_780_000_000 // 3600 * 3600
"""2026-05-28, a whole hour. A fixed day: nothing here depends on the clock."""

DAY, HOUR = 86_400, 3_600

TALK = (
    schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE, schema.OFF_HOURS,
    schema.INITIATOR,
)  # fmt: skip
COLUMNS: dict[str, pl.DataType] = {WINDOW: pl.Int64(), **dict.fromkeys(TALK, pl.String()), "bytes": pl.Int64()}


def cluster_of(url: str, database: str, state: str = ".", **changes: object) -> Cluster:
    """Model storage, training and a partner; Amsterdam time; three artefacts."""

    def nodes(group: str, prefix: str, names: list[str]) -> tuple[Node, ...]:
        return tuple(
            Node(name, group, (NodeAddress(ip_address(f"{prefix}.{number + 1}")),)) for number, name in enumerate(names)
        )

    found = Cluster(
        name="month",
        groups=(
            Group("models", "Model Storage", Role.MODEL_STORAGE, (ip_network("10.40.0.0/24"),)),
            Group("training", "GPU Training Nodes", Role.TRAINING, (ip_network("10.20.0.0/16"),)),
            Group("partner", "Partner Labs", Role.APPROVED_EXTERNAL, (ip_network("198.51.100.0/24"),)),
        ),
        site=Site(ZoneInfo("Europe/Amsterdam")),
        nodes=(
            *nodes("models", "10.40.0", ["store-1", "store-2"]),
            *nodes("training", "10.20.0", [f"gpu-{number}" for number in range(4)]),
        ),
        artefacts=(Artefact("adapter", 10**9), Artefact("llama-70b", 141 * 10**9), Artefact("llama-405b", 810 * 10**9)),
        store=StoreSettings(url=url, database=database),
        bridge=BridgeSettings(state=state),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def talk(src: str, dst: str, *, service: str = "https", initiator: str = schema.BY_SOURCE) -> dict[str, str]:
    """Return the tags of a conversation."""
    group = "models" if src.startswith("store") else "training"
    outside = "partner" if dst.startswith("198.51.100.") else "external"
    names = (src, group, dst, outside, "tcp", service, schema.NO, initiator)
    return dict(zip(TALK, names, strict=True))


def sent(tags: dict[str, str], windows: np.ndarray, volume: np.ndarray) -> pl.DataFrame:
    """Return rows of a conversation, COLUMNS."""
    frame = pl.DataFrame({WINDOW: windows.astype(np.int64), "bytes": volume.astype(np.int64)})
    return frame.with_columns(pl.lit(value).alias(name) for name, value in tags.items()).select(*COLUMNS)


@dataclass(frozen=True)
class Month:
    """What was sent, and the store that holds it."""

    truth: pl.DataFrame
    store: Store

    def total(self, src: str, dst: str, start: int, stop: int) -> int:
        """Return what a source sent to a destination in [start, stop)."""
        rows = self.truth.filter(
            pl.col(schema.SRC) == src, pl.col(schema.DST) == dst, pl.col(WINDOW) >= start, pl.col(WINDOW) < stop
        )
        return int(rows.get_column("bytes").sum())


def store_month(cluster: Cluster, truth: pl.DataFrame, *, raw_from: int, minutes_from: int = 0) -> Month:
    """Write base windows, roll them up as the bridge does, and forget what the retentions would have forgotten."""
    full = Store(replace(cluster.store, database=f"{cluster.store.database}_all"))
    forever = tuple(Retention(one.name, one.window, 0) for one in cluster.retentions())
    full.ensure(forever)
    # Two bridges share the work: their partial totals add up.
    for shard, part in (("0", truth.gather_every(2)), ("b", truth.gather_every(2, 1))):
        writer = Writer(full, forever, shard=shard, counters=Counters(), stop=threading.Event(), log=Log(as_json=False))
        writer.write(schema.EGRESS, part, schema.RAW)
        rollup = Rollup(full, writer, forever, shard)
        if part.height:
            first, last = int(part.get_column(WINDOW).min()), int(part.get_column(WINDOW).max())  # type: ignore[arg-type]
            # All minutes in a row: a few long queries instead of one for each that has bytes.
            rollup.touch(pl.Series(range(first // 60 * 60, last + 60, 60)))
            rollup.run()
    kept = Store(cluster.store)
    kept.ensure(forever)
    for retention, first in ((schema.RAW, raw_from), (schema.MINUTE, minutes_from), (schema.HOUR, 0)):
        frame = full.frame(f'SELECT * FROM "{retention}"."{schema.EGRESS.name}" WHERE time >= {first}s')
        frame = frame.with_columns((pl.col("time") // 1000).alias(WINDOW)).drop("time")
        scene.write(kept, schema.EGRESS, frame, retention)
    full.close()
    return Month(truth, kept)
