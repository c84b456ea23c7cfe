"""Injected incidents, as `truth` takes them: alerts are compared with them here, live and in backtests."""

from collections.abc import Iterable
from dataclasses import replace

from rules.evaluate.truth import Incident as Staged
from rules.evaluate.truth import Owed, Truth
from simulate.incidents.incident import Incident


def truth_of(incidents: Iterable[Incident]) -> Truth:
    """Return what was staged, and which alerts it owes."""
    staged = tuple(incidents)
    return Truth(
        tuple(Staged(one.id, one.kind.value, one.start, one.end, one.is_near_miss) for one in staged),
        tuple(
            Owed(
                one.id,
                alert.rule,
                alert.labels,
                one.start,
                alert.due,
                alert.until,
                alert.must,
                max(alert.earliest, one.start),
                alert.most,
            )
            for one in staged
            for alert in one.alerts
        ),
    )


def unique_ids(incidents: Iterable[Incident]) -> tuple[Incident, ...]:
    """Return the incidents, those with an id that was there before with a number behind it."""
    counts: dict[str, int] = {}
    found = []
    for incident in incidents:
        counts[incident.id] = number = counts.get(incident.id, 0) + 1
        found.append(incident if number == 1 else replace(incident, id=f"{incident.id}-{number}"))
    return tuple(found)
