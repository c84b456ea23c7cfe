"""The states of training nodes, as every board shows them: the same words, colours, order and links."""

from dataclasses import replace

from cluster.model import Cluster, Plane, Role
from dashboards import panels
from dashboards import variables as var
from dashboards.links import Link, clicked, to_board
from dashboards.palette import STATE_COLOURS
from dashboards.panels import Built, Face, Json
from store import schema
from store.influxql import Column, Condition, Query, Select, compare, highest, narrowed
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
