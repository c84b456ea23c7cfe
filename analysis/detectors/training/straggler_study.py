"""Stragglers as the analyser runs them: the nodes of a job ranked every five minutes, and once more at its end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.detectors.rows import Rows, tags_of
from analysis.detectors.study import JobWindows, Memory
from analysis.detectors.training import stragglers
from analysis.detectors.training.stragglers import Field, Ranking, StragglerCarry
from analysis.evidence import Reader
from analysis.jobs.job_windows import end_of, start_of
from analysis.window_reader import sees_seconds
from cluster.model import Cluster, Job
from store import schema
from store.points import WINDOW

_EVERY = 300
"""Seconds between two rankings."""
_CLOSER_EVERY, _CLOSER = 900, 60
"""Seconds between two looks at single seconds, and how many are looked at."""
_WARM_UP, _TAIL = 60, 30
"""Seconds left out at the start and at the end of a job."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A job between two windows."""

    groups: tuple[str, ...]
    carry: StragglerCarry


class StragglerStudy:
    """Ranks the nodes of a job; runs after the studies of nodes and of storage.

    Args:
        cluster: its thresholds, groups and exporters.
        reader: of the store.
    """

    name = "stragglers"
    measurements = (schema.JOB_NODE,)

    def __init__(self, cluster: Cluster, reader: Reader) -> None:
        self._window, self._spreads = cluster.bridge.window, cluster.thresholds.dropout_spreads
        self._group_of = {node.name: node.group for node in cluster.nodes}
        self._reader, self.closer = reader, _CLOSER_EVERY if sees_seconds(cluster) else 0

    def first(self, job: Job, earlier: Sequence[Memory], begin: int) -> Standing:
        """Return the standing before a job's first window."""
        del earlier, begin
        groups = tuple(self._group_of.get(node, "") for node in job.nodes)
        return Standing(groups, StragglerCarry.first(len(job.nodes)))

    def judge(self, job: Job, carry: Standing, windows: JobWindows) -> tuple[Standing, list[Rows]]:
        """Add up consecutive windows, and rank where it is time to."""
        size, window = len(job.nodes), self._window
        nodes = windows.of(schema.BASELINE)
        state = nodes[schema.STATE.name].reshape(-1, size)
        phase = windows.of(schema.PHASE)[schema.PHASE_STATE.name]
        centre = nodes[schema.EXPECTED.name][:size]
        spread = (centre - nodes[schema.LOWER.name][:size]) / self._spreads
        starts = windows.starts
        steady = (starts >= start_of(job) + _WARM_UP) & (starts + window <= end_of(job) - _TAIL)
        is_last = starts + window >= end_of(job)
        going, rows, first = carry.carry, [], 0
        for index in np.flatnonzero(((starts + window) % _EVERY == 0) | is_last):
            part, end = slice(first, index + 1), int(starts[index]) + window
            seen = Field(window, windows.sent[part], state[part], phase[part], steady[part])
            going = stragglers.follow(going, seen)
            # Once, when nothing can change any more: until then every tick would ask again.
            if self.closer and windows.is_final and end % self.closer == 0:
                going = stragglers.look_closer(going, self._reader.windows.pulse(job.nodes, end - _CLOSER, end))
            ranking = stragglers.rank(going, centre, spread)
            rows.append(_rows(job, carry.groups, int(starts[index]), ranking))
            first = int(index) + 1
        rest = slice(first, len(windows))
        seen = Field(window, windows.sent[rest], state[rest], phase[rest], steady[rest])
        going = stragglers.follow(going, seen)
        return replace(carry, carry=going), rows

    def retold(self, job: Job, carry: Standing) -> Standing:
        """Return the standing as it is: it does not know when the job ends."""
        del job
        return carry

    def remember(self, job: Job, carry: Standing) -> Memory:
        """Remember nothing: what nodes usually send is learnt by the study of dropouts."""
        del job, carry
        return {}


def _rows(job: Job, groups: Sequence[str], window: int, ranking: Ranking) -> Rows:
    rows = Rows(
        schema.JOB_NODE,
        {
            WINDOW: np.full(len(job.nodes), window),
            schema.NODE: np.array(job.nodes, object),
            schema.GROUP: np.array(groups, object),
            schema.DEFICIT.name: ranking.deficit,
            schema.DEFICIT_BYTES.name: np.rint(ranking.deficit_bytes),
            schema.SCORE.name: ranking.score,
            schema.ONSET_LAG.name: ranking.onset_lag,
            schema.LOW_SECONDS.name: ranking.low_seconds,
            schema.RANK.name: ranking.rank,
        },
        tags_of(job),
    )
    # A node that nobody saw at work yet has no rank.
    return rows.where(~np.isnan(ranking.deficit))
