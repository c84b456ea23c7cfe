"""How traffic is drawn: conserved, deterministic, and with dropouts that lower one node only."""

import socket
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import UserError
from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster
from simulate.incidents.incident import Incident
from simulate.incidents.stage import Stage
from simulate.incidents.staging_egress import first_contact
from simulate.incidents.staging_jobs import node_dropout, ranks_moved
from simulate.packets.flows import cut, talks
from simulate.packets.udp import Clock, Target, UdpEmitter
from simulate.packets.wire import SequenceNumbers, plan
from simulate.scenarios.scenario import Algorithm, Phase, Profile, Run, Scenario
from simulate.traffic.bulk_load import load_batches
from simulate.traffic.cast import Cast
from simulate.traffic.training_traffic import connections
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth

REPOSITORY = Path(__file__).parents[2]
START = 1_795_248_000


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return load_cluster(REPOSITORY / "cluster.yaml")


def scenario(cluster: Cluster, *, seed: int = 1, seconds: int = 60, incidents: tuple[Incident, ...] = ()) -> Scenario:
    cast = Cast(cluster)
    run = Run("live", tuple(cast.training), START, START + seconds, 70)
    return Scenario(seed, Phase(START, START + seconds, 10, 10), runs=(run,), incidents=incidents)


def stage(cluster: Cluster, seconds: int = 60) -> Stage:
    play = scenario(cluster, seconds=seconds)
    return Stage(cluster, Cast(cluster), Profile(), play.runs, None, 1)


def truth_of(cluster: Cluster, play: Scenario) -> dict[str, int]:
    workload = Workload(cluster, play)
    truth = GroundTruth(workload)
    for batch in workload.batches(play.live):
        truth.add(batch.frame)
    return {node["node"]: node["tx_bytes"] for node in truth.document()["nodes"]}


@given(
    st.lists(
        st.tuples(st.integers(1, 10**13), st.integers(1, 10**8), st.sampled_from([40, 300, 1500, 9000])),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([1_000, 10_000, 60_000]),
)
def test_cutting_loses_nothing(rows: list[tuple[int, int, int]], timeout: int) -> None:
    """Pieces of a talk have its bytes, its packets and its time, and none is longer than the timeout."""
    for number, (volume, length, packet) in enumerate(rows):
        # Keep the number of pieces small: a talk of 100,000 s at most.
        whole = talks(
            src=number, dst=7, src_port=1, dst_port=2, start=5, end=5 + length % (timeout * 50) + 1, volume=volume,
            packet=packet,
        )  # fmt: skip
        pieces = cut(whole, timeout)
        sums = pieces.group_by("src").agg(pl.sum("bytes", "packets"), pl.min("start"), pl.max("end"))
        wanted = whole.select("src", "bytes", "packets")
        assert sums.sort("src").select("src", "bytes", "packets").equals(wanted.sort("src"))
        assert (pieces["end"] - pieces["start"]).max() <= timeout
        assert (pieces["packets"] > 0).all()
        assert pieces["start"].min() >= 5
        assert pieces["end"].max() <= whole["end"].max()


def test_collectives_are_even(cluster: Cluster) -> None:
    """Every node sends all of its bytes, and what a ring sends makes one circle on each rail."""
    cast = Cast(cluster)
    run = scenario(cluster).runs[0]
    for algorithm in Algorithm:
        links = connections(cast, run, algorithm)
        assert np.bincount(links.sender, links.weight) == pytest.approx(np.ones(len(run.nodes)))
        assert (links.src != links.dst).all()
    ring = connections(cast, run, Algorithm.RING)
    for rail in cast.rails:
        own = set(rail.members.values())
        following = {s: d for s, d in zip(ring.src, ring.dst, strict=True) if s in own}
        seen, at = set(), next(iter(own))
        while at not in seen:
            seen.add(at)
            at = following[at]
        assert seen == own
    tree = connections(cast, run, Algorithm.TREE)
    assert {(a, b) for a, b in zip(tree.src, tree.dst, strict=True)} == {
        (b, a) for a, b in zip(tree.src, tree.dst, strict=True)
    }


@pytest.mark.parametrize("share", [0.8, 0.0])
def test_a_dropout_lowers_its_node_only(cluster: Cluster, share: float) -> None:
    """For half of the minute the node sends less; everybody else sends what they would have sent."""
    incident = node_dropout(stage(cluster), START + 30, START + 60, share=share)
    calm, fallen = truth_of(cluster, scenario(cluster)), truth_of(cluster, scenario(cluster, incidents=(incident,)))
    for node, before in calm.items():
        after = fallen[node]
        if node == incident.src:
            assert after == pytest.approx(before * (1 + share) / 2, rel=0.03)
        else:
            # What it receives, a neighbour acknowledges: a few thousandths. A dead node's server has less to send.
            reads = 0.02 if share == 0 and node.startswith("nas-") else 0.005
            assert after == pytest.approx(before, rel=reads)


@pytest.mark.parametrize("count", [0, 4])
def test_moved_ranks_send_as_much_to_others(cluster: Cluster, count: int) -> None:
    """For half of the minute nodes send to those that stand behind them in the new order; each as much as ever."""
    incident = ranks_moved(stage(cluster), START + 30, START + 60, count=count)
    ring = Profile(algorithm=Algorithm.RING)
    calm, moved = (
        collectives(cluster, replace(scenario(cluster, incidents=incidents), profile=ring))
        for incidents in ((), (incident,))
    )
    half = pl.col("start") < (START + 30) * 1000
    assert moved.filter(half).equals(calm.filter(half))
    before, after = (
        one.filter(~half).group_by("from").agg(pl.sum("bytes")).sort("from")["bytes"].to_numpy()
        for one in (calm, moved)
    )
    assert after == pytest.approx(before, abs=100)
    nodes = scenario(cluster).runs[0].nodes
    assert sorted(incident.nodes) == sorted(nodes)
    assert incident.nodes[count or len(nodes) :] == nodes[count or len(nodes) :]
    for rows, order in ((moved.filter(half), nodes), (moved.filter(~half), incident.nodes)):
        behind = dict(zip(order, (*order[1:], order[0]), strict=True))
        assert {*rows.select("from", "to").iter_rows()} == {*behind.items()}


def collectives(cluster: Cluster, play: Scenario) -> pl.DataFrame:
    """Return what training nodes send each other: from, to (names), start (epoch ms), bytes."""
    workload = Workload(cluster, play)
    owner = pl.Series([workload.cast.addresses.nodes[i] if i >= 0 else "" for i in workload.cast.addresses.node])
    sent = pl.concat([batch.frame for batch in workload.batches(play.live)])
    sent = sent.filter(pl.col("counted") & (pl.col("dst_port") == 29500))
    ends = (owner.gather(sent[end]).alias(name) for end, name in (("src", "from"), ("dst", "to")))
    return sent.with_columns(*ends).group_by("from", "to", "start").agg(pl.sum("bytes")).sort("from", "to", "start")


@pytest.mark.thorough
def test_nodes_differ_little_and_persistently(cluster: Cluster) -> None:
    """Shares scatter around each node's own level by the noise of the profile, whether records are short or long."""
    cast = Cast(cluster)
    nodes = tuple(cast.training)
    profile = Profile(noise=0.02, shares=((nodes[3], 0.6),))
    for phase in (Phase(START, START + 600, 10, 10), Phase(START, START + 3600, 60, 3600, 60)):
        run = Run("live", nodes, phase.start, phase.end, 10_000)
        workload = Workload(cluster, Scenario(1, phase, profile=profile, runs=(run,)))
        frames = [batch.frame for batch in workload.batches(phase)]
        sent = pl.concat(frames).filter(pl.col("counted") & (pl.col("dst_port") == 29500))
        owner = pl.Series([cast.addresses.nodes[i] if i >= 0 else "" for i in cast.addresses.node])
        sent = sent.with_columns(owner.gather(sent["src"]).alias("node"))
        table = sent.group_by("node", "start").agg(pl.sum("bytes"))
        table = table.with_columns((pl.col("bytes") / pl.col("bytes").median().over("start")).alias("share"))
        by_node = table.group_by("node").agg(pl.mean("share").alias("mean"), pl.std("share").alias("std")).sort("node")
        means = dict(by_node.select("node", "mean").iter_rows())
        assert means.pop(nodes[3]) == pytest.approx(0.6, abs=0.03)
        assert all(abs(mean - 1) < 0.05 for mean in means.values())
        spread = by_node.filter(pl.col("node") != nodes[3])["std"].mean()
        assert spread == pytest.approx(0.02, rel=0.3)


def captured(cluster: Cluster, play: Scenario) -> list[bytes]:
    """Return the datagrams that a simulation sends, in order."""
    workload = Workload(cluster, play)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        target = Target("127.0.0.1", receiver.getsockname()[1])
        found: list[bytes] = []
        truth = GroundTruth(workload)
        # One slice at a time, read at once: nothing waits in the socket for long.
        with UdpEmitter(workload, truth, netflow=target, sflow=target) as emitter:
            done = threading.Event()

            def read() -> None:
                while True:
                    message = receiver.recv(65_536)
                    if message == b"end":
                        done.set()
                        return
                    found.append(message)

            thread = threading.Thread(target=read)
            thread.start()
            emitter.run(workload.batches(play.live), Clock(START, 0), threading.Event())
            receiver.sendto(b"end", (target.host, target.port))
            thread.join(10)
        assert done.is_set()
    assert len(found) == sum(e["datagrams"] for e in truth.document()["exporters"])
    return found


def test_same_seed_same_bytes(cluster: Cluster) -> None:
    """Two runs put the same bytes on the wire; another seed does not."""
    first, second = (captured(cluster, scenario(cluster, seconds=20)) for _ in range(2))
    assert first == second
    assert all(len(message) <= 1400 for message in first)
    other = captured(cluster, scenario(cluster, seed=2, seconds=20))
    assert other != first


def test_phases_begin_anywhere(cluster: Cluster) -> None:
    """Records come in the order of their export, inside their batch, and end with the phase."""
    play = scenario(cluster)
    last = 0
    for batch in Workload(cluster, play).batches(play.live):
        export = batch.frame["export"]
        assert export.is_sorted()
        if batch.frame.height:
            assert last <= int(export[0])
            last = int(export[-1])
        assert (batch.frame["export"] < batch.until).all()
        assert (batch.frame["start"] <= batch.frame["end"]).all()
        assert int(batch.frame["end"].max() or 0) < play.live.end * 1000
    assert last < play.live.end * 1000 + 1000


def test_sequence_numbers_of_files_go_on(cluster: Cluster) -> None:
    """Batch by batch, each exporter's numbers continue where they stopped, by its protocol's rule."""
    play = scenario(cluster)
    workload = Workload(cluster, play)
    numbers = SequenceNumbers(workload.fabric.styles)
    expected = {"v5": {}, "v9": {}, "ipfix": {}, "sflow": {}}
    for batch in workload.batches(play.live):
        planned = plan(batch.frame, workload.cast.addresses, workload.fabric.styles)
        counts = np.diff(planned.bounds)
        for exporter, number, count in zip(planned.exporter, numbers.assign(planned), counts, strict=True):
            kind = workload.fabric.styles[exporter].flow_format.value
            following = expected[kind]
            assert number == following.get(exporter, 0 if kind == "v5" else 1)
            following[exporter] = number + (count if kind in ("v5", "ipfix") else 1)
    assert all(expected.values())


def test_only_to_this_machine(cluster: Cluster) -> None:
    """Other machines only when asked; exporters only from addresses that this machine has."""
    workload = Workload(cluster, scenario(cluster))
    near, far = Target("127.0.0.1", 9), Target("192.0.2.1", 9)
    with pytest.raises(UserError, match=r"192\.0\.2\.1:9: not on this machine"):
        UdpEmitter(workload, GroundTruth(workload), netflow=far, sflow=near)
    UdpEmitter(workload, GroundTruth(workload), netflow=far, sflow=near, allow_remote=True).close()
    moved = parse_cluster((REPOSITORY / "cluster.yaml").read_text().replace("127.0.0.11", "192.0.2.11"))
    elsewhere = Workload(moved, scenario(moved))
    with pytest.raises(UserError, match=r"exporters\.leaf-1\.address: 192\.0\.2\.11"):
        UdpEmitter(elsewhere, GroundTruth(elsewhere), netflow=near, sflow=near)


def test_a_small_cluster_is_enough() -> None:
    """Two groups, two nodes without rails, and one exporter without interfaces make traffic."""
    cluster = parse_cluster(
        """
        cluster: small
        groups:
          gpu: {title: GPU, role: training, prefixes: [10.1.0.0/24]}
          disk: {title: Disk, role: storage, prefixes: [10.2.0.0/24]}
        nodes:
          "g{1..3}": {group: gpu, addresses: ["10.1.0.{1..3}"]}
          d1: {group: disk, addresses: [10.2.0.1]}
        exporters:
          sw: {address: 127.0.0.21, protocol: netflow}
        """
    )
    sent = truth_of(cluster, scenario(cluster))
    assert all(sent.values())
    with pytest.raises(UserError, match="exporters"):
        Workload(replace(cluster, exporters=()), scenario(cluster))


def test_addresses_of_one_family_talk_to_each_other_alone() -> None:
    """Pairs of both had zeros for an address on the wire. Storage with both answers each in its own."""
    own = {"gpu-1": ["10.1.0.1"], "gpu-2": ["fd00:1::2"], "st-1": ["10.2.0.1", "fd00:2::1"], "st-2": ["fd00:2::2"]}
    text = """
    cluster: mixed
    groups:
      training: {title: Training, role: training, prefixes: [10.1.0.0/16, "fd00:1::/32"]}
      storage: {title: Storage, role: storage, prefixes: [10.2.0.0/16, "fd00:2::/32"]}
    exporters: {leaf: {address: 192.0.2.1, counts: true}}
    nodes:
    """ + "".join(
        f"  {name}: {{group: {'training' if name[0] == 'g' else 'storage'}, addresses: {addresses}}}\n    "
        for name, addresses in own.items()
    )
    mixed = parse_cluster(text)
    workload = Workload(mixed, scenario(mixed))
    live, load = workload.batches(workload.scenario.live), load_batches(workload, 500, 2)
    for batches, servers in ((live, {"10.2.0.1", "fd00:2::1", "fd00:2::2"}), (load, {"10.2.0.1"})):
        frame = pl.concat([batch.frame for batch in batches])
        src, dst = (workload.cast.addresses.text.gather(frame[name]) for name in ("src", "dst"))
        assert (src.str.contains(":") == dst.str.contains(":")).all()
        assert servers <= {*src} & {*dst}
    incident = first_contact(stage(mixed), START, START + 30, node="gpu-2", to="203.0.113.9")
    with pytest.raises(UserError, match="between fd00:1::2 and 203"):
        Workload(mixed, scenario(mixed, incidents=(incident,)))
