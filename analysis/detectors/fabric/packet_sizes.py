"""Nodes whose packets are smaller than those of the job's other nodes: another MTU on the node or its port.

    mean  = sent bytes / sent packets
    data  = (sent bytes - 64 * received packets / 2) / (sent packets - received packets / 2)
    smaller by = 1 - the larger of  mean / median over the nodes  and  data / median over the nodes

A mean has acknowledgements in it, and a neighbour with a small MTU makes a node acknowledge more. `data` takes away as
many as TCP sends at most, one for two packets (RFC 5681, 4.2), of 64 bytes: where there are fewer it is too high for
all alike. So a node must be low by both.

Judged are the minutes of `packet_size_window`, once nothing can change them any more, of nodes that sent
`packet_size_packets` and a tenth of the median node's bytes: who only acknowledges, or hardly sends, has no size. Only
what training nodes send to each other counts. Where half of the nodes are low, or there are less than three, nobody is.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from analysis.baseline import Floats
from analysis.detectors.study import Points, Span
from analysis.jobs.job_windows import end_of, overlapping, start_of
from analysis.window_reader import WindowReader
from cluster.model import Cluster, Job, Role
from store import schema
from store.points import columns

MINUTE = 60
_LATER = 30
"""Seconds from where a minute is final to where it is judged: other studies read theirs in the round of that moment."""
_AT_ONCE = 10 * MINUTE
"""Seconds whose windows are added up at a time."""
_ANSWERS, _ANSWER = 0.5, 64
_FEW = 3
_SHOWN = 0.5
"""Part of the threshold from which there is a row."""
_LEAST_SENT, _LEAST_DATA = 0.1, 0.1
"""Part of the median node's bytes that a node must have sent; of its own packets that data must be."""

_COLUMNS = columns(
    schema.JOB, schema.JOB_CLASS, schema.NODE, schema.SMALLER_BY, schema.MEAN_SIZE, schema.USUAL_SIZE
)  # fmt: skip


def smaller_by(sent: Floats, packets: Floats, received: Floats, least: float) -> tuple[Floats, float]:
    """Return by which part each node's packets are smaller, NaN where not judged; and the median node's mean, bytes.

    Args:
        sent: [node] bytes.
        packets: [node] packets sent.
        received: [node] packets.
        least: packets that a node must have sent.
    """
    data = packets - _ANSWERS * received
    typical = float(np.median(sent[sent > 0])) if sent.any() else 0.0
    judged = (packets >= max(least, 1)) & (sent >= _LEAST_SENT * typical)
    found = np.full(len(sent), np.nan)
    has_data = judged & (data >= _LEAST_DATA * packets)
    if has_data.sum() < _FEW:
        return found, 0.0
    mean = np.divide(sent, packets, out=np.full(len(sent), np.nan), where=judged)
    size = np.divide(sent - _ANSWER * _ANSWERS * received, data, out=np.full(len(sent), np.inf), where=has_data)
    usual = float(np.median(mean[judged]))
    found[judged] = 1 - np.maximum(mean / usual, size / np.median(size[has_data]))[judged]
    return found, usual


class PacketSizeStudy:
    """Looks, minute by minute, for nodes of running jobs that send smaller packets than the others.

    Args:
        cluster: its training groups, thresholds.
        windows: read from.
    """

    measurements = (schema.PACKET_SIZE_LOW,)

    def __init__(self, cluster: Cluster, windows: WindowReader) -> None:
        self._limits, self._windows = cluster.thresholds, windows
        names = sorted(node.name for node in cluster.nodes_with(Role.TRAINING))
        self._places = {name: place for place, name in enumerate(names)}
        self._length = -(-cluster.thresholds.packet_size_window // MINUTE) * MINUTE
        self._known: tuple[int, Floats] = 0, np.zeros((3, 0, len(self._places)))

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the moments of the span that are final."""
        first, last = -((_LATER - span.start) // MINUTE) * MINUTE, (span.final - _LATER) // MINUTE * MINUTE
        running = overlapping(jobs, first - self._length, last) if first <= last and self._places else []
        rows: list[tuple[object, ...]] = []
        if running:
            sums = np.cumsum(self._minutes(first - self._length, last), axis=1)
            rows = [row for job in running for row in self._of(job, first, sums)]
        return [(schema.PACKET_SIZE_LOW, pl.DataFrame(rows, schema=_COLUMNS, orient="row"))]

    def _of(self, job: Job, first: int, sums: Floats) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a job for the minutes that end from `first` on; `sums`: of all since `first` - length."""
        names = sorted(name for name in job.nodes if name in self._places)
        sums, length = sums[:, :, [self._places[name] for name in names]], self._length // MINUTE
        for place in range(length - 1, sums.shape[1]):
            moment = first + (place - length + 1) * MINUTE
            if start_of(job) > moment - self._length or moment > end_of(job):
                continue
            sent, packets, received = sums[:, place] - (sums[:, place - length] if place >= length else 0.0)
            smaller, usual = smaller_by(sent, packets, received, self._limits.packet_size_packets)
            for at in np.flatnonzero(smaller >= _SHOWN * self._limits.packet_size_low):
                size = round(sent[at] / packets[at]), round(usual)
                yield moment, job.id, job.job_class, names[at], float(smaller[at]), *size

    def _minutes(self, start: int, stop: int) -> Floats:
        """Return [field, minute, node] of [start, stop); final ones that were read before are not read again."""
        begin, known = self._known
        end = begin + known.shape[1] * MINUTE
        if not begin <= start <= end:
            begin, end, known = start, start, known[:, :0]
        if end < stop:
            cuts = [*range(end, stop, _AT_ONCE), stop]
            fresh = [self._added(first, last) for first, last in itertools.pairwise(cuts)]
            known = np.concatenate([known, *fresh], axis=1)
        known = known[:, (start - begin) // MINUTE :]
        self._known = start, known
        return known[:, : (stop - start) // MINUTE]

    def _added(self, start: int, stop: int) -> Floats:
        shape = 3, (stop - start) // MINUTE, -1, len(self._places)
        return np.asarray(self._windows.sent(list(self._places), start, stop).reshape(shape).sum(axis=2))
