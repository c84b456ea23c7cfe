"""Everything that is known around one alert, as sections: who, what, when, and what could not be seen."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from analysis.audit import Period
from analysis.detectors.inference.asked import identity_of
from app.errors import UserError
from app.words import lasting
from cluster.model import Cluster
from operations.alert_history import StoredAlert
from operations.sightings import Sighting
from reporting.content import Column, Fact, Kind, Section, Table, Tone, Word
from reporting.incident.evidence import Evidence, evidence_of
from reporting.incident.nearby import alerts_nearby, jobs_nearby, unseen
from reporting.incident.talks import contacts, outward, talks, totals
from reporting.look import Look
from reporting.outside import known_of
from rules import runbook
from rules.common import texts
from rules.registry import rules_of
from rules.rule import Rule
from store import schema
from store.influx import Store

AROUND = 1800
"""Seconds before an alert began, and after it ended, that are looked at."""

_LONGEST = 86_400
"""Seconds that are looked at of an alert that goes on and on: those of its begin."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What an alert is about, as tags name it; empty where it has no such thing.

    Attributes:
        node: source, or the node itself.
        source_address, destination_address: of its ends.
    """

    node: str
    destination: str
    source_address: str
    destination_address: str
    job: str


@dataclass(frozen=True, slots=True)
class Incident:
    """One alert and its surroundings.

    Attributes:
        rule: as it is now; None where cluster.yaml no longer gives it.
        evidence: None where the rule is gone, or its points are.
        what_to_do: Markdown of the runbook.
        facts: of the head, in pairs of title and text.
        made_at: epoch seconds.
    """

    alert: StoredAlert
    rule: Rule | None
    evidence: Evidence | None
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    what_to_do: str
    start: int
    stop: int
    made_at: int


def incident_of(cluster: Cluster, store: Store, alert: StoredAlert, now: int | None = None) -> Incident:
    """Return an alert's surroundings as the store has them.

    Args:
        cluster: whose alert it is.
        store: asked.
        alert: of the history.
        now: epoch seconds; None: the present.

    Raises:
        StoreError: the store is away.
    """
    now = int(time.time()) if now is None else now
    start = alert.began - AROUND
    stop = max(min((alert.ended or now) + AROUND, alert.began + _LONGEST, now), start + cluster.bridge.window)
    look = _look(cluster, store, start, stop, now)
    subject = _subject(alert)
    rule = next((one for one in rules_of(cluster).rules if one.id == alert.rule), None)
    known = known_of(look, [subject.source_address, subject.destination_address])
    sections = [
        *talks(look, subject.node, subject.destination),
        *([outward(look)] if schema.LARGEST in alert.labels else []),
        *totals(look, subject.node),
        *contacts(look, subject.node, subject.destination),
        *_ends(subject, known),
        *jobs_nearby(look, subject.node, subject.job),
        alerts_nearby(look, alert, subject.node, subject.destination, subject.job),
        unseen(look),
    ]
    return Incident(
        alert=alert,
        rule=rule,
        evidence=None if rule is None or not alert.labels else _evidence(store, rule, alert, look),
        facts=tuple(_facts(look, alert, subject, known, _user(cluster, subject.source_address, alert, now))),
        sections=tuple(sections),
        what_to_do=runbook.sections().get(alert.rule, ""),
        start=look.period.start,
        stop=look.period.stop,
        made_at=now,
    )


def _look(cluster: Cluster, store: Store, start: int, stop: int, now: int) -> Look:
    kept = cluster.retentions()
    retention = next((one for one in kept if start >= now - one.keep), kept[-1])
    window = retention.window
    return Look(
        cluster, store, Period(start - start % window, -(-stop // window) * window, retention.name, window), now
    )


def _subject(alert: StoredAlert) -> Subject:
    def first(*names: str) -> str:
        return next((alert.labels[name] for name in names if alert.labels.get(name, schema.OTHER) != schema.OTHER), "")

    return Subject(
        node=first(schema.SRC, schema.NODE) or ("" if alert.labels else alert.tags[schema.SRC]),
        destination=first(schema.DST),
        source_address=alert.seen.src_address,
        destination_address=alert.seen.dst_address,
        job=alert.job or first(schema.JOB),
    )


def _evidence(store: Store, rule: Rule, alert: StoredAlert, look: Look) -> Evidence | None:
    if look.period.retention != schema.RAW:
        return None
    return evidence_of(store, rule, alert.labels, look.period.start, look.period.stop)


def _user(cluster: Cluster, address: str, alert: StoredAlert, now: int) -> str:
    told = alert.labels.get(schema.USER, "")
    if told or not address or not cluster.identity.sources:
        return "" if told == schema.UNKNOWN_USER else told
    try:
        identity = identity_of(cluster)
        identity.refresh(now)
    except UserError:
        return ""
    return str(identity.table.user_at([address], [alert.began])[0] or "")


def _facts(
    look: Look, alert: StoredAlert, subject: Subject, known: Mapping[str, Mapping[str, str]], user: str
) -> Iterator[tuple[str, str]]:
    """Yield titles and texts of what is known; empty texts where something is not."""
    words, labels, seen = look.words, alert.labels, alert.seen

    def or_told(text: str, what: str) -> str:
        """Return what the notification said where the labels do not name it: a link, all nodes of a group."""
        return text or alert.facts.get(what, "")

    lasted = "" if alert.ended is None else f", after {lasting(alert.ended - alert.began)}"
    yield "Began", f"{words.moment(alert.began)}, {words.zone.key}"
    yield "Ended", "it still fires" if alert.ended is None else f"{words.moment(alert.ended)}{lasted}"
    group = labels.get(schema.SRC_GROUP) or labels.get(schema.GROUP, "")
    yield "Source", or_told(_end(look, subject.node, subject.source_address, group, known), texts.SOURCE)
    group = labels.get(schema.DST_GROUP, "")
    destination = _end(look, subject.destination, subject.destination_address, group, known)
    yield "Destination", or_told(destination, texts.DESTINATION)
    yield "Signed in at the source", user
    protocol = "/".join(filter(None, (labels.get(schema.PROTO, "").upper(), labels.get(schema.SERVICE, ""))))
    yield "Protocol", or_told(protocol, texts.PROTOCOL)
    yield "Port", _port(seen)
    yield "Bytes that the rule saw", or_told("" if alert.size is None else f"{alert.size:,}", texts.BYTES)
    yield "Duration", or_told("", texts.DURATION)
    yield "Listed by", labels.get(schema.FEED, "")
    yield "Entered at", " ".join(filter(None, (seen.exporter, seen.interface)))
    yield "Job", subject.job
    yield "Acknowledged", "" if alert.acknowledged is None else words.moment(alert.acknowledged)
    yield "Marked", ", ".join(filter(None, ("false" if alert.is_false else "", alert.why)))


def _end(look: Look, name: str, address: str, group: str, known: Mapping[str, Mapping[str, str]]) -> str:
    about = known.get(address, {})
    place = ", ".join(filter(None, (about.get(tag) for tag in (schema.NETWORK, schema.CITY, schema.COUNTRY))))
    parts = (name, address if address != name else "", about.get(schema.NAME), group and look.words.title(group), place)
    return " · ".join(filter(None, parts)) if name or address else ""


def _port(seen: Sighting) -> str:
    if seen.port is None:
        return ""
    several = "" if seen.port_max in (None, seen.port) else f" to {seen.port_max}"
    return f"{seen.port}{several} at the {'destination' if seen.source_opened else 'source'}"


def _ends(subject: Subject, known: Mapping[str, Mapping[str, str]]) -> Iterator[Section]:
    """Yield what directories and feeds say of the outside end."""
    addresses = [one for one in (subject.source_address, subject.destination_address) if one in known]
    rows = [
        (address, known[address].get(schema.NAME, ""), known[address].get(schema.NAME_SOURCE.name, ""),
         *(known[address].get(tag, "") for tag in schema.LABELS))
        for address in addresses
    ]  # fmt: skip
    if not rows:
        return
    columns = (
        Column("address", "Address"), Column("name", "Name"), Column(schema.NAME_SOURCE.name, "Who says so"),
        *(Column(tag, tag.capitalize()) for tag in schema.LABELS),
    )  # fmt: skip
    listed = any(row[-1] for row in rows)
    yield Section(
        "ends",
        "Names, places and feeds",
        "A threat feed lists it." if listed else "No threat feed of cluster.yaml lists it.",
        facts=(Fact("listed", "Listed", Word("yes", Tone.ACT), Kind.TEXT),) if listed else (),
        blocks=(Table("ends", "Outside addresses", columns, tuple(rows), ""),),
    )
