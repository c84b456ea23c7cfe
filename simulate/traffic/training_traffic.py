"""What a training job puts on the wire: AllReduce over rings and trees, dataset loading, checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from simulate.incidents.incident import Incident, IncidentKind
from simulate.packets.flows import JUMBO, NO_INCIDENT, TALK_SCHEMA, TCP, Ints, no_talks, talks
from simulate.scenarios.scenario import Algorithm, Phase, Profile, Run
from simulate.traffic.cast import Cast
from simulate.traffic.planned_checkpoints import saves_of

COLLECTIVE_PORT = 29500
NFS_PORT = 2049

_TREE_PART = 0.15
"""Part of the bytes that MIXED sums over trees."""
_CHECKPOINT_SPEED = 0.7
"""Steps go on while a checkpoint is written from a copy, but slower."""
_ACK = 64
_NODE_BIAS = 0.01
"""Relative standard deviation, between nodes, of what they always send."""

_SLOWED = frozenset(
    {
        IncidentKind.NODE_DROPOUT,
        IncidentKind.RACK_DOWN,
        IncidentKind.HELD_SILENT,
        IncidentKind.COHORT_SLOWDOWN,
        IncidentKind.JOB_STALLED,
    }
)
"""Incidents after which some of the nodes send less."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Connections:
    """The TCP connections of a run's collectives; equally long arrays.

    Attributes:
        sender, receiver: positions in the run's nodes.
        src, dst: address numbers.
        src_port: a port of the sender's own.
        rail: its number.
        weight: part of the sender's bytes; they add up to 1 for each sender.
    """

    sender: Ints
    receiver: Ints
    src: Ints
    dst: Ints
    src_port: Ints
    rail: Ints
    weight: Floats


def connections(cast: Cast, run: Run, algorithm: Algorithm, order: Sequence[str] = ()) -> Connections:
    """Return who sends to whom: a ring and a double binary tree on every rail, over the nodes in order of their ranks.

    Without an order, ranks are where the run lists its nodes.
    """
    places = {node: place for place, node in enumerate(run.nodes)}
    parts = {Algorithm.RING: (1.0, 0.0), Algorithm.TREE: (0.0, 1.0), Algorithm.MIXED: (1 - _TREE_PART, _TREE_PART)}
    ring_part, tree_part = parts[algorithm]
    found: list[tuple[int, int, int, int, int, int, float]] = []
    for rail in cast.rails:
        ranks = [places[node] for node in order or run.nodes if node in rail.members]
        if len(ranks) < 2:
            continue
        edges = [(i, (i + 1) % len(ranks), ring_part) for i in range(len(ranks))] if ring_part else []
        if tree_part:
            edges += [(a, b, tree_part / count) for a, b, count in _double_tree(len(ranks))]
        for a, b, weight in edges:
            sender, receiver = ranks[a], ranks[b]
            src, dst = rail.members[run.nodes[sender]], rail.members[run.nodes[receiver]]
            found.append((sender, receiver, src, dst, 40_000 + len(found) % 20_000, rail.number, weight))
    if not found:
        empty = np.empty(0, np.int64)
        return Connections(empty, empty, empty, empty, empty, empty, np.empty(0))
    table = np.array(found)
    sender, receiver, src, dst, port, rails = table[:, :6].astype(np.int64).T
    weights = table[:, 6]
    # A node on several rails spreads its bytes over them.
    total = np.bincount(sender, weights, minlength=len(run.nodes))
    return Connections(sender, receiver, src, dst, port, rails, weights / total[sender])


def _together(orders: Sequence[Connections]) -> tuple[Connections, Ints]:
    """Return the connections of several orders of ranks, and of which order each is."""
    columns = ([getattr(one, name) for one in orders] for name in Connections.__slots__)
    sizes = [len(one.src) for one in orders]
    return Connections(*map(np.concatenate, columns)), np.repeat(np.arange(len(orders)), sizes)


def _double_tree(size: int) -> list[tuple[int, int, int]]:
    """Return (rank, rank, edges of the first rank) of two binary trees; the second one mirrors the first."""
    edges: set[tuple[int, int]] = set()
    for rank in range(1, size):
        parent = (rank - 1) // 2
        for a, b in ((rank, parent), (size - 1 - rank, size - 1 - parent)):
            edges |= {(a, b), (b, a)}
    count = np.bincount([a for a, _ in edges], minlength=size)
    return [(a, b, int(count[a])) for a, b in sorted(edges)]


class Training:
    """The traffic of one run.

    Args:
        cast: addresses.
        run: the run.
        profile: of its job class.
        incidents: of the scenario; some lower what nodes send, or change checkpoints.
        seed: of the scenario.
    """

    def __init__(self, cast: Cast, run: Run, profile: Profile, incidents: tuple[Incident, ...], seed: int) -> None:
        self._cast = cast
        self._run = run
        self._profile = profile
        self._seed = seed
        moves = [one for one in incidents if one.kind is IncidentKind.RANKS_MOVED and one.job == run.job]
        orders = [run.nodes, *(one.nodes for one in moves)]
        self._connections, self._order_of = _together(
            [connections(cast, run, profile.algorithm, order) for order in orders]
        )
        self._moves = [(one.start * 1000, one.end * 1000) for one in moves]
        # The same in every run: a node's own share is what its baseline learns.
        bias = np.random.default_rng([seed, 1]).normal(1, _NODE_BIAS, len(cast.addresses.nodes))
        index = {name: i for i, name in enumerate(cast.addresses.nodes)}
        self._share = np.array([bias[index[node]] * profile.share(node) for node in run.nodes])
        self._losses = [
            (_members(run, incident), incident.start * 1000, incident.end * 1000, incident.share)
            for incident in incidents
            if incident.kind in _SLOWED and incident.job in ("", run.job)
        ]
        self._dead = [
            (run.nodes.index(incident.src), incident.rail, incident.start * 1000, incident.end * 1000)
            for incident in incidents
            if incident.kind is IncidentKind.DEAD_RAIL and incident.job == run.job
        ]
        self._small = [
            (run.nodes.index(incident.src), incident.packet, incident.start * 1000, incident.end * 1000)
            for incident in incidents
            if incident.kind is IncidentKind.WRONG_MTU and incident.job == run.job
        ]
        self._saves = saves_of(run, profile, incidents)
        self._clock = self._progress()

    def overlaps(self, start: int, end: int) -> bool:
        """Whether any of its traffic begins in [start, end), epoch ms."""
        return self._run.start * 1000 < end and self._run.end * 1000 > start

    def pieces(self, phase: Phase, start: int, end: int) -> pl.DataFrame:
        """Return what the collectives send in [start, end) (epoch ms), already cut to the active timeout.

        The exporters' cuts fall on multiples of the timeout, so that a step of the cohort lies in one window for all.
        """
        first, last = max(start, self._run.start * 1000), min(end, self._run.end * 1000)
        links, timeout = self._connections, phase.timeout * 1000
        if first >= last or not len(links.src):
            return no_talks()
        begins = np.arange(first - first % timeout, last, timeout)
        ends = np.minimum(begins + timeout, last)
        begins = np.maximum(begins, first)
        sent = (self._steps(ends) - self._steps(begins)) * self._profile.step * self._profile.rate
        level = sent[:, None] * self._share * self._noise(begins) * self._left(begins, ends)
        volume = (level[:, links.sender] * self._weights(begins, ends)).astype(np.int64)
        packets = -(-volume // JUMBO) + self._split(volume, begins, ends)
        # Acknowledgements flow against the data; a node that drops out sends fewer of them, too.
        left = self._left(begins, ends)
        answers = (packets / 2 * left[:, links.receiver]).astype(np.int64)
        shape = volume.shape

        def every(values: Ints) -> Ints:
            return np.broadcast_to(values, shape).ravel()

        def at(times: Ints) -> Ints:
            return np.broadcast_to(times[:, None], shape).ravel()

        service = np.full(len(links.src), COLLECTIVE_PORT)
        forth = (links.src, links.dst, links.src_port, service, volume, packets)
        back = (links.dst, links.src, service, links.src_port, answers * _ACK, answers)
        frames = []
        for src, dst, src_port, dst_port, size, count in (forth, back):
            columns = (
                every(src), every(dst), every(src_port), every(dst_port), np.full(volume.size, TCP), at(begins),
                at(ends), size.ravel(), count.ravel(), np.full(volume.size, NO_INCIDENT),
            )  # fmt: skip
            frames.append(pl.DataFrame(dict(zip(TALK_SCHEMA, columns, strict=True)), schema=TALK_SCHEMA))
        return pl.concat(frames).filter(pl.col("packets") > 0)

    def talks(self, start: int, end: int, rng: np.random.Generator) -> pl.DataFrame:
        """Return the storage traffic that begins in [start, end) (epoch ms): dataset, prefetch, checkpoints."""
        nodes = self._run.nodes
        if not len(self._cast.storage):
            return no_talks()
        own = np.array([self._cast.training[node] for node in nodes])
        server = self._cast.storage_for(own)
        port = 700 + np.arange(len(nodes)) % 300
        profile, run = self._profile, self._run
        found = [no_talks()]

        def load(at: int, until: int, volume: int) -> None:
            size = volume * rng.normal(1, 0.05, len(nodes))
            reads = self._left(np.array([at]), np.array([until]))[0] > 0
            found.append(
                talks(
                    src=server[reads],
                    dst=own[reads],
                    src_port=NFS_PORT,
                    dst_port=port[reads],
                    start=at,
                    end=until,
                    volume=size[reads],
                )
            )

        begin = run.start * 1000
        if start <= begin < end and profile.dataset:
            load(begin, begin + profile.dataset_seconds * 1000, profile.dataset)
        # Readers fetch the next shards once a minute, and more often where a slice is shorter.
        every = min(60_000, end - start)
        after = begin + profile.dataset_seconds * 1000
        for at in range(start + -start % every, min(end, run.end * 1000), every):
            if at >= after and profile.prefetch:
                until = min(at + every, run.end * 1000)
                load(at, until, profile.prefetch * (until - at) // 1000)
        for save in self._saves:
            at, until = save.begin * 1000, save.end * 1000
            if start <= at < end:
                # A slow node writes its whole checkpoint; one that is gone writes nothing.
                alive = self._left(np.array([at]), np.array([until]))[0] > 0
                writes = alive & np.array([node in save.nodes for node in nodes])
                size = save.volume * rng.normal(1, 0.005, len(nodes))
                found.append(
                    talks(
                        src=own[writes],
                        dst=server[writes],
                        src_port=port[writes],
                        dst_port=NFS_PORT,
                        start=at,
                        end=until,
                        volume=size[writes],
                    )
                )
        return pl.concat(found)

    def _progress(self) -> tuple[Floats, Floats]:
        """Return (epoch ms, ms of work done by then): checkpoints slow the steps down."""
        times, work = [float(self._run.start * 1000)], [0.0]
        for save in self._saves:
            for at, speed in ((save.begin * 1000.0, 1.0), (save.end * 1000.0, _CHECKPOINT_SPEED)):
                work.append(work[-1] + (at - times[-1]) * speed)
                times.append(at)
        stop = float(self._run.end * 1000)
        work.append(work[-1] + stop - times[-1])
        times.append(stop)
        return np.array(times), np.array(work)

    def _steps(self, at: Ints) -> Floats:
        """Return how many steps' gradients have been sent by each moment; a step ends with its AllReduce."""
        done = np.interp(at, *self._clock) / (self._profile.step * 1000)
        whole = np.floor(done)
        part = (done - whole - (1 - self._profile.communicating)) / self._profile.communicating
        return np.asarray(whole + np.clip(part, 0, 1), np.float64)

    def _noise(self, begins: Ints) -> Floats:
        """Return [record, node] -> factor; drawn for each record by itself, whatever slice asks for it."""
        nodes = len(self._run.nodes)
        streams = (np.random.default_rng([self._seed, 2, self._run.start, int(begin)]) for begin in begins)
        drawn = np.array([stream.normal(1, self._profile.noise, nodes) for stream in streams], np.float64)
        return np.clip(drawn, 0.5, 1.5)

    def _left(self, begins: Ints, ends: Ints) -> Floats:
        """Return [record, node] -> what incidents leave of the node's bytes."""
        left = np.ones((len(begins), len(self._run.nodes)))
        for nodes, start, end, share in self._losses:
            left[:, nodes] *= (1 - _overlap(begins, ends, start, end) * (1 - share))[:, None]
        return left

    def _weights(self, begins: Ints, ends: Ints) -> Floats:
        """Return [record, connection] -> part of the sender's bytes: those of a dead rail take its other rails."""
        links = self._connections
        weights = np.broadcast_to(links.weight, (len(begins), len(links.weight)))
        for node, rail, start, end in self._dead:
            others = (links.sender == node) & (links.rail != rail)
            # Of each order of ranks by itself: one holds at a time.
            whole = np.bincount(self._order_of, links.weight * others)[self._order_of]
            moved = np.where(others, links.weight / np.maximum(whole, 1e-9), 0.0)
            part = np.where(links.sender == node, _overlap(begins, ends, start, end)[:, None], 0.0)
            weights = weights * (1 - part) + moved * part
        if not self._moves:
            return weights
        # The last of those that overlap holds.
        holds = np.ones((len(begins), 1))
        for start, end in self._moves:
            part = _overlap(begins, ends, start, end)[:, None]
            holds = np.hstack([holds * (1 - part), part])
        return np.asarray(weights * holds[:, self._order_of], np.float64)

    def _split(self, volume: Ints, begins: Ints, ends: Ints) -> Ints:
        """Return [record, connection] -> packets more than with full ones, where a node has a smaller MTU."""
        more = np.zeros(volume.shape, np.int64)
        for node, packet, start, end in self._small:
            part = _overlap(begins, ends, start, end)[:, None] * (self._connections.sender == node)
            more += (volume * part * (1 / packet - 1 / JUMBO)).astype(np.int64)
        return more


def _overlap(begins: Ints, ends: Ints, start: int, end: int) -> Floats:
    """Return which part of each record lies in [start, end)."""
    inside = np.clip(np.minimum(ends, end) - np.maximum(begins, start), 0, None)
    return np.asarray(inside / np.maximum(ends - begins, 1), np.float64)


def _members(run: Run, incident: Incident) -> Ints:
    """Return the positions in the run of the nodes that an incident happens to."""
    names = (incident.src,) if incident.kind is IncidentKind.NODE_DROPOUT else incident.nodes or run.nodes
    return np.array([position for position, node in enumerate(run.nodes) if node in names], np.int64)
