"""The section `job_sources`: who else knows which jobs run."""

from dataclasses import replace
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar, TypeVar, dataclass_transform

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import OneOf, Section, key, record
from cluster.scalars.kinds import SECRET, Choice, ListOf, Placed, Secret, Table, Whole
from cluster.scalars.names import DAY
from cluster.sections.jobs import LISTED, Outcome

T = TypeVar("T", bound="JobSource")

SUFFIXES = (".json", ".csv")
"""What tells the format of a file with jobs."""

JOB_SOURCES: dict[str, Section] = {}
"""Job sources by type: whatever bears `@job_source`."""

_HOME_FILE = replace(names.PATH, place=lambda folder, path: str(folder / Path(path).expanduser()))


# fmt: off
@record
class JobSource:
    """Who knows job windows; `kind` is its type in the file."""

    kind: ClassVar[str]
    is_scheduler: ClassVar[bool] = False
    """Whether it knows many jobs that have nothing to do with the nodes that are watched here."""

    name: str = key(names.NAME, "Its name on boards and in `clusterflow status`.", absent="its type")


@dataclass_transform(frozen_default=True, field_specifiers=(key,))
def job_source(owner: type[T]) -> type[T]:
    """Make a record that `type: KIND` in the file stands for."""
    made = record(owner)
    JOB_SOURCES[made.kind] = Section.of(made, "job source")
    return made


@job_source
class FileJobs(JobSource):
    """A JSON or CSV file (by its suffix) that somebody else writes; read again when it changes."""

    kind = "file"
    path: str = key(names.FILE, "A `.json` or `.csv` file, beside this file. It is read again when it changes.",
        example="jobs.json")


@job_source
class HttpJobs(JobSource):
    """An endpoint of ours that hooks of a scheduler post to."""

    kind = "http"
    token: Secret = key(SECRET, "What every request must bear.", example="{env: CLUSTERFLOW_JOBS_TOKEN}")
    listen: str = key(names.LISTEN,
        "Where `clusterflow analyze` takes requests: POST /jobs/start, POST /jobs/stop, GET /jobs.",
        default="127.0.0.1:9106")
    longest: int = key(names.seconds(60, 365 * DAY), "A job that nobody stopped is over after so long.",
        default=30 * DAY)


class ClassFrom(StrEnum):
    """Which word of a Slurm job is its class."""

    NAME = "name"
    ACCOUNT = "account"
    PARTITION = "partition"
    COMMENT = "comment"
    WCKEY = "wckey"




@job_source
class SlurmJobs(JobSource):
    """What sacct and squeue say. A command is split into words; none: it is not asked."""

    kind = "slurm"
    is_scheduler = True
    sacct: tuple[str, ...] = key(names.COMMAND_OR_OFF, "How to run sacct, which knows how jobs ended.",
        default=("sacct",), example="/opt/slurm/bin/sacct")
    squeue: tuple[str, ...] = key(names.COMMAND_OR_OFF, "How to run squeue, which knows what runs.",
        default=("squeue",))
    files: tuple[str, ...] = key(ListOf(names.FILE),
        "Files with what `sacct --json` or `squeue --json` printed, to read in place of running them.", default=(),
        example="[sacct.json]")
    every: int = key(names.seconds(5, 3_600), "Time between two questions.", default=30)
    timeout: int = key(names.seconds(1, 600), "How long an answer may take.", default=20)
    partitions: tuple[str, ...] = key(ListOf(names.LINE), "Only jobs of these partitions.", default=(), absent="all",
        example="[gpu]")
    class_from: ClassFrom = key(Choice(tuple(ClassFrom)), "Which word of a Slurm job is its class.",
        default=ClassFrom.NAME)
    time_limit_is: Outcome = key(Choice(tuple(Outcome)),
        "Outcome of a job that its time limit ended. Where runs are chained by their limit, `completed` lets them "
        "teach baselines.", default=Outcome.FAILED)


class Workload(StrEnum):
    """Kinds of Kubernetes objects that are jobs."""

    JOB = "job"
    PYTORCHJOB = "pytorchjob"


@job_source
class KubernetesJobs(JobSource):
    """What a Kubernetes API server says."""

    kind = "kubernetes"
    is_scheduler = True
    namespaces: tuple[str, ...] = key(ListOf(names.NAMESPACE), "Only jobs of these namespaces.", default=(),
        absent="all", example="[training]")
    workloads: tuple[Workload, ...] = key(ListOf(Choice(tuple(Workload)), at_least=1),
        "Which objects are jobs: `batch/v1` Jobs, Kubeflow's PyTorchJobs.", default=(Workload.JOB, Workload.PYTORCHJOB),
        absent="both")
    selector: str = key(names.LINE, "Label selector: only jobs that it matches.", default="", absent="all",
        example='"team=llm"')
    class_label: str = key(names.LABEL,
        "Label of a job whose value is its class. Without that label it is the owner (a CronJob), else the job's "
        "name.", default="clusterflow/job-class")
    kubeconfig: str | None = key(_HOME_FILE, "File that says where the API server is.", default=None,
        absent="the pod's service account, else `~/.kube/config`")
    context: str | None = key(names.LINE, "Context of that file.", default=None, absent="its current one")
    every: int = key(names.seconds(5, 3_600), "Time between two questions.", default=30)
    timeout: int = key(names.seconds(1, 600), "How long an answer may take.", default=20)


@job_source
class InferredJobs(JobSource):
    """Cohorts found in the traffic between training nodes."""

    kind = "inferred"
    name: str = key(names.NAME, "Its name on boards and in `clusterflow status`.", default="inferred",
        absent="its type")
    least_nodes: int = key(Whole(2, 100_000), "Nodes that a cohort needs to be a job.", default=3)
    least_rate: int = key(names.BIT_RATE, "What a node must send to other training nodes to count as active.",
        default=100_000_000)
    confirm: int = key(names.WHOLE_MINUTES,
        "A cohort is a job when it has been active for so long; there the job starts.", default=180)
    idle: int = key(names.MINUTES_OF_SILENCE, "A job is over when its cohort has been silent for so long.", default=600)
# fmt: on


JOB_SOURCE = OneOf("type", JOB_SOURCES, "job source")


def build_job_sources(tables: list[Placed[Table]], folder: Path, faults: Faults) -> tuple[JobSource, ...]:
    """Return the sources in the order of the file, and record those that cannot be told apart or know nothing.

    Args:
        tables: what the file says.
        folder: what relative paths are relative to.
        faults: added to.
    """
    found: list[JobSource] = []
    owners: dict[str, str] = {}
    for placed in tables:
        path, table = placed.path, placed.value
        if "type" not in table:
            continue
        name = table.get("name") or table["type"]
        where = f"{path}.name" if table.get("name") else path
        if name == LISTED:
            faults.add(where, name, "another name", "jobs that this file lists itself have it")
        elif name in owners:
            hint = f"{owners[name]} has it; give each a name of its own"
            faults.add(where, name, "another name", hint)
        owners.setdefault(name, path)
        _check(table, path, found, faults)
        source = JOB_SOURCE.build(table | {"name": name}, folder)
        if source is not None:
            found.append(source)
    return tuple(found)


def is_loopback(listen: str) -> bool:
    """Whether only this machine reaches ``host:port``."""
    host = listen.rpartition(":")[0].strip("[]")
    return host == "localhost" or ip_address(host).is_loopback


def _check(table: Table, path: str, earlier: list[JobSource], faults: Faults) -> None:
    kind = table["type"]
    if kind == FileJobs.kind and "path" in table and Path(table["path"]).suffix.lower() not in SUFFIXES:
        faults.add(f"{path}.path", table["path"], "a file whose name ends with .json or .csv")
    if kind == SlurmJobs.kind and not (table.get("sacct", True) or table.get("squeue", True) or table.get("files")):
        faults.add(path, "sacct and squeue are off", "at least one of them, or files")
    if kind == InferredJobs.kind and any(isinstance(one, InferredJobs) for one in earlier):
        faults.add(path, kind, "one source of this type")
    if kind == HttpJobs.kind and any(
        isinstance(one, HttpJobs) and one.listen == table.get("listen") for one in earlier
    ):
        faults.add(f"{path}.listen", table["listen"], "another host:port", "a source above listens there")
