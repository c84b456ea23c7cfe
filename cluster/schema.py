"""The one table of what is stored: measurements, tags, fields, units, cardinality.

Queries, points, boards, rules and docs all take their names from here; no other module spells one.
"""

from dataclasses import dataclass
from enum import StrEnum


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
    """One stored value. `unit` is a base unit: bytes, packets, records, seconds, epoch seconds, USD, ratio, state."""

    name: str
    unit: str
    text: str
    kind: Kind = Kind.INT
    merge: Merge = Merge.SUM


@dataclass(frozen=True, slots=True)
class Bound:
    """How a measurement's series stay bounded: beyond the K largest per `per` and window, rows fold together.

    Attributes:
        tags: tags that become OTHER when a row is folded.
        per: tag whose values each have K of their own.
        unlisted: tags that become OTHER when a row is folded, unless they name a node of the inventory.
    """

    tags: tuple[str, ...]
    per: str
    unlisted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement.

    Attributes:
        tags: tag names in storage order; the shard tag is last where several bridges may write partials.
        origin: the part that writes it, ``ingest`` or ``analysis``.
        rollup: whether its windows are recomputed into the 1m and 1h retentions.
        bound: how its cardinality is limited, where addresses are tags.
        cardinality: in words, for the documentation.
    """

    name: str
    text: str
    tags: tuple[str, ...]
    fields: tuple[Field, ...]
    origin: str
    cardinality: str
    rollup: bool = True
    bound: Bound | None = None

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
EXPORTER = "exporter"
STAGE = "stage"
REASON = "reason"
JOB = "job"
JOB_CLASS = "job_class"

OTHER = "other"
"""Tag value that stands for everything beyond the largest K."""

YES = "yes"
NO = "no"
"""Values of OFF_HOURS."""

BY_SOURCE = "src"
BY_DESTINATION = "dst"
"""Values of INITIATOR: which side opened the conversation, by its ports."""

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
    ADDRESS: "address in a group's prefix that no inventory knows, or other",
    EXPORTER: "name of the exporter, or its address where cluster.yaml does not name it",
    STAGE: "part of the pipeline",
    REASON: "what was counted",
    JOB: "job id",
    JOB_CLASS: "what earlier runs of the same kind are found by",
}

# Fields shared by several measurements --------------------------------------------------------------
BYTES = Field("bytes", "bytes", "IP bytes, scaled by sampling, each flow once")
PACKETS = Field("packets", "packets", "packets, scaled by sampling, each flow once")
FLOWS = Field("flows", "records", "flow records that began in the window")
SEEN_BYTES = Field("seen_bytes", "bytes", "bytes of all exporters together, duplicates included")
DURATION = Field("duration", "seconds", "from first to last byte within the window", Kind.FLOAT)
TX_BYTES = Field("tx_bytes", "bytes", "bytes sent")
RX_BYTES = Field("rx_bytes", "bytes", "bytes received")
TX_PACKETS = Field("tx_packets", "packets", "packets sent")
RX_PACKETS = Field("rx_packets", "packets", "packets received")

TRAFFIC = Measurement(
    "traffic",
    "Bytes between groups.",
    (SRC_GROUP, DST_GROUP, PROTO, SERVICE, PLANE, SHARD),
    (BYTES, PACKETS, FLOWS, SEEN_BYTES),
    "ingest",
    "groups^2 x protocols x services x planes in use",
)
NODE_TRAFFIC = Measurement(
    "node",
    "Bytes of each node by the group it talked to.",
    (NODE, GROUP, PEER_GROUP, PLANE, SHARD),
    (TX_BYTES, RX_BYTES, TX_PACKETS, RX_PACKETS, FLOWS),
    "ingest",
    "nodes x groups x planes in use",
)
PAIR = Measurement(
    "pair",
    "Bytes between training nodes: the pattern of the collectives.",
    (SRC, DST, PLANE, SHARD),
    (BYTES,),
    "ingest",
    "ring: 2 x nodes; all-to-all: nodes^2, bounded per source node",
    bound=Bound((DST,), SRC),
)
EGRESS = Measurement(
    "egress",
    "Conversations from the cluster to the outside, approved or not.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE, OFF_HOURS, INITIATOR, SHARD),
    (BYTES, PACKETS, FLOWS, DURATION),
    "ingest",
    "the largest K per source group and window, under a series budget; the rest is `other`",
    bound=Bound((DST,), SRC_GROUP, unlisted=(SRC,)),
)
VIOLATION = Measurement(
    "violation",
    "Conversations that `allowed` does not list.",
    (SRC_GROUP, DST_GROUP, SRC, DST, PROTO, SERVICE, SHARD),
    (BYTES, FLOWS),
    "ingest",
    "the largest K per source group and window; the rest is `other`",
    bound=Bound((DST,), SRC_GROUP, unlisted=(SRC,)),
)
UNKNOWN_NODE = Measurement(
    "unknown_node",
    "Addresses inside a group's prefixes that no inventory knows.",
    (GROUP, ADDRESS, SHARD),
    (BYTES, FLOWS),
    "ingest",
    "the largest K per group and window; the rest is `other`",
    bound=Bound((ADDRESS,), GROUP),
)

LAST_SEEN = Field("last_seen", "epoch seconds", "arrival of its newest record", Kind.FLOAT, Merge.MAX)
AGE = Field("age", "seconds", "time since its newest record arrived", Kind.FLOAT, Merge.LAST)
LAG = Field("lag", "seconds", "from the end of a flow to its arrival, mean", Kind.FLOAT, Merge.LAST)
SKEW = Field("skew", "seconds", "largest distance of a record's time from its arrival", Kind.FLOAT, Merge.LAST)
SAMPLING = Field("sampling", "packets", "sampling rate applied: 1 in this many", Kind.INT, Merge.LAST)
EXPORTER_RECORDS = Field("records", "records", "flow records received")
EXPORTER_BYTES = Field("bytes", "bytes", "bytes received, scaled, duplicates included")
EXPORTER_SUPPRESSED = Field("suppressed_bytes", "bytes", "bytes that another exporter counted already")
SEQ_LOST = Field("seq_lost", "records", "lost before nfacctd, by gaps in the sequence numbers (NetFlow v9: datagrams)")
UNKNOWN_RATE = Field("unknown_rate", "records", "records whose sampling rate nobody told: taken as 1:1")
ZERO_COUNTERS = Field("zero_counters", "records", "records without bytes")
SKEWED = Field("skewed", "records", "records whose time was replaced by their arrival")
LATE_BYTES = Field("late_bytes", "bytes", "bytes that came after their window had closed, and were added to it")
CLAMPED_BYTES = Field("clamped_bytes", "bytes", "bytes older than the grace, added to the oldest window kept")
EXPORTER_STATUS = Measurement(
    "exporter",
    "What each exporter sends, and what is wrong with it.",
    (EXPORTER, SHARD),
    (
        EXPORTER_RECORDS, EXPORTER_BYTES, EXPORTER_SUPPRESSED, SEQ_LOST, UNKNOWN_RATE, ZERO_COUNTERS, SKEWED,
        LATE_BYTES, CLAMPED_BYTES, LAST_SEEN, AGE, LAG, SKEW, SAMPLING,
    ),
    "ingest",
    "exporters",
)  # fmt: skip

TOTAL = Field("total", "count", "running total since the checkpoint was first made", Kind.FLOAT, Merge.LAST)
VALUE = Field("value", "as the reason says", "reading at the time", Kind.FLOAT, Merge.LAST)
PIPELINE = Measurement(
    "pipeline",
    "Counters (`total`) and readings (`value`) of the pipeline itself.",
    (STAGE, REASON, SHARD),
    (TOTAL, VALUE),
    "ingest",
    "a few dozen",
)


HEARTBEAT = "heartbeat"
"""REASON of the reading that every living part writes: epoch seconds (bridge), seconds behind (analysis)."""

LAG_SECONDS = "lag_seconds"
"""REASON of the bridge's reading: seconds from the newest flow to now."""


class Stage(StrEnum):
    """Values of STAGE."""

    COLLECT = "collect"
    READ = "read"
    NORMALISE = "normalise"
    WINDOWS = "windows"
    WRITE = "write"
    BRIDGE = "bridge"
    ANALYSIS = "analysis"


CONTACT_NEW = Field("new", "0 or 1", "1 for the first contact ever seen, 0 for one that was known or learned")
CONTACT_FIRST = Field("first_seen", "epoch seconds", "start of the window of the first contact", Kind.FLOAT, Merge.MIN)
CONTACT = Measurement(
    "contact",
    "First contacts of a source with an outside destination.",
    (SRC, SRC_GROUP, DST, DST_GROUP, PROTO, SERVICE),
    (BYTES, DURATION, CONTACT_NEW, CONTACT_FIRST),
    "analysis",
    "rare by nature; a storm becomes one row with destination `other`",
    rollup=False,
)

ACTIVE = Field("active", "0 or 1", "1 while the job runs", merge=Merge.LAST)
JOB_NODES = Field("nodes", "nodes", "nodes of the job", merge=Merge.LAST)
JOB_EVENT = Field("event", "text", "start or stop, at the moment it happens", Kind.STRING, Merge.LAST)
JOB_STATUS = Measurement(
    "job",
    "Job windows: a row a window while a job runs, and its start and stop as events.",
    (JOB, JOB_CLASS),
    (ACTIVE, JOB_NODES, JOB_EVENT),
    "analysis",
    "jobs in the retention",
    rollup=False,
)

OBSERVED = Field(
    "observed", "ratio", "bytes sent over the cohort's median; held where nothing is judged", Kind.FLOAT, Merge.LAST
)
EXPECTED = Field("expected", "ratio", "median of the same over the node's good runs", Kind.FLOAT, Merge.LAST)
LOWER = Field("lower", "ratio", "limit: expected less k spreads", Kind.FLOAT, Merge.LAST)
SCORE = Field("score", "spreads", "how far below expected, in spreads", Kind.FLOAT, Merge.LAST)
RUNS = Field("runs", "runs", "earlier good runs in the baseline", merge=Merge.LAST)
STATE = Field("state", "state", "0 learning, 1 ok, 2 low, 3 down, 4 blind", merge=Merge.LAST)
LOW_FOR = Field("low_for", "seconds", "how long it has been low or down", Kind.FLOAT, Merge.LAST)
SENT_BYTES = Field("sent_bytes", "bytes", "bytes it sent in the window", merge=Merge.LAST)
MISSING_BYTES = Field("missing_bytes", "bytes", "bytes below expected since it went low", merge=Merge.LAST)
BASELINE = Measurement(
    "baseline",
    "Each node of a running job against its own past runs.",
    (NODE, GROUP, JOB, JOB_CLASS),
    (OBSERVED, EXPECTED, LOWER, SCORE, RUNS, STATE, LOW_FOR, SENT_BYTES, MISSING_BYTES),
    "analysis",
    "nodes x jobs in the retention",
    rollup=False,
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

MEASUREMENTS = (
    TRAFFIC, NODE_TRAFFIC, PAIR, EGRESS, VIOLATION, UNKNOWN_NODE, EXPORTER_STATUS, PIPELINE, CONTACT, JOB_STATUS,
    BASELINE,
)  # fmt: skip
"""Everything that is stored."""

RAW = "raw"
MINUTE = "1m"
HOUR = "1h"
"""Names of the retentions; every query names one: ``FROM "1m"."node"``."""
