"""What the analysis reads beside the windows of jobs: base windows and rollups as arrays and frames.

Times are epoch seconds, ranges are [start, stop) in whole windows.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.detectors.egress.contacts import CONTACT_COLUMNS, DIGEST, EGRESS_COLUMNS, FIRST_SEEN, NEW, PAIR
from analysis.window_reader import WindowReader
from cluster.model import Cluster
from store import schema
from store.influx import Store
from store.influxql import Select, all_of, compare, earliest, highest, is_in, lowest, newest, not_in, total
from store.points import WINDOW, columns
from store.schema import Stage
from store.sums import first_seen, first_seen_frames, sent_in, windows

_FIRST_EGRESS = Select(schema.EGRESS, schema.RAW).take(earliest(schema.BYTES))


class Reader:
    """Asks one store about one cluster.

    Args:
        store: where the windows are.
        cluster: whose groups and exporters count.

    Attributes:
        store: asked by those who need another form of answer.
        windows: reads the windows of jobs.
    """

    def __init__(self, store: Store, cluster: Cluster) -> None:
        self.store = store
        self._store, self._cluster = store, cluster
        self._opened_inside = all_of(
            is_in(schema.INITIATOR, [schema.BY_SOURCE]), not_in(schema.SRC_GROUP, cluster.stranger_ids())
        )
        self.windows = WindowReader(store, cluster)

    def compute_heard(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return [window, exporter] whether the flows of the compute plane's exporters hold bytes."""
        return self.windows.compute_heard(start, stop)

    def storage_heard(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return [window, exporter] whether the flows of the storage plane's exporters hold bytes."""
        return self.windows.storage_heard(start, stop)

    def egress(self, start: int, stop: int) -> pl.DataFrame:
        """Return the conversations that sources inside opened, EGRESS_COLUMNS.

        Parts of one conversation (of several bridges) run at the same time: of their durations the longest counts.
        """
        tags = (
            schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE, *schema.LABELS,
        )  # fmt: skip
        asked = Select(schema.EGRESS, schema.RAW).take(total(schema.BYTES), highest(schema.DURATION))
        asked = asked.where(self._opened_inside).by(*tags).between(start, stop)
        return sent_in(windows(self._store, asked), EGRESS_COLUMNS)

    def newest_window(self, start: int, stop: int) -> int | None:
        """Return the start of the newest window of the range that any exporter's flows reach; None if there is none."""
        heard = compare(schema.EXPORTER_BYTES, ">", 0)
        asked = Select(schema.EXPORTER_STATUS, schema.RAW).take(newest(schema.EXPORTER_BYTES)).where(heard)
        return next((moment for moment, _ in self._store.rows(asked.between(start, stop))), None)

    def earliest_egress(self) -> int | None:
        """Return the start of the oldest egress window in any retention."""
        found = first_seen(self._store, self._cluster.retentions(), _FIRST_EGRESS)
        return min((moment for moment, _ in found), default=None)

    def contacts_before(self, moment: int) -> pl.DataFrame:
        """Return every pair that any retention has seen in a window that ended by then, CONTACT_COLUMNS, none new."""
        there = _FIRST_EGRESS.where(self._opened_inside, compare(schema.BYTES, ">", 0))
        there = there.by(schema.SRC, schema.DST, schema.SRC_GROUP, schema.DST_GROUP)
        first = pl.col(WINDOW).alias(FIRST_SEEN)
        learnt = [pl.lit("").alias(schema.PROTO), pl.lit("").alias(schema.SERVICE), first]
        learnt += [pl.lit(0, pl.Int64).alias(name) for name in (NEW, DIGEST)]
        found = [
            frame.with_columns(*learnt).select(*CONTACT_COLUMNS)
            for frame in first_seen_frames(self._store, self._cluster.retentions(), there, moment)
        ]
        return pl.concat(found).sort(FIRST_SEEN, *CONTACT_COLUMNS).unique(PAIR, keep="first", maintain_order=True)

    def events_before(self, moment: int) -> pl.DataFrame:
        """Return the pairs that an earlier analysis called new before a moment: source, destination, when."""
        asked = Select(schema.CONTACT, schema.RAW).take(lowest(schema.CONTACT_FIRST)).by(schema.SRC, schema.DST)
        asked = asked.where(compare(schema.CONTACT_NEW, "=", 1)).between(stop=moment)
        rows = [(src, dst, int(first)) for _, src, dst, first in self._store.rows(asked)]
        kinds = {schema.SRC: pl.String(), schema.DST: pl.String(), FIRST_SEEN: pl.Int64()}
        return pl.DataFrame(rows, schema=kinds, orient="row")

    def last_heartbeat(self, stop: int | None = None) -> int | None:
        """Return up to when an earlier analysis had judged, epoch seconds; None if there never was one.

        Args:
            stop: heartbeats from here on do not count: those of the future are of a clock that was ahead.
        """
        of_analysis = is_in(schema.STAGE, [Stage.ANALYSIS]), is_in(schema.REASON, [schema.HEARTBEAT])
        asked = Select(schema.PIPELINE, schema.RAW).take(newest(schema.VALUE)).where(*of_analysis)
        return next((int(moment - lag) for moment, lag in self._store.rows(asked.between(stop=stop))), None)


def with_events(contacts: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Return contacts in which those that were called new before are new again, from when they were."""
    event = f"{FIRST_SEEN}_event"
    return (
        contacts.join(events.rename({FIRST_SEEN: event}), on=[schema.SRC, schema.DST], how="left")
        .with_columns(
            pl.when(pl.col(event).is_not_null()).then(1).otherwise(pl.col(NEW)).alias(NEW),
            pl.coalesce(event, FIRST_SEEN).alias(FIRST_SEEN),
        )
        .select(pl.col(name).cast(kind) for name, kind in CONTACT_COLUMNS.items())
    )


def heartbeat(moment: int, shard: str, values: Mapping[str, float]) -> pl.DataFrame:
    """Return the rows of a tick for ``encode(schema.PIPELINE, ...)``: reason -> value."""
    rows = [(moment, Stage.ANALYSIS.value, reason, shard, value) for reason, value in values.items()]
    kinds = columns(schema.STAGE, schema.REASON, schema.SHARD, schema.VALUE)
    return pl.DataFrame(rows, schema=kinds, orient="row")
