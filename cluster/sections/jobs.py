"""The section `jobs`: job windows."""

import fnmatch
import itertools
import re
from dataclasses import field
from datetime import UTC, datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from app.words import some
from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import Choice, ListOf, Placed, Table, closest
from cluster.scalars.ranges import braced, expand


class Outcome(StrEnum):
    """How a job ended. UNKNOWN where nobody said, and while it runs."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


_SLURM_RANGE, _SLURM_LIST = re.compile(r"\[[0-9]{2,}-|-[0-9]{2,}\]"), re.compile(r"\[[^]]*,[^]]*\]")
"""What no glob is meant by: as one, gpu-[1-16] is gpu-1 and gpu-6."""

LISTED = "cluster.yaml"
"""Origin of the jobs that cluster.yaml lists itself."""


# fmt: off
@record
class Job:
    """Job windows: dropout is judged within them only. A running analysis reads them again when this file changes.

    Attributes:
        id: with `start` what a run is known by: one id may run several times, one after the other.
        nodes: of the inventory only.
        start, end: aware, in UTC, whole seconds; no end: it still runs, or nobody knows.
        quiet: seconds before `end` in which it sent nothing, by the way its end was found (inferred jobs): that it
            went quiet before its end says nothing about it.
        origin: name of the job source that told of it; says nothing about the job itself.
    """

    id: str = key(names.JOB_ID, "Its id. The same id again is another run, which may not overlap.")
    job_class: str = key(names.JOB_ID, "What earlier runs of the same kind are found by.", name="class",
        absent="the id")
    nodes: tuple[str, ...] = key(ListOf(names.NODES, at_least=1), "Its nodes.", example='["gpu-{01..08}", "infer-*"]')
    start: datetime = key(names.INSTANT, "When it began, in the site's time zone unless an offset is given.",
        example="2026-03-01 08:00")
    end: datetime | None = key(names.INSTANT, "When it ended, or will.", default=None, absent="it still runs")
    outcome: Outcome = key(Choice(tuple(Outcome)),
        "How it ended. A run that failed or was cancelled teaches no baseline.", default=Outcome.UNKNOWN,
        absent="`unknown`")
    quiet: int = 0
    origin: str = field(default=LISTED, compare=False)
    user: str = key(names.JOB_ID, "Whose it is: a user, a team, a namespace.", default="", absent="unknown")

    @property
    def is_good(self) -> bool:
        """Whether its traffic may teach what is normal."""
        return self.outcome not in {Outcome.FAILED, Outcome.CANCELLED}


JOB = Section.of(Job, "job")
# fmt: on


def build_jobs(
    tables: list[Placed[Table]],
    node_names: tuple[str, ...],
    time_zone: ZoneInfo,
    faults: Faults,
    gone: list[str] | None = None,
) -> tuple[Job, ...]:
    """Return the jobs, their times in UTC, and record unknown nodes, times that cannot be, and runs that overlap.

    One whose nodes are all among `gone`, as of `named`, is left out.
    """
    jobs: list[tuple[str, Job]] = []
    for placed in tables:
        path, table = placed.path, placed.value
        nodes = named(table.get("nodes", []), node_names, faults, "a node of the inventory", gone)
        start = in_utc(table.get("start"), time_zone, f"{path}.start", faults)
        end = in_utc(table.get("end"), time_zone, f"{path}.end", faults)
        if start and end and end <= start:
            faults.add(f"{path}.end", f"{table['end']:%Y-%m-%d %H:%M:%S}", "a time after the start")
        elif table.get("outcome") not in {None, Outcome.UNKNOWN} and table.get("end", "") is None:
            faults.add(f"{path}.outcome", table["outcome"], "no outcome without an end", "say when it ended")
        elif start and "id" in table and (nodes or gone is None):
            outcome = table.get("outcome") or Outcome.UNKNOWN
            jobs.append(
                (
                    path,
                    Job(
                        table["id"],
                        table.get("class") or table["id"],
                        nodes,
                        start,
                        end,
                        outcome,
                        user=table.get("user") or "",
                    ),
                )
            )
    check_runs(jobs, faults)
    return tuple(job for _, job in jobs)


def named(
    patterns: list[Placed[str]], known: tuple[str, ...], faults: Faults, expected: str, gone: list[str] | None = None
) -> tuple[str, ...]:
    """Return the names that patterns stand for, each once, in the order of the patterns; record what is not known.

    Where inventory sources come and go with what they know, that is no fault: it is added to `gone`, as a line.
    """
    names = dict.fromkeys(known)
    found: dict[str, None] = {}
    for placed in patterns:
        if _SLURM_LIST.search(placed.value):
            faults.add(placed.path, placed.value, expected, "one range an entry: gpu-[01-16], and gpu-20 as another")
            continue
        # Of numbers of one digit the glob is the range, and need not name nodes that there are not.
        pattern = braced(placed.value) if _SLURM_RANGE.search(placed.value) else placed.value
        try:
            texts = expand(pattern)
        except ValueError as error:
            faults.add(placed.path, placed.value, str(error))
            continue
        missing = []
        for text in texts:
            matches = fnmatch.filter(known, text) if set(text) & set("*?[") else [text] if text in names else []
            found |= dict.fromkeys(matches)
            missing += [] if matches else [text]
        if missing and gone is not None:
            gone.append(f"{placed.path}: no source knows {some(missing)}")
        elif missing:
            faults.add(placed.path, some(missing), expected, closest(missing[0], known))
    return tuple(found)


def in_utc(moment: datetime | None, time_zone: ZoneInfo, path: str, faults: Faults) -> datetime | None:
    """Return a time in UTC; one without an offset is the site's, and must exist there exactly once."""
    if moment is None or moment.tzinfo is not None:
        return moment.astimezone(UTC) if moment else None
    early, late = (moment.replace(tzinfo=time_zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if early == late:
        return early
    shown = f"{moment:%Y-%m-%d %H:%M}"
    if early > late:
        faults.add(path, shown, f"a time that exists in {time_zone.key}", "the clocks go forward over it")
    else:
        hint = f"the clocks go back; add the offset, as in {early.astimezone(time_zone).isoformat(' ')}"
        faults.add(path, shown, f"a time that {time_zone.key} has once", hint)
    return None


def check_runs(jobs: list[tuple[str, Job]], faults: Faults) -> None:
    """Record runs of one id that overlap."""
    ordered = sorted(jobs, key=lambda item: (item[1].id, item[1].start))
    for (earlier_path, earlier), (path, job) in itertools.pairwise(ordered):
        if job.id == earlier.id and (earlier.end is None or job.start < earlier.end):
            expected, hint = "runs of one id that do not overlap", f"{earlier_path} has the same id at that time"
            faults.add(f"{path}.id", job.id, expected, hint)
