"""The one table of cluster.yaml: every key, its kind, its default, what it means.

``cluster.load`` validates by it and ``cluster.reference`` writes docs/configuration.md from it. Defaults are those of
``cluster.model``.
"""

import dataclasses

from cluster import names
from cluster.kinds import (
    REQUIRED,
    Choice,
    Flag,
    Key,
    ListOf,
    MapOf,
    Number,
    OneOf,
    OneOrMany,
    Placed,
    SecretPlace,
    Section,
    Text,
    Whole,
    one_of,
)
from cluster.model import (
    DELIVERED,
    MANAGEMENT_SERVICES,
    AlertsFrom,
    ApplicationFile,
    ApplicationFormat,
    Applications,
    BridgeSettings,
    CheckpointMode,
    CheckpointPlan,
    ClassFrom,
    CollectorSettings,
    Cost,
    DeliverySettings,
    DestinationKind,
    ElasticDestination,
    EventKind,
    EventSeverity,
    Exporter,
    ExportProtocol,
    FeedFormat,
    FileDestination,
    FileJobs,
    GrafanaSettings,
    Group,
    HttpJobs,
    IdentitySettings,
    InferenceHours,
    InferredJobs,
    Interface,
    JobClass,
    JobSourceKind,
    KafkaDestination,
    KafkaFormat,
    KafkaSettings,
    KubernetesJobs,
    ListSettings,
    NamesFile,
    NamesFormat,
    OffHours,
    Outcome,
    Plane,
    ReverseDns,
    Role,
    Sampling,
    SamplingMode,
    SaslMechanism,
    SignInFormat,
    SlurmJobs,
    SplunkDestination,
    StoreApi,
    StoreSettings,
    SyslogDestination,
    SyslogFormat,
    SyslogTransport,
    ThreatFeed,
    Thresholds,
    Transport,
    WebhookDestination,
    Workload,
)

SECRET = SecretPlace()
FLAG = Flag()
PORT = Whole(1, 65_535, "port")
PLANE = Choice(tuple(plane for plane in Plane if plane is not Plane.UNKNOWN))
MAIL_SEPARATOR = ";"
"""What Grafana puts between e-mail addresses."""
MOST_GROUPS = 200
"""What is stored grows with the square of the groups, and ingest numbers them in one byte."""
SEVERITIES = ("critical", "warning")
DAY = names.DAY
FLOW_FRAME_OVERHEAD = {ExportProtocol.NETFLOW: 0, ExportProtocol.SFLOW: 18}
"""Bytes a packet that are not IP: sFlow counts the Ethernet header and checksum, NetFlow and IPFIX count IP."""


def _default(owner: type, name: str) -> object:
    """Return the default of a field of one of the model's classes."""
    (found,) = (field for field in dataclasses.fields(owner) if field.name == name)
    return found.default


def _settings(owner: type, *keys: Key) -> tuple[Key, ...]:
    """Return the keys with the defaults that the model's class gives its fields of the same names."""
    return tuple(dataclasses.replace(key, default=_default(owner, key.name)) for key in keys)


def _sampling(text: str) -> Sampling:
    if text in {SamplingMode.AUTO.value, SamplingMode.RENORMALISED.value}:
        return Sampling(SamplingMode(text))
    rate = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= rate <= 16_777_216:
        raise ValueError(text)
    return Sampling(SamplingMode.FIXED, rate)


def _write_sampling(sampling: Sampling) -> object:
    return sampling.rate if sampling.mode is SamplingMode.FIXED else sampling.mode.value


SAMPLING = Text(
    "sampling",
    "auto, renormalised or a rate from 1 to 16,777,216 (1 packet in so many)",
    _sampling,
    _write_sampling,
)


def _severity(text: str) -> str:
    if text not in SEVERITIES:
        raise ValueError(text)
    return text


SEVERITY = Text("severity", one_of(SEVERITIES), _severity)

# A row a key: what a formatter makes of it would be four times as long.
# fmt: off
OFF_HOURS = Section(
    "off-hours",
    (
        Key("from", names.TIME_OF_DAY, "When off-hours begin, local time.", _default(OffHours, "start")),
        Key("to", names.TIME_OF_DAY, "When they end; earlier than `from` wraps around midnight.",
            _default(OffHours, "end")),
        Key("weekends", FLAG, "Whether all of Saturday and Sunday, local time, is off-hours too.",
            _default(OffHours, "weekends")),
    ),
)
SITE = Section(
    "site",
    (
        Key("time_zone", names.TIME_ZONE,
            "Where the cluster stands: off-hours and job times follow it, daylight saving too. The store keeps UTC.",
            absent="`UTC`", example="Europe/Amsterdam"),
        Key("off_hours", OFF_HOURS, "When nobody is expected to move data.", absent="23:00 to 06:00"),
    ),
)
GROUP = Section(
    "group",
    (
        Key("title", names.TITLE, "Its name on boards and in alerts.", absent="the id, in words"),
        Key("role", Choice(tuple(Role)),
            "What it is for; boards and rules choose groups by role. `approved_external` stands outside the cluster: "
            "traffic to it is egress, but approved.", REQUIRED),
        Key("prefixes", ListOf(names.PREFIX), "Its IPv4 and IPv6 networks. The longest match over all groups wins.", [],
            example='[10.20.0.0/16, "fd00:20::/48"]'),
        Key("sensitive", FLAG, "Whether its transfers to the outside are watched more closely: off-hours, volume.",
            _default(Group, "sensitive")),
        Key("nested_in", names.GROUP_ID,
            "The group that has a prefix around one of ours. Without it an overlap is an error.", absent="none",
            example="storage"),
        Key("plane", PLANE, "Plane of its traffic where neither interface nor node address tells.", absent="unknown"),
    ),
    "Addresses that belong together. Outside all groups is `external`; multicast, link-local and loopback are `local`.",
)
NODE_ADDRESS = Section(
    "address",
    (
        Key("address", names.ADDRESS_PATTERN, "The address; a range counts in lockstep with the node's name.", REQUIRED,
            example='"10.20.0.{1..16}"'),
        Key("plane", PLANE, "The network it is on.", absent="the group's plane"),
        Key("rail", Whole(0, 255), "Number of its rail.", absent="none"),
    ),
    short="address",
)
NODE = Section(
    "node",
    (
        Key("group", names.GROUP_ID, "The group it belongs to, whose prefixes must hold its addresses.", REQUIRED),
        Key("addresses", ListOf(NODE_ADDRESS, at_least=1),
            "All its addresses: rails, Multus interfaces, management. A bare address stands for `{address: ...}`.",
            REQUIRED, example='["10.30.0.{1..4}", {address: "10.20.0.{1..4}", plane: compute, rail: 0}]'),
        Key("gpus", Whole(0, 1_024), "GPUs in it.", absent="`cost.gpus_per_node` in training groups, else 0"),
        Key("speed", names.BIT_RATE, "What it can send, and receive, over all its links: a storage node's capacity.",
            absent="not known", example="200 Gbit/s"),
    ),
    'The inventory. `"gpu-{01..16}"` stands for gpu-01 to gpu-16; addresses count with it.',
)
INTERFACE = Section(
    "interface",
    (
        Key("name", names.NAME, "Its name.", REQUIRED, example="uplink-spine-1"),
        Key("plane", PLANE, "The network behind it: decides the plane of what enters there.", absent="not known"),
        Key("counts", FLAG, "False for links between switches: what enters there was counted at the edge.",
            _default(Interface, "counts")),
        Key("speed", names.BIT_RATE, "Its speed.", absent="not known", example="400 Gbit/s"),
    ),
)
NETFLOW_NAMES = dict.fromkeys(
    ("ipfix", "v5", "v9", "v10", "netflow5", "netflow9", "netflow10", "netflow-v5", "netflow-v9", "nf9"),
    "netflow stands for NetFlow v5, v9 and IPFIX",
)
"""What people write for a version of NetFlow -> what to tell them."""

EXPORTER = Section(
    "exporter",
    (
        Key("address", names.ADDRESS, "The source of its NetFlow or IPFIX packets; for sFlow its agent address.",
            REQUIRED, example="10.60.0.1"),
        Key("protocol", Choice(tuple(ExportProtocol), NETFLOW_NAMES), "`netflow` (v5, v9, IPFIX) or `sflow`.",
            _default(Exporter, "protocol")),
        Key("sampling", SAMPLING,
            "`auto`: multiply by the rate it announces. `renormalised`: its counters are scaled already. A number: it "
            "samples 1 packet in so many, whatever it announces.", Sampling(), example="1000"),
        Key("counts", FLAG, "False for a device that sees only what others counted already, such as a spine.",
            _default(Exporter, "counts")),
        Key("frame_overhead", Whole(0, 255, "bytes"), "Bytes a packet to subtract, so that only IP is counted.",
            absent="18 for sflow, 0 for netflow"),
        Key("interfaces", MapOf(Whole(0, 4_294_967_295, "ifIndex"), INTERFACE), "Its interfaces by SNMP ifIndex.", {}),
        Key("watched", FLAG, "False for a device that may fall silent without an alert: a lab switch, a canary.",
            _default(Exporter, "watched")),
    ),
    "The devices that export flows. NetFlow and IPFIX from unlisted addresses are dropped without a word, unless no "
    "exporter is listed at all. sFlow is taken from the sources in `collector.sflow_sources`; where it names none, "
    "from everyone, as are files of another pmacct. An unlisted exporter is shown under its address.",
)
ALLOWED = Section(
    "conversation",
    (
        Key("from", names.GROUP_REFERENCE, "The group that sends.", REQUIRED),
        Key("to", names.GROUP_REFERENCE, "The group that receives.", REQUIRED),
    ),
    'Who may send to whom; `"*"` is every group. Within a group everything is allowed; all else is a violation.',
)
BETWEEN = ListOf(names.GROUP_REFERENCE)
AUTHORITY = Section(
    "authority",
    (
        Key("between", BETWEEN, "Two groups, both directions.", absent="`from`, `to`", example="[training, storage]"),
        Key("from", names.GROUP_REFERENCE, "For one direction instead: the group that sends.", absent="`between`"),
        Key("to", names.GROUP_REFERENCE, "The group that receives.", absent="`between`"),
        Key("exporters", ListOf(names.NAME, at_least=1), "Only what these saw counts.", REQUIRED,
            example="[storage-1]"),
    ),
    "Where several exporters see the same flow: whose count is the truth for a pair. The first match wins.",
)
TRANSPORT = Section(
    "transport",
    (
        Key("between", BETWEEN, "Two groups, both directions.", REQUIRED, example="[training, training]"),
        Key("is", Choice(tuple(Transport)),
            "How they talk. RoCE and InfiniBand bypass flow export: boards and rules say so instead of showing zeros. "
            "`roce-sampled`: RoCEv2 that the switches' sFlow samples, which is judged like TCP.",
            REQUIRED),
    ),
    "How pairs talk; `tcp` where nothing is said.",
)
CAPACITY = Section(
    "pair limit",
    (
        Key("from", names.GROUP_REFERENCE, "The group that sends.", REQUIRED, example="training"),
        Key("to", names.GROUP_REFERENCE, "The group that receives.", REQUIRED, example="storage"),
        Key("limit", names.BIT_RATE, "What the links between them can carry in this direction.", REQUIRED,
            example="1.6 Tbit/s"),
    ),
    "What group pairs can carry, so that the capacity board knows when they are full. Interfaces and nodes have a "
    "`speed` of their own.",
)
INFERENCE_HOURS = Section(
    "hours",
    (
        Key("from", names.TIME_OF_DAY, "When clients begin to be expected, local time.", REQUIRED, example='"06:00"'),
        Key("to", names.TIME_OF_DAY, "When they end to be; earlier than `from` wraps around midnight.", REQUIRED,
            example='"22:00"'),
        Key("weekends", FLAG, "Whether clients are expected on Saturday and Sunday, local time, at these hours.",
            _default(InferenceHours, "weekends")),
    ),
)
ACCESS = Section(
    "access entry",
    (
        Key("from", ListOf(names.GROUP_REFERENCE), "Groups of the clients.", [],
            absent="all that may ask at all", example="[users]"),
        Key("users", ListOf(names.LINE), "Users, as `identity` names them, in clear or as pseudonyms.", [],
            absent="everybody, known or not", example="[alice, bob]"),
        Key("countries", ListOf(names.COUNTRY), "Countries of the clients' addresses, as `geography` tells them: "
            "addresses inside have none.", [], absent="all", example="[NL, DE]"),
        Key("to", ListOf(names.GROUP_REFERENCE), "Inference groups that they may ask.", [], absent="all",
            example="[inference]"),
        Key("services", ListOf(names.SERVICE_NAME), "Services that they may call.", [], absent="all",
            example="[https]"),
        Key("hours", INFERENCE_HOURS, "When they may, in place of `inference.hours`.", absent="`inference.hours`"),
    ),
    "Clients that may ask inference nodes: those whom every key of an entry names.",
)
INFERENCE = Section(
    "inference",
    (
        Key("hours", INFERENCE_HOURS, "When clients are expected; requests at other times are off-window.",
            absent="at any time"),
        Key("sources", ListOf(names.GROUP_REFERENCE), "Groups whose clients may reach inference nodes, out of those "
            "that `allowed` lists.", [], absent="all that `allowed` lists", example="[users]"),
        Key("access", ListOf(ACCESS), "Who of these in particular, by user, country, service and hour.", [],
            absent="all of them", example="[{from: [users], users: [alice, bob]}]"),
    ),
    "What is expected of the clients of inference nodes.",
)
SIGN_IN_COLUMNS = Section(
    "columns",
    (
        Key("address", names.LINE, "The address.", REQUIRED, example="client_ip"),
        Key("user", names.LINE, "The user.", REQUIRED, example="login"),
        Key("time", names.LINE, "When: ISO 8601, or seconds or milliseconds since 1970.", REQUIRED, example="at"),
        Key("event", names.LINE, "What happened, for `starts` and `stops`.", absent="none: every line is a sign-in"),
    ),
)
SIGN_IN_SOURCE = Section(
    "source of sign-ins",
    (
        Key("format", Choice(tuple(SignInFormat)), "What it is (docs/identity.md has a sample of each).", REQUIRED),
        Key("path", names.PATH, "The file, beside this one; it may grow, be rotated or be replaced. With `*` in its "
            "name: all files that match.", REQUIRED, example="/var/log/radius/detail-*"),
        Key("name", names.NAME, "Its name in logs.", absent="its format"),
        Key("hold", names.seconds(60, 30 * DAY), "How long a sign holds without another one.",
            absent="`identity.hold`"),
        Key("time_zone", names.TIME_ZONE, "Time zone of times without an offset.", absent="the site's"),
        Key("columns", SIGN_IN_COLUMNS, "Formats `csv` and `json`: where they keep what. In JSON, `a.b` is b within a.",
            absent="needed there, nowhere else", example="{address: client_ip, user: login, time: at}"),
        Key("starts", ListOf(names.LINE), "Values of `event` that are sign-ins.", [], absent="all but `stops`",
            example="[login]"),
        Key("stops", ListOf(names.LINE), "Values of `event` that are sign-outs.", [], example="[logout]"),
    ),
)
IDENTITY = Section(
    "identity",
    (
        Key("sources", ListOf(SIGN_IN_SOURCE), "Exports of sign-ins.", []),
        Key("hold", names.seconds(60, 30 * DAY), "How long a sign of a user at an address holds without another one.",
            _default(IdentitySettings, "hold")),
        Key("delay", names.seconds(0, DAY), "How long after an event its line may come: clients are judged, and "
            "told, so much later. Give it what exports of your sign-ins ordinarily take.",
            _default(IdentitySettings, "delay")),
        Key("domains", ListOf(names.LINE), "Domains that are left out of users' names, so that all sources name a "
            "person alike.", [], example="[EXAMPLE, example.org]"),
        Key("shared", ListOf(names.PREFIX), "Addresses that many users have at the same time, such as a NAT's or a "
            "terminal server's: they are nobody's.", [], example="[203.0.113.8/32]"),
        Key("pseudonymise", SECRET, "Key, of 16 bytes or more, of the pseudonyms that leave in place of users' names.",
            absent="names leave in clear", example="{file: /run/secrets/pseudonyms}"),
    ),
    "Who has which address when, from exports of sign-ins (docs/identity.md).",
)
MANAGEMENT = Section(
    "management",
    (
        Key("services", ListOf(names.SERVICE_NAME),
            "Services that other groups may open on management nodes, and that management may open outside. Everything "
            "else there is unexpected, whatever `allowed` says; what management opens inside is always expected.",
            absent=one_of(f"`{name}`" for name in MANAGEMENT_SERVICES), example="[dns, ntp, syslog]"),
        Key("sources", ListOf(names.GROUP_REFERENCE),
            "Groups that may open anything on management nodes: the administrators' networks.", [],
            example="[admins]"),
    ),
    "What is expected at groups of role management.",
)
SERVICE = Section(
    "service",
    (
        Key("ports", ListOf(names.PORTS, at_least=1), "The ports its servers listen on.", REQUIRED,
            example="[3300, 6800-7300]"),
        Key("protocols", ListOf(names.PROTOCOL, at_least=1), "Their protocols.", absent="`[tcp, udp]`"),
    ),
    "Names for ports, on top of the well-known ones. A port named here leaves the built-in service that had it. Where "
    "protocols differ by port, give a list of such entries.",
)
JOB = Section(
    "job",
    (
        Key("id", names.JOB_ID, "Its id. The same id again is another run, which may not overlap.", REQUIRED),
        Key("class", names.JOB_ID, "What earlier runs of the same kind are found by.", absent="the id"),
        Key("nodes", ListOf(names.NODES, at_least=1), "Its nodes.", REQUIRED,
            example='["gpu-{01..08}", "infer-*"]'),
        Key("start", names.INSTANT, "When it began, in the site's time zone unless an offset is given.", REQUIRED,
            example="2026-03-01 08:00"),
        Key("end", names.INSTANT, "When it ended, or will.", absent="it still runs"),
        Key("outcome", Choice(tuple(Outcome)),
            "How it ended. A run that failed or was cancelled teaches no baseline.", absent="`unknown`"),
    ),
    "Job windows: dropout is judged within them only. A running analysis reads them again when this file changes.",
)
CHECKPOINT = Section(
    "checkpoint",
    (
        Key("mode", Choice(tuple(CheckpointMode)),
            "`scheduled`: `every` says when one is due. `learn`: the period that earlier ones had does, if they had "
            "one. `irregular`: they come when they come; only size, length and nodes are judged.",
            absent="`scheduled` where `every` is given, else `learn`"),
        Key("every", names.seconds(30, 30 * DAY), "From the begin of one to the begin of the next.", absent="learnt",
            example="30m"),
        Key("tolerance", names.seconds(0, DAY), "How much later than that one may begin. Less than half of `every`.",
            absent="`5m`, at most a quarter of `every`"),
        Key("longest", names.seconds(10, 7 * DAY), "How long writing one may take.", absent="twice what is usual",
            example="10m"),
        Key("bytes", names.SIZE, "What all nodes together write.", absent="what is usual", example="1.2 TB"),
        Key("bytes_per_parameter", Number(0.01, 1_000),
            "The same for each parameter of the model, instead of `bytes`. Mixed precision with Adam keeps 14: "
            "weights of 2 bytes, and 12 for their copy in full precision and two moments.", absent="`bytes`",
            example="14"),
        Key("nodes", names.WRITERS, "How many nodes of the job write.", absent="as many as is usual"),
        Key("short", Number(0.01, 1), "Share of the expected bytes below which one is short.",
            _default(CheckpointPlan, "short")),
    ),
)
JOB_CLASS = Section(
    "job class",
    (
        Key("parameters", names.PARAMETERS, "Parameters of the model that is trained.", absent="not known",
            example="70B"),
        Key("gradient_bytes_per_parameter", Number(0.01, 100),
            "Bytes that a parameter's gradient has on the network: 2 in half precision.",
            _default(JobClass, "gradient_bytes_per_parameter")),
        Key("checkpoint", CHECKPOINT, "How its jobs write checkpoints.", absent="learnt"),
    ),
    "What is known of every job of a class. A class that is not listed is learnt from its earlier checkpoints.",
)
WINDOW_LENGTH = names.seconds(10, 7 * DAY)
THRESHOLDS = Section(
    "thresholds",
    _settings(
        Thresholds,
        Key("exfil_volume", names.SIZE,
            "Bulk exfiltration: bytes that model storage may send to anything not approved within `exfil_window`."),
        Key("exfil_window", WINDOW_LENGTH, "The window of `exfil_volume`."),
        Key("first_contact_bytes", names.SIZE_OR_ZERO,
            "First contact: least bytes of a first-ever external connection that alert; 0 alerts for each."),
        Key("threat_bytes", names.SIZE_OR_ZERO,
            "Known bad: bytes that a conversation with an address on a threat feed may have, in one direction, within "
            "`threat_window`; refused attempts to connect stay below it. 0 alerts for each."),
        Key("threat_window", WINDOW_LENGTH, "The window of `threat_bytes`."),
        Key("threat_look_back", names.seconds(0, 2 * 365 * DAY),
            "Late matches: how far back stored traffic is searched when a feed lists something new, as far as minutes "
            "are kept. 0: not at all."),
        Key("contact_learning", names.seconds(0, 365 * DAY),
            "First contact and new network: history it takes before any contact, or any network, is called new."),
        Key("new_network_bytes", names.SIZE_OR_ZERO,
            "New network: bytes that a group may send to a network (autonomous system) within `new_network_window` "
            "before it counts as one that it sends to; the first time that it sends more is told. 0 tells of any."),
        Key("new_network_window", WINDOW_LENGTH, "The window of `new_network_bytes`."),
        Key("off_hours_bytes", names.SIZE,
            "Off-hours transfer: bytes that a sensitive group may send outside in `off_hours_window`, off-hours."),
        Key("off_hours_window", WINDOW_LENGTH, "The window of `off_hours_bytes`."),
        Key("low_and_slow_24h", names.SIZE,
            "Low and slow: bytes that a source may send to one outside destination, approved or not, within 24 hours, "
            "bursts that `exfil_volume` told of aside."),
        Key("low_and_slow_7d", names.SIZE, "The same within 7 days."),
        Key("recurrence_days", Whole(2, 30),
            "Recurring dependency: days of the last 30 on which an unlisted destination may be called."),
        Key("recurrence_hours", Whole(2, 168), "Hours of the last 7 days in which it may be called."),
        Key("violation_window", WINDOW_LENGTH,
            "The window of `violation_bytes`, `violation_flows`, `shadow_node_bytes`, `storage_on_compute_bytes` and "
            "`management_bytes`."),
        Key("violation_bytes", names.SIZE,
            "Segmentation: bytes that a conversation which `allowed` does not list may have; stray packets stay below "
            "it."),
        Key("violation_flows", Whole(1, 1_000_000_000),
            "Flow records that it may have, whatever their bytes: a scan has many. Holds for shadow nodes too."),
        Key("shadow_node_bytes", names.SIZE,
            "Shadow node: bytes that an address in a group's prefix may send that no inventory knows."),
        Key("storage_on_compute_bytes", names.SIZE,
            "Storage on the compute plane: bytes that a node may exchange with storage over the compute plane."),
        Key("management_bytes", names.SIZE,
            "Unexpected management connection: bytes that it may have; refused attempts to connect stay below it."),
        Key("dropout_spreads", Number(1, 100),
            "Node dropout: how many spreads below its own past a node's share may fall. Lower finds more, also more "
            "that is nothing."),
        Key("dropout_min_runs", Whole(1, 1_000),
            "Earlier runs of the job's class that must exist before a node is judged; with fewer it is learning."),
        Key("dropout_max_runs", Whole(1, 1_000), "Earlier runs that the baseline uses, newest first."),
        Key("dropout_for", names.seconds(0, DAY), "How long a node must stay low before it alerts."),
        Key("dropout_digest", Whole(1, 1_000_000),
            "Nodes of one job that may be low or down at once and still alert each for itself; more are one alert."),
        Key("slowdown_spreads", Number(1, 100),
            "Cohort slowdown: how many spreads below earlier runs of its class the rate of a whole cohort may fall."),
        Key("slowdown_for", names.seconds(0, DAY), "How long a cohort must stay slow before it alerts."),
        Key("stalled_for", names.seconds(0, DAY),
            "How long a job must be without training traffic before it alerts. Pauses as earlier runs had them, "
            "checkpoints and loading of data are no stalls."),
        Key("analysis_silent", names.seconds(10, DAY), "Silence of the analysis that alerts."),
        Key("incast_sources", Whole(2, 100_000),
            "Incast: how many nodes must write at once to one storage endpoint, or to a few, while its peers idle."),
        Key("incast_share", Number(0.1, 1),
            "Of the bytes that usually go to the other endpoints, the share that must go to these instead. A "
            "checkpoint that all endpoints take in as usual has none, however large it is."),
        Key("incast_bytes", names.SIZE, "Bytes that such a burst must have brought within ten minutes."),
        Key("incast_for", names.seconds(0, 600), "How long it must last before it alerts."),
        Key("checkpoint_overdue", names.seconds(0, DAY),
            "Checkpoint missed: how far beyond the time it was due, tolerance included, none may have begun."),
        Key("checkpoint_regularity", Number(0.5, 1),
            "Share of a job's last gaps between checkpoints that must be near their median, or a multiple of it, "
            "before lateness is judged by it, where `job_classes` declares no schedule."),
        Key("exporter_silent", names.seconds(10, DAY),
            "Silence of an exporter that alerts. Its nodes are then blind, not down."),
        Key("relay_silent", names.seconds(60, DAY // 2),
            "Silence of a relay that alerts. For up to a minute after one dies, brokers may hold others back."),
        Key("ingest_silent", names.seconds(10, DAY), "Silence of the whole pipeline that alerts."),
        Key("inference_window", WINDOW_LENGTH,
            "The window of `inference_unauthorised_bytes`, `inference_access_bytes`, `unusual_country_bytes` and "
            "`inference_off_window_bytes`."),
        Key("inference_unauthorised_bytes", names.SIZE_OR_ZERO,
            "Unauthorised client: bytes that a client may send to an inference node it may not reach; refused attempts "
            "to connect stay below it. 0 alerts for each."),
        Key("inference_access_bytes", names.SIZE_OR_ZERO,
            "Client that `inference.access` does not list: bytes that it may send to an inference node."),
        Key("unusual_country_bytes", names.SIZE_OR_ZERO,
            "Unusual country: bytes that a client may send to a service of inference from a country that it has not "
            "seen before. Who sends no more within five minutes does not make a country a known one either."),
        Key("country_learning", names.seconds(0, 365 * DAY),
            "Unusual country: history of a service that it takes before any country is called new to it."),
        Key("inference_off_window_bytes", names.SIZE_OR_ZERO,
            "Off-window client: bytes that a client may send to an inference node outside `inference.hours`; health "
            "checks stay below it."),
        Key("inference_min_weeks", Whole(1, 6),
            "Earlier weeks that must be known before the load of inference is judged; with fewer it is learning."),
        Key("inference_spike_spreads", Number(1, 100),
            "Inference spike: how many spreads above the same hours of earlier weeks the load may rise."),
        Key("inference_spike_bytes", names.SIZE_OR_ZERO,
            "Bytes in five minutes by which the load must at least exceed what is expected."),
        Key("inference_spike_for", names.seconds(0, 1_800), "How long a spike must last before it alerts."),
        Key("flow_loss", Number(0.0001, 1),
            "Flow loss: share of an exporter's records that may be missing or empty within `flow_loss_window`. Up to "
            "30 missing ones, a datagram, are chance."),
        Key("flow_loss_window", WINDOW_LENGTH, "The window of `flow_loss`."),
        Key("flow_loss_records", Whole(1, 1_000_000_000),
            "Records of an exporter in that window below which its share says nothing."),
        Key("ingest_lag", names.seconds(10, DAY), "How far the newest flow may lie behind the clock."),
        Key("ingest_lag_for", names.seconds(0, DAY), "How long it must lie so far behind before it alerts."),
        Key("list_stale_for", names.seconds(0, DAY),
            "How long a list must be broken, or older than `enrichment.stale_after`, before it alerts."),
    ),
    "Every number that an alert compares with.",
)
COST = Section(
    "cost",
    _settings(
        Cost,
        Key("gpus_per_node", Whole(1, 1_024), "GPUs of a training node that does not say."),
        Key("usd_per_gpu_hour", Number(0, 100_000), "What an idle GPU costs an hour, in USD."),
    ),
    "What alerts and boards multiply idle GPUs with.",
)
KEEP = names.seconds(3_600, 100 * 365 * DAY)
RETENTION = Section(
    "retention",
    (
        Key("raw", KEEP, "Base windows, of 10 s.", _default(StoreSettings, "keep_raw")),
        Key("1m", KEEP, "Minutes.", _default(StoreSettings, "keep_1m")),
        Key("1h", KEEP, "Hours.", _default(StoreSettings, "keep_1h")),
    ),
)
STORE = Section(
    "store",
    (
        *_settings(
            StoreSettings,
            Key("url", names.URL, "InfluxDB's address."),
            Key("api", Choice(tuple(StoreApi)), "The write API; `auto` asks the server for its version."),
            Key("database", names.DATABASE, "The database; on the v2 API the first half of each bucket's name."),
            Key("org", names.LINE, "Organisation (v2 API)."),
            Key("token", SECRET, "Token (v2 API).", absent="none", example="{env: INFLUX_TOKEN}"),
            Key("username", names.LINE, "User (v1 API).", absent="none"),
            Key("password", SECRET, "Its password (v1 API).", absent="none", example="{file: /run/secrets/influx}"),
            Key("verify_tls", FLAG, "Whether the server's certificate is checked."),
            Key("ca_file", names.PATH, "Certificates (PEM) of the authorities that it is checked against.",
                absent="the system's", example="/etc/clusterflow/ca.pem"),
        ),
        Key("retention", RETENTION, "How long points are kept."),
    ),
    "InfluxDB: where, which API, with what rights.",
)
COLLECTOR = Section(
    "collector",
    _settings(
        CollectorSettings,
        Key("listen", names.ADDRESS, "The address that exporters send to."),
        Key("netflow_port", PORT, "UDP port of NetFlow and IPFIX."),
        Key("sflow_port", PORT, "UDP port of sFlow."),
        Key("spool", names.PATH, "The folder where pmacct leaves records for the bridge."),
        Key("refresh", Whole(1, 60, "seconds"), "How often pmacct prints, in seconds."),
        Key("rotate", Whole(1, 3_600, "seconds"), "Age at which a spool file is closed, in seconds."),
        Key("sflow_sources", ListOf(names.SOURCE), "The UDP sources from which sFlow is taken: not the agents' "
            "addresses, which datagrams say of themselves. All others are dropped without a word.", absent="everybody",
            example="[10.60.0.0/24, 10.60.9.17]"),
        Key("keep_templates", FLAG, "Whether nfacctd keeps the templates of NetFlow v9 and IPFIX in a file, so that "
            "they outlive its restart; otherwise records are lost then until each exporter has sent its templates "
            "again. It writes the whole file at each template that comes: 13 µs for each exporter that it knows.",
            absent="`true` with up to 100 exporters", example="false"),
    ),
    "How nfacctd and sfacctd run.",
)
BRIDGE = Section(
    "bridge",
    _settings(
        BridgeSettings,
        Key("window", names.seconds(1, 60), "Length of a base window; it divides a minute."),
        Key("lateness", names.seconds(0, 600), "How far the watermark stays behind the newest record."),
        Key("grace", names.seconds(10, DAY), "How long a closed window can still be rewritten."),
        Key("past_skew", names.seconds(10, DAY), "A record older than this at arrival gets its arrival time."),
        Key("future_skew", names.seconds(1, DAY), "A record further in the future than this gets its arrival time."),
        Key("named_per_window", Whole(1, 100_000),
            "Conversations a source group may name in one window; the rest is `other`."),
        Key("series_budget", Whole(1, 10_000_000),
            "Named egress series kept alive in all; beyond it new ones are `other`."),
        Key("flush", names.fractions(0.1, 60),
            "Time between writes while records stream in; up to twice that where writing takes long."),
        Key("shard", names.SHARD, "One a bridge, so that partial totals add up."),
        Key("metrics_listen", names.LISTEN_OR_OFF, "Where /metrics and /healthz answer, or `off`."),
        Key("metrics_token", SECRET, "What /metrics asks for, as `Authorization: Bearer`.", absent="nothing",
            example="{file: /run/secrets/metrics_token}"),
        Key("state", names.PATH, "The folder of the checkpoint."),
    ),
    "How flow records become windows.",
)
KAFKA = Section(
    "kafka",
    _settings(
        KafkaSettings,
        Key("brokers", ListOf(names.BROKER), "Brokers to ask first; they name the others.", absent="none: not used",
            example="[kafka-1.example.org:9093, kafka-2.example.org:9093]"),
        Key("topic", names.TOPIC, "The topic of flow records. What relays must not forget is in another one, with "
            "`-relays` behind this name."),
        Key("format", Choice(tuple(KafkaFormat)), "What it carries: messages of `clusterflow relay`, or JSON of "
            "pmacct's own Kafka plugin."),
        Key("group", names.CONSUMER_GROUP, "Consumer group of the workers: they share the partitions among them."),
        Key("state_topic", names.TOPIC, "The compacted topic in which workers keep what they must not forget."),
        Key("partitions", Whole(1, 10_000), "Partitions of the topics that are made: as many workers can share the "
            "work. Existing topics keep theirs."),
        Key("replication", Whole(1, 100), "Copies of the topics that are made.", absent="3, or as many as there are "
            "brokers"),
        Key("session_timeout", names.seconds(6, 1800), "Time without a sign of life after which a worker's partitions "
            "go to others. Brokers have limits of their own for it."),
        Key("tls", FLAG, "Whether connections are encrypted."),
        Key("ca_file", names.PATH, "Certificates to trust, PEM.", absent="those of the system"),
        Key("certificate_file", names.PATH, "Our own certificate, PEM, where brokers ask for one.", absent="none"),
        Key("key_file", names.PATH, "Its private key, PEM.", absent="none"),
        Key("verify_tls", FLAG, "Whether the brokers' certificates and names are checked."),
        Key("username", names.LINE, "User, where brokers ask for one (SASL).", absent="none"),
        Key("password", SECRET, "Its password.", absent="none", example="{file: /run/secrets/kafka}"),
        Key("mechanism", Choice(tuple(SaslMechanism)), "How the password is proven. PLAIN shows it to the brokers."),
    ),
    "Kafka between collectors and workers, for more flows than one bridge can take (docs/scale-out.md).",
)
NAMES_FILE = Section(
    "file with names",
    (
        Key("file", names.PATH, "The file; it is read again when it changes.", REQUIRED, example="exports/hosts.csv"),
        Key("format", Choice(tuple(NamesFormat)),
            "`hosts`: as /etc/hosts; `csv`, `json`: an export, such as NetBox's of IP addresses.",
            absent="by the file's name: `.csv`, `.json`, else `hosts`"),
        Key("address_column", names.LINE, "Column or key with the address; a prefix length behind it is passed over.",
            _default(NamesFile, "address_column")),
        Key("name_column", names.LINE, "Column or key with the name.", _default(NamesFile, "name_column"),
            example="hostname"),
    ),
    "A file that names addresses; a file alone stands for its `file`.",
    short="file",
)
REVERSE_DNS = Section(
    "reverse DNS",
    (
        Key("resolvers", ListOf(names.ADDRESS, at_least=1), "The name servers to ask; no others are.", REQUIRED,
            example="[10.60.0.53]"),
        *_settings(
            ReverseDns,
            Key("port", PORT, "Their UDP port."),
            Key("timeout", names.fractions(0.1, 10), "How long an answer may take."),
            Key("confirm", FLAG, "Whether a name is looked up again, to see whether it leads back to the address."),
            Key("rate", Whole(1, 10_000), "Questions a second at most."),
        ),
    ),
    "Names by PTR records. Whoever owns an address writes its name: it proves nothing. The name servers, and those of "
    "the addresses, learn which addresses the cluster talks to.",
)
NAMES = Section(
    "names",
    (
        Key("files", MapOf(names.NAME, NAMES_FILE), "Files that name addresses; the first that knows one counts.", {},
            example="{hosts: /etc/hosts}"),
        Key("reverse_dns", REVERSE_DNS, "Name servers to ask where no file knows a name.", absent="nobody is asked"),
    ),
    "Names of outside addresses (docs/enrichment.md).",
)
APPLICATION_FILE = Section(
    "file with applications",
    (
        Key("file", names.PATH, "The file; it is read again when it changes.", REQUIRED, example="lists/aws.json"),
        Key("format", Choice(tuple(ApplicationFormat)),
            "`list`: YAML as docs/enrichment.md shows it; `prefixes`: one a line; `aws` (ip-ranges.json), `google` "
            "(cloud.json, goog.json), `azure` (ServiceTags), `fastly` (public-ip-list): as they publish them.",
            _default(ApplicationFile, "format")),
        Key("application", names.TITLE, "What addresses in it are; a `list` says that itself.",
            absent="what the format is of", example="model hub"),
    ),
    "A file that says what outside addresses are; a file alone stands for its `file`.",
    short="file",
)
APPLICATIONS = Section(
    "applications",
    (
        Key("builtin", FLAG, "Whether the list that comes with clusterflow is used, behind all files: model hubs, "
            "package indexes, container registries, by names.", _default(Applications, "builtin")),
        Key("files", MapOf(names.NAME, APPLICATION_FILE), "Files; the first that knows an address counts.", {}),
    ),
    "What outside addresses are: model hub, package index, cloud (docs/enrichment.md).",
)
AGE_LIMIT = names.seconds(60, 20 * 365 * DAY)
ENRICHMENT = Section(
    "enrichment",
    (
        Key("stale_after", AGE_LIMIT,
            "Age at which a list is stale: `clusterflow status` shows it, and the rule `enrichment_stale` alerts. "
            "Files in the format of /etc/hosts are never stale, unless `lists` names them.",
            _default(ListSettings, "stale_after")),
        Key("lists", MapOf(names.NAME, AGE_LIMIT), "Limits of single lists, by the names that their sections give.", {},
            example="{blocklist: 2d, city: 60d}"),
    ),
    "Files that say something about addresses (docs/enrichment.md): when they are too old.",
)
FEED_COLUMNS = Section(
    "columns",
    (
        Key("address", names.LINE, "Column with the address or prefix.", REQUIRED, example="ip"),
        Key("confidence", names.LINE, "Column with a number from 0 to 100.", absent="`confidence` of the feed",
            example="score"),
        Key("valid_from", names.LINE, "Column with the time from which an entry holds.", absent="it always has",
            example="first_seen"),
        Key("valid_until", names.LINE, "Column with the time from which it holds no more.", absent="it does not end",
            example="expires"),
    ),
    "Columns of a CSV feed, by its header. The header may be a comment; commas, semicolons, tabs or | part the cells.",
)
THREAT_FEED = Section(
    "threat feed",
    (
        Key("file", names.PATH, "The file; it is read again when it changes.", REQUIRED, example="feeds/botnets.txt"),
        Key("format", Choice(tuple(FeedFormat)),
            "`list`: an address or prefix a line; `csv`; `stix`: a STIX 2.1 bundle, JSON; `misp`: an export of events "
            "or attributes, JSON.", _default(ThreatFeed, "format")),
        Key("columns", FEED_COLUMNS, "Where a CSV file has what.", absent="none; `csv` needs them"),
        Key("confidence", Whole(0, 100), "Confidence in entries that tell none themselves.",
            _default(ThreatFeed, "confidence")),
        Key("least_confidence", Whole(0, 100), "Entries below it are left out.",
            _default(ThreatFeed, "least_confidence")),
    ),
    "A list of addresses that are known to be bad (docs/threats.md); a file alone stands for its `file`.",
    short="file",
)
GEOGRAPHY = Section(
    "geography",
    (
        Key("files", MapOf(names.NAME, names.PATH),
            "MMDB files, beside this one: GeoLite2 City, Country and ASN, DB-IP, IPinfo. They are asked in this order, "
            "and of each thing the first counts that knows it.", {},
            example="{city: GeoLite2-City.mmdb, asn: GeoLite2-ASN.mmdb}"),
    ),
    "Files that know country, city and network of outside addresses (docs/enrichment.md).",
)
GRAFANA = Section(
    "grafana",
    _settings(
        GrafanaSettings,
        Key("url", names.URL, "Grafana's address, for links in alerts and the playlist command."),
        Key("runbook_url", names.URL, "Where docs/runbook.md is published, for links in alerts."),
        Key("datasource_uid", names.UID, "Uid of the InfluxDB data source."),
        Key("token", SECRET, "Token that Grafana reads InfluxDB with (v2 API).", absent="that of `store`",
            example="{file: /run/secrets/grafana_influx}"),
        Key("username", names.LINE, "User that Grafana reads InfluxDB with (v1 API).", absent="that of `store`"),
        Key("password", SECRET, "Its password.", absent="that of `store`",
            example="{file: /run/secrets/grafana_influx}"),
    ),
    "What links need.",
)
# fmt: on


@dataclasses.dataclass(frozen=True, slots=True)
class Channel:
    """One type of notification target.

    Attributes:
        grafana: its keys -> Grafana's names for them.
        needs: sets of keys of which at least one must be there in full; none means that any will do.
    """

    section: Section
    grafana: dict[str, str]
    needs: tuple[tuple[str, ...], ...] = ()


_SEVERITIES = Key("severities", ListOf(SEVERITY), "Which alerts it gets.", [], absent="all", example="[critical]")


def _channel(label: str, *keys: tuple[Key, str], needs: tuple[tuple[str, ...], ...] = ()) -> Channel:
    section = Section(label, (*(key for key, _ in keys), _SEVERITIES))
    return Channel(section, {key.name: grafana for key, grafana in keys}, needs)


CHANNELS = {
    "webhook": _channel(
        "webhook",
        (Key("url", SECRET, "Where to POST.", REQUIRED, example="{env: NOC_WEBHOOK}"), "url"),
        (Key("username", names.LINE, "User of HTTP basic authentication."), "username"),
        (Key("password", SECRET, "Its password."), "password"),
    ),
    "email": _channel(
        "e-mail",
        (Key("addresses", ListOf(names.MAIL_ADDRESS, at_least=1), "Who gets it.", REQUIRED,
             example="[noc@example.org]"), "addresses"),
    ),
    "slack": _channel(
        "Slack",
        (Key("url", SECRET, "Incoming webhook; or `token` and `channel`."), "url"),
        (Key("token", SECRET, "Bot token."), "token"),
        (Key("channel", names.LINE, "Channel, with `token`.", example='"#noc"'), "recipient"),
        needs=(("url",), ("token", "channel")),
    ),
    "pagerduty": _channel(
        "PagerDuty",
        (Key("integration_key", SECRET, "Events API v2 integration key.", REQUIRED), "integrationKey"),
    ),
    "teams": _channel(
        "Microsoft Teams",
        (Key("url", SECRET, "Workflow webhook.", REQUIRED), "url"),
    ),
    "opsgenie": _channel(
        "Opsgenie",
        (Key("api_key", SECRET, "API key.", REQUIRED), "apiKey"),
        (Key("api_url", names.URL, "Another region's alert API.", example="https://api.eu.opsgenie.com/v2/alerts"),
         "apiUrl"),
    ),
    "telegram": _channel(
        "Telegram",
        (Key("bot_token", SECRET, "Bot token.", REQUIRED), "bottoken"),
        (Key("chat_id", names.LINE, "Chat.", REQUIRED, example='"-1001234567890"'), "chatid"),
    ),
}  # fmt: skip
"""Notification targets by type."""

# fmt: off
_EVERY = Key("every", names.seconds(5, 3_600), "Time between two questions.")
_TIMEOUT = Key("timeout", names.seconds(1, 600), "How long an answer may take.")


def _job_source(owner: type, *keys: Key) -> Section:
    """Return the section of one type of job source; its name is the type's where it gives none."""
    flat = {item.name: item.default for item in dataclasses.fields(owner)}
    named = Key("name", names.NAME, "Its name on boards and in `clusterflow status`.", absent="its type")
    listed = [
        dataclasses.replace(key, default=_written_default(key, flat[key.name])) if key.default is None else key
        for key in keys
    ]
    return Section("job source", (named, *listed))


def _written_default(key: Key, default: object) -> object:
    """Return a default of the model's as the section's kind reads it: lists keep a path for each item."""
    if isinstance(key.kind, ListOf) and isinstance(default, tuple):
        return [Placed("", item) for item in default]
    return default


JOB_SOURCE_SECTIONS = {
    JobSourceKind.FILE: _job_source(
        FileJobs,
        Key("path", names.PATH, "A `.json` or `.csv` file, beside this file. It is read again when it changes.",
            REQUIRED, example="jobs.json"),
    ),
    JobSourceKind.HTTP: _job_source(
        HttpJobs,
        Key("token", SECRET, "What every request must bear.", REQUIRED, example="{env: CLUSTERFLOW_JOBS_TOKEN}"),
        Key("listen", names.LISTEN, "Where `clusterflow analyze` takes requests: POST /jobs/start, POST /jobs/stop, "
            "GET /jobs."),
        Key("longest", names.seconds(60, 365 * DAY), "A job that nobody stopped is over after so long."),
    ),
    JobSourceKind.SLURM: _job_source(
        SlurmJobs,
        Key("sacct", names.COMMAND_OR_OFF, "How to run sacct, which knows how jobs ended.",
            example="/opt/slurm/bin/sacct"),
        Key("squeue", names.COMMAND_OR_OFF, "How to run squeue, which knows what runs."),
        Key("files", ListOf(names.PATH), "Files with what `sacct --json` or `squeue --json` printed, to read in place "
            "of running them.", example="[sacct.json]"),
        _EVERY,
        _TIMEOUT,
        Key("partitions", ListOf(names.LINE), "Only jobs of these partitions.", absent="all", example="[gpu]"),
        Key("class_from", Choice(tuple(ClassFrom)), "Which word of a Slurm job is its class."),
        Key("time_limit_is", Choice(tuple(Outcome)),
            "Outcome of a job that its time limit ended. Where runs are chained by their limit, `completed` lets them "
            "teach baselines."),
    ),
    JobSourceKind.KUBERNETES: _job_source(
        KubernetesJobs,
        Key("namespaces", ListOf(names.NAMESPACE), "Only jobs of these namespaces.", absent="all",
            example="[training]"),
        Key("workloads", ListOf(Choice(tuple(Workload)), at_least=1), "Which objects are jobs: `batch/v1` Jobs, "
            "Kubeflow's PyTorchJobs.", absent="both"),
        Key("selector", names.LINE, "Label selector: only jobs that it matches.", absent="all",
            example='"team=llm"'),
        Key("class_label", names.LABEL, "Label of a job whose value is its class. Without that label it is the owner "
            "(a CronJob), else the job's name."),
        Key("kubeconfig", names.PATH, "File that says where the API server is.",
            absent="the pod's service account, else `~/.kube/config`"),
        Key("context", names.LINE, "Context of that file.", absent="its current one"),
        _EVERY,
        _TIMEOUT,
    ),
    JobSourceKind.INFERRED: _job_source(
        InferredJobs,
        Key("least_nodes", Whole(2, 100_000), "Nodes that a cohort needs to be a job."),
        Key("least_rate", names.BIT_RATE, "What a node must send to other training nodes to count as active."),
        Key("confirm", names.MINUTES_OF_ACTIVITY,
            "A cohort is a job when it has been active for so long; there the job starts."),
        Key("idle", names.MINUTES_OF_SILENCE, "A job is over when its cohort has been silent for so long."),
    ),
}
"""Job sources by type."""

JOB_SOURCE = OneOf(
    "type", {kind.value: section for kind, section in JOB_SOURCE_SECTIONS.items()}, "job source",
)
# fmt: on

# fmt: off
_CA_FILE = Key("ca_file", names.PATH, "Certificates (PEM) of the authorities that its certificate is checked against.",
               absent="the system's", example="/etc/clusterflow/soc-ca.pem")
_VERIFY = Key("verify_tls", FLAG, "Whether its certificate and name are checked.")
_CERTIFICATE = Key("certificate_file", names.PATH, "Our own certificate, PEM, where it asks for one.", absent="none")
_CERTIFICATE_KEY = Key("key_file", names.PATH, "Its private key, PEM.", absent="none")


def _destination(owner: type, *keys: Key) -> Section:
    """Return the section of one type of destination."""
    flat = {item.name: item.default for item in dataclasses.fields(owner)}
    kinds = Key("events", ListOf(Choice(tuple(EventKind)), at_least=1), "Which events it gets.",
                [Placed("", kind) for kind in DELIVERED])
    severities = Key("severities", ListOf(Choice(tuple(EventSeverity))), "Which severities.", [], absent="all",
                     example="[critical, warning]")
    rate = Key("rate", Whole(1, 1_000_000), "Events a second that it gets at most.", flat["rate"])
    listed = [
        key if key.default is REQUIRED else dataclasses.replace(key, default=_written_default(key, flat[key.name]))
        for key in keys
    ]
    return Section("destination", (*listed, kinds, severities, rate))


DESTINATION_SECTIONS = {
    DestinationKind.SYSLOG: _destination(
        SyslogDestination,
        Key("address", names.RECEIVER, "Where it listens.", REQUIRED, example="siem.example.org:6514"),
        Key("transport", Choice(tuple(SyslogTransport)), "TCP and TLS count octets (RFC 6587, RFC 5425). UDP loses "
            "messages without a word."),
        Key("format", Choice(tuple(SyslogFormat)), "RFC 5424 with structured data, or CEF in such a message."),
        Key("facility", Whole(0, 23), "Facility; 16 is local0."),
        Key("sd_id", names.SD_ID, "Name of the structured data; 32473 is the number that examples have."),
        _CA_FILE, _CERTIFICATE, _CERTIFICATE_KEY, _VERIFY,
    ),
    DestinationKind.SPLUNK: _destination(
        SplunkDestination,
        Key("url", names.URL, "Address of the HTTP Event Collector.", REQUIRED,
            example="https://splunk.example.org:8088"),
        Key("token", SECRET, "Its token.", REQUIRED, example="{file: /run/secrets/hec}"),
        Key("index", names.LINE, "Index.", absent="that of the token"),
        Key("sourcetype", names.LINE, "Source type."),
        _CA_FILE, _VERIFY,
    ),
    DestinationKind.ELASTIC: _destination(
        ElasticDestination,
        Key("url", names.URL, "Address of Elasticsearch or OpenSearch.", REQUIRED,
            example="https://elastic.example.org:9200"),
        Key("index", names.INDEX, "Index or data stream."),
        Key("api_key", SECRET, "API key, as Kibana shows it (base64).", absent="none"),
        Key("username", names.LINE, "User, in place of `api_key`.", absent="none"),
        Key("password", SECRET, "Its password.", absent="none"),
        _CA_FILE, _VERIFY,
    ),
    DestinationKind.KAFKA: _destination(
        KafkaDestination,
        Key("topic", names.TOPIC, "The topic; it must be there."),
        Key("brokers", ListOf(names.BROKER), "Brokers to ask first.", absent="those of `kafka`, with all it says"),
        Key("tls", FLAG, "Whether connections are encrypted."),
        _CA_FILE, _CERTIFICATE, _CERTIFICATE_KEY, _VERIFY,
        Key("username", names.LINE, "User, where brokers ask for one (SASL).", absent="none"),
        Key("password", SECRET, "Its password.", absent="none"),
        Key("mechanism", Choice(tuple(SaslMechanism)), "How the password is proven."),
    ),
    DestinationKind.WEBHOOK: _destination(
        WebhookDestination,
        Key("url", SECRET, "Where to POST.", REQUIRED, example="{env: SOAR_WEBHOOK}"),
        Key("token", SECRET, "Token to bear.", absent="none"),
        Key("signing_key", SECRET, "Key of the HMAC-SHA256 over each body.", absent="not signed"),
        _CA_FILE, _VERIFY,
    ),
    DestinationKind.FILE: _destination(
        FileDestination,
        Key("path", names.PATH, "The file, beside this one.", REQUIRED, example="/var/log/clusterflow/events.ndjson"),
        Key("rotate", names.SIZE, "Size at which it becomes `NAME.1`."),
        Key("keep", Whole(1, 1_000), "How many of those are kept."),
    ),
}
"""Destinations of events by type."""

DELIVERY = Section(
    "delivery",
    (
        *_settings(
            DeliverySettings,
            Key("alerts", Choice(tuple(AlertsFrom)), "`evaluate`: `clusterflow deliver` evaluates the rules itself. "
                "`grafana`: Grafana does, and posts to `listen`. `off`: no alerts."),
            Key("listen", names.LISTEN, "Where Grafana's webhook is taken, at /grafana."),
            Key("token", SECRET, "What that webhook must bear.", absent="none: needed with `alerts: grafana`",
                example="{file: /run/secrets/deliver}"),
            Key("metrics_listen", names.LISTEN_OR_OFF, "Where /metrics and /healthz answer, or `off`; "
                "`bridge.metrics_token` holds here too."),
            Key("state", names.PATH, "The folder of the spool."),
            Key("spool", names.SIZE, "Size of the spool. When it is full, its oldest events are dropped and counted."),
            Key("every", names.seconds(1, 3_600), "Time between two looks at the store."),
            Key("settle", names.seconds(0, DAY), "Age at which what is stored is told of: what it counts has come in "
                "by then. Alerts do not wait."),
            Key("overlap", names.seconds(0, DAY), "How far back points are looked for that were stored late."),
        ),
        Key("destinations", MapOf(names.NAME, OneOf(
            "type", {kind.value: section for kind, section in DESTINATION_SECTIONS.items()}, "destination")),
            "Who gets events.", {}),
    ),
    "Events for a SIEM, and others who are not at Grafana (docs/delivery.md).",
)
# fmt: on

NOTIFY = OneOf("type", {name: channel.section for name, channel in CHANNELS.items()}, "notification target")

# fmt: off
ROOT = Section(
    "cluster.yaml",
    (
        Key("cluster", names.NAME, "The cluster's name.", REQUIRED, example="demo"),
        Key("site", SITE, "Where the cluster stands."),
        Key("groups", MapOf(names.GROUP_ID, GROUP, at_least=1, at_most=MOST_GROUPS),
            "Addresses that belong together.", REQUIRED),
        Key("inventory", names.PATH, "A CSV file with more nodes, beside this file.", absent="none",
            example="nodes.csv"),
        Key("nodes", MapOf(names.NODE_PATTERN, NODE), "The inventory: at most 262,144 nodes and addresses. A name "
            "with ranges has at most 200 characters.", {}),
        Key("exporters", MapOf(names.NAME, EXPORTER), "The devices that export flows.", {}),
        Key("allowed", ListOf(ALLOWED), "Who may send to whom.", []),
        Key("authority", ListOf(AUTHORITY), "Whose count is the truth.", []),
        Key("transport", ListOf(TRANSPORT), "How pairs talk.", []),
        Key("capacity", ListOf(CAPACITY), "What group pairs can carry.", []),
        Key("inference", INFERENCE, "What is expected of the clients of inference nodes."),
        Key("identity", IDENTITY, "Who has which address when."),
        Key("management", MANAGEMENT, "What is expected at groups of role management."),
        Key("artefacts", MapOf(names.NAME, names.SIZE),
            "Sizes of things worth stealing, such as model weights: volumes are compared with them.", {},
            example="{llama-70b: 141 GB}"),
        Key("services", MapOf(names.SERVICE_NAME, OneOrMany(SERVICE)), "Names for ports.", {}),
        Key("jobs", ListOf(JOB), "Job windows.", []),
        Key("job_sources", ListOf(JOB_SOURCE), "Who else knows job windows, beside `jobs`.", [],
            absent="`jobs`; without any, `inferred`"),
        Key("job_classes", MapOf(names.JOB_ID, JOB_CLASS), "What is known of every job of a class.", {}),
        Key("thresholds", THRESHOLDS, "Every number that an alert compares with."),
        Key("cost", COST, "What an idle GPU costs."),
        Key("store", STORE, "InfluxDB."),
        Key("collector", COLLECTOR, "How nfacctd and sfacctd run."),
        Key("bridge", BRIDGE, "How flow records become windows."),
        Key("kafka", KAFKA, "Kafka between collectors and workers."),
        Key("notify", MapOf(names.NAME, NOTIFY), "Where alerts go.", {}),
        Key("grafana", GRAFANA, "What links need."),
        Key("geography", GEOGRAPHY, "Country, city and network of outside addresses."),
        Key("delivery", DELIVERY, "Events for a SIEM."),
        Key("rules", ListOf(names.PATH),
            "Alert rules of your own (docs/own-rules.md): Python files beside this one, which are run as code.", [],
            example="[my_rules/backup_size.py]"),
        Key("threat_feeds", MapOf(names.NAME, THREAT_FEED), "Lists of addresses that are known to be bad.", {}),
        Key("names", NAMES, "Names of outside addresses."),
        Key("applications", APPLICATIONS, "What outside addresses are."),
        Key("enrichment", ENRICHMENT, "When lists are too old."),
    ),
)
# fmt: on
