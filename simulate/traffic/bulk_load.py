"""Load for benchmarks: any number of flow records of a large cluster, quickly, with the same truth as everything else.

Records are drawn from the conversations that a cluster of that size has, without the course of jobs: what matters is
how many there are, how many addresses and conversations they name, and that duplicates and sampling occur as they do
live.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network

import numpy as np
import polars as pl

from app.errors import UserError
from cluster.model import Cluster, Exporter, Interface, Node, NodeAddress, Plane, Role
from simulate.packets.flows import TALK_SCHEMA, FlowBatch, Ints
from simulate.scenarios.scenario import Algorithm, Phase, Profile, Run, Scenario
from simulate.traffic.background import BACKGROUND, Draw
from simulate.traffic.training_traffic import COLLECTIVE_PORT, NFS_PORT, connections
from simulate.traffic.workload import Workload

_BATCH = 200_000
_NODES_PER_LEAF = 64
_RAILS = 2
_STREAM = 200
_BACKGROUND_SECONDS = 600

MAX_NODES = 4096


@dataclass(frozen=True, slots=True)
class Pattern:
    """Conversations to draw from: rows of TALK_SCHEMA, and how often each occurs (adds up to 1)."""

    talks: pl.DataFrame
    weight: np.ndarray[tuple[int], np.dtype[np.float64]]


def large_cluster(base: Cluster, nodes: int, nodes_per_leaf: int = _NODES_PER_LEAF) -> Cluster:
    """Return the base cluster with so many training nodes of two rails, on leaves of so many each.

    Raises:
        UserError: too many nodes, or no group of role training.
    """
    training = base.groups_with(Role.TRAINING)
    if not training:
        raise UserError("groups: none of role training", "the load is that of a training cluster")
    if not 2 <= nodes <= MAX_NODES:
        raise UserError(f"--nodes {nodes}: expected 2 to {MAX_NODES:,}")
    group = replace(training[0], prefixes=(ip_network("10.16.0.0/13"),))
    first = int(ip_address("10.16.0.0"))
    members = tuple(
        Node(
            f"gpu-{number + 1:04}",
            group.id,
            (
                *(
                    NodeAddress(ip_address(first + (rail << 16) + number + 1), Plane.COMPUTE, rail)
                    for rail in range(_RAILS)
                ),
                NodeAddress(ip_address(first + (2 << 16) + number + 1), Plane.STORAGE),
                NodeAddress(ip_address(first + (3 << 16) + number + 1), Plane.MANAGEMENT),
            ),
            gpus=8,
        )
        for number in range(nodes)
    )
    interfaces = (
        Interface(1, "compute", Plane.COMPUTE),
        Interface(3, "storage", Plane.STORAGE),
        Interface(49, "uplink", Plane.COMPUTE, counts=False),
    )
    leaves = tuple(
        Exporter(f"leaf-{number + 1:02}", ip_address(f"127.0.1.{number + 1}"), interfaces=interfaces)
        for number in range(-(-nodes // nodes_per_leaf))
    )
    kept = tuple(e for e in base.exporters if not any(i.plane is Plane.COMPUTE and i.counts for i in e.interfaces))
    return replace(
        base,
        groups=tuple(group if other.id == group.id else other for other in base.groups),
        nodes=(*members, *(node for node in base.nodes if node.group != group.id)),
        exporters=(*leaves, *kept),
        jobs=(),
    )


def load_batches(workload: Workload, records: int, seconds: int) -> Iterator[FlowBatch]:
    """Yield exactly so many flow records, spread evenly over so many seconds from the start of the live phase.

    The end of the last batch may cut off the copies of its last flows at other exporters.
    """
    pattern = _pattern(workload)
    start = workload.scenario.live.start * 1000
    span = seconds * 1000
    left, number = records, 0
    while left > 0:
        rng = np.random.default_rng([workload.scenario.seed, _STREAM, number])
        done = records - left
        begin = start + span * done // records
        end = max(begin + 1, start + span * min(done + _BATCH, records) // records)
        pieces = _drawn(pattern, _BATCH, begin, end, rng)
        number += 1
        frame = workload.fabric.export(pieces, rng).sort("export", maintain_order=True).head(left)
        left -= frame.height
        yield FlowBatch(frame, end)


def _drawn(pattern: Pattern, count: int, begin: int, end: int, rng: np.random.Generator) -> pl.DataFrame:
    row = rng.choice(len(pattern.weight), count, p=pattern.weight)
    stop = rng.integers(begin, end, count)
    start = stop - rng.integers(1, 10_000, count)
    scale = rng.lognormal(0, 0.5, count)
    return pattern.talks[row].with_columns(
        start=pl.Series(start),
        end=pl.Series(stop),
        bytes=(pl.col("bytes") * pl.Series(scale)).cast(pl.Int64) + 64,
        packets=(pl.col("packets") * pl.Series(scale)).cast(pl.Int64) + 1,
    )


def _pattern(workload: Workload) -> Pattern:
    """Return the conversations of collectives, storage and background, each kind with a fixed part of the records."""
    cast, scenario = workload.cast, workload.scenario
    nodes = tuple(node for node in cast.training if all(node in rail.members for rail in cast.rails))
    begin = scenario.live.start * 1000
    kinds: list[tuple[float, pl.DataFrame]] = []
    if len(nodes) > 1:
        run = Run("load", nodes, scenario.live.start, scenario.live.end)
        for part, algorithm in ((0.5, Algorithm.RING), (0.1, Algorithm.TREE)):
            links = connections(cast, run, algorithm)
            volume = (links.weight * Profile().rate).astype(np.int64)
            kinds.append((part, _talks(links.src, links.dst, links.src_port, COLLECTIVE_PORT, volume)))
    if nodes and len(cast.storage):
        own = np.repeat(np.array([cast.training[node] for node in nodes]), len(cast.storage))
        server = np.tile(cast.storage, len(nodes))
        port = 700 + np.arange(len(own)) % 300
        volume = np.full(len(own), 20_000_000)
        reads = _talks(server, own, np.full(len(own), NFS_PORT), 0, volume).with_columns(dst_port=pl.Series(port))
        kinds += [(0.15, reads), (0.1, _talks(own, server, port, NFS_PORT, volume))]
    draw = Draw(cast, begin, begin + _BACKGROUND_SECONDS * 1000, 1, np.random.default_rng([scenario.seed, _STREAM]))
    noise = pl.concat([kind(draw) for kind in BACKGROUND])
    kinds.append((0.15, noise))
    kinds = [(part, possible) for part, talks in kinds if (possible := cast.possible(talks)).height]
    if not kinds:
        raise UserError("nodes: nobody to send anything", "add nodes to cluster.yaml")
    weight = np.concatenate([np.full(talks.height, part / talks.height) for part, talks in kinds])
    return Pattern(pl.concat([talks for _, talks in kinds]), weight / weight.sum())


def _talks(src: Ints, dst: Ints, src_port: Ints, dst_port: int, volume: Ints) -> pl.DataFrame:
    columns = {name: np.zeros(len(src), np.int64) for name in TALK_SCHEMA}
    columns |= {
        "src": src, "dst": dst, "src_port": src_port, "dst_port": np.full(len(src), dst_port), "bytes": volume,
        "packets": -(-volume // 9000), "proto": np.full(len(src), 6), "incident": np.full(len(src), -1),
    }  # fmt: skip
    return pl.DataFrame(columns, schema=TALK_SCHEMA)


def load_scenario(start: int, seconds: int, seed: int = 1) -> Scenario:
    """Return a scenario without jobs and incidents that holds the load's time."""
    return Scenario(seed, Phase(start, start + max(seconds, 1), 10, 10))
