"""Staging what happens to training jobs: nodes and cohorts that slow down or stop, checkpoints that do not come."""

from typing import Any

import numpy as np

from app.errors import UserError
from cluster.model import Plane
from simulate.incidents.expect import (
    digest_alerts,
    dropout_alerts,
    held_alerts,
    missed_checkpoint_alerts,
    packet_size_alerts,
    rail_alerts,
    slowdown_alerts,
    stall_alerts,
)
from simulate.incidents.incident import Incident, IncidentKind
from simulate.incidents.stage import Stage
from simulate.scenarios.scenario import Run

_COLLECTIVE_PORT = 29500
_RANKS = 78
"""Stream of random numbers."""


def node_dropout(
    stage: Stage, start: int, end: int, *, share: float = 0.8, position: float = 0.4, node: str = "", job: str = ""
) -> Incident:
    """A node of the running job sends only `share` of its ordinary bytes; 0 is total."""
    run = stage.run_at(start, job)
    src = node or run.nodes[int(position * len(run.nodes))]
    if src not in run.nodes:
        raise UserError(f"node_dropout: {src} is no node of {run.job}", f"one of {run.nodes[0]} to {run.nodes[-1]}")
    alerts = dropout_alerts(stage, run, src, start=start, end=min(end, run.end), share=share)
    own = stage.node(src)
    return _of_run(
        IncidentKind.NODE_DROPOUT, run, start, end, src=src, src_address=stage.address(own, Plane.COMPUTE),
        dst=own.group, port=_COLLECTIVE_PORT, share=share, alerts=alerts,
    )  # fmt: skip


def rack_down(stage: Stage, start: int, end: int, *, count: int = 6, job: str = "") -> Incident:
    """So many nodes of a job, neighbours, send nothing any more, as when a rack loses its power."""
    run = stage.run_at(start, job)
    nodes = run.nodes[:count]
    alerts = digest_alerts(stage, run, nodes, start=start, end=min(end, run.end))
    return _of_run(IncidentKind.RACK_DOWN, run, start, end, share=0.0, nodes=nodes, alerts=alerts)


def dead_rail(stage: Stage, start: int, end: int, *, rail: int = 1, node: str = "", job: str = "") -> Incident:
    """One rail of a node of a job carries nothing of what the node sends: its other rails take it."""
    run = stage.run_at(start, job)
    src = node or run.nodes[0]
    alerts = rail_alerts(stage, run, src, rail, start=start, end=min(end, run.end))
    return _of_run(IncidentKind.DEAD_RAIL, run, start, end, src=src, rail=rail, alerts=alerts)


def wrong_mtu(stage: Stage, start: int, end: int, *, packet: int = 1_500, node: str = "", job: str = "") -> Incident:
    """A node of a job sends the same bytes to the others in smaller packets, as with another MTU."""
    run = stage.run_at(start, job)
    src = node or run.nodes[0]
    alerts = packet_size_alerts(stage, run, src, packet, start=start, end=min(end, run.end))
    return _of_run(IncidentKind.WRONG_MTU, run, start, end, src=src, packet=packet, alerts=alerts)


def held_silent(stage: Stage, start: int, end: int, *, count: int = 0, job: str = "") -> Incident:
    """So many nodes of a job, or all, neither send nor read: it holds them for nothing."""
    run = stage.run_at(start, job)
    alerts = held_alerts(stage, run, start=start, end=min(end, run.end))
    nodes = run.nodes[:count]
    return _of_run(IncidentKind.HELD_SILENT, run, start, end, share=0.0, nodes=nodes, alerts=alerts)


def cohort_slowdown(stage: Stage, start: int, end: int, *, share: float = 0.6, job: str = "") -> Incident:
    """All nodes of a job send only `share` of their ordinary bytes, alike."""
    run = stage.run_at(start, job)
    alerts = slowdown_alerts(stage, run, start=start, end=min(end, run.end), share=share)
    return _of_run(IncidentKind.COHORT_SLOWDOWN, run, start, end, share=share, alerts=alerts)


def job_stalled(stage: Stage, start: int, end: int, *, job: str = "") -> Incident:
    """A job sends nothing any more, though it is not over."""
    run = stage.run_at(start, job)
    alerts = stall_alerts(stage, run, start=start, end=min(end, run.end))
    return _of_run(IncidentKind.JOB_STALLED, run, start, end, share=0.0, alerts=alerts)


def ranks_moved(stage: Stage, start: int, end: int, *, count: int = 0, job: str = "") -> Incident:
    """A job's ranks move to other nodes, as after a restart: each node sends as much as before, to others. No alert."""
    run = stage.run_at(start, job)
    some = run.nodes[: count or None]
    order = np.random.default_rng([stage.seed, stage.number, _RANKS]).permutation(len(some))
    nodes = (*(some[rank] for rank in order), *run.nodes[len(some) :])
    return _of_run(IncidentKind.RANKS_MOVED, run, start, end, nodes=nodes)


def checkpoint_missed(stage: Stage, start: int, end: int, *, job: str = "") -> Incident:
    """The checkpoints of a job that are due in the time are not written."""
    run = stage.run_at(start, job)
    times = _times(run, start, end)
    alerts = missed_checkpoint_alerts(stage, run, times, lateness=None)
    return _of_run(IncidentKind.CHECKPOINT_MISSED, run, start, end, alerts=alerts)


def checkpoint_late(stage: Stage, start: int, end: int, *, seconds: int = 120, job: str = "") -> Incident:
    """The checkpoints of a job that are due in the time begin so many seconds later."""
    run = stage.run_at(start, job)
    times = _times(run, start, end)
    alerts = missed_checkpoint_alerts(stage, run, times, lateness=seconds)
    return _of_run(IncidentKind.CHECKPOINT_LATE, run, start, end, seconds=seconds, alerts=alerts)


def checkpoint_short(
    stage: Stage, start: int, end: int, *, share: float = 0.5, missing: int = 0, job: str = ""
) -> Incident:
    """Checkpoints hold only `share` of their bytes, or lack the bytes of so many nodes. A verdict, but no alert."""
    run = stage.run_at(start, job)
    _times(run, start, end)
    nodes = run.nodes[:missing]
    return _of_run(IncidentKind.CHECKPOINT_SHORT, run, start, end, share=share, nodes=nodes)


def _times(run: Run, start: int, end: int) -> list[int]:
    """Return when checkpoints are planned to begin in the time; UserError if none is."""
    found = [at for at in run.checkpoint_times() if start <= at < end]
    if not found:
        raise UserError(f"no checkpoint of {run.job} is planned in that time", "let the incident begin earlier or last")
    return found


def _of_run(kind: IncidentKind, run: Run, start: int, end: int, *, src: str = "", **more: Any) -> Incident:  # noqa: ANN401
    """Return what happens to a run, or to a node of it."""
    return Incident(id=f"{kind.value}-{src or run.job}", kind=kind, start=start, end=end, src=src, job=run.job, **more)
