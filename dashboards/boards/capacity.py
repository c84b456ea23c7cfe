"""Capacity & cost: how full links, group pairs and storage are, when they will be, and what stalls cost."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import row, to_alerts, to_board
from dashboards.palette import DIM, QUIET
from dashboards.panels import Built, Cell, Face, Limit, TableOrder
from dashboards.parts import transport, uplinks
from store import schema
from store.influxql import (
    Column,
    Condition,
    Query,
    Select,
    Unit,
    added,
    bit_rate,
    chosen,
    compare,
    count,
    highest,
    is_in,
    lowest,
    moment,
    newest,
    top_rows,
    total,
)
from store.schema import Capacity

BOARD = "capacity"

_ARROW = "->"
"""Between the groups of a pair, in the subject's name."""

BUSY = 0.8
"""Share of its limit from which p95 deserves a look: beyond it, queues grow faster than load. No alert compares with
it."""

_WHAT = 130
"""Fewest pixels of what a row is about: on a laptop `leaf-r07a compute-rail0` was `leaf-r07`."""

_NEWEST = "100m"
"""Holds the newest row of every hour, which is written before the time that it bears: ten past the hour."""
_MOMENT = "full"
_BUCKETS, _COLUMNS = 10, 32
"""Cells of a histogram, down and across: a week has columns of six hours."""
_HOUR = 3_600
_LINKS = (Capacity.EDGE, Capacity.CORE)


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _table(
                cluster, "links", "Links", _LINKS,
                (
                    "p95 and peak of the last 24 hours of each interface, its busier direction, against its speed.",
                    f"Unknown speed: no share, no date. No counters: flow records only. {transport.note(cluster)}",
                ),
                x=0, y=5,
            ),
            _table(
                cluster, "pairs", "Group pairs", (Capacity.PAIR,),
                (
                    "p95 and peak of the last 24 hours of each group pair, one direction, against `capacity` limits.",
                    transport.note(cluster),
                ),
                x=12, y=5,
            ),
            _histogram(cluster, Capacity.EDGE, "edge_load", "Edge links by load", x=0),
            _histogram(cluster, Capacity.CORE, "core_load", "Core links by load", x=12),
            _table(
                cluster, "endpoints", "Storage nodes", (Capacity.ENDPOINT,),
                (
                    "p95 and peak of the last 24 hours of each node of a storage group, its busier direction.",
                    "Disks and controllers may be full long before the network: flow data does not see them.",
                ),
                x=0, y=24,
            ),
            _growth(cluster),
            _errors(cluster),
            _cost_by_job(cluster),
            _cost_over_time(cluster),
            _held(cluster),
            _uplinks(cluster),
        ),
        since="7d",
        variables=(
            var.choice(
                var.KIND, "Growth of",
                {
                    Capacity.PAIR.value: "group pairs", Capacity.EDGE.value: "edge links",
                    Capacity.CORE.value: "core links", Capacity.ENDPOINT.value: "storage nodes",
                },
                Capacity.PAIR.value,
            ),
        ),
        tags=("capacity",),
    )  # fmt: skip


_LONGER = "one value an hour: choose a longer range"


def _capacity() -> Select:
    return Select(schema.CAPACITY, schema.CAPACITY.kept)


# -- tiles ---------------------------------------------------------------------------------------------


def _tiles(cluster: Cluster) -> list[Built]:
    home = (to_board("noc_wall"),)
    training = (to_board("training", "Training"),)
    each = _capacity().by(schema.KIND, schema.SUBJECT)
    soonest = Select(each.take(_full_at())).take(lowest(_full_at()))
    price = f"at {cluster.cost.usd_per_gpu_hour:g} USD a GPU-hour"

    def cost(name: str, title: str, since: str, x: int) -> Built:
        return panels.single(
            cluster,
            Face(
                name, title,
                f"GPU time that jobs lost to dropouts, slow cohorts and stalls, {price}.",
                "It counts all GPUs of a job that waits; what the lost time meant for the run is not known.",
                "The table below names jobs and causes.",
                x=x, y=0, w=6, h=5, links=training, since=since,
            ),
            questions.stall_usd().per_series("USD lost."),
        )  # fmt: skip

    return [
        panels.stat(
            cluster,
            Face(
                "soonest", "First to be full",
                "When the first link, group pair or storage node reaches its limit, if the last month's trend lasts.",
                "A straight line through a month knows no plans; what has no known limit is never full.",
                "The tables below name it.",
                x=0, y=0, w=6, h=5, links=home, since=_NEWEST,
            ),
            [soonest.per_series("The earliest date.")],
            unit="dateTimeFromNow",
            missing=("none in 2 years", QUIET),
            text="value",
        ),
        panels.stat(
            cluster,
            Face(
                "busiest", "Fullest",
                "The largest p95 of the last 24 hours as a share of its limit.",
                "95 % of the minutes are below it; bursts shorter than a minute do not show.",
                "The tables below name it.",
                x=6, y=0, w=6, h=5, links=home, since=_NEWEST,
            ),
            [_capacity().take(highest(schema.UTILISATION)).per_series("The largest share.")],
            limit=Limit(look=BUSY),
            missing=("no limits known", DIM),
            text="value",
        ),
        cost("cost_day", "Dollars lost to stalls, 24 h", "24h", 12),
        cost("cost_month", "Dollars lost to stalls, 30 d", "30d", 18),
    ]  # fmt: skip


# -- how full ------------------------------------------------------------------------------------------


def _full_at() -> Column:
    """Return the newest date."""
    return moment(newest(schema.FULL_AT, _MOMENT))


def _newest_rows(*kinds: Capacity) -> Query:
    """Return the newest row of each thing, the fullest first; without a limit by p95."""
    fields = (schema.P95, schema.PEAK, schema.LIMIT_BPS, schema.UTILISATION, schema.TREND)
    select = _capacity().where(is_in(schema.KIND, [kind.value for kind in kinds])).by(schema.KIND, schema.SUBJECT)
    return (
        select.take(*(newest(field) for field in fields), _full_at()).per_series("A row of the last hour.").as_table()
    )


def _table(
    cluster: Cluster,
    name: str,
    title: str,
    kinds: tuple[Capacity, ...],
    sentences: tuple[str, str],
    *,
    x: int,
    y: int,
) -> Built:
    shows, cannot = sentences
    kind = [panels.Column(schema.KIND, "Kind", width=50)] if len(kinds) > 1 else []
    is_pair = kinds == (Capacity.PAIR,)
    # Only the subject of a storage node is a name that another board can choose.
    is_node = kinds == (Capacity.ENDPOINT,)
    explore = to_board("explore", node=row(schema.SUBJECT)) if is_node else to_board("explore")
    what = [panels.Column(schema.SUBJECT, "What", links=(explore,), least=_WHAT)]
    if is_pair:
        words = (panels.group_words(cluster),)
        ends = ((schema.SRC_GROUP, "From"), (schema.DST_GROUP, "To"))
        what = [panels.Column(tag, end, mappings=words, links=(explore,), least=_WHAT) for tag, end in ends]
    return panels.table(
        cluster,
        Face(
            name, f"{title}: how full, and when",
            shows, cannot,
            "A date is there only where the month's trend surely rises: plan before it.",
            x=x, y=y, w=12, h=10, links=(to_board("coverage"),), since=_NEWEST,
        ),
        [_newest_rows(*kinds)],
        [
            *kind,
            *what,
            panels.Column(schema.P95.name, "p95, 24 h", Unit.BITS_PER_SECOND, width=85),
            panels.Column(schema.PEAK.name, "Peak", Unit.BITS_PER_SECOND, width=85),
            panels.Column(schema.LIMIT_BPS.name, "Limit", Unit.BITS_PER_SECOND, width=85),
            panels.Column(
                schema.UTILISATION.name, "p95 of limit", Unit.RATIO, Cell.COLOUR, limit=Limit(look=BUSY), width=105
            ),
            panels.Column(schema.TREND.name, "A day more", Unit.BITS_PER_SECOND, width=98),
            panels.Column(_MOMENT, "Full", "dateTimeFromNow", width=100),
        ],
        order=TableOrder(schema.UTILISATION.name),
        # Grafana keeps this order of what has no limit.
        before=[*([panels.parted(schema.SUBJECT, _ARROW)] if is_pair else []), panels.ordered(schema.P95.name)],
    )  # fmt: skip


def _histogram(cluster: Cluster, kind: Capacity, name: str, title: str, *, x: int) -> Built:
    words = {Capacity.EDGE: "Interfaces where flows are counted", Capacity.CORE: "Links between switches"}
    queries = [_bucket(cluster, kind, bucket) for bucket in range(_BUCKETS)]
    return panels.heatmap(
        cluster,
        Face(
            name, f"{title}: p95 of 24 h",
            f"{words[kind]} by their load as a share of their speed: how many lie in each tenth.",
            "Interfaces without a known speed are in none; the busier direction counts, in long bins the fullest hour.",
            "A cloud that climbs is a fabric that fills up; one far-off dot is one link: the table names it. Empty? "
            f"There is {_LONGER}.",
            x=x, y=15, w=12, h=9, links=(to_board("coverage"),),
        ),
        queries,
        links=(to_board("coverage"),),
    )  # fmt: skip


def _bucket(cluster: Cluster, kind: Capacity, bucket: int) -> Query:
    """Return how many links of a kind lie in one tenth of their speed; the last one has no upper end."""
    low, high = bucket / _BUCKETS, (bucket + 1) / _BUCKETS
    last = bucket == _BUCKETS - 1
    below = () if last else (compare(schema.UTILISATION, "<", high),)
    alias = f"{low:.0%} and more" if last else f"{low:.0%} to {high:.0%}"
    # A bin of a long range holds several rows of a link: it counts once, where it was fullest. What never reaches the
    # tenth stays out before it is binned: most links are in the lowest one, and the others have rows of their own. A
    # bin of an hour holds one row of a link.
    rows = Select(schema.LOADED, schema.LOADED.kept) if bucket else _capacity()
    above = [is_in(schema.KIND, [kind.value]), *((compare(schema.UTILISATION, ">=", low),) if bucket else ())]
    links = count(schema.UTILISATION, "links")
    is_hour, is_longer = (Condition(f"$__interval_ms {sign} {_HOUR * 1000}", is_moving=True) for sign in ("<=", ">"))
    each = rows.take(highest(schema.UTILISATION)).where(*above, is_longer).by(schema.SUBJECT).binned()
    of_hours = rows.take(links).where(*above, *below, is_hour)
    either = (of_hours.binned(), Select(each).take(links).where(*below).binned())
    query = Select(either).take(total(links)).over_time(cluster, "Links in this tenth.", alias=alias, settled=False)
    return query.at_least(_HOUR).at_most(_COLUMNS)


def _growth(cluster: Cluster) -> Built:
    query = _capacity().take(highest(schema.P95)).where(chosen(schema.KIND, var.KIND)).by(schema.SUBJECT)
    return panels.time_series(
        cluster,
        Face(
            "growth", "Growth of ${kind:text}: p95 of 24 h",
            "The p95 of the 24 hours before, for each thing of the chosen kinds; in long bins the largest.",
            f"A gap means that nothing was heard. {transport.note(cluster)}",
            "Choose one kind above, and a longer range: rows are kept for years.",
            x=12, y=24, w=12, h=10, links=(to_board("explore"),),
        ),
        [query.over_time(cluster, "p95.", alias=f"$tag_{schema.SUBJECT}", settled=False).at_least(_HOUR)],
        unit=Unit.BITS_PER_SECOND,
        legend_right=True,
        missing=_LONGER,
        transformations=panels.pair_titles(cluster, _ARROW),
    )  # fmt: skip


def _errors(cluster: Cluster) -> Built:
    counters = (schema.IN_ERRORS, schema.OUT_ERRORS, schema.IN_DISCARDS, schema.OUT_DISCARDS)
    together = added(counters, schema.BYTES.name, Unit.COUNT)
    inner = (
        Select(schema.INTERFACE_TRAFFIC, schema.HOUR)
        .take(together, *(total(one) for one in counters))
        .by(schema.EXPORTER, schema.INTERFACE, schema.KIND)
    )
    bad = Limit(look=1)
    return panels.table(
        cluster,
        Face(
            "errors", "Errors and discards of interfaces, 24 h",
            "Packets that interfaces received or sent wrongly, or threw away, by their own counters, in whole hours.",
            "Only sFlow devices send counters; discards of a shaper or an access list may be intended.",
            "Discards towards storage or training nodes mean that a queue overflows: compare with the links above.",
            x=0, y=34, w=12, h=9, links=(to_board("pipeline"),), since="24h",
        ),
        [top_rows(inner)],
        [
            panels.Column(schema.EXPORTER, "Exporter"),
            panels.Column(schema.INTERFACE, "Interface"),
            panels.Column(schema.KIND, "Kind", width=70),
            *(
                panels.Column(one.name, title, Unit.COUNT, Cell.COLOUR, limit=bad, width=105)
                for one, title in zip(
                    counters, ("In errors", "Out errors", "In discards", "Out discards"), strict=True
                )
            ),
        ],
        order=TableOrder(schema.BYTES.name, hidden=(schema.BYTES.name,)),
    )  # fmt: skip


def _uplinks(cluster: Cluster) -> Built:
    apart, *_ = uplinks.measures()
    loads = uplinks.uplinks(cluster, bit_rate, is_binned=True)
    return panels.time_series(
        cluster,
        Face(
            "uplinks", "Uplinks: busiest over emptiest",
            "By how much a switch's busiest link to other switches is fuller than its emptiest, of a link's speed.",
            "Links without a known speed, and those below 1 %, are in none. " + transport.note(cluster),
            "Large pairs that hash onto one link: `clusterflow flows --exporter NAME --interface NAME --by src,dst`.",
            x=0, y=59, w=24, h=8, links=(to_board("pipeline"),),
        ),
        [loads.take(apart).over_time(cluster, "Of the bin.", alias=f"$tag_{schema.EXPORTER}")],
        unit=Unit.RATIO,
        limit=Limit(act=cluster.thresholds.uplinks_uneven),
        missing="no switch with two uplinks of known speed",
    )  # fmt: skip


# -- cost ----------------------------------------------------------------------------------------------


def _stalls() -> Select:
    return Select(schema.STALL, schema.STALL.kept)


def _cost_by_job(cluster: Cluster) -> Built:
    by = (schema.JOB, schema.JOB_CLASS, schema.CAUSE)
    lost, gpus = total(schema.LOST_SECONDS), highest(schema.STALL_GPUS)
    return panels.table(
        cluster,
        Face(
            "cost_by_job", "Dollars lost by job and cause",
            f"GPU time that each job lost in this range, at {cluster.cost.usd_per_gpu_hour:g} USD a GPU-hour.",
            "All GPUs of a waiting job count, each second under one cause; what its class waits anyhow is no loss.",
            "Click a job to see what happened to it.",
            x=12, y=34, w=12, h=9, links=(to_board("training", "Training"),),
        ),
        [
            _stalls().take(total(schema.USD), lost, gpus, newest(schema.STALL_BY))
            .where(compare(schema.LOST_SECONDS, ">", 0)).by(*by).per_series("A job and a cause.").as_table()
        ],
        [
            panels.Column(
                schema.JOB, "Job", links=(to_board("training", "This job", job=row(schema.JOB)),)
            ),
            panels.Column(schema.JOB_CLASS, "Class", width=110),
            panels.Column(schema.CAUSE, "Cause", width=110),
            panels.Column(schema.USD.name, "Lost", Unit.USD, Cell.BAR),
            panels.Column(schema.LOST_SECONDS.name, "Time lost", Unit.SECONDS, width=110),
            panels.Column(schema.STALL_GPUS.name, "GPUs", Unit.COUNT, width=80),
            panels.Column(schema.STALL_BY.name, "By", width=120, mappings=(panels.group_words(cluster),)),
        ],
        order=TableOrder(schema.USD.name),
    )  # fmt: skip


def _cost_over_time(cluster: Cluster) -> Built:
    query = questions.stall_usd().by(schema.CAUSE).over_time(
        cluster, "USD lost in the bin.", alias=f"$tag_{schema.CAUSE}", settled=False
    )  # fmt: skip
    return panels.time_series(
        cluster,
        Face(
            "cost_over_time", "Dollars lost, by cause",
            "What stalls cost in each bin of the chart, at least an hour long: a day's sum where the range is long.",
            "Bins follow the range: compare heights within one range only.",
            "The table above names the jobs.",
            x=0, y=43, w=24, h=8, links=(to_board("training", "Training"),),
        ),
        [query.at_least(_HOUR)],
        unit=Unit.USD,
        stacked=True,
        bars=True,
        missing="none",
    )  # fmt: skip


def _held(cluster: Cluster) -> Built:
    held = Select(schema.HELD, schema.HELD.kept).where(compare(schema.HELD_NODES, ">", 0)).by(*schema.HELD.tags)
    columns = (total(schema.HELD_USD), total(schema.HELD_GPU_HOURS), highest(schema.HELD_NODES),
               highest(schema.HELD_NEVER), highest(schema.HELD_FOR), newest(schema.HELD_NAMES))  # fmt: skip
    return panels.table(
        cluster,
        Face(
            "held", "Held but silent, by user and job",
            "What GPUs cost whose nodes neither sent nor read for "
            f"{format_duration(cluster.thresholds.held_silent_for)} or more while their job ran, all of that time.",
            "No part of the dollars above. Jobs of one node, and collectives that no exporter sees, are not judged.",
            "Ask the user whether the job is alive.",
            x=0, y=51, w=24, h=8, links=(to_alerts(), to_board("training", "Training")),
        ),
        [held.take(*columns).per_series("A job.").as_table()],
        [
            panels.Column(schema.USER, "User"),
            panels.Column(schema.JOB, "Job", links=(to_board("training", "This job", job=row(schema.JOB)),)),
            panels.Column(schema.JOB_CLASS, "Class"),
            panels.Column(schema.HELD_USD.name, "Cost", Unit.USD, Cell.BAR),
            panels.Column(schema.HELD_GPU_HOURS.name, "GPU-hours", Unit.COUNT, width=100),
            panels.Column(schema.HELD_NODES.name, "Nodes", Unit.COUNT, width=80),
            panels.Column(schema.HELD_NEVER.name, "Never sent", Unit.COUNT, width=100),
            panels.Column(schema.HELD_FOR.name, "Silent for", Unit.SECONDS, width=110),
            panels.Column(schema.HELD_NAMES.name, "Which"),
        ],
        order=TableOrder(schema.HELD_USD.name),
    )  # fmt: skip
