"""Questions about single conversations, as ``clusterflow flows`` and its page in the browser ask them."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from analysis.jobs.register import runs_of
from app.errors import UserError
from archive.query import Answer, Filter
from cluster.model import Cluster
from operations.alert_history import find_alert
from store.schema import EXPORTER, JOB, NAME, RELAY
from store.schema_version import opened

DEFAULT_BY = "src_node,dst_node,dst_port,protocol"
RECORDS = "records"
"""In place of columns: every record."""

_AROUND = 1800
"""Seconds before an alert began and after it ended; while it fires, until now."""
DEFAULT_PERIOD = 900


def completed(
    cluster: Cluster,
    question: Filter,
    *,
    start: float | None,
    stop: float | None,
    around: str | None = None,
    job: str | None = None,
    period: int = DEFAULT_PERIOD,
) -> Filter:
    """Return a question with its period, and what an alert or a job adds to it.

    Args:
        cluster: what it is about.
        question: what was asked; its period does not count.
        start: epoch seconds; None: of the alert or the job, else `period` before `stop`.
        stop: epoch seconds; None: of the alert or the job, else now.
        around: id of an alert, or the begin of one: its source, half an hour around it.
        job: id: its nodes, while it ran.
        period: seconds.

    Raises:
        UserError: there is no such alert, job or group, or the period is empty.
        StoreError: the store is away, which knows the alerts.
    """
    if around:
        question = _around(cluster, question, around)
    if job:
        nodes, begins, ends = runs_of(cluster, job)
        question = replace(question, node=(*question.node, *nodes), start=begins, stop=ends)
    end = stop if stop is not None else question.stop or time.time()
    begin = start if start is not None else question.start or end - period
    if int(end) <= int(begin):
        raise UserError("the period is empty", "--from must be before --to, and before now")
    return _grouped(cluster, replace(question, start=int(begin), stop=int(end)))


def columns_of(by: str) -> tuple[str, ...]:
    """Return the columns that a text names; none for single records."""
    return () if by == RECORDS else tuple(dict.fromkeys(name.strip() for name in by.split(",")))


def _around(cluster: Cluster, question: Filter, prefix: str) -> Filter:
    now = int(time.time())
    with opened(cluster.store) as store:
        alert = find_alert(store, prefix, now)
    # One that fires on is not over: what its source sends now is what is asked about.
    ends = now if alert.ended is None else alert.ended + _AROUND
    question = replace(question, start=alert.began - _AROUND, stop=ends)
    source = alert.source
    if not source:
        return question
    with suppress(ValueError):
        return replace(question, address=(*question.address, str(ip_address(source))))
    if source in cluster.group_ids():
        return replace(question, group=(*question.group, source))
    if source == alert.labels.get(EXPORTER):
        return replace(question, exporter=(*question.exporter, source))
    if source == alert.labels.get(JOB):
        return replace(question, node=(*question.node, *runs_of(cluster, source)[0]))
    if source in (alert.labels.get(RELAY), alert.labels.get(NAME)):
        raise UserError(f"--around {prefix}: it is about {source}, which sends nothing", "ask by --from and --to")
    return replace(question, node=(*question.node, source))


def _grouped(cluster: Cluster, question: Filter) -> Filter:
    """Return the question with the groups of each role; a group that there is not is refused: it would seem silent."""

    def ends(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(one for text in texts for one in (cluster.groups_of(text) or (text,)))

    groups = tuple(one for text in question.group for one in cluster.groups_of(text, "--group"))
    return replace(question, src=ends(question.src), dst=ends(question.dst), group=groups)


def lacking(cluster: Cluster, answer: Answer) -> list[str]:
    """Return what the period lacks; exporters of cluster.yaml of which the archive has no record included.

    Those that may fall silent, such as a canary, lack nothing.
    """
    sampled = answer.sampled_bytes
    skipped = [f"packets between samples: {sampled:,} bytes are an estimate"] if sampled else []
    silent = [one.name for one in cluster.exporters if one.counts and one.watched and one.name not in answer.heard]
    return [*answer.gaps, *skipped, *([f"exporters without a record: {', '.join(silent)}"] if silent else [])]


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
