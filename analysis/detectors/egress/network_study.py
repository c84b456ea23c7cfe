"""New networks as the analyser runs them: from labelled egress in the store to `new_network` rows and their memory."""

from collections.abc import Sequence

import polars as pl

from analysis.detectors.egress import networks
from analysis.detectors.egress.networks import BYTES, FIRST_SEEN, NEW, NetworkPolicy, number_of
from analysis.detectors.study import Points, Span
from analysis.state import State
from app.log import Log
from app.units import format_moment
from cluster.model import EXTERNAL, Cluster, Job, Role
from store import schema
from store.influx import Store
from store.influxql import (
    Condition,
    Select,
    all_of,
    any_of,
    compare,
    earliest,
    highest,
    is_in,
    lowest,
    matches,
    not_in,
    total,
)  # fmt: skip
from store.points import WINDOW
from store.sums import binned, first_seen, sent_in, windows

_LABELLED = not_in(schema.NETWORK, ("", schema.OTHER))
"""Where a network is known. Rows beyond the largest of a window have that of nobody."""
_FIRST_LABELLED = Select(schema.EGRESS, schema.RAW).take(earliest(schema.BYTES)).where(_LABELLED)


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
        log: for new networks.
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
        self._told = pl.DataFrame(schema=networks.NAMES)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of closed windows: the largest conversation of one that fills may be another in the end."""
        del jobs
        learning_end = self._learning_end(span)
        if learning_end is None:
            return []
        sums = self._sums(span)
        seen = self._state.networks.known(sums, span.start - self._policy.episode)
        known = seen.filter(pl.col(FIRST_SEEN) < span.start)
        found = networks.find(sums, known, start=span.start, learning_end=learning_end, policy=self._policy)
        young = networks.young([known, found], span.start, self._policy)
        self._tell(found, seen)
        # From the same start on they are found again, so that a crash before the position moves costs nothing.
        self._state.networks.save(span.start, found)
        if young.is_empty():
            return []
        talks = self._talks(young, span.closed)
        rows = networks.rows(talks, young, start=span.start, policy=self._policy, told=self._told)
        self._told = networks.names_of(rows, self._told, young)
        return [(schema.NEW_NETWORK, rows)]

    def _learning_end(self, span: Span) -> int | None:
        """Return until when nothing is new; None as long as the store knows no network.

        Learning begins with the first label, not with the first byte: files may come long after the flows.
        """
        known = self._state.networks.begun
        if known is not None:
            return known
        earliest = self._earliest_label()
        if earliest is None or earliest >= span.closed:
            return None
        ends = max(self._state.learning_end, earliest + self._cluster.thresholds.contact_learning)
        seeds = self._before(span.start, ends)
        self._state.networks.begin(ends, seeds)
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
        named = any_of(*map(_is_network, sorted(set(young.get_column(schema.NETWORK)))))
        asked = Select(schema.EGRESS, schema.RAW).take(total(schema.BYTES), highest(schema.DURATION)).by(*tags)
        found = windows(self._store, asked.where(self._where, named).between(start, stop))
        return sent_in(found, networks.TALKS)

    def _earliest_label(self) -> int | None:
        """Return the start of the oldest window in any retention in which anybody's network is known."""
        found = first_seen(self._store, self._cluster.retentions(), _FIRST_LABELLED)
        return min((moment for moment, _ in found), default=None)

    def _before(self, moment: int, learning_end: int) -> pl.DataFrame:
        """Return the networks that groups knew in windows that ended by then, KNOWN: learnt ones, and those told of.

        After the learning period only a window that alone holds more than the floor makes one known: else who once
        knocked would be.
        """
        there, retentions = _FIRST_LABELLED.where(self._where), self._cluster.retentions()
        any_bytes, enough = (
            there.where(compare(schema.BYTES, ">", least)).by(schema.SRC_GROUP, schema.NETWORK)
            for least in (0, self._policy.volume)
        )
        rows = [
            *(
                (*tags, at, 0)
                for at, tags in first_seen(self._store, retentions, any_bytes, moment)
                if at < learning_end
            ),
            *((*tags, at, 0) for at, tags in first_seen(self._store, retentions, enough, moment)),
        ]
        new = Select(schema.NEW_NETWORK, schema.NEW_NETWORK.kept).take(lowest(schema.CONTACT_FIRST))
        told = new.where(compare(schema.CONTACT_FIRST, ">", 0)).by(schema.SRC_GROUP, schema.NETWORK)
        rows += [(*tags, int(first), 1) for _, *tags, first in self._store.rows(told.between(stop=moment))]
        return (
            pl.DataFrame(rows, schema=networks.KNOWN, orient="row")
            .with_columns(number_of(pl.col(schema.NETWORK)))
            .sort(NEW, FIRST_SEEN, descending=[True, False])
            .unique(networks.PAIR, keep="first", maintain_order=True)
            .sort(networks.PAIR)
        )


def _judged(cluster: Cluster) -> Condition:
    """Return the condition on what is judged: what groups send to addresses in no group.

    Inference answers whoever may ask it, wherever they are: of its groups only what they open counts.
    """
    groups = networks.sources(cluster)
    serving = sorted(group.id for group in groups if group.role is Role.INFERENCE)
    others = sorted(group.id for group in groups if group.role is not Role.INFERENCE)
    opened = all_of(is_in(schema.SRC_GROUP, serving), is_in(schema.INITIATOR, [schema.BY_SOURCE]))
    sources = any_of(is_in(schema.SRC_GROUP, others), opened)
    return all_of(sources, is_in(schema.DST_GROUP, [EXTERNAL]))


def _is_network(number: str) -> Condition:
    """Return the condition that a label is of a network."""
    if number.startswith("AS") and number[2:].isdigit():
        return matches(schema.NETWORK, f"^{number}( |$)")
    return is_in(schema.NETWORK, [number])
