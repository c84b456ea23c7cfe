"""``clusterflow jobs show``: what traffic tells of a job: its stages and rings, its steps, and who holds it up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from rich.console import Console

from analysis.detectors.roles.role_watch import records_of, samples_of
from analysis.detectors.roles.told import Told, part_of, tell, tell_sums
from analysis.detectors.roles.traffic import Traffic, members
from analysis.jobs.hostlist import compress
from app.table import Table
from archive.samples import newest_sample
from cluster.model import Cluster, Job
from store import schema

_SUMS = (
    "NetFlow and IPFIX records hold the sums of 10 to 60 s, not when bytes went: steps, what a pair does, stages, a "
    "slow worker and a slow link cannot be known from them, and are not guessed. Members and dead rails can. sFlow of "
    "the compute network tells the rest."
)
_NO_STEPS = (
    "No bursts that repeat: a job whose gradients flow all along its steps has none, nor has one that loads or waits. "
    "Steps under 0.3 s are not seen, nor are those of an hour's length in ten minutes."
)
_NOTHING = "No traffic between its nodes is kept of this time: it is over, stays inside hosts, or exports no flows."
_LIMITS = (
    "Not known: which node of a ring has a slow link; a slow worker of a job with one pipeline, or one of the first "
    "stage that is slow by less than 15 %; what NVLink carries. An agent that holds samples back blurs times: up to a "
    "second, where few are due."
)


@dataclass(frozen=True, slots=True)
class Shown:
    """One job.

    Attributes:
        name: its id; empty of traffic that belongs to no known job.
        nodes: that it has, by its source; without one, by traffic.
        source: sflow, netflow or none.
        told: what traffic tells; None without any.
        start, stop: what was looked at, epoch seconds.
    """

    name: str
    nodes: tuple[str, ...]
    source: str
    told: Told | None
    start: float
    stop: float

    @property
    def silent(self) -> tuple[str, ...]:
        """Return nodes of which there is no traffic with others of the job."""
        heard = set(self.told.traffic.nodes) if self.told is not None else set[str]()
        return tuple(node for node in self.nodes if node not in heard)

    @property
    def unknown(self) -> str:
        """Return in words what is not known, and why."""
        if self.told is None:
            return _NOTHING
        if self.source == "netflow":
            return _SUMS
        return _LIMITS if self.told.steps is not None else _NO_STEPS

    def document(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        told = self.told
        found: dict[str, Any] = {
            "job": self.name, "nodes": list(self.nodes), "silent": list(self.silent), "from": self.start,
            "to": self.stop, "source": self.source, "unknown": self.unknown, "samples": 0, "steps": None, "roles": [],
            "data_parallel": None, "sure": None, "pairs": [], "verdicts": [],
        }  # fmt: skip
        if told is not None:
            found |= {"samples": len(told.traffic.time), "verdicts": told.judged().to_dicts()}
        if told is not None and told.steps is not None and told.roles is not None:
            steps = told.steps
            found["steps"] = {
                "count": len(steps.length), "median": steps.usual, "exchange": steps.exchange,
                "begin": steps.begin.round(3).tolist(), "length": steps.length.round(4).tolist(),
            }  # fmt: skip
            found |= {"roles": told.nodes().to_dicts(), "pairs": told.pairs().to_dicts()}
            found |= {"data_parallel": told.roles.shape, "sure": told.roles.sure}
        return found


def look(cluster: Cluster, jobs: Sequence[Job], start: float, stop: float, *, others: bool) -> list[Shown]:
    """Return what is told of some jobs from their traffic in [start, stop), epoch seconds.

    Args:
        cluster: whose samples and flow archive are read.
        jobs: known ones.
        start: epoch seconds.
        stop: epoch seconds.
        others: also of nodes that exchange much, and are none of theirs.
    """
    # What others send is not to take the room of what the jobs do.
    nodes = () if others else tuple({node for job in jobs for node in job.nodes})
    traffic, source = samples_of(cluster, start, stop, nodes), "sflow"
    if not len(traffic.time):
        traffic, source = records_of(cluster, start, stop, nodes), "netflow"
    end = min(stop, newest_sample(cluster)) if source == "sflow" else stop

    def shown(name: str, nodes: tuple[str, ...]) -> Shown:
        mine = np.flatnonzero(np.isin(traffic.nodes, nodes))
        part = _heard(part_of(traffic, mine))
        if not len(part.time):
            return Shown(name, nodes, "none", None, start, stop)
        return Shown(name, nodes, source, tell(part, end) if source == "sflow" else tell_sums(part), start, stop)

    found = [shown(job.id, job.nodes) for job in jobs]
    known = {node for job in jobs for node in job.nodes}
    labels = members(traffic) if others else np.zeros(0, np.int64)
    for label in np.unique(labels):
        nodes = tuple(traffic.nodes[node] for node in np.flatnonzero(labels == label))
        if len(nodes) > 1 and not known.intersection(nodes):
            found.append(shown("", nodes))
    return found


def _heard(traffic: Traffic) -> Traffic:
    """Return the traffic with those nodes alone that have any."""
    return part_of(traffic, np.unique(np.concatenate([traffic.src, traffic.dst])))


def print_shown(shown: Shown, zone: ZoneInfo, console: Console) -> None:
    """Print a job as tables."""
    name = shown.name or f"no known job: {compress(shown.nodes)[:60]}"
    begin, end = (datetime.fromtimestamp(moment, zone).strftime("%H:%M:%S") for moment in (shown.start, shown.stop))
    console.print(f"{name}: {len(shown.nodes):,} nodes, {begin} to {end}, {' '.join(_facts(shown))}")
    told = shown.told
    if told is not None and told.steps is not None:
        console.print(_stages(told), _pairs(told))
    if told is not None:
        console.print(_verdicts(told) if told.verdicts else "Nobody is at fault by this.")
    if shown.silent and told is not None:
        console.print(f"No traffic with others of the job: {compress(shown.silent)[:200]}")
    console.print(shown.unknown, "")


def _facts(shown: Shown) -> Iterator[str]:
    told = shown.told
    if told is None:
        return
    yield f"{len(told.traffic.time):,} {'samples' if shown.source == 'sflow' else 'sums of records'}"
    if told.steps is not None and told.roles is not None:
        steps, most = told.steps, float(np.quantile(told.steps.length, 0.95))
        yield (
            f"\n{len(steps.length):,} steps of {steps.usual:.3g} s (95 % within {most:.3g} s, "
            f"the last {steps.length[-1]:.3g} s); the exchange at their end takes {steps.exchange:.0%}\n"
            f"{told.roles.stage.max() + 1} stages, data-parallel by {told.roles.shape}; "
            f"{told.roles.sure:.0%} of the nodes agree with this"
        )


def _stages(told: Told) -> Table:
    table = Table("stage", "nodes", "", box=None)
    by_stage = told.nodes().group_by(schema.ROLE_STAGE.name, maintain_order=True).agg(schema.NODE)
    for stage, nodes in by_stage.iter_rows():
        table.add_row(str(stage) if stage >= 0 else "not told", str(len(nodes)), compress(nodes)[:100])
    return table


def _pairs(told: Told) -> Table:
    table = Table("kind", "stages", "pairs", "bytes", box=None)
    for kind, src, dst, pairs, sent in told.pairs().iter_rows():
        table.add_row(kind, f"{src} -> {dst}", str(pairs), f"{sent / 1e9:,.1f} GB")
    return table


def _verdicts(told: Told) -> Table:
    table = Table("verdict", "nodes", schema.RAIL, "sure", "evidence", box=None)
    for blame, nodes, rail, _, sure, evidence in told.judged().iter_rows():
        table.add_row(blame, nodes[:60], "" if rail is None else str(rail), f"{sure:.0%}", evidence)
    return table
