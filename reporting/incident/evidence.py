"""The number that a rule compares, as it was before, during and after an alert: what made it fire."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from app.errors import StoreError
from app.words import amount, lasting
from reporting.incident.line_chart import Chart
from rules.evaluate.evaluator import numbers_of
from rules.rule import Comparison, Measure, Rule, Threshold
from store.influx import Store
from store.influxql import Unit

_MOST_MOMENTS = 120
_ASKED_AT_ONCE = 16
_ABOVE = {Comparison.ABOVE: "above", Comparison.AT_LEAST: "at least", Comparison.BELOW: "below",
          Comparison.AT_MOST: "at most"}  # fmt: skip


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

    def chart(self, marks: Sequence[tuple[int, str]], zone: ZoneInfo) -> Chart:
        """Return what is drawn of it; marks: epoch second and word."""
        limit = self.threshold.value
        # Where rows are written once something is too much, a rule takes any.
        text = f"limit: {_ABOVE[self.threshold.comparison]} {self._written(limit)}" if limit else ""
        return Chart(self.points, limit, text, marks, self._written, zone)

    def _written(self, value: float) -> str:
        match self.unit:
            case Unit.BYTES:
                return amount(value)
            case Unit.BITS_PER_SECOND:
                return amount(value, "bit/s")
            case Unit.SECONDS:
                return lasting(value)
            case Unit.RATIO:
                return f"{value:.3g}"
            case Unit.USD:
                return f"{value:,.0f} USD"
            case _:
                return f"{value:,.4g}"


def evidence_of(
    store: Store, rule: Rule, labels: Mapping[str, str], start: int, stop: int, *, most: int = _MOST_MOMENTS
) -> Evidence:
    """Return the rule's number of an alert's own series at so many moments of [start, stop], epoch seconds.

    Raises:
        StoreError: the store is away.
    """
    measure = rule.measures[0]
    step = max((stop - start) // most // rule.interval, 1) * rule.interval
    last = stop - stop % rule.interval
    moments = range(last - (last - start) // step * step, last + 1, step)
    points = tuple(zip(moments, _values(store, rule, measure, list(moments), labels), strict=True))
    seconds = measure.since - measure.until
    return Evidence(measure.name, measure.query.meaning, measure.query.unit, rule.threshold, points, seconds)


def _values(
    store: Store, rule: Rule, measure: Measure, moments: list[int], labels: Mapping[str, str]
) -> Iterator[float | None]:
    own = {name: text for name, text in labels.items() if text and name not in rule.all_labels()}
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
