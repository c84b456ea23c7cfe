"""A real Grafana for tests (GRAFANA_HOME), receivers for what it sends, and its states beside those of our evaluator.

API shapes are those of Grafana 12.3: ``pkg/services/ngalert/api/tooling/definitions/prom.go`` and
``api/prometheus/api_prometheus.go`` (states as ``State (Reason)``, `activeAt` when the state began, Normal ones too).
"""

import email
import email.message
import json
import os
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email import policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from dashboards.registry import FOLDER
from rules.evaluate.evaluator import Evaluator, annotator
from rules.evaluate.states import Instance, Labels, State, advance_rule
from rules.rule import Rule
from store.local_influxdb import free_port

HOME = os.environ.get("GRAFANA_HOME", "")
PASSWORD = "live-test"
needs_grafana = pytest.mark.skipif(not HOME, reason="set GRAFANA_HOME to the folder of a Grafana 12")


@dataclass
class Grafana:
    """A Grafana that runs."""

    url: str
    log: Path

    def get(self, path: str) -> Any:
        response = requests.get(self.url + path, auth=("admin", PASSWORD), timeout=20)
        response.raise_for_status()
        return response.json()

    def post(self, path: str, body: object) -> Any:
        response = requests.post(self.url + path, json=body, auth=("admin", PASSWORD), timeout=60)
        assert response.ok, response.text[:500]
        return response.json()

    def complaints(self) -> list[str]:
        """Return the warnings and errors of its log that are about provisioning."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if "provision" in line and ("level=warn" in line or "level=error" in line)]


@contextmanager
def running(folder: Path, provisioned: Path, **settings: str) -> Iterator[Grafana]:
    """Run a Grafana over provisioned files; `settings` are more environment variables."""
    port = free_port()
    environment = {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_DATA": str(folder / "data"),
        "GF_PATHS_LOGS": str(folder / "logs"),
        "GF_PATHS_PLUGINS": str(folder / "plugins"),
        "GF_PATHS_PROVISIONING": str(provisioned),
        "GF_SECURITY_ADMIN_PASSWORD": PASSWORD,
        **settings,
    }
    # It logs an error for each of these that is not there, and tests provision some of them only.
    for name in ("plugins", "alerting", "datasources", "dashboards"):
        (provisioned / name).mkdir(exist_ok=True)
    (folder / "plugins").mkdir(exist_ok=True)
    # Our own settings keep it from asking the Internet.
    config = str(provisioned / "clusterflow.ini")
    log = folder / "grafana.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(Path(HOME) / "bin" / "grafana"), "server", "--homepath", HOME, "--config", config],
            env=os.environ | environment,
            stdout=output,
            stderr=output,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(f"{url}/api/health", process, log)
        yield Grafana(url, log)
    finally:
        process.terminate()
        process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if requests.get(url, timeout=2).ok:
                return
        except requests.RequestException:
            pass
        time.sleep(0.5)
    pytest.fail(f"Grafana did not start: {log.read_text(errors='replace')[-2000:]}")


# Receivers ----------------------------------------------------------------------------------------


@dataclass
class Inbox:
    """A webhook receiver that keeps what Grafana posts."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def alerts(self) -> dict[str, dict[str, Any]]:
        """Return the alerts posted so far, the last of each rule."""
        return {alert["labels"]["rule"]: alert for body in list(self.bodies) for alert in body["alerts"]}

    def messages(self) -> str:
        """Return the texts of all messages."""
        return "\n".join(body.get("message", "") for body in list(self.bodies))


@contextmanager
def webhook() -> Iterator[Inbox]:
    """Receive webhooks for as long as it lasts."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            # What Slack answers, without which Grafana takes it for a failure.
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield Inbox(f"http://127.0.0.1:{server.server_port}/", bodies)
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Mailbox:
    """A mail server that keeps what it is given."""

    host: str
    mails: list[email.message.EmailMessage] = field(default_factory=list)

    def texts(self) -> str:
        """Return subjects and bodies of all mails, both forms of each body."""
        found = []
        for mail in list(self.mails):
            found.append(str(mail["Subject"]))
            found += [str(part.get_content()) for part in mail.walk() if part.get_content_maintype() == "text"]
        return "\n".join(found).replace("\r\n", "\n")


class _Smtp(socketserver.StreamRequestHandler):
    """As much of RFC 5321 as a client needs that neither encrypts nor logs in."""

    def handle(self) -> None:
        self._say("220 test")
        while line := self.rfile.readline():
            verb = line.split(b" ")[0].strip().upper()
            if verb == b"DATA":
                self._say("354 go on")
                self._receive()
                self._say("250 kept")
            elif verb == b"QUIT":
                self._say("221 bye")
                return
            elif verb in (b"EHLO", b"HELO", b"MAIL", b"RCPT", b"RSET", b"NOOP"):
                self._say("250 ok")
            else:
                self._say("502 not here")

    def _receive(self) -> None:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            # A dot at the beginning of a line was doubled by the sender.
            lines.append(line[1:] if line.startswith(b"..") else line)
        mail = email.message_from_bytes(b"".join(lines), policy=policy.default)
        assert isinstance(mail, email.message.EmailMessage)
        self.server.mails.append(mail)  # type: ignore[attr-defined]

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class _MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """Receive mails for as long as it lasts."""
    with _MailServer(("127.0.0.1", 0), _Smtp) as server:
        box = Mailbox(f"127.0.0.1:{server.server_address[1]}")
        server.mails = box.mails  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield box
        finally:
            server.shutdown()


def mail_settings(box: Mailbox) -> dict[str, str]:
    """Return the environment by which Grafana sends its mails there."""
    return {
        "GF_SMTP_ENABLED": "true",
        "GF_SMTP_HOST": box.host,
        "GF_SMTP_FROM_ADDRESS": "grafana@example.org",
        "GF_SMTP_SKIP_VERIFY": "true",
        "GF_SMTP_STARTTLS_POLICY": "NoStartTLS",
    }


# States -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """An alert instance: its state with its reason, when it began, and its texts."""

    state: str
    since: int
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class Observation:
    """A rule after one evaluation: the tick, and what is not plainly Normal, by labels."""

    rule: str
    tick: int
    shown: Mapping[Labels, Shown]


STEP = 10
_SERIES = "__name__"
"""Label that Grafana gives a series without tags, so that it has one; it is never sent."""

_NORMAL = State.NORMAL.value


def observations(answer: Mapping[str, Any]) -> list[Observation]:
    """Read the answer of ``/api/prometheus/grafana/api/v1/rules``."""
    found = []
    for group in answer["data"]["groups"]:
        for entry in group["rules"]:
            tick = int(_moment(entry["lastEvaluation"])) // STEP * STEP
            if tick <= 0:
                # Go's zero time: not evaluated yet.
                continue
            shown = {}
            for alert in entry.get("alerts") or []:
                if not alert["state"].startswith(_NORMAL):
                    labels = tuple(sorted((name, text) for name, text in alert["labels"].items() if name != _SERIES))
                    since = int(_moment(alert["activeAt"]))
                    shown[labels] = Shown(alert["state"], since, alert.get("annotations") or {})
            found.append(Observation(entry["labels"]["rule"], tick, shown))
    return found


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def watched(grafana: Grafana, until: float) -> list[Observation]:
    """Observe all rules in the middle between two evaluations, when nothing moves, until an epoch second."""
    found = []
    while time.time() < until:
        time.sleep(STEP - (time.time() - 6) % STEP)
        found += observations(grafana.get("/api/prometheus/grafana/api/v1/rules"))
    return found


def ours(evaluator: Evaluator, rule: Rule, ticks: Sequence[int]) -> dict[int, dict[Labels, Shown]]:
    """Return what our evaluator shows of a rule after each of some evaluations, one after the other."""
    instances: dict[Labels, Instance] = {}
    found = {}
    for now in ticks:
        instances, _ = advance_rule(instances, now, next(evaluator.samples([(rule, now)])), rule, annotator(rule))
        found[now] = {_labels(rule, one): _shown(one) for one in instances.values() if one.state is not State.NORMAL}
    return found


def _labels(rule: Rule, instance: Instance) -> Labels:
    # The API names alerts about missing data and errors like the rule; only what is sent is renamed.
    return tuple(sorted({"alertname": rule.title, "grafana_folder": FOLDER, **dict(instance.labels)}.items()))


def _shown(instance: Instance) -> Shown:
    reason = f" ({instance.reason})" if instance.reason else ""
    return Shown(f"{instance.state.value}{reason}", instance.starts_at, instance.annotations)


def differences(theirs: Sequence[Observation], evaluator: Evaluator, rule: Rule) -> list[str]:
    """Return, as lines, where Grafana and our evaluator disagree about a rule; none if they agree at every tick."""
    seen = {one.tick: one.shown for one in theirs if one.rule == rule.id}
    if not seen:
        return [f"{rule.id}: Grafana did not evaluate it"]
    first, last = min(seen), max(seen)
    mine = ours(evaluator, rule, range(first, last + 1, rule.interval))
    lines = []
    for tick, shown in sorted(seen.items()):
        if tick not in mine:
            lines.append(f"{rule.id} at {tick}: evaluated between two ticks of its interval")
            continue
        for labels in sorted({*shown, *mine[tick]}):
            lines += _told(f"{rule.id} at {tick} {dict(labels)}", shown.get(labels), mine[tick].get(labels), first)
    return lines


def _told(where: str, theirs: Shown | None, mine: Shown | None, first: int) -> list[str]:
    if theirs is None or mine is None:
        return [f"{where}: Grafana {_word(theirs)}, we {_word(mine)}"]
    lines = [f"{where}: Grafana {theirs.state}, we {mine.state}"] if theirs.state != mine.state else []
    # What began before we looked began at another time for us.
    if mine.since > first and theirs.since // STEP * STEP != mine.since:
        lines.append(f"{where}: since {theirs.since}, we {mine.since}")
    lines += [
        f"{where}: {name}: Grafana {theirs.annotations.get(name)!r}, we {text!r}"
        for name, text in mine.annotations.items()
        if theirs.annotations.get(name) != text
    ]
    return lines


def _word(shown: Shown | None) -> str:
    return _NORMAL if shown is None else shown.state
