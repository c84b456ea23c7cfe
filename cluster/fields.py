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
    SecretPlace,
    Section,
    Text,
    Whole,
    one_of,
)
from cluster.model import (
    BridgeSettings,
    CollectorSettings,
    Cost,
    Exporter,
    ExportProtocol,
    GrafanaSettings,
    Group,
    Interface,
    OffHours,
    Plane,
    Role,
    Sampling,
    SamplingMode,
    StoreApi,
    StoreSettings,
    Thresholds,
    Transport,
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
EXPORTER = Section(
    "exporter",
    (
        Key("address", names.ADDRESS, "The source of its NetFlow or IPFIX packets; for sFlow its agent address.",
            REQUIRED, example="10.60.0.1"),
        Key("protocol", Choice(tuple(ExportProtocol)), "`netflow` (v5, v9, IPFIX) or `sflow`.",
            _default(Exporter, "protocol")),
        Key("sampling", SAMPLING,
            "`auto`: multiply by the rate it announces. `renormalised`: its counters are scaled already. A number: it "
            "samples 1 packet in so many, whatever it announces.", Sampling(), example="1000"),
        Key("counts", FLAG, "False for a device that sees only what others counted already, such as a spine.",
            _default(Exporter, "counts")),
        Key("frame_overhead", Whole(0, 255, "bytes"), "Bytes a packet to subtract, so that only IP is counted.",
            absent="18 for sflow, 0 for netflow"),
        Key("interfaces", MapOf(Whole(0, 4_294_967_295, "ifIndex"), INTERFACE), "Its interfaces by SNMP ifIndex.", {}),
    ),
    "The devices that export flows. NetFlow and IPFIX from unlisted addresses are dropped without a word, unless no "
    "exporter is listed at all. sFlow, and files of another pmacct, are taken from everyone: an unlisted exporter is "
    "shown under its address.",
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
            "How they talk. RoCE and InfiniBand bypass flow export: boards and rules say so instead of showing zeros.",
            REQUIRED),
    ),
    "How pairs talk; `tcp` where nothing is said.",
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
    ),
    "Job windows: dropout is judged within them only.",
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
        Key("off_hours_bytes", names.SIZE,
            "Off-hours transfer: bytes that a sensitive group may send outside in `off_hours_window`, off-hours."),
        Key("off_hours_window", WINDOW_LENGTH, "The window of `off_hours_bytes`."),
        Key("dropout_spreads", Number(1, 100),
            "Node dropout: how many spreads below its own past a node's share may fall. Lower finds more, also more "
            "that is nothing."),
        Key("dropout_min_runs", Whole(1, 1_000),
            "Earlier runs of the job's class that must exist before a node is judged; with fewer it is learning."),
        Key("dropout_max_runs", Whole(1, 1_000), "Earlier runs that the baseline uses, newest first."),
        Key("dropout_for", names.seconds(0, DAY), "How long a node must stay low before it alerts."),
        Key("exporter_silent", names.seconds(10, DAY),
            "Silence of an exporter that alerts. Its nodes are then blind, not down."),
        Key("ingest_silent", names.seconds(10, DAY), "Silence of the whole pipeline that alerts."),
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
        Key("flush", names.fractions(0.1, 60), "Time between writes while records stream in."),
        Key("shard", names.SHARD, "One a bridge, so that partial totals add up."),
        Key("metrics_listen", names.LISTEN_OR_OFF, "Where /metrics and /healthz answer, or `off`."),
        Key("state", names.PATH, "The folder of the checkpoint."),
    ),
    "How flow records become windows.",
)
GRAFANA = Section(
    "grafana",
    _settings(
        GrafanaSettings,
        Key("url", names.URL, "Grafana's address, for links in alerts and the playlist command."),
        Key("runbook_url", names.URL, "Where docs/runbook.md is published, for links in alerts."),
        Key("datasource_uid", names.UID, "Uid of the InfluxDB data source."),
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
        Key("nodes", MapOf(names.NODE_PATTERN, NODE), "The inventory.", {}),
        Key("exporters", MapOf(names.NAME, EXPORTER), "The devices that export flows.", {}),
        Key("allowed", ListOf(ALLOWED), "Who may send to whom.", []),
        Key("authority", ListOf(AUTHORITY), "Whose count is the truth.", []),
        Key("transport", ListOf(TRANSPORT), "How pairs talk.", []),
        Key("services", MapOf(names.SERVICE_NAME, OneOrMany(SERVICE)), "Names for ports.", {}),
        Key("jobs", ListOf(JOB), "Job windows.", []),
        Key("thresholds", THRESHOLDS, "Every number that an alert compares with."),
        Key("cost", COST, "What an idle GPU costs."),
        Key("store", STORE, "InfluxDB."),
        Key("collector", COLLECTOR, "How nfacctd and sfacctd run."),
        Key("bridge", BRIDGE, "How flow records become windows."),
        Key("notify", MapOf(names.NAME, NOTIFY), "Where alerts go.", {}),
        Key("grafana", GRAFANA, "What links need."),
    ),
)
# fmt: on
