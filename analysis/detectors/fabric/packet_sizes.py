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

from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis.baseline import Floats
from analysis.detectors.study import Points, Span
from analysis.jobs.job_windows import end_of, overlapping, start_of
from cluster.model import Cluster, Job, Role
from store import schema
from store.influx import Store
from store.influxql import is_in
from store.points import WINDOW, columns
from store.sums import KeptBins

MINUTE = 60
_SENT = (schema.TX_BYTES, schema.TX_PACKETS, schema.RX_PACKETS)
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
        store: read from.
    """

    measurements = (schema.PACKET_SIZE_LOW,)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._limits = cluster.thresholds
        training = sorted(group.id for group in cluster.groups_with(Role.TRAINING))
        self._window = -(-cluster.thresholds.packet_size_window // MINUTE) * MINUTE
        self._minutes = KeptBins(
            store, schema.NODE_TRAFFIC, _SENT, (schema.NODE,),
            seconds=MINUTE, where=[is_in(tag, training) for tag in (schema.GROUP, schema.PEER_GROUP) if training],
        )  # fmt: skip
        self._is_on = bool(training)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the moments of the span that are final."""
        rows: list[tuple[object, ...]] = []
        moments = range(-(-span.start // MINUTE) * MINUTE, span.final + 1, MINUTE)
        running = overlapping(jobs, span.start - self._window, span.final) if self._is_on else []
        for part in (moments[at : at + MINUTE] for at in range(0, len(moments), MINUTE) if running):
            sent = self._minutes.read(part[0] - self._window, part[-1])
            for moment in part:
                begin = moment - self._window
                alive = [job for job in running if start_of(job) <= begin and moment <= end_of(job)]
                if not alive:
                    continue
                seen = sent.filter(pl.col(WINDOW).is_between(begin, moment, closed="left"))
                sums = seen.group_by(schema.NODE).agg(pl.col(one.name).sum() for one in _SENT)
                rows += [(moment, job.id, job.job_class, *row) for job in alive for row in self._of(job, sums)]
        return [(schema.PACKET_SIZE_LOW, pl.DataFrame(rows, schema=_COLUMNS, orient="row"))]

    def _of(self, job: Job, sums: pl.DataFrame) -> list[tuple[object, ...]]:
        """Return node, share, mean size and the cohort's of the small ones."""
        mine = sums.filter(pl.col(schema.NODE).is_in(job.nodes)).sort(schema.NODE)
        sent, packets, received = (mine.get_column(one.name).to_numpy().astype(np.float64) for one in _SENT)
        smaller, usual = smaller_by(sent, packets, received, self._limits.packet_size_packets)
        small = np.flatnonzero(smaller >= _SHOWN * self._limits.packet_size_low)
        names = mine.get_column(schema.NODE).to_list()
        return [(names[n], float(smaller[n]), round(sent[n] / packets[n]), round(usual)) for n in small]
