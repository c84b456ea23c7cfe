"""Jobs inferred from the traffic between training nodes: ``traffic_cohorts`` over what the store holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from analysis.baseline import Floats
from analysis.jobs.job_source import Around, Source
from analysis.jobs.job_windows import end_of, overlapping, start_of
from analysis.jobs.register import Register
from analysis.jobs.traffic_cohorts import MINUTE, Cohort, Cohorts, Ended, Memory, Minute, Pairs
from analysis.window_reader import exporters_on
from cluster.model import Cluster, InferredJobs, Job, Plane, Role
from store import schema
from store.influx import ROWS, Numbers, Store
from store.influxql import Select, is_in, total

_STRETCH = 60 * MINUTE
_MILLI = 1000


class InferredSource:
    """Goes through the minutes of the store that will not change any more.

    Args:
        settings: what counts as a cohort.
        cluster: whose training nodes are looked at.
        store: read from.
        register: where jobs go, and what is remembered between two processes.
        others: returns the jobs that somebody else knows; their nodes are not looked at while these run.
        check: called between stretches of work; may raise.
    """

    def __init__(
        self,
        settings: InferredJobs,
        cluster: Cluster,
        store: Store,
        register: Register,
        others: Callable[[], Sequence[Job]],
        *,
        check: Callable[[], None],
    ) -> None:
        self.name = settings.name
        self._register, self._others, self._check = register, others, check
        groups = {group.id for group in cluster.groups_with(Role.TRAINING)}
        nodes = sorted(node.name for node in cluster.nodes if node.group in groups)
        exporters = exporters_on(cluster, Plane.COMPUTE)
        self._minutes = _Minutes(store, nodes, sorted(groups))
        self._cohorts = Cohorts(settings, nodes, exporters, Memory.of(register.memory(self.name)))

    def start(self) -> None:
        """Nothing: the analyser says what is settled."""

    def stop(self) -> None:
        """Nothing was begun."""

    def refresh(self, now: float) -> str:
        """Return that all is well: what is known depends on the store only."""
        del now
        return ""

    def resume(self) -> None:
        """Go on with the jobs of the register that still run, after what was remembered beside them got lost."""
        memory = self._cohorts.memory
        jobs = [known.job for known in self._register.jobs(self.name).values()]
        if memory.at is not None or not jobs:
            return
        memory.running = [Cohort(int(start_of(job)), list(job.nodes), 0.0) for job in jobs if job.end is None]
        newest = max(int(start_of(job)) if job.end is None else int(end_of(job)) for job in jobs)
        memory.at = newest // MINUTE * MINUTE

    def turn_back(self, moment: int) -> None:
        """Go back to a moment: what began later was not there, and what ended later runs on."""
        known = [known.job for known in self._register.jobs(self.name).values()]
        self._register.drop(self.name, {job.id for job in known if start_of(job) >= moment})
        running = [job for job in known if start_of(job) < moment < end_of(job)]
        self._register.put(self.name, {job.id: replace(job, end=None, quiet=0) for job in running}, 0.0)
        cohorts = [Cohort(int(start_of(job)), list(job.nodes), 0.0) for job in running]
        self._cohorts.memory = Memory(moment // MINUTE * MINUTE, cohorts)
        self._register.remember(self.name, self._cohorts.memory.plain())

    def settle(self, oldest: int, final: int) -> None:
        """Look at every minute that ended by `final`, from `oldest` on.

        Raises:
            StoreError: the store is away; the next call goes on from here.
        """
        memory = self._cohorts.memory
        first = -(-oldest // MINUTE) * MINUTE
        if memory.at is None or memory.at < first:
            # What ran before the store's memory begins may run still; if not, it ends for being idle.
            memory.ages.clear()
            memory.at = first
        last = final // MINUTE * MINUTE
        for start in range(memory.at, last, _STRETCH):
            self._check()
            self._stretch(start, min(start + _STRETCH, last))
            self._register.remember(self.name, self._cohorts.memory.plain())

    def _stretch(self, start: int, stop: int) -> None:
        sent, heard = self._minutes.read(start, stop)
        others = overlapping(self._others(), start, stop)
        for index, end in enumerate(range(start + MINUTE, stop + 1, MINUTE)):
            taken = {node for job in overlapping(others, end - MINUTE, end) for node in job.nodes}
            begun, ended = self._cohorts.step(Minute(end, sent[index], heard[index], taken, self._pairs_until(end)))
            self._note(begun, ended)

    def _pairs_until(self, end: int) -> Callable[[int], Pairs]:
        return lambda seconds: self._minutes.pairs(end - seconds, end)

    def _note(self, begun: Sequence[Cohort], ended: Sequence[Ended]) -> None:
        jobs = [_job(cohort, None, 0) for cohort in begun] + [_job(one.cohort, one.end, one.quiet) for one in ended]
        if jobs:
            self._register.put(self.name, {job.id: job for job in jobs}, 0.0)


def _job(cohort: Cohort, end: int | None, quiet: int) -> Job:
    start = datetime.fromtimestamp(cohort.start, UTC)
    return Job(
        id=f"inferred-{start:%Y%m%dT%H%M}-{cohort.members[0]}"[:63],
        job_class=f"inferred-{len(cohort.members)}",
        nodes=tuple(cohort.members),
        start=start,
        end=None if end is None else datetime.fromtimestamp(end, UTC),
        quiet=quiet,
    )


@dataclass(frozen=True, slots=True)
class _Minutes:
    """Reads minutes.

    Attributes:
        nodes: whose bytes.
        groups: ids of the training groups.
    """

    store: Store
    nodes: Sequence[str]
    groups: Sequence[str]

    def read(self, start: int, stop: int) -> tuple[Floats, list[frozenset[str]]]:
        """Return [minute, node] bytes to training nodes, and the exporters that were heard in each."""
        minutes = (stop - start) // MINUTE
        sent = np.zeros((minutes, len(self.nodes)))
        place = {name: index for index, name in enumerate(self.nodes)}
        if self.groups and self.nodes:
            sums = Select(schema.NODE_TRAFFIC, schema.RAW).take(total(schema.TX_BYTES)).by(schema.NODE)
            found = self._minutes(sums.where(is_in(schema.PEER_GROUP, sorted(self.groups))), start, stop)
            names, rows, values = _flat(found)
            columns = np.array([place.get(name, -1) for (name,) in names], np.int64)[rows]
            ours = columns >= 0
            np.add.at(sent, (_minute(values, start)[ours], columns[ours]), values[ours, 1])
        heard: list[set[str]] = [set() for _ in range(minutes)]
        sums = Select(schema.EXPORTER_STATUS, schema.RAW).take(total(schema.EXPORTER_BYTES)).by(schema.EXPORTER)
        names, rows, values = _flat(self._minutes(sums, start, stop))
        for index, row, volume in zip(_minute(values, start), rows, values[:, 1], strict=True):
            if volume > 0:
                heard[index].add(names[row][0])
        return sent, [frozenset(one) for one in heard]

    def pairs(self, start: int, stop: int) -> Pairs:
        """Return the bytes from node to node."""
        place = {name: index for index, name in enumerate(self.nodes)}
        found: dict[tuple[int, int], float] = {}
        sums = Select(schema.PAIR, schema.PAIR.kept).take(total(schema.BYTES)).by(schema.SRC, schema.DST)
        names, rows, values = _flat(self._minutes(sums, start, stop))
        for row, volume in zip(rows, values[:, 1], strict=True):
            src, dst = names[row]
            if src in place and dst in place:
                edge = place[src], place[dst]
                found[edge] = found.get(edge, 0.0) + float(volume)
        return found

    def _minutes(self, sums: Select, start: int, stop: int) -> Numbers:
        return self.store.numbers(sums.each(MINUTE).between(start, stop))


def _flat(found: Numbers) -> tuple[list[tuple[str, ...]], npt.NDArray[np.int64], Floats]:
    """Return the tags of each series, for each row of the matrix the number of its series, and the matrix."""
    counts = found.tags.get_column(ROWS).to_numpy().astype(np.int64)
    names = [tuple(map(str, row)) for row in found.tags.drop(ROWS).iter_rows()]
    return names, np.repeat(np.arange(len(counts)), counts), np.nan_to_num(found.values)


def _minute(values: Floats, start: int) -> npt.NDArray[np.int64]:
    return ((values[:, 0] / _MILLI - start) // MINUTE).astype(np.int64)


def source(one: InferredJobs, at: Around) -> Source:
    """Return the source of these settings."""
    return InferredSource(one, at.cluster, at.store, at.register, at.told, check=at.check)
