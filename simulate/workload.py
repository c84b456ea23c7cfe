"""A scenario played on a cluster: flow records in the order of time, a slice at a time."""

from collections.abc import Iterator
from ipaddress import ip_address

import numpy as np
import polars as pl

from cluster.errors import UserError
from cluster.model import Cluster
from simulate.background import BACKGROUND, Draw, approved_talks
from simulate.cast import Cast
from simulate.fabric import Fabric
from simulate.flows import FLOW_SCHEMA, FlowBatch, clip, cut, no_talks, talks
from simulate.scenario import TRANSFERS, Phase, Scenario
from simulate.training import Training

_FABRIC, _COLLECTIVES, _APPROVED, _INCIDENTS, _TRAINING, _KINDS = range(100, 106)
"""Streams of random numbers; each kind of the background has one more."""


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
        self.cast = Cast(cluster)
        for run in scenario.runs:
            for node in run.nodes:
                if node not in self.cast.training:
                    raise UserError(f"{run.job}: node {node} is no training node", "see nodes in cluster.yaml")
        self.fabric = Fabric(cluster, self.cast, scenario)
        self._jobs = [
            Training(self.cast, run, scenario.profile, scenario.incidents, scenario.seed) for run in scenario.runs
        ]

    def batches(self, phase: Phase) -> Iterator[FlowBatch]:
        """Yield the flow records of a phase in the order in which exporters send them.

        All traffic ends with the phase; its last records follow within half a second. The same scenario and phase yield
        the same records always.
        """
        waiting = pl.DataFrame(schema=FLOW_SCHEMA)
        for start in range(phase.start, phase.end, phase.slice):
            end = min(start + phase.slice, phase.end)
            fresh = self._records(phase, start * 1000, end * 1000)
            until = end * 1000
            everything = pl.concat([waiting, fresh])
            is_due = pl.col("export") < until
            waiting = everything.filter(~is_due)
            yield FlowBatch(_in_order(everything.filter(is_due)), until)
        if waiting.height:
            yield FlowBatch(_in_order(waiting), phase.end * 1000 + 1000)

    def _records(self, phase: Phase, start: int, end: int) -> pl.DataFrame:
        def rng(stream: int) -> np.random.Generator:
            return np.random.default_rng([self.scenario.seed, stream, start])

        def draw(stream: int) -> Draw:
            return Draw(self.cast, start, end, phase.coarse, rng(stream))

        found = [kind(draw(_KINDS + position)) for position, kind in enumerate(BACKGROUND)]
        found.append(approved_talks(draw(_APPROVED), self.scenario.seed))
        found.append(self._incidents(start, end, rng(_INCIDENTS)))
        found += [job.talks(start, end, rng(_TRAINING)) for job in self._jobs]
        pieces = cut(clip(pl.concat(found), phase.end * 1000), phase.timeout * 1000)
        # Streams of their own: an incident in a job changes nothing elsewhere.
        collectives = pl.concat([no_talks(), *(job.pieces(phase, start, end) for job in self._jobs)])
        return pl.concat([self.fabric.export(pieces, rng(_FABRIC)), self.fabric.export(collectives, rng(_COLLECTIVES))])

    def _incidents(self, start: int, end: int, rng: np.random.Generator) -> pl.DataFrame:
        found = [no_talks()]
        for number, incident in enumerate(self.scenario.incidents):
            if incident.kind in TRANSFERS and start <= incident.start * 1000 < end:
                found.append(
                    talks(
                        src=self.cast.addresses.number(ip_address(incident.src_address)),
                        dst=self.cast.addresses.number(ip_address(incident.dst)),
                        src_port=rng.integers(32_768, 61_000),
                        dst_port=incident.port,
                        proto=incident.proto,
                        start=incident.start * 1000,
                        end=incident.end * 1000,
                        volume=incident.volume,
                        packet=1500,
                        incident=number,
                    )
                )
        return pl.concat(found)


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by the moment of export; the rest of the keys only make the order certain."""
    return frame.sort("export", "exporter", "src", "dst", "src_port", "dst_port", "proto", "start", maintain_order=True)
