"""Management plane: who reaches the machines that run the cluster, by which service, and what is unexpected."""

from app.units import format_duration
from cluster.model import Cluster, Plane, Role
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import Link, clicked, to_board
from dashboards.palette import group_titles
from dashboards.panels import Built, Cell, Face, TableOrder
from dashboards.parts import ends
from dashboards.parts.breaches import breach_table, breach_tile, links, of_kind
from dashboards.parts.spread import node_spread, spread_overrides
from store import schema
from store.influxql import Condition, Select, Unit, any_of, bit_rate, compare, is_in, top_rows, total
from store.schema import Breach

BOARD = "management"


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            _unexpected(cluster),
            _policy(cluster),
            _by_group(cluster),
            _by_service(cluster),
            breach_table(
                cluster,
                Face(
                    "breaches", "Unexpected management connections",
                    "Connections with management groups that `management` in cluster.yaml does not expect.",
                    "Services are recognised by port; whether the login worked, flow records do not say.",
                    "If it is wanted, list its service or its source group under `management`.",
                    x=0, y=15, w=24, h=10, links=links(),
                ),
                of_kind(Breach.MANAGEMENT),
                kinds=False,
            ),
            _nodes(cluster),
            _users(cluster),
        ),
        since="24h",
        variables=var.from_and_to(cluster),
        tags=("security",),
    )  # fmt: skip


def _home() -> tuple[Link, ...]:
    return (to_board("segmentation", keep=var.GROUPS), to_board("noc_wall"))


def _unexpected(cluster: Cluster) -> Built:
    window = cluster.thresholds.violation_window
    return breach_tile(
        cluster,
        Face(
            "unexpected", f"Unexpected connections, {format_duration(window)}",
            "The largest connection with a management group that `management` in cluster.yaml does not expect.",
            "Few bytes are enough for a login: the limit is low on purpose.",
            "Red is where it alerts; the table below names both ends, and all others.",
            x=0, y=0, w=7, h=5, links=_home(), since=f"{window}s",
        ),
        Breach.MANAGEMENT,
    )  # fmt: skip


def _policy(cluster: Cluster) -> Built:
    titles = group_titles(cluster)
    groups = [titles[group.id] for group in cluster.groups_with(Role.MANAGEMENT)]
    if groups:
        sources = ", ".join(titles[group] for group in cluster.management.sources) or "none"
        content = (
            f"**Management groups:** {', '.join(groups)}\n\n"
            f"**Services that others may open there:** {', '.join(cluster.management.services)}\n\n"
            f"**Groups that may open anything there:** {sources}"
        )
    else:
        content = "cluster.yaml has no group of role management: nothing here is judged."
    return panels.text(
        cluster,
        Face(
            "policy", "What is expected",
            "What `management` in cluster.yaml allows beyond the matrix of groups.",
            "A service here is a name for ports: what really speaks on them is not seen.",
            "Change it in cluster.yaml, then run clusterflow build.",
            x=7, y=0, w=17, h=5, links=_home(),
        ),
        content,
    )  # fmt: skip


def _with_management(cluster: Cluster) -> Condition:
    groups = questions.role_ids(cluster, Role.MANAGEMENT)
    return any_of(is_in(schema.SRC_GROUP, groups), is_in(schema.DST_GROUP, groups))


def _traffic(cluster: Cluster) -> Select:
    return (
        Select(schema.TRAFFIC, schema.MINUTE)
        .take(bit_rate(schema.BYTES))
        .where(_with_management(cluster), *var.chosen_groups())
    )


def _by_group(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "by_group", "Traffic with management groups, by source",
            "Bit/s to and from the management groups, stacked by the group that sent.",
            "Out-of-band networks without an exporter are not seen.",
            "Click a group to explore what it sends.",
            x=0, y=5, w=12, h=10, links=_home(),
        ),
        [_traffic(cluster).by(schema.SRC_GROUP).over_time(
            cluster, "bit/s of a group.", alias=f"$tag_{schema.SRC_GROUP}"
        )],
        stacked=True,
        overrides=panels.group_series(cluster),
        links=(to_board("explore", "Explore this group", src=clicked(schema.SRC_GROUP)),),
    )  # fmt: skip


def _by_service(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "by_service", "Traffic with management groups, by service",
            "Bit/s to and from the management groups, stacked by service.",
            "Services are recognised by port; other is every port without a name.",
            "Name ports under `services` in cluster.yaml.",
            x=12, y=5, w=12, h=10, links=_home(),
        ),
        [_traffic(cluster).by(schema.SERVICE).over_time(
            cluster, "bit/s of a service.", alias=f"$tag_{schema.SERVICE}"
        )],
        stacked=True,
        links=(to_board("explore", "Explore this service", service=clicked(schema.SERVICE)),),
    )  # fmt: skip


def _nodes(cluster: Cluster) -> Built:
    nodes = Select(schema.NODE_TRAFFIC, schema.MINUTE).where(is_in(schema.PLANE, [Plane.MANAGEMENT.value]))
    return panels.time_series(
        cluster,
        Face(
            "nodes", "Fastest, median and slowest node on the management plane",
            "Bit/s that nodes sent on the management plane: one node far above the others copies data over it.",
            "A node without any record in a bin is in no line.",
            "Explore names the nodes.",
            x=0, y=25, w=24, h=9, links=_home(),
        ),
        [node_spread(cluster, nodes)],
        overrides=spread_overrides(),
        links=(to_board("explore", "Nodes by bytes", plane=Plane.MANAGEMENT.value),),
    )  # fmt: skip


def _users(cluster: Cluster) -> Built:
    opened = (
        Select(schema.ACCESS, schema.ACCESS.kept)
        .take(total(schema.BYTES), total(schema.FLOWS))
        # Rows that were taken back are zero.
        .where(
            _with_management(cluster),
            *var.chosen_groups(),
            compare(schema.BYTES, ">", 0),
        )
        .by(schema.USER, schema.SRC, schema.SRC_GROUP, schema.DST_GROUP, schema.SERVICE)
    )
    words = (panels.group_words(cluster),)
    return panels.table(
        cluster,
        Face(
            "users", "Who opened them, by sign-ins",
            "Unexpected connections with management groups under the user who had the source's address then.",
            "Without `identity` in cluster.yaml this stays empty; a dash is an unknown user.",
            "Ask the user; the table of connections above has the destinations.",
            x=0, y=34, w=24, h=8, links=_home(),
        ),
        [top_rows(opened)],
        [
            panels.Column(schema.USER, "User"),
            ends.node(schema.SRC, "Source"),
            panels.Column(schema.SRC_GROUP, "Source group", mappings=words),
            panels.Column(schema.DST_GROUP, "Destination group", mappings=words),
            panels.Column(schema.SERVICE, "Service", width=120),
            panels.Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=120),
        ],
        order=TableOrder(schema.BYTES.name),
    )  # fmt: skip
