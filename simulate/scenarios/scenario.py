"""What a simulation plays: phases, job runs, incidents, and how each exporter speaks. Times are epoch seconds, UTC."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from cluster.calendar import off_hours_mask
from cluster.model import Cluster, Exporter, ExportProtocol, SamplingMode, Site
from simulate.incidents.incident import Incident
from simulate.packets.netflow import FlowFormat

_CHECKPOINTS, _LIVE_CHECKPOINTS = 1800, 70
"""Seconds between checkpoints: in runs of the past, and in those of a live phase, which is short."""

CONTROL_SAMPLING = 256
"""Rate of sFlow agents for which cluster.yaml fixes none."""


class Background(StrEnum):
    """What goes on beside jobs and incidents."""

    DENSE = "dense"
    """Everything at its natural rate: for live phases and days."""
    ROUTINE = "routine"
    """A few conversations of each kind at fixed rhythms, by the hour of the day: for weeks in a store."""
    NONE = "none"


class Algorithm(StrEnum):
    """How a training job sums its gradients."""

    RING = "ring"
    TREE = "tree"
    MIXED = "mixed"
    """Ring for large tensors, double binary tree for small ones, as NCCL chooses."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of simulated time in one resolution.

    Attributes:
        start, end: epoch seconds, multiples of `timeout`.
        timeout: active timeout of the exporters in seconds: the longest piece of a flow in one record.
        slice: seconds that are drawn at once; a multiple of `timeout`.
        coarse: so many small conversations of the background become one with all their bytes.
        poll: seconds between two polls of sFlow agents' interface counters; 0: as often as they do by default.
    """

    start: int
    end: int
    timeout: int
    slice: int
    coarse: int = 1
    poll: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """What every run of a job class does.

    Attributes:
        algorithm: of its AllReduce.
        rate: bytes per second that each node sends on the compute rails, on average.
        step: seconds of a training step.
        communicating: the part of a step in which gradients are on the wire.
        noise: relative standard deviation of a node's bytes in one record.
        shares: (node, share): nodes that always send only this share of the others' bytes.
        dataset, dataset_seconds: bytes that each node loads as a run starts, and in what time.
        prefetch: bytes per second that each node reads afterwards.
        checkpoint, checkpoint_seconds: bytes that each node writes, and in what time; steps are slower then.
    """

    job_class: str = "llama-70b"
    algorithm: Algorithm = Algorithm.MIXED
    rate: int = 1_500_000_000
    step: float = 2.5
    communicating: float = 0.6
    noise: float = 0.01
    shares: tuple[tuple[str, float], ...] = ()
    dataset: int = 8_000_000_000
    dataset_seconds: int = 20
    prefetch: int = 20_000_000
    checkpoint: int = 4_000_000_000
    checkpoint_seconds: int = 10

    def share(self, node: str) -> float:
        """Return the share of a node; 1 unless it is listed."""
        return dict(self.shares).get(node, 1.0)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job class. Times are epoch seconds.

    Attributes:
        job: its id.
        start, end: `end` is exclusive.
        checkpoint_every: checkpoints begin so many seconds after each other; 0: there are none ...
        checkpoints: ... unless the moments at which they begin are listed here.
        profile: of its class; None: the scenario's.
    """

    job: str
    nodes: tuple[str, ...]
    start: int
    end: int
    checkpoint_every: int = _CHECKPOINTS
    checkpoints: tuple[int, ...] | None = None
    profile: Profile | None = None

    def checkpoint_times(self) -> tuple[int, ...]:
        """Return when checkpoints begin as planned."""
        if self.checkpoints is not None:
            return self.checkpoints
        every = self.checkpoint_every
        return tuple(range(self.start + every, self.end, every)) if every else ()


@dataclass(frozen=True, slots=True)
class ExportStyle:
    """How an exporter speaks: its format, and its sampling (1 = every packet)."""

    flow_format: FlowFormat
    rate: int = 1


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything a simulation needs beside the cluster; the same scenario gives the same bytes.

    Attributes:
        seed: of all that is drawn.
        live: the phase that is sent in real time.
        history: the phase before it, for a spool; None if there is none.
        recent: between the two, in the resolution of the live phase; None where they touch.
        profile: of the runs that have none of their own.
        runs: in the order of time.
        incidents: staged ones and near misses.
        background: what goes on beside them.
        styles: (exporter name, style); the others get `default_styles`.
    """

    seed: int
    live: Phase
    history: Phase | None = None
    profile: Profile = field(default_factory=Profile)
    runs: tuple[Run, ...] = ()
    incidents: tuple[Incident, ...] = ()
    styles: tuple[tuple[str, ExportStyle], ...] = ()
    background: Background = Background.DENSE
    recent: Phase | None = None

    @property
    def start(self) -> int:
        """Begin of its first phase."""
        return self.live.start if self.history is None else self.history.start


def runs_of(cluster: Cluster, live: Phase) -> tuple[Run, ...]:
    """Return the job windows of cluster.yaml as runs; one that is not over lasts as long as the live phase."""
    found = []
    for job in cluster.jobs:
        begin = int(job.start.timestamp())
        end = live.end if job.end is None else min(int(job.end.timestamp()), live.end)
        if job.nodes and end > begin:
            found.append(Run(job.id, job.nodes, begin, end, _LIVE_CHECKPOINTS if end > live.start else _CHECKPOINTS))
    return tuple(sorted(found, key=lambda run: run.start))


def default_styles(cluster: Cluster) -> dict[str, ExportStyle]:
    """Return how exporters speak by default: every format occurs, and one border device samples.

    NetFlow v5 goes to exporters that do not count, because it cannot carry IPv6; where there is nothing else, to none.
    """
    has_v4 = not cluster.nodes or any(entry.address.version == 4 for node in cluster.nodes for entry in node.addresses)
    styles: dict[str, ExportStyle] = {}
    formats = (FlowFormat.V9, FlowFormat.IPFIX)
    position = 0
    for exporter in cluster.exporters:
        if exporter.protocol is ExportProtocol.SFLOW:
            styles[exporter.name] = ExportStyle(FlowFormat.SFLOW, _fixed_rate(exporter) or CONTROL_SAMPLING)
        elif not exporter.counts:
            styles[exporter.name] = ExportStyle(FlowFormat.V5 if has_v4 else FlowFormat.V9, _fixed_rate(exporter) or 1)
        else:
            sampled = 100 if "border" in exporter.name and exporter.sampling.mode is SamplingMode.AUTO else 1
            styles[exporter.name] = ExportStyle(formats[position % 2], _fixed_rate(exporter) or sampled)
            position += 1
    return styles


def _fixed_rate(exporter: Exporter) -> int | None:
    return exporter.sampling.rate if exporter.sampling.mode is SamplingMode.FIXED else None


def is_off_hours(site: Site, when: int) -> bool:
    """Whether an instant (epoch seconds) lies in the site's off-hours."""
    return bool(off_hours_mask(site, np.array([when], np.int64))[0])
