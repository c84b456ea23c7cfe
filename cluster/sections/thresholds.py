"""The section `thresholds`: every number that an alert compares with. Bytes and seconds."""

from app.units import format_duration
from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import Number, Table, Whole
from cluster.scalars.names import DAY

_WINDOW = names.seconds(10, 7 * DAY)


# fmt: off
@record
class Thresholds:
    """Every number that an alert compares with."""

    exfil_volume: int = key(names.SIZE,
        "Bulk exfiltration: bytes that model storage may send to anything not approved within `exfil_window`.",
        default=50_000_000_000)
    exfil_window: int = key(_WINDOW, "The window of `exfil_volume` and `exfil_off_hours`.", default=900)
    exfil_off_hours: int = key(names.SIZE,
        "Exfiltration: bytes that all watched groups together may send to unapproved addresses within `exfil_window`, "
        "off-hours. At other hours the limit is `exfil_volume`.", default=10_000_000_000)
    exfil_24h: int = key(names.SIZE,
        "The same within 24 hours, with what is beyond the learnt volume of approved destinations and of answers.",
        default=50_000_000_000)
    exfil_7d: int = key(names.SIZE, "The same within 7 days, without learnt volumes.", default=100_000_000_000)
    exfil_30d: int = key(names.SIZE, "The same within 30 days.", default=130_000_000_000)
    exfil_answers: int = key(names.SIZE,
        "Bytes of answers that one client of inference may get within 24 hours before its own volume is judged.",
        default=20_000_000_000)
    exfil_spreads: float = key(Number(1, 100),
        "Learnt volumes: standard deviations above the mean of earlier days that a day may reach.", default=6.0)
    channel_bytes: int = key(names.SIZE,
        "Hidden channel: bytes that all watched groups together may send to unapproved addresses within an hour "
        "through tunnels (GRE, ESP, IP in IP, VXLAN, QUIC); as much to ports without a service.",
        default=1_000_000_000)
    channel_small_bytes: int = key(names.SIZE, "The same over ICMP, DNS and NTP.", default=200_000_000)
    pull_bytes: int = key(names.SIZE,
        "Pull: bytes that outsiders which nobody approved may fetch from watched groups within an hour; inference, "
        "which answers anybody, aside.", default=2_000_000_000)
    steady_bytes: int = key(names.SIZE,
        "Steady connection: bytes that connections to unapproved addresses which were open at a constant rate for 12 "
        "hours may have sent in them.", default=1_000_000_000)
    beacon_score: float = key(Number(0.6, 1),
        "Beacon: score from which on a conversation that comes back as by a clock alerts.", default=0.75)
    beacon_sources: int = key(Whole(1, 1_000_000),
        "Sources that may call the same destination and still be a beacon: what more of them call is a service.",
        default=3)
    first_contact_bytes: int = key(names.SIZE_OR_ZERO,
        "First contact: bytes that a first-ever external connection may have; 0 alerts for each.", default=0)
    threat_bytes: int = key(names.SIZE_OR_ZERO,
        "Known bad: bytes that a conversation with an address on a threat feed may have, in one direction, within "
        "`threat_window`; refused attempts to connect stay below it. 0 alerts for each.", default=1_000)
    threat_window: int = key(_WINDOW, "The window of `threat_bytes`.", default=900)
    threat_look_back: int = key(names.seconds(0, 2 * 365 * DAY),
        "Late matches: how far back stored traffic is searched when a feed lists something new, as far as minutes "
        "are kept. 0: not at all.", default=30 * 86_400)
    contact_learning: int = key(names.seconds(0, 365 * DAY),
        "First contact and new network: history it takes before any contact, or any network, is called new.",
        default=86_400)
    new_network_bytes: int = key(names.SIZE_OR_ZERO,
        "New network: bytes that a group may send to a network (autonomous system) within `new_network_window` "
        "before it counts as one that it sends to; the first time that it sends more is told. 0 tells of any.",
        default=10_000_000)
    new_network_window: int = key(_WINDOW, "The window of `new_network_bytes`.", default=900)
    off_hours_bytes: int = key(names.SIZE,
        "Off-hours transfer: bytes that a sensitive group may send outside in `off_hours_window`, off-hours.",
        default=1_000_000_000)
    off_hours_window: int = key(_WINDOW, "The window of `off_hours_bytes`.", default=900)
    low_and_slow_24h: int = key(names.SIZE,
        "Low and slow: bytes that a source may send to one outside destination, approved or not, within 24 hours, "
        "bursts that `exfil_volume` told of aside.", default=50_000_000_000)
    low_and_slow_7d: int = key(names.SIZE, "The same within 7 days.", default=100_000_000_000)
    recurrence_days: int = key(Whole(2, 30),
        "Recurring dependency: days of the last 30 on which an unlisted destination may be called.", default=5)
    recurrence_hours: int = key(Whole(2, 168), "Hours of the last 7 days in which it may be called.", default=48)
    violation_window: int = key(_WINDOW,
        "The window of `violation_bytes`, `violation_flows`, `shadow_node_bytes`, `storage_on_compute_bytes`, "
        "`management_bytes`, `first_session_bytes` and `refused_targets`.", default=900)
    violation_bytes: int = key(names.SIZE,
        "Segmentation: bytes that a conversation which `allowed` does not list may have; stray packets stay below it.",
        default=1_000_000)
    violation_flows: int = key(Whole(1, 1_000_000_000),
        "Flow records that it may have, whatever their bytes: a scan has many. Holds for shadow nodes too.",
        default=100)
    refused_targets: int = key(Whole(2, 1_000_000),
        "Refused inside: destinations of a group, or ports of one, from which on refusals of one source within "
        "`violation_window` alert. A health check or a client with a wrong address calls one, or a few.", default=10)
    refused_protected: int = key(Whole(2, 1_000_000),
        "The same where the group is sensitive, management or model storage.", default=3)
    shadow_node_bytes: int = key(names.SIZE,
        "Shadow node: bytes that an address in a group's prefix may send that no inventory knows.", default=10_000)
    storage_on_compute_bytes: int = key(names.SIZE,
        "Storage on the compute plane: bytes that a node may exchange with storage over the compute plane.",
        default=1_000_000_000)
    management_bytes: int = key(names.SIZE,
        "Unexpected management connection: bytes that it may have; refused attempts to connect stay below it.",
        default=2_000)
    first_session_bytes: int = key(names.SIZE,
        "First management session: bytes, both directions together, that a source may exchange with a group by a "
        "management service that it never opened there, within `violation_window`; below, it makes nothing known.",
        default=2_000)
    session_learning: int = key(names.seconds(0, 365 * DAY),
        "First management session: history of management services that it takes before anything is called new.",
        default=7 * 86_400)
    dropout_spreads: float = key(Number(1, 100),
        "Node dropout: how many spreads below its own past a node's share may fall. Lower finds more, also more that "
        "is nothing.", default=4.0)
    dropout_min_runs: int = key(Whole(1, 1_000),
        "Earlier runs of the job's class that must exist before a node is judged; with fewer it is learning.",
        default=3)
    dropout_max_runs: int = key(Whole(1, 1_000), "Earlier runs that the baseline uses, newest first.", default=10)
    dropout_for: int = key(names.seconds(0, DAY), "How long a node must stay low before it alerts.", default=20)
    dropout_digest: int = key(Whole(1, 1_000_000),
        "Nodes of one job that may be low or down at once and still alert each for itself; more are one alert.",
        default=4)
    slowdown_spreads: float = key(Number(1, 100),
        "Cohort slowdown: how many spreads below earlier runs of its class the rate of a whole cohort may fall.",
        default=4.0)
    slowdown_for: int = key(names.seconds(0, DAY), "How long a cohort must stay slow before it alerts.", default=120)
    stalled_for: int = key(names.seconds(0, DAY),
        "How long a job must be without training traffic before it alerts. Pauses as earlier runs had them, "
        "checkpoints and loading of data are no stalls.", default=120)
    analysis_silent: int = key(names.seconds(10, DAY), "Silence of the analysis that alerts.", default=120)
    incast_sources: int = key(Whole(2, 100_000),
        "Incast: how many nodes must write at once to one storage endpoint, or to a few, while its peers idle.",
        default=8)
    incast_share: float = key(Number(0.1, 1),
        "Of the bytes that usually go to the other endpoints, the share that must go to these instead. A checkpoint "
        "that all endpoints take in as usual has none, however large it is.", default=0.5)
    incast_bytes: int = key(names.SIZE, "Bytes that such a burst must have brought within ten minutes.",
        default=5_000_000_000)
    incast_for: int = key(names.seconds(0, 600), "How long it must last before it alerts.", default=20)
    held_silent_for: int = key(names.seconds(60, 7 * DAY),
        "Held but silent: how long nodes of a running job may neither send nor read before they alert, with what "
        "their GPUs cost.", default=1800)
    disturbance_bytes: int = key(names.SIZE,
        "Bytes that nodes of another job, of none, or of another group on the compute plane may send to nodes of a "
        "job within `disturbance_window`.", default=50_000_000_000)
    disturbance_window: int = key(names.WHOLE_MINUTES, "Length of that window, in whole minutes.", default=300)
    rail_low: float = key(Number(0.05, 1),
        "Low rail: part of the bytes that a node's rail should have sent, by its other rails and the job's others, "
        "that may be missing within `rail_low_window`.", default=0.5)
    rail_low_window: int = key(names.WHOLE_MINUTES, "Length of that window, in whole minutes.", default=300)
    rail_low_bytes: int = key(names.SIZE,
        "Bytes that it should have sent in that window; of less, sampling leaves too little to judge.",
        default=20_000_000_000)
    packet_size_low: float = key(Number(0.05, 1),
        "Small packets: by which part a node's packets to training nodes may be smaller than those of its job's median "
        "node. One step of RDMA's MTU is half.", default=0.4)
    packet_size_window: int = key(names.WHOLE_MINUTES, "Length of its window, in whole minutes.", default=600)
    packet_size_packets: int = key(Whole(1, 1_000_000_000_000),
        "Packets of a node in that window, scaled, below which their size says nothing.", default=10_000_000)
    ecn_marks: float = key(Number(0.0001, 1),
        "ECN marks: share of the packets of a node to its own group that switches may mark within "
        "`ecn_marks_window`.", default=0.05)
    ecn_marks_window: int = key(_WINDOW, "The window of `ecn_marks`.", default=300)
    ecn_marks_packets: int = key(Whole(1, 1_000_000_000_000),
        "Packets of a node in that window, scaled, below which their share says nothing.", default=10_000_000)
    link_full: float = key(Number(0.1, 2),
        "Full link: share of its speed that an interface's busier direction may carry within `link_full_window`.",
        default=0.9)
    link_full_window: int = key(_WINDOW, "The window of `link_full`.", default=300)
    uplinks_uneven: float = key(Number(0.05, 1),
        "Uneven uplinks: share of its speed by which a switch's busiest uplink may be fuller than its emptiest within "
        "`uplinks_uneven_window`.", default=0.5)
    uplinks_uneven_window: int = key(_WINDOW, "The window of `uplinks_uneven`.", default=600)
    link_discards: int = key(Whole(0, 1_000_000_000_000),
        "Discards: packets that an interface may throw away within `link_discards_window`.", default=10_000)
    link_discards_window: int = key(_WINDOW, "The window of `link_discards`.", default=900)
    busy_storage_bytes: int = key(names.SIZE,
        "Bytes that others must exchange with storage within a minute, and three times what is usual, before a job's "
        "slowness is put down to storage.", default=60_000_000_000)
    checkpoint_overdue: int = key(names.seconds(0, DAY),
        "Checkpoint missed: how far beyond the time it was due, tolerance included, none may have begun.", default=60)
    checkpoint_regularity: float = key(Number(0.5, 1),
        "Share of a job's last gaps between checkpoints that must be near their median, or a multiple of it, before "
        "lateness is judged by it, where `job_classes` declares no schedule.", default=1.0)
    exporter_silent: int = key(names.seconds(10, DAY),
        "Silence of an exporter that alerts. Its nodes are then blind, not down.", default=120)
    unseen_bytes: int = key(names.SIZE,
        "Unseen bytes: how many an exporter's interfaces may carry, by their own counters, within an hour while its "
        "flow records are silent about them.", default=1_000_000_000)
    collector_attacks: int = key(Whole(0, 1_000_000_000),
        "Datagrams that would kill nfacctd, or deaths of a daemon, that a quarter of an hour may have.", default=0)
    relay_silent: int = key(names.seconds(60, DAY // 2),
        "Silence of a relay that alerts. For up to a minute after one dies, brokers may hold others back.", default=120)
    ingest_silent: int = key(names.seconds(10, DAY), "Silence of the whole pipeline that alerts.", default=120)
    inference_window: int = key(_WINDOW,
        "The window of `inference_unauthorised_bytes`, `inference_access_bytes`, `unusual_country_bytes` and "
        "`inference_off_window_bytes`.", default=900)
    inference_unauthorised_bytes: int = key(names.SIZE_OR_ZERO,
        "Unauthorised client: bytes that a client may send to an inference node it may not reach; refused attempts "
        "to connect stay below it. 0 alerts for each.", default=10_000)
    inference_access_bytes: int = key(names.SIZE_OR_ZERO,
        "Client that `inference.access` does not list: bytes that it may send to an inference node.", default=10_000)
    unusual_country_bytes: int = key(names.SIZE_OR_ZERO,
        "Unusual country: bytes that a client may send to a service of inference from a country that it has not seen "
        "before. Who sends no more within five minutes does not make a country a known one either.", default=10_000)
    country_learning: int = key(names.seconds(0, 365 * DAY),
        "Unusual country: history of a service that it takes before any country is called new to it.",
        default=7 * 86_400)
    inference_off_window_bytes: int = key(names.SIZE_OR_ZERO,
        "Off-window client: bytes that a client may send to an inference node outside `inference.hours`; health "
        "checks stay below it.", default=1_000_000)
    inference_min_weeks: int = key(Whole(1, 6),
        "Earlier weeks that must be known before the load of inference is judged; with fewer it is learning.",
        default=2)
    inference_spike_spreads: float = key(Number(1, 100),
        "Inference spike: how many spreads above the same hours of earlier weeks the load may rise.", default=6.0)
    inference_spike_bytes: int = key(names.SIZE_OR_ZERO,
        "Bytes in five minutes by which the load must at least exceed what is expected.", default=20_000_000)
    inference_spike_for: int = key(names.seconds(0, 1_800), "How long a spike must last before it alerts.", default=60)
    flow_loss: float = key(Number(0.0001, 1),
        "Flow loss: share of an exporter's records that may be missing or empty within `flow_loss_window`. Up to 30 "
        "missing ones, a datagram, are chance.", default=0.01)
    flow_loss_window: int = key(_WINDOW, "The window of `flow_loss`.", default=900)
    flow_loss_records: int = key(Whole(1, 1_000_000_000),
        "Records of an exporter in that window below which its share says nothing.", default=1_000)
    points_refused: int = key(Whole(0, 1_000_000_000),
        "Points that InfluxDB may refuse for good within `flow_loss_window`. Those older than their retention do not "
        "count.", default=0)
    rate_unknown: float = key(Number(0, 1),
        "Sampling rate unknown: share of a sampling exporter's records within `flow_loss_window` that may come without "
        "a rate.", default=0.01)
    clock_skewed: float = key(Number(0, 1),
        "Clock off: share of an exporter's records within `flow_loss_window` that may be stored at their arrival, "
        "because their own time cannot be right.", default=0.5)
    ingest_lag: int = key(names.seconds(10, DAY), "How far the newest flow may lie behind the clock.", default=300)
    ingest_lag_for: int = key(names.seconds(0, DAY), "How long it must lie so far behind before it alerts.",
        default=120)
    list_stale_for: int = key(names.seconds(0, DAY),
        "How long a list must be broken, or older than `enrichment.stale_after`, before it alerts.", default=120)


THRESHOLDS = Section.of(Thresholds, "thresholds")
# fmt: on


def build_thresholds(table: Table | None, window: int, faults: Faults) -> Thresholds:
    """Return the thresholds, and record limits that contradict each other and windows that do not fit."""
    thresholds: Thresholds = THRESHOLDS.build(table)
    if thresholds.dropout_max_runs < thresholds.dropout_min_runs:
        expected = f"at least dropout_min_runs, {thresholds.dropout_min_runs}"
        faults.add("thresholds.dropout_max_runs", str(thresholds.dropout_max_runs), expected)
    for name in (one.name for one in THRESHOLDS.keys if one.kind is _WINDOW):
        length = getattr(thresholds, name)
        if length % window:
            expected = f"a multiple of bridge.window, {format_duration(window)}"
            faults.add(f"thresholds.{name}", format_duration(length), expected)
    return thresholds
