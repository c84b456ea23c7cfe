"""Columns for the two ends of a conversation, as the tables of several boards have them."""

from cluster.model import Cluster
from dashboards import panels
from dashboards import variables as var
from dashboards.links import CELL, row, to_board
from dashboards.panels import Column
from store import schema


def node(tag: str, title: str, width: int = 0) -> Column:
    """Return the column of an end; a click explores what that node does."""
    return Column(tag, title, links=(to_board("explore", "Explore this node", node=row(tag)),), width=width)


def source_group(cluster: Cluster, board: str, title: str = "Source group") -> Column:
    """Return the column of the source's group; a click keeps only that one on the board."""
    link = to_board(board, "Only this group", keep=(var.DESTINATION,), src=CELL)
    return Column(schema.SRC_GROUP, title, mappings=(panels.group_words(cluster),), links=(link,))


def both(cluster: Cluster, board: str) -> list[Column]:
    """Return source and destination with their groups; a click on a group keeps only that one on the board."""
    link = to_board(board, "Only this group", keep=(var.SOURCE,), dst=CELL)
    return [
        node(schema.SRC, "Source"),
        source_group(cluster, board),
        Column(schema.DST, "Destination"),
        Column(schema.DST_GROUP, "Destination group", mappings=(panels.group_words(cluster),), links=(link,)),
    ]
