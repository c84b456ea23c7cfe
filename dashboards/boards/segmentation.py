"""Segmentation: what crosses the borders that cluster.yaml draws, who does it, and on which plane."""

from app.units import format_duration
from cluster.model import Cluster, Plane, Role
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import clicked, to_board
from dashboards.panels import Built, Cell, Face, TableOrder
from dashboards.parts import transport
from dashboards.parts.breaches import BREACH_TITLES, alerting, breach_table, breach_tile, breaches, links, of_kind
from dashboards.parts.matrix import matrix_panel
from store import schema
from store.influxql import Select, Unit, bit_rate, chosen, compare, highest, is_in, top_rows, total
from store.schema import Breach

BOARD = "segmentation"


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _over_time(cluster),
            matrix_panel(cluster, x=10, y=5, w=14, h=12),
            breach_table(
                cluster,
                Face(
                    "breaches", "Conversations that break the segmentation",
                    "Both directions of a conversation in one row, under the most specific kind that it is.",
                    "Nothing was blocked; a scan, or many nodes doing the same, is one row with other.",
                    "If it is wanted, list it in cluster.yaml; else ask who opened it: the source did.",
                    x=0, y=17, w=24, h=9, links=links(),
                ),
            ),
            _shadows(cluster),
            _planes(cluster),
            *([_denied(cluster)] if cluster.cloud.format else []),
        ),
        since="24h",
        variables=var.from_and_to(cluster),
        tags=("security",),
    )  # fmt: skip


def _tiles(cluster: Cluster) -> list[Built]:
    window = cluster.thresholds.violation_window
    since = f"{window}s"
    words = format_duration(window)
    tiles = (
        (
            "not_allowed", f"Not allowed, {words}", Breach.SEGMENTATION,
            "The largest conversation of groups that `allowed` does not list, if of no other kind; most flow records.",
            "An unlisted pair may be right: then cluster.yaml lacks it.",
        ),
        (
            "shadow_nodes", f"From a shadow node, {words}", Breach.SHADOW,
            "The most that an address in a group's prefixes sent that no inventory knows; most flow records.",
            "Groups without a node list are not judged; a replaced machine looks like a stranger.",
        ),
        (
            "wrong_plane", f"Storage on compute, {words}", Breach.WRONG_PLANE,
            "The largest conversation with storage that crossed interfaces or addresses of the compute plane.",
            "Only planes that cluster.yaml names are judged.",
        ),
        (
            "unexpected_management", f"Unexpected management, {words}", Breach.MANAGEMENT,
            "The largest connection with a management group that `management` in cluster.yaml does not expect.",
            "Ports say which service it was; a tunnel looks like its port.",
        ),
    )  # fmt: skip
    return [
        breach_tile(
            cluster,
            Face(
                name, title, shows, cannot, "Red is where it alerts; the table below names both ends, and all others.",
                x=6 * place, y=0, w=6, h=5, links=links(), since=since,
            ),
            kind,
        )
        for place, (name, title, kind, shows, cannot) in enumerate(tiles)
    ]  # fmt: skip


def _over_time(cluster: Cluster) -> Built:
    query = breaches().take(bit_rate(schema.BYTES)).by(schema.KIND)
    return panels.time_series(
        cluster,
        Face(
            "over_time", "What breaks the segmentation, over time",
            "Bit/s of all conversations that break the segmentation, by kind.",
            f"Each conversation counts under one kind only, the most specific one. {transport.note(cluster)}",
            "The table below names both ends.",
            x=0, y=5, w=10, h=12, links=links(),
        ),
        [query.over_time(cluster, "bit/s of a kind.", alias=f"$tag_{schema.KIND}")],
        stacked=True,
        overrides=[panels.override(kind.value, displayName=title) for kind, title in BREACH_TITLES.items()],
        missing="none",
    )  # fmt: skip


def _shadows(cluster: Cluster) -> Built:
    rule = alerting(cluster, Breach.SHADOW)
    sent = rule.measure
    inner = (
        breaches(of_kind(Breach.SHADOW), compare(sent, ">", 0))
        .take(total(sent), total(schema.RX_BYTES), total(schema.FLOWS), highest(schema.EVENT_SOURCES))
        .by(*rule.labels)
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
        [top_rows(inner)],
        [
            panels.Column(schema.SRC, "Address"),
            panels.Column(schema.SRC_GROUP, "In the prefix of", mappings=(panels.group_words(cluster),)),
            panels.Column(sent.name, "Sent", Unit.BYTES, Cell.BAR),
            panels.Column(schema.RX_BYTES.name, "Received", Unit.BYTES, width=100),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=110),
            panels.Column(schema.EVENT_SOURCES.name, "Addresses", Unit.COUNT, width=110),
        ],
        order=TableOrder(sent.name),
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
            x=12, y=26, w=12, h=10, links=(to_board("checkpoints"),),
        ),
        [to_storage.take(bit_rate(schema.BYTES)).by(schema.PLANE).over_time(
            cluster, "bit/s of a plane.", alias=f"$tag_{schema.PLANE}"
        )],
        stacked=True,
        links=(to_board("explore", keep=(var.SOURCE,), plane=clicked(schema.PLANE)),),
    )  # fmt: skip


def _denied(cluster: Cluster) -> Built:
    tags = (schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.SERVICE)
    inner = (
        Select(schema.DENIED, schema.RAW)
        .take(total(schema.FLOWS), total(schema.PACKETS))
        .where(*var.chosen_groups())
        .by(*tags)
    )
    words = (panels.group_words(cluster),)
    return panels.table(
        cluster,
        Face(
            "denied", "What the cloud did not let through",
            "Packets that a security group or access list refused, by the provider's flow logs. They are no traffic.",
            "Google's flow logs have none. Late answers to calls that are over are refused as well.",
            "From inside, ask the owner what the source wants there: who scans meets these walls first.",
            x=0, y=36, w=24, h=10, links=links(),
        ),
        [top_rows(inner)],
        [
            panels.Column(schema.SRC, "Source"),
            panels.Column(schema.SRC_GROUP, "Source group", mappings=words),
            panels.Column(schema.DST, "Destination"),
            panels.Column(schema.DST_GROUP, "Destination group", mappings=words),
            panels.Column(schema.SERVICE, "Service", width=120),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, Cell.BAR),
            panels.Column(schema.PACKETS.name, "Packets", Unit.COUNT, width=110),
        ],
        order=TableOrder(schema.FLOWS.name),
    )  # fmt: skip
