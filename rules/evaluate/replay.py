"""Evaluate a rule over a long stretch of stored data: the outcome of every tick, at the price of the few that matter.

The states are those of `evaluator.Evaluator` tick by tick: the same queries on the same InfluxDB, the same state
machine. What makes it quick: ticks at which the rule cannot fire are passed over (`bounds`) while nothing of it
is pending or firing; a query whose points are the same as a tick ago is not asked again; and queries that are asked go
many to a request.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.errors import StoreError
from cluster.model import Cluster
from rules.evaluate.bounds import (
    Cells,
    Range,
    Window,
    fields_read,
    is_not_negative,
    may_be_empty,
    may_fire,
    may_reach,
    merged,
)
from rules.evaluate.evaluator import Answer, annotator, holds, numbers_of, samples_of
from rules.evaluate.states import Instance, Labels, Outcome, Sample, State, advance_rule, labels_of
from rules.evaluate.timeline import Timeline
from rules.rule import ErrorPolicy, Measure, NoDataPolicy, Rule
from store import schema
from store.influx import Store, StoreUnavailableError
from store.influxql import Select, count, settle_seconds

_FEW_TICKS = 12
"""So many evaluations are done rather than thought about."""
_MANY_TICKS = 8640
_PARTS = 4
_FIRST_BATCH, _LARGEST_BATCH = 4, 64
_OCCUPANCY_CELL = 10
_OCCUPANCY_BLOCK = 6 * 3600

_ANALYSIS_SECONDS = 8
"""How much later than the bridge the analysis is done with a window: its own spare time and its round."""


@dataclass(frozen=True, slots=True)
class Sight:
    """When a stored point counts as seen: seconds after its time, by the part that writes it.

    All zero is what `test-rules` does: everything that is stored is seen at once, the window that has just begun with
    all that it will ever hold. `settled` is what a live Grafana can rely on.
    """

    ingest: int = 0
    analysis: int = 0

    @classmethod
    def settled(cls, cluster: Cluster) -> "Sight":
        """Return the sight by which a window is seen when it is nearly whole: its length, lateness, two flushes."""
        ingest = settle_seconds(cluster, schema.RAW)
        return cls(ingest, ingest + _ANALYSIS_SECONDS)

    def window(self, measure: Measure) -> Window:
        """Return what an evaluation of the measure sees."""
        asked = measure.query.select
        origins = {one.origin for one in asked.measurements()} if asked is not None else {"analysis"}
        lag = self.analysis if "analysis" in origins else self.ingest
        return Window(measure.since, max(measure.until, lag))


@dataclass(slots=True)
class Effort:
    """What it took: evaluations in the stretch, those that were done, queries that were asked."""

    ticks: int = 0
    evaluated: int = 0
    queries: int = 0


@dataclass(slots=True)
class Replay:
    """One rule over one stretch.

    Args:
        rule: what is evaluated.
        store: where the data is.
        whole: first and last moment, epoch seconds; evaluated at the multiples of the rule's interval between them.
        cells: bounds of the data, shared by all rules; they must reach as far back as the rule looks.
        sight: when points count as seen.
        datasource: uid of Grafana's data source.
        told: called with the epoch second up to which it is done.
    """

    rule: Rule
    store: Store
    whole: Range
    cells: Cells
    sight: Sight = field(default_factory=Sight)
    datasource: str = "clusterflow"
    told: Callable[[int], None] = lambda _: None
    effort: Effort = field(default_factory=Effort)
    _instances: dict[Labels, Instance] = field(default_factory=dict)

    def run(self, timeline: Timeline) -> None:
        """Evaluate, and add what happens to the timeline.

        Raises:
            StoreError: the store is away. What it has against one query is an alert of the rule, as in Grafana.
        """
        rule, step = self.rule, self.rule.interval
        now = -(-self.whole.first // step) * step
        last = self.whole.last // step * step
        self.effort.ticks = max((last - now) // step + 1, 0)
        windows = [self.sight.window(measure) for measure in rule.measures]
        answers = _Answers(self.store, rule, windows, self.effort)
        lingering = rule.missing_evaluations * step
        warm = lingering if self._needs_every_instance else 0
        ranges = self._candidates(windows)
        current = next(ranges, None)
        while now <= last:
            if not self._is_busy:
                while current is not None and current.last < now:
                    current = next(ranges, None)
                if current is None:
                    break
                begin = -(-(current.first - warm) // step) * step
                if begin > now:
                    # Nothing between here and there can fire. What was Normal is found again where it matters.
                    now, self._instances = begin, {}
                    if now > last:
                        break
            ahead = now + lingering if current is None or self._is_busy else current.last
            self._evaluate(now, min(max(ahead, now), last), answers, timeline)
            self.told(now)
            now += step
        self.told(self.whole.last)

    @property
    def _is_busy(self) -> bool:
        return any(instance.state is not State.NORMAL for instance in self._instances.values())

    @property
    def _needs_every_instance(self) -> bool:
        """Whether an evaluation without data or with an error does something to instances that are Normal."""
        on_silence = self.rule.no_data in (NoDataPolicy.ALERTING, NoDataPolicy.NO_DATA)
        return on_silence or self.rule.on_error is ErrorPolicy.ALERTING

    # -- where to look -----------------------------------------------------------------------------

    def _candidates(self, windows: Sequence[Window]) -> Iterator[Range]:
        """Yield the ranges, in order, that hold every evaluation that is not quiet."""
        step = self.rule.interval
        ranges = may_fire(self.rule, windows, self.cells, self.whole)
        if self._needs_every_instance:
            # Here a range is also one for what it lacks, of which a sum over more of it knows nothing.
            yield from merged([*ranges, *may_be_empty(self.rule, windows, self.cells, self.whole)])
            return
        reaches = may_reach(self.rule, windows[0])
        if reaches is not None and not is_not_negative(self.rule, self.cells):
            reaches = None
        for one in ranges:
            first, last = -(-one.first // step) * step, one.last // step * step
            if first <= last:
                yield from self._refined(Range(first, last), reaches) if reaches else (Range(first, last),)

    def _refined(self, ticks: Range, reaches: Callable[[Store, Range], bool]) -> Iterator[Range]:
        """Yield the parts of a range in which the rule's own query, asked for all of it at once, reaches the limit."""
        step = self.rule.interval
        count = (ticks.last - ticks.first) // step + 1
        if count <= _FEW_TICKS:
            yield ticks
            return
        if count <= _MANY_TICKS:
            self.effort.queries += 1
            try:
                if not reaches(self.store, ticks):
                    return
            except StoreUnavailableError:
                raise
            except StoreError:
                # What is wrong shows where the rule itself is asked.
                yield ticks
                return
        size = -(-count // _PARTS) * step
        for first in range(ticks.first, ticks.last + 1, size):
            yield from self._refined(Range(first, min(first + size - step, ticks.last)), reaches)

    # -- one evaluation ----------------------------------------------------------------------------

    def _evaluate(self, now: int, upto: int, answers: "_Answers", timeline: Timeline) -> None:
        rule = self.rule
        first = answers.of(0, now, upto)
        if not self._needs_every_instance and not self._is_busy and not _alerts(rule, first):
            # Normal, or without data, which then changes nothing either.
            return
        self.effort.evaluated += 1
        every: Iterable[Answer] = (answers.of(position, now, upto) for position in range(len(rule.measures)))
        samples = samples_of(rule, every, self.datasource)
        self._instances, transitions = advance_rule(self._instances, now, samples, rule, self._annotate)
        timeline.add(now, rule, transitions)

    def _annotate(self, sample: Sample) -> Mapping[str, str]:
        """Render the texts of what somebody may read; most series are and stay Normal."""
        if self._needs_every_instance:
            # An alert that begins without data has the texts of before.
            return annotator(self.rule)(sample)
        labels = labels_of({**dict(sample.labels), **self.rule.all_labels()})
        instance = self._instances.get(labels)
        is_quiet = instance is None or instance.state is State.NORMAL
        return {} if is_quiet and sample.outcome is Outcome.NORMAL else annotator(self.rule)(sample)


def _alerts(rule: Rule, answer: Answer) -> bool:
    """Whether a first answer must be looked at: an error, or a number on the alerting side."""
    if isinstance(answer, StoreError):
        return True
    return any(number is not None and holds(rule.threshold, number) for number in answer.values())


class _Answers:
    """Answers to a rule's measures, asked ahead."""

    def __init__(self, store: Store, rule: Rule, windows: Sequence[Window], effort: Effort) -> None:
        self._store, self._rule, self._windows, self._effort = store, rule, windows, effort
        self._kept: list[dict[int, Answer]] = [{} for _ in rule.measures]
        self._batch = [_FIRST_BATCH for _ in rule.measures]
        self._occupied = [_Occupied.of(store, rule, measure, effort) for measure in rule.measures]

    def of(self, position: int, now: int, upto: int) -> Answer:
        """Return the answer to a measure at `now`; evaluations up to `upto` are likely to follow."""
        kept = self._kept[position]
        if now not in kept:
            step = self._rule.interval
            earlier = max((tick for tick in kept if tick < now), default=None)
            count = min(self._batch[position], max((upto - now) // step, 0) + 1)
            ticks = range(now, now + count * step, step)
            is_next = earlier == now - step
            self._batch[position] = min(2 * self._batch[position], _LARGEST_BATCH) if is_next else _FIRST_BATCH
            before = {earlier: kept[earlier]} if earlier is not None and is_next else {}
            kept.clear()
            kept.update(self._asked(position, ticks, before))
        return kept[now]

    def _asked(self, position: int, ticks: range, before: Mapping[int, Answer]) -> dict[int, Answer]:
        """Return the answers at some ticks; those that see the same points as the tick before are not asked."""
        measure, window, occupied = self._rule.measures[position], self._windows[position], self._occupied[position]
        found: dict[int, Answer] = dict(before)
        same_as: dict[int, int] = {}
        asked: list[int] = []
        previous = next(iter(before), None)
        for tick in ticks:
            if previous is not None and occupied is not None and occupied.sees_the_same(window, previous, tick):
                same_as[tick] = same_as.get(previous, previous)
            else:
                asked.append(tick)
            previous = tick
        if asked:
            texts = [measure.query.between(tick - window.since, tick - window.until) for tick in asked]
            self._effort.queries += len(texts)
            for tick, answer in zip(asked, self._store.answers(texts), strict=True):
                found[tick] = answer if isinstance(answer, StoreError) else numbers_of(measure, answer)
        return found | {tick: found[source] for tick, source in same_as.items()}


@dataclass(slots=True)
class _Occupied:
    """In which bins of time the measurements at the bottom of a query hold points."""

    store: Store
    bottoms: tuple[Select, ...]
    effort: Effort
    _blocks: dict[int, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, rule: Rule, measure: Measure, effort: Effort) -> "_Occupied | None":
        """Return it for a measure; None where two answers over the same points may differ."""
        asked = measure.query.select
        if asked is None or not asked.is_fixed:
            return None
        # Where evaluations begin at other places of a bin, the first bin of the answer is another one.
        if any(rule.interval % one.bins for one in asked.levels() if one.bins):
            return None
        return cls(store, asked.bottoms(), effort)

    def sees_the_same(self, window: Window, earlier: int, later: int) -> bool:
        """Whether the windows of two evaluations hold the same points."""
        return self._is_empty(earlier - window.since, later - window.since) and self._is_empty(
            earlier - window.until, later - window.until
        )

    def _is_empty(self, first: int, last: int) -> bool:
        cells = range(first // _OCCUPANCY_CELL, last // _OCCUPANCY_CELL + 1)
        return not any(cell in self._block(cell * _OCCUPANCY_CELL // _OCCUPANCY_BLOCK) for cell in cells)

    def _block(self, number: int) -> frozenset[int]:
        if number not in self._blocks:
            begin = number * _OCCUPANCY_BLOCK
            texts = [
                replace(bottom, columns=tuple(map(count, fields_read(bottom))), tags=())
                .each(_OCCUPANCY_CELL)
                .between(begin, begin + _OCCUPANCY_BLOCK)
                .text()
                for bottom in self.bottoms
            ]
            self.effort.queries += len(texts)
            found: set[int] = set()
            for answer in self.store.answers(texts):
                if isinstance(answer, StoreError):
                    raise answer
                rows = (row for series in answer for row in series.values if any(row[1:]))
                found |= {row[0] // 1000 // _OCCUPANCY_CELL for row in rows}
            self._blocks[number] = frozenset(found)
        return self._blocks[number]
