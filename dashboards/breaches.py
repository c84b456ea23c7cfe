"""What breaks the cluster's segmentation, as questions and panels that two boards share."""

from cluster import schema
from cluster.model import Cluster
from cluster.schema import Breach
from dashboards import panels
from dashboards import variables as var
from dashboards.egress import top_rows
from dashboards.links import CELL, Link, row, to_board
from dashboards.panels import Built, Cell, Face, TableOrder
from dashboards.queries import Condition, Select, Unit, chosen, highest, is_in, total

BREACH_TITLES = {
    Breach.SEGMENTATION: "not allowed",
    Breach.SHADOW: "shadow node",
    Breach.WRONG_PLANE: "storage on compute plane",
    Breach.MANAGEMENT: "unexpected management",
}
"""Words for people, by kind."""

_ROWS = 50


def breaches(*conditions: Condition) -> Select:
    """Return the breaches of the chosen groups, nothing taken yet."""
    return Select(schema.BREACH, schema.BREACH.kept).where(
        chosen(schema.SRC_GROUP, var.SOURCE), chosen(schema.DST_GROUP, var.DESTINATION), *conditions
    )


def of_kind(*kinds: Breach) -> Condition:
    """Return the condition that a breach is of one of these kinds."""
    return is_in(schema.KIND, [kind.value for kind in kinds])


def breach_table(cluster: Cluster, face: Face, *conditions: Condition, kinds: bool = True) -> Built:
    """Return the conversations that break the segmentation, largest first; `kinds`: with a column that says how."""
    inner = (
        breaches(*conditions)
        .take(total(schema.BYTES), total(schema.FLOWS), total(schema.DURATION), highest(schema.EVENT_DESTINATIONS))
        .by(*schema.BREACH.tags)
    )
    words = (panels.group_words(cluster),)
    kind = panels.Column(
        schema.KIND,
        "What",
        mappings=(panels.words({k.value: (t, "text") for k, t in BREACH_TITLES.items()}),),
        width=190,
    )
    return panels.table(
        cluster,
        face,
        [top_rows(inner, _ROWS, total(schema.FLOWS), total(schema.DURATION), highest(schema.EVENT_DESTINATIONS))],
        [
            *([kind] if kinds else []),
            panels.Column(
                schema.SRC, "Source", links=(to_board("explore", "Explore this node", node=row(schema.SRC)),)
            ),
            panels.Column(
                schema.SRC_GROUP, "Source group", mappings=words,
                links=(to_board("segmentation", "Only this group", src=CELL),),
            ),
            panels.Column(schema.DST, "Destination"),
            panels.Column(
                schema.DST_GROUP, "Destination group", mappings=words,
                links=(to_board("segmentation", "Only this group", dst=CELL),),
            ),
            panels.Column(schema.PROTO, "Protocol", width=80),
            panels.Column(schema.SERVICE, "Service", width=110),
            panels.Column(schema.BYTES.name, "Bytes, both ways", Unit.BYTES, Cell.BAR),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=110),
            panels.Column(schema.EVENT_DESTINATIONS.name, "Destinations", Unit.COUNT, width=110),
            panels.Column(schema.DURATION.name, "Duration", Unit.SECONDS, width=100),
        ],
        order=TableOrder(schema.BYTES.name),
    )  # fmt: skip


def links() -> tuple[Link, ...]:
    """Return where a breach leads: the matrix, and home."""
    return (to_board("group_matrix", "Group matrix"), to_board("noc_wall", "NOC wall"))
