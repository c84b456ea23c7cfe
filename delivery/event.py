"""What is delivered: one schema of events for alerts and for what is stored, with ids that stay the same.

An id is a hash of what the event is: a rule, its labels, when it began and whether it fires; or a measurement, its tags
and its time. Whoever gets an event twice, after a crash or a lost answer, sees the same id twice. `docs/delivery.md`
lists the fields.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

from cluster.model import Cluster, EventKind, EventSeverity
from dashboards.registry import PanelRef
from store import schema

SCHEMA = "clusterflow.event/1"
"""Name and version of the schema: fields may be added to a version, never renamed, nor change their meaning."""

Document = Mapping[str, Any]
"""An event as plain data: what is spooled, and what formats read."""

_ID_DIGITS = 32
_AROUND = 1800


class State(StrEnum):
    """Whether an event goes on."""

    FIRING = "firing"
    RESOLVED = "resolved"
    SEEN = "seen"


@dataclass(frozen=True, slots=True)
class Party:
    """One end of a conversation, as far as it is known.

    Attributes:
        name: node, or host name of an address.
        address: IPv4 or IPv6.
        group: id of its group; `group_title` its name for people.
        country: ISO 3166 code.
        asn: number of its autonomous system; `organisation` whose it is.
        application: what it is by the site's lists.
        user: who was at it.
        port: TCP, UDP, SCTP: where it was called, the lowest if there are several; `port_max` the highest then.
    """

    name: str = ""
    address: str = ""
    group: str = ""
    group_title: str = ""
    country: str = ""
    city: str = ""
    asn: int | None = None
    organisation: str = ""
    application: str = ""
    user: str = ""
    port: int | None = None
    port_max: int | None = None

    def __str__(self) -> str:
        """Return it for people: ``203.0.113.9 (AS64500 ExampleHost, NL)``."""
        number = f"AS{self.asn}" if self.asn is not None else ""
        network = f"{number} {self.organisation}".strip()
        # Of an outside address, whose it is says more than that it is outside.
        about = [network or self.group_title, self.country, self.application]
        known = ", ".join(text for text in about if text)
        name = self.name or self.address or "unknown"
        return f"{name} ({known})" if known else name


@dataclass(frozen=True, slots=True)
class Traffic:
    """What went over the network.

    Attributes:
        protocol: tcp, udp, icmp, ... or its number.
        service: by the server's port.
        direction: ``outbound`` or ``inbound``, of what crosses the border of the cluster.
        duration: seconds in which bytes were sent.
        exporter, interface: where it entered the network, where one exporter alone counts it.
    """

    protocol: str = ""
    service: str = ""
    direction: str = ""
    bytes: int | None = None
    packets: int | None = None
    flows: int | None = None
    duration: float | None = None
    exporter: str = ""
    interface: str = ""


@dataclass(frozen=True, slots=True)
class Threat:
    """What threat feeds say.

    Attributes:
        feeds: that list an end of the conversation.
        indicator: the prefix that matched.
        confidence: from 0 to 100.
        listed_since: epoch seconds.
        late: whether it was listed only after the conversation.
    """

    feeds: tuple[str, ...] = ()
    indicator: str = ""
    confidence: float | None = None
    listed_since: float | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What an event says of a training job."""

    id: str = ""
    job_class: str = ""
    node: str = ""
    cause: str = ""
    verdict: str = ""
    lost_seconds: float | None = None
    gpus: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        id: the same whenever the same thing is reported again.
        incident: of an alert: the same for its begin and its end.
        kind: what it tells of.
        action: the rule, or what happened, in one word.
        title: the same for people.
        summary: one sentence.
        time: epoch second at which it began; `end` at which it ended.
        labels: all labels or tags.
        facts: what an alert says for people, by name.
        values: numbers of an alert, by name.
        fault: what went wrong, where an alert is about missing data.
        maintenance: the planned work during which an alert began: nobody was notified before its end.
        runbook: address of what to do.
        board: address of where to look.
        page: address of the incident's page.
    """

    id: str
    kind: EventKind
    action: str
    title: str
    cluster: str
    time: float
    state: State = State.SEEN
    severity: EventSeverity = EventSeverity.INFO
    incident: str = ""
    end: float | None = None
    summary: str = ""
    source: Party = field(default_factory=Party)
    destination: Party = field(default_factory=Party)
    traffic: Traffic = field(default_factory=Traffic)
    threat: Threat = field(default_factory=Threat)
    job: JobFacts = field(default_factory=JobFacts)
    labels: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    fault: str = ""
    maintenance: str = ""
    runbook: str = ""
    board: str = ""
    page: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as plain data: times in ISO 8601 (UTC), what is not known left out."""
        return {"schema": SCHEMA, **_plain(self)}


_TIMES = frozenset({"time", "end", schema.LISTED_SINCE.name})


def _plain(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the dataclasses above
    found: dict[str, Any] = {}
    for item in fields(value):
        given = getattr(value, item.name)
        if is_dataclass(given):
            given = _plain(given)
        elif item.name in _TIMES and given is not None:
            given = iso(given)
        elif isinstance(given, Mapping):
            given = {key: one for key, one in sorted(given.items()) if one != ""}
        elif isinstance(given, tuple):
            given = list(given)
        elif isinstance(given, StrEnum):
            given = given.value
        if given is None or given in ("", False) or given in ({}, []):
            continue
        found[item.name] = given
    return found


def iso(moment: float) -> str:
    """Return an epoch second as ``2026-03-01T08:00:00Z``."""
    text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + "Z"


def epoch(text: str) -> float:
    """Return the epoch second of what `iso` wrote; ValueError for anything else."""
    return datetime.fromisoformat(text).timestamp()


def event_id(*parts: str | float | Sequence[str] | Mapping[str, str]) -> str:
    """Return the id of what these parts say, however the mappings among them are ordered."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_DIGITS]


def feeds_in(label: str) -> tuple[str, ...]:
    """Return the threat feeds that a label names."""
    return tuple(feed for feed in label.split(",") if feed and feed != schema.OTHER)


def line(value: object) -> str:
    """Return plain data as JSON on one line."""
    return json.dumps(value, separators=(",", ":"))


def at(document: Document, path: str) -> Any:  # noqa: ANN401 - whatever the document has there
    """Return what an event's document has at a dotted path; None if nothing."""
    value: Any = document
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def panel_url(
    cluster: Cluster, panel: PanelRef, labels: Mapping[str, str], began: float, ended: float | None = None
) -> str:
    """Return the address of a panel at the time of an event, half an hour around it; until now if it goes on."""
    until = "now" if ended is None else f"{ended + _AROUND:.0f}000"
    chosen = {f"var-{name}": labels[name] for name in (schema.JOB, schema.NODE) if labels.get(name)}
    asked = {"viewPanel": panel.panel_id, "from": f"{began - _AROUND:.0f}000", "to": until, **chosen}
    return f"{cluster.grafana.url}/d/{panel.dashboard_uid}?{urlencode(asked)}"
