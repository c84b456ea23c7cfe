"""The group x group matrix: who talks to whom, against what `allowed` lists.

InfluxQL has no joins and no constants, so each cell carries its meaning in its sign: bytes if the pair is allowed,
minus bytes if it is not, zero if it is allowed and silent. One query a column (a destination group), joined by the row
(source group). The zeros come from the row's other traffic: a group that sent nothing at all has no row.
"""

from cluster import schema
from cluster.model import EXTERNAL, Cluster
from dashboards import panels, questions, transport
from dashboards.links import CELL, to_board
from dashboards.palette import DIM, LOOK, QUIET, group_titles
from dashboards.panels import Built, Cell, Column, Face, Json, TableOrder
from dashboards.queries import Column as Value
from dashboards.queries import Query, Select, Unit, count, is_in, not_in, scaled, total

_HALF_A_BYTE = 0.5
_MORE_THAN_EVER = 1e30


def listed_groups(cluster: Cluster) -> list[str]:
    """Return the groups that are rows and columns, in the order of cluster.yaml, the unknown outside last."""
    return [*(group.id for group in cluster.groups), EXTERNAL]


def column_query(cluster: Cluster, dst: str, retention: str) -> Query:
    """Return one column of the matrix: signed bytes to a destination group by source group."""
    allowed = questions.allowed_sources(cluster, dst)
    traffic = Select(schema.TRAFFIC, retention).by(schema.SRC_GROUP)
    to_here = traffic.where(is_in(schema.DST_GROUP, [dst]))
    parts = (
        to_here.take(total(schema.BYTES, dst)).where(is_in(schema.SRC_GROUP, allowed)),
        to_here.take(scaled(total(schema.BYTES), "-1", dst, Unit.BYTES)).where(not_in(schema.SRC_GROUP, allowed)),
        traffic.take(scaled(count(schema.BYTES), "0", dst, Unit.BYTES)).where(is_in(schema.SRC_GROUP, allowed)),
    )
    column = Value(f'sum("{dst}")', dst, Unit.BYTES, (dst,))
    meaning = f"Bytes to {cluster.title(dst)}: negative where not allowed, 0 where allowed and silent."
    return Select(parts).by(schema.SRC_GROUP).take(column).per_series(meaning).as_table()


def state_words() -> tuple[Json, ...]:
    """Return the mappings of signed bytes to allowed, unused and violating."""
    return (
        panels.word_between(-_MORE_THAN_EVER, -_HALF_A_BYTE, "violating", LOOK),
        panels.word_between(-_HALF_A_BYTE, _HALF_A_BYTE, "unused", DIM),
        panels.word_between(_HALF_A_BYTE, _MORE_THAN_EVER, "allowed", QUIET),
        panels.word_if_missing("", "transparent"),
    )


def matrix_panel(
    cluster: Cluster, name: str, *, x: int, y: int, w: int, h: int, since: str = "", keep: tuple[str, ...] = ()
) -> Built:
    """Return the matrix in words: allowed, unused permit, violating; its links carry the choices of `keep` along."""
    titles = group_titles(cluster)
    groups = listed_groups(cluster)
    explore = to_board("explore", "Explore what it sends", src=CELL)
    return panels.table(
        cluster,
        Face(
            name, f"Who talks to whom{f', {since}' if since else ''}",
            "Source groups (rows) to destination groups (columns): allowed, unused (allowed but silent) or violating.",
            f"A group that sent nothing has no row. {transport.note(cluster)}",
            "Egress & security lists the violating conversations.",
            x=x, y=y, w=w, h=h, since=since,
            links=(
                to_board("group_matrix", "Group matrix", keep=keep), to_board("egress", "Violations", keep=keep),
            ),
        ),
        [column_query(cluster, dst, schema.MINUTE) for dst in groups],
        [
            Column(
                schema.SRC_GROUP, "from \\ to", mappings=(panels.group_words(cluster),), links=(explore,), width=170
            ),
            *(Column(dst, titles[dst], Unit.BYTES, Cell.COLOUR, state_words()) for dst in groups),
        ],
        order=TableOrder(schema.SRC_GROUP, ascending=True),
        before=panels.joined(schema.SRC_GROUP),
    )  # fmt: skip
