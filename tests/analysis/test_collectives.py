"""Shapes of collectives: the simulator's algorithms, and what else people run."""

from collections.abc import Iterable

import numpy as np
import pytest

from analysis.baseline import Floats
from analysis.detectors.training.collectives import Links, changes, rail_imbalance, shape_of
from cluster.load import parse_cluster
from simulate.scenarios.scenario import Algorithm, Run
from simulate.traffic.cast import Cast
from simulate.traffic.training_traffic import connections
from store.schema import Pattern

MEGABYTE = 1e6


def links(nodes: int, edges: Iterable[tuple[int, int, float]], rest: Floats | None = None) -> Links:
    """Links with the acknowledgements that go with them."""
    table: dict[tuple[int, int], float] = {}
    for src, dst, sent in edges:
        table[src, dst] = table.get((src, dst), 0.0) + sent
        table[dst, src] = table.get((dst, src), 0.0) + sent * 0.0036
    src, dst = np.array(list(table), np.int64).reshape(-1, 2).T
    return Links(nodes, src, dst, np.array(list(table.values())), np.zeros(nodes) if rest is None else rest)


def simulated(nodes: int, algorithm: Algorithm, seed: int = 0) -> Links:
    text = (
        "cluster: c\ngroups:\n  training: {title: T, role: training, prefixes: [10.0.0.0/8], plane: compute}\n"
        f'nodes:\n  "gpu-{{001..{nodes:03}}}": {{group: training, addresses: '
        f'[{{address: "10.0.0.{{1..{nodes}}}", plane: compute, rail: 0}}, '
        f'{{address: "10.0.1.{{1..{nodes}}}", plane: compute, rail: 1}}]}}\n'
    )
    cluster = parse_cluster(text)
    found = connections(Cast(cluster), Run("r", tuple(node.name for node in cluster.nodes), 0, 60, 60), algorithm)
    noise = np.random.default_rng(seed).normal(1, 0.02, len(found.sender))
    volume = found.weight * noise * 1000 * MEGABYTE
    return links(nodes, zip(found.sender.tolist(), found.receiver.tolist(), volume.tolist(), strict=True))


SIZES = (8, 16, 64, 200)


@pytest.mark.parametrize(
    ("algorithm", "pattern", "nodes"),
    [
        *((Algorithm.RING, Pattern.RING, nodes) for nodes in (2, 3, 4, 5, *SIZES)),
        # Fewer nodes are neighbours of each other whatever they run.
        *((Algorithm.TREE, Pattern.TREE, nodes) for nodes in SIZES),
        *((Algorithm.MIXED, Pattern.MIXED, nodes) for nodes in SIZES),
    ],
)
def test_what_the_simulator_plays_is_told(algorithm: Algorithm, pattern: int, nodes: int) -> None:
    shape = shape_of(simulated(nodes, algorithm))
    assert shape.pattern == pattern
    if pattern == Pattern.RING:
        assert shape.neighbours == 1


def all_pairs(nodes: int) -> list[tuple[int, int, float]]:
    return [(a, b, MEGABYTE) for a in range(nodes) for b in range(nodes) if a != b]


def rings(*members: Iterable[int]) -> list[tuple[int, int, float]]:
    found = []
    for one in map(list, members):
        found += [(node, one[(place + 1) % len(one)], MEGABYTE) for place, node in enumerate(one)]
    return found


@pytest.mark.parametrize(
    ("nodes", "edges", "pattern", "neighbours"),
    [
        (16, all_pairs(16), Pattern.ALL_TO_ALL, 15),
        # Experts in two halves: half of the cohort, nearly.
        (16, [e for e in all_pairs(16) if e[0] // 8 == e[1] // 8], Pattern.MIXED, 7),
        (2, rings(range(2)), Pattern.RING, 1),
        # Two data-parallel groups side by side.
        (16, rings(range(8), range(8, 16)), Pattern.RING, 1),
        # One ring in each direction.
        (16, rings(range(16), range(15, -1, -1)), Pattern.RING, 2),
        # Another order on each of two rails.
        (16, rings(range(16), [node * 5 % 16 for node in range(16)]), Pattern.RING, 2),
        # A single tree, up and down.
        (15, [e for n in range(1, 15) for e in ((n, (n - 1) // 2, 9.0), ((n - 1) // 2, n, 9.0))], Pattern.TREE, 1),
        # A pipeline: activations forward, gradients back, and no way around.
        (8, [e for n in range(7) for e in ((n, n + 1, 9.0), (n + 1, n, 9.0))], Pattern.TREE, 2),
        # Everybody asks one server.
        (16, [e for n in range(1, 16) for e in ((n, 0, 9.0), (0, n, 9.0))], Pattern.TREE, 1),
        (16, [], Pattern.NONE, 0),
        # Two of sixteen talk: no pattern of the cohort.
        (16, rings(range(2)), Pattern.NONE, 0),
    ],
)
def test_other_shapes(nodes: int, edges: list[tuple[int, int, float]], pattern: int, neighbours: float) -> None:
    shape = shape_of(links(nodes, edges))
    assert (shape.pattern, shape.neighbours) == (pattern, neighbours)


def test_a_ring_with_a_weak_node_is_a_ring() -> None:
    edges = [(src, dst, sent * (0.1 if src == 3 else 1)) for src, dst, sent in rings(range(16))]
    assert shape_of(links(16, edges)).pattern == Pattern.RING


def test_peers_that_nobody_named_count_as_more_of_the_same() -> None:
    """Of 199 peers the store has the 100 largest of each source; the others are one sum."""
    named = [(a, (a + step) % 200, MEGABYTE) for a in range(200) for step in range(1, 101)]
    src, dst, sent = zip(*named, strict=True)
    some = Links(200, np.array(src), np.array(dst), np.array(sent), np.full(200, 99 * MEGABYTE))
    shape = shape_of(some)
    assert shape.pattern == Pattern.ALL_TO_ALL
    assert shape.neighbours == pytest.approx(199)


# -- changes -------------------------------------------------------------------------------------------


def test_the_same_ring_with_other_noise_has_not_changed() -> None:
    assert changes(simulated(16, Algorithm.MIXED, 1), simulated(16, Algorithm.MIXED, 2)).nodes == 0


def test_two_nodes_that_swap_places_change_what_three_and_they_send_to() -> None:
    order = [0, 1, 2, 5, 4, 3, 6, 7]
    # 2, 5, 4 and 3 have another successor; 3's is now 6, 5's is 4.
    found = changes(links(8, rings(range(8))), links(8, rings(order)))
    assert found.nodes == 4
    gone, new = ({(2, 3), (3, 4), (4, 5), (5, 6)}, {(2, 5), (5, 4), (4, 3), (3, 6)})
    pairs = list(zip(found.src.tolist(), found.dst.tolist(), strict=True))
    assert {pair for pair, grew in zip(pairs, found.now > found.before, strict=True) if grew} == new
    assert set(pairs) - new == gone


def test_pairs_with_the_most_bytes_come_first() -> None:
    found = changes(links(4, [(0, 1, 1.0), (2, 3, 5.0)]), links(4, [(0, 2, 3.0), (2, 0, 9.0)]))
    assert list(zip(found.src.tolist(), found.dst.tolist(), strict=True)) == [(2, 0), (2, 3), (0, 2), (0, 1)]


def test_pairs_that_are_alike_come_in_the_same_order_each_minute() -> None:
    moved = [0, 3, 1, 4, 2, 6, 7, 5]
    found = [
        changes(
            *(
                links(
                    8, [(src, dst, sent * noise) for (src, dst, sent), noise in zip(rings(order), noises, strict=True)]
                )
                for order, noises in zip(
                    (range(8), moved), np.random.default_rng(seed).normal(1.4, 0.02, (2, 8)), strict=True
                )
            )
        )
        for seed in (1, 2)
    ]
    first, second = (list(zip(one.src.tolist(), one.dst.tolist(), strict=True)) for one in found)
    assert first == second
    assert len(first) > 8


def test_a_node_that_fell_silent_is_no_change_of_neighbours() -> None:
    silent = Links(8, *(np.array(part) for part in ([0], [1], [1.0])), rest=np.zeros(8))
    found = changes(links(8, rings(range(8))), silent)
    assert (found.nodes, len(found.src)) == (0, 0)


# -- rails ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([[1.0, 1.0], [2.0, 2.0]], 0.0),
        # A rail of one node that is dead: the other carries all.
        ([[1.0, 1.0], [0.0, 2.0]], 1.0),
        ([[4.0, 4.0, 4.0, 4.0], [4.0, 4.0, 4.0, 8.0]], 0.6),
        # What a node that hardly sends does is no imbalance.
        ([[10.0, 10.0], [10.0, 10.0], [0.0, 0.1]], 0.0),
        # Other groups have more rails.
        ([[3.0, 3.0, np.nan], [2.0, 2.0, np.nan], [9.0, np.nan, np.nan]], 0.0),
    ],
)
def test_rail_imbalance(sent: list[list[float]], expected: float) -> None:
    assert rail_imbalance(np.array(sent)) == pytest.approx(expected)


@pytest.mark.parametrize("sent", [np.zeros((4, 2)), np.ones((4, 1)), np.array([[1.0, np.nan]]), np.zeros((0, 0))])
def test_no_rails_to_compare(sent: Floats) -> None:
    assert rail_imbalance(sent) is None
