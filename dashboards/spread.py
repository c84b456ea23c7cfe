"""The spread of a rate over nodes: three lines stand for a cohort of any size."""

from cluster import schema
from cluster.model import Cluster
from dashboards import panels
from dashboards.palette import DIM, LOOK, QUIET
from dashboards.panels import Json
from dashboards.queries import Column, Query, Select, Unit, bit_rate

FASTEST, MEDIAN, SLOWEST = "fastest", "median", "slowest"

_RATE = "rate"


def node_spread(cluster: Cluster, nodes: Select) -> Query:
    """Return the largest, median and smallest bit/s sent over the nodes that a question is about.

    Args:
        cluster: says how long windows are.
        nodes: the node measurement with its conditions; nothing taken, nothing grouped. Of the retention that it names
            and the coarser ones the one is read that fits the panel's bins.
    """
    inner = nodes.take(bit_rate(schema.TX_BYTES, _RATE)).by(schema.NODE).binned().by_interval(cluster)
    columns = tuple(
        Column(f'{function}("{_RATE}")', name, Unit.BITS_PER_SECOND, (_RATE,))
        for name, function in ((FASTEST, "max"), (MEDIAN, "median"), (SLOWEST, "min"))
    )
    query = Select(inner).take(*columns)
    return query.over_time(cluster, "bit/s sent by one of the nodes.", alias="$col", settled=False)


def spread_overrides() -> list[Json]:
    """Return the look of the three lines."""
    return [
        panels.override(FASTEST, color=panels.fixed(DIM)),
        panels.override(MEDIAN, color=panels.fixed(QUIET)),
        panels.override(SLOWEST, color=panels.fixed(LOOK)),
    ]
