"""Panels about a job's collectives: their pattern, their rails, their steps; and bursts into one storage endpoint."""

from dataclasses import replace

from analysis.detectors.training.pattern_study import looked_at_every
from analysis.detectors.training.step_study import EVERY
from analysis.detectors.training.steps import SHORTEST
from app.units import format_duration, format_size
from cluster.model import Cluster, Role
from dashboards import panels
from dashboards import variables as var
from dashboards.links import Link, clicked, row, to_alerts, to_board
from dashboards.palette import DIM, LOOK, PATTERN_COLOURS
from dashboards.panels import Built, Cell, Face, Json, TableOrder
from dashboards.parts import transport
from store import schema
from store.influxql import (
    Column,
    Query,
    Select,
    Unit,
    chosen,
    combined,
    compare,
    highest,
    is_in,
    lowest,
    moment,
    newest,
    ratio,
    top_rows,
    total,
)
from store.schema import Disturber, Neighbour

TOP = 62
"""Where they begin on the Training run board."""

_EXPECTED, _LIMIT = "in earlier runs", "limit"


def all_panels(cluster: Cluster) -> tuple[Built, ...]:
    """Return the panels in the order of the board."""
    return (
        _now(cluster),
        _patterns(cluster),
        _steps(cluster),
        _changed(cluster),
        _rails(cluster),
        incast(cluster),
        _disturbances(cluster),
        _marks(cluster),
        _rails_low(cluster),
        _packet_sizes(cluster),
        _changed_pairs(cluster),
    )


def mapping() -> Json:
    """Return the value mapping of patterns to words and colours."""
    return panels.words({state: (word, PATTERN_COLOURS[state]) for state, word in schema.PATTERN_WORDS.items()})


def _of_job() -> Select:
    return Select(schema.PATTERN, schema.RAW).where(chosen(schema.JOB, var.JOB))


def _over_time(cluster: Cluster, column: Column, meaning: str, alias: str = f"$tag_{schema.JOB}") -> Query:
    """Return a value of each job over time, in bins no shorter than the largest jobs are looked at."""
    every = looked_at_every(len(cluster.nodes_with(Role.TRAINING)))
    return _of_job().take(column).by(schema.JOB).over_time(cluster, meaning, alias=alias, settled=False).at_least(every)


def _only_job() -> tuple[Link, ...]:
    return (to_board("training", "Only this job", job=clicked(schema.JOB)),)


def _now(cluster: Cluster) -> Built:
    fields = (
        schema.PATTERN_STATE, schema.NEIGHBOURS, schema.CHANGED, schema.IMBALANCE, schema.STEP_PERIOD,
        schema.STEP_ERROR, schema.STEP_DRIFT,
    )  # fmt: skip
    query = _of_job().take(*(newest(field) for field in fields))
    return panels.table(
        cluster,
        Face(
            "collectives", "Collectives of each job",
            "Who sends to whom, whether that changed, how even the rails are, how long a step takes, how sure that is.",
            f"Steps need sFlow: a NetFlow record holds many of them. {transport.training_note(cluster)}",
            "The charts below show since when.",
            x=0, y=TOP, w=24, h=6, links=(to_board("explore"),),
        ),
        [query.by(schema.JOB, schema.JOB_CLASS).per_series("Collectives of a job.").as_table()],
        [
            panels.Column(schema.JOB, "Job", links=(to_board("training", "Only this job", job=row(schema.JOB)),)),
            panels.Column(schema.JOB_CLASS, "Class"),
            panels.Column(schema.PATTERN_STATE.name, "Pattern", Unit.STATE, Cell.COLOUR, (mapping(),), width=120),
            panels.Column(schema.NEIGHBOURS.name, "Neighbours, median", Unit.COUNT, width=160),
            panels.Column(schema.CHANGED.name, "Nodes that changed theirs", Unit.COUNT, width=200),
            panels.Column(schema.IMBALANCE.name, "Worst rail above mean", Unit.RATIO, width=180),
            panels.Column(schema.STEP_PERIOD.name, "Step", Unit.SECONDS, width=110),
            panels.Column(schema.STEP_ERROR.name, "± 95 %", Unit.SECONDS, width=110),
            panels.Column(schema.STEP_DRIFT.name, "Step against its first hour", Unit.RATIO, width=210),
        ],
        order=TableOrder(schema.JOB, ascending=True),
    )  # fmt: skip


def _patterns(cluster: Cluster) -> Built:
    return panels.state_timeline(
        cluster,
        Face(
            "patterns", "Pattern of the collectives",
            "Ring, tree, all to all, or mixed, by who sends how much to whom within a minute.",
            "What stays inside a node (NVLink) is not seen; pipelines and rings beside trees are mixed.",
            "A pattern that changes without a reason: look at how the job maps ranks to nodes.",
            x=0, y=TOP + 6, w=12, h=5, links=(to_board("group_matrix"),),
        ),
        [_over_time(cluster, highest(schema.PATTERN_STATE), "Pattern of a job's collectives.")],
        [mapping()],
        links=_only_job(),
    )  # fmt: skip


def _changed(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "changed", "Nodes with other neighbours",
            "Nodes that send to others than ten minutes ago, or before a pause; *Changed pairs* below has the names.",
            "Jobs of more than 256 nodes are looked at every 15 min, those of more than 64 every 5 min.",
            "Expected after a restart; else somebody moved ranks.",
            x=0, y=TOP + 11, w=6, h=9, links=(to_board("stragglers", keep=(var.JOB,)),),
        ),
        [_over_time(cluster, highest(schema.CHANGED), "Nodes that send to others.")],
        links=_only_job(),
    )  # fmt: skip


def _rails(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "rails", "Rail imbalance, worst node",
            "How far a node's largest rail lies above the mean of its rails: 0 is even, 100 % is one of two dead.",
            "Needs `rail` at the nodes' addresses; packet sampling alone makes a few per cent.",
            "*Low rails* below names node and rail.",
            x=6, y=TOP + 11, w=6, h=9, links=(to_board("explore"),),
        ),
        [_over_time(cluster, highest(schema.IMBALANCE), "Largest rail over the mean, less 1.")],
        links=_only_job(),
    )  # fmt: skip


def _steps(cluster: Cluster) -> Built:
    job = f"$tag_{schema.JOB}"
    period, error = newest(schema.STEP_PERIOD), newest(schema.STEP_ERROR)
    edges = tuple(
        combined((period, error), sign, name, Unit.SECONDS) for sign, name in (("+", "upper"), ("-", "lower"))
    )
    return panels.time_series(
        cluster,
        Face(
            "steps", "Length of a training step",
            "The period in which all nodes compute and exchange, from sFlow's samples by the second; the dashed lines "
            "are its 95 % confidence.",
            f"Nothing is drawn without sFlow, without a clear period, or for steps under {SHORTEST:g} s; those of 1 to "
            "2 s may show as longer ones.",
            "Thin lines: earlier runs of the class, and the limit. Longer steps: look at stragglers and at loading.",
            x=12, y=TOP + 6, w=12, h=7, links=(to_board("stragglers", keep=(var.JOB,)),),
        ),
        [
            _over_time(cluster, newest(schema.STEP_PERIOD), "Seconds of a step."),
            *(
                Select(schema.STEP, schema.RAW)
                .take(newest(field))
                .where(chosen(schema.JOB, var.JOB))
                .by(schema.JOB)
                .over_time(cluster, meaning, alias=f"{job} {name}", settled=False)
                .at_least(EVERY)
                for field, name, meaning in (
                    (schema.STEP_EXPECTED, _EXPECTED, "What earlier runs of the class took."),
                    (schema.STEP_LIMIT, _LIMIT, "Longer steps make the job slow."),
                )
            ),
            *(_over_time(cluster, edge, "Edge of its confidence.", f"{job} ± 95 %") for edge in edges),
        ],
        unit=Unit.SECONDS,
        overrides=[
            panels.override(f"/ {_EXPECTED}$/", color=panels.fixed(DIM), custom__lineWidth=1, custom__fillOpacity=0),
            panels.override(f"/ {_LIMIT}$/", color=panels.fixed(LOOK), custom__lineWidth=1, custom__fillOpacity=0),
            panels.override(
                "/ ± 95 %$/", color=panels.fixed(DIM), custom__lineStyle={"fill": "dash", "dash": [4, 6]},
                custom__lineWidth=1, custom__fillOpacity=0,
            )
        ],
        links=_only_job(),
        minimum=None,
        missing="no step resolved: it takes sFlow of the compute network",
    )  # fmt: skip


def incast(cluster: Cluster) -> Built:
    """Return the bursts into storage endpoints, largest first."""
    limits = cluster.thresholds
    bursts = (
        Select(schema.BURST, schema.RAW)
        .take(
            highest(schema.EVENT_BYTES), highest(schema.EVENT_SOURCES), highest(schema.EVENT_SECONDS),
            highest(schema.TOP_SHARE), newest(schema.TYPICAL_SHARE),
        )
        .where(compare(schema.EVENT_BYTES, ">", 0))
        .by(schema.DST, schema.DST_GROUP, schema.SRC_GROUP)
    )  # fmt: skip
    groups = panels.group_words(cluster)
    return panels.table(
        cluster,
        Face(
            "incast", "Incast: many nodes into one storage endpoint",
            f"Endpoints to which {limits.incast_sources} nodes or more wrote at once while the others idled; it alerts "
            f"above {format_size(limits.incast_bytes)}.",
            "A checkpoint that all endpoints take in as usual is none; a storage of one endpoint is not judged.",
            "Look at mounts and striping: why do they all write there?",
            x=12, y=TOP + 13, w=12, h=7, links=(
                to_alerts(), to_board("checkpoints", keep=(var.JOB,)),
            ),
        ),
        [bursts.per_series("Bursts into an endpoint.").as_table()],
        [
            panels.Column(
                schema.DST, "Endpoint", links=(to_board("explore", node=row(schema.DST)),), width=130
            ),
            panels.Column(schema.DST_GROUP, "Storage", mappings=(groups,)),
            panels.Column(schema.SRC_GROUP, "Written by", mappings=(groups,)),
            panels.Column(schema.EVENT_SOURCES.name, "Nodes", Unit.COUNT, width=80),
            panels.Column(schema.EVENT_BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.EVENT_SECONDS.name, "For", Unit.SECONDS, width=84),
            panels.Column(schema.TOP_SHARE.name, "Its share", Unit.RATIO, width=90),
            panels.Column(schema.TYPICAL_SHARE.name, "Usually", Unit.RATIO, width=90),
        ],
        order=TableOrder(schema.EVENT_BYTES.name),
    )  # fmt: skip


def _disturbances(cluster: Cluster) -> Built:
    """Return who sends to nodes of a job that is not theirs, the most first."""
    limits = cluster.thresholds
    tags = (schema.KIND, schema.SRC, schema.SRC_GROUP, schema.FROM_JOB, schema.DST, schema.JOB)
    sent = (
        Select(schema.DISTURBANCE, schema.RAW)
        .take(highest(schema.EVENT_BYTES), highest(schema.EVENT_SOURCES), highest(schema.EVENT_SECONDS))
        .where(chosen(schema.JOB, var.JOB), compare(schema.EVENT_BYTES, ">", 0))
        .by(*tags)
    )
    kinds = {
        Disturber.OTHER_JOB.value: "another job", Disturber.UNALLOCATED.value: "in no job",
        Disturber.GROUP.value: "group, compute plane",
    }  # fmt: skip
    words = panels.words({one: (text, DIM) for one, text in kinds.items()})
    only = to_board("training", "Only this job", job=row(schema.JOB))
    return panels.table(
        cluster,
        Face(
            "disturbances", "Who disturbs whom: traffic into jobs from others",
            f"The most that others sent to nodes of a job within {format_duration(limits.disturbance_window)}; it "
            f"alerts above {format_size(limits.disturbance_bytes)}.",
            "Only jobs whose source tells of them; that a job suffers is not said, nor what is not among a node's "
            "largest pairs.",
            "If the job lost time meanwhile, its loss is under `disturbed` on Capacity & cost.",
            x=0, y=TOP + 44, w=24, h=7, links=(to_alerts(), to_board("capacity")),
        ),
        [sent.per_series("What others sent.").as_table()],
        [
            panels.Column(schema.KIND, "Who", mappings=(words,)),
            panels.Column(schema.SRC, "Source", links=(to_board("explore", node=row(schema.SRC)),)),
            panels.Column(schema.SRC_GROUP, "Group", mappings=(panels.group_words(cluster),)),
            panels.Column(schema.FROM_JOB, "Its job"),
            panels.Column(schema.DST, "Destination", links=(to_board("explore", node=row(schema.DST)),)),
            panels.Column(schema.JOB, "Disturbed job", links=(only,)),
            panels.Column(schema.EVENT_SOURCES.name, "Nodes", Unit.COUNT, width=80),
            panels.Column(schema.EVENT_BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.EVENT_SECONDS.name, "For", Unit.SECONDS, width=84),
        ],
        order=TableOrder(schema.EVENT_BYTES.name),
    )  # fmt: skip


def _marks(cluster: Cluster) -> Built:
    """Return the nodes whose packets switches mark most: their way is congested."""
    share = ratio((schema.MARKED_PACKETS,), schema.PACKETS, schema.TOP_SHARE.name)
    # Single seconds of all nodes are many: a short range answers at once.
    sent = Select(schema.PULSE, schema.RAW).take(total(schema.MARKED_PACKETS), total(schema.PACKETS), share)
    return panels.table(
        cluster,
        Face(
            "marks", "ECN marks by node, 10 min",
            "Packets of each node to its own group that a switch marked as having met congestion, the most first.",
            "sFlow only, scaled from samples; the network marks only where ECN is set up.",
            "Many marks at one node: look at its link and rail; at all: at the spine and at what else runs.",
            x=0, y=TOP + 51, w=12, h=7, links=(to_board("capacity"),), since="10m",
        ),
        [top_rows(sent.by(schema.NODE, schema.GROUP))],
        [
            panels.Column(schema.NODE, "Node", links=(to_board("explore", node=row(schema.NODE)),)),
            panels.Column(schema.GROUP, "Group", mappings=(panels.group_words(cluster),)),
            panels.Column(schema.MARKED_PACKETS.name, "Marked", Unit.COUNT, Cell.BAR),
            panels.Column(schema.PACKETS.name, "Packets", Unit.COUNT, width=110),
            panels.Column(schema.TOP_SHARE.name, "Share", Unit.RATIO, width=90),
        ],
        order=TableOrder(schema.MARKED_PACKETS.name),
    )  # fmt: skip


def _rails_low(cluster: Cluster) -> Built:
    """Return the rails that carry less than they should, by node."""
    limits = cluster.thresholds
    low = (
        Select(schema.RAIL_LOW, schema.RAW)
        .take(*map(highest, (schema.RAIL_MISSING, schema.RAIL_EXPECTED)), lowest(schema.RAIL_SENT))
        .where(chosen(schema.JOB, var.JOB), compare(schema.RAIL_MISSING, ">", 0))
        .by(schema.JOB, schema.NODE, schema.RAIL)
    )
    only = to_board("training", "Only this job", job=row(schema.JOB))
    return panels.table(
        cluster,
        Face(
            "rails_low", "Low rails by node",
            "What a rail lacks of what the node's other rails and the job's other nodes say, at worst, within "
            f"{format_duration(limits.rail_low_window)}; it alerts above {limits.rail_low:.0%}.",
            "Needs `rail` at the addresses; a rail that half of the nodes lack, and a link at half rate, do not show.",
            "Look at link, optics and port of that rail.",
            x=12, y=TOP + 51, w=12, h=7, links=(to_alerts(), to_board("capacity")),
        ),
        [low.per_series("The worst of a rail.").as_table()],
        [
            panels.Column(schema.NODE, "Node", links=(to_board("explore", node=row(schema.NODE)),)),
            panels.Column(schema.RAIL, "Rail", width=60),
            panels.Column(schema.JOB, "Job", links=(only,)),
            panels.Column(schema.RAIL_MISSING.name, "Missing", Unit.RATIO, Cell.COLOUR,
                          limit=panels.Limit(act=limits.rail_low), width=90),
            panels.Column(schema.RAIL_SENT.name, "Sent", Unit.BYTES, width=100),
            panels.Column(schema.RAIL_EXPECTED.name, "Expected", Unit.BYTES, width=100),
        ],
        order=TableOrder(schema.RAIL_MISSING.name),
    )  # fmt: skip


def _packet_sizes(cluster: Cluster) -> Built:
    """Return what a node's packets hold, the smallest first: a wrong MTU stands out from its peers."""
    limits = cluster.thresholds
    training = [group.id for group in cluster.groups_with(Role.TRAINING)]
    size = ratio((schema.TX_BYTES,), schema.TX_PACKETS, schema.BYTES.name)
    sent = (
        Select(schema.NODE_TRAFFIC, schema.RAW)
        .take(replace(size, unit=Unit.BYTES), total(schema.TX_PACKETS))
        .where(is_in(schema.GROUP, training), is_in(schema.PEER_GROUP, training), compare(schema.TX_PACKETS, ">", 0))
        .by(schema.NODE, schema.GROUP)
    )
    return panels.table(
        cluster,
        Face(
            "packet_sizes", "Packet size by node, 10 min",
            "Bytes a packet that each node sent to training nodes, the smallest first: compare it with its peers.",
            f"A mean: acknowledgements count, the alert leaves them out. It fires {limits.packet_size_low:.0%} below "
            "a job's median: 1,500 among 4,200 or 9,000 is another MTU.",
            "Look at the MTU of the node's interfaces and of its port.",
            x=0, y=TOP + 58, w=24, h=7, links=(to_alerts(), to_board("explore")), since="10m",
        ),
        [sent.per_series("Packets of a node.").as_table()],
        [
            panels.Column(schema.NODE, "Node", links=(to_board("explore", node=row(schema.NODE)),)),
            panels.Column(schema.GROUP, "Group", mappings=(panels.group_words(cluster),)),
            panels.Column(schema.BYTES.name, "Bytes a packet", Unit.BYTES, Cell.BAR),
            panels.Column(schema.TX_PACKETS.name, "Packets", Unit.COUNT, width=110),
        ],
        order=TableOrder(schema.BYTES.name, ascending=True),
    )  # fmt: skip


def _changed_pairs(cluster: Cluster) -> Built:
    """Return who began and who stopped to send to whom, the newest first."""
    pairs = (
        Select(schema.CHANGED_PAIR, schema.RAW)
        .take(moment(lowest(schema.COMPARED_AT)), highest(schema.PAIR_BEFORE), highest(schema.PAIR_NOW))
        .where(chosen(schema.JOB, var.JOB), compare(schema.COMPARED_AT, ">", 0))
        .by(schema.JOB, schema.KIND, schema.SRC, schema.DST)
    )
    words = panels.words({Neighbour.NEW.value: ("new", DIM), Neighbour.GONE.value: ("gone", LOOK)})
    only = to_board("training", "Only this job", job=row(schema.JOB))
    return panels.table(
        cluster,
        Face(
            "changed_pairs", "Changed pairs: who began, who stopped to send to whom",
            "Pairs of a job that carry a tenth of their sender's bytes and none ten minutes ago, or the reverse.",
            "The 20 largest at each look; a change is told for ten minutes, after a pause against what was before it.",
            "Expected after a restart; else compare the job's rank file with the pairs that are gone.",
            x=0, y=TOP + 65, w=24, h=8, links=(to_board("stragglers", keep=(var.JOB,)),),
        ),
        [pairs.per_series("A changed pair.").as_table()],
        [
            panels.Column(schema.COMPARED_AT.name, "Since", Unit.MOMENT, width=170),
            panels.Column(schema.JOB, "Job", links=(only,)),
            panels.Column(schema.KIND, "Change", mappings=(words,), width=90),
            panels.Column(schema.SRC, "From", links=(to_board("explore", node=row(schema.SRC)),)),
            panels.Column(schema.DST, "To", links=(to_board("explore", node=row(schema.DST)),)),
            panels.Column(schema.PAIR_BEFORE.name, "A minute before", Unit.BYTES, Cell.BAR),
            panels.Column(schema.PAIR_NOW.name, "A minute now", Unit.BYTES, Cell.BAR),
        ],
        order=TableOrder(schema.COMPARED_AT.name),
    )  # fmt: skip
