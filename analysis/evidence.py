"""What the analysis reads beside the windows of jobs: base windows and rollups as arrays and frames.

Times are epoch seconds, ranges are [start, stop) in whole windows.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.contacts import CONTACT_COLUMNS, EGRESS_COLUMNS, FIRST_SEEN, NEW
from analysis.windows import WindowReader
from cluster import schema
from cluster.model import Cluster
from cluster.schema import Field, Measurement, Stage
from ingest.points import WINDOW
from ingest.store import Series, Store

_MILLI = 1000


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
        self._window = cluster.bridge.window
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
        text = (
            f'SELECT {_sum(schema.BYTES)}, max("{schema.DURATION.name}") FROM {_raw(schema.EGRESS)} '  # noqa: S608
            f"WHERE \"{schema.INITIATOR}\" = '{schema.BY_SOURCE}' AND {_within(start, stop)} "
            f"GROUP BY time({self._window}s), {_tags(tags)} fill(none)"
        )
        rows = [
            (int(moment) // _MILLI, *(series.tags[tag] for tag in tags), int(sent), float(seconds or 0.0))
            for series in self._store.query(text)
            for moment, sent, seconds in series.values
            if sent
        ]
        return pl.DataFrame(rows, schema=EGRESS_COLUMNS, orient="row")

    def newest_window(self, start: int, stop: int) -> int | None:
        """Return the start of the newest window of the range that any exporter's flows reach; None if there is none."""
        name = schema.EXPORTER_BYTES.name
        text = (
            f'SELECT last("{name}") FROM {_raw(schema.EXPORTER_STATUS)} WHERE "{name}" > 0 AND {_within(start, stop)}'  # noqa: S608
        )
        return _moment(self._store.query(text))

    def earliest_egress(self) -> int | None:
        """Return the start of the oldest egress window in any retention."""
        name = schema.BYTES.name
        moments = [
            _moment(self._store.query(f'SELECT first("{name}") FROM {_in(schema.EGRESS, retention.name)}'))  # noqa: S608
            for retention in self._cluster.retentions()
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def contacts_before(self, moment: int) -> pl.DataFrame:
        """Return every pair that any retention has seen in a window that ended by then, CONTACT_COLUMNS, none new."""
        tags = (schema.SRC, schema.DST, schema.SRC_GROUP, schema.DST_GROUP)
        rows = []
        for retention in self._cluster.retentions():
            # A rolled-up window that is not over yet may hold what comes after the moment.
            text = (
                f'SELECT first("{schema.BYTES.name}") FROM {_in(schema.EGRESS, retention.name)} '  # noqa: S608
                f'WHERE "{schema.INITIATOR}" = \'{schema.BY_SOURCE}\' AND "{schema.BYTES.name}" > 0 '
                f"AND time <= {moment - retention.window}s GROUP BY {_tags(tags)}"
            )
            rows += [
                (*(series.tags[tag] for tag in tags), "", "", int(series.values[0][0]) // _MILLI, 0, 0)
                for series in self._store.query(text)
            ]
        frame = pl.DataFrame(rows, schema=CONTACT_COLUMNS, orient="row")
        return frame.sort(FIRST_SEEN, *CONTACT_COLUMNS).unique(
            [schema.SRC, schema.DST], keep="first", maintain_order=True
        )

    def events_before(self, moment: int) -> pl.DataFrame:
        """Return the pairs that an earlier analysis called new before a moment: source, destination, when."""
        text = (
            f'SELECT min("{FIRST_SEEN}") FROM {_raw(schema.CONTACT)} '  # noqa: S608 - the schema's names
            f'WHERE "{NEW}" = 1 AND time < {moment}s GROUP BY "{schema.SRC}", "{schema.DST}"'
        )
        rows = [
            (series.tags[schema.SRC], series.tags[schema.DST], int(series.values[0][1]))
            for series in self._store.query(text)
        ]
        columns = {schema.SRC: pl.String(), schema.DST: pl.String(), FIRST_SEEN: pl.Int64()}
        return pl.DataFrame(rows, schema=columns, orient="row")

    def last_heartbeat(self) -> int | None:
        """Return up to when an earlier analysis had judged, epoch seconds; None if there never was one."""
        text = (
            f'SELECT last("{schema.VALUE.name}") FROM {_raw(schema.PIPELINE)} '  # noqa: S608 - the schema's names
            f"WHERE \"{schema.STAGE}\" = '{Stage.ANALYSIS}' AND \"{schema.REASON}\" = '{schema.HEARTBEAT}'"
        )
        for series in self._store.query(text):
            moment, lag = series.values[0]
            return int(moment // _MILLI - lag)
        return None


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
    columns = {
        WINDOW: pl.Int64(),
        schema.STAGE: pl.String(),
        schema.REASON: pl.String(),
        schema.SHARD: pl.String(),
        schema.VALUE.name: pl.Float64(),
    }
    return pl.DataFrame(rows, schema=columns, orient="row")


def _raw(measurement: Measurement) -> str:
    return _in(measurement, schema.RAW)


def _in(measurement: Measurement, retention: str) -> str:
    return f'"{retention}"."{measurement.name}"'


def _within(start: int, stop: int) -> str:
    return f"time >= {start}s AND time < {stop}s"


def _sum(field: Field) -> str:
    return f'sum("{field.name}")'


def _tags(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _moment(found: list[Series]) -> int | None:
    """Return the time of a selector's answer, epoch seconds."""
    return int(found[0].values[0][0]) // _MILLI if found and found[0].values else None
