"""Pooled datagrams are what exporters send: decoded by the real nfacctd they give what the pool says, to the byte."""

import socket
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_simulate_pmacct import needs_pmacct, printed, udp_port

from bench.load.packet_pool import PacketPool, Sums
from bench.load.packet_sender import PacketSender, speaking_netflow
from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.collect.supervise import Collector

REPOSITORY = Path(__file__).parents[2]
CLUSTER = speaking_netflow(load_cluster(REPOSITORY / "cluster.yaml"))
SEQUENCE_AT = {5: 16, 9: 12, 10: 8}


@pytest.fixture(scope="module")
def pool() -> PacketPool:
    return PacketPool(CLUSTER, 3000)


def listening(port: int) -> Cluster:
    return replace(CLUSTER, collector=replace(CLUSTER.collector, listen="127.0.0.1", netflow_port=port, rotate=1))


@needs_pmacct
def test_nfacctd_prints_what_was_sent(pool: PacketPool, tmp_path: Path) -> None:
    """Two rounds and a half: every record once, with the times of its sending and unbroken sequence numbers."""
    cluster = listening(udp_port())
    spool = tmp_path / "spool"
    began = time.time()
    with (
        Collector(cluster, tmp_path / "run", spool=spool),
        PacketSender(pool, cluster.collector.netflow_port) as sender,
    ):
        sender.greet()
        sender.run(4000, 2.0)
        sent = pool.sums(sender.sent)
    frame = printed(spool)
    assert sent.records > 2 * int(pool.before[-1])
    assert frame.height == sent.records
    # As exported: of sampled exporters not multiplied, and those that do not count included.
    assert frame["BYTES"].sum() == exported_bytes(pool, sender.sent)
    ended = frame["TIMESTAMP_END"]
    assert began - 2 < ended.min() <= ended.max() < time.time() + 1  # type: ignore[operator]
    assert (frame["TIMESTAMP_START"] <= frame["TIMESTAMP_END"]).all()
    assert set(frame["EXPORT_PROTO_VERSION"].unique()) == {5, 9, 10}


def exported_bytes(pool: PacketPool, datagrams: int) -> int:
    """Add up the octets of the datagrams sent, from the pool's own rows."""
    rounds, part = divmod(datagrams, len(pool))
    size, numbers = pool.exported["bytes"], pool.exported["datagram"]
    return rounds * int(size.sum()) + int(size.filter(numbers < part).sum())


def test_sequence_numbers_have_no_gap(pool: PacketPool) -> None:
    """Each number is that of the datagram before it and what that one counts, over the end of a round."""
    nexts: dict[int, int] = {}
    for exporter, hello in pool.greetings(0):
        version = struct.unpack_from("!H", hello)[0]
        assert struct.unpack_from("!I", hello, SEQUENCE_AT[version])[0] == 0
        nexts[exporter] = 1
    counts = pool.before[1:] - pool.before[:-1]
    for rounds in range(2):
        pool.stamp(rounds, 0, len(pool), 1_800_000_500.0)
        for number, exporter in enumerate(pool.exporter.tolist()):
            version = struct.unpack_from("!H", pool.views[number])[0]
            sequence = struct.unpack_from("!I", pool.views[number], SEQUENCE_AT[version])[0]
            assert sequence == nexts.get(exporter, 0)
            nexts[exporter] = sequence + (1 if version == 9 else int(counts[number]))


def test_sums_follow_the_datagrams(pool: PacketPool) -> None:
    def whole(rounds: int, part: int) -> Sums:
        return pool.sums(rounds * len(pool) + part)

    one, some = whole(1, 0), whole(0, 10)
    both = whole(3, 10)
    assert 0 < some.records < one.records
    assert both.records == 3 * one.records + some.records
    assert both.bytes == 3 * one.bytes + some.bytes
    assert both.pairs[next(iter(some.pairs))][2] > 0


def test_the_rate_is_kept(pool: PacketPool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        with PacketSender(pool, deaf.getsockname()[1]) as sender:
            took = sender.run(20_000, 0.5)
            assert pool.sums(sender.sent).records == pytest.approx(20_000 * took, rel=0.3)


def test_a_collector_that_is_away_is_sent_to_all_the_same(pool: PacketPool) -> None:
    """As a switch does: where it starts again in the middle of a run, what went out is counted."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with PacketSender(pool, port) as sender:
        sender.run(20_000, 0.3)
        assert sender.sent > 10
