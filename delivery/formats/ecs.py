"""Events as documents of the Elastic Common Schema, version 8.11."""

from collections.abc import Mapping
from typing import Any

from cluster.model import EventKind, EventSeverity
from delivery.event import Document, State, at, epoch
from delivery.formats.text_parts import version_of

ECS_VERSION = "8.11.0"

COPIED = (
    ("@timestamp", "time"),
    ("message", "summary"),
    ("event.id", "id"),
    ("event.action", "action"),
    ("event.start", "time"),
    ("event.end", "end"),
    ("event.reason", "fault"),
    ("event.url", "board"),
    ("event.reference", "runbook"),
    ("source.domain", "source.name"),
    ("source.port", "source.port"),
    ("source.user.name", "source.user"),
    ("source.geo.country_iso_code", "source.country"),
    ("source.geo.city_name", "source.city"),
    ("source.as.number", "source.asn"),
    ("source.as.organization.name", "source.organisation"),
    ("destination.domain", "destination.name"),
    ("destination.port", "destination.port"),
    ("destination.user.name", "destination.user"),
    ("destination.geo.country_iso_code", "destination.country"),
    ("destination.geo.city_name", "destination.city"),
    ("destination.as.number", "destination.asn"),
    ("destination.as.organization.name", "destination.organisation"),
    ("network.transport", "traffic.protocol"),
    ("network.protocol", "traffic.service"),
    ("network.application", "destination.application"),
    ("network.direction", "traffic.direction"),
    ("network.bytes", "traffic.bytes"),
    ("network.packets", "traffic.packets"),
    ("source.bytes", "traffic.bytes"),
    ("source.packets", "traffic.packets"),
    ("threat.feed.name", "threat.feeds"),
    ("threat.indicator.name", "threat.indicator"),
    ("threat.indicator.first_seen", "threat.listed_since"),
    ("observer.name", "traffic.exporter"),
    ("observer.ingress.interface.name", "traffic.interface"),
    ("orchestrator.cluster.name", "cluster"),
    ("clusterflow.schema", "schema"),
    ("clusterflow.kind", "kind"),
    ("clusterflow.title", "title"),
    ("clusterflow.state", "state"),
    ("clusterflow.severity", "severity"),
    ("clusterflow.incident", "incident"),
    ("clusterflow.source_group", "source.group"),
    ("clusterflow.destination_group", "destination.group"),
    ("clusterflow.flows", "traffic.flows"),
    ("clusterflow.confidence", "threat.confidence"),
    ("clusterflow.job", "job"),
    ("clusterflow.maintenance", "maintenance"),
    ("clusterflow.facts", "facts"),
    ("clusterflow.values", "values"),
    ("labels", "labels"),
)
"""Field of ECS, and path in the event. What ECS has no field for is under ``clusterflow``."""

_CATEGORIES: Mapping[EventKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    EventKind.ALERT: (("network", "intrusion_detection"), ("info",)),
    EventKind.CONTACT: (("network",), ("connection", "allowed")),
    EventKind.VIOLATION: (("network",), ("connection", "allowed")),
    EventKind.THREAT: (("network", "threat"), ("indicator",)),
    EventKind.JOB: (("process",), ("info",)),
    EventKind.CONVERSATION: (("network",), ("connection",)),
}
"""event.category and event.type of each kind. What is seen was let through: hence `allowed`."""

_SEVERITIES = {EventSeverity.CRITICAL: 90, EventSeverity.WARNING: 60, EventSeverity.INFO: 30}
_CONFIDENCES = ((70.0, "High"), (30.0, "Medium"), (0.0, "Low"))


def ecs(document: Document) -> dict[str, Any]:
    """Return an event as an ECS document."""
    kind, severity = EventKind(at(document, "kind")), EventSeverity(at(document, "severity"))
    categories, types = _CATEGORIES[kind]
    found: dict[str, Any] = {}
    for name, path in COPIED:
        value = at(document, path)
        if value is not None:
            _put(found, name, value)
    if page := at(document, "page"):
        # It says more than the board.
        _put(found, "event.url", page)
    _put(found, "ecs.version", ECS_VERSION)
    _put(found, "event.kind", "alert" if kind in (EventKind.ALERT, EventKind.THREAT) else "event")
    _put(found, "event.category", list(categories))
    _put(found, "event.type", ["end"] if at(document, "state") == State.RESOLVED else list(types))
    _put(found, "event.severity", _SEVERITIES[severity])
    _put(found, "event.provider", "clusterflow")
    _put(found, "event.module", "clusterflow")
    _put(found, "event.dataset", f"clusterflow.{kind.value}")
    _put(found, "observer.vendor", "clusterflow")
    _put(found, "observer.type", "network")
    for side in ("source", "destination"):
        _put_address(found, side, document)
    if kind is EventKind.ALERT:
        _put(found, "rule.id", at(document, "action"))
        _put(found, "rule.name", at(document, "title"))
    if (duration := _nanoseconds(document)) is not None:
        _put(found, "event.duration", duration)
    if (confidence := at(document, "threat.confidence")) is not None:
        word = next(word for least, word in _CONFIDENCES if confidence >= least)
        _put(found, "threat.indicator.confidence", word)
    return found


def _put_address(found: dict[str, Any], side: str, document: Document) -> None:
    address, name = at(document, f"{side}.address"), at(document, f"{side}.name")
    if address or name:
        _put(found, f"{side}.address", address or name)
    if address:
        _put(found, f"{side}.ip", address)
        _put(found, "network.type", f"ipv{version_of(address)}")


def _nanoseconds(document: Document) -> int | None:
    """Return how long it went on: event.duration counts in nanoseconds."""
    seconds = at(document, "traffic.duration")
    start, end = at(document, "time"), at(document, "end")
    if seconds is None and end is not None:
        seconds = epoch(end) - epoch(start)
    return None if seconds is None else round(seconds * 1e9)


def _put(found: dict[str, Any], name: str, value: object) -> None:
    *above, last = name.split(".")
    place = found
    for key in above:
        place = place.setdefault(key, {})
    place[last] = value
