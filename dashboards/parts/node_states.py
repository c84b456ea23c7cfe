"""The states of training nodes, as every board shows them: the same words, colours, order and links."""

from dataclasses import replace

from cluster.model import Cluster, Plane, Role
from dashboards import panels
from dashboards import variables as var
from dashboards.links import Link, clicked, to_board
from dashboards.palette import STATE_COLOURS
from dashboards.panels import Built, Face, Json, Limit
from store import schema
from store.influxql import (
    Column,
    Condition,
    Query,
    Select,
    Unit,
    compare,
    count,
    highest,
    narrowed,
    newest,
    scaled,
    total,
)
from store.schema import NodeState

ONLY_LOW = "Until nodes are chosen, those that are low, down or blind are drawn, for as long as they are."
NO_LOW = "no node is low, down or blind"
_MANY, _POINTS = 100, 360

MINUTE = 60
"""Seconds between the rows of a node that is ok: bins that are shorter would have holes."""


def mapping() -> Json:
    """Return the value mapping of states to words and colours."""
    return panels.words({state: (word, STATE_COLOURS[state]) for state, word in schema.NODE_STATE_WORDS.items()})


def worst_first() -> Json:
    """Return the transformation that puts the worst state on top; the numbers of states grow with what is wrong."""
    return panels.ordered(schema.STATE.name)


_ALWAYS = (NodeState.OK, NodeState.LOW, NodeState.DOWN)


def counted(state: int, name: str, *conditions: Condition) -> Query:
    """Count the nodes whose latest window has a state, as a number called `name`.

    Of those that are always shown it is 0 while others have one; of the others, nothing. Nothing while no job runs.
    """
    verdicts = Select(schema.BASELINE, schema.RAW).where(*conditions)
    nodes = count(schema.STATE, "nodes")
    latest = verdicts.take(newest(schema.STATE)).by(schema.NODE)
    matching = Select(latest).take(nodes).where(compare(schema.STATE, "=", state))
    word = schema.NODE_STATE_WORDS[state]
    if state not in _ALWAYS:
        return matching.per_series(f"Nodes that are {word}.", alias=name)
    zero = verdicts.where(told()).take(scaled(nodes, "0", nodes.name, Unit.COUNT))
    return Select((matching, zero)).take(total(nodes, word)).per_series(f"Nodes that are {word}.", alias=name)


def count_colour(state: int, name: str) -> Json:
    """Return the override that gives such a number the state's colour; none low or down is quiet."""
    wrong = {NodeState.LOW: Limit(look=1), NodeState.DOWN: Limit(act=1)}
    steps = wrong[state].steps() if state in wrong else [{"value": None, "color": STATE_COLOURS[state]}]
    return panels.override(name, thresholds={"mode": "absolute", "steps": steps})


def timeline(cluster: Cluster, face: Face, *conditions: Condition, keep: tuple[str, ...] = ()) -> Built:
    """Return every node's state over time, a row a node; a click on one carries the choices of `keep` along.

    Where they are many: of those that are low, down or blind, or of those that are chosen.
    """
    query = shown(cluster, highest(schema.STATE), *conditions).over_time(
        cluster, "Worst state in the bin.", alias=f"$tag_{schema.NODE}", settled=False
    )  # fmt: skip
    if are_many(cluster):
        face = replace(face, cannot=f"{face.cannot} {ONLY_LOW}")
    links = (to_board("training", "This node", keep=keep, node=clicked(schema.NODE)), stragglers(cluster))
    query = query.at_least(MINUTE)
    if are_many(cluster):
        query = coarse(query)
    missing = NO_LOW if are_many(cluster) else "no data"
    return panels.state_timeline(cluster, face, [query], [mapping()], links=links, missing=missing)


def are_many(cluster: Cluster) -> bool:
    """Return whether the training nodes are too many to be drawn all at once: their lines would be unreadable."""
    return len(cluster.nodes_with(Role.TRAINING)) > _MANY


def told() -> Condition:
    """Let verdicts pass, and no row that was taken back, as those after a job's end are, which is told later."""
    return compare(schema.STATE, ">=", NodeState.LEARNING)


def shown(cluster: Cluster, column: Column, *conditions: Condition) -> Select:
    """Return a column of the verdicts on each node, to be asked over time.

    Of many nodes: those that are low, down or blind, until some are chosen; they have rows of their own.
    """
    each = Select(schema.BASELINE, schema.RAW).where(*conditions).take(column).by(schema.NODE)
    if not are_many(cluster):
        return each.where(told())
    low = replace(each, source=schema.LOW_NODE).where(compare(schema.STATE, ">=", NodeState.LOW))
    # One of them answers: InfluxDB compares texts, and leaves the other out before it looks at a series.
    either = (low.where(narrowed(var.NODE, holds=False)), each.where(narrowed(var.NODE), told()))
    return Select(tuple(one.binned() for one in either)).take(column).by(schema.NODE)


def coarse(query: Query) -> Query:
    """Return a question over time with points enough for a curve: with one a pixel, lines of all nodes take seconds."""
    return replace(query, points=_POINTS)


def stragglers(cluster: Cluster) -> Link:
    """Link to the straggler query: training to training on the compute plane, the smallest sender first."""
    groups = tuple(group.id for group in cluster.groups_with(Role.TRAINING)) or var.ALL
    return to_board(
        "explore", "Stragglers: who sent least?", src=groups, dst=groups, plane=Plane.COMPUTE.value, order=var.SMALLEST,
        limit="20",
    )  # fmt: skip
