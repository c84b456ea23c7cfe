"""A scenario played on a cluster: flow records in the order of time, a slice at a time."""

from collections.abc import Iterator
from ipaddress import ip_address
from itertools import groupby

import numpy as np
import polars as pl

from app.errors import UserError
from cluster.model import Cluster
from simulate.incidents.incident import Transfer
from simulate.packets.fabric import Fabric
from simulate.packets.flows import FLOW_SCHEMA, TALK_SCHEMA, FlowBatch, clip, cut, no_talks, talks
from simulate.packets.polls import POLL_SECONDS, LinkCounters
from simulate.scenarios.scenario import Background, Phase, Scenario
from simulate.traffic.background import BACKGROUND, Draw, approved_talks
from simulate.traffic.cast import Cast
from simulate.traffic.routine import ROUTINE, chatter
from simulate.traffic.training_traffic import Training

_CHATTER, _STAGED, _STORAGE, _FABRIC, _COLLECTIVES, _APPROVED, _INCIDENTS, _TRAINING, _KINDS = range(97, 106)
"""Streams of random numbers; each kind of the background has one more."""

_BACKGROUNDS = {Background.DENSE: BACKGROUND, Background.ROUTINE: ROUTINE, Background.NONE: ()}


class Workload:
    """The traffic of one scenario.

    Args:
        cluster: who there is, and what sees it.
        scenario: what happens.

    Attributes:
        cast: the addresses.
        fabric: the exporters.

    Raises:
        UserError: the cluster has no exporters, or the scenario names a node that it does not have.
    """

    def __init__(self, cluster: Cluster, scenario: Scenario) -> None:
        self.cluster = cluster
        self.scenario = scenario
        transfers = [transfer for incident in scenario.incidents for transfer in incident.transfers]
        for one in transfers:
            if ip_address(one.src).version != ip_address(one.dst).version:
                raise UserError(
                    f"an incident between {one.src} and {one.dst}: IPv4 and IPv6",
                    "name another node for it, or give one of them an address of the other's family",
                )
        self.cast = Cast(cluster, {ip_address(text) for one in transfers for text in (one.src, one.dst)})
        for run in scenario.runs:
            for node in run.nodes:
                if node not in self.cast.training:
                    raise UserError(f"{run.job}: node {node} is no training node", "see nodes in cluster.yaml")
        self.fabric = Fabric(cluster, self.cast, scenario)
        self._jobs = [
            Training(self.cast, run, run.profile or scenario.profile, scenario.incidents, scenario.seed)
            for run in scenario.runs
        ]
        self._background = _BACKGROUNDS[scenario.background]
        self._staged = self._transfers()

    def batches(self, phase: Phase, counters: LinkCounters | None = None) -> Iterator[FlowBatch]:
        """Yield the flow records of a phase in the order in which exporters send them.

        All traffic ends with the phase; its last records follow within half a second. The same scenario and phase yield
        the same records always.

        Args:
            phase: of the scenario, or a part of one.
            counters: of the interfaces of sFlow agents, to go on from; by default they begin at zero.
        """
        waiting = pl.DataFrame(schema=FLOW_SCHEMA)
        counters = counters or LinkCounters(self.cluster, self.fabric.agents, self.scenario.incidents)
        for start in range(phase.start, phase.end, phase.slice):
            end = min(start + phase.slice, phase.end)
            fresh, carried = self._records(phase, start * 1000, end * 1000)
            counters.add(carried)
            until = end * 1000
            everything = pl.concat([waiting, fresh])
            is_due = pl.col("export") < until
            waiting = everything.filter(~is_due)
            # Coarse records, coarse polls.
            polls = counters.polls(start * 1000, until, phase.poll or max(POLL_SECONDS, phase.timeout))
            polls = tuple(poll for poll in polls if not self.fabric.is_silent(poll.exporter, poll.at))
            yield FlowBatch(_in_order(everything.filter(is_due)), until, polls)
        if waiting.height:
            yield FlowBatch(_in_order(waiting), phase.end * 1000 + 1000)

    def _records(self, phase: Phase, start: int, end: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return what begins in [start, end): flow records, and what interfaces of sFlow agents carried."""

        def rng(stream: int) -> np.random.Generator:
            return np.random.default_rng([self.scenario.seed, stream, start])

        def draw(stream: int) -> Draw:
            return Draw(self.cast, start, end, phase.coarse, rng(stream), self.scenario.seed)

        found = [kind(draw(_KINDS + position)) for position, kind in enumerate(self._background)]
        if self._background:
            found.append(approved_talks(draw(_APPROVED), self.scenario.seed))
        jobs = [job for job in self._jobs if job.overlaps(start, end)]
        if self.scenario.background is Background.ROUTINE:
            found.append(chatter(draw(_CHATTER), self.scenario.runs))
        # Streams of their own: what an incident adds, or takes from a job, changes nothing elsewhere.
        parts = [
            (_FABRIC, found),
            (_STAGED, [self._staged.filter((pl.col("start") >= start) & (pl.col("start") < end))]),
            (_STORAGE, [job.talks(start, end, rng(_TRAINING)) for job in jobs]),
        ]
        pieces = [
            (stream, cut(clip(pl.concat([no_talks(), *talks]), phase.end * 1000), phase.timeout * 1000))
            for stream, talks in parts
        ]
        pieces.append((_COLLECTIVES, pl.concat([no_talks(), *(job.pieces(phase, start, end) for job in jobs)])))
        pieces = [(stream, self.cast.possible(part)) for stream, part in pieces]
        exported = [self.fabric.export(part, rng(stream)) for stream, part in pieces]
        return pl.concat(exported), pl.concat([self.fabric.carried(part) for _, part in pieces])

    def _transfers(self) -> pl.DataFrame:
        """Return the traffic of all incidents as talks."""
        rng = np.random.default_rng([self.scenario.seed, _INCIDENTS])
        numbers = self.cast.addresses.numbers
        found = [no_talks()]
        for position, incident in enumerate(self.scenario.incidents):
            for _, alike in groupby(incident.transfers, _alike):
                some = [*alike]
                client = rng.integers(32_768, 61_000, len(some))
                port, answers = (np.array([getattr(one, name) for one in some]) for name in ("port", "answers"))
                reply = None if some[0].reply is None else [one.reply or 0 for one in some]
                both = talks(
                    src=numbers([ip_address(one.src) for one in some]),
                    dst=numbers([ip_address(one.dst) for one in some]),
                    src_port=np.where(answers, port, client),
                    dst_port=np.where(answers, client, port),
                    proto=[one.proto for one in some],
                    start=[one.start * 1000 for one in some],
                    end=[one.end * 1000 for one in some],
                    volume=[one.volume for one in some],
                    reply=reply,
                    packet=some[0].packet,
                    incident=position,
                )
                # Each answer after its request, as one by one: the order is drawn upon later.
                found.append(both[np.arange(both.height).reshape(-1, len(some)).T.ravel()])
        return pl.concat(found).select(*TALK_SCHEMA)


def _alike(one: Transfer) -> tuple[object, ...]:
    """Return what transfers that are made together have in common; all of them are answered, or none is."""
    return one.packet, one.proto, one.reply is None, bool(one.reply)


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by the moment of export; the rest of the keys only make the order certain."""
    return frame.sort("export", "exporter", "src", "dst", "src_port", "dst_port", "proto", "start", maintain_order=True)
