"""Points of a large cluster, written straight into a store: as many series as a bridge and an analysis would keep.

Every measurement has the tags that boards ask for, and values that move; what they say means nothing.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl

from cluster.model import EXTERNAL, Cluster, Retention, Role
from ingest.read.records import Reason
from store import schema
from store.influx import Store
from store.points import WINDOW, batches
from store.schema import AccessBreach, Breach, Capacity, Cause, Field, Kind, Measurement, NodeState, Stage, Violation

SHARD = "0"
_ROWS = 400_000
_WRITERS = 2
_TALKERS, _CLIENTS, _STRANGERS = 200, 100, 20
"""Outside conversations, clients of inference and unknown addresses that are named at a time."""
_LOW_OF = 97
"""One of so many nodes is low, and one of so many links and nodes has any of:"""
_TROUBLE = (schema.IN_ERRORS, schema.OUT_ERRORS, schema.IN_DISCARDS, schema.OUT_DISCARDS, schema.MARKED_PACKETS)
_QUIET = 0.9
"""Part of the links that are less than a tenth full."""
_SPEED = 400_000_000_000
"""Of each link, bit/s."""
_SCATTER = (5**0.5 - 1) / 2
"""Multiples of it spread rows evenly over 0 to 1, in no order."""
_ENDPOINT_NODES = 100
"""Nodes named for each storage endpoint: bridge.named_per_window."""
_SERVICES = ("collective", "checkpoint", "https", "ssh", "other")
_INTERFACES = 50
_NAMED = 1_000
"""Outside addresses of which something is known."""
_JOB = {schema.JOB: "run-7", schema.JOB_CLASS: "llama"}

EVERY = {schema.BASELINE: 60, schema.JOB_NODE: 300} | dict.fromkeys(
    (schema.JOB_ROLE, schema.JOB_PAIR, schema.JOB_STEPS, schema.JOB_VERDICT), 300
)
"""Seconds between the rows of what analysis does not write in each window; of nodes that are ok, as most are."""

Rows = list[dict[str, str]]


def series(cluster: Cluster) -> dict[Measurement, Rows]:
    """Return the tags of every series, by measurement."""
    nodes = [node for node in cluster.nodes if cluster.group(node.group).role is Role.TRAINING]
    names = [node.name for node in nodes]
    owner = nodes[0].group
    peers = [owner, *(g.id for g in cluster.groups_with(Role.STORAGE, Role.MANAGEMENT))]
    inside = [group.id for group in cluster.groups]
    talk = {schema.PROTO: "tcp", schema.SERVICE: "https"}
    compute = {schema.PLANE: "compute"}
    rails = sorted({str(entry.rail) for node in nodes for entry in node.addresses if entry.rail is not None}) or ["0"]
    following = [*names[1:], names[0]]
    endpoints = [n for n in cluster.nodes if cluster.group(n.group).role in (Role.STORAGE, Role.MODEL_STORAGE)]
    outside = [
        {schema.SRC: f"model-store-{number % 2 + 1}", schema.SRC_GROUP: "model_storage"}
        | {schema.DST: f"203.0.113.{number}", schema.DST_GROUP: EXTERNAL}
        | {schema.OFF_HOURS: schema.NO, schema.INITIATOR: schema.BY_SOURCE}
        | talk
        for number in range(_TALKERS)
    ]
    links = [
        {schema.EXPORTER: one.name, schema.INTERFACE: f"eth{index}", schema.KIND: kind} | compute
        for one in cluster.exporters
        for index in range(_INTERFACES)
        for kind in (schema.Link.EDGE.value if index else schema.Link.CORE.value,)
    ]
    capacities = [
        {schema.KIND: Capacity.EDGE.value, schema.SUBJECT: f"{row[schema.EXPORTER]} {row[schema.INTERFACE]}"}
        for row in links
    ]
    of_nodes = [{schema.NODE: name, schema.GROUP: owner} for name in names]
    places = {schema.COUNTRY: "US", schema.NETWORK: "AS64500 Example"}
    clients = [
        {schema.SRC: f"10.70.0.{n}", schema.SRC_GROUP: "users", schema.DST: "infer-1", schema.DST_GROUP: "inference"}
        | talk
        for n in range(_CLIENTS)
    ]
    users = [row | places | {schema.USER: f"user-{n}"} for n, row in enumerate(clients)]
    unnamed = [{schema.DST_GROUP: "inference", schema.PART: part} for part in "0123456789abcdefx"]
    logins = [
        {schema.SRC: f"mgmt-{n % 2 + 1}", schema.SRC_GROUP: "management", schema.DST: name, schema.DST_GROUP: owner}
        | {schema.PROTO: "tcp", schema.SERVICE: "ssh"}
        for n, name in enumerate(names[:_CLIENTS])
    ]
    return {
        schema.TRAFFIC: [
            {schema.SRC_GROUP: a, schema.DST_GROUP: b, schema.PROTO: "tcp", schema.SERVICE: service} | compute
            for a, b in itertools.product([*inside, EXTERNAL], repeat=2)
            for service in _SERVICES
        ],
        schema.NODE_TRAFFIC: [row | {schema.PEER_GROUP: peer} | compute for row in of_nodes for peer in peers],
        schema.NODE_TOTAL: of_nodes,
        schema.PAIR: [
            {schema.SRC: a, schema.DST: b} | compute
            for a, b in [*zip(names, following, strict=True), *zip(following, names, strict=True)]
        ],
        schema.RAIL_TRAFFIC: [row | {schema.RAIL: rail} for row in of_nodes for rail in rails],
        schema.STORAGE_IO: [
            {schema.ENDPOINT: end.name, schema.ENDPOINT_GROUP: end.group} | row
            for end in endpoints
            for row in of_nodes[:_ENDPOINT_NODES]
        ],
        schema.EGRESS: outside,
        schema.CONTACT: outside,
        schema.LEDGER: outside,
        schema.RECURRENCE: outside[:_STRANGERS],
        schema.NEW_NETWORK: [row | places for row in outside[:_STRANGERS]],
        schema.EXFILTRATION: [
            row | {schema.KIND: "bulk", schema.COUNTRY: "NL", schema.NETWORK: "", schema.LARGEST: "a -> b 50.0 GB"}
            for row in outside[:2]
        ],
        schema.SHAPE: [
            row | {schema.KIND: "tunnel", schema.COUNTRY: "NL", schema.NETWORK: "", schema.LARGEST: "a -> b 2.0 GB"}
            for row in outside[:2]
        ],
        schema.BEACON: [row | {schema.COUNTRY: "NL", schema.NETWORK: ""} for row in outside[:_STRANGERS]],
        schema.UNSEEN: [{schema.EXPORTER: "leaf-1"}],
        schema.DRILL: [{schema.KIND: "split"}],
        schema.LEASE: [{schema.WORK: "analyze", schema.HOLDER: "monitor-1:/var/lib/clusterflow"}],
        schema.OUTBOX: [
            {schema.HOLDER: "monitor-1:/var/lib/clusterflow", schema.OUTBOX_KIND: "events", schema.OUTBOX_PART: "0"}
        ],
        schema.FLOOR: [{schema.KIND: "split", schema.ABOUT: "Model Storage to many addresses"}],
        schema.COUNTING: [
            {
                schema.SRC_GROUP: row[schema.SRC_GROUP],
                schema.DST_GROUP: row[schema.DST_GROUP],
                schema.EXPORTER: "leaf-1",
                schema.COUNTED_BY: "spine-1",
                schema.REASON: "unsampled",
            }
            for row in outside[:2]
        ],
        schema.THREAT: [
            row | {schema.DIRECTION: "to", schema.LATE: schema.NO, schema.INDICATOR: row[schema.DST]}
            for row in outside[:_STRANGERS]
        ],
        schema.ADDRESS_NAME: [{schema.ADDRESS: f"203.0.{n // 256}.{n % 256}"} for n in range(_NAMED)],
        schema.ACCESS: users,
        schema.ACCESS_UNNAMED: unnamed,
        schema.ACCESS_BREACH: [row | {schema.KIND: kind.value} for kind in AccessBreach for row in users[:_STRANGERS]],
        schema.UNUSUAL_COUNTRY: users[:_STRANGERS],
        schema.ENRICHMENT: [{schema.NAME: f"list-{n}", schema.KIND: "geography"} for n in range(5)],
        schema.PULSE: [row | compute for row in of_nodes],
        schema.VIOLATION: [
            {schema.KIND: kind.value, schema.SRC: name, schema.SRC_GROUP: owner, schema.DST: "mgmt-1"}
            | {schema.DST_GROUP: "management", schema.INITIATOR: schema.BY_SOURCE}
            | talk
            for kind in Violation
            for name in names[:_STRANGERS]
        ],
        schema.BREACH: [
            {schema.KIND: kind.value, schema.SRC: name, schema.SRC_GROUP: owner}
            | {schema.DST: "nas-1", schema.DST_GROUP: "storage"}
            | talk
            for kind in Breach
            for name in names[:5]
        ],
        schema.DENIED: [
            {schema.SRC: name, schema.SRC_GROUP: owner, schema.DST: "nas-1", schema.DST_GROUP: "storage"}
            | {schema.SERVICE: "https"}
            for name in names[:5]
        ],
        schema.LOG_GAP: [{schema.INTERFACE: "eni-0"}],
        schema.UNKNOWN_NODE: [{schema.GROUP: owner, schema.ADDRESS: f"10.23.0.{n}"} for n in range(_STRANGERS)],
        schema.INFERENCE: [row | {schema.OFF_WINDOW: schema.NO} for row in clients],
        schema.INFERENCE_UNNAMED: unnamed,
        schema.INFERENCE_LOAD: [{schema.GROUP: "inference"}],
        schema.MANAGED: logins,
        schema.SESSION: [row | {schema.USER: f"user-{n % 10}"} for n, row in enumerate(logins)],
        schema.NEW_SESSION: logins[:_STRANGERS],
        schema.INTERFACE_TRAFFIC: links,
        schema.DISCARDING: links[::_LOW_OF],
        schema.EXPORTER_STATUS: [{schema.EXPORTER: one.name} for one in cluster.exporters],
        schema.RELAY_STATUS: [{schema.RELAY: "leaf-collectors-1"}],
        schema.PIPELINE: [
            *({schema.STAGE: Stage.READ.value, schema.REASON: reason.value} for reason in Reason),
            *({schema.STAGE: stage.value, schema.REASON: schema.HEARTBEAT} for stage in Stage),
            *({schema.STAGE: Stage.WRITE.value, schema.REASON: one} for one in ("points", schema.BYTES.name)),
        ],
        schema.CAPACITY: capacities,
        schema.LOADED: capacities[: round((1 - _QUIET) * len(capacities))],
        schema.COVERAGE: [{schema.SRC_GROUP: a, schema.DST_GROUP: b} for a, b in itertools.product(inside, repeat=2)],
        schema.JOB_STATUS: [_JOB],
        schema.JOB_NODE: [row | _JOB for row in of_nodes],
        schema.BASELINE: [row | _JOB for row in of_nodes],
        schema.LOW_NODE: [row | _JOB for row in of_nodes[::_LOW_OF]],
        schema.COHORT: [_JOB],
        schema.PHASE: [_JOB],
        schema.PATTERN: [_JOB],
        schema.CHANGED_PAIR: [
            _JOB | {schema.KIND: "new", schema.SRC: names[0], schema.DST: name} for name in names[1:21]
        ],
        schema.STEP: [_JOB],
        schema.CHECKPOINT: [_JOB],
        schema.CHECKPOINT_STATUS: [_JOB],
        schema.DATASET_LOAD: [_JOB],
        schema.STALL: [_JOB | {schema.CAUSE: cause.value} for cause in Cause],
        schema.JOB_ROLE: [{schema.JOB: _JOB[schema.JOB], schema.NODE: name} for name in names],
        schema.JOB_PAIR: [
            {
                schema.JOB: _JOB[schema.JOB],
                schema.KIND: "pipeline",
                schema.SRC_STAGE: str(a),
                schema.DST_STAGE: str(a + 1),
            }
            for a in range(7)
        ],
        schema.JOB_STEPS: [{schema.JOB: _JOB[schema.JOB]}],
        schema.JOB_VERDICT: [{schema.JOB: _JOB[schema.JOB], schema.PLACE: names[0]}],
        schema.RAIL_LOW: [_JOB | {schema.NODE: names[0], schema.RAIL: "1"}],
        schema.PACKET_SIZE_LOW: [_JOB | {schema.NODE: names[0]}],
        schema.HELD: [_JOB | {schema.USER: "ada"}],
        schema.DISTURBANCE: [
            {schema.KIND: "unallocated", schema.SRC: names[-1], schema.SRC_GROUP: owner, schema.FROM_JOB: "-"}
            | {schema.DST: names[0]}
            | _JOB
        ],
        schema.BURST: [{schema.DST: "nas-1", schema.DST_GROUP: "storage", schema.SRC_GROUP: owner}],
        schema.ALERT: [
            {schema.RULE: "exfil_volume", schema.SEVERITY: "critical", schema.SRC: "model-store-1"}
            | {schema.ALERT_KEY: "0", schema.CHANGE: schema.Change.FIRED.value}
        ],
        schema.DROPOUT_DIGEST: [_JOB | {schema.WORST: "gpu-0001"}],
    }


def fill(
    store: Store, retention: Retention, rows: dict[Measurement, Rows], begin: int, end: int
) -> Iterator[tuple[int, int]]:
    """Write the windows of [begin, end) of everything that a retention keeps; yields (window, points) as it goes on.

    All series of some windows at a time, in the order of time, as they would come.
    """
    kept = [m for m in rows if retention.name in m.retentions]
    frames = {
        m: pl.DataFrame([{tag: row.get(tag, "") for tag in m.tags} | {schema.SHARD: SHARD} for row in rows[m]])
        for m in kept
    }
    each = sum(frame.height / max(EVERY.get(m, 1) / retention.window, 1) for m, frame in frames.items())
    windows = range(begin // retention.window * retention.window, end, retention.window)
    together = max(1, round(_ROWS / max(each, 1)))
    # While the store takes some points the next ones are made.
    with ThreadPoolExecutor(_WRITERS) as writers:
        for first in range(0, len(windows), together):
            part = windows[first : first + together]
            written = 0
            sent: deque[Future[None]] = deque()
            for measurement, tags in frames.items():
                due = [window for window in part if window % EVERY.get(measurement, 1) == 0]
                if not due:
                    continue
                frame = _points(measurement, tags.select(t for t in tags.columns if t in measurement.tags), due)
                for lines, count in batches(measurement, frame):
                    while len(sent) > _WRITERS:
                        sent.popleft().result()
                    sent.append(writers.submit(store.write, lines, retention.name))
                    written += count
            for one in sent:
                one.result()
            yield part[-1], written


def _points(measurement: Measurement, tags: pl.DataFrame, windows: list[int]) -> pl.DataFrame:
    """Return a point for each series and window."""
    count = tags.height * len(windows)
    rng = np.random.default_rng(windows[0])
    row = np.tile(np.arange(tags.height), len(windows))
    start = np.repeat(np.array(windows, np.int64), tags.height)
    is_any = measurement not in (schema.LOW_NODE, schema.LOADED)
    values = {
        one.name: _values(one, row, start, rng, count, is_any=is_any)
        for one in measurement.fields
        if one is not schema.PULSE_BYTES
    }
    return pl.concat([tags] * len(windows)).with_columns(
        pl.Series(WINDOW, start), *(pl.Series(name, value) for name, value in values.items())
    )


def _values(
    one: Field,
    row: np.ndarray[tuple[int], np.dtype[np.int64]],
    start: np.ndarray[tuple[int], np.dtype[np.int64]],
    rng: np.random.Generator,
    count: int,
    *,
    is_any: bool,
) -> list[str] | np.ndarray[tuple[int], np.dtype[Any]]:
    """Return values of a field: of the size that they have live, and moving, because both cost room.

    `is_any`: a node may be ok and a link quiet, as most are.
    """
    if one is schema.STATE:
        return np.where(row % _LOW_OF * is_any, NodeState.OK, NodeState.LOW)
    if one is schema.TOTAL:
        return start.astype(np.float64) % 1e6 * (row + 1)
    if one.unit == "epoch seconds":
        return start.astype(np.float64 if one.kind is Kind.FLOAT else np.int64)
    if one is schema.SPEED or one.unit == "0 or 1":
        return np.full(count, _SPEED if one is schema.SPEED else int(one is not schema.IN_DIGEST), np.int64)
    if one.kind is not Kind.INT:
        load = _load(row, 0.0 if is_any else _QUIET)
        share = load * rng.uniform(0.95, 1.05, count) if one is schema.UTILISATION else rng.random(count)
        return ["start"] * count if one.kind is Kind.STRING else np.round(share, 4)
    some = rng.lognormal({"bytes": 18, "KiB": 11}.get(one.unit, 6), 0.5, count).astype(np.int64)
    return some * (row % _LOW_OF == 0) if one in _TROUBLE else some


def _load(
    row: np.ndarray[tuple[int], np.dtype[np.int64]], first: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return what share of its speed each link carries: hour by hour about the same, and most are quiet.

    Of 100 links 90 lie in the lowest tenth and 9 in the next four; one is fuller. `first`: the part that is not asked.
    """
    place = first + (1 - first) * (row * _SCATTER % 1)
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = np.interp(
        place, (0, _QUIET, 0.99, 1), (0.001, 0.095, 0.5, 0.99)
    )
    return found
