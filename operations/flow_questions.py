"""Questions about single conversations, as ``clusterflow flows`` and its page in the browser ask them."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from analysis.jobs.job_windows import end_of, start_of
from analysis.jobs.register import Register
from app.errors import UserError
from archive.query import Answer, Filter
from cluster.model import EXTERNAL, LOCAL, Cluster
from operations.alert_history import find_alert
from store.schema import SRC
from store.schema_version import opened

DEFAULT_BY = "src_node,dst_node,dst_port,protocol"
RECORDS = "records"
"""In place of columns: every record."""

_AROUND = 1800
"""Seconds before an alert began and after it ended."""
_DEFAULT_PERIOD = 900


def completed(
    cluster: Cluster,
    question: Filter,
    *,
    start: float | None,
    stop: float | None,
    around: str | None = None,
    job: str | None = None,
) -> Filter:
    """Return a question with its period, and what an alert or a job adds to it.

    Args:
        cluster: what it is about.
        question: what was asked; its period does not count.
        start: epoch seconds; None: of the alert or the job, else a quarter of an hour before `stop`.
        stop: epoch seconds; None: of the alert or the job, else now.
        around: id of an alert, or the begin of one: its source, half an hour around it.
        job: id: its nodes, while it ran.

    Raises:
        UserError: there is no such alert, job or group, or the period is empty.
        StoreError: the store is away, which knows the alerts.
    """
    if around:
        question = _around(cluster, question, around)
    if job:
        question = _of_job(cluster, question, job)
    end = stop if stop is not None else question.stop or time.time()
    begin = start if start is not None else question.start or end - _DEFAULT_PERIOD
    if int(end) <= int(begin):
        raise UserError("the period is empty", "--from must be before --to, and before now")
    question = replace(question, start=int(begin), stop=int(end))
    _check(cluster, question)
    return question


def columns_of(by: str) -> tuple[str, ...]:
    """Return the columns that a text names; none for single records."""
    return () if by == RECORDS else tuple(dict.fromkeys(name.strip() for name in by.split(",")))


def _around(cluster: Cluster, question: Filter, prefix: str) -> Filter:
    store = opened(cluster.store)
    alert = find_alert(store, prefix, int(time.time()))
    store.close()
    question = replace(question, start=alert.began - _AROUND, stop=(alert.ended or alert.began) + _AROUND)
    source = alert.tags[SRC]
    if not source:
        return question
    with suppress(ValueError):
        return replace(question, address=(*question.address, str(ip_address(source))))
    if source in _groups(cluster):
        return replace(question, group=(*question.group, source))
    return replace(question, node=(*question.node, source))


def _of_job(cluster: Cluster, question: Filter, name: str) -> Filter:
    """Return the question about a job's nodes, from its first begin to its last end: one id may run several times."""
    now = time.time()
    with Register.copy_of(Path(cluster.bridge.state)) as register:
        runs = [job for job in cluster.jobs if job.id == name]
        for source in cluster.job_sources:
            runs += [known.job for known in register.jobs(source.name).values() if known.job.id == name]
    if not runs:
        raise UserError(f"--job {name}: no such job", "`clusterflow jobs --all` lists them")
    nodes = tuple(sorted({node for run in runs for node in run.nodes}))
    start, stop = min(map(start_of, runs)), min(max(map(end_of, runs)), now)
    return replace(question, node=(*question.node, *nodes), start=int(start), stop=int(stop) + 1)


def _groups(cluster: Cluster) -> list[str]:
    return [*(group.id for group in cluster.groups), EXTERNAL, LOCAL]


def _check(cluster: Cluster, question: Filter) -> None:
    """Refuse a group that cluster.yaml does not have: an empty answer would say that it was silent."""
    for name in question.group:
        if name not in _groups(cluster):
            raise UserError(f"--group {name}: no such group", f"there are {', '.join(_groups(cluster))}")


def lacking(cluster: Cluster, answer: Answer) -> list[str]:
    """Return what the period lacks; exporters of cluster.yaml of which the archive has no record included."""
    silent = [one.name for one in cluster.exporters if one.counts and one.name not in answer.heard]
    return [*answer.gaps, *([f"exporters without a record: {', '.join(silent)}"] if silent else [])]


def document(answer: Answer, gaps: Sequence[str], question: Filter) -> dict[str, Any]:
    """Return an answer as JSON has it."""
    return {
        "from": question.start,
        "to": question.stop,
        "bytes": answer.bytes,
        "packets": answer.packets,
        "flows": answer.flows,
        "all_bytes": answer.all_bytes,
        "left_out_bytes": answer.suppressed_bytes,
        "lacks": list(gaps),
        "rows": answer.frame.to_dicts(),
    }
