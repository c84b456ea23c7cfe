"""Egress ledger: what sources send outside little by little, and destinations that come back without being listed."""

from app.units import format_size
from cluster.model import UNLISTED, Cluster
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import Link, to_board
from dashboards.panels import Built, Cell, Face, Limit, TableOrder
from dashboards.parts import ends
from store import schema
from store.influxql import (
    Condition,
    Query,
    Select,
    Unit,
    chosen,
    compare,
    count,
    highest,
    is_in,
    moment,
    newest,
    top_rows,
)

BOARD = "ledger"

_FRESH = "15m"
_ROW_SECONDS = 300
"""There is a row every 5 minutes: three of them make sure that one is there."""


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _artefacts(cluster),
            _pairs(cluster),
            _slow_over_time(cluster),
            _recurrences(cluster),
        ),
        since="24h",
        variables=var.from_and_to(cluster, UNLISTED),
        tags=("security",),
    )


def _home() -> tuple[Link, ...]:
    return (to_board("noc_wall"), to_board("egress", keep=var.GROUPS))


def _ledger() -> Select:
    return Select(schema.LEDGER, schema.LEDGER.kept).where(*var.chosen_groups())


def _largest(cluster: Cluster, field: schema.Field, *conditions: Condition) -> Query:
    """Return the largest newest value of any pair that the low-and-slow rules judge and the conditions let pass."""
    watched = _ledger().where(is_in(schema.SRC_GROUP, questions.slow_sources(cluster)))
    read = (schema.LEDGER.field(name) for condition in conditions for name in condition.fields)
    each = watched.take(*(newest(one) for one in (field, *read))).by(*schema.LEDGER.tags)
    largest = Select(each).take(highest(field)).where(*conditions)
    return largest.per_series(f"{field.text}: the largest of any pair.")


def _tiles(cluster: Cluster) -> list[Built]:
    limits = cluster.thresholds
    came_back = questions.recurrences(cluster)
    return [
        panels.single(
            cluster,
            Face(
                "slow_24h", "Most without bursts, 24 h",
                "The most from storage, training or sensitive groups to one destination in 24 hours, bursts left out.",
                "exfil_volume reports bursts; what the bytes are, flow records do not say.",
                "The table below names the pair.",
                x=0, y=0, w=6, h=5, links=_home(), since=_FRESH,
            ),
            _largest(cluster, schema.SLOW_24H),
            limit=Limit(act=limits.low_and_slow_24h, look=limits.low_and_slow_24h / 2),
        ),
        panels.single(
            cluster,
            Face(
                "slow_7d", "Most without bursts, 7 d",
                "The most from such a group to one destination in 7 days, bursts and days that alert left out.",
                "A source that changes its destination every day stays small here: look at the sum of a source, too.",
                "The table below names the pair.",
                x=6, y=0, w=6, h=5, links=_home(), since=_FRESH,
            ),
            # What was much on one day is for the rule of a day to tell.
            _largest(cluster, schema.SLOW_7D, compare(schema.PEAK_24H, "<=", limits.low_and_slow_24h)),
            limit=Limit(act=limits.low_and_slow_7d, look=limits.low_and_slow_7d / 2),
        ),
        panels.single(
            cluster,
            Face(
                "recurring", "Unlisted ones that come back",
                f"Destinations outside that a group called on {limits.recurrence_days} days of the last 30, or in "
                f"{limits.recurrence_hours} hours of the last 7 days, and that no group of cluster.yaml holds.",
                "A service behind changing addresses is not recognised as one.",
                "The table at the bottom lists them: approve them, or cut them off.",
                x=12, y=0, w=6, h=5, links=_home(), since=_FRESH,
            ),
            Select(came_back.take(newest(schema.ACTIVE_DAYS)).by(*schema.RECURRENCE.tags))
            .take(count(schema.ACTIVE_DAYS, "destinations"))
            .per_series("Destinations that come back."),
            limit=Limit(look=1),
        ),
    ]  # fmt: skip


def _artefacts(cluster: Cluster) -> Built:
    sizes = sorted(cluster.artefacts, key=lambda artefact: -artefact.size)
    listed = "\n".join(f"- {artefact.name}: {format_size(artefact.size)}" for artefact in sizes)
    content = listed or (
        "cluster.yaml lists no `artefacts`. With their sizes, the ledger says what a volume amounts to, such as "
        "0.93 of a model's weights."
    )
    return panels.text(
        cluster,
        Face(
            "artefacts", "Sizes to compare with",
            "What cluster.yaml lists under `artefacts`: volumes are compared with the nearest in size.",
            "Equal size is a hint, not a proof: flow records know no content.",
            "Add the weights that are worth stealing.",
            x=18, y=0, w=6, h=5, links=_home(),
        ),
        content,
    )  # fmt: skip


def _pairs(cluster: Cluster) -> Built:
    fields = (
        schema.BYTES_7D, schema.BYTES_1H, schema.BYTES_24H, schema.BYTES_30D, schema.SLOW_24H, schema.ACTIVE_DAYS,
        schema.ACTIVE_HOURS, schema.ARTEFACT, schema.ARTEFACT_SHARE,
    )  # fmt: skip
    inner = _ledger().take(*(newest(field) for field in fields)).by(*schema.LEDGER.tags)
    limits = cluster.thresholds
    return panels.table(
        cluster,
        Face(
            "pairs", "What each source sent to each destination",
            "Bytes of the last hour, day, week and month, approved destinations included, largest week first.",
            "Beyond the largest pairs of a source group the rest is other; a share is of the nearest artefact.",
            "Click a source for the node, a group to keep only that one.",
            x=0, y=5, w=24, h=12, links=_home(), since=_FRESH,
        ),
        [top_rows(inner)],
        [
            *ends.both(cluster, BOARD),
            *panels.place_columns(),
            panels.Column(schema.BYTES_1H.name, "1 h", Unit.BYTES, width=100),
            panels.Column(schema.BYTES_24H.name, "24 h", Unit.BYTES, width=100),
            panels.Column(
                schema.SLOW_24H.name, "24 h without bursts", Unit.BYTES, Cell.COLOUR, width=150,
                # Of groups that no rule watches, too: so no red.
                limit=Limit(look=limits.low_and_slow_24h),
            ),
            panels.Column(schema.BYTES_7D.name, "7 d", Unit.BYTES, Cell.BAR),
            panels.Column(schema.BYTES_30D.name, "30 d", Unit.BYTES, width=100),
            panels.Column(schema.ACTIVE_HOURS.name, "Hours of 7 d", Unit.COUNT, width=100),
            panels.Column(schema.ACTIVE_DAYS.name, "Days of 30 d", Unit.COUNT, width=100),
            panels.Column(schema.ARTEFACT.name, "Nearest artefact", width=140),
            panels.Column(schema.ARTEFACT_SHARE.name, "Share of it", Unit.RATIO, width=100),
        ],
        order=TableOrder(schema.BYTES_7D.name),
    )  # fmt: skip


def _slow_over_time(cluster: Cluster) -> Built:
    query = _ledger().take(highest(schema.SLOW_24H)).by(schema.SRC_GROUP)
    return panels.time_series(
        cluster,
        Face(
            "slow_over_time", "Most without bursts in 24 h, by source group",
            "The largest 24-hour volume to one outside destination, of each source group, bursts left out.",
            "The dashed line is where low_and_slow_24h fires; a slow rise over days is what it looks for.",
            "Click a group to list its pairs.",
            x=0, y=17, w=10, h=10, links=_home(),
        ),
        [
            query.over_time(cluster, "Bytes in 24 h.", alias=f"$tag_{schema.SRC_GROUP}", settled=False).at_least(
                _ROW_SECONDS
            )
        ],
        limit=Limit(act=cluster.thresholds.low_and_slow_24h),
        overrides=panels.group_series(cluster),
        missing="none",
    )  # fmt: skip


def _recurrences(cluster: Cluster) -> Built:
    first = moment(newest(schema.FIRST_HOUR))
    fields = (schema.ACTIVE_DAYS, schema.ACTIVE_HOURS, schema.BYTES_30D, schema.EVENT_SOURCES)
    select = (
        Select(schema.RECURRENCE, schema.RECURRENCE.kept)
        .where(chosen(schema.SRC_GROUP, var.SOURCE))
        .take(*(newest(field) for field in fields), first)
        .by(*schema.RECURRENCE.tags)
    )
    limits = cluster.thresholds
    return panels.table(
        cluster,
        Face(
            "recurrences", "Unlisted destinations that come back",
            "Outside destinations in no group of cluster.yaml that are called on more than one day or in many hours.",
            "Below the limits of recurring_dependency a row is only shown; addresses that change are not joined.",
            "List it in a group of role approved_external if it is wanted.",
            x=10, y=17, w=14, h=10, links=_home(), since=_FRESH,
        ),
        [select.per_series("One row a destination and service.").as_table()],
        [
            panels.Column(schema.DST, "Destination"),
            panels.Column(schema.APPLICATION, "Is"),
            *panels.place_columns(),
            panels.Column(schema.SRC_GROUP, "Source group", mappings=(panels.group_words(cluster),)),
            panels.Column(schema.PROTO, "Protocol", width=80),
            panels.Column(schema.SERVICE, "Service", width=90),
            panels.Column(
                schema.ACTIVE_DAYS.name, "Days of 30", Unit.COUNT, Cell.COLOUR, width=90,
                limit=Limit(look=limits.recurrence_days),
            ),
            panels.Column(
                schema.ACTIVE_HOURS.name, "Hours of 7 d", Unit.COUNT, Cell.COLOUR, width=100,
                limit=Limit(look=limits.recurrence_hours),
            ),
            panels.Column(schema.EVENT_SOURCES.name, "Sources", Unit.COUNT, width=80),
            panels.Column(schema.BYTES_30D.name, "Bytes, 30 d", Unit.BYTES, width=110),
            panels.Column(schema.FIRST_HOUR.name, "Since", Unit.MOMENT, width=160),
        ],
        order=TableOrder(schema.ACTIVE_HOURS.name),
    )  # fmt: skip
