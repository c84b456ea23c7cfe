"""Panels of the Training run board about a job as a whole: what it does, how fast it is, what it lost."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.boards import checkpoints
from dashboards.links import clicked, row, to_alerts, to_board
from dashboards.palette import ACT, COHORT_COLOURS, DIM
from dashboards.panels import Built, Cell, Face, Json, TableOrder
from dashboards.parts import node_states, transport
from store import schema
from store.influxql import (
    BITS,
    Column,
    Condition,
    Select,
    Unit,
    beside,
    chosen,
    combined,
    compare,
    highest,
    newest,
    scaled,
    total,
)
from store.schema import CohortState, NodeState

NOW = 120
"""Holds the newest row of every running job."""

_EXPECTED, _LIMIT = "expected", "limit"


def mapping() -> Json:
    """Return the value mapping of a cohort's states to words and colours."""
    return panels.words({state: (word, COHORT_COLOURS[state]) for state, word in schema.COHORT_STATE_WORDS.items()})


def _of_job() -> Condition:
    return chosen(schema.JOB, var.JOB)


def _stood() -> Condition:
    """Let verdicts on jobs pass, but no row that was taken back: those have no nodes."""
    return compare(schema.JOB_NODES, ">", 0)


def _cohort() -> Select:
    return Select(schema.COHORT, schema.RAW).where(_of_job(), _stood())


def tiles(cluster: Cluster) -> tuple[Built, ...]:
    """Return the first line: five numbers."""
    limits = cluster.thresholds
    name = f"$tag_{schema.JOB}"
    only = (to_board("training", "Only this job", job=clicked(schema.JOB)),)
    rates = map(newest, (schema.COHORT_RATE, schema.EXPECTED_RATE))
    ratio = combined(rates, "/", schema.COHORT_RATE.name, Unit.RATIO)
    many = limits.dropout_digest
    low = (NodeState.LOW, "low"), (NodeState.DOWN, "down")
    return (
        panels.stat(
            cluster,
            Face(
                "run_state", "The run now",
                "The verdict on each running job as a whole: learning, ok, slow, stalled, ended or blind.",
                f"{transport.training_note(cluster)} Loading and checkpoints are neither slow nor stalled.",
                "The charts below show since when, and against what.",
                x=0, y=0, w=5, h=4, links=(to_alerts(),), since=panels.newest(cluster, NOW),
            ),
            [_cohort().take(newest(schema.COHORT_STATE)).by(schema.JOB).per_series("Verdict on the job.", alias=name)],
            mappings=[mapping()],
            missing=("no job", DIM),
            links=only,
        ),
        panels.stat(
            cluster,
            Face(
                "run_rate", "Against earlier runs",
                "What the median node sends, over what it sent in earlier good runs of the class.",
                "While a class is learnt there is nothing to compare with. Other models need another class.",
                "The rate below is drawn with its expectation and its limit.",
                x=5, y=0, w=5, h=4, links=(to_alerts(),), since=panels.newest(cluster, NOW),
            ),
            [_cohort().take(ratio).by(schema.JOB).per_series("Rate over expectation.", alias=name)],
            missing=("learning", DIM),
            links=only,
        ),
        panels.stat(
            cluster,
            Face(
                "low_nodes", "Low or down",
                f"Nodes of running jobs below their own limit, and silent ones; above {many} of a job are one alert.",
                "Nodes behind a silent exporter, or shared with another job, are blind, and not counted.",
                "The Stragglers board ranks all nodes of a job.",
                x=10, y=0, w=4, h=4, links=(to_board("stragglers", keep=(var.JOB,)),),
                since=panels.newest(cluster, NOW),
            ),
            [node_states.counted(state, word, _of_job()) for state, word in low],
            unit=Unit.COUNT,
            missing=("no job", DIM),
            overrides=[node_states.count_colour(state, word) for state, word in low],
        ),
        panels.stat(
            cluster,
            Face(
                "checkpoint_age", "Last checkpoint",
                "For each running job, how long ago its last complete checkpoint began, or the job itself.",
                "Flow records show bytes on the wire: not whether they can be read again.",
                "Checkpoints & I/O holds them against their schedule.",
                x=14, y=0, w=5, h=4, links=(to_board("checkpoints", keep=(var.JOB,)),),
                since=panels.newest(cluster, NOW),
            ),
            [checkpoints.status().take(newest(schema.CHECKPOINT_AGE))
             .by(schema.JOB).per_series("Age of the last checkpoint.", alias=name)],
            missing=("no job", DIM),
            links=(to_board("checkpoints", "Its checkpoints", job=clicked(schema.JOB)),),
        ),
        panels.single(
            cluster,
            Face(
                "lost", "Dollars lost",
                f"GPU time that these jobs lost to dropouts, slowness and stalls, {price(cluster)}.",
                "All GPUs of a job are taken to wait while one of its nodes is low.",
                "The ledger below shows the causes.",
                x=19, y=0, w=5, h=4, links=(to_board("capacity"),),
            ),
            questions.stall_usd().where(_of_job()).per_series("USD lost."),
        ),
    )  # fmt: skip


def price(cluster: Cluster) -> str:
    """Return what a GPU-hour costs, in words."""
    return f"at {cluster.cost.usd_per_gpu_hour:g} USD a GPU-hour"


def phases(cluster: Cluster) -> Built:
    """Return what each job does over time."""
    return panels.state_timeline(
        cluster,
        Face(
            "phases", "What the job does",
            "Idle, loading, computing, or writing a checkpoint, by the job's own levels of traffic; or blind.",
            f"{transport.training_note(cluster)} Of several phases in a bin the later in this list is drawn.",
            "Checkpoints & I/O judges what was written.",
            x=0, y=4, w=11, h=5, links=(to_board("checkpoints", keep=(var.JOB,)),),
        ),
        [checkpoints.phase_states(cluster)],
        [checkpoints.phase_mapping()],
        links=(to_board("training", "Only this job", job=clicked(schema.JOB)),),
    )  # fmt: skip


def on_the_wall(cluster: Cluster) -> Built:
    """Return the verdict on the running jobs, for the wall: the two that are worst off."""
    query = Select(schema.COHORT, schema.RAW).take(newest(schema.COHORT_STATE)).where(_stood()).by(schema.JOB)
    return panels.stat(
        cluster,
        Face(
            "runs", "",
            "Learning, ok, slow, stalled, ended or blind: every job against earlier runs of its class, the worst two.",
            f"{transport.training_note(cluster)} A node alone is no verdict on all.",
            "Click a job for its rate, its phases and what it lost.",
            x=15, y=4, w=9, h=2, links=(to_board("training"),), since=panels.newest(cluster, NOW),
        ),
        [query.per_series("Verdict on the job.").as_table()],
        fields=f"/^{schema.COHORT_STATE.name}$/",
        each_row=2,
        mappings=[mapping()],
        missing=("no job", DIM),
        transformations=[
            panels.ordered(schema.COHORT_STATE.name)
        ],
        links=(to_board("training", "This run", job=row(schema.JOB)),),
        large=panels.Large(24, 20, wide=True, rows=True),
    )  # fmt: skip


def verdicts_over_time(cluster: Cluster) -> Built:
    """Return each job's verdict over time."""
    limits = cluster.thresholds
    query = _cohort().take(highest(schema.COHORT_STATE)).by(schema.JOB)
    return panels.state_timeline(
        cluster,
        Face(
            "run_states", "Verdict on the job as a whole",
            f"Slow alerts after {format_duration(limits.slowdown_for)}, stalled after "
            f"{format_duration(limits.stalled_for)}.",
            "A job that hangs and one that ended without telling look the same. A node alone is no verdict on all.",
            "Nodes stand below, each against its own past.",
            x=0, y=9, w=11, h=5, links=(to_alerts(),),
        ),
        [query.over_time(cluster, "Verdict on the job.", alias=f"$tag_{schema.JOB}", settled=False)],
        [mapping()],
        links=(to_board("training", "Only this job", job=clicked(schema.JOB)),),
    )  # fmt: skip


def standing(cluster: Cluster) -> Built:
    """Return where each job stands, in numbers."""
    columns = (
        newest(schema.COHORT_STATE), newest(schema.STATE_FOR), _bits(schema.COHORT_RATE), _bits(schema.EXPECTED_RATE),
        newest(schema.RUNS), newest(schema.SENDING), newest(schema.JOB_NODES),
        newest(schema.USD), newest(schema.STEP_SECONDS), newest(schema.STEP_BYTES),
    )  # fmt: skip
    return panels.table(
        cluster,
        Face(
            "standing", "The run in numbers",
            "Verdict, rate of the median node, what earlier runs predict, and what the verdict cost so far.",
            "A step's length and bytes follow from the declared size of the model; they are not measured.",
            "Click a job to see it alone.",
            x=11, y=4, w=13, h=10, links=(to_board("stragglers", keep=(var.JOB,)),), since=panels.newest(cluster, NOW),
        ),
        [_cohort().take(*columns).by(schema.JOB).per_series("Where a job stands.").as_table()],
        [
            panels.Column(
                schema.JOB, "Job",
                links=(
                    to_board("training", "Only this job", job=row(schema.JOB)),
                    to_board("stragglers", "Its stragglers", job=row(schema.JOB)),
                ),
            ),
            panels.Column(schema.COHORT_STATE.name, "State", Unit.STATE, Cell.COLOUR, (mapping(),), width=70),
            panels.Column(schema.STATE_FOR.name, "For", Unit.SECONDS, width=84),
            panels.Column(schema.COHORT_RATE.name, "Rate", Unit.BITS_PER_SECOND, width=78),
            panels.Column(schema.EXPECTED_RATE.name, "Expected", Unit.BITS_PER_SECOND, width=82),
            panels.Column(schema.USD.name, "Lost", Unit.USD, width=60),
            panels.Column(schema.SENDING.name, "Sending", Unit.COUNT, width=72),
            panels.Column(schema.JOB_NODES.name, "Nodes", Unit.COUNT, width=60),
            panels.Column(schema.RUNS.name, "Runs", Unit.COUNT, width=55),
            panels.Column(schema.STEP_SECONDS.name, "Step", Unit.SECONDS, width=84),
            panels.Column(schema.STEP_BYTES.name, "Sent a step", Unit.BYTES, width=80),
        ],
        order=TableOrder(schema.COHORT_STATE.name),
    )  # fmt: skip


def _bits(field: schema.Field) -> Column:
    return scaled(newest(field), f"{BITS}", field.name, Unit.BITS_PER_SECOND)


def rate(cluster: Cluster) -> Built:
    """Return the rate of each job with its expectation and its limit."""
    job = f"$tag_{schema.JOB}"
    series = (
        (schema.COHORT_RATE, job),
        (schema.EXPECTED_RATE, f"{job} {_EXPECTED}"),
        (schema.LOWER_RATE, f"{job} {_LIMIT}"),
    )
    return panels.time_series(
        cluster,
        Face(
            "rate", "Rate of the median node: observed, expected, limit",
            "What the cohort's median node sends a second; the dashed lines are what earlier good runs of the class "
            "predict, and the limit below which the job is slow.",
            "While the job loads or writes a checkpoint, the last rate is held. A class that is learnt has no limit.",
            "If it is low, look at what all nodes share; if one node is low, at that node.",
            x=0, y=14, w=11, h=9, links=(to_alerts(),),
        ),
        [
            # A blind window holds the last rate; the chart shows a gap instead.
            _cohort().take(_bits(field)).where(compare(schema.COHORT_STATE, "<", CohortState.BLIND)).by(schema.JOB)
            .over_time(cluster, field.text, alias=alias, settled=False)
            for field, alias in series
        ],
        unit=Unit.BITS_PER_SECOND,
        overrides=[
            panels.override(
                f"/ {word}$/", color=panels.fixed(colour), custom__lineStyle={"fill": "dash", "dash": dash},
                custom__lineWidth=1, custom__fillOpacity=0,
            )
            for word, colour, dash in ((_EXPECTED, DIM, [8, 6]), (_LIMIT, ACT, [4, 6]))
        ],
        links=(to_board("training", "Only this job", job=clicked(schema.JOB)),),
    )  # fmt: skip


def stalls(cluster: Cluster) -> Built:
    """Return what each job lost, by cause."""
    by = (schema.JOB, schema.CAUSE)
    ledger = Select(schema.STALL, schema.STALL.kept).where(_of_job(), compare(schema.LOST_SECONDS, ">", 0))
    gpus = highest(schema.STALL_GPUS)
    return panels.table(
        cluster,
        Face(
            "stalls", "What it lost, by cause",
            f"Time that each job lost in this range, and what its GPUs cost meanwhile, {price(cluster)}.",
            "All GPUs of a job are taken to wait while one of its nodes is low: an upper bound.",
            "Capacity & cost adds up months.",
            x=11, y=14, w=13, h=9, links=(to_board("capacity"),),
        ),
        [ledger.take(total(schema.USD), total(schema.LOST_SECONDS), gpus).by(*by).per_series("A cause.").as_table()],
        [
            panels.Column(schema.JOB, "Job", links=(to_board("training", "Only this job", job=row(schema.JOB)),)),
            panels.Column(schema.CAUSE, "Cause", width=100),
            panels.Column(schema.USD.name, "Lost", Unit.USD, Cell.BAR),
            panels.Column(schema.LOST_SECONDS.name, "Time lost", Unit.SECONDS, width=110),
            panels.Column(schema.STALL_GPUS.name, "GPUs", Unit.COUNT, width=80),
        ],
        order=TableOrder(schema.USD.name),
    )  # fmt: skip


def checkpoint_list(cluster: Cluster) -> Built:
    """Return the checkpoints of the range."""
    fields = (
        schema.EVENT_BYTES, schema.EVENT_SECONDS, schema.EVENT_NODES, schema.EXPECTED_NODES, schema.CHECKPOINT_STATE,
    )  # fmt: skip
    listed = map(beside, fields)
    found = Select(schema.CHECKPOINT, schema.CHECKPOINT.kept).where(_of_job(), checkpoints.stood())
    return panels.table(
        cluster,
        Face(
            "checkpoints", "Checkpoints of the run",
            "Each checkpoint of the range: when it began, how much was written, by how many nodes, and the verdict.",
            "Flow records show bytes on the wire: not what was written, nor whether it can be read again.",
            "Checkpoints & I/O shows schedule, sizes and storage.",
            x=11, y=44, w=13, h=9, links=(to_board("checkpoints", keep=(var.JOB,)),),
        ),
        [found.take(*listed).by(schema.JOB).per_series("Checkpoints.").as_table()],
        [
            panels.Column(panels.TIME, "Began", "dateTimeAsIso", width=160),
            panels.Column(schema.JOB, "Job", links=(to_board("checkpoints", "Its checkpoints", job=row(schema.JOB)),)),
            panels.Column(schema.EVENT_BYTES.name, "Written", Unit.BYTES, Cell.BAR),
            panels.Column(schema.EVENT_SECONDS.name, "Took", Unit.SECONDS, width=84),
            panels.Column(schema.EVENT_NODES.name, "Nodes", Unit.COUNT, width=65),
            panels.Column(schema.EXPECTED_NODES.name, "Of", Unit.COUNT, width=60),
            panels.Column(
                schema.CHECKPOINT_STATE.name, "Verdict", Unit.STATE, Cell.COLOUR, (checkpoints.mapping(),), width=110
            ),
        ],
        order=TableOrder(panels.TIME),
    )  # fmt: skip
