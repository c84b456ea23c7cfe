"""Incast: many nodes write to one storage endpoint, or a few, while its peers idle.

A checkpoint is not one: all endpoints get their usual shares of it, however large it is. What counts is the share
beyond the usual: of the bytes that usually go elsewhere, how much goes to these few now. The usual share is that of the
hour before the last ten minutes, so that a burst does not make itself usual; an even share counts in with as much
weight as a burst needs bytes, for an hour in which next to nothing was written says little.

    excess(few) = (sum share - sum usual) / (1 - sum usual)

Everything is a function of windows of a fixed reach, so that whoever judges a window finds the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.baseline import Flags, Floats
from analysis.bins import Bins, Source
from analysis.bins import binned as tables
from analysis.detectors.study import Points, Span
from cluster.model import Cluster, Job, Role
from store import schema
from store.influx import Store
from store.influxql import is_in
from store.points import WINDOW, columns
from store.sums import binned

LATELY = 600
"""Seconds: a burst is followed back so far at most, and the usual shares are those of the time before."""

BEFORE = 3_600
"""Seconds of usual shares."""

_FEW = 4
"""At most one endpoint of so many (one, of fewer) is a burst's destination; more of them is what storage is for."""

_LIKE = 0.5
"""An endpoint that gains this part of what the first one gains is one of them; where they are not few, none is."""

_GAIN = 0.25
"""Where nearly everything goes to an endpoint as it is, the little more is none: so much of all bytes it must be."""

_TAKES_PART = 0.1
"""A node whose bytes are less than this part of the largest node's only acknowledges, or does its own things."""


@dataclass(frozen=True, slots=True)
class IncastPolicy:
    """When it is incast.

    Attributes:
        sources: nodes that take part.
        share: excess, see the module.
        least: bytes that a burst must bring.
        window: seconds.
    """

    sources: int
    share: float
    least: float
    window: int


def usual_shares(before: Floats, policy: IncastPolicy) -> Floats:
    """Return each endpoint's usual share of its group's bytes; the last axis is the endpoint.

    Args:
        before: bytes of the hour.
        policy: see there.
    """
    endpoints = before.shape[-1]
    return np.asarray(
        (before + policy.least / endpoints) / (before.sum(axis=-1, keepdims=True) + policy.least), np.float64
    )


def shares_of(into: Floats) -> Floats:
    """Return [window, endpoint] each endpoint's share of a window's bytes; 0 where there are none."""
    total = into.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(into, total, out=np.zeros(into.shape), where=total > 0), np.float64)


def standing_out(into: Floats, usual: Floats, policy: IncastPolicy) -> Flags:
    """Return [window, endpoint] whether an endpoint is one of the few that get what usually goes to the others.

    Args:
        into: [window, endpoint] bytes.
        usual: [window, endpoint] usual shares.
        policy: see there.
    """
    endpoints = into.shape[1]
    shares = shares_of(into)
    beyond = shares - usual
    order = np.argsort(-beyond, axis=1, kind="stable")
    few = max(endpoints // _FEW, 1)
    gained = np.cumsum(np.take_along_axis(beyond, order, axis=1)[:, :few], axis=1)
    elsewhere = 1 - np.cumsum(np.take_along_axis(usual, order, axis=1)[:, :few], axis=1)
    excess = gained / np.maximum(elsewhere, 1e-9)
    most = np.take_along_axis(beyond, order[:, :1], axis=1)
    alike = (beyond >= _LIKE * most) & (beyond > 0)
    are_few = alike.sum(axis=1, keepdims=True) <= few
    enough = (excess >= policy.share) & (gained >= _GAIN) & are_few
    # The fewest that explain it, and their like: one that gets all is not joined by its innocent neighbour.
    count = np.where(enough.any(axis=1), np.argmax(enough, axis=1) + 1, 0)
    rank = np.argsort(order, axis=1, kind="stable")
    # A trickle is no burst: at this rate it would not bring the least within its reach.
    flows = into >= policy.least * policy.window / LATELY
    # With one endpoint there are no peers that could idle.
    is_one = ((rank < count[:, None]) | (alike & (count[:, None] > 0))) & (beyond > 0)
    return np.asarray(is_one & flows & (endpoints > 1), np.bool_)


def sources_of(sent: Floats) -> int:
    """Return how many nodes take part in what an endpoint got from each."""
    return int((sent >= _TAKES_PART * sent.max()).sum()) if len(sent) and sent.max() > 0 else 0


def running(flags: Flags, into: Floats, policy: IncastPolicy) -> tuple[Floats, Floats]:
    """Return [window] seconds and bytes of the burst so far, for each window of one endpoint; 0 outside of bursts.

    Args:
        flags: [window] whether the window is part of a burst. Windows before the first that counts let a burst be
            followed back.
        into: [window] bytes.
        policy: see there.
    """
    most = LATELY // policy.window
    length = np.zeros(len(flags), np.int64)
    for place, is_part in enumerate(flags.tolist()):
        length[place] = length[place - 1] + 1 if place and is_part else int(is_part)
    length = np.minimum(length, most)
    total = np.concatenate([[0.0], np.cumsum(into)])
    ends = np.arange(len(flags)) + 1
    brought = np.asarray(total[ends] - total[ends - length], np.float64)
    return np.asarray(length * policy.window, np.float64), brought


_MINUTE = 60

Table = dict[tuple[str, ...], Floats]
"""(endpoint, peer group) -> [bin] bytes that it received."""

_COLUMNS = columns(
    schema.DST, schema.DST_GROUP, schema.SRC_GROUP, schema.EVENT_BYTES, schema.EVENT_SOURCES, schema.EVENT_SECONDS,
    schema.TOP_SHARE, schema.TYPICAL_SHARE,
)  # fmt: skip


class BurstStudy:
    """Looks at each storage group and each group that writes to it.

    Args:
        cluster: its storage nodes, and when it is incast.
        store: read from.
    """

    measurements = (schema.BURST,)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        limits, self._window = cluster.thresholds, cluster.bridge.window
        self._policy = IncastPolicy(
            limits.incast_sources, limits.incast_share, float(limits.incast_bytes), self._window
        )
        self._store = store
        storage = [group.id for group in cluster.groups_with(Role.STORAGE, Role.MODEL_STORAGE)]
        members = {group: [node.name for node in cluster.nodes if node.group == group] for group in storage}
        # Of a single endpoint it is unknown whether its peers idle.
        self._endpoints = {group: names for group, names in members.items() if len(names) > 1}
        self._writers = [group.id for group in cluster.inside_groups() if group.id not in storage]
        tags = (schema.NODE, schema.PEER_GROUP)
        self._source = Source(schema.NODE_TRAFFIC, schema.RAW, tags, (schema.GROUP, tuple(self._endpoints)))
        self._before = Bins(store, self._source, (schema.RX_BYTES,), _MINUTE)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return a row for each window and endpoint of a burst."""
        del jobs
        start = span.start - LATELY
        if not self._endpoints or span.closed <= span.start:
            return []
        lately = self._lately(start, span.closed)
        if not lately:
            return []
        minutes = self._minutes(start, span)
        rows: list[tuple[object, ...]] = []
        for group, endpoints in self._endpoints.items():
            for writer in self._writers:
                into = _columns(lately, endpoints, writer, (span.closed - start) // self._window)
                if into.any():
                    usual = self._usual(_columns(minutes, endpoints, writer, _bins(start, span)), start, len(into))
                    rows += self._rows(into, usual, start, span, (group, writer))
        return [(schema.BURST, pl.DataFrame(rows, schema=_COLUMNS, orient="row"))] if rows else []

    # -- what is read ------------------------------------------------------------------------------

    def _lately(self, start: int, stop: int) -> Table:
        found = tables(self._store, self._source, (schema.RX_BYTES,), start, stop, seconds=self._window)
        return {key: table[:, 0] for key, table in zip(found.keys, found.values, strict=True)}

    def _minutes(self, start: int, span: Span) -> Table:
        """Return what the endpoints received in each minute of the time whose shares are the usual ones."""
        first = _minute(start) - LATELY - BEFORE
        last = _minute(span.closed) - LATELY
        final = min(max(_minute(span.final), first), last)
        kept = self._before.between(first, final)
        self._before.forget(first)
        bins = (last - first) // _MINUTE
        found = {key: np.zeros(bins) for key in self._before.keys}
        for place, key in enumerate(self._before.keys):
            found[key][: len(kept)] = kept[:, place, 0]
        # A bridge that is behind may still change these.
        open_bins = tables(self._store, self._source, (schema.RX_BYTES,), final, last, seconds=_MINUTE)
        for key, table in zip(open_bins.keys, open_bins.values, strict=True):
            found.setdefault(key, np.zeros(bins))[len(kept) :] = table[:, 0]
        return found

    def _usual(self, minutes: Floats, start: int, windows: int) -> Floats:
        """Return [window, endpoint] usual shares."""
        total = np.concatenate([np.zeros((1, minutes.shape[1])), np.cumsum(minutes, axis=0)])
        at = (start + np.arange(windows) * self._window) // _MINUTE - start // _MINUTE
        return usual_shares(total[at + BEFORE // _MINUTE] - total[at], self._policy)

    # -- what is found -----------------------------------------------------------------------------

    def _rows(
        self, into: Floats, usual: Floats, start: int, span: Span, groups: tuple[str, str]
    ) -> list[tuple[object, ...]]:
        group, writer = groups
        out = standing_out(into, usual, self._policy)
        shares = shares_of(into)
        rows: list[tuple[object, ...]] = []
        for place in np.flatnonzero(out.any(axis=0)).tolist():
            endpoint = self._endpoints[group][place]
            sources = self._sources(out[:, place], endpoint, writer, start)
            seconds, brought = running(sources >= self._policy.sources, into[:, place], self._policy)
            for window in np.flatnonzero(seconds > 0).tolist():
                moment = start + window * self._window
                if moment >= span.start:
                    rows.append(
                        (
                            moment, endpoint, group, writer, int(brought[window]), int(sources[window]),
                            float(seconds[window]), float(shares[window, place]), float(usual[window, place]),
                        )
                    )  # fmt: skip
        return rows

    def _sources(
        self, out: Flags, endpoint: str, writer: str, start: int
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return [window] how many nodes write to an endpoint, where it stands out."""
        places = np.flatnonzero(out)
        first, last = (start + int(place) * self._window for place in (places[0], places[-1] + 1))
        where = [is_in(schema.ENDPOINT, [endpoint]), is_in(schema.GROUP, [writer])]
        sent = binned(
            self._store, schema.STORAGE_IO, schema.RAW, (schema.WRITE_BYTES,), (schema.NODE,),
            start=first, stop=last, seconds=self._window, where=where,
        )  # fmt: skip
        named = sent.filter(pl.col(schema.NODE) != schema.OTHER)
        counts = np.zeros(len(out), np.int64)
        for (moment,), part in named.group_by(WINDOW):
            place = (int(str(moment)) - start) // self._window
            if out[place]:
                counts[place] = sources_of(part.get_column(schema.WRITE_BYTES.name).fill_null(0).to_numpy())
        return counts


def _minute(moment: int) -> int:
    return moment // _MINUTE * _MINUTE


def _bins(start: int, span: Span) -> int:
    return (_minute(span.closed) - _minute(start) + BEFORE) // _MINUTE


def _columns(table: Table, endpoints: Sequence[str], writer: str, bins: int) -> Floats:
    """Return [bin, endpoint]; 0 where an endpoint got nothing from the group."""
    nothing = np.zeros(bins)
    return np.stack([table.get((endpoint, writer), nothing) for endpoint in endpoints], axis=1)
