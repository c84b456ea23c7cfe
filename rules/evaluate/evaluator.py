"""Evaluate rules against InfluxDB with Grafana's semantics: for tests, `clusterflow status`, and backtests.

A tick queries every measure over its relative range, reduces each series to a number, compares, joins the other
measures by labels (``pkg/services/ngalert/eval/eval.go``: equal labels, else a subset or superset), and hands the
samples to the state machine (`states`). ``$timeFilter`` and the interval macros are expanded as Grafana's
InfluxDB source does (``pkg/tsdb/influxdb/models/query.go``).
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, tee
from typing import TypeAlias

from app.errors import StoreError
from rules.common.texts import FACTS
from rules.evaluate.states import (
    FIRING,
    Annotate,
    Instance,
    Labels,
    Outcome,
    Sample,
    State,
    Transition,
    advance_rule,
    labels_of,
)
from rules.grafana.templates import Context, Number, TemplateError, render
from rules.rule import CONDITION, Measure, Reducer, Rule, Threshold, labels_of_grafana
from store import schema
from store.influx import Series, Store

NO_DATA_ALERT = "DatasourceNoData"
ERROR_ALERT = "DatasourceError"
"""Names under which Grafana sends alerts in the states NoData and Error."""

_FEWEST, _MOST = 16, 128
"""Measures a request: so few that even slow ones are answered before it is given up; of all rules, once about, where
the ones before were answered quickly."""
_QUICK_SECONDS = 1.0
_VALUE_COLUMN = 1
_ONE_VALUE = 2


_REDUCTIONS: dict[Reducer, Callable[[list[float]], float]] = {
    Reducer.LAST: lambda numbers: numbers[-1],
    Reducer.SUM: math.fsum,
    Reducer.MEAN: lambda numbers: math.fsum(numbers) / len(numbers),
    Reducer.MIN: min,
    Reducer.MAX: max,
}


def reduce(reducer: Reducer, points: Iterable[float | None]) -> float | None:
    """Return one number of a series' points, those that are no finite number left out; None if none is left."""
    numbers = [point for point in points if point is not None and math.isfinite(point)]
    if reducer is Reducer.COUNT:
        return float(len(numbers))
    return _REDUCTIONS[reducer](numbers) if numbers else None


Numbers = Mapping[Labels, float | None]
"""A measure's answer: series -> number, None where all its points are no numbers."""

Answer: TypeAlias = "Numbers | StoreError"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert instance that is not Normal.

    Attributes:
        rule: the rule's id.
        title: the rule's title.
        severity: value of the severity label.
        labels: all labels that Grafana's alert has, but its internal ones.
        state: Pending, Alerting, Recovering, NoData or Error.
        reason: why, where the state does not come from the data.
        active_at: epoch second at which it left Normal.
        fired_at: epoch second at which it began to alert; None if it never did.
        values: measure -> number.
        annotations: rendered texts.
        error: what went wrong, for Error.
        muted: the planned work for which nobody is notified of it now.
    """

    rule: str
    title: str
    severity: str
    labels: Mapping[str, str]
    state: State
    reason: str
    active_at: int | None
    fired_at: int | None
    values: Mapping[str, float]
    annotations: Mapping[str, str]
    error: str = ""
    muted: str = ""

    @property
    def is_firing(self) -> bool:
        """Whether somebody is told of it."""
        return self.state in FIRING

    def facts(self) -> dict[str, str]:
        """Return source, destination, protocol, bytes and duration, as the notification says them."""
        return {name: self.annotations.get(name, "") for name in FACTS}


def says_less(now: Mapping[str, float | None], before: Mapping[str, float | None]) -> bool:
    """Return whether an alert's numbers are below its earlier ones: its window has moved past what it fired for."""
    size, duration = schema.BYTES.name, schema.DURATION.name
    is_fewer = (now.get(size) or 0) < (before.get(size) or 0)
    return is_fewer and (now.get(duration) or 0) <= (before.get(duration) or 0)


class Evaluator:
    """Runs rules tick by tick; its only state is the alert instances.

    Args:
        store: where the data is.
        rules: what to evaluate.
        datasource: uid of Grafana's data source: a label of alerts about missing data and errors.
    """

    def __init__(self, store: Store, rules: Iterable[Rule], *, datasource: str = "clusterflow") -> None:
        self._store = store
        self._datasource = datasource
        self.rules = tuple(rules)
        self._at_once = _FEWEST
        self._instances: dict[str, dict[Labels, Instance]] = {rule.id: {} for rule in self.rules}
        self.failing: dict[str, str] = {}
        """Rules whose query failed at their last evaluation, by id, and what the store said."""

    def tick(self, now: int, since: int | None = None) -> list[tuple[Rule, Transition]]:
        """Evaluate the rules that are due at an epoch second; what became of each instance, unchanged ones too.

        Args:
            now: the epoch second.
            since: rules that were due after it, when nobody evaluated them, are due now; None: none were.
        """
        before = now - 1 if since is None else since
        due = [rule for rule in self.rules if now // rule.interval > before // rule.interval]
        return self._advance(due, now, self.samples((rule, now) for rule in due))

    def _advance(self, due: Iterable[Rule], now: int, found: Iterator[list[Sample]]) -> list[tuple[Rule, Transition]]:
        told: list[tuple[Rule, Transition]] = []
        for rule in due:
            samples = next(found)
            self.failing.pop(rule.id, None)
            self.failing.update((rule.id, sample.error) for sample in samples if sample.outcome is Outcome.ERROR)
            self._instances[rule.id], transitions = advance_rule(
                self._instances[rule.id], now, samples, rule, annotator(rule)
            )
            told += [(rule, transition) for transition in transitions]
        return told

    def run(self, start: int, end: int) -> Iterator[tuple[int, list[tuple[Rule, Transition]]]]:
        """Evaluate at every tick from `start` to `end`, epoch seconds, both included; nothing is written meanwhile."""
        yield from self._each(dict.fromkeys((rule.id for rule in self.rules), start), end)

    def catch_up(self, end: int) -> None:
        """Evaluate each rule at those ticks up to `end`, epoch seconds, that can matter to its present state.

        The state is that after `run` over any longer time. So are the times at which what is not Normal began, within
        what the rule with the longest memory looks back: those rules, few as they are, look back as far.
        """
        # Its first evaluation may be nearly an interval after the begin of what it looks back at.
        begins = {rule.id: end - rule.remembered() - rule.interval for rule in self.rules}
        self._look_back(begins, end)
        first = min(begins.values(), default=end)
        unsettled = {alert.rule for alert in self.alerts() if begins[alert.rule] > first}
        self._instances.update({rule: {} for rule in unsettled})
        self._look_back(dict.fromkeys(unsettled, first), end)

    def _look_back(self, begins: Mapping[str, int], end: int) -> None:
        for _ in self._each(begins, end):
            pass

    def _each(self, begins: Mapping[str, int], end: int) -> Iterator[tuple[int, list[tuple[Rule, Transition]]]]:
        """Evaluate each of some rules at its ticks from a moment of its own on; several ticks share a request."""
        rules = [rule for rule in self.rules if rule.id in begins]
        step, start = math.gcd(*(rule.interval for rule in rules)) or 1, min(begins.values(), default=end)
        ticks = range(start + -start % step, end + 1, step)

        def due(now: int) -> list[Rule]:
            return [rule for rule in rules if now % rule.interval == 0 and now >= begins[rule.id]]

        found = self.samples((rule, now) for now in ticks for rule in due(now))
        for now in ticks:
            yield now, self._advance(due(now), now, found)

    def alerts(self) -> list[Alert]:
        """Return every instance that is not Normal, in order of rules and labels."""
        return [
            alert_of(rule, instance)
            for rule in self.rules
            for _, instance in sorted(self._instances[rule.id].items())
            if instance.state is not State.NORMAL
        ]

    # -- one evaluation ----------------------------------------------------------------------------

    def samples(self, due: Iterable[tuple[Rule, int]]) -> Iterator[list[Sample]]:
        """Query rules, each at its epoch second; a sample a series, or one that says what is missing or wrong.

        It asks as it is read, some measures a request: most of a small query's time is its way to the store and back.
        """
        asked, waiting = tee(due)
        measures = ((measure, now) for rule, now in asked for measure in rule.measures)
        answers = chain.from_iterable(map(self._answers, iter(lambda: [*islice(measures, self._at_once)], [])))
        for rule, _ in waiting:
            yield samples_of(rule, [next(answers) for _ in rule.measures], self._datasource)

    def _answers(self, asked: Sequence[tuple[Measure, int]]) -> Iterator[Answer]:
        queries = [measure.query.between(now - measure.since, now - measure.until) for measure, now in asked]
        began = time.monotonic()
        try:
            told: Sequence[list[Series] | StoreError] = self._store.answers(queries)
        except StoreError as error:
            told = [error] * len(queries)
        self._at_once = min(2 * self._at_once, _MOST) if time.monotonic() - began < _QUICK_SECONDS else _FEWEST
        for (measure, _), one in zip(asked, told, strict=True):
            yield one if isinstance(one, StoreError) else numbers_of(measure, one)


def numbers_of(measure: Measure, answer: Iterable[Series]) -> Numbers:
    """Return the number of each series of a measure's answer."""
    return {labels_of(series.tags): reduce(measure.reducer, _points(series)) for series in answer}


def samples_of(rule: Rule, answers: Iterable[Answer], datasource: str) -> list[Sample]:
    """Return what one evaluation says, from the answers to the rule's measures in their order."""

    def about(letters: str) -> Labels:
        return labels_of({"datasource_uid": datasource, "ref_id": letters})

    numbers: list[Numbers] = []
    empty: list[str] = []
    for position, answer in enumerate(answers):
        letter = rule.asked(position)
        if isinstance(answer, StoreError):
            text = f"[sse.dataQueryError] failed to execute query [{letter}]: {answer.message}"
            return [Sample(Outcome.ERROR, about(letter), error=text)]
        if not answer:
            empty.append(letter)
        numbers.append(answer)
    if empty:
        # One query without series makes the whole rule NoData: all of a rule's queries must have the same points.
        return [Sample(Outcome.NO_DATA, about(",".join(sorted(empty))))]
    return [_compared(rule, labels, number, numbers) for labels, number in numbers[0].items()]


def _points(series: Series) -> list[float | None]:
    if len(series.columns) != _ONE_VALUE:
        raise ValueError(f"{series.name}: a rule's query selects one column, not {series.columns[1:]}")
    return [None if row[_VALUE_COLUMN] is None else float(row[_VALUE_COLUMN]) for row in series.values]


def _compared(rule: Rule, labels: Labels, number: float | None, numbers: Sequence[Numbers]) -> Sample:
    if number is None:
        return Sample(Outcome.NO_DATA, labels)
    bad = holds(rule.threshold, number)
    values = {rule.reduced(0): number, CONDITION: float(bad)}
    for position, others in enumerate(numbers[1:], start=1):
        joined = _joined(labels, others)
        if joined is not None:
            values[rule.reduced(position)] = joined
    return Sample(Outcome.ALERTING if bad else Outcome.NORMAL, labels, values)


def holds(threshold: Threshold, number: float) -> bool:
    """Whether a number is on the alerting side of a threshold."""
    return threshold.comparison.holds(number, threshold.value)


def _joined(labels: Labels, others: Numbers) -> float | None:
    """Return the number of the series with equal labels, else of the first with a subset or superset of them."""
    if labels in others:
        return others[labels]
    mine = set(labels)
    for theirs, number in others.items():
        if mine <= set(theirs) or mine >= set(theirs):
            return number
    return None


def annotator(rule: Rule) -> Annotate:
    """Return what renders a rule's annotations."""
    texts = {name: rule.template(text) for name, text in rule.annotations}

    def annotate(sample: Sample) -> Mapping[str, str]:
        labels = {**labels_of_grafana(rule.title), **dict(sample.labels)}
        values = {letter: Number(number, dict(sample.labels)) for letter, number in sample.values.items()}
        return {name: _render(text, Context(labels, values)) for name, text in texts.items()}

    return annotate


def _render(text: str, context: Context) -> str:
    try:
        return render(text, context)
    except TemplateError:
        # As Grafana does: better the raw text than no text.
        return text


def alert_of(rule: Rule, instance: Instance) -> Alert:
    """Return an instance as people are told of it."""
    names = {rule.reduced(position): measure.name for position, measure in enumerate(rule.measures)}
    title = {State.NO_DATA: NO_DATA_ALERT, State.ERROR: ERROR_ALERT}.get(instance.state, rule.title)
    renamed = {} if title == rule.title else {"rulename": rule.title}
    return Alert(
        rule=rule.id,
        title=rule.title,
        severity=rule.severity.value,
        labels={**labels_of_grafana(title), **renamed, **dict(instance.labels)},
        state=instance.state,
        reason=instance.reason,
        active_at=instance.active_at,
        fired_at=instance.fired_at,
        values={names[letter]: number for letter, number in instance.values.items() if letter in names},
        annotations=instance.annotations,
        error=instance.error,
    )
