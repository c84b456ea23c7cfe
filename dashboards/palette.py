"""Colours and words that mean the same on every board.

Colour is for states: orange says look, red says act (only where an alert fires, at its own limit), everything else is
quiet. Groups keep one colour everywhere. Both tables avoid red against green; a word always stands beside a state.
"""

import re
from collections.abc import Sequence

from cluster.model import EXTERNAL, LOCAL, Cluster, Role
from store import schema

QUIET = "#7EA6E0"
"""Normal values."""

DIM = "#6E7687"
"""What is known to be nothing, and what is not known yet."""

UNUSED = "#6E768740"
"""A place where something may be and is not: DIM, mostly transparent."""

CALM = "#7EA6E059"
"""QUIET where it fills much of a wall: nothing that is well should shine."""

LOOK = "#FF9830"
ACT = "#F2495C"
BLIND = "#B877D9"
"""Nothing can be said: the exporter is silent. Neither good nor bad, so neither quiet nor orange."""

STATE_COLOURS = {
    schema.NodeState.LEARNING: DIM,
    schema.NodeState.OK: QUIET,
    schema.NodeState.LOW: LOOK,
    schema.NodeState.DOWN: ACT,
    schema.NodeState.BLIND: BLIND,
}

COHORT_COLOURS = {
    schema.CohortState.LEARNING: DIM,
    schema.CohortState.OK: QUIET,
    schema.CohortState.SLOW: LOOK,
    schema.CohortState.STALLED: ACT,
    schema.CohortState.ENDED: DIM,
    schema.CohortState.BLIND: BLIND,
}
PHASE_COLOURS = {
    schema.Phase.IDLE: DIM,
    schema.Phase.LOAD: "#44BB99",
    schema.Phase.COMPUTE: QUIET,
    schema.Phase.CHECKPOINT: "#EEDD88",
    schema.Phase.BLIND: BLIND,
}
PATTERN_COLOURS = {
    schema.Pattern.NONE: DIM,
    schema.Pattern.RING: QUIET,
    schema.Pattern.TREE: "#44BB99",
    schema.Pattern.ALL_TO_ALL: "#EEDD88",
    schema.Pattern.MIXED: "#99DDFF",
}
CHECKPOINT_COLOURS = {
    schema.CheckpointState.ON_TIME: QUIET,
    schema.CheckpointState.LATE: LOOK,
    schema.CheckpointState.MISSED: ACT,
    schema.CheckpointState.SHORT: LOOK,
    schema.CheckpointState.OVER_LONG: LOOK,
    schema.CheckpointState.NODES_MISSING: LOOK,
    schema.CheckpointState.UNJUDGED: DIM,
}

# Paul Tol's "light" scheme, told apart with every kind of colour-blindness, without its orange, which is a state here.
_ROLE_COLOURS = {
    Role.TRAINING: "#77AADD",
    Role.STORAGE: "#44BB99",
    Role.MODEL_STORAGE: "#EEDD88",
    Role.INFERENCE: "#99DDFF",
    Role.MANAGEMENT: "#AAAA00",
    Role.APPROVED_EXTERNAL: "#BBCC33",
}
_FURTHER = ("#CCBBEE", "#88A0A8", "#D8B4A0", "#A0C8B0", "#9090C8", "#C8C8A0", "#A8C8E0", "#C0A0C0")
_RESERVED = {EXTERNAL: "#FFAABB", LOCAL: "#DDDDDD"}

_SHORT = 18

OTHER_COLOUR = "#9AA0A6"
"""Everything beyond what is shown by name."""


def group_colours(cluster: Cluster) -> dict[str, str]:
    """Return the colour of every group, reserved ones last: the first group of a role has the role's colour."""
    colours: dict[str, str] = {}
    free = dict(_ROLE_COLOURS)
    further = 0
    for group in cluster.groups:
        colour = free.pop(group.role, None)
        if colour is None:
            colour = _FURTHER[further % len(_FURTHER)]
            further += 1
        colours[group.id] = colour
    return colours | _RESERVED


def group_titles(cluster: Cluster) -> dict[str, str]:
    """Return the title of every group by its id, reserved ones last."""
    return {group_id: cluster.title(group_id) for group_id in group_colours(cluster)}


def short_titles(cluster: Cluster) -> dict[str, str]:
    """Return the same as far as a wall has room for it: a title up to its first ``/`` or bracket, 18 letters.

    What would be the same of several is cut in the middle: ``GPU Nodes Ha… North``.
    """
    titles = group_titles(cluster)
    heads = {group_id: re.split(r" ?[/(]", title)[0] or title for group_id, title in titles.items()}
    short = {group_id: _cut(head, 0) for group_id, head in heads.items()}
    alike = {group_id for group_id, title in short.items() if list(short.values()).count(title) > 1}
    for group_id in alike:
        head = heads[group_id] if list(heads.values()).count(heads[group_id]) == 1 else titles[group_id]
        short[group_id] = _cut(head, _SHORT // 2)
    return short


def _cut(text: str, end: int) -> str:
    """Return a text in as many letters as have room, `end` of them its last ones."""
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1 - end]}…{text[len(text) - end :]}"


def telling_end(names: Sequence[str], room: int = 0) -> str:
    """Return a pattern for names of nodes, whose group is as much of their end as tells them apart, or has `room`.

    Words and numbers are whole: of ``dgx-hall1-rack07-001.fra.example`` and its neighbours ``001``, or ``07-001`` where
    other racks have a 001, too; ``rack07-001`` where 10 letters have room. A domain is left out where names are
    different without it.
    """
    heads = [name.split(".")[0] for name in names]
    if len(set(heads)) < len(heads):
        heads = list(names)
    domains = sorted({name[len(head) :] for name, head in zip(names, heads, strict=True)})
    words = [re.findall(r"\d+|[A-Za-z]+", head) for head in heads]
    most = max(map(len, words))
    found = "(.*)"
    for many in range(1, most + 1):
        if len({tuple(each[-many:]) for each in words}) < len(names):
            continue
        pattern = rf"[^\s:]*?((?:(?:\d+|[A-Za-z]+)[-_.]*?){{1,{many}}})(?:{'|'.join(map(re.escape, domains))})"
        if found != "(.*)" and any(len(re.sub(f"^{pattern}$", r"\1", name)) > room for name in names):
            break
        found = pattern
    return found


def shade(colour: str, step: int) -> str:
    """Return the colour, darker with each step: tells series of one group apart without leaving its hue."""
    factor = 0.78**step
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part * factor):02X}" for part in parts)
