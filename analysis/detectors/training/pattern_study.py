"""Patterns of collectives as the analyser runs them: from pairs, rails and pulses to `pattern` rows.

A row says what the minute before it looked like, once nothing can change that any more. Pairs of a thousand nodes are
many: large jobs are looked at less often.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.baseline import Floats
from analysis.detectors.study import Points, Span
from analysis.detectors.training.collectives import Changes, Links, changes, rail_imbalance, shape_of
from analysis.detectors.training.steps import SERIES, Step, sample_of, step_of
from analysis.jobs.job_windows import end_of, overlapping, start_of
from analysis.window_reader import sees_seconds
from cluster.model import Cluster, Job, Plane
from store import schema
from store.influx import Store
from store.influxql import Condition, Select, is_in, not_in, total
from store.points import WINDOW, columns
from store.schema import Field, Measurement, Neighbour
from store.sums import binned

MINUTE = 60

LOOKED_AT = ((64, MINUTE), (256, 5 * MINUTE))
"""Seconds between two rows of a job of up to so many nodes."""
SELDOM = 15 * MINUTE
"""The same for larger ones."""

AGO = 10 * MINUTE
"""Neighbours are compared with those of so many seconds ago, or of the row before where that is longer ago."""

PAUSE = 3_600
"""Where the job was silent then, because it was restarted, with those before that, up to so many seconds ago."""

_NAMED = 20
"""New and gone pairs that each row names."""

REFERENCE = 3_600
"""The first so many seconds of a job, against which its period drifts."""

_FEW = 100
"""Nodes that a query names; of larger jobs all pairs are read."""

_MANY = 8
"""Jobs that are looked at in one pass, beyond which a minute is read once, of all nodes."""

_COLUMNS = columns(
    schema.JOB, schema.JOB_CLASS, schema.PATTERN_STATE, schema.NEIGHBOURS, schema.CHANGED, schema.IMBALANCE,
    schema.STEP_PERIOD, schema.STEP_DRIFT, schema.STEP_ERROR,
)  # fmt: skip

_CHANGED = columns(
    schema.JOB, schema.JOB_CLASS, schema.KIND, schema.SRC, schema.DST, schema.PAIR_BEFORE, schema.PAIR_NOW,
    schema.COMPARED_AT,
)  # fmt: skip

_Key = tuple[str, float]
"""A run: job id and start."""


@dataclass(frozen=True, slots=True)
class _Row:
    """What is told at a moment: a row of PATTERN, and those of CHANGED_PAIR."""

    values: tuple[object, ...]
    pairs: list[tuple[object, ...]]


def looked_at_every(nodes: int) -> int:
    """Return the seconds between two rows of a job of so many nodes."""
    return next((seconds for most, seconds in LOOKED_AT if nodes <= most), SELDOM)


class PatternStudy:
    """Looks at each running job's collectives.

    Args:
        cluster: its rails and exporters.
        store: read from.
    """

    measurements = (schema.PATTERN, schema.CHANGED_PAIR)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._store = store
        self._keeps, self._sees_seconds = cluster.store.keep_raw, sees_seconds(cluster)
        self._of_node = {
            node.name: {str(entry.rail) for entry in node.addresses if entry.rail is not None} for node in cluster.nodes
        }
        self._rails = sorted(set[str]().union(*self._of_node.values()))
        self._links: dict[_Key, dict[int, Links]] = {}
        self._references: dict[_Key, float | None] = {}
        self._last: dict[_Key, _Row] = {}
        self._of_all: dict[tuple[str, int], pl.DataFrame] | None = None

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the moments of the span that are final."""
        running = [job for job in overlapping(jobs, span.start - MINUTE, span.final) if len(job.nodes) > 1]
        keys = {_key(job) for job in running}
        for known in (self._links, self._references, self._last):
            for key in [key for key in known if key not in keys]:
                del known[key]
        self._of_all = {} if len(running) > _MANY else None
        rows = [row for job in running for row in self._of(job, span)]
        pairs = [pair for row in rows for pair in row.pairs]
        return [
            (measurement, pl.DataFrame(found, schema=names, orient="row"))
            for measurement, found, names in (
                (schema.PATTERN, [row.values for row in rows], _COLUMNS), (schema.CHANGED_PAIR, pairs, _CHANGED)
            )
            if found
        ]  # fmt: skip

    def _of(self, job: Job, span: Span) -> "list[_Row]":
        every, begins = looked_at_every(len(job.nodes)), start_of(job)
        first = max(span.start, int(-(-begins // 1)) + MINUTE)
        last = min(span.final, end_of(job))
        moments = list(range(-(-first // every) * every, int(last) + 1, every))
        if not moments:
            return []
        # The last row of one pass is the first of the next.
        before = self._last.get(_key(job))
        known = [before] if before is not None and before.values[0] == moments[0] else []
        moments = moments[len(known) :]
        if not moments:
            return known
        ago = max(AGO, every)
        earlier = [moment - ago for moment in moments if moment - ago - MINUTE >= begins]
        links = self._links_at(job, sorted({*moments, *earlier}))
        rails = self._rails_at(job, moments)
        pulses = self._pulses(job, moments)
        rows = list(known)
        for moment in moments:
            shape, head = shape_of(links[moment]), (moment, job.id, job.job_class)
            found = self._changes(job, moment, links, ago)
            values = (
                *head, shape.pattern, shape.neighbours, None if found is None else found.nodes,
                rail_imbalance(rails[moment]), *self._step(job, moment, pulses),
            )  # fmt: skip
            rows.append(_Row(values, [(*head, *pair) for pair in _named_pairs(job, moment, found)]))
        self._last[_key(job)] = rows[-1]
        return rows

    def _changes(self, job: Job, moment: int, links: dict[int, Links], ago: int) -> Changes | None:
        """Return what differs from `ago` seconds before, or from when the job sent before that; None without either."""
        before = links.get(moment - ago)
        back = 2 * ago
        while before is not None and before.are_silent() and not links[moment].are_silent():
            if back > PAUSE or moment - back - MINUTE < start_of(job):
                break
            before = self._links_at(job, [moment - back])[moment - back]
            back += ago
        return None if before is None else changes(before, links[moment])

    # -- who sent to whom --------------------------------------------------------------------------

    def _links_at(self, job: Job, moments: Sequence[int]) -> dict[int, Links]:
        """Return the links of the minute before each moment; those asked for again and again are kept."""
        kept = self._links.setdefault(_key(job), {})
        missing = [moment for moment in moments if moment not in kept]
        place = pl.DataFrame({"name": job.nodes, "place": range(len(job.nodes))})
        for run in _runs(missing):
            # Of all planes: what nodes say to each other over the others is too little to count, and to ask costs more.
            found = self._read(job, schema.PAIR, schema.BYTES, (schema.SRC, schema.DST), run)
            src = found.join(place.rename({"name": schema.SRC, "place": "src_place"}), on=schema.SRC, how="inner")
            both = src.join(place.rename({"name": schema.DST, "place": "dst_place"}), on=schema.DST, how="left")
            parts = dict(iter(both.group_by(WINDOW)))
            for moment in run:
                kept[moment] = _links(parts.get((moment - MINUTE,), both.clear()), len(job.nodes))
        for moment in [moment for moment in kept if moment < moments[0]]:
            del kept[moment]
        return kept

    # -- rails -------------------------------------------------------------------------------------

    def _rails_at(self, job: Job, moments: Sequence[int]) -> dict[int, Floats]:
        """Return [node, rail] bytes of the minute before each moment; NaN where a node has no such rail."""
        have = [self._of_node.get(name, set()) for name in job.nodes]
        none = np.array([[0.0 if rail in one else np.nan for rail in self._rails] for one in have])
        result = {moment: none.copy() for moment in moments}
        if len(self._rails) < 2:
            return result
        place = {name: number for number, name in enumerate(job.nodes)}
        rail = {name: number for number, name in enumerate(self._rails)}
        for run in _runs(moments):
            found = self._read(job, schema.RAIL_TRAFFIC, schema.TX_BYTES, (schema.NODE, schema.RAIL), run)
            mine = found.filter(pl.col(schema.NODE).is_in(job.nodes) & pl.col(schema.RAIL).is_in(self._rails))
            for (window,), part in mine.group_by(WINDOW):
                at = (
                    part.get_column(schema.NODE).replace_strict(place, return_dtype=pl.Int64).to_numpy(),
                    part.get_column(schema.RAIL).replace_strict(rail, return_dtype=pl.Int64).to_numpy(),
                )
                np.add.at(result[int(str(window)) + MINUTE], at, part.get_column(schema.TX_BYTES.name).to_numpy())
        return result

    def _read(
        self, job: Job, measurement: Measurement, field: Field, tags: tuple[str, str], moments: Sequence[int]
    ) -> pl.DataFrame:
        """Return sums of each of the minutes that end at consecutive moments; the first tag is one of the job's nodes.

        Of a large job there are other nodes, too.
        """

        def read(where: Iterable[Condition]) -> pl.DataFrame:
            return binned(
                self._store, measurement, measurement.kept, (field,), tags,
                start=moments[0] - MINUTE, stop=moments[-1], seconds=MINUTE, where=where, as_stored=True,
            )  # fmt: skip

        if len(job.nodes) > _FEW:
            return read(())
        if self._of_all is None or len(moments) > 1:
            return read([is_in(tags[0], sorted(job.nodes))])
        # Live, all small jobs are looked at in the same minute: a query for each took seconds.
        key = measurement.name, moments[0]
        if key not in self._of_all:
            self._of_all[key] = read(())
        return self._of_all[key].filter(pl.col(tags[0]).is_in(job.nodes))

    # -- steps -------------------------------------------------------------------------------------

    def _pulses(self, job: Job, moments: Sequence[int]) -> dict[int, Floats]:
        """Return for each moment the bytes of the seconds before it; none without sFlow."""
        if not self._sees_seconds:
            return dict.fromkeys(moments, np.zeros(0))
        begins = int(-(-start_of(job) // 1))
        result = {}
        for run in _runs(moments):
            start = max(run[0] - SERIES, begins)
            seconds = self._seconds(job, start, run[-1])
            for moment in run:
                result[moment] = seconds[max(moment - SERIES - start, 0) : moment - start]
        return result

    def _seconds(self, job: Job, start: int, stop: int) -> Floats:
        """Return what some of the job's nodes sent in each second of [start, stop)."""
        of_nodes = is_in(schema.NODE, sorted(sample_of(job.nodes)))
        # No traffic of management or storage.
        on_collectives = not_in(schema.PLANE, (Plane.MANAGEMENT.value, Plane.STORAGE.value))
        both = map(total, (schema.PULSE_KIB, schema.PULSE_BYTES))
        sums = Select(schema.PULSE, schema.RAW).take(*both).where(of_nodes, on_collectives)
        values = np.nan_to_num(self._store.numbers(sums.each(1).between(start, stop)).values)
        seconds = np.zeros(max(stop - start, 0))
        if len(values):
            seconds[(values[:, 0] / 1000 - start).astype(np.int64)] = values[:, 1] * schema.KIB + values[:, 2]
        return seconds

    def _step(self, job: Job, moment: int, pulses: dict[int, Floats]) -> tuple[float | None, ...]:
        """Return period, drift and error at a moment; None where there are none."""
        step = step_of(pulses[moment])
        if step is None:
            return None, None, None
        age = moment - start_of(job)
        # Once the first hour is older than the raw points, nobody could say the same again.
        reference = self._reference(job) if REFERENCE + SERIES <= age <= self._keeps - REFERENCE else None
        return step.period, None if reference is None else step.period / reference - 1, step.error

    def _reference(self, job: Job) -> float | None:
        """Return the period of the job's first hour; None if it had none."""
        key = _key(job)
        if key not in self._references:
            begins = int(-(-start_of(job) // 1))
            hour = self._seconds(job, begins, begins + REFERENCE)
            found: list[Step | None] = [
                step_of(part) for part in hour[: REFERENCE // SERIES * SERIES].reshape(-1, SERIES)
            ]
            periods = [step.period for step in found if step is not None]
            self._references[key] = float(np.median(periods)) if len(periods) > len(found) // 3 else None
        return self._references[key]


def _named_pairs(job: Job, moment: int, found: Changes | None) -> "Iterator[tuple[object, ...]]":
    """Yield kind, source, destination, bytes before and now, and the moment, of the largest changed pairs."""
    if found is None:
        return
    for src, dst, before, now in zip(*(part[:_NAMED] for part in (found.src, found.dst, found.before, found.now)),
                                     strict=True):  # fmt: skip
        kind = Neighbour.NEW if now > before else Neighbour.GONE
        yield kind.value, job.nodes[src], job.nodes[dst], int(before), int(now), float(moment)


def _links(part: pl.DataFrame, nodes: int) -> Links:
    """Return a minute's links; bytes to unnamed nodes are a sum; what left the cohort is not included."""
    inside = part.filter(pl.col("dst_place").is_not_null())
    other = part.filter(pl.col(schema.DST) == schema.OTHER)
    rest = np.zeros(nodes)
    np.add.at(rest, other.get_column("src_place").to_numpy(), other.get_column(schema.BYTES.name).to_numpy())
    return Links(
        nodes,
        inside.get_column("src_place").to_numpy(),
        inside.get_column("dst_place").to_numpy(),
        inside.get_column(schema.BYTES.name).to_numpy().astype(np.float64),
        rest,
    )


def _key(job: Job) -> _Key:
    return job.id, start_of(job)


def _runs(moments: Sequence[int]) -> Iterator[list[int]]:
    """Yield stretches of moments that follow each other minute by minute, at most an hour long."""
    run: list[int] = []
    for moment in moments:
        if run and (moment != run[-1] + MINUTE or len(run) == REFERENCE // MINUTE):
            yield run
            run = []
        run.append(moment)
    if run:
        yield run
