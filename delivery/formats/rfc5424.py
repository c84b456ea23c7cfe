"""Events as syslog messages (RFC 5424), with structured data or with CEF in them."""

import socket

from app.words import one_line
from cluster.model import EventSeverity, SyslogDestination, SyslogFormat
from delivery.event import Document, State, at
from delivery.formats.cef import cef
from delivery.formats.text_parts import Mapped, values_of

PARAMETERS: Mapped = (
    ("id", "id"),
    ("incident", "incident"),
    ("schema", "schema"),
    ("kind", "kind"),
    ("action", "action"),
    ("state", "state"),
    ("severity", "severity"),
    ("cluster", "cluster"),
    ("start", "time"),
    ("end", "end"),
    ("srcName", "source.name"),
    ("srcIp", "source.address"),
    ("srcPort", "source.port"),
    ("srcGroup", "source.group"),
    ("srcUser", "source.user"),
    ("srcCountry", "source.country"),
    ("srcAsn", "source.asn"),
    ("srcOrg", "source.organisation"),
    ("dstName", "destination.name"),
    ("dstIp", "destination.address"),
    ("dstPort", "destination.port"),
    ("dstGroup", "destination.group"),
    ("dstUser", "destination.user"),
    ("dstCountry", "destination.country"),
    ("dstCity", "destination.city"),
    ("dstAsn", "destination.asn"),
    ("dstOrg", "destination.organisation"),
    ("dstApplication", "destination.application"),
    ("proto", "traffic.protocol"),
    ("service", "traffic.service"),
    ("dir", "traffic.direction"),
    ("exporter", "traffic.exporter"),
    ("interface", "traffic.interface"),
    ("bytes", "traffic.bytes"),
    ("packets", "traffic.packets"),
    ("flows", "traffic.flows"),
    ("duration", "traffic.duration"),
    ("feeds", "threat.feeds"),
    ("threatIndicator", "threat.indicator"),
    ("threatConfidence", "threat.confidence"),
    ("listedSince", "threat.listed_since"),
    ("job", "job.id"),
    ("jobClass", "job.job_class"),
    ("node", "job.node"),
    ("verdict", "job.verdict"),
    ("cause", "job.cause"),
    ("lostSeconds", "job.lost_seconds"),
    ("fault", "fault"),
    ("maintenance", "maintenance"),
    ("runbook", "runbook"),
    ("board", "board"),
    ("page", "page"),
)
"""Parameters of the structured data."""

_LEVELS = {EventSeverity.CRITICAL: 2, EventSeverity.WARNING: 4, EventSeverity.INFO: 6}
_NOTICE = 5
_MOST_CHARACTERS = 256
MOST_BYTES = 8000
"""Of a message: rsyslog takes 8 KiB unless told otherwise, and so do many."""


def message(document: Document, settings: SyslogDestination, host: str) -> bytes:
    """Return an event as a message without its framing.

    Args:
        document: the event.
        settings: format, facility and name of the structured data.
        host: our name.
    """
    level = _LEVELS[EventSeverity(at(document, "severity"))]
    if at(document, "state") == State.RESOLVED:
        level = _NOTICE
    head = f"<{settings.facility * 8 + level}>1 {at(document, 'time')} {_word(host, 255)} clusterflow - "
    head += _word(str(at(document, "kind")), 32)
    if settings.format is SyslogFormat.CEF:
        return _cut(f"{head} - {cef(document)}")
    text = one_line(str(at(document, "summary") or at(document, "title") or ""), 1000)
    pairs = [f'{name}="{_value(value)}"' for name, value in values_of(document, PARAMETERS)]
    while True:
        data = " ".join([settings.sd_id, *pairs])
        whole = f"{head} [{data}] {text}"
        if len(whole.encode()) <= MOST_BYTES or not pairs:
            return _cut(whole)
        pairs.pop()


def own_name() -> str:
    """Return our host's name as syslog takes it."""
    return _word(socket.gethostname(), 255)


def _word(text: str, most: int) -> str:
    """Return printable ASCII without spaces; ``-`` for nothing."""
    return "".join(sign for sign in text if "!" <= sign <= "~")[:most] or "-"


def _value(text: str) -> str:
    short = one_line(text, _MOST_CHARACTERS)
    return short.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def _cut(text: str) -> bytes:
    """Return it in UTF-8, at a whole character where it is too long."""
    data = text.encode()
    return data if len(data) <= MOST_BYTES else data[:MOST_BYTES].decode("utf-8", "ignore").encode()
