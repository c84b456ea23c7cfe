"""Job sources from cluster.yaml: who else knows which jobs run."""

from dataclasses import fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cluster.document import Faults
from cluster.kinds import Placed, Table
from cluster.model import (
    LISTED,
    FileJobs,
    HttpJobs,
    InferredJobs,
    JobSourceKind,
    JobSourceSettings,
    KubernetesJobs,
    SlurmJobs,
)

SUFFIXES = (".json", ".csv")
"""What tells the format of a file with jobs."""

_OWNERS: dict[str, Any] = {
    JobSourceKind.FILE: FileJobs,
    JobSourceKind.HTTP: HttpJobs,
    JobSourceKind.SLURM: SlurmJobs,
    JobSourceKind.KUBERNETES: KubernetesJobs,
    JobSourceKind.INFERRED: InferredJobs,
}


def build_job_sources(tables: list[Placed[Table]], folder: Path, faults: Faults) -> tuple[JobSourceSettings, ...]:
    """Return the sources in the order of the file, and record those that cannot be told apart or know nothing.

    Args:
        tables: what the file says.
        folder: what relative paths are relative to.
        faults: added to.
    """
    found: list[JobSourceSettings] = []
    owners: dict[str, str] = {}
    for placed in tables:
        path, table = placed.path, dict(placed.value)
        kind = table.pop("type", None)
        if kind is None:
            continue
        name = table.get("name") or kind
        table["name"] = name
        where = f"{path}.name" if placed.value.get("name") else path
        if name == LISTED:
            faults.add(where, name, "another name", "jobs that this file lists itself have it")
        elif name in owners:
            hint = f"{owners[name]} has it; give each a name of its own"
            faults.add(where, name, "another name", hint)
        owners.setdefault(name, path)
        _check(kind, table, path, found, faults)
        if "path" in table:
            table["path"] = str(folder / table["path"])
        if "files" in table:
            table["files"] = [str(folder / one.value) for one in table["files"]]
        if isinstance(table.get("kubeconfig"), str):
            table["kubeconfig"] = str(folder / Path(table["kubeconfig"]).expanduser())
        owner = _OWNERS[kind]
        needed = {item.name for item in fields(owner) if item.name in {"path", "token"}}
        if needed <= table.keys():
            found.append(owner(**{key: _plain(value) for key, value in table.items()}))
    return tuple(found)


def is_loopback(listen: str) -> bool:
    """Whether only this machine reaches ``host:port``."""
    host = listen.rpartition(":")[0].strip("[]")
    return host == "localhost" or ip_address(host).is_loopback


def _check(kind: str, table: Table, path: str, earlier: list[JobSourceSettings], faults: Faults) -> None:
    if kind == JobSourceKind.FILE and "path" in table and Path(table["path"]).suffix.lower() not in SUFFIXES:
        faults.add(f"{path}.path", table["path"], "a file whose name ends with .json or .csv")
    if kind == JobSourceKind.SLURM and not (table.get("sacct", True) or table.get("squeue", True) or table["files"]):
        faults.add(path, "sacct and squeue are off", "at least one of them, or files")
    if kind == JobSourceKind.INFERRED and any(isinstance(one, InferredJobs) for one in earlier):
        faults.add(path, kind, "one source of this type")
    if kind == JobSourceKind.HTTP and any(
        isinstance(one, HttpJobs) and one.listen == table.get("listen") for one in earlier
    ):
        faults.add(f"{path}.listen", table["listen"], "another host:port", "a source above listens there")


def _plain(value: object) -> object:
    """Return a list without the places of its items."""
    if isinstance(value, list):
        return tuple(one.value if isinstance(one, Placed) else one for one in value)
    return value
