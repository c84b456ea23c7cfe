"""Nodes with smaller packets than their peers: by the numbers that a ring gives, and from a store."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import service_scene as scenes
from service_scene import Scene

from analysis.detectors.fabric.packet_sizes import PacketSizeStudy, smaller_by
from analysis.window_reader import WindowReader
from cluster.model import Job, Node
from store import schema
from store.local_influxdb import LocalInfluxDB

NOW = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 6 * 3600
NODES = tuple(f"gpu-{number:02}" for number in range(8))
LEAST = 10_000_000
SENT = 10**12
"""Bytes of data of each node in a window."""


def ring(sizes: dict[int, int], answers: float = 0.5, usual: int = 9000) -> tuple["np.ndarray", ...]:  # type: ignore[type-arg]
    """Return [node] bytes and packets sent, packets received; `answers`: acknowledgements a packet, of 64 bytes."""
    data = np.array([SENT / sizes.get(node, usual) for node in range(8)])
    from_before = np.roll(data, 1)
    packets = data + answers * from_before
    received = from_before + answers * data
    return SENT + 64 * answers * from_before, packets, received


@pytest.mark.parametrize(
    ("usual", "size", "answers"),
    # The last two are RDMA's, which acknowledges messages.
    [(9000, 1500, 0.5), (9000, 1500, 0.1), (4200, 1500, 0.5), (4200, 1500, 0.0), (4154, 2106, 0.1), (4154, 2106, 0.0)],
)
def test_a_node_with_another_mtu_is_told_and_its_neighbour_is_not(answers: float, usual: int, size: int) -> None:
    smaller, mean = smaller_by(*ring({3: size}, answers, usual), LEAST)
    assert np.flatnonzero(smaller > 0.4).tolist() == [3]
    # The next node acknowledges more; without its acknowledgements it is as large as the others.
    assert smaller[4] < 0.1
    assert mean == pytest.approx((usual + 64 * answers) / (1 + answers))


def test_all_alike_are_none() -> None:
    smaller, _ = smaller_by(*ring(dict.fromkeys(range(8), 1500)), LEAST)
    assert np.abs(smaller).max() < 1e-9


def test_an_mtu_that_half_of_the_nodes_have_is_nobodys() -> None:
    smaller, _ = smaller_by(*ring(dict.fromkeys((0, 1, 2, 3, 4), 1500)), LEAST)
    assert not (smaller > 0.4).any()


@pytest.mark.parametrize("answers", [0.5, 1.0])
def test_who_only_acknowledges_is_not_judged(answers: float) -> None:
    sent, packets, received = ring({})
    sent[5], packets[5], received[5] = 64 * answers * SENT / 9000, answers * SENT / 9000, SENT / 9000
    smaller, _ = smaller_by(sent, packets, received, LEAST)
    assert np.isnan(smaller[5])
    assert not (smaller > 0.1).any()


def test_who_sends_little_is_not_judged() -> None:
    sent, packets, received = ring({})
    # A coordinator with many small messages, and a node with a few packets.
    sent[5], packets[5] = 0.09 * SENT, 10 * LEAST
    sent[6], packets[6], received[6] = 64.0 * (LEAST - 1), LEAST - 1, 0
    smaller, _ = smaller_by(sent, packets, received, LEAST)
    assert np.flatnonzero(np.isnan(smaller)).tolist() == [5, 6]


def test_what_sampling_leaves_is_no_other_mtu() -> None:
    """At the least number of packets, of a switch that samples 1:32768: 305 samples, of data and acknowledgements."""
    rng = np.random.default_rng(7)
    worst = 0.0
    for _ in range(2000):
        data, answers = rng.poisson(2 / 3 * LEAST / 32768, 8) * 1.0, rng.poisson(1 / 3 * LEAST / 32768, 8) * 1.0
        from_before = rng.poisson(LEAST / 32768, 8) * 32768.0
        sent, packets = (9000 * data + 64 * answers) * 32768, (data + answers) * 32768
        worst = max(worst, np.nanmax(smaller_by(sent, packets, from_before, LEAST / 2)[0]))
    assert worst < 0.35


@pytest.mark.parametrize("few", [0, 1, 2])
def test_too_few_nodes_are_not_compared(few: int) -> None:
    smaller, usual = smaller_by(*(part[:few] for part in ring({0: 1500})), LEAST)
    assert np.isnan(smaller).all()
    assert usual == 0


# -- from a store --------------------------------------------------------------------------------------


@pytest.fixture
def scene(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    with scenes.opened(influxdb_v1, fresh_database) as found:
        limits = replace(found.cluster.thresholds, packet_size_packets=LEAST)
        nodes = (*found.cluster.nodes, *(Node(name, "training", ()) for name in NODES))
        yield Scene(replace(found.cluster, thresholds=limits, nodes=nodes), found.store)


def study(scene: Scene) -> PacketSizeStudy:
    return PacketSizeStudy(scene.cluster, WindowReader(scene.store, scene.cluster))


def send(
    scene: Scene, start: int, stop: int, sizes: dict[int, int], *, peer: str = "training", volume: float = 1
) -> None:
    windows = range(NOW + start, NOW + stop, 10)
    for node, (sent, packets, received) in enumerate(zip(*ring(sizes), strict=True)):
        tags = {schema.NODE: NODES[node], schema.GROUP: "training", schema.PEER_GROUP: peer, schema.PLANE: "compute"}
        scene.write(
            schema.NODE_TRAFFIC, tags | {schema.SHARD: "0"}, windows, schema.RAW, tx_bytes=int(sent / 60 * volume),
            tx_packets=int(packets / 60 * volume), rx_packets=int(received / 60 * volume),
        )  # fmt: skip


def test_a_node_is_told_for_as_long_as_its_window_holds_small_packets(scene: Scene) -> None:
    job = Job("llm-7", "llm", NODES, datetime.fromtimestamp(NOW, UTC))
    send(scene, 0, 900, {})
    send(scene, 900, 1500, {3: 1500})
    send(scene, 1500, 2400, {})
    # Storage beside the job does not count.
    send(scene, 0, 2400, dict.fromkeys(range(8), 200), peer="storage", volume=0.1)
    scenes.follow(scene, study(scene), NOW, NOW + 2400, 20, jobs=[job])
    live = scene.rows(schema.PACKET_SIZE_LOW)
    scene.store.query(f'DROP MEASUREMENT "{schema.PACKET_SIZE_LOW.name}"')
    scenes.run(scene, study(scene), NOW, NOW + 2400, 700, jobs=[job])
    assert scene.rows(schema.PACKET_SIZE_LOW) == live
    assert {row[schema.NODE] for row in live} == {NODES[3]}
    over = [int(str(row["time"])) - NOW for row in live if float(str(row[schema.SMALLER_BY.name])) > 0.4]
    # A fifth of the window's bytes are enough packets, until less than that is left.
    assert over == list(range(1020, 1980 + 1, 60))
    whole = next(row for row in live if row["time"] == NOW + 1500)
    assert (whole[schema.MEAN_SIZE.name], whole[schema.USUAL_SIZE.name]) == (1390, 6021)


def test_what_a_pass_has_read_is_not_asked_for_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.window_reader._LONG", 100)
    send(scene, 0, 900, {3: 1500})
    windows = WindowReader(scene.store, scene.cluster)
    asked = windows.sent(NODES, NOW, NOW + 900)
    for start, stop in ((NOW + 120, NOW + 300), (NOW + 300, NOW + 600)):
        windows.begin(start, stop).sent(NODES, start, stop)
    scene.store.query(f'DELETE FROM "{schema.NODE_TRAFFIC.name}" WHERE time >= {NOW + 120}s AND time < {NOW + 600}s')
    np.testing.assert_array_equal(windows.sent(NODES, NOW, NOW + 900), asked)
    # A later pass may find other numbers, a live round too.
    windows.begin(NOW + 540, NOW + 600)
    assert not windows.sent(NODES, NOW + 120, NOW + 600).any()
