"""Management sessions: who administered what, from where, as whom, how often, for how long, and who is new."""

from cluster.model import Cluster, Role
from dashboards import panels
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import Link, clicked, to_board
from dashboards.palette import group_titles
from dashboards.panels import Built, Cell, Face, TableOrder
from dashboards.parts import ends
from store import schema
from store.influxql import (
    Column,
    Select,
    Unit,
    chosen,
    compare,
    count,
    highest,
    is_in,
    lowest,
    moment,
    top_rows,
    total,
)

BOARD = "sessions"

_BEGUN, _OPEN, _BYTES = total(schema.SESSIONS), total(schema.OPEN_SECONDS), total(schema.BYTES)
_CANNOT = "Flow records tell neither what was typed nor whether a login succeeded."
_WHO = (schema.USER, schema.SRC, schema.SRC_GROUP, schema.COUNTRY, schema.DST, schema.DST_GROUP, schema.SERVICE)


def page(cluster: Cluster) -> Page:
    """Return the board."""
    settings = cluster.management
    services = dict.fromkeys((*settings.sessions, *settings.sessions_there))
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _policy(cluster),
            _over_time(cluster),
            _by_user(cluster),
            _new(cluster),
            _table(
                cluster,
                Face(
                    "pairs", "Who to what, by sessions",
                    "Who opened which management service of what in this range: how often, how long, how much.",
                    f"{_CANNOT} Beyond the largest of each window the rest is other.",
                    "clusterflow sessions lists each single one, with its times, and signs it for an audit.",
                    x=0, y=22, w=24, h=11, links=_links(),
                ),
                (_BEGUN, _OPEN, _BYTES),
            ),
            _table(
                cluster,
                Face(
                    "longest", "Open longest",
                    "The same, by the time that sessions were open, gaps below `management.session_gap` included.",
                    f"{_CANNOT} A tool that polls without a pause is one long session.",
                    "A session that nobody remembers leaving open: look at the source, and close it.",
                    x=0, y=33, w=24, h=9, links=_links(),
                ),
                (_OPEN, _BEGUN, _BYTES),
            ),
        ),
        since="24h",
        variables=(
            *var.from_and_to(cluster),
            var.choices(var.SERVICE, "Service", {name: name for name in services}),
        ),
        tags=("security",),
    )  # fmt: skip


def _links() -> tuple[Link, ...]:
    return (to_board("management", keep=var.GROUPS), to_board("noc_wall"))


def _ledger() -> Select:
    # Rows that were taken back are zero: a sign-in that is told late gives a session another user.
    return Select(schema.SESSION, schema.SESSION.kept).where(
        *var.chosen_groups(),
        chosen(schema.SERVICE, var.SERVICE), compare(schema.OPEN_SECONDS, ">", 0),
    )  # fmt: skip


def _tiles(cluster: Cluster) -> list[Built]:
    by_source = _ledger().take(_BYTES).by(schema.SRC)
    unknown = _ledger().where(is_in(schema.USER, [schema.UNKNOWN_USER]))
    return [
        panels.single(
            cluster,
            Face(name, title, what, cannot, then, x=x, y=0, w=4, h=5, links=_links()),
            query,
        )
        for x, (name, title, what, cannot, then, query) in zip(
            (0, 4, 8),
            (
                (
                    "begun", "Sessions begun", "Management sessions that began in this time range.", _CANNOT,
                    "The tables below say whose.", _ledger().take(_BEGUN).per_series("Sessions begun."),
                ),
                (
                    "sources", "Sources", "Addresses and nodes that opened any in this time range.",
                    "Behind a bastion or a NAT many people are one source.", "The tables below name them.",
                    Select(by_source).take(count(schema.BYTES, "sources")).per_series("Sources."),
                ),
                (
                    "unknown", "Without a user", "Sessions whose source had no signed-in user at the time.",
                    "Without `identity` in cluster.yaml that is all of them; tools sign in nowhere.",
                    "The table by user has them under a dash.",
                    unknown.take(_BEGUN).per_series("Sessions without a user."),
                ),
            ),
            strict=True,
        )
    ]  # fmt: skip


def _policy(cluster: Cluster) -> Built:
    settings, titles = cluster.management, group_titles(cluster)
    there = [titles[group.id] for group in cluster.groups_with(Role.MANAGEMENT)]
    content = (
        f"**Services:** {', '.join(settings.sessions) or 'none'}\n\n"
        f"**On {', '.join(there) or 'groups of role management'} also:** {', '.join(settings.sessions_there) or 'none'}"
        f"\n\n**Not to be seen:** what was typed, and whether a login succeeded; an out-of-band network without an "
        "exporter; who is behind a bastion; an SNMP set among gets"
    )
    return panels.text(
        cluster,
        Face(
            "policy", "What counts as a session",
            "Services of `management.sessions` in cluster.yaml; after `management.session_gap` another one begins.",
            "A service is a name for ports: what really speaks on them is not seen.",
            "Name ports of your own under services, and list them there.",
            x=12, y=0, w=12, h=5, links=_links(),
        ),
        content,
    )  # fmt: skip


def _over_time(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "over_time", "Sessions begun, by service",
            "How many sessions began in each bin, stacked by service.",
            "A row is kept for every five minutes; of sampled records short sessions may be missing.",
            "Click a service to keep only that one.",
            x=0, y=5, w=14, h=9, links=_links(),
        ),
        [_ledger().take(_BEGUN).by(schema.SERVICE).over_time(
            cluster, alias=f"$tag_{schema.SERVICE}", settled=False
        )],
        stacked=True,
        bars=True,
        missing="none",
        links=(to_board(BOARD, "Only this service", keep=var.GROUPS, service=clicked(schema.SERVICE)),),
    )  # fmt: skip


def _by_user(cluster: Cluster) -> Built:
    return panels.table(
        cluster,
        Face(
            "by_user", "By user",
            "Users by sign-ins, and from which source: how often, how long.",
            "A dash is an unknown user; of several behind one address the last who signed in has it.",
            "clusterflow sessions --user lists what one opened.",
            x=14, y=5, w=10, h=9, links=_links(),
        ),
        [top_rows(_ledger().take(_BEGUN, _OPEN).by(schema.USER, schema.SRC))],
        [panels.Column(schema.USER, "User"), ends.node(schema.SRC, "Source"), *_volumes((_BEGUN, _OPEN))],
        order=TableOrder(_BEGUN.name),
    )  # fmt: skip


def _new(cluster: Cluster) -> Built:
    first = moment(lowest(schema.CONTACT_FIRST))
    select = (
        Select(schema.NEW_SESSION, schema.NEW_SESSION.kept)
        .take(first, _BYTES, highest(schema.EVENT_SOURCES), highest(schema.EVENT_DESTINATIONS))
        # Rows that were taken back are zero.
        .where(
            *var.chosen_groups(),
            chosen(schema.SERVICE, var.SERVICE), compare(schema.BYTES, ">", 0),
        )
        .by(*schema.NEW_SESSION.tags)
    )  # fmt: skip
    return panels.table(
        cluster,
        Face(
            "new", "New: first sessions, 30 d",
            "Sources that opened a management service of a group for the first time: the largest target, and the bytes "
            "of all in the first 15 minutes.",
            f"{_CANNOT} What `allowed` or `management` does not expect is on Segmentation.",
            "Ask who works on the source; it will not be new again.",
            x=0, y=14, w=24, h=8, links=_links(), since="30d",
        ),
        [select.per_series("A source that is new to a service of a group.").as_table()],
        [
            panels.Column(first.name, "Since", Unit.MOMENT, width=170),
            *_parties(cluster)[1:],
            panels.Column(schema.EVENT_SOURCES.name, "Sources", Unit.COUNT, width=90),
            panels.Column(schema.EVENT_DESTINATIONS.name, "Targets", Unit.COUNT, width=90),
            panels.Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
        ],
        order=TableOrder(first.name),
    )  # fmt: skip


def _table(cluster: Cluster, face: Face, columns: tuple[Column, ...]) -> Built:
    return panels.table(
        cluster,
        face,
        [top_rows(_ledger().take(*columns).by(*_WHO))],
        [*_parties(cluster), *_volumes(columns)],
        order=TableOrder(columns[0].name),
    )


def _parties(cluster: Cluster) -> list[panels.Column]:
    words = (panels.group_words(cluster),)
    return [
        panels.Column(schema.USER, "User"),
        ends.node(schema.SRC, "Source"),
        panels.Column(schema.SRC_GROUP, "Source group", mappings=words),
        panels.Column(schema.COUNTRY, "Country", width=90),
        ends.node(schema.DST, "Target"),
        panels.Column(schema.DST_GROUP, "Target group", mappings=words),
        panels.Column(schema.SERVICE, "Service", width=110),
    ]


def _volumes(columns: tuple[Column, ...]) -> list[panels.Column]:
    titles = {
        _BEGUN.name: ("Sessions", Unit.COUNT),
        _OPEN.name: ("Open", Unit.SECONDS),
        _BYTES.name: ("Bytes", Unit.BYTES),
    }
    first = columns[0].name
    return [
        panels.Column(one.name, *titles[one.name], Cell.BAR) if one.name == first
        else panels.Column(one.name, *titles[one.name], width=110)
        for one in columns
    ]  # fmt: skip
