"""Receivers for tests of the delivery: strict HTTP servers that can fail on request, a real rsyslog, events."""

import gzip
import json
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.local_process import LocalProcess, end_of
from cluster.model import EventKind, EventSeverity
from delivery.event import Document, Event, Party, Threat, Traffic, event_id
from store.local_influxdb import free_port

RSYSLOGD = shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin")


def event(number: int, kind: EventKind = EventKind.VIOLATION, summary: str = "") -> Document:
    """Return one of many events, told apart by its number."""
    return Event(
        id=event_id("test", str(number)),
        kind=kind,
        action="not_allowed",
        title="Conversation that is not allowed",
        cluster="lab",
        time=1_772_352_000 + number,
        end=1_772_352_060 + number,
        severity=EventSeverity.WARNING,
        summary=summary or f"number {number}",
        source=Party(name="db-export-3", address="10.30.0.3", group="models", group_title="Model Storage"),
        destination=Party(
            address="203.0.113.9", group="external", country="NL", asn=64500, organisation="ExampleHost", user="jo"
        ),
        traffic=Traffic("tcp", "https", "outbound", 41_000_000_000, 30_000_000, 12, 720.0),
        threat=Threat(("one", "two"), "203.0.113.0/24", 80.0, 1_772_000_000),
        labels={"src": "db-export-3", "dst": "203.0.113.9"},
        runbook="https://wiki.example.org/runbook#x",
        board="http://grafana.example.org/d/cf-egress?viewPanel=1",
    ).document()


def numbers(documents: Sequence[Document]) -> list[int]:
    """Return the numbers of events, each at its first arrival."""
    found = dict.fromkeys(int(one["summary"].removeprefix("number ")) for one in documents)
    return list(found)


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something holds; fail if it does not in time."""
    ends = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > ends:
            pytest.fail("it did not come to be in time")
        time.sleep(0.02)


RESET = "reset"
"""A fault: the connection is reset, after the request was read, before it is carried out."""

RESET_AFTER = "reset after"
"""A fault: the request is carried out, its answer never comes."""

Answer = tuple[int, object, dict[str, str]]


class HttpReceiver:
    """A server on the loopback interface; `faults` are used up first, one a request.

    Args:
        take: carries out a request (path, headers, body) and returns its answer.
    """

    def __init__(self, take: Callable[[str, dict[str, str], bytes], Answer], port: int = 0) -> None:
        self.faults: list[tuple[int, dict[str, str]] | str] = []
        self.requests: list[tuple[float, str]] = []
        self._take = take
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver._serve(self, body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        with self._lock:
            self.requests.append((time.monotonic(), request.path))
            fault = self.faults.pop(0) if self.faults else None
            if isinstance(fault, tuple):
                self._reply(request, fault[0], {"text": "fault"}, fault[1])
                return
            if fault != RESET:
                answer = self._take(request.path, dict(request.headers), body)
            if fault is not None:
                linger = struct.pack("ii", 1, 0)
                request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                request.close_connection = True
                request.connection.close()
                return
            self._reply(request, *answer)

    def _reply(self, request: BaseHTTPRequestHandler, status: int, answer: object, headers: dict[str, str]) -> None:
        data = b"" if status == 204 else json.dumps(answer).encode()
        request.send_response(status)
        for name, text in headers.items():
            request.send_header(name, text)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)


class Hec:
    """What Splunk's HTTP Event Collector promises: codes and statuses as its documentation lists them."""

    def __init__(self, token: str, *, acks: bool = False) -> None:
        self.token, self.acks = token, acks
        self.events: list[Document] = []
        self.envelopes: list[dict[str, Any]] = []
        self.poison = ""
        self.indexes: set[str] | None = None
        self._asked = 0

    def __call__(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if headers.get("Authorization") != f"Splunk {self.token}":
            return 403, {"text": "Invalid token", "code": 4}, {}
        if path.startswith("/services/collector/ack"):
            assert f"channel={headers['X-Splunk-Request-Channel']}" in path
            self._asked += 1
            return 200, {"acks": {str(one): self._asked > 1 for one in json.loads(body)["acks"]}}, {}
        if path != "/services/collector/event":
            return 404, {"text": "The requested URL was not found on this server.", "code": 404}, {}
        envelopes, rest, decoder = [], body.decode().strip(), json.JSONDecoder()
        while rest:
            envelope, end = decoder.raw_decode(rest)
            if not self._takes(envelope):
                return 400, {"text": "Invalid data format", "code": 6, "invalid-event-number": len(envelopes)}, {}
            if self.indexes is not None and envelope.get("index") not in self.indexes:
                return 400, {"text": "Incorrect index", "code": 7, "invalid-event-number": len(envelopes)}, {}
            envelopes.append(envelope)
            rest = rest[end:].strip()
        self.envelopes += envelopes
        self.events += [envelope["event"] for envelope in envelopes]
        return 200, {"text": "Success", "code": 0, **({"ackId": 7} if self.acks else {})}, {}

    def _takes(self, envelope: dict[str, Any]) -> bool:
        known = {"time", "host", "source", "sourcetype", "index", "event", "fields"}
        is_whole = isinstance(envelope.get("time"), int | float) and envelope.get("event") and not set(envelope) - known
        return bool(is_whole) and not (self.poison and self.poison in json.dumps(envelope))


class Bulk:
    """What Elasticsearch's _bulk promises for `create`: a status an item, 409 for an _id that is there already."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.documents: dict[str, dict[str, Any]] = {}
        self.order: list[int] = []
        self.conflicts = 0
        self.item_faults: list[tuple[int, int]] = []
        self.poison = ""

    def __call__(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if headers.get("Authorization") != f"ApiKey {self.key}":
            return 401, {"error": {"type": "security_exception"}, "status": 401}, {}
        assert path == "/_bulk"
        assert headers["Content-Type"] == "application/x-ndjson"
        if headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if not body.endswith(b"\n"):
            return 400, {"error": {"reason": "The bulk request must be terminated by a newline [\\n]"}}, {}
        lines = [json.loads(line) for line in body.decode().splitlines()]
        items = []
        for number, (action, document) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
            (create,) = action.values()
            assert list(action) == ["create"]
            items.append({"create": {"_id": create["_id"], **self._create(number, create["_id"], document)}})
        return 200, {"took": 1, "errors": any(item["create"]["status"] >= 300 for item in items), "items": items}, {}

    def _create(self, number: int, name: str, document: dict[str, Any]) -> dict[str, Any]:
        for fault in self.item_faults:
            if fault[0] == number:
                self.item_faults.remove(fault)
                return {"status": fault[1], "error": {"type": "es_rejected_execution_exception"}}
        if self.poison and self.poison in json.dumps(document):
            return {"status": 400, "error": {"type": "document_parsing_exception"}}
        if name in self.documents:
            self.conflicts += 1
            return {"status": 409, "error": {"type": "version_conflict_engine_exception"}}
        self.documents[name] = document
        self.order.append(int(document["message"].removeprefix("number ")))
        return {"status": 201, "result": "created"}


@contextmanager
def listening(take: Callable[[str, dict[str, str], bytes], Answer], port: int = 0) -> Iterator[HttpReceiver]:
    """Run an HTTP receiver."""
    receiver = HttpReceiver(take, port)
    try:
        yield receiver
    finally:
        receiver.close()


_CONFIG = """\
global(workDirectory="{folder}" maxMessageSize="64k" localHostname="receiver" net.enableDNS="off"{tls})
module(load="imudp")
module(load="imtcp")
template(name="json" type="list") {{
  constant(value="{{") property(name="pri" format="jsonf") constant(value=",") property(name="timereported"
  dateFormat="rfc3339" format="jsonf") constant(value=",") property(name="hostname" format="jsonf") constant(value=",")
  property(name="app-name" format="jsonf") constant(value=",") property(name="msgid" format="jsonf")
  constant(value=",") property(name="structured-data" format="jsonf") constant(value=",")
  property(name="msg" format="jsonf") constant(value="}}\\n")
}}
input(type="imudp" address="127.0.0.1" port="{udp}" rcvbufSize="4m")
input(type="imtcp" address="127.0.0.1" port="{tcp}")
{secure}
action(type="omfile" file="{out}" template="json" flushOnTXEnd="on" asyncWriting="off")
"""

_TLS = """ defaultNetstreamDriver="gtls" defaultNetstreamDriverCAFile="{ca}" \
defaultNetstreamDriverCertFile="{certificate}" defaultNetstreamDriverKeyFile="{key}\""""

_SECURE = """input(type="imtcp" address="127.0.0.1" port="{tls}" streamDriver.name="gtls" streamDriver.mode="1" \
streamDriver.authMode="anon")"""


class Rsyslog(LocalProcess):
    """A real rsyslog with a configuration of its own, as the user of the tests.

    Args:
        folder: of its configuration and what it writes.
        certificates: files of the authority, the certificate and its key, for a TLS port too.
    """

    def __init__(self, folder: Path, certificates: tuple[Path, Path, Path] | None = None) -> None:
        super().__init__()
        self.folder, self._certificates = folder, certificates
        self.udp, self.tcp, self.tls = free_port(), free_port(), free_port()
        self.out = folder / "received.jsonl"

    def start(self) -> None:
        """Start it and wait until it listens."""
        assert RSYSLOGD is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        tls = secure = ""
        if self._certificates is not None:
            ca, certificate, key = self._certificates
            tls = _TLS.format(ca=ca, certificate=certificate, key=key)
            secure = _SECURE.format(tls=self.tls)
        config = self.folder / "rsyslog.conf"
        config.write_text(
            _CONFIG.format(folder=self.folder, udp=self.udp, tcp=self.tcp, out=self.out, tls=tls, secure=secure)
        )
        pid = self.folder / "rsyslog.pid"
        pid.unlink(missing_ok=True)
        command = [RSYSLOGD, "-n", "-C", "-f", str(config), "-i", str(pid)]
        log = self.folder / "rsyslog.log"
        process = self._launch(command, log)
        ends = time.monotonic() + 60
        while not (self._listens(self.tcp) and (not secure or self._listens(self.tls))):
            if process.poll() is not None or time.monotonic() > ends:
                self.kill()
                pytest.fail(f"rsyslog did not start: {end_of(log)}")
            time.sleep(0.05)

    @staticmethod
    def _listens(port: int) -> bool:
        # Asked of the kernel: a connection would be one that rsyslog has to serve.
        return f":{port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text(encoding="ascii")

    def received(self) -> list[dict[str, str]]:
        """Return the messages that it wrote, in order."""
        if not self.out.exists():
            return []
        return [json.loads(line) for line in self.out.read_text(encoding="utf-8").splitlines()]


def certificates(folder: Path, name: str = "localhost") -> tuple[Path, Path, Path]:
    """Make an authority and a certificate of it with `openssl`; return authority, certificate and key."""
    folder.mkdir(parents=True, exist_ok=True)
    ca, ca_key, own, own_key, request = (folder / one for one in ("ca.pem", "ca.key", "own.pem", "own.key", "own.csr"))
    extension = folder / "extension"
    extension.write_text(f"subjectAltName=DNS:{name},IP:127.0.0.1\n")
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for command in (
        [*new, "-x509", "-days", "2", "-subj", "/CN=Test authority", "-keyout", str(ca_key), "-out", str(ca),
         "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"],
        [*new, "-subj", f"/CN={name}", "-keyout", str(own_key), "-out", str(request)],
        ["openssl", "x509", "-req", "-in", str(request), "-CA", str(ca), "-CAkey", str(ca_key), "-CAcreateserial",
         "-days", "2", "-extfile", str(extension), "-out", str(own)],
    ):  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
    return ca, own, own_key
