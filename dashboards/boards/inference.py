"""Inference: who asks the models, how much against the same hours of earlier weeks, and who should not."""

from app.units import format_duration
from cluster.calendar import hours_words
from cluster.model import Cluster, Role
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import Link, clicked, to_board
from dashboards.palette import ACT, DIM, QUIET
from dashboards.panels import Built, Cell, Face, Limit, TableOrder
from dashboards.parts import ends
from dashboards.parts.names_share import names_share
from dashboards.parts.spread import node_spread, spread_overrides
from store import schema
from store.influxql import (
    Query,
    Select,
    Unit,
    bit_rate,
    chosen,
    compare,
    count,
    highest,
    is_in,
    newest,
    not_in,
    top_rows,
    total,
)
from store.schema import LoadState

BOARD = "inference"

_RECENT = "15m"
_EXPECTED, _LIMIT = "expected", "limit"

_DASHED = {"fill": "dash", "dash": [6, 6]}

STATE_COLOURS = {LoadState.LEARNING: DIM, LoadState.OK: QUIET, LoadState.SPIKE: ACT}


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _load(cluster),
            _requests(cluster),
            _clients(cluster),
            _unauthorised(cluster),
            _off_window(cluster),
            _balance(cluster),
            _answers(cluster),
            names_share(cluster, _asked(schema.MINUTE), 45, _home()),
        ),
        since="24h",
        variables=var.from_and_to(cluster),
        tags=("inference",),
    )


def _home() -> tuple[Link, ...]:
    return (to_board("noc_wall"),)


def _explore() -> Link:
    return to_board("explore", keep=var.GROUPS)


def _tiles(cluster: Cluster) -> list[Built]:
    limits = cluster.thresholds
    since = f"{limits.inference_window}s"
    window = format_duration(limits.inference_window)
    hours = cluster.inference.hours
    hours_text = (
        f"Bytes of clients outside the hours of inference: {hours_words(cluster.site, hours)}."
        if hours
        else "cluster.yaml has no `inference.hours`: no time is off-window, and this stays empty."
    )
    latest = Select(schema.INFERENCE_LOAD, schema.RAW).take(newest(schema.LOAD_STATE)).by(schema.GROUP)
    named = not_in(schema.SRC, [schema.OTHER]), compare(schema.BYTES, ">", 0)
    clients = Select(schema.INFERENCE, schema.RAW).take(total(schema.BYTES)).where(*named).by(schema.SRC)
    return [
        panels.stat(
            cluster,
            Face(
                "load_state", "Load against earlier weeks",
                "Whether clients send more than at this time of the week in earlier weeks, for each inference group.",
                f"With fewer than {limits.inference_min_weeks} earlier weeks a group is learning: nothing judges it.",
                "The chart below shows load, expectation and limit.",
                x=0, y=0, w=6, h=5, links=_home(), since="10m",
            ),
            [latest.per_series("State of the group.", alias=f"$tag_{schema.GROUP}")],
            mappings=[panels.words({state: (word, STATE_COLOURS[state]) for state, word in schema.LOAD_WORDS.items()})],
            overrides=panels.group_names(cluster),
            missing=("no verdict", DIM),
        ),
        panels.single(
            cluster,
            Face(
                "unauthorised_volume", f"From clients that may not, {window}",
                "Bytes of clients whose group `allowed` or `inference.sources` does not let reach inference.",
                "It may be refused by the server itself: flow records show that it was sent, not that it was served.",
                "The table below names clients and nodes.",
                x=6, y=0, w=6, h=5, links=_home(), since=since,
            ),
            questions.asked_by(questions.inference_pairs(cluster, may=False), schema.RAW)
            .take(total(schema.BYTES))
            .per_series("Bytes of unauthorised clients."),
            limit=Limit(look=1),
        ),
        panels.single(
            cluster,
            Face(
                "off_window_volume", f"Outside inference hours, {window}",
                hours_text,
                "Health checks and monitoring ask at night as well.",
                "The table below names the clients.",
                x=12, y=0, w=6, h=5, links=_home(), since=since,
            ),
            _at_odd_hours(schema.RAW).take(total(schema.BYTES)).per_series("Bytes outside the hours."),
            limit=Limit(look=max(limits.inference_off_window_bytes, 1)),
        ),
        panels.single(
            cluster,
            Face(
                "clients_now", "Clients with a name, 15 min",
                "How many addresses or nodes with a series opened a conversation with an inference node.",
                "Of thousands few have one: the last chart shows how much the others, other, send.",
                "`clusterflow access` counts and lists all of them.",
                x=18, y=0, w=6, h=5, links=_home(), since=_RECENT,
            ),
            Select(clients).take(count(schema.BYTES, "clients")).per_series("Clients."),
        ),
    ]  # fmt: skip


def _at_odd_hours(retention: str) -> Select:
    return Select(schema.INFERENCE, retention).where(is_in(schema.OFF_WINDOW, [schema.YES]))


def _load(cluster: Cluster) -> Built:
    limits = cluster.thresholds
    chosen_groups = Select(schema.INFERENCE_LOAD, schema.RAW).where(chosen(schema.GROUP, var.DESTINATION))
    lines = (
        (schema.LOAD_BYTES, f"$tag_{schema.GROUP}"),
        (schema.LOAD_EXPECTED, _EXPECTED),
        (schema.LOAD_UPPER, _LIMIT),
    )
    queries: list[Query] = []
    for field, name in lines:
        select = chosen_groups.take(highest(field)).by(schema.GROUP)
        alias = name if field is schema.LOAD_BYTES else f"$tag_{schema.GROUP} {name}"
        # There is a row a minute.
        queries.append(select.over_time(cluster, field.text, alias=alias, settled=False).at_least(60))
    return panels.time_series(
        cluster,
        Face(
            "load", "Bytes of requests in five minutes: observed, expected, limit",
            "Bytes that clients sent to each group in the five minutes before, with the median of earlier weeks.",
            "Bytes are not requests: prompts, tokens and refusals are not seen. "
            f"The limit is {limits.inference_spike_spreads:g} spreads above; while a group learns there is none.",
            "The clients below show who sends more; a release or a campaign looks like an attack.",
            x=0, y=5, w=24, h=9, links=_home(),
        ),
        queries,
        overrides=[
            *panels.group_series(cluster, "", _EXPECTED, _LIMIT),
            panels.override(f"/ {_EXPECTED}$/", color=panels.fixed(DIM)),
            panels.override(f"/ {_LIMIT}$/", color=panels.fixed(ACT), custom__lineStyle=_DASHED),
        ],
        links=(to_board("inference", "Only this group", keep=(var.SOURCE,), dst=clicked(schema.GROUP)),),
    )  # fmt: skip


def _asked(retention: str) -> Select:
    return Select(schema.INFERENCE, retention).where(*var.chosen_groups())


def _requests(cluster: Cluster) -> Built:
    query = _asked(schema.MINUTE).take(bit_rate(schema.BYTES)).by(schema.SRC_GROUP)
    return panels.time_series(
        cluster,
        Face(
            "requests", "Requests by client group",
            "Bit/s that clients of the chosen groups sent to inference nodes, stacked.",
            "Who opened a conversation is inferred from its ports; requests without a known port may be missed.",
            "Click a group to list only its clients.",
            x=0, y=14, w=10, h=9, links=(_explore(),),
        ),
        [query.over_time(cluster, "bit/s of a client group.", alias=f"$tag_{schema.SRC_GROUP}")],
        stacked=True,
        overrides=panels.group_series(cluster),
        links=(to_board("inference", "Only this group", keep=(var.DESTINATION,), src=clicked(schema.SRC_GROUP)),),
    )  # fmt: skip


def _columns(cluster: Cluster) -> list[panels.Column]:
    return [
        panels.Column(schema.SRC, "Client"),
        ends.source_group(cluster, BOARD, "Client group"),
        ends.node(schema.DST, "Inference node"),
        panels.Column(schema.PROTO, "Protocol", width=70),
        panels.Column(schema.SERVICE, "Service", width=80),
        *panels.place_columns(),
        panels.Column(schema.BYTES.name, "Bytes sent", Unit.BYTES, Cell.BAR),
        panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=95),
        panels.Column(schema.DURATION.name, "Duration", Unit.SECONDS, width=85),
    ]  # fmt: skip


def _largest(select: Select) -> Query:
    """Return the conversations with the most bytes."""
    inner = select.take(total(schema.BYTES), total(schema.FLOWS), total(schema.DURATION)).by(
        schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE, schema.COUNTRY,
        schema.NETWORK,
    )  # fmt: skip
    return top_rows(inner)


def _clients(cluster: Cluster) -> Built:
    return panels.table(
        cluster,
        Face(
            "clients", "Clients of inference nodes, by bytes sent",
            "The clients that sent most to inference nodes, with service and how long bytes flowed.",
            "Answers are not in it; beyond the largest of each window clients are summed up as other.",
            "Click a group to keep only that one, a node for what else it does.",
            x=10, y=14, w=14, h=9, links=(_explore(),),
        ),
        [_largest(_asked(schema.MINUTE))],
        _columns(cluster),
        order=TableOrder(schema.BYTES.name),
    )  # fmt: skip


def _unauthorised(cluster: Cluster) -> Built:
    pairs = questions.inference_pairs(cluster, may=False)
    return panels.table(
        cluster,
        Face(
            "unauthorised", "Clients that may not reach inference",
            "Who asked inference nodes although `allowed` or `inference.sources` does not list the group.",
            "Nothing was blocked here, and an unlisted client may be right: then list its group.",
            "Look at the service: an API, a management port, or a scan.",
            x=0, y=23, w=24, h=7, links=(to_board("group_matrix", keep=var.GROUPS),),
        ),
        [_largest(questions.asked_by(pairs, schema.MINUTE))],
        _columns(cluster),
        order=TableOrder(schema.BYTES.name),
    )  # fmt: skip


def _off_window(cluster: Cluster) -> Built:
    return panels.table(
        cluster,
        Face(
            "off_window", "Clients outside the hours of inference",
            "Who asked inference nodes outside `inference.hours`.",
            "Without `inference.hours` in cluster.yaml no time is off-window.",
            "A client that comes every night is a job: give it hours, or its own group.",
            x=0, y=30, w=24, h=7, links=_home(),
        ),
        [_largest(_at_odd_hours(schema.MINUTE))],
        _columns(cluster),
        order=TableOrder(schema.BYTES.name),
    )  # fmt: skip


def _balance(cluster: Cluster) -> Built:
    groups = questions.role_ids(cluster, Role.INFERENCE)
    nodes = Select(schema.NODE_TRAFFIC, schema.MINUTE).where(
        is_in(schema.GROUP, groups), chosen(schema.PEER_GROUP, var.SOURCE)
    )
    nodes_by_bytes = (to_board("explore", "Nodes by bytes", src=groups or var.ALL, dst=var.ALL),)
    return panels.time_series(
        cluster,
        Face(
            "balance", "Fastest, median and slowest inference node",
            "Bit/s that inference nodes sent to the chosen groups: a wide band means that load is spread unevenly.",
            "A node without any record in a bin is in no line, whether it is silent or its exporter is blind.",
            "Explore names the nodes.",
            x=0, y=37, w=12, h=8,
            links=nodes_by_bytes,
        ),
        [node_spread(cluster, nodes)],
        overrides=spread_overrides(),
    )  # fmt: skip


def _answers(cluster: Cluster) -> Built:
    groups = questions.role_ids(cluster, Role.INFERENCE)
    src = groups or var.ALL
    query = (
        Select(schema.TRAFFIC, schema.MINUTE)
        .take(bit_rate(schema.BYTES))
        .where(is_in(schema.SRC_GROUP, groups))
        .by(schema.DST_GROUP)
    )
    return panels.time_series(
        cluster,
        Face(
            "answers", "What inference nodes send, by destination group",
            "Bit/s that leave the inference groups, stacked: answers to clients, and everything else that they send.",
            "Answers cannot be separated here from what nodes send unasked.",
            "Traffic to groups that never ask is worth a look: the group matrix says whether it is allowed.",
            x=12, y=37, w=12, h=8, links=(
                to_board("group_matrix", src=src, dst=var.ALL),
                to_board("egress", src=src, dst=var.ALL),
            ),
        ),
        [query.over_time(cluster, "bit/s to a group.", alias=f"$tag_{schema.DST_GROUP}")],
        stacked=True,
        overrides=panels.group_series(cluster),
        links=(to_board("explore", "Explore this pair", src=src, dst=clicked(schema.DST_GROUP)),),
    )  # fmt: skip
