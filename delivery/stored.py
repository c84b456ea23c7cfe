"""The measurements that become events, and what each says."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.words import amount, lasting
from cluster.model import Cluster, EventKind, EventSeverity
from dashboards.registry import panel_ref
from delivery.event import Event, JobFacts, Party, Threat, Traffic, feeds_in, panel_url
from delivery.parties import INBOUND, OUTBOUND, Parties, with_sighting
from delivery.stored_rows import Reading, Row
from operations.sightings import Sighting, Sightings, sighting_of
from rules.runbook import address
from store import schema
from store.influx import Store
from store.influxql import Select, beside, compare, is_in, says
from store.schema import Cause, CheckpointState, NodeState, Violation

_MINUTE, _FIVE_MINUTES = 60, 300

_VIOLATIONS = {
    Violation.NOT_ALLOWED: ("Conversation that is not allowed", "segmentation_violation", "violation_list"),
    Violation.WRONG_PLANE: ("Storage traffic on the compute plane", "storage_on_compute_plane", "violation_list"),
    Violation.MANAGEMENT: ("Unexpected connection of management", "unexpected_management_connection", "violation_list"),
}
_STALLS = {
    Cause.DROPOUT: ("Job lost time to a node that dropped out", "node_dropout"),
    Cause.SLOW: ("Job lost time: its cohort is slow", "cohort_slowdown"),
    Cause.STALLED: ("Job lost time: it stalled", "job_stalled"),
    Cause.PAUSE: ("Job lost time: short pauses", "job_stalled"),
    Cause.STORAGE: ("Job lost time: it waited for storage", "cohort_slowdown"),
    Cause.LOADING: ("Job lost time: loading took long", "job_stalled"),
    Cause.CHECKPOINT: ("Job lost time: checkpoints took long", "checkpoint_missed"),
    Cause.DISTURBED: ("Job lost time: others sent to its nodes", "job_disturbed"),
}
_FINE = frozenset({CheckpointState.ON_TIME, CheckpointState.UNJUDGED})


class Completeness:
    """Whether a checkpoint is complete: its row is written while it is under way, too, and does not say so."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._window, self._store = cluster.bridge.window, store

    def is_complete(self, job: str, began: int) -> bool:
        """Return whether a job's checkpoint that began then is over, as far as it has been judged.

        It is once what a crash would lose counts from it, or from a later one. Where nothing is stored of that, it is.
        """
        rows = Select(schema.CHECKPOINT_STATUS, schema.CHECKPOINT_STATUS.kept).take(beside(schema.CHECKPOINT_AGE))
        newest = replace(rows.where(is_in(schema.JOB, [job])).between(began), newest=1)
        return all(moment + self._window - float(seconds) >= began for moment, seconds in self._store.rows(newest))


def readings_of(cluster: Cluster, parties: Parties, checkpoints: Completeness, sightings: Sightings) -> list[Reading]:
    """Return all readings, in a fixed order."""
    make = _Makers(cluster, parties, checkpoints, sightings)
    is_new = (compare(schema.CONTACT_NEW, "=", 1),)
    told = (says(schema.JOB_EVENT, "", "!="),)
    low = compare(schema.STATE, ">=", NodeState.LOW), compare(schema.STATE, "<=", NodeState.DOWN)
    return [
        Reading(EventKind.THREAT, schema.THREAT, _MINUTE, make.threat, identity=(schema.FEED,)),
        Reading(EventKind.CONTACT, schema.CONTACT, 0, make.contact, is_new),
        Reading(EventKind.VIOLATION, schema.VIOLATION, _MINUTE, make.violation),
        Reading(EventKind.JOB, schema.JOB_STATUS, 0, make.job, told),
        Reading(
            EventKind.JOB,
            schema.CHECKPOINT,
            0,
            make.checkpoint,
            lasts=schema.CHECKPOINT_AWAITED,
            make_at_last=make.checkpoint_as_it_stands,
        ),
        Reading(EventKind.JOB, schema.STALL, _FIVE_MINUTES, make.stall),
        Reading(EventKind.JOB, schema.BASELINE, _FIVE_MINUTES, make.dropout, low),
        Reading(EventKind.CONVERSATION, schema.EGRESS, _FIVE_MINUTES, make.conversation),
    ]


class _Makers:
    """Make events of rows."""

    def __init__(self, cluster: Cluster, parties: Parties, checkpoints: Completeness, sightings: Sightings) -> None:
        self._cluster, self._parties, self._checkpoints = cluster, parties, checkpoints
        self._sightings = sightings

    def threat(self, row: Row) -> Event:
        """A conversation with an address that a threat feed lists."""
        late = row.tags.get(schema.LATE) == schema.YES
        threat = Threat(
            feeds=feeds_in(row.tags.get(schema.FEED, "")),
            indicator=row.tags.get(schema.INDICATOR, ""),
            confidence=_number(row, schema.CONFIDENCE),
            listed_since=_number(row, schema.LISTED_SINCE),
            late=late,
        )
        outward = row.tags.get(schema.DIRECTION) == schema.OUTWARD
        words = f"listed by {', '.join(threat.feeds)}"
        return self._conversation(
            row,
            EventKind.THREAT,
            "threat_match_late" if late else "threat_match",
            "Conversation with an address that a threat feed lists",
            EventSeverity.CRITICAL,
            # The labels are those of the outside end.
            labelled=schema.DST if outward else schema.SRC,
            threat=threat,
            direction=OUTBOUND if outward else INBOUND,
            words=f"{words} only afterwards" if late else words,
        )

    def contact(self, row: Row) -> Event:
        """A first contact with an outside destination."""
        return self._conversation(
            row,
            EventKind.CONTACT,
            "first_contact",
            "First contact with an outside address",
            EventSeverity.WARNING,
            runbook="first_external_contact",
            board=("egress", "contacts"),
            # Its row is the analysis' own, which knows neither.
            seen=self._sightings.of(row.tags, row.end),
        )

    def violation(self, row: Row) -> Event | None:
        """A conversation that breaks the cluster's segmentation; None for kinds that we do not know yet."""
        kind = row.tags.get(schema.KIND, "")
        if kind not in _VIOLATIONS:
            return None
        title, rule, panel = _VIOLATIONS[Violation(kind)]
        return self._conversation(
            row, EventKind.VIOLATION, kind, title, EventSeverity.WARNING, runbook=rule, board=("egress", panel)
        )

    def conversation(self, row: Row) -> Event:
        """Five minutes of a conversation with the outside."""
        return self._conversation(
            row,
            EventKind.CONVERSATION,
            "egress",
            "Conversation with the outside",
            EventSeverity.INFO,
            board=("egress", "egress_over_time"),
        )

    def job(self, row: Row) -> Event:
        """A job started or stopped."""
        event = str(row.values[schema.JOB_EVENT.name])
        outcome = str(row.values.get(schema.JOB_OUTCOME.name) or "")
        verdict = outcome or event
        title = f"Job {event}"
        return self._of_job(
            row, f"job_{event}", title, EventSeverity.INFO, verdict=verdict, board=("training", "jobs"), end=None
        )

    def checkpoint(self, row: Row) -> Event | None:
        """A checkpoint, or one that never came; None for one that was taken back, or is still under way."""
        # What it was like is known when it is over: it is looked at again until then.
        if _checkpoint_state(row) != CheckpointState.MISSED and not self._checkpoints.is_complete(
            row.tags.get(schema.JOB, ""), row.time
        ):
            return None
        return self.checkpoint_as_it_stands(row)

    def checkpoint_as_it_stands(self, row: Row) -> Event | None:
        """A checkpoint, over or not, or one that never came; None for one that was taken back."""
        if not any(row.values.values()):
            # A row that is taken back keeps its place, with every number 0.
            return None
        state = _checkpoint_state(row)
        word = schema.CHECKPOINT_WORDS.get(state, str(state))
        seconds = _number(row, schema.EVENT_SECONDS) or 0.0
        return self._of_job(
            row,
            schema.CHECKPOINT.name,
            f"Checkpoint {word}",
            EventSeverity.INFO if state in _FINE else EventSeverity.WARNING,
            verdict=word,
            runbook="checkpoint_missed",
            board=("checkpoints", "events"),
            end=row.time + seconds,
            size=_number(row, schema.EVENT_BYTES),
        )

    def stall(self, row: Row) -> Event | None:
        """Time that a job lost within five minutes; None for a cause that we do not know, or a verdict taken back."""
        cause = row.tags.get(schema.CAUSE, "")
        if cause not in _STALLS or not row.values.get(schema.LOST_SECONDS.name):
            return None
        title, rule = _STALLS[Cause(cause)]
        return self._of_job(
            row,
            schema.STALL.name,
            title,
            EventSeverity.WARNING,
            verdict=cause,
            runbook=rule,
            board=("training", "stalls"),
        )

    def dropout(self, row: Row) -> Event:
        """A node that was low or down within five minutes."""
        word = schema.NODE_STATE_WORDS[int(row.values[schema.STATE.name])]
        return self._of_job(
            row,
            "dropout",
            f"Node {word} in a running job",
            EventSeverity.WARNING,
            verdict=word,
            runbook="node_dropout",
            board=("training", "verdicts"),
        )

    # -- what they share ---------------------------------------------------------------------------------

    def _conversation(
        self,
        row: Row,
        kind: EventKind,
        action: str,
        title: str,
        severity: EventSeverity,
        *,
        labelled: str = schema.DST,
        threat: Threat | None = None,
        direction: str = "",
        words: str = "",
        runbook: str = "",
        board: tuple[str, str] | None = None,
        seen: Sighting | None = None,
    ) -> Event:
        seen = seen or sighting_of(row.values)
        labels = {tag: row.tags[tag] for tag in schema.LABELS if tag in row.tags}
        source, destination = (
            self._parties.party(row.tags.get(name, ""), row.tags.get(group, ""), row.time, labels, until=row.end)
            if name == labelled
            else self._parties.party(row.tags.get(name, ""), row.tags.get(group, ""), row.time, until=row.end)
            for name, group in ((schema.SRC, schema.SRC_GROUP), (schema.DST, schema.DST_GROUP))
        )
        source, destination = with_sighting(source, destination, seen)
        feeds = feeds_in(row.tags.get(schema.FEED, ""))
        traffic = Traffic(
            protocol=row.tags.get(schema.PROTO, ""),
            service=row.tags.get(schema.SERVICE, ""),
            direction=direction or self._parties.direction(source.group, destination.group),
            bytes=_whole(row, schema.BYTES),
            packets=_whole(row, schema.PACKETS),
            flows=_whole(row, schema.FLOWS),
            duration=_number(row, schema.DURATION),
            exporter=seen.exporter,
            interface=seen.interface,
        )
        return Event(
            id=row.id,
            kind=kind,
            action=action,
            title=title,
            cluster=self._cluster.name,
            time=row.time,
            end=row.end,
            severity=severity,
            summary=_sentence(source, destination, traffic, words),
            source=source,
            destination=destination,
            traffic=traffic,
            threat=threat or Threat(feeds=feeds),
            labels=row.tags,
            runbook=self._runbook(runbook),
            board=self._board(board, row),
        )

    def _of_job(
        self,
        row: Row,
        action: str,
        title: str,
        severity: EventSeverity,
        *,
        verdict: str,
        runbook: str = "",
        board: tuple[str, str] | None = None,
        end: float | None = -1.0,
        size: float | None = None,
    ) -> Event:
        node = row.tags.get(schema.NODE, "")
        job = JobFacts(
            id=row.tags.get(schema.JOB, ""),
            job_class=row.tags.get(schema.JOB_CLASS, ""),
            node=node,
            cause=row.tags.get(schema.CAUSE, ""),
            verdict=verdict,
            lost_seconds=_number(row, schema.LOST_SECONDS),
            gpus=_whole(row, schema.JOB_GPUS),
            usd=_number(row, schema.USD),
        )
        where = f"{node}, job {job.id}" if node else f"job {job.id}"
        lost = f", {lasting(job.lost_seconds)} lost" if job.lost_seconds else ""
        return Event(
            id=row.id,
            kind=EventKind.JOB,
            action=action,
            title=title,
            cluster=self._cluster.name,
            time=row.time,
            end=row.end if end == -1.0 else end,
            severity=severity,
            summary=f"{title}: {where}{lost}",
            source=self._parties.party(node, row.tags.get(schema.GROUP, ""), row.time) if node else Party(),
            traffic=Traffic(bytes=None if size is None else round(size)),
            job=job,
            labels=row.tags,
            values={name: float(value) for name, value in row.values.items() if isinstance(value, int | float)},
            runbook=self._runbook(runbook),
            board=self._board(board, row),
        )

    def _runbook(self, section: str) -> str:
        return address(self._cluster, section) if section else ""

    def _board(self, place: tuple[str, str] | None, row: Row) -> str:
        return panel_url(self._cluster, panel_ref(*place), row.tags, row.time, row.end) if place else ""


def _sentence(source: Party, destination: Party, traffic: Traffic, words: str) -> str:
    """Return who sent what to whom: ``a (Model Storage) → 203.0.113.9 (AS64500 ExampleHost, NL), 41 GB, TCP/https``."""
    protocol = f"{traffic.protocol.upper()}/{traffic.service}" if traffic.service else traffic.protocol.upper()
    parts = [
        f"{source} → {destination}",
        "" if traffic.bytes is None else amount(traffic.bytes),
        protocol,
        lasting(traffic.duration) if traffic.duration else "",
        words,
    ]
    return ", ".join(part for part in parts if part)


def _checkpoint_state(row: Row) -> int:
    return int(row.values.get(schema.CHECKPOINT_STATE.name, CheckpointState.UNJUDGED))


def _number(row: Row, field: schema.Field) -> float | None:
    value: Any = _of(row.values, field)
    return None if value is None else float(value)


def _whole(row: Row, field: schema.Field) -> int | None:
    value: Any = _of(row.values, field)
    return None if value is None else round(value)


def _of(values: Mapping[str, Any], field: schema.Field) -> Any:  # noqa: ANN401 - a number or nothing
    return values.get(field.name)
