"""The spread of a rate over nodes: three lines stand for a cohort of any size."""

from cluster.model import Cluster
from dashboards import panels
from dashboards.palette import DIM, QUIET
from dashboards.panels import Json
from store import schema
from store.influxql import Query, Select, bit_rate, highest, lowest, middle

FASTEST, MEDIAN, SLOWEST = "fastest", "median", "slowest"

_PALE = "#D5E3F7"
"""Of the slowest: a cohort always has one, so it is no state, and not orange."""


def node_spread(cluster: Cluster, *nodes: Select) -> Query:
    """Return the largest, median and smallest bit/s sent over the nodes that a question is about.

    Args:
        cluster: says how long windows are.
        nodes: the node measurement with its conditions; nothing taken, nothing grouped. Of the retention that it names
            and the coarser ones the one is read that fits the panel's bins. Of several one must answer.
    """
    rate = bit_rate(schema.TX_BYTES)
    inner = tuple(each for one in nodes for each in one.take(rate).by(schema.NODE).binned().by_interval(cluster))
    query = Select(inner).take(highest(rate, FASTEST), middle(rate, MEDIAN), lowest(rate, SLOWEST))
    return query.over_time(cluster, "bit/s sent by one of the nodes.", alias="$col")


def spread_overrides() -> list[Json]:
    """Return the look of the three lines."""
    return [
        panels.override(FASTEST, color=panels.fixed(DIM)),
        panels.override(MEDIAN, color=panels.fixed(QUIET)),
        panels.override(SLOWEST, color=panels.fixed(_PALE)),
    ]
