"""Job windows from Slurm: what ``sacct --json`` and ``squeue --json`` print, from 21.08 on.

The shapes, by Slurm's own writers of JSON (src/plugins/openapi and data_parser of each release):

- sacct has ``state.current`` and ``time.start``, squeue has ``job_state`` and ``start_time``;
- a state is a word up to 23.02, a list of words from 23.11 on (``["COMPLETED"]``, ``["PENDING", "REQUEUED"]``);
- a number is a number, or ``{"set": true, "infinite": false, "number": 12}``, or the number that means none;
- nodes are one hostlist: ``gpu-[01-16,20]``;
- 21.08's sacct writes the time at which a job became eligible as its start: the length of the run tells better.

A requeued or resized job has the same id again; its runs are told apart by their starts. Array tasks are ``123_4``
as in Slurm, components of heterogeneous jobs ``123:0``.
"""

import hashlib
import json
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.jobs.hostlist import expand
from analysis.jobs.job_source import Around, AskError, Listing, Source
from analysis.jobs.register import Known, key_of
from analysis.jobs.sources.file import Version, text_of, version_of
from app.errors import ConfigError
from app.units import format_duration, format_moment
from cluster.model import ClassFrom, Job, Outcome, SlurmJobs

PATIENCE = 600.0
"""Seconds that a job which squeue no longer lists may take to appear in the accounting with its end."""

_ANOTHER_LOOK = 60.0
"""The same where no accounting is asked: longer, and every end would first be taken for a stall."""

_FIRST_LOOK = 7 * 86_400
_OVERLAP = 600
_SACCT_AT_LEAST_EVERY = 600
_STALE = 300
_AHEAD = 300
"""Seconds by which Slurm's clock may be ahead of ours; an end further on is an expected one."""
_MOST_OUTPUT = 1 << 30
_MOST_DIGITS = 20
SAME_RUN = 120
"""Seconds between two starts that are still taken for one run: 21.08 knows only about when a run began."""

LONGEST = 63
"""Characters that an id may have."""

_LATEST = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp())
"""Epoch seconds from which a number is no time."""

_NO_VALUES = frozenset({0xFFFF_FFFE, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFE, 0xFFFF_FFFF_FFFF_FFFF})
"""NO_VAL and INFINITE, of 32 and of 64 bits."""

_OUTCOMES = {
    "COMPLETED": Outcome.COMPLETED,
    "FAILED": Outcome.FAILED,
    "NODE_FAIL": Outcome.FAILED,
    "BOOT_FAIL": Outcome.FAILED,
    "OUT_OF_MEMORY": Outcome.FAILED,
    "LAUNCH_FAILED": Outcome.FAILED,
    "CANCELLED": Outcome.CANCELLED,
    "PREEMPTED": Outcome.CANCELLED,
    "REVOKED": Outcome.CANCELLED,
    "REQUEUED": Outcome.CANCELLED,
    "REQUEUE_HOLD": Outcome.CANCELLED,
    "SPECIAL_EXIT": Outcome.FAILED,
    # Goes on as another run, with the nodes that it has from then on.
    "RESIZING": Outcome.UNKNOWN,
}
_BY_TIME = frozenset({"TIMEOUT", "DEADLINE"})
_RUNNING = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "RESIZING", "STAGE_OUT"})


@dataclass(frozen=True, slots=True)
class Record:
    """One job of a document.

    Attributes:
        from_queue: whether squeue says so; else sacct does.
    """

    job: Job
    from_queue: bool

    @property
    def is_over(self) -> bool:
        """Whether its end is known."""
        return self.job.end is not None


class NodeLists:
    """The lists of nodes of a document, each read once: 50,000 runs are on the same few.

    Attributes:
        unread: what is no list of nodes, by text: one of the jobs with it, and what was expected.
    """

    def __init__(self) -> None:
        self.unread: dict[str, str] = {}
        self._read: dict[str, tuple[str, ...]] = {}

    def nodes(self, value: object, job_id: str) -> tuple[str, ...]:
        """Return the nodes of a job; none where it has none yet, or they cannot be read."""
        text = _text(value)
        if not text or text in {"None assigned", "(null)", "N/A"}:
            return ()
        if text not in self._read:
            try:
                self._read[text] = tuple(expand(text))
            except ValueError as error:
                self._read[text] = ()
                self.unread[text] = f"job {job_id} is left out: nodes {text[:60]}: expected {error}"
        return self._read[text]

    def trouble(self) -> str:
        """Return what could not be read, in one line; empty if all could."""
        first, *others = [*self.unread.values()] or [""]
        return f"{first} (and {len(others)} more)" if others else first


def records_of(document: object, settings: SlurmJobs, now: float, lists: NodeLists | None = None) -> Iterator[Record]:
    """Yield the jobs of a document that have begun.

    Args:
        document: what sacct or squeue printed, parsed.
        settings: which partitions, what is the class, what a time limit means.
        now: when it was printed, epoch seconds.
        lists: tells afterwards which lists of nodes could not be read.

    Raises:
        AskError: it is no such document.
    """
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise AskError('no list of jobs in it: expected the output of "sacct --json" or "squeue --json"')
    starts_are_wrong = _major(document) == 21
    lists = lists or NodeLists()
    for entry in jobs:
        if isinstance(entry, dict):
            record = _record(entry, settings, now, lists, starts_are_wrong=starts_are_wrong)
            if record is not None:
                yield record


def _major(document: object) -> int | None:
    """Return Slurm's major version, where the document tells."""
    meta = document.get("meta") if isinstance(document, dict) else None
    about = (meta.get("slurm") or meta.get("Slurm")) if isinstance(meta, dict) else None
    version = about.get("version") if isinstance(about, dict) else None
    return number(version.get("major")) if isinstance(version, dict) else None


def _record(
    entry: Mapping[str, Any], settings: SlurmJobs, now: float, lists: NodeLists, *, starts_are_wrong: bool
) -> Record | None:
    from_queue = "job_state" in entry
    states = _words(entry.get("job_state") if from_queue else _within(entry, "state", "current"))
    job_id = _job_id(entry, from_queue=from_queue)
    if job_id is None or (settings.partitions and _text(entry.get("partition")) not in settings.partitions):
        return None
    nodes = lists.nodes(entry.get("nodes"), job_id)
    if not nodes:
        return None
    if from_queue and "PENDING" in states:  # it has an expected start, and perhaps the end of its last run
        return None
    if from_queue:
        # The accounts begin a job that was resized once more.
        begins = _time(entry.get("start_time")), _time(entry.get("resize_time"))
        start, end = max((moment for moment in begins if moment), default=None), _time(entry.get("end_time"))
    else:
        start, end = _time(_within(entry, "time", "start")), _time(_within(entry, "time", "end"))
        if starts_are_wrong:
            start = _start_by_length(entry, end or int(now))
    outcome = _outcome(states, settings)
    has_ended = bool(states & (_OUTCOMES.keys() | _BY_TIME)) and not states & {"RUNNING", "SUSPENDED"}
    is_over = end is not None and 0 < end <= now + _AHEAD and has_ended
    if not start or (not is_over and not states & _RUNNING) or (is_over and end is not None and end <= start):
        return None
    return Record(
        Job(
            job_id,
            _class(entry, settings.class_from, job_id),
            nodes,
            datetime.fromtimestamp(start, UTC),
            datetime.fromtimestamp(end, UTC) if is_over and end is not None else None,
            outcome if is_over else Outcome.UNKNOWN,
            # squeue and sacct name it differently.
            user=as_word(_text(entry.get("user_name")) or _text(entry.get("user"))),
        ),
        from_queue,
    )


def _start_by_length(entry: Mapping[str, Any], end: int) -> int | None:
    elapsed = number(_within(entry, "time", "elapsed"))
    suspended = number(_within(entry, "time", "suspended"))
    return _time(end - elapsed - (suspended or 0)) if elapsed else None


def _outcome(states: frozenset[str], settings: SlurmJobs) -> Outcome:
    if states & _BY_TIME:
        return settings.time_limit_is
    # Flags stand beside the word that counts: a failed job that is requeued has failed.
    found = {_OUTCOMES[state] for state in states & _OUTCOMES.keys()}
    for outcome in (Outcome.FAILED, Outcome.CANCELLED, Outcome.COMPLETED):
        if outcome in found:
            return outcome
    return Outcome.UNKNOWN


def _job_id(entry: Mapping[str, Any], *, from_queue: bool) -> str | None:
    """Return the id as Slurm's commands show it."""

    def of(flat: str, section: str, key: str) -> int | None:
        return number(entry.get(flat)) if from_queue else number(_within(entry, section, key))

    array, task = of("array_job_id", "array", "job_id"), of("array_task_id", "array", "task_id")
    if array and task is not None:
        return f"{array}_{task}"
    leader, offset = of("het_job_id", "het", "job_id"), of("het_job_offset", "het", "job_offset")
    if leader and offset is not None:
        return f"{leader}:{offset}"
    own = number(entry.get("job_id"))
    return str(own) if own else None


def _class(entry: Mapping[str, Any], wanted: ClassFrom, job_id: str) -> str:
    value = entry.get(wanted.value)
    if isinstance(value, dict):  # sacct: comment has three, wckey has flags
        value = value.get("job") if wanted is ClassFrom.COMMENT else value.get("wckey")
    texts = [text for text in (_text(value), _text(entry.get("name"))) if text]
    return next(filter(None, map(_whole_word, texts)), "") or (f"name-{checksum(texts[0])}" if texts else job_id)


def _whole_word(text: str) -> str:
    """Return free text as a class; where letters are lost of it, a checksum tells it from others that lose theirs."""
    word = as_word(text)
    is_cut = len(text) > LONGEST or any(sign.isalnum() and not sign.isascii() for sign in text)
    return f"{word[: LONGEST - 9]}-{checksum(text)}" if word and is_cut else word


def as_word(text: str) -> str:
    """Return free text as the id of a job or class: other signs become ``_``, the rest is cut; may be empty."""
    return re.sub(r"[^A-Za-z0-9._:-]+", "_", text.strip()).lstrip("._:-")[:LONGEST]


def checksum(text: str) -> str:
    """Return eight digits that stand for what a word lacks of a text: a name in Chinese, the end of a long one."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def number(value: object) -> int | None:
    """Return a number of any release; None where it means that there is none."""
    if isinstance(value, dict):
        if value.get("set") is False or value.get("infinite") is True:
            return None
        value = value.get("number")
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value in _NO_VALUES or not 0 <= value < 2**40:
        return None
    return value


def _time(value: object) -> int | None:
    """Return epoch seconds; None where a number is none that a clock could show."""
    moment = number(value)
    return None if moment is None or moment >= _LATEST else moment


def _words(value: object) -> frozenset[str]:
    words = value if isinstance(value, list) else [value]
    return frozenset(word.split()[0].upper() for word in words if isinstance(word, str) and word.split())


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _within(entry: Mapping[str, Any], section: str, key: str) -> object:
    found = entry.get(section)
    return found.get(key) if isinstance(found, dict) else None


# -- asking ------------------------------------------------------------------------------------------


class SlurmCommands:
    """Runs squeue, and sacct where squeue no longer lists a job: the accounting database is not asked for fun.

    Args:
        settings: commands, timeout, and what counts.
    """

    def __init__(self, settings: SlurmJobs) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._accounted = 0.0
        """When sacct last answered."""
        self._first_look = _FIRST_LOOK
        self._catches_up = False
        """Whether the first look was cut short: the accounts may have been away, and all is asked for once more."""
        self._unread: dict[str, str] = {}
        """What each command named for nodes that are none, when it last answered."""

    def ask(self, known: Mapping[str, Known], now: float) -> Listing:
        """Ask both."""
        records: list[Record] = []
        troubles: list[str] = []
        has_queue = self._gather(self._settings.squeue, ["--json", "--states=all"], now, records, troubles)
        if self._settings.sacct and (not has_queue or self._is_accounting_due(known, records, now)):
            # A clock that was set back must not ask for what is to come.
            since = round(abs(now - self._accounted)) + _OVERLAP if self._accounted else self._first_look
            since = _FIRST_LOOK if self._catches_up else since
            arguments = ["--json", "--allusers", "--duplicates", f"--starttime=now-{since}seconds"]
            if self._gather(self._settings.sacct, arguments, now, records, troubles):
                self._catches_up = not self._accounted and self._first_look < _FIRST_LOOK
                self._accounted = now
            else:
                # A week of a busy cluster may be too much for one answer.
                self._first_look = max(self._first_look // 4, _OVERLAP)
                self._catches_up = False
        if not records and len(troubles) == sum(map(bool, (self._settings.squeue, self._settings.sacct))):
            raise AskError("; ".join(troubles))
        is_whole = has_queue or (not self._settings.squeue and not troubles)
        patience = _patience(self._settings, has_accounts=bool(self._settings.sacct))
        troubles += filter(None, self._unread.values())
        return Listing(listed(records, known, queue_counts=has_queue), is_whole, patience, "; ".join(troubles))

    def close(self) -> None:
        """Kill what is running."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()

    def _is_accounting_due(self, known: Mapping[str, Known], records: Sequence[Record], now: float) -> bool:
        running = {record.job.id for record in records if not record.is_over}
        has_lost = any(one.job.end is None and one.job.id not in running for one in known.values())
        return has_lost or self._catches_up or abs(now - self._accounted) >= _SACCT_AT_LEAST_EVERY

    def _gather(
        self, command: Sequence[str], arguments: list[str], now: float, records: list[Record], troubles: list[str]
    ) -> bool:
        """Add what a command says; False if it is off or failed, which is then added to the troubles."""
        if not command:
            return False
        name, lists = Path(command[0]).name, NodeLists()
        try:
            partitions = [f"--partition={','.join(self._settings.partitions)}"] if self._settings.partitions else []
            records += records_of(self._run([*command, *arguments, *partitions]), self._settings, now, lists)
        except AskError as error:
            troubles.append(f"{name}: {error}")
            return False
        self._unread[name] = lists.trouble() and f"{name}: {lists.trouble()}"
        return True

    def _run(self, command: list[str]) -> object:
        with self._lock:
            if self._is_closed:
                raise AskError("stopped")
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
            except OSError as error:
                raise AskError(f"cannot be run: {(error.strerror or str(error)).lower()}") from error
            self._process = process
        try:
            out, err = process.communicate(timeout=self._settings.timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AskError(f"no answer within {format_duration(self._settings.timeout)}") from None
        finally:
            with self._lock:
                self._process = None
        if process.returncode:
            said = err.decode(errors="replace").strip().splitlines()
            why = f": {said[-1].strip()[:200]}" if said else ""
            raise AskError(f"ended with {process.returncode}{why}")
        return _parsed(out)


def _patience(settings: SlurmJobs, *, has_accounts: bool) -> float:
    """Return the seconds for which a job that runs, and is not listed, is waited for."""
    return PATIENCE if has_accounts else min(2.0 * settings.every, _ANOTHER_LOOK)


def _parsed(text: bytes | str) -> object:
    if len(text) > _MOST_OUTPUT:
        raise AskError("more than 1 GiB of output: choose partitions, or ask less")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        begin = bytes(text[:60], "utf-8") if isinstance(text, str) else text[:60]
        raise AskError(f"printed no JSON: {begin.decode(errors='replace').strip()!r}") from None


class SlurmFiles:
    """Reads output of sacct or squeue from files.

    Args:
        settings: which files, and what counts.
    """

    def __init__(self, settings: SlurmJobs) -> None:
        self._settings = settings
        self._read: dict[Path, tuple[Version, list[Record]]] = {}
        self._is_accounting: dict[Path, bool] = {}
        self._unread: dict[Path, str] = {}

    def ask(self, known: Mapping[str, Known], now: float) -> Listing:
        """Read those that changed."""
        records: list[Record] = []
        troubles: list[str] = []
        for path in map(Path, self._settings.files):
            try:
                records += self._of(path, now, troubles)
            except AskError as error:
                troubles.append(f"{path}: {error}")
        if troubles and not records:
            raise AskError("; ".join(troubles))
        has_queue = any(record.from_queue for record in records)
        patience = _patience(self._settings, has_accounts=any(self._is_accounting.values()))
        is_whole = not troubles
        troubles += filter(None, self._unread.values())
        return Listing(listed(records, known, queue_counts=has_queue), is_whole, patience, "; ".join(troubles))

    def close(self) -> None:
        """Nothing is under way."""

    def _of(self, path: Path, now: float, troubles: list[str]) -> list[Record]:
        version = version_of(path)
        if version is None:
            raise AskError("no such file")
        written = version[0] / 1e9
        if path not in self._read or self._read[path][0] != version:
            lists = NodeLists()
            try:
                found = list(records_of(_parsed(text_of(path)), self._settings, written, lists))
            except ConfigError as error:
                raise AskError(error.problems[0].value) from error
            self._read[path] = version, found
            self._unread[path] = lists.trouble() and f"{path}: {lists.trouble()}"
            # A file without jobs is still of the kind that it was.
            if found:
                self._is_accounting[path] = not all(record.from_queue for record in found)
        age = now - written
        if age > max(_STALE, 10 * self._settings.every):
            troubles.append(f"{path}: not written since {format_moment(written)}")
        return self._read[path][1]


def listed(records: Sequence[Record], known: Mapping[str, Known], *, queue_counts: bool) -> dict[str, Job]:
    """Return key -> job.

    Args:
        records: what was said; of one run, an end counts more than that it runs.
        known: what is in the register: a run keeps the start that it was first seen with.
        queue_counts: whether squeue answered; then what sacct takes for running, and squeue does not list, is not.
    """
    in_queue = {record.job.id for record in records if record.from_queue}
    told = {key_of(record.job) for record in records}
    near: dict[str, list[Job]] = {}
    for key, one in known.items():
        if key not in told:
            near.setdefault(one.job.id, []).append(one.job)
    found: dict[str, Job] = {}
    for record in sorted(records, key=lambda one: (one.is_over, not one.from_queue)):
        job = record.job
        is_doubtful = queue_counts and not record.from_queue and not record.is_over and job.id not in in_queue
        if is_doubtful or (not record.is_over and key_of(job) in found):
            continue
        earlier = next((one for one in near.get(job.id, ()) if _is_same_run(job, one)), job)
        job = replace(job, start=earlier.start)
        near.setdefault(job.id, []).append(job)
        found[key_of(job)] = job
    return found


def _is_same_run(job: Job, earlier: Job) -> bool:
    """Whether two starts are nearly the same, and neither run was over when the other began."""
    apart = abs((job.start - earlier.start).total_seconds()) <= SAME_RUN
    follows = (earlier.end is not None and job.start >= earlier.end) or (
        job.end is not None and earlier.start >= job.end
    )
    return apart and not follows


def source(one: SlurmJobs, at: Around) -> Source:
    """Return the source of these settings."""
    return at.asked(one.name, SlurmFiles(one) if one.files else SlurmCommands(one), one.every)
