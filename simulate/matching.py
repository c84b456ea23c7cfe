"""What was staged, as `rules.truth` takes it: alerts are held against it in one place, live and in backtests."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rules.truth import Incident as Staged
from rules.truth import Owed, Truth
from simulate.incident import Incident


def truth_of(incidents: Iterable[Incident]) -> Truth:
    """Return what was staged, and which alerts it owes."""
    staged = tuple(incidents)
    return Truth(
        tuple(Staged(one.id, one.kind.value, one.start, one.end, one.is_near_miss) for one in staged),
        tuple(
            Owed(one.id, alert.rule, alert.labels, one.start, alert.due, alert.until, alert.must)
            for one in staged
            for alert in one.alerts
        ),
    )


def cause_of(rule: str, labels: Mapping[str, str], fired_at: int, truth: Truth) -> Owed | None:
    """Return what an alert is about; None if nothing explains it: then it is a false one."""
    found = [one for one in truth.owed if one.explains(rule, labels, fired_at)]
    return min(found, key=lambda one: (not one.must, abs(fired_at - one.due)), default=None)


def missing(truth: Truth, found: Iterable[Owed]) -> list[Owed]:
    """Return what must have fired and is not among what did."""
    told = {(one.incident, one.rule) for one in found}
    return [one for one in truth.owed if one.must and (one.incident, one.rule) not in told]


def unique_ids(incidents: Iterable[Incident]) -> tuple[Incident, ...]:
    """Return the incidents, those with an id that was there before with a number behind it."""
    counts: dict[str, int] = {}
    found = []
    for incident in incidents:
        counts[incident.id] = number = counts.get(incident.id, 0) + 1
        found.append(incident if number == 1 else replace(incident, id=f"{incident.id}-{number}"))
    return tuple(found)
