"""Segmentation: what crosses the borders that cluster.yaml draws, who does it, and on which plane."""

from cluster import schema
from cluster.model import Cluster, Plane, Role
from cluster.schema import Breach
from cluster.units import format_duration
from dashboards import panels, questions, transport
from dashboards import variables as var
from dashboards.board import Page
from dashboards.breaches import BREACH_TITLES, breach_table, breaches, links, of_kind
from dashboards.egress import top_rows
from dashboards.links import clicked, to_board
from dashboards.matrix import matrix_panel
from dashboards.palette import QUIET
from dashboards.panels import Built, Cell, Face, Limit, TableOrder
from dashboards.queries import Fill, Select, Unit, bit_rate, chosen, highest, is_in, total

BOARD = "segmentation"

_ROWS = 50


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _over_time(cluster),
            matrix_panel(cluster, "matrix", x=12, y=5, w=12, h=10),
            breach_table(
                cluster,
                Face(
                    "breaches", "Conversations that break the segmentation",
                    "Both directions of a conversation in one row, under the most specific kind that it is.",
                    "Nothing was blocked; a scan, or many nodes doing the same, is one row with other.",
                    "If it is wanted, list it in cluster.yaml; else ask who opened it: the source did.",
                    x=0, y=15, w=24, h=11, links=links(),
                ),
            ),
            _shadows(cluster),
            _planes(cluster),
        ),
        since="24h",
        variables=(
            var.groups(cluster, var.SOURCE, "Source group"),
            var.groups(cluster, var.DESTINATION, "Destination group"),
        ),
        tags=("security",),
    )  # fmt: skip


def _tiles(cluster: Cluster) -> list[Built]:
    limits = cluster.thresholds
    window = limits.violation_window
    since = f"{window}s"
    words = format_duration(window)
    tiles = (
        (
            "not_allowed", f"Not allowed, {words}", Breach.SEGMENTATION, limits.violation_bytes,
            "Bytes of conversations between groups that `allowed` does not list, the most specific kinds left out.",
            "An unlisted pair may be right: then cluster.yaml lacks it.",
        ),
        (
            "shadow_nodes", f"From shadow nodes, {words}", Breach.SHADOW, limits.shadow_node_bytes,
            "Bytes from addresses inside a group's prefixes that no inventory knows.",
            "Groups without a node list are not judged; a replaced machine looks like a stranger.",
        ),
        (
            "wrong_plane", f"Storage on the compute plane, {words}", Breach.WRONG_PLANE,
            limits.storage_on_compute_bytes,
            "Bytes with storage that crossed interfaces or addresses of the compute plane.",
            "Only planes that cluster.yaml names are judged.",
        ),
        (
            "unexpected_management", f"Unexpected management, {words}", Breach.MANAGEMENT, limits.management_bytes,
            "Bytes of connections with management groups that `management` in cluster.yaml does not expect.",
            "Ports say which service it was; a tunnel looks like its port.",
        ),
    )  # fmt: skip
    return [
        panels.stat(
            cluster,
            Face(
                name, title, shows, cannot, "The table below names both ends.",
                x=6 * place, y=0, w=6, h=5, links=links(), since=since,
            ),
            [breaches(of_kind(kind)).take(total(schema.BYTES)).per_series(shows)],
            limit=Limit(act=limit),
            missing=("none", QUIET),
            text="value",
            links=links(),
        )
        for place, (name, title, kind, limit, shows, cannot) in enumerate(tiles)
    ]  # fmt: skip


def _over_time(cluster: Cluster) -> Built:
    query = breaches().take(bit_rate(schema.BYTES)).by(schema.KIND)
    return panels.time_series(
        cluster,
        Face(
            "over_time", "What breaks the segmentation, over time",
            "Bit/s of all conversations that break the segmentation, by kind.",
            "Each conversation counts under one kind only, the most specific one.",
            "The table below names both ends.",
            x=0, y=5, w=12, h=10, links=links(),
        ),
        [query.over_time(cluster, "bit/s of a kind.", alias=f"$tag_{schema.KIND}", fill=Fill.GAP)],
        stacked=True,
        overrides=[panels.override(kind.value, displayName=title) for kind, title in BREACH_TITLES.items()],
        links=links(),
    )  # fmt: skip


def _shadows(cluster: Cluster) -> Built:
    inner = (
        breaches(of_kind(Breach.SHADOW))
        .take(total(schema.BYTES), total(schema.FLOWS), highest(schema.EVENT_DESTINATIONS))
        .by(schema.SRC, schema.SRC_GROUP)
    )
    return panels.table(
        cluster,
        Face(
            "shadows", "Shadow nodes",
            "Addresses inside a group's prefixes that opened conversations, but belong to no listed node.",
            "Which machine it is, flow records do not say: ask the switch for the port of the address.",
            "Add it to cluster.yaml, or take it off the network.",
            x=0, y=26, w=12, h=10, links=links(),
        ),
        [top_rows(inner, _ROWS, total(schema.FLOWS), highest(schema.EVENT_DESTINATIONS))],
        [
            panels.Column(schema.SRC, "Address"),
            panels.Column(schema.SRC_GROUP, "In the prefix of", mappings=(panels.group_words(cluster),)),
            panels.Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=120),
            panels.Column(schema.EVENT_DESTINATIONS.name, "Destinations", Unit.COUNT, width=120),
        ],
        order=TableOrder(schema.BYTES.name),
    )  # fmt: skip


def _planes(cluster: Cluster) -> Built:
    storage = questions.role_ids(cluster, Role.STORAGE, Role.MODEL_STORAGE)
    to_storage = Select(schema.TRAFFIC, schema.MINUTE).where(
        is_in(schema.DST_GROUP, storage), chosen(schema.SRC_GROUP, var.SOURCE)
    )
    return panels.time_series(
        cluster,
        Face(
            "planes", "Writes to storage, by plane",
            "Bit/s to storage and model storage, stacked by the network that they crossed.",
            f"{Plane.UNKNOWN.value} means that neither interface nor address has a plane in cluster.yaml. "
            f"{transport.note(cluster)}",
            "Storage traffic on the compute plane competes with the collectives: see the table above.",
            x=12, y=26, w=12, h=10, links=(to_board("checkpoints", "Checkpoints & I/O"),),
        ),
        [to_storage.take(bit_rate(schema.BYTES)).by(schema.PLANE).over_time(
            cluster, "bit/s of a plane.", alias=f"$tag_{schema.PLANE}"
        )],
        stacked=True,
        links=(to_board("explore", "Explore", plane=clicked(schema.PLANE)),),
    )  # fmt: skip
