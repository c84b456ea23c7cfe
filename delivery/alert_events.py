"""Alerts become events when they begin and when they end, whoever evaluates the rules.

What is open is remembered by rule and labels, so that a restart, or a notification that comes again, tells nothing
twice. Alerts about missing data and errors are one, not one a rule: when InfluxDB is away all rules fail together. It
begins with the first of them and ends with the last.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from app.errors import StoreError
from cluster.model import Cluster, EventKind, EventSeverity
from delivery.event import (
    Document,
    Event,
    JobFacts,
    Party,
    State,
    Threat,
    Traffic,
    at,
    epoch,
    event_id,
    feeds_in,
    iso,
    panel_url,
)
from delivery.parties import Parties, with_sighting
from operations.alert_history import StoredAlert
from operations.sightings import Sighting, Sightings
from rules import runbook
from rules.common import texts
from rules.evaluate.evaluator import ERROR_ALERT, NO_DATA_ALERT, Alert, says_less
from rules.evaluate.states import State as Evaluated
from rules.maintenance import muted_by
from rules.rule import Rule, RuleSet, labels_of_grafana
from store import schema

_INTERNAL = frozenset(
    {*labels_of_grafana(""), "rule", "severity", "datasource_uid", "ref_id", "rulename", "__alert_rule_uid__"}
)
"""Labels that say nothing of the thing itself."""

_FACTS = (*texts.FACTS, texts.NODE, texts.JOB, texts.COST, texts.WHAT_TO_DO)
_RENEWED_SECONDS = 300
"""So much later Grafana may say that an alert began which goes on: after a restart it may know no more than when it
last went from Recovering back to Alerting. Between notifications its Alertmanager keeps the first time."""

_ADOPTED = "adopted"
"""Mark of an open alert that only the history knew."""

_MOST_CLOSED = 1000
"""Alerts that have ended and are remembered, so that their end is not told again."""

FAULTS = frozenset({NO_DATA_ALERT, ERROR_ALERT})
"""Names of alerts about missing data and errors."""

SOURCE = "alerts"
"""Name of what is noted of alerts in the spool."""


@dataclass(frozen=True, slots=True)
class Report:
    """One alert as its evaluator reports it.

    Attributes:
        rule: its id; empty for an alert about missing data or an error.
        title: the alert's name.
        began: epoch second.
        ended: epoch second; None while it fires.
        labels: all that it has.
        annotations: rendered texts, by name.
        values: numbers, by the measures' names.
        fault: what went wrong, for missing data and errors.
        recovers: whether its condition holds no longer, and it fires on for a moment.
    """

    rule: str
    title: str
    began: float
    severity: EventSeverity
    ended: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    fault: str = ""
    recovers: bool = False

    @property
    def is_fault(self) -> bool:
        """Whether it is about missing data or an error."""
        return self.title in FAULTS

    def own_labels(self) -> dict[str, str]:
        """Return the labels that tell this alert from others of its rule."""
        if self.is_fault:
            return {}
        return {name: text for name, text in self.labels.items() if name not in _INTERNAL and text}

    def part(self, incident: str) -> str:
        """Return the id of what one rule has to do with missing data or an error."""
        return event_id(incident, self.labels)

    def key(self) -> str:
        """Return what an alert of this rule and these labels is remembered by."""
        return event_id("alert", self.title if self.is_fault else self.rule or self.title, self.own_labels())


def report_of(alert: Alert) -> Report:
    """Return an alert of our own evaluator as a report."""
    began = alert.fired_at if alert.fired_at is not None else alert.active_at
    # Its title is always the rule's: whether it is about missing data or an error, only this label says, as Grafana's.
    name = alert.labels["alertname"]
    return Report(
        rule="" if name in FAULTS else alert.rule,
        title=name,
        began=float(began or 0),
        severity=EventSeverity(alert.severity),
        labels=alert.labels,
        annotations=alert.annotations,
        # Where data is missing meanwhile, its numbers say nothing.
        values={} if alert.reason else alert.values,
        fault=alert.error,
        recovers=alert.state is Evaluated.RECOVERING,
    )


Open: TypeAlias = "dict[str, Document]"
"""Alerts that fire, by key: the event that reported their begin, with what was said of them since."""

Failing: TypeAlias = "dict[str, dict[str, str]]"
"""Missing data and errors, by key: of each rule that is concerned, by its labels, the id of its part."""


class AlertBook:
    """What fires, and what was reported of it.

    Args:
        cluster: named in events; addresses of runbook and boards.
        rule_set: its rules.
        parties: who the ends are.
        noted: what `notes` returned when it was last saved; None: nothing.
        sightings: what the conversations that they are about say more of them; None: nothing.
    """

    def __init__(
        self,
        cluster: Cluster,
        rule_set: RuleSet,
        parties: Parties,
        noted: Mapping[str, Any] | None,
        sightings: Sightings | None = None,
    ) -> None:
        self._cluster, self._parties, self._sightings = cluster, parties, sightings
        self._rules: dict[str, Rule] = {rule.id: rule for rule in rule_set.rules}
        noted = noted or {}
        self._open: Open = dict(noted.get("open", {}))
        # Incident -> when it ended, the oldest first.
        self._closed: dict[str, float] = dict(noted.get("closed", {}))
        self._failing: Failing = {key: dict(rules) for key, rules in noted.get("failing", {}).items()}
        self._before = self._open, self._closed, self._failing

    def take(self, reports: Iterable[Report], *, may_renew: bool = False) -> list[Document]:
        """Return the events of reports: of alerts that are not known to fire, and of known ones that have ended.

        Args:
            reports: what began, goes on, or ended.
            may_renew: what goes on may have a new begin each time, as with our own evaluator; else one that begins
                well after the one that is known is another: nobody told of the end of that, which is its begin then.
        """
        failing = {key: dict(rules) for key, rules in self._failing.items()}
        self._before = dict(self._open), dict(self._closed), failing
        events: list[Document] = []
        for given in reports:
            key, report = given.key(), given
            if _ADOPTED in self._open.get(key, {}):
                # Told again, whole, by the id that it had.
                report = replace(given, began=epoch(self._open.pop(key)["time"]))
            incident = self._incident(report)
            if self._is_over(key, incident, report):
                continue
            if not may_renew and self._is_another(key, incident, report):
                events.append(self._end(key, report.began))
            if key not in self._open:
                self._open[key] = self._begin(report, incident)
                events.append(self._open[key])
            elif report.ended is None and not report.is_fault:
                self._open[key] = self._updated(self._open[key], report)
            others = self._note_rule(key, incident, report) if report.is_fault else 0
            if report.ended is not None and not others:
                events.append(self._end(key, report.ended))
                if not report.is_fault:
                    # Where its begin was renewed it has another name: by that it comes again, too.
                    self._close(incident, report.ended)
        return events

    def _is_another(self, key: str, incident: str, report: Report) -> bool:
        """Whether a report is of a later incident than the one that is open."""
        begin = self._open.get(key)
        if begin is None or report.began - epoch(begin["time"]) <= _RENEWED_SECONDS:
            return False
        # Of missing data, the outage goes on while other rules lack them; each has a begin of its own.
        rules, rule = self._failing.get(key, {}), event_id(report.labels)
        return not report.is_fault or (list(rules) == [rule] and rules[rule] != report.part(incident))

    def _is_over(self, key: str, incident: str, report: Report) -> bool:
        """Whether a report is one that comes again, of what was told to have ended."""
        if report.is_fault and report.part(incident) in self._closed:
            return True
        # Of missing data, other rules that began at the same time may still lack them.
        return incident in self._closed and not (report.is_fault and key in self._open)

    def _note_rule(self, key: str, incident: str, report: Report) -> int:
        """Take note of a rule that lacks data, or has them again; return how many others lack them."""
        rules, rule = self._failing.setdefault(key, {}), event_id(report.labels)
        rules[rule] = report.part(incident)
        others = len(rules) - 1
        if report.ended is not None and others:
            self._close(rules.pop(rule), report.ended)
        return others

    def take_all(
        self,
        reports: Iterable[Report],
        now: float,
        *,
        pending: Iterable[Report] = (),
        blind: Collection[str] = frozenset(),
    ) -> list[Document]:
        """Do the same where the reports are all that fires: what is not among them has ended.

        Args:
            reports: all that fires.
            now: epoch second at which the others ended.
            pending: what may be about to fire; of these, what was told to fire has not ended: after an error an
                evaluator must wait again before it says so.
            blind: rules, and names of faults, of which nobody can say now whether they fire.
        """
        told = list(reports)
        going_on = {report.key() for report in (*told, *pending)}
        gone = [key for key, begin in self._open.items() if key not in going_on and at(begin, "action") not in blind]
        events = self.take(told, may_renew=True)
        return [*(self._end(key, now) for key in gone), *events]

    def adopt(self, stored: Iterable[StoredAlert]) -> None:
        """Take what fires by the history for open, unless it is known: a spool that was restored or lost knows less.

        What goes on is told again by the ids that it had; what does not has ended.
        """
        for one in stored:
            key = event_id("alert", one.rule, one.labels)
            incident = event_id(self._cluster.name, key, float(one.began))
            # Others may write the same history.
            if incident != one.id or key in self._open or incident in self._closed:
                continue
            event = Event(
                id=event_id("alert", incident, State.FIRING.value),
                incident=incident,
                kind=EventKind.ALERT,
                action=one.rule,
                title=one.title,
                cluster=self._cluster.name,
                time=float(one.began),
                state=State.FIRING,
                severity=EventSeverity(one.severity),
                summary=one.summary,
                source=Party(name=one.tags[schema.SRC], address=one.seen.src_address),
                destination=Party(address=one.seen.dst_address),
                labels=one.labels,
                facts=one.facts,
            )
            self._open[key] = {**event.document(), _ADOPTED: True}

    def undo(self) -> None:
        """Forget the last take: its events could not be kept."""
        self._open, self._closed, self._failing = self._before

    def notes(self) -> dict[str, Any]:
        """Return what must be saved together with the events."""
        failing = {key: dict(rules) for key, rules in self._failing.items()}
        return {"open": dict(self._open), "closed": dict(self._closed), "failing": failing}

    def firing(self, now: float) -> list[Document]:
        """Return the events that reported the begin of what fires, with its texts and numbers as they are now.

        Planned work that is over at `now` (epoch seconds) no longer mutes them: Grafana tells of them then.
        """
        return [self._as_told(begin, now) for begin in self._open.values()]

    def _as_told(self, begin: Document, now: float) -> Document:
        rule = self._rules.get(str(at(begin, "action")))
        if not begin.get("maintenance") or muted_by(self._cluster, rule, begin.get("labels", {}), now):
            return begin
        return {name: one for name, one in begin.items() if name != "maintenance"}

    @property
    def open(self) -> int:
        """How many fire."""
        return len(self._open)

    def _incident(self, report: Report) -> str:
        return event_id(self._cluster.name, report.key(), report.began)

    def _begin(self, report: Report, incident: str) -> Document:
        rule = self._rules.get(report.rule)
        labels = report.own_labels()
        values = report.values
        source = self._party(report, (schema.SRC, schema.NODE), (schema.SRC_GROUP, schema.GROUP))
        if labels.get(schema.USER):
            # Who it was when they asked; by the time that it fires somebody else may have the address.
            user = labels[schema.USER]
            source = replace(source, user="" if user == schema.UNKNOWN_USER else user)
        destination = self._party(report, (schema.DST,), (schema.DST_GROUP,))
        seen = self._seen(report)
        source, destination = with_sighting(source, destination, seen)
        event = Event(
            id=event_id("alert", incident, State.FIRING.value),
            incident=incident,
            kind=EventKind.ALERT,
            action=report.title if report.is_fault else report.rule or report.title,
            title=report.title,
            cluster=self._cluster.name,
            time=report.began,
            state=State.FIRING,
            severity=report.severity,
            summary=self._summary(report),
            source=source,
            destination=destination,
            traffic=Traffic(
                protocol=labels.get(schema.PROTO, ""),
                service=labels.get(schema.SERVICE, ""),
                direction=self._parties.direction(source.group, destination.group),
                bytes=_whole(values.get(schema.BYTES.name)),
                duration=values.get(schema.DURATION.name),
                exporter=seen.exporter,
                interface=seen.interface,
            ),
            threat=Threat(
                feeds=feeds_in(labels.get(schema.FEED, "")),
                indicator=labels.get(schema.INDICATOR, ""),
                listed_since=values.get(schema.LISTED_SINCE.name),
            ),
            job=JobFacts(
                id=labels.get(schema.JOB, ""),
                job_class=labels.get(schema.JOB_CLASS, ""),
                node=labels.get(schema.NODE, ""),
            ),
            labels=labels,
            facts=self._facts(report),
            values=values,
            fault=report.fault,
            maintenance=muted_by(self._cluster, rule, report.labels, report.began),
            runbook=runbook.address(self._cluster, rule.id) if rule else "",
            board=panel_url(self._cluster, rule.panel, labels, report.began) if rule else "",
            page=f"{pages}{incident}" if (pages := self._cluster.delivery.incident_pages()) else "",
        )
        return event.document()

    def _seen(self, report: Report) -> Sighting:
        labels = report.own_labels()
        if self._sightings is None or not labels.get(schema.PROTO):
            return Sighting()
        try:
            return self._sightings.of(labels, report.began)
        except StoreError:
            # The alert matters more than its details.
            return Sighting()

    def _updated(self, begin: Document, report: Report) -> Document:
        """Return the event of a begin with the texts and numbers of now, which its end will tell; all else stays.

        The rule's window leaves behind what it fired for: of bytes the largest that were told stay.
        """
        size, duration = (report.values.get(field.name) for field in (schema.BYTES, schema.DURATION))
        measured = {"bytes": _whole(size), "duration": duration}
        # How far an exporter, or a link, is well again is not what the alert was about.
        if report.recovers or says_less(report.values, begin.get("traffic", {})):
            return begin
        fresh = {
            "summary": self._summary(report),
            "facts": self._facts(report),
            "values": dict(report.values),
            "traffic": begin.get("traffic", {}) | {name: one for name, one in measured.items() if one is not None},
        }
        return {**begin, **{name: one for name, one in fresh.items() if one}}

    def _summary(self, report: Report) -> str:
        if report.is_fault:
            return f"{report.title}: alerts that depend on it are blind. {report.fault}".strip()
        return report.annotations.get(texts.SUMMARY, report.title)

    def _facts(self, report: Report) -> dict[str, str]:
        if report.is_fault:
            # Those of whichever rule failed first, and without a number to fill in.
            return {}
        return {name: report.annotations[name] for name in _FACTS if report.annotations.get(name)}

    def _party(self, report: Report, names: Sequence[str], groups: Sequence[str]) -> Party:
        """Return the end that the first of these labels names."""
        labels = report.own_labels()
        name, group = (next((labels[one] for one in some if labels.get(one)), "") for some in (names, groups))
        # What an alert says of a place, it says of the end that is outside.
        return self._parties.party(name, group, report.began, labels if self._parties.is_outside(group) else None)

    def _end(self, key: str, ended: float) -> Document:
        """Return the event that ends an alert: what was said of it last, and when it was over."""
        begin = {name: one for name, one in self._open.pop(key).items() if name != _ADOPTED}
        incident = str(at(begin, "incident"))
        for one in (incident, *self._failing.pop(key, {}).values()):
            self._close(one, ended)
        rule, labels, began = self._rules.get(str(at(begin, "action"))), begin.get("labels", {}), epoch(begin["time"])
        return {
            **begin,
            **({"board": panel_url(self._cluster, rule.panel, labels, began, ended)} if rule else {}),
            "id": event_id("alert", incident, State.RESOLVED.value),
            "state": State.RESOLVED.value,
            "end": iso(ended),
            "summary": f"Resolved: {at(begin, 'summary')}",
        }

    def _close(self, incident: str, ended: float) -> None:
        self._closed[incident] = ended
        while len(self._closed) > _MOST_CLOSED:
            del self._closed[next(iter(self._closed))]


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
