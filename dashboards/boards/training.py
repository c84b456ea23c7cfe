"""Training run: how a job goes, as a whole and node by node. Observed, expected and limit stand as alerts see them."""

from typing import Any

from analysis.jobs.job_windows import STOP
from cluster.model import Cluster, Role
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.boards.checkpoints import run_marks
from dashboards.links import clicked, row, to_alerts, to_board
from dashboards.palette import ACT, DIM, QUIET
from dashboards.panels import Built, Cell, Column, Face, TableOrder
from dashboards.parts import collectives, node_states, role_panels, run_panels, transport
from dashboards.parts.spread import node_spread, spread_overrides
from store import schema
from store.influxql import Select, Unit, any_of, beside, bit_rate, chosen, compare, is_in, moment, newest, says

BOARD = "training"

_EXPECTED = "expected"
_LIMIT = "limit"
_NOT_IN_LEGEND = {"legend": True, "tooltip": False, "viz": False}
"""Three names a node would fill the panel; the dashes say which line is which."""


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            *run_panels.tiles(cluster),
            run_panels.phases(cluster),
            run_panels.standing(cluster),
            run_panels.verdicts_over_time(cluster),
            run_panels.rate(cluster),
            run_panels.stalls(cluster),
            _cohort(cluster),
            _visibility(cluster),
            _observed_expected(cluster),
            _verdicts(cluster),
            _storage(cluster),
            run_panels.checkpoint_list(cluster),
            _compute(cluster),
            _jobs(cluster),
            *collectives.all_panels(cluster),
            *role_panels.all_panels(cluster),
        ),
        since="1h",
        variables=(
            var.stored(cluster, var.JOB, "Job", schema.BASELINE, schema.JOB),
            var.stored(cluster, var.NODE, "Node", schema.BASELINE, schema.NODE),
        ),
        annotations=run_marks(cluster, chosen(schema.JOB, var.JOB)),
        tags=("training",),
    )


def _of_job() -> tuple[Any, ...]:
    return (chosen(schema.JOB, var.JOB), chosen(schema.NODE, var.NODE))


def _cohort(cluster: Cluster) -> Built:
    return node_states.timeline(
        cluster,
        Face(
            "cohort", "Nodes of the job",
            "State of every node: learning, ok, low, down, or blind (exporter silent, or shared with another job).",
            f"{transport.training_note(cluster)} A gap means that no job ran.",
            "Click a node for its share against its limit, below.",
            x=0, y=23, w=17, h=10, links=(node_states.stragglers(cluster),),
        ),
        *_of_job(),
        keep=(var.JOB,),
    )  # fmt: skip


def _visibility(cluster: Cluster) -> Built:
    return panels.text(
        cluster,
        Face(
            "visibility", "What flow records see",
            "Which part of training traffic is visible at all.",
            "Nothing here measures transports; it repeats what cluster.yaml declares.",
            "The group matrix shows all pairs.",
            x=17, y=23, w=7, h=10, links=(to_board("group_matrix"),),
        ),
        transport.explanation(cluster),
    )  # fmt: skip


def _observed_expected(cluster: Cluster) -> Built:
    # A blind window holds the last share; the chart shows a gap instead.
    seen = compare(schema.STATE, "<", schema.NodeState.BLIND)
    are_many = node_states.are_many(cluster)
    node = f"$tag_{schema.NODE}"
    series = ((schema.OBSERVED, node), (schema.EXPECTED, f"{node} {_EXPECTED}"), (schema.LOWER, f"{node} {_LIMIT}"))
    queries = [
        node_states.shown(cluster, newest(field), *_of_job(), seen)
        .over_time(cluster, field.text, alias=alias, settled=False)
        .at_least(node_states.MINUTE)
        for field, alias in series
    ]  # fmt: skip
    return panels.time_series(
        cluster,
        Face(
            "observed_expected", "Share of the cohort's median: observed, expected, limit",
            "What each node sent over the median of its cohort; the dashed lines are what earlier good runs "
            "predict, and the limit.",
            "A cohort that slows as a whole keeps its shares: this cannot show it. "
            f"{f'{node_states.ONLY_LOW} ' if are_many else ''}{transport.training_note(cluster)}",
            "Choose one node above to see its three lines alone; the verdicts below give the numbers.",
            x=0, y=33, w=11, h=11, links=(node_states.stragglers(cluster), to_alerts()),
        ),
        [node_states.coarse(query) for query in queries],
        unit=Unit.RATIO,
        missing="no node is low or down" if are_many else "",
        overrides=[
            panels.override(
                f"/ {_EXPECTED}$/", color=panels.fixed(DIM), custom__lineStyle={"fill": "dash", "dash": [8, 6]},
                custom__lineWidth=1, custom__fillOpacity=0, custom__hideFrom=_NOT_IN_LEGEND,
            ),
            panels.override(
                f"/ {_LIMIT}$/", color=panels.fixed(ACT), custom__lineStyle={"fill": "dash", "dash": [4, 6]},
                custom__lineWidth=1, custom__fillOpacity=0, custom__hideFrom=_NOT_IN_LEGEND,
            ),
        ],
        links=(to_board("training", "Only this node", keep=(var.JOB,), node=clicked(schema.NODE)),),
    )  # fmt: skip


def _verdicts(cluster: Cluster) -> Built:
    fields = (
        schema.STATE, schema.OBSERVED, schema.EXPECTED, schema.LOWER, schema.SCORE, schema.RUNS, schema.LOW_FOR,
        schema.MISSING_BYTES,
    )  # fmt: skip
    # One selector reads each node once; one for each field, so many times.
    select = Select(schema.BASELINE, schema.RAW).take(newest(fields[0]), *map(beside, fields[1:]))
    select = select.where(*_of_job(), node_states.told())
    return panels.table(
        cluster,
        Face(
            "verdicts", "Last verdict on each node, worst first",
            "The last verdict on each node: share, what its past predicts, the limit, and how far below.",
            "With fewer earlier runs than `dropout_min_runs`, a node is learning and never alerts.",
            "Click a node to see only its lines.",
            x=11, y=33, w=13, h=11, links=(node_states.stragglers(cluster),),
        ),
        [select.by(schema.NODE, schema.JOB).per_series("Verdict on a node.").as_table()],
        [
            Column(
                schema.NODE, "Node", least=110,
                links=(
                    to_board("training", "Only this node", keep=(var.JOB,), node=row(schema.NODE)),
                    to_board("explore", "Explore this node", node=row(schema.NODE)),
                ),
            ),
            Column(schema.STATE.name, "State", Unit.STATE, Cell.COLOUR, (node_states.mapping(),), width=90),
            Column(schema.OBSERVED.name, "Observed", Unit.RATIO, width=95),
            Column(schema.EXPECTED.name, "Expected", Unit.RATIO, width=95),
            Column(schema.LOWER.name, "Limit", Unit.RATIO, width=80),
            Column(schema.SCORE.name, "Spreads below", Unit.COUNT, width=80, digits=1),
            Column(schema.LOW_FOR.name, "Low for", Unit.SECONDS, width=90),
            Column(schema.MISSING_BYTES.name, "Missing", Unit.BYTES, width=95),
            Column(schema.RUNS.name, "Runs", Unit.COUNT, width=70),
            Column(schema.JOB, "Job"),
        ],
        order=TableOrder(schema.STATE.name),
    )  # fmt: skip


def _compute(cluster: Cluster) -> Built:
    training = questions.role_ids(cluster, Role.TRAINING)
    nodes = Select(schema.NODE_TRAFFIC, schema.RAW).where(
        is_in(schema.GROUP, training), is_in(schema.PEER_GROUP, training), chosen(schema.NODE, var.NODE)
    )
    return panels.time_series(
        cluster,
        Face(
            "compute_traffic", "Training to training: fastest, median, slowest node",
            "Bit/s that the fastest, the median and the slowest node sent to other training nodes.",
            f"{transport.training_note(cluster)} Silent nodes are left out, short steps blur.",
            "The straggler link lists the nodes, the smallest sender first.",
            x=0, y=53, w=10, h=9, links=(node_states.stragglers(cluster),),
        ),
        [node_spread(cluster, nodes)],
        overrides=spread_overrides(),
    )  # fmt: skip


def _storage(cluster: Cluster) -> Built:
    training = questions.role_ids(cluster, Role.TRAINING)
    storage = questions.role_ids(cluster, Role.STORAGE)
    series = ((training, storage, "written to storage"), (storage, training, "read from storage"))
    return panels.time_series(
        cluster,
        Face(
            "checkpoint_traffic", "Checkpoints and data: training to storage and back",
            "Bit/s that training nodes write to storage (checkpoints) and read from it (data).",
            "All jobs together: the phases above show each job's checkpoints.",
            "Explore shows which nodes took part.",
            x=0, y=44, w=11, h=9, links=(to_board("explore"),),
        ),
        [
            questions.between(src, dst, schema.RAW)
            .take(bit_rate(schema.BYTES))
            .over_time(cluster, f"bit/s {name}.", alias=name)
            for src, dst, name in series
        ],
        overrides=[
            panels.override("written to storage", color=panels.fixed(QUIET)),
            panels.override("read from storage", color=panels.fixed("#44BB99")),
        ],
    )  # fmt: skip


def _jobs(cluster: Cluster) -> Built:
    running = panels.words({0: ("ended", DIM), 1: ("running", QUIET)})
    told = (schema.ACTIVE, schema.JOB_NODES, schema.JOB_GPUS, schema.JOB_OUTCOME, schema.JOB_ORIGIN)
    span = (schema.JOB_SINCE.name, schema.JOB_UNTIL.name)
    times = (moment(newest(field)) for field in (schema.JOB_SINCE, schema.JOB_UNTIL))
    # Rows of after its end, which is told later, were taken back.
    stood = any_of(compare(schema.ACTIVE, "=", 1), says(schema.JOB_EVENT, STOP))
    query = Select(schema.JOB_STATUS, schema.RAW).take(*(newest(field) for field in told), *times).where(stood)
    return panels.table(
        cluster,
        Face(
            "jobs", "Jobs in this range",
            "Jobs that ran in the time range, their class, size, outcome and source.",
            "An inferred job begins and ends minutes after its traffic; its outcome is unknown.",
            "Click a job for its nodes and its own time range; `clusterflow jobs` shows what each source says now.",
            x=10, y=53, w=14, h=9, links=(to_board("explore"),),
        ),
        [query.by(schema.JOB, schema.JOB_CLASS).per_series("A job.").as_table()],
        [
            Column(
                schema.JOB, "Job",
                links=(
                    to_board("training", "Only this job, all of it", span=span, job=row(schema.JOB)),
                    to_board("stragglers", "Its stragglers", span=span, job=row(schema.JOB)),
                    to_board("checkpoints", "Its checkpoints", span=span, job=row(schema.JOB)),
                    to_board("training", "Only this job, in this range", job=row(schema.JOB)),
                ),
            ),
            Column(schema.JOB_CLASS, "Class"),
            Column(schema.JOB_SINCE.name, "Started", Unit.MOMENT, width=152),
            Column(schema.JOB_UNTIL.name, "Until", Unit.MOMENT, width=152),
            Column(schema.ACTIVE.name, "State", Unit.STATE, Cell.COLOUR, (running,), width=75),
            Column(schema.JOB_NODES.name, "Nodes", Unit.COUNT, width=60),
            Column(schema.JOB_GPUS.name, "GPUs", Unit.COUNT, width=58),
            Column(schema.JOB_OUTCOME.name, "Outcome", width=85),
            Column(schema.JOB_ORIGIN.name, "Source", width=95),
        ],
        order=TableOrder(schema.ACTIVE.name),
    )  # fmt: skip
