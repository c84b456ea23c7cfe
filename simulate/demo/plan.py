"""The demo: a cluster.yaml of its own for each run, some days of history, then a night with incidents in it.

The cluster is the committed one. Its site moves to where it is night now, so that off-hours incidents can be staged at
any time of day, and it gets the job windows of the simulated runs. The last of them runs on when the live phase begins.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from app.errors import UserError
from cluster.dump import dump_cluster
from cluster.model import (
    CheckpointMode,
    CloudFormat,
    CloudSettings,
    Cluster,
    Job,
    JobClass,
    KafkaSettings,
    OffHours,
    Role,
    StoreApi,
)
from simulate.demo.demo_lists import with_lists
from simulate.incidents.exfiltration_evidence import with_exfiltration
from simulate.incidents.incident import Incident, IncidentKind, Transfer, of_transfers
from simulate.incidents.stage import Stage
from simulate.incidents.staging_egress import (
    approved_transfer,
    bulk_exfil,
    first_contact,
    known_bad,
    off_hours_transfer,
    on_feed,
)
from simulate.incidents.staging_inside import (
    forbidden_transfer,
    incast,
    inference_intruder,
    management_intruder,
    refused_scan,
    shadow_node,
    storage_bleed,
    unusual_country,
)
from simulate.incidents.staging_jobs import (
    checkpoint_late,
    checkpoint_short,
    cohort_slowdown,
    job_stalled,
    node_dropout,
    rack_down,
)
from simulate.scenarios.scenario import Phase, Profile, Scenario, runs_of
from simulate.traffic.cast import Cast, nodes_with

LIVE_RUN = 2 * 3600
"""Seconds before the end of history at which the job begins that still runs in the live phase."""
RUN_SECONDS = 40 * 60
RUNS_BEFORE = (4 * 3600 + 1800, 12 * 3600 + 1800, 20 * 3600 + 1800)
"""Seconds before the end of each day of history at which its runs begin."""
CHECKPOINT_SECONDS = 600
"""From checkpoint to checkpoint."""

_MINUTE, _HOUR = 60, 3600
_MIRROR_EVERY, _MIRROR_SECONDS, _MIRROR_BYTES = 300, 20, 40_000_000
_STRANGERS = 70
"""The first addresses outside that nobody meets live; their networks are others, too, so that those stay new."""


@dataclass(frozen=True, slots=True)
class _Past:
    """Something that happened: so many seconds before the end of history, for so long."""

    before: int
    seconds: int
    make: Callable[..., Incident]


# The last hour holds one of each that boards show over an hour. It is all over before the 15 minutes that rules look
# back.
_PAST = (
    _Past(20 * _HOUR + 15 * _MINUTE, 5 * _MINUTE, cohort_slowdown),
    _Past(19 * _HOUR, 30, forbidden_transfer),
    _Past(16 * _HOUR, 10, first_contact),
    _Past(14 * _HOUR, 30, shadow_node),
    _Past(12 * _HOUR + 15 * _MINUTE, 3 * _MINUTE, rack_down),
    _Past(11 * _HOUR, 20, known_bad),
    _Past(9 * _HOUR, 10, first_contact),
    _Past(7 * _HOUR, 30, management_intruder),
    _Past(4 * _HOUR + 15 * _MINUTE, 4 * _MINUTE, job_stalled),
    _Past(100 * _MINUTE, CHECKPOINT_SECONDS, checkpoint_short),
    _Past(58 * _MINUTE, 6 * _MINUTE, node_dropout),
    _Past(50 * _MINUTE, CHECKPOINT_SECONDS, checkpoint_late),
    _Past(47 * _MINUTE, 10, first_contact),
    _Past(44 * _MINUTE, 30, forbidden_transfer),
    _Past(41 * _MINUTE, 30, shadow_node),
    _Past(38 * _MINUTE, 30, storage_bleed),
    _Past(35 * _MINUTE, 20, known_bad),
    _Past(32 * _MINUTE, 30, management_intruder),
    _Past(29 * _MINUTE, 30, inference_intruder),
    _Past(26 * _MINUTE, 30, unusual_country),
    _Past(23 * _MINUTE, 30, incast),
)

_DETAILS: dict[Callable[..., Incident], dict[str, object]] = {
    # Another node than those that are low live, and late enough to be late, but not missed.
    node_dropout: {"position": 0.6},
    checkpoint_late: {"seconds": 200},
    known_bad: {"volume": 3_000_000_000},
}


def past_incidents(stage: Stage, end: int) -> Iterator[Incident]:
    """Yield what happened before `end` (epoch seconds); what the cluster has no nodes for did not.

    They owe no alert: nobody looked then.
    """
    for number, one in enumerate(_PAST):
        start = end - one.before
        place = replace(stage, number=_STRANGERS + number)
        with suppress(UserError):
            incident = one.make(place, start, start + one.seconds, **_DETAILS.get(one.make, {}))
            yield replace(incident, id=f"{incident.id}-{one.before // _MINUTE}m-before", alerts=())
    business = stage.business_hours()
    if business is not None:
        yield approved_transfer(stage, *business)


def mirror(stage: Stage, start: int, end: int) -> Incident:
    """Return what goes out by night, too: model storage keeps a partner's copy fresh, before the live phase and in it.

    Little enough for every rule, off-hours included; and not between those who have a part in an incident.
    """
    source, partner = stage.nodes(Role.MODEL_STORAGE)[0], stage.partner(1)
    address = stage.address(source)
    transfers = tuple(
        Transfer(address, partner, at, at + _MIRROR_SECONDS, _MIRROR_BYTES) for at in range(start, end, _MIRROR_EVERY)
    )
    kind, name = IncidentKind.APPROVED_TRANSFER, f"mirror-{source.name}"
    return of_transfers(kind, source.name, partner, transfers, (), id=name, start=start, end=end)


JOB_CLASS = "llama-70b"
HISTORY_DAYS = 2

_DAY = 86_400
_HISTORY_TIMEOUT, _HISTORY_SLICE, _HISTORY_COARSE = 60, 3600, 60
RECENT = 10 * 60
"""Seconds before the live phase, about, that have its resolution."""
_CHECKPOINT_TOLERANCE = 120
_LIVE_TIMEOUT = 10
_CLOUD_LATENESS = 120
"""Of logs that sum up over a minute and lie in the folder 10 s later, where the bridge takes them 10 s after that."""
_SLOW_NODE_SHARE = 0.6

_ZONES = (
    "Pacific/Auckland", "Pacific/Noumea", "Australia/Brisbane", "Asia/Tokyo", "Asia/Singapore", "Asia/Bangkok",
    "Asia/Dhaka", "Asia/Tashkent", "Asia/Dubai", "Europe/Istanbul", "Europe/Helsinki", "Europe/Amsterdam",
    "Europe/London", "Atlantic/Azores", "Atlantic/South_Georgia", "America/Sao_Paulo", "America/Halifax",
    "America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles", "America/Anchorage",
    "Pacific/Honolulu", "Pacific/Pago_Pago",
)  # fmt: skip
"""One real zone for about every hour of the day."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the demo's parts live: ports of the loopback interface, and folders of this run.

    `folder` holds what is known of addresses and what is delivered; None: nothing is known, and nothing delivered.
    `pages_port` is where the delivery shows its pages, with a folder.
    `logs`: folder of AWS VPC flow logs, where these are the records, and no exporter sends; None: exporters send.
    `grafana_url`: where links lead; None: where those of the committed cluster do.
    """

    store_url: str
    netflow_port: int
    sflow_port: int
    metrics_port: int
    spool: Path
    state: Path
    folder: Path | None = None
    pages_port: int = 9108
    grafana_url: str | None = None
    logs: Path | None = None


def night_zone(now: datetime, hours: OffHours) -> str:
    """Return the zone in which `now` (aware) is nearest to the middle of the daily off-hours."""
    begin, end = (moment.hour * 60 + moment.minute for moment in (hours.start, hours.end))
    middle = (begin + ((end - begin) % 1440) // 2) % 1440

    def distance(zone: str) -> int:
        local = now.astimezone(ZoneInfo(zone))
        apart = (local.hour * 60 + local.minute - middle) % 1440
        return min(apart, 1440 - apart)

    return min(_ZONES, key=distance)


def live_start(now: datetime, lead: int = 0) -> int:
    """Return the first moment at least `lead` seconds after `now` at which a live phase may begin, epoch seconds."""
    return -(-(int(now.timestamp()) + lead + 1) // _LIVE_TIMEOUT) * _LIVE_TIMEOUT


def demo_cluster(base: Cluster, *, start: int, places: Places, history_days: int = HISTORY_DAYS) -> str:
    """Return the cluster.yaml of one run of the demo.

    Args:
        base: the committed cluster.yaml, loaded.
        start: begin of the live phase, epoch seconds (see `live_start`); with a history any moment before it will do.
        places: ports and folders.
        history_days: days before it that hold earlier runs of the job; with none, the job begins with the live phase.
    """
    zone = night_zone(datetime.fromtimestamp(start, UTC), base.site.off_hours)
    nodes = tuple(node.name for node in nodes_with(base, Role.TRAINING))
    windows = _windows(start, history_days) if nodes else []
    cluster = replace(
        base,
        site=replace(base.site, time_zone=ZoneInfo(zone)),
        jobs=tuple(_job(begin, end, nodes) for begin, end in windows),
    )
    if places.logs is not None:
        cluster = replace(
            cluster,
            exporters=(),
            authority=(),
            cloud=replace(base.cloud, format=CloudFormat.AWS, folder=str(places.logs)),
            bridge=replace(cluster.bridge, lateness=_CLOUD_LATENESS),
        )
    if history_days:
        cluster = replace(cluster, job_classes=_job_classes(base))
    return placed(cluster, places)


def placed(cluster: Cluster, places: Places) -> str:
    """Return the cluster.yaml of a cluster whose parts live in these places.

    The cluster may be one in earnest: its parts neither write to its flow archive and logs, nor ask its schedulers.
    """
    cluster = replace(
        cluster,
        store=replace(
            cluster.store,
            url=places.store_url,
            api=StoreApi.AUTO,
            token=None,
            username=None,
            password=None,
            lease=False,
        ),
        collector=replace(
            cluster.collector,
            listen="127.0.0.1",
            netflow_port=places.netflow_port,
            sflow_port=places.sflow_port,
            sflow_sources=(),
            spool=str(places.spool),
        ),
        bridge=replace(
            cluster.bridge,
            state=str(places.state),
            metrics_listen=f"127.0.0.1:{places.metrics_port}",
            metrics_token=None,
        ),
        archive=replace(cluster.archive, folder=None, bucket=None),
        kafka=KafkaSettings(),
        job_sources=(),
        cloud=CloudSettings() if places.logs is None else cluster.cloud,
    )
    if places.grafana_url is not None:
        cluster = replace(cluster, grafana=replace(cluster.grafana, url=places.grafana_url))
    if places.folder is not None:
        cluster = with_lists(cluster, places.folder, places.pages_port)
    head = "# Written for one run of the demo: the cluster with its job windows, ports, files and folders.\n"
    return head + dump_cluster(cluster)


def demo_scenario(
    cluster: Cluster,
    *,
    start: int,
    seconds: int,
    seed: int = 1,
    history_days: int = HISTORY_DAYS,
    history_end: int | None = None,
    quiet: bool = False,
) -> Scenario:
    """Return what the demo plays.

    Args:
        cluster: read from the text of `demo_cluster`.
        start: begin of the live phase, epoch seconds.
        seconds: its length; rounded up to whole records.
        seed: of everything drawn.
        history_days: days of history; 0 for none.
        history_end: where those days end, epoch seconds; by default where the live phase begins. What lies between is
            played as if it were live.
        quiet: without incidents and near misses in the live phase.
    """
    seconds = -(-seconds // _LIVE_TIMEOUT) * _LIVE_TIMEOUT
    live = Phase(start, start + seconds, _LIVE_TIMEOUT, _LIVE_TIMEOUT)
    history_end = start if history_end is None else history_end
    runs = runs_of(cluster, live)
    history = recent = None
    if history_days:
        runs = tuple(replace(run, checkpoint_every=CHECKPOINT_SECONDS) for run in runs)
        history, recent = phases_before(live, history_end, history_days * _DAY)
    # One node is slower than the others, and always was: its own baseline knows.
    nodes = runs[-1].nodes if runs else ()
    shares = ((nodes[-3], _SLOW_NODE_SHARE),) if len(nodes) >= 8 else ()
    profile = Profile(job_class=JOB_CLASS, shares=shares)
    stage = Stage(cluster, Cast(cluster), profile, runs, history, seed)
    past = _past(stage, history_end // 60 * 60, live.end) if history_days else ()
    incidents = () if quiet else tuple(_incidents(stage, live))
    staged = tuple(_as_late(one, cluster) for one in with_exfiltration(stage, (*past, *incidents)))
    return Scenario(seed, live, history, profile, runs, staged, recent=recent)


def phases_before(live: Phase, history_end: int, seconds: int) -> tuple[Phase, Phase]:
    """Return so much history, about, and what lies between it and the live phase, in that one's resolution."""
    turn = (history_end - RECENT) // _HISTORY_TIMEOUT * _HISTORY_TIMEOUT
    first = turn - seconds // _HISTORY_TIMEOUT * _HISTORY_TIMEOUT
    history = Phase(first, turn, _HISTORY_TIMEOUT, _HISTORY_SLICE, _HISTORY_COARSE)
    return history, replace(live, start=turn, end=live.start)


def _as_late(incident: Incident, cluster: Cluster) -> Incident:
    """Return an incident whose alerts may be as late as a cloud's logs."""
    late = cluster.bridge.lateness if cluster.cloud.format else 0
    return replace(incident, alerts=tuple(replace(alert, until=alert.until + late) for alert in incident.alerts))


def _windows(start: int, history_days: int) -> list[tuple[int, int | None]]:
    """Return the job windows: the same runs on each day of history, and the one that has no end."""
    if not history_days:
        return [(start, None)]
    end = start // 60 * 60
    days = (end - day * _DAY for day in reversed(range(history_days)))
    begins = [day - before for day in days for before in reversed(RUNS_BEFORE)]
    return [*((begin, begin + RUN_SECONDS) for begin in begins), (end - LIVE_RUN, None)]


def _past(stage: Stage, end: int, live_end: int) -> tuple[Incident, ...]:
    """Return what happened before `end`, and what began then and goes on."""
    found = tuple(past_incidents(stage, end))
    if stage.cluster.groups_with(Role.APPROVED_EXTERNAL) and stage.cluster.groups_with(Role.MODEL_STORAGE):
        found = (*found, mirror(stage, end - _DAY, live_end))
    return found


def _job_classes(base: Cluster) -> tuple[JobClass, ...]:
    """Return the job classes; the demo's has checkpoints as often as the demo writes them."""
    known = base.job_class(JOB_CLASS)
    plan = replace(
        known.checkpoint, mode=CheckpointMode.SCHEDULED, every=CHECKPOINT_SECONDS, tolerance=_CHECKPOINT_TOLERANCE
    )
    return (replace(known, checkpoint=plan), *(one for one in base.job_classes if one.name != JOB_CLASS))


def _job(begin: int, end: int | None, nodes: tuple[str, ...]) -> Job:
    name = f"{JOB_CLASS}-{datetime.fromtimestamp(begin, UTC):%m%d-%H%M}"
    stop = None if end is None else datetime.fromtimestamp(end, UTC)
    return Job(name, JOB_CLASS, nodes, datetime.fromtimestamp(begin, UTC), stop)


def _incidents(stage: Stage, live: Phase) -> list[Incident]:
    """Return what happens in the live phase, and the near misses; those that do not fit into it are left out."""
    start = live.start
    nearly = 1 - 1.5 * stage.profile.noise
    # Each has a stranger of its own.
    second = replace(stage, number=1)

    def exfiltration() -> Incident:
        incident = bulk_exfil(stage, start + 20, start + 50)
        return on_feed(stage, incident) if stage.cluster.threat_feeds else incident

    planned: list[tuple[int, Callable[[], Incident]]] = [
        (18, lambda: first_contact(second, start + 15, start + 18)),
        (50, exfiltration),
        (45, lambda: off_hours_transfer(stage, start + 25, start + 45)),
        (60, lambda: node_dropout(stage, start + 30, live.end, share=0.8)),
        (40, lambda: management_intruder(stage, start + 20, start + 40)),
        (45, lambda: inference_intruder(stage, start + 25, start + 45)),
        (35, lambda: off_hours_transfer(stage, start + 15, start + 35, factor=0.5)),
        (60, lambda: node_dropout(stage, start + 30, live.end, share=nearly, position=0.7)),
    ]
    if stage.cluster.cloud.format:
        planned.append((45, lambda: refused_scan(stage, start + 15, start + 45)))
        planned.append((60, lambda: refused_scan(stage, start, live.end, targets=1, position=0.2)))
    return [make() for needed, make in planned if live.start + needed <= live.end]
