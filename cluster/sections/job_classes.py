"""The section `job_classes`: what is known of every job of a class, and how it writes checkpoints."""

from enum import StrEnum

from app.units import format_duration
from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Key, Section, key, record
from cluster.scalars.kinds import Choice, Number, Placed, Table
from cluster.scalars.names import DAY


class CheckpointMode(StrEnum):
    """What a job class's checkpoints are judged by."""

    SCHEDULED = "scheduled"
    """`every` says when one is due."""
    IRREGULAR = "irregular"
    """Never by when they come."""
    LEARN = "learn"
    """By the period that earlier ones had, where they had one."""


# fmt: off
@record
class CheckpointPlan:
    """How a job class writes checkpoints. What is None is taken from earlier ones."""

    mode: CheckpointMode = key(Choice(tuple(CheckpointMode)),
        "`scheduled`: `every` says when one is due. `learn`: the period that earlier ones had does, if they had one. "
        "`irregular`: they come when they come; only size, length and nodes are judged.", default=CheckpointMode.LEARN,
        absent="`scheduled` where `every` is given, else `learn`")
    every: int | None = key(names.seconds(30, 30 * DAY), "From the begin of one to the begin of the next.",
        default=None, absent="learnt", example="30m")
    tolerance: int = key(names.seconds(0, DAY), "How much later than that one may begin. Less than half of `every`.",
        default=300, absent="`5m`, at most a quarter of `every`")
    longest: int | None = key(names.seconds(10, 7 * DAY), "How long writing one may take.", default=None,
        absent="twice what is usual", example="10m")
    size: int | None = key(names.SIZE, "What all nodes together write.", default=None, name="bytes",
        absent="what is usual", example="1.2 TB")
    nodes: int | None = key(names.WRITERS, "How many nodes of the job write.", default=None,
        absent="as many as is usual")
    short: float = key(Number(0.01, 1), "Share of the expected bytes below which one is short.", default=0.9)


CHECKPOINT = Section.of(CheckpointPlan, "checkpoint",
    Key("bytes_per_parameter", Number(0.01, 1_000),
        "The same as `bytes`, for each parameter of the model, in place of it. Mixed precision with Adam keeps 14: "
        "weights of 2 bytes, and 12 for their copy in full precision and two moments.", absent="`bytes`",
        example="14"),
    text="", after="bytes",
)


@record
class JobClass:
    """What is known of every job of a class. A class that is not listed is learnt from its earlier checkpoints."""

    name: str
    parameters: int | None = key(names.PARAMETERS, "Parameters of the model that is trained.", default=None,
        absent="not known", example="70B")
    gradient_bytes_per_parameter: float = key(Number(0.01, 100),
        "Bytes that a parameter's gradient has on the network: 2 in half precision.", default=2.0)
    checkpoint: CheckpointPlan = key(CHECKPOINT, "How its jobs write checkpoints.", default=CheckpointPlan(),
        absent="learnt")

    @property
    def step_bytes(self) -> int | None:
        """Bytes of all gradients of one step; None where nobody says how large the model is."""
        return None if self.parameters is None else round(self.parameters * self.gradient_bytes_per_parameter)


JOB_CLASS = Section.of(JobClass, "job class")
# fmt: on


def build_job_classes(tables: dict[str, Placed[Table]], faults: Faults) -> tuple[JobClass, ...]:
    """Return the classes in the order of the file, and record plans that contradict themselves."""
    found = []
    for name, placed in tables.items():
        table = placed.value
        plan = table.get("checkpoint") or {}
        found.append(
            JobClass(
                name,
                table.get("parameters"),
                table.get("gradient_bytes_per_parameter", JobClass("").gradient_bytes_per_parameter),
                _plan(plan, table, f"{placed.path}.checkpoint", faults),
            )
        )
    return tuple(found)


def _plan(given: Table, job_class: Table, path: str, faults: Faults) -> CheckpointPlan:
    plan = CheckpointPlan()
    mode, every = given.get("mode"), given.get("every")
    tolerance = given.get("tolerance")
    if tolerance is None:
        tolerance = plan.tolerance if every is None else min(plan.tolerance, every // 4)
    if mode is None:
        mode = CheckpointMode.LEARN if every is None else CheckpointMode.SCHEDULED
    if mode is CheckpointMode.SCHEDULED and every is None and given.get("every", "") is None:
        faults.add(f"{path}.every", "missing", "the time between two checkpoints, as mode is scheduled")
    if mode is not CheckpointMode.SCHEDULED and every is not None:
        hint = "leave out every, or mode"
        faults.add(f"{path}.every", format_duration(every), f"no schedule, as mode is {mode.value}", hint)
    if every is not None and tolerance * 2 >= every:
        expected = f"less than half of every, {format_duration(every)}"
        faults.add(f"{path}.tolerance", format_duration(tolerance), expected)
    return CheckpointPlan(
        mode,
        every,
        tolerance,
        given.get("longest"),
        _size(given, job_class, path, faults),
        given.get("nodes"),
        given.get("short", plan.short),
    )


def _size(given: Table, job_class: Table, path: str, faults: Faults) -> int | None:
    """Return the bytes of a whole checkpoint, if they are declared in either way."""
    size: int | None = given.get("bytes")
    each = given.get("bytes_per_parameter")
    if each is None:
        return size
    where = f"{path}.bytes_per_parameter"
    if size is not None:
        faults.add(where, f"{each:g}", "either bytes or bytes_per_parameter", f"{path}.bytes is given already")
    if job_class.get("parameters", "") is None:
        faults.add(where, f"{each:g}", "parameters beside it", "give the model's `parameters` in the job class")
    parameters: int | None = job_class.get("parameters")
    return size if parameters is None else round(parameters * each)
