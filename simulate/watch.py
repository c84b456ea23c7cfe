"""Alerts held against the incidents that were staged: found, when, and what fired without a cause."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rules.evaluate import Alert, Evaluator
from simulate.scenario import TRANSFERS, Incident, IncidentKind

_PARTIES = {
    **dict.fromkeys(TRANSFERS, ("src", "dst")),
    IncidentKind.NODE_DROPOUT: ("node",),
    IncidentKind.EXPORTER_SILENT: ("exporter",),
}
"""Labels that an alert shares with the incident it is about."""


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fired.

    Attributes:
        alert: as it was when last seen firing.
        fired_at: epoch second of the evaluation that found it.
        incident: what caused it; None for a false alert.
    """

    alert: Alert
    fired_at: int
    incident: Incident | None

    @property
    def delay(self) -> int | None:
        """Seconds from the end of the incident's traffic (or its start, where it goes on) to the alert."""
        if self.incident is None:
            return None
        lasts = self.incident.kind in (IncidentKind.NODE_DROPOUT, IncidentKind.EXPORTER_SILENT)
        return max(self.fired_at - (self.incident.start if lasts else self.incident.end), 0)


class Watch:
    """Follows an evaluator and keeps what fired.

    Args:
        evaluator: of all rules.
        incidents: what was staged, near misses included.
    """

    def __init__(self, evaluator: Evaluator, incidents: Iterable[Incident]) -> None:
        self._evaluator = evaluator
        self._incidents = tuple(incidents)
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
            firing = Firing(alert, known.fired_at if known else now, self._cause(alert))
            self._firings[key] = firing
            if known is None:
                fresh.append(firing)
        return fresh

    def firings(self) -> list[Firing]:
        """Return everything that fired, in the order of time."""
        return sorted(self._firings.values(), key=lambda firing: (firing.fired_at, firing.alert.rule))

    def missing(self) -> list[tuple[Incident, str]]:
        """Return the incidents and rules that should have fired but did not."""
        found = {(firing.incident.id, firing.alert.rule) for firing in self._firings.values() if firing.incident}
        return [
            (incident, rule)
            for incident in self._incidents
            for rule in incident.expected
            if (incident.id, rule) not in found
        ]

    def unexpected(self) -> list[Firing]:
        """Return alerts that no incident explains."""
        return [firing for firing in self.firings() if firing.incident is None]

    def _cause(self, alert: Alert) -> Incident | None:
        for incident in self._incidents:
            if alert.rule in incident.expected and _is_about(alert.labels, incident):
                return incident
        return None


def _is_about(labels: Mapping[str, str], incident: Incident) -> bool:
    parties = {"src": incident.src, "dst": incident.dst, "node": incident.src, "exporter": incident.exporter}
    return all(labels.get(name) == parties[name] for name in _PARTIES[incident.kind])
