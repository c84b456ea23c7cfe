"""The engine against a slow, obvious reading of the same rules: every record by itself, in exact fractions."""

import random
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import time
from ipaddress import ip_address, ip_network

import polars as pl
import pytest

from cluster.load import parse_cluster
from cluster.model import (
    ANY,
    Authority,
    Cluster,
    Exporter,
    ExportProtocol,
    Group,
    GroupPair,
    Interface,
    Node,
    NodeAddress,
    OffHours,
    Plane,
    Role,
    Sampling,
    SamplingMode,
    Service,
)
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock, Normaliser
from ingest.flows.two_way import with_replies
from ingest.read import records
from ingest.read.counter_samples import EXPORTER, INDEX, MOMENT, SAMPLE_SCHEMA, SEQ
from ingest.readings import exporter_readings
from store import schema
from store.points import WINDOW
from store.schema import Stage

T0 = 1_790_000_000_000
"""Epoch ms; a window edge."""

Keys = Counter[tuple[object, ...]]

DESCRIBED = (Interface(900, "described"),)
"""An exporter with interfaces says what counts: it is not compared with others (test_once.py)."""

LEAF_INTERFACES = (
    Interface(1, "host", Plane.COMPUTE, speed=400_000_000_000),
    Interface(2, "nas", Plane.STORAGE),
    Interface(49, "up", counts=False),
)


def cluster() -> Cluster:
    def group(name: str, role: Role, *prefixes: str, plane: Plane | None = None) -> Group:
        return Group(name, name.title(), role, tuple(map(ip_network, prefixes)), plane=plane)

    def node(name: str, owner: str, *addresses: str | NodeAddress) -> Node:
        given = (a if isinstance(a, NodeAddress) else NodeAddress(ip_address(a)) for a in addresses)
        return Node(name, owner, tuple(given))

    def rail(address: str, number: int) -> NodeAddress:
        return NodeAddress(ip_address(address), Plane.COMPUTE, number)

    return Cluster(
        "test",
        groups=(
            group("training", Role.TRAINING, "10.1.0.0/16", "fd00:1::/48", plane=Plane.COMPUTE),
            group("storage", Role.STORAGE, "10.2.0.0/16", plane=Plane.STORAGE),
            group("vault", Role.MODEL_STORAGE, "10.2.9.0/24"),
            group("partner", Role.APPROVED_EXTERNAL, "198.51.100.0/24"),
            group("inference", Role.INFERENCE, "10.3.0.0/24"),
        ),
        nodes=(
            node("gpu-1", "training", rail("10.1.0.1", 0), rail("10.1.1.1", 1), "fd00:1::1"),
            node("gpu-2", "training", "10.1.0.2"),
            node("nas-1", "storage", "10.2.0.1"),
            node("vault-1", "vault", "10.2.9.1"),
            node("infer-1", "inference", "10.3.0.1"),
        ),
        exporters=(
            Exporter("leaf", ip_address("127.0.0.1"), interfaces=LEAF_INTERFACES),
            Exporter("spine", ip_address("127.0.0.2"), counts=False),
            Exporter(
                "sampled", ip_address("127.0.0.3"), sampling=Sampling(SamplingMode.FIXED, 100), interfaces=DESCRIBED
            ),
            Exporter("sflow", ip_address("127.0.0.4"), ExportProtocol.SFLOW, frame_overhead=18, interfaces=DESCRIBED),
            Exporter(
                "done", ip_address("127.0.0.5"), sampling=Sampling(SamplingMode.RENORMALISED), interfaces=DESCRIBED
            ),
        ),
        allowed=(GroupPair("training", "storage"), GroupPair("storage", "training"), GroupPair("vault", "partner")),
        authority=(Authority(GroupPair("vault", ANY), ("leaf",)),),
        services=(Service("https", (443,), (6,)), Service("nfs", (2049,), (6, 17))),
    )


ADDRESSES = [
    "10.1.0.1", "10.1.1.1", "fd00:1::1", "10.1.0.2", "10.2.0.1", "10.2.9.1", "10.1.7.7", "198.51.100.9", "203.0.113.5",
    "2001:db8::5", "224.0.0.5", "::ffff:10.1.0.2", "10.3.0.1", "10.3.0.7",
]  # fmt: skip
NAMES = {
    "10.1.0.1": ("gpu-1", "training"),
    "10.1.1.1": ("gpu-1", "training"),
    "fd00:1::1": ("gpu-1", "training"),
    "10.1.0.2": ("gpu-2", "training"),
    "::ffff:10.1.0.2": ("gpu-2", "training"),
    "10.2.0.1": ("nas-1", "storage"),
    "10.2.9.1": ("vault-1", "vault"),
    "10.1.7.7": ("10.1.7.7", "training"),
    "198.51.100.9": ("198.51.100.9", "partner"),
    "203.0.113.5": ("203.0.113.5", "external"),
    "2001:db8::5": ("2001:db8::5", "external"),
    "224.0.0.5": ("224.0.0.5", "local"),
    "10.3.0.1": ("infer-1", "inference"),
    "10.3.0.7": ("10.3.0.7", "inference"),
}
LISTED = {"gpu-1", "gpu-2", "nas-1", "vault-1", "infer-1"}
INSIDE = {"training", "storage", "vault", "inference"}
ALLOWED = {("training", "storage"), ("storage", "training"), ("vault", "partner")}
RAILS = {"10.1.0.1": "0", "10.1.1.1": "1"}


SFLOW_EXPORTER = 4


def random_records(seed: int, count: int) -> list[dict[str, object]]:
    rng = random.Random(seed)
    rows: list[dict[str, object]] = []
    for _ in range(count):
        start = T0 + rng.randrange(60_000)
        exporter = rng.randrange(1, 6)
        # A sample of sFlow is a moment.
        length = rng.choice([0, 1, 999, 10_000, rng.randrange(50_000)])
        end = start + (0 if exporter == SFLOW_EXPORTER else length)
        rows.append(
            {
                records.EXPORTER: f"127.0.0.{exporter}",
                records.IFACE_IN: rng.choice([1, 2, 49, None]),
                records.IFACE_OUT: rng.choice([0, 1, 7]),
                records.TOS: rng.choice([0, 1, 2, 3, 0b1011_1011]),
                records.SRC: rng.choice(ADDRESSES),
                records.DST: rng.choice(ADDRESSES),
                records.SRC_PORT: rng.choice([443, 2049, 50000, 1024]),
                records.DST_PORT: rng.choice([443, 2049, 50001, 80]),
                records.PROTOCOL: rng.choice([6, 17, 1, None]),
                records.SAMPLING_RATE: rng.choice([0, 1, 10]),
                records.START: start,
                records.END: end,
                records.ARRIVAL: T0 + 120_000,
                records.BYTES: rng.choice([0, 1, 7, rng.randrange(10**9)]),
                records.PACKETS: rng.randrange(1, 100),
                records.FLOWS: 1,
            }
        )
    return rows


def frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    full = [dict.fromkeys(records.RECORD_SCHEMA) | row for row in rows]
    return pl.DataFrame(full, schema=records.RECORD_SCHEMA)


def rate_of(row: dict[str, object]) -> int:
    if row[records.EXPORTER] == "127.0.0.3":
        return 100
    return 1 if row[records.EXPORTER] == "127.0.0.5" else max(int(str(row[records.SAMPLING_RATE])), 1)


def plane_of(row: dict[str, object]) -> str:
    """The interface's plane, else the inventory's of the source, of the destination, else their groups'."""
    if row[records.EXPORTER] == "127.0.0.1" and row[records.IFACE_IN] in {1, 2}:
        return "compute" if row[records.IFACE_IN] == 1 else "storage"
    ends = str(row[records.SRC]), str(row[records.DST])
    if any(end in RAILS for end in ends):
        return "compute"
    planes = {"training": "compute", "storage": "storage"}
    return next((planes[NAMES[end][1]] for end in ends if NAMES[end][1] in planes), "unknown")


def answers(row: dict[str, object]) -> bool:
    """Whether the destination opened the conversation."""
    serves = {443: row[records.PROTOCOL] == 6, 2049: row[records.PROTOCOL] in {6, 17}}
    ports = int(str(row[records.SRC_PORT])), int(str(row[records.DST_PORT]))
    told = [serves.get(port, False) for port in ports]
    is_ping = row[records.PROTOCOL] == 1 and ports[1] >> 8 == 8
    return not is_ping and (ports[0] < ports[1] if told[0] == told[1] else told[0])


def egress_of(row: dict[str, object], src: str, dst: str) -> tuple[str, str, str]:
    """The source's group, as egress has it: who answers from outside is no machine of ours, whoever opens may be."""
    group = NAMES[str(row[records.SRC])][1]
    if group in {"external", "local"}:
        group = "external" if group == "external" and answers(row) else "unlisted"
    return group, src, dst


def is_on_wrong_plane(row: dict[str, object]) -> bool:
    """Storage of a group that has another plane, seen by a compute interface or to a compute address."""
    ends = str(row[records.SRC]), str(row[records.DST])
    groups = [NAMES[end][1] for end in ends]
    # The vault's group has no plane: nobody knows where its traffic belongs.
    if "storage" not in groups or not set(groups) <= INSIDE:
        return False
    if row[records.EXPORTER] == "127.0.0.1" and row[records.IFACE_IN] in {1, 2}:
        return row[records.IFACE_IN] == 1
    return any(end in RAILS for end in ends)


def by_hand(rows: list[dict[str, object]]) -> dict[str, Keys]:  # noqa: C901, PLR0912, PLR0915 - one rule after the other, on purpose
    """Return bytes by measurement and key, the slow way."""
    found: dict[str, Keys] = defaultdict(Counter)
    for row in rows:
        exporter, start, end = str(row[records.EXPORTER]), int(str(row[records.START])), int(str(row[records.END]))
        volume = int(str(row[records.BYTES]))
        if exporter == "127.0.0.4":
            volume = max(volume - 18 * int(str(row[records.PACKETS])), 0)
        volume *= rate_of(row)
        packets = int(str(row[records.PACKETS])) * rate_of(row)
        src_text, dst_text = str(row[records.SRC]), str(row[records.DST])
        src, src_group = NAMES[src_text]
        dst, dst_group = NAMES[dst_text]
        counts = exporter != "127.0.0.2" and not (exporter == "127.0.0.1" and row[records.IFACE_IN] == 49)
        counts = counts and (src_group != "vault" or exporter == "127.0.0.1")
        dst_opened = answers(row)
        window = start // 10_000
        while True:
            low, high = max(start, window * 10_000), min(end, (window + 1) * 10_000)
            if end == start:
                part = volume
            else:
                part = volume * (high - start) // (end - start) - volume * (low - start) // (end - start)
            at, minute = window * 10, window // 6 * 60
            found["seen"][at, src_group, dst_group, plane_of(row)] += part
            if row[records.IFACE_IN]:
                found["in"][at, exporter, row[records.IFACE_IN]] += part
            if row[records.IFACE_OUT]:
                found["out"][at, exporter, row[records.IFACE_OUT]] += part
            if counts:
                found["traffic"][at, src_group, dst_group, plane_of(row)] += part
                if src in LISTED:
                    found["tx"][at, src, dst_group] += part
                if src_text in RAILS:
                    found["rail"][minute, src, RAILS[src_text]] += part
                if src_group == dst_group == "training" and {src, dst} <= LISTED:
                    found["pair"][minute, src, dst] += part
                if dst_group in {"partner", "external"}:
                    found["egress" if src_group in INSIDE else "foreign"][at, *egress_of(row, src, dst)] += part
                for name, owner in ((src, src_group), (dst, dst_group)):
                    if owner in INSIDE and name not in LISTED:
                        found["unknown"][at, owner, name] += part
                if src_group in {"storage", "vault"}:
                    found["read"][at, src, dst] += part
                if dst_group in {"storage", "vault"}:
                    found["write"][at, dst, src] += part
                is_free = src_group == dst_group or "local" in {src_group, dst_group}
                if not is_free and (src_group, dst_group) not in ALLOWED:
                    found["violation"][at, "not_allowed", src, dst] += part
                if src_group != dst_group and dst_group == "inference" and not dst_opened:
                    found["request"][at, src, dst] += part
                if is_on_wrong_plane(row):
                    found["violation"][at, "wrong_plane", src, dst] += part
                if exporter == "127.0.0.4" and src in LISTED and src_group == dst_group:
                    found["pulse"][start // 1000, src, plane_of(row)] += part
                    if int(str(row[records.TOS])) & 3 == 3:
                        found["mark"][at, src, plane_of(row)] += packets
            window += 1
            if window * 10_000 >= end:
                break
    return found


def stored(engine: Engine, measurement: schema.Measurement, tags: list[str], field: str) -> Keys:
    rows = engine.tables[measurement.name].all_points().group_by(WINDOW, *tags).agg(pl.sum(field)).rows()
    return Counter({row[:-1]: row[-1] for row in rows if row[-1]})


def by_name(by_index: Keys) -> Keys:
    """Return what was counted by exporter address and ifIndex by the names that cluster.yaml gives them."""
    exporters = {str(exporter.address): exporter for exporter in cluster().exporters}
    found: Keys = Counter()
    for (window, address, index), volume in by_index.items():
        exporter = exporters[str(address)]
        names = {interface.index: interface.name for interface in exporter.interfaces}
        found[window, exporter.name, names.get(int(str(index)), str(index))] += volume
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("batch", [1000, 37])
def test_every_measurement_holds_what_a_slow_count_holds(seed: int, batch: int) -> None:
    rows = random_records(seed, 300)
    engine = Engine(cluster(), Clock.LIVE, Counters())
    for first in range(0, len(rows), batch):
        assert engine.take(frame(rows[first : first + batch]), T0 / 1000 + 120).is_empty()
        engine.merge()
    expected = {name: Counter({k: v for k, v in keys.items() if v}) for name, keys in by_hand(rows).items()}
    assert len(expected) == 16, "every rule is tried by some record"
    groups = [schema.SRC_GROUP, schema.DST_GROUP, schema.PLANE]
    assert stored(engine, schema.TRAFFIC, groups, "bytes") == expected["traffic"]
    assert stored(engine, schema.TRAFFIC, groups, schema.SEEN_BYTES.name) == expected["seen"]
    assert stored(engine, schema.NODE_TRAFFIC, [schema.NODE, schema.PEER_GROUP], schema.TX_BYTES.name) == expected["tx"]
    assert stored(engine, schema.PAIR, [schema.SRC, schema.DST], "bytes") == expected["pair"]
    ends = [schema.SRC_GROUP, schema.SRC, schema.DST]
    sent = stored(engine, schema.EGRESS, ends, "bytes")
    assert Counter({key: sent[key] for key in sent if key[1] in INSIDE}) == expected["egress"]
    # Which of these get names is test_tables' business.
    foreign: Keys = Counter()
    for key, volume in [*sent.items(), *((key, -volume) for key, volume in expected["foreign"].items())]:
        foreign[key[:2]] += volume if key[1] not in INSIDE else 0
    assert expected["foreign"]
    assert not any(foreign.values())
    assert stored(engine, schema.UNKNOWN_NODE, [schema.GROUP, schema.ADDRESS], "bytes") == expected["unknown"]
    violations = [schema.KIND, schema.SRC, schema.DST]
    assert stored(engine, schema.VIOLATION, violations, "bytes") == expected["violation"]
    assert stored(engine, schema.RAIL_TRAFFIC, [schema.NODE, schema.RAIL], schema.TX_BYTES.name) == expected["rail"]
    endpoints = [schema.ENDPOINT, schema.NODE]
    assert stored(engine, schema.STORAGE_IO, endpoints, schema.READ_BYTES.name) == expected["read"]
    assert stored(engine, schema.STORAGE_IO, endpoints, schema.WRITE_BYTES.name) == expected["write"]
    assert stored(engine, schema.INFERENCE, [schema.SRC, schema.DST], "bytes") == expected["request"]
    nodes = [schema.NODE, schema.PLANE]
    assert stored(engine, schema.PULSE, nodes, "bytes") == expected["pulse"]
    assert stored(engine, schema.PULSE, nodes, schema.MARKED_PACKETS.name) == expected["mark"]
    links = [schema.EXPORTER, schema.INTERFACE]
    assert stored(engine, schema.INTERFACE_TRAFFIC, links, schema.IN_BYTES.name) == by_name(expected["in"])
    assert stored(engine, schema.INTERFACE_TRAFFIC, links, schema.OUT_BYTES.name) == by_name(expected["out"])
    by_exporter = engine.tables["exporter"].all_points()
    assert by_exporter[schema.EXPORTER_RECORDS.name].sum() == len(rows)
    assert by_exporter[schema.EXPORTER_BYTES.name].sum() == sum(expected["seen"].values())
    suppressed = sum(expected["seen"].values()) - sum(expected["traffic"].values())
    assert by_exporter[schema.EXPORTER_SUPPRESSED.name].sum() == suppressed


def one(**values: object) -> pl.DataFrame:
    row: dict[str, object] = {
        records.EXPORTER: "127.0.0.1",
        records.SRC: "10.1.0.1",
        records.DST: "203.0.113.5",
        records.SRC_PORT: 50000,
        records.DST_PORT: 443,
        records.PROTOCOL: 6,
        records.SAMPLING_RATE: 1,
        records.START: T0,
        records.END: T0,
        records.ARRIVAL: T0,
        records.BYTES: 1000,
        records.PACKETS: 1,
        records.FLOWS: 1,
    }
    return frame([row | values])


def take(engine: Engine, rows: pl.DataFrame, now_ms: int = T0) -> dict[str, pl.DataFrame]:
    engine.take(rows, now_ms / 1000)
    return {measurement.name: points for measurement, points in engine.merge()}


def test_a_clock_that_is_years_off_gives_arrival_time_and_is_counted() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    points = take(engine, one(start=0, end=5_000, arrival=T0 + 12_000))
    # The length stays: five seconds that end at the arrival.
    assert sorted(points["traffic"][WINDOW].to_list()) == [T0 // 1000, T0 // 1000 + 10]
    assert points["traffic"]["bytes"].sum() == 1000
    assert points["exporter"][schema.SKEWED.name].sum() == 1


def test_a_collector_whose_clock_is_ahead_makes_no_other_exporter_seem_silent() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    for ahead, name in ((600_000, "127.0.0.1"), (0, "127.0.0.2")):
        engine.take(one(exporter=name, arrival=T0 + ahead), T0 / 1000)
    sample = {EXPORTER: "127.0.0.4", INDEX: 1, MOMENT: T0 + 600_000, SEQ: 1}
    samples = pl.DataFrame([dict.fromkeys(SAMPLE_SCHEMA) | sample], schema=SAMPLE_SCHEMA)
    engine.take_counters(samples, T0 / 1000)
    rows = exporter_readings(cluster(), engine.exporters, window=T0 // 1000, started=0.0, drained=0.0)
    ages = dict(rows.select(schema.EXPORTER, schema.AGE.name).iter_rows())
    assert [ages[name] for name in ("leaf", "spine", "sflow")] == [0, 0, 0]


def test_a_clock_that_was_ahead_for_a_minute_costs_a_minute() -> None:
    """As of a machine that boots with its clock hours ahead, until NTP sets it."""
    counters = Counters()
    engine = Engine(cluster(), Clock.LIVE, counters)

    def taken(seconds: int) -> dict[int, int]:
        moment = T0 + seconds * 1000
        points = take(engine, one(start=moment, end=moment, arrival=moment), moment)["traffic"]
        engine.evict()
        return {window - T0 // 1000: size for window, size in points.group_by(WINDOW).agg(pl.sum("bytes")).iter_rows()}

    hours = 5 * 3600
    assert (taken(0), taken(hours), taken(hours + 60)) == ({0: 1000}, {hours: 1000}, {hours + 60: 1000})
    assert [engine.turn_back(T0 / 1000 + seconds) for seconds in (65, 66)] == [True, False]
    # The minute that was let go is not begun anew; what was written of time to come is added to when it comes.
    assert (taken(5), taken(70), taken(hours + 62)) == ({40: 1000}, {70: 1000}, {hours + 60: 2000})
    assert counters.total(Stage.NORMALISE, schema.SKEWED.name) == 0


def test_a_clock_that_was_ahead_until_its_windows_were_let_go_writes_none_of_them_anew() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    for seconds in (3600, 4200):
        take(engine, one(start=T0 + seconds * 1000, end=T0 + seconds * 1000, arrival=T0 + seconds * 1000))
        engine.evict()
    assert [engine.turn_back(T0 / 1000 + seconds) for seconds in (600, 3639, 3640)] == [False, False, True]


def test_a_backfill_believes_old_times() -> None:
    engine = Engine(cluster(), Clock.BACKFILL, Counters())
    points = take(engine, one(start=T0 - 10**10, end=T0 - 10**10))
    assert points["traffic"][WINDOW].to_list() == [(T0 - 10**10) // 10_000 * 10]


def test_records_without_any_time_count_at_their_arrival() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    assert take(engine, one(start=None, end=None))["traffic"][WINDOW].to_list() == [T0 // 1000]


@pytest.mark.parametrize(("before", "windows"), [(3_600_000, 6), (30_000, 3), (0, 1)])
def test_a_record_that_only_tells_when_its_connection_began_is_of_the_minute_before_it_was_sent(
    before: int, windows: int
) -> None:
    """As Cisco's ASA has it: nobody's clock is off, and not all bytes went by as it began."""
    engine = Engine(cluster(), Clock.LIVE, Counters())
    points = take(engine, one(start=T0 - before, end=None))
    first = (T0 - min(before, 60_000)) // 1000
    assert sorted(points["traffic"][WINDOW].to_list()) == [first + 10 * i for i in range(windows)]
    assert points["traffic"]["bytes"].sum() == 1000
    assert points["exporter"][schema.SKEWED.name].sum() == 0


def test_what_an_asa_tells_without_bytes_is_no_flow_that_lacks_them() -> None:
    """Connections that begin, and ways on which nothing went by; of others, a record without bytes is one too few."""
    counters = Counters()
    engine = Engine(cluster(), Clock.LIVE, counters)
    asa = [{"bytes": 0, "packets": 0}, {"bytes": 0, "packets": 700}, {"bytes": 900, "packets": 100}]
    theirs = pl.concat([one(version=9, end=None, **told) for told in asa])
    rows = with_replies(theirs, {"127.0.0.1"})
    points = take(engine, pl.concat([rows, one(exporter="127.0.0.3", bytes=0)]))
    told = (
        points["exporter"]
        .sort(schema.EXPORTER)
        .select(schema.EXPORTER, schema.EXPORTER_RECORDS.name, schema.ZERO_COUNTERS.name, schema.EXPORTER_BYTES.name)
    )
    assert told.group_by(schema.EXPORTER).sum().sort(schema.EXPORTER).rows() == [
        ("leaf", 3, 0, 1700),
        ("sampled", 1, 1, 0),
    ]
    assert counters.total(Stage.NORMALISE, "merged_records") == 0


def test_late_bytes_reach_their_window_and_too_late_ones_the_oldest() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    take(engine, one(start=T0 + 600_000, end=T0 + 600_000, arrival=T0 + 600_000))
    late = take(engine, one(start=T0 + 560_000, end=T0 + 560_000, arrival=T0 + 600_000))
    assert late["traffic"][WINDOW].to_list() == [(T0 + 560_000) // 1000]
    assert late["exporter"][schema.LATE_BYTES.name].sum() == 1000
    assert late["exporter"][schema.CLAMPED_BYTES.name].sum() == 0
    oldest = (T0 + 600_000 - 10_000 - 300_000) // 10_000 * 10
    clamped = take(engine, one(start=T0 + 100_000, end=T0 + 100_000, arrival=T0 + 600_000))
    assert clamped["traffic"][WINDOW].to_list() == [oldest]
    assert clamped["exporter"][schema.CLAMPED_BYTES.name].sum() == 1000


def test_a_backlog_read_in_order_is_not_late() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    hours = pl.concat([one(start=T0 + n * 60_000, end=T0 + n * 60_000, arrival=T0 + n * 60_000) for n in range(120)])
    points = take(engine, hours, T0 + 10**8)
    assert points["traffic"].height == 120
    assert points["exporter"][schema.CLAMPED_BYTES.name].sum() == 0


def test_who_opened_a_conversation_is_told_by_the_ports() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    rows = pl.concat([one(), one(src_port=443, dst_port=50000), one(src_port=50001, dst_port=50000, protocol=17)])
    egress = take(engine, rows)["egress"].sort(schema.SERVICE, schema.INITIATOR)
    seen = egress.select(schema.PROTO, schema.SERVICE, schema.INITIATOR).rows()
    assert seen == [
        ("tcp", "https", schema.BY_DESTINATION),
        ("tcp", "https", schema.BY_SOURCE),
        ("udp", schema.OTHER, schema.BY_SOURCE),
    ]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"src": "not-an-address"}, "bad_address"),
        ({"dst": None}, "bad_address"),
        ({"exporter": "127.0.0.3", "bytes": 1 << 49}, "counter_out_of_range"),
    ],
)
def test_records_that_make_no_sense_are_refused_with_a_reason(values: dict[str, object], reason: str) -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    refused = engine.take(pl.concat([one(**values), one()]), T0 / 1000)
    assert refused["reason"].to_list() == [reason]
    assert {m.name: p for m, p in engine.merge()}["traffic"]["bytes"].sum() == 1000


@pytest.mark.parametrize(("plane", "violations"), [("storage", 1), ("compute", 0)])
def test_storage_of_a_converged_fabric_is_on_no_wrong_plane(plane: str, violations: int) -> None:
    """As `clusterflow check` advises for nodes that reach storage by their compute rails alone."""
    converged = f"""
cluster: lab
groups:
  training: {{role: training, prefixes: [10.1.0.0/16], plane: compute}}
  storage: {{role: storage, prefixes: [10.2.0.0/16], plane: {plane}}}
exporters: {{leaf: {{address: 127.0.0.1, interfaces: {{1: {{name: rail, plane: compute}}}}}}}}
allowed: [{{from: training, to: storage}}]
"""
    engine = Engine(parse_cluster(converged), Clock.LIVE, Counters())
    points = take(engine, one(dst="10.2.0.1", iface_in=1))
    assert ("violation" in points) == bool(violations)


def test_a_backfill_believes_the_past_and_no_future() -> None:
    """A switch in the year 2105 sent a flow of a minute: it counts at its arrival, for as long, and is told."""
    counters = Counters()
    engine = Engine(cluster(), Clock.BACKFILL, counters)
    far = 4_260_000_000_000
    rows = one(start=far - 60_000, end=far)
    windows = take(engine, rows, T0 + 86_400_000)["traffic"].get_column(WINDOW)
    assert (windows.max(), windows.min()) == (T0 // 1000 - 10, T0 // 1000 - 60)
    # Without an arrival nothing is later than now.
    windows = take(engine, one(start=far, end=far, arrival=None), T0 + 100_000)["traffic"].get_column(WINDOW)
    assert windows.max() == (T0 + 100_000) // 10_000 * 10
    assert counters.total(Stage.NORMALISE, schema.SKEWED.name) == 2
    old = T0 - 900 * 86_400_000
    assert take(engine, one(start=old, end=old))["traffic"].get_column(WINDOW).to_list() == [old // 10_000 * 10]
    assert counters.total(Stage.NORMALISE, schema.SKEWED.name) == 2


def test_off_hours_are_decided_per_window() -> None:
    night = replace(cluster(), site=replace(cluster().site))
    engine = Engine(night, Clock.BACKFILL, Counters())
    # 23:00 UTC on the day of T0; the record crosses it.
    edge = (T0 // 86_400_000) * 86_400_000 + 23 * 3_600_000
    egress = take(engine, one(start=edge - 10_000, end=edge + 10_000, arrival=edge + 10_000))["egress"].sort(WINDOW)
    assert egress.select(schema.OFF_HOURS, "bytes").rows() == [(schema.NO, 500), (schema.YES, 500)]


def test_a_group_with_off_hours_of_its_own_follows_them() -> None:
    plain = cluster()
    noon = OffHours(time(12), time(13))
    groups = tuple(replace(group, off_hours=noon if group.id == "training" else None) for group in plain.groups)
    day = (T0 // 86_400_000) * 86_400_000
    rows = [
        one(start=at, end=at, arrival=at, src=src)
        for at in (day + 43_200_000, day + 82_800_000)
        for src in ("10.1.0.1", "10.2.9.1")
    ]
    egress = take(Engine(replace(plain, groups=groups), Clock.BACKFILL, Counters()), pl.concat(rows))["egress"]
    found = egress.sort(WINDOW, schema.SRC).select(schema.SRC, schema.OFF_HOURS).rows()
    assert found == [
        ("gpu-1", schema.YES), ("vault-1", schema.NO), ("gpu-1", schema.NO), ("vault-1", schema.YES),
    ]  # fmt: skip


def test_the_same_engine_after_a_restart() -> None:
    rows = random_records(9, 200)
    straight, stopped = (Engine(cluster(), Clock.LIVE, Counters()) for _ in range(2))
    for engine in (straight, stopped):
        engine.take(frame(rows[:100]), T0 / 1000 + 120)
        engine.merge()
    restarted = Engine(cluster(), Clock.LIVE, Counters())
    restarted.load(*stopped.dump())
    for engine in (straight, restarted):
        engine.take(frame(rows[100:]), T0 / 1000 + 120)
        engine.merge()
    for name, table in straight.tables.items():
        key = table.keys
        assert table.all_points().sort(key).equals(restarted.tables[name].all_points().sort(key)), name


def test_records_that_would_make_sums_run_over_are_refused() -> None:
    """Each counter is possible by itself; thousands of them would turn a total negative, and hide real traffic."""
    engine = Engine(cluster(), Clock.BACKFILL, Counters())
    honest = random_records(1, 50)
    forged = [{**honest[0], records.BYTES: records.MAX_COUNTER, records.SAMPLING_RATE: 0} for _ in range(9_000)]
    for one in forged:
        one[records.EXPORTER] = "127.0.0.1"
    refused = engine.take(frame(honest + forged), T0 / 1000 + 120)
    assert refused["reason"].unique().to_list() == ["counter_out_of_range"]
    assert refused.height == len(forged)
    for _, points in engine.merge():
        assert all(points[name].min() >= 0 for name, dtype in points.schema.items() if dtype == pl.Int64)


def test_sums_of_many_batches_between_two_flushes_do_not_run_over() -> None:
    """Each batch is just possible; what two hundred of them add up to does not fit 64 bits."""
    engine = Engine(cluster(), Clock.BACKFILL, Counters())
    large = {**random_records(1, 1)[0], records.BYTES: records.MAX_COUNTER, records.SAMPLING_RATE: 0}
    large[records.EXPORTER] = "127.0.0.1"
    batch = frame([large] * 63)
    for _ in range(200):
        assert engine.take(batch, T0 / 1000 + 120).is_empty()
    for measurement, points in engine.merge():
        assert all(points[name].min() >= 0 for name, dtype in points.schema.items() if dtype == pl.Int64)
        if measurement is schema.TRAFFIC:
            assert points[schema.SEEN_BYTES.name].max() == records.MAX_TOTAL


def test_sums_of_many_batches_stay_in_64_bits() -> None:
    """Each record is possible, and so is each batch of them."""
    engine = Engine(cluster(), Clock.BACKFILL, Counters())
    row = {**random_records(1, 1)[0], records.EXPORTER: "127.0.0.1", records.SRC: "10.1.0.1", records.DST: "10.2.0.1"}
    batch = frame([{**row, records.BYTES: records.MAX_COUNTER, records.SAMPLING_RATE: 0}] * 60)
    for _ in range(150):
        assert engine.take(batch, T0 / 1000 + 120).is_empty()
    for _, points in engine.merge():
        assert all(points[name].min() >= 0 for name, dtype in points.schema.items() if dtype == pl.Int64)


def test_engines_that_share_an_address_book_keep_their_own_when_it_is_begun_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingest.flows.classify._CACHE_LIMIT", 50)
    shared = Normaliser(cluster(), Clock.BACKFILL)
    quiet, scanned = (Engine(cluster(), Clock.BACKFILL, Counters(), shared) for _ in range(2))
    quiet.take(one(src="10.1.0.1", dst="10.2.0.1", bytes=1000, start=T0, end=T0), T0 / 1000)
    for offset in (0, 250):
        addresses = [f"203.0.{(offset + i) // 250}.{i % 250}" for i in range(250)]
        scan = [one(src="10.1.0.2", dst=address, bytes=1, start=T0, end=T0) for address in addresses]
        scanned.take(pl.concat(scan), T0 / 1000)
    (points,) = (points for measurement, points in quiet.merge() if measurement is schema.STORAGE_IO)
    assert points.select(schema.ENDPOINT, schema.NODE, schema.WRITE_BYTES.name).rows() == [("nas-1", "gpu-1", 1000)]
