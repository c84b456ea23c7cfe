"""A month of egress in a real InfluxDB, as a bridge would have left it: base windows of a week, rollups of all."""

import threading
from dataclasses import dataclass, replace

import polars as pl
import scene

from app.log import Log
from bench.evasions.scene import COLUMNS, DAY, HOUR, NOW, TALK, sent
from bench.evasions.scene import month_of as cluster_of
from cluster.model import Cluster, Retention
from ingest.counters import Counters
from ingest.rollup import Rollup
from ingest.writer import Writer
from store import schema
from store.influx import Store
from store.points import WINDOW

__all__ = ("COLUMNS", "DAY", "HOUR", "NOW", "TALK", "Month", "cluster_of", "sent", "store_month", "talk")


def talk(src: str, dst: str, *, service: str = "https", initiator: str = schema.BY_SOURCE) -> dict[str, str]:
    """Return the tags of a conversation."""
    group = "models" if src.startswith("store") else "training"
    outside = "partner" if dst.startswith("198.51.100.") else "external"
    names = (src, group, dst, outside, "tcp", service, schema.NO, initiator)
    return dict(zip(TALK, names, strict=True))


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
