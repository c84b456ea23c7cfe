"""The states of training nodes, as every board shows them: the same words, colours, order and links."""

from cluster.model import Cluster, Plane, Role
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.links import Link, clicked, to_board
from dashboards.palette import STATE_COLOURS
from dashboards.panels import Built, Face, Json
from store import schema
from store.influxql import Condition

MINUTE = 60
"""Seconds between the rows of a node that is ok: bins that are shorter would have holes."""


def mapping() -> Json:
    """Return the value mapping of states to words and colours."""
    return panels.words({state: (word, STATE_COLOURS[state]) for state, word in schema.NODE_STATE_WORDS.items()})


def worst_first() -> Json:
    """Return the transformation that puts the worst state on top; the numbers of states grow with what is wrong."""
    return {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": schema.STATE.name, "desc": True}]}}


def timeline(cluster: Cluster, face: Face, *conditions: Condition, keep: tuple[str, ...] = ()) -> Built:
    """Return every node's state over time, a row a node; a click on one carries the choices of `keep` along."""
    query = questions.node_states().where(*conditions).over_time(
        cluster, "Worst state in the bin.", alias=f"$tag_{schema.NODE}", settled=False
    )  # fmt: skip
    links = (to_board("training", "This node", keep=keep, node=clicked(schema.NODE)), stragglers(cluster))
    return panels.state_timeline(cluster, face, [query.at_least(MINUTE)], [mapping()], links=links)


def stragglers(cluster: Cluster) -> Link:
    """Link to the straggler query: training to training on the compute plane, the smallest sender first."""
    training = [group.id for group in cluster.groups_with(Role.TRAINING)]
    group = training[0] if training else var.ALL
    return to_board(
        "explore", "Stragglers: who sent least?", src=group, dst=group, plane=Plane.COMPUTE.value, order=var.SMALLEST,
        limit="20",
    )  # fmt: skip
