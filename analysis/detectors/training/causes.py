"""What explains a job's loss from outside: nodes of others that send to its nodes, others that keep storage busy.

    disturbed   training nodes that are not of the job sent at least `disturbance_bytes` to its nodes within the
                `disturbance_window` that ends with the window; not before it began, nor in the two minutes after: to
                whom its nodes belonged before may have sent that
    storage     others exchanged at least `busy_storage_bytes` with storage within the minute that ends with the window,
                and three times as much as in the median minute of the hour before, while the job used storage, too

That both happen at once is evidence, not proof. Only windows that lost something are looked at, so that nothing is
asked of a healthy run.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.detectors.study import JobWindows
from analysis.detectors.training.disturbance import SLACK
from analysis.detectors.training.stalls import Outer
from analysis.jobs.job_windows import start_of
from app.words import some
from cluster.model import Cluster, Job, Role
from store import schema
from store.influx import Store
from store.influxql import Condition, is_in, not_in
from store.points import WINDOW
from store.schema import OTHER, Cause, Field, Measurement
from store.sums import binned

_USUAL = 3.0
"""Times the median minute from which storage is busy."""
_MINUTE, _HOUR = 60, 3600
_STRETCH = 1800
"""Lost windows that are further apart are asked for by themselves."""
_FEW = 100
"""Nodes that a query names; of larger jobs all pairs are read."""
_NAMED = 3
"""Nodes that are named, the largest."""


class OuterCauses:
    """Asks the store who else was at work.

    Args:
        cluster: groups, thresholds.
        store: read from.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._store, self._window = store, cluster.bridge.window
        self._storage = sorted(group.id for group in cluster.groups_with(Role.STORAGE, Role.MODEL_STORAGE))
        self._limits = cluster.thresholds

    def of(self, job: Job, windows: JobWindows, lost: npt.NDArray[np.int64]) -> Mapping[int, Outer]:
        """Return the outer causes of windows, by their numbers; waits for the store.

        Args:
            job: whose.
            windows: of the job.
            lost: numbers of the windows that lost something, in order.

        Raises:
            StoreError: the store is away.
        """
        result: dict[int, Outer] = {}
        cuts = np.flatnonzero(np.diff(lost) * self._window > _STRETCH) + 1
        for part in np.split(windows.start + lost * self._window, cuts):
            found = self._busy(job, part) | self._disturbed(job, part)
            result |= {(window - windows.start) // self._window: outer for window, outer in found.items()}
        return result

    def _disturbed(self, job: Job, lost: npt.NDArray[np.int64]) -> dict[int, Outer]:
        of_few = [is_in(schema.DST, sorted(job.nodes))] if len(job.nodes) <= _FEW else [not_in(schema.DST, [OTHER])]
        # Pairs are kept in minutes; the one that a window lies in may still fill.
        span = -(-self._limits.disturbance_window // _MINUTE) * _MINUTE
        start, stop = (moment // _MINUTE * _MINUTE for moment in _range(lost, span))
        sent = binned(
            self._store, schema.PAIR, schema.PAIR.kept, (schema.BYTES,), (schema.SRC, schema.DST),
            start=start, stop=stop, seconds=_MINUTE, where=of_few,
        ).filter(
            pl.col(schema.DST).is_in(job.nodes), ~pl.col(schema.SRC).is_in([*job.nodes, OTHER]),
            pl.col(WINDOW) >= start_of(job) + SLACK,
        )  # fmt: skip
        found = {}
        for window in lost.tolist():
            end = (window + self._window) // _MINUTE * _MINUTE
            names, total = _largest(sent, schema.SRC, end, span)
            if total >= self._limits.disturbance_bytes:
                found[window] = Outer(Cause.DISTURBED, some(names, _NAMED))
        return found

    def _busy(self, job: Job, lost: npt.NDArray[np.int64]) -> dict[int, Outer]:
        if not self._storage:
            return {}
        span = _range(lost, _HOUR + _MINUTE)
        moved = [
            self._sums(
                schema.TRAFFIC, (schema.BYTES,), (far,), span, [is_in(near, self._storage), not_in(far, self._storage)]
            ).select(WINDOW, pl.col(far).alias(schema.GROUP), schema.BYTES.name)
            for near, far in ((schema.SRC_GROUP, schema.DST_GROUP), (schema.DST_GROUP, schema.SRC_GROUP))
        ]
        fields = (schema.TX_BYTES, schema.RX_BYTES)
        of_few = [is_in(schema.NODE, sorted(job.nodes))] if len(job.nodes) <= _FEW else []
        to_storage = [is_in(schema.PEER_GROUP, self._storage), *of_few]
        mine = self._sums(schema.NODE_TRAFFIC, fields, (schema.NODE, schema.GROUP), span, to_storage).filter(
            pl.col(schema.NODE).is_in(job.nodes)
        ).select(
            WINDOW, schema.GROUP,
            (-pl.sum_horizontal(pl.col(field.name).fill_null(0) for field in fields)).alias(schema.BYTES.name),
        )  # fmt: skip
        others = pl.concat([*moved, mine])
        found = {}
        for window in lost.tolist():
            end = window + self._window
            names, total = _largest(others, schema.GROUP, end, _MINUTE)
            minutes = others.filter(pl.col(WINDOW).is_between(end - _HOUR - _MINUTE, end - _MINUTE, closed="left"))
            places = (minutes.get_column(WINDOW).to_numpy() - (end - _HOUR - _MINUTE)) // _MINUTE
            usual = np.median(np.bincount(places, minutes.get_column(schema.BYTES.name).to_numpy(), _HOUR // _MINUTE))
            uses = mine.filter(pl.col(WINDOW).is_between(end - _HOUR, end, closed="left")).height
            if uses and total >= max(self._limits.busy_storage_bytes, _USUAL * float(usual)):
                found[window] = Outer(Cause.STORAGE, names[0])
        return found

    def _sums(
        self,
        measurement: Measurement,
        fields: tuple[Field, ...],
        tags: tuple[str, ...],
        span: tuple[int, int],
        where: list[Condition],
    ) -> pl.DataFrame:
        return binned(
            self._store, measurement, schema.RAW, fields, tags, start=span[0], stop=span[1], seconds=self._window,
            where=where,
        )  # fmt: skip


def _largest(talks: pl.DataFrame, tag: str, end: int, span: int) -> tuple[list[str], float]:
    """Return who moved bytes in so many seconds up to `end`, the most first, and all their bytes."""
    within = talks.filter(pl.col(WINDOW).is_between(end - span, end, closed="left"))
    sums = within.group_by(tag).agg(pl.sum(schema.BYTES.name)).sort(-pl.col(schema.BYTES.name), tag)
    return sums.get_column(tag).to_list(), float(sums.get_column(schema.BYTES.name).sum())


def _range(lost: npt.NDArray[np.int64], before: int) -> tuple[int, int]:
    """Return what must be read of windows in order, so long before each."""
    return int(lost[0]) - before, int(lost[-1]) + _MINUTE
