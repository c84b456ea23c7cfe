"""The one table of what is stored: measurements, tags, fields, units, cardinality.

Queries, points, boards, rules and docs all take their names from here; no other module spells one.
"""

from dataclasses import dataclass
from enum import IntFlag, StrEnum

RAW = "raw"
MINUTE = "1m"
HOUR = "1h"
"""Names of the retentions; every query names one: ``FROM "1m"."node"``."""

META = "meta"
"""The retention of what is about the store itself; nothing in it ever goes."""


class Merge(StrEnum):
    """How two partial values of one field in one window become one; also how a rollup folds windows."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    LAST = "last"


class Kind(StrEnum):
    """InfluxDB's field types."""

    INT = "int"
    FLOAT = "float"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class Field:
    """One stored value. `unit` is a base unit: bytes, packets, records, seconds, epoch seconds, USD, ratio, state.

    `gone` is the number in a row that was taken back, where 0 says something: InfluxDB takes no row back.
    """

    name: str
    unit: str
    text: str
    kind: Kind = Kind.INT
    merge: Merge = Merge.LAST
    gone: int = 0


def _text(name: str, text: str, merge: Merge = Merge.LAST) -> Field:
    return Field(name, "text", text, Kind.STRING, merge)


def _sum(name: str, unit: str, text: str, kind: Kind = Kind.INT) -> Field:
    return Field(name, unit, text, kind, Merge.SUM)


@dataclass(frozen=True, slots=True)
class Bound:
    """How a measurement's series stay bounded: beyond the K largest per `per` and window, rows fold together.

    Attributes:
        tags: tags that become OTHER when a row is folded; the first of them tells whether it was.
        per: tag whose values each have K of their own.
        unlisted: tags that become OTHER when a row is folded, unless they name a node of the inventory.
        kinds: tags by which rows are told apart: beside the K largest, the largest of each kind keep their names.
    """

    tags: tuple[str, ...]
    per: str
    unlisted: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement.

    Attributes:
        tags: tag names in storage order; the shard tag is last where several bridges may write partials.
        origin: the part that writes it: ``ingest``, ``analysis`` or ``deliver``.
        rollup: whether its windows are recomputed into the retentions that are coarser than `kept`.
        kept: the retention that its points are written to: HOUR for the few that people ask for after months, MINUTE
            for what nobody asks by shorter windows.
        bound: how its cardinality is limited, where addresses are tags.
        cardinality: in words, for the documentation.
    """

    name: str
    text: str
    tags: tuple[str, ...]
    fields: tuple[Field, ...]
    origin: str
    cardinality: str
    rollup: bool = False
    kept: str = RAW
    bound: Bound | None = None

    @property
    def retentions(self) -> tuple[str, ...]:
        """Names of the retentions that have its points, the finest first."""
        rolled = (RAW, MINUTE, HOUR)
        return rolled[rolled.index(self.kept) :] if self.rollup else (self.kept,)

    def field(self, name: str) -> Field:
        """Return the field with this name; KeyError if there is none."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        raise KeyError(name)


# Tags --------------------------------------------------------------------------------------------
SRC_GROUP = "src_group"
DST_GROUP = "dst_group"
PROTO = "proto"
SERVICE = "service"
PLANE = "plane"
SHARD = "shard"
NODE = "node"
GROUP = "group"
PEER_GROUP = "peer_group"
SRC = "src"
DST = "dst"
OFF_HOURS = "off_hours"
INITIATOR = "initiator"
ADDRESS = "address"
WORK = "work"
HOLDER = "holder"
OUTBOX_KIND = "outbox_of"
OUTBOX_PART = "outbox_part"
EXPORTER = "exporter"
COUNTED_BY = "counted_by"
RELAY = "relay"
STAGE = "stage"
REASON = "reason"
JOB = "job"
JOB_CLASS = "job_class"
KIND = "kind"
RAIL = "rail"
PART = "pack"
ENDPOINT = "endpoint"
ENDPOINT_GROUP = "endpoint_group"
INTERFACE = "interface"
OFF_WINDOW = "off_window"
CAUSE = "cause"
SUBJECT = "subject"
WORST = "worst"
NAME = "name"
USER = "user"
COUNTRY = "country"
CITY = "city"
NETWORK = "network"
APPLICATION = "application"
FEED = "feed"
INDICATOR = "indicator"
DIRECTION = "direction"
LATE = "late"
RULE = "rule"
SEVERITY = "severity"
ALERT_KEY = "alert_key"
CHANGE = "change"
FROM_JOB = "from_job"
LARGEST = "largest_talks"
ABOUT = "whose_bytes"
SRC_STAGE, DST_STAGE = "src_stage", "dst_stage"
PLACE = "verdict_place"

LABELS = (COUNTRY, CITY, NETWORK, APPLICATION, FEED)
"""What files of the user say about an outside address: functions of it, so they add no series. Empty where unknown."""

CONVERSATION = (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE)
"""What makes a conversation one, whichever side opened it."""

OTHER = "other"
"""Tag value that stands for everything beyond the largest K."""

UNKNOWN_USER = "-"
"""USER where no sign-in tells who had the address; an alert's label needs a value."""

YES = "yes"
NO = "no"
"""Values of OFF_HOURS, OFF_WINDOW and LATE."""

OUTWARD = "out"
INWARD = "in"
"""Values of DIRECTION: from the cluster to an outside address, or from there."""

BY_SOURCE = "src"
BY_DESTINATION = "dst"
"""Values of INITIATOR: which side opened the conversation, by its ports, or by TCP flags where they leave no doubt."""

TAG_TEXT = {
    SRC_GROUP: "group of the source address",
    DST_GROUP: "group of the destination address",
    PROTO: "IP protocol: tcp, udp, icmp, ... or its number",
    SERVICE: "service by the server's port, or other",
    PLANE: "compute, storage, management, frontend or unknown",
    SHARD: "the bridge that wrote the partial; sums over it are totals",
    NODE: "node of the inventory",
    GROUP: "group of the node or address",
    PEER_GROUP: "group at the other end",
    SRC: "source: node name, or address where it is no node",
    DST: "destination: node name, address, or other",
    OFF_HOURS: "yes where the window lies in the site's off-hours, else no",
    INITIATOR: "src where the source opened the conversation, dst where it answers",
    ADDRESS: "an address; where rows are folded, other",
    EXPORTER: "name of the exporter, or its address where cluster.yaml does not name it",
    COUNTED_BY: "the exporter whose records of the same packets count: itself or another one",
    RELAY: "id of the relay: its host's name, or what `--id` says",
    STAGE: "part of the pipeline",
    REASON: "what was counted",
    JOB: "job id",
    JOB_CLASS: "what earlier runs of the same kind are found by",
    KIND: "what kind of row it is; see the measurement",
    RAIL: "number of the rail, as the inventory gives it to the node's address",
    PART: "which of a fixed number of packs, by the end of the client's address",
    ENDPOINT: "storage node, or address where it is no node",
    ENDPOINT_GROUP: "group of the storage endpoint",
    INTERFACE: "name of the exporter's interface, or its ifIndex where cluster.yaml does not name it",
    OFF_WINDOW: "yes where the window lies outside `inference.hours`, else no",
    CAUSE: "why GPUs waited",
    WORST: "the nodes that were worst when the storm began, the worst first",
    SRC_STAGE: "pipeline stage of the sender, from 0",
    DST_STAGE: "pipeline stage of the receiver, from 0",
    PLACE: "1 for the surest verdict, then 2, up to 5",
    SUBJECT: "what the capacity is of: a group pair, an interface, a storage endpoint",
    NAME: "what cluster.yaml calls the list",
    USER: "who had the source's address by sign-ins, or their pseudonym; - if unknown",
    COUNTRY: "country of the outside address, ISO 3166 code; absent where unknown",
    CITY: "city of the outside address; absent where unknown",
    NETWORK: "network of the outside address, as AS64500 ExampleHost; absent where unknown",
    APPLICATION: "what the outside address is, by lists of cluster.yaml; absent where unknown",
    FEED: "threat feeds that list the outside address, with commas between them; absent where none does",
    INDICATOR: "the longest listed prefix that holds the outside address, or other",
    DIRECTION: "out: from the cluster to the listed address; in: from there",
    LATE: "no: matched live; yes: a feed listed the address later, and the row has the time of the search",
    RULE: "id of the rule; of alerts about missing data and errors their name",
    SEVERITY: "critical, warning or info",
    ALERT_KEY: "which alert of its rule: a hash of its labels",
    CHANGE: "fired or resolved",
    FROM_JOB: "job that the sources belong to; - where they are in none",
    LARGEST: "the largest conversations when the alert began, with their bytes",
    ABOUT: "whose bytes, and where to",
    WORK: "what is led: analyze or deliver",
    HOLDER: "a process: its machine's name and its state folder",
    OUTBOX_KIND: "events, note.SOURCE or position.DESTINATION",
    OUTBOX_PART: "number of what was written in that second",
}

# Fields shared by several measurements --------------------------------------------------------------
BYTES = _sum("bytes", "bytes", "IP bytes, scaled by sampling, each flow once")
PACKETS = _sum("packets", "packets", "packets, scaled by sampling, each flow once")
FLOWS = _sum("flows", "records", "flow records that began in the window")
SEEN_BYTES = _sum("seen_bytes", "bytes", "bytes of all exporters together, duplicates included")
DURATION = _sum("duration", "seconds", "from first to last byte within the window", Kind.FLOAT)
SRC_ADDRESS = _text("src_address", "address of the source; of several that one node used, one", Merge.MAX)
DST_ADDRESS = _text("dst_address", "the same of the destination", Merge.MAX)
PORT = Field("port", "port", "the server's port, the lowest if there are several; TCP, UDP, SCTP", merge=Merge.MIN)
PORT_MAX = Field("port_max", "port", "the server's port, the highest if there are several", merge=Merge.MAX)
ENTERED = _text("entered", "exporter and interface where it entered, where one exporter alone counts it", Merge.MAX)
OPENED_BY = _text("opened_by", "src or dst: the side that opened it; of both, src", Merge.MAX)
DETAILS = (SRC_ADDRESS, DST_ADDRESS, PORT, PORT_MAX, OPENED_BY, ENTERED)
"""What tells more of a conversation and makes no series: absent in rows that are `other`."""
TX_BYTES = _sum("tx_bytes", "bytes", "bytes sent")
RX_BYTES = _sum("rx_bytes", "bytes", "bytes received")
TX_PACKETS = _sum("tx_packets", "packets", "packets sent")
RX_PACKETS = _sum("rx_packets", "packets", "packets received")

TRAFFIC = Measurement(
    "traffic",
    "Bytes between groups.",
    (SRC_GROUP, DST_GROUP, PROTO, SERVICE, PLANE, SHARD),
    (BYTES, PACKETS, FLOWS, SEEN_BYTES),
    "ingest",
    "groups^2 x protocols x services x planes in use",
    rollup=True,
)
NODE_TRAFFIC = Measurement(
    "node",
    "Bytes of each node by the group it talked to.",
    (NODE, GROUP, PEER_GROUP, PLANE, SHARD),
    (TX_BYTES, RX_BYTES, TX_PACKETS, RX_PACKETS, FLOWS),
    "ingest",
    "nodes x groups x planes in use",
    rollup=True,
)
NODE_TOTAL = Measurement(
    "node_total",
    "Bytes of each node, whoever it talked to: what `node` adds up to. Boards that ask no more read a quarter as much.",
    (NODE, GROUP, SHARD),
    (TX_BYTES, RX_BYTES),
    "ingest",
    "nodes",
    rollup=True,
    kept=MINUTE,
)
PAIR = Measurement(
    "pair",
    "Bytes between training nodes: the pattern of the collectives.",
    (SRC, DST, PLANE, SHARD),
    (BYTES,),
    "ingest",
    "ring: 2 x nodes; all-to-all: nodes^2, bounded per source node",
    kept=MINUTE,
    bound=Bound((DST,), SRC),
)
EGRESS = Measurement(
    "egress",
    "Conversations with the outside, approved or not; a source in no group is `unlisted`, or `external` if it answers.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, OFF_HOURS, INITIATOR, *LABELS, SHARD),
    (BYTES, PACKETS, FLOWS, DURATION, *DETAILS),
    "ingest",
    "the largest K per source group and window (from 1 MB on, of groups inside all), under a series budget; the rest "
    "is `other`",
    rollup=True,
    bound=Bound((DST, *LABELS), SRC_GROUP, unlisted=(SRC,)),
)


CONFIDENCE = Field("confidence", "percent", "how sure the feed is, 0 to 100", merge=Merge.MAX)
LISTED_SINCE = Field(
    "listed_since",
    "epoch seconds",
    "since when the feed lists it, as far as it says or as it was read",
    merge=Merge.MAX,
)
SEEN_AT = Field("seen_at", "epoch seconds", "start of the newest window with such traffic", merge=Merge.MAX)
KNOWN_SINCE = Field(
    "known_since",
    "epoch seconds",
    "since when we know that it is listed: the date of the file in which the entry was first seen",
    merge=Merge.MAX,
)
THREAT = Measurement(
    "threat",
    "Conversations with outside addresses that a threat feed lists, whichever side opened them.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, DIRECTION, LATE, FEED, INDICATOR, COUNTRY, NETWORK, SHARD),
    (BYTES, PACKETS, FLOWS, DURATION, CONFIDENCE, LISTED_SINCE, KNOWN_SINCE, SEEN_AT, *DETAILS),
    "ingest, late ones by analysis",
    "the largest K per direction and window, under a series budget; the rest is `other`",
    rollup=True,
    bound=Bound((INDICATOR, COUNTRY, NETWORK), DIRECTION, unlisted=(SRC, DST)),
)


class Violation(StrEnum):
    """Values of KIND in VIOLATION."""

    NOT_ALLOWED = "not_allowed"
    WRONG_PLANE = "wrong_plane"
    MANAGEMENT = "management"


VIOLATION = Measurement(
    "violation",
    "Conversations that `allowed` does not list (not_allowed), storage traffic on the compute plane (wrong_plane), and "
    "connections of management groups that `management` does not expect. One conversation may be of several kinds.",
    (KIND, SRC_GROUP, DST_GROUP, SRC, DST, PROTO, SERVICE, INITIATOR, SHARD),
    (BYTES, FLOWS, *DETAILS),
    "ingest",
    "the largest K per source group and window; the rest is `other`",
    rollup=True,
    bound=Bound((DST,), SRC_GROUP, unlisted=(SRC,)),
)
PORTS = Field(
    "ports_called",
    "ports",
    "server ports that were called in one window at least; 0: it answered a call that is over",
    merge=Merge.MAX,
)
DENIED = Measurement(
    "denied",
    "Packets that a cloud's security group or access list did not let through, by its flow logs: no traffic.",
    (SRC_GROUP, DST_GROUP, SRC, DST, SERVICE, SHARD),
    (PACKETS, FLOWS, PORTS),
    "ingest",
    "the largest K per source group and window; the rest is `other`",
    rollup=True,
    bound=Bound((DST,), SRC_GROUP, unlisted=(SRC,)),
)
SKIPPED = _sum("skipped", "records", "intervals of which a cloud's flow logs hold no records though packets went by")
LOG_GAP = Measurement(
    "log_gap",
    "Interfaces of which a cloud's flow logs left out records (SKIPDATA).",
    (INTERFACE, SHARD),
    (SKIPPED,),
    "ingest",
    "the interfaces of a cloud, rare by nature",
    rollup=True,
)
UNKNOWN_NODE = Measurement(
    "unknown_node",
    "Addresses inside a group's prefixes that no inventory knows.",
    (GROUP, ADDRESS, SHARD),
    (BYTES, FLOWS, TX_BYTES),
    "ingest",
    "the largest K per group and window; the rest is `other`",
    rollup=True,
    bound=Bound((ADDRESS,), GROUP),
)

RAIL_TRAFFIC = Measurement(
    "rail",
    "Bytes that each node sent by rail: by addresses to which the inventory gives a rail.",
    (NODE, GROUP, RAIL, SHARD),
    (TX_BYTES,),
    "ingest",
    "nodes x rails",
    kept=MINUTE,
)
READ_BYTES = _sum("read_bytes", "bytes", "bytes that the node read: endpoint to node")
WRITE_BYTES = _sum("write_bytes", "bytes", "bytes that the node wrote: node to endpoint")
STORAGE_IO = Measurement(
    "storage_io",
    "Bytes between each storage endpoint (groups of role storage and model_storage) and the nodes that use it.",
    (ENDPOINT, ENDPOINT_GROUP, NODE, GROUP, SHARD),
    (READ_BYTES, WRITE_BYTES),
    "ingest",
    "endpoints x nodes that use them, the largest K per endpoint and window; the rest is `other`",
    rollup=True,
    bound=Bound((NODE,), ENDPOINT, unlisted=(ENDPOINT,)),
)
MARKED_PACKETS = _sum("marked_packets", "packets", "packets whose tos field says congestion experienced (ECN CE)")
KIB = 1024
PULSE_KIB = _sum(
    "kib", "KiB", "bytes over 1,024, rounded: half the room on disk, for what sampling leaves inexact anyhow"
)
PULSE_BYTES = _sum("bytes", "bytes", "the same in bytes, of before they were KiB")
PULSE = Measurement(
    "pulse",
    "Bytes that each node sent to its own group in windows of 1 s: sFlow exporters only, whose samples no flow cache "
    "delays. Packets are those of 10 s (`bridge.window`), in the first of its seconds.",
    (NODE, GROUP, PLANE, SHARD),
    (PULSE_KIB, PACKETS, MARKED_PACKETS, PULSE_BYTES),
    "ingest",
    "nodes behind sFlow exporters",
)
INFERENCE = Measurement(
    "inference",
    "Conversations that clients opened to inference nodes.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, OFF_WINDOW, *LABELS, SHARD),
    (BYTES, PACKETS, FLOWS, DURATION, *DETAILS),
    "ingest",
    "the largest K clients per inference group and window, and K/4 that are the largest of their group, their country "
    "or of new clients; the rest is `other`",
    rollup=True,
    bound=Bound((SRC, *LABELS), DST_GROUP, unlisted=(DST,), kinds=(SRC_GROUP, COUNTRY)),
)
PACKED = _text("packed", "rows as CSV with a header, zlib, Base64; empty: none", Merge.MAX)
INFERENCE_UNNAMED = Measurement(
    "inference_unnamed",
    "What is `other` in `inference`: all clients without a name, packed (`clusterflow access` reads it).",
    (DST_GROUP, PART, SHARD),
    (PACKED,),
    "ingest",
    "inference groups x 17, however many clients there are",
)
MANAGED = Measurement(
    "managed",
    "Uses of management services (`management.sessions`), expected or not, both directions together: SRC opened them.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, COUNTRY, NETWORK, SHARD),
    (BYTES, TX_BYTES, FLOWS, *DETAILS),
    "ingest",
    "the largest K per source group and window; the rest is `other`",
    rollup=True,
    bound=Bound((DST, COUNTRY, NETWORK), SRC_GROUP, unlisted=(SRC,)),
)
IN_BYTES = _sum("in_bytes", "bytes", "bytes that entered here, by flow records, scaled")
OUT_BYTES = _sum("out_bytes", "bytes", "bytes that left here, by flow records, scaled")
COUNTER_IN_BYTES = _sum("counter_in_bytes", "bytes", "bytes that entered, by the interface's own counter (sFlow)")
COUNTER_OUT_BYTES = _sum("counter_out_bytes", "bytes", "bytes that left, by the interface's own counter (sFlow)")
IN_ERRORS = _sum("in_errors", "packets", "receive errors, by the interface's own counter (sFlow)")
OUT_ERRORS = _sum("out_errors", "packets", "send errors, by the interface's own counter (sFlow)")
IN_DISCARDS = _sum("in_discards", "packets", "packets discarded on receipt, by the interface's own counter (sFlow)")
OUT_DISCARDS = _sum(
    "out_discards", "packets", "packets discarded before sending, by the interface's own counter (sFlow)"
)
SPEED = Field("speed", "bits/second", "speed: cluster.yaml's, else what the interface says", merge=Merge.MAX)
INTERFACE_TRAFFIC = Measurement(
    "interface",
    "Each exporter's interfaces, duplicates included: what flow records say, and what its own counters say.",
    (EXPORTER, INTERFACE, PLANE, KIND, SHARD),
    (
        IN_BYTES, OUT_BYTES, COUNTER_IN_BYTES, COUNTER_OUT_BYTES, IN_ERRORS, OUT_ERRORS, IN_DISCARDS, OUT_DISCARDS,
        SPEED,
    ),
    "ingest",
    "interfaces in use; KIND is edge where flows are counted, core where `counts` is false",
    rollup=True,
)  # fmt: skip
DISCARDING = Measurement(
    "discarding",
    "What `interface` says of interfaces that threw packets away in a window: rules need not look for them among "
    "thousands.",
    INTERFACE_TRAFFIC.tags,
    (IN_DISCARDS, OUT_DISCARDS),
    "ingest",
    "interfaces that discard packets",
)


class Link(StrEnum):
    """Values of KIND in INTERFACE_TRAFFIC."""

    EDGE = "edge"
    CORE = "core"


LAST_SEEN = Field("last_seen", "epoch seconds", "arrival of its newest record or counter sample", Kind.FLOAT, Merge.MAX)
AGE = Field("age", "seconds", "time since its newest record or counter sample arrived", Kind.FLOAT)
LAG = Field("lag", "seconds", "from the end of a flow to its arrival, mean", Kind.FLOAT)
SKEW = Field("skew", "seconds", "largest distance of a record's time from its arrival", Kind.FLOAT)
SAMPLING = Field("sampling", "packets", "sampling rate applied: 1 in this many")
EXPORTER_RECORDS = _sum("records", "records", "flow records received")
EXPORTER_BYTES = _sum("bytes", "bytes", "bytes received, scaled, duplicates included")
EXPORTER_SUPPRESSED = _sum("suppressed_bytes", "bytes", "bytes that another exporter counted already")
SEQ_LOST = _sum(
    "seq_lost",
    "records",
    "lost before nfacctd, by gaps in the sequence numbers (NetFlow v9: estimated by the size of its other datagrams)",
)
UNKNOWN_RATE = _sum("unknown_rate", "records", "records of a sampling exporter with an unknown rate, counted as 1:1")
ZERO_COUNTERS = _sum("zero_counters", "records", "records without bytes")
SKEWED = _sum("skewed", "records", "records whose time was replaced by their arrival")
LATE_BYTES = _sum("late_bytes", "bytes", "bytes that came after their window had closed, and were added to it")
CLAMPED_BYTES = _sum("clamped_bytes", "bytes", "bytes older than the grace, added to the oldest window kept")


class Unread(IntFlag):
    """Bits of UNREAD: what an exporter's templates or sFlow samples have that pmacct does not read, or count twice."""

    ADDRESSES = 1
    REPLIES = 2
    RATES = 4
    REPEATED = 8
    TAGGED = 16
    SIZES = 32
    TWICE = 64


UNREAD_WORDS = {
    Unread.ADDRESSES: "templates without addresses: such records are lost",
    Unread.REPLIES: "counters of replies: bytes of the way back are missing",
    Unread.RATES: "options of varying length: its sampling rates are not believed",
    Unread.REPEATED: "a field twice in a template: records may be lost",
    Unread.TAGGED: "sFlow samples with two VLAN tags: such packets are lost",
    Unread.SIZES: "counters of neither 4 nor 8 bytes: they count as 0",
    Unread.TWICE: "records that come twice: they count twice",
}


def unread_words(bits: int) -> str:
    """Return what bits of UNREAD mean."""
    return "; ".join(words for bit, words in UNREAD_WORDS.items() if bits & bit)


UNREAD = Field("unread", "bits", "what it sends that pmacct does not read, or that comes twice (`Unread`)")
EXPORTER_STATUS = Measurement(
    "exporter",
    "What each exporter sends, and what is wrong with it.",
    (EXPORTER, SHARD),
    (
        EXPORTER_RECORDS, EXPORTER_BYTES, EXPORTER_SUPPRESSED, SEQ_LOST, UNKNOWN_RATE, ZERO_COUNTERS, SKEWED,
        LATE_BYTES, CLAMPED_BYTES, LAST_SEEN, AGE, LAG, SKEW, SAMPLING, UNREAD,
    ),
    "ingest",
    "exporters",
    rollup=True,
)  # fmt: skip


class Because(StrEnum):
    """Values of REASON in COUNTING: why that exporter counts."""

    ITSELF = "itself"
    """No better exporter saw the same packets: the exporter counts."""
    DESCRIBED = "described"
    """The other one's interfaces stand in cluster.yaml."""
    UNSAMPLED = "unsampled"
    FINER = "finer_sampling"
    FIRST = "listed_first"
    """They are as good as each other: the other one stands first in cluster.yaml."""
    SAME = "same_traffic"
    """Both sample, and what is large enough to be in both their samples is: the small is the other one's too."""
    EARLIER = "counted_before"
    """The other one's records came first, and their windows are closed for good."""
    MORE = "saw_more"
    """A better exporter saw the conversation all the while, but not half of its bytes: the exporter counts."""


COUNTING_BYTES = _sum("bytes", "bytes", "bytes that the exporter saw, scaled")
COUNTING = Measurement(
    "counting",
    "Which exporter counts what each of several saw, where neither `authority` nor its interfaces say so.",
    (SRC_GROUP, DST_GROUP, EXPORTER, COUNTED_BY, REASON, SHARD),
    (COUNTING_BYTES,),
    "ingest",
    "group pairs x pairs of exporters that see the same traffic",
    rollup=True,
)

TOTAL = Field("total", "count", "running total since the checkpoint was first made", Kind.FLOAT)
VALUE = Field("value", "as the reason says", "reading at the time", Kind.FLOAT)
PIPELINE = Measurement(
    "pipeline",
    "Counters (`total`) and readings (`value`) of the pipeline itself.",
    (STAGE, REASON, SHARD),
    (TOTAL, VALUE),
    "ingest",
    "a few dozen",
    rollup=True,
)


HEARTBEAT = "heartbeat"
"""REASON of the reading that every living part writes: epoch seconds (bridge), seconds behind (analysis)."""

BACKLOG_BYTES = "backlog_bytes"
"""REASON of the bridge's reading (STAGE read): bytes that wait in the spool or topic."""

POINTS_REFUSED, POINTS_TOO_OLD = "points_refused", "points_too_old"
"""Values of REASON: points that InfluxDB refused for good; those older than it keeps any."""

LAG_SECONDS = "lag_seconds"
"""REASON of the bridge's reading: seconds from the newest flow to now."""

RELAY_LAST_SEEN = Field("last_seen", "epoch seconds", "when it last reported", Kind.FLOAT, Merge.MAX)
RELAY_AGE = Field("age", "seconds", "time since then, as far as the topic is read", Kind.FLOAT)
RELAY_BACKLOG = Field(BACKLOG_BYTES, "bytes", "bytes that wait in its spools, as it last said")
RELAY_RECORDS = Field("records", "records", "flow records read since it was started")
RELAY_BYTES = Field("bytes", "bytes", "bytes of flow files read since then; files of interface counters do not count")
RELAY_DEAD_LETTERS = Field("dead_letters", "lines", "lines that were no records, since then")
RELAY_REPEATED = Field("repeated_records", "records", "records that pmacct had read twice, since then")
RELAY_TRANSACTIONS = Field("transactions", "transactions", "transactions committed since then")
RELAY_RETRIED = Field("transactions_retried", "transactions", "attempts to send a transaction again, since then")
RELAY_STATUS = Measurement(
    "relay",
    "What each relay last said of itself, by the worker that reads its partition. A relay that was not heard for a day "
    "is forgotten.",
    (RELAY, SHARD),
    (
        RELAY_LAST_SEEN, RELAY_AGE, RELAY_BACKLOG, RELAY_RECORDS, RELAY_BYTES, RELAY_DEAD_LETTERS, RELAY_REPEATED,
        RELAY_TRANSACTIONS, RELAY_RETRIED,
    ),
    "ingest",
    "relays, 256 a partition at most",
)  # fmt: skip


class Stage(StrEnum):
    """Values of STAGE."""

    COLLECT = "collect"
    READ = "read"
    NORMALISE = "normalise"
    WINDOWS = "windows"
    WRITE = "write"
    BRIDGE = "bridge"
    ARCHIVE = "archive"
    ANALYSIS = "analysis"
    JOBS = "jobs"
    DELIVER = "deliver"


class JobReading(StrEnum):
    """What follows a job source's name, after a dot, in the REASON of its readings (STAGE jobs)."""

    FAILING = "failing_seconds"
    RUNNING = "running"
    KNOWN = "known"
    STRANGERS = "unknown_nodes"


CONTACT_NEW = _sum("new", "0 or 1", "1 for the first contact ever seen, 0 for one that was known or learned")
CONTACT_FIRST = Field("first_seen", "epoch seconds", "start of the window of the first contact", Kind.FLOAT, Merge.MIN)
CONTACT = Measurement(
    "contact",
    "First contacts of a source with an outside destination.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, *LABELS),
    (BYTES, DURATION, CONTACT_NEW, CONTACT_FIRST),
    "analysis",
    "rare by nature; a storm becomes one row with destination `other`",
)

ACTIVE = Field("active", "0 or 1", "1 while the job runs")
JOB_NODES = Field("nodes", "nodes", "nodes of the job")
JOB_EVENT = _text("event", "start or stop, at the moment it happens")
JOB_GPUS = Field("gpus", "GPUs", "GPUs of the job's nodes")
JOB_OUTCOME = _text("outcome", "at its stop: completed, failed, cancelled or unknown")
JOB_ORIGIN = _text("origin", "its job source")
JOB_NODE_NAMES = _text("node_names", "at its start, and each day: its nodes, as in gpu-[01-16]")
JOB_QUIET = Field("quiet", "seconds", "at its stop: seconds of silence by which its end was found")
JOB_SINCE = Field("job_since", "epoch seconds", "when it started", Kind.FLOAT)
JOB_UNTIL = Field(
    "job_until",
    "epoch seconds",
    "its end as far as the row knows: that of the window, at its stop the job's own",
    Kind.FLOAT,
)
JOB_STATUS = Measurement(
    "job",
    "Job windows: a row a window while a job runs, and its start and stop as events.",
    (JOB, JOB_CLASS),
    (
        ACTIVE, JOB_NODES, JOB_GPUS, JOB_EVENT, JOB_OUTCOME, JOB_ORIGIN, JOB_NODE_NAMES, JOB_QUIET, JOB_SINCE,
        JOB_UNTIL,
    ),
    "analysis",
    "jobs in the retention",
)  # fmt: skip

OBSERVED = Field("observed", "ratio", "bytes sent over the cohort's median; held where nothing is judged", Kind.FLOAT)
EXPECTED = Field("expected", "ratio", "median of the same over the node's good runs", Kind.FLOAT)
LOWER = Field("lower", "ratio", "limit: expected less k spreads, or 5 % of expected", Kind.FLOAT)
SCORE = Field("score", "spreads", "how far below expected, in spreads", Kind.FLOAT)
RUNS = Field("runs", "runs", "earlier good runs in the baseline")
STATE = Field("state", "state", "0 learning, 1 ok, 2 low, 3 down, 4 blind, -1 taken back", gone=-1)
LOW_FOR = Field("low_for", "seconds", "how long it has been low or down", Kind.FLOAT)
SENT_BYTES = Field("sent_bytes", "bytes", "bytes it sent in the window")
MISSING_BYTES = Field("missing_bytes", "bytes", "bytes below expected since it went low")
IN_DIGEST = Field(
    "in_digest", "0 or 1", "1 while so many nodes of its job are low or down that they are one alert (dropout_digest)"
)
BASELINE = Measurement(
    "baseline",
    "Each node of a running job against its own past runs: a row a window while it is low, down or blind, else a row a "
    "minute.",
    (NODE, GROUP, JOB, JOB_CLASS),
    (OBSERVED, EXPECTED, LOWER, SCORE, RUNS, STATE, LOW_FOR, SENT_BYTES, MISSING_BYTES, IN_DIGEST),
    "analysis",
    "nodes x jobs in the retention",
)
LOW_NODE = Measurement(
    "low_node",
    "What `baseline` says of nodes that are low, down or blind, and once of one that no longer is: boards and rules "
    "need not look for them among thousands.",
    BASELINE.tags,
    (STATE, OBSERVED, EXPECTED, LOWER, LOW_FOR, SENT_BYTES, MISSING_BYTES, IN_DIGEST, JOB_NODES, JOB_GPUS),
    "analysis",
    "nodes that are low, down or blind x jobs",
)


class NodeState:
    """Values of STATE."""

    LEARNING = 0
    OK = 1
    LOW = 2
    DOWN = 3
    BLIND = 4


NODE_STATE_WORDS = {
    NodeState.LEARNING: "learning",
    NodeState.OK: "ok",
    NodeState.LOW: "low",
    NodeState.DOWN: "down",
    NodeState.BLIND: "blind",
}

# What follows is one row a window and job unless the text says otherwise. ---------------------------

DEFICIT = Field(
    "deficit", "ratio", "share of its expected bytes that it did not send, since steady state began", Kind.FLOAT
)
DEFICIT_BYTES = Field("deficit_bytes", "bytes", "the same in bytes")
ONSET_LAG = Field(
    "onset_lag",
    "seconds",
    "mean delay of its starts after pauses behind the cohort's; of its steps where they are seen by the second (sFlow)",
    Kind.FLOAT,
)
LOW_SECONDS = Field("low_seconds", "seconds", "time it was low or down so far", Kind.FLOAT)
RANK = Field("rank", "place", "1 is the worst straggler of the job")
JOB_NODE = Measurement(
    "job_node",
    "Stragglers: each node of a job, ranked every five minutes while it runs and once at its end.",
    (NODE, GROUP, JOB, JOB_CLASS),
    (DEFICIT, DEFICIT_BYTES, SCORE, ONSET_LAG, LOW_SECONDS, RANK),
    "analysis",
    "nodes x jobs in the retention",
)


class CohortState:
    """Values of COHORT_STATE."""

    LEARNING = 0
    OK = 1
    SLOW = 2
    STALLED = 3
    ENDED = 4
    BLIND = 5


COHORT_STATE_WORDS = {
    CohortState.LEARNING: "learning",
    CohortState.OK: "ok",
    CohortState.SLOW: "slow",
    CohortState.STALLED: "stalled",
    CohortState.ENDED: "ended",
    CohortState.BLIND: "blind",
}
COHORT_RATE = Field("rate", "bytes/second", "bytes a second of the cohort's median node", Kind.FLOAT)
EXPECTED_RATE = Field("expected_rate", "bytes/second", "median of the same over earlier good runs", Kind.FLOAT)
LOWER_RATE = Field("lower_rate", "bytes/second", "limit: expected less k spreads", Kind.FLOAT)
COHORT_STATE = Field("state", "state", "0 learning, 1 ok, 2 slow, 3 stalled, 4 ended, 5 blind")
STATE_FOR = Field("state_for", "seconds", "how long it has been slow or stalled", Kind.FLOAT)
SENDING = Field("sending", "nodes", "nodes that send")
LOW_NODES = Field("low_nodes", "nodes", "nodes that are low or down")
STEP_BYTES = Field(
    "step_bytes",
    "bytes",
    "bytes that each node should send in a step, by the declared size of the model, as a ring all-reduce of its "
    "gradients does; absent if not declared",
)
STEP_SECONDS = Field("step_seconds", "seconds", "length of a step at this rate: `step_bytes` over `rate`", Kind.FLOAT)
COHORT_EVENT = _text("event", "its state where it changed, else empty")
LOST_SECONDS = _sum("lost_seconds", "seconds", "time lost, all GPUs of the job alike", Kind.FLOAT)
USD = _sum("usd", "USD", "their cost: GPUs x lost seconds / 3600 x USD per GPU-hour", Kind.FLOAT)
COHORT = Measurement(
    "cohort",
    "The cohort of a running job as a whole, against earlier runs of its class. Time and USD are those lost since it "
    "has been slow or stalled.",
    (JOB, JOB_CLASS),
    (
        COHORT_RATE, EXPECTED_RATE, LOWER_RATE, SCORE, RUNS, COHORT_STATE, STATE_FOR, SENDING, LOW_NODES,
        MISSING_BYTES, JOB_NODES, JOB_GPUS, LOST_SECONDS, USD, STEP_BYTES, STEP_SECONDS, COHORT_EVENT,
    ),
    "analysis",
    "jobs in the retention",
)  # fmt: skip
DROPOUT_DIGEST = Measurement(
    "dropout_digest",
    "Many nodes of a job low or down at once, most often for one cause: a row a window in place of an alert for each.",
    (JOB, JOB_CLASS, WORST),
    (LOW_NODES, JOB_NODES, LOW_FOR, SENT_BYTES, MISSING_BYTES, JOB_GPUS),
    "analysis",
    "rare by nature",
)


class Phase:
    """Values of PHASE_STATE."""

    IDLE = 0
    LOAD = 1
    COMPUTE = 2
    CHECKPOINT = 3
    BLIND = 4


PHASE_WORDS = {
    Phase.IDLE: "idle",
    Phase.LOAD: "loading",
    Phase.COMPUTE: "computing",
    Phase.CHECKPOINT: "checkpoint",
    Phase.BLIND: "blind",
}
PHASE_STATE = Field("phase", "state", "0 idle, 1 loading, 2 computing, 3 checkpoint, 4 blind, -1 taken back", gone=-1)
COMPUTE_BYTES = Field("compute_bytes", "bytes", "training to training")
JOB_READ_BYTES = Field("read_bytes", "bytes", "storage to the job's nodes")
JOB_WRITE_BYTES = Field("write_bytes", "bytes", "the job's nodes to storage")
OTHER_STORAGE_BYTES = Field("competing_bytes", "bytes", "bytes of others with the same storage")
PHASE = Measurement(
    "phase",
    "What a running job does.",
    (JOB, JOB_CLASS),
    (PHASE_STATE, COMPUTE_BYTES, JOB_READ_BYTES, JOB_WRITE_BYTES, OTHER_STORAGE_BYTES),
    "analysis",
    "jobs in the retention",
)


class CheckpointState:
    """Values of CHECKPOINT_STATE."""

    ON_TIME = 0
    LATE = 1
    MISSED = 2
    SHORT = 3
    OVER_LONG = 4
    NODES_MISSING = 5
    UNJUDGED = 6


CHECKPOINT_WORDS = {
    CheckpointState.ON_TIME: "on time",
    CheckpointState.LATE: "late",
    CheckpointState.MISSED: "missed",
    CheckpointState.SHORT: "short",
    CheckpointState.OVER_LONG: "over-long",
    CheckpointState.NODES_MISSING: "nodes missing",
    CheckpointState.UNJUDGED: "not judged",
}
CHECKPOINT_AWAITED = 7200
"""Seconds after its begin for which a checkpoint's end is waited for; then it is reported as it stands."""

EVENT_SECONDS = Field("seconds", "seconds", "from its first to its last window", Kind.FLOAT)
EVENT_BYTES = Field("bytes", "bytes", "bytes of the event")
EVENT_NODES = Field("nodes", "nodes", "nodes that took part")
EXPECTED_NODES = Field("expected_nodes", "nodes", "nodes that should have taken part")
EXPECTED_BYTES = Field("expected_bytes", "bytes", "bytes expected: declared, or the median of earlier ones")
CHECKPOINT_STATE = Field(
    "state", "state", "0 on time, 1 late, 2 missed, 3 short, 4 over-long, 5 nodes missing, 6 not judged"
)
DUE = Field("due", "epoch seconds", "when it was due; 0 if unknown", Kind.FLOAT)
GAP = Field("gap", "seconds", "from the start of the one before to its own; 0 for the first", Kind.FLOAT)
CHECKPOINT = Measurement(
    "checkpoint",
    "Checkpoints: one row each, at its first window (a missed one at the window that gave it up).",
    (JOB, JOB_CLASS),
    (EVENT_SECONDS, EVENT_BYTES, EVENT_NODES, EXPECTED_NODES, EXPECTED_BYTES, CHECKPOINT_STATE, DUE, GAP),
    "analysis",
    "jobs in the retention",
    kept=HOUR,
)
CHECKPOINT_AGE = Field(
    "age",
    "seconds",
    "since the last complete checkpoint began, or since the job started: what a crash now would lose",
    Kind.FLOAT,
)
OVERDUE = Field("overdue", "seconds", "beyond the time it was due, tolerance included; 0 while it is not", Kind.FLOAT)
PERIOD = Field("period", "seconds", "declared or observed time between checkpoints; 0: unknown", Kind.FLOAT)
REGULARITY = Field(
    "regularity",
    "ratio",
    "share of the last gaps between checkpoints that are near their median; 0 if there are too few",
    Kind.FLOAT,
)
IS_REGULAR = Field("regular", "0 or 1", "1 where regularity is judged: declared, or learnt from enough gaps")
LAST_BYTES = Field("last_bytes", "bytes", "bytes of the last complete checkpoint")
USD_AT_RISK = Field("usd_at_risk", "USD", "GPU time since then: age x GPUs / 3600 x USD per GPU-hour", Kind.FLOAT)
CHECKPOINT_STATUS = Measurement(
    "checkpoint_status",
    "Where a running job stands between two checkpoints.",
    (JOB, JOB_CLASS),
    (CHECKPOINT_AGE, OVERDUE, PERIOD, REGULARITY, IS_REGULAR, LAST_BYTES, JOB_GPUS, USD_AT_RISK),
    "analysis",
    "jobs in the retention",
)
OVERLAP = Field("overlap", "seconds", "how long loading went on after computing began", Kind.FLOAT)
DATASET_LOAD = Measurement(
    "dataset_load",
    "Loading of the data set at the start of a job: one row each, at its first window (zeros: it never ended, the job "
    "streams its data).",
    (JOB, JOB_CLASS),
    (EVENT_SECONDS, EVENT_BYTES, EVENT_NODES, OVERLAP),
    "analysis",
    "jobs in the retention",
    kept=HOUR,
)


class Cause(StrEnum):
    """Values of CAUSE."""

    DROPOUT = "dropout"
    SLOW = "slow"
    STALLED = "stalled"
    PAUSE = "pause"
    STORAGE = "storage"
    """It waited for storage in its midst, or was slow or still while others kept storage busy."""
    LOADING = "loading"
    CHECKPOINT = "checkpoint"
    DISTURBED = "disturbed"
    """It was slow or still while nodes of others sent much to its nodes."""


STALL_GPUS = Field("gpus", "GPUs", "GPUs that waited")
STALL_BY = _text(
    "caused_by", "who did it, where that is seen: the group that kept storage busy, the nodes that sent to the job's"
)
STALL = Measurement(
    "stall",
    "The stall ledger: a row a window in which a job lost time; the first one of a verdict holds what was lost until "
    "then. Sums over any range that holds the whole incident are right; no second is under two causes.",
    (JOB, JOB_CLASS, CAUSE),
    (LOST_SECONDS, STALL_GPUS, USD, STALL_BY),
    "analysis",
    "jobs in the retention x causes",
    kept=HOUR,
)

HELD_NODES = Field("silent_nodes", "nodes", "nodes that have been silent for too long")
HELD_NEVER = Field("never_sent", "nodes", "of these, nodes that have not sent since the job began")
HELD_FOR = Field("silent_for", "seconds", "how long the longest of them has been silent", Kind.FLOAT)
HELD_GPU_HOURS = _sum("held_gpu_hours", "GPU-hours", "what their GPUs were held for since the row before", Kind.FLOAT)
HELD_USD = _sum("usd", "USD", "their cost", Kind.FLOAT)
HELD_SO_FAR = Field("usd_so_far", "USD", "the same since they fell silent", Kind.FLOAT)
HELD_NAMES = _text("node_names", "the nodes, as in gpu-[01-16]")
HELD = Measurement(
    "held_nodes",
    "Held but silent: nodes of a running job that have sent and read nothing for `held_silent_for`, or for longer than "
    "runs of the class do: a row a minute, the first one with what was held until then.",
    (USER, JOB, JOB_CLASS),
    (HELD_NODES, HELD_NEVER, JOB_NODES, HELD_FOR, HELD_GPU_HOURS, HELD_USD, HELD_SO_FAR, HELD_NAMES),
    "analysis",
    "rare by nature",
    kept=HOUR,
)

BYTES_1H = Field("bytes_1h", "bytes", "over the last hour")
BYTES_24H = Field("bytes_24h", "bytes", "over the last 24 hours")
BYTES_7D = Field("bytes_7d", "bytes", "over the last 7 days")
BYTES_30D = Field("bytes_30d", "bytes", "over the last 30 days")
SLOW_24H = Field("slow_24h", "bytes", "bytes_24h less the bursts that the rule exfil_volume reported")
SLOW_7D = Field("slow_7d", "bytes", "bytes_7d less the bursts that the rule exfil_volume reported")
PEAK_24H = Field("peak_24h", "bytes", "largest slow_24h of the last 7 days, by whole hours")
ACTIVE_HOURS = Field("active_hours", "hours", "whole hours of the last 7 days in which it sent")
ACTIVE_DAYS = Field("active_days", "days", "days of the last 30, site time, on which it sent")
ARTEFACT = _text("artefact", "the listed artefact nearest in size to the volume of 7 days")
ARTEFACT_SHARE = Field("artefact_share", "ratio", "volume of 7 days over the size of that artefact", Kind.FLOAT)
ARTEFACT_SHARE_24H = Field(
    "artefact_share_24h", "ratio", "volume of 24 hours over the size of the listed artefact nearest to it", Kind.FLOAT
)
LEDGER = Measurement(
    "ledger",
    "Low and slow: what each source has sent to each outside destination until now, approved ones included; a row "
    "every 5 min.",
    (SRC, SRC_GROUP, DST, DST_GROUP, COUNTRY, NETWORK),
    (
        BYTES_1H, BYTES_24H, BYTES_7D, BYTES_30D, SLOW_24H, SLOW_7D, PEAK_24H, ACTIVE_HOURS, ACTIVE_DAYS, ARTEFACT,
        ARTEFACT_SHARE, ARTEFACT_SHARE_24H,
    ),
    "analysis",
    "egress pairs that were active in the last 30 days, the 1,000 largest of each source group; the rest is `other`",
)  # fmt: skip
EVENT_SOURCES = Field("sources", "nodes", "nodes that took part")
FIRST_HOUR = Field(
    "first_seen", "epoch seconds", "start of the first hour of the last 30 days in which it was called", Kind.FLOAT
)
RECURRENCE = Measurement(
    "recurrence",
    "Unlisted destinations that a group calls on more than one day or in many hours. A row every 5 min.",
    (DST, SRC_GROUP, PROTO, SERVICE, COUNTRY, NETWORK, APPLICATION),
    (ACTIVE_HOURS, ACTIVE_DAYS, BYTES_30D, EVENT_SOURCES, FIRST_HOUR),
    "analysis",
    "unlisted destinations of the last 30 days that came back, the 500 most frequent",
)


class Breach(StrEnum):
    """Values of KIND in BREACH: a conversation is reported under the first of these that holds."""

    MANAGEMENT = "management"
    SHADOW = "shadow"
    WRONG_PLANE = "wrong_plane"
    SEGMENTATION = "segmentation"


EVENT_DESTINATIONS = Field("destinations", "destinations", "destinations that were called")
BREACH = Measurement(
    "breach",
    "What breaks the cluster's segmentation, each conversation under one kind only, with both directions together: "
    "SRC opened it. Scans and floods are one row with `other`.",
    (KIND, SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE),
    (TX_BYTES, RX_BYTES, BYTES, FLOWS, DURATION, EVENT_SOURCES, EVENT_DESTINATIONS),
    "analysis",
    "rare by nature",
)


class Disturber(StrEnum):
    """Values of KIND in DISTURBANCE: who sends to nodes of a job that is not theirs."""

    OTHER_JOB = "other_job"
    UNALLOCATED = "unallocated"
    GROUP = "group"
    """A group that may talk to training nodes, but does so on their compute plane."""


NO_JOB = "-"
"""FROM_JOB where the sources are in no job."""
DISTURBANCE = Measurement(
    "disturbance",
    "Who sends to nodes of a job that is not theirs: a row a minute, once nothing can change it, for the "
    "`disturbance_window` before. SRC and DST are `other` where no node has half of the bytes, and of groups.",
    (KIND, SRC, SRC_GROUP, FROM_JOB, DST, JOB, JOB_CLASS),
    (EVENT_BYTES, EVENT_SOURCES, EVENT_DESTINATIONS, EVENT_SECONDS),
    "analysis",
    "rare by nature",
)
NEW_NETWORK = Measurement(
    "new_network",
    "A group sends to a network (autonomous system) for the first time: a row a window for its first 15 min, the first "
    "one with what led to it. They name the largest conversation until then; bytes are those of all.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, COUNTRY, NETWORK, APPLICATION, FEED),
    (BYTES, DURATION, EVENT_SOURCES, EVENT_DESTINATIONS, CONTACT_FIRST),
    "analysis",
    "rare by nature",
    kept=HOUR,
)


class Leak(StrEnum):
    """Values of KIND in EXFILTRATION: the sum that was too large when the incident opened."""

    BULK = "bulk"
    OFF_HOURS = "off_hours"
    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"
    LEARNT = "learnt"


OTHER_TALKS = Field("other_pairs", "pairs", "pairs of source and destination beside the largest")
LEAK_SHARE = Field(
    "artefact_multiple", "ratio", "bytes as a multiple of `artefact`; 0 where none is listed", Kind.FLOAT
)
LEAK_SINCE = Field("sent_since", "epoch seconds", "start of the first bin whose bytes count", Kind.FLOAT)
LEAK_REPORTED = Field("reported_at", "epoch seconds", "when a sum was last too large: earlier bytes are reported")
LEAK_UNTIL = Field("open_until", "epoch seconds", "when it ends, unless a sum is too large again")
ARTEFACT_NAME = _text("artefact", "the artefact of cluster.yaml nearest in size; empty without one")
EXFILTRATION = Measurement(
    "exfiltration",
    "Incidents: what the cluster's groups together sent outside beyond what may leave, however it was split. A row "
    "when a sum is too large, then every 5 min. Names are those of the begin; SRC and DST are `other` where no one has "
    "most of the bytes.",
    (KIND, SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, COUNTRY, NETWORK, LARGEST),
    (
        EVENT_BYTES, EVENT_SECONDS, EVENT_SOURCES, EVENT_DESTINATIONS, OTHER_TALKS, ARTEFACT_NAME, LEAK_SHARE,
        LEAK_SINCE, LEAK_REPORTED, LEAK_UNTIL,
    ),
    "analysis",
    "rare by nature",
    kept=HOUR,
)  # fmt: skip


class Shape(StrEnum):
    """Values of KIND in SHAPE: what is odd about the way in which bytes leave."""

    TUNNEL = "tunnel"
    COVERT = "covert"
    NO_SERVICE = "no_service"
    PULL = "pull"
    STEADY = "steady"


SHAPE_WORDS = {
    Shape.TUNNEL: "tunnel",
    Shape.COVERT: "ICMP, DNS or NTP",
    Shape.NO_SERVICE: "port without a service",
    Shape.PULL: "fetched from outside",
    Shape.STEADY: "steady connection",
}
SHAPE = Measurement(
    "shape",
    "Odd ways out to unapproved addresses, whatever is sent: tunnels, ICMP, DNS and NTP with volume, ports without a "
    "service, what outsiders fetch, connections that stay open at a constant rate. All groups together, as in "
    "`exfiltration`: a row when a sum is too large, then every 5 min.",
    EXFILTRATION.tags,
    EXFILTRATION.fields,
    "analysis",
    "rare by nature",
    kept=HOUR,
)

BEACON_SCORE = Field("score", "ratio", "mean of the scores of timing, size, evenness and duration, 0 to 1", Kind.FLOAT)
TIMING_SCORE = Field("timing_score", "ratio", "how regular its calls come, 0 to 1", Kind.FLOAT)
CALL_PERIOD = Field("period", "seconds", "from call to call, median", Kind.FLOAT)
CALL_JITTER = Field("jitter", "ratio", "by how much it varies: twice the median deviation over the median", Kind.FLOAT)
CALLS = Field("calls", "calls", "calls within the 24 hours")
BEACON = Measurement(
    "beacon",
    "Beacons: conversations with unapproved addresses that begin again and again as by a clock. A row an hour for the "
    "24 hours before; `sources` are all that call the destination.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, COUNTRY, NETWORK),
    (BEACON_SCORE, TIMING_SCORE, CALL_PERIOD, CALL_JITTER, CALLS, EVENT_BYTES, EVENT_SECONDS, EVENT_SOURCES),
    "analysis",
    "200 conversations an hour at most",
    kept=HOUR,
)

TOP_SHARE = Field("share", "ratio", "share of all bytes to its group in these windows that went to it", Kind.FLOAT)
TYPICAL_SHARE = Field("typical_share", "ratio", "the same in the hour before the last ten minutes", Kind.FLOAT)
BURST = Measurement(
    "burst",
    "Incast: many nodes write to one storage endpoint, or to a few, while its peers idle. A row a window while it "
    "lasts; seconds and bytes are those of the last ten minutes at most.",
    (DST, DST_GROUP, SRC_GROUP),
    (EVENT_BYTES, EVENT_SOURCES, EVENT_SECONDS, TOP_SHARE, TYPICAL_SHARE),
    "analysis",
    "rare by nature",
)


class Pattern:
    """Values of PATTERN_STATE."""

    NONE = 0
    RING = 1
    TREE = 2
    ALL_TO_ALL = 3
    MIXED = 4


PATTERN_WORDS = {
    Pattern.NONE: "none",
    Pattern.RING: "ring",
    Pattern.TREE: "tree",
    Pattern.ALL_TO_ALL: "all to all",
    Pattern.MIXED: "mixed",
}
PATTERN_STATE = Field("pattern", "state", "0 none, 1 ring, 2 tree, 3 all to all, 4 mixed")
NEIGHBOURS = Field("neighbours", "nodes", "nodes that a node sends to, median over the cohort", Kind.FLOAT)
CHANGED = Field(
    "changed", "nodes", "nodes that send to others than ten minutes ago, or than in the row before; see `changed_pair`"
)
IMBALANCE = Field(
    "rail_imbalance",
    "ratio",
    "largest rail of a node over the mean of its rails, less 1, of the node where it is worst; absent where nodes have "
    "one rail or none",
    Kind.FLOAT,
)
STEP_PERIOD = Field(
    "step_period",
    "seconds",
    "compute/exchange period by autocorrelation of 1 s windows; absent where nothing resolves it: no sFlow, no clear "
    "period, or one below 2.2 s",
    Kind.FLOAT,
)
STEP_DRIFT = Field(
    "step_drift", "ratio", "the period over that of the job's first hour, less 1; absent in that hour", Kind.FLOAT
)
STEP_ERROR = Field(
    "step_error",
    "seconds",
    "half the width of the period's 95 % confidence, from all that is not periodic: packet sampling above all",
    Kind.FLOAT,
)
STEP_EXPECTED = Field(
    "expected_period", "seconds", "length of a step in earlier good runs; absent without any", Kind.FLOAT
)
STEP_LIMIT = Field("limit_period", "seconds", "the longest ordinary one; absent without any", Kind.FLOAT)
STEP_STATE = Field("state", "state", "0 learning, 1 ok, 2 longer")


class StepState:
    """Values of STEP_STATE."""

    LEARNING = 0
    OK = 1
    LONGER = 2


STEP = Measurement(
    "step",
    "Length of a job's steps against earlier runs of its class, where sFlow resolves it: a row every 5 min, once "
    "nothing can change it any more.",
    (JOB, JOB_CLASS),
    (STEP_PERIOD, STEP_ERROR, STEP_EXPECTED, STEP_LIMIT, RUNS, STEP_STATE),
    "analysis",
    "jobs in the retention",
)


class Neighbour(StrEnum):
    """Values of KIND in CHANGED_PAIR."""

    NEW = "new"
    GONE = "gone"


PAIR_BEFORE = Field("before_bytes", "bytes", "sent in the minute that is compared with")
PAIR_NOW = Field("now_bytes", "bytes", "sent in the minute before")
COMPARED_AT = Field("compared_at", "epoch seconds", "end of that minute", Kind.FLOAT)
CHANGED_PAIR = Measurement(
    "changed_pair",
    "Pairs of a job that are new or gone against ten minutes ago, as `pattern`, whose `changed` counts their senders; "
    "after a pause of up to an hour against what was before it. KIND: new, gone.",
    (JOB, JOB_CLASS, KIND, SRC, DST),
    (PAIR_BEFORE, PAIR_NOW, COMPARED_AT),
    "analysis",
    "20 at each change",
)
PATTERN = Measurement(
    "pattern",
    "Shape of a job's collectives in the minute before: a row a minute for jobs of up to 64 nodes, every 5 min up to "
    "256, every 15 min beyond; each once nothing can change it any more.",
    (JOB, JOB_CLASS),
    (PATTERN_STATE, NEIGHBOURS, CHANGED, IMBALANCE, STEP_PERIOD, STEP_DRIFT, STEP_ERROR),
    "analysis",
    "jobs in the retention",
)

RAIL_MISSING = Field("missing_share", "ratio", "part of the expected bytes that the rail did not send", Kind.FLOAT)
RAIL_SENT = Field("sent_bytes", "bytes", "sent over the rail within `rail_low_window`")
RAIL_EXPECTED = Field("expected_bytes", "bytes", "as the node's other rails and the job's other nodes do")
RAIL_LOW = Measurement(
    "low_rail",
    "Rails of a job's nodes that carry less than they should, from half of the threshold on: a row a minute, once "
    "nothing can change it, for the `rail_low_window` before.",
    (JOB, JOB_CLASS, NODE, RAIL),
    (RAIL_MISSING, RAIL_SENT, RAIL_EXPECTED),
    "analysis",
    "rare by nature",
)

SMALLER_BY = Field("smaller_by", "ratio", "part by which its packets are smaller", Kind.FLOAT)
MEAN_SIZE = Field("mean_size", "bytes", "bytes a packet that the node sent, acknowledgements included")
USUAL_SIZE = Field("usual_size", "bytes", "the same of the job's median node")
PACKET_SIZE_LOW = Measurement(
    "small_packets",
    "Nodes of a job whose packets are smaller than those of its other nodes, from half of the threshold on: a row a "
    "minute, once nothing can change it, for the `packet_size_window` before.",
    (JOB, JOB_CLASS, NODE),
    (SMALLER_BY, MEAN_SIZE, USUAL_SIZE),
    "analysis",
    "rare by nature",
)

JOB_ROLE = Measurement(
    "job_role",
    "What a node does in its job, told from sFlow's samples of ten minutes: a row every 5 min where a job's steps are "
    "seen.",
    (JOB, NODE),
    (
        Field("pipeline_stage", "stage", "stage of the pipeline, from 0; -1: not told"),
        _text("pipeline_of", "its pipeline, named by its first node"),
        _text("ring_of", "its data-parallel group, named by its first node"),
        Field("ring_nodes", "nodes", "of that group"),
    ),
    "analysis",
    "jobs in the retention x their nodes",
)  # fmt: skip
ROLE_STAGE, ROLE_PIPELINE, ROLE_RING, RING_NODES = JOB_ROLE.fields

ROLE_PAIRS = Field("role_pairs", "pairs", "of nodes")
ROLE_BYTES = Field("role_bytes", "bytes", "sent this way in the ten minutes before")
JOB_PAIR = Measurement(
    "job_pair",
    "What stages of a job's pipeline send to each other, as `job_role`. KIND: pipeline, data (data-parallel), ends "
    "(first and last stage share the embedding), both (pipeline and data) or none (nothing is sent).",
    (JOB, KIND, SRC_STAGE, DST_STAGE),
    (ROLE_PAIRS, ROLE_BYTES),
    "analysis",
    "jobs in the retention x pairs of stages",
)

STEPS = Field("steps_ended", "steps", "that ended in the window")
STEP_LENGTH = Field("step_length", "seconds", "median of these", Kind.FLOAT)
STEP_LONGEST = Field("step_longest", "seconds", "the longest of these", Kind.FLOAT)
EXCHANGE = Field("exchange_share", "ratio", "share of a step that its last exchange takes, median", Kind.FLOAT)
JOB_STEPS = Measurement(
    "job_steps",
    "Steps of a job one by one, from the exchange that ends each, as `job_role`: a row a window in which some ended.",
    (JOB,),
    (STEPS, STEP_LONGEST, STEP_LENGTH, EXCHANGE),
    "analysis",
    "jobs in the retention",
)

JOB_VERDICT = Measurement(
    "job_verdict",
    "Who holds a job up beside nodes of the same role, as `job_role`: a row a verdict; one that says nobody where a "
    "look found none.",
    (JOB, PLACE),
    (
        _text("blame", "node, dead rail, link, whole job, imbalance of the stages, or nobody"),
        _text("culprits", "the node, or those among which it is"),
        Field("culprit_rail", "number", "of the rail; absent where it is none"),
        Field("culprit_share", "ratio", "how much longer or less; of a pause its seconds", Kind.FLOAT),
        Field("certainty", "ratio", "confidence, 0 to 1", Kind.FLOAT),
        _text("verdict_evidence", "the figures"),
    ),
    "analysis",
    "jobs in the retention x 5",
)  # fmt: skip
BLAME, CULPRITS, CULPRIT_RAIL, CULPRIT_SHARE, SURE, EVIDENCE = JOB_VERDICT.fields

LOAD_BYTES = Field("bytes", "bytes", "bytes to the inference nodes in the five minutes before")
LOAD_EXPECTED = Field(
    "expected", "bytes", "median of the same time of the week in earlier weeks; absent while learning", Kind.FLOAT
)
LOAD_UPPER = Field("upper", "bytes", "limit: expected and k spreads; absent while learning", Kind.FLOAT)
WEEKS = Field("weeks", "weeks", "earlier weeks in the baseline")
SPIKE_FOR = Field("spike_for", "seconds", "how long it has been a spike, 30 min at most", Kind.FLOAT)
LOAD_STATE = Field("state", "state", "0 learning, 1 ok, 2 spike")


class LoadState:
    """Values of LOAD_STATE."""

    LEARNING = 0
    OK = 1
    SPIKE = 2


LOAD_WORDS = {LoadState.LEARNING: "learning", LoadState.OK: "ok", LoadState.SPIKE: "spike"}
INFERENCE_LOAD = Measurement(
    "inference_load",
    "Requests to each inference group against its own hours of the week: a row a minute.",
    (GROUP,),
    (LOAD_BYTES, LOAD_EXPECTED, LOAD_UPPER, SCORE, WEEKS, SPIKE_FOR, LOAD_STATE),
    "analysis",
    "inference groups",
)


class AccessBreach(StrEnum):
    """Values of KIND in ACCESS_BREACH: by what a conversation is not on the list `inference.access`."""

    GROUP = "group"
    USER = "user"
    UNKNOWN_USER = "unknown_user"
    COUNTRY = "country"
    SERVICE = "service"
    HOURS = "hours"


ACCESS = Measurement(
    "access",
    "Who asked inference groups, and who opened unexpected connections with management: a row every 5 min for the 5 "
    "min before, each window under the user who had the address then.",
    (SRC, SRC_GROUP, DST_GROUP, SERVICE, USER, COUNTRY, NETWORK),
    (BYTES, FLOWS),
    "analysis",
    "clients that `inference` names x services x their users; the rest is `other`",
    kept=HOUR,
)
ACCESS_UNNAMED = Measurement(
    "access_unnamed",
    "What is `other` in `access`: all clients without a name and their users, packed.",
    (DST_GROUP, PART),
    (PACKED,),
    "analysis",
    "inference groups x 17, however many clients there are",
    kept=HOUR,
)
ACCESS_BREACH = Measurement(
    "access_breach",
    "Conversations with inference nodes that `inference.access` does not list, of clients that may ask otherwise.",
    (KIND, SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, USER, COUNTRY, NETWORK),
    (BYTES, FLOWS, DURATION),
    "analysis",
    "clients that are not listed: those that `inference` names, and 20 more in five minutes; the rest is `other`",
)
SESSIONS = _sum("sessions_begun", "sessions", "sessions that began in the 5 min")
OPEN_SECONDS = _sum("open_seconds", "seconds", "how long they were open, gaps below `management.session_gap` included")
SESSION = Measurement(
    "management_session",
    "The ledger of management sessions: a row every 5 min for the 5 min before, each window under the user who had the "
    "source's address then. Sums over it are how often, how long and how much.",
    (SRC, SRC_GROUP, DST, DST_GROUP, SERVICE, USER, COUNTRY, NETWORK),
    (SESSIONS, OPEN_SECONDS, BYTES, TX_BYTES, FLOWS),
    "analysis",
    "pairs that use management services x their users, as far as `managed` names them",
    kept=HOUR,
)
NEW_SESSION = Measurement(
    "new_session",
    "A source opens a management service of a group for the first time: a row a window for its first 15 min, the first "
    "one with what led to it. DST is the largest until then. What breaks `allowed` or `management` is told by breach.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, COUNTRY, NETWORK),
    (BYTES, DURATION, EVENT_SOURCES, EVENT_DESTINATIONS, CONTACT_FIRST),
    "analysis",
    "rare by nature",
    kept=HOUR,
)
UNUSUAL_COUNTRY = Measurement(
    "unusual_country",
    "Conversations with services of inference from countries that these have not seen before: a row a window, for a "
    "day from the first on that sent more than `unusual_country_bytes` within five minutes.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, USER, COUNTRY, NETWORK),
    (BYTES, FLOWS, DURATION, CONTACT_FIRST),
    "analysis",
    "rare by nature: clients of a country that is new to a service, for a day, bounded as those of `access_breach`",
)


class CoverageState:
    """Values of COVERAGE_STATE."""

    IDLE = 0
    SEEN = 1
    UNDECLARED = 2
    INVISIBLE = 3
    PARTIAL = 4


COVERAGE_WORDS = {
    CoverageState.IDLE: "nothing seen",
    CoverageState.SEEN: "as declared",
    CoverageState.UNDECLARED: "not as declared",
    CoverageState.INVISIBLE: "invisible",
    CoverageState.PARTIAL: "partly seen",
}
DECLARED_WORDS = {0: "tcp", 1: "roce", 2: "infiniband", 3: "roce, sampled"}
UNSEEN_BYTES = Field(
    "bytes", "bytes", "bytes that flows usually tell of at these counters, less those that they told of"
)
UNSEEN_FLOWS = Field("flow_bytes", "bytes", "bytes of flow records in that time")
UNSEEN = Measurement(
    "unseen",
    "Exporters whose interface counters (sFlow) went on while their flow records did not: a row every 5 min, for an "
    "hour at most.",
    (EXPORTER,),
    (UNSEEN_BYTES, UNSEEN_FLOWS, EVENT_SECONDS),
    "analysis",
    "rare by nature",
    kept=HOUR,
)
COVERED_BYTES = Field("bytes", "bytes", "bytes of the pair, each flow once")
UNCOUNTED_BYTES = Field("uncounted_bytes", "bytes", "bytes that only exporters saw whose flows do not count")
DECLARED = Field(
    "declared", "state", "transport by cluster.yaml: 0 tcp, 1 roce, 2 infiniband, 3 roce that sFlow samples"
)
COUNTER_SHARE = Field(
    "counter_share",
    "ratio",
    "flow bytes over counter bytes of the interfaces of its main plane; absent without counters",
    Kind.FLOAT,
)
ROCE_BYTES = Field("roce_bytes", "bytes", "of these, RoCEv2 (UDP/4791)")
COVERAGE_STATE = Field("state", "state", "0 nothing seen, 1 as declared, 2 not as declared, 3 invisible, 4 partly seen")
COVERAGE = Measurement(
    "coverage",
    "Declared transport of each group pair against what was seen in the hour before: a row every 5 min.",
    (SRC_GROUP, DST_GROUP),
    (COVERED_BYTES, ROCE_BYTES, UNCOUNTED_BYTES, DECLARED, COUNTER_SHARE, COVERAGE_STATE),
    "analysis",
    "group pairs in use, allowed or declared",
)


class Capacity(StrEnum):
    """Values of KIND in CAPACITY."""

    PAIR = "pair"
    EDGE = "edge"
    CORE = "core"
    ENDPOINT = "endpoint"


P95 = Field("p95", "bits/second", "95th percentile of the minutes of the last 24 hours", Kind.FLOAT)
UTILISATION = Field("utilisation", "ratio", "p95 over the limit; absent without one", Kind.FLOAT)
PEAK = Field("peak", "bits/second", "largest minute of the last 24 hours", Kind.FLOAT)
LIMIT_BPS = Field("limit", "bits/second", "what it can carry; absent if unknown", Kind.FLOAT)
TREND = Field("trend", "bits/second/day", "slope of the p95 of each day's hours, up to 30 days (Theil-Sen)", Kind.FLOAT)
FULL_AT = Field(
    "full_at", "epoch seconds", "when the trend reaches the limit; absent if it does not within 2 years", Kind.FLOAT
)
CAPACITY = Measurement(
    "capacity",
    "How full group pairs, interfaces (edge, core) and storage endpoints are: a row an hour, ten minutes past it.",
    (KIND, SUBJECT),
    (P95, PEAK, LIMIT_BPS, UTILISATION, TREND, FULL_AT),
    "analysis",
    "group pairs + interfaces + endpoints in use",
    kept=HOUR,
)

TENTH = 0.1
LOADED = Measurement(
    "loaded",
    "What `capacity` says of what is more than a tenth full: boards need not look for them among thousands.",
    CAPACITY.tags,
    (UTILISATION,),
    "analysis",
    "interfaces and the like that are more than a tenth full",
    kept=HOUR,
)

SCHEMA_NUMBER = Field("schema_number", "version", "the schema that the store has from then on")
SCHEMA_WRITER = _text("written_by", "version of the program that brought it there")
SCHEMA_VERSION = Measurement(
    "schema_version",
    "Which schema the store has: a row when it was made, and one for each migration.",
    (),
    (SCHEMA_NUMBER, SCHEMA_WRITER),
    "ingest",
    "1",
    kept=META,
)


class ListState:
    """Values of LIST_STATE."""

    OK = 0
    STALE = 1
    BROKEN = 2


LIST_STATE_WORDS = {ListState.OK: "ok", ListState.STALE: "stale", ListState.BROKEN: "broken"}
LIST_STATE = Field("state", "state", "0 ok, 1 older than it may be, 2 what is there is not in use")
LIST_ENTRIES = Field("entries", "entries", "what the version in use lists")
LIST_AGE = Field("age", "seconds", "age of the version in use; 0 without one", Kind.FLOAT)
LIST_SKIPPED = Field("skipped", "entries", "entries skipped in the version in use")
LIST_ERROR = _text("error", "why the file is not in use, or the first entry skipped")
LIST_IN_USE = Field("in_use", "0 or 1", "1 where any version is in use")
LIST_ORIGIN = _text("origin", "where it comes from, by its own words")
ENRICHMENT = Measurement(
    "enrichment",
    "The state of each list about addresses, every half minute.",
    (NAME, KIND, SHARD),
    (LIST_STATE, LIST_ENTRIES, LIST_AGE, LIST_SKIPPED, LIST_ERROR, LIST_IN_USE, LIST_ORIGIN),
    "ingest",
    "files of cluster.yaml",
)

KNOWN_NAME = _text("name", "host name; empty where none is known")
NAME_SOURCE = _text(
    "name_source", "the file that says so, or reverse DNS, or reverse DNS that leads back to the address (confirmed)"
)
KNOWN_LABELS = tuple(_text(tag, TAG_TEXT[tag]) for tag in LABELS)
ADDRESS_NAME = Measurement(
    "address",
    "Directory of outside addresses: what was known of each when it was first seen, and again when that changed. An "
    "address of which nothing is known has no row.",
    (ADDRESS,),
    (KNOWN_NAME, NAME_SOURCE, *KNOWN_LABELS),
    "ingest",
    "outside addresses that were told apart (`egress`, `inference`) and of which something is known, 20,000 new ones a "
    "day and bridge at most",
    kept=HOUR,
)


class Change(StrEnum):
    """Values of CHANGE: what happened to an alert at the time of the row."""

    FIRED = "fired"
    RESOLVED = "resolved"


FIRING = "firing"
RESOLVED = "resolved"
"""Values of ALERT_STATE."""

INCIDENT = _text("incident", "id of the alert from its begin to its end")
ALERT_STATE = _text("state", "firing or resolved, as it is now")
ALERT_TITLE = _text("title", "what the rule is called")
ALERT_SUMMARY = _text("summary", "what happened, in one sentence")
ALERT_SOURCE = _text("source", "source, as the notification names it")
ALERT_DESTINATION = _text("destination", "destination, in the same way")
ALERT_PROTOCOL = _text("protocol", "protocol, in the same way")
BYTES_TEXT = _text("bytes_text", "bytes, in the same way")
DURATION_TEXT = _text("duration_text", "duration, in the same way")
ALERT_BYTES = Field("bytes", "bytes", "the same as a number, where the rule has one")
ALERT_DURATION = Field("duration", "seconds", "the same as a number", Kind.FLOAT)
ALERT_NODE = _text("node", "node that it is about")
ALERT_JOB = _text("job", "job that it is about")
ALERT_COST = _text("cost", "dollars, as the notification says them")
WHAT_TO_DO = _text("what_to_do", "the next step")
RUNBOOK = _text("runbook", "address of the runbook's section")
BEGAN = Field("began", "epoch seconds", "when it fired", Kind.FLOAT)
ENDED = Field("ended", "epoch seconds", "when it was resolved; absent while it fires", Kind.FLOAT)
FIRED_SECONDS = Field("fired_seconds", "seconds", "from then to then", Kind.FLOAT)
ACKNOWLEDGED = Field("acknowledged", "epoch seconds", "when it was acknowledged: `clusterflow alerts mark`", Kind.FLOAT)
ACKNOWLEDGE_SECONDS = Field("acknowledge_seconds", "seconds", "from its begin to then", Kind.FLOAT)
FALSE_ALERT = Field("false_alert", "0 or 1", "1 if marked as false")
ALERT_SRC_ADDRESS = _text("src_address", "address of the source")
ALERT_DST_ADDRESS = _text("dst_address", "address of the destination")
ALERT_PORT = Field("port", "port", "port of the server, the lowest if there are several")
ALERT_PORT_MAX = Field("port_max", "port", "the highest if there are several")
ALERT_LABELS = _text("labels", "its labels, as JSON")
ALERT_ENTERED = _text("entered", "exporter and interface where it entered")
MARKED_WHY = _text("marked_why", "why, in their words")
MAINTENANCE = _text("muted_by", "the planned work during which it began: nobody was told before its end")
MUTED = Field("is_muted", "0 or 1", "1 while planned work mutes it: it fires and notifies nobody")
ALERT = Measurement(
    "alert",
    "Alert history: a row for every change of an alert's state, at the time of the change. The row of `fired` is kept "
    "up to date until the alert is resolved, so these rows alone are the list of alerts.",
    (RULE, SEVERITY, SRC, ALERT_KEY, CHANGE),
    (
        INCIDENT, ALERT_STATE, ALERT_TITLE, ALERT_SUMMARY, ALERT_SOURCE, ALERT_DESTINATION, ALERT_PROTOCOL, BYTES_TEXT,
        DURATION_TEXT, ALERT_BYTES, ALERT_DURATION, ALERT_NODE, ALERT_JOB, ALERT_COST, WHAT_TO_DO, RUNBOOK, BEGAN,
        ENDED, FIRED_SECONDS, ACKNOWLEDGED, ACKNOWLEDGE_SECONDS, FALSE_ALERT, MARKED_WHY, ALERT_SRC_ADDRESS,
        ALERT_DST_ADDRESS, ALERT_PORT, ALERT_PORT_MAX, ALERT_ENTERED, ALERT_LABELS,
        MAINTENANCE, MUTED,
    ),
    "deliver",
    "alerts of two years that differ in rule or labels, two each",
    kept=HOUR,
)  # fmt: skip

STORED_AFTER = Field("stored_after", "seconds", "until all its bytes were stored", Kind.FLOAT)
JUDGED_AFTER = Field("judged_after", "seconds", "until `analyze` had found the incident", Kind.FLOAT)
FIRED_AFTER = Field("fired_after", "seconds", "until its alert fired", Kind.FLOAT)
TOLD_AFTER = Field("told_after", "seconds", "until `deliver` had the alert from Grafana", Kind.FLOAT)
TROUBLE = _text("drill_trouble", "what was wrong; empty if nothing")
DRILL = Measurement(
    "drill",
    "Thefts that `clusterflow drill` staged: a row each, at the time it was sent. What was not reached in time is "
    "absent.",
    (KIND,),
    (EVENT_BYTES, STORED_AFTER, JUDGED_AFTER, FIRED_AFTER, TOLD_AFTER, TROUBLE),
    "drill",
    "one a drill",
    kept=HOUR,
)

DAILY_UNSEEN = Field("in_a_day", "bytes", "what may leave within 24 hours, once", Kind.FLOAT)
SUSTAINED_UNSEEN = Field("every_day", "bytes", "what may leave every day for 30 days", Kind.FLOAT)
DAYS_TO_LOSE = _text("model_days", "each artefact and the days that it takes")
FLOOR = Measurement(
    "floor",
    "How much could leave without an alert, as `clusterflow floor` found it: a row a way and run. KIND is the way; "
    "without a number no limit was found.",
    (KIND, ABOUT),
    (DAILY_UNSEEN, SUSTAINED_UNSEEN, DAYS_TO_LOSE),
    "floor",
    "ten ways a run",
    kept=HOUR,
)

LEASE_STATE = Field("state", "state", "0 waits, 1 claims, 2 leads")
LEASE_TERM = Field("term", "terms", "the last that it led in, or claims: one more than any before")
LEASE_SESSION = _text("lease_session", "of its process: another one may have its name")
LEASE_AT = Field("written_at", "epoch seconds", "by its own clock; grows with each row")
LEASE = Measurement(
    "lease",
    "Which of several `analyze` or `deliver` works (`store.lease`): each says every 2 s that it lives.",
    (WORK, HOLDER),
    (LEASE_STATE, LEASE_TERM, LEASE_SESSION, LEASE_AT),
    "analysis, deliver",
    "processes of a week",
)

OUTBOX_FIRST = Field("first_event", "number", "of the first event; of a position, of the next")
OUTBOX_NEXT = Field("next_event", "number", "after the last event")
OUTBOX = Measurement(
    "outbox",
    "The copy of `deliver`'s spool from which another machine goes on (`store.lease`).",
    (HOLDER, OUTBOX_KIND, OUTBOX_PART),
    (
        Field("outbox_term", "terms", "in which its writer led"),
        Field("outbox_number", "number", "of the entry in that term"),
        OUTBOX_FIRST,
        OUTBOX_NEXT,
        Field("part_count", "number", "parts that the entry has"),
        _text("part_text", "a part of it: JSON, zlib, Base64"),
    ),
    "deliver",
    "sources and destinations, by parts that were written in a second",
)

MEASUREMENTS = tuple(one for one in list(globals().values()) if isinstance(one, Measurement))
"""Everything that is stored."""
