"""Our HTTP endpoints against clients that mean harm, over raw sockets."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from analysis.jobs.register import Register
from analysis.jobs.sources import http as endpoint_module
from analysis.jobs.sources.http import HttpSource, _Handler
from app import http_server
from app.errors import ClusterflowError, UserError
from app.http_server import GuardedHandler, bears_token, cannot_listen
from app.log import Log
from cluster.load import parse_cluster
from cluster.model import AlertsFrom, BridgeSettings, DeliverySettings, FileDestination, HttpJobs, Secret, StoreSettings
from cluster.sections.job_sources import is_loopback
from delivery.deliver import Delivery
from ingest.counters import Counters
from ingest.metrics import MetricsServer, metrics_token
from store.influx import Store
from store.local_influxdb import free_port

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "s3cret-of-the-endpoint"


@dataclass(frozen=True, slots=True)
class Place:
    """One endpoint: its port, a path that asks for the token, connections that it takes at once."""

    port: int
    path: str
    most: int


@pytest.fixture(params=["metrics", "jobs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "metrics":
        metrics = MetricsServer("127.0.0.1:0", lambda: {"0": Counters()}, lambda: "", TOKEN)
        metrics.start()
        yield Place(metrics.port, "/metrics", 32)
        metrics.stop()
        return
    (tmp_path / "token").write_text(TOKEN)
    settings = HttpJobs("http", Secret(file=str(tmp_path / "token")), "127.0.0.1:0")
    with Register.open(tmp_path) as register:
        jobs = HttpSource(settings, register, ZoneInfo("UTC"), Log(quiet=True), keep=86_400)
        jobs.start()
        yield Place(jobs.port, "/jobs", 512)
        jobs.stop()


@pytest.mark.parametrize("kept", ["", " ", "\n\t\n"])
@pytest.mark.parametrize("by", ["env", "file"])
def test_an_empty_secret_opens_no_metrics_and_asks_no_store(
    by: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = kept_secret(by, kept, tmp_path, monkeypatch)
    with pytest.raises(UserError, match=r"^(secret file|environment variable) \S+ is empty$"):
        metrics_token(BridgeSettings(metrics_token=secret))
    with pytest.raises(UserError, match=r"is empty$"):
        Store(StoreSettings(username="clusterflow", password=secret))


@pytest.mark.parametrize("by", ["env", "file"])
def test_a_token_is_taken_without_the_end_of_its_line(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert metrics_token(BridgeSettings(metrics_token=kept_secret(by, f"{TOKEN}\r\n", tmp_path, monkeypatch))) == TOKEN
    assert metrics_token(BridgeSettings()) == ""


UNBEARABLE = {
    "umlaut": "geheim-für-uns", "wide": "秘密秘密秘密秘密", "mark": "\ufeffgeheim-bei-uns", "lines": "geheim\nbei-uns",
}  # fmt: skip


@pytest.mark.parametrize("kept", UNBEARABLE.values(), ids=UNBEARABLE)
@pytest.mark.parametrize("by", ["env", "file"])
@pytest.mark.parametrize("who", ["metrics", "jobs", "grafana"])
def test_a_token_that_no_header_can_bear_is_refused_at_the_start(
    who: str, by: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would match nothing, and every request would get 401 without a reason."""
    secret = kept_secret(by, kept, tmp_path, monkeypatch)
    place = {"metrics": "bridge.metrics_token", "jobs": "job source http", "grafana": "delivery.token"}[who]
    with pytest.raises(UserError) as caught:
        begin(who, secret, tmp_path)
    (line,) = caught.value.lines()
    number = next(number for number, sign in enumerate(kept, 1) if not (sign.isascii() and sign.isprintable()))
    assert line.startswith(f"{place}: character {number} of the token is not printable ASCII: expected ")
    assert line.isascii()
    assert "geheim" not in line


LISTENERS = {"metrics": "bridge.metrics_listen", "jobs": "job source http", "grafana": "delivery.listen"}


@pytest.mark.parametrize(("listen", "code"), [("192.0.2.1:9105", 1), ("127.0.0.1:70000", 2), ("127.0.0.1", 2)])
@pytest.mark.parametrize("who", LISTENERS)
def test_an_address_that_is_not_up_yet_may_pass_and_one_that_is_none_is_the_users_to_mend(
    who: str, listen: str, code: int, tmp_path: Path
) -> None:
    """Exit code 2 would keep systemd from starting it again, when a slow card is up or VRRP has moved the address."""
    (tmp_path / "token").write_text(TOKEN)
    with pytest.raises(ClusterflowError) as caught:
        begin(who, Secret(file=str(tmp_path / "token")), tmp_path, listen)
    (line,) = caught.value.lines()
    assert line.startswith(f"{LISTENERS[who]}: {listen}: cannot listen there: ")
    assert line.endswith("choose another host:port)")
    assert caught.value.exit_code == code


def test_a_port_for_root_alone_is_the_users_to_mend() -> None:
    """Nothing that starts us again would change it."""
    error = cannot_listen("bridge.metrics_listen", "127.0.0.1:80", PermissionError(13, "Permission denied"))
    assert error.exit_code == 2


@pytest.mark.parametrize("who", ["metrics", "jobs", "grafana"])
def test_a_secret_that_is_no_text_is_refused_in_one_line(who: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes("geheim-für-uns".encode("latin-1"))
    with pytest.raises(UserError) as caught:
        begin(who, Secret(file=str(tmp_path / "secret")), tmp_path)
    (line,) = caught.value.lines()
    assert line == f"secret file {tmp_path / 'secret'}: byte 8 is not UTF-8 (write the secret in ASCII)"


def begin(who: str, secret: Secret, folder: Path, listen: str = "127.0.0.1:0") -> None:
    """Start an endpoint, which is to refuse its token or its address."""
    if who == "metrics":
        token = metrics_token(BridgeSettings(metrics_token=secret))
        MetricsServer(listen, lambda: {"0": Counters()}, lambda: "", token)
    elif who == "grafana":
        out = FileDestination(name="out", path=str(folder / "out"))
        settings = DeliverySettings(
            destinations=(out,), state=str(folder), alerts=AlertsFrom.GRAFANA, token=secret, listen=listen
        )
        cluster = replace(parse_cluster("cluster: lab\ngroups: {a: {role: custom}}\n"), delivery=settings)
        Delivery(cluster, Store(cluster.store), log=Log(quiet=True))
    else:
        with Register.open(folder) as register:
            HttpSource(
                HttpJobs("http", secret, listen), register, ZoneInfo("UTC"), Log(quiet=True), keep=86_400
            ).start()


@pytest.mark.service
def test_a_process_whose_token_nobody_can_bear_ends_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text(
        f"""cluster: lab
groups: {{a: {{role: custom, prefixes: [10.0.0.0/8]}}}}
store: {{url: "http://127.0.0.1:1"}}
bridge: {{state: {tmp_path}, metrics_listen: "127.0.0.1:{free_port()}", metrics_token: {{env: METRICS}}}}
collector: {{spool: {tmp_path / "spool"}}}
delivery:
  state: {tmp_path / "delivery"}
  metrics_listen: "127.0.0.1:{free_port()}"
  destinations: {{out: {{type: file, path: {tmp_path / "out"}}}}}
"""
    )
    command = [sys.executable, "-m", "clusterflow", "deliver", "--config", str(config)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"METRICS": "geheim-für-uns"}, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    (line,) = [one for one in done.stderr.decode().splitlines() if "event=" not in one]
    assert "bridge.metrics_token: character 9 of the token is not printable ASCII" in line


def kept_secret(by: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Secret:
    if by == "env":
        monkeypatch.setenv("METRICS", text)
        return Secret(env="METRICS")
    (folder / "metrics").write_text(text, encoding="utf-8")
    return Secret(file=str(folder / "metrics"))


def converse(place: Place, *parts: bytes, pause: float = 0.0, seconds: float = 10.0) -> bytes:
    """Send parts one after the other; return everything that came back until the server closed, or the time was up."""
    with closing(socket.create_connection(("127.0.0.1", place.port), timeout=seconds)) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        answer = b""
        try:
            while block := connection.recv(65536):
                answer += block
        except OSError:
            pass
        return answer


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]).encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(None, 2)[1])


def test_the_token_opens_it_and_nothing_else_does(place: Place) -> None:
    assert status(converse(place, get(place.path, f"Authorization: Bearer {TOKEN}"))) == 200
    for header in (
        "X: y", "Authorization:", "Authorization: Bearer", f"Authorization: Basic {TOKEN}", f"Authorization: {TOKEN}",
        f"Authorization: Bearer {TOKEN}x", f"Authorization: Bearer {TOKEN[:-1]}", "Authorization: Bearer \xff\xfe",
        f"Authorization: Bearer {'x' * 10_000}",
    ):  # fmt: skip
        assert status(converse(place, get(place.path, header))) == 401, header


def test_a_token_is_compared_in_constant_time() -> None:
    """By the one function of Python's library that is made for it; timing itself would be a coin toss in a test."""
    assert "compare_digest" in bears_token.__code__.co_names
    assert bears_token("Bearer abcdefgh", b"abcdefgh")
    assert bears_token("bearer  abcdefgh ", b"abcdefgh")
    assert not bears_token("", b"abcdefgh")


HOSTILE = {
    "nothing": b"",
    "noise": bytes(range(256)) * 4,
    "no request line": b"\r\n\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "long path": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(50_000)) + b"\r\n",
    "path up the tree": b"GET /../../etc/passwd HTTP/1.1\r\n\r\n",
    "another host": b"GET http://169.254.169.254/ HTTP/1.1\r\n\r\n",
    "unknown method": b"BREW / HTTP/1.1\r\n\r\n",
    "trace": b"TRACE / HTTP/1.1\r\nCookie: a\r\n\r\n",
    "delete": b"DELETE /metrics HTTP/1.1\r\n\r\n",
    "http 9": b"GET / HTTP/9.9\r\n\r\n",
    "length below zero": b"POST /jobs/start HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "length of no number": b"POST /jobs/start HTTP/1.1\r\nContent-Length: a\r\n\r\n",
    "endless length": b"POST /jobs/start HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
    "two lengths": b"POST /jobs/start HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 9\r\n\r\nabc",
    "chunks": b"POST /jobs/start HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nabc",
}


@pytest.mark.parametrize("request_", HOSTILE.values(), ids=HOSTILE)
def test_nonsense_is_refused_without_a_word_about_ourselves(
    place: Place, request_: bytes, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedHandler, "seconds", 3.0)
    answer = converse(place, request_)
    if answer.startswith(b"HTTP/"):
        assert status(answer) >= 400
    for word in (b"Traceback", b"Python", b'File "', b"root:", TOKEN.encode(), b"<html", b"<!DOCTYPE"):
        assert word not in answer
    assert capfd.readouterr().err == ""
    assert status(converse(place, get(place.path, f"Authorization: Bearer {TOKEN}"))) == 200


@pytest.mark.service
@pytest.mark.parametrize("begin", [b"", b"G", b"GET / HTTP/1.1\r\nX: y\r\n"])
def test_a_request_that_drips_is_cut_off_in_time(place: Place, begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps a timeout for each byte waiting for ever: the whole request has one."""
    monkeypatch.setattr(GuardedHandler, "seconds", 1.0)
    began = time.monotonic()
    with closing(socket.create_connection(("127.0.0.1", place.port), timeout=5)) as connection:
        connection.sendall(begin)
        with suppress(OSError):
            while time.monotonic() - began < 8:
                time.sleep(0.1)
                connection.sendall(b"a")
    assert time.monotonic() - began < 4


@pytest.mark.service
def test_a_body_that_drips_is_cut_off_in_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardedHandler, "seconds", 1.0)
    head = f"POST /jobs/start HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n".encode()
    began = time.monotonic()
    converse(place, head, *[b"a"] * 30, pause=0.1)
    assert time.monotonic() - began < 5


@pytest.mark.service
def test_connections_beyond_the_limit_are_told_to_come_back_and_then_all_is_well(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(GuardedHandler, "seconds", 30.0)
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", place.port), timeout=5) for _ in range(place.most + 5)]
    try:
        answers = [connection.recv(100) for connection in idle[place.most :]]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
        assert threading.active_count() - before <= place.most
    finally:
        for connection in idle:
            connection.close()
    time.sleep(0.5)
    assert status(converse(place, get(place.path, f"Authorization: Bearer {TOKEN}"))) == 200


@pytest.mark.parametrize("place", ["jobs"], indirect=True)
def test_a_body_beyond_the_limit_is_refused_before_it_is_read(place: Place) -> None:
    length = endpoint_module.MOST_BYTES + 1
    head = f"POST /jobs/start HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n".encode()
    assert status(converse(place, head, b"x" * 1000)) == 413
    assert _Handler.most_bytes < 8 << 20


def test_defaults_listen_to_this_machine_alone() -> None:
    assert is_loopback(BridgeSettings().metrics_listen or "")
    assert is_loopback(HttpJobs("x", Secret(env="X")).listen)


def test_an_ipv6_address_is_listened_to() -> None:
    try:
        server = MetricsServer("[::1]:0", lambda: {"0": Counters()}, lambda: "")
    except ClusterflowError as error:
        pytest.skip(str(error))
    server.start()
    with closing(socket.create_connection(("::1", server.port), timeout=5)) as connection:
        connection.sendall(get("/healthz"))
        assert b"200" in connection.recv(100)
    server.stop()
