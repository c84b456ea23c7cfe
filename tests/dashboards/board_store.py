"""A store for board tests: points of every measurement, written from the schema, and what Grafana does to a query."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from cluster.model import EXTERNAL, Cluster, StoreSettings
from dashboards import variables as var
from dashboards.filled_queries import Asked, Json, asked, expand, first_choices, seconds
from ingest.read.records import Reason
from store import points, schema
from store.influx import Store
from store.schema import Breach, Capacity, Cause, Leak, NodeState, Shape, Stage

__all__ = ["Asked", "Filled", "asked", "defaults", "expand", "fill", "load", "seconds"]


def defaults(board: Json, *, everything: bool = True) -> dict[str, str]:
    """Return values of a board's variables: all of each, or some, as Grafana's `regex` format writes them."""
    some = {
        var.SOURCE: "(training|model_storage|users|management)",
        var.DESTINATION: f"(training|storage|inference|{EXTERNAL})",
        var.PLANE: "compute", var.SERVICE: "https", var.NODE: r"gpu-0[1-5]", var.JOB: "run-7",
        var.SEVERITY: "critical", "worst_nodes": r"gpu-0[1-5]",
    }  # fmt: skip
    values = first_choices(board)
    several = [one["name"] for one in board["templating"]["list"] if one.get("includeAll")]
    return values if everything else values | {name: some[name] for name in several}


# -- points ----------------------------------------------------------------------------------------------


@dataclass
class Filled:
    """A store with points up to `now` (epoch seconds)."""

    store: Store
    cluster: Cluster
    now: int


_LOGIN = {schema.DST: "gpu-01", schema.DST_GROUP: "training", schema.SERVICE: "https"}


def _tag_rows(cluster: Cluster) -> dict[schema.Measurement, list[dict[str, str]]]:
    """Return plausible tag combinations of every measurement, so that every panel finds something."""
    nodes = [node.name for node in cluster.nodes if node.group == "training"][:5]
    pairs = [
        ("training", "training"), ("training", "storage"), ("storage", "training"), ("model_storage", "inference"),
        ("users", "storage"), ("model_storage", EXTERNAL), ("management", "training"), ("inference", "users"),
    ]  # fmt: skip
    talk = {schema.PROTO: "tcp", schema.SERVICE: "https"}
    compute = {schema.PLANE: "compute"}
    training = {schema.GROUP: "training", schema.PEER_GROUP: "training"} | compute
    job = {schema.JOB: "run-7", schema.JOB_CLASS: "llama"}
    model_store = {schema.SRC: "model-store-1", schema.SRC_GROUP: "model_storage", schema.SHARD: "0"} | talk
    outside = [("203.0.113.9", EXTERNAL), ("198.51.100.7", "approved_external")]
    sent = [
        {schema.DST: dst, schema.DST_GROUP: group, schema.OFF_HOURS: off, schema.INITIATOR: schema.BY_SOURCE}
        | model_store
        for dst, group in outside
        for off in (schema.YES, schema.NO)
    ]
    asking = [
        {schema.SRC: src, schema.SRC_GROUP: group, schema.DST: "infer-1", schema.DST_GROUP: "inference"}
        | {schema.OFF_WINDOW: off} | talk
        for src, group in (("10.70.0.9", "users"), ("gpu-01", "training"), (schema.OTHER, "users"))
        for off in (schema.YES, schema.NO)
    ]  # fmt: skip
    full = [(Capacity.PAIR, "training -> storage"), (Capacity.ENDPOINT, "nas-1")]
    sending = [
        *({schema.NODE: node, schema.SHARD: shard} | training for node in nodes for shard in "01"),
        {schema.NODE: "infer-1", schema.GROUP: "inference", schema.PEER_GROUP: "users", schema.PLANE: "frontend"},
        {schema.NODE: "mgmt-1", schema.GROUP: "management", schema.PEER_GROUP: "users", schema.PLANE: "management"},
    ]
    links = [
        {schema.EXPORTER: one.name, schema.INTERFACE: link.name}
        | compute
        | {schema.KIND: (schema.Link.EDGE if link.counts else schema.Link.CORE).value}
        for one in cluster.exporters
        for link in one.interfaces
    ]
    full += [(kind, f"leaf-1 {place}") for place in range(10) for kind in (Capacity.EDGE, Capacity.CORE)]
    capacities = [{schema.KIND: kind.value, schema.SUBJECT: subject} for kind, subject in full]
    written = ("points", schema.BYTES.name)
    counted = [(Stage.READ, reason.value) for reason in Reason] + [(Stage.WRITE, one) for one in written]
    return {
        schema.TRAFFIC: [
            {schema.SRC_GROUP: a, schema.DST_GROUP: b, schema.SHARD: shard} | talk | compute
            for a, b in pairs
            for shard in "01"
        ],
        schema.NODE_TRAFFIC: sending,
        schema.NODE_TOTAL: sending,
        schema.INFERENCE: asking,
        schema.INFERENCE_LOAD: [{schema.GROUP: "inference"}],
        schema.ACCESS: [
            {schema.USER: user, schema.SRC: src, schema.SRC_GROUP: "users", schema.DST_GROUP: group}
            | {schema.SERVICE: "https", schema.COUNTRY: "NL", schema.NETWORK: "AS64500 ExampleHost"}
            for user, src in (("alice", "10.70.0.9"), (schema.UNKNOWN_USER, "10.70.0.9"), ("alice", schema.OTHER))
            for group in ("inference", "management")
        ]
        + [
            {schema.USER: "alice", schema.SRC: "mgmt-1", schema.SRC_GROUP: "management", schema.DST_GROUP: "training"}
            | {schema.SERVICE: "ssh", schema.COUNTRY: "", schema.NETWORK: ""}
        ],
        schema.MANAGED: [{schema.SRC: "mgmt-1", schema.SRC_GROUP: "management"} | _LOGIN | {schema.PROTO: "tcp"}],
        schema.SESSION: [
            {schema.SRC: src, schema.SRC_GROUP: group, schema.USER: user, schema.COUNTRY: country, schema.NETWORK: ""}
            | _LOGIN
            for src, group, user, country in (
                ("mgmt-1", "management", "alice", ""),
                ("10.70.0.9", "users", schema.UNKNOWN_USER, ""),
                ("203.0.113.9", EXTERNAL, schema.UNKNOWN_USER, "NL"),
            )
        ],
        schema.NEW_SESSION: [
            {schema.SRC: "10.70.0.9", schema.SRC_GROUP: "users", schema.COUNTRY: "", schema.NETWORK: ""}
            | _LOGIN
            | {schema.PROTO: "tcp"}
        ],
        schema.ACCESS_BREACH: [
            {schema.KIND: kind.value, schema.USER: "alice", schema.SRC: "203.0.113.9", schema.SRC_GROUP: "users"}
            | {schema.DST: "infer-1", schema.DST_GROUP: "inference"}
            | {schema.COUNTRY: "NL", schema.NETWORK: "AS64500 ExampleHost"}
            | talk
            for kind in schema.AccessBreach
        ],
        schema.UNUSUAL_COUNTRY: [
            {schema.USER: "alice", schema.SRC: "203.0.113.9", schema.SRC_GROUP: "users", schema.DST: "infer-1"}
            | {schema.DST_GROUP: "inference", schema.COUNTRY: "BR", schema.NETWORK: "AS64500 ExampleHost"}
            | talk
        ],
        schema.COVERAGE: [{schema.SRC_GROUP: a, schema.DST_GROUP: b} for a, b in pairs],
        # Of less than a tenth, which nobody looks for among these, too.
        schema.CAPACITY: capacities,
        schema.LOADED: capacities,
        schema.PHASE: [job],
        schema.CHECKPOINT: [job | {schema.JOB: f"run-{number}"} for number in (7, 8, 9)],
        schema.CHECKPOINT_STATUS: [job],
        schema.DATASET_LOAD: [job],
        schema.STALL: [job | {schema.CAUSE: cause.value} for cause in Cause],
        schema.JOB_ROLE: [{schema.JOB: job[schema.JOB], schema.NODE: node} for node in nodes],
        schema.JOB_PAIR: [
            {schema.JOB: job[schema.JOB], schema.KIND: "data", schema.SRC_STAGE: "1", schema.DST_STAGE: "1"}
        ],
        schema.JOB_STEPS: [{schema.JOB: job[schema.JOB]}],
        schema.JOB_VERDICT: [{schema.JOB: job[schema.JOB], schema.PLACE: "gpu-01"}],
        schema.HELD: [job | {schema.USER: "ada"}],
        schema.DISTURBANCE: [
            job
            | {
                schema.KIND: "unallocated",
                schema.SRC: "gpu-16",
                schema.SRC_GROUP: "training",
                schema.FROM_JOB: "-",
                schema.DST: "gpu-01",
            }
        ],
        schema.PAIR: [{schema.SRC: a, schema.DST: b} | compute for a in nodes for b in nodes if a != b],
        schema.EGRESS: sent,
        schema.CONTACT: sent,
        schema.VIOLATION: [
            {schema.SRC_GROUP: "users", schema.DST_GROUP: "storage", schema.SRC: "10.70.0.9", schema.DST: "nas-1"}
            | {schema.KIND: kind.value}
            | talk
            for kind in schema.Violation
        ],
        schema.THREAT: [
            model_store
            | {schema.DST: "203.0.113.9", schema.DST_GROUP: EXTERNAL, schema.DIRECTION: schema.OUTWARD}
            | {schema.FEED: "botnets", schema.INDICATOR: "203.0.113.0/24", schema.LATE: schema.NO}
            | {schema.COUNTRY: "NL", schema.NETWORK: "AS64500 ExampleHost"}
        ],
        schema.NEW_NETWORK: [
            model_store
            | {schema.DST: "203.0.113.9", schema.DST_GROUP: EXTERNAL, schema.COUNTRY: "NL"}
            | {schema.NETWORK: "AS64500 ExampleHost", schema.APPLICATION: "model hub", schema.FEED: "botnets"}
        ],
        schema.EXFILTRATION: [
            model_store
            | {schema.KIND: Leak.BULK.value, schema.DST: "203.0.113.9", schema.DST_GROUP: EXTERNAL}
            | {
                schema.COUNTRY: "NL",
                schema.NETWORK: "AS64500 ExampleHost",
                schema.LARGEST: "model-store-1 -> 203.0.113.9",
            }
        ],
        schema.SHAPE: [
            model_store
            | {schema.KIND: Shape.TUNNEL.value, schema.DST: "203.0.113.9", schema.DST_GROUP: EXTERNAL}
            | {schema.COUNTRY: "NL", schema.LARGEST: "model-store-1 -> 203.0.113.9"}
        ],
        schema.BEACON: [model_store | {schema.DST: "203.0.113.9", schema.DST_GROUP: EXTERNAL, schema.COUNTRY: "NL"}],
        schema.FLOOR: [{schema.KIND: "split", schema.ABOUT: "Model Storage to many addresses"}],
        schema.UNSEEN: [{schema.EXPORTER: cluster.exporters[0].name}],
        schema.LEASE: [{schema.WORK: "analyze", schema.HOLDER: "monitor-1:/var/lib/clusterflow"}],
        schema.OUTBOX: [
            {schema.HOLDER: "monitor-1:/var/lib/clusterflow", schema.OUTBOX_KIND: "events", schema.OUTBOX_PART: "0"}
        ],
        schema.ADDRESS_NAME: [{schema.ADDRESS: "203.0.113.9"}],
        schema.LEDGER: sent,
        schema.RECURRENCE: [one for one in sent if one[schema.DST_GROUP] == EXTERNAL],
        schema.BREACH: [
            {schema.KIND: kind.value, schema.SRC: "gpu-01", schema.SRC_GROUP: "training"}
            | {schema.DST: "nas-1", schema.DST_GROUP: "storage"}
            | talk
            for kind in Breach
        ],
        schema.UNKNOWN_NODE: [{schema.GROUP: "training", schema.ADDRESS: "10.20.0.99", schema.SHARD: "0"}],
        schema.RAIL_TRAFFIC: [
            {schema.NODE: node, schema.GROUP: "training", schema.RAIL: rail} for node in nodes for rail in "01"
        ],
        schema.STORAGE_IO: [
            {schema.ENDPOINT: endpoint, schema.ENDPOINT_GROUP: "storage", schema.NODE: node, schema.GROUP: "training"}
            for endpoint in ("nas-1", "nas-2")
            for node in nodes
        ],
        schema.PULSE: [{schema.NODE: node, schema.GROUP: "training"} | compute for node in nodes],
        schema.INTERFACE_TRAFFIC: links,
        schema.DISCARDING: links,
        schema.ENRICHMENT: [{schema.NAME: "blocklist", schema.KIND: "feed", schema.SHARD: "0"}],
        schema.EXPORTER_STATUS: [{schema.EXPORTER: one.name, schema.SHARD: "0"} for one in cluster.exporters],
        schema.COUNTING: [
            {schema.SRC_GROUP: "training", schema.DST_GROUP: "storage", schema.EXPORTER: "leaf-1"}
            | {schema.COUNTED_BY: "storage-1", schema.REASON: schema.Because.UNSAMPLED.value, schema.SHARD: "0"}
        ],
        schema.RELAY_STATUS: [{schema.RELAY: relay, schema.SHARD: "k0"} for relay in ("rack-7", "rack-8")],
        schema.PIPELINE: [
            {schema.STAGE: stage.value, schema.REASON: reason, schema.SHARD: shard}
            for stage, reason in counted
            for shard in "01"
        ],
        schema.ALERT: [
            {schema.RULE: "exfil_volume", schema.SEVERITY: severity, schema.SRC: "model-store-1"}
            | {schema.ALERT_KEY: severity, schema.CHANGE: change.value}
            for change in schema.Change
            for severity in ("critical", "warning")
        ],
        schema.JOB_STATUS: [job],
        schema.PATTERN: [job],
        schema.CHANGED_PAIR: [
            job | {schema.KIND: kind, schema.SRC: nodes[0], schema.DST: node}
            for kind, node in (("gone", nodes[1]), ("new", nodes[2]))
        ],
        schema.STEP: [job],
        schema.PACKET_SIZE_LOW: [job | {schema.NODE: nodes[0]}],
        schema.RAIL_LOW: [job | {schema.NODE: node, schema.RAIL: "1"} for node in nodes[:2]],
        schema.BURST: [{schema.DST: "nas-1", schema.DST_GROUP: "storage", schema.SRC_GROUP: "training"}],
        schema.BASELINE: [{schema.NODE: node, schema.GROUP: "training"} | job for node in nodes],
        # Of those that are ok: rows that were taken back.
        schema.LOW_NODE: [{schema.NODE: node, schema.GROUP: "training"} | job for node in nodes],
        schema.COHORT: [job],
        schema.JOB_NODE: [{schema.NODE: node, schema.GROUP: "training"} | job for node in nodes],
        schema.DROPOUT_DIGEST: [job | {schema.WORST: "gpu-01 / gpu-02"}],
    }


def _field_value(measurement: schema.Measurement, one: schema.Field, row: int, window: int) -> float | str:
    """Return a value of a field for the row'th series at a window."""
    special: dict[str, float | str] = {
        schema.STATE.name: row % (NodeState.BLIND + 1),
        schema.AGE.name: 4.0,
        schema.TOTAL.name: float(window % 1_000_000 * (row + 1)),
        schema.JOB_EVENT.name: "start",
        schema.RANK.name: row + 1,
        schema.MARKED_PACKETS.name: (row + 1) * 10,
        schema.UNREAD.name: sum(schema.Unread),
    }
    if one is schema.UTILISATION:
        return (row % 20 // 2) / 10 + 0.05
    if one is schema.ALERT_STATE:
        special[one.name] = schema.FIRING
    if one is schema.COHORT_EVENT:
        special[one.name] = schema.COHORT_STATE_WORDS[schema.CohortState.SLOW]
    if one is schema.CHECKPOINT_STATE:
        special[one.name] = (row + 1) % 3
    if one.name in special:
        return special[one.name]
    if one in (schema.ACTIVE_DAYS, schema.ACTIVE_HOURS):
        return 100
    if one.unit in ("epoch seconds", "0 or 1"):
        return float(window) if one.unit == "epoch seconds" else 1
    if measurement is schema.TRAFFIC and one is schema.BYTES:
        return 900_000_000
    return (row + 1) * 1000 if one.kind is schema.Kind.INT else (row + 1) / 10


def fill(
    cluster: Cluster, url: str, database: str, measurements: Sequence[schema.Measurement] = schema.MEASUREMENTS
) -> Filled:
    """Write points of every measurement, or of some, into every retention that has it, up to now."""
    store = Store(StoreSettings(url=url, database=database))
    store.ensure(cluster.retentions())
    now = int(time.time())
    for retention in cluster.retentions():
        step = {schema.RAW: 10, schema.MINUTE: 60, schema.HOUR: 3600}[retention.name]
        length = {schema.RAW: 1800, schema.MINUTE: 3600, schema.HOUR: 86400}[retention.name]
        windows = [window // step * step for window in range(now - length, now + 1, step)]
        for measurement in measurements:
            lines = points.encode(measurement, _frame(cluster, measurement, windows))
            # A measurement that no board asks for may have none.
            if lines and retention.name in measurement.retentions:
                store.write(lines, retention.name)
    return Filled(store, cluster, now)


def _frame(cluster: Cluster, measurement: schema.Measurement, windows: list[int]) -> pl.DataFrame:
    rows = [
        {points.WINDOW: window}
        | {name: value for name, value in tags.items() if name in measurement.tags}
        | {one.name: _field_value(measurement, one, position, window) for one in measurement.fields}
        for position, tags in enumerate(_tag_rows(cluster).get(measurement, []))
        for window in windows
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def load(text: str) -> Json:
    """Return a board's JSON."""
    board: Json = json.loads(text)
    return board
