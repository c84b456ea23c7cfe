"""Job windows by HTTP: hooks of a scheduler tell when a job starts and stops.

    POST /jobs/start   {"id": "4711", "class": "llama-70b", "nodes": "gpu-[01-16]", "start": 1772352000}
    POST /jobs/stop    {"id": "4711", "outcome": "completed", "end": 1772355600}
    GET  /jobs         what is known

Only `id` and, for a start, `nodes` must be given; a time that is not given is now. Every request bears the token. To
say the same thing twice changes nothing, so that a hook may try again; a start that names further nodes adds them, so
that each node may tell of itself. An answer of 200 or 201 means that the job is on disk.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from zoneinfo import ZoneInfo

from analysis.jobs.job_records import age_fault, as_value, job_of, record_with
from analysis.jobs.job_source import GATHERING, Around, Source
from analysis.jobs.job_windows import end_of, start_of
from analysis.jobs.register import Known, Register, key_of
from app.errors import UserError
from app.http_server import GONE, GuardedHandler, GuardedServer, Tell, bears_token, check_token
from app.log import Log
from cluster.document import Faults
from cluster.document import Mapping as YamlMapping
from cluster.model import HttpJobs, Job, Outcome
from cluster.scalars.declared import Section
from cluster.scalars.kinds import Bad, Table, one_of
from cluster.sections.jobs import in_utc
from store.influx import read_secret

MOST_BYTES = 1 << 20
"""Longest body; a thousand nodes by name are a few dozen kilobytes."""

_METHODS = {"/jobs": "GET", "/jobs/start": "POST", "/jobs/stop": "POST"}
_MOST_CONNECTIONS = 512
_MOST_DIGITS = 20
_MOST_UNREAD = 4 * MOST_BYTES
_AHEAD = 300
_SHORTEST_TOKEN = 8
_SHORTEST = timedelta(seconds=1)
"""Length of a job that ended in the second in which it began."""

_START = record_with("id", "class", "nodes", "start", missing="start")
_STOP = record_with("id", "end", "outcome")


class RefusedError(Exception):
    """A request that is not carried out.

    Args:
        status: of the answer.
        lines: why, for the one who asked.
        headers: of the answer.
    """

    def __init__(self, status: HTTPStatus, *lines: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(lines)
        self.status, self.lines, self.headers = status, lines, headers or {}


class Desk:
    """Takes starts and stops, and knows what they mean.

    Args:
        name: of the source.
        register: where jobs go.
        zone: of times without an offset.
        longest: seconds after which a job that nobody stopped is over.
        keep: seconds of the raw retention: no job is taken in that began before.
    """

    def __init__(self, name: str, register: Register, zone: ZoneInfo, *, longest: float, keep: float) -> None:
        self._name, self._register, self._zone = name, register, zone
        self._longest, self._keep = longest, keep
        self._lock = threading.Lock()

    def begin(self, body: object, now: float) -> tuple[Job, bool]:
        """Take a start; return the job, and whether it was not known."""
        faults = Faults("request")
        table = _read(_START, body, faults)
        if table.get("start", "") is None:
            table["start"] = _at(now)
        told = job_of(table, "", self._zone, faults) if "start" in table else None
        if told is None or faults.problems:
            raise _bad(faults)
        _check_moment("start", told.start, now)
        with self._lock:
            # A word that comes late may be about a run before the one that is under way.
            runs = {key: run for key, run in self._runs(told.id).items() if end_of(run) > start_of(told)}
            if runs:
                key, job = min(runs.items(), key=lambda item: item[1].start)
                nodes = tuple(dict.fromkeys((*job.nodes, *told.nodes)))
                has_class = table.get("class") is not None
                merged = replace(job, nodes=nodes, job_class=told.job_class if has_class else job.job_class)
                if job.end is None and len(nodes) > len(job.nodes) and told.start - job.start > GATHERING:
                    following = replace(merged, start=told.start)
                    runs = {key: replace(job, end=told.start), key_of(following): following}
                    self._register.put(self._name, runs, now)
                    return following, False
                if job.end is None and merged != job:
                    self._register.put(self._name, {key: merged}, now)
                    return merged, False
                return job, False
            if fault := age_fault(told, now, self._keep):
                raise RefusedError(HTTPStatus.BAD_REQUEST, f"start: {fault}")
            self._register.put(self._name, {key_of(told): told}, now)
            return told, True

    def end(self, body: object, now: float) -> Job:
        """Take a stop; return the job."""
        faults = Faults("request")
        table = _read(_STOP, body, faults)
        if faults.problems:
            raise _bad(faults)
        given: datetime | None = table["end"]
        end = _at(now) if given is None else in_utc(given, self._zone, "end", faults)
        if end is None or faults.problems:
            raise _bad(faults)
        _check_moment("end", end, now)
        outcome: Outcome = table["outcome"] or Outcome.UNKNOWN
        with self._lock:
            runs = self._runs(table["id"])
            # A late word about an earlier run must not end the one that follows it.
            begun = {key: job for key, job in runs.items() if job.start <= end}
            if not begun:
                hint = "it was never started" if not runs else "it started after that time"
                raise RefusedError(HTTPStatus.NOT_FOUND, f"id: {table['id']}: expected a job that runs ({hint})")
            key, job = max(begun.items(), key=lambda item: item[1].start)
            if job.end is None:
                job = replace(job, end=max(end, job.start + _SHORTEST), outcome=outcome)
            elif job.outcome is Outcome.UNKNOWN:
                job = replace(job, outcome=outcome)
            self._register.put(self._name, {key: job}, now)
            return job

    def jobs(self) -> list[Job]:
        """Return every job, the latest first."""
        found = [known.job for known in self._register.jobs(self._name).values()]
        return sorted(found, key=lambda job: (job.start, job.id), reverse=True)

    def end_forgotten(self, now: float) -> None:
        """End jobs that were not stopped within `longest`."""
        with self._lock:
            for key, known in self._register.jobs(self._name).items():
                limit = start_of(known.job) + self._longest
                if known.job.end is None and limit <= now:
                    self._register.put(self._name, {key: replace(known.job, end=_at(limit))}, now)

    def _runs(self, job_id: str) -> dict[str, Job]:
        jobs: Mapping[str, Known] = self._register.jobs(self._name)
        return {key: known.job for key, known in jobs.items() if known.job.id == job_id}


def _at(moment: float) -> datetime:
    return datetime.fromtimestamp(int(moment), UTC)


def _read(section: Section, body: object, faults: Faults) -> Table:
    try:
        value = as_value(body)
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from None
    if not isinstance(value, YamlMapping):
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"expected {section.expected}")
    try:
        return section.read(value, "", faults)
    except Bad as bad:
        raise RefusedError(HTTPStatus.BAD_REQUEST, bad.expected or section.expected) from None


def _bad(faults: Faults) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, *(str(problem) for problem in faults.problems))


def _check_moment(key: str, moment: datetime, now: float) -> None:
    if moment.timestamp() > now + _AHEAD:
        shown = moment.isoformat().replace("+00:00", "Z")
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"{key}: {shown}: expected a time that is not in the future")


class HttpSource:
    """The endpoint.

    Args:
        settings: where it listens, its token, how long a job may run.
        register: where jobs go.
        zone: of times without an offset.
        log: for a request that failed for a reason of our own.
        keep: seconds of the raw retention: no job is taken in that began before.
        clock: tells the time of a request.
    """

    def __init__(
        self,
        settings: HttpJobs,
        register: Register,
        zone: ZoneInfo,
        log: Log,
        *,
        keep: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = settings.name
        self.desk = Desk(settings.name, register, zone, longest=settings.longest, keep=keep)
        self._settings, self._log, self._clock = settings, log, clock
        self._server: _Server | None = None

    @property
    def port(self) -> int:
        """The port in use; 0 before `start`."""
        return 0 if self._server is None else self._server.port

    def start(self) -> None:
        """Begin to answer.

        Raises:
            UserError: there is no token, or one that no header could bear, or nobody will ever listen there.
            ClusterflowError: nobody can listen there now.
        """
        token = read_secret(self._settings.token).strip()
        if len(token) < _SHORTEST_TOKEN:
            raise UserError(
                f"job source {self.name}: the token has {len(token)} characters",
                f"give it {_SHORTEST_TOKEN} or more, such as the output of `openssl rand -hex 32`",
            )
        check_token(token, f"job source {self.name}")
        self._server = _Server(
            f"job source {self.name}", self._settings.listen, self.desk, token, self._tell, self._clock
        )
        self._server.start()

    def _tell(self, error: BaseException | None) -> None:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        # Every node of a large job may meet the same one.
        self._log.sparse("job_request_failed", source=self.name, why=why)

    def refresh(self, now: float) -> str:
        """End jobs that were not stopped."""
        self.desk.end_forgotten(now)
        return ""

    def stop(self) -> None:
        """Stop answering and free the port."""
        if self._server is not None:
            self._server.stop()


class _Server(GuardedServer):
    request_queue_size = 256
    """A job of a thousand nodes, each of which tells of itself, does so at once."""

    def __init__(  # noqa: PLR0917 - one caller
        self, place: str, listen: str, desk: Desk, token: str, tell: Tell, clock: Callable[[], float]
    ) -> None:
        self.desk, self.tell, self.clock = desk, tell, clock
        self._token = token.encode()
        super().__init__(listen, _Handler, place=place, most=_MOST_CONNECTIONS, tell=tell)

    def is_trusted(self, authorization: str) -> bool:
        """Whether a header bears the token."""
        return bears_token(authorization, self._token)


class _Handler(GuardedHandler):
    server: _Server
    _unread = 0
    most_bytes = _MOST_UNREAD + (64 << 10)
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        self._answer_to({"/jobs": self._list})

    def do_POST(self) -> None:  # noqa: N802 - http.server's name
        self._answer_to({"/jobs/start": self._start, "/jobs/stop": self._stop})

    def _list(self) -> tuple[HTTPStatus, object]:
        return HTTPStatus.OK, {"jobs": [as_json(job) for job in self.server.desk.jobs()]}

    def _start(self) -> tuple[HTTPStatus, object]:
        job, is_new = self.server.desk.begin(self._body(), self.server.clock())
        return HTTPStatus.CREATED if is_new else HTTPStatus.OK, {"job": as_json(job)}

    def _stop(self) -> tuple[HTTPStatus, object]:
        return HTTPStatus.OK, {"job": as_json(self.server.desk.end(self._body(), self.server.clock()))}

    def _answer_to(self, paths: Mapping[str, Callable[[], tuple[HTTPStatus, object]]]) -> None:
        headers: Mapping[str, str] = {}
        self._unread = self._length() or 0
        try:
            status, answer = self._routed(paths)()
        except RefusedError as error:
            # What was not read of the request would be taken for the next one.
            self.close_connection = True
            status, headers = error.status, error.headers
            answer = {"error": error.lines[0], "errors": list(error.lines)}
        except GONE:
            raise
        except Exception as error:  # noqa: BLE001 - whoever asked is to know that it was not done
            self.server.tell(error)
            self.close_connection = True
            status, answer = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "not done: see the log", "errors": []}
        self._send(status, answer, headers)
        # Closed with something unread, the connection would be reset, and the answer lost on its way.
        self.rfile.read(min(self._unread, _MOST_UNREAD))

    def _routed(
        self, paths: Mapping[str, Callable[[], tuple[HTTPStatus, object]]]
    ) -> Callable[[], tuple[HTTPStatus, object]]:
        path = self.path.partition("?")[0]
        if not self.server.is_trusted(self.headers.get("Authorization", "")):
            why = "expected the header Authorization: Bearer TOKEN"
            raise RefusedError(HTTPStatus.UNAUTHORIZED, why, headers={"WWW-Authenticate": "Bearer"})
        if path not in _METHODS:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"{path[:60]}: expected {one_of(_METHODS)}")
        if path not in paths:
            method = _METHODS[path]
            raise RefusedError(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{self.command}: expected {method}", headers={"Allow": method}
            )
        return paths[path]

    def _body(self) -> object:
        length = self._length()
        if length is None:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "expected the header Content-Length")
        if length > MOST_BYTES:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MOST_BYTES:,} bytes")
        text, self._unread = self.rfile.read(length), 0
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, json.JSONDecodeError) else "not UTF-8, or nested too deeply"
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"expected JSON: {why}") from None

    def _length(self) -> int | None:
        """Return the bytes of the body; None where the request does not say."""
        digits = self.headers.get("Content-Length", "")
        return int(digits[:_MOST_DIGITS]) if digits.isdecimal() else None

    def _send(self, status: HTTPStatus, answer: object, headers: Mapping[str, str]) -> None:
        body = json.dumps(answer).encode() + b"\n"
        with suppress(*GONE):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)


def as_json(job: Job) -> dict[str, Any]:
    """Return a job for machines; times in UTC."""

    def written(moment: datetime | None) -> str | None:
        return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")

    return {
        "id": job.id,
        "class": job.job_class,
        "nodes": list(job.nodes),
        "start": written(job.start),
        "end": written(job.end),
        "outcome": job.outcome.value,
    }


def source(one: HttpJobs, at: Around) -> Source:
    """Return the source of these settings."""
    return HttpSource(one, at.register, at.zone, at.log, keep=at.keep)
