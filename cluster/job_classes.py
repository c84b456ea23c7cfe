"""Job classes from cluster.yaml: what is known of every job of a class, and how it writes checkpoints."""

from cluster.document import Faults
from cluster.kinds import Placed, Table
from cluster.model import CheckpointMode, CheckpointPlan, JobClass
from cluster.units import format_duration


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
