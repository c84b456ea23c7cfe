"""The checkpoints of a run: as planned, and as incidents let them happen."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from simulate.incidents.incident import CHECKPOINTS, Incident, IncidentKind
from simulate.scenarios.scenario import Profile, Run


@dataclass(frozen=True, slots=True)
class Save:
    """One checkpoint that is written. Epoch seconds; bytes are those of each node.

    Attributes:
        begin, end: from first to last byte, end exclusive.
        volume: IP bytes that each node writes.
        nodes: who writes.
    """

    begin: int
    end: int
    volume: int
    nodes: tuple[str, ...]


def saves_of(run: Run, profile: Profile, incidents: Iterable[Incident]) -> tuple[Save, ...]:
    """Return what a run writes, in the order of time.

    Args:
        run: the run.
        profile: of its class.
        incidents: of the scenario; those that concern this run's checkpoints change them.
    """
    mine = [incident for incident in incidents if incident.kind in CHECKPOINTS and incident.job == run.job]
    found = []
    for begin in run.checkpoint_times():
        save: Save | None = Save(begin, begin + profile.checkpoint_seconds, profile.checkpoint, run.nodes)
        for incident in mine:
            if save is not None and incident.start <= begin < incident.end:
                save = _changed(save, incident)
        if save is not None and save.begin < run.end:
            found.append(replace(save, end=min(save.end, run.end)))
    return tuple(sorted(found, key=lambda save: save.begin))


def _changed(save: Save, incident: Incident) -> Save | None:
    """Return what an incident makes of a checkpoint; None if it is not written at all."""
    match incident.kind:
        case IncidentKind.CHECKPOINT_LATE:
            return replace(save, begin=save.begin + incident.seconds, end=save.end + incident.seconds)
        case IncidentKind.CHECKPOINT_SHORT if incident.nodes:
            return replace(save, nodes=tuple(node for node in save.nodes if node not in incident.nodes))
        case IncidentKind.CHECKPOINT_SHORT:
            return replace(save, volume=int(save.volume * incident.share))
        case _:
            return None
