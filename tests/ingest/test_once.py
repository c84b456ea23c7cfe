"""Every byte once without a line of `authority`: packets go past several exporters, and the packets are the truth."""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.model import (
    Authority,
    Cluster,
    Exporter,
    ExportProtocol,
    Group,
    GroupPair,
    Interface,
    Role,
    Sampling,
    SamplingMode,
)
from ingest.count.engine import Engine
from ingest.count.once import NAME
from ingest.count.sightings import served
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.kafka.partition_state import StateRecords, remembered
from ingest.kafka.partitioner import Partitions
from ingest.read import records
from store import schema
from store.schema import Stage

T0 = 1_790_000_000_000
FLUSH_MS = 15_000


@dataclass(frozen=True)
class Device:
    """An exporter: samples 1 packet in `rate`, and ends records after `timeout` seconds."""

    rate: int = 1
    timeout: int = 60
    delay: int = 1
    sflow: bool = False
    skew_ms: int = 0


@dataclass(frozen=True)
class Transfer:
    """Packets of one size at even distances, past some devices."""

    src: str
    dst: str
    packets: int
    size: int
    seconds: int
    seen_by: tuple[int, ...]
    begin: int = 0
    port: int = 40_000
    only: dict[int, tuple[int, int]] = field(default_factory=dict, hash=False)
    """Device -> the seconds between which it sees the packets, where those are not all."""
    behind_nat: frozenset[int] = frozenset()
    """Devices that see another address of the training node."""
    is_reply: bool = False

    @property
    def views(self) -> list[list[int]]:
        """Return the devices that see the same addresses, together."""
        inside = [one for one in self.seen_by if one not in self.behind_nat]
        return [one for one in (inside, [one for one in self.seen_by if one in self.behind_nat]) if one]


def cluster_of(devices: list[Device], **values: object) -> Cluster:
    def exporter(number: int, device: Device) -> Exporter:
        sampling = Sampling(SamplingMode.FIXED, device.rate)
        protocol = ExportProtocol.SFLOW if device.sflow else ExportProtocol.NETFLOW
        return Exporter(f"x{number}", ip_address(f"127.0.0.{number + 1}"), protocol, sampling=sampling)

    groups = (
        Group("training", "Training", Role.TRAINING, (ip_network("10.1.0.0/16"),)),
        Group("storage", "Storage", Role.STORAGE, (ip_network("10.2.0.0/16"),)),
    )
    exporters = tuple(exporter(number, device) for number, device in enumerate(devices))
    return replace(Cluster("once", groups=groups, exporters=exporters), **values)  # type: ignore[arg-type]


def exported(devices: list[Device], transfers: list[Transfer], seed: int) -> list[tuple[int, dict[str, object]]]:
    """Return records with the moment each is sent, in the order of sending."""
    rng = np.random.default_rng(seed)
    found: list[tuple[int, dict[str, object]]] = []
    for transfer in transfers:
        moments = T0 + transfer.begin * 1000 + np.arange(transfer.packets) * transfer.seconds * 1000 // transfer.packets
        for number in transfer.seen_by:
            device = devices[number]
            since, until = transfer.only.get(number, (0, 1 << 20))
            own = moments[(moments >= T0 + since * 1000) & (moments < T0 + until * 1000)]
            own = own[rng.random(len(own)) < 1 / device.rate]
            slots = np.arange(len(own)) if device.sflow else (own - own[:1].sum()) // (device.timeout * 1000)
            for slot in np.unique(slots):
                part = own[slots == slot] + device.skew_ms
                end = int(part[-1])
                sent = end if device.sflow else min(int(part[0]) + device.timeout * 1000, end + 15_000)
                src, dst = (
                    one.replace("10.1.0.", "10.1.9.") if number in transfer.behind_nat else one
                    for one in (transfer.src, transfer.dst)
                )
                row = {
                    records.EXPORTER: f"127.0.0.{number + 1}",
                    records.SRC: src,
                    records.DST: dst,
                    records.SRC_PORT: 2049 if transfer.is_reply else transfer.port,
                    records.DST_PORT: transfer.port if transfer.is_reply else 2049,
                    records.PROTOCOL: 6,
                    records.START: int(part[0]),
                    records.END: end,
                    records.ARRIVAL: sent + device.delay * 1000,
                    records.BYTES: len(part) * transfer.size,
                    records.PACKETS: len(part),
                    records.FLOWS: 1,
                }
                found.append((sent + device.delay * 1000, row))
    return sorted(found, key=lambda one: one[0])


def frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    return pl.DataFrame([dict.fromkeys(records.RECORD_SCHEMA) | row for row in rows], schema=records.RECORD_SCHEMA)


class Stored:
    """A store: what was written last to each point stays."""

    def __init__(self) -> None:
        self.points: dict[tuple[object, ...], tuple[int, int]] = {}
        self.counting: dict[tuple[object, ...], int] = {}
        self.suppressed: dict[tuple[object, ...], int] = {}

    def write(self, shard: object, changed: list[tuple[schema.Measurement, pl.DataFrame]]) -> None:
        for measurement, points in changed:
            for row in points.to_dicts():
                place = (shard, *(row[name] for name in ("window", *measurement.tags) if name in row))
                if measurement is schema.STORAGE_IO:
                    self.points[place] = row["read_bytes"], row["write_bytes"]
                elif measurement is schema.COUNTING:
                    self.counting[place] = row["bytes"]
                elif measurement is schema.EXPORTER_STATUS:
                    self.suppressed[place] = row["suppressed_bytes"]

    def by_pair(self) -> Counter[tuple[object, object]]:
        """Return what each node wrote to each endpoint."""
        found: Counter[tuple[object, object]] = Counter()
        for place, (_, written) in self.points.items():
            found[place[4], place[2]] += written
        return found

    def reasons(self) -> Counter[tuple[object, object, object]]:
        """Return bytes by exporter, who counts instead, and why."""
        found: Counter[tuple[object, object, object]] = Counter()
        for place, volume in self.counting.items():
            if place[4] != place[5]:
                found[place[4], place[5], place[6]] += volume
        return Counter({reason: volume for reason, volume in found.items() if volume})


def run(
    cluster: Cluster,
    sent: list[tuple[int, dict[str, object]]],
    *,
    restart_each: int = 0,
    counters: Counters | None = None,
) -> Stored:
    """Count records as they come, in a flush every few seconds; restart after each so many, or never."""
    stored = Stored()
    engine = Engine(cluster, Clock.LIVE, counters or Counters())
    for number, batch in enumerate(batches(sent)):
        assert engine.take(frame([row for _, row in batch]), batch[-1][0] / 1000).is_empty()
        stored.write(0, engine.merge())
        engine.evict()
        if restart_each and number % restart_each == 1:
            frames, notes = engine.dump()
            engine = Engine(cluster, Clock.LIVE, Counters())
            engine.load(frames, notes)
    return stored


def reloaded(
    before: Cluster, after: Cluster, sent: list[tuple[int, dict[str, object]]], *, at: int
) -> tuple[Stored, Engine]:
    """Count records as they come, by another cluster.yaml after so many flushes: a reload and a restart do the same."""
    stored, engine = Stored(), Engine(before, Clock.LIVE, Counters())
    for number, batch in enumerate(batches(sent)):
        engine.take(frame([row for _, row in batch]), batch[-1][0] / 1000)
        stored.write(0, engine.merge())
        engine.evict()
        if number == at:
            frames, notes = engine.dump()
            engine = Engine(after, Clock.LIVE, Counters())
            engine.load(frames, json.loads(json.dumps(notes)))
    return stored, engine


def batches(sent: list[tuple[int, dict[str, object]]]) -> list[list[tuple[int, dict[str, object]]]]:
    found: dict[int, list[tuple[int, dict[str, object]]]] = {}
    for one in sent:
        found.setdefault(one[0] // FLUSH_MS, []).append(one)
    return list(found.values())


devices_of_any_kind = st.lists(
    st.builds(
        Device,
        rate=st.sampled_from([1, 1, 10, 100]),
        timeout=st.sampled_from([10, 30, 60, 120]),
        delay=st.integers(0, 20),
        sflow=st.booleans(),
        skew_ms=st.integers(-2_000, 2_000),
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def topologies(draw: st.DrawFn) -> tuple[list[Device], list[Transfer]]:
    devices = draw(devices_of_any_kind)
    each = range(len(devices))
    # Some see what is sent to storage only, or what comes back; some stand behind a NAT.
    blind = draw(st.dictionaries(st.sampled_from(each), st.booleans(), max_size=2))
    behind_nat = draw(st.frozensets(st.sampled_from(each), max_size=2))
    transfers = []
    for number in range(draw(st.integers(1, 4))):
        ends = f"10.1.0.{number % 3 + 1}", f"10.2.0.{number % 2 + 1}"
        passed = draw(st.sets(st.sampled_from(each), min_size=1))
        for is_reply in draw(st.sampled_from([(False,), (True,), (False, True)])):
            seen_by = tuple(one for one in sorted(passed) if blind.get(one) is not is_reply)
            if not seen_by:
                continue
            src, dst = reversed(ends) if is_reply else ends
            transfer = Transfer(
                src,
                dst,
                packets=draw(st.sampled_from([1, 40, 1_000])),
                size=draw(st.integers(64, 1500)),
                seconds=draw(st.sampled_from([1, 20, 170, 400])),
                seen_by=seen_by,
                begin=draw(st.integers(0, 200)),
                port=40_000 + number,
                behind_nat=behind_nat,
                is_reply=is_reply,
            )
            # All but one of the best of a view see it in part: from some second on, or up to one.
            whole = {min(view, key=lambda one: devices[one].rate) for view in transfer.views}
            partly = draw(st.dictionaries(st.sampled_from(seen_by), st.tuples(st.booleans(), st.integers(0, 600))))
            only = {one: (at, 1 << 20) if late else (0, at) for one, (late, at) in partly.items() if one not in whole}
            transfers.append(replace(transfer, only=only))
    return devices, transfers


def held_against_truth(devices: list[Device], transfers: list[Transfer], total: int) -> None:
    """Exact where unsampled exporters see a transfer; else the error of the best sampling. NAT makes two of one."""
    exact = 0
    error = 0.0
    for transfer, view in [(one, view) for one in transfers for view in one.views]:
        rate = min(devices[number].rate for number in view)
        exact += transfer.packets * transfer.size
        if rate > 1:
            # Six deviations of the best, and some packets that only a coarser one happens to draw.
            coarsest = max(devices[number].rate for number in view)
            error += (6 * (transfer.packets * rate) ** 0.5 + 6 * coarsest) * transfer.size
    assert abs(total - exact) <= error


def total_of(engine_points: Stored) -> int:
    return sum(read + written for read, written in engine_points.points.values())


@settings(max_examples=12, deadline=None)
@given(
    topology=topologies(),
    seed=st.integers(0, 1 << 30),
    restart_each=st.sampled_from([0, 3]),
    at_once=st.sampled_from([3, 1 << 20]),
)
def test_one_transfer_counts_once_on_any_topology(
    topology: tuple[list[Device], list[Transfer]], seed: int, restart_each: int, at_once: int
) -> None:
    """Sampled or not, of one direction or both, behind a NAT, with a clock each, some seeing what others do not."""
    devices, transfers = topology
    sent = exported(devices, transfers, seed)
    with pytest.MonkeyPatch.context() as few:
        few.setattr("ingest.count.once._AT_ONCE", at_once)
        stored = run(cluster_of(devices), sent, restart_each=restart_each)
    held_against_truth(devices, transfers, total_of(stored))
    seen = sum(int(str(row[records.BYTES])) * devices[int(str(row[records.EXPORTER])[-1]) - 1].rate for _, row in sent)
    assert sum(stored.suppressed.values()) == sum(stored.reasons().values()) == seen - total_of(stored)
    # One exporter alone is asked nothing.
    assert sum(stored.counting.values()) == (seen if len(devices) > 1 else 0)


@pytest.fixture(name="issue")
def of_the_issue() -> tuple[list[Device], list[Transfer]]:
    """A leaf by sFlow, two border routers and a firewall, and one transfer of 16,384,000 B past all of them."""
    devices = [Device(rate=100, sflow=True), Device(timeout=60), Device(timeout=30, skew_ms=900), Device(delay=9)]
    return devices, [Transfer("10.1.0.1", "10.2.0.1", 16_000, 1024, 90, (0, 1, 2, 3))]


def test_the_transfer_of_the_issue_is_told_with_its_reasons(issue: tuple[list[Device], list[Transfer]]) -> None:
    """What was 49,152,000 B is 16,384,000 B, and who counts is said for each of the others."""
    devices, transfers = issue
    stored = run(cluster_of(devices), exported(devices, transfers, 1))
    assert stored.by_pair() == {("10.1.0.1", "10.2.0.1"): 16_384_000}
    reasons = stored.reasons()
    assert set(reasons) == {("x0", "x1", "unsampled"), ("x2", "x1", "listed_first"), ("x3", "x1", "listed_first")}
    assert reasons["x2", "x1", "listed_first"] == 16_384_000
    assert sum(stored.suppressed.values()) == sum(reasons.values())


@pytest.mark.parametrize("seen_by", [(0, 1), (0,), (1,)], ids=["both", "NetFlow", "sFlow"])
def test_a_switch_that_sends_netflow_and_sflow_counts_once(seen_by: tuple[int, ...]) -> None:
    """Both bear one address. Frames of sFlow are 18 bytes longer than their IP, of which NetFlow tells."""
    devices = [Device(), Device(rate=10, sflow=True)]
    listed = cluster_of(devices[:1])
    transfer = Transfer("10.1.0.1", "10.2.0.1", 40_000, 1500, 170, seen_by)
    sent = exported(devices, [transfer], seed=1)
    for _, row in sent:
        if row[records.EXPORTER] == "127.0.0.2":
            row |= {
                records.EXPORTER: "127.0.0.1",
                records.VERSION: records.SFLOW,
                records.SAMPLING_RATE: 10,
                records.BYTES: row[records.BYTES] + 18 * row[records.PACKETS],
            }
    for cluster in (listed, replace(listed, authority=(Authority(GroupPair("*", "*"), ("x0",)),))):
        stored = run(cluster, sent, restart_each=3)
        if 0 in seen_by:
            assert total_of(stored) == 60_000_000
        elif cluster is listed:
            assert total_of(stored) == pytest.approx(60_000_000, rel=0.1)
        else:
            assert total_of(stored) == 0
        is_found = cluster is listed and len(seen_by) > 1
        assert {exporter for exporter, *_ in stored.reasons()} == ({"x0/sflow"} if is_found else set())


def test_what_only_one_sees_is_not_lost() -> None:
    """A transfer that moves from one router to the other in the middle, and one that each has for itself."""
    devices = [Device(timeout=30), Device(timeout=30), Device(rate=10)]
    moved = Transfer("10.1.0.1", "10.2.0.1", 12_000, 1000, 240, (0, 1, 2), only={0: (0, 120), 1: (120, 400)})
    alone = [Transfer(f"10.1.0.{number + 2}", "10.2.0.1", 500, 1000, 60, (number,), port=50_000) for number in range(2)]
    found = run(cluster_of(devices), exported(devices, [moved, *alone], 3)).by_pair()
    assert found == {
        (f"10.1.0.{node}", "10.2.0.1"): size for node, size in ((1, 12_000_000), (2, 500_000), (3, 500_000))
    }


def test_authority_wins_and_so_do_described_interfaces(issue: tuple[list[Device], list[Transfer]]) -> None:
    """Where cluster.yaml says who counts, nothing is compared; a described exporter counts before better samples."""
    devices, transfers = issue
    sent = exported(devices, transfers, 1)
    told = (Authority(GroupPair("training", "storage"), ("x2", "x3")),)
    stored = run(cluster_of(devices, authority=told), sent)
    assert stored.by_pair() == {("10.1.0.1", "10.2.0.1"): 2 * 16_384_000}
    assert not stored.counting
    plain = cluster_of(devices)
    described = replace(plain.exporters[3], interfaces=(Interface(1, "inside"),))
    stored = run(replace(plain, exporters=(*plain.exporters[:3], described)), sent)
    assert stored.by_pair() == {("10.1.0.1", "10.2.0.1"): 16_384_000}
    assert {reason[1:] for reason in stored.reasons()} == {("x3", "described")}


@pytest.mark.thorough
def test_an_exporter_that_falls_silent_leaves_the_count_to_the_next(
    issue: tuple[list[Device], list[Transfer]],
) -> None:
    """Whoever counted is gone after a minute: from then on the next best counts, and nothing twice."""
    devices, _ = issue
    transfer = Transfer("10.1.0.1", "10.2.0.1", 36_000, 1000, 600, (0, 1, 2), only={1: (0, 60)})
    stored = run(cluster_of(devices), exported(devices, [transfer], 2), restart_each=3)
    assert stored.by_pair() == {("10.1.0.1", "10.2.0.1"): 36_000_000}
    assert stored.reasons()["x2", "x1", "listed_first"] == 60 * 60_000


@pytest.mark.parametrize(
    ("device", "change", "version"),
    [
        *((device, change, None) for device in (Device(timeout=5), Device(rate=10, sflow=True))
          for change in ("renamed", "listed", "no longer listed")),
        (Device(timeout=5), "renamed", records.SFLOW_IP),
    ],
)  # fmt: skip
def test_an_exporter_that_has_another_name_counts_on_as_the_same(
    device: Device, change: str, version: int | None
) -> None:
    """What it counted under its old name, or under its address, is not taken back for what it sees under the new."""
    named = cluster_of([device, device])
    first, second = named.exporters
    few = replace(named, exporters=(second,))
    renamed = replace(named, exporters=(replace(first, name="old"), second))
    before, after = {"renamed": (renamed, named), "listed": (few, named), "no longer listed": (named, few)}[change]
    begin = Transfer("10.1.0.1", "10.2.0.1", 30_000, 1000, 200, (0,))
    sent = exported([device, device], [begin, replace(begin, packets=900, seen_by=(1,), port=50_000)], 3)
    for _, row in sent:
        row |= {records.SAMPLING_RATE: device.rate, records.VERSION: version}
    stored, engine = reloaded(before, after, sent, at=5)
    seen = sum(int(str(row[records.BYTES])) * device.rate for _, row in sent)
    assert (total_of(stored), sum(stored.suppressed.values())) == (seen, 0)
    # When one was heard that is no longer listed nobody wants to know.
    suffix = "" if version is None else "/sflow"
    awaited = {f"x1{suffix}"} if change == "no longer listed" else {f"x0{suffix}", f"x1{suffix}"}
    assert engine.exporters.keys() - {"127.0.0.1"} == awaited


@pytest.mark.parametrize("fresh", ["another order", "described"])
def test_another_best_exporter_takes_the_place_of_the_one_before_and_no_byte_is_lost(fresh: str) -> None:
    """Records that the one before counted are longer than those that come in their place."""
    devices = [Device(timeout=60), Device(timeout=5)]
    before = cluster_of(devices)
    first, second = before.exporters
    second = second if fresh == "another order" else replace(second, interfaces=(Interface(1, "inside"),))
    after = replace(before, exporters=(second, first) if fresh == "another order" else (first, second))
    sent = exported(devices, [Transfer("10.1.0.1", "10.2.0.1", 40_000, 1000, 400, (0, 1))], 3)
    stored, _ = reloaded(before, after, sent, at=10)
    assert stored.by_pair() == {("10.1.0.1", "10.2.0.1"): 40_000_000}


@pytest.mark.parametrize(
    "partitions", [1, pytest.param(2, marks=pytest.mark.thorough), pytest.param(4, marks=pytest.mark.thorough)]
)
def test_partitions_of_a_topic_count_the_same(partitions: int) -> None:
    """Each partition has its own engine and memory; a worker that takes it over has that from the state topic."""
    devices = [Device(rate=10, sflow=True), Device(timeout=60, delay=5), Device(timeout=30)]
    transfers = [
        Transfer(f"10.1.0.{number}", "10.2.0.1", 800, 1000 + number, 300, (0, 1, 2), port=40_000 + number)
        for number in range(1, 9)
    ]
    cluster = cluster_of(devices)
    engines = {number: Engine(cluster, Clock.LIVE, Counters()) for number in range(partitions)}
    topics: dict[int, dict[bytes, bytes]] = {number: {} for number in range(partitions)}
    memories = {number: StateRecords(names_each=0) for number in range(partitions)}
    stored = Stored()
    for turn, batch in enumerate(batches(exported(devices, transfers, 5))):
        for number, part in Partitions(partitions).split(frame([row for _, row in batch]), records.SRC):
            engine, memory = engines[number], memories[number]
            engine.take(part, batch[-1][0] / 1000)
            memory.touch(engine)
            stored.write(number, engine.merge())
            for key, value in memory.records(engine, {}, turn):
                if value is None:
                    topics[number].pop(key, None)
                else:
                    topics[number][key] = value
            memory.committed(turn)
            memory.forget(engine.evict())
            if turn % 2:
                before = remembered(topics[number], "topic")
                assert before is not None
                engines[number], memories[number] = Engine(cluster, Clock.LIVE, Counters()), StateRecords(names_each=0)
                engines[number].load(before.frames, before.notes["engine"])
                memories[number].restored(before.keys)
    assert stored.by_pair() == {(one.src, one.dst): one.packets * one.size for one in transfers}
    assert any(key.startswith(NAME.encode()) for topic in topics.values() for key in topic)


@pytest.mark.thorough
def test_small_conversations_of_sampling_exporters_count_once_from_a_decision_on() -> None:
    """Two routers in a row sample: what each drew alone counts twice until the large ones prove that both see all.

    The bridge starts anew now and then.
    """
    devices = [Device(rate=50, timeout=20), Device(rate=50, timeout=20)]
    large = [
        Transfer(f"10.1.1.{number}", "10.2.0.1", 40_000, 1000, 2_400, (0, 1), port=50_000 + number)
        for number in range(14)
    ]
    # A packet or two each, for 40 minutes; the better router is silent for the last ten.
    small = [
        Transfer(f"10.1.0.{number % 200}", "10.2.0.9", 20, 1000, 10, (0, 1), begin=number // 2, port=number)
        for number in range(4_800)
    ]
    silent = [replace(one, only={0: (0, 1_800)}) for one in [*large, *small]]
    stored = run(cluster_of(devices), exported(devices, silent, 8), restart_each=20)

    def share(since: int, until: int) -> float:
        """Return what is counted of the small ones that begin within these seconds, by what they sent."""
        counted = sum(
            written
            for place, (_, written) in stored.points.items()
            if place[2] == "10.2.0.9" and since <= int(str(place[1])) - T0 // 1000 < until
        )
        return counted / ((until - since) * 2 * 20_000)

    assert share(0, 600) > 1.4
    assert share(1_000, 1_780) == pytest.approx(1, abs=0.15)
    assert share(1_950, 2_380) == pytest.approx(1, abs=0.2)
    assert stored.reasons()["x1", "x0", "same_traffic"] > 0


def test_decisions_that_hold_for_no_record_any_more_are_dropped() -> None:
    cluster = cluster_of([Device()])
    kept = cluster.bridge.lateness + cluster.bridge.grace
    now = T0 // 1000 // kept * kept
    engine = Engine(cluster, Clock.LIVE, Counters())
    once = engine._once
    once.decisions = {
        ("a", "b", "replaced"): [(now - 3 * kept, "x0"), (now - 2 * kept, "x1"), (now, "x0")],
        ("a", "b", "still"): [(now - 9 * kept, "x0")],
        ("a", "b", "by-itself"): [(now - 9 * kept, "x0"), (now - 2 * kept, "")],
        ("a", "b", "by-itself-soon"): [(now - 9 * kept, "x0"), (now - kept // 2, "")],
    }
    once._judged_to = 1
    once.evict(now)
    assert once.decisions == {
        ("a", "b", "replaced"): [(now - 2 * kept, "x1"), (now, "x0")],
        ("a", "b", "still"): [(now - 9 * kept, "x0")],
        ("a", "b", "by-itself-soon"): [(now - 9 * kept, "x0"), (now - kept // 2, "")],
    }


@pytest.mark.thorough
def test_sampling_exporters_that_see_different_traffic_are_left_alone() -> None:
    """Each leaf has conversations of its own beside some that both see: none of them is dropped."""
    devices = [Device(rate=50, timeout=20), Device(rate=50, timeout=20)]
    own = [
        Transfer(f"10.1.{seen}.{number}", "10.2.0.1", 20_000, 1000, 1_200, (seen,), port=50_000 + number)
        for seen in (0, 1)
        for number in range(14)
    ]
    stored = run(cluster_of(devices), exported(devices, own, 8))
    assert not stored.reasons()
    assert total_of(stored) == pytest.approx(28 * 20_000_000, rel=0.03)


def now_and_then(*, bulk: int, small: int = 120) -> tuple[list[Transfer], int]:
    """Return one conversation over two ways, of which the second has nearly all; and what it has in bytes."""
    first = Transfer("10.1.0.1", "10.2.0.1", small, 64, 1_200, (0,))
    return [first, replace(first, packets=bulk, size=1500, seen_by=(1,))], bulk * 1500


@pytest.mark.parametrize(
    "timeouts",
    [(60, 60), *(pytest.param(one, marks=pytest.mark.thorough) for one in ((300, 10), (10, 300)))],
)
def test_a_packet_now_and_then_past_the_better_exporter_hides_nothing(timeouts: tuple[int, int]) -> None:
    """Bytes that the better one cannot have seen count at the other one, and it is told how many."""
    devices = [Device(timeout=one) for one in timeouts]
    transfers, bulk = now_and_then(bulk=30_000)
    stored = run(cluster_of(devices), exported(devices, transfers, 1), restart_each=7)
    assert total_of(stored) == bulk + 120 * 64
    assert not stored.reasons()
    more = sum(volume for place, volume in stored.counting.items() if place[6] == "saw_more")
    assert more == pytest.approx(bulk, rel=0.03)


@pytest.mark.parametrize(
    "first",
    [
        Device(),
        *(pytest.param(one, marks=pytest.mark.thorough) for one in (Device(rate=100), Device(rate=10, sflow=True))),
    ],
)
def test_a_sample_now_and_then_at_the_better_exporter_hides_nothing(first: Device) -> None:
    devices = [first, Device(rate=100)]
    transfers, bulk = now_and_then(bulk=200_000, small=1_200)
    stored = run(cluster_of(devices), exported(devices, transfers, 1))
    assert total_of(stored) == pytest.approx(bulk, rel=0.1)
    assert not stored.reasons()


@pytest.mark.parametrize("beside", ["not listed", pytest.param("not described", marks=pytest.mark.thorough)])
def test_described_exporters_count_what_enters_whoever_else_sends(beside: str) -> None:
    """A third exporter, or one sFlow sample in a stranger's name, does not have them compared with each other."""
    devices = [Device(), Device(), Device()]
    plain = cluster_of(devices)
    described = [replace(one, interfaces=(Interface(1, "inside"),)) for one in plain.exporters[:2]]
    third = plain.exporters[2:] if beside == "not described" else ()
    halves = [Transfer("10.1.0.1", "10.2.0.1", 3_000, size, 300, (number,)) for number, size in enumerate((900, 1_000))]
    sent = exported(devices, halves, 1)
    if beside == "not listed":
        stranger = {records.EXPORTER: "198.51.100.7", records.VERSION: records.SFLOW, records.SRC: "10.1.0.9"}
        sent.insert(0, (sent[0][0], sent[0][1] | stranger | {records.BYTES: 1_018, records.PACKETS: 1}))
    stored = run(replace(plain, exporters=(*described, *third)), sent)
    assert stored.by_pair()["10.1.0.1", "10.2.0.1"] == 5_700_000
    assert not stored.reasons()


@pytest.mark.parametrize("first", [Device(rate=100), Device(rate=100, sflow=True)])
def test_samples_of_a_described_exporter_yield_to_one_that_sees_every_packet(first: Device) -> None:
    devices = [first, Device()]
    plain = cluster_of(devices)
    described = replace(plain.exporters[0], interfaces=(Interface(1, "inside"),))
    transfer = Transfer("10.1.0.1", "10.2.0.1", 4_000, 1_000, 1_000, (0, 1))
    stored = run(replace(plain, exporters=(described, plain.exporters[1])), exported(devices, [transfer], 1))
    assert stored.by_pair() == {("10.1.0.1", "10.2.0.1"): 4_000_000}
    assert {reason[1:] for reason in stored.reasons()} == {("x1", "unsampled")}


@pytest.mark.parametrize(
    ("second", "change"),
    [
        (Device(timeout=900), {records.END: -1}),
        (Device(timeout=60), {records.START: -1}),
        (Device(timeout=300, delay=600), {}),
        (Device(timeout=10), None),
    ],
    ids=["a connection's begin", "no start", "late", "frames"],
)
@pytest.mark.thorough
def test_the_same_packets_count_once_however_the_second_tells_of_them(
    second: Device, change: dict[str, object] | None
) -> None:
    """Bytes outside their times, or with what surrounds small packets, are no reason to count them twice."""
    devices = [Device(timeout=5), second]
    sent = exported(devices, [Transfer("10.1.0.1", "10.2.0.1", 9_000, 40, 900, (0, 1))], 1)
    for _, row in sent:
        if row[records.EXPORTER] == "127.0.0.2":
            row.update({records.BYTES: int(str(row[records.PACKETS])) * 64} if change is None else change)
    stored = run(cluster_of(devices), sent)
    assert stored.by_pair() == {("10.1.0.1", "10.2.0.1"): 360_000}


@pytest.mark.thorough
def test_samples_whose_rate_is_not_always_told_are_no_second_way() -> None:
    devices = [Device(timeout=10), Device(rate=100, timeout=10)]
    sent = exported(devices, [Transfer("10.1.0.1", "10.2.0.1", 900, 1000, 900, (0, 1))], 1)
    plain = cluster_of(devices)
    second = replace(plain.exporters[1], sampling=Sampling(SamplingMode.AUTO))
    sampled = [row for _, row in sent if row[records.EXPORTER] == "127.0.0.2"]
    for row in sampled[1:]:
        row[records.SAMPLING_RATE] = 100
    sampled[0][records.SAMPLING_RATE] = 1
    stored = run(replace(plain, exporters=(plain.exporters[0], second)), sent)
    assert stored.by_pair() == {("10.1.0.1", "10.2.0.1"): 900_000}


@pytest.mark.thorough
def test_what_only_the_second_of_two_sampling_exporters_sees_counts_where_it_is_large() -> None:
    """That both see the same traffic is said of small conversations: a large one would be in both samples."""
    devices = [Device(rate=50, timeout=20), Device(rate=50, timeout=20)]
    shared = [
        Transfer(f"10.1.1.{number}", "10.2.0.1", 40_000, 1000, 2_400, (0, 1), port=50_000 + number)
        for number in range(14)
    ]
    alone = Transfer("10.1.0.1", "10.2.0.9", 20_000, 1500, 1_200, (1,), begin=1_150)
    stored = run(cluster_of(devices), exported(devices, [*shared, alone], 1))
    assert stored.by_pair()["10.1.0.1", "10.2.0.9"] == pytest.approx(30_000_000, rel=0.1)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40))
def test_who_is_served_in_parallel_is_who_is_served_one_by_one(steps: list[tuple[int, int, int]]) -> None:
    wants = np.array([want for want, _, _ in steps])
    since = np.cumsum([step for _, step, _ in steps])
    until = np.maximum.accumulate(since + [width for _, _, width in steps])
    taken, expected = 0, []
    for want, low, high in zip(wants, since, until, strict=True):
        taken = max(taken, low) + want
        expected.append(taken <= high)
        taken = min(taken, high)
    assert served(wants, since, until).tolist() == expected


def test_memory_is_bounded_and_what_is_forgotten_stays_counted(
    issue: tuple[list[Device], list[Transfer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for six records the best exporter cannot replace all others, but little counts twice; it is told."""
    devices, transfers = issue
    sent = exported(devices, transfers, 1)
    roomy, crowded = Counters(), Counters()
    run(cluster_of(devices), sent, counters=roomy)
    assert dict(roomy.totals())[Stage.WINDOWS.value, "forgotten_comparing"] == 0
    monkeypatch.setattr("ingest.count.once._MOST_ROWS", 6)
    stored = run(cluster_of(devices), sent, counters=crowded)
    assert total_of(stored) == pytest.approx(16_384_000, rel=0.5)
    # At most: samples of a window are one record.
    assert 0 < crowded.total(Stage.WINDOWS, "forgotten_comparing") <= len(sent)
    # What is not compared yet is not forgotten.
    engine, stored = Engine(cluster_of(devices), Clock.LIVE, Counters()), Stored()
    engine.take(frame([row for _, row in sent]), sent[-1][0] / 1000)
    engine.evict()
    stored.write(0, engine.merge())
    assert total_of(stored) == 16_384_000


def test_more_addresses_than_are_remembered_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan past two exporters: what is compared comes in parts, and the address book begins anew between two."""
    monkeypatch.setattr("ingest.count.once._AT_ONCE", 20)
    monkeypatch.setattr("ingest.flows.classify._CACHE_LIMIT", 20)
    devices = [Device(), Device(delay=8)]
    transfers = [Transfer(f"10.1.0.{host}", "10.2.0.1", 10, 100, 5, (0, 1), begin=host // 50) for host in range(100)]
    stored = run(cluster_of(devices), exported(devices, transfers, 1))
    assert stored.by_pair() == {(one.src, "10.2.0.1"): 1000 for one in transfers}
