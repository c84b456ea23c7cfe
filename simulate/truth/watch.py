"""Follows the rules while a scenario is played live: what fired, what caused it, and what fired without a cause."""

from collections.abc import Iterable
from dataclasses import dataclass

from rules.evaluate.evaluator import Alert, Evaluator, says_less
from rules.evaluate.truth import Owed
from simulate.incidents.incident import Incident
from simulate.truth.matching import truth_of


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fired.

    Attributes:
        alert: as it was when last seen firing, but with the most that it told, as delivery and the wall keep it.
        fired_at: epoch second of the evaluation that found it.
        cause: why; None for a false alert.
    """

    alert: Alert
    fired_at: int
    cause: Owed | None

    @property
    def delay(self) -> int | None:
        """Seconds from the moment at which the evidence was complete; None for a false alert."""
        return None if self.cause is None else max(self.fired_at - self.cause.due, 0)


class Watch:
    """Follows an evaluator and keeps what fired.

    Args:
        evaluator: of all rules.
        incidents: what was staged, near misses included.
    """

    def __init__(self, evaluator: Evaluator, incidents: Iterable[Incident]) -> None:
        self._evaluator = evaluator
        self._truth = truth_of(incidents)
        # Each alert from its begin to its end: with the most that it told, and when it was first seen firing.
        self._fired: list[tuple[Alert, int]] = []
        # (rule, labels) of those that fire -> their place there.
        self._open: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}

    def tick(self, now: int) -> list[Firing]:
        """Evaluate at an epoch second; return what fired for the first time."""
        self._evaluator.tick(now)
        before, self._open = self._open, {}
        for alert in self._evaluator.alerts():
            if alert.is_firing:
                key = alert.rule, tuple(sorted(alert.labels.items()))
                place = self._open[key] = before.get(key, len(self._fired))
                if place == len(self._fired):
                    # One that had ended is told again, as delivery does.
                    self._fired.append((alert, now))
                most, fired_at = self._fired[place]
                self._fired[place] = (most if says_less(alert.values, most.values) else alert), fired_at
        return [firing for firing in self.firings() if firing.fired_at == now]

    def firings(self) -> list[Firing]:
        """Return everything that fired, in the order of time."""
        fired = sorted(self._fired, key=lambda one: (one[1], one[0].rule))
        causes = self._truth.causes_of((alert.rule, alert.labels, fired_at) for alert, fired_at in fired)
        return [Firing(alert, fired_at, cause) for (alert, fired_at), cause in zip(fired, causes, strict=True)]

    def missing(self) -> list[Owed]:
        """Return what should have fired but did not."""
        return list(self._truth.missing(firing.cause for firing in self.firings()))

    def unexpected(self) -> list[Firing]:
        """Return alerts that no incident explains."""
        return [firing for firing in self.firings() if firing.cause is None]
