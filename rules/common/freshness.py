"""How far back a rule must look to find the newest point of a series."""

from cluster.model import Cluster
from dashboards.parts.node_states import MINUTE
from store import schema
from store.influxql import settle_seconds, window_seconds

_SPARE_WINDOWS = 4
SELDOM = 3
"""Windows between two readings of a bridge that works off a backlog; else there is one a window."""


def fresh_seconds(cluster: Cluster) -> int:
    """Return a range in whole windows that holds the newest settled point even if some writes came late.

    A window's point lies at its start: it is one window, the lateness and two flushes old when it is nearly whole, and
    analysis adds its own round on top.
    """
    window = window_seconds(cluster, schema.RAW)
    seconds = settle_seconds(cluster, schema.RAW) + _SPARE_WINDOWS * window
    return -(-seconds // window) * window


def reading_seconds(cluster: Cluster) -> int:
    """Return a range that always holds what a living bridge says of itself.

    It says so once a window, and while it works off a backlog every three; the point lies at its window's start.
    """
    return (SELDOM + 1) * cluster.bridge.window


def final_seconds(cluster: Cluster) -> int:
    """Return the same for what analysis writes once nothing can change it any more: after grace, two looks later."""
    return fresh_seconds(cluster) + cluster.bridge.grace + 2 * MINUTE


def fresh_node_seconds(cluster: Cluster) -> int:
    """Return the same for verdicts on nodes: those that are ok have a row a minute."""
    return fresh_seconds(cluster) + MINUTE
