"""Inference access: which user asked which service, from where, how much, and who is not on the list."""

from analysis.detectors.inference.asked import delay_of
from app.units import format_duration
from cluster.calendar import hours_words
from cluster.model import AccessEntry, Cluster, Role
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import Link, clicked, to_board
from dashboards.palette import group_titles
from dashboards.panels import Built, Cell, Face, Limit, TableOrder
from dashboards.parts import ends
from dashboards.parts.names_share import names_share
from store import schema
from store.influxql import Select, Unit, compare, count, is_in, lowest, moment, not_in, top_rows, total

BOARD = "inference_access"

_HOUR = 3600


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _policy(cluster),
            _over_time(cluster),
            _by_country(cluster),
            _denied(cluster),
            _accesses(cluster),
            _countries(cluster),
            names_share(cluster, _picked(cluster), 40, _links(), _missing(cluster)),
        ),
        since="24h",
        variables=var.from_and_to(cluster),
        tags=("inference", "security"),
    )


def _missing(cluster: Cluster) -> str:
    """Return what is shown where there is nothing: over a quarter of an hour, that is no news."""
    return f"none; the newest come up to {-(-questions.accesses_late(cluster) // 60)} min late: choose a longer range"


def _links() -> tuple[Link, ...]:
    return (to_board("inference", keep=var.GROUPS), to_board("noc_wall"))


def _accessed(cluster: Cluster) -> Select:
    """Return what clients asked inference groups for, nothing taken yet."""
    # Rows that were taken back are zero.
    return Select(schema.ACCESS, schema.ACCESS.kept).where(
        is_in(schema.DST_GROUP, questions.role_ids(cluster, Role.INFERENCE)), compare(schema.BYTES, ">", 0)
    )


def _picked(cluster: Cluster) -> Select:
    return _accessed(cluster).where(*var.chosen_groups())


def _tiles(cluster: Cluster) -> list[Built]:
    limits = cluster.thresholds
    window = format_duration(limits.inference_window)
    # The ranges end where clients have been judged.
    hour = f"{_HOUR + questions.accesses_late(cluster)}s"
    unlisted = Select(schema.ACCESS_BREACH, schema.ACCESS_BREACH.kept).take(total(schema.BYTES))
    # The user of `other` is not kept by name: it stands there as unknown.
    named = _accessed(cluster).where(not_in(schema.SRC, [schema.OTHER]))
    by_user = named.take(total(schema.BYTES)).by(schema.USER)
    return [
        panels.single(
            cluster,
            Face(
                "denied_volume", f"Unlisted clients, {window}",
                "Bytes of clients that may ask inference otherwise, but that `inference.access` does not name.",
                "Without that list in cluster.yaml this stays empty.",
                "The table below names user, address, and by what they are not on the list.",
                x=0, y=0, w=5, h=5, links=_links(), since=f"{limits.inference_window + delay_of(cluster)}s",
            ),
            unlisted.per_series("Bytes of clients that are not listed."),
            limit=Limit(look=max(limits.inference_access_bytes, 1)),
        ),
        panels.single(
            cluster,
            Face(
                "unknown_volume", "Unknown users, 1 h",
                "Bytes of clients with a name here whose address had no signed-in user at the time.",
                "Machines that sign in nowhere are unknown, too; so is everybody without `identity` in cluster.yaml.",
                "The table of all accesses shows them with a dash; `clusterflow access` has the users of `other`.",
                x=5, y=0, w=5, h=5, links=_links(), since=hour,
            ),
            named.where(is_in(schema.USER, [schema.UNKNOWN_USER]))
            .take(total(schema.BYTES))
            .per_series("Bytes of unknown users."),
        ),
        panels.single(
            cluster,
            Face(
                "users_now", "Users, 1 h",
                "Users of clients with a name here in the last hour that was judged; all unknown ones count as one.",
                "Users behind one shared address, such as a NAT, look like one.",
                "The table of all accesses lists them; `clusterflow access` has the users of `other`.",
                x=10, y=0, w=4, h=5, links=_links(), since=hour,
            ),
            Select(by_user).take(count(schema.BYTES, "users")).per_series("Users."),
        ),
    ]  # fmt: skip


def _policy(cluster: Cluster) -> Built:
    lines = [f"- {_entry(cluster, entry)}" for entry in cluster.inference.access]
    content = "\n".join(lines) or "cluster.yaml has no `inference.access`: every group that `allowed` lists may ask."
    return panels.text(
        cluster,
        Face(
            "policy", "Who may ask",
            "The entries of `inference.access`: one that a client fits in every respect is enough.",
            "Users are as many as an entry lists; their names stay in cluster.yaml.",
            "Change it in cluster.yaml, then run clusterflow build.",
            x=14, y=0, w=10, h=5, links=_links(),
        ),
        content,
    )  # fmt: skip


def _entry(cluster: Cluster, entry: AccessEntry) -> str:
    """Return an entry in words, without the names of its users: boards are for more people than cluster.yaml."""
    titles = group_titles(cluster)
    parts = [
        " or ".join(titles.get(group, cluster.title(group)) for group in entry.sources) or "everybody who may",
        f"{len(entry.users)} users" if entry.users else "",
        f"from {', '.join(entry.countries)}" if entry.countries else "",
        f"at {', '.join(titles[group] for group in entry.destinations)}" if entry.destinations else "",
        f"by {', '.join(entry.services)}" if entry.services else "",
    ]
    hours = entry.hours
    if hours is not None:
        parts.append(hours_words(cluster.site, hours))
    return ", ".join(part for part in parts if part)


def _over_time(cluster: Cluster) -> Built:
    asked, group = _picked(cluster).by(schema.SRC_GROUP), f"$tag_{schema.SRC_GROUP}"
    return panels.time_series(
        cluster,
        Face(
            "over_time", "Accesses by client group",
            "Bit/s that clients of the chosen groups sent to inference groups, stacked.",
            "A row is kept for every five minutes: shorter peaks are on the board Inference.",
            "Click a group to keep only that one.",
            x=0, y=5, w=12, h=9, links=_links(),
        ),
        [questions.clients_over_time(cluster, asked, "bit/s of a client group.", group)],
        stacked=True,
        overrides=panels.group_series(cluster),
        missing=_missing(cluster),
        links=(to_board(BOARD, "Only this group", keep=(var.DESTINATION,), src=clicked(schema.SRC_GROUP)),),
    )  # fmt: skip


def _by_country(cluster: Cluster) -> Built:
    inner = _picked(cluster).take(total(schema.BYTES), total(schema.FLOWS)).by(schema.COUNTRY, schema.NETWORK)
    return panels.table(
        cluster,
        Face(
            "by_country", "From where",
            "Countries and networks of the clients' addresses, by bytes sent.",
            "Addresses inside have neither; without `geography` in cluster.yaml none has.",
            "Check the users in a country where you have none.",
            x=12, y=5, w=12, h=9, links=_links(),
        ),
        [top_rows(inner)],
        [
            panels.Column(schema.COUNTRY, "Country", width=90),
            panels.Column(schema.NETWORK, "Network"),
            panels.Column(schema.BYTES.name, "Bytes sent", Unit.BYTES, Cell.BAR),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=120),
        ],
        order=TableOrder(schema.BYTES.name),
        missing=_missing(cluster),
    )  # fmt: skip


def _columns(cluster: Cluster) -> list[panels.Column]:
    words = (panels.group_words(cluster),)
    return [
        panels.Column(schema.USER, "User"),
        panels.Column(schema.SRC, "Address or node"),
        ends.source_group(cluster, BOARD, "Group"),
        panels.Column(schema.COUNTRY, "Country", width=90),
        panels.Column(schema.NETWORK, "Network"),
        panels.Column(schema.DST_GROUP, "Asked", mappings=words),
        panels.Column(schema.SERVICE, "Service", width=120),
    ]  # fmt: skip


def _columns_to_a_node(cluster: Cluster) -> list[panels.Column]:
    """Return the columns of a client that asked one node."""
    columns = (one for one in _columns(cluster) if one.name != schema.DST_GROUP)
    return [*columns, ends.node(schema.DST, "Inference node")]


def _volume() -> list[panels.Column]:
    return [
        panels.Column(schema.BYTES.name, "Bytes sent", Unit.BYTES, Cell.BAR),
        panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=120),
    ]


def _denied(cluster: Cluster) -> Built:
    inner = (
        Select(schema.ACCESS_BREACH, schema.ACCESS_BREACH.kept)
        .take(total(schema.BYTES), total(schema.FLOWS))
        .where(
            *var.chosen_groups(),
            compare(schema.BYTES, ">", 0),
        )
        .by(schema.KIND, schema.USER, schema.SRC, schema.SRC_GROUP, schema.COUNTRY, schema.NETWORK, schema.DST,
            schema.SERVICE)
    )  # fmt: skip
    return panels.table(
        cluster,
        Face(
            "denied", "Clients that are not on the list",
            "Who asked although no entry of `inference.access` names them, and by what they are not on the list.",
            "Nothing was blocked here. Clients that may not ask at all are on the board Inference.",
            "Ask the user; add legitimate users to the list in cluster.yaml.",
            x=0, y=14, w=24, h=8, links=_links(),
        ),
        [top_rows(inner)],
        [panels.Column(schema.KIND, "Not listed by", width=120), *_columns_to_a_node(cluster), *_volume()],
        order=TableOrder(schema.BYTES.name),
        missing=_missing(cluster),
    )  # fmt: skip


def _accesses(cluster: Cluster) -> Built:
    inner = (
        _picked(cluster)
        .take(total(schema.BYTES), total(schema.FLOWS))
        .by(schema.USER, schema.SRC, schema.SRC_GROUP, schema.COUNTRY, schema.NETWORK, schema.DST_GROUP, schema.SERVICE)
    )
    return panels.table(
        cluster,
        Face(
            "accesses", "All accesses, by bytes sent",
            "Which user asked which service of which group, from where, by how much they sent.",
            "Beyond the largest clients of each window the rest is other; answers are not in it.",
            "clusterflow access exports all of them for an audit.",
            x=0, y=22, w=24, h=10, links=_links(),
        ),
        [top_rows(inner)],
        [*_columns(cluster), *_volume()],
        order=TableOrder(schema.BYTES.name),
        missing=_missing(cluster),
    )  # fmt: skip


def _countries(cluster: Cluster) -> Built:
    since = moment(lowest(schema.CONTACT_FIRST))
    select = (
        Select(schema.UNUSUAL_COUNTRY, schema.UNUSUAL_COUNTRY.kept)
        .take(since, total(schema.BYTES), total(schema.FLOWS))
        # Rows that were taken back are zero.
        .where(
            *var.chosen_groups(),
            compare(schema.BYTES, ">", 0),
        )
        .by(schema.COUNTRY, schema.NETWORK, schema.USER, schema.SRC, schema.SRC_GROUP, schema.DST, schema.SERVICE)
    )  # fmt: skip
    return panels.table(
        cluster,
        Face(
            "countries", "Unusual countries, 7 d",
            "Clients from countries that a service has not seen before, for a day from the first of them on.",
            "Without `geography` in cluster.yaml no country is known; a VPN makes up its own.",
            "Ask the user whether they are there.",
            x=0, y=32, w=24, h=8, links=_links(), since="7d",
        ),
        [select.per_series("A client from a country that is new to the service.").as_table()],
        [panels.Column(since.name, "Country since", Unit.MOMENT, width=170), *_columns_to_a_node(cluster), *_volume()],
        order=TableOrder(since.name),
    )  # fmt: skip
