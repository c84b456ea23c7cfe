"""Firings held against what really happened: the ground truth that `clusterflow simulate --truth` writes.

A staged incident says which alerts must fire, which may, from when, until when, how often, and what their labels say.
Everything else that fires is false, near misses included.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from app.errors import UserError
from rules.evaluate.timeline import Firing
from store import schema

Told = tuple[str, Mapping[str, str], int]
"""An alert: id of its rule, labels, epoch second at which it began to fire."""


@dataclass(frozen=True, slots=True)
class Owed:
    """An alert that an incident must, or may, raise. Times are epoch seconds.

    Attributes:
        incident: id of the incident.
        rule: id of the rule.
        labels: what its labels must say, as far as the rule has labels of these names.
        start: when the incident began.
        due: when its evidence is complete, by the cluster's thresholds.
        until: an alert that begins later has another cause.
        must: False where it may as well stay quiet.
        earliest: an alert that begins before has another cause, for too little of the evidence is there; never before
            the incident began.
        most: alerts that it explains, each from its begin to its end; any more of them are false.
    """

    incident: str
    rule: str
    labels: tuple[tuple[str, str], ...]
    start: int
    due: int
    until: int
    must: bool = True
    earliest: int = 0
    most: int = 1

    def explains(self, rule: str, labels: Mapping[str, str], fired_at: int) -> bool:
        """Whether an alert is this one. Of a digest, what it does not name may be anything."""
        if rule != self.rule or not max(self.start, self.earliest) <= fired_at <= self.until:
            return False
        shared = [(value, labels[name]) for name, value in self.labels if name in labels]
        named = [(wanted, got) for wanted, got in shared if got != schema.OTHER]
        return (bool(named) or not self.labels) and all(wanted == got for wanted, got in named)


@dataclass(frozen=True, slots=True)
class Incident:
    """What was staged, for the picture: its name, kind and time."""

    id: str
    kind: str
    start: int
    end: int
    near_miss: bool


@dataclass(frozen=True, slots=True)
class Truth:
    """All that was staged."""

    incidents: tuple[Incident, ...]
    owed: tuple[Owed, ...]

    def causes_of(self, alerts: Iterable[Told]) -> list[Owed | None]:
        """Return what each alert is about; None for those that are false, or come once too often.

        Args:
            alerts: in the order of time. Of several causes, it is the one that must fire, was not found yet, and is
                nearest in time.
        """
        told: Counter[Owed] = Counter()
        causes: list[Owed | None] = []
        for rule, labels, fired_at in alerts:
            cause = min(
                (one for one in self.owed if told[one] < one.most and one.explains(rule, labels, fired_at)),
                key=lambda one: (not one.must, told[one], abs(fired_at - one.due)),
                default=None,
            )
            if cause is not None:
                told[cause] += 1
            causes.append(cause)
        return causes

    def missing(self, causes: Iterable[Owed | None]) -> tuple[Owed, ...]:
        """Return what must have fired and is not among the causes of what did."""
        found = set(causes)
        return tuple(one for one in self.owed if one.must and one not in found)

    def scored(self, evaluated: Iterable[str]) -> list[str]:
        """Return the ids of the rules to score where all were evaluated: what one owes that there is not is missed."""
        found = list(evaluated)
        return found + sorted({one.rule for one in self.owed if one.must} - {*found})


def read_truth(path: Path) -> Truth:
    """Return what a file of ground truth says; UserError if it is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        incidents = tuple(_incident(entry) for entry in document["incidents"])
        owed = tuple(_owed(entry, alert) for entry in document["incidents"] for alert in entry["alerts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = " ".join(f"{type(error).__name__} {error}".split())
        raise UserError(f"{path}: no ground truth: {what}", "`clusterflow simulate --truth FILE` writes one") from error
    return Truth(incidents, owed)


def _moment(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp())


def _incident(entry: Mapping[str, Any]) -> Incident:
    return Incident(
        entry["id"], entry["kind"], _moment(entry["start"]), _moment(entry["end"]), bool(entry["near_miss"])
    )


def _owed(entry: Mapping[str, Any], alert: Mapping[str, Any]) -> Owed:
    return Owed(
        incident=entry["id"],
        rule=alert["rule"],
        labels=tuple(alert["labels"].items()),
        start=_moment(entry["start"]),
        due=_moment(alert["due"]),
        until=_moment(alert["until"]),
        must=bool(alert["must"]),
        earliest=_moment(alert.get("earliest", entry["start"])),
        most=int(alert.get("most", 1)),
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """A firing and its cause; None for a false alert."""

    firing: Firing
    cause: Owed | None

    @property
    def delay(self) -> int | None:
        """Seconds from the moment at which the evidence was complete to the alert."""
        return None if self.cause is None else max(self.firing.fired_at - self.cause.due, 0)


@dataclass(frozen=True, slots=True)
class Score:
    """How a rule did, or all of them.

    Attributes:
        rule: its id.
        judged: every firing, in order.
        missed: what must have fired and did not.
        due: how many alerts there had to be.
    """

    rule: str
    judged: tuple[Judged, ...]
    missed: tuple[Owed, ...]
    due: int

    @property
    def false(self) -> tuple[Judged, ...]:
        """Firings without a cause."""
        return tuple(one for one in self.judged if one.cause is None)

    @property
    def precision(self) -> float | None:
        """Share of the firings that have a cause; None where nothing fired."""
        return 1 - len(self.false) / len(self.judged) if self.judged else None

    @property
    def recall(self) -> float | None:
        """Share of the alerts that had to fire and did; None where there were none."""
        return 1 - len(self.missed) / self.due if self.due else None

    def first_delays(self) -> list[int]:
        """Return, for each alert that had to fire and did, the delay of its first firing."""
        first: dict[Owed, int] = {}
        for one in self.judged:
            if one.cause is not None and one.cause.must and one.delay is not None:
                first[one.cause] = min(one.delay, first.get(one.cause, one.delay))
        return list(first.values())

    @property
    def delay(self) -> float | None:
        """Median of the delays, seconds; None where nothing was found."""
        delays = self.first_delays()
        return statistics.median(delays) if delays else None


def score(truth: Truth, firings: Sequence[Firing], rules: Iterable[str], start: int, end: int) -> tuple[Score, ...]:
    """Return the score of each rule, in order.

    Args:
        truth: what was staged.
        firings: what fired.
        rules: ids of the rules that were evaluated.
        start: of what was evaluated, epoch seconds.
        end: of the same: alerts that were due outside of it are not missed.
    """
    ordered = sorted(firings, key=lambda firing: firing.fired_at)
    causes = truth.causes_of((firing.rule, firing.first.labels, firing.fired_at) for firing in ordered)
    judged = [Judged(firing, cause) for firing, cause in zip(ordered, causes, strict=True)]
    wanted = [one for one in truth.owed if one.must and start <= one.due <= end]
    missing = set(truth.missing(causes))
    return tuple(
        Score(
            rule,
            tuple(one for one in judged if one.firing.rule == rule),
            tuple(one for one in wanted if one.rule == rule and one in missing),
            sum(one.rule == rule for one in wanted),
        )
        for rule in rules
    )
