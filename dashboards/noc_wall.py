"""NOC wall: one screen of 1920 x 1080 in kiosk mode, legible from three metres. Is the cluster healthy, what fires?"""

from cluster import schema
from cluster.model import Cluster, Role
from cluster.schema import NodeState
from dashboards import checkpoints, panels, questions, run_panels, states, transport
from dashboards.annotations import cohort_events, job_events
from dashboards.board import Page
from dashboards.egress import all_overrides, largest_and_all
from dashboards.links import clicked, row, to_alerts, to_board
from dashboards.matrix import matrix_panel
from dashboards.palette import ACT, BLIND, DIM, OTHER_COLOUR, QUIET, group_colours, group_titles, shade
from dashboards.panels import AlertView, Built, Face, Limit
from dashboards.queries import (
    Column,
    Condition,
    Query,
    Select,
    Unit,
    all_of,
    any_of,
    bit_rate,
    compare,
    count,
    event_rate,
    highest,
    is_in,
    newest,
    not_in,
    scaled,
    total,
)

BOARD = "noc_wall"

_PAIRS_SHOWN = 8

_RECENT = "15m"


def page(cluster: Cluster) -> Page:
    """Return the wall."""
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _traffic(cluster),
            _cohort_grid(cluster),
            run_panels.on_the_wall(cluster),
            _cohort(cluster),
            _alerts(cluster),
            _egress(cluster),
            matrix_panel(cluster, "matrix", x=16, y=13, w=8, h=8, since="1h"),
            *_pipeline_strip(cluster),
        ),
        since="6h",
        refresh="10s",
        annotations=(job_events(cluster), cohort_events(cluster)),
        tags=("wall",),
    )


# -- first line: six tiles -----------------------------------------------------------------------------


def _tiles(cluster: Cluster) -> list[Built]:
    limits = cluster.thresholds
    return [
        *(_firing(cluster, severity, x) for severity, x in (("critical", 0), ("warning", 2))),
        panels.stat(
            cluster,
            Face(
                "data_age", "Newest flow record",
                f"When the newest flow record of any exporter arrived, within the last {limits.ingest_silent} s.",
                "One live exporter is enough to look fresh here; blind means that nothing at all arrived.",
                "The pipeline board shows each exporter by itself.",
                x=4, y=0, w=4, h=4, links=(to_board("pipeline", "Pipeline"),), since=f"{limits.ingest_silent}s",
            ),
            [questions.newest_record().per_series("Arrival of the newest record.")],
            unit="dateTimeFromNow",
            missing=(f"blind > {limits.ingest_silent} s", ACT),
            text="value",
            links=(to_board("pipeline", "Pipeline"),),
        ),
        _cohort_counts(cluster),
        panels.stat(
            cluster,
            Face(
                "unknown_volume", f"Bytes to unknown destinations, {_minutes(limits.exfil_window)}",
                "What model storage sent to destinations in no group: in its largest conversation, in all.",
                "It says how much, not what; encrypted or split transfers look like any other.",
                "Egress & security names sources and destinations.",
                x=13, y=0, w=4, h=4, links=(to_board("egress", "Egress & security"),),
                since=f"{limits.exfil_window}s",
            ),
            largest_and_all(questions.sent_to_unknown(cluster, schema.RAW), questions.LISTED),
            limit=Limit(act=limits.exfil_volume, look=limits.exfil_volume / 2),
            missing=("none", QUIET),
            text="value_and_name",
            overrides=all_overrides(limits.exfil_volume),
            links=(to_board("egress", "Egress & security"),),
        ),
        panels.stat(
            cluster,
            Face(
                "checkpoint_age", "Last checkpoint",
                "How long ago the last complete checkpoint of any running job began, the longest, and how far it is "
                "beyond its time.",
                "Jobs without a schedule or a rhythm are not judged; flow records do not know whether one is good.",
                "Checkpoints & I/O shows each job against its schedule.",
                x=17, y=0, w=4, h=4, links=(to_board("checkpoints", "Checkpoints & I/O"),), since="2m",
            ),
            [checkpoints.oldest(), checkpoints.most_overdue()],
            missing=("no job", DIM),
            text="value_and_name",
            overrides=checkpoints.overdue_overrides(cluster),
            links=(to_board("checkpoints", "Checkpoints & I/O"),),
        ),
        panels.stat(
            cluster,
            Face(
                "stall_cost", "Lost to stalls today",
                f"GPU time that jobs lost to dropouts, slowness, stalls since midnight, {run_panels.price(cluster)}.",
                "All GPUs of a job are taken to wait while one of its nodes is low: an upper bound.",
                "Capacity & cost tells jobs and causes.",
                x=21, y=0, w=3, h=4, links=(to_board("capacity", "Capacity & cost"),), since="now/d",
            ),
            [questions.stall_usd().per_series("USD lost.")],
            missing=("none", QUIET),
            text="value",
            links=(to_board("capacity", "Capacity & cost"),),
        ),
    ]  # fmt: skip


def _minutes(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds % 60 == 0 else f"{seconds} s"


def _firing(cluster: Cluster, severity: str, x: int) -> Built:
    return panels.alert_list(
        cluster,
        Face(
            f"alerts_{severity}", severity.capitalize(),
            f"How many {severity} alert rules fire now.",
            "A rule with several sources counts once.",
            "The list below names them all.",
            x=x, y=0, w=2, h=4, links=(to_alerts(),),
        ),
        AlertView.NUMBER,
        labels=f'{{severity="{severity}"}}',
    )  # fmt: skip


def _cohort_counts(cluster: Cluster) -> Built:
    shown = (
        (NodeState.OK, Limit()),
        (NodeState.LOW, Limit(look=1)),
        (NodeState.DOWN, Limit(act=1)),
        (NodeState.BLIND, Limit()),
        (NodeState.LEARNING, Limit()),
    )
    face = Face(
        "cohort_counts", "Training nodes",
        "Nodes of running jobs by their latest window: ok, low, down, blind (their exporter is silent), or learning.",
        f"{transport.training_note(cluster)} Nodes with too few earlier runs are learning: nothing judges them.",
        "The training board shows each node against its limit.",
        x=8, y=0, w=5, h=4, links=(to_board("training", "Training"),), since="2m",
    )  # fmt: skip
    overrides = []
    for state, limit in shown:
        word = schema.NODE_STATE_WORDS[state]
        steps = limit.steps()
        if state is NodeState.BLIND:
            steps.append({"value": 1, "color": BLIND})
        overrides.append(panels.override(word, thresholds={"mode": "absolute", "steps": steps}))
    return panels.stat(
        cluster,
        face,
        [_nodes_in(state) for state, _ in shown],
        unit=Unit.COUNT,
        missing=("-", DIM),
        text="value_and_name",
        overrides=overrides,
        links=(to_board("training", "Training"),),
    )


def _nodes_in(state: int) -> Query:
    """Count the nodes whose latest window has a state: 0 while others have one, nothing while no job runs."""
    nodes = "nodes"
    latest = Select(schema.BASELINE, schema.RAW).take(newest(schema.STATE)).by(schema.NODE)
    matching = Select(latest).take(count(schema.STATE, nodes)).where(compare(schema.STATE, "=", state))
    zero = Select(schema.BASELINE, schema.RAW).take(scaled(count(schema.STATE), "0", nodes, Unit.COUNT))
    word = schema.NODE_STATE_WORDS[state]
    column = Column(f'sum("{nodes}")', word, Unit.COUNT, (nodes,))
    return Select((matching, zero)).take(column).per_series(f"Nodes that are {word}.", alias=word)


# -- second line: traffic and cohort -------------------------------------------------------------------


def shown_pairs(cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """Return the group pairs that the wall names: collectives first, then what `allowed` lists, in its order."""
    pairs = [(group.id, group.id) for group in cluster.groups_with(Role.TRAINING)]
    known = {group.id for group in cluster.groups}
    pairs += [(pair.src, pair.dst) for pair in cluster.allowed if pair.src in known and pair.dst in known]
    return tuple(dict.fromkeys(pairs))[:_PAIRS_SHOWN]


def _is_pair(src: str, dst: str) -> Condition:
    return all_of(is_in(schema.SRC_GROUP, [src]), is_in(schema.DST_GROUP, [dst]))


def _is_not_pair(src: str, dst: str) -> Condition:
    return any_of(not_in(schema.SRC_GROUP, [src]), not_in(schema.DST_GROUP, [dst]))


def _traffic(cluster: Cluster) -> Built:
    pairs = shown_pairs(cluster)
    titles, colours = group_titles(cluster), group_colours(cluster)
    rate = Select(schema.TRAFFIC, schema.MINUTE).take(bit_rate(schema.BYTES))
    queries = [
        rate.where(*(_is_not_pair(src, dst) for src, dst in pairs)).over_time(
            cluster, "bit/s of all other group pairs.", alias="other"
        )
    ]
    if pairs:
        named = rate.where(any_of(*(_is_pair(src, dst) for src, dst in pairs)))
        alias = f"$tag_{schema.SRC_GROUP} → $tag_{schema.DST_GROUP}"
        queries.append(
            named.by(schema.SRC_GROUP, schema.DST_GROUP).over_time(cluster, "bit/s of a group pair.", alias=alias)
        )
    steps: dict[str, int] = {}
    overrides = [panels.override("other", color=panels.fixed(OTHER_COLOUR))]
    for src, dst in pairs:
        name = f"{titles[src]} → {titles[dst]}"
        colour = shade(colours[src], steps.setdefault(src, 0))
        steps[src] += 1
        overrides.append(panels.override(f"{src} → {dst}", displayName=name, color=panels.fixed(colour)))
    return panels.time_series(
        cluster,
        Face(
            "traffic", "Traffic by group pair",
            "Bit/s between groups, stacked: the pairs of cluster.yaml, everything else as other.",
            transport.note(cluster),
            "Click a line to explore that pair; the group matrix shows all pairs.",
            x=0, y=4, w=10, h=9,
            links=(
                to_board("explore", "Explore"), to_board("group_matrix", "Group matrix"),
                to_board("inference", "Inference"), to_board("inference_access", "Inference access"),
                to_board("capacity", "Capacity & cost"),
                to_board("coverage", "Coverage"),
            ),
        ),
        queries,
        stacked=True,
        overrides=overrides,
        links=(
            to_board("explore", "Explore this pair", src=clicked(schema.SRC_GROUP), dst=clicked(schema.DST_GROUP)),
        ),
    )  # fmt: skip


def _cohort_grid(cluster: Cluster) -> Built:
    latest = Select(schema.BASELINE, schema.RAW).take(newest(schema.STATE)).by(schema.NODE)
    return panels.stat(
        cluster,
        Face(
            "cohort_grid", "Nodes now, worst first",
            "Each node of the running jobs in its latest window.",
            transport.training_note(cluster),
            "Click a node for its share against its limit.",
            x=10, y=4, w=5, h=9,
            links=(to_board("training", "Training"), to_board("stragglers", "Stragglers")), since="2m",
        ),
        [latest.per_series("State of the node.").as_table()],
        fields=f"/^{schema.STATE.name}$/",
        text="name",
        each_row=256,
        background=True,
        mappings=[states.mapping()],
        missing=("no job", DIM),
        transformations=[states.worst_first()],
        links=(to_board("training", "This node", node=row(schema.NODE)),),
    )  # fmt: skip


def _cohort(cluster: Cluster) -> Built:
    return states.timeline(
        cluster,
        Face(
            "cohort", "Nodes of the running jobs",
            "State of every node over time: learning, ok, low, down, or blind where its exporter is silent.",
            f"{transport.training_note(cluster)} A gap means that no job ran.",
            "Click a node for observed, expected and limit.",
            x=15, y=8, w=9, h=5,
            links=(
                to_board("training", "Training"),
                states.stragglers(cluster),
            ),
        ),
    )  # fmt: skip


# -- third line: alerts, egress, matrix ----------------------------------------------------------------


def _alerts(cluster: Cluster) -> Built:
    return panels.alert_list(
        cluster,
        Face(
            "alerts", "Firing and about to fire",
            "Every alert that fires, is pending or cannot be evaluated, with its source, destination, job and node.",
            "Alerts that ended are in Grafana's alert history, not here.",
            "Open one for bytes, duration, the panel behind it and its runbook.",
            x=0, y=13, w=8, h=8,
            links=(
                to_alerts(), to_board("segmentation", "Segmentation"), to_board("management", "Management plane"),
            ),
        ),
        AlertView.LIST,
    )  # fmt: skip


def _egress(cluster: Cluster) -> Built:
    limits = cluster.thresholds
    rate = limits.exfil_volume * 8 / limits.exfil_window
    return panels.time_series(
        cluster,
        Face(
            "egress", "To the outside by destination group",
            "Bit/s from model storage and sensitive groups to approved and unknown destinations.",
            f"The dashed line is the mean rate that reaches the alert's volume within {_minutes(limits.exfil_window)};"
            " it is an alert for unknown destinations only.",
            "Egress & security names sources and destinations.",
            x=8, y=13, w=8, h=8,
            links=(to_board("egress", "Egress & security"), to_board("ledger", "Egress ledger")),
        ),
        [
            Select(schema.EGRESS, schema.MINUTE)
            .take(bit_rate(schema.BYTES))
            .where(is_in(schema.SRC_GROUP, questions.watched_ids(cluster)))
            .by(schema.DST_GROUP)
            .over_time(cluster, "bit/s to a destination group.", alias=f"$tag_{schema.DST_GROUP}")
        ],
        limit=Limit(act=rate),
        overrides=panels.group_series(cluster),
        links=(to_board("egress", "Egress & security"),),
    )  # fmt: skip


# -- fourth line: the pipeline -------------------------------------------------------------------------


def _pipeline_strip(cluster: Cluster) -> list[Built]:
    silent = cluster.thresholds.exporter_silent
    names = [exporter.name for exporter in cluster.exporters]
    to_pipeline = (to_board("pipeline", "Pipeline"),)
    exporters = Select(schema.EXPORTER_STATUS, schema.RAW)

    def strip(name: str, title: str, place: int, sentences: tuple[str, str, str], since: str = _RECENT) -> Face:
        shows, cannot, then = sentences
        return Face(name, title, shows, cannot, then, x=4 * place, y=21, w=4, h=4, links=to_pipeline, since=since)

    ages = questions.exporter_ages_now().where(is_in(schema.EXPORTER, names))
    alive = Select(ages).take(count(schema.AGE, "alive")).where(compare(schema.AGE, "<", silent))
    return [
        panels.stat(
            cluster,
            strip(
                "exporters_alive", "Exporters alive", 0,
                (
                    f"Exporters of cluster.yaml whose records arrived within the last {silent} s.",
                    "An exporter that sends, but lost half of its flows, counts as alive.",
                    "The pipeline board shows age and loss of each.",
                ),
                since=f"{silent}s",
            ),
            [alive.per_series("Exporters that are heard.")],
            unit=f"suffix: of {len(names)}",
            limit=Limit(act=len(names), below=True) if names else Limit(),
            missing=("blind", ACT),
            text="value",
            links=to_pipeline,
        ),
        panels.stat(
            cluster,
            strip(
                "flow_rate", "Flow records a second", 1,
                (
                    "Flow records received from all exporters.",
                    "Records lost before the collector are not in it.",
                    "The pipeline board splits it by exporter.",
                ),
            ),
            [exporters.take(event_rate(schema.EXPORTER_RECORDS)).over_time(cluster, "Records a second.")],
            sparkline=True,
            text="value",
            links=to_pipeline,
        ),
        panels.stat(
            cluster,
            strip(
                "lag", "Lag of records", 2,
                (
                    "From the end of a flow to the arrival of its record: the slowest exporter's mean.",
                    "It includes the exporter's own cache timeouts, which nobody here can shorten.",
                    "The pipeline board splits it by exporter.",
                ),
            ),
            [exporters.take(highest(schema.LAG)).over_time(cluster, "Seconds of lag.", alias="lag", settled=False)],
            sparkline=True,
            text="value",
            links=to_pipeline,
        ),
        panels.stat(
            cluster,
            strip(
                "lost", "Lost before us, 15 min", 3,
                (
                    "Records missing by gaps in the exporters' sequence numbers.",
                    "Exporters without sequence numbers lose in silence; NetFlow v9 losses are estimated.",
                    "The pipeline board names the exporter.",
                ),
            ),
            [exporters.take(total(schema.SEQ_LOST)).per_series("Records lost on the way.")],
            limit=Limit(look=1),
            text="value",
            links=to_pipeline,
        ),
        panels.stat(
            cluster,
            strip(
                "late", "Late bytes, 15 min", 4,
                (
                    "Bytes whose window was closed when they came; they were added to it all the same.",
                    "Numbers of the last minutes can still grow by as much.",
                    "The pipeline board names the exporter.",
                ),
            ),
            [exporters.take(total(schema.LATE_BYTES)).per_series("Bytes that came late.")],
            text="value",
            links=to_pipeline,
        ),
        panels.stat(
            cluster,
            strip(
                "dead_letters", "Dead letters, 15 min", 5,
                (
                    "Lines of the collector's output that were no flow records.",
                    "Their traffic is in no number of this wall.",
                    "The pipeline board gives the reasons; the dead-letter file has the lines.",
                ),
            ),
            [questions.dead_letters().per_series("Lines that were no flow records.")],
            missing=("none", QUIET),
            limit=Limit(look=1),
            text="value",
            links=to_pipeline,
        ),
    ]  # fmt: skip
