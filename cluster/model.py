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
    CANARY = "canary"
    CUSTOM = "custom"


class Plane(StrEnum):
    """The network that a flow crossed."""

    COMPUTE = "compute"
    STORAGE = "storage"
    MANAGEMENT = "management"
    FRONTEND = "frontend"
    UNKNOWN = "unknown"


class Transport(StrEnum):
    """How a group pair talks: we see what crosses a flow-exporting device as IP.

    RoCEv2 is UDP over IP, but switches forward it in hardware that few of them count flows in: ROCE_SAMPLED is that
    whose packets a switch's sFlow samples.
    """

    TCP = "tcp"
    ROCE = "roce"
    ROCE_SAMPLED = "roce-sampled"
    INFINIBAND = "infiniband"

    @property
    def is_visible(self) -> bool:
        """Whether flow records show it, so that it can be judged."""
        return self in (Transport.TCP, Transport.ROCE_SAMPLED)


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


class KafkaFormat(StrEnum):
    """What a Kafka topic carries: messages of `clusterflow relay`, or those of pmacct's own Kafka plugin."""

    CLUSTERFLOW = "clusterflow"
    PMACCT = "pmacct"


class SaslMechanism(StrEnum):
    """How a user's password is proven to a Kafka broker. PLAIN shows it to the broker."""

    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    PLAIN = "PLAIN"


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
    """A machine of the inventory; all its addresses fold into its name.

    Attributes:
        speed: bits per second that it can send, and receive, over all its links; None if nobody says.
    """

    name: str
    group: str
    addresses: tuple[NodeAddress, ...]
    gpus: int = 0
    speed: int | None = None


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
        watched: False for a device that may fall silent without an alert.
        frame_overhead: bytes a packet to subtract, because sFlow counts whole Ethernet frames.
    """

    name: str
    address: Address
    protocol: ExportProtocol = ExportProtocol.NETFLOW
    sampling: Sampling = field(default_factory=Sampling)
    counts: bool = True
    frame_overhead: int = 0
    interfaces: tuple[Interface, ...] = ()
    watched: bool = True


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
class PairLimit:
    """What the network can carry from one group to another, in bits per second."""

    pair: GroupPair
    limit: int


@dataclass(frozen=True, slots=True)
class InferenceHours:
    """When clients are expected, in the site's time zone; `start` > `end` wraps around midnight, `end` is outside."""

    start: time
    end: time
    weekends: bool = True


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """Clients that may ask inference nodes. A client is meant where every list that is not empty names it.

    Attributes:
        sources: ids of the clients' groups.
        users: as sign-ins name them, in clear or as pseudonyms.
        countries: ISO codes; only addresses outside have one.
        destinations: ids of inference groups.
        services: names of services.
        hours: when they may; None: at any time that `inference.hours` allows.
    """

    sources: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    countries: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    hours: InferenceHours | None = None


@dataclass(frozen=True, slots=True)
class Inference:
    """What is expected of the clients of inference nodes.

    Attributes:
        hours: None: at any time.
        sources: ids of the groups whose clients may reach inference nodes; empty: whoever `allowed` lists.
        access: of these, who in particular; empty: all of them.
    """

    hours: InferenceHours | None = None
    sources: tuple[str, ...] = ()
    access: tuple[AccessEntry, ...] = ()


class SignInFormat(StrEnum):
    """What an export of sign-ins is."""

    OPENVPN_STATUS = "openvpn_status"
    OPENVPN_LOG = "openvpn_log"
    CISCO_ASA = "cisco_asa"
    RADIUS_DETAIL = "radius_detail"
    RADIUS_JSON = "radius_json"
    WINDOWS_JSON = "windows_json"
    WINDOWS_CSV = "windows_csv"
    ENTRA_JSON = "entra_json"
    ENTRA_CSV = "entra_csv"
    OKTA_JSON = "okta_json"
    CSV = "csv"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class SignInColumns:
    """Where an export that has no format of its own keeps what: columns of CSV, dotted paths of JSON."""

    address: str
    user: str
    time: str
    event: str | None = None


@dataclass(frozen=True, slots=True)
class SignInSource:
    """An export of sign-ins that somebody else writes.

    Attributes:
        path: a file, or a pattern with ``*`` for files that are rotated by date.
        hold: seconds for which a sign holds without another one; None: `Identity.hold`.
        time_zone: of times without an offset; None: the site's.
        columns: of formats CSV and JSON only.
        starts, stops: values of the column `event` that are sign-ins and sign-outs; no starts: all but the stops.
    """

    name: str
    format: SignInFormat
    path: str
    hold: int | None = None
    time_zone: ZoneInfo | None = None
    columns: SignInColumns | None = None
    starts: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """Who has which address when.

    Attributes:
        sources: exports of sign-ins.
        hold: seconds for which a sign holds without another one.
        domains: left out of the names of users.
        shared: addresses that many users have at the same time: they are nobody's.
        pseudonymise: key of the names that leave in place of those of users; None: they leave in clear.
        delay: seconds after an event within which exports have its line: who asked is judged so much later.
    """

    sources: tuple[SignInSource, ...] = ()
    hold: int = 8 * 3_600
    domains: tuple[str, ...] = ()
    shared: tuple[Network, ...] = ()
    pseudonymise: "Secret | None" = None
    delay: int = 60


MANAGEMENT_SERVICES = (
    "dhcp", "dns", "grafana", "http", "https", "influxdb", "kafka", "kerberos", "kubernetes", "ldap", "netflow", "ntp",
    "prometheus", "ptp", "sflow", "slurm", "snmp", "syslog",
)  # fmt: skip
"""What machines ordinarily ask of a management network: names, time, log-in directories, scheduling, telemetry."""


class Opening(StrEnum):
    """What a group may open at another, as far as `management` says."""

    ANYTHING = "anything"
    SERVICES = "services"
    """The listed services only."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Management:
    """What is expected at groups of role management, beyond `allowed`, which seldom says more than ``*`` about them.

    Attributes:
        services: names of services that other groups may open there, and that management may open outside.
        sources: ids of groups that may open anything there: the administrators' networks.
    """

    services: tuple[str, ...] = MANAGEMENT_SERVICES
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Artefact:
    """Something whose size people know by heart, such as the weights of a model; `size` in bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Service:
    """A named service: the ports its servers listen on. `protocols` are IP protocol numbers."""

    name: str
    ports: tuple[int, ...]
    protocols: tuple[int, ...] = (6, 17)


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is: the name of an environment variable or of a file. Never the secret itself."""

    env: str | None = None
    file: str | None = None


class Outcome(StrEnum):
    """How a job ended. UNKNOWN where nobody said, and while it runs."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


LISTED = "cluster.yaml"
"""Origin of the jobs that cluster.yaml lists itself."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job window. Times are aware, in UTC, whole seconds.

    A run is known by `id` and `start`: one id may run several times, one after the other.

    Attributes:
        job_class: what its previous runs are found by.
        nodes: nodes of the inventory only; a source may have named others, which are counted and told.
        end: None while it runs, or while nobody knows.
        outcome: what failed or was cancelled must not teach a baseline; what is unknown may.
        quiet: seconds before `end` in which it sent nothing, by the way its end was found (inferred jobs): that it
            went quiet before its end says nothing about it.
        origin: name of the job source that told of it; says nothing about the job itself.
    """

    id: str
    job_class: str
    nodes: tuple[str, ...]
    start: datetime
    end: datetime | None = None
    outcome: Outcome = Outcome.UNKNOWN
    quiet: int = 0
    origin: str = field(default=LISTED, compare=False)

    @property
    def is_good(self) -> bool:
        """Whether its traffic may teach what is normal."""
        return self.outcome not in {Outcome.FAILED, Outcome.CANCELLED}


class JobSourceKind(StrEnum):
    """Where job windows come from, beside cluster.yaml itself."""

    FILE = "file"
    HTTP = "http"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True)
class FileJobs:
    """A JSON or CSV file (by its suffix) that somebody else writes; read again when it changes."""

    name: str
    path: str
    kind: JobSourceKind = JobSourceKind.FILE


@dataclass(frozen=True, slots=True)
class HttpJobs:
    """An endpoint of ours that hooks of a scheduler post to.

    Attributes:
        listen: ``host:port``.
        token: what every request must bear.
        longest: seconds after which a job that nobody stopped is over.
    """

    name: str
    token: Secret
    listen: str = "127.0.0.1:9106"
    longest: int = 30 * 86_400
    kind: JobSourceKind = JobSourceKind.HTTP


class ClassFrom(StrEnum):
    """Which word of a Slurm job is its class."""

    NAME = "name"
    ACCOUNT = "account"
    PARTITION = "partition"
    COMMENT = "comment"
    WCKEY = "wckey"


@dataclass(frozen=True, slots=True)
class SlurmJobs:
    """What sacct and squeue say.

    Attributes:
        sacct, squeue: commands, split into words; empty: not asked.
        files: JSON documents of theirs to read instead.
        every, timeout: seconds between two questions, and for each.
        partitions: only jobs of these; empty: all.
        time_limit_is: outcome of a job that its time limit ended.
    """

    name: str
    sacct: tuple[str, ...] = ("sacct",)
    squeue: tuple[str, ...] = ("squeue",)
    files: tuple[str, ...] = ()
    every: int = 30
    timeout: int = 20
    partitions: tuple[str, ...] = ()
    class_from: ClassFrom = ClassFrom.NAME
    time_limit_is: Outcome = Outcome.FAILED
    kind: JobSourceKind = JobSourceKind.SLURM


class Workload(StrEnum):
    """Kinds of Kubernetes objects that are jobs."""

    JOB = "job"
    PYTORCHJOB = "pytorchjob"


@dataclass(frozen=True, slots=True)
class KubernetesJobs:
    """What a Kubernetes API server says.

    Attributes:
        namespaces: only these; empty: all.
        selector: label selector of the jobs; empty: all.
        class_label: label of the job whose value is its class.
        kubeconfig: file; None: the pod's service account, else the user's own file.
        context: of the kubeconfig; None: its current one.
        every, timeout: seconds between two questions, and for each.
    """

    name: str
    namespaces: tuple[str, ...] = ()
    workloads: tuple[Workload, ...] = (Workload.JOB, Workload.PYTORCHJOB)
    selector: str = ""
    class_label: str = "clusterflow/job-class"
    kubeconfig: str | None = None
    context: str | None = None
    every: int = 30
    timeout: int = 20
    kind: JobSourceKind = JobSourceKind.KUBERNETES


@dataclass(frozen=True, slots=True)
class InferredJobs:
    """Cohorts found in the traffic between training nodes.

    Attributes:
        least_nodes: nodes that a cohort needs.
        least_rate: bit/s that a node must send to other training nodes to count as active.
        confirm: seconds of activity after which a cohort is a job: that is where the job starts.
        idle: seconds without activity after which it is over.
    """

    name: str = JobSourceKind.INFERRED.value
    least_nodes: int = 3
    least_rate: int = 100_000_000
    confirm: int = 180
    idle: int = 600
    kind: JobSourceKind = JobSourceKind.INFERRED


JobSourceSettings = FileJobs | HttpJobs | SlurmJobs | KubernetesJobs | InferredJobs


class CheckpointMode(StrEnum):
    """What a job class's checkpoints are judged by."""

    SCHEDULED = "scheduled"
    """`every` says when one is due."""
    IRREGULAR = "irregular"
    """Never by when they come."""
    LEARN = "learn"
    """By the period that earlier ones had, where they had one."""


ALL_NODES = 0
"""Value of `CheckpointPlan.nodes`: every node of the job writes its part."""


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """How a job class writes checkpoints. What is None is taken from earlier ones.

    Attributes:
        every: seconds from the begin of one to the begin of the next; set for SCHEDULED only.
        tolerance: seconds by which one may come later than that.
        longest: seconds that writing may take.
        size: bytes of all nodes together.
        nodes: how many nodes take part, or ALL_NODES.
        short: share of the expected bytes below which one is short.
    """

    mode: CheckpointMode = CheckpointMode.LEARN
    every: int | None = None
    tolerance: int = 300
    longest: int | None = None
    size: int | None = None
    nodes: int | None = None
    short: float = 0.9


@dataclass(frozen=True, slots=True)
class JobClass:
    """What is known of every job of a class.

    Attributes:
        name: as jobs name it.
        parameters: of the model that is trained, if known.
        gradient_bytes_per_parameter: bytes of one parameter's gradient, as it crosses the network.
    """

    name: str
    parameters: int | None = None
    gradient_bytes_per_parameter: float = 2.0
    checkpoint: CheckpointPlan = field(default_factory=CheckpointPlan)

    @property
    def step_bytes(self) -> int | None:
        """Bytes of all gradients of one step; None where nobody says how large the model is."""
        return None if self.parameters is None else round(self.parameters * self.gradient_bytes_per_parameter)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Every number that an alert compares with. Bytes and seconds; see docs/configuration.md for what each means."""

    exfil_volume: int = 50_000_000_000
    exfil_window: int = 900
    first_contact_bytes: int = 0
    contact_learning: int = 86_400
    off_hours_bytes: int = 1_000_000_000
    off_hours_window: int = 900
    dropout_spreads: float = 4.0
    dropout_min_runs: int = 3
    dropout_max_runs: int = 10
    dropout_for: int = 20
    dropout_digest: int = 4
    slowdown_spreads: float = 4.0
    slowdown_for: int = 120
    stalled_for: int = 120
    analysis_silent: int = 120
    exporter_silent: int = 120
    relay_silent: int = 120
    ingest_silent: int = 120
    inference_window: int = 900
    inference_unauthorised_bytes: int = 10_000
    inference_access_bytes: int = 10_000
    unusual_country_bytes: int = 10_000
    country_learning: int = 7 * 86_400
    inference_off_window_bytes: int = 1_000_000
    inference_min_weeks: int = 2
    inference_spike_spreads: float = 6.0
    inference_spike_bytes: int = 20_000_000
    inference_spike_for: int = 60
    flow_loss: float = 0.01
    flow_loss_window: int = 900
    flow_loss_records: int = 1_000
    ingest_lag: int = 300
    ingest_lag_for: int = 120
    incast_sources: int = 8
    incast_share: float = 0.5
    incast_bytes: int = 5_000_000_000
    incast_for: int = 20
    checkpoint_overdue: int = 60
    checkpoint_regularity: float = 1.0
    low_and_slow_24h: int = 50_000_000_000
    low_and_slow_7d: int = 100_000_000_000
    recurrence_days: int = 5
    recurrence_hours: int = 48
    violation_window: int = 900
    violation_bytes: int = 1_000_000
    violation_flows: int = 100
    shadow_node_bytes: int = 10_000
    storage_on_compute_bytes: int = 1_000_000_000
    management_bytes: int = 2_000
    new_network_bytes: int = 10_000_000
    new_network_window: int = 900
    list_stale_for: int = 120
    threat_bytes: int = 1_000
    threat_window: int = 900
    threat_look_back: int = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Cost:
    """What an idle GPU costs."""

    gpus_per_node: int = 8
    usd_per_gpu_hour: float = 30.0


@dataclass(frozen=True, slots=True)
class Retention:
    """One retention of the database: its name, its window and how long points are kept, in seconds."""

    name: str
    window: int
    keep: int


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """InfluxDB: where, which API, with what rights. `org` and `token` are for the v2 API, `username` for v1.

    `ca_file` holds the authorities that its certificate is checked against; None: the system's.
    """

    url: str = "http://127.0.0.1:8086"
    api: StoreApi = StoreApi.AUTO
    database: str = "clusterflow"
    org: str = "-"
    token: Secret | None = None
    username: str | None = None
    password: Secret | None = None
    verify_tls: bool = True
    ca_file: str | None = None
    keep_raw: int = 7 * 86_400
    keep_1m: int = 90 * 86_400
    keep_1h: int = 2 * 365 * 86_400


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """How nfacctd and sfacctd run.

    Attributes:
        listen: the address that exporters send to.
        netflow_port, sflow_port: UDP ports.
        spool: where records go.
        refresh: the print interval in seconds.
        rotate: the age of a spool file in seconds.
        sflow_sources: from where sFlow is taken; empty: from everywhere.
        keep_templates: whether nfacctd keeps templates of NetFlow v9 and IPFIX in a file, so that they outlive a
            restart; None: if the exporters are few enough for what that costs.
    """

    listen: str = "0.0.0.0"  # noqa: S104 - exporters are other machines
    netflow_port: int = 2055
    sflow_port: int = 6343
    spool: str = "/var/spool/clusterflow"
    refresh: int = 1
    rotate: int = 60
    sflow_sources: tuple[Network, ...] = ()
    keep_templates: bool | None = None


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
        metrics_token: what /metrics asks for; None: nothing.
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
    metrics_token: Secret | None = None


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Kafka between collectors and workers.

    Attributes:
        brokers: host:port of brokers to ask first; empty where Kafka is not used.
        topic: where flow records are.
        format: what that topic carries.
        group: consumer group of the workers.
        state_topic: where workers keep what they must not forget, compacted.
        partitions: of topics that are made.
        replication: copies of topics that are made; None takes 3, or as many as there are brokers.
        session_timeout: seconds without a sign of life after which a worker's partitions go to others.
        tls: whether connections are encrypted.
        ca_file: certificates to trust, PEM; None trusts those of the system.
        certificate_file, key_file: the client's own, PEM, where brokers ask for it.
        verify_tls: whether the brokers' certificates and names are checked.
        username, password, mechanism: SASL, where brokers ask for it.
    """

    brokers: tuple[str, ...] = ()
    topic: str = "clusterflow-flows"
    format: KafkaFormat = KafkaFormat.CLUSTERFLOW
    group: str = "clusterflow"
    state_topic: str = "clusterflow-state"
    partitions: int = 8
    replication: int | None = None
    session_timeout: int = 45
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    verify_tls: bool = True
    username: str | None = None
    password: Secret | None = None
    mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_512

    @property
    def relays_topic(self) -> str:
        """Where relays keep what they must not forget.

        It is named after the flows, not after the workers' state: who begins that anew must not have spools sent again.
        """
        return f"{self.topic}-relays"


class NamesFormat(StrEnum):
    """What a file with names of addresses is."""

    HOSTS = "hosts"
    CSV = "csv"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class NamesFile:
    """A file that names addresses.

    Attributes:
        name: what it is called.
        file: its path.
        format: hosts: address and names on a line, as /etc/hosts; csv; json: a list of objects, or one in `results`.
        address_column, name_column: where a CSV or JSON file has what.
    """

    name: str
    file: str
    format: NamesFormat = NamesFormat.HOSTS
    address_column: str = "address"
    name_column: str = "dns_name"


@dataclass(frozen=True, slots=True)
class ReverseDns:
    """Names of outside addresses by their PTR records.

    Attributes:
        resolvers: addresses of the name servers that are asked; no others ever are.
        port: theirs.
        timeout: seconds that an answer may take.
        confirm: whether a name is looked up again, to see whether it leads back to the address.
        rate: questions a second at most.
    """

    resolvers: tuple[Address, ...]
    port: int = 53
    timeout: float = 1.0
    confirm: bool = True
    rate: int = 50


@dataclass(frozen=True, slots=True)
class HostNaming:
    """Where names of outside addresses come from; the first file that names an address counts, DNS last."""

    files: tuple[NamesFile, ...] = ()
    reverse_dns: ReverseDns | None = None


class ApplicationFormat(StrEnum):
    """What a file with an application's addresses is."""

    LIST = "list"
    PREFIXES = "prefixes"
    AWS = "aws"
    GOOGLE = "google"
    AZURE = "azure"
    FASTLY = "fastly"


@dataclass(frozen=True, slots=True)
class ApplicationFile:
    """A file that says what outside addresses are.

    Attributes:
        name: what it is called.
        file: its path.
        format: list: YAML of our own; prefixes: one a line; the others as their providers publish them.
        application: what addresses in it are; of a list, which says so itself, empty.
    """

    name: str
    file: str
    format: ApplicationFormat = ApplicationFormat.LIST
    application: str = ""


@dataclass(frozen=True, slots=True)
class Applications:
    """Who tells what outside addresses are. `builtin`: the list that comes with clusterflow, after all files."""

    builtin: bool = False
    files: tuple[ApplicationFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ListSettings:
    """When files that say something about addresses are too old.

    Attributes:
        stale_after: age in seconds from which a list is stale.
        by_list: the same for single lists, by name.
    """

    stale_after: int = 35 * 86_400
    by_list: tuple[tuple[str, int], ...] = ()


class FeedFormat(StrEnum):
    """What a threat feed's file is: a prefix a line, CSV, a STIX 2.1 bundle or a MISP export."""

    LIST = "list"
    CSV = "csv"
    STIX = "stix"
    MISP = "misp"


@dataclass(frozen=True, slots=True)
class FeedColumns:
    """Names of a CSV feed's columns; empty where it has none."""

    address: str = ""
    confidence: str = ""
    start: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class ThreatFeed:
    """A list of addresses that are known to be bad.

    Attributes:
        file: its path.
        columns: of a CSV file.
        confidence: of entries that tell none, 0 to 100.
        least_confidence: entries below it are left out.
    """

    name: str
    file: str
    format: FeedFormat = FeedFormat.LIST
    columns: FeedColumns = field(default_factory=FeedColumns)
    confidence: int = 50
    least_confidence: int = 0


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
    """What links in alerts and the playlist command need.

    `token`, or `username` and `password`: what Grafana reads InfluxDB with; None: what the bridge writes it with.
    """

    url: str = "http://127.0.0.1:3000"
    runbook_url: str = "https://example.invalid/clusterflow/runbook"
    datasource_uid: str = "clusterflow"
    token: Secret | None = None
    username: str | None = None
    password: Secret | None = None


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


class DestinationKind(StrEnum):
    """What events are delivered to."""

    SYSLOG = "syslog"
    SPLUNK = "splunk"
    ELASTIC = "elastic"
    KAFKA = "kafka"
    WEBHOOK = "webhook"
    FILE = "file"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """What every destination of events has.

    Attributes:
        name: in logs, counters and files of the spool.
        kind: what it is.
        events: which kinds of events it gets.
        severities: which severities; empty means all.
        rate: events a second that it gets at most.
    """

    name: str
    kind: DestinationKind
    events: tuple[EventKind, ...] = DELIVERED
    severities: tuple[EventSeverity, ...] = ()
    rate: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SyslogDestination(Destination):
    """A syslog receiver, `address` as host:port. `sd_id` names our structured data, after the number of its owner."""

    address: str
    kind: DestinationKind = DestinationKind.SYSLOG
    transport: SyslogTransport = SyslogTransport.TLS
    format: SyslogFormat = SyslogFormat.RFC5424
    facility: int = 16
    sd_id: str = "clusterflow@32473"
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    verify_tls: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SplunkDestination(Destination):
    """A Splunk HTTP Event Collector."""

    url: str
    token: Secret
    kind: DestinationKind = DestinationKind.SPLUNK
    index: str | None = None
    sourcetype: str = "clusterflow:event"
    ca_file: str | None = None
    verify_tls: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticDestination(Destination):
    """Elasticsearch or OpenSearch; `index` may be a data stream."""

    url: str
    kind: DestinationKind = DestinationKind.ELASTIC
    index: str = "logs-clusterflow-default"
    api_key: Secret | None = None
    username: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    verify_tls: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaDestination(Destination):
    """A topic of Kafka. Without brokers of its own it is on those of the section `kafka`."""

    kind: DestinationKind = DestinationKind.KAFKA
    topic: str = "clusterflow-events"
    brokers: tuple[str, ...] = ()
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    verify_tls: bool = True
    username: str | None = None
    password: Secret | None = None
    mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_512


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDestination(Destination):
    """A URL that takes JSON. `token` is borne as `Authorization: Bearer`; `signing_key` signs the body by HMAC."""

    url: Secret
    kind: DestinationKind = DestinationKind.WEBHOOK
    token: Secret | None = None
    signing_key: Secret | None = None
    ca_file: str | None = None
    verify_tls: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDestination(Destination):
    """A file with an event a line; at `rotate` bytes it becomes ``NAME.1``, of which `keep` are kept."""

    path: str
    kind: DestinationKind = DestinationKind.FILE
    rotate: int = 100_000_000
    keep: int = 5


AnyDestination = (
    SyslogDestination | SplunkDestination | ElasticDestination | KafkaDestination | WebhookDestination | FileDestination
)


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How events get to where a security team lives.

    Attributes:
        destinations: who gets them.
        alerts: who evaluates the rules.
        listen: host:port at which Grafana's webhook is taken, where `alerts` says so.
        token: what that webhook must bear.
        metrics_listen: host:port of /metrics and /healthz, or None.
        state: folder of the spool.
        spool: bytes that it holds at most.
        every: seconds between two looks at the store.
        settle: age in seconds at which what is stored is told of: what it counts has come in by then.
        overlap: how far back, in seconds, points are looked for that were stored late.
    """

    destinations: tuple[AnyDestination, ...] = ()
    alerts: AlertsFrom = AlertsFrom.EVALUATE
    listen: str = "127.0.0.1:9107"
    token: Secret | None = None
    metrics_listen: str | None = "127.0.0.1:9108"
    state: str = "/var/lib/clusterflow/delivery"
    spool: int = 1_000_000_000
    every: int = 10
    settle: int = 60
    overlap: int = 900

    def kinds(self) -> tuple[EventKind, ...]:
        """Return the kinds of events that any destination gets."""
        wanted = {kind for destination in self.destinations for kind in destination.events}
        return tuple(kind for kind in EventKind if kind in wanted)


@dataclass(frozen=True, slots=True)
class Geography:
    """Files (MMDB) that know country, city and network of outside addresses: name and path, in the order of asking."""

    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster, as cluster.yaml describes it. `rules` are files with alert rules of the site's own."""

    name: str
    groups: tuple[Group, ...]
    site: Site = field(default_factory=Site)
    nodes: tuple[Node, ...] = ()
    exporters: tuple[Exporter, ...] = ()
    allowed: tuple[GroupPair, ...] = ()
    authority: tuple[Authority, ...] = ()
    transport: tuple[DeclaredTransport, ...] = ()
    capacity: tuple[PairLimit, ...] = ()
    inference: Inference = field(default_factory=Inference)
    identity: IdentitySettings = field(default_factory=IdentitySettings)
    management: Management = field(default_factory=Management)
    artefacts: tuple[Artefact, ...] = ()
    services: tuple[Service, ...] = ()
    jobs: tuple[Job, ...] = ()
    job_sources: tuple[JobSourceSettings, ...] = ()
    job_classes: tuple[JobClass, ...] = ()
    thresholds: Thresholds = field(default_factory=Thresholds)
    cost: Cost = field(default_factory=Cost)
    store: StoreSettings = field(default_factory=StoreSettings)
    collector: CollectorSettings = field(default_factory=CollectorSettings)
    bridge: BridgeSettings = field(default_factory=BridgeSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    notify: tuple[NotificationTarget, ...] = ()
    grafana: GrafanaSettings = field(default_factory=GrafanaSettings)
    geography: Geography = field(default_factory=Geography)
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
    rules: tuple[str, ...] = ()
    threat_feeds: tuple[ThreatFeed, ...] = ()
    names: HostNaming = field(default_factory=HostNaming)
    applications: Applications = field(default_factory=Applications)
    enrichment: ListSettings = field(default_factory=ListSettings)

    def group(self, group_id: str) -> Group:
        """Return the group with this id; KeyError if there is none."""
        for group in self.groups:
            if group.id == group_id:
                return group
        raise KeyError(group_id)

    def is_inferred(self, job: Job) -> bool:
        """Return whether a job was inferred from traffic: nobody told what kind of job it is, nor when it ends."""
        # Where nobody is to tell of jobs, they are inferred.
        inferred = [one.name for one in self.job_sources or (InferredJobs(),) if one.kind is JobSourceKind.INFERRED]
        return job.origin in inferred

    def job_class(self, name: str) -> JobClass:
        """Return what is known of a job class; one that `job_classes` does not list has the defaults."""
        for known in self.job_classes:
            if known.name == name:
                return known
        return JobClass(name)

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

    def may_ask_inference(self, src: str, dst: str) -> bool:
        """Whether clients of a group may reach an inference group: `inference.sources`, else `allowed`, says so."""
        if src == dst or LOCAL in (src, dst):
            return True
        return self.is_allowed(src, dst) and (not self.inference.sources or src in self.inference.sources)

    def may_open(self, src: str, dst: str, service: str) -> bool:
        """Whether a conversation that a group opens to or from management is expected; True for all other pairs.

        Args:
            src: group that opens it, reserved ones included.
            dst: group that answers.
            service: name of the service, or ``other``.
        """
        what = self.opening(src, dst)
        return what is Opening.ANYTHING or (what is Opening.SERVICES and service in self.management.services)

    def opening(self, src: str, dst: str) -> Opening:
        """Return what a group may open at another; ANYTHING where neither is a management group."""
        management = {group.id for group in self.groups if group.role is Role.MANAGEMENT}
        if src == dst or LOCAL in (src, dst) or not management & {src, dst}:
            return Opening.ANYTHING
        inside = {group.id for group in self.inside_groups()}
        if src in management:
            return Opening.ANYTHING if dst in inside else Opening.SERVICES
        if src in self.management.sources:
            return Opening.ANYTHING
        return Opening.SERVICES if src in inside else Opening.NOTHING

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
