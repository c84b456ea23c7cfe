"""A real rsyslog: what is sent arrives as RFC 5424 says, over UDP, TCP and TLS, whatever becomes of the receiver."""

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from receivers import RSYSLOGD, Rsyslog, certificates, event, until

from cluster.model import Destination, SyslogDestination, SyslogFormat, SyslogTransport
from delivery.queue import Spool
from delivery.sender import Sender
from store.schema import Stage

Deliver = Callable[[Destination], Sender]


@pytest.fixture(scope="module", autouse=True)
def needs_rsyslog() -> None:
    if RSYSLOGD is None or shutil.which("openssl") is None:
        if os.environ.get("CI"):
            pytest.fail("no rsyslog: CI tests syslog against a real receiver (apt-get install rsyslog rsyslog-gnutls)")
        pytest.skip("no rsyslog or openssl: apt-get install rsyslog rsyslog-gnutls openssl")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """An authority, a certificate of localhost, and its key."""
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def rsyslog(tmp_path: Path, files: tuple[Path, Path, Path]) -> Iterator[Rsyslog]:
    with Rsyslog(tmp_path / "rsyslog", files) as running:
        yield running


def _destination(rsyslog: Rsyslog, transport: SyslogTransport, ca: Path, **more: object) -> SyslogDestination:
    port = {SyslogTransport.UDP: rsyslog.udp, SyslogTransport.TCP: rsyslog.tcp, SyslogTransport.TLS: rsyslog.tls}
    tls = {"ca_file": str(ca)} if transport is SyslogTransport.TLS else {}
    host = "localhost" if transport is SyslogTransport.TLS else "127.0.0.1"
    return SyslogDestination(
        name="siem", address=f"{host}:{port[transport]}", transport=transport, **(tls | more)  # type: ignore[arg-type]
    )  # fmt: skip


def _fill(spool: Spool, start: int, stop: int) -> None:
    for number in range(start, stop, 10):
        spool.append([event(one) for one in range(number, min(number + 10, stop))], {})


def _numbers(rsyslog: Rsyslog) -> list[int]:
    """Return the numbers of what came, each at its first arrival."""
    found = [re.search(r"number (\d+)", one["msg"]) for one in rsyslog.received()]
    return list(dict.fromkeys(int(one[1]) for one in found if one))


@pytest.mark.parametrize("transport", list(SyslogTransport), ids=lambda one: one.value)
def test_messages_arrive_whole_and_in_order(
    transport: SyslogTransport, rsyslog: Rsyslog, files: tuple[Path, Path, Path], spool: Spool, deliver: Deliver
) -> None:
    deliver(_destination(rsyslog, transport, files[0]))
    strange = 'a "quoted" ] \\ back\nslash = | ünï ' + "x" * 600
    spool.append([{**event(0), "cluster": strange}], {})
    _fill(spool, 1, 100)
    until(lambda: len(_numbers(rsyslog)) == 100)
    assert _numbers(rsyslog) == list(range(100))
    first, second = rsyslog.received()[:2]
    assert (second["pri"], second["app-name"], second["msgid"]) == ("132", "clusterflow", "violation")
    assert second["timereported"].startswith("2026-03-01T08:00:01")
    data = second["structured-data"]
    assert data.startswith(f'[clusterflow@32473 id="{event(1)["id"]}" ')
    assert 'dstAsn="64500" dstOrg="ExampleHost"' in data
    assert 'bytes="41000000000"' in data
    assert second["msg"] == "number 1"
    # What was escaped comes out as it was, and ended neither the value nor the message.
    parameter = re.search(r' cluster="((?:[^"\\\]]|\\.)*)" start=', first["structured-data"])
    assert parameter is not None
    assert re.sub(r"\\(.)", r"\1", parameter[1]).startswith('a "quoted" ] \\ back slash = | ünï xxx')


@pytest.mark.parametrize("transport", [SyslogTransport.TCP, SyslogTransport.TLS], ids=lambda one: one.value)
def test_a_receiver_that_is_killed_gets_everything(
    transport: SyslogTransport, rsyslog: Rsyslog, files: tuple[Path, Path, Path], spool: Spool, deliver: Deliver
) -> None:
    sender = deliver(_destination(rsyslog, transport, files[0]))
    _fill(spool, 0, 100)
    until(lambda: spool.waiting("siem") == 0)
    for turn in (1, 2):
        # What it has read and not yet written is its own to lose.
        until(lambda turn=turn: len(_numbers(rsyslog)) == 100 * turn)  # type: ignore[misc]
        rsyslog.kill()
        _fill(spool, 100 * turn, 100 * turn + 100)
        until(lambda: sender.failing_seconds() > 0)
        rsyslog.start()
        until(lambda: spool.waiting("siem") == 0)
    until(lambda: len(_numbers(rsyslog)) == 300)
    assert _numbers(rsyslog) == list(range(300))


def test_datagrams_wait_while_nobody_listens(
    rsyslog: Rsyslog, files: tuple[Path, Path, Path], spool: Spool, deliver: Deliver
) -> None:
    rsyslog.stop()
    sender = deliver(_destination(rsyslog, SyslogTransport.UDP, files[0]))
    _fill(spool, 0, 20)
    until(lambda: sender.failing_seconds() > 0.2)
    assert spool.waiting("siem") == 20
    rsyslog.start()
    until(lambda: len(_numbers(rsyslog)) == 20)


def test_an_event_that_cannot_be_written_does_not_stop_the_others(
    rsyslog: Rsyslog, files: tuple[Path, Path, Path], spool: Spool, deliver: Deliver, tmp_path: Path
) -> None:
    deliver(_destination(rsyslog, SyslogTransport.TCP, files[0]))
    spool.append([event(0), {**event(1), "severity": "of a later version"}, event(2)], {})
    until(lambda: spool.waiting("siem") == 0)
    until(lambda: _numbers(rsyslog) == [0, 2])
    assert "of a later version" in (tmp_path / "refused.jsonl").read_text()


def test_an_address_that_is_none_refuses_no_event(spool: Spool, deliver: Deliver) -> None:
    sender = deliver(SyslogDestination(name="x", address="a..b:514", transport=SyslogTransport.TCP))
    spool.append([event(0)], {})
    until(lambda: sender.counters.total(Stage.DELIVER, "x.retries") > 1)
    assert spool.waiting("x") == 1
    assert sender.counters.total(Stage.DELIVER, "x.refused") == 0


def test_a_refused_event_is_kept_whole(spool: Spool, deliver: Deliver, tmp_path: Path) -> None:
    sender = deliver(SyslogDestination(name="x", address="127.0.0.1:1", transport=SyslogTransport.TCP))
    refused = {**event(0, summary="long " * 2000), "severity": "of a later version"}
    spool.append([refused], {})
    until(lambda: sender.counters.total(Stage.DELIVER, "x.refused") == 1)
    (letter,) = (tmp_path / "refused.jsonl").read_text().splitlines()
    assert json.loads(json.loads(letter)["line"])["event"] == refused


def test_cef_in_syslog(rsyslog: Rsyslog, files: tuple[Path, Path, Path], spool: Spool, deliver: Deliver) -> None:
    deliver(_destination(rsyslog, SyslogTransport.TLS, files[0], format=SyslogFormat.CEF))
    _fill(spool, 0, 1)
    until(rsyslog.received)
    (one,) = rsyslog.received()
    assert one["msg"].startswith("CEF:0|clusterflow|clusterflow|")
    assert " src=10.30.0.3 dst=203.0.113.9 " in one["msg"]
    assert one["structured-data"] == "-"


def test_a_certificate_of_another_authority_or_name_is_not_trusted(
    rsyslog: Rsyslog, spool: Spool, deliver: Deliver, tmp_path: Path
) -> None:
    ca, _, _ = certificates(tmp_path / "another")
    sender = deliver(_destination(rsyslog, SyslogTransport.TLS, ca))
    _fill(spool, 0, 1)
    until(lambda: sender.failing_seconds() > 0.3)
    time.sleep(0.3)
    assert rsyslog.received() == []
    assert spool.waiting("siem") == 1


class Sink:
    """A receiver over TCP that takes everything; what it does when the sender has closed is the test's."""

    def __init__(self, *, closes: bool, context: ssl.SSLContext | None = None) -> None:
        self.received: list[bytes] = []
        self.peers: list[str] = []
        self._closes, self._context = closes, context
        self._kept: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._server.accept()[0]
                with contextlib.suppress(OSError):
                    self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        self._kept.append(connection)
        if self._context is not None:
            secure = self._context.wrap_socket(connection, server_side=True)
            self._kept[-1] = connection = secure
            subject = dict(pair for part in secure.getpeercert()["subject"] for pair in part)  # type: ignore[index,misc]
            self.peers.append(str(subject["commonName"]))
        while data := connection.recv(65_536):
            self.received.append(data)
        if self._closes:
            connection.close()

    def numbers(self) -> list[int]:
        """Return the numbers of all messages, repeats too."""
        found, rest = [], b"".join(self.received)
        while rest:
            size, _, rest = rest.partition(b" ")
            found.append(int(rest[: int(size)].rpartition(b"number ")[2]))
            rest = rest[int(size) :]
        return found

    def close(self) -> None:
        self._server.close()
        for connection in self._kept:
            connection.close()


@pytest.mark.service
def test_a_receiver_that_never_closes_gets_everything_once_that_is_known(
    spool: Spool, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delivery.transports.syslog_transport._CLOSE_SECONDS", 0.3)
    with contextlib.closing(Sink(closes=False)) as sink:
        deliver(SyslogDestination(name="x", address=f"127.0.0.1:{sink.port}", transport=SyslogTransport.TCP))
        _fill(spool, 0, 600)
        until(lambda: spool.waiting("x") == 0)
        _fill(spool, 600, 620)
        until(lambda: spool.waiting("x") == 0)
        until(lambda: 619 in sink.numbers())
        found = sink.numbers()
    assert list(dict.fromkeys(found)) == list(range(620))
    # One batch came twice: the one after which we looked whether it is slow.
    assert len(found) <= 620 + 500


def test_a_receiver_that_asks_for_our_certificate_gets_it(
    files: tuple[Path, Path, Path], spool: Spool, deliver: Deliver
) -> None:
    ca, certificate, key = files
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    with contextlib.closing(Sink(closes=True, context=context)) as sink:
        place = {"address": f"localhost:{sink.port}", "transport": SyslogTransport.TLS, "ca_file": str(ca)}
        bare = deliver(SyslogDestination(name="bare", **place))  # type: ignore[arg-type]
        shown = {"certificate_file": str(certificate), "key_file": str(key)}
        deliver(SyslogDestination(name="shown", **(place | shown)))  # type: ignore[arg-type]
        _fill(spool, 0, 10)
        until(lambda: spool.waiting("shown") == 0)
        until(lambda: bare.failing_seconds() > 0)
        assert (sink.numbers(), set(sink.peers)) == (list(range(10)), {"localhost"})
        assert spool.waiting("bare") == 10
