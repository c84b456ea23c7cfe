"""Panels about what a job is made of, told from packet samples: roles, steps, who sends to whom, who holds it up."""

from analysis.detectors.roles.role_watch import EVERY, LOOK
from app.units import format_duration
from cluster.model import Cluster, Exporter, ExportProtocol, Plane
from dashboards import panels
from dashboards import variables as var
from dashboards.links import Link, clicked, row, to_alerts, to_board
from dashboards.palette import DIM
from dashboards.panels import Built, Cell, Face, TableOrder
from dashboards.parts import ends
from store import schema
from store.influxql import Query, Select, Unit, chosen, highest, newest
from store.schema import Field, Measurement

TOP = 82
"""Where they begin on the Training run board: below those about collectives."""

_NEWEST = "7m"
"""Holds the newest look at every running job, and no older one for long."""

_MOST_STAGES = 16
"""Columns of the matrix."""

_MISSING = "no steps told: it takes samples between nodes of a running job, and the bridge on the analysis' machine"
_WHERE = f"From sFlow's samples of {format_duration(LOOK)}, told every {format_duration(EVERY)}: "


def all_panels(cluster: Cluster) -> tuple[Built, ...]:
    """Return the panels in the order of the board; none where nobody sends sFlow of the compute network."""
    if cluster.exporters and not any(map(_samples_compute, cluster.exporters)):
        return ()
    return (_verdicts(cluster), _lengths(cluster), _exchange(cluster), _roles(cluster), _matrix(cluster))


def _samples_compute(exporter: Exporter) -> bool:
    planes = [interface.plane for interface in exporter.interfaces]
    return exporter.protocol is ExportProtocol.SFLOW and (not planes or Plane.COMPUTE in planes)


def _of_job(measurement: Measurement) -> Select:
    return Select(measurement, schema.RAW).where(chosen(schema.JOB, var.JOB))


def _only_job() -> tuple[Link, ...]:
    return (to_board("training", "Only this job", job=row(schema.JOB)),)


def _verdicts(cluster: Cluster) -> Built:
    query = _of_job(schema.JOB_VERDICT).take(*map(newest, schema.JOB_VERDICT.fields)).by(schema.JOB, schema.PLACE)
    return panels.table(
        cluster,
        Face(
            "role_verdicts", "Who holds the job up, beside nodes of its role",
            f"{_WHERE}node, dead rail, link, whole job, or an imbalance of its stages that is nobody's fault.",
            "Which node of a ring has a slow link, or is slow by less than 15 % in the first stage, cannot be told.",
            "`clusterflow jobs show JOB` tells it anew, for any ten minutes of the last two hours.",
            x=0, y=TOP, w=24, h=6, links=(to_alerts(), to_board("stragglers", keep=(var.JOB,))), since=_NEWEST,
        ),
        [query.per_series("Verdicts on a job.").as_table()],
        [
            panels.Column(schema.JOB, "Job", links=_only_job(), width=160),
            panels.Column(schema.BLAME.name, "Verdict", width=200),
            panels.Column(schema.CULPRITS.name, "Nodes", width=240),
            panels.Column(schema.CULPRIT_RAIL.name, "Rail", Unit.COUNT, width=70),
            panels.Column(schema.SURE.name, "Sure", Unit.RATIO, width=80),
            panels.Column(schema.EVIDENCE.name, "Evidence"),
        ],
        order=TableOrder(schema.SURE.name),
        missing=_MISSING,
    )  # fmt: skip


def _over_time(cluster: Cluster, field: Field, meaning: str, alias: str) -> Query:
    select = _of_job(schema.JOB_STEPS).take(highest(field)).by(schema.JOB)
    return select.over_time(cluster, meaning, alias=alias, settled=False)


def _lengths(cluster: Cluster) -> Built:
    job = f"$tag_{schema.JOB}"
    return panels.time_series(
        cluster,
        Face(
            "role_steps", "Each step's length",
            "How long steps took, from the end of one exchange to the next: the usual one, and the longest, thin.",
            "Steps under 0.3 s, and jobs without bursts, are not told.",
            "A spike is a step in which somebody was late; verdicts above say who is late again and again.",
            x=0, y=TOP + 6, w=14, h=8, links=(to_board("stragglers", keep=(var.JOB,)),),
        ),
        [
            _over_time(cluster, schema.STEP_LENGTH, "Median step of the window.", job),
            _over_time(cluster, schema.STEP_LONGEST, "Longest step of the window.", f"{job} longest"),
        ],
        unit=Unit.SECONDS,
        overrides=[
            panels.override("/ longest$/", color=panels.fixed(DIM), custom__lineWidth=1, custom__fillOpacity=0),
        ],
        links=(to_board("training", "Only this job", job=clicked(schema.JOB)),),
        missing=_MISSING,
    )  # fmt: skip


def _exchange(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "role_exchange", "Share of a step spent on its last exchange",
            "The part of a step from the begin of the exchange of gradients to its end, when nobody computes.",
            "Traffic that overlaps with computing is not in it.",
            "Where it grows while steps do: look at links and rails.",
            x=14, y=TOP + 6, w=10, h=8, links=(to_board("capacity"),),
        ),
        [_over_time(cluster, schema.EXCHANGE, "Share of a step.", f"$tag_{schema.JOB}")],
        unit=Unit.RATIO,
        links=(to_board("training", "Only this job", job=clicked(schema.JOB)),),
        missing=_MISSING,
    )  # fmt: skip


def _roles(cluster: Cluster) -> Built:
    query = _of_job(schema.JOB_ROLE).take(*map(newest, schema.JOB_ROLE.fields)).by(schema.JOB, schema.NODE)
    return panels.table(
        cluster,
        Face(
            "roles", "What each node does",
            f"{_WHERE}its stage, its pipeline and its data-parallel group, both named by their first node.",
            "Tensor parallelism inside a host is not seen. At most 50 rows are shown.",
            "Stage -1: its place is not told.",
            x=0, y=TOP + 14, w=10, h=10, links=(to_board("explore"),), since=_NEWEST,
        ),
        [query.per_series("Role of a node.").as_table()],
        [
            ends.node(schema.NODE, "Node"),
            panels.Column(schema.ROLE_STAGE.name, "Stage", Unit.COUNT, width=80),
            panels.Column(schema.ROLE_PIPELINE.name, "Pipeline of"),
            panels.Column(schema.ROLE_RING.name, "Ring of"),
            panels.Column(schema.RING_NODES.name, "Nodes in it", Unit.COUNT, width=100),
            panels.Column(schema.JOB, "Job", links=_only_job()),
        ],
        order=TableOrder(schema.ROLE_STAGE.name, ascending=True),
        missing=_MISSING,
    )  # fmt: skip


def _matrix(cluster: Cluster) -> Built:
    query = _of_job(schema.JOB_PAIR).take(highest(schema.ROLE_BYTES)).by(schema.SRC_STAGE, schema.DST_STAGE)
    corner = f"{schema.SRC_STAGE}\\{schema.DST_STAGE}"
    matrix = {
        "rowField": schema.SRC_STAGE, "columnField": schema.DST_STAGE, "valueField": schema.ROLE_BYTES.name,
        "emptyValue": "null",
    }  # fmt: skip
    return panels.table(
        cluster,
        Face(
            "role_matrix", "Bytes between stages",
            f"{_WHERE}from stage (row) to stage (column) within {format_duration(LOOK)}. The diagonal is "
            "data-parallel, beside it lies the pipeline.",
            f"Of several jobs, the largest: choose one. The first {_MOST_STAGES} stages.",
            "A cell that should be empty: look at how the job maps ranks to nodes.",
            x=10, y=TOP + 14, w=14, h=10, links=(to_board("explore"),), since=_NEWEST,
        ),
        [query.per_series("Bytes between stages.").as_table()],
        [
            panels.Column(corner, "from \\ to", width=100),
            *(panels.Column(str(stage), str(stage), Unit.BYTES, Cell.BAR) for stage in range(_MOST_STAGES)),
        ],
        # Rows and columns come as they are met.
        before=[
            *(
                panels.ordered(side, ascending=True)
                for side in (schema.DST_STAGE, schema.SRC_STAGE)
            ),
            {"id": "groupingToMatrix", "options": matrix},
        ],
        missing=_MISSING,
    )  # fmt: skip
