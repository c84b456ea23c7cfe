"""The section `delivery`: who gets events, and how."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, TypeVar, dataclass_transform

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import OneOf, Section, check_pair, key, record
from cluster.scalars.kinds import FLAG, SECRET, Choice, ListOf, MapOf, Placed, Secret, Table, Whole
from cluster.scalars.names import DAY
from cluster.sections.kafka import SaslMechanism

T = TypeVar("T", bound="Destination")

HOOK_PATH = "/grafana"
"""Where `clusterflow deliver` takes the alerts of Grafana."""

INCIDENT_PATH = "/incident/"
FLOWS_PATH = "/flows"
PICTURE_PATH = "/picture"
"""Where `clusterflow deliver` shows the pages of incidents, and draws what notifications show."""

HISTORY = "history"
"""What the alert history is called among the destinations."""


class EventKind(StrEnum):
    """What an event that is delivered tells of."""

    ALERT = "alert"
    CONTACT = "contact"
    VIOLATION = "violation"
    THREAT = "threat"
    JOB = "job"
    CONVERSATION = "conversation"


class EventSeverity(StrEnum):
    """How much an event matters; alerts have that of their rule."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class AlertsFrom(StrEnum):
    """Who evaluates the rules whose alerts are delivered."""

    EVALUATE = "evaluate"
    GRAFANA = "grafana"
    OFF = "off"


class SyslogTransport(StrEnum):
    """How syslog messages travel."""

    UDP = "udp"
    TCP = "tcp"
    TLS = "tls"


class SyslogFormat(StrEnum):
    """What a syslog message holds."""

    RFC5424 = "rfc5424"
    CEF = "cef"


DELIVERED = tuple(kind for kind in EventKind if kind is not EventKind.CONVERSATION)
"""Events that a destination gets where it does not say: conversations are many."""

DESTINATIONS: dict[str, Section] = {}
"""Destinations by type: whatever bears `@destination`."""


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """What every destination of events has; `kind` is its type in the file, `name` that in logs and counters.

    By itself it is the history of alerts, which needs no mention in cluster.yaml.
    """

    kind: ClassVar[str] = "store"
    name: str
    events: tuple[EventKind, ...] = key(ListOf(Choice(tuple(EventKind)), at_least=1), "Which events it gets.",
        default=DELIVERED)
    severities: tuple[EventSeverity, ...] = key(ListOf(Choice(tuple(EventSeverity))), "Which severities.", default=(),
        absent="all", example="[critical, warning]")
    rate: int = key(Whole(1, 1_000_000), "Events a second that it gets at most.", default=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encrypted(Destination):
    ca_file: str | None = key(names.FILE,
        "Certificates (PEM) of the authorities that its certificate is checked against.", default=None,
        absent="the system's", example="/etc/clusterflow/soc-ca.pem")
    verify_tls: bool = key(FLAG, "Whether its certificate and name are checked.", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Certified(_Encrypted):
    certificate_file: str | None = key(names.FILE, "Our own certificate, PEM, where it asks for one.", default=None,
        absent="none")
    key_file: str | None = key(names.FILE, "Its private key, PEM.", default=None, absent="none")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(key,))
def destination(owner: type[T]) -> type[T]:
    """Make a record that `type: KIND` in the file stands for."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(owner)
    DESTINATIONS[made.kind] = Section.of(made, "destination")
    return made


@destination
class SyslogDestination(_Certified):
    """A syslog receiver, `address` as host:port. `sd_id` names our structured data, after the number of its owner."""

    kind = "syslog"
    address: str = key(names.RECEIVER, "Where it listens.", example="siem.example.org:6514")
    transport: SyslogTransport = key(Choice(tuple(SyslogTransport)),
        "TCP and TLS count octets (RFC 6587, RFC 5425). UDP loses messages without a word.",
        default=SyslogTransport.TLS)
    format: SyslogFormat = key(Choice(tuple(SyslogFormat)), "RFC 5424 with structured data, or CEF in such a message.",
        default=SyslogFormat.RFC5424)
    facility: int = key(Whole(0, 23), "Facility; 16 is local0.", default=16)
    sd_id: str = key(names.SD_ID, "Name of the structured data; 32473 is the number that examples have.",
        default="clusterflow@32473")


@destination
class SplunkDestination(_Encrypted):
    """A Splunk HTTP Event Collector."""

    kind = "splunk"
    url: str = key(names.URL, "Address of the HTTP Event Collector.", example="https://splunk.example.org:8088")
    token: Secret = key(SECRET, "Its token.", example="{file: /run/secrets/hec}")
    index: str | None = key(names.LINE, "Index.", default=None, absent="that of the token")
    sourcetype: str = key(names.LINE, "Source type.", default="clusterflow:event")


@destination
class ElasticDestination(_Encrypted):
    """Elasticsearch or OpenSearch; `index` may be a data stream."""

    kind = "elastic"
    url: str = key(names.URL, "Address of Elasticsearch or OpenSearch.", example="https://elastic.example.org:9200")
    index: str = key(names.INDEX, "Index or data stream.", default="logs-clusterflow-default")
    api_key: Secret | None = key(SECRET, "API key, as Kibana shows it (base64).", default=None, absent="none")
    username: str | None = key(names.LINE, "User, in place of `api_key`.", default=None, absent="none")
    password: Secret | None = key(SECRET, "Its password.", default=None, absent="none")


@destination
class KafkaDestination(_Certified):
    """A topic of Kafka. Without brokers of its own it is on those of the section `kafka`."""

    kind = "kafka"
    topic: str = key(names.TOPIC, "The topic; it must be there.", default="clusterflow-events")
    brokers: tuple[str, ...] = key(ListOf(names.BROKER), "Brokers to ask first.", default=(),
        absent="those of `kafka`, with all it says")
    tls: bool = key(FLAG, "Whether connections are encrypted.", default=False)
    username: str | None = key(names.LINE, "User, where brokers ask for one (SASL).", default=None, absent="none")
    password: Secret | None = key(SECRET, "Its password.", default=None, absent="none")
    mechanism: SaslMechanism = key(Choice(tuple(SaslMechanism)), "How the password is proven.",
        default=SaslMechanism.SCRAM_SHA_512)


@destination
class WebhookDestination(_Encrypted):
    """A URL that takes JSON. `token` is borne as `Authorization: Bearer`; `signing_key` signs the body by HMAC."""

    kind = "webhook"
    url: Secret = key(SECRET, "Where to POST.", example="{env: SOAR_WEBHOOK}")
    token: Secret | None = key(SECRET, "Token to bear.", default=None, absent="none")
    signing_key: Secret | None = key(SECRET, "Key of the HMAC-SHA256 over each body.", default=None,
        absent="not signed")


@destination
class FileDestination(Destination):
    """A file with an event a line; at `rotate` bytes it becomes ``NAME.1``, of which `keep` are kept."""

    kind = "file"
    path: str = key(names.FILE, "The file, beside this one.", example="/var/log/clusterflow/events.ndjson")
    rotate: int = key(names.SIZE, "Size at which it becomes `NAME.1`.", default=100_000_000)
    keep: int = key(Whole(1, 1_000), "How many of those are kept.", default=5)


@record
class DeliverySettings:
    """The history of alerts, and events for a SIEM (docs/delivery.md)."""

    alerts: AlertsFrom = key(Choice(tuple(AlertsFrom)),
        "`evaluate`: `clusterflow deliver` evaluates the rules itself. `grafana`: Grafana does, and posts to "
        "`listen`. `off`: no alerts, and no history of them.", default=AlertsFrom.EVALUATE)
    listen: str = key(names.LISTEN, "Where Grafana's webhook is taken, at /grafana.", default="127.0.0.1:9107")
    url: str | None = key(names.URL, "Where Grafana reaches `listen`: its contact point posts there.", default=None,
        absent="`http://LISTEN`", example="http://deliver:9107")
    token: Secret | None = key(SECRET, "What that webhook must bear.", default=None,
        absent="none: needed with `alerts: grafana`", example="{file: /run/secrets/deliver}")
    metrics_listen: str | None = key(names.LISTEN_OR_OFF,
        "Where /metrics and /healthz answer, or `off`; `bridge.metrics_token` holds here too.",
        default="127.0.0.1:9108")
    incident_url: str | None = key(names.URL,
        "Where people reach `metrics_listen`. With it, notifications and events link to the page of their incident, "
        "rows of boards and of that page to the question about them in the flow archive.",
        default=None, absent="no links", example="https://clusterflow.example.org")
    state: str = key(names.PATH, "The folder of the spool.", default="/var/lib/clusterflow/delivery")
    spool: int = key(names.SIZE, "Size of the spool. When it is full, its oldest events are dropped and counted.",
        default=1_000_000_000)
    every: int = key(names.seconds(1, 3_600), "Time between two looks at the store.", default=10)
    settle: int = key(names.seconds(0, DAY),
        "Age at which what is stored is told of: what it counts has come in by then. Alerts do not wait.", default=60)
    overlap: int = key(names.seconds(0, DAY), "How far back points are looked for that were stored late.", default=900)
    destinations: tuple[Destination, ...] = key(MapOf(names.NAME, OneOf("type", DESTINATIONS, "destination")),
        "Who gets events.", default=())

    def incident_pages(self) -> str:
        """Return what links to pages of incidents begin with; empty without any."""
        return f"{self.incident_url.rstrip('/')}{INCIDENT_PATH}" if self.incident_url else ""

    def flow_pages(self) -> str:
        """Return what links to questions about conversations begin with; empty without any."""
        return f"{self.incident_url.rstrip('/')}{FLOWS_PATH}" if self.incident_url else ""

    def picture_page(self) -> str:
        """Return where Grafana has the pictures of its notifications drawn; empty without any."""
        return f"{self.incident_url.rstrip('/')}{PICTURE_PATH}" if self.incident_url else ""

    def kinds(self) -> tuple[EventKind, ...]:
        """Return the kinds of events that any destination gets."""
        wanted = {kind for destination in self.destinations for kind in destination.events}
        return tuple(kind for kind in EventKind if kind in wanted)


DELIVERY = Section.of(DeliverySettings, "delivery")
# fmt: on


def build_delivery(table: Table | None, folder: Path, faults: Faults) -> DeliverySettings:
    """Return the settings, and record what does not fit together.

    Args:
        table: what the file says.
        folder: what relative paths are relative to.
        faults: added to.
    """
    given = table or {}
    tables: dict[str, Placed[Table]] = given.get("destinations", {})
    for name, placed in tables.items():
        if name == HISTORY:
            hint = "that of the alert history, which needs no destination here"
            faults.add(placed.path, name, "another name", hint)
        if "type" in placed.value:
            _check_destination(placed.path, placed.value, faults)
    delivery: DeliverySettings = DELIVERY.build(given, folder)
    if delivery.alerts is AlertsFrom.GRAFANA and given.get("token", "") is None:
        hint = "anybody who reaches the port could forge alerts"
        faults.add("delivery.token", "missing", "a token, as alerts is grafana", hint)
    if delivery.metrics_listen == delivery.listen:
        faults.add("delivery.metrics_listen", delivery.listen, "another host:port than listen")
    return delivery


def _check_destination(path: str, table: Table, faults: Faults) -> None:
    """Record half a pair, two ways to log in, and what only TLS needs where there is none."""
    kind = table["type"]
    check_pair(path, table, "username", "password", faults)
    check_pair(path, table, "certificate_file", "key_file", faults)
    if kind == ElasticDestination.kind and table.get("api_key") is not None and table.get("username") is not None:
        faults.add(f"{path}.username", str(table["username"]), "either api_key or username")
    of_tls = next((key for key in ("ca_file", "certificate_file") if table.get(key) is not None), None)
    transport = table.get("transport")
    if of_tls and kind == SyslogDestination.kind and transport not in (None, SyslogTransport.TLS):
        faults.add(f"{path}.transport", str(transport), f"tls, as {of_tls} is given")
    if of_tls and kind == KafkaDestination.kind and not table.get("tls", True):
        faults.add(f"{path}.tls", "false", f"true, as {of_tls} is given")
