"""What other programs write about a job, as JSON or CSV: read by the same kinds of values as cluster.yaml.

A record has id, class, nodes, start, end and outcome. Nodes are names, ranges or Slurm's lists, and need not be in the
inventory; times are ISO 8601, in the site's time zone unless they say otherwise, or epoch seconds.
"""

import json
import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from analysis.jobs.hostlist import expand
from analysis.jobs.job_windows import start_of
from app.csv_rows import CsvError, csv_rows
from app.errors import Problem
from app.units import format_duration, format_moment
from cluster.document import Faults, Mapping, Scalar, Sequence, Value
from cluster.model import Job, Outcome
from cluster.scalars.declared import REQUIRED, Section
from cluster.scalars.kinds import Bad, Kind, OneOrMany, Placed, Table, Text, take
from cluster.scalars.ranges import MOST
from cluster.sections.jobs import JOB, check_runs, in_utc

REFERENCE = "a key of docs/jobs.md"
MOST_NESTED = 8
"""Depth at which JSON is none of ours."""

MOST_NAMED, MOST_READ = 1 << 20, 1 << 24
"""Nodes that the jobs of a document name in all, runs on the same nodes counted once: 100 MB; and each run for itself:
some ten seconds."""


def _moment(text: str) -> datetime:
    if re.fullmatch(r"[0-9]{9,11}(\.[0-9]*)?", text):
        return datetime.fromtimestamp(math.floor(float(text)), UTC)
    if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:", text):
        raise Bad
    moment = datetime.fromisoformat(text).replace(microsecond=0)
    if not 1971 <= moment.year <= 2199:
        raise Bad
    return moment


MOMENT = Text(
    "time", "a time such as 2026-03-01T08:00:00Z, 2026-03-01 08:00 (the site's time zone) or 1772352000", _moment
)


def _hosts(text: str) -> list[str]:
    try:
        return expand(text)
    except ValueError as error:
        raise Bad(str(error)) from None


NODES = Text("list of nodes", "names of nodes, or a list such as gpu-[01-16]", _hosts)


@dataclass(frozen=True)
class Lists(OneOrMany[list[str]]):
    """Lists of nodes: all together stand for no more than one of them may, or a few lines would fill the memory."""

    def read(self, value: Value, path: str, faults: Faults) -> list[Placed[list[str]]]:
        """Return the names of each."""
        if not isinstance(value, Sequence) or not value.items:
            return super().read(value, path, faults)
        found: list[Placed[list[str]]] = []
        count = 0
        for index, item in enumerate(value.items):
            place = f"{path}[{index}]"
            for names_of_one in take(self.item, item, place, faults):
                found.append(Placed(place, names_of_one))
                count += len(names_of_one)
            if count > MOST:
                raise Bad(f"at most {MOST:,} nodes")
        return found


_KINDS: dict[str, Kind[Any]] = {"nodes": Lists(NODES), "start": MOMENT, "end": MOMENT}


def record_with(*given: str, missing: str = "") -> Section:
    """Return the section of a record: a job of cluster.yaml, whose nodes and times are written in other ways.

    Args:
        given: its keys.
        missing: the one among them that need not be there.
    """
    keys = (replace(key, kind=_KINDS.get(key.name, key.kind)) for key in JOB.keys if key.name in given)
    named = tuple(replace(key, default=None) if key.name == missing else key for key in keys)
    return Section("job", named, reference=REFERENCE)


RECORD = record_with("id", "class", "nodes", "start", "end", "outcome", "user")
COLUMNS = tuple(key.name for key in RECORD.keys)
REQUIRED_COLUMNS = tuple(key.name for key in RECORD.keys if key.default is REQUIRED)


def read_json(text: str, source: str, zone: ZoneInfo) -> tuple[Job, ...]:
    """Return the jobs of ``{"jobs": [...]}`` or of a bare list.

    Raises:
        ConfigError: it is not JSON, or has faults; all of them.
    """
    faults = Faults(source)
    try:
        root = as_value(json.loads(text))
    except json.JSONDecodeError as error:
        problem = Problem("", f"column {error.colno}", "JSON", error.msg.lower(), line=error.lineno)
        faults.add_problem(problem)
        faults.raise_if_any()
        raise
    except (RecursionError, ValueError):
        faults.add("", "nested too deeply", "a list of jobs")
        faults.raise_if_any()
        raise
    path = ""
    if isinstance(root, Mapping) and "jobs" in root.entries:
        path, root = "jobs", root.entries["jobs"]
    if not isinstance(root, Sequence):
        faults.add(path, root.shown(), 'a list of jobs, or {"jobs": [...]}')
    items = root.items if isinstance(root, Sequence) else ()
    return _jobs([(f"{path}[{index}]", item) for index, item in enumerate(items)], zone, faults)


def read_csv(text: str, source: str, zone: ZoneInfo) -> tuple[Job, ...]:
    """Return the jobs of CSV text with a header; blank lines and lines that begin with ``#`` are skipped.

    Raises:
        ConfigError: columns are missing or unknown, or rows have faults; all of them.
    """
    faults = Faults(source)
    rows: list[tuple[int, list[str]]] = []
    try:
        rows.extend(csv_rows(text, comments=True))
    except CsvError as fault:
        faults.add_problem(Problem("", fault.wrong, "CSV", fault.hint, line=fault.line))
        faults.raise_if_any()
    (line, names), *rows = rows or [(1, [])]
    header = [name.lower() for name in names]
    for name in REQUIRED_COLUMNS:
        if name not in header:
            faults.add_problem(Problem(name, "no such column", f"the columns {', '.join(REQUIRED_COLUMNS)}", line=line))
    for name in header:
        if name not in COLUMNS:
            faults.add_problem(Problem(name, "unknown column", f"the columns {', '.join(COLUMNS)}", line=line))
    faults.raise_if_any()
    items: list[tuple[str, Value]] = []
    for index, (number, row) in enumerate(rows):
        path = f"jobs[{index}]"
        faults.locate(path, number)
        if len(row) != len(header):
            faults.add(path, f"{len(row)} values", f"{len(header)}, as the header has")
            continue
        given = {name: Scalar(cell, line=number) for name, cell in zip(header, row, strict=True) if cell}
        items.append((path, Mapping(dict(given), number)))
    return _jobs(items, zone, faults)


def as_value(data: object, depth: int = 0) -> Value:
    """Return JSON data as what cluster.yaml is read from; keys whose value is null are left out.

    Raises:
        ValueError: it is nested too deeply.
    """
    if depth > MOST_NESTED:
        raise ValueError("nested too deeply")
    if isinstance(data, dict):
        return Mapping({str(key): as_value(one, depth + 1) for key, one in data.items() if one is not None})
    if isinstance(data, list):
        return Sequence(tuple(as_value(one, depth + 1) for one in data))
    if isinstance(data, str):
        return Scalar(data, quoted=True)
    return Scalar("" if data is None else json.dumps(data))


def _jobs(items: list[tuple[str, Value]], zone: ZoneInfo, faults: Faults) -> tuple[Job, ...]:
    found: list[tuple[str, Job]] = []
    # A history of runs on the same nodes takes the memory of one.
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    named = read = 0
    for path, item in items:
        for table in take(RECORD, item, path, faults):
            job = job_of(table, path, zone, faults)
            if job is not None:
                named += 0 if job.nodes in known else len(job.nodes)
                read += len(job.nodes)
                found.append((path, replace(job, nodes=known.setdefault(job.nodes, job.nodes))))
        if named > MOST_NAMED:
            faults.add(path, f"{named:,} nodes up to here", f"at most {MOST_NAMED:,} in all jobs")
            break
        if read > MOST_READ:
            faults.add(path, f"{read:,} nodes up to here", f"at most {MOST_READ:,} in all jobs, repeats included")
            break
    check_runs(found, faults)
    faults.raise_if_any()
    return tuple(job for _, job in found)


def job_of(table: Table, path: str, zone: ZoneInfo, faults: Faults) -> Job | None:
    """Return the job of a record, its nodes by the names that the record gives them; None where it has faults."""
    place = f"{path}." if path else ""
    start = in_utc(table.get("start"), zone, f"{place}start", faults)
    end = in_utc(table.get("end"), zone, f"{place}end", faults)
    outcome = table.get("outcome") or Outcome.UNKNOWN
    if start and end and end <= start:
        faults.add(f"{place}end", f"{end.isoformat(sep=' ')}", "a time after the start")
        return None
    if outcome is not Outcome.UNKNOWN and table.get("end", "") is None:
        faults.add(f"{place}outcome", outcome, "no outcome without an end", "say when it ended")
        return None
    if start is None or "id" not in table or "nodes" not in table:
        return None
    nodes, user = node_names(table["nodes"]), table.get("user") or ""
    return Job(table["id"], table.get("class") or table["id"], nodes, start, end, outcome, user=user)


def age_fault(job: Job, now: float, keep: float) -> str:
    """Return why a job that is reported at its start cannot have begun when it is said to; empty if it can.

    Args:
        job: which nobody reported before.
        now: epoch seconds.
        keep: seconds of the raw retention.
    """
    if start_of(job) >= now - keep:
        return ""
    within = f"a time within the last {format_duration(keep)}, which the store keeps (store.retention.raw)"
    return f"{format_moment(start_of(job))}: expected {within}"


def node_names(lists: list[Placed[list[str]]]) -> tuple[str, ...]:
    """Return the names of several lists, each once, in their order."""
    return tuple(dict.fromkeys(name for placed in lists for name in placed.value))
