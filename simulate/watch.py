"""Follows the rules while a scenario is played live: what fired, what caused it, and what fired without a cause."""

from collections.abc import Iterable
from dataclasses import dataclass

from rules.evaluate import Alert, Evaluator
from rules.truth import Owed
from simulate.incident import Incident
from simulate.matching import cause_of, missing, truth_of


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fired.

    Attributes:
        alert: as it was when last seen firing.
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
        self._firings: dict[tuple[str, tuple[tuple[str, str], ...]], Firing] = {}

    def tick(self, now: int) -> list[Firing]:
        """Evaluate at an epoch second; return what fired for the first time."""
        self._evaluator.tick(now)
        fresh = []
        for alert in self._evaluator.alerts():
            if not alert.is_firing:
                continue
            key = alert.rule, tuple(sorted(alert.labels.items()))
            known = self._firings.get(key)
            fired_at = known.fired_at if known else now
            firing = Firing(alert, fired_at, cause_of(alert.rule, alert.labels, fired_at, self._truth))
            self._firings[key] = firing
            if known is None:
                fresh.append(firing)
        return fresh

    def firings(self) -> list[Firing]:
        """Return everything that fired, in the order of time."""
        return sorted(self._firings.values(), key=lambda firing: (firing.fired_at, firing.alert.rule))

    def missing(self) -> list[Owed]:
        """Return what should have fired but did not."""
        return missing(self._truth, (firing.cause for firing in self._firings.values() if firing.cause))

    def unexpected(self) -> list[Firing]:
        """Return alerts that no incident explains."""
        return [firing for firing in self.firings() if firing.cause is None]
