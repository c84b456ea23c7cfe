"""What became of a rule's alerts over a stretch of time: states of each series, and every firing from start to end."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rules.evaluate.evaluator import Alert, alert_of
from rules.evaluate.states import FIRING, Labels, State, Transition
from rules.rule import Comparison, Rule


@dataclass(frozen=True, slots=True)
class Span:
    """One state of one series; `end` is exclusive, None where it lasts to the end of what was evaluated."""

    state: State
    reason: str
    start: int
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Firing:
    """One alert from its first firing evaluation to the one that resolved it.

    Attributes:
        first: the alert as it was when it began to fire.
        last: as it was when its condition held for the last time.
        worst: as it was when its number was furthest beyond the threshold.
        fired_at: epoch second of the first evaluation in a state of which somebody is told.
        ended_at: of the evaluation that ended it; None if it fires still.
    """

    first: Alert
    last: Alert
    worst: Alert
    fired_at: int
    ended_at: int | None = None

    @property
    def rule(self) -> str:
        """The rule's id."""
        return self.first.rule

    def seconds(self, until: int) -> int:
        """Return how long it fired, up to `until` where it fires still."""
        return (until if self.ended_at is None else self.ended_at) - self.fired_at


@dataclass(slots=True)
class Timeline:
    """Keeps what transitions tell; Normal from the beginning, where nothing is told.

    Attributes:
        spans: states of each series that ever left Normal, by rule and labels.
        firings: in the order in which they began.
    """

    spans: dict[tuple[str, Labels], list[Span]] = field(default_factory=dict)
    firings: list[Firing] = field(default_factory=list)
    _open: dict[tuple[str, Labels], int] = field(default_factory=dict)

    def add(self, now: int, rule: Rule, transitions: Iterable[Transition]) -> None:
        """Take in one evaluation of a rule."""
        for transition in transitions:
            key = rule.id, transition.after.labels
            self._add_span(key, now, transition)
            self._add_firing(key, now, rule, transition)

    def _add_span(self, key: tuple[str, Labels], now: int, transition: Transition) -> None:
        after = transition.after
        spans = self.spans.get(key)
        if spans is None:
            if after.state is State.NORMAL:
                return
            spans = self.spans[key] = []
        last = spans[-1] if spans else None
        if last is not None and last.end is None:
            if (last.state, last.reason) == (after.state, after.reason):
                return
            spans[-1] = replace(last, end=now)
        if after.state is not State.NORMAL:
            spans.append(Span(after.state, after.reason, now))

    def _add_firing(self, key: tuple[str, Labels], now: int, rule: Rule, transition: Transition) -> None:
        after = transition.after
        position = self._open.get(key)
        if after.state not in FIRING:
            if position is not None:
                self.firings[position] = replace(self.firings[position], ended_at=now)
                del self._open[key]
            return
        if position is None:
            alert = alert_of(rule, after)
            self._open[key] = len(self.firings)
            self.firings.append(Firing(alert, alert, alert, now))
        elif after.state is not State.RECOVERING and not after.reason and after.evaluated_at == now:
            # An evaluation with data in it: those that keep the last state know nothing new.
            alert = alert_of(rule, after)
            known = self.firings[position]
            worst = alert if _is_worse(rule, alert, known.worst) else known.worst
            self.firings[position] = replace(known, last=alert, worst=worst)

    def of_rule(self, rule_id: str) -> list[Firing]:
        """Return the firings of a rule."""
        return [firing for firing in self.firings if firing.rule == rule_id]


def _is_worse(rule: Rule, alert: Alert, other: Alert) -> bool:
    """Whether an alert's number is further on the alerting side; any number is, compared with none."""
    name = rule.measures[0].name
    if name not in alert.values:
        return False
    if name not in other.values:
        return True
    upwards = rule.threshold.comparison in (Comparison.ABOVE, Comparison.AT_LEAST)
    return alert.values[name] > other.values[name] if upwards else alert.values[name] < other.values[name]
