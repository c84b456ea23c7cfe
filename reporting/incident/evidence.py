"""The number that a rule compares, as it was before, during and after an alert: what made it fire."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.errors import StoreError
from operations.alert_history import StoredAlert
from rules.evaluate.evaluator import numbers_of
from rules.rule import Measure, Rule, Threshold
from store.influx import Store
from store.influxql import Unit

_MOST_MOMENTS = 120
_ASKED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rule of an alert saw.

    Attributes:
        name: of the measure, as texts call it.
        meaning: what one value is, in a sentence.
        points: (epoch second of the evaluation, value); None where the rule had no such series.
        seconds: over how long each value looks back.
    """

    name: str
    meaning: str
    unit: Unit
    threshold: Threshold
    points: tuple[tuple[int, float | None], ...]
    seconds: int

    @property
    def is_seen(self) -> bool:
        """Whether there is anything to draw."""
        return any(value is not None for _, value in self.points)


def evidence_of(store: Store, rule: Rule, alert: StoredAlert, start: int, stop: int) -> Evidence:
    """Return the rule's number of the alert's own series at moments of [start, stop], epoch seconds.

    Raises:
        StoreError: the store is away.
    """
    measure = rule.measures[0]
    step = max((stop - start) // _MOST_MOMENTS // rule.interval, 1) * rule.interval
    moments = range(start - start % step, stop + 1, step)
    labels = dict(alert.labels)
    points = tuple(zip(moments, _values(store, rule, measure, list(moments), labels), strict=True))
    seconds = measure.since - measure.until
    return Evidence(measure.name, measure.query.meaning, measure.query.unit, rule.threshold, points, seconds)


def _values(
    store: Store, rule: Rule, measure: Measure, moments: list[int], labels: dict[str, str]
) -> Iterator[float | None]:
    own = {name: text for name, text in labels.items() if name not in rule.all_labels()}
    for first in range(0, len(moments), _ASKED_AT_ONCE):
        some = moments[first : first + _ASKED_AT_ONCE]
        asked = [measure.query.between(now - measure.since, now - measure.until) for now in some]
        for answer in store.answers(asked):
            if isinstance(answer, StoreError):
                raise answer
            found = numbers_of(measure, answer)
            yield next((number for series, number in found.items() if _named(series) == own), None)


def _named(series: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {name: text for name, text in series if text}
