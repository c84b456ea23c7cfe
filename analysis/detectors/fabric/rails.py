"""Rails that carry less than they should: which node, which rail.

A rail is compared with the other rails of its node, as the same rail is on the job's other nodes:

    usual(rail)          = median over the nodes of  sent(node, rail) / median of sent(node, other rails)
    expected(node, rail) = min(usual(rail) * median of sent(node, other rails), median over the nodes of sent(., rail))
    missing              = 1 - sent / expected

A slow node is low on all its rails, a job that uses a rail little does so on all nodes: neither has a rail at fault. So
has a rail that half of the nodes lack: that is a switch, or the job. The second term of the minimum keeps what one rail
carries beside the job, such as storage traffic, from making the others look low.

Judged are the minutes of `rail_low_window`, once nothing can change them any more; not while an exporter of the compute
plane that was heard in the hour before is silent in them, or loses more records than `flow_loss` allows: its rail may
only be unseen. A ring's rail is a handful of records in that time, of which one datagram in ten can hold half.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import polars as pl

from analysis.baseline import Floats
from analysis.bins import Bins, Keys, Source
from analysis.detectors.study import Points, Span
from analysis.jobs.job_windows import end_of, overlapping, start_of
from analysis.window_reader import exporters_on
from cluster.model import Cluster, Job, Plane, Role
from store import schema
from store.influx import Store
from store.influxql import is_in
from store.points import WINDOW, columns
from store.sums import binned

MINUTE, _HOUR = 60, 3_600
_SHOWN = 0.5
"""Part of the threshold from which there is a row, and which exporters may be silent for."""

_COLUMNS = columns(
    schema.JOB, schema.JOB_CLASS, schema.NODE, schema.RAIL, schema.RAIL_MISSING, schema.RAIL_SENT, schema.RAIL_EXPECTED
)  # fmt: skip


def expected_bytes(sent: Floats) -> Floats:
    """Return what each rail should have sent, NaN where nothing says so; `sent`: [node, rail], NaN where there is none.

    Both need two nodes and two rails.
    """
    others = np.stack([_median(np.delete(sent, rail, axis=1), 1) for rail in range(sent.shape[1])], axis=1)
    quotient = np.divide(sent, others, out=np.full(sent.shape, np.nan), where=others > 0)
    found: Floats = np.minimum(_median(quotient, 0) * others, _median(sent, 0))
    return found


def _median(values: Floats, axis: int) -> Floats:
    """Return the median without NaN; NaN where there is nothing else."""
    ordered, count = np.sort(values, axis=axis), np.isfinite(values).sum(axis=axis, keepdims=True)
    middle = (np.take_along_axis(ordered, np.maximum(at, 0), axis) for at in ((count - 1) // 2, count // 2))
    found: Floats = np.stack(list(middle)).mean(axis=0).squeeze(axis)
    return found


class RailStudy:
    """Looks, minute by minute, for rails of running jobs that carry less than they should.

    Args:
        cluster: its rails, exporters, thresholds.
        store: read from.
    """

    measurements = (schema.RAIL_LOW,)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._store, self._limits = store, cluster.thresholds
        self._rails = {
            node.name: rails
            for node in cluster.nodes_with(Role.TRAINING)
            if len(rails := {str(one.rail) for one in node.addresses if one.rail is not None}) > 1
        }
        self._names = sorted(set[str]().union(*self._rails.values()))
        self._exporters = exporters_on(cluster, Plane.COMPUTE)
        self._window = -(-cluster.thresholds.rail_low_window // MINUTE) * MINUTE
        source = Source(schema.RAIL_TRAFFIC, schema.RAIL_TRAFFIC.kept, (schema.NODE, schema.RAIL))
        self._minutes = Bins(store, source, (schema.TX_BYTES,), MINUTE)

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the moments of the span that are final."""
        rows: list[tuple[object, ...]] = []
        moments = range(-(-span.start // MINUTE) * MINUTE, span.final + 1, MINUTE)
        running = overlapping(jobs, span.start - self._window, span.final) if self._rails else []
        for part in (moments[at : at + MINUTE] for at in range(0, len(moments), MINUTE) if running):
            self._minutes.forget(part[0] - self._window)
            self._minutes.ensure(part[0] - self._window, part[-1])
            heard = self._heard(part[0] - self._window - _HOUR, part[-1])
            for moment in part:
                begin = moment - self._window
                alive = [job for job in running if start_of(job) <= begin and moment <= end_of(job)]
                if alive and not self._is_blind(heard, begin, moment):
                    sums = self._minutes.between(begin, moment).sum(axis=0)[:, 0].tolist()
                    seen = dict(zip(self._minutes.keys, sums, strict=True))
                    rows += [(moment, job.id, job.job_class, *row) for job in alive for row in self._of(job, seen)]
        return [(schema.RAIL_LOW, pl.DataFrame(rows, schema=_COLUMNS, orient="row"))]

    def _of(self, job: Job, seen: Mapping[Keys, float]) -> list[tuple[object, ...]]:
        """Return node, rail, missing share, bytes and expected bytes of the low ones, of bytes by node and rail."""
        nodes = [name for name in job.nodes if name in self._rails]
        if len(nodes) < 2:
            return []
        # A rail that a node lacks is none that is silent.
        sent = np.full((len(nodes), len(self._names)), np.nan)
        for (node, name), (rail, one) in product(enumerate(nodes), enumerate(self._names)):
            if one in self._rails[name]:
                sent[node, rail] = seen.get((name, one), 0.0)
        expected = expected_bytes(sent)
        missing = np.where(expected >= self._limits.rail_low_bytes, 1 - sent / np.maximum(expected, 1.0), 0.0)
        return [
            (nodes[node], self._names[rail], missing[node, rail], int(sent[node, rail]), int(expected[node, rail]))
            for node, rail in np.argwhere(missing >= _SHOWN * self._limits.rail_low)
        ]

    def _is_blind(self, heard: pl.DataFrame, begin: int, moment: int) -> bool:
        """Whether an exporter loses records, or was heard before and is silent for so long that rails look low."""
        before = heard.filter(pl.col(WINDOW).is_between(begin - _HOUR, begin, closed="left"))
        since = heard.filter(pl.col(WINDOW).is_between(begin, moment, closed="left"))
        minutes = dict(since.group_by(schema.EXPORTER).agg(pl.col(WINDOW).n_unique()).iter_rows())
        lost, recorded = pl.sum(schema.SEQ_LOST.name), pl.sum(schema.EXPORTER_RECORDS.name)
        lossy = since.group_by(schema.EXPORTER).agg(lost > (lost + recorded) * self._limits.flow_loss)
        if lossy.get_column(schema.SEQ_LOST.name).any():
            return True
        least = (1 - _SHOWN * self._limits.rail_low) * self._window / MINUTE
        return any(minutes.get(name, 0) < least for name in before.get_column(schema.EXPORTER).unique())

    def _heard(self, start: int, stop: int) -> pl.DataFrame:
        """Return WINDOW (a minute) and EXPORTER of those whose flows hold bytes, with their records and lost ones."""
        fields = (schema.EXPORTER_BYTES, schema.EXPORTER_RECORDS, schema.SEQ_LOST)
        asked = (schema.EXPORTER_STATUS, schema.RAW, fields, (schema.EXPORTER,))
        which = [is_in(schema.EXPORTER, self._exporters)]
        found = binned(self._store, *asked, start=start, stop=stop, seconds=MINUTE, where=which)
        return found.filter(pl.col(schema.EXPORTER_BYTES.name) > 0)
