"""A week of a small cluster in a real InfluxDB, as bridge and analysis would have written it: known to the byte."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl

from cluster.load import load_cluster
from cluster.model import Cluster
from store import schema
from store.influx import Store
from store.points import WINDOW, batches
from store.schema import Measurement

ZONE = ZoneInfo("Europe/Amsterdam")
START, STOP = (int(datetime(2025, 6, day, tzinfo=ZONE).timestamp()) for day in (9, 16))
"""Monday to Monday, by the site's clock."""
MINUTE, HOUR, DAY = 60, 3600, 86_400

SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img/src=http://evil.example/x onerror=alert(1)>"
ATTRIBUTE = '"><a href="javascript:alert(1)">AS64500 ExampleHost</a>'
TURNED = "\u202egnp.exe"
"""Names as an attacker would choose them: for a page, for an attribute of it, for the eye."""

CONFIG = """
cluster: weekly
site: {{time_zone: Europe/Amsterdam, off_hours: {{from: "23:00", to: "06:00"}}}}
groups:
  training: {{title: GPU Training Nodes, role: training, prefixes: [10.20.0.0/16]}}
  storage: {{title: Storage, role: storage, prefixes: [10.30.0.0/16], plane: storage}}
  model_storage: {{title: Model Storage, role: model_storage, sensitive: true, prefixes: [10.40.0.0/24]}}
  inference: {{title: Inference, role: inference, prefixes: [10.50.0.0/24]}}
  control: {{title: Management, role: management, prefixes: [10.60.0.0/24]}}
  users: {{title: Users, role: custom, prefixes: [10.70.0.0/16]}}
  partner: {{title: Partner, role: approved_external, prefixes: [198.51.100.0/24]}}
nodes:
  "gpu-{{1..4}}": {{group: training, addresses: ["10.20.0.{{1..4}}"]}}
  nas-1: {{group: storage, addresses: [10.30.0.1]}}
  store-1: {{group: model_storage, addresses: [10.40.0.1]}}
exporters:
  leaf: {{address: 127.0.0.1}}
  border: {{address: 127.0.0.2}}
  spine: {{address: 127.0.0.3}}
allowed:
  - {{from: training, to: storage}}
  - {{from: users, to: inference}}
  - {{from: inference, to: external}}
inference:
  access: [{{from: [users], services: [https]}}]
transport:
  - {{between: [training, users], is: roce}}
job_classes:
  llm: {{checkpoint: {{every: 30m}}}}
thresholds: {{exfil_volume: 20 GB}}
cost: {{gpus_per_node: 8, usd_per_gpu_hour: 30}}
store: {{url: "{url}", database: {database}, retention: {{raw: 5000d, 1m: 5000d, 1h: 5000d}}}}
"""


def cluster_file(folder: Path, url: str, database: str) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(CONFIG.format(url=url, database=database), encoding="utf-8")
    return path


def opened(path: Path) -> tuple[Cluster, Store]:
    """Return the cluster and its store, with the database made."""
    cluster = load_cluster(path)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    return cluster, store


def at(day: int, hour: float) -> int:
    """Return a moment of the week: day 0 is Monday, hours by the site's clock."""
    return START + day * DAY + round(hour * HOUR)


class Week:
    """Writes points."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(
        self, measurement: Measurement, tags: Mapping[str, str], moments: Iterable[int], **fields: float | str
    ) -> None:
        """Write a series: to the retention that keeps it, and to the rollups where there are any."""
        windows = list(moments)
        frame = pl.DataFrame({WINDOW: windows, **{name: [value] * len(windows) for name, value in fields.items()}})
        own = {schema.SHARD: "0"} if schema.SHARD in measurement.tags else {}
        frame = frame.with_columns(pl.lit(value).alias(tag) for tag, value in (own | dict(tags)).items())
        for lines, _ in batches(measurement, frame):
            for retention in (schema.RAW, schema.MINUTE) if measurement.rollup else (measurement.kept,):
                self._store.write(lines, retention)


SILENT = (at(2, 10), at(2, 10.5))
"""The leaf said nothing."""
BLIND = (at(4, 3), at(4, 3) + 600)
"""Nobody did, and the bridge did not run."""
STOPPED = (at(5, 12), at(5, 14))
"""The analysis did not run."""


def _without(*gaps: tuple[int, int]) -> list[int]:
    return [
        moment
        for moment in range(START, STOP, MINUTE)
        if not any(begin <= moment < end for begin, end in gaps)
    ]  # fmt: skip


def write_week(store: Store) -> None:
    """Write everything that the tests expect in the report."""
    week = Week(store)
    _write_pipeline(week)
    _write_outside(week)
    _write_inside(week)
    _write_jobs(week)


def _write_pipeline(week: Week) -> None:
    heard = {"leaf": _without(SILENT, BLIND), "border": _without(BLIND)}
    for exporter, moments in heard.items():
        week.write(schema.EXPORTER_STATUS, {schema.EXPORTER: exporter}, moments, records=100, seq_lost=0)
    week.write(schema.EXPORTER_STATUS, {schema.EXPORTER: "border"}, [at(1, 1)], records=100, seq_lost=500)
    beat = {schema.REASON: schema.HEARTBEAT}
    week.write(schema.PIPELINE, beat | {schema.STAGE: schema.Stage.BRIDGE}, _without(BLIND), value=1.0)
    week.write(schema.PIPELINE, beat | {schema.STAGE: schema.Stage.ANALYSIS}, _without(STOPPED), value=5.0)
    # Alive, and so far behind that it judges nothing of the present.
    behind = range(*STOPPED, MINUTE)
    week.write(schema.PIPELINE, beat | {schema.STAGE: schema.Stage.ANALYSIS}, behind, value=9_000.0)
    week.write(
        schema.ENRICHMENT, {schema.NAME: "bad", schema.KIND: "threat feed"}, [at(3, 1)], state=2, age=7_200.0,
        error=f"line 3: {SCRIPT}", in_use=1,
    )  # fmt: skip
    week.write(schema.COVERAGE, {schema.SRC_GROUP: "training", schema.DST_GROUP: "storage"}, [at(1, 1)], state=4)


def _write_outside(week: Week) -> None:
    tags = {schema.PROTO: "tcp", schema.SERVICE: "https", schema.INITIATOR: schema.BY_SOURCE}
    stolen = tags | {
        schema.SRC: "store-1", schema.SRC_GROUP: "model_storage", schema.DST: "203.0.113.9",
        schema.DST_GROUP: "external", schema.OFF_HOURS: schema.YES,
    }  # fmt: skip
    place = {schema.COUNTRY: "NL", schema.NETWORK: ATTRIBUTE, schema.FEED: "x"}
    minutes = range(at(1, 2), at(1, 2) + 10 * MINUTE, MINUTE)
    week.write(schema.EGRESS, stolen | place, minutes, bytes=4_100_000_000, flows=3, packets=3, duration=10.0)
    fetched = tags | {
        schema.SRC: "gpu-1", schema.SRC_GROUP: "training", schema.DST: "198.51.100.10", schema.DST_GROUP: "partner",
        schema.OFF_HOURS: schema.NO,
    }  # fmt: skip
    week.write(schema.EGRESS, fetched, [at(1, 12), at(6, 23.5)], bytes=5_000_000_000, flows=1, packets=1)
    answered = stolen | {schema.SRC: "infer-1", schema.SRC_GROUP: "inference", schema.DST: "203.0.113.50"}
    week.write(schema.EGRESS, answered, [at(3, 12)], bytes=1_000_000_000, flows=1, packets=1)
    # The last second before the week, and the first one after it.
    week.write(schema.EGRESS, fetched, [START - MINUTE, STOP], bytes=7, flows=1, packets=1)
    listed = {name: text for name, text in (stolen | place).items() if name in schema.THREAT.tags}
    week.write(
        schema.THREAT, listed | {schema.INDICATOR: "203.0.113.0/24", schema.DIRECTION: "out", schema.LATE: schema.NO},
        minutes, bytes=4_100_000_000, confidence=80, listed_since=START - DAY,
    )  # fmt: skip
    contact = {name: text for name, text in (stolen | place).items() if name in schema.CONTACT.tags}
    new = contact | {schema.SRC: "gpu-2", schema.SRC_GROUP: "training", schema.DST: "203.0.113.77"}
    seen = at(3, 9)
    week.write(schema.CONTACT, new, [seen, seen + 10], bytes=2_000_000, duration=10.0, new=1, first_seen=float(seen))
    week.write(schema.CONTACT, new | {schema.SERVICE: "ssh"}, [seen], bytes=500, new=1, first_seen=float(seen))
    week.write(schema.CONTACT, new | {schema.DST: "203.0.113.78"}, [seen], bytes=9, new=0, first_seen=float(seen))
    network = {name: text for name, text in new.items() if name in schema.NEW_NETWORK.tags}
    moments = [at(3, 9), at(3, 9) + 10]
    first = {"first_seen": float(at(3, 9)), "sources": 1}
    week.write(schema.NEW_NETWORK, network, moments, bytes=300, destinations=1, **first)
    week.write(
        schema.NEW_NETWORK, network | {schema.DST: "203.0.113.79"}, [at(3, 9) + 20], bytes=5, destinations=2, **first
    )
    approved = new | {schema.DST: "198.51.100.99", schema.DST_GROUP: "partner", schema.NETWORK: ""}
    week.write(schema.CONTACT, approved, [at(3, 10)], bytes=700, new=1, first_seen=float(at(3, 10)))
    week.write(schema.ADDRESS_NAME, {schema.ADDRESS: "203.0.113.77"}, [at(0, 1)], name="old.example")
    week.write(schema.ADDRESS_NAME, {schema.ADDRESS: "203.0.113.77"}, [at(3, 9)], name=SCRIPT, application=TURNED)


def _write_inside(week: Week) -> None:
    talk = {schema.PROTO: "tcp", schema.SERVICE: "nfs", schema.DST: "nas-1", schema.DST_GROUP: "storage"}
    forth = talk | {
        schema.KIND: schema.Violation.NOT_ALLOWED, schema.SRC: "10.70.0.9", schema.SRC_GROUP: "users",
        schema.INITIATOR: schema.BY_SOURCE,
    }  # fmt: skip
    back = forth | {
        schema.SRC: "nas-1", schema.SRC_GROUP: "storage", schema.DST: "10.70.0.9", schema.DST_GROUP: "users",
        schema.INITIATOR: schema.BY_DESTINATION,
    }  # fmt: skip
    week.write(schema.VIOLATION, forth, [at(0, 8), at(2, 8)], bytes=2_500_000, flows=2)
    week.write(schema.VIOLATION, back, [at(0, 8)], bytes=100, flows=1)
    wrong = forth | {schema.KIND: schema.Violation.WRONG_PLANE, schema.SRC: "gpu-3", schema.SRC_GROUP: "training"}
    week.write(schema.VIOLATION, wrong, [at(5, 8)], bytes=8_000_000_000, flows=1)
    unknown = {schema.GROUP: "training", schema.ADDRESS: "10.20.9.9"}
    week.write(schema.UNKNOWN_NODE, unknown, [at(5, 9)], bytes=70_060, tx_bytes=70_000, flows=2)
    within = {schema.SRC_GROUP: "training", schema.DST_GROUP: "storage", schema.PROTO: "tcp", schema.SERVICE: "nfs"}
    week.write(schema.TRAFFIC, within | {schema.PLANE: "storage"}, [at(0, 1)], bytes=1_000, flows=1)

    asked = {schema.DST_GROUP: "inference", schema.SERVICE: "https"}
    client = asked | {schema.SRC: "10.70.0.1", schema.SRC_GROUP: "users", schema.USER: "alice"}
    week.write(schema.ACCESS, client, [at(0, 9), at(0, 10)], bytes=30_000, flows=4)
    stranger = client | {schema.SRC: "203.0.113.5", schema.SRC_GROUP: "external", schema.USER: IMAGE}
    week.write(schema.ACCESS, stranger, [at(2, 4)], bytes=1_000_000, flows=9)
    week.write(schema.ACCESS, client | {schema.DST_GROUP: "control"}, [at(2, 4)], bytes=11, flows=1)
    breach = stranger | {
        schema.KIND: schema.AccessBreach.USER, schema.DST: "10.50.0.11", schema.PROTO: "tcp", schema.COUNTRY: "DE",
    }  # fmt: skip
    week.write(schema.ACCESS_BREACH, breach, [at(2, 4), at(2, 4) + 10], bytes=500_000, flows=4)
    unusual = {name: text for name, text in breach.items() if name in schema.UNUSUAL_COUNTRY.tags}
    week.write(schema.UNUSUAL_COUNTRY, unusual, [at(2, 4)], bytes=500_000, flows=4)
    row = asked | {schema.SRC: "10.70.0.1", schema.SRC_GROUP: "users", schema.DST: "10.50.0.11", schema.PROTO: "tcp"}
    week.write(schema.INFERENCE, row, [at(0, 9)], bytes=60_000, flows=8)


def _write_jobs(week: Week) -> None:
    job = {schema.JOB: "run-1", schema.JOB_CLASS: "llm"}
    good = {"bytes": 1_000_000_000, "expected_bytes": 1_000_000_000, "nodes": 4, "expected_nodes": 4, "seconds": 40.0}
    moments = [at(1, hour) for hour in (1.0, 1.5, 2.0)]
    week.write(schema.CHECKPOINT, job, moments, state=schema.CheckpointState.ON_TIME, due=0.0, gap=1800.0, **good)
    missed = schema.CheckpointState.MISSED
    due = float(at(1, 2.5))
    week.write(schema.CHECKPOINT, job, [at(1, 2.75)], state=missed, bytes=0, seconds=0.0, due=due, gap=0.0, nodes=0)
    late = good | {"seconds": 100.0}
    week.write(schema.CHECKPOINT, job, [at(1, 3.2)], state=schema.CheckpointState.LATE, due=due, gap=4320.0, **late)
    # One that was taken back keeps its place, with every number 0.
    week.write(schema.CHECKPOINT, job, [at(1, 3.3)], state=0, bytes=0, seconds=0.0, due=0.0, gap=0.0, nodes=0)
    status = {"overdue": 0.0, "period": 1800.0, "regular": 1, "usd_at_risk": 240.0}
    week.write(schema.CHECKPOINT_STATUS, job, [at(1, 1.2)], age=600.0, **status)
    week.write(schema.CHECKPOINT_STATUS, job, [at(1, 3.1)], age=3960.0, **(status | {"overdue": 1860.0}))
    stall = job | {schema.CAUSE: schema.Cause.STALLED}
    lost = range(at(1, 5), at(1, 5) + 600, 10)
    week.write(schema.STALL, stall, lost, lost_seconds=10.0, gpus=128, usd=128 * 30 * 10 / 3600)
    other = {schema.JOB: SCRIPT, schema.JOB_CLASS: "small", schema.CAUSE: schema.Cause.DROPOUT}
    week.write(schema.STALL, other, [at(6, 5)], lost_seconds=90.0, gpus=8, usd=6.0)
