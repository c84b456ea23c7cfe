"""What the analysis reads: base windows of the store as arrays and frames.

Times are epoch seconds, ranges are [start, stop) in whole windows. Node bytes come as dense arrays and not through
``Store.frame``, whose one frame a series is too slow for a thousand nodes a tick.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.baseline import Floats
from analysis.contacts import CONTACT_COLUMNS, EGRESS_COLUMNS, FIRST_SEEN, NEW
from cluster import schema
from cluster.model import Cluster, Plane, Role
from cluster.schema import Field, Measurement, Stage
from ingest.points import WINDOW
from ingest.store import Series, Store

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes and packets that each node sent to training groups.

    Attributes:
        start: of the first window.
        windows: how many.
        sent, packets: node -> [window]; a node without any is not there.
    """

    start: int
    windows: int
    sent: Mapping[str, Floats]
    packets: Mapping[str, Floats]

    def of(self, nodes: Iterable[str]) -> tuple[Floats, Floats]:
        """Return bytes and packets as [window, node]: zeros for a node that nobody saw."""
        nothing = np.zeros(self.windows)
        names = list(nodes)
        sent = np.array([self.sent.get(name, nothing) for name in names]).reshape(len(names), self.windows)
        packets = np.array([self.packets.get(name, nothing) for name in names]).reshape(len(names), self.windows)
        return sent.T, packets.T


class Reader:
    """Asks one store about one cluster.

    Args:
        store: where the windows are.
        cluster: whose groups and exporters count.
    """

    def __init__(self, store: Store, cluster: Cluster) -> None:
        self._store, self._cluster = store, cluster
        self._window = cluster.bridge.window
        self.exporters = _compute_exporters(cluster)

    def traffic(self, start: int, stop: int) -> Traffic:
        """Return what nodes sent to training groups."""
        groups = self._cluster.groups_with(Role.TRAINING)
        windows = (stop - start) // self._window
        sent: dict[str, Floats] = {}
        packets: dict[str, Floats] = {}
        if groups and windows > 0:
            peers = " OR ".join(f"\"{schema.PEER_GROUP}\" = '{group.id}'" for group in groups)
            text = (
                f"SELECT {_sum(schema.TX_BYTES)}, {_sum(schema.TX_PACKETS)} FROM {_raw(schema.NODE_TRAFFIC)} "  # noqa: S608
                f"WHERE ({peers}) AND {_within(start, stop)} "
                f'GROUP BY time({self._window}s), "{schema.NODE}" fill(0)'
            )
            for series in self._store.query(text):
                table = self._dense(series, start, windows)
                sent[series.tags[schema.NODE]], packets[series.tags[schema.NODE]] = table[:, 0], table[:, 1]
        return Traffic(start, windows, sent, packets)

    def exporter_bytes(self, start: int, stop: int) -> tuple[Floats, float]:
        """Return [window, exporter] bytes in the order of `exporters`, and the largest sampling rate among them."""
        windows = (stop - start) // self._window
        result = np.zeros((windows, len(self.exporters)))
        rate = 1.0
        if not self.exporters or windows <= 0:
            return result, rate
        text = (
            f'SELECT {_sum(schema.EXPORTER_BYTES)}, max("{schema.SAMPLING.name}") '  # noqa: S608 - the schema's names
            f"FROM {_raw(schema.EXPORTER_STATUS)} WHERE {_within(start, stop)} "
            f'GROUP BY time({self._window}s), "{schema.EXPORTER}" fill(0)'
        )
        for series in self._store.query(text):
            name = series.tags[schema.EXPORTER]
            if name in self.exporters:
                table = self._dense(series, start, windows)
                result[:, self.exporters.index(name)] = table[:, 0]
                rate = max(rate, float(table[:, 1].max(initial=0.0)))
        return result, rate

    def _dense(self, series: Series, start: int, windows: int) -> Floats:
        """Return [window, column] values; 0 where a bin is missing."""
        values = np.array(series.values, dtype=np.float64).reshape(-1, len(series.columns))
        table = np.zeros((windows, len(series.columns) - 1))
        places = ((values[:, 0] / _MILLI - start) // self._window).astype(np.int64)
        fits = (places >= 0) & (places < windows)
        table[places[fits]] = np.nan_to_num(values[fits, 1:])
        return table

    def egress(self, start: int, stop: int) -> pl.DataFrame:
        """Return the conversations that sources inside opened, EGRESS_COLUMNS.

        Parts of one conversation (of several bridges) run at the same time: of their durations the longest counts.
        """
        tags = (schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE)
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


def _compute_exporters(cluster: Cluster) -> tuple[str, ...]:
    """Return the exporters that can see training: those with a counting compute interface, else all that count."""
    counting = [exporter for exporter in cluster.exporters if exporter.counts]
    compute = [
        exporter.name
        for exporter in counting
        if any(interface.plane is Plane.COMPUTE and interface.counts for interface in exporter.interfaces)
    ]
    return tuple(compute or [exporter.name for exporter in counting])


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
