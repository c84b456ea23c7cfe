"""New networks as the analyser runs them: from labelled egress in the store to `new_network` rows and their memory."""

from collections.abc import Sequence

import polars as pl

from analysis import networks
from analysis.networks import BYTES, FIRST_SEEN, NEW, NetworkPolicy, number_of
from analysis.state import State
from analysis.study import Points, Span
from analysis.sums import any_of, binned, text_of
from cluster import schema
from cluster.model import EXTERNAL, Cluster, Job, Role
from cluster.units import format_moment
from ingest.logs import Log
from ingest.points import WINDOW
from ingest.store import Store

_MILLI = 1000
_EGRESS = schema.EGRESS.name
_LABELLED = f"\"{schema.NETWORK}\" != '' AND \"{schema.NETWORK}\" != '{schema.OTHER}'"
"""Where a network is known, in InfluxQL. Rows beyond the largest of a window have that of nobody."""


def network_studies(cluster: Cluster, store: Store, state: State, log: Log) -> tuple["NetworkStudy", ...]:
    """Return the study where cluster.yaml has files that may know networks, and groups to look at."""
    if not cluster.geography.files or not networks.sources(cluster):
        return ()
    return (NetworkStudy(cluster, store, state, log),)


class NetworkStudy:
    """Finds networks to which a group sends for the first time.

    Args:
        cluster: groups, limits, windows.
        store: read from.
        state: remembers every network that a group ever sent to.
        log: where new networks are told.
    """

    measurements = (schema.NEW_NETWORK,)

    def __init__(self, cluster: Cluster, store: Store, state: State, log: Log) -> None:
        self._cluster, self._store, self._state, self._log = cluster, store, state, log
        self._window = cluster.bridge.window
        limits = cluster.thresholds
        self._policy = NetworkPolicy(limits.new_network_bytes, limits.new_network_window)
        self._where = _judged(cluster)
        self._sent = pl.DataFrame(schema=networks.SENT)
        self._sent_from = self._sent_until = 0

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of closed windows: the largest conversation of one that fills may be another in the end."""
        del jobs
        learning_end = self._learning_end(span)
        if learning_end is None:
            return []
        seen = self._state.networks()
        known = seen.filter(pl.col(FIRST_SEEN) < span.start)
        found = networks.find(self._sums(span), known, start=span.start, learning_end=learning_end, policy=self._policy)
        young = networks.young([known, found], span.start, self._policy)
        self._tell(found, seen)
        # From the same start on they are found again, so that a crash before the position moves costs nothing.
        self._state.save_networks(span.start, found)
        if young.is_empty():
            return []
        talks = self._talks(young, span.closed)
        return [(schema.NEW_NETWORK, networks.rows(talks, young, start=span.start, policy=self._policy))]

    def _learning_end(self, span: Span) -> int | None:
        """Return until when nothing is new; None as long as the store knows no network of anybody.

        Learning begins with the first label, not with the first byte: files may come long after the flows.
        """
        known = self._state.networks_learning_end
        if known is not None:
            return known
        earliest = self._earliest_label()
        if earliest is None or earliest >= span.closed:
            return None
        ends = max(self._state.learning_end, earliest + self._cluster.thresholds.contact_learning)
        seeds = self._before(span.start)
        self._state.begin_networks(ends, seeds)
        self._log.line("networks_learned", networks=seeds.height, learning_until=format_moment(ends))
        return ends

    def _tell(self, found: pl.DataFrame, told: pl.DataFrame) -> None:
        fresh = found.filter(pl.col(NEW) == 1).join(told, on=list(networks.KNOWN), how="anti")
        for row in fresh.iter_rows(named=True):
            self._log.line(
                "network_found",
                group=row[schema.SRC_GROUP],
                network=row[schema.NETWORK],
                since=format_moment(row[FIRST_SEEN]),
            )

    # -- reading -----------------------------------------------------------------------------------

    def _sums(self, span: Span) -> pl.DataFrame:
        """Return SENT from a window of the floor before the pass on; what is final is read once."""
        first = span.start - self._policy.window + self._window
        if self._sent_from <= first and span.start <= self._sent_until:
            before = self._sent.filter(pl.col(WINDOW) >= first, pl.col(WINDOW) < span.start)
        else:
            before = self._read(first, span.start)
        whole = pl.concat([before, self._read(span.start, span.closed)])
        self._sent = whole.filter(pl.col(WINDOW) < span.final)
        self._sent_from, self._sent_until = first, span.final
        return whole

    def _read(self, start: int, stop: int) -> pl.DataFrame:
        found = binned(
            self._store, schema.EGRESS, schema.RAW, (schema.BYTES,), (schema.SRC_GROUP, schema.NETWORK),
            start=start, stop=stop, seconds=self._window, where=[self._where, _LABELLED],
        )  # fmt: skip
        return (
            found.with_columns(number_of(pl.col(schema.NETWORK)))
            .group_by(WINDOW, schema.SRC_GROUP, schema.NETWORK)
            .agg(pl.col(BYTES).sum())
            .filter(pl.col(BYTES) > 0)
            .select(*networks.SENT)
        )

    def _talks(self, young: pl.DataFrame, stop: int) -> pl.DataFrame:
        """Return TALKS with some networks (KNOWN), from a window of the floor before the first of them on."""
        start = min(young.get_column(FIRST_SEEN)) - self._policy.window + self._window
        tags = [name for name, kind in networks.TALKS.items() if kind == pl.String]
        named = " OR ".join(_is_network(number) for number in sorted(set(young.get_column(schema.NETWORK))))
        text = (
            f'SELECT sum("{BYTES}"), max("{schema.DURATION.name}") FROM "{schema.RAW}"."{_EGRESS}" '  # noqa: S608
            f"WHERE {self._where} AND ({named}) AND time >= {start}s AND time < {stop}s "
            f"GROUP BY time({self._window}s), {', '.join(map(_quoted, tags))} fill(none)"
        )
        found = [
            (int(moment) // _MILLI, *(series.tags[tag] for tag in tags), int(sent), float(seconds or 0.0))
            for series in self._store.query(text)
            for moment, sent, seconds in series.values
            if sent
        ]
        return pl.DataFrame(found, schema=networks.TALKS, orient="row")

    def _earliest_label(self) -> int | None:
        """Return the start of the oldest window in any retention in which anybody's network is known."""
        moments = [
            int(series.values[0][0]) // _MILLI
            for retention in self._cluster.retentions()
            for series in self._store.query(
                f'SELECT first("{BYTES}") FROM "{retention.name}"."{_EGRESS}" WHERE {_LABELLED}'  # noqa: S608
            )
        ]
        return min(moments, default=None)

    def _before(self, moment: int) -> pl.DataFrame:
        """Return the networks to which a group sent anything in a window that ended by then, KNOWN, none new."""
        found = []
        for retention in self._cluster.retentions():
            # A rolled-up window that is not over yet may hold what comes after the moment.
            text = (
                f'SELECT first("{BYTES}") FROM "{retention.name}"."{_EGRESS}" '  # noqa: S608 - the schema's names
                f'WHERE {self._where} AND {_LABELLED} AND "{BYTES}" > 0 AND time <= {moment - retention.window}s '
                f"GROUP BY {_quoted(schema.SRC_GROUP)}, {_quoted(schema.NETWORK)}"
            )
            found += [
                (series.tags[schema.SRC_GROUP], series.tags[schema.NETWORK], int(series.values[0][0]) // _MILLI, 0)
                for series in self._store.query(text)
            ]
        frame = pl.DataFrame(found, schema=networks.KNOWN, orient="row")
        return (
            frame.with_columns(number_of(pl.col(schema.NETWORK)))
            .group_by(schema.SRC_GROUP, schema.NETWORK)
            .agg(pl.col(FIRST_SEEN).min(), pl.col(NEW).first())
            .sort(schema.SRC_GROUP, schema.NETWORK)
        )


def _judged(cluster: Cluster) -> str:
    """Return the condition on what is judged, in InfluxQL: what groups send to addresses in no group.

    Inference answers whoever may ask it, wherever they are: of its groups only what they open counts.
    """
    groups = networks.sources(cluster)
    serving = [group.id for group in groups if group.role is Role.INFERENCE]
    others = [group.id for group in groups if group.role is not Role.INFERENCE]
    terms = [any_of(schema.SRC_GROUP, others)] if others else []
    if serving:
        terms.append(f"({any_of(schema.SRC_GROUP, serving)} AND \"{schema.INITIATOR}\" = '{schema.BY_SOURCE}')")
    return f"({' OR '.join(terms)}) AND {any_of(schema.DST_GROUP, [EXTERNAL])}"


def _is_network(number: str) -> str:
    """Return the condition that a label is of a network, in InfluxQL."""
    label = _quoted(schema.NETWORK)
    if number.startswith("AS") and number[2:].isdigit():
        return f"{label} =~ /^{number}( |$)/"
    return f"{label} = {text_of(number)}"


def _quoted(tag: str) -> str:
    return f'"{tag}"'
