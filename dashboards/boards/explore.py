"""Explore: the questions that come afterwards. Which nodes, groups and services move how much, largest first or last?

Two questions share the choices on top: nodes (from the node measurement, which knows no services) and groups, planes,
services and protocols (from the traffic measurement, which knows no nodes).
"""

from dataclasses import replace

from cluster.model import Cluster
from dashboards import panels
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import CELL, clicked, row, to_board
from dashboards.panels import Built, Cell, Face, TableOrder
from dashboards.parts import node_states, transport
from dashboards.parts.spread import node_spread, spread_overrides
from store import schema
from store.influxql import (
    WHOLE_HOURS,
    Column,
    Select,
    Unit,
    ago,
    any_of,
    bit_rate,
    chosen,
    narrowed,
    scaled,
    top_sums,
    total,
)

BOARD = "explore"

_RANK = "rank"
_SENT = "sent"
_RECEIVED = "received"
_KNOWN = "30d"
"""How long a node that is silent is known by what it sent before."""
_CHOICES = (var.SOURCE, var.DESTINATION, var.PLANE, var.SERVICE, var.ORDER, var.LIMIT)
"""What a click that narrows the question leaves as it was chosen; how traffic is split is another question then."""

_GROUP_BYS = {
    schema.SRC_GROUP: "source group",
    schema.DST_GROUP: "destination group",
    schema.PLANE: "plane",
    schema.SERVICE: "service",
    schema.PROTO: "protocol",
}

_QUESTION = """\
**Nodes** of *${src:text}* by bytes sent to *${dst:text}* on plane *${plane:text}*: ${order:text} first, at most
${limit}. **Traffic** from *${src:text}* to *${dst:text}* on plane *${plane:text}*, service *${service:text}*, by
${by:text}: ${order:text} first, at most ${limit}. Both in the time range above.
"""


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            _question(cluster),
            _nodes(cluster),
            _nodes_over_time(cluster),
            _chosen_over_time(cluster),
            _groups(cluster),
            _groups_over_time(cluster),
        ),
        since="1h",
        variables=(
            var.choice(var.GROUP_BY, "By", _GROUP_BYS, schema.DST_GROUP),
            *var.from_and_to(cluster),
            var.planes(),
            var.stored(cluster, var.SERVICE, "Service", schema.TRAFFIC, schema.SERVICE),
            var.stored(cluster, var.NODE, "Node", schema.NODE_TRAFFIC, schema.NODE),
            var.choice(var.ORDER, "Order", {var.LARGEST: "largest", var.SMALLEST: "smallest"}, var.LARGEST),
            var.choice(var.LIMIT, "Rows", {"10": "10", "20": "20", "50": "50"}, "20"),
        ),
    )


def _kept(*but: str) -> tuple[str, ...]:
    return tuple(choice for choice in _CHOICES if choice not in but)


def _signed(column: Column) -> Column:
    """Return the sum that orders the rows, as InfluxQL orders by nothing but time: negative for the smallest first."""
    return scaled(column, var.fill_in(var.ORDER), _RANK, column.unit)


def _question(cluster: Cluster) -> Built:
    return panels.text(
        cluster,
        Face(
            "question", "The question, in words",
            "What the panels below answer, as chosen above.",
            "Choices that a measurement does not know are left out of its sentence.",
            "Links on the right ask common questions with one click.",
            x=0, y=0, w=24, h=3,
            links=(
                node_states.stragglers(cluster),
                to_board("explore", "Everything", src=var.ALL, dst=var.ALL, plane=var.ALL),
                to_board("group_matrix", keep=var.GROUPS),
            ),
        ),
        _QUESTION,
    )  # fmt: skip


def _of_nodes() -> Select:
    return Select(schema.NODE_TRAFFIC, schema.MINUTE).where(
        chosen(schema.GROUP, var.SOURCE),
        chosen(schema.PEER_GROUP, var.DESTINATION),
        chosen(schema.PLANE, var.PLANE),
        chosen(schema.NODE, var.NODE),
    )


def _of_all_peers() -> tuple[Select, Select]:
    """Return the same of which one answers: where all peers on all planes are chosen, their sums are stored."""
    totals = Select(schema.NODE_TOTAL, schema.MINUTE).where(
        chosen(schema.GROUP, var.SOURCE),
        chosen(schema.NODE, var.NODE),
        *(narrowed(one, holds=False) for one in (var.DESTINATION, var.PLANE)),
    )
    return totals, _of_nodes().where(any_of(*(narrowed(one) for one in (var.DESTINATION, var.PLANE))))


def _nodes(cluster: Cluster) -> Built:
    sent, received = total(schema.TX_BYTES, _SENT), total(schema.RX_BYTES, _RECEIVED)
    inner = _of_nodes().take(_signed(total(schema.TX_BYTES)), sent, received).by(schema.NODE)
    known = replace(_of_nodes().where(ago(">", _KNOWN)).by(schema.NODE), retention=schema.HOUR, span=(None, None))
    node = row(schema.NODE)
    return panels.table(
        cluster,
        Face(
            "nodes", "Nodes by bytes sent",
            "Bytes that each node of the source groups sent to, and got from, the destination groups.",
            f"A node that sent nothing has 0, if it sent in the {_KNOWN[:-1]} days before now. {WHOLE_HOURS} "
            f"{transport.training_note(cluster)}",
            "Click a node to keep only that one, or to see it against its own past.",
            x=0, y=3, w=12, h=11, links=(node_states.stragglers(cluster),),
        ),
        [top_sums(cluster, inner, var.fill_in(var.LIMIT), known, sign=var.fill_in(var.ORDER))],
        [
            panels.Column(
                schema.NODE, "Node",
                links=(
                    to_board("explore", "Only this node", keep=(*_CHOICES, var.GROUP_BY), node=node),
                    to_board("training", "Against its past", node=node),
                ),
            ),
            panels.Column(_SENT, "Sent", Unit.BYTES, Cell.BAR),
            panels.Column(_RECEIVED, "Received", Unit.BYTES, Cell.BAR),
        ],
        order=TableOrder(_RANK, hidden=(_RANK,)),
        missing="no bytes",
    )  # fmt: skip


def _nodes_over_time(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "nodes_over_time", "Fastest, median and slowest node",
            "Bit/s sent by the fastest, the median and the slowest of the chosen nodes.",
            "A node without any record in a bin is not in its lines, whether it is silent or its exporter is blind.",
            "The table beside it names the nodes; the pipeline board shows blind exporters.",
            x=12, y=3, w=12, h=6, links=(node_states.stragglers(cluster), to_board("pipeline")),
        ),
        [node_spread(cluster, *_of_all_peers())],
        overrides=spread_overrides(),
        links=(to_board("training", "Training"),),
    )  # fmt: skip


def _chosen_over_time(cluster: Cluster) -> Built:
    # Not of all nodes: so it has as many points as pixels, however many nodes the cluster has.
    sent = _of_nodes().where(narrowed(var.NODE)).take(bit_rate(schema.TX_BYTES)).by(schema.NODE)
    query = sent.over_time(cluster, "bit/s sent by a node.", alias=f"$tag_{schema.NODE}")
    return panels.time_series(
        cluster,
        Face(
            "chosen_over_time", "Sent by each chosen node",
            "Bit/s that each of the chosen nodes sent, in short bins.",
            "Empty until nodes are chosen above: thousands of lines are unreadable.",
            "Click a node in the table to choose it.",
            x=12, y=9, w=12, h=5, links=(node_states.stragglers(cluster), to_board("pipeline")),
        ),
        [replace(query, points=0)],
        missing="choose nodes above, or click one in the table",
        links=(to_board("training", "Against its past", node=clicked(schema.NODE)),),
    )  # fmt: skip


def _traffic() -> Select:
    return Select(schema.TRAFFIC, schema.MINUTE).where(
        *var.chosen_groups(),
        chosen(schema.PLANE, var.PLANE),
        chosen(schema.SERVICE, var.SERVICE),
    )


def _groups(cluster: Cluster) -> Built:
    by = var.fill_in(var.GROUP_BY)
    size, packets, flows = total(schema.BYTES), total(schema.PACKETS), total(schema.FLOWS)
    inner = _traffic().take(_signed(size), size, packets, flows).by(by)
    groups, ends = (panels.group_words(cluster),), (var.SOURCE, var.DESTINATION)
    return panels.table(
        cluster,
        Face(
            "groups", "Traffic by ${by:text}",
            "Bytes, packets and flow records from the source groups to the destination groups.",
            f"Each flow counts once, however many exporters saw it. {WHOLE_HOURS} {transport.note(cluster)}",
            "Click a group to look at what it sends or gets.",
            x=0, y=14, w=12, h=11, links=(to_board("group_matrix", keep=var.GROUPS),),
        ),
        [top_sums(cluster, inner, var.fill_in(var.LIMIT))],
        [
            panels.Column(
                f"/^{schema.SRC_GROUP}$/", "Source group", mappings=groups,
                links=(to_board("explore", "What it sends", keep=_kept(*ends), src=CELL, dst=var.ALL),),
            ),
            panels.Column(
                f"/^{schema.DST_GROUP}$/", "Destination group", mappings=groups,
                links=(to_board("explore", "Who sends to it", keep=_kept(*ends), src=var.ALL, dst=CELL),),
            ),
            panels.Column(
                f"/^{schema.SERVICE}$/", "Service",
                links=(to_board("explore", "Only this service", keep=_kept(var.SERVICE), service=CELL),),
            ),
            panels.Column(
                f"/^{schema.PLANE}$/", "Plane",
                links=(to_board("explore", "Only this plane", keep=_kept(var.PLANE), plane=CELL),),
            ),
            panels.Column(f"/^{schema.PROTO}$/", "Protocol"),
            panels.Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.PACKETS.name, "Packets", Unit.COUNT),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT),
        ],
        order=TableOrder(_RANK, hidden=(_RANK,)),
        any_column=True,
        missing="no bytes",
    )  # fmt: skip


def _groups_over_time(cluster: Cluster) -> Built:
    by = var.fill_in(var.GROUP_BY)
    query = _traffic().take(bit_rate(schema.BYTES)).by(by).over_time(cluster, "bit/s.", alias=f"$tag_{by}")
    return panels.time_series(
        cluster,
        Face(
            "groups_over_time", "Traffic over time by ${by:text}",
            "Bit/s from the source groups to the destination groups, stacked.",
            f"A gap means no records, not no traffic. {transport.note(cluster)}",
            "Choose another grouping above to split it differently.",
            x=12, y=14, w=12, h=11, links=(to_board("group_matrix", keep=var.GROUPS),),
        ),
        [query],
        stacked=True,
        overrides=panels.group_series(cluster),
    )  # fmt: skip
