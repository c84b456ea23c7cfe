"""Group matrix: who talks to whom, how much, and whether `allowed` lists it."""

from cluster.model import Cluster
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.boards.egress import violation_table
from dashboards.links import CELL, clicked, to_board
from dashboards.palette import group_titles
from dashboards.panels import Built, Cell, Column, Face, TableOrder
from dashboards.parts import transport
from dashboards.parts.matrix import MOST, listed_groups, matrix_panel
from store import schema
from store.influxql import Select, Unit, bit_rate, total

BOARD = "group_matrix"


def page(cluster: Cluster) -> Page:
    """Return the board."""
    # The list of pairs that stands for a large matrix tells volumes, too.
    is_list = len(cluster.groups) > MOST
    high = 22 if is_list else 11
    return Page(
        BOARD,
        (
            matrix_panel(cluster, x=0, y=0, w=17, h=high),
            _transport(cluster, high),
            *([] if is_list else [_volumes(cluster)]),
            _over_time(cluster),
            violation_table(cluster, "violations", x=10, y=22, w=14, h=11),
        ),
        since="24h",
        variables=var.from_and_to(cluster),
        tags=("security",),
    )


def _transport(cluster: Cluster, high: int) -> Built:
    return panels.text(
        cluster,
        Face(
            "transport", "What flow records see",
            "Which group pairs are visible at all, by the transport that cluster.yaml declares.",
            "A pair declared wrongly is shown wrongly: nothing here measures transports.",
            "The training board says what it means for jobs.",
            x=17, y=0, w=7, h=high, links=(to_board("training", "Training"),),
        ),
        transport.explanation(cluster),
    )  # fmt: skip


def _volumes(cluster: Cluster) -> Built:
    titles = group_titles(cluster)
    query = (
        Select(schema.TRAFFIC, schema.MINUTE)
        .take(total(schema.BYTES))
        .where(*var.chosen_groups())
        .by(schema.SRC_GROUP, schema.DST_GROUP)
    )
    corner = f"{schema.SRC_GROUP}\\{schema.DST_GROUP}"
    matrix = {
        "rowField": schema.SRC_GROUP,
        "columnField": schema.DST_GROUP,
        "valueField": schema.BYTES.name,
        "emptyValue": "null",
    }
    explore = to_board("explore", "Explore what it sends", src=CELL)
    return panels.table(
        cluster,
        Face(
            "volumes", "Bytes from row to column",
            "What each source group sent to each destination group; the bar is relative to the column's largest.",
            f"An empty cell means no records. {transport.note(cluster)}",
            "Click a source group to explore what it sends.",
            x=0, y=11, w=24, h=11, links=(to_board("explore", keep=var.GROUPS),),
        ),
        [query.per_series("Bytes of a group pair.").as_table()],
        [
            Column(corner, "from \\ to", mappings=(panels.group_words(cluster),), links=(explore,), width=200),
            *(Column(group, titles[group], Unit.BYTES, Cell.BAR) for group in listed_groups(cluster)),
        ],
        order=TableOrder(corner, ascending=True),
        before=[{"id": "groupingToMatrix", "options": matrix}],
    )  # fmt: skip


def _over_time(cluster: Cluster) -> Built:
    query = (
        Select(schema.VIOLATION, schema.MINUTE)
        .take(bit_rate(schema.BYTES))
        .where(questions.NOT_ALLOWED, *var.chosen_groups())
        .by(schema.SRC_GROUP)
    )
    return panels.time_series(
        cluster,
        Face(
            "violating_over_time", "Traffic that nobody allowed, by source group",
            "Bit/s of the conversations that `allowed` does not list.",
            "A gap means none was seen. Nothing was blocked.",
            "Click a group to list its conversations.",
            x=0, y=22, w=10, h=11, links=(to_board("egress", keep=var.GROUPS),),
        ),
        [query.over_time(cluster, "bit/s that is not allowed.", alias=f"$tag_{schema.SRC_GROUP}")],
        stacked=True,
        overrides=panels.group_series(cluster),
        missing="none",
        links=(to_board("group_matrix", "Only this group", keep=(var.DESTINATION,), src=clicked(schema.SRC_GROUP)),),
    )  # fmt: skip
