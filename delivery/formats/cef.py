"""Events as ArcSight's Common Event Format, version 0: a header with pipes, then keys and values."""

from app.version import own_version
from app.words import one_line
from cluster.model import EventSeverity
from delivery.event import Document, at, epoch
from delivery.formats.text_parts import Mapped, values_of, version_of

SEVERITIES = {EventSeverity.CRITICAL: 9, EventSeverity.WARNING: 6, EventSeverity.INFO: 3}

EXTENSION: Mapped = (
    ("externalId", "id"),
    ("cat", "kind"),
    ("act", "state"),
    ("msg", "summary"),
    ("shost", "source.name"),
    ("dhost", "destination.name"),
    ("spt", "source.port"),
    ("dpt", "destination.port"),
    ("suser", "source.user"),
    ("duser", "destination.user"),
    ("proto", "traffic.protocol"),
    ("app", "traffic.service"),
    ("out", "traffic.bytes"),
    ("cnt", "traffic.flows"),
    ("deviceExternalId", "traffic.exporter"),
    ("deviceInboundInterface", "traffic.interface"),
    ("reason", "fault"),
    ("request", "board"),
    ("requestContext", "runbook"),
    ("dvchost", "cluster"),
    ("clusterflowMaintenance", "maintenance"),
)
"""Keys of CEF's own dictionary; the last is ours, named as it asks for."""

LABELLED: Mapped = (
    ("cs1", "source.group_title"),
    ("cs2", "destination.group_title"),
    ("cs3", "destination.organisation"),
    ("cs4", "destination.country"),
    ("cs5", "threat.feeds"),
    ("cs6", "incident"),
    ("cn1", "traffic.packets"),
    ("cn2", "destination.asn"),
    ("cn3", "threat.confidence"),
    ("flexString1", "job.id"),
    ("flexString2", "threat.indicator"),
)
"""Keys to which CEF gives no meaning: `KEYLabel` says what stands there, by its path in the event."""

_TIMES: Mapped = (("rt", "time"), ("start", "time"), ("end", "end"))
_ADDRESSES = (("src", "c6a2", "source.address"), ("dst", "c6a3", "destination.address"))
_DIRECTIONS = {"inbound": "0", "outbound": "1"}
_MOST_CHARACTERS = 1023
"""Of a value; ArcSight's own limit for the longest fields."""


def cef(document: Document) -> str:
    """Return an event as one line of CEF."""
    header = (
        "CEF:0",
        "clusterflow",
        "clusterflow",
        own_version(),
        str(at(document, "action") or ""),
        str(at(document, "title") or ""),
        str(SEVERITIES[EventSeverity(at(document, "severity"))]),
    )
    pairs = [(key, str(round(epoch(text) * 1000))) for key, text in values_of(document, _TIMES)]
    for key, key_of_ipv6, path in _ADDRESSES:
        address = at(document, path) or ""
        if version_of(address) == 6:
            pairs += [(key_of_ipv6, address), (f"{key_of_ipv6}Label", path)]
        elif address:
            pairs.append((key, address))
    if page := at(document, "page"):
        document = {**document, "board": page}
    pairs += values_of(document, EXTENSION)
    direction = _DIRECTIONS.get(at(document, "traffic.direction") or "")
    if direction:
        pairs.append(("deviceDirection", direction))
    paths = dict(LABELLED)
    for key, text in values_of(document, LABELLED):
        pairs += [(key, text), (f"{key}Label", paths[key])]
    extension = " ".join(f"{key}={_value(text)}" for key, text in pairs)
    return f"{'|'.join(_in_header(part) for part in header)}|{extension}"


def _in_header(text: str) -> str:
    return one_line(text, 512).replace("\\", "\\\\").replace("|", "\\|")


def _value(text: str) -> str:
    # A new line could be written as \n; no receiver needs one, and not all undo it.
    return one_line(text, _MOST_CHARACTERS).replace("\\", "\\\\").replace("=", "\\=")
