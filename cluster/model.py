"""The frozen objects that cluster.yaml becomes. Base units throughout: bytes, seconds, bits per second, USD.

Nothing here reads files or validates: ``cluster.load`` does, and hands out only consistent objects.
"""

from dataclasses import dataclass, field
from datetime import datetime, time
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from zoneinfo import ZoneInfo

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

EXTERNAL = "external"
"""The group of every routable address that no group's prefix holds."""

LOCAL = "local"
"""The group of addresses that never leave their segment: multicast, broadcast, link-local, loopback, unspecified."""

LOCAL_PREFIXES: tuple[Network, ...] = tuple(
    ip_network(prefix)
    for prefix in (
        "0.0.0.0/8",  # this network, RFC 1122
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local
        "224.0.0.0/4",  # multicast
        "255.255.255.255/32",  # limited broadcast
        "::/128",  # unspecified
        "::1/128",  # loopback
        "fe80::/10",  # link-local
        "ff00::/8",  # multicast
    )
)
"""What the group LOCAL holds."""

RESERVED_GROUPS = {
    EXTERNAL: "Unknown External",
    LOCAL: "Multicast & Link-local",
}
"""Group ids that users cannot define, with their titles."""

ANY = "*"
"""Stands for every group in `allowed`, `transport` and `authority`."""


class Role(StrEnum):
    """What a group is for; boards and rules are chosen by role, never by a group's id."""

    TRAINING = "training"
    STORAGE = "storage"
    MODEL_STORAGE = "model_storage"
    APPROVED_EXTERNAL = "approved_external"
    MANAGEMENT = "management"
    INFERENCE = "inference"
    CUSTOM = "custom"


class Plane(StrEnum):
    """The network that a flow crossed."""

    COMPUTE = "compute"
    STORAGE = "storage"
    MANAGEMENT = "management"
    FRONTEND = "frontend"
    UNKNOWN = "unknown"


class Transport(StrEnum):
    """How a group pair talks: only TCP/UDP over IP through a flow-exporting device is visible to us."""

    TCP = "tcp"
    ROCE = "roce"
    INFINIBAND = "infiniband"


class SamplingMode(StrEnum):
    """Whether an exporter's counters still have to be multiplied by its sampling rate."""

    AUTO = "auto"
    RENORMALISED = "renormalised"
    FIXED = "fixed"


class ExportProtocol(StrEnum):
    """Which pmacct daemon listens to the exporter: nfacctd (NetFlow, IPFIX) or sfacctd (sFlow)."""

    NETFLOW = "netflow"
    SFLOW = "sflow"


class StoreApi(StrEnum):
    """The write API to use. AUTO asks the server for its version."""

    AUTO = "auto"
    V1 = "v1"
    V2 = "v2"


@dataclass(frozen=True, slots=True)
class OffHours:
    """Daily off-hours in the site's time zone; `start` > `end` wraps around midnight. `end` itself is on-hours."""

    start: time = time(23, 0)
    end: time = time(6, 0)
    weekends: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """Where the cluster stands."""

    time_zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    off_hours: OffHours = field(default_factory=OffHours)


@dataclass(frozen=True, slots=True)
class Group:
    """Addresses that belong together.

    Attributes:
        id: tag value in the store: lower case letters, digits and ``_``.
        title: name on boards and in alerts.
        prefixes: IPv4 and IPv6 networks; the longest match over all groups wins.
        sensitive: its transfers to the outside are watched more closely.
        nested_in: id of a group that has a prefix around one of ours, if that is meant.
        plane: plane of its traffic where neither interface nor node address says so.
    """

    id: str
    title: str
    role: Role
    prefixes: tuple[Network, ...] = ()
    sensitive: bool = False
    nested_in: str | None = None
    plane: Plane | None = None

    @property
    def is_outside(self) -> bool:
        """Whether the group stands outside the cluster, so that traffic to it is egress."""
        return self.role is Role.APPROVED_EXTERNAL


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """One address of a node (a rail, a Multus interface, a management port)."""

    address: Address
    plane: Plane | None = None
    rail: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the inventory; all its addresses fold into its name."""

    name: str
    group: str
    addresses: tuple[NodeAddress, ...]
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Interface:
    """An exporter's interface by its SNMP ifIndex.

    Attributes:
        counts: False for links between switches: a flow that enters there was already counted at the edge.
        speed: bits per second, if known.
    """

    index: int
    name: str
    plane: Plane | None = None
    counts: bool = True
    speed: int | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to scale an exporter's counters; `rate` is set for FIXED only."""

    mode: SamplingMode = SamplingMode.AUTO
    rate: int | None = None


@dataclass(frozen=True, slots=True)
class Exporter:
    """A device that exports flows.

    Attributes:
        address: what pmacct prints as ``peer_ip_src``: UDP source (NetFlow/IPFIX) or agent address (sFlow).
        counts: False for a device that sees only what others already counted (a spine).
        frame_overhead: bytes a packet to subtract, because sFlow counts whole Ethernet frames.
    """

    name: str
    address: Address
    protocol: ExportProtocol = ExportProtocol.NETFLOW
    sampling: Sampling = field(default_factory=Sampling)
    counts: bool = True
    frame_overhead: int = 0
    interfaces: tuple[Interface, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupPair:
    """Source and destination group; either may be ``*``."""

    src: str
    dst: str


@dataclass(frozen=True, slots=True)
class Authority:
    """Only these exporters count for the pair; what others saw of it is suppressed. The first match wins."""

    pair: GroupPair
    exporters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeclaredTransport:
    """How a pair talks, in both directions."""

    pair: GroupPair
    transport: Transport


@dataclass(frozen=True, slots=True)
class Service:
    """A named service: the ports its servers listen on. `protocols` are IP protocol numbers."""

    name: str
    ports: tuple[int, ...]
    protocols: tuple[int, ...] = (6, 17)


@dataclass(frozen=True, slots=True)
class Job:
    """A job window. `end` is None while it runs. `job_class` finds its previous runs. Times are aware, in UTC."""

    id: str
    job_class: str
    nodes: tuple[str, ...]
    start: datetime
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Every number that an alert compares with. Bytes and seconds; see docs/configuration.md for what each means."""

    exfil_volume: int = 50_000_000_000
    exfil_window: int = 900
    first_contact_bytes: int = 0
    off_hours_bytes: int = 1_000_000_000
    off_hours_window: int = 900
    dropout_spreads: float = 4.0
    dropout_min_runs: int = 3
    dropout_max_runs: int = 10
    dropout_for: int = 20
    exporter_silent: int = 120
    ingest_silent: int = 120


@dataclass(frozen=True, slots=True)
class Cost:
    """What an idle GPU costs."""

    gpus_per_node: int = 8
    usd_per_gpu_hour: float = 30.0


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is: the name of an environment variable or of a file. Never the secret itself."""

    env: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """One retention of the database: its name, its window and how long points are kept, in seconds."""

    name: str
    window: int
    keep: int


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """InfluxDB: where, which API, with what rights. `org` and `token` are for the v2 API, `username` for v1."""

    url: str = "http://127.0.0.1:8086"
    api: StoreApi = StoreApi.AUTO
    database: str = "clusterflow"
    org: str = "-"
    token: Secret | None = None
    username: str | None = None
    password: Secret | None = None
    verify_tls: bool = True
    keep_raw: int = 7 * 86_400
    keep_1m: int = 90 * 86_400
    keep_1h: int = 2 * 365 * 86_400


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """How nfacctd and sfacctd run. `refresh` is the print interval in seconds; `rotate` the age of a spool file."""

    listen: str = "0.0.0.0"  # noqa: S104 - exporters are other machines
    netflow_port: int = 2055
    sflow_port: int = 6343
    spool: str = "/var/spool/clusterflow"
    refresh: int = 2
    rotate: int = 60


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """How flow records become windows.

    Attributes:
        window: seconds of a base window.
        lateness: how far, in seconds, the watermark stays behind the newest record.
        grace: seconds for which a closed window can still be rewritten.
        past_skew, future_skew: a record further than this from its arrival is skewed, and gets its arrival time.
        named_per_window: conversations a source group may name in one window; the rest goes to ``other``.
        series_budget: named egress series kept alive in all; beyond it new ones go to ``other``.
        flush: seconds between writes while records stream in.
        shard: value of the `shard` tag: one a bridge, so that partial totals add up.
        metrics_listen: host:port of /metrics and /healthz, or None.
        state: folder of the checkpoint.
    """

    window: int = 10
    lateness: int = 10
    grace: int = 300
    past_skew: int = 900
    future_skew: int = 120
    named_per_window: int = 100
    series_budget: int = 100_000
    flush: float = 2.0
    shard: str = "0"
    metrics_listen: str | None = "127.0.0.1:9105"
    state: str = "/var/lib/clusterflow"


@dataclass(frozen=True, slots=True)
class NotificationTarget:
    """Where alerts go.

    Attributes:
        kind: Grafana's receiver type: webhook, email, slack, pagerduty, teams, opsgenie, telegram.
        secrets: Grafana setting -> where the secret is.
        settings: Grafana setting -> plain value.
        severities: which alerts it gets; empty means all.
    """

    name: str
    kind: str
    settings: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, Secret], ...] = ()
    severities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GrafanaSettings:
    """What links in alerts and the playlist command need."""

    url: str = "http://127.0.0.1:3000"
    runbook_url: str = "https://example.invalid/clusterflow/runbook"
    datasource_uid: str = "clusterflow"


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster, as cluster.yaml describes it."""

    name: str
    groups: tuple[Group, ...]
    site: Site = field(default_factory=Site)
    nodes: tuple[Node, ...] = ()
    exporters: tuple[Exporter, ...] = ()
    allowed: tuple[GroupPair, ...] = ()
    authority: tuple[Authority, ...] = ()
    transport: tuple[DeclaredTransport, ...] = ()
    services: tuple[Service, ...] = ()
    jobs: tuple[Job, ...] = ()
    thresholds: Thresholds = field(default_factory=Thresholds)
    cost: Cost = field(default_factory=Cost)
    store: StoreSettings = field(default_factory=StoreSettings)
    collector: CollectorSettings = field(default_factory=CollectorSettings)
    bridge: BridgeSettings = field(default_factory=BridgeSettings)
    notify: tuple[NotificationTarget, ...] = ()
    grafana: GrafanaSettings = field(default_factory=GrafanaSettings)

    def group(self, group_id: str) -> Group:
        """Return the group with this id; KeyError if there is none."""
        for group in self.groups:
            if group.id == group_id:
                return group
        raise KeyError(group_id)

    def groups_with(self, *roles: Role) -> tuple[Group, ...]:
        """Return the groups of these roles, in the order of the file."""
        return tuple(group for group in self.groups if group.role in roles)

    def inside_groups(self) -> tuple[Group, ...]:
        """Return the groups that are part of the cluster."""
        return tuple(group for group in self.groups if not group.is_outside)

    def title(self, group_id: str) -> str:
        """Return a group's name for people, reserved groups included."""
        return RESERVED_GROUPS[group_id] if group_id in RESERVED_GROUPS else self.group(group_id).title

    def is_allowed(self, src: str, dst: str) -> bool:
        """Whether `allowed` lists the conversation. Traffic within a group and local traffic is always allowed."""
        if src == dst or LOCAL in (src, dst):
            return True
        return any(pair.src in (src, ANY) and pair.dst in (dst, ANY) for pair in self.allowed)

    def transport_of(self, src: str, dst: str) -> Transport:
        """Return the declared transport of a pair; TCP where nothing is declared."""
        for declared in self.transport:
            pair = declared.pair
            for a, b in ((src, dst), (dst, src)):
                if pair.src in (a, ANY) and pair.dst in (b, ANY):
                    return declared.transport
        return Transport.TCP

    def retentions(self) -> tuple[Retention, ...]:
        """Return the three retentions, finest first."""
        store = self.store
        return (
            Retention("raw", self.bridge.window, store.keep_raw),
            Retention("1m", 60, store.keep_1m),
            Retention("1h", 3600, store.keep_1h),
        )
