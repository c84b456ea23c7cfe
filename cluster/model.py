"""The frozen objects that cluster.yaml becomes. Base units throughout: bytes, seconds, bits per second, USD.

Sections declare them, each key once; this is the place to import them from. ``cluster.load`` reads a file and hands out
only consistent objects.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from app.errors import UserError
from cluster.scalars import names
from cluster.scalars.declared import Section, key, keys_of, record
from cluster.scalars.kinds import ListOf, MapOf, Secret
from cluster.scalars.names import ALL_NODES
from cluster.sections.archive import ARCHIVE, ArchiveSettings
from cluster.sections.bridge import BRIDGE, BridgeSettings
from cluster.sections.cloud import CLOUD, CloudFormat, CloudSettings
from cluster.sections.collector import COLLECTOR, CollectorSettings
from cluster.sections.delivery import (
    DELIVERED,
    DELIVERY,
    AlertsFrom,
    DeliverySettings,
    Destination,
    ElasticDestination,
    EventKind,
    EventSeverity,
    FileDestination,
    KafkaDestination,
    SplunkDestination,
    SyslogDestination,
    SyslogFormat,
    SyslogTransport,
    WebhookDestination,
)
from cluster.sections.enrichment import (
    APPLICATIONS,
    ENRICHMENT,
    GEOGRAPHY,
    NAMES,
    ApplicationFile,
    ApplicationFormat,
    Applications,
    Geography,
    HostNaming,
    ListSettings,
    NamesFile,
    NamesFormat,
    ReverseDns,
)
from cluster.sections.grafana import GRAFANA, NOTIFY, GrafanaSettings, NotificationTarget
from cluster.sections.identity import IDENTITY, IdentitySettings, SignInColumns, SignInFormat, SignInSource
from cluster.sections.inventory_sources import (
    INVENTORY,
    INVENTORY_SOURCES,
    AnsibleInventory,
    InventorySettings,
    InventorySource,
    KubernetesInventory,
    NetboxInventory,
    SlurmInventory,
)
from cluster.sections.job_classes import JOB_CLASS, CheckpointMode, CheckpointPlan, JobClass
from cluster.sections.job_sources import (
    JOB_SOURCE,
    ClassFrom,
    FileJobs,
    HttpJobs,
    InferredJobs,
    JobSource,
    KubernetesJobs,
    SlurmJobs,
    Workload,
)
from cluster.sections.jobs import JOB, LISTED, Job, Outcome
from cluster.sections.kafka import KAFKA, KafkaFormat, KafkaSettings, SaslMechanism
from cluster.sections.network.exporters import EXPORTER, Exporter, ExportProtocol, Interface, Sampling, SamplingMode
from cluster.sections.network.groups import GROUP, FirstContact, Group, Role
from cluster.sections.network.inference import INFERENCE, AccessEntry, Inference, InferenceHours
from cluster.sections.network.kept_inventory import Machine, SourceInUse
from cluster.sections.network.maintenance import WEEK, Maintenance
from cluster.sections.network.management import MANAGEMENT, MANAGEMENT_SERVICES, Artefact, Management, Opening
from cluster.sections.network.nodes import NODE, Node, NodeAddress
from cluster.sections.network.pairs import (
    ALLOWED,
    AUTHORITY,
    CAPACITY,
    TRANSPORT,
    Authority,
    DeclaredTransport,
    GroupPair,
    PairLimit,
    Transport,
)
from cluster.sections.network.services import SERVICES, Service
from cluster.sections.network.site import COST, SITE, Cost, OffHours, Site
from cluster.sections.store import STORE, Retention, StoreApi, StoreSettings
from cluster.sections.threat_feeds import THREAT_FEED, FeedColumns, FeedFormat, ThreatFeed
from cluster.sections.thresholds import THRESHOLDS, Thresholds
from cluster.vocabulary import (
    ANY,
    EXTERNAL,
    LOCAL,
    LOCAL_PREFIXES,
    NOBODYS_PREFIXES,
    PRIVATE_PREFIXES,
    RESERVED_GROUPS,
    UNLISTED,
    Address,
    Network,
    Plane,
)

MOST_GROUPS = 200
"""What is stored grows with the square of the groups, and ingest numbers them in one byte."""


# fmt: off
@record
class Cluster:
    """One cluster, as cluster.yaml describes it. `rules` and `boards` are files of the site's own."""

    name: str = key(names.NAME, "The cluster's name.", name="cluster", example="demo")
    groups: tuple[Group, ...] = key(MapOf(names.GROUP_ID, GROUP, at_least=1, at_most=MOST_GROUPS),
        "Addresses that belong together.")
    site: Site = key(SITE, "Where the cluster stands.", default=Site())
    inventory: InventorySettings = key(INVENTORY, "Nodes that stand elsewhere: a CSV file, Slurm, Kubernetes, NetBox, "
        "Ansible.", default=InventorySettings(), absent="none", example="nodes.csv")
    nodes: tuple[Node, ...] = key(MapOf(names.NODE_PATTERN, NODE),
        "The inventory: at most 262,144 nodes and addresses. A name with ranges has at most 200 characters.",
        default=())
    exporters: tuple[Exporter, ...] = key(MapOf(names.NAME_PATTERN, EXPORTER),
        "The devices that export flows; a name may be a range.", default=())
    allowed: tuple[GroupPair, ...] = key(ListOf(ALLOWED), "Who may send to whom.", default=())
    authority: tuple[Authority, ...] = key(ListOf(AUTHORITY), "Whose count is the truth.", default=())
    transport: tuple[DeclaredTransport, ...] = key(ListOf(TRANSPORT), "How pairs talk.", default=())
    capacity: tuple[PairLimit, ...] = key(ListOf(CAPACITY), "What group pairs can carry.", default=())
    inference: Inference = key(INFERENCE, "What is expected of the clients of inference nodes.", default=Inference())
    identity: IdentitySettings = key(IDENTITY, "Who has which address when.", default=IdentitySettings())
    management: Management = key(MANAGEMENT, "What is expected at groups of role management.", default=Management())
    artefacts: tuple[Artefact, ...] = key(MapOf(names.NAME, names.SIZE),
        "Sizes of things worth stealing, such as model weights: volumes are compared with them.", default=(),
        example="{llama-70b: 141 GB}")
    services: tuple[Service, ...] = key(SERVICES, "Names for ports.", default=())
    jobs: tuple[Job, ...] = key(ListOf(JOB), "Job windows.", default=())
    job_sources: tuple[JobSource, ...] = key(ListOf(JOB_SOURCE), "Who else knows job windows, beside `jobs`.",
        default=(), absent="`jobs`; without any, `inferred`")
    job_classes: tuple[JobClass, ...] = key(MapOf(names.JOB_ID, JOB_CLASS), "What is known of every job of a class.",
        default=())
    thresholds: Thresholds = key(THRESHOLDS, "Every number that an alert compares with.", default=Thresholds())
    cost: Cost = key(COST, "What an idle GPU costs.", default=Cost())
    store: StoreSettings = key(STORE, "InfluxDB.", default=StoreSettings())
    collector: CollectorSettings = key(COLLECTOR, "How nfacctd and sfacctd run.", default=CollectorSettings())
    cloud: CloudSettings = key(CLOUD, "Flow logs of a cloud provider.", default=CloudSettings())
    bridge: BridgeSettings = key(BRIDGE, "How flow records become windows.", default=BridgeSettings())
    archive: ArchiveSettings = key(ARCHIVE, "What is kept of single conversations.", default=ArchiveSettings())
    kafka: KafkaSettings = key(KAFKA, "Kafka between collectors and workers.", default=KafkaSettings())
    notify: tuple[NotificationTarget, ...] = key(MapOf(names.NAME, NOTIFY), "Where alerts go.", default=())
    grafana: GrafanaSettings = key(GRAFANA, "What links need.", default=GrafanaSettings())
    geography: Geography = key(GEOGRAPHY, "Country, city and network of outside addresses.", default=Geography())
    delivery: DeliverySettings = key(DELIVERY, "Events for a SIEM.", default=DeliverySettings())
    rules: tuple[str, ...] = key(ListOf(names.PATH),
        "Alert rules of your own (docs/extending.md): Python files beside this one, which are run as code.",
        default=(), example="[my_rules/backup_size.py]")
    boards: tuple[str, ...] = key(ListOf(names.PATH),
        "Boards of your own (docs/extending.md): Python files beside this one, which are run as code.", default=(),
        example="[my_boards/storage_team.py]")
    threat_feeds: tuple[ThreatFeed, ...] = key(MapOf(names.NAME, THREAT_FEED),
        "Lists of addresses that are known to be bad.", default=())
    names: HostNaming = key(NAMES, "Names of outside addresses.", default=HostNaming())
    applications: Applications = key(APPLICATIONS, "What outside addresses are.", default=Applications())
    enrichment: ListSettings = key(ENRICHMENT, "When lists are too old.", default=ListSettings())
    # fmt: on
    sources: tuple[SourceInUse, ...] = field(default=(), compare=False)
    """What was taken from each source of `inventory`."""
    _allowed: frozenset[tuple[str, str]] = field(default=frozenset(), init=False, repr=False, compare=False)
    """What `allowed` lists: boards and rules of 200 groups ask for it half a million times."""

    def __post_init__(self) -> None:
        """Keep what `is_allowed` looks up."""
        object.__setattr__(self, "_allowed", frozenset((pair.src, pair.dst) for pair in self.allowed))

    @property
    def prefixes_folder(self) -> Path:
        """Where the last good versions of files with prefixes are kept."""
        return Path(self.bridge.state) / "prefixes"

    @property
    def inventory_folder(self) -> Path:
        """Where the last answers of inventory sources are kept."""
        return Path(self.bridge.state) / "inventory"

    def group(self, group_id: str) -> Group:
        """Return the group with this id; KeyError if there is none."""
        for group in self.groups:
            if group.id == group_id:
                return group
        raise KeyError(group_id)

    def site_of(self, group_id: str) -> Site:
        """Return the site with a group's own off-hours, where it has any; the site's for reserved groups."""
        own = next((group.off_hours for group in self.groups if group.id == group_id), None)
        if own is None:
            return self.site
        return replace(self.site, off_hours=replace(own, holidays=own.holidays or self.site.off_hours.holidays))

    def own_hours(self) -> tuple[str, ...]:
        """Return the groups with off-hours of their own."""
        return tuple(group.id for group in self.groups if group.off_hours is not None)

    def is_inferred(self, job: Job) -> bool:
        """Return whether a job was inferred from traffic: nobody told what kind of job it is, nor when it ends."""
        # Where nobody is to tell of jobs, they are inferred.
        inferred = [one.name for one in self.job_sources or (InferredJobs(),) if isinstance(one, InferredJobs)]
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

    def nodes_with(self, *roles: Role) -> tuple[Node, ...]:
        """Return the nodes of the groups of these roles, in the order of the file."""
        groups = {group.id for group in self.groups_with(*roles)}
        return tuple(node for node in self.nodes if node.group in groups)

    def group_ids(self) -> tuple[str, ...]:
        """Return the ids of all groups, reserved ones included."""
        return (*(group.id for group in self.groups), *RESERVED_GROUPS)

    def groups_of(self, text: str, option: str = "") -> tuple[str, ...]:
        """Return the groups that a text names: one by its id, or all of a role.

        UserError with the option's name where it is neither; without one, nothing.
        """
        if text in self.group_ids():
            return (text,)
        found = tuple(group.id for group in self.groups if group.role == text)
        if option and not found:
            known = self.group_ids()
            roles = [role.value for role in Role if role.value not in known]
            raise UserError(
                f"{option} {text}: no such group", f"there are {', '.join(known)}; roles: {', '.join(roles)}"
            )
        return found

    def inside_groups(self) -> tuple[Group, ...]:
        """Return the groups that are part of the cluster."""
        return tuple(group for group in self.groups if not group.is_outside)

    def outside_ids(self) -> tuple[str, ...]:
        """Return the ids of everything outside the cluster: unknown, then approved."""
        return (EXTERNAL, *(group.id for group in self.groups if group.is_outside))

    def stranger_ids(self) -> tuple[str, ...]:
        """Return the source groups of egress that are none of the cluster's."""
        return (UNLISTED, *self.outside_ids())

    def title(self, group_id: str) -> str:
        """Return a group's name for people, reserved groups included."""
        if group_id == UNLISTED:
            return "Unlisted Addresses"
        return RESERVED_GROUPS[group_id] if group_id in RESERVED_GROUPS else self.group(group_id).title

    def is_allowed(self, src: str, dst: str) -> bool:
        """Whether `allowed` lists the conversation. Traffic within a group and local traffic is always allowed."""
        if src == dst or LOCAL in (src, dst):
            return True
        return not self._allowed.isdisjoint(((src, dst), (src, ANY), (ANY, dst), (ANY, ANY)))

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


_NAME, _GROUPS, _SITE, *_REST = keys_of(Cluster)
ROOT = Section("cluster.yaml", (_NAME, _SITE, _GROUPS, *_REST), owner=Cluster)
"""The whole file."""
