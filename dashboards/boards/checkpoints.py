"""Checkpoints & I/O: did the checkpoints land, what a crash would cost now, and who uses storage with the jobs."""

from dataclasses import replace
from typing import Any

from app.units import format_duration
from cluster.model import Cluster, Role
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import clicked, row, to_alerts, to_board
from dashboards.palette import CHECKPOINT_COLOURS, DIM, OTHER_COLOUR, PHASE_COLOURS, QUIET
from dashboards.panels import Built, Cell, Face, Json, Limit, TableOrder
from dashboards.parts import ends, transport
from dashboards.parts.annotations import cohort_events, job_events, job_failures, marks
from store import schema
from store.influxql import (
    BITS,
    WHOLE_HOURS,
    Column,
    Condition,
    Query,
    Select,
    Unit,
    added,
    any_of,
    beside,
    bit_rate,
    chosen,
    compare,
    count,
    highest,
    is_in,
    newest,
    not_in,
    scaled,
    top_sums,
    total,
)
from store.schema import CheckpointState

BOARD = "checkpoints"

_NOW = 120
"""Holds the newest row of every running job."""
_DELAY = "against schedule"
_FAULTS = (
    CheckpointState.LATE,
    CheckpointState.MISSED,
    CheckpointState.SHORT,
    CheckpointState.OVER_LONG,
    CheckpointState.NODES_MISSING,
)
_CANNOT = "Flow records show bytes on the wire: not what was written, nor whether it can be read again."
_UNKNOWN = panels.words({0: ("unknown", DIM)})
"""A period or a size of nothing is one that is neither declared nor learnt."""


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _phases(cluster),
            _overdue_over_time(cluster),
            _age_over_time(cluster),
            _events(cluster),
            _standing(cluster),
            _sizes(cluster),
            _job_io(cluster),
            _competing(cluster),
            _endpoints(cluster),
            _endpoint_nodes(cluster),
            _tiers(cluster),
            _others(cluster),
            _loads(cluster),
        ),
        variables=(var.stored(cluster, var.JOB, "Job", schema.CHECKPOINT_STATUS, schema.JOB),),
        annotations=run_marks(cluster, _of_job()),
        tags=("training", "storage"),
    )


# -- what other boards share ---------------------------------------------------------------------------


def mapping() -> Json:
    """Return the value mapping of verdicts on checkpoints to words and colours."""
    return panels.words({state: (word, CHECKPOINT_COLOURS[state]) for state, word in schema.CHECKPOINT_WORDS.items()})


def phase_mapping() -> Json:
    """Return the value mapping of phases to words and colours."""
    return panels.words({phase: (word, PHASE_COLOURS[phase]) for phase, word in schema.PHASE_WORDS.items()})


def stood() -> Condition:
    """Let checkpoints pass, and those that were missed, but no row that was taken back."""
    return any_of(compare(schema.EVENT_BYTES, ">", 0), compare(schema.CHECKPOINT_STATE, "=", CheckpointState.MISSED))


def annotation(cluster: Cluster, *conditions: Condition) -> Json:
    """Return checkpoints that went wrong as marks on a board's charts: those of jobs that the conditions let pass.

    One that went well is no news: seventy lines of six hours hide what the charts show. *What the job does* has it.
    """
    amiss = [
        compare(schema.CHECKPOINT_STATE, "!=", state) for state in (CheckpointState.ON_TIME, CheckpointState.UNJUDGED)
    ]
    return marks(
        cluster,
        "Checkpoint late, missed or not whole",
        Select(schema.CHECKPOINT, schema.CHECKPOINT.kept)
        .take(beside(schema.EVENT_BYTES))
        .where(stood(), *amiss, *conditions),
        text=schema.JOB,
        tags=(schema.JOB_CLASS,),
        colour=PHASE_COLOURS[schema.Phase.CHECKPOINT],
    )


def run_marks(cluster: Cluster, *conditions: Condition) -> tuple[Json, ...]:
    """Return what the boards about jobs mark: starts and stops, verdicts, checkpoints; of jobs that pass."""
    return tuple(events(cluster, *conditions) for events in (job_events, job_failures, cohort_events, annotation))


def most_overdue(name: str = _DELAY, factor: str = "1") -> Query:
    """Return the seconds, times `factor`, by which the worst of the judged jobs is overdue; nothing if none is."""
    each = _judged().take(newest(schema.OVERDUE)).by(schema.JOB)
    largest = scaled(highest(schema.OVERDUE), factor, schema.OVERDUE.name, Unit.SECONDS)
    return Select(each).take(largest).per_series("The largest delay.", alias=name)


def on_schedule() -> Json:
    """Return the mapping of a delay of nothing."""
    return panels.words({0: ("on schedule", QUIET)})


def _judged() -> Select:
    return Select(schema.CHECKPOINT_STATUS, schema.RAW).where(compare(schema.IS_REGULAR, "=", 1))


def status() -> Select:
    """Return where the chosen jobs stand, nothing taken yet, without rows that were taken back: those have no age."""
    return Select(schema.CHECKPOINT_STATUS, schema.RAW).where(_of_job(), compare(schema.CHECKPOINT_AGE, ">", 0))


def _of_job() -> Condition:
    return chosen(schema.JOB, var.JOB)


def _checkpoints() -> Select:
    return Select(schema.CHECKPOINT, schema.CHECKPOINT.kept).where(_of_job(), stood())


def _phase() -> Select:
    return Select(schema.PHASE, schema.RAW).where(_of_job())


def _as_stored(*fields: schema.Field) -> tuple[Column, ...]:
    """Return fields of rows that are listed one by one."""
    return tuple(map(beside, fields))


def _training() -> tuple[Any, ...]:
    return (to_board("training", "Training", keep=(var.JOB,)),)


# -- tiles ---------------------------------------------------------------------------------------------


def _tiles(cluster: Cluster) -> list[Built]:
    limit = cluster.thresholds.checkpoint_overdue
    price = f"{cluster.cost.usd_per_gpu_hour:g} USD a GPU-hour"
    at_risk = Select(status().take(newest(schema.USD_AT_RISK)).by(schema.JOB)).take(total(schema.USD_AT_RISK))
    return [
        panels.stat(
            cluster,
            Face(
                "age", "Since the last complete checkpoint",
                "For each running job, how long ago its last complete checkpoint began, or the job itself.",
                f"{_CANNOT} {transport.note(cluster)}",
                "The chart below holds it against the period.",
                x=0, y=0, w=8, h=4, links=_training(), since=panels.newest(cluster, _NOW),
            ),
            [status().take(newest(schema.CHECKPOINT_AGE)).by(schema.JOB)
             .per_series("Age of the last checkpoint.", alias=f"$tag_{schema.JOB}")],
            missing=("no job", DIM),
            links=(to_board("checkpoints", "Only this job", job=clicked(schema.JOB)),),
        ),
        panels.stat(
            cluster,
            Face(
                "overdue", "Beyond its time",
                "How far each job is beyond the time its next checkpoint was due, tolerance included.",
                "Jobs without a schedule and without a rhythm of their own are not judged, and not shown.",
                f"It alerts from {format_duration(limit)} on; the table below shows which jobs are judged.",
                x=8, y=0, w=6, h=4, links=(to_alerts(),), since=panels.newest(cluster, _NOW),
            ),
            [_judged().where(_of_job()).take(newest(schema.OVERDUE)).by(schema.JOB)
             .per_series("Seconds overdue.", alias=f"$tag_{schema.JOB}")],
            limit=overdue_limit(cluster),
            mappings=[on_schedule()],
            missing=("not judged", DIM),
            links=(to_board("checkpoints", "Only this job", job=clicked(schema.JOB)),),
        ),
        panels.stat(
            cluster,
            Face(
                "at_risk", "At risk now",
                f"GPU time of the running jobs since their last complete checkpoints, at {price}.",
                "Work that a job saved elsewhere, or where flows do not see it, is counted as lost.",
                "The standing below shows each job.",
                x=14, y=0, w=4, h=4, links=_training(), since=panels.newest(cluster, _NOW),
            ),
            [at_risk.per_series("USD since the last checkpoints.")],
            missing=("no job", DIM),
            text="value",
        ),
        panels.stat(
            cluster,
            Face(
                "faults", "Not as they should be, 24 h",
                "Checkpoints of a day that came late or not at all, were short, took too long or lacked nodes.",
                "What is not declared is compared with earlier checkpoints, once there are three.",
                "The list below names them.",
                x=18, y=0, w=6, h=4, links=_training(), since="24h",
            ),
            [_faults(state) for state in _FAULTS],
            unit=Unit.COUNT,
            missing=("none", DIM),
            limit=Limit(look=1),
        ),
    ]  # fmt: skip


def overdue_limit(cluster: Cluster, unit: int = 1) -> Limit:
    """Return where a delay, in units of so many seconds, turns orange, and red: where the alert fires."""
    act = cluster.thresholds.checkpoint_overdue
    return Limit(act=act / unit, look=1 / unit) if act > 1 else Limit(act=1 / unit)


def _faults(state: int) -> Query:
    """Return how many checkpoints had a verdict: 0 while there are others, nothing while there are none at all."""
    word, found = schema.CHECKPOINT_WORDS[state], count(schema.CHECKPOINT_STATE, "found")
    matching = _checkpoints().where(compare(schema.CHECKPOINT_STATE, "=", state))
    zero = _checkpoints().take(scaled(found, "0", found.name, Unit.COUNT))
    both = Select((matching.take(found), zero)).take(total(found, word))
    return both.per_series(f"Checkpoints that were {word}.", alias=word)


# -- phases and schedule -------------------------------------------------------------------------------


def phase_states(cluster: Cluster) -> Query:
    """Return what the chosen jobs do over time, without rows that were taken back."""
    told = _phase().take(highest(schema.PHASE_STATE)).where(compare(schema.PHASE_STATE, ">=", schema.Phase.IDLE))
    return told.by(schema.JOB).over_time(cluster, "What the job does.", alias=f"$tag_{schema.JOB}", settled=False)


def _phases(cluster: Cluster) -> Built:
    return panels.state_timeline(
        cluster,
        Face(
            "phases", "Phases of the jobs",
            "Idle, loading, computing, or writing a checkpoint, by the job's own levels of traffic; or blind.",
            f"{transport.training_note(cluster)} Of several phases in a bin the later in this list is drawn.",
            "Click a job for its checkpoints; the training board shows its nodes.",
            x=0, y=4, w=14, h=7, links=_training(),
        ),
        [phase_states(cluster)],
        [phase_mapping()],
        links=(to_board("checkpoints", "Only this job", job=clicked(schema.JOB)),),
    )  # fmt: skip


def _overdue_over_time(cluster: Cluster) -> Built:
    limit = cluster.thresholds.checkpoint_overdue
    query = _judged().where(_of_job()).take(highest(schema.OVERDUE)).by(schema.JOB).over_time(
        cluster, "Seconds overdue.", alias=f"$tag_{schema.JOB}", settled=False
    )  # fmt: skip
    return panels.time_series(
        cluster,
        Face(
            "overdue_over_time", "Beyond the time the next one was due",
            "Seconds beyond due time and tolerance; the line is where it alerts.",
            "Time in which the job was idle, or storage traffic could not be seen, is left out.",
            "The list below shows what came last; then ask the job's log.",
            x=14, y=4, w=10, h=7, links=(to_alerts(),),
        ),
        [query],
        limit=Limit(act=limit),
        links=_training(),
    )  # fmt: skip


def _age_over_time(cluster: Cluster) -> Built:
    job, period = f"$tag_{schema.JOB}", schema.PERIOD.name
    series = (
        (status().take(highest(schema.CHECKPOINT_AGE)), job),
        (status().take(newest(schema.PERIOD)).where(compare(schema.PERIOD, ">", 0)), f"{job} {period}"),
    )
    return panels.time_series(
        cluster,
        Face(
            "age_over_time", "Age of the last complete checkpoint, and the period",
            "How old the last complete checkpoint was; dashed, the period that is declared or was learnt.",
            "Ages count from the begin of a checkpoint: what it holds is of that moment. Not every job has a period.",
            "A saw without teeth has no checkpoints: look at the job's writing below.",
            x=0, y=11, w=10, h=9, links=_training(),
        ),
        [
            asked.by(schema.JOB).over_time(cluster, "Seconds.", alias=alias, settled=False)
            for asked, alias in series
        ],
        unit=Unit.SECONDS,
        overrides=[
            panels.override(
                f"/ {period}$/", color=panels.fixed(DIM), custom__lineStyle={"fill": "dash", "dash": [8, 6]},
                custom__lineWidth=1, custom__fillOpacity=0,
            ),
        ],
    )  # fmt: skip


def _events(cluster: Cluster) -> Built:
    fields = (
        schema.CHECKPOINT_STATE, schema.EVENT_BYTES, schema.EXPECTED_BYTES, schema.EVENT_SECONDS, schema.EVENT_NODES,
        schema.EXPECTED_NODES, schema.GAP,
    )  # fmt: skip
    query = _checkpoints().take(*_as_stored(*fields)).by(schema.JOB, schema.JOB_CLASS)
    first = panels.words({0: ("the first", DIM)})
    return panels.table(
        cluster,
        Face(
            "events", "Checkpoints, newest first",
            "When each began, its verdict, and what it wrote against what was expected.",
            f"{_CANNOT} What to expect is not known before there were a few.",
            "Click a job for its own; nodes that are missing show on the training board.",
            x=10, y=11, w=14, h=9, links=_training(),
        ),
        [query.per_series("A checkpoint.").as_table()],
        [
            panels.Column(panels.TIME, "Began", Unit.MOMENT, width=160),
            panels.Column(
                schema.JOB, "Job", links=(to_board("checkpoints", "Only this job", job=row(schema.JOB)),)
            ),
            panels.Column(schema.CHECKPOINT_STATE.name, "Verdict", Unit.STATE, Cell.COLOUR, (mapping(),), width=115),
            panels.Column(schema.EVENT_BYTES.name, "Bytes", Unit.BYTES, Cell.BAR, width=140),
            panels.Column(schema.EXPECTED_BYTES.name, "Expected", Unit.BYTES, mappings=(_UNKNOWN,), width=90),
            panels.Column(schema.EVENT_SECONDS.name, "Took", Unit.SECONDS, width=84),
            panels.Column(schema.EVENT_NODES.name, "Nodes", Unit.COUNT, width=65),
            panels.Column(schema.EXPECTED_NODES.name, "Of", Unit.COUNT, width=55),
            panels.Column(schema.GAP.name, "After", Unit.SECONDS, mappings=(first,), width=90),
        ],
        order=TableOrder(panels.TIME),
    )  # fmt: skip


def _standing(cluster: Cluster) -> Built:
    judged = panels.words({0: ("no", DIM), 1: ("yes", QUIET)})
    fields = (
        schema.CHECKPOINT_AGE, schema.OVERDUE, schema.PERIOD, schema.REGULARITY, schema.IS_REGULAR, schema.LAST_BYTES,
        schema.JOB_GPUS, schema.USD_AT_RISK,
    )  # fmt: skip
    query = status().take(*(newest(one) for one in fields)).by(schema.JOB, schema.JOB_CLASS)
    return panels.table(
        cluster,
        Face(
            "standing", "Where each job stands",
            "Age against period, whether the job is judged by it, and what a crash now would cost.",
            f"Without a schedule, {cluster.thresholds.checkpoint_regularity:.0%} of at least eight gaps must be alike.",
            "Declare `checkpoint` under `job_classes` in cluster.yaml for a schedule that holds from the first hour.",
            x=0, y=20, w=14, h=8, links=_training(), since=panels.newest(cluster, _NOW),
        ),
        [query.per_series("Standing of a job.").as_table()],
        [
            panels.Column(
                schema.JOB, "Job", links=(to_board("checkpoints", "Only this job", job=row(schema.JOB)),)
            ),
            panels.Column(schema.JOB_CLASS, "Class", width=110),
            panels.Column(schema.CHECKPOINT_AGE.name, "Age", Unit.SECONDS, width=90),
            panels.Column(schema.PERIOD.name, "Period", Unit.SECONDS, mappings=(_UNKNOWN,), width=85),
            panels.Column(
                schema.OVERDUE.name, "Overdue", Unit.SECONDS, Cell.COLOUR, width=90, limit=overdue_limit(cluster)
            ),
            panels.Column(schema.IS_REGULAR.name, "Judged", Unit.STATE, Cell.TEXT, (judged,), width=75),
            panels.Column(schema.REGULARITY.name, "Regularity", Unit.RATIO, width=95),
            panels.Column(schema.LAST_BYTES.name, "Last wrote", Unit.BYTES, width=100),
            panels.Column(schema.JOB_GPUS.name, "GPUs", Unit.COUNT, width=70),
            panels.Column(schema.USD_AT_RISK.name, "At risk", Unit.USD, width=90),
        ],
        order=TableOrder(schema.OVERDUE.name),
        missing="no job",
    )  # fmt: skip


def _sizes(cluster: Cluster) -> Built:
    written = _checkpoints().take(*_as_stored(schema.EVENT_BYTES)).by(schema.JOB)
    return panels.time_series(
        cluster,
        Face(
            "sizes", "Bytes of each checkpoint",
            "What all nodes of a job wrote to storage in each of its checkpoints.",
            "Compression, and what the file system adds, are in it; a size alone proves nothing.",
            "One that falls below the others is short: see its verdict in the list.",
            x=14, y=20, w=10, h=8, links=_training(),
        ),
        [written.per_series("Bytes of a checkpoint.", alias=f"$tag_{schema.JOB}")],
        unit=Unit.BYTES,
        points=True,
        links=(to_board("checkpoints", "Only this job", job=clicked(schema.JOB)),),
    )  # fmt: skip


# -- storage -------------------------------------------------------------------------------------------


def _job_io(cluster: Cluster) -> Built:
    series = (
        (schema.COMPUTE_BYTES, "between nodes", QUIET),
        (schema.JOB_WRITE_BYTES, "to storage", PHASE_COLOURS[schema.Phase.CHECKPOINT]),
        (schema.JOB_READ_BYTES, "from storage", PHASE_COLOURS[schema.Phase.LOAD]),
    )
    return panels.time_series(
        cluster,
        Face(
            "job_io", "Jobs: computing, writing, reading",
            "Bit/s of the jobs' nodes among themselves, to storage and from storage.",
            transport.training_note(cluster),
            "The phases above come from these levels; Explore shows single nodes.",
            x=0, y=28, w=12, h=8, links=(to_board("explore"),),
        ),
        [
            _phase().take(bit_rate(field)).over_time(cluster, f"bit/s {name}.", alias=name)
            for field, name, _ in series
        ],
        overrides=[panels.override(name, color=panels.fixed(colour)) for _, name, colour in series],
    )  # fmt: skip


def _competing(cluster: Cluster) -> Built:
    own = (schema.JOB_WRITE_BYTES, schema.JOB_READ_BYTES)
    series = ((own, "the job", QUIET), ((schema.OTHER_STORAGE_BYTES,), "all others", OTHER_COLOUR))
    return panels.time_series(
        cluster,
        Face(
            "competing", "Storage traffic: the jobs and everybody else",
            "Bit/s between storage and the chosen jobs, and between storage and all others, both directions.",
            f"Of several chosen jobs, each counts the others as everybody else. {transport.note(cluster)}",
            "Others that rise while a checkpoint takes long are the first suspects: see who, below.",
            x=12, y=28, w=12, h=8, links=(to_board("explore"),),
        ),
        [
            _phase().take(_bit_rate_of(*fields)).over_time(cluster, f"bit/s of {name}.", alias=name)
            for fields, name, _ in series
        ],
        overrides=[panels.override(name, color=panels.fixed(colour)) for _, name, colour in series],
    )  # fmt: skip


def _bit_rate_of(*fields: schema.Field) -> Column:
    """Return the mean bit/s of several fields together, in each time bin."""
    # One quotient, as it stands in one line: see dashboards.lint.slashes.
    sums = added(fields, "rate", Unit.BITS_PER_SECOND)
    return replace(sums, expression=f"({sums.expression}) * {BITS * 1000}.0 / $__interval_ms")


def _moved() -> Column:
    """Return the bytes that went either way."""
    return added((schema.READ_BYTES, schema.WRITE_BYTES), schema.BYTES.name, Unit.BYTES)


def _endpoints(cluster: Cluster) -> Built:
    columns = (_moved(), total(schema.READ_BYTES), total(schema.WRITE_BYTES))
    each = Select(schema.STORAGE_IO, schema.MINUTE).take(*columns).by(schema.ENDPOINT, schema.ENDPOINT_GROUP)
    return panels.table(
        cluster,
        Face(
            "endpoints", "Busiest storage endpoints",
            "Bytes that nodes read from and wrote to each storage node, or address that is none.",
            f"A file system may spread one file over many endpoints. {WHOLE_HOURS} {transport.note(cluster)}",
            "Its nodes stand beside it; the capacity board shows how full an endpoint is.",
            x=0, y=36, w=10, h=8, links=(to_board("capacity"),),
        ),
        [top_sums(cluster, each)],
        [
            panels.Column(
                schema.ENDPOINT, "Endpoint", width=150,
                links=(to_board("explore", "Explore this endpoint", node=row(schema.ENDPOINT)),),
            ),
            panels.Column(schema.ENDPOINT_GROUP, "Group", "", Cell.TEXT, (panels.group_words(cluster),), width=180),
            panels.Column(schema.WRITE_BYTES.name, "Written", Unit.BYTES, Cell.BAR),
            panels.Column(schema.READ_BYTES.name, "Read", Unit.BYTES, Cell.BAR),
        ],
        order=TableOrder(schema.BYTES.name, hidden=(schema.BYTES.name,)),
    )  # fmt: skip


def _endpoint_nodes(cluster: Cluster) -> Built:
    inner = (
        Select(schema.STORAGE_IO, schema.MINUTE)
        .take(_moved(), total(schema.READ_BYTES), total(schema.WRITE_BYTES))
        .by(schema.ENDPOINT, schema.NODE, schema.GROUP)
    )
    return panels.table(
        cluster,
        Face(
            "endpoint_nodes", "Storage endpoint → node",
            "The largest volumes between a storage endpoint and a node.",
            f"Beyond the largest of each window nodes are one row, other. {WHOLE_HOURS}",
            "Click a node to explore what else it does.",
            x=10, y=36, w=14, h=8, links=(to_board("explore"),),
        ),
        [top_sums(cluster, inner)],
        [
            panels.Column(schema.ENDPOINT, "Endpoint", width=150),
            ends.node(schema.NODE, "Node", 150),
            panels.Column(schema.GROUP, "Group", "", Cell.TEXT, (panels.group_words(cluster),), width=170),
            panels.Column(schema.WRITE_BYTES.name, "Written", Unit.BYTES, Cell.BAR),
            panels.Column(schema.READ_BYTES.name, "Read", Unit.BYTES, Cell.BAR),
        ],
        order=TableOrder(schema.BYTES.name, hidden=(schema.BYTES.name,)),
    )  # fmt: skip


def _tiers(cluster: Cluster) -> Built:
    storage = questions.role_ids(cluster, Role.STORAGE, Role.MODEL_STORAGE)
    # The same flows as in the endpoints' rows, in a series a group pair in place of one an endpoint and node.
    moved = Select(schema.TRAFFIC, schema.MINUTE).take(bit_rate(schema.BYTES))
    ways = ((schema.DST_GROUP, "written"), (schema.SRC_GROUP, "read"))
    return panels.time_series(
        cluster,
        Face(
            "tiers", "Storage groups: written and read",
            "Bit/s that nodes write to and read from each storage group.",
            f"What storage nodes send to each other, such as replicas, is written and read. {transport.note(cluster)}",
            "The endpoints above show where it goes.",
            x=0, y=44, w=12, h=8, links=(to_board("explore"),),
        ),
        [
            moved.where(is_in(group, storage))
            .by(group)
            .over_time(cluster, "bit/s of a storage group.", alias=f"$tag_{group} {name}")
            for group, name in ways
        ],
        overrides=panels.group_series(cluster, *(name for _, name in ways)),
        links=(to_board("capacity"),),
    )  # fmt: skip


def _others(cluster: Cluster) -> Built:
    storage = questions.role_ids(cluster, Role.STORAGE, Role.MODEL_STORAGE)
    moved = Select(schema.TRAFFIC, schema.MINUTE).take(bit_rate(schema.BYTES))
    ways = ((schema.SRC_GROUP, schema.DST_GROUP, "to storage"), (schema.DST_GROUP, schema.SRC_GROUP, "from storage"))
    return panels.time_series(
        cluster,
        Face(
            "others", "Who uses storage, by group",
            "Bit/s of each group to storage and from it, training included.",
            transport.note(cluster),
            "Explore shows which nodes of a group.",
            x=12, y=44, w=12, h=8, links=(to_board("explore"),),
        ),
        [
            moved.where(not_in(near, storage), is_in(far, storage))
            .by(near)
            .over_time(cluster, f"bit/s {name}.", alias=f"$tag_{near} {name}")
            for near, far, name in ways
        ],
        overrides=panels.group_series(cluster, *(name for _, _, name in ways)),
    )  # fmt: skip


def _loads(cluster: Cluster) -> Built:
    fields = (schema.EVENT_BYTES, schema.EVENT_SECONDS, schema.EVENT_NODES, schema.OVERLAP)
    query = (
        Select(schema.DATASET_LOAD, schema.DATASET_LOAD.kept)
        .where(_of_job(), compare(schema.EVENT_BYTES, ">", 0))
        .take(*_as_stored(*fields))
        .by(schema.JOB, schema.JOB_CLASS)
    )
    return panels.table(
        cluster,
        Face(
            "loads", "Loading of data at the start of jobs",
            "How long each job read its data before, and how long into, computing.",
            "A job that streams its data all the time has no load, and a restart reads its last checkpoint as well.",
            "Loading that continues into computing takes bandwidth from the first steps.",
            x=0, y=52, w=24, h=7, links=_training(),
        ),
        [query.per_series("A load.").as_table()],
        [
            panels.Column(panels.TIME, "Began", Unit.MOMENT, width=180),
            panels.Column(schema.JOB, "Job", width=200, links=(to_board("training", "Training", job=row(schema.JOB)),)),
            panels.Column(schema.JOB_CLASS, "Class", width=150),
            panels.Column(schema.EVENT_BYTES.name, "Read", Unit.BYTES, Cell.BAR),
            panels.Column(schema.EVENT_SECONDS.name, "Took", Unit.SECONDS, width=110),
            panels.Column(schema.EVENT_NODES.name, "Nodes", Unit.COUNT, width=90),
            panels.Column(schema.OVERLAP.name, "Into computing", Unit.SECONDS, width=130),
        ],
        order=TableOrder(panels.TIME),
    )  # fmt: skip
