"""The group x group matrix: who talks to whom, against what `allowed` lists.

InfluxQL has no joins and no constants, so each cell carries its meaning in its sign: bytes if the pair is allowed,
minus bytes if it is not, zero if it is allowed and silent. One query a column (a destination group), joined by the row
(source group). The zeros come from the row's other traffic: a group that sent nothing at all has no row.

So many columns, or squares, as groups are for some twenty: of more groups the pairs that talked are listed, those that
`allowed` does not list first.
"""

from html import escape

from cluster.model import EXTERNAL, Cluster
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.links import CELL, to_board
from dashboards.palette import DIM, LOOK, QUIET, UNUSED, group_titles, short_titles
from dashboards.panels import TIME, Box, Built, Cell, Column, Face, Json, Limit, TableOrder
from dashboards.parts import transport
from store import schema
from store.influxql import Query, Select, Unit, count, is_in, not_in, scaled, top_rows, total

MOST = 25
"""Groups that a matrix shows: with the outside it asks as many queries as there are letters for them."""

_PAIRS = 500
_VIOLATING = "violating"
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
    sent = total(schema.BYTES, dst)
    parts = (
        to_here.take(sent).where(is_in(schema.SRC_GROUP, allowed)),
        to_here.take(scaled(sent, "-1", dst, Unit.BYTES)).where(not_in(schema.SRC_GROUP, allowed)),
        traffic.take(scaled(count(schema.BYTES), "0", dst, Unit.BYTES)).where(is_in(schema.SRC_GROUP, allowed)),
    )
    meaning = f"Bytes to {cluster.title(dst)}: negative where not allowed, 0 where allowed and silent."
    return Select(parts).by(schema.SRC_GROUP).take(total(sent)).per_series(meaning).as_table()


def state_words() -> tuple[Json, ...]:
    """Return the mappings of signed bytes to allowed, unused and violating."""
    return (
        panels.word_between(-_MORE_THAN_EVER, -_HALF_A_BYTE, "violating", LOOK),
        panels.word_between(-_HALF_A_BYTE, _HALF_A_BYTE, "unused", DIM),
        panels.word_between(_HALF_A_BYTE, _MORE_THAN_EVER, "allowed", QUIET),
        panels.word_if_missing("", "transparent"),
    )


def matrix_panel(cluster: Cluster, *, x: int, y: int, w: int, h: int) -> Built:
    """Return the matrix in words: allowed, unused permit, violating; its links carry the chosen groups along."""
    if len(cluster.groups) > MOST:
        return _pairs(cluster, x=x, y=y, w=w, h=h)
    titles = group_titles(cluster)
    groups = listed_groups(cluster)
    explore = to_board("explore", "Explore what it sends", src=CELL)
    return panels.table(
        cluster,
        Face(
            "matrix", "Who talks to whom",
            "Source groups (rows) to destination groups (columns): allowed, unused (allowed but silent) or violating.",
            f"A group that sent nothing has no row. {transport.note(cluster)}",
            "Egress & security lists the violating conversations.",
            x=x, y=y, w=w, h=h,
            links=(
                to_board("group_matrix", keep=var.GROUPS), to_board("egress", "Violations", keep=var.GROUPS),
            ),
        ),
        [column_query(cluster, dst, schema.MINUTE) for dst in groups],
        [
            Column(
                schema.SRC_GROUP, "from \\ to", mappings=(panels.group_words(cluster),), links=(explore,), width=177
            ),
            *(Column(dst, titles[dst], Unit.BYTES, Cell.COLOUR, state_words()) for dst in groups),
        ],
        order=TableOrder(schema.SRC_GROUP, ascending=True),
        before=panels.joined(schema.SRC_GROUP),
    )  # fmt: skip


def pair_queries() -> tuple[Query, Query]:
    """Return the group pairs that talked, the largest, by bytes: those that may not, and all."""
    sent, violating = total(schema.BYTES), total(schema.BYTES, _VIOLATING)
    asked = (
        Select(schema.VIOLATION, schema.MINUTE).take(violating).where(questions.NOT_ALLOWED),
        Select(schema.TRAFFIC, schema.MINUTE).take(sent),
    )
    not_allowed, talked = (one.where(*var.chosen_groups()).by(schema.SRC_GROUP, schema.DST_GROUP) for one in asked)
    return top_rows(not_allowed, _PAIRS), top_rows(talked, _PAIRS)


def _pairs(cluster: Cluster, *, x: int, y: int, w: int, h: int) -> Built:
    words = (panels.group_words(cluster),)
    explore = to_board("explore", "Explore what it sends", src=CELL)
    return panels.table(
        cluster,
        Face(
            "matrix", "Who talks to whom",
            f"The group pairs that talked, those that `allowed` does not list first, and the largest {_PAIRS} at most.",
            "Pairs that may talk and did not have no row: `clusterflow audit` lists such permits. "
            f"{transport.note(cluster)}",
            "Choose groups above for fewer rows; Egress & security lists the violating conversations.",
            x=x, y=y, w=w, h=h,
            links=(
                to_board("group_matrix", keep=var.GROUPS), to_board("egress", "Violations", keep=var.GROUPS),
            ),
        ),
        pair_queries(),
        [
            Column(schema.SRC_GROUP, "From", mappings=words, links=(explore,)),
            Column(schema.DST_GROUP, "To", mappings=words),
            Column(_VIOLATING, "Not allowed", Unit.BYTES, Cell.COLOUR, limit=Limit(look=1), width=110),
            Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR, width=150),
        ],
        # The second order, of two, is the one that counts: pairs that may talk have nothing there.
        order=TableOrder(_VIOLATING),
        before=[
            {"id": "filterFieldsByName", "options": {"exclude": {"names": [TIME]}}},
            {"id": "merge", "options": {}},
            panels.ordered(schema.BYTES.name),
        ],
        limit_rows=_PAIRS,
    )  # fmt: skip


# -- the same, drawn for a wall --------------------------------------------------------------------------

_NAMES_WIDE = 38.0
"""Percent of the drawing that the names of the rows take."""

_LETTERS = 20
_LINES = 12
"""Of the list that takes the place of a large one."""

_DRAWN_HIGH, _DRAWN_WIDE = 350, 530
"""Pixels, about: with more groups than have a line or column of their own in it, letters become smaller."""

_UNBROKEN = str.maketrans({" ": "\N{NO-BREAK SPACE}", "-": "-\N{WORD JOINER}", "…": "…\N{WORD JOINER}"})
"""A name that wraps would stand in the next one's line."""


def matrix_drawing(cluster: Cluster, name: str, *, x: int, y: int, w: int, h: int, since: str) -> Built:
    """Return the matrix for a wall: every group has its row and its column, whether it talks or not.

    What is allowed and used is quiet, what is allowed and silent a shade, what is not allowed and seen orange, with a
    mark in it; nothing else has a colour.
    """
    if len(cluster.groups) > MOST:
        return _violating(cluster, name, x=x, y=y, w=w, h=h, since=since)
    groups = listed_groups(cluster)
    titles, heads = short_titles(cluster), _heads([short_titles(cluster)[one] for one in groups])
    high, wide = 100 / (len(groups) + 1), (100 - _NAMES_WIDE) / len(groups)
    size = min(_LETTERS, round(_DRAWN_HIGH / (len(groups) + 1) * 0.8))
    # A head of two capitals is one and a half times as wide as high.
    head_size = min(size, round(_DRAWN_WIDE / 100 * wide / 1.5))
    boxes, overrides = [], []
    for column, head in enumerate(heads):
        boxes.append(Box(f"to {groups[column]}", _NAMES_WIDE + column * wide, 0, wide, high, head, head_size))
    for line, src in enumerate(groups, 1):
        title = titles[src].translate(_UNBROKEN)
        boxes.append(Box(f"from {src}", 1, line * high, _NAMES_WIDE - 1, high, title, size, "left"))
        for column, dst in enumerate(groups):
            allowed = cluster.is_allowed(src, dst)
            unused = UNUSED if allowed and src != dst else "transparent"
            boxes.append(
                Box(
                    f"{src} to {dst}", _NAMES_WIDE + (column + 0.04) * wide, (line + 0.06) * high, wide * 0.92,
                    high * 0.88, size=size, series=_pair(src, dst),
                    background=unused,
                )
            )  # fmt: skip
            word, colour = ("", QUIET) if allowed else ("!", LOOK)
            seen = panels.word_between(_HALF_A_BYTE, _MORE_THAN_EVER, word, colour)
            # Rows may hold nothing but bytes that another exporter counts.
            silent = panels.word_between(-_HALF_A_BYTE, _HALF_A_BYTE, "", unused)
            overrides.append(panels.override(_pair(src, dst), mappings=[seen, silent]))
    query = Select(schema.TRAFFIC, schema.MINUTE).take(total(schema.BYTES)).by(schema.SRC_GROUP, schema.DST_GROUP)
    alias = _pair(f"$tag_{schema.SRC_GROUP}", f"$tag_{schema.DST_GROUP}")
    return panels.drawing(
        cluster,
        Face(
            name, "",
            f"Who talked to whom within {since}, from rows to columns: blue is allowed, grey allowed and silent, "
            "orange not allowed.",
            transport.note(cluster),
            "Egress & security lists the violating conversations.",
            x=x, y=y, w=w, h=h, since=since,
            links=(to_board("group_matrix"), to_board("egress", "Violations")),
        ),
        [query.per_series("Bytes of a group pair.", alias=alias)],
        boxes,
        overrides=overrides,
    )  # fmt: skip


def _violating(cluster: Cluster, name: str, *, x: int, y: int, w: int, h: int, since: str) -> Built:
    """Return the list of the group pairs that talked though they may not, in a wall's letters."""
    large = panels.large_text(_LETTERS, text="{}")["options"]["result"]["text"]
    titles = short_titles(cluster).items()
    words = (panels.words({one: (large.replace("{}", escape(title)), "") for one, title in titles}),)
    inner = questions.violating(schema.MINUTE).by(schema.SRC_GROUP, schema.DST_GROUP)
    return panels.table(
        cluster,
        Face(
            name, "",
            f"Which groups talked within {since} though `allowed` does not list them, the most bytes first.",
            transport.note(cluster),
            "Egress & security lists the violating conversations.",
            x=x, y=y, w=w, h=h, since=since,
            links=(to_board("group_matrix"), to_board("egress", "Violations")),
        ),
        [top_rows(inner, _LINES)],
        [
            Column(schema.SRC_GROUP, "Not allowed: from", cell=Cell.HTML, mappings=words),
            Column(schema.DST_GROUP, "to", cell=Cell.HTML, mappings=words),
            Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.COLOUR, limit=Limit(look=1), width=90),
        ],
        order=TableOrder(schema.BYTES.name),
        missing="nobody talks that may not",
    )  # fmt: skip


def _pair(src: str, dst: str) -> str:
    return f"{src} → {dst}"


def _heads(titles: list[str]) -> list[str]:
    """Return two letters for each title: of its first two words, or of its one; what would be said twice is counted.

    A number is said whole: ``Rack 12`` is R12.
    """
    found: list[str] = []
    for title in titles:
        first, *others = title.split()
        letters = first[0] + (others[0] if others[0].isdecimal() else others[0][0]) if others else first[:2]
        head, number = letters, 1
        while head in found:
            number += 1
            head = f"{letters}{number}"
        found.append(head)
    return found
