"""How flow records become datagrams: which records share one, when it leaves, and what sequence number it bears.

Both emitters use this, so that a spool file looks like what nfacctd would have made of the packets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.model import Cluster
from simulate.packets import netflow, sflow
from simulate.packets.addresses import Addresses
from simulate.packets.fabric import Loss
from simulate.packets.flows import Ints, column
from simulate.packets.netflow import FlowFormat, NetflowEncoder, Packed, RecordColumns
from simulate.packets.polls import Poll
from simulate.packets.sflow import SflowEncoder
from simulate.scenarios.scenario import ExportStyle

FLUSH = 200
"""Milliseconds after which an exporter sends a datagram that is not full."""

_GOLDEN, _PRIME = 0.6180339887498949, 97

BOOT_BEFORE = 7 * 86_400
"""Exporters started so many seconds before the simulation: their 32-bit uptime lasts for 49 days."""


@dataclass(frozen=True, slots=True)
class Datagrams:
    """The datagrams of a batch, in the order of sending.

    Attributes:
        order: rows of the batch, in the order in which the datagrams hold them; shape (records,).
        bounds: datagram i holds the rows order[bounds[i]:bounds[i + 1]]; shape (datagrams + 1,).
        exporter: exporter number of each datagram.
        is_v6: address family of each datagram.
        at: epoch ms at which each leaves.
    """

    order: Ints
    bounds: Ints
    exporter: Ints
    is_v6: NDArray[np.bool_]
    at: Ints

    def __len__(self) -> int:
        return len(self.exporter)


def plan(frame: pl.DataFrame, addresses: Addresses, styles: tuple[ExportStyle, ...]) -> Datagrams:
    """Return how the records of a batch (FLOW_SCHEMA) are put into datagrams."""
    exporter, export = column(frame, "exporter"), column(frame, "export")
    is_v6 = addresses.is_v6[column(frame, "src")].astype(np.int64)
    capacities = np.array([[_capacity(style.flow_format, is_v6=v6) for v6 in (False, True)] for style in styles])
    # One number for exporter, moment and family: records of one number may share a datagram.
    key = ((export // FLUSH) * len(styles) + exporter) * 2 + is_v6
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts_group = np.ones(len(order), np.bool_)
    starts_group[1:] = ordered[1:] != ordered[:-1]
    position = np.arange(len(order))
    within = position - np.maximum.accumulate(np.where(starts_group, position, 0))
    bounds = np.flatnonzero(within % capacities[exporter[order], is_v6[order]] == 0)
    first = order[bounds]
    at = np.maximum.reduceat(export[order], bounds) if len(bounds) else np.empty(0, np.int64)
    return Datagrams(order, np.append(bounds, len(order)), exporter[first], is_v6[first].astype(np.bool_), at)


def lost(planned: Datagrams, losses: Iterable[Loss]) -> NDArray[np.bool_]:
    """Return which datagrams are lost, or cannot be read where templates are missing.

    They are lost evenly, and the same ones however the records come in batches.
    """
    result = np.zeros(len(planned), np.bool_)
    bucket = planned.at // FLUSH
    is_first = np.ones(len(planned), np.bool_)
    is_first[1:] = (bucket[1:] != bucket[:-1]) | (planned.exporter[1:] != planned.exporter[:-1])
    position = np.arange(len(planned))
    within = position - np.maximum.accumulate(np.where(is_first, position, 0))
    # Multiples of the golden ratio fill the unit interval evenly.
    draw = (bucket * _PRIME + within) * _GOLDEN % 1
    for loss in losses:
        mine = (planned.exporter == loss.exporter) & (planned.at >= loss.start) & (planned.at < loss.end)
        result |= mine & (draw < loss.share)
    return result


def arriving(
    frame: pl.DataFrame, planned: Datagrams, gone: NDArray[np.bool_], numbers: Ints
) -> tuple[pl.DataFrame, Ints]:
    """Return the records of a batch whose datagrams are not gone, and the number of each one's datagram."""
    sizes = np.diff(planned.bounds)
    own, arrives = np.empty(frame.height, np.int64), np.empty(frame.height, np.bool_)
    own[planned.order], arrives[planned.order] = np.repeat(numbers, sizes), np.repeat(~gone, sizes)
    return (frame.filter(pl.Series(arrives)), own[arrives]) if gone.any() else (frame, own)


def _capacity(flow_format: FlowFormat, *, is_v6: bool) -> int:
    if flow_format is FlowFormat.SFLOW:
        return sflow.capacity(is_v6=is_v6)
    return netflow.capacity(flow_format, is_v6=is_v6)


def encoders(
    cluster: Cluster, styles: tuple[ExportStyle, ...], start: int, losses: tuple[Loss, ...] = ()
) -> tuple[NetflowEncoder | SflowEncoder, ...]:
    """Return an encoder for each exporter; `start` is when the simulation begins, epoch seconds."""
    boot = (start - BOOT_BEFORE) * 1000
    found: list[NetflowEncoder | SflowEncoder] = []
    for number, (exporter, style) in enumerate(zip(cluster.exporters, styles, strict=True)):
        if style.flow_format is FlowFormat.SFLOW:
            found.append(SflowEncoder(exporter.address, boot, style.rate))
        else:
            gaps = tuple((loss.start, loss.end) for loss in losses if loss.lacks_templates and loss.exporter == number)
            found.append(NetflowEncoder(style.flow_format, source_id(number), boot, style.rate, gaps))
    return tuple(found)


def source_id(exporter: int) -> int:
    """Return the engine, source or observation domain id of an exporter (number)."""
    return exporter + 1


def records_of(frame: pl.DataFrame, addresses: Addresses, *, is_v6: bool, tos: Ints | None = None) -> RecordColumns:
    """Return the columns of flow records (FLOW_SCHEMA) of one address family, as encoders take them; `tos`: 0."""
    raw = addresses.v6 if is_v6 else addresses.v4
    names = ("src_port", "dst_port", "proto", "tcp_flags", "in_iface", "out_iface", "packets", "start", "end")
    columns = {name: column(frame, name) for name in names}
    tos = np.zeros(frame.height, np.int64) if tos is None else tos
    source, target = raw[column(frame, "src")], raw[column(frame, "dst")]
    return RecordColumns(src=source, dst=target, tos=tos, octets=column(frame, "bytes"), **columns)


class Encoded:
    """A batch in wire format, message by message; messages must be taken in the order of the plan."""

    def __init__(
        self,
        frame: pl.DataFrame,
        tos: Ints,
        planned: Datagrams,
        addresses: Addresses,
        streams: tuple[NetflowEncoder | SflowEncoder, ...],
    ) -> None:
        self._plan = planned
        self._streams = streams
        # Records of one exporter and family, packed at once; `_offset` is where each datagram's begin in there.
        self._packed: dict[tuple[int, bool], Packed] = {}
        counts = np.diff(planned.bounds)
        self._offset = np.zeros(len(planned), np.int64)
        owner = np.repeat(np.arange(len(planned)), counts)
        for number in np.unique(planned.exporter):
            for is_v6 in (False, True):
                mine = (planned.exporter == number) & (planned.is_v6 == is_v6)
                if not mine.any():
                    continue
                rows = planned.order[mine[owner]]
                records = records_of(frame[rows], addresses, is_v6=is_v6, tos=tos[rows])
                self._packed[int(number), is_v6] = streams[number].pack(records)
                self._offset[mine] = np.cumsum(counts[mine]) - counts[mine]
        self._counts = counts

    def message(self, datagram: int) -> bytes:
        """Return the datagram with this number."""
        exporter = int(self._plan.exporter[datagram])
        packed = self._packed[exporter, bool(self._plan.is_v6[datagram])]
        first = int(self._offset[datagram])
        last = first + int(self._counts[datagram])
        return self._streams[exporter].message(packed, first, last, int(self._plan.at[datagram]))


class SequenceNumbers:
    """The sequence numbers that the encoders would put on datagrams, without making them."""

    def __init__(self, styles: tuple[ExportStyle, ...]) -> None:
        self._formats = [style.flow_format for style in styles]
        # The hello of v9 and IPFIX is the first message; sFlow counts from one.
        self._next = np.array([0 if f is FlowFormat.V5 else 1 for f in self._formats], np.int64)
        self._messages = np.array([0 if f in (FlowFormat.V5, FlowFormat.SFLOW) else 1 for f in self._formats], np.int64)

    def assign(self, planned: Datagrams, polls: Sequence[Poll] = ()) -> Ints:
        """Return the sequence number of each datagram of the next batch; polls meanwhile have numbers of their own."""
        numbers = np.zeros(len(planned), np.int64)
        counts = np.diff(planned.bounds)
        for exporter, flow_format in enumerate(self._formats):
            mine = np.flatnonzero(planned.exporter == exporter)
            if flow_format is FlowFormat.SFLOW:
                numbers[mine] = self._between_polls(planned.at[mine], exporter, polls)
                continue
            if not len(mine):
                continue
            by_datagram = flow_format is FlowFormat.V9
            steps = np.ones(len(mine), np.int64) if by_datagram else counts[mine]
            if flow_format is FlowFormat.IPFIX:
                message = self._messages[exporter] + np.arange(len(mine))
                steps = steps + (message % netflow.IPFIX_OPTIONS_EVERY == 0)
            after = self._next[exporter] + np.cumsum(steps)
            numbers[mine] = (after - steps) & 0xFFFFFFFF
            self._next[exporter] = after[-1]
            self._messages[exporter] += len(mine)
        return numbers

    def _between_polls(self, at: Ints, exporter: int, polls: Sequence[Poll]) -> Ints:
        """Return the numbers of an sFlow agent's datagrams of samples; a poll leaves before the samples of its time."""
        own = [poll for poll in polls if poll.exporter == exporter]
        moments = np.array([poll.at for poll in own], np.int64)
        taken = np.cumsum([0, *map(sflow.poll_datagrams, own)])
        numbers = self._next[exporter] + np.arange(len(at)) + taken[np.searchsorted(moments, at, side="right")]
        self._next[exporter] += len(at) + taken[-1]
        return np.asarray(numbers & 0xFFFFFFFF, np.int64)
